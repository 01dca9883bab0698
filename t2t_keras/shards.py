"""Token ids on disk (section 5.1): TFRecord files whose records hold a block of pairs each.

A record is a `tf.train.Example` with four byte strings, little-endian: `source_ids` and `target_ids`, all sentences end to
end, uint16 (int32 where the vocabulary is larger), and `source_lengths` and `target_lengths`, uint16, one per pair. Every
id is a sub-word's; sentences end in EOS; there is no padding. Which shard a pair goes to is drawn from a seed, so that each
shard is a fair sample of a corpus however that is sorted.
"""

import json
import pathlib
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

SIDES = ("source", "target")
PAIRS_PER_RECORD = 1024
PAIRS_PER_SHARD = 2**16
MAX_SHARDS = 512  # Files open at once while writing.
INFO = "info.json"


def id_type(vocab_size: int) -> np.dtype:
    """The smallest type that holds the ids: uint16 up to 65,536 sub-words."""
    return np.dtype("<u2" if vocab_size <= 2**16 else "<i4")


class _Shard:
    """One file being written; keeps pairs back until they fill a record."""

    def __init__(self, path: pathlib.Path, dtype: np.dtype):
        self.writer = tf.io.TFRecordWriter(str(path))
        self.dtype, self.pending = dtype, []

    def add(self, pair) -> None:
        self.pending.append(pair)
        if len(self.pending) == PAIRS_PER_RECORD:
            self.flush()

    def flush(self) -> None:
        if self.pending:
            features = {}
            for side, sentences in zip(SIDES, zip(*self.pending, strict=True), strict=True):
                features[f"{side}_ids"] = np.concatenate(sentences).astype(self.dtype).tobytes()
                features[f"{side}_lengths"] = np.array([len(ids) for ids in sentences], "<u2").tobytes()
            feature = {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value])) for name, value in features.items()}
            self.writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
            self.pending = []

    def close(self) -> None:
        self.flush()
        self.writer.close()


def write(folder: pathlib.Path, pairs: Iterable[tuple], *, count: int, vocab_size: int, seed: int) -> dict:
    """Writes pairs of id arrays, each to a shard drawn from the seed.

    Args:
        folder: made if missing; its `info.json` is written last, so a folder with one is whole.
        pairs: of (source ids, target ids), integer arrays.
        count: about how many pairs are to come; fixes the number of shards.
        vocab_size: fixes the ids' type.
        seed: of the draw.

    Returns:
        What `info.json` holds: `pairs`, tokens and longest sentence of each side, `shards`, `vocab_size`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    number = max(1, min(MAX_SHARDS, -(-count // PAIRS_PER_SHARD)))
    names = [f"{index:05d}-of-{number:05d}.tfrecord" for index in range(number)]
    shards = [_Shard(folder / name, id_type(vocab_size)) for name in names]
    draw = np.random.default_rng(seed)
    tokens, longest, written = np.zeros(2, np.int64), np.zeros(2, np.int64), 0
    for pair in pairs:
        shards[draw.integers(number)].add(pair)
        lengths = np.array([len(ids) for ids in pair])
        tokens += lengths
        longest = np.maximum(longest, lengths)
        written += 1
    for shard in shards:
        shard.close()
    info = {"pairs": written, "shards": names, "vocab_size": vocab_size}
    for index, side in enumerate(SIDES):
        info[f"{side}_tokens"], info[f"{side}_longest"] = int(tokens[index]), int(longest[index])
    # A file cut between two records reads like a whole one.
    info["bytes"] = {name: (folder / name).stat().st_size for name in names}
    (folder / INFO).write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")
    return info


def check_sizes(folder: pathlib.Path, info: dict) -> None:
    """Stops where a shard is missing or has another size than when it was written.

    Raises:
        ValueError: naming the file.
    """
    for name, size in info["bytes"].items():
        path = folder / name
        found = path.stat().st_size if path.exists() else 0
        if found != size:
            raise ValueError(f"Expected {path} to have {size:,} bytes. Received: {found:,}. Remove {folder.parent} and prepare again.")


def read_info(folder: pathlib.Path) -> dict:
    """What `write` returned for this folder."""
    return json.loads((folder / INFO).read_text(encoding="utf-8"))


def read(files, vocab_size: int) -> dict:
    """All pairs of some shards, in the graph.

    Args:
        files: [N] string.
        vocab_size: as written.

    Returns:
        For each side `{side}_ids` [tokens] int32 and `{side}_lengths` [pairs] int32.
    """
    records = tf.data.TFRecordDataset(files).batch(2**31).get_single_element()
    names = [f"{side}_{part}" for side in SIDES for part in ("ids", "lengths")]
    columns = tf.io.parse_example(records, {name: tf.io.FixedLenFeature([], tf.string) for name in names})
    types = {"ids": tf.as_dtype(id_type(vocab_size)), "lengths": tf.uint16}
    return {name: tf.cast(tf.io.decode_raw(tf.strings.reduce_join(columns[name]), types[name.split("_")[1]]), tf.int32) for name in names}
