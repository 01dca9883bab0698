"""Writes the training shards with Apache Beam (section 5.1): the same files as those of `prepare.write`, written by
many workers.

The driver reads the text and writes it in chunks to a folder that the workers can read. The workers tokenize the
chunks, group the pairs by shard, and write each shard in the order of the corpus. The shard of a pair depends only on
the seed and the index of the pair: the result is the same for every runner and number of workers.
"""

import functools
import json
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from t2t_keras.beam import runners, shared_files
from t2t_keras.data import prepare, shards, text_files
from t2t_keras.runs.task import Task
from t2t_keras.system.files import replacing
from t2t_keras.system.tensorflow import hide_gpus
from t2t_keras.text import vocabulary
from t2t_keras.text.subwords import Subwords

PAIRS_PER_CHUNK, BYTES_PER_CHUNK = 2**16, 2**26  # A chunk ends at the first of both limits.


class _Encode(beam.DoFn):
    """Tokenizes a chunk and groups its pairs by shard.

    Maps the first index to (shard, (first index, `prepare.pack` of its pairs in the order of the text)) for each shard.
    """

    def __init__(self, exchange: str, models: tuple[bytes, ...], max_length: int, seed: int, number: int, task: Task):
        self.exchange, self.models, self.max_length = exchange, models, max_length
        self.seed, self.number, self.task = seed, number, task

    def setup(self):
        hide_gpus()
        self.tokenizer = vocabulary.load_sides(*self.models)

    def process(self, first: int):
        pairs = shared_files.read_chunk(self.exchange, first, len(self.task.texts))
        by_shard = [[] for _ in range(self.number)]
        ids = prepare.encode(pairs, self.tokenizer, self.max_length, text_files.Report(), self.task)
        for shard, pair in zip(shards.draw(self.seed, self.number, first), ids, strict=False):
            if pair is not None:
                by_shard[shard].append(pair)
        for shard, chosen in enumerate(by_shard):
            yield shard, (first, prepare.pack(chosen))


class _WriteShard(beam.DoFn):
    """Writes the file of a shard, and the result of `Shard.close` as JSON. The elements are (shard, results of
    `_Encode`).
    """

    def __init__(self, exchange: str, names: list[str], vocab_size: int, columns: dict[str, bool]):
        self.exchange, self.names, self.vocab_size, self.columns = exchange, names, vocab_size, columns

    def process(self, group):
        number, chunks = group
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / self.names[number]
            shard = shards.Shard(path, self.vocab_size, self.columns)
            for _, columns in sorted(chunks, key=lambda chunk: chunk[0]):
                for pair in prepare.unpack(columns):
                    shard.add(pair)
            described = shard.close()
            to = FileSystems.join(self.exchange, self.names[number])
            with path.open("rb") as source, shared_files.replacing(to, self.exchange) as target:
                shutil.copyfileobj(source, target)
        with shared_files.replacing(f"{to}.json", self.exchange) as file:
            file.write(json.dumps(described).encode())


def write(
    folder: pathlib.Path,
    pairs: Iterator[text_files.Pair],
    subwords: Subwords,
    max_length: int,
    report: text_files.Report,
    task: Task,
    *,
    count: int,
    size: int = 0,
    seed: int,
    options: PipelineOptions,
    exchange: str = "",
) -> dict:
    """Tokenizes pairs and writes them as shards with a Beam pipeline, with options that include the runner; the other
    arguments and the result are those of `prepare.write`.

    `exchange` is a folder on any file system of Beam (such as `gs://…`) that driver and workers can read and write, for
    one run at a time. Its subfolder `t2t_keras_exchange` is used and then removed. The default is `folder`, for workers
    that share this file system.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names, described = shards.names(count, size), {}
    with shared_files.exchange(exchange or str(folder)) as exchanged:
        firsts = list(shared_files.write_chunks(text_files.chunks(pairs, PAIRS_PER_CHUNK, BYTES_PER_CHUNK), exchanged))
        with runners.running(options) as pipeline:
            (
                pipeline
                | "Chunks" >> beam.Create(firsts)
                | "Spread" >> beam.Reshuffle()
                | "Encode" >> beam.ParDo(_Encode(exchanged, subwords.models, max_length, seed, len(names), task))
                | "By shard" >> beam.GroupByKey()
                | "Write" >> beam.ParDo(_WriteShard(exchanged, names, subwords.largest, task.on_disk))
            )
        for name in names:
            path = FileSystems.join(exchanged, name)
            with FileSystems.open(path) as source, replacing(folder / name) as target:
                shutil.copyfileobj(source, target)
            with FileSystems.open(f"{path}.json") as file:
                described[name] = json.loads(file.read())
    info = shards.describe(folder, described, subwords.largest, task.on_disk)
    report.too_long += report.pairs - info["pairs"]
    report.pairs = info["pairs"]
    return info


def writer(runner: str, options: str = "", exchange: str = "") -> Callable:
    """Returns a `write_train` function for `Preparation.run`. Checks the options of the pipeline before any text is
    read; see `runners.read`, and for `exchange` see `write`.
    """
    return functools.partial(write, options=runners.read(runner, options), exchange=exchange)
