"""BPE-dropout (Provilkov et al. 2020, https://aclanthology.org/2020.acl-main.170): byte-pair encoding that skips merges
at random.

SentencePiece can sample, too, but one seed gives other sub-words in each process. So all words of a batch are merged in
NumPy.
"""

import numpy as np
import sentencepiece
import tensorflow as tf

from t2t_keras.config import PAD
from t2t_keras.text.byte_pairs import BytePairs
from t2t_keras.text.sentencepiece_model import UNDERSCORE

_NEVER = np.iinfo(np.int64).max  # The rank of a pair that is not merged.


class BpeDropout:
    """Divides sentences into sub-words anew, at random.

    Args:
        subwords: the sub-words, of which byte-pair encoding alone has merges to skip.
        rate: probability of skipping a merge.

    Raises:
        ValueError: the sub-words are of another kind.
    """

    def __init__(self, subwords: BytePairs, rate: float):
        byte_pairs = type(subwords) is BytePairs  # Its subclass, a vocabulary of words, has no merges.
        if not (byte_pairs and _are_ranks(subwords)):
            unigram = "a SentencePiece model without merges, such as a unigram model"
            received = unigram if byte_pairs else type(subwords).__name__
            raise ValueError(f"`bpe_dropout` needs byte-pair encoding (`subwords=bpe`). Received: {received}.")
        self.rate, self._merges = rate, _Merges(subwords)

    def __call__(self, ids: tf.RaggedTensor, seed) -> tf.RaggedTensor:
        """Divides sentences anew. One that would become longer than the longest keeps its sub-words: no batch grows.

        Args:
            ids: [B, (length)] int32, ragged, each ending in EOS.
            seed: [2] int64. The same seed gives the same sub-words, in any process.

        Returns:
            As `ids`, for the same text.
        """
        values, lengths = tf.numpy_function(self._sample, [ids.values, ids.row_lengths(), seed], [tf.int32, tf.int64])
        return tf.RaggedTensor.from_row_lengths(
            tf.ensure_shape(values, [None]), tf.ensure_shape(lengths, [None]), validate=False
        )

    def _sample(self, values: np.ndarray, lengths: np.ndarray, seed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed.view(np.uint64).tolist())))
        rows = np.repeat(np.arange(len(lengths)), lengths)
        drawn, drawn_rows = self._merges.drawn(values, rows, self.rate, draw)
        fits = np.bincount(drawn_rows, minlength=len(lengths)) <= lengths.max(initial=0)
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
    """The merges of a byte-pair encoding: two neighbours become one piece, if there is one, the best score first."""

    def __init__(self, subwords: BytePairs):
        pieces, normal = subwords.pieces, _normal(subwords)
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
                    merges[normal[piece[:cut]] * self._size + normal[piece[cut:]]] = rank, normal[piece]
        self._pairs = np.array([*sorted(merges), _NEVER])
        self._ranks, self._merged = np.array([*(merges[pair] for pair in sorted(merges)), (_NEVER, _NEVER)]).T

    def drawn(
        self, values: np.ndarray, rows: np.ndarray, rate: float, draw: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Divides sentences anew.

        Args:
            values: ids of the sub-words of all sentences, [N].
            rows: the number of the sentence of each, ascending, [N].
            rate: probability of skipping a merge.
            draw: draws random numbers.

        Returns:
            As `values` and `rows`, for the same text.
        """
        counts = self._counts[values]
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        symbols, rows = self._characters[np.repeat(self._starts[values], counts) + offsets], np.repeat(rows, counts)
        first = np.flatnonzero(self._begins_word[symbols] | (np.diff(rows, prepend=-1) > 0))
        lengths = np.diff(first, append=len(symbols))
        groups = np.ceil(np.log2(lengths))  # Words of similar lengths are merged together.
        for group in np.unique(groups[lengths > 1]):
            chosen = groups == group
            columns = np.arange(lengths[chosen].max())
            places, within = first[chosen][:, None] + columns, columns < lengths[chosen][:, None]
            words = np.full(places.shape, PAD)
            words[within] = symbols[places[within]]
            symbols[places[within]] = self._merge(words, rate, draw)[within]
        real = symbols != PAD
        return symbols[real], rows[real]

    def _merge(self, words: np.ndarray, rate: float, draw: np.random.Generator) -> np.ndarray:
        """Merges as algorithm 1 of the paper: again and again, the best of the possible merges that are not skipped.

        Args:
            words: ids of characters, with PAD after the end, [words, length > 1].

        Returns:
            Ids of sub-words, with PAD after the end, [words, length].
        """
        left = np.arange(len(words))  # Words that may have further merges.
        columns = np.arange(words.shape[1] - 1)
        while len(left):
            current = words[left]
            pairs = current[:, :-1] * self._size + current[:, 1:]
            places = np.searchsorted(self._pairs, pairs)
            possible = (self._pairs[places] == pairs) & (draw.random(pairs.shape) >= rate)
            ranks = np.where(possible, self._ranks[places], _NEVER)
            best = ranks.argmin(axis=1)
            merges = ranks[np.arange(len(left)), best] < _NEVER
            left, current, best, places = left[merges], current[merges], best[merges], places[merges]
            current[np.arange(len(left)), best] = self._merged[places[np.arange(len(left)), best]]
            words[left, :-1] = np.take_along_axis(current, columns + (columns > best[:, None]), axis=1)
            words[left, -1] = PAD
        return words
