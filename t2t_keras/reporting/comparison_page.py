"""A web page in one file that compares systems: their scores, wins and losses by length, and sentences side by side."""

import pathlib
from collections.abc import Callable, Sequence

from t2t_keras.reporting import pages
from t2t_keras.text.word_differences import word_differences

TEMPLATE = pathlib.Path(__file__).with_name("comparison_page.html")


def page(
    comparison: dict, align: Callable[[str, str, str], Sequence | None] = lambda system, source, translation: None
) -> str:
    """Returns a page that needs no network and no other file.

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
        found = [align(system, example["source"], text) for system, text in outputs]
        alignments = [
            rows if rows is None else [[round(float(weight), 3) for weight in row] for row in rows] for rows in found
        ]
        return {**example, "parts": word_differences(example["baseline"], example["system"]), "alignments": alignments}

    systems = [
        {
            **system,
            **{side: [with_parts(example, system["name"]) for example in system[side]] for side in ("better", "worse")},
        }
        for system in comparison["systems"]
    ]
    return pages.fill(TEMPLATE, {**comparison, "systems": systems})
