"""Token ids on disk (section 5.1): TFRecord files in which each record holds a block of pairs.

A pair has a sequence of ids in each column: `source` and `target` for translation, others for other tasks. A record is
a `tf.train.Example` with two little-endian byte strings for each column. `source_ids` are the concatenated sentences,
as uint16, or as int32 if the vocabulary has more than 65,536 sub-words. `source_lengths` are uint16, one value per
pair. Sentences are not padded. The shard of a pair is drawn from a seed and the index of the pair: each shard is a
random sample of the corpus, also of a sorted one, and does not depend on which process writes it.

`records.tsv` has one line per record: the number of its shard, the offset and the length of its content in bytes, the
number of its pairs, and the fingerprint of its content. With this index a damaged record can be located and skipped
without losing other records.
"""

import contextlib
import json
import pathlib
import re
import reprlib
import sys
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from t2t_keras.system.files import read_json, write_whole
from t2t_keras.system.log import logger

# The columns of translation, and whether their lengths count against budgets of tokens.
SIDES = {"source": True, "target": True}
# A record and a shard are full at the first of both limits. Sentences reach that of pairs first; documents, the other
# one.
PAIRS_PER_RECORD, TOKENS_PER_RECORD = 1024, 2**17
# Bytes of text: tokens are not counted yet, and each has a byte or more.
PAIRS_PER_SHARD, BYTES_PER_SHARD = 2**16, 2**26
MAX_SHARDS = 512  # All shards are open at once during writing.
INFO = "info.json"
RECORDS = "records.tsv"
COLUMNS = ("shard", "offset", "length", "pairs", "fingerprint")
# Bytes of a TFRecord before its content (length and the length's checksum) and after it (the content's checksum).
FRAME_BEFORE, FRAME_AFTER = 12, 4


def id_type(vocab_size: int) -> np.dtype:
    """Returns the smallest type for the ids: uint16 up to 65,536 sub-words, else int32."""
    return np.dtype("<u2" if vocab_size <= 2**16 else "<i4")


def _fingerprints(contents):
    """Returns the FarmHash of each record: [N] string → [N] int64. TensorFlow has no op for the checksums of a TFRecord
    file.
    """
    return tf.strings.to_hash_bucket_fast(contents, 2**62)


class Shard:
    """Writes one shard and buffers pairs until they fill a record. `vocab_size`, of the side with most sub-words,
    determines the type of the ids.
    """

    def __init__(self, path: pathlib.Path, vocab_size: int, columns: Iterable[str] = SIDES):
        if wrong := [name for name in columns if not _is_name(name)]:
            raise ValueError(
                f"Expected columns named in lower case, and not position or damaged. Received: {', '.join(wrong)}."
            )
        path.unlink(missing_ok=True)  # It may be another name of a file elsewhere.
        self._writer = tf.io.TFRecordWriter(str(path))
        self._dtype, self._columns, self._size = id_type(vocab_size), tuple(columns), 0
        self._pending, self._pending_tokens = [], 0
        self._described = {"records": [], "tokens": [0] * len(self._columns), "longest": [0] * len(self._columns)}

    def add(self, pair) -> None:
        """Adds an integer array for each column. Their values are at least 1: 0 is padding."""
        self._pending.append(pair)
        self._pending_tokens += sum(map(len, pair))
        if len(self._pending) == PAIRS_PER_RECORD or self._pending_tokens >= TOKENS_PER_RECORD:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            features = {}
            columns = zip(self._columns, zip(*self._pending, strict=True), strict=True)
            for index, (side, sentences) in enumerate(columns):
                lengths, ids = [len(ids) for ids in sentences], np.concatenate(sentences)
                if min(lengths) < 1 or not np.issubdtype(ids.dtype, np.integer):
                    received = "none in a row" if min(lengths) < 1 else f"numbers of type {ids.dtype}"
                    raise ValueError(
                        f"Expected one integer or more in each row of column '{side}'. Received: {received}."
                    )
                maximum = np.iinfo(self._dtype).max
                if not 0 < ids.min() <= ids.max() <= maximum:
                    raise ValueError(
                        f"Expected integers from 1 to {maximum:,} in column '{side}'. Received: {ids.min()} to "
                        f"{ids.max()}."
                    )
                features[f"{side}_ids"] = ids.astype(self._dtype).tobytes()
                features[f"{side}_lengths"] = np.array(lengths, "<u2").tobytes()
                self._described["tokens"][index] += sum(lengths)
                self._described["longest"][index] = max(self._described["longest"][index], *lengths)
            feature = {
                name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value])) for name, value in features.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            content = example.SerializeToString(deterministic=True)
            self._writer.write(content)
            record = (self._size + FRAME_BEFORE, len(content), len(self._pending), int(_fingerprints(content)))
            self._described["records"].append(record)
            self._size += FRAME_BEFORE + len(content) + FRAME_AFTER
            self._pending, self._pending_tokens = [], 0

    def close(self) -> dict:
        """Finishes the file, and returns a description of it: `records`, a list of (offset, length, pairs,
        fingerprint); and `tokens` and `longest`, the number of tokens and the length of the longest sentence, each a
        list of a value per column.
        """
        self._flush()
        self._writer.close()
        return self._described


def _is_name(column: str) -> bool:
    """Whether a column may have this name: a word in lower case, and not one that batches use for themselves."""
    return re.fullmatch("[a-z_]{1,100}", column) is not None and column not in ("position", "damaged")


def names(count: int, size: int = 0) -> list[str]:
    """Returns the names of the shards for about `count` pairs of `size` bytes of text."""
    return _names(max(1, min(MAX_SHARDS, max(-(-count // PAIRS_PER_SHARD), -(-size // BYTES_PER_SHARD)))))


def _names(number: int) -> list[str]:
    return [f"{index:05d}-of-{number:05d}.tfrecord" for index in range(number)]


def draw(seed: int, number: int, first: int = 0) -> Iterator[int]:
    """Yields the shard of each pair of a corpus, one of `number`, from index `first` on. Only seed and index decide."""
    generator = np.random.Generator(np.random.PCG64(seed).advance(first))
    while True:
        yield from (generator.random(8192) * number).astype(int).tolist()


def write(
    folder: pathlib.Path,
    pairs: Iterable[tuple | None],
    *,
    count: int,
    size: int = 0,
    vocab_size: int,
    seed: int,
    columns: dict[str, bool] = SIDES,
) -> dict:
    """Writes pairs of id arrays, an integer array for each column, each to a shard drawn from the seed and its index.
    `info.json` is written last: a folder that has it is complete. Returns its content: the number of `pairs`, the
    tokens and longest sentence of each column, `columns`, `shards` and `vocab_size`.

    Args:
        pairs: `None` stands for a pair that is left out; it does not change the shards of the others.
        count, size: approximate number of pairs and of bytes of their text; determine the number of shards.
        vocab_size: of the side with most sub-words; determines the type of the ids.
        columns: for each column, whether its length counts against budgets of tokens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shards = {name: Shard(folder / name, vocab_size, columns) for name in names(count, size)}
    by_number = list(shards.values())
    for number, pair in zip(draw(seed, len(shards)), pairs, strict=False):
        if pair is not None:
            by_number[number].add(pair)
    return describe(folder, {name: shard.close() for name, shard in shards.items()}, vocab_size, columns)


def describe(folder: pathlib.Path, shards: dict[str, dict], vocab_size: int, columns: dict[str, bool] = SIDES) -> dict:
    """Writes `records.tsv` and, last, `info.json` of a folder of shards; returns the content of `info.json`. `shards`
    are the results of `Shard.close` by the name of the shard, in order; for the other arguments see `write`.
    """
    records = [(index, *record) for index, shard in enumerate(shards.values()) for record in shard["records"]]
    lines = ["\t".join(map(str, row)) + "\n" for row in (COLUMNS, *records)]
    write_whole(folder / RECORDS, "".join(lines).encode())
    pairs = sum(record[COLUMNS.index("pairs")] for record in records)
    info = {"pairs": pairs, "shards": list(shards), "vocab_size": vocab_size, "columns": columns}
    for index, side in enumerate(columns):
        info[f"{side}_tokens"] = sum(shard["tokens"][index] for shard in shards.values())
        info[f"{side}_longest"] = max(shard["longest"][index] for shard in shards.values())
    write_whole(folder / INFO, (json.dumps(info, indent=2) + "\n").encode())
    return info


def read_info(folder: pathlib.Path) -> dict:
    """Reads the content of `info.json`, as `write` returned it. Without the file, raises `FileNotFoundError`."""
    path = folder / INFO
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. Remove {folder.parent} and prepare again.")
    info = read_json(path)
    columns = info.setdefault("columns", SIDES)  # Older versions had these only.
    if not isinstance(columns, dict) or not columns or not all(map(_is_name, columns)):
        raise ValueError(f"Expected 'columns' in {path} to be names of columns. Received: {reprlib.repr(columns)}.")
    totals = (f"{column}_{total}" for column in columns for total in ("tokens", "longest"))
    for name in ("pairs", "vocab_size", *totals):
        if type(info.get(name)) is not int or not 0 <= info[name] < 2**62:
            raise ValueError(
                f"Expected '{name}' in {path} to be a whole number. Received: {reprlib.repr(info.get(name))}."
            )
    written = info.get("shards")
    if not isinstance(written, list) or not written or written != _names(len(written)):
        raise ValueError(
            f"Expected 'shards' in {path} to be names like {_names(1)[0]}. Received: {reprlib.repr(written)}."
        )
    return info


def counted(info: dict, total: str = "longest") -> list[int]:
    """Returns the `longest` sentence, or the number of `tokens`, of each column that counts against token budgets."""
    return [info[f"{column}_{total}"] for column, counts in info["columns"].items() if counts]


def read_records(folder: pathlib.Path) -> np.ndarray:
    """Reads `records.tsv`: [records, columns] int64, sorted by shard and offset. A missing file is a `ValueError`."""
    path, info = folder / RECORDS, read_info(folder)
    try:
        header, *lines = path.read_text(encoding="utf-8").splitlines()
        if header.split("\t") != list(COLUMNS):
            raise ValueError(f"its first line is {header[:100]!r}")
        records, end, last = [], 0, 0
        for line_number, line in enumerate(lines, 2):
            record = [int(number) for number in line.split("\t")]
            shard, offset, length, pairs, fingerprint = record
            if shard != last:
                end = 0
            follows = last <= shard < len(info["shards"]) and offset == end + FRAME_BEFORE
            if not (follows and 0 <= length < 2**31 and 0 <= pairs < 2**31 and 0 <= fingerprint < 2**62):
                raise ValueError(f"line {line_number} is {line[:100]!r}")
            records.append(record)
            end, last = offset + length + FRAME_AFTER, shard
        table = np.array(records, np.int64).reshape(-1, len(COLUMNS))
        if (number := table[:, COLUMNS.index("pairs")].sum()) != info["pairs"]:
            raise ValueError(f"it has {number:,} pairs, and {INFO} has {info['pairs']:,}")
        return table
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is missing or damaged: {error}. Remove {folder.parent} and prepare again.") from error


def check_sizes(folder: pathlib.Path, damaged_records: str = "stop") -> None:
    """Checks that every shard exists and has the size that it was written with. `damaged_records` is `stop` or `skip`,
    which logs a warning at a wrong size.
    """
    records = read_records(folder)
    for index, name in enumerate(read_info(folder)["shards"]):
        path, own = folder / name, records[records[:, 0] == index]
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing. Remove {folder.parent} and prepare again.")
        size = (FRAME_BEFORE + FRAME_AFTER) * len(own) + own[:, COLUMNS.index("length")].sum()
        if (found := path.stat().st_size) != size:
            message = f"Expected {path} to have {size:,} bytes. Received: {found:,}."
            if damaged_records == "stop":
                raise ValueError(f"{message} {_advice(folder)}")
            logger.warning(message)


def _advice(folder: pathlib.Path) -> str:
    return f"Remove {folder.parent} and prepare again, or leave damaged records out with `damaged_records=skip`."


def _contents(files, sizes, records):
    """Reads the bytes at the offsets of `records`, ragged [N, (records), columns] int64, of N shards, whose sizes are
    those when this graph was made: [all records] string. Contents are too short if a file is truncated.
    """

    def of_shard(shard):
        name, size, own = shard
        file = tf.io.read_file(name)
        size = tf.where(size < 2**31, tf.cast(tf.strings.length(file), tf.int64), size)  # `length` counts in int32.

        def content(record):
            offset, length = (record[COLUMNS.index(name)] for name in ("offset", "length"))
            return tf.strings.substr(file, tf.minimum(offset, size), length)

        return tf.map_fn(content, own, fn_output_signature=tf.string)

    kind = tf.RaggedTensorSpec([None], tf.string, 0)
    # One file at a time, to limit memory.
    return tf.map_fn(of_shard, (files, sizes, records), parallel_iterations=1, fn_output_signature=kind).values


@tf.autograph.experimental.do_not_convert
def read(folder: pathlib.Path, chosen, damaged_records: str = "stop") -> dict:
    """Reads all pairs of the `chosen` shards, [N] int32, in the graph. `damaged_records` is `stop`, an error at a
    damaged record, which `plain_errors` makes a ValueError, or `skip`, which leaves it out and prints its place on
    stderr.

    Returns:
        {"source_ids": [tokens] int32, "source_lengths": [pairs] int32, the same for other columns, "damaged": []
        int32}, where `damaged` is the number of records left out.
    """
    info, records = read_info(folder), read_records(folder)
    paths = [folder / name for name in info["shards"]]
    files = tf.constant([str(path) for path in paths])
    sizes = tf.constant([path.stat().st_size if path.exists() else 0 for path in paths], tf.int64)
    records = tf.gather(tf.RaggedTensor.from_value_rowids(records, records[:, 0], nrows=len(info["shards"])), chosen)
    contents = _contents(tf.gather(files, chosen), tf.gather(sizes, chosen), records)
    columns = dict(zip(COLUMNS, tf.unstack(records.values, axis=1), strict=True))
    whole = _fingerprints(contents) == columns["fingerprint"]
    damaged = tf.size(whole) - tf.math.count_nonzero(whole, dtype=tf.int32)

    def report_and_leave_out():
        lost = {name: tf.boolean_mask(column, ~whole) for name, column in columns.items()}
        offsets, pairs = (tf.strings.as_string(lost[name]) for name in ("offset", "pairs"))
        places = "byte " + offsets + " of " + tf.gather(files, lost["shard"])
        if damaged_records == "stop":
            number = tf.strings.as_string(damaged)
            message = "Expected intact records. Received: " + number + " damaged, the first at " + places[0] + ". "
            tf.debugging.Assert(False, [message + _advice(folder)])
        lines = "Damaged record at " + places + ": " + pairs + " pairs are left out."
        tf.print(tf.strings.reduce_join(lines, separator="\n"), output_stream=sys.stderr)
        return tf.boolean_mask(contents, whole)

    # `cond`, not `if`: a data service builds this function without automatic conversion to a graph.
    contents = tf.cond(damaged > 0, report_and_leave_out, lambda: contents)
    types = {"ids": tf.as_dtype(id_type(info["vocab_size"])), "lengths": tf.uint16}
    features = {f"{side}_{kind}": types[kind] for side in info["columns"] for kind in types}
    parsed = tf.io.parse_example(contents, {name: tf.io.FixedLenFeature([], tf.string) for name in features})
    decoded = {name: tf.io.decode_raw(tf.strings.reduce_join(parsed[name]), dtype) for name, dtype in features.items()}
    return {**{name: tf.cast(values, tf.int32) for name, values in decoded.items()}, "damaged": damaged}


@contextlib.contextmanager
def plain_errors():
    """Turns the error at a damaged record, with names of TensorFlow's nodes, into a `ValueError` of its message
    only.
    """
    try:
        yield
    except tf.errors.OpError as error:  # A data service raises another class than InvalidArgumentError.
        message = re.search(r"assertion failed: \[(Expected .*)\]", error.message)
        if not message:
            raise
        raise ValueError(re.sub(r"\\(.)", r"\1", message[1])) from error
