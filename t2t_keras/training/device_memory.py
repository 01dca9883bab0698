"""Device memory: runs the largest micro-batches before the first update, and splits micro-batches that do not fit."""

import time
from collections.abc import Callable

import tensorflow as tf

from t2t_keras.config import EOS, TrainConfig
from t2t_keras.data import batching, shards
from t2t_keras.log import logger
from t2t_keras.model.restricted_attention import computed_scores
from t2t_keras.training import devices
from t2t_keras.training.train_step import LossScale


def cost(rows: int, source_length: int, target_length: int, attention_window: int = 0) -> float:
    """Estimates the memory that a micro-batch takes, in arbitrary units, to compare shapes.

    The attention weights [H, T, S] grow with the square of the length. With heads of width 64 they are as large as a layer's other
    activations, about 12 of width d_model, at a length of about 770 tokens. Restricted self-attention has fewer weights in the encoder.
    """
    s, t = source_length, target_length
    return rows * (s + t + (computed_scores(attention_window, s) + s * t + t * t) / 770)


def largest_shapes(info: dict, config: TrainConfig, replicas: int, attention_window: int = 0) -> dict[int, tuple[int, int, int]]:
    """Finds the micro-batch shape of highest `cost` for each range of lengths: up to 8, 16, 32, … and the longest sentence.

    Args:
        info: about the shards; see `shards.write`.
        config: has the token budgets.
        replicas: devices that share an update.
        attention_window: of the model.

    Returns:
        (rows, source length, target length) by the upper bound of the lengths.
    """
    longest = [info[f"{side}_longest"] for side in shards.SIDES]
    buckets = batching.buckets(info, config.batch_tokens, config.buckets_per_update)
    pieces = batching.fewest_cuts(buckets, replicas)

    def largest(length: int) -> tuple[int, int, int]:
        share = -(-(config.batch_tokens // buckets // length) // pieces)
        return min(share, max(config.micro_batch_tokens // length, 1)), *(min(length, side) for side in longest)

    # A length slightly below a bound can have one row more.
    bounds = [2**power for power in range(3, 20) if 2**power < max(longest)] + [max(longest)]
    ranges = {bound: range(shorter + 1, bound + 1) for shorter, bound in zip([0, *bounds], bounds, strict=False)}
    return {bound: max(map(largest, lengths), key=lambda shape: cost(*shape, attention_window)) for bound, lengths in ranges.items()}


def halve_micro_batches(strategy, batch: dict) -> dict:
    """Returns the same update with twice as many micro-batches of half the rows."""

    def halve(sides):
        return {side: tf.concat(tf.unstack(ids), axis=0) for side, ids in batching.cut_rows(sides, 2).items()}

    return strategy.run(halve, (batch,))


class SplittingTrainStep:
    """A train step that splits micro-batches when a device runs out of memory. The update stays the same.

    It remembers the cost of what did not fit, and splits micro-batches of that cost from then on. Trying an update again is safe:
    memory runs out in forward and backward passes, before the optimizer changes any weight. The optimizer itself takes less memory,
    as the activations are freed by then.

    Args:
        strategy: the strategy of `train_step`.
        train_step: from `make_train_step`.
        attention_window: of the model.
    """

    def __init__(self, strategy, train_step: Callable, attention_window: int = 0):
        self._strategy, self._train_step, self.attention_window = strategy, train_step, attention_window
        self._cost_limit = float("inf")

    def __call__(self, batch: dict, loss_scale: LossScale, apply: bool = True) -> tuple[dict, LossScale]:
        """Makes an update; see `make_train_step` for the arguments and the result.

        Raises:
            ValueError: a single row does not fit, or one of several workers runs out of memory.
        """
        scale = LossScale(*(tf.convert_to_tensor(number, tf.float32) for number in loss_scale))
        while True:
            batch = self.split_to_fit(batch)
            try:
                return self._train_step(batch, scale, tf.constant(apply))
            except tf.errors.ResourceExhaustedError as error:
                rows, s, t = self._largest(batch)
                problem = f"A device is out of memory for a micro-batch of {rows} x ({s} + {t}) tokens."
                if rows == 1 or devices.several_workers(self._strategy):
                    raise ValueError(f"{problem} Lower `micro_batch_tokens`, or lower `max_length` and prepare the data again.") from error
                self._cost_limit = self._cost(rows, s, t)
                logger.warning(f"{problem} Micro-batches of this size are split in two from now on; the update stays the same.")

    def _cost(self, rows: int, source_length: int, target_length: int) -> float:
        return cost(rows, source_length, target_length, self.attention_window)

    def _largest(self, batch: dict) -> tuple[int, int, int]:
        """Returns (rows, source length, target length) of the costliest micro-batch; one of several rows if there is any."""
        replicas = zip(*(self._strategy.experimental_local_results(batch[side]) for side in shards.SIDES), strict=True)
        trimmed_ids = (batching.trimmed(*sides) for replica in replicas for sides in zip(*map(tf.unstack, replica), strict=True))
        return max(
            ((*source.shape, target.shape[1]) for source, target in trimmed_ids), key=lambda shape: (shape[0] > 1, self._cost(*shape))
        )

    def split_to_fit(self, batch: dict) -> dict:
        """Returns the same update, with its micro-batches halved until none has a cost that was too high before."""
        while self._cost_limit < float("inf") and (largest := self._largest(batch))[0] > 1 and self._cost(*largest) >= self._cost_limit:
            batch = halve_micro_batches(self._strategy, batch)
        return batch


def run_largest_micro_batches(strategy, train_step: SplittingTrainStep, info: dict, config: TrainConfig, replicas: int) -> None:
    """Runs a dummy micro-batch of each of the `largest_shapes` on every device, without changing any weight.

    Micro-batches that do not fit are thus found and split before the first update. Logs the time and the peak memory of each.

    Args:
        strategy: the strategy of `train_step`.
        train_step: the train step to run.
        info, config, replicas: see `largest_shapes`.
    """
    shapes, devices_here = largest_shapes(info, config, replicas, train_step.attention_window), strategy.num_replicas_in_sync
    dummies = tf.data.Dataset.from_tensor_slices(list(shapes.values())).map(
        lambda shape: {side: tf.fill([shape[0] * devices_here, shape[1 + index]], EOS) for index, side in enumerate(shards.SIDES)}
    )
    gpus = tf.config.list_logical_devices("GPU")
    batches = devices.distribute(strategy, dummies, config.micro_batch_tokens)
    for (bound, (rows, s, t)), batch in zip(shapes.items(), batches, strict=True):
        started = time.monotonic()
        metrics, _ = train_step(batch, LossScale(), apply=False)
        float(metrics["loss"])  # Waits for the devices.
        seconds = time.monotonic() - started
        peaks = [tf.config.experimental.get_memory_info(gpu.name.removeprefix("/device:"))["peak"] / 2**30 for gpu in gpus]
        peak = f", peak memory {max(peaks):.2f} GiB" if peaks else ""
        logger.info(f"Largest micro-batch of lengths up to {bound}: {rows:,} x ({s} + {t}) tokens, {seconds:.2f} s{peak}.")
