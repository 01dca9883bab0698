"""Phrases that translations must or must not contain, and their places in text."""

import re
from collections.abc import Iterable, Iterator, Sequence

from t2t_keras.text.lines import is_blank
from t2t_keras.text.scripts import in_word

SEPARATOR = "\t"
JOINER = "￭"  # Begins a phrase that must follow the text before it without a space, as in OpenNMT's Tokenizer.
MAX_PHRASES = 32  # Of a sentence.
MAX_SUBWORDS = 32  # Of a phrase.


def joined(phrases: Sequence[str], name: str) -> str:
    """Joins phrases of a sentence to one string, as the signatures of an export take them; `name` is for messages.
    Raises `ValueError` if a phrase is not text on one line, or there are too many.
    """
    if not isinstance(phrases, list | tuple) or not all(isinstance(phrase, str) for phrase in phrases):
        raise ValueError(f"{name}: expected a list of phrases. Received: {phrases!r:.80}.")
    for phrase in phrases:
        if is_blank(phrase.removeprefix(JOINER)) or re.search(r"[\t\r\n]", phrase):
            raise ValueError(
                f"{name}: expected phrases of one or more words, without tabs and line ends. Received: {phrase!r:.80}."
            )
    if len(phrases) > MAX_PHRASES:
        raise ValueError(f"{name}: expected at most {MAX_PHRASES} phrases for a sentence. Received: {len(phrases)}.")
    return SEPARATOR.join(phrases)


def most_subwords(phrase: str) -> int:
    """Returns how many sub-words a phrase may have, if its letters are in the alphabet of the vocabulary: one for the
    mark of a word, for each letter, digit and space as many as its bytes, and for another sign as many as an escape
    such as \\9731; has.
    """
    return 1 + sum(len(each.encode()) if each.isalnum() or each == " " else 9 for each in phrase)


def with_capital(phrase: str) -> list[str]:
    """Returns a phrase, and as it is at the beginning of a sentence if that differs."""
    return list(dict.fromkeys([phrase, phrase[:1].title() + phrase[1:]]))


def small_letters(capital: str) -> list[str]:
    """Returns the small letters of one letter: two of I, which is also that of the Turkish ı."""
    return [capital.lower()[:1], *(["ı"] if capital == "I" else [])]  # Python has two characters for that of İ.


def folded(text: str) -> str:
    """Returns a text without case, for comparisons. The Turkish ı and İ are an i, because I is the capital of both."""
    return text.casefold().replace("i\u0307", "i").replace("ı", "i")


def places(text: str, phrase: str) -> Iterator[int]:
    """Yields where a phrase begins in a text as whole words, as `decoding.avoided` understands them."""
    start = text.find(phrase)
    while phrase and start >= 0:
        if not any(is_inside_word(text, edge) for edge in (start, start + len(phrase))):
            yield start
        start = text.find(phrase, start + 1)


def is_inside_word(text: str, place: int) -> bool:
    return in_word(text[max(place - 1, 0) : place]) and in_word(text[place : place + 1])


def holds(text: str, phrase: str) -> bool:
    """Returns whether a text has a phrase as whole words."""
    return any(True for _ in places(text, phrase))


def apart(text: str, phrases: Iterable[str]) -> list[tuple[int, str]]:
    """Returns where phrases are in a text as whole words, and which: of those that overlap the first and longest."""
    found, end = [], 0
    starts = [(start, -len(phrase), phrase) for phrase in phrases for start in places(text, phrase)]
    for start, _, phrase in sorted(starts):
        if start >= end:
            found.append((start, phrase))
            end = start + len(phrase)
    return found
