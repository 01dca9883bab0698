"""Weights frozen into a graph as constants, which TensorFlow multiplies faster than variables on a CPU.

A constant weight is kept in the order that its fastest product reads; a variable is reordered at each use. TensorFlow does so only
for a product that it fuses with the addition of a bias, and it removes a bias of zeros. The order is that of the first
call's number of rows. In bfloat16 every number of rows wants the same order, so that a product without a bias gets one too small
to count. In float32 other numbers want other orders and would reorder the whole weight at each call (40 ms for 16 M weights), so that
nothing is fused there.
"""

import contextlib

import keras
from keras import ops

from t2t_keras.model.dense import computed_by
from t2t_keras.model.gradient import no_gradients

# Too small to change any bfloat16 above 10⁻²⁷.
_NO_BIAS = 1e-30


def _linear(rows, kernel, bias):
    """`linear` of a constant kernel: [N, D], [D, F] and [F] or None → [N, F]."""
    width = kernel.shape[-1]
    rows = ops.matmul(rows, kernel)
    if keras.backend.standardize_dtype(rows.dtype) == "bfloat16":
        return rows + (ops.full((width,), _NO_BIAS, rows.dtype) if bias is None else bias)
    return rows if bias is None else ops.reshape(ops.reshape(rows, (1, -1, width)) + bias, (-1, width))


class FrozenWeights(keras.StatelessScope):
    """A scope in which a graph holds weights as constants. The body of a loop is a graph of its own and needs its own scope.

    Args:
        values: {id of a Keras variable: NumPy array, or a function that returns a tensor}; see `values_of`.
    """

    def __init__(self, values: dict):
        super().__init__()
        self.values, self.constants = values, {}

    def __enter__(self):
        self._inference = contextlib.ExitStack()
        self._inference.enter_context(computed_by(_linear))
        self._inference.enter_context(no_gradients())
        return super().__enter__()

    def __exit__(self, *error):
        self._inference.close()
        return super().__exit__(*error)

    def get_current_value(self, variable):
        """A variable's constant, made at its first use: weights that are not used stay out of the graph."""
        if id(variable) not in self.constants:
            value = self.values[id(variable)]
            self.constants[id(variable)] = value() if callable(value) else ops.convert_to_tensor(value)
        return self.constants[id(variable)]


def values_of(model) -> dict:
    """The present values of a model's variables, as `FrozenWeights` takes them."""
    return {id(variable): ops.convert_to_numpy(variable.value) for variable in model.variables}
