"""What went wrong in an update whose loss or gradient is not a finite number: which pairs, and where in the network it began."""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.config import PAD, TrainConfig, write_whole
from t2t_keras.update import micro_batch_gradients


def _all_finite(values) -> bool:
    tensors = [value for value in tf.nest.flatten(values) if tf.is_tensor(value) and value.dtype.is_floating]
    return all(bool(tf.reduce_all(tf.math.is_finite(tensor))) for tensor in tensors)


@contextlib.contextmanager
def _watched(model) -> Iterator[list[str]]:
    """Inside, every layer's output is looked at; gives the paths of layers with one that is not finite, in the order they ran."""
    found = []

    def watch(layer):
        call = layer.call

        def watched(*args, **kwargs):
            outputs = call(*args, **kwargs)
            if not _all_finite(outputs):
                finite_inputs = _all_finite((args, kwargs))
                found.append(f"the output of {layer.path}" + ("" if finite_inputs else ", as its input was already"))
            return outputs

        layer.call = watched
        return layer, call

    originals = [watch(layer) for layer in model._flatten_layers(include_self=False)]
    try:
        yield found
    finally:
        for layer, call in originals:
            layer.call = call


def first_not_finite(model, config: TrainConfig, source, target, **place) -> str:
    """Runs a micro-batch once more, in the same way, and says what is the first in it that is not finite; empty: nothing is.

    Args:
        model: as it was then.
        config: how it is trained.
        source: [B, S] int.
        target: [B, T] int.
        place: `step`, `micro_batch`, `replica` and `scale`, which decide dropout and overflow.
    """
    for variable in model.trainable_variables:
        if not _all_finite(tf.convert_to_tensor(variable)):
            return f"the weight {variable.path}"
    with _watched(model) as found:
        gradients, sums = micro_batch_gradients(model, config, source, target, **place)
    if found:
        return found[0]
    if not _all_finite(sums["loss"]):
        return "the loss, while every layer's output is finite"
    for variable, gradient in reversed(list(zip(model.trainable_variables, gradients, strict=True))):
        if not _all_finite(gradient):
            return f"the gradient of {variable.path}, while every layer's output is finite"
    return ""


def write_report(
    folder: pathlib.Path,
    strategy,
    model,
    config: TrainConfig,
    batch,
    *,
    step: int,
    scale: float,
    text_of: Callable[[np.ndarray], list[str]],
) -> str:
    """Examines an update of this process's devices, and writes what it was to a folder, for study.

    Args:
        folder: gets `update-….npz`, with the ids `source` and `target` [pairs, …], and `update-….json`: the findings, and the
            text of the pairs they are about.
        strategy, model, config: of the run.
        batch: what `make_update`'s function was given.
        step: the optimizer's iterations then.
        scale: the loss scale then.
        text_of: ids [B, S] → B lines.

    Returns:
        A sentence about it.
    """
    findings, rows = [], {"source": [], "target": []}
    shares = {side: strategy.experimental_local_results(batch[side]) for side in rows}
    for replica, share in enumerate(zip(*shares.values(), strict=True)):
        for micro_batch, sides in enumerate(zip(*(ids.numpy() for ids in share), strict=True)):
            place = {"step": step, "micro_batch": micro_batch, "replica": replica, "scale": scale}
            if found := first_not_finite(model, config, *map(tf.constant, sides), **place):
                findings.append({**place, "first": found, "pairs": list(zip(*map(text_of, sides), strict=True))})
            for side, ids in zip(rows, sides, strict=True):
                rows[side].extend(ids)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"update-{step + 1:09d}.npz"
    with path.open("wb") as file:
        np.savez(file, **{side: keras.utils.pad_sequences(ids, padding="post", value=PAD) for side, ids in rows.items()})
    write_whole(path.with_suffix(".json"), (json.dumps(findings, indent=2, ensure_ascii=False) + "\n").encode())
    first = findings[0]["first"] if findings else "nothing, when it was run again"
    return f"The first that is not finite: {first}. The update's pairs are in {path}, the findings beside it."
