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
    Mutant(
        "prepare ignores --normalization",
        "t2t_keras/prepare.py",
        "normalization=data.normalization,",
        'normalization="identity",',
        ("tests/test_prepare.py::test_text_is_normalised_as_asked",),
    ),
    Mutant(
        "prepare ignores --character_coverage",
        "t2t_keras/prepare.py",
        "character_coverage=data.character_coverage,",
        "character_coverage=0.9995,",
        ("tests/test_prepare.py::test_characters_are_covered_as_asked",),
    ),
    Mutant(
        "prepare ignores --vocab_sample",
        "t2t_keras/prepare.py",
        "sample=data.vocab_sample,",
        "sample=2_000_000,",
        ("tests/test_prepare.py::test_sub_words_are_learned_from_a_sample_as_large_as_asked_drawn_by_the_seed",),
    ),
    Mutant(
        "the sample of the sub-words ignores --seed",
        "t2t_keras/prepare.py",
        "sample=data.vocab_sample,\n        seed=seed,",
        "sample=data.vocab_sample,\n        seed=1,",
        ("tests/test_prepare.py::test_sub_words_are_learned_from_a_sample_as_large_as_asked_drawn_by_the_seed",),
    ),
    Mutant(
        "prepare ignores --skip_bad_lines",
        "t2t_keras/corpus.py",
        "skip_bad_lines=data.skip_bad_lines,",
        "skip_bad_lines=False,",
        ("tests/test_prepare.py::test_lines_that_are_not_utf8_stop_the_preparing_or_are_left_out_as_asked",),
    ),
    Mutant(
        "bad lines are skipped without --skip_bad_lines",
        "t2t_keras/corpus.py",
        "skip_bad_lines=data.skip_bad_lines,",
        "skip_bad_lines=True,",
        ("tests/test_prepare.py::test_lines_that_are_not_utf8_stop_the_preparing_or_are_left_out_as_asked",),
    ),
    Mutant(
        "prepare ignores --max_length",
        "t2t_keras/prepare.py",
        "pairs, subwords, data.max_length, counted,",
        "pairs, subwords, 256, counted,",
        ("tests/test_prepare.py::test_pairs_longer_than_the_limit_are_left_out_and_counted",),
    ),
    Mutant(
        "of a corpus the first MiB alone is compared",
        "t2t_keras/corpus.py",
        '        return hashlib.file_digest(file, "sha256").hexdigest()',
        "        return hashlib.sha256(file.read(2**20)).hexdigest()",
        ("tests/test_prepare.py::test_a_byte_that_changes_behind_the_first_mebibyte_makes_another_corpus",),
    ),
    Mutant(
        "what is read of a file is hashed in part",
        "t2t_keras/corpus.py",
        "memoryview(buffer)[:count]",
        "memoryview(buffer)[: min(count, 1000)]",
        ("tests/test_corpus.py::test_a_file_is_hashed_while_it_is_read",),
    ),
    Mutant(
        "a file is read once more for its hash",
        "t2t_keras/prepare.py",
        "_options(data, vocab_size, seed, hashes)",
        "_options(data, vocab_size, seed)",
        ("tests/test_prepare.py::test_preparing_reads_no_file_once_more_for_its_hash",),
    ),
    Mutant(
        "a file that changes while it is read goes unseen",
        "t2t_keras/prepare.py",
        "if value != hashes[path]:",
        "if False:",
        ("tests/test_prepare.py::test_a_file_that_changes_while_it_is_read_is_told",),
    ),
    Mutant(
        "the first option that differs is named alone",
        "t2t_keras/prepare.py",
        "'; '.join(changes)",
        "changes[0]",
        ("tests/test_prepare.py::test_every_option_that_differs_is_named_with_both_values",),
    ),
    Mutant(
        "a process that waits for a lock goes on without it",
        "t2t_keras/lock.py",
        "            fcntl.flock(file, fcntl.LOCK_EX)\n",
        "            pass\n",
        ("tests/test_lock.py::test_a_process_that_waits_says_for_whom_and_gets_the_lock_after_it",),
    ),
    Mutant(
        "the second of two prepares again what the first made",
        "t2t_keras/prepare.py",
        "            if not (folder / CORPUS).exists():  # The",
        "            if True:  # The",
        ("tests/test_prepare.py::test_the_second_of_two_waits_for_the_first_and_uses_what_it_made",),
    ),
    Mutant(
        "a folder prepared meanwhile is not compared with the options",
        "t2t_keras/prepare.py",
        "    check_folder(folder, data, vocab_size, seed)\n    say",
        "    say",
        ("tests/test_prepare.py::test_the_second_of_two_refuses_what_the_first_made_of_another_corpus",),
    ),
    Mutant(
        "preparing overwrites other files",
        "t2t_keras/prepare.py",
        "        _check_own(folder)\n",
        "",
        ("tests/test_prepare.py::test_a_folder_of_other_files_is_left_as_it_is",),
    ),
    Mutant(
        "a full disk under a shard is a traceback",
        "t2t_keras/prepare.py",
        "(OSError, *_WRITE_ERRORS)",
        "OSError",
        ("tests/test_prepare.py::test_a_full_disk_is_told_in_a_sentence_and_the_same_command_goes_on_when_there_is_room",),
    ),
    Mutant(
        "a folder counts as whole before it is",
        "t2t_keras/prepare.py",
        "    subwords = tokenizer.Tokenizer(model)\n",
        '    subwords = tokenizer.Tokenizer(model)\n    (folder / CORPUS).write_text("{}")\n',
        ("tests/test_prepare.py::test_a_full_disk_is_told_in_a_sentence_and_the_same_command_goes_on_when_there_is_room",),
    ),
    Mutant(
        "validation text inside the training text is not counted",
        "t2t_keras/prepare.py",
        "        if pair in held_out:",
        "        if False:",
        ("tests/test_prepare.py::test_validation_pairs_that_are_in_the_training_text_are_counted",),
    ),
    Mutant(
        "each validation pair in the training text counts once",
        "t2t_keras/prepare.py",
        "sum(pair in repeated for pair in valid)",
        "len(repeated)",
        ("tests/test_prepare.py::test_validation_pairs_that_are_in_the_training_text_are_counted",),
    ),
    Mutant(
        "identical sides go unseen",
        "t2t_keras/prepare.py",
        "identical += pair[0] == pair[1]",
        "identical += 0",
        ("tests/test_prepare.py::test_training_text_that_is_mostly_the_same_on_both_sides_is_noticed",),
    ),
    Mutant(
        "compressed text is read as text",
        "t2t_keras/corpus.py",
        "                        _refuse_what_is_not_text(path, line)\n",
        "",
        ("tests/test_corpus.py::test_a_file_that_is_not_text_or_is_in_utf16_is_told_with_what_makes_text_of_it",),
    ),
    Mutant(
        'too small a vocabulary is answered by "give more text"',
        "t2t_keras/tokenizer.py",
        "required_chars. ",
        "required_words. ",
        ("tests/test_tokenizer.py::test_too_small_a_vocabulary_is_refused_with_the_smallest_that_can_be_learned",),
    ),
    Mutant(
        "a message of the client repeats a password",
        "t2t_keras/client.py",
        'ServerError(f"{self.shown} refused',
        'ServerError(f"{self.server} refused',
        ("tests/test_client.py::test_no_message_repeats_a_password",),
    ),
    Mutant(
        "an address that is refused is repeated with its password",
        "t2t_keras/client.py",
        "Received: {self.shown}.",
        "Received: {self.server}.",
        ("tests/test_client.py::test_a_password_in_an_address_that_is_refused_is_not_repeated",),
    ),
    Mutant(
        "a server's words are repeated with the password in them",
        "t2t_keras/client.py",
        "message.replace(self.server, self.shown)",
        "message",
        ("tests/test_client.py::test_no_message_repeats_a_password",),
    ),
    Mutant(
        "a second dispatcher shares the port",
        "tools/data_service.py",
        "    data_service.check_free(_PORT.value)\n",
        "",
        ("tests/test_data_service.py::test_a_second_dispatcher_or_worker_at_a_port_that_is_taken_is_refused_in_a_line",),
    ),
    Mutant(
        "the check of a port shares it",
        "t2t_keras/data_service.py",
        "dualstack_ipv6=dual)",
        "dualstack_ipv6=dual, reuse_port=True)",
        ("tests/test_data_service.py::test_a_port_that_is_taken_is_refused_and_free_when_it_is_given_back",),
    ),
    Mutant(
        "as localhost the data service listens everywhere",
        "tools/data_service.py",
        "    restrict(_HOST.value, _PORT.value)\n",
        "",
        ("tests/test_data_service.py::test_as_localhost_the_service_takes_calls_of_this_machine_alone",),
    ),
    Mutant(
        "one listener of the port alone is closed to others",
        "t2t_keras/data_service.py",
        'socket.SO_BINDTODEVICE, b"lo")',
        'socket.SO_BINDTODEVICE, b"lo")\n                        return',
        ("tests/test_data_service.py::test_a_port_that_is_kept_local_takes_calls_of_this_machine_alone",),
    ),
    Mutant(
        "nobody is warned of a data service that listens everywhere",
        "tools/data_service.py",
        "            file=sys.stderr,",
        "            file=sys.stdout,",
        ("tests/test_data_service.py::test_under_another_name_the_service_warns_that_it_listens_everywhere",),
    ),
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
