"""Beam search (section 6.1): a pure function over a step; score(Y) = log P(Y) / lp(Y), lp(Y) = ((5 + |Y|) / 6)^α.

Letters: B sentences, R of them that the step still works on, W beams, V vocabulary, T tokens written so far.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

IMPOSSIBLE = float("-inf")
_FEWER = 0.75  # When at most this share of the sentences in the state is still searched, the others leave it.


def length_penalty(length, alpha):
    """Wu et al. (2016), equation 14: ((5 + |Y|) / 6)^α, where |Y| counts the end token."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


def _gather(nest, index):
    """Rows [B, W, …] of each sentence by index [B, W']."""
    return tf.nest.map_structure(lambda x: tf.gather(x, index, batch_dims=1), nest)


def _block(vocab_size: int) -> int:
    """The divisor of V nearest to 100: what V is cut into to find its largest values."""
    return min((n for n in range(1, vocab_size + 1) if vocab_size % n == 0), key=lambda n: abs(n - 100))


def largest(x, number: int):
    """`tf.math.top_k` of [N, V] float32, V static: by the largest of each block first, six times as fast where V is large.

    Returns:
        values [N, number] float32, largest first, and their indices [N, number] int32.
    """
    rows, vocab_size = tf.shape(x)[0], x.shape[-1]
    block = _block(vocab_size)
    if vocab_size // block < 4 * number or block < 8:
        return tf.math.top_k(x, number)
    blocks = tf.reshape(x, [rows, vocab_size // block, block])
    # The k largest values lie in the k blocks of the largest maxima. In order, so that of equal values the first comes first.
    _, chosen = tf.math.top_k(tf.reduce_max(blocks, axis=-1), number)
    chosen = tf.sort(chosen, axis=-1)
    values, index = tf.math.top_k(tf.reshape(tf.gather(blocks, chosen, batch_dims=1), [rows, number * block]), number)
    return values, tf.gather(chosen, index // block, batch_dims=1) * block + index % block


def top_log_probs(logits, number: int):
    """log P of the most likely tokens. [N, V] float32 → log P [N, number], largest first; tokens [N, number] int32; log Σ exp [N, 1].

    Tokens with P < 10⁻³⁸, the least that float32 holds, are not told apart.
    """
    # One pass of softmax over V where a log-softmax makes several; log Σ exp(x) = x - log P(x), most exact for the largest.
    probabilities, tokens = largest(tf.nn.softmax(logits), number)
    values = tf.gather(logits, tokens, batch_dims=1)
    normalizer = values[:, :1] - tf.math.log(probabilities[:, :1])
    return values - normalizer, tokens, normalizer


class Hypotheses(NamedTuple):
    """Beams that have not ended, best first."""

    log_probs: tf.Tensor  # [B, W] float32, -inf in a place that no hypothesis takes
    tokens: tf.Tensor  # [B, W] int32, the last token of each
    sequences: tf.Tensor  # [B, W, T] int32, all tokens but the first
    ancestors: tf.Tensor  # [B, W, T + 1] int32, the beam that wrote each token


class Finished(NamedTuple):
    """The best hypotheses that have ended, best first."""

    scores: tf.Tensor  # [B, W] float32, -inf in a place that no hypothesis takes
    sequences: tf.Tensor  # [B, W, T] int32, 0 after the end


class BeamState(NamedTuple):
    """The state of the search after T tokens."""

    position: tf.Tensor  # [] int32, T
    done: tf.Tensor  # [B] boolean, whether no running hypothesis can still be among the best
    running: Hypotheses
    finished: Finished
    rows: tf.Tensor  # [R] int32, the sentences that the step works on
    model: object  # nest of tensors [R, …], the step's state


class Candidates(NamedTuple):
    """Continuations of running hypotheses by one token, best first; 2 W for each sentence, 1 where W is 1."""

    log_probs: tf.Tensor  # [B, 2 W] float32
    parents: tf.Tensor  # [B, 2 W] int32, the beam that each continues
    tokens: tf.Tensor  # [B, 2 W] int32
    sequences: tf.Tensor  # [B, 2 W, T + 1] int32
    ends: tf.Tensor  # [B, 2 W] boolean


class _Search:
    """One call of `beam_search`; see there for the arguments. `max_length` and `alpha` are [B, 1] here, `last` is [B, 1]."""

    def __init__(self, step: Callable, eos_id: int, beam_size: int, max_length, alpha, last, prefix):
        self.step, self.eos_id, self.beam_size = step, eos_id, beam_size
        self.max_length, self.alpha, self.last, self.prefix = max_length, alpha, last, prefix
        # Every beam ends at most once, so that W of 2 W candidates go on.
        self.number = 2 * beam_size if beam_size > 1 else 1
        self.best_penalty = tf.maximum(length_penalty(max_length, alpha), length_penalty(1, alpha))
        self.batch = tf.shape(max_length)[0]
        self.beams = tf.tile(tf.range(beam_size)[None, :, None], [self.batch, 1, 1])  # [B, W, 1]

    def start(self, tokens, model) -> BeamState:
        """All beams start with the same token, so all but the first are ruled out."""
        only_first = tf.where(tf.range(self.beam_size) == 0, 0.0, IMPOSSIBLE)[None]
        nothing = tf.zeros([self.batch, self.beam_size, 0], tf.int32)
        log_probs, tokens = tf.tile(only_first, [self.batch, 1]), tf.tile(tokens[:, None], [1, self.beam_size])
        running = Hypotheses(log_probs, tokens, nothing, self.beams)
        finished = Finished(tf.fill([self.batch, self.beam_size], IMPOSSIBLE), nothing)
        return BeamState(tf.constant(0), tf.zeros([self.batch], tf.bool), running, finished, tf.range(self.batch), model)

    def shapes(self, state: BeamState) -> BeamState:
        """What may change from step to step: the length T, the rows R, and axes of the step's state that are 0 at first."""
        number, written = tf.TensorShape([None, self.beam_size]), tf.TensorShape([None, self.beam_size, None])
        return BeamState(
            tf.TensorShape([]),
            tf.TensorShape([None]),
            Hypotheses(number, number, written, written),
            Finished(number, written),
            tf.TensorShape([None]),
            tf.nest.map_structure(lambda x: tf.TensorShape([None] + [size or None for size in x.shape[1:]]), state.model),
        )

    def searched(self, state: BeamState):
        """Which sentences are still searched, [B] boolean."""
        return tf.logical_not(state.done) & (state.position < self.max_length[:, 0])

    def one_token(self, state: BeamState) -> BeamState:
        """The state after one more token."""
        state = self.retire(state)
        candidates, model = self.extend(state)
        finished = self.finish(state, candidates)
        running = self.go_on(state, candidates)
        best_to_come = running.log_probs[:, :1] / self.best_penalty
        done = state.done | tf.squeeze(best_to_come <= tf.gather(finished.scores, self.last, batch_dims=1), axis=1)
        return BeamState(state.position + 1, done, running, finished, state.rows, model)

    def retire(self, state: BeamState) -> BeamState:
        """Sentences that are no longer searched leave the step's state, once they are many enough to pay for the copy."""
        searched = tf.gather(self.searched(state), state.rows)

        def without_the_others():
            kept = tf.boolean_mask(tf.range(tf.size(state.rows)), searched)
            return tf.nest.map_structure(lambda x: tf.gather(x, kept), (state.rows, state.model))

        few = tf.reduce_sum(tf.cast(searched, tf.float32)) <= _FEWER * tf.cast(tf.size(state.rows), tf.float32)
        rows, model = tf.cond(few, without_the_others, lambda: (state.rows, state.model))
        return state._replace(rows=rows, model=model)

    def extend(self, state: BeamState) -> tuple[Candidates, object]:
        """The best continuations of the running hypotheses, and the step's next state."""
        running, rows = state.running, state.rows
        log_probs, tokens, ancestors = (tf.gather(x, rows) for x in (running.log_probs, running.tokens, running.ancestors))
        logits, model = self.step(tokens, ancestors, state.position, state.model)
        found = self._best(state.position, log_probs, logits, tf.gather(self.prefix, rows))
        totals, parents, tokens = (tf.scatter_nd(rows[:, None], x, [self.batch, self.number]) for x in found)
        sequences = tf.concat([_gather(running.sequences, parents), tokens[:, :, None]], axis=2)
        return Candidates(totals, parents, tokens, sequences, tokens == self.eos_id), model

    def _best(self, position, log_probs, logits, prefix):
        """log P [R, W], logits [R, W, V] and prefix [R, P] → log P, parents and tokens of the best continuations, each [R, 2 W]."""
        vocab_size = logits.shape[-1]
        number = min(self.number, vocab_size)
        values, tokens, normalizer = top_log_probs(tf.reshape(logits, [-1, vocab_size]), number)
        totals = tf.reshape(log_probs, [-1, 1]) + values
        totals, index = tf.math.top_k(tf.reshape(totals, [-1, self.beam_size * number]), self.number)
        tokens = tf.gather(tf.reshape(tokens, [-1, self.beam_size * number]), index, batch_dims=1)
        parents = index // number
        if prefix.shape[1] == 0:
            return totals, parents, tokens
        wanted = tf.pad(prefix, [[0, 0], [0, 1]])[:, tf.minimum(position, tf.shape(prefix)[1])]
        forced = tf.gather(logits[:, 0], wanted, batch_dims=1) - tf.reshape(normalizer, [-1, self.beam_size])[:, 0] + log_probs[:, 0]
        only = tf.concat([forced[:, None], tf.fill([tf.size(wanted), self.number - 1], IMPOSSIBLE)], axis=1)
        is_forced = (wanted > 0)[:, None]
        return tf.where(is_forced, only, totals), tf.where(is_forced, 0, parents), tf.where(is_forced, wanted[:, None], tokens)

    def finish(self, state: BeamState, candidates: Candidates) -> Finished:
        """The W best of the hypotheses that ended before and those that end now."""
        now = candidates.ends & self.searched(state)[:, None]
        scores = tf.where(now, candidates.log_probs / length_penalty(state.position + 1, self.alpha), IMPOSSIBLE)
        scores, kept = tf.math.top_k(tf.concat([state.finished.scores, scores], axis=1), self.beam_size)
        sequences = tf.concat([tf.pad(state.finished.sequences, [[0, 0], [0, 0], [0, 1]]), candidates.sequences], axis=1)
        return Finished(scores, _gather(sequences, kept))

    def go_on(self, state: BeamState, candidates: Candidates) -> Hypotheses:
        """The W best candidates that have not ended; sentences that are no longer searched keep what they had."""
        log_probs, kept = tf.math.top_k(tf.where(candidates.ends, IMPOSSIBLE, candidates.log_probs), self.beam_size)
        ancestors = _gather(state.running.ancestors, _gather(candidates.parents, kept))
        following = Hypotheses(log_probs, _gather(candidates.tokens, kept), _gather(candidates.sequences, kept), ancestors)
        before = state.running._replace(sequences=tf.pad(state.running.sequences, [[0, 0], [0, 0], [0, 1]]))
        searched = self.searched(state)
        running = tf.nest.map_structure(
            lambda new, old: tf.where(tf.reshape(searched, [-1] + [1] * (len(new.shape) - 1)), new, old), following, before
        )
        return running._replace(ancestors=tf.concat([running.ancestors, self.beams], axis=2))

    def result(self, state: BeamState):
        """Those that ended come first; running ones, all of one length and sorted already, take the places left."""
        beams = tf.range(self.beam_size)[None]
        ended = tf.reduce_sum(tf.cast(state.finished.scores > IMPOSSIBLE, tf.int32), axis=1, keepdims=True)
        running_scores = state.running.log_probs / length_penalty(self.max_length, self.alpha)
        chosen = tf.where(beams < ended, beams, self.beam_size + beams - ended)
        sequences = tf.concat([state.finished.sequences, state.running.sequences], axis=1)
        return _gather((sequences, tf.concat([state.finished.scores, running_scores], axis=1)), chosen)


def beam_search(step, state, start, *, eos_id: int, beam_size: int, max_length, alpha, n_best=None, prefix=None):
    """The best continuations of `start`, best first.

    A hypothesis that ends is set aside with its score. A sentence is done when no running hypothesis could still be one of the
    best `n_best`, however long it grew, or at its own `max_length`. It then leaves the state, so the step works on fewer
    sentences; a translation does not depend on the sentences beside it.

    Args:
        step: (tokens [R, W] int32, ancestors [R, W, T + 1] int32, position T, state) → (logits [R, W, V] float32, state). Beams
            are never reordered in the state. Instead `ancestors` says which beam wrote each token of a hypothesis: token t of
            beam w was the one at [ancestors[w, t]] of the `tokens` at position t, so its last entry is always w itself.
        state: nest of tensors [B, …], all that the step has about each sentence. An axis that is statically 0 may grow.
        start: [B] int32, the token that is read first; it is not part of the result.
        eos_id: the token that ends a hypothesis.
        beam_size: W; 1 is greedy search.
        max_length: [B] int32, most tokens written for each sentence, the end token counted; at least 1.
        alpha: of the length penalty; a number or [B] float32.
        n_best: [B] int32, how many hypotheses will be looked at, 1 … W; all W if not given. The others may not be the best.
        prefix: [B, P] int32, tokens that each translation begins with, then zeros; not `eos_id`.

    Returns:
        sequences: [B, W, T] int32, 0 after the end. One without `eos_id` did not end in time; it comes after all that did.
        scores: [B, W] float32; -inf in a place that no hypothesis takes.
    """
    batch = tf.shape(start)[0]
    search = _Search(
        step,
        eos_id,
        beam_size,
        max_length=tf.reshape(max_length, [batch, 1]),
        alpha=tf.broadcast_to(tf.convert_to_tensor(alpha, tf.float32), [batch])[:, None],
        last=tf.fill([batch, 1], beam_size - 1) if n_best is None else n_best[:, None] - 1,
        prefix=tf.zeros([batch, 0], tf.int32) if prefix is None else prefix,
    )
    initial = search.start(start, state)
    final = tf.while_loop(
        lambda *state: tf.reduce_any(search.searched(BeamState(*state))),
        lambda *state: tuple(search.one_token(BeamState(*state))),
        tuple(initial),
        shape_invariants=tuple(search.shapes(initial)),
    )
    return search.result(BeamState(*final))
