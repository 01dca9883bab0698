"""Section 5.2's promises: the same update whatever the devices, the same run whatever the interruptions.

The oracle of an update is one tape, in eager mode, over the whole batch on one device.
"""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import batching, checkpoint, optimizer, shards, training
from t2t_keras.config import BOS, EOS, ModelConfig, TrainConfig
from t2t_keras.dropout import Dropout
from t2t_keras.loss import cross_entropy, shift_right, token_mask
from t2t_keras.transformer import Transformer

VOCAB_SIZE = 20
SMALL = ModelConfig(VOCAB_SIZE, encoder_layers=1, decoder_layers=1, d_model=8, d_ff=12, num_heads=2, d_k=3, d_v=5, dropout=0.0)
TRAIN = TrainConfig(seed=3, batch_tokens=60, device_tokens=60)
SUMS = {"source": tf.TensorSpec([None, None], tf.int32), "target": tf.TensorSpec([None, None], tf.int32)}


class Toy(keras.Model):
    """Less than a Transformer, and quick to compile: it reads both sides, ignores padding, and drops out in two layers."""

    def __init__(self, dropout: float = 0.0):
        super().__init__(name="toy")
        self.embedding = keras.layers.Embedding(VOCAB_SIZE, 6, name="embedding")
        self.source_dropout, self.target_dropout = (Dropout(dropout, name=f"{side}_dropout") for side in ("source", "target"))
        self.out = keras.layers.Dense(VOCAB_SIZE, name="out")
        self.embedding.build((None, None))
        self.out.build((None, None, 6))
        self.built = True

    def call(self, inputs, training=False):
        source, target = inputs
        memory = keras.ops.sum(self.embedding(source) * token_mask(source)[..., None], axis=1, keepdims=True)
        hidden = keras.ops.tanh(self.embedding(target) + self.source_dropout(memory, training=training))
        return self.out(self.target_dropout(hidden, training=training))


def sentence(draw, length: int) -> list[int]:
    return [*draw.integers(EOS + 1, VOCAB_SIZE, length - 1).tolist(), EOS]


def padded(sentences) -> np.ndarray:
    width = max(map(len, sentences))
    return np.array([ids + [0] * (width - len(ids)) for ids in sentences], np.int32)


def random_updates(rows: list[int], seed: int = 0) -> list[dict]:
    """Updates of so many rows each, of unequal lengths: a mean of means is not their mean."""
    draw = np.random.default_rng(seed)
    return [
        {side: padded([sentence(draw, int(length)) for length in draw.integers(2, 9, number)]) for side in ("source", "target")}
        for number in rows
    ]


def strategy_of(replicas: int) -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy([f"/cpu:{index}" for index in range(replicas)])


def set_weights(model, seed: int = 0) -> None:
    """The same weights in every model, none of them zero or one as biases and norms are at the start."""
    draw = np.random.default_rng(seed)
    for weight in model.trainable_variables:
        weight.assign(draw.normal(0, 0.4, weight.shape))


def weights_of(model) -> dict:
    return {weight.path: weight.numpy().copy() for weight in model.trainable_variables}


def assert_close(received: dict, expected: dict, tolerance: float) -> None:
    assert received.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(received[name], expected[name], rtol=0, atol=tolerance, err_msg=name)


def sgd():
    return keras.optimizers.SGD(1.0)


def adam():
    return optimizer.adam(optimizer.TransformerSchedule(8, warmup_steps=4))


def on_devices(updates, *, replicas: int, device_tokens: int, make_optimizer=sgd, make_model=Toy, train=TRAIN) -> tuple[dict, list]:
    """The weights after some updates by `make_update`, and its metrics."""
    strategy = strategy_of(replicas)
    with strategy.scope():
        model, chosen = make_model(), make_optimizer()
        chosen.build(model.trainable_variables)
        set_weights(model)
    dataset = tf.data.Dataset.from_generator(lambda: iter(updates), output_signature=SUMS)
    batches = training.distribute(strategy, dataset, device_tokens)
    update = training.make_update(strategy, model, chosen, train, batches.element_spec)
    metrics = [{name: float(value) for name, value in update(batch).items()} for batch in batches]
    for weight in model.trainable_variables:
        copies = [copy.numpy() for copy in strategy.experimental_local_results(weight.value)]
        assert len(copies) == replicas
        for copy in copies:
            np.testing.assert_array_equal(copy, copies[0])
    assert int(chosen.iterations.numpy()) == len(updates)
    return weights_of(model), metrics


def gradients_of(model, parts, tokens: float, label_smoothing: float) -> tuple[list, float]:
    """Of the sum over parts, (update, dropout seeds), divided by all tokens: the gradients and the summed loss."""
    total, gradients = 0.0, [np.zeros(weight.shape) for weight in model.trainable_variables]
    for update, seeds in parts:
        target = tf.constant(update["target"])
        with tf.GradientTape() as tape, keras.StatelessScope(seeds):
            logits = model((tf.constant(update["source"]), shift_right(target)), training=True)
            loss = tf.reduce_sum(cross_entropy(logits, target, label_smoothing))
        found = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
        gradients = [sum_ + tf.convert_to_tensor(gradient).numpy() for sum_, gradient in zip(gradients, found, strict=True)]
        total += float(loss)
    return [gradient / tokens for gradient in gradients], total


def by_one_tape(updates, *, make_optimizer=sgd, make_model=Toy, train=TRAIN) -> tuple[dict, list]:
    """The same in eager mode, each update whole."""
    model, chosen = make_model(), make_optimizer()
    chosen.build(model.trainable_variables)
    set_weights(model)
    metrics = []
    for update in updates:
        tokens = int((update["target"] != 0).sum())
        gradients, loss = gradients_of(model, [(update, [])], tokens, train.label_smoothing)
        norm = math.sqrt(sum((gradient**2).sum() for gradient in gradients))
        scale = min(1.0, train.clip_norm / norm) if train.clip_norm else 1.0
        metrics.append({"loss": loss, "tokens": tokens, "gradient_norm": norm, "learning_rate": float(chosen.learning_rate)})
        chosen.apply([tf.constant(scale * gradient, tf.float32) for gradient in gradients])
    return weights_of(model), metrics


UPDATES = random_updates([7, 4, 9])


@pytest.mark.parametrize("make_optimizer", [sgd, adam])
@pytest.mark.parametrize(
    ("replicas", "device_tokens"), [(1, 10**6), (1, 20), (2, 10**6), (2, 20)], ids=["one device", "micro-batches", "two devices", "both"]
)
def test_an_update_is_that_of_one_tape_over_the_whole_batch(replicas, device_tokens, make_optimizer):
    """With SGD(1), which shows a gradient that is summed or divided once too often, and with Adam, which shows its state."""
    expected, expected_metrics = by_one_tape(UPDATES, make_optimizer=make_optimizer)
    weights, metrics = on_devices(UPDATES, replicas=replicas, device_tokens=device_tokens, make_optimizer=make_optimizer)
    assert_close(weights, expected, 2e-6 if make_optimizer is sgd else 2e-5)
    for received, wanted in zip(metrics, expected_metrics, strict=True):
        assert {name: received[name] for name in wanted} == pytest.approx(wanted, rel=1e-5)


def test_the_transformer_on_two_devices_equals_one_tape_also_where_a_device_has_no_rows():
    """An update of one row leaves the second device a row of padding, over which attention must not become 0 / 0."""
    updates = random_updates([5, 1, 2], seed=4)
    expected, _ = by_one_tape(updates, make_model=lambda: Transformer(SMALL))
    weights, _ = on_devices(updates, replicas=2, device_tokens=20, make_model=lambda: Transformer(SMALL))
    assert_close(weights, expected, 5e-6)


@pytest.mark.parametrize("clip_norm", [0.05, 100.0])
def test_clipping_is_of_the_whole_gradient_after_the_sum_over_devices_and_micro_batches(clip_norm):
    train = dataclasses.replace(TRAIN, clip_norm=clip_norm)
    expected, expected_metrics = by_one_tape(UPDATES, train=train)
    weights, metrics = on_devices(UPDATES, replicas=2, device_tokens=20, train=train)
    assert_close(weights, expected, 2e-6)
    norms = [update["gradient_norm"] for update in metrics]
    assert norms == pytest.approx([update["gradient_norm"] for update in expected_metrics], rel=1e-5)
    assert all((norm > clip_norm) == (clip_norm < 1) for norm in norms)  # The norm that is told is that before clipping.


def test_the_loss_and_its_gradient_are_divided_by_the_tokens_of_the_whole_update_by_hand():
    """The gradient of the last bias is the mean over tokens of p - q; on two devices, whose shares of tokens differ."""
    train = dataclasses.replace(TRAIN, label_smoothing=0.0)
    [update] = random_updates([5], seed=1)
    model = Toy()
    set_weights(model)
    shifted = np.concatenate([np.full([5, 1], BOS), update["target"][:, :-1]], axis=1)
    logits = model((update["source"], shifted)).numpy().astype(np.float64)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    real = update["target"] != 0
    losses = -np.log(np.take_along_axis(p, update["target"][..., None], axis=-1)[..., 0])[real]
    gradient = (p - np.eye(VOCAB_SIZE)[update["target"]])[real].mean(axis=0)

    weights, [metrics] = on_devices([update], replicas=2, device_tokens=10**6, train=train)
    assert metrics["loss"] / metrics["tokens"] == pytest.approx(losses.mean(), rel=1e-5)
    np.testing.assert_allclose(weights[model.out.bias.path], model.out.bias.numpy() - gradient, atol=1e-6)


def test_tokens_words_and_positions_are_counted_over_the_whole_update():
    updates = random_updates([6, 3], seed=2)
    _, metrics = on_devices(updates, replicas=1, device_tokens=10**6)
    for update, received in zip(updates, metrics, strict=True):
        assert received["tokens"] == (update["target"] != 0).sum()
        assert received["words"] == sum((ids != 0).sum() for ids in update.values())
        assert received["positions"] == sum(ids.size for ids in update.values())


def dropout_seeds(model, **changes) -> list[tuple]:
    arguments = {"seed": 1, "step": 0, "micro_batch": 0, "replica": 0, **changes}
    return [tuple(np.asarray(value)) for _, value in training.dropout_seeds(model, **arguments)]


def test_every_dropout_layer_has_its_own_seed_for_every_step_micro_batch_and_replica():
    model = Transformer(dataclasses.replace(SMALL, dropout=0.1))
    # Embeddings of both sides; two sub-layers of the encoder and three of the decoder (section 5.4).
    assert len(dropout_seeds(model)) == 2 + 2 + 3
    drawn = [
        seed
        for run_seed in (1, 2)
        for step in (0, 1, 2, 10**6)
        for micro_batch in (0, 1, 2)
        for replica in (0, 1, 2)
        for seed in dropout_seeds(model, seed=run_seed, step=step, micro_batch=micro_batch, replica=replica)
    ]
    assert len(set(drawn)) == len(drawn) == 2 * 4 * 3 * 3 * 7


def test_dropout_seeds_are_a_function_of_their_arguments_alone():
    models = Toy(dropout=0.1), Toy(dropout=0.1)
    models[1]((tf.ones([1, 2], tf.int32), tf.ones([1, 2], tf.int32)), training=True)  # Moves its generators on.
    arguments = {"seed": 5, "step": 7, "micro_batch": 1, "replica": 1}
    assert dropout_seeds(models[0], **arguments) == dropout_seeds(models[1], **arguments)


def test_the_masks_of_an_update_are_those_of_its_dropout_seeds():
    """The oracle draws for each device and micro-batch in eager mode, so all that training adds is where they run."""
    updates, replicas, device_tokens = random_updates([9, 5], seed=6), 2, 20
    model = Toy(dropout=0.4)
    set_weights(model)
    for step, update in enumerate(updates):
        shares = {side: ids.numpy() for side, ids in batching.split(update, replicas=replicas, device_tokens=device_tokens).items()}
        micro_batches = shares["source"].shape[1]
        assert micro_batches > 1
        parts = [
            (
                {side: shares[side][replica, micro_batch] for side in shares},
                training.dropout_seeds(model, TRAIN.seed, step, micro_batch, replica),
            )
            for replica in range(replicas)
            for micro_batch in range(micro_batches)
        ]
        gradients, _ = gradients_of(model, parts, (update["target"] != 0).sum(), TRAIN.label_smoothing)
        for weight, gradient in zip(model.trainable_variables, gradients, strict=True):
            weight.assign(weight - gradient)
    weights, _ = on_devices(updates, replicas=replicas, device_tokens=device_tokens, make_model=lambda: Toy(dropout=0.4))
    assert_close(weights, weights_of(model), 2e-6)
    without, _ = on_devices(updates, replicas=replicas, device_tokens=device_tokens)
    assert max(np.abs(weights[name] - without[name]).max() for name in weights) > 0.01


def random_pairs(number: int) -> list[tuple]:
    draw = np.random.default_rng(11)
    return [tuple(sentence(draw, int(length)) for length in draw.integers(2, 9, 2)) for _ in range(number)]


PAIRS = random_pairs(40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Shards of 40 pairs: about six updates of 60 tokens an epoch."""
    folder = tmp_path_factory.mktemp("shards")
    shards.write(folder, [tuple(map(np.array, pair)) for pair in PAIRS], count=40, vocab_size=VOCAB_SIZE, seed=0)
    return folder


@pytest.mark.parametrize(("replicas", "device_tokens"), [(1, 10**6), (2, 10**6), (2, 15)])
def test_validation_is_the_mean_over_all_tokens_by_numpy_on_any_number_of_devices(folder, replicas, device_tokens):
    """Without label smoothing, without dropout, every pair once; one pair at a time and unpadded in the oracle."""
    strategy = strategy_of(replicas)
    with strategy.scope():
        model = Toy(dropout=0.5)
        set_weights(model)
    losses = []
    for source, target in PAIRS:
        logits = model((np.array([source]), np.array([[BOS, *target[:-1]]])))[0].numpy().astype(np.float64)
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        losses += [-log_p[position, token] for position, token in enumerate(target)]
    dataset = batching.updates(folder, batch_tokens=60, seed=0, epochs=1)
    validation = training.make_validation(strategy, model, dataset, device_tokens)
    assert validation() == pytest.approx(np.mean(losses), rel=1e-6)
    assert validation() == pytest.approx(np.mean(losses), rel=1e-6)  # It can be asked again and again.


class Run:
    """`training.train` with new objects, and all that it told.

    Args:
        figures: step → what validation finds, the last for all that come after; a KeyboardInterrupt is raised instead.
    """

    def __init__(self, folder, model_dir, *, figures=None, replicas=1, dropout=0.3, metric="valid/loss", **options):
        config = dataclasses.replace(TRAIN, **{**NO_BLEU, **options})
        strategy = strategy_of(replicas)
        with strategy.scope():
            self.model, self.optimizer = Toy(dropout), adam()
            self.optimizer.build(self.model.trainable_variables)
            set_weights(self.model, seed=0 if not checkpoint.kept(model_dir) else 99)  # Whoever goes on reads them from disk.
        self.points, self.said, self.validated = [], [], {}

        def validate(step):
            self.validated[step] = weights_of(self.model)
            figure = (figures or {}).get(step, 1.0)
            if figure is KeyboardInterrupt:
                raise KeyboardInterrupt
            return {metric: float(figure)}

        self.progress = training.train(
            strategy,
            self.model,
            self.optimizer,
            config,
            folder=folder,
            model_dir=model_dir,
            validate=validate,
            write=lambda step, metrics: self.points.append((step, metrics)),
            say=self.said.append,
        )
        self.weights = weights_of(self.model)

    def curve(self, name: str) -> dict:
        return {step: metrics[name] for step, metrics in self.points if name in metrics}


NO_BLEU = {
    "valid_sentences": 0, "early_stopping": "loss", "checkpoint_minutes": 0.0, "checkpoint_steps": 3, "train_steps": 8, "valid_steps": 2
}  # fmt: skip


def steps_on_disk(model_dir) -> list[int]:
    return [checkpoint.step_of(path) for path in checkpoint.kept(model_dir)]


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory):
    """A whole run: eight updates, more than an epoch; validation is best at update 4."""
    model_dir = tmp_path_factory.mktemp("finished")
    figures = {2: 5.0, 4: 4.0, 6: 4.5, 8: 4.2}
    return model_dir, Run(folder, model_dir, figures=figures, checkpoint_steps=1, keep_checkpoints=3, log_steps=2)


@pytest.mark.parametrize("how", ["killed", "told to end earlier", "killed at once"])
def test_a_run_that_stopped_and_went_on_equals_one_that_did_not_to_the_last_bit(folder, finished, tmp_path, how):
    """Killed between checkpoints, in new objects, with dropout: weights, optimizer, place in the data, best validation."""
    model_dir, whole = finished
    figures = {2: 5.0, 4: 4.0, 6: 4.5, 8: 4.2}
    if how == "told to end earlier":
        Run(folder, tmp_path, figures=figures, train_steps=4)
        assert steps_on_disk(tmp_path) == [3, 4]
    else:
        with pytest.raises(KeyboardInterrupt):
            Run(folder, tmp_path, figures={**figures, 4 if how == "killed" else 2: KeyboardInterrupt})
        assert steps_on_disk(tmp_path) == ([3] if how == "killed" else [])
    resumed = Run(folder, tmp_path, figures=figures)
    for name, expected in whole.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], expected, err_msg=name)
    for received, expected in zip(resumed.optimizer.variables, whole.optimizer.variables, strict=True):
        np.testing.assert_array_equal(received.numpy(), expected.numpy(), err_msg=expected.path)
    received, expected = (dataclasses.asdict(run.progress) for run in (resumed, whole))
    assert received.pop("seconds") > 0 and expected.pop("seconds") > 0
    assert received == expected


def test_a_run_can_go_on_with_other_devices(folder, tmp_path):
    """What a checkpoint says of the data does not depend on how many devices read it; dropout does, so there is none here."""
    Run(folder, tmp_path / "one", dropout=0.0)
    Run(folder, tmp_path / "two", dropout=0.0, train_steps=3)
    one, two = (Run(folder, tmp_path / name, dropout=0.0, replicas=replicas) for name, replicas in (("one", 1), ("two", 2)))
    assert_close(two.weights, one.weights, 1e-4)
    assert two.progress.position == tuple(one.progress.position)


def test_a_finished_run_ends_at_once_when_it_is_started_again(folder, finished):
    model_dir, whole = finished
    again = Run(folder, model_dir)
    assert again.points == [] and again.validated == {}
    assert again.progress.step == 8
    assert_close(again.weights, whole.weights, 0)
    assert "8" in again.said[0] and str(model_dir) in again.said[0]


def test_the_newest_checkpoints_are_kept_and_no_more(finished):
    model_dir, whole = finished
    assert steps_on_disk(model_dir) == [6, 7, 8]
    assert sorted(path.name for path in model_dir.rglob("*") if path.is_file()) == [
        "best.npz", "step-000000006.npz", "step-000000007.npz", "step-000000008.npz"
    ]  # fmt: skip
    with np.load(checkpoint.path_of(model_dir, 8)) as archive:
        for name, expected in whole.weights.items():
            np.testing.assert_array_equal(archive[f"model/{name}"], expected)


def test_the_best_checkpoint_holds_the_weights_that_validated_best(finished):
    model_dir, whole = finished
    assert (whole.progress.best, whole.progress.best_step, whole.progress.validations_since_best) == (-4.0, 4, 2)
    assert checkpoint.read_state(model_dir / checkpoint.BEST)["step"] == 4
    with np.load(model_dir / checkpoint.BEST) as archive:
        for name, expected in whole.validated[4].items():
            np.testing.assert_array_equal(archive[f"model/{name}"], expected)


def test_the_learning_rate_in_the_log_is_equation_3_at_that_update(finished):
    rates = finished[1].curve("train/learning_rate")
    assert rates == pytest.approx({step: 8**-0.5 * min(step**-0.5, step * 4**-1.5) for step in (2, 4, 6, 8)})


def test_the_log_has_the_mean_loss_per_token_and_the_padding_since_the_last_point(folder, tmp_path):
    """The oracle reads the same updates; without dropout, one tape knows their losses."""
    run = Run(folder, tmp_path, dropout=0.0, log_steps=3, train_steps=7, valid_steps=100)
    updates = [
        {side: update[side].numpy() for side in shards.SIDES}
        for update in batching.updates(folder, batch_tokens=TRAIN.batch_tokens, seed=TRAIN.seed).take(7)
    ]
    _, metrics = by_one_tape(updates, make_optimizer=adam)
    groups = {3: slice(0, 3), 6: slice(3, 6), 7: slice(6, 7)}
    losses = {step: sum(m["loss"] for m in metrics[part]) / sum(m["tokens"] for m in metrics[part]) for step, part in groups.items()}
    assert run.curve("train/loss") == pytest.approx(losses, rel=1e-4)
    assert run.curve("train/gradient_norm") == pytest.approx({step: metrics[step - 1]["gradient_norm"] for step in groups}, rel=1e-4)
    columns = {step: [ids for update in updates[part] for ids in update.values()] for step, part in groups.items()}
    padding = {step: 1 - sum((ids != 0).sum() for ids in group) / sum(ids.size for ids in group) for step, group in columns.items()}
    assert run.curve("data/padding_share") == pytest.approx(padding, abs=1e-6)
    assert all(value > 0 for name in ("target_tokens", "updates") for value in run.curve(f"speed/{name}_per_second").values())


def test_a_point_between_validations_covers_all_updates_since_the_last_point(folder, tmp_path):
    """Also where a validation came between them: what was measured before it is not thrown away."""
    run = Run(folder, tmp_path, dropout=0.0, log_steps=3, train_steps=3, valid_steps=2)
    updates = [
        {side: update[side].numpy() for side in shards.SIDES}
        for update in batching.updates(folder, batch_tokens=TRAIN.batch_tokens, seed=TRAIN.seed).take(3)
    ]
    _, metrics = by_one_tape(updates, make_optimizer=adam)
    expected = sum(update["loss"] for update in metrics) / sum(update["tokens"] for update in metrics)
    assert run.curve("train/loss") == pytest.approx({3: expected}, rel=1e-4)


@pytest.mark.parametrize(
    ("early_stopping", "metric", "figures"),
    [("loss", "valid/loss", {1: 5, 2: 4, 3: 4, 4: 6}), ("bleu", "valid/bleu", {1: 10, 2: 20, 3: 20, 4: 0})],
)
def test_training_stops_after_so_many_validations_without_a_better_one(folder, tmp_path, early_stopping, metric, figures):
    options = {"train_steps": 100, "valid_steps": 1, "patience": 2, "checkpoint_steps": 0, "checkpoint_minutes": 1e3}
    if early_stopping == "bleu":
        options |= {"valid_sentences": 1, "early_stopping": "bleu"}
    run = Run(folder, tmp_path, figures=figures, metric=metric, **options)
    assert (run.progress.step, run.progress.best_step) == (4, 2)
    assert steps_on_disk(tmp_path) == [4]  # By minutes only, and at the end.
    assert checkpoint.read_state(tmp_path / checkpoint.BEST)["step"] == 2
    assert run.said[-1].startswith("Stopped at update 4")
    again = Run(folder, tmp_path, figures=figures, metric=metric, **options)
    assert again.progress.step == 4 and again.points == []


def test_minutes_without_a_checkpoint_bring_one(folder, tmp_path):
    Run(folder, tmp_path, checkpoint_steps=0, checkpoint_minutes=1e-9, train_steps=3, keep_checkpoints=9)
    assert steps_on_disk(tmp_path) == [1, 2, 3]


def test_the_state_of_a_checkpoint_is_the_place_after_its_updates(folder, finished):
    """The updates that come from there are those that an uninterrupted reading gives next."""
    position = batching.Position(*checkpoint.read_state(checkpoint.path_of(finished[0], 7))["position"])
    read = list(batching.updates(folder, batch_tokens=TRAIN.batch_tokens, seed=TRAIN.seed).take(9))
    following = list(batching.updates(folder, batch_tokens=TRAIN.batch_tokens, seed=TRAIN.seed, start=position).take(2))
    for received, expected in zip(following, read[7:], strict=True):
        np.testing.assert_array_equal(received["source"], expected["source"])


def test_a_budget_below_the_longest_sentence_is_refused_before_any_update(folder, tmp_path):
    with pytest.raises(ValueError, match="--batch_tokens"):
        Run(folder, tmp_path, batch_tokens=5)


def test_progress_is_all_json(finished):
    assert training.Progress(**json.loads(json.dumps(dataclasses.asdict(finished[1].progress)))).step == 8
