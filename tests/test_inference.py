"""The mode of inference: no hand-written gradients, and the linear maps of an engine, inside a block and nowhere else;
and how each backend asks for a hand-written gradient.
"""

import gc
import weakref

import keras
import pytest
import stand_in
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.decoding.frozen_weights import FrozenWeights, values_of
from t2t_keras.layers.dense import linear
from t2t_keras.layers.inference import Mode, custom_gradient, inference, mode
from t2t_keras.layers.layer_norm import LayerNorm

X, KERNEL, BIAS = tf.ones([2, 3]), tf.ones([3, 4]), tf.ones([4])


def hand_written(function) -> int:
    """Counts the operations of a graph, and of its loops and branches, that carry a hand-written gradient."""
    graph = function.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for each in graph.library.function for node in each.node_def)]
    return sum(node.op == "IdentityN" for node in nodes)


@pytest.mark.medium
def test_inside_a_block_a_graph_has_no_hand_written_gradients():
    @tf.function
    def without():
        with inference():
            return linear(X, KERNEL, BIAS)

    assert hand_written(tf.function(lambda: linear(X, KERNEL, BIAS))) == 1
    assert hand_written(without) == 0


@pytest.mark.parametrize("frozen", [True, False])
def test_a_search_has_no_hand_written_gradients(frozen):
    """Story: TensorFlow kept the graph of every search of a model in training until the process ended."""
    assert hand_written(stand_in.translator(DecodeConfig(), frozen=frozen).n_best) == 0


def test_an_engine_computes_linear_maps_until_its_block_ends():
    def found() -> float:
        return float(linear(X, KERNEL, BIAS)[0, 0])

    assert found() == 4
    with inference(lambda rows, kernel, bias: 10 * rows):
        assert found() == 10
        with inference():
            assert found() == 10
        with inference(lambda rows, kernel, bias: 20 * rows):
            assert found() == 20
        assert found() == 10
    assert found() == 4


def test_an_error_ends_the_block():
    with pytest.raises(RuntimeError, match="inside"), inference(lambda *_: X):
        raise RuntimeError("inside")
    assert mode() == Mode(inference=False, linear=None)


# Hand-written gradients.


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


@pytest.mark.parametrize("asked", [
    lambda of, arguments, upstream: of(upstream),
    lambda of, arguments, upstream: of(*arguments, upstream=upstream),
], ids=["tensorflow and jax", "torch"])  # fmt: skip
def test_every_backend_gets_the_gradients_in_its_own_way(monkeypatch, asked):
    def of_backend(function):
        return lambda *arguments: asked(function(*arguments)[1], arguments, 2.0)

    monkeypatch.setattr(keras.ops, "custom_gradient", of_backend)
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
