"""x + b whose gradient for b, a sum over all positions, does not stop growing in bfloat16.

TensorFlow sums on a CPU in the tensor's own dtype: adding up ones, bfloat16 stays at 256, since 257 has no place in its 8 bits. A
matrix product adds up in float32 and rounds once.
"""

from keras import ops

from t2t_keras.model.gradient import custom_gradient


@custom_gradient
def add_bias(x, bias):
    """x + bias, the bias the same for all rows. [..., F] and [F], or [B, T, D] and [T, D] → the shape of `x`."""

    def gradient(upstream):
        width = ops.size(bias)
        rows = ops.reshape(upstream, (ops.size(upstream) // width, width))
        ones = ops.ones((1, ops.shape(rows)[0]), rows.dtype)
        return upstream, ops.reshape(ops.matmul(ones, rows), ops.shape(bias))

    return x + bias, gradient
