"""A point a step in TensorBoard, however often a run began again."""

import pytest
import tensorflow as tf

from t2t_keras.training.tensorboard import TensorBoardWriter


def points(folder) -> list[tuple]:
    """(tag, step, value) of all files, in their order."""
    found = []
    for path in sorted(folder.iterdir()):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            found += [(value.tag, event.step, tf.make_ndarray(value.tensor).item()) for value in event.summary.value]
    return found


def draw(folder, steps) -> None:
    board = TensorBoardWriter(folder)
    for step in steps:
        board.write(step, {"train/loss": float(step), "valid/samples": f"text {step}"})


def loss_steps(folder) -> list[int]:
    return [step for tag, step, _ in points(folder) if tag == "train/loss"]


def test_points_after_the_step_are_forgotten_and_the_others_stay_as_they_were(tmp_path):
    draw(tmp_path, [10, 20])
    draw(tmp_path, [30, 40])
    before = points(tmp_path)
    TensorBoardWriter(tmp_path).start(30, 30)
    assert points(tmp_path) == [point for point in before if point[1] <= 30]
    draw(tmp_path, [40, 50])
    assert loss_steps(tmp_path) == [10, 20, 30, 40, 50]


@pytest.mark.parametrize("torn", [1, 5, 40], ids=lambda torn: f"{torn} bytes short")
def test_a_record_that_a_kill_cut_off_is_forgotten_and_all_before_it_stay(tmp_path, torn):
    draw(tmp_path, [10, 20])
    [path] = tmp_path.iterdir()
    before = points(tmp_path)
    path.write_bytes(path.read_bytes()[:-torn])
    TensorBoardWriter(tmp_path).start(20, 20)
    assert points(tmp_path) == before[:-1] and len(before) == 4
    assert [path] == list(tmp_path.iterdir())
    draw(tmp_path, [30])
    # Files of one second have no order of their own.
    assert sorted(points(tmp_path), key=lambda point: point[1])[: len(before)] == [*before[:-1], ("train/loss", 30, 30.0)]


def test_files_without_such_points_are_not_touched(tmp_path):
    draw(tmp_path, [10])
    [path] = tmp_path.iterdir()
    before = path.stat().st_ino, path.stat().st_mtime_ns
    TensorBoardWriter(tmp_path).start(10, 10)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == before


@pytest.mark.parametrize("folder", ["missing", "."])
def test_where_nothing_was_drawn_there_is_nothing_to_forget(tmp_path, folder):
    TensorBoardWriter(tmp_path / folder).start(0, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_validation_that_was_not_saved_is_forgotten_alone(tmp_path):
    """Its update was, by a signal that ended it; it will be made again."""
    draw(tmp_path, [10, 20])
    TensorBoardWriter(tmp_path).start(20, 10)
    assert loss_steps(tmp_path) == [10, 20]
    [path] = tmp_path.iterdir()
    tags = {value.tag: event.step for event in tf.compat.v1.train.summary_iterator(str(path)) for value in event.summary.value}
    assert tags == {"train/loss": 20, "valid/samples": 10}


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "logs").write_bytes(b"a file where a folder should be")
    with pytest.raises(OSError, match="Could not write to .*logs"):
        TensorBoardWriter(tmp_path / "logs").write(1, {"train/loss": 1.0})
