"""Divides running text into sentences, which a model translates one by one."""

import re
from collections.abc import Iterator

from t2t_keras.text.lines import is_blank

# Those of Chinese and Japanese need no space after them. The others are also of Devanagari, Arabic, Ethiopic, Armenian,
# Burmese and Khmer.
STOPS, STOPS_WITHOUT_SPACE = ".!?…।॥۔؟።։။។", "。！？"
# Quotation marks that open in one language and close in another: „a“, “a”, ”a”, »a«, «a».
_QUOTES = "\"'“”‘’»«›‹"
# Stops with closing marks. The time is linear in the length of any text.
_STOP = re.compile(rf"""(?<![{STOPS}])[{STOPS}]++[{_QUOTES})\]]*+(?=\s)|[{STOPS_WITHOUT_SPACE}]++["”’»」』）]*+""")
_NEXT = re.compile(rf"""\s*+(?:[{_QUOTES}„‚(\[¿¡]|[«‹]\s){{0,3}}([^\W\d_])""")  # French has a space after «.
_LINE_ENDS = r"([\r\n]++)"
_ABBREVIATION = 3  # "Mr. Smith": a capitalized word of so few letters, or one letter, does not end a sentence.


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
    # One letter more than an abbreviation has.
    [word] = re.findall(r"\w*\Z", line[max(stop.start() - _ABBREVIATION - 1, 0) : stop.start()])[:1]
    is_short = len(word) == 1 or 0 < len(word) <= _ABBREVIATION and not word.islower()
    return not is_short or not stop[0].startswith(".") or stop[0].startswith("..")


def whole(text: str) -> Iterator[tuple[str, bool]]:
    """Yields what `sentences` does, of a text that is one sentence, with the space before and after it."""
    inside = text.strip()
    begin = text.find(inside)
    for part in (text[:begin], inside, text[begin + len(inside) :]):
        if part:
            yield part, not is_blank(part)
