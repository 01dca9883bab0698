"""Checkpoints (section 6.1): written so that a kill never leaves a broken one, and found out if the disk breaks one; their average.

A checkpoint is a NumPy `.npz` archive of plain arrays, `model/…` and `optimizer/…` by the variables' paths, and `state`, a
JSON text; and, written last, a manifest of the same name in `.json`: the archive's size and SHA-256. Without its manifest
an archive is unfinished and does not count. It is read without unpickling; names, shapes and dtypes must match.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import sys
from collections.abc import Callable

import numpy as np

from t2t_keras.config import write_whole

FOLDER = "checkpoints"
STEP, BEST = "step", "best"  # Kinds of checkpoints: the newest, and that of the best validation.


def model_variables(model) -> dict:
    """A model's weights by name; random seeds are not among them."""
    return {f"model/{variable.path}": variable for variable in model.trainable_variables}


def _optimizer_variables(optimizer) -> dict:
    return {f"optimizer/{variable.path}": variable for variable in optimizer.variables}


class DamagedError(ValueError):
    """A checkpoint is not what was written."""


def _manifest(path: pathlib.Path) -> pathlib.Path:
    return path.with_suffix(".json")


def _describe(path: pathlib.Path) -> dict:
    """What a manifest says of an archive."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _sync(path: pathlib.Path) -> None:
    """Returns when a file, or a folder's names, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: pathlib.Path, model, optimizer, state: dict) -> None:
    """Writes a checkpoint, under another name until it is on disk: it is whole or not there, whenever the process is killed.

    Raises:
        OSError: there is no room, or no permission; what was there before is as it was.
    """
    variables = {**model_variables(model), **_optimizer_variables(optimizer)}
    arrays = {name: np.asarray(variable) for name, variable in variables.items()}
    unfinished = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            np.savez(file, state=np.array(json.dumps(state)), **arrays)
        _sync(unfinished)
        described = json.dumps(_describe(unfinished)).encode()
        _manifest(path).unlink(missing_ok=True)  # Of an archive of that name.
        os.replace(unfinished, path)
        write_whole(_manifest(path), described)
        _sync(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise OSError(
            f"Could not write {path} ({error.strerror or error}). Earlier checkpoints are as they were: make room, or give "
            "permission, and run the same command again."
        ) from error


def _verify(path: pathlib.Path) -> None:
    """Compares an archive with its manifest."""
    try:
        expected = json.loads(_manifest(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamagedError(f"{_manifest(path)} is damaged ({error}).") from error
    if not path.exists():
        raise DamagedError(f"{path} is missing; only its manifest is there.")
    try:
        received = _describe(path)
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror or error}).") from error
    if received != expected:
        raise DamagedError(f"{path} is damaged. Expected: {expected}. Received: {received}.")


def _read(path: pathlib.Path, variables: dict) -> tuple[dict, dict]:
    """The arrays of these names, checked against the variables' shapes and dtypes, and the state."""
    _verify(path)
    prefixes = tuple({name.split("/")[0] + "/" for name in variables})  # `()` matches nothing.
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = {name for name in archive.files if name.startswith(prefixes)}
            arrays = {name: archive[name] for name in variables if name in names}
            state = json.loads(str(archive["state"]))
    except Exception as error:
        raise DamagedError(f"{path} is no checkpoint ({error}).") from error
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


def restore(path: pathlib.Path, model, optimizer) -> dict:
    """Sets model and optimizer to a checkpoint; returns its `state`. The optimizer's slots must exist already.

    Raises:
        DamagedError: it is not what was written.
        ValueError: it is of another model.
    """
    variables = {**model_variables(model), **_optimizer_variables(optimizer)}
    arrays, state = _read(path, variables)
    for name, array in arrays.items():
        variables[name].assign(array)
    return state


def restore_newest(model_dir: pathlib.Path, model, optimizer, say: Callable) -> tuple[pathlib.Path, dict] | None:
    """Restores the newest checkpoint that is what was written, and tells of newer ones that are not; None: there is none at all.

    Raises:
        DamagedError: every one is.
        ValueError: it is of another model.
    """
    paths = kept(model_dir)
    unfinished = sorted(set((model_dir / FOLDER).glob(f"{STEP}-*.npz")) - set(paths))
    if not paths and len(unfinished) > 1:  # A kill leaves one at most.
        raise DamagedError(f"{unfinished[-1]} and others have no manifest (.json). Copy those too, or give another --model_dir.")
    for path in unfinished:
        say(f"{path} has no manifest: it is unfinished, and is not used.")
    for path in reversed(paths):
        try:
            return path, restore(path, model, optimizer)
        except DamagedError as error:
            say(f"{error} The checkpoint before it is used.")
    if paths:
        raise DamagedError(
            f"No checkpoint in {model_dir / FOLDER} is whole. Restore a copy of one, or give another --model_dir to start anew."
        )
    return None


def put_aside(model_dir: pathlib.Path, after: pathlib.Path) -> None:
    """Gives checkpoints newer than a whole one, which were found damaged, the ending `.damaged`."""
    for path in kept(model_dir):
        if step_of(path) > step_of(after):
            _manifest(path).unlink()
            if path.exists():
                path.rename(path.with_suffix(".damaged"))


def kept(model_dir: pathlib.Path, kind: str = STEP) -> list[pathlib.Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((path.with_suffix(".npz") for path in (model_dir / FOLDER).glob(f"{kind}-*.json")), key=step_of)


def path_of(model_dir: pathlib.Path, step: int, kind: str = STEP) -> pathlib.Path:
    """Where the checkpoint of an update is."""
    return model_dir / FOLDER / f"{kind}-{step:09d}.npz"


def step_of(path: pathlib.Path) -> int:
    """The update a checkpoint was written after."""
    return int(re.fullmatch(rf"(?:{STEP}|{BEST})-(\d+)", path.stem).group(1))


def remove_old(model_dir: pathlib.Path, keep: int, kind: str = STEP, last: int = sys.maxsize) -> None:
    """Keeps the newest checkpoints of a kind up to an update; removes others, and what a kill left unfinished."""
    newest = [path for path in kept(model_dir, kind) if step_of(path) <= last][-keep:]
    for path in kept(model_dir, kind):
        if path not in newest:
            _manifest(path).unlink()
    for pattern in ("*.tmp", f"{kind}-*.npz"):
        for path in (model_dir / FOLDER).glob(pattern):
            if path not in newest:
                path.unlink()


def load_average(paths: list[pathlib.Path], model) -> dict:
    """Sets a model to the mean of some checkpoints' weights, summed in float64 (section 6.1); returns the last one's `state`."""
    variables = model_variables(model)
    total = {name: np.zeros(variable.shape, np.float64) for name, variable in variables.items()}
    for path in paths:
        arrays, state = _read(path, variables)
        for name, array in arrays.items():
            total[name] += array
    for name, variable in variables.items():
        variable.assign(total[name] / len(paths))
    return state


def _chosen(model_dir: pathlib.Path, which: str) -> list[pathlib.Path]:
    paths = {"average": kept(model_dir), "latest": kept(model_dir)[-1:], "best": kept(model_dir, BEST)[-1:]}
    if which not in paths:
        raise ValueError(f"--checkpoint must be one of {', '.join(paths)}. Received: {which}.")
    if not paths[which]:
        raise FileNotFoundError(f"No checkpoint for --checkpoint={which} in {model_dir}. Train first, or give another --model_dir.")
    return paths[which]


def load(model_dir: pathlib.Path, which: str, model) -> tuple[str, dict]:
    """Sets a model to a run's `average`, `best` or `latest` weights.

    A run that goes on meanwhile may remove one that is to be read; those of the moment are read then.

    Returns:
        What was loaded, for people to read, and the `state` of the newest of it.

    Raises:
        FileNotFoundError: there is none.
        DamagedError: one is not what was written.
    """
    paths = _chosen(model_dir, which)
    try:
        state = load_average(paths, model)
    except (FileNotFoundError, DamagedError):
        if set(paths) <= set(_chosen(model_dir, which)):
            raise
        return load(model_dir, which, model)
    steps = ", ".join(str(step_of(path)) for path in paths)
    return f"{which} of {model_dir}: update{'s' * (len(paths) > 1)} {steps}", state
