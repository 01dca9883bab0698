"""Marian models of random weights in Marian's own files, written from a model in transformers' format."""

import json
import pathlib

import numpy as np
import safetensors.numpy
import sentencepiece
import transformers_models as models
import yaml

# Marian's names of transformers' parts of a layer: of matrices, biases and normalizations.
LINEAR = {
    "self_attn.q_proj": ("self_Wq", "self_bq"), "self_attn.k_proj": ("self_Wk", "self_bk"),
    "self_attn.v_proj": ("self_Wv", "self_bv"), "self_attn.out_proj": ("self_Wo", "self_bo"),
    "encoder_attn.q_proj": ("context_Wq", "context_bq"), "encoder_attn.k_proj": ("context_Wk", "context_bk"),
    "encoder_attn.v_proj": ("context_Wv", "context_bv"), "encoder_attn.out_proj": ("context_Wo", "context_bo"),
    "fc1": ("ffn_W1", "ffn_b1"), "fc2": ("ffn_W2", "ffn_b2"),
}  # fmt: skip
NORM = {
    "self_attn_layer_norm": "self_Wo_ln", "encoder_attn_layer_norm": "context_Wo_ln", "final_layer_norm": "ffn_ffn_ln",
}  # fmt: skip
TABLES = {
    "model.shared.weight": "Wemb",
    "model.encoder.embed_tokens.weight": "encoder_Wemb",
    "model.decoder.embed_tokens.weight": "decoder_Wemb",
    "lm_head.weight": "decoder_ff_logit_out_Wt",
}
SHAPES = {
    "opus": {},
    "separate, relu": {"separate": True, "activation": "relu", "seed": 2},
    "one list, two embeddings": {"shared": False, "seed": 3},
    "untied, byte pairs": {"separate": True, "tied": False, "pieces": "bpe", "seed": 4},
    "logits alone untied": {"tied": False, "shared": True, "seed": 5},
    "other sizes": {"sizes": models.OTHER_SIZES, "seed": 7},
    "float16": {"dtype": np.float16, "seed": 8},
    "gelu": {"activation": "gelu", "seed": 9},
    "pre-norm": {"seed": 10},
}
SENTENCEPIECE = ("vocab.en.spm", "vocab.de.spm")


def make(folder: pathlib.Path, shape: str = "opus") -> pathlib.Path:
    """Writes a model in both formats, transformers' and `native` in it; returns the former."""
    given = {"separate": False, "tied": True} | SHAPES[shape]
    models.make(folder, **given)
    path = folder / "model.safetensors"
    arrays = safetensors.numpy.load_file(path)
    if given["tied"] is False and given.get("shared"):  # As early versions of transformers have it.
        arrays["model.shared.weight"] = arrays.pop("model.encoder.embed_tokens.weight")
        del arrays["model.decoder.embed_tokens.weight"]
    for name in TABLES.keys() & arrays.keys():
        arrays[name][-1] = 0  # Padding, from which the decoder starts.
    arrays["final_logits_bias"][:, -1] = 0
    safetensors.numpy.save_file(arrays, path)
    write(folder / "native", folder, "pre" if shape == "pre-norm" else "post")
    return folder


def write(native: pathlib.Path, folder: pathlib.Path, norm: str = "post") -> None:
    """Writes the native files of a model in transformers' format, whose last row is padding."""
    native.mkdir()
    config = json.loads((folder / "config.json").read_text())
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    npz = {}
    for name, array in arrays.items():
        if name in TABLES:
            npz[TABLES[name]] = array[:-1]
        elif name == "final_logits_bias":
            npz["decoder_ff_logit_out_b"] = array[:, :-1]
        else:
            _, side, _, index, *parts, kind = name.split(".")
            prefix, part = f"{side}_l{int(index) + 1}", ".".join(parts)
            if part in NORM:
                end = "_pre" if norm == "pre" else ""
                npz[f"{prefix}_{NORM[part]}_{'scale' if kind == 'weight' else 'bias'}{end}"] = array[None]
            elif kind == "weight":
                npz[f"{prefix}_{LINEAR[part][0]}"] = np.ascontiguousarray(array.T)
            else:
                npz[f"{prefix}_{LINEAR[part][1]}"] = array[None]
    if norm == "pre":
        draw = np.random.default_rng(1)
        for side in ("encoder", "decoder"):
            npz[f"{side}_top_ln_scale"] = 1 + draw.normal(0, 0.1, (1, config["d_model"])).astype("float32")
            npz[f"{side}_top_ln_bias"] = draw.normal(0, 0.1, (1, config["d_model"])).astype("float32")
    shared, tied = "Wemb" in npz, config["tie_word_embeddings"]
    options = {
        "bert-train-type-embeddings": True, "dec-cell": "gru", "dec-depth": config["decoder_layers"],
        "dim-emb": config["d_model"], "dim-rnn": 1024, "enc-cell": "gru", "enc-depth": config["encoder_layers"],
        "dim-vocabs": [config["vocab_size"] - 1, config["decoder_vocab_size"] - 1], "input-types": [],
        "layer-normalization": False, "lemma-dim-emb": 0, "right-left": False, "skip": False,
        "tied-embeddings": tied and not shared, "tied-embeddings-all": tied and shared,
        "tied-embeddings-src": shared and not tied, "transformer-aan-activation": "swish",
        "transformer-decoder-autoreg": "self-attention", "transformer-dim-ffn": config["encoder_ffn_dim"],
        "transformer-ffn-activation": config["activation_function"], "transformer-ffn-depth": 2,
        "transformer-guided-alignment-layer": "last", "transformer-heads": config["encoder_attention_heads"],
        "transformer-no-projection": False, "transformer-postprocess": "da" if norm == "pre" else "dan",
        "transformer-postprocess-emb": "d", "transformer-preprocess": "n" if norm == "pre" else "",
        "transformer-postprocess-top": "n" if norm == "pre" else "", "transformer-tied-layers": [],
        "transformer-train-position-embeddings": False, "type": "transformer", "ulr": False,
        "version": "v1.12.3" if config["activation_function"] == "gelu" else "v1.9.0",
    }  # fmt: skip
    lists = ["vocab.json", "target_vocab.json"][: 1 + (folder / "target_vocab.json").exists()]
    names = [f"opus.{name.removesuffix('.json')}.yml" for name in lists]
    for name, theirs in zip(names, lists, strict=True):
        ids = json.loads((folder / theirs).read_text())
        ids.pop("<pad>")
        (native / name).write_text(yaml.safe_dump(ids, allow_unicode=True), encoding="utf-8")
    for name in ("source.spm", "target.spm"):
        (native / name).write_bytes((folder / name).read_bytes())
    save(native, options, npz)
    decoder = {
        "relative-paths": True, "models": ["opus.npz"], "vocabs": [names[0], names[-1]], "beam-size": 6,
        "normalize": 0.8, "word-penalty": 0, "mini-batch": 1, "maxi-batch": 1,
    }  # fmt: skip
    (native / "decoder.yml").write_text(yaml.safe_dump(decoder))


def load(native: pathlib.Path) -> tuple[dict, dict[str, np.ndarray]]:
    """Returns the options and the arrays of a native model."""
    with np.load(native / "opus.npz") as file:
        arrays = dict(file)
    return yaml.safe_load(arrays.pop("special:model.yml").tobytes()[:-1]), arrays


def save(native: pathlib.Path, options: dict, arrays: dict[str, np.ndarray]) -> None:
    text = np.frombuffer(yaml.safe_dump(options).encode() + b"\0", np.int8)
    np.savez(native / "opus.npz", **arrays, **{"special:model.yml": text})


def rewrite(native: pathlib.Path, name: str, **values) -> None:
    """Changes values of decoder.yml or of the options of the network; `...` removes one. Names have _ for -."""
    old, arrays = load(native) if name == "opus.npz" else (yaml.safe_load((native / name).read_text()), None)
    new = old | {key.replace("_", "-"): value for key, value in values.items()}
    new = {key: value for key, value in new.items() if value is not ...}
    if arrays is None:
        (native / name).write_text(yaml.safe_dump(new))
    else:
        save(native, new, arrays)


def with_sentencepiece(native: pathlib.Path) -> None:
    """Makes two SentencePiece models the vocabularies, with ids of their own."""
    options, arrays = load(native)
    sizes = []
    for name, path in zip(SENTENCEPIECE, ("source.spm", "target.spm"), strict=True):
        (native / path).rename(native / name)
        sizes.append(sentencepiece.SentencePieceProcessor(model_file=str(native / name)).vocab_size())
    (native / "opus.vocab.yml").unlink()
    options |= {"dim-vocabs": sizes, "tied-embeddings": True, "tied-embeddings-all": False}
    for side, rows in zip(("encoder", "decoder"), sizes, strict=True):
        arrays[f"{side}_Wemb"] = np.resize(arrays["Wemb"], (rows, options["dim-emb"]))
    arrays["decoder_ff_logit_out_b"] = np.resize(arrays["decoder_ff_logit_out_b"], (1, sizes[1]))
    del arrays["Wemb"]
    save(native, options, arrays)
    rewrite(native, "decoder.yml", vocabs=[*SENTENCEPIECE])
