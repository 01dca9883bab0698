"""The linear map x W + b over rows of any shape."""

import keras
from keras import ops

from t2t_keras.layers.bias import add_bias
from t2t_keras.layers.inference import mode


def linear(x, kernel, bias=None):
    """Computes x W + b as one matrix product.

    Args:
        x: [..., D].
        kernel: [D, F].
        bias: [F], or `None`.

    Returns:
        [N, F], where N is the product of all axes of `x` but the last.
    """
    function = mode().linear or _linear
    return function(ops.reshape(x, (-1, x.shape[-1])), kernel, bias)


def _linear(rows, kernel, bias):
    rows = ops.matmul(rows, kernel)
    return rows if bias is None else add_bias(rows, bias)


def leading(x) -> tuple:
    """Returns all axes of x but the last, for a reshape. The first is -1 if the others are static, so a graph need not
    compute it.
    """
    others = x.shape[1:-1]
    return (-1, *others) if others and all(others) else ops.shape(x)[:-1]


@keras.saving.register_keras_serializable("t2t_keras")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` that computes [B, T, D] as one matrix product and has an accurate bias gradient in bfloat16
    (see `add_bias`).
    """

    def call(self, inputs):
        # A tensor, because a custom gradient does not take variables.
        bias = None if self.bias is None else ops.ravel(self.bias)
        rows = linear(inputs, ops.convert_to_tensor(self.kernel), bias)
        return self.activation(ops.reshape(rows, (*leading(inputs), self.units)))
