"""Training (section 5): the loop around updates, which can be killed at any moment and resumes as if it had not been.

All that decides the rest of a run is in its checkpoints: weights and optimizer, and `TrainState`. The rest follows from the seed.
"""

import dataclasses
import functools
import math
import pathlib
import secrets
import time
from collections.abc import Callable, Iterator

from t2t_keras import checkpoint, run_folder
from t2t_keras.config import TrainConfig
from t2t_keras.data import batching, data_service, shards
from t2t_keras.log import logger
from t2t_keras.training import device_memory, devices, histograms, scalars
from t2t_keras.training.console import Console
from t2t_keras.training.interruption import Interruption, StoppedError
from t2t_keras.training.profiler import Profiler
from t2t_keras.training.state import TrainState
from t2t_keras.training.train_step import LossScale, make_train_step


def _of_process(strategy, config: TrainConfig) -> tuple[TrainConfig, int]:
    """How the updates are that a process reads, and how many replicas share one: all, but with a data service only its own."""
    processes = devices.processes(strategy) if config.data_service else 1
    own = {"batch_tokens": config.batch_tokens // processes, "buckets_per_update": max(config.buckets_per_update // processes, 1)}
    return dataclasses.replace(config, **own), strategy.num_replicas_in_sync // processes


def _batches(strategy, config: TrainConfig, folder: pathlib.Path, start: batching.Position):
    """The training data from a position on, each replica's share; by a tf.data service if there is one."""
    config, _ = _of_process(strategy, config)
    buckets = batching.buckets(shards.read_info(folder), config.batch_tokens, config.buckets_per_update)
    reading = {"seed": config.seed, "start": start, "damaged_records": config.damaged_records}
    reading["batch_tokens"] = config.batch_tokens // buckets
    if not config.data_service:
        return devices.distribute(strategy, batching.batches(folder, **reading), config.micro_batch_tokens, buckets)
    job = f"{devices.from_chief(strategy, float(secrets.randbits(50))):.0f}"
    dataset = data_service.batches(folder, service=config.data_service, job=job, **reading)
    return devices.distribute(strategy, dataset, config.micro_batch_tokens, buckets, shared=False)


def _splitting_train_step(strategy, model, optimizer, config: TrainConfig, element_spec) -> device_memory.SplittingTrainStep:
    sides = {side: element_spec[side] for side in shards.SIDES}
    return device_memory.SplittingTrainStep(strategy, make_train_step(strategy, model, optimizer, config, sides))


def _rehearse(strategy, update: device_memory.SplittingTrainStep, config: TrainConfig, folder: pathlib.Path) -> None:
    device_memory.rehearse(strategy, update, shards.read_info(folder), *_of_process(strategy, config))


def rehearse(strategy, model, optimizer, config: TrainConfig, *, folder: pathlib.Path) -> None:
    """Does what `train` does before its first update, and no more: runs the largest updates, and says what they took."""
    batches = _batches(strategy, dataclasses.replace(config, data_service=""), folder, batching.START)
    _rehearse(strategy, _splitting_train_step(strategy, model, optimizer, config, batches.element_spec), config, folder)


class _Run:
    """What the steps of `train` share. A run is updates, with a pause before each and after the last, for what is due then."""

    def __init__(self, strategy, model, optimizer, config: TrainConfig, folder, model_dir, validate, examine, tensorboard, update_pictures):
        self.strategy, self.model, self.optimizer, self.config = strategy, model, optimizer, config
        self.folder, self.model_dir = folder, model_dir
        self.validate, self.examine, self.tensorboard = validate, examine, tensorboard
        self.update_pictures, self.pictured = update_pictures, 0
        self.chief = devices.is_chief(strategy)
        self.state = self._restored()
        self.windows_per_epoch = batching.windows_per_epoch(shards.read_info(folder))
        self.batches = _batches(strategy, config, folder, batching.Position(*self.state.position))
        self.update = _splitting_train_step(strategy, model, optimizer, config, self.batches.element_spec)
        self.saved, self.saved_at = self._stand(), time.monotonic()
        self.began = self.saved_at - self.state.seconds  # When a run without interruptions would have begun.

    def _restored(self) -> TrainState:
        restored = checkpoint.restore_newest(self.model_dir, self.model, self.optimizer)
        state = TrainState()
        if restored:
            path, saved = restored
            state = TrainState.read(saved)
            logger.info(f"Resuming from update {state.step:,} ({path}).")
        state.continue_in(self.config.dtype)
        if devices.from_chief(self.strategy, float(state.step)) != state.step:
            raise ValueError(
                f"Expected all workers to see the chief's checkpoints. Received update {state.step} from {self.model_dir} here."
            )
        if self.chief:
            self.tensorboard.start(state.step, state.validated_step)
            if restored:
                checkpoint.put_aside(self.model_dir, after=path)
        return state

    def _stand(self) -> tuple[int, int]:
        return self.state.step, self.state.validated_step

    def _due(self, steps: int) -> bool:
        step = self.state.step
        return step > 0 and (bool(steps) and step % steps == 0 or step == self.config.train_steps)

    def _validation_is_due(self) -> bool:
        return self._due(self.config.valid_steps) and self.state.validated_step < self.state.step

    def _patience_is_over(self) -> bool:
        return bool(self.config.patience) and self.state.validations_since_best >= self.config.patience

    def _unless_stopped(self, work: Callable):
        """What `work()` returns, or None where a signal ends it; not with several workers, who would wait for this one's part."""
        return work() if devices.several_workers(self.strategy) else self.interruption.unless_stopped(work)

    def _epoch(self) -> int:
        """The epoch of the last update, from 1 on."""
        window, batch = self.state.position
        return 1 + (window - (batch == 0)) // self.windows_per_epoch

    def _save(self, kind: str, keep: int) -> None:
        if self.chief:
            self.state.seconds = time.monotonic() - self.began
            path = checkpoint.path_of(self.model_dir, self.state.step, kind)
            checkpoint.write(path, self.model, self.optimizer, dataclasses.asdict(self.state))
            checkpoint.remove_old(self.model_dir, keep, kind, last=self.state.step)

    def _validate(self) -> None:
        metrics = self._unless_stopped(functools.partial(self.validate, self.state.step))
        if metrics is None:
            return
        figure = 0.0  # Of workers that do not translate.
        if self.chief:
            figure = metrics["valid/bleu"] if self.config.best_metric == "bleu" else -metrics["valid/loss"]
            self.tensorboard.write(self.state.step, metrics)
        better = self.state.count_validation(devices.from_chief(self.strategy, figure))
        shown = (f"{name} {value:.3f}" for name, value in metrics.items() if not isinstance(value, str))
        logger.info(f"Update {self.state.step:,}: {', '.join(shown)}{'; the best so far' if better else ''}")
        if better:
            self._save(checkpoint.BEST, 1)
        self._update_pictures(better)

    def _update_pictures(self, better: bool = False) -> None:
        if self.chief and self.pictured < self.state.step:
            self.pictured = self.state.step
            self.update_pictures(better)

    def _update(self, batches: Iterator) -> None:
        state, started = self.state, time.monotonic()
        with shards.plain_errors():
            batch = next(batches)
        # All replicas of a process carry the same ones; the first one's are read.
        position, damaged = (self.strategy.experimental_local_results(batch.pop(name))[0].numpy() for name in ("position", "damaged"))
        scale = LossScale(*state.loss_scale)
        with self.profiler.update(state.step + 1):
            metrics, state.loss_scale = self.update(batch, scale)
            norms = metrics.pop("weight_gradient_norms", None)
            metrics = {name: float(value) for name, value in metrics.items()}
        state.count_update(metrics, tuple(map(int, position)), int(damaged), time.monotonic() - started)
        if not metrics["finite"]:
            self._count_skipped(batch, scale.scale)
        if self._due(self.config.log_steps):
            point = {**state.take_point(metrics), "train/epoch": self._epoch(), **scalars.peak_memory()}
            if self.chief:
                self.tensorboard.write(state.step, point)
            figures = {
                "epoch": f"{self._epoch()}",
                "loss": f"{point.get('train/loss', math.nan):.3f}",
                "learning rate": f"{point['train/learning_rate']:.3g}",
                "tokens/s": f"{point['speed/target_tokens_per_second']:,.0f}",
            }
            self.console.log(state.step, figures)
        if self.chief and self.config.histogram_steps and self._due(self.config.histogram_steps):
            self.tensorboard.write(state.step, histograms.metrics(self.model, None if norms is None else norms.numpy()))
        self.console.update()

    def _count_skipped(self, batch: dict, scale: float) -> None:
        step, in_a_row = self.state.step, self.state.skipped_in_a_row
        logger.warning(f"Update {step:,} was skipped: loss or gradient is not finite (loss scale {scale:g}).")
        if in_a_row >= self.config.max_skipped:
            raise ValueError(
                f"{in_a_row} updates in a row, up to {step:,}, were not finite. "
                f"{self.examine(self.update.fitted(batch), step, scale)} A lower --learning_rate_factor or a --clip_norm may help."
            )

    def _pause(self) -> bool:
        """Before an update, or after the last: validates and saves, where that is due. Returns whether the run ends here."""
        if self._validation_is_due():
            self._validate()
        told = devices.any_worker(self.strategy, bool(self.interruption.reason))
        ended = told or self.state.step >= self.config.train_steps or self._patience_is_over()
        time_is_up = 0 < self.config.checkpoint_minutes <= (time.monotonic() - self.saved_at) / 60
        if self._stand() != self.saved and (ended or time_is_up or self._due(self.config.checkpoint_steps)):
            self._save(checkpoint.STEP, self.config.keep_checkpoints)
            self.saved, self.saved_at = self._stand(), time.monotonic()
        return ended

    def to_its_end(self) -> TrainState:
        config, state = self.config, self.state
        with Interruption(config.max_hours) as self.interruption:
            if state.step < config.train_steps:
                self._unless_stopped(functools.partial(_rehearse, self.strategy, self.update, config, self.folder))
            profiled = config.profile_steps if self.chief else ""
            with (
                Console(config.train_steps, state.step, shown=self.chief) as self.console,
                Profiler(self.model_dir / run_folder.LOGS, profiled) as self.profiler,
            ):
                batches = iter(self.batches)
                while not self._pause():
                    self._update(batches)
        self._update_pictures()
        devices.from_chief(self.strategy, 0.0)  # Until the chief has written all, nobody leaves.
        if self._patience_is_over():
            logger.info(f"Stopped at update {state.step:,}: {state.validations_since_best} validations in a row were no better.")
        elif state.step < config.train_steps or self._validation_is_due():
            reason = self.interruption.reason or "another worker was stopped"
            raise StoppedError(f"Stopped at update {state.step:,}: {reason}. Run the same command to resume." if self.chief else "")
        return state


def train(
    strategy,
    model,
    optimizer,
    config: TrainConfig,
    *,
    folder: pathlib.Path,
    model_dir: pathlib.Path,
    validate: Callable[[int], dict],
    examine: Callable[[dict, int, float], str],
    tensorboard,
    update_pictures: Callable[[bool], None] = lambda better: None,
) -> TrainState:
    """Trains up to `config.train_steps` updates, from the newest whole checkpoint in `model_dir` if there is one.

    Args:
        strategy: whose scope model and optimizer were made in.
        model: see `make_train_step`.
        optimizer: see `make_train_step`.
        config: how to train.
        folder: shards of training pairs.
        model_dir: where checkpoints go.
        validate: step → metrics, of which "valid/bleu" or "valid/loss" decides what is best.
        examine: (batch, update, loss scale) → what in that update is not finite.
        tensorboard: a `TensorBoardWriter`.
        update_pictures: called in the chief after each validation, with whether it is the best so far, and at the end.

    Returns:
        Where the run ended.

    Raises:
        StoppedError: the run was stopped early and has saved.
        ValueError: too many updates in a row were not finite; or what is in `model_dir` cannot be used.
        OSError: a checkpoint could not be written.
    """
    return _Run(strategy, model, optimizer, config, folder, model_dir, validate, examine, tensorboard, update_pictures).to_its_end()
