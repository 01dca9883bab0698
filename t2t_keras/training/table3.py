"""Trains rows of Table 3 (section 6.2) one after another and scores them. Interrupted, it resumes where it was."""

import dataclasses
import json
import pathlib
import shutil
import statistics
from collections.abc import Iterator

import keras
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams

from t2t_keras import paper, run_folder
from t2t_keras.data import prepare
from t2t_keras.decoding.loading import load
from t2t_keras.evaluation.evaluate import evaluate
from t2t_keras.files import read_json, write_whole
from t2t_keras.log import logger
from t2t_keras.training import run
from t2t_keras.training.state import TrainState
from t2t_keras.visualization import table3
from t2t_keras.visualization.event_files import read_scalars
from t2t_keras.visualization.table3 import Result

RESULT = "table3.json"  # In the run's folder of a row.
LOGS = "logs"  # In the folder of the table, for TensorBoard's HPARAMS tab.
_SEARCH = {"beam_size": 4, "alpha": 0.6, "extra_length": 50}  # Sections 6.1 and 6.2.


def _read_result(folder: pathlib.Path, options: run_folder.Options) -> Result | None:
    """Reads the result of a row, if its run has these options and all its updates."""
    path = folder / RESULT
    if not path.exists():
        return None
    changed = run_folder.changes(folder, run_folder.read(folder), options)  # Refuses options that another run was trained with.
    result = Result(**read_json(path))
    return None if changed or result.updates != options.train.train_steps else result


def _score(row: str, folder: pathlib.Path, options: run_folder.Options, state: TrainState) -> Result:
    """Scores the last checkpoint of a row on the validation set."""
    translator = load(folder, "latest", **_SEARCH)
    sources, references = prepare.read_text(options.data_folder(folder), "valid")
    _, scores = evaluate(translator, sources, references)
    speeds = read_scalars(folder / run_folder.LOGS).get("utilization/target_tokens_per_second", {}).values()
    result = Result(
        row=row,
        updates=state.step,
        **{name: scores[name] for name in ("perplexity", "bleu", "signature")},
        parameters=options.model.num_weights,
        target_tokens_per_second=statistics.median(speeds or [float("nan")]),
        flops=state.flops,
        seconds=state.seconds,
    )
    write_whole(folder / RESULT, json.dumps(dataclasses.asdict(result), indent=2).encode() + b"\n")
    return result


def train(rows: dict[str, run_folder.Options], output_dir: pathlib.Path, *, strategy) -> Iterator[Result]:
    """Trains and scores rows, except those that have their result.

    Args:
        rows: the options of each row, by its name.
        output_dir: each row has its run in a folder of its name there.
        strategy: from `devices.make_strategy`.

    Yields:
        The result of each row, in the order of `rows`.

    Raises:
        StoppedError: the run of a row was stopped early and has saved its state.
        FileNotFoundError, ValueError, BlockingIOError: see `run.train`.
    """
    results = {row: _read_result(output_dir / row, options) for row, options in rows.items()}
    seconds = [result.seconds for result in results.values() if result]
    for number, (row, options) in enumerate(rows.items(), 1):
        result = results[row]
        if result is None:
            left = sum(result is None for result in list(results.values())[number - 1 :])
            estimate = f"; about {left * statistics.mean(seconds) / 3600:.1f} h left for {left} row(s)" if seconds else ""
            logger.info(f"Row {number} of {len(rows)}: {row}{estimate}.")
            state = run.train(output_dir / row, options, strategy=strategy)
            result = results[row] = _score(row, output_dir / row, options, state)
            seconds.append(result.seconds)
            keras.backend.clear_session()  # Frees the graphs of this row.
        logger.info(f"{row}: perplexity {result.perplexity:.2f}, BLEU {result.bleu:.2f}, {result.parameters:,} parameters.")
        yield result


def write(results: list[Result], output_dir: pathlib.Path) -> None:
    """Writes `table3.md`, `table3.csv`, with base among the rows `table3.png`, and the logs of TensorBoard's HPARAMS tab."""
    write_whole(output_dir / "table3.md", table3.as_markdown(results).encode())
    write_whole(output_dir / "table3.csv", table3.as_csv(results).encode())
    if {"base"} < {result.row for result in results}:
        write_whole(output_dir / "table3.png", table3.picture(results))
    shutil.rmtree(output_dir / LOGS, ignore_errors=True)
    for result in results:
        values = dataclasses.asdict(result)
        metrics = {name: value for name, value in values.items() if isinstance(value, int | float) and name != "updates"}
        with tf.summary.create_file_writer(str(output_dir / LOGS / result.row)).as_default(step=result.updates):
            options = {name: value for name, value in paper.table_3(result.row).items() if name in paper.OPTIONS_OF_ROWS}
            hparams.hparams({"row": result.row} | options, trial_id=result.row)
            for name, value in metrics.items():
                tf.summary.scalar(name, float(value))
