"""Position-wise feed-forward network (section 3.3): FFN(x) = max(0, x W₁ + b₁) W₂ + b₂.

Models of other toolkits have another activation than max(0, x): gelu(x) = x Φ(x), with the distribution function Φ of
the normal distribution (Hendrycks and Gimpel 2016), or swish(x) = x σ(x), with the logistic function σ (Ramachandran et
al. 2017).
"""

import keras
from keras import ops

from t2t_keras.layers.dense import Dense, leading
from t2t_keras.layers.dropout import Dropout


@keras.saving.register_keras_serializable("t2t_keras")
class FeedForward(keras.layers.Layer):
    """Applies the same two linear maps at every position, equation 2: [B, T, D] → [B, T, D].

    Args:
        d_ff: width between the two maps.
        activation: Keras's name of the activation between the two maps.
        dropout: dropout rate of the result of the activation; not in the paper.

    Example:

    ```python
    layer = t2t_keras.FeedForward(d_ff=32)
    layer(np.ones((2, 5, 8), "float32")).shape  # (2, 5, 8)
    ```
    """

    def __init__(self, d_ff: int, activation: str = "relu", dropout: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.d_ff, self.activation = d_ff, activation
        self.inner = Dense(d_ff, activation=activation, name="inner", dtype=self.dtype_policy)
        # None at all without a rate, as in `MultiHeadAttention`.
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy) if dropout else None
        self.supports_masking = True

    def build(self, input_shape):
        self.inner.build(input_shape)
        self.outer = Dense(input_shape[-1], name="outer", dtype=self.dtype_policy)
        self.outer.build((*input_shape[:-1], self.d_ff))

    def call(self, x, training=False):
        # Rows between the two maps, [B * T, F], because each reshape to [B, T, F] computes B and T.
        hidden = self.inner(ops.reshape(x, (-1, x.shape[-1])))
        rows = self.outer(self.dropout(hidden, training=training) if self.dropout else hidden)
        return ops.reshape(rows, (*leading(x), x.shape[-1]))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "d_ff": self.d_ff,
            "activation": self.activation,
            "dropout": self.dropout.rate if self.dropout else 0.0,
        }
