"""Position-wise feed-forward network (section 3.3): FFN(x) = max(0, x W₁ + b₁) W₂ + b₂."""

import keras

from t2t_keras.layers.dense import Dense


@keras.saving.register_keras_serializable("t2t_keras")
class FeedForward(keras.layers.Layer):
    """Applies the same two linear maps at every position, equation 2: [B, T, D] → [B, T, D].

    Args:
        d_ff: width between the two maps.
    """

    def __init__(self, d_ff: int, **kwargs):
        super().__init__(**kwargs)
        self.d_ff = d_ff
        self.inner = Dense(d_ff, activation="relu", name="inner", dtype=self.dtype_policy)
        self.supports_masking = True

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
