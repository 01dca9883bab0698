"""The task of a classifier: lines of a label and one sentence or two, with tabs between them (Devlin et al. 2019,
section 4.1).
"""

import types
from collections.abc import Callable, Iterator

import numpy as np

from t2t_keras.config import BOS
from t2t_keras.runs.task import LOSS, Column, Metric, Renewal, Task
from t2t_keras.text.lines import is_blank

# Names of columns, in the header of a table.
_LABELS = {"label", "labels", "class", "category", "sentiment", "gold_label"}
_TEXTS = {"text", "sentence", "sentence1", "sentence2", "premise", "hypothesis", "question", "answer"}


class Classification(Task):
    """The class of a text: "label<TAB>sentence" or "label<TAB>sentence<TAB>sentence" on each line."""

    texts = ("source",)
    plain_text = True
    columns = (Column("tokens"), Column("label", counted=False, is_text=False))
    stored = (Column("tokens"), Column("name", counted=False, is_text=False))
    target, unit = "label", "text"
    sums = ("objective", "loss", "right")
    objective = "objective"
    metrics = (
        LOSS._replace(
            train="Mean negative log likelihood of the class, in nats.", valid="The same of the validation set."
        ),
        Metric(
            "accuracy",
            "Accuracy",
            train="Share of right classes.",
            valid="Share of right classes of the validation set.",
        ),
    )
    best_metrics = ("accuracy", "loss")
    defaults = types.MappingProxyType(
        {"label_smoothing": 0.0, "learning_rate": 5e-5, "warmup_steps": 100, "clip_norm": 1.0}
    )

    def records(self, tokenizer, lines: list[bytes]) -> Iterator[tuple]:
        """See `Task.records`: [CLS] sentence [SEP], or [CLS] sentence [SEP] sentence [SEP]; and the label's bytes."""
        fields = [parse(line) for line in lines]
        sentences = iter(tokenizer.sentences([sentence for _, *own in fields for sentence in own]))
        for label, *own in fields:
            yield np.concatenate([[BOS], *(next(sentences) for _ in own)]), np.frombuffer(label, np.uint8)

    def sentences(self, line: bytes) -> tuple[bytes, ...]:
        """See `Task.sentences`: the line without its label."""
        return parse(line)[1:]

    def renewal(self, tokenizer, options, training: bool) -> Renewal:
        """See `Task.renewal`: a name becomes its position among the names of the model, counted from 1. Another one is
        an error.
        """
        import tensorflow as tf  # Here, because options are checked before TensorFlow is imported.

        names, characters = tf.constant(list(options.model.names)), tf.constant([bytes([byte]) for byte in range(256)])

        def change(records: dict, seed) -> dict:
            labels = tf.strings.reduce_join(tf.gather(characters, records["name"]), axis=1)
            is_name = labels[:, None] == names
            strange = tf.unique(tf.boolean_mask(labels, ~tf.reduce_any(is_name, axis=1)))[0]
            expected = f"Expected `labels` of the text. Received: labels={options.model.labels}, and in the text "
            message = expected + tf.strings.reduce_join(strange[:20], separator=", ")
            with tf.control_dependencies([tf.debugging.Assert(tf.size(strange) == 0, [message])]):
                label = tf.argmax(is_name, axis=1, output_type=tf.int32) + 1
            return {"tokens": records["tokens"], "label": tf.RaggedTensor.from_tensor(label[:, None])}

        return Renewal(("tokens", "label"), change, longest=lambda length: {"label": 1})

    def loss(self, model, batch: dict, *, label_smoothing: float, training: bool) -> dict:
        """See `Task.loss` and `Classifier.losses`."""
        return model.losses(batch["tokens"], batch["label"], label_smoothing, training)

    def measure(self, sums: dict[str, float], training: bool) -> dict[str, float]:
        """See `Task.measure`."""
        return {"loss": sums["loss"] / sums["target_tokens"], "accuracy": sums["right"] / sums["target_tokens"]}

    def validation(self, model, tokenizer, options, texts: tuple[list[str], ...]) -> Callable[[], dict]:
        """See `Task.validation`: nothing more is measured. Raises `ValueError` for other labels than the model's."""
        [lines] = texts
        labels = {label for label, *_ in read(lines, "the validation text")}
        if strange := sorted(labels - set(options.model.names)):
            received = f"labels={options.model.labels}, and {strange[0]!r} in the text"
            raise ValueError(f"Expected `labels` of the text. Received: {received}.")
        return dict


def read(lines: list[str], name: str) -> list[tuple[str, ...]]:
    """Returns the label and the sentences of each line of a text, which messages call `name`, without blank lines.
    Raises `ValueError` if a line has not two or three fields, no line is left, or the first is a header.
    """
    found = []
    for number, line in enumerate(lines, 1):
        if not is_blank(line):
            try:
                found.append(tuple(field.decode() for field in parse(line.encode())))
            except ValueError as error:
                raise ValueError(f"{name}, line {number}: {error}") from error
    if not found:
        raise ValueError(f"Expected labels and sentences in {name}. Received: blank lines.")
    header, names = found[0], set(map(str.lower, found[0]))
    is_header = names & _LABELS and names <= _LABELS | _TEXTS
    if is_header and all(label != header[0] for label, *rest in found if (label, *rest) != header):
        received = "\t".join(header)
        raise ValueError(
            f"Expected {name} without a header. Received: {received!r} as its first line. Remove it from each file."
        )
    return found


def parse(line: bytes) -> tuple[bytes, ...]:
    """Returns the label and the sentences of a line. Raises `ValueError` if it has others than two or three fields, or
    an empty one.
    """
    fields = tuple(field.strip() for field in line.split(b"\t"))
    if len(fields) not in (2, 3) or any(map(is_blank, fields)):
        expected = "a label and one sentence or two, with tabs between them"
        raise ValueError(f"Expected {expected}, on each line. Received: {line.decode(errors='replace')!r:.100}.")
    return fields
