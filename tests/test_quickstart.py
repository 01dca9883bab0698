"""The quick start, made tiny: one JSON object on standard output, and a folder that is the person's own."""

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import programs
import pytest
from test_tools import STAND_IN, run_stand_in

from t2t_keras.evaluation.scores import exactly_right

ROOT = pathlib.Path(__file__).parent.parent
TINY = (
    "--encoder_layers=1 --decoder_layers=1 --d_model=8 --d_ff=8 --num_heads=1 --d_k=8 --d_v=8 --builtin_pairs=1000 "
    "--train_steps=2 --cooldown_steps=2 --valid_steps=2 --valid_sentences=0 --best_metric=loss --checkpoint_steps=2 "
    "--beam_size=1 --extra_length=0 --dtype=float32"
).split()


def quickstart(
    *flags: str, script: pathlib.Path = ROOT / "tools/quickstart.py", **options
) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), *flags]
    return programs.run(
        command, modules=programs.WITHOUT_TENSORFLOW, capture_output=True, text=True, env=environment, **options
    )


def test_short_sentences_are_counted_on_their_own():
    rows = [
        ("four", "vier", "vier"), ("one euro", "eins Euro", "ein Euro"), ("one hundred and one", "x", "einhunderteins"),
    ]  # fmt: skip
    assert exactly_right(rows) == [True, False, False]
    assert exactly_right(rows, 3) == [True, False]


def test_a_wrong_option_is_reported_in_a_line_before_tensorflow_says_anything(tmp_path):
    result = quickstart(f"--model_dir={tmp_path}/run", "--alpha=-5")
    [said] = result.stderr.splitlines()
    assert result.returncode == 1 and said.startswith("Error: ") and "alpha=-5" in said
    assert not (tmp_path / "run").exists()


def test_other_text_is_refused_before_it_is_trained_on(tmp_path):
    """Story: it was trained on, and then had no sentences to test."""
    texts = {name: tmp_path / name for name in ("train_source", "train_target", "valid_source", "valid_target")}
    for path in texts.values():
        path.write_text("one two\n")
    given = [f"--{name}={path}" for name, path in texts.items()]
    result = quickstart(f"--model_dir={tmp_path / 'run'}", "--dataset=", *given)
    assert result.returncode == 1 and result.stderr.startswith("Error: The quick start is for --dataset=builtin. Train")
    assert not (tmp_path / "run").exists()


# Four sentences, three of them short. Nothing is trained.
PRETENDED = """
from types import SimpleNamespace
def module(name, **members):
    made = sys.modules[f"t2t_keras.{name}"] = types.ModuleType(f"t2t_keras.{name}")
    vars(made).update(members)
texts = {"test": (["a", "b c d e", "f e d", "g h"], ["A", "B", "F", "G"])}
found = ["A", "B", "?", "?"]
scores = {"exact_match": 0.5, "bleu": 1.5, "signature": "s", "chrf": 2.5, "perplexity": 3.5, "decode_seconds": 4.5}
module("data.prepare", read_text=lambda folder, split: texts[split])
module("training.devices", make_strategy=lambda config: config.dtype, chief_first=lambda strategy, work: work())
module("training.run", train=lambda start, strategy, quiet: SimpleNamespace(
    seconds=61.26, dtype=start.options.train.dtype))
loading.load = lambda folder: "translator"
translator.translate_lines = lambda translator, lines: [{"text": line.upper()} for line in lines]
evaluation.evaluate = lambda translator, *sides: (found, scores) if sides == texts["test"] else None
"""


def test_its_last_line_has_each_figure_under_its_name(tmp_path):
    folder = tmp_path / "a run"
    result = run_stand_in(
        STAND_IN.format(PRETENDED), "quickstart", f"--model_dir={folder}", "--dtype=bfloat16", text=True
    )
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert 0 <= told.pop("seconds") < 30
    assert told == {
        "exact_match": 0.5, "exact_match_short": 1 / 3, "bleu": 1.5, "signature": "s", "chrf": 2.5, "perplexity": 3.5,
        "dtype": "bfloat16", "training_seconds": 61.3, "model_dir": str(folder),
    }  # fmt: skip
    said = result.stderr
    assert "2 of 4 new sentences are exactly right, BLEU 1.50." in said
    assert "1 of the 3 sentences of at most 3 words" in said
    assert "wrong: f e d → ? (expected: F)" in said and "twenty-one → TWENTY-ONE" in said
    # Story: a space in the name of the folder divided the commands that were told.
    curves, translate = (shlex.split(line) for line in said.splitlines()[-2:])
    assert curves[-2:] == ["--logdir", f"{folder}/logs"]
    assert translate[-2:] == [f"{ROOT}/tools/translate.py", f"--model_dir={folder}"]


def test_of_several_workers_the_chief_alone_tests_the_model(tmp_path):
    """Story: each printed the result."""
    code = f"{PRETENDED}sys.modules['t2t_keras.training.devices'].chief_first = lambda strategy, work: print(strategy)"
    result = run_stand_in(STAND_IN.format(code), "quickstart", f"--model_dir={tmp_path}", "--dtype=bfloat16", text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "bfloat16\n", "")


@pytest.mark.slow
def test_its_last_line_has_the_scores_of_all_and_of_short_sentences(tmp_path):
    result = quickstart(*TINY, f"--model_dir={tmp_path}")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert {"exact_match", "exact_match_short", "bleu", "signature", "seconds", "dtype"} <= set(found)
    assert found["exact_match"] == found["exact_match_short"] == 0, "two updates teach nothing"
    assert found["model_dir"] == str(tmp_path)
    assert "0 of 500 new sentences are exactly right" in result.stderr
    assert f"python {ROOT}/tools/translate.py --model_dir={tmp_path}" in result.stderr


@pytest.mark.parametrize(
    ("checkout", "expected"), [(True, "{root}/runs/quickstart"), (False, "default:runs/quickstart")]
)
def test_its_default_folder_is_in_the_checkout_or_where_a_person_works(tmp_path, checkout, expected):
    """Story: installed, it would have written into site-packages."""
    (tmp_path / "programs").mkdir()
    script = pathlib.Path(shutil.copy(ROOT / "tools/quickstart.py", tmp_path / "programs"))
    if checkout:
        (tmp_path / "setup.py").touch()
    shown = "".join(quickstart("--help", script=script, cwd="/").stdout.split())
    assert f"{expected.format(root=tmp_path)}" in shown
    assert checkout or str(tmp_path) not in shown.replace(str(script), "")
