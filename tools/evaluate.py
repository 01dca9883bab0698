"""Evaluates a model or existing translations: sacreBLEU with its signature, chrF, both with confidence intervals, and
perplexity per sub-word of the references.

python tools/evaluate.py --model_dir=runs/x --source=test.en --reference=test.de
python tools/evaluate.py --model_dir=runs/x --source=test.en --reference=test.de --beam_size=10 --rerank_with=runs/y
python tools/evaluate.py --hypothesis=translated.de --reference=test.de --reference=another.de
"""

import contextlib
import dataclasses
import functools
import json
import math
from typing import BinaryIO

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import program
from t2t_keras.config import DecodeConfig, text_format
from t2t_keras.serving.line_translation import LineTranslation, LineTranslator, copied_by
from t2t_keras.system.log import logger

_SOURCE = flags.DEFINE_string(
    "source", "", "Text to translate, one sentence per line; files and globs as in training, also .tmx and .tsv."
)
_REFERENCE = flags.DEFINE_multi_string(
    "reference",
    None,
    "Reference translation, one sentence per line, or the target of a .tmx or .tsv file; repeat the flag for several "
    "references.",
    required=True,
)
_HYPOTHESIS = flags.DEFINE_string(
    "hypothesis", "", "Existing translation to score. With --model_dir and --source, also perplexity."
)
_LOWERCASE, _TOKENIZE = options.define_scoring()
_COMPOUND_SPLIT = flags.DEFINE_string(
    "compound_split", "", "Also compute BLEU as the paper's authors did: a Moses language code, such as de."
)
_ROUGE = flags.DEFINE_boolean("rouge", False, "Also compute recall and F1 of ROUGE-1, ROUGE-2 and ROUGE-L.")
_BOOTSTRAP_SAMPLES = flags.DEFINE_integer(
    "bootstrap_samples",
    1000,
    "Number of bootstrap samples for the 95% confidence intervals of BLEU and chrF; 0: none.",
    lower_bound=0,
)
_TERMS = options.define_terms()
_OUTPUT = flags.DEFINE_string("output", "", "File for the model's translations.")
_JSON = flags.DEFINE_boolean("json", False, "Print one JSON object; a score that is not finite is null.")
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 0, "Number of sentences translated at once; 0 chooses it by the cores or the GPU.", lower_bound=0
)
options.define_trained_model(required=False)
options.define_choice()


# Perplexity has a maximum length of its own, and rows too.
_OF_SEARCH = tuple(field.name for field in dataclasses.fields(DecodeConfig) if field.name != "search_rows")
_LANGUAGES = "source_language", "target_language"  # Of a multilingual model, and of files in TMX.
for _name in _LANGUAGES:
    flags.FLAGS[_name].help += " It also chooses the language to read from TMX files."
options.needs("model_dir", "output", "batch_size", *options.OF_TRAINED_MODEL, "mbr", "rerank_with")
options.needs("model_dir source=*.tmx* reference=*.tmx*", *_LANGUAGES)
options.needs("source", "terms")
options.excludes("hypothesis", "output", "batch_size", *_OF_SEARCH, *options.OF_CHOICE)


def _translated(
    translator: LineTranslator, output: BinaryIO | None, files: contextlib.ExitStack, sources: list[str]
) -> list[str]:
    """Translates, and finishes the file of the translations before they are scored."""
    lines = translator.best(sources, warn=logger.warning)
    if output:
        output.write("".join(f"{line}\n" for line in lines).encode())
        files.close()
    return lines


def _of_search(asked: LineTranslation) -> dict:
    """Returns the options of the model and its search that its figures depend on."""
    model = asked.model
    found = {"checkpoint": model.checkpoint, "dtype": model.dtype, "int8": model.int8}
    if len(model.runs) > 1:
        weights = model.ensemble_weights or [1.0] * len(model.runs)
        found |= {"ensemble_mean": model.ensemble_mean, "ensemble_weights": ",".join(map(str, weights))}
    of_mbr, *of_reranking = options.OF_CHOICE
    names = [*([of_mbr] if asked.mbr else []), *(of_reranking if asked.rerank_with else [])]
    return found | {name: getattr(asked, name) for name in names}


def _as_json(figures: dict) -> str:
    unknown = [name for name, value in figures.items() if isinstance(value, float) and not math.isfinite(value)]
    return json.dumps(figures | dict.fromkeys(unknown), allow_nan=False)


def _as_table(figures: dict) -> str:
    rows = []
    for name, value in figures.items():
        shown = f"{value:.4f}" if isinstance(value, float) else value
        if f"{name}_mean" in figures:
            shown += f" (mean {figures[f'{name}_mean']:.4f} ± {figures[f'{name}_margin']:.4f})"
        if not name.endswith(("_mean", "_margin")) or name.rpartition("_")[0] not in figures:
            rows.append(f"{name:20} {shown}")
    return "\n".join(rows)


def run() -> None:
    from t2t_keras.data import text_files
    from t2t_keras.evaluation import scores
    from t2t_keras.text import lines
    from t2t_keras.text.tags import untagged, with_tags_checked
    from t2t_keras.text.terminology import read_terms

    model_dir = flags.FLAGS["model_dir"].value
    if not (_HYPOTHESIS.value or model_dir and _SOURCE.value):
        raise ValueError("Give --model_dir and --source to translate, or --hypothesis, a translation to score.")
    if bool(model_dir) != bool(_SOURCE.value) and (model_dir or not _TERMS.value):
        raise ValueError(
            "With --hypothesis, give --model_dir and --source for perplexity, --source and --terms for the accuracy of "
            "terms, or none of these."
        )
    choice = options.choice()
    scores.require(tokenize=_TOKENIZE.value, compound_split=_COMPOUND_SPLIT.value, rouge=_ROUGE.value)
    files = [(flag.name, flag.value) for flag in (_SOURCE, _HYPOTHESIS) if flag.value]
    given_files = [*files, *((_REFERENCE.name, name) for name in _REFERENCE.value)]
    has_tmx = any(text_format(name) == "tmx" for _, names in given_files for name in names.split(","))
    model = options.trained_model(of_text=has_tmx) if model_dir else None
    to_search = "" if _HYPOTHESIS.value else _TERMS.value
    asked = LineTranslation(model, **choice, batch_size=_BATCH_SIZE.value, terms=to_search) if model else None
    terms = read_terms(_TERMS.value)
    texts = text_files.texts(
        [(f"--{flag}={name}", name) for flag, name in given_files],
        [{_SOURCE.name: 0, _REFERENCE.name: 1}.get(flag) for flag, _ in given_files],
        tuple(flags.FLAGS[name].value for name in _LANGUAGES),
    )
    sources, hypotheses, references = texts[0], texts[len(files) - 1], texts[len(files) :]
    count = {"lowercase": _LOWERCASE.value, "tokenize": _TOKENIZE.value, "samples": _BOOTSTRAP_SAMPLES.value}
    figures = scores.scores(hypotheses, *references, **count) if _HYPOTHESIS.value else {}
    with contextlib.ExitStack() as until_translated:
        output = until_translated.enter_context(lines.written_whole(_OUTPUT.value)) if _OUTPUT.value else None
        if model:
            with program.without_noise():
                from t2t_keras.evaluation.cross_entropy import perplexity
                from t2t_keras.evaluation.evaluate import evaluate

                by_line = asked.load(terms)
            if _HYPOTHESIS.value:
                for _ in with_tags_checked(sources, model.tags, logger.warning):
                    pass  # It warns.
                figures["perplexity"] = perplexity(by_line.model.translator, sources, *references)
            else:
                translate = functools.partial(_translated, by_line, output, until_translated)
                hypotheses, figures = evaluate(
                    by_line.model.translator, sources, *references, **count, translate=translate
                )
            figures |= _of_search(asked)
    if _TERMS.value:
        tags = model.tags if model else ()  # The search looks for no terms in them.
        plain = [untagged(source, tags) for source in sources]
        copied = copied_by(model.pattern if model else "")  # Nor in this.
        figures |= scores.term_accuracy(hypotheses, plain, terms, copied)
    if _COMPOUND_SPLIT.value:
        samples = _BOOTSTRAP_SAMPLES.value if "bleu_mean" in figures else 0  # As many as have fit into memory.
        figures |= scores.compound_split_bleu(
            hypotheses, *references, language=_COMPOUND_SPLIT.value, lowercase=_LOWERCASE.value, samples=samples
        )
    if _ROUGE.value:
        figures |= scores.rouge(hypotheses, *references)
    print(_as_json(figures) if _JSON.value else _as_table(figures))


def main() -> None:
    program.run(run)


if __name__ == "__main__":
    main()
