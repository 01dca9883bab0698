"""Gradients written out: how each backend asks for them, and that graphs which want none are free of them."""

import gc
import weakref

import pytest
import tensorflow as tf

from t2t_keras.decoding.frozen_weights import FrozenWeights, values_of
from t2t_keras.layers import gradient
from t2t_keras.layers.gradient import custom_gradient
from t2t_keras.layers.layer_norm import LayerNorm


@custom_gradient
def scaled(x, factor):
    return x * factor, lambda upstream: (upstream * factor, -1.0)


def test_the_gradient_is_the_one_that_is_written_out():
    x, factor = tf.constant(3.0), tf.constant(5.0)
    with tf.GradientTape() as tape:
        tape.watch([x, factor])
        y = 2 * scaled(x, factor)
    assert y == 30
    assert [float(to) for to in tape.gradient(y, [x, factor])] == [10, -1]


@pytest.mark.parametrize(
    "asked",
    [lambda of, arguments, upstream: of(upstream), lambda of, arguments, upstream: of(*arguments, upstream=upstream)],
    ids=["tensorflow and jax", "torch"],
)
def test_every_backend_gets_the_gradients_in_its_own_way(monkeypatch, asked):
    def of_backend(function):
        return lambda *arguments: asked(function(*arguments)[1], arguments, 2.0)

    monkeypatch.setattr(gradient.ops, "custom_gradient", of_backend)
    assert scaled(3.0, 5.0) == (10.0, -1.0)


@pytest.mark.medium
def test_a_graph_of_constant_weights_goes_with_its_function():
    """TensorFlow keeps a gradient for ever: with it the graph, and the weights in it, of every model that was loaded
    once.
    """
    layer = LayerNorm(epsilon=1e-6)
    layer.build((None, None, 8))
    values = values_of(layer)

    def constant_graph():
        def call(x):
            with FrozenWeights(values):
                return layer(x)

        return tf.function(call, input_signature=[tf.TensorSpec([None, None, 8])]).get_concrete_function().graph

    graph = weakref.ref(constant_graph())
    gc.collect()
    assert graph() is None
