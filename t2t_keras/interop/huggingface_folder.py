"""Reads the files of a Hugging Face model, in a folder or by its name on the hub. Nothing in them is run, and no link
is followed.
"""

import importlib.util
import os
import pathlib
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

import numpy as np

from t2t_keras.system.files import check_no_link, read_json
from t2t_keras.system.log import logger

SAFETENSORS, INDEX, PICKLED = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
PICKLED_INDEX = "pytorch_model.bin.index.json"  # Of several such files, which are not read.
FAST = "tokenizer.json"  # Sub-words of the package tokenizers, of which the added tokens alone are read.
ALL = slice(None)
MAX_TEXT = 2**26  # Maximum size of a file that is not the weights, in bytes.
INSTALL = "pip install 't2t_keras[interop]', or -e '.[interop]' in a checkout"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_SHARD = re.compile(r"\w[\w.-]*\.safetensors", re.ASCII)
_POINTER = b"version https://git-lfs.github.com/spec/"  # What Git LFS has for a file that it has not downloaded.
_NUMBERS = ("F64", "F32", "F16", "BF16")  # Safetensors' types of floating-point numbers.


class Folder:
    """The files of a model. Links may lead to `links_within`, a folder in the hub's cache; `None` allows none.

    Attributes:
        model_options: options of `ModelConfig` that the format of transformers has no names for.
    """

    model_options: dict = {}

    def __init__(self, path: pathlib.Path, links_within: pathlib.Path | None = None):
        self.path, self._links_within = path, links_within

    @property
    def of_hub(self) -> bool:
        """Whether the model is of the hub, by its name there."""
        return self._links_within is not None

    def find(self, name: str) -> pathlib.Path | None:
        """Returns the path of a file, which is no link to another place; `None` if it is not there. Raises
        `ValueError` for a link, a folder, or a file that Git LFS has not downloaded.
        """
        path = self.path / name
        if not os.path.lexists(path):
            return None
        if self._links_within and path.resolve().is_relative_to(self._links_within):
            path = path.resolve()
        check_no_link(path)
        if not path.is_file():
            raise ValueError(f"Expected a file. Received: {path}, which is something else.")
        with path.open("rb") as file:
            is_pointer = file.read(len(_POINTER)) == _POINTER
        if is_pointer:
            raise ValueError(
                f"Expected the contents of {path}. Received: a pointer of Git LFS, which has not downloaded the file. "
                "Run `git lfs pull` in its folder."
            )
        return path

    def require(self, name: str) -> pathlib.Path:
        """Returns the path of a file that must be there."""
        if (path := self.find(name)) is None:
            raise FileNotFoundError(f"Expected {name} in {self.path}. It is missing.")
        return path

    def require_subwords(self, name: str) -> pathlib.Path:
        """Returns the path of a file of the sub-words, which must be there; the error says so of `FAST` alone."""
        if self.find(name) is None and self.find(FAST):
            raise FileNotFoundError(
                f"Expected {name} in {self.path}. It is missing, and {FAST}, which transformers 5 may write in its "
                f"place, has another form. Copy {name} from the model that was fine-tuned."
            )
        return self.require(name)

    def json(self, name: str) -> dict:
        """Reads a JSON object; empty without the file."""
        path = self.find(name)
        return {} if path is None else read_json(path, MAX_TEXT)

    def shards(self) -> list[str]:
        """Returns the names of the files of weights that the folder's index lists; none without an index."""
        if self.find(INDEX) is None:
            return []
        files = self.json(INDEX).get("weight_map")
        names = set(map(str, files.values())) if isinstance(files, dict) else {""}
        if not names or not all(map(_SHARD.fullmatch, names)):
            raise ValueError(
                f"Expected the names of safetensors files in {self.path / INDEX}. Received: "
                f"{', '.join(sorted(names)):.80}."
            )
        return sorted(names)

    def content(self, name: str) -> bytes:
        """Reads a small file."""
        path = self.require(name)
        if path.stat().st_size > MAX_TEXT:
            raise ValueError(f"Expected {path} to have at most {MAX_TEXT:,} bytes. Received: {path.stat().st_size:,}.")
        return path.read_bytes()

    @contextmanager
    def opened_weights(self) -> Iterator["Tensors"]:
        """Opens the weights of a model, inside a `with` block. Raises `FileNotFoundError` if there are none, and
        `ValueError` if they cannot be read, or only by unpickling without PyTorch.
        """
        if names := [SAFETENSORS] if self.find(SAFETENSORS) else self.shards():
            with ExitStack() as files:
                paths = map(self.require, names)
                yield _SafeTensors(self.path, [(path, files.enter_context(_safetensors(path))) for path in paths])
        elif (path := self.find(PICKLED)) is not None:
            yield _pickled(path)
        else:
            received = "none."
            if self.find(PICKLED_INDEX) is not None:
                received = (
                    f"{PICKLED_INDEX}, of several files of PyTorch. Read the model with transformers, and write it "
                    "with save_pretrained, which makes safetensors."
                )
            raise FileNotFoundError(
                f"Expected {SAFETENSORS} in {self.path}, or {PICKLED} and PyTorch (pip install torch). Received "
                f"{received}"
            )


def find(source: str | os.PathLike, names: tuple[str, ...]) -> Folder:
    """Finds a model: a folder, or a name of the hub, whose weights and files `names` are downloaded into its cache
    unless they are there. The first of `names` must be there, the others may be missing.

    Raises `FileNotFoundError` if there is no such folder or model, and `ValueError` if it cannot be downloaded.
    """
    path = pathlib.Path(source).expanduser()
    if str(source) and path.is_dir():  # The empty path would be this folder.
        return Folder(path)
    if path.exists() or not _HUB_NAME.fullmatch(str(source)):
        advice = " Unpack an archive, and give the folder that has its files." * path.is_file()
        expected = "Expected a folder, or a name such as Helsinki-NLP/opus-mt-en-de."
        raise FileNotFoundError(f"{expected} Received: {source}.{advice}")
    return _download(str(source), names)


def _download(name: str, names: tuple[str, ...]) -> Folder:
    missing = f"There is no folder {name}"
    try:
        import huggingface_hub
        from huggingface_hub import constants, errors
        from huggingface_hub.utils import logging as hub_logging
    except ImportError as error:
        raise ValueError(f"{missing}. To download the model of this name: {INSTALL}.") from error

    def fetch(file: str, revision: str | None = None) -> pathlib.Path | None:
        try:
            return pathlib.Path(huggingface_hub.hf_hub_download(name, file, revision=revision))
        except errors.EntryNotFoundError as error:
            if isinstance(error, errors.LocalEntryNotFoundError) and not (revision and constants.HF_HUB_OFFLINE):
                raise
            return None

    logger.info(f"{missing}: reading the model of this name from the Hugging Face hub …")
    verbosity = hub_logging.get_verbosity()
    hub_logging.set_verbosity_error()  # It warns of each attempt; the error of the last one says enough.
    try:
        if (first := fetch(names[0])) is None:
            raise FileNotFoundError(f"Expected {names[0]} in the model {name} of the hub. It is missing.")
        snapshot = first.parent  # Named by the revision, which all files are to be of.
        for file in names[1:]:
            fetch(file, snapshot.name)
        if fetch(SAFETENSORS, snapshot.name) is None and fetch(INDEX, snapshot.name) is not None:
            for shard in Folder(snapshot, snapshot.parents[1].resolve()).shards():
                fetch(shard, snapshot.name)
        elif not (snapshot / SAFETENSORS).exists() and importlib.util.find_spec("torch"):
            if fetch(PICKLED, snapshot.name) is None:
                fetch(PICKLED_INDEX, snapshot.name)  # For the message of `opened_weights`.
    except errors.LocalEntryNotFoundError as error:
        raise ValueError(
            f"{missing}, and the hub cannot be reached for the model of this name. Its cache lacks files of it."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise FileNotFoundError(
            f"{missing}, and no model of this name on the hub, or only with an HF_TOKEN."
        ) from error
    except (errors.HfHubHTTPError, errors.HFValidationError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"{missing}, and the model of this name cannot be downloaded from the hub: {reason}"
        ) from error
    finally:
        hub_logging.set_verbosity(verbosity)
    return Folder(snapshot, links_within=snapshot.parents[1].resolve())


class Tensors(Protocol):
    """Weights that are read one at a time, or some rows at a time.

    Attributes:
        names: their names.
        where: in messages, what follows the name of a weight, such as " in FILE".
        sizes_from: in messages, what the expected shapes follow from.
    """

    names: set[str]
    where, sizes_from = "", "the options"

    def label(self, name: str) -> str:
        """Returns the name of a tensor in its file, for messages."""
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor without reading it."""

    def read(self, name: str, rows: slice = ALL) -> np.ndarray:
        """Reads rows of a tensor, as float32."""


class _SafeTensors(Tensors):
    """The tensors of open safetensors files, whose package has checked that the header fits the size of the file."""

    def __init__(self, folder: pathlib.Path, files: list[tuple]):
        self._files = {name: (path, file) for path, file in files for name in file.keys()}
        self.names = set(self._files)
        if len(self.names) < sum(len(file.keys()) for _, file in files):
            expected = f"Expected each weight in one of the files of {folder / INDEX}."
            raise ValueError(f"{expected} Received: a weight in two of them.")

    def shape(self, name: str) -> tuple[int, ...]:
        path, file = self._files[name]
        header = file.get_slice(name)
        if header.get_dtype() not in _NUMBERS:
            raise ValueError(
                f"Expected {name} in {path} to have one of the types {', '.join(_NUMBERS)}. Received: "
                f"{header.get_dtype()}."
            )
        return tuple(header.get_shape())

    def read(self, name: str, rows: slice = ALL) -> np.ndarray:
        with np.errstate(over="ignore"):  # Weights are checked to be finite.
            return np.asarray(self._files[name][1].get_slice(name)[rows], np.float32)


class _Pickled(Tensors):
    """The tensors of a file that PyTorch has read, of a dictionary of tensors and nothing else."""

    def __init__(self, path: pathlib.Path, tensors: dict, dense):
        self._path, self._tensors, self._dense, self.names = path, tensors, dense, set(tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        tensor = self._tensors[name]
        if not tensor.is_floating_point():
            raise ValueError(
                f"Expected {name} in {self._path} to have floating-point numbers. Received: {tensor.dtype}."
            )
        if tensor.layout is not self._dense or tensor.is_meta:
            raise ValueError(
                f"Expected {name} in {self._path} to be a dense tensor with its numbers. Received: {tensor.layout}, on "
                f"{tensor.device}."
            )
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():  # A stride of 0, for example.
            raise ValueError(
                f"Expected {self._path} to hold all numbers of {name}. Received: {tensor.numel():,} numbers from "
                f"{tensor.untyped_storage().nbytes():,} bytes."
            )
        return tuple(tensor.shape)

    def read(self, name: str, rows: slice = ALL) -> np.ndarray:
        return self._tensors[name].detach()[rows].float().numpy()


def _safetensors(path: pathlib.Path):
    """Opens a file of safetensors, for a `with` block."""
    try:
        import ml_dtypes  # noqa: F401  # NumPy then knows bfloat16.
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ValueError(f"{path} needs the package safetensors: {INSTALL}.") from error
    try:
        return safe_open(path, framework="np")
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"Expected a safetensors file. Received: {path}, which is damaged or not one ({error})."
        ) from error


def load_yaml(content: bytes, path: pathlib.Path, max_bytes: int, as_text: bool = False):
    """Reads the YAML of a file that a stranger wrote; `as_text` makes text of numbers, true and false."""
    try:
        import yaml
    except ImportError as error:
        raise ValueError(f"{path} needs the package PyYAML: {INSTALL}.") from error
    if len(content) > max_bytes:  # PyYAML takes 70 times as much memory.
        raise ValueError(f"Expected at most {max_bytes:,} bytes of YAML in {path}. Received: {len(content):,}.")
    try:
        return yaml.load(content, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader) if as_text else yaml.SafeLoader)
    except Exception as error:  # PyYAML has errors of many kinds.
        reason = " ".join(str(error).split())[:150]
        raise ValueError(f"Expected {path} to have YAML. Received: something else ({reason}).") from error


def check_stored(path: pathlib.Path, kind: str) -> None:
    """Raises `ValueError` for a file of weights that may take more memory than its size: PyTorch and Marian write none
    that is compressed or has parts that overlap.
    """
    try:
        if not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise ValueError(f"Expected {kind}. Received: {path}, which is damaged ({error!s:.150}).") from error
    compressed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
    if compressed or sum(member.file_size for member in members) > path.stat().st_size:
        raise ValueError(f"Expected {kind}, which is not compressed. Received: {path}, which is.")


def _pickled(path: pathlib.Path) -> Tensors:
    check_stored(path, "a file of PyTorch")
    try:
        import torch
    except ImportError as error:
        raise ValueError(
            f"Expected {SAFETENSORS}. Received only {path}, which needs PyTorch to be read without running its code: "
            "pip install torch."
        ) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # About the protocol of the file.
            try:
                tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            except RuntimeError:  # A file of PyTorch before 1.6 cannot be mapped to memory.
                tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # Of any damaged file. PyTorch's text advises to turn `weights_only` off.
        raise ValueError(
            f"Expected a file with tensors alone. Received: {path}, which is damaged or holds more."
        ) from error
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and torch.is_tensor(tensor) for name, tensor in tensors.items()
    ):
        raise ValueError(f"Expected tensors by name in {path}. Received: something else.")
    return _Pickled(path, tensors, torch.strided)
