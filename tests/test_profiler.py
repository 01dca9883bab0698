"""Profiles of some updates of a run."""

import contextlib
import types

import pytest
import tensorflow as tf
from logged import logged

from t2t_keras.reporting.profiler import Profiler


def profiles(folder) -> list:
    return list(folder.glob("plugins/profile/*/*.xplane.pb"))


def make_updates(profiler: Profiler, steps) -> None:
    for step in steps:
        with profiler.update(step):
            tf.reduce_sum(tf.ones([10])).numpy()


def test_a_profile_is_written_after_its_last_update_and_leaves_no_other_event_file(tmp_path):
    """An event file without points, newer than the run's own, would keep TensorBoard from reading that one on."""
    with Profiler(tmp_path, "3,4") as profiler:
        make_updates(profiler, [1, 2, 3])
        assert profiles(tmp_path) == []
        make_updates(profiler, [4])
        assert len(profiles(tmp_path)) == 1
        make_updates(profiler, [5])
    assert len(profiles(tmp_path)) == 1
    assert list(tmp_path.glob("events*")) == []


def test_each_update_of_a_profile_is_a_step_of_the_profile_tab(tmp_path, monkeypatch, messages):
    """A profile that cannot be written is reported, too."""
    steps = []

    def trace(name, **options):
        steps.append((name, options))
        return contextlib.nullcontext()

    def stop():
        raise OSError("No space left")

    profiler = types.SimpleNamespace(start=lambda folder: steps.append(folder), stop=stop, Trace=trace)
    monkeypatch.setattr(tf.profiler, "experimental", profiler)
    with Profiler(tmp_path, "2,3") as profiler:
        make_updates(profiler, [1, 2, 3, 4])
    assert steps == [str(tmp_path), *(("train", {"step_num": step, "_r": 1}) for step in (2, 3))]
    [warning] = messages
    assert "Could not write the profile: No space left." in warning


def test_a_run_that_ends_within_a_profile_still_has_it(tmp_path):
    with pytest.raises(ZeroDivisionError), Profiler(tmp_path, "1,100") as profiler:
        make_updates(profiler, [1, 2])
        raise ZeroDivisionError
    assert len(profiles(tmp_path)) == 1


def test_a_profile_that_is_cut_short_says_where_it_ends(tmp_path, messages):
    with Profiler(tmp_path, "1,100") as profiler:
        make_updates(profiler, [1, 2])
    assert messages == [f"Wrote a profile of updates up to 2 to {tmp_path}/plugins/profile."]


def test_a_run_that_resumes_among_the_updates_is_profiled_from_there(tmp_path, messages):
    with Profiler(tmp_path, "3,5") as profiler:
        make_updates(profiler, [4, 5, 6])
    assert len(profiles(tmp_path)) == 1
    assert messages == [f"Wrote a profile of updates up to 5 to {tmp_path}/plugins/profile."]


@pytest.mark.parametrize(
    ("steps", "said"),
    [("", []), ("3,4", ["`profile_steps=3,4` profiles nothing: the run is at update 5."])],
)
def test_without_an_update_to_profile_there_is_no_profile(tmp_path, messages, steps, said):
    with Profiler(tmp_path, steps) as profiler:
        make_updates(profiler, [5, 6])
    assert list(tmp_path.iterdir()) == [] and messages == said


def test_a_run_that_resumes_after_its_profile_is_not_warned(tmp_path, messages):
    """Story: each start of a run that had been profiled warned that its updates were over."""
    with Profiler(tmp_path, "1,2") as profiler:
        make_updates(profiler, [1, 2, 3])
    messages.clear()
    with Profiler(tmp_path, "1,2") as profiler:
        make_updates(profiler, [4, 5])
    assert messages == [] and len(profiles(tmp_path)) == 1


def test_a_profile_that_cannot_start_stops_no_run(tmp_path):
    tf.profiler.experimental.start(str(tmp_path / "other"))
    try:
        with logged() as said, Profiler(tmp_path, "1,2") as profiler:
            make_updates(profiler, [1, 2, 3])
    finally:
        tf.profiler.experimental.stop()
    [warning] = said
    assert "Could not profile" in warning and "Training continues" in warning
