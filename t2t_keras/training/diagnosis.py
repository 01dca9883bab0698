"""Diagnosis of an update whose loss or gradient is not finite: its sentence pairs, and where in the network it starts."""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from t2t_keras.compat import layers_of, replaced_calls
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
    """While active, lists the layers whose output is not finite, in the order in which they run."""
    found = []

    def watch(layer):
        call = layer.call

        def watched(*args, **kwargs):
            outputs = call(*args, **kwargs)
            if not _all_finite(outputs):
                finite_inputs = _all_finite((args, kwargs))
                found.append(f"the output of {layer.path}" + ("" if finite_inputs else ", and its input already"))
            return outputs

        return watched

    with replaced_calls([(layer, watch(layer)) for layer in layers_of(model)]):
        yield found


def first_not_finite(model, config: TrainConfig, source, target, **place) -> str:
    """Repeats a micro-batch in eager mode and finds the first value that is not finite.

    Args:
        model: with the weights of that update.
        config: training options.
        source: [B, S] int.
        target: [B, T] int.
        place: `step`, `micro_batch`, `replica` and `scale`, which determine dropout and overflow.

    Returns:
        A description such as "the output of transformer/encoder_0", or "" if all values are finite.
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
    """Writes the sentence pairs of an update, as far as this process has them, and a diagnosis of each micro-batch.

    Args:
        path: `.npz` file for the ids `source` [pairs, S] and `target` [pairs, T]. The diagnosis, with the text of the pairs, goes to
            a `.json` file of the same name.
        strategy, model, config: those of the run.
        batch: the batch of that train step.
        iterations: `optimizer.iterations` at that train step.
        scale: the loss scale at that train step.
        text_of: ids [B, S] → B lines of text.

    Returns:
        A summary in two sentences.
    """
    shares = [[ids.numpy() for ids in strategy.experimental_local_results(batch[side])] for side in SIDES]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        columns = {side: np.concatenate(share).reshape(-1, share[0].shape[-1]) for side, share in zip(SIDES, shares, strict=True)}
        is_pair = columns["source"].any(axis=1)  # Other rows are padding.
        np.savez(file, **{side: ids[is_pair] for side, ids in columns.items()})
    findings = []
    first_replica = devices.process_index(strategy) * len(shares[0])
    for replica, share in enumerate(zip(*shares, strict=True), first_replica):
        for micro_batch, sides in enumerate(zip(*share, strict=True)):
            if not sides[0].any():  # Padding only.
                continue
            sides = trimmed(*map(tf.constant, sides))
            place = {"step": iterations, "micro_batch": micro_batch, "replica": replica, "scale": scale}
            try:
                found = first_not_finite(model, config, *sides, **place)
            except tf.errors.ResourceExhaustedError:
                found = "unknown: out of memory while repeating the micro-batch"
            if found:
                findings.append({**place, "first": found, "pairs": list(zip(*(text_of(ids.numpy()) for ids in sides), strict=True))})
    write_whole(path.with_suffix(".json"), (json.dumps(findings, indent=2, ensure_ascii=False) + "\n").encode())
    first = findings[0]["first"] if findings else "none when the update was repeated in this process"
    return f"First value that is not finite: {first}. The sentence pairs are in {path}, the diagnosis in {path.with_suffix('.json').name}."
