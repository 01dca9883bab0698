"""Reads a TensorFlow checkpoint that a stranger wrote. No path leaves its folder, no link is followed, and sizes are
checked before an array is read.

A checkpoint `P` is `P.index` and its shards, `P.data-00000-of-00002` and so on. The file `checkpoint` names the newest
one of a folder. In a SavedModel it is `variables/variables`.
"""

import math
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from t2t_keras.interop.huggingface_folder import ALL, Folder, Tensors
from t2t_keras.system.files import check_no_link
from t2t_keras.system.native_messages import without_noise

STATE = "checkpoint"
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"  # How the names of variables end in an object-based checkpoint.
# Other lists of the variables of a layer, in a SavedModel of Keras.
_OF_KERAS = {"variables", "trainable_variables", "non_trainable_variables", "keras_api"}
_NEWEST = re.compile(r'^[ \t]*model_checkpoint_path:[ \t]*"(.*)"[ \t\r]*$', re.MULTILINE)
_SHARD = re.compile(r"\.data-\d{5}-of-(\d{5})", re.ASCII)
_PATTERN = re.compile(r"[*?\[\\]")  # Characters that TensorFlow takes for those of a pattern.
_MAX_PATH = 1000  # Characters of a variable's path, far more than in any model.


class Checkpoint(Mapping):
    """The arrays of a checkpoint by name; each is read when it is asked for. `path` is that of `find`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the checkpoint is damaged, or its arrays are larger than its files.
    """

    def __init__(self, path: pathlib.Path):
        self.path = path
        if _PATTERN.search(str(path)):  # TensorFlow might open another file, which the pattern fits.
            raise ValueError(
                f"Expected a path without the characters * ? [ \\, which TensorFlow reads as a pattern. "
                f"Received: {path}. Rename the folder or the checkpoint."
            )
        folder = Folder(path.parent)
        folder.require(f"{path.name}.index")
        shards = [name for name in os.listdir(path.parent) if name.startswith(f"{path.name}.data-")]
        for name in shards:  # The index tells TensorFlow which of them to read.
            folder.require(name)
        found = [_SHARD.fullmatch(name.removeprefix(path.name)) for name in shards]
        numbers = {int(shard[1]) for shard in found if shard} or {1}
        if len(numbers) > 1:
            raise ValueError(
                f"Expected the shards of one checkpoint, such as *-of-{min(numbers):05d}, in {path.parent}. Received: "
                f"{', '.join(sorted(shards)):.200}. Remove those of another checkpoint."
            )
        [number] = numbers
        names = [f"{path.name}.data-{index:05d}-of-{number:05d}" for index in range(min(number, len(shards) + 1))]
        size = sum(folder.require(name).stat().st_size for name in names)
        with without_noise():
            import tensorflow as tf

            self._reader = self._checked(lambda: tf.compat.v1.train.NewCheckpointReader(str(path)))
        self._shapes = {name: tuple(shape) for name, shape in self._reader.get_variable_to_shape_map().items()}
        types = self._reader.get_variable_to_dtype_map()
        # An element of a text takes at least a byte.
        needed = sum(max(types[name].size or 1, 1) * math.prod(shape) for name, shape in self._shapes.items())
        if needed > size:
            raise ValueError(
                f"Expected a checkpoint whose files hold its arrays. Received: {path}, with {needed:,} bytes of arrays "
                f"in {size:,} bytes."
            )

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._shapes:
            raise KeyError(name)
        return self._checked(lambda: self._reader.get_tensor(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of an array without reading it."""
        return self._shapes[name]

    def _checked(self, read: Callable):
        try:
            return read()
        except Exception as error:  # TensorFlow has errors of many kinds.
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"{self.path} is damaged, or not a checkpoint of TensorFlow ({reason}).") from error

    def names_below(self, *children: str) -> dict[str, str]:
        """Returns the names of the variables of some children of an object-based checkpoint's root, by the path of
        their attributes, such as decoder/layers/0/ffn; a SavedModel numbers its variables. Of several paths of a
        variable, the first that is found counts, child by child; one of more than 1,000 characters is left out.
        """
        from tensorflow.core.protobuf import trackable_object_graph_pb2

        if GRAPH not in self._shapes:
            return {}
        nodes = self._checked(
            lambda: trackable_object_graph_pb2.TrackableObjectGraph.FromString(self._reader.get_tensor(GRAPH)).nodes
        )
        paths, seen = {}, {0}
        edges = {child.local_name: child.node_id for child in nodes[0].children} if nodes else {}
        waiting = [("", name, edges[name]) for name in reversed(children) if name in edges]
        while waiting:
            parent, name, index = waiting.pop()
            if index in seen or not 0 <= index < len(nodes):
                continue
            seen.add(index)
            path = f"{parent}/{name}" if parent else name
            for attribute in nodes[index].attributes:
                if attribute.checkpoint_key in self._shapes:
                    paths[path] = attribute.checkpoint_key
            waiting += [
                (path, child.local_name, child.node_id)
                for child in reversed(nodes[index].children)
                if child.local_name not in _OF_KERAS and len(path) + len(child.local_name) < _MAX_PATH
            ]
        return paths


def find(folder: str | os.PathLike, name: str = "") -> pathlib.Path:
    """Finds a checkpoint in the folder of a run or of a SavedModel, and returns its path without an ending. `name` is
    its name, such as ckpt-1000, or its number, or else the name of a folder in this one that has the checkpoint and is
    not a link; empty for the newest.

    Raises:
        FileNotFoundError: there is none.
        ValueError: the file `checkpoint` names one of another folder, or there are several and no such file.
    """
    path = pathlib.Path(folder).expanduser()
    if name and not (path / f"{name}.index").is_file() and (path / name).is_dir():
        check_no_link(path / name)
        path, name = path / name, ""
    if not path.is_dir():
        raise FileNotFoundError(f"Expected a folder with a checkpoint of TensorFlow. Received: {path}, which is none.")
    if name and not name.isdecimal():
        return path / name.removesuffix(".index")
    if (path / "variables" / "variables.index").is_file() and not name:
        check_no_link(path / "variables")
        return path / "variables" / "variables"
    if not name and Folder(path).find(STATE):
        newest = _NEWEST.search(Folder(path).content(STATE).decode(errors="replace"))
        named = pathlib.Path(newest[1] if newest else "")
        if not named.name or named.parent not in (pathlib.Path(), path.absolute()) or named.name == "..":
            raise ValueError(
                f"Expected {path / STATE} to name a checkpoint of its folder. Received: {str(named)!r:.100}. Give the "
                "name as `checkpoint`."
            )
        return path / named.name
    ending = f"-{name}.index" if name else ".index"
    found = sorted(each for each in os.listdir(path) if each.endswith(ending))
    if not found:
        raise FileNotFoundError(f"Expected a checkpoint of TensorFlow, *{ending}, in {path}. There is none.")
    if len(found) > 1:
        raise ValueError(
            f"Expected one checkpoint in {path}. Received: {', '.join(found):.200}. Choose a `checkpoint`."
        )
    return path / found[0].removesuffix(".index")


def read(folder: str | os.PathLike, name: str = "") -> Checkpoint:
    """Opens a checkpoint; see `find` and `Checkpoint`."""
    return Checkpoint(find(folder, name))


class Chosen(Tensors):
    """Some arrays of a checkpoint as weights; `stored` has their names there by the names that messages have."""

    sizes_from = "other weights and the vocabularies"

    def __init__(self, checkpoint: Checkpoint, stored: Mapping[str, str]):
        self._checkpoint, self._stored, self.names = checkpoint, stored, set(stored)
        self.where = f" in {checkpoint.path}"

    def shape(self, name: str) -> tuple[int, ...]:
        return self._checkpoint.shape(self._stored[name])

    def read(self, name: str, rows: slice = ALL) -> np.ndarray:
        array = self._checkpoint[self._stored[name]]
        if array.dtype.kind not in "fV":
            raise ValueError(f"Expected {name}{self.where} to have floating-point numbers. Received: {array.dtype}.")
        with np.errstate(over="ignore"):  # Weights are checked to be finite.
            return array[rows].astype(np.float32, copy=False)
