"""Translates with Apache Beam: `Translate` in a pipeline of one's own, and `translate_files` for folders of text files.

The workers load the model by Beam's RunInference, once for each process, and translate chunks of lines as `translate.py` does. Each chunk
of a file is written when it is translated, under a name that it gets when it is whole. The worker that writes the last chunk joins all to
the file of the translations. So no step holds more than a chunk in memory, and a job that is killed loses the chunks that were under way.
"""

import contextlib
import dataclasses
import gzip
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.ml.inference.base import ModelHandler, RunInference

from t2t_keras import files, phrases, run_folder
from t2t_keras.config import SampleConfig
from t2t_keras.data import beam_files, beam_runner
from t2t_keras.line_translation import READ_AHEAD, LineTranslation, LineTranslator
from t2t_keras.log import logger
from t2t_keras.text.lines import MAX_LINE, bounded, decoded

LINES_PER_CHUNK = READ_AHEAD  # So that the batches are those of `translate.py`.
BYTES_PER_CHUNK = 2**26  # A chunk ends at the first of both limits.
EXCHANGE = beam_files.EXCHANGE  # Folder of the chunks that are translated.
LOCK = ".lock"
JOB = "translate.json"  # Describes the job in its folder.
PROBLEMS = ".problems"  # Ending of the file of messages beside a translated file.
COUNTERS = ("chunks", "lines", "subwords", "milliseconds", "failures", "warnings", "unreadable_files")  # In the namespace `t2t_keras`.
_BROKEN = (OSError, EOFError, zlib.error)  # What reading raises; OSError includes a wrong checksum.


@dataclasses.dataclass(frozen=True)
class _File:
    """A file to translate: its path, and the name of its translation."""

    path: str
    name: str


@dataclasses.dataclass(frozen=True)
class _Chunk:
    """Some lines of a file.

    Args:
        file: the file.
        index: the number of the chunk, from 0, of `chunks`.
        offset: the place of its first byte in the text.
        first: the number of its first line, from 1.
        number: how many lines it has.
    """

    file: _File
    index: int
    chunks: int
    offset: int
    first: int
    number: int


@dataclasses.dataclass(frozen=True)
class _Lines:
    """Lines to translate together.

    Args:
        texts: the lines.
        failures: by line number, why it cannot be translated.
        first: the number of the first line, from 1.
        chunk: where they are from, if from a file.
    """

    texts: Sequence[str]
    failures: dict[int, str]
    first: int = 1
    chunk: _Chunk | None = None


@dataclasses.dataclass(frozen=True)
class _Translated:
    """The results of lines, what is written for each, and messages about them."""

    lines: _Lines
    results: Sequence[dict]
    written: Sequence[bytes]
    problems: Sequence[str]


def _count(**numbers: int) -> None:
    for name, number in numbers.items():
        Metrics.counter("t2t_keras", name).inc(number)


@contextlib.contextmanager
def _text(path: str) -> Iterator[BinaryIO]:
    """Opens a file of text, plain or gzip."""
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as raw:
        plain = raw if hasattr(raw, "peek") else io.BufferedReader(raw)
        yield gzip.open(plain) if plain.peek(2).startswith(b"\x1f\x8b") else plain


class _Folder:
    """The folder of a job on any file system of Beam. It may be pickled."""

    def __init__(self, path: str):
        self.path, self.exchange = path, FileSystems.join(path, EXCHANGE)

    def output(self, name: str) -> str:
        return FileSystems.join(self.path, name)

    def part(self, chunk: _Chunk) -> str:
        """The file of a translated chunk: messages as JSON in its first line, and the translations."""
        return FileSystems.join(self.exchange, chunk.file.name, f"{LINES_PER_CHUNK}-{chunk.index:08d}.part")

    def write(self, path: str, content: Iterable[bytes]) -> None:
        with beam_files.replacing(path, self.exchange) as file:
            file.writelines(content)

    def write_problems(self, name: str, problems: Sequence[str]) -> None:
        """Writes the messages of a file; without any, none is left."""
        path = self.output(f"{name}{PROBLEMS}")
        if problems:
            self.write(path, (f"{' '.join(message.split())}\n".encode() for message in problems))
        elif FileSystems.exists(path):
            FileSystems.delete([path])

    def join(self, chunks: Sequence[_Chunk], name: str) -> None:
        """Joins the chunks of a file to its translation, which appears last."""
        problems: list[str] = []
        with beam_files.replacing(self.output(name), self.exchange) as target:
            for chunk in chunks:
                with FileSystems.open(self.part(chunk), compression_type=CompressionTypes.UNCOMPRESSED) as part:
                    problems += json.loads(part.readline())
                    shutil.copyfileobj(part, target)
            self.write_problems(name, problems)


class _Cut(beam.DoFn):
    """Maps files to the chunks of them that are not translated yet."""

    def __init__(self, folder: _Folder):
        self.folder = folder

    def process(self, file: _File) -> Iterator[_Chunk]:
        try:
            with _text(file.path) as stream:
                places = list(_places(stream))
        except _BROKEN as error:
            _count(unreadable_files=1)
            self.folder.write_problems(file.name, [f"{file.path} cannot be read: {error}. Give a whole file of text, plain or gzip."])
            return
        firsts = itertools.accumulate((number for _, number in places), initial=1)
        numbered = enumerate(zip(places, firsts, strict=False))
        chunks = [_Chunk(file, index, len(places), offset, first, number) for index, ((offset, number), first) in numbered]
        missing = [chunk for chunk in chunks if not FileSystems.exists(self.folder.part(chunk))]
        if not missing:
            self.folder.join(chunks, file.name)
        yield from missing


def _places(stream: BinaryIO) -> Iterator[tuple[int, int]]:
    """Yields (offset of the first byte, number of lines) for each chunk of a text."""
    offset = number = size = 0
    for line in bounded(stream, cut=True):
        number, size = number + 1, size + len(line)
        if number == LINES_PER_CHUNK or size >= BYTES_PER_CHUNK:
            yield offset, number
            offset, number, size = stream.tell(), 0, 0
    if number:
        yield offset, number


class _Read(beam.DoFn):
    """Reads the lines of chunks."""

    def __init__(self, jsonl: bool):
        self.jsonl = jsonl

    def process(self, chunk: _Chunk) -> Iterator[_Lines]:
        with _text(chunk.file.path) as stream:
            stream.seek(chunk.offset)
            lines = list(itertools.islice(bounded(stream, cut=True), chunk.number))
        texts = [decoded(line, number) for number, line in enumerate(lines, chunk.first)]
        failures = _failures(texts, map(len, lines), self.jsonl, chunk.first)
        yield _Lines(texts, failures, chunk.first, chunk)


def _failures(texts: Sequence[str], sizes: Iterable[int], jsonl: bool, first: int = 1) -> dict[int, str]:
    """Returns by line number why lines cannot be translated, as far as that is seen without a model.

    Args:
        texts: the lines.
        sizes: the bytes of each.
        jsonl: whether lines are JSON objects.
        first: the number of the first line.
    """
    failures = {}
    for number, (text, size) in enumerate(zip(texts, sizes, strict=True), first):
        try:
            if size > MAX_LINE:
                raise ValueError(f"Expected lines of at most {MAX_LINE:,} bytes. Received: a longer one.")
            phrases.Request(text)
            if jsonl:
                list(phrases.read_requests([text], number))
        except ValueError as error:
            failures[number] = str(error)
    return failures


class _Handler(ModelHandler):
    """Loads a model and translates chunks of lines with it, for RunInference.

    RunInference shares the model among the threads of a process and has counters of its own. Its handlers for TensorFlow stack tensors of
    one shape and return them without order; this one gives whole chunks to `LineTranslator`, which sorts their lines by length.
    """

    def __init__(self, asked: LineTranslation, terms: phrases.Terms, by_text: bool = False):
        super().__init__(min_batch_size=1, max_batch_size=1)
        self.asked, self.terms, self.by_text = asked.absolute(), terms, by_text

    def load_model(self) -> LineTranslator:
        self.asked.choose_environment()
        return self.asked.load(self.terms, self.by_text)

    def run_inference(self, batch: Sequence[_Lines], model: LineTranslator, inference_args=None) -> Iterator[_Translated]:
        for lines in batch:
            started, warnings, failures = time.monotonic(), [], dict(lines.failures)
            texts = [_blank(self.asked.jsonl) if number in failures else text for number, text in enumerate(lines.texts, lines.first)]
            results = list(_results(model, texts, lines.first, warnings, failures))
            _count(
                chunks=1,
                lines=len(results),
                subwords=model.source_subwords(texts),
                milliseconds=round(1000 * (time.monotonic() - started)),
                failures=len(failures),
                warnings=len(warnings),
            )
            for number, reason in failures.items():
                results[number - lines.first] |= {"error": reason}
            messages = [(number, f"Line {number}: not translated: {reason}") for number, reason in failures.items()]
            messages += [(int(re.match(r"Line (\d+)", message)[1]), message) for message in warnings]
            written = [model.written(number, result) for number, result in enumerate(results, lines.first)]
            yield _Translated(lines, results, written, [message for _, message in sorted(messages)])

    def get_metrics_namespace(self) -> str:
        return "t2t_keras"


def _blank(jsonl: bool) -> str:
    """Returns what takes the place of a line that cannot be translated."""
    return json.dumps({"text": ""}) if jsonl else ""


def _results(model: LineTranslator, texts: list[str], first: int, warnings: list[str], failures: dict[int, str]) -> Iterator[dict]:
    """Yields the result of each line. If one makes the search fail, halves of the lines are tried until it is alone; it is then a failure.

    If a blank line fails too, then not for the text, and its error is raised.
    """
    own: list[str] = []
    try:
        results = list(model.results(texts, own.append, first))
    except Exception as error:
        if len(texts) > 1:
            half = len(texts) // 2
            yield from _results(model, texts[:half], first, warnings, failures)
            yield from _results(model, texts[half:], first + half, warnings, failures)
            return
        results = list(model.results([_blank(model.asked.jsonl)], own.append, first))
        failures[first] = f"{type(error).__name__}: {error}"
    warnings += own
    yield from results


class _Write(beam.DoFn):
    """Writes translated chunks, and joins those of a file after its last one."""

    def __init__(self, folder: _Folder):
        self.folder = folder

    def process(self, translated: _Translated) -> None:
        own = translated.lines.chunk
        self.folder.write(self.folder.part(own), [f"{json.dumps(translated.problems)}\n".encode(), *translated.written])
        chunks = [dataclasses.replace(own, index=index) for index in range(own.chunks)]
        # From the last one, which most often is missing.
        if all(FileSystems.exists(self.folder.part(chunk)) for chunk in reversed(chunks)):
            self.folder.join(chunks, own.file.name)


class Translate(beam.PTransform):
    """Translates lines with a run or an export: a PCollection of str → a PCollection of dict.

        lines | t2t_keras.beam.Translate("runs/mine", beam_size=8)

    Args:
        path: folder of a run, or of an export.
        n_best: number of translations of a line; 0 is the best, not in a list.
        sample: options of sampling. The draws of a line depend on its text, because a PCollection has no order.
        checkpoint: weights of the run.
        terms, keep_patterns, jsonl, mbr: see `line_translation.LineTranslation`.
        options: see `decoding.loading.load`; none for an export.

    Each dictionary has "source", the line; "text" and "score", or lists of them for `n_best`, `sample` and `mbr`; "truncated", whether only
    its beginning was translated; with phrases "constraints_met"; and, if the line could not be translated, "error".

    Raises:
        FileNotFoundError: a folder is missing.
        ValueError: an option is invalid.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        n_best: int = 0,
        sample: SampleConfig | None = None,
        checkpoint: str | int = "average",
        terms: str = "",
        keep_patterns: str = "",
        jsonl: bool = False,
        mbr: str = "",
        **options,
    ):
        super().__init__()
        folder = pathlib.Path(path).expanduser()
        export = run_folder.export_in(folder)
        if export and (options or checkpoint != "average"):
            received = ", ".join(options) or f"checkpoint={checkpoint}"
            raise ValueError(f"Expected no options for the export {export}: they are fixed. Received: {received}.")
        run = {"model_dir": [folder], "which": str(checkpoint), "dtype": "float32", "int8": False, **options}
        own = {"n_best": n_best, "sample": sample, "terms": terms, "keep_patterns": keep_patterns, "jsonl": jsonl, "mbr": mbr}
        self.asked = LineTranslation({"export": export} if export else run, **own)
        self.terms = self.asked.read_terms()

    def expand(self, lines):
        asked = self.asked
        return (
            lines
            | "Batch" >> beam.BatchElements(min_batch_size=64, max_batch_size=READ_AHEAD)
            | "Check" >> beam.Map(lambda texts: _Lines(texts, _failures(texts, map(_size, texts), asked.jsonl)))
            | "Translate" >> RunInference(_Handler(asked, self.terms, by_text=True))
            | "Results" >> beam.FlatMap(_with_sources)
        )


def _size(text: str) -> int:
    return len(str(text).encode("utf-8", "surrogatepass"))


def _with_sources(translated: _Translated) -> Iterator[dict]:
    for source, result in zip(translated.lines.texts, translated.results, strict=True):
        yield {"source": source, **result}


def _matched(patterns: str) -> dict[str, dict]:
    """Returns the files that patterns with commas between them match, by the name of their translation: path, size and time of change.

    Raises:
        ValueError: a pattern matches no file, or two translations would have one name.
    """
    found: dict[str, dict] = {}
    for pattern in filter(None, (each.strip() for each in patterns.split(","))):
        [matched] = FileSystems.match([beam_files.absolute(pattern)])
        own = [each for each in matched.metadata_list if not os.path.isdir(each.path)]
        if not own:
            raise ValueError(f"Expected patterns of files as `input`. Received: {pattern}, which matches none.")
        for each in sorted(own, key=lambda each: each.path):
            name = re.split(r"[/\\]", each.path)[-1].removesuffix(".gz")
            about = {"path": each.path, "bytes": each.size_in_bytes, "changed": each.last_updated_in_seconds}
            if found.setdefault(name, about) != about:
                raise ValueError(f"Expected files of different names. Received: {found[name]['path']} and {each.path}. Rename one.")
    if taken := sorted(found.keys() & {EXCHANGE, JOB, LOCK, *(f"{name}{PROBLEMS}" for name in found)}):
        raise ValueError(f"Expected files of other names than this program writes. Received: {', '.join(taken)}. Rename them.")
    return found


def _begin(folder: _Folder, asked: dict, inputs: dict[str, dict]) -> list[str]:
    """Describes a job in its folder, or checks that this is the job that was begun there.

    Returns:
        The names of finished translations.

    Raises:
        ValueError: the folder has another job, or files of these names from elsewhere.
    """
    begun, advice = {"asked": asked, "inputs": {}}, "Give another folder as `output`."
    if FileSystems.exists(folder.output(JOB)):
        with FileSystems.open(folder.output(JOB)) as file:
            content = file.read()
        try:
            begun = {name: dict(json.loads(content)[name]) for name in begun}
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"Expected a {JOB} of this program. Received: {folder.output(JOB)}, another file. {advice}") from None
        if others := [name for name in asked if asked[name] != begun["asked"].get(name)]:
            raise ValueError(
                f"Expected the options and the model that {folder.path} was begun with. Received others: {', '.join(others)}. {advice}"
            )
    present = [name for name in inputs if FileSystems.exists(folder.output(name))]
    if foreign := [name for name in present if name not in begun["inputs"]]:
        raise ValueError(f"Expected a folder without files of these names. Received: {folder.path} with {', '.join(foreign)}. {advice}")
    changed = [name for name, about in inputs.items() if begun["inputs"].get(name, about) != about]
    if finished := [inputs[name]["path"] for name in changed if name in present]:
        raise ValueError(f"Expected files that are as they were translated. Received: {', '.join(finished)}, changed since. {advice}")
    if stale := [path for name in changed if FileSystems.exists(path := FileSystems.join(folder.exchange, name))]:
        FileSystems.delete(stale)
    folder.write(folder.output(JOB), [json.dumps({"asked": asked, "inputs": begun["inputs"] | inputs}, indent=2).encode()])
    return present


def translate_files(asked: LineTranslation, patterns: str, output: str, *, runner: str = "DirectRunner", options: str = "") -> None:
    """Translates text files, plain or gzip, to a file of the same name each, with a line for each line, in their order.

    A file that has its name is finished: the next call skips it. Messages about lines are beside it, in NAME.problems.

    Args:
        asked: what is asked for each line. The workers read the model from the same path.
        patterns: the files, as patterns with commas between them, on any file system of Beam.
        output: folder of the translations, likewise.
        runner, options: see `beam_runner.read`.

    Raises:
        BlockingIOError: another process writes in the folder.
        OSError: a file cannot be read.
        ValueError: an option is invalid, or the folder has another job.
    """
    pipeline_options, terms, inputs = beam_runner.read(runner, options), asked.read_terms(), _matched(patterns)
    folder, local = _Folder(beam_files.absolute(output)), "://" not in output
    with files.exclusive(pathlib.Path(folder.path) / LOCK, folder.path) if local else contextlib.nullcontext():
        if local:
            files.check_no_links(pathlib.Path(folder.exchange), pathlib.Path(folder.output(JOB)))
        finished = _begin(folder, asked.identity(), inputs)
        if finished:
            logger.info(f"Skipping {len(finished):,} finished: {', '.join(finished):.200}.")
        missing = [_File(about["path"], name) for name, about in inputs.items() if name not in finished]
        if not missing:
            return
        for file in missing:
            if not FileSystems.exists(parts := FileSystems.join(folder.exchange, file.name)):
                FileSystems.mkdirs(parts)
        with beam_runner.running(pipeline_options) as pipeline:
            (
                pipeline
                | "Files" >> beam.Create(missing)
                | "Spread files" >> beam.Reshuffle()
                | "Cut" >> beam.ParDo(_Cut(folder))
                | "Spread chunks" >> beam.Reshuffle()
                | "Read" >> beam.ParDo(_Read(asked.jsonl))
                | "Translate" >> RunInference(_Handler(asked, terms))
                | "Write" >> beam.ParDo(_Write(folder))
            )
        _report(folder, missing, _totals(pipeline.result))


def _totals(result) -> dict[str, int]:
    """Returns the counters of a pipeline by name."""
    counters = result.metrics().query(MetricsFilter().with_namespace("t2t_keras"))["counters"]
    totals = dict.fromkeys(COUNTERS, 0)
    for counter in counters:
        if counter.key.metric.name in totals:
            totals[counter.key.metric.name] += counter.result or 0  # Some runners give none.
    return totals


def _report(folder: _Folder, files: Sequence[_File], totals: dict[str, int]) -> None:
    """Logs what was done, and removes the chunks if all files are finished.

    Raises:
        OSError: a file could not be read.
    """
    logger.info(
        f"Translated {totals['lines']:,} lines ({totals['subwords']:,} sub-words) of {len(files):,} files in "
        f"{totals['milliseconds'] / 1000:,.1f} s of all workers, with {totals['failures']:,} failures and {totals['warnings']:,} warnings."
    )
    if totals["failures"] or totals["warnings"]:
        logger.warning(f"See {folder.output('*' + PROBLEMS)} for the lines.")
    if unread := [file for file in files if not FileSystems.exists(folder.output(file.name))]:
        raise OSError(
            f"{len(unread):,} of {len(files):,} files could not be read, such as {unread[0].path}: see {folder.output('*' + PROBLEMS)}. "
            "The others are finished. Mend the files, and run the same command again."
        )
    beam_files.remove(folder.exchange)
