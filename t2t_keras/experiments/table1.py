"""Measures Table 1 (section 4): time, memory, sequential operations and path lengths of layer types against the
sequence length n.

Each layer maps n vectors of width d to n vectors of width d, for one sequence, and is run forward and backward:
gradients by its inputs and its weights. The paper's complexity of self-attention leaves out the projections, whose
O(n · d²) all layers of width d have. So the attention functions are measured alone, and with their projections as
further lines.

Time: the median of some rounds. A round visits all lengths and all layers, one after the other, so that a busy machine
slows down all of them. Memory: the peak of the resident memory minus what a short sequence needs, in a process for each
layer (Linux only). Sequential operations: the longest chain of matrix products in the graph of the forward pass. Path
lengths: see `path_length`.
"""

import dataclasses
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

from t2t_keras.layers.attention import MultiHeadAttention, scaled_dot_product_attention
from t2t_keras.layers.restricted_attention import RestrictedSelfAttention, restricted_attention
from t2t_keras.reporting import figures
from t2t_keras.system import markdown
from t2t_keras.system.files import read_json, write_whole
from t2t_keras.system.log import logger
from t2t_keras.system.machine import cpu, peak_memory, resident_memory

_SHORTEST = 0.05  # Seconds of a measurement; faster calls are repeated.
_SHORT = 8  # Sequence length of a step before the measurements.
_COUNTED = 32  # Sequence length at which sequential operations are counted; recurrent layers are unrolled.
_SHOWN = 1024  # Sequence length of the path lengths in the table.
_PRODUCTS = ("MatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "DepthwiseConv2dNative", "Einsum")
# The program of the process that measures memory, of layers in a module.
_WORK = "import sys; from t2t_keras.experiments import {0}, table1; table1.work(sys.argv[1], {0}.LAYERS)"


@dataclasses.dataclass(frozen=True)
class Settings:
    """What determines the measurements.

    Attributes:
        d: width of the layers.
        heads: number of attention heads; it divides `d`.
        window: neighborhood of restricted self-attention, r; at least 2.
        kernel: kernel width of convolutions, k; odd.
    """

    d: int = 512
    heads: int = 8
    window: int = 64
    kernel: int = 3

    def __post_init__(self):
        if self.d % self.heads:
            raise ValueError(f"Expected `d` to be a multiple of `heads`. Received: d={self.d}, heads={self.heads}.")
        if not self.kernel % 2:
            raise ValueError(f"Expected `kernel` to be odd. Received: kernel={self.kernel}.")

    def __str__(self) -> str:
        return f"d = {self.d}, {self.heads} heads, r = {self.window}, k = {self.kernel}"


# The layers. Each maker returns a function (input tensors) → output, and the shapes of its inputs.


def _attention(settings: Settings, length: int, unroll: bool):
    return scaled_dot_product_attention, [(1, settings.heads, length, settings.d // settings.heads)] * 3


def _restricted(settings: Settings, length: int, unroll: bool):
    _, shapes = _attention(settings, length, unroll)
    return lambda q, k, v: restricted_attention(q, k, v, settings.window), shapes


def _layer(make: Callable) -> Callable:
    """Returns a maker for a Keras layer: `make` maps the settings and whether to unroll loops to the layer."""

    def maker(settings: Settings, length: int, unroll: bool):
        layer, shape = make(settings, unroll), (1, length, settings.d)
        layer.build(shape)
        return layer, [shape]

    return maker


def _multi_head(settings: Settings, unroll: bool):
    return MultiHeadAttention(settings.heads, settings.d // settings.heads, settings.d // settings.heads)


def _restricted_multi_head(settings: Settings, unroll: bool):
    width = settings.d // settings.heads
    return RestrictedSelfAttention(settings.heads, width, width, window=settings.window)


def _recurrent(settings: Settings, unroll: bool):
    return keras.layers.LSTM(settings.d, return_sequences=True, unroll=unroll)


def _convolutional(settings: Settings, unroll: bool):
    return keras.layers.Conv1D(settings.d, settings.kernel, padding="same")


def _separable(settings: Settings, unroll: bool):
    return keras.layers.SeparableConv1D(settings.d, settings.kernel, padding="same")


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer type.

    Attributes:
        name: the paper's name, and what is measured.
        make: see above.
        complexity, sequential, path: the paper's O(·): Table 1, or section 4 for separable convolutions.
    """

    name: str
    make: Callable
    complexity: str
    sequential: str
    path: str


LAYERS = {
    "attention": Layer("Self-attention", _attention, "n² · d", "1", "1"),
    "restricted": Layer("Self-attention (restricted)", _restricted, "r · n · d", "1", "n / r"),
    "recurrent": Layer("Recurrent (LSTM)", _layer(_recurrent), "n · d²", "n", "n"),
    "convolutional": Layer("Convolutional", _layer(_convolutional), "k · n · d²", "1", "log_k n"),
    "separable": Layer("Separable convolution", _layer(_separable), "k · n · d + n · d²", "1", "log_k n"),
    "attention_projected": Layer("Self-attention with projections", _layer(_multi_head), "n² · d + n · d²", "1", "1"),
    "restricted_projected": Layer(
        "Self-attention (restricted) with projections",
        _layer(_restricted_multi_head),
        "r · n · d + n · d²",
        "1",
        "n / r",
    ),
}


def step_of(layer: Layer, settings: Settings) -> Callable:
    """Returns a function: sequence length → a function that runs a layer forward and backward on inputs of that length.

    It returns the gradients by the inputs and by the weights.
    """
    function, shapes = layer.make(settings, 1, unroll=False)
    weights = [variable.value for variable in getattr(function, "trainable_variables", ())]

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([*shape[:-2], None, shape[-1]]) for shape in shapes])
    def step(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = function(*inputs)
        return tape.gradient(output, [*inputs, *weights])

    def of_length(length: int) -> Callable:
        inputs = [tf.random.normal([*shape[:-2], length, shape[-1]]) for shape in shapes]
        return lambda: step(*inputs)

    return of_length


def seconds_of(call: Callable) -> float:
    """Returns the time of a call, the mean of several if one is short."""
    calls, started = 0, time.perf_counter()
    while not calls or time.perf_counter() - started < _SHORTEST:
        call()
        calls += 1
    return (time.perf_counter() - started) / calls


# Memory.


def work(task: str, layers: dict[str, Layer]) -> None:
    """Prints {length: bytes} of a layer as JSON. The lengths increase, because TensorFlow keeps memory that a step has
    freed. `task` is the first three arguments of `measure_memory`, as JSON.
    """
    name, settings, lengths = json.loads(task)
    step = step_of(layers[name], Settings(**settings))
    step(_SHORT)()
    before, peaks = resident_memory(), {}
    for length in sorted(lengths):
        step(length)()
        peaks[length] = peak_memory() - before
    print(json.dumps(peaks))


def measure_memory(name: str, settings: Settings, lengths: list[int], module: str = "table1") -> dict:
    """Returns {length: bytes} of a layer in the `LAYERS` of a module beside this one, measured in its own process."""
    task = json.dumps([name, dataclasses.asdict(settings), lengths])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.run(
        [sys.executable, "-c", _WORK.format(module), task], env=environment, capture_output=True, text=True
    )
    if process.returncode:
        raise ValueError(f"The process that measures memory failed: {process.stderr.strip()[-500:]}")
    return json.loads(process.stdout.splitlines()[-1])


# Sequential operations and path lengths.


def sequential_operations(layer: Layer, settings: Settings, length: int) -> int:
    """Counts the matrix products of a forward pass that must follow one another: the longest chain in its graph."""
    function, shapes = layer.make(settings, length, unroll=True)
    graph = tf.function(function, autograph=False).get_concrete_function(*map(tf.TensorSpec, shapes)).graph
    chain: dict = {}
    for operation in graph.get_operations():  # In the order of construction: inputs come first.
        before = max((chain[tensor.op.name] for tensor in operation.inputs), default=0)
        chain[operation.name] = before + (operation.type in _PRODUCTS)
    return max(chain.values())


def reach(layer: Layer, settings: Settings) -> float:
    """Returns how many positions away the last input is that changes the first output of one layer; infinity if it is
    the last of all.

    Measured with a narrow layer, on a sequence that is longer than any neighborhood, by the derivatives of the output.
    """
    length = settings.window + settings.kernel
    function, shapes = layer.make(dataclasses.replace(settings, d=settings.heads), length, unroll=False)
    inputs = [tf.random.normal(shape) for shape in shapes]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        first = function(*inputs)[..., 0, :]
    last = int(np.nonzero(tape.gradient(first, inputs[-1]))[-2].max())
    return math.inf if last == length - 1 else last


def path_length(name: str, settings: Settings, length: int, dilated: bool = False) -> int:
    """Returns the maximum path length between two of `length` positions: how many layers, `name` in `LAYERS`, or steps
    of a recurrent layer join the first and last. With `dilated`, the convolutions of a stack have dilation 1, k, k², …;
    otherwise all layers of a stack are the same.
    """
    layer = LAYERS[name]
    if name == "recurrent":
        # One product per position, besides those of the inputs, which are computed at once.
        narrow = dataclasses.replace(settings, d=settings.heads)
        return length * sequential_operations(layer, narrow, _COUNTED) // _COUNTED
    far, layers, reached = reach(layer, settings), 0, 0
    while reached < length - 1:
        reached += far * (settings.kernel**layers if dilated else 1)
        layers += 1
    return layers


# Results.


def fitted_exponent(points: dict, fit_from: int) -> float:
    """Returns the slope of log(value) over log(n) by least squares: {n: value} with n from `fit_from` on."""
    known = [(int(length), value) for length, value in points.items() if int(length) >= fit_from and value > 0]
    pairs = [(math.log(length), math.log(value)) for length, value in known]
    if len(pairs) < 2:
        return math.nan
    return statistics.linear_regression(*zip(*pairs, strict=True)).slope


def growth(points: dict, fit_from: int, form: str = "{}") -> str:
    """Formats `fitted_exponent`, or returns "" where there are too few points."""
    exponent = fitted_exponent(points, fit_from)
    return "" if math.isnan(exponent) else form.format(f"{exponent:.2f}")


def medians(results: dict, name: str) -> dict:
    """Returns {length: seconds} of a layer: the median over the rounds."""
    return {length: statistics.median(seconds) for length, seconds in results["seconds"].get(name, {}).items()}


def measure(settings: Settings, lengths: list[int], rounds: int, file: pathlib.Path | None = None) -> dict:
    """Measures the time and memory of the layers at some `lengths`, with `rounds` measurements of each time. `file`
    keeps the measurements, as JSON: what it has is not measured again. `None` keeps none.

    Returns the measurements: settings, machine, seconds, memory, sequential and paths; the last four by the names in
    `LAYERS`. It is an error if the file has other settings or another machine, or is damaged.
    """
    results = read_results(settings, file)

    def save() -> None:
        if file:
            write_whole(file, json.dumps(results, indent=1).encode())

    if "sequential" not in results:
        results["sequential"] = {
            name: sequential_operations(layer, settings, _COUNTED) for name, layer in LAYERS.items()
        }
        results["paths"] = {name: [path_length(name, settings, _SHOWN)] for name in LAYERS}
        for name in ("convolutional", "separable"):
            results["paths"][name].append(path_length(name, settings, _SHOWN, dilated=True))
        save()
    measure_cost(LAYERS, settings, lengths, rounds, results, save)
    return results


def read_results(settings: Settings, file: pathlib.Path | None) -> dict:
    """Returns the measurements in a file, or, if there is none, new ones: the settings and the machine. It is an error
    if those in the file have other settings or are of another machine.
    """
    results = {"settings": dataclasses.asdict(settings), "machine": "{cpu}, {cores} cores".format(**cpu())}
    if not file or not file.exists():
        return results
    before = read_json(file)
    for name in ("settings", "machine"):
        if before.get(name) != results[name]:
            raise ValueError(f"Expected {file} to have measurements of {results[name]}. Received: {before.get(name)}.")
    return before


def measure_cost(
    layers: dict[str, Layer],
    settings: Settings,
    lengths: list[int],
    rounds: int,
    results: dict,
    save: Callable,
    module: str = "table1",
) -> None:
    """Measures the time and the memory of layers, by name, except what the results have already; adds them to `results`
    as `seconds` and `memory`, and calls `save` after each. `module` is the one beside this whose `LAYERS` these are;
    for the other arguments see `measure`.
    """
    seconds, steps = results.setdefault("seconds", {name: {} for name in layers}), {}

    def missing(number: int) -> list[tuple[str, int]]:
        return [(name, n) for n in lengths for name in layers if len(seconds[name].get(str(n), ())) <= number]

    memory = results.setdefault("memory", {})
    for name, layer in layers.items():
        if any(str(n) not in memory.get(name, {}) for n in lengths):
            logger.info(f"Memory: {layer.name} …")
            memory.setdefault(name, {}).update(measure_memory(name, settings, lengths, module))
            save()
    for number in range(rounds):
        if missing(number):
            logger.info(f"Time, round {number + 1} of {rounds} …")
        for name, n in missing(number):
            if name not in steps:
                steps[name] = step_of(layers[name], settings)
                steps[name](_SHORT)()  # Builds the graph.
            seconds[name].setdefault(str(n), []).append(seconds_of(steps[name](n)))
        save()


def milliseconds(seconds: float) -> str:
    """Returns a time as it stands in tables."""
    return f"{1e3 * seconds:,.0f}" if seconds >= 0.00995 else f"{1e3 * seconds:.2g}"


def table(results: dict, fit_from: int) -> str:
    """Formats the results of `measure` as a Markdown table, with exponents fitted to lengths from `fit_from` on."""
    lengths = sorted({int(length) for points in results["seconds"].values() for length in points})
    last, middle = lengths[-1], min(lengths, key=lambda n: abs(n - fit_from))
    head = [
        "layer", "complexity", f"time, n = {middle:,} (ms)", f"n = {last:,} (ms)", "exponent of n",
        f"memory, n = {last:,} (MiB)", "exponent of n", "sequential",
        f"counted, n = {_COUNTED}", "longest path", f"counted, n = {_SHOWN:,}",
    ]  # fmt: skip
    rows = []
    for name, layer in LAYERS.items():
        seconds, memory = medians(results, name), results["memory"][name]
        paths = results["paths"][name]
        rows.append([
            layer.name, f"O({layer.complexity})", milliseconds(seconds[str(middle)]), milliseconds(seconds[str(last)]),
            growth(seconds, fit_from), f"{memory[str(last)] / 2**20:,.0f}", growth(memory, fit_from),
            f"O({layer.sequential})", f"{results['sequential'][name]}", f"O({layer.path})",
            f"{paths[0]:,}" if len(paths) == 1 else f"{paths[1]:,} dilated, {paths[0]:,} not",
        ])  # fmt: skip
    return markdown.table(head, rows, right={*head} - {"layer", "complexity", "sequential", "longest path"})


def plot(axes, name: str, points: dict, unit: float, fit_from: int, suffix: str = "", **style) -> None:
    """Draws what a layer costs, {length: value}, in multiples of a unit, with the fitted exponent in its label."""
    positive = {int(length): unit * value for length, value in points.items() if value > 0}
    label = f"{name}{growth(points, fit_from, ': n^{}')}{suffix}"
    axes.plot(positive.keys(), positive.values(), label=label, linewidth=1.6, markersize=4, **style)


def picture(results: dict, fit_from: int) -> Figure:
    """Draws time and memory against n on logarithmic axes, one line per layer, with the fitted exponents in the legend.

    The paper's complexities stand in the legend of the time; Table 1 has none for the memory.
    """
    with figures.drawing():
        figure = figures.new_figure(10, 6)
        panels = figure.subplots(1, 2)
        values = {name: (medians(results, name), results["memory"][name]) for name in LAYERS}
        units = ((1e3, "milliseconds", "Time"), (2**-20, "MiB", "Peak memory"))
        for index, (axes, (unit, label, title)) in enumerate(zip(panels, units, strict=True)):
            for number, (name, layer) in enumerate(LAYERS.items()):
                style = {"linestyle": "-", "marker": "o", "color": figures.PALETTE[number % 5]}
                if name.endswith("_projected"):
                    style |= {"linestyle": "--", "marker": "s"}
                paper = f", paper O({layer.complexity})" if index == 0 else ""
                plot(axes, layer.name, values[name][index], unit, fit_from, paper, **style)
            figures.panel(axes, f"{title}, forward and backward", "sequence length n", label)
            figures.powers(axes, sorted({int(length) for length in values["attention"][index]}))
            axes.set_yscale("log")
            figures.numbers(axes.yaxis, ",g")
            axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.12), frameon=False)
        settings = Settings(**results["settings"])
        figure.suptitle(f"Layers of Table 1: {settings}; exponents fitted to n ≥ {fit_from:,}", fontsize=11)
        figure.tight_layout()
    return figure
