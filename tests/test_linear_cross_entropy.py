"""The loss without a tensor of all logits equals that of `loss.cross_entropy`, with its gradients."""

import numpy as np
import pytest
import tensorflow as tf
from toy import SMALL, padded, random_updates

from t2t_keras.config import PAD
from t2t_keras.layers.inference import inference
from t2t_keras.layers.masks import shift_right
from t2t_keras.model import linear_cross_entropy as module
from t2t_keras.model.linear_cross_entropy import linear_cross_entropy
from t2t_keras.model.loss import cross_entropy
from t2t_keras.model.transformer import Transformer

V, D = 23, 6
EPSILON = 0.1


def inputs(rows: int, length: int, dtype: str = "float32", scale: float = 1.0, seed: int = 0):
    """Returns hidden states, a matrix, and targets of which a third is padding."""
    draw = np.random.default_rng(seed)
    hidden = tf.cast(draw.normal(0, scale, [rows, length, D]), dtype)
    target = draw.integers(1, V, [rows, length]) * (draw.random([rows, length]) < 2 / 3)
    return hidden, tf.Variable(draw.normal(size=[V, D]), dtype=tf.float32), tf.constant(target, tf.int32)


def plain(hidden, matrix, target, label_smoothing, bias=0.0):
    logits = tf.einsum("btd,vd->btv", tf.cast(hidden, tf.float32), matrix) + bias
    return tuple(map(tf.reduce_sum, cross_entropy(logits, target, label_smoothing)))


def with_gradients(function, hidden, matrix, target, label_smoothing=EPSILON, factor=1.0, bias=()) -> list[np.ndarray]:
    with tf.GradientTape() as tape:
        tape.watch([hidden, *bias])
        sums = function(hidden, tf.convert_to_tensor(matrix), target, label_smoothing, *bias)
        loss = sums[0] * factor
    gradients = tape.gradient(loss, [hidden, matrix, *bias])
    return [tf.cast(tf.convert_to_tensor(value), tf.float32).numpy() for value in (*sums, *gradients)]


BIAS = tf.constant(np.random.default_rng(8).normal(size=V), tf.float32)


@pytest.mark.parametrize("bias", [(), (BIAS,)], ids=["no bias", "bias"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("block", [1, 4, 512])
def test_loss_and_gradients_are_those_of_the_plain_equation(monkeypatch, block, label_smoothing, bias):
    """Blocks of one token, blocks of which the last is not whole, and one block."""
    monkeypatch.setattr(module, "block_tokens", lambda width: block)
    received, expected = (
        with_gradients(f, *inputs(5, 7), label_smoothing, factor=3.0, bias=bias) for f in (linear_cross_entropy, plain)
    )
    assert len(received) == 4 + len(bias)
    for ours, theirs in zip(received, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=5e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_in_a_short_dtype_a_bias_has_its_gradient_in_float32(dtype):
    """Story: a sum of rounded probabilities stops at 256. Here a word has p ≈ 1 at 800 tokens."""
    hidden, matrix, target = inputs(40, 20, dtype, scale=0.3)
    bias = tf.one_hot(5, V, 8.0, 0.0)
    *_, received = with_gradients(linear_cross_entropy, hidden, matrix, target, bias=(bias,))
    *_, expected = with_gradients(plain, tf.cast(hidden, tf.float32), matrix, target, bias=(bias,))
    assert expected[5] > 400
    np.testing.assert_allclose(received, expected, rtol=2e-3, atol=0.2)


def test_in_a_graph_that_does_not_know_the_shape_too():
    hidden, matrix, target = inputs(5, 7)
    signature = [tf.TensorSpec([None, None, D]), tf.TensorSpec([None, None], tf.int32)]

    @tf.function(input_signature=signature)
    def in_graph(hidden, target):
        with tf.GradientTape() as tape:
            tape.watch(hidden)
            sums = linear_cross_entropy(hidden, tf.convert_to_tensor(matrix), target, EPSILON)
        return *sums, *tape.gradient(sums[0], [hidden, matrix])

    for received, expected in zip(in_graph(hidden, target), with_gradients(plain, hidden, matrix, target), strict=True):
        np.testing.assert_allclose(received, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_a_short_dtype_is_as_near_to_float32_as_the_plain_equation_in_it(dtype, scale):
    """At a scale of 3, many tokens are predicted with certainty, and p - q is a small difference."""

    def plain_in_dtype(hidden, matrix, target, label_smoothing):
        logits = tf.cast(tf.einsum("btd,vd->btv", hidden, tf.cast(matrix, dtype)), tf.float32)
        return tuple(map(tf.reduce_sum, cross_entropy(logits, target, label_smoothing)))

    hidden, matrix, target = inputs(40, 20, dtype, scale)
    best = tf.argmax(tf.einsum("btd,vd->btv", hidden, tf.cast(matrix, dtype)), -1, tf.int32)
    target = tf.where(target == PAD, PAD, best)
    exact = with_gradients(plain, tf.cast(hidden, tf.float32), matrix, target)

    def errors_of(function) -> np.ndarray:
        found = with_gradients(function, hidden, matrix, target)
        return np.array(
            [np.linalg.norm(one - other) / np.linalg.norm(other) for one, other in zip(found, exact, strict=True)]
        )

    ours, theirs = errors_of(linear_cross_entropy), errors_of(plain_in_dtype)
    assert ours[:2].max() < 3e-3 and (ours[2:] <= 1.2 * theirs[2:]).all(), (ours, theirs)


def test_a_confident_prediction_keeps_its_small_gradient_in_bfloat16():
    """Logits of 8 and 0, which bfloat16 has, make p = 0.9927. Rounded, it is 0.9922: p - 1 would be 7% too large."""
    target = tf.constant([[1, 2, 3, 4, 5]])
    matrix = tf.Variable(np.eye(V, D), dtype=tf.float32)
    hidden = tf.cast(8 * tf.one_hot(target, D), tf.bfloat16)
    received = with_gradients(linear_cross_entropy, hidden, matrix, target, 0.0)
    expected = with_gradients(plain, tf.cast(hidden, tf.float32), matrix, target, 0.0)
    for ours, exact in zip(received[2:], expected[2:], strict=True):
        np.testing.assert_allclose(ours, exact, rtol=0.01, atol=1e-6)


def test_the_gradient_of_float16_does_not_underflow_below_a_loss_scale():
    """Words other than the first have p = 9e-9. The smallest number of float16 is 6e-8."""
    target = tf.constant([[1, 2, 3, 4, 5]])
    matrix = tf.Variable(np.eye(V, D), dtype=tf.float32)
    hidden = tf.cast(18.5 * tf.one_hot(tf.zeros_like(target), D), tf.float16)
    received = with_gradients(linear_cross_entropy, hidden, matrix, target, 0.0, factor=1024.0)
    expected = with_gradients(plain, tf.cast(hidden, tf.float32), matrix, target, 0.0, factor=1024.0)
    assert (expected[3][6:, 0] > 0).all()
    np.testing.assert_allclose(received[3][6:], expected[3][6:], rtol=0.01)


def test_a_factor_on_the_loss_is_a_factor_on_the_gradients():
    """As the loss scale of float16."""
    one, other = (with_gradients(linear_cross_entropy, *inputs(3, 4), factor=factor) for factor in (1.0, 1024.0))
    np.testing.assert_array_equal(other[2], one[2] * 1024)
    np.testing.assert_array_equal(other[3], one[3] * 1024)


@pytest.mark.parametrize("shape", [(2, 3), (2, 0)], ids=["padding only", "nothing"])
def test_without_tokens_the_loss_and_its_gradients_are_zero(shape):
    hidden, matrix, target = inputs(*shape)
    for value in with_gradients(linear_cross_entropy, hidden, matrix, target * 0):
        assert not value.any()


def bodies(function) -> list:
    """Returns the graphs of the bodies of the loops in a function."""
    graph = tf.function(function).get_concrete_function().graph
    loops = [operation for operation in graph.get_operations() if operation.type in ("While", "StatelessWhile")]
    return [graph._get_function(loop.get_attr("body").name).graph for loop in loops]


def test_a_block_waits_for_the_one_before():
    """Story: TensorFlow computed ten at once, and memory held the logits of all. A while loop does, unless its counter
    has to wait.
    """
    hidden, matrix, target = inputs(5, 7)
    [body] = bodies(lambda: linear_cross_entropy(hidden, tf.convert_to_tensor(matrix), target, EPSILON))

    def operations_before(tensor) -> set[str]:
        found, waiting = set(), [tensor.op]
        while waiting:
            if (operation := waiting.pop()) not in found:
                found.add(operation)
                waiting += [each.op for each in operation.inputs]
        return {operation.type for operation in found}

    counters = [output for output in body.outputs if output.dtype == tf.int32]
    assert counters and any("MatMul" in operations_before(counter) for counter in counters)


@pytest.mark.parametrize(("width", "tokens"), [(128, 256), (129, 512)])
def test_a_narrow_model_has_smaller_blocks(width, tokens):
    hidden, target = tf.zeros([5, 7, width]), tf.ones([5, 7], tf.int32)
    [body] = bodies(lambda: linear_cross_entropy(hidden, tf.zeros([V, width]), target, EPSILON))
    shapes = [tuple(operation.outputs[0].shape) for operation in body.get_operations() if "MatMul" in operation.type]
    assert (tokens, V) in shapes


def test_without_gradients_only_the_losses_are_computed():
    """A validation would otherwise take three times as long."""
    hidden, matrix, target = inputs(5, 7)

    def products(function) -> int:
        return sum(operation.type == "MatMul" for body in bodies(function) for operation in body.get_operations())

    with inference():
        sums = linear_cross_entropy(hidden, tf.convert_to_tensor(matrix), target, EPSILON)
        np.testing.assert_allclose(sums, plain(hidden, matrix, target, EPSILON), rtol=1e-5)
        without = products(lambda: linear_cross_entropy(hidden, tf.convert_to_tensor(matrix), target, EPSILON))
    assert products(lambda: linear_cross_entropy(hidden, tf.convert_to_tensor(matrix), target, EPSILON)) - without == 2


@pytest.mark.parametrize("gap", [20.0, 60.0, 80.0, 95.0, 300.0])
def test_the_loss_of_a_target_that_is_all_but_impossible_is_exact(gap):
    """From e^-69 on, 1e-30, its probability is too small for its logarithm, and from e^-104 on it is 0."""
    hidden, target = tf.constant([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]), tf.constant([[4, 5, 6]])
    matrix = np.zeros([9, 2], np.float32)
    matrix[4], matrix[5] = (-gap, 1.0), (2.0, 0.5)
    logits = np.array([[1, 0], [0, 1], [1, 1]], np.float64) @ matrix.T.astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    costs = -log_p[np.arange(3), [4, 5, 6]]
    expected = (1 - EPSILON) * costs.sum() - EPSILON * log_p.mean(axis=1).sum(), costs.sum()
    found = linear_cross_entropy(hidden, tf.constant(matrix), target, EPSILON)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_logit_that_is_not_finite_makes_the_loss_not_finite():
    hidden, matrix, target = inputs(2, 3)
    row, column = np.argwhere(target.numpy() != PAD)[0]
    hidden = tf.tensor_scatter_nd_update(hidden, [[row, column, 0]], [np.inf])
    assert not np.isfinite(linear_cross_entropy(hidden, tf.convert_to_tensor(matrix), target, EPSILON)[0])


def test_the_loss_of_a_transformer_is_that_of_its_logits():
    [update] = random_updates([6], seed=5)
    source, target = (
        tf.constant(padded([row[row > 0].tolist() for row in update[side]])) for side in ("source", "target")
    )
    model = Transformer(SMALL)
    losses = cross_entropy(model((source, shift_right(target))), target, EPSILON)
    expected = [float(tf.reduce_sum(each)) for each in losses]
    assert [float(loss) for loss in model.cross_entropy(source, target, EPSILON)] == pytest.approx(expected, rel=1e-5)
