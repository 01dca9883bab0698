"""The training loop (section 5). A run may be killed at any time, and resumes as if it had not been.

A checkpoint holds all that determines the rest of a run: the weights, the optimizer's variables and `TrainState`. All
random numbers follow from the seed and the step.

A thread makes the updates. The next one starts before the figures of the last are read, so that devices need not wait
for the host. Before a validation, a checkpoint or histograms no update runs ahead, so weights and state are those of
the same update.
"""

import contextlib
import copy
import dataclasses
import math
import pathlib
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.config import TrainConfig
from t2t_keras.data import batching, data_service, shards
from t2t_keras.data.few_shapes import Shapes
from t2t_keras.model.protocols import SequenceModel
from t2t_keras.reporting import scalars
from t2t_keras.reporting.console import ProgressBar
from t2t_keras.reporting.profiler import Profiler
from t2t_keras.reporting.tensorboard import TensorBoardWriter
from t2t_keras.runs import checkpoint
from t2t_keras.runs.saved_run import LOGS
from t2t_keras.runs.task import Renewal, Task
from t2t_keras.system.log import logger
from t2t_keras.training import cost, device_memory, devices, diagnosis
from t2t_keras.training.device_memory import OutOfMemoryError, SplittingTrainStep
from t2t_keras.training.interruption import Interruption, StoppedError
from t2t_keras.training.state import TrainState
from t2t_keras.training.train_step import LossScale, make_train_step

# Updates that take longer do not run ahead: they gain nothing, and a stop would have to wait for one more.
RUN_AHEAD_SECONDS = 1.0


class NotFiniteError(ValueError):
    """Ends a run whose updates are no longer finite."""


def _per_process(strategy, config: TrainConfig) -> tuple[TrainConfig, int, int]:
    """Returns the config of the updates that one process reads, the number of replicas that share one, and the number
    of processes that share a whole one.

    Without a data service every process reads whole updates. With one, every process reads a part of each update, for
    its own replicas only.
    """
    processes = devices.process_count(strategy) if config.data_service else 1
    tokens, buckets = config.batch_tokens // processes, max(config.buckets_per_update // processes, 1)
    own = dataclasses.replace(config, batch_tokens=tokens, buckets_per_update=buckets)
    return own, strategy.num_replicas_in_sync // processes, processes


class _Reading(NamedTuple):
    """What one process reads of each update."""

    config: TrainConfig  # Of that part.
    replicas: int  # That share it.
    buckets: int
    shapes: Shapes | None  # Of the buckets; `None` if `length_buckets` rounds no lengths.

    @classmethod
    def of(cls, strategy, config: TrainConfig, folder: pathlib.Path) -> "_Reading":
        """Returns it for a strategy and the shards of the training data."""
        whole, (config, replicas, processes) = config.batch_tokens, _per_process(strategy, config)
        info = shards.read_info(folder)
        longest = max(shards.counted(info))
        if processes > 1 and longest > config.batch_tokens:
            raise ValueError(
                f"Expected `batch_tokens` of at least {processes * longest}: with a `data_service`, each of "
                f"{processes} processes reads a part of an update, and the longest sentence has {longest} sub-words. "
                f"Received: {whole}."
            )
        buckets = batching.buckets(info, config.batch_tokens, config.buckets_per_update)
        return cls(config, replicas, buckets, devices.shapes(config, info, config.batch_tokens // buckets))


def _make_batches(
    strategy, config: TrainConfig, folder: pathlib.Path, start: batching.Position, renewal: Renewal | None
):
    """Returns the distributed training data from a position on, read here or by a tf.data service."""
    config, _, buckets, shapes = _Reading.of(strategy, config, folder)
    reading = {"seed": config.seed, "start": start, "damaged_records": config.damaged_records, "renewal": renewal}
    reading |= {"batch_tokens": config.batch_tokens // buckets, "shapes": shapes}
    pieces = {"buckets": buckets, "shapes": shapes}
    if not config.data_service:
        return devices.distribute(strategy, batching.batches(folder, **reading), config.micro_batch_tokens, **pieces)
    job = f"{devices.broadcast_from_chief(strategy, float(secrets.randbits(50))):.0f}"
    dataset = data_service.batches(folder, service=config.data_service, job=job, **reading)
    return devices.distribute(strategy, dataset, config.micro_batch_tokens, **pieces, shared=False)


def _make_train_step(
    strategy, model, optimizer, task: Task, config: TrainConfig, element_spec, frozen_rows=None
) -> SplittingTrainStep:
    spec, counted = batching.columns_of(element_spec), [column.name for column in task.columns if column.counted]
    train_step = make_train_step(strategy, model, optimizer, task, config, spec, frozen_rows)
    return SplittingTrainStep(strategy, train_step, model.memory_cost, counted)


def _run_largest(
    strategy,
    train_step: SplittingTrainStep,
    task: Task,
    config: TrainConfig,
    folder: pathlib.Path,
    renewal: Renewal | None,
    window: int = 0,
    every_range: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Runs the largest micro-batches. With `length_buckets` they have the shapes of a window of the data and of the
    longest sentence: all of these shapes if the step is compiled, until `is_stopped()`, else the costliest that fits.
    """
    info, longest = shards.read_info(folder) | {"columns": task.counted}, {}
    reading = _Reading.of(strategy, config, folder)
    if renewal:
        longest = {"longest": renewal.longest}
        names = [f"{column}_longest" for column, counts in task.counted.items() if counts]
        info |= {name: max(info.get(name, 0), renewal.most) for name in names if renewal.most}
    if not reading.shapes:
        device_memory.run_largest_micro_batches(
            strategy, train_step, info, reading.config, reading.replicas, **longest, every_range=every_range
        )
        return
    tokens = reading.shapes.tokens
    of_bucket = batching.micro_batches_per_bucket(
        -(-tokens // config.micro_batch_tokens), reading.buckets, reading.replicas
    )
    logger.info("Reading the lengths of sentences …")
    window_of = (folder, window, config.seed, config.damaged_records)
    with shards.plain_errors():
        found = batching.shapes_in_window(*window_of, reading.shapes, of_bucket, renewal)
    longest_of = zip(reading.shapes.counted, shards.counted(info), strict=True)
    lengths = {name: tf.constant([min(length, tokens)]) for name, length in longest_of}
    found |= {tuple(shape) for shape in reading.shapes.of_micro_batches(lengths, of_bucket).numpy().tolist()}
    at_once = min(devices.at_once(strategy, config), of_bucket * reading.buckets // reading.replicas)
    every = every_range or devices.compiles(strategy, config)
    device_memory.run_shapes(strategy, train_step, info, reading.shapes, found, at_once, every, is_stopped, **longest)


def dry_run(
    strategy, model, optimizer, task: Task, config: TrainConfig, *, folder: pathlib.Path, renewal: Renewal | None = None
) -> None:
    """Runs the largest micro-batches of every range of lengths, and nothing else. See `Trainer` for the arguments."""
    batches = _make_batches(strategy, dataclasses.replace(config, data_service=""), folder, batching.START, renewal)
    train_step = _make_train_step(strategy, model, optimizer, task, config, batches.element_spec)
    _run_largest(strategy, train_step, task, config, folder, renewal, every_range=True)


class _Update(NamedTuple):
    """An update that has been started, at a time of `time.monotonic`. `position` is where the next update starts in the
    data, `damaged` is the number of records that were left out, and `result` that of the train step: metrics and the
    next loss scale.
    """

    batch: dict
    position: tuple[int, int]
    damaged: int
    started: float
    result: Future


@dataclasses.dataclass(eq=False, repr=False)
class Trainer:
    """Trains a model.

    Attributes:
        strategy: a `tf.distribute.Strategy`; model and optimizer were made in its scope.
        model: a model for the task, with its `flops` and `memory_cost`; see `model.protocols`.
        optimizer: built; see `make_train_step`.
        task: what is trained.
        config: training options.
        folder: the shards of the training data.
        model_dir: the run's folder, for checkpoints.
        validate: step → metrics, "valid/…", of which the option `best_metric` decides which validation is best.
        valid_lines: the number of lines of the validation set.
        diagnose: (batch, step, loss scale) → a sentence about what is not finite in that update.
        tensorboard: a `TensorBoardWriter`.
        started: when the run was started, of `time.monotonic`; the option `max_hours` counts from then.
        update_pictures: called on the chief after each validation, with whether it is the best so far, and at the end.
        renewal: changes the records anew each epoch; see `Task.renewal`.
        frozen_rows: see `make_train_step`.
    """

    strategy: tf.distribute.Strategy
    model: SequenceModel
    optimizer: keras.optimizers.Optimizer
    task: Task
    config: TrainConfig
    _: dataclasses.KW_ONLY
    folder: pathlib.Path
    model_dir: pathlib.Path
    validate: Callable[[int], dict]
    valid_lines: int
    diagnose: Callable[[dict, int, float], str]
    tensorboard: TensorBoardWriter
    started: float
    update_pictures: Callable[[bool], None] = lambda is_best: None
    renewal: Renewal | None = None
    frozen_rows: np.ndarray | None = None

    def __post_init__(self):
        self.pictured_step, self.chief = 0, devices.is_chief(self.strategy)
        self.windows_per_epoch = batching.windows_per_epoch(shards.read_info(self.folder))

    def train(self) -> TrainState:
        """Trains up to `config.train_steps` updates, from the newest intact checkpoint in `model_dir` if there is one,
        and returns the state at the end.

        Raises:
            StoppedError: the run was stopped early and has saved its state.
            NotFiniteError: `max_skipped` updates in a row were not finite.
            ValueError: `model_dir` holds checkpoints of another model.
            OSError: a checkpoint could not be written.
        """
        self._restore()
        with Interruption(self.config.max_hours, self.started) as self.interruption:
            if self.state.step < self.config.train_steps:
                run = (self.strategy, self.train_step, self.task, self.config, self.folder, self.renewal)
                of_start = {"window": self.state.position[0], "is_stopped": self._is_stopped}
                self._unless_stopped(lambda: _run_largest(*run, **of_start))
            elif self.state.step:
                logger.info(
                    f"The run has made all {self.state.step:,} updates (`train_steps={self.config.train_steps}`). To "
                    "train further, give more `train_steps` or `epochs`."
                )
            with (
                ProgressBar(self.config.train_steps, self.state.step, shown=self.chief) as self.progress_bar,
                Profiler(self.model_dir / LOGS, self.config.profile_steps if self.chief else "") as self.profiler,
                ThreadPoolExecutor(1) as self.thread,
            ):
                batches, running = iter(self.batches), None
                while True:
                    if running is None:
                        if self._validation_is_due():
                            self._validate()
                        finished = self._is_finished()
                        if self._checkpoint_is_due(finished):
                            self._save_checkpoint()
                        if finished:
                            break
                        with self._saving_after_an_error():
                            running = self._start_update(batches)
                    following = None
                    if self._may_run_ahead():
                        with self._saving_after_an_error(running):
                            following = self._start_update(batches, after=running)
                    self._log(*self._finish_update(running))
                    running = following
            self._update_pictures()
        # TensorFlow can take 10 s to stop reading ahead. Workers that exit meanwhile would be reported as crashed.
        del batches
        devices.wait_for_workers(self.strategy)  # No worker exits before the chief has written all files.
        self._report_early_stop()
        return self.state

    def _restore(self) -> None:
        restored = checkpoint.restore_newest(self.model_dir, self.model, self.optimizer)
        state = self.state = TrainState()
        if restored:
            path, saved = restored
            state = self.state = TrainState.read(saved)
            logger.info(f"Resuming from update {state.step:,} ({path}).")
        # Step of the checkpoint that the next one replaces, so that the average is of the same updates as without the
        # stop.
        self.interim = state.step if state.interim else 0
        state.set_dtype(self.config.dtype)
        translated = self.config.valid_sentences * self.task.translates(self.config.best_metric)
        if state.set_valid_sentences(translated, self.valid_lines):
            logger.info("Validations translate another number of sentences from now on: the best one is chosen anew.")
        if devices.broadcast_from_chief(self.strategy, float(state.step)) != state.step:
            raise ValueError(
                f"Expected all workers to see the chief's checkpoints. Received: update {state.step:,} from "
                f"{self.model_dir} on this worker. Give a `model_dir` that all workers share."
            )
        if self.chief:
            self.tensorboard.start(state.step, state.validated_step)
            if restored:
                checkpoint.put_aside(self.model_dir, after=path)
                self._remove_replaced()  # A kill may have come between writing the one and removing the other.
        self.batches = _make_batches(
            self.strategy, self.config, self.folder, batching.Position(*state.position), self.renewal
        )
        of_step = self.strategy, self.model, self.optimizer, self.task, self.config
        self.train_step = _make_train_step(*of_step, self.batches.element_spec, self.frozen_rows)
        self.saved_steps, self.saved_at = self._steps(), time.monotonic()
        self.last_good_state = copy.deepcopy(state)
        self.uninterrupted_start = self.saved_at - state.seconds  # When a run without interruptions would have started.
        self.finished_update_at, self.update_seconds = self.saved_at, 0.0

    def _steps(self) -> tuple[int, int]:
        """What a new checkpoint would change: if neither has advanced, there is nothing to save."""
        return self.state.step, self.state.validated_step

    def _is_every(self, steps: int, after: int = 0) -> bool:
        """Whether the current step, or the one `after` so many more updates, is a multiple of `steps`, or the last."""
        step = self.state.step + after
        return bool(steps) and step % steps == 0 or step == self.config.train_steps

    def _validation_is_due(self) -> bool:
        return self._is_every(self.config.valid_steps) and self.state.validated_step < self.state.step

    def _patience_is_over(self) -> bool:
        return bool(self.config.patience) and self.state.validations_since_best >= self.config.patience

    def _is_stopped(self) -> bool:
        return devices.any_worker(self.strategy, bool(self.interruption.reason))

    def _is_finished(self) -> bool:
        return self._is_stopped() or self.state.step >= self.config.train_steps or self._patience_is_over()

    def _checkpoint_is_due(self, finished: bool) -> bool:
        return self._steps() != self.saved_steps and (
            finished or self._checkpoint_minutes_are_over() or self._is_every(self.config.checkpoint_steps)
        )

    def _checkpoint_minutes_are_over(self) -> bool:
        return 0 < self.config.checkpoint_minutes <= (time.monotonic() - self.saved_at) / 60

    def _may_run_ahead(self) -> bool:
        """Whether the next update may start before the figures of the running one are read: nothing is due between
        them.

        Several workers decide after every update whether to stop, so they never run ahead.
        """
        config = self.config
        due = (config.valid_steps, config.checkpoint_steps, config.histogram_steps if self.chief else 0)
        return not (
            devices.several_workers(self.strategy)
            or any(self._is_every(steps, after=1) for steps in due)
            or self.interruption.reason
            or self._checkpoint_minutes_are_over()
            or self.update_seconds > RUN_AHEAD_SECONDS
            or self.state.skipped_in_a_row + 1 >= config.max_skipped
        )

    def _unless_stopped(self, work: Callable):
        """Returns `work()`, or `None` if a signal stops it. Several workers, which wait for one another, finish it."""
        return work() if devices.several_workers(self.strategy) else self.interruption.unless_stopped(work)

    def _remove_replaced(self) -> None:
        if self.state.replaces:
            checkpoint.remove(checkpoint.path_of(self.model_dir, self.state.replaces))

    def _save(self, kind: str, keep: int) -> None:
        if self.chief:
            self.state.seconds = time.monotonic() - self.uninterrupted_start
            path = checkpoint.path_of(self.model_dir, self.state.step, kind)
            checkpoint.write(path, self.model, self.optimizer, dataclasses.asdict(self.state))
            if kind == checkpoint.STEP:
                self._remove_replaced()
            checkpoint.remove_old(self.model_dir, keep, kind, last=self.state.step)

    def _save_checkpoint(self) -> None:
        every = self.config.checkpoint_steps
        self.state.interim = not (every and self.state.step % every == 0 or self._checkpoint_minutes_are_over())
        self.state.replaces = self.interim if self.interim < self.state.step else 0
        self._save(checkpoint.STEP, self.config.keep_checkpoints)
        self.interim = self.state.step if self.state.interim else 0
        self.saved_steps, self.saved_at = self._steps(), time.monotonic()

    @contextlib.contextmanager
    def _saving_after_an_error(self, running: _Update | None = None) -> Iterator[None]:
        """Saves the state if reading the data or a validation fails, which change neither weights nor state. An update
        that is `running` meanwhile is finished first.
        """
        try:
            yield
        except Exception:
            if running:
                self._log(*self._finish_update(running))
            self._save_unless_saved()
            raise

    def _save_unless_saved(self) -> None:
        if self._steps() != self.saved_steps:
            self._save_checkpoint()

    def _save_last_good_state(self) -> None:
        """Saves the state before the updates that were skipped last, which had the same weights, unless a checkpoint
        has these.

        A resumed run makes those updates again, perhaps with other options.
        """
        variables = [tf.convert_to_tensor(variable) for variable in (*self.model.weights, *self.optimizer.variables)]
        if self.last_good_state.step > self.saved_steps[0] and diagnosis.all_finite(variables):
            self.state = self.last_good_state
            self._save_checkpoint()
            logger.info(f"The state before them, of update {self.state.step:,}, is saved.")

    def _validate(self) -> None:
        with self._saving_after_an_error():
            metrics = self._unless_stopped(lambda: self.validate(self.state.step))
        if metrics is None:
            return
        score = 0.0  # On workers other than the chief, which do not translate.
        if self.chief:
            metric = self.config.best_metric
            score = metrics.get(f"valid/{metric}")
            if not isinstance(score, float | int):
                raise ValueError(
                    f"Expected a number as '{metric}' from the validation of the task {self.task.name}. Received: "
                    f"{score!r:.100}."
                )
            score = -score if metric == "loss" else score
            self.tensorboard.write(self.state.step, metrics)
        is_best = self.state.count_validation(devices.broadcast_from_chief(self.strategy, score))
        shown = (f"{name} {value:.3f}" for name, value in metrics.items() if isinstance(value, float))
        logger.info(f"Update {self.state.step:,}: {', '.join(shown)}{'; the best so far' if is_best else ''}")
        if is_best:
            self._save(checkpoint.BEST, 1)
        self._update_pictures(is_best)

    def _update_pictures(self, is_best: bool = False) -> None:
        if self.chief and self.pictured_step < self.state.step:
            self.pictured_step = self.state.step
            self.update_pictures(is_best)

    def _start_update(self, batches: Iterator, after: _Update | None = None) -> _Update:
        """Reads the next batch and starts its update, which waits for the one `after` which it comes."""
        started, step = time.monotonic(), self.state.step + (2 if after else 1)
        with shards.plain_errors():
            batch = next(batches)
        # These are the same on all replicas of a process.
        position, damaged = (
            self.strategy.experimental_local_results(batch.pop(name))[0].numpy() for name in ("position", "damaged")
        )

        initial_scale = LossScale(*self.state.loss_scale)

        def update() -> tuple[dict, LossScale]:
            scale = after.result.result()[1] if after else initial_scale
            with self.profiler.update(step):
                return self.train_step(batch, scale)

        return _Update(batch, tuple(map(int, position)), int(damaged), started, self.thread.submit(update))

    def _finish_update(self, update: _Update) -> tuple[dict, tf.Tensor | None]:
        """Counts an update when it is made. Returns its metrics and, if `histogram_steps` is set, the gradient norm of
        each weight.
        """
        scale = self.state.loss_scale[0]
        try:
            metrics, next_scale = update.result.result()
        except OutOfMemoryError:
            self._save_unless_saved()
            raise
        norms = metrics.pop("weight_gradient_norms", None)
        metrics = {name: float(value) for name, value in metrics.items()}
        if not metrics["finite"] and not self.state.skipped_in_a_row:
            self.last_good_state = copy.deepcopy(self.state)
        self.state.loss_scale = LossScale(*map(float, next_scale))
        before, self.finished_update_at = max(update.started, self.finished_update_at), time.monotonic()
        self.update_seconds = self.finished_update_at - before
        self.state.count_update(metrics, update.position, update.damaged, self.update_seconds)
        if not metrics["finite"]:
            self._report_skipped(update.batch, scale)
        return metrics, norms

    def _report_skipped(self, batch: dict, scale: float) -> None:
        """Warns that an update was skipped; after `max_skipped` in a row, saves the last good state and raises
        `NotFiniteError`.
        """
        step, in_a_row = self.state.step, self.state.skipped_in_a_row
        if self.chief:  # All workers skip it.
            logger.warning(
                f"Update {step:,} was skipped: the loss or the gradient is not finite (loss scale {scale:g})."
            )
        if in_a_row >= self.config.max_skipped:
            self._save_last_good_state()
            clipping = "" if self.config.clip_norm else ", or gradient clipping with `clip_norm`"
            reason = self.diagnose(self.train_step.split_to_fit(batch), step, scale)
            raise NotFiniteError(
                f"{in_a_row} updates in a row, up to {step:,}, were not finite. {reason} Try a lower "
                f"`{self.config.rate_option}`{clipping}."
            )

    def _epoch(self) -> int:
        """Returns the epoch of the last update, counted from 1."""
        window, batch = self.state.position
        return 1 + (window - (batch == 0)) // self.windows_per_epoch

    def _log(self, metrics: dict, norms: tf.Tensor | None) -> None:
        if self._is_every(self.config.log_steps):
            summary = self.state.pop_summary(metrics, self.task) | scalars.peak_memory()
            summary["train/epoch"] = self._epoch()
            if self.config.device_tflops:
                seconds, replicas = time.monotonic() - self.uninterrupted_start, self.strategy.num_replicas_in_sync
                summary["train/estimated_flops"] = cost.estimate(seconds, replicas, self.config.device_tflops)
            if self.chief:
                self.tensorboard.write(self.state.step, summary)
            shown = {
                "epoch": f"{self._epoch()}",
                "loss": f"{summary.get('train/loss', math.nan):.3f}",
                "learning rate": f"{summary['train/learning_rate']:.3g}",
                f"{self.task.unit.removeprefix('target ')}s/s": f"{summary['utilization/target_tokens_per_second']:,.0f}",  # noqa: E501
            }
            self.progress_bar.log(self.state.step, shown)
        if self.chief and self.config.histogram_steps and self._is_every(self.config.histogram_steps):
            self.tensorboard.write(self.state.step, scalars.layer_metrics(self.model, norms))
        self.progress_bar.update()

    def _report_early_stop(self) -> None:
        state = self.state
        if self._patience_is_over() and state.step < self.config.train_steps:
            logger.info(
                f"Stopped at update {state.step:,}: no improvement in the last {state.validations_since_best} "
                f"validations (`patience={self.config.patience}`). To go on, resume with a larger `patience`, or 0."
            )
        elif state.step < self.config.train_steps or self._validation_is_due():
            reason = self.interruption.reason or "another worker was stopped"
            raise StoppedError(
                f"Stopped at update {state.step:,}: {reason}. Run the same command to resume." if self.chief else ""
            )
