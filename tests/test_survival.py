"""A run that is killed and started again ends, to the last bit, where an uninterrupted one ends. Real processes."""

import json
import os
import pathlib
import random
import signal
import sys

import numpy as np
import programs
import pytest
import tensorflow as tf

from t2t_keras.runs import checkpoint

HERE = pathlib.Path(__file__).parent
FLAGS = (
    "--dataset=builtin --builtin_pairs=600 --vocab_size=340 --encoder_layers=1 --decoder_layers=1 --d_model=8 "
    "--d_ff=16 --num_heads=2 --d_k=4 --d_v=4 --warmup_steps=10 --batch_tokens=400 --micro_batch_tokens=200 "
    "--valid_sentences=0 --best_metric=loss --valid_steps=10 --checkpoint_steps=3 --keep_checkpoints=2 --log_steps=2 "
    "--train_steps=20 --deterministic"
).split()
FLOAT32 = ("--dtype=float32",)
BFLOAT16 = ("--dtype=bfloat16",)
TWO_DEVICES = ("--cpu_devices=2",)
WITH_BLEU = ("--valid_sentences=3", "--best_metric=bleu", "--extra_length=3")
RANDOM_KILLS = 10  # That land before the last checkpoint, for each dtype.


def trained(model_dir: pathlib.Path, kills: list, *flags: str) -> list[dict]:
    """How runs in a folder ended, one after the other; see `killed_runs.py`."""
    asked = json.dumps({"flags": [*FLAGS, f"--model_dir={model_dir}", *flags], "kills": kills})
    result = programs.run([sys.executable, str(HERE / "killed_runs.py"), asked], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def curves(model_dir: pathlib.Path) -> dict[str, list[tuple]]:
    """Each curve's points, (step, value as a serialized tensor), in order; of curves of speed, the steps alone."""
    found = {}
    for path in sorted((model_dir / "logs").glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag == "config":  # Written at each start.
                    continue
                content = (
                    "" if value.tag.endswith(("_per_second", "_gib", "tflops")) else value.tensor.SerializeToString()
                )
                found.setdefault(value.tag, []).append((event.step, content))
    return found


def steps(curve: list[tuple]) -> list[int]:
    return [step for step, _ in curve]


def left(model_dir: pathlib.Path) -> dict:
    """All that a run leaves, but for the time it took and the speed it had."""
    contents = {}
    for kind in (checkpoint.STEP, checkpoint.BEST):
        for path in checkpoint.kept(model_dir, kind):
            with np.load(path) as archive:
                state = json.loads(str(archive["state"]))
                del state["seconds"]
                state["measured"].pop("seconds", None)
                arrays = {name: archive[name].tobytes() for name in archive.files if name != "state"}
                contents[path.name] = state, arrays
    return {
        "checkpoints": contents,
        "files": sorted(path.name for path in (model_dir / checkpoint.FOLDER).iterdir()),
        "curves": curves(model_dir),
    }


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """flags → what a run leaves that nothing happened to, and the seconds it took."""
    found = {}

    def of(*flags: str) -> tuple[dict, float]:
        if flags not in found:
            model_dir = tmp_path_factory.mktemp("uninterrupted")
            (ending,) = trained(model_dir, [None], *flags)
            assert (ending["code"], ending["step"]) == (0, 20)
            found[flags] = left(model_dir), ending["seconds"]
            drawn = found[flags][0]["curves"]
            assert steps(drawn["train/loss"]) == list(range(2, 21, 2)) and steps(drawn["valid/loss"]) == [10, 20]
            assert len(set(drawn["train/loss"])) == 10
        return found[flags]

    return of


def check_survival(uninterrupted, model_dir: pathlib.Path, flags: tuple, kills: list[str]) -> None:
    """Each kill comes at its point, and what is left at the end is what the uninterrupted run leaves."""
    *killed, last = trained(model_dir, [*kills, None], *flags)
    assert [(ending["code"], ending["point"]) for ending in killed] == [(-signal.SIGKILL, point) for point in kills]
    assert (last["code"], last["step"]) == (0, 20)
    assert left(model_dir) == uninterrupted(*flags)[0]


@pytest.mark.medium
@pytest.mark.parametrize(("flags", "kills"), [
    pytest.param(FLOAT32, ["an archive has its name and no manifest"], id="float32"),
    pytest.param(BFLOAT16, ["between checkpoints", "an archive has not got its name", "curves are being rewritten"],
                 marks=pytest.mark.slow, id="bfloat16"),
])  # fmt: skip
def test_a_run_killed_in_bad_moments_ends_where_an_uninterrupted_one_ends(uninterrupted, tmp_path, flags, kills):
    check_survival(uninterrupted, tmp_path, flags, kills)


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "kills"), [
    (FLOAT32,
     ["before the first checkpoint", "half an archive is written", "a manifest is removed and its archive is not"]),
    (TWO_DEVICES, ["half an archive is written", "between checkpoints"]),
    (WITH_BLEU, ["translations of a validation are scored"] * 2 + ["between checkpoints"]),
], ids=["one device", "two devices", "BLEU"])  # fmt: skip
def test_a_run_killed_in_more_moments_ends_where_an_uninterrupted_one_ends(uninterrupted, tmp_path, flags, kills):
    check_survival(uninterrupted, tmp_path, flags, kills)


@pytest.mark.slow
def test_two_devices_end_at_the_same_bits_each_time(uninterrupted, tmp_path):
    (ending,) = trained(tmp_path, [None], *TWO_DEVICES)
    assert ending["code"] == 0
    assert left(tmp_path) == uninterrupted(*TWO_DEVICES)[0]


@pytest.mark.slow
@pytest.mark.parametrize("flags", [FLOAT32, BFLOAT16], ids=["float32", "bfloat16"])
def test_runs_killed_at_random_moments_end_where_an_uninterrupted_one_ends(uninterrupted, tmp_path, flags):
    """In preparing, compiling, training, validating, writing. Each folder is killed in until a run ends by itself."""
    expected, seconds = uninterrupted(*flags)
    draw = random.Random(int(os.environ.get("KILL_SEED", "1")))
    landed = []
    while len(landed) < RANDOM_KILLS or not any(landed):  # Some of them after a checkpoint.
        model_dir = tmp_path / str(len(landed))
        *killed, last = trained(model_dir, [draw.uniform(0, seconds) for _ in range(5)] + [None], *flags)
        assert (last["code"], last["step"]) == (0, 20)
        assert left(model_dir) == expected
        landed += [ending["step"] for ending in killed if ending["code"] == -signal.SIGKILL and ending["step"] < 20]
