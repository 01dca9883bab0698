"""The linear map x W + b over rows of any shape."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator

import keras
from keras import ops

from t2t_keras.model.bias import add_bias

_override: contextvars.ContextVar[Callable | None] = contextvars.ContextVar("linear", default=None)


def linear(x, kernel, bias=None):
    """x W + b as one matrix product.

    Args:
        x: [..., D].
        kernel: [D, F].
        bias: [F], or None.

    Returns:
        [rows, F], where rows is the product of all sizes of `x` but the last.
    """
    function = _override.get() or _linear
    return function(ops.reshape(x, (-1, x.shape[-1])), kernel, bias)


def _linear(rows, kernel, bias):
    rows = ops.matmul(rows, kernel)
    return rows if bias is None else add_bias(rows, bias)


@contextlib.contextmanager
def computed_by(function: Callable) -> Iterator[None]:
    """Inside, `linear` is `function(rows [N, D], kernel, bias)`: for an engine that has a faster way to the same result."""
    token = _override.set(function)
    try:
        yield
    finally:
        _override.reset(token)


def leading(x) -> tuple:
    """All sizes of x but the last, to reshape with: -1 for the first where the others are known, so that a graph need not compute it."""
    first, *others = ops.shape(x)[:-1]
    return (-1 if others and all(isinstance(size, int) and size for size in others) else first), *others


@keras.saving.register_keras_serializable("t2t_keras")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` of [B, T, D] as one product of matrices. Its bias learns in bfloat16 too: see `add_bias`."""

    def call(self, inputs):
        bias = None if self.bias is None else ops.ravel(self.bias)  # A tensor: a custom gradient is not of variables.
        rows = linear(inputs, ops.convert_to_tensor(self.kernel), bias)
        return self.activation(ops.reshape(rows, (*leading(inputs), self.units)))
