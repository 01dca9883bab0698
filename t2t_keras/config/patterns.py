"""Patterns of text to keep, such as {0}, %s, <b> and URLs: what the option `keep_patterns` means.

They are regular expressions in the syntax that Python (with `re.ASCII`) and RE2 (which TensorFlow uses in a graph) have
in common. Nothing is matched here: the expressions of a folder may be anyone's, and Python's engine takes exponential
time for some. `text.placeholders` matches by RE2, in linear time.
"""

import re

# Spaces of Unicode, and the punctuation of Chinese and Japanese, which needs no space before it.
_NOT_IN_URL = (
    "\u00a0\u2000-\u200b\u2028\u2029\u202f\u3000-\u3003\u3008-\u3011\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"
    "\uff61-\uff64"
)
NAMED = {
    "braces": r"\{\{[^{}]+\}\}|\$?\{[^{}\s]*\}",  # {0}, {}, {name}, ${name}, {{ name }}.
    "printf": r"%(?:\d+\$|\(\w+\))?[-+0#]*(?:[1-9]\d*|\*)?(?:\.(?:\d+|\*))?"  # %s, %1$d, %(n)s.
    r"(?:(?:hh?|ll?|[jtzL])?[cdeEfgGiosSuxX]\b|[@%])",
    "tags": r"</?[A-Za-z][^<>]*>",
    "urls": rf"(?:(?:https?|ftp)://|www\.)[^\s<>\"{_NOT_IN_URL}]*[^\s<>\"'.,;:!?()\[\]{_NOT_IN_URL}]",
    "emails": r"[\w.%+\-]{1,64}@[\w\-]+(?:\.[\w\-]+)*\.[A-Za-z]{2,}",  # RFC 5321 allows 64.
}
MAX_LENGTH = 1000  # Characters of an option.
_ENTRY = re.compile(r"\s*(?:(?P<name>\w+)|/(?P<own>(?:[^/\\]|\\.)+)/)\s*(?:,|\Z)")
_LITERAL = re.compile(r"\\[^1-9]|\[\^?\]?(?:\\.|[^\]\\])*\]")  # Escaped characters, and classes.
_NOT_RE2 = re.compile(r"\(\?(?!:|P<|[ims]+:).?|\\[1-9]")
_NOT_RE2_COUNT = re.compile(r"\{,(\d+)\}")  # Literal text in RE2.
_NOT_PYTHON = re.compile(r"\[(?:\\.|[^\]\\])*?(\[:\^?\w+:\])")


def parse(option: str) -> str:
    """Returns the regular expression of some patterns: separated by commas, names among `NAMED` and regular expressions
    between slashes, such as `braces,/\\$\\w+/`. Raises `ValueError` if a name is unknown, or an expression is invalid
    or too long.

    It matches any of them, the first of those that begin at the same place; it is empty for an empty option.
    """
    if len(option) > MAX_LENGTH:
        raise ValueError(
            f"`keep_patterns`: expected at most {MAX_LENGTH:,} characters. Received: {option!r:.200}, which has "
            f"{len(option):,}."
        )
    found, place = [], 0
    while place < len(option):
        entry = _ENTRY.match(option, place)
        if not entry or not (entry["own"] or entry["name"] in NAMED):
            raise ValueError(
                f"`keep_patterns`: expected names among {', '.join(NAMED)}, and regular expressions between slashes, "
                f"separated by commas. Received: {option!r:.200}."
            )
        found.append(NAMED[entry["name"]] if entry["name"] else _checked(entry["own"]))
        place = entry.end()
    joined = "|".join(f"(?:{each})" for each in found)
    try:
        re.compile(joined, re.ASCII)
    except re.error as error:  # Such as a name of a group in two of them.
        raise ValueError(
            f"`keep_patterns`: expected regular expressions that can be combined. Received: {option!r:.200} ({error})."
        ) from error
    return joined


def _checked(own: str) -> str:
    """Returns a regular expression, or raises `ValueError` if it is none that can be used."""
    expected = "expected regular expressions of both Python and RE2 that match text"
    if named := _NOT_PYTHON.search(own):
        raise ValueError(
            f"`keep_patterns`: {expected}. Received: /{own}/. Python has no {named[1]}: list the characters, as in "
            "[A-Z]."
        )
    if count := _NOT_RE2_COUNT.search(_LITERAL.sub("", own)):
        raise ValueError(
            f"`keep_patterns`: {expected}. Received: /{own}/. RE2 has no {count[0]}: write {{0,{count[1]}}}."
        )
    try:
        re.compile(own, re.ASCII)
        shortest, _ = re._parser.parse(own, re.ASCII).getwidth()  # Matching empty text may take exponential time.
        wrong = "" if shortest else "It matches empty text."
    except (re.error, OverflowError) as error:
        wrong = f"It is invalid: {error}."
    except RecursionError:
        wrong = "Its groups are nested too deeply."
    if not wrong and (unknown := _NOT_RE2.search(_LITERAL.sub("", own))):
        wrong = f"Assertions, references and flags are not supported: {unknown[0]}."
    if wrong:
        raise ValueError(f"`keep_patterns`: {expected}. Received: /{own}/. {wrong}")
    return own
