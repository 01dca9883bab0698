"""Scripts: which characters are parts of words, and which of them are in words that no spaces separate."""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable

# Characters of scripts without spaces between words, for the brackets of a regular expression of Python or RE2: Thai,
# Lao, Tibetan, Myanmar, Khmer, Chinese and Japanese.
UNSPACED = (
    "\u0e00-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u312f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\uff66-\uff9f\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)


@functools.cache
def word_characters() -> str:
    """Returns the letters, marks and digits of all scripts with spaces between words, in the form of `UNSPACED`."""
    unspaced = {
        chr(code)
        for first, last in zip(UNSPACED[::3], UNSPACED[2::3], strict=True)
        for code in range(ord(first), ord(last) + 1)
    }
    # Unicode has none beyond, except for marks that select variants.
    characters = map(chr, itertools.chain(range(0x20000), range(0xE0100, 0xE01F0)))
    members = [x for x in characters if unicodedata.category(x)[0] in "LMN" and x not in unspaced]
    ranges = itertools.groupby(enumerate(members), lambda item: ord(item[1]) - item[0])
    ends = [[character for _, character in group] for _, group in ranges]
    return "".join(f"{group[0]}-{group[-1]}" for group in ends)


@functools.lru_cache(2**16)
def in_word(character: str) -> bool:
    """Returns whether a character is one of `word_characters`. An empty text is not."""
    return bool(re.fullmatch(f"[{word_characters()}]", character))


def is_unspaced(lines: Iterable[str]) -> bool:
    """Returns whether at least half of the letters, marks and digits of a text are in scripts without spaces."""
    text = "".join(lines)
    unspaced = len(re.findall(f"[{UNSPACED}]", text))
    return unspaced > 0 and unspaced >= len(re.findall(f"[{word_characters()}]", text))
