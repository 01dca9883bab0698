"""Scores a model, or translations that exist: sacreBLEU with its signature, chrF, perplexity per sub-word of the references.

python tools/evaluate.py --model_dir=runs/x --source=test.en --reference=test.de
python tools/evaluate.py --hypothesis=translated.de --reference=test.de --reference=another.de
"""

import contextlib
import json
import math
import sys

from absl import flags

from t2t_keras.cli import flags as options

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


def _aligned(first: str, second: str) -> list[list[str]]:
    """The lines of two sides, blank ones too."""
    from t2t_keras.data import corpora

    pairs = corpora.text_pairs(first, second, corpora.Report(), keep_blank=True)
    return [[line.decode("utf-8") for line in side] for side in zip(*pairs, strict=True)]


def run() -> None:
    from t2t_keras.evaluation import scores
    from t2t_keras.text import lines

    given = flags.FLAGS["model_dir"].value
    if not (_HYPOTHESIS.value or given and _SOURCE.value):
        raise ValueError("Expected --model_dir and --source, or --hypothesis.")
    if _HYPOTHESIS.value and (_OUTPUT.value or bool(given) != bool(_SOURCE.value)):
        raise ValueError("With --hypothesis, expected both of --model_dir and --source (for perplexity) or neither, and no --output.")
    scores.require(tokenize=_TOKENIZE.value, compound_split=_COMPOUND_SPLIT.value, rouge=_ROUGE.value)
    model = options.trained_model() if given else None
    names = [name for name in (_SOURCE.value, _HYPOTHESIS.value) if name]
    references = [_aligned(names[0], name)[1] for name in _REFERENCE.value]
    sources, hypotheses = _aligned(names[0], names[-1])
    count = {"lowercase": _LOWERCASE.value, "tokenize": _TOKENIZE.value}
    found = scores.scores(hypotheses, *references, **count) if _HYPOTHESIS.value else {}
    with lines.written_whole(_OUTPUT.value) if _OUTPUT.value else contextlib.nullcontext() as output:
        if model:
            with options.without_noise():
                from t2t_keras.decoding.loading import load
                from t2t_keras.evaluation.evaluate import evaluate
                from t2t_keras.evaluation.perplexity import perplexity

                translator = load(**model, say=lambda text: print(text, file=sys.stderr))
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
