"""The options of a Marian, M2M-100 or NLLB-200 model, of `config.json` and `generation_config.json` as transformers
writes them.
"""

import dataclasses
import reprlib
import sys

from t2t_keras.config import PRE, TENSOR2TENSOR, DecodeConfig, ModelConfig
from t2t_keras.interop.huggingface_folder import Folder

CONFIG, SEARCH = "config.json", "generation_config.json"
MARIAN, M2M = "marian", "m2m_100"  # Of NLLB-200 too.
# What must hold where it is given, by the type of the model. Native Marian has more networks than these.
_COMMON = {"is_encoder_decoder": True, "is_decoder": False}
_EXPECTED = {
    MARIAN: {
        **_COMMON,
        "normalize_before": False,
        "add_final_layer_norm": False,
        "normalize_embedding": False,
        "static_position_embeddings": True,
    },
    M2M: {**_COMMON, "tie_word_embeddings": True, "share_encoder_decoder_embeddings": True},
}
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
EPSILON = 1e-5  # Of PyTorch's LayerNorm.
# Of `generate`, which have no counterpart here, by the values that change nothing; false is 0.
_NO_COUNTERPART = {
    name: usual
    for usual, names in (
        (
            (0, None),
            "do_sample early_stopping diversity_penalty min_new_tokens encoder_no_repeat_ngram_size penalty_alpha",
        ),
        ((1, None), "repetition_penalty encoder_repetition_penalty num_beam_groups guidance_scale"),
        (([], None), "suppress_tokens begin_suppress_tokens stop_strings force_words_ids forced_decoder_ids"),
        ((None,), "exponential_decay_length_penalty sequence_bias max_new_tokens"),
        ((0, 1, None), "min_length"),
    )
    for name in names.split()
}
# What else `generation_config.json` may have: what is read, and what changes no translation of a beam search.
_KNOWN = (
    *("num_beams", "length_penalty", "no_repeat_ngram_size", "bad_words_ids", "renormalize_logits", "max_length"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
    *("forced_bos_token_id", "forced_eos_token_id"),
    *("temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"),  # Of sampling.
    *("use_cache", "cache_implementation", "cache_config", "return_legacy_cache", "compile_config", "low_memory"),
    *("num_return_sequences", "remove_invalid_values", "return_dict_in_generate", "disable_compile"),
    *("output_attentions", "output_hidden_states", "output_logits", "output_scores", "transformers_version"),
    *("_from_model_config", "_commit_hash", "generation_kwargs", "is_assistant", "num_assistant_tokens"),
    *("num_assistant_tokens_schedule", "assistant_confidence_threshold", "target_lookbehind"),
    *("assistant_lookbehind", "token_healing"),
)
TYPICAL = 20  # Sub-words of a typical sentence.


@dataclasses.dataclass(frozen=True)
class MarianConfig:
    """What the files say about a model.

    Attributes:
        kind: `MARIAN` or `M2M`.
        model, decode: the options of the run, but for the sizes of the vocabularies in `model`, which gain the start
            token.
        source_rows, target_rows: numbers of ids in the model.
        pad, eos, start: ids of the target; `start` is the first that the decoder reads.
        shared: whether both sides have one embedding.
        tied: whether the logits have the embedding of the target as their matrix.
        scaled: whether embeddings are multiplied by √d_model.
        forbidden: other ids of the target that a translation must not have.
        forced_first: the id that translations begin with, or `None`.
        left: options of the search that are ignored.
    """

    kind: str
    model: ModelConfig
    source_rows: int
    target_rows: int
    pad: int
    eos: int
    start: int
    shared: bool
    tied: bool
    scaled: bool
    decode: DecodeConfig
    forbidden: list[int]
    forced_first: int | None
    left: list[str]


class _Values:
    """The values of a file, each with its type."""

    def __init__(self, folder: Folder, name: str):
        self.path, self.values = folder.find(name) or folder.path / name, folder.json(name)

    def get(self, name: str, kind: type, *default):
        """Returns a value, which must be of a type; the default where it is not given."""
        value = self.values.get(name)
        if value is None and default:
            return default[0]
        if kind is float and type(value) is int and abs(value) <= sys.float_info.max:
            value = float(value)
        if type(value) is not kind:
            raise ValueError(
                f"Expected {name} of type {kind.__name__} in {self.path}. Received: {reprlib.repr(value)}."
            )
        return value

    def same(self, name: str, kind: type):
        """Returns a value that encoder and decoder must share, from `encoder_…` and `decoder_…`."""
        encoder, decoder = (self.get(f"{side}_{name}", kind) for side in ("encoder", "decoder"))
        if encoder != decoder:
            raise ValueError(
                f"Expected encoder and decoder with the same {name} in {self.path}. Received: encoder_{name}={encoder} "
                f"and decoder_{name}={decoder}."
            )
        return encoder

    def id_of(self, name: str, rows: int) -> int:
        """Returns an id of a vocabulary."""
        value = self.values.get(name)
        if isinstance(value, list) and len(value) == 1:
            (value,) = value
        if type(value) is not int or not 0 <= value < rows:
            raise ValueError(f"Expected {name} of 0 to {rows - 1} in {self.path}. Received: {reprlib.repr(value)}.")
        return value


def read(folder: Folder) -> MarianConfig:
    """Reads the options of a model, which must be a post-norm Transformer of Marian or M2M-100."""
    folder.require(CONFIG)
    values = _Values(folder, CONFIG)
    kind = values.values.get("model_type")
    if not isinstance(kind, str) or kind not in _EXPECTED:
        received = f"model_type={reprlib.repr(kind)}" if kind else "no model_type"
        raise ValueError(f"Expected model_type={' or '.join(_EXPECTED)} in {values.path}. Received: {received}.")
    for name, expected in _EXPECTED[kind].items():
        if (received := values.values.get(name, expected)) != expected:
            raise ValueError(f"Expected {name}={expected} in {values.path}. Received: {name}={reprlib.repr(received)}.")
    activation = values.get("activation_function", str)
    if activation not in _ACTIVATIONS:
        expected = f"Expected an activation_function of {', '.join(_ACTIVATIONS)} in {values.path}."
        raise ValueError(f"{expected} Received: {reprlib.repr(activation)}.")
    d_model, heads = values.get("d_model", int), values.same("attention_heads", int)
    if heads <= 0 or d_model % heads:
        raise ValueError(
            f"Expected attention heads that divide d_model in {values.path}. Received: {heads} heads and "
            f"d_model={d_model}."
        )
    source_rows = values.get("vocab_size", int)
    shared = values.get("share_encoder_decoder_embeddings", bool, True)
    tied = values.get("tie_word_embeddings", bool, True)
    target_rows = source_rows if shared else values.get("decoder_vocab_size", int, source_rows)
    scaled = values.get("scale_embedding", bool, kind == M2M)
    ids = {name: values.id_of(f"{name}_token_id", target_rows) for name in ("pad", "eos", "decoder_start")}
    # Fairseq counts positions from the one after the id of padding.
    m2m_options = {"norm": PRE, "sinusoids": TENSOR2TENSOR, "first_position": ids["pad"] + 1} if kind == M2M else {}
    other_options = {"norm_epsilon": EPSILON} | m2m_options | folder.model_options
    try:
        model = ModelConfig(
            vocab_size=target_rows + 1,
            encoder_layers=values.get("encoder_layers", int),
            decoder_layers=values.get("decoder_layers", int),
            d_model=d_model,
            d_ff=values.same("ffn_dim", int),
            num_heads=heads,
            d_k=d_model // heads,
            d_v=d_model // heads,
            dropout=values.get("dropout", float),
            attention_dropout=values.get("attention_dropout", float, 0.1 if kind == M2M else 0.0),
            activation_dropout=values.get("activation_dropout", float, 0.0),
            attention_bias=True,
            activation=_ACTIVATIONS[activation],
            **other_options,
            source_vocab_size=0 if shared and tied else source_rows + 1,
            # The logits need the embeddings as they are.
            tie_logits=tied and scaled,
            logits_bias=True,
        )
    except ValueError as error:
        raise ValueError(f"{values.path} is not valid: {error}") from error
    positions = values.get("max_position_embeddings", int)
    search = _search(folder, values, positions, ids, target_rows)
    return MarianConfig(kind, model, source_rows, target_rows, *ids.values(), shared, tied, scaled, **search)


def _search(folder: Folder, values: _Values, positions: int, ids: dict[str, int], rows: int) -> dict:
    """Returns `decode`, `forbidden`, `forced_first` and `left` of a `MarianConfig`.

    `generate` divides log P by |Y|^length_penalty, section 6.1 by ((5 + |Y|) / 6)^α. Near |Y| = n, both have the same
    slope if α = length_penalty · (n + 5) / n.
    """
    search = _Values(folder, SEARCH)
    if folder.find(SEARCH) is None:  # As `generate`, which reads the search from one file.
        search.values = {name: value for name, value in values.values.items() if value is not None}
    eos = ids["eos"]
    # `generate` does not forbid the end token either.
    words = [word for word in search.get("bad_words_ids", list, []) if word != [eos]]
    alone = [word[0] for word in words if isinstance(word, list) and len(word) == 1]
    forbidden = [index for index in alone if type(index) is int and 0 <= index < rows]
    left = [name for name, usual in _NO_COUNTERPART.items() if search.values.get(name) not in usual]
    if folder.find(SEARCH) is not None:
        others = search.values.keys() - _NO_COUNTERPART.keys() - {*_KNOWN}
        left += sorted(ascii(name)[1:-1][:80] for name in others if search.values[name] not in (None, False, 0, "", []))
    # Here, what would repeat an n-gram loses its probability, and the other sub-words do not gain it.
    if search.get("renormalize_logits", bool, False) and search.get("no_repeat_ngram_size", int, 0):
        left.append("renormalize_logits")
    of_special = {f"{name}_token_id": index for name, index in ids.items()}
    left += [name for name, index in of_special.items() if search.values.get(name) not in (index, [index], None)]
    left += ["bad_words_ids"] * (len(forbidden) < len(words))
    left += ["forced_eos_token_id"] * (search.values.get("forced_eos_token_id", eos) != eos)
    try:
        decode = DecodeConfig(
            beam_size=search.get("num_beams", int, 1),
            alpha=round(max(search.get("length_penalty", float, 1.0), 0.0) * (TYPICAL + 5) / TYPICAL, 4),
            max_input=positions,
            no_repeat_ngram=search.get("no_repeat_ngram_size", int, 0),
        )
    except ValueError as error:
        raise ValueError(f"{search.path} or {values.path} is not valid: {error}") from error
    forced_first = search.get("forced_bos_token_id", int, None)
    if forced_first is not None and values.values["model_type"] == MARIAN:
        left.append("forced_bos_token_id")
    left += ["length_penalty"] * (search.get("length_penalty", float, 1.0) < 0)
    return {"decode": decode, "forbidden": forbidden, "forced_first": forced_first, "left": left}
