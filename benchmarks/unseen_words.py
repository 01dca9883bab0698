"""Measures what unseen words cost: BLEU with and without the references that have a word which no training sentence
has.

python benchmarks/unseen_words.py --train=train.de --reference=test.de --hypothesis=translated.de --lowercase
--tokenize=none

Words are what spaces separate, so give tokenised text. A translation finds an unseen word if it has the word anywhere.
"""

import pathlib
import sys

from absl import flags

# `python benchmarks/unseen_words.py` puts only this folder there.
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from t2t_keras.cli import flags as options
from t2t_keras.cli import program
from t2t_keras.data import text_files
from t2t_keras.evaluation import scores

_TRAIN = flags.DEFINE_string(
    "train", None, "Training text, target side: comma-separated files or globs, plain or gzip.", required=True
)
_REFERENCE = flags.DEFINE_string("reference", None, "File of reference translations.", required=True)
_HYPOTHESIS = flags.DEFINE_string("hypothesis", None, "File of translations.", required=True)
_LOWERCASE, _TOKENIZE = options.define_scoring()


def measure(train: list[str], references: list[str], hypotheses: list[str], **scoring) -> dict:
    """Compares the references that have unseen words with the others; `scoring` are options of `scores.bleu`.

    Returns `words` of the references, how many of them are `unseen`, and how many of those are `found` in their
    translation; and `all`, `seen` and `with_unseen`, the number of references and BLEU of all, of those without and of
    those with unseen words.
    """
    known = {word for line in train for word in line.split()}
    unseen = [[word for word in reference.split() if word not in known] for reference in references]
    rows = list(zip(hypotheses, references, unseen, strict=True))

    def scored(chosen: list[tuple[str, str, list]]) -> tuple[int, float]:
        found, expected, _ = map(list, zip(*chosen, strict=True)) if chosen else ([], [], [])
        return len(chosen), scores.bleu(found, expected, **scoring)["bleu"] if chosen else 0.0

    return {
        "words": sum(len(reference.split()) for reference in references),
        "unseen": sum(map(len, unseen)),
        "found": sum(word in hypothesis.split() for hypothesis, _, words in rows for word in words),
        "all": scored(rows),
        "seen": scored([row for row in rows if not row[2]]),
        "with_unseen": scored([row for row in rows if row[2]]),
    }


def main() -> None:
    reference, hypothesis = text_files.texts(
        [("the reference", _REFERENCE.value), ("the hypothesis", _HYPOTHESIS.value)]
    )
    texts = text_files.text(_TRAIN.value), reference, hypothesis
    if _LOWERCASE.value:
        texts = tuple([line.lower() for line in lines] for lines in texts)
    found = measure(*texts, lowercase=_LOWERCASE.value, tokenize=_TOKENIZE.value)
    print(
        f"{found['words']:,} words, {found['unseen']:,} of them ({found['unseen'] / max(found['words'], 1):.1%}) not "
        f"in the training text; translations have {found['found']:,} of these."
    )
    for name, title in (("all", "all"), ("seen", "without unseen words"), ("with_unseen", "with unseen words")):
        number, bleu = found[name]
        print(f"{title:21}{number:>7,} sentences{bleu:>8.2f} BLEU")


if __name__ == "__main__":
    program.run(main)
