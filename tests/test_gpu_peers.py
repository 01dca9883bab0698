"""The systems that `benchmarks/gpu_peers.py` measures are the same model, and what it counts is what we count.

`tests/peers.sh` installs PyTorch, JAX and Flax; elsewhere the tests that need them are skipped.
"""

import dataclasses
import json
import math
import pathlib
import sys

import numpy as np
import programs
import pytest

from benchmarks.passes import process, worker
from t2t_keras.config import BOS, PAD, ModelConfig, paper

ROOT = pathlib.Path(__file__).parent.parent
PEERS = "the peer is not installed: tests/peers.sh installs it and runs this test"
MODEL = ModelConfig(50, encoder_layers=1, decoder_layers=2, d_model=16, d_ff=24, num_heads=2, d_k=8, d_v=8, dropout=0.0)
TASK = {
    "model": dataclasses.asdict(MODEL), "rows": 3, "length": 7, "dtype": "float32", "device": "cpu", "compile": False,
    "duration": 0,
}  # fmt: skip


def random_weights() -> dict[str, np.ndarray]:
    """Weights of `MODEL` by the names of `train_peers.ours.named_variables`."""
    d_model, d_ff, draw = MODEL.d_model, MODEL.d_ff, np.random.default_rng(3)
    shapes = {"embedding": (MODEL.vocab_size, d_model)}
    for side, layers in (("encoder", MODEL.encoder_layers), ("decoder", MODEL.decoder_layers)):
        for index in range(layers):
            for kind in ("self_attention", "cross_attention")[: 1 + (side == "decoder")]:
                at = f"{side}/{index}/{kind}"
                shapes |= {f"{at}/{name}": (d_model, d_model) for name in ("query", "key", "value", "output")}
                shapes |= {f"{at}/gamma": (d_model,), f"{at}/beta": (d_model,)}
            at = f"{side}/{index}/feed_forward"
            shapes |= {f"{at}/inner": (d_model, d_ff), f"{at}/inner_bias": (d_ff,), f"{at}/gamma": (d_model,)}
            shapes |= {f"{at}/outer": (d_ff, d_model), f"{at}/outer_bias": (d_model,), f"{at}/beta": (d_model,)}
    return {name: draw.normal(0, d_model**-0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def test_the_operations_are_those_that_we_count():
    from t2t_keras.model import flops

    for row, rows, length in (("base", 200, 32), ("big", 7, 90)):
        model = paper.model(row, vocab_size=32_000)
        assert process.operations(model, rows, length) == flops.forward(model, rows, length, length)


def test_the_micro_batch_has_neither_padding_nor_other_special_ids():
    source, target = worker.micro_batch({**TASK, "rows": 200})
    assert source.shape == target.shape == (200, 7) and source.dtype == np.int32
    assert min(source.min(), target.min()) == BOS + 2 and max(source.max(), target.max()) == 49
    assert PAD < BOS and (source != target).any()


def test_the_modules_of_pytorch_have_the_same_loss_and_gradients():
    torch = pytest.importorskip("torch", reason=PEERS)
    from benchmarks.passes import pytorch_pass

    losses, norms, weights = [], [], random_weights()
    for system in ("transformer", "plain"):
        passes = pytorch_pass.Passes({**TASK, "system": system}, *worker.micro_batch(TASK))
        passes.module.load(weights)
        losses += [passes.loss(), passes.loss()]
        gradients = [weight.grad for weight in passes.module.parameters()]
        assert {gradient.dtype for gradient in gradients} == {torch.float32}
        norms.append(math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients)))
        assert sum(passes.attention().values()) == 1 + 2 * 2
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-6)
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


@pytest.mark.medium
def test_the_module_of_flax_has_our_number_of_weights_and_the_smoothed_loss():
    pytest.importorskip("flax", reason=PEERS)
    jax = pytest.importorskip("jax", reason=PEERS)
    from benchmarks.passes import flax_pass, flax_transformer

    passes = flax_pass.Passes({**TASK, "system": "flax", "dtype": "bfloat16"}, *worker.micro_batch(TASK))
    assert passes.loss() == passes.loss() > 0
    weights, gradients = jax.tree.leaves(passes.weights), jax.tree.leaves(passes.gradients)
    # As ours with the normalization before each sub-layer.
    assert sum(weight.size for weight in weights) == dataclasses.replace(MODEL, norm="pre").num_weights
    assert {array.dtype.name for array in (*weights, *gradients)} == {"float32"}
    logits, target = np.log([[[0.1, 0.2, 0.3, 0.4], [0.25] * 4]]), np.array([[3, PAD]])
    expected = -0.9 * math.log(0.4) - 0.1 * sum(map(math.log, (0.1, 0.2, 0.3, 0.4))) / 4
    assert float(flax_transformer.smoothed_loss(logits, target, 0.1)) == pytest.approx(expected, rel=1e-6)


def test_a_measurement_that_fails_is_an_error_in_one_line(tmp_path, monkeypatch):
    worker.main({**TASK, "system": "none"}, tmp_path / "result")
    assert json.loads((tmp_path / "result").read_text()) == {"error": "KeyError: 'none'"}
    task = {**TASK, "system": "none", "config": "base"}
    found = process.measured(task, limit=60)
    assert process.line(task, found) == "none base 3x7: failed: KeyError: 'none'"
    assert process.measured(task, limit=0) == {"error": "no result after 0 s"}
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(process, "ROOT", tmp_path)
    assert process.measured(task, limit=60)["error"].startswith("exit code 1: ")


@pytest.mark.parametrize("argument", ["--shapes=200x32,200", "--shapes=0x32", "--systems=torch", "--configs=huge"])
def test_bad_options_are_refused(argument):
    command = [sys.executable, str(ROOT / "benchmarks/gpu_peers.py"), argument]
    result = programs.run(command, modules=programs.WITHOUT_TENSORFLOW, capture_output=True, text=True)
    assert result.returncode == 1 and "Expected" in result.stderr
