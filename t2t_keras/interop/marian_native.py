"""Reads Marian's own files of a model, as OPUS-MT publishes them, under the names of transformers' files.

`decoder.yml` names the weights and the vocabularies. The weights, an npz file, hold the options of the network.
"""

import functools
import json
import math
import os
import pathlib
import re
import reprlib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from t2t_keras.config import POST, PRE, TENSOR2TENSOR, ModelConfig
from t2t_keras.interop import marian_config
from t2t_keras.interop.huggingface_folder import ALL, Folder, Tensors, check_stored, load_yaml
from t2t_keras.interop.marian_vocabulary import SOURCE_MODEL, TARGET_MODEL, TARGET_VOCABULARY, TOKENIZER, VOCABULARY
from t2t_keras.interop.marian_weights import LOGITS, LOGITS_BIAS, SHARED, SOURCE, TARGET, layers
from t2t_keras.system.log import logger
from t2t_keras.text import piece_file

DECODER, OPTIONS = "decoder.yml", "special:model.yml"
_MODELS, _PAD, _EOS = (SOURCE_MODEL, TARGET_MODEL), piece_file.SPECIAL[0], piece_file.SPECIAL[3]
_EPSILON = 1e-6  # Of Marian's layer normalization in a Transformer.
_BEAMS, _NORMALIZE, _MAX_LENGTH = 12, 0, 1000  # Marian's defaults.
# The operations before a sub-layer, after it, and after all layers, without dropout.
_NORMS = {("", "an", ""): POST, ("n", "a", "n"): PRE}
# What must hold where it is given; the first value is the default.
_EXPECTED = {
    "transformer-decoder-autoreg": ["self-attention"],
    "transformer-postprocess-emb": ["d", ""],
    "transformer-ffn-depth": [2],
    "transformer-decoder-ffn-depth": [0, 2],
    "transformer-attention-mask": ["default"],
    "transformer-tied-layers": [[]],
    "input-types": [[], ["sequence", "sequence"]],
    "lemma-dim-emb": [0],
    **dict.fromkeys(
        (
            *("right-left", "ulr", "transformer-no-projection", "transformer-pool", "transformer-no-bias"),
            *("transformer-train-positions", "transformer-train-position-embeddings", "transformer-no-affine"),
            "transformer-disable-position-embeddings",
        ),
        [False],
    ),
}
# Options of `decoder.yml` that change translations and have no counterpart, with the values that change nothing.
_NO_COUNTERPART = {"word-penalty": 0, "max-length-factor": 3, "shortlist": [], "output-sampling": []}
_SUBLAYERS = {"self_attention": "self", "cross_attention": "context", "feed_forward": "ffn"}
_PARTS = {"query": "q", "key": "k", "value": "v", "output": "o", "inner": "1", "outer": "2"}
_ARRAYS, _OF_NORM = {"kernel": "W", "bias": "b"}, {"gamma": "scale", "beta": "bias"}
_MAX_YAML = 2**23  # Bytes, of some 300,000 sub-words.
_EXACT_GELU = 1, 12, 3  # The first version of Marian with x Φ(x).
_UNTRANSPOSED = "decoder_ff_logit_out_W"  # The matrix of the logits, [D, V], in early versions.


def is_in(folder: Folder) -> bool:
    """Returns whether a folder has Marian's own files, and not those of transformers."""
    native = not folder.of_hub and any(name.endswith((".npz", DECODER)) for name in os.listdir(folder.path))
    if native and folder.find(marian_config.CONFIG) is not None:
        logger.info(f"{folder.path} has {marian_config.CONFIG}: Marian's own files in it are not read.")
        return False
    return native


class NativeFolder(Folder):
    """A folder with Marian's own files, under the names of transformers'."""

    def __init__(self, path: pathlib.Path):
        super().__init__(path)
        self._files = {}
        decoder, values = self._decoder()
        weights, *lists = self._named(path / decoder, values)
        self._arrays = _Arrays(self.require(weights))
        norm, network = _network(_yaml(self._arrays.text(OPTIONS), self._arrays.path), self._arrays.path)
        self.model_options = {"norm": norm, "norm_epsilon": _EPSILON, "sinusoids": TENSOR2TENSOR}
        # Marian starts from an embedding of 0, which becomes the last row, that of padding.
        rows = network["vocab_size"] - 1, network["decoder_vocab_size"] - 1
        ids = {name: self._ids(name) for name in {*lists}}
        source, target = (ids[name] | {_PAD: last} for name, last in zip(lists, rows, strict=True))
        self._json = {
            marian_config.CONFIG: network
            | {
                "max_position_embeddings": values.get("max-length", _MAX_LENGTH),
                "eos_token_id": target.get(_EOS, 0),
                "pad_token_id": rows[1],
                "decoder_start_token_id": rows[1],
            },
            marian_config.SEARCH: {
                "num_beams": values.get("beam-size", _BEAMS),
                "length_penalty": float(n) if isinstance(n := values.get("normalize", _NORMALIZE), bool) else n,
                # `marian_config` reports these as options without a counterpart.
                **{name: values[name] for name, usual in _NO_COUNTERPART.items() if values.get(name, usual) != usual},
            },
            VOCABULARY: source,
            TARGET_VOCABULARY: target,
            TOKENIZER: {"separate_vocabs": lists[0] != lists[1]},
        }
        self._files = {marian_config.CONFIG: weights, marian_config.SEARCH: decoder or weights}
        self._files |= dict(zip((VOCABULARY, TARGET_VOCABULARY), lists, strict=True))
        self._files |= {model: name for model, name in zip(_MODELS, lists, strict=True) if name.endswith(".spm")}

    def find(self, name: str) -> pathlib.Path | None:
        return super().find(self._files.get(name, name))

    def json(self, name: str) -> dict:
        return self._json.get(name, {})

    @contextmanager
    def opened_weights(self) -> Iterator[Tensors]:
        yield _Weights(self._arrays, marian_config.read(self).model)

    def _decoder(self) -> tuple[str, dict]:
        """Returns the name of the file that names the others, and its values; without one, what it would name."""
        names = sorted(os.listdir(self.path))
        decoders = [name for name in names if name.endswith(DECODER)]
        if DECODER in decoders or len(decoders) == 1:
            name = DECODER if DECODER in decoders else decoders[0]
            return name, _yaml(self.content(name), self.path / name)
        if decoders:
            raise ValueError(
                f"Expected one file {DECODER} in {self.path}. Received: {', '.join(decoders):.200}. Remove the others."
            )
        logger.info(f"{self.path} has no {DECODER}: the search has Marian's defaults.")
        models = [name for name in names if name.endswith(".npz") and not name.endswith(".optimizer.npz")]
        endings = (".spm", ".vocab", "vocab.yml", "vocab.yaml")
        lists = [name for name in names if name.endswith(endings) and name not in _MODELS]
        return "", {"models": models, "vocabs": lists if len(lists) == 1 else []}

    def _named(self, path: pathlib.Path, values: dict) -> list[str]:
        """Returns the names of the weights and of the vocabularies of source and target."""
        models, lists = (values.get(key) if isinstance(values.get(key), list) else [] for key in ("models", "vocabs"))
        if len(models) != 1 or len(lists) not in (1, 2):
            raise ValueError(
                "Expected the names of one model and of its vocabularies, as in `models: [model.npz]` and `vocabs: "
                f"[source.vocab.yml, target.vocab.yml]`, in {path}. Received: {reprlib.repr((models, lists))}."
            )
        for name in (*models, *lists):
            fits = isinstance(name, str) and name.endswith(".npz") == (name == models[0]) and not name.endswith(".fsv")
            if not fits or pathlib.PurePath(name).parts != (name.removeprefix("./"),):
                raise ValueError(
                    f"Expected {path} to name an .npz and vocabularies of its folder, without their path. Received: "
                    f"{reprlib.repr(name)}. 8-bit models (.bin) and factors (.fsv) cannot be imported."
                )
        return [name.removeprefix("./") for name in (models[0], lists[0], lists[-1])]

    def _ids(self, name: str) -> dict[str, int]:
        """Returns the ids of the pieces of a vocabulary: of YAML, a SentencePiece model, or a piece a line."""
        content = self.content(name)
        if name.endswith((".yml", ".yaml", ".json")):
            return _yaml(content, self.path / name)
        try:
            if name.endswith(".spm"):
                pieces = piece_file.pieces_of(content)
            else:
                pieces = content.decode().replace("\r\n", "\n").removesuffix("\n").split("\n")
        except ValueError as error:
            raise ValueError(f"{self.path / name} cannot be read: {error}") from error
        if len(set(pieces)) < len(pieces):
            raise ValueError(f"Expected different lines in {self.path / name}. Received: a line twice.")
        return {piece: index for index, piece in enumerate(pieces)}


def _network(values: dict, path: pathlib.Path) -> tuple[str, dict]:
    """Returns where layers are normalized, and what `config.json` has for the network of `OPTIONS`."""
    width = values.get("transformer-dim-ffn")
    expected = _EXPECTED | {"transformer-decoder-dim-ffn": [0, width]}
    for name, usual in ({"type": ["transformer"]} | expected).items():
        if (received := values.get(name, usual[0] if name in expected else None)) not in usual:
            raise ValueError(
                f"Expected {name}={' or '.join(str(value) or repr('') for value in usual)} in {path}. Received: "
                f"{name}={reprlib.repr(received)}, which cannot be imported."
            )
    defaults = {"preprocess": "", "postprocess": "dan", "postprocess-top": ""}
    given = {name: str(values.get(f"transformer-{name}", default)) for name, default in defaults.items()}
    norm = _NORMS.get(tuple(operations.replace("d", "") for operations in given.values()))
    if norm is None:
        raise ValueError(
            "Expected transformer-preprocess, -postprocess and -postprocess-top to be '', dan and '' (post-norm) or n, "
            f"da and n (pre-norm) in {path}. Received: {reprlib.repr(tuple(given.values()))}."
        )
    activation, version = values.get("transformer-ffn-activation", "swish"), str(values.get("version", ""))
    numbers = re.match(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})", version, re.ASCII)
    if activation == "gelu" and numbers and tuple(map(int, numbers.groups())) < _EXACT_GELU:
        raise ValueError(
            f"Expected transformer-ffn-activation=gelu of Marian {'.'.join(map(str, _EXACT_GELU))} or later in {path}: "
            f"before, it was x · sigmoid(1.702 x). Received: version={version!r:.60}."
        )
    tied = {name: values.get(f"tied-embeddings{name}", False) is True for name in ("", "-src", "-all")}
    shared, rows = tied["-src"] or tied["-all"], values.get("dim-vocabs")
    if not isinstance(rows, list) or [type(size) for size in rows] != [int, int] or shared and rows[0] != rows[1]:
        raise ValueError(
            f"Expected dim-vocabs of one source and one target in {path}, the same if they share an embedding. "
            f"Received: {reprlib.repr(rows)}."
        )
    heads = values.get("transformer-heads")
    return norm, {
        "model_type": marian_config.MARIAN,
        "d_model": values.get("dim-emb"),
        "encoder_layers": values.get("enc-depth"),
        "decoder_layers": values.get("dec-depth"),
        **{f"{side}_attention_heads": heads for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": width for side in ("encoder", "decoder")},
        "activation_function": activation,
        "dropout": 0.1,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": tied[""] or tied["-all"],
        "vocab_size": rows[0] + 1,
        "decoder_vocab_size": rows[1] + 1,
    }


def _yaml(content: bytes, path: pathlib.Path) -> dict:
    """Reads names with values: text, numbers, true, false, or lists of these. All names are text, as sub-words are."""
    values = load_yaml(content, path, _MAX_YAML, as_text=True)
    named = values if isinstance(values, dict) else {None: None}
    once = {id(value): value for value in named.values()}  # Aliases give many names the same list.
    texts = (text for value in ([*named], *once.values()) for text in (value if isinstance(value, list) else [value]))
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"Expected {path} to have names with values or lists. Received: {reprlib.repr(values)[:100]}.")
    typed = functools.cache(_typed)
    once = {key: [*map(typed, value)] if isinstance(value, list) else typed(value) for key, value in once.items()}
    return {name: once[id(value)] for name, value in values.items()}


def _typed(text: str) -> str | int | float:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, int | float) else text


class _Array(NamedTuple):
    """Where a file has the numbers of an array."""

    dtype: np.dtype
    shape: tuple[int, ...]
    order: str
    offset: int


class _Arrays:
    """The arrays of an npz file, mapped to memory when they are read: nothing is unpickled or decompressed."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        try:
            check_stored(path, "an npz file of Marian")
            with zipfile.ZipFile(path) as archive, path.open("rb") as file:
                if damaged := archive.testzip():
                    raise zipfile.BadZipFile(f"{damaged} is damaged")
                self._arrays = {}
                for member in archive.infolist():
                    name = member.filename.removesuffix(".npy")
                    if name in self._arrays:
                        raise ValueError(f"Expected one array for each name in {path}. Received: {name!r:.80} twice.")
                    self._arrays[name] = self._array(archive, member, file)
        except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
            raise ValueError(f"Expected an npz file. Received: {path}, which is damaged ({error!s:.150}).") from error
        self.names = self._arrays.keys() - {OPTIONS}

    def _array(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, file) -> _Array:
        name = f"{member.filename!r:.80} in {self.path}"
        with archive.open(member) as content:
            try:
                version = np.lib.format.read_magic(content)[0]
                header = np.lib.format.read_array_header_1_0 if version == 1 else np.lib.format.read_array_header_2_0
                shape, fortran, dtype = header(content)
            except Exception as error:  # NumPy has errors of many kinds.
                raise ValueError(f"Expected {name} to be an array of NumPy. Received: {error!s:.150}") from error
            length = content.tell()
        is_shape = 0 < len(shape) < 4 and all(type(size) is int and size > 0 for size in shape)
        if dtype.hasobject or not is_shape or math.prod(shape) * dtype.itemsize != member.file_size - length:
            raise ValueError(
                f"Expected {name} to have numbers, as many as its shape {shape!s:.80} says. Received: "
                f"{member.file_size - length:,} bytes of {dtype}."
            )
        file.seek(member.header_offset + 26)  # The lengths of two fields that follow the 30 bytes of the header.
        before = 30 + int(np.frombuffer(file.read(4), "<u2").sum())
        return _Array(dtype, shape, "F" if fortran else "C", member.header_offset + before + length)

    def __getitem__(self, name: str) -> np.ndarray:
        array = self._arrays[name]
        if array.dtype.kind != "f":
            expected = f"Expected {name!r:.80} in {self.path} to have floating-point numbers."
            raise ValueError(f"{expected} Received: {array.dtype}.")
        return np.memmap(self.path, array.dtype, "r", array.offset, array.shape, array.order)

    def text(self, name: str) -> bytes:
        """Returns the bytes of an array of characters, which end in 0."""
        array = self._arrays.get(name)
        if array is None or array.dtype.itemsize != 1 or math.prod(array.shape) > _MAX_YAML:
            raise ValueError(
                f"Expected {name} in {self.path}, the options of a network of Marian, as at most {_MAX_YAML:,} "
                "characters. It is missing or something else."
            )
        return np.memmap(self.path, np.uint8, "r", array.offset, array.shape).tobytes().partition(b"\0")[0]


class _Weights(Tensors):
    """The weights of a network under the names and in the shapes of transformers."""

    def __init__(self, arrays: _Arrays, model: ModelConfig):
        self._arrays, self._tables = arrays, {SHARED: "Wemb", SOURCE: "encoder_Wemb", TARGET: "decoder_Wemb"}
        self._tables[LOGITS] = _UNTRANSPOSED + "t" * (_UNTRANSPOSED not in arrays.names)
        self._natives = self._tables | {LOGITS_BIAS: "decoder_ff_logit_out_b"} | dict(_layer_names(model))
        self.names = {name for name, native in self._natives.items() if native in arrays.names}
        self.names |= arrays.names - set(self._natives.values())

    def label(self, name: str) -> str:
        return self._natives.get(name, name)

    def shape(self, name: str) -> tuple[int, ...]:
        shape = [*self._view(name).shape]
        if name in self._tables or name == LOGITS_BIAS:
            shape[-(name == LOGITS_BIAS)] += 1
        return tuple(shape)

    def read(self, name: str, rows: slice = ALL) -> np.ndarray:
        array = self._view(name)
        padding = {LOGITS_BIAS: ((0, 0), (0, 1))}.get(name)
        if name in self._tables and rows.indices(len(array) + 1)[1] > len(array):
            padding = ((0, 1), (0, 0))
        with np.errstate(over="ignore"):  # Weights are checked to be finite.
            array = np.asarray(array[rows], np.float32)
        return np.pad(array, padding) if padding else array

    def _view(self, name: str) -> np.ndarray:
        """Returns an array as transformers has it, without the row of padding."""
        array = np.atleast_2d(self._arrays[self.label(name)])
        if name == LOGITS_BIAS or name in self._tables and self.label(name) != _UNTRANSPOSED:
            return array
        return array[0] if len(array) == 1 and name.endswith(("bias", "norm.weight")) else array.T


def _layer_names(model: ModelConfig) -> Iterator[tuple[str, str]]:
    """Returns transformers' name and Marian's of each weight of the layers."""
    for place in layers(model):
        _, stack, *rest, array = place.path.split("/")  # Such as encoder_0, self_attention and query, and kernel.
        side, _, index = stack.partition("_")
        sublayer = rest[0].removesuffix("_norm") if rest else ""
        prefix = f"{side}_l{int(index) + 1}_{_SUBLAYERS[sublayer]}" if rest else f"{side}_top"
        if array in _ARRAYS:
            yield place.name, f"{prefix}_{_ARRAYS[array]}{_PARTS[rest[1]]}"
        else:
            prefix += {"": "", "feed_forward": "_ffn"}.get(sublayer, "_Wo")
            suffix = "_pre" if rest and model.norm == PRE else ""
            yield place.name, f"{prefix}_ln_{_OF_NORM[array]}{suffix}"
