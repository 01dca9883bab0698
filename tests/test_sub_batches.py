"""Every row is worked on once, no sub-batch is larger than its limits, and a batch is divided among the cores."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding import sub_batches
from t2t_keras.decoding.sub_batches import in_sub_batches
from t2t_keras.system import machine


def sub_batches_of(lengths, max_rows: int, max_tokens: int, cores: int = 1) -> list[list[int]]:
    """Row numbers of each sub-batch."""
    outputs = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int32)]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def run(lengths):
        rows = tf.range(tf.size(lengths))
        limits = {"max_rows": max_rows, "max_tokens": max_tokens, "cores": cores}
        return in_sub_batches(lambda rows: [rows, tf.size(rows)[None]], rows, lengths, **limits, outputs=outputs)

    joined, sizes, order = (value.numpy() for value in run(tf.constant(lengths, tf.int32)))
    np.testing.assert_array_equal(joined, order)
    return [batch.tolist() for batch in np.split(joined, np.cumsum(sizes)[:-1])]


def test_an_example_by_hand():
    """Shortest first: rows 1 and 3 of length 2, 4 of 3, 0 of 5, 2 of 9; at most 3 rows and 10 tokens at a time."""
    assert sub_batches_of([5, 2, 9, 2, 3], max_rows=3, max_tokens=10) == [[1, 3, 4], [0], [2]]
    assert sub_batches_of([5, 2, 9, 2, 3], max_rows=2, max_tokens=10) == [[1, 3], [4, 0], [2]]
    assert sub_batches_of([5, 2, 9, 2, 3], max_rows=9, max_tokens=8) == [[1, 3], [4], [0], [2]]
    assert sub_batches_of([5, 2, 9, 2, 3], max_rows=9, max_tokens=99) == [[1, 3, 4, 0, 2]]


@pytest.mark.parametrize("seed", range(10))
def test_every_row_is_in_one_sub_batch_and_each_holds_as_many_rows_as_fit(seed):
    draw = np.random.default_rng(seed)
    lengths = draw.integers(0, 30, draw.integers(1, 60))
    max_rows, max_tokens = int(draw.integers(1, 9)), int(draw.integers(1, 80))
    batches = sub_batches_of(lengths, max_rows, max_tokens)
    joined = np.concatenate(batches)
    np.testing.assert_array_equal(joined, np.argsort(lengths, kind="stable"))
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        assert len(batch) == 1 or (len(batch) <= max_rows and len(batch) * lengths[batch].max() <= max_tokens)
        if following:
            more = len(batch) + 1
            assert more > max_rows or more * lengths[following[0]] > max_tokens


@pytest.mark.parametrize(("cores", "rows", "expected"), [
    (1, 40, [32, 8]),  # Not divided.
    (2, 64, [32, 32]),
    (2, 65, [17, 17, 17, 14]),  # As many for each core.
    (2, 32, [16, 16]),
    (2, 9, [5, 4]),
    (2, 7, [7]),  # Not fewer than four rows.
    (2, 1, [1]),
    (2, 0, []),
    (8, 64, [8] * 8),
    (8, 12, [4, 4, 4]),
])  # fmt: skip
def test_a_batch_is_divided_among_the_cores(cores, rows, expected):
    batches = sub_batches_of([7] * rows, max_rows=32, max_tokens=4096, cores=cores)
    assert [len(batch) for batch in batches if batch] == expected


@pytest.mark.parametrize(("gpus", "cores", "gib", "rows", "own_cores", "expected"), [
    (0, 2, 23, 0, 0, (32, 4096, 2)),
    (0, 1, 2, 0, 0, (32, 4096, 1)),
    (0, 64, 256, 0, 0, (32, 4096, 64)),
    (0, 16, 8, 0, 0, (32, 1024, 16)),  # Sub-batches on more cores need no more memory than there is.
    (0, 16, 64, 128, 0, (128, 8192, 16)),
    (0, 16, 64, 0, 3, (32, 4096, 3)),
    (0, 2, 23, 4096, 0, (4096, 22528, 2)),  # As a folder from elsewhere might ask for.
    (1, 16, 64, 0, 0, (256, 32768, 1)),
    (1, 16, 64, 500, 2, (500, 64000, 2)),
])  # fmt: skip
def test_limits_follow_from_cores_memory_and_device_unless_they_are_given(
    monkeypatch, gpus, cores, gib, rows, own_cores, expected
):
    """Story: constants tuned on two cores gave a GPU 32 rows a step, and 64 cores the work of 8."""
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind] * gpus)
    monkeypatch.setattr(machine, "cores", lambda: cores)
    monkeypatch.setattr(machine, "memory", lambda: gib * 2**30)
    assert sub_batches.limits_here(rows, own_cores) == expected


def test_limits_of_a_server_do_not_depend_on_this_machine(monkeypatch):
    for name in ("cores", "memory"):
        monkeypatch.setattr(machine, name, lambda: pytest.fail("It is another machine."))
    assert sub_batches.limits_of_server() == (32, 4096, 1)
    assert sub_batches.limits_of_server(256, 4) == (256, 32768, 4)


def test_a_batch_fills_all_sub_batches_and_scoring_keeps_its_share():
    assert [sub_batches.Limits(32, 4096, cores).batch_size for cores in (1, 2, 16)] == [64, 64, 512]
    assert sub_batches.Limits(256, 32768, 1).batch_size == 512
    assert [sub_batches.Limits(rows).scored_tokens for rows in (32, 256)] == [1024, 8192]


@pytest.mark.parametrize(("cores", "expected"), [(1, 2), (2, 2), (5, 5)])
def test_a_sub_batch_runs_on_each_core_at_the_same_time(monkeypatch, cores, expected):
    loop, seen = tf.while_loop, []

    def recorded(*arguments, **options):
        seen.append(options.get("parallel_iterations"))
        return loop(*arguments, **options)

    monkeypatch.setattr(tf, "while_loop", recorded)
    sub_batches_of([7] * 40, max_rows=32, max_tokens=4096, cores=cores)
    assert seen == [None, expected]


def test_a_row_above_the_limit_is_a_sub_batch_by_itself():
    assert sub_batches_of([100, 1, 100], max_rows=4, max_tokens=10) == [[1], [0], [2]]


def test_no_rows_give_nothing_of_the_right_shapes():
    @tf.function
    def run(rows):
        outputs = [tf.TensorSpec([None, 3], tf.float32), tf.TensorSpec([None], tf.string)]
        return in_sub_batches(
            lambda rows: (rows, tf.strings.as_string(rows[:, 0])), rows, tf.zeros([0], tf.int32), max_rows=2,
            max_tokens=2, outputs=outputs,
        )  # fmt: skip

    values, texts, order = run(tf.zeros([0, 3]))
    assert (values.shape, texts.shape, order.shape) == ((0, 3), (0,), (0,))


def test_rows_may_be_a_nest_of_ragged_ones_and_results_may_be_of_other_numbers_than_rows():
    """Each row is written as often as it is long, and comes back by the order that is returned."""
    texts = ["a b c", "", "d", "e f"]

    @tf.function
    def run(texts):
        words = tf.strings.split(texts)
        lengths = tf.cast(words.row_lengths(), tf.int32)

        def function(rows):
            return [rows["words"].values, rows["words"].row_lengths(), tf.strings.upper(rows["text"])]

        outputs = [tf.TensorSpec([None], dtype) for dtype in (tf.string, tf.int64, tf.string)]
        return in_sub_batches(
            function, {"words": words, "text": texts}, lengths, max_rows=2, max_tokens=4, outputs=outputs
        )

    words, lengths, upper, order = run(tf.constant(texts))
    assert order.numpy().tolist() == [1, 2, 3, 0]
    written = tf.RaggedTensor.from_row_lengths(words, lengths)
    for place, row in enumerate(order.numpy()):
        assert [word.decode() for word in written[place].numpy()] == texts[row].split()
        assert upper[place].numpy().decode() == texts[row].upper()
