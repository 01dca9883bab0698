"""The updates that all contestants make: pairs of ids in shards, cut into batches and micro-batches by t2t_keras."""

import pathlib

import numpy as np

from benchmarks.train_peers.worker import read_updates
from t2t_keras.config import EOS, PAD, DataConfig, ModelConfig, TrainConfig
from t2t_keras.data import batching, corpora, prepare, shards, text_files
from t2t_keras.model import flops
from t2t_keras.runs import registry
from t2t_keras.text import vocabulary

SEED = 1
# Sub-words of a sentence: log-normal, 28 on average as in newstest; the other side is up to a fifth shorter or longer.
MEAN_LOG, DEVIATION_LOG, LONGEST = 3.17, 0.56, 100
RANDOM_PAIRS = 20_000


def write_random_pairs(folder: pathlib.Path, vocab_size: int) -> None:
    """Writes shards of pairs with the lengths of newstest and random ids."""
    draw = np.random.default_rng(SEED)
    source = np.clip(draw.lognormal(MEAN_LOG, DEVIATION_LOG, RANDOM_PAIRS), 2, LONGEST).astype(int)
    target = np.clip(source * draw.uniform(0.8, 1.2, RANDOM_PAIRS), 2, LONGEST).astype(int)

    def sentence(length: int):
        return np.append(draw.integers(EOS + 1, vocab_size, length - 1), EOS)

    pairs = (tuple(map(sentence, lengths)) for lengths in zip(source.tolist(), target.tolist(), strict=True))
    shards.write(folder, pairs, count=RANDOM_PAIRS, vocab_size=vocab_size, seed=SEED)


def write_text_pairs(folder: pathlib.Path, data: DataConfig, vocab_size: int) -> None:
    """Learns sub-words from the training text and writes shards of it."""

    def pairs(report):
        return corpora.pairs(data, "train", SEED, report)

    learning = {name: getattr(data, name) for name in ("normalization", "character_coverage")}
    lines = (line for pair in pairs(text_files.Report()) for line in pair)
    subwords = vocabulary.load(
        vocabulary.learn(data.subwords, lines, vocab_size, sample=data.vocab_sample, seed=SEED, **learning)
    )
    report = text_files.Report()
    prepare.write(
        folder, pairs(report), subwords, data.max_length, report, registry.task("translation"), count=29_000, seed=SEED
    )


def write_batches(path: pathlib.Path, shards_folder: pathlib.Path, train: TrainConfig, updates: int) -> dict:
    """Writes some updates, of the token budgets of `train`, as an .npz file: as buckets, and as the micro-batches that
    t2t_keras makes of them. Raises `ValueError` if a sentence does not fit into a batch.

    Returns what tasks say about them: `batches`, `updates`, `buckets_per_update`, `micro_batches` of each update, and
    `longest`, the longest sentences in the form of `shards.read_info`.
    """
    longest = {f"{side}_longest": 0 for side in shards.SIDES}
    buckets = batching.buckets(shards.read_info(shards_folder), train.batch_tokens, train.buckets_per_update)
    dataset = batching.batches(shards_folder, batch_tokens=train.batch_tokens // buckets, seed=SEED).take(
        updates * buckets
    )
    arrays, micro_batches = {}, []
    for index, bucket in enumerate(dataset):
        for side in shards.SIDES:
            arrays[f"bucket/{index}/{side}"] = bucket[side].numpy()
            longest[f"{side}_longest"] = max(longest[f"{side}_longest"], bucket[side].shape[1])
    for update, group in enumerate(batching.grouped(dataset, buckets)):
        sides = {side: group[side] for side in shards.SIDES}
        share = batching.split(sides, buckets=buckets, replicas=1, micro_batch_tokens=train.micro_batch_tokens)
        pairs = [dict(zip(share, ids, strict=True)) for ids in zip(*(ids[0] for ids in share.values()), strict=True)]
        trimmed = [pair for pair in map(batching.trimmed, pairs) if np.any(pair["source"] != PAD)]
        for number, pair in enumerate(trimmed):
            arrays |= {f"micro_batch/{update}/{number}/{side}": ids.numpy() for side, ids in pair.items()}
        micro_batches.append(len(trimmed))
    np.savez(path, **arrays)
    return {
        "batches": str(path), "updates": updates, "buckets_per_update": buckets, "micro_batches": micro_batches,
        "longest": longest | {"columns": shards.SIDES}, "positions": max(longest.values()),
    }  # fmt: skip


def count(task: dict) -> tuple[list[int], list[float]]:
    """Returns the real target tokens of each update, and the operations of its forward passes."""
    model, updates = ModelConfig(**task["model"]), read_updates(task)
    tokens = [sum(int((target != PAD).sum()) for _, target in update) for update in updates]
    return tokens, [
        sum(flops.forward(model, *source.shape, target.shape[1]) for source, target in update) for update in updates
    ]
