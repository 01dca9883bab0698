"""Writes the training shards with Apache Beam (section 5.1): the same files as those of `prepare.write`, written by many workers.

The driver reads the text and writes it in chunks to a folder that the workers can read. The workers tokenize the chunks, group the
pairs by shard, and write each shard in the order of the corpus. The shard of a pair depends only on the seed and the index of the pair:
the result is the same for every runner and number of workers.
"""

import functools
import json
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from t2t_keras import gpus
from t2t_keras.data import beam_options, corpora, prepare, shards
from t2t_keras.files import replacing
from t2t_keras.task import Task
from t2t_keras.text import vocabulary
from t2t_keras.text.subwords import Subwords

PAIRS_PER_CHUNK, BYTES_PER_CHUNK = 2**16, 2**26  # A chunk ends at the first of both limits.


def _chunks(pairs: Iterator[corpora.Pair], exchange: str) -> Iterator[tuple[int, str]]:
    """Writes the text in chunks for the workers, with alternating source and target lines.

    Yields:
        The index of the first pair and the file of a chunk.
    """
    first = 0
    for chunk in corpora.chunks(pairs, PAIRS_PER_CHUNK, BYTES_PER_CHUNK):
        path = FileSystems.join(exchange, f"{first:012d}.text")
        with FileSystems.create(path) as file:
            file.write(b"".join(line + b"\n" for pair in chunk for line in pair))
        yield first, path
        first += len(chunk)


class _Encode(beam.DoFn):
    """Tokenizes a chunk and groups its pairs by shard.

    Maps (first index, file) to (shard, (first index, [(ids, lengths) of each side])) for each shard. `ids` are concatenated sentences, in
    the order of the text.
    """

    def __init__(self, models: tuple[bytes, ...], max_length: int, seed: int, number: int, task: Task):
        self.models, self.max_length, self.seed, self.number, self.task = models, max_length, seed, number, task

    def setup(self):
        gpus.hide()
        self.tokenizer = vocabulary.load_sides(*self.models)

    def process(self, chunk):
        first, path = chunk
        with FileSystems.open(path) as file:
            lines = file.read().split(b"\n")[:-1]
        sides = len(self.task.texts)
        pairs = zip(*(lines[side::sides] for side in range(sides)), strict=True)
        by_shard = [[] for _ in range(self.number)]
        ids = prepare.encode(pairs, self.tokenizer, self.max_length, corpora.Report(), self.task)
        for shard, pair in zip(shards.draw(self.seed, self.number, first), ids, strict=False):
            if pair is not None:
                by_shard[shard].append(pair)
        for shard, chosen in enumerate(by_shard):
            # Concatenated, because runners are slow with many small arrays.
            yield shard, (first, [(np.concatenate(sentences), [len(ids) for ids in sentences]) for sentences in zip(*chosen, strict=True)])


class _WriteShard(beam.DoFn):
    """Writes the file of a shard, and the result of `Shard.close` as JSON. The elements are (shard, results of `_Encode`)."""

    def __init__(self, exchange: str, names: list[str], vocab_size: int, columns: dict[str, bool]):
        self.exchange, self.names, self.vocab_size, self.columns = exchange, names, vocab_size, columns

    def process(self, group):
        number, chunks = group
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / self.names[number]
            shard = shards.Shard(path, self.vocab_size, self.columns)
            for _, sides in sorted(chunks, key=lambda chunk: chunk[0]):
                for pair in zip(*(np.split(ids, np.cumsum(lengths)[:-1]) for ids, lengths in sides), strict=True):
                    shard.add(pair)
            described = shard.close()
            to = FileSystems.join(self.exchange, self.names[number])
            with path.open("rb") as source, FileSystems.create(to) as target:
                shutil.copyfileobj(source, target)
        with FileSystems.create(f"{to}.json") as file:
            file.write(json.dumps(described).encode())


def write(
    folder: pathlib.Path,
    pairs: Iterator[corpora.Pair],
    subwords: Subwords,
    max_length: int,
    report: corpora.Report,
    task: Task,
    *,
    count: int,
    size: int = 0,
    seed: int,
    options: PipelineOptions,
    exchange: str = "",
) -> dict:
    """Tokenizes pairs and writes them as shards with a Beam pipeline; the result is that of `prepare.write`.

    Args:
        folder, pairs, subwords, max_length, report, task, count, size, seed: see `prepare.write`.
        options: options of the pipeline, including the runner.
        exchange: a folder on any file system of Beam (such as `gs://…`) that driver and workers can read and write, for one run at a
            time. Its subfolder `t2t_keras_exchange` is used and then removed. The default is `folder`, for workers that share this file
            system.
    """
    if task.documents:
        raise ValueError(f"Expected a task with records of single lines, which Beam can divide. Received: {task.name}, of documents.")
    folder.mkdir(parents=True, exist_ok=True)
    exchange = FileSystems.join(exchange or str(folder.absolute()), "t2t_keras_exchange")
    if FileSystems.exists(exchange):
        FileSystems.delete([exchange])
    FileSystems.mkdirs(exchange)
    names = shards.names(count, size)
    chunks = list(_chunks(pairs, exchange))
    with beam.Pipeline(options=options) as pipeline:
        (
            pipeline
            | "Chunks" >> beam.Create(chunks)
            | "Spread" >> beam.Reshuffle()
            | "Encode" >> beam.ParDo(_Encode(subwords.models, max_length, seed, len(names), task))
            | "By shard" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(_WriteShard(exchange, names, subwords.largest, task.on_disk))
        )
    described = {}
    for name in names:
        path = FileSystems.join(exchange, name)
        with FileSystems.open(path) as source, replacing(folder / name) as target:
            shutil.copyfileobj(source, target)
        with FileSystems.open(f"{path}.json") as file:
            described[name] = json.loads(file.read())
    info = shards.describe(folder, described, subwords.largest, task.on_disk)
    report.too_long += report.pairs - info["pairs"]
    report.pairs = info["pairs"]
    FileSystems.delete([exchange])
    return info


def writer(runner: str, options: str = "", exchange: str = "") -> Callable:
    """Returns a `write_train` function for `prepare.prepare`. Checks the options of the pipeline before any text is read.

    Args:
        runner, options: see `beam_options.read`; it raises its errors.
        exchange: see `write`.
    """
    return functools.partial(write, options=beam_options.read(runner, options), exchange=exchange)
