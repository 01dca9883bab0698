"""Section 3.5: sinusoids, and the learned table of Table 3, row (E)."""

import keras
import numpy as np
import pytest
from keras import ops

from t2t_keras.layers.positions import LearnedPositions, SinusoidalPositions, sinusoids

D = 8


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(2, 6, D)).astype("float32")


@pytest.fixture
def learned():
    keras.utils.set_random_seed(1)
    layer = LearnedPositions(rows=4)
    layer.build((None, None, D))
    return layer


def test_sine_and_cosine_alternate_as_worked_by_hand():
    # d_model = 4: angles pos / 10000^(0/4) = pos and pos / 10000^(2/4) = pos / 100.
    by_hand = [
        [0.0, 1.0, 0.0, 1.0],
        [0.841471, 0.540302, 0.0099998, 0.99995],
        [0.909297, -0.416147, 0.0199987, 0.9998],
    ]
    np.testing.assert_allclose(sinusoids(ops.arange(3), 4), by_hand, atol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 3e-4), ("float64", 1e-12)])
def test_the_sinusoids_follow_the_formula_up_to_position_one_thousand(dtype, tolerance):
    position, column = np.arange(1000)[:, None], np.arange(64)[None, :]
    angle = position / 10000 ** (2 * (column // 2) / 64)
    [found] = SinusoidalPositions(dtype=dtype)(np.zeros((1, 1000, 64)))
    np.testing.assert_allclose(found, np.where(column % 2 == 0, np.sin(angle), np.cos(angle)), atol=tolerance)


@pytest.mark.parametrize("k", [1, 7, 100])
def test_the_encoding_of_pos_plus_k_is_one_linear_map_of_the_encoding_of_pos(k):
    """PE(pos+k) "can be represented as a linear function of PE(pos)" for any k: a rotation of each pair."""
    rotation = np.zeros((D, D))
    for i in range(0, D, 2):
        angle = k / 10000 ** (i / D)
        rotation[i : i + 2, i : i + 2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    here, there = (np.array(sinusoids(ops.arange(50) + offset, D)) for offset in (0, k))
    np.testing.assert_allclose(here @ rotation, there, atol=1e-4)


def test_a_form_that_does_not_exist_is_refused():
    """Story: a misspelt one was tensor2tensor's."""
    with pytest.raises(ValueError, match="^`form` must be one of paper, tensor2tensor. Received: form=papr.$"):
        SinusoidalPositions("papr")


def test_an_odd_width_is_refused():
    with pytest.raises(ValueError, match="d_model must be even.*Received: d_model=7."):
        sinusoids(ops.arange(3), 7)
    with pytest.raises(ValueError, match="d_model must be 4 or more for the sinusoids of tensor2tensor"):
        sinusoids(ops.arange(3), 2, "tensor2tensor")


def test_sinusoids_are_added_to_every_sentence(x):
    added = np.array(SinusoidalPositions()(x)) - x
    np.testing.assert_allclose(added, np.broadcast_to(sinusoids(ops.arange(6), D), x.shape), atol=1e-6)
    assert not SinusoidalPositions().weights


@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_position_offset_equals_a_slice_of_the_whole(x, learned, as_tensor):
    for layer in (SinusoidalPositions(), learned):
        position = ops.convert_to_tensor(2, "int32") if as_tensor else 2
        np.testing.assert_allclose(layer(x[:, 2:4], position=position), np.array(layer(x))[:, 2:4], atol=1e-6)


def test_sinusoids_in_bfloat16_are_the_float32_ones_rounded():
    added = SinusoidalPositions(dtype="mixed_bfloat16")(ops.zeros((1, 300, D)))
    assert keras.backend.standardize_dtype(added.dtype) == "bfloat16"
    np.testing.assert_allclose(ops.cast(added[0], "float32"), sinusoids(ops.arange(300), D), atol=2**-8)


def test_learned_positions_add_their_rows_and_past_the_end_the_last_row(x, learned):
    added = np.array(learned(x)) - x
    table = learned.table.numpy()
    np.testing.assert_allclose(added[1], table[[0, 1, 2, 3, 3, 3]], atol=1e-6)
    np.testing.assert_allclose(np.array(learned(x, position=9)) - x, np.broadcast_to(table[3], x.shape), atol=1e-6)


def test_learned_positions_start_small():
    keras.utils.set_random_seed(2)
    layer = LearnedPositions(rows=500)
    layer.build((None, None, D))
    assert layer.table.numpy().std() == pytest.approx(0.02, rel=0.08)  # 4,000 draws: seven standard errors.


def test_learned_positions_have_one_row_of_d_model_for_each_position(learned):
    assert [tuple(weight.shape) for weight in learned.weights] == [(4, D)]
