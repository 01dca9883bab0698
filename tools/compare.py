"""Compares systems by their translations: BLEU and chrF with confidence intervals and p-values, by length, and where
the systems differ.

python tools/compare.py --reference=test.de baseline.de mine.de
python tools/compare.py --reference=test.de --source=test.en runs/base runs/mine --html=page.html --picture=lengths.png
"""

import contextlib
import dataclasses
import json
import os
import pathlib

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import messages, program
from t2t_keras.config import AVERAGE
from t2t_keras.decoding import process_environment
from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.runs import checkpoint
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving.line_translation import LineTranslation, LineTranslator
from t2t_keras.system.log import logger, printable
from t2t_keras.text.terminology import Terms

_REFERENCE = flags.DEFINE_multi_string(
    "reference",
    None,
    "Reference translation, one sentence per line; repeat the flag for several references.",
    required=True,
)
_SOURCE = flags.DEFINE_string("source", "", "What was translated, one sentence per line. Runs translate it first.")
_LANGUAGES = [
    flags.DEFINE_string(f"{side}_language", "", f"Code of the language of the {side} in TMX files.")
    for side in ("source", "target")
]
options.needs("source=*.tmx* reference=*.tmx*", *(flag.name for flag in _LANGUAGES))
_LOWERCASE, _TOKENIZE = options.define_scoring()
_BOOTSTRAP_SAMPLES = flags.DEFINE_integer(
    "bootstrap_samples",
    1000,
    "Number of samples for confidence intervals and the paired bootstrap test; 0: none.",
    lower_bound=0,
)
_RANDOMIZATION_TRIALS = flags.DEFINE_integer(
    "randomization_trials", 10_000, "Number of trials of the approximate randomization test; 0: none.", lower_bound=0
)
_SEED = flags.DEFINE_integer("seed", 12345, "Seed of both tests.", lower_bound=1)
options.needs("bootstrap_samples randomization_trials", "seed")
_EXAMPLES = flags.DEFINE_integer(
    "examples",
    5,
    "Number of sentences to show where a system gains most, and as many where it loses most.",
    lower_bound=0,
)
_JSON = flags.DEFINE_boolean("json", False, "Print one JSON object.")
_HTML = flags.DEFINE_string(
    "html", "", "Also write a web page, one file, with the figures and the sentences side by side."
)
_PICTURE = flags.DEFINE_string(
    "picture", "", "Also draw the BLEU of each system against the length of sentences, as PNG or SVG."
)


def _opened(folder: pathlib.Path) -> TrainedModel:
    """Opens a run with the options that it was trained with. It translates, and has a checkpoint and its languages."""
    run = SavedRun.open(folder)
    if not run.task.generates:
        raise ValueError(f"{folder} does not translate: its architecture is {run.architecture}.")
    checkpoint.check_size(folder, AVERAGE, run.model.num_weights)
    try:
        return TrainedModel((run,), run.search)
    except ValueError as error:
        reason = str(error).replace("`", "")  # Its options are those of translate.py.
        raise ValueError(
            f"{folder}: {reason} Translate with `{messages.command('translate')}`, and give the file."
        ) from error


def _open(folders: dict[str, pathlib.Path]) -> dict[str, TrainedModel]:
    """Opens runs, before any translates, and sets the environment that they decode in."""
    models = {name: _opened(folder) for name, folder in folders.items()}
    if models and not _SOURCE.value:
        raise ValueError(f"A run needs the text to translate as --source. Received: {next(iter(models))}, a run.")
    if models:
        runs = [run for model in models.values() for run in model.runs]
        process_environment.choose([run.model for run in runs], "float32", int8=False)
    return models


def _translate(name: str, by_line: LineTranslator, source: list[str]) -> list[str]:
    """Translates with a run, whose warnings begin with its name."""
    import tqdm

    results = by_line.results(source, lambda message: logger.warning(f"{name}: {message}"))
    # None: unless a terminal.
    return [result["text"] for result in tqdm.tqdm(results, total=len(source), unit=" lines", disable=None)]


def compare(operands: list[str]) -> None:
    from t2t_keras.data import text_files
    from t2t_keras.evaluation import comparison, comparison_report, scores, significance
    from t2t_keras.reporting import figures
    from t2t_keras.text import lines

    places = {os.path.realpath(os.path.expanduser(name)) for name in operands}
    if len(places) < max(2, len(operands)):
        raise ValueError(f"Give two different systems or more, the baseline first. Received: {', '.join(operands)}.")
    scores.require(tokenize=_TOKENIZE.value)
    picture_format = figures.format_of(pathlib.Path(_PICTURE.value)) if _PICTURE.value else ""
    runs = _open({name: path for name in operands if os.path.isdir(path := pathlib.Path(name).expanduser())})
    references = [(f"--reference={names}", names) for names in _REFERENCE.value]
    sources = [(f"--source={_SOURCE.value}", _SOURCE.value)] if _SOURCE.value else []
    outputs = [(name, name) for name in operands if name not in runs]
    sides = [1] * len(references) + [0] * len(sources) + [None] * len(outputs)
    texts = text_files.texts([*references, *sources, *outputs], sides, tuple(flag.value for flag in _LANGUAGES))
    source = texts[len(references)] if sources else []
    systems = dict(zip((name for name, _ in outputs), texts[len(texts) - len(outputs) :], strict=True))
    significance.check_memory(len(texts[0]), _BOOTSTRAP_SAMPLES.value, _RANDOMIZATION_TRIALS.value)
    with contextlib.ExitStack() as files:
        page, picture = (
            files.enter_context(lines.written_whole(name)) if name else None for name in (_HTML.value, _PICTURE.value)
        )
        translators = {}
        for name, model in runs.items():
            with program.without_noise():
                by_line = LineTranslation(model).load(Terms({}))
            systems[name] = _translate(name, by_line, source)
            if page:  # Aligns later.
                translators[name] = by_line.model.translator
        compared = comparison.compare(
            {name: systems[name] for name in operands},
            *texts[: len(references)],
            source=source,
            lowercase=_LOWERCASE.value,
            tokenize=_TOKENIZE.value,
            samples=_BOOTSTRAP_SAMPLES.value,
            trials=_RANDOMIZATION_TRIALS.value,
            seed=_SEED.value,
            examples=_EXAMPLES.value,
        )
        fields = dataclasses.asdict(compared)
        if page:
            from t2t_keras.reporting import pages

            def align(name: str, source: str, text: str):
                """Returns the alignment of a translation by a run."""
                if name not in translators:
                    return None
                from t2t_keras.reporting.attention import word_alignment

                return word_alignment(translators[name], source, text)

            page.write(pages.comparison_page(fields, align).encode())
        if picture:
            from t2t_keras.reporting import comparison_pictures

            picture.write(figures.encoded(comparison_pictures.bleu_by_length(fields), picture_format))
    print(json.dumps(fields, allow_nan=False) if _JSON.value else printable(comparison_report.report(compared)))
    for name in filter(None, (_HTML.value, _PICTURE.value)):
        logger.info(f"Wrote {name}.")


def main() -> None:
    program.run(compare, operands="the translations of two systems or more, the baseline first")


if __name__ == "__main__":
    main()
