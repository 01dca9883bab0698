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
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system.files import SUBWORDS, read_json
from t2t_keras.system.log import logger
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


def determining(options: run_options.Options, without: Iterable[str] = ()) -> dict:
    """Returns the options that determine the scores of a run, by name.

    Args:
        options: of the run.
        without: further options of training that have no effect.
    """
    # Files are in the data folder.
    of_data = {"builtin_pairs": options.data.builtin_pairs} if options.data.dataset == "builtin" else {}
    of_training = {
        name: value for name, value in vars(options.train).items() if name not in {*WITHOUT_EFFECT, *without}
    }
    return dataclasses.asdict(options.model) | of_training | of_data


def read_result(path: pathlib.Path, kind: type, valid: Callable[[dict], bool] = lambda values: True):
    """Reads the result of a run from its file; `None` if there is none.

    Args:
        path: the file.
        kind: the dataclass of the result.
        valid: whether values of the right types make one.

    Raises:
        ValueError: the file is damaged.
    """
    if not path.exists():
        return None
    values, types = (
        read_json(path),
        {field.name: (int, float) if field.type is float else field.type for field in dataclasses.fields(kind)},
    )
    if (
        values.keys() != types.keys()
        or not all(isinstance(values[name], types[name]) for name in types)
        or not valid(values)
    ):
        raise ValueError(
            f"{path} is not the result of a run. Remove it, and run the same command again to score the run."
        )
    return kind(**values)


def is_current(
    result: Scored | None, folder: pathlib.Path, options: run_options.Options, determining: Callable
) -> bool:
    """Returns whether a run has its result, and needs no further updates.

    Args:
        result: of the run, if there is one.
        folder: its folder.
        options: those wanted.
        determining: `Options` → those that determine the result, by name.

    Raises:
        ValueError: the run, finished or not, has other options or other data, or, without a result, more updates than
            are wanted.
    """
    kept = checkpoint.kept(folder)
    if not result and not kept:
        return False
    wanted = determining(options)
    # Older results have fewer options.
    before = determining(SavedRun.open(folder).options) | (result.options if result else {})
    changed = [name for name in wanted if name in before and before[name] != wanted[name]]
    if not result and (updates := checkpoint.step_of(kept[-1])) > wanted["train_steps"]:
        raise ValueError(
            f"Expected `train_steps` of {updates} or more, the updates that {folder} has had. Received: "
            f"train_steps={wanted['train_steps']}. Give as many, or another `output_dir`."
        )
    if changed == ["train_steps"] and (not result or wanted["train_steps"] > before["train_steps"]):
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
    """Checks that a run was trained on the data of some options, if these are prepared.

    Raises:
        ValueError: the run, or the data folder, has other data.
    """
    data = options.data_folder(folder)
    if (data / data_folder.CORPUS).exists():
        own_source = data_folder.source_subwords_in(data)
        SavedRun.open(folder).check_data(data / SUBWORDS, data / "train" / shards.RECORDS, own_source)
        prepare.Preparation.of(options, data).check()


def _is_trained(folder: pathlib.Path, options: run_options.Options) -> bool:
    """Returns whether a run has had all its updates, and only its scores are missing."""
    return any(checkpoint.step_of(path) >= options.train.train_steps for path in checkpoint.kept(folder))


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
    training.

    Args:
        runs: the options of each run, by its folder in `output_dir`.
        output_dir: the folder of all.
        results: the result of each run, or `None`; those of the runs that are trained are added.
        score: scores the run of a name, given its state.
        strategy: from `devices.make_strategy`.
        quiet: see `run.train`.

    Yields:
        The result of each run that was trained, in the order of `runs`.

    Raises:
        ValueError: after all other runs, the updates of a run were not finite.
        StoppedError: a run was stopped early and has saved its state.
        FileNotFoundError, ValueError, BlockingIOError: see `run.train`.
    """
    started, failed = time.monotonic(), []
    seconds = [result.seconds for result in results.values() if result]
    left = [name for name, options in runs.items() if not results[name] and not _is_trained(output_dir / name, options)]
    for number, (name, options) in enumerate(runs.items(), 1):
        if results[name] is None:
            estimate = ""
            if left and seconds:
                estimate = f"; about {len(left) * statistics.mean(seconds) / 3600:.1f} h left for {len(left)} run(s)"
            logger.info(f"Run {number} of {len(runs)}: {name}{estimate}.")
            keras.backend.clear_session()  # Frees the graphs of the run before.
            try:
                state = run.train(output_dir / name, options, strategy=strategy, quiet=quiet, started=started)
            except NotFiniteError as error:
                logger.error(f"{name}: {error}")
                failed.append(name)
                continue
            with quiet():
                results[name] = score(name, state)
            seconds.append(results[name].seconds)
            left = [each for each in left if each != name]
            yield results[name]
        logger.info(f"{name}: {results[name]}.")
    if failed:
        raise ValueError(
            f"Trained all runs but {', '.join(failed)}, whose updates were not finite; see the messages above. "
            f"{output_dir} has the table of the others. Lower the learning rate of all runs, in another `output_dir`."
        )
