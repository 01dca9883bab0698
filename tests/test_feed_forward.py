"""Section 3.3: FFN(x) = max(0, x W₁ + b₁) W₂ + b₂, at every position alike."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from t2t_keras.layers.feed_forward import FeedForward

B, T, D, F = 2, 5, 6, 12


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def layer(rng):
    layer = FeedForward(F)
    layer.build((None, None, D))
    layer.set_weights([rng.normal(size=weight.shape) for weight in layer.weights])
    return layer


def test_the_network_equals_numpy(rng, layer):
    x = rng.normal(size=(B, T, D)).astype("float32")
    w_1, b_1, w_2, b_2 = layer.get_weights()
    assert (w_1.shape, b_1.shape, w_2.shape, b_2.shape) == ((D, F), (F,), (F, D), (D,))
    np.testing.assert_allclose(layer(x), np.maximum(0, x @ w_1 + b_1) @ w_2 + b_2, atol=1e-5)


@pytest.mark.parametrize("activation", ["gelu", "swish"])
def test_another_activation_is_that_of_its_paper(rng, layer, activation):
    """By the distribution function of the normal distribution, or the logistic function."""
    weights, layer = layer.get_weights(), FeedForward(F, activation)
    layer.build((None, None, D))
    layer.set_weights(weights)
    x = rng.normal(size=(B, T, D)).astype("float32")
    w_1, b_1, w_2, b_2 = layer.get_weights()
    inner = x @ w_1 + b_1
    share = NormalDist().cdf if activation == "gelu" else lambda value: 1 / (1 + math.exp(-value))
    np.testing.assert_allclose(layer(x), inner * np.vectorize(share)(inner) @ w_2 + b_2, atol=1e-5)


def test_permuting_positions_permutes_outputs(rng, layer):
    x, order = rng.normal(size=(B, T, D)).astype("float32"), rng.permutation(T)
    np.testing.assert_allclose(layer(x[:, order]), np.array(layer(x))[:, order], atol=1e-6)


def test_a_position_depends_on_itself_alone(rng, layer):
    x = rng.normal(size=(B, T, D)).astype("float32")
    changed = x.copy()
    changed[:, 2] += 1
    difference = np.abs(np.array(layer(changed)) - np.array(layer(x))).max(axis=(0, 2))
    assert difference[2] > 0.1 and np.delete(difference, 2).max() < 1e-6
