"""Dropout (section 5.4, residual dropout): each value is zero with probability P_drop, else scaled by 1 / (1 - P_drop)."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("t2t_keras")
class Dropout(keras.layers.Layer):
    """Dropout from 16 random bits a value, whatever the dtype.

    A uniform number drawn in bfloat16 has only 7 bits: a rate of 0.1 becomes 0.094 there. Sixteen bits keep the rate to
    1e-5 and cost half the time of float32 draws, which on a CPU rival the matrix products beside them.

    The state is a `keras.random.SeedGenerator`, as in `keras.layers.Dropout`.

    Args:
        rate: P_drop.
        seed: of the generator; None takes one from `keras.utils.set_random_seed`.
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be in [0, 1). Received: rate={rate}.")
        self.rate, self.seed = rate, seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True
        self.built = True

    def call(self, x, training=False):
        if not training or self.rate == 0:
            return x
        *rows, width = ops.shape(x)
        # `randint` excludes its upper bound, so the highest int32 is never drawn.
        words = keras.random.randint((*rows, (width + 1) // 2), -(2**31), 2**31 - 1, seed=self.seed_generator)
        bits = ops.view(words, "uint16")[..., :width]
        dropped = min(round(self.rate * 2**16), 2**16 - 1)
        return ops.where(bits >= dropped, x * (1 / (1 - self.rate)), ops.zeros((), x.dtype))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
