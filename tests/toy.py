"""A toy model and made-up updates for the tests of training; and the oracle of an update, one tape over the whole batch
in eager mode.
"""

import contextlib
import fnmatch
import functools
import math
import pathlib
import tracemalloc
from collections.abc import Callable, Iterator
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.config import EOS, ModelConfig, TrainConfig
from t2t_keras.data import shards
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.masks import shift_right, token_mask
from t2t_keras.model import flops
from t2t_keras.model.loss import cross_entropy
from t2t_keras.model.protocols import EncoderDecoder
from t2t_keras.runs import registry
from t2t_keras.training import devices, optimizer
from t2t_keras.training.train_step import LossScale, make_train_step

VOCAB_SIZE = 20
SMALL = ModelConfig(
    VOCAB_SIZE, encoder_layers=1, decoder_layers=1, d_model=8, d_ff=12, num_heads=2, d_k=3, d_v=5, dropout=0.0
)
TRAIN = TrainConfig(seed=3, batch_tokens=60, buckets_per_update=1, micro_batch_tokens=60)
TASK = registry.task("translation")
cost = functools.partial(flops.memory_cost, SMALL)
SUMS = {"source": tf.TensorSpec([None, None], tf.int32), "target": tf.TensorSpec([None, None], tf.int32)}


class Toy(EncoderDecoder):
    """Less than a Transformer, and quick to compile: it reads both sides, ignores padding, and drops out in two
    layers.
    """

    def __init__(self, dropout: float = 0.0):
        super().__init__(SMALL, name="toy")
        self.embedding = keras.layers.Embedding(VOCAB_SIZE, 6, name="embedding")
        self.source_dropout, self.target_dropout = (
            Dropout(dropout, name=f"{side}_dropout") for side in ("source", "target")
        )
        self.out = keras.layers.Dense(VOCAB_SIZE, name="out")
        self.embedding.build((None, None))
        self.out.build((None, None, 6))
        self.built = True

    def call(self, inputs, training=False):
        source, target = inputs
        memory = keras.ops.sum(self.embedding(source) * token_mask(source)[..., None], axis=1, keepdims=True)
        hidden = keras.ops.tanh(self.embedding(target) + self.source_dropout(memory, training=training))
        return self.out(self.target_dropout(hidden, training=training))

    def flops(self, rows, source, target):
        return 2 * rows * target * 6 * VOCAB_SIZE

    def memory_cost(self, rows, source, target):
        return cost(rows, source, target)


def fill_disk(monkeypatch, pattern: str) -> None:
    """Files whose name matches get no room for a byte: /dev/full takes their place when they are opened for writing."""
    opened, writer = pathlib.Path.open, tf.io.TFRecordWriter

    def in_place(path) -> str:
        return "/dev/full" if fnmatch.fnmatch(pathlib.Path(path).name, pattern) else str(path)

    def open_(path, mode="r", *args, **options):
        if mode[0] == "r" or in_place(path) == str(path):
            return opened(path, mode, *args, **options)
        opened(path, mode).close()
        return opened(pathlib.Path("/dev/full"), "wb")

    monkeypatch.setattr(pathlib.Path, "open", open_)
    monkeypatch.setattr(tf.io, "TFRecordWriter", lambda path: writer(in_place(path)))


@contextlib.contextmanager
def memory_below(limit: float) -> Iterator[None]:
    """Checks that Python holds fewer bytes, at any time, than a limit."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def sentence(draw, length: int) -> list[int]:
    return [*draw.integers(EOS + 1, VOCAB_SIZE, length - 1).tolist(), EOS]


def padded(sentences) -> np.ndarray:
    width = max(map(len, sentences))
    return np.array([ids + [0] * (width - len(ids)) for ids in sentences], np.int32)


def random_updates(rows: list[int], seed: int = 0) -> list[dict]:
    """Updates of so many rows each, of unequal lengths: a mean of means is not their mean."""
    draw = np.random.default_rng(seed)
    return [
        {
            side: padded([sentence(draw, int(length)) for length in draw.integers(2, 9, number)])
            for side in ("source", "target")
        }
        for number in rows
    ]


def joined(updates: list[dict]) -> dict:
    """All their pairs as one batch."""
    return {
        side: padded([row[row > 0].tolist() for update in updates for row in update[side]])
        for side in ("source", "target")
    }


def strategy_of(replicas: int) -> tf.distribute.Strategy:
    return devices.MirroredStrategy([f"/cpu:{index}" for index in range(replicas)])


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


def assert_same_batches(received: list[dict], expected: list[dict]) -> None:
    for one, other in zip(received, expected, strict=True):
        assert one.keys() == other.keys()
        for name in other:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def sgd():
    return keras.optimizers.SGD(1.0)


def adam():
    return optimizer.adam(optimizer.TransformerSchedule(8, warmup_steps=4))


@functools.lru_cache(100)
def _made(
    replicas: int,
    micro_batch_tokens: int,
    make_optimizer,
    make_model,
    train: TrainConfig,
    buckets: int,
    make_train_step,
) -> tuple:
    """What `on_devices` needs graphs for. Whoever needs the same uses it again, from the same beginning."""
    strategy, updates = strategy_of(replicas), []
    with strategy.scope():
        model, chosen = make_model(), make_optimizer()
        chosen.build(model.trainable_variables)
    dataset = tf.data.Dataset.from_generator(lambda: iter(updates), output_signature=SUMS)
    batches = devices.distribute(strategy, dataset, micro_batch_tokens, buckets)
    update = make_train_step(strategy, model, chosen, TASK, train, batches.element_spec)
    return strategy, model, chosen, [variable.numpy() for variable in chosen.variables], updates, batches, update


def on_devices(
    updates,
    *,
    replicas: int,
    micro_batch_tokens: int,
    make_optimizer=sgd,
    make_model=Toy,
    train=TRAIN,
    loss_scale=1.0,
    buckets=1,
) -> tuple[dict, list]:
    """The weights after some updates by `make_train_step`, and its metrics."""
    made = _made(replicas, micro_batch_tokens, make_optimizer, make_model, train, buckets, make_train_step)
    strategy, model, chosen, beginning, given, batches, update = made
    given[:] = updates
    for variable, value in zip(chosen.variables, beginning, strict=True):
        variable.assign(value)
    set_weights(model)
    metrics, scale = [], LossScale(tf.constant(loss_scale), tf.constant(0.0))
    for batch in batches:
        found, scale = update(batch, scale, tf.constant(True))
        metrics.append(
            {
                **{name: value.numpy() if value.shape.rank else float(value) for name, value in found.items()},
                "next_scale": float(scale.scale),
            }
        )
    for weight in model.trainable_variables:
        copies = [copy.numpy() for copy in strategy.experimental_local_results(weight.value)]
        assert len(copies) == replicas
        for copy in copies:
            np.testing.assert_array_equal(copy, copies[0])
    assert int(chosen.iterations.numpy()) == sum(found["finite"] for found in metrics)
    return weights_of(model), metrics


class Pretended(NamedTuple):
    """An update that was asked for.

    Attributes:
        source, target: [micro-batches, rows, S or T], of the first replica.
        applied: whether it may change weights.
    """

    source: np.ndarray
    target: np.ndarray
    applied: bool


def with_a_graph(update: Callable) -> Callable:
    """A function that stands in for a `tf.function`, whose graph is built before it is called."""
    update.get_concrete_function = lambda: None
    return update


def pretended_train_step(made: list[Pretended], finite: bool = True, around: Callable | None = None) -> Callable:
    """In place of `make_train_step`, where only the loop around updates matters: nothing is compiled, no weight
    moves.

    Args:
        made: is filled with what was asked for.
        finite: whether gradients are.
        around: called in place of each update, as `around(update, *arguments)`; it may call `update`.
    """

    def make(strategy, model, optimizer, task, config, element_spec, held):
        def update(batch, loss_scale, apply):
            source, target = (
                strategy.experimental_local_results(batch[side])[0].numpy() for side in ("source", "target")
            )
            made.append(Pretended(source, target, bool(apply)))
            tokens = float(np.count_nonzero(target)) * finite
            sums = {
                "loss": 3 * tokens,
                "smoothed_loss": 4 * tokens,
                "target_tokens": tokens,
                "real_tokens": tokens,
                "positions": 2 * tokens,
                "flops": 1e6 * tokens,
            }
            return {
                **sums,
                "gradient_norm": 1.0,
                "learning_rate": optimizer.learning_rate,
                "finite": finite,
            }, loss_scale

        return with_a_graph(functools.partial(around, update) if around else update)

    return make


def damage(path: pathlib.Path) -> None:
    """Another bit in the first record of a shard."""
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)


def gradients_of(model, parts, tokens: float, label_smoothing: float) -> tuple[list, np.ndarray]:
    """Of the sum over parts, (update, dropout seeds): the gradients divided by all tokens; the summed loss and smoothed
    loss.
    """
    losses, gradients = np.zeros(2), [np.zeros(weight.shape) for weight in model.trainable_variables]
    for update, seeds in parts:
        target = tf.constant(update["target"])
        with tf.GradientTape() as tape, keras.StatelessScope(seeds):
            logits = model((tf.constant(update["source"]), shift_right(target)), training=True)
            smoothed, likelihood = (tf.reduce_sum(each) for each in cross_entropy(logits, target, label_smoothing))
        found = tape.gradient(smoothed, [weight.value for weight in model.trainable_variables])
        gradients = [
            sum_ + tf.convert_to_tensor(gradient).numpy() for sum_, gradient in zip(gradients, found, strict=True)
        ]
        losses += [float(likelihood), float(smoothed)]
    return [gradient / tokens for gradient in gradients], losses


def by_one_tape(updates, *, make_optimizer=sgd, make_model=Toy, train=TRAIN) -> tuple[dict, list]:
    """The same in eager mode, each update whole."""
    model, chosen = make_model(), make_optimizer()
    chosen.build(model.trainable_variables)
    set_weights(model)
    metrics = []
    for update in updates:
        tokens = int((update["target"] != 0).sum())
        gradients, (loss, smoothed) = gradients_of(model, [(update, [])], tokens, train.label_smoothing)
        norm = math.sqrt(sum((gradient**2).sum() for gradient in gradients))
        scale = min(1.0, train.clip_norm / norm) if train.clip_norm else 1.0
        losses = {"loss": loss, "smoothed_loss": smoothed}
        metrics.append(
            {**losses, "target_tokens": tokens, "gradient_norm": norm, "learning_rate": float(chosen.learning_rate)}
        )
        chosen.apply([tf.constant(scale * gradient, tf.float32) for gradient in gradients])
    return weights_of(model), metrics


def random_pairs(number: int) -> list[tuple]:
    draw = np.random.default_rng(11)
    return [tuple(sentence(draw, int(length)) for length in draw.integers(2, 9, 2)) for _ in range(number)]


PAIRS = random_pairs(40)


def write_shards(folder) -> None:
    """Shards of `PAIRS`: about six updates of 60 tokens an epoch."""
    shards.write(folder, [tuple(map(np.array, pair)) for pair in PAIRS], count=40, vocab_size=VOCAB_SIZE, seed=0)


# Replicas get shares of other sizes, and in some updates no row at all.
TWENTY = random_updates([9, 1, 5, 12, 2, 7, 3, 10, 1, 8] * 2, seed=12)


def assert_moved_alike(weights: dict, expected: dict) -> None:
    """They are at most 1e-5 of the distance from `set_weights` apart."""
    start = Toy()
    set_weights(start)

    def distance(a: dict, b: dict) -> float:
        return math.sqrt(sum(((a[name] - b[name]).astype(np.float64) ** 2).sum() for name in expected))

    moved, apart = distance(expected, weights_of(start)), distance(weights, expected)
    assert moved > 0.1
    assert apart <= 1e-5 * moved, apart / moved


def devices_of_sums(graph) -> tuple[list[str], set[tuple[str, str]]]:
    """Returns the devices of all-reduce operations, and (from, to) of every tensor of numbers that one device gets from
    another.
    """
    reduced, moved = [], set()

    def visit(graph, captured: dict) -> None:
        for operation in graph.get_operations():
            if operation.type == "CollectiveReduceV2":
                reduced.append(operation.device)
            for tensor in operation.inputs:
                made_by = captured.get(tensor.name, tensor).op
                if tensor.dtype == tf.float32 and tensor.shape.rank != 0 and operation.device and made_by.device:
                    moved.add((made_by.device, operation.device))
            if operation.type in ("If", "StatelessIf"):
                for branch in ("then_branch", "else_branch"):
                    inner = graph._get_function(operation.get_attr(branch).name).graph
                    visit(inner, dict(zip((tensor.name for tensor in inner.inputs), operation.inputs[1:], strict=True)))

    visit(graph, {})
    return reduced, {(one, other) for one, other in moved if one != other}
