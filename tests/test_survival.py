"""A run that is killed at any moment and started again ends, to the last bit, where an uninterrupted one ends. Real processes, SIGKILL."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import checkpoint

HERE = pathlib.Path(__file__).parent
FLAGS = (
    "--dataset=builtin --builtin_pairs=600 --vocab_size=340 --encoder_layers=1 --decoder_layers=1 --d_model=8 --d_ff=16 --num_heads=2 "
    "--d_k=4 --d_v=4 --warmup_steps=10 --batch_tokens=400 --device_tokens=200 --valid_sentences=0 --early_stopping=loss --valid_steps=10 "
    "--checkpoint_steps=3 --keep_checkpoints=2 --log_steps=2 --train_steps=20 --deterministic"
).split()


def trained(model_dir: pathlib.Path, kills: list, *flags: str) -> list[int]:
    """How runs in a folder ended, one after the other."""
    asked = json.dumps({"flags": [*FLAGS, f"--model_dir={model_dir}", *flags], "kills": kills})
    result = subprocess.run([sys.executable, str(HERE / "killed_runs.py"), asked], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def curves(model_dir: pathlib.Path) -> dict[str, list[int]]:
    """The steps of every curve's points, in the order they were written."""
    found = {}
    for path in sorted((model_dir / "logs").iterdir()):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found.setdefault(value.tag, []).append(event.step)
    return found


def left(model_dir: pathlib.Path) -> dict:
    """All that a run leaves, but for the time it took and the speed it had."""
    contents = {}
    for kind in (checkpoint.STEP, checkpoint.BEST):
        for path in checkpoint.kept(model_dir, kind):
            with np.load(path) as archive:
                state = json.loads(str(archive["state"]))
                del state["seconds"], state["measured"]["seconds"]
                arrays = {name: archive[name].tobytes() for name in archive.files if name != "state"}
                contents[path.name] = state, arrays
    return {
        "checkpoints": contents,
        "files": sorted(path.name for path in (model_dir / checkpoint.FOLDER).iterdir()),
        "curves": curves(model_dir),
    }


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """dtype → what a run leaves that nothing happened to."""
    found = {}

    def of(dtype: str) -> dict:
        if dtype not in found:
            model_dir = tmp_path_factory.mktemp("uninterrupted") / dtype
            assert trained(model_dir, [None], f"--dtype={dtype}") == [0]
            found[dtype] = left(model_dir)
            assert found[dtype]["curves"]["train/loss"] == list(range(2, 21, 2))
            assert found[dtype]["curves"]["valid/loss"] == [10, 20]
        return found[dtype]

    return of


@pytest.mark.parametrize(
    ("dtype", "kills"),
    [
        ("float32", ["half an archive is written", "an archive has its name and no manifest"]),
        ("bfloat16", ["between checkpoints", "an archive has not got its name", "curves are being rewritten"]),
        pytest.param("float32", ["before the first checkpoint", "a manifest is removed and its archive is not"], marks=pytest.mark.slow),
    ],
)
def test_a_run_killed_in_bad_moments_ends_where_an_uninterrupted_one_ends(uninterrupted, tmp_path, dtype, kills):
    assert trained(tmp_path / "run", [*kills, None], f"--dtype={dtype}") == [-signal.SIGKILL] * len(kills) + [0]
    assert left(tmp_path / "run") == uninterrupted(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_killed_at_twenty_random_moments_ends_where_an_uninterrupted_one_ends(uninterrupted, tmp_path, dtype):
    """Between 3 and 14 seconds after the start: in preparing, compiling, training, validating, writing."""
    draw = random.Random(int(os.environ.get("KILL_SEED", "1")))
    endings = trained(tmp_path / "run", [draw.uniform(3, 14) for _ in range(10)] + [None], f"--dtype={dtype}")
    assert endings[-1] == 0
    assert left(tmp_path / "run") == uninterrupted(dtype)
