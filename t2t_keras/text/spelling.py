"""What sub-words spell, and the words that they belong to."""

import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

from t2t_keras.text.scripts import in_word, is_joined

# Names of the ids after the special ids. They spell characters without an id.
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")  # In the order of their ids in `config.networks`.
# A character of tensor2tensor's sub-words: some are escaped, also over several sub-words.
_ESCAPED = re.compile(r"\\u|\\\\|\\\d{1,7};|(?s:.)")
_SPELLED = dict.fromkeys(SPECIAL, b"") | {name: bytes([byte]) for byte, name in enumerate(BYTES)}


def spelled(pieces: Iterable[str]) -> tuple[bytes, ...]:
    """Returns the bytes that sub-words spell, with a space in place of ▁; special symbols spell none."""
    return tuple(_SPELLED.get(piece, piece.replace("▁", " ").encode()) for piece in pieces)


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(" ")))


def word_numbers(pieces: Sequence[str], text: str) -> np.ndarray | None:
    """Returns the number of the word, which spaces separate, that each sub-word of a text belongs to, from 0: [T] int.
    The sub-words are without those of a language and of the end. `None` if the text has no words, or the sub-words have
    another number of words, as after a normalization.

    ▁ begins a word; or, if the first sub-word does not begin with it, it may end a part of the text, as in sub-words of
    tensor2tensor; without any, each sub-word may be a word. The number of words decides.
    """
    rules = [_from_beginnings]
    if not "".join(pieces).startswith("▁"):
        rules.append(_from_ends if "▁" in "".join(pieces) else _each)
    words, every = len(_words(text)), (rule(pieces) for rule in rules)
    return next((numbers for numbers in every if numbers.max(initial=-1) + 1 == words > 0), None)


def _each(pieces: Sequence[str]) -> np.ndarray:
    return np.arange(len(pieces))


def _from_beginnings(pieces: Sequence[str]) -> np.ndarray:
    text, ends = _spelled_text(pieces)
    begin, following, last = len(text) - len(text.lstrip(" ")), len(text), []
    for part, (start, end) in zip(reversed(spelled(pieces)), reversed(ends), strict=True):
        following = end if end > start else following
        last.append(following if part else end)  # A byte belongs to the word of its character.
    spaces = [0, *(text.count(" ", begin, end) for end in reversed(last))]
    return np.unique(spaces, return_inverse=True)[1][1:]  # Several spaces in a sub-word begin one word.


def _unescaped(unit: str) -> str:
    """Returns the character of a match of `_ESCAPED`."""
    if unit[1:-1].isdecimal():
        return chr(min(int(unit[1:-1]), 0x10FFFF))
    return "_" if unit == "\\u" else unit[:1]


def _from_ends(pieces: Sequence[str]) -> np.ndarray:
    """Numbers the words of tensor2tensor's sub-words: a space is implied between two parts that begin with a letter or
    a number.
    """
    numbers, number, ended = [], -1, True  # Of each character, and of the word that it belongs to.
    before = False  # Whether the part before begins with a letter or a number.
    for part in re.findall("[^▁]*▁?", "".join(pieces)):
        for place, unit in enumerate(_ESCAPED.findall(part)):
            character = _unescaped(unit)
            if not place:
                begins = unicodedata.category(character)[0] in "LN"
                ended, before = ended or begins and before, begins
            if character not in " ▁":
                number, ended = number + ended, False
            ended = ended or character == " "
            numbers += [number] * len(unit)
    ends = np.cumsum([len(piece) for piece in pieces])
    return np.maximum([numbers[end - 1] for end in ends], 0)


def by_word(pieces: Sequence[str], log_probs: Sequence[float], text: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Returns the words of a text, which spaces separate, and log P of each, the sum over its sub-words."""
    words, numbers = _words(text), word_numbers(pieces, text)
    if numbers is None:
        numbers, spelling = _from_beginnings(pieces), spelled(pieces)
        parts = [
            b"".join(itertools.compress(spelling, numbers == number)) for number in range(numbers.max(initial=-1) + 1)
        ]
        words = tuple(part.strip(b" ").decode(errors="replace") for part in parts)
    sums = np.zeros(len(words))
    np.add.at(sums, numbers, log_probs)
    return words, tuple(sums.tolist())


def text_and_ends(pieces: Sequence[str], known: str = "") -> tuple[str, list[tuple[int, int]]]:
    """Returns the text of sub-words, with spaces for ▁, and where each begins and ends in it.

    The bytes of a character, such as <0xC3>, are one after the other; the last has the character. `known` is the text
    if it is known, and returned if the sub-words have its characters, perhaps after others: those of tensor2tensor, or
    of a vocabulary of words, do not have all of its spaces.
    """
    text, ends = _spelled_text(pieces)
    if not known or text.strip(" ") == known:
        return text, ends
    letters = "".join(known.split(" "))
    readings = [_characters(text, ends), _unescaped_characters(pieces)]
    fitting = [reading for reading in readings if reading[0].endswith(letters)]
    if not fitting:
        return text, ends
    characters, counts = min(fitting, key=lambda reading: len(reading[0]))
    if text.rstrip(" ").endswith(known) and characters == readings[0][0]:
        return text, ends
    before = characters.removesuffix(letters)
    whole = f"{before} {known}" if before else known
    first = len(whole) - len(known)
    places = [*range(len(before)), *(first + place for place, each in enumerate(known) if each != " "), len(whole)]
    spans = zip([0, *counts], counts, strict=False)
    return whole, [(places[start], places[max(end - 1, start)] + (end > start)) for start, end in spans]


def _characters(text: str, ends: Sequence[tuple[int, int]]) -> tuple[str, list[int]]:
    """Returns the characters of a text but its spaces, and how many there are up to the end of each sub-word."""
    counts = np.cumsum([0, *(character != " " for character in text)])
    return "".join(text.split(" ")), [int(counts[end]) for _, end in ends]


def _unescaped_characters(pieces: Sequence[str]) -> tuple[str, list[int]]:
    """Returns the same of tensor2tensor's sub-words."""
    units = list(_ESCAPED.finditer("".join(pieces)))
    shown = [_unescaped(unit[0]).replace("▁", "").replace(" ", "") for unit in units]
    ends = np.searchsorted([unit.end() for unit in units], np.cumsum([len(piece) for piece in pieces]), side="right")
    counts = np.cumsum([0, *map(len, shown)])
    return "".join(shown), [int(counts[end]) for end in ends]


def _spelled_text(pieces: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Returns the text of sub-words, with spaces for ▁, and where each begins and ends in it."""
    # In a vocabulary of whole words, a ▁ in bytes begins a word that is spelled in bytes.
    whole = all(piece in _SPELLED or piece.startswith("▁") for piece in pieces)
    text, ends, unfinished = "", [], b""
    for part in spelled(pieces):
        start, unfinished = len(text), unfinished + part
        try:
            character = unfinished.decode()
            text, unfinished = text + (" " if whole and character == "▁" else character), b""
        except UnicodeDecodeError:
            if len(part) > 1:
                text, unfinished = text + unfinished.decode(errors="replace"), b""
        ends.append((start, len(text)))
    return text, ends


def words_of(text: str, ends: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the first sub-word of each word, and the one after its last. Between words, a word may end or begin. A
    mark or joiner, also of a script without spaces, belongs to the word before.
    """
    words: list[tuple[int, int]] = []
    for place, (start, _) in enumerate(ends):
        begun = place > 0 and start == ends[place - 1][0]  # The sub-word before is a byte of the same character.
        within = in_word(text[start - 1 : start]) and in_word(text[start : start + 1])
        if place > 0 and (begun or within or is_joined(text, start)):
            words[-1] = (words[-1][0], place + 1)
        else:
            words.append((place, place + 1))
    return words
