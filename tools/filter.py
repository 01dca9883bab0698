"""Filters parallel text before training: keeps the pairs that break no rule, and puts the others aside with the rule
and their line number.

python tools/filter.py --source=a.en --target=a.de --source_language=en --target_language=de --output_dir=filtered
python tools/filter.py --source='x/*.ru.gz' --target='x/*.en.gz' --source_script=Cyrillic --output_dir=filtered
python tools/filter.py --source=a.en --target=a.de --forward_run=runs/a --backward_run=runs/b --output_dir=filtered
python tools/filter.py --source=a.en --target=a.de --beam_runner=FlinkRunner --beam_options=… --output_dir=filtered
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable

from absl import flags

from t2t_keras.cli import beam, program
from t2t_keras.cli import flags as options
from t2t_keras.config import FilterConfig, names_of_target
from t2t_keras.data import text_files
from t2t_keras.filtering import judging
from t2t_keras.system.log import logger

_SOURCE = flags.DEFINE_string(
    "source",
    None,
    "Text to filter, source side, one sentence per line: comma-separated files or globs, plain or gzip. Files named "
    ".tmx and .tsv (the first two columns) have both sides.",
    required=True,
)
_TARGET = flags.DEFINE_string(
    "target",
    "",
    "Target side; line n translates line n of --source. Empty if all of these files have both sides.",
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "New folder for the pairs that are kept and those that are rejected.", required=True
)
_FORWARD_RUN = flags.DEFINE_string(
    "forward_run", "", "Folder of a run from the source to the target, for --max_cross_entropy."
)
_BACKWARD_RUN = flags.DEFINE_string("backward_run", "", "Folder of a run from the target to the source, likewise.")
_PROCESSES = flags.DEFINE_integer(
    "processes",
    0,
    "Number of processes that judge single pairs; 0: one on each core, but fewer for a small corpus.",
    lower_bound=0,
    upper_bound=1024,
)
_JSON = flags.DEFINE_boolean("json", False, "Print the summary as one JSON object.")
beam.define("filter", exchange="--output_dir until it is whole")
options.excludes("beam_runner", "processes")
options.define(FilterConfig)
for _field in dataclasses.fields(FilterConfig):
    options.needs(_field.metadata["needs"], _field.name)


def _text() -> tuple[str, str]:
    """Returns the names of the files of each side."""
    target = names_of_target(_SOURCE.value, _TARGET.value)
    if not target:
        raise ValueError(f"Give --target, or files of both sides (.tmx, .tsv) as --source. Received: {_SOURCE.value}.")
    return _SOURCE.value, target


def _locally(config: FilterConfig, output_dir: pathlib.Path, load_scores: Callable | None) -> dict:
    import tqdm

    scores = None
    if load_scores:
        with program.without_noise():
            scores = load_scores()
    with tqdm.tqdm(unit=" pairs", disable=None) as bar:  # None: unless a terminal.
        judge = {"scores": scores, "number": _PROCESSES.value, "progress": bar.update}
        return judging.filter_text(*_text(), output_dir, config, **judge)


def _on_beam(
    config: FilterConfig, output_dir: pathlib.Path, load_scores: Callable | None, runner: dict[str, str]
) -> dict:
    with beam.quietly():
        with beam.importing():
            from t2t_keras.beam.filtering import filter_text
        return filter_text(*_text(), output_dir, config, load_scores=load_scores, **runner)


def filter_pairs() -> None:
    config = options.read(FilterConfig)
    output_dir = pathlib.Path(_OUTPUT_DIR.value).expanduser()
    given = [flag for flag in (_FORWARD_RUN, _BACKWARD_RUN) if flag.value]
    if len(given) == 1:
        raise ValueError(f"--forward_run and --backward_run go together. Received: --{given[0].name}={given[0].value}.")
    folders = [pathlib.Path(flag.value).expanduser().absolute() for flag in given]
    judging.check_runs(folders)
    judging.check(config, output_dir)
    runner = beam.given()
    text_files.check_texts([_text()], languages=(config.source_language, config.target_language))
    load_scores = functools.partial(judging.load_scores, folders) if folders else None
    summary = _on_beam(config, output_dir, load_scores, runner) if runner else _locally(config, output_dir, load_scores)
    print(json.dumps(summary) if _JSON.value else judging.table(summary))
    logger.info(f"Wrote {output_dir}.")


def main() -> None:
    program.run(filter_pairs)


if __name__ == "__main__":
    main()
