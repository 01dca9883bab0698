"""Measures how models bear text as people type it: scores of translations of clean text, and of the text with noise.

python benchmarks/noisy_text.py --model_dirs=runs/clean,runs/noise --test_source=test.en --test_target=test.de

Each sentence gets the noise: capitals, capitals of words, or no full stop at the end, in the reference as well; and in
the source alone typos, those of `--augment` or of a keyboard, where a neighbouring key takes the place of a letter.
"""

import json
import pathlib
import re
import sys
from collections.abc import Iterable

import numpy as np
from absl import flags

# `python benchmarks/noisy_text.py` puts only this folder there.
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import t2t_keras
from t2t_keras.cli import flags as options
from t2t_keras.cli import program
from t2t_keras.data import text_files
from t2t_keras.evaluation import scores
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system import markdown
from t2t_keras.text.augmentation import TYPO_RATE, Noise

_MODEL_DIRS = flags.DEFINE_string("model_dirs", None, "Folders of runs, separated by commas.", required=True)
_SOURCE = flags.DEFINE_string("test_source", None, "File of sentences.", required=True)
_REFERENCE = flags.DEFINE_string("test_target", None, "File of their translations.", required=True)
_SEED = flags.DEFINE_integer("typo_seed", 1, "Seed of the typos.")
KINDS = {
    "clean": "clean",
    "upper": "in capitals",
    "title": "capitals of words",
    "endpunct": "no full stop at the end",
    "typos": "typos",
    "keyboard": "neighbouring keys",
}
_KEYS = "qwertyuiop asdfghjkl zxcvbnm"


def keyboard_typos(text: str, draw: np.random.Generator) -> str:
    """Returns a sentence in which a letter of some words is replaced by one beside it on the keyboard."""
    words = list(re.finditer(r"[a-z]{2,}", text))
    chosen = [word for word in words if draw.random() < TYPO_RATE] or words[:1]
    letters = list(text)
    for word in chosen:
        place = word.start() + draw.integers(len(word[0]))
        key = _KEYS.index(letters[place])
        letters[place] = draw.choice(list(_KEYS[max(0, key - 1) : key + 2].replace(letters[place], "").strip()))
    return "".join(letters)


def noisy(
    sources: list[str], references: list[str], kind: str, seed: int, tags: Iterable[str] = ()
) -> tuple[list[str], list[str]]:
    """Returns both sides of a text with a kind of noise, one of `KINDS`. Sources may begin with tags, which stay."""
    draw, noise = np.random.default_rng(seed), Noise(tags)
    if kind == "keyboard":
        return [keyboard_typos(source, draw) for source in sources], references
    pairs = [noise.changed(*pair, (kind,), draw) for pair in zip(sources, references, strict=True)]
    return tuple(map(list, zip(*pairs, strict=True)))


def main() -> None:
    text = text_files.texts([("the source", _SOURCE.value), ("the reference", _REFERENCE.value)])
    rows = []
    for folder in options.run_folders(_MODEL_DIRS.value):
        translator, tags = t2t_keras.load(folder), SavedRun.open(folder).options.data.tags
        cells = [folder.name]
        for kind in KINDS:
            sources, references = noisy(*text, kind, _SEED.value, tags)
            translations = translator.translate(sources)
            found = scores.bleu(translations, references), scores.chrf(translations, references)
            cells.append(f"{found[0]['bleu']:.2f}, {found[1]['chrf']:.2f}")
        rows.append(cells)
    print(markdown.table(["BLEU, chrF", *KINDS.values()], rows))
    print(json.dumps({"signature": found[0]["signature"], "chrf_signature": found[1]["chrf_signature"]}))


if __name__ == "__main__":
    program.run(main)
