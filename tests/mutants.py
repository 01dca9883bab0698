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
    Mutant(
        "alignments are of the last layer",
        "t2t_keras/transformer.py",
        "layers = self.decoder[:-1] or self.decoder",
        "layers = self.decoder",
        ("tests/test_oracle.py::test_alignments_of_a_padded_batch_are_the_papers_attention_in_the_last_layer_but_one",),
    ),
    Mutant(
        "alignments are of one head",
        "t2t_keras/transformer.py",
        'return ops.mean(ops.cast(weights, "float32"), axis=1)',
        'return ops.cast(weights, "float32")[:, 0]',
        ("tests/test_oracle.py::test_alignments_of_a_padded_batch_are_the_papers_attention_in_the_last_layer_but_one",),
    ),
    Mutant(
        "alignments look at later target words",
        "t2t_keras/transformer.py",
        "x = layer.look_back(x, queries, keys_values, mask)\n",
        "x = layer.look_back(x, queries, keys_values, ops.ones_like(mask))\n",
        ("tests/test_oracle.py::test_alignments_of_a_padded_batch_are_the_papers_attention_in_the_last_layer_but_one",),
    ),
    Mutant(
        "alignments leave out the layers before look up",
        "t2t_keras/transformer.py",
        "if index < len(layers) - 1:",
        "if False:",
        ("tests/test_oracle.py::test_alignments_of_a_padded_batch_are_the_papers_attention_in_the_last_layer_but_one",),
    ),
    Mutant(
        "evaluate.py ignores --lowercase",
        "tools/evaluate.py",
        '"lowercase": _LOWERCASE.value',
        '"lowercase": False',
        ("tests/test_tools.py::test_existing_translations_are_scored_as_by_sacrebleu_blank_lines_too",),
    ),
    Mutant(
        "evaluate.py ignores --tokenize",
        "tools/evaluate.py",
        '"tokenize": _TOKENIZE.value}',
        '"tokenize": "13a"}',
        ("tests/test_tools.py::test_existing_translations_are_scored_as_by_sacrebleu_blank_lines_too",),
    ),
    Mutant(
        "experiment.evaluate ignores tokenize",
        "t2t_keras/experiment.py",
        "lowercase=lowercase, tokenize=tokenize),",
        "lowercase=lowercase),",
        ("tests/test_experiment.py::test_scores_are_of_the_lines_that_translating_gives",),
    ),
    Mutant(
        "evaluation.scores ignores lowercase for chrF",
        "t2t_keras/evaluation.py",
        "**chrf(hypotheses, *references, lowercase=lowercase),",
        "**chrf(hypotheses, *references),",
        ("tests/test_evaluation.py::test_a_set_of_scores_is_counted_as_each_of_them",),
    ),
    Mutant(
        "evaluate.py takes the first reference only",
        "tools/evaluate.py",
        "for name in _REFERENCE.value]",
        "for name in _REFERENCE.value[:1]]",
        ("tests/test_tools.py::test_existing_translations_are_scored_as_by_sacrebleu_blank_lines_too",),
    ),
    Mutant(
        "evaluate.py leaves out blank lines",
        "tools/evaluate.py",
        "corpus.Report(), keep_blank=True)",
        "corpus.Report())",
        ("tests/test_tools.py::test_existing_translations_are_scored_as_by_sacrebleu_blank_lines_too",),
    ),
    Mutant(
        "ROUGE is by the first reference",
        "t2t_keras/evaluation.py",
        "scorer.score_multi(known, hypothesis)",
        "scorer.score(known[0], hypothesis)",
        ("tests/test_evaluation.py::test_rouge_of_several_references_is_by_the_best_of_each_sentence",),
    ),
    Mutant(
        "perplexity is of the first reference",
        "t2t_keras/experiment.py",
        "for side in references for pair",
        "for side in references[:1] for pair",
        ("tests/test_experiment.py::test_perplexity_is_of_all_references_and_leaves_out_pairs_with_a_blank_side",),
    ),
    Mutant(
        "an unknown language is taken for English",
        "t2t_keras/evaluation.py",
        "if language not in known:",
        "if False:",
        ("tests/test_evaluation.py::test_what_cannot_be_counted_here_is_told_before_there_is_anything_to_count",),
    ),
    Mutant(
        "evaluate.py finds a missing tokenizer after translating",
        "tools/evaluate.py",
        "evaluation.require(tokenize=_TOKENIZE.value, compound_split=_COMPOUND_SPLIT.value, rouge=_ROUGE.value)",
        "pass",
        ("tests/test_tools.py::test_evaluating_finds_out_what_cannot_be_before_it_loads_a_model",),
    ),
    Mutant(
        "evaluate.py writes Infinity and NaN",
        "tools/evaluate.py",
        "print(json.dumps(finite, allow_nan=False))",
        "print(json.dumps(scores))",
        ("tests/test_tools.py::test_a_figure_that_is_not_finite_is_null_in_json",),
    ),
    Mutant(
        "a file that cannot be written is told at the end",
        "t2t_keras/lines.py",
        'file = partial.open("wb")',
        'file = open("/dev/null", "wb")',
        ("tests/test_lines.py::test_a_file_that_cannot_be_written_is_told_before_it_is",),
    ),
    Mutant(
        "an unfinished file takes its name",
        "t2t_keras/lines.py",
        "partial = path if direct else path.with_name",
        "partial = path if True else path.with_name",
        ("tests/test_lines.py::test_a_file_gets_its_name_when_all_is_written",),
    ),
    Mutant(
        "what was translated before an error is lost",
        "t2t_keras/lines.py",
        "if not direct and partial.stat().st_size:",
        "if False:",
        ("tests/test_lines.py::test_what_was_written_before_an_error_is_kept_beside_the_file",),
    ),
    Mutant(
        "translate.py --n_best prints the worst first",
        "tools/translate.py",
        "strict=True))[: _N_BEST.value]:",
        "strict=True))[: _N_BEST.value][::-1]:",
        ("tests/test_tools.py::test_n_best_lines_are_numbered_scored_and_best_first",),
    ),
    Mutant(
        "translate.py --flush reads ahead",
        "tools/translate.py",
        "read_ahead=1 if at_keyboard or _FLUSH.value else 4096",
        "read_ahead=1 if at_keyboard else 4096",
        ("tests/test_tools.py::test_flushing_answers_a_line_before_the_next_comes",),
    ),
    Mutant(
        "translate.py names the line before the one that is cut",
        "tools/translate.py",
        'said = f"Line {number}:',
        'said = f"Line {number - 1}:',
        ("tests/test_tools.py::test_a_line_that_is_cut_is_told_by_its_number",),
    ),
    Mutant(
        "a source that just fits is said to be cut",
        "t2t_keras/tokenizer.py",
        "(ids.row_lengths() > longest) | unread",
        "(ids.row_lengths() >= longest) | unread",
        ("tests/test_translator.py::test_a_source_with_more_sub_words_than_max_input_is_truncated",),
    ),
    Mutant(
        "translate.py shows progress between translations on a terminal",
        "tools/translate.py",
        "hidden = True if at_keyboard or target.isatty() else None",
        "hidden = None",
        ("tests/test_tools.py::test_progress_is_shown_on_a_terminal_that_the_translations_do_not_go_to",),
    ),
    Mutant(
        "a negative alpha is taken",
        "t2t_keras/config.py",
        "0 <= self.alpha < 100",
        "abs(self.alpha) < 100",
        ("tests/test_config.py::test_an_invalid_option_is_refused_with_its_name_and_value",),
    ),
    Mutant(
        "wrong options are told after TensorFlow is imported",
        "t2t_keras/flags.py",
        "    DecodeConfig(**search)\n",
        "",
        ("tests/test_tools.py::test_a_wrong_option_is_told_in_one_line_and_at_once",),
    ),
    Mutant(
        "help of an installed program names the file of a checkout",
        "t2t_keras/flags.py",
        'if pathlib.Path(sys.argv[0]).name.startswith("t2t-"):',
        "if False:",
        ("tests/test_tools.py::test_help_of_an_installed_program_shows_its_own_name",),
    ),
    Mutant(
        "TensorFlow's notes are not held back",
        "t2t_keras/flags.py",
        "os.dup2(grep.stdin.fileno(), 2)",
        "pass",
        ("tests/test_flags.py::test_what_tensorflow_says_on_every_machine_is_held_back_and_nothing_else",),
    ),
    Mutant(
        "TensorFlow's notes are held back from who asked for them",
        "t2t_keras/flags.py",
        'if _level_is_set or not shutil.which("grep"):',
        'if not shutil.which("grep"):',
        ("tests/test_flags.py::test_who_sets_how_much_tensorflow_says_gets_all_of_it",),
    ),
)


def _copy(folder: pathlib.Path) -> pathlib.Path:
    ignored = shutil.ignore_patterns(".git", ".venv*", "runs", "build", "dist", "__pycache__", "*.egg-info", ".*_cache")
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
