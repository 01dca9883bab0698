"""Loads a `Translator` from the folder of a run, or from several: options, sub-words and weights."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

import tensorflow as tf

from t2t_keras.config import ENSEMBLE_MEANS, TRANSLATING_DTYPES, DecodeConfig, check_ensemble
from t2t_keras.decoding.int8 import Int8
from t2t_keras.decoding.sub_batches import PARALLEL, limits_here
from t2t_keras.decoding.translator import Translator
from t2t_keras.model.ensemble import Ensemble
from t2t_keras.model.protocols import EncoderDecoder, SequenceModel, make
from t2t_keras.runs import checkpoint, registry, run_folder
from t2t_keras.runs.weights import assign
from t2t_keras.system import machine
from t2t_keras.system.log import logger
from t2t_keras.system.tensorflow import choose_float32, share_gpus
from t2t_keras.text import piece_file, vocabulary
from t2t_keras.text.subwords import Subwords


def read_tokenizer(model_dir: pathlib.Path, config, languages: tuple[str, str] = ("", "")) -> Subwords:
    """Reads the sub-words of a run with the options `config` of its model.

    Args:
        model_dir: the run's folder.
        config: the options.
        languages: those of source and target in a multilingual model; empty for the run's.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the number of sub-words is not a vocabulary size of the model, or it has no such language.
    """
    tokenizer = vocabulary.load_sides(*piece_file.with_languages(run_folder.read_subwords(model_dir), *languages))
    of_source = getattr(config, "source_vocab_size", 0)  # Not all architectures have the option.
    if of_source and not tokenizer.own_source:
        raise FileNotFoundError(
            f"{model_dir / run_folder.SOURCE_SUBWORDS} is missing. Restore it: the source has sub-words of its own."
        )
    for side, size, name in (
        (tokenizer, config.vocab_size, run_folder.SUBWORDS),
        (tokenizer.source, of_source or config.vocab_size, run_folder.SOURCE_SUBWORDS),
    ):
        if side.vocab_size != size:
            received = f"{side.vocab_size:,} in {model_dir / name}"
            raise ValueError(
                f"Expected the model's {size:,} sub-words. Received: {received}. Restore this file from a copy."
            )
    return tokenizer


def _check_memory(model: EncoderDecoder, config: DecodeConfig) -> None:
    """Raises `ValueError` if the searches for short sentences that run at the same time may take more memory than is
    free, on a CPU.
    """
    at_once = max(PARALLEL, limits_here(cores=config.search_cores).cores)
    needed, free = at_once * model.search_memory(config.beam_size, config.extra_length + 2), machine.free_memory()
    if needed > free and not tf.config.list_physical_devices("GPU"):
        raise ValueError(
            f"Expected a search that fits into the free memory, {free / 1e9:.1f} GB. Received: "
            f"beam_size={config.beam_size}, extra_length={config.extra_length}, which may take {needed / 1e9:,.1f} GB. "
            "Give a smaller `beam_size` or `extra_length`."
        )


def make_model(
    model_dir: pathlib.Path, which: str, languages: tuple[str, str] = ("", "")
) -> tuple[SequenceModel, Subwords]:
    """Reads the sub-words of a run, and makes its model, with weights that are still to be loaded.

    Args:
        model_dir: the run's folder.
        which: the weights that are to be loaded; see `checkpoint.load`.
        languages: see `read_tokenizer`.

    Raises:
        FileNotFoundError, ValueError: there are no such weights, or a file cannot be the model's.
    """
    (config,) = run_folder.groups(model_dir, "model")
    architecture = registry.architecture(run_folder.architecture_of(model_dir))
    run_folder.check_checkpoint(model_dir, which)
    checkpoint.check_size(model_dir, which, config.num_weights)
    tokenizer = read_tokenizer(model_dir, config, languages)
    return make(architecture, config), tokenizer


def _make_translating(
    model_dir: pathlib.Path, which: str, languages: tuple[str, str]
) -> tuple[EncoderDecoder, Subwords]:
    """Makes the model of a run as `make_model` does. Raises `ValueError` if the run does not translate."""
    model, tokenizer = make_model(model_dir, which, languages)
    if not isinstance(model, EncoderDecoder):
        name = run_folder.architecture_of(model_dir)
        raise ValueError(f"Expected a run that translates. Received: {model_dir}, whose architecture is {name}.")
    return model, tokenizer


def _cast(model: EncoderDecoder, model_dir: pathlib.Path, dtype: str) -> EncoderDecoder:
    """Returns a copy of the model of a run in another dtype."""
    copy = make(registry.architecture(run_folder.architecture_of(model_dir)), model.config, dtype)
    assign(checkpoint.model_variables(copy), checkpoint.model_variables(model), cast=True)
    return copy


def load_with_states(
    model_dir: pathlib.Path | Sequence[pathlib.Path],
    which: str,
    *,
    dtype: str = "float32",
    int8: bool = False,
    ensemble_weights: Sequence[float] = (),
    ensemble_mean: str = ENSEMBLE_MEANS[0],
    source_language: str = "",
    target_language: str = "",
    **decode_options,
) -> tuple[Translator, list[dict]]:
    """Loads models as `load` does, and also returns the `state` of the newest checkpoint of each run that it read."""
    folders = [model_dir] if isinstance(model_dir, str | os.PathLike) else list(model_dir)
    if not folders:
        raise ValueError("Expected the folder of a run, or several. Received none.")
    check_ensemble(len(folders), ensemble_weights, ensemble_mean)
    if dtype not in TRANSLATING_DTYPES:
        raise ValueError(f"Expected `dtype` to be one of {', '.join(TRANSLATING_DTYPES)}. Received: {dtype}.")

    train_config, decode_config = run_folder.groups(folders[0], "train", "decode")
    decode_config = dataclasses.replace(decode_config, **decode_options)
    share_gpus()
    choose_float32(train_config.tf32)
    trained, tokenizers = zip(
        *(_make_translating(folder, which, (source_language, target_language)) for folder in folders), strict=True
    )
    for folder, other in zip(folders, tokenizers, strict=True):
        if other.model != tokenizers[0].model:
            expected = folders[0] / run_folder.SUBWORDS
            raise ValueError(
                f"Expected runs with the same sub-words of the target, {expected}. Received: {folder}, which has "
                f"others. Train it with `subwords_file={expected}`."
            )
    sources: dict[bytes, Subwords] = {}
    for tokenizer in tokenizers:
        sources.setdefault(tokenizer.source.model, tokenizer.source)
    if len(sources) > 1 and any(source.languages for source in sources.values()):
        received = ", ".join(
            f"{folder} ({each.source.language or 'none'})" for folder, each in zip(folders, tokenizers, strict=True)
        )
        raise ValueError(
            f"Expected runs with the same sub-words and language of the source. Received: {received}. Give "
            "`source_language`."
        )
    numbers = [list(sources).index(tokenizer.source.model) for tokenizer in tokenizers]

    def combined(models: Sequence[EncoderDecoder]) -> EncoderDecoder:
        return Ensemble(models, ensemble_weights, ensemble_mean, numbers) if len(models) > 1 else models[0]

    _check_memory(combined(trained), decode_config)
    states = []
    for folder, model in zip(folders, trained, strict=True):
        loaded, state = checkpoint.load(folder, which, model)
        logger.info(f"Using the {loaded}.")
        states.append(state)
    model = combined(trained)
    if dtype != "float32":
        model = combined([_cast(each, folder, dtype) for each, folder in zip(trained, folders, strict=True)])
    quantized = Int8(model, combined(trained)) if int8 else None
    others = list(sources.values())[1:]
    return Translator(model, tokenizers[0], decode_config, frozen=True, int8=quantized, other_sources=others), states


def load(model_dir: pathlib.Path | Sequence[pathlib.Path], which: str = "average", **options) -> Translator:
    """Loads the trained model of a run, or those of several runs, which translate together; see `model.ensemble`.

    Args:
        model_dir: folder of a run, or several folders. The search and TF32 are as the first one has them.
        which: `average`, `best`, `latest` or `ema` weights, or the number of an update.
        options: `dtype` of weights and arithmetic, float32 (the default) or bfloat16; `int8`, whether to keep matrices
            in 8 bits; `ensemble_weights`, a positive number for each run; `ensemble_mean`, probabilities (the default)
            or logs; `source_language` and `target_language`, codes of a multilingual model; and fields of
            `DecodeConfig`, which replace those of the run.

    Returns:
        A `Translator`.

    Raises:
        FileNotFoundError: a folder is not a run, or has no such checkpoint.
        ValueError: a file of a run is damaged, an option is invalid, or the runs have different sub-words of the
            target.
    """
    return load_with_states(model_dir, which, **options)[0]
