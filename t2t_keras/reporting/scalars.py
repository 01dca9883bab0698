"""What each curve in TensorBoard shows, which curves its CUSTOM SCALARS tab puts on one chart, and the distributions of
weights and gradient norms.
"""

import collections
import math
from collections.abc import Callable, Sequence

import numpy as np
from tensorboard.plugins.custom_scalar import layout_pb2, summary

from t2t_keras.runs.task import Metric
from t2t_keras.system import machine
from t2t_keras.system.tensorflow import gpu_peak_memory

GRADIENT_NORM = "train_gradient_norm/"  # Before the name of a layer.

DESCRIPTIONS = {  # Of every task.
    "train/learning_rate": "Learning rate of the last update.",
    "train/gradient_norm": "Norm of the last update's gradient, before clipping.",
    "train/skipped_updates": "Updates so far that were skipped because the loss or the gradient was not finite.",
    "train/loss_scale": "Factor on the loss in float16; 1 in other dtypes.",
    "train/epoch": "Epoch of the last update, from 1 on.",
    "train/target_tokens_seen": "Target sub-words trained on so far, without padding; in other tasks masked words, or "
    "texts.",
    "train/flops": "Floating-point operations of the matrix products so far, forward and backward; with --freeze an "
    "upper bound.",
    "train/estimated_flops": "The paper's estimate of these (Table 2): seconds x devices x device_tflops.",
    "utilization/target_tokens_per_second": "Target sub-words per second, without padding; in other tasks masked "
    "words, or texts.",
    "utilization/updates_per_second": "Updates per second of training.",
    "utilization/tflops": "Tera floating-point operations of matrix products per second of training, on all devices "
    "together; with --freeze an upper bound.",
    "utilization/peak_memory_gib": "Largest resident memory of the training process so far, in GiB.",
    "utilization/peak_gpu_memory_gib": "Largest memory that TensorFlow has used so far on one GPU, in GiB.",
    "utilization/padding_share": "Share of positions, on both sides, that are padding.",
    "utilization/real_token_share": "Share of positions, on both sides, that are sub-words: 1 - padding.",
    "utilization/damaged_records": "Records of the training data left out so far because their checksum was wrong.",
}


def tags(metric: Metric) -> dict[str, str]:
    """The curves of a metric: their descriptions by tag."""
    both = {f"train/{metric.name}": metric.train, f"valid/{metric.name}": metric.valid}
    return {tag: text for tag, text in both.items() if text}


def descriptions(metrics: Sequence[Metric] = ()) -> Callable[[str], str | None]:
    """Returns a function from a curve's tag to its description, or None. `metrics` are those of the task."""
    known = DESCRIPTIONS | {tag: text for metric in metrics for tag, text in tags(metric).items()}

    def description(tag: str) -> str | None:
        if tag.startswith(GRADIENT_NORM):
            return "Norm of the gradient of one layer's weights in the last update, before clipping."
        return known.get(tag)

    return description


_CHARTS = {
    "Optimizer": {"Learning rate": ("train/learning_rate",), "Gradient norm": ("train/gradient_norm",)},
    "Speed": {
        "Target tokens per second": ("utilization/target_tokens_per_second",),
        "Peak memory, GiB": ("utilization/peak_memory_gib",),
    },
}


def layout(metrics: Sequence[Metric]) -> bytes:
    """The charts of the CUSTOM SCALARS tab for the metrics of a task, as a serialized `Summary`."""
    of_task = {metric.title: tuple(tags(metric)) for metric in metrics if metric.title}
    categories = [
        layout_pb2.Category(
            title=title,
            chart=[
                layout_pb2.Chart(
                    title=name, multiline=layout_pb2.MultilineChartContent(tag=[f"^{tag}$" for tag in curves])
                )
                for name, curves in charts.items()
            ],
        )
        for title, charts in ({"Training and validation": of_task} | _CHARTS).items()
    ]
    return summary.pb(layout_pb2.Layout(category=categories)).SerializeToString()


def peak_memory() -> dict[str, float]:
    """The largest memory of this process so far and, if there are GPUs, of the fullest one, in GiB."""
    peaks = {"utilization/peak_memory_gib": machine.peak_memory() / 2**30}
    of_gpu = gpu_peak_memory()
    return peaks if of_gpu is None else peaks | {"utilization/peak_gpu_memory_gib": of_gpu}


def layer_metrics(model, gradient_norms) -> dict:
    """Returns what `TensorBoardWriter.write` shows of the layers of a model after an update, from the norms of the
    gradient of each trainable weight, [weights] float32: None or not finite if the update was skipped.

    These are the values of each weight as "weights/…" and all gradient norms as "weights_gradient_norms", as arrays,
    which become histograms; the gradient norm of each layer as a number.
    """
    weights = {weight.path.removeprefix(f"{model.name}/"): weight for weight in model.trainable_variables}
    values = {f"weights/{path}": weight.numpy() for path, weight in weights.items()}
    if gradient_norms is None or not np.isfinite(gradient_norms := np.asarray(gradient_norms)).all():
        return values
    squares = collections.Counter()
    for path, norm in zip(weights, gradient_norms, strict=True):
        squares[path.partition("/")[0]] += float(norm) ** 2
    return (
        values
        | {"weights_gradient_norms": gradient_norms}
        | {GRADIENT_NORM + layer: math.sqrt(sum_) for layer, sum_ in squares.items()}
    )
