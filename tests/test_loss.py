"""Section 5.4: label smoothing over the whole vocabulary; its written-out gradient; padding and the right-shift."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_keras.config import BOS, EOS, PAD
from t2t_keras.layers.masks import shift_right, token_mask
from t2t_keras.model.loss import LabelSmoothedCrossEntropy, cross_entropy

V = 7
TARGET = np.array([[5, 1, EOS, PAD], [4, 4, 6, EOS]])


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(scale=2, size=(*TARGET.shape, V)).astype("float32")


def log_softmax(logits):
    logits = logits.astype("float64")
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def smoothed(logits, target, label_smoothing):
    return cross_entropy(logits, target, label_smoothing)[0]


def gradient(logits, target, label_smoothing):
    logits = tf.convert_to_tensor(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = ops.sum(smoothed(logits, target, label_smoothing))
    return tape.gradient(loss, logits).numpy()


def test_without_smoothing_the_loss_is_the_negative_log_likelihood(logits):
    expected = -np.take_along_axis(log_softmax(logits), TARGET[..., None], axis=-1)[..., 0]
    for loss in cross_entropy(logits, TARGET, 0.0):
        np.testing.assert_allclose(loss, np.where(TARGET == PAD, 0, expected), atol=1e-5)
    assert (np.array(smoothed(logits, TARGET, 0.0)) == np.array(cross_entropy(logits, TARGET, 0.0)[1])).all()


@pytest.mark.parametrize("label_smoothing", [0.1, 0.9])
def test_the_negative_log_likelihood_is_the_same_whatever_epsilon_and_has_no_gradient(logits, label_smoothing):
    expected = cross_entropy(logits, TARGET, 0.0)[1]
    np.testing.assert_array_equal(cross_entropy(logits, TARGET, label_smoothing)[1], expected)
    logits = tf.convert_to_tensor(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss, beside = cross_entropy(logits, TARGET, label_smoothing)
        both = ops.sum(loss) + 100 * ops.sum(beside)
    np.testing.assert_array_equal(tape.gradient(both, logits), gradient(logits, TARGET, label_smoothing))


def test_smoothing_worked_by_hand_spreads_epsilon_over_the_whole_vocabulary_the_word_included():
    # p = (1/8, 1/8, 1/8, 1/8, 1/2), word 4, epsilon 0.5: q = 0.1 everywhere and 0.5 + 0.1 at the word.
    logits = np.log([[[1.0, 1, 1, 1, 4]]]).astype("float32")
    by_hand = 4 * 0.1 * np.log(8) + 0.6 * np.log(2)  # = 1.8 · log 2
    np.testing.assert_allclose(smoothed(logits, np.array([[4]]), 0.5), [[by_hand]], rtol=1e-6)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.5, 0.9])
def test_a_uniform_prediction_costs_log_v_whatever_epsilon(label_smoothing):
    loss = smoothed(np.full((1, 3, V), 2.5, "float32"), np.array([[1, 4, 6]]), label_smoothing)
    np.testing.assert_allclose(loss, np.full((1, 3), np.log(V)), rtol=1e-6)


@pytest.mark.parametrize("label_smoothing", [0.1, 0.3])
def test_the_smoothed_loss_is_the_cross_entropy_of_the_smoothed_target(logits, label_smoothing):
    q = (1 - label_smoothing) * np.eye(V)[TARGET] + label_smoothing / V
    expected = np.where(TARGET == PAD, 0, -(q * log_softmax(logits)).sum(axis=-1))
    np.testing.assert_allclose(smoothed(logits, TARGET, label_smoothing), expected, atol=1e-5)


def test_padding_adds_nothing_to_the_loss_or_its_gradient(logits):
    loss = np.array(smoothed(logits, TARGET, 0.1))
    assert (loss[TARGET == PAD] == 0).all() and (loss[TARGET != PAD] > 0).all()
    slope = gradient(logits, TARGET, 0.1)
    assert (slope[TARGET == PAD] == 0).all() and (slope[TARGET != PAD] != 0).all()
    wider = np.pad(logits, [(0, 0), (0, 2), (0, 0)]), np.pad(TARGET, [(0, 0), (0, 2)])
    assert ops.sum(smoothed(*wider, 0.1)).numpy() == pytest.approx(loss.sum(), rel=1e-6)


def test_a_batch_of_padding_alone_has_no_loss_and_no_gradient(logits):
    nothing = np.zeros_like(TARGET)
    assert not np.any(smoothed(logits, nothing, 0.1)) and not np.any(gradient(logits, nothing, 0.1))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_gradient_is_p_minus_q(logits, label_smoothing):
    p = np.exp(log_softmax(logits))
    q = (1 - label_smoothing) * np.eye(V)[TARGET] + label_smoothing / V
    expected = (p - q) * (TARGET != PAD)[..., None]
    np.testing.assert_allclose(gradient(logits, TARGET, label_smoothing), expected, atol=1e-6)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_gradient_agrees_with_central_differences(logits, label_smoothing):
    """The gradient is written out, so nothing but a test ties it to the loss."""
    slope, rng, step = gradient(logits, TARGET, label_smoothing), np.random.default_rng(1), 1e-2
    for _ in range(5):
        direction = rng.normal(size=logits.shape).astype("float32")
        ahead, behind = (
            float(ops.sum(smoothed(logits + sign * step * direction, TARGET, label_smoothing))) for sign in (1, -1)
        )
        assert (slope * direction).sum() == pytest.approx((ahead - behind) / (2 * step), rel=2e-3, abs=2e-3)


def test_the_gradient_is_scaled_by_what_comes_from_above_at_each_position(logits):
    weights = np.arange(8, dtype="float32").reshape(TARGET.shape)
    tensor = tf.convert_to_tensor(logits)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        loss = ops.sum(weights * smoothed(tensor, TARGET, 0.1))
    expected = weights[..., None] * gradient(logits, TARGET, 0.1)
    np.testing.assert_allclose(tape.gradient(loss, tensor), expected, atol=1e-6)


def test_logits_of_ten_thousand_give_a_finite_loss_and_gradient():
    logits = np.array([[[1e4, -1e4, 0, 0, 0], [1e4, -1e4, 0, 0, 0]]], "float32")
    target = np.array([[4, 1]])
    np.testing.assert_allclose(smoothed(logits, target, 0.0), [[1e4, 2e4]])
    np.testing.assert_allclose(gradient(logits, target, 0.0), [[[1, 0, 0, 0, -1], [1, -1, 0, 0, 0]]])
    # The mean logit is 0, so smoothing moves a share epsilon of the loss to the log of the normaliser, 1e4.
    np.testing.assert_allclose(smoothed(logits, target, 0.1), [[1e4, 0.9 * 2e4 + 0.1 * 1e4]], rtol=1e-6)


def test_adding_a_constant_to_all_logits_changes_nothing(logits):
    np.testing.assert_allclose(smoothed(logits + 100, TARGET, 0.1), smoothed(logits, TARGET, 0.1), atol=1e-4)


def test_the_loss_of_fit_takes_weights_of_tokens_and_is_zero_without_any(logits):
    loss, losses = LabelSmoothedCrossEntropy(0.2), np.array(smoothed(logits, TARGET, 0.2))
    weights = np.arange(8).reshape(TARGET.shape)
    expected = (losses * weights).sum() / weights[TARGET != PAD].sum()
    assert float(loss(TARGET, logits, weights)) == pytest.approx(expected, rel=1e-5)
    assert float(loss(np.zeros_like(TARGET), logits)) == float(loss(TARGET, logits, np.zeros(2))) == 0


def test_the_loss_of_fit_refuses_another_reduction_and_survives_serialization():
    """Story: `reduction="sum"` had no effect."""
    expected = "^The loss is the mean over tokens: leave `reduction` out. Received: reduction=sum.$"
    with pytest.raises(ValueError, match=expected):
        LabelSmoothedCrossEntropy(0.1, reduction="sum")
    loss = LabelSmoothedCrossEntropy.from_config(LabelSmoothedCrossEntropy(0.3).get_config())
    assert loss.label_smoothing == 0.3


def test_the_loss_of_fit_takes_what_keras_gives_it_and_is_computed_in_float32(logits):
    """Targets may be floats, and logits in bfloat16. The paper's ε is 0.1."""
    rounded = ops.cast(logits, "bfloat16")
    found = LabelSmoothedCrossEntropy()(TARGET.astype("float32"), rounded)
    assert found.dtype == "float32"
    expected = np.array(smoothed(ops.cast(rounded, "float32"), TARGET, 0.1)).sum() / (TARGET != PAD).sum()
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_the_decoder_reads_bos_and_then_all_but_the_last_word():
    expected = [[BOS, 5, 1, EOS], [BOS, 4, 4, 6]]
    shifted = shift_right(TARGET.astype("int32"))
    np.testing.assert_array_equal(shifted, expected)
    assert shifted.dtype == "int32"


def test_the_token_mask_is_one_at_words_and_zero_at_padding():
    np.testing.assert_array_equal(token_mask(TARGET), [[1, 1, 1, 0], [1, 1, 1, 1]])
