"""Marian models of random weights in transformers' format, made without transformers, and what they and M2M-100
compute, in NumPy.

Letters: S source tokens, T target tokens, D d_model, F d_ff, H heads, V vocabulary.
"""

import io
import json
import math
import pathlib
import random

import numpy as np
import safetensors.numpy
import sentencepiece

SOURCE_WORDS = (
    "a dog runs in the park and two men play ball near water house tree don't résumé naïve 1 2024 ½ ABC".split()
)
TARGET_WORDS = "ein hund läuft im park und zwei männer spielen ball über straße haus 日本 語 猫 x7".split()
SMALL = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "ffn_dim": 24, "heads": 2, "positions": 64}
SHAPES = {
    "opus": {},
    "separate": {"separate": True, "activation": "gelu", "kind": "bpe", "seed": 2},
    "one list, two embeddings": {"shared": False, "activation": "relu", "seed": 3},
    "untied": {"separate": True, "tied": False, "seed": 4},
    "not scaled": {"scaled": False, "activation": "gelu", "seed": 5},
    "not scaled, separate": {"separate": True, "scaled": False, "tied": False, "seed": 6},
    "other sizes": {
        "sizes": {"d_model": 24, "encoder_layers": 1, "decoder_layers": 3, "heads": 4, "ffn_dim": 40},
        "seed": 7,
    },
    "float16": {"dtype": np.float16, "seed": 8},
    "ids without a piece": {
        "shared": False,
        "options": {"decoder_vocab_size": 120, "decoder_start_token_id": 115},
        "seed": 9,
    },
}


def spm(words: list[str], kind: str = "unigram", size: int = 60, seed: int = 1) -> bytes:
    """Learns a SentencePiece model with the special ids of Marian's."""
    draw, written = random.Random(seed), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(" ".join(draw.choices(words, k=8)) for _ in range(400)), model_writer=written,
        model_type=kind, vocab_size=size, hard_vocab_limit=False, minloglevel=2, bos_id=-1, eos_id=0, unk_id=1,
        pad_id=-1,
    )  # fmt: skip
    return written.getvalue()


def pieces_of(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(index) for index in range(processor.vocab_size())]


def vocabulary(*models: bytes, seed: int = 1, more: tuple[str, ...] = ()) -> dict[str, int]:
    """Returns the ids of the pieces of some models, without a few of them, in another order than theirs; padding is
    last.
    """
    draw = random.Random(seed)
    pieces = [
        piece
        for model in models
        for piece in pieces_of(model)
        if piece not in ("</s>", "<unk>") and draw.random() < 0.95
    ]
    pieces = list(dict.fromkeys([*more, *pieces]))
    draw.shuffle(pieces)
    return {piece: index for index, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}


def make(
    folder: pathlib.Path,
    *,
    kind: str = "unigram",
    separate: bool = False,
    shared: bool | None = None,
    tied: bool = True,
    scaled: bool = True,
    activation: str = "swish",
    dtype=np.float32,
    seed: int = 1,
    scale: float = 0.5,
    sizes: dict | None = None,
    options: dict | None = None,
    search: dict | None = None,
) -> pathlib.Path:
    """Writes a model.

    Args:
        folder: a new folder.
        kind: of SentencePiece models.
        separate: whether each side has a vocabulary of its own.
        shared: whether both sides have one embedding; by default if they have one vocabulary.
        tied: whether the matrix of the logits is the embedding of the target.
        scaled: whether embeddings are multiplied by √D.
        activation: as in `config.json`.
        dtype: of the weights.
        seed: of the weights.
        scale: standard deviation of the weights; the default gives logits that differ.
        sizes: what differs from `SMALL`.
        options, search: more for `config.json` and `generation_config.json`.
    """
    folder.mkdir(parents=True)
    shared = not separate if shared is None else shared
    source, target = spm(SOURCE_WORDS, kind), spm(TARGET_WORDS, kind)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    tags = (">>de<<", ">>en US<<")
    lists = (
        [vocabulary(source, more=tags), vocabulary(target)] if separate else [vocabulary(source, target, more=tags)] * 2
    )
    for name, ids in zip(["vocab.json", "target_vocab.json"][: 1 + separate], lists, strict=False):
        (folder / name).write_text(json.dumps(ids))
    tokenizer = {
        "separate_vocabs": separate,
        "tokenizer_class": "MarianTokenizer",
        "source_lang": "en",
        "target_lang": "de",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    size, rows = {**SMALL, **(sizes or {})}, [len(ids) for ids in lists]
    config = {
        "model_type": "marian", "architectures": ["MarianMTModel"], "is_encoder_decoder": True,
        "vocab_size": rows[0], "decoder_vocab_size": rows[1], "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": tied, "encoder_layers": size["encoder_layers"], "decoder_layers": size["decoder_layers"],
        "d_model": size["d_model"], "encoder_ffn_dim": size["ffn_dim"], "decoder_ffn_dim": size["ffn_dim"],
        "encoder_attention_heads": size["heads"], "decoder_attention_heads": size["heads"],
        "activation_function": activation, "dropout": 0.1, "max_position_embeddings": size["positions"],
        "scale_embedding": scaled, "static_position_embeddings": True, "pad_token_id": rows[1] - 1,
        "decoder_start_token_id": rows[1] - 1, "eos_token_id": 0, "forced_eos_token_id": 0, **(options or {}),
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    if search is None:
        search = {
            "num_beams": 4,
            "max_length": 512,
            "length_penalty": 0.0,
            "bad_words_ids": [[rows[1] - 1]],
            "forced_eos_token_id": 0,
        }
        search |= {"pad_token_id": rows[1] - 1, "decoder_start_token_id": rows[1] - 1, "eos_token_id": 0}
    (folder / "generation_config.json").write_text(json.dumps(search))
    safetensors.numpy.save_file(
        weights(config, seed, dtype, scale), folder / "model.safetensors", metadata={"format": "pt"}
    )
    return folder


def weights(config: dict, seed: int, dtype, scale: float) -> dict[str, np.ndarray]:
    """Returns random weights, of Marian or M2M-100."""
    m2m = config["model_type"] == "m2m_100"
    draw, d, f = np.random.default_rng(seed), config["d_model"], config["encoder_ffn_dim"]
    shared, tied = config["share_encoder_decoder_embeddings"], config["tie_word_embeddings"]
    shapes = {}
    for side, number in (("encoder", config["encoder_layers"]), ("decoder", config["decoder_layers"])):
        for index in range(number):
            layer = f"model.{side}.layers.{index}"
            for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    shapes |= {f"{layer}.{attention}.{part}.weight": (d, d), f"{layer}.{attention}.{part}.bias": (d,)}
                shapes |= {f"{layer}.{attention}_layer_norm.{each}": (d,) for each in ("weight", "bias")}
            shapes |= {
                f"{layer}.fc1.weight": (f, d),
                f"{layer}.fc1.bias": (f,),
                f"{layer}.fc2.weight": (d, f),
                f"{layer}.fc2.bias": (d,),
            }
            shapes |= {f"{layer}.final_layer_norm.{each}": (d,) for each in ("weight", "bias")}
        if m2m:
            shapes |= {f"model.{side}.layer_norm.{each}": (d,) for each in ("weight", "bias")}
    if shared and tied:
        shapes["model.shared.weight"] = (config["vocab_size"], d)
    else:
        shapes["model.encoder.embed_tokens.weight"] = (config["vocab_size"], d)
        shapes["model.decoder.embed_tokens.weight"] = (config["decoder_vocab_size"], d)
    if not tied:
        shapes["lm_head.weight"] = (config["decoder_vocab_size"], d)
    if not m2m:
        shapes["final_logits_bias"] = (1, config["decoder_vocab_size"])
    arrays = {name: draw.normal(0, scale, shape) for name, shape in shapes.items()}
    for name in arrays:
        if name.endswith("norm.weight"):
            arrays[name] = 1 + 0.2 * arrays[name]
    return {name: array.astype(dtype) for name, array in arrays.items()}


def logits(folder: pathlib.Path, source: list[int], target: list[int], native: bool = False) -> np.ndarray:
    """Computes the logits [T, V] of a source [S] with the end token, and a target [T] with the start token: Marian's
    ids, float64.

    `native` has the position encodings of Marian itself.
    """
    config = json.loads((folder / "config.json").read_text())
    files = [safetensors.numpy.load_file(path) for path in folder.glob("*.safetensors")]
    arrays = {name: array.astype(np.float64) for file in files for name, array in file.items()}
    d, heads, m2m = config["d_model"], config["encoder_attention_heads"], config["model_type"] == "m2m_100"
    activation = {
        "relu": lambda x: np.maximum(x, 0),
        "swish": lambda x: x / (1 + np.exp(-x)),
        "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    }[config["activation_function"]]

    def linear(x, name):
        return x @ arrays[f"{name}.weight"].T + arrays[f"{name}.bias"]

    def norm(x, name):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + 1e-5) * arrays[f"{name}.weight"] + arrays[f"{name}.bias"]

    def attention(x, memory, name, causal=False):
        q, k, v = (
            linear(y, f"{name}.{part}_proj").reshape(len(y), heads, -1)
            for y, part in ((x, "q"), (memory, "k"), (memory, "v"))
        )
        scores = np.einsum("thk,shk->hts", q, k) / math.sqrt(d // heads)
        if causal:
            scores += np.where(np.tri(len(x)), 0, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        return linear(np.einsum("hts,shk->thk", shares, v).reshape(len(x), d), f"{name}.out_proj")

    def embed(ids, name):
        first = config["pad_token_id"] + 1 if m2m else 0
        angles = (first + np.arange(len(ids)))[:, None] / 10000 ** (np.arange(d // 2) / (d / 2 - (m2m or native)))
        scale = math.sqrt(d) if config["scale_embedding"] else 1
        return arrays[name][ids] * scale + np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    def sub_layer(x, function, name):
        return x + function(norm(x, name)) if m2m else norm(x + function(x), name)

    def stack(x, side, memory=None):
        for index in range(config[f"{side}_layers"]):
            layer = f"model.{side}.layers.{index}"
            functions = {
                "self_attn": lambda x: attention(x, x, f"{layer}.self_attn", side == "decoder"),  # noqa: B023
                "encoder_attn": lambda x: attention(x, memory, f"{layer}.encoder_attn"),  # noqa: B023
                "final": lambda x: linear(activation(linear(x, f"{layer}.fc1")), f"{layer}.fc2"),  # noqa: B023
            }
            for name, function in functions.items():
                if name != "encoder_attn" or side == "decoder":
                    x = sub_layer(x, function, f"{layer}.{name}_layer_norm")
        return norm(x, f"model.{side}.layer_norm") if m2m else x

    one = "model.shared.weight" if "model.shared.weight" in arrays else ""
    embeddings = [one or f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")]
    memory = stack(embed(source, embeddings[0]), "encoder")
    hidden = stack(embed(target, embeddings[1]), "decoder", memory)
    bias = arrays.get("final_logits_bias", np.zeros((1, 1)))[0]
    return hidden @ arrays["lm_head.weight" if "lm_head.weight" in arrays else embeddings[1]].T + bias


def ids_of(folder: pathlib.Path, line: str, side: str = "source") -> list[int]:
    """Returns Marian's ids of a line, with the end token, of its SentencePiece model and list alone."""
    separate = (folder / "target_vocab.json").exists()
    ids = json.loads((folder / ("target_vocab.json" if separate and side == "target" else "vocab.json")).read_text())
    tag = []
    if line.startswith(">>") and (end := line.find("<<")) != -1:
        tag, line = [line[: end + 2]], line[end + 2 :]
    pieces = sentencepiece.SentencePieceProcessor(model_proto=(folder / f"{side}.spm").read_bytes()).encode(
        line, out_type=str
    )
    return [ids.get(piece, ids["<unk>"]) for piece in tag + pieces] + [ids["</s>"]]


def nasty_lines(number: int, seed: int = 1) -> list[str]:
    """Returns lines of words, rare characters, marks, controls and what looks like special tokens."""
    draw = random.Random(seed)
    pool = [
        *"abcdeghimnoprstuwy  ▁éèß日本語猫😀/-'\"“”«»½…ﬁＡ１<>",
        "\u0301",
        "\u200d",
        "\ufeff",
        "\u00a0",
        "\u3000",
        "\u2028",
        "\x00",
        "\x01",
    ]
    pool += [
        "\t",
        "\r",
        "�",
        "\u202e",
        "\ue0f0",
        "\U0010ffff",
        "</s>",
        "<unk>",
        "<pad>",
        ">>de<<",
        ">>",
        "<<",
        "<0x41>",
        "<s>",
        "▁a",
    ]
    pool += [*SOURCE_WORDS, *TARGET_WORDS]
    fixed = [
        "",
        " ",
        ">>de<<",
        ">>de<< a dog",
        ">>xx<< a",
        ">>en US<<a",
        ">><<",
        ">> a << b",
        "a >>de<< b",
        "猫",
        "猫 日 ball",
        "\ufeffa",
    ]
    return fixed + ["".join(draw.choices(pool, k=draw.randint(0, 25))) for _ in range(number - len(fixed))]
