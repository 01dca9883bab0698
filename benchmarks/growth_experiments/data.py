"""How the data pipeline grows with the number of pairs, and resuming with the size of the checkpoint."""

import pathlib
import tempfile
import time

from benchmarks.growth_experiments.experiment import Experiment, Panel
from benchmarks.growth_experiments.training import of_width
from t2t_keras.system.machine import peak_memory, resident_memory

SEED = 1
VOCAB_SIZE = 800
BATCH_TOKENS = 25_000


def prepare(pairs: int) -> dict:
    """Prepares the built-in corpus, text to shards, then reads an epoch of batches from the shards. Returns
    `prepare_seconds`, `batch_seconds`, and `bytes`, the peak of the memory without what the process had before.
    """
    import tensorflow as tf

    from t2t_keras.config import DataConfig
    from t2t_keras.data import batching
    from t2t_keras.data.prepare import Preparation
    from t2t_keras.runs import registry

    before = resident_memory()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "data"
        started = time.perf_counter()
        data = DataConfig(dataset="builtin", builtin_pairs=pairs)
        Preparation(data, VOCAB_SIZE, SEED, folder, registry.task("translation")).run()
        prepared = time.perf_counter() - started
        started = time.perf_counter()
        for batch in batching.batches(folder / "train", batch_tokens=BATCH_TOKENS, seed=SEED, epochs=1):
            tf.size(batch["source"])
        batched = time.perf_counter() - started
    return {"prepare_seconds": prepared, "batch_seconds": batched, "bytes": peak_memory() - before}


def resume(d_model: int) -> dict:
    """Writes a checkpoint of base with another width, then reads it into the model and the optimizer, as a run that
    resumes. Returns `write_seconds`, `read_seconds`, and `file_bytes`, the size of the checkpoint.
    """
    from t2t_keras.config import TrainConfig
    from t2t_keras.runs import checkpoint
    from t2t_keras.runs.run_options import Options
    from t2t_keras.training import devices, run

    model, adam = run._make_model(devices.make_strategy(), Options(of_width(d_model), TrainConfig()))
    with tempfile.TemporaryDirectory() as name:
        path = checkpoint.path_of(pathlib.Path(name), 1)
        started = time.perf_counter()
        checkpoint.write(path, model, adam, {})
        written = time.perf_counter()
        checkpoint.restore(path, model, adam)
        return {
            "write_seconds": written - started,
            "read_seconds": time.perf_counter() - written,
            "file_bytes": path.stat().st_size,
        }


def _of_checkpoint(quantity: str, title: str) -> Panel:
    # Weights and Adam's two averages, in float32.
    return Panel(quantity, title, "seconds", lambda d: (12 * of_width(d).num_weights,), "∝ size of the checkpoint")


EXPERIMENTS = {
    "pairs": Experiment(
        "pairs of the corpus",
        (10_000, 100_000, 1_000_000, 10_000_000),
        prepare,
        (
            Panel("prepare_seconds", "Preparing", "seconds", lambda n: (1, n), "constant + ∝ pairs"),
            Panel("batch_seconds", "Batching an epoch", "seconds", lambda n: (1, n), "constant + ∝ pairs"),
            Panel(
                "bytes",
                "Memory of both",
                "GiB",
                lambda n: (1, min(n, 1_000_000)),
                "constant + two windows of 500,000 pairs",
                scale=2**30,
            ),
        ),
    ),
    "checkpoint": Experiment(
        "d_model of base with another width",
        (128, 256, 512, 1024),
        resume,
        (
            _of_checkpoint("write_seconds", "Writing a checkpoint"),
            _of_checkpoint("read_seconds", "Reading it to resume"),
        ),
    ),
}
