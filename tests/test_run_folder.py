"""A run's folder keeps what the run was started with, and is not mistaken for somebody's own."""

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import sys

import programs
import pytest

from t2t_keras.config import DataConfig, DecodeConfig, ModelConfig, TrainConfig
from t2t_keras.runs import checkpoint, data_folder, export_folder, run_options, saved_run
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system import files

ROOT = pathlib.Path(saved_run.__file__).parent.parent
RUN_1 = pathlib.Path(__file__).parent / "data/run_1"
OPTIONS = run_options.Options(
    ModelConfig(340, d_model=8),
    TrainConfig(train_steps=10, warmup_steps=20, batch_tokens=400),
    DecodeConfig(beam_size=2),
    DataConfig(train_source="a.en", train_target="a.de", max_length=100),
    "/data/x",
)


def write(model_dir: pathlib.Path, options=OPTIONS, *, weights: bool = True, subwords: bytes = b"sub-words") -> None:
    """A run's folder; of the weights there is no more than a manifest."""
    (model_dir / "prepared").mkdir(parents=True, exist_ok=True)
    for name, content in (("subwords.model", subwords), ("records.tsv", b"records")):
        (model_dir / "prepared" / name).write_bytes(content)
    SavedRun.write(
        model_dir, options, model_dir / "prepared" / "subwords.model", model_dir / "prepared" / "records.tsv"
    )
    if weights:
        (model_dir / "checkpoints").mkdir()
        checkpoint.path_of(model_dir, 3).with_suffix(".json").write_text("{}")


def rewrite(model_dir: pathlib.Path, change) -> None:
    contents = json.loads((model_dir / "config.json").read_text())
    change(contents)
    (model_dir / "config.json").write_text(json.dumps(contents))


# Whose folder it is.


@pytest.mark.parametrize(
    "name",
    [
        "config.json", "subwords.model", "subwords.source.model", "embeddings.txt", "checkpoints/model.h5",
        "logs/events.out.tfevents.1",
    ]
    + ["curves.png", "curves.csv"],
)  # fmt: skip
def test_a_folder_with_somebody_s_own_files_is_refused(tmp_path, name):
    """Story: a config.json and a subwords.model of another program were replaced."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"architectures": ["MarianMTModel"], "d_model": 512}')
    with pytest.raises(ValueError, match="`model_dir`") as raised:
        SavedRun.find(tmp_path)
    assert str(tmp_path) in str(raised.value) and name.split("/")[0] in str(raised.value)


def test_a_folder_with_other_files_can_become_a_run_s(tmp_path):
    for name in ("notes.txt", "train.en", "config.json.bak"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "data").mkdir()
    assert SavedRun.find(tmp_path) is None
    write(tmp_path)
    assert SavedRun.find(tmp_path) and (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(("change", "expected"), [
    ({"version": 2}, "another version"), ({"version": "1"}, "not the config.json of a run"),
    ({"surprise": 1}, "another version"), ({"data_dir": 7}, "'data_dir'"),
    ({"train": {"width": 3}}, "Unknown: .'width'"), ({"train": {"seed": "1"}}, "seed='1'"),
    ({"model": {"encoder_layers": 10**7}}, "encoder_layers=10000000"),
    ({"model": {"d_model": 2**40}}, "d_model=1099511627776"),
])  # fmt: skip
def test_a_config_that_this_version_did_not_write_is_refused_in_a_sentence(tmp_path, change, expected):
    write(tmp_path)
    rewrite(tmp_path, lambda contents: contents.update(change))
    with pytest.raises(ValueError, match=expected) as raised:
        _ = SavedRun.open(tmp_path).options
    assert str(tmp_path / "config.json") in str(raised.value)


def test_a_run_of_before_there_were_versions_is_read(tmp_path):
    groups = {"model": OPTIONS.model, "train": OPTIONS.train, "decode": OPTIONS.decode}
    (tmp_path / "config.json").write_text(
        json.dumps({name: dataclasses.asdict(group) for name, group in groups.items()})
    )
    (tmp_path / "subwords.model").write_bytes(b"any")
    assert SavedRun.open(tmp_path).options == run_options.Options(**groups)
    assert SavedRun.open(tmp_path).subwords() == (b"any",)


# Sub-words and data.


def test_sub_words_are_those_of_the_run(tmp_path):
    write(tmp_path)
    assert SavedRun.open(tmp_path).subwords() == (b"sub-words",)
    written = json.loads((tmp_path / "config.json").read_text())["subwords"]
    assert written == {"bytes": 9, "sha256": hashlib.sha256(b"sub-words").hexdigest()}


@pytest.mark.parametrize("content", [b"", b"sub-wordz", b"sub-words of another run"])
def test_other_sub_words_are_refused_in_a_sentence(tmp_path, content):
    write(tmp_path)
    (tmp_path / "subwords.model").write_bytes(content)
    message = f"{tmp_path}/subwords.model is not what .* was trained with. Expected: .* Received: "
    with pytest.raises(ValueError, match=message):
        SavedRun.open(tmp_path).subwords()


def test_missing_sub_words_are_reported(tmp_path):
    write(tmp_path)
    (tmp_path / "subwords.model").unlink()
    with pytest.raises(FileNotFoundError, match="subwords.model is missing"):
        SavedRun.open(tmp_path).subwords()


@pytest.mark.parametrize(
    ("name", "expected"), [("subwords.model", "other sub-words"), ("records.tsv", "other records")]
)
def test_a_run_does_not_go_on_with_other_data(tmp_path, name, expected):
    write(tmp_path)
    files = [tmp_path / "prepared" / name for name in ("subwords.model", "records.tsv")]
    SavedRun.open(tmp_path).check_data(*files)
    (tmp_path / "prepared" / name).write_bytes(b"of another corpus")
    with pytest.raises(ValueError, match=f"{expected}.*`model_dir`"):
        SavedRun.open(tmp_path).check_data(*files)


@pytest.mark.parametrize("sources", [["d_ff"], {"d_ff": 3}, {"d_ff": "\x1b[2J"}, {"d_ff": "a\nb"}], ids=str)
def test_sources_that_are_no_plain_text_are_refused(tmp_path, sources):
    write(tmp_path)
    rewrite(tmp_path, lambda written: written.update(sources=sources))
    with pytest.raises(ValueError, match="Expected 'sources' in .*config.json"):
        _ = SavedRun.open(tmp_path).options


def test_a_folder_that_holds_something_else_is_reported(tmp_path):
    run, others, copied = (tmp_path / name for name in ("run", "others", "copied"))
    write(run)
    for folder, name in ((others, "mine"), (copied, data_folder.CORPUS)):
        folder.mkdir()
        (folder / name).write_text("{}")
    for check, path, said in (
        (data_folder.check, others,
         "{} holds files and no prepared data. Give a new or an empty folder as `data_dir`."),
        (export_folder.check, run, "{} holds a run, and cannot hold exports. Give another `export_dir`."),
        (lambda path: files.check_new(path, "export_dir"), others,
         "`export_dir` must be a new or an empty folder. Received: {}, which holds files. Give another one."),
    ):  # fmt: skip
        with pytest.raises((OSError, ValueError)) as raised:
            check(path)
        assert str(raised.value) == said.format(path)
    data_folder.check(copied)
    export_folder.check(others)


@pytest.mark.parametrize("name", ["logs", "not_finite", "checkpoints"])
@pytest.mark.parametrize("make", [pathlib.Path.touch, os.mkfifo], ids=["file", "pipe"])
def test_a_folder_of_the_run_that_is_none_is_reported(tmp_path, name, make):
    """Story: a pipe in place of the logs said that the disk is full."""
    make(tmp_path / name)
    message = f"^{tmp_path}/{name} is not a folder. Move it away, or give another `model_dir`."
    with pytest.raises(NotADirectoryError, match=message):
        saved_run.check_before_writing(tmp_path)


@pytest.mark.parametrize("name", ["logs", "not_finite", "checkpoints"])
def test_a_folder_of_the_run_that_cannot_be_written_to_is_reported_before_training(tmp_path, monkeypatch, name):
    """Story: the checkpoints of a copied run belonged to somebody else, which the first checkpoint noticed."""
    (tmp_path / name).mkdir(mode=0o555)
    # As for a user whose permissions count: root's do not.
    monkeypatch.setattr(os, "access", lambda path, mode: (path.stat().st_mode >> 6) & mode == mode)
    message = f"^{tmp_path}/{name} cannot be written to. Give permission to write there, or another `model_dir`.$"
    with pytest.raises(PermissionError, match=message):
        saved_run.check_before_writing(tmp_path)
    (tmp_path / name).chmod(0o755)
    saved_run.check_before_writing(tmp_path)


# How often a program reads it.

# Runs a program, and writes a dot to a file whenever it opens another one.
COUNTING = """
import os, runpy, sys
counts, path = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT), sys.argv[2]
def count(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and arguments[0] == path:
        os.write(counts, b".")
sys.addaudithook(count)
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.medium
@pytest.mark.parametrize(("program", "flags"), [
    ("translate", ["--model_dir={run}", "--input={text}", "--n_best=1"]),
    ("evaluate", ["--model_dir={run}", "--source={text}", "--reference={text}"]),
    ("attention", ["--model_dir={run}", "--input={text}", "--output={out}"]),
    ("export", ["--model_dir={run}", "--export_dir={out}"]),
    ("export", ["--model_dir={run}", "--export_dir={out}", "--format=ctranslate2"]),
    ("compare", ["--reference={text}", "--source={text}", "--randomization_trials=0", "{text}", "{run}"]),
    ("train", ["--model_dir={run}", "--train_steps=2001"]),
], ids=["translate", "evaluate", "attention", "export", "export to CTranslate2", "compare", "resume"])  # fmt: skip
def test_a_program_reads_the_options_of_a_run_once(tmp_path, program, flags):
    """Story: an export opened them 26 times, and what it read first and last could be of two runs."""
    run, text = shutil.copytree(RUN_1, tmp_path / "run"), tmp_path / "text"
    text.write_text("two hundred and seven\n")
    places = {"run": run, "text": text, "out": tmp_path / "out"}
    command = [sys.executable, "-c", COUNTING, tmp_path / "counts", run / "config.json"]
    command += [ROOT.parent / "tools" / f"{program}.py", *(flag.format(**places) for flag in flags)]
    result = programs.run(command, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT.parent)})
    assert result.returncode == 0, result.stderr.decode()
    assert (tmp_path / "counts").read_text() == "."
