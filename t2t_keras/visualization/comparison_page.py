"""A web page in one file that compares systems: their scores, wins and losses by length, and sentences side by side."""

import pathlib
from collections.abc import Iterable

from t2t_keras.text.word_differences import word_differences
from t2t_keras.visualization import pages

TEMPLATE = pathlib.Path(__file__).with_name("comparison_page.html")


def page(comparison: dict) -> str:
    """Returns a page that needs no network and no other file.

    Args:
        comparison: the fields of an `evaluation.comparison.Comparison`, as of `dataclasses.asdict`.
    """
    systems = [{**system, **{side: _with_parts(system[side]) for side in ("better", "worse")}} for system in comparison["systems"]]
    return pages.fill(TEMPLATE, {**comparison, "systems": systems})


def _with_parts(examples: Iterable[dict]) -> list[dict]:
    """Adds the parts of the two translations, of which the page marks those that differ."""
    return [{**example, "parts": word_differences(example["baseline"], example["system"])} for example in examples]
