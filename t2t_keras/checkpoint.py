"""Checkpoints (section 6.1): one file each, written so that a kill never leaves a broken one; and their average.

A checkpoint is a NumPy `.npz` archive of plain arrays, `model/…` and `optimizer/…` by the variables' paths, and `state`, a
JSON text. Each array has a CRC-32 in the archive. It is read without unpickling; names, shapes and dtypes must match.
"""

import json
import os
import pathlib
import re

import numpy as np

FOLDER = "checkpoints"
BEST = "best.npz"


def model_variables(model) -> dict:
    """A model's weights by name; random seeds are not among them."""
    return {f"model/{variable.path}": variable for variable in model.trainable_variables}


def _optimizer_variables(optimizer) -> dict:
    return {f"optimizer/{variable.path}": variable for variable in optimizer.variables}


def write(path: pathlib.Path, model, optimizer, state: dict) -> None:
    """Writes a checkpoint under another name, makes sure it is on disk, then gives it its own: it is whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    variables = {**model_variables(model), **_optimizer_variables(optimizer)}
    arrays = {name: np.asarray(variable) for name, variable in variables.items()}
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        np.savez(file, state=np.array(json.dumps(state)), **arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def _read(path: pathlib.Path, variables: dict) -> tuple[dict, dict]:
    """The arrays of these names, checked against the variables' shapes and dtypes, and the state."""
    prefixes = tuple({name.split("/")[0] + "/" for name in variables})  # `()` matches nothing.
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = {name for name in archive.files if name.startswith(prefixes)}
            arrays = {name: archive[name] for name in variables if name in names}
            state = json.loads(str(archive["state"]))
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is damaged ({error}). Remove it; the checkpoint before it will be used.") from error
    missing, unknown = sorted(set(variables) - names), sorted(names - set(variables))
    if missing:
        raise ValueError(f"{path} has no '{missing[0]}' and {len(missing) - 1} others: it is of another model.")
    if unknown:
        raise ValueError(f"{path} has '{unknown[0]}' and {len(unknown) - 1} others: it is of another model.")
    for name, array in arrays.items():
        expected = (tuple(variables[name].shape), variables[name].dtype)
        if (array.shape, array.dtype.name) != expected:
            raise ValueError(f"Expected '{name}' of shape and dtype {expected} in {path}. Received: {array.shape, array.dtype.name}.")
    return arrays, state


def read_state(path: pathlib.Path) -> dict:
    """The `state` that `write` was given."""
    return _read(path, {})[1]


def restore(path: pathlib.Path, model, optimizer) -> dict:
    """Sets model and optimizer to a checkpoint; returns its `state`. The optimizer's slots must exist already."""
    variables = {**model_variables(model), **_optimizer_variables(optimizer)}
    arrays, state = _read(path, variables)
    for name, array in arrays.items():
        variables[name].assign(array)
    return state


def kept(model_dir: pathlib.Path) -> list[pathlib.Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((model_dir / FOLDER).glob("step-*.npz"), key=step_of)


def path_of(model_dir: pathlib.Path, step: int) -> pathlib.Path:
    """Where the checkpoint of an update is."""
    return model_dir / FOLDER / f"step-{step:09d}.npz"


def step_of(path: pathlib.Path) -> int:
    """The update a checkpoint was written after."""
    return int(re.fullmatch(r"step-(\d+)", path.stem).group(1))


def remove_old(model_dir: pathlib.Path, keep: int) -> None:
    """Keeps the newest checkpoints, and nothing that a kill left unfinished."""
    for path in (model_dir / FOLDER).glob("*.tmp"):
        path.unlink()
    for path in kept(model_dir)[:-keep]:
        path.unlink()


def load_average(paths: list[pathlib.Path], model) -> None:
    """Sets a model to the mean of some checkpoints' weights, summed in float64 (section 6.1)."""
    variables = model_variables(model)
    total = {name: np.zeros(variable.shape, np.float64) for name, variable in variables.items()}
    for path in paths:
        for name, array in _read(path, variables)[0].items():
            total[name] += array
    for name, variable in variables.items():
        variable.assign(total[name] / len(paths))


def load(model_dir: pathlib.Path, which: str, model) -> str:
    """Sets a model to a run's `average`, `best` or `latest` weights; returns what was loaded, for people to read.

    Raises:
        FileNotFoundError: there is none.
    """
    paths = {"average": kept(model_dir), "latest": kept(model_dir)[-1:], "best": list(model_dir.glob(BEST))}
    if which not in paths:
        raise ValueError(f"--checkpoint must be one of {', '.join(paths)}. Received: {which}.")
    if not paths[which]:
        raise FileNotFoundError(f"No checkpoint for --checkpoint={which} in {model_dir}. Train first, or give another --model_dir.")
    load_average(paths[which], model)
    steps = [step_of(path) if which != "best" else read_state(path)["step"] for path in paths[which]]
    return f"{which} of {model_dir}: update{'s' * (len(steps) > 1)} {', '.join(map(str, steps))}"
