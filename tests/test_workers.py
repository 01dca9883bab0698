"""Several processes train together as one device does; started by `tools/workers.py`, over the loopback."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from test_survival import FLAGS, curves
from toy import TWENTY, adam, assert_moved_alike, by_one_tape, joined, sgd

from t2t_keras import checkpoint, devices

ROOT = pathlib.Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}


def workers(*command: str) -> subprocess.Popen:
    """Two workers of a Python program."""
    program = [sys.executable, str(ROOT / "tools" / "workers.py"), "2", sys.executable, *command]
    return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


def test_two_workers_go_where_one_tape_goes(tmp_path):
    process = workers(str(ROOT / "tests" / "toy_worker.py"), str(tmp_path / "weights"))
    said, errors = process.communicate()
    assert process.returncode == 0, errors
    updates = [joined(TWENTY[first : first + 2]) for first in range(0, len(TWENTY), 2)]  # Of two parts each.
    for optimizer in (sgd, adam):
        expected, _ = by_one_tape(updates, make_optimizer=optimizer)
        for worker in (0, 1):
            with np.load(tmp_path / f"weights-{optimizer.__name__}-{worker}.npz") as archive:
                assert_moved_alike(dict(archive), expected)


def train(model_dir, *flags: str) -> subprocess.Popen:
    return workers(str(ROOT / "tools" / "train.py"), *FLAGS, f"--model_dir={model_dir}", *flags)


def test_two_workers_train_are_told_to_end_and_go_on(tmp_path):
    """One folder, one lock, one curve: what the chief writes. A signal to all saves and ends with the code for that."""
    process = train(tmp_path, "--train_steps=100000")
    while not checkpoint.kept(tmp_path) and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    said, errors = process.communicate()
    assert process.returncode == 75, errors
    assert said.count("Stopped at update ") == 1
    stopped_at = checkpoint.step_of(checkpoint.kept(tmp_path)[-1])
    end = stopped_at + 4
    process = train(tmp_path, f"--train_steps={end}")
    said, errors = process.communicate()
    assert process.returncode == 0, errors
    assert f"Going on from update {stopped_at:,}" in said and said.count("Trained.") == 1
    assert checkpoint.step_of(checkpoint.kept(tmp_path)[-1]) == end
    steps = curves(tmp_path)["train/loss"]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize("text", ["{", "[]", '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}}'])
def test_a_cluster_that_cannot_be_is_refused_with_what_was_received(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match="TF_CONFIG.*Received: "):
        devices.make_strategy()


@pytest.mark.parametrize("text", ["{}", json.dumps({"cluster": {"worker": ["localhost:1"]}, "task": {"type": "worker", "index": 0}})])
def test_a_cluster_of_one_is_this_machine_alone(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    strategy = devices.make_strategy(2)
    assert strategy.num_replicas_in_sync == 2 and devices.is_chief(strategy) and not devices.several_workers(strategy)
    assert devices.from_chief(strategy, 3.0) == 3 and devices.any_worker(strategy, True)


@pytest.mark.parametrize("arguments", [[], ["2"], ["two", "python"], ["0", "python"]])
def test_the_launcher_says_what_it_expects(arguments):
    result = subprocess.run([sys.executable, str(ROOT / "tools" / "workers.py"), *arguments], capture_output=True, text=True)
    assert result.returncode == 1 and "Expected a number of workers and a command" in result.stderr


def test_if_a_worker_fails_the_launcher_ends_the_others_with_its_code(monkeypatch):
    from tools import workers as launcher

    monkeypatch.setattr(launcher, "GRACE_SECONDS", 0.5)
    program = "import json, os, sys, time; time.sleep(60 * (1 - json.loads(os.environ['TF_CONFIG'])['task']['index'])); sys.exit(5)"
    began = time.monotonic()
    assert launcher.wait(launcher.start(2, [sys.executable, "-c", program])) == 5
    assert time.monotonic() - began < 20
