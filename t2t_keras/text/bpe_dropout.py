"""BPE-dropout (Provilkov et al. 2020, https://aclanthology.org/2020.acl-main.170): byte-pair encoding that skips merges at random."""

import threading

import numpy as np
import sentencepiece
import tensorflow as tf

from t2t_keras.config import EOS
from t2t_keras.text.byte_pairs import BytePairs

_SEED = threading.Lock()  # SentencePiece has one seed for all threads that it starts.


class BpeDropout:
    """Divides sentences into sub-words anew, at random.

    Args:
        subwords: the sub-words, of which byte-pair encoding alone has merges to skip.
        rate: probability of skipping a merge.

    Raises:
        ValueError: the sub-words are of another kind.
    """

    def __init__(self, subwords: BytePairs, rate: float):
        if type(subwords) is not BytePairs:  # A vocabulary of words is a kind of byte pairs without merges.
            raise ValueError(f"Expected byte-pair encoding (`subwords=bpe`) with `bpe_dropout`. Received: {type(subwords).__name__}.")
        self.rate, self._processor = rate, sentencepiece.SentencePieceProcessor(model_proto=subwords.model)

    def __call__(self, ids: tf.RaggedTensor, seed) -> tf.RaggedTensor:
        """Divides sentences anew. One that would become longer than the longest of them keeps its sub-words, so that no batch grows.

        Args:
            ids: [B, (length)] int32, ragged, each ending in EOS.
            seed: [2] int64. The same seed gives the same sub-words.

        Returns:
            As `ids`, for the same text.
        """
        values, lengths = tf.numpy_function(self._sample, [ids.values, ids.row_lengths(), seed], [tf.int32, tf.int64])
        return tf.RaggedTensor.from_row_lengths(tf.ensure_shape(values, [None]), tf.ensure_shape(lengths, [None]), validate=False)

    def _sample(self, values: np.ndarray, lengths: np.ndarray, seed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = [row.tolist() for row in np.split(values, np.cumsum(lengths)[:-1])]
        texts = self._processor.decode([row[:-1] for row in rows])
        with _SEED:
            sentencepiece.set_random_generator_seed(int(np.random.SeedSequence(seed.view(np.uint64)).generate_state(1)[0]))
            # The one thread that this starts takes the seed.
            drawn = self._processor.encode(texts, enable_sampling=True, alpha=self.rate, nbest_size=-1, num_threads=1)
        longest = lengths.max(initial=0)
        rows = [[*new, EOS] if len(new) < longest else row for new, row in zip(drawn, rows, strict=True)]
        return np.array([id for row in rows for id in row], np.int32), np.array([len(row) for row in rows], np.int64)
