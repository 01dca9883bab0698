"""Loads a `Translator` from the folder of a run: options, sub-words and weights."""

import dataclasses
import pathlib

import tensorflow as tf

from t2t_keras import checkpoint, gpus, machine, registry, run_folder
from t2t_keras.config import DecodeConfig
from t2t_keras.decoding.int8 import Int8
from t2t_keras.decoding.sub_batches import PARALLEL, limits_here
from t2t_keras.decoding.translator import Translator
from t2t_keras.log import logger
from t2t_keras.model.protocols import EncoderDecoder, make
from t2t_keras.text import vocabulary
from t2t_keras.text.subwords import Subwords
from t2t_keras.weights import assign


def read_tokenizer(model_dir: pathlib.Path, config) -> Subwords:
    """Reads the sub-words of a run with the options `config` of its model.

    Raises:
        ValueError: their number is not the vocabulary size of the model.
    """
    tokenizer = vocabulary.load(run_folder.read_subwords(model_dir))
    if tokenizer.vocab_size != config.vocab_size:
        received = f"{tokenizer.vocab_size:,} in {model_dir / run_folder.SUBWORDS}"
        raise ValueError(f"Expected the model's {config.vocab_size:,} sub-words. Received: {received}. Restore this file from a copy.")
    return tokenizer


def _check_memory(model: EncoderDecoder, config: DecodeConfig) -> None:
    """Raises `ValueError` if the searches for short sentences that run at the same time may take more memory than is free, on a CPU."""
    at_once = max(PARALLEL, limits_here(cores=config.search_cores).cores)
    needed, free = at_once * model.search_memory(config.beam_size, config.extra_length + 2), machine.free_memory()
    if needed > free and not tf.config.list_physical_devices("GPU"):
        raise ValueError(
            f"Expected a search that fits into the free memory, {free / 1e9:.1f} GB. Received: beam_size={config.beam_size}, "
            f"extra_length={config.extra_length}, which may take {needed / 1e9:,.1f} GB. Give a smaller `beam_size` or `extra_length`."
        )


def load_with_state(
    model_dir: pathlib.Path, which: str, *, dtype: str = "float32", int8: bool = False, **decode_options
) -> tuple[Translator, dict]:
    """Loads a model as `load` does, and also returns the `state` of the newest checkpoint that it read."""
    model_config, train_config, decode_config = run_folder.groups(model_dir, "model", "train", "decode")
    architecture = registry.architecture(run_folder.architecture_of(model_dir))
    decode_config = dataclasses.replace(decode_config, **decode_options)
    checkpoint.check_size(model_dir, which, model_config.num_weights)
    gpus.share()
    gpus.choose_float32(train_config.tf32)
    tokenizer = read_tokenizer(model_dir, model_config)
    model = trained = make(architecture, model_config)
    if not isinstance(model, EncoderDecoder):
        raise ValueError(f"Expected a run that translates. Received: {model_dir}, whose architecture is {architecture.name}.")
    _check_memory(model, decode_config)
    loaded, state = checkpoint.load(model_dir, which, trained)
    logger.info(f"Using the {loaded}.")
    if dtype != "float32":
        model = make(architecture, model_config, dtype)
        assign(checkpoint.model_variables(model), checkpoint.model_variables(trained), cast=True)
    return Translator(model, tokenizer, decode_config, frozen=True, int8=Int8(model, trained) if int8 else None), state


def load(model_dir: pathlib.Path, which: str = "average", **options) -> Translator:
    """Loads the trained model of a run.

    Args:
        model_dir: folder of a run.
        which: `average`, `best` or `latest` weights, or the number of an update.
        options: `dtype` of weights and arithmetic, float32 (the default) or bfloat16; `int8`, whether to keep matrices in 8 bits; and
            fields of `DecodeConfig`, which replace those of the run.

    Returns:
        A `Translator`.

    Raises:
        FileNotFoundError: the folder is not a run, or has no such checkpoint.
        ValueError: a file of the run is damaged, or an option is invalid.
    """
    return load_with_state(model_dir, which, **options)[0]
