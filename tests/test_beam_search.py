"""Beam search against all it could have found: toys that are small enough to list every hypothesis."""

import math

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding.beam_search import beam_search, length_penalty
from t2t_keras.decoding.search_hooks import Prefix, largest, top_log_probs

START, EOS = 2, 3
ALPHAS = (0.0, 0.6, 1.0, -0.5)


def random_tables(batch: int, seed: int, vocab_size: int = 4, length: int = 8, spread: float = 2.0) -> np.ndarray:
    """Logits [B, T, V, V, V]: what follows (position, token before the last, last token). No two hypotheses tie."""
    return np.random.default_rng(seed).normal(0, spread, [batch, length] + [vocab_size] * 3).astype(np.float32)


def constant_tables(probabilities, length: int = 40) -> np.ndarray:
    """One sentence whose next token has the same probabilities whatever came before."""
    return np.broadcast_to(
        np.log(np.maximum(probabilities, 1e-30)).astype(np.float32), [1, length] + [len(probabilities)] * 3
    )


def step_of(tables):
    """A step whose state is which sentence a row is and all that its beams have read, R × [t, W].

    A search that mixes up its sentences, or the ancestors of its beams, goes astray.
    """

    def step(tokens, ancestors, position, state):
        assert ancestors.shape == (*tokens.shape, position + 1)
        assert (ancestors.numpy()[:, :, -1] == np.arange(tokens.shape[1])).all()
        before = tf.fill(tokens.shape, START)
        if position > 0:
            before = tf.gather(state["read"][:, position - 1], ancestors[:, :, position - 1], batch_dims=1)
        sentence = tf.broadcast_to(state["sentence"][:, None], tokens.shape)
        where = tf.stack([sentence, tf.fill(tokens.shape, position), before, tokens], axis=2)
        return tf.gather_nd(tables, where), {**state, "read": tf.concat([state["read"], tokens[:, None]], axis=1)}

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


def recorded(step, calls: list):
    """A step that appends (position, sentences it works on) to `calls`."""

    def recording(tokens, ancestors, position, state):
        assert {len(x) for x in (ancestors, *tf.nest.flatten(state))} == {len(tokens)}
        calls.append((int(position), len(tokens)))
        return step(tokens, ancestors, position, state)

    return recording


def search(tables, *, beam_size, max_length, alpha, step=None, places=None, **options) -> list[list[tuple]]:
    """[(tokens, score), …] of each sentence; the first `places` of them, without those that are no hypothesis."""
    batch = len(tables)
    most = np.broadcast_to(max_length, [batch]).astype(np.int32)
    sequences, scores = beam_search(
        step or step_of(tables),
        {"sentence": tf.range(batch), "read": tf.zeros([batch, 0, beam_size], tf.int32)},
        tf.fill([batch], START),
        eos_id=EOS,
        beam_size=beam_size,
        max_length=tf.constant(most),
        alpha=alpha,
        **options,
    )
    assert sequences.dtype == tf.int32 and sequences.shape[:2] == scores.shape == (batch, beam_size)
    sequences, scores = sequences[:, :places].numpy(), scores[:, :places].numpy()
    return [
        [
            (until_end(row, most[i]), float(score))
            for row, score in zip(sequences[i], scores[i], strict=True)
            if score > -np.inf
        ]
        for i in range(batch)
    ]


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


def search_that_never_stops_early(
    table, beam_size: int, max_length: int, alpha: float, prefix=(), change=None
) -> list[tuple]:
    """The rule of `beam_search` with dictionaries, every step taken. `change` is (tokens, log P [V]) → [V], as a scorer
    is.
    """
    running, ended = {(): 0.0}, {}
    for position in range(max_length):
        candidates = {
            (*tokens, token): log_p + value
            for tokens, log_p in running.items()
            for token, value in enumerate(
                change(tokens, log_probs(table, tokens)) if change else log_probs(table, tokens)
            )
            if (token in prefix[position : position + 1] or position >= len(prefix)) and value > -np.inf
        }
        best = sorted(candidates, key=candidates.get, reverse=True)[: 2 * beam_size if beam_size > 1 else 1]
        ended |= {tokens: candidates[tokens] for tokens in best if tokens[-1] == EOS}
        running = {
            tokens: candidates[tokens] for tokens in [tokens for tokens in best if tokens[-1] != EOS][:beam_size]
        }
    return ranked(ended | running, alpha)[:beam_size]


def assert_same(received: list[tuple], expected: list[tuple]) -> None:
    assert [tokens for tokens, _ in received] == [tokens for tokens, _ in expected]
    np.testing.assert_allclose([score for _, score in received], [score for _, score in expected], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_beam_wide_enough_to_be_exact_equals_exhaustive_enumeration(alpha):
    tables = random_tables(batch=3, seed=11)
    # Three words go on, so 3⁰ + 3¹ + … + 3⁴ = 121 hypotheses end within five tokens; the last step chooses 2 W of
    # 3⁴ · 4.
    for received, table in zip(
        search(tables, beam_size=162, places=121, max_length=5, alpha=alpha), tables, strict=True
    ):
        expected = ranked(every_hypothesis(table, 5), alpha)[:121]
        assert all(tokens[-1] == EOS for tokens, _ in expected)
        assert_same(received, expected)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(("beam_size", "max_length"), [(10, 2), (162, 5), (121 + 243, 5)])
def test_places_that_no_ended_hypothesis_takes_go_to_the_best_unfinished_ones(beam_size, max_length, alpha):
    """The beam is wider than the vocabulary, so its first steps have fewer hypotheses than places.

    Story: places without a hypothesis had log P = -1e9. Divided by a length penalty above 1 that is more than the mark
    of "nothing here", so hypotheses that nobody wrote counted as ended and stood before real ones.
    """
    tables = random_tables(batch=2, seed=5)
    for received, table in zip(
        search(tables, beam_size=beam_size, max_length=max_length, alpha=alpha), tables, strict=True
    ):
        expected = ranked(every_hypothesis(table, max_length), alpha)[:beam_size]
        assert len(expected) == beam_size and expected[0][0][-1] == EOS and expected[-1][0][-1] != EOS
        assert_same(received, expected)


@pytest.mark.parametrize(
    ("length", "alpha", "expected"),
    [(1, 0.6, 1), (1, -3, 1), (7, 1, 2), (7, -1, 0.5), (19, 0.5, 2), (7, 0, 1), (31, 2, 36)],
)
def test_the_length_penalty_is_equation_14_of_wu_et_al_by_hand(length, alpha, expected):
    assert float(length_penalty(length, alpha)) == pytest.approx(expected)


def test_scores_by_hand_count_the_end_token_in_the_length():
    """The end has probability 1/4 at every step, one word has the rest: lp(1) = 1 of the empty translation, lp(2) =
    7/6, lp(3) = 8/6.
    """
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

    Story: the second best token of a step was looked at as well. An end token in second place was set aside and could
    win over the likeliest word, and after an end token in first place the search went on with the second.
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

    The two that ended best are the empty one, -0.105, and the word once, -2.408 / lp(2). With α = 0 or below, -4.605 is
    less after two steps. With α = 1 a running one may yet be divided by lp(40) = 7.5, and 2.303 k / 7.5 passes 2.408 /
    (7 / 6) at k = 7.
    """
    tables = constant_tables([0.1, 0, 0, 0.9])
    calls = []

    received = search(tables, beam_size=2, max_length=40, alpha=alpha, step=recorded(step_of(tables), calls))[0]
    assert calls == [(position, 1) for position in range(steps)]
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
    """A step whose state is all that its beams have read, [R, t, W] growing as a cache does.

    The logits of a beam depend on every token of its hypothesis, which only `ancestors` finds in the state.
    """

    def step(tokens, ancestors, position, state):
        read = tf.concat([state["read"], tokens[:, None]], axis=1)
        hypotheses = tf.gather(read, tf.transpose(ancestors, [0, 2, 1]), batch_dims=2)
        number = tf.range(1, tf.shape(read)[1] + 1)[:, None]
        mixed = tf.reduce_sum((hypotheses + 1) * number * number, axis=1)
        return tf.gather(weights, mixed % len(weights)), {"read": read}

    return step


def assert_alone_as_together(run, batch: int, rows_of, numbers=None) -> list[list]:
    """Checks that a search, in one graph that knows no size, gives each sentence what it gives it alone.

    Args:
        run: returns the sequences and scores of one search, or those of several one after another.
        batch: the number of sentences.
        rows_of: slice of the sentences → what `run` takes.
        numbers: [B], how many hypotheses of each sentence count; None: all.

    Returns:
        The sequences of each sentence alone, as they are padded, without those that are no hypothesis.
    """
    rows, found = rows_of(slice(None)), []
    function = tf.function(run).get_concrete_function(*(tf.TensorSpec([None] * x.shape.rank, x.dtype) for x in rows))
    together = function(*rows)
    for row in range(batch):
        alone = function(*rows_of(slice(row, row + 1)))
        number = None if numbers is None else int(numbers[row])
        for search in range(0, len(alone), 2):
            (sequences, scores), (own, own_scores) = (
                [np.array(x)[place][:number] for x in both[search : search + 2]]
                for both, place in ((together, row), (alone, 0))
            )
            np.testing.assert_allclose(scores, own_scores, atol=1e-5)
            there = np.isfinite(own_scores)
            np.testing.assert_array_equal(sequences[there, : own.shape[1]], own[there])
            assert not sequences[there, own.shape[1] :].any()
            found.append(own[there].tolist())
    return found


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("vocab_size", [6, 4000])
def test_ancestors_lead_to_the_history_of_a_beam(graph, vocab_size):
    """The log probability of every returned sequence, read again from its beginning as the only beam, is the score
    beside it.
    """
    batch, beam_size, alpha = 8, 5, 0.6
    weights = np.random.default_rng(3).normal(0, 2, [101, vocab_size]).astype(np.float32)
    weights[:, EOS] += math.log(vocab_size / 6)  # So that some sentences end and leave the state before others.
    step = history_step(weights)

    def run():
        state = {"read": tf.zeros([batch, 0, beam_size], tf.int32)}
        start = tf.range(batch) % 6
        return beam_search(
            step, state, start, eos_id=EOS, beam_size=beam_size, max_length=tf.fill([batch], 9), alpha=alpha
        )

    sequences, scores = tf.function(run)() if graph else run()
    for sentence in range(batch):
        for row, score in zip(sequences[sentence].numpy(), scores[sentence].numpy(), strict=True):
            tokens, state, log_p, previous = (
                until_end(row, 9),
                {"read": tf.zeros([1, 0, 1], tf.int32)},
                0.0,
                sentence % 6,
            )
            for position, token in enumerate(tokens):
                logits, state = step(
                    tf.constant([[previous]]), tf.zeros([1, 1, position + 1], tf.int32), position, state
                )
                log_p, previous = log_p + float(tf.nn.log_softmax(logits)[0, 0, token]), token
            assert score == pytest.approx(score_of(tokens, log_p, alpha), abs=1e-5)


@pytest.mark.parametrize(("vocab_size", "beam_size"), [(4, 1), (4, 4), (4, 9), (7, 30)])
def test_no_two_hypotheses_of_a_sentence_are_the_same(vocab_size, beam_size):
    for hypotheses in search(
        random_tables(20, seed=vocab_size, vocab_size=vocab_size), beam_size=beam_size, max_length=6, alpha=0.6
    ):
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


def test_a_sum_of_many_log_probabilities_is_exact_to_float32():
    """Forty times 15/16 is added up one by one; in bfloat16, of 8 bits, the sum would stop growing at a few percent
    off.
    """
    tables = constant_tables([15 / 16, 1 / 16, 0, 0]).copy()
    tables[..., EOS] = -np.inf
    tokens, score = search(tables, beam_size=2, max_length=40, alpha=0.0)[0][0]
    assert tokens == (0,) * 40 and score == pytest.approx(40 * math.log(15 / 16), rel=2e-6)


# The largest values and the likeliest tokens


def as_drawn(rng, shape):
    return rng.normal(size=shape)


def with_ties(rng, shape):
    return rng.integers(0, 4, size=shape)


def mostly_impossible(rng, shape):
    """A few finite values among -inf, in some rows fewer than are asked for, in the first none."""
    x = np.where(rng.random(shape) < 5 / shape[1], rng.normal(size=shape), -np.inf)
    x[0] = -np.inf
    return x


def all_in_one_block(rng, shape):
    """The largest stand side by side, where a search for the largest of each block alone would find one of them."""
    x = rng.normal(size=shape)
    x[:, shape[1] // 2 : shape[1] // 2 + 20] += 100
    return x


@pytest.mark.parametrize("values", [as_drawn, with_ties, mostly_impossible, all_in_one_block])
@pytest.mark.parametrize("number", [1, 2, 8, 20])
# Small; 97, 4999 and 32003 are prime; 2 · 4999; the vocabularies of the small test models and of the released one.
@pytest.mark.parametrize("vocab_size", [20, 40, 97, 1000, 4999, 2 * 4999, 8000, 32_000, 32_003, 37_000])
def test_the_largest_are_those_of_top_k_and_of_equal_ones_the_first(vocab_size, number, values):
    x = tf.constant(values(np.random.default_rng(vocab_size), (6, vocab_size)), tf.float32)
    for received, expected in zip(largest(x, number), tf.math.top_k(x, number), strict=True):
        assert received.dtype == expected.dtype
        np.testing.assert_array_equal(received, expected)


@pytest.mark.parametrize("rows", [0, 1])
def test_the_largest_of_any_number_of_rows_in_a_graph(rows):
    x = tf.random.stateless_normal([rows, 32_000], [1, 2])
    function = tf.function(lambda x: largest(x, 8), input_signature=[tf.TensorSpec([None, 32_000])])
    for received, expected in zip(function(x), tf.math.top_k(x, 8), strict=True):
        np.testing.assert_array_equal(received, expected)


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
@pytest.mark.parametrize("vocab_size", [4, 97, 32_000])
def test_the_likeliest_tokens_have_the_log_probabilities_of_a_log_softmax(vocab_size, shift):
    logits = np.random.default_rng(1).normal(0, 3, [5, vocab_size])
    logits[:, 1] = -np.inf
    logits = (logits + shift).astype("float32")
    log_p = logits.astype("float64") - shift
    log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
    values, tokens, normalizer = top_log_probs(tf.constant(logits), 3)
    np.testing.assert_array_equal(tokens, np.argsort(-log_p, axis=1)[:, :3])
    tolerance = 1e-5 if shift == 0 else 2e-3  # float32 holds 10⁴ to a thousandth.
    np.testing.assert_allclose(values, -np.sort(-log_p, axis=1)[:, :3], atol=tolerance)
    np.testing.assert_allclose(logits - normalizer, log_p, atol=tolerance)


# Sentences that are done leave the state


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_step_works_on_fewer_sentences_when_some_are_at_their_maximum(beam_size):
    """Nothing ends, so a sentence goes on up to its maximum: how many do at a step is known. The step has the smallest
    size for them.
    """
    maxima = np.array([1, 8, 2, 2, 5, 2, 8, 1, 1, 4, 2, 3])
    tables, calls = random_tables(batch=len(maxima), seed=6), []
    tables[..., EOS] = -np.inf
    together = search(tables, beam_size=beam_size, max_length=maxima, alpha=0.6, step=recorded(step_of(tables), calls))
    assert [position for position, _ in calls] == list(range(8))
    assert [np.sum(maxima > position) for position, _ in calls] == [12, 9, 5, 4, 3, 2, 2, 2]
    assert [rows for _, rows in calls] == [12, 12, 6, 4, 3, 2, 2, 2]
    for sentence, most in enumerate(maxima):
        alone = search(tables[sentence : sentence + 1], beam_size=beam_size, max_length=most, alpha=0.6)
        assert_same(together[sentence], alone[0])


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_step_works_on_fewer_sentences_when_some_have_ended(beam_size):
    """Every other sentence ends at once; the others, which nothing ends, are as they are alone."""
    tables, calls = random_tables(batch=10, seed=13), []
    tables[..., EOS] = -np.inf
    tables[::2, ..., EOS] = 30
    together = search(tables, beam_size=beam_size, max_length=8, alpha=0.0, step=recorded(step_of(tables), calls))
    assert calls[0] == (0, 10) and calls[-1] == (7, 6)
    for sentence in range(10):
        alone = search(tables[sentence : sentence + 1], beam_size=beam_size, max_length=8, alpha=0.0)
        assert_same(together[sentence], alone[0])


def test_a_state_of_any_nest_and_any_rank_leaves_with_its_sentences():
    """Pairs, lists, matrices and bytes, all of a sentence's own number, which every step checks against the sentence it
    reads.
    """
    maxima = np.array([2, 6, 1, 1, 4, 1, 6, 2])
    tables = random_tables(batch=len(maxima), seed=7)
    step = step_of(tables)

    def checking(tokens, ancestors, position, state):
        inner, (name, [matrix]) = state
        number = inner["sentence"].numpy()
        assert [each.decode() for each in name.numpy()] == [str(each) for each in number]
        assert (matrix.numpy() == number[:, None, None] * np.ones((3, 2))).all()
        logits, inner = step(tokens, ancestors, position, inner)
        return logits, (inner, (name, [matrix]))

    numbers = tf.range(8)
    inner = {"sentence": numbers, "read": tf.zeros([8, 0, 3], tf.int32)}
    state = (inner, (tf.strings.as_string(numbers), [tf.tile(numbers[:, None, None], [1, 3, 2])]))
    options = {"eos_id": EOS, "beam_size": 3, "max_length": tf.constant(maxima, tf.int32), "alpha": 0.6}
    sequences, scores = beam_search(checking, state, tf.fill([8], START), **options)
    expected = beam_search(step, inner, tf.fill([8], START), **options)
    np.testing.assert_array_equal(sequences, expected[0])
    np.testing.assert_array_equal(scores, expected[1])


# Options of each sentence


@pytest.mark.parametrize("beam_size", [1, 4])
def test_an_alpha_of_each_sentence_equals_searches_of_their_own(beam_size):
    alphas = np.array([0.0, 0.6, 1.0, -0.5, 2.0, 0.6, 0.0, 1.5], np.float32)
    tables = random_tables(batch=len(alphas), seed=17)
    together = search(tables, beam_size=beam_size, max_length=7, alpha=tf.constant(alphas))
    for sentence, alpha in enumerate(alphas):
        assert_same(together[sentence], search_that_never_stops_early(tables[sentence], beam_size, 7, float(alpha)))


@pytest.mark.medium
@pytest.mark.parametrize("alpha", ALPHAS)
def test_looking_at_the_best_alone_gives_the_same_best_in_no_more_steps(alpha):
    tables, fewer = random_tables(batch=12, seed=19, length=20), 0
    for sentence in range(len(tables)):
        table, all_calls, calls = tables[sentence : sentence + 1], [], []
        options = {"beam_size": 4, "max_length": 20, "alpha": alpha}
        expected = search(table, step=recorded(step_of(table), all_calls), **options)[0]
        received = search(table, step=recorded(step_of(table), calls), n_best=tf.constant([1]), **options)[0]
        assert_same(received[:1], expected[:1])
        assert len(calls) <= len(all_calls)
        fewer += len(calls) < len(all_calls)
    assert fewer > len(tables) / 2


def test_as_many_as_each_sentence_asks_for_are_the_best():
    wanted = np.tile([1, 2, 3, 4], 6).astype(np.int32)
    tables = random_tables(batch=len(wanted), seed=23)
    together = search(tables, beam_size=4, max_length=8, alpha=0.6, n_best=tf.constant(wanted))
    for sentence, number in enumerate(wanted):
        expected = search_that_never_stops_early(tables[sentence], 4, 8, 0.6)
        assert_same(together[sentence][:number], expected[:number])


def test_asking_for_all_is_what_is_done_if_nothing_is_asked():
    tables, options = random_tables(batch=6, seed=29), {"beam_size": 4, "max_length": 8, "alpha": 0.6}
    assert search(tables, n_best=tf.fill([6], 4), **options) == search(tables, **options)


@pytest.mark.parametrize("beam_size", [6, 20])
@pytest.mark.parametrize("vocab_size", [4, 5, 7, 11])
def test_a_vocabulary_of_fewer_tokens_than_candidates_is_searched_by_the_same_rule(vocab_size, beam_size):
    """Of each beam all V tokens are candidates then, and not 2 W."""
    assert vocab_size < 2 * beam_size
    tables = random_tables(batch=8, seed=31, vocab_size=vocab_size)
    for received, table in zip(search(tables, beam_size=beam_size, max_length=5, alpha=0.6), tables, strict=True):
        assert_same(received, search_that_never_stops_early(table, beam_size, 5, 0.6))


# What a translation begins with


PREFIXES = [(), (1,), (5, 2, 1, 1), (), (2, 2), (1, 4, 1, 4, 1)]


def padded(prefixes):
    """[B, P] int32, zeros after the end of each."""
    return tf.RaggedTensor.from_row_lengths(
        tf.constant([token for prefix in prefixes for token in prefix], tf.int32), [len(prefix) for prefix in prefixes]
    ).to_tensor()


def forced(prefixes) -> list[Prefix]:
    return [Prefix(padded(prefixes))]


def test_a_forced_token_costs_its_log_probability_by_hand():
    """Whatever comes first, the end has probability 1/4, words 1 and 2 have 5/8 and 1/8. Forced to begin with 2, α =
    1.
    """
    tables = constant_tables([0, 5 / 8, 1 / 8, 1 / 4])
    received = search(tables, beam_size=3, max_length=3, alpha=1.0, scorers=forced([(2,)]))[0]
    one, two, end = math.log(5 / 8), math.log(1 / 8), math.log(1 / 4)
    by_hand = [
        ((2, EOS), (two + end) / (7 / 6)),
        ((2, 1, EOS), (two + one + end) / (8 / 6)),
        ((2, 2, EOS), (two + two + end) / (8 / 6)),
    ]
    assert_same(received, sorted(by_hand, key=lambda pair: -pair[1]))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_rows_with_and_without_a_prefix_are_searched_by_the_same_rule(beam_size, alpha):
    tables = random_tables(batch=len(PREFIXES), seed=37, vocab_size=6)
    together = search(tables, beam_size=beam_size, max_length=8, alpha=alpha, scorers=forced(PREFIXES))
    for received, table, prefix in zip(together, tables, PREFIXES, strict=True):
        assert all(tokens[: len(prefix)] == prefix for tokens, _ in received)
        assert_same(received, search_that_never_stops_early(table, beam_size, 8, alpha, prefix))


def test_a_beam_wide_enough_finds_the_best_of_all_that_begin_with_the_prefix():
    (table,) = tables = random_tables(batch=1, seed=41, vocab_size=5)
    found = {tokens: log_p for tokens, log_p in every_hypothesis(table, 5).items() if tokens[:2] == (4, 1)}
    received = search(tables, beam_size=100, max_length=5, alpha=0.6, scorers=forced([(4, 1)]))[0]
    # Four words go on, so 1 + 4 + 16 end within five tokens, and 64 have not ended.
    assert len(found) == 21 + 64
    assert_same(received, ranked(found, 0.6))


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("max_length", [1, 2, 3])
def test_a_prefix_that_fills_all_of_the_maximum_is_the_one_hypothesis_cut_to_it(beam_size, max_length):
    prefixes = [(5, 2, 1), (4, 1, 4, 1, 2)]
    tables = random_tables(batch=2, seed=43, vocab_size=6)
    for received, table, prefix in zip(
        search(tables, beam_size=beam_size, max_length=max_length, alpha=0.6, scorers=forced(prefixes)),
        tables,
        prefixes,
        strict=True,
    ):
        tokens = prefix[:max_length]
        log_p = sum(log_probs(table, tokens[:position])[token] for position, token in enumerate(tokens))
        assert_same(received, [(tokens, score_of(tokens, log_p, 0.6))])


@pytest.mark.parametrize("beam_size", [1, 4])
def test_forcing_what_would_have_been_written_changes_nothing(beam_size):
    tables = random_tables(batch=12, seed=47, vocab_size=6)
    tables[..., 0] = -np.inf  # Which a prefix cannot hold.
    free = search(tables, beam_size=1, max_length=8, alpha=0.6)
    prefixes = [tokens[: len(tokens) // 2] for ((tokens, _),) in free]
    again = search(tables, beam_size=beam_size, max_length=8, alpha=0.6, scorers=forced(prefixes))
    for received, ((tokens, score),) in zip(again, free, strict=True):
        # A wider beam from there holds the greedy one unless it found as many that are better.
        assert received[0][1] >= score - 1e-6 or EOS in received[0][0] and EOS not in tokens
        if beam_size == 1:
            assert_same(received, [(tokens, score)])


@pytest.mark.parametrize("prefix", [tf.zeros([5, 0], tf.int32), tf.zeros([5, 3], tf.int32)])
def test_a_prefix_of_nothing_is_none(prefix):
    tables, options = random_tables(batch=5, seed=53), {"beam_size": 4, "max_length": 7, "alpha": 0.6}
    assert search(tables, scorers=[Prefix(prefix)], **options) == search(tables, **options)


def test_all_options_together_in_one_graph_give_what_each_sentence_gives_alone():
    """Prefixes, maxima, alphas and numbers of hypotheses of their own, in a graph that knows no length when it is
    traced.
    """
    batch, beam_size = 12, 4
    rng = np.random.default_rng(59)
    weights = rng.normal(0, 2, [101, 6]).astype(np.float32)

    def run(start, alpha, max_length, n_best, prefix):
        state = {"read": tf.zeros([tf.shape(start)[0], 0, beam_size], tf.int32)}
        options = {"alpha": alpha, "max_length": max_length, "n_best": n_best, "scorers": [Prefix(prefix)]}
        return beam_search(history_step(weights), state, start, eos_id=EOS, beam_size=beam_size, **options)

    rows = (
        tf.range(batch) % 6,
        tf.constant(rng.uniform(-0.5, 1.5, batch), tf.float32),
        tf.constant(rng.integers(1, 12, batch), tf.int32),
        tf.constant(rng.integers(1, beam_size + 1, batch), tf.int32),
        padded([rng.choice([1, 2, 4, 5], size=rng.integers(0, 5)).tolist() for _ in range(batch)]),
    )
    assert_alone_as_together(run, batch, lambda chosen: [row[chosen] for row in rows], rows[3])
