"""An architecture of its own, a gated recurrent cell, registered as another package would: nothing in the package knows
it.
"""

import dataclasses

import keras
from keras import ops

from t2t_keras import EncoderDecoder, SharedEmbedding, follow, option, register_architecture
from t2t_keras.layers.dropout import Dropout


@dataclasses.dataclass(frozen=True)
class GruConfig:
    """Options of `Gru`."""

    vocab_size: int = option(340, "Size of the sub-word vocabulary.")
    d_model: int = option(16, "Width of embeddings and cells.")
    depth: int = option(1, "Number of decoder cells.")
    dropout: float = option(0.1, "Dropout rate of embeddings.")

    @property
    def num_weights(self) -> int:
        return self.vocab_size * self.d_model + (1 + self.depth) * (6 * self.d_model**2 + 6 * self.d_model)


class Gru(EncoderDecoder):
    """The decoder starts from the last state of the encoder."""

    def __init__(self, config, name="gru", **kwargs):
        super().__init__(config, name=name, **kwargs)
        policy, width = {"dtype": self.dtype_policy}, config.d_model
        cell = {"recurrent_initializer": "glorot_uniform", **policy}  # The default one has no bfloat16.
        self.embedding = SharedEmbedding(config.vocab_size, width, name="embedding", **policy)
        self.dropout = Dropout(config.dropout, name="dropout", **policy)
        self.reader = keras.layers.GRU(width, name="reader", **cell)
        cells = [keras.layers.GRUCell(width, name=f"cell_{index}", **cell) for index in range(config.depth)]
        self.writer = keras.layers.RNN(cells, return_sequences=True, name="writer", **policy)
        for layer, shape in (
            (self.embedding, (None, None)),
            (self.reader, (None, None, width)),
            (self.writer, (None, None, width)),
        ):
            layer.build(shape)
        self.built = True

    def encode(self, source, training=False):
        return self.reader(self.dropout(self.embedding(source), training=training), mask=ops.not_equal(source, 0))

    def initial_state(self, memory, beams):
        return [ops.repeat(memory[:, None], beams, axis=1) for _ in self.writer.cell.cells]

    def decode(self, target, memory, state=None, position=0, ancestors=None, training=False):
        x = self.dropout(self.embedding(target), training=training)
        if state is None:
            x = self.writer(x, initial_state=[memory for _ in self.writer.cell.cells])
        else:
            batch, beams, width = ops.shape(x)
            flat = [ops.reshape(each, (-1, self.config.d_model)) for each in follow(state, ancestors)]
            x, state = self.writer.cell(ops.reshape(x, (-1, self.config.d_model)), flat)
            x, *state = (ops.reshape(each, (batch, beams, width)) for each in (x, *state))
        return ops.cast(self.embedding.logits(x), "float32"), state

    def flops(self, rows, source, target):
        width, cells = self.config.d_model, source + self.config.depth * target
        return rows * (12 * width**2 * cells + 2 * target * width * self.config.vocab_size)


register_architecture("gru", options=GruConfig, model=Gru)
