"""Beam search (section 6.1) as a pure function of a decoding step.

    score(Y) = log P(Y) / lp(Y), lp(Y) = ((5 + |Y|) / 6)^α

Letters: B sentences, R sentences that are searched together, W beams in G groups, N candidates, V vocabulary, T tokens
written so far.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.decoding.search_hooks import BEST, IMPOSSIBLE, Best, Hypotheses, Scorer, Selector, normalized

# Sizes to which a batch shrinks: few, because oneDNN compiles kernels for each shape. 0 is the end.
_SIZES = [0, 1, 2] + [size << shift for shift in range(28) for size in (3, 4)]  # 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, …


def length_penalty(length, alpha):
    """Returns ((5 + |Y|) / 6)^α, where |Y| includes the end token (Wu et al. 2016, equation 14)."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


def _padded(sequences, number):
    """Appends a number of zeros to sequences [R, W, T]."""
    return tf.pad(sequences, [[0, 0], [0, 0], [0, number]])


def _gather(nest, index):
    """Selects rows of each sentence: a nest of [R, W, …], index [R, W'] → [R, W', …]."""
    return tf.nest.map_structure(lambda x: tf.gather(x, index, batch_dims=1), nest)


def _with_state(hook: Scorer | Selector, returned) -> tuple:
    """Returns what a hook has returned. Raises `ValueError` unless it is its result and its next state."""
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        expected = "(log_probs, state)" if isinstance(hook, Scorer) else "((totals, parents, tokens), state)"
        raise ValueError(f"{type(hook).__name__} must return {expected}. Received: {returned!r:.80}.")
    return tuple(returned)


class Limits(NamedTuple):
    """What each sentence asks for."""

    max_length: tf.Tensor  # [R, 1] int32
    alpha: tf.Tensor  # [R, 1] float32
    last: tf.Tensor  # [R, 1] int32, `n_best` - 1
    penalty: tf.Tensor  # [R, 1] float32, the largest length penalty that its hypotheses may have


class Running(NamedTuple):
    """Unfinished hypotheses, in the order in which they were selected."""

    log_probs: tf.Tensor  # [R, W] float32, -inf in an empty place
    tokens: tf.Tensor  # [R, W] int32, the last token of each
    sequences: tf.Tensor  # [R, W, T] int32, all tokens but the start token
    ancestors: tf.Tensor  # [R, W, T + 1] int32, the beam that read each token


class Written(NamedTuple):
    """Finished hypotheses, best first; or running ones, in the order of the selector, whose scores are log P."""

    scores: tf.Tensor  # [R, W] float32, -inf in an empty place
    sequences: tf.Tensor  # [R, W, T] int32, 0 after the end token

    def updated(self, rows, new: "Written") -> "Written":
        """Replaces the hypotheses of some sentences, whose numbers are `rows`, [R] int32, by new ones, which may be
        longer.
        """
        longer = _padded(self.sequences, tf.shape(new.sequences)[2] - tf.shape(self.sequences)[2])
        old = zip((self.scores, longer), new, strict=True)
        return Written(*(tf.tensor_scatter_nd_update(x, rows[:, None], values) for x, values in old))


class BeamState(NamedTuple):
    """The state of the search of R sentences after T tokens."""

    position: tf.Tensor  # [] int32, T
    active: tf.Tensor  # [R] boolean, False for a finished sentence, whose scores and sequences stay as they are
    limits: Limits
    running: Running
    finished: Written
    model: object  # nest of tensors [R, …], the state of the step
    hooks: tuple  # nests of tensors [R, …], the state of each scorer and, last, of the selector

    @property
    def unfinished(self) -> tf.Tensor:
        """The number of unfinished sentences, [] int32."""
        return tf.reduce_sum(tf.cast(self.active, tf.int32))


class Candidates(NamedTuple):
    """Running hypotheses continued by one token, in the order of the selector."""

    log_probs: tf.Tensor  # [R, N] float32
    parents: tf.Tensor  # [R, N] int32, the beam that each one continues
    tokens: tf.Tensor  # [R, N] int32
    sequences: tf.Tensor  # [R, N, T + 1] int32
    ends: tf.Tensor  # [R, N] boolean


class _Search:
    """One call of `beam_search`, with its arguments."""

    def __init__(self, step: Callable, eos_id: int, beam_size: int, scorers: Sequence[Scorer], selector: Selector):
        self.step, self.eos_id, self.beam_size = step, eos_id, beam_size
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

    def start(self, tokens, model, limits: Limits) -> BeamState:
        """Returns the state before the first token. All beams are equal there, so only the first one counts."""
        shape = tf.stack([tf.shape(tokens)[0], self.beam_size])
        nothing = tf.zeros([shape[0], self.beam_size, 0], tf.int32)
        only_first = tf.where(tf.range(self.beam_size) == 0, 0.0, IMPOSSIBLE)
        running = Running(
            tf.broadcast_to(only_first, shape), tf.broadcast_to(tokens[:, None], shape), nothing, self.own_beams(shape)
        )
        hooks = tuple(hook.state for hook in (*self.scorers, self.selector))
        finished = Written(tf.fill(shape, IMPOSSIBLE), nothing)
        return BeamState(tf.constant(0), limits.max_length[:, 0] > 0, limits, running, finished, model, hooks)

    def own_beams(self, shape):
        """Returns the number of each beam, [R, W, 1] int32, for `shape`, [R, W]."""
        return tf.broadcast_to(tf.range(self.beam_size), shape)[:, :, None]

    def shapes(self, state: BeamState) -> BeamState:
        """Returns the shape invariants of the loops: T, R, and axes of states that start at size 0 may change."""
        number, written = tf.TensorShape([None, self.beam_size]), tf.TensorShape([None, self.beam_size, None])
        return BeamState(
            tf.TensorShape([]),
            tf.TensorShape([None]),
            Limits(*[tf.TensorShape([None, 1])] * len(Limits._fields)),
            Running(number, number, written, written),
            Written(number, written),
            *tf.nest.map_structure(
                lambda x: tf.TensorShape([None] + [size or None for size in x.shape[1:]]), (state.model, state.hooks)
            ),
        )

    def run(self, state: BeamState) -> tuple[Written, Written]:
        """Searches until all sentences are finished. Returns the running and the finished hypotheses of all.

        The inner loop makes steps until the unfinished sentences fit into a smaller size, and the outer loop then drops
        the finished ones, so a single step never reorders the states.
        """
        shapes = self.shapes(state)

        def until_fewer(rows, part: BeamState, running: Written, finished: Written) -> tuple:
            rows, part = self.unfinished_only(rows, part)
            fewer = tf.gather(_SIZES, tf.searchsorted(_SIZES, tf.shape(rows))[0] - 1)
            (part,) = tf.while_loop(
                lambda part: part.unfinished > fewer, lambda part: (self.one_token(part),), (part,), (shapes,)
            )
            return (
                rows,
                part,
                running.updated(rows, Written(part.running.log_probs, part.running.sequences)),
                finished.updated(rows, part.finished),
            )

        running = Written(state.running.log_probs, state.running.sequences)
        *_, running, finished = tf.while_loop(
            lambda rows, part, *_: part.unfinished > 0,
            until_fewer,
            (tf.range(tf.shape(state.active)[0]), state, running, state.finished),
            (tf.TensorShape([None]), shapes, shapes.finished, shapes.finished),
        )
        return running, finished

    def unfinished_only(self, rows, state: BeamState) -> tuple:
        """Reduces the rows [R] and their state to the smallest of `_SIZES` that holds all unfinished sentences;
        finished ones fill the rest.
        """
        size = tf.gather(_SIZES, tf.searchsorted(_SIZES, state.unfinished[None])[0])
        chosen = tf.argsort(tf.cast(state.active, tf.int32), direction="DESCENDING", stable=True)[:size]
        rows, *fields = tf.nest.map_structure(lambda x: tf.gather(x, chosen), (rows, *state[1:]))
        return rows, BeamState(state.position, *fields)

    def one_token(self, state: BeamState) -> BeamState:
        """Returns the state after one more token."""
        candidates, model, hooks = self.extend(state)
        finished = self.finish(state, candidates)
        running = self.go_on(state, candidates)
        position = state.position + 1
        active = state.active & ~self.settled(running, finished, state.limits)
        active &= position < state.limits.max_length[:, 0]
        return BeamState(position, active, state.limits, running, finished, model, hooks)

    def settled(self, running: Running, finished: Written, limits: Limits):
        """Returns whether no running hypothesis can still be among the best, [R] boolean: of each group, if there are
        several.
        """
        if self.groups == 1:
            best_to_come = tf.reduce_max(running.log_probs, axis=1, keepdims=True) / limits.penalty
            return tf.squeeze(best_to_come <= tf.gather(finished.scores, limits.last, batch_dims=1), axis=1)
        best_to_come = tf.reduce_max(self.grouped(running.log_probs), axis=2) / limits.penalty
        return tf.reduce_all(best_to_come <= self.grouped(finished.scores)[:, :, -1], axis=1)

    def grouped(self, x):
        """Divides the beams among the groups: [R, X] → [R, G, X / G]."""
        return tf.reshape(x, [-1, self.groups, x.shape[1] // self.groups])

    def best(self, x):
        """Finds the W / G largest values of each group: [R, X] → values and their indices in x, [R, W]."""
        if self.groups == 1:
            return tf.math.top_k(x, self.beam_size)
        values, index = tf.math.top_k(self.grouped(x), self.beam_size // self.groups)
        index += x.shape[1] // self.groups * tf.range(self.groups)[:, None]
        return tf.reshape(values, [-1, self.beam_size]), tf.reshape(index, [-1, self.beam_size])

    def beside(self, old, new):
        """Concatenates old and new hypotheses of each group: [R, X, …], [R, Y, …] → [R, X + Y, …]."""
        if self.groups == 1:
            return tf.concat([old, new], axis=1)
        pairs = zip(tf.split(old, self.groups, axis=1), tf.split(new, self.groups, axis=1), strict=True)
        return tf.concat([x for pair in pairs for x in pair], axis=1)

    def extend(self, state: BeamState) -> tuple[Candidates, object, tuple]:
        """Returns the selected continuations of the running hypotheses, and the next states of the step and the
        hooks.
        """
        log_probs, tokens, sequences, ancestors = state.running
        logits, model = self.step(tokens, ancestors, state.position, state.model)

        def hooked():
            return self.hooked(logits, Hypotheses(state.position, log_probs, tokens, ancestors, sequences), state.hooks)

        def plain():
            return BEST.of_logits(logits, log_probs), state.hooks

        hooks = self.scorers if type(self.selector) is Best else (*self.scorers, self.selector)
        applies = [hook.applies(state.position) for hook in hooks]
        if any(needed is True for needed in applies):
            selected, hooks = hooked()
        else:
            selected, hooks = tf.cond(tf.reduce_any(applies), hooked, plain) if applies else plain()
        # A selector may know less of its shapes, such as through `tf.numpy_function`.
        totals, parents, tokens = (tf.ensure_shape(x, [None, self.number]) for x in selected)
        sequences = tf.concat([_gather(sequences, parents), tokens[:, :, None]], axis=2)
        return Candidates(totals, parents, tokens, sequences, tokens == self.eos_id), model, hooks

    def hooked(self, logits, hypotheses: Hypotheses, states: tuple) -> tuple:
        """Applies the hooks that are needed. Returns totals, parents and tokens of the selected continuations, [R, N]
        each, and the states.
        """
        if not self.scorers:
            unscored = self.selector.of_unscored(logits, hypotheses, states[-1])
            selected, state = _with_state(self.selector, unscored)
            return selected, (state,)

        def if_needed(hook: Scorer | Selector, state, otherwise: Callable) -> tuple:
            def call() -> tuple:
                return _with_state(hook, hook(log_probs, hypotheses, state))

            applies = hook.applies(hypotheses.position)
            return call() if applies is True else tf.cond(applies, call, otherwise)

        log_probs, next_states = normalized(logits), []
        for scorer, state in zip(self.scorers, states[:-1], strict=True):
            log_probs, state = if_needed(scorer, state, lambda unchanged=(log_probs, state): unchanged)
            next_states.append(state)
        selected, state = if_needed(self.selector, states[-1], lambda: BEST(log_probs, hypotheses, states[-1]))
        return selected, (*next_states, state)

    def finish(self, state: BeamState, candidates: Candidates) -> Written:
        """Returns the W best finished hypotheses, old and new."""
        now = candidates.ends & state.active[:, None]
        penalty = length_penalty(state.position + 1, state.limits.alpha)
        scores = tf.where(now, candidates.log_probs / penalty, IMPOSSIBLE)
        scores, best = self.best(self.beside(state.finished.scores, scores))
        sequences = self.beside(_padded(state.finished.sequences, 1), candidates.sequences)
        return Written(scores, _gather(sequences, best))

    def go_on(self, state: BeamState, candidates: Candidates) -> Running:
        """Returns the first W unfinished candidates. Of finished sentences, scores and sequences stay."""
        _, first = self.best(tf.cast(~candidates.ends, tf.int32))  # Of equal values the first.
        log_probs = _gather(tf.where(candidates.ends, IMPOSSIBLE, candidates.log_probs), first)
        parents, tokens, sequences = _gather((candidates.parents, candidates.tokens, candidates.sequences), first)
        ancestors = _gather(state.running.ancestors, parents)
        active = state.active[:, None]
        return Running(
            tf.where(active, log_probs, state.running.log_probs),
            tokens,
            tf.where(active[:, :, None], sequences, _padded(state.running.sequences, 1)),
            tf.concat([ancestors, self.own_beams(tf.shape(tokens))], axis=2),
        )

    def pooled(self, running: Written, finished: Written) -> tuple[Written, Written]:
        """Returns hypotheses without groups: all finished ones, best first, and as many running ones as groups lack."""
        scores, order = tf.math.top_k(finished.scores, self.beam_size)
        lacking = tf.reduce_sum(tf.cast(self.grouped(finished.scores) == IMPOSSIBLE, tf.int32), axis=2)
        finished = Written(scores, _gather(finished.sequences, order))
        log_probs, order = self.best(running.scores)
        size = self.beam_size // self.groups
        needed = tf.range(self.beam_size) % size < tf.repeat(lacking, size, axis=1)
        return Written(tf.where(needed, log_probs, IMPOSSIBLE), _gather(running.sequences, order)), finished

    def result(self, running: Written, finished: Written, limits: Limits) -> tuple:
        """Returns sequences and scores: finished hypotheses first, then the best running ones, whose scores are log P,
        in the places left.
        """
        if self.groups > 1:
            running, finished = self.pooled(running, finished)
        beams = tf.range(self.beam_size)[None]
        ended = tf.reduce_sum(tf.cast(finished.scores > IMPOSSIBLE, tf.int32), axis=1, keepdims=True)
        running_scores, order = tf.math.top_k(
            running.scores / length_penalty(limits.max_length, limits.alpha), self.beam_size
        )
        chosen = tf.where(beams < ended, beams, self.beam_size + beams - ended)
        sequences = tf.concat([finished.sequences, _gather(running.sequences, order)], axis=1)
        return _gather((sequences, tf.concat([finished.scores, running_scores], axis=1)), chosen)


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
    max_length = tf.reshape(max_length, [batch, 1])
    alpha = tf.broadcast_to(tf.convert_to_tensor(alpha, tf.float32), [batch])[:, None]
    limits = Limits(
        max_length,
        alpha,
        last=tf.fill([batch, 1], beam_size - 1) if n_best is None else n_best[:, None] - 1,
        penalty=tf.maximum(length_penalty(max_length, alpha), length_penalty(1, alpha)),
    )
    search = _Search(step, eos_id, beam_size, scorers, selector)
    return search.result(*search.run(search.start(start, state, limits)), limits)
