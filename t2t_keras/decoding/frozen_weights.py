"""Weights frozen into a graph as constants, which TensorFlow multiplies faster than variables on a CPU.

oneDNN stores a constant weight once in the memory layout of its fastest matrix product; it reorders a variable at each
use. TensorFlow caches this layout only for a product that it fuses with a bias, and it removes a bias of zeros. The
first call decides the layout, by its number of rows.

- In bfloat16, the best layout is the same for all numbers of rows. So a product without a bias gets one that is too
  small to change it.
- In float32, the best layout depends on the number of rows, and each change reorders the whole weight (40 ms for 16 M
  weights). So nothing is fused.
"""

import keras
from keras import ops

from t2t_keras.layers.inference import inference

# Too small to change a bfloat16 above 10⁻²⁷.
_NO_BIAS = 1e-30


def _linear(rows, kernel, bias):
    """Computes `linear` with a constant kernel: [N, D], [D, F] and [F] or `None` → [N, F]."""
    width = kernel.shape[-1]
    rows = ops.matmul(rows, kernel)
    if keras.backend.standardize_dtype(rows.dtype) == "bfloat16":
        return rows + (ops.full((width,), _NO_BIAS, rows.dtype) if bias is None else bias)
    return rows if bias is None else ops.reshape(ops.reshape(rows, (1, -1, width)) + bias, (-1, width))


class FrozenWeights(keras.StatelessScope):
    """A scope of inference in which a graph reads weights as constants. The body of a loop is a separate graph and
    needs its own scope.

    Args:
        values: for the id of each Keras variable, an array, a tensor of an outer graph, or a function that returns a
            tensor; see `values_of`.
    """

    def __init__(self, values: dict):
        super().__init__()
        self.values, self.constants = values, {}

    def __enter__(self):
        self._inference = inference(_linear)
        self._inference.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        self._inference.__exit__(*error)
        return super().__exit__(*error)

    def get_current_value(self, variable):
        """Returns the constant of a variable. It is created at its first use, so the graph holds used weights only."""
        if id(variable) not in self.constants:
            value = self.values[id(variable)]
            self.constants[id(variable)] = value() if callable(value) else ops.convert_to_tensor(value)
        return self.constants[id(variable)]


def values_of(model) -> dict:
    """Returns the current values of a model's variables for `FrozenWeights`."""
    return {id(variable): ops.convert_to_numpy(variable.value) for variable in model.variables}
