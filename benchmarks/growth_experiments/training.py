"""How training grows: base with V = 32,000 in bfloat16, on batches of random ids without padding."""

import dataclasses
import statistics
import time

from benchmarks.growth_experiments.experiment import Experiment, Panel
from t2t_keras.config import EOS, ModelConfig, RnnConfig, TrainConfig, paper
from t2t_keras.runs.run_options import TRANSFORMER, Options
from t2t_keras.system.machine import peak_memory, resident_memory

BASE = paper.model("base", vocab_size=32_000)
TOKENS, LENGTH = 4096, 32  # Tokens of an update on each side, and length of its sentences, unless they grow.
MICRO_BATCH = 1024  # Tokens of a micro-batch where their number grows.
WARM_UP, UPDATES = 1, 5  # Updates before the measured ones, and the measured ones.


def of_width(d_model: int) -> ModelConfig:
    """Returns base with another width, and with feed-forward networks and the number of heads in proportion."""
    return dataclasses.replace(BASE, d_model=d_model, d_ff=4 * d_model, num_heads=d_model // 64)


def operations(model: ModelConfig, tokens: int, length: int) -> float:
    """Returns the operations of the matrix products of an update."""
    from t2t_keras.model import flops

    return 3 * flops.forward(model, tokens / length, length, length)


def train(
    model: ModelConfig | RnnConfig = BASE,
    tokens: int = TOKENS,
    length: int = LENGTH,
    micro_batch_tokens: int = 0,
    cpu_devices: int = 1,
    dtype: str = "bfloat16",
    architecture: str = TRANSFORMER,
) -> dict:
    """Makes some updates of one batch, with `tokens` on each side in sentences of one `length`. With
    `micro_batch_tokens=0`, an update is one micro-batch.

    Returns `seconds`, the median time of an update, and `bytes`, the peak of the memory without what the process had
    before.
    """
    import numpy as np
    import tensorflow as tf

    from benchmarks.train_peers.ours import start_run
    from t2t_keras.training.train_step import LossScale

    before = resident_memory()
    config = TrainConfig(
        dtype=dtype, batch_tokens=tokens, micro_batch_tokens=micro_batch_tokens or tokens, buckets_per_update=1
    )
    ids = np.random.default_rng(1).integers(EOS + 1, model.vocab_size, [2, tokens // length, length], dtype=np.int32)

    def dataset():
        return tf.data.Dataset.from_tensors({"source": ids[0], "target": ids[1]}).repeat()

    _, _, batches, train_step = start_run(Options(model, config, architecture=architecture), dataset, 1, cpu_devices)
    batches, scale, seconds = iter(batches), LossScale(), []
    for _ in range(WARM_UP + UPDATES):
        started = time.perf_counter()
        metrics, scale = train_step(next(batches), scale)
        float(metrics["loss"])
        seconds.append(time.perf_counter() - started)
    return {"seconds": statistics.median(seconds[WARM_UP:]), "bytes": peak_memory() - before}


def _speed(terms, theory: str) -> Panel:
    return Panel("seconds", "Speed", "target tokens per second", terms, theory, per_second=True)


def _memory(terms, theory: str) -> Panel:
    return Panel("bytes", "Memory", "GiB", terms, theory, scale=2**30)


def _on_the_same_cores(what: str, measure, one: str, **options) -> Experiment:
    speed = _speed(lambda n: (1,), "constant, as the cores are the same")
    memory = _memory(lambda n: (1, n), f"activations + weights and averages of each {one}")
    x_label = f"{what} on the same cores"
    return Experiment(x_label, (1, 2, 4), measure, (speed, memory), lambda n: TOKENS, **options)


EXPERIMENTS = {
    "length": Experiment(
        "length of all sentences",
        (16, 32, 64, 128, 256, 512, 1024),
        lambda length: train(length=length),
        (
            _speed(lambda n: (operations(BASE, TOKENS, n),), "a constant number of operations per second"),
            _memory(lambda n: (1, n), "weights and activations, plus attention weights ∝ length"),
        ),
        lambda n: TOKENS,
    ),
    "width": Experiment(
        "d_model",
        (128, 256, 512, 1024),
        lambda d_model: train(of_width(d_model)),
        (
            _speed(lambda d: (operations(of_width(d), TOKENS, LENGTH),), "a constant number of operations per second"),
            _memory(lambda d: (1, of_width(d).num_weights, d), "constant + ∝ weights + activations ∝ d_model"),
        ),
        lambda d: TOKENS,
    ),
    "accumulation": Experiment(
        f"micro-batches of {MICRO_BATCH:,} tokens in an update",
        (1, 2, 4, 8, 16),
        lambda number: train(tokens=number * MICRO_BATCH, micro_batch_tokens=MICRO_BATCH),
        (
            _speed(lambda k: (1, k), "time of an update = the optimizer's + that of its micro-batches"),
            _memory(lambda k: (1, min(k, 2)), "constant + micro-batches at a time, at most two on a CPU"),
        ),
        lambda k: k * MICRO_BATCH,
    ),
    "devices": _on_the_same_cores(
        "virtual devices", lambda number: train(micro_batch_tokens=TOKENS // number, cpu_devices=number), "device"
    ),
    "processes": _on_the_same_cores(
        "processes", lambda number: train(micro_batch_tokens=TOKENS // number), "process", processes=lambda n: n
    ),
}
