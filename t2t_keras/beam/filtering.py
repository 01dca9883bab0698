"""Filters parallel text with Apache Beam: the same folder as that of `judging.filter_text`, with the work of many
workers.

The program reads the text and writes it in chunks to a folder that the workers can read. The workers judge single
pairs, find repetitions, and score what is left; the program joins their verdicts in the order of the text. To find
repetitions, the workers group hashes by their remainder, so that a group fits into memory, and look in the order of the
text for those that were there before. Near repetitions are looked for after exact ones are rejected, as in `judging`.
So the result is the same for every runner and number of workers.
"""

import functools
import itertools
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.shared import Shared

from t2t_keras.beam import runners, shared_files
from t2t_keras.config import FilterConfig
from t2t_keras.data import text_files
from t2t_keras.filtering import judging

HASHES_IN_GROUP = 2**22  # About so many are compared with each other in one process: some 100 MB.

# Of N pairs, and hashes of those that break no rule: [N, 2] uint64.
Judgement = tuple[list[judging.Verdict], np.ndarray]


class _Judge(beam.DoFn):
    """Maps the index of the first pair of a chunk to (this index, judgement)."""

    def __init__(self, exchange: str, config: FilterConfig, length_ratio: float):
        self.exchange, self.config, self.length_ratio = exchange, config, length_ratio

    def setup(self):
        self.judge = judging.judge(self.config, self.length_ratio)

    def process(self, first: int) -> Iterator[tuple[int, Judgement]]:
        yield first, self.judge(shared_files.read_chunk(self.exchange, first, len(judging.SIDES)))


class _RejectRepeated(beam.PTransform):
    """Rejects pairs that were there before: (first pair, judgement) of each chunk → the same. `column` is that of the
    hashes that count for `rule`, and `groups` in how many the hashes are divided.
    """

    def __init__(self, column: int, rule: str, groups: int):
        super().__init__()
        self.column, self.rule, self.groups = column, rule, groups

    def expand(self, judged):
        # Later, a group has at most one hash of a kind for each chunk.
        within = judged | "Within chunks" >> beam.MapTuple(self._within)
        repeated = (
            within
            | "Group" >> beam.FlatMapTuple(self._grouped)
            | beam.GroupByKey()
            | "Find" >> beam.FlatMapTuple(_repeated)
        )
        return (
            {"judged": within, "repeated": repeated} | beam.CoGroupByKey() | "Reject" >> beam.MapTuple(self._rejected)
        )

    def _within(self, first: int, judgement: Judgement) -> tuple[int, Judgement]:
        verdicts, hashes = list(judgement[0]), judgement[1]  # A runner may give the same object to several functions.
        judging.reject_repeated(verdicts, hashes[:, self.column], self.rule, judging.Seen())
        return first, (verdicts, hashes)

    def _grouped(self, first: int, judgement: Judgement) -> Iterator[tuple[int, tuple[int, np.ndarray, np.ndarray]]]:
        """Yields (group, (first pair, places in the chunk, hashes)) of the pairs that break no rule."""
        verdicts, hashes = judgement
        left = np.array(judging.left(verdicts), np.int32)
        own = hashes[left, self.column]
        group = own % np.uint64(self.groups)
        for number in np.unique(group):
            yield int(number), (first, left[group == number], own[group == number])

    def _rejected(self, first: int, both: dict[str, Iterable]) -> tuple[int, Judgement]:
        [(verdicts, hashes)] = both["judged"]
        verdicts = list(verdicts)
        for index in itertools.chain.from_iterable(both["repeated"]):
            verdicts[index] = self.rule, 1
        return first, (verdicts, hashes)


def _repeated(_: int, parts: Iterable[tuple[int, np.ndarray, np.ndarray]]) -> Iterator[tuple[int, list[int]]]:
    """Yields (first pair, places in the chunk) of the hashes of a group that were there before, in the order of the
    text.
    """
    seen = judging.Seen()
    for first, places, hashes in sorted(parts, key=lambda part: part[0]):
        if repeated := places[seen.add(hashes)].tolist():
            yield first, repeated


class _Write(beam.DoFn):
    """Scores the pairs of a chunk that are left, and writes the verdicts and the scores as JSON."""

    def __init__(self, exchange: str, config: FilterConfig, load_scores: Callable | None):
        self.exchange, self.config, self.load_scores, self.shared = exchange, config, load_scores, Shared()

    def setup(self):
        self.scores = self.load_scores and self.shared.acquire(self.load_scores)  # Once in each process.

    def process(self, judged: tuple[int, Judgement]) -> None:
        first, (verdicts, _) = judged
        verdicts, kept = list(verdicts), []
        if self.scores:
            chunk = shared_files.read_chunk(self.exchange, first, len(judging.SIDES))
            kept = judging.score(chunk, verdicts, self.scores, self.config.max_cross_entropy)
        with shared_files.replacing(_decided(self.exchange, first), self.exchange) as file:
            file.write(json.dumps([verdicts, kept], default=float).encode())


def _decided(exchange: str, first: int) -> str:
    """Returns the file of what is decided about a chunk."""
    return f"{shared_files.chunk(exchange, first)}.json"


def _judged(
    pairs: Iterator[text_files.Pair],
    length_ratio: float,
    folder: pathlib.Path,
    *,
    config: FilterConfig,
    options: PipelineOptions,
    exchange: str,
    load_scores: Callable | None,
) -> Iterator[judging.Judged]:
    """Yields what is decided about each chunk, in the order of the text."""
    with shared_files.exchange(exchange or str(folder)) as exchanged:
        firsts = list(shared_files.write_chunks(judging.chunks(pairs), exchanged))
        groups = 1 + len(firsts) * judging.PAIRS_AT_ONCE // HASHES_IN_GROUP
        with runners.running(options) as pipeline:
            judged = (
                pipeline
                | "Chunks" >> beam.Create(firsts)
                | "Spread" >> beam.Reshuffle()
                | "Judge" >> beam.ParDo(_Judge(exchanged, config, length_ratio))
            )
            for column, rule in judging.repeated(config):
                judged |= rule >> _RejectRepeated(column, rule, groups)
            judged | "Write" >> beam.ParDo(_Write(exchanged, config, load_scores))
        for first in firsts:
            with FileSystems.open(_decided(exchanged, first)) as file:
                verdicts, kept = json.loads(file.read())
            yield shared_files.read_chunk(exchanged, first, len(judging.SIDES)), verdicts, kept


def filter_text(
    source: str,
    target: str,
    output_dir: pathlib.Path,
    config: FilterConfig,
    *,
    runner: str,
    options: str = "",
    exchange: str = "",
    load_scores: Callable | None = None,
) -> dict:
    """Divides parallel text with a Beam pipeline; the first arguments and the result are those of
    `judging.filter_text`.

    Args:
        runner, options: see `runners.read`; it raises its errors.
        exchange: a folder on any file system of Beam (such as `gs://…`) that the program and the workers can read and
            write, for one job at a time. Its subfolder `t2t_keras_exchange` is used and then removed. The default is in
            the unfinished `output_dir`.
        load_scores: returns the `scores` of `judging.filter_text`; called once in each worker process. It may be
            pickled.
    """
    judged = functools.partial(
        _judged, config=config, options=runners.read(runner, options), exchange=exchange, load_scores=load_scores
    )
    return judging.divide(source, target, output_dir, config, judged, scored=load_scores is not None)
