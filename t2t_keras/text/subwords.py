"""Sub-words (section 5.1): what byte-pair encoding and word pieces have in common.

Text and ids are converted in the graph, so training and exported models use the same operations.
"""

import abc
import functools
import random
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from t2t_keras.config import EOS
from t2t_keras.text.lines import BLANK
from t2t_keras.text.placeholders import Placeholders, common
from t2t_keras.text.scripts import in_word
from t2t_keras.text.spelling import BYTES, spelled

BYTES_PER_PIECE = 64  # Maximum: pieces have up to 16 characters.
NOT_IN_PIECE = "\ue0f2"  # Is spelled in bytes, so that what follows it does not begin a word.


class SizeError(ValueError):
    """The text does not give a vocabulary of the size that was asked for; `nearest` is the nearest that it gives."""

    def __init__(self, message: str, nearest: int):
        super().__init__(message)
        self.nearest = nearest

    @classmethod
    def too_large(cls, vocab_size: int, most: int) -> "SizeError":
        message = f"`vocab_size={vocab_size}` is too large for this text, which gives {most} at most. Give "
        return cls(f"{message}`vocab_size={most}`, or more text.", most)

    @classmethod
    def too_small(cls, vocab_size: int, parts: dict[str, int]) -> "SizeError":
        """Returns the error for a text whose vocabulary has these parts at least, by name."""
        *first, last = (f"{number} {name}" for name, number in parts.items())
        message = f"`vocab_size={vocab_size}` is too small for this text, which needs {sum(parts.values())} or more: "
        message += f"{', '.join(first)} and {last}. Raise it, or lower `character_coverage`."
        return cls(message, sum(parts.values()))


class Subwords(tf.Module, abc.ABC):
    """Converts text to ids and back, in the graph.

    `detokenize(tokenize(x)) == x` for every line of valid UTF-8 without leading, trailing or repeated spaces, unless
    the sub-words were learned with normalization, or the line is blank: then it is empty, see `lines.is_blank`.

    Args:
        model: the content of the file.
        pieces: the sub-words in the order of their ids. A word begins with ▁.
        pattern: matches text to keep, for which the sub-words have placeholders; empty if they have none.

    Attributes:
        own_source: the sub-words of sources, if these are those of targets only; otherwise `None`.
        languages: the codes of the languages, in a multilingual model; otherwise empty.
        language: the code of the language whose sub-word each sentence begins with, in a multilingual model; otherwise
            empty.
    """

    languages: tuple[str, ...] = ()
    language = ""

    def __init__(self, model: bytes, pieces: tuple[str, ...], pattern: str = ""):
        super().__init__(name="tokenizer")
        self.pattern, self.placeholders = pattern, Placeholders(pattern) if pattern else None
        self.model, self.pieces, self.vocab_size = model, pieces, len(pieces)
        self.own_source: Subwords | None = None

    @property
    def source(self) -> "Subwords":
        """The sub-words of sources."""
        return self.own_source or self

    @property
    def models(self) -> tuple[bytes, ...]:
        """The content of the file and, if the source has its own sub-words, that of theirs; see
        `vocabulary.load_sides`.
        """
        return (self.model, self.own_source.model) if self.own_source else (self.model,)

    @property
    def largest(self) -> int:
        """Number of sub-words of the side that has most."""
        return max(self.vocab_size, self.source.vocab_size)

    @functools.cached_property
    def spelling(self) -> tuple[bytes, ...]:
        """The bytes that each sub-word spells: V, with a space in place of ▁."""
        return spelled(self.pieces)

    @functools.cached_property
    def word_parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Two arrays [V] boolean: which sub-words continue the word before, and after which ones a word may continue.

        A word consists of letters, marks and digits, of a script that has spaces between words. Bytes of other
        characters count as letters.
        """
        spelled = dict(zip(BYTES, [chr(byte) if byte < 0x80 else "a" for byte in range(256)], strict=True))
        pieces = ["" if index <= EOS else spelled.get(piece, piece) for index, piece in enumerate(self.pieces)]
        return np.array([in_word(piece[:1]) for piece in pieces]), np.array([in_word(piece[-1:]) for piece in pieces])

    @abc.abstractmethod
    def _encode(self, text) -> tf.RaggedTensor:
        """Converts text to ids without EOS: [B] string → [B, (length)] int32, ragged."""

    def _with_language(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Puts the language before ids that do not begin with one."""
        return ids

    @abc.abstractmethod
    def _decode(self, ids: tf.RaggedTensor):
        """Converts ids without special ids to text: [B, (length)] int32, ragged → [B] string."""

    def kept(self, text, *others):
        """Returns the text to keep in each sentence, for the methods below: [B] string → [B, N] string, padded with "".
        Only what is in all `others`, [B] string each, is kept. `None` if both sides do not have the same placeholders.
        """
        if self.placeholders is None or self.pattern != self.source.pattern:
            return None
        return functools.reduce(common, map(self.placeholders.find, (text, *others)))

    def tokenize(self, text, max_length: int = 0, kept=None) -> tf.RaggedTensor:
        """Converts text to ids. Bytes that are not UTF-8 become U+FFFD.

        Args:
            text: [B] string.
            max_length: maximum number of ids, EOS included; 0 sets no limit.
            kept: [B, N] string, text to replace by placeholders, see `kept`; `None` replaces none.

        Returns:
            [B, (length)] int32, ragged. Every sentence begins with its language, if there is one, and ends in EOS.
        """
        ids = self._with_language(self.words(text, max_length, kept))
        if max_length:
            ids = ids[:, : max_length - 1]
        return tf.concat([ids, tf.fill([ids.nrows(), 1], EOS)], axis=1)

    def words(self, text, max_length: int = 0, kept=None) -> tf.RaggedTensor:
        """Converts text to at most `max_length` ids, without a language and EOS; see `tokenize`."""
        text = _without_blanks(text)
        if kept is not None:
            text = self.placeholders.replace(text, kept)
        if max_length:
            text = tf.strings.substr(text, 0, max_length * BYTES_PER_PIECE)  # Limits the work for very long lines.
        ids = self._encode(text)
        return ids[:, :max_length] if max_length else ids

    def is_blank(self, ids: tf.RaggedTensor):
        """Returns whether sentences, which `tokenize` converted, have no text: [B, (length)] int32 → [B] boolean."""
        return ids.row_lengths() == (2 if self.language else 1)

    def joined(self, text, max_length: int, kept=None) -> tf.RaggedTensor:
        """Converts text that follows other text without a space to at most `max_length` ids, without EOS: [B] string →
        [B, (length)] int32.
        """
        if kept is not None:
            text = self.placeholders.replace(text, kept)
        return self._encode_joined(tf.strings.substr(text, 0, max_length * BYTES_PER_PIECE))[:, :max_length]

    def _encode_joined(self, text) -> tf.RaggedTensor:
        """Converts text that follows other text without a space to ids: [B] string → [B, (length)] int32."""
        before = self._encode([NOT_IN_PIECE]).row_lengths()[0]
        return self._encode(tf.strings.join([NOT_IN_PIECE, text]))[:, before:]

    def sentences(self, lines: list[bytes], kept=None) -> list[np.ndarray]:
        """Converts lines to ids, EOS included: an int32 array for each line."""
        if not lines:
            return []
        ids = self.tokenize(tf.constant(lines), kept=kept)
        return np.split(ids.values.numpy(), ids.row_splits.numpy()[1:-1])

    def cut(self, text, longest: int, kept=None):
        """Converts text to at most `longest` ids, as `tokenize`. Returns [B, (length)] int32, ragged; and [B] boolean,
        whether a sentence was truncated.
        """
        text = _without_blanks(text)
        if kept is not None:
            text = self.placeholders.replace(text, kept)
        ids = self._with_language(self.words(text, longest + 1))
        cut = tf.concat([ids[:, : longest - 1], tf.fill([ids.nrows(), 1], EOS)], axis=1)
        unread = tf.strings.length(text) > (longest + 1) * BYTES_PER_PIECE
        return cut, (ids.row_lengths() >= longest) | unread

    def detokenize(self, ids: tf.RaggedTensor, kept=None):
        """Converts ids to text: [B, (length)] int32, ragged → [B] string. Special ids are left out; placeholders stand
        for `kept`.
        """
        text = self._decode(tf.ragged.boolean_mask(ids, ids > EOS))
        return text if kept is None else self.placeholders.restore(text, kept)


def _without_blanks(text):
    """Replaces blank sentences by empty ones: [B] string → [B] string."""
    return tf.where(tf.strings.regex_full_match(text, BLANK), "", text)


def draw_sample(lines: Iterable[bytes], number: int, seed: int) -> list[str]:
    """Draws at most a number of lines of UTF-8 with equal probability (reservoir sampling)."""
    draw, drawn = random.Random(seed), []
    for index, line in enumerate(lines):
        if index < number:
            drawn.append(line.decode("utf-8"))
        elif (place := draw.randrange(index + 1)) < number:
            drawn[place] = line.decode("utf-8")
    return drawn
