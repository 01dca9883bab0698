"""Classifies text with a run of the architecture classifier, and exports it as a SavedModel that maps text to labels.

export_dir/1/saved_model.pb                    the graph: sub-words and network
export_dir/1/variables/                        the weights
export_dir/1/assets.extra/t2t_keras.json       a description of the model, with the labels

A program that loads it needs TF.Text, but not this package.
"""

import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import tensorflow as tf

import t2t_keras
from t2t_keras.config import AVERAGE, BOS, EOS
from t2t_keras.decoding.loading import make_model
from t2t_keras.layers.inference import inference
from t2t_keras.model.bert import Classifier
from t2t_keras.runs import checkpoint as checkpoints
from t2t_keras.runs import export_folder, run_options
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving import savedmodel
from t2t_keras.system.log import logger
from t2t_keras.system.tensorflow import choose_float32, share_gpus
from t2t_keras.text.subwords import Subwords

BATCH = 32  # Texts at once.


class Prediction(NamedTuple):
    """The prediction for a text.

    Attributes:
        label: the most likely class.
        probabilities: of all classes, by their names.
    """

    label: str
    probabilities: dict[str, float]


class TextClassifier:
    """Maps text to labels.

    Args:
        model: the network.
        tokenizer: its sub-words.
        max_length: maximum number of sub-words of a text, with the special ones. Longer texts are cut, and of two
            sentences the longer one.
    """

    def __init__(self, model: Classifier, tokenizer: Subwords, max_length: int):
        self.model, self.tokenizer, self.max_length = model, tokenizer, max_length
        self.names = model.config.names

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")], autograph=False)
        def classify(text) -> dict:
            with inference():
                probabilities = tf.nn.softmax(model.class_logits(self.tokens(text)))
            names = tf.constant(self.names)
            label, labels = tf.gather(names, tf.argmax(probabilities, axis=1)), tf.tile(names[None], [tf.size(text), 1])
            return {"label": label, "labels": labels, "probabilities": probabilities}

        self.classify = classify

    def tokens(self, text):
        """Converts text to ids.

        Args:
            text: [B] string, a sentence, or two with a tab between them.

        Returns:
            [CLS] sentence [SEP] or [CLS] sentence [SEP] sentence [SEP], [B, S] int32, 0-padded.
        """
        both = tf.strings.split(text, "\t", maxsplit=1).to_tensor("", shape=[None, 2])
        first, second = (self.tokenizer.words(both[:, side], self.max_length) for side in range(2))
        pair = tf.cast(second.row_lengths() > 0, tf.int64)
        room = self.max_length - 2 - pair  # Beside [CLS] and [SEP].
        longest = tf.maximum(room - second.row_lengths(), (room + pair) // (1 + pair))
        first = _cut(first, longest)
        second = _cut(second, room - first.row_lengths())
        begin, end = (tf.fill([tf.shape(text)[0], 1], token) for token in (BOS, EOS))
        last = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(pair)], EOS), pair)
        parts = [tf.RaggedTensor.from_tensor(begin), first, tf.RaggedTensor.from_tensor(end), second, last]
        return tf.concat([part.with_row_splits_dtype(tf.int64) for part in parts], axis=1).to_tensor()

    def predict(self, texts: Iterable[str], batch_size: int = 0) -> Iterator[Prediction]:
        """Yields the prediction for each text, a sentence or two with a tab between them; `batch_size` texts are
        classified at once, 0 is 32.
        """
        texts = iter(texts)
        while batch := list(itertools.islice(texts, batch_size or BATCH)):
            found = self.classify(tf.constant(batch))
            for label, row in zip(found["label"].numpy(), found["probabilities"].numpy().tolist(), strict=True):
                yield Prediction(label.decode(), dict(zip(self.names, row, strict=True)))


def _cut(ids: tf.RaggedTensor, longest) -> tf.RaggedTensor:
    """Cuts rows to at most so many ids each, [B] int64."""
    starts = ids.row_starts()
    return tf.gather(ids.values, tf.ragged.range(starts, starts + tf.minimum(ids.row_lengths(), longest)))


def load(run: SavedRun, checkpoint: str = AVERAGE) -> tuple[TextClassifier, dict]:
    """Returns the classifier of a run with the weights of `checkpoint`, and the state of training in the newest file
    that was read; see `checkpoint.load`. Raises `FileNotFoundError` if there is no such checkpoint, and `ValueError` if
    the run is of another task, or a file is damaged.
    """
    if run.task.name != "classification":
        raise ValueError(
            f"Expected a run of `t2t-classify`. Received: {run.folder}, whose architecture is {run.architecture}."
        )
    share_gpus()
    choose_float32(run.train.tf32)
    model, tokenizer = make_model(run, checkpoint)
    loaded, state = checkpoints.load(run.folder, checkpoint, model)
    logger.info(f"Using the {loaded}.")
    return TextClassifier(model, tokenizer, run.data.max_length), state


def export(export_dir: pathlib.Path, run: SavedRun, checkpoint: str = AVERAGE) -> pathlib.Path:
    """Exports the classifier of a run as the next version of a SavedModel.

    Its signature maps "text" [B] string, as `TextClassifier.tokens` takes it, to "label" [B] string, "probabilities"
    [B, C] float32, and "labels" [B, C] string, the names of the classes in the order of the probabilities.

    Returns the folder of the version. Raises `BlockingIOError` if another process is exporting into the folder of all
    versions, `ValueError` if that holds a run, and the errors of `load`.
    """
    export_folder.check(export_dir)
    classifier, state = load(run, checkpoint)
    weights = [weight.value for weight in classifier.model.weights]
    description = {
        "model": dataclasses.asdict(classifier.model.config),
        "labels": classifier.names,
        "max_length": classifier.max_length,
        "subwords_sha256": hashlib.sha256(classifier.tokenizer.model).hexdigest(),
        run_options.ARCHITECTURE: run.architecture,
        "checkpoint": checkpoint,
        "update": state.get("step"),
        "versions": {"t2t_keras": t2t_keras.__version__, "tensorflow": tf.__version__},
    }

    signatures = {"serving_default": classifier.classify}
    folder = savedmodel.write_version(
        export_dir,
        lambda unfinished: savedmodel.save(unfinished, signatures, [classifier.tokenizer], weights, description),
    )
    logger.info(f"Exported to {folder}. A SavedModel is a program: serve only your own.")
    return folder
