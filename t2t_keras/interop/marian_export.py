"""Writes a run as a Marian model in transformers' format, for `MarianMTModel` and `MarianTokenizer`: the inverse of
`huggingface`.

Ids are in the order of OPUS-MT's: the end token, unknown, the sub-words in their order, padding; only where one side
has more sub-words than the other, its padding has the id of the other's, and its last sub-words come after. Marian's
decoder starts from the padding, which is masked elsewhere, so that row is the start token's, and one id fewer is left.
Weights that the model does not have, such as biases in attention, are written as zeros.

Letters: D d_model, V vocabulary.
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
from collections.abc import Sequence
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import sentencepiece

from t2t_keras.config import BOS, EOS, PAD, UNK, DecodeConfig, ModelConfig
from t2t_keras.interop import model_card
from t2t_keras.interop.huggingface_folder import INSTALL, SAFETENSORS
from t2t_keras.interop.marian_config import CONFIG, EPSILON, SEARCH, TYPICAL
from t2t_keras.interop.marian_vocabulary import (
    LANGUAGES,
    SOURCE_MODEL,
    TARGET_MODEL,
    TARGET_VOCABULARY,
    TOKENIZER,
    VOCABULARY,
)
from t2t_keras.interop.marian_weights import FORBIDDEN, LOGITS, LOGITS_BIAS, SHARED, SOURCE, TARGET, alternating, layers
from t2t_keras.runs import checkpoint as checkpoints
from t2t_keras.runs import data_folder, run_options
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system.files import check_new, making_folder
from t2t_keras.system.log import logger
from t2t_keras.text import piece_file, sentencepiece_model

CARD = "README.md"
# Options of the model that Marian has too, or that matter in training alone; the others must have their defaults.
_SAID = (
    *("vocab_size", "encoder_layers", "decoder_layers", "d_model", "d_ff", "num_heads", "d_k", "d_v", "dropout"),
    *("attention_bias", "activation", "norm_epsilon", "source_vocab_size", "tie_logits", "logits_bias"),
    *("attention_dropout", "activation_dropout", "word_dropout", "r_drop", "simcut"),
)
_EMBEDDING = "transformer/embedding"
_MEMORY_PROJECTIONS = ("encoder_attn.k_proj.weight", "encoder_attn.v_proj.weight")  # These read the encoder's output.
_OWN_SOURCE = "transformer/source_embedding/matrix"


class _Side(NamedTuple):
    """The sub-words of a side: those from id 4 on, and a SentencePiece model."""

    pieces: tuple[str, ...]
    processor: bytes

    def ids(self, pad: int) -> dict[str, int]:
        """Returns Marian's ids; `pad` is that of the padding."""
        # `MarianTokenizer` looks up a tag such as >>2de<< without a space.
        pieces = ["</s>", "<unk>", *(re.sub(r"\A▁(>>[^<>]+<<)\Z", r"\1", piece) for piece in self.pieces)]
        pieces.insert(pad, "<pad>")
        return {piece: index for index, piece in enumerate(pieces)}


@dataclasses.dataclass
class _Variable:
    """A weight to be read, as `checkpoint.load` takes it."""

    path: str
    shape: tuple[int, ...]
    value: np.ndarray | None = None
    dtype = np.dtype(np.float32)

    def assign(self, value: np.ndarray) -> None:
        self.value = value


def export_marian(
    model_dir: str | os.PathLike,
    export_dir: str | os.PathLike,
    which: str | int = "average",
    *,
    scores: Sequence[str | os.PathLike] = (),
    **decode_options,
) -> None:
    """Exports a run for transformers, with a model card.

    Args:
        model_dir: the run's folder.
        export_dir: a new or empty folder.
        which: "average", "best", "latest", "ema" or the number of an update.
        scores: files with what `tools/evaluate.py --json` printed, for the card; their names are those of the test
            sets.
        decode_options: fields of `DecodeConfig`, which replace those of the run.

    Raises:
        FileNotFoundError: the folder is not a run, or has no such checkpoint.
        FileExistsError: `export_dir` is not empty.
        ValueError: the format has no such model, a file is damaged, or safetensors is not installed. Nothing is
            written.
    """
    run = SavedRun.open(pathlib.Path(model_dir).expanduser())
    search = dataclasses.replace(run.search, **decode_options)
    export_run(run, pathlib.Path(export_dir).expanduser(), str(which), search, scores=scores)


def export_run(
    run: SavedRun,
    export_dir: pathlib.Path,
    checkpoint: str,
    decode: DecodeConfig,
    *,
    scores: Sequence[str | os.PathLike] = (),
) -> None:
    """Exports an opened run with options of the search; see `export_marian`."""
    folder = export_dir.resolve()
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ValueError(f"The format of Hugging Face needs the package safetensors: {INSTALL}.") from error
    check_new(folder, "export_dir")
    _check(run)
    model = run.model
    target, source = _sides(run)
    if decode.diverse_groups > 1:
        logger.warning("Options of the search without a counterpart are ignored: diverse_groups.")
        decode = dataclasses.replace(decode, diverse_groups=1)
    scored = [model_card.read_scores(pathlib.Path(path).expanduser(), decode) for path in scores]
    weights, loaded, state = _read(run.folder, checkpoint, model)
    tensors, own = _tensors(model, weights)
    separate = source.pieces != target.pieces
    used = f"{checkpoint}, {loaded.rpartition(': ')[2]}"  # Without the folder.
    data = run.corpus
    card = model_card.card(folder.name, run, data, decode, used, state, scored)
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": separate,
        "model_max_length": decode.max_input,
    }
    tokenizer |= zip(LANGUAGES, data_folder.languages(data), strict=False)
    # The text of a special token is text, and the spaces of a translation stay.
    tokenizer |= {"split_special_tokens": True, "clean_up_tokenization_spaces": False}
    objects = {
        CONFIG: _config(model, decode, own),
        SEARCH: _search(decode, own),
        TOKENIZER: tokenizer,
        VOCABULARY: source.ids(own.pad),
    }
    if separate:
        objects[TARGET_VOCABULARY] = target.ids(own.pad)
    with making_folder(folder) as unfinished:
        for name, values in objects.items():
            (unfinished / name).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        for name, side in ((SOURCE_MODEL, source), (TARGET_MODEL, target)):
            (unfinished / name).write_bytes(side.processor)
        (unfinished / CARD).write_text(card, encoding="utf-8")
        save_file(tensors, unfinished / SAFETENSORS, metadata={"format": "pt"})
        shutil.copymode(unfinished / CONFIG, unfinished / SAFETENSORS)  # The library lets only the user read it.


def _check(run: SavedRun) -> None:
    """Raises `ValueError` for a run whose network Marian does not have."""
    advice = "Export a SavedModel instead."
    if run.architecture != run_options.TRANSFORMER:
        raise ValueError(
            "Expected a Transformer for the format of Hugging Face. Received: a run with "
            f"architecture={run.architecture}. {advice}"
        )
    model = run.model
    for field in dataclasses.fields(model):
        if field.name not in _SAID and (value := getattr(model, field.name)) != field.default:
            raise ValueError(
                f"Expected {field.name}={field.default}, because MarianMTModel has no other. Received: "
                f"{field.name}={value}. {advice}"
            )
    if not model.d_k == model.d_v == model.d_model / model.num_heads:
        raise ValueError(
            f"Expected heads of d_k = d_v = d_model / num_heads, as Marian's. Received: d_k={model.d_k}, "
            f"d_v={model.d_v}, d_model={model.d_model}, num_heads={model.num_heads}. {advice}"
        )
    if model.norm_epsilon > EPSILON:
        raise ValueError(
            f"Expected norm_epsilon of at most {EPSILON}, Marian's. Received: norm_epsilon={model.norm_epsilon}. "
            f"{advice}"
        )


def _sides(run: SavedRun) -> tuple[_Side, _Side]:
    """Returns the sub-words of targets and sources."""
    model, sides = run.model, [_side(content) for content in run.subwords()]
    for side, size in zip(sides, (model.vocab_size, model.source_vocab_size or model.vocab_size), strict=False):
        if (number := len(side.pieces) + len(piece_file.SPECIAL)) != size:
            received = f"{number:,} in {run.folder}. Restore the file from a copy."
            raise ValueError(f"Expected the model's {size:,} sub-words. Received: {received}")
    return sides[0], sides[-1]


def _side(content: bytes) -> _Side:
    if content.startswith(piece_file.HEAD):
        file = piece_file.unpack(content)
        if file.language is not None:
            raise ValueError(
                "The format of Hugging Face needs sub-words without languages. Received: those of a multilingual model."
            )
        if not file.processor:
            raise ValueError("The format of Hugging Face needs a SentencePiece model. Received: a list of tokens.")
        return _Side(file.pieces[EOS + 1 :], file.processor)
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(content)
    except RuntimeError as error:
        raise ValueError(
            "The format of Hugging Face needs byte-pair encoding. Received: a model with other sub-words. Export a "
            "SavedModel instead."
        ) from error
    if pattern := sentencepiece_model.pattern_of(content):
        raise ValueError(
            f"The format of Hugging Face needs sub-words without placeholders. Received: keep_patterns={pattern}."
        )
    pieces = tuple(processor.id_to_piece(index) for index in range(EOS + 1, processor.vocab_size()))
    return _Side(pieces, sentencepiece_model.escaping(content))


def _read(model_dir: pathlib.Path, which: str, model: ModelConfig) -> tuple[dict[str, np.ndarray], str, dict]:
    """Returns the weights of a run by path, a description of them, and the state of their checkpoint."""
    shapes = {f"{_EMBEDDING}/matrix": (model.vocab_size, model.d_model)}
    if model.source_vocab_size:
        shapes[_OWN_SOURCE] = (model.source_vocab_size, model.d_model)
    if not model.tie_logits:
        shapes[f"{_EMBEDDING}/logits_matrix"] = (model.vocab_size, model.d_model)
    if model.logits_bias:
        shapes[f"{_EMBEDDING}/logits_bias"] = (model.vocab_size,)
    shapes |= {place.path: place.shape for place in layers(model)}
    checkpoints.check_size(model_dir, which, model.num_weights)
    variables = [_Variable(path, shape) for path, shape in shapes.items()]
    loaded, state = checkpoints.load(model_dir, which, SimpleNamespace(weights=variables))
    logger.info(f"Using the {loaded}.")
    return {variable.path: variable.value for variable in variables}, loaded, state


class _Layout(NamedTuple):
    """What depends on the weights: which matrices are one, whether embeddings are multiplied by √D, and ids."""

    shared: bool
    tied: bool
    scaled: bool
    pad: int
    start: int
    forbidden: list[int]


def _tensors(model: ModelConfig, weights: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], _Layout]:
    """Returns Marian's tensors by name. Takes the weights out of their dictionary.

    LayerNorm(x) with ε is LayerNorm(c x) with c² ε. So the sums between the first and the last normalization of a stack
    are c times as large where Marian's ε is c² times the run's.
    """
    columns, tensors = np.argsort(alternating(model.d_model)), {}
    numbers = {"encoder": model.encoder_layers, "decoder": model.decoder_layers}
    last = tuple(f"transformer/{side}_{number - 1}/feed_forward_norm/" for side, number in numbers.items())
    factor, stream = np.float32((EPSILON / model.norm_epsilon) ** 0.5), 1

    def add(name: str, array: np.ndarray) -> None:
        tensors[name] = np.ascontiguousarray(array)

    for place in layers(dataclasses.replace(model, attention_bias=True)):
        array = weights.pop(place.path, None)
        array = np.zeros(place.shape, np.float32) if array is None else place.ordered(array, columns)
        if place.path.endswith(("/gamma", "/beta")):
            stream = 1 if place.path.startswith(last) else factor
        if place.of_model == array.ndim - 1:  # What is normalized, or added to the sums.
            array = array * stream
        elif array.ndim == 2 and not place.name.endswith(_MEMORY_PROJECTIONS):
            array = array / stream
        add(place.name, array.T)
    target = weights.pop(f"{_EMBEDDING}/matrix")
    source, logits = weights.pop(_OWN_SOURCE, target), weights.pop(f"{_EMBEDDING}/logits_matrix", target)
    scaled = bool(model.tie_logits or model.source_vocab_size)
    scaled = scaled or bool(np.any(logits * np.float32(model.d_model**-0.5) != target))
    if not scaled:  # As `marian_weights` has brought it in.
        source = target = logits
    tied = logits is target
    pad = min(len(source), len(target)) - 2  # One id for both sides: transformers' tokenizer has one.
    ids, start = _ids(target, pad)
    shared = tied and source is target
    if shared:
        add(SHARED, target[ids][:, columns])
    else:
        add(SOURCE, source[_ids(source, pad)[0]][:, columns])
        add(TARGET, target[ids][:, columns])
    if not tied:
        add(LOGITS, logits[ids][:, columns])
    bias = weights.pop(f"{_EMBEDDING}/logits_bias", np.zeros(len(target), np.float32))[ids]
    bias[pad] = FORBIDDEN
    forbidden = np.flatnonzero(bias <= FORBIDDEN)
    bias[forbidden] = 0
    add(LOGITS_BIAS, bias[None])
    return tensors, _Layout(shared, tied, scaled, pad, start, forbidden.tolist())


def _ids(matrix: np.ndarray, pad: int) -> tuple[list[int], int]:
    """Returns our id for each of Marian's, and Marian's of the start token: that of the padding, `pad`, or of another
    row of the embedding, [V, D], that is the same.
    """
    ids = [EOS, UNK, *range(EOS + 1, len(matrix))]
    same = np.flatnonzero((matrix == matrix[BOS]).all(axis=1)).tolist()
    starts_from_padding = PAD in same or same == [BOS]
    ids.insert(pad, BOS if starts_from_padding else PAD)
    return ids, pad if starts_from_padding else next(place for place, index in enumerate(ids) if index in same)


def _config(model: ModelConfig, decode: DecodeConfig, layout: _Layout) -> dict:
    sides = ("encoder", "decoder")
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "dtype": "float32",
        "is_encoder_decoder": True,
        "vocab_size": (model.source_vocab_size or model.vocab_size) - 1,
        "decoder_vocab_size": model.vocab_size - 1,
        "share_encoder_decoder_embeddings": layout.shared,
        "tie_word_embeddings": layout.tied,
        "scale_embedding": layout.scaled,
        "static_position_embeddings": True,
        "max_position_embeddings": decode.max_input,
        "d_model": model.d_model,
        "encoder_layers": model.encoder_layers,
        "decoder_layers": model.decoder_layers,
        **{f"{side}_attention_heads": model.num_heads for side in sides},
        **{f"{side}_ffn_dim": model.d_ff for side in sides},
        "activation_function": model.activation,
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.activation_dropout,
        **_special(layout),
    }


def _special(layout: _Layout) -> dict:
    start, pad = layout.start, layout.pad
    return {"decoder_start_token_id": start, "eos_token_id": 0, "forced_eos_token_id": 0, "pad_token_id": pad}


def _search(decode: DecodeConfig, layout: _Layout) -> dict:
    """Returns the options of `generate`; for its length penalty see `marian_config`.

    Here, forbidden sub-words leave their probability to the others, but those that would repeat an n-gram do not.
    """
    return {
        **_special(layout),
        "bad_words_ids": [[index] for index in layout.forbidden],
        "num_beams": decode.beam_size,
        "length_penalty": round(decode.alpha * TYPICAL / (TYPICAL + 5), 6),
        "no_repeat_ngram_size": decode.no_repeat_ngram,
        "max_length": decode.max_input,
        "renormalize_logits": not decode.no_repeat_ngram,
    }
