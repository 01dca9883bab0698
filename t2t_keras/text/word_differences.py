"""Word differences between two texts."""

import collections
import difflib
import os
import re

from t2t_keras.text.scripts import UNSPACED, marks

# Bound of the steps of a comparison, at most 0.7 s: two texts that repeat one word take the cube of their length.
_MOST_STEPS = 200_000_000
# In scripts without spaces, each character counts as a word, with its marks.
_WORD = re.compile(rf"\s+|[{UNSPACED}][{marks()}]*|[^\s{UNSPACED}]+")


def word_differences(first: str, second: str) -> list[tuple[str, str]]:
    """Returns the parts of two texts side by side: equal where the texts agree, else what each has in this place.

    The left sides of all parts together are the first text, and the right sides the second. Of texts that would take
    seconds to compare, all between their common beginning and end is one part.
    """
    one, other = (_WORD.findall(text) for text in (first, second))
    counts = [collections.Counter(words) for words in (one, other)]
    steps = sum(number * counts[1][word] for word, number in counts[0].items()) * min(len(one), len(other))
    if steps <= _MOST_STEPS:
        places = [place for _, *place in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes()]
    else:
        begin = len(os.path.commonprefix([one, other]))
        end = len(os.path.commonprefix([one[begin:][::-1], other[begin:][::-1]]))
        ends = [(len(words) - end, len(words)) for words in (one, other)]
        places = [(0, begin, 0, begin), (begin, ends[0][0], begin, ends[1][0]), (*ends[0], *ends[1])]
        places = [(a, b, c, d) for a, b, c, d in places if a < b or c < d]
    return [("".join(one[a:b]), "".join(other[c:d])) for a, b, c, d in places]
