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
    Mutant(
        "the folder is synced instead of the archive",
        "t2t_keras/checkpoint.py",
        "        _sync(unfinished)\n",
        "        _sync(path.parent)\n",
        ("tests/test_checkpoint.py::test_archive_manifest_and_names_are_on_disk_each_before_what_relies_on_it",),
    ),
    Mutant(
        "the folder is synced instead of the manifest",
        "t2t_keras/config.py",
        "        os.fsync(file.fileno())\n",
        "        os.fsync(os.open(path.parent, os.O_RDONLY))\n",
        ("tests/test_checkpoint.py::test_archive_manifest_and_names_are_on_disk_each_before_what_relies_on_it",),
    ),
    Mutant(
        "the names in the folder are not synced",
        "t2t_keras/checkpoint.py",
        "        _sync(path.parent)\n",
        "",
        ("tests/test_checkpoint.py::test_archive_manifest_and_names_are_on_disk_each_before_what_relies_on_it",),
    ),
    Mutant(
        "an old manifest is left beside a new archive",
        "t2t_keras/checkpoint.py",
        "        _manifest(path).unlink(missing_ok=True)",
        "        pass",
        ("tests/test_checkpoint.py::test_a_write_that_dies_between_archive_and_manifest_leaves_no_manifest_of_another_archive",),
    ),
    Mutant(
        "a copy of a checkpoint is taken for the run's",
        "t2t_keras/checkpoint.py",
        "_NAME.fullmatch(path.name)) for path",
        "_NAME.match(path.name)) for path",
        ("tests/test_checkpoint.py::test_what_somebody_keeps_in_the_folder_is_not_used_and_not_removed",),
    ),
    Mutant(
        "an array is read whatever its header says",
        "t2t_keras/checkpoint.py",
        "if expected and (shape, dtype.name) != expected:",
        "if False:",
        ("tests/test_checkpoint.py::test_an_array_is_read_only_if_its_header_is_a_weight_s",),
    ),
    Mutant(
        "an array is read though it is compressed",
        "t2t_keras/checkpoint.py",
        "if member.compress_type != zipfile.ZIP_STORED:",
        "if False:",
        ("tests/test_checkpoint.py::test_an_array_is_read_only_if_its_header_is_a_weight_s",),
    ),
    Mutant(
        "an array is read whatever its size",
        "t2t_keras/checkpoint.py",
        "if member.file_size != file.tell() + size:",
        "if False:",
        ("tests/test_checkpoint.py::test_an_array_is_read_only_if_its_header_is_a_weight_s",),
    ),
    Mutant(
        "a model is made however small its checkpoints are",
        "t2t_keras/checkpoint.py",
        "sizes[largest] < 4 * weights",
        "sizes[largest] < 0",
        ("tests/test_checkpoint.py::test_files_too_small_for_a_model_are_found_before_it_is_made",),
    ),
    Mutant(
        "--checkpoint=STEP takes a later one",
        "t2t_keras/checkpoint.py",
        "step_of(path) == int(which)",
        "step_of(path) >= int(which)",
        ("tests/test_checkpoint.py::test_the_weights_after_an_update_are_chosen_by_its_number",),
    ),
    Mutant(
        "load(dtype=) is ignored",
        "t2t_keras/experiment.py",
        "Transformer(model_config, dtype=dtype)",
        "Transformer(model_config)",
        ("tests/test_experiment.py::test_a_loaded_translator_calculates_in_the_type_that_was_asked_for",),
    ),
    Mutant(
        "resuming takes the defaults",
        "t2t_keras/run_folder.py",
        "read(model_dir) if is_run else Options(), {}",
        "Options(), {}",
        ("tests/test_run_folder.py::test_a_run_that_is_started_again_has_every_option_that_it_had",),
    ),
    Mutant(
        "resuming forgets the data folder",
        "t2t_keras/run_folder.py",
        "if data_dir else before.data_dir)",
        'if data_dir else "")',
        ("tests/test_run_folder.py::test_a_run_that_is_started_again_has_every_option_that_it_had",),
    ),
    Mutant(
        "only the first option that differs is named",
        "t2t_keras/run_folder.py",
        "in found if name in _FIXED | _FILES)",
        "in found[:1])",
        ("tests/test_run_folder.py::test_all_options_that_may_not_change_are_named_at_once_with_both_values",),
    ),
    Mutant(
        "the seed may change",
        "t2t_keras/run_folder.py",
        '*("seed", "batch_tokens"',
        '*("batch_tokens"',
        ("tests/test_run_folder.py::test_what_decides_weights_or_the_order_of_the_data_may_not_change",),
    ),
    Mutant(
        "options change in silence",
        "t2t_keras/experiment.py",
        "        say(changes)\n",
        "        pass\n",
        ("tests/test_experiment.py::test_a_dry_run_of_a_run_that_is_there_changes_none_of_its_options",),
    ),
    Mutant(
        "a dry run changes a run's options",
        "t2t_keras/experiment.py",
        "    if not (resumed and dry_run):\n",
        "    if True:\n",
        ("tests/test_experiment.py::test_a_dry_run_of_a_run_that_is_there_changes_none_of_its_options",),
    ),
    Mutant(
        "other workers keep their own options",
        "t2t_keras/experiment.py",
        "        if not (chief or dry_run):\n",
        "        if False:\n",
        ("tests/test_experiment.py::test_other_workers_take_the_options_of_the_chief_s_folder",),
    ),
    Mutant(
        "somebody's sub-words are replaced",
        "t2t_keras/run_folder.py",
        "        if there:\n",
        "        if False:\n",
        ("tests/test_run_folder.py::test_a_folder_with_somebody_s_own_files_is_refused",),
    ),
    Mutant(
        "somebody's config.json is replaced",
        "t2t_keras/experiment.py",
        "    run_folder.check(model_dir)\n    with lock",
        "    with lock",
        ("tests/test_experiment.py::test_a_folder_of_somebody_s_own_files_stays_as_it_is",),
    ),
    Mutant(
        "the hash of the sub-words is not compared",
        "t2t_keras/run_folder.py",
        "expected is not None and (received := describe(path)) != expected",
        "False",
        ("tests/test_run_folder.py::test_other_sub_words_are_refused_in_a_sentence",),
    ),
    Mutant(
        "loading does not look at the hash of the sub-words",
        "t2t_keras/experiment.py",
        "Tokenizer(run_folder.read_subwords(model_dir))",
        "Tokenizer((model_dir / run_folder.SUBWORDS).read_bytes())",
        ("tests/test_experiment.py::test_sub_words_of_another_run_are_refused_by_all_that_use_a_run",),
    ),
    Mutant(
        "the training records are not compared",
        "t2t_keras/run_folder.py",
        "if expected is not None and describe(records) != expected:",
        "if False:",
        ("tests/test_run_folder.py::test_a_run_does_not_go_on_with_other_data",),
    ),
    Mutant(
        "a lock follows a link",
        "t2t_keras/lock.py",
        "os.O_NOFOLLOW | ",
        "",
        ("tests/test_lock.py::test_a_lock_that_is_a_link_does_not_change_what_it_points_to",),
    ),
    Mutant(
        "a lock empties somebody's file",
        "t2t_keras/lock.py",
        'if not re.fullmatch(r"(process \\d+ on .*)?", holder):',
        "if False:",
        ("tests/test_lock.py::test_a_file_called_lock_that_is_somebody_s_own_is_left_alone",),
    ),
    Mutant(
        "an option has a value of any type",
        "t2t_keras/config.py",
        "        _require(fields, fits, field.name, _TYPES[field.type])\n",
        "",
        ("tests/test_config.py::test_a_value_of_another_type_is_refused_by_name_in_every_field",),
    ),
    Mutant(
        "a whole number has no limit",
        "t2t_keras/config.py",
        "_require(fields, value <= most,",
        "_require(fields, True,",
        ("tests/test_config.py::test_a_whole_number_that_no_machine_has_room_for_is_refused_in_every_field",),
    ),
    Mutant(
        "deep nesting ends in a traceback",
        "t2t_keras/config.py",
        "except (ValueError, RecursionError) as error",
        "except ValueError as error",
        ("tests/test_config.py::test_a_file_of_another_shape_is_refused_in_a_sentence",),
    ),
    Mutant(
        "a file of JSON is read whatever its size",
        "t2t_keras/config.py",
        "    if len(content) > MOST_JSON:\n",
        "    if False:\n",
        ("tests/test_config.py::test_a_file_of_another_shape_is_refused_in_a_sentence",),
    ),
    Mutant(
        "a shard may have any name",
        "t2t_keras/shards.py",
        " or written != _names(len(written))",
        "",
        ("tests/test_shards.py::test_an_info_that_was_not_written_by_this_program_is_told_by_its_name",),
    ),
    Mutant(
        "an index may hold any number",
        "t2t_keras/shards.py",
        "            if not (follows and",
        "            if False and not (follows and",
        ("tests/test_shards.py::test_a_number_that_cannot_be_in_the_index_is_told_with_its_line",),
    ),
    Mutant(
        "a checkpoint's state may have any types",
        "t2t_keras/progress.py",
        "if name not in start or not _is_like(value, start[name]):",
        "if name not in start:",
        ("tests/test_progress.py::test_a_state_of_other_fields_or_types_is_refused_in_a_sentence",),
    ),
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
