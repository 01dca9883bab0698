"""The rows of a request, a few of about one length at a time: memory is bounded, and little of the work is padding."""

from collections.abc import Callable

import tensorflow as tf

PARALLEL = 2  # Chunks worked on at once, where cores are free.


def in_sub_batches(function: Callable, rows, lengths, *, most_rows: int, most_tokens: int, outputs: list[tf.TensorSpec]) -> list:
    """function(some of the rows) for all rows, shortest first; what it returns, joined along the first axis.

    Args:
        function: takes `rows`' nest with fewer rows, and returns tensors as in `outputs`.
        rows: nest of tensors [B, …].
        lengths: [B] int32.
        most_rows, most_tokens: of a chunk: of rows, and of rows × longest; one row is always allowed.
        outputs: a spec of each tensor that `function` returns; only the first axis may differ between chunks.

    Returns:
        The tensors, and last the order of the rows in them, [B] int32.
    """
    order = tf.argsort(lengths, stable=True)
    lengths = tf.gather(lengths, order)
    number = tf.size(order)

    def end(first):
        ahead = lengths[first : first + most_rows]
        fits = tf.range(1, tf.size(ahead) + 1) * ahead <= most_tokens
        return first + tf.maximum(1, tf.reduce_sum(tf.cast(fits, tf.int32)))

    def chunk(first, index, *arrays):
        after = end(first)
        chosen = order[first:after]
        results = function(tf.nest.map_structure(lambda x: tf.gather(x, chosen), rows))
        return after, index + 1, *(array.write(index, result) for array, result in zip(arrays, results, strict=True))

    # Counted first: arrays that grow need TensorFlow 2.13.
    _, count = tf.while_loop(lambda first, _: first < number, lambda first, count: (end(first), count + 1), (0, 0))
    arrays = [tf.TensorArray(spec.dtype, count, infer_shape=False, element_shape=spec.shape) for spec in outputs]
    _, _, *arrays = tf.while_loop(lambda first, *_: first < number, chunk, (0, 0, *arrays), parallel_iterations=PARALLEL)
    return [*(array.concat() for array in arrays), order]
