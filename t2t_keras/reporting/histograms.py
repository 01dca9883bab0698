"""Distributions of the weights and gradient norms of the layers, for TensorBoard."""

import collections
import math

import numpy as np

from t2t_keras.reporting.scalars import GRADIENT_NORM


def metrics(model, gradient_norms) -> dict:
    """What `TensorBoardWriter.write` shows of a model after an update.

    Args:
        model: built.
        gradient_norms: [weights] float32, of the gradient of each trainable weight. None or not finite if the update
            was skipped.

    Returns:
        The values of each weight as "weights/…" and all gradient norms as "weights_gradient_norms", as arrays, which
        become histograms; the gradient norm of each layer as a number.
    """
    weights = {weight.path.removeprefix(f"{model.name}/"): weight for weight in model.trainable_variables}
    found = {f"weights/{path}": weight.numpy() for path, weight in weights.items()}
    if gradient_norms is None or not np.isfinite(gradient_norms := np.asarray(gradient_norms)).all():
        return found
    squares = collections.Counter()
    for path, norm in zip(weights, gradient_norms, strict=True):
        squares[path.partition("/")[0]] += float(norm) ** 2
    return (
        found
        | {"weights_gradient_norms": gradient_norms}
        | {GRADIENT_NORM + layer: math.sqrt(sum_) for layer, sum_ in squares.items()}
    )
