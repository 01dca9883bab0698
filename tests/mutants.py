"""Faults put into the code on purpose, one at a time. A fault is caught when the tests named beside it fail.

    python tests/mutants.py              # every fault, two at a time, after one run of the tests without any
    python tests/mutants.py dtype loss   # the faults whose name contains one of these words

Each fault replaces text that occurs exactly once in its file, in a copy of the repository. `test_mutants.py` checks the list
by default and runs it when slow tests are asked for. A new promise comes with a fault here that breaks it.
"""

import concurrent.futures
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent
JOBS = 2
TIMEOUT = 900  # Seconds for one fault's tests.
PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "slow or not slow")


class Mutant(NamedTuple):
    """One fault.

    Attributes:
        name: the fault in words.
        file: path from the root of the repository.
        old: text that occurs once in the file.
        new: what the fault puts in its place.
        tests: pytest node ids from the root, without parameters; at least one must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    # Training: one update, its loop, what it logs.
    # Survival: kills, signals, exact resume, learning.
    Mutant(
        "noise on every curve",
        "t2t_keras/events.py",
        "tf.summary.scalar)(name, value)",
        "tf.summary.scalar)(name, value if isinstance(value, str) else value * (1 + __import__('secrets').randbelow(99) * 1e-6))",
        ("tests/test_survival.py::test_a_run_killed_in_bad_moments_ends_where_an_uninterrupted_one_ends",),
    ),
    Mutant(
        "what was measured since the last point is lost on resume",
        "t2t_keras/training.py",
        "progress.go_on_in(self.config.dtype)",
        "progress.go_on_in(self.config.dtype); progress.measured = Progress().measured",
        ("tests/test_survival.py::test_a_run_killed_in_bad_moments_ends_where_an_uninterrupted_one_ends",),
    ),
    Mutant(
        "a stopped run exits with 0",
        "t2t_keras/flags.py",
        "return EXIT_CODE",
        "return 0",
        ("tests/test_interruption.py::test_a_run_that_is_stopped_by_a_signal_or_a_time_limit_saves_and_exits_with_75",),
    ),
    Mutant(
        "Ctrl-C is not handled",
        "t2t_keras/interruption.py",
        "SIGNALS = (signal.SIGTERM, signal.SIGINT)",
        "SIGNALS = (signal.SIGTERM,)",
        ("tests/test_interruption.py::test_a_run_that_is_stopped_by_a_signal_or_a_time_limit_saves_and_exits_with_75",),
    ),
    Mutant(
        "--max_hours is ignored",
        "t2t_keras/training.py",
        "Interruption(config.max_hours)",
        "Interruption()",
        ("tests/test_training.py::test_a_time_limit_saves_and_stops",),
    ),
    Mutant(
        "the decoder sees the word that it is to predict",
        "t2t_keras/update.py",
        "model((source, shift_right(target))",
        "model((source, target)",
        ("tests/test_learning.py::test_copying_is_learned_exactly",),
    ),
    Mutant(
        "a worker cleans up while the others have left",
        "tools/train.py",
        "devices.leave(ended.code)",
        "devices.process",
        ("tests/test_workers.py::test_two_workers_that_have_trained_report_no_crash",),
    ),
    Mutant(
        "the launcher of workers has no help",
        "tools/workers.py",
        'in (["--help"], ["-h"])',
        "in ()",
        ("tests/test_workers.py::test_the_launcher_prints_its_help",),
    ),
    # Folders: runs, checkpoints, resuming, hostile files.
    # Data: corpora, preparing, the data service.
    # Programs: translate, evaluate, export, console commands.
)


def _copy(folder: pathlib.Path) -> pathlib.Path:
    ignored = shutil.ignore_patterns(".git", ".venv", "runs", "build", "dist", "__pycache__", "*.egg-info", ".*_cache")
    return pathlib.Path(shutil.copytree(ROOT, folder, ignore=ignored, dirs_exist_ok=True))


def _pytest(root: pathlib.Path, tests, *options: str) -> tuple[int, str]:
    """The exit code of pytest (0: passed, 1: a test failed), and its output."""
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *PYTEST, *options, *tests]
    result = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    return result.returncode, result.stdout[-3000:] + result.stderr[-1000:]


def verdict(mutant: Mutant, root: pathlib.Path) -> str:
    """`caught`, `survived`, or what else happened when the tests ran with the fault in a copy of the repository."""
    path = root / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        return f"not applied: its text occurs {text.count(mutant.old)} times"
    try:
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        code, output = _pytest(root, mutant.tests)
    except subprocess.TimeoutExpired:
        return "caught (timeout)"
    finally:
        path.write_text(text, encoding="utf-8")
    return {0: "survived", 1: "caught"}.get(code, f"pytest ended with {code}:\n{output}")


def run(mutants=MUTANTS, say=print) -> dict[str, str]:
    """Runs the tests without a fault, then with each one. Returns {name: verdict}.

    Raises:
        RuntimeError: the tests fail without any fault.
    """
    with tempfile.TemporaryDirectory() as folder:
        copies = queue.SimpleQueue()
        for index in range(JOBS):
            copies.put(_copy(pathlib.Path(folder) / str(index)))
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        root = copies.get()
        code, output = _pytest(root, tests, "-n", str(JOBS), "--dist", "loadfile")
        copies.put(root)
        if code:
            raise RuntimeError(f"Expected the tests to pass without a fault. pytest ended with {code}:\n{output}")

        def one(mutant: Mutant) -> str:
            root, started = copies.get(), time.monotonic()
            try:
                found = verdict(mutant, root)
            finally:
                copies.put(root)
            say(f"{found:10} {time.monotonic() - started:6.1f} s  {mutant.name}", flush=True)
            return found

        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            return dict(zip((mutant.name for mutant in mutants), pool.map(one, mutants), strict=True))


def main() -> None:
    words = sys.argv[1:]
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    verdicts = run(chosen)
    missed = [name for name, found in verdicts.items() if not found.startswith("caught")]
    print(f"{len(verdicts) - len(missed)} of {len(verdicts)} faults caught." + "".join(f"\n  not caught: {name}" for name in missed))
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
