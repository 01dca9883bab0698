"""Marian, M2M-100 and NLLB-200 models of random weights in transformers' format, made without transformers, and what
they compute, in NumPy.

Letters: S source tokens, T target tokens, D d_model, F d_ff, H heads, V vocabulary.
"""

import io
import json
import math
import pathlib
import random

import numpy as np
import numpy_transformer as paper
import safetensors.numpy
import sentencepiece

SOURCE_WORDS = (
    "a dog runs in the park and two men play ball near water house tree don't résumé naïve 1 2024 ½ ABC".split()
)
TARGET_WORDS = "ein hund läuft im park und zwei männer spielen ball über straße haus 日本 語 猫 x7".split()
SMALL = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "ffn_dim": 24, "heads": 2, "positions": 64}
OTHER_SIZES = {"d_model": 24, "encoder_layers": 1, "decoder_layers": 3, "heads": 4, "ffn_dim": 40}
MARIAN = {
    "opus": {},
    "separate": {"separate": True, "activation": "gelu", "pieces": "bpe", "seed": 2},
    "one list, two embeddings": {"shared": False, "activation": "relu", "seed": 3},
    "untied": {"separate": True, "tied": False, "seed": 4},
    "not scaled": {"scaled": False, "activation": "gelu", "seed": 5},
    "not scaled, separate": {"separate": True, "scaled": False, "tied": False, "seed": 6},
    "other sizes": {"sizes": OTHER_SIZES, "seed": 7},
    "float16": {"dtype": np.float16, "seed": 8},
    "ids without a piece": {
        "shared": False, "options": {"decoder_vocab_size": 120, "decoder_start_token_id": 115}, "seed": 9,
    },
}  # fmt: skip
M2M = {
    "nllb": {"kind": "nllb"},
    "m2m": {"kind": "m2m", "codes_in": "tokenizer_config.json", "seed": 2},
    "other sizes": {"kind": "nllb", "sizes": OTHER_SIZES, "seed": 3},
    "shards": {"kind": "nllb", "codes_in": "tokenizer.json", "shards": 3, "seed": 4},
    "not scaled, swish, float16": {
        "kind": "m2m", "scaled": False, "activation": "swish", "dtype": np.float16, "seed": 5,
    },
    "another id of padding": {"kind": "nllb", "options": {"pad_token_id": 1}, "dtype": np.float16, "seed": 6},
}  # fmt: skip
CODES = {"nllb": ["ace_Latn", "deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans"], "m2m": "af de en fr zh zu".split()}
LANGUAGES = {"nllb": ("eng_Latn", "deu_Latn", "fra_Latn"), "m2m": ("en", "de", "fr")}  # A source and two targets.
MADE_UP = 8  # Ids without a piece, of M2M-100.
ONE_MODEL = "sentencepiece.bpe.model"


def kind_of(folder: pathlib.Path) -> str:
    if not (folder / ONE_MODEL).exists():
        return "marian"
    return "m2m" if (folder / "vocab.json").exists() else "nllb"


def spm(words: list[str], kind: str = "unigram", size: int = 60, seed: int = 1, **ids: int) -> bytes:
    """Learns a SentencePiece model, by default with the special ids of Marian's."""
    draw, written = random.Random(seed), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(" ".join(draw.choices(words, k=8)) for _ in range(400)), model_writer=written,
        model_type=kind, vocab_size=size, hard_vocab_limit=False, minloglevel=2,
        **(ids or {"bos_id": -1, "eos_id": 0, "unk_id": 1, "pad_id": -1}),
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
    kind: str = "marian",
    *,
    pieces: str = "unigram",
    separate: bool = False,
    shared: bool | None = None,
    tied: bool = True,
    languages: list[str] | None = None,
    codes_in: str = "special_tokens_map.json",
    scaled: bool = True,
    activation: str | None = None,
    dtype=np.float32,
    seed: int = 1,
    scale: float = 0.5,
    shards: int = 1,
    sizes: dict | None = None,
    options: dict | None = None,
    search: dict | None = None,
) -> pathlib.Path:
    """Writes a model.

    Args:
        folder: a new folder.
        kind: "marian", "nllb" or "m2m".
        pieces: kind of the SentencePiece models of Marian.
        separate: whether each side of Marian has a vocabulary of its own.
        shared: whether both sides of Marian have one embedding; by default if they have one vocabulary.
        tied: whether the matrix of Marian's logits is the embedding of the target.
        languages: codes of the others; by default `CODES`.
        codes_in: the file that has the codes, as a list or with their ids.
        scaled: whether embeddings are multiplied by √D.
        activation: as in `config.json`; by default that of the kind.
        dtype: of the weights.
        seed: of the weights.
        scale: standard deviation of the weights; the default gives logits that differ.
        shards: number of files of weights.
        sizes: what differs from `SMALL`.
        options, search: more for `config.json` and `generation_config.json`.
    """
    folder.mkdir(parents=True)
    size = SMALL | (sizes or {})
    config = {
        "is_encoder_decoder": True, "encoder_layers": size["encoder_layers"], "decoder_layers": size["decoder_layers"],
        "d_model": size["d_model"], "encoder_ffn_dim": size["ffn_dim"], "decoder_ffn_dim": size["ffn_dim"],
        "encoder_attention_heads": size["heads"], "decoder_attention_heads": size["heads"], "dropout": 0.1,
        "max_position_embeddings": size["positions"], "scale_embedding": scaled, "tie_word_embeddings": tied,
    }  # fmt: skip
    if kind == "marian":
        shared = not separate if shared is None else shared
        rows = _marian_vocabularies(folder, pieces, separate)
        ids = {"pad_token_id": rows[1] - 1, "decoder_start_token_id": rows[1] - 1, "eos_token_id": 0}
        config |= {
            "model_type": "marian", "architectures": ["MarianMTModel"], "vocab_size": rows[0],
            "decoder_vocab_size": rows[1], "share_encoder_decoder_embeddings": shared,
            "activation_function": activation or "swish", "static_position_embeddings": True,
            "forced_eos_token_id": 0, **ids,
        }  # fmt: skip
        usual = {"max_length": 512, "bad_words_ids": [[rows[1] - 1]], "forced_eos_token_id": 0}
    else:
        rows = _languages(folder, kind, languages or CODES[kind], codes_in)
        ids = {"decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
        config |= {
            "model_type": "m2m_100", "architectures": ["M2M100ForConditionalGeneration"], "vocab_size": rows,
            "activation_function": activation or "relu", "bos_token_id": 0, **ids,
        }  # fmt: skip
        usual = {}
    config |= options or {}
    (folder / "config.json").write_text(json.dumps(config))
    usual |= {"num_beams": 4, "length_penalty": 0.0, **ids}
    (folder / "generation_config.json").write_text(json.dumps(usual | (search or {})))
    arrays = weights({"share_encoder_decoder_embeddings": True} | config, seed, dtype, scale)
    write_weights(folder, arrays, shards)
    return folder


def _marian_vocabularies(folder: pathlib.Path, kind: str, separate: bool) -> list[int]:
    """Writes the sub-words of Marian; returns the number of rows of each side."""
    source, target = spm(SOURCE_WORDS, kind), spm(TARGET_WORDS, kind)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    tags = (">>de<<", ">>en US<<")
    lists = (
        [vocabulary(source, more=tags), vocabulary(target)] if separate else [vocabulary(source, target, more=tags)] * 2
    )
    for name, ids in zip(["vocab.json", "target_vocab.json"][: 1 + separate], lists, strict=False):
        (folder / name).write_text(json.dumps(ids))
    tokenizer = {"separate_vocabs": separate, "tokenizer_class": "MarianTokenizer"}
    tokenizer |= {"source_lang": "en", "target_lang": "de"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return [len(ids) for ids in lists]


def _languages(folder: pathlib.Path, kind: str, codes: list[str], codes_in: str) -> int:
    """Writes the sub-words of M2M-100 or NLLB-200 and the codes of languages; returns the number of rows."""
    # Of both sides, with fairseq's special ids and SentencePiece's own normalization.
    model = spm(SOURCE_WORDS + TARGET_WORDS, "bpe", 160, unk_id=0, bos_id=1, eos_id=2)
    (folder / ONE_MODEL).write_bytes(model)
    if kind == "m2m":  # Without a few of the pieces.
        listed = [piece for number, piece in enumerate(pieces_of(model)[3:]) if number % 15]
        ids = {piece: index for index, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *listed])}
        (folder / "vocab.json").write_text(json.dumps(ids))
    first = len(ids_of_pieces(folder))
    tokens = codes if kind == "nllb" else [f"__{code}__" for code in codes]
    added = {token: first + index for index, token in enumerate(tokens)}
    tokenizer = {"tokenizer_class": "NllbTokenizer" if kind == "nllb" else "M2M100Tokenizer"}
    if codes_in == "special_tokens_map.json":
        (folder / codes_in).write_text(json.dumps({"additional_special_tokens": tokens, "eos_token": "</s>"}))
    elif codes_in == "tokenizer.json":
        entries = [{"id": index, "content": token} for token, index in added.items()]
        (folder / codes_in).write_text(json.dumps({"added_tokens": entries}))
    elif codes_in == "tokenizer_config.json":
        tokenizer["added_tokens_decoder"] = {str(index): {"content": token} for token, index in added.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return first + len(codes) + (1 if kind == "nllb" else MADE_UP)


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


def write_weights(folder: pathlib.Path, arrays: dict[str, np.ndarray], shards: int = 1) -> None:
    """Writes weights into one file, or into several with an index."""
    if shards == 1:
        safetensors.numpy.save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
        return
    index = {}
    for number in range(shards):
        name, names = f"model-{number + 1:05}-of-{shards:05}.safetensors", sorted(arrays)[number::shards]
        safetensors.numpy.save_file({each: arrays[each] for each in names}, folder / name, metadata={"format": "pt"})
        index |= dict.fromkeys(names, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def logits(folder: pathlib.Path, source: list[int], target: list[int], native: bool = False) -> np.ndarray:
    """Computes the logits [T, V] of a source [S] with the end token, and a target [T] with the start token: Marian's
    ids, float64.

    `native` has the position encodings of Marian itself.
    """
    config = json.loads((folder / "config.json").read_text())
    files = [safetensors.numpy.load_file(path) for path in folder.glob("*.safetensors")]
    arrays = {name: array.astype(np.float64) for file in files for name, array in file.items()}
    d, m2m = config["d_model"], config["model_type"] == "m2m_100"

    def projection(name):
        return arrays[f"{name}.weight"].T, arrays[f"{name}.bias"]

    def norm(name):
        return arrays[f"{name}.weight"], arrays[f"{name}.bias"], 1e-5

    def layer(name, attentions):
        maps = *projection(f"{name}.fc1"), *projection(f"{name}.fc2"), config["activation_function"]
        found = {"feed_forward": maps, "feed_forward_norm": norm(f"{name}.final_layer_norm")}
        for own, theirs in attentions.items():
            parts = (projection(f"{name}.{theirs}.{part}_proj") for part in ("q", "k", "v", "out"))
            found[own] = paper.in_heads(config["encoder_attention_heads"], *parts)
            found[f"{own}_norm"] = norm(f"{name}.{theirs}_layer_norm")
        return found

    def embed(ids, name):
        first = config["pad_token_id"] + 1 if m2m else 0
        scale = math.sqrt(d) if config["scale_embedding"] else 1
        return arrays[name][ids] * scale + paper.sines_before_cosines(len(ids), d, first, m2m or native)

    weights, attentions = {"pre": m2m}, {"self_attention": "self_attn"}
    for side in ("encoder", "decoder"):
        numbers = range(config[f"{side}_layers"])
        weights[side] = [layer(f"model.{side}.layers.{index}", attentions) for index in numbers]
        if m2m:
            weights[f"{side}_norm"] = norm(f"model.{side}.layer_norm")
        attentions = attentions | {"cross_attention": "encoder_attn"}
    one = "model.shared.weight" if "model.shared.weight" in arrays else ""
    embeddings = [one or f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")]
    memory = paper.encoder(embed(source, embeddings[0]), weights)
    hidden = paper.decoder(memory, embed(target, embeddings[1]), weights)
    bias = arrays.get("final_logits_bias", np.zeros((1, 1)))[0]
    return hidden @ arrays["lm_head.weight" if "lm_head.weight" in arrays else embeddings[1]].T + bias


def rewrite(folder: pathlib.Path, name: str, **values) -> None:
    """Changes values of a file of JSON; `...` removes one."""
    path = folder / name
    values = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not ...}))


def ids_of_pieces(folder: pathlib.Path) -> dict[str, int]:
    """The ids of the pieces of M2M-100 or NLLB-200, without the languages."""
    if (folder / "vocab.json").exists():
        return json.loads((folder / "vocab.json").read_text())
    listed = pieces_of((folder / ONE_MODEL).read_bytes())[3:]
    return {piece: index for index, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *listed])}


def marian_list(folder: pathlib.Path, side: str) -> dict[str, int]:
    """The ids of the pieces of a side of a Marian model."""
    separate = (folder / "target_vocab.json").exists() and side == "target"
    return json.loads((folder / ("target_vocab.json" if separate else "vocab.json")).read_text())


def ids_of(folder: pathlib.Path, line: str, side: str = "source") -> list[int]:
    """Returns the model's ids of a line, with the end token, of its SentencePiece model and list alone.

    `side` is source or target of Marian, the language of another model.
    """
    if (folder / ONE_MODEL).exists():
        ids, codes = ids_of_pieces(folder), CODES[kind_of(folder)]
        pieces = _encoded(folder / ONE_MODEL, line)
        return [len(ids) + codes.index(side), *(ids.get(piece, 3) for piece in pieces), 2]
    ids, tag = marian_list(folder, side), []
    if line.startswith(">>") and (end := line.find("<<")) != -1:
        tag, line = [line[: end + 2]], line[end + 2 :]
    pieces = tag + _encoded(folder / f"{side}.spm", line)
    return [ids.get(piece, ids["<unk>"]) for piece in pieces] + [ids["</s>"]]


def _encoded(model: pathlib.Path, line: str) -> list[str]:
    return sentencepiece.SentencePieceProcessor(model_proto=model.read_bytes()).encode(line, out_type=str)


def ids_of_ours(folder: pathlib.Path, pieces: list[str], side: str) -> list[int]:
    """The model's id for each of our pieces; -1 for the start token."""
    if (folder / ONE_MODEL).exists():
        ids, special = ids_of_pieces(folder), [1, 3, -1, 2]
        ids |= {f">>{code}<<": len(ids) + index for index, code in enumerate(CODES[kind_of(folder)])}
    else:
        ids = marian_list(folder, side)
        special = [ids["<pad>"], ids["<unk>"], -1, ids["</s>"]]
    return special + [ids[piece] if piece in ids else int(piece[1:-1]) for piece in pieces[len(special) :]]


def greedy(folder: pathlib.Path, line: str, length: int, side: str = "source", first: list[int] = ()) -> list[int]:
    """Returns the most likely ids one after another, without padding, after `first`, the language of the target."""
    config = json.loads((folder / "config.json").read_text())
    source, target = ids_of(folder, line, side), [config["decoder_start_token_id"], *first]
    while len(target) <= length and target[-1] != config["eos_token_id"]:
        scores = logits(folder, source, target)[-1]
        scores[config["pad_token_id"]] = -np.inf
        target.append(int(scores.argmax()))
    return target[1:]


def text_of(folder: pathlib.Path, ids: list[int]) -> str:
    """Returns the text of ids of M2M-100 or NLLB-200."""
    names = {index: piece for piece, index in ids_of_pieces(folder).items()}
    return "".join(names.get(index, "") if index > 3 else "" for index in ids).replace("▁", " ").strip()


def nasty_lines(number: int, seed: int = 1) -> list[str]:
    """Returns lines of words, rare characters, marks, controls and what looks like special tokens."""
    draw = random.Random(seed)
    pool = [
        *"abcdeghimnoprstuwy  ▁éèß日本語猫😀/-'\"“”«»½…ﬁＡ１<>",
        "\u0301", "\u200d", "\ufeff", "\u00a0", "\u3000", "\u2028", "\x00", "\x01", "\t", "\r", "�", "\u202e", "\ue0f0",
        "\U0010ffff", "</s>", "<unk>", "<pad>", ">>de<<", ">>", "<<", "<0x41>", "<s>", "▁a", *SOURCE_WORDS,
        *TARGET_WORDS,
    ]  # fmt: skip
    fixed = [
        "", " ", ">>de<<", ">>de<< a dog", ">>xx<< a", ">>en US<<a", ">><<", ">> a << b", "a >>de<< b", "猫",
        "猫 日 ball", "\ufeffa",
    ]  # fmt: skip
    return fixed + ["".join(draw.choices(pool, k=draw.randint(0, 25))) for _ in range(number - len(fixed))]
