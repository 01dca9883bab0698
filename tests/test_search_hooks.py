"""What scores and what selects continuations, against every hypothesis by hand; alone, and in a `Translator`."""

import collections
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from test_beam_search import (
    ALPHAS,
    EOS,
    START,
    assert_alone_as_together,
    assert_same,
    every_hypothesis,
    history_step,
    log_probs,
    random_tables,
    ranked,
    score_of,
    search,
    search_that_never_stops_early,
)
from test_translator import Numbers

from t2t_keras.config import BOS, PAD, UNK, DecodeConfig, ModelConfig
from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.search_hooks import Best, Hypotheses, Prefix, Scorer, Selector, normalized, top_log_probs
from t2t_keras.decoding.translator import Translator
from t2t_keras.model.beams import follow, parents
from t2t_keras.model.transformer import Transformer

# Two hooks, each in a few lines.


class Forbidden(Scorer):
    """Never writes one token of each sentence, [B] int32."""

    def __init__(self, tokens):
        self.state = tokens

    def __call__(self, log_probs, hypotheses, tokens):
        forbidden = tokens[:, None, None] == tf.range(log_probs.shape[-1])
        return tf.where(forbidden, -math.inf, log_probs), tokens


class Sampler(Selector):
    """Draws a continuation of each beam, by a seed for each sentence, [B] int32; at first all of the first beam."""

    def __init__(self, seeds):
        self.state = seeds

    def number(self, beam_size):
        return beam_size

    def __call__(self, log_probs, hypotheses, seeds):
        draw = lambda seed: tf.random.stateless_uniform(log_probs.shape[1:], [seed, hypotheses.position])  # noqa: E731
        uniform = tf.map_fn(draw, seeds, fn_output_signature=tf.float32)
        # Gumbel's maximum.
        tokens = tf.argmax(log_probs - tf.math.log(-tf.math.log(uniform)), axis=2, output_type=tf.int32)
        parents = tf.zeros_like(tokens) + tf.where(hypotheses.position == 0, 0, tf.range(log_probs.shape[1]))
        totals = tf.gather(hypotheses.log_probs, parents, batch_dims=1) + tf.gather(log_probs, tokens, batch_dims=2)
        return (totals, parents, tokens), seeds


class Apart(Selector):
    """W greedy searches. Each takes 1 from the tokens that those before it have chosen at this position."""

    def number(self, beam_size):
        return beam_size

    def __call__(self, log_probs, hypotheses, state):
        parents = tf.zeros_like(hypotheses.tokens) + tf.where(hypotheses.position == 0, 0, tf.range(log_probs.shape[1]))
        before = tf.gather(hypotheses.log_probs, parents, batch_dims=1)
        chosen, taken = [], 0.0
        for beam in range(log_probs.shape[1]):
            chosen.append(tf.argmax(log_probs[:, beam] - taken, axis=1, output_type=tf.int32))
            taken += tf.where(before[:, beam, None] > -math.inf, tf.one_hot(chosen[-1], log_probs.shape[-1]), 0.0)
        tokens = tf.stack(chosen, axis=1)
        return (before + tf.gather(log_probs, tokens, batch_dims=2), parents, tokens), state


# Scorers whose state belongs to a beam: one that must follow it.


class Forgetful(Scorer):
    """Takes 0.7 from a token for each time that its hypothesis has it; the state, [R, W, V] float32, counts them."""

    def __init__(self, batch: int, beam_size: int, vocab_size: int):
        self.state, self.crossed = tf.zeros([batch, beam_size, vocab_size]), 0

    def __call__(self, log_probs, hypotheses, counts):
        counts = follow(counts, hypotheses.ancestors)
        if tf.executing_eagerly():
            self.crossed += int(
                tf.reduce_sum(tf.cast(parents(hypotheses.ancestors) != hypotheses.ancestors[:, :, -1], tf.int32))
            )
        counts += tf.where(hypotheses.position > 0, tf.one_hot(hypotheses.tokens, log_probs.shape[-1]), 0.0)
        return log_probs - 0.7 * counts, counts

    @staticmethod
    def by_hand(tokens, values):
        return values - 0.7 * np.array([tokens.count(token) for token in range(len(values))])


class NoRepeatedPair(Scorer):
    """No two tokens twice in the same order. The state, [R, W, T, 2] int32, grows by one pair at each position."""

    def __init__(self, batch: int, beam_size: int):
        self.state = {"pairs": tf.zeros([batch, beam_size, 0, 2], tf.int32), "last": tf.fill([batch, beam_size], START)}

    def __call__(self, log_probs, hypotheses, state):
        state = follow(state, hypotheses.ancestors)
        added = tf.stack([state["last"], hypotheses.tokens], axis=2)[:, :, None]
        pairs = tf.concat([state["pairs"], added], axis=2)
        # What came after this token.
        again = tf.where(pairs[..., :1] == hypotheses.tokens[:, :, None, None], pairs[..., 1:], -1)
        repeated = tf.reduce_any(again == tf.range(log_probs.shape[-1]), axis=2)
        return tf.where(repeated, -math.inf, log_probs), {"pairs": pairs, "last": hypotheses.tokens}

    @staticmethod
    def by_hand(tokens, values):
        tokens = (START, START, *tokens)
        return np.where(
            [(tokens[-1], token) in itertools.pairwise(tokens) for token in range(len(values))], -np.inf, values
        )


def ancestors_of(steps: list) -> list[np.ndarray]:
    """The `ancestors` [W, T + 1] of each position T, made from the parents [W] of each position but the first."""
    beams = len(steps[0])
    found = [np.arange(beams)[:, None]]
    for step in steps:
        found.append(np.concatenate([found[-1][step], np.arange(beams)[:, None]], axis=1))
    return found


def test_the_parents_of_beams_by_hand():
    """Three beams: the second and third continue beam 0, then all continue another one than their own."""
    first, second, third = (each[None] for each in ancestors_of([[1, 0, 0], [2, 0, 1]]))
    assert third.tolist() == [[[0, 2, 0], [1, 0, 1], [0, 1, 2]]]
    for ancestors, expected in ((first, [0, 1, 2]), (second, [1, 0, 0]), (third, [2, 0, 1])):
        assert np.array(parents(ancestors)).tolist() == [expected]


@pytest.mark.parametrize("batch", [0, 1, 4])
@pytest.mark.parametrize("graph", [False, True])
def test_a_state_that_follows_its_beams_is_gathered_by_their_parents_in_every_dtype_and_rank(graph, batch):
    rng = np.random.default_rng(1)
    ancestors = rng.integers(0, 3, [batch, 3, 5]).astype(np.int32)
    state = [
        rng.normal(size=[batch, 3]).astype(np.float32),
        {"matrix": rng.integers(0, 9, [batch, 3, 2, 4]), "flag": rng.random([batch, 3, 1]) < 0.5},
        (rng.normal(size=[batch, 3, 0, 2]).astype(np.float32),),
    ]
    # Every size unknown but the number of beams, as in the body of a loop.
    specs = tf.nest.map_structure(
        lambda x: tf.TensorSpec([None, 3] + [None] * (x.ndim - 2), x.dtype), (state, ancestors)
    )
    function = tf.function(follow, input_signature=specs) if graph else follow
    received = function(tf.nest.map_structure(tf.constant, state), tf.constant(ancestors))
    rows = np.arange(batch)[:, None]
    tf.nest.map_structure(
        lambda new, old: np.testing.assert_array_equal(new, old[rows, ancestors[:, :, -2]]), received, state
    )


@pytest.mark.parametrize("vocab_size", [6, 4000])
def test_the_normalized_logits_have_the_bits_of_the_top_log_probs(vocab_size):
    """So a sentence beside one with a prefix has the same score as without it."""
    logits = tf.random.stateless_normal([5, 3, vocab_size], [1, 2], stddev=4.0)
    values, tokens, _ = top_log_probs(tf.reshape(logits, [15, -1]), 4)
    received = normalized(logits)
    np.testing.assert_array_equal(tf.gather(tf.reshape(received, [15, -1]), tokens, batch_dims=1), values)
    np.testing.assert_allclose(received, tf.nn.log_softmax(logits), atol=1e-5)


# A scorer


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_search_with_a_forbidden_token_equals_exhaustive_search_over_the_others_with_scores_as_they_were(alpha):
    tables = random_tables(batch=3, seed=61, vocab_size=5)
    forbidden = [0, 2, 4]
    found = search(
        tables, beam_size=162, places=121, max_length=5, alpha=alpha, scorers=[Forbidden(tf.constant(forbidden))]
    )
    for received, table, token in zip(found, tables, forbidden, strict=True):
        assert_same(
            received, ranked({x: p for x, p in every_hypothesis(table, 5).items() if token not in x}, alpha)[:121]
        )


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_what_a_scorer_changes_is_what_is_searched(beam_size):
    tables = random_tables(batch=30, seed=62, vocab_size=6)
    forbidden = np.random.default_rng(0).choice([0, 1, 2, 4, 5], 30)
    found = search(
        tables, beam_size=beam_size, max_length=7, alpha=0.6, scorers=[Forbidden(tf.constant(forbidden, tf.int32))]
    )
    for received, table, token in zip(found, tables, forbidden, strict=True):

        def change(tokens, values, token=token):
            return np.where(np.arange(6) == token, -np.inf, values)

        assert_same(received, search_that_never_stops_early(table, beam_size, 7, 0.6, change=change))


def test_scorers_change_the_scores_one_after_another():
    tables = random_tables(batch=8, seed=63, vocab_size=6)
    forbidden = [Forbidden(tf.fill([8], token)) for token in (1, 4, 5)]
    for hypotheses in search(tables, beam_size=4, max_length=7, alpha=0.6, scorers=forbidden):
        assert hypotheses and not any({1, 4, 5} & set(tokens) for tokens, _ in hypotheses)


def test_where_everything_is_forbidden_nothing_is_found():
    tables = random_tables(batch=3, seed=64)
    nothing, *others = search(
        tables,
        beam_size=2,
        max_length=4,
        alpha=0.6,
        scorers=[Forbidden(tf.constant([each, 0, 0])) for each in range(4)],
    )
    assert nothing == [] and all(others)


@pytest.mark.parametrize("beam_size", [1, 3, 6])
@pytest.mark.parametrize("kind", [Forgetful, NoRepeatedPair])
def test_a_state_of_each_beam_is_right_where_beams_cross(kind, beam_size):
    tables = random_tables(batch=20, seed=65 + beam_size, vocab_size=5, spread=1.0)
    scorer = Forgetful(20, beam_size, 5) if kind is Forgetful else NoRepeatedPair(20, beam_size)
    found = search(tables, beam_size=beam_size, max_length=8, alpha=0.6, scorers=[scorer])
    for received, table in zip(found, tables, strict=True):
        assert_same(received, search_that_never_stops_early(table, beam_size, 8, 0.6, change=kind.by_hand))
    if kind is Forgetful:
        assert scorer.crossed > 20 or beam_size == 1


@pytest.mark.parametrize("beam_size", [1, 4])
def test_sentences_that_finish_early_do_not_disturb_the_states_of_others(beam_size):
    """In one graph, where sentences leave the states at their maxima: each gives what it gives alone."""
    batch, rng = 12, np.random.default_rng(2)
    weights = rng.normal(0, 2, [101, 6]).astype(np.float32)

    def run(start, max_length, forbidden, prefix, seed):
        batch = tf.shape(start)[0]
        scorers = [
            Forbidden(forbidden), Prefix(prefix), Forgetful(batch, beam_size, 6), NoRepeatedPair(batch, beam_size),
        ]  # fmt: skip
        state = {"read": tf.zeros([batch, 0, beam_size], tf.int32)}
        options = {"eos_id": EOS, "beam_size": beam_size, "max_length": max_length, "alpha": 0.6, "scorers": scorers}
        best = beam_search(history_step(weights), state, start, **options)
        return *best, *beam_search(history_step(weights), state, start, **options, selector=Sampler(seed))

    prefix = rng.integers(1, 3, [batch, 2]) * (np.arange(batch)[:, None] % 3 == 0)
    rows = [tf.range(batch) % 6, rng.integers(1, 12, batch), rng.choice([4, 5], batch), prefix, np.arange(batch) % 7]
    rows = [tf.constant(row, tf.int32) for row in rows]
    assert_alone_as_together(run, batch, lambda chosen: [row[chosen] for row in rows])


def test_hooks_see_the_hypotheses_that_they_continue():
    tables = random_tables(batch=4, seed=70, vocab_size=5)

    class Looks(Scorer):
        state = tf.range(4)

        def __call__(self, given, hypotheses: Hypotheses, sentences):
            written = hypotheses.sequences.numpy()
            position = int(hypotheses.position)
            assert written.shape[2] == position and hypotheses.ancestors.shape[2] == position + 1
            assert (hypotheses.ancestors[:, :, -1].numpy() == np.arange(3)).all()
            assert (hypotheses.tokens.numpy() == (written[:, :, -1] if position else START)).all()
            for row, sentence in enumerate(sentences.numpy()):
                for beam in range(3) if position else [0]:
                    tokens, table = tuple(written[row, beam].tolist()), tables[sentence]
                    total = sum(log_probs(table, tokens[:index])[token] for index, token in enumerate(tokens))
                    assert EOS in tokens or float(hypotheses.log_probs[row, beam]) == pytest.approx(total, abs=1e-5)
                    np.testing.assert_allclose(given[row, beam], log_probs(table, tokens), atol=1e-5)
                assert position or hypotheses.log_probs[row].numpy().tolist() == [0, -math.inf, -math.inf]
            return given, sentences

    options = {"beam_size": 3, "max_length": [6, 2, 6, 3], "alpha": 0.6}
    assert search(tables, scorers=[Looks()], **options) == search(tables, **options)


def test_a_scorer_is_called_only_while_it_applies():
    tables = random_tables(batch=3, seed=71)
    calls = []

    class First(Forbidden):
        def __init__(self, tokens, positions):
            super().__init__(tokens)
            self.positions = positions

        def applies(self, position):
            return position < self.positions

        def __call__(self, log_probs, hypotheses, tokens):
            calls.append((int(hypotheses.position), self.positions))
            return super().__call__(log_probs, hypotheses, tokens)

    found = search(
        tables, beam_size=3, max_length=6, alpha=0.0, scorers=[First(tf.fill([3], 1), 2), First(tf.fill([3], 2), 3)]
    )
    assert calls == [(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]

    def change(tokens, values):
        forbidden = {1} if len(tokens) < 2 else set()
        return np.where(np.isin(range(4), list(forbidden | ({2} if len(tokens) < 3 else set()))), -np.inf, values)

    for received, table in zip(found, tables, strict=True):
        assert_same(received, search_that_never_stops_early(table, 3, 6, 0.0, change=change))


def operations(scorers, selector=None) -> list[str]:
    """Types of all operations in the graph of a search."""

    @tf.function
    def run(start):
        state = {"read": tf.zeros([tf.shape(start)[0], 0, 4], tf.int32)}
        options = {"selector": selector} if selector else {}
        rows = {"eos_id": EOS, "beam_size": 4, "max_length": tf.fill(tf.shape(start), 9), "alpha": 0.6}
        return beam_search(
            history_step(np.zeros([101, 6], np.float32)), state, start, scorers=scorers, **rows, **options
        )

    graph = run.get_concrete_function(tf.TensorSpec([None], tf.int32)).graph.as_graph_def()
    return [node.op for function in graph.library.function for node in function.node_def]


def test_a_search_without_hooks_has_no_node_for_them():
    plain, with_prefix = operations([]), operations([Prefix(tf.zeros([3, 0], tf.int32))])
    assert not any(op.endswith("If") for op in plain)
    assert sum(op.endswith("If") for op in with_prefix) == 2  # Whether a hook is needed, and whether the prefix is.
    assert plain.count("Softmax") == 1 and plain.count("SelectV2") < with_prefix.count("SelectV2")


# A selector


def test_the_best_continuations_of_scores_are_those_of_logits():
    """What a search selects after a scorer that changes nothing."""

    class Nothing(Scorer):
        def __call__(self, log_probs, hypotheses, state):
            return log_probs, state

    class Same(Best):
        """Not the class itself, which has a faster way for a search without scorers."""

    tables = random_tables(batch=20, seed=72, vocab_size=7)
    for beam_size in (1, 2, 4, 9):
        options = {"beam_size": beam_size, "max_length": 7, "alpha": 0.6}
        expected = search(tables, **options)
        assert search(tables, scorers=[Nothing()], **options) == expected
        assert search(tables, selector=Same(), **options) == expected


@pytest.mark.parametrize("groups", [1, 2])
def test_a_selector_whose_shapes_a_graph_does_not_know_selects_as_others_do(groups):
    class OfGroups(Best):
        def groups(self, beam_size):
            return groups

        def __call__(self, log_probs, hypotheses, state):
            found = []
            for number, (values, before) in enumerate(
                zip(*(tf.split(x, groups, axis=1) for x in (log_probs, hypotheses.log_probs)), strict=True)
            ):
                (totals, parents, tokens), _ = super().__call__(values, hypotheses._replace(log_probs=before), state)
                found.append((totals, parents + number * before.shape[1], tokens))
            return tuple(tf.concat(each, axis=1) for each in zip(*found, strict=True)), state

    class Unknown(OfGroups):
        def __call__(self, log_probs, hypotheses, state):
            found, state = super().__call__(log_probs, hypotheses, state)
            return tuple(tf.numpy_function(lambda *each: each, found, [x.dtype for x in found])), state

    weights = np.random.default_rng(5).normal(0, 2, [101, 6]).astype(np.float32)

    def found(selector) -> list:
        @tf.function
        def run():
            state, start = {"read": tf.zeros([3, 0, 4], tf.int32)}, tf.fill([3], START)
            options = {"eos_id": EOS, "beam_size": 4, "max_length": tf.constant([7, 2, 5]), "alpha": 0.6}
            return beam_search(history_step(weights), state, start, selector=selector, **options)

        return [x.numpy().tolist() for x in run()]

    assert found(Unknown()) == found(OfGroups())


def test_a_selector_is_called_only_while_it_applies():
    tables, calls = random_tables(batch=3, seed=77), []

    class First(Apart):
        def number(self, beam_size):
            return 2 * beam_size

        def applies(self, position):
            return position < 2

        def __call__(self, log_probs, hypotheses, state):
            calls.append(int(hypotheses.position))
            return Best()(log_probs, hypotheses, state)

    options = {"beam_size": 3, "max_length": 6, "alpha": 0.0}
    assert search(tables, selector=First(), **options) == search(tables, **options)
    assert calls == [0, 1]


def test_too_few_continuations_are_refused():
    class Two(Best):
        def number(self, beam_size):
            return 2

    with pytest.raises(ValueError, match="A selector must select at least 3 continuations.*Received: number=2"):
        search(random_tables(batch=1, seed=1), beam_size=3, max_length=2, alpha=0.0, selector=Two())


def test_hypotheses_go_on_in_the_order_of_the_selector_and_are_returned_best_first():
    """Groups of one beam each: not the best one is first, but the one that nothing is taken from."""
    tables, best_was_first = random_tables(batch=30, seed=76, vocab_size=6), []
    tables[..., EOS] -= 2
    for received, table in zip(
        search(tables, beam_size=3, max_length=6, alpha=0.6, selector=Apart()), tables, strict=True
    ):
        running, ended = [((), 0.0)] * 3, []
        for _ in range(6):
            taken, continued = np.zeros(6), []
            for tokens, log_p in running:
                values = log_probs(table, tokens)
                token = int(np.argmax(values - taken))
                taken[token] += 1
                continued.append(((*tokens, token), log_p + values[token]))
            ended += [each for each in continued if each[0][-1] == EOS]
            running = [each for each in continued if each[0][-1] != EOS]
        best_was_first.append(not running or running[0] == max(running, key=lambda each: each[1]))
        scored = [(tokens, score_of(tokens, log_p, 0.6)) for tokens, log_p in ended + running]
        assert_same(received, sorted(scored, key=lambda each: (each[0][-1] != EOS, -each[1])))
    assert not all(best_was_first)


def limit_of_chi_squared(freedom: int) -> float:
    """What one draw of a thousand is above (Wilson and Hilferty 1931)."""
    return freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3


def assert_drawn_from(counts: collections.Counter, probabilities: dict, fewest: int = 9) -> None:
    """Pearson's χ² of counts; what is expected fewer than five times counts as one."""
    number = sum(counts.values())
    assert set(counts) <= set(probabilities) and sum(probabilities.values()) == pytest.approx(1)
    often = [key for key, value in probabilities.items() if value * number >= 5]
    expected = [probabilities[key] * number for key in often]
    received = [counts[key] for key in often]
    expected, received = [*expected, number - sum(expected)], [*received, number - sum(received)]
    chi_squared = sum((one - other) ** 2 / other for one, other in zip(received, expected, strict=True) if other > 1e-6)
    assert len(often) >= fewest and chi_squared < limit_of_chi_squared(len(often))


# Through a translator

DECODE = DecodeConfig(beam_size=3, extra_length=2, alpha=0.6)
VOCAB_SIZE = 7


def small(seed: int) -> Transformer:
    """A Transformer of seven tokens, of which three are special and seldom written."""
    model = Transformer(
        ModelConfig(VOCAB_SIZE, encoder_layers=1, decoder_layers=1, d_model=8, d_ff=16, num_heads=2, d_k=4, d_v=4)
    )
    draw = np.random.default_rng(seed)
    for weight in model.trainable_variables:
        weight.assign(draw.normal(0, 0.7, weight.shape))
    return model


class Recurrent:
    """A decoder whose state, [B, W] int32, is a number made of all tokens that a beam has read; it follows its beam."""

    def __init__(self, seed: int):
        self.variables = []
        self.weights = np.random.default_rng(seed).normal(0, 2, [50, VOCAB_SIZE]).astype(np.float32)
        self.weights[:, [PAD, UNK, BOS]] = -30

    def encode(self, source):
        return tf.reduce_sum(source, axis=1)

    def initial_state(self, memory, beams):
        return tf.tile(memory[:, None], [1, beams])

    def decode(self, tokens, memory, state, position, ancestors):
        state = (7 * follow(state, ancestors) + tokens) % 50
        return tf.gather(self.weights, state), state

    def every(self, source: list[int], max_length: int) -> dict:
        """{tokens: log P}."""
        found = {}

        def extend(tokens, state, log_p):
            if len(tokens) == max_length or EOS in tokens:
                found[tokens] = log_p
                return
            state = (7 * state + (tokens[-1] if tokens else BOS)) % 50
            logits = self.weights[state].astype(np.float64)
            for token in range(EOS, VOCAB_SIZE):
                extend((*tokens, token), state, log_p + logits[token] - np.log(np.exp(logits).sum()))

        extend((), sum(source), 0.0)
        return found


def searched(translator: Translator, sources: list[list[int]], max_length: int = 4, **inputs) -> list[list[tuple]]:
    """[(tokens, score), …] of each sentence."""
    source, number = tf.ragged.constant(sources, tf.int32, row_splits_dtype=tf.int64), len(sources)
    beam_size = translator.config.beam_size
    rows = (
        tf.fill([number], float(translator.config.alpha)), tf.fill([number], max_length), tf.fill([number], beam_size),
    )  # fmt: skip
    sequences, scores = tf.function(lambda: translator.search(source, *rows, **inputs), autograph=False)()
    found = [tuple(row) for row in sequences.to_list()]
    return [
        [(tokens, score) for tokens, score in zip(found[row * beam_size :], values, strict=False) if score > -np.inf]
        for row, values in enumerate(scores.numpy().tolist())
    ]


SOURCES = [[4, EOS], [6, 5, 4, 6, 4, EOS], [5, 5, EOS]]


def test_a_recurrent_decoder_follows_its_beams_in_a_translator():
    model = Recurrent(seed=3)
    wide, narrow = (Translator(model, None, DecodeConfig(beam_size=beam_size, alpha=0.6)) for beam_size in (60, 3))
    for received, source in zip(searched(wide, SOURCES), SOURCES, strict=True):
        assert_same(received[:20], ranked(model.every(source, 4), 0.6)[:20])
    for received, source in zip(searched(narrow, SOURCES, max_length=9), SOURCES, strict=True):
        every = model.every(source, 9)
        for tokens, score in received:
            assert score == pytest.approx(every[tokens] / ((5 + len(tokens)) / 6) ** 0.6, abs=1e-5)


def test_a_translator_makes_a_scorer_of_the_inputs_of_its_sentences():
    """Sentences of several sub-batches, each with a forbidden token of its own; scores are those of the model."""
    model = Recurrent(seed=4)
    translator = Translator(
        model, None, DecodeConfig(beam_size=60, alpha=0.6), scorers=[lambda inputs: Forbidden(inputs["forbidden"])]
    )
    sources = SOURCES * 15
    forbidden = [4 + row % 3 if row % 2 else PAD for row in range(45)]
    for received, source, token in zip(
        searched(translator, sources, forbidden=tf.constant(forbidden)), sources, forbidden, strict=True
    ):
        expected = {tokens: value for tokens, value in model.every(source, 4).items() if token not in tokens}
        assert_same(received[:10], ranked(expected, 0.6)[:10])


@pytest.mark.medium
def test_a_call_of_a_translator_has_its_hooks():
    model, lines = small(1), tf.constant(["4", "5 6 6", "6 5 4 4", ""])
    plain = Translator(model, Numbers(), DECODE)
    never = Translator(
        model, Numbers(), DECODE, scorers=[lambda inputs: Forbidden(tf.fill(tf.shape(inputs["alpha"]), often))]
    )

    def counted(translator) -> collections.Counter:
        return collections.Counter(b" ".join(translator.n_best(lines)["text"].numpy().ravel()).split())

    free = counted(plain)
    del free[b"0"]
    often, number = int(free.most_common(1)[0][0]), free.most_common(1)[0][1]
    assert number > 5 and counted(never)[b"%d" % often] == 0


@pytest.mark.medium
def test_a_translator_draws_by_a_seed_of_each_sentence():
    model = Recurrent(seed=5)
    translator = Translator(
        model, None, DecodeConfig(beam_size=1, alpha=0.0), selector=lambda inputs: Sampler(inputs["seed"])
    )
    number = 600
    together = searched(translator, [[5, EOS]] * number, max_length=3, seed=tf.range(number))
    counts = collections.Counter(tokens for ((tokens, _),) in together)
    assert_drawn_from(counts, {tokens: math.exp(value) for tokens, value in model.every([5, EOS], 3).items()})
    for seed in (3, 77):
        assert_same(searched(translator, [[5, EOS]], max_length=3, seed=tf.constant([seed]))[0], together[seed])
        beside = searched(translator, [[6, 4, EOS], [5, EOS], [5, EOS]], max_length=3, seed=tf.constant([1, seed, 2]))[
            1
        ]
        assert_same(beside, together[seed])


@pytest.mark.parametrize(("hook", "argument"), [(Scorer, "scorers"), (Best, "selector")])
def test_a_hook_that_returns_no_state_is_named(hook, argument):
    class Stateless(hook):
        def __call__(self, log_probs, hypotheses, state):
            return log_probs

    given = {argument: [Stateless()] if argument == "scorers" else Stateless()}
    with pytest.raises(ValueError, match=r"^Stateless must return \(.*, state\). Received: <tf.Tensor"):
        search(random_tables(batch=1, seed=1), beam_size=2, max_length=2, alpha=0.0, **given)
