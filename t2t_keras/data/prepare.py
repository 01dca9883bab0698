"""From a corpus to shards of token ids (section 5.1): checks the text, learns sub-words, writes a data folder.

The folder holds `subwords.model`, shards in `train/` and `valid/`, the held-out text as `valid.source.txt` and
`valid.target.txt` (and `test.…` of the built-in corpus), and, last, `corpus.json`: a folder with one is whole. One process
at a time writes into a folder; `lock` stays there, empty.
"""

import contextlib
import dataclasses
import itertools
import json
import pathlib
import re
import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from t2t_keras import files
from t2t_keras.config import TEXTS, DataConfig
from t2t_keras.data import corpora, shards
from t2t_keras.files import read_json, write_whole
from t2t_keras.log import logger
from t2t_keras.text import tokenizer

SUBWORDS = "subwords.model"
CORPUS = "corpus.json"
LOCK = "lock"
MOST_CORPUS = 2**24  # Bytes of `corpus.json`, which names every file of the text.
PAIRS_AT_ONCE = 8192
_HASHED = re.compile(r" [0-9a-f]{64}'")  # How a file is recorded, see `corpus.identity`.
_OF_TEXT = ("max_length", "normalization", "character_coverage", "vocab_sample", "skip_bad_lines")  # Options on any corpus.
# What TensorFlow raises at a full disk, at a file that may not be written, and at a limit of a file's size.
_WRITE_ERRORS = (tf.errors.ResourceExhaustedError, tf.errors.PermissionDeniedError, tf.errors.OutOfRangeError)


def _options(data: DataConfig, vocab_size: int, seed: int, hashes: corpora.Hashes | None = None) -> dict:
    """What decides which pairs and sub-words are in the folder; another seed alone may share it."""
    return {**corpora.identity(data, seed, hashes), "vocab_size": vocab_size, **{name: getattr(data, name) for name in _OF_TEXT}}


def _written(folder: pathlib.Path) -> dict:
    """The options in `corpus.json`."""
    path = folder / CORPUS
    try:
        options = read_json(path, MOST_CORPUS).get("options")
    except ValueError as error:
        raise ValueError(f"{error} Remove {folder} and prepare again.") from error
    if not isinstance(options, dict):
        raise ValueError(f"{path} is damaged: it has no options. Remove {folder} and prepare again.")
    return {"builtin_pairs" if name == "pairs" else name: value for name, value in options.items()}  # As older versions wrote it.


def prepared_with(folder: pathlib.Path) -> DataConfig:
    """The options that a folder was prepared with. Text files are left out: of those, only their contents are known.

    Raises:
        ValueError: `corpus.json` is damaged.
    """
    written = _written(folder)
    names = {field.name for field in dataclasses.fields(DataConfig)} - set(TEXTS)
    try:
        return DataConfig(**{name: written[name] for name in names & set(written)})
    except ValueError as error:
        raise ValueError(f"{folder / CORPUS} is damaged: {error} Remove {folder} and prepare again.") from error


def encode(pairs: Iterator[corpora.Pair], subwords: tokenizer.Tokenizer, max_length: int, report: corpora.Report) -> Iterator[tuple | None]:
    """Pairs of text → pairs of id arrays; None for those longer than `max_length`, which are counted."""
    while chunk := list(itertools.islice(pairs, PAIRS_AT_ONCE)):
        sides = []
        for texts in zip(*chunk, strict=True):
            ids = subwords.tokenize(tf.constant(texts))
            sides.append(np.split(ids.values.numpy(), ids.row_splits.numpy()[1:-1]))
        for source, target in zip(*sides, strict=True):
            if max(len(source), len(target)) > max_length:
                report.too_long += 1
                report.pairs -= 1
                yield None
            else:
                yield source, target


def write(
    folder: pathlib.Path, pairs: Iterator[corpora.Pair], subwords: tokenizer.Tokenizer, max_length: int, report: corpora.Report, **options
) -> dict:
    """Writes pairs of text as shards, in this process; `options` are those of `shards.write`."""
    return shards.write(folder, encode(pairs, subwords, max_length, report), vocab_size=subwords.vocab_size, **options)


def _write_text(folder: pathlib.Path, split: str, pairs: list[corpora.Pair]) -> None:
    for side, lines in zip(shards.SIDES, zip(*pairs, strict=True), strict=True):
        (folder / f"{split}.{side}.txt").write_bytes(b"".join(line + b"\n" for line in lines))


def read_text(folder: pathlib.Path, split: str) -> tuple[list[str], list[str]]:
    """The source and target lines of a held-out split."""
    source, target = ((folder / f"{split}.{side}.txt").read_bytes().decode("utf-8").split("\n")[:-1] for side in shards.SIDES)
    return source, target


def check_folder(folder: pathlib.Path, data: DataConfig, vocab_size: int, seed: int) -> None:
    """Stops if a prepared folder is not what the options ask for.

    Where no corpus is named, data options are compared that do not have their defaults. All bytes of text files are read and
    compared, by their hash.

    Raises:
        ValueError: naming every option that differs; or `corpus.json` is damaged.
    """
    if data == DataConfig():
        return
    written, asked = _written(folder), _options(data, vocab_size, seed)
    names = [*asked, *sorted(set(written) - set(asked))]
    if not data.names_corpus:
        names = [field.name for field in dataclasses.fields(DataConfig) if getattr(data, field.name) != field.default]
        asked = vars(data) | asked
    differ = [name for name in names if written.get(name) != asked.get(name)]
    if any(name in written and not _HASHED.search(str(written[name])) for name in set(differ) & set(TEXTS)):
        raise ValueError(
            f"{folder} was prepared by an older version, which did not record all of its text. Leave the text files out of the command to "
            "use it, or prepare the text again in another folder."
        )
    changes = [f"{name} was {_short(written.get(name))}, and is now {_short(asked.get(name))}" for name in differ]
    if changes:
        raise ValueError(
            f"{folder} was prepared from another corpus or with other options: {'; '.join(changes)}. "
            "Give another --model_dir or --data_dir, or the options it was prepared with."
        )


def _short(value) -> str:
    """An option's value in a message; None: it has none."""
    text = "not given" if value is None else str(value)
    return text if len(text) <= 2000 else f"{text[:2000]}…"


def _check_own(folder: pathlib.Path) -> None:
    """Stops where a folder holds files and was never one to prepare: they may be somebody's own."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / LOCK).exists():
        raise FileExistsError(f"{folder} holds files and no prepared data. Give a new or an empty folder as --data_dir.")


def _check_text(data: DataConfig, seed: int) -> None:
    """Stops where no corpus is named, or a file of it is missing."""
    for split in ("train", "valid"):
        corpora.pairs(data, split, seed, corpora.Report())


@contextlib.contextmanager
def _writing(folder: pathlib.Path) -> Iterator[None]:
    """Turns what the system or TensorFlow says of a full or read-only disk into a sentence.

    Raises:
        OSError: a file could not be written.
    """
    try:
        yield
    except (OSError, *_WRITE_ERRORS) as error:
        if isinstance(error, OSError):
            elsewhere = error.filename is not None and not pathlib.Path(str(error.filename)).is_relative_to(folder)
            if error.errno is None or elsewhere:  # A sentence already, or of a file that was read.
                raise
        reason = error.strerror if isinstance(error, OSError) else error.message
        raise OSError(
            f"Could not write {folder} ({reason}). It is incomplete and is not used: make room, or give permission, and run the same "
            "command again."
        ) from error


def _read(data: DataConfig, seed: int, hashes: corpora.Hashes) -> tuple[corpora.Report, corpora.Report, list[corpora.Pair]]:
    """Reads and checks all of the text. Returns what training and validation text have, and the validation pairs."""
    logger.info("Reading and checking the text …")
    report, valid_report = corpora.Report(), corpora.Report()
    valid = list(corpora.pairs(data, "valid", seed, valid_report, hashes))
    held_out, repeated, identical, beginning = set(valid), set(), 0, []
    for pair in corpora.pairs(data, "train", seed, report, hashes):
        if len(beginning) < 20_000:
            beginning.append(pair)
        if pair in held_out:
            repeated.add(pair)
        identical += pair[0] == pair[1]
    logger.info(f"Training text: {report}.")
    for name, counted in (("training", report), ("validation", valid_report)):
        if not counted.pairs:
            raise ValueError(f"The {name} text has no usable pair: {counted}.")
    corpora.check_sides(beginning, valid)
    if repeated:
        logger.warning(f"{sum(pair in repeated for pair in valid):,} of {len(valid):,} validation pairs are also in the training text.")
    if 2 * identical > report.pairs:
        logger.warning(
            f"In {identical:,} of {report.pairs:,} training pairs, source and target are the same text. If that is not the task, check "
            "--train_source and --train_target."
        )
    return report, valid_report, valid


def _make(data: DataConfig, vocab_size: int, seed: int, folder: pathlib.Path, write_train: Callable) -> None:
    """Writes a data folder; its `corpus.json` last."""
    hashes, hashes_again = {}, {}
    report, valid_report, valid = _read(data, seed, hashes)
    logger.info(f"Learning {vocab_size:,} sub-words …")
    lines = (line for pair in corpora.pairs(data, "train", seed, corpora.Report()) for line in pair)
    model = tokenizer.learn(
        lines,
        vocab_size,
        sample=data.vocab_sample,
        seed=seed,
        normalization=data.normalization,
        character_coverage=data.character_coverage,
    )
    (folder / SUBWORDS).write_bytes(model)
    subwords = tokenizer.Tokenizer(model)

    logger.info("Writing token ids …")
    written, started = {}, time.monotonic()
    train_report = corpora.Report()
    for split, write_split, pairs, counted, count in (
        ("train", write_train, corpora.pairs(data, "train", seed, train_report, hashes_again), train_report, report.pairs),
        ("valid", write, iter(valid), valid_report, len(valid)),
    ):
        written[split] = write_split(folder / split, pairs, subwords, data.max_length, counted, count=count, seed=seed)
        if not written[split]["pairs"]:
            raise ValueError(f"Every pair of the {split} text is longer than --max_length={data.max_length}: {counted}.")
        speed = written[split]["pairs"] / (time.monotonic() - started)
        tokens = [written[split][f"{side}_tokens"] / written[split]["pairs"] for side in shards.SIDES]
        logger.info(f"{split}: {counted}; {tokens[0]:.1f} + {tokens[1]:.1f} sub-words a pair; {speed:,.0f} pairs/s.")
        started = time.monotonic()
    for path, value in hashes_again.items():
        if value != hashes[path]:
            raise ValueError(f"{path} was changed while it was being read. Run the same command again.")
    _write_text(folder, "valid", valid)
    if data.dataset == "builtin":
        _write_text(folder, "test", list(corpora.pairs(data, "test", seed, corpora.Report())))
    described = {
        "options": _options(data, vocab_size, seed, hashes),
        "report": {"train": dataclasses.asdict(train_report), "valid": dataclasses.asdict(valid_report)},
    }
    write_whole(folder / CORPUS, (json.dumps(described, indent=2) + "\n").encode())


def prepare(data: DataConfig, vocab_size: int, seed: int, folder: pathlib.Path, write_train: Callable = write) -> None:
    """Makes a data folder, unless it is there already and of the same corpus.

    Args:
        data: where the pairs are, and how to make sub-words of them.
        vocab_size: sub-words, special ids included.
        seed: of the sample that sub-words are learned from, and of the pairs' order on disk.
        folder: made if missing. While another process prepares it, this one waits.
        write_train: writes the training shards; takes and does what `write` does.

    Raises:
        FileNotFoundError, ValueError: the corpus is not usable, or the folder holds another one.
        OSError: a file cannot be read, or the folder not be written, or it holds other files.
    """
    if not (folder / CORPUS).exists():
        if not (folder / LOCK).exists():  # Where nobody has begun and a file is missing, no folder is made.
            _check_text(data, seed)
        _check_own(folder)
        with _writing(folder), files.exclusive(folder / LOCK, str(folder), wait=True):
            if not (folder / CORPUS).exists():  # The process waited for may have written it.
                _check_text(data, seed)
                _make(data, vocab_size, seed, folder, write_train)
                return
    check_folder(folder, data, vocab_size, seed)
    logger.info(f"Using the data in {folder}.")
