"""Scripts: which characters are parts of words, and which of them are in words that no spaces separate."""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator

# Characters of scripts without spaces between words, for the brackets of a regular expression of Python or RE2: Thai,
# Lao, Tibetan, Myanmar, Khmer, Chinese and Japanese.
UNSPACED = (
    "\u0e00-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u312f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\uff66-\uff9f\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
JOINERS = "\u200c\u200d"  # What a reader sees as a word, or one emoji, goes on after these.
SKIN_TONES = "\U0001f3fb-\U0001f3ff"  # Of the emoji before.


def _ranges(characters: Iterable[str]) -> str:
    """Returns characters, in the order of their codes, in the form of `UNSPACED`."""
    ranges = itertools.groupby(enumerate(characters), lambda item: ord(item[1]) - item[0])
    ends = [[character for _, character in group] for _, group in ranges]
    return "".join(f"{group[0]}-{group[-1]}" for group in ends)


def _characters() -> Iterator[str]:
    """Yields the characters up to the last letter, mark or digit with a script that has spaces between words."""
    # Unicode has none beyond, except for marks that select variants.
    return map(chr, itertools.chain(range(0x20000), range(0xE0100, 0xE01F0)))


@functools.cache
def marks() -> str:
    """Returns the marks of all scripts, such as accents and vowel signs, in the form of `UNSPACED`: they belong to the
    character before. They are no `\\w` in Python.
    """
    return _ranges(x for x in _characters() if unicodedata.category(x)[0] == "M")


def is_joined(text: str, place: int) -> bool:
    """Returns whether a character of a text belongs to the one before: a mark, the tone of an emoji's skin, a joiner,
    or what is after one.
    """
    character, before = text[place : place + 1], text[max(place - 1, 0) : place]
    if not character or not before:
        return False
    is_tone = SKIN_TONES[0] <= character <= SKIN_TONES[-1]
    return is_tone or character in JOINERS or before in JOINERS or unicodedata.category(character)[0] == "M"


@functools.cache
def word_characters() -> str:
    """Returns the letters, marks and digits of all scripts with spaces between words, in the form of `UNSPACED`."""
    unspaced = {
        chr(code)
        for first, last in zip(UNSPACED[::3], UNSPACED[2::3], strict=True)
        for code in range(ord(first), ord(last) + 1)
    }
    return _ranges(x for x in _characters() if unicodedata.category(x)[0] in "LMN" and x not in unspaced)


@functools.lru_cache(2**16)
def in_word(character: str) -> bool:
    """Returns whether a character is one of `word_characters`. An empty text is not."""
    return bool(re.fullmatch(f"[{word_characters()}]", character))


def is_unspaced(lines: Iterable[str]) -> bool:
    """Returns whether at least half of the letters, marks and digits of a text are in scripts without spaces."""
    text = "".join(lines)
    unspaced = len(re.findall(f"[{UNSPACED}]", text))
    return unspaced > 0 and unspaced >= len(re.findall(f"[{word_characters()}]", text))
