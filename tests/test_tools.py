"""The programs as a person runs them: from text files to translations of text, in processes of their own."""

import json
import os
import pathlib
import random
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  Its operations are in exports.

from t2t_keras import builtin_corpus

ROOT = pathlib.Path(__file__).parent.parent
PROGRAMS = ("train", "translate", "evaluate", "export", "prepare", "data_service")
NEEDED = {"prepare": "data_dir", "data_service": "port"}  # Of the others: model_dir.
LINES_THAT_TRY_IT = [
    b"two hundred and seven",
    b"",
    b"   ",
    b"one\xe2\x80\xa8line of U+2028 and \xc2\x85 U+0085",
    b"\xff\xfe is not UTF-8",
    b"a\ttab and a \r carriage return \x0b \x0c \x00",
    "😀 ½ … ▁ <unk>".encode(),
    b"windows line\r",
    b"the last line has no end",
]  # fmt: skip


def tool(name: str, *arguments: str, stdin: bytes = b"", cwd: pathlib.Path = ROOT) -> subprocess.CompletedProcess:
    """Runs tools/NAME.py; output as bytes, as a file would get it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "tools" / f"{name}.py"), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, cwd=cwd, env=environment)


def complaint(result: subprocess.CompletedProcess) -> str:
    """What a program that failed for a person's mistake said: one line, after TensorFlow's own, and no traceback."""
    said = [line for line in result.stderr.decode().splitlines() if not re.match(r"[IWE]\d{4} |WARNING: All log messages", line)]
    assert result.returncode == 1, result.stderr.decode()
    assert len(said) == 1 and said[0].startswith("Error: "), said
    return said[0]


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> pathlib.Path:
    """English numbers and another language, which says the words backwards: aligned files, in two parts for training."""
    folder = tmp_path_factory.mktemp("text")
    sentences = [english for english, _ in builtin_corpus.splits(300, seed=1)["train"]]
    random.Random(0).shuffle(sentences)
    for name, part in (("train1", sentences[:150]), ("train2", sentences[150:260]), ("valid", sentences[260:])):
        (folder / f"{name}.en").write_text("".join(f"{line}\n" for line in part))
        (folder / f"{name}.back").write_text("".join(f"{' '.join(reversed(line.split()))}\n" for line in part))
    return folder


def train_flags(text: pathlib.Path, model_dir: pathlib.Path) -> list[str]:
    return [
        f"--train_source={text}/train1.en,{text}/train2.en", f"--train_target={text}/train?.back",
        f"--valid_source={text}/valid.en", f"--valid_target={text}/valid.back", f"--model_dir={model_dir}",
        "--vocab_size=320", "--encoder_layers=1", "--decoder_layers=1", "--d_model=8", "--d_ff=16", "--num_heads=2", "--d_k=4", "--d_v=4",
        "--batch_tokens=500", "--train_steps=3", "--valid_steps=3", "--valid_sentences=2", "--checkpoint_steps=1", "--log_steps=1",
        "--warmup_steps=10", "--beam_size=2", "--extra_length=3",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory) -> tuple[pathlib.Path, str]:
    """A model folder, and what `train.py` said."""
    model_dir = tmp_path_factory.mktemp("runs") / "backwards"
    result = tool("train", *train_flags(text, model_dir))
    assert result.returncode == 0, result.stderr.decode()
    return model_dir, result.stdout.decode()


def test_training_tells_what_it_read_what_it_trains_and_what_to_do_next(trained):
    model_dir, said = trained
    assert "260 pairs" in said and "40 pairs" in said
    assert "parameters" in said and "tensorboard --logdir" in said
    assert f"tools/translate.py --model_dir={model_dir}" in said.splitlines()[-1]
    options = json.loads((model_dir / "config.json").read_text())
    assert (options["model"]["d_ff"], options["train"]["warmup_steps"], options["decode"]["beam_size"]) == (16, 10, 2)
    assert len(list((model_dir / "checkpoints").glob("step-*.npz"))) == 3


def test_every_line_is_answered_by_one_line_whatever_is_in_it(trained):
    """Only \\n ends a line: the 207th translation stands beside the 207th sentence."""
    result = tool("translate", f"--model_dir={trained[0]}", stdin=b"\n".join(LINES_THAT_TRY_IT))
    assert result.returncode == 0, result.stderr.decode()
    translations = result.stdout.decode("utf-8").split("\n")
    assert translations.pop() == ""
    assert len(translations) == len(LINES_THAT_TRY_IT)
    assert [bool(line) for line in translations][1:3] == [False, False]
    assert b"average of" in result.stderr


def test_n_best_lines_are_numbered_scored_and_best_first(trained):
    result = tool("translate", f"--model_dir={trained[0]}", "--n_best=2", "--beam_size=3", stdin=b"\n".join(LINES_THAT_TRY_IT) + b"\n")
    assert result.returncode == 0, result.stderr.decode()
    rows = [line.split("\t", 2) for line in result.stdout.decode("utf-8").split("\n")[:-1]]
    assert [len(row) for row in rows] == [3] * 2 * len(LINES_THAT_TRY_IT)
    assert [int(row[0]) for row in rows] == [number for number in range(1, len(LINES_THAT_TRY_IT) + 1) for _ in range(2)]
    # A score of an unfinished translation may be above that of a finished one; those of an untrained model are far apart.
    assert rows[2][1:] == rows[3][1:] == ["0.0000", ""]
    assert all(float(row[1]) < 0 for row in rows[:2] + rows[6:])


def test_evaluating_prints_one_json_object_and_writes_the_translations(trained, text, tmp_path):
    model_dir, _ = trained
    names = [f"--source={text}/valid.en", f"--reference={text}/valid.back", f"--output={tmp_path}/out.txt"]
    result = tool(
        "evaluate", f"--model_dir={model_dir}", *names, "--json", "--checkpoint=latest", "--alpha=1", "--rouge", "--compound_split=de"
    )
    assert result.returncode == 0, result.stderr.decode()
    scores = json.loads(result.stdout)
    assert {"bleu", "chrf", "perplexity", "signature", "exact_match", "rougeL", "compound_split_bleu"} <= set(scores)
    assert (scores["sentences"], scores["beam_size"], scores["alpha"], scores["checkpoint"]) == (40, 2, 1.0, "latest")
    assert 0 <= scores["bleu"] <= 100 and 0 <= scores["chrf"] <= 100 and 1 < scores["perplexity"] < 1000
    assert "tok:13a" in scores["signature"]
    assert len((tmp_path / "out.txt").read_bytes().split(b"\n")) == 40 + 1


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_an_export_translates_as_the_program_does(trained, tmp_path, weights):
    """And another export is another version, which a server takes from then on."""
    model_dir, _ = trained
    flags = [f"--model_dir={model_dir}", "--checkpoint=latest", "--alpha=0.9", "--beam_size=3"]
    for version in ("1", "2"):
        result = tool("export", *flags, f"--export_dir={tmp_path}", f"--int8={weights == 'int8'}")
        assert result.returncode == 0, result.stderr.decode()
        assert f"Exported to {tmp_path / version}." in result.stdout.decode()
    description = json.loads((tmp_path / "2/assets.extra/t2t_keras.json").read_text())
    assert (description["weights"], description["checkpoint"], description["update"]) == (weights, "latest", 3)
    assert (description["decode"]["alpha"], description["decode"]["beam_size"]) == (0.9, 3)
    # Without a line with zeros, which NumPy drops, and one of Windows, whose end the program drops.
    lines = [line for line in LINES_THAT_TRY_IT if b"\x00" not in line and not line.endswith(b"\r")]
    found = tf.saved_model.load(str(tmp_path / "2")).signatures["serving_default"](text=tf.constant(lines))
    expected = tool("translate", *flags, f"--int8={weights == 'int8'}", stdin=b"\n".join(lines))
    texts = [text.decode("utf-8", "replace").replace("\n", " ") for text in found["text"].numpy()]
    assert texts == expected.stdout.decode().split("\n")[:-1]
    assert np.isfinite(found["score"]).all() and len(texts) == len(lines)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--format=ctranslate2", "--int8"], "--quantization"),
        (["--format=ctranslate2", "--dtype=bfloat16"], "--quantization"),
        (["--quantization=int8"], "--format=ctranslate2"),
        (["--export_dir=gs://bucket/x"], "on this machine"),
    ],
)
def test_an_export_that_cannot_be_is_refused_in_a_line(trained, tmp_path, flags, named):
    assert named in complaint(tool("export", f"--model_dir={trained[0]}", f"--export_dir={tmp_path}/new", *flags))
    assert not (tmp_path / "new").exists()


def test_training_on_two_devices_goes_on_where_one_stopped_and_needs_no_more_than_the_folder(trained, tmp_path):
    """It ends at once, in a process that has seen nothing before, from wherever it is started."""
    before = (trained[0] / "config.json").read_bytes()
    result = tool("train", f"--model_dir={trained[0]}", "--cpu_devices=2", cwd=tmp_path)
    assert result.returncode == 0, result.stderr.decode()
    assert "update 3" in result.stdout.decode() and "2 device(s)" in result.stdout.decode()
    assert "Learning" not in result.stdout.decode() and "Changed" not in result.stdout.decode()
    assert (trained[0] / "config.json").read_bytes() == before


def test_all_flags_that_differ_from_the_run_s_are_told_in_a_line(trained):
    """Without waiting for TensorFlow where they cannot be at all."""
    said = complaint(tool("train", f"--model_dir={trained[0]}", "--d_ff=32", "--seed=7", "--train_steps=9"))
    assert "--d_ff=32 (the run: 16), --seed=7 (the run: 1)." in said


def test_the_checkpoint_of_an_update_is_used_or_those_there_are_are_told(trained):
    result = tool("translate", f"--model_dir={trained[0]}", "--checkpoint=2", stdin=b"one\n")
    assert result.returncode == 0 and f"Using the checkpoint of {trained[0]}: update 2." in result.stderr.decode()
    assert "There are step: 1, 2, 3" in complaint(tool("translate", f"--model_dir={trained[0]}", "--checkpoint=7", stdin=b"one\n"))


@pytest.mark.parametrize("name", ["model_dir", "data_dir"])
def test_a_file_in_place_of_a_folder_is_told_in_a_line(trained, text, tmp_path, name):
    (tmp_path / "file").write_text("mine")
    flags = [*train_flags(text, tmp_path / "run"), f"--{name}={tmp_path / 'file'}"]
    said = complaint(tool("train", *flags))
    assert "Expected a folder" in said and str(tmp_path / "file") in said and "a file" in said
    assert (tmp_path / "file").read_text() == "mine"


def test_a_vocabulary_that_the_text_cannot_give_is_told_in_a_line(text, tmp_path):
    said = complaint(
        tool(
            "prepare", f"--data_dir={tmp_path}/data", "--vocab_size=30000", f"--train_source={text}/train1.en",
            f"--train_target={text}/train1.back", f"--valid_source={text}/valid.en", f"--valid_target={text}/valid.back",
        )
    )  # fmt: skip
    assert "--vocab_size" in said and "30000" in said


def test_a_missing_file_is_told_in_a_line(text, tmp_path):
    flags = [*train_flags(text, tmp_path / "run"), f"--train_target={text}/trian.back"]
    assert "trian.back" in complaint(tool("train", *flags))
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["lock"]


def test_files_of_unequal_length_are_told_in_a_line(trained, text):
    flags = [f"--model_dir={trained[0]}", f"--source={text}/valid.en", f"--reference={text}/train1.back"]
    assert "40" in complaint(tool("evaluate", *flags))


def test_a_folder_that_is_no_model_is_told_in_a_line(tmp_path):
    assert "config.json" in complaint(tool("translate", f"--model_dir={tmp_path}", stdin=b"one\n"))


def test_more_translations_than_the_beam_holds_are_refused(trained):
    result = tool("translate", f"--model_dir={trained[0]}", "--n_best=3", stdin=b"one\n")
    assert (result.returncode, result.stdout) == (1, b"")
    assert "--beam_size, 2" in result.stderr.decode() and "Traceback" not in result.stderr.decode()


@pytest.mark.parametrize(("name", "flag"), [("translate", "--n_best=-1"), ("translate", "--batch_size=0"), ("train", "--cpu_devices=0")])
def test_a_number_below_the_least_is_refused_by_the_name_of_its_flag(name, flag):
    """Story: --n_best=-1 printed all but the last, and --cpu_devices=0 was TensorFlow's error with a traceback."""
    result = tool(name, "--model_dir=x", flag)
    assert result.returncode == 1 and b"Traceback" not in result.stderr
    assert flag.lstrip("-").split("=")[0] in result.stderr.decode()


def test_an_unknown_tokenisation_is_refused_before_anything_is_translated():
    """Story: it was a KeyError with a traceback, after the whole text had been translated."""
    result = tool("evaluate", "--model_dir=x", "--source=x", "--reference=x", "--tokenize=mosses")
    assert result.returncode == 1 and b"Traceback" not in result.stderr
    assert b"tokenize" in result.stderr and b"13a" in result.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_shows_the_program_and_every_option_with_its_default(name):
    result = tool(name, "--help")
    shown = result.stdout.decode()
    assert result.returncode == 1  # As of absl.
    docstring = (ROOT / "tools" / f"{name}.py").read_text(encoding="utf-8").split('"""')[1].strip()
    assert docstring.splitlines()[0] in shown and f"python tools/{name}.py" in shown
    expected = {
        "train": ["--train_steps", "--d_model", "--model_dir", "100000"],
        "prepare": ["--data_dir", "--vocab_size", "37000"],
        "data_service": ["--port", "--host", "localhost", "--dispatcher"],
    }
    assert all(word in shown for word in expected.get(name, ["--model_dir", "--checkpoint", "average|best|latest"]))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_mistyped_flag_is_answered_by_the_one_that_was_meant(name):
    flag = NEEDED.get(name, "model_dir")
    result = tool(name, f"--{flag[:-1]}=x")
    assert result.returncode == 1
    assert f"Did you mean: {flag}" in result.stderr.decode() and "Traceback" not in result.stderr.decode()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_flag_that_is_needed_is_asked_for(name):
    result = tool(name)
    assert result.returncode == 1
    assert f"--{NEEDED.get(name, 'model_dir')}" in result.stderr.decode()
    assert "Traceback" not in result.stderr.decode()


def test_an_unknown_choice_of_weights_names_those_there_are():
    result = tool("translate", "--model_dir=x", "--checkpoint=newest")
    assert result.returncode == 1 and b"average|best|latest" in result.stderr
