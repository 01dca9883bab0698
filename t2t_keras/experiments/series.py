"""Trains runs one after another and scores each. After an interruption, it resumes where it was."""

import contextlib
import dataclasses
import pathlib
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import keras

from t2t_keras.config import TrainConfig, options_with
from t2t_keras.data import prepare, shards
from t2t_keras.runs import checkpoint, data_folder, run_options
from t2t_keras.runs.run_start import Start, is_same
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system.files import SUBWORDS
from t2t_keras.system.log import logger
from t2t_keras.system.tensorflow import without_retracing_warnings
from t2t_keras.training import run
from t2t_keras.training.loop import NotFiniteError
from t2t_keras.training.state import TrainState

# Options of training that may differ among the runs of a table: they change nothing that is scored, or as little as
# another machine does.
WITHOUT_EFFECT = options_with(TrainConfig, "affects", "nothing")


class Scored(Protocol):
    """The result of a run: the seconds that it took, and the options that determine the result. Its text has the
    scores.
    """

    seconds: float
    options: dict


def determining(options: run_options.Options, checkpoint: str = "") -> dict:
    """Returns the options that determine the scores of a run, by name. Scores of the checkpoint "latest" depend on
    fewer options than those of an average or the best.
    """
    without = set(WITHOUT_EFFECT)
    if checkpoint == "latest":
        without.update(options_with(TrainConfig, "affects", "averages"))
        if not options.train.patience:
            without |= {"valid_steps", "valid_sentences"}
    training = {name: value for name, value in vars(options.train).items() if name not in without}
    # Files are in the data folder.
    data = {"builtin_pairs": options.data.builtin_pairs} if options.data.dataset == "builtin" else {}
    return dataclasses.asdict(options.model) | training | data


def undecided(options: run_options.Options) -> set[str]:
    """Returns the names of the options that the text or the machine decides when a run is trained."""
    names = {"train_steps"} if options.train.epochs else set()
    values = vars(options.model) | vars(options.train)
    return names | {name for name in ("vocab_size", "length_buckets") if not values.get(name)}


def is_current(
    result: Scored | None, folder: pathlib.Path, options: run_options.Options, determining: Callable
) -> bool:
    """Returns whether a run has its result, and needs no further updates. `determining` maps `Options` to those that
    determine the result, by name.

    Raises `ValueError` if the run, finished or not, has other options or other data than those wanted, or, without a
    result, more updates.
    """
    checkpoints = checkpoint.kept(folder)
    if not result and not checkpoints:
        return False
    wanted = determining(options)
    # A result lacks the options that came after it.
    before = determining(SavedRun.open(folder).options) | (result.options if result else {})
    compared = [name for name in wanted if name in before and name not in undecided(options)]
    changed = [name for name in compared if not is_same(name, before[name], wanted[name])]
    updates = 0 if result or options.train.epochs else checkpoint.step_of(checkpoints[-1])
    if updates > wanted["train_steps"]:
        raise ValueError(
            f"{folder} has had {updates} updates, more than train_steps={wanted['train_steps']}. Give `train_steps` of "
            f"{updates} or more, or another `output_dir`."
        )
    [length] = changed if changed in (["train_steps"], ["epochs"]) else [None]
    # A result of `train_steps`, whose `epochs` are 0, is none of a run of epochs.
    is_longer = length and wanted[length] > before[length] and (before[length] or not result)
    if is_longer or length == "train_steps" and not result:
        return False
    if changed:
        received = ", ".join(f"{name}={wanted[name]} ({folder}: {before[name]})" for name in changed)
        raise ValueError(
            f"Expected the options that {folder.name} was trained with. Received: {received}. Give another "
            "`output_dir`."
        )
    if result:
        check_data(folder, options)
    return result is not None


def check_data(folder: pathlib.Path, options: run_options.Options) -> None:
    """Checks that a run was trained on the data of some options, if these are prepared."""
    data = options.data_folder(folder)
    if (data / data_folder.CORPUS).exists():
        source_subwords = data_folder.source_subwords_in(data)
        SavedRun.open(folder).check_data(data / SUBWORDS, data / "train" / shards.RECORDS, source_subwords)
        prepare.Preparation.of(options, data).check()


def _is_trained(folder: pathlib.Path, options: run_options.Options) -> bool:
    """Returns whether a run has had all its updates, and only its scores are missing."""
    updates = Start.of(folder, options).options.train.train_steps
    return any(checkpoint.step_of(path) >= updates for path in checkpoint.kept(folder))


def differing(runs: Iterable[run_options.Options]) -> set[str]:
    """Returns the names of the options that are not the same in all runs."""
    values = [{name: value for group in run.groups.values() for name, value in vars(group).items()} for run in runs]
    return {name for name in values[0] if len({own.get(name) for own in values}) > 1}


def _duration(seconds: float) -> str:
    hours, minutes = seconds / 3600, round(seconds / 60)
    if hours >= 1:
        return f"about {hours:.1f} h"
    return f"about {minutes} min" if minutes else "less than a minute"


def train(
    runs: dict[str, run_options.Options],
    output_dir: pathlib.Path,
    results: dict[str, Scored | None],
    score: Callable[[str, TrainState], Scored],
    *,
    strategy,
    quiet: Callable = contextlib.nullcontext,
) -> Iterator[Scored]:
    """Trains and scores runs, except those that have their result. A run that fails does not keep the others from
    training. Yields the result of each run that was trained, in the order of `runs`.

    Args:
        runs: the options of each run, by its folder in `output_dir`.
        results: the result of each run, or `None`; those of the runs that are trained are added.
        score: scores the run of a name, given its state.
        strategy, quiet: see `run.train`.

    Raises:
        ValueError: after all other runs, the updates of a run were not finite.
        StoppedError: a run was stopped early and has saved its state.
        FileNotFoundError, ValueError, BlockingIOError: see `run.train`.
    """
    started, failed, compared = time.monotonic(), [], differing(runs.values())
    seconds = [result.seconds for result in results.values() if result]
    left = [name for name, options in runs.items() if not results[name] and not _is_trained(output_dir / name, options)]
    for number, (name, options) in enumerate(runs.items(), 1):
        if results[name] is None:
            estimate = ""
            if left and seconds:
                estimate = f"; {_duration(len(left) * statistics.mean(seconds))} left for {len(left)} run(s)"
            logger.info(f"Run {number} of {len(runs)}: {name}{estimate}.")
            left = [other for other in left if other != name]
            keras.backend.clear_session()  # Frees the graphs of the run before.
            try:
                start = Start.of(output_dir / name, options)
                with without_retracing_warnings():  # Each run has functions of its own from the same lines.
                    state = run.train(start, compared=compared, strategy=strategy, quiet=quiet, started=started)
            except NotFiniteError as error:
                logger.error(f"{name}: {error}")
                failed.append(name)
                continue
            with quiet(), without_retracing_warnings():
                results[name] = score(name, state)
            seconds.append(results[name].seconds)
            yield results[name]
        logger.info(f"{name}: {results[name]}.")
    if failed:
        others = f"{output_dir} has the table of the others. " if any(results.values()) else ""
        raise ValueError(
            f"The updates of {', '.join(failed)} were not finite; see the messages above. {others}Lower the learning "
            "rate of all runs, in another `output_dir`."
        )
