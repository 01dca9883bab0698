"""Training (section 5): the loop around updates, which can be killed at any moment and goes on as if it had not been.

All that decides the rest of a run is in its checkpoints: weights and optimizer, and `Progress`. The rest follows from the seed.
"""

import contextlib
import dataclasses
import functools
import math
import pathlib
import secrets
import sys
import time
from collections.abc import Callable

import tqdm

from t2t_keras import batching, checkpoint, data_service, devices, memory, shards
from t2t_keras.config import TrainConfig
from t2t_keras.interruption import Interruption, StoppedError
from t2t_keras.update import FLOAT16_START, SUMS, LossScale, make_update


def _nothing_measured() -> dict:
    return dict.fromkeys(("updates", "seconds", *SUMS), 0.0)


@dataclasses.dataclass
class Progress:
    """Where a run stands; with the weights and the optimizer, all that a checkpoint holds."""

    step: int = 0  # Updates, skipped ones among them.
    position: tuple[int, int] = (0, 0)
    seconds: float = 0.0  # Of training, validation and saving, over all resumes.
    validated_step: int = 0
    dtype: str = "float32"
    best: float = -math.inf
    best_step: int = 0
    validations_since_best: int = 0
    loss_scale: tuple[float, float] = LossScale()
    skipped: int = 0  # Updates that were not finite.
    skipped_in_a_row: int = 0
    damaged_records: int = 0  # Records of the data that were left out.
    measured: dict = dataclasses.field(default_factory=_nothing_measured)  # Sums since the last point in TensorBoard.


def _point(progress: Progress, metrics: dict) -> dict:
    """A point in TensorBoard: means since the last one, and the last update's rate and norm."""
    measured = progress.measured
    tokens, seconds = measured["tokens"], max(measured["seconds"], 1e-9)
    of_finite_updates = {
        "train/loss": measured["loss"] / max(tokens, 1),
        "data/padding_share": 1 - measured["words"] / max(measured["positions"], 1),
    }
    return {
        **(of_finite_updates if tokens else {}),
        "train/learning_rate": float(metrics["learning_rate"]),
        "train/gradient_norm": float(metrics["gradient_norm"]),
        "train/skipped_updates": progress.skipped,
        "train/loss_scale": progress.loss_scale[0],
        "data/damaged_records": progress.damaged_records,
        "speed/target_tokens_per_second": tokens / seconds,
        "speed/updates_per_second": measured["updates"] / seconds,
    }


def _note_validation(progress: Progress, figure: float) -> bool:
    """Whether a validation is the best so far; keeps count of those that were not."""
    progress.validated_step = progress.step
    better = figure > progress.best
    if better:
        progress.best, progress.best_step, progress.validations_since_best = figure, progress.step, 0
    else:
        progress.validations_since_best += 1
    return better


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


def _splitting_update(strategy, model, optimizer, config: TrainConfig, element_spec, say: Callable) -> memory.SplittingUpdate:
    sides = {side: element_spec[side] for side in shards.SIDES}
    return memory.SplittingUpdate(strategy, make_update(strategy, model, optimizer, config, sides), say)


def rehearse(strategy, model, optimizer, config: TrainConfig, *, folder: pathlib.Path, say: Callable = print) -> None:
    """Does what `train` does before its first update, and no more: runs the largest updates, and says what they took."""
    batches = _batches(strategy, dataclasses.replace(config, data_service=""), folder, batching.START)
    update = _splitting_update(strategy, model, optimizer, config, batches.element_spec, say)
    memory.rehearse(strategy, update, shards.read_info(folder), *_of_process(strategy, config), say)


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
    say: Callable = print,
) -> Progress:
    """Trains up to `config.train_steps` updates, going on from the newest whole checkpoint in `model_dir`, if any.

    Args:
        strategy: whose scope model and optimizer were made in.
        model: see `make_update`.
        optimizer: see `make_update`.
        config: how to train.
        folder: shards of training pairs.
        model_dir: where checkpoints go.
        validate: step → metrics, of which "valid/bleu" or "valid/loss" decides what is best.
        examine: (batch, update, loss scale) → what in that update is not finite.
        board: draws points; see `events.Board`.
        say: told what happens.

    Returns:
        Where the run ended.

    Raises:
        StoppedError: it was told to end early, and is saved.
        ValueError: too many updates in a row were not finite; or what is in `model_dir` cannot be used.
        OSError: a checkpoint could not be written.
    """
    chief = devices.is_chief(strategy)
    progress = Progress()
    restored = checkpoint.restore_newest(model_dir, model, optimizer, say)
    if restored:
        path, state = restored
        progress = Progress(**state)
        say(f"Going on from update {progress.step:,} ({path}).")
    if progress.step == 0 or progress.dtype != config.dtype:
        progress.dtype, progress.loss_scale = config.dtype, FLOAT16_START if config.dtype == "float16" else LossScale()
    if devices.from_chief(strategy, float(progress.step)) != progress.step:
        raise ValueError(f"Expected all workers to see the chief's checkpoints. Received update {progress.step} from {model_dir} here.")
    if chief:
        board.forget_after(progress.step, progress.validated_step)
        if restored:
            checkpoint.put_aside(model_dir, after=path)

    batches = _batches(strategy, config, folder, batching.Position(*progress.position))
    update = _splitting_update(strategy, model, optimizer, config, batches.element_spec, say)
    seconds_before, started = progress.seconds, time.monotonic()
    saved_at, saved = started, (progress.step, progress.validated_step)

    def patience_is_over() -> bool:
        return bool(config.patience) and progress.validations_since_best >= config.patience

    def due(steps: int) -> bool:
        return progress.step > 0 and (bool(steps) and progress.step % steps == 0 or progress.step == config.train_steps)

    def save(kind: str, keep: int) -> None:
        if chief:
            progress.seconds = seconds_before + time.monotonic() - started
            checkpoint.write(checkpoint.path_of(model_dir, progress.step, kind), model, optimizer, dataclasses.asdict(progress))
            checkpoint.remove_old(model_dir, keep, kind, last=progress.step)

    def validation_is_due() -> bool:
        return due(config.valid_steps) and progress.validated_step < progress.step

    def validated() -> None:
        # Elsewhere a signal ends it; but other workers would wait for this one's part in it.
        work = functools.partial(validate, progress.step)
        metrics = work() if devices.several_workers(strategy) else interruption.unless_told(work)
        if metrics is None:
            return
        figure = 0.0  # Of workers that do not translate.
        if chief:
            figure = metrics["valid/bleu"] if config.early_stopping == "bleu" else -metrics["valid/loss"]
            board.write(progress.step, metrics)
        better = _note_validation(progress, devices.from_chief(strategy, figure))
        shown = (f"{name} {value:.3f}" for name, value in metrics.items() if not isinstance(value, str))
        with bar.external_write_mode():
            say(f"Update {progress.step:,}: {', '.join(shown)}{'; the best so far' if better else ''}")
        if better:
            save(checkpoint.BEST, 1)

    def updated() -> None:
        began = time.monotonic()
        with shards.plain_errors():
            batch = next(iterator)
        # All replicas of a process carry the same ones; the first one's are read.
        position, damaged = (strategy.experimental_local_results(batch.pop(name))[0].numpy() for name in ("position", "damaged"))
        metrics, progress.loss_scale = update(batch, scale := LossScale(*progress.loss_scale))
        progress.step, progress.position = progress.step + 1, tuple(map(int, position))
        progress.damaged_records += int(damaged)
        for name in SUMS:
            progress.measured[name] += float(metrics[name])
        progress.measured["updates"] += 1
        progress.measured["seconds"] += time.monotonic() - began
        if metrics["finite"]:
            progress.skipped_in_a_row = 0
        else:
            progress.skipped, progress.skipped_in_a_row = progress.skipped + 1, progress.skipped_in_a_row + 1
            with bar.external_write_mode():
                say(f"Update {progress.step:,} was skipped: loss or gradient is not finite (loss scale {scale.scale:g}).")
            if progress.skipped_in_a_row >= config.max_skipped:
                raise ValueError(
                    f"{progress.skipped_in_a_row} updates in a row, up to {progress.step:,}, were not finite. "
                    f"{examine(update.fitted(batch), progress.step, scale.scale)} A lower --rate_factor or a --clip_norm may help."
                )
        if due(config.log_steps):
            point = _point(progress, metrics)
            if chief:
                board.write(progress.step, point)
            bar.set_postfix(loss=f"{point.get('train/loss', math.nan):.3f}", tokens_per_s=f"{point['speed/target_tokens_per_second']:,.0f}")
            progress.measured = _nothing_measured()
        bar.update()

    with contextlib.ExitStack() as stack:
        interruption = stack.enter_context(Interruption(config.max_hours))
        if progress.step < config.train_steps:
            rehearsal = functools.partial(memory.rehearse, strategy, update, shards.read_info(folder), *_of_process(strategy, config), say)
            rehearsal() if devices.several_workers(strategy) else interruption.unless_told(rehearsal)
        bar = stack.enter_context(
            tqdm.tqdm(
                total=config.train_steps,
                initial=progress.step,
                unit=" updates",
                mininterval=0.2 if sys.stderr.isatty() else 30,
                dynamic_ncols=True,
                disable=not chief,
            )
        )
        iterator = iter(batches)
        while True:
            if validation_is_due():
                validated()
            told = devices.any_worker(strategy, bool(interruption.reason))
            ended = told or progress.step >= config.train_steps or patience_is_over()
            minutes = (time.monotonic() - saved_at) / 60
            if (progress.step, progress.validated_step) != saved and (
                ended or due(config.checkpoint_steps) or 0 < config.checkpoint_minutes <= minutes
            ):
                save(checkpoint.STEP, config.keep_checkpoints)
                saved_at, saved = time.monotonic(), (progress.step, progress.validated_step)
            if ended:
                break
            updated()
    devices.from_chief(strategy, 0.0)  # Until the chief has written all, nobody leaves.
    if patience_is_over():
        say(f"Stopped at update {progress.step:,}: {progress.validations_since_best} validations brought nothing better.")
    elif progress.step < config.train_steps or validation_is_due():
        reason = interruption.reason or "another worker was told to end"
        raise StoppedError(f"Stopped at update {progress.step:,}: {reason}. The same command goes on from there." if chief else "")
    return progress
