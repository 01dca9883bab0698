"""Word differences between two texts."""

import difflib
import re

# The scripts of Chinese and Japanese do not separate words: each of their characters counts as a word.
_UNSEPARATED = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"\s+|[{_UNSEPARATED}]|[^\s{_UNSEPARATED}]+")


def word_differences(first: str, second: str) -> list[tuple[str, str]]:
    """Returns the parts of two texts side by side: equal where the texts agree, else what each has in this place.

    The left sides of all parts together are the first text, and the right sides the second.
    """
    words = [_WORD.findall(text) for text in (first, second)]
    matcher = difflib.SequenceMatcher(None, *words, autojunk=False)
    return [("".join(words[0][a:b]), "".join(words[1][c:d])) for _, a, b, c, d in matcher.get_opcodes()]
