"""Dropout (section 5.4, residual dropout): each value becomes zero with probability P_drop, otherwise it is scaled by
1 / (1 - P_drop).
"""

import keras
from keras import ops

from t2t_keras.layers.inference import custom_gradient


def _scaled_where(kept, x, scale: float):
    """Returns x · scale where `kept`, boolean of the shape of x, and 0 elsewhere.

    The gradient is written by hand: that of `where` would look for axes to sum over, and there are none.
    """

    def scaled(values):
        # `where` first: it takes the `IndexedSlices` that TensorFlow's `gather` gives as a gradient.
        return ops.where(kept, values, ops.zeros((), values.dtype)) * scale

    return custom_gradient(lambda x: (scaled(x), lambda upstream: (scaled(upstream),)))(x)


@keras.saving.register_keras_serializable("t2t_keras")
class Dropout(keras.layers.Layer):
    """Dropout that draws 16 random bits for each value in every dtype.

    A uniform number in bfloat16 has only 7 bits: a rate of 0.1 becomes 0.094. Sixteen bits keep the rate within 1e-5.
    They take half the time of float32 numbers, which on a CPU take as long as the matrix products around them.

    The state is a `keras.random.SeedGenerator`, as in `keras.layers.Dropout`.

    Args:
        rate: P_drop, in [0, 1).
        seed: seed of the generator; `None` draws one from the generator that `keras.utils.set_random_seed` seeds.

    Raises:
        ValueError: `rate` is not in [0, 1).

    Example:

    ```python
    x, layer = np.ones((100, 100), "float32"), t2t_keras.Dropout(rate=0.5, seed=1)
    np.unique(layer(x, training=True)).tolist()  # [0.0, 2.0]
    np.unique(layer(x)).tolist()  # [1.0]
    ```
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
        # Each word has the bits of two values. `randint` excludes its upper bound, so it never draws the largest int32.
        # Without bounds TensorFlow draws any, which needs no division of each number.
        backend = keras.backend.backend()
        bounds = (None, None) if backend == "tensorflow" else (-(2**31), 2**31 - 1)
        is_static, even = isinstance(width, int), width + width % 2
        shape = (*rows, even // 2) if is_static else (*rows, even // 2, 1)  # The last axis of `view` must be static.
        words = keras.random.randint(shape, *bounds, seed=self.seed_generator)
        if backend == "torch":  # Keras has no uint16 there.
            bits = ops.stack([ops.bitwise_and(words, 2**16 - 1), ops.bitwise_and(words >> 16, 2**16 - 1)], -1)
        else:
            bits = ops.view(words, "uint16")
        if len(bits.shape) > len(x.shape):
            bits = ops.reshape(bits, (*rows, even))
        if not is_static or even > width:
            bits = bits[..., :width]
        dropped = min(round(self.rate * 2**16), 2**16 - 1)
        return _scaled_where(bits >= dropped, x, 1 / (1 - self.rate))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


@keras.saving.register_keras_serializable("t2t_keras")
class WordDropout(Dropout):
    """Replaces whole vectors by zeros, so that a network reads a text that lacks words. The others are not scaled.

    Sennrich et al. 2016, https://aclanthology.org/W16-2323, section 4.2; the token cut-off of Shen et al. 2020,
    https://arxiv.org/abs/2009.13818, section 3.2.

    Args:
        rate: share of the vectors that become zeros.
        second_half: whether only the second half of the rows of a batch loses vectors.
        seed: seed of the generator, as of `Dropout`.

    Call arguments:
        x: [B, T, D].
    """

    def __init__(self, rate: float, second_half: bool = False, seed: int | None = None, **kwargs):
        super().__init__(rate, seed, **kwargs)
        self.second_half = second_half

    def call(self, x, training=False):
        if not training or self.rate == 0:
            return x
        stays = super().call(ops.ones_like(x[..., :1]), training=True) > 0
        if self.second_half:
            rows = ops.shape(x)[0]
            stays = ops.logical_or(stays, (ops.arange(rows) < rows // 2)[:, None, None])
        return ops.where(stays, x, ops.zeros((), x.dtype))

    def get_config(self):
        return {**super().get_config(), "second_half": self.second_half}
