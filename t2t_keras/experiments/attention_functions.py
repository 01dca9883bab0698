"""Compares the attention functions of section 3.2.1: what they cost, and what becomes of softmax and of training as d_k
grows.

Cost is measured as in `table1`, of the functions alone, without projections. Softmax is measured in Transformers that
are trained for it, with d_model / d_k heads, so that they have the same products whatever d_k is. Held-out sentences
show for each query of each head:

    variance    of its scores. Footnote 4: if the components of q and k are independent, with mean 0 and variance 1,
                that of q · k is d_k
    entropy     of its weights, as a share of log n, that of n equal weights
    gradient    Σ p (1 - p), the derivatives of the weights p by their own scores, as a share of 1 - 1 / n, that of n
                equal weights

Letters: S keys, n keys that a query may attend to.
"""

import contextlib
import json
import math
import pathlib
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from t2t_keras.config import ATTENTION_FUNCTIONS, PAD
from t2t_keras.data import batching, shards
from t2t_keras.experiments import series, table1
from t2t_keras.layers.attention import MultiHeadAttention
from t2t_keras.layers.attention_functions import FUNCTIONS, masked_softmax
from t2t_keras.model.protocols import make
from t2t_keras.reporting import attention, figures
from t2t_keras.runs import checkpoint, registry, run_options
from t2t_keras.runs.run_start import Start, is_same
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system import markdown
from t2t_keras.system.files import write_whole
from t2t_keras.system.log import logger
from t2t_keras.training import run

RESULTS = "attention_functions.json"  # In the output folder, which keeps the runs too.
FIGURES = ("variance", "entropy", "gradient")
_FIT_FROM = 128  # Smallest length that exponents are fitted to.
_SENTENCES = 100  # Held-out pairs that a model reads.
_VARIED = {"attention", "num_heads", "d_k", "d_v"}  # Options in which runs differ.


def _layer(function: str) -> table1.Layer:
    """Attention with a function, as `table1` measures it; additive with equal weights of the components."""

    def make(settings: table1.Settings, length: int, unroll: bool = False):
        width = settings.d // settings.heads
        vector = [np.full((settings.heads, 1, width), width**-0.5, "float32")] if function == "additive" else []

        def attend(q, k, v):
            return ops.matmul(masked_softmax(FUNCTIONS[function](q, k, *vector)), v)

        return attend, [(1, settings.heads, length, width)] * 3

    return table1.Layer(function, make, "n² · d", "1", "1")


LAYERS = {function: _layer(function) for function in ATTENTION_FUNCTIONS}


def of_scores(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Returns `FIGURES`, [N, 3], of each query of `scores`, [..., S], that may attend to two keys or more. The mask is
    boolean, broadcast to the shape of `scores`, True where a query may attend.
    """
    mask = np.broadcast_to(mask, scores.shape)
    several = mask.sum(axis=-1) > 1
    mask, scores = mask[several], np.where(mask, scores, 0)[several].astype("float64")
    keys = mask.sum(axis=-1)
    distance = np.where(mask, scores - (scores.sum(axis=-1) / keys)[:, None], -np.inf)
    exponentials = np.exp(distance - distance.max(axis=-1, keepdims=True))
    p = exponentials / exponentials.sum(axis=-1, keepdims=True)
    variance = np.square(np.where(mask, distance, 0)).sum(axis=-1) / (keys - 1)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(axis=-1) / np.log(keys)
    gradient = (p * (1 - p)).sum(axis=-1) / (1 - 1 / keys)
    return np.stack([variance, entropy, gradient], axis=-1)


def of_model(model, pairs: list) -> dict[str, float]:
    """Returns the means of `FIGURES` over the queries of all heads of a `Transformer`, and the perplexity of the
    target. `pairs` are ids of each source and target, without padding.
    """
    values, loss = [], 0.0

    def measure(layer: MultiHeadAttention, query, memory, mask) -> None:
        values.append(of_scores(np.array(layer.scores_of(query, memory)), np.array(mask)))

    with attention.observing(sum(attention.layers_of(model).values(), []), measure):
        for source, target in pairs:
            not_smoothed, _ = model.cross_entropy(source[None], target[None], 0.0)
            loss += float(not_smoothed)
    means = np.concatenate(values).mean(axis=0)
    perplexity = math.exp(loss / sum(len(target) for _, target in pairs))
    return dict(zip(FIGURES, means.tolist(), strict=True)) | {"perplexity": perplexity}


def _figures_of_run(folder: pathlib.Path, options: run_options.Options, strategy, quiet: Callable) -> dict:
    """Trains a run, or resumes it, and measures its model with its first weights and with its last. Returns its options
    and both measurements.
    """
    run.train(Start.of(folder, options), strategy=strategy, quiet=quiet)
    options = SavedRun.open(folder).options  # With the size of the vocabulary, if the text decides it.
    with shards.plain_errors():
        valid = options.data_folder(folder) / "valid"
        budget = max(options.train.micro_batch_tokens, *shards.counted(shards.read_info(valid)))
        batches = batching.batches(valid, batch_tokens=budget, seed=0, epochs=1)
        rows = [
            tuple(row[row != PAD] for row in pair)
            for batch in batches.as_numpy_iterator()
            for pair in zip(batch["source"], batch["target"], strict=True)
        ]
    pairs = rows[:: max(len(rows) // _SENTENCES, 1)][:_SENTENCES]  # Of all lengths.
    keras.utils.set_random_seed(options.train.seed)
    model = make(registry.architecture(options.architecture), options.model)
    before = of_model(model, pairs)
    checkpoint.load(folder, "latest", model)
    return {"options": series.determining(options), "before": before, "after": of_model(model, pairs)}


def _check_alike(
    runs: dict[tuple[str, int], run_options.Options], measured: dict[str, dict], output_dir: pathlib.Path
) -> None:
    """Checks that runs, and those of earlier commands, differ in the function and d_k alone."""
    file, any_run = output_dir / RESULTS, next(iter(runs.values()))
    left_out = _VARIED | series.undecided(any_run)
    asked = {name: value for name, value in series.determining(any_run).items() if name not in left_out}
    # A result lacks the options that came after it.
    for had in (of_run["options"] for of_function in measured.values() for of_run in of_function.values()):
        if changed := [
            f"{name}={asked[name]} ({file}: {had[name]})"
            for name in asked
            if name in had and not is_same(name, had[name], asked[name])
        ]:
            raise ValueError(
                f"Expected the options of the runs in {output_dir}. Received: {', '.join(changed)}. Give another "
                "`output_dir`."
            )
    folders = [output_dir / f"{function}_{d_k}" for function, of_function in measured.items() for d_k in of_function]
    for folder in filter(SavedRun.find, folders):
        series.check_data(folder, any_run)
    for (function, d_k), of_run in runs.items():
        series.is_current(None, output_dir / f"{function}_{d_k}", of_run, series.determining)


def measure(
    settings: table1.Settings,
    lengths: list[int],
    rounds: int,
    runs: dict[tuple[str, int], run_options.Options],
    output_dir: pathlib.Path,
    *,
    strategy,
    quiet: Callable = contextlib.nullcontext,
) -> dict:
    """Measures the functions, except what the output folder has already: it keeps the runs and `RESULTS`. `runs` are
    the options of a run for each function and d_k; for the other arguments see `table1.measure` and `run.train`, whose
    errors it raises.

    Returns the measurements: settings, machine, seconds and memory as in `table1.measure`, and runs, by function and
    d_k. A run has its `options`, and the results of `of_model` before and after training.
    """
    file = output_dir / RESULTS
    results = table1.read_results(settings, file)
    measured = results.setdefault("runs", {function: {} for function in ATTENTION_FUNCTIONS})

    def save() -> None:
        output_dir.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(results, indent=1).encode())

    _check_alike(runs, measured, output_dir)
    table1.measure_cost(LAYERS, settings, lengths, rounds, results, save, "attention_functions")
    for number, ((function, d_k), options) in enumerate(runs.items(), 1):
        if str(d_k) not in measured[function]:
            logger.info(f"Run {number} of {len(runs)}: {function}, d_k = {d_k}.")
            keras.backend.clear_session()  # Frees the graphs of the run before.
            folder = output_dir / f"{function}_{d_k}"
            measured[function][str(d_k)] = _figures_of_run(folder, options, strategy, quiet)
            save()
    return results


def tables(results: dict) -> str:
    """Formats the results as two Markdown tables: the cost against n, as far as all functions were measured, and the
    runs against d_k.
    """
    measured = [results[kind][function].keys() for kind in ("seconds", "memory") for function in ATTENTION_FUNCTIONS]
    lengths = sorted(map(int, set.intersection(*map(set, measured))))
    costs = [f"{unit}, n = {length:,}" for unit in ("ms", "MiB") for length in lengths]
    lines = []
    for function in ATTENTION_FUNCTIONS:
        seconds, memory = table1.medians(results, function), results["memory"][function]
        times = [table1.milliseconds(seconds[str(length)]) for length in lengths]
        lines.append([function, *times, *(f"{memory[str(length)] / 2**20:,.0f}" for length in lengths)])
    cost = markdown.table(["function", *costs], lines, right=costs)
    figures_of_runs = [*(f"{name}, {when}" for name in FIGURES for when in ("first", "last")), "perplexity"]
    lines = []
    for d_k in _widths(results):
        for function in ATTENTION_FUNCTIONS:
            if of_run := results["runs"][function].get(str(d_k)):
                values = [of_run[when][name] for name in FIGURES for when in ("before", "after")]
                shares = [f"{float(f'{value:.3g}'):,g}" for value in values]
                lines.append([str(d_k), function, *shares, f"{of_run['after']['perplexity']:.2f}"])
    return f"{cost}\n\n{markdown.table(['d_k', 'function', *figures_of_runs], lines, right=figures_of_runs)}"


def _widths(results: dict) -> list[int]:
    return sorted({int(d_k) for runs in results["runs"].values() for d_k in runs})


def picture(results: dict):
    """Draws `FIGURES` and the perplexity against d_k, and time and memory against n; a line for each function."""
    with figures.drawing():
        figure = figures.new_figure(12, 7.2)
        panels = figure.subplots(2, 3)
        widths = _widths(results)
        for function, colour in zip(ATTENTION_FUNCTIONS, figures.PALETTE, strict=False):
            runs = {int(d_k): of_run for d_k, of_run in results["runs"][function].items()}
            known = sorted(runs)
            style = {"color": colour, "linewidth": 1.6, "markersize": 4}
            for axes, name in zip(panels[0], FIGURES, strict=True):
                for when, line, label in (("before", "--", "untrained"), ("after", "-", "trained")):
                    values = [runs[d_k][when][name] for d_k in known]
                    axes.plot(known, values, line, marker="o", label=f"{function}, {label}", **style)
            axes = panels[1][0]
            axes.plot(known, [runs[d_k]["after"]["perplexity"] for d_k in known], marker="o", **style)
            costs = ((1e3, table1.medians(results, function)), (2**-20, results["memory"][function]))
            for axes, (unit, points) in zip(panels[1][1:], costs, strict=True):
                table1.plot(axes, function, points, unit, _FIT_FROM, color=colour, marker="o")
        panels[0][0].plot(widths, widths, ":", color="#000000", label="d_k: footnote 4")
        titles = ["variance of the scores", "entropy / log n", "gradient / (1 - 1/n)"]
        titles += ["perplexity", "time (ms)", "memory (MiB)"]
        lengths = sorted({int(length) for points in results["memory"].values() for length in points})
        for index, (axes, title) in enumerate(zip(panels.flat, titles, strict=True)):
            figures.panel(axes, title, "d_k" if index < 4 else "sequence length n", size=10)
            figures.powers(axes, widths if index < 4 else lengths)
            if index in (0, 4, 5):
                axes.set_yscale("log")
                figures.numbers(axes.yaxis, ",g")
                axes.minorticks_off()
            if index > 3:
                axes.legend(fontsize=7, frameon=False)
        for axes in panels[0][1:]:
            axes.set_ylim(0, 1.05)
        figure.tight_layout(rect=(0, 0.07, 1, 1))
        style = {"loc": "lower center", "ncols": 4, "fontsize": 8, "handlelength": 4, "frameon": False}
        figure.legend(*panels[0][0].get_legend_handles_labels(), **style)
    return figure
