"""The task of BERT (Devlin et al. 2019, section 3.1): masked words, and whether a second sentence follows the first.

The special ids of every vocabulary stand for BERT's special symbols: BOS for [CLS], EOS for [SEP], and UNK, which no
text has, for [MASK].
"""

import types
import zlib
from collections.abc import Iterator

import numpy as np

from t2t_keras.config import BOS, EOS
from t2t_keras.runs.task import LOSS, Column, Metric, Renewal, Task

SPECIALS = 3  # [CLS] and two [SEP] of a text.


class Pretraining(Task):
    """Masked words and next sentences, on documents with a sentence on each line and a blank line between them.

    A record has as many sentences of a document as fit. Where the first part of a text ends, whether its second part is
    that of another document, and which words are masked is drawn anew each epoch; see `tasks.masking`.
    """

    texts = ("source",)
    unit = "masked word"
    plain_text = True
    documents = True
    columns = (
        Column("tokens"),
        Column("masked", counted=False, is_text=False),
        Column("target", counted=False),
        Column("following", counted=False, is_text=False),
    )
    stored = (
        Column("tokens"),
        Column("lengths", counted=False, is_text=False),
        Column("document", counted=False, is_text=False),
    )
    sums = ("objective", "loss", "right", "next_loss", "next_right", "texts")
    objective = "objective"
    metrics = (
        LOSS._replace(
            train="Mean negative log likelihood per masked word, in nats, since the last point.",
            valid="Mean negative log likelihood per masked word of the validation set, in nats.",
        ),
        Metric(
            "masked_accuracy",
            "Accuracy of masked words",
            train="Share of the masked words that are the most likely ones.",
            valid="Share of the masked words of the validation set that are the most likely ones.",
        ),
        Metric(
            "next_loss",
            "Loss of next sentences",
            train=(
                "Mean negative log likelihood of whether the second sentence follows the first, in nats, by masked "
                "words."
            ),
            valid=(
                "Mean negative log likelihood of whether the second sentence follows the first, in nats, of the "
                "validation set."
            ),
        ),
        Metric(
            "next_accuracy",
            "Accuracy of next sentences",
            train=(
                "Share of the texts with a correct prediction of whether the second sentence follows the first; chance "
                "is about a half."
            ),
            valid=(
                "Share of the texts of the validation set with a correct prediction of whether the second sentence "
                "follows the first."
            ),
        ),
    )
    best_metrics = ("loss", "masked_accuracy")
    defaults = types.MappingProxyType(
        {"label_smoothing": 0.0, "learning_rate": 1e-4, "warmup_steps": 10_000, "clip_norm": 1.0}
    )

    def records(self, tokenizer, lines: list[bytes], max_length: int) -> Iterator[tuple]:
        """See `Task.records`: sentences of a document, up to `max_length` sub-words with the special ones; their
        lengths; and a number that stands for the document.

        Longer sentences than half of it are divided. A document of one sentence has no pair, and is left out.
        """
        room = max_length - SPECIALS
        if room < 2:
            raise ValueError(
                f"Expected room for two sentences and {SPECIALS} special sub-words. Received: max_length={max_length}."
            )
        sentences = iter([ids[:-1] for ids in tokenizer.sentences([line for line in lines if line])])
        document, text = [], []
        for line in [*lines, b""]:
            if line:
                ids = next(sentences)
                text.append(line)
                document += [ids[start : start + room // 2] for start in range(0, len(ids), room // 2)]
                continue
            code = 1 + zlib.crc32(b"\n".join(text)) % (2**16 - 1)
            for group in _packed(document, room):
                yield np.concatenate([[BOS], *group, [EOS, EOS]]), np.array(list(map(len, group))), np.array([code])
            document, text = [], []

    def renewal(self, tokenizer, options, training: bool) -> Renewal:
        """See `Task.renewal`: pairs and masks."""
        from t2t_keras.tasks import masking  # Here, because options are checked before TensorFlow is imported.

        return masking.renewal(tokenizer, options.model.mask_rate, options.model.whole_words)

    def loss(self, model, batch: dict, *, label_smoothing: float, training: bool) -> dict:
        """See `Task.loss` and `Bert.losses`."""
        columns = (batch[column.name] for column in self.columns)
        return model.losses(*columns, label_smoothing, training)

    def measure(self, sums: dict[str, float], training: bool) -> dict[str, float]:
        """See `Task.measure`."""
        words = sums["target_tokens"]
        return {
            "loss": sums["loss"] / words,
            "masked_accuracy": sums["right"] / words,
            "next_loss": sums["next_loss"] / words,
            "next_accuracy": sums["next_right"] / sums["texts"],
        }


def _packed(sentences: list, room: int) -> Iterator[list]:
    """Yields groups of two sentences or more that follow one another and have at most `room` ids, together as many as
    fit.

    A last sentence that would be alone comes with the one before it, which then is in two groups.
    """
    group, last, size = [], [], 0
    for sentence in sentences:
        if size + len(sentence) > room:
            yield group
            group, last, size = [], group[-1:], 0
        group.append(sentence)
        size += len(sentence)
    if len(group) == 1:
        group = last + group
    if len(group) > 1:
        yield group
