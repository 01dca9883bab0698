"""The largest micro-batches run first; what does not fit in memory is split, and the update stays the same."""

import collections
import dataclasses
import os
import pathlib
import re
import sys
import types
from collections.abc import Callable

import numpy as np
import programs
import pytest
import tensorflow as tf
import toy
from toy import SUMS, TRAIN, Toy, assert_close, by_one_tape, random_updates, set_weights, strategy_of, weights_of

from t2t_keras.config import EOS
from t2t_keras.data import batching, shards
from t2t_keras.data.few_shapes import Shapes
from t2t_keras.reporting import scalars
from t2t_keras.runs import checkpoint
from t2t_keras.training import device_memory, devices
from t2t_keras.training.train_step import LossScale, make_train_step

ROOT = pathlib.Path(__file__).parent.parent


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
        model, optimizer = Small(rows), toy.sgd()
        optimizer.build(model.trainable_variables)
        set_weights(model)
    step = make_train_step(strategy, model, optimizer, toy.TASK, TRAIN, spec)
    return strategy, model, device_memory.SplittingTrainStep(strategy, step, toy.cost)


def stand_in_step(noted: Callable, fits=lambda *shape: True, cost=toy.cost) -> tuple:
    """A train step that computes nothing, and the list of what is noted of each batch."""
    made = []

    def train_step(batch, scale, apply):
        made.append(noted(batch))
        return {"target_tokens": 1.0}, scale

    train_step.cost, train_step.build, train_step.fits = cost, lambda: None, fits
    return train_step, made


def batches_of(strategy, updates, micro_batch_tokens=10**6, buckets=1):
    dataset = tf.data.Dataset.from_generator(lambda: iter(updates), output_signature=SUMS)
    return devices.distribute(strategy, dataset, micro_batch_tokens, buckets)


def test_where_memory_is_short_the_micro_batch_is_split_and_the_update_stays_the_same(messages):
    updates = random_updates([16, 11, 3], seed=3)
    strategy, model, update = built(3, 1, batches_of(strategy_of(1), updates).element_spec)
    for batch in batches_of(strategy, updates):
        update(batch, LossScale())
    expected, _ = by_one_tape(updates)
    assert_close(weights_of(model), expected, 3e-6)
    said = "out of memory for .*the updates stay the same, except for their dropout masks"
    assert all(re.search(said, line) for line in messages)
    # Of the largest, and of what is left of it in two; what is as large later is not tried again.
    assert 1 <= len(messages) <= 3


def test_what_did_not_fit_is_not_tried_again(messages):
    updates = random_updates([8] * 4, seed=3)
    strategy, model, update = built(4, 1, batches_of(strategy_of(1), updates).element_spec)
    for batch in batches_of(strategy, [updates[0]] * 5):
        update(batch, LossScale())
    assert len(messages) == 1
    assert [shape[0] for shape in model.tried if shape[0] > 4] == [8]
    length = updates[0]["source"].shape[1], updates[0]["target"].shape[1]
    assert not update.fits(8, *length) and update.fits(4, *length)


def test_a_single_row_that_does_not_fit_ends_the_run_with_advice():
    updates = random_updates([2], seed=3)
    strategy, _, update = built(0, 1, batches_of(strategy_of(1), updates).element_spec)
    [batch] = batches_of(strategy, updates)
    advice = "Compute one at a time .`micro_batches_at_once=1`., or lower `max_length`"
    with pytest.raises(ValueError, match=f"out of memory for a micro-batch of 1 x .* {advice}"):
        update(batch, LossScale())


# Trains on two virtual devices. At update 4, the second one runs out of memory while the first waits for its gradients.
SCARCE = """
import sys, time
import tensorflow as tf
import t2t_keras
from t2t_keras.model.transformer import Transformer
from t2t_keras.training.state import TrainState

updates, encode, count_update = [], Transformer.encode, TrainState.count_update

def allocate(ids, replica):
    if len(updates) >= 3 and replica == 1:
        time.sleep(1)
        raise MemoryError("pretending to be out of memory")  # TensorFlow makes ResourceExhaustedError of it.
    return ids

def scarce_encode(model, source, **options):
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    there = tf.numpy_function(allocate, [source, replica], tf.int32)
    return encode(model, tf.ensure_shape(there, source.shape), **options)

def count(state, *given):
    count_update(state, *given)
    updates.append(state.step)

Transformer.encode, TrainState.count_update = scarce_encode, count
try:
    t2t_keras.train(
        sys.argv[1], cpu_devices=2, dataset="builtin", builtin_pairs=200, vocab_size=330, encoder_layers=1,
        decoder_layers=1, d_model=8, d_ff=16, num_heads=2, train_steps=6, valid_steps=6, valid_sentences=0,
        best_metric="loss", batch_tokens=300, checkpoint_steps=100,
    )
except ValueError as error:
    print(updates[-1], error)
"""


@pytest.mark.medium
def test_one_of_several_devices_that_runs_out_of_memory_ends_the_run_and_loses_no_update_before_it(tmp_path):
    """Story: the sum over the devices was cancelled for good, and the run ended without its last updates."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    result = programs.run([sys.executable, "-c", SCARCE, tmp_path], capture_output=True, env=environment)
    updates, _, said = result.stdout.decode().partition(" ")
    assert re.match(r"A device is out of memory for a micro-batch of \d+ x .*Lower `micro_batch_tokens`, or", said), (
        result.stderr.decode()
    )
    assert int(updates) >= 3
    assert [checkpoint.step_of(path) for path in checkpoint.kept(tmp_path)] == [int(updates)]
    resumed = "import sys, t2t_keras; t2t_keras.train(sys.argv[1], cpu_devices=2, micro_batch_tokens=100)"
    programs.run([sys.executable, "-c", resumed, tmp_path], check=True, env=environment)
    assert checkpoint.step_of(checkpoint.kept(tmp_path)[-1]) == 6


def test_as_long_as_everything_fits_no_time_is_taken_to_measure_it():
    fail = lambda *shape: pytest.fail("measured")  # noqa: E731
    update = device_memory.SplittingTrainStep(strategy_of(1), lambda *given: given, fail)
    batch = {side: tf.ones([1, 4, 3], tf.int32) for side in shards.SIDES}
    assert update(batch, LossScale())[0] is batch


def micro_batches(strategy, batch) -> list[list]:
    """The rows of each, without those that only fill up."""
    shares = [ids.numpy() for ids in strategy.experimental_local_results(batch["source"])]
    return [[row[row > 0].tolist() for row in rows if row.any()] for share in shares for rows in share]


def test_halves_hold_the_same_rows_of_each_micro_batch():
    """Each is cut in the middle of its own rows, also where another one has many more."""
    strategy = strategy_of(2)
    [batch] = batches_of(strategy, random_updates([11, 3, 1, 8]), micro_batch_tokens=30, buckets=4)
    divided = device_memory.halve_micro_batches(strategy, batch)
    whole, halves = (micro_batches(strategy, each) for each in (batch, divided))
    assert len(halves) == 2 * len(whole) and len({len(rows) for rows in whole}) > 2
    for rows, first, second in zip(whole, halves[::2], halves[1::2], strict=True):
        assert first + second == rows
        assert 0 <= len(first) - len(second) <= 1


@pytest.mark.parametrize("micro_batch_tokens", [20, 60])
@pytest.mark.parametrize(("replicas", "buckets"), [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (4, 2)])
def test_no_micro_batch_of_the_data_costs_more_than_the_largest_shape(folder, replicas, buckets, micro_batch_tokens):
    """The bound holds in every range of lengths, for every micro-batch of the corpus."""
    sizes = {"batch_tokens": 60 * buckets, "buckets_per_update": buckets, "micro_batch_tokens": micro_batch_tokens}
    train = dataclasses.replace(TRAIN, **sizes)
    shapes = device_memory.largest_shapes(shards.read_info(folder), train, replicas, toy.cost).values()
    largest = [toy.cost(*shape) for shape in shapes]
    assert largest == sorted(largest)
    for update in batching.grouped(batching.batches(folder, batch_tokens=60, seed=1, epochs=1), buckets):
        shared = batching.split(update, buckets=buckets, replicas=replicas, micro_batch_tokens=micro_batch_tokens)
        for source, target in zip(
            *(tf.unstack(tf.reshape(shared[side], [-1, *shared[side].shape[2:]])) for side in shards.SIDES), strict=True
        ):
            source, target = batching.trimmed({"source": source, "target": target}).values()
            assert toy.cost(*source.shape, target.shape[1]) <= largest[-1]


@pytest.mark.parametrize(
    ("batch_tokens", "buckets_per_update", "micro_batch_tokens", "replicas"),
    [(4000, 1, 700, 1), (25000, 1, 1500, 1), (2000, 1, 400, 2), (25000, 1, 8192, 4)]
    + [(25000, 8, 8192, 1), (25000, 8, 1500, 3)],
)
def test_no_possible_shape_costs_more_than_the_largest_shape(
    batch_tokens, buckets_per_update, micro_batch_tokens, replicas
):
    """A length a little below a bound may have a row more: 3 rows of 233 are more than 2 of 256."""
    train = dataclasses.replace(
        TRAIN, batch_tokens=batch_tokens, buckets_per_update=buckets_per_update, micro_batch_tokens=micro_batch_tokens
    )
    info = {"source_longest": 256, "target_longest": 250, "columns": shards.SIDES}
    shapes = device_memory.largest_shapes(info, train, replicas, toy.cost).values()
    largest = max(toy.cost(*shape) for shape in shapes)
    micro_batches = next(n for n in range(1, 99) if n * buckets_per_update % replicas == 0)
    for length in range(1, 257):
        most = max(micro_batch_tokens // length, 1)
        rows = batch_tokens // buckets_per_update // length
        share = -(-rows // (micro_batches * -(-rows // (micro_batches * most))))
        assert toy.cost(share, length, min(length, 250)) <= largest


def test_the_largest_shapes_by_hand():
    """A micro-batch of 30 tokens: as many rows as fit, and one of a sentence that does not."""
    train = dataclasses.replace(TRAIN, batch_tokens=70, micro_batch_tokens=30)
    info = {"source_longest": 40, "target_longest": 21, "columns": shards.SIDES}
    found = device_memory.largest_shapes(
        info, train, 1, lambda rows, source, target: rows * (source + target) + source / 100
    )
    assert found == {8: (5, 6, 6), 16: (2, 15, 15), 32: (1, 32, 21), 40: (1, 40, 21)}
    for longest, bounds in ((1, [1]), (8, [8]), (9, [8, 9]), (16, [8, 16]), (17, [8, 16, 17])):
        info = {"source_longest": longest, "target_longest": 1, "columns": shards.SIDES}
        assert list(device_memory.largest_shapes(info, train, 1, toy.cost)) == bounds


def test_of_buckets_of_different_lengths_the_costly_ones_are_split(messages):
    """Three buckets an update; what was too costly once is in halves from then on, and one row beside it is no reason
    to end.
    """
    batches = random_updates([9, 2, 8, 1, 9, 3], seed=4)
    strategy, model, update = built(4, 1, batches_of(strategy_of(1), batches, buckets=3).element_spec)
    for batch in batches_of(strategy, batches, buckets=3):
        update(batch, LossScale())
    expected, _ = by_one_tape([toy.joined(batches[:3]), toy.joined(batches[3:])])
    assert_close(weights_of(model), expected, 3e-6)
    assert 1 <= len(messages) <= 3
    costs = [toy.cost(rows, length, length) for rows, length in model.tried]
    fitted = [index for index, (rows, _) in enumerate(model.tried) if rows > 4]
    assert len(fitted) <= 2 * len(messages)  # Each was tried once.
    assert len(costs) < 60


def long_and_short() -> list[dict]:
    draw = np.random.default_rng(8)
    sizes = ((6, 8), (12, 4), (1, 9))
    return [
        {side: draw.integers(EOS, 20, [rows, length], dtype=np.int32) for side in shards.SIDES}
        for rows, length in sizes
    ]


def test_a_costly_micro_batch_of_few_rows_is_halved_at_once_beside_one_of_many():
    strategy = strategy_of(1)
    batches = long_and_short()
    spec = batches_of(strategy, batches, buckets=3).element_spec
    strategy, _, update = built(99, 1, spec)
    update._cost_limit = toy.cost(6, 8, 8)
    [batch] = batches_of(strategy, batches, buckets=3)
    assert [len(rows) for rows in micro_batches(strategy, update.split_to_fit(batch))] == [3, 3, 6, 6, 1, 0]
    update._cost_limit = toy.cost(1, 9, 9)  # Which is a row that cannot be halved.
    assert max(len(rows) for rows in micro_batches(strategy, update.split_to_fit(batch))) == 2


def test_the_largest_micro_batch_of_every_range_of_lengths_runs_and_changes_no_weight(folder, messages):
    info = {**shards.read_info(folder), "source_longest": 40, "target_longest": 21}
    spec = batches_of(strategy_of(2), random_updates([2])).element_spec
    strategy, model, update = built(10**6, 2, spec)
    before = weights_of(model)
    device_memory.run_largest_micro_batches(strategy, update, info, TRAIN, 2, every_range=True)
    assert messages.pop(0) == "Building the graph of the training step …"
    assert re.fullmatch(r"Built in \d+\.\d s\. TensorFlow optimizes it before the first micro-batch …", messages.pop(0))
    assert [line.rpartition(" tokens")[0] + " tokens" for line in messages] == [
        "Largest micro-batch of lengths up to 8: 4 x (8 + 8) tokens",
        "Largest micro-batch of lengths up to 16: 3 x (12 + 12) tokens",
        "Largest micro-batch of lengths up to 32: 2 x (20 + 20) tokens",
        "Largest micro-batch of lengths up to 40: 1 x (40 + 21) tokens",
    ]
    shapes = collections.Counter(tuple(shape) for shape in model.tried)
    assert shapes.keys() == {(4, 8), (3, 12), (2, 20), (1, 40)} and set(shapes.values()) == {2}
    assert_close(weights_of(model), before, 0)


@pytest.mark.parametrize("number", [1, 2, 4])
def test_before_the_first_update_the_costliest_shapes_run_until_one_fits(folder, number):
    info = {**shards.read_info(folder), "source_longest": 40, "target_longest": 21}
    shapes = [(1, 40, 21), (2, 20, 20), (3, 12, 12), (4, 8, 8)]
    shapes.sort(key=lambda shape: toy.cost(*shape), reverse=True)
    train_step, made = stand_in_step(
        lambda batch: tuple(batch["source"].shape[1:]), fits=lambda *shape: shape == shapes[number - 1]
    )
    device_memory.run_largest_micro_batches(strategy_of(1), train_step, info, TRAIN, 2)
    assert made == [shape[:2] for shape in shapes[:number]] and shapes[0] != (4, 8, 8)


def test_the_peak_memory_is_that_of_the_fullest_gpu(folder, messages, monkeypatch):
    gpus = [types.SimpleNamespace(name=f"/device:GPU:{index}") for index in range(3)]
    peaks = {"GPU:0": {"peak": 2**30}, "GPU:1": {"peak": 5 * 2**29}, "GPU:2": {"peak": 0}}
    strategy = strategy_of(1)
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: {"GPU": gpus}[kind])
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", peaks.get)
    update = device_memory.SplittingTrainStep(
        strategy, toy.with_a_graph(lambda batch, scale, apply: ({"target_tokens": 1.0}, scale)), toy.cost
    )
    device_memory.run_largest_micro_batches(strategy, update, shards.read_info(folder), TRAIN, 1)
    shown = [line for line in messages if line.startswith("Largest")]
    assert shown and all(line.endswith(" s, peak memory 2.50 GiB.") for line in shown)
    assert scalars.peak_memory()["utilization/peak_gpu_memory_gib"] == 2.5


def test_as_many_micro_batches_run_as_are_computed_at_a_time_and_their_memory_is_reported(
    folder, messages, monkeypatch
):
    """Story: on a CPU an update computed two micro-batches at a time, and --dry_run told the memory of none."""
    train = dataclasses.replace(TRAIN, batch_tokens=180, buckets_per_update=3, micro_batches_at_once=2)
    info = {**shards.read_info(folder), "source_longest": 16, "target_longest": 5}

    def shapes_of(batch) -> list[tuple]:
        sides = (strategy.experimental_local_results(batch[side]) for side in ("source", "target"))
        return [tuple(ids.shape) for side in sides for ids in side]

    train_step, made = stand_in_step(shapes_of)
    monkeypatch.setattr(device_memory.machine, "peak_memory", lambda: 3.5 * 2**30)
    for replicas, expected in ((1, 2), (3, 1)):  # Three devices get a bucket each.
        strategy = strategy_of(replicas)
        device_memory.run_largest_micro_batches(strategy, train_step, info, train, replicas, every_range=True)
        assert made.pop() == [(expected, 6, 10)] * replicas + [(expected, 6, 5)] * replicas
    assert [re.sub(r"[0-9.]+ s,", "TIME,", line) for line in messages] == [
        f"Largest micro-batch of lengths up to {shape} tokens{at_once}, TIME, peak memory 3.50 GiB."
        for at_once in (", 2 at a time", "")
        for shape in ("8: 12 x (5 + 5)", "16: 6 x (10 + 5)")
    ]


def test_no_more_micro_batches_run_than_an_update_of_long_sentences_has(folder, messages):
    """Story: with room for one bucket, two micro-batches of it ran, and a run that fits was refused."""
    info = {**shards.read_info(folder), "source_longest": 180, "target_longest": 180}
    train_step, made = stand_in_step(lambda batch: batch["source"].shape[0])
    sizes = {"batch_tokens": 180, "buckets_per_update": 3, "micro_batch_tokens": 180, "micro_batches_at_once": 2}
    train = dataclasses.replace(TRAIN, **sizes)
    device_memory.run_largest_micro_batches(strategy_of(1), train_step, info, train, 1)
    assert made == [1] and "at a time" not in messages[-1]


def test_building_and_running_are_timed_to_their_end(folder, messages, monkeypatch):
    """TensorFlow returns at once, and devices go on: whoever reads a figure waits for them."""

    def clock(seconds: float) -> float:
        now.append(now[-1] + seconds)
        return 1.0

    class Figure:
        def __float__(self):
            return clock(2.5)

    def train_step(batch, scale, apply):
        clock(0.25)
        return {"target_tokens": Figure()}, scale

    now, strategy = [100.0], strategy_of(1)
    monkeypatch.setattr(device_memory, "time", types.SimpleNamespace(monotonic=lambda: now[-1]))
    train_step.get_concrete_function = lambda: clock(1.5)
    update = device_memory.SplittingTrainStep(strategy, train_step, toy.cost)
    device_memory.run_largest_micro_batches(strategy, update, shards.read_info(folder), TRAIN, 1)
    _, built, largest = messages
    assert built.startswith("Built in 1.5 s.") and " tokens, 2.75 s, peak memory " in largest


@pytest.mark.parametrize(("ran", "expected"), [(2, [1, 2]), (9, [1, 2, 3])])
def test_no_shape_is_run_after_a_request_to_stop(folder, messages, ran, expected):
    """Story: `max_hours` was over after the second of 40 shapes, and the others were compiled all the same."""

    train_step, made = stand_in_step(lambda batch: batch)
    given = strategy_of(1), train_step, shards.read_info(folder), Shapes(2.0, 64, ("source", "target"))
    found = [(2, 16, 16), (1, 32, 32), (1, 64, 64)]
    device_memory.run_shapes(*given, found, 1, True, lambda: len(made) >= ran)
    assert [int(re.match(r"Shape (\d)", line)[1]) for line in messages if line.startswith("Shape")] == expected
    assert any(line.startswith("All shapes took") for line in messages) == (ran == 9)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_largest_micro_batches_are_in_the_host_s_memory_as_those_of_the_data(folder, replicas):
    """The second device stands in for a GPU."""
    strategy = strategy_of(replicas)
    train_step, made = stand_in_step(lambda batch: strategy.experimental_local_results(batch["source"]))
    with tf.device("CPU:1"):
        device_memory.run_largest_micro_batches(strategy, train_step, shards.read_info(folder), TRAIN, replicas)
    assert {ids.device.rpartition("device:")[2] for batch in made for ids in batch} == {"CPU:0"}


def test_columns_that_are_not_counted_are_as_long_as_the_first_or_as_the_renewal_says(folder, monkeypatch):
    """Story: BERT's largest micro-batches had logits at all positions, where training has them at 15%."""
    train_step, made = stand_in_step(
        lambda batch: {name: tuple(ids.shape) for name, ids in batch.items()}, cost=lambda rows, source, target: source
    )
    strategy, columns = strategy_of(1), {"source": True, "target": True, "masked": False}
    info = shards.read_info(folder) | {"source_longest": 8, "target_longest": 5, "columns": columns}
    for longest, expected in (({}, 8), ({"longest": lambda length: {"masked": length - 2}}, 6)):
        device_memory.run_largest_micro_batches(strategy, train_step, info, TRAIN, 1, **longest, every_range=True)
        shapes = made.pop()
        assert (shapes["source"][2], shapes["target"][2], shapes["masked"][2]) == (8, 5, expected)
        made.clear()


def test_cost_grows_with_rows_and_lengths_and_faster_than_the_lengths():
    assert toy.cost(2, 10, 10) == 2 * toy.cost(1, 10, 10)
    assert toy.cost(1, 20, 20) > toy.cost(2, 10, 10)
    assert np.all(np.diff([toy.cost(1000 // s, s, s) for s in (10, 20, 50, 100, 200)]) > 0)
