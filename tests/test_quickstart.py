"""The quick start, made tiny: one JSON object on standard output, and a folder that is the person's own."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from t2t_keras.evaluation.scores import exactly_right

ROOT = pathlib.Path(__file__).parent.parent
TINY = (
    "--encoder_layers=1 --decoder_layers=1 --d_model=8 --d_ff=8 --num_heads=1 --d_k=8 --d_v=8 --builtin_pairs=1000 --train_steps=2 "
    "--valid_steps=2 --valid_sentences=0 --best_metric=loss --checkpoint_steps=2 --beam_size=1 --extra_length=0 --dtype=float32"
).split()


def quickstart(*flags: str, script: pathlib.Path = ROOT / "tools/quickstart.py", **options) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, str(script), *flags], capture_output=True, text=True, env=environment, **options)


def test_short_sentences_are_counted_on_their_own():
    rows = [("four", "vier", "vier"), ("one euro", "eins Euro", "ein Euro"), ("one hundred and one", "x", "einhunderteins")]
    assert exactly_right(rows) == [True, False, False]
    assert exactly_right(rows, 3) == [True, False]


def test_a_wrong_option_is_told_in_a_line_before_tensorflow_says_anything(tmp_path):
    result = quickstart(f"--model_dir={tmp_path}/run", "--alpha=-5")
    [said] = result.stderr.splitlines()
    assert result.returncode == 1 and said.startswith("Error: ") and "alpha=-5" in said
    assert not (tmp_path / "run").exists()


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


@pytest.mark.parametrize(("checkout", "expected"), [(True, "{root}/runs/quickstart"), (False, "'runs/quickstart'")])
def test_its_default_folder_is_in_the_checkout_or_where_a_person_works(tmp_path, checkout, expected):
    """Story: installed, it would have written into site-packages."""
    (tmp_path / "programs").mkdir()
    script = pathlib.Path(shutil.copy(ROOT / "tools/quickstart.py", tmp_path / "programs"))
    if checkout:
        (tmp_path / "setup.py").touch()
    shown = "".join(quickstart("--help", script=script, cwd="/").stdout.split())
    assert f"{expected.format(root=tmp_path)}" in shown
    assert checkout or str(tmp_path) not in shown.replace(str(script), "")
