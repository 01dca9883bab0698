"""Imports a model as the folder of a run: from a folder of transformers or Marian, or by its name on the hub."""

import dataclasses
import os
import pathlib
from typing import NamedTuple

import numpy as np

from t2t_keras.config import TENSOR2TENSOR, DataConfig
from t2t_keras.interop import huggingface_folder, imported_run, m2m_vocabulary, marian_config, marian_native
from t2t_keras.interop.huggingface_folder import Folder
from t2t_keras.interop.marian_config import M2M, MARIAN, MarianConfig
from t2t_keras.interop.marian_vocabulary import (
    SOURCE_MODEL,
    TARGET_MODEL,
    TARGET_VOCABULARY,
    TOKENIZER,
    VOCABULARY,
    Vocabulary,
    is_separate,
    languages_of,
)
from t2t_keras.interop.marian_weights import Model, check_embeddings
from t2t_keras.runs import run_options
from t2t_keras.system.files import check_new
from t2t_keras.system.log import logger, printable
from t2t_keras.text import piece_file

_FILES = (
    *(marian_config.CONFIG, marian_config.SEARCH, TOKENIZER, VOCABULARY, TARGET_VOCABULARY, SOURCE_MODEL, TARGET_MODEL),
    *(m2m_vocabulary.MODEL, m2m_vocabulary.SPECIAL, m2m_vocabulary.ADDED, huggingface_folder.FAST),
)


class _Sides(NamedTuple):
    """The vocabularies of source and target: the model's id for each of ours, [V] int, and files of sub-words."""

    source_rows: np.ndarray
    target_rows: np.ndarray
    source: bytes
    target: bytes


def import_huggingface(
    source: str | os.PathLike,
    model_dir: str | os.PathLike,
    *,
    source_language: str = "",
    target_language: str = "",
    native_positions: bool = False,
) -> None:
    """Imports a Marian, M2M-100 or NLLB-200 model.

    Args:
        source: a folder with `config.json`, `model.safetensors`, and the sub-words: `vocab.json`, `source.spm` and
            `target.spm` of Marian, `sentencepiece.bpe.model` of the others; or one with Marian's own files,
            `decoder.yml`, an npz file and the vocabularies; or the name of a model on the hub, such as
            Helsinki-NLP/opus-mt-en-de.
        model_dir: the run's folder, new or empty.
        source_language, target_language: default languages of the run of a multilingual model, as codes such as
            eng_Latn; empty for those that the files name, if they do.
        native_positions: whether to give a Marian model the position encodings of Marian itself; those of transformers
            differ slightly. A model in Marian's own files always has Marian's.

    Raises:
        FileNotFoundError: there is no such model, or it lacks a file.
        FileExistsError: `model_dir` is not empty.
        ValueError: the model is damaged, cannot be imported, or has no such language. Nothing is written.
    """
    model_dir = pathlib.Path(model_dir).expanduser().resolve()
    check_new(model_dir, "model_dir")  # Before a model is downloaded.
    folder = huggingface_folder.find(source, _FILES)
    if marian_native.is_in(folder):
        folder = marian_native.NativeFolder(folder.path)
    config = marian_config.read(folder)
    with folder.opened_weights() as tensors:
        check_embeddings(config, tensors)
    if config.kind == M2M:
        if native_positions:
            raise ValueError(
                "`native_positions` is for Marian models. Received: M2M-100, which has one kind of position encodings."
            )
        sides = _many_languages(folder, config, source_language, target_language)
    elif source_language or target_language:
        raise ValueError(
            "`source_language` and `target_language` do not apply to a Marian model, whose lines begin with a tag such "
            f"as >>deu<<. Received: {source_language!r} and {target_language!r}."
        )
    else:
        sides = _marian(folder, config)
    changes = {"sinusoids": TENSOR2TENSOR} if native_positions else {}
    if not np.array_equal(sides.source_rows, sides.target_rows):
        changes["source_vocab_size"] = len(sides.source_rows)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, **changes))
    with folder.opened_weights() as tensors:
        model = Model(config, tensors, sides.source_rows, sides.target_rows)
        data = DataConfig(subwords="sentencepiece", **(languages_of(folder) if config.kind == MARIAN else {}))
        names = [*vars(config.model), *vars(config.decode)]
        sources = dict.fromkeys(names, imported_run.origin(source, folder.of_hub))
        options = run_options.Options(config.model, decode=config.decode, data=data, sources=sources)
        imported_run.write(model_dir, options, sides.target, sides.source, model)
    if config.left:
        logger.warning(f"Options of the search without a counterpart are ignored: {', '.join(config.left)}.")
    logger.info(f"Imported {source}: {config.model.num_weights:,} weights, {config.model.vocab_size:,} sub-words.")


def import_marian(source: str | os.PathLike, model_dir: str | os.PathLike, *, native_positions: bool = False) -> None:
    """Imports a Marian or OPUS-MT model: `import_huggingface` without languages.

    Args:
        source, model_dir, native_positions: see `import_huggingface`.
    """
    import_huggingface(source, model_dir, native_positions=native_positions)


def _marian(folder: Folder, config: MarianConfig) -> _Sides:
    """Reads the vocabularies of a Marian model."""
    path, separate = folder.require_subwords(VOCABULARY), is_separate(folder)
    pieces, of_target = folder.json(VOCABULARY), folder.json(TARGET_VOCABULARY)
    m2m_vocabulary.check_added(folder, pieces.keys() | of_target.keys(), VOCABULARY)
    start = config.start if config.shared and config.tied and not separate else None
    source = Vocabulary(path, pieces, config.source_rows, config.pad, start)
    tags = sorted(filter(piece_file.TAG.fullmatch, pieces))
    if len(tags) > 1:
        examples = printable(", ".join(tags[:5])) + " …" * (len(tags) > 5)
        logger.warning(
            f"The model writes several languages: a line must begin with one of {len(tags)} tags, {examples}. "
            "Without one, or with another, it may be translated into any language."
        )
    name, pieces = (TARGET_VOCABULARY, of_target) if separate else (VOCABULARY, pieces)
    target = Vocabulary(folder.require(name), pieces, config.target_rows, config.pad, config.start)
    _check_ids(folder, config, target)
    return _Sides(source.rows, target.rows, source.packed(folder, SOURCE_MODEL), target.packed(folder, TARGET_MODEL))


def _many_languages(folder: Folder, config: MarianConfig, source_language: str, target_language: str) -> _Sides:
    """Reads the vocabulary of a multilingual model, which both sides share."""
    ids = m2m_vocabulary.ids_of(folder)
    languages = m2m_vocabulary.languages_of(folder, len(ids))
    known = ids.keys() | set(m2m_vocabulary.tokens_without_text(folder))
    m2m_vocabulary.check_added(folder, known, m2m_vocabulary.MODEL)
    pieces = ids | {piece_file.tag_of(code): index for code, index in languages.items()}
    path = folder.path / m2m_vocabulary.MODEL
    vocabulary = Vocabulary(path, pieces, config.target_rows, config.pad, config.start)
    _check_ids(folder, config, vocabulary)
    options = folder.json(TOKENIZER)
    if options.get("legacy_behaviour"):  # Then the source's language is behind the sentence.
        raise ValueError(
            f"Expected legacy_behaviour=False in {folder.path / TOKENIZER}. Received: "
            f"{options['legacy_behaviour']!r:.80}."
        )
    defaults = options.get("src_lang"), options.get("tgt_lang")
    if config.forced_first is not None:
        defaults = defaults[0], next((code for code, index in languages.items() if index == config.forced_first), None)
    codes = [
        chosen or (default if default in list(languages) else "")
        for chosen, default in zip((source_language, target_language), defaults, strict=True)
    ]
    content = vocabulary.packed(folder, m2m_vocabulary.MODEL, "")
    source, target = (piece_file.with_language(content, code) if code else content for code in codes)
    return _Sides(vocabulary.rows, vocabulary.rows, source, target)


def _check_ids(folder: Folder, config: MarianConfig, target: Vocabulary) -> None:
    if (target.pad, target.eos) != (config.pad, config.eos):
        raise ValueError(
            f"Expected the target vocabulary in {folder.path} to have the ids of padding and end of config.json, "
            f"{config.pad} and {config.eos}. Received: {target.pad} and {target.eos}."
        )
