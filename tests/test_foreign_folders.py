"""A run's folder from somebody else is data: nothing in it is executed, followed out of the folder, or asked over the network."""

import os
import pathlib
import shutil

import pytest
import tensorflow as tf

import t2t_keras
from t2t_keras import files, run_folder
from t2t_keras.data import prepare
from t2t_keras.export import savedmodel

RUN = pathlib.Path(__file__).parent / "data" / "run_1"


@pytest.fixture
def run(tmp_path) -> pathlib.Path:
    return shutil.copytree(RUN, tmp_path / "run")


@pytest.fixture
def outside(tmp_path) -> pathlib.Path:
    """A file of the user's."""
    path = tmp_path / "outside" / "mine"
    path.parent.mkdir()
    path.write_text("mine")
    return path


# Programs.


def save_program(folder: pathlib.Path, written: pathlib.Path) -> None:
    """A SavedModel that writes a file when it is asked to translate."""

    class Program(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def translate(self, text):
            tf.io.write_file(str(written), "executed")
            return {"text": text, "score": tf.zeros(tf.shape(text))}

    program = Program()
    names = ("serving_default", "translate_with_options", "score")
    tf.saved_model.save(program, str(folder), signatures=dict.fromkeys(names, program.translate))


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> tuple[pathlib.Path, pathlib.Path]:
    """The program's folder and the file that it writes."""
    folder = tmp_path_factory.mktemp("program")
    save_program(folder / "1", folder / "written")
    return folder / "1", folder / "written"


@pytest.mark.parametrize("place", ["1", "."])
def test_a_run_never_executes_a_program_that_lies_in_its_folder(run, program, place):
    """Story: a SavedModel in the folder of a run was loaded in place of the run, and its operations wrote a file."""
    folder, written = program
    shutil.copytree(folder, run / place, dirs_exist_ok=True)
    refused = rf"Expected a run or an export in {run}. Received both: config.json, and a SavedModel, which is a program, in {run}"
    for load in (lambda: t2t_keras.load(run), lambda: t2t_keras.Run(run).load(), lambda: t2t_keras.Run(run).export(run / "exports")):
        with pytest.raises(ValueError, match=refused):
            load().translate("one")
    with pytest.raises(ValueError, match=refused):
        run_folder.resolve(run, {})
    assert not written.exists()
    (run / "config.json").unlink()
    with pytest.raises(ValueError, match=f"holds .*{'1' if place == '1' else 'saved_model.pb'} and no config.json: it is not a run"):
        t2t_keras.Run(run).load()
    assert not written.exists()


def test_only_the_newest_version_of_an_export_is_the_export(tmp_path, program):
    assert run_folder.export_in(tmp_path) is None
    for name in ("2", "10", "old"):
        shutil.copytree(program[0], tmp_path / name)
    assert run_folder.export_in(tmp_path) == tmp_path / "10"
    assert run_folder.export_in(tmp_path / "2") == tmp_path / "2"
    assert t2t_keras.load(tmp_path).translate("one") == "one"


def test_an_export_does_not_go_into_the_folder_of_a_run(run):
    with pytest.raises(ValueError, match=f"Expected a folder for exports. Received: {run}, which holds a run."):
        t2t_keras.Run(run).export(run)
    assert not (run / "1").exists() and not (run / ".lock").exists()


# Links.


def test_a_file_replaces_another_and_follows_no_link(tmp_path, outside, monkeypatch):
    """Story: a link with the name of a temporary file was followed, and the file that it named was overwritten."""
    monkeypatch.setattr(files.secrets, "token_hex", lambda size: "0" * 2 * size)
    unfinished = tmp_path / f"config.json.{'0' * 16}.tmp"
    unfinished.symlink_to(outside)
    with pytest.raises(FileExistsError):
        files.write_whole(tmp_path / "config.json", b"new")
    assert outside.read_text() == "mine" and unfinished.is_symlink() and not (tmp_path / "config.json").exists()
    unfinished.unlink()
    (tmp_path / "config.json").symlink_to(outside)
    old = os.umask(0o027)
    try:
        files.write_whole(tmp_path / "config.json", b"new")
    finally:
        os.umask(old)
    assert outside.read_text() == "mine" and (tmp_path / "config.json").read_bytes() == b"new"
    assert (tmp_path / "config.json").stat().st_mode & 0o777 == 0o640  # As a plain `open` gives.


def test_temporary_names_cannot_be_foreseen(tmp_path):
    names = set()
    for _ in range(2):
        with files.replacing(tmp_path / "x") as file:
            names.add(file.name)
        with files.making_folder(tmp_path / "1") as folder:
            names.add(folder.name)
        (tmp_path / "1").rmdir()
    assert len(names) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x"]


def test_what_fails_leaves_neither_a_file_nor_a_folder(tmp_path):
    for make in (files.replacing, files.making_folder):
        with pytest.raises(ZeroDivisionError), make(tmp_path / "x"):
            raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_what_a_kill_left_is_removed_and_the_user_s_files_stay(tmp_path, outside):
    left, mine = f"{'a' * 16}.tmp", ("config.json.tmp", "notes.0123.tmp", f"{'a' * 16}", "mine")
    for name in (f"config.json.{left}", f"logs/events.out.tfevents.1.{left}", *mine):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("half")
    (tmp_path / f"folder.{left}").mkdir()
    for name in (f".unfinished-1-{'b' * 16}", ".unfinished-1-mine", f".unfinished-10-{'b' * 16}"):
        (tmp_path / name).mkdir()
    (tmp_path / f".unfinished-1-{'c' * 16}").symlink_to(outside.parent)
    with files.making_folder(tmp_path / "1"):
        pass
    assert (tmp_path / f".unfinished-1-{'c' * 16}").is_symlink() and outside.exists()
    (tmp_path / f".unfinished-1-{'c' * 16}").unlink()
    files.check_no_links(*tmp_path.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*mine, "1", "logs", "outside", f"folder.{left}", ".unfinished-1-mine", f".unfinished-10-{'b' * 16}"]
    )
    assert list((tmp_path / "logs").iterdir()) == []


@pytest.mark.parametrize(
    "name",
    ["config.json", "subwords.model", "curves.csv", "curves.png", "logs", "logs/projector", "logs/unfinished", "data", "data/train",
     "checkpoints", "not_finite"],
)  # fmt: skip
def test_training_refuses_a_link_where_something_of_the_run_belongs(run, outside, name):
    path = run / name
    target = outside.parent
    if path.exists():
        target = shutil.move(path, outside.parent / path.name)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)
    before = sorted(outside.parent.rglob("*"))
    with pytest.raises(ValueError, match=f"Expected files and folders that are no links. Received: {path}, a link to {target}"):
        t2t_keras.train(run, train_steps=2001)
    assert sorted(outside.parent.rglob("*")) == before and outside.read_text() == "mine"


def test_the_folder_of_a_run_may_be_a_link_and_so_may_the_user_s_files_in_it(run, tmp_path, outside):
    (run / "notes").symlink_to(outside)
    (tmp_path / "link").symlink_to(run)
    run_folder.check_before_writing(tmp_path / "link")


@pytest.mark.parametrize("name", ["subwords.model", "train", "valid/info.json", "valid.source.txt"])
def test_preparing_refuses_a_link_in_the_data_folder(tmp_path, outside, name):
    folder = tmp_path / "data"
    (folder / name).parent.mkdir(parents=True)
    (folder / prepare.LOCK).touch()
    (folder / name).symlink_to(outside.parent)
    data = t2t_keras.DataConfig(dataset="builtin", builtin_pairs=200)
    with pytest.raises(ValueError, match=f"no links. Received: {folder / name}, a link to {outside.parent}"):
        prepare.prepare(data, 300, 1, folder, run_folder.Options().task)
    assert [path.name for path in outside.parent.iterdir()] == ["mine"]


def test_a_shard_does_not_write_into_a_file_that_has_another_name_elsewhere(tmp_path, outside):
    from t2t_keras.data import shards

    os.link(outside, tmp_path / "shard")
    shards.Shard(tmp_path / "shard", 100).close()
    assert outside.read_text() == "mine"


def test_an_export_is_written_into_a_new_folder(tmp_path, outside, monkeypatch):
    (tmp_path / ".unfinished").symlink_to(outside.parent)
    seen = []
    monkeypatch.setattr(savedmodel, "_write", lambda folder, translator, about: seen.append((folder, list(folder.iterdir()))))
    monkeypatch.setattr(savedmodel, "MAX_BYTES", 2**60)
    translator = t2t_keras.decoding.loading.load(RUN)
    assert savedmodel.export(translator, tmp_path, {}) == tmp_path / "1"
    assert seen[0][1] == [] and seen[0][0].parent == tmp_path and [path.name for path in outside.parent.iterdir()] == ["mine"]
