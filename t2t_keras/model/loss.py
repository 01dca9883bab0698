"""Label-smoothed cross entropy (section 5.4): the target distribution has 1 - ε at the token and spreads ε evenly over
all V tokens.
"""

import keras
from keras import ops

from t2t_keras.config import PAD
from t2t_keras.layers.inference import custom_gradient
from t2t_keras.layers.masks import token_mask


def pick(values, index):
    """Selects one value at each position: values [..., V], index [...] → [...]."""
    return ops.squeeze(ops.take_along_axis(values, index[..., None], axis=-1), axis=-1)


def cross_entropy(logits, target, label_smoothing: float) -> tuple:
    """Computes the smoothed cross entropy -Σ_w q(w) log p(w) and the negative log likelihood -log p(token) of every
    token.

    Training minimises the first; only it has a gradient. The second is comparable with the validation loss. With ε = 0
    they are equal. The gradient, p - q, is written by hand: automatic differentiation would read [B, T, V] many more
    times, which on a CPU takes longer than the matrix products of a small model.

    Args:
        logits: [B, T, V] float32.
        target: [B, T] int, not shifted.
        label_smoothing: ε, where q is (1 - ε) · one-hot + ε / V (Szegedy et al. 2016, section 7).

    Returns:
        The smoothed cross entropy and the negative log likelihood, each [B, T] float32 in nats, 0 at padding.
    """
    vocab_size = logits.shape[-1]

    @custom_gradient
    def both(logits):
        p = ops.softmax(logits)
        # log Σ exp(logits), computed from the most likely token: its p is at least 1 / V, so the logarithm is finite.
        log_sum = ops.max(logits, axis=-1) - ops.log(ops.max(p, axis=-1))
        token = pick(logits, target)
        smoothed = log_sum - token
        if label_smoothing:  # 0 times the logarithm of an impossible word is not a number.
            smoothed = log_sum - (1 - label_smoothing) * token - label_smoothing * ops.mean(logits, axis=-1)

        def gradient(upstream):
            q = (1 - label_smoothing) * ops.one_hot(target, vocab_size) + label_smoothing / vocab_size
            return (p - q) * upstream[0][..., None]

        # One tensor, because PyTorch differentiates a single result.
        return ops.stack([smoothed, log_sum - token]), gradient

    smoothed, negative_log_likelihood = ops.unstack(both(logits) * token_mask(target), 2)
    return smoothed, negative_log_likelihood


def _tokens(y_true):
    return ops.maximum(ops.cast(y_true, "int32"), PAD)


@keras.saving.register_keras_serializable("t2t_keras")
class LabelSmoothedCrossEntropy(keras.losses.Loss):
    """The training loss of section 5.4 for `compile` and `fit`: the mean over all tokens of a batch, without padding.

    Args:
        label_smoothing: ε, in [0, 1); with 0 the loss is the negative log likelihood.

    Call arguments:
        y_true: [B, T] int, 0-padded, not shifted. Negative numbers, such as -100, are ignored like padding.
        y_pred: logits [B, T, V].
        sample_weight: a weight for each sentence [B] or token [B, T].

    Raises:
        ValueError: `label_smoothing` is not in [0, 1), or another `reduction` is given.

    Example:

    ```python
    loss = t2t_keras.LabelSmoothedCrossEntropy(label_smoothing=0.0)
    target, logits = np.array([[5, 3, 0]]), np.zeros((1, 3, 8), "float32")
    round(float(loss(target, logits)), 3)  # 2.079
    ```
    """

    def __init__(self, label_smoothing: float = 0.1, name: str = "label_smoothed_cross_entropy", **kwargs):
        super().__init__(name=name, **kwargs)
        if self.reduction != "sum_over_batch_size":
            raise ValueError(
                f"The loss is the mean over tokens: leave `reduction` out. Received: reduction={self.reduction}."
            )
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1). Received: label_smoothing={label_smoothing}.")
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        return cross_entropy(ops.cast(y_pred, "float32"), _tokens(y_true), self.label_smoothing)[0]

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Returns the mean over tokens. The mean of `keras.losses.Loss` would count padding."""
        losses, weights = self.call(y_true, y_pred), token_mask(_tokens(y_true))
        if sample_weight is not None:
            sample_weight = ops.cast(sample_weight, "float32")
            weights = weights * (
                sample_weight if len(sample_weight.shape) == 2 else ops.reshape(sample_weight, (-1, 1))
            )
        return ops.sum(losses * weights) / ops.maximum(ops.sum(weights), 1e-9)

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing}
