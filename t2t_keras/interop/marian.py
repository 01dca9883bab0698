"""Brings a Marian or OPUS-MT model in: from a folder of transformers' format, or by its name on the hub, to the folder of a run."""

import dataclasses
import os
import pathlib

import numpy as np

from t2t_keras import checkpoint, run_folder
from t2t_keras.config import DataConfig
from t2t_keras.files import making_folder
from t2t_keras.interop import huggingface_folder, marian_config
from t2t_keras.interop.huggingface_folder import Folder, opened_weights
from t2t_keras.interop.marian_vocabulary import (
    SOURCE_MODEL,
    TARGET_MODEL,
    TARGET_VOCABULARY,
    TOKENIZER,
    VOCABULARY,
    Vocabulary,
    is_separate,
    languages,
)
from t2t_keras.interop.marian_weights import Model
from t2t_keras.log import logger

IMPORT, OF_HUB = "import of ", "the hub's "  # What a run writes before the model that its options are from.
_STATE = {"step": 0, "best": 0.0, "best_step": 0}  # Of training, which begins.
_FILES = (marian_config.CONFIG, marian_config.SEARCH, TOKENIZER, VOCABULARY, TARGET_VOCABULARY, SOURCE_MODEL, TARGET_MODEL)


def import_marian(source: str | os.PathLike, model_dir: str | os.PathLike) -> None:
    """Imports a Marian model.

    Args:
        source: a folder with `config.json`, `vocab.json`, `source.spm`, `target.spm` and `model.safetensors`; or the name of a model on
            the hub, such as Helsinki-NLP/opus-mt-en-de.
        model_dir: the run's folder, new or empty.

    Raises:
        FileNotFoundError: there is no such model, or it lacks a file.
        FileExistsError: `model_dir` is not empty.
        ValueError: the model is damaged, or is none that can be imported. Nothing is written.
    """
    folder, model_dir = huggingface_folder.find(source, _FILES), pathlib.Path(model_dir).expanduser().resolve()
    if model_dir.exists() and not (model_dir.is_dir() and not any(model_dir.iterdir())):
        raise FileExistsError(f"Expected a new or empty folder as `model_dir`. Received: {model_dir}, which is neither.")
    config, separate = marian_config.read(folder), is_separate(folder)
    source_list = Vocabulary(folder, VOCABULARY, config.source_rows, config.pad, config.start if config.shared else None)
    target_list = Vocabulary(folder, TARGET_VOCABULARY if separate else VOCABULARY, config.target_rows, config.pad, config.start)
    if (target_list.pad, target_list.eos) != (config.pad, config.eos):
        raise ValueError(
            f"Expected the ids of padding and end that config.json has, {config.pad} and {config.eos}, in the vocabulary of the target in "
            f"{folder.path}. Received: {target_list.pad} and {target_list.eos}."
        )
    if not np.array_equal(source_list.rows, target_list.rows):
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, source_vocab_size=len(source_list.rows)))
    source_subwords, target_subwords = source_list.packed(folder, SOURCE_MODEL), target_list.packed(folder, TARGET_MODEL)
    with opened_weights(folder) as tensors:
        model = Model(config, tensors, source_list.rows, target_list.rows)
        data = DataConfig(subwords="sentencepiece", **languages(folder))
        options = run_folder.Options(config.model, decode=config.decode, data=data, sources=_sources(source, folder, config))
        with making_folder(model_dir) as unfinished:
            paths = unfinished / run_folder.SUBWORDS, unfinished / run_folder.SOURCE_SUBWORDS
            for path, subwords in zip(paths, (target_subwords, source_subwords), strict=True):
                path.write_bytes(subwords)
            run_folder.write(unfinished, options, paths[0], None, paths[1])
            checkpoint.write(checkpoint.path_of(unfinished, 0), model, None, _STATE)
    if config.left:
        logger.warning(f"Options of the search without a counterpart are not taken over: {', '.join(config.left)}.")
    logger.info(f"Imported {source}: {config.model.num_weights:,} weights, {config.model.vocab_size:,} sub-words.")


def _sources(source: str | os.PathLike, folder: Folder, config: marian_config.MarianConfig) -> dict[str, str]:
    """Returns where options come from, as `run_folder.Options.sources`."""
    name = OF_HUB * folder.of_hub + (str(source) if str(source).isprintable() else ascii(str(source)))
    return dict.fromkeys([*vars(config.model), *vars(config.decode)], IMPORT + name)
