"""Web pages in one file, which need no network: a template, and its data as JSON in a script element."""

import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from t2t_keras.text.word_differences import word_differences

ATTENTION, COMPARISON = (pathlib.Path(__file__).with_name(f"{name}_page.html") for name in ("attention", "comparison"))
SCALE = 1000  # Weights are whole thousandths, which keeps the page small.
_PLACE = "{{data}}"


def fill(template: pathlib.Path, data) -> str:
    """Returns a page: a template with its data."""
    before, after = template.read_text(encoding="utf-8").split(_PLACE)
    return before + _as_script_data(data) + after


def _as_script_data(value) -> str:
    """Returns JSON in ASCII that no text can end or turn into markup: < > and & are escaped."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def attention_page(attentions: Mapping) -> str:
    """Returns a page that shows the `SentenceAttention` of one or more sentences, by their numbers: choose a sentence,
    a layer and heads, and point at a word. Weights are by sub-words: the page merges them to words itself.
    """
    if not attentions:
        raise ValueError("A page of attention needs one sentence or more.")
    sentences = [{"number": number} | _sentence(attention) for number, attention in attentions.items()]
    return fill(ATTENTION, {"scale": SCALE, "sentences": sentences})


def _sentence(attention) -> dict:
    from t2t_keras.reporting.attention import KINDS  # Which needs TensorFlow; comparisons do not.

    sides = {"source": attention.source, "target": attention.target, "input": attention.target_input}
    return {
        **{name: {"pieces": side.pieces, "words": side.words, "sizes": side.sizes} for name, side in sides.items()},
        "weights": {kind: _thousandths(attention.weights(kind), causal=kind == "decoder") for kind in KINDS},
    }


def _thousandths(weights: np.ndarray, causal: bool) -> list:
    """Returns for each layer and head of weights [L, H, T, S] one list of whole numbers, row after row; of `causal`
    weights without the zeros above the diagonal.
    """
    rounded = np.rint(weights * SCALE).astype(int)
    if causal:
        rows, columns = np.tril_indices(rounded.shape[-1])
        return rounded[:, :, rows, columns].tolist()
    return rounded.reshape(*rounded.shape[:2], math.prod(rounded.shape[2:])).tolist()


def comparison_page(
    comparison: dict, align: Callable[[str, str, str], Sequence | None] = lambda system, source, translation: None
) -> str:
    """Returns a page that compares systems: their scores, wins and losses by length, and sentences side by side.

    Args:
        comparison: the fields of an `evaluation.comparison.Comparison`, as of `dataclasses.asdict`.
        align: returns the attention of each word of a system's translation to each word of its source, [T, S], or
            `None` if it is not known; gets the name of the system and the two texts. The page shows it where one points
            at a word.
    """
    baseline = comparison["systems"][0]["name"]

    def with_parts(example: dict, name: str) -> dict:
        """Adds the parts of the two translations, of which the page marks those that differ, and their alignments."""
        outputs = ((baseline, example["baseline"]), (name, example["system"]))
        alignments = [
            rows if rows is None else [[round(float(weight), 3) for weight in row] for row in rows]
            for rows in (align(system, example["source"], text) for system, text in outputs)
        ]
        return {**example, "parts": word_differences(example["baseline"], example["system"]), "alignments": alignments}

    systems = [
        {
            **system,
            **{side: [with_parts(example, system["name"]) for example in system[side]] for side in ("better", "worse")},
        }
        for system in comparison["systems"]
    ]
    return fill(COMPARISON, {**comparison, "systems": systems})
