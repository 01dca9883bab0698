"""Loads a `Translator` from the folder of a run, or from several: options, sub-words and weights."""

import os
from collections.abc import Callable, Sequence

import tensorflow as tf

from t2t_keras.config import AVERAGE, DecodeConfig
from t2t_keras.decoding.int8 import Int8
from t2t_keras.decoding.search_hooks import Scorer, Selector
from t2t_keras.decoding.sub_batches import PARALLEL, limits_here
from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.decoding.translator import Translator
from t2t_keras.model.ensemble import Ensemble
from t2t_keras.model.protocols import EncoderDecoder, SequenceModel, make
from t2t_keras.runs import checkpoint as checkpoints
from t2t_keras.runs import registry
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.runs.weights import assign
from t2t_keras.system import machine
from t2t_keras.system.files import SOURCE_SUBWORDS, SUBWORDS
from t2t_keras.system.log import logger
from t2t_keras.system.tensorflow import choose_float32, share_gpus
from t2t_keras.text import piece_file, vocabulary
from t2t_keras.text.subwords import Subwords


def read_tokenizer(run: SavedRun, source_language: str = "", target_language: str = "") -> Subwords:
    """Reads the sub-words of a run, with the languages of a multilingual model if they are given.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the number of sub-words is not a vocabulary size of the model, or it has no such language.
    """
    contents = piece_file.with_languages(run.subwords(), source_language, target_language)
    tokenizer, vocab_size = vocabulary.load_sides(*contents), run.model.vocab_size
    source_vocab_size = run.options.source_vocab_size
    if source_vocab_size and not tokenizer.own_source:
        path = run.folder / SOURCE_SUBWORDS
        raise FileNotFoundError(f"{path} is missing. Restore it: the source has sub-words of its own.")
    for side, size, name in (
        (tokenizer, vocab_size, SUBWORDS),
        (tokenizer.source, source_vocab_size or vocab_size, SOURCE_SUBWORDS),
    ):
        if side.vocab_size != size:
            received = f"{side.vocab_size:,} in {run.folder / name}"
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


def make_model(run: SavedRun, checkpoint: str, **languages: str) -> tuple[SequenceModel, Subwords]:
    """Reads the sub-words of a run, and makes its model, with weights that are still to be loaded.

    Args:
        run: the run.
        checkpoint: the weights that are to be loaded; see `checkpoint.load`.
        languages: see `read_tokenizer`.

    Raises:
        FileNotFoundError, ValueError: there are no such weights, or a file cannot be the model's.
    """
    run.check_checkpoint(checkpoint)
    checkpoints.check_size(run.folder, checkpoint, run.model.num_weights)
    tokenizer = read_tokenizer(run, **languages)
    return make(registry.architecture(run.architecture), run.model), tokenizer


def _make_translating(run: SavedRun, checkpoint: str, **languages: str) -> tuple[EncoderDecoder, Subwords]:
    """Makes the model of a run as `make_model` does. Raises `ValueError` if the run does not translate."""
    model, tokenizer = make_model(run, checkpoint, **languages)
    if not isinstance(model, EncoderDecoder):
        raise ValueError(f"{run.folder} does not translate: its architecture is {run.architecture}.")
    return model, tokenizer


def _cast(model: EncoderDecoder, run: SavedRun, dtype: str) -> EncoderDecoder:
    """Returns a copy of the model of a run in another dtype."""
    copy = make(registry.architecture(run.architecture), model.config, dtype)
    assign(checkpoints.model_variables(copy), checkpoints.model_variables(model), cast=True)
    return copy


def load_with_states(model: TrainedModel, **hooks) -> tuple[Translator, list[dict]]:
    """Loads the weights of a model. Returns its translator, with the `scorers` and `selector` of `hooks`, and the
    `state` of the newest checkpoint of each run that it read.

    Raises:
        FileNotFoundError: a run has no such checkpoint.
        ValueError: a file of a run is damaged, or the runs have different sub-words of the target.
    """
    runs, search = model.runs, model.search
    share_gpus()
    choose_float32(runs[0].train.tf32)
    languages = {"source_language": model.source_language, "target_language": model.target_language}
    networks, tokenizers = zip(*(_make_translating(run, model.checkpoint, **languages) for run in runs), strict=True)
    for run, tokenizer in zip(runs, tokenizers, strict=True):
        if tokenizer.model != tokenizers[0].model:
            expected = runs[0].folder / SUBWORDS
            raise ValueError(
                f"Expected runs with the same sub-words of the target, {expected}. Received: {run.folder}, which has "
                f"others. Train it with `subwords_file={expected}`."
            )
    sources: dict[bytes, Subwords] = {}
    for tokenizer in tokenizers:
        sources.setdefault(tokenizer.source.model, tokenizer.source)
    if len(sources) > 1 and any(source.languages for source in sources.values()):
        received = ", ".join(
            f"{run.folder} ({tokenizer.source.language or 'none'})"
            for run, tokenizer in zip(runs, tokenizers, strict=True)
        )
        raise ValueError(
            f"Expected runs with the same sub-words and language of the source. Received: {received}. Give "
            "`source_language`."
        )
    numbers = [list(sources).index(tokenizer.source.model) for tokenizer in tokenizers]

    def combined(models: Sequence[EncoderDecoder]) -> EncoderDecoder:
        return Ensemble(models, model.ensemble_weights, model.ensemble_mean, numbers) if len(models) > 1 else models[0]

    _check_memory(combined(networks), search)
    states = []
    for run, network in zip(runs, networks, strict=True):
        description, state = checkpoints.load(run.folder, model.checkpoint, network)
        logger.info(f"Using the {description}.")
        states.append(state)
    network = combined(networks)
    if model.dtype != "float32":
        network = combined([_cast(each, run, model.dtype) for each, run in zip(networks, runs, strict=True)])
    quantized = Int8(network, combined(networks)) if model.int8 else None
    others = list(sources.values())[1:]
    translator = Translator(network, tokenizers[0], search, frozen=True, int8=quantized, other_sources=others, **hooks)
    return translator, states


def load(
    folders: str | os.PathLike | Sequence[str | os.PathLike],
    checkpoint: str = AVERAGE,
    *,
    scorers: Sequence[Callable[[dict], Scorer]] = (),
    selector: Callable[[dict], Selector] | None = None,
    **options,
) -> Translator:
    """Loads the trained model of a run, or those of several runs, which translate together.

    Args:
        folders: folder of a run, or several folders.
        checkpoint, options: see `TrainedModel.open`.
        scorers, selector: see `Translator`.

    Raises:
        FileNotFoundError: a folder is not a run, or has no such checkpoint.
        ValueError: a file of a run is damaged, an option is invalid, or the runs have different sub-words of the
            target.
    """
    return TrainedModel.open(folders, checkpoint, **options).load(scorers=scorers, selector=selector)
