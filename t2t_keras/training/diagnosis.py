"""What went wrong in an update whose loss or gradient is not a finite number: which pairs, and where in the network it began."""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from t2t_keras.config import TrainConfig
from t2t_keras.data.batching import trimmed
from t2t_keras.data.shards import SIDES
from t2t_keras.files import write_whole
from t2t_keras.training import devices
from t2t_keras.training.train_step import micro_batch_gradients


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
    if not _all_finite(sums["smoothed_loss"]):
        return "the loss, while every layer's output is finite"
    for variable, gradient in reversed(list(zip(model.trainable_variables, gradients, strict=True))):
        if not _all_finite(gradient):
            return f"the gradient of {variable.path}, while every layer's output is finite"
    return ""


def write_report(
    path: pathlib.Path,
    strategy,
    model,
    config: TrainConfig,
    batch,
    *,
    iterations: int,
    scale: float,
    text_of: Callable[[np.ndarray], list[str]],
) -> str:
    """Writes what an update of this process's devices was to disk, for study, and examines it.

    Args:
        path: an `.npz` for the ids `source` and `target` [pairs, …]; beside it, `.json` gets the findings, and the text of the pairs
            they are about.
        strategy, model, config: of the run.
        batch: what `make_train_step`'s function was given.
        iterations: the optimizer's, then.
        scale: the loss scale then.
        text_of: ids [B, S] → B lines.

    Returns:
        A sentence about it.
    """
    shares = [[ids.numpy() for ids in strategy.experimental_local_results(batch[side])] for side in SIDES]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        columns = {side: np.concatenate(share).reshape(-1, share[0].shape[-1]) for side, share in zip(SIDES, shares, strict=True)}
        there = columns["source"].any(axis=1)  # Others only fill the micro-batches up.
        np.savez(file, **{side: ids[there] for side, ids in columns.items()})
    findings = []
    first = devices.process(strategy) * len(shares[0])
    for replica, share in enumerate(zip(*shares, strict=True), first):
        for micro_batch, sides in enumerate(zip(*share, strict=True)):
            if not sides[0].any():  # Only fills up.
                continue
            sides = trimmed(*map(tf.constant, sides))
            place = {"step": iterations, "micro_batch": micro_batch, "replica": replica, "scale": scale}
            try:
                found = first_not_finite(model, config, *sides, **place)
            except tf.errors.ResourceExhaustedError:
                found = "unknown: there was no memory to run it op by op"
            if found:
                findings.append({**place, "first": found, "pairs": list(zip(*(text_of(ids.numpy()) for ids in sides), strict=True))})
    write_whole(path.with_suffix(".json"), (json.dumps(findings, indent=2, ensure_ascii=False) + "\n").encode())
    told = findings[0]["first"] if findings else "nothing, when it was run again here"
    return f"The first that is not finite: {told}. The update's pairs are in {path}, the findings beside it."
