"""x + b with an accurate gradient for b in bfloat16.

The gradient of b is a sum over all positions. On a CPU, TensorFlow sums in the dtype of the tensor: a sum of ones in
bfloat16 stops at 256, because 257 does not fit into its 8 significant bits. A matrix product accumulates in float32 and
rounds once.
"""

from keras import ops

from t2t_keras.layers.gradient import custom_gradient


@custom_gradient
def add_bias(x, bias):
    """Adds the same bias to all rows.

    Args:
        x: [..., F], or [B, T, D].
        bias: [F], or [T, D].

    Returns:
        A tensor of the shape of `x`.
    """

    def gradient(upstream):
        width = ops.size(bias)
        rows = ops.reshape(upstream, (ops.size(upstream) // width, width))
        ones = ops.ones((1, ops.shape(rows)[0]), rows.dtype)
        return upstream, ops.reshape(ops.matmul(ones, rows), ops.shape(bias))

    return x + bias, gradient
