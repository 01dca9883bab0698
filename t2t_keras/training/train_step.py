"""The train step and the validation step over all devices (section 5).

The loss is the sum over tokens divided by the number of tokens in the whole update, however its rows are distributed
over devices. Gradients are summed over micro-batches and, by all-reduce, over devices. Each device then has the same
sums, which it divides, checks, measures, clips and applies to its own copy of the weights. An update whose loss or
gradient is not finite is skipped.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from t2t_keras.config import TrainConfig
from t2t_keras.data.batching import columns_of, trimmed
from t2t_keras.layers.inference import compiled, inference
from t2t_keras.layers.masks import token_mask
from t2t_keras.runs.task import SUMS, Task
from t2t_keras.system.compat import number_functions_from_a_round_number
from t2t_keras.system.log import logger
from t2t_keras.training import devices
from t2t_keras.training.optimizer import Adam


class LossScale(NamedTuple):
    """Dynamic loss scaling for float16, so that small gradients do not underflow (Micikevicius et al. 2018, section
    3.2).

    The scale halves when a gradient overflows on any device, and doubles after 2,000 updates without an overflow. The
    loss here is a sum over tokens, not a mean, so the scale can start below the usual 2^15. For other dtypes it
    stays 1.

    Attributes:
        scale: factor on the loss.
        finite_updates: updates since the scale last changed.
    """

    scale: float = 1.0
    finite_updates: float = 0.0

    def after(self, finite) -> "LossScale":
        """Returns the scale of the next update, as tensors. `finite`, [] boolean, is that of this update's metrics."""
        grown = self.finite_updates + 1 >= 2000
        return LossScale(
            tf.where(finite, tf.where(grown, self.scale * 2, self.scale), self.scale / 2),
            tf.where(tf.logical_and(finite, tf.logical_not(grown)), self.finite_updates + 1, 0.0),
        )


FLOAT16_START = LossScale(2.0**10)


def _states(model) -> list:
    """Returns the states of the random number generators of a model."""
    return [variable for variable in model.non_trainable_variables if variable.path.endswith("seed_generator_state")]


def _frozen(model) -> list:
    """Returns the weights that are not trained."""
    states = {id(state) for state in _states(model)}
    return [variable for variable in model.non_trainable_variables if id(variable) not in states]


def dropout_seeds(model, seed: int, step, micro_batch, replica) -> list[tuple]:
    """Derives a seed for each dropout layer from the seed of the run, the number of the update from 0, the micro-batch
    in its replica's share, and the replica: all masks differ, and a resumed run draws the same ones.

    Returns (variable, value) pairs for `keras.StatelessScope`.
    """
    states = _states(model)
    with tf.device("CPU:0"):  # A GPU reads seeds from the host, which would wait until the GPU has computed them.
        key = tf.constant([seed, 2], tf.int64)
        for number in (step, micro_batch, replica):
            key = tf.random.fold_in(key, tf.cast(number, tf.int64))
        return list(zip(states, tf.unstack(tf.random.split(key, len(states))), strict=True)) if states else []


def _sums(model, task: Task, columns: dict, *, label_smoothing: float, training: bool) -> dict:
    """Runs the model on a micro-batch. Returns the sums of the task, and `SUMS`: tokens of the target column, tokens of
    the counted columns without and with padding, and the operations of the forward pass.
    """
    counted = [columns[column.name] for column in task.columns if column.counted]
    shapes = [tf.cast(tf.shape(ids), tf.float32) for ids in counted]
    sums = task.loss(model, columns, label_smoothing=label_smoothing, training=training)
    if sums.keys() != set(task.sums):
        raise ValueError(
            f"Expected the sums {', '.join(task.sums)} from `loss` of the task {task.name}. Received: "
            f"{', '.join(sums)}."
        )
    return {
        **{name: tf.cast(value, tf.float32) for name, value in sums.items()},
        "target_tokens": tf.reduce_sum(token_mask(columns[task.target])),
        "real_tokens": tf.add_n([tf.reduce_sum(token_mask(ids)) for ids in counted]),
        "positions": tf.add_n([tf.reduce_prod(shape) for shape in shapes]),
        "flops": model.flops(shapes[0][0], *(shape[1] for shape in shapes)) * (model.passes if training else 1),
    }


def micro_batch_gradients(
    model, task: Task, config: TrainConfig, columns: dict, *, step, micro_batch, replica, scale
) -> tuple[list, dict]:
    """Computes the gradients of the task's objective, a sum over a micro-batch {column: [B, T] int}, times `scale`, the
    loss scale. For `step`, `micro_batch` and `replica` see `dropout_seeds`.

    Returns the gradient of each trainable variable, and the sums.
    """
    variables = [variable.value for variable in model.trainable_variables]
    seeds = dropout_seeds(model, config.seed, step, micro_batch, replica)
    with tf.GradientTape() as tape, keras.StatelessScope(seeds):
        sums = _sums(model, task, columns, label_smoothing=config.label_smoothing, training=True)
        loss = sums[task.objective] * scale
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    return [tf.convert_to_tensor(gradient) for gradient in gradients], sums


def make_program(model, task: Task, config: TrainConfig) -> Callable:
    """Makes the forward and the backward pass of a micro-batch as one program that XLA compiles for each shape: a
    `tf.function` (trained weights, other ones, seeds of the dropout layers, {column: [B, T] int32}, loss scale) →
    gradients of the trained weights, sums of `_sums`.

    It is a function of all that it reads, so every replica calls the same program.
    """
    trained, others, states = model.trainable_variables, _frozen(model), _states(model)
    signature = [
        *([tf.TensorSpec(weight.shape, weight.dtype) for weight in weights] for weights in (trained, others)),
        [tf.TensorSpec([2], tf.int64)] * len(states),
        {column.name: tf.TensorSpec([None, None], tf.int32) for column in task.columns},
        tf.TensorSpec([], tf.float32),
    ]

    @tf.function(jit_compile=True, autograph=False, input_signature=signature)
    def program(values: list, other_values: list, seeds: list, columns: dict, scale):
        given = zip([*trained, *others, *states], [*values, *other_values, *seeds], strict=True)
        with tf.GradientTape() as tape, keras.StatelessScope(list(given)), compiled():
            tape.watch(values)
            sums = _sums(model, task, columns, label_smoothing=config.label_smoothing, training=True)
            loss = sums[task.objective] * scale
            gradients = tape.gradient(loss, values, unconnected_gradients="zero")
        return [tf.convert_to_tensor(gradient) for gradient in gradients], sums

    return program


class CannotCompileError(ValueError):
    """XLA cannot compile a network, such as one with recurrent layers. The message is XLA's reason."""


def make_compiled_gradients(model, task: Task, config: TrainConfig) -> Callable:
    """Makes `micro_batch_gradients` of one model with `make_program`: a function (columns, *, step, micro_batch,
    replica, scale) → gradients, sums. The seeds of dropout are the same and, on a CPU, the masks that XLA draws from
    them. Raises `CannotCompileError` if XLA cannot compile the network.
    """
    program = make_program(model, task, config)

    def arguments(columns: dict, step, micro_batch, replica, scale) -> tuple:
        seeds = [seed for _, seed in dropout_seeds(model, config.seed, step, micro_batch, replica)]
        trained, others = (
            [tf.convert_to_tensor(weight.value) for weight in weights]
            for weights in (model.trainable_variables, _frozen(model))
        )
        return trained, others, seeds, columns, scale

    def gradients(columns: dict, *, step, micro_batch, replica, scale) -> tuple[list, dict]:
        return program(*arguments(columns, step, micro_batch, replica, scale))

    number_functions_from_a_round_number()
    program.get_concrete_function()  # Raises the errors of the model and the task themselves.
    smallest = {column.name: tf.ones([1, 2], tf.int32) for column in task.columns}
    try:
        program.experimental_get_compiler_ir(*arguments(smallest, 0, 0, 0, tf.constant(1.0)))(stage="hlo")
    except (ValueError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
        raise CannotCompileError(str(error).split(": '")[-1].partition(". ")[0]) from error
    return gradients


def _make_gradients(strategy, model, task: Task, config: TrainConfig) -> Callable:
    """Returns the function that computes the gradients of a micro-batch, compiled if the run is and XLA can."""
    if devices.compiles(strategy, config):
        if config.length_buckets <= 1:
            logger.warning(
                "XLA compiles each of the many shapes of micro-batches when it first comes. For few shapes, start a "
                "new run with `length_buckets=1.15`; `jit_compile=false` compiles none."
            )
        try:
            return make_compiled_gradients(model, task, config)
        except CannotCompileError as error:
            logger.warning(f"XLA cannot compile this network ({error}): it runs as with `jit_compile=false`.")
    return functools.partial(micro_batch_gradients, model, task, config)


def _sum_over_micro_batches(batch, function: Callable, zeros, at_once: int):
    """Sums `function(micro_batch, columns)` over micro-batches, `at_once` at a time."""

    def body(index, total):
        found = function(index, {name: ids[index] for name, ids in batch.items()})
        return index + 1, tf.nest.map_structure(tf.add, total, found)

    batch = columns_of(batch)
    number = tf.shape(next(iter(batch.values())))[0]
    start = tf.constant(0), zeros
    return tf.while_loop(lambda index, _: index < number, body, start, parallel_iterations=at_once)[1]


def _zero_sums(task: Task) -> dict:
    return {name: tf.zeros([]) for name in (*task.sums, *SUMS)}


def _sum_over_replicas(values):
    """Returns each replica's own copy of the sum over all replicas, in a replica context."""
    return tf.distribute.get_replica_context().all_reduce("SUM", values)


def _of_first_replica(strategy, values):
    """Returns what this process's first replica returned, where all replicas return the same."""
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], values)


def make_train_step(
    strategy, model, optimizer, task: Task, config: TrainConfig, element_spec, frozen_rows=None
) -> Callable:
    """Makes the train step, which is traced once for all shapes. With `jit_compile`, XLA compiles the forward and the
    backward pass for each shape of a micro-batch.

    Args:
        strategy: a `tf.distribute.Strategy`; model and optimizer were made in its scope.
        model: a model for the task, with its `flops`; see `model.protocols`.
        optimizer: `optimizer.Adam`, built. Another Keras optimizer may be used if it has no averages: a skipped update
            would change them.
        element_spec: of the batches that `devices.distribute` returns.
        frozen_rows: rows of the embedding matrix that the first `freeze_embeddings` updates do not change, [V] boolean;
            `None` for none.

    Returns:
        A function (batch, loss scale, apply) → (metrics, next loss scale). It changes the weights unless `apply` is
        False, or the loss or the gradient is not finite on some device. Metrics:

        - the sums of the task, "target_tokens", "real_tokens", "positions" and "flops", the operations of the forward
          passes: sums over the update, or 0 if it is not finite
        - "gradient_norm" and "learning_rate"
        - with `histogram_steps`, "weight_gradient_norms": [weights], not finite if the update is not
        - "finite": whether loss and gradient are finite, boolean
    """
    variables, at_once = [variable.value for variable in model.trainable_variables], devices.at_once(strategy, config)
    gradients_of = _make_gradients(strategy, model, task, config)

    def of_trained_rows(gradients: list, step) -> list:
        """Sets the gradients of frozen rows to 0: Adam then leaves the rows as they are, and its averages at 0."""
        if frozen_rows is None:
            return gradients
        is_trained = tf.logical_or(step >= config.freeze_embeddings, tf.logical_not(frozen_rows))
        trained = tf.cast(is_trained, tf.float32)[:, None]
        of_matrix = [variable is model.embedding_matrix for variable in model.trainable_variables]
        return [gradient * trained if each else gradient for gradient, each in zip(gradients, of_matrix, strict=True)]

    def replica_gradients(batch, step, rate, loss_scale, apply):
        """Returns the gradients summed over all replicas; their scale, 0 in an update that is not applied; and the
        metrics.
        """
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group

        def of_micro_batch(micro_batch, columns):
            place = {"step": step, "micro_batch": micro_batch, "replica": replica}
            return gradients_of(trimmed(columns), **place, scale=loss_scale)

        with tf.device("CPU:0"):  # Read once, and not for each micro-batch; see `dropout_seeds`.
            step = tf.identity(step)
        zeros = [tf.zeros_like(variable) for variable in variables], _zero_sums(task)
        gradients, sums = _sum_over_replicas(_sum_over_micro_batches(batch, of_micro_batch, zeros, at_once))
        gradients = of_trained_rows(gradients, step)
        scale = 1 / (sums["target_tokens"] * loss_scale)
        norm = tf.linalg.global_norm(gradients) * scale
        finite = tf.logical_and(tf.math.is_finite(norm), tf.math.is_finite(sums[task.objective]))
        metrics = {name: tf.where(finite, value, 0.0) for name, value in sums.items()}
        metrics |= {"gradient_norm": norm, "learning_rate": rate, "finite": finite}
        if config.histogram_steps:
            metrics["weight_gradient_norms"] = tf.stack([tf.norm(gradient) for gradient in gradients]) * scale
        if config.clip_norm:
            scale *= tf.minimum(1.0, config.clip_norm / norm)
        return gradients, tf.where(tf.logical_and(finite, apply), scale, 0.0), metrics

    def apply_gradients(gradients, scale, rate, applied):
        """Updates the weights if `applied`, [] boolean. If not, factors of 0 and 1 keep them as they are: tracing a
        `tf.cond` that has all weights as inputs takes as long as half of the rest of the step.
        """

        def update(variable, gradient, scale, rate, factors, share):
            # Here 0 times a gradient that is not finite is 0.
            optimizer.update_step(tf.math.multiply_no_nan(gradient, scale), variable, rate, *factors)
            if config.ema_decay:
                optimizer.update_average(variable, share)

        # Once for all weights: each operation is a launch on a GPU.
        factors = optimizer.factors(applied) if isinstance(optimizer, Adam) else ()
        share = optimizer.average_share(applied) if config.ema_decay else None
        rate = tf.where(applied, rate, 0.0)
        for variable, gradient in zip(variables, gradients, strict=True):
            # `optimizer.apply` would sum the gradients over the replicas again.
            strategy.extended.update(variable, update, args=(gradient, scale, rate, factors, share), group=False)
        optimizer.iterations.assign_add(tf.cast(applied, optimizer.iterations.dtype))

    number = tf.TensorSpec([], tf.float32)

    @tf.function(input_signature=[element_spec, LossScale(number, number), tf.TensorSpec([], tf.bool)], autograph=False)
    def train_step(batch, loss_scale, apply):
        step, rate = optimizer.iterations.value, optimizer.learning_rate
        gradients, scale, metrics = strategy.run(replica_gradients, (batch, step, rate, loss_scale.scale, apply))
        metrics = _of_first_replica(strategy, metrics)
        apply_gradients(gradients, scale, rate, tf.logical_and(metrics["finite"], apply))
        next_scale = loss_scale.after(metrics["finite"]) if config.dtype == "float16" else loss_scale
        return metrics, next_scale

    return train_step


def make_validation(strategy, model, task: Task, batches, at_once: int = 1) -> Callable[[], dict[str, float]]:
    """Makes a function that returns the sums of a dataset from `devices.distribute`: those of the task, and `SUMS`. A
    device computes `at_once` micro-batches at a time.
    """

    def replica_sums(batch):
        def of_micro_batch(micro_batch, columns):
            with inference():
                return _sums(model, task, trimmed(columns), label_smoothing=0.0, training=False)

        return _sum_over_replicas(_sum_over_micro_batches(batch, of_micro_batch, _zero_sums(task), at_once))

    @tf.function(input_signature=[batches.element_spec], autograph=False)
    def sums_of(batch):
        return _of_first_replica(strategy, strategy.run(replica_sums, (batch,)))

    def sums() -> dict[str, float]:
        parts = [sums_of(batch) for batch in batches]
        return {name: sum(float(part[name]) for part in parts) for name in parts[0]}

    return sums
