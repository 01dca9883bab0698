"""The gradient of a bias, which in bfloat16 used to stop at 256."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers.bias import add_bias
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.positions import LearnedPositions


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("x", "bias"), [((50, 100, 3), (3,)), ((5000, 2, 3), (2, 3)), ((0, 2, 3), (2, 3))])
def test_the_gradient_is_the_sum_over_all_rows(x, bias, dtype):
    x, bias = tf.ones(x, dtype), tf.Variable(tf.zeros(bias, dtype))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = add_bias(x, bias.value())
        loss = tf.reduce_sum(tf.cast(y, tf.float32))
    to_x, to_bias = tape.gradient(loss, [x, bias])
    np.testing.assert_array_equal(to_x, np.ones(x.shape))
    np.testing.assert_allclose(
        tf.cast(to_bias, tf.float32),
        np.full(bias.shape, int(np.prod(x.shape)) // max(bias.shape.num_elements(), 1)),
        rtol=4e-3,
    )


@pytest.mark.parametrize(
    "layer", [lambda: FeedForward(4, dtype="mixed_bfloat16"), lambda: LearnedPositions(2, dtype="mixed_bfloat16")]
)
def test_layers_learn_their_biases_in_bfloat16_as_in_float32(layer):
    """Found by adding up 8,000 ones: the gradient said 256, so that the biases of bfloat16 runs hardly learned."""
    layer = layer()
    layer.build((None, None, 6))
    x = tf.ones([2000, 2, 6])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(layer(x), tf.float32))
    last = layer.trainable_variables[-1]  # The outer bias; the table.
    expected = np.prod(x.shape) / np.prod(last.shape)
    gradient = tf.convert_to_tensor(tape.gradient(loss, [last.value])[0])
    np.testing.assert_allclose(gradient, np.full(last.shape, expected), rtol=4e-3)


def test_it_adds():
    x, bias = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype("float32"), np.arange(5, dtype="float32")
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(add_bias(x, bias)), x + bias)
