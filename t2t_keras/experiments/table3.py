"""Table 3 (section 6.2) as a grid with one seed: the last checkpoint of each row, with the search of section 6.1."""

import contextlib
import pathlib
import shutil
from collections.abc import Callable, Iterator

import tensorflow as tf

from t2t_keras.config import DecodeConfig, paper
from t2t_keras.experiments import grid, table3_report
from t2t_keras.experiments.grid_report import Result
from t2t_keras.reporting import figures, hparams
from t2t_keras.runs import run_options
from t2t_keras.system.files import write_whole

RESULTS = "*/table3.json"  # Where the rows have their results, in the folder of the table.
LOGS = "logs"  # In the folder of the table, for TensorBoard's HPARAMS tab.
SCORING = grid.Scoring(DecodeConfig(), {}, "latest", lowercase=False, tokenize="13a")


def _changes(options: run_options.Options) -> dict:
    """Returns what may differ from row to row, and what all rows should have in common though a grid allows it to
    differ.
    """
    values = vars(options.model) | vars(options.train)
    return {name: values[name] for name in (*paper.OPTIONS_OF_ROWS, "train_steps", "seed")}


def train(
    rows: dict[str, run_options.Options],
    output_dir: pathlib.Path,
    *,
    earlier: dict[str, run_options.Options] | None = None,
    strategy,
    quiet: Callable = contextlib.nullcontext,
) -> Iterator[Result]:
    """Trains and scores rows, given by their options, except those that have their result; see `grid.train`. Yields the
    result of each row that was trained, in the order of `rows`.

    Each has its run in a folder of its name in `output_dir`. `earlier` are the options that the other rows with a
    result there would have now.
    """
    changes = {row: _changes(options) for row, options in (rows | (earlier or {})).items()}
    yield from grid.train(changes, rows, output_dir, SCORING, RESULTS, strategy=strategy, quiet=quiet)


def write(output_dir: pathlib.Path) -> list[str]:
    """Writes the table of all rows that have a result in the folder of `train`.

    Returns the names of the files: `table3.md`, `table3.csv` and, if base and another row have a result, `table3.png`.
    Beside them, `logs` is for TensorBoard's HPARAMS tab.
    """
    by_row = grid.read_results(output_dir, RESULTS)
    results = [by_row[row] for row in paper.TABLE_3 if row in by_row]
    files = {
        "table3.md": table3_report.as_markdown(results).encode(),
        "table3.csv": table3_report.as_csv(results).encode(),
    }
    if {"base"} < by_row.keys():
        files["table3.png"] = figures.encoded(table3_report.picture(results), "png", 130)
    (output_dir / "table3.png").unlink(missing_ok=True)
    for name, content in files.items():
        write_whole(output_dir / name, content)
    for row in paper.TABLE_3:
        shutil.rmtree(output_dir / LOGS / row, ignore_errors=True)
    for result in results:
        options = {name: result.changes[name] for name in paper.OPTIONS_OF_ROWS}
        with tf.summary.create_file_writer(str(output_dir / LOGS / result.row)).as_default(step=result.updates):
            tf.summary.experimental.write_raw_pb(hparams.row({"row": result.row} | options))
            for name, value in table3_report.values(result).items():
                if name not in ("row", "updates", "signature"):
                    tf.summary.scalar(name, float(value))
    return list(files)
