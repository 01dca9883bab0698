"""Runs of random weights, as training leaves them, that Marian's format has a model for."""

import dataclasses
import functools
import pathlib

import keras
import numpy as np
import stand_in

from t2t_keras.config import DataConfig, DecodeConfig, ModelConfig
from t2t_keras.model.transformer import Transformer
from t2t_keras.runs import checkpoint, run_options
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.text import vocabulary

SMALL = ModelConfig(
    stand_in.VOCAB_SIZE,
    encoder_layers=2,
    decoder_layers=1,
    d_model=16,
    d_ff=24,
    num_heads=2,
    d_k=8,
    d_v=8,
    norm_epsilon=1e-5,
)
SOURCE_SIZE = 310
SHAPES = {
    "of the paper": {},
    "another epsilon": {"norm_epsilon": 1e-7, "decoder_layers": 2, "scale": 0.05, "gain": 0.05},
    "all biases": {"attention_bias": True, "logits_bias": True, "activation": "gelu", "seed": 2},
    "two vocabularies": {"source_vocab_size": SOURCE_SIZE, "activation": "swish", "seed": 3},
    "two vocabularies, untied": {"source_vocab_size": SOURCE_SIZE, "tie_logits": False, "logits_bias": True, "seed": 4},
    "a larger source": {"source_vocab_size": 350, "seed": 8},
    "untied": {"tie_logits": False, "seed": 5},
    "other sizes": {"d_model": 24, "d_ff": 20, "num_heads": 3, "decoder_layers": 3, "encoder_layers": 1, "seed": 6},
    "normalization": {"normalization": "nmt_nfkc", "seed": 7},
}


@functools.cache
def learned(normalization: str, vocab_size: int) -> bytes:
    """Of text with ▁ and the character that escapes it."""
    lines = [side for pair in stand_in.pairs() for side in pair] + ["½ ▁ \ue0f0 ﬁ ▁a"] * 9
    encoded = (line.encode() for line in lines)
    return vocabulary.learn(
        "bpe", encoded, vocab_size, sample=10_000, seed=1, normalization=normalization, character_coverage=1.0
    )


def make(
    folder: pathlib.Path,
    *,
    seed: int = 1,
    steps: tuple[int, ...] = (1,),
    scale: float = 0.5,
    gain: float = 1.0,
    normalization: str = "identity",
    subwords: bytes | None = None,
    groups: dict | None = None,
    **options,
) -> pathlib.Path:
    """Writes a run.

    Args:
        folder: a new folder.
        seed: of the weights.
        steps: of the checkpoints, each with weights of its own.
        scale: standard deviation of the weights but the embeddings.
        gain: of layer normalization, but for the last of each stack: a small one makes ε matter.
        normalization: of the sub-words.
        subwords: the file of those of the target; by default they are learned.
        groups: groups of options, in place of the defaults.
        options: what differs from `SMALL`.
    """
    config = dataclasses.replace(SMALL, **options)
    folder.mkdir(parents=True)
    names = {"target": learned(normalization, config.vocab_size) if subwords is None else subwords}
    if config.source_vocab_size:
        names["source"] = learned(normalization, config.source_vocab_size)
    paths = [folder / f"{name}.model" for name in names]
    for path, content in zip(paths, names.values(), strict=True):
        path.write_bytes(content)
    texts = [",".join(f"/private/{name}.{side}" for name in ("some", "more")) for side in ("en", "de")]
    data = DataConfig(*texts, valid_source="/private/other.en", valid_target="/private/other.de")
    chosen = {"decode": DecodeConfig(beam_size=3, alpha=0.5, max_input=40), "data": data, **(groups or {})}
    SavedRun.write(folder, run_options.Options(config, **chosen), paths[0], None, *paths[1:])
    model, draw = Transformer(config), np.random.default_rng(seed)
    last = f"encoder_{config.encoder_layers - 1}", f"decoder_{config.decoder_layers - 1}"
    for step in steps:
        for weight in model.weights:
            value = draw.normal(0, 0.5 if weight.path.endswith("matrix") else scale, weight.shape)
            if weight.path.endswith("gamma"):
                value = (1 + 0.2 * value) * (
                    1 if any(f"{end}/feed_forward_norm" in weight.path for end in last) else gain
                )
            weight.assign(value)
        checkpoint.write(checkpoint.path_of(folder, step), model, None, {"step": step, "best": 12.345, "best_step": 1})
    keras.backend.clear_session()
    return folder
