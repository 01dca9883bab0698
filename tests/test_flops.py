"""The operations that are counted from shapes are those of the products in TensorFlow's graph."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
import toy
from toy import SMALL, Toy, on_devices, random_updates

from t2t_keras import config
from t2t_keras.model import flops
from t2t_keras.model.loss import cross_entropy
from t2t_keras.model.transformer import Transformer
from t2t_keras.runs.task import SUMS
from t2t_keras.training import cost
from t2t_keras.training.state import TrainState

ROWS, SOURCE, TARGET = 3, 7, 5
UNLIKE = dataclasses.replace(SMALL, encoder_layers=2, decoder_layers=3)  # No two sizes are equal.


def products(function) -> int:
    """Twice the multiplications in all matrix products of a function's graph, by the shapes that TensorFlow infers."""
    graph, total = function.get_concrete_function().graph, 0
    graphs = [graph, *(called.graph for called in graph._functions.values() if hasattr(called, "graph"))]
    for operation in [operation for each in graphs for operation in each.get_operations()]:
        if operation.type in ("MatMul", "BatchMatMul", "BatchMatMulV2"):
            left = operation.inputs[0].shape
            transposed = operation.get_attr("transpose_a" if operation.type == "MatMul" else "adj_x")
            if 1 not in operation.outputs[0].shape[-2:]:  # Otherwise it is a sum, written as a product with ones.
                total += 2 * operation.outputs[0].shape.num_elements() * left[-2 if transposed else -1]
        elif operation.type == "Einsum":
            before, _, after = operation.get_attr("equation").decode().partition("->")
            letters = before.partition(",")[0].removeprefix("...")  # Other axes are in the result too.
            sizes = dict(zip(reversed(letters), reversed(operation.inputs[0].shape), strict=False))
            summed = math.prod(sizes[letter] for letter in set(sizes) - set(after))
            total += 2 * operation.outputs[0].shape.num_elements() * summed
    return total


BIASES = {"attention_bias": True, "logits_bias": True}
ADDITIVE = dataclasses.replace(UNLIKE, attention="additive")
SIZES = {
    "unscaled": dataclasses.replace(UNLIKE, attention="unscaled"),
    "small": SMALL,
    "layers differ": UNLIKE,
    "attention window": dataclasses.replace(UNLIKE, attention_window=4),
    "options": dataclasses.replace(UNLIKE, **BIASES, activation="gelu", source_vocab_size=31, tie_logits=False),
    "pre-norm": dataclasses.replace(UNLIKE, norm="pre", sinusoids="tensor2tensor"),
}


@pytest.mark.medium
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_forward_pass_and_its_gradient_have_the_counted_products(size):
    model = Transformer(size)
    source, target = tf.ones([ROWS, SOURCE], tf.int32), tf.ones([ROWS, TARGET], tf.int32)

    def loss():
        return tf.reduce_sum(cross_entropy(model((source, target), training=True), target, 0.1)[0])

    def gradient():
        with tf.GradientTape() as tape:
            found = loss()
        return tape.gradient(found, [weight.value for weight in model.trainable_variables])

    forward = products(tf.function(loss, autograph=False))
    assert forward == model.flops(ROWS, SOURCE, TARGET) == flops.forward(size, ROWS, SOURCE, TARGET)
    assert forward == model.flops(*(tf.constant(float(number)) for number in (ROWS, SOURCE, TARGET)))
    assert products(tf.function(gradient, autograph=False)) == 3 * forward


def test_the_memory_of_a_micro_batch_is_of_its_tokens_and_its_attention():
    """Of 30 and 20 tokens: 30² in the encoder, 30 · 20 and 20² in the decoder."""
    assert flops.memory_cost(config.ModelConfig(), 2, 30, 20) == 2 * (30 + 20 + (900 + 600 + 400) / 770)
    assert flops.memory_cost(config.ModelConfig(), 1, 30) == 30 + 900 / 770


def test_the_memory_of_additive_attention_has_a_vector_for_each_score():
    """Of one layer of three, three times, beside 12 tensors of width d_model = 8 in each; two heads of d_k = 3."""
    scaled, additive = (flops.memory_cost(each, 2, 7, 5) for each in (UNLIKE, ADDITIVE))
    assert additive - scaled == pytest.approx(2 * 3 * (2 * 3 * 7**2) / (12 * 8 * 3))
    scaled, additive = (flops.search_memory(each, 4, 50) for each in (UNLIKE, ADDITIVE))
    assert additive - scaled == 4 * 2 * (2 * 3 * 4 * 4 * 50), "float32, two tensors: the sum and its tanh"


def test_additive_attention_has_the_products_of_the_others_and_more_memory():
    """Two layers of the encoder, three of the decoder. `products` takes the product with the vector for a sum."""
    model = Transformer(ADDITIVE)
    source, target = tf.ones([ROWS, SOURCE], tf.int32), tf.ones([ROWS, TARGET], tf.int32)
    counted = products(tf.function(lambda: model((source, target)), autograph=False))
    of_scores = 2 * ROWS * (2 * SOURCE * SOURCE + 3 * TARGET * (TARGET + SOURCE)) * ADDITIVE.num_heads * ADDITIVE.d_k
    assert counted + of_scores == model.flops(ROWS, SOURCE, TARGET) == Transformer(UNLIKE).flops(ROWS, SOURCE, TARGET)


def test_the_base_model_has_the_operations_that_its_weights_say():
    """Each weight outside the embedding multiplies once for each token; what attention adds to that is small at 30
    tokens.
    """
    base = config.ModelConfig()
    per_pair = flops.forward(base, 1, 30, 30) / 30
    weights = base.num_weights - 6 * (5 * 2 * 512 + 2 * 2560)  # Without the weights of layer norm, and without biases.
    assert 2 * weights < per_pair < 2.03 * weights


@pytest.mark.medium
def test_an_update_counts_the_operations_of_its_padded_micro_batches():
    """Two devices, and the rows of one update on both: the sum over devices is that of the whole update's shape."""
    [update] = random_updates([4])
    rows, target = update["target"].shape
    assert (update["target"] == 0).any()
    for replicas in (1, 2):
        _, [metrics] = on_devices([update], replicas=replicas, micro_batch_tokens=10**6)
        lengths = [max(np.count_nonzero(row) for row in part) for part in np.split(update["target"], replicas)]
        expected = sum(Toy().flops(rows / replicas, None, length) for length in lengths)
        assert metrics["flops"] == pytest.approx(expected)


def state(**fields) -> TrainState:
    return dataclasses.replace(TrainState(step=10, seconds=200.0, target_tokens=1000, flops=3e12), **fields)


def test_the_summary_has_the_operations_and_the_paper_s_estimate():
    summary = cost.summary(state(), 2, 0.5, "target token")
    assert "3e+12 floating-point operations" in summary and "3e+09 per target token, 0.015 TFLOPS" in summary
    assert "200 s × 2 device(s) × 0.5 TFLOPS = 2e+14 operations" in summary
    assert "3e+09 per text," in cost.summary(state(), 2, 0.0, "text")
    assert "estimate" not in cost.summary(state(), 2, 0.0, "text")
    assert "not counted" in cost.summary(state(flops=math.nan), 2, 0.0, "text")
    assert "Training took 3e+12 " in cost.summary(state(), 2, 0.0, "text")
    assert "Training took at most 3e+12 " in cost.summary(state(), 2, 0.0, "text", frozen=True)


def test_operations_are_counted_over_all_updates_and_per_second():
    counted = state(flops=0.0)
    for _ in range(2):
        sums = dict.fromkeys((*toy.TASK.sums, *SUMS), 1.0)
        counted.count_update({**sums, "flops": 1e12, "finite": True}, (0, 1), 0, 1.5)
    found = counted.pop_summary({"learning_rate": 1.0, "gradient_norm": 1.0}, toy.TASK)
    assert counted.flops == found["train/flops"] == 6e12
    assert found["utilization/tflops"] == pytest.approx(2.0)
