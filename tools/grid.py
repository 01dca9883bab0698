"""Trains variants of a model with several seeds each, and compares them: BLEU with the noise of the seeds. Run again,
it resumes.

python tools/grid.py --flagfile=multi30k_en_de --train_source=train.en --train_target=train.de --valid_source=val.en \\
    --valid_target=val.de --test_source=test.en --test_target=test.de --seeds=1,2,3 --output_dir=runs/grid \\
    --row="one_head --num_heads=1 --d_k=128 --d_v=128" --row="r_drop --r_drop=5"
"""

import copy
import dataclasses
import functools
import pathlib
import re
import shlex

from absl import flags

from t2t_keras.cli import flagfiles, program, training
from t2t_keras.cli import flags as options
from t2t_keras.config import DataConfig, DecodeConfig, options_with
from t2t_keras.data import text_files
from t2t_keras.experiments.grid_report import BASE, FILES, VALID
from t2t_keras.runs import registry, run_options
from t2t_keras.runs.run_start import LENGTHS, Start
from t2t_keras.system.log import logger

_ROW = flags.DEFINE_multi_string(
    "row", [], 'A variant: "NAME --option=value …", options of training and of the model beside those of all; repeat '
    "the flag. The row base, without such options, is always there."
)  # fmt: skip
_SEEDS = flags.DEFINE_list(
    "seeds", "1", "Seeds of each row, separated by commas. All rows use the first seed before any uses the next."
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", "runs/grid", "Folder of the table. A run has the folder ROW/seedN there."
)
_TEST_SOURCE = flags.DEFINE_multi_string("test_source", [], "Source of a test set; repeat the flag for several sets.")
_TEST_TARGET = flags.DEFINE_multi_string(
    "test_target", [], "Reference translation of each --test_source, in the same order."
)
_LOWERCASE, _TOKENIZE = options.define_scoring()
_CPU_DEVICES = flags.DEFINE_integer(
    "cpu_devices", 1, "Number of virtual CPU devices to train on without a GPU.", lower_bound=1
)
options.define_checkpoint()
options.define_run()


def _rows() -> dict[str, str]:
    """Returns what each row changes, by its name."""
    rows, taken = {BASE: ""}, {"data", *FILES}
    for row in _ROW.value:
        name, _, changes = row.strip().partition(" ")
        valid = re.fullmatch(r"(?!-)(?=.{1,255}$)[\w.+-]*\w[\w.+-]*", name, re.ASCII)  # Of a folder: 255 bytes.
        if not valid or name in (*rows, *taken):
            raise ValueError(
                'Expected --row="NAME --option=value …", each NAME of at most 255 letters, digits and _.+- and '
                f"different from the others and from {', '.join((BASE, *sorted(taken)))}. Received: --row={row!r}."
            )
        rows[name] = changes.strip()
    return rows


def _seeds() -> list[int]:
    try:
        seeds = [int(seed) for seed in _SEEDS.value]
    except ValueError:
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"--seeds must be different whole numbers, as in 1,2,3. Received: {','.join(_SEEDS.value)}.")
    return seeds


def _changes(row: str, changes: str) -> dict:
    """Returns the options that a row sets, by name."""
    row_flags = copy.deepcopy(flags.FLAGS)
    row_flags.unparse_flags()
    for name in row_flags:
        row_flags[name].present = 0
    try:
        operands = row_flags([row, *flagfiles.expand(shlex.split(changes))])[1:]
    except (flags.Error, ValueError) as error:
        raise ValueError(f"--row={row}: {' '.join(str(error).split())}") from error
    given = {name: row_flags[name].value for name in row_flags if row_flags[name].present}
    of_runs = (
        run_options.option_names(options.chosen_architecture())
        - {field.name for field in dataclasses.fields(DecodeConfig)}
        - {"seed"}
    )
    if wrong := [*operands, *(f"--{name}" for name in given if name not in of_runs)]:
        raise ValueError(f"--row={row} may change training and the model alone. Received: {', '.join(wrong)}.")
    return given


def _tests() -> dict[str, tuple[list[str], list[str]]]:
    """Returns the sources and references of the test sets, by the names of the source files."""
    if len(_TEST_SOURCE.value) != len(_TEST_TARGET.value):
        received = f"{len(_TEST_SOURCE.value)} and {len(_TEST_TARGET.value)}"
        raise ValueError(f"Each --test_source needs a --test_target. Received: {received}.")
    tests = {}
    for source, target in zip(_TEST_SOURCE.value, _TEST_TARGET.value, strict=True):
        name = pathlib.Path(source).name.partition(".")[0]
        if name in (*tests, VALID):
            raise ValueError(f"The names of the --test_source must differ, also from {VALID}. Received: two of {name}.")
        files = [(f"--test_source={source}", source), (f"--test_target={target}", target)]
        languages = tuple(flags.FLAGS[f"{side}_language"].value for side in ("source", "target"))
        tests[name] = tuple(text_files.texts(files, (0, 1), languages))
    return tests


def train() -> None:
    from t2t_keras.evaluation import scores

    output_dir, rows, seeds = pathlib.Path(_OUTPUT_DIR.value).expanduser(), _rows(), _seeds()
    given, sources = options.given_run(), options.sources()
    task = registry.task_of(options.chosen_architecture())
    if not task.generates:
        raise ValueError(
            f"A grid compares models that translate. Received: {options.chosen_architecture()}, of the task "
            f"{task.name}."
        )
    if "seed" in given:
        raise ValueError(f"Give --seeds in place of --seed={given['seed']}.")
    scores.require(tokenize=_TOKENIZE.value)
    checkpoint = flags.FLAGS["checkpoint"].value
    if checkpoint.isdecimal():
        raise ValueError(
            f"--checkpoint must be average, best, latest or ema, which every run has. Received: {checkpoint}."
        )
    tests, changed, starts = _tests(), {row: _changes(row, changes) for row, changes in rows.items()}, {}
    # Rows with one of these need a data folder of their own; those with a parent, for its sub-words.
    groups = run_options.groups_of(options.chosen_architecture()).values()
    of_data = {"vocab_size", *(field.name for field in dataclasses.fields(DataConfig))}
    of_data.update(*(options_with(group, "prepares") for group in groups))
    for seed in seeds:
        for row, changes in changed.items():
            data = output_dir / "data" / (row if of_data & changes.keys() else BASE)
            # The length of a row is its own, whichever of the two options it has.
            replaced = LENGTHS if any(changes.get(name) for name in LENGTHS) else ()
            of_all, origins = ({name: each[name] for name in each if name not in replaced} for each in (given, sources))
            chosen = of_all | changes | {"seed": seed}
            if chosen.get("dataset") == "builtin":
                data /= f"seed{seed}"  # This corpus depends on the seed.
            where = origins | dict.fromkeys(changes, f"--row={row}") | {"seed": "--seeds", "data_dir": "--output_dir"}
            folder = output_dir / row / f"seed{seed}"
            starts[f"{row}/seed{seed}"] = start = Start.open(folder, chosen, str(data), where, resumes=False)
            if checkpoint == "ema" and not start.options.train.ema_decay:
                raise ValueError(f"--checkpoint=ema needs `ema_decay` in every row. Received: {row} without it.")
    training.check(*starts.values())
    runs = {name: start.options for name, start in starts.items()}
    with program.without_noise():  # After the options, so that an invalid one is reported at once.
        from t2t_keras.experiments import grid
        from t2t_keras.training import devices

    first = next(iter(runs.values()))
    scoring = grid.Scoring(first.decode, tests, checkpoint, _LOWERCASE.value, _TOKENIZE.value)
    strategy, tables = devices.make_strategy(_CPU_DEVICES.value, first.train), []
    write = functools.partial(grid.write, output_dir, scoring)
    for _ in grid.train(changed, runs, output_dir, scoring, strategy=strategy, quiet=program.without_noise):
        tables.append(devices.chief_first(strategy, write))
    *_, files = tables or [devices.chief_first(strategy, write)]  # Nothing was left to train.
    if files is None:  # Of several workers, only the chief has written any.
        return
    print(f"Wrote {', '.join(str(output_dir / file) for file in files)}.")
    command = shlex.join(["tensorboard", "--logdir", str(output_dir)])
    logger.info(f"Compare the runs in TensorBoard's HPARAMS tab: {command}")


def main() -> None:
    training.run(train)


if __name__ == "__main__":
    main()
