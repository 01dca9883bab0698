"""Checkpoints (section 6.1): written so that a kill never leaves a broken one, and found out if the disk breaks one; their average.

A checkpoint is a NumPy `.npz` archive of plain arrays, `model/…` and `optimizer/…` by the variables' paths, and `state`, a
JSON text; and, written last, a manifest of the same name in `.json`: the archive's size and SHA-256. Without its manifest
an archive is unfinished and does not count. It is read without unpickling, and an array is read only if its name, shape and
dtype are those of a variable, and it is not compressed: a file cannot take more memory than it has bytes.

Files of other names than `path_of` gives are somebody's own: they are not used, and not removed.
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
STEP, BEST = "step", "best"  # Kinds of checkpoints: the newest, and that of the best validation.
AVERAGE, LATEST = "average", "latest"  # With BEST or a step, what `load` takes.
MOST_STATE = 2**20  # Bytes of a checkpoint's state.
_NAME = re.compile(rf"({STEP}|{BEST})-([0-9]{{9}}|[1-9][0-9]{{9,17}})\.(npz|json|tmp|json\.tmp|damaged)")


def model_variables(model) -> dict:
    """A model's weights by name; random seeds are not among them."""
    return {f"model/{variable.path}": variable for variable in model.trainable_variables}


def _optimizer_variables(optimizer) -> dict:
    return {f"optimizer/{variable.path}": variable for variable in optimizer.variables}


class DamagedError(ValueError):
    """A checkpoint is not what was written."""


def _manifest(path: pathlib.Path) -> pathlib.Path:
    return path.with_suffix(".json")


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
        described = json.dumps(describe(unfinished)).encode()
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
    """A checkpoint is whole, and of another model."""


def _array(archive: zipfile.ZipFile, name: str, expected: tuple | None) -> np.ndarray:
    """An array of an open `.npz`. Its header is checked before its content is read.

    Args:
        archive: the file.
        name: of the array.
        expected: its shape and the name of its dtype; None: a text of at most MOST_STATE bytes.
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
        if not expected and ((shape, dtype.kind) != ((), "U") or size > MOST_STATE):
            raise ValueError(f"'{name}' is not a text of at most {MOST_STATE:,} bytes")
        if member.file_size != file.tell() + size:
            raise ValueError(f"'{name}' does not have the size that its header says")
        return np.frombuffer(file.read(), dtype).reshape(shape, order="F" if fortran_order else "C")


def _read(path: pathlib.Path, variables: dict) -> tuple[dict, dict]:
    """The arrays of these names, of the variables' shapes and dtypes, and the state."""
    _verify(path)
    prefixes = tuple({name.split("/")[0] + "/" for name in variables})  # `()` matches nothing.
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist() if name.startswith(prefixes)}
            for those, verb in ((set(variables) - names, "has no"), (names - set(variables), "has")):
                if those:
                    raise _OtherModelError(f"{path} {verb} '{min(those)}' and {len(those) - 1} others: it is of another model.")
            arrays = {name: _array(archive, name, (tuple(each.shape), each.dtype)) for name, each in variables.items()}
            state = json.loads(str(_array(archive, "state", None)))
        if not isinstance(state, dict):
            raise ValueError("its state is not a JSON object")
    except _OtherModelError:
        raise
    except Exception as error:
        raise DamagedError(f"{path} is no checkpoint ({error}).") from error
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


def restore_newest(model_dir: pathlib.Path, model, optimizer) -> tuple[pathlib.Path, dict] | None:
    """Restores the newest checkpoint that is what was written, and tells of newer ones that are not; None: there is none at all.

    Raises:
        DamagedError: every one is.
        ValueError: it is of another model.
    """
    paths = kept(model_dir)
    unfinished = sorted(set(_files(model_dir, (STEP,), ("npz",))) - set(paths))
    if not paths and len(unfinished) > 1:  # A kill leaves one at most.
        raise DamagedError(f"{unfinished[-1]} and others have no manifest (.json). Copy those too, or give another --model_dir.")
    for path in unfinished:
        logger.warning(f"{path} has no manifest: it is unfinished, and is not used.")
    for path in reversed(paths):
        try:
            return path, restore(path, model, optimizer)
        except DamagedError as error:
            logger.warning(f"{error} The checkpoint before it is used.")
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


def _files(model_dir: pathlib.Path, kinds: tuple[str, ...], endings: tuple[str, ...]) -> list[pathlib.Path]:
    """The files of a run of these kinds and endings, as `path_of` names them."""
    names = ((path, _NAME.fullmatch(path.name)) for path in (model_dir / FOLDER).glob("*"))
    return [path for path, name in names if name and name[1] in kinds and name[3] in endings and not path.is_dir()]


def kept(model_dir: pathlib.Path, kind: str = STEP) -> list[pathlib.Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((path.with_suffix(".npz") for path in _files(model_dir, (kind,), ("json",))), key=step_of)


def path_of(model_dir: pathlib.Path, step: int, kind: str = STEP) -> pathlib.Path:
    """Where the checkpoint of an update is."""
    return model_dir / FOLDER / f"{kind}-{step:09d}.npz"


def step_of(path: pathlib.Path) -> int:
    """The update a checkpoint was written after."""
    return int(_NAME.fullmatch(path.name)[2])


def remove_old(model_dir: pathlib.Path, keep: int, kind: str = STEP, last: int = sys.maxsize) -> None:
    """Keeps the newest checkpoints of a kind up to an update; removes others, and what a kill left unfinished."""
    newest = [path for path in kept(model_dir, kind) if step_of(path) <= last][-keep:]
    for path in kept(model_dir, kind):
        if path not in newest:
            _manifest(path).unlink()
    for path in _files(model_dir, (kind,), ("npz",)) + _files(model_dir, (STEP, BEST), ("tmp", "json.tmp")):
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
    steps, best = kept(model_dir), kept(model_dir, BEST)
    paths = {AVERAGE: steps, LATEST: steps[-1:], BEST: best[-1:]}
    if which not in paths and not re.fullmatch("[0-9]{1,18}", which):
        raise ValueError(f"--checkpoint must be one of {', '.join(paths)}, or the number of an update. Received: {which}.")
    chosen = paths[which] if which in paths else [path for path in (*steps, *best) if step_of(path) == int(which)][:1]
    if not chosen:
        there = "; ".join(
            f"{kind}: {', '.join(str(step_of(path)) for path in found)}" for kind, found in ((STEP, steps), (BEST, best)) if found
        )
        advice = f"There are {there}." if there else "Train first, or give another --model_dir."
        raise FileNotFoundError(f"No checkpoint for --checkpoint={which} in {model_dir}. {advice}")
    return chosen


def check_size(model_dir: pathlib.Path, which: str, weights: int) -> None:
    """Stops where all files that `load` would read are too small for a model, before that takes memory.

    Args:
        model_dir: a run's folder.
        which: see `load`.
        weights: how many the model has.

    Raises:
        FileNotFoundError: there is none.
        DamagedError: naming the largest.
    """
    sizes = {path: path.stat().st_size for path in _chosen(model_dir, which) if path.exists()}
    largest = max(sizes, key=sizes.get, default=None)
    if largest and sizes[largest] < 4 * weights:
        received = f"{sizes[largest]:,} bytes"
        raise DamagedError(f"Expected {weights:,} float32 weights in {largest}. Received {received}: damaged, or of another model.")


def load(model_dir: pathlib.Path, which: str, model) -> tuple[str, dict]:
    """Sets a model to a run's `average`, `best` or `latest` weights, or those after an update, by its number.

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
    what = "checkpoint" if which.isdecimal() else which
    return f"{what} of {model_dir}: update{'s' * (len(paths) > 1)} {steps}", state
