"""Checkpoints and their average (section 6.1). Checkpoints are written atomically and verified when they are read.

A checkpoint is a NumPy `.npz` archive of arrays, named `model/…` and `optimizer/…` after the paths of the variables, and of `state`, a
JSON text. Its manifest, a `.json` file of the same name, has the size and SHA-256 of the archive and is written last. An archive
without a manifest is unfinished and is ignored. Arrays are read without unpickling, and only if they are not compressed and have the
name, shape and dtype of a variable: reading a file never takes more memory than the size of the file.

Files with names that `path_of` does not give are the user's: they are neither used nor removed.
"""

import contextlib
import json
import math
import os
import pathlib
import re
import sys
import zipfile

import numpy as np
from numpy.lib import format as npy

from t2t_keras.files import describe, read_json, write_whole
from t2t_keras.log import logger

FOLDER = "checkpoints"
STEP, BEST = "step", "best"  # Kinds of checkpoints: the newest ones, and the one with the best validation.
AVERAGE, LATEST = "average", "latest"  # Besides BEST and the number of an update, the choices of `load`.
MAX_STATE = 2**20  # Maximum size of a checkpoint's state in bytes.
_NAME = re.compile(rf"({STEP}|{BEST})-([0-9]{{9}}|[1-9][0-9]{{9,17}})\.(npz|json|tmp|json\.tmp|damaged)")


def model_variables(model) -> dict:
    """Returns a model's weights by name, without the states of its random generators."""
    return {f"model/{variable.path}": variable for variable in model.trainable_variables}


def _optimizer_variables(optimizer) -> dict:
    return {f"optimizer/{variable.path}": variable for variable in optimizer.variables}


class DamagedError(ValueError):
    """A checkpoint is damaged: it differs from what was written."""


def _manifest(path: pathlib.Path) -> pathlib.Path:
    return path.with_suffix(".json")


def _sync(path: pathlib.Path) -> None:
    """Waits until a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: pathlib.Path, model, optimizer, state: dict) -> None:
    """Writes a checkpoint atomically: if the process is killed, there is either a complete checkpoint or none.

    Args:
        path: the archive, as `path_of` gives it.
        model: the model.
        optimizer: the optimizer.
        state: other values to keep, as a JSON object.

    Raises:
        OSError: the disk is full, or a permission is missing. Earlier checkpoints are unchanged.
    """
    variables = {**model_variables(model), **_optimizer_variables(optimizer)}
    arrays = {name: np.asarray(variable) for name, variable in variables.items()}
    unfinished = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            np.savez(file, state=np.array(json.dumps(state)), **arrays)
        _sync(unfinished)
        described = json.dumps(describe(unfinished)).encode()
        _manifest(path).unlink(missing_ok=True)  # Of an earlier archive of this name.
        os.replace(unfinished, path)
        write_whole(_manifest(path), described)
        _sync(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise OSError(
            f"Could not write {path} ({error.strerror or error}). Earlier checkpoints are unchanged: make room, or give "
            "permission, and run the same command again."
        ) from error


def _verify(path: pathlib.Path) -> None:
    """Raises `DamagedError` unless an archive matches its manifest."""
    try:
        expected = read_json(_manifest(path))
    except ValueError as error:
        raise DamagedError(str(error)) from error
    if not path.exists():
        raise DamagedError(f"{path} is missing; only its manifest is there.")
    try:
        received = describe(path)
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror or error}).") from error
    if received != expected:
        raise DamagedError(f"{path} is damaged. Expected: {expected}. Received: {received}.")


class _OtherModelError(ValueError):
    """A checkpoint is intact but belongs to another model."""


def _array(archive: zipfile.ZipFile, name: str, expected: tuple | None) -> np.ndarray:
    """Reads an array of an open `.npz` archive. The header is checked before the content is read.

    Args:
        archive: the archive.
        name: name of the array.
        expected: shape and name of the dtype. `None` expects a text of at most `MAX_STATE` bytes.

    Raises:
        _OtherModelError: the array has another shape or dtype.
        ValueError: the array is compressed or damaged.
    """
    member = archive.getinfo(f"{name}.npy")
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"'{name}' is compressed")
    with archive.open(member) as file:
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(file)]
        shape, fortran_order, dtype = read_header(file)
        size = dtype.itemsize * math.prod(shape)
        if expected and (shape, dtype.name) != expected:
            raise _OtherModelError(f"Expected '{name}' of shape and dtype {expected} in {archive.filename}. Received: {shape, dtype.name}.")
        if not expected and ((shape, dtype.kind) != ((), "U") or size > MAX_STATE):
            raise ValueError(f"'{name}' is not a text of at most {MAX_STATE:,} bytes")
        if member.file_size != file.tell() + size:
            raise ValueError(f"'{name}' does not have the size that its header says")
        return np.frombuffer(file.read(), dtype).reshape(shape, order="F" if fortran_order else "C")


def _read(path: pathlib.Path, variables: dict) -> tuple[dict, dict]:
    """Reads a checkpoint.

    Args:
        path: the archive.
        variables: the variables to read, by name.

    Returns:
        The arrays by name, and the state.

    Raises:
        DamagedError: the checkpoint is damaged.
        ValueError: the checkpoint belongs to another model.
    """
    _verify(path)
    prefixes = tuple({name.split("/")[0] + "/" for name in variables})  # `()` matches nothing.
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist() if name.startswith(prefixes)}
            for differing, verb in ((set(variables) - names, "has no"), (names - set(variables), "has")):
                if differing:
                    raise _OtherModelError(f"{path} {verb} '{min(differing)}' and {len(differing) - 1} others: it is of another model.")
            arrays = {name: _array(archive, name, (tuple(each.shape), each.dtype)) for name, each in variables.items()}
            state = json.loads(str(_array(archive, "state", None)))
        if not isinstance(state, dict):
            raise ValueError("its state is not a JSON object")
    except _OtherModelError:
        raise
    except Exception as error:
        raise DamagedError(f"{path} is not a valid checkpoint ({error}).") from error
    return arrays, state


def restore(path: pathlib.Path, model, optimizer) -> dict:
    """Loads a checkpoint into a model and its optimizer, whose slots must already exist.

    Returns:
        The checkpoint's `state`.

    Raises:
        DamagedError: the checkpoint is damaged.
        ValueError: the checkpoint belongs to another model.
    """
    variables = {**model_variables(model), **_optimizer_variables(optimizer)}
    arrays, state = _read(path, variables)
    for name, array in arrays.items():
        variables[name].assign(array)
    return state


def restore_newest(model_dir: pathlib.Path, model, optimizer) -> tuple[pathlib.Path, dict] | None:
    """Loads the newest intact checkpoint and logs a warning for each newer one that is damaged.

    Returns:
        The path and the `state` of the checkpoint, or `None` if the folder has no checkpoint.

    Raises:
        DamagedError: all checkpoints are damaged.
        ValueError: the checkpoint belongs to another model.
    """
    paths = kept(model_dir)
    unfinished = sorted(set(_files(model_dir, (STEP,), ("npz",))) - set(paths))
    if not paths and len(unfinished) > 1:  # A kill leaves at most one.
        raise DamagedError(f"{unfinished[-1]} and others have no manifest (.json). Copy the manifests too, or give another `model_dir`.")
    for path in unfinished:
        logger.warning(f"{path} has no manifest: it is unfinished and is not used.")
    for path in reversed(paths):
        try:
            return path, restore(path, model, optimizer)
        except DamagedError as error:
            logger.warning(f"{error} Trying the checkpoint before it.")
    if paths:
        raise DamagedError(
            f"No checkpoint in {model_dir / FOLDER} is intact. Restore a copy of one, or give another `model_dir` to start a new run."
        )
    return None


def put_aside(model_dir: pathlib.Path, after: pathlib.Path) -> None:
    """Renames the checkpoints newer than `after`, which are damaged, to names that end in `.damaged`."""
    for path in kept(model_dir):
        if step_of(path) > step_of(after):
            _manifest(path).unlink()
            if path.exists():
                path.rename(path.with_suffix(".damaged"))


def _files(model_dir: pathlib.Path, kinds: tuple[str, ...], endings: tuple[str, ...]) -> list[pathlib.Path]:
    """Returns a run's checkpoint files of some kinds, with some endings."""
    names = ((path, _NAME.fullmatch(path.name)) for path in (model_dir / FOLDER).glob("*"))
    return [path for path, name in names if name and name[1] in kinds and name[3] in endings and not path.is_dir()]


def kept(model_dir: pathlib.Path, kind: str = STEP) -> list[pathlib.Path]:
    """Returns the checkpoints of a run, oldest first."""
    return sorted((path.with_suffix(".npz") for path in _files(model_dir, (kind,), ("json",))), key=step_of)


def path_of(model_dir: pathlib.Path, step: int, kind: str = STEP) -> pathlib.Path:
    """Returns the path of the checkpoint of an update."""
    return model_dir / FOLDER / f"{kind}-{step:09d}.npz"


def step_of(path: pathlib.Path) -> int:
    """Returns the number of the update after which a checkpoint was written."""
    return int(_NAME.fullmatch(path.name)[2])


def remove_old(model_dir: pathlib.Path, keep: int, kind: str = STEP, last: int = sys.maxsize) -> None:
    """Removes old checkpoints of a kind, and unfinished files.

    Args:
        model_dir: the run's folder.
        keep: number of newest checkpoints to keep.
        kind: `STEP` or `BEST`.
        last: removes checkpoints of later updates too.
    """
    newest = [path for path in kept(model_dir, kind) if step_of(path) <= last][-keep:]
    for path in kept(model_dir, kind):
        if path not in newest:
            _manifest(path).unlink()
    for path in _files(model_dir, (kind,), ("npz",)) + _files(model_dir, (STEP, BEST), ("tmp", "json.tmp")):
        if path not in newest:
            path.unlink()


def load_average(paths: list[pathlib.Path], model) -> dict:
    """Loads the average of some checkpoints into a model (section 6.1). Sums are in float64.

    Returns:
        The `state` of the last checkpoint.

    Raises:
        DamagedError: a checkpoint is damaged.
        ValueError: a checkpoint belongs to another model.
    """
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
    """Returns the checkpoints that `load` reads."""
    steps, best = kept(model_dir), kept(model_dir, BEST)
    paths = {AVERAGE: steps, LATEST: steps[-1:], BEST: best[-1:]}
    if which not in paths and not re.fullmatch("[0-9]{1,18}", which):
        raise ValueError(f"Expected `checkpoint` to be one of {', '.join(paths)}, or the number of an update. Received: {which}.")
    chosen = paths[which] if which in paths else [path for path in (*steps, *best) if step_of(path) == int(which)][:1]
    if not chosen:
        available = "; ".join(
            f"{kind}: {', '.join(str(step_of(path)) for path in found)}" for kind, found in ((STEP, steps), (BEST, best)) if found
        )
        advice = f"There are {available}." if available else "Train first, or give another `model_dir`."
        raise FileNotFoundError(f"No checkpoint for `checkpoint={which}` in {model_dir}. {advice}")
    return chosen


def check_size(model_dir: pathlib.Path, which: str, weights: int) -> None:
    """Checks the size of the files that `load` reads, before a model takes memory.

    Args:
        model_dir: the run's folder.
        which: see `load`.
        weights: number of weights in the model.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        DamagedError: all files are too small for the weights; the message names the largest.
    """
    sizes = {path: path.stat().st_size for path in _chosen(model_dir, which) if path.exists()}
    largest = max(sizes, key=sizes.get, default=None)
    if largest and sizes[largest] < 4 * weights:
        received = f"{sizes[largest]:,} bytes"
        raise DamagedError(f"Expected {weights:,} float32 weights in {largest}. Received {received}: damaged, or of another model.")


def load(model_dir: pathlib.Path, which: str, model) -> tuple[str, dict]:
    """Loads weights of a run into a model.

    If training goes on and removes a checkpoint before it is read, the choice is made again.

    Args:
        model_dir: the run's folder.
        which: `average`, `best`, `latest` or the number of an update.
        model: the model.

    Returns:
        A description of what was loaded, and the `state` of its newest checkpoint.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        DamagedError: a checkpoint is damaged.
        ValueError: `which` is invalid, or a checkpoint belongs to another model.
    """
    paths = _chosen(model_dir, which)
    try:
        state = load_average(paths, model)
    except (FileNotFoundError, DamagedError):
        if set(paths) <= set(_chosen(model_dir, which)):
            raise
        return load(model_dir, which, model)
    steps = ", ".join(str(step_of(path)) for path in paths)
    what = "checkpoint" if which.isdecimal() else which
    return f"{what} of {model_dir}: update{'s' * (len(paths) > 1)} {steps}", state
