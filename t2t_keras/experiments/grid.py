"""Trains variants of a model with several seeds each, and scores every run on the validation set and on test sets."""

import contextlib
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterator

from t2t_keras.config import STARTS, DecodeConfig
from t2t_keras.data import prepare
from t2t_keras.decoding.loading import load
from t2t_keras.evaluation.evaluate import evaluate
from t2t_keras.experiments import grid_report, series
from t2t_keras.experiments.grid_report import BASE, METRICS, VALID, Result
from t2t_keras.runs import run_options
from t2t_keras.system.files import write_whole
from t2t_keras.system.log import logger
from t2t_keras.training.state import TrainState

RESULT = "grid.json"  # In the folder of a run.


@dataclasses.dataclass(frozen=True)
class Scoring:
    """How runs are scored.

    Attributes:
        search: its options.
        tests: sources and references of each test set, by its name.
        checkpoint: weights: average, best, latest, ema or the number of an update.
        lowercase: whether BLEU and chrF ignore case.
        tokenize: name of a sacreBLEU tokenizer.
    """

    search: DecodeConfig
    tests: dict[str, tuple[list[str], list[str]]]
    checkpoint: str
    lowercase: bool
    tokenize: str

    def described(self) -> dict:
        """Returns what scores depend on beside the weights, as JSON holds it; of texts their hashes."""
        tests = {name: hashlib.sha256(json.dumps(sides).encode()).hexdigest() for name, sides in self.tests.items()}
        return vars(self) | {"search": dataclasses.asdict(self.search), "tests": tests}


def read_result(folder: pathlib.Path) -> Result | None:
    """Reads the result of a run from its folder; `None` if there is none.

    Raises:
        ValueError: the file is damaged.
    """
    return series.read_result(folder / RESULT, Result)


def _read_results(output_dir: pathlib.Path) -> dict[str, Result]:
    """Reads the results of all runs in a folder, by the names of the runs."""
    paths = sorted(output_dir.glob(f"*/seed*/{RESULT}"))
    return {f"{path.parent.parent.name}/{path.parent.name}": read_result(path.parent) for path in paths}


def _check_alike(
    name: str, result: Result, rows: dict[str, dict], base: run_options.Options, folder: pathlib.Path
) -> None:
    """Checks that a run of an earlier command differs from the base of this one as its row says.

    Raises:
        ValueError: its row was another one, or other options differ.
    """
    expected = "Expected the options that the other runs of the table were trained with"
    if (now := rows.get(result.row, result.changes)) != result.changes:
        was, now = (grid_report.flags(changes) or "no options" for changes in (result.changes, now))
        raise ValueError(
            f"{expected}. Received: {now} for {result.row} ({folder / name}: {was}). Give the row another name."
        )
    if result.changes.keys() & STARTS:  # Such rows take options from another run.
        return  # Its other options are those of that run.
    wanted, left_out = series.determining(base), {"seed", *result.changes, *series.WITHOUT_EFFECT}
    if differ := [
        option for option, value in result.options.items() if option not in left_out and value != wanted.get(option)
    ]:
        received = ", ".join(
            f"{option}={wanted.get(option)} ({folder / name}: {result.options[option]})" for option in differ
        )
        raise ValueError(f"{expected}. Received: {received}. Give another `output_dir`.")


def train(
    rows: dict[str, dict],
    runs: dict[str, run_options.Options],
    output_dir: pathlib.Path,
    scoring: Scoring,
    *,
    strategy,
    quiet: Callable = contextlib.nullcontext,
) -> Iterator[Result]:
    """Trains and scores runs, except those that have their result. Runs that are trained, but were scored otherwise,
    are scored again.

    A result that is not the wanted one is removed first, so that the table does not mix the two.

    Args:
        rows: the options that each row changes, by its name; base changes none.
        runs: the options of each run, by its folder in `output_dir`, ROW/seedN.
        output_dir: see `runs`.
        scoring: how to score them.
        strategy: from `devices.make_strategy`.
        quiet: see `run.train`.

    Yields:
        The result of each run that was trained or scored, in the order of `runs`.

    Raises:
        ValueError: a run in `output_dir` has other options or other data, or, after all other runs, the updates of one
            were not finite.
        StoppedError, FileNotFoundError, BlockingIOError: see `series.train`.
    """
    described = scoring.described()

    def finished(name: str) -> Result | None:
        folder, options = output_dir / name, runs[name]
        result = read_result(folder)
        current = series.is_current(result, folder, options, series.determining)
        return result if current and result.scoring == described else None

    def score(name: str, state: TrainState) -> Result:
        options, folder, row = runs[name], output_dir / name, name.partition("/")[0]
        translator = load(folder, scoring.checkpoint, **dataclasses.asdict(scoring.search))
        texts = {VALID: prepare.read_text(options.data_folder(folder), "valid")} | scoring.tests
        count = {"lowercase": scoring.lowercase, "tokenize": scoring.tokenize}
        found = {test: evaluate(translator, *sides, **count)[1] for test, sides in texts.items()}
        result = Result(
            row=row,
            changes=rows[row],
            seed=options.train.seed,
            updates=state.step,
            parameters=options.model.num_weights,
            seconds=state.seconds,
            flops=state.flops,
            scores={test: {metric: scores[metric] for metric in METRICS} for test, scores in found.items()},
            signature=found[VALID]["signature"],
            options=series.determining(options),
            scoring=described,
        )
        write_whole(folder / RESULT, json.dumps(dataclasses.asdict(result), indent=2).encode() + b"\n")
        return result

    base = next(options for name, options in runs.items() if name.startswith(f"{BASE}/"))
    others = {name: result for name, result in _read_results(output_dir).items() if name not in runs}
    for name, result in others.items():
        _check_alike(name, result, rows, base, output_dir)
    results = {name: finished(name) for name in runs}
    for name, result in results.items():
        if not result:
            (output_dir / name / RESULT).unlink(missing_ok=True)
    if left_out := [name for name, result in others.items() if result.scoring != described]:
        logger.warning(
            f"The table leaves out {', '.join(left_out)}, scored in another way. Name their rows and seeds to score "
            "them again."
        )
    yield from series.train(runs, output_dir, results, score, strategy=strategy, quiet=quiet)


def write(output_dir: pathlib.Path, scoring: Scoring) -> list[str]:
    """Writes the table of all runs in a folder that are scored in one way.

    Args:
        output_dir: see `train`.
        scoring: the way.

    Returns:
        The names of the files; none without such a run.
    """
    described = scoring.described()
    results = [result for result in _read_results(output_dir).values() if result.scoring == described]
    if not results:
        return []
    groups = grid_report.grouped(results)
    files = {
        grid_report.TABLE: grid_report.as_markdown(groups).encode(),
        grid_report.CSV: grid_report.as_csv(groups).encode(),
        grid_report.PICTURE: grid_report.picture(groups),
    }
    for name, content in files.items():
        write_whole(output_dir / name, content)
    return list(files)
