"""Prepares data for training: checks the text, learns sub-words and writes shards in a folder, the --data_dir of
`t2t-train`.

python tools/prepare.py --train_source=a.en --train_target=a.de --valid_source=v.en --valid_target=v.de \\
    --data_dir=data/x

For a large corpus it uses all cores of the machine, or several machines by Apache Beam, as with
--beam_runner=FlinkRunner --beam_options=…
"""

import functools
import pathlib
from multiprocessing import resource_tracker

from absl import flags

from t2t_keras.cli import beam, program
from t2t_keras.cli import flags as options
from t2t_keras.data import corpora
from t2t_keras.runs import data_folder, run_options
from t2t_keras.system.files import SUBWORDS

flags.DEFINE_string("data_dir", None, "Folder to prepare the data in.", required=True)
_PROCESSES = flags.DEFINE_integer(
    "processes",
    0,
    "Number of processes that divide the training text into sub-words; 0: one on each core, but fewer for a small "
    "corpus.",
    lower_bound=0,
    upper_bound=1024,
)
beam.define("write the training shards", exchange="--data_dir")
options.excludes("beam_runner", "processes")
# All are accepted, so that flagfiles for training work here; only the vocabulary sizes, --seed, --augment and the data
# options are used.
options.define_run()
options.define_divisors()


def prepare() -> None:
    chosen = run_options.Options(**options.read_run(), architecture=options.chosen_architecture())
    # The command line may be that of train.py: options of training are accepted, and not used.
    given, sources = options.given_run(), options.sources()
    asked = [name for name in given if sources.get(name) == "command line" and name != run_options.ARCHITECTURE]
    asked = [name for name in asked if given[name] != flags.FLAGS[name].default]
    run_options.check_given(chosen.groups, chosen.task, asked)
    run_options.check_text(chosen.groups, chosen.task)
    run_options.check_positions(chosen.groups, chosen.task)
    if (start := chosen.train.starts_from) and chosen.train.parent_subwords and not chosen.data.subwords_file:
        path = pathlib.Path(start) / SUBWORDS
        raise ValueError(
            f"Expected the sub-words of {start}, which the run is to start from. Received none. Give "
            f"--subwords_file={path} and its --vocab_size, or leave out the run to prepare other sub-words."
        )
    folder = options.folder("data_dir")
    on_beam = beam.given()
    if on_beam and chosen.task.documents:
        raise ValueError(
            f"Expected a task with records of single lines, which Beam can divide. Received: {chosen.task.name}, of "
            "documents."
        )
    data_folder.check(folder)
    if not (folder / data_folder.CORPUS).exists():
        corpora.check_files(chosen.data, chosen.task.texts)
    with program.without_noise():  # After the options, so that an invalid one is reported at once.
        from t2t_keras.data import prepare
        from t2t_keras.system.tensorflow import hide_gpus

    hide_gpus()
    if on_beam:
        with beam.quietly(), beam.importing():
            from t2t_keras.beam import preparing
        write = preparing.writer(**on_beam)
    else:
        write = functools.partial(prepare.write, number=_PROCESSES.value)
        # Lives as long as this program, which would wait for it if it wrote to `without_noise`.
        resource_tracker.ensure_running()
    with beam.quietly() if on_beam else program.without_noise():
        prepare.Preparation.of(chosen, folder).run(write)


def main() -> None:
    program.run(prepare)


if __name__ == "__main__":
    main()
