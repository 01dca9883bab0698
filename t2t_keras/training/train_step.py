"""One update (section 5) over all devices: gradients, their sum, and a step of the optimizer, or none where they are not finite.

The loss is the sum over tokens divided by the number of tokens of the whole update, on whatever devices its rows were. Gradients
are summed over micro-batches and devices first; then, in one place, they are divided, checked, measured, clipped and applied.
"""

from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from t2t_keras.config import TrainConfig
from t2t_keras.data.batching import trimmed
from t2t_keras.model.loss import cross_entropy
from t2t_keras.model.masks import shift_right, token_mask

SUMS = ("loss", "smoothed_loss", "target_tokens", "real_tokens", "positions")


class LossScale(NamedTuple):
    """What a float16 loss is multiplied by, so that small gradients do not vanish (Micikevicius et al. 2018, section 3.2).

    It halves when a gradient overflows, on whatever device, and doubles after 2,000 updates without. Our loss is a sum over
    tokens, not a mean, so that it may begin below the usual 2^15. Other dtypes keep 1.
    """

    scale: float = 1.0
    finite_updates: float = 0.0  # Since the scale last changed.

    def after(self, finite) -> "LossScale":
        """The scale for the next update, as tensors."""
        grown = self.finite_updates + 1 >= 2000
        return LossScale(
            tf.where(finite, tf.where(grown, self.scale * 2, self.scale), self.scale / 2),
            tf.where(tf.logical_and(finite, tf.logical_not(grown)), self.finite_updates + 1, 0.0),
        )


FLOAT16_START = LossScale(2.0**10)


def dropout_seeds(model, seed: int, step, micro_batch, replica) -> list[tuple]:
    """A seed for each dropout layer that the arguments alone decide: all masks differ, and a resumed run draws the same ones.

    Returns:
        (variable, value) pairs for `keras.StatelessScope`.
    """
    states = [variable for variable in model.non_trainable_variables if variable.path.endswith("seed_generator_state")]
    key = tf.constant([seed, 2], tf.int64)
    for number in (step, micro_batch, replica):
        key = tf.random.fold_in(key, tf.cast(number, tf.int64))
    return list(zip(states, tf.unstack(tf.random.split(key, len(states))), strict=True)) if states else []


def _sums(model, source, target, *, label_smoothing: float, training: bool) -> dict:
    """Of one micro-batch: the summed loss and smoothed loss, target tokens, words of both sides, and positions with padding."""
    source, target = trimmed(source, target)
    smoothed_loss, loss = cross_entropy(model((source, shift_right(target)), training=training), target, label_smoothing)
    tokens = tf.reduce_sum(token_mask(target))
    return {
        "loss": tf.reduce_sum(loss),
        "smoothed_loss": tf.reduce_sum(smoothed_loss),
        "target_tokens": tokens,
        "real_tokens": tokens + tf.reduce_sum(token_mask(source)),
        "positions": tf.cast(tf.size(source) + tf.size(target), tf.float32),
    }


def micro_batch_gradients(model, config: TrainConfig, source, target, *, step, micro_batch, replica, scale=1.0) -> tuple[list, dict]:
    """The gradient of `scale` times the summed smoothed loss of one micro-batch for each weight, and the sums."""
    variables = [variable.value for variable in model.trainable_variables]
    seeds = dropout_seeds(model, config.seed, step, micro_batch, replica)
    with tf.GradientTape() as tape, keras.StatelessScope(seeds):
        sums = _sums(model, source, target, label_smoothing=config.label_smoothing, training=True)
        loss = sums["smoothed_loss"] * scale
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    return [tf.convert_to_tensor(gradient) for gradient in gradients], sums


def _over_micro_batches(batch, one: Callable, zeros):
    """Adds up what `one(micro_batch, source, target)` returns, one at a time, so that memory holds one."""

    def body(index, total):
        return index + 1, tf.nest.map_structure(tf.add, total, one(index, batch["source"][index], batch["target"][index]))

    number = tf.shape(batch["source"])[0]
    return tf.while_loop(lambda index, total: index < number, body, (tf.constant(0), zeros), parallel_iterations=1)[1]


def _no_sums() -> dict:
    return {name: tf.zeros([]) for name in SUMS}


def _sum_over_replicas(strategy, values):
    return tf.nest.map_structure(lambda value: strategy.reduce("SUM", value, axis=None), values)


def make_train_step(strategy, model, optimizer, config: TrainConfig, element_spec) -> Callable:
    """One update, compiled once for all shapes.

    Args:
        strategy: whose scope model and optimizer were made in.
        model: called with (source, shifted target); returns logits.
        optimizer: a Keras optimizer, built.
        config: how to train.
        element_spec: of what `devices.distribute` hands out.

    Returns:
        (batch, LossScale, apply) → (metrics, next LossScale). The metrics are sums over the update, or 0 where it was skipped: "loss",
        the negative log likelihood, "smoothed_loss", which is minimised, "target_tokens", "real_tokens" and "positions"; "gradient_norm",
        "learning_rate"; with `histogram_steps`, "weight_gradient_norms" [weights]; and "finite", boolean: where smoothed loss or
        gradient is not, on whatever device, nothing is changed anywhere. Nor is it where `apply` is False, which rehearses an update.
    """
    variables = [variable.value for variable in model.trainable_variables]

    def replica_gradients(batch, step, scale):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group

        def one(micro_batch, source, target):
            place = {"step": step, "micro_batch": micro_batch, "replica": replica}
            return micro_batch_gradients(model, config, source, target, **place, scale=scale)

        return _over_micro_batches(batch, one, ([tf.zeros_like(variable) for variable in variables], _no_sums()))

    def step_of_optimizer(gradients, scale, rate):
        for variable, gradient in zip(variables, gradients, strict=True):
            # Not `optimizer.apply`, which would sum over the replicas once more.
            strategy.extended.update(
                variable, lambda v, g, s, r: optimizer.update_step(g * s, v, r), args=(gradient, scale, rate), group=False
            )
        optimizer.iterations.assign_add(1)

    number = tf.TensorSpec([], tf.float32)

    @tf.function(input_signature=[element_spec, LossScale(number, number), tf.TensorSpec([], tf.bool)])
    def update(batch, loss_scale, apply):
        step, rate = optimizer.iterations.value, optimizer.learning_rate
        gradients, sums = _sum_over_replicas(strategy, strategy.run(replica_gradients, (batch, step, loss_scale.scale)))
        scale = 1 / (sums["target_tokens"] * loss_scale.scale)
        norm = tf.linalg.global_norm(gradients) * scale
        unclipped = scale
        finite = tf.logical_and(tf.math.is_finite(norm), tf.math.is_finite(sums["smoothed_loss"]))
        if config.clip_norm:
            scale *= tf.minimum(1.0, config.clip_norm / norm)
        tf.cond(tf.logical_and(finite, apply), lambda: step_of_optimizer(gradients, scale, rate), lambda: None)
        sums = {name: tf.where(finite, value, 0.0) for name, value in sums.items()}
        if config.histogram_steps:
            sums["weight_gradient_norms"] = tf.stack([tf.norm(gradient) for gradient in gradients]) * unclipped
        next_scale = loss_scale.after(finite) if config.dtype == "float16" else loss_scale
        return {**sums, "gradient_norm": norm, "learning_rate": rate, "finite": finite}, next_scale

    return update


def make_validation(strategy, model, batches) -> Callable[[], float]:
    """A function that returns the mean negative log likelihood, in nats, of all target tokens of a dataset.

    Its exponential is the perplexity per sub-word. `batches` is what `devices.distribute` returned.
    """

    def replica_sums(batch):
        def one(micro_batch, source, target):
            return _sums(model, source, target, label_smoothing=0.0, training=False)

        return _over_micro_batches(batch, one, _no_sums())

    @tf.function(input_signature=[batches.element_spec])
    def sums_of(batch):
        return _sum_over_replicas(strategy, strategy.run(replica_sums, (batch,)))

    def negative_log_likelihood() -> float:
        sums = [sums_of(batch) for batch in batches]
        return sum(float(part["loss"]) for part in sums) / sum(float(part["target_tokens"]) for part in sums)

    return negative_log_likelihood
