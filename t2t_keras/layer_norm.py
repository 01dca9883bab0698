"""Layer normalisation (section 3.1): (x - mean) / √(variance + ε) · γ + β over the last axis."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("t2t_keras")
class LayerNorm(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` of the last axis, in float32 and in few operations."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        plain = {"axis": -1, "center": True, "scale": True, "rms_scaling": False}
        received = {name: value for name, value in self.get_config().items() if name in plain}
        if any(received[name] not in (value, [value]) for name, value in plain.items() if name in received):
            raise ValueError(f"LayerNorm is of the last axis, with gain and bias: {plain}. Received: {received}.")

    def call(self, inputs):
        x = ops.cast(inputs, "float32")
        gain, bias = (ops.cast(weight, "float32") for weight in (self.gamma, self.beta))
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        scale = ops.rsqrt(ops.mean(ops.square(centred), axis=-1, keepdims=True) + self.epsilon) * gain
        return ops.cast(centred * scale + bias, self.compute_dtype)
