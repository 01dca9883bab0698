"""Diverse beam search (Vijayakumar et al. 2016, https://arxiv.org/abs/1610.02424): groups of beams, each of which
avoids what earlier groups write.

Group g selects its hypotheses at position t by log P(Y) - λ · n(y_t), where n(y) is the number of hypotheses of groups
1 … g - 1 that go on with the token y at the same position (Hamming diversity). What λ takes away decides the selection
only: scores are those of the model.

Letters: R sentences still in the state, W beams in G groups, N continuations, V vocabulary.
"""

import tensorflow as tf

from t2t_keras.decoding.search_hooks import IMPOSSIBLE, Hypotheses, Selector, largest


class DiverseBeams(Selector):
    """Selects the continuations of groups of beams. The first group is beam search of W / G beams.

    Args:
        groups: G, which divides the beam size.
        diversity: λ, at least 0.
        eos_id: the end token. It has no penalty, because hypotheses that end do not go on alike.
    """

    def __init__(self, groups: int, diversity: float, eos_id: int):
        self._groups, self._diversity, self._eos_id = groups, diversity, eos_id

    def groups(self, beam_size):
        return self._groups

    def number(self, beam_size):
        return self._groups * super().number(beam_size // self._groups)

    def __call__(self, log_probs, hypotheses: Hypotheses, state):
        beam_size, vocab_size = log_probs.shape[1:]
        size, number = beam_size // self._groups, self.number(beam_size) // self._groups
        # At most W - W / G tokens lose some of their score, so the best are among that many more.
        per_beam = min(number + beam_size - size, vocab_size)
        values, tokens = (
            tf.split(tf.reshape(x, [-1, beam_size, per_beam]), self._groups, axis=1)
            for x in largest(tf.reshape(log_probs, [-1, vocab_size]), per_beam)
        )
        before = tf.split(hypotheses.log_probs, self._groups, axis=1)
        selected, written = [], tf.zeros([tf.shape(log_probs)[0], 0], tf.int32)
        for group in range(self._groups):
            # Before the first token, all groups continue the first hypothesis, which stands in the first.
            start = tf.where(hypotheses.position == 0, before[0], before[group])
            totals = tf.reshape(start[:, :, None] + values[group], [-1, size * per_beam])
            candidates = tf.reshape(tokens[group], [-1, size * per_beam])
            times = tf.reduce_sum(tf.cast(candidates[:, :, None] == written[:, None], tf.float32), axis=2)
            _, index = tf.math.top_k(totals - self._diversity * times, number)
            totals, candidates = (tf.gather(x, index, batch_dims=1) for x in (totals, candidates))
            selected.append((totals, group * size + index // per_beam, candidates))
            goes_on = (candidates != self._eos_id) & (totals > IMPOSSIBLE)
            goes_on &= tf.cumsum(tf.cast(goes_on, tf.int32), axis=1) <= size
            written = tf.concat([written, tf.where(goes_on, candidates, -1)], axis=1)
        return tuple(tf.concat(parts, axis=1) for parts in zip(*selected, strict=True)), state
