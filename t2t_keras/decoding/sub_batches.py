"""Splits a batch into sub-batches of similar lengths, which bounds memory and needs little padding."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.system import machine

PARALLEL = 2  # At least this many sub-batches may run at the same time; more if the batch is divided among more cores.
MIN_ROWS = 4  # A core's share of a batch has at least this many rows, because products with fewer are less efficient.
ROWS, GPU_ROWS = 32, 256  # Sentences in a sub-batch. A step on a GPU is as long for one as for hundreds.
TOKENS_OF_ROW = 128  # Sub-words of a side, with padding, that the search has room for with each row.
SCORED_OF_ROW = 32  # The same for scoring, which has V logits for each.
# What a sub-batch of 32 rows may need: in base, with 4 beams in float32, 0.4 GB for keys and values, and as much for
# copies of them.
MEMORY_OF_SUB_BATCH = 2**31


class Limits(NamedTuple):
    """How large sub-batches are, and how many run at the same time.

    Attributes:
        rows: maximum number of rows in a sub-batch.
        tokens: maximum number of rows × longest length in a sub-batch of the search.
        cores: number of cores to divide a batch among. 1, as on a GPU, does not divide it.
    """

    rows: int = ROWS
    tokens: int = ROWS * TOKENS_OF_ROW
    cores: int = 1

    @property
    def scored_tokens(self) -> int:
        """Maximum number of rows × longest length in a sub-batch for scoring, which keeps all logits."""
        return self.rows * SCORED_OF_ROW

    @property
    def batch_size(self) -> int:
        """The number of sentences that fill all sub-batches that run at the same time."""
        return self.rows * max(PARALLEL, self.cores)


def limits_here(rows: int = 0, cores: int = 0) -> Limits:
    """Returns the limits for this machine. All sub-batches together keep to the memory of a CPU.

    Args:
        rows: maximum number of rows in a sub-batch; 0 is 32, or 256 on a GPU.
        cores: number of cores to divide a batch among; 0 is all of this process, or 1 on a GPU.
    """
    gpu = bool(tf.config.list_physical_devices("GPU"))
    rows = rows or (GPU_ROWS if gpu else ROWS)
    cores = cores or (1 if gpu else machine.cores())
    if gpu:
        return Limits(rows, TOKENS_OF_ROW * rows, cores)
    parallel, fit = max(PARALLEL, cores), max(machine.memory() // MEMORY_OF_SUB_BATCH, PARALLEL)
    return Limits(rows, TOKENS_OF_ROW * min(rows, ROWS * fit // parallel), cores)


def limits_of_server(rows: int = 0, cores: int = 0) -> Limits:
    """Returns the limits for another machine, which is not known and has other requests at the same time; see
    `limits_here`.
    """
    rows = rows or ROWS
    return Limits(rows, rows * TOKENS_OF_ROW, cores or 1)


def in_sub_batches(
    function: Callable, rows, lengths, *, max_rows: int, max_tokens: int, outputs: list[tf.TensorSpec], cores: int = 1
) -> list:
    """Applies a function to sub-batches of the rows, shortest rows first, and concatenates the results.

    Args:
        function: maps a nest like `rows` with fewer rows to tensors like `outputs`.
        rows: nest of tensors [B, …].
        lengths: length of each row, [B] int32.
        max_rows: maximum number of rows in a sub-batch.
        max_tokens: maximum number of rows × longest length in a sub-batch. A single row may be longer.
        outputs: a spec for each tensor that `function` returns. Only the first axis may differ between sub-batches.
        cores: number of cores to divide the rows among; see `Limits`.

    Returns:
        The results, concatenated along the first axis; and as the last item the order of the rows in them, [B] int32.
    """
    order = tf.argsort(lengths, stable=True)
    lengths = tf.gather(lengths, order)
    number = tf.size(order)
    parallel = max(PARALLEL, cores)
    if cores > 1:  # As many sub-batches for each core, of about as many rows.
        wanted = -(-number // (cores * max_rows)) * cores
        max_rows = -(-number // tf.clip_by_value(wanted, 1, tf.maximum(number // MIN_ROWS, 1)))

    def end(first):
        ahead = lengths[first : first + max_rows]
        fits = tf.range(1, tf.size(ahead) + 1) * ahead <= max_tokens
        return first + tf.maximum(1, tf.reduce_sum(tf.cast(fits, tf.int32)))

    def sub_batch(first, index, *arrays):
        after = end(first)
        chosen = order[first:after]
        results = function(tf.nest.map_structure(lambda x: tf.gather(x, chosen), rows))
        return after, index + 1, *(array.write(index, result) for array, result in zip(arrays, results, strict=True))

    # Counts the sub-batches first, because arrays that grow need TensorFlow 2.13.
    _, count = tf.while_loop(lambda first, _: first < number, lambda first, count: (end(first), count + 1), (0, 0))
    arrays = [tf.TensorArray(spec.dtype, count, infer_shape=False, element_shape=spec.shape) for spec in outputs]
    _, _, *arrays = tf.while_loop(
        lambda first, *_: first < number, sub_batch, (0, 0, *arrays), parallel_iterations=parallel
    )
    return [*(array.concat() for array in arrays), order]
