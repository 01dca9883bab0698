"""The train step that XLA compiles has the losses and gradients of the plain one, on all devices, for all networks."""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import toy
from test_architecture import arrays, resumed
from toy import SMALL, TRAIN, on_devices, random_updates

from t2t_keras.config import BertConfig, ClassifierConfig, ModelConfig, RnnConfig
from t2t_keras.data.few_shapes import Shapes
from t2t_keras.layers.inference import compiled
from t2t_keras.model.linear_cross_entropy import Consistency, linear_cross_entropy, r_drop, simcut
from t2t_keras.runs import registry, run_options
from t2t_keras.runs.run_start import Start
from t2t_keras.training import devices, run, train_step

ENCODER = {"encoder_layers": 1, "d_model": 8, "d_ff": 12, "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
SIDES = {
    "source": tf.constant([[5, 7, 9, 3, 0], [6, 3, 0, 0, 0]]),
    "target": tf.constant([[8, 4, 3, 0], [9, 10, 11, 3]]),
}
TOKENS = tf.constant([[2, 7, 9, 3, 11, 3], [2, 8, 3, 9, 3, 0]])
OF_BERT = {"masked": [[2, 4], [3, 0]], "target": [[7, 8], [9, 0]], "following": [[2], [1]]}
OF_BERT = {"tokens": TOKENS} | {name: tf.constant(ids) for name, ids in OF_BERT.items()}
NETWORKS = {
    "transformer": (SMALL, SIDES),
    "transformer, pre-norm": (dataclasses.replace(SMALL, norm="pre", logits_bias=True), SIDES),
    "transformer, R-Drop": (dataclasses.replace(SMALL, r_drop=2.0, dropout=1e-9), SIDES),
    "bert": (BertConfig(20, **ENCODER), OF_BERT),
    "classifier": (
        ClassifierConfig(20, labels="a,b,c", **ENCODER),
        {"tokens": TOKENS, "label": OF_BERT["following"] + 1},
    ),
}
COMPILED = dataclasses.replace(TRAIN, jit_compile="true")
PLACE = {"step": tf.constant(0), "micro_batch": tf.constant(0), "replica": tf.constant(0)}


def both(config: ModelConfig, name: str, columns: dict, dtype: str = "float32") -> list[tuple]:
    """Gradients and sums of a micro-batch, by the plain and by the compiled function."""
    architecture = registry.architecture(name)
    model = architecture.model_class()(config, dtype=dtype)
    toy.set_weights(model)
    task = registry.task(architecture.task)
    gradients_of = train_step.make_compiled_gradients(model, task, TRAIN)
    scale = tf.constant(2.0)
    return [
        train_step.micro_batch_gradients(model, task, TRAIN, columns, **PLACE, scale=scale),
        gradients_of(columns, **PLACE, scale=scale),
    ]


@pytest.mark.medium
@pytest.mark.parametrize("network", NETWORKS)
def test_losses_and_gradients_are_those_of_the_plain_step(network):
    config, columns = NETWORKS[network]
    (expected, sums), (received, found) = both(config, network.partition(",")[0], columns)
    found, sums = ({name: float(value) for name, value in each.items()} for each in (found, sums))
    assert found == pytest.approx(sums, rel=1e-6)
    largest = max(float(tf.reduce_max(tf.abs(gradient))) for gradient in expected)
    for one, other in zip(expected, received, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-5 * largest)


@pytest.mark.parametrize("consistency", [None, r_drop(2.0), simcut(3.0), Consistency(0.3, 0.6, 0.7, 1.9)])
def test_the_loss_of_all_logits_is_that_of_blocks(consistency):
    """Of two passes that differ, with padding and a bias."""
    draw = np.random.default_rng(2)
    shapes = (2 * 5 if consistency else 5, 7, 6), (11, 6), 11
    hidden, matrix, bias = (tf.constant(draw.normal(0, 1, shape), tf.float32) for shape in shapes)
    target = tf.constant(draw.integers(1, 11, (5, 7)) * (np.arange(7) < draw.integers(1, 8, (5, 1))))

    def losses() -> list:
        with tf.GradientTape() as tape:
            tape.watch([hidden, matrix, bias])
            sums = linear_cross_entropy(hidden, matrix, target, 0.1, bias, consistency)
        return [*sums, *tape.gradient(sums[0], [hidden, matrix, bias])]

    expected = losses()
    with compiled():
        received = losses()
    for one, other in zip(expected, received, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


@pytest.mark.medium
def test_bfloat16_is_as_close_to_float32_as_in_the_plain_step():
    (exact, _), _ = both(SMALL, "transformer", SIDES)
    errors = []
    for gradients, _ in both(SMALL, "transformer", SIDES, "mixed_bfloat16"):
        differences = [found - wanted for found, wanted in zip(gradients, exact, strict=True)]
        errors.append(float(tf.linalg.global_norm(differences) / tf.linalg.global_norm(exact)))
    assert errors[1] <= 1.5 * errors[0] + 1e-4 and errors[0] < 0.05


@pytest.mark.medium
def test_dropout_masks_are_those_of_the_plain_step_at_every_place():
    model = toy.Toy(dropout=0.3)
    toy.set_weights(model)
    gradients_of = train_step.make_compiled_gradients(model, toy.TASK, TRAIN)
    columns = {side: tf.tile(ids, [20, 1]) for side, ids in SIDES.items()}
    norms = set()
    for changed in ({}, {"step": 1}, {"micro_batch": 1}, {"replica": 1}):
        place = {name: tf.constant(changed.get(name, 0)) for name in PLACE} | {"scale": tf.constant(1.0)}
        expected, _ = train_step.micro_batch_gradients(model, toy.TASK, TRAIN, columns, **place)
        received, _ = gradients_of(columns, **place)
        for one, other in zip(expected, received, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4)
        norms.add(round(float(tf.linalg.global_norm(received)), 2))
    assert len(norms) == 4


@pytest.mark.medium
def test_float16_does_not_overflow_in_the_gradient_of_the_shared_matrix():
    """Story: one product over all tokens summed 200 equal targets times the loss scale in float16."""
    columns = {"source": tf.fill([40, 2], 5), "target": tf.fill([40, 50], 7)}
    task, scale = toy.TASK, tf.constant(1024.0)
    model = registry.architecture("transformer").model_class()(SMALL, dtype="mixed_float16")
    toy.set_weights(model)
    for gradients_of in (
        lambda: train_step.micro_batch_gradients(model, task, TRAIN, columns, **PLACE, scale=scale),
        lambda: train_step.make_compiled_gradients(model, task, TRAIN)(columns, **PLACE, scale=scale),
    ):
        gradients, _ = gradients_of()
        place = [weight is model.embedding_matrix for weight in model.trainable_variables].index(True)
        assert np.isfinite(gradients[place]).all()


@pytest.mark.medium
def test_a_network_that_xla_cannot_compile_runs_as_without(messages):
    model = registry.architecture("rnn").model_class()(RnnConfig(20, d_model=8, d_embedding=6))
    gradients = train_step._make_gradients(toy.strategy_of(1), model, toy.TASK, COMPILED)
    expected, _ = train_step.micro_batch_gradients(model, toy.TASK, TRAIN, SIDES, **PLACE, scale=1.0)
    for one, other in zip(expected, gradients(SIDES, **PLACE, scale=1.0)[0], strict=True):
        np.testing.assert_array_equal(one, other)
    message = messages[-1]
    assert message.startswith("XLA cannot compile this network (XLA compilation requires a fixed tensor list size): ")


UPDATES = random_updates([4, 7, 5])


@pytest.mark.medium
@pytest.mark.parametrize(("replicas", "micro_batch_tokens"), [(1, 30), (2, 60)])
def test_updates_are_those_of_the_plain_step_on_several_devices_and_in_micro_batches(replicas, micro_batch_tokens):
    sizes = {"replicas": replicas, "micro_batch_tokens": micro_batch_tokens, "make_optimizer": toy.adam}
    expected, metrics = on_devices(UPDATES, **sizes)
    received, found = on_devices(UPDATES, **sizes, train=COMPILED)
    toy.assert_close(received, expected, 1e-5)
    for one, other in zip(metrics, found, strict=True):
        assert other == pytest.approx(one, rel=1e-5)


@pytest.mark.parametrize(
    ("jit_compile", "length_buckets", "gpu", "expected"),
    [
        ("auto", 1.15, True, True),
        ("auto", 0.0, True, False),  # A run that began without rounded lengths: each of its many shapes would compile.
        ("auto", 1.0, True, False),
        ("auto", 1.15, False, False),
        ("true", 1.0, False, True),
        ("false", 1.15, True, False),
    ],
)
def test_xla_compiles_on_gpus_where_shapes_are_few(jit_compile, length_buckets, gpu, expected):
    config = dataclasses.replace(TRAIN, jit_compile=jit_compile, length_buckets=length_buckets)
    assert devices.compiles(strategy_on("GPU" if gpu else "CPU"), config) == expected


class strategy_on:  # noqa: N801
    """A strategy on devices of a kind."""

    def __init__(self, kind: str):
        self.extended = self
        self.worker_devices = (f"/device:{kind}:0", f"/device:{kind}:1")


@pytest.mark.parametrize(("architecture", "given", "gpu", "expected"), [
    ("transformer", 0.0, True, 1.15),
    ("transformer", 0.0, False, 0.0),
    ("transformer", 1.0, True, 1.0),
    ("transformer", 1.3, True, 1.3),
    ("rnn", 0.0, True, 0.0),
])  # fmt: skip
def test_a_new_run_rounds_lengths_where_it_is_compiled(architecture, given, gpu, expected):
    options = run_options.Options.default(architecture)
    options = dataclasses.replace(options, train=dataclasses.replace(options.train, length_buckets=given))
    found = run._with_length_buckets(strategy_on("GPU" if gpu else "CPU"), options)
    assert found.train.length_buckets == expected


def test_a_compiled_run_of_many_shapes_is_warned(messages, monkeypatch):
    monkeypatch.setattr(train_step, "make_compiled_gradients", lambda *given: given)
    train_step._make_gradients(toy.strategy_of(1), None, None, COMPILED)
    train_step._make_gradients(toy.strategy_of(1), None, None, dataclasses.replace(COMPILED, length_buckets=1.2))
    [message] = messages
    assert message.startswith("XLA compiles each of the many shapes of micro-batches when it first comes.")


def test_shapes_are_those_of_the_counted_columns():
    info = {"columns": {"tokens": True, "label": False}}
    assert devices.shapes(dataclasses.replace(TRAIN, length_buckets=1.2), info, 50) == Shapes(1.2, 50, ("tokens",))
    assert devices.shapes(TRAIN, info, 50) is None


@pytest.mark.slow
def test_a_compiled_run_resumes_to_the_last_bit(tmp_path):
    given = {
        "dataset": "builtin", "builtin_pairs": 400, "vocab_size": 340, "encoder_layers": 1, "decoder_layers": 1,
        "d_model": 8, "d_ff": 8, "num_heads": 1, "d_k": 8, "d_v": 8, "batch_tokens": 512, "micro_batch_tokens": 256,
        "train_steps": 4, "valid_steps": 4, "checkpoint_steps": 2, "valid_sentences": 0, "best_metric": "loss",
        "length_buckets": 2, "jit_compile": "true",
    }  # fmt: skip
    start = Start.open(tmp_path / "whole", given, str(tmp_path / "data"))
    run.train(start, strategy=devices.make_strategy(2))
    resumed(tmp_path / "whole", tmp_path / "resumed", 2)
    whole, again = arrays(tmp_path / "whole"), arrays(tmp_path / "resumed")
    assert whole.keys() == again.keys()
    for name in whole:
        np.testing.assert_array_equal(again[name], whole[name], err_msg=name)


def train_in_a_process(options: dict, **environment: str) -> str:
    """What a program says that trains with these options."""
    command = [sys.executable, "tools/train.py", *(f"--{name}={value}" for name, value in options.items())]
    given = {"env": os.environ | environment, "cwd": pathlib.Path(__file__).parent.parent}
    result = subprocess.run(command, **given, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stderr


@pytest.mark.slow
def test_each_shape_is_compiled_once_before_the_first_update(tmp_path):
    options = {
        "dataset": "builtin", "vocab_size": 500, "encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_ff": 8,
        "num_heads": 1, "d_k": 8, "d_v": 8, "batch_tokens": 1024, "micro_batch_tokens": 512, "train_steps": 30,
        "valid_steps": 100,
        "valid_sentences": 1, "attention_images": 0, "length_buckets": 2, "jit_compile": "true",
        "model_dir": tmp_path / "run",
    }  # fmt: skip
    said = train_in_a_process(options, XLA_FLAGS=f"--xla_dump_to={tmp_path / 'dump'}")
    programs = [*(tmp_path / "dump").glob("*_program_*.before_optimizations.txt")]
    shapes = re.findall(r"^Shape \d of (\d)", said, re.MULTILINE)
    assert len(programs) == len(shapes) == int(shapes[0]) > 1


@pytest.mark.slow
def test_a_resumed_run_finds_its_programs_in_the_persistent_cache_of_xla(tmp_path):
    """Story: the number in a program's name was another one than before, so each start compiled all shapes again."""
    options = {
        "dataset": "builtin", "builtin_pairs": 400, "vocab_size": 340, "encoder_layers": 1, "decoder_layers": 1,
        "d_model": 8, "d_ff": 8, "num_heads": 1, "d_k": 8, "d_v": 8, "batch_tokens": 512, "micro_batch_tokens": 256,
        "valid_steps": 100, "valid_sentences": 0, "best_metric": "loss", "attention_images": 0, "length_buckets": 2,
        "jit_compile": "true", "model_dir": tmp_path / "run",
    }  # fmt: skip
    cache, programs = tmp_path / "cache", []
    cache.mkdir()
    for steps in (2, 3):
        flags = f"--tf_xla_persistent_cache_directory={cache}"
        said = train_in_a_process(options | {"train_steps": steps}, TF_XLA_FLAGS=flags)
        programs.append(sorted(path.name for path in cache.iterdir()))
    assert "Resuming from update 2" in said
    shapes = re.findall(r"^Shape \d of (\d)", said, re.MULTILINE)
    assert programs[0] == programs[1] and len(programs[0]) == len(shapes) > 1
