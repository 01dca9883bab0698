"""A run's folder from somebody else is data: nothing in it is executed, followed out of the folder, or asked over the
network.
"""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import sys
import time

import numpy as np
import programs
import pytest
import stand_in
import tensorflow as tf
import toy

import t2t_keras
from t2t_keras.config import DecodeConfig
from t2t_keras.data import prepare, shards
from t2t_keras.decoding import loading
from t2t_keras.model import flops
from t2t_keras.runs import checkpoint, export_folder, run_options, saved_run
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving import loaded, savedmodel
from t2t_keras.serving.saved_export import SavedExport
from t2t_keras.system import files
from t2t_keras.system.log import printable
from t2t_keras.training import run as training_run

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


SIGNATURES = ("serving_default", "translate_with_options", "sample", "score")


def save_program(folder: pathlib.Path, written: pathlib.Path, names: tuple[str, ...] = SIGNATURES) -> None:
    """A SavedModel that writes a file when it is asked to translate."""

    class Program(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def translate(self, text):
            tf.io.write_file(str(written), "executed")
            return {"text": text, "score": tf.zeros(tf.shape(text))}

    program = Program()
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
    refused = rf"{run} holds both a run \(config.json\) and an export \({run}.*\). Loading an export can run code"
    used = t2t_keras.Run(run)
    for use in (
        lambda: t2t_keras.load(run),
        used.load,
        lambda: used.export(run / "exports"),
        lambda: Start.open(run, {}),
    ):
        with pytest.raises(ValueError, match=refused):
            use()
    assert not written.exists()
    (run / "config.json").unlink()
    found = "the export 1" if place == "1" else "the export saved_model.pb"
    advice = "it is not a run. Give the `model_dir` of the run that was exported."
    with pytest.raises(ValueError, match=f"holds .*{found} and no config.json: {advice}$"):
        used.load()
    assert not written.exists()


def test_only_the_newest_version_of_an_export_is_the_export(tmp_path, program, monkeypatch):
    read = []
    monkeypatch.setattr(loaded, "read_signatures", lambda export: read.append(export) or stand_in.StandIn())
    assert export_folder.export_in(tmp_path) is None
    for name in ("2", "10", "old"):
        shutil.copytree(program[0], tmp_path / name)
    assert export_folder.export_in(tmp_path) == tmp_path / "10"
    assert export_folder.export_in(tmp_path / "2") == tmp_path / "2"
    t2t_keras.load(tmp_path)
    assert read == [tmp_path / "10"]


@pytest.mark.parametrize(("name", "value", "expected"), [
    ("decode", [1], "of type dict"), ("pair", None, "a list of texts"), ("tags", [1], "a list of texts"),
    ("languages", "de", "a list of texts"), ("source_language", {}, "of type str"),
])  # fmt: skip
def test_a_description_of_an_export_has_its_types(tmp_path, name, value, expected):
    """Story: an AttributeError or a TypeError, of whatever read it first."""
    path = tmp_path / export_folder.EXTRA / export_folder.DESCRIPTION
    path.parent.mkdir()
    path.write_text(json.dumps({name: value}))
    with pytest.raises(ValueError, match=f"Expected {name} in {path} to be {expected}. Received: .* Export the model"):
        SavedExport(tmp_path).tags  # noqa: B018


def test_an_export_that_lacks_a_signature_is_refused(tmp_path):
    save_program(tmp_path, tmp_path / "written", ("serving_default", "translate_with_options", "score"))
    expected = f"Expected an export of a translator of t2t_keras. Received: {tmp_path}, which lacks .* sample."
    with pytest.raises(ValueError, match=expected):
        t2t_keras.load(tmp_path)


@pytest.mark.parametrize(
    "name", ["saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"]
)
def test_an_export_that_was_copied_in_part_is_refused_in_one_sentence(tmp_path, name):
    """Story: tracebacks of an OpError and an IndexError, as TensorFlow reports files that are truncated."""
    module = tf.Module()
    module.weight = tf.Variable(tf.zeros([999]))
    tf.saved_model.save(module, str(tmp_path))
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:40])
    with pytest.raises(ValueError, match=rf"^{tmp_path} cannot be loaded \(.+\). If it is damaged, [^\n]+$"):
        t2t_keras.load(tmp_path)


def test_an_export_in_a_folder_whose_name_is_not_utf_8_is_not_called_damaged(tmp_path):
    """Story: the message advised to copy it or to export it again."""
    folder = tmp_path / os.fsdecode(b"M\xfcller")
    folder.mkdir()
    (folder / "saved_model.pb").touch()
    with pytest.raises(ValueError, match="^`model_dir` must be a path in UTF-8. Received: .*M\udcfcller. Rename the"):
        t2t_keras.load(folder)


@pytest.mark.parametrize("name", ["config.json", "subwords.model", "checkpoints/step-*.json", "checkpoints/step-*.npz"])
def test_a_pipe_in_place_of_a_file_stops_nothing(run, name):
    """Story: a program waited for ever for somebody to write into it."""
    [path] = run.glob(name)
    path.unlink()
    os.mkfifo(path)
    expected = f"{path} must be a file. It is a pipe|{path} is missing|Received 0 bytes: damaged"
    with pytest.raises((ValueError, FileNotFoundError), match=expected):
        t2t_keras.load(run)


def test_an_export_does_not_go_into_the_folder_of_a_run(run):
    with pytest.raises(ValueError, match=f"{run} holds a run, and cannot hold exports."):
        t2t_keras.Run(run).export(run)
    assert not (run / "1").exists() and not (run / ".lock").exists()


def test_an_export_does_not_go_into_another(run, tmp_path):
    """Story: programs read the older export, which hid the new version inside it."""
    version = tmp_path / "exports" / "1"
    version.mkdir(parents=True)
    (version / export_folder.SAVED_MODEL).touch()
    expected = f"{version} is an export itself, not a folder for exports. Give {tmp_path / 'exports'} as `export_dir`."
    with pytest.raises(ValueError, match=expected):
        t2t_keras.Run(run).export(version)
    assert [path.name for path in version.iterdir()] == [export_folder.SAVED_MODEL]


# Links.


def test_a_file_replaces_another_and_follows_no_link(tmp_path, outside, monkeypatch):
    """Story: a link with the name of a temporary file was followed, and the file that it named was overwritten."""
    monkeypatch.setattr(files.secrets, "token_hex", lambda size: "0" * 2 * size)
    unfinished = tmp_path / f"config.json.{'0' * 16}.tmp"
    unfinished.symlink_to(outside)
    with pytest.raises(files.WriteError, match="File exists"):
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


def test_a_folder_that_another_process_makes_is_left_alone(tmp_path):
    """Story: a second command removed the folder that the first one was writing to."""
    with files.making_folder(tmp_path / "1") as first:
        (first / "x").touch()
        with files.making_folder(tmp_path / "1"):  # A lock is of who opens, so this is as in another process.
            pass
        assert (first / "x").exists()
        (tmp_path / "1").rmdir()
    assert [path.name for path in (tmp_path / "1").iterdir()] == ["x"]
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


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
    ["config.json", "subwords.model", "curves.csv", "curves.png", "logs", "logs/projector", "logs/unfinished", "data",
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
    with pytest.raises(ValueError, match=f"{path} is a link, to {target}"):
        t2t_keras.train(run, train_steps=2001)
    assert sorted(outside.parent.rglob("*")) == before and outside.read_text() == "mine"


def test_the_folder_of_a_run_may_be_a_link_and_so_may_the_user_s_files_in_it(run, tmp_path, outside):
    (run / "notes").symlink_to(outside)
    (tmp_path / "link").symlink_to(run)
    # By another process, which holds the lock of that folder.
    being_prepared = run / "data" / f"corpus.json.{'a' * 16}.tmp"
    being_prepared.parent.mkdir()
    being_prepared.touch()
    saved_run.check_before_writing(tmp_path / "link")
    assert being_prepared.exists()


@pytest.mark.parametrize("name", ["subwords.model", "train", "valid/info.json", "valid.source.txt"])
def test_preparing_refuses_a_link_in_the_data_folder(tmp_path, outside, name):
    folder = tmp_path / "data"
    (folder / name).parent.mkdir(parents=True)
    (folder / prepare.LOCK).touch()
    (folder / name).symlink_to(outside.parent)
    data = t2t_keras.DataConfig(dataset="builtin", builtin_pairs=200)
    with pytest.raises(ValueError, match=f"{folder / name} is a link, to {outside.parent}"):
        prepare.Preparation(data, 300, 1, folder, run_options.Options().task).run()
    assert [path.name for path in outside.parent.iterdir()] == ["mine"]


def test_a_shard_does_not_write_into_a_file_that_has_another_name_elsewhere(tmp_path, outside):
    os.link(outside, tmp_path / "shard")
    shards.Shard(tmp_path / "shard", 100).close()
    assert outside.read_text() == "mine"


def test_an_export_is_written_into_a_new_folder(tmp_path, outside, monkeypatch):
    (tmp_path / ".unfinished").symlink_to(outside.parent)
    seen = []
    monkeypatch.setattr(
        savedmodel, "_write", lambda folder, translator, about: seen.append((folder, list(folder.iterdir())))
    )
    monkeypatch.setattr(savedmodel, "MAX_BYTES", 2**60)
    assert savedmodel.export(loading.load(RUN), tmp_path, {}) == tmp_path / "1"
    assert seen[0][1] == []
    assert seen[0][0].parent == tmp_path
    assert [path.name for path in outside.parent.iterdir()] == ["mine"]


# Addresses and files outside of the folder.


def recorded(run: pathlib.Path, **options) -> pathlib.Path:
    """Writes options into the config.json of a run."""
    contents = json.loads((run / "config.json").read_text())
    for name, value in options.items():
        group = contents["data" if hasattr(t2t_keras.DataConfig, name) else "train"]
        (contents if name == "data_dir" else group)[name] = value
    (run / "config.json").write_text(json.dumps(contents))
    return run


@contextlib.contextmanager
def listening():
    """A server's address, and whether somebody has connected to it."""
    with socket.create_server(("localhost", 0)) as server:
        server.settimeout(0.2)

        def was_reached() -> bool:
            with contextlib.suppress(TimeoutError):
                server.accept()[0].close()
                return True
            return False

        yield f"grpc://localhost:{server.getsockname()[1]}", was_reached


def prepare_folders(run: pathlib.Path, **given) -> run_options.Options:
    data_dir = given.pop("data_dir", "")
    return training_run._prepare_folders(Start.open(run, given, data_dir), toy.strategy_of(1), dry_run=True).options


@pytest.mark.medium
def test_a_data_service_is_asked_only_if_it_is_given(run):
    """Story: a run from somebody else connected to the address in its config.json."""
    with listening() as (address, was_reached):
        recorded(run, data_service=address)
        expected = f"Expected `data_service={address}` to be given again, .* {run}/config.json, which may come"
        with pytest.raises(ValueError, match=expected):
            t2t_keras.train(run, train_steps=2001)
        assert not was_reached()
        prepare_folders(run, data_service=address)
        assert was_reached()
        assert prepare_folders(run, data_service="").train.data_service == "" and not was_reached()


def test_text_and_folders_outside_are_used_only_if_they_are_given(run, outside):
    source = {f"{split}_{side}": str(outside) for split in ("train", "valid") for side in ("source", "target")}
    recorded(run, dataset="", **source, subwords_file=str(outside), data_dir=str(outside.parent / "new"))
    values = f"`data_dir={outside.parent}/new`, `train_source={outside}`, .*`subwords_file={outside}` to be given again"
    with pytest.raises(ValueError, match=f"Expected {values}.* to prepare the data again: .*/new holds none. If"):
        prepare_folders(run)
    with pytest.raises(ValueError, match=f"Expected `train_source={outside}`"):
        prepare_folders(run, data_dir=outside.parent / "new")
    values = f"`valid_source={outside}`, `valid_target={outside}`, `subwords_file={outside}`"
    with pytest.raises(ValueError, match=f"Expected {values} to be"):
        prepare_folders(run, data_dir=outside.parent / "new", train_source=str(outside), train_target=str(outside))
    assert [path.name for path in outside.parent.iterdir()] == ["mine"]
    tfds = {"dataset": "wmt14_translate/de-en", "source_language": "de", "target_language": "en"}
    recorded(run, **tfds, **dict.fromkeys((*source, "subwords_file", "data_dir"), ""))
    with pytest.raises(ValueError, match="`dataset=wmt14_translate/de-en` to be given again"):
        prepare_folders(run)


@pytest.mark.parametrize("name", ["parent", "encoder_from"])
def test_the_weights_of_another_run_are_read_only_if_it_is_given(run, tmp_path, name):
    child = shutil.copytree(RUN, tmp_path / "child", ignore=lambda *_: ["checkpoints"])
    recorded(child, **{name: str(run)})
    with pytest.raises(ValueError, match=f"Expected `{name}={run}` to be given again, .* to start from the weights of"):
        prepare_folders(child)
    shutil.copytree(RUN / "checkpoints", child / "checkpoints")  # From here on the other run is not needed.
    shutil.rmtree(run)
    assert getattr(prepare_folders(child).train, name) == str(run)


# What a run's folder asks for.


def test_a_search_that_does_not_fit_into_memory_is_refused_before_the_weights_are_read(run, monkeypatch):
    """Story: `beam_size: 4096` took 3.2 GB for one sentence."""
    monkeypatch.setattr(loading.machine, "free_memory", lambda: 2e9)
    contents = json.loads((run / "config.json").read_text())
    contents["decode"] = {"beam_size": 4096}
    (run / "config.json").write_text(json.dumps(contents))
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "load", None)
        expected = (
            r"Expected a search that fits into the free memory, 2\.0 GB\. Received: beam_size=4096, extra_length=50, "
            r"which may take "
        )
        with pytest.raises(ValueError, match=expected):
            loading.load(run)
    assert loading.load(run, beam_size=4).config.beam_size == 4


def test_a_model_of_other_layers_than_its_checkpoint_is_refused_before_it_is_made(run):
    """Story: 200 + 200 layers, and once 1,000 + 1,000 for minutes, were built first."""
    contents = json.loads((run / "config.json").read_text())
    contents["model"] |= {"encoder_layers": 200, "decoder_layers": 200}
    (run / "config.json").write_text(json.dumps(contents))
    begin = time.perf_counter()
    with pytest.raises(checkpoint.DamagedError, match="float32 weights in .* Received .* bytes: damaged, or of"):
        loading.load(run)
    assert time.perf_counter() - begin < 2


def test_sub_words_of_gigabytes_are_not_read(run):
    (run / "subwords.model").open("r+b").truncate(5 * 2**30)  # A sparse file.
    begin = time.perf_counter()
    with pytest.raises(ValueError, match="^Expected sub-words of at most .* Received: .* of 5,368,709,120"):
        loading.load(run)
    assert time.perf_counter() - begin < 2


def test_a_search_on_a_gpu_does_not_need_the_memory_of_the_host(run, monkeypatch):
    model, _ = loading.make_model(SavedRun.open(run), "latest")
    monkeypatch.setattr(loading.machine, "free_memory", lambda: 0)
    monkeypatch.setattr(loading.tf.config, "list_physical_devices", lambda kind: [kind])
    loading._check_memory(model, DecodeConfig())


@pytest.mark.parametrize(("cores", "fits"), [(1, 2), (4, 4), (9, 9)])
def test_searches_on_all_cores_must_fit_at_a_time(run, monkeypatch, cores, fits):
    one = flops.search_memory(SavedRun.open(run).options.model, 64, 52)
    for at_once, refused in ((fits, False), (fits - 0.5, True)):
        monkeypatch.setattr(loading.machine, "free_memory", lambda at_once=at_once: at_once * one)
        with pytest.raises(ValueError, match="that fits into the free memory") if refused else contextlib.nullcontext():
            loading.load(run, beam_size=64, search_cores=cores)


def test_the_memory_of_a_search_grows_with_the_square_of_the_beams_and_with_length():
    """Measured for tests/data/run_1: 0.36 GB of 512 beams and 0.76 GB of 1,024 for 22 sub-words."""
    config = SavedRun.open(RUN).options.model
    for beams, measured in ((512, 0.36e9), (1024, 0.76e9)):
        assert measured / 2 < flops.search_memory(config, beams, 22) < 2 * measured
    base = t2t_keras.ModelConfig()
    # Two states of six layers, four beams and a hundred sub-words of 8 · (64 + 64) numbers.
    states = 2 * 6 * 4 * 100 * 8 * 128 * 4
    assert states < flops.search_memory(base, 4, 100) < 1.2 * states


@pytest.mark.parametrize(
    ("value", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "inf"), (-2.2e6, r"(2\.2|1\.1)e\+06")]
)
def test_weights_that_are_not_numbers_or_are_too_large_are_named_when_they_are_loaded(run, value, shown):
    """Story: they translated every sentence to nothing, without a word."""
    model = loading.load(run).model
    weight = model.trainable_variables[1]
    array = weight.numpy()
    array.flat[3] = value
    weight.assign(array)
    path = checkpoint.path_of(run, 2001)
    checkpoint.write(path, model, None, {"step": 2001})
    for which in ("latest", "average"):
        received = rf"with absolute values of at most 1e\+06\. Received: {shown} in {weight.path}\. "
        with pytest.raises(ValueError, match=rf"^Expected weights in .*{path} {received}Choose another checkpoint"):
            loading.load(run, which)
    assert loading.load(run, "2000")


# Terminals.


SHOWS_A_RUN = """
import dataclasses, pathlib, sys
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.cli import program
from t2t_keras.system.log import logger

def main():
    run = pathlib.Path(RUN)
    options = SavedRun.open(run).options
    logger.info(f"Options:\\n{options.table()}")
    options = dataclasses.replace(options, sources={"embeddings": "run: command line"})
    Start.of(run, options).check_given(["embeddings"], "read")

RUN, sys.argv = sys.argv[1], sys.argv[:1]
program.run(main)
"""


def test_control_characters_are_shown_and_not_obeyed(run):
    """Story: an option's value cleared the terminal."""
    evil = "\x1b[2J\x1b]0;evil\x07\x9b\r\u202e\nname"
    escaped = r"\x1b[2J\x1b]0;evil\x07\x9b\r\u202e"
    recorded(run, embeddings=evil)
    assert f"{evil[:-5]}\\nname" in SavedRun.open(run).options.table()  # A row is a line.
    shows = programs.run(
        [sys.executable, "-c", SHOWS_A_RUN, run], capture_output=True, text=True, modules=programs.WITHOUT_TENSORFLOW
    )
    assert shows.returncode == 1
    assert shows.stderr.count(escaped) == 2 and "| embeddings" in shows.stderr and "Error: Expected" in shows.stderr
    assert not any(character in shows.stderr for character in "\x1b\x07\x9b\r\u202e")


def test_text_that_people_write_is_shown_as_it_is():
    for text in ("a\n\tb", "ü ß ½ 😀 مرحبا می‌خواهم 👩‍👩‍👧"):
        assert printable(text) == text
    assert printable("\udc80\u2028\u2066\x00\x7f") == r"\udc80\u2028\u2066\x00\x7f"


def test_held_out_text_that_is_a_pipe_is_refused(tmp_path):
    (tmp_path / "valid.source.txt").write_text("one\n")
    os.mkfifo(tmp_path / "valid.target.txt")
    with pytest.raises(ValueError, match="valid.target.txt must be a file. It is a pipe"):
        prepare.read_text(tmp_path, "valid")


def test_a_parent_s_checkpoint_of_another_version_of_zip_is_refused(run):
    """Story: it ended in a traceback."""
    [path] = (run / "checkpoints").glob("step-*.npz")
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 6] = 99
    path.write_bytes(content)
    path.with_suffix(".json").write_text(json.dumps(files.describe(path)))
    with pytest.raises(checkpoint.DamagedError, match=rf"{path} is not a valid checkpoint \(zip file version 9.9\)"):
        checkpoint.has_optimizer(run, "latest")


def test_a_parent_s_checkpoint_that_is_a_pipe_is_refused(run):
    [path] = (run / "checkpoints").glob("step-*.npz")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match=f"{path} must be a file. It is a pipe"):
        checkpoint.has_optimizer(run, "latest")
