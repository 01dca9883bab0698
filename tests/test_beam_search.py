"""Beam search against all it could have found: toys that are small enough to list every hypothesis."""

import math

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.beam_search import beam_search, length_penalty

START, EOS = 2, 3
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


def search(tables, *, beam_size, max_length, alpha, step=None, places=None) -> list[list[tuple]]:
    """[(tokens, score), …] of each sentence; the first `places` of them."""
    batch = len(tables)
    most = np.broadcast_to(max_length, [batch]).astype(np.int32)
    sequences, scores = beam_search(
        step or step_of(tables),
        {"before": tf.fill([batch * beam_size], START)},
        tf.fill([batch], START),
        eos_id=EOS,
        beam_size=beam_size,
        max_length=tf.constant(most),
        alpha=alpha,
    )
    assert sequences.dtype == tf.int32 and sequences.shape[:2] == scores.shape == (batch, beam_size)
    sequences, scores = sequences[:, :places].numpy(), scores[:, :places].numpy()
    return [[(until_end(row, most[i]), float(score)) for row, score in zip(sequences[i], scores[i], strict=True)] for i in range(batch)]


def log_probs(table, tokens) -> np.ndarray:
    """log P(· | tokens) [V], float64."""
    before, last = (START, START, *tokens)[-2:]
    logits = table[len(tokens), before, last].astype(np.float64)
    return logits - np.log(np.exp(logits).sum())


def score_of(tokens, log_p: float, alpha: float) -> float:
    return log_p / ((5 + len(tokens)) / 6) ** alpha


def ranked(hypotheses: dict, alpha: float) -> list[tuple]:
    """Those that ended come first, then by score."""
    scored = [(tokens, score_of(tokens, log_p, alpha)) for tokens, log_p in hypotheses.items()]
    return sorted(scored, key=lambda pair: (pair[0][-1] != EOS, -pair[1]))


def every_hypothesis(table, max_length: int) -> dict:
    """{tokens: log P} of all that end, and of all that have not ended at the maximum."""
    found = {}

    def extend(tokens, log_p):
        if len(tokens) == max_length or EOS in tokens:
            found[tokens] = log_p
            return
        for token, value in enumerate(log_probs(table, tokens)):
            extend((*tokens, token), log_p + value)

    extend((), 0.0)
    return found


def search_that_never_stops_early(table, beam_size: int, max_length: int, alpha: float) -> list[tuple]:
    """The rule of `beam_search` with dictionaries, every step taken."""
    running, ended = {(): 0.0}, {}
    for _ in range(max_length):
        candidates = {
            (*tokens, token): log_p + value for tokens, log_p in running.items() for token, value in enumerate(log_probs(table, tokens))
        }
        best = sorted(candidates, key=candidates.get, reverse=True)[: 2 * beam_size]
        ended |= {tokens: candidates[tokens] for tokens in best if tokens[-1] == EOS}
        running = {tokens: candidates[tokens] for tokens in [tokens for tokens in best if tokens[-1] != EOS][:beam_size]}
    return ranked(ended | running, alpha)[:beam_size]


def assert_same(received: list[tuple], expected: list[tuple]) -> None:
    assert [tokens for tokens, _ in received] == [tokens for tokens, _ in expected]
    np.testing.assert_allclose([score for _, score in received], [score for _, score in expected], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_beam_wide_enough_to_be_exact_equals_exhaustive_enumeration(alpha):
    tables = random_tables(batch=3, seed=11)
    # Three words go on, so 3⁰ + 3¹ + … + 3⁴ = 121 hypotheses end within five tokens; the last step chooses 2 W of 3⁴ · 4.
    for received, table in zip(search(tables, beam_size=162, places=121, max_length=5, alpha=alpha), tables, strict=True):
        expected = ranked(every_hypothesis(table, 5), alpha)[:121]
        assert all(tokens[-1] == EOS for tokens, _ in expected)
        assert_same(received, expected)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(("beam_size", "max_length"), [(10, 2), (162, 5), (121 + 243, 5)])
def test_places_that_no_ended_hypothesis_takes_go_to_the_best_unfinished_ones(beam_size, max_length, alpha):
    """The beam is wider than the vocabulary, so its first steps have fewer hypotheses than places.

    Story: places without a hypothesis had log P = -1e9. Divided by a length penalty above 1 that is more than the mark of
    "nothing here", so hypotheses that nobody wrote counted as ended and stood before real ones.
    """
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
    """The end has probability 1/4 at every step, one word has the rest: lp(1) = 1 of the empty translation, lp(2) = 7/6, lp(3) = 8/6."""
    received = search(constant_tables([3 / 4, 0, 0, 1 / 4]), beam_size=3, max_length=3, alpha=1.0)[0]
    quarter, three_quarters = math.log(1 / 4), math.log(3 / 4)
    by_hand = [
        ((EOS,), quarter),
        ((0, EOS), (three_quarters + quarter) / (7 / 6)),
        ((0, 0, EOS), (2 * three_quarters + quarter) / (8 / 6)),
    ]
    assert_same(received, sorted(by_hand, key=lambda pair: -pair[1]))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_beam_of_one_is_greedy_search(alpha):
    """The likeliest token at each step, until that is the end token: what the docstring and `--beam_size` promise.

    Story: the second best token of a step was looked at as well. An end token in second place was set aside and could win over
    the likeliest word, and after an end token in first place the search went on with the second.
    """
    tables = random_tables(batch=40, seed=2)
    for received, table in zip(search(tables, beam_size=1, max_length=8, alpha=alpha), tables, strict=True):
        tokens, log_p = (), 0.0
        while len(tokens) < 8 and EOS not in tokens:
            values = log_probs(table, tokens)
            tokens, log_p = (*tokens, int(np.argmax(values))), log_p + values.max()
        assert_same(received, [(tokens, score_of(tokens, log_p, alpha))])


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("beam_size", [2, 3, 6])
def test_stopping_early_changes_no_result(beam_size, alpha):
    tables = random_tables(batch=60, seed=beam_size)
    for received, table in zip(search(tables, beam_size=beam_size, max_length=7, alpha=alpha), tables, strict=True):
        assert_same(received, search_that_never_stops_early(table, beam_size, 7, alpha))


@pytest.mark.parametrize(("alpha", "steps"), [(0.0, 2), (1.0, 7), (-1.0, 2)])
def test_it_stops_at_the_first_step_at_which_no_running_hypothesis_can_win(alpha, steps):
    """W = 2, P(end) = 0.9 and one word, by hand. After step k the word k times has log P = -2.303 k.

    The two that ended best are the empty one, -0.105, and the word once, -2.408 / lp(2). With α = 0 or below, -4.605 is less
    after two steps. With α = 1 a running one may yet be divided by lp(40) = 7.5, and 2.303 k / 7.5 passes 2.408 / (7 / 6) at
    k = 7.
    """
    tables = constant_tables([0.1, 0, 0, 0.9])
    calls = []

    def step(tokens, position, state):
        calls.append(int(position))
        return step_of(tables)(tokens, position, state)

    received = search(tables, beam_size=2, max_length=40, alpha=alpha, step=step)[0]
    assert calls == list(range(steps))
    assert [tokens for tokens, _ in received] == [(EOS,), (0, EOS)]


def test_what_did_not_end_comes_after_all_that_did_even_with_a_higher_score():
    received = search(constant_tables([0.99, 0, 0, 0.01]), beam_size=3, max_length=2, alpha=0.0)[0]
    by_hand = [((EOS,), math.log(0.01)), ((0, EOS), math.log(0.99 * 0.01)), ((0, 0), math.log(0.99 * 0.99))]
    assert_same(received, by_hand)


def test_each_sentence_has_its_own_maximum():
    maxima = [1, 5, 2, 4, 3, 8]
    tables = random_tables(batch=len(maxima), seed=8)
    tables[..., EOS] -= 4  # So that many are cut.
    together = search(tables, beam_size=4, max_length=maxima, alpha=0.6)
    for sentence, most in enumerate(maxima):
        assert_same(together[sentence], search_that_never_stops_early(tables[sentence], 4, most, 0.6))
    cut = [len(tokens) for hypotheses in together for tokens, _ in hypotheses if EOS not in tokens]
    assert len(set(cut)) > 3


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_translation_does_not_depend_on_its_neighbours_in_the_batch(beam_size):
    tables = random_tables(batch=16, seed=21)
    maxima = np.random.default_rng(0).integers(1, 9, 16)
    together = search(tables, beam_size=beam_size, max_length=maxima, alpha=0.6)
    for sentence in range(16):
        alone = search(tables[sentence : sentence + 1], beam_size=beam_size, max_length=maxima[sentence], alpha=0.6)
        assert_same(together[sentence], alone[0])


def history_step(weights):
    """A step whose state is all it has read, [B·W, t] growing as a cache does; the logits depend on every token of it."""

    def step(tokens, position, state):
        read = tf.concat([state["read"], tokens[:, None]], axis=1)
        number = tf.range(1, tf.shape(read)[1] + 1)
        mixed = tf.reduce_sum((read + 1) * number * number, axis=1)
        return tf.gather(weights, mixed % len(weights)), {"read": read}

    return step


@pytest.mark.parametrize("graph", [False, True])
def test_the_state_goes_with_its_beam(graph):
    """The log probability of every returned sequence, read again from its beginning, is the score beside it."""
    batch, beam_size, alpha = 8, 5, 0.6
    weights = np.random.default_rng(3).normal(0, 2, [101, 6]).astype(np.float32)
    step = history_step(weights)

    def run():
        state = {"read": tf.zeros([batch * beam_size, 0], tf.int32)}
        start = tf.range(batch) % 6
        return beam_search(step, state, start, eos_id=EOS, beam_size=beam_size, max_length=tf.fill([batch], 9), alpha=alpha)

    sequences, scores = tf.function(run)() if graph else run()
    for sentence in range(batch):
        for row, score in zip(sequences[sentence].numpy(), scores[sentence].numpy(), strict=True):
            tokens, state, log_p, previous = until_end(row, 9), {"read": tf.zeros([1, 0], tf.int32)}, 0.0, sentence % 6
            for position, token in enumerate(tokens):
                logits, state = step(tf.constant([previous]), position, state)
                log_p, previous = log_p + float(tf.nn.log_softmax(logits)[0, token]), token
            assert score == pytest.approx(score_of(tokens, log_p, alpha), abs=1e-5)


@pytest.mark.parametrize(("vocab_size", "beam_size"), [(4, 1), (4, 4), (4, 9), (7, 30)])
def test_no_two_hypotheses_of_a_sentence_are_the_same(vocab_size, beam_size):
    for hypotheses in search(random_tables(20, seed=vocab_size, vocab_size=vocab_size), beam_size=beam_size, max_length=6, alpha=0.6):
        assert len({tokens for tokens, _ in hypotheses}) == beam_size


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_token_of_probability_zero_is_never_written(beam_size):
    tables = random_tables(batch=10, seed=4, vocab_size=6)
    tables[..., 1] = -np.inf
    for hypotheses in search(tables, beam_size=beam_size, max_length=6, alpha=0.6):
        assert not any(1 in tokens for tokens, _ in hypotheses)
        assert np.isfinite([score for _, score in hypotheses]).all()


def test_where_nothing_may_end_the_best_of_full_length_are_returned():
    tables = random_tables(batch=4, seed=9)
    tables[..., EOS] = -np.inf
    for received, table in zip(search(tables, beam_size=27, max_length=3, alpha=1.0), tables, strict=True):
        table = np.where(np.isinf(table), -1e3, table)
        expected = ranked({tokens: p for tokens, p in every_hypothesis(table, 3).items() if EOS not in tokens}, 1.0)
        assert_same(received, expected)


def test_the_scores_are_float32_whatever_the_logits_are():
    tables = constant_tables([0.5, 0.25, 0.125, 0.125]).astype(np.float32)

    def step(tokens, position, state):
        logits, state = step_of(tables)(tokens, position, state)
        return tf.cast(logits, tf.bfloat16), state

    # Fifteen halves: a sum in bfloat16, of 8 bits, would not be this near.
    tokens, score = search(tables, beam_size=2, max_length=15, alpha=0.0, step=step)[0][0]
    assert score == pytest.approx(math.log(1 / 8), rel=0.01) and tokens == (EOS,)
