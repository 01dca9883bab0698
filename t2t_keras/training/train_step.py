"""The train step and the validation step over all devices (section 5).

The loss is the sum over tokens divided by the number of tokens in the whole update, however its rows are distributed over devices.
Gradients are summed over micro-batches and, by all-reduce, over devices. Each device then has the same sums, which it divides, checks,
measures, clips and applies to its own copy of the weights. An update whose loss or gradient is not finite is skipped.
"""

from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from t2t_keras.config import TrainConfig
from t2t_keras.data.batching import trimmed
from t2t_keras.model.inference import inference
from t2t_keras.model.masks import token_mask
from t2t_keras.training.devices import MICRO_BATCHES_AT_ONCE

SUMS = ("loss", "smoothed_loss", "target_tokens", "real_tokens", "positions", "flops")


class LossScale(NamedTuple):
    """Dynamic loss scaling for float16, so that small gradients do not underflow (Micikevicius et al. 2018, section 3.2).

    The scale halves when a gradient overflows on any device, and doubles after 2,000 updates without an overflow. The loss here is
    a sum over tokens, not a mean, so the scale can start below the usual 2^15. For other dtypes it stays 1.

    Attributes:
        scale: factor on the loss.
        finite_updates: updates since the scale last changed.
    """

    scale: float = 1.0
    finite_updates: float = 0.0

    def after(self, finite) -> "LossScale":
        """Returns the scale of the next update, as tensors.

        Args:
            finite: whether loss and gradient of this update were finite, [] boolean.
        """
        grown = self.finite_updates + 1 >= 2000
        return LossScale(
            tf.where(finite, tf.where(grown, self.scale * 2, self.scale), self.scale / 2),
            tf.where(tf.logical_and(finite, tf.logical_not(grown)), self.finite_updates + 1, 0.0),
        )


FLOAT16_START = LossScale(2.0**10)


def dropout_seeds(model, seed: int, step, micro_batch, replica) -> list[tuple]:
    """Derives a seed for each dropout layer from the arguments: all masks differ, and a resumed run draws the same ones.

    Args:
        model: the model.
        seed: seed of the run.
        step: number of the update, from 0.
        micro_batch: number of the micro-batch in its replica's share.
        replica: number of the replica.

    Returns:
        (variable, value) pairs for `keras.StatelessScope`.
    """
    states = [variable for variable in model.non_trainable_variables if variable.path.endswith("seed_generator_state")]
    key = tf.constant([seed, 2], tf.int64)
    for number in (step, micro_batch, replica):
        key = tf.random.fold_in(key, tf.cast(number, tf.int64))
    return list(zip(states, tf.unstack(tf.random.split(key, len(states))), strict=True)) if states else []


def _sums(model, source, target, *, label_smoothing: float, training: bool) -> dict:
    """Runs the model on a micro-batch.

    Returns:
        `SUMS`: losses, target tokens, tokens of both sides without and with padding, and the operations of the forward pass.
    """
    source, target = trimmed(source, target)
    smoothed_loss, loss = model.cross_entropy(source, target, label_smoothing, training=training)
    tokens = tf.reduce_sum(token_mask(target))
    rows, source_length = tf.unstack(tf.cast(tf.shape(source), tf.float32))
    target_length = tf.cast(tf.shape(target)[1], tf.float32)
    return {
        "loss": loss,
        "smoothed_loss": smoothed_loss,
        "target_tokens": tokens,
        "real_tokens": tokens + tf.reduce_sum(token_mask(source)),
        "positions": tf.cast(tf.size(source) + tf.size(target), tf.float32),
        "flops": model.flops(rows, source_length, target_length),
    }


def micro_batch_gradients(model, config: TrainConfig, source, target, *, step, micro_batch, replica, scale=1.0) -> tuple[list, dict]:
    """Computes the gradients of a micro-batch's summed smoothed loss, times `scale`.

    Args:
        model: see `make_train_step`.
        config: training options.
        source: [B, S] int.
        target: [B, T] int.
        step, micro_batch, replica: see `dropout_seeds`.
        scale: the loss scale.

    Returns:
        The gradient of each trainable variable, and the `SUMS`.
    """
    variables = [variable.value for variable in model.trainable_variables]
    seeds = dropout_seeds(model, config.seed, step, micro_batch, replica)
    with tf.GradientTape() as tape, keras.StatelessScope(seeds):
        sums = _sums(model, source, target, label_smoothing=config.label_smoothing, training=True)
        loss = sums["smoothed_loss"] * scale
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    return [tf.convert_to_tensor(gradient) for gradient in gradients], sums


def _micro_batches_at_once(strategy) -> int:
    """Returns how many micro-batches a device computes at a time: one, so that memory holds the activations of one.

    A CPU computes several, `devices.MICRO_BATCHES_AT_ONCE`.
    """
    return MICRO_BATCHES_AT_ONCE if all("CPU" in device for device in strategy.extended.worker_devices) else 1


def _sum_over_micro_batches(batch, function: Callable, zeros, at_once: int):
    """Sums `function(micro_batch, source, target)` over micro-batches, `at_once` at a time."""

    def body(index, total):
        return index + 1, tf.nest.map_structure(tf.add, total, function(index, batch["source"][index], batch["target"][index]))

    number = tf.shape(batch["source"])[0]
    return tf.while_loop(lambda index, total: index < number, body, (tf.constant(0), zeros), parallel_iterations=at_once)[1]


def _zero_sums() -> dict:
    return {name: tf.zeros([]) for name in SUMS}


def _sum_over_replicas(values):
    """Returns each replica's own copy of the sum over all replicas, in a replica context."""
    return tf.distribute.get_replica_context().all_reduce("SUM", values)


def _of_first_replica(strategy, values):
    """Returns what this process's first replica returned, where all replicas return the same."""
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], values)


def make_train_step(strategy, model, optimizer, config: TrainConfig, element_spec) -> Callable:
    """Makes the train step, which is traced once for all shapes.

    Args:
        strategy: a `tf.distribute.Strategy`; model and optimizer were made in its scope.
        model: a `Transformer`, or a model with its `cross_entropy` and `flops`.
        optimizer: a Keras optimizer, built.
        config: training options.
        element_spec: of the batches that `devices.distribute` returns.

    Returns:
        A function (batch, loss scale, apply) → (metrics, next loss scale). It changes the weights unless `apply` is False, or the
        loss or the gradient is not finite on some device. Metrics:

        - "loss", the negative log likelihood, "smoothed_loss", which is minimised, "target_tokens", "real_tokens", "positions" and
          "flops", the operations of the forward passes: sums over the update, or 0 if it is not finite
        - "gradient_norm" and "learning_rate"
        - with `histogram_steps`, "weight_gradient_norms": [weights], not finite if the update is not
        - "finite": whether loss and gradient are finite, boolean
    """
    variables, at_once = [variable.value for variable in model.trainable_variables], _micro_batches_at_once(strategy)

    def replica_gradients(batch, step, rate, loss_scale):
        """Returns the gradients summed over all replicas, their scale, and the metrics."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group

        def of_micro_batch(micro_batch, source, target):
            place = {"step": step, "micro_batch": micro_batch, "replica": replica}
            return micro_batch_gradients(model, config, source, target, **place, scale=loss_scale)

        zeros = [tf.zeros_like(variable) for variable in variables], _zero_sums()
        gradients, sums = _sum_over_replicas(_sum_over_micro_batches(batch, of_micro_batch, zeros, at_once))
        scale = 1 / (sums["target_tokens"] * loss_scale)
        norm = tf.linalg.global_norm(gradients) * scale
        finite = tf.logical_and(tf.math.is_finite(norm), tf.math.is_finite(sums["smoothed_loss"]))
        metrics = {name: tf.where(finite, value, 0.0) for name, value in sums.items()}
        metrics |= {"gradient_norm": norm, "learning_rate": rate, "finite": finite}
        if config.histogram_steps:
            metrics["weight_gradient_norms"] = tf.stack([tf.norm(gradient) for gradient in gradients]) * scale
        if config.clip_norm:
            scale *= tf.minimum(1.0, config.clip_norm / norm)
        return gradients, scale, metrics

    def apply_gradients(gradients, scale, rate):
        for variable, gradient in zip(variables, gradients, strict=True):
            # `optimizer.apply` would sum the gradients over the replicas again.
            strategy.extended.update(
                variable, lambda v, g, s, r: optimizer.update_step(g * s, v, r), args=(gradient, scale, rate), group=False
            )
        optimizer.iterations.assign_add(1)

    number = tf.TensorSpec([], tf.float32)

    @tf.function(input_signature=[element_spec, LossScale(number, number), tf.TensorSpec([], tf.bool)])
    def train_step(batch, loss_scale, apply):
        step, rate = optimizer.iterations.value, optimizer.learning_rate
        gradients, scale, metrics = strategy.run(replica_gradients, (batch, step, rate, loss_scale.scale))
        metrics = _of_first_replica(strategy, metrics)
        tf.cond(tf.logical_and(metrics["finite"], apply), lambda: apply_gradients(gradients, scale, rate), lambda: None)
        next_scale = loss_scale.after(metrics["finite"]) if config.dtype == "float16" else loss_scale
        return metrics, next_scale

    return train_step


def make_validation(strategy, model, batches) -> Callable[[], float]:
    """Makes a function that returns the mean negative log likelihood of a dataset's target tokens, in nats.

    Its exponential is the perplexity per sub-word.

    Args:
        strategy: see `make_train_step`.
        model: see `make_train_step`.
        batches: the dataset, from `devices.distribute`.
    """

    def replica_sums(batch):
        def of_micro_batch(micro_batch, source, target):
            with inference():
                return _sums(model, source, target, label_smoothing=0.0, training=False)

        return _sum_over_replicas(_sum_over_micro_batches(batch, of_micro_batch, _zero_sums(), _micro_batches_at_once(strategy)))

    @tf.function(input_signature=[batches.element_spec])
    def sums_of(batch):
        return _of_first_replica(strategy, strategy.run(replica_sums, (batch,)))

    def negative_log_likelihood() -> float:
        sums = [sums_of(batch) for batch in batches]
        return sum(float(part["loss"]) for part in sums) / sum(float(part["target_tokens"]) for part in sums)

    return negative_log_likelihood
