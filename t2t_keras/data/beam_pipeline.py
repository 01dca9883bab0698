"""Writing the training shards with Apache Beam (section 5.1): the same files as `prepare.write`, made by many workers.

The driver reads the text, wherever it comes from, and lays it in chunks where the workers can read them. The workers turn chunks
into ids; pairs are grouped by shard, and each shard is written in the order of the corpus. What pairs a shard holds is a function
of the seed and their indices, so neither the runner nor the number of workers can be seen in the result.
"""

import functools
import itertools
import json
import pathlib
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from t2t_keras.data import corpora, prepare, shards
from t2t_keras.text.tokenizer import Tokenizer

PAIRS_PER_CHUNK = 2**16


def _chunks(pairs: Iterator[corpora.Pair], exchange: str) -> Iterator[tuple[int, str]]:
    """Writes the text where the workers can read it: (index of the first pair, file), source and target lines by turns."""
    for first in itertools.count(0, PAIRS_PER_CHUNK):
        chunk = list(itertools.islice(pairs, PAIRS_PER_CHUNK))
        if not chunk:
            return
        path = FileSystems.join(exchange, f"{first:012d}.text")
        with FileSystems.create(path) as file:
            file.write(b"".join(line + b"\n" for pair in chunk for line in pair))
        yield first, path


class _Encode(beam.DoFn):
    """(first index, file) → (shard, (first index, for each side its ids end to end, and lengths)), in the order of the text."""

    def __init__(self, model: bytes, max_length: int, seed: int, number: int):
        self.model, self.max_length, self.seed, self.number = model, max_length, seed, number

    def setup(self):
        self.tokenizer = Tokenizer(self.model)

    def process(self, chunk):
        first, path = chunk
        with FileSystems.open(path) as file:
            lines = file.read().split(b"\n")[:-1]
        pairs = zip(lines[::2], lines[1::2], strict=True)
        by_shard = [[] for _ in range(self.number)]
        ids = prepare.encode(pairs, self.tokenizer, self.max_length, corpora.Report())
        for shard, pair in zip(shards.draw(self.seed, self.number, first), ids, strict=False):
            if pair is not None:
                by_shard[shard].append(pair)
        for shard, chosen in enumerate(by_shard):
            # Packed: a runner would spend more time on many small arrays than we on all else.
            yield shard, (first, [(np.concatenate(sentences), [len(ids) for ids in sentences]) for sentences in zip(*chosen, strict=True)])


class _WriteShard(beam.DoFn):
    """(shard, its pairs, packed, by first index) → the shard's file, and beside it, as JSON, what `Shard.close` says of it."""

    def __init__(self, exchange: str, names: list[str], vocab_size: int):
        self.exchange, self.names, self.vocab_size = exchange, names, vocab_size

    def process(self, group):
        number, chunks = group
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / self.names[number]
            shard = shards.Shard(path, self.vocab_size)
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
    subwords: Tokenizer,
    max_length: int,
    report: corpora.Report,
    *,
    count: int,
    seed: int,
    options: PipelineOptions,
    exchange: str = "",
) -> dict:
    """Does what `prepare.write` does, by a Beam pipeline.

    Args:
        folder, pairs, subwords, max_length, report, count, seed: see `prepare.write`.
        options: of the pipeline, its runner among them.
        exchange: a folder that driver and workers can both read and write, any that Beam knows (`gs://…`), for one run at a time;
            all is in a folder `t2t_keras_exchange` in it, which is removed. By default beside the shards, which suits workers that see
            this file system.
    """
    folder.mkdir(parents=True, exist_ok=True)
    exchange = FileSystems.join(exchange or str(folder.absolute()), "t2t_keras_exchange")
    if FileSystems.exists(exchange):
        FileSystems.delete([exchange])
    FileSystems.mkdirs(exchange)
    names = shards.names(count)
    chunks = list(_chunks(pairs, exchange))
    with beam.Pipeline(options=options) as pipeline:
        (
            pipeline
            | "Chunks" >> beam.Create(chunks)
            | "Spread" >> beam.Reshuffle()
            | "Encode" >> beam.ParDo(_Encode(subwords.model, max_length, seed, len(names)))
            | "By shard" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(_WriteShard(exchange, names, subwords.vocab_size))
        )
    described = {}
    for name in names:
        path = FileSystems.join(exchange, name)
        with FileSystems.open(path) as source, (folder / name).open("wb") as target:
            shutil.copyfileobj(source, target)
        with FileSystems.open(f"{path}.json") as file:
            described[name] = json.loads(file.read())
    info = shards.describe(folder, described, subwords.vocab_size)
    report.too_long += report.pairs - info["pairs"]
    report.pairs = info["pairs"]
    FileSystems.delete([exchange])
    return info


def writer(runner: str, options: str = "", exchange: str = "") -> Callable:
    """`write` with its runner, for `prepare.prepare`; what Beam does not take is told before any text is read.

    Args:
        runner: DirectRunner, DataflowRunner, FlinkRunner, SparkRunner, …
        options: further pipeline options, as on a command line.
        exchange: see `write`.

    Raises:
        ValueError: there is no such runner, or it needs other options, or its package is not installed.
    """
    pipeline_options = PipelineOptions([f"--runner={runner}", *shlex.split(options)])
    try:
        beam.Pipeline(options=pipeline_options)
    except ImportError as error:
        raise ValueError(str(error)) from error
    return functools.partial(write, options=pipeline_options, exchange=exchange)
