"""Runs a measurement in a process of its own, and counts the operations of its matrix products."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from t2t_keras.config import ModelConfig

ROOT = pathlib.Path(__file__).parent.parent.parent


def process_environment(**variables: str) -> dict[str, str]:
    """Returns the variables of a process that imports from this checkout: those of this process, and others."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **variables}


def end(process: subprocess.Popen) -> None:
    """Kills a process that leads a session, and all its children, such as those of PyTorch's compiler."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def progress(text: str) -> None:
    """Prints a line on stderr, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def operations(config: ModelConfig, rows: int, length: int) -> int:
    """Counts the operations of the matrix products of a forward pass over rows with a `length` of source and target, as
    `model.flops.forward` does, which needs Keras. The heads are d_model / num_heads wide.
    """
    projections, scores = 8 * config.d_model**2, 4 * length * config.d_model  # For one token in one attention.
    feed_forward = 4 * config.d_model * config.d_ff
    encoder = config.encoder_layers * (projections + scores + feed_forward)
    decoder = config.decoder_layers * (2 * (projections + scores) + feed_forward)
    return rows * length * (encoder + decoder + 2 * config.d_model * config.vocab_size)


def measured(task: dict, limit: float) -> dict:
    """Returns the result of a measurement in a process of its own, see `worker.measure`, or {"error": …}. It is given
    up after `limit` seconds.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        result, log = folder / "result.json", folder / "log"
        # A cold cache, so that the time to the first result has all of the compilation.
        environment = process_environment(TORCHINDUCTOR_CACHE_DIR=str(folder / "inductor"))
        command = [sys.executable, "-m", "benchmarks.passes.worker", json.dumps(task), str(result)]
        with log.open("w") as file:
            process = subprocess.Popen(
                command, env=environment, cwd=ROOT, stdout=file, stderr=file, start_new_session=True
            )
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            return {"error": f"no result after {limit:.0f} s"}
        finally:
            end(process)
        if result.exists():
            return json.loads(result.read_text(encoding="utf-8"))
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        return {"error": f"exit code {process.returncode}: {' '.join(last)[-300:]}"}


def line(task: dict, found: dict) -> str:
    """Returns the line of a measurement."""
    name = f"{task['system']} {task['config']} {task['rows']}x{task['length']}"
    if "error" in found:
        return f"{name}: failed: {found['error']}"
    calls = ", ".join(f"{count} {function}" for function, count in found["attention"].items())
    return (
        f"{name}: {1000 * found['seconds']:.2f} ms, {found['tokens_per_second']:,.0f} target tokens/s, "
        f"{found['flops_per_second'] / 1e12:.2f} TFLOP/s, first result after {found['first_pass']:.1f} s, "
        f"{found['peak_bytes'] / 2**30:.2f} GiB, loss {found['loss']:.3f} per token; {found['device']}, "
        f"{found['version']}{', calls ' if calls else ''}{calls}"
    )
