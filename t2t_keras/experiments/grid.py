"""Trains variants of a model with several seeds each, and scores every run on the validation set and on test sets.

A run is named by its folder in that of the table: ROW/seedN, or ROW where each row has one run.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import pathlib
import statistics
from collections.abc import Callable, Iterator

from t2t_keras.config import STARTS, DecodeConfig
from t2t_keras.data import prepare
from t2t_keras.decoding.loading import load
from t2t_keras.evaluation.evaluate import evaluate
from t2t_keras.experiments import grid_report, series
from t2t_keras.experiments.grid_report import BASE, METRICS, VALID, Result
from t2t_keras.reporting import figures
from t2t_keras.reporting.event_files import read_scalars
from t2t_keras.runs import run_options, saved_run
from t2t_keras.runs.run_start import LENGTHS, is_same
from t2t_keras.system.files import read_json, write_whole
from t2t_keras.system.log import logger
from t2t_keras.text.tags import with_tags_checked
from t2t_keras.training.state import TrainState

RESULTS = "*/seed*/grid.json"  # Where the runs have their results, in the folder of the table.


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


_TYPES = {field.name: (int, float) if field.type is float else field.type for field in dataclasses.fields(Result)}


def _read_result(path: pathlib.Path) -> Result:
    values = read_json(path)
    whole = values.keys() == _TYPES.keys() and all(isinstance(values[name], kind) for name, kind in _TYPES.items())
    scores = [of_test.get(metric) for of_test in values["scores"].values() for metric in METRICS] if whole else []
    if not whole or VALID not in values["scores"] or not all(isinstance(score, int | float) for score in scores):
        raise ValueError(
            f"{path} is not the result of a run. Remove it, and run the same command again to score the run."
        )
    return Result(**values)


def read_results(output_dir: pathlib.Path, results: str = RESULTS) -> dict[str, Result]:
    """Reads the results of all runs in the folder of a table, by the names of the runs; `results` is the pattern of
    their place there. A file that is damaged, or lies in the folder of another row, is an error.
    """
    by_name = {}
    for path in sorted(output_dir.glob(results)):
        name = path.parent.relative_to(output_dir).as_posix()
        by_name[name] = result = _read_result(path)
        row, _, seed = name.partition("/")
        if result.row != row or seed not in ("", f"seed{result.seed}"):
            whose = f"{result.row} with seed {result.seed}" if seed else result.row
            raise ValueError(f"{path} is the result of {whose}. Rename {path.parent}, or move it out of {output_dir}.")
    return by_name


def _check_alike(
    name: str, result: Result, rows: dict[str, dict], base: run_options.Options, folder: pathlib.Path
) -> None:
    """Checks that a run of an earlier command differs from the base of this one as its row says."""
    expected = "Expected the options that the other runs of the table were trained with"
    if (now := rows.get(result.row, result.changes)) != result.changes:
        changed = [name for name in now | result.changes if now.get(name) != result.changes.get(name)]
        own = ({name: changes[name] for name in changed if name in changes} for changes in (now, result.changes))
        now, before = (grid_report.flags(changes) or "no options" for changes in own)
        raise ValueError(
            f"{expected}. Received: {now} for {result.row} ({folder / name}: {before}). Give the row another name, or "
            "another `output_dir`."
        )
    if result.changes.keys() & STARTS:  # Such rows take options from another run.
        return  # Its other options are those of that run.
    wanted, left_out = series.determining(base), {"seed", *result.changes, *series.WITHOUT_EFFECT}
    left_out |= series.undecided(base)
    if result.changes.keys() & set(LENGTHS):  # A run has one of them.
        left_out |= set(LENGTHS)
    if changed := [
        option
        for option, value in result.options.items()
        if option not in left_out and not is_same(option, value, wanted.get(option))
    ]:
        received = ", ".join(
            f"{option}={wanted.get(option)} ({folder / name}: {result.options[option]})" for option in changed
        )
        raise ValueError(f"{expected}. Received: {received}. Give another `output_dir`.")


def train(
    rows: dict[str, dict],
    runs: dict[str, run_options.Options],
    output_dir: pathlib.Path,
    scoring: Scoring,
    results: str = RESULTS,
    *,
    strategy,
    quiet: Callable = contextlib.nullcontext,
) -> Iterator[Result]:
    """Trains and scores runs, except those that have their result. Runs that are trained, but were scored otherwise,
    are scored again.

    A result that is not the wanted one is removed first, so that the table does not mix the two. Yields the result of
    each run that was trained or scored, in the order of `runs`. Raises the errors of `series.is_current` and
    `series.train`.

    Args:
        rows: the options that each row changes, by its name; base changes none.
        runs: the options of each run, by its name.
        output_dir: the folder of the table.
        scoring: how to score them.
        results: see `read_results`.
        strategy, quiet: see `run.train`.
    """
    described, file = scoring.described(), pathlib.PurePath(results).name
    determining = functools.partial(series.determining, checkpoint=scoring.checkpoint)

    def finished(name: str) -> Result | None:
        result = before.get(name)
        current = series.is_current(result, output_dir / name, runs[name], determining)
        as_now = current and (result.scoring, result.changes) == (described, rows[result.row])
        return result if as_now else None

    def score(name: str, state: TrainState) -> Result:
        folder, row = output_dir / name, name.partition("/")[0]
        options = saved_run.SavedRun.open(folder).options  # With the size of the vocabulary, if the text decides it.
        translator = load(folder, scoring.checkpoint, **dataclasses.asdict(scoring.search))
        tests = {
            test: (list(with_tags_checked(source, options.data.tags, logger.warning)), *references)
            for test, (source, *references) in scoring.tests.items()
        }
        texts = {VALID: prepare.read_text(options.data_folder(folder), "valid")} | tests
        how = {"lowercase": scoring.lowercase, "tokenize": scoring.tokenize}
        scores = {test: evaluate(translator, *sides, **how)[1] for test, sides in texts.items()}
        speeds = read_scalars(folder / saved_run.LOGS).get("utilization/target_tokens_per_second", {}).values()
        result = Result(
            row=row,
            changes=rows[row],
            seed=options.train.seed,
            updates=state.step,
            parameters=options.model.num_weights,
            seconds=state.seconds,
            flops=state.flops,
            target_tokens_per_second=statistics.median(speeds or [math.nan]),
            scores={test: {metric: of_test[metric] for metric in METRICS} for test, of_test in scores.items()},
            signature=scores[VALID]["signature"],
            options=determining(options),
            scoring=described,
        )
        write_whole(folder / file, json.dumps(dataclasses.asdict(result), indent=2).encode() + b"\n")
        return result

    base = min(runs.items(), key=lambda run: run[0].partition("/")[0] != BASE)[1]  # Or the first, without base.
    before = read_results(output_dir, results)
    others = {name: result for name, result in before.items() if name not in runs}
    for name, result in others.items():
        _check_alike(name, result, rows, base, output_dir)
    current = {name: finished(name) for name in runs}
    for name, result in current.items():
        if not result:
            (output_dir / name / file).unlink(missing_ok=True)
    if left_out := [name for name, result in others.items() if result.scoring != described]:
        logger.warning(
            f"The table leaves out {', '.join(left_out)}, scored in another way. Name their rows and seeds to score "
            "them again."
        )
    yield from series.train(runs, output_dir, current, score, strategy=strategy, quiet=quiet)


def write(output_dir: pathlib.Path, scoring: Scoring) -> list[str]:
    """Writes the table of all runs in the folder of `train` that are scored in this way. Returns its files, if any."""
    described = scoring.described()
    results = [result for result in read_results(output_dir).values() if result.scoring == described]
    if not results:
        return []
    groups = grid_report.grouped(results)
    files = {
        grid_report.TABLE: grid_report.as_markdown(groups).encode(),
        grid_report.CSV: grid_report.as_csv(groups).encode(),
        grid_report.PICTURE: figures.encoded(grid_report.picture(groups), "png", 130),
    }
    for name, content in files.items():
        write_whole(output_dir / name, content)
    return list(files)
