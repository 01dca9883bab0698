"""The loop's promises: the same run whatever the interruptions, and what it leaves on disk and in TensorBoard."""

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import signal
import threading
import time
import types

import numpy as np
import pytest
import tensorflow as tf
import toy
from logged import logged
from toy import strategy_of

from t2t_keras.config import TrainConfig
from t2t_keras.data import batching, data_service, shards
from t2t_keras.runs import checkpoint, registry
from t2t_keras.runs.task import SUMS, Renewal
from t2t_keras.training import device_memory, devices, interruption, loop
from t2t_keras.training.interruption import StoppedError
from t2t_keras.training.state import TrainState
from t2t_keras.training.train_step import LossScale


@pytest.fixture(autouse=True, scope="module")
def no_update_is_slow():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "RUN_AHEAD_SECONDS", math.inf)
        yield


DATA_OPTIONS = (
    "seed", "batch_tokens", "buckets_per_update", "micro_batch_tokens", "length_buckets", "damaged_records",
    "data_service"
)  # fmt: skip
GRAPH_OPTIONS = (
    "seed", "dtype", "label_smoothing", "clip_norm", "histogram_steps", "micro_batches_at_once", "jit_compile"
)  # fmt: skip
strategy_of = functools.cache(strategy_of)
make_batches, make_train_step = loop._make_batches, loop.make_train_step


@functools.cache
def made(replicas: int, dropout: float) -> tuple:
    """A toy, its optimizer, and the first values of its variables. Runs take turns, so its graphs are made once."""
    with strategy_of(replicas).scope():
        model, optimizer = toy.Toy(dropout), toy.adam()
        optimizer.build(model.trainable_variables)
    return model, optimizer, [variable.numpy() for variable in optimizer.variables]


def once(make, names: tuple, config_at: int):
    """A function that calls `make` once for the same other arguments and the same values of these options."""
    found = {}

    def kept(*arguments):
        config = arguments[config_at]
        key = (
            *(getattr(config, name) for name in names),
            *(str(each) if isinstance(each, dict) else each for each in arguments if each is not config),
        )
        if key not in found:
            found[key] = make(*arguments)
        return found[key]

    return kept


batches_once, train_step_once = once(make_batches, DATA_OPTIONS, 1), once(make_train_step, GRAPH_OPTIONS, 4)


class Run:
    """`Trainer.train` from the beginning or from what is on disk, and all that it told.

    Args:
        figures: step → what validation finds, 1 where nothing is said; a function is called for it. A dictionary is all
            metrics.
        make_model: instead of the toy with dropout.
        at_step: step → called with the run when a point is drawn at it.
        started: when it was started; the time limit counts from then.
    """

    def __init__(
        self, folder, model_dir, *, figures=None, replicas=1, dropout=0.3, metric="valid/loss", make_model=None,
        at_step=None, started=math.inf, **options,
    ):  # fmt: skip
        config = dataclasses.replace(toy.TRAIN, **{**NO_BLEU, **options})
        strategy = strategy_of(replicas)
        if make_model:
            with strategy.scope():
                self.model, optimizer = make_model(), toy.adam()
                optimizer.build(self.model.trainable_variables)
        else:
            self.model, optimizer, values = made(replicas, dropout)
            for variable, value in zip(optimizer.variables, values, strict=True):
                variable.assign(value)
        self.optimizer = optimizer
        # Whoever goes on reads them from disk.
        toy.set_weights(self.model, seed=0 if not checkpoint.kept(model_dir) else 99)
        self.points, self.forgotten, self.validated, self.pictured, self.at_step = [], [], {}, [], at_step or {}

        def validate(step):
            self.validated[step] = toy.weights_of(self.model)
            figure = (figures or {}).get(step, 1.0)
            if callable(figure):
                figure = figure()
            return figure if isinstance(figure, dict) else {metric: float(figure)}

        with logged() as self.said, pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "_make_batches", batches_once)
            if loop.make_train_step is make_train_step and not make_model:
                patch.setattr(loop, "make_train_step", train_step_once)
            trainer = loop.Trainer(
                strategy,
                self.model,
                optimizer,
                toy.TASK,
                config,
                folder=folder,
                model_dir=model_dir,
                validate=validate,
                valid_lines=500,
                diagnose=lambda batch, step, scale: (
                    f"diagnosed at {step} with {scale:g} in {len(batch['source'])} micro-batches."
                ),
                tensorboard=self,
                update_pictures=lambda better: self.pictured.append((len(self.points), better)),
                started=started,
            )
            self.state = trainer.train()
        self.weights = toy.weights_of(self.model)
        self.optimized = {variable.path: variable.numpy() for variable in optimizer.variables}
        self.iterations = int(optimizer.iterations.numpy())

    def write(self, step: int, metrics: dict) -> None:
        """As of `TensorBoardWriter`."""
        self.points.append((step, metrics))
        self.at_step.get(step, lambda run: None)(self)

    def start(self, step: int, validated_step: int) -> None:
        """As of `TensorBoardWriter`."""
        self.forgotten.append((step, validated_step))

    def curve(self, name: str) -> dict:
        return {step: metrics[name] for step, metrics in self.points if name in metrics}


@pytest.fixture
def pretended(monkeypatch) -> list[toy.Pretended]:
    """The updates that were asked for; they are pretended."""
    made = []
    monkeypatch.setattr(loop, "make_train_step", toy.pretended_train_step(made))
    return made


class Clock:
    """In place of the module `time`: it stands still unless told to go on, or goes on with each look at it."""

    def __init__(self, tick: float = 0.0):
        self.now, self.tick = 1000.0, tick

    def monotonic(self) -> float:
        self.now += self.tick
        return self.now

    def wait(self, seconds: float) -> float:
        self.now += seconds
        return 1.0  # As the figure of a validation.


NO_BLEU = {
    "valid_sentences": 0, "best_metric": "loss", "checkpoint_minutes": 0.0, "checkpoint_steps": 3, "train_steps": 8,
    "valid_steps": 2
}  # fmt: skip


FIGURES = {2: 5.0, 4: 4.0, 6: 4.5, 8: 4.2}  # Of validations, whose best is that after update 4.


def state_of(path) -> dict:
    """The state in a checkpoint."""
    with np.load(path) as archive:
        return json.loads(str(archive["state"]))


def by_the_oracle(folder, number: int) -> tuple[list[dict], list[dict]]:
    """The first updates of the data, and their metrics without dropout."""
    updates = [
        {side: update[side].numpy() for side in shards.SIDES}
        for update in batching.batches(folder, batch_tokens=toy.TRAIN.batch_tokens, seed=toy.TRAIN.seed).take(number)
    ]
    return updates, toy.by_one_tape(updates, make_optimizer=toy.adam)[1]


def steps_on_disk(model_dir) -> list[int]:
    return [checkpoint.step_of(path) for path in checkpoint.kept(model_dir)]


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory):
    """A whole run: eight updates, more than an epoch; validation is best at update 4."""
    model_dir = tmp_path_factory.mktemp("finished")
    return model_dir, Run(folder, model_dir, figures=FIGURES, checkpoint_steps=1, keep_checkpoints=3, log_steps=2)


def test_each_validation_is_logged_and_the_best_so_far_is_said_to_be_so(finished):
    logged = [line for line in finished[1].said if ": valid/loss" in line]
    assert logged == [
        "Update 2: valid/loss 5.000; the best so far", "Update 4: valid/loss 4.000; the best so far",
        "Update 6: valid/loss 4.500", "Update 8: valid/loss 4.200",
    ]  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize(("replicas", "buckets"), [(1, 1), (2, 2)])
def test_a_run_with_few_shapes_ends_with_the_weights_of_one_without_a_break(folder, tmp_path, replicas, buckets):
    options = {"length_buckets": 2.0, "buckets_per_update": buckets, "replicas": replicas, "train_steps": 6}
    expected = Run(folder, tmp_path / "whole", **options)
    Run(folder, tmp_path / "parts", **(options | {"train_steps": 3}))
    toy.assert_close(Run(folder, tmp_path / "parts", **options).weights, expected.weights, 0)
    [shape] = [line for line in expected.said if line.startswith("Shape")]
    assert shape.startswith(f"Shape 1 of 1 of micro-batches: {3 if buckets == 1 else 1} x (16 + 16) tokens")


def test_the_shape_of_the_longest_sentences_runs_too_before_a_run_of_few_shapes(folder, monkeypatch):
    """They may be in a later window than the one whose shapes are read."""
    asked = []
    monkeypatch.setattr(batching, "shapes_in_window", lambda *given: {(2, 16, 24)})
    monkeypatch.setattr(
        device_memory, "run_shapes", lambda strategy, step, info, shapes, found, *given: asked.append(found)
    )
    monkeypatch.setattr(loop.shards, "counted", lambda info: [33, 9])
    config = dataclasses.replace(toy.TRAIN, length_buckets=1.5)
    loop._run_largest(strategy_of(1), None, toy.TASK, config, folder, None)
    assert asked == [{(2, 16, 24), (1, 36, 24)}]


@pytest.mark.parametrize(("architecture", "counted"), [("transformer", ["source", "target"]), ("bert", ["tokens"])])
def test_a_micro_batch_is_split_by_the_counted_columns_of_its_task(monkeypatch, architecture, counted):
    monkeypatch.setattr(loop, "make_train_step", lambda *given: None)
    monkeypatch.setattr(loop, "SplittingTrainStep", lambda strategy, step, cost, columns: (cost, columns))
    monkeypatch.setattr(loop.batching, "columns_of", lambda spec: None)
    model, task = types.SimpleNamespace(memory_cost="cost"), registry.task_of(architecture)
    assert loop._make_train_step(None, model, None, task, toy.TRAIN, None) == ("cost", counted)


def test_pictures_are_updated_after_each_validation_and_at_the_end(folder, finished, tmp_path):
    """When their points are written: four of training, and those of validation."""
    _, whole = finished
    assert whole.pictured == [(2, True), (4, True), (6, False), (8, False)]
    stopped = Run(folder, tmp_path, train_steps=5, valid_steps=2, figures={4: 0.5}, patience=1, log_steps=1)
    assert stopped.pictured == [(3, True), (6, True), (8, False)]


def test_a_run_that_is_stopped_early_updates_its_pictures(folder, tmp_path):
    def stop(run):
        os.kill(os.getpid(), signal.SIGTERM)
        stopped.append(run)

    stopped = []
    with pytest.raises(StoppedError):
        Run(folder, tmp_path, valid_steps=100, log_steps=1, at_step={2: stop})
    assert stopped[0].pictured == [(3, False)]  # An update was running ahead.


def test_histograms_show_the_weights_and_each_layers_gradient_norm(folder, tmp_path):
    run = Run(folder, tmp_path, train_steps=4, histogram_steps=2, log_steps=4)
    found = run.curve("weights/out/kernel")
    assert list(found) == [2, 4]
    np.testing.assert_array_equal(
        found[4], run.weights[[name for name in run.weights if name.endswith("out/kernel")][0]]
    )
    layers = [run.curve(f"train_gradient_norm/{layer}")[4] for layer in ("embedding", "out")]
    assert math.hypot(*layers) == pytest.approx(run.curve("train/gradient_norm")[4], rel=1e-5)
    assert len(run.curve("weights_gradient_norms")[4]) == 3


class Killed(BaseException):
    """As if the process were killed: nothing is saved."""


def killed():
    raise Killed


@pytest.mark.medium
def test_the_checkpoint_of_an_end_is_replaced_in_a_longer_run(folder, tmp_path):
    """Story: the average of a run that was stopped was not that of one that was not."""
    for end, expected in ((4, [3, 4]), (5, [3, 5]), (8, [3, 6, 8]), (9, [3, 6, 9])):
        Run(folder, tmp_path, train_steps=end, keep_checkpoints=3)
        assert steps_on_disk(tmp_path) == expected
    Run(folder, tmp_path, train_steps=10, keep_checkpoints=3)
    assert steps_on_disk(tmp_path) == [6, 9, 10]


def test_a_kill_before_the_checkpoint_of_an_end_is_removed_leaves_it_out_all_the_same(folder, tmp_path, monkeypatch):
    """Story: the next run did not know that one checkpoint replaced another, and the average had both."""
    Run(folder, tmp_path, train_steps=4, keep_checkpoints=3)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(checkpoint, "remove", lambda path: killed())
        Run(folder, tmp_path, keep_checkpoints=3)
    assert steps_on_disk(tmp_path) == [3, 4, 6]
    Run(folder, tmp_path, train_steps=6, keep_checkpoints=3)
    assert steps_on_disk(tmp_path) == [3, 6]
    Run(folder, tmp_path, keep_checkpoints=3)
    assert steps_on_disk(tmp_path) == [3, 6, 8]


@pytest.mark.parametrize("how", ["killed", "told to end earlier", "killed at once"])
def test_a_run_that_stopped_and_went_on_equals_one_that_did_not_to_the_last_bit(folder, finished, tmp_path, how):
    """Killed between checkpoints, with dropout: weights, optimizer, data and best validation are the same."""
    model_dir, whole = finished
    if how == "told to end earlier":
        Run(folder, tmp_path, figures=FIGURES, train_steps=4)
        assert steps_on_disk(tmp_path) == [3, 4]
    else:
        with pytest.raises(Killed):
            Run(folder, tmp_path, figures={**FIGURES, 4 if how == "killed" else 2: killed})
        assert steps_on_disk(tmp_path) == ([3] if how == "killed" else [])
    resumed = Run(folder, tmp_path, figures=FIGURES)
    toy.assert_close(resumed.weights, whole.weights, 0)
    toy.assert_close(resumed.optimized, whole.optimized, 0)
    received, expected = (dataclasses.asdict(run.state) for run in (resumed, whole))
    assert received.pop("seconds") > 0 and expected.pop("seconds") > 0
    assert (received.pop("interim"), expected.pop("interim")) == (True, False)  # `whole` saves after each update.
    assert received == expected


@pytest.mark.medium
def test_a_run_can_go_on_with_other_devices(folder, tmp_path):
    """What a checkpoint says of the data does not depend on how many devices read it; dropout would."""
    Run(folder, tmp_path / "one", dropout=0.0)
    Run(folder, tmp_path / "two", dropout=0.0, train_steps=3)
    one, two = (
        Run(folder, tmp_path / name, dropout=0.0, replicas=replicas) for name, replicas in (("one", 1), ("two", 2))
    )
    toy.assert_close(two.weights, one.weights, 1e-4)
    assert two.state.position == tuple(one.state.position)


def test_a_finished_run_ends_at_once_when_it_is_started_again(folder, finished):
    model_dir, whole = finished
    again = Run(folder, model_dir)
    assert again.points == [] and again.validated == {}
    assert again.state.step == 8
    toy.assert_close(again.weights, whole.weights, 0)
    assert "8" in again.said[0] and str(model_dir) in again.said[0]


def test_the_newest_checkpoints_are_kept_and_no_more(finished):
    model_dir, whole = finished
    assert steps_on_disk(model_dir) == [6, 7, 8]
    assert sorted(path.name for path in model_dir.rglob("*") if path.is_file()) == [
        f"{name}.{ending}" for name in ("best-000000004", *(f"step-00000000{step}" for step in (6, 7, 8)))
        for ending in ("json", "npz")
    ]  # fmt: skip
    with np.load(checkpoint.path_of(model_dir, 8)) as archive:
        for name, expected in whole.weights.items():
            np.testing.assert_array_equal(archive[f"model/{name}"], expected)


def test_the_best_checkpoint_holds_the_weights_that_validated_best(finished):
    model_dir, whole = finished
    assert (whole.state.best, whole.state.best_step, whole.state.validations_since_best) == (-4.0, 4, 2)
    [best] = checkpoint.kept(model_dir, checkpoint.BEST)
    assert checkpoint.step_of(best) == 4
    with np.load(best) as archive:
        for name, expected in whole.validated[4].items():
            np.testing.assert_array_equal(archive[f"model/{name}"], expected)


def test_the_learning_rate_in_the_log_is_equation_3_at_that_update(finished):
    rates = finished[1].curve("train/learning_rate")
    assert rates == pytest.approx({step: 8**-0.5 * min(step**-0.5, step * 4**-1.5) for step in (2, 4, 6, 8)})


def test_the_log_has_the_mean_losses_per_token_and_the_padding_since_the_last_point(folder, tmp_path):
    """The oracle reads the same updates; without dropout, one tape knows their losses."""
    run = Run(folder, tmp_path, dropout=0.0, log_steps=3, train_steps=7, valid_steps=100)
    updates, metrics = by_the_oracle(folder, 7)
    groups = {3: slice(0, 3), 6: slice(3, 6), 7: slice(6, 7)}

    def mean(name: str) -> dict:
        return {
            step: sum(m[name] for m in metrics[part]) / sum(m["target_tokens"] for m in metrics[part])
            for step, part in groups.items()
        }

    for name in ("loss", "smoothed_loss"):
        assert run.curve(f"train/{name}") == pytest.approx(mean(name), rel=1e-4)
    found = run.curve("train/perplexity")
    assert found == pytest.approx({step: math.exp(loss) for step, loss in mean("loss").items()}, rel=1e-3)
    assert abs(mean("loss")[3] - mean("smoothed_loss")[3]) > 0.01
    expected = pytest.approx({step: metrics[step - 1]["gradient_norm"] for step in groups}, rel=1e-4)
    assert run.curve("train/gradient_norm") == expected
    columns = {step: [ids for update in updates[part] for ids in update.values()] for step, part in groups.items()}
    padding = {
        step: 1 - sum((ids != 0).sum() for ids in group) / sum(ids.size for ids in group)
        for step, group in columns.items()
    }
    assert run.curve("utilization/padding_share") == pytest.approx(padding, abs=1e-6)
    wanted = pytest.approx({step: 1 - share for step, share in padding.items()}, abs=1e-6)
    assert run.curve("utilization/real_token_share") == wanted
    seen = {step: sum(m["target_tokens"] for m in metrics[:step]) for step in groups}
    assert run.curve("train/target_tokens_seen") == seen
    assert run.curve("train/epoch") == {3: 1, 6: 1, 7: 2}
    assert all(0.1 < gib < 100 for gib in run.curve("utilization/peak_memory_gib").values())
    assert all(
        value > 0
        for name in ("target_tokens", "updates")
        for value in run.curve(f"utilization/{name}_per_second").values()
    )


def test_a_point_between_validations_covers_all_updates_since_the_last_point(folder, tmp_path):
    """Also where a validation came between them: what was measured before it is not thrown away."""
    run = Run(folder, tmp_path, dropout=0.0, log_steps=3, train_steps=3, valid_steps=2)
    _, metrics = by_the_oracle(folder, 3)
    expected = sum(update["loss"] for update in metrics) / sum(update["target_tokens"] for update in metrics)
    assert run.curve("train/loss") == pytest.approx({3: expected}, rel=1e-4)


def test_a_best_checkpoint_of_updates_that_a_kill_undid_is_replaced(folder, tmp_path, pretended):
    """The checkpoint of update 4 was not written, and its best one was."""
    Run(folder, tmp_path, train_steps=4, checkpoint_steps=2, valid_steps=4)
    for path in checkpoint.path_of(tmp_path, 4).parent.glob("step-000000004.*"):
        path.unlink()
    Run(folder, tmp_path, train_steps=3, valid_steps=3)
    assert [checkpoint.step_of(path) for path in checkpoint.kept(tmp_path, checkpoint.BEST)] == [3]


def test_a_resumed_run_that_translates_more_sentences_chooses_its_best_validation_anew(folder, tmp_path, pretended):
    bleu = {"best_metric": "bleu", "metric": "valid/bleu", "valid_steps": 1}
    Run(folder, tmp_path, figures={1: 45, 2: 44}, train_steps=2, valid_sentences=2, **bleu)
    same = Run(folder, tmp_path, figures={3: 38}, train_steps=3, valid_sentences=2, **bleu).state
    assert (same.best, same.best_step, same.validations_since_best) == (45.0, 1, 2)
    more = Run(folder, tmp_path, figures={4: 37, 5: 38, 6: 36}, train_steps=6, valid_sentences=500, **bleu)
    assert (more.state.best, more.state.best_step, more.state.validations_since_best) == (38.0, 5, 1)
    assert [checkpoint.step_of(path) for path in checkpoint.kept(tmp_path, checkpoint.BEST)] == [5]
    assert any("translate another number of sentences" in line for line in more.said)


@pytest.mark.parametrize(
    ("best_metric", "metric", "figures"),
    [("loss", "valid/loss", {1: 5, 2: 4, 3: 4, 4: 6}), ("bleu", "valid/bleu", {1: 10, 2: 20, 3: 20, 4: 0})],
)
def test_training_stops_after_so_many_validations_without_a_better_one(folder, tmp_path, best_metric, metric, figures):
    options = {"train_steps": 100, "valid_steps": 1, "patience": 2, "checkpoint_steps": 0, "checkpoint_minutes": 1e3}
    if best_metric == "bleu":
        options |= {"valid_sentences": 1, "best_metric": "bleu"}
    run = Run(folder, tmp_path, figures=figures, metric=metric, **options)
    assert (run.state.step, run.state.best_step) == (4, 2)
    assert steps_on_disk(tmp_path) == [4]  # By minutes only, and at the end.
    assert [checkpoint.step_of(path) for path in checkpoint.kept(tmp_path, checkpoint.BEST)] == [2]
    assert run.said[-1].startswith("Stopped at update 4")
    again = Run(folder, tmp_path, figures=figures, metric=metric, **options)
    assert again.state.step == 4 and again.points == []
    assert again.said[-1].endswith("(`patience=2`). To go on, resume with a larger `patience`, or 0.")


@pytest.mark.parametrize(("train_steps", "is_early"), [(4, False), (6, True)])
def test_a_run_that_has_had_all_its_updates_is_not_stopped_early(folder, tmp_path, train_steps, is_early):
    """Story: the advice was to resume it with more `patience`, which did nothing."""
    options = {"train_steps": train_steps, "valid_steps": 2, "patience": 1}
    run = Run(folder, tmp_path, figures={2: 4, 4: 5, 6: 3}, metric="valid/loss", best_metric="loss", **options)
    assert run.state.step == 4 and any("Stopped" in line for line in run.said) == is_early


def test_a_checkpoint_comes_after_so_many_minutes_since_the_last_one(folder, tmp_path, monkeypatch, pretended):
    clock = Clock()
    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(loop, "RUN_AHEAD_SECONDS", -1.0)
    waits = {
        1: lambda run: clock.wait(59), 3: lambda run: clock.wait(1), 5: lambda run: clock.wait(59),
        6: lambda run: clock.wait(2),
    }  # fmt: skip
    Run(
        folder, tmp_path, checkpoint_steps=0, checkpoint_minutes=1.0, valid_steps=100, log_steps=1, keep_checkpoints=9,
        at_step=waits,
    )  # fmt: skip
    assert steps_on_disk(tmp_path) == [3, 6, 8]


def test_seconds_and_the_estimated_cost_are_of_all_devices_and_all_starts(folder, tmp_path, monkeypatch, pretended):
    """Each validation takes 10 s, and nothing else takes any time."""
    clock = Clock()
    monkeypatch.setattr(loop, "time", clock)
    options = {
        "figures": dict.fromkeys(range(9), lambda: clock.wait(10)), "replicas": 2, "log_steps": 1, "device_tflops": 0.5,
    }  # fmt: skip
    assert Run(folder, tmp_path, train_steps=3, **options).state.seconds == 20
    clock.wait(1e6)
    resumed = Run(folder, tmp_path, train_steps=5, **options)
    assert resumed.curve("train/estimated_flops") == {4: 20 * 2 * 0.5e12, 5: 30 * 2 * 0.5e12}
    assert resumed.state.seconds == 40


def test_updates_that_overlap_are_timed_once_and_a_validation_between_them_is_not(
    folder, tmp_path, monkeypatch, pretended
):
    """The clock is looked at when an update starts and when it is finished. The second starts before that."""
    clock, seconds, count_update = Clock(tick=1.0), [], TrainState.count_update
    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(
        TrainState, "count_update", lambda state, *args: seconds.append(args[-1]) or count_update(state, *args)
    )
    Run(folder, tmp_path, checkpoint_steps=100, valid_steps=4, train_steps=6, figures={4: lambda: clock.wait(100)})
    assert seconds == [2, 2, 2, 1, 2, 1]


def test_the_state_of_a_checkpoint_is_the_place_after_its_updates(folder, finished):
    """The updates that come from there are those that an uninterrupted reading gives next."""
    position = batching.Position(*state_of(checkpoint.path_of(finished[0], 7))["position"])
    read = list(batching.batches(folder, batch_tokens=toy.TRAIN.batch_tokens, seed=toy.TRAIN.seed).take(9))
    following = list(
        batching.batches(folder, batch_tokens=toy.TRAIN.batch_tokens, seed=toy.TRAIN.seed, start=position).take(2)
    )
    for received, expected in zip(following, read[7:], strict=True):
        np.testing.assert_array_equal(received["source"], expected["source"])


def test_a_budget_below_the_longest_sentence_is_refused_before_any_update(folder, tmp_path):
    with pytest.raises(ValueError, match="`batch_tokens`"):
        Run(folder, tmp_path, batch_tokens=5)


@pytest.mark.parametrize(("service", "buckets", "expected"), [
    ("", 4, ((25_000, 4), 6)), ("grpc://somewhere:5050", 4, ((25_000 // 3, 1), 2)),
    ("grpc://somewhere:5050", 7, ((25_000 // 3, 2), 2)), ("grpc://somewhere:5050", 2, ((25_000 // 3, 1), 2)),
], ids=["shared", "of its own", "of its own, two buckets", "of its own, less than a bucket"])  # fmt: skip
def test_a_process_runs_the_largest_micro_batches_of_what_it_reads(monkeypatch, service, buckets, expected):
    """Three processes of two devices: without a service they share each update; with one, each has its own."""
    monkeypatch.setattr(devices, "process_count", lambda strategy: 3)
    given = TrainConfig(data_service=service, buckets_per_update=buckets)
    config, replicas, _ = loop._per_process(types.SimpleNamespace(num_replicas_in_sync=6), given)
    assert ((config.batch_tokens, config.buckets_per_update), replicas) == expected


def test_a_part_of_an_update_too_small_for_the_longest_sentence_is_told_with_the_numbers_of_the_whole(
    folder, monkeypatch
):
    """Story: the message had the tokens of one process, and asked for as many as there were."""
    monkeypatch.setattr(devices, "process_count", lambda strategy: 4)
    longest = max(shards.counted(shards.read_info(folder)))
    config = dataclasses.replace(toy.TRAIN, data_service="grpc://somewhere:5050", batch_tokens=4 * longest - 1)
    with pytest.raises(ValueError, match=f"at least {4 * longest}: .* each of 4 .*Received: {4 * longest - 1}."):
        loop._Reading.of(types.SimpleNamespace(num_replicas_in_sync=4), config, folder)


def test_the_workers_of_a_data_service_share_the_job_of_the_chief_and_keep_their_part_of_an_update(folder, monkeypatch):
    monkeypatch.setattr(devices, "broadcast_from_chief", lambda strategy, value: float(2**50 - 1))
    monkeypatch.setattr(devices, "process_count", lambda strategy: 2)
    asked = lambda folder, *, service, job, start, batch_tokens, **_: (service, job, start, batch_tokens)  # noqa: E731
    monkeypatch.setattr(data_service, "batches", asked)
    monkeypatch.setattr(devices, "distribute", lambda strategy, dataset, *_, shared=True, **pieces: (*dataset, shared))
    config = dataclasses.replace(
        toy.TRAIN, data_service="grpc://somewhere:5050", batch_tokens=1000, buckets_per_update=2
    )
    found = loop._make_batches(strategy_of(1), config, folder, (3, 40), None)
    assert found == ("grpc://somewhere:5050", "1125899906842623", (3, 40), 500, False)


def test_the_largest_micro_batches_have_the_lengths_of_the_renewal(folder, monkeypatch):
    lengths, found = [], []

    def run_largest(strategy, train_step, info, *_, **options):
        lengths.append((info["source_longest"], info["target_longest"]))
        found.append(options)

    monkeypatch.setattr(device_memory, "run_largest_micro_batches", run_largest)
    (source, target), longest = (shards.read_info(folder)[f"{side}_longest"] for side in ("source", "target")), len
    for renewal in (None, Renewal((), len, longest), Renewal((), len, longest, most=3), Renewal((), len, most=90)):
        loop._run_largest(strategy_of(1), None, toy.TASK, toy.TRAIN, folder, renewal, every_range=True)
    assert 3 < min(source, target) and max(source, target) < 90
    assert lengths == 3 * [(source, target)] + [(90, 90)]
    assert found[:3] == [{"every_range": True}] + 2 * [{"every_range": True, "longest": longest}]


@pytest.fixture
def worker(monkeypatch) -> None:
    """This process is one of several workers, all of which do the same."""
    monkeypatch.setattr(devices, "several_workers", lambda strategy: True)
    monkeypatch.setattr(devices, "any_worker", lambda strategy, flag: flag)
    monkeypatch.setattr(devices, "broadcast_from_chief", lambda strategy, value: value)


def test_a_worker_without_the_checkpoints_of_the_chief_is_told_so(folder, tmp_path, monkeypatch, pretended, worker):
    monkeypatch.setattr(devices, "broadcast_from_chief", lambda strategy, value: 3.0)
    with pytest.raises(ValueError, match=f"Received: update 0 from {tmp_path} on this worker. Give a `model_dir`"):
        Run(folder, tmp_path)
    assert pretended == []


def test_a_worker_that_is_not_the_chief_trains_and_writes_nothing(
    folder, tmp_path, monkeypatch, pretended, worker, capfd
):
    """And has no score of a validation, which the chief tells it: it does not translate."""
    monkeypatch.setattr(devices, "is_chief", lambda strategy: False)
    monkeypatch.setattr(loop.scalars, "layer_metrics", lambda *_: pytest.fail("calculated"))
    run = Run(folder, tmp_path, metric="valid/perplexity", log_steps=1, histogram_steps=2, profile_steps="1,2")
    assert run.state.step == 8 and list(run.validated) == [2, 4, 6, 8]
    assert (run.points, run.pictured, run.forgotten, list(tmp_path.iterdir())) == ([], [], [], [])
    assert capfd.readouterr().err == ""
    with pytest.raises(StoppedError, match="^$"):  # The chief says why.
        Run(folder, tmp_path, figures={2: lambda: os.kill(os.getpid(), signal.SIGTERM) or 1.0})


def test_workers_count_the_scores_of_the_chief(folder, tmp_path, monkeypatch, pretended, worker):
    """By their own, which is always 0, they would stop before it."""
    # The first is the update to begin after, and the last one says that all is written.
    told = iter([0.0, 5.0, 6.0, 7.0, 7.0, 0.0])
    monkeypatch.setattr(devices, "is_chief", lambda strategy: False)
    monkeypatch.setattr(devices, "broadcast_from_chief", lambda strategy, value: next(told))
    run = Run(folder, tmp_path, patience=2)
    assert (run.state.step, run.state.best, run.state.best_step) == (8, 7.0, 6)


def test_several_workers_finish_the_validation_in_which_a_signal_comes(folder, tmp_path, pretended, worker):
    """They wait for one another in it."""
    with pytest.raises(StoppedError, match="update 2: received SIGTERM"):
        Run(folder, tmp_path, figures={2: lambda: os.kill(os.getpid(), signal.SIGTERM) or 5.0})
    state = state_of(checkpoint.path_of(tmp_path, 2))
    assert (state["validated_step"], state["best"]) == (2, -5.0)


@pytest.mark.parametrize(("figure", "received"), [({"valid/bleu": 1.0}, "None"), ({"valid/loss": "low"}, "'low'")])
def test_a_validation_without_a_number_as_the_best_metric_is_told_so(folder, tmp_path, pretended, figure, received):
    message = f"Expected a number as 'loss' from the validation of the task translation. Received: {received}."
    with pytest.raises(ValueError, match=message):
        Run(folder, tmp_path, figures={2: figure})


def test_updates_are_profiled_by_their_numbers(folder, tmp_path, monkeypatch, pretended):
    """Also one that runs ahead, and in a run that goes on."""
    steps = []
    monkeypatch.setattr(loop.Profiler, "update", lambda self, step: steps.append(step) or contextlib.nullcontext())
    for train_steps in (5, 8):
        Run(folder, tmp_path, train_steps=train_steps)
    assert steps == list(range(1, 9))


def test_an_epoch_may_have_several_windows(tmp_path, monkeypatch, pretended):
    monkeypatch.setattr(shards, "PAIRS_PER_SHARD", 20)
    monkeypatch.setattr(batching, "WINDOW_PAIRS", 20)
    toy.write_shards(tmp_path / "data")
    assert batching.windows_per_epoch(shards.read_info(tmp_path / "data")) == 2
    updates = len(
        [*batching.batches(tmp_path / "data", batch_tokens=toy.TRAIN.batch_tokens, seed=toy.TRAIN.seed, epochs=1)]
    )
    run = Run(tmp_path / "data", tmp_path / "run", log_steps=1, train_steps=updates + 2, valid_steps=100)
    assert run.curve("train/epoch") == {step: 1 + (step > updates) for step in range(1, updates + 3)}


def test_points_after_the_checkpoint_are_forgotten_before_a_run_goes_on(folder, tmp_path):
    assert Run(folder, tmp_path, train_steps=4).forgotten == [(0, 0)]
    assert Run(folder, tmp_path).forgotten == [(4, 4)]


def test_a_validation_after_the_last_saved_one_is_forgotten_although_its_update_was_saved(folder, tmp_path, pretended):
    with pytest.raises(Killed):
        Run(folder, tmp_path, figures={4: killed})  # Update 3 and the validation of update 2 are saved.
    assert Run(folder, tmp_path).forgotten == [(3, 2)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("when", ["in an update", "in a validation"])
def test_a_signal_saves_and_what_follows_equals_an_uninterrupted_run(folder, finished, tmp_path, number, when):
    """A validation that a signal ends is thrown away, and made first thing when the run goes on."""
    _, whole = finished
    sent = []

    def send(*_):
        if not sent:
            sent.append(os.kill(os.getpid(), number))
        return 4.0

    with pytest.raises(StoppedError, match=f"{number.name}.*Run the same command to resume"):
        if when == "in a validation":
            Run(folder, tmp_path, figures={**FIGURES, 4: send})
        else:
            Run(folder, tmp_path, figures=FIGURES, log_steps=5, at_step={5: send})
    # Update 6 runs while the figures of 5 are read.
    assert steps_on_disk(tmp_path)[-1] == (6 if when == "in an update" else 4)
    resumed = Run(folder, tmp_path, figures=FIGURES)
    toy.assert_close(resumed.weights, whole.weights, 0)
    received, expected = (dataclasses.asdict(run.state) for run in (resumed, whole))
    for name in ("seconds", "measured", "interim"):  # `whole` saves after each update.
        del received[name], expected[name]
    assert received == expected
    if when == "in a validation":
        assert list(resumed.validated) == [4, 6, 8]


def test_a_time_limit_saves_and_stops(folder, tmp_path, monkeypatch):
    def late(run):
        monkeypatch.setattr(interruption, "time", types.SimpleNamespace(monotonic=lambda: time.monotonic() + 5 * 3600))

    with pytest.raises(StoppedError, match="update 5: reached the time limit max_hours=5"):
        Run(
            folder, tmp_path, train_steps=100, max_hours=5, log_steps=4, valid_steps=100, at_step={4: late},
            started=time.monotonic(),
        )  # fmt: skip
    assert steps_on_disk(tmp_path)[-1] == 5


def test_a_last_validation_that_was_ended_by_a_signal_is_made_by_the_next_run_and_only_once(folder, finished, tmp_path):
    with pytest.raises(StoppedError, match="update 8: received SIGTERM"):
        Run(folder, tmp_path, figures={**FIGURES, 8: lambda: os.kill(os.getpid(), signal.SIGTERM)})
    assert list(Run(folder, tmp_path, figures=FIGURES).validated) == [8]
    again = Run(folder, tmp_path, figures=FIGURES)
    assert again.validated == {}
    assert (again.state.best_step, again.state.validated_step) == (4, 8)


@pytest.mark.medium
def test_float16_begins_with_its_loss_scale_also_where_another_dtype_went_before(folder, tmp_path):
    assert Run(folder, tmp_path, train_steps=3).state.loss_scale == (1, 0)
    assert Run(folder, tmp_path, train_steps=4, dtype="float16").state.loss_scale == (1024, 1)
    assert Run(folder, tmp_path, train_steps=5, dtype="float16").state.loss_scale == (1024, 2)
    assert Run(folder, tmp_path, train_steps=6, dtype="bfloat16").state.loss_scale == (1, 0)


def test_an_update_that_runs_ahead_has_the_loss_scale_of_the_one_before(folder, tmp_path):
    run = Run(folder, tmp_path, dtype="float16", train_steps=6, valid_steps=100, checkpoint_steps=100)
    assert run.state.loss_scale == (1024, 6)


def test_sums_since_the_last_point_go_on_with_the_run(folder, finished, tmp_path):
    """A point's mean loss is over all updates since the point before, also where a kill came between them."""
    whole = Run(folder, tmp_path / "whole", log_steps=5)
    Run(folder, tmp_path / "parts", log_steps=100, train_steps=4)
    assert state_of(checkpoint.path_of(tmp_path / "parts", 3))["measured"]["updates"] == 3
    checkpoint.path_of(tmp_path / "parts", 4).unlink()
    parts = Run(folder, tmp_path / "parts", log_steps=5)
    assert parts.curve("train/loss") == whole.curve("train/loss")


def test_what_an_older_version_measured_is_left_out_of_the_next_point():
    """Its sums were others: a smoothed loss, without the loss beside it."""
    update = {**dict.fromkeys((*toy.TASK.sums, *SUMS), 1.0), "finite": True}
    older = {**dict.fromkeys((*toy.TASK.sums, *SUMS, "seconds"), 0.0), "loss": 1e9, "updates": 3.0}
    for measured, updates in ((dict(older), 4), ({name: older[name] for name in older if name != "smoothed_loss"}, 1)):
        restored = TrainState.read({"step": 8, "flops": 0.0, "measured": measured})
        restored.count_update(update, (0, 1), 0, 1.0)
        assert restored.measured["updates"] == updates and restored.step == 9
        assert (restored.measured["loss"] > 1e8) == (updates == 4)


def test_a_loss_of_any_size_has_a_point():
    state = TrainState()
    state.count_update({**dict.fromkeys((*toy.TASK.sums, *SUMS), 1.0), "loss": 1e4, "finite": True}, (0, 1), 0, 1.0)
    assert state.pop_summary({"learning_rate": 1.0, "gradient_norm": 1.0}, toy.TASK)["train/perplexity"] == math.inf


def test_the_largest_micro_batches_run_before_the_first_update_at_each_start(folder, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(loop, "make_train_step", toy.pretended_train_step(made))
    each = device_memory.largest_shapes(shards.read_info(folder), toy.TRAIN, 1, toy.cost).values()
    shapes = [max(each, key=lambda shape: toy.cost(*shape))]
    for steps in (3, 5):
        Run(folder, tmp_path, train_steps=steps)
        dummies = [update for update in made if not update.applied]
        assert made[: len(shapes)] == dummies
        assert [(*update.source.shape[1:], update.target.shape[2]) for update in dummies] == shapes
        made.clear()
    said = Run(folder, tmp_path, train_steps=5).said
    assert made == [] and not any("Largest micro-batch" in line for line in said)  # There is nothing left to train.


def test_a_damaged_newest_checkpoint_is_reported_and_the_run_goes_on_from_the_one_before(folder, finished, tmp_path):
    Run(folder, tmp_path, train_steps=6)
    newest = checkpoint.path_of(tmp_path, 6)
    newest.write_bytes(newest.read_bytes()[:-1])
    resumed = Run(folder, tmp_path)
    assert newest.name in resumed.said[0] and "damaged" in resumed.said[0]
    assert "Resuming from update 3" in resumed.said[1]
    toy.assert_close(resumed.weights, finished[1].weights, 0)
    assert newest.with_suffix(".damaged").exists()


class NotFinite(toy.Toy):
    """The toy, whose loss is not a number as long as a switch is on."""

    def __init__(self):
        super().__init__(0.0)
        self.switch = self.add_weight(shape=(), initializer="ones", trainable=False, name="switch")

    def call(self, inputs, training=False):
        return super().call(inputs, training=training) / (1 - self.switch)


@pytest.mark.parametrize(("options", "advice"), [
    ({}, "`learning_rate_factor`, or gradient clipping with `clip_norm`"),
    ({"learning_rate": 0.1, "clip_norm": 1.0}, "`learning_rate`"),
])  # fmt: skip
def test_after_so_many_updates_in_a_row_that_are_not_finite_the_run_stops_and_says_where(
    folder, tmp_path, options, advice
):
    message = f"3 updates in a row, up to 3, were not finite. diagnosed at 3 with 1 .* Try a lower {advice}.$"
    with pytest.raises(ValueError, match=message):
        Run(folder, tmp_path, make_model=NotFinite, max_skipped=3, **options)
    assert steps_on_disk(tmp_path) == []


@pytest.mark.parametrize("spoiled", ["", "weights", "optimizer"], ids=["finite", "weights", "optimizer"])
def test_updates_that_are_not_finite_lose_none_before_them(folder, finished, tmp_path, monkeypatch, spoiled):
    """The state before them is saved, if it is finite, and is that of a run without them. The first is skipped too."""
    # How many are skipped before the switch is off does not depend on time.
    monkeypatch.setattr(loop, "RUN_AHEAD_SECONDS", -1.0)
    finite = not spoiled

    def switch(run):
        run.model.switch.assign(1.0)
        if spoiled:
            variable = {"weights": run.model.out.bias, "optimizer": run.optimizer.variables[-1]}[spoiled]
            variable.assign(np.full(variable.shape, np.inf))

    def start(**options):
        run = Run(
            folder, tmp_path, make_model=NotFinite, max_skipped=3, log_steps=1, checkpoint_steps=100, valid_steps=4,
            **options,
        )  # fmt: skip
        return run.state

    with logged() as said, pytest.raises(loop.NotFiniteError, match="3 updates in a row, up to 7,"):
        start(at_step={1: lambda run: run.model.switch.assign(0.0), 4: switch})
    assert steps_on_disk(tmp_path) == [4] * finite
    assert ("The state before them, of update 4, is saved." in said) == finite
    if finite:
        state = state_of(checkpoint.path_of(tmp_path, 4))
        assert (state["step"], state["skipped"], state["measured"], state["validated_step"]) == (4, 1, {}, 4)
        assert state["position"] == state_of(checkpoint.path_of(finished[0], 4, checkpoint.BEST))["position"]


def test_an_update_is_diagnosed_in_the_micro_batches_that_fit(folder, tmp_path, monkeypatch):
    def update(train_step, batch, loss_scale, apply):
        if apply and len(batch["source"]) == 1:
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory")
        return train_step(batch, loss_scale, apply)

    monkeypatch.setattr(loop, "make_train_step", toy.pretended_train_step([], finite=False, around=update))
    with pytest.raises(loop.NotFiniteError, match="diagnosed at 1 with 1 in 2 micro-batches"):
        Run(folder, tmp_path, max_skipped=1)


def test_a_skipped_update_is_reported_and_diagnosed_with_its_own_loss_scale(folder, tmp_path, monkeypatch, messages):
    """And not with the lower one of the next update."""

    def update(train_step, batch, loss_scale, apply):
        metrics, _ = train_step(batch, loss_scale, apply)
        return metrics, LossScale(loss_scale.scale / 2)

    monkeypatch.setattr(loop, "make_train_step", toy.pretended_train_step([], finite=False, around=update))
    with pytest.raises(ValueError, match="diagnosed at 3 with 256 "):
        Run(folder, tmp_path, max_skipped=3, dtype="float16", valid_steps=100)
    told = [line for line in messages if "was skipped" in line]
    assert [line.partition("loss scale ")[2] for line in told] == ["1024).", "512).", "256)."]


def test_skipped_updates_are_counted_and_reported(folder, tmp_path):
    def switch_off(run):
        run.model.switch.assign(0.0)

    # The loss of a validation is written too; no update runs meanwhile.
    run = Run(
        folder, tmp_path, make_model=NotFinite, max_skipped=6, log_steps=1, train_steps=8, at_step={4: switch_off},
        valid_steps=4,
    )  # fmt: skip
    assert (run.state.skipped, run.state.skipped_in_a_row, run.state.step) == (4, 0, 8)
    assert run.curve("train/skipped_updates") == {1: 1, 2: 2, 3: 3, 4: 4, 5: 4, 6: 4, 7: 4, 8: 4}
    assert list(run.curve("train/loss")) == [5, 6, 7, 8]  # There is no mean over nothing.
    assert run.iterations == 4
    assert sum("was skipped" in line for line in run.said) == 4


def test_a_skipped_update_is_told_by_the_chief_alone(folder, tmp_path, monkeypatch, messages):
    """Story: each of several workers told it."""
    monkeypatch.setattr(loop, "make_train_step", toy.pretended_train_step([], finite=False))
    monkeypatch.setattr(devices, "is_chief", lambda strategy: False)
    with pytest.raises(ValueError, match="updates in a row"):
        Run(folder, tmp_path, max_skipped=1, valid_steps=100)
    assert not any("was skipped" in line for line in messages)


@pytest.fixture
def started(monkeypatch) -> dict[int, threading.Event]:
    """An event for each update, set when it starts. The updates are pretended."""
    started, updates = {number: threading.Event() for number in range(1, 20)}, itertools.count(1)

    def update(train_step, batch, loss_scale, apply):
        if apply:
            started[next(updates)].set()
        return train_step(batch, loss_scale, apply)

    monkeypatch.setattr(loop, "make_train_step", toy.pretended_train_step([], around=update))
    return started


@pytest.fixture
def ahead(monkeypatch, started) -> dict[int, bool]:
    """Whether the next update had started when each was counted; before a run, the seconds to wait for that."""
    count_update, ahead = TrainState.count_update, {}

    def count(state, *args):
        count_update(state, *args)
        ahead[state.step] = started[state.step + 1].wait(ahead.get(state.step, 10))

    monkeypatch.setattr(TrainState, "count_update", count)
    return ahead


def test_an_update_starts_before_the_figures_of_the_one_before_are_read(folder, tmp_path, ahead):
    """Except where a validation, a checkpoint or the end comes between them, which need the weights of one update."""
    ahead |= dict.fromkeys((3, 4, 6, 8), 0.1)
    Run(folder, tmp_path, checkpoint_steps=3, valid_steps=4)
    assert ahead == {1: True, 2: True, 3: False, 4: False, 5: True, 6: False, 7: True, 8: False}


@pytest.mark.parametrize(("options", "expected"), [
    ({"checkpoint_minutes": 1e-9}, dict.fromkeys(range(1, 9), False)),
    ({"histogram_steps": 4}, {4: False, 8: False}),
    ({"max_skipped": 1}, dict.fromkeys(range(1, 9), False)),
], ids=str)  # fmt: skip
def test_no_update_starts_early_before_what_needs_the_weights_of_the_last_one(
    folder, tmp_path, monkeypatch, ahead, options, expected
):
    ahead |= dict.fromkeys(expected, 0.05)
    monkeypatch.setattr(loop.scalars, "layer_metrics", lambda *args: {})
    Run(folder, tmp_path, **{"checkpoint_steps": 100, "valid_steps": 100, **options})
    assert ahead == {**dict.fromkeys(range(1, 8), True), 8: False, **expected}


def test_slow_updates_do_not_run_ahead(folder, tmp_path, monkeypatch, ahead):
    """After a signal, two of them could take longer than there is time. The first is not known to be slow."""
    ahead |= dict.fromkeys((2, 3, 4), 0.05)
    monkeypatch.setattr(loop, "RUN_AHEAD_SECONDS", 0.0)
    Run(folder, tmp_path, checkpoint_steps=100, valid_steps=100, train_steps=4)
    assert ahead == {1: True, 2: False, 3: False, 4: False}


def test_several_workers_do_not_run_ahead(folder, tmp_path, ahead, worker):
    """They decide after each update whether to stop."""
    ahead |= dict.fromkeys(range(1, 5), 0.05)
    Run(folder, tmp_path, checkpoint_steps=100, valid_steps=100, train_steps=4)
    assert ahead == dict.fromkeys(range(1, 5), False)


@pytest.mark.parametrize("step", [4, 5, 7])
def test_an_error_loses_no_update_that_was_made(folder, finished, tmp_path, monkeypatch, step):
    """Of the data that an update reads, also ahead, or of a validation. What follows is an uninterrupted run."""
    figures, reading = dict(FIGURES), itertools.count(1)

    def damaged():
        raise ValueError("damaged")

    with monkeypatch.context() as patch, pytest.raises(ValueError, match="^damaged$"):
        if step == 4:
            figures[4] = damaged
        else:
            patch.setattr(
                loop.shards, "plain_errors", lambda: damaged() if next(reading) > step else contextlib.nullcontext()
            )
        Run(folder, tmp_path, figures=figures, checkpoint_steps=100, log_steps=1)
    assert steps_on_disk(tmp_path) == [step]
    resumed = Run(folder, tmp_path, figures={**figures, 4: 4.0}, checkpoint_steps=100)
    toy.assert_close(resumed.weights, finished[1].weights, 0)
    assert list(resumed.validated) == [at for at in (4, 6, 8) if at >= step]


def test_a_signal_lets_the_update_that_runs_ahead_finish_and_saves_after_it(folder, tmp_path, started):
    with pytest.raises(StoppedError, match="update 3: received SIGTERM"):
        Run(
            folder,
            tmp_path,
            valid_steps=100,
            checkpoint_steps=100,
            log_steps=1,
            at_step={2: lambda run: os.kill(os.getpid(), signal.SIGTERM)},
        )
    assert steps_on_disk(tmp_path) == [3] and [number for number in started if started[number].is_set()] == [1, 2, 3]


@pytest.mark.parametrize("damaged_records", ["stop", "skip"])
def test_a_damaged_record_stops_the_run_or_is_skipped_and_counted(tmp_path, monkeypatch, damaged_records):
    monkeypatch.setattr(shards, "PAIRS_PER_RECORD", 10)
    toy.write_shards(tmp_path / "data")
    [shard] = (tmp_path / "data").glob("*.tfrecord")
    toy.damage(shard)
    options = {"damaged_records": damaged_records, "log_steps": 1, "valid_steps": 100}
    if damaged_records == "stop":
        with pytest.raises(ValueError, match=rf"1 damaged, the first at byte \d+ of {shard}.*`damaged_records=skip`"):
            Run(tmp_path / "data", tmp_path / "run", **options)
    else:
        run = Run(tmp_path / "data", tmp_path / "run", **options)
        # Told once an epoch, of about five updates of what is left; eight updates begin a second one.
        assert run.curve("utilization/damaged_records")[1] == 1 and run.state.damaged_records == 2
