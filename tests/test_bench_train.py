"""The comparison of training speed is fair: same batches, same losses, our own step, and ratios of what was measured
together.

`tests/peers.sh` installs the peers and runs these tests with them; elsewhere those that need them are skipped.
"""

import dataclasses
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import types

import keras
import numpy as np
import programs
import pytest
import toy

from benchmarks.train_peers import batches, ceiling, comparison, contestants, ours, results, worker
from t2t_keras.config import EOS, PAD, ModelConfig, TrainConfig
from t2t_keras.data import batching, shards
from t2t_keras.model.transformer import Transformer
from t2t_keras.runs.run_options import Options
from t2t_keras.training import devices, loop, run
from t2t_keras.training.train_step import LossScale

ROOT = pathlib.Path(__file__).parent.parent
PEERS = "the peer is not installed: tests/peers.sh installs it and runs this test"
MODEL = ModelConfig(50, encoder_layers=1, decoder_layers=2, d_model=16, d_ff=24, num_heads=2, d_k=8, d_v=8, dropout=0.0)
TRAIN = TrainConfig(batch_tokens=120, buckets_per_update=2, micro_batch_tokens=40, warmup_steps=6, seed=batches.SEED)
UPDATES = 3


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> pathlib.Path:
    """Shards of some pairs of unequal lengths."""
    folder, draw = tmp_path_factory.mktemp("pairs"), np.random.default_rng(5)
    lengths = (draw.integers(2, 14, 2) for _ in range(200))
    written = [[np.append(draw.integers(EOS + 1, 50, length), EOS) for length in both] for both in lengths]
    shards.write(folder, written, count=200, vocab_size=50, seed=0)
    return folder


@pytest.fixture(scope="module")
def task(pairs, tmp_path_factory) -> dict:
    """A task whose updates have several micro-batches, with the initial weights."""
    folder = tmp_path_factory.mktemp("task")
    keras.utils.set_random_seed(2)
    variables = ours.named_variables(Transformer(MODEL))
    np.savez(folder / "weights.npz", **{name: variable.numpy() for name, variable in variables.items()})
    written = batches.write_batches(folder / "batches.npz", pairs, TRAIN, UPDATES)
    weights = str(folder / "weights.npz")
    return {**written, "model": vars(MODEL), "train": vars(TRAIN), "weights": weights, "threads": 1, "options": {}}


# The batches.


def test_micro_batches_have_the_pairs_of_the_buckets_and_no_empty_rows_or_columns(task):
    def rows(source, target):
        return [(tuple(a[a != PAD]), tuple(b[b != PAD])) for a, b in zip(source, target, strict=True)]

    updates = worker.read_updates(task)
    assert max(map(len, updates)) > task["buckets_per_update"] == 2
    with np.load(task["batches"]) as arrays:
        for number, update in enumerate(updates):
            expected = [arrays[f"bucket/{2 * number + index}/{side}"] for index in range(2) for side in shards.SIDES]
            found = sorted(row for part in update for row in rows(*part))
            assert found == sorted(rows(*expected[:2]) + rows(*expected[2:]))
            for part in update:
                assert all((ids != PAD).any(axis=axis).all() for ids in part for axis in (0, 1))
                assert all(ids.size <= TRAIN.micro_batch_tokens for ids in part)
    assert task["positions"] == max(ids.shape[1] for update in updates for part in update for ids in part)


@pytest.mark.medium
def test_our_contestant_makes_the_updates_of_the_product(task, pairs):
    model = dataclasses.replace(MODEL, encoder_layers=1, decoder_layers=1, dropout=0.3)
    make_updates = ours.start({**task, "model": vars(model), "weights": ""})
    measured = make_updates([0, 1, 2, 0])
    strategy = devices.make_strategy()
    keras.utils.set_random_seed(TRAIN.seed)
    product, adam = run._make_model(strategy, Options(model, TRAIN))
    read = loop._make_batches(strategy, TRAIN, pairs, batching.START, None)
    step = loop._make_train_step(strategy, product, adam, toy.TASK, TRAIN, read.element_spec)
    scale, losses = LossScale(), []
    for _, batch in zip(range(UPDATES), read, strict=False):
        metrics, scale = step({side: batch[side] for side in shards.SIDES}, scale)
        losses.append(float(metrics["smoothed_loss"] / metrics["target_tokens"]))
    assert measured["losses"][:UPDATES] == pytest.approx(losses, rel=1e-6)
    assert measured["losses"][UPDATES] != pytest.approx(losses[0], rel=1e-3), "the weights have changed"
    tokens, operations = batches.count({**task, "model": vars(model)})
    assert measured["target_tokens"][:UPDATES] == tokens
    assert measured["flops"][:UPDATES] == pytest.approx(operations, rel=1e-6)
    with pytest.raises(ValueError, match="Expected update 1.*Received: 2"):
        make_updates([2])


# The peers.


@pytest.fixture(scope="module")
def our_losses(task) -> list[float]:
    return ours.start(task)([0, 1, 2] * 4)["losses"]


@pytest.mark.parametrize("model", ["plain", "nn.Transformer", "marian", "joey"])
def test_the_modules_of_pytorch_have_our_losses(task, request, model):
    pytest.importorskip("torch", reason=PEERS)
    pytest.importorskip({"marian": "transformers", "joey": "joeynmt"}.get(model, "torch"), reason=PEERS)
    from benchmarks.train_peers import pytorch

    our_losses = request.getfixturevalue("our_losses")
    losses = pytorch.start({**task, "options": {"model": model}})([0, 1, 2] * 4)["losses"]
    assert comparison.largest_difference(losses, our_losses) < 1e-4
    assert our_losses[-1] < 0.95 * our_losses[2], "the rates are high enough to matter"


def test_the_layers_of_keras_hub_have_our_losses(pairs, tmp_path, task):
    pytest.importorskip("keras_hub", reason=PEERS)
    from benchmarks.train_peers import keras_hub_fit

    train = dataclasses.replace(TRAIN, micro_batch_tokens=120)
    task = {**task, **batches.write_batches(tmp_path / "batches.npz", pairs, train, UPDATES), "train": vars(train)}
    assert task["micro_batches"] == [2] * UPDATES
    losses, expected = (module.start(task)([0, 1, 2] * 4)["losses"] for module in (keras_hub_fit, ours))
    assert comparison.largest_difference(losses, expected) < 1e-4


def test_a_peer_has_the_dropout_of_the_model_and_no_other(task):
    torch = pytest.importorskip("torch", reason=PEERS)
    from benchmarks.train_peers import pytorch

    model = dataclasses.replace(MODEL, dropout=0.25)
    module = pytorch.BuiltIn(model, 20, torch.float32)
    for layer in (*module.transformer.encoder.layers, *module.transformer.decoder.layers):
        assert (layer.dropout.p, layer.self_attn.dropout) == (0, 0)
        assert layer.dropout1.p == layer.dropout2.p == 0.25
    assert module.embedding.dropout.p == 0.25


def test_a_loss_that_is_not_finite_differs_infinitely():
    assert comparison.largest_difference([1.0, 2.2], [1.0, 2.0]) == pytest.approx(0.1)
    assert comparison.largest_difference([1.0, float("nan")], [1.0, 2.0]) == float("inf")


# Processes and rounds.


def test_a_worker_answers_each_request_with_time_memory_and_its_result(monkeypatch):

    def start(task):
        return lambda updates: {"losses": [task["loss"] + index for index in updates]}

    monkeypatch.setitem(sys.modules, "benchmarks.train_peers.fake", types.SimpleNamespace(start=start))
    answers = io.StringIO()
    worker.serve({"module": "fake", "loss": 5}, ["[0, 1]\n", "[7]\n"], answers)
    first, second = map(json.loads, answers.getvalue().splitlines())
    assert (first["losses"], second["losses"]) == ([5, 6], [12])
    assert first["seconds"] >= 0 and 10 * 2**20 < first["peak_bytes"] <= second["peak_bytes"]


def test_a_contestant_is_stopped_between_requests_and_says_why_it_failed(monkeypatch, tmp_path):
    folder = tmp_path / "benchmarks/train_peers"
    folder.mkdir(parents=True)
    (folder / "fake.py").write_text(
        "import os\n\ndef start(task):\n    print('noise')\n"
        "    return lambda updates: {'third': [0, 1, 2][updates[0]]}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # Another part of the same package.
    process = contestants.Process(contestants.Contestant("a fake", "fake", environment={"OWN": "yes"}), {}, tmp_path)
    try:
        assert process.run([2])["third"] == 2
        # It is empty until the process has started.
        assert b"OWN=yes" in pathlib.Path(f"/proc/{process._process.pid}/environ").read_bytes()
        status = pathlib.Path(f"/proc/{process._process.pid}/status")
        assert process.run([1])["third"] == 1
        deadline = time.monotonic() + 30
        while "T (stopped)" not in status.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert not process.failed
        with pytest.raises(contestants.ContestantError, match="a fake failed: .*list index out of range"):
            process.run([3])
        assert process.failed
    finally:
        process.close()
    assert not pathlib.Path(f"/proc/{process._process.pid}").exists()


def test_each_peer_is_measured_in_turns_with_us_and_a_failure_does_not_end_the_others(monkeypatch, tmp_path):
    asked = []

    class Fake:
        started = 0.0

        def __init__(self, contestant, task, folder):
            self.name, self.failed = contestant.name, False

        def run(self, updates):
            asked.append((self.name, updates))
            if self.name == "broken":
                raise contestants.ContestantError("broken failed: no memory")
            return {"seconds": float(len(asked)), "peak_bytes": len(asked), "rate": 100.0}

        def close(self):
            asked.append((self.name, "closed"))

    monkeypatch.setattr(comparison, "Process", Fake)
    peers = [contestants.Contestant(name, "") for name in ("first", "broken", "last")]
    found = comparison.measure(peers, [contestants.Contestant("ceiling", "")], {"updates": 2}, 2, tmp_path)
    order = [name for name, updates in asked if updates == [0, 1]]
    assert order == ["t2t_keras", "first", "first", "t2t_keras", "t2t_keras", "last", "last", "t2t_keras"]
    assert found["peers"]["broken"] == {"error": "broken failed: no memory"}
    places = {number: name for number, (name, updates) in enumerate(asked, 1) if updates == [0, 1]}
    for name in ("first", "last"):
        for ceiling_rate, own, its in found["peers"][name]["rounds"]:
            assert (ceiling_rate, places[own], places[its], abs(own - its)) == (100.0, "t2t_keras", name, 1)
    closed = [name for name, updates in asked if updates == "closed"]
    assert closed == ["first", "broken", "last", "t2t_keras", "ceiling"]


def test_the_ceiling_is_the_rate_of_the_best_product():
    slow, fast = (lambda: sum(range(200_000))), (lambda: None)
    assert ceiling.best_rate([(1e3, slow), (1e6, fast)], 0.01) > 10 * ceiling.best_rate([(1e3, slow)], 0.01)


# The results.

# Rounds of (ceiling, our seconds, its seconds): the machine slows down in the second one.
FOUND = {
    "ours": {"first_step": 9.0, "peak_bytes": 2 * 2**30},
    "peers": {"quick": {"first_step": 4.0, "peak_bytes": 5 * 2**30,
                        "rounds": [(100.0, 1.0, 2.0), (50.0, 2.0, 6.0), (100.0, 1.0, 2.5)]},
              "slow": {"first_step": 5.0, "peak_bytes": 2**30,
                       "rounds": [(100.0, 1.0, 4.0), (100.0, 1.0, 3.0), (100.0, 2.0, 8.0)]},
              "broken": {"error": "no memory"}},
}  # fmt: skip


def test_ratios_and_shares_of_the_ceiling_are_medians_over_rounds():
    found = results.summary(FOUND, tokens=600, operations=80.0)
    assert found["peers"]["quick"]["ratio"] == 2.5, "of 2, 3 and 2.5; the ratio of the medians would be 2.5 / 1 too"
    assert found["peers"]["slow"]["ratio"] == 4.0
    assert (found["fastest_peer"], found["ratio"], found["memory_ratio"]) == ("quick", 2.5, 0.4)
    assert found["ceiling_share"] == found["ours"]["ceiling_share"] == 0.8, "80 operations in 1 s of 100, 2 s of 50"
    assert found["peers"]["quick"]["ceiling_share"] == pytest.approx(80 / 2.5 / 100)
    assert [found["ours"][name] for name in ("tokens_per_second", "slowest", "fastest")] == [600, 300, 600]
    assert found["peers"]["quick"]["tokens_per_second"] == 240
    assert (found["peers"]["quick"]["ours_beside"], found["peers"]["slow"]["ours_beside"]) == (600, 600)
    assert found["peers"]["broken"] == {"error": "no memory"}
    json.dumps(found)


def test_without_a_peer_there_are_our_results_and_no_ratio():
    peers = {"t2t_keras": {"rounds": [(100.0, 1.0, 1.0)]}, "broken": {"error": "no memory"}}
    found = results.summary({"ours": FOUND["ours"], "peers": peers}, tokens=600, operations=80.0)
    assert (found["ratio"], found["fastest_peer"], found["ceiling_share"]) == (None, None, 0.8)
    assert list(found["peers"]) == ["broken"]


def test_the_table_has_the_fastest_first_and_says_what_was_not_measured():
    found = results.summary(FOUND, tokens=6_000, operations=80.0)
    found["peers"]["quick"]["difference"] = 2e-6
    head, line, *rows = results.table(found).splitlines()
    assert {text.count("|") for text in (head, line, *rows[:3])} == {9}
    assert [row.split("|")[1].strip() for row in rows[:3]] == ["t2t_keras", "quick", "slow"]
    assert rows[1] == "| quick | 2,400 (1,000 to 3,000) | 6,000 | 2.50 | 5.00 | 4.0 | 32% | 2e-06 |"
    assert rows[-1] == "Not measured: broken: no memory"


# The program.


def program(*arguments: str, **variables: str) -> subprocess.CompletedProcess:
    options = {"modules": programs.WITHOUT_TENSORFLOW, "capture_output": True, "text": True, "cwd": ROOT}
    command = [sys.executable, str(ROOT / "benchmarks/train.py"), *arguments]
    return programs.run(command, env={**os.environ, **variables}, **options)


@pytest.mark.parametrize(("argument", "message"), [
    ("--contestants=Sockeye", "Expected --contestants among PyTorch plain .eager.; .*Received: Sockeye"),
    ("--python=KerasHub", "Expected --python=NAME=PATH.*Received: KerasHub"),
    (f"--python=Jeoy={sys.executable}", "Expected --python=NAME=PATH.*Received: Jeoy="),
    (f"--python=={sys.executable}", "Expected --python=NAME=PATH.*Received: ="),
])  # fmt: skip
def test_bad_options_are_refused_in_a_sentence(argument, message):
    result = program(argument)
    [said] = result.stderr.splitlines()
    assert result.returncode == 1 and re.search(message, said), said


def test_the_layers_asked_for_are_of_both_stacks_and_an_update_is_three_forward_passes():
    """The backward pass has twice the products of the forward pass."""
    code = """
import json, pathlib, sys
from types import SimpleNamespace
from benchmarks import train as program
batches = SimpleNamespace(
    write_batches=lambda *_: {"buckets_per_update": 1, "micro_batches": [1]}, count=lambda task: ([30, 40], [5.0, 6.0])
)
comparison = SimpleNamespace(progress=print, measure=lambda *_: None)
sys.modules |= {"benchmarks.train_peers.batches": batches, "benchmarks.train_peers.comparison": comparison}
program.flags.FLAGS(["train.py", "--layers=2"])
program.versions = lambda python: {}
program.write_pairs = lambda folder, model: (folder, "pairs")
program.summary = lambda found, tokens, operations: {"peers": {}, "tokens": tokens, "operations": operations}
print(json.dumps(program.compare(pathlib.Path())))
"""
    command = [sys.executable, "-c", code]
    result = programs.run(
        command, modules=programs.WITHOUT_TENSORFLOW, capture_output=True, text=True, cwd=ROOT, check=True
    )
    found = json.loads(result.stdout.splitlines()[-1])
    assert (found["tokens"], found["operations"]) == (70, 33)
    assert [found["settings"]["model"][name] for name in ("encoder_layers", "decoder_layers")] == [2, 2]


@pytest.mark.slow
def test_a_small_comparison_has_all_keys_and_names_peers_that_are_missing():
    small = [
        "--config=multi30k", "--layers=1", "--batch_tokens=300", "--updates=2", "--rounds=2", "--check_updates=4",
        "--json",
    ]  # fmt: skip
    result = program(*small)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert {"ours", "peers", "ratio", "ceiling_share"} <= found.keys()
    assert 0 < found["ceiling_share"] < 1 and found["ours"]["tokens_per_second"] > 0
    assert found["peers"].keys() == {peer.name for peer in contestants.PEERS}
    for name, peer in found["peers"].items():
        assert "tokens_per_second" in peer or "pip install" in peer["error"], (name, peer)
    assert "stands in for Multi30k" in found["settings"]["corpus"]
