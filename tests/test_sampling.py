"""Draws have the probabilities of the model, and depend on the seed of their sentence and their own number alone."""

import collections
import functools
import itertools
import math
import types

import numpy as np
import pytest
import tensorflow as tf
from test_beam_search import EOS, START, every_hypothesis, log_probs, random_tables, search
from test_search_hooks import VOCAB_SIZE, Forbidden, Recurrent, assert_drawn_from, small
from test_translator import Numbers

from t2t_keras.config import BOS, DecodeConfig, SampleConfig
from t2t_keras.decoding.sampling import Sampled, _uniform, divided, draw, draw_of_most_likely, keys, random_bits
from t2t_keras.decoding.translator import Translator, translate_lines
from t2t_keras.layers.inference import inference
from t2t_keras.serving.requests import sampler
from t2t_keras.serving.signatures import Signatures

WHOLE = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
DTYPES = {"temperature": tf.float32, "top_k": tf.int32, "top_p": tf.float32}


def sampled(seeds, draws: int = 1, first: int = 0, **options) -> Sampled:
    """So many draws of each sentence, from the given number on; options are the same for all or a list."""
    of_all = {
        name: tf.constant(np.broadcast_to(value, [len(seeds)]), DTYPES[name])
        for name, value in {**WHOLE, **options}.items()
    }
    return Sampled(keys(tf.constant(seeds, tf.int64)[:, None], tf.range(first, first + draws)[None]), **of_all)


def allowed(probabilities, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> np.ndarray:
    """The probabilities that a token is drawn with: those of the model with a temperature, of the likeliest tokens."""
    changed = probabilities ** (1 / temperature)
    changed /= changed.sum()
    kept = np.zeros(len(changed), bool)
    for number, token in enumerate(np.argsort(-changed)):
        if (top_k and number == top_k) or changed[kept].sum() >= top_p:
            break
        kept[token] = True
    return np.where(kept, changed, 0.0) / changed[kept].sum()


# Random numbers


def splitmix64(seed: int, number: int) -> list[int]:
    """As the published C code has it, in Python's integers."""
    mask, found = 2**64 - 1, []
    for _ in range(number):
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        found.append(z ^ (z >> 31))
    return found


def test_random_bits_are_those_of_splitmix64():
    published = [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
    ]  # fmt: skip
    assert splitmix64(1234567, 5) == published
    for seed in (0, 1234567, 2**64 - 1):
        received = random_bits(tf.constant(seed, tf.uint64), tf.constant(np.arange(50), tf.uint64))
        assert received.numpy().tolist() == splitmix64(seed, 50)


def test_keys_of_seeds_and_draws_differ():
    seeds = [0, 1, 2, -1, 2**32, 2**32 + 1, 2**63 - 1, -(2**63)]
    found = keys(tf.constant(seeds, tf.int64)[:, None], tf.range(100)[None]).numpy()
    assert len(set(found.ravel().tolist())) == len(seeds) * 100


def test_random_numbers_are_uniform_in_each_of_their_arguments():
    """Of seeds, draws, positions and rounds in a row, in 50 intervals; and numbers side by side are unrelated."""
    seeds, draws, positions = np.meshgrid(np.arange(20), np.arange(20), np.arange(50), indexing="ij")
    bits = random_bits(
        keys(tf.constant(seeds.ravel(), tf.int64), tf.constant(draws.ravel())),
        tf.constant(positions.ravel(), tf.uint64),
    )
    for number in (0, 1):
        values = _uniform(random_bits(bits, tf.constant(number, tf.uint64))).numpy()
        assert values.min() >= 0 and values.max() < 1
        assert_drawn_from(collections.Counter((values * 50).astype(int).tolist()), dict.fromkeys(range(50), 1 / 50))
        cube = values.reshape(20, 20, 50) - 0.5
        for axis in range(3):
            following = np.mean(cube * np.roll(cube, 1, axis=axis)) * 12
            assert abs(following) < 4 / math.sqrt(cube.size)


# Tokens


@pytest.mark.parametrize("vocab_size", [4, 97, 1000, 8000, 9600])
def test_the_token_of_a_share_is_that_of_the_cumulative_distribution(vocab_size):
    rng = np.random.default_rng(vocab_size)
    probabilities = rng.dirichlet(np.full(vocab_size, 0.1), 500).astype(np.float32)
    probabilities[:, rng.random(vocab_size) < 0.3] = 0
    uniform = rng.random(500)
    received = draw(tf.constant(probabilities), tf.constant(uniform)).numpy()
    cumulative = np.cumsum(probabilities.astype(np.float64), axis=1)
    share = uniform * cumulative[:, -1]
    rows = np.arange(500)
    assert received.dtype == np.int32 and (probabilities[rows, received] > 0).all()
    end = cumulative[rows, received]
    assert (end >= share - 1e-6).all() and (end - probabilities[rows, received] <= share + 1e-6).all()


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2.0**-52])
def test_no_token_of_probability_zero_is_drawn_at_either_end(uniform):
    for size, places in ((5, [1]), (5, [2, 3]), (1000, [0]), (1000, [999]), (1000, [99, 100]), (1000, [350, 650])):
        probabilities = np.zeros([1, size], np.float32)
        probabilities[0, places] = 1 / 3
        assert draw(tf.constant(probabilities), tf.constant([uniform], tf.float64))[0] in places


LIMITS = [
    (0, 1.0), (1, 1.0), (3, 1.0), (7, 1.0), (100, 1.0), (0, 0.5), (0, 0.9), (0, 1e-6), (4, 0.5), (2, 0.99), (5, 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("spread", "vocab_size"), [(0.3, 40), (2.0, 40), (1.0, 600)])
def test_tokens_are_drawn_from_the_most_likely_with_their_probabilities(spread, vocab_size):
    """Rows of one distribution with other limits, together in one tensor."""
    number = 2000
    logits = np.random.default_rng(3).normal(0, spread, vocab_size)
    probabilities = np.exp(logits) / np.exp(logits).sum()
    top_k, top_p = (np.tile(values, number) for values in zip(*LIMITS, strict=True))
    rows = len(top_k)
    bits = keys(tf.constant(np.arange(rows), tf.int64), tf.constant(0))
    rounds = []

    def uniform(number, rows):
        rounds.append(int(number))
        return _uniform(random_bits(tf.gather(bits, rows), tf.cast(number, tf.uint64)))

    tokens = draw_of_most_likely(
        tf.constant(np.tile(probabilities, [rows, 1]), tf.float32), tf.constant(top_k, tf.int32),
        tf.constant(top_p, tf.float32), uniform,
    ).numpy()  # fmt: skip
    assert rounds == list(range(len(rounds))) and 2 < len(rounds) < 30
    for place, (k, p) in enumerate(LIMITS):
        expected = {token: value for token, value in enumerate(allowed(probabilities, 1.0, k, p)) if value > 0}
        counts = collections.Counter(tokens[place :: len(LIMITS)].tolist())
        if len(expected) > 10:
            assert_drawn_from(counts, expected)
        else:
            assert set(counts) <= set(expected)
            for token, value in expected.items():
                assert abs(counts[token] - number * value) <= 4 * math.sqrt(number * value * (1 - value))


def test_without_a_limit_there_is_one_round():
    rounds = []

    def uniform(number, rows):
        rounds.append(number)
        return tf.fill([3], tf.constant(0.3, tf.float64))

    draw_of_most_likely(tf.fill([3, 4], 0.25), tf.zeros([3], tf.int32), tf.ones([3]), uniform)
    assert rounds == [0]


# A search


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.5}, {"temperature": 2.0}, {"top_k": 2}, {"top_p": 0.7}], ids=str
)
@pytest.mark.parametrize("draws", [1, 3])
def test_draws_have_the_probabilities_of_all_that_could_be_written(draws, options):
    """χ² over every output of three tokens; scores are log P of the model whatever the options."""
    number = 3000 // draws
    (table,) = random_tables(batch=1, seed=7, vocab_size=5, spread=0.7)
    found = search(
        np.repeat(table[None], number, axis=0), beam_size=draws, max_length=3, alpha=0.0,
        selector=sampled(range(number), draws, **options),
    )  # fmt: skip
    of_model = every_hypothesis(table, 3)

    def probability(tokens) -> float:
        return math.prod(
            allowed(np.exp(log_probs(table, tokens[:place])), **options)[token] for place, token in enumerate(tokens)
        )  # fmt: skip

    counts = collections.Counter(tokens for row in found for tokens, _ in row)
    assert counts.total() == 3000
    for tokens, score in itertools.chain(*found):
        assert score == pytest.approx(of_model[tokens], abs=1e-5)
    assert_drawn_from(counts, {tokens: value for tokens in of_model if (value := probability(tokens)) > 0}, fewest=7)


def test_each_draw_of_a_sentence_is_independent_of_the_others():
    """Pairs of draws have the product of their probabilities."""
    number = 4000
    (table,) = random_tables(batch=1, seed=9, spread=0.7)
    found = search(
        np.repeat(table[None], number, axis=0), beam_size=2, max_length=1, alpha=0.0, selector=sampled(range(number), 2)
    )
    single = {tokens: math.exp(value) for tokens, value in every_hypothesis(table, 1).items()}
    pairs = {}
    for one, other in itertools.product(single, repeat=2):
        key = frozenset([one, other])
        pairs[key] = pairs.get(key, 0) + single[one] * single[other]
    assert_drawn_from(collections.Counter(frozenset(tokens for tokens, _ in row) for row in found), pairs)


def test_several_draws_at_once_are_those_drawn_one_at_a_time():
    """None takes the place of another: one that ended first, or is far less likely, is found like the others."""
    tables = random_tables(batch=20, seed=11)
    together = search(tables, beam_size=5, max_length=8, alpha=0.6, selector=sampled(range(20), 5, temperature=1.7))
    each = [
        search(tables, beam_size=1, max_length=8, alpha=0.6, selector=sampled(range(20), first=number, temperature=1.7))
        for number in range(5)
    ]
    for row, received in enumerate(together):
        expected = [pair for found in each for pair in found[row]]
        assert len(received) == len(expected) == 5
        for one, other in zip(received, sorted(expected, key=lambda pair: (pair[0][-1] != EOS, -pair[1])), strict=True):
            assert one[0] == other[0] and one[1] == pytest.approx(other[1], abs=1e-5)
    assert len({len(tokens) for row in together for tokens, _ in row}) > 5


def test_a_draw_depends_on_the_seed_of_its_sentence_alone():
    tables = np.repeat(random_tables(batch=6, seed=12, spread=0.7), 2, axis=0)
    seeds, maxima = [5, 5, 8, 9, 5, 5, 1, 2, 3, 3, -4, 2**40], [8, 8, 3, 3, 6, 6, 1, 1, 8, 8, 7, 7]
    limits = {
        "temperature": [1.0, 1, 2, 2, 0.5, 0.5, 1, 1, 1, 1, 1, 1],
        "top_k": [0, 0, 2, 2] * 3,
        "top_p": [1.0] * 6 + [0.8] * 6,
    }
    together = search(tables, beam_size=2, max_length=maxima, alpha=0.0, selector=sampled(seeds, 2, **limits))
    for row in range(12):
        own = sampled(seeds[row : row + 1], 2, **{name: values[row] for name, values in limits.items()})
        [alone] = search(tables[row : row + 1], beam_size=2, max_length=maxima[row], alpha=0.0, selector=own)
        assert [tokens for tokens, _ in together[row]] == [tokens for tokens, _ in alone]
    same = [together[row] == together[row + 1] for row in range(0, 12, 2)]
    assert same[0] and same[2] and same[4] and not same[1] and not same[5]


def test_a_longer_maximum_continues_what_was_drawn():
    tables = random_tables(batch=10, seed=13)
    tables[..., EOS] -= 3
    short, long = (
        search(tables, beam_size=1, max_length=most, alpha=0.0, selector=sampled(range(10))) for most in (3, 8)
    )
    assert [row[0][0][:3] for row in long] == [row[0][0] for row in short] and any(len(row[0][0]) > 3 for row in long)


def test_a_forbidden_token_is_never_drawn_and_the_others_keep_their_odds():
    number = 3000
    (table,) = random_tables(batch=1, seed=14, spread=0.7)
    hooks = {"scorers": [Forbidden(tf.fill([number], 1))], "selector": sampled(range(number))}
    found = search(np.repeat(table[None], number, axis=0), beam_size=1, max_length=3, alpha=0.0, **hooks)
    probabilities = {}
    for tokens in every_hypothesis(table, 3):
        if 1 not in tokens:
            each = [np.exp(log_probs(table, tokens[:place])) for place in range(len(tokens))]
            probabilities[tokens] = math.prod(p[token] / (1 - p[1]) for p, token in zip(each, tokens, strict=True))
    assert_drawn_from(collections.Counter(row[0][0] for row in found), probabilities)


def test_where_everything_is_forbidden_nothing_is_drawn():
    tables = random_tables(batch=2, seed=15)
    forbidden = [Forbidden(tf.constant([token, START])) for token in range(4)]
    nothing, other = search(
        tables, beam_size=2, max_length=4, alpha=0.0, scorers=forbidden, selector=sampled([1, 2], 2, top_k=2)
    )
    assert nothing == [] and len(other) == 2


def test_the_most_likely_token_alone_is_greedy_search():
    tables = random_tables(batch=20, seed=16)
    options = {"beam_size": 1, "max_length": 8, "alpha": 0.0}
    greedy = search(tables, **options)
    for limit in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-3}):
        found = search(tables, selector=sampled(range(20), **limit), **options)
        assert [row[0][0] for row in found] == [row[0][0] for row in greedy]


# Through a translator


def options_of(number: int, draws=1, seeds=None, **options) -> dict:
    """The inputs of `Translator.draw` for so many sentences; a value for all or a list."""
    found = {
        name: tf.constant(np.broadcast_to(value, [number]), DTYPES[name])
        for name, value in {**WHOLE, **options}.items()
    }
    seed = tf.constant(list(seeds if seeds is not None else range(number)), tf.int64)
    return {**found, "seed": seed, "draws": tf.constant(np.broadcast_to(draws, [number]), tf.int32)}


@functools.cache
def graph(translator: Translator):
    columns = {
        name: tf.TensorSpec([None], dtype) for name, dtype in {**DTYPES, "seed": tf.int64, "draws": tf.int32}.items()
    }
    return tf.function(
        lambda source, maxima, inputs: translator.draw(source, maxima, scope=inference, **inputs),
        input_signature=[tf.RaggedTensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32), columns],
        autograph=False,
    )


def drawn(translator: Translator, sources: list[list[int]], max_length=4, **options) -> list[list[tuple]]:
    """[(tokens, log P), …] of each sentence."""
    source, number = tf.ragged.constant(sources, tf.int32, row_splits_dtype=tf.int64), len(sources)
    sequences, scores = graph(translator)(
        source, tf.constant(np.broadcast_to(max_length, [number]), tf.int32), options_of(number, **options)
    )
    return [
        list(zip(map(tuple, rows), values, strict=True))
        for rows, values in zip(sequences.to_list(), scores.to_list(), strict=True)
    ]


SOURCES = [[4, EOS], [6, 5, 4, 6, 4, EOS], [5, 5, EOS]]


@pytest.mark.medium
def test_draws_of_a_transformer_have_its_probabilities():
    """χ² over all outputs of two tokens, for two sentences with other options. Final padding counts as none."""
    model, number = small(1), 4000
    options = [{}, {"temperature": 1.5, "top_p": 0.9}]
    both = {"temperature": [1.0, 1.5], "top_p": [1.0, 0.9]}
    found = drawn(Translator(model, None, DecodeConfig()), SOURCES[:2], max_length=2, draws=number, **both)
    for row, source, limits in zip(found, SOURCES, options, strict=False):
        logits = model((tf.constant([source] * VOCAB_SIZE), tf.constant([[BOS, token] for token in range(VOCAB_SIZE)])))
        of_model = tf.nn.softmax(tf.cast(logits, tf.float64)).numpy()
        probabilities = collections.Counter()
        for token, first in enumerate(allowed(of_model[0, 0], **limits)):
            for other, second in enumerate([1.0] if token == EOS else allowed(of_model[token, 1], **limits)):
                tokens = (token,) if token == EOS else (token, other)
                probabilities[tuple(np.trim_zeros(tokens, "b"))] += first * second
        assert_drawn_from(
            collections.Counter(tokens for tokens, _ in row),
            {key: value for key, value in probabilities.items() if value},
        )


def test_scores_of_draws_are_log_probabilities_of_the_model():
    model = Recurrent(seed=8)
    options = {"draws": [1, 9, 4], "temperature": [3.0, 1.0, 0.5], "top_k": [0, 3, 2]}
    found = drawn(Translator(model, None, DecodeConfig(alpha=1.0)), SOURCES, **options)
    assert [len(row) for row in found] == [1, 9, 4]
    for row, source in zip(found, SOURCES, strict=True):
        every = model.every(source, 4)
        for tokens, log_p in row:
            assert log_p == pytest.approx(every[tokens], abs=1e-5)


def test_a_draw_through_a_translator_is_that_of_the_search():
    """Draw n of the seed, in whatever row of whatever sub-batch it stands."""
    tables = random_tables(batch=1, seed=21)
    [together] = search(tables, beam_size=9, max_length=6, alpha=0.0, selector=sampled([77], 9))

    class Table(Recurrent):
        """A decoder of `tables`; its state is what was read."""

        def initial_state(self, memory, beams):
            return {"sentence": memory * 0, "read": tf.zeros([tf.shape(memory)[0], 0, beams], tf.int32)}

        def decode(self, tokens, memory, state, position, ancestors):
            assert tokens.shape[1] == 1
            before = state["read"][:, -1] if position > 0 else tokens
            where = tf.stack([tf.fill(tokens.shape, position), before, tokens], axis=2)
            return tf.gather_nd(tables[0], where), {
                **state,
                "read": tf.concat([state["read"], tokens[:, None]], axis=1),
            }

    translator = Translator(Table(seed=1), None, DecodeConfig())
    tf.config.run_functions_eagerly(True)
    try:
        [found] = drawn(translator, [[4, EOS]], max_length=6, draws=9, seeds=[77])
    finally:
        tf.config.run_functions_eagerly(False)
    written = [(tuple(np.trim_zeros(tokens, "b")), score) for tokens, score in together]
    by_score = sorted(found, key=lambda pair: (pair[0][-1:] != (EOS,), -pair[1]))
    assert [tokens for tokens, _ in by_score] == [tokens for tokens, _ in written]
    np.testing.assert_allclose([score for _, score in by_score], [score for _, score in written], atol=1e-5)


@pytest.mark.medium
def test_a_sentence_alone_has_the_draws_that_it_has_among_others():
    """In sub-batches of other sizes, among sentences of other lengths and options, with more or fewer draws."""
    rng, model = np.random.default_rng(5), Recurrent(seed=9)
    number = 64
    sources = [[*rng.integers(4, 7, rng.integers(1, 9)).tolist(), EOS] for _ in range(number)]
    options = {
        "max_length": rng.integers(1, 9, number), "draws": rng.integers(0, 12, number),
        "seeds": rng.integers(-(2**63), 2**63 - 1, number), "temperature": rng.choice([0.5, 1.0, 2.0], number),
        "top_k": rng.choice([0, 2, 3], number), "top_p": rng.choice([0.5, 0.9, 1.0], number),
    }  # fmt: skip
    together = drawn(Translator(model, None, DecodeConfig(search_rows=7, search_cores=3)), sources, **options)
    alone = Translator(model, None, DecodeConfig(search_cores=1))
    for row in range(0, number, 5):
        own = {name: values[row : row + 1] for name, values in options.items()}
        [found] = drawn(alone, sources[row : row + 1], **{**own, "draws": own["draws"] + 3})
        kept = found[: len(together[row])]
        assert [tokens for tokens, _ in kept] == [tokens for tokens, _ in together[row]]
        np.testing.assert_allclose([score for _, score in kept], [score for _, score in together[row]], atol=1e-5)
    assert [len(row) for row in together] == options["draws"].tolist()
    [backwards] = [drawn(alone, sources[::-1], **{name: values[::-1] for name, values in options.items()})]
    expected = [[tokens for tokens, _ in row] for row in together]
    assert [[tokens for tokens, _ in row] for row in backwards[::-1]] == expected


def test_sentences_are_divided_into_few_draws_at_a_time():
    rows = divided({"seed": tf.constant([7, 8, 9, 10], tf.int64)}, tf.constant([9, 0, 4, 1]))
    expected = {"seed": [7, 7, 7, 9, 10], "draws": [4, 4, 1, 4, 1], "first": [0, 4, 8, 0, 0]}
    assert {name: values.numpy().tolist() for name, values in rows.items()} == expected


def test_a_draw_repeats_no_n_gram_where_the_configuration_forbids_it():
    found = drawn(
        Translator(Recurrent(seed=10), None, DecodeConfig(no_repeat_ngram=2)), [[5, EOS]], max_length=9, draws=200
    )
    pairs = [list(itertools.pairwise(tokens)) for tokens, _ in found[0]]
    assert all(len(each) == len(set(each)) for each in pairs) and max(map(len, pairs)) > 5


@pytest.mark.medium
def test_a_translator_samples_text_by_the_numbers_of_lines():
    translator = Translator(Recurrent(seed=11), Numbers(), DecodeConfig(extra_length=3, max_input=4))
    signatures, lines = Signatures(translator), ["5 4", "", "6 6 4", "5 4"]
    found = sampler(signatures, SampleConfig(draws=6, seed=3))(
        tf.constant(lines), tf.constant([5, 6, 7, 2**33], tf.int64)
    )
    assert found["text"].shape == found["score"].shape == (4, 6)
    assert set(found["text"][1].numpy()) == {b""} and not found["score"][1].numpy().any()
    assert found["text"][0].numpy().tolist() != found["text"][3].numpy().tolist()
    options = {"draws": 6, "seeds": [3 * 2**32 + 5], "max_length": 3 + 3}
    [expected] = drawn(translator, [[5, 4, EOS]], **options)
    wanted = [list(tokens) for tokens, _ in expected]
    assert [Numbers.written("5 4", text, 3) for text in found["text"][0].numpy()] == wanted
    np.testing.assert_allclose(found["score"][0], [score for _, score in expected], atol=1e-5)
    of_lines = sampler(signatures, SampleConfig(draws=2, temperature=2.0))
    many, again = (
        [result["text"] for result in translate_lines(of_lines, lines * 9, first=0, **sizes)]
        for sizes in ({"batch_size": 5}, {"read_ahead": 7})
    )
    assert many == again and len({tuple(texts) for texts in many[::4]}) > 3


def test_a_sampler_has_the_options_of_its_configuration_and_a_seed_for_each_line():
    def sample(**inputs):
        seen.update({name: values.numpy().tolist() for name, values in inputs.items()})
        return {"text": 1, "score": 2, "truncated": 3, "error": tf.constant(["", wrong])}

    seen, wrong, config = {}, "", SampleConfig(draws=3, seed=2, temperature=0.5, top_k=7, top_p=0.25)
    draws = sampler(types.SimpleNamespace(sample=sample), config)
    lines = (tf.constant(["a", "b"]), tf.constant([4, 9], tf.int64))
    assert draws(*lines) == {"text": 1, "score": 2, "truncated": 3}
    assert seen == {
        "text": [b"a", b"b"], "seed": [2 * 2**32 + 4, 2 * 2**32 + 9], "draws": [3, 3], "temperature": [0.5, 0.5],
        "top_k": [7, 7], "top_p": [0.25, 0.25], "max_length": [0, 0],
    }  # fmt: skip
    wrong = "top_k: expected less. "
    with pytest.raises(ValueError, match="top_k: expected less. The sentence is: 'b'."):
        draws(*lines)
