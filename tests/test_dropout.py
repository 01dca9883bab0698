"""Section 5.4, residual dropout: the rate is the rate in every dtype, and the seed decides the mask."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_keras.layers.dropout import Dropout

SIDE = 1000  # A million values: the standard error of a rate of 0.1 is 3e-4.


def dropped(layer, shape=(SIDE, SIDE)) -> np.ndarray:
    """Where a layer puts zeros."""
    return np.array(layer(ops.ones(shape), training=True) == 0)


def five_standard_errors(rate: float, number: int) -> float:
    return 5 * (rate * (1 - rate) / number) ** 0.5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_the_rate_is_kept_to_sampling_error(rate, dtype):
    """A uniform number drawn in bfloat16 would turn 0.1 into 0.094."""
    measured = dropped(Dropout(rate, seed=1, dtype=dtype)).mean()
    assert measured == pytest.approx(rate, abs=five_standard_errors(rate, SIDE**2))


def test_the_expectation_is_kept_to_sampling_error():
    kept = np.array(Dropout(0.1, seed=2)(ops.ones((SIDE, SIDE)), training=True))
    assert kept.mean() == pytest.approx(1, abs=five_standard_errors(0.1, SIDE**2) / 0.9)


def test_the_expectation_is_kept_in_bfloat16_but_for_the_rounding_of_the_scale():
    kept = Dropout(0.1, seed=2, dtype="bfloat16")(ops.ones((SIDE, SIDE), "bfloat16"), training=True)
    half_a_unit = 2**-8  # bfloat16 has 8 significant bits; 1 / 0.9 lies between 1 and 2.
    assert np.array(ops.cast(kept, "float32")).mean() == pytest.approx(
        1, abs=five_standard_errors(0.1, SIDE**2) / 0.9 + half_a_unit
    )


def test_what_is_not_dropped_is_divided_by_one_minus_the_rate():
    x = np.random.default_rng(0).normal(size=(50, 40)).astype("float32")
    y = np.array(Dropout(0.25, seed=3)(x, training=True))
    np.testing.assert_allclose(y[y != 0], x[y != 0] / 0.75, rtol=1e-6)
    assert (y == 0).any()


def test_no_number_is_divided():
    """Of bounded random numbers, TensorFlow takes the rest of a division."""
    layer = Dropout(0.1, seed=1)
    graph = tf.function(lambda x: layer(x, training=True)).get_concrete_function(tf.TensorSpec([None, 8])).graph
    names = {operation.type for operation in graph.get_operations()}
    assert {name for name in names if "Uniform" in name} == {"StatelessRandomUniformFullIntV2"}


def test_every_two_columns_and_every_two_rows_are_dropped_independently():
    """Two values share the bits of one 32-bit draw; none share more."""
    mask = dropped(Dropout(0.1, seed=4), (20_000, 8)).astype("float64")
    expected = 0.01 + 0.09 * np.eye(8)  # both: P_drop², or P_drop for a column and itself
    np.testing.assert_allclose(mask.T @ mask / len(mask), expected, atol=five_standard_errors(0.1, len(mask)))
    assert (mask[1:] * mask[:-1]).mean() == pytest.approx(0.01, abs=five_standard_errors(0.01, mask.size))


def test_nothing_is_dropped_when_not_training_or_at_rate_zero():
    x = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")
    np.testing.assert_array_equal(Dropout(0.5)(x), x)
    np.testing.assert_array_equal(Dropout(0.5)(x, training=False), x)
    np.testing.assert_array_equal(Dropout(0.0)(x, training=True), x)


def test_two_calls_differ_and_a_layer_made_again_with_the_seed_repeats_them():
    first, second = Dropout(0.5, seed=5), Dropout(0.5, seed=5)
    calls = [dropped(first, (20, 20)) for _ in range(2)]
    assert (calls[0] != calls[1]).any()
    for mask in calls:
        np.testing.assert_array_equal(dropped(second, (20, 20)), mask)


def test_the_global_seed_decides_where_no_other_does():
    masks = []
    for seed in (6, 6, 7):
        keras.utils.set_random_seed(seed)
        masks.append(dropped(Dropout(0.5), (20, 20)))
    assert (masks[0] == masks[1]).all() and (masks[0] != masks[2]).any()


def test_a_stateless_seed_decides_the_mask_and_leaves_the_layers_own_alone():
    layer = Dropout(0.5, seed=8)
    before = layer.seed_generator.state.numpy()

    def with_seed(seed):
        with keras.StatelessScope([(layer.seed_generator.state, ops.array(seed, before.dtype))]):
            return dropped(layer, (20, 20))

    np.testing.assert_array_equal(with_seed([3, 4]), with_seed([3, 4]))
    assert (with_seed([3, 4]) != with_seed([3, 5])).any()
    np.testing.assert_array_equal(layer.seed_generator.state.numpy(), before)


@pytest.mark.parametrize("width", [1, 7])
def test_an_odd_width_is_dropped_at_the_same_rate_in_every_column(width):
    columns = dropped(Dropout(0.3, seed=9), (20_000, width)).mean(axis=0)
    np.testing.assert_allclose(columns, np.full(width, 0.3), atol=five_standard_errors(0.3, 20_000))


def test_the_gradient_passes_where_the_value_does():
    layer, x = Dropout(0.4, seed=10), tf.ones((30, 30))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
    np.testing.assert_array_equal(tape.gradient(y, x), y)


def test_the_gradient_passes_from_a_few_rows_of_the_result():
    """That of `gather` is not a plain tensor."""
    layer, x = Dropout(0.4, seed=10), tf.ones((6, 4))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
        rows = tf.gather(y, [0, 2, 2])
    np.testing.assert_allclose(tape.gradient(rows, x), y * np.array([1, 0, 2, 0, 0, 0])[:, None], rtol=1e-6)


def test_a_rate_very_close_to_one_drops_nearly_everything():
    """Rounded up to 2^16, the threshold would wrap round to 0 and drop nothing."""
    assert dropped(Dropout(1 - 1e-6, seed=11), (100, 100)).mean() > 0.99


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan")])
def test_a_rate_outside_zero_to_one_is_refused(rate):
    with pytest.raises(ValueError, match=rf"rate must be in \[0, 1\)\. Received: rate={rate}\."):
        Dropout(rate)
