"""Embeddings and softmax (section 3.4): one matrix E embeds source and target, scaled by √d_model, and computes the
logits h Eᵀ.

By option, logits have a matrix of their own (Press and Wolf 2017 compare both), and a bias.
"""

import keras
from keras import ops

from t2t_keras.layers.dense import leading, linear


@keras.saving.register_keras_serializable("t2t_keras")
class SharedEmbedding(keras.layers.Layer):
    """The matrix that both embedding layers and the pre-softmax linear map share.

    A call embeds ids: [B, T] int → [B, T, D]. `logits`, or a call with `reverse`, computes logits: [B, T, D] → [B, T,
    V].

    Args:
        vocab_size: number of ids, V.
        d_model: width of an embedding, D.
        tie_logits: whether logits are computed with E; if not, with a matrix of their own.
        logits_bias: whether a bias is added to logits.

    Attributes:
        matrix: E, [V, D].
        logits_matrix: the matrix of the logits, [V, D]: E, or one of their own.
        bias: bias of the logits, [V], or `None`.

    Example:

    ```python
    layer = t2t_keras.SharedEmbedding(vocab_size=100, d_model=8)
    hidden = layer(np.array([[5, 6, 7], [8, 3, 0]]))
    hidden.shape  # (2, 3, 8)
    layer.logits(hidden).shape  # (2, 3, 100)
    ```
    """

    def __init__(self, vocab_size: int, d_model: int, tie_logits: bool = True, logits_bias: bool = False, **kwargs):
        super().__init__(autocast=False, **kwargs)  # Ids that come as floats must not be rounded.
        self.vocab_size, self.d_model = vocab_size, d_model
        self.tie_logits, self.logits_bias = tie_logits, logits_bias

    def build(self, input_shape=None):
        # With a standard deviation of d_model^-1/2, scaled embeddings have a variance of 1.
        initializer = keras.initializers.RandomNormal(stddev=self.d_model**-0.5)
        shape = (self.vocab_size, self.d_model)
        self.matrix = self.add_weight(shape=shape, initializer=initializer, name="matrix")
        self.logits_matrix = self.matrix
        if not self.tie_logits:
            self.logits_matrix = self.add_weight(shape=shape, initializer=initializer, name="logits_matrix")
        self.bias = (
            self.add_weight(shape=shape[:1], initializer="zeros", name="logits_bias") if self.logits_bias else None
        )

    def call(self, inputs, reverse=False):
        if reverse:
            return self.logits(inputs)
        if keras.backend.standardize_dtype(inputs.dtype) not in ("int32", "int64"):
            inputs = ops.cast(inputs, "int32")  # Keras builds some models with floats.
        return ops.cast(ops.take(self.matrix, inputs, axis=0), self.compute_dtype) * self.d_model**0.5

    def logits(self, hidden):
        """Computes hidden · `logits_matrix`ᵀ + `bias`: [B, T, D] → [B, T, V] in the compute dtype of the layer."""
        if isinstance(hidden, keras.KerasTensor):  # A functional model has the weights of calls alone.
            return self(hidden, reverse=True)
        # Runs outside `call`, where Keras does not cast weights.
        matrix = ops.transpose(ops.cast(self.logits_matrix, self.compute_dtype))
        bias = None if self.bias is None else ops.ravel(ops.cast(self.bias, self.compute_dtype))
        logits = linear(ops.cast(hidden, self.compute_dtype), matrix, bias)
        return ops.reshape(logits, (*leading(hidden), self.vocab_size))

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.d_model)

    def compute_output_spec(self, inputs, reverse=False):
        shape = (*inputs.shape[:-1], self.vocab_size) if reverse else (*inputs.shape, self.d_model)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self):
        options = {name: getattr(self, name) for name in ("vocab_size", "d_model", "tie_logits", "logits_bias")}
        return {**super().get_config(), **options}
