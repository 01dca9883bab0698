"""Measures the training step and a step of the search on a GPU, plain and compiled by XLA: milliseconds, tokens per
second, memory and, of the training step, the share of the chip's peak.

    python benchmarks/gpu.py measure --folder=DIR     # with TensorFlow on this machine
    python benchmarks/gpu.py export --folder=DIR      # writes the compiled training step, with TensorFlow; needs no GPU
    python benchmarks/gpu.py run --folder=DIR         # runs what `export` wrote, on a machine with JAX alone

The models are the paper's base and big ones with 32,000 sub-words, in bfloat16, with dropout and label smoothing. A
micro-batch has sentences of 32 random sub-words on each side, without padding. The peak is the rate of a product of two
matrices of 8192 x 8192 in bfloat16. Each line is also written as JSON to --folder.
"""

import dataclasses
import functools
import gzip
import json
import math
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from absl import app, flags

# `python benchmarks/gpu.py` puts only this folder there.
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from benchmarks.passes.process import operations
from benchmarks.passes.stablehlo import SEED, spelled_out, value_of
from benchmarks.passes.worker import micro_batch
from t2t_keras.config import ModelConfig, paper

_FOLDER = flags.DEFINE_string("folder", "", "Folder of the exported steps and of the results, results.jsonl.")
_MODELS = flags.DEFINE_multi_enum("model", ["base", "big"], ["base", "big"], "Model to measure; may be repeated.")
_TOKENS = flags.DEFINE_multi_integer(
    "tokens", [6250, 12_500], "Tokens of a micro-batch on each side; may be repeated.", lower_bound=1
)
_LENGTH = flags.DEFINE_integer("length", 32, "Sub-words of a sentence.", lower_bound=2)
_DTYPE = flags.DEFINE_enum("dtype", "bfloat16", ["bfloat16", "float32"], "Type of the layers' arithmetic.")
_SECONDS = flags.DEFINE_float("seconds", 3, "Length of each measurement, after the first run.", lower_bound=0)
_SMALL = flags.DEFINE_bool("small", False, "Models of two small layers, to try the script.")
_PLAIN = flags.DEFINE_bool("plain", True, "Whether `measure` also measures the step that XLA does not compile.")

VOCAB_SIZE = 32_000
UPDATE = 4  # Micro-batches of an update.
SEARCHED, BEAMS, POSITIONS = (64, 256), 4, 32  # Sentences of a step of the search, its beams, and tokens in its cache.
RESULTS = "results.jsonl"


def config_of(name: str) -> ModelConfig:
    """Returns the options of the paper's model of a name."""
    small = {"encoder_layers": 1, "decoder_layers": 1, "vocab_size": 1000, "d_ff": 128} if _SMALL.value else {}
    return paper.model(name, **({"vocab_size": VOCAB_SIZE} | small))


def ids_of(rows: int, vocab_size: int) -> dict[str, np.ndarray]:
    """Returns the micro-batch of random ids that `gpu_peers.py` measures."""
    task = {"rows": rows, "length": _LENGTH.value, "model": {"vocab_size": vocab_size}}
    return dict(zip(("source", "target"), micro_batch(task), strict=True))


def operations_of(config: ModelConfig, rows: int) -> int:
    """Returns the floating-point operations of the matrix products of a forward and a backward pass."""
    return 3 * operations(config, rows, _LENGTH.value)


def median_seconds(run: Callable[[], object]) -> tuple[float, float]:
    """Returns the median time of a function that waits for its result, and the time of its first call."""
    started, times = time.perf_counter(), []
    run()
    first = time.perf_counter() - started
    run()
    while sum(times) < _SECONDS.value or len(times) < 5:
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times), first


def report(step: str, model: str, shape: str, tokens: int, seconds: float, **others) -> None:
    """Prints the result of a step that makes so many target tokens, and appends it to the results in --folder."""
    speed = {"ms": round(seconds * 1000, 2), "target_tokens_per_second": round(tokens / seconds)}
    rounded = {name: round(value, 4) for name, value in others.items()}
    text = json.dumps({"step": step, "model": model, "shape": shape, **speed, **rounded})
    print(text, flush=True)
    if _FOLDER.value:
        with (pathlib.Path(_FOLDER.value) / RESULTS).open("a", encoding="utf-8") as file:
            file.write(text + "\n")


def report_pass(step: str, model: str, rows: int, seconds: float, peak: float, operations: float, **others) -> None:
    """Reports forward and backward passes; `peak` is in operations per second."""
    rates = {"tflops": operations / seconds / 1e12, "share_of_peak": operations / seconds / peak}
    shape = f"{rows} x ({_LENGTH.value} + {_LENGTH.value})"
    report(step, model, shape, rows * _LENGTH.value, seconds, **rates, **others)


def shapes() -> list[tuple[str, ModelConfig, int]]:
    """Returns (model, config, rows) of everything to measure."""
    return [
        (name, config_of(name), max(tokens // _LENGTH.value, 1)) for name in _MODELS.value for tokens in _TOKENS.value
    ]


# With TensorFlow.


def make(config: ModelConfig) -> tuple:
    """Makes the model, its optimizer and the options of a run, and the strategy."""
    import keras
    import tensorflow as tf

    from t2t_keras.runs.run_options import Options
    from t2t_keras.training import devices, run

    options = Options.default("transformer")
    train = dataclasses.replace(options.train, dtype=_DTYPE.value, jit_compile="true", length_buckets=1.15)
    options = dataclasses.replace(options, model=config, train=train)
    device = "/gpu:0" if tf.config.list_logical_devices("GPU") else "/cpu:0"
    strategy = devices.MirroredStrategy([device])
    keras.utils.set_random_seed(SEED)
    return strategy, *run._make_model(strategy, options), options


def measure() -> None:
    """Measures micro-batches and whole updates with TensorFlow."""
    import tensorflow as tf

    from benchmarks.passes import search_step
    from t2t_keras.system.tensorflow import share_gpus
    from t2t_keras.training import train_step

    share_gpus()
    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu).get("device_name") for gpu in gpus]
    print(f"TensorFlow {tf.__version__}, {', '.join(map(str, details)) or 'no GPU'}", flush=True)
    size = 1024 if _SMALL.value else 8192
    matrix = tf.cast(tf.random.normal([size, size]), tf.bfloat16)
    product = tf.function(lambda: tf.reduce_sum(tf.cast(tf.matmul(matrix, matrix)[:1], tf.float32)))
    peak = 2 * size**3 / median_seconds(lambda: product().numpy())[0]
    print(f"peak: {peak / 1e12:.1f} TFLOP/s", flush=True)

    def memory() -> float:
        return round(tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**30, 2) if gpus else 0.0

    def reset() -> None:
        if gpus:
            tf.config.experimental.reset_memory_stats("GPU:0")

    for name, config, rows in shapes():
        strategy, model, adam, options = make(config)
        with tf.device("CPU:0"):
            columns = {side: tf.constant(ids) for side, ids in ids_of(rows, config.vocab_size).items()}
        size = operations_of(config, rows)
        for step, gradients_of in steps_of(model, options).items():
            reset()
            seconds, first, loss, norm = measure_step(gradients_of, columns)
            loss /= rows * _LENGTH.value
            others = {"first_s": first, "memory_gib": memory(), "loss": loss, "gradient_norm": norm}
            report_pass(step, name, rows, seconds, peak, size, **others)
        reset()
        batch = {side: tf.tile(ids[None], [UPDATE, 1, 1]) for side, ids in columns.items()}
        spec = {side: tf.TensorSpec([None, None, None], tf.int32) for side in batch}
        update = train_step.make_train_step(strategy, model, adam, options.task, options.train, spec)
        seconds, first = median_seconds(functools.partial(make_update, update, batch))
        step = f"update of {UPDATE} micro-batches"
        report_pass(step, name, UPDATE * rows, seconds, peak, UPDATE * size, first_s=first, memory_gib=memory())
        for sentences in SEARCHED if rows == min(rows for _, _, rows in shapes()) else ():
            steps = search_step.make_steps(model, sentences, BEAMS, POSITIONS, _LENGTH.value)
            for kind, run_step in steps.items():
                reset()
                seconds, first = median_seconds(run_step)
                shape = f"{sentences} x {BEAMS} beams, {POSITIONS} tokens in the cache"
                report(f"search, {kind}", name, shape, sentences, seconds, first_s=first, memory_gib=memory())


def steps_of(model, options) -> dict[str, Callable]:
    """Returns the functions that compute the gradients of a micro-batch, by name."""
    from t2t_keras.training import train_step

    steps = {"compiled": train_step.make_compiled_gradients(model, options.task, options.train)}
    if _PLAIN.value:
        steps["plain"] = functools.partial(train_step.micro_batch_gradients, model, options.task, options.train)
    return steps


def measure_step(gradients_of: Callable, columns: dict) -> tuple[float, float, float, float]:
    """Returns the median time of a micro-batch, that of the first one, the loss and the norm of the gradient."""
    import tensorflow as tf

    @tf.function(autograph=False)
    def step():
        gradients, sums = gradients_of(columns, step=0, micro_batch=0, replica=0, scale=tf.constant(1.0))
        return gradients, sums["loss"]

    seconds, first = median_seconds(lambda: step()[1].numpy())
    gradients, loss = step()
    return seconds, first, float(loss), float(tf.linalg.global_norm(gradients))


def make_update(update: Callable, batch: dict) -> None:
    """Makes an update, and waits for it."""
    import tensorflow as tf

    from t2t_keras.training.train_step import LossScale

    metrics, _ = update(batch, LossScale(tf.constant(1.0), tf.constant(0.0)), tf.constant(True))
    float(metrics["loss"])


# The two halves.


def export() -> None:
    """Writes the compiled step of each shape as StableHLO, and its inputs and results on a CPU as JSON."""
    import tensorflow as tf

    from t2t_keras.training import train_step

    for name, config, rows in shapes():
        _, model, _, options = make(config)
        program = train_step.make_program(model, options.task, options.train)
        weights = [
            {"shape": list(weight.shape), "mean": round(float(tf.reduce_mean(weight.value))),
             "deviation": float(tf.math.reduce_std(weight.value))}
            for weight in model.trainable_variables
        ]  # fmt: skip
        seeds = [
            {"value": seed.numpy().tolist(), "dtype": "int64"}
            for _, seed in train_step.dropout_seeds(model, SEED, *map(tf.constant, (0, 0, 0)))
        ]
        sides = [{"shape": [rows, _LENGTH.value], "below": config.vocab_size}] * 2
        inputs = [*weights, *seeds, *sides, {"value": 1.0, "dtype": "float32"}]
        values = [tf.constant(value_of(spec, index)) for index, spec in enumerate(inputs)]
        number = len(weights) + len(seeds)
        columns = {"source": values[number], "target": values[number + 1]}
        arguments = values[: len(weights)], [], values[len(weights) : number], columns, values[-1]
        text = program.experimental_get_compiler_ir(*arguments)(stage="stablehlo")
        gradients, sums = program(*arguments)
        place = pathlib.Path(_FOLDER.value) / f"{name}-{rows}"
        place.with_suffix(".mlir.gz").write_bytes(gzip.compress(spelled_out(text).encode(), mtime=0))
        found = {"loss": float(sums["loss"]), "gradient_norm": float(tf.linalg.global_norm(gradients))}
        description = {"model": name, "rows": rows, "operations": operations_of(config, rows), "inputs": inputs}
        description |= found | {"sums": sorted(sums)}
        place.with_suffix(".json").write_text(json.dumps(description), encoding="utf-8")
        print(f"{place}: loss {description['loss']:.2f}, gradient norm {description['gradient_norm']:.4f}", flush=True)


def run() -> None:
    """Runs the exported steps on this machine's first device, with JAX alone."""
    import jax
    import jax.numpy as jnp
    from jax._src.lib import xla_client
    from jax.extend.backend import get_backend

    jax.config.update("jax_enable_x64", True)  # Seeds have 64 bits.
    device = jax.devices()[0]
    print(f"JAX {jax.__version__}, {device.device_kind}", flush=True)
    size = 8192 if device.platform == "gpu" else 1024
    matrix = jax.random.normal(jax.random.key(0), (size, size), jnp.bfloat16)
    product = jax.jit(lambda matrix: matrix @ matrix)
    peak = 2 * size**3 / median_seconds(lambda: product(matrix).block_until_ready())[0]
    print(f"peak: {peak / 1e12:.1f} TFLOP/s", flush=True)
    paths = sorted(pathlib.Path(_FOLDER.value).glob("*.mlir.gz"))
    if not paths:
        raise app.UsageError(f"Expected steps that `export` wrote, in {_FOLDER.value}. Received: none.")
    for path in paths:
        of_step = json.loads(path.with_suffix("").with_suffix(".json").read_text(encoding="utf-8"))
        program = gzip.decompress(path.read_bytes())
        started = time.perf_counter()
        here = xla_client.DeviceList((device,))
        executable = get_backend().compile_and_load(program, here, xla_client.CompileOptions())
        compiling = time.perf_counter() - started
        inputs = [jax.device_put(value_of(spec, index), device) for index, spec in enumerate(of_step["inputs"])]

        def outputs(executable=executable, inputs=inputs) -> list:
            found = executable.execute_sharded(inputs).disassemble_into_single_device_arrays()
            arrays = [array for (array,) in found]
            jax.block_until_ready(arrays)
            return arrays

        seconds, _ = median_seconds(outputs)
        number = len(of_step["sums"])
        *gradients, loss = [*outputs()[:-number], outputs()[-number + of_step["sums"].index("loss")]]
        norm = math.sqrt(sum(float(jnp.sum(jnp.square(gradient.astype(jnp.float64)))) for gradient in gradients))
        memory = (device.memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**30
        report_pass(
            "StableHLO of TensorFlow", of_step["model"], of_step["rows"], seconds, peak, of_step["operations"],
            first_s=compiling, memory_gib=memory, loss=float(loss), loss_on_a_cpu=of_step["loss"],
            gradient_norm=norm, gradient_norm_on_a_cpu=of_step["gradient_norm"],
        )  # fmt: skip


def main(arguments: list[str]) -> None:
    """Runs one of the three commands."""
    commands = {"measure": measure, "export": export, "run": run}
    if len(arguments) != 2 or arguments[1] not in commands:
        raise app.UsageError(f"Expected one of {', '.join(commands)}. Received: {' '.join(arguments[1:]) or 'none'}.")
    if arguments[1] != "measure" and not _FOLDER.value:
        raise app.UsageError(f"`{arguments[1]}` needs --folder.")
    if _FOLDER.value:
        pathlib.Path(_FOLDER.value).mkdir(parents=True, exist_ok=True)
    commands[arguments[1]]()


if __name__ == "__main__":
    app.run(main)
