"""Section 5.2's promise of an update: it is the same whatever the devices, and whole or not made at all."""

import dataclasses
import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
import toy

from t2t_keras.config import BOS, EOS
from t2t_keras.data import batching
from t2t_keras.layers.inference import mode
from t2t_keras.model.transformer import Transformer
from t2t_keras.training import devices
from t2t_keras.training.optimizer import TransformerSchedule, adam
from t2t_keras.training.train_step import LossScale, dropout_seeds, make_train_step, make_validation

UPDATES = toy.random_updates([7, 4, 9])
one_tape_over_updates = functools.cache(functools.partial(toy.by_one_tape, UPDATES))
one_tape_over_twenty = functools.cache(functools.partial(toy.by_one_tape, toy.TWENTY))


@pytest.mark.parametrize("make_optimizer", [toy.sgd, toy.adam])
@pytest.mark.parametrize(
    ("replicas", "micro_batch_tokens"),
    [(1, 10**6), (1, 20), (2, 10**6), (2, 20)],
    ids=["one device", "micro-batches", "two devices", "both"],
)
def test_an_update_is_that_of_one_tape_over_the_whole_batch(replicas, micro_batch_tokens, make_optimizer):
    """With SGD(1), which shows a gradient summed or divided once too often, and Adam, which shows its state."""
    expected, expected_metrics = one_tape_over_updates(make_optimizer=make_optimizer)
    weights, metrics = toy.on_devices(
        UPDATES, replicas=replicas, micro_batch_tokens=micro_batch_tokens, make_optimizer=make_optimizer
    )
    toy.assert_close(weights, expected, 2e-6 if make_optimizer is toy.sgd else 2e-5)
    for received, wanted in zip(metrics, expected_metrics, strict=True):
        assert {name: received[name] for name in wanted} == pytest.approx(wanted, rel=1e-5)


WITH_OPTIONS = dataclasses.replace(
    toy.SMALL, attention_bias=True, attention="additive", activation="swish", norm_epsilon=1e-5,
    source_vocab_size=toy.VOCAB_SIZE + 3, tie_logits=False, logits_bias=True,
)  # fmt: skip
PRE_NORM = dataclasses.replace(toy.SMALL, norm="pre", sinusoids="tensor2tensor", first_position=2)


@pytest.mark.parametrize("config", [
    toy.SMALL, *(pytest.param(config, marks=pytest.mark.medium) for config in (WITH_OPTIONS, PRE_NORM)),
], ids=["the paper", "options", "pre-norm"])  # fmt: skip
def test_the_transformer_on_two_devices_equals_one_tape_also_where_a_device_has_no_rows(config):
    """An update of one row leaves the second device a row of padding, over which attention must not become 0 / 0."""
    updates = toy.random_updates([5, 1, 2], seed=4)
    expected, _ = toy.by_one_tape(updates, make_model=lambda: Transformer(config))
    weights, _ = toy.on_devices(updates, replicas=2, micro_batch_tokens=20, make_model=lambda: Transformer(config))
    toy.assert_close(weights, expected, 5e-6)


@pytest.mark.parametrize("clip_norm", [0.05, 100.0])
def test_clipping_is_of_the_whole_gradient_after_the_sum_over_devices_and_micro_batches(clip_norm):
    train = dataclasses.replace(toy.TRAIN, clip_norm=clip_norm)
    expected, expected_metrics = toy.by_one_tape(UPDATES, train=train)
    weights, metrics = toy.on_devices(UPDATES, replicas=2, micro_batch_tokens=20, train=train)
    toy.assert_close(weights, expected, 2e-6)
    norms = [update["gradient_norm"] for update in metrics]
    assert norms == pytest.approx([update["gradient_norm"] for update in expected_metrics], rel=1e-5)
    # The norm that is told is that before clipping.
    assert all((norm > clip_norm) == (clip_norm < 1) for norm in norms)


def test_the_loss_and_its_gradient_are_divided_by_the_tokens_of_the_whole_update_by_hand():
    """The gradient of the last bias is the mean over tokens of p - q; on two devices, whose shares of tokens differ."""
    train = dataclasses.replace(toy.TRAIN, label_smoothing=0.0)
    [update] = toy.random_updates([5], seed=1)
    model = toy.Toy()
    toy.set_weights(model)
    shifted = np.concatenate([np.full([5, 1], BOS), update["target"][:, :-1]], axis=1)
    logits = model((update["source"], shifted)).numpy().astype(np.float64)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    real = update["target"] != 0
    losses = -np.log(np.take_along_axis(p, update["target"][..., None], axis=-1)[..., 0])[real]
    gradient = (p - np.eye(toy.VOCAB_SIZE)[update["target"]])[real].mean(axis=0)

    weights, [metrics] = toy.on_devices([update], replicas=2, micro_batch_tokens=10**6, train=train)
    assert metrics["loss"] / metrics["target_tokens"] == pytest.approx(losses.mean(), rel=1e-5)
    np.testing.assert_allclose(weights[model.out.bias.path], model.out.bias.numpy() - gradient, atol=1e-6)


@pytest.mark.parametrize(("replicas", "micro_batch_tokens"), [(1, 10**6), (1, 20), (2, 10**6), (2, 20)])
def test_an_update_of_several_buckets_equals_one_tape_over_all_of_them(replicas, micro_batch_tokens):
    """Buckets of unequal sizes and lengths; the last update has fewer of them."""
    batches = toy.random_updates([5, 1, 9, 3, 7, 4, 6, 2], seed=7)
    updates = [toy.joined(batches[:3]), toy.joined(batches[3:6]), toy.joined(batches[6:])]
    expected, expected_metrics = toy.by_one_tape(updates)
    weights, metrics = toy.on_devices(batches, replicas=replicas, micro_batch_tokens=micro_batch_tokens, buckets=3)
    toy.assert_close(weights, expected, 3e-6)
    for one, other, buckets in zip(metrics, expected_metrics, (batches[:3], batches[3:6], batches[6:]), strict=True):
        assert one["target_tokens"] == other["target_tokens"]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
        if replicas == 1 and micro_batch_tokens == 10**6:
            # Positions of the buckets before padding to a common size; a missing bucket is a row of one position per
            # side.
            wanted = sum(ids.size for bucket in buckets for ids in bucket.values()) + 2 * (3 - len(buckets))
            assert one["positions"] == wanted


def test_tokens_words_and_positions_are_counted_over_the_whole_update():
    updates = toy.random_updates([6, 3], seed=2)
    _, metrics = toy.on_devices(updates, replicas=1, micro_batch_tokens=10**6)
    for update, received in zip(updates, metrics, strict=True):
        assert received["target_tokens"] == (update["target"] != 0).sum()
        assert received["real_tokens"] == sum((ids != 0).sum() for ids in update.values())
        assert received["positions"] == sum(ids.size for ids in update.values())


def seeds_of(model, **changes) -> list[tuple]:
    arguments = {"seed": 1, "step": 0, "micro_batch": 0, "replica": 0, **changes}
    return [tuple(np.asarray(value)) for _, value in dropout_seeds(model, **arguments)]


def test_every_dropout_layer_has_its_own_seed_for_every_step_micro_batch_and_replica():
    model = Transformer(dataclasses.replace(toy.SMALL, dropout=0.1))
    # Embeddings of both sides; two sub-layers of the encoder and three of the decoder (section 5.4).
    assert len(seeds_of(model)) == 2 + 2 + 3
    drawn = []
    for run_seed, step, micro_batch, replica in itertools.product((1, 2), (0, 1, 2, 10**6), (0, 1, 2), (0, 1, 2)):
        drawn += seeds_of(model, seed=run_seed, step=step, micro_batch=micro_batch, replica=replica)
    assert len(set(drawn)) == len(drawn) == 2 * 4 * 3 * 3 * 7


def test_dropout_seeds_are_a_function_of_their_arguments_alone():
    models = toy.Toy(dropout=0.1), toy.Toy(dropout=0.1)
    models[1]((tf.ones([1, 2], tf.int32), tf.ones([1, 2], tf.int32)), training=True)  # Moves its generators on.
    arguments = {"seed": 5, "step": 7, "micro_batch": 1, "replica": 1}
    assert seeds_of(models[0], **arguments) == seeds_of(models[1], **arguments)


def test_dropout_seeds_are_those_of_earlier_versions():
    """A run that goes on with a later one of this package draws the same masks."""
    expected = [(-394954213096741893, 567851808853168610), (1635155502067796373, 231993006238046765)]
    assert seeds_of(toy.Toy(dropout=0.1), seed=5, step=7, micro_batch=1, replica=3) == expected


def test_the_masks_of_an_update_are_those_of_its_dropout_seeds():
    """The oracle draws for each device and micro-batch in eager mode, so all that training adds is where they run."""
    updates, replicas, micro_batch_tokens = toy.random_updates([9, 5], seed=6), 2, 20
    model = toy.Toy(dropout=0.4)
    toy.set_weights(model)
    for step, update in enumerate(updates):
        alone = {side: ids[None] for side, ids in update.items()}
        shares = batching.split(alone, buckets=1, replicas=replicas, micro_batch_tokens=micro_batch_tokens)
        micro_batches = shares["source"].shape[1]
        assert micro_batches > 1
        buckets = []
        for replica, micro_batch in itertools.product(range(replicas), range(micro_batches)):
            bucket = batching.trimmed({name: ids[replica, micro_batch] for name, ids in shares.items()})
            buckets.append((bucket, dropout_seeds(model, toy.TRAIN.seed, step, micro_batch, replica)))
        gradients, _ = toy.gradients_of(model, buckets, (update["target"] != 0).sum(), toy.TRAIN.label_smoothing)
        for weight, gradient in zip(model.trainable_variables, gradients, strict=True):
            weight.assign(weight - gradient)
    weights, _ = toy.on_devices(
        updates, replicas=replicas, micro_batch_tokens=micro_batch_tokens, make_model=lambda: toy.Toy(dropout=0.4)
    )
    toy.assert_close(weights, toy.weights_of(model), 2e-6)
    without, _ = toy.on_devices(updates, replicas=replicas, micro_batch_tokens=micro_batch_tokens)
    assert max(np.abs(weights[name] - without[name]).max() for name in weights) > 0.01


@pytest.mark.medium
@pytest.mark.parametrize(("replicas", "micro_batch_tokens"), [(1, 10**6), (2, 10**6), (2, 15)])
def test_validation_is_the_mean_over_all_tokens_by_numpy_on_any_number_of_devices(folder, replicas, micro_batch_tokens):
    """Without label smoothing, without dropout, every pair once; one pair at a time and unpadded in the oracle."""
    strategy = toy.strategy_of(replicas)
    with strategy.scope():
        model = toy.Toy(dropout=0.5)
        toy.set_weights(model)
    losses = []
    for source, target in toy.PAIRS:
        logits = model((np.array([source]), np.array([[BOS, *target[:-1]]])))[0].numpy().astype(np.float64)
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        losses += [-log_p[position, token] for position, token in enumerate(target)]
    dataset = batching.batches(folder, batch_tokens=60, seed=0, epochs=1)
    validation = make_validation(strategy, model, toy.TASK, devices.distribute(strategy, dataset, micro_batch_tokens))
    for _ in range(2):  # It can be asked again and again.
        sums = validation()
        assert sums["loss"] / sums["target_tokens"] == pytest.approx(np.mean(losses), rel=1e-6)


def test_validation_computes_in_the_mode_of_inference_and_an_update_does_not():
    """TensorFlow keeps each hand-written gradient that it traces until the process ends."""

    class Watched(toy.Toy):
        passes = 2

        def call(self, inputs, training=False):
            modes.append(mode().inference)
            return super().call(inputs, training=training)

    modes, strategy = [], toy.strategy_of(1)
    dataset = tf.data.Dataset.from_generator(lambda: iter(UPDATES), output_signature=toy.SUMS)
    with strategy.scope():
        model = Watched()
    sums = make_validation(strategy, model, toy.TASK, devices.distribute(strategy, dataset, 30))()
    assert set(modes) == {True}
    modes.clear()
    _, metrics = toy.on_devices(UPDATES, replicas=1, micro_batch_tokens=30, make_model=Watched)
    assert set(modes) == {False}
    # Validation makes one pass, and smooths nothing.
    assert sum(update["flops"] for update in metrics) == 2 * sums["flops"] > 0
    assert sums["smoothed_loss"] == pytest.approx(sums["loss"])


class Converted(toy.Toy):
    """The toy, which records whether AutoGraph converts what it calls."""

    def call(self, inputs, training=False):
        self.converted.add(tf.__internal__.autograph.control_status_ctx().status.name)
        return super().call(inputs, training=training)


@pytest.mark.medium
def test_autograph_converts_neither_training_nor_validation_nor_reading(folder, monkeypatch):
    """It doubles the time of tracing."""
    read, cut_rows = [], batching.cut_rows
    status = tf.__internal__.autograph.control_status_ctx
    monkeypatch.setattr(batching, "cut_rows", lambda *args: (read.append(status()), cut_rows(*args))[1])
    strategy = toy.strategy_of(1)
    with strategy.scope():
        model, optimizer = Converted(), toy.sgd()
        optimizer.build(model.trainable_variables)
    model.converted = set()
    batches = devices.distribute(strategy, batching.batches(folder, batch_tokens=60, seed=0, epochs=1), 30)
    make_train_step(
        strategy, model, optimizer, toy.TASK, toy.TRAIN, batching.columns_of(batches.element_spec)
    ).get_concrete_function()
    make_validation(strategy, model, toy.TASK, batches)()
    assert model.converted == {found.status.name for found in read} == {"DISABLED"}


class Overflowing(toy.Toy):
    """The toy, where a source with one word has logits too large for any float."""

    def call(self, inputs, training=False):
        source, _ = inputs
        blown = tf.reduce_any(tf.equal(source, EOS + 1), axis=1)[:, None, None]
        return super().call(inputs, training=training) * tf.where(blown, float("inf"), 1.0)


def with_word(update: dict, row: int) -> dict:
    """The update, with the word that overflows in one row only."""
    clean = {side: np.where(ids == EOS + 1, EOS + 2, ids) for side, ids in update.items()}
    clean["source"][row, 0] = EOS + 1
    return clean


@pytest.mark.parametrize("row", [0, 7], ids=["on the first device", "on the second device"])
@pytest.mark.parametrize("make_optimizer", [toy.sgd, toy.adam])
def test_an_overflow_on_any_device_skips_the_update_on_all(row, make_optimizer):
    """Weights, slots and iteration stay as they were: what follows equals a run without that update.

    Story: Keras's own loss-scaling optimizer looks at the first replica alone; an overflow on the second went into the
    weights.
    """
    before, bad, after = toy.random_updates([8, 8, 8], seed=8)
    before, after = (
        {side: np.where(ids == EOS + 1, EOS + 2, ids) for side, ids in update.items()} for update in (before, after)
    )
    train = dataclasses.replace(toy.TRAIN, dtype="float16")
    options = {
        "replicas": 2, "micro_batch_tokens": 30, "make_optimizer": make_optimizer, "make_model": Overflowing,
        "train": train,
    }  # fmt: skip
    weights, metrics = toy.on_devices([before, with_word(bad, row), after], loss_scale=1024.0, **options)
    expected, expected_metrics = toy.on_devices([before, after], loss_scale=1024.0, **options)
    assert [found["finite"] for found in metrics] == [1, 0, 1]
    assert [found["next_scale"] for found in metrics] == [1024, 512, 512]
    # Powers of two: another scale, too, changes no bit of the step.
    toy.assert_close(weights, expected, 0)
    assert metrics[1]["loss"] == metrics[1]["target_tokens"] == 0
    assert metrics[2]["learning_rate"] == expected_metrics[1]["learning_rate"]


class Impossible(toy.Toy):
    """The toy, to which a word that is in the data is impossible: an infinite loss, with the finite gradient p - q."""

    def call(self, inputs, training=False):
        return super().call(inputs, training=training) + tf.one_hot(
            EOS, toy.VOCAB_SIZE, on_value=float("-inf"), off_value=0.0
        )


@pytest.mark.parametrize(
    ("make_model", "loss_scale"),
    [(Impossible, 2.0), (toy.Toy, 2.0**126)],
    ids=["an infinite loss", "an overflowing gradient"],
)
def test_an_update_is_skipped_where_the_loss_or_the_gradient_alone_is_not_finite(make_model, loss_scale):
    """A finite loss whose gradient overflows is what a loss scale that has grown too large brings."""
    [update] = toy.random_updates([6], seed=8)
    model = make_model()
    toy.set_weights(model)
    gradients, losses = toy.gradients_of(model, [(update, [])], 1, toy.TRAIN.label_smoothing)
    assert np.isfinite(losses).all() == (make_model is toy.Toy)
    assert all(np.isfinite(gradient).all() for gradient in gradients)

    train = dataclasses.replace(toy.TRAIN, dtype="float16")
    weights, [metrics] = toy.on_devices(
        [update], replicas=1, micro_batch_tokens=10**6, make_model=make_model, train=train, loss_scale=loss_scale
    )
    assert (metrics["finite"], metrics["next_scale"]) == (0, loss_scale / 2)
    assert np.isfinite(metrics["gradient_norm"]) == (make_model is Impossible)
    toy.assert_close(weights, toy.weights_of(model), 0)


def test_a_float16_transformer_has_the_gradient_of_float32_by_its_loss_scale():
    """Gradients near 10^-7, the least in float16, vanish without a scale and overflow under too large a one."""
    [update] = toy.random_updates([4], seed=4)
    rate, tokens = 2.0**20, (update["target"] != 0).sum()
    strategy = toy.strategy_of(1)

    def shrunk(model):
        toy.set_weights(model)
        for layer in (*model.encoder.stack, *model.decoder):
            for weight, by in ((layer.feed_forward.outer.kernel, 1e-3), (layer.feed_forward_norm.norm.gamma, 3e-2)):
                weight.assign(weight * by)
        return model

    with strategy.scope():
        model, optimizer = Transformer(toy.SMALL, dtype="mixed_float16"), keras.optimizers.SGD(rate)
        optimizer.build(model.trainable_variables)
    [batch] = devices.distribute(strategy, tf.data.Dataset.from_tensors(update), 10**6)
    spec = dict.fromkeys(toy.SUMS, tf.TensorSpec([None, None, None], tf.int32))
    make = make_train_step(strategy, model, optimizer, toy.TASK, dataclasses.replace(toy.TRAIN, dtype="float16"), spec)
    full = shrunk(Transformer(toy.SMALL))
    gradients, _ = toy.gradients_of(full, [(update, [])], tokens, toy.TRAIN.label_smoothing)
    names = [weight.path for weight in full.trainable_variables]
    small = [index for index, name in enumerate(names) if name.endswith("feed_forward/inner/kernel")]

    def error(scale: float) -> float:
        """The largest relative one among the small gradients; the update moves the weights by them."""
        before = toy.weights_of(shrunk(model))
        metrics, _ = make(batch, LossScale(tf.constant(scale), tf.constant(0.0)), tf.constant(True))
        after = toy.weights_of(model)
        found = [(before[names[index]] - after[names[index]]) / rate for index in small]
        assert bool(metrics["finite"]) == any(moved.any() for moved in found)
        return max(
            np.linalg.norm(moved - gradients[i]) / np.linalg.norm(gradients[i])
            for moved, i in zip(found, small, strict=True)
        )

    assert len(small) == 2 and model.compute_dtype == "float16"
    assert error(1024.0) < 0.02
    assert error(1.0) > 0.3
    assert error(2.0**20) == 1  # The loss is finite, its gradient is not: no weight moves.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_not_finite_update_is_skipped_whatever_the_dtype_and_there_is_no_loss_scale(dtype):
    updates = toy.random_updates([6, 6], seed=8)
    train = dataclasses.replace(toy.TRAIN, dtype=dtype)
    weights, metrics = toy.on_devices(
        [with_word(updates[0], 2)], replicas=1, micro_batch_tokens=10**6, make_model=Overflowing, train=train
    )
    model = toy.Toy()
    toy.set_weights(model)
    toy.assert_close(weights, toy.weights_of(model), 0)
    assert (metrics[0]["finite"], metrics[0]["next_scale"]) == (0, 1)


def test_the_loss_scale_halves_on_overflow_and_doubles_after_two_thousand_updates():
    scale, seen = LossScale(8.0), []
    for update in range(4003):
        scale = LossScale(*map(float, scale.after(tf.constant(update != 1))))
        seen.append(scale.scale)
    assert seen[:3] == [8, 4, 4]
    assert [index for index in range(1, len(seen)) if seen[index] == 2 * seen[index - 1]] == [2001, 4001]


def test_the_loss_scale_is_divided_out_of_the_step():
    expected, expected_metrics = toy.on_devices(UPDATES, replicas=2, micro_batch_tokens=20)
    train = dataclasses.replace(toy.TRAIN, dtype="float16")
    weights, metrics = toy.on_devices(UPDATES, replicas=2, micro_batch_tokens=20, loss_scale=4096.0, train=train)
    toy.assert_close(weights, expected, 0)
    assert [found["gradient_norm"] for found in metrics] == [found["gradient_norm"] for found in expected_metrics]


def test_gradient_norms_of_weights_are_those_of_the_gradient_before_clipping_and_without_the_loss_scale():
    train = dataclasses.replace(toy.TRAIN, histogram_steps=1, clip_norm=0.05, dtype="float16")
    _, metrics = toy.on_devices(UPDATES, replicas=2, micro_batch_tokens=20, loss_scale=4096.0, train=train)
    for found in metrics:
        assert found["gradient_norm"] > 0.05
        assert np.linalg.norm(found["weight_gradient_norms"]) == pytest.approx(float(found["gradient_norm"]), rel=1e-5)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    ("loss_scale", "apply"), [(1.0, False), (float("inf"), True)], ids=["not applied", "not finite"]
)
def test_an_update_that_is_not_applied_or_not_finite_changes_nothing(replicas, loss_scale, apply):
    """Neither weights, nor Adam's averages, nor the moving averages, after two updates that have moved them all: after
    the first, the moving averages are the weights.
    """
    strategy, train = toy.strategy_of(replicas), dataclasses.replace(toy.TRAIN, ema_decay=0.8)
    with strategy.scope():
        model = toy.Toy(dropout=0.3)
        optimizer = adam(TransformerSchedule(8, warmup_steps=4), ema_decay=0.8)
        optimizer.build(model.trainable_variables)
        toy.set_weights(model)
    dataset = tf.data.Dataset.from_generator(lambda: iter(UPDATES), output_signature=toy.SUMS)
    batches = devices.distribute(strategy, dataset, 30)
    update = make_train_step(strategy, model, optimizer, toy.TASK, train, batches.element_spec)
    variables = [*model.variables, *optimizer.variables]

    def values() -> list:
        copies = [strategy.experimental_local_results(variable.value) for variable in variables]
        return [np.array([copy.numpy() for copy in of_variable]) for of_variable in copies]

    beginning = values()
    for number, batch in enumerate(batches):
        scale, applied = (1.0, True) if number < 2 else (loss_scale, apply)
        metrics, _ = update(batch, LossScale(tf.constant(scale), tf.constant(0.0)), tf.constant(applied))
        assert bool(metrics["finite"]) == (metrics["target_tokens"] > 0) == np.isfinite(scale)
        if number == 1:
            moved = values()
    assert number == 2
    for variable, one, other, kept in zip(variables, beginning, moved, values(), strict=True):
        assert one.dtype != np.float32 or (one != other).any(), variable.path
        np.testing.assert_array_equal(kept, other, err_msg=variable.path)


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("make_optimizer", [toy.sgd, toy.adam])
def test_twenty_steps_on_many_devices_go_where_one_tape_goes(replicas, make_optimizer):
    expected, _ = one_tape_over_twenty(make_optimizer=make_optimizer)
    weights, _ = toy.on_devices(toy.TWENTY, replicas=replicas, micro_batch_tokens=25, make_optimizer=make_optimizer)
    toy.assert_moved_alike(weights, expected)


@pytest.mark.medium
def test_two_strategies_in_one_process_train_models_of_other_sizes():
    """Story: their collective operations had the same keys, and the second model failed: "Shape mismatch …"."""
    for make_model in (toy.Toy, lambda: Transformer(toy.SMALL), toy.Toy):
        _, metrics = toy.on_devices(UPDATES[:1], replicas=2, micro_batch_tokens=10**6, make_model=make_model)
        assert metrics[0]["finite"]


def graph_of(replicas: int, dropout: float = 0.0):
    """The graph of an update of micro-batches of 20 tokens."""
    strategy = toy.strategy_of(replicas)
    with strategy.scope():
        model, optimizer = toy.Toy(dropout), toy.adam()
        optimizer.build(model.trainable_variables)
    dataset = tf.data.Dataset.from_generator(lambda: iter(UPDATES), output_signature=toy.SUMS)
    spec = devices.distribute(strategy, dataset, 20).element_spec
    return make_train_step(strategy, model, optimizer, toy.TASK, toy.TRAIN, spec).get_concrete_function().graph


@pytest.mark.parametrize("replicas", [2, 4])
def test_gradients_are_summed_by_all_reduce_and_stay_on_their_device(replicas):
    """Story: they were all sent to one device, with several GPUs to the CPU, and the sums back to each."""
    reduced, moved = toy.devices_of_sums(graph_of(replicas))
    expected = [["CPU", str(index)] for index in range(replicas)]
    assert [device.rsplit(":", 2)[-2:] for device in sorted(reduced)] == expected
    assert moved == set()


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_powers_of_adams_betas_are_computed_once_for_all_weights(replicas):
    """Story: base had 362 of them in an update, each a launch on a GPU."""
    nodes = graph_of(replicas).as_graph_def().node
    updates = [list(node.input) for node in nodes if node.op == "ResourceApplyAdam"]
    weights = len(toy.Toy(0.0).trainable_variables)
    assert len(updates) == weights * replicas > 2
    for place in (3, 4):  # β1ᵗ, β2ᵗ.
        assert len({inputs[place] for inputs in updates}) == 1
    assert sum(node.op == "Pow" for node in nodes) == 3  # And one of the learning rate.


@pytest.mark.parametrize("replicas", [1, 2])
def test_bounds_of_slices_and_seeds_of_dropout_are_computed_on_the_host(replicas):
    """Story: each micro-batch waited for a GPU that computed them. The second virtual device stands in for it."""
    graph = graph_of(replicas, dropout=0.3)
    operations = [
        operation
        for function in (graph, *(graph._get_function(name).graph for name in graph._functions))
        for operation in function.get_operations()
    ]
    for kind, dtype in (("Any", tf.bool), ("StatelessRandomUniformFullIntV2", tf.int64)):  # Masks have int32.
        found = [operation for operation in operations if operation.type == kind]
        places = {operation.device for operation in found if operation.outputs[0].dtype == dtype}
        assert places and all(place.endswith("CPU:0") for place in places), (kind, places)
