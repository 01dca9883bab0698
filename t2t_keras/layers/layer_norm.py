"""Layer normalisation (section 3.1): (x - mean) / √(variance + ε) · γ + β over the last axis."""

import keras
from keras import ops

from t2t_keras.layers.inference import custom_gradient


def layer_norm(x, gain, bias, epsilon: float):
    """Computes (x - mean) / √(variance + ε) · γ + β over the last axis of x, [..., D]; gain and bias, γ and β, are [D].
    All are float32 or float64.

    The gradient is written by hand: automatic differentiation would read x more than twice as often.
    """

    @custom_gradient
    def normalised(x, gain, bias):
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        scale = ops.rsqrt(ops.mean(ops.square(centred), axis=-1, keepdims=True) + epsilon)
        x_hat = centred * scale

        def gradient(upstream):
            # With g = upstream · γ, the gradient of x is (g - mean(g) - x̂ · mean(g · x̂)) / √(variance + ε).
            g, rows = upstream * gain, tuple(range(len(x.shape) - 1))
            grad_x = g - ops.mean(g, axis=-1, keepdims=True) - x_hat * ops.mean(g * x_hat, axis=-1, keepdims=True)
            return grad_x * scale, ops.sum(upstream * x_hat, axis=rows), ops.sum(upstream, axis=rows)

        return x_hat * gain + bias, gradient

    return normalised(x, gain, bias)


@keras.saving.register_keras_serializable("t2t_keras")
class LayerNorm(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` over the last axis, computed in float32 at least, with few operations.

    Raises:
        ValueError: an argument asks for another axis, for no gain or bias, or for RMS scaling.

    Example:

    ```python
    y = t2t_keras.LayerNorm(epsilon=1e-6)(np.array([[1.0, 3.0, 5.0, 7.0]]))  # Their variance is 5.
    np.allclose(y, np.array([[-3, -1, 1, 3]]) / 5**0.5)  # True
    ```
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        plain = {"axis": -1, "center": True, "scale": True, "rms_scaling": False}
        received = {name: value for name, value in self.get_config().items() if name in plain}
        if any(received[name] not in (value, [value]) for name, value in plain.items() if name in received):
            raise ValueError(
                f"LayerNorm normalises the last axis, with gain and bias. Expected: {plain}. Received: {received}."
            )

    def call(self, inputs):
        dtype = keras.backend.result_type(self.compute_dtype, "float32")  # Keras does not cast the inputs.
        x, gain, bias = (ops.cast(each, dtype) for each in (inputs, self.gamma, self.beta))
        return ops.cast(layer_norm(x, gain, bias, self.epsilon), self.compute_dtype)
