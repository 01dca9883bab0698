"""Training (section 5): one update over all devices, validation, and the loop around them.

The loss is the sum over tokens divided by the number of tokens of the whole update, on whatever devices its rows were. Gradients
are summed over micro-batches and devices first; then, in one place, they are divided, measured, clipped and applied.
"""

import dataclasses
import math
import pathlib
import sys
import time
from collections.abc import Callable

import keras
import tensorflow as tf
import tqdm

from t2t_keras import batching, checkpoint
from t2t_keras.config import TrainConfig
from t2t_keras.loss import cross_entropy, shift_right, token_mask


def make_strategy(cpu_devices: int = 1) -> tf.distribute.Strategy:
    """MirroredStrategy over all GPUs, or, where there is none, over virtual CPU devices; one device is the case n = 1.

    Virtual devices have to be asked for before TensorFlow is first used.
    """
    if gpus := [device.name for device in tf.config.list_logical_devices("GPU")]:
        return tf.distribute.MirroredStrategy(gpus)
    return tf.distribute.MirroredStrategy([f"/cpu:{index}" for index in range(cpu_devices)])


def virtual_cpu_devices(number: int) -> None:
    """Splits the CPU into virtual devices, which stand in for GPUs in tests and trials."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * number)


def distribute(strategy, dataset: tf.data.Dataset, device_tokens: int):
    """Hands each replica its share of an update at every step: {"source": [micro-batches, rows, S], …}."""
    replicas = strategy.num_replicas_in_sync
    shared = dataset.map(lambda update: batching.split(update, replicas=replicas, device_tokens=device_tokens)).unbatch()
    return strategy.distribute_datasets_from_function(lambda context: shared.prefetch(4 * replicas))


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
    """Of one micro-batch: the summed loss, target tokens, words of both sides, and positions with padding."""
    loss = cross_entropy(model((source, shift_right(target)), training=training), target, label_smoothing)
    tokens = tf.reduce_sum(token_mask(target))
    return {
        "loss": tf.reduce_sum(loss),
        "tokens": tokens,
        "words": tokens + tf.reduce_sum(token_mask(source)),
        "positions": tf.cast(tf.size(source) + tf.size(target), tf.float32),
    }


def _no_sums() -> dict:
    return {name: tf.zeros([]) for name in ("loss", "tokens", "words", "positions")}


def _over_micro_batches(batch, one: Callable, zeros):
    """Adds up what `one(micro_batch, source, target)` returns, one at a time, so that memory holds one."""

    def body(index, total):
        return index + 1, tf.nest.map_structure(tf.add, total, one(index, batch["source"][index], batch["target"][index]))

    number = tf.shape(batch["source"])[0]
    return tf.while_loop(lambda index, total: index < number, body, (tf.constant(0), zeros), parallel_iterations=1)[1]


def _sum_over_replicas(strategy, values):
    return tf.nest.map_structure(lambda value: strategy.reduce("SUM", value, axis=None), values)


def make_update(strategy, model, optimizer, config: TrainConfig, element_spec) -> Callable:
    """One update (section 5), compiled once for all shapes.

    Args:
        strategy: whose scope model and optimizer were made in.
        model: called with (source, shifted target); returns logits.
        optimizer: a Keras optimizer, built.
        config: how to train.
        element_spec: of what `distribute` hands out.

    Returns:
        batch → {"loss", "tokens", "words", "positions": sums over the update; "gradient_norm", "learning_rate"}.
    """
    variables = [variable.value for variable in model.trainable_variables]

    def replica_gradients(batch, step):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group

        def one(micro_batch, source, target):
            seeds = dropout_seeds(model, config.seed, step, micro_batch, replica)
            with tf.GradientTape() as tape, keras.StatelessScope(seeds):
                sums = _sums(model, source, target, label_smoothing=config.label_smoothing, training=True)
            gradients = tape.gradient(sums["loss"], variables, unconnected_gradients="zero")
            return [tf.convert_to_tensor(gradient) for gradient in gradients], sums

        return _over_micro_batches(batch, one, ([tf.zeros_like(variable) for variable in variables], _no_sums()))

    @tf.function(input_signature=[element_spec])
    def update(batch):
        step, rate = optimizer.iterations.value, optimizer.learning_rate
        gradients, sums = _sum_over_replicas(strategy, strategy.run(replica_gradients, (batch, step)))
        norm = tf.linalg.global_norm(gradients) / sums["tokens"]
        scale = 1 / sums["tokens"]
        if config.clip_norm:
            scale *= tf.minimum(1.0, config.clip_norm / norm)
        for variable, gradient in zip(variables, gradients, strict=True):
            # Not `optimizer.apply`, which would sum over the replicas once more.
            strategy.extended.update(
                variable, lambda v, g, s, r: optimizer.update_step(g * s, v, r), args=(gradient, scale, rate), group=False
            )
        optimizer.iterations.assign_add(1)
        return {**sums, "gradient_norm": norm, "learning_rate": rate}

    return update


def make_validation(strategy, model, dataset: tf.data.Dataset, device_tokens: int) -> Callable[[], float]:
    """A function that returns the mean negative log likelihood, in nats, of all target tokens of a dataset of updates.

    Its exponential is the perplexity per sub-word.
    """
    batches = distribute(strategy, dataset, device_tokens)

    def replica_sums(batch):
        def one(micro_batch, source, target):
            return _sums(model, source, target, label_smoothing=0.0, training=False)

        return _over_micro_batches(batch, one, _no_sums())

    @tf.function(input_signature=[batches.element_spec])
    def sums_of(batch):
        return _sum_over_replicas(strategy, strategy.run(replica_sums, (batch,)))

    def negative_log_likelihood() -> float:
        sums = [sums_of(batch) for batch in batches]
        return sum(float(part["loss"]) for part in sums) / sum(float(part["tokens"]) for part in sums)

    return negative_log_likelihood


@dataclasses.dataclass
class Progress:
    """Where a run stands; with the weights and the optimizer, all that a checkpoint holds."""

    step: int = 0
    position: tuple[int, int] = (0, 0)
    seconds: float = 0.0  # Of training, validation and saving, over all resumes.
    best: float = -math.inf
    best_step: int = 0
    validations_since_best: int = 0


class _Meter:
    """Sums an update's metrics between two points of TensorBoard, without waiting for the device at each update."""

    def __init__(self):
        self.metrics, self.started = [], time.monotonic()

    def leave_out(self, seconds: float) -> None:
        """Does not count time in which nothing was trained."""
        self.started += seconds

    def read(self) -> dict:
        """Means since the meter was made."""
        seconds = max(time.monotonic() - self.started, 1e-9)
        total = {name: sum(float(update[name]) for update in self.metrics) for name in _no_sums()}
        return {
            "train/loss": total["loss"] / total["tokens"],
            "train/learning_rate": float(self.metrics[-1]["learning_rate"]),
            "train/gradient_norm": float(self.metrics[-1]["gradient_norm"]),
            "speed/target_tokens_per_second": total["tokens"] / seconds,
            "speed/updates_per_second": len(self.metrics) / seconds,
            "data/padding_share": 1 - total["words"] / total["positions"],
        }


def _note_validation(progress: Progress, metrics: dict, config: TrainConfig) -> bool:
    """Whether a validation is the best so far; keeps count of those that were not."""
    figure = metrics["valid/bleu"] if config.early_stopping == "bleu" else -metrics["valid/loss"]
    better = figure > progress.best
    if better:
        progress.best, progress.best_step, progress.validations_since_best = figure, progress.step, 0
    else:
        progress.validations_since_best += 1
    return better


def train(
    strategy,
    model,
    optimizer,
    config: TrainConfig,
    *,
    folder: pathlib.Path,
    model_dir: pathlib.Path,
    validate: Callable[[int], dict],
    write: Callable[[int, dict], None],
    say: Callable = print,
) -> Progress:
    """Trains up to `config.train_steps` updates, going on from the newest checkpoint in `model_dir`, if any.

    Args:
        strategy: whose scope model and optimizer were made in.
        model: see `make_update`.
        optimizer: see `make_update`.
        config: how to train.
        folder: shards of training pairs.
        model_dir: where checkpoints go.
        validate: step → metrics, of which "valid/bleu" or "valid/loss" decides what is best.
        write: (step, metrics) → None; draws points.
        say: told what happens.

    Returns:
        Where the run ended.
    """
    progress = Progress()
    if paths := checkpoint.kept(model_dir):
        progress = Progress(**checkpoint.restore(paths[-1], model, optimizer))
        say(f"Going on from update {progress.step:,} ({paths[-1]}).")
    dataset = batching.updates(folder, batch_tokens=config.batch_tokens, seed=config.seed, start=batching.Position(*progress.position))
    batches = distribute(strategy, dataset, config.device_tokens)
    update, iterator = make_update(strategy, model, optimizer, config, batches.element_spec), iter(batches)
    seconds_before, started = progress.seconds, time.monotonic()
    saved, meter = started, _Meter()

    def patience_is_over() -> bool:
        return bool(config.patience) and progress.validations_since_best >= config.patience

    def save(path: pathlib.Path, position) -> None:
        # All replicas carry the same position; the first one's is read.
        first = strategy.experimental_local_results(position)[0]
        progress.position = tuple(int(number) for number in first)
        progress.seconds = seconds_before + time.monotonic() - started
        checkpoint.write(path, model, optimizer, dataclasses.asdict(progress))

    def due(steps: int) -> bool:
        return bool(steps) and progress.step % steps == 0 or progress.step == config.train_steps

    with tqdm.tqdm(
        total=config.train_steps,
        initial=progress.step,
        unit=" updates",
        mininterval=0.2 if sys.stderr.isatty() else 30,
        dynamic_ncols=True,
    ) as bar:
        while progress.step < config.train_steps and not patience_is_over():
            batch = next(iterator)
            meter.metrics.append(update(batch))
            progress.step += 1
            bar.update()
            if due(config.log_steps):
                metrics, meter = meter.read(), _Meter()
                write(progress.step, metrics)
                bar.set_postfix(loss=f"{metrics['train/loss']:.3f}", tokens_per_s=f"{metrics['speed/target_tokens_per_second']:,.0f}")
            if due(config.valid_steps):
                validation_started = time.monotonic()
                metrics = validate(progress.step)
                write(progress.step, metrics)
                better = _note_validation(progress, metrics, config)
                shown = (f"{name} {value:.3f}" for name, value in metrics.items() if not isinstance(value, str))
                with bar.external_write_mode():
                    say(f"Update {progress.step:,}: {', '.join(shown)}{'; the best so far' if better else ''}")
                if better:
                    save(model_dir / checkpoint.BEST, batch["position"])
                meter.leave_out(time.monotonic() - validation_started)
            minutes = (time.monotonic() - saved) / 60
            if due(config.checkpoint_steps) or patience_is_over() or 0 < config.checkpoint_minutes <= minutes:
                save(checkpoint.path_of(model_dir, progress.step), batch["position"])
                checkpoint.remove_old(model_dir, config.keep_checkpoints)
                saved = time.monotonic()
    if patience_is_over():
        say(f"Stopped at update {progress.step:,}: {progress.validations_since_best} validations brought nothing better.")
    return progress
