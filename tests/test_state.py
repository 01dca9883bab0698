"""What a checkpoint says of a run's state, whichever version wrote it."""

import dataclasses
import json
import math

import pytest
from toy import TASK

from t2t_keras.training.state import TrainState
from t2t_keras.training.train_step import SUMS, LossScale


def as_written(state: TrainState) -> dict:
    return json.loads(json.dumps(dataclasses.asdict(state)))


def test_what_was_written_is_what_is_read():
    for state in (TrainState(), TrainState(step=3, position=(1, 2), best=2.5, dtype="float16", loss_scale=LossScale(2.0, 7.0))):
        assert as_written(TrainState.read(as_written(state))) == as_written(state)


def test_a_field_that_a_checkpoint_lacks_is_as_at_the_start():
    read = TrainState.read({"step": 7})
    assert dataclasses.replace(read, flops=0.0) == TrainState(step=7)
    assert TrainState.read({}).best == -math.inf


def test_operations_that_an_older_version_did_not_count_stay_unknown():
    state = TrainState.read({"step": 7})
    state.count_update({**dict.fromkeys(SUMS, 1.0), "finite": True}, (0, 8), 0, 1.0)
    assert math.isnan(state.flops)
    assert math.isnan(TrainState.read(as_written(state)).flops)


def test_a_point_has_the_speed_since_the_last_point_and_the_loss_scale():
    state = TrainState(step=10, target_tokens=1e6, loss_scale=LossScale(512.0, 7.0))
    for tokens, seconds in ((600.0, 1.5), (300.0, 2.5)):
        state.count_update({**dict.fromkeys((*TASK.sums, *SUMS), 1.0), "target_tokens": tokens, "finite": True}, (0, 1), 0, seconds)
    found = state.pop_summary({"learning_rate": 0.25, "gradient_norm": 0.75}, TASK)
    names = ("updates_per_second", "target_tokens_per_second")
    assert [found[f"utilization/{name}"] for name in names] == [2 / 4, 900 / 4]
    assert [found[f"train/{name}"] for name in ("loss_scale", "learning_rate", "gradient_norm")] == [512, 0.25, 0.75]


@pytest.mark.parametrize(
    "state",
    [
        {"speed": 1}, {"step": -1}, {"step": 1.5}, {"step": "1"}, {"step": True}, {"step": 2**70}, {"position": [1]}, {"position": 3},
        {"position": [1, "2"]}, {"dtype": 32}, {"best": "high"}, {"measured": [1]}, {"measured": {"loss": []}}, {"loss_scale": [1.0]},
    ],
)  # fmt: skip
def test_a_state_of_other_fields_or_types_is_refused_in_a_sentence(state):
    """Story: it was a TypeError with a traceback."""
    with pytest.raises(ValueError, match=f"checkpoint's state .* Received: {next(iter(state))}="):
        TrainState.read(state)
