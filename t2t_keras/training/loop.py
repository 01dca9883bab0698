"""Training (section 5): the loop around updates, which can be killed at any moment and resumes as if it had not been.

All that decides the rest of a run is in its checkpoints: weights and optimizer, and `Progress`. The rest follows from the seed.
"""

import dataclasses
import functools
import math
import pathlib
import secrets
import time
from collections.abc import Callable, Iterator

from t2t_keras import checkpoint
from t2t_keras.config import TrainConfig
from t2t_keras.data import batching, data_service, shards
from t2t_keras.log import logger
from t2t_keras.training import device_memory, devices
from t2t_keras.training.console import Console
from t2t_keras.training.interruption import Interruption, StoppedError
from t2t_keras.training.state import Progress
from t2t_keras.training.train_step import LossScale, make_update


def _of_process(strategy, config: TrainConfig) -> tuple[TrainConfig, int]:
    """How the updates are that a process reads, and how many replicas share one: all, but with a data service only its own."""
    processes = devices.processes(strategy) if config.data_service else 1
    own = {"batch_tokens": config.batch_tokens // processes, "batch_parts": max(config.batch_parts // processes, 1)}
    return dataclasses.replace(config, **own), strategy.num_replicas_in_sync // processes


def _batches(strategy, config: TrainConfig, folder: pathlib.Path, start: batching.Position):
    """The training data from a position on, each replica's share; by a tf.data service if there is one."""
    config, _ = _of_process(strategy, config)
    parts = batching.parts(shards.read_info(folder), config.batch_tokens, config.batch_parts)
    reading = {"seed": config.seed, "start": start, "damaged_records": config.damaged_records}
    reading["batch_tokens"] = config.batch_tokens // parts
    if not config.data_service:
        return devices.distribute(strategy, batching.batches(folder, **reading), config.device_tokens, parts)
    job = f"{devices.from_chief(strategy, float(secrets.randbits(50))):.0f}"
    dataset = data_service.batches(folder, service=config.data_service, job=job, **reading)
    return devices.distribute(strategy, dataset, config.device_tokens, parts, shared=False)


def _splitting_update(strategy, model, optimizer, config: TrainConfig, element_spec, say: Callable) -> device_memory.SplittingUpdate:
    sides = {side: element_spec[side] for side in shards.SIDES}
    return device_memory.SplittingUpdate(strategy, make_update(strategy, model, optimizer, config, sides), say)


def _rehearse(strategy, update: device_memory.SplittingUpdate, config: TrainConfig, folder: pathlib.Path, say: Callable) -> None:
    device_memory.rehearse(strategy, update, shards.read_info(folder), *_of_process(strategy, config), say)


def rehearse(strategy, model, optimizer, config: TrainConfig, *, folder: pathlib.Path, say: Callable = logger.info) -> None:
    """Does what `train` does before its first update, and no more: runs the largest updates, and says what they took."""
    batches = _batches(strategy, dataclasses.replace(config, data_service=""), folder, batching.START)
    _rehearse(strategy, _splitting_update(strategy, model, optimizer, config, batches.element_spec, say), config, folder, say)


class _Run:
    """What the steps of `train` share. A run is updates, with a pause before each and after the last, for what is due then."""

    def __init__(self, strategy, model, optimizer, config: TrainConfig, folder, model_dir, validate, examine, board, say):
        self.strategy, self.model, self.optimizer, self.config = strategy, model, optimizer, config
        self.folder, self.model_dir = folder, model_dir
        self.validate, self.examine, self.board, self.say = validate, examine, board, say
        self.chief = devices.is_chief(strategy)
        self.progress = self._restored()
        self.windows_per_epoch = batching.windows_per_epoch(shards.read_info(folder))
        self.batches = _batches(strategy, config, folder, batching.Position(*self.progress.position))
        self.update = _splitting_update(strategy, model, optimizer, config, self.batches.element_spec, say)
        self.saved, self.saved_at = self._stand(), time.monotonic()
        self.began = self.saved_at - self.progress.seconds  # When a run without interruptions would have begun.

    def _restored(self) -> Progress:
        restored = checkpoint.restore_newest(self.model_dir, self.model, self.optimizer, self.say)
        progress = Progress()
        if restored:
            path, state = restored
            progress = Progress.read(state)
            self.say(f"Resuming from update {progress.step:,} ({path}).")
        progress.go_on_in(self.config.dtype)
        if devices.from_chief(self.strategy, float(progress.step)) != progress.step:
            raise ValueError(
                f"Expected all workers to see the chief's checkpoints. Received update {progress.step} from {self.model_dir} here."
            )
        if self.chief:
            self.board.forget_after(progress.step, progress.validated_step)
            if restored:
                checkpoint.put_aside(self.model_dir, after=path)
        return progress

    def _stand(self) -> tuple[int, int]:
        return self.progress.step, self.progress.validated_step

    def _due(self, steps: int) -> bool:
        step = self.progress.step
        return step > 0 and (bool(steps) and step % steps == 0 or step == self.config.train_steps)

    def _validation_is_due(self) -> bool:
        return self._due(self.config.valid_steps) and self.progress.validated_step < self.progress.step

    def _patience_is_over(self) -> bool:
        return bool(self.config.patience) and self.progress.validations_since_best >= self.config.patience

    def _unless_told(self, work: Callable):
        """What `work()` returns, or None where a signal ends it; not with several workers, who would wait for this one's part."""
        return work() if devices.several_workers(self.strategy) else self.interruption.unless_told(work)

    def _epoch(self) -> int:
        """The epoch of the last update, from 1 on."""
        window, batch = self.progress.position
        return 1 + (window - (batch == 0)) // self.windows_per_epoch

    def _save(self, kind: str, keep: int) -> None:
        if self.chief:
            self.progress.seconds = time.monotonic() - self.began
            path = checkpoint.path_of(self.model_dir, self.progress.step, kind)
            checkpoint.write(path, self.model, self.optimizer, dataclasses.asdict(self.progress))
            checkpoint.remove_old(self.model_dir, keep, kind, last=self.progress.step)

    def _validate(self) -> None:
        metrics = self._unless_told(functools.partial(self.validate, self.progress.step))
        if metrics is None:
            return
        figure = 0.0  # Of workers that do not translate.
        if self.chief:
            figure = metrics["valid/bleu"] if self.config.early_stopping == "bleu" else -metrics["valid/loss"]
            self.board.write(self.progress.step, metrics)
        better = self.progress.note_validation(devices.from_chief(self.strategy, figure))
        shown = (f"{name} {value:.3f}" for name, value in metrics.items() if not isinstance(value, str))
        self.console.say(f"Update {self.progress.step:,}: {', '.join(shown)}{'; the best so far' if better else ''}")
        if better:
            self._save(checkpoint.BEST, 1)

    def _update(self, batches: Iterator) -> None:
        progress, started = self.progress, time.monotonic()
        with shards.plain_errors():
            batch = next(batches)
        # All replicas of a process carry the same ones; the first one's are read.
        position, damaged = (self.strategy.experimental_local_results(batch.pop(name))[0].numpy() for name in ("position", "damaged"))
        scale = LossScale(*progress.loss_scale)
        metrics, progress.loss_scale = self.update(batch, scale)
        metrics = {name: float(value) for name, value in metrics.items()}
        progress.note_update(metrics, tuple(map(int, position)), int(damaged), time.monotonic() - started)
        if not metrics["finite"]:
            self._note_skipped(batch, scale.scale)
        if self._due(self.config.log_steps):
            point = progress.take_point(metrics)
            if self.chief:
                self.board.write(progress.step, point)
            figures = {
                "epoch": f"{self._epoch()}",
                "loss": f"{point.get('train/loss', math.nan):.3f}",
                "learning rate": f"{point['train/learning_rate']:.3g}",
                "tokens/s": f"{point['speed/target_tokens_per_second']:,.0f}",
            }
            self.console.log(progress.step, figures)
        self.console.update()

    def _note_skipped(self, batch: dict, scale: float) -> None:
        step, in_a_row = self.progress.step, self.progress.skipped_in_a_row
        self.console.say(f"Update {step:,} was skipped: loss or gradient is not finite (loss scale {scale:g}).")
        if in_a_row >= self.config.max_skipped:
            raise ValueError(
                f"{in_a_row} updates in a row, up to {step:,}, were not finite. "
                f"{self.examine(self.update.fitted(batch), step, scale)} A lower --rate_factor or a --clip_norm may help."
            )

    def _pause(self) -> bool:
        """Before an update, or after the last: validates and saves, where that is due. Returns whether the run ends here."""
        if self._validation_is_due():
            self._validate()
        told = devices.any_worker(self.strategy, bool(self.interruption.reason))
        ended = told or self.progress.step >= self.config.train_steps or self._patience_is_over()
        time_is_up = 0 < self.config.checkpoint_minutes <= (time.monotonic() - self.saved_at) / 60
        if self._stand() != self.saved and (ended or time_is_up or self._due(self.config.checkpoint_steps)):
            self._save(checkpoint.STEP, self.config.keep_checkpoints)
            self.saved, self.saved_at = self._stand(), time.monotonic()
        return ended

    def to_its_end(self) -> Progress:
        config, progress = self.config, self.progress
        with Interruption(config.max_hours) as self.interruption:
            if progress.step < config.train_steps:
                self._unless_told(functools.partial(_rehearse, self.strategy, self.update, config, self.folder, self.say))
            with Console(config.train_steps, progress.step, self.say, shown=self.chief) as self.console:
                batches = iter(self.batches)
                while not self._pause():
                    self._update(batches)
        devices.from_chief(self.strategy, 0.0)  # Until the chief has written all, nobody leaves.
        if self._patience_is_over():
            self.say(f"Stopped at update {progress.step:,}: {progress.validations_since_best} validations in a row were no better.")
        elif progress.step < config.train_steps or self._validation_is_due():
            reason = self.interruption.reason or "another worker was stopped"
            raise StoppedError(f"Stopped at update {progress.step:,}: {reason}. Run the same command to resume." if self.chief else "")
        return progress


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
    board,
    say: Callable = logger.info,
) -> Progress:
    """Trains up to `config.train_steps` updates, from the newest whole checkpoint in `model_dir` if there is one.

    Args:
        strategy: whose scope model and optimizer were made in.
        model: see `make_update`.
        optimizer: see `make_update`.
        config: how to train.
        folder: shards of training pairs.
        model_dir: where checkpoints go.
        validate: step → metrics, of which "valid/bleu" or "valid/loss" decides what is best.
        examine: (batch, update, loss scale) → what in that update is not finite.
        board: draws points; see `tensorboard.Board`.
        say: called with each message.

    Returns:
        Where the run ended.

    Raises:
        StoppedError: the run was stopped early and has saved.
        ValueError: too many updates in a row were not finite; or what is in `model_dir` cannot be used.
        OSError: a checkpoint could not be written.
    """
    return _Run(strategy, model, optimizer, config, folder, model_dir, validate, examine, board, say).to_its_end()
