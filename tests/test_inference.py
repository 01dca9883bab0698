"""The mode of inference: no hand-written gradients, and the linear maps of an engine, inside a block and nowhere
else.
"""

import pytest
import stand_in
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.layers.dense import linear
from t2t_keras.layers.inference import Mode, inference, mode

X, KERNEL, BIAS = tf.ones([2, 3]), tf.ones([3, 4]), tf.ones([4])


def hand_written(function) -> int:
    """Counts the operations of a graph, and of its loops and branches, that carry a hand-written gradient."""
    graph = function.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for each in graph.library.function for node in each.node_def)]
    return sum(node.op == "IdentityN" for node in nodes)


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
