"""No repeated n-grams: a translation has no sequence of n tokens twice (Paulus et al. 2017, arXiv 1705.04304, section
2.5).

Letters: R sentences still in the state, W beams, V vocabulary, T tokens written so far.
"""

import tensorflow as tf

from t2t_keras.decoding.search_hooks import IMPOSSIBLE, Hypotheses, Scorer


class NoRepeatedNgrams(Scorer):
    """Forbids each token that would complete an n-gram of its hypothesis for the second time, unless nothing else is
    allowed.

    Args:
        size: n, at least 1.
    """

    def __init__(self, size: int):
        self._before = size - 1

    def __call__(self, log_probs, hypotheses: Hypotheses, state):
        # Nothing, -1, stands before the first token, so that every token comes after n - 1 others.
        written = tf.pad(hypotheses.sequences, [[0, 0], [0, 0], [self._before, 0]], constant_values=-1)
        position = hypotheses.position
        again = tf.ones_like(hypotheses.sequences, tf.bool)  # [R, W, T], whether a token comes after what is last now.
        for place in range(self._before):
            again &= written[:, :, place : place + position] == written[:, :, place + position, None]
        vocab_size = log_probs.shape[-1]
        rows = tf.reshape(log_probs, [-1, vocab_size])
        found = tf.where(tf.reshape(again, [-1, position]))
        tokens = tf.gather_nd(tf.reshape(hypotheses.sequences, [-1, position]), found)
        places = tf.stack([found[:, 0], tf.cast(tokens, tf.int64)], axis=1)
        allowed = tf.tensor_scatter_nd_update(rows, places, tf.fill([tf.shape(places)[0]], IMPOSSIBLE))
        possible = tf.reduce_max(allowed, axis=1, keepdims=True) > IMPOSSIBLE
        return tf.reshape(tf.where(possible, allowed, rows), tf.shape(log_probs)), state
