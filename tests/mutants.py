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
        tests: pytest node ids from the root; at least one must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    # Training: one update, its loop, what it logs.
    Mutant(
        "the finite check ignores the gradient",
        "t2t_keras/update.py",
        'tf.logical_and(tf.math.is_finite(norm), tf.math.is_finite(sums["smoothed_loss"]))',
        'tf.math.is_finite(sums["smoothed_loss"])',
        ("tests/test_update.py::test_an_update_is_skipped_where_the_loss_or_the_gradient_alone_is_not_finite",),
    ),
    Mutant(
        "the finite check ignores the loss",
        "t2t_keras/update.py",
        'tf.logical_and(tf.math.is_finite(norm), tf.math.is_finite(sums["smoothed_loss"]))',
        "tf.math.is_finite(norm)",
        ("tests/test_update.py::test_an_update_is_skipped_where_the_loss_or_the_gradient_alone_is_not_finite",),
    ),
    Mutant(
        "the loss is not multiplied by the loss scale",
        "t2t_keras/update.py",
        'loss = sums["smoothed_loss"] * scale',
        'loss = sums["smoothed_loss"]',
        ("tests/test_update.py::test_the_loss_scale_is_divided_out_of_the_step",),
    ),
    Mutant(
        "gradients are not divided by the loss scale",
        "t2t_keras/update.py",
        'scale = 1 / (sums["tokens"] * loss_scale.scale)',
        'scale = 1 / sums["tokens"]',
        ("tests/test_update.py::test_the_loss_scale_is_divided_out_of_the_step",),
    ),
    Mutant(
        "there is no loss scale at all",
        "t2t_keras/update.py",
        'strategy.run(replica_gradients, (batch, step, loss_scale.scale)))\n        scale = 1 / (sums["tokens"] * loss_scale.scale)',
        'strategy.run(replica_gradients, (batch, step, tf.constant(1.0))))\n        scale = 1 / sums["tokens"]',
        ("tests/test_update.py::test_a_float16_transformer_has_the_gradient_of_float32_by_its_loss_scale",),
    ),
    Mutant(
        "the model is float32 whatever --dtype says",
        "t2t_keras/experiment.py",
        "dtype=_policy(train_config.dtype)",
        'dtype=_policy("float32")',
        ("tests/test_experiment.py::test_a_run_computes_in_the_dtype_that_was_asked_for_and_keeps_its_weights_in_float32",),
    ),
    Mutant(
        "training does not rehearse",
        "t2t_keras/training.py",
        "self._unless_told(functools.partial(_rehearse, self.strategy, self.update, config, self.folder, self.say))",
        "pass",
        ("tests/test_training.py::test_the_largest_updates_are_rehearsed_before_the_first_and_at_each_start",),
    ),
    Mutant(
        "training ignores --device_tokens",
        "t2t_keras/training.py",
        "**reading), config.device_tokens, parts)",
        "**reading), 10**6, parts)",
        ("tests/test_options.py::test_an_option_has_the_effect_that_it_names[device_tokens]",),
    ),
    Mutant(
        "validation ignores --device_tokens",
        "t2t_keras/experiment.py",
        "devices.distribute(strategy, dataset, config.device_tokens)",
        "devices.distribute(strategy, dataset, 10**6)",
        ("tests/test_options.py::test_an_option_has_the_effect_that_it_names[device_tokens-1]",),
    ),
    Mutant(
        "--batch_parts is ignored",
        "t2t_keras/training.py",
        "config.batch_tokens, config.batch_parts)\n    reading",
        "config.batch_tokens, 1)\n    reading",
        ("tests/test_options.py::test_an_option_has_the_effect_that_it_names[batch_parts]",),
    ),
    Mutant(
        "--rate_factor is ignored",
        "t2t_keras/experiment.py",
        "train_config.warmup_steps, train_config.rate_factor)",
        "train_config.warmup_steps)",
        ("tests/test_options.py::test_an_option_has_the_effect_that_it_names[rate_factor]",),
    ),
    Mutant(
        "--deterministic is ignored",
        "t2t_keras/experiment.py",
        "tf.config.experimental.enable_op_determinism()",
        "pass",
        ("tests/test_options.py::test_an_option_has_the_effect_that_it_names[deterministic]",),
    ),
    Mutant(
        "--valid_sentences is ignored",
        "t2t_keras/experiment.py",
        "lines[: config.valid_sentences]",
        "lines",
        ("tests/test_options.py::test_an_option_has_the_effect_that_it_names[valid_sentences]",),
    ),
    Mutant(
        "BLEU in TensorBoard is of the first weights",
        "t2t_keras/experiment.py",
        "dataclasses.replace(decode_config, beam_size=1))",
        "dataclasses.replace(decode_config, beam_size=1), frozen=True)",
        ("tests/test_experiment.py::test_bleu_in_training_is_of_greedy_translations_by_the_weights_of_the_moment",),
    ),
    Mutant(
        "BLEU in TensorBoard is of beam search",
        "t2t_keras/experiment.py",
        "Translator(model, tokenizer, dataclasses.replace(decode_config, beam_size=1))",
        "Translator(model, tokenizer, decode_config)",
        ("tests/test_experiment.py::test_bleu_in_training_is_of_greedy_translations_by_the_weights_of_the_moment",),
    ),
    Mutant(
        "BLEU in TensorBoard is of lines in reverse",
        "t2t_keras/experiment.py",
        "for result in translate_lines(translator, sources)]\n            metrics",
        "for result in translate_lines(translator, sources)][::-1]\n            metrics",
        ("tests/test_experiment.py::test_bleu_in_training_is_of_greedy_translations_by_the_weights_of_the_moment",),
    ),
    Mutant(
        "a good point beside a torn record is lost",
        "t2t_keras/events.py",
        "                whole = False",
        "                whole, kept = False, kept[:-1]",
        ("tests/test_events.py::test_a_record_that_a_kill_cut_off_is_forgotten_and_all_before_it_stay",),
    ),
    Mutant(
        "the training loss in TensorBoard is smoothed",
        "t2t_keras/progress.py",
        'loss = measured["loss"]',
        'loss = measured["smoothed_loss"]',
        ("tests/test_training.py::test_the_log_has_the_mean_losses_per_token_and_the_padding_since_the_last_point",),
    ),
    Mutant(
        "the negative log likelihood has a gradient",
        "t2t_keras/loss.py",
        "(p - q) * upstream[0][..., None]",
        "(p - q) * ops.sum(upstream, axis=0)[..., None]",
        ("tests/test_loss.py::test_the_negative_log_likelihood_is_the_same_whatever_epsilon_and_has_no_gradient",),
    ),
    Mutant(
        "sums of an older version go into the next point",
        "t2t_keras/progress.py",
        "if self.measured.keys() != _nothing_measured().keys():",
        "if not self.measured:",
        ("tests/test_training.py::test_what_an_older_version_measured_is_left_out_of_the_next_point",),
    ),
    Mutant(
        "a redirected run writes a bar",
        "t2t_keras/console.py",
        "disable=not (shown and terminal)",
        "disable=not shown",
        ("tests/test_console.py::test_redirected_a_run_writes_one_line_with_the_time_at_each_log_interval",),
    ),
    Mutant(
        "a redirected run writes no lines",
        "t2t_keras/console.py",
        "self._lines = shown and not terminal",
        "self._lines = False",
        ("tests/test_console.py::test_redirected_a_run_writes_one_line_with_the_time_at_each_log_interval",),
    ),
    Mutant(
        "the bar has no figures",
        "t2t_keras/console.py",
        "self._bar.set_postfix(figures, refresh=False)",
        "pass",
        ("tests/test_console.py::test_in_a_terminal_a_bar_shows_the_same_figures",),
    ),
    Mutant(
        "one GPU of several is used",
        "t2t_keras/devices.py",
        "MirroredStrategy(gpus)",
        "MirroredStrategy(gpus[:1])",
        ("tests/test_devices.py::test_with_gpus_a_strategy_is_over_all_of_them_whatever_the_cpu_devices",),
    ),
    Mutant(
        "a cluster of one is several workers",
        "t2t_keras/devices.py",
        "if sum(map(len, _cluster().values())) > 1:",
        "if sum(map(len, _cluster().values())) > 0:",
        ("tests/test_devices.py::test_without_a_gpu_a_strategy_is_over_as_many_virtual_cpu_devices_as_asked_for",),
    ),
    Mutant(
        "--cpu_devices is ignored",
        "t2t_keras/devices.py",
        "for index in range(cpu_devices)])",
        "for index in range(1)])",
        ("tests/test_devices.py::test_without_a_gpu_a_strategy_is_over_as_many_virtual_cpu_devices_as_asked_for",),
    ),
    # Survival: kills, signals, exact resume, learning.
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
