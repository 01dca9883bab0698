"""Batches of pairs of similar length, up to a budget of tokens on each side (section 5.1).

The order of an epoch is a function of (seed, epoch). Each epoch shuffles the shards and reads them in *windows* of
several shards. The pairs of a window are changed, if the task renews them each epoch. They are sorted by length, with
ties in random order, and cut into batches, and the batches are shuffled. Memory is therefore limited to one window and
the next, which is read ahead. A run that resumes inside an epoch rereads at most one window.

An update consists of several batches, called its buckets: each has sentences of similar length, and short and long
sentences contribute to every update. Each bucket is cut into micro-batches that fit into a device's memory.

Letters: K buckets per update, B rows, S and T padded lengths of source and target.
"""

import functools
import math
import pathlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.config import PAD
from t2t_keras.data import shards
from t2t_keras.data.few_shapes import Shapes
from t2t_keras.runs.task import Renewal

# Approximate size of a window, at the first of both limits. Documents reach that of tokens.
WINDOW_PAIRS, WINDOW_TOKENS = 2**19, 2**25
RENEWED_PAIRS, RENEWED_TOKENS = 2**13, 2**22  # Changed at once, likewise.


class Position(NamedTuple):
    """A place in the sequence of batches."""

    window: int = 0  # Index of the current window, counted over all epochs.
    batch: int = 0  # Number of batches of this window that were already used.


START = Position()
SHAPE = "padded shape"  # Entry of a batch; no column can have this name.


def sort_key(length, *others):
    """Returns a key, [pairs] int64, that sorts pairs so that neighbours need little padding on either side. Its
    arguments are the lengths of the columns, each [pairs] int32; the first two count.

    Records of one column are sorted by its length. Pairs are grouped into strips of two source lengths. Target lengths
    ascend in even strips and descend in odd ones, so that the target length stays similar from one strip to the next.
    Of the orders tried, this one needed the least padding for short and for long sentences.
    """
    if not others:
        return tf.cast(length, tf.int64)
    strip, target_length = tf.cast(length // 2, tf.int64), tf.cast(others[0], tf.int64)
    return strip * 2**17 + tf.where(strip % 2 == 1, -target_length, target_length)


@tf.function(autograph=False)
def cut(longer, batch_tokens: int):
    """Cuts sorted pairs greedily into batches with rows × padded length ≤ batch_tokens on each side, which no sentence
    may exceed. `longer` is [pairs] int32, the length of the longer side of each.

    Returns [batches + 1] int32: batch i has the rows from entry i up to, but not including, entry i + 1.
    """
    total = tf.size(longer)

    def rows_that_fit(first):
        def halved(fewest, most):
            rows = (fewest + most + 1) // 2
            fits = rows * tf.reduce_max(longer[first : first + rows]) <= batch_tokens
            return tf.where(fits, rows, fewest), tf.where(fits, most, rows - 1)

        most = tf.minimum(batch_tokens // longer[first], total - first)
        return tf.while_loop(lambda fewest, most: fewest < most, halved, (1, most))[0]

    def next_batch(first, cuts):
        first += rows_that_fit(first)
        return first, cuts.write(cuts.size(), first)

    cuts = tf.TensorArray(tf.int32, 1, dynamic_size=True).write(0, 0)
    return tf.while_loop(lambda first, _: first < total, next_batch, (0, cuts))[1].stack()


def _permutation(size, seed):
    """Returns a random permutation, [size] int32, that depends only on the seed, [2] int64."""
    return tf.argsort(tf.random.stateless_uniform([size], seed, minval=None, maxval=None, dtype=tf.int32), stable=True)


def _padded(ids, starts, lengths):
    """Returns sentences as rows, [B, S] int32, padded to the longest one, of the concatenated `ids` [tokens] int32, the
    offsets of their first tokens, [B] int64, and their lengths, [B] int32.
    """
    column = tf.range(tf.reduce_max(lengths))
    inside = column < lengths[:, None]
    return tf.where(inside, tf.gather(ids, tf.where(inside, starts[:, None] + tf.cast(column, tf.int64), 0)), PAD)


def _own_seed(seed: int, purpose: int, number):
    """Returns a stateless seed, [2] int64, for one of several purposes of an epoch or a window with this number."""
    return tf.random.fold_in(tf.constant([seed, purpose], tf.int64), number)


def windows_per_epoch(info: dict) -> int:
    """Returns the number of windows in an epoch: each has about `WINDOW_PAIRS` pairs or `WINDOW_TOKENS`, and at least
    one shard. `info` is from `shards.read_info`.
    """
    tokens = sum(info[f"{column}_tokens"] for column in info["columns"])
    return min(len(info["shards"]), max(-(-info["pairs"] // WINDOW_PAIRS), -(-tokens // WINDOW_TOKENS)))


def batches_per_epoch(
    folder: pathlib.Path,
    batch_tokens: int,
    seed: int,
    shapes: Shapes | None = None,
    renewal: Renewal | None = None,
) -> int:
    """Returns the number of batches in the first epoch. Others have about as many. See `batches` for the arguments."""
    info = shards.read_info(folder)
    _check(folder, info, batch_tokens, "skip")
    windows = tf.range(windows_per_epoch(info), dtype=tf.int64)  # As `batches` numbers them: seeds depend on the type.
    read = (_read_window(folder, info, window, batch_tokens, seed, "skip", renewal, shapes) for window in windows)
    return sum(int(tf.size(window["order"])) for window in read)


def shapes_in_window(
    folder: pathlib.Path,
    window: int,
    seed: int,
    damaged_records: str,
    shapes: Shapes,
    micro_batches: int,
    renewal: Renewal | None = None,
) -> set[tuple[int, ...]]:
    """Returns the shapes of the micro-batches of a window, `micro_batches` of each batch: (rows, padded length of each
    counted column). See `batches` for the other arguments.
    """
    info = shards.read_info(folder)
    window = tf.constant(window, tf.int64)
    read = _read_window(folder, info, window, shapes.tokens, seed, damaged_records, renewal, shapes)
    batch_of_row = tf.repeat(tf.range(tf.size(read["order"])), read["cuts"][1:] - read["cuts"][:-1])
    longest = {
        column: tf.math.segment_max(tf.gather(read[f"{column}_lengths"], read["rows"]), batch_of_row)
        for column in shapes.counted
    }
    return {tuple(shape) for shape in shapes.of_micro_batches(longest, micro_batches).numpy().tolist()}


def _count_damaged(windows: tf.data.Dataset, per_epoch: int, begun: bool) -> tf.data.Dataset:
    """Adds the damaged records of windows without pairs to the count of the next window. `windows` has results of
    `_read_window`; `begun` says whether pairs of the first epoch were used before. An epoch without any pair is an
    error.
    """

    def count(state, window):
        pairs, damaged = state["pairs"] + tf.size(window["rows"]), state["damaged"] + window["damaged"]
        ended = (window["window"] + 1) % per_epoch == 0
        message = "Expected pairs in the data. Received: only damaged records. Prepare the data again."
        tf.debugging.Assert(tf.logical_or(pairs > 0, tf.logical_not(ended)), [message])
        after = {"pairs": tf.where(ended, 0, pairs), "damaged": tf.where(tf.size(window["rows"]) == 0, damaged, 0)}
        return after, {**window, "damaged": damaged}

    return windows.scan({"pairs": tf.constant(int(begun)), "damaged": tf.constant(0)}, count)


def _check(folder: pathlib.Path, info: dict, batch_tokens: int, damaged_records: str) -> None:
    """Raises the errors of `batches`."""
    longest = max(shards.counted(info))
    if not info["pairs"]:
        raise ValueError(f"Expected sentence pairs in {folder}; it holds none.")
    if longest > batch_tokens:
        raise ValueError(
            f"Expected `batch_tokens` of at least {longest}, the length of the longest sentence. Received: "
            f"{batch_tokens}. Raise `batch_tokens`, or lower `max_length` and prepare again."
        )
    shards.check_sizes(folder, damaged_records)


def _sorted_rows(lengths: list, seed, key_of: Callable = sort_key):
    """Returns the indices of pairs sorted by the lengths of their columns, with ties in random order: [pairs] int32."""
    rows = _permutation(tf.size(lengths[0]), seed)
    key = key_of(*(tf.gather(column, rows) for column in lengths))
    return tf.gather(rows, tf.argsort(key, stable=True))


def _renewed(pairs: dict, info: dict, renewal: Renewal, seed) -> dict:
    """Returns the columns of pairs as `renewal` changes them, a part at a time; see `shards.read`."""
    stored = {}
    for column in info["columns"]:
        lengths = tf.cast(pairs[f"{column}_lengths"], tf.int64)
        stored[column] = tf.RaggedTensor.from_row_lengths(pairs[f"{column}_ids"], lengths, validate=False)
    number = next(iter(stored.values())).nrows()
    at_once = min(RENEWED_PAIRS, max(1, RENEWED_TOKENS // max(1, *shards.counted(info))))

    def part(first):
        rows = {column: ids[first : first + at_once] for column, ids in stored.items()}
        changed = renewal.change(rows, tf.random.fold_in(seed, first))
        return {column: changed[column].with_row_splits_dtype(tf.int64) for column in renewal.columns}

    kinds = dict.fromkeys(renewal.columns, tf.RaggedTensorSpec([None, None], tf.int32))
    parts = tf.map_fn(part, tf.range(0, number, at_once, tf.int64), fn_output_signature=kinds)
    columns = {}
    for column, ids in parts.items():
        ids = ids.values  # Of all parts.
        columns |= {f"{column}_ids": ids.values, f"{column}_lengths": tf.cast(ids.row_lengths(), tf.int32)}
    return {**columns, "damaged": pairs["damaged"]}


def _read_window(
    folder: pathlib.Path,
    info: dict,
    window,
    batch_tokens: int,
    seed: int,
    damaged_records: str,
    renewal: Renewal | None = None,
    shapes: Shapes | None = None,
) -> dict:
    """Reads the pairs of one window and decides which rows are in which batch, and the order of the batches."""
    number, windows = len(info["shards"]), windows_per_epoch(info)
    epoch, index = window // windows, window % windows
    order = _permutation(number, _own_seed(seed, 0, epoch))
    pairs = shards.read(folder, order[number * index // windows : number * (index + 1) // windows], damaged_records)
    columns = info["columns"]
    if renewal:
        pairs, columns = _renewed(pairs, info, renewal, _own_seed(seed, 3, window)), renewal.columns
    lengths = [pairs[f"{column}_lengths"] for column, counts in info["columns"].items() if counts]
    tie_seed, order_seed = tf.unstack(tf.random.split(_own_seed(seed, 1, window), 2))
    rows = _sorted_rows(lengths, tie_seed, shapes.sort_key if shapes else sort_key)
    sides = [tf.gather(column, rows) for column in lengths]
    cuts = cut(functools.reduce(tf.maximum, shapes.rounded(*sides) if shapes else sides), batch_tokens)
    starts = {
        f"{column}_starts": tf.cumsum(tf.cast(pairs[f"{column}_lengths"], tf.int64), exclusive=True)
        for column in columns
    }
    return {
        **pairs,
        **starts,
        "window": window,
        "rows": rows,
        "cuts": cuts,
        "order": _permutation(tf.size(cuts) - 1, order_seed),
    }


def _batch(window: dict, index, names: Iterable[str]) -> dict:
    """Returns batch `index` of a window with the columns of these names, padded; see `batches`."""
    chosen = window["order"][index]
    rows = window["rows"][window["cuts"][chosen] : window["cuts"][chosen + 1]]
    ended = index + 1 == tf.size(window["order"], out_type=tf.int64)
    after = tf.where(ended, [window["window"] + 1, 0], [window["window"], index + 1])
    columns = {}
    for column in names:
        starts, lengths = (tf.gather(window[f"{column}_{name}"], rows) for name in ("starts", "lengths"))
        columns[column] = _padded(window[f"{column}_ids"], starts, lengths)
    return {**columns, "position": after, "damaged": tf.where(index == 0, window["damaged"], 0)}


@tf.autograph.experimental.do_not_convert
def batches(
    folder: pathlib.Path,
    *,
    batch_tokens: int,
    seed: int,
    start: Position = START,
    epochs: int | None = None,
    damaged_records: str = "stop",
    renewal: Renewal | None = None,
    shapes: Shapes | None = None,
) -> tf.data.Dataset:
    """Returns the batches from position `start` on.

    Example: six pairs with (source, target) lengths (3, 4), (9, 8), (2, 2), (8, 9), (3, 3), (2, 3), and
    batch_tokens=18:

        sorted by length   (3, 4) (3, 3) (2, 3) (2, 2) | (9, 8) (8, 9)
        cut                4 rows × 4 = 16 tokens; a fifth row would make 5 × 9 = 45    → (3, 4) (3, 3) (2, 3) (2, 2)
                           2 rows × 9 = 18 tokens                                       → (9, 8) (8, 9)
        shuffled           the two batches in a random order, padded: [4, 3] and [4, 4]; [2, 9] and [2, 9]

    Args:
        folder: shards written by `shards.write`.
        batch_tokens: maximum of rows × padded length of a batch, on each side.
        seed: seed of the order.
        start: position of the first batch.
        epochs: number of epochs, counted from the very first one; `None` repeats the data indefinitely.
        damaged_records: `stop` raises an error at a damaged record; `skip` leaves out its pairs. The order of the other
            pairs then depends on which records are intact.
        renewal: changes the records anew each epoch; see `Task.renewal`.
        shapes: the shapes to sort and cut pairs by, and also an argument of `split`; `None`: by their own lengths.

    Returns:
        A dataset of {"source": [B, S] int32, "target": [B, T] int32, or other columns, "position": [2] int64,
        "damaged": [] int32}. `position` is the `start` that continues after this batch. `damaged` is the number of
        records skipped in a window, on its first batch, and 0 on its other batches, so that the sum over batches is
        right. Iterate within `shards.plain_errors`.
    """
    info = shards.read_info(folder)
    _check(folder, info, batch_tokens, damaged_records)
    windows = windows_per_epoch(info)

    def window_batches(window):
        first = tf.where(window["window"] == start.window, tf.constant(start.batch, tf.int64), 0)
        return tf.data.Dataset.range(first, tf.size(window["order"], out_type=tf.int64)).map(
            lambda index: _batch(window, index, renewal.columns if renewal else info["columns"])
        )

    last = 2**62 if epochs is None else windows * epochs
    read = tf.data.Dataset.range(start.window, last).map(
        lambda window: _read_window(folder, info, window, batch_tokens, seed, damaged_records, renewal, shapes)
    )
    # If a run resumes after the first window of an epoch, the epoch had pairs.
    counted = _count_damaged(read, windows, begun=start.window % windows > 0)
    return counted.prefetch(1).flat_map(window_batches)


def buckets(info: dict, batch_tokens: int, wanted: int) -> int:
    """Returns the number of buckets of an update of `batch_tokens` on each side: as many as wanted, but few enough for
    the longest sentence to fit into one. `info` is from `shards.read_info`.
    """
    return max(1, min(wanted, batch_tokens // max(1, *shards.counted(info))))


def grouped(dataset: tf.data.Dataset, buckets: int) -> tf.data.Dataset:
    """Groups the results of `batches` into updates of `buckets` batches; the last update may have fewer.

    Returns a dataset of {"source": [K, B, S], "target": [K, B, T], "position": [2], "damaged": []}. Batches are padded
    with empty rows and columns to a common size. `position` is that of the last batch.
    """

    def update(batches):
        others = {"position": lambda values: values[-1], "damaged": tf.reduce_sum}
        return {name: others[name](values) if name in others else values for name, values in batches.items()}

    return dataset.padded_batch(buckets).map(update)


def _used(ids, axis: int):
    """Returns the number of rows (axis -1) or columns (axis -2) with tokens, which come first: [...] int32 of [..., B,
    S].
    """
    return tf.math.count_nonzero(tf.reduce_any(ids != PAD, axis=axis), axis=-1, dtype=tf.int32)


def columns_of(batch: dict) -> dict:
    """Returns the columns of a batch, without what `batches` says about the batch itself."""
    return {name: ids for name, ids in batch.items() if name not in ("position", "damaged")}


def _rows(columns: dict):
    """Returns the number of rows with tokens, by the first column: [...] int32."""
    return _used(next(iter(columns.values())), -1)


def trimmed(columns: dict) -> dict:
    """Removes the empty rows and columns at the end of a micro-batch, each column [B, S] int32; one of each stays. With
    a `SHAPE` from `split`, pads or cuts it to that shape instead.
    """
    shape, columns = columns.get(SHAPE), {name: ids for name, ids in columns.items() if name != SHAPE}
    with tf.device("CPU:0"):  # Where the ids are. A GPU would wait for each bound that it computes.
        if shape is not None:
            rows, *widths = tf.unstack(shape, 1 + len(columns))
            sizes = dict(zip(columns, widths, strict=True))
            return {name: _resized(ids, rows, sizes[name]) for name, ids in columns.items()}
        rows = tf.maximum(_rows(columns), 1)
        return {name: ids[:rows, : tf.maximum(_used(ids, -2), 1)] for name, ids in columns.items()}


def _resized(ids, rows, width):
    """Returns ids [B, S] int32 with so many rows and columns: without its last ones, or with empty ones."""
    ids = ids[:rows, :width]
    return tf.pad(ids, [[0, rows - tf.shape(ids)[0]], [0, width - tf.shape(ids)[1]]])


def cut_rows(columns: dict, number) -> dict:
    """Cuts every bucket, of columns [K, B, S] int32, into the same number of micro-batches: [K, number, rows, S] int32,
    padded with empty rows. The last ones of a bucket may have fewer rows than the others, or none.
    """
    rows = _rows(columns)
    share = -(-rows // number)
    place = tf.range(tf.maximum(tf.reduce_max(share), 1))
    row = tf.range(number)[None, :, None] * share[:, None, None] + place
    there = (place < share[:, None, None]) & (row < rows[:, None, None])
    return {
        name: tf.where(there[..., None], tf.gather(ids, tf.where(there, row, 0), batch_dims=1), PAD)
        for name, ids in columns.items()
    }


def fewest_cuts(buckets: int, replicas: int) -> int:
    """Returns the smallest number of micro-batches per bucket that gives every replica equally many micro-batches."""
    return replicas // math.gcd(buckets, replicas)


def micro_batches_per_bucket(needed, buckets: int, replicas: int):
    """Returns how many micro-batches a bucket is cut into: as many as needed, a number or [] int32 of at least 1, and
    equally many for every replica.
    """
    fewest = fewest_cuts(buckets, replicas)
    return fewest * -(-needed // fewest)


def split(
    update: dict,
    *,
    buckets: int,
    replicas: int,
    micro_batch_tokens: int,
    shapes: Shapes | None = None,
) -> dict:
    """Splits an update from `grouped` into micro-batches, equally many for every replica. Each has rows of one bucket
    only, and at most `micro_batch_tokens` as rows × padded length on each side; one row is always allowed.

    With `shapes`, every update has the same number of micro-batches, and one may have a row more.

    Returns:
        {"source": [replicas, micro-batches, rows, S], "target": [replicas, micro-batches, rows, T], …}. The last rows
        and columns of a micro-batch may be empty (all padding), as is all of a bucket that the update lacks. With
        `shapes`, also `SHAPE`, [replicas, micro-batches, 1 + columns]: the rows of a micro-batch, and the padded length
        of each of its columns. Other entries are repeated for each replica.
    """
    columns = {
        name: tf.pad(ids, [[0, buckets - tf.shape(ids)[0]], [0, 0], [0, 0]]) for name, ids in columns_of(update).items()
    }
    lengths = {name: _used(ids, -2) for name, ids in columns.items()}
    max_rows = tf.maximum(micro_batch_tokens // tf.maximum(functools.reduce(tf.maximum, lengths.values()), 1), 1)
    needed = tf.maximum(tf.reduce_max(-(-_rows(columns) // max_rows)), 1)
    if shapes:
        # The graph must not know the number: an update that is halved for want of memory has twice as many.
        needed = tf.raw_ops.PlaceholderWithDefault(input=-(-shapes.tokens // micro_batch_tokens), shape=[])
    micro_batches = micro_batches_per_bucket(needed, buckets, replicas)
    number = buckets * micro_batches // replicas
    shares = {
        name: tf.reshape(ids, [replicas, number, *tf.unstack(tf.shape(ids)[2:])])
        for name, ids in cut_rows(columns, micro_batches).items()
    }
    if shapes:
        shape = shapes.of_micro_batches(lengths, micro_batches)
        shares[SHAPE] = tf.reshape(tf.repeat(shape, micro_batches, axis=0), [replicas, number, 1 + len(columns)])
    others = {name: tf.stack([value] * replicas) for name, value in update.items() if name not in columns}
    return {**shares, **others}
