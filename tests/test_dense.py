"""The linear map of rows of any shape, held against that of Keras, and the gradient of a bias."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding.frozen_weights import FrozenWeights, values_of
from t2t_keras.layers.dense import Dense, add_bias, leading, linear
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.positions import LearnedPositions

D, F = 6, 10


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def both(dtype="float32", **config):
    """The layer and Keras's own, of the same weights."""
    layers = Dense(F, dtype=dtype, **config), keras.layers.Dense(F, dtype=dtype, **config)
    for layer in layers:
        layer.build((None, None, D))
        layer.set_weights([normal(*weight.shape, seed=index) for index, weight in enumerate(layer.weights)])
    return layers


@pytest.mark.parametrize(
    "config", [{}, {"use_bias": False}, {"activation": "relu"}, {"activation": "tanh", "use_bias": False}], ids=str
)
@pytest.mark.parametrize("shape", [(2, 5, D), (1, 1, D), (0, 5, D), (2, 0, D), (0, 0, D)], ids=str)
def test_it_equals_the_layer_of_keras(shape, config):
    layer, expected = both(**config)
    x = normal(*shape, seed=3)
    np.testing.assert_allclose(layer(x), expected(x), atol=1e-6)


def test_in_bfloat16_it_equals_the_layer_of_keras_to_its_precision():
    layer, expected = both("mixed_bfloat16", activation="relu")
    x = normal(2, 5, D, seed=3)
    received = layer(x)
    assert received.dtype == tf.bfloat16
    np.testing.assert_allclose(tf.cast(received, tf.float32), tf.cast(expected(x), tf.float32), atol=2**-6, rtol=2**-7)


def gradients(layer, x):
    x, wanted = tf.constant(x), normal(*x.shape[:2], F, seed=9)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.cast(layer(x), tf.float32) * wanted)
    sources = [x, *(weight.value for weight in layer.trainable_variables)]
    return [np.array(tf.cast(gradient, tf.float32)) for gradient in tape.gradient(loss, sources)]


@pytest.mark.parametrize("config", [{}, {"use_bias": False}, {"activation": "relu"}], ids=str)
def test_its_gradients_are_those_of_the_layer_of_keras(config):
    layer, expected = both(**config)
    x = normal(3, 7, D, seed=3)
    for received, wanted in zip(gradients(layer, x), gradients(expected, x), strict=True):
        np.testing.assert_allclose(received, wanted, atol=1e-5)


def test_in_bfloat16_the_bias_learns_from_all_rows():
    """Keras's own stops at 256, which 257 is rounded to."""
    layer, _ = both("mixed_bfloat16")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(layer(tf.ones([50, 100, D])), tf.float32))
    np.testing.assert_allclose(tape.gradient(loss, layer.bias.value), np.full(F, 5000), rtol=4e-3)


@pytest.mark.parametrize("shape", [(None, None, D), (None, 5, D), (2, None, D), (None, 0, D), (2, 5, D)], ids=str)
@pytest.mark.parametrize("batch", [2, 0])
def test_in_a_graph_any_length_may_be_unknown(shape, batch):
    layer, expected = both()
    x = normal(shape[0] or batch, 5 if shape[1] is None else shape[1], D)
    received = tf.function(layer, input_signature=[tf.TensorSpec(shape)])(x)
    np.testing.assert_allclose(received, expected(x), atol=1e-6)


@pytest.mark.medium
def test_what_to_reshape_with_leaves_to_tensorflow_what_it_can_find_alone():
    """-1 stands for any B unless T is 0, of which there are any number in nothing, or is unknown too: a shape has one
    -1.
    """
    assert leading(np.zeros((2, 5, D))) == (-1, 5) and leading(np.zeros((2, 0, D))) == (2, 0)
    found = []
    for shape in [(None, 5, D), (2, None, D), (None, None, D)]:
        tf.function(lambda x: found.append(leading(x)) or x).get_concrete_function(tf.TensorSpec(shape))
    (known_length, known_batch, neither) = found
    assert known_length == (-1, 5) and known_batch[0] == 2
    assert all(map(tf.is_tensor, (known_batch[1], *neither)))


@pytest.mark.parametrize("shape", [(D,), (4, D), (2, 3, D), (2, 3, 4, D)], ids=str)
@pytest.mark.parametrize("bias", [None, normal(F, seed=2)], ids=["no bias", "bias"])
def test_a_product_of_rows_of_any_shape_is_numpys(shape, bias):
    x, kernel = normal(*shape), normal(D, F, seed=1)
    received = linear(tf.constant(x), tf.constant(kernel), None if bias is None else tf.constant(bias))
    np.testing.assert_allclose(received, (x @ kernel + (0 if bias is None else bias)).reshape(-1, F), atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("config", [{}, {"use_bias": False}], ids=str)
def test_with_constant_weights_the_bias_that_tensorflow_asks_for_changes_no_bit(dtype, config):
    """1e-30 is lost in any sum that is not 0 itself."""
    layer, _ = both(dtype, **config)
    x = normal(2, 5, D, seed=3)
    expected = layer(x)
    with FrozenWeights(values_of(layer)):
        received = layer(x)
    np.testing.assert_array_equal(tf.cast(received, tf.float32), tf.cast(expected, tf.float32))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "joined"), [("float32", False), ("mixed_bfloat16", True)])
def test_a_constant_weight_meets_its_bias_in_one_operation_in_bfloat16_alone(dtype, joined, bias):
    """Story: in float32 a batch of 7 was translated at a quarter of its speed, its weights being in the order that 64
    had wanted.
    """
    layer, _ = both(dtype, use_bias=bias)
    values = values_of(layer)

    def call(x):
        with FrozenWeights(values):
            return layer(x)

    graph = tf.function(call).get_concrete_function(tf.TensorSpec([None, None, D], layer.compute_dtype)).graph
    (matmul,) = [operation for operation in graph.get_operations() if operation.type == "MatMul"]
    followed_by = {consumer.type for consumer in matmul.outputs[0].consumers()}
    assert bool(followed_by & {"AddV2", "BiasAdd"}) == joined
    operations = {operation.type for operation in graph.get_operations()}
    assert ("AddV2" in operations) == (joined or bias)


# x + b


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("x", "bias"),
    [((50, 100, 3), (3,)), ((5000, 2, 3), (2, 3)), ((0, 2, 3), (2, 3)), ((5, 3), (3,)), ((3,), (3,)), ((2, 3), (2, 3))],
)
def test_the_gradient_of_a_bias_is_the_sum_over_all_rows(x, bias, dtype):
    x, bias = tf.ones(x, dtype), tf.Variable(tf.zeros(bias, dtype))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = add_bias(x, bias.value())
        loss = tf.reduce_sum(tf.cast(y, tf.float32))
    to_x, to_bias = tape.gradient(loss, [x, bias])
    np.testing.assert_array_equal(to_x, np.ones(x.shape))
    expected = np.full(bias.shape, int(np.prod(x.shape)) // max(bias.shape.num_elements(), 1))
    np.testing.assert_allclose(tf.cast(to_bias, tf.float32), expected, rtol=4e-3)


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


def test_add_bias_adds():
    x, bias = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype("float32"), np.arange(5, dtype="float32")
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(add_bias(x, bias)), x + bias)


def test_a_bias_has_a_gradient_where_a_graph_does_not_know_the_rank_of_what_comes_back():
    layer = Dense(F)
    layer.build((5, D))

    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            loss = tf.py_function(tf.reduce_sum, [layer(x)], tf.float32)
        return tape.gradient(loss, layer.bias.value)

    np.testing.assert_array_equal(gradient(tf.ones((5, D))), np.full(F, 5))
