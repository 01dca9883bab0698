"""Noise in the training text of each epoch. Models then bear text as people type it: in capitals, with typos, without
full stops, and with characters that they do not know, which they copy.

The kinds are those of OpusTrainer (Nieminen et al. 2023, https://arxiv.org/abs/2311.14838).
"""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator

import numpy as np
import tensorflow as tf

from t2t_keras.config import AUGMENTATIONS, TERM_MARKS, UNK
from t2t_keras.system.tensorflow import numpy_generator
from t2t_keras.text import piece_file
from t2t_keras.text.placeholders import NAME
from t2t_keras.text.scripts import JOINERS, marks
from t2t_keras.text.sentences import STOPS, STOPS_WITHOUT_SPACE
from t2t_keras.text.subwords import Subwords

TYPO_RATE = 0.1  # Share of the words with typos in a mistyped sentence, which has at least one.
NOISE_WORDS, NOISE_CHARACTERS = 5, 5  # Largest numbers: words of a line of noise, and characters of a word.
# Each word of noise has characters between these two: ASCII, Latin, Greek, Cyrillic, Hebrew, Arabic, Devanagari, Thai,
# arrows and operators, symbols, Hiragana, Han, Hangul, pictures.
_RANGES = "!~", "Àɏ", "αω", "Ѐџ", "את", "ؠغ", "अह", "กะ", "←⋿", "■⛿", "ぁゖ", "一鿋", "가힣", "🌀🙏"
# Ends of sentences; quotation marks and brackets may follow.
_ENDS, _CLOSING = f"{STOPS}{STOPS_WITHOUT_SPACE}．།", "\"'”’»)]」』"
_WORD = re.compile(r"[^\W\d_]{2,}")
_FIRST_LETTER = re.compile(rf"(?<![\w'’\u00ad{JOINERS}{marks()}])[^\W\d_]")


class Augmentation:
    """Changes the text of some records, anew for each seed.

    Args:
        shares: the probability of each kind of noise in a pair; see `Noise` for their names.
        source: the sub-words of sources.
        target: those of targets.
        tags: words that sources may begin with, which stay, as do the tags of languages among the sub-words.
        most: a pair with a sentence that would have more sub-words than this, EOS included, stays as it is. So does a
            pair with characters, before or after the change, that the sub-words lack.
    """

    def __init__(self, shares: dict[str, float], source: Subwords, target: Subwords, tags: Iterable[str], most: int):
        self.shares = [shares.get(kind, 0.0) for kind in AUGMENTATIONS]
        tags = {*tags, *filter(piece_file.TAG.fullmatch, source.pieces)}
        self.subwords, self.most, self._noise = (source, target), most, Noise(tags)

    def __call__(self, sides: tuple[tf.RaggedTensor, tf.RaggedTensor], seed) -> list[tf.RaggedTensor]:
        """Changes records: source and target, each [B, (length)] int32, ragged → the same. The same seed, [2] int64,
        gives the same changes, in any process.
        """
        number = sides[0].nrows()
        drawn = tf.random.stateless_uniform([number, len(self.shares)], seed) < self.shares
        rows = tf.where(tf.reduce_any(drawn, axis=1))[:, 0]
        old = [tf.gather(ids, rows) for ids in sides]
        text = [subwords.detokenize(ids) for subwords, ids in zip(self.subwords, old, strict=True)]
        text = tf.numpy_function(self._changed, [*text, tf.gather(drawn, rows), seed], [tf.string, tf.string])
        new = [
            _with_language_of(ids, subwords.tokenize(tf.ensure_shape(lines, [None])), subwords)
            for subwords, ids, lines in zip(self.subwords, old, text, strict=True)
        ]
        fits = tf.ones_like(rows, tf.bool)
        for before, after in zip(old, new, strict=True):
            unknown = tf.reduce_any(tf.concat([before, after], axis=1) == UNK, axis=1)
            fits &= (after.row_lengths() <= self.most) & ~unknown
        place = tf.where(fits, number + tf.range(tf.size(rows, tf.int64)), rows)
        place = tf.tensor_scatter_nd_update(tf.range(number), rows[:, None], place)
        return [tf.gather(tf.concat(both, axis=0), place) for both in zip(sides, new, strict=True)]

    def _changed(self, sources: np.ndarray, targets: np.ndarray, drawn: np.ndarray, seed: np.ndarray) -> list:
        """Changes the text of pairs: [B] bytes of both sides; [B, kinds] boolean, which kinds of noise each gets."""
        draw = numpy_generator(seed)
        kinds = map(np.array(AUGMENTATIONS).__getitem__, drawn)
        pairs = [
            self._noise.changed(source.decode(), target.decode(), own, draw)
            for source, target, own in zip(sources, targets, kinds, strict=True)
        ]
        return [np.array([pair[side].encode() for pair in pairs], object) for side in (0, 1)]


def noisy(pairs: Iterable[tuple[bytes, ...]], shares: dict[str, float], tags: Iterable[str], seed: int) -> Iterator:
    """Changes some pairs of text, in UTF-8, as an epoch does, for sub-words to be learned from; for `shares` and `tags`
    see `Augmentation`. No pair becomes random characters, which need no sub-words.
    """
    kinds = [kind for kind in AUGMENTATIONS if kind != "noise"]
    noise, draw, shares = Noise(tags), np.random.default_rng(seed), np.array([shares.get(kind, 0.0) for kind in kinds])
    for pair in pairs:
        if chosen := [*itertools.compress(kinds, draw.random(len(kinds)) < shares)]:
            changed = noise.changed(*(side.decode() for side in pair), chosen, draw)
            pair = tuple(side.encode() for side in changed)
        yield pair


def _with_language_of(old: tf.RaggedTensor, new: tf.RaggedTensor, subwords: Subwords) -> tf.RaggedTensor:
    """Returns the new sentences, each [B, (length)] int32, in the languages of the old ones, which their text lacks."""
    return tf.concat([old[:, :1], new[:, 1:]], axis=1) if subwords.language else new


class Noise:
    """Changes a pair of texts. The kinds of noise:

    - noise: both sides become the same words of random characters, after the tags of the source;
    - endpunct: both sides lose the full stop, question mark or exclamation mark at their end, if both have one;
    - title: the words of both sides begin with capitals;
    - upper: both sides are in capitals;
    - typos: in words of the source, two letters are swapped, or one is left out, doubled or replaced (Damerau 1964).

    The last three change no source without case, such as a Chinese one, nor its target. Placeholders stay whole, and so
    do `tags`, words that sources may begin with.
    """

    def __init__(self, tags: Iterable[str]):
        names = "|".join(map(re.escape, sorted(filter(None, tags), key=len, reverse=True)))
        self._tags = re.compile(f"(?:(?:{names})(?: |$))*" if names else "")
        first, last = map(re.escape, TERM_MARKS)
        self._typed = re.compile(f"({first} .*? {last}|{NAME})")  # All but what is copied.

    def changed(self, source: str, target: str, kinds: Collection[str], draw: np.random.Generator) -> tuple[str, str]:
        """Returns a sentence and its translation with these kinds of noise."""
        tags = self._tags.match(source)[0]
        source = source[len(tags) :]
        if "noise" in kinds:
            source = target = _noise(draw)
        if "endpunct" in kinds:
            sides = [_without_end(side) for side in (source, target)]
            if all(
                short != side and re.search(r"\w", short) for short, side in zip(sides, (source, target), strict=True)
            ):
                source, target = sides
        for kind, change in (("title", _title), ("upper", str.upper)):
            if kind in kinds and (changed := change(source)) != source:
                source, target = changed, change(target)
        if "typos" in kinds and "noise" not in kinds:
            source = self._mistyped(source, draw)
        return tags + source, target

    def _mistyped(self, text: str, draw: np.random.Generator) -> str:
        """Returns a text with typos in some of its words of letters that have case."""
        parts = self._typed.split(text)
        places = [
            (number, match.start(), match.end())
            for number in range(0, len(parts), 2)
            for match in _WORD.finditer(parts[number])
            if match[0].lower() != match[0].upper()
        ]
        if not places:
            return text
        chosen = draw.random(len(places)) < TYPO_RATE
        chosen[draw.integers(len(places))] = True
        letters = "".join(parts[number][start:end] for number, start, end in places)
        for number, start, end in reversed([place for place, typo in zip(places, chosen, strict=True) if typo]):
            part = parts[number]
            parts[number] = part[:start] + _with_typo(part[start:end], letters, draw) + part[end:]
        return "".join(parts)


def _without_end(text: str) -> str:
    """Returns a sentence without the marks at its end, and the space before them; in linear time."""
    words = text.rstrip(_CLOSING)
    return words.rstrip(_ENDS).rstrip() + text[len(words) :] if words[-1:] in [*_ENDS] else text


def _title(text: str) -> str:
    return _FIRST_LETTER.sub(lambda match: match[0].title(), text)


def _with_typo(word: str, letters: str, draw: np.random.Generator) -> str:
    """Returns a word of two letters or more with one typo, or, where equal letters are swapped or replaced, none."""
    kind, place = draw.integers(4), draw.integers(len(word))
    if kind == 0:
        place = min(place, len(word) - 2)
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    instead = ("", word[place] * 2, letters[draw.integers(len(letters))])[kind - 1]
    return word[:place] + instead + word[place + 1 :]


def _noise(draw: np.random.Generator) -> str:
    """Returns words of random characters."""
    words = []
    for _ in range(draw.integers(1, NOISE_WORDS, endpoint=True)):
        first, last = map(ord, _RANGES[draw.integers(len(_RANGES))])
        size = draw.integers(1, NOISE_CHARACTERS, endpoint=True)
        words.append("".join(map(chr, draw.integers(first, last, size, endpoint=True))))
    return " ".join(words)
