"""Groups of beams against the rule of the paper with dictionaries."""

import numpy as np
import pytest
import tensorflow as tf
from test_beam_search import (
    EOS,
    assert_alone_as_together,
    assert_same,
    constant_tables,
    history_step,
    log_probs,
    random_tables,
    ranked,
    score_of,
    search,
    search_that_never_stops_early,
)
from test_search_hooks import Forbidden, Forgetful, NoRepeatedPair

from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.diverse_beams import DiverseBeams
from t2t_keras.decoding.search_hooks import Best


def in_groups(
    table, beam_size: int, groups: int, diversity: float, max_length: int, alpha: float, change=None
) -> list[tuple]:
    """Groups of beams, every step taken, with dictionaries."""
    size = beam_size // groups
    running, ended = [{(): 0.0} for _ in range(groups)], [{} for _ in range(groups)]
    for _ in range(max_length):
        written = []
        for group in range(groups):
            candidates, chosen_by = {}, {}
            for tokens, log_p in running[group].items():
                values = log_probs(table, tokens)
                for token, value in enumerate(change(tokens, values) if change else values):
                    if value > -np.inf:
                        penalty = diversity * (written.count(token) if token != EOS else 0)
                        candidates[*tokens, token] = log_p + value
                        chosen_by[*tokens, token] = log_p + value - penalty
            best = sorted(candidates, key=chosen_by.get, reverse=True)[: 2 * size if size > 1 else 1]
            ended[group] |= {tokens: candidates[tokens] for tokens in best if tokens[-1] == EOS}
            unfinished = [tokens for tokens in best if tokens[-1] != EOS][:size]
            running[group] = {tokens: candidates[tokens] for tokens in unfinished}
            written += [tokens[-1] for tokens in running[group]]
    found = [pair for group in range(groups) for pair in ranked(ended[group] | running[group], alpha)[:size]]
    return sorted(found, key=lambda pair: (pair[0][-1] != EOS, -pair[1]))


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(("beam_size", "groups"), [(2, 2), (4, 2), (6, 2), (6, 3), (5, 5), (4, 1)])
def test_groups_equal_the_rule_of_the_paper(beam_size, groups, alpha):
    tables = random_tables(batch=30, seed=beam_size + groups, vocab_size=7)
    selector = DiverseBeams(groups, 0.7, EOS)
    found = search(tables, beam_size=beam_size, max_length=7, alpha=alpha, selector=selector)
    for received, table in zip(found, tables, strict=True):
        assert_same(received, in_groups(table, beam_size, groups, 0.7, 7, alpha))


def test_places_that_a_group_lacks_go_to_its_own_unfinished_hypotheses():
    tables = random_tables(batch=60, seed=8, vocab_size=6)
    tables[..., EOS] -= 1.5
    found = search(tables, beam_size=6, max_length=4, alpha=0.6, selector=DiverseBeams(2, 1.5, EOS))
    for received, table in zip(found, tables, strict=True):
        assert_same(received, in_groups(table, 6, 2, 1.5, 4, 0.6))
    assert len({sum(tokens[-1] == EOS for tokens, _ in received) for received in found}) > 3


@pytest.mark.parametrize("vocab_size", [4, 5])
def test_a_vocabulary_of_fewer_tokens_than_candidates_is_searched_by_the_same_rule(vocab_size):
    tables = random_tables(batch=20, seed=3, vocab_size=vocab_size)
    found = search(tables, beam_size=8, max_length=4, alpha=0.6, selector=DiverseBeams(4, 0.7, EOS))
    for received, table in zip(found, tables, strict=True):
        assert_same(received, in_groups(table, 8, 4, 0.7, 4, 0.6))


def test_one_group_is_beam_search_and_groups_that_avoid_nothing_are_one_search_several_times():
    tables = random_tables(batch=20, seed=9, vocab_size=6)
    options = {"max_length": 7, "alpha": 0.6}
    one_group = search(tables, beam_size=4, selector=DiverseBeams(1, 5.0, EOS), **options)
    assert one_group == search(tables, beam_size=4, **options)
    twice = search(tables, beam_size=6, selector=DiverseBeams(2, 0.0, EOS), **options)
    for both, one in zip(twice, search(tables, beam_size=3, **options), strict=True):
        assert_same(both, sorted(one * 2, key=lambda pair: (pair[0][-1] != EOS, -pair[1])))


def test_the_first_group_is_a_search_of_its_own():
    """Whatever other groups find, and however good it is, it takes no place of the first."""
    tables, displaced = random_tables(batch=30, seed=10, vocab_size=6), 0
    found = search(tables, beam_size=4, max_length=7, alpha=0.6, selector=DiverseBeams(2, 2.0, EOS))
    for received, table in zip(found, tables, strict=True):
        own, of_four = (dict(search_that_never_stops_early(table, beams, 7, 0.6)) for beams in (2, 4))
        assert own.keys() <= dict(received).keys()
        # Without groups of their own, four that the first group ends would leave the second none.
        displaced += len(of_four.keys() & dict(received).keys()) < 4
    assert displaced > 10


def test_a_diversity_by_hand():
    """Words 0, 1 and 2 have 0.5, 0.25 and 0.15, the end 0.1; three groups of one beam, one token. Scores are log P of
    the model.

    With λ = 1 the second group writes word 1, for log 0.5 - 1 = -1.69 is below log 0.25 = -1.39; the third writes word
    0, for -1.69 is above log 0.15 = -1.90. With λ = 1.5 it writes word 2.
    """
    tables = constant_tables([0.5, 0.25, 0.15, 0.1])
    received = search(tables, beam_size=3, max_length=1, alpha=0.0, selector=DiverseBeams(3, 1.0, EOS))[0]
    assert_same(received, [((0,), np.log(0.5)), ((0,), np.log(0.5)), ((1,), np.log(0.25))])
    received = search(tables, beam_size=3, max_length=1, alpha=0.0, selector=DiverseBeams(3, 1.5, EOS))[0]
    assert_same(received, [((0,), np.log(0.5)), ((1,), np.log(0.25)), ((2,), np.log(0.15))])


def test_groups_stop_at_the_first_step_at_which_none_can_find_better():
    """P(end) = 0.9 and one word; two groups of one beam: greedy search ends at once."""
    tables, calls = constant_tables([0.1, 0, 0, 0.9]), []

    class Counted(DiverseBeams):
        def __call__(self, *arguments):
            calls.append(0)
            return super().__call__(*arguments)

    search(tables, beam_size=2, max_length=40, alpha=0.0, selector=Counted(2, 0.5, EOS))
    assert len(calls) == 1
    search(tables, beam_size=4, max_length=40, alpha=0.0, selector=Counted(2, 0.5, EOS))
    assert len(calls) == 1 + 2


def test_scorers_change_what_groups_select():
    tables = random_tables(batch=10, seed=12, vocab_size=7)
    scorers = [Forbidden(tf.fill([10], 4)), Forgetful(10, 4, 7)]

    def change(tokens, values):
        return Forgetful.by_hand(tokens, np.where(np.arange(7) == 4, -np.inf, values))

    options = {"scorers": scorers, "selector": DiverseBeams(2, 0.7, EOS)}
    found = search(tables, beam_size=4, max_length=6, alpha=0.6, **options)
    for received, table in zip(found, tables, strict=True):
        assert_same(received, in_groups(table, 4, 2, 0.7, 6, 0.6, change))


def test_a_sentence_alone_has_what_it_has_in_a_batch_in_a_graph():
    batch, beam_size, rng = 12, 6, np.random.default_rng(2)
    weights = rng.normal(0, 2, [101, 9]).astype(np.float32)

    def run(start, max_length):
        number = tf.shape(start)[0]
        state = {"read": tf.zeros([number, 0, beam_size], tf.int32)}
        options = {"eos_id": EOS, "beam_size": beam_size, "max_length": max_length, "alpha": 0.6}
        hooks = {"scorers": [NoRepeatedPair(number, 6)], "selector": DiverseBeams(3, 0.7, EOS)}
        return beam_search(history_step(weights), state, start, **options, **hooks)

    rows = [tf.range(batch) % 6, tf.constant(rng.integers(1, 12, batch), tf.int32)]
    assert_alone_as_together(run, batch, lambda chosen: [row[chosen] for row in rows])


@pytest.mark.parametrize(("beam_size", "groups"), [(4, 3), (3, 2)])
def test_groups_of_unequal_sizes_are_refused(beam_size, groups):
    class Groups(Best):
        def groups(self, beam_size):
            return groups

    expected = f"Groups must have equal numbers of beams.*Received: {groups} groups of {beam_size} beams"
    with pytest.raises(ValueError, match=expected):
        search(random_tables(batch=1, seed=1), beam_size=beam_size, max_length=2, alpha=0.0, selector=Groups())


def test_the_score_of_what_groups_find_is_that_of_the_model():
    (table,) = tables = random_tables(batch=1, seed=14, vocab_size=6)
    for tokens, score in search(tables, beam_size=6, max_length=6, alpha=0.6, selector=DiverseBeams(3, 3.0, EOS))[0]:
        log_p = sum(log_probs(table, tokens[:place])[token] for place, token in enumerate(tokens))
        assert score == pytest.approx(score_of(tokens, log_p, 0.6), abs=1e-5)
