"""What an encoder predicts in held-out documents, beside models that count in the training text.

The unigram model takes the most frequent sub-word for each masked one. The bigram model takes the most frequent one
after the sub-word before it, and that of the unigram model where this one is masked too or was never seen.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from t2t_keras.config import EOS
from t2t_keras.data import shards, text_files
from t2t_keras.decoding.loading import make_model
from t2t_keras.layers.inference import inference
from t2t_keras.runs import checkpoint
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.runs.task import Task
from t2t_keras.system import files, markdown
from t2t_keras.system.tensorflow import choose_float32, share_gpus

ROWS = 32  # Texts at once.


def counts(parts: Iterable[list[np.ndarray]], vocab_size: int) -> tuple[int, np.ndarray]:
    """Counts sub-words and pairs of them. `parts` are lists of texts, each its ids; one list at a time is in memory.

    Returns the most frequent sub-word; and the one that comes most often after each, [V], or the most frequent one
    where there is none. Of several, the first in the vocabulary.
    """
    single, pairs, numbers = np.zeros(vocab_size, np.int64), np.array([], np.int64), np.array([], np.int64)
    for texts in parts:
        single += np.bincount(np.concatenate(texts), minlength=vocab_size)
        new, times = np.unique(
            np.concatenate([ids[:-1].astype(np.int64) * vocab_size + ids[1:] for ids in texts]), return_counts=True
        )
        pairs, places = np.unique(np.concatenate([pairs, new]), return_inverse=True)
        numbers = np.bincount(places, np.concatenate([numbers, times]))
    unigram = int(np.argmax(single))
    order = np.lexsort((-pairs, numbers))  # The last one of each sub-word wins.
    following = np.full(vocab_size, unigram)
    following[pairs[order] // vocab_size] = pairs[order] % vocab_size
    return unigram, following


def guesses(tokens: np.ndarray, masked: np.ndarray, unigram: int, following: np.ndarray) -> np.ndarray:
    """Returns what the bigram model of `counts` takes for masked sub-words, [M], of a text with masks, [S]. `masked`
    has their positions from 1, [M].
    """
    hidden = np.zeros(len(tokens), bool)
    hidden[masked - 1] = True
    before = masked - 2
    known = (tokens[before] > EOS) & ~hidden[before]
    return np.where(known, following[tokens[before]], unigram)


def _texts(folder: pathlib.Path, info: dict, damaged_records: str = "stop") -> Iterator[list[np.ndarray]]:
    """Yields the records of each shard of a data folder without special sub-words: consecutive sentences."""
    parts = tf.data.Dataset.range(len(info["shards"])).map(lambda shard: shards.read(folder, [shard], damaged_records))
    with shards.plain_errors():
        for read in parts.as_numpy_iterator():
            rows = np.split(read["tokens_ids"], np.cumsum(read["tokens_lengths"])[:-1])
            yield [ids[1:-2] for ids in rows]


def _records(task: Task, tokenizer, path: str, max_length: int) -> dict[str, tf.RaggedTensor]:
    """Returns the records of documents, a ragged tensor for each column."""
    [lines] = zip(*text_files.pairs(path, report=text_files.Report(), documents=True), strict=True)
    if b"" not in lines:
        raise ValueError(f"{path} needs two documents or more, with a blank line between them.")
    records = list(task.records(tokenizer, list(lines), max_length=max_length))
    task.check_documents({int(document) for *_, [document] in records}, path)
    columns = {}
    for name, rows in zip(task.on_disk, zip(*records, strict=True), strict=True):
        values, sizes = np.concatenate(rows).astype(np.int32), np.array(list(map(len, rows)), np.int64)
        columns[name] = tf.RaggedTensor.from_row_lengths(values, sizes)
    return columns


def evaluate(run: SavedRun, which: str, path: str, draws: int, data_dir: str = "", damaged_records: str = "") -> dict:
    """Measures a run on held-out documents, with other masks and pairs in each of several draws.

    Args:
        run: a run of the architecture bert.
        which: its weights; see `checkpoint.load`.
        path: file of documents.
        draws: how many times masks and pairs are drawn.
        data_dir: folder of its data; empty for the one that the run names.
        damaged_records: `stop` at a damaged record of the training text, or `skip` it; empty for what the run did.

    Returns:
        Shares that are right: "masked_words", and those of the models "unigram" and "bigram"; "next_sentences", and
        "chance", that of the more frequent answer. Numbers: "words" and "texts".
    """
    options = run.options
    if options.task.name != "pretraining":
        raise ValueError(f"Expected a run of `t2t-pretrain`. Received: {run.folder}, of the task {options.task.name}.")
    reading = dataclasses.replace(options.train, damaged_records=damaged_records or options.train.damaged_records)
    train = (pathlib.Path(data_dir).expanduser() if data_dir else options.data_folder(run.folder)) / "train"
    if not (train / shards.INFO).exists():
        raise FileNotFoundError(
            f"{train} is missing. The baselines are counted on the training text: prepare it again."
        )
    for each in text_files.expand(path):
        files.check_ends(each)
    run.check_data(train.parent / files.SUBWORDS, train / shards.RECORDS)
    share_gpus()
    choose_float32(options.train.tf32)
    model, tokenizer = make_model(run, which)
    checkpoint.load(run.folder, which, model)
    unigram, following = counts(_texts(train, shards.read_info(train), reading.damaged_records), tokenizer.vocab_size)
    records = _records(options.task, tokenizer, path, options.data.max_length)
    renewal = options.task.renewal(tokenizer, options, training=False)
    right = dict.fromkeys(("masked_words", "unigram", "bigram", "next_sentences"), 0)
    words, answers = 0, []
    for draw in range(draws):
        texts = renewal.change(records, tf.constant([0, draw], tf.int64))
        for first in range(0, texts["tokens"].nrows(), ROWS):
            batch = {name: ids[first : first + ROWS].to_tensor().numpy() for name, ids in texts.items()}
            with inference():
                sums = model.losses(*(batch[column.name] for column in options.task.columns), 0.0)
            right["masked_words"] += float(sums["right"])
            right["next_sentences"] += float(sums["next_right"])
            answers += batch["following"].ravel().tolist()
            for tokens, masked, target in zip(batch["tokens"], batch["masked"], batch["target"], strict=True):
                masked, target = masked[masked > 0], target[target > 0]
                right["unigram"] += int((target == unigram).sum())
                right["bigram"] += int((guesses(tokens, masked, unigram, following) == target).sum())
                words += len(target)
    share = np.mean(np.array(answers) == 2)
    found = {name: number / (len(answers) if name == "next_sentences" else words) for name, number in right.items()}
    return found | {"chance": float(max(share, 1 - share)), "words": words, "texts": len(answers)}


def table(figures: dict) -> str:
    """Returns the figures of `evaluate` as a table of Markdown."""
    rows = [
        ("masked words", "masked_words", "words"),
        ("… by a unigram model", "unigram", "words"),
        ("… by a bigram model", "bigram", "words"),
        ("next sentences", "next_sentences", "texts"),
        ("… by chance", "chance", "texts"),
    ]
    cells = [(name, f"{100 * figures[share]:.1f}%", f"{figures[number]:,}") for name, share, number in rows]
    return markdown.table(("predictions", "accuracy", "number"), cells, right=("accuracy", "number"))
