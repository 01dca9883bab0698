"""BPE-dropout (Provilkov et al. 2020, https://aclanthology.org/2020.acl-main.170): byte-pair encoding that skips merges
at random.

SentencePiece can sample, too, but one seed gives other sub-words in each process. So all words of a batch are merged in
NumPy, except for those in which chance skips no merge: they keep their sub-words.
"""

import numpy as np
import sentencepiece
import tensorflow as tf

from t2t_keras.config import PAD
from t2t_keras.system.tensorflow import numpy_generator
from t2t_keras.text.byte_pairs import BytePairs
from t2t_keras.text.sentencepiece_model import UNDERSCORE
from t2t_keras.text.tokenizer_ops import ragged

_NEVER = np.iinfo(np.int32).max  # The rank of a pair that is not merged.
_NO_PAIR = np.iinfo(np.int64).max


class BpeDropout:
    """Divides sentences into sub-words anew, at random.

    Args:
        subwords: those of byte-pair encoding, which alone has merges to skip; others raise `ValueError`.
        rate: probability of skipping a merge.
        max_length: a sentence that would become longer keeps its sub-words; EOS counts.
    """

    def __init__(self, subwords: BytePairs, rate: float, max_length: int):
        byte_pairs = type(subwords) is BytePairs  # Its subclass, a vocabulary of words, has no merges.
        if not (byte_pairs and _are_ranks(subwords)):
            unigram = "a SentencePiece model without merges, such as a unigram model"
            received = unigram if byte_pairs else type(subwords).__name__
            raise ValueError(f"`bpe_dropout` needs byte-pair encoding (`subwords=bpe`). Received: {received}.")
        self.max_length, self._merges = max_length, _Merges(subwords, rate)

    def __call__(self, ids: tf.RaggedTensor, seed) -> tf.RaggedTensor:
        """Divides sentences anew: [B, (length)] int32, ragged, each ending in EOS, as the sub-words divide the text →
        the same for the same text. The same seed, [2] int64, gives the same sub-words, in any process.
        """
        return ragged(tf.numpy_function(self._sample, [ids.values, ids.row_lengths(), seed], [tf.int32, tf.int64]))

    def _sample(self, values: np.ndarray, lengths: np.ndarray, seed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        draw = numpy_generator(seed)
        rows = np.repeat(np.arange(len(lengths)), lengths)
        drawn, drawn_rows = self._merges.drawn(values, rows, draw)
        fits = np.bincount(drawn_rows, minlength=len(lengths)) <= self.max_length
        drawn, drawn_rows, values, rows = (
            *(array[fits[drawn_rows]] for array in (drawn, drawn_rows)),
            *(array[~fits[rows]] for array in (values, rows)),
        )
        rows = np.concatenate([drawn_rows, rows])
        chosen = np.concatenate([drawn, values])[np.argsort(rows, kind="stable")]
        return chosen.astype(np.int32), np.bincount(rows, minlength=len(lengths)).astype(np.int64)


def _are_ranks(subwords: BytePairs) -> bool:
    """Returns whether the scores of the pieces are ranks of merges, 0, -1, -2, …, and not log-probabilities."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=subwords.model)
    return all(processor.get_score(index).is_integer() for index in range(len(subwords.pieces)))


def _normal(subwords: BytePairs) -> dict[str, int]:
    """Returns the ids of the pieces that merges make, best score first, and of their characters. Tags are not among
    them.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=subwords.model)
    special = (processor.is_byte, processor.is_control, processor.is_unknown, processor.is_unused)
    ids = [index for index in range(len(subwords.pieces)) if not any(kind(index) for kind in special)]
    texts = [subwords.pieces[index].replace(UNDERSCORE, " ") for index in ids]
    # With a rate of 1, nothing is merged: a piece that is still there does not come from merges.
    unmerged = processor.encode(texts, enable_sampling=True, alpha=1.0)
    whole = [len(subwords.pieces[index]) > 1 and index in left for index, left in zip(ids, unmerged, strict=True)]
    ids = [index for index, is_whole in zip(ids, whole, strict=True) if not is_whole]
    return {subwords.pieces[index]: index for index in sorted(ids, key=processor.get_score, reverse=True)}


class _Merges:
    """The merges of a byte-pair encoding: two neighbours become one piece, if there is one, the best score first.
    `rate` is the probability of skipping a merge.
    """

    def __init__(self, subwords: BytePairs, rate: float):
        self._rate, pieces, normal = rate, subwords.pieces, _normal(subwords)
        spelled = [
            [normal[character] for character in piece] if piece in normal and normal.keys() >= set(piece) else [index]
            for index, piece in enumerate(pieces)
        ]
        self._characters = np.concatenate(spelled)
        self._counts = np.array([len(characters) for characters in spelled])
        self._starts = np.cumsum(self._counts) - self._counts
        # Merges of two words are possible if a piece has a space inside; then a sentence is treated as one word.
        within_words = not any(UNDERSCORE in piece[1:] for piece in normal)
        self._begins_word = np.array([within_words and piece.startswith(UNDERSCORE) for piece in pieces])
        self._size, merges = len(pieces), {}
        for rank, piece in enumerate(normal):
            for cut in range(1, len(piece)):
                if piece[:cut] in normal and piece[cut:] in normal:
                    merges[normal[piece[:cut]] * self._size + normal[piece[cut:]]] = rank
        self._pairs = np.array([*sorted(merges), _NO_PAIR])
        self._ranks = np.array([*(merges[pair] for pair in sorted(merges)), _NEVER], np.int32)
        self._merged = np.array(list(normal.values()))  # By rank.

    def drawn(self, values: np.ndarray, rows: np.ndarray, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Divides sentences anew: ids of the sub-words of all sentences, [N], and the number of the sentence of each,
        ascending, [N] → the same for other sub-words of the same text.
        """
        if not self._rate or not len(values):
            return values, rows
        first = self._begins_word[values] | (np.diff(rows, prepend=-1) > 0)
        words, starts = np.cumsum(first) - 1, np.flatnonzero(first)
        merges = np.add.reduceat(self._counts[values] - 1, starts)  # Each leaves one symbol less.
        until_skipped = draw.geometric(self._rate, len(starts)) - 1
        changed = until_skipped < merges
        anew = changed[words]
        symbols, words_of_symbols = self._merged_anew(values[anew], words[anew], until_skipped, draw)
        words_of_all = np.concatenate([words[~anew], words_of_symbols])
        order = np.argsort(words_of_all, kind="stable")
        return np.concatenate([values[~anew], symbols])[order], rows[starts][words_of_all[order]]

    def _merged_anew(
        self, values: np.ndarray, words: np.ndarray, until_skipped: np.ndarray, draw: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Divides words anew in which a merge is skipped: ids of their sub-words, [N], and the number of the word of
        each, ascending, [N] → the same for other sub-words. `until_skipped` has, for each number of a word, the merges
        before the first skipped one.
        """
        counts = self._counts[values]
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        symbols, words = self._characters[np.repeat(self._starts[values], counts) + offsets], np.repeat(words, counts)
        first = np.flatnonzero(np.diff(words, prepend=-1))
        lengths = np.diff(first, append=len(symbols))
        groups = np.ceil(np.log2(lengths))  # Words of similar lengths are merged together.
        for group in np.unique(groups):
            chosen = groups == group
            columns = np.arange(lengths[chosen].max())
            places, within = first[chosen][:, None] + columns, columns < lengths[chosen][:, None]
            padded = np.full(places.shape, PAD)
            padded[within] = symbols[places[within]]
            self._merge(padded, until_skipped[words[first[chosen]]], draw)
            symbols[places[within]] = padded[within]
        real = symbols != PAD
        return symbols[real], words[real]

    def _rank(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Returns the ranks of pairs, `_NEVER` for those that do not merge."""
        pairs = left * self._size + right
        places = np.searchsorted(self._pairs, pairs)
        return np.where(self._pairs[places] == pairs, self._ranks[places], _NEVER)

    def _merge(self, words: np.ndarray, until_skipped: np.ndarray, draw: np.random.Generator) -> None:
        """Merges as algorithm 1 of the paper: again and again, the best of the possible merges that are not skipped.

        Chance skips each possible merge with the same probability. The number of skipped ones that are better than the
        first of the others is therefore distributed geometrically.

        Args:
            words: ids of characters, with PAD after the end, [words, length > 1]; become ids of sub-words.
            until_skipped: the merges of each word before the first time that chance skips one, [words].
        """
        left, current, ranks = np.arange(len(words)), words.copy(), self._rank(words[:, :-1], words[:, 1:])
        for step in range(words.shape[1] - 1):
            row = np.arange(len(left))
            skipped = np.where(until_skipped[left] > step, 0, until_skipped[left] == step)
            drawing = until_skipped[left] <= step
            more = draw.geometric(1 - self._rate, np.count_nonzero(drawing)) - 1 if self._rate < 1 else _NEVER // 2
            skipped[drawing] += more
            best = ranks.argmin(axis=1)
            some = np.flatnonzero(skipped)
            place = np.minimum(skipped[some], ranks.shape[1] - 1)
            best[some] = np.argsort(ranks[some], axis=1, kind="stable")[np.arange(len(some)), place]
            merges = (ranks[row, best] < _NEVER) & (skipped < ranks.shape[1])
            words[left[~merges], : current.shape[1]] = current[~merges]
            words[left[~merges], current.shape[1] :] = PAD
            left, current, ranks, best = left[merges], current[merges], ranks[merges], best[merges]
            if not len(left):
                return
            row = np.arange(len(left))
            current[row, best] = self._merged[ranks[row, best]]
            current, ranks = (
                np.where(np.arange(array.shape[1] - 1) > (best + kept)[:, None], array[:, 1:], array[:, :-1])
                for array, kept in ((current, 0), (ranks, -1))
            )
            for other in (best - 1, best):  # The pairs that the merged piece has become part of.
                inside = np.flatnonzero((other >= 0) & (other < ranks.shape[1]))
                ranks[inside, other[inside]] = self._rank(
                    current[inside, other[inside]], current[inside, other[inside] + 1]
                )
        words[left, : current.shape[1]] = current
        words[left, current.shape[1] :] = PAD
