"""Word pieces (section 5.1, English-French; Schuster & Nakajima, 2012; Wu et al., 2016).

As in Wu et al. (2016), a piece that begins a word is marked with ▁, and other pieces have no mark. A line is segmented
from left to right; each time, the longest piece that fits is taken. Byte-pair encoding repeats the merges of its
training instead. Characters without a piece are spelled in bytes, so no text is lost and no word is unknown.

The file is UTF-8 text. Line n is the piece with id n: the special symbols, the 256 bytes, single characters, and then
longer pieces, the most frequent first.
"""

import collections
import functools
import itertools
import math
import unicodedata
from collections.abc import Iterable

import tensorflow as tf

from t2t_keras.config import UNK
from t2t_keras.text import tokenizer_ops
from t2t_keras.text.spelling import BYTES, SPECIAL
from t2t_keras.text.subwords import BYTES_PER_PIECE, SizeError, Subwords, draw_sample

HEAD = "".join(f"{piece}\n" for piece in (*SPECIAL, *BYTES)).encode()  # The beginning of every file.
CHARACTERS_PER_PIECE = 16  # Maximum. A character has up to 4 bytes.
# Number of different words to learn from, the most frequent ones. The time and memory of learning depend on it.
WORDS = 200_000
EXCESS = 0.05  # Learning stops if at most this share of the pieces found is not needed.
_SPACE = "▁"
_NOT_IN_TEXT = b"\xff"  # A byte that UTF-8 does not use begins pieces that must match no text.
_ITERATIONS = 4  # As TF.Text does by default.


class WordPieces(Subwords):
    """Word pieces. Raises `ValueError` if `model` is no file that `learn` made."""

    def __init__(self, model: bytes):
        pieces = _pieces_of(model)
        super().__init__(model, pieces)
        characters = set(pieces[len(SPECIAL) + len(BYTES) :])
        matched = [_NOT_IN_TEXT + piece.encode() for piece in pieces[: len(SPECIAL)]]
        for byte, name in enumerate(BYTES):
            # An ASCII character with a piece is not spelled in bytes. UTF-8 does not use the last bytes.
            unused = byte >= 0xF8 or byte < 0x80 and chr(byte).replace(" ", _SPACE) in characters
            matched.append(_NOT_IN_TEXT + name.encode() if unused else bytes([byte]))
        surfaces = [b""] * len(SPECIAL) + [bytes([byte]) for byte in range(256)]
        longer = [piece.replace(_SPACE, " ").encode() for piece in pieces[len(surfaces) :]]
        self._matcher = tokenizer_ops.longest_match(matched + longer, UNK)
        self._surfaces = tf.constant(surfaces + longer)

    def _encode(self, text) -> tf.RaggedTensor:
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
        text = tf.strings.regex_replace(tf.strings.join([" ", text]), " +", " ")
        return self._matcher.tokenize(tf.strings.regex_replace(text, r" \z", ""))

    def _decode(self, ids: tf.RaggedTensor):
        text = tf.strings.reduce_join(tf.gather(self._surfaces, ids), axis=1)
        text = tf.strings.regex_replace(text, r"\A ", "")
        return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")


def _pieces_of(model: bytes) -> tuple[str, ...]:
    """Returns the word pieces of a file."""
    if not model.startswith(HEAD):
        raise ValueError(f"Not a list of word pieces: {len(model):,} bytes that do not begin with the special symbols.")
    try:
        *pieces, rest = model.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"Not a list of word pieces: the file is not UTF-8 ({error}).") from error
    wrong = {piece for piece, count in collections.Counter(pieces).items() if count > 1 or not _is_piece(piece)}
    if wrong or rest:
        received = f"{min(wrong)!r}" if wrong else "no line end after the last piece"
        raise ValueError(
            f"Word pieces must be different and have 1 to {BYTES_PER_PIECE} bytes, one a line. Received: {received}."
        )
    return tuple(pieces)


def _is_piece(piece: str) -> bool:
    """Returns whether text is a valid piece: short enough, without a later mark, spaces and control characters."""
    return (
        0 < len(piece.encode()) <= BYTES_PER_PIECE
        and _SPACE not in piece[1:]
        and not any(map(_is_excluded, piece.replace(_SPACE, "")))
    )


@functools.cache
def _is_excluded(character: str) -> bool:
    """Returns whether a character has no piece and is always spelled in bytes."""
    return character in (_SPACE, " ") or unicodedata.category(character) == "Cc"


@functools.cache
def _kind(character: str) -> str:
    """Returns what a character is: a letter or mark, a digit, or something else."""
    category = unicodedata.category(character)[0]
    return category if category in "LN" else "L" if category == "M" else "other"


def _parts(word: str, alphabet: set[str]) -> Iterable[str]:
    """Splits a word with its mark into parts that pieces do not cross: letters, digits, and other characters.

    Characters outside of the alphabet are left out, and so is a ▁ that is not the mark. Parts have up to 16 characters.
    """
    part = ""
    for index, character in enumerate(word):
        known = character in alphabet and (index == 0 or character != _SPACE)
        same = (
            known and len(part) < CHARACTERS_PER_PIECE and (part in ("", _SPACE) or _kind(part[-1]) == _kind(character))
        )
        if not same:
            yield part
            part = ""
        part += character if known else ""
    yield part


def _count(lines: list[str]) -> collections.Counter:
    """Counts the words of some lines. A word begins with its mark and has none inside."""
    words = collections.Counter(itertools.chain.from_iterable(line.split(" ") for line in lines))
    return collections.Counter({_SPACE + word: count for word, count in words.items() if word})


def _alphabet(words: collections.Counter, coverage: float) -> set[str]:
    """Returns the most frequent characters that make up a share of the text, without control characters and ▁."""
    counts = collections.Counter()
    for word, count in words.items():
        for character in word[1:]:
            counts[character] += count
    total, covered, alphabet = counts.total(), 0, {_SPACE}
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if covered >= coverage * total:
            break
        covered += count
        if not _is_excluded(character):
            alphabet.add(character)
    return alphabet


def learn(
    lines: Iterable[bytes], vocab_size: int, *, sample: int, seed: int, normalization: str, character_coverage: float
) -> bytes:
    """Learns word pieces shared by both languages with the learner of TF.Text.

    The learner takes pieces by their number of occurrences in the text. It finds about the requested number; the rarest
    ones are then left out.

    Arguments and errors are those of `byte_pairs.learn`; `normalization` must be `identity`. Returns the content of the
    file.
    """
    if normalization != "identity":
        raise ValueError(f"Word pieces need `normalization=identity`. Received: normalization={normalization}.")
    words = _count(draw_sample(lines, sample, seed))
    alphabet = _alphabet(words, character_coverage)
    wanted = vocab_size - len(SPECIAL) - len(BYTES)
    if wanted < len(alphabet):
        parts = {"special ids": len(SPECIAL), "bytes": len(BYTES), "characters": len(alphabet)}
        raise SizeError.too_small(vocab_size, parts)
    counts = collections.Counter(dict.fromkeys(alphabet, 0))
    for word, count in words.items():
        for part in _parts(word, alphabet):
            counts[part] += count
    del counts[""]
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    # The learner needs each character; those of rare words may occur nowhere else.
    pieces = _learn_pieces(ranked[:WORDS] + [item for item in ranked[WORDS:] if len(item[0]) == 1], wanted)
    if len(pieces) < wanted:
        raise SizeError.too_large(vocab_size, most=vocab_size - wanted + len(pieces))
    return HEAD + "".join(f"{piece}\n" for piece in pieces[:wanted]).encode()


def _learn_pieces(counts: list[tuple[str, int]], wanted: int) -> list[str]:
    """Learns pieces from parts of words and how often they occur, single characters first and then the most frequent
    ones: at least `wanted`, or fewer if the text gives fewer.
    """
    # Not above: it needs TF.Text, which not every system has.
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as learner

    params = learner.Params(
        upper_thresh=None, lower_thresh=None, num_iterations=_ITERATIONS, max_input_tokens=-1,
        max_token_length=CHARACTERS_PER_PIECE, max_unique_chars=-1, vocab_size=wanted, slack_ratio=0,
        include_joiner_token=False, joiner="", reserved_tokens=[],
    )  # fmt: skip
    # The more occurrences a piece must have, the fewer pieces there are.
    least, most, best = 1, max((count for _, count in counts), default=1), []
    while least <= most:
        threshold = math.isqrt(least * most)
        pieces = learner.learn_with_thresh(counts, threshold, params)
        if len(pieces) >= wanted:
            least, best = threshold + 1, pieces
            if len(pieces) <= (1 + EXCESS) * wanted:
                break
        else:
            most = threshold - 1
            best = max(best, pieces, key=len)
    return best
