"""Device memory: runs the largest micro-batches before the first update, and splits micro-batches that do not fit."""

import dataclasses
import time
from collections.abc import Callable, Collection, Sequence

import tensorflow as tf

from t2t_keras.config import TrainConfig
from t2t_keras.data import batching, shards
from t2t_keras.data.few_shapes import Shapes
from t2t_keras.system import machine
from t2t_keras.system.log import logger
from t2t_keras.system.tensorflow import gpu_peak_memory
from t2t_keras.training import devices
from t2t_keras.training.train_step import LossScale

# (rows, length of each counted column) → memory in arbitrary units; see `SequenceModel.memory_cost`.
MemoryCost = Callable[..., float]


def largest_shapes(info: dict, config: TrainConfig, replicas: int, cost: MemoryCost) -> dict[int, tuple[int, ...]]:
    """Finds the micro-batch shape of highest cost for each range of lengths: up to 8, 16, 32, … and the longest
    sentence. `info` is from `shards.write`.

    Returns (rows, length of each counted column) by the upper bound of the lengths.
    """
    longest = shards.counted(info)
    buckets = batching.buckets(info, config.batch_tokens, config.buckets_per_update)
    pieces = batching.fewest_cuts(buckets, replicas)

    def largest(length: int) -> tuple[int, ...]:
        share = -(-(config.batch_tokens // buckets // length) // pieces)
        return min(share, max(config.micro_batch_tokens // length, 1)), *(min(length, side) for side in longest)

    # A length slightly below a bound can have one row more.
    bounds = [2**power for power in range(3, (max(longest) - 1).bit_length())] + [max(longest)]
    ranges = {bound: range(shorter + 1, bound + 1) for shorter, bound in zip([0, *bounds], bounds, strict=False)}
    return {bound: max(map(largest, lengths), key=lambda shape: cost(*shape)) for bound, lengths in ranges.items()}


def halve_micro_batches(strategy, batch: dict) -> dict:
    """Returns the same update with twice as many micro-batches of half the rows."""
    halves = list(map(_halved, devices.shares_of(strategy, batch)))
    joined = {name: [share[name] for share in halves] for name in batch}
    # Unlike `strategy.run`, this keeps the only share of a worker wrapped.
    return {
        name: type(value)(joined[name]) if isinstance(value, tf.distribute.DistributedValues) else joined[name][0]
        for name, value in batch.items()
    }


def _halved(share: dict) -> dict:
    """Returns a replica's share of an update with twice as many micro-batches."""
    columns = {name: value for name, value in share.items() if name != batching.SHAPE}
    halved = {name: tf.concat(tf.unstack(ids), axis=0) for name, ids in batching.cut_rows(columns, 2).items()}
    if batching.SHAPE in share:
        rows, widths = tf.split(tf.repeat(share[batching.SHAPE], 2, axis=0), [1, -1], axis=1)
        halved[batching.SHAPE] = tf.concat([(rows + 1) // 2, widths], axis=1)
    return halved


def _ones(strategy, number: int, rows: int, widths: dict[str, int], fixed: bool) -> dict:
    """Returns so many micro-batches of ones on every device, in the host's memory as from `devices.distribute`; with
    `fixed`, as from `batching.split` with shapes.
    """
    with tf.device("CPU:0"):
        share = {name: tf.ones((number, rows, width), tf.int32) for name, width in widths.items()}
        if fixed:
            share[batching.SHAPE] = tf.constant([[rows, *widths.values()]] * number)
    if strategy.num_replicas_in_sync == 1:
        return share
    return {
        name: strategy.experimental_distribute_values_from_function(lambda _, ids=ids: ids)
        for name, ids in share.items()
    }


def _peak_memory() -> float:
    """Returns the largest memory so far, in GiB: that of the fullest GPU or, without one, of this process."""
    of_gpu = gpu_peak_memory()
    return machine.peak_memory() / 2**30 if of_gpu is None else of_gpu


def _shown(rows: int, lengths: Sequence[int]) -> str:
    """Returns the shape of a micro-batch as messages show it: rows x (length of each counted column)."""
    return f"{rows:,} x ({' + '.join(map(str, lengths))})"


class OutOfMemoryError(ValueError):
    """A device is out of memory for a micro-batch that cannot be split. No weight has changed in its update."""


class SplittingTrainStep:
    """A train step that splits micro-batches when the only device runs out of memory. The update stays the same, but
    for the dropout masks.

    With several devices the run ends. One may fail while another waits in the sum over all: TensorFlow then cancels
    that sum, and every later one of the process.

    It remembers the cost of what did not fit, and splits micro-batches of that cost from then on. Trying an update
    again is safe: memory runs out in forward and backward passes, before the optimizer changes any weight. The
    optimizer itself takes less memory, as the activations are freed by then.

    `train_step` is from `make_train_step`, and `counted` names the columns whose lengths `cost`, of the model, takes.
    """

    def __init__(self, strategy, train_step: Callable, cost: MemoryCost, counted: Sequence[str] = tuple(shards.SIDES)):
        self._strategy, self._train_step, self.cost, self._counted = strategy, train_step, cost, counted
        self._cost_limit = float("inf")

    def build(self) -> None:
        """Builds the graph of the train step, and logs how long it takes."""
        logger.info("Building the graph of the training step …")
        started = time.monotonic()
        self._train_step.get_concrete_function()
        logger.info(
            f"Built in {time.monotonic() - started:.1f} s. TensorFlow optimizes it before the first micro-batch …"
        )

    def __call__(self, batch: dict, loss_scale: LossScale, apply: bool = True) -> tuple[dict, LossScale]:
        """Makes an update; see `make_train_step` for the arguments and the result. Raises `OutOfMemoryError` if a
        single row does not fit, or one of several devices runs out of memory.
        """
        scale = LossScale(*(tf.convert_to_tensor(number, tf.float32) for number in loss_scale))
        while True:
            batch = self.split_to_fit(batch)
            try:
                return self._train_step(batch, scale, tf.constant(apply))
            except tf.errors.ResourceExhaustedError as error:
                rows, *lengths = self._largest(batch)
                problem = f"A device is out of memory for a micro-batch of {_shown(rows, lengths)} tokens."
                if rows == 1 or self._strategy.num_replicas_in_sync > 1:
                    alone = "Compute one at a time (`micro_batches_at_once=1`)"
                    smaller = alone if rows == 1 else "Lower `micro_batch_tokens`"
                    raise OutOfMemoryError(
                        f"{problem} {smaller}, or lower `max_length` and prepare the data again."
                    ) from error
                self._cost_limit = self.cost(rows, *lengths)
                logger.warning(
                    f"{problem} Micro-batches of this size are split in two from now on; the updates stay the same, "
                    "except for their dropout masks."
                )

    def _largest(self, batch: dict) -> tuple[int, ...]:
        """Returns (rows, length of each counted column) of the costliest micro-batch, if possible of several rows."""
        shares = [share.values() for share in devices.shares_of(self._strategy, batch)]
        micro_batches = (columns for share in shares for columns in zip(*map(tf.unstack, share), strict=True))
        trimmed = [batching.trimmed(dict(zip(batch, columns, strict=True))) for columns in micro_batches]
        counted = [[columns[name].shape for name in self._counted] for columns in trimmed]
        shapes = [(of_columns[0][0], *(width for _, width in of_columns)) for of_columns in counted]
        return max(shapes, key=lambda shape: (shape[0] > 1, self.cost(*shape)))

    def fits(self, rows: int, *lengths: int) -> bool:
        """Returns whether a micro-batch costs less than any that did not fit."""
        return self.cost(rows, *lengths) < self._cost_limit

    def split_to_fit(self, batch: dict) -> dict:
        """Returns the same update, with its micro-batches halved until none has a cost that was too high before."""
        while self._cost_limit < float("inf") and (largest := self._largest(batch))[0] > 1 and not self.fits(*largest):
            batch = halve_micro_batches(self._strategy, batch)
        return batch


def run_largest_micro_batches(
    strategy,
    train_step: SplittingTrainStep,
    info: dict,
    config: TrainConfig,
    replicas: int,
    longest: Callable = lambda length: {},
    every_range: bool = False,
) -> None:
    """Builds the graph, and runs dummy micro-batches of the costliest of the `largest_shapes`, or with `every_range` of
    all, on every device. No weight changes.

    There are as many of a shape as a device computes at a time. If they do not fit, they are split, and those of the
    next shape run, until some fit. Logs the time, and the peak memory so far: of a GPU or, on a CPU, of this process.

    `longest` maps a length to those of columns that are not counted, see `task.Renewal`; others are as long as the
    first.
    """
    train_step.build()
    buckets = batching.buckets(info, config.batch_tokens, config.buckets_per_update)
    of_update = devices.of_update(dataclasses.replace(config, buckets_per_update=buckets), replicas)
    at_once = min(devices.at_once(strategy, config), of_update)
    shapes = list(largest_shapes(info, config, replicas, train_step.cost).items())
    if not every_range:
        shapes.sort(key=lambda shape: train_step.cost(*shape[1]), reverse=True)
    for bound, (rows, *lengths) in shapes:
        seconds = _seconds(strategy, train_step, info, at_once, rows, lengths, longest)
        shown = f"{_shown(rows, lengths)} tokens{f', {at_once} at a time' if at_once > 1 else ''}"
        logger.info(
            f"Largest micro-batch of lengths up to {bound}: {shown}, {seconds:.2f} s, peak memory "
            f"{_peak_memory():.2f} GiB."
        )
        if not every_range and train_step.fits(rows, *lengths):
            break


def run_shapes(
    strategy,
    train_step: SplittingTrainStep,
    info: dict,
    shapes: Shapes,
    found: Collection[tuple[int, ...]],
    at_once: int,
    every: bool,
    is_stopped: Callable[[], bool] = lambda: False,
    longest: Callable = lambda length: {},
) -> None:
    """Builds the graph, and runs dummy micro-batches of the shapes `found`, (rows, length of each counted column), on
    every device: the costliest one that fits or, with `every`, all of them, so that they are compiled before the first
    update, or until `is_stopped()`. No weight changes. Logs the time of each, and the peak memory so far.

    `at_once` is the number of a shape; for `longest` see `run_largest_micro_batches`.
    """
    train_step.build()
    started = time.monotonic()
    costliest_first = sorted(found, key=lambda shape: train_step.cost(*shape), reverse=True)
    if every:
        logger.info(f"Running micro-batches of all {len(found)} shapes …")
    for number, (rows, *lengths) in enumerate(costliest_first, start=1):
        if is_stopped():
            return
        seconds = _seconds(strategy, train_step, info, at_once, rows, lengths, longest, shapes)
        logger.info(
            f"Shape {number} of {len(found)} of micro-batches: {_shown(rows, lengths)} tokens, {seconds:.1f} s, peak "
            f"memory {_peak_memory():.2f} GiB."
        )
        if not every and train_step.fits(rows, *lengths):
            return
    logger.info(f"All shapes took {time.monotonic() - started:.0f} s.")


def _seconds(
    strategy, train_step, info: dict, number: int, rows: int, lengths, longest: Callable, shapes: Shapes | None = None
) -> float:
    """Runs so many dummy micro-batches of a shape on every device, with `shapes` padded to one of them. Returns the
    seconds that they took.
    """
    counted = [name for name, counts in info["columns"].items() if counts]
    length_of = dict(zip(counted, lengths, strict=True)) | longest(lengths[0])
    widths = {name: length_of.get(name, lengths[0]) for name in info["columns"]}
    if shapes:
        padded = shapes.of_micro_batches({name: tf.constant([width]) for name, width in widths.items()}, 1)
        widths = dict(zip(widths, padded[0, 1:].numpy().tolist(), strict=True))
    batch = _ones(strategy, number, rows, widths, fixed=bool(shapes))
    started = time.monotonic()
    metrics, _ = train_step(batch, LossScale(), apply=False)
    float(metrics["target_tokens"])  # Waits for the devices.
    return time.monotonic() - started
