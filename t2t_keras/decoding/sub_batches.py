"""Splits a batch into sub-batches of similar lengths, which bounds memory and needs little padding."""

import os
from collections.abc import Callable

import tensorflow as tf

# A CPU computes a sub-batch per core at a time: its operations are too small for several threads.
PARALLEL = min(len(os.sched_getaffinity(0)), 8)
PARALLEL_ON_GPU = 2
LEAST_ROWS = 4  # A batch is not split into smaller sub-batches to occupy more cores: with fewer rows, products are less efficient.


def in_sub_batches(function: Callable, rows, lengths, *, most_rows: int, most_tokens: int, outputs: list[tf.TensorSpec]) -> list:
    """Applies a function to sub-batches of the rows, shortest rows first, and concatenates the results.

    Without a GPU, there is a sub-batch for each of the `PARALLEL` cores if there are enough rows.

    Args:
        function: maps a nest like `rows` with fewer rows to tensors like `outputs`.
        rows: nest of tensors [B, …].
        lengths: length of each row, [B] int32.
        most_rows: maximum number of rows in a sub-batch.
        most_tokens: maximum number of rows × longest length in a sub-batch. A single row may be longer.
        outputs: a spec for each tensor that `function` returns. Only the first axis may differ between sub-batches.

    Returns:
        The results, concatenated along the first axis; and as the last item the order of the rows in them, [B] int32.
    """
    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    order = tf.argsort(lengths, stable=True)
    lengths = tf.gather(lengths, order)
    number = tf.size(order)
    if not on_gpu:
        most_rows = tf.minimum(most_rows, tf.maximum(-(-number // PARALLEL), LEAST_ROWS))

    def end(first):
        ahead = lengths[first : first + most_rows]
        fits = tf.range(1, tf.size(ahead) + 1) * ahead <= most_tokens
        return first + tf.maximum(1, tf.reduce_sum(tf.cast(fits, tf.int32)))

    def sub_batch(first, index, *arrays):
        after = end(first)
        chosen = order[first:after]
        results = function(tf.nest.map_structure(lambda x: tf.gather(x, chosen), rows))
        return after, index + 1, *(array.write(index, result) for array, result in zip(arrays, results, strict=True))

    # Counts the sub-batches first, because arrays that grow need TensorFlow 2.13.
    _, count = tf.while_loop(lambda first, _: first < number, lambda first, count: (end(first), count + 1), (0, 0))
    arrays = [tf.TensorArray(spec.dtype, count, infer_shape=False, element_shape=spec.shape) for spec in outputs]
    parallel = PARALLEL_ON_GPU if on_gpu else PARALLEL
    _, _, *arrays = tf.while_loop(lambda first, *_: first < number, sub_batch, (0, 0, *arrays), parallel_iterations=parallel)
    return [*(array.concat() for array in arrays), order]
