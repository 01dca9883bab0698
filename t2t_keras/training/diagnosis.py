"""Diagnosis of an update whose loss or gradient is not finite: its sentence pairs, and where in the network it
starts.
"""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from t2t_keras.config import TrainConfig
from t2t_keras.data.batching import SHAPE, trimmed
from t2t_keras.runs.task import Task
from t2t_keras.system.compat import layers_of, replaced_calls
from t2t_keras.system.files import replacing, write_whole
from t2t_keras.training import devices
from t2t_keras.training.train_step import micro_batch_gradients


def all_finite(values) -> bool:
    """Returns whether all floating-point tensors of a structure are finite."""
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
            if not all_finite(outputs):
                finite_inputs = all_finite((args, kwargs))
                found.append(f"the output of {layer.path}" + ("" if finite_inputs else ", and its input already"))
            return outputs

        return watched

    with replaced_calls([(layer, watch(layer)) for layer in layers_of(model)]):
        yield found


def first_not_finite(model, task: Task, config: TrainConfig, columns: dict, **place) -> str:
    """Repeats a micro-batch, of columns [B, T] int, in eager mode with the weights of that update, and finds the first
    value that is not finite. `place` is `step`, `micro_batch`, `replica` and `scale`, which determine dropout and
    overflow.

    Returns a description such as "the output of transformer/encoder_0", or "" if all values are finite.
    """
    for variable in model.trainable_variables:
        if not all_finite(tf.convert_to_tensor(variable)):
            return f"the weight {variable.path}"
    with _watched(model) as found:
        gradients, sums = micro_batch_gradients(model, task, config, columns, **place)
    if found:
        return found[0]
    if not all_finite(sums[task.objective]):
        return "the loss, while every layer's output is finite"
    for variable, gradient in reversed(list(zip(model.trainable_variables, gradients, strict=True))):
        if not all_finite(gradient):
            return f"the gradient of {variable.path}, while every layer's output is finite"
    return ""


def write_report(
    path: pathlib.Path,
    strategy,
    model,
    task: Task,
    config: TrainConfig,
    batch,
    *,
    iterations: int,
    scale: float,
    text_of: Callable[[str, np.ndarray], list[str]],
) -> str:
    """Writes the sentence pairs of an update, as far as this process has them, and a diagnosis of each micro-batch;
    returns a summary in two sentences.

    Args:
        path: `.npz` file for the ids of each column, [pairs, T]. The diagnosis, with the text of the pairs, goes to
            a `.json` file of the same name.
        batch, iterations, scale: of that train step: its batch, `optimizer.iterations` and the loss scale.
        text_of: name and ids [B, T] of a column of sub-words → B lines of text.
    """
    replicas = [{name: ids.numpy() for name, ids in share.items()} for share in devices.shares_of(strategy, batch)]
    texts = [column.name for column in task.columns if column.is_text]
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as file:
        rows = ((name, np.concatenate([share[name] for share in replicas])) for name in batch if name != SHAPE)
        columns = {name: ids.reshape(-1, ids.shape[-1]) for name, ids in rows}
        is_pair = next(iter(columns.values())).any(axis=1)  # Other rows are padding.
        np.savez(file, **{name: ids[is_pair] for name, ids in columns.items()})
    findings = []
    for replica, share in enumerate(replicas, devices.process_index(strategy) * len(replicas)):
        for micro_batch, ids in enumerate(zip(*share.values(), strict=True)):
            if not ids[0].any():  # Padding only.
                continue
            columns = trimmed(dict(zip(share, map(tf.constant, ids), strict=True)))
            place = {"step": iterations, "micro_batch": micro_batch, "replica": replica, "scale": scale}
            try:
                found = first_not_finite(model, task, config, columns, **place)
            except tf.errors.ResourceExhaustedError:
                found = "unknown: out of memory while repeating the micro-batch"
            if found:
                is_pair = columns[next(iter(share))].numpy().any(axis=1)
                pairs = list(zip(*(text_of(name, columns[name].numpy()[is_pair]) for name in texts), strict=True))
                findings.append({**place, "first": found, "pairs": pairs})
    write_whole(path.with_suffix(".json"), (json.dumps(findings, indent=2, ensure_ascii=False) + "\n").encode())
    none = "none when the update was repeated in this process"
    if devices.several_workers(strategy):
        none = "none in the pairs of this worker; see the files of the others beside its own"
    first = findings[0]["first"] if findings else none
    return (
        f"First value that is not finite: {first}. The sentence pairs are in {path}, the diagnosis in "
        f"{path.with_suffix('.json').name}."
    )
