"""What sub-words spell, and the words that they belong to."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from t2t_keras.text.scripts import in_word

# Names of the ids after the special ids. They spell characters without an id.
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


def spelled(pieces: Iterable[str]) -> tuple[bytes, ...]:
    """Returns the bytes that sub-words spell, with a space in place of ▁; special symbols spell none."""
    special = dict.fromkeys(("<pad>", "<unk>", "<s>", "</s>"), b"")
    known = special | {name: bytes([byte]) for byte, name in enumerate(BYTES)}
    return tuple(known.get(piece, piece.replace("▁", " ").encode()) for piece in pieces)


def word_numbers(spelling: Sequence[bytes]) -> np.ndarray:
    """Returns the number of the word that each sub-word of a sentence belongs to, from 0: [T] int.

    Args:
        spelling: what each sub-word spells, without the symbols of a language and of the end.
    """
    # A space begins the word after it.
    return np.array([b"".join(spelling[: index + 1]).lstrip(b" ").count(b" ") for index in range(len(spelling))], int)


def by_word(pieces: Sequence[str], log_probs: Sequence[float]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Returns the words of a text, which spaces separate, and log P of each, the sum over its sub-words.

    Args:
        pieces: its sub-words.
        log_probs: log P of each.
    """
    spelling = spelled(pieces)
    rows = zip(word_numbers(spelling), spelling, log_probs, strict=True)
    words = [list(group) for _, group in itertools.groupby(rows, key=lambda row: row[0])]
    texts = (b"".join(part for _, part, _ in word).strip(b" ").decode(errors="replace") for word in words)
    return tuple(texts), tuple(float(sum(log_prob for *_, log_prob in word)) for word in words)


def text_and_ends(pieces: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Returns the text of sub-words, with spaces for ▁, and where each begins and ends in it.

    The bytes of a character, such as <0xC3>, are one after the other; the last has the character.
    """
    text, ends, unfinished = "", [], b""
    for part in spelled(pieces):
        start, unfinished = len(text), unfinished + part
        try:
            text, unfinished = text + unfinished.decode(), b""
        except UnicodeDecodeError:
            if len(part) > 1:
                text, unfinished = text + unfinished.decode(errors="replace"), b""
        ends.append((start, len(text)))
    return text, ends


def words_of(text: str, ends: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the first sub-word of each word, and the one after its last. Between words, a word may end or begin."""
    words: list[tuple[int, int]] = []
    for place, (start, _) in enumerate(ends):
        begun = place > 0 and start == ends[place - 1][0]  # The sub-word before is a byte of the same character.
        if begun or place > 0 and in_word(text[start - 1 : start]) and in_word(text[start : start + 1]):
            words[-1] = (words[-1][0], place + 1)
        else:
            words.append((place, place + 1))
    return words
