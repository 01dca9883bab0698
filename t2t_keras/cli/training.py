"""What the programs that train have in common: their flags, and the start of a run."""

import os
import pathlib
import sys
from collections.abc import Callable

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import help, program
from t2t_keras.config.options import DEVICES, PLACES, TRAINING, VALIDATION
from t2t_keras.data import corpora
from t2t_keras.runs import run_options
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system.files import CONFIG
from t2t_keras.training import embeddings

_OF_START = ("data_dir", "cpu_devices", "dry_run", "show_options")  # Flags that are no options of a run.


def define(architecture: str = run_options.TRANSFORMER) -> None:
    """Defines the flags of a program that trains, with a default architecture."""
    text = "Folder of the run: options, sub-words, checkpoints, TensorBoard logs."
    with help.under(PLACES):
        flags.DEFINE_string("model_dir", None, text, required=True)
        text = "Folder of prepared data, or where to prepare it; empty: the run's, or model_dir/data."
        flags.DEFINE_string("data_dir", "", text)
    with help.under(DEVICES):
        text = "Number of virtual CPU devices to train on without a GPU, to try out several devices."
        flags.DEFINE_integer("cpu_devices", 1, text, lower_bound=1)
    with help.under(TRAINING):
        text = "Prepare the data, run the largest micro-batches without changing any weight, and exit."
        flags.DEFINE_boolean("dry_run", False, f"{text} A new run keeps the options.")
    with help.under(VALIDATION):
        text = "Show all options when training starts, in place of those that differ from their defaults."
        flags.DEFINE_boolean("show_options", False, text)
    for name in _OF_START:
        help.leave_out(name)
    options.define_run(architecture)


def exclude(condition: str, *others: str) -> None:
    """Says that the flags of training have no effect if a condition holds, except some others; see `flags.excludes`."""
    names = run_options.option_names(options.chosen_architecture()).union(_OF_START)
    options.excludes(condition, *sorted(names.difference(others)))


def checkpoint(run: SavedRun) -> str:
    """Returns the value of --checkpoint, which the run may have; see `SavedRun.check_checkpoint`."""
    run.check_checkpoint(flags.FLAGS["checkpoint"].value)
    return flags.FLAGS["checkpoint"].value


def model_dir() -> pathlib.Path:
    """Returns the folder of the run."""
    return options.folder("model_dir")


def check(*starts: Start) -> None:
    """Checks whether runs can start, as far as that takes little time: their folders, text and word vectors. Text that
    several runs share is read once. For the errors see `Start.check`, `corpora.check_files` and `embeddings.check`.
    """
    checked = []
    for start in starts:
        start.check()
        options = start.options
        if options.data.train_source and (text := (options.data, options.task.texts)) not in checked:
            corpora.check_files(*text)
            checked.append(text)
        if options.train.embeddings and not start.is_resumed:
            embeddings.check(options)


def train(given: dict, sources: dict[str, str]) -> run_options.Options | None:
    """Trains or resumes the run with the given options, see `options.given_run`, and the sources that they come from.
    Returns the options on the chief of a run that was trained, otherwise `None`.
    """
    dry_run = flags.FLAGS["dry_run"].value
    folder, data_dir = model_dir(), os.path.expanduser(flags.FLAGS["data_dir"].value)
    run_there = options.opened_run(folder) if (folder / CONFIG).exists() else None
    start = Start.open(folder, given, data_dir, sources, run=run_there)
    check(start)
    with program.without_noise():  # After the options, so that an invalid one is reported at once.
        from t2t_keras.training import devices, run

    strategy = devices.make_strategy(flags.FLAGS["cpu_devices"].value, start.options.train)
    shown = {"show_options": flags.FLAGS["show_options"].value}
    run.train(start, strategy=strategy, dry_run=dry_run, **shown, quiet=program.without_noise)
    return start.options if devices.is_chief(strategy) and not dry_run else None


def run(main: Callable) -> None:
    """Runs a program that trains; see `program.run`. A worker of several exits as `devices.exit_worker` says."""
    try:
        program.run(main)
    except SystemExit as ended:
        devices = sys.modules.get("t2t_keras.training.devices")  # Imported if TensorFlow was used.
        if "TF_CONFIG" in os.environ and devices and isinstance(ended.code, int):
            devices.exit_worker(ended.code)
        raise


flags.disclaim_key_flags()  # As in `cli.flags`.
