"""Trains rows of Table 3 (section 6.2) and scores them."""

import contextlib
import dataclasses
import json
import pathlib
import shutil
import statistics
from collections.abc import Callable, Iterator

import tensorflow as tf

from t2t_keras.config import DecodeConfig, TrainConfig, options_with, paper
from t2t_keras.data import prepare
from t2t_keras.decoding.loading import load
from t2t_keras.evaluation.evaluate import evaluate
from t2t_keras.experiments import series, table3_report
from t2t_keras.experiments.table3_report import Result
from t2t_keras.reporting import hparams
from t2t_keras.reporting.event_files import read_scalars
from t2t_keras.runs import run_options, saved_run
from t2t_keras.system.files import write_whole
from t2t_keras.training.state import TrainState

RESULT = "table3.json"  # In the run's folder of a row.
LOGS = "logs"  # In the folder of the table, for TensorBoard's HPARAMS tab.


def _determining(options: run_options.Options) -> dict:
    """Returns the options that determine the last checkpoint of a row, which is scored."""
    of_validation = () if options.train.patience else ("valid_steps", "valid_sentences")
    return series.determining(options, without={*options_with(TrainConfig, "affects", "averages"), *of_validation})


def read_result(folder: pathlib.Path) -> Result | None:
    """Reads the result of a row from the folder of its run; `None` if there is none.

    Raises:
        ValueError: the file is damaged.
    """

    def valid(values: dict) -> bool:
        return values["row"] in paper.TABLE_3 and {*paper.OPTIONS_OF_ROWS} <= values["options"].keys()

    return series.read_result(folder / RESULT, Result, valid)


def _finished_result(row: str, folder: pathlib.Path, options: run_options.Options) -> Result | None:
    """Returns the result of a row if it needs no further updates.

    Raises:
        ValueError: the result is of other options or of other data, or its file is damaged.
    """
    result = read_result(folder)
    if result and result.row != row:
        raise ValueError(
            f"Expected the result of {row} in {folder}. Received: that of {result.row}. Give another `output_dir`."
        )
    return result if series.is_current(result, folder, options, _determining) else None


def _score(row: str, folder: pathlib.Path, options: run_options.Options, state: TrainState) -> Result:
    """Scores the last checkpoint of a row on the validation set."""
    # The search of section 6.1, whatever the run's.
    translator = load(folder, "latest", **dataclasses.asdict(DecodeConfig()))
    sources, references = prepare.read_text(options.data_folder(folder), "valid")
    _, scores = evaluate(translator, sources, references)
    speeds = read_scalars(folder / saved_run.LOGS).get("utilization/target_tokens_per_second", {}).values()
    result = Result(
        row=row,
        updates=state.step,
        **{name: scores[name] for name in ("perplexity", "bleu", "signature")},
        parameters=options.model.num_weights,
        target_tokens_per_second=statistics.median(speeds or [float("nan")]),
        flops=state.flops,
        seconds=state.seconds,
        options=_determining(options),
    )
    write_whole(folder / RESULT, json.dumps(dataclasses.asdict(result), indent=2).encode() + b"\n")
    return result


def train(
    rows: dict[str, run_options.Options],
    output_dir: pathlib.Path,
    *,
    earlier: dict[str, run_options.Options] | None = None,
    strategy,
    quiet: Callable = contextlib.nullcontext,
) -> Iterator[Result]:
    """Trains and scores rows, except those that have their result; see `series.train`.

    Args:
        rows: the options of each row, by its name.
        output_dir: each row has its run in a folder of its name there.
        earlier: the options that the other rows with a result in `output_dir` would have now.
        strategy: from `devices.make_strategy`.
        quiet: see `run.train`.

    Yields:
        The result of each row that was trained, in the order of `rows`.

    Raises:
        ValueError: a finished row, also of `earlier`, has other options or other data; or, after all other rows, the
            updates of a row were not finite.
        StoppedError, FileNotFoundError, BlockingIOError: see `series.train`.
    """
    results = {row: _finished_result(row, output_dir / row, options) for row, options in rows.items()}
    for row, options in (earlier or {}).items():
        if not _finished_result(row, output_dir / row, options):
            received = (
                f"train_steps={options.train.train_steps} ({output_dir / row}: {read_result(output_dir / row).updates})"
            )
            raise ValueError(
                f"Expected the updates that the other rows of the table had. Received: {received}. Train {row} too, or "
                "give another `output_dir`."
            )

    def score(row: str, state: TrainState) -> Result:
        return _score(row, output_dir / row, rows[row], state)

    yield from series.train(rows, output_dir, results, score, strategy=strategy, quiet=quiet)


def write(output_dir: pathlib.Path) -> list[str]:
    """Writes the table of all rows that have a result in a folder.

    Args:
        output_dir: see `train`.

    Returns:
        The names of the files: `table3.md`, `table3.csv` and, if base and another row have a result, `table3.png`.
        Beside them, `logs` is for TensorBoard's HPARAMS tab.
    """
    results = [result for row in paper.TABLE_3 if (result := read_result(output_dir / row))]
    files = {
        "table3.md": table3_report.as_markdown(results).encode(),
        "table3.csv": table3_report.as_csv(results).encode(),
    }
    if {"base"} < {result.row for result in results}:
        files["table3.png"] = table3_report.picture(results)
    (output_dir / "table3.png").unlink(missing_ok=True)
    for name, content in files.items():
        write_whole(output_dir / name, content)
    for row in paper.TABLE_3:
        shutil.rmtree(output_dir / LOGS / row, ignore_errors=True)
    for result in results:
        values = dataclasses.asdict(result)
        metrics = {
            name: value for name, value in values.items() if isinstance(value, int | float) and name != "updates"
        }
        with tf.summary.create_file_writer(str(output_dir / LOGS / result.row)).as_default(step=result.updates):
            options = {name: result.options[name] for name in paper.OPTIONS_OF_ROWS}
            tf.summary.experimental.write_raw_pb(hparams.row({"row": result.row} | options))
            for name, value in metrics.items():
                tf.summary.scalar(name, float(value))
    return list(files)
