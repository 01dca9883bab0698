"""The process of one measurement of `benchmarks/gpu_peers.py`: forward and backward passes over a micro-batch."""

import importlib
import json
import pathlib
import statistics
import sys
import time

import numpy as np

from t2t_keras.config import EOS
from t2t_keras.system.machine import peak_memory

MODULES = {
    "transformer": "benchmarks.passes.pytorch_pass",
    "plain": "benchmarks.passes.pytorch_pass",
    "flax": "benchmarks.passes.flax_pass",
}
SEED = 1  # Of the ids.
# A time is that of so many passes, which the device makes without waiting for Python.
PASSES = 4
WARM_UP, MEASUREMENTS = 3, 10  # Passes that are not measured, after the first; and the fewest times.


def micro_batch(task: dict) -> tuple[np.ndarray, np.ndarray]:
    """Returns random ids without padding: source [R, L] and target [R, L], int32."""
    shape = (2, task["rows"], task["length"])
    source, target = np.random.default_rng(SEED).integers(EOS + 1, task["model"]["vocab_size"], shape, np.int32)
    return source, target


def measure(task: dict) -> dict:
    """Makes the passes of a system.

    Args:
        task: the `system`, a key of `MODULES`; the options of its `model`; the number of `rows` and their `length`; the
            `dtype` of the activations; the `device`: cuda, cpu or auto; whether to `compile`, which Flax always does;
            and the `duration` of the measurements in seconds.

    Returns:
        The median `seconds` of a pass, those of the `first_pass`, which compiles, and the `peak_bytes`: of the GPU, or
        of the process on a CPU. The `loss` per token, the `device`, the `version`, and the `attention` functions, if
        they are known.
    """
    passes = importlib.import_module(MODULES[task["system"]]).Passes(task, *micro_batch(task))
    started = time.perf_counter()
    loss = passes.loss()
    first_pass = time.perf_counter() - started
    for _ in range(WARM_UP):
        passes.loss()
    peak_bytes = passes.peak_bytes() or peak_memory()
    times = []
    while len(times) < MEASUREMENTS or sum(times) < task["duration"]:
        times.append(passes.seconds(PASSES))
    return {
        "seconds": statistics.median(times) / PASSES,
        "first_pass": first_pass,
        "peak_bytes": peak_bytes,
        "loss": loss / (task["rows"] * task["length"]),
        "device": passes.device_name(),
        "version": passes.version,
        "attention": passes.attention(),
    }


def main(task: dict, file: pathlib.Path) -> None:
    """Writes the result of a measurement, or its error in one line, to a file."""
    try:
        result = measure(task)
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    file.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), pathlib.Path(sys.argv[2]))
