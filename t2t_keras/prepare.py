"""From a corpus to shards of token ids (section 5.1): checks the text, learns sub-words, writes a data folder.

The folder holds `subwords.model`, shards in `train/` and `valid/`, the held-out text as `valid.source.txt` and
`valid.target.txt` (and `test.…` of the built-in corpus), and, last, `corpus.json`: a folder with one is whole.
"""

import dataclasses
import itertools
import json
import pathlib
import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from t2t_keras import corpus, shards, tokenizer
from t2t_keras.config import DataConfig, write_whole

SUBWORDS = "subwords.model"
CORPUS = "corpus.json"
PAIRS_AT_ONCE = 8192


def _options(data: DataConfig, vocab_size: int, seed: int) -> dict:
    """What decides which pairs and sub-words are in the folder; another seed alone may share it."""
    names = ("max_length", "normalization", "character_coverage", "vocab_sample", "skip_bad_lines")
    return {**corpus.identity(data, seed), "vocab_size": vocab_size, **{name: getattr(data, name) for name in names}}


def encode(pairs: Iterator[corpus.Pair], subwords: tokenizer.Tokenizer, max_length: int, report: corpus.Report) -> Iterator[tuple | None]:
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
    folder: pathlib.Path, pairs: Iterator[corpus.Pair], subwords: tokenizer.Tokenizer, max_length: int, report: corpus.Report, **options
) -> dict:
    """Writes pairs of text as shards, in this process; `options` are those of `shards.write`."""
    return shards.write(folder, encode(pairs, subwords, max_length, report), vocab_size=subwords.vocab_size, **options)


def _write_text(folder: pathlib.Path, split: str, pairs: list[corpus.Pair]) -> None:
    for side, lines in zip(shards.SIDES, zip(*pairs, strict=True), strict=True):
        (folder / f"{split}.{side}.txt").write_bytes(b"".join(line + b"\n" for line in lines))


def read_text(folder: pathlib.Path, split: str) -> tuple[list[str], list[str]]:
    """The source and target lines of a held-out split."""
    source, target = ((folder / f"{split}.{side}.txt").read_bytes().decode("utf-8").split("\n")[:-1] for side in shards.SIDES)
    return source, target


def check_folder(folder: pathlib.Path, data: DataConfig, vocab_size: int, seed: int) -> None:
    """Stops if a prepared folder is not what the options ask for; asks nothing where no corpus is named.

    Raises:
        ValueError: naming the first option that differs.
    """
    if not (data.dataset or data.train_source):
        return
    written = json.loads((folder / CORPUS).read_text(encoding="utf-8"))["options"]
    asked = _options(data, vocab_size, seed)
    for name in {**written, **asked}:
        if written.get(name) != asked.get(name):
            raise ValueError(
                f"{folder} was prepared from another corpus or with other options: {name} was {written.get(name)}, and is now "
                f"{asked.get(name)}. Give another --model_dir or --data_dir, or the options it was prepared with."
            )


def prepare(
    data: DataConfig, vocab_size: int, seed: int, folder: pathlib.Path, say: Callable = print, write_train: Callable = write
) -> None:
    """Makes a data folder, unless it is there already and of the same corpus.

    Args:
        data: where the pairs are, and how to make sub-words of them.
        vocab_size: sub-words, special ids included.
        seed: of the sample that sub-words are learned from, and of the pairs' order on disk.
        folder: made if missing.
        say: told what is being done.
        write_train: writes the training shards; takes and does what `write` does.

    Raises:
        FileNotFoundError, ValueError: the corpus is not usable, or the folder holds another one.
    """
    if (folder / CORPUS).exists():
        check_folder(folder, data, vocab_size, seed)
        say(f"Using the data in {folder}.")
        return
    say("Reading and checking the text …")
    report = corpus.Report()
    beginning = []
    for pair in corpus.pairs(data, "train", seed, report):
        if len(beginning) < 20_000:
            beginning.append(pair)
    say(f"Training text: {report}.")
    valid_report = corpus.Report()
    valid = list(corpus.pairs(data, "valid", seed, valid_report))
    for name, counted in (("training", report), ("validation", valid_report)):
        if not counted.pairs:
            raise ValueError(f"The {name} text has no usable pair: {counted}.")
    corpus.check_sides(beginning, valid)

    folder.mkdir(parents=True, exist_ok=True)
    say(f"Learning {vocab_size:,} sub-words …")
    lines = (line for pair in corpus.pairs(data, "train", seed, corpus.Report()) for line in pair)
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

    say("Writing token ids …")
    written, started = {}, time.monotonic()
    train_report = corpus.Report()
    for split, write_split, pairs, counted, count in (
        ("train", write_train, corpus.pairs(data, "train", seed, train_report), train_report, report.pairs),
        ("valid", write, iter(valid), valid_report, len(valid)),
    ):
        written[split] = write_split(folder / split, pairs, subwords, data.max_length, counted, count=count, seed=seed)
        if not written[split]["pairs"]:
            raise ValueError(f"Every pair of the {split} text is longer than --max_length={data.max_length}: {counted}.")
        speed = written[split]["pairs"] / (time.monotonic() - started)
        tokens = [written[split][f"{side}_tokens"] / written[split]["pairs"] for side in shards.SIDES]
        say(f"{split}: {counted}; {tokens[0]:.1f} + {tokens[1]:.1f} sub-words a pair; {speed:,.0f} pairs/s.")
        started = time.monotonic()
    _write_text(folder, "valid", valid)
    if data.dataset == "builtin":
        _write_text(folder, "test", list(corpus.pairs(data, "test", seed, corpus.Report())))
    described = {
        "options": _options(data, vocab_size, seed),
        "report": {"train": dataclasses.asdict(train_report), "valid": dataclasses.asdict(valid_report)},
    }
    write_whole(folder / CORPUS, (json.dumps(described, indent=2) + "\n").encode())
