"""Sub-words of tensor2tensor, its `SubwordTextEncoder`, which models that it trained need.

A line is divided where letters and digits meet other characters. A single space between two words is left out: it is
implied. Each part, escaped and followed by `_`, is segmented from left to right; each time, the longest sub-word that
fits is taken. Escapes are `\\u` for `_`, `\\\\` for a backslash, and `\\9731;` for a character that no sub-word is.

Ids are 2 more than those of tensor2tensor, from 4 on; `tensor2tensor_file` reads the file.
"""

import functools
import unicodedata

import numpy as np
import tensorflow as tf

from t2t_keras.config import UNK
from t2t_keras.text.spelling import SPECIAL
from t2t_keras.text.subwords import Subwords
from t2t_keras.text.tensor2tensor_file import SPECIAL_LINES, texts_of
from t2t_keras.text.tokenizer_ops import longest_match

_SPACE, _END = ord(" "), ord("_")
_CODES = 0x110000  # Number of code points.
_NO_CODE = 0x3013  # What tensor2tensor writes for an escape of no character.
# Bytes that UTF-8 does not use: the first begins sub-words that match no text, the second stands around escapes.
_NOT_IN_TEXT, _AROUND = b"\xff", b"\xfb"


class Tensor2TensorSubwords(Subwords):
    """Sub-words of tensor2tensor. They keep all spaces of a line. Raises `ValueError` if `model` is no vocabulary file
    of tensor2tensor.
    """

    def __init__(self, model: bytes):
        texts = texts_of(model)
        ids = {text: index for index, text in enumerate(texts) if text}  # The last one of equal sub-words.
        special = len(SPECIAL)
        names = [text.replace("_", "▁") if ids.get(text) == index else f"<{index}>" for index, text in enumerate(texts)]
        super().__init__(model, (*SPECIAL, *names[SPECIAL_LINES:]))
        alphabet = {text for text in ids if len(text) == 1}
        matched = [_NOT_IN_TEXT + name.encode() for name in SPECIAL]
        for index, text in enumerate(texts[SPECIAL_LINES:], SPECIAL_LINES):
            # `_` ends a part of the line: a sub-word that goes on after it fits nowhere.
            fits = ids.get(text) == index and "_" not in text[:-1]
            matched.append(text.encode() if fits else b"%b%d" % (_NOT_IN_TEXT, index))
        self._matcher = longest_match(matched, UNK)
        self._surfaces = tf.constant([""] * special + [text.encode() for text in texts[SPECIAL_LINES:]])
        # What each range of code points is in words, and how it is written; "" for an escape of its number.
        written = {ord(character): character.encode() for character in alphabet} | {_END: b"\\u", ord("\\"): b"\\\\"}
        written.pop(ord("\n"), None)
        in_words = _in_words()
        starts = {0, *(np.flatnonzero(np.diff(in_words)) + 1), *written, *(code + 1 for code in written)}
        self._starts = np.array(sorted(starts), np.int32)
        self._in_words = in_words[np.minimum(self._starts, _CODES - 1)]
        self._written = tf.constant([written.get(code, b"") for code in self._starts.tolist()])

    def _kinds(self, codes):
        """Returns the index of the range of each code point: [N] int32 → [N] int32."""
        return tf.searchsorted(self._starts, codes, side="right") - 1

    def _encode(self, text) -> tf.RaggedTensor:
        rows = tf.strings.unicode_decode(text, "UTF-8")
        codes, kinds = rows.values, self._kinds(rows.values)
        words, size = tf.gather(self._in_words, kinds), tf.size(codes)
        row = rows.value_rowids()
        follows = tf.concat([row[1:] == row[:-1], [False]], axis=0)[:size]  # Whether the line goes on.
        ends = ~follows | (words != tf.concat([words[1:], [False]], axis=0)[:size])
        follow_end = tf.concat([[False], (ends & follows)[:-1]], axis=0)[:size]
        implied = (codes == _SPACE) & ends & follows & follow_end
        written = tf.gather(self._written, kinds)
        number = tf.where(written == "")
        escaped = tf.strings.join(["\\", tf.strings.as_string(tf.gather_nd(codes, number)), ";"])
        written = tf.tensor_scatter_nd_update(written, number, escaped)
        written = tf.where(implied, "", tf.strings.join([written, tf.where(ends, "_", "")]))
        return self._matcher.tokenize(tf.strings.reduce_join(rows.with_values(written), axis=1))

    def _decode(self, ids: tf.RaggedTensor):
        text = tf.strings.reduce_join(tf.gather(self._surfaces, ids), axis=1)
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
        # Every second piece is an escape without its backslash.
        pieces = tf.strings.split(
            tf.strings.regex_replace(text, r"\\(u|\\|[0-9]+;)", _AROUND + rb"\1" + _AROUND), _AROUND
        )
        starts = tf.gather(pieces.row_starts(), pieces.value_rowids())
        is_escape = (tf.range(tf.size(pieces.values, tf.int64)) - starts) % 2 == 1
        codes = tf.strings.unicode_decode(tf.where(is_escape, "", pieces.values), "UTF-8")
        codes = codes.with_values(tf.where(codes.values == _END, -1, codes.values))
        escapes = tf.RaggedTensor.from_row_lengths(
            _escaped(tf.boolean_mask(pieces.values, is_escape)), tf.cast(is_escape, tf.int64), validate=False
        )
        codes = pieces.with_values(tf.concat([codes, escapes], axis=1)).merge_dims(1, 2)
        # -1 ends a part of the line. A space is implied between two parts that begin with a letter or digit.
        row, values = codes.value_rowids(), codes.values
        inside = values >= 0
        row, values, before = (
            tf.boolean_mask(each, inside)
            for each in (row, values, tf.concat([[False], inside[:-1]], axis=0)[: tf.size(values)])
        )
        size = tf.size(values)
        first = ~before | tf.concat([[True], row[1:] != row[:-1]], axis=0)[:size]
        places = tf.where(first)[:, 0]
        begin_word = tf.gather(self._in_words, self._kinds(tf.gather(values, places)))
        same_row = tf.gather(row, places[1:]) == tf.gather(row, places[:-1])
        implied = tf.concat([[False], begin_word[1:] & begin_word[:-1] & same_row], axis=0)[: tf.size(places)]
        spaces = tf.scatter_nd(places[:, None], tf.cast(implied, tf.int64), [size])
        spaced = tf.concat(
            [
                tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(spaces)], _SPACE), spaces, validate=False),
                values[:, None],
            ],
            axis=1,
        )
        rows = tf.RaggedTensor.from_value_rowids(spaced, row, nrows=ids.nrows(), validate=False)
        return tf.strings.unicode_encode(rows.merge_dims(1, 2), "UTF-8", errors="replace")

    def joined(self, text, max_length: int, kept=None) -> tf.RaggedTensor:
        """Converts text as `words` does: where a part of a line begins does not depend on the space before it."""
        return self.words(text, max_length, kept)


@functools.cache
def _in_words() -> np.ndarray:
    """Returns which code points are letters or numbers: [0x110000] boolean."""
    return np.array([unicodedata.category(chr(code))[0] in "LN" for code in range(_CODES)])


def _escaped(text):
    """Returns the code points of escapes: [N] string → [N] int32."""
    digits = tf.strings.regex_replace(tf.strings.regex_replace(text, r"[u\\;]", ""), "^0+", "")
    # No character has a number of 8 digits.
    number = tf.strings.to_number(tf.strings.join(["0", tf.strings.substr(digits, 0, 8)]), tf.int32)
    number = tf.where(number < _CODES, number, _NO_CODE)
    return tf.where(text == "u", _END, tf.where(text == "\\", ord("\\"), number))
