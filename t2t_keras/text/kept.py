"""Text to keep: what a translation must contain because it is in the source, such as {0} and <b>."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from t2t_keras.config import patterns
from t2t_keras.text.lines import is_blank
from t2t_keras.text.phrases import JOINER


class Kept:
    """Text that a translation must contain because it is in the source, such as {0} and <b>.

    Args:
        option: its patterns, see `patterns.parse`, whose error it raises.
        expression: their regular expression, in place of an option.
        find_all: finds the matches of an expression in texts, such as `placeholders.find_all`, which takes linear time
            for any expression and needs TensorFlow; the default is Python's engine.
    """

    def __init__(
        self, option: str, find_all: Callable[[Sequence[str], str], Iterable] | None = None, expression: str = ""
    ):
        self._expression, self._find_all = expression or patterns.parse(option), find_all or _find_all

    def shared(self, sources: Sequence[str], targets: Sequence[str]) -> int:
        """Returns how many pairs have text to keep on both sides."""
        in_sources, in_targets = (self._find_all(side, self._expression) for side in (sources, targets))
        return sum(
            not {match for _, match in in_source}.isdisjoint(match for _, match in in_target)
            for in_source, in_target in zip(in_sources, in_targets, strict=True)
        )

    def of(self, text: str) -> list[str]:
        """Returns what a sentence has to keep, one phrase for each place, with `JOINER` where no space is before it."""
        return [phrase for _, phrase in self.with_places(text)]

    def with_places(self, text: str) -> list[tuple[int, str]]:
        """Returns where each phrase of `of` begins in a sentence, and the phrase. Matches with tabs, line ends or
        several spaces in a row, which the model does not read, are left out.
        """
        return [
            (start, JOINER * (start > 0 and not text[start - 1].isspace()) + match)
            for start, match in self.matches(text)
            if not re.search(r"[\t\n]|  ", match)
        ]

    def matches(self, text: str) -> list[tuple[int, str]]:
        """Returns where each match of the patterns begins in a sentence, and the match. Matches of spaces alone are
        left out.
        """
        if not self._expression:
            return []
        [matches] = self._find_all([text], self._expression)
        return [each for each in matches if not is_blank(each[1])]


def _find_all(texts: Sequence[str], expression: str) -> Iterator[list[tuple[int, str]]]:
    for text in texts:
        yield [(match.start(), match[0]) for match in re.finditer(expression, text, re.ASCII)]


def without(text: str, kept: Iterable[Kept]) -> str:
    """Returns a text with line ends, which no phrase has, in place of what is kept."""
    characters = [*text]
    for start, match in [found for each in kept for found in each.matches(text)]:
        characters[start : start + len(match)] = "\n" * len(match)
    return "".join(characters)
