"""Writes models in the format of CTranslate2, a C++ engine, with the model specification of its Python package.

The model is exact in float32, with embeddings times √d_model. It brings its own position table, because the engine puts
all sines before all cosines, where section 3.5 alternates them. The searches differ:

                here (section 6.1)                         CTranslate2 4.8
score           log P / ((5 + |Y|) / 6)^α                  log P / |Y|^length_penalty; both |Y| include the end token
a beam ends     among the 2 W best candidates              among the W best candidates
search ends     when no beam can still beat the W-th best  when round(W · patience) beams have ended
longest output  source + extra_length of each sentence     max_decoding_length for all sentences, with the end token
shortest        the end token only                         min_decoding_length sub-words, 1 by default

Near |Y| = n, both penalties have the same slope if length_penalty = α n / (n + 5).

Letters: H heads, K d_k, E d_v, N = max(K, E), D d_model.
"""

import dataclasses
import pathlib

import keras
import numpy as np

from t2t_keras.config import BOS, EOS, PRE, SCALED, UNK
from t2t_keras.layers.positions import sinusoids
from t2t_keras.model.transformer import Transformer
from t2t_keras.system.files import SOURCE_SUBWORDS, SUBWORDS, check_new, making_folder
from t2t_keras.system.log import logger
from t2t_keras.text.byte_pairs import BytePairs

_TYPICAL = 20  # Sub-words of a typical sentence.
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH"}  # Names there.
_README = """# A Transformer in CTranslate2's format

`model.bin` has the weights, {vocabularies} the sub-words in the order of their ids,
and {files} the same sub-words for SentencePiece. The characters U+2581 and U+E0F0 of a text must be escaped before SentencePiece,
and restored afterwards. CTranslate2 adds the end token to sources if the model reads it. The position table covers sources of {max_input} and translations
of {positions} sub-words, including the end token.

```python
import pathlib

import ctranslate2
import sentencepiece

FOLDER = pathlib.Path(__file__).parent
ESCAPED = (("\\ue0f0", "\\ue0f00"), ("\\u2581", "\\ue0f01"))
source_subwords = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / "{source_file}"))
subwords = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / "subwords.model"))
translator = ctranslate2.Translator(str(FOLDER))


def translate(lines):
    sources = []
    for line in lines:
        for character, spelled in ESCAPED:
            line = line.replace(character, spelled)
        sources.append(source_subwords.encode(line, out_type=str))
    longest = min(max(map(len, sources), default=0) + 1, {max_input}) + {extra_length}
    lengths = {{"max_input_length": {max_input}, "min_decoding_length": 0, "max_decoding_length": longest}}
    options = {{"beam_size": {beam_size}, "patience": 2, "length_penalty": {length_penalty:.2f}, **lengths}}
    options["no_repeat_ngram_size"] = {no_repeat_ngram}
    for result in translator.translate_batch(sources, **options):
        ids = [subwords.piece_to_id(piece) for piece in result.hypotheses[0]]
        line = subwords.decode([id for id in ids if id > {eos}])
        for character, spelled in reversed(ESCAPED):
            line = line.replace(spelled, character)
        yield line
```

CTranslate2 divides scores by |Y|^length_penalty, t2t_keras by ((5 + |Y|) / 6)^{alpha}. Near |Y| = n, both have the same slope if
length_penalty = {alpha} n / (n + 5). The value above is for n = {typical} sub-words: tune it on validation text. With a `patience` of 1,
the search ends earlier than that of t2t_keras.
"""  # noqa: E501


def _library():
    try:
        import ctranslate2.specs
    except ImportError as error:
        raise ValueError(
            "The format of CTranslate2 needs its package: pip install 't2t_keras[ctranslate2]', or -e '.[ctranslate2]' "
            "in a checkout."
        ) from error
    return ctranslate2


def _array(weight):
    return np.asarray(keras.ops.convert_to_numpy(weight), np.float32)


def _pad_heads(kernel, num_heads: int, width: int):
    """Pads each head with zeros to one width, and transposes a kernel as CTranslate2 has it: [D, H·K] → [H·N, D]."""
    heads = kernel.reshape(kernel.shape[0], num_heads, -1)
    heads = np.pad(heads, [(0, 0), (0, 0), (0, width - heads.shape[-1])])
    return heads.reshape(kernel.shape[0], -1).T


def _set_attention(spec, layer, *, self_attention: bool) -> None:
    """Sets the weights of an attention layer.

    CTranslate2 has one width for queries, keys and values, so the smaller of d_k and d_v is padded. The scale remains
    d_k^-1/2.
    """
    heads = {"num_heads": layer.num_heads, "width": max(layer.d_k, layer.d_v)}
    queries, keys, values = layer.query_projection, layer.key_projection, layer.value_projection
    # CTranslate2 computes these in one product.
    fused = [(queries, keys, values)] if self_attention else [(queries,), (keys, values)]
    for linear, projections in zip(spec.linear, fused, strict=False):
        linear.weight = np.concatenate([_pad_heads(_array(each.kernel), **heads) for each in projections])
        if layer.use_bias:
            biases = [_pad_heads(_array(each.bias)[None], **heads)[:, 0] for each in projections]
            linear.bias = np.concatenate(biases)
    # The heads are the rows of the output projection: [H·E, D] → [D, H·N].
    output = _array(layer.output_projection.kernel)
    spec.linear[-1].weight = np.ascontiguousarray(_pad_heads(output.T, **heads).T)
    if layer.use_bias:
        spec.linear[-1].bias = _array(layer.output_projection.bias)
    spec.queries_scale = np.float32(layer.d_k**-0.5)


def _set_norm(spec, layer) -> None:
    spec.gamma, spec.beta = _array(layer.gamma), _array(layer.beta)


def _set_layer(spec, layer) -> None:
    _set_attention(spec.self_attention, layer.self_attention, self_attention=True)
    _set_norm(spec.self_attention.layer_norm, layer.self_attention_norm.norm)
    if hasattr(spec, "attention"):
        _set_attention(spec.attention, layer.cross_attention, self_attention=False)
        _set_norm(spec.attention.layer_norm, layer.cross_attention_norm.norm)
    for linear, dense in ((spec.ffn.linear_0, layer.feed_forward.inner), (spec.ffn.linear_1, layer.feed_forward.outer)):
        linear.weight, linear.bias = np.ascontiguousarray(_array(dense.kernel).T), _array(dense.bias)
    _set_norm(spec.ffn.layer_norm, layer.feed_forward_norm.norm)


def positions_of(model, rows: int):
    """Returns the position table [rows, D].

    CTranslate2 refuses positions past its table. So a learned table repeats its last row, as `LearnedPositions` does.
    """
    config = model.config
    if not config.learned_positions:
        return np.array(sinusoids(np.arange(rows) + config.first_position, config.d_model, config.sinusoids))
    return _array(model.positions.table)[np.minimum(np.arange(rows), config.learned_positions - 1)]


def specification(model, pieces: list[str], rows: int, source_pieces: list[str] | None = None):
    """Builds the CTranslate2 specification of a `Transformer`, with all weights; the caller optimises and saves it.

    Args:
        model: the model.
        pieces: the sub-words in the order of their ids.
        rows: number of positions in the table, the maximum length of sources and translations.
        source_pieces: the sub-words of the source, if it has its own.

    Raises:
        ValueError: CTranslate2 is not installed or has no such model, or the number of sub-words is not the vocabulary
            size of the model.
    """
    if not isinstance(model, Transformer):
        raise ValueError(
            f"Expected a Transformer for the format of CTranslate2. Received: a model of {type(model).__name__}."
        )
    specs, config = _library().specs, model.config
    for name, value, other in (
        ("attention_window", 0, "restricted self-attention"),
        ("attention", SCALED, "other attention function"),
    ):
        if (received := getattr(config, name)) != value:
            raise ValueError(
                f"Expected {name}={value}, because CTranslate2 has no {other}. Received: {name}={received}. "
                "Export a SavedModel instead."
            )
    source_pieces = pieces if source_pieces is None else source_pieces
    for side, size in ((pieces, config.vocab_size), (source_pieces, config.source_vocab_size or config.vocab_size)):
        if len(side) != size:
            raise ValueError(
                f"Expected one sub-word for each of the {size} ids of the model. Received: {len(side)} sub-words."
            )
    options = {"num_heads": config.num_heads, "pre_norm": config.norm == PRE, "head_dim": max(config.d_k, config.d_v)}
    options["activation"] = getattr(specs.Activation, _ACTIVATIONS[config.activation])
    encoder = specs.TransformerEncoderSpec(config.encoder_layers, **options)
    decoder = specs.TransformerDecoderSpec(config.decoder_layers, **options)
    spec = specs.TransformerSpec(encoder, decoder)
    positions, shared = positions_of(model, rows), model.embedding
    encoder.embeddings[0].weight = _array(model.encoder.embedding.matrix)
    decoder.embeddings.weight = _array(shared.matrix)
    decoder.projection.weight = _array(shared.logits_matrix)
    if shared.bias is not None:
        decoder.projection.bias = _array(shared.bias)
    encoder.position_encodings.encodings = decoder.position_encodings.encodings = positions
    of_encoder = (encoder, model.encoder.stack, model.encoder.norm)
    for side, layers, norm in (of_encoder, (decoder, model.decoder, model.norm)):
        if norm:
            _set_norm(side.layer_norm, norm)
        for layer_spec, layer in zip(side.layer, layers, strict=True):
            _set_layer(layer_spec, layer)
    spec.register_source_vocabulary(source_pieces)
    spec.register_target_vocabulary(pieces)
    settings = spec.config
    settings.unk_token, settings.bos_token, settings.eos_token = (pieces[index] for index in (UNK, BOS, EOS))
    settings.decoder_start_token, settings.add_source_eos = pieces[BOS], config.source_end
    settings.layer_norm_epsilon = model.decoder[-1].feed_forward_norm.norm.epsilon
    return spec


def specification_of(translator, rows: int, quantization: str = ""):
    """Builds the specification of a translator's model, ready to be saved; see `specification` and `write`."""
    if not all(type(side) is BytePairs for side in (translator.tokenizer, translator.source_tokenizer)):
        raise ValueError(
            "The format of CTranslate2 needs a model with byte-pair encoding. Received: a model with other sub-words, "
            "such as those of an import. Export a SavedModel instead."
        )
    if translator.tokenizer.pattern:
        raise ValueError(
            "The format of CTranslate2 needs sub-words without placeholders. Received: a model with `keep_patterns`."
        )
    pieces, source_pieces = (list(side.pieces) for side in (translator.tokenizer, translator.source_tokenizer))
    spec = specification(translator.model, pieces, rows, source_pieces)
    try:
        spec.validate()
        spec.optimize(quantization=quantization or None)
    except RuntimeError as error:  # CTranslate2 needs PyTorch to write bfloat16.
        raise ValueError(f"CTranslate2 cannot write weights in {quantization}: {error}.") from error
    return spec


def write(translator, folder: str | pathlib.Path, quantization: str = "") -> None:
    """Writes the model and sub-words of a translator for `ctranslate2.Translator(folder)`, and a README with an
    example.

    Args:
        translator: a `Translator`.
        folder: a new or empty folder.
        quantization: CTranslate2's name of a weight format, such as int8; empty for float32. CTranslate2 can also
            quantise float32 weights when it loads them (`compute_type`).

    Raises:
        ValueError: CTranslate2 is not installed, or does not support the quantization; or the sub-words are word pieces
            or have placeholders.
        FileExistsError: the folder is not empty.
    """
    folder, config = pathlib.Path(folder).resolve(), translator.config
    positions = config.max_input + config.extra_length
    check_new(folder, "export_dir")
    spec = specification_of(translator, positions, quantization)
    if config.diverse_groups > 1:
        logger.warning("Options of the search without a counterpart are ignored: diverse_groups.")
    files = dict(zip((SUBWORDS, SOURCE_SUBWORDS), translator.tokenizer.models, strict=False))
    shared = translator.source_tokenizer.pieces == translator.tokenizer.pieces
    readme = _README.format(
        vocabularies=" and ".join(
            f"`{name}_vocabulary.json`" for name in (["shared"] if shared else ["source", "target"])
        ),
        files=" and ".join(f"`{name}`" for name in files),
        source_file=list(files)[-1],
        typical=_TYPICAL,
        length_penalty=config.alpha * _TYPICAL / (_TYPICAL + 5),
        positions=positions,
        eos=EOS,
        **dataclasses.asdict(config),
    )
    with making_folder(folder) as unfinished:
        spec.save(str(unfinished))
        for name, content in files.items():
            (unfinished / name).write_bytes(content)
        (unfinished / "README.md").write_text(readme, encoding="utf-8")
