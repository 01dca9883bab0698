"""No n-gram comes twice, against a search that looks at every n-gram of every hypothesis."""

import numpy as np
import pytest
import tensorflow as tf
from test_beam_search import (
    EOS,
    START,
    assert_alone_as_together,
    assert_same,
    forced,
    history_step,
    random_tables,
    search,
    search_that_never_stops_early,
)
from test_search_hooks import Forbidden

from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.search_hooks import Hypotheses, NoRepeatedNgrams


def ngrams(tokens, size: int) -> list[tuple]:
    return [tuple(tokens[first : first + size]) for first in range(len(tokens) - size + 1)]


def without_repetition(size: int):
    """(tokens, log P [V]) → [V], as a scorer is."""

    def change(tokens, values):
        again = [ngrams((*tokens, token), size)[-1:] for token in range(len(values))]
        again = [bool(last) and last[0] in ngrams(tokens, size) for last in again]
        return np.where(again, -np.inf, values)

    return change


@pytest.mark.parametrize("beam_size", [1, 2, 5])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_search_without_repeated_n_grams_equals_one_that_looks_at_all_of_them(size, beam_size):
    tables = random_tables(batch=30, seed=size, vocab_size=5, length=10)
    tables[..., EOS] -= 2
    tables[..., 1] += 2  # So that it is repeated where it may be.
    options = {"beam_size": beam_size, "max_length": 10, "alpha": 0.6}
    free, found = search(tables, **options), search(tables, scorers=[NoRepeatedNgrams(size)], **options)
    for received, table in zip(found, tables, strict=True):
        assert_same(received, search_that_never_stops_early(table, beam_size, 10, 0.6, change=without_repetition(size)))
        assert all(len(set(ngrams(tokens, size))) == len(ngrams(tokens, size)) for tokens, _ in received)
    repeated = [len(set(ngrams(tokens, size))) < len(ngrams(tokens, size)) for row in free for tokens, _ in row]
    assert sum(repeated) > 2


def test_the_graph_is_the_same_for_n_grams_of_any_size():
    """Story: n = 2,000, of a stranger's options, was unrolled into a graph that took 50 s."""

    def operations(size: int) -> int:
        def score(sequences):
            length = tf.shape(sequences)[2]
            hypotheses = Hypotheses(length, tf.zeros([2, 3]), sequences[..., -1], None, sequences)
            return NoRepeatedNgrams(size)(tf.zeros([2, 3, 7]), hypotheses, None)[0]

        graph = tf.function(score).get_concrete_function(tf.TensorSpec([2, 3, None], tf.int32)).graph
        return len(graph.get_operations())

    assert operations(2000) == operations(3) < 200
    tables = random_tables(batch=2, seed=1, vocab_size=4)
    found = search(tables, beam_size=2, max_length=9, alpha=0.6, scorers=[NoRepeatedNgrams(2000)])
    assert found == search(tables, beam_size=2, max_length=9, alpha=0.6)


def test_the_token_that_a_translation_starts_from_belongs_to_no_n_gram():
    """Only what is written is repeated: the first token may come after START again."""
    tables = random_tables(batch=1, seed=1, vocab_size=4)
    tables[..., :] = -20
    tables[..., START] = 0
    [[(tokens, _)]] = search(tables, beam_size=1, max_length=3, alpha=0.0, scorers=[NoRepeatedNgrams(3)])
    assert tokens == (START,) * 3
    [[(tokens, _)]] = search(tables, beam_size=1, max_length=4, alpha=0.0, scorers=[NoRepeatedNgrams(3)])
    assert tokens[:3] == (START,) * 3 and tokens[3] != START


def test_a_forced_start_may_repeat_itself():
    tables = random_tables(batch=2, seed=5, vocab_size=6)
    scorers = [*forced([(4, 5, 4, 5, 4), ()]), NoRepeatedNgrams(2)]
    repeated, free = search(tables, beam_size=3, max_length=8, alpha=0.6, scorers=scorers)
    assert repeated and all(tokens[:5] == (4, 5, 4, 5, 4) for tokens, _ in repeated)
    assert not any((4, 5) in ngrams(tokens[4:], 2) or (5, 4) in ngrams(tokens[4:], 2) for tokens, _ in repeated)
    assert_same(free, search_that_never_stops_early(tables[1], 3, 8, 0.6, change=without_repetition(2)))


def test_the_only_token_that_is_allowed_is_written_again():
    tables = random_tables(batch=1, seed=6)
    scorers = [*(Forbidden(tf.fill([1], token)) for token in (0, 1, EOS)), NoRepeatedNgrams(1)]
    found = [tokens for tokens, _ in search(tables, beam_size=2, max_length=4, alpha=0.0, scorers=scorers)[0]]
    assert found == [(2, 2, 2, 2)]


@pytest.mark.medium
@pytest.mark.parametrize("size", [1, 3])
def test_a_sentence_alone_has_what_it_has_in_a_batch_in_a_graph(size):
    batch, rng = 10, np.random.default_rng(2)
    weights = rng.normal(0, 2, [101, 6]).astype(np.float32)

    def run(start, max_length):
        state = {"read": tf.zeros([tf.shape(start)[0], 0, 3], tf.int32)}
        options = {
            "eos_id": EOS, "beam_size": 3, "max_length": max_length, "alpha": 0.6, "scorers": [NoRepeatedNgrams(size)],
        }  # fmt: skip
        return beam_search(history_step(weights), state, start, **options)

    rows = [tf.range(batch) % 6, tf.constant(rng.integers(1, 12, batch), tf.int32)]
    for tokens in sum(assert_alone_as_together(run, batch, lambda chosen: [row[chosen] for row in rows]), []):
        written = [token for token in tokens if token]
        assert 0 in tokens[: len(written)] or len(set(ngrams(written, size))) == len(ngrams(written, size))
