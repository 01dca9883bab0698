"""The files of a job: the texts, cut into chunks, and a folder that gets their translations.

Each chunk is written when it is translated, under a name that it gets when it is whole. When a file has all of its
chunks, they are joined.
"""

import contextlib
import dataclasses
import glob
import gzip
import io
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from t2t_keras.beam import shared_files
from t2t_keras.serving.line_translation import READ_AHEAD
from t2t_keras.system.files import EXCHANGE
from t2t_keras.text.lines import bounded, uncompressed

LINES_PER_CHUNK = READ_AHEAD  # So that the batches are those of `translate.py`.
BYTES_PER_CHUNK = 2**26  # A chunk ends at the first of both limits.
LOCK = ".lock"
JOB = "translate.json"  # Describes the job in its folder.
PROBLEMS = ".problems"  # Ending of the file of messages beside a translated file.


@dataclasses.dataclass(frozen=True)
class File:
    """A file to translate: its path, and the name of its translation."""

    path: str
    name: str


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some lines of a file."""

    file: File
    index: int  # The number of the chunk, from 0, of `chunks`.
    chunks: int
    offset: int  # The place of its first byte in the text.
    first: int  # The number of its first line, from 1.
    number: int  # How many lines it has.


@contextlib.contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Opens a file of text, plain or gzip."""
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as raw:
        plain = raw if hasattr(raw, "peek") else io.BufferedReader(raw)
        yield uncompressed(plain)


def cut(stream: BinaryIO, name: str) -> Iterator[tuple[int, int]]:
    """Yields (offset of the first byte, number of lines) for each chunk of a text. `name` is for messages."""
    offset = number = size = 0
    for line in bounded(stream, name, cut=True):
        number, size = number + 1, size + len(line)
        if number == LINES_PER_CHUNK or size >= BYTES_PER_CHUNK:
            yield offset, number
            offset, number, size = stream.tell(), 0, 0
    if number:
        yield offset, number


class Folder:
    """The folder of a job on any file system of Beam. It may be pickled."""

    def __init__(self, path: str):
        self.path, self.exchange = path, FileSystems.join(path, EXCHANGE)

    def output(self, name: str) -> str:
        return FileSystems.join(self.path, name)

    def unpacked(self, file: File) -> File:
        """Returns a file with its text unpacked if it is gzip, so that a chunk is read from its own place and not from
        the beginning of the file.
        """
        with opened(file.path) as stream:
            if not isinstance(stream, gzip.GzipFile):
                return file
            plain = FileSystems.join(self.exchange, file.name, "unpacked.text")
            with shared_files.replacing(plain, self.exchange) as target:
                shutil.copyfileobj(stream, target)
        return File(plain, file.name)

    def part(self, chunk: Chunk) -> str:
        """The file of a translated chunk: messages as JSON in its first line, and the translations."""
        return FileSystems.join(self.exchange, chunk.file.name, f"{LINES_PER_CHUNK}-{chunk.index:08d}.part")

    def write(self, path: str, content: Iterable[bytes]) -> None:
        with shared_files.replacing(path, self.exchange) as file:
            file.writelines(content)

    def write_problems(self, name: str, problems: Sequence[str]) -> None:
        """Writes the messages of a file; without any, none is left."""
        path = self.output(f"{name}{PROBLEMS}")
        if problems:
            self.write(path, (f"{' '.join(message.split())}\n".encode() for message in problems))
        elif FileSystems.exists(path):
            FileSystems.delete([path])

    def join(self, chunks: Sequence[Chunk], name: str) -> None:
        """Joins the chunks of a file to its translation, which appears last."""
        problems: list[str] = []
        with shared_files.replacing(self.output(name), self.exchange) as target:
            for chunk in chunks:
                with FileSystems.open(self.part(chunk), compression_type=CompressionTypes.UNCOMPRESSED) as part:
                    problems += json.loads(part.readline())
                    shutil.copyfileobj(part, target)
            self.write_problems(name, problems)

    def remove_chunks(self) -> None:
        """Removes the chunks of finished files, which a killed job leaves too. Other chunks stay for the next call."""
        with FileSystems.open(self.output(JOB)) as file:
            names = list(json.loads(file.read())["inputs"])
        finished = [name for name in names if FileSystems.exists(self.output(name))]
        unused = [self.exchange] if finished == names else [FileSystems.join(self.exchange, name) for name in finished]
        for path in unused:
            shared_files.remove(path)


def _file_name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def matched(patterns: str) -> dict[str, dict]:
    """Returns the files that patterns with commas between them match, by the name of their translation: path, size and
    time of change. A pattern without a file, and two translations of one name, are errors.
    """
    found: dict[str, dict] = {}
    for pattern in filter(None, (each.strip() for each in patterns.split(","))):
        path = shared_files.absolute(pattern)
        [matched] = FileSystems.match([glob.escape(path) if os.path.isfile(path) else path])
        own = [each for each in matched.metadata_list if not os.path.isdir(each.path)]
        if not _file_name(pattern).startswith("."):  # Then hidden files are left out, as by a shell.
            own = [each for each in own if not _file_name(each.path).startswith(".")]
        if not own:
            raise ValueError(f"`input`: {pattern} matches no file.")
        for each in sorted(own, key=lambda each: each.path):
            name = _file_name(each.path).removesuffix(".gz")
            about = {"path": each.path, "bytes": each.size_in_bytes, "changed": each.last_updated_in_seconds}
            if found.setdefault(name, about) != about:
                raise ValueError(f"{found[name]['path']} and {each.path} have the same name. Rename one.")
    if taken := sorted(found.keys() & {EXCHANGE, JOB, LOCK, *(f"{name}{PROBLEMS}" for name in found)}):
        raise ValueError(f"{', '.join(taken)}: this program writes files of these names. Rename yours.")
    return found


def begin(folder: Folder, asked: dict, inputs: dict[str, dict]) -> list[str]:
    """Describes a job in its folder, or checks that this is the job that was begun there, and that no file of these
    names is from elsewhere. Writes nothing if all files are finished. Returns the names of finished translations.
    """
    begun, advice = {"asked": asked, "inputs": {}}, "Give another folder as `output`."
    if FileSystems.exists(folder.output(JOB)):
        with FileSystems.open(folder.output(JOB)) as file:
            content = file.read()
        try:
            begun = {name: dict(json.loads(content)[name]) for name in begun}
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{folder.output(JOB)} was not written by `t2t-translate`. {advice}") from None
        if others := [name for name in begun["asked"] | asked if asked.get(name) != begun["asked"].get(name)]:
            raise ValueError(
                f"{folder.path} was begun with other options or another model: {', '.join(others)} differ. {advice}"
            )
    present = [name for name in inputs if FileSystems.exists(folder.output(name))]
    if foreign := [name for name in present if name not in begun["inputs"]]:
        raise ValueError(
            f"{folder.path} holds {', '.join(foreign)} from elsewhere, under names that this job writes. {advice}"
        )
    changed = [name for name, about in inputs.items() if begun["inputs"].get(name, about) != about]
    if finished := [inputs[name]["path"] for name in changed if name in present]:
        raise ValueError(f"{', '.join(finished)} changed after the translation was finished. {advice}")
    if stale := [path for name in changed if FileSystems.exists(path := FileSystems.join(folder.exchange, name))]:
        FileSystems.delete(stale)
    if len(present) < len(inputs):
        folder.write(
            folder.output(JOB), [json.dumps({"asked": asked, "inputs": begun["inputs"] | inputs}, indent=2).encode()]
        )
    return present
