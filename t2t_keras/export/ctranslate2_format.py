"""CTranslate2's format: the same weights and sub-words for an engine in C++, written by that engine's own Python specification.

What is written is exact in float32: post-norm, ReLU, embeddings times √d_model, and a position table of its own, since the
engine's sinusoids stand one after the other where section 3.5 has sine and cosine in turn. The searches differ:

                here (section 6.1)                         CTranslate2 4.8
score           log P / ((5 + |Y|) / 6)^α                  log P / |Y|^length_penalty; |Y| has the end token in both
a beam ends     among the 2 W best candidates              among the W best
search ends     when no beam could still beat the W-th     when round(W · patience) beams have ended
longest output  source + extra_length, each sentence's     max_decoding_length, one for all, the end token counted
shortest        the end token alone                        min_decoding_length sub-words, unless told 1

Near |Y| = n the penalties grow alike where length_penalty = α n / (n + 5).

Letters: H heads, K d_k, E d_v, N = max(K, E), D d_model.
"""

import dataclasses
import pathlib
import shutil

import keras
import numpy as np

from t2t_keras.config import BOS, EOS, UNK
from t2t_keras.model.positions import sinusoids

_TYPICAL = 20  # Sub-words of a sentence.
_README = """# A Transformer in CTranslate2's format

`model.bin` has the weights, `shared_vocabulary.json` the sub-words in the order of their ids, `subwords.model` the same sub-words
for SentencePiece. The text's own U+2581 and U+E0F0 are spelled in two characters before sub-words are made, and put back after.
The end token is added to sources by CTranslate2. Sources of at most {max_input} sub-words with the end token and translations of at
most {positions} have a position.

```python
import pathlib

import ctranslate2
import sentencepiece

FOLDER = pathlib.Path(__file__).parent
ESCAPED = (("\\ue0f0", "\\ue0f00"), ("\\u2581", "\\ue0f01"))
subwords = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / "subwords.model"))
translator = ctranslate2.Translator(str(FOLDER))


def translate(lines):
    sources = []
    for line in lines:
        for character, spelled in ESCAPED:
            line = line.replace(character, spelled)
        sources.append(subwords.encode(line, out_type=str))
    longest = min(max(map(len, sources), default=0) + 1, {max_input}) + {extra_length}
    lengths = {{"max_input_length": {max_input}, "min_decoding_length": 0, "max_decoding_length": longest}}
    options = {{"beam_size": {beam_size}, "patience": 2, "length_penalty": {length_penalty:.2f}, **lengths}}
    for result in translator.translate_batch(sources, **options):
        ids = [subwords.piece_to_id(piece) for piece in result.hypotheses[0]]
        line = subwords.decode([id for id in ids if id > {eos}])
        for character, spelled in reversed(ESCAPED):
            line = line.replace(spelled, character)
        yield line
```

`length_penalty` divides by |Y|^x, the model's own search by ((5 + |Y|) / 6)^{alpha}; near |Y| = n both grow alike where
x = {alpha} n / (n + 5). The one above is for n = {typical} sub-words: choose it anew on validation text. With a `patience` of 1 the
search ends earlier than the model's own.
"""


def _library():
    try:
        import ctranslate2.specs
    except ImportError as error:
        raise ValueError(
            "CTranslate2's format needs its package: pip install 't2t_keras[ctranslate2]', or in a checkout '.[ctranslate2]'."
        ) from error
    return ctranslate2


def _array(weight):
    return np.asarray(keras.ops.convert_to_numpy(weight), np.float32)


def _widened(kernel, num_heads: int, width: int):
    """[D, H·K] → [H·N, D]: rows are outputs, as CTranslate2 has them, each head's filled up with zeros, which change nothing."""
    heads = kernel.reshape(kernel.shape[0], num_heads, -1)
    heads = np.pad(heads, [(0, 0), (0, 0), (0, width - heads.shape[-1])])
    return heads.reshape(kernel.shape[0], -1).T


def _set_attention(spec, layer, *, self_attention: bool) -> None:
    """One width serves queries, keys and values there, so the narrower of d_k and d_v is filled up; the scale stays d_k^-1/2."""
    width = max(layer.d_k, layer.d_v)
    projections = (layer.query_projection, layer.key_projection, layer.value_projection)
    queries, keys, values = (_widened(_array(projection.kernel), layer.num_heads, width) for projection in projections)
    fused = [(queries, keys, values)] if self_attention else [(queries,), (keys, values)]
    for linear, parts in zip(spec.linear, fused, strict=False):
        linear.weight = np.concatenate(parts)
    # The output's rows are heads: [H·E, D] → [D, H·N].
    output = _array(layer.output_projection.kernel)
    spec.linear[-1].weight = np.ascontiguousarray(_widened(output.T, layer.num_heads, width).T)
    spec.queries_scale = np.float32(layer.d_k**-0.5)


def _set_norm(spec, layer) -> None:
    spec.gamma, spec.beta = _array(layer.norm.gamma), _array(layer.norm.beta)


def _set_layer(spec, layer) -> None:
    _set_attention(spec.self_attention, layer.self_attention, self_attention=True)
    _set_norm(spec.self_attention.layer_norm, layer.self_attention_norm)
    if hasattr(spec, "attention"):
        _set_attention(spec.attention, layer.cross_attention, self_attention=False)
        _set_norm(spec.attention.layer_norm, layer.cross_attention_norm)
    for linear, dense in ((spec.ffn.linear_0, layer.feed_forward.inner), (spec.ffn.linear_1, layer.feed_forward.outer)):
        linear.weight, linear.bias = np.ascontiguousarray(_array(dense.kernel).T), _array(dense.bias)
    _set_norm(spec.ffn.layer_norm, layer.feed_forward_norm)


def positions_of(model, rows: int):
    """[rows, D]. CTranslate2 refuses positions past its table, so a learned table repeats its last row, as the layer does."""
    if not model.config.learned_positions:
        return np.array(sinusoids(np.arange(rows), model.config.d_model))
    return _array(model.positions.table)[np.minimum(np.arange(rows), model.config.learned_positions - 1)]


def specification(model, pieces: list[str], rows: int):
    """A `ctranslate2.specs.TransformerSpec` with the weights of a `Transformer`, to be optimised and saved.

    Args:
        model: a `Transformer`.
        pieces: the sub-words, by id.
        rows: positions in the table: no source or translation may be longer.

    Raises:
        ValueError: CTranslate2 is not installed, or the number of pieces is not that of the model's ids.
    """
    specs, config = _library().specs, model.config
    if len(pieces) != config.vocab_size:
        raise ValueError(f"Expected a sub-word for each of the model's {config.vocab_size} ids. Received: {len(pieces)} sub-words.")
    head_dim = max(config.d_k, config.d_v)
    encoder = specs.TransformerEncoderSpec(config.encoder_layers, config.num_heads, pre_norm=False, head_dim=head_dim)
    decoder = specs.TransformerDecoderSpec(config.decoder_layers, config.num_heads, pre_norm=False, head_dim=head_dim)
    spec = specs.TransformerSpec(encoder, decoder)
    matrix, positions = _array(model.embedding.matrix), positions_of(model, rows)
    encoder.embeddings[0].weight = decoder.embeddings.weight = decoder.projection.weight = matrix
    encoder.position_encodings.encodings = decoder.position_encodings.encodings = positions
    for side, layers in ((encoder, model.encoder), (decoder, model.decoder)):
        for layer_spec, layer in zip(side.layer, layers, strict=True):
            _set_layer(layer_spec, layer)
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    settings = spec.config
    settings.unk_token, settings.bos_token, settings.eos_token = (pieces[index] for index in (UNK, BOS, EOS))
    settings.decoder_start_token, settings.add_source_eos = pieces[BOS], True
    settings.layer_norm_epsilon = model.decoder[-1].feed_forward_norm.norm.epsilon
    return spec


def write(translator, folder: str | pathlib.Path, quantization: str = "") -> None:
    """Writes a translator's model and sub-words for `ctranslate2.Translator(folder)`, and a README that says how to use them.

    Args:
        translator: a `Translator`.
        folder: a new folder, or an empty one.
        quantization: of the weights, by CTranslate2's names, such as int8; empty: float32. What is stored in float32 can still be
            quantised when it is loaded (`compute_type`).

    Raises:
        ValueError: CTranslate2 is not installed, or knows no such quantization.
        FileExistsError: the folder holds something.
    """
    folder, config = pathlib.Path(folder).resolve(), translator.config
    positions = config.max_input + config.extra_length
    spec = specification(translator.model, list(translator.tokenizer.pieces), positions)
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"Expected a new folder, or an empty one. {folder} holds something: give another, or remove it.")
    try:
        spec.validate()
        spec.optimize(quantization=quantization or None)
    except RuntimeError as error:  # bfloat16 is written through PyTorch.
        raise ValueError(f"Weights in {quantization} cannot be written: {error}.") from error
    unfinished = folder.with_name(f".unfinished-{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    spec.save(str(unfinished))
    (unfinished / "subwords.model").write_bytes(translator.tokenizer.model)
    near = {"typical": _TYPICAL, "length_penalty": config.alpha * _TYPICAL / (_TYPICAL + 5)}
    readme = _README.format(**dataclasses.asdict(config), **near, positions=positions, eos=EOS)
    (unfinished / "README.md").write_text(readme, encoding="utf-8")
    unfinished.rename(folder)
