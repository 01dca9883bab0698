"""Trains in processes that are killed: python killed_runs.py '{"flags": [...], "kills": [...]}' prints how each ended, as JSON.

TensorFlow is imported once and not used before each run gets a process of its own by fork, which saves most of their time. A kill
is null (the run may end by itself), a number of seconds, or the name of one of `POINTS`, a place inside the program.
"""

import json
import os
import pathlib
import signal
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import numpy as np

from t2t_keras import checkpoint, diagnosis, events, experiment
from t2t_keras import flags as options
from tools import train

assert experiment and diagnosis  # Imported before the fork.


def die(*_) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _before(owner, name: str, condition, action=die) -> None:
    """Before the first call of owner.name whose arguments meet a condition, `action` is called with them."""
    function = getattr(owner, name)

    def watched(*args, **kwargs):
        if condition(*args):
            action(*args, **kwargs)
        return function(*args, **kwargs)

    setattr(owner, name, watched)


def _write_half(file, **arrays) -> None:
    file.write(b"PK" * 1000)
    file.flush()
    die()


def _named(pattern: str):
    return lambda *args: any(isinstance(path, pathlib.Path) and path.match(pattern) for path in args)


POINTS = {
    "before the first checkpoint": lambda: _before(events.Board, "write", lambda *_: True),
    "half an archive is written": lambda: _before(np, "savez", lambda file: "step-000000006" in file.name, _write_half),
    "an archive has not got its name": lambda: _before(os, "replace", _named("step-000000012.npz")),
    "an archive has its name and no manifest": lambda: _before(checkpoint, "write_whole", _named("step-000000012.json")),
    "between checkpoints": lambda: _before(events.Board, "write", lambda board, step, metrics: step == 10),
    "a manifest is removed and its archive is not": lambda: _before(pathlib.Path, "unlink", _named("step-000000009.npz")),
    "curves are being rewritten": lambda: _before(pathlib.Path, "replace", _named("*tfevents*")),
}


def run(flags: list[str], kill) -> int:
    """Forks, trains, and returns the exit code, or minus the signal."""
    process = os.fork()
    if process == 0:
        if isinstance(kill, str):
            POINTS[kill]()
        sys.argv = ["train.py", *flags]
        try:
            options.run(train.train)
        except SystemExit as ended:
            sys.stdout.flush()
            os._exit(ended.code or 0)  # Without what the parent has asked for at its own end.
    if isinstance(kill, float):
        time.sleep(kill)
        os.kill(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps([run(asked["flags"], kill) for kill in asked["kills"]]))
