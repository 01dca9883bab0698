"""Weights as constants of a graph: the same results, no variables, and the values of when they were taken."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import BOS, EOS, PAD
from t2t_keras.decoding.frozen_weights import FrozenWeights, values_of
from t2t_keras.model.transformer import Transformer

SOURCE = np.array([[7, 12, 33, 5, EOS], [39, 4, EOS, PAD, PAD]], "int32")
TARGET = np.array([[BOS, 14, 8], [BOS, 25, 4]], "int32")
IDS = tf.TensorSpec([None, None], tf.int32)
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])


def randomized(tiny, dtype="float32"):
    """Every weight is random, so that none is like another and biases count."""
    model, rng = Transformer(tiny, dtype=dtype), np.random.default_rng(3)
    for weight in model.trainable_variables:
        weight.assign((1.0 if weight.path.endswith("gamma") else 0.0) + rng.normal(scale=0.3, size=weight.shape))
    return model


@pytest.fixture
def model(tiny):
    return randomized(tiny)


def logits_of(model):
    """Inside the scope, as a graph of its own."""
    values = values_of(model)

    @tf.function(input_signature=[IDS, IDS])
    def logits(source, target):
        with FrozenWeights(values):
            return model((source, target))

    return logits


def weights_in(graph, model) -> set:
    """The paths of the weights whose values are among a graph's constants."""
    constants = [tf.make_ndarray(node.attr["value"].tensor) for node in graph.as_graph_def().node if node.op == "Const"]
    weights = model.trainable_variables
    there = [weight for weight in weights if any(np.array_equal(weight.numpy(), constant) for constant in constants)]
    return {weight.path.split("/", 1)[1] for weight in there}


def paths(model) -> set:
    return {weight.path.split("/", 1)[1] for weight in model.trainable_variables}


OPTIONS = {
    **{"attention_bias": True, "activation": "gelu", "attention_window": 3},
    **{"source_vocab_size": 45, "tie_logits": False, "logits_bias": True},
}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("dtype", "options"),
    [("float32", {}), ("float32", OPTIONS), ("float32", {"attention": "additive"}), ("mixed_bfloat16", OPTIONS)],
    ids=["the paper", "options", "additive attention", "options in bfloat16"],
)
def test_inside_the_scope_a_graph_gives_the_same_logits(tiny, dtype, options):
    model = randomized(dataclasses.replace(tiny, **options), dtype)
    expected = tf.function(lambda source, target: model((source, target)), input_signature=[IDS, IDS])(SOURCE, TARGET)
    tolerance = 1e-5 if dtype == "float32" else 0.02 * float(tf.math.reduce_std(expected))
    np.testing.assert_allclose(logits_of(model)(SOURCE, TARGET), expected, atol=tolerance)


def test_inside_the_scope_a_layer_called_at_once_gives_the_same_result(model):
    expected = model((SOURCE, TARGET))
    with FrozenWeights(values_of(model)):
        received = model((SOURCE, TARGET))
    np.testing.assert_allclose(received, expected, atol=1e-5)


@both_dtypes
def test_a_graph_made_inside_the_scope_holds_every_weight_and_no_variable(tiny, dtype):
    model = randomized(tiny, dtype)
    function = logits_of(model).get_concrete_function()
    assert function.graph.captures == [] and function.variables == function.graph.variables == ()
    assert not any(node.op in ("VarHandleOp", "ReadVariableOp") for node in function.graph.as_graph_def().node)
    assert weights_in(function.graph, model) == paths(model)


def test_a_graph_keeps_the_values_of_when_they_were_taken(model):
    frozen, before = logits_of(model), np.array(model((SOURCE, TARGET)))
    for weight in model.trainable_variables:
        weight.assign(weight + 1)  # Before it is traced, even.
    np.testing.assert_allclose(frozen(SOURCE, TARGET), before, atol=1e-5)
    model.embedding.matrix.assign(0.5 * model.embedding.matrix)
    np.testing.assert_allclose(frozen(SOURCE, TARGET), before, atol=1e-5)
    assert np.abs(np.array(model((SOURCE, TARGET))) - before).max() > 0.1


def test_only_the_weights_that_are_used_are_in_the_graph(model):
    """The encoder's, and of the decoder what projects the memory."""
    values = values_of(model)

    @tf.function(input_signature=[IDS])
    def keys_values(source):
        with FrozenWeights(values):
            return model.encode(source).keys_values

    expected = {path for path in paths(model) if path.startswith(("embedding", "encoder"))}
    expected |= {path for path in paths(model) if "cross_attention/key" in path or "cross_attention/value" in path}
    assert weights_in(keys_values.get_concrete_function().graph, model) == expected != paths(model)


def test_a_weight_that_is_used_twice_is_in_the_graph_once(model):
    """The shared matrix: of the source, the target and the logits."""
    graph = logits_of(model).get_concrete_function().graph
    shape = tuple(model.embedding.matrix.shape)
    constants = [tf.make_ndarray(node.attr["value"].tensor) for node in graph.as_graph_def().node if node.op == "Const"]
    assert sum(constant.shape == shape for constant in constants) == 1


@pytest.mark.medium
def test_a_loop_whose_body_has_a_scope_of_its_own_gives_the_same_tokens(model):
    """As beam search uses it: the encoder before the loop in one scope, a step of the decoder in another."""

    def greedy(scope):
        @tf.function(input_signature=[IDS])
        def run(source):
            with scope():
                memory = model.encode(source)
                cache = model.initial_state(memory, 1)

            def body(position, tokens, written, cache):
                with scope():
                    logits, cache = model.decode(tokens, memory, state=cache, position=position)
                tokens = tf.argmax(logits[:, -1], axis=-1, output_type=tf.int32)[:, None]
                return position + 1, tokens, tf.concat([written, tokens], axis=1), cache

            start = tf.fill([tf.shape(source)[0], 1], BOS)
            grows = [[tf.TensorShape([None, x.shape[1], None, x.shape[3]]) for x in pair] for pair in cache]
            shapes = (tf.TensorShape([]), tf.TensorShape([None, 1]), tf.TensorShape([None, None]), grows)
            first = (0, start, start, cache)
            return tf.while_loop(lambda position, *_: position < 7, body, first, shape_invariants=shapes)[2]

        return run

    values = values_of(model)
    frozen = greedy(lambda: FrozenWeights(values))
    read = greedy(lambda: FrozenWeights({id(v): v.value for v in model.variables}))
    np.testing.assert_array_equal(frozen(SOURCE), read(SOURCE))
    assert frozen.get_concrete_function().graph.captures == []


@pytest.mark.medium
def test_outside_the_scope_variables_are_read(model):
    values = values_of(model)
    with FrozenWeights(values):
        model((SOURCE, TARGET))
    before = np.array(model((SOURCE, TARGET)))
    model.embedding.matrix.assign(0.5 * model.embedding.matrix)
    assert np.abs(np.array(model((SOURCE, TARGET))) - before).max() > 0.1
    function = tf.function(lambda *sides: model(sides), input_signature=[IDS, IDS]).get_concrete_function()
    assert len(function.variables) == len(model.trainable_variables) and not weights_in(function.graph, model)


def test_outside_the_scope_a_bias_learns_from_all_rows_again():
    """`add_bias` is left out inside, where nothing learns."""
    from t2t_keras.layers.dense import Dense

    layer, x = Dense(3, dtype="mixed_bfloat16"), tf.ones([50, 100, 2])
    layer(x)
    with FrozenWeights(values_of(layer)):
        layer(x)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(layer(x), tf.float32))
    np.testing.assert_allclose(tape.gradient(loss, layer.bias.value), np.full(3, 5000), rtol=4e-3)


def variable(value: float):
    return keras.Variable(np.array(value, "float32"))


def test_scopes_may_stand_in_one_another_and_the_inner_one_counts():
    weight = variable(1)
    assert float(weight.value) == 1
    with FrozenWeights({id(weight): np.float32(2)}):
        assert float(weight.value) == 2
        with FrozenWeights({id(weight): np.float32(3)}):
            assert float(weight.value) == 3
        assert float(weight.value) == 2
    assert float(weight.value) == 1


def test_an_error_inside_leaves_the_scope_and_is_not_swallowed():
    weight = variable(1)
    with FrozenWeights({id(weight): np.float32(2)}):
        with pytest.raises(RuntimeError, match="inside"):
            with FrozenWeights({id(weight): np.float32(3)}):
                raise RuntimeError("inside")
        assert float(weight.value) == 2
    with pytest.raises(RuntimeError, match="inside"), FrozenWeights({}):
        raise RuntimeError("inside")
    assert float(weight.value) == 1


def test_the_values_are_copies_of_every_weight(model):
    values = values_of(model)
    assert set(values) == {id(weight) for weight in model.variables}
    kept = {key: value.copy() for key, value in values.items()}
    for weight in model.trainable_variables:
        np.testing.assert_array_equal(values[id(weight)], weight)
        weight.assign(weight + 1)
    for key, value in values.items():
        np.testing.assert_array_equal(value, kept[key])
