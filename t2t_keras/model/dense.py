"""The linear map x W + b, over rows of any shape."""

import keras
from keras import ops

from t2t_keras.model.bias import add_bias
from t2t_keras.model.constants import are_weights_constant

# Too little to change any bfloat16 above 10⁻²⁷. TensorFlow leaves out a bias of zeros.
_NO_BIAS = 1e-30


def leading(x) -> tuple:
    """All sizes of x but the last, to reshape with: -1 for the first where the others are known, so that a graph need not compute it."""
    first, *others = ops.shape(x)[:-1]
    return (-1 if others and all(isinstance(size, int) and size for size in others) else first), *others


def product(x, kernel, bias=None):
    """x W + b. [..., D] and [D, F] → [rows, F]."""
    width = kernel.shape[-1]
    rows = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), kernel)
    if not are_weights_constant():
        return rows if bias is None else add_bias(rows, bias)
    # TensorFlow on a CPU makes one operation of a product with a constant weight and a bias, which keeps the weight in the order
    # that the first call's number of rows wants. In bfloat16 all numbers want the same, and that is the fastest product. In float32
    # others want others and reorder all of it at each call, 40 ms for 16 M weights: there, nothing is to be made one.
    if keras.backend.standardize_dtype(rows.dtype) == "bfloat16":
        return rows + (ops.full((width,), _NO_BIAS, rows.dtype) if bias is None else bias)
    return rows if bias is None else ops.reshape(ops.reshape(rows, (1, -1, width)) + bias, (-1, width))


@keras.saving.register_keras_serializable("t2t_keras")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` of [B, T, D] as one product of matrices, whose bias learns in bfloat16 too: see `add_bias`."""

    def call(self, inputs):
        bias = None if self.bias is None else ops.ravel(self.bias)  # A tensor: a custom gradient is not of variables.
        rows = product(inputs, ops.convert_to_tensor(self.kernel), bias)
        return self.activation(ops.reshape(rows, (*leading(inputs), self.units)))
