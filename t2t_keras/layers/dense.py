"""The linear map x W + b over rows of any shape."""

import keras
from keras import ops

from t2t_keras.layers.inference import custom_gradient, mode


@custom_gradient
def add_bias(x, bias):
    """Adds the same bias, [F] or [T, D], to all rows of x, [..., F] or [B, T, D], with an accurate gradient of the bias
    in bfloat16.

    That gradient is a sum over all positions. On a CPU, TensorFlow sums in the dtype of the tensor: a sum of ones in
    bfloat16 stops at 256, because 257 does not fit into its 8 significant bits. A matrix product accumulates in float32
    and rounds once.
    """

    def gradient(upstream):
        rows = ops.reshape(upstream, (-1, ops.size(bias)))
        ones = ops.ones((1, ops.shape(rows)[0]), rows.dtype)
        return upstream, ops.reshape(ops.matmul(ones, rows), ops.shape(bias))

    return x + bias, gradient


def linear(x, kernel, bias=None):
    """Computes x W + b as one matrix product, of x [..., D], W [D, F] and b [F] or `None`. Returns [N, F], where N is
    the product of all axes of `x` but the last.
    """
    function = mode().linear or _linear
    return function(x if len(x.shape) == 2 else ops.reshape(x, (-1, x.shape[-1])), kernel, bias)


def _linear(rows, kernel, bias):
    rows = ops.matmul(rows, kernel)
    return rows if bias is None else add_bias(rows, bias)


def leading(x) -> tuple:
    """Returns all axes of x but the last, for a reshape. The first is -1 if the others are static, which saves a graph
    its computation.
    """
    others = x.shape[1:-1]
    return (-1, *others) if others and all(others) else ops.shape(x)[:-1]


def at_least_float32(x):
    """Returns float16 and bfloat16 as float32, in which sums and exponentials are exact enough; float64 stays."""
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))


def check_arrays(method: str, *inputs) -> None:
    """Raises `ValueError` for symbolic inputs of a function that reads shapes, or computes with the weights of a layer
    outside of a call: a functional model would keep their values of the moment, and not train them.
    """
    if any(isinstance(x, keras.KerasTensor) for x in inputs):
        raise ValueError(
            f"`{method}` takes arrays. In a functional model, call the layer, or use `{method}` in the `call` of a "
            "layer or model of your own."
        )


@keras.saving.register_keras_serializable("t2t_keras")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` that computes [B, T, D] as one matrix product and has an accurate bias gradient in bfloat16.

    Example:

    ```python
    t2t_keras.Dense(16, activation="relu")(np.ones((2, 5, 8), "float32")).shape  # (2, 5, 16)
    ```
    """

    def call(self, inputs):
        # A tensor, because a custom gradient does not take variables.
        bias = None if self.bias is None else ops.ravel(self.bias)
        rows = linear(inputs, ops.convert_to_tensor(self.kernel), bias)
        return self.activation(rows if len(inputs.shape) == 2 else ops.reshape(rows, (*leading(inputs), self.units)))
