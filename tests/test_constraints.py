"""Phrases that must appear: against a trie of dictionaries, fairseq's cases, and every hypothesis of toy
vocabularies.
"""

import copy
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from test_beam_search import (
    ALPHAS,
    EOS,
    assert_alone_as_together,
    assert_same,
    constant_tables,
    every_hypothesis,
    history_step,
    log_probs,
    random_tables,
    ranked,
    score_of,
    search,
)

from t2t_keras.decoding import constraints
from t2t_keras.decoding.avoided import Avoided
from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.constraints import Banks, _in_turn
from t2t_keras.decoding.search_hooks import Prefix


class Trie:
    """What a hypothesis has written of its phrases, by a trie of dictionaries that is built anew at every token."""

    def __init__(self, phrases, ordered: bool = False):
        self.open, self.ordered = [tuple(phrase) for phrase in phrases], ordered
        self.path, self.done = (), []

    def nodes(self) -> set:
        """The paths of the trie of phrases that may be continued now."""
        usable = self.open[:1] if self.ordered else self.open
        return {()} | {phrase[:size] for phrase in usable for size in range(len(phrase) + 1)}

    def whole(self) -> tuple:
        """The longest phrase that the path begins with."""
        usable = self.open[:1] if self.ordered else self.open
        return max((phrase for phrase in usable if self.path[: len(phrase)] == phrase), key=len, default=())

    def read(self, token: int) -> None:
        self.path = (*self.path, token)
        while self.path not in self.nodes():
            if whole := self.whole():
                self.open.remove(whole)
                self.done.append(whole)
            self.path = self.path[len(whole) or 1 :]

    def read_all(self, tokens) -> "Trie":
        for token in tokens:
            self.read(token)
        return self

    @property
    def bank(self) -> int:
        return sum(map(len, self.done)) + len(self.path)

    @property
    def completed(self) -> int:
        """As fairseq counts: of the path, only a phrase that is all of it."""
        return len(self.done) + bool(self.path and self.whole() == self.path)

    @property
    def finished(self) -> bool:
        return not copy.deepcopy(self).read_all([None]).open


def apart(phrases, tokens, ordered: bool) -> bool:
    """Whether the phrases occur in the tokens, each in a place of its own: every choice of places is tried."""
    places = []
    for phrase in phrases:
        ranges = (range(first, first + len(phrase)) for first in range(len(tokens)))
        places.append([each for each in ranges if tokens[each.start : each.stop] == tuple(phrase)])

    def fit(one: range, other: range) -> bool:
        return one[-1] < other[0] or not ordered and other[-1] < one[0]

    return any(all(itertools.starmap(fit, itertools.combinations(chosen, 2))) for chosen in itertools.product(*places))


def padded(rows) -> tf.Tensor:
    """[B, C, L] int32 of lists of phrases."""
    width = max((len(row) for row in rows), default=0)
    length = max((len(phrase) for row in rows for phrase in row), default=0)
    found = np.zeros([len(rows), width, length], np.int32)
    for row, phrases in enumerate(rows):
        for place, phrase in enumerate(phrases):
            found[row, place, : len(phrase)] = phrase
    return tf.constant(found)


def banks(rows, ordered=False, beam_size: int = 4, max_length=1000) -> Banks:
    own, longest = (tf.constant(np.broadcast_to(x, [len(rows)])) for x in (ordered, max_length))
    return Banks(padded(rows), own, tf.cast(longest, tf.int32), beam_size, EOS)


MANY = [[1, 2, 3], [1, 3], [1, 4], [4, 5, 6, 7], [1], [4, 5]]
ALL = [1, 2, 3, 1, 3, 1, 4, 4, 5, 6, 7, 1, 4, 5]
# Phrases, tokens; bank, number of phrases, and whether these are all: tests/test_constraints.py of fairseq.
UNORDERED = [
    (MANY, [], 0, 0, False),
    (MANY, [1, 2], 2, 0, False),
    (MANY, [1, 2, 94], 1, 1, False),
    (MANY, [1, 3, 999, 1, 4], 4, 2, False),
    (MANY, [1, 3, 999, 1, 4, 999], 4, 2, False),
    (MANY, [4, 5, 6, 8], 2, 1, False),
    (MANY, ALL, 14, 6, True),
    (MANY, [1, 2, 3, 999, *ALL[3:], 117], 14, 6, True),
    ([[1], [2, 3]], [1, 1], 1, 1, False),
    ([[1, 2], [1, 2]], [1, 2, 1, 2], 4, 2, True),
    ([[1, 2], [1, 2]], [1, 2, 1, 2, 1], 4, 2, True),
    ([[1, 2], [3, 4]], [1, 2, 3, 4, 5], 4, 2, True),
]
ORDERED = [
    (MANY, [], 0, 0, False),
    (MANY, [1, 2], 2, 0, False),
    (MANY, [1, 2, 94], 0, 0, False),
    (MANY, [1, 3, 999, 1, 4], 0, 0, False),
    (MANY, [1, 2, 3, 999, 999], 3, 1, False),
    (MANY, [1, 2, 3, 77, 1, 3, 1], 6, 2, False),
    (MANY, ALL, 14, 6, True),
    (MANY, [1, 2, 999, 1, 2, 3, 999, *ALL[3:], 117], 14, 6, True),
    ([[1], [2, 3]], [1, 1], 1, 1, False),
    ([[1, 2], [1, 2]], [1, 2, 1, 2], 4, 2, True),
    ([[1, 2], [1, 2]], [1, 2, 1, 2, 1], 4, 2, True),
    ([[1, 2], [3, 4]], [1, 2, 3, 4, 5], 4, 2, True),
]


@pytest.mark.parametrize("case", [(*case, False) for case in UNORDERED] + [(*case, True) for case in ORDERED])
def test_the_progress_of_fairseqs_cases(case):
    phrases, tokens, bank, completed, finished, ordered = case
    trie = Trie(phrases, ordered).read_all(tokens)
    assert (trie.bank, trie.completed, trie.finished) == (bank, completed, finished)
    given, progress, _ = banks([phrases], ordered, beam_size=1).state
    for token in tokens:
        progress = constraints.advance_hypotheses(given, progress, tf.constant([[token]]))
    one_more = tf.nest.map_structure(lambda x: x[:, :, None], progress)
    assert constraints.bank(given, one_more).numpy().tolist() == [[[bank]]]
    given = padded([phrases]), tf.constant([ordered]), tf.constant([[tokens]], tf.int32)
    assert constraints.met(*given).numpy().tolist() == [[finished]]


def draw_phrases(draw, vocabulary: int, most: int = 4) -> list[list[int]]:
    return [draw.integers(1, vocabulary + 1, draw.integers(1, 5)).tolist() for _ in range(draw.integers(0, most + 1))]


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 6])
def test_the_progress_in_graphs_equals_a_trie_of_dictionaries_on_random_tokens(vocabulary):
    """Beside each other: rows of different phrases, ordered or not, and in each row several hypotheses."""
    draw = np.random.default_rng(vocabulary)
    rows, beams, length = 60, 3, 16
    phrases, ordered = [draw_phrases(draw, vocabulary) for _ in range(rows)], draw.random(rows) < 0.4
    tokens = draw.integers(1, vocabulary + 2, [rows, beams, length]).astype(np.int32)
    tries = [[Trie(phrases[row], ordered[row]) for _ in range(beams)] for row in range(rows)]
    given, progress, _ = banks(phrases, ordered, beams).state
    advance = tf.function(constraints.advance_hypotheses)
    for position in range(length):
        progress = advance(given, progress, tf.constant(tokens[:, :, position]))
        received = constraints.bank(given, tf.nest.map_structure(lambda x: x[:, :, None], progress))[..., 0].numpy()
        for row, beam in itertools.product(range(rows), range(beams)):
            trie = tries[row][beam]
            trie.read(int(tokens[row, beam, position]))
            assert received[row, beam] == trie.bank, (phrases[row], tokens[row, beam, : position + 1])
    met = constraints.met(padded(phrases), tf.constant(ordered), tf.constant(tokens)).numpy()
    for row, beam in itertools.product(range(rows), range(beams)):
        backwards = Trie([phrase[::-1] for phrase in phrases[row][::-1]], ordered[row])
        expected = tries[row][beam].finished or backwards.read_all(tokens[row, beam, ::-1].tolist()).finished
        assert met[row, beam] == expected, (phrases[row], tokens[row, beam])
    assert sum(met[row].any() for row in range(rows) if phrases[row]) > 5


def test_what_a_trie_finds_whole_is_there_each_phrase_in_a_place_of_its_own():
    draw = np.random.default_rng(0)
    both = 0
    for _ in range(3000):
        phrases, ordered = draw_phrases(draw, 3, most=3), bool(draw.random() < 0.5)
        tokens = tuple(draw.integers(1, 4, draw.integers(0, 11)).tolist())
        if Trie(phrases, ordered).read_all(tokens).finished:
            assert apart(phrases, tokens, ordered), (phrases, tokens, ordered)
            both += len(phrases) > 1
    assert both > 50


@pytest.mark.parametrize("kind", ["ordered", "one", "disjoint", "repeated"])
def test_a_trie_finds_all_that_is_there_unless_different_phrases_overlap(kind):
    draw = np.random.default_rng(1)
    there = 0
    for _ in range(3000):
        phrases = draw_phrases(draw, 2)[:2] or [[1, 1, 2]]
        if kind == "one":
            phrases = phrases[:1]
        elif kind == "disjoint":
            phrases = [phrases[0], [token + 2 for token in phrases[-1]]]
        elif kind == "repeated":
            phrases = phrases[:1] * int(draw.integers(1, 4))
        tokens = tuple(draw.integers(1, 5 if kind == "disjoint" else 3, draw.integers(0, 13)).tolist())
        expected = apart(phrases, tokens, kind == "ordered")
        assert Trie(phrases, kind == "ordered").read_all(tokens).finished == expected, (phrases, tokens)
        there += expected
    assert 100 < there < 2900


def test_phrases_that_overlap_are_found_where_both_are_there():
    """Every choice of two phrases and of places: what is found from one of the two ends is there, and all of it.

    Story: of 7 8 9 and 8, only the first was found in 7 8 5 7 8 9.
    """
    draw = np.random.default_rng(2)
    phrases = [[[7, 8, 9], [8]], [[1, 2], [2, 3]]]
    tokens = [[7, 8, 5, 7, 8, 9, 0, 0, 0, 0], [1, 2, 3, 1, 2, 0, 0, 0, 0, 0]]
    for _ in range(2000):
        vocabulary = draw.integers(2, 5)
        phrases.append([draw.integers(1, vocabulary + 1, draw.integers(1, 5)).tolist() for _ in range(2)])
        tokens.append(draw.integers(1, vocabulary + 1, 10).tolist())
    received = constraints.met(padded(phrases), tf.fill([len(tokens)], False), tf.constant(tokens)[:, None])[:, 0]
    expected = [apart(row, tuple(written), False) for row, written in zip(phrases, tokens, strict=True)]
    assert received.numpy().tolist() == expected and expected[:2] == [True, True] and 300 < sum(expected) < 1700


def test_a_sub_word_that_goes_on_from_a_shorter_tail_has_its_bank_by_hand():
    """Phrase 1 2 1 4. After 1 2 1, 4 makes four sub-words, 2 makes two (1 2), 1 makes one, and 5 and the end none.

    Story: 2 had the bank of a word in no phrase.
    """
    selector = banks([[[1, 2, 1, 4]]], beam_size=1)
    phrases, progress, _ = selector.state
    for token in (1, 2, 1):
        progress = constraints.advance_hypotheses(phrases, progress, tf.constant([[token]]))
    given = tf.constant([[[5, 2, 4, EOS]]]), tf.constant([[[True]]])
    tokens, found, allowed = (each.numpy()[0, 0] for each in selector._candidates(phrases, progress, *given))
    assert dict(zip(tokens[allowed], found[allowed], strict=True)) == {5: 0, 2: 2, 4: 4, 1: 1}


def test_some_phrases_are_in_order_and_others_anywhere():
    """Of different words: those in order are if they can be crossed out from left to right."""
    draw, number, rows = np.random.default_rng(4), 4, 400
    ordered = draw.random([rows, number]) < 0.6
    tokens = draw.integers(1, number + 1, [rows, 9]).astype(np.int32)

    def expected(row: int) -> bool:
        written = iter(tokens[row].tolist())
        in_order = all(word in written for word in np.flatnonzero(ordered[row]) + 1)  # `in` reads up to the word.
        return in_order and {1, 2, 3, 4} <= set(tokens[row].tolist())

    phrases = padded([[[word] for word in range(1, number + 1)]] * rows)
    found = constraints.met(phrases, tf.constant(ordered), tf.constant(tokens)[:, None])[:, 0].numpy().tolist()
    assert found == [expected(row) for row in range(rows)] and 50 < sum(found) < 300


@pytest.mark.parametrize(("text", "expected"), [
    ("a\tb\tc", [1, 1, 1]), ("a\nb", [1, 1]), ("a\n\nb\tc", [1, 0, 0]), ("\n\na\tb", [0, 0]), ("", []),
    (" a \t \t b\n \nc\n\nd", [1, 1, 0, 0]),
])  # fmt: skip
def test_phrases_after_an_empty_line_may_be_anywhere(text, expected):
    for ordered in (True, False):
        found = constraints.in_order(tf.constant([text]), tf.constant([ordered]), len(expected))
        assert found.numpy().tolist() == [[bool(each) and ordered for each in expected]]


# The search


def meets(phrases, tokens, ordered) -> bool:
    return Trie(phrases, ordered).read_all(tokens).finished


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("ordered", [False, True])
def test_a_wide_beam_finds_the_best_of_all_hypotheses_with_their_phrases(alpha, ordered):
    rows = [
        [[1]], [[2, 1]], [[1], [2]], [[2], [1]], [[1, 1], [2]], [[0 + 1, 2], [2, 1]], [[1], [1]], [[1, 1, 2]],
        [[1], [1, 2]], [], [[2, 2, 2, 2]], [[1, 2], [2, 1], [1]], [[2, 1, 2, 1, 2]],
    ]  # fmt: skip
    tables = random_tables(batch=len(rows), seed=101)
    hooks = {"selector": banks(rows, ordered, 162, 5)}
    found = search(tables, beam_size=162, max_length=5, alpha=alpha, **hooks)
    for received, table, phrases in zip(found, tables, rows, strict=True):
        ended = {tokens: p for tokens, p in every_hypothesis(table, 5).items() if tokens[-1] == EOS}
        every = {tokens: p for tokens, p in ended.items() if meets(phrases, tokens[:-1], ordered)}
        expected = ranked(every, alpha)
        assert_same(received[: len(expected)], expected)
        # The others did not end, and have all phrases that room was left for; of three phrases there is none, and of
        # five tokens.
        assert not any(tokens[-1] == EOS for tokens, _ in received[len(expected) :])
    assert [bool(received[0][0][-1] == EOS) for received in found[-2:]] == [False, False]


@pytest.mark.parametrize(("beam_size", "expected"), [(1, (1, 1, 1, 1, EOS)), (2, (1, EOS)), (4, (1, EOS))])
def test_what_has_its_phrases_may_end_however_unlikely_the_end_is_by_hand(beam_size, expected):
    """P(end) = 0.001 and two words, α = 0: the best ends after the phrase. Greedy search ends where it must."""
    tables = constant_tables([0, 0.6, 0.399, 0.001])
    selector = banks([[[1]]], beam_size=beam_size, max_length=5)
    [received] = search(tables, beam_size=beam_size, max_length=5, alpha=0.0, selector=selector)
    log_p = sum(math.log({1: 0.6, 2: 0.399, EOS: 0.001}[token]) for token in expected)
    assert received[0] == (expected, pytest.approx(log_p, abs=1e-5))


def draw_rows(batch: int, seed: int, most: int = 3):
    draw = np.random.default_rng(seed)
    rows = [
        [draw.choice([1, 2, 4, 5], draw.integers(1, 4)).tolist() for _ in range(draw.integers(0, most + 1))]
        for _ in range(batch)
    ]
    return rows, draw.random(batch) < 0.3


@pytest.mark.parametrize("beam_size", [1, 2, 5, 8])
def test_every_phrase_that_has_room_is_written_by_a_beam_of_any_width(beam_size):
    rows, ordered = draw_rows(40, seed=beam_size)
    tables = random_tables(batch=40, seed=102, vocab_size=6, length=16)
    maxima = np.array([sum(map(len, phrases)) + 1 + row % 4 for row, phrases in enumerate(rows)])
    selector = banks(rows, ordered, beam_size, maxima)
    found = search(tables, beam_size=beam_size, max_length=maxima, alpha=0.6, selector=selector)
    for received, table, phrases, own in zip(found, tables, rows, ordered, strict=True):
        assert received[0][0][-1] == EOS or not phrases
        for tokens, score in received:
            assert tokens[-1] != EOS or meets(phrases, tokens[:-1], own)
            total = sum(log_probs(table, tokens[:place])[token] for place, token in enumerate(tokens))
            assert score == pytest.approx(score_of(tokens, total, 0.6), abs=1e-5)
        assert len({tokens for tokens, _ in received}) == len(received)


def test_phrases_that_have_no_room_end_no_translation_and_are_said_to_be_missing():
    rows = [[[1, 2, 4, 5]], [[1], [2], [4]], [[1, 2]], [[1, 2, 4]]]
    tables = random_tables(batch=4, seed=103, vocab_size=6)
    found = search(tables, beam_size=4, max_length=3, alpha=0.6, selector=banks(rows, max_length=3))
    assert [received[0][0][-1] == EOS for received in found] == [False, False, True, False]
    best = np.zeros([4, 1, 3], np.int32)
    for row, received in enumerate(found):
        best[row, 0] = (*received[0][0], 0, 0, 0)[:3]
    expected = [[meets(phrases, best[row, 0].tolist(), False)] for row, phrases in enumerate(rows)]
    assert constraints.met(padded(rows), tf.zeros([4], tf.bool), tf.constant(best)).numpy().tolist() == expected
    assert expected[0] == [False] and expected[2] == [True]


@pytest.mark.parametrize("beam_size", [1, 2, 6, 20])
def test_no_phrases_change_nothing(beam_size):
    tables = random_tables(batch=12, seed=104, vocab_size=7)
    options = {"beam_size": beam_size, "max_length": 7, "alpha": 0.6}
    expected = search(tables, **options)
    assert search(tables, selector=banks([[]] * 12, beam_size=beam_size), **options) == expected
    beside = banks([[], [[1, 2]]] + [[]] * 10, beam_size=beam_size)  # In the batch of one that has a phrase.
    found = search(tables, selector=beside, **options)
    assert [row for row in range(12) if found[row] != expected[row]] in ([], [1])
    # After a prefix that is forced, and which all hooks see.
    prefix = Prefix(tf.constant([[4]] * 12))
    expected = search(tables, scorers=[prefix], **options)
    assert search(tables, scorers=[prefix], selector=banks([[]] * 12, beam_size=beam_size), **options) == expected


def test_a_forced_prefix_counts_for_the_phrases():
    tables = random_tables(batch=3, seed=105, vocab_size=6)
    rows, prefix = [[[1, 2]], [[2, 4]], [[5]]], Prefix(tf.constant([[1, 2]] * 3))
    hooks = {"scorers": [prefix], "selector": banks(rows, beam_size=3, max_length=8)}
    found = search(tables, beam_size=3, max_length=8, alpha=0.6, **hooks)
    for received, phrases in zip(found, rows, strict=True):
        assert all(tokens[:2] == (1, 2) for tokens, _ in received) and received[0][0][-1] == EOS
        assert meets(phrases, received[0][0][:-1], False)
    hooks = {"scorers": [prefix], "selector": banks(rows, beam_size=3, max_length=4)}
    tight = search(tables, beam_size=3, max_length=4, alpha=0.6, **hooks)
    assert [received[0][0] for received in tight][1:] == [(1, 2, 4, EOS), (1, 2, 5, EOS)]


def test_candidates_are_selected_from_all_banks_in_turn_by_hand():
    totals = tf.constant([[-1.0, -2.0, -3.0, -4.0, -math.inf, -5.0, -9.0], [-3.0, -2.0, -1.0, -4.0, -6.0, -5.0, -7.0]])
    given = tf.constant([[0, 0, 0, 2, 9, 1, 2], [7, 7, 7, 7, 7, 7, 7]])
    assert _in_turn(totals, given, 5).numpy().tolist() == [[3, 5, 0, 6, 1], [2, 1, 0, 3, 5]]
    huge = tf.constant([[0, 0, 0, 2**30, 9, 1, 2**30], [2**30] * 7])  # Story: turns were products, which overflowed.
    assert _in_turn(totals, huge, 5).numpy().tolist() == [[3, 5, 0, 6, 1], [2, 1, 0, 3, 5]]
    assert _in_turn(totals, given, 7).numpy().tolist() == [[3, 5, 0, 6, 1, 2, 4], [2, 1, 0, 3, 5, 4, 6]]


def test_a_translation_without_its_phrase_is_one_by_hand():
    """The end has probability 1/2, words 1 and 2 have 3/8 and 1/8. With 2, α = 0: (2, end) has 1/16, (1, 2, end) and
    (2, 1, end) 3/128.
    """
    tables = constant_tables([0, 3 / 8, 1 / 8, 1 / 2])
    [received] = search(tables, beam_size=4, max_length=3, alpha=0.0, selector=banks([[[2]]], max_length=3))
    assert received[0] == ((2, EOS), pytest.approx(math.log(1 / 16), abs=1e-5))
    assert {tokens for tokens, _ in received[1:3]} == {(1, 2, EOS), (2, 1, EOS)}
    assert [score for _, score in received[1:3]] == pytest.approx([math.log(3 / 128)] * 2, abs=1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("beam_size", [1, 4])
def test_sentences_of_different_phrases_give_what_each_gives_alone(beam_size):
    """In one graph that knows no size, with phrases to write and to avoid, where sentences leave at their maxima."""
    batch, draw, spelling = 14, np.random.default_rng(3), [b"", b" b", b" c", b"", b" e", b" f"]
    weights = draw.normal(0, 2, [101, 6]).astype(np.float32)

    def run(start, max_length, tokens, ordered, forbidden):
        state = {"read": tf.zeros([tf.shape(start)[0], 0, beam_size], tf.int32)}
        hooks = {"scorers": [Avoided(forbidden, max_length, spelling)]}
        hooks["selector"] = Banks(tokens, ordered, max_length, beam_size, EOS)
        options = {"eos_id": EOS, "beam_size": beam_size, "max_length": max_length, "alpha": 0.6}
        return beam_search(history_step(weights), state, start, **options, **hooks)

    rows, ordered = draw_rows(batch, seed=9)
    phrases = (" ".join(draw.choice(list("bcef"), draw.integers(1, 3))) if row % 2 else "" for row in range(batch))
    forbidden = tf.constant([[phrase] for phrase in phrases])
    starts, maxima = tf.range(batch) % 6, tf.constant(draw.integers(1, 14, batch), tf.int32)

    def rows_of(chosen: slice) -> list[tf.Tensor]:
        own = padded(rows[chosen]), tf.constant(ordered[chosen]), forbidden[chosen]
        return [starts[chosen], maxima[chosen], *own]

    assert_alone_as_together(run, batch, rows_of)
