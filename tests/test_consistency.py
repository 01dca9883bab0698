"""Two passes over a sentence, R-Drop and SimCut: against automatic differentiation of the published equations, and in
training.
"""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
import toy
from test_linear_cross_entropy import inputs, with_gradients
from toy import SMALL, TASK, TRAIN, random_updates

from t2t_keras.data import batching
from t2t_keras.layers.dropout import WordDropout
from t2t_keras.layers.masks import shift_right
from t2t_keras.model import linear_cross_entropy as module
from t2t_keras.model.linear_cross_entropy import linear_cross_entropy, r_drop, simcut
from t2t_keras.model.loss import cross_entropy
from t2t_keras.model.transformer import Transformer
from t2t_keras.training.train_step import micro_batch_gradients

ALPHA = 3.0
BIAS = tf.constant(np.random.default_rng(8).normal(size=23), tf.float32)


def kl(p, q):
    """Σ p log (p / q) of logits."""
    log_p, log_q = tf.nn.log_softmax(p), tf.nn.log_softmax(q)
    return tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=-1)


def of_r_drop(first, second, target, label_smoothing) -> tuple:
    """Liang et al. 2021: -log P1 - log P2 + α / 2 (KL(P1 ‖ P2) + KL(P2 ‖ P1)), halved."""
    losses = [
        [tf.reduce_sum(each) for each in cross_entropy(logits, target, label_smoothing)] for logits in (first, second)
    ]
    divergence = tf.reduce_sum(tf.where(target > 0, kl(first, second) + kl(second, first), 0.0))
    return (losses[0][0] + losses[1][0] + ALPHA / 2 * divergence) / 2, (losses[0][1] + losses[1][1]) / 2


def of_simcut(first, second, target, label_smoothing) -> tuple:
    """Gao et al. 2022: the loss of the whole text, and α KL(whole ‖ cut), with gradients through both."""
    loss, negative_log_likelihood = map(tf.reduce_sum, cross_entropy(first, target, label_smoothing))
    return loss + ALPHA * tf.reduce_sum(tf.where(target > 0, kl(first, second), 0.0)), negative_log_likelihood


METHODS = {"r_drop": (r_drop, of_r_drop), "simcut": (simcut, of_simcut)}


@pytest.mark.parametrize("bias", [(), (BIAS,)], ids=["no bias", "bias"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("block", [2, 8, 512])
@pytest.mark.parametrize("method", METHODS)
def test_loss_and_gradients_are_those_of_the_published_equations(monkeypatch, method, block, label_smoothing, bias):
    """Blocks of one token of each pass, blocks of which the last is not whole, and one block."""
    monkeypatch.setattr(module, "block_tokens", lambda width: block)
    make, published = METHODS[method]
    hidden, matrix, target = inputs(10, 7)

    def ours(hidden, matrix, target, label_smoothing, bias=None):
        return linear_cross_entropy(hidden, matrix, target[:5], label_smoothing, bias, make(ALPHA))

    def plain(hidden, matrix, target, label_smoothing, bias=0.0):
        logits = tf.einsum("btd,vd->btv", hidden, matrix) + bias
        return published(logits[:5], logits[5:], target[:5], label_smoothing)

    received, expected = (
        with_gradients(f, hidden, matrix, target, label_smoothing, factor=3.0, bias=bias) for f in (ours, plain)
    )
    assert len(received) == 4 + len(bias)
    for one, other in zip(received, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=5e-5, atol=2e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_in_short_dtypes_the_divergence_is_in_float32(dtype):
    hidden, matrix, target = inputs(40, 20, dtype, scale=0.3)
    whole = [
        linear_cross_entropy(each, tf.convert_to_tensor(matrix), target[:20], 0.1, None, r_drop(ALPHA))[0]
        for each in (hidden, tf.cast(hidden, "float32"))
    ]
    assert float(whole[0]) == pytest.approx(float(whole[1]), rel=0.01)


def test_equal_passes_have_no_divergence():
    hidden, matrix, target = inputs(5, 7)
    expected = linear_cross_entropy(hidden, tf.convert_to_tensor(matrix), target, 0.1)
    for make in (r_drop, simcut):
        found = linear_cross_entropy(
            tf.concat([hidden, hidden], 0), tf.convert_to_tensor(matrix), target, 0.1, None, make(ALPHA)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def trained_on(config, **others) -> tuple[dict, dict]:
    """Returns the gradients of an update by name of the weight, and its sums."""
    [update] = random_updates([6], seed=4)
    model = Transformer(config)
    toy.set_weights(model)
    columns = batching.columns_of(update)
    gradients, sums = micro_batch_gradients(
        model, TASK, dataclasses.replace(TRAIN, **others), columns, step=0, micro_batch=0, replica=0, scale=1.0
    )
    names = [weight.path for weight in model.trainable_variables]
    return dict(zip(names, map(np.array, gradients), strict=True)), {name: float(value) for name, value in sums.items()}


def test_without_dropout_r_drop_is_the_loss_of_one_pass_at_twice_the_cost():
    expected, sums = trained_on(SMALL)
    received, found = trained_on(dataclasses.replace(SMALL, r_drop=ALPHA, dropout=1e-9))
    for name, gradient in expected.items():
        np.testing.assert_allclose(received[name], gradient, atol=2e-5, err_msg=name)
    assert found.pop("flops") == 2 * sums.pop("flops")
    assert found == pytest.approx(sums, rel=1e-5)


@pytest.mark.parametrize(
    ("method", "options"), [("r_drop", {"dropout": 0.3}), ("simcut", {"dropout": 0.3, "word_dropout": 0.4})]
)
def test_the_passes_of_training_have_other_dropout_and_the_weight_of_their_divergence(method, options):
    """The loss grows linearly with α. The likelihood, without α, does not."""
    losses = {
        alpha: trained_on(dataclasses.replace(SMALL, **options, **{method: alpha}))[1] for alpha in (1.0, 2.0, 4.0)
    }
    smoothed = [losses[alpha]["smoothed_loss"] for alpha in (1.0, 2.0, 4.0)]
    assert smoothed[1] - smoothed[0] > 0.1
    assert smoothed[2] - smoothed[1] == pytest.approx(2 * (smoothed[1] - smoothed[0]), rel=1e-3)
    assert len({losses[alpha]["loss"] for alpha in losses}) == 1


def test_the_first_pass_of_simcut_has_all_words():
    """Without other dropout, the likelihood is that of a model without any; the loss has the divergence."""
    _, sums = trained_on(SMALL)
    _, found = trained_on(dataclasses.replace(SMALL, word_dropout=0.5, simcut=ALPHA))
    assert found["loss"] == pytest.approx(sums["loss"], rel=1e-5)
    assert found["smoothed_loss"] > sums["smoothed_loss"] + 0.1


@pytest.mark.parametrize("options", [{"r_drop": ALPHA}, {"simcut": ALPHA, "word_dropout": 0.5}, {"word_dropout": 0.5}])
def test_validation_and_search_are_those_of_one_pass_with_all_words(options):
    [update] = random_updates([6], seed=4)
    source, target = update["source"], update["target"]
    found = []
    for config in (SMALL, dataclasses.replace(SMALL, dropout=0.3, **options)):
        model = Transformer(config)
        toy.set_weights(model)
        memory = model.encode(source)
        found.append([*model.cross_entropy(source, target, 0.1), model.decode(shift_right(target), memory)[0]])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.medium
def test_two_devices_and_micro_batches_sum_the_divergence():
    """SimCut that cuts all words: the divergence is that of a sentence, wherever it is."""
    config = dataclasses.replace(SMALL, word_dropout=0.9999, simcut=ALPHA)
    updates = random_updates([5, 1, 2], seed=4)
    whole, divided = (
        toy.on_devices(updates, replicas=replicas, micro_batch_tokens=tokens, make_model=lambda: Transformer(config))
        for replicas, tokens in ((1, 10**6), (2, 20))
    )
    toy.assert_close(divided[0], whole[0], 2e-5)
    [of_one_pass, *_] = toy.on_devices(
        updates[:1], replicas=1, micro_batch_tokens=10**6, make_model=lambda: Transformer(SMALL)
    )[1]
    assert divided[1][0]["smoothed_loss"] > of_one_pass["smoothed_loss"] + 0.1
    for received, expected in zip(divided[1], whole[1], strict=True):
        assert received["smoothed_loss"] == pytest.approx(expected["smoothed_loss"], rel=1e-5)


def kept(layer, rows: int = 200, length: int = 300) -> np.ndarray:
    """Which tokens a layer keeps: [rows, length]."""
    x = np.ones((rows, length, 4), np.float32)
    y = np.array(layer(x, training=True))
    assert set(np.unique(y)) <= {0.0, 1.0}  # Not scaled.
    assert (y == y[..., :1]).all()
    return y[..., 0] == 1


@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_words_are_dropped_whole_at_the_rate(rate):
    found = kept(WordDropout(rate, seed=1))
    assert 1 - found.mean() == pytest.approx(rate, abs=5 * (rate * (1 - rate) / found.size) ** 0.5)
    assert found.any(axis=1).all() and not found.all(axis=0).any()


def test_the_first_half_of_the_rows_keeps_all_words():
    found = kept(WordDropout(0.3, second_half=True, seed=1))
    assert found[:100].all() and 1 - found[100:].mean() == pytest.approx(0.3, abs=0.015)


def test_words_of_both_sides_are_dropped():
    """Each side alone changes the logits."""
    config = dataclasses.replace(SMALL, word_dropout=0.5)
    model = Transformer(config)
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, WordDropout)]
    assert {(layer.name, layer.rate, layer.second_half) for layer in layers} == {
        ("source_word_dropout", 0.5, False), ("target_word_dropout", 0.5, False)
    }  # fmt: skip
    [update] = random_updates([3], seed=2)
    plain = np.array(model((update["source"], update["target"])))
    for layer in layers:
        keras.utils.set_random_seed(1)
        layer.rate = 0.0
        assert not np.allclose(model((update["source"], update["target"]), training=True), plain)
        layer.rate = 0.5


def test_a_model_without_word_dropout_draws_the_random_numbers_that_it_drew_before():
    states = [variable.path for variable in Transformer(SMALL).non_trainable_variables]
    assert len(states) == 2 + 2 + 3  # Source and target, and each sub-layer of one encoder and one decoder layer.
