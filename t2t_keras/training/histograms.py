"""Distributions of the weights and gradient norms of the layers, for TensorBoard."""

import collections
import math

import numpy as np

from t2t_keras.training.scalars import GRADIENT_NORM


def layer_of(path: str) -> str:
    """The layer that a weight belongs to: transformer/encoder_0/feed_forward/inner/kernel → encoder_0."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else parts[0]


def metrics(model, gradient_norms: np.ndarray | None) -> dict:
    """What `TensorBoardWriter.write` shows of a model after an update.

    Args:
        model: built.
        gradient_norms: [weights], of the gradient of each trainable weight; None, or not finite, if the update was skipped.

    Returns:
        The values of each weight as "weights/…" and all gradient norms as "weights_gradient_norms", as arrays, which become
        histograms; the gradient norm of each layer as a number.
    """
    weights = model.trainable_variables
    # Named as in the model, without the model's own name.
    found = {f"weights/{weight.path.partition('/')[2] or weight.path}": weight.numpy() for weight in weights}
    if gradient_norms is None or not np.isfinite(gradient_norms).all():
        return found
    squares = collections.Counter()
    for weight, norm in zip(weights, gradient_norms, strict=True):
        squares[layer_of(weight.path)] += float(norm) ** 2
    return found | {"weights_gradient_norms": gradient_norms} | {GRADIENT_NORM + layer: math.sqrt(sum_) for layer, sum_ in squares.items()}
