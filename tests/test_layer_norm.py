"""Section 3.1: layer normalisation, held against that of Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers.layer_norm import LayerNorm

B, T, D = 4, 25, 16
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def both(dtype):
    """The layer and Keras's own, of the same weights."""
    layers = LayerNorm(epsilon=1e-6, dtype=dtype), keras.layers.LayerNormalization(epsilon=1e-6, dtype=dtype)
    for layer in layers:
        layer.build((None, None, D))
        layer.set_weights([1 + 0.3 * normal(D, seed=1), normal(D, seed=2)])
    return layers


def as_float(tensor) -> np.ndarray:
    return np.array(tf.cast(tensor, tf.float32))


def assert_rounded_alike(received, expected):
    """Equal, but for numbers so near the middle between two of bfloat16 that a part in a million rounds them apart."""
    received, expected = as_float(received), as_float(expected)
    assert np.mean(received != expected) < 0.005
    np.testing.assert_allclose(received, expected, rtol=2**-7)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 100.0])
@both_dtypes
def test_it_equals_the_layer_of_keras(dtype, scale):
    layer, expected = both(dtype)
    x = tf.cast(scale * normal(B, T, D, seed=3), layer.compute_dtype)
    received, wanted = layer(x), expected(x)
    assert received.dtype == wanted.dtype == layer.compute_dtype
    if dtype == "float32":
        np.testing.assert_allclose(received, wanted, rtol=1e-6, atol=1e-6)
    else:
        assert_rounded_alike(received, wanted)


@both_dtypes
def test_it_equals_numpy_in_float64_to_the_rounding_of_its_result(dtype):
    """bfloat16 comes in and goes out; between, all is float32, so only the result's own rounding is left: half of a
    part in 128.
    """
    layer, _ = both(dtype)
    x = tf.cast(3 + normal(B, T, D, seed=3), layer.compute_dtype)
    gain, bias = (weight.astype("float64") for weight in layer.get_weights())
    wide = as_float(x).astype("float64")
    expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-6) * gain + bias
    tolerance = {"rtol": 2e-6, "atol": 2e-6} if dtype == "float32" else {"rtol": 2**-8, "atol": 2e-6}
    np.testing.assert_allclose(as_float(layer(x)), expected, **tolerance)


def gradients(layer, x):
    wanted = normal(*x.shape, seed=9)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.cast(layer(x), tf.float32) * wanted)
    return tape.gradient(loss, [x, *(weight.value for weight in layer.trainable_variables)])


@both_dtypes
def test_its_gradients_are_those_of_the_layer_of_keras(dtype):
    layer, expected = both(dtype)
    x = tf.cast(normal(B, T, D, seed=3), layer.compute_dtype)
    (to_x, *to_weights), (wanted_x, *wanted_weights) = gradients(layer, x), gradients(expected, x)
    if dtype == "float32":
        np.testing.assert_allclose(to_x, wanted_x, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_allclose(as_float(to_x), as_float(wanted_x), rtol=2**-7, atol=2**-8)
    for received, wanted in zip(to_weights, wanted_weights, strict=True):
        assert received.dtype == wanted.dtype == tf.float32
        np.testing.assert_allclose(received, wanted, rtol=1e-5, atol=1e-5 if dtype == "float32" else 2**-4)


@both_dtypes
def test_the_gradients_of_its_weights_are_sums_over_all_rows_in_float32(dtype):
    """As with the bias of `add_bias`: 8,000 ones added up in bfloat16 are 256."""
    layer, _ = both(dtype)
    x = tf.tile(tf.cast(normal(1, 1, D, seed=3), layer.compute_dtype), [80, 100, 1])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(layer(x), tf.float32))
    to_gain, to_bias = tape.gradient(loss, [layer.gamma.value, layer.beta.value])
    row = as_float(x)[0, 0]
    np.testing.assert_allclose(to_bias, np.full(D, 8000), rtol=1e-6)
    np.testing.assert_allclose(to_gain, 8000 * (row - row.mean()) / np.sqrt(row.var() + 1e-6), rtol=1e-3, atol=1e-3)


def test_a_row_whose_numbers_are_all_alike_gives_the_bias():
    layer, _ = both("float32")
    np.testing.assert_allclose(layer(np.full((1, 1, D), 7.0, "float32"))[0, 0], layer.beta, atol=1e-6)


def test_neither_a_shift_nor_a_scale_of_a_row_changes_it():
    layer, _ = both("float32")
    x = normal(B, T, D, seed=3)
    np.testing.assert_allclose(layer(50 * x + 8), layer(x), atol=1e-4)


def test_its_weights_are_those_of_the_layer_of_keras_so_that_checkpoints_fit():
    layer, expected = (each(name="norm") for each in (LayerNorm, keras.layers.LayerNormalization))
    for each in (layer, expected):
        each.build((None, None, D))

    def described(layer) -> list[tuple]:
        return [(weight.path, weight.shape, weight.dtype, weight.trainable) for weight in layer.weights]

    assert described(layer) == described(expected)
    for received, wanted in zip(layer.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(received, wanted)


def test_options_that_it_does_not_have_are_refused():
    with pytest.raises(ValueError, match="with gain and bias"):
        LayerNorm(center=False)
