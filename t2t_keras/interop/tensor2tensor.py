"""Imports a translation model of tensor2tensor as the folder of a run, with its sub-words.

Its position encodings have all sines before all cosines: the D columns of every weight are put in our order, see
`marian_weights`. Its decoder starts from zeros, as ours does if the row of BOS is zero; that of UNK is too, and a bias
excludes both from translations. Its encoder adds a vector for the kind of target to every embedding: that of the source
then contains it.
"""

import itertools
import json
import os
import pathlib
import re
import reprlib

import numpy as np

from t2t_keras.config import BOS, POST, PRE, TENSOR2TENSOR, UNK, DataConfig, DecodeConfig, ModelConfig
from t2t_keras.interop import imported_run, tensorflow_checkpoint
from t2t_keras.interop.huggingface_folder import Folder
from t2t_keras.interop.marian_weights import Place, Weight, Weights, alternating
from t2t_keras.interop.tensorflow_checkpoint import Checkpoint, Chosen
from t2t_keras.runs import run_options
from t2t_keras.system.files import check_new
from t2t_keras.system.log import logger
from t2t_keras.text.tensor2tensor_file import texts_of

_HPARAMS, _FLAGS = "hparams.json", "flags.txt"
_ADDED = 2  # Special ids that tensor2tensor does not have: UNK and BOS.
_NEVER = -1000.0  # Logits of these.
_HEADS = {"base": 8, "big": 16, "tiny": 4, "small": 4, "test": 2}
_SET = re.compile(r"transformer_(base|big|tiny|small|test)(_v[123])?(_single_gpu|_multistep8|_tpu)?")
# Values of the hparams that make the model one of ours.
_EXPECTED = {
    "norm_type": ("layer",), "pos": ("timing",), "ffn_layer": ("dense_relu_dense", "conv_hidden_relu"),
    "self_attention_type": ("dot_product",), "multiply_embedding_mode": ("sqrt_depth",),
    "attention_variables_3d": (False,), "proximity_bias": (False,), "unidirectional_encoder": (False,),
    "causal_decoder_self_attention": (True,), "hard_attention_k": (0,), "num_area_layers": (0,),
    "prepend_mode": ("none",), "vocab_divisor": (1,), "weight_dtype": ("float32",),
}  # fmt: skip
_NORMS = {("n", "da"): PRE, ("none", "dan"): POST, ("", "dan"): POST}  # By what comes before and after a sub-layer.
# Names of the parts of layers, ours and theirs.
_SUB_LAYERS = {"self_attention": "self_attention", "cross_attention": "encdec_attention", "feed_forward": "ffn"}
_PARTS = {
    **{part: f"multihead_attention/{part[0]}" for part in ("query", "key", "value")},
    **{"output": "multihead_attention/output_transform", "inner": "conv1", "outer": "conv2"},
}
_OF_NORM = {"gamma": "scale", "beta": "bias"}
_FIRST = re.compile(r"(.*)body/encoder/layer_0/ffn/conv1/kernel")
_MODALITY = re.compile(r"symbol_modality_(\d+)_")
_SPACES = "body/target_space_embedding/kernel"


def import_tensor2tensor(
    source: str | os.PathLike,
    model_dir: str | os.PathLike,
    *,
    checkpoint: str = "",
    vocab: str | os.PathLike = "",
    source_vocab: str | os.PathLike = "",
    num_heads: int = 0,
    target_space: int | None = None,
) -> None:
    """Imports a Transformer that tensor2tensor trained to translate.

    Args:
        source: the folder with its checkpoints, and `hparams.json` or `flags.txt`.
        model_dir: the run's folder, new or empty.
        checkpoint: the checkpoint, such as model.ckpt-250000, or its number; empty for the newest.
        vocab: the file of sub-words, such as vocab.translate_ende_wmt32k.32768.subwords; empty for the one in `source`.
        source_vocab: that of the source, if it has its own.
        num_heads: number of attention heads; 0 for that of the hparams.
        target_space: the `target_space_id` of the problem; `None` for the one that the optimizer's state shows, or
            else 0, that of all problems since tensor2tensor 1.5.

    Raises:
        FileNotFoundError: a file is missing.
        FileExistsError: `model_dir` is not empty.
        ValueError: the model is damaged or cannot be imported. Nothing is written.
    """
    folder, model_dir = Folder(pathlib.Path(source).expanduser()), pathlib.Path(model_dir).expanduser().resolve()
    check_new(model_dir, "model_dir")
    if not folder.path.is_dir():
        raise FileNotFoundError(f"Expected a folder with a model of tensor2tensor. Received: {source}, which is none.")
    hparams = _read_hparams(folder) | ({"num_heads": num_heads} if num_heads else {})
    norm = _checked_norm(hparams, folder)
    target = _vocabulary(folder, vocab, hparams)
    subwords = target, _vocabulary(folder, source_vocab, hparams) if source_vocab else target
    tensors = tensorflow_checkpoint.read(folder.path, checkpoint)
    model = _Model(tensors, [len(texts_of(content)) for content in subwords], hparams, norm, target_space)
    options = run_options.Options(
        model.config,
        decode=DecodeConfig(extra_length=100),  # As in tensor2tensor.
        data=DataConfig(subwords="tensor2tensor"),
        sources=dict.fromkeys([*vars(model.config), "extra_length"], imported_run.origin(source)),
    )
    imported_run.write(model_dir, options, *subwords, model)
    logger.info(f"Imported {source}: {model.config.num_weights:,} weights, {model.config.vocab_size:,} sub-words.")


def _read_hparams(folder: Folder) -> dict:
    """Returns the hparams that the files give, and some flags."""
    lines = folder.content(_FLAGS).decode(errors="replace").splitlines() if folder.find(_FLAGS) else []
    flags = dict(line.removeprefix("--").split("=", 1) for line in lines if "=" in line)
    if (model := flags.get("model", "transformer")) != "transformer":
        raise ValueError(f"Expected model=transformer in {folder.path / _FLAGS}. Received: model={model:.80}.")
    hparams, of_set = {name: flags.get(name, "") for name in ("hparams_set", "data_dir")}, {}
    if known := _SET.fullmatch(hparams["hparams_set"].replace("transformer_tpu", "transformer_base")):
        size, version, device = known.groups()
        first = version == "_v1"
        of_set = {"num_heads": _HEADS[size], **dict.fromkeys(("attention_dropout", "relu_dropout"), 0.1 * (not first))}
        of_set["layer_prepostprocess_dropout"] = 0.3 if size == "big" and device != "_single_gpu" else 0.1
        if first:
            of_set |= {"layer_preprocess_sequence": "none", "layer_postprocess_sequence": "dan"}
    if folder.find(_HPARAMS):
        return hparams | of_set | folder.json(_HPARAMS)
    changes = [change.partition("=") for change in flags.get("hparams", "").split(",")]
    return hparams | of_set | {name.strip(): _value(value.strip()) for name, _, value in changes}


def _value(text: str):
    """Returns the value of an hparam that a flag gives as text."""
    try:
        return json.loads(text.lower())
    except (ValueError, RecursionError):
        return text


def _checked_norm(hparams: dict, folder: Folder) -> str:
    """Returns where the model has its layer normalization. Raises `ValueError` if it is none of ours."""
    for name, values in _EXPECTED.items():
        if name in hparams and hparams[name] not in values:
            raise ValueError(
                f"Expected a model of tensor2tensor with {name}={values[0]}. Received: {name}="
                f"{reprlib.repr(hparams[name])} in {folder.path}, which cannot be imported."
            )
    names = "layer_preprocess_sequence", "layer_postprocess_sequence"
    sequences = tuple(hparams.get(name, usual) for name, usual in zip(names, ("n", "da"), strict=True))
    if sequences not in [*_NORMS]:  # They may be lists, which have no hash.
        raise ValueError(
            f"Expected {' and '.join(names)} of n and da, or none and dan. Received: {sequences!r:.80} in "
            f"{folder.path}, which cannot be imported."
        )
    if not hparams.get("num_heads"):
        known = f"hparams_set={hparams['hparams_set']!s:.80}" if hparams["hparams_set"] else "no hparams_set"
        raise ValueError(
            f"Expected {_HPARAMS} in {folder.path}, or {_FLAGS} with a known hparams_set. Received: {known}. Give "
            "`num_heads`, the number of attention heads."
        )
    return _NORMS[sequences]


def _vocabulary(folder: Folder, path: str | os.PathLike, hparams: dict) -> bytes:
    """Reads the file of sub-words `path`, or the only one in the folder."""
    path = pathlib.Path(path).expanduser() if path else None
    if path is None:
        names = sorted(each for each in os.listdir(folder.path) if re.fullmatch(r"vocab\..*subwords", each))
        if len(names) != 1:
            data_dir = str(hparams["data_dir"] or "")
            where = f" It was in {data_dir:.200}." if data_dir and data_dir.isprintable() else ""
            raise FileNotFoundError(
                f"Expected one vocabulary, vocab.*.subwords, in {folder.path}. Received: {', '.join(names) or 'none'}. "
                f"Give it as `vocab`.{where}"
            )
        path = folder.path / names[0]
    content = Folder(path.parent).content(path.name)
    try:
        texts_of(content)
    except ValueError as error:
        raise ValueError(f"Expected a vocabulary of tensor2tensor. Received: {path} ({error})") from error
    return content


class _Model:
    """The weights of a model, as `checkpoint.write` takes it; `sizes` are tensor2tensor's numbers of sub-words of
    target and source.
    """

    def __init__(self, tensors: Checkpoint, sizes: list[int], hparams: dict, norm: str, target_space: int | None):
        self._tensors = tensors
        prefix = next((match[1] for match in map(_FIRST.fullmatch, sorted(tensors)) if match), None)
        if prefix is None:
            raise ValueError(
                "Expected the weights of a Transformer of tensor2tensor, such as "
                f"transformer/body/encoder/layer_0/ffn/conv1/kernel. Received: {tensors.path}, which has none."
            )
        # The optimizer's state of a variable has its name and one word more.
        names = {
            name.removeprefix(prefix): name
            for name in tensors
            if name.startswith((f"{prefix}body/", f"{prefix}symbol_modality_"))
            and name.rpartition("/")[0] not in tensors
        }
        self._weights = Weights(Chosen(tensors, names))
        first = "body/encoder/layer_0"
        width, inner = self._shape(f"{first}/ffn/conv1/kernel", 2)
        keys, values = (self._shape(f"{first}/self_attention/multihead_attention/{part}/kernel", 2)[1] for part in "kv")
        source = self._shards(sizes[1], width, "input_emb", "shared")
        target = self._shards(sizes[0], width, "target_emb", "shared")
        logits = self._shards(sizes[0], width, "softmax", "shared")
        space = self._target_space(target_space, width)
        heads = hparams["num_heads"]
        if type(heads) is not int or heads < 1 or keys % heads or values % heads:
            raise ValueError(
                f"Expected a num_heads that divides the {keys} columns of the keys and the {values} of the values. "
                f"Received: {reprlib.repr(heads)}."
            )
        try:
            self.config = ModelConfig(
                vocab_size=sizes[0] + _ADDED,
                source_vocab_size=sizes[1] + _ADDED if space is not None or source != target else 0,
                encoder_layers=self._layers("encoder"),
                decoder_layers=self._layers("decoder"),
                d_model=width,
                d_ff=inner,
                num_heads=heads,
                d_k=keys // heads,
                d_v=values // heads,
                dropout=hparams.get("layer_prepostprocess_dropout", 0.1),
                attention_dropout=hparams.get("attention_dropout", 0.1),
                activation_dropout=hparams.get("relu_dropout", 0.1),
                sinusoids=TENSOR2TENSOR,
                norm=norm,
                norm_epsilon=hparams.get("norm_epsilon", 1e-6),
                tie_logits=target == logits,
                logits_bias=True,
            )
        except (ValueError, TypeError) as error:
            raise ValueError(f"The model in {tensors.path} cannot be imported: {error}") from error
        self._order = alternating(width)
        embedding = "transformer/embedding"
        self.weights = [self._matrix(f"{embedding}/matrix", target, sizes[0])]
        if self.config.source_vocab_size:
            self.weights.append(self._matrix("transformer/source_embedding/matrix", source, sizes[1], space))
        if not self.config.tie_logits:
            self.weights.append(self._matrix(f"{embedding}/logits_matrix", logits, sizes[0]))
        bias = np.where(np.isin(np.arange(self.config.vocab_size), (UNK, BOS)), np.float32(_NEVER), np.float32(0))
        self.weights.append(Weight(f"{embedding}/logits_bias", lambda: bias))
        self.weights += self._weights.of_layers(self.config, self._name, transposed=False)
        self._weights.check_all_taken(f"a Transformer of tensor2tensor with {norm}-norm layers")

    def _shape(self, name: str, dimensions: int) -> tuple[int, ...]:
        if len(shape := self._weights.shape(name)) != dimensions:
            raise ValueError(f"Expected {name} of {dimensions} dimensions in {self._tensors.path}. Received: {shape}.")
        return shape

    def _layers(self, side: str) -> int:
        names = (f"body/{side}/layer_{number}/ffn/conv1/kernel" for number in itertools.count())
        return len(list(itertools.takewhile(self._weights.names.__contains__, names)))

    def _shards(self, size: int, width: int, *scopes: str) -> list[str]:
        """Returns the names of the parts of an embedding, which has the first of some names."""
        for scope in scopes:
            name = f"symbol_modality_{size}_{width}/{scope}/weights_"
            if shards := [each for each in self._weights.names if each.startswith(name)]:
                return [f"{name}{index}" for index in range(len(shards))]
        found = {match[1] for match in map(_MODALITY.match, self._weights.names) if match}
        raise ValueError(
            f"Expected a vocabulary of {' or '.join(sorted(found)) or 'no'} sub-words, those of the embedding in "
            f"{self._tensors.path}. Received: {size}. Give the file as `vocab`, and that of another source as "
            "`source_vocab`."
        )

    def _matrix(self, path: str, shards: list[str], size: int, added=None) -> Weight:
        """Returns an embedding in our order of rows and columns, and what is `added` to each row."""
        number, width = len(shards), self._order.size
        rows = [size // number + (index < size % number) for index in range(number)]
        parts = [self._weights.take(path, name, (row, width)) for name, row in zip(shards, rows, strict=True)]

        def array() -> np.ndarray:
            matrix = np.zeros((size + _ADDED, width), np.float32)
            np.concatenate([part.array() for part in parts], out=matrix[_ADDED:])
            matrix[0], matrix[_ADDED] = matrix[_ADDED], 0  # Padding is first, and BOS, the last of the added, zero.
            matrix = matrix[:, self._order]
            if added is not None:
                matrix += added()[self._order]
            return matrix

        return Weight(path, array)

    def _target_space(self, target_space: int | None, width: int):
        """Returns what reads the vector that is added to the embeddings of the source; `None` if there is none."""
        if _SPACES not in self._weights.names:
            return None
        number = self._shape(_SPACES, 2)[0]
        spaces = self._weights.take(_SPACES, _SPACES, (number, width))
        if target_space is None:
            slot = next((name for name in self._tensors if name.endswith(f"{_SPACES}/Adam")), None)
            trained = [] if slot is None else np.flatnonzero(np.any(self._tensors[slot], axis=-1))
            target_space = int(trained[0]) if len(trained) == 1 else 0
        if not 0 <= target_space < number:
            raise ValueError(f"Expected a target_space of 0 to {number - 1}. Received: {target_space}.")
        return lambda: spaces.array()[target_space] * np.float32(width**-0.5)

    def _name(self, place: Place) -> str:
        """Returns their name of a weight of a layer."""
        _, stack, *inside, array = place.path.split("/")
        side, _, index = stack.partition("_")
        name = f"body/{side}"
        if inside:
            name += f"/layer_{index}/{_SUB_LAYERS[inside[0].removesuffix('_norm')]}"
        if array not in _OF_NORM:
            return f"{name}/{_PARTS[inside[1]]}/{array}"
        kind = "layer_prepostprocess" if self.config.norm == PRE else "layer_postprocess"
        return f"{name}/{kind}/layer_norm/layer_norm_{_OF_NORM[array]}"
