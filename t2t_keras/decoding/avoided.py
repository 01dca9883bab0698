"""Phrases that a translation must not contain: as whole words of its text, in whatever sub-words it is written.

A sub-word is forbidden if it completes a phrase in the text, and no word goes on before or after the phrase. Where the
text ends in a phrase, the next sub-word decides: the word must go on. Texts are compared in bytes, because a sub-word
may be one byte of a character.

Letters: R sentences in the state of the search, W beams, C phrases of a sentence, V vocabulary, P parts of sub-words, J
bytes of the longest part, X places where a phrase may end.
"""

import functools
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.search_hooks import IMPOSSIBLE, Scorer
from t2t_keras.text.scripts import in_word, word_characters
from t2t_keras.text.sentencepiece_model import UNDERSCORE
from t2t_keras.text.subwords import BYTES_PER_PIECE

_HASHES = 2**63 - 1


class Parts(NamedTuple):
    """The parts of sub-words in which phrases may end, by what `_key` returns for them."""

    hashes: np.ndarray  # [P] int64, sorted
    starts: np.ndarray  # [P + 1] int64, where the sub-words with each part begin in `tokens`
    tokens: np.ndarray  # int32
    longest: int  # J


def _key(part, at_start: bool, at_end: bool):
    """Returns text that differs for equal parts of sub-words in other places: [...] string → [...] string."""
    return tf.strings.join([f"{at_start:d}{at_end:d}", part])


@functools.lru_cache(maxsize=8)
def parts_of(spelling: tuple[bytes, ...]) -> Parts:
    """Finds the parts of sub-words that begin at their start or where a word may begin, and end where one may end."""
    places = defaultdict(list)  # By whether they are at the start, and at the end: parts and their sub-words.
    for token, content in enumerate(spelling):
        text = content.decode(errors="ignore")
        if text.encode() != content or len(content) > BYTES_PER_PIECE:  # A byte; no learned sub-word is as long.
            places[True, True].append((content, token))
            continue
        words = [in_word(character) for character in text]
        edges = [0, *(at for at in range(1, len(text)) if not (words[at - 1] and words[at])), len(text)]
        starts = [
            at for at in edges[:-1] if at == 0 or text[at] != UNDERSCORE
        ]  # No phrase begins or ends with a space.
        ends = [at for at in edges[1:] if at and text[at - 1] != UNDERSCORE]
        for start in starts:
            for end in ends:
                if start < end:
                    places[start == 0, end == len(text)].append((text[start:end].encode(), token))
    hashed, tokens, longest = [np.zeros(0, np.int64)], [], 0
    for (at_start, at_end), found in places.items():
        parts, numbers = zip(*found, strict=True)
        with tf.init_scope():
            key = _key(tf.constant(parts, tf.string), at_start, at_end)
            hashed.append(tf.strings.to_hash_bucket_fast(key, _HASHES).numpy())
        tokens += numbers
        longest = max(longest, *map(len, parts))
    hashes = np.concatenate(hashed)
    order = np.argsort(hashes, kind="stable")
    hashes, starts = np.unique(hashes[order], return_index=True)
    return Parts(hashes, np.append(starts, len(order)), np.array(tokens, np.int32)[order], longest)


class Avoided(Scorer):
    """Forbids phrases, as whole words of the text.

    Args:
        phrases: [B, C] string; "" in an empty place.
        max_length: [B] int32, maximum number of tokens of a translation.
        spelling: the bytes of each sub-word, V, with a space or ▁ before words. Detokenizing has a state, and searches
            would wait for each other.
    """

    def __init__(self, phrases, max_length, spelling: Sequence[bytes]):
        # A vocabulary of words spells ▁ in bytes, and no space.
        spelling = tuple(content.replace(b" ", UNDERSCORE.encode()) for content in spelling)
        self._spelling, self._parts = spelling, parts_of(spelling)
        self._goes_on = np.array([in_word(content.decode(errors="ignore")[:1]) for content in spelling])
        self._byte = np.array([content[0] if len(content) == 1 else 0 for content in spelling])
        phrases = tf.strings.regex_replace(phrases, " ", UNDERSCORE)
        phrases = tf.strings.regex_replace(phrases, rf"\A{UNDERSCORE}+|{UNDERSCORE}+\z", "")
        self.state = phrases, self._find(phrases), max_length
        self.has_phrases = tf.reduce_any(phrases != "")

    def applies(self, position):
        return self.has_phrases

    def _find(self, phrases):
        """Finds the parts that complete phrases: [R, C] string → [R, C, J + 1, 2] int32, -1 for none.

        Place j is for the last j bytes of the phrase at the start of a sub-word, place 0 for all of it inside of one;
        followed by other text in the sub-word, and not.
        """
        lengths = tf.range(1, self._parts.longest + 1)
        shape = tf.concat([tf.shape(phrases), tf.shape(lengths)], axis=0)
        text, lengths = (tf.reshape(tf.broadcast_to(x, shape), [-1]) for x in (phrases[..., None], lengths))
        first = tf.strings.length(text) - lengths
        ends = tf.strings.substr(text, tf.maximum(first, 0), tf.where(first < 0, 0, lengths))
        ends = tf.reshape(ends, shape)
        keys = [
            tf.concat([_key(phrases[..., None], False, at_end), _key(ends, True, at_end)], axis=2)
            for at_end in (False, True)
        ]
        hashes = tf.strings.to_hash_bucket_fast(tf.stack(keys, axis=-1), _HASHES)
        place = tf.searchsorted(self._parts.hashes, tf.reshape(hashes, [-1]))
        place = tf.reshape(tf.minimum(place, len(self._parts.hashes) - 1), tf.shape(hashes))
        return tf.where(tf.gather(self._parts.hashes, place) == hashes, place, -1)

    def __call__(self, log_probs, hypotheses, state):
        phrases, parts, max_length = state
        texts = tf.strings.reduce_join(tf.gather(tf.constant(self._spelling), hypotheses.sequences), axis=2)
        last = hypotheses.position + 1 >= max_length
        log_probs = self._with_words_that_go_on(log_probs, texts, phrases, last)
        return self._without_ends(log_probs, texts, phrases, parts, last), state

    def _with_words_that_go_on(self, log_probs, texts, phrases, last):
        """Forbids what ends the word, where a text ends in a phrase.

        Args:
            log_probs: [R, W, V] float32.
            texts: what is written, [R, W] string.
            phrases: [R, C] string.
            last: [R] boolean, whether the next sub-word is the last.
        """
        unfinished = _unfinished(texts)  # Bytes of a character after the phrase.
        whole = tf.strings.substr(texts, tf.zeros_like(unfinished), tf.strings.length(texts) - unfinished)
        shape = tf.concat([tf.shape(texts), tf.shape(phrases)[1:]], axis=0)
        whole, flat = (tf.reshape(tf.broadcast_to(x, shape), [-1]) for x in (whole[:, :, None], phrases[:, None]))
        ends = _ends_in(whole, flat, flat) & _ends_in_letter(flat)
        ends = tf.reduce_any(tf.reshape(ends, shape), axis=2)
        # The first byte of a character may go on with the word, unless none follows.
        allowed = self._goes_on | (self._byte >= 0xC2) & tf.logical_not(last)[:, None, None]
        log_probs = tf.where((ends & (unfinished == 0))[..., None] & tf.logical_not(allowed), IMPOSSIBLE, log_probs)
        places = tf.where(ends & (unfinished > 0))
        begun = tf.gather_nd(tf.strings.substr(texts, tf.strings.length(texts) - unfinished, unfinished), places)
        following = [bytes([byte]) for byte in range(0x80, 0xC0)]
        shape = [tf.size(begun), len(following)]
        characters = tf.strings.join([tf.broadcast_to(begun[:, None], shape), tf.broadcast_to(following, shape)])
        longer = _unfinished(characters) > tf.strings.length(begun)[:, None]
        allowed = tf.strings.regex_full_match(characters, f"[{word_characters()}]")
        allowed |= longer & tf.logical_not(tf.gather(last, places[:, 0]))[:, None]
        allowed = tf.pad(allowed, [[0, 0], [0x80, 0x40]])  # Only bytes go on with a character.
        values = tf.where(tf.gather(allowed, self._byte, axis=1), tf.gather_nd(log_probs, places), IMPOSSIBLE)
        return tf.tensor_scatter_nd_update(log_probs, places, values)

    def _without_ends(self, log_probs, texts, phrases, parts, last):
        """Forbids sub-words that complete a phrase, unless they end in it and the word may go on.

        Args:
            log_probs, texts, phrases, last: as of `_with_words_that_go_on`.
            parts: [R, C, J + 1, 2] int32, see `_find`.
        """
        may_go_on = _ends_in_letter(phrases) & tf.logical_not(last)[:, None]
        undecided = tf.stack([tf.zeros_like(may_go_on), may_go_on], axis=-1)[:, :, None]
        places = tf.where((parts >= 0) & tf.logical_not(undecided))  # [X, 4]
        part, row, length = tf.gather_nd(parts, places), places[:, 0], tf.cast(places[:, 2], tf.int32)
        phrase = tf.gather_nd(phrases, places[:, :2])
        # The text must end in what stands before the part, and may have anything before a phrase inside of a sub-word.
        written = tf.gather(texts, row)
        shape = tf.shape(written)
        before = tf.strings.substr(phrase, tf.zeros_like(length), tf.strings.length(phrase) - length)
        flat = [tf.reshape(tf.broadcast_to(x, shape), [-1]) for x in (written, before[:, None], phrase[:, None])]
        completed = tf.where(tf.reshape(_ends_in(*flat), shape) | (length == 0)[:, None])  # Place and beam.
        tokens = tf.RaggedTensor.from_row_splits(self._parts.tokens, self._parts.starts, validate=False)
        tokens = tf.gather(tokens, tf.gather(part, completed[:, 0]))
        where = tf.stack([tf.gather(row, completed[:, 0]), completed[:, 1]], axis=1)
        where = tf.concat([tf.gather(where, tokens.value_rowids()), tf.cast(tokens.values, tf.int64)[:, None]], axis=1)
        return tf.tensor_scatter_nd_update(log_probs, where, tf.fill([tf.shape(where)[0]], IMPOSSIBLE))


def _ends_in_letter(texts):
    """Returns whether bytes end in a character of a word: [...] string → [...] boolean."""
    return tf.strings.regex_full_match(texts, rf"\C*[{word_characters()}]")


def _ends_in(texts, beginnings, phrases):
    """Returns whether texts end in the beginnings of phrases, and not in the middle of a word: [N] string each → [N]
    boolean.
    """
    first = tf.strings.length(texts) - tf.strings.length(beginnings)
    same = tf.strings.substr(texts, tf.maximum(first, 0), tf.strings.length(beginnings)) == beginnings
    start = tf.maximum(first - 4, 0)  # Of a character of at most 4 bytes.
    before = tf.strings.substr(texts, start, tf.maximum(first, 0) - start)
    inside = _ends_in_letter(before) & tf.strings.regex_full_match(phrases, rf"[{word_characters()}]\C*")
    return same & (first >= 0) & (phrases != "") & tf.logical_not(inside)


def _unfinished(texts):
    """Returns the number of bytes of a character at the end of a text that lacks some: [...] string → [...] int32."""
    texts = tf.strings.join(["\0\0\0", texts])
    # With a fixed length, no texts give three bytes, too.
    end = tf.strings.substr(texts, tf.strings.length(texts) - 3, tf.fill(tf.shape(texts), 3))
    first, second, third = tf.unstack(tf.io.decode_raw(end, tf.uint8, fixed_length=3), axis=-1)

    def follows(byte):
        return (byte >= 0x80) & (byte < 0xC0)

    three = (first >= 0xF0) & follows(second) & follows(third)
    two = (second >= 0xE0) & follows(third)
    return tf.where(third >= 0xC2, 1, tf.where(two, 2, tf.where(three, 3, 0)))
