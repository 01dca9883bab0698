"""Trains rows of Table 3 and compares them with the paper: perplexity, BLEU, parameters, speed and cost. Run again, it
resumes.

python tools/table3.py --flagfile=table3_multi30k --train_source=train.en --train_target=train.de \\
    --valid_source=val.en --valid_target=val.de --output_dir=runs/table3
python tools/table3.py --rows=base,A1,A16 --flagfile=quickstart --divide_widths=4 --divide_layers=3 --output_dir=runs/t3
"""

import dataclasses
import functools
import itertools
import os
import pathlib
import shlex

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import program, training
from t2t_keras.config import DecodeConfig, paper
from t2t_keras.runs import run_options
from t2t_keras.runs.run_start import Start
from t2t_keras.system.log import logger

_ROWS = flags.DEFINE_list("rows", "all", f"Rows to train, separated by commas: {', '.join(paper.TABLE_3)}; or all.")
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", "runs/table3", "Folder of the table. Each row has its run in a folder there."
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir", "", "Folder of prepared data, or where to prepare it; empty: output_dir/data."
)
_CPU_DEVICES = flags.DEFINE_integer(
    "cpu_devices", 1, "Number of virtual CPU devices to train on without a GPU.", lower_bound=1
)
options.define(*run_options.groups_of().values())
options.define_divisors()


def _start(row: str, output_dir: pathlib.Path) -> Start:
    """Returns the start of a row's run. Its options are those of the row, then the given ones, then the defaults."""
    given, sources = options.given(*run_options.groups_of().values()), options.sources()
    fixed = (*paper.OPTIONS_OF_ROWS, *(field.name for field in dataclasses.fields(DecodeConfig)))
    if wrong := [f"--{name}" for name in fixed if sources.get(name) == "command line"]:
        raise ValueError(
            f"The rows of Table 3 set the model, and section 6.2 the search. Leave out {', '.join(wrong)}."
        )
    given, sources = options.with_row(row, given, sources, f"table3/{row}")
    data_dir = os.path.expanduser(_DATA_DIR.value) or output_dir / "data"
    sources["data_dir"] = "command line" if _DATA_DIR.value else "output_dir"
    return Start.open(output_dir / row, given, str(data_dir), sources, resumes=False)


def train() -> None:
    output_dir = pathlib.Path(_OUTPUT_DIR.value).expanduser()
    names = list(paper.TABLE_3) if _ROWS.value == ["all"] else list(dict.fromkeys(name.strip() for name in _ROWS.value))
    if not names or not set(names) <= set(paper.TABLE_3):
        raise ValueError(
            f"--rows must name rows of Table 3: {', '.join(paper.TABLE_3)}; or all. Received: {','.join(_ROWS.value)}."
        )
    starts = {row: _start(row, output_dir) for row in names}
    rows = {row: start.options for row, start in starts.items()}
    for one, other in itertools.combinations(rows, 2):
        if (rows[one].model, rows[one].train) == (rows[other].model, rows[other].train):
            raise ValueError(
                f"--divide_widths and --divide_layers make {one} and {other} the same model. Leave one of them out of "
                "--rows, or choose smaller divisors."
            )
    training.check(*starts.values())
    with program.without_noise():  # After the options, so that an invalid one is reported at once.
        from t2t_keras.experiments import grid, table3
        from t2t_keras.training import devices

    others = grid.read_results(output_dir, table3.RESULTS).keys() - rows.keys()
    earlier = {row: _start(row, output_dir).options for row in paper.TABLE_3 if row in others}
    first = next(iter(rows.values()))
    strategy, tables = devices.make_strategy(_CPU_DEVICES.value, first.train), []
    write = functools.partial(table3.write, output_dir)
    for _ in table3.train(rows, output_dir, earlier=earlier, strategy=strategy, quiet=program.without_noise):
        tables.append(devices.chief_first(strategy, write))
    *_, files = tables or [devices.chief_first(strategy, write)]  # Nothing was left to train.
    if files is None:  # Of several workers, only the chief has written any.
        return
    print(f"Wrote {', '.join(str(output_dir / file) for file in files)}.")
    command = shlex.join(["tensorboard", "--logdir", str(output_dir / table3.LOGS)])
    logger.info(f"Compare the rows in TensorBoard's HPARAMS tab: {command}")


def main() -> None:
    training.run(train)


if __name__ == "__main__":
    main()
