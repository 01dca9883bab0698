"""Translates folders of text files with Apache Beam: `translate_files`.

No step holds more than a chunk in memory. The worker that writes the last chunk of a file joins all, so a job that is
killed loses the chunks that were under way.
"""

import contextlib
import dataclasses
import itertools
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import MetricsFilter
from apache_beam.ml.inference.base import RunInference

from t2t_keras.beam import runners, shared_files
from t2t_keras.beam.folder import JOB, LOCK, PROBLEMS, Chunk, File, Folder, begin, cut, matched, opened
from t2t_keras.beam.transform import Handler, Lines, Translated, count, failures_of
from t2t_keras.serving.line_translation import LineTranslation
from t2t_keras.system import files
from t2t_keras.system.log import logger, number_of
from t2t_keras.text.lines import MAX_LINE, bounded, decoded, wrong_byte

# In the namespace `t2t_keras`.
COUNTERS = ("chunks", "lines", "subwords", "milliseconds", "failures", "warnings", "unreadable_files")


class _Cut(beam.DoFn):
    """Maps files to the chunks of them that are not translated yet."""

    def __init__(self, folder: Folder):
        self.folder = folder

    def process(self, file: File) -> Iterator[Chunk]:
        try:
            with opened(file.path) as stream:
                places = list(cut(stream, file.path))
        except (OSError, ValueError) as error:
            count(unreadable_files=1)
            self.folder.write_problems(file.name, [f"{file.path} cannot be read: {error}"])
            return
        firsts = itertools.accumulate((number for _, number in places), initial=1)
        numbered = enumerate(zip(places, firsts, strict=False))
        chunks = [
            Chunk(file, index, len(places), offset, first, number) for index, ((offset, number), first) in numbered
        ]
        missing = [chunk for chunk in chunks if not FileSystems.exists(self.folder.part(chunk))]
        if not missing:
            self.folder.join(chunks, file.name)
            return
        plain = self.folder.unpacked(file)
        for chunk in missing:
            yield dataclasses.replace(chunk, file=plain)


class _Read(beam.DoFn):
    """Reads the lines of chunks."""

    def __init__(self, jsonl: bool):
        self.jsonl = jsonl

    def process(self, chunk: Chunk) -> Iterator[Lines]:
        with opened(chunk.file.path) as stream:
            stream.seek(chunk.offset)
            lines = list(itertools.islice(bounded(stream, chunk.file.path, cut=True, first=chunk.first), chunk.number))
        texts = [decoded(line, number) for number, line in enumerate(lines, chunk.first)]
        failures = failures_of(texts, map(len, lines), self.jsonl, chunk.first)
        yield Lines(texts, failures, chunk.first, chunk, list(_not_utf8(lines, chunk.first)))


def _not_utf8(lines: Iterable[bytes], first: int) -> Iterator[str]:
    """Yields a message about each line that is not UTF-8 all through; the first line has the number `first`."""
    for number, line in enumerate(lines, first):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            if len(line) <= MAX_LINE:  # A longer one is cut, and not translated.
                yield f"Line {number}: not UTF-8: {wrong_byte(error)}. U+FFFD takes the place of such bytes."


class _Write(beam.DoFn):
    """Writes translated chunks, and joins those of a file after its last one."""

    def __init__(self, folder: Folder):
        self.folder = folder

    def process(self, translated: Translated) -> None:
        own = translated.lines.chunk
        self.folder.write(self.folder.part(own), [f"{json.dumps(translated.problems)}\n".encode(), *translated.written])
        chunks = [dataclasses.replace(own, index=index) for index in range(own.chunks)]
        # From the last one, which most often is missing.
        if all(FileSystems.exists(self.folder.part(chunk)) for chunk in reversed(chunks)):
            self.folder.join(chunks, own.file.name)


def translate_files(
    asked: LineTranslation, patterns: str, output: str, *, runner: str = "DirectRunner", options: str = ""
) -> None:
    """Translates text files, plain or gzip, to a file of the same name each, with a line for each line, in their order.

    A file that has its name is finished: the next call skips it. Messages about lines are beside it, in NAME.problems.

    Args:
        asked: the options. The workers read the model from the same path.
        patterns: the files, as patterns with commas between them, on any file system of Beam.
        output: folder of the translations, likewise. `BlockingIOError` is raised if another process writes in it.
        runner, options: see `runners.read`.
    """
    pipeline_options, terms, inputs = runners.read(runner, options), asked.read_terms(), matched(patterns)
    folder, local = Folder(shared_files.absolute(output)), "://" not in output
    with files.exclusive(pathlib.Path(folder.path) / LOCK, folder.path) if local else contextlib.nullcontext():
        if local:
            files.check_no_links(pathlib.Path(folder.exchange), pathlib.Path(folder.output(JOB)))
        finished = begin(folder, asked.identity(), inputs)
        if finished:
            logger.info(f"Skipping {len(finished):,} finished: {', '.join(finished):.200}.")
        missing = [File(about["path"], name) for name, about in inputs.items() if name not in finished]
        if not missing:
            folder.remove_chunks()
            return
        for file in missing:
            if not FileSystems.exists(parts := FileSystems.join(folder.exchange, file.name)):
                FileSystems.mkdirs(parts)
        with runners.running(pipeline_options) as pipeline:
            (
                pipeline
                | "Files" >> beam.Create(missing)
                | "Spread files" >> beam.Reshuffle()
                | "Cut" >> beam.ParDo(_Cut(folder))
                | "Spread chunks" >> beam.Reshuffle()
                | "Read" >> beam.ParDo(_Read(asked.jsonl))
                | "Translate" >> RunInference(Handler(asked, terms))
                | "Write" >> beam.ParDo(_Write(folder))
            )
        folder.remove_chunks()
        _report(folder, missing, _totals(pipeline.result))


def _totals(result) -> dict[str, int]:
    """Returns the counters of a pipeline by name."""
    counters = result.metrics().query(MetricsFilter().with_namespace("t2t_keras"))["counters"]
    totals = dict.fromkeys(COUNTERS, 0)
    for counter in counters:
        if counter.key.metric.name in totals:
            totals[counter.key.metric.name] += counter.result or 0  # Some runners give none.
    return totals


def _report(folder: Folder, files: Sequence[File], totals: dict[str, int]) -> None:
    """Logs what was done. Raises `OSError` if a file could not be read."""
    unread = [file for file in files if not FileSystems.exists(folder.output(file.name))]
    logger.info(
        f"Translated {number_of(totals['lines'], 'line')} ({number_of(totals['subwords'], 'sub-word')}) of "
        f"{number_of(len(files) - len(unread), 'file')} in {totals['milliseconds'] / 1000:,.1f} s of all workers, with "
        f"{number_of(totals['failures'], 'failure')} and {number_of(totals['warnings'], 'warning')}."
    )
    if totals["failures"] or totals["warnings"]:
        logger.warning(f"See {folder.output('*' + PROBLEMS)} for the lines.")
    if unread:
        raise OSError(
            f"{len(unread):,} of {len(files):,} files could not be read, such as {unread[0].path}: see "
            f"{folder.output('*' + PROBLEMS)}. The others are finished. Mend the files, and run the same command again."
        )
