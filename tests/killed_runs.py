"""Trains in processes that end themselves, or are ended, by signals.

    python killed_runs.py '{"flags": [...], "kills": [...]}'

trains once per kill, up to the first run that is not killed, and prints a list of {"code": exit code, or minus the
signal; "point": the place in the program where the signal was sent, or null; "seconds": how long the run took; "step":
of its newest checkpoint}. A kill is null (the run may end by itself), a number of seconds, or the name of one of
`POINTS`.

    python ../tools/workers.py 2 python killed_runs.py \\
        '{"flags": [...], "points": {"0": ..., "1": ...}, "clean_up_seconds": ...}'

trains with several workers, some of which end themselves at a point; the first one takes so long to clean up at its
end.

TensorFlow is imported once and not used before each run gets a process of its own by fork, which saves most of their
time.
"""

import atexit
import json
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import numpy as np

from t2t_keras.cli import program
from t2t_keras.evaluation import scores
from t2t_keras.reporting import tensorboard
from t2t_keras.runs import checkpoint
from t2t_keras.training import diagnosis, state
from t2t_keras.training import run as training_run
from tools import train

assert training_run and diagnosis  # Imported before the fork.


def die(*_) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _end_all_workers(*_) -> None:
    os.kill(os.getppid(), signal.SIGTERM)  # The launcher passes it on.


class Before(NamedTuple):
    """The place before a call of owner.name whose arguments meet a condition; `action` is called with them there."""

    owner: object
    name: str
    condition: Callable
    action: Callable = die


def _write_half(file, **arrays) -> None:
    file.write(b"PK" * 1000)
    file.flush()
    die()


def _named(pattern: str):
    return lambda *args: any(isinstance(path, pathlib.Path) and path.match(pattern) for path in args)


def _in_update(step: int):
    return lambda state, *_: state.step == step - 1


POINTS = {
    "before the first checkpoint": Before(
        tensorboard.TensorBoardWriter, "write", lambda board, step, metrics: step > 0
    ),
    "half an archive is written": Before(np, "savez", lambda file: "step-000000006" in file.name, _write_half),
    "an archive has not got its name": Before(os, "replace", _named("step-000000012.npz")),
    "an archive has its name and no manifest": Before(checkpoint, "write_whole", _named("step-000000012.json")),
    "between checkpoints": Before(tensorboard.TensorBoardWriter, "write", lambda board, step, metrics: step == 10),
    "in update 11": Before(state.TrainState, "count_update", _in_update(11)),
    "a manifest is removed and its archive is not": Before(pathlib.Path, "unlink", _named("step-000000009.npz")),
    "curves are being rewritten": Before(os, "replace", _named("*tfevents*")),
    "translations of a validation are scored": Before(scores, "bleu", lambda *_: True),
    "all workers get SIGTERM in update 7": Before(state.TrainState, "count_update", _in_update(7), _end_all_workers),
}


def watch(point: str, reached=lambda: None) -> None:
    """Has this process end itself at a point; `reached` is called just before."""
    before = POINTS[point]
    function = getattr(before.owner, before.name)

    def watched(*args, **kwargs):
        if before.condition(*args):
            reached()
            before.action(*args, **kwargs)
        return function(*args, **kwargs)

    setattr(before.owner, before.name, watched)


def newest_step(flags: list[str]) -> int:
    (model_dir,) = (flag.partition("=")[2] for flag in flags if flag.startswith("--model_dir="))
    kept = checkpoint.kept(pathlib.Path(model_dir))
    return checkpoint.step_of(kept[-1]) if kept else 0


def run(flags: list[str], kill) -> dict:
    """Forks, trains, and says how that ended."""
    reading, writing = os.pipe()
    started = time.monotonic()
    process = os.fork()
    if process == 0:
        if isinstance(kill, str):
            watch(kill, reached=lambda: os.write(writing, kill.encode()))
        try:
            sys.argv = ["train.py", *flags]
            program.run(train.train)
        except SystemExit as ended:
            sys.stdout.flush()
            os._exit(ended.code or 0)  # Without what the parent has asked for at its own end.
    os.close(writing)
    ended, status = (0, 0) if isinstance(kill, float) else os.waitpid(process, 0)
    while not ended:
        if time.monotonic() - started >= kill:
            os.kill(process, signal.SIGKILL)
            ended, status = os.waitpid(process, 0)
        else:
            time.sleep(0.01)
            ended, status = os.waitpid(process, os.WNOHANG)
    with open(reading, "rb") as pipe:
        point = pipe.read().decode()
    return {
        "code": os.waitstatus_to_exitcode(status),
        "point": point or None,
        "seconds": time.monotonic() - started,
        "step": newest_step(flags),
    }


def runs(flags: list[str], kills: list) -> list[dict]:
    endings = []
    for kill in kills:
        endings.append(run(flags, kill))
        if endings[-1]["code"] != -signal.SIGKILL:
            break
    return endings


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    if "kills" in asked:
        print(json.dumps(runs(**asked)))
    else:
        worker = str(json.loads(os.environ["TF_CONFIG"])["task"]["index"])
        if worker in asked["points"]:
            watch(asked["points"][worker])
        if worker == "0":
            atexit.register(time.sleep, asked["clean_up_seconds"])
        sys.argv = ["train.py", *asked["flags"]]
        train.main()
