"""The largest shapes are tried first, and what a device has no memory for is split, which changes nothing else."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from toy import SUMS, TRAIN, Toy, assert_close, by_one_tape, random_updates, set_weights, sgd, strategy_of, weights_of

from t2t_keras import batching, devices, memory, shards
from t2t_keras.update import LossScale, make_update


class Small(Toy):
    """The toy on a device with no memory for more than so many rows."""

    def __init__(self, rows: int):
        super().__init__()
        self.rows, self.tried = rows, []

    def call(self, inputs, training=False):
        def allocate(source):
            self.tried.append(source.shape)
            if len(source) > self.rows:
                raise MemoryError("pretending to be out of memory")  # TensorFlow makes ResourceExhaustedError of it.
            return source

        source, target = inputs
        known = tf.numpy_function(allocate, [source], tf.int32)
        known.set_shape(source.shape)
        return super().call((known, target), training=training)


def built(rows: int, replicas: int, spec):
    strategy = strategy_of(replicas)
    with strategy.scope():
        model, optimizer = Small(rows), sgd()
        optimizer.build(model.trainable_variables)
        set_weights(model)
    said = []
    return strategy, model, memory.SplittingUpdate(strategy, make_update(strategy, model, optimizer, TRAIN, spec), said.append), said


def batches_of(strategy, updates, device_tokens=10**6):
    dataset = tf.data.Dataset.from_generator(lambda: iter(updates), output_signature=SUMS)
    return devices.distribute(strategy, dataset, device_tokens)


@pytest.mark.parametrize("replicas", [1, 2])
def test_where_memory_is_short_the_micro_batch_is_split_and_the_update_stays_the_same(replicas):
    updates = random_updates([16, 11, 3], seed=3)
    spec = batches_of(strategy_of(replicas), updates).element_spec
    strategy, model, update, said = built(3, replicas, spec)
    for batch in batches_of(strategy, updates):
        update(batch, LossScale())
    expected, _ = by_one_tape(updates)
    assert_close(weights_of(model), expected, 3e-6)
    assert all("no memory for" in line and "the update stays the same" in line for line in said)
    assert 1 <= len(said) <= 3  # Of the largest, and of what is left of it in two; what is as large later is not tried again.


def test_what_did_not_fit_is_not_tried_again():
    updates = random_updates([8] * 4, seed=3)
    spec = batches_of(strategy_of(1), updates).element_spec
    strategy, model, update, said = built(4, 1, spec)
    for batch in batches_of(strategy, [updates[0]] * 5):
        update(batch, LossScale())
    assert len(said) == 1
    assert [shape[0] for shape in model.tried if shape[0] > 4] == [8]


def test_a_single_row_that_does_not_fit_ends_the_run_with_advice():
    updates = random_updates([2], seed=3)
    strategy, _, update, _ = built(0, 1, batches_of(strategy_of(1), updates).element_spec)
    [batch] = batches_of(strategy, updates)
    with pytest.raises(ValueError, match="no memory for 1 rows.*--device_tokens"):
        update(batch, LossScale())


def test_halves_hold_the_same_rows():
    strategy = strategy_of(2)
    [batch] = batches_of(strategy, random_updates([11]), device_tokens=30)
    halves = memory.halved(strategy, batch)
    for side in shards.SIDES:
        for whole, half in zip(*(strategy.experimental_local_results(each[side]) for each in (batch, halves)), strict=True):
            micro_batches, rows, length = whole.shape
            assert half.shape == (2 * micro_batches, -(-rows // 2), length)
            full = [row.tolist() for row in half.numpy().reshape(-1, length) if row.any()]
            assert full == [row.tolist() for row in whole.numpy().reshape(-1, length) if row.any()]


@pytest.mark.parametrize("device_tokens", [20, 35, 60])
@pytest.mark.parametrize("replicas", [1, 2])
def test_nothing_in_the_data_costs_more_than_what_was_rehearsed(folder, replicas, device_tokens):
    """The bound holds in every range of lengths, for every micro-batch of the corpus."""
    train = dataclasses.replace(TRAIN, device_tokens=device_tokens)
    rehearsed = [memory.cost(-(-rows // replicas), s, t) for rows, s, t in memory.largest_shapes(shards.read_info(folder), train, replicas)]
    assert rehearsed == sorted(rehearsed)
    for update in batching.updates(folder, batch_tokens=train.batch_tokens, seed=1, epochs=3):
        _, _, rows, s = batching.split(update, replicas=replicas, device_tokens=device_tokens)["source"].shape
        assert memory.cost(rows, s, update["target"].shape[1]) <= rehearsed[-1]


@pytest.mark.parametrize(
    ("batch_tokens", "device_tokens", "replicas"), [(4000, 700, 1), (25000, 1500, 1), (2000, 400, 2), (25000, 8192, 4)]
)
def test_every_possible_shape_costs_at_most_what_was_rehearsed_in_its_range(batch_tokens, device_tokens, replicas):
    """A length a little below a bound may have a row more: 3 rows of 233 are more than 2 of 256."""
    train = dataclasses.replace(TRAIN, batch_tokens=batch_tokens, device_tokens=device_tokens)
    shapes = memory.largest_shapes({"source_longest": 256, "target_longest": 250}, train, replicas)
    rehearsed = max(memory.cost(-(-rows // replicas), s, t) for rows, s, t in shapes)
    for length in range(1, 257):
        most = max(device_tokens // length, 1)
        rows = batch_tokens // length
        share = -(-rows // (replicas * -(-rows // (replicas * most))))
        assert memory.cost(share, length, min(length, 250)) <= rehearsed


def test_rehearsing_runs_every_range_of_lengths_and_moves_nothing(folder):
    info = {**shards.read_info(folder), "source_longest": 40, "target_longest": 21}
    spec = batches_of(strategy_of(2), random_updates([2])).element_spec
    strategy, model, update, _ = built(10**6, 2, spec)
    said, before = [], weights_of(model)
    memory.rehearse(strategy, update, info, TRAIN, said.append)
    assert [line.split(":")[0] for line in said] == [
        "Rehearsed 7 rows of 8 + 8 sub-words",
        "Rehearsed 5 rows of 12 + 12 sub-words",
        "Rehearsed 3 rows of 20 + 20 sub-words",
        "Rehearsed 1 rows of 40 + 21 sub-words",
    ]
    assert {tuple(shape) for shape in model.tried} == {(4, 8), (3, 12), (2, 20), (1, 40)}
    assert_close(weights_of(model), before, 0)


def test_cost_grows_with_rows_and_lengths_and_faster_than_the_lengths():
    assert memory.cost(2, 10, 10) == 2 * memory.cost(1, 10, 10)
    assert memory.cost(1, 20, 20) > memory.cost(2, 10, 10)
    assert np.all(np.diff([memory.cost(1000 // s, s, s) for s in (10, 20, 50, 100, 200)]) > 0)
