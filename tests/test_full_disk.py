"""A full disk under what a run writes: told in a sentence with the file, which stays as it was. For its data see
test_prepare.py.
"""

import contextlib
import pathlib
import resource

import numpy as np
import pytest
import toy
from test_curves import train_points

from t2t_keras.reporting import curves, embedding_projector
from t2t_keras.reporting.event_files import read_scalars
from t2t_keras.reporting.tensorboard import TensorBoardWriter
from t2t_keras.runs import checkpoint, saved_run
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system import files


def write_options(folder: pathlib.Path, beam_size: int) -> None:
    """The options and sub-words of a run; the sub-words are as many bytes as the beams."""
    (folder / "text").write_bytes(b"x" * beam_size)
    options = Start.open(folder, {"beam_size": beam_size}).options
    SavedRun.write(folder, options, folder / "text", folder / "text")


def write_curves(folder: pathlib.Path, number: int) -> None:
    curves.update(folder, {"train/loss": {1: float(number)}})


def write_projector(folder: pathlib.Path, number: int) -> None:
    embedding_projector.write(folder, ("a", "b"), np.full([2, 3], number))


WRITES = {
    files.CONFIG: write_options,
    files.SUBWORDS: write_options,
    saved_run.CURVES[1]: write_curves,
    saved_run.CURVES[0]: write_curves,
    f"{embedding_projector.FOLDER}/{embedding_projector.VECTORS}": write_projector,
    f"{embedding_projector.FOLDER}/{embedding_projector.LABELS}": write_projector,
    embedding_projector.CONFIG: write_projector,
}


@pytest.mark.usefixtures("drawn_curves")
@pytest.mark.parametrize("name", WRITES)
def test_a_file_that_does_not_fit_is_named_in_a_sentence_and_stays_as_it_was(tmp_path, monkeypatch, name):
    path, write = tmp_path / name, WRITES[name]
    write(tmp_path, 4)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        toy.fill_disk(patch, f"{path.name}*")
        with pytest.raises(files.WriteError) as raised:
            write(tmp_path, 5)
    assert str(raised.value) == (
        f"Could not write {path} (No space left on device). The earlier content is unchanged: free space, or give "
        "permission, and run the same command again."
    )
    assert path.read_bytes() == before and not list(tmp_path.rglob("*.tmp"))
    write(tmp_path, 5)
    assert (path.read_bytes() == before) == (name.endswith((embedding_projector.LABELS, embedding_projector.CONFIG)))


@contextlib.contextmanager
def files_of_at_most(size: int):
    """Inside a `with` block, no file of this process may become larger than so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("size", "why"), [(1, "{path}; File too large"), (100_000, "No space left on device")], ids=["small", "large"]
)
def test_points_that_do_not_fit_are_reported_and_those_before_them_stay(tmp_path, size, why):
    """Story: TensorFlow wrote a part of a large one, without a word, and nothing behind it could be read."""
    board = train_points(tmp_path, [1, 2])
    [path] = (tmp_path / "logs").iterdir()
    whole = read_scalars(tmp_path / "logs")
    with files_of_at_most(path.stat().st_size + 10), pytest.raises(OSError) as raised:  # Not even one record.
        board.write(3, {"text": "x" * size})
    told = (
        f"Could not write to {tmp_path / 'logs'} ({why.format(path=path)}). Free space, or give permission, and run "
        "the same command again."
    )
    assert str(raised.value) == told
    assert read_scalars(tmp_path / "logs") == whole


def test_event_files_that_cannot_be_shortened_stay_as_they_were(tmp_path, monkeypatch):
    train_points(tmp_path, [1, 2, 3])
    [path] = (tmp_path / "logs").iterdir()
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        toy.fill_disk(patch, f"{path.name}.*.tmp")
        with pytest.raises(OSError, match=f"^Could not write to {tmp_path / 'logs'} .No space left on device.. Free"):
            TensorBoardWriter(tmp_path / "logs").start(2, 2)
    assert path.read_bytes() == before and list((tmp_path / "logs").iterdir()) == [path]
    TensorBoardWriter(tmp_path / "logs").start(2, 2)
    assert list(read_scalars(tmp_path / "logs")["train/loss"]) == [1, 2]


def test_the_manifest_of_a_checkpoint_that_does_not_fit_leaves_no_checkpoint(tmp_path, monkeypatch):
    model = toy.Toy()
    path = checkpoint.path_of(tmp_path, 2)
    with monkeypatch.context() as patch:
        toy.fill_disk(patch, f"{path.stem}.json.*")
        with pytest.raises(OSError, match=rf"^Could not write {path} \(No space left on device\)\. Earlier"):
            checkpoint.write(path, model, None, {})
    assert checkpoint.kept(tmp_path) == []
