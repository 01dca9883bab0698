"""Three attention functions of one interface: by hand, equal to Keras's layers, and with their gradients."""

import itertools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import config
from t2t_keras.layers.attention_functions import FUNCTIONS, Attention, additive_scores, scaled_scores, unscaled_scores

B, T, S, K = 2, 3, 4, 5
DRAW = np.random.default_rng(1)
Q, KEYS, V = (DRAW.normal(size=shape).astype("float32") for shape in ((B, T, K), (B, S, K), (K,)))
MASK = np.array([[True, True, True, False], [True, False, False, False]])


def test_the_options_name_the_functions():
    assert tuple(FUNCTIONS) == config.ATTENTION_FUNCTIONS


def test_attention_to_two_words_by_hand():
    """Query (1, 2), keys (0, 0) and (1, -2). Products: 0 and -3. Sums: tanh of (1, 2) and (2, 0), weighted by 1 and
    2.
    """
    q, keys = np.array([[[1.0, 2.0]]], "float32"), np.array([[[0.0, 0.0], [1.0, -2.0]]], "float32")
    np.testing.assert_allclose(unscaled_scores(q, keys), [[[0, -3]]], atol=1e-6)
    np.testing.assert_allclose(scaled_scores(q, keys), [[[0, -3 / math.sqrt(2)]]], atol=1e-6)
    expected = [math.tanh(1) + 2 * math.tanh(2), math.tanh(2) + 2 * math.tanh(0)]
    np.testing.assert_allclose(additive_scores(q, keys, np.array([1.0, 2.0], "float32")), [[expected]], atol=1e-6)


def layer(function: str) -> Attention:
    """With projections that change nothing."""
    attention = Attention(K, function)
    attention.build((B, T, K), (B, S, K))
    for projection in (attention.query_projection, attention.key_projection):
        projection.kernel.assign(np.eye(K))
    if function == "additive":
        attention.vector.assign(V[:, None])
    return attention


@pytest.mark.parametrize("function", FUNCTIONS)
def test_several_heads_have_the_scores_of_each_alone(function):
    """The vector of additive attention differs between heads."""
    heads = 3
    q, keys, v = (
        DRAW.normal(size=shape).astype("float32") for shape in ((B, heads, T, K), (B, heads, S, K), (heads, 1, K))
    )
    together = FUNCTIONS[function](q, keys, *([v] if function == "additive" else []))
    for head in range(heads):
        alone = FUNCTIONS[function](q[:, head], keys[:, head], *([v[head, 0]] if function == "additive" else []))
        np.testing.assert_allclose(together[:, head], alone, atol=1e-5)


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_context_and_weights_are_those_of_keras(function, mask):
    theirs = keras.layers.AdditiveAttention() if function == "additive" else keras.layers.Attention()
    scale = K**-0.5 if function == "scaled" else 1.0
    theirs.build([(B, T, K), (B, S, K)])
    if function == "additive":
        theirs.scale.assign(V)
    context, weights = theirs([Q * scale, KEYS], mask=[None, mask], return_attention_scores=True)
    ours = layer(function)
    np.testing.assert_allclose(ours(Q, KEYS, mask), context, atol=1e-5)
    np.testing.assert_allclose(ours.weights_of(Q, ours.keys(KEYS), mask), weights, atol=1e-6)


def test_queries_and_keys_have_projections_of_their_own_widths():
    attention = Attention(K, "scaled")
    query, memory = DRAW.normal(size=(B, T, 2)).astype("float32"), DRAW.normal(size=(B, S, 7)).astype("float32")
    context = attention(query, memory)
    q, keys = query @ attention.query_projection.kernel.numpy(), memory @ attention.key_projection.kernel.numpy()
    expected = np.exp(np.einsum("btk,bsk->bts", q, keys) / math.sqrt(K))
    np.testing.assert_allclose(context, expected / expected.sum(axis=2, keepdims=True) @ memory, atol=1e-5)


@pytest.mark.parametrize("heads", [(), (3,)], ids=["one head", "three heads"])
def test_the_gradient_of_the_additive_function_is_that_of_plain_operations(heads):
    shapes = ((B, *heads, T, S), (B, *heads, T, K), (B, *heads, S, K), (*heads, *[1] * len(heads), K))
    upstream, *given = (DRAW.normal(size=shape).astype("float32") for shape in shapes)

    def plain(q, keys, v):
        return tf.reduce_sum(tf.tanh(q[..., None, :] + keys[..., None, :, :]) * v[..., None, :], axis=-1)

    found = []
    for function in (additive_scores, plain):
        arguments = [tf.constant(each) for each in given]
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            loss = tf.reduce_sum(function(*arguments) * upstream)
        found.append(tape.gradient(loss, arguments))
    for ours, theirs in zip(*found, strict=True):
        assert np.abs(theirs).max() > 0.1
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "place"),
    [(((1, 1, 1), (1, 1000, 1)), 0), (((1, 1000, 1), (1, 1, 1)), 1), (((1000, 1, 1), (1000, 1, 1)), 2)],
    ids=["of a query, over keys", "of a key, over queries", "of the vector, over sentences"],
)
def test_the_gradient_in_bfloat16_sums_in_float32(shapes, place):
    """Story of other layers: a sum of 1,000 ones in bfloat16 is 256. The vector's is one of tanh(100) = 1, the others'
    of tanh'(0) = 1.
    """
    arguments = [
        *(tf.fill(shape, tf.cast(50 if place == 2 else 0, tf.bfloat16)) for shape in shapes),
        tf.ones([1], tf.bfloat16),
    ]
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        loss = tf.reduce_sum(tf.cast(additive_scores(*arguments), tf.float32))
    assert float(tf.squeeze(tape.gradient(loss, arguments)[place])) == pytest.approx(1000, rel=0.01)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_layer_can_be_written_and_read(function):
    read = Attention.from_config(layer(function).get_config())
    assert (read.units, read.function) == (K, function)
    with pytest.raises(ValueError, match="one of additive, scaled, unscaled. Received: function=dot."):
        Attention(K, "dot")


def test_all_three_differ():
    found = [np.array(layer(function)(Q, KEYS)) for function in FUNCTIONS]
    assert all(np.abs(one - other).max() > 1e-3 for one, other in itertools.combinations(found, 2))
