"""Imports a Transformer of OpenNMT-tf 2, from the folder of a run or a SavedModel, as the folder of a run.

`model_description.py` is code and is not read: sizes are those of the weights. Position encodings have all sines before
all cosines, where section 3.5 alternates them: the D columns of every weight are put in that order, as in
`marian_weights`. The ids are those of the lines of a vocabulary, <blank>, <s> and </s> first, and one more for what is
unknown.
"""

import os
import pathlib
import re
import reprlib
import sys
from collections.abc import Iterator

import numpy as np

from t2t_keras.config import POST, PRE, TENSOR2TENSOR, DataConfig, DecodeConfig, ModelConfig
from t2t_keras.interop import imported_run, tensorflow_checkpoint
from t2t_keras.interop.huggingface_folder import Folder, load_yaml
from t2t_keras.interop.marian_weights import NORM, Place, Weight, Weights, alternating
from t2t_keras.interop.tensorflow_checkpoint import VALUE, Checkpoint, Chosen
from t2t_keras.runs import run_options
from t2t_keras.system.files import check_new, check_no_link
from t2t_keras.system.log import logger
from t2t_keras.text import piece_file

CONFIGS = ("data.yml", "config.yml")  # Names of the configuration, where none is given.
SPECIAL = ["<blank>", "<s>", "</s>"]  # The first tokens of a vocabulary.
MAX_YAML = 2**20  # Bytes.
_PARTS = ("examples_inputter", "encoder", "decoder")  # Of a model.
_SOURCE, _TARGET = (f"examples_inputter/{side}_inputter/embedding" for side in ("features", "labels"))
_LOGITS, _LOGITS_BIAS = "decoder/output_layer/kernel", "decoder/output_layer/bias"
_ATTENTION = {"query": "queries", "key": "keys", "value": "values", "output": "output"}
# Options of the search with the values that change nothing.
_NO_COUNTERPART = {
    "coverage_penalty": 0, "sampling_topk": 1, "sampling_temperature": 1, "minimum_decoding_length": 0,
    "maximum_decoding_length": 250,
}  # fmt: skip
_EPSILON = 1e-3  # Of Keras's LayerNormalization.
_HEADS = {64: 2, 1024: 16}  # Of the catalogue's models, by their width; others have 8.
_RATES = ("dropout", "attention_dropout", "activation_dropout")
_SCORE = re.compile(r"(.+)\t-?[\d.e+-]+")  # A line of a `.vocab` of SentencePiece.


def import_opennmt(
    source: str | os.PathLike,
    model_dir: str | os.PathLike,
    *,
    checkpoint: str = "",
    config: str | os.PathLike = "",
    source_vocabulary: str | os.PathLike = "",
    target_vocabulary: str | os.PathLike = "",
    source_subwords: str | os.PathLike = "",
    target_subwords: str | os.PathLike = "",
    num_heads: int = 0,
    activation: str = "relu",
    source_end: bool | None = None,
) -> None:
    """Imports a Transformer of OpenNMT-tf 2.

    Args:
        source: the folder of a run, with checkpoints, or of a SavedModel.
        model_dir: the run's folder, new or empty.
        checkpoint: the checkpoint, such as ckpt-1000, 1000 or avg; empty for the newest.
        config: the configuration, a YAML file; empty for `data.yml` or `config.yml` in `source`, if one is there.
        source_vocabulary, target_vocabulary: the vocabularies, a token a line; empty for those of the configuration.
            That of the target may be left out if both sides share one.
        source_subwords, target_subwords: the SentencePiece models that divide text, likewise. Without them, the tokens
            of a text have spaces between them.
        num_heads: number of attention heads, which the weights do not show; 0 for that of the catalogue: 16 for
            d_model=1024, 2 for 64, else 8.
        activation: that of the feed-forward networks.
        source_end: whether sources end in </s>, as `source_sequence_controls` says; `None` for the configuration, or
            else the catalogue: in ScalingNmt they do.

    Raises:
        FileNotFoundError: a file is missing.
        FileExistsError: `model_dir` is not empty.
        ValueError: a file is damaged or does not fit, or the model cannot be imported. Nothing is written.
    """
    model_dir = pathlib.Path(model_dir).expanduser().resolve()
    check_new(model_dir, "model_dir")
    values = _Config(pathlib.Path(source).expanduser(), config)
    files = {"source_vocabulary": source_vocabulary, "target_vocabulary": target_vocabulary}
    files |= {"source_subwords": source_subwords, "target_subwords": target_subwords}
    paths = {name: pathlib.Path(path).expanduser() if path else values.path(name) for name, path in files.items()}
    arrays = tensorflow_checkpoint.read(source, checkpoint)
    weights = _weights_of(arrays)
    if not (first := paths["source_vocabulary"]):
        raise ValueError(
            "Expected the vocabularies of the model, a token a line. Received none: give `source_vocabulary` and "
            f"`target_vocabulary`, or a `config` that names them, as {CONFIGS[0]} in {source}."
        )
    second = paths["target_vocabulary"] or first
    source_tokens, target_tokens = _tokens(first), _tokens(second)
    target = _TARGET if _TARGET in weights.names else _SOURCE
    if target == _SOURCE and source_tokens != target_tokens:
        raise ValueError(
            f"Expected one vocabulary, because both sides share an embedding in {arrays.path}. Received: {first} and "
            f"{second}, which differ."
        )
    for path, tokens, name in ((first, source_tokens, _SOURCE), (second, target_tokens, target)):
        if weights.shape(name)[:1] != (len(tokens) + 1,):
            raise ValueError(
                f"Expected a vocabulary of {weights.shape(name)[0] - 1:,} tokens, one less than the rows of {name} in "
                f"{arrays.path}. Received: {path} with {len(tokens):,} tokens."
            )
    model = _options(weights, num_heads, activation, values, source_end)
    converted = _Model(model, weights, target)
    subwords = [paths["target_subwords"] or paths["source_subwords"], paths["source_subwords"]]
    contents = [_packed(tokens, path) for tokens, path in zip((target_tokens, source_tokens), subwords, strict=True)]
    if not all(subwords):
        logger.warning(
            "No SentencePiece model is given: text must be divided into tokens, with spaces between them, as for "
            "training, and translations consist of tokens."
        )
    decode = values.search()
    sources = dict.fromkeys([*vars(model), *vars(decode)], imported_run.origin(source))
    options = run_options.Options(model, decode=decode, data=DataConfig(subwords="sentencepiece"), sources=sources)
    imported_run.write(model_dir, options, *contents, converted)
    if not num_heads:
        logger.info(
            f"The model has {model.num_heads} heads, as in the catalogue of OpenNMT-tf; `num_heads` changes it."
        )
    logger.info(f"Imported {arrays.path}: {model.num_weights:,} weights, {model.vocab_size:,} sub-words.")


class _Config:
    """The values of a configuration, each checked; none without the file."""

    def __init__(self, folder: pathlib.Path, path: str | os.PathLike):
        present = [folder / name for name in CONFIGS if (folder / name).is_file()]
        self._path = pathlib.Path(path).expanduser() if path else next(iter(present), None)
        self._values = {} if self._path is None else self._read()

    def _read(self) -> dict:
        values = load_yaml(Folder(self._path.parent).content(self._path.name), self._path, MAX_YAML)
        if not isinstance(values, dict):
            raise ValueError(f"Expected {self._path} to have sections, such as data. Received: {_short(values)}.")
        return values

    def get(self, section: str, name: str, kind: type | tuple, default=None):
        """Returns a value of a section, which must be of a type."""
        values = self._values.get(section) or {}
        value = values.get(name) if isinstance(values, dict) else values
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool) and kind is not bool):
            raise ValueError(f"Expected another type for {section}: {name} in {self._path}. Received: {_short(value)}.")
        if isinstance(value, int) and abs(value) > sys.float_info.max:
            raise ValueError(
                f"Expected {section}: {name} in {self._path} to be nearer to 0. Received: {_short(value)}."
            )
        return default if value is None else value

    def path(self, name: str) -> pathlib.Path | None:
        """Returns a file that the configuration names, of its own folder; `None` if it does not."""
        side, _, what = name.partition("_")
        if what == "vocabulary":
            value = self.get("data", name, str) or self.get("data", f"{side}_words_vocabulary", str)  # Of version 1.
        else:
            value = self._sentencepiece(side)
        return None if value is None else self._own(value, f"{side}'s {what}", name)

    def _own(self, name: str, what: str, option: str) -> pathlib.Path:
        """Returns the path of a file that the configuration names, of its own folder; else names the option to give."""
        parts = pathlib.Path(name)
        if parts.is_absolute() or ".." in parts.parts:
            raise ValueError(
                f"Expected {self._path} to name a file of its folder as the {what}. Received: {_short(name)}. Give its "
                f"path as `{option}`."
            )
        for folder in parts.parents[:-1]:
            check_no_link(self._path.parent / folder)
        return self._path.parent / parts

    def _sentencepiece(self, side: str) -> str | None:
        """Returns the SentencePiece model that divides the text of a side, if nothing else does."""
        tokenization = self.get("data", f"{side}_tokenization", (dict, str), {})
        if isinstance(tokenization, str):  # Another file has it.
            path = self._own(tokenization, f"{side}'s tokenization", f"{side}_subwords")
            tokenization = load_yaml(Folder(path.parent).content(path.name), path, MAX_YAML)
            tokenization = tokenization if isinstance(tokenization, dict) else {}
        kind, params = tokenization.get("type"), tokenization.get("params")
        params = params if isinstance(params, dict) else {}
        models = {"SentencePieceTokenizer": "model"}
        if params.get("mode") == "none":
            models["OpenNMTTokenizer"] = "sp_model_path"
        value = params.get(models.get(kind)) if isinstance(kind, str) else None
        return value if isinstance(value, str) else None

    def source_end(self) -> bool | None:
        """Returns whether sources end in </s>; `None` without the file's word."""
        controls = self.get("data", "source_sequence_controls", dict, {})
        if controls.get("start"):
            raise ValueError(
                f"Expected sources that do not begin with <s>. Received: source_sequence_controls with start in "
                f"{self._path}, which cannot be imported."
            )
        return bool(controls["end"]) if "end" in controls else None

    def dropout(self) -> dict[str, float]:
        """Returns the rates of dropout that the file has."""
        rate = self.get("params", "dropout", (int, float))
        return {} if rate is None else dict.fromkeys(_RATES, float(rate))

    def search(self) -> DecodeConfig:
        """Returns the options of the search; those of the catalogue are 4 beams without a length penalty."""
        beams = self.get("params", "beam_width", int, 4)
        alpha = float(self.get("params", "length_penalty", (int, float), 0.0))
        given = {name: self.get("params", name, (int, float), usual) for name, usual in _NO_COUNTERPART.items()}
        ignored = [name for name, value in given.items() if value != _NO_COUNTERPART[name]]
        if self.get("params", "decoding_noise", list, []):
            ignored.append("decoding_noise")
        if ignored:
            logger.warning(f"Options of the search without a counterpart are ignored: {', '.join(ignored)}.")
        return _valid(DecodeConfig, self._path, beam_size=beams, alpha=alpha)


def _short(value) -> str:
    return reprlib.repr(value)[:100]


def _valid(options: type, path, **values):
    try:
        return options(**values)
    except ValueError as error:
        raise ValueError(f"{path} is not valid: {error}") from error


def _tokens(path: pathlib.Path) -> list[str]:
    """Reads a vocabulary: a token a line, as of OpenNMT-tf, or the `.vocab` of a SentencePiece model."""
    try:
        lines = Folder(path.parent).content(path.name).decode().split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"Expected a vocabulary in UTF-8. Received: {path}, which is not ({error}).") from error
    tokens = [line.rstrip("\r") for line in lines[: -1 if lines[-1] == "" else None]]
    scored = list(map(_SCORE.fullmatch, tokens))
    if tokens and all(scored):
        tokens = SPECIAL + [score[1] for score in scored if score[1] not in ("<unk>", "<s>", "</s>")]
    if tokens[:3] != SPECIAL:
        raise ValueError(
            f"Expected {', '.join(SPECIAL)} as the first lines of {path}. Received: {_short(tokens[:3])}, so it is no "
            "vocabulary of OpenNMT-tf."
        )
    return tokens


def _packed(tokens: list[str], path: pathlib.Path | None) -> bytes:
    """Returns the file of sub-words of a side."""
    processor = Folder(path.parent).content(path.name) if path else b""
    try:
        if path and not processor:
            raise ValueError("it is empty")
        return piece_file.pack(tokens[3:], processor, tagged=False)
    except ValueError as error:
        raise ValueError(f"{path or 'The vocabulary'} does not fit: {error}") from error


def _weights_of(arrays: Checkpoint) -> Weights:
    """Returns the weights of a model by the path of its objects. Raises `ValueError` for a model that is no Transformer
    with sinusoids.
    """
    beginnings = tuple(f"model/{part}/" for part in _PARTS)
    names = {
        name.removeprefix("model/").removesuffix(VALUE): name
        for name in arrays
        if name.startswith(beginnings) and name.endswith(VALUE) and "SLOT" not in name
    } or arrays.names_below(*_PARTS)
    found = sorted(names or arrays)
    if any("relative_position" in name for name in found):
        raise ValueError(
            f"{arrays.path} is a model with relative positions (Shaw et al. 2018), TransformerBaseRelative or "
            "TransformerBigRelative: it cannot be imported, because the Transformer here has absolute positions only."
        )
    if "encoder/layers/0/self_attention/layer/linear_queries/kernel" not in names:
        raise ValueError(
            f"Expected a Transformer of OpenNMT-tf 2 in {arrays.path}, with encoder/layers/0/self_attention. Received "
            f"another model, with {_short(found[0] if found else 'nothing')}. OpenNMT-tf 2 converts checkpoints of its "
            "version 1; RNN models cannot be imported."
        )
    return Weights(Chosen(arrays, names))


def _options(
    weights: Weights, num_heads: int, activation: str, config: _Config, source_end: bool | None
) -> ModelConfig:
    """Returns the options of a model: its sizes are those of the weights."""
    names, (rows, width) = weights.names, (*weights.shape(_SOURCE), 0)[:2]
    target_rows = rows if _TARGET not in names else weights.shape(_TARGET)[0]
    first = "encoder/layers/0"
    heads = num_heads or _HEADS.get(width, 8)
    if heads < 1 or width % heads:
        raise ValueError(
            f"Expected `num_heads` that divide d_model={width}. Received: num_heads={heads}. Give the number."
        )
    of_layers = {match[0] for name in names if (match := re.match(r"(encoder|decoder)/layers/\d{1,4}/", name))}
    norm = PRE if "encoder/layer_norm/gamma" in names else POST
    bias = _LOGITS_BIAS in names
    scaling = norm == POST and not bias  # ScalingNmtEnDe.
    rates = dict(zip(_RATES, (0.3, 0.1, 0.0) if scaling else (0.1, 0.1, 0.1), strict=True)) | config.dropout()
    ends = [each for each in (source_end, config.source_end(), scaling) if each is not None]
    return _valid(
        ModelConfig,
        "The model",
        vocab_size=target_rows,
        source_vocab_size=rows if _TARGET in names else 0,
        encoder_layers=sum(name.startswith("encoder") for name in of_layers),
        decoder_layers=sum(name.startswith("decoder") for name in of_layers),
        d_model=width,
        d_ff=(*weights.shape(f"{first}/ffn/layer/inner/kernel"), 0, 0)[1],
        num_heads=heads,
        d_k=width // heads,
        d_v=width // heads,
        **rates,
        activation=activation,
        norm=norm,
        norm_epsilon=_EPSILON,
        sinusoids=TENSOR2TENSOR,
        first_position=1,
        attention_bias=f"{first}/self_attention/layer/linear_queries/bias" in names,
        source_end=ends[0],
        tie_logits=_LOGITS not in names,
        logits_bias=bias,
    )


class _Model:
    """The weights of a model, as `checkpoint.write` takes it. Weights that are missing, unknown or of another shape are
    an error.
    """

    def __init__(self, model: ModelConfig, weights: Weights, target: str):
        self._model, self._take = model, weights.take
        self.weights = [*self._embeddings(target), *weights.of_layers(model, self._name, transposed=False)]
        weights.check_all_taken(f"a Transformer with {model.norm}-norm layers and sinusoids")

    def _embeddings(self, target: str) -> Iterator[Weight]:
        model, width, order = self._model, self._model.d_model, alternating(self._model.d_model)

        def of_rows(array: np.ndarray) -> np.ndarray:
            """Puts rows in the order of our ids."""
            return array[np.array([0, len(array) - 1, *range(1, len(array) - 1)])]

        def embedding(path: str, name: str, rows: int) -> Weight:
            return self._take(path, name, (rows, width), lambda array: of_rows(array[:, order]))

        if model.source_vocab_size:
            yield embedding("transformer/source_embedding/matrix", _SOURCE, model.source_vocab_size)
        yield embedding("transformer/embedding/matrix", target, model.vocab_size)
        if not model.tie_logits:
            shape = (width, model.vocab_size)
            change = lambda array: of_rows(array.T[:, order])  # noqa: E731
            yield self._take("transformer/embedding/logits_matrix", _LOGITS, shape, change)
        if model.logits_bias:
            yield self._take("transformer/embedding/logits_bias", _LOGITS_BIAS, (model.vocab_size,), of_rows)

    def _name(self, place: Place) -> str:
        """Returns their name of a weight: that of `transformer/decoder_0/cross_attention/query/kernel` begins with
        `decoder/layers/0/attention/0/layer/linear_queries`, that of a normalization with
        `…/attention/0/input_layer_norm`, and that of a stack's with `decoder/layer_norm`.
        """
        _, side, *parts, array = place.path.split("/")
        if not parts:
            return f"{side}/layer_norm/{array}"
        side, index = side.split("_")
        sublayer = parts[0].removesuffix("_norm")
        name = {"self_attention": "self_attention", "cross_attention": "attention/0", "feed_forward": "ffn"}[sublayer]
        if array in NORM:
            what = f"{'input' if self._model.norm == PRE else 'output'}_layer_norm"
        else:
            what = f"layer/{parts[1] if name == 'ffn' else f'linear_{_ATTENTION[parts[1]]}'}"
        return f"{side}/layers/{index}/{name}/{what}/{array}"
