"""Scores a model, or translations that exist: sacreBLEU with its signature, chrF, perplexity per sub-word of the references.

python tools/evaluate.py --model_dir=runs/x --source=test.en --reference=test.de
python tools/evaluate.py --hypothesis=translated.de --reference=test.de --reference=another.de
"""

import contextlib
import dataclasses
import json
import math

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.config import DecodeConfig

_SOURCE = flags.DEFINE_string("source", "", "Text to translate, a sentence a line; files and globs as in training.")
_REFERENCE = flags.DEFINE_multi_string(
    "reference", None, "Its translation by people, a sentence a line; again for each further translation.", required=True
)
_HYPOTHESIS = flags.DEFINE_string("hypothesis", "", "Score this translation of the source. With --model_dir and --source, perplexity too.")
_LOWERCASE = flags.DEFINE_boolean("lowercase", False, "BLEU and chrF of lower-cased text.")
_TOKENIZE = flags.DEFINE_enum(
    "tokenize",
    "13a",
    ["13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"],
    "sacreBLEU's tokenisation; none for text that is tokenised already.",
)
_COMPOUND_SPLIT = flags.DEFINE_string(
    "compound_split", "", "Also BLEU as the paper's authors counted it; a Moses language code, such as de."
)
_ROUGE = flags.DEFINE_boolean("rouge", False, "Also ROUGE-1, -2 and -L.")
_OUTPUT = flags.DEFINE_string("output", "", "Write the model's translations to this file.")
_JSON = flags.DEFINE_boolean("json", False, "Print one JSON object; a figure that is not finite is null.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 64, "Sentences translated at once.", lower_bound=1)
options.define_trained_model(required=False)


# What a model translates with. Without one it would be ignored.
_OF_A_MODEL = ("checkpoint", "dtype", "int8", "batch_size", *(field.name for field in dataclasses.fields(DecodeConfig)))


def _read(files: list[tuple[str, str]]) -> list[list[str]]:
    """The lines of (flag, files), blank ones too.

    Raises:
        ValueError: some have more lines than others.
    """
    from t2t_keras.data import corpora

    found = [corpora.text(names) for _, names in files]
    if len(set(map(len, found))) > 1:
        received = ", ".join(f"{len(side):,} in --{flag}={names}" for (flag, names), side in zip(files, found, strict=True))
        raise ValueError(f"Expected as many lines in each. Received: {received}.")
    return found


def run() -> None:
    from t2t_keras.evaluation import scores
    from t2t_keras.text import lines

    given = flags.FLAGS["model_dir"].value
    if not (_HYPOTHESIS.value or given and _SOURCE.value):
        raise ValueError("Expected --model_dir and --source, or --hypothesis.")
    if _HYPOTHESIS.value and (_OUTPUT.value or bool(given) != bool(_SOURCE.value)):
        raise ValueError("With --hypothesis, expected both of --model_dir and --source (for perplexity) or neither, and no --output.")
    ignored = [f"--{name}" for name in _OF_A_MODEL if not given and flags.FLAGS[name].present]
    if ignored:
        raise ValueError(f"{', '.join(ignored)} is for a model. Expected --model_dir and --source too, or --hypothesis without it.")
    scores.require(tokenize=_TOKENIZE.value, compound_split=_COMPOUND_SPLIT.value, rouge=_ROUGE.value)
    model = options.trained_model() if given else None
    files = [(flag.name, flag.value) for flag in (_SOURCE, _HYPOTHESIS) if flag.value]
    texts = _read([*files, *((_REFERENCE.name, name) for name in _REFERENCE.value)])
    sources, hypotheses, references = texts[0], texts[len(files) - 1], texts[len(files) :]
    count = {"lowercase": _LOWERCASE.value, "tokenize": _TOKENIZE.value}
    found = scores.scores(hypotheses, *references, **count) if _HYPOTHESIS.value else {}
    with lines.written_whole(_OUTPUT.value) if _OUTPUT.value else contextlib.nullcontext() as output:
        if model:
            with options.without_noise():
                from t2t_keras.decoding.loading import load
                from t2t_keras.evaluation.evaluate import evaluate
                from t2t_keras.evaluation.perplexity import perplexity

                translator = load(**model)
            if _HYPOTHESIS.value:
                found["perplexity"] = perplexity(translator, sources, *references)
            else:
                hypotheses, found = evaluate(translator, sources, *references, **count, batch_size=_BATCH_SIZE.value)
            found |= {"checkpoint": model["which"], "dtype": model["dtype"], "int8": model["int8"]}
        if output:
            output.write("".join(f"{line}\n" for line in hypotheses).encode())
    if _COMPOUND_SPLIT.value:
        found |= scores.compound_split_bleu(hypotheses, *references, language=_COMPOUND_SPLIT.value)
    if _ROUGE.value:
        found |= scores.rouge(hypotheses, *references)
    if _JSON.value:
        finite = {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in found.items()}
        print(json.dumps(finite, allow_nan=False))
    else:
        for name, value in found.items():
            print(f"{name:20} {value:.4f}" if isinstance(value, float) else f"{name:20} {value}")


def main() -> None:
    options.run(run)


if __name__ == "__main__":
    main()
