"""Word differences between two texts."""

import difflib
import re

from t2t_keras.text.scripts import UNSPACED

# In scripts without spaces, each character counts as a word.
_WORD = re.compile(rf"\s+|[{UNSPACED}]|[^\s{UNSPACED}]+")


def word_differences(first: str, second: str) -> list[tuple[str, str]]:
    """Returns the parts of two texts side by side: equal where the texts agree, else what each has in this place.

    The left sides of all parts together are the first text, and the right sides the second.
    """
    words = [_WORD.findall(text) for text in (first, second)]
    matcher = difflib.SequenceMatcher(None, *words, autojunk=False)
    return [("".join(words[0][a:b]), "".join(words[1][c:d])) for _, a, b, c, d in matcher.get_opcodes()]
