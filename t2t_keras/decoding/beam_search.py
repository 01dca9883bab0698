"""Beam search (section 6.1) as a pure function of a decoding step.

    score(Y) = log P(Y) / lp(Y), lp(Y) = ((5 + |Y|) / 6)^α

Letters: B sentences, R sentences still in the state of the step, W beams in G groups, N candidates, V vocabulary, T
tokens written so far.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.decoding.search_hooks import BEST, IMPOSSIBLE, Best, Hypotheses, Scorer, Selector, normalized

# Sizes of the step's state after finished sentences have left: few, because oneDNN compiles kernels for each shape.
_SIZES = [1, 2] + [size << shift for shift in range(28) for size in (3, 4)]  # 1, 2, 3, 4, 6, 8, 12, 16, 24, …


def length_penalty(length, alpha):
    """Returns ((5 + |Y|) / 6)^α, where |Y| includes the end token (Wu et al. 2016, equation 14)."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


def _gather(nest, index):
    """Selects rows of each sentence: a nest of [B, W, …], index [B, W'] → [B, W', …]."""
    return tf.nest.map_structure(lambda x: tf.gather(x, index, batch_dims=1), nest)


class Running(NamedTuple):
    """Unfinished hypotheses, in the order in which they were selected."""

    log_probs: tf.Tensor  # [B, W] float32, -inf in an empty place
    tokens: tf.Tensor  # [B, W] int32, the last token of each
    sequences: tf.Tensor  # [B, W, T] int32, all tokens but the start token
    ancestors: tf.Tensor  # [B, W, T + 1] int32, the beam that read each token


class Finished(NamedTuple):
    """The best finished hypotheses, best first."""

    scores: tf.Tensor  # [B, W] float32, -inf in an empty place
    sequences: tf.Tensor  # [B, W, T] int32, 0 after the end token


class BeamState(NamedTuple):
    """The state of the search after T tokens."""

    position: tf.Tensor  # [] int32, T
    done: tf.Tensor  # [B] boolean, True if no running hypothesis can still be among the best
    running: Running
    finished: Finished
    rows: tf.Tensor  # [R] int32, the sentences in the states of the step and the hooks
    model: object  # nest of tensors [R, …], the state of the step
    hooks: tuple  # nests of tensors [R, …], the state of each scorer and, last, of the selector


class Candidates(NamedTuple):
    """Running hypotheses continued by one token, in the order of the selector."""

    log_probs: tf.Tensor  # [B, N] float32
    parents: tf.Tensor  # [B, N] int32, the beam that each one continues
    tokens: tf.Tensor  # [B, N] int32
    sequences: tf.Tensor  # [B, N, T + 1] int32
    ends: tf.Tensor  # [B, N] boolean


class _Search:
    """One call of `beam_search`, with its arguments. `max_length`, `alpha` and `last` (`n_best` - 1) are [B, 1]."""

    def __init__(
        self,
        step: Callable,
        eos_id: int,
        beam_size: int,
        max_length,
        alpha,
        last,
        scorers: Sequence[Scorer],
        selector: Selector,
    ):
        self.step, self.eos_id, self.beam_size = step, eos_id, beam_size
        self.max_length, self.alpha, self.last = max_length, alpha, last
        self.scorers, self.selector, self.number = scorers, selector, selector.number(beam_size)
        if self.number < beam_size:
            raise ValueError(
                f"A selector must select at least {beam_size} continuations, the beam size. Received: "
                f"number={self.number}."
            )
        self.groups = selector.groups(beam_size)
        if beam_size % self.groups or self.number % self.groups:
            received = f"{self.groups} groups of {beam_size} beams with {self.number} continuations"
            raise ValueError(f"Groups must have equal numbers of beams and of continuations. Received: {received}.")
        self.best_penalty = tf.maximum(length_penalty(max_length, alpha), length_penalty(1, alpha))
        self.batch = tf.shape(max_length)[0]
        self.beams = tf.tile(tf.range(beam_size)[None, :, None], [self.batch, 1, 1])  # [B, W, 1]

    def start(self, tokens, model) -> BeamState:
        """Returns the state before the first token. All beams are equal there, so only the first one counts."""
        only_first = tf.where(tf.range(self.beam_size) == 0, 0.0, IMPOSSIBLE)[None]
        nothing = tf.zeros([self.batch, self.beam_size, 0], tf.int32)
        log_probs, tokens = tf.tile(only_first, [self.batch, 1]), tf.tile(tokens[:, None], [1, self.beam_size])
        running = Running(log_probs, tokens, nothing, self.beams)
        hooks = tuple(hook.state for hook in (*self.scorers, self.selector))
        finished = Finished(tf.fill([self.batch, self.beam_size], IMPOSSIBLE), nothing)
        return BeamState(
            tf.constant(0), tf.zeros([self.batch], tf.bool), running, finished, tf.range(self.batch), model, hooks
        )

    def shapes(self, state: BeamState) -> BeamState:
        """Returns the shape invariants of the loop: T, R, and axes of states that start at size 0 may change."""
        number, written = tf.TensorShape([None, self.beam_size]), tf.TensorShape([None, self.beam_size, None])
        return BeamState(
            tf.TensorShape([]),
            tf.TensorShape([None]),
            Running(number, number, written, written),
            Finished(number, written),
            tf.TensorShape([None]),
            *tf.nest.map_structure(
                lambda x: tf.TensorShape([None] + [size or None for size in x.shape[1:]]), (state.model, state.hooks)
            ),
        )

    def searched(self, state: BeamState):
        """Returns which sentences are unfinished, [B] boolean."""
        return tf.logical_not(state.done) & (state.position < self.max_length[:, 0])

    def one_token(self, state: BeamState) -> BeamState:
        """Returns the state after one more token."""
        state = self.retire(state)
        candidates, model, hooks = self.extend(state)
        finished = self.finish(state, candidates)
        running = self.go_on(state, candidates)
        done = state.done | self.settled(running, finished)
        return BeamState(state.position + 1, done, running, finished, state.rows, model, hooks)

    def settled(self, running: Running, finished: Finished):
        """Returns whether no running hypothesis can still be among the best, [B] boolean: of each group, if there are
        several.
        """
        if self.groups == 1:
            best_to_come = tf.reduce_max(running.log_probs, axis=1, keepdims=True) / self.best_penalty
            return tf.squeeze(best_to_come <= tf.gather(finished.scores, self.last, batch_dims=1), axis=1)
        best_to_come = tf.reduce_max(self.grouped(running.log_probs), axis=2) / self.best_penalty
        return tf.reduce_all(best_to_come <= self.grouped(finished.scores)[:, :, -1], axis=1)

    def grouped(self, x):
        """Divides the beams among the groups: [B, X] → [B, G, X / G]."""
        return tf.reshape(x, [-1, self.groups, x.shape[1] // self.groups])

    def best(self, x):
        """Finds the W / G largest values of each group: [B, X] → values and their indices in x, [B, W]."""
        if self.groups == 1:
            return tf.math.top_k(x, self.beam_size)
        values, index = tf.math.top_k(self.grouped(x), self.beam_size // self.groups)
        index += x.shape[1] // self.groups * tf.range(self.groups)[:, None]
        return tf.reshape(values, [-1, self.beam_size]), tf.reshape(index, [-1, self.beam_size])

    def beside(self, old, new):
        """Concatenates old and new hypotheses of each group: [B, X, …], [B, Y, …] → [B, X + Y, …]."""
        if self.groups == 1:
            return tf.concat([old, new], axis=1)
        pairs = zip(tf.split(old, self.groups, axis=1), tf.split(new, self.groups, axis=1), strict=True)
        return tf.concat([x for pair in pairs for x in pair], axis=1)

    def retire(self, state: BeamState) -> BeamState:
        """Reduces the states of the step and the hooks to the smallest of `_SIZES` that holds all unfinished sentences;
        finished ones fill the rest.
        """
        searched = tf.gather(self.searched(state), state.rows)
        unfinished = tf.reduce_sum(tf.cast(searched, tf.int32))
        size = tf.gather(_SIZES, tf.searchsorted(_SIZES, unfinished[None])[0])
        states = (state.rows, state.model, state.hooks)

        def compacted():
            chosen = tf.argsort(tf.cast(searched, tf.int32), direction="DESCENDING", stable=True)[:size]
            return tf.nest.map_structure(lambda x: tf.gather(x, chosen), states)

        rows, model, hooks = tf.cond(size < tf.size(state.rows), compacted, lambda: states)
        return state._replace(rows=rows, model=model, hooks=hooks)

    def extend(self, state: BeamState) -> tuple[Candidates, object, tuple]:
        """Returns the selected continuations of the running hypotheses, and the next states of the step and the
        hooks.
        """
        running, rows = state.running, state.rows
        log_probs, tokens, ancestors = (
            tf.gather(x, rows) for x in (running.log_probs, running.tokens, running.ancestors)
        )
        logits, model = self.step(tokens, ancestors, state.position, state.model)

        def hooked():
            sequences = tf.gather(running.sequences, rows)
            return self.hooked(logits, Hypotheses(state.position, log_probs, tokens, ancestors, sequences), state.hooks)

        def plain():
            return BEST.of_logits(logits, log_probs), state.hooks

        hooks = self.scorers if type(self.selector) is Best else (*self.scorers, self.selector)
        applies = [hook.applies(state.position) for hook in hooks]
        if any(needed is True for needed in applies):
            selected, hooks = hooked()
        else:
            selected, hooks = tf.cond(tf.reduce_any(applies), hooked, plain) if applies else plain()
        totals, parents, tokens = (tf.scatter_nd(rows[:, None], x, [self.batch, self.number]) for x in selected)
        sequences = tf.concat([_gather(running.sequences, parents), tokens[:, :, None]], axis=2)
        return Candidates(totals, parents, tokens, sequences, tokens == self.eos_id), model, hooks

    def hooked(self, logits, hypotheses: Hypotheses, states: tuple) -> tuple:
        """Applies the hooks that are needed. Returns totals, parents and tokens of the selected continuations, [R, N]
        each, and the states.
        """
        if not self.scorers:
            selected, state = self.selector.of_unscored(logits, hypotheses, states[-1])
            return selected, (state,)

        def if_needed(hook: Scorer | Selector, state, otherwise: Callable) -> tuple:
            applies, call = hook.applies(hypotheses.position), functools.partial(hook, log_probs, hypotheses, state)
            return call() if applies is True else tf.cond(applies, call, otherwise)

        log_probs, next_states = normalized(logits), []
        for scorer, state in zip(self.scorers, states[:-1], strict=True):
            log_probs, state = if_needed(scorer, state, lambda unchanged=(log_probs, state): unchanged)
            next_states.append(state)
        selected, state = if_needed(self.selector, states[-1], lambda: BEST(log_probs, hypotheses, states[-1]))
        return selected, (*next_states, state)

    def finish(self, state: BeamState, candidates: Candidates) -> Finished:
        """Returns the W best finished hypotheses, old and new."""
        now = candidates.ends & self.searched(state)[:, None]
        scores = tf.where(now, candidates.log_probs / length_penalty(state.position + 1, self.alpha), IMPOSSIBLE)
        scores, best = self.best(self.beside(state.finished.scores, scores))
        sequences = self.beside(tf.pad(state.finished.sequences, [[0, 0], [0, 0], [0, 1]]), candidates.sequences)
        return Finished(scores, _gather(sequences, best))

    def go_on(self, state: BeamState, candidates: Candidates) -> Running:
        """Returns the first W unfinished candidates. Finished sentences keep their hypotheses."""
        _, first = self.best(tf.cast(~candidates.ends, tf.int32))  # Of equal values the first.
        log_probs = _gather(tf.where(candidates.ends, IMPOSSIBLE, candidates.log_probs), first)
        ancestors = _gather(state.running.ancestors, _gather(candidates.parents, first))
        tokens, sequences = _gather(candidates.tokens, first), _gather(candidates.sequences, first)
        following = Running(log_probs, tokens, sequences, ancestors)
        before = state.running._replace(sequences=tf.pad(state.running.sequences, [[0, 0], [0, 0], [0, 1]]))
        searched = self.searched(state)
        running = tf.nest.map_structure(
            lambda new, old: tf.where(tf.reshape(searched, [-1] + [1] * (len(new.shape) - 1)), new, old),
            following,
            before,
        )
        return running._replace(ancestors=tf.concat([running.ancestors, self.beams], axis=2))

    def pooled(self, state: BeamState) -> BeamState:
        """Returns the state without groups: all finished hypotheses, best first, and as many running ones as groups
        lack.
        """
        scores, order = tf.math.top_k(state.finished.scores, self.beam_size)
        finished = Finished(scores, _gather(state.finished.sequences, order))
        lacking = tf.reduce_sum(tf.cast(self.grouped(state.finished.scores) == IMPOSSIBLE, tf.int32), axis=2)
        log_probs, order = self.best(state.running.log_probs)
        size = self.beam_size // self.groups
        needed = tf.range(self.beam_size) % size < tf.repeat(lacking, size, axis=1)
        running = state.running._replace(
            log_probs=tf.where(needed, log_probs, IMPOSSIBLE), sequences=_gather(state.running.sequences, order)
        )
        return state._replace(running=running, finished=finished)

    def result(self, state: BeamState):
        """Returns sequences and scores: finished hypotheses first, then the best running ones in the places left."""
        if self.groups > 1:
            state = self.pooled(state)
        beams = tf.range(self.beam_size)[None]
        ended = tf.reduce_sum(tf.cast(state.finished.scores > IMPOSSIBLE, tf.int32), axis=1, keepdims=True)
        running_scores, order = tf.math.top_k(
            state.running.log_probs / length_penalty(self.max_length, self.alpha), self.beam_size
        )
        chosen = tf.where(beams < ended, beams, self.beam_size + beams - ended)
        sequences = tf.concat([state.finished.sequences, _gather(state.running.sequences, order)], axis=1)
        return _gather((sequences, tf.concat([state.finished.scores, running_scores], axis=1)), chosen)


def beam_search(
    step: Callable,
    state,
    start,
    *,
    eos_id: int,
    beam_size: int,
    max_length,
    alpha,
    n_best=None,
    scorers: Sequence[Scorer] = (),
    selector: Selector = BEST,
) -> tuple:
    """Searches for the best continuations of `start`.

    A hypothesis with an end token is finished and keeps its score. A sentence is finished at its `max_length`, or
    earlier if no running hypothesis can still become one of the best `n_best`, at any length. Finished sentences leave
    the states of the step and the hooks, so the step then computes fewer of them. A translation does not depend on the
    other sentences.

    Args:
        step: (tokens [R, W] int32, ancestors [R, W, T + 1] int32, position T, state) → (logits [R, W, V] float32,
            state). The state is never reordered by beams. `ancestors` gives the beam that read each token instead:
            token t of the hypothesis of beam w is that of beam ancestors[w, t] in the `tokens` of position t. The last
            entry is w. A state that must follow its beams does so by `model.beams.follow`.
        state: nest of tensors [B, …], the state of the step. An axis of static size 0 may grow.
        start: [B] int32, the first token that the step reads; the result does not include it.
        eos_id: the end token.
        beam_size: W; 1 is greedy search.
        max_length: [B] int32, maximum number of tokens, including the end token; at least 1.
        alpha: α of the length penalty; a number or [B] float32.
        n_best: [B] int32, number of hypotheses that must be the best ones, 1 … W; `None` for W. Groups always find all
            of theirs.
        scorers: change the scores of continuations, one after the other; see `search_hooks`.
        selector: selects continuations; see `search_hooks`.

    Returns:
        sequences: [B, W, T] int32, best first, 0 after the end token. Those without an end token come after all others.
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
        scorers=scorers,
        selector=selector,
    )
    initial = search.start(start, state)
    final = tf.while_loop(
        lambda *state: tf.reduce_any(search.searched(BeamState(*state))),
        lambda *state: tuple(search.one_token(BeamState(*state))),
        tuple(initial),
        shape_invariants=tuple(search.shapes(initial)),
    )
    return search.result(BeamState(*final))
