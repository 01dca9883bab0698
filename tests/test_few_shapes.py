"""Few shapes of micro-batches: lengths are rounded to boundaries, rows are fixed, and no pair is lost."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from toy import padded, sentence, strategy_of

from t2t_keras.data import batching, shards
from t2t_keras.data.few_shapes import Shapes
from t2t_keras.training import device_memory

SHAPES = Shapes(1.5, 100)
BUDGET = 6250


def test_boundaries_grow_by_the_factor_in_multiples_of_four():
    assert SHAPES.boundaries == (16, 24, 36, 56, 84, 100)
    assert Shapes(1.01, 40).boundaries == (16, 20, 24, 28, 32, 36, 40)  # At least by four.
    assert Shapes(1.15, 9).boundaries == (9,)  # All sentences fit into the budget.


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((3, 16), (16, 16)),
        ((17, 24), (24, 24)),
        ((16, 17), (16, 24)),
        ((25, 24), (36, 24)),
        ((25, 3), (36, 24)),  # One boundary apart at most.
        ((2, 90), (84, 100)),
        ((84, 36), (84, 56)),
    ],
)
def test_lengths_are_rounded_up(lengths, expected):
    assert tuple(int(side[0]) for side in SHAPES.rounded(*([length] for length in lengths))) == expected


def test_long_sides_are_padded_alike():
    assert [int(side[0]) for side in Shapes(1.5, 900).rounded([120], [80])] == [128, 128]


def test_the_rows_of_a_shape_are_those_that_fit_in_as_many_micro_batches():
    lengths = {"source": tf.constant([16, 30]), "target": tf.constant([12, 50])}
    assert SHAPES.of_micro_batches(lengths, 1).numpy().tolist() == [[6, 16, 16], [1, 36, 56]]
    assert SHAPES.of_micro_batches(lengths, 4).numpy().tolist() == [[2, 16, 16], [1, 36, 56]]


def test_a_sentence_as_long_as_the_budget_has_a_row():
    lengths = {"source": tf.constant([100]), "target": tf.constant([1])}
    assert Shapes(1.5, 100).of_micro_batches(lengths, 1).numpy().tolist() == [[1, 100, 84]]


def test_a_column_that_is_not_counted_is_as_long_as_the_first_or_has_a_boundary_of_its_own():
    """Story: tags of a source that was padded for its target's sake were shorter than it."""
    lengths = {"source": [3, 17], "target": [50, 17], "tags": [3, 17], "label": [1, 1], "masked": [2, 18]}
    found = SHAPES.of_micro_batches({name: tf.constant(each) for name, each in lengths.items()}, 1)
    assert found.numpy().tolist() == [[1, 36, 56, 36, 1, 16], [4, 24, 24, 24, 1, 24]]


def test_what_is_longer_than_the_budget_keeps_its_length():
    lengths = {"source": tf.constant([130]), "target": tf.constant([90]), "masked": tf.constant([150])}
    assert SHAPES.of_micro_batches(lengths, 1).numpy().tolist() == [[1, 130, 100, 150]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three windows of pairs with lengths of 2 to 40."""
    draw = np.random.default_rng(5)
    path = tmp_path_factory.mktemp("shards")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "PAIRS_PER_SHARD", 40)
        pairs = [tuple(np.array(sentence(draw, int(length))) for length in draw.integers(2, 41, 2)) for _ in range(240)]
        shards.write(path, pairs, count=240, vocab_size=20, seed=1)
    return path


@pytest.fixture
def read(folder, monkeypatch):
    monkeypatch.setattr(batching, "WINDOW_PAIRS", 80)

    def batches(start=batching.START, shapes=SHAPES, epochs=2):
        options = {"batch_tokens": 100, "seed": 1, "start": start, "epochs": epochs, "shapes": shapes}
        return list(batching.batches(folder, **options).as_numpy_iterator())

    return batches


def pairs_of(batches) -> collections.Counter:
    return collections.Counter(
        (bytes(source[source > 0]), bytes(target[target > 0]))
        for batch in batches
        for source, target in zip(batch["source"], batch["target"], strict=True)
    )


def test_an_epoch_has_the_same_pairs_once(read):
    assert pairs_of(read(epochs=1)) == pairs_of(read(shapes=None, epochs=1))


@pytest.mark.medium
def test_a_run_resumes_at_every_position(read):
    expected = read()
    for index in (0, 3, len(expected) // 2):
        start = batching.Position(*map(int, expected[index]["position"]))
        for found, wanted in zip(read(start), expected[index + 1 :], strict=True):
            np.testing.assert_equal(found, wanted)


@pytest.mark.medium
@pytest.mark.parametrize(("replicas", "micro_batch_tokens"), [(1, 100), (1, 40), (2, 100)])
def test_every_micro_batch_has_one_of_the_shapes_of_its_window_and_none_loses_a_token(
    folder, read, replicas, micro_batch_tokens
):
    batches, sizes = read(epochs=1), {"replicas": replicas, "micro_batch_tokens": micro_batch_tokens}
    spec = batching.batches(folder, batch_tokens=100, seed=1, shapes=SHAPES).element_spec
    dataset = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)
    found, tokens, of_bucket = set(), 0, batching.micro_batches_per_bucket(-(-100 // micro_batch_tokens), 2, replicas)
    for update in batching.grouped(dataset, 2):
        split = batching.columns_of(batching.split(update, buckets=2, **sizes, shapes=SHAPES))
        assert split["source"].shape[:2] == (replicas, 2 * of_bucket // replicas)
        for replica in range(replicas):
            for index in range(split["source"].shape[1]):
                micro_batch = {name: values[replica, index] for name, values in split.items()}
                source, target = batching.trimmed(micro_batch).values()
                found.add((source.shape[0], source.shape[1], target.shape[1]))
                tokens += int(tf.math.count_nonzero(source) + tf.math.count_nonzero(target))
    windows = (batching.shapes_in_window(folder, window, 1, "stop", SHAPES, of_bucket) for window in range(3))
    possible = set().union(*windows)
    empty = {shape for shape in found if shape[1:] == (16, 16)}  # A bucket may lack in the last update.
    assert found - empty <= possible and possible <= found | empty
    assert tokens == sum(np.count_nonzero(batch[side]) for batch in batches for side in shards.SIDES)


def test_an_update_out_of_memory_is_halved_to_half_the_rows():
    draw = np.random.default_rng(1)
    sides = {side: padded([sentence(draw, 18) for _ in range(4)]) for side in shards.SIDES}
    update = {side: tf.constant(ids)[None] for side, ids in sides.items()}
    split = batching.split(update, buckets=1, replicas=1, micro_batch_tokens=100, shapes=SHAPES)
    whole = {name: values[0] for name, values in split.items()}
    halves = device_memory.halve_micro_batches(strategy_of(1), whole)
    assert whole[batching.SHAPE].numpy().tolist() == [[4, 24, 24]]
    assert halves[batching.SHAPE].numpy().tolist() == [[2, 24, 24]] * 2
    rows = tf.concat(
        [batching.trimmed({name: values[index] for name, values in halves.items()})["source"] for index in range(2)], 0
    )
    np.testing.assert_array_equal(rows[:, :18], sides["source"])


def test_lengths_like_those_of_wmt14_have_few_shapes_and_little_more_padding():
    """An oracle of batches: sort, cut, and count positions."""
    draw = np.random.default_rng(1)
    both = draw.normal(np.log(27), 0.55, 100_000)
    sides = (np.exp(both + draw.normal(0, 0.18, len(both))) for _ in range(2))
    lengths = [tf.constant(np.clip(side, 3, 256).astype(np.int32)) for side in sides]

    def cost(key_of, sides_of) -> tuple[int, set]:
        rows = batching._sorted_rows(lengths, (1, 1), key_of)
        sides = [tf.gather(side, rows).numpy() for side in lengths]
        cuts = batching.cut(np.maximum(*sides_of(*sides)), BUDGET).numpy()
        shapes, positions = set(), 0
        for first, after in zip(cuts, cuts[1:], strict=False):
            longest = [int(side[first:after].max()) for side in sides]
            padded_to = [int(side[0]) for side in sides_of(*([length] for length in longest))]
            number = BUDGET // max(padded_to) if key_of == shapes_.sort_key else after - first
            shapes.add((number, *padded_to))
            positions += number * sum(padded_to)
        return positions, shapes

    shapes_ = Shapes(1.15, BUDGET)
    few, shapes = cost(shapes_.sort_key, shapes_.rounded)
    many, _ = cost(batching.sort_key, lambda *sides: sides)
    assert 20 <= len(shapes) <= 40
    assert few <= 1.12 * many
