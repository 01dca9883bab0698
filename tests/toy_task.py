"""A task of its own, tagging words by case, registered as another package would: nothing in the package knows it."""

import dataclasses

import keras
import numpy as np
from keras import ops

from t2t_keras import (
    Column,
    Metric,
    ModelConfig,
    SequenceModel,
    Task,
    TransformerEncoder,
    option,
    register_architecture,
    register_task,
)
from t2t_keras.model.loss import cross_entropy
from t2t_keras.runs.task import LOSS

LOWER, CAPITALIZED, UPPER = 1, 2, 3
NAMES = {LOWER: "lower", CAPITALIZED: "Capitalized", UPPER: "UPPER"}


def tag(word: str) -> int:
    return UPPER if word.isupper() and len(word) > 1 else CAPITALIZED if word[:1].isupper() else LOWER


class Tagging(Task):
    """The case of each word, to be told from the text in lower case."""

    texts = ("source",)
    columns = (Column("words"), Column("case", counted=False, is_text=False))
    target = "case"
    sums = ("loss", "smoothed_loss", "correct")
    objective = "smoothed_loss"
    metrics = (
        LOSS,
        Metric("accuracy", "Accuracy", train="Share of right tags in training.", valid="Share of right tags."),
    )
    best_metrics = ("accuracy", "loss")

    def records(self, tokenizer, lines):
        for line, ids in zip(lines, tokenizer.sentences([line.lower() for line in lines]), strict=True):
            tags, words = [], iter([tag(word) for word in line.decode().split()])
            for piece in ids[:-1]:
                tags.append(next(words) if not tags or tokenizer.pieces[piece].startswith("▁") else tags[-1])
            yield ids, np.array([*tags, LOWER])  # The last one is of the end token.

    def loss(self, model, columns, *, label_smoothing, training):
        logits, tags = model(columns["words"], training=training), columns["case"]
        smoothed, loss = cross_entropy(ops.cast(logits, "float32"), tags, label_smoothing)
        right = ops.logical_and(ops.equal(ops.argmax(logits, axis=-1), tags), ops.not_equal(tags, 0))
        return {
            "loss": ops.sum(loss),
            "smoothed_loss": ops.sum(smoothed),
            "correct": ops.sum(ops.cast(right, "float32")),
        }

    def measure(self, sums, training):
        return {"loss": sums["loss"] / sums["target_tokens"], "accuracy": sums["correct"] / sums["target_tokens"]}

    def validation(self, model, tokenizer, options, texts):
        [lines] = texts
        ids = [ids for ids, _ in self.records(tokenizer, [line.encode() for line in lines[:2]])]

        def samples() -> dict:
            found = [ops.convert_to_numpy(ops.argmax(model(each[None]), axis=-1))[0] for each in ids]
            return {"samples": "\n".join(" ".join(NAMES.get(int(tag), "?") for tag in tags) for tags in found)}

        return samples


@dataclasses.dataclass(frozen=True)
class TaggerConfig:
    """Options of `Tagger`."""

    vocab_size: int = option(100, "Size of the sub-word vocabulary.")
    d_model: int = option(16, "Width of the encoder.")
    dropout: float = option(0.1, "Dropout rate.")

    @property
    def encoder(self) -> ModelConfig:
        sizes = {"encoder_layers": 1, "d_ff": 32, "num_heads": 2, "d_k": 8, "d_v": 8}
        return ModelConfig(self.vocab_size, d_model=self.d_model, dropout=self.dropout, **sizes)

    @property
    def num_weights(self) -> int:
        d, f, heads = self.d_model, self.encoder.d_ff, self.encoder.num_heads * self.encoder.d_k
        return self.vocab_size * d + 4 * d * heads + 2 * d * f + f + d + 4 * d + (d + 1) * (UPPER + 1)


class Tagger(SequenceModel):
    """The encoder of the Transformer with a linear map to tags on top."""

    def __init__(self, config, name="tagger", **kwargs):
        super().__init__(config, name=name, **kwargs)
        self.encoder = TransformerEncoder(config.encoder, dtype=self.dtype_policy)
        self.tags = keras.layers.Dense(UPPER + 1, name="tags", dtype=self.dtype_policy)
        self.tags.build((None, None, config.d_model))
        self.built = True

    def call(self, words, training=False):
        return self.tags(self.encoder(words, training=training))

    def flops(self, rows, length):
        return self.encoder.flops(rows, length) + rows * length * 2 * self.config.d_model * (UPPER + 1)

    def memory_cost(self, rows, length):
        return self.encoder.memory_cost(rows, length)


register_task("case_tagging", Tagging)
register_architecture("tagger", options=TaggerConfig, model=Tagger, task="case_tagging")
