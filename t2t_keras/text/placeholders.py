"""Numbered placeholders for text to keep: URLs, tags and the like become ｟1｠, ｟2｠, … before text is divided into
sub-words.

A model that is trained on placeholders that both sides of a pair share learns to copy them. Each is one sub-word, so
none is broken, and what they stand for is put back from the source of a translation. Core operations do this in the
graph. OpenNMT's Tokenizer has the same brackets.
"""

import itertools
from collections.abc import Iterator, Sequence

import tensorflow as tf

NUMBER = 16  # Of different placeholders in a sentence. Further matches are divided into sub-words.
NAMES = tuple(f"｟{number}｠" for number in range(1, NUMBER + 1))
_MATCHES = 64  # Matches of a sentence among which different ones are looked for.
NAME = r"｟\d+｠"
# A bracket in the text itself is followed by a character of the private use area. NFKC turns the first bracket into the
# second.
_BRACKET, _MARK = "([｟⦅])", "\ue0f3"
_AT_ONCE = 1000  # Texts of one operation, which alone would take longer than the matching.
_SEPARATOR = b"\xff"  # Is in no valid UTF-8.
_SEPARATED = _SEPARATOR + b"\\0" + _SEPARATOR  # What replaces a match: the match between separators.


class Placeholders(tf.Module):
    """Replaces text that matches a pattern by placeholders, and puts it back. Where the pattern matches empty text, no
    placeholder is put. Raises `ValueError` if it is not a regular expression of RE2.
    """

    def __init__(self, pattern: str):
        super().__init__(name="placeholders")
        self.pattern = pattern
        list(replace_all([""], pattern, ""))

    def find(self, text):
        """Returns the different matches in each sentence in order: [B] string → [B, N] string, padded with ""."""
        matches = _parts(text, self.pattern)[:, 1::2][:, :_MATCHES].to_tensor("")
        same = tf.cast(matches[:, :, None] == matches[:, None], tf.int32)
        first = tf.linalg.diag_part(tf.cumsum(same, axis=2)) == 1
        return tf.ragged.boolean_mask(matches, first & (matches != "")).to_tensor("", shape=[None, NUMBER])

    def replace(self, text, kept):
        """Replaces text by placeholders: [B] string → [B] string. `kept` is [B, N] string, what the placeholders stand
        for, in the order of their numbers; "" for none.
        """

        def marked(text):
            return tf.strings.regex_replace(text, _BRACKET, r"\1" + _MARK)

        names = tf.broadcast_to(tf.constant(NAMES), tf.shape(kept))
        return _exchanged(_parts(text, self.pattern), kept, names, marked)

    def restore(self, text, kept):
        """Puts back what placeholders stand for; see `replace`. Those that stand for nothing are left out."""
        names = tf.broadcast_to(tf.constant(NAMES), tf.shape(kept))
        return _exchanged(
            _parts(text, NAME), names, kept, lambda text: tf.strings.regex_replace(text, _BRACKET + _MARK, r"\1")
        )


def find_all(texts: Sequence[str], pattern: str) -> Iterator[list[tuple[int, str]]]:
    """Yields for each text where the matches of a regular expression begin, and the matches, in linear time. Raises
    `ValueError` if it is not one of RE2.
    """
    for separated in replace_all(texts, pattern, _SEPARATED):
        parts = [part.decode() for part in separated.split(_SEPARATOR)]
        starts = itertools.accumulate(map(len, parts), initial=0)
        yield list(zip(starts, parts, strict=False))[1::2]


def replace_all(texts: Sequence[str], pattern: str, new: str | bytes) -> Iterator[bytes]:
    """Yields each text with its matches replaced. Raises `ValueError` as `find_all` does."""
    for first in range(0, len(texts), _AT_ONCE):
        try:
            yield from tf.strings.regex_replace(texts[first : first + _AT_ONCE], pattern, new).numpy()
        except tf.errors.InvalidArgumentError as error:
            reason = error.message.partition("error: ")[2].partition(" [Op")[0]
            raise ValueError(
                f"`keep_patterns`: expected regular expressions of RE2. Received: {pattern!r:.200} ({reason:.200})."
            ) from error


def common(kept, other):
    """Returns what two sides, [B, N] string, share: [B, N] string in the order of the first, padded with ""."""
    shared = tf.reduce_any(kept[:, :, None] == other[:, None], axis=2) & (kept != "")
    return tf.ragged.boolean_mask(kept, shared).to_tensor("", shape=[None, NUMBER])


def _parts(text, pattern: str) -> tf.RaggedTensor:
    """Divides text at the matches of a pattern, which have the odd places: [B] string → [B, (P)] string."""
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
    return tf.strings.split(tf.strings.regex_replace(text, pattern, _SEPARATED), _SEPARATOR)


def _exchanged(parts: tf.RaggedTensor, old, new, otherwise):
    """Joins parts, [B, (P)] string → [B] string. At odd places, a string of `old` [B, N] becomes that of `new`."""
    flat, row = parts.values, parts.value_rowids()
    odd = tf.ragged.range(parts.row_lengths()).values % 2 == 1
    # A pattern may match empty text.
    same = (flat[:, None] == tf.gather(old, row)) & (flat != "")[:, None] & odd[:, None]
    place = tf.argmax(tf.cast(same, tf.int32), axis=1)
    chosen = tf.where(tf.reduce_any(same, axis=1), tf.gather(tf.gather(new, row), place, batch_dims=1), otherwise(flat))
    return tf.strings.reduce_join(parts.with_values(chosen), axis=1)
