"""Embeddings and softmax (section 3.4): one matrix E embeds source and target, scaled by √d_model, and computes the logits h Eᵀ."""

import keras
from keras import ops

from t2t_keras.layers.dense import leading, linear


@keras.saving.register_keras_serializable("t2t_keras")
class SharedEmbedding(keras.layers.Layer):
    """The matrix that both embedding layers and the pre-softmax linear map share.

    A call embeds ids: [B, T] int → [B, T, D]. `logits` computes logits: [B, T, D] → [B, T, V].

    Args:
        vocab_size: number of ids, V.
        d_model: width of an embedding, D.
    """

    def __init__(self, vocab_size: int, d_model: int, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size, self.d_model = vocab_size, d_model

    def build(self, input_shape=None):
        # With a standard deviation of d_model^-1/2, scaled embeddings have a variance of 1.
        initializer = keras.initializers.RandomNormal(stddev=self.d_model**-0.5)
        self.matrix = self.add_weight(shape=(self.vocab_size, self.d_model), initializer=initializer, name="matrix")

    def call(self, ids):
        return ops.take(self.matrix, ids, axis=0) * self.d_model**0.5

    def logits(self, hidden):
        """Computes hidden · Eᵀ: [B, T, D] → [B, T, V] in the compute dtype of the layer."""
        # Runs outside `call`, where Keras does not cast weights.
        logits = linear(ops.cast(hidden, self.compute_dtype), ops.transpose(ops.cast(self.matrix, self.compute_dtype)))
        return ops.reshape(logits, (*leading(hidden), self.vocab_size))

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.d_model)

    def get_config(self):
        return {**super().get_config(), "vocab_size": self.vocab_size, "d_model": self.d_model}
