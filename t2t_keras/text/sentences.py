"""Divides running text into sentences, which a model translates one by one."""

import re
import unicodedata
from collections.abc import Iterator

from t2t_keras.text.lines import is_blank
from t2t_keras.text.scripts import marks

# Those of Chinese and Japanese need no space after them. The others are also of Devanagari, Arabic, Ethiopic, Armenian,
# Burmese and Khmer.
STOPS, STOPS_WITHOUT_SPACE = ".!?…।॥۔؟።։။។", "。！？｡"
# Quotation marks that open in one language and close in another: „a“, “a”, ”a”, »a«, «a».
_QUOTES = "\"'“”‘’»«›‹"
# Stops with closing marks. The time is linear in the length of any text.
_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # Invisible, beside the stops of Arabic and Hebrew.
_STOP = re.compile(
    rf"""(?<![{STOPS}])[{STOPS}]++[{_QUOTES})\]{_DIRECTION}]*+(?=\s)|[{STOPS_WITHOUT_SPACE}]++["”’»」』）｣]*+"""
)
# French has a space after «.
_NEXT = re.compile(rf"""\s*+(?:[{_QUOTES}„‚(\[¿¡{_DIRECTION}]|[«‹]\s){{0,3}}([^\W\d_])""")
_WORD_AT_END = re.compile(rf"[\w{marks()}]*\Z")
_LINE_ENDS = r"([\r\n]++)"
# "Mr. Smith": a capitalized word of so few letters, or one letter, does not end a sentence, and neither does a number.
_ABBREVIATION = 3
_NO_END = re.compile(r"[\d\u0e00-\u0eff]")  # Digits, and Thai and Lao, which have stops after abbreviations only.


def sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Yields the parts of a text, which together are the text, and whether each is a sentence or only space.

    A sentence ends at a line end, at one of `STOPS` before a space and a letter that is not lower-case, and at one of
    `STOPS_WITHOUT_SPACE`. Where this is doubtful, as in "Mr. Smith" and "U.S. Army", the text is not divided.
    """
    for line in re.split(_LINE_ENDS, text):
        start = 0
        for match in _STOP.finditer(line):
            if _ends(line, match):
                yield from whole(line[start : match.end()])
                start = match.end()
        yield from whole(line[start:])


def lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yields parts as `sentences` does, with each line as one sentence."""
    for line in re.split(_LINE_ENDS, text):
        yield from whole(line)


def _ends(line: str, stop: re.Match) -> bool:
    if stop[0][0] in STOPS_WITHOUT_SPACE:
        return True
    following = _NEXT.match(line, stop.end())
    if not following or following[1].islower():
        return False
    # With marks: a letter of Vietnamese may be three characters.
    before = unicodedata.normalize("NFC", line[max(stop.start() - 3 * _ABBREVIATION - 3, 0) : stop.start()])
    word = _WORD_AT_END.search(before)[0]
    is_capital = not word.islower() and (word != word.lower() or bool(_NO_END.search(word)))
    is_short = len(word) == 1 or 0 < len(word) <= _ABBREVIATION and is_capital
    return not is_short or not stop[0].startswith(".") or stop[0].startswith("..")


def whole(text: str) -> Iterator[tuple[str, bool]]:
    """Yields what `sentences` does, of a text that is one sentence, with the space before and after it."""
    inside = text.strip()
    begin = text.find(inside)
    for part in (text[:begin], inside, text[begin + len(inside) :]):
        if part:
            yield part, not is_blank(part)
