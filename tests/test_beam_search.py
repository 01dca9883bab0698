"""Beam search against all it could have found: toys that are small enough to list every hypothesis."""

import math

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.beam_search import beam_search, length_penalty

EOS = 3
START = 2
ALPHAS = (0.0, 0.6, 1.0, -0.5)


def random_tables(batch: int, seed: int, vocab_size: int = 4, length: int = 8, spread: float = 2.0) -> np.ndarray:
    """Logits [B, T, V, V, V]: what follows (position, token before the last, last token). No two hypotheses tie."""
    return np.random.default_rng(seed).normal(0, spread, [batch, length] + [vocab_size] * 3).astype(np.float32)


def constant_tables(probabilities, length: int = 40) -> np.ndarray:
    """One sentence whose next token has the same probabilities whatever came before."""
    return np.broadcast_to(np.log(np.maximum(probabilities, 1e-30)).astype(np.float32), [1, length] + [len(probabilities)] * 3)


def step_of(tables):
    """A step whose state is the token before the one that is read: a search that mixes up its states goes astray."""

    def step(tokens, position, state):
        rows = tf.shape(tokens)[0]
        sentence = tf.range(rows) // (rows // len(tables))
        where = tf.stack([sentence, tf.fill([rows], position), state["before"], tokens], axis=1)
        return tf.gather_nd(tables, where), {"before": tokens}

    return step


def until_end(sequence, most: int) -> tuple:
    """A row of `beam_search` as it was written: up to the end token, or all of its sentence's `most` tokens."""
    written = [int(token) for token in sequence[:most]]
    assert not any(sequence[most:])
    if EOS not in written:
        return tuple(written)
    end = written.index(EOS) + 1
    assert not any(written[end:])
    return tuple(written[:end])


def search(tables, *, beam_size, max_length, alpha, step=None) -> list[list[tuple]]:
    """[(tokens, score), …] of each sentence."""
    batch = len(tables)
    most = np.broadcast_to(max_length, [batch]).astype(np.int32)
    state = {"before": tf.fill([batch * beam_size], START)}
    sequences, scores = beam_search(
        step or step_of(tables),
        state,
        tf.fill([batch], START),
        eos_id=EOS,
        beam_size=beam_size,
        max_length=tf.constant(most),
        alpha=alpha,
    )
    assert sequences.dtype == tf.int32 and sequences.shape[:2] == scores.shape == (batch, beam_size)
    return [
        [(until_end(row, most[i]), float(score)) for row, score in zip(sequences[i].numpy(), scores[i], strict=True)] for i in range(batch)
    ]


def log_probs(table) -> np.ndarray:
    table = table.astype(np.float64)
    return table - np.log(np.exp(table).sum(-1, keepdims=True))


def score_of(tokens, log_p: float, alpha: float) -> float:
    return log_p / ((5 + len(tokens)) / 6) ** alpha


def ranked(hypotheses: dict, alpha: float) -> list[tuple]:
    """Those that ended come first, then by score."""
    scored = [(tokens, score_of(tokens, log_p, alpha)) for tokens, log_p in hypotheses.items()]
    return sorted(scored, key=lambda pair: (pair[0][-1] != EOS, -pair[1]))


def every_hypothesis(table, max_length: int) -> dict:
    """{tokens: log P} of all that end, and of all that have not ended at the maximum."""
    steps, found = log_probs(table), {}

    def extend(tokens, log_p):
        if len(tokens) == max_length or (tokens and tokens[-1] == EOS):
            found[tokens] = log_p
            return
        before, last = ((START, START, *tokens))[-2:]
        for token, value in enumerate(steps[len(tokens), before, last]):
            extend((*tokens, token), log_p + value)

    extend((), 0.0)
    return found


def beam_search_that_never_stops_early(table, beam_size: int, max_length: int, alpha: float) -> list[tuple]:
    """The rule of the docstring with lists, every step taken."""
    steps, running, ended = log_probs(table), {(): 0.0}, {}
    for _ in range(max_length):
        candidates = {}
        for tokens, log_p in running.items():
            before, last = ((START, START, *tokens))[-2:]
            candidates |= {(*tokens, token): log_p + value for token, value in enumerate(steps[len(tokens), before, last])}
        best = sorted(candidates, key=candidates.get, reverse=True)[: 2 * beam_size]
        ended |= {tokens: candidates[tokens] for tokens in best if tokens[-1] == EOS}
        running = {tokens: candidates[tokens] for tokens in [t for t in best if t[-1] != EOS][:beam_size]}
    return ranked(ended | running, alpha)[:beam_size]


def assert_same(received: list[tuple], expected: list[tuple]) -> None:
    assert [tokens for tokens, _ in received] == [tokens for tokens, _ in expected]
    np.testing.assert_allclose([score for _, score in received], [score for _, score in expected], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_beam_wide_enough_to_be_exact_equals_exhaustive_enumeration(alpha):
    tables = random_tables(batch=3, seed=11)
    # Three words go on, so 3⁰ + 3¹ + … + 3⁴ = 121 hypotheses end within five tokens; the last step chooses 2 W of 3⁴ · 4.
    for received, table in zip(search(tables, beam_size=162, max_length=5, alpha=alpha), tables, strict=True):
        expected = ranked(every_hypothesis(table, 5), alpha)[:121]
        assert all(tokens[-1] == EOS for tokens, _ in expected)
        assert_same(received[:121], expected)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("beam_size", [10, 162, 121 + 243])
def test_a_beam_wider_than_all_that_can_end_is_filled_with_the_best_that_did_not(beam_size, alpha):
    """Also a beam wider than the vocabulary: at the first step there are fewer hypotheses than places."""
    max_length = 2 if beam_size == 10 else 5
    tables = random_tables(batch=2, seed=5)
    for received, table in zip(search(tables, beam_size=beam_size, max_length=max_length, alpha=alpha), tables, strict=True):
        expected = ranked(every_hypothesis(table, max_length), alpha)[:beam_size]
        assert len(expected) == beam_size and expected[0][0][-1] == EOS and expected[-1][0][-1] != EOS
        assert_same(received, expected)


@pytest.mark.parametrize(
    ("length", "alpha", "expected"), [(1, 0.6, 1), (1, -3, 1), (7, 1, 2), (7, -1, 0.5), (19, 0.5, 2), (7, 0, 1), (31, 2, 36)]
)
def test_the_length_penalty_is_equation_14_of_wu_et_al_by_hand(length, alpha, expected):
    assert float(length_penalty(length, alpha)) == pytest.approx(expected)


def test_scores_by_hand_count_the_end_token_in_the_length():
    """The end token has probability 1/4 at every step: lp(1) = 1 for the empty translation, lp(2) = 7/6, lp(3) = 8/6."""
    tables = np.broadcast_to(np.log(np.array([3 / 4, 1e-12, 1e-12, 1 / 4])).astype(np.float32), [1, 4, 4, 4])
    received = search(tables, beam_size=3, max_length=3, alpha=1.0)[0]
    quarter, three_quarters = math.log(1 / 4), math.log(3 / 4)
    by_hand = [
        ((EOS,), quarter),
        ((0, EOS), (three_quarters + quarter) / (7 / 6)),
        ((0, 0, EOS), (2 * three_quarters + quarter) / (8 / 6)),
    ]
    assert_same(received, sorted(by_hand, key=lambda pair: -pair[1]))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_beam_of_one_is_greedy_search(alpha):
    """The likeliest token at each step until that is the end token: what the docstring and `--beam_size` promise."""
    tables = random_tables(batch=40, seed=2)
    for received, table in zip(search(tables, beam_size=1, max_length=8, alpha=alpha), tables, strict=True):
        steps, tokens, log_p = log_probs(table), (), 0.0
        while len(tokens) < 8 and EOS not in tokens:
            before, last = ((START, START, *tokens))[-2:]
            token = int(np.argmax(steps[len(tokens), before, last]))
            tokens, log_p = (*tokens, token), log_p + steps[len(tokens), before, last, token]
        assert_same(received, [(tokens, score_of(tokens, log_p, alpha))])


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("beam_size", [2, 3, 6])
def test_stopping_early_changes_no_result(beam_size, alpha):
    tables = random_tables(batch=60, seed=beam_size, spread=2.5)
    for received, table in zip(search(tables, beam_size=beam_size, max_length=7, alpha=alpha), tables, strict=True):
        assert_same(received, beam_search_that_never_stops_early(table, beam_size, 7, alpha))


@pytest.mark.parametrize(("alpha", "steps"), [(0.0, 2), (1.0, 3)])
def test_it_stops_as_soon_as_no_running_hypothesis_can_win(alpha, steps):
    """P(end) = 0.9. With W = 2: log 0.9 = -0.105 and log 0.09 = -2.41 after two steps, of 0.1² = e^-4.6 and less are running.

    With alpha = 1 the running ones may yet be divided by lp(40) = 7.5, so -4.6 / 7.5 still beats -2.41 / (7 / 6) and one more
    step leaves -6.9 / 7.5, which does too, unless a third translation has not displaced the second: it stops at the first step
    where `steps` says so.
    """
    tables = np.broadcast_to(np.log(np.array([0.1, 1e-30, 1e-30, 0.9])).astype(np.float32), [1, 4, 4, 4])
    calls = []

    def step(tokens, position, state):
        calls.append(int(position))
        return step_of(tables)(tokens, position, state)

    search(tables, beam_size=2, max_length=40, alpha=alpha, step=step)
    assert calls == list(range(steps))
