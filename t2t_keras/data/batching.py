"""Batches of about equal length (section 5.1): each holds pairs of similar length up to a budget of tokens a side.

The order of an epoch is a function of (seed, epoch). Shards are drawn in a new order and read a *window* of them at a
time; a window's pairs are sorted by length with random ties, cut into batches, and the batches shuffled. So memory is bounded
by a window (and the next one, read ahead), and a run that starts again inside an epoch reads no more than a window in vain.

An update is made of several batches, one from each of several buckets of length, so that long and short sentences contribute to every step.

Letters: K buckets per update, B rows, S and T padded lengths of source and target.
"""

import math
import pathlib
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.config import PAD
from t2t_keras.data import shards

WINDOW_PAIRS = 2**19


class Position(NamedTuple):
    """Where an epoch stands: batches of `window` (counted over all epochs) that were used already."""

    window: int = 0
    batch: int = 0


START = Position()


def sort_key(source_length, target_length):
    """Orders pairs so that neighbours need little padding on either side.

    Pairs are laid out in strips two source lengths wide; within a strip by target length, up one strip and down the next, so
    that the end of a strip meets the beginning of its neighbour. Of the orders tried this left the most real tokens on both
    short and long sentences.
    """
    strip, target_length = tf.cast(source_length // 2, tf.int64), tf.cast(target_length, tf.int64)
    return strip * 2**17 + tf.where(strip % 2 == 1, -target_length, target_length)


@tf.function  # Its loop has to be a graph's where automatic conversion is off too, as within `Dataset.from_generator`.
def cut(source_lengths, target_lengths, batch_tokens: int):
    """Cuts sorted pairs into batches of rows × padded length ≤ batch_tokens on each side; none could take the next row too.

    Args:
        source_lengths: [pairs] int32, in the order of the rows.
        target_lengths: [pairs] int32.
        batch_tokens: the budget; at least the longest sentence.

    Returns:
        [batches + 1] int32: batch i is the rows from entry i up to entry i + 1.
    """
    longer = tf.maximum(source_lengths, target_lengths)
    total = tf.size(longer)
    first = tf.constant(0)
    cuts = tf.TensorArray(tf.int32, 1, dynamic_size=True).write(0, first)
    while first < total:
        fewest, most = tf.constant(1), tf.minimum(batch_tokens // longer[first], total - first)
        while fewest < most:
            rows = (fewest + most + 1) // 2
            fits = rows * tf.reduce_max(longer[first : first + rows]) <= batch_tokens
            fewest, most = tf.where(fits, rows, fewest), tf.where(fits, most, rows - 1)
        first += fewest
        cuts = cuts.write(cuts.size(), first)
    return cuts.stack()


def _permutation(size, seed):
    """A random order of `size` things that only the seed [2] decides → [size] int32."""
    return tf.argsort(tf.random.stateless_uniform([size], seed, minval=None, maxval=None, dtype=tf.int32), stable=True)


def _padded(ids, starts, lengths):
    """Sentences as rows, padded to the longest: → [B, S] int32."""
    column = tf.range(tf.reduce_max(lengths))
    inside = column < lengths[:, None]
    return tf.where(inside, tf.gather(ids, tf.where(inside, starts[:, None] + column, 0)), PAD)


def _window_seeds(seed: int, window):
    """Independent stateless seeds [2] for a window: of its ties, and of its batches' order."""
    return tf.unstack(tf.random.split(tf.random.fold_in(tf.constant([seed, 1], tf.int64), window), 2))


def windows_per_epoch(info: dict) -> int:
    """How many windows the pairs of `shards.read_info` are read in: of WINDOW_PAIRS about, and of a shard at least."""
    return min(len(info["shards"]), -(-info["pairs"] // WINDOW_PAIRS))


def _count_damaged(windows: tf.data.Dataset, per_epoch: int, begun: bool) -> tf.data.Dataset:
    """Adds the damaged records of windows that nothing is left of to the next one's; stops after an epoch without any pair."""

    def count(state, window):
        pairs, damaged = state["pairs"] + tf.size(window["rows"]), state["damaged"] + window["damaged"]
        ended = (window["window"] + 1) % per_epoch == 0
        told = "Expected pairs in the data. Received: damaged records alone. Prepare the data again."
        tf.debugging.Assert(tf.logical_or(pairs > 0, tf.logical_not(ended)), [told])
        after = {"pairs": tf.where(ended, 0, pairs), "damaged": tf.where(tf.size(window["rows"]) == 0, damaged, 0)}
        return after, {**window, "damaged": damaged}

    return windows.scan({"pairs": tf.constant(int(begun)), "damaged": tf.constant(0)}, count)


def _check(folder: pathlib.Path, info: dict, batch_tokens: int, damaged_records: str) -> None:
    """Raises what `batches` raises."""
    longest = max(info["source_longest"], info["target_longest"])
    if not info["pairs"]:
        raise ValueError(f"Expected sentence pairs in {folder}; it holds none.")
    if longest > batch_tokens:
        raise ValueError(
            f"Expected a budget of at least the longest sentence, {longest} sub-words. Received: {batch_tokens}. "
            "Raise --batch_tokens, or lower --max_length and prepare again."
        )
    shards.check_sizes(folder, damaged_records)


def _sorted_rows(source_lengths, target_lengths, seed):
    """Pairs by length, equal ones in a random order. [pairs] int32 twice → [pairs] int32."""
    rows = _permutation(tf.size(source_lengths), seed)
    key = sort_key(tf.gather(source_lengths, rows), tf.gather(target_lengths, rows))
    return tf.gather(rows, tf.argsort(key, stable=True))


def _read_window(folder: pathlib.Path, info: dict, window, batch_tokens: int, seed: int, damaged_records: str) -> dict:
    """The pairs of one window: which rows stand in which batch, and the order of the batches."""
    number, windows = len(info["shards"]), windows_per_epoch(info)
    epoch, index = window // windows, window % windows
    order = _permutation(number, tf.random.fold_in(tf.constant([seed, 0], tf.int64), epoch))
    pairs = shards.read(folder, order[number * index // windows : number * (index + 1) // windows], damaged_records)
    lengths = [pairs[f"{side}_lengths"] for side in shards.SIDES]
    tie_seed, order_seed = _window_seeds(seed, window)
    rows = _sorted_rows(*lengths, tie_seed)
    cuts = cut(*(tf.gather(side, rows) for side in lengths), batch_tokens)
    starts = {f"{side}_starts": tf.cumsum(side_lengths, exclusive=True) for side, side_lengths in zip(shards.SIDES, lengths, strict=True)}
    return {**pairs, **starts, "window": window, "rows": rows, "cuts": cuts, "order": _permutation(tf.size(cuts) - 1, order_seed)}


def _batch(window: dict, index) -> dict:
    """Batch `index` of a window, padded; see `batches`."""
    chosen = window["order"][index]
    rows = window["rows"][window["cuts"][chosen] : window["cuts"][chosen + 1]]
    ended = index + 1 == tf.size(window["order"], out_type=tf.int64)
    after = tf.where(ended, [window["window"] + 1, 0], [window["window"], index + 1])
    columns = {}
    for side in shards.SIDES:
        starts, lengths = (tf.gather(window[f"{side}_{part}"], rows) for part in ("starts", "lengths"))
        columns[side] = _padded(window[f"{side}_ids"], starts, lengths)
    return {**columns, "position": after, "damaged": tf.where(index == 0, window["damaged"], 0)}


def batches(
    folder: pathlib.Path,
    *,
    batch_tokens: int,
    seed: int,
    start: Position = START,
    epochs: int | None = None,
    damaged_records: str = "stop",
) -> tf.data.Dataset:
    """Batches from `start` on.

    Six pairs with (source, target) lengths (3, 4), (9, 8), (2, 2), (8, 9), (3, 3), (2, 3), at 18 tokens a batch:

        sorted by length   (2, 2) (2, 3) | (3, 4) (3, 3) | (8, 9) (9, 8)
        cut                4 rows × 4 = 16 tokens; a fifth row would make 5 × 9 = 45    → (2, 2) (2, 3) (3, 4) (3, 3)
                           2 rows × 9 = 18 tokens                                       → (8, 9) (9, 8)
        shuffled           the two batches in a random order, padded: [4, 3] and [4, 4]; [2, 9] and [2, 9]

    Args:
        folder: shards that `shards.write` wrote.
        batch_tokens: rows × padded length of a batch, at most, on each side.
        seed: of the order.
        start: the position of the first batch.
        epochs: how often every pair comes, counted from the very beginning; None: without end.
        damaged_records: `stop` at one, or `skip` it: its pairs are left out, and the others come in an order that is a function of
            the whole records.

    Returns:
        A dataset of {"source": [B, S] int32, "target": [B, T] int32, "position": [2] int64, "damaged": [] int32}; `position`
        is the `start` of what comes after, and `damaged` counts records that were skipped, on the first batch of a window alone,
        so that their sum is right. Iterate within `shards.plain_errors`.

    Raises:
        FileNotFoundError: a shard is missing.
        ValueError: the longest sentence does not fit the budget, there is no pair, or a shard has another size than it had.
    """
    info = shards.read_info(folder)
    _check(folder, info, batch_tokens, damaged_records)
    windows = windows_per_epoch(info)

    def window_batches(window):
        first = tf.where(window["window"] == start.window, tf.constant(start.batch, tf.int64), 0)
        return tf.data.Dataset.range(first, tf.size(window["order"], out_type=tf.int64)).map(lambda index: _batch(window, index))

    last = 2**62 if epochs is None else windows * epochs
    read = tf.data.Dataset.range(start.window, last).map(
        lambda window: _read_window(folder, info, window, batch_tokens, seed, damaged_records)
    )
    # An epoch in which a run is resumed had pairs.
    counted = _count_damaged(read, windows, begun=start.window % windows > 0 or start.batch > 0)
    return counted.prefetch(1).flat_map(window_batches)


def buckets(info: dict, batch_tokens: int, wanted: int) -> int:
    """Of how many batches an update of `batch_tokens` is made: as many as wanted, or as the longest sentence fits into."""
    return max(1, min(wanted, batch_tokens // max(1, *(info[f"{side}_longest"] for side in shards.SIDES))))


def grouped(dataset: tf.data.Dataset, buckets: int) -> tf.data.Dataset:
    """Updates of so many batches each: {"source": [K, B, S], "target": [K, B, T], …}, filled up with empty rows and columns."""

    def update(batches):
        others = {"position": lambda values: values[-1], "damaged": tf.reduce_sum}
        return {name: others[name](values) if name in others else values for name, values in batches.items()}

    return dataset.padded_batch(buckets).map(update)


def _used(ids, axis: int):
    """How many rows (axis -1) or columns (axis -2) are not empty; those come first. [..., B, S] → [...] int32."""
    return tf.math.count_nonzero(tf.reduce_any(ids != PAD, axis=axis), axis=-1, dtype=tf.int32)


def trimmed(source, target) -> tuple:
    """A micro-batch without the empty rows and columns at its end that are there only for its size; one of each at least.

    [B, S] int, [B, T] int → [B', S'], [B', T'].
    """
    rows = tf.maximum(_used(source, -1), 1)
    return tuple(ids[:rows, : tf.maximum(_used(ids, -2), 1)] for ids in (source, target))


def cut_rows(sides: dict, number) -> dict:
    """Cuts each batch into so many pieces of as many rows, the last ones fewer: {side: [N, B, S]} → {side: [N, number, rows, S]}."""
    rows = _used(sides["source"], -1)
    share = -(-rows // number)
    place = tf.range(tf.maximum(tf.reduce_max(share), 1))
    row = tf.range(number)[None, :, None] * share[:, None, None] + place
    there = (place < share[:, None, None]) & (row < rows[:, None, None])
    return {side: tf.where(there[..., None], tf.gather(ids, tf.where(there, row, 0), batch_dims=1), PAD) for side, ids in sides.items()}


def fewest_cuts(buckets: int, replicas: int) -> int:
    """Into how many pieces each part is cut at least, for every replica to get as many as every other."""
    return replicas // math.gcd(buckets, replicas)


def split(update: dict, *, buckets: int, replicas: int, micro_batch_tokens: int) -> dict:
    """Shares an update out: every replica gets as many micro-batches as every other, each with rows of one part.

    Args:
        update: {"source": [K, B, S], "target": [K, B, T], …}; see `grouped`.
        buckets: K; an update of fewer is filled up with empty ones.
        replicas: devices.
        micro_batch_tokens: rows × padded length of a micro-batch, at most, on each side (one row at least).

    Returns:
        {"source": [replicas, micro-batches, rows, S], "target": [replicas, micro-batches, rows, T]}; the last rows and
        columns of a micro-batch may be empty (all padding). Other entries are repeated for each replica.
    """
    sides = {side: tf.pad(update[side], [[0, buckets - tf.shape(update[side])[0]], [0, 0], [0, 0]]) for side in shards.SIDES}
    longer = tf.maximum(*(_used(ids, -2) for ids in sides.values()))
    most = tf.maximum(micro_batch_tokens // tf.maximum(longer, 1), 1)
    fewest = fewest_cuts(buckets, replicas)
    pieces = fewest * tf.maximum(-(-tf.reduce_max(-(-_used(sides["source"], -1) // most)) // fewest), 1)
    shares = {
        side: tf.reshape(ids, [replicas, buckets * pieces // replicas, *tf.unstack(tf.shape(ids)[2:])])
        for side, ids in cut_rows(sides, pieces).items()
    }
    others = {name: tf.stack([value] * replicas) for name, value in update.items() if name not in shards.SIDES}
    return {**shares, **others}
