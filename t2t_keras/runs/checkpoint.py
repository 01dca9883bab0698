"""Checkpoints and their average (section 6.1). Checkpoints are written atomically and verified when they are read.

A checkpoint is a NumPy `.npz` archive of arrays, named `model/…` and `optimizer/…` after the paths of the variables,
with `ema_decay` also `ema/…` for the moving averages of the weights, and of `state`, a JSON text. Its manifest, a
`.json` file of the same name, has the size and SHA-256 of the archive and is written last. An archive without a
manifest is unfinished and is ignored. While a checkpoint of the same name is replaced, the manifest has both. Arrays
are read without unpickling, and only if they are not compressed and have the name, shape and dtype of a variable:
reading a file never takes more memory than the size of the file.

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
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.lib import format as npy

from t2t_keras.config import AVERAGE, BEST, CHECKPOINTS, EMA, LATEST, is_checkpoint
from t2t_keras.runs.weights import Left, MismatchError, Names, assign, match
from t2t_keras.system import machine
from t2t_keras.system.files import UNFINISHED, check_ends, describe, read_json, replacing, write_whole
from t2t_keras.system.log import logger

FOLDER = "checkpoints"
STEP = "step"  # The kind of the newest checkpoints; `BEST` is that of the one with the best validation.
_EARLIER = "earlier"  # In a manifest: the description of the archive that is being replaced.
MAX_STATE = 2**20  # Maximum size of a checkpoint's state in bytes.
_BYTES_OF_WEIGHT = 4 + 8  # While it is loaded: what is read, and the sum for an average; without the model itself.
# Largest weight that is loaded, of either sign. Trained ones are far smaller, and much larger ones overflow.
MAX_WEIGHT = 1e6
_NO_ARCHIVE = (OSError, ValueError, NotImplementedError, zipfile.BadZipFile)  # Errors of opening another file as one.
# What to say of an archive that lacks a kind of array.
_MISSING = {
    "optimizer/": "has no optimizer, so training cannot be resumed from it. Start a new run from its weights.",
    "ema/": "has no moving average of the weights. Choose another checkpoint, or train with `ema_decay`.",
}
_NAME = re.compile(
    rf"({STEP}|{BEST})-([0-9]{{9}}|[1-9][0-9]{{9,17}})\.(npz|json|damaged|tmp|json\.tmp|(?:npz|json)\.{UNFINISHED})"
)


def model_variables(model) -> dict:
    """Returns a model's weights by name, without the states of its random generators. Two weights of one name are an
    error: a checkpoint would lose one of them.
    """
    variables = {}
    for variable in model.weights:
        if variables.setdefault(f"model/{variable.path}", variable) is not variable:
            raise ValueError(
                f"Expected weights with different names. Received: two of '{variable.path}'. Name the layers "
                "differently."
            )
    return variables


def _all_variables(model, optimizer) -> dict:
    variables = weights = model_variables(model)
    averages = getattr(optimizer, "averages", {})
    if averages:  # A weight that is not trained is its own average.
        variables = weights | {f"ema/{weight.path}": averages.get(weight.path, weight) for weight in weights.values()}
    own = {id(average) for average in averages.values()}
    of_optimizer = [variable for variable in (optimizer.variables if optimizer else ()) if id(variable) not in own]
    return variables | {f"optimizer/{variable.path}": variable for variable in of_optimizer}


class DamagedError(ValueError):
    """A checkpoint is damaged: it differs from what was written."""


def _manifest(path: pathlib.Path) -> pathlib.Path:
    return path.with_suffix(".json")


def _sync_names(folder: pathlib.Path) -> None:
    """Waits until the names in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: pathlib.Path, model, optimizer, state: dict) -> None:
    """Writes a checkpoint, the archive `path` as `path_of` gives it: the model, the optimizer and `state`, a JSON
    object. It is atomic: if the process is killed or the disk is full, earlier checkpoints are unchanged.

    `None` for the optimizer writes none: the checkpoint can be loaded and averaged, but training cannot be resumed.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            # Each becomes an array in turn.
            np.savez(file, state=np.array(json.dumps(state)), **_all_variables(model, optimizer))
            file.flush()
            os.fsync(file.fileno())
            described, manifest = describe(pathlib.Path(file.name)), _manifest(path)
            try:  # Until the new archive is in its place, an earlier one of this name is valid too.
                earlier = _description(path) if manifest.exists() else {}
            except DamagedError:
                earlier = {}
                manifest.unlink()
            if earlier:
                write_whole(manifest, json.dumps(described | {_EARLIER: earlier}).encode())
        write_whole(manifest, json.dumps(described).encode())
        _sync_names(path.parent)
    except OSError as error:
        raise OSError(
            f"Could not write {path} ({error.strerror or error}). Earlier checkpoints are unchanged: free space, or "
            "give permission, and run the same command again."
        ) from error


def _description(path: pathlib.Path) -> dict:
    """Returns the size and SHA-256 of an archive that is in its place."""
    descriptions = _descriptions(path)
    if len(descriptions) == 1 or not path.exists():
        return descriptions[0]
    found = describe(path)
    return found if found in descriptions else descriptions[0]


def _descriptions(path: pathlib.Path) -> list[dict]:
    """Returns the size and SHA-256 of an archive, and those of the one that it replaces if that was interrupted."""
    try:
        manifest = read_json(_manifest(path))
    except ValueError as error:
        raise DamagedError(str(error)) from error
    earlier = manifest.pop(_EARLIER, None)
    return [manifest, *([earlier] if isinstance(earlier, dict) else [])]


def _verify(path: pathlib.Path) -> None:
    """Raises `DamagedError` unless an archive matches its manifest."""
    expected = _descriptions(path)
    if not path.exists():
        raise DamagedError(f"{path} is missing; only its manifest is there.")
    try:
        check_ends(path)
        size = path.stat().st_size
        received = describe(path) if size in [each.get("bytes") for each in expected] else {"bytes": size}
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror or error}).") from error
    if received not in expected:
        raise DamagedError(f"{path} is damaged. Expected: {_shown(expected[0])}. Received: {_shown(received)}.")


def _shown(description: dict) -> str:
    """Returns the description of a file for messages. A manifest may hold anything."""
    size, digest = description.get("bytes"), description.get("sha256", "")
    if not isinstance(size, int) or not isinstance(digest, str):
        return f"{description!r:.80}"
    return f"{size:,} bytes{f' with SHA-256 {digest:.64}' if digest else ''}"


class _Header(NamedTuple):
    """What an archive says about an array before its content is read."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype
    size: int  # In bytes, without the header.
    member: zipfile.ZipInfo


def _header(archive: zipfile.ZipFile, name: str) -> _Header:
    """Reads the header of an array of an open `.npz` archive."""
    member = archive.getinfo(f"{name}.npy")
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"'{name}' is compressed")
    with archive.open(member) as file:
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(file)]
        return _Header(*read_header(file), member.file_size - file.tell(), member)


def _content(archive: zipfile.ZipFile, header: _Header) -> np.ndarray:
    """Reads the content of an array. Its size is checked first."""
    member = header.member
    if header.size != header.dtype.itemsize * math.prod(header.shape):
        raise ValueError(f"'{member.filename}' does not have the size that its header says")
    content = np.frombuffer(archive.read(member), header.dtype, offset=member.file_size - header.size)
    return content.reshape(header.shape, order="F" if header.fortran_order else "C")


def _read(
    path: pathlib.Path, variables: dict, names: Names = str, partial: bool = False, ema: bool = False
) -> tuple[dict, Left, dict]:
    """Reads the arrays of `variables` from a checkpoint, or with `ema` their moving averages: the names first, then the
    headers of the arrays that are needed, then their contents. `names` and `partial` are those of `weights.assign`.

    Returns the arrays by name of the variable, what is left, and the state. Raises `DamagedError`, or `MismatchError`
    if the checkpoint belongs to another model or lacks the optimizer or the moving averages.
    """
    _verify(path)
    prefixes = ("ema/",) if ema else tuple({name.split("/")[0] + "/" for name in variables})  # `()` matches nothing.
    try:
        with zipfile.ZipFile(path) as archive:
            stored = [name.removesuffix(".npy") for name in archive.namelist() if name.startswith(prefixes)]
            for prefix, message in _MISSING.items():
                if prefix in prefixes and not any(name.startswith(prefix) for name in stored):
                    raise MismatchError(f"{path} {message}")
            members = {name.replace("ema/", "model/", 1) if ema else name: name for name in stored}

            def header_of(name: str) -> _Header:
                return _header(archive, members[name])

            headers, left = match(variables, members, header_of, names, source=path, partial=partial)
            arrays = {name: _content(archive, header) for name, header in headers.items()}
            header = _header(archive, "state")
            if (header.shape, header.dtype.kind) != ((), "U") or header.size > MAX_STATE:
                raise ValueError(f"its state is not a text of at most {MAX_STATE:,} bytes")
            state = json.loads(str(_content(archive, header)))
        if not isinstance(state, dict):
            raise ValueError("its state is not a JSON object")
    except MismatchError:
        raise
    except Exception as error:
        raise DamagedError(f"{path} is not a valid checkpoint ({error}).") from error
    return arrays, left, state


def restore(path: pathlib.Path, model, optimizer) -> dict:
    """Loads a checkpoint into a model and its optimizer, whose slots must already exist, and returns its `state`.
    Raises `DamagedError`, or `MismatchError` if it belongs to another model or has no optimizer.
    """
    variables = _all_variables(model, optimizer)
    arrays, _, state = _read(path, variables)
    assign(variables, arrays, source=path)
    return state


def restore_newest(model_dir: pathlib.Path, model, optimizer) -> tuple[pathlib.Path, dict] | None:
    """Loads the newest intact checkpoint, with a warning for each newer one that is damaged; raises `DamagedError` if
    all are. Returns its path and `state`, or `None` if the folder has no checkpoint.
    """
    paths = kept(model_dir)
    unfinished = sorted(set(_files(model_dir, (STEP,), ("npz",))) - set(paths))
    if not paths and len(unfinished) > 1:  # A kill leaves at most one.
        raise DamagedError(
            f"{unfinished[-1]} and others have no manifest (.json). Copy the manifests too, or give another "
            "`model_dir`."
        )
    for path in unfinished:
        logger.warning(f"{path} has no manifest: it is unfinished and is not used.")
    for path in reversed(paths):
        try:
            return path, restore(path, model, optimizer)
        except DamagedError as error:
            logger.warning(f"{error} Trying the checkpoint before it.")
    if paths:
        raise DamagedError(
            f"No checkpoint in {model_dir / FOLDER} is intact. Restore a copy of one, or give another `model_dir` to "
            "start a new run."
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
    return [
        path
        for path, name in names
        if name and name[1] in kinds and name[3].rpartition(".")[2] in endings and not path.is_dir()
    ]


def kept(model_dir: pathlib.Path, kind: str = STEP) -> list[pathlib.Path]:
    """Returns the checkpoints of a run, oldest first."""
    return sorted((path.with_suffix(".npz") for path in _files(model_dir, (kind,), ("json",))), key=step_of)


def path_of(model_dir: pathlib.Path, step: int, kind: str = STEP) -> pathlib.Path:
    """Returns the path of the checkpoint of an update."""
    return model_dir / FOLDER / f"{kind}-{step:09d}.npz"


def step_of(path: pathlib.Path) -> int:
    """Returns the number of the update after which a checkpoint was written."""
    return int(_NAME.fullmatch(path.name)[2])


def remove(path: pathlib.Path) -> None:
    """Removes a checkpoint, if it is still there."""
    _manifest(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def remove_old(model_dir: pathlib.Path, keep: int, kind: str = STEP, last: int = sys.maxsize) -> None:
    """Removes all checkpoints of a kind but the `keep` newest up to update `last`, and unfinished files."""
    newest = [path for path in kept(model_dir, kind) if step_of(path) <= last][-keep:]
    for path in kept(model_dir, kind):
        if path not in newest:
            _manifest(path).unlink()
    for path in _files(model_dir, (kind,), ("npz",)) + _files(model_dir, (STEP, BEST), ("tmp",)):
        if path not in newest:
            path.unlink()


def _chosen(model_dir: pathlib.Path, which: str) -> list[pathlib.Path]:
    """Returns the checkpoints that `load` reads."""
    steps, best = kept(model_dir), kept(model_dir, BEST)
    paths = {AVERAGE: steps, LATEST: steps[-1:], EMA: steps[-1:], BEST: best[-1:]}
    if not is_checkpoint(which):
        raise ValueError(
            f"Expected `checkpoint` to be one of {', '.join(CHECKPOINTS)}, or the number of an update. Received: "
            f"{which}."
        )
    chosen = paths[which] if which in paths else [path for path in (*steps, *best) if step_of(path) == int(which)][:1]
    if not chosen:
        available = "; ".join(
            f"{kind}: {', '.join(str(step_of(path)) for path in found)}"
            for kind, found in (("updates", steps), (BEST, best))
            if found
        )
        advice = f"There are {available}." if available else "Train first, or give another `model_dir`."
        raise FileNotFoundError(f"No checkpoint for `checkpoint={which}` in {model_dir}. {advice}")
    return chosen


def identity(model_dir: pathlib.Path, which: str) -> dict[str, dict]:
    """Returns the size and SHA-256 of the files that `load` reads, by name; raises its errors."""
    return {path.name: _description(path) for path in _chosen(model_dir, which)}


def check_size(model_dir: pathlib.Path, which: str, weights: int) -> None:
    """Checks that the files that `load` reads hold a model's number of weights, else raises `DamagedError`, and that
    they fit into the free memory, before the model is made.
    """
    sizes = {path: _size_of_weights(path) for path in _chosen(model_dir, which) if path.exists()}
    largest = max(sizes, key=sizes.get, default=None)
    if largest and sizes[largest] < 4 * weights:
        received = f"{sizes[largest]:,} bytes"
        raise DamagedError(
            f"Expected {weights:,} float32 weights in {largest}. Received {received}: damaged, or of another model."
        )
    if (needed := _BYTES_OF_WEIGHT * weights) > (free := machine.free_memory()):
        raise ValueError(
            f"Expected a model that fits into the free memory, {free / 1e9:.1f} GB. Received: {model_dir} with "
            f"{weights:,} weights, which take {needed / 1e9:,.1f} GB while they are loaded."
        )


def _size_of_weights(path: pathlib.Path) -> int:
    """Returns the bytes of a model's weights in an archive, or of a whole file that is none, whose reader tells so."""
    size = path.stat().st_size
    if not path.is_file():  # Opening a pipe would wait for somebody to write into it.
        return size
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member.file_size for member in archive.infolist()}
    except _NO_ARCHIVE:
        return size
    return min(size, sum(bytes_ for name, bytes_ in members.items() if name.startswith("model/")))


def load(model_dir: pathlib.Path, which: str, model) -> tuple[str, dict]:
    """Loads weights of a run into a model: `which` is `average`, `best`, `latest`, `ema` or the number of an update.
    Returns a description of what was loaded, and the `state` of its newest checkpoint.

    If training removes a checkpoint before it is read, the choice is made again. Raises `FileNotFoundError` if there is
    no such checkpoint, `DamagedError` if one is damaged, `MismatchError` if it belongs to another model, and
    `ValueError` if `which` is invalid or a weight is NaN or larger than `MAX_WEIGHT`.
    """
    description, _, state = _load(model_dir, which, model)
    return description, state


def start(model_dir: pathlib.Path, which: str, model, names: Names = str) -> tuple[str, Left]:
    """Starts a model from the weights of a run whose names match, without the run's optimizer and state. Returns a
    description of what was loaded, and the names that do not match. Raises the errors of `load`, and `MismatchError` if
    no name matches or a weight has another shape.

    `names` maps the name of a weight of the model, as `model_variables` gives it, to its name in the checkpoint, or to
    `None` to keep its value.
    """
    return _load(model_dir, which, model, names, partial=True)[:2]


def has_optimizer(model_dir: pathlib.Path, which: str) -> bool:
    """Returns whether the checkpoint that `load` reads has an optimizer. Raises the errors of `load`."""
    path = _chosen(model_dir, which)[-1]
    with _with_advice():
        _verify(path)
        try:
            with zipfile.ZipFile(path) as archive:
                return any(name.startswith("optimizer/") for name in archive.namelist())
        except _NO_ARCHIVE as error:
            raise DamagedError(f"{path} is not a valid checkpoint ({error}).") from error


def start_with_optimizer(model_dir: pathlib.Path, which: str, model, optimizer) -> str:
    """Starts a model and its optimizer, which is built, from the checkpoint `best`, `latest` or of an update, without
    the run's state; returns a description of what was loaded. Raises `MismatchError` if it has no optimizer.
    """
    [path] = _chosen(model_dir, which)
    with _with_advice():
        restore(path, model, optimizer)
    return f"checkpoint of {model_dir} with its optimizer: update {step_of(path)}"


@contextlib.contextmanager
def _with_advice() -> Iterator[None]:
    """Says in the error of a damaged checkpoint what to do."""
    try:
        yield
    except DamagedError as error:
        advice = "Restore a copy of it, or remove its .npz and .json, or choose another checkpoint."
        raise DamagedError(f"{error} {advice}") from error


def _load(
    model_dir: pathlib.Path, which: str, model, names: Names = str, partial: bool = False
) -> tuple[str, Left, dict]:
    paths = _chosen(model_dir, which)
    try:
        left, state = _load_average(paths, model, names, partial, which == EMA)
    except (FileNotFoundError, DamagedError):
        if not set(paths) <= set(_chosen(model_dir, which)):
            return _load(model_dir, which, model, names, partial)
        with _with_advice():
            raise
    steps = ", ".join(str(step_of(path)) for path in paths)
    what = "checkpoint" if which.isdecimal() else {EMA: "moving average"}.get(which, which)
    return f"{what} of {model_dir}: update{'s' * (len(paths) > 1)} {steps}", left, state


def _load_average(paths: list[pathlib.Path], model, names: Names, partial: bool, ema: bool) -> tuple[Left, dict]:
    """Loads the average of some checkpoints into a model (section 6.1). Sums are in float64."""
    variables, means = model_variables(model), {}
    # Called here: inside `_read`, an error of `names` would be reported as a damaged file.
    chosen = {name: names(name) for name in variables}
    for path in paths:
        arrays, left, state = _read(path, variables, chosen.get, partial, ema)
        if means and means.keys() != arrays.keys():
            raise MismatchError(f"Expected {path} to hold the same weights as {paths[0]}.")
        for name, array in arrays.items():
            means[name] = np.add(means.get(name, 0), array, dtype=np.float64)
    for name, array in arrays.items():
        means[name] = (means[name] / len(paths)).astype(array.dtype)
        if not (largest := float(np.abs(means[name]).max(initial=0))) <= MAX_WEIGHT:  # Also if it is NaN.
            received = f"{largest:g} in {name.removeprefix('model/')}"
            raise ValueError(
                f"Expected weights in {', '.join(map(str, paths))} with absolute values of at most {MAX_WEIGHT:g}. "
                f"Received: {received}. Choose another checkpoint."
            )
    assign(variables, means, source=path, partial=partial)
    return left, state
