"""Positional encoding (section 3.5):

    PE(pos, 2i)   = sin(pos / 10000^(2i/d_model))
    PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))

Tensor2tensor, and after it Marian and fairseq, divide by 10000^(i/(d_model/2 - 1)) instead, so that the last frequency
is 1 / 10000.
"""

import math

import keras
from keras import ops

from t2t_keras.config import PAPER, SINUSOIDS
from t2t_keras.layers.dense import add_bias


def sinusoids(positions, d_model: int, form: str = PAPER, dtype: str = "float32"):
    """Returns the position encodings of section 3.5, [T, D], sines in even columns and cosines in odd ones. The
    positions, [T], are counted from 0, `d_model` must be even, and `form` says whose frequencies: "paper" or
    "tensor2tensor".
    """
    if d_model % 2:
        raise ValueError(f"d_model must be even: sinusoids come in pairs (section 3.5). Received: d_model={d_model}.")
    steps = d_model if form == PAPER else d_model - 2
    if not steps:
        raise ValueError(f"d_model must be 4 or more for the sinusoids of {form}. Received: d_model={d_model}.")
    frequency = ops.exp(ops.arange(0, d_model, 2, dtype=dtype) * (-math.log(10000.0) / steps))
    angle = ops.cast(positions, dtype)[:, None] * frequency
    return ops.reshape(ops.stack([ops.sin(angle), ops.cos(angle)], axis=-1), (-1, d_model))


def _check_rank(x) -> None:
    if len(x.shape) != 3:
        raise ValueError(f"Expected vectors of positions in sentences, [B, T, D]. Received: shape {tuple(x.shape)}.")


@keras.saving.register_keras_serializable("t2t_keras")
class SinusoidalPositions(keras.layers.Layer):
    """Adds the sinusoids of section 3.5: [B, T, D] → [B, T, D].

    Args:
        form: whose frequencies: "paper" or "tensor2tensor".
        first: number of the first position; 0 in the paper.

    Call arguments:
        x: [B, T, D].
        position: position of the first column.
        step: difference between the positions of two columns; 0 if all columns are at the same position.

    Raises:
        ValueError: there is no such form, or x does not have three axes.

    Example:

    ```python
    layer = t2t_keras.SinusoidalPositions()
    expected = [[[0, 1, 0, 1], [np.sin(1), np.cos(1), np.sin(0.01), np.cos(0.01)]]]
    np.allclose(layer(np.zeros((1, 2, 4), "float32")), expected)  # True
    ```
    """

    def __init__(self, form: str = PAPER, first: int = 0, **kwargs):
        super().__init__(**kwargs)
        if form not in SINUSOIDS:
            raise ValueError(f"`form` must be one of {', '.join(SINUSOIDS)}. Received: form={form}.")
        self.form, self.first = form, first
        self.supports_masking = True

    def call(self, x, position=0, step=1):
        _check_rank(x)
        positions = self.first + position + step * ops.arange(ops.shape(x)[1])
        dtype = keras.backend.result_type(x.dtype, "float32")
        return x + ops.cast(sinusoids(positions, x.shape[-1], self.form, dtype), x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "form": self.form, "first": self.first}


@keras.saving.register_keras_serializable("t2t_keras")
class LearnedPositions(keras.layers.Layer):
    """Adds a learned vector for each position (Table 3, row E): [B, T, D] → [B, T, D]. Positions past the table use its
    last row.

    Args:
        rows: number of positions in the table.

    Call arguments:
        x: [B, T, D].
        position: position of the first column.
        step: difference between the positions of two columns; 0 if all columns are at the same position.

    Example:

    ```python
    layer = t2t_keras.LearnedPositions(rows=100)
    layer(np.zeros((2, 5, 8), "float32")).shape  # (2, 5, 8)
    last = layer(np.zeros((2, 1, 8), "float32"), position=99)
    np.array_equal(last, layer(np.zeros((2, 1, 8), "float32"), position=1000))  # True
    ```
    """

    def __init__(self, rows: int, **kwargs):
        super().__init__(**kwargs)
        self.rows = rows
        self.supports_masking = True

    def build(self, input_shape):
        self.table = self.add_weight(
            shape=(self.rows, input_shape[-1]), initializer=keras.initializers.RandomNormal(stddev=0.02), name="table"
        )

    def call(self, x, position=0, step=1):
        _check_rank(x)
        positions = ops.minimum(position + step * ops.arange(ops.shape(x)[1]), self.rows - 1)
        return add_bias(x, ops.take(self.table, positions, axis=0))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "rows": self.rows}
