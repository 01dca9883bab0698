"""Position-wise feed-forward network (section 3.3): FFN(x) = max(0, x W₁ + b₁) W₂ + b₂."""

import keras
from keras import ops

from t2t_keras.bias import add_bias


@keras.saving.register_keras_serializable("t2t_keras")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` whose bias learns in bfloat16 too: see `add_bias`."""

    def call(self, inputs):
        bias = ops.ravel(self.bias)  # As a tensor: a custom gradient is not of variables.
        return self.activation(add_bias(ops.matmul(inputs, self.kernel), bias))


@keras.saving.register_keras_serializable("t2t_keras")
class FeedForward(keras.layers.Layer):
    """The same two linear maps at every position, equation 2. [B, T, D] → [B, T, D].

    Args:
        d_ff: width between the two maps.
    """

    def __init__(self, d_ff: int, **kwargs):
        super().__init__(**kwargs)
        self.d_ff = d_ff
        self.inner = Dense(d_ff, activation="relu", name="inner", dtype=self.dtype_policy)

    def build(self, input_shape):
        self.inner.build(input_shape)
        self.outer = Dense(input_shape[-1], name="outer", dtype=self.dtype_policy)
        self.outer.build((*input_shape[:-1], self.d_ff))

    def call(self, x):
        return self.outer(self.inner(x))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "d_ff": self.d_ff}
