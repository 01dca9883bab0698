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
    # Folders: runs, checkpoints, resuming, hostile files.
    # Data: corpora, preparing, the data service.
    # Programs: translate, evaluate, export, console commands.
    # The built-in corpus and the quick start.
    Mutant(
        "held-out sentences of the built-in corpus are in its training text",
        "t2t_keras/builtin_corpus.py",
        "while pair in seen or _split_of(pair[0], seed) != split:",
        "while pair in seen:",
        ("tests/test_builtin_corpus.py::test_no_pair_is_in_two_splits_and_no_held_out_pair_comes_twice",),
    ),
    Mutant(
        "numbers below 1,000 are in the built-in training text by chance only",
        "t2t_keras/builtin_corpus.py",
        "small.pop() if small and index % 4 == 0 else pair",
        "pair",
        ("tests/test_builtin_corpus.py::test_every_number_below_1000_is_in_train_or_in_test",),
    ),
    Mutant(
        "the built-in corpus draws numbers of six digits",
        "t2t_keras/builtin_corpus.py",
        "digits = draw.randint(1, 7)",
        "digits = 6",
        ("tests/test_builtin_corpus.py::test_short_sentences_are_common_in_every_split",),
    ),
    Mutant(
        "exact_match_short counts sentences of any length",
        "tools/quickstart.py",
        "if len(source.split()) <= most_words",
        "if source",
        ("tests/test_quickstart.py::test_short_sentences_are_counted_on_their_own",),
    ),
    Mutant(
        "the installed quick start writes into its own folder",
        "tools/quickstart.py",
        "_ROOT if _CHECKOUT else pathlib.Path()",
        "_ROOT",
        ("tests/test_quickstart.py::test_its_default_folder_is_in_the_checkout_or_where_a_person_works",),
    ),
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
