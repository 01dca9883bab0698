"""What a checkpoint says of a run's state, whichever version wrote it."""

import dataclasses
import json
import math

import pytest
from toy import TASK

from t2t_keras.runs.task import SUMS
from t2t_keras.training.state import TrainState
from t2t_keras.training.train_step import LossScale


def as_written(state: TrainState) -> dict:
    return json.loads(json.dumps(dataclasses.asdict(state)))


def test_what_was_written_is_what_is_read():
    for state in (
        TrainState(),
        TrainState(step=3, position=(1, 2), best=2.5, dtype="float16", loss_scale=LossScale(2.0, 7.0)),
    ):
        assert as_written(TrainState.read(as_written(state))) == as_written(state)


def test_the_largest_number_is_read():
    assert TrainState.read({"step": 2**63 - 1, "measured": {"loss": 1}}).step == 2**63 - 1


def test_a_field_that_a_checkpoint_lacks_is_as_at_the_start():
    read = TrainState.read({"step": 7})
    assert dataclasses.replace(read, flops=0.0) == TrainState(step=7)
    assert TrainState.read({}) == TrainState() and TrainState().best == -math.inf


def test_operations_that_an_older_version_did_not_count_stay_unknown():
    state = TrainState.read({"step": 7})
    state.count_update({**dict.fromkeys(SUMS, 1.0), "finite": True}, (0, 8), 0, 1.0)
    assert math.isnan(state.flops)
    assert math.isnan(TrainState.read(as_written(state)).flops)


def update(**metrics) -> dict:
    return {**dict.fromkeys((*TASK.sums, *SUMS), 1.0), "finite": True} | metrics


def test_updates_are_counted_with_what_they_had():
    state = TrainState(step=5)
    state.count_update(update(target_tokens=30.0, flops=7.0), (0, 6), 2, 1.5)
    for position in ((1, 0), (1, 1)):
        state.count_update(update(target_tokens=0.0, flops=0.0, finite=False), position, 1, 1.0)
    expected = (8, (1, 1), 30, 21.0, 4)
    assert (state.step, state.position, state.target_tokens, state.flops, state.damaged_records) == expected
    assert (state.skipped, state.skipped_in_a_row) == (2, 2)
    state.count_update(update(), (1, 2), 0, 1.0)
    assert (state.skipped, state.skipped_in_a_row) == (2, 0)


def test_of_validations_with_bleu_0_the_last_is_the_best():
    """Story: `patience` stopped runs before their BLEU was above 0, and their first checkpoint was the best."""
    state = TrainState()
    for state.step, score, is_best in ((10, 0.0, True), (20, 0.0, True), (30, 0.1, True), (40, 0.0, False)):
        assert state.count_validation(score) == is_best
    assert (state.best_step, state.validations_since_best) == (30, 1)


def test_the_best_validation_is_the_first_of_the_highest_score():
    state = TrainState()
    found = []
    for step, score in ((10, -2.0), (20, -1.0), (30, -1.0), (40, -1.5)):
        state.step = step
        better = state.count_validation(score)
        found.append((better, state.validated_step, state.best, state.best_step, state.validations_since_best))
    expected = [(True, 10, -2.0, 10, 0), (True, 20, -1.0, 20, 0), (False, 30, -1.0, 20, 1), (False, 40, -1.0, 20, 2)]
    assert found == expected


@pytest.mark.parametrize(("state", "dtype", "scale"), [
    (TrainState(), "float16", (1024.0, 0.0)),
    (TrainState(), "bfloat16", (1.0, 0.0)),
    (TrainState(step=1), "float16", (1024.0, 0.0)),
    (TrainState(step=1, dtype="float16", loss_scale=LossScale(8.0, 3.0)), "float16", (8.0, 3.0)),
    (TrainState(step=1, dtype="float16", loss_scale=LossScale(8.0, 3.0)), "float32", (1.0, 0.0)),
    (TrainState(dtype="float16", loss_scale=LossScale(8.0, 3.0)), "float16", (1024.0, 0.0)),
])  # fmt: skip
def test_the_loss_scale_starts_anew_with_a_run_and_with_another_dtype(state, dtype, scale):
    state.set_dtype(dtype)
    assert (state.dtype, tuple(state.loss_scale)) == (dtype, scale)


@pytest.mark.parametrize(
    ("before", "now", "lines", "best"),
    [(20, 500, 1000, (-math.inf, 0, 0)), (20, 20, 1000, (45.0, 30, 2)), (0, 500, 1000, (45.0, 30, 2))]
    + [(500, 1000, 200, (45.0, 30, 2)), (500, 200, 200, (45.0, 30, 2)), (500, 199, 200, (-math.inf, 0, 0))],
)
def test_bleu_of_other_sentences_does_not_compare(before, now, lines, best):
    """Stories: a resumed run with more sentences, which are harder, never had a better validation, and stopped early. A
    run with all sentences of a small validation set forgot its best one if it was to translate more.
    """
    state = TrainState(step=50, best=45.0, best_step=30, validations_since_best=2, valid_sentences=before)
    assert state.set_valid_sentences(now, lines) == (best[1] == 0)
    assert (state.valid_sentences, state.best, state.best_step, state.validations_since_best) == (now, *best)


def test_a_new_run_has_no_best_validation_to_forget():
    state = TrainState()
    assert not state.set_valid_sentences(20, 1000)
    assert state.valid_sentences == 20 and state == TrainState(valid_sentences=20)


def test_a_point_has_means_over_the_updates_since_the_last():
    state = TrainState()
    for tokens in (60.0, 20.0):
        counted = {
            "target_tokens": tokens, "loss": 3 * tokens, "real_tokens": 2 * tokens, "positions": 4 * tokens,
            "flops": 1e12,
        }  # fmt: skip
        state.count_update(update(**counted), (0, 1), 3, 2.0)
    found = state.pop_summary({"learning_rate": 0.25, "gradient_norm": 0.75}, TASK)
    names = ("train/loss", "utilization/padding_share", "utilization/real_token_share", "utilization/tflops")
    assert [found[name] for name in names] == [3.0, 0.5, 0.5, 1.5]
    names = ("train/target_tokens_seen", "train/flops", "utilization/damaged_records", "train/skipped_updates")
    assert [found[name] for name in names] == [80, 6e12, 6, 0]
    assert state.measured == {}
    state.count_update(update(target_tokens=0.0), (0, 2), 0, 1.0)
    assert "train/loss" not in state.pop_summary({"learning_rate": 0.25, "gradient_norm": 0.75}, TASK)


def test_a_point_has_the_speed_since_the_last_point_and_the_loss_scale():
    state = TrainState(step=10, target_tokens=1e6, loss_scale=LossScale(512.0, 7.0))
    for tokens, seconds in ((600.0, 1.5), (300.0, 2.5)):
        state.count_update(
            {**dict.fromkeys((*TASK.sums, *SUMS), 1.0), "target_tokens": tokens, "finite": True}, (0, 1), 0, seconds
        )
    found = state.pop_summary({"learning_rate": 0.25, "gradient_norm": 0.75}, TASK)
    names = ("updates_per_second", "target_tokens_per_second")
    assert [found[f"utilization/{name}"] for name in names] == [2 / 4, 900 / 4]
    assert [found[f"train/{name}"] for name in ("loss_scale", "learning_rate", "gradient_norm")] == [512, 0.25, 0.75]


@pytest.mark.parametrize("state", [
    {"speed": 1}, {"step": -1}, {"step": 1.5}, {"step": "1"}, {"step": True}, {"step": 2**70}, {"position": [1]},
    {"position": 3}, {"position": [1, 2, 3]}, {"measured": {"loss": 1.0, "z": "x"}}, {"step": 2**63},
    {"position": [1, "2"]}, {"dtype": 32}, {"best": "high"}, {"interim": 1}, {"measured": [1]},
    {"measured": {"loss": []}}, {"loss_scale": [1.0]},
])  # fmt: skip
def test_a_state_of_other_fields_or_types_is_refused_in_a_sentence(state):
    """Story: it was a TypeError with a traceback."""
    with pytest.raises(ValueError, match=f"checkpoint's state .* Received: {next(iter(state))}="):
        TrainState.read(state)
