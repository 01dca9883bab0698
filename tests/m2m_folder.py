"""M2M-100 and NLLB-200 models of random weights in transformers' format, made without transformers."""

import io
import json
import pathlib
import random

import marian_folder
import numpy as np
import safetensors.numpy
import sentencepiece

LANGUAGES = {"nllb": ["ace_Latn", "deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans"], "m2m": "af de en fr zh zu".split()}
MADE_UP = 8  # Ids without a piece, of M2M-100.


def spm(seed: int = 1) -> bytes:
    """Learns a SentencePiece model of both sides with fairseq's special ids and SentencePiece's own normalization."""
    draw, written = random.Random(seed), io.BytesIO()
    words = marian_folder.SOURCE_WORDS + marian_folder.TARGET_WORDS
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(" ".join(draw.choices(words, k=8)) for _ in range(400)), model_writer=written,
        model_type="bpe", vocab_size=160, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return written.getvalue()


def make(
    folder: pathlib.Path,
    kind: str = "nllb",
    *,
    languages: list[str] | None = None,
    codes_in: str = "special_tokens_map.json",
    activation: str = "relu",
    scaled: bool = True,
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
        kind: "nllb" or "m2m".
        languages: the codes.
        codes_in: the file that has them: as a list, or with their ids.
        shards: number of files of weights.
        activation, scaled, dtype, seed, scale, sizes, options, search: as in `marian_folder.make`.
    """
    folder.mkdir(parents=True)
    model, codes = spm(), languages or LANGUAGES[kind]
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    ids = pieces(folder) if kind == "nllb" else {}
    if kind == "m2m":  # Without a few of the pieces.
        own = [piece for number, piece in enumerate(marian_folder.pieces_of(model)[3:]) if number % 15]
        ids = {piece: index for index, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *own])}
        (folder / "vocab.json").write_text(json.dumps(ids))
    tokens = codes if kind == "nllb" else [f"__{code}__" for code in codes]
    first, rows = len(ids), len(ids) + len(codes) + (1 if kind == "nllb" else MADE_UP)
    added = {token: first + index for index, token in enumerate(tokens)}
    tokenizer = {"tokenizer_class": "NllbTokenizer" if kind == "nllb" else "M2M100Tokenizer"}
    if codes_in == "special_tokens_map.json":
        (folder / codes_in).write_text(json.dumps({"additional_special_tokens": tokens, "eos_token": "</s>"}))
    elif codes_in == "tokenizer.json":
        (folder / codes_in).write_text(
            json.dumps({"added_tokens": [{"id": index, "content": token} for token, index in added.items()]})
        )
    elif codes_in == "tokenizer_config.json":
        tokenizer["added_tokens_decoder"] = {str(index): {"content": token} for token, index in added.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    size = {**marian_folder.SMALL, **(sizes or {})}
    config = {
        "model_type": "m2m_100", "architectures": ["M2M100ForConditionalGeneration"], "is_encoder_decoder": True,
        "vocab_size": rows, "encoder_layers": size["encoder_layers"], "decoder_layers": size["decoder_layers"],
        "d_model": size["d_model"], "encoder_ffn_dim": size["ffn_dim"], "decoder_ffn_dim": size["ffn_dim"],
        "encoder_attention_heads": size["heads"], "decoder_attention_heads": size["heads"],
        "activation_function": activation, "dropout": 0.1, "max_position_embeddings": size["positions"],
        "scale_embedding": scaled, "tie_word_embeddings": True, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 2, **(options or {}),
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    search = {
        "num_beams": 4,
        "length_penalty": 0.0,
        "decoder_start_token_id": 2,
        "eos_token_id": 2,
        "pad_token_id": 1,
    } | (search or {})
    (folder / "generation_config.json").write_text(json.dumps(search))
    described = config | {"share_encoder_decoder_embeddings": True}
    arrays = marian_folder.weights(described, seed, dtype, scale)
    write_weights(folder, arrays, shards)
    return folder


def write_weights(folder: pathlib.Path, arrays: dict[str, np.ndarray], shards: int = 1) -> None:
    """Writes weights into one file, or into several with an index."""
    if shards == 1:
        safetensors.numpy.save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
        return
    index = {}
    for number in range(shards):
        name, own = f"model-{number + 1:05}-of-{shards:05}.safetensors", sorted(arrays)[number::shards]
        safetensors.numpy.save_file({each: arrays[each] for each in own}, folder / name, metadata={"format": "pt"})
        index |= dict.fromkeys(own, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def pieces(folder: pathlib.Path) -> dict[str, int]:
    """The ids of the pieces of a folder, without the languages."""
    if (folder / "vocab.json").exists():
        return json.loads((folder / "vocab.json").read_text())
    own = marian_folder.pieces_of((folder / "sentencepiece.bpe.model").read_bytes())
    return {piece: index for index, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *own[3:]])}


def ids_of(folder: pathlib.Path, line: str, language: str) -> list[int]:
    """Returns the model's ids of a line in a language, with the end token, of its SentencePiece model and list
    alone.
    """
    ids, codes = pieces(folder), LANGUAGES["m2m" if (folder / "vocab.json").exists() else "nllb"]
    processor = sentencepiece.SentencePieceProcessor(model_proto=(folder / "sentencepiece.bpe.model").read_bytes())
    return [len(ids) + codes.index(language), *(ids.get(piece, 3) for piece in processor.encode(line, out_type=str)), 2]
