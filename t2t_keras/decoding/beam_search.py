"""Beam search (section 6.1) as a pure function of a decoding step: score(Y) = log P(Y) / lp(Y), lp(Y) = ((5 + |Y|) / 6)^α.

Letters: B sentences, R sentences still in the state of the step, W beams, V vocabulary, T tokens written so far.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

IMPOSSIBLE = float("-inf")
# Numbers of sentences that the state of the step has after finished ones have left: few, because oneDNN compiles kernels for each shape.
_SIZES = [1, 2] + [size << shift for shift in range(28) for size in (3, 4)]  # 1, 2, 3, 4, 6, 8, 12, 16, 24, …


def length_penalty(length, alpha):
    """Returns ((5 + |Y|) / 6)^α, where |Y| includes the end token (Wu et al. 2016, equation 14)."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


def _gather(nest, index):
    """Selects rows of each sentence: a nest of [B, W, …], index [B, W'] → [B, W', …]."""
    return tf.nest.map_structure(lambda x: tf.gather(x, index, batch_dims=1), nest)


def _block(vocab_size: int) -> int:
    """Returns the divisor of V nearest to 100, the size of the blocks in which `largest` searches."""
    return min((n for n in range(1, vocab_size + 1) if vocab_size % n == 0), key=lambda n: abs(n - 100))


def largest(x, number: int):
    """Computes `tf.math.top_k`, six times as fast for a large V: it finds the best blocks first.

    Args:
        x: [N, V] float32, V static.
        number: how many values to find in each row, k.

    Returns:
        Values [N, k] float32, largest first, and their indices [N, k] int32.
    """
    rows, vocab_size = tf.shape(x)[0], x.shape[-1]
    block = _block(vocab_size)
    if vocab_size // block < 4 * number or block < 8:
        return tf.math.top_k(x, number)
    blocks = tf.reshape(x, [rows, vocab_size // block, block])
    # The k largest values are in the k blocks with the largest maxima. Sorting the blocks puts the first of equal values first.
    _, chosen = tf.math.top_k(tf.reduce_max(blocks, axis=-1), number)
    chosen = tf.sort(chosen, axis=-1)
    values, index = tf.math.top_k(tf.reshape(tf.gather(blocks, chosen, batch_dims=1), [rows, number * block]), number)
    return values, tf.gather(chosen, index // block, batch_dims=1) * block + index % block


def top_log_probs(logits, number: int):
    """Finds the most likely tokens. Tokens with P < 10⁻³⁸, the smallest float32, are not distinguished.

    Args:
        logits: [N, V] float32.
        number: how many tokens to find in each row, k.

    Returns:
        log P [N, k] float32, largest first; the tokens [N, k] int32; and log Σ exp(logits) [N, 1] float32.
    """
    # A softmax reads V once, a log-softmax several times. log Σ exp(x) = x - log P(x), which is most accurate for the largest x.
    probabilities, tokens = largest(tf.nn.softmax(logits), number)
    values = tf.gather(logits, tokens, batch_dims=1)
    normalizer = values[:, :1] - tf.math.log(probabilities[:, :1])
    return values - normalizer, tokens, normalizer


class Hypotheses(NamedTuple):
    """Unfinished hypotheses, best first."""

    log_probs: tf.Tensor  # [B, W] float32, -inf in an empty place
    tokens: tf.Tensor  # [B, W] int32, the last token of each
    sequences: tf.Tensor  # [B, W, T] int32, all tokens but the start token
    ancestors: tf.Tensor  # [B, W, T + 1] int32, the beam that wrote each token


class Finished(NamedTuple):
    """The best finished hypotheses, best first."""

    scores: tf.Tensor  # [B, W] float32, -inf in an empty place
    sequences: tf.Tensor  # [B, W, T] int32, 0 after the end token


class BeamState(NamedTuple):
    """The state of the search after T tokens."""

    position: tf.Tensor  # [] int32, T
    done: tf.Tensor  # [B] boolean, True if no running hypothesis can still be among the best
    running: Hypotheses
    finished: Finished
    rows: tf.Tensor  # [R] int32, the sentences in the state of the step
    model: object  # nest of tensors [R, …], the state of the step


class Candidates(NamedTuple):
    """Running hypotheses continued by one token, best first: 2 W for each sentence, or 1 if W is 1."""

    log_probs: tf.Tensor  # [B, 2 W] float32
    parents: tf.Tensor  # [B, 2 W] int32, the beam that each one continues
    tokens: tf.Tensor  # [B, 2 W] int32
    sequences: tf.Tensor  # [B, 2 W, T + 1] int32
    ends: tf.Tensor  # [B, 2 W] boolean


class _Search:
    """One call of `beam_search`, which describes the arguments. Here `max_length`, `alpha` and `last` (`n_best` - 1) are [B, 1]."""

    def __init__(self, step: Callable, eos_id: int, beam_size: int, max_length, alpha, last, prefix):
        self.step, self.eos_id, self.beam_size = step, eos_id, beam_size
        self.max_length, self.alpha, self.last, self.prefix = max_length, alpha, last, prefix
        # Each beam can end at most once, so at least W of 2 W candidates continue.
        self.number = 2 * beam_size if beam_size > 1 else 1
        self.best_penalty = tf.maximum(length_penalty(max_length, alpha), length_penalty(1, alpha))
        self.batch = tf.shape(max_length)[0]
        self.beams = tf.tile(tf.range(beam_size)[None, :, None], [self.batch, 1, 1])  # [B, W, 1]

    def start(self, tokens, model) -> BeamState:
        """Returns the state before the first token. All beams are equal there, so only the first one counts."""
        only_first = tf.where(tf.range(self.beam_size) == 0, 0.0, IMPOSSIBLE)[None]
        nothing = tf.zeros([self.batch, self.beam_size, 0], tf.int32)
        log_probs, tokens = tf.tile(only_first, [self.batch, 1]), tf.tile(tokens[:, None], [1, self.beam_size])
        running = Hypotheses(log_probs, tokens, nothing, self.beams)
        finished = Finished(tf.fill([self.batch, self.beam_size], IMPOSSIBLE), nothing)
        return BeamState(tf.constant(0), tf.zeros([self.batch], tf.bool), running, finished, tf.range(self.batch), model)

    def shapes(self, state: BeamState) -> BeamState:
        """Returns the shape invariants of the loop. T, R, and axes of the step's state that start at size 0 may change."""
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
        """Returns which sentences are unfinished, [B] boolean."""
        return tf.logical_not(state.done) & (state.position < self.max_length[:, 0])

    def one_token(self, state: BeamState) -> BeamState:
        """Returns the state after one more token."""
        state = self.retire(state)
        candidates, model = self.extend(state)
        finished = self.finish(state, candidates)
        running = self.go_on(state, candidates)
        best_to_come = running.log_probs[:, :1] / self.best_penalty
        done = state.done | tf.squeeze(best_to_come <= tf.gather(finished.scores, self.last, batch_dims=1), axis=1)
        return BeamState(state.position + 1, done, running, finished, state.rows, model)

    def retire(self, state: BeamState) -> BeamState:
        """Reduces the state of the step to the smallest of `_SIZES` that holds all unfinished sentences; finished ones fill the rest."""
        searched = tf.gather(self.searched(state), state.rows)
        unfinished = tf.reduce_sum(tf.cast(searched, tf.int32))
        size = tf.gather(_SIZES, tf.searchsorted(_SIZES, unfinished[None])[0])

        def compacted():
            kept = tf.argsort(tf.cast(searched, tf.int32), direction="DESCENDING", stable=True)[:size]
            return tf.nest.map_structure(lambda x: tf.gather(x, kept), (state.rows, state.model))

        rows, model = tf.cond(size < tf.size(state.rows), compacted, lambda: (state.rows, state.model))
        return state._replace(rows=rows, model=model)

    def extend(self, state: BeamState) -> tuple[Candidates, object]:
        """Returns the best continuations of the running hypotheses, and the next state of the step."""
        running, rows = state.running, state.rows
        log_probs, tokens, ancestors = (tf.gather(x, rows) for x in (running.log_probs, running.tokens, running.ancestors))
        logits, model = self.step(tokens, ancestors, state.position, state.model)
        found = self._best(state.position, log_probs, logits, tf.gather(self.prefix, rows))
        totals, parents, tokens = (tf.scatter_nd(rows[:, None], x, [self.batch, self.number]) for x in found)
        sequences = tf.concat([_gather(running.sequences, parents), tokens[:, :, None]], axis=2)
        return Candidates(totals, parents, tokens, sequences, tokens == self.eos_id), model

    def _best(self, position, log_probs, logits, prefix):
        """Selects the best continuations.

        Args:
            position: [] int32.
            log_probs: of the running hypotheses, [R, W] float32.
            logits: of their next tokens, [R, W, V] float32.
            prefix: [R, P] int32.

        Returns:
            log P, parents and tokens of the best continuations, each [R, 2 W].
        """
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
        """Returns the W best finished hypotheses, old and new."""
        now = candidates.ends & self.searched(state)[:, None]
        scores = tf.where(now, candidates.log_probs / length_penalty(state.position + 1, self.alpha), IMPOSSIBLE)
        scores, kept = tf.math.top_k(tf.concat([state.finished.scores, scores], axis=1), self.beam_size)
        sequences = tf.concat([tf.pad(state.finished.sequences, [[0, 0], [0, 0], [0, 1]]), candidates.sequences], axis=1)
        return Finished(scores, _gather(sequences, kept))

    def go_on(self, state: BeamState, candidates: Candidates) -> Hypotheses:
        """Returns the W best unfinished candidates. Finished sentences keep their hypotheses."""
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
        """Returns sequences and scores. Finished hypotheses come first; running ones, already sorted, take the remaining places."""
        beams = tf.range(self.beam_size)[None]
        ended = tf.reduce_sum(tf.cast(state.finished.scores > IMPOSSIBLE, tf.int32), axis=1, keepdims=True)
        running_scores = state.running.log_probs / length_penalty(self.max_length, self.alpha)
        chosen = tf.where(beams < ended, beams, self.beam_size + beams - ended)
        sequences = tf.concat([state.finished.sequences, state.running.sequences], axis=1)
        return _gather((sequences, tf.concat([state.finished.scores, running_scores], axis=1)), chosen)


def beam_search(step, state, start, *, eos_id: int, beam_size: int, max_length, alpha, n_best=None, prefix=None):
    """Searches for the best continuations of `start`.

    A hypothesis with an end token is finished and keeps its score. A sentence is finished at its `max_length`, or earlier if no running
    hypothesis can still become one of the best `n_best`, at any length. Finished sentences leave the state, so the step then computes
    fewer of them. A translation does not depend on the other sentences.

    Args:
        step: (tokens [R, W] int32, ancestors [R, W, T + 1] int32, position T, state) → (logits [R, W, V] float32, state). The state is
            never reordered by beams. `ancestors` gives the beam that wrote each token instead: token t of the hypothesis of beam w is
            that of beam ancestors[w, t] in the `tokens` of position t. The last entry is w.
        state: nest of tensors [B, …], the state of the step. An axis of static size 0 may grow.
        start: [B] int32, the first token that the step reads; the result does not include it.
        eos_id: the end token.
        beam_size: W; 1 is greedy search.
        max_length: [B] int32, maximum number of tokens, including the end token; at least 1.
        alpha: α of the length penalty; a number or [B] float32.
        n_best: [B] int32, number of hypotheses that must be the best ones, 1 … W; `None` for W.
        prefix: [B, P] int32, tokens that each translation must start with, padded with zeros; without `eos_id`.

    Returns:
        sequences: [B, W, T] int32, best first, 0 after the end token. Sequences without an end token come after all others.
        scores: [B, W] float32; -inf in an empty place.
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
