"""No surprises of memory: the largest micro-batches are tried before the first update, and split where a device has no room."""

import time
from collections.abc import Callable

import tensorflow as tf

from t2t_keras.config import EOS, TrainConfig
from t2t_keras.data import batching, shards
from t2t_keras.log import logger
from t2t_keras.training import devices
from t2t_keras.training.train_step import LossScale


def cost(rows: int, source_length: int, target_length: int) -> float:
    """How much memory a micro-batch takes, in no unit: it puts shapes in order.

    Attention's weights [H, T, S] grow with the square of the length; with heads of 64 they are as large as a layer's other
    activations, about 12 of width d_model, at some 770 tokens.
    """
    s, t = source_length, target_length
    return rows * (s + t + (s * s + s * t + t * t) / 770)


def largest_shapes(info: dict, config: TrainConfig, replicas: int) -> list[tuple[int, int, int]]:
    """The costliest (rows, source length, target length) of a micro-batch among lengths up to 8, 16, 32, … and the longest.

    Args:
        info: of the shards; see `shards.write`.
        config: whose budgets the updates keep.
        replicas: devices that an update is shared out to.
    """
    longest = [info[f"{side}_longest"] for side in shards.SIDES]
    buckets = batching.buckets(info, config.batch_tokens, config.buckets_per_update)
    pieces = batching.fewest_cuts(buckets, replicas)

    def largest(length: int) -> tuple[int, int, int]:
        share = -(-(config.batch_tokens // buckets // length) // pieces)
        return min(share, max(config.micro_batch_tokens // length, 1)), *(min(length, side) for side in longest)

    # A length a little below a bound may have a row more.
    bounds = [2**power for power in range(3, 20) if 2**power < max(longest)] + [max(longest)]
    ranges = [range(shorter + 1, bound + 1) for shorter, bound in zip([0, *bounds], bounds, strict=False)]
    return [max(map(largest, lengths), key=lambda shape: cost(*shape)) for lengths in ranges]


def halved(strategy, batch: dict) -> dict:
    """The same update in micro-batches of half the rows, twice as many."""

    def halve(sides):
        return {side: tf.concat(tf.unstack(ids), axis=0) for side, ids in batching.cut_rows(sides, 2).items()}

    return strategy.run(halve, (batch,))


class SplittingTrainStep:
    """An update that goes through also where a device is out of memory: its micro-batches are split, and so are like ones from then on.

    Memory runs out in forward and backward passes. The step of the optimizer comes after them, when all they held is free, and takes
    less; so what is tried again has not moved a weight yet.

    Args:
        strategy: of the update.
        update: what `make_train_step` returned.
    """

    def __init__(self, strategy, update: Callable):
        self._strategy, self._update = strategy, update
        self._too_costly = float("inf")

    def __call__(self, batch: dict, loss_scale: LossScale, apply: bool = True) -> tuple[dict, LossScale]:
        """Args and result as of `make_train_step`'s function."""
        scale = LossScale(*(tf.constant(number, tf.float32) for number in loss_scale))
        while True:
            batch = self.fitted(batch)
            try:
                metrics, after = self._update(batch, scale, tf.constant(apply))
                return metrics, LossScale(*map(float, after))
            except tf.errors.ResourceExhaustedError as error:
                rows, s, t = self._largest(batch)
                told = f"A device has no memory for {rows} rows of {s} + {t} sub-words."
                if rows == 1 or devices.several_workers(self._strategy):
                    raise ValueError(f"{told} Lower --micro_batch_tokens, or --max_length and prepare again.") from error
                self._too_costly = cost(rows, s, t)
                logger.warning(f"{told} From now on micro-batches of that size are split in two; the update stays the same.")

    def _largest(self, batch: dict) -> tuple[int, int, int]:
        """The costliest (rows, source length, target length) of the micro-batches here; of one row only where none has more."""
        replicas = zip(*(self._strategy.experimental_local_results(batch[side]) for side in shards.SIDES), strict=True)
        trimmed_ids = (batching.trimmed(*sides) for replica in replicas for sides in zip(*map(tf.unstack, replica), strict=True))
        return max(((*source.shape, target.shape[1]) for source, target in trimmed_ids), key=lambda shape: (shape[0] > 1, cost(*shape)))

    def fitted(self, batch: dict) -> dict:
        """The update in micro-batches that are not known to be too large."""
        while self._too_costly < float("inf") and (largest := self._largest(batch))[0] > 1 and cost(*largest) >= self._too_costly:
            batch = halved(self._strategy, batch)
        return batch


def rehearse(strategy, update: SplittingTrainStep, info: dict, config: TrainConfig, replicas: int) -> None:
    """Runs the costliest micro-batch of every range of lengths, made up, on every device, without changing a weight.

    Args:
        strategy: of the update.
        update: the update to rehearse.
        info, config, replicas: see `largest_shapes`.
    """
    shapes, devices_here = largest_shapes(info, config, replicas), strategy.num_replicas_in_sync
    made_up = tf.data.Dataset.from_tensor_slices(shapes).map(
        lambda shape: {side: tf.fill([shape[0] * devices_here, shape[1 + index]], EOS) for index, side in enumerate(shards.SIDES)}
    )
    gpus = tf.config.list_logical_devices("GPU")
    for (rows, s, t), batch in zip(shapes, devices.distribute(strategy, made_up, config.micro_batch_tokens), strict=True):
        began = time.monotonic()
        update(batch, LossScale(), apply=False)
        peaks = [tf.config.experimental.get_memory_info(gpu.name.removeprefix("/device:"))["peak"] / 2**30 for gpu in gpus]
        peak = f"; peak memory {max(peaks):.2f} GiB" if peaks else ""
        logger.info(f"Rehearsed {rows:,} rows of {s} + {t} sub-words on each device: {time.monotonic() - began:.2f} s{peak}.")
