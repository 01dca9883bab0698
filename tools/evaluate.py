"""Scores a model on a source and its reference: sacreBLEU with its signature, chrF, perplexity per sub-word.

python tools/evaluate.py --model_dir=runs/x --source=test.en --reference=test.de
"""

import json
import pathlib
import sys

from absl import flags

from t2t_keras import flags as options

_SOURCE = flags.DEFINE_string("source", None, "Text to translate, a sentence a line; files and globs as in training.", required=True)
_REFERENCE = flags.DEFINE_string("reference", None, "Its translation by people, a sentence a line.", required=True)
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
_OUTPUT = flags.DEFINE_string("output", "", "Write the translations to this file.")
_JSON = flags.DEFINE_boolean("json", False, "Print one JSON object.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 64, "Sentences translated at once.", lower_bound=1)
options.define_trained_model()


def evaluate() -> None:
    from t2t_keras import corpus, evaluation, experiment

    report = corpus.Report()
    pairs = list(corpus.text_pairs(_SOURCE.value, _REFERENCE.value, report))
    if report.empty:
        raise ValueError(f"Expected a sentence on every line of both files. Received: {report}. Find them with: grep -n '^\\s*$' FILE")
    sources, references = ([line.decode("utf-8") for line in side] for side in zip(*pairs, strict=True))
    model = options.trained_model()
    translator = experiment.load(**model, say=lambda text: print(text, file=sys.stderr))
    hypotheses, scores = experiment.evaluate(
        translator, sources, references, lowercase=_LOWERCASE.value, tokenize=_TOKENIZE.value, batch_size=_BATCH_SIZE.value
    )
    scores |= {"checkpoint": model["which"], "dtype": model["dtype"], "int8": model["int8"]}
    if _COMPOUND_SPLIT.value:
        scores |= evaluation.compound_split_bleu(hypotheses, references, _COMPOUND_SPLIT.value)
    if _ROUGE.value:
        scores |= evaluation.rouge(hypotheses, references)
    if _OUTPUT.value:
        pathlib.Path(_OUTPUT.value).expanduser().write_bytes("".join(f"{line}\n" for line in hypotheses).encode())
    if _JSON.value:
        print(json.dumps(scores))
    else:
        for name, value in scores.items():
            print(f"{name:20} {value:.4f}" if isinstance(value, float) else f"{name:20} {value}")


def main() -> None:
    options.run(evaluate)


if __name__ == "__main__":
    main()
