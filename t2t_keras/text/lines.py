"""Reads and writes text in lines. All programs use this, so that line n of their output belongs to line n of their
input.
"""

import codecs
import contextlib
import fcntl
import gzip
import io
import os
import pathlib
import re
import sys
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from t2t_keras.config import text_format
from t2t_keras.system.log import logger

_GZIP = b"\x1f\x8b"
# First bytes of compressed files: what such a file is, and the command that unpacks it.
_COMPRESSED = {
    # `opened` unpacks files. This is standard input, a pipe, or a file compressed twice.
    _GZIP: ("compressed with gzip", "gzip -d"),
    b"\xfd7zXZ\x00": ("compressed with xz", "xz -d"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "zstd -d"),
    b"PK\x03\x04": ("a zip archive", "unzip"),
    **{b"BZh%d1AY&SY" % level: ("compressed with bzip2", "bunzip2") for level in range(1, 10)},
}
_UTF_16 = ("in UTF-16", "iconv -f UTF-16 -t UTF-8")
_NOT_TEXT = {codecs.BOM_UTF16_LE: _UTF_16, codecs.BOM_UTF16_BE: _UTF_16, **_COMPRESSED}  # In UTF-8.
BROKEN_GZIP = EOFError, gzip.BadGzipFile, zlib.error
# Bytes: 30 for each of 32,768 sub-words. A file without line ends would be one line, and take all memory.
MAX_LINE = 2**20
# Matches a blank line, in Python and in a graph: whitespace of Unicode and its format characters, such as U+200B.
BLANK = (
    "[\t-\r\x1c-\x20\x85\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e\u2000-\u200f\u2028-\u202f"
    "\u205f-\u2064\u2066-\u206f\u3000\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]*"
)


def is_blank(text: str | bytes) -> bool:
    """Returns whether a text has nothing but whitespace and format characters."""
    return bool(re.fullmatch(BLANK, text if isinstance(text, str) else text.decode("utf-8", "replace")))


def single_spaced(text: str) -> str:
    """Returns a text on one line, with one space between words. Other spaces of Unicode, such as NBSP, stay."""
    return " ".join(re.findall(r"\S+", text, re.ASCII))


def uncompressed(file: io.BufferedReader) -> BinaryIO:
    """Returns a file, or its decompressed content if it is compressed with gzip."""
    return gzip.open(file) if file.peek(len(_GZIP)).startswith(_GZIP) else file


def compression(beginning: bytes) -> tuple[str, str] | None:
    """Returns what a compressed file is, by its first 10 bytes or more, such as "a zip archive", and the command that
    unpacks it; `None` for others.
    """
    return next((found for magic, found in _COMPRESSED.items() if beginning.startswith(magic)), None)


def check_is_text(name: str, beginning: bytes) -> None:
    """Raises `ValueError` if a file is TMX by its name, if its first line or more begins as a known format other than
    UTF-8 text, or its lines end in carriage returns alone.
    """
    if text_format(name) == "tmx":
        raise ValueError(
            f"{name} is TMX, of two languages. Expected a text with a sentence on each line. `t2t-train`, "
            "`t2t-filter` and `t2t-evaluate` read TMX as source and target; `t2t-filter` writes each side as a text."
        )
    for magic, (kind, command) in _NOT_TEXT.items():
        if beginning.startswith(magic):
            raise ValueError(f"{name} is {kind}. Expected UTF-8 text: convert it with {command}.")
    if b"\n" not in beginning and b"\r" in beginning.rstrip(b"\r"):
        number = beginning.count(b"\r")
        raise ValueError(
            f"{name} has {number:,} carriage returns and no line feed in its first {len(beginning):,} bytes. Only line "
            r"feeds end lines: convert it with tr '\r' '\n'."
        )


def not_utf8(name: str, number: int, error: UnicodeDecodeError) -> str:
    """Returns the message for a line that is not UTF-8, without a final period."""
    return f"{name}, line {number} is not UTF-8: {wrong_byte(error)}. Convert the file (iconv -f … -t UTF-8)"


def wrong_byte(error: UnicodeDecodeError) -> str:
    """Returns the first byte that is not UTF-8, for messages."""
    return f"byte {error.object[error.start]:#04x} at column {error.start + 1}"


def broken_gzip(name: str, number: int, error: Exception) -> str:
    """Returns the message for one of the errors `BROKEN_GZIP` after so many lines."""
    return f"{name} is a broken gzip file: it could be read up to line {number} ({error}). Download it again."


def _name(stream: BinaryIO) -> str:
    return str(getattr(stream, "name", "the text"))


def bounded(stream: BinaryIO, name: str = "", cut: bool = False, first: int = 1) -> Iterator[bytes]:
    """Yields the lines of a text with their line ends.

    Args:
        name: its name for messages; by default the one that it was opened with.
        cut: whether to yield the first `MAX_LINE` + 1 bytes of a line that is too long, instead of raising an error.
        first: the number of the next line. Only line 1 shows that a file is not text.

    Raises:
        ValueError: a line has more than `MAX_LINE` bytes; or the file is not text, or broken.
    """
    name, number = name or _name(stream), first - 1
    try:
        while line := stream.readline(MAX_LINE + 1):
            number += 1
            if number == 1:
                check_is_text(name, line)
            if len(line) > MAX_LINE and cut:
                rest = line
                while rest and not rest.endswith(b"\n"):
                    rest = stream.readline(MAX_LINE)
            elif len(line) > MAX_LINE:
                raise ValueError(
                    f"Line {number:,} of {name} has more than {MAX_LINE:,} bytes. End each sentence with a line feed."
                )
            yield line
    except BROKEN_GZIP as error:
        raise ValueError(broken_gzip(name, number, error)) from error


def read_lines(stream: BinaryIO) -> Iterator[str]:
    """Yields lines without their line ends and without a byte order mark. As in training, only \\n ends a line. Raises
    the errors of `bounded`.

    Bytes that are not UTF-8 become U+FFFD, and the first line that has some is named in a warning.
    """
    warned = False
    for number, line in enumerate(bounded(stream), 1):
        text = decoded(line, number)
        if not warned and "\ufffd" in text:
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                warned, place = True, not_utf8(_name(stream), number, error)
                logger.warning(f"{place}. Until then, U+FFFD takes the place of such bytes.")
        yield text


def decoded(line: bytes, number: int) -> str:
    """Returns the text of a line of a file. Line number 1 may begin with a byte order mark."""
    line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
    return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")


def one_line(text: str) -> str:
    """Returns a text with a space in place of each line end, of any system, which would shift all later lines."""
    return re.sub(r"\r\n|\r|\n", " ", text)


def count(file: BinaryIO) -> int | None:
    """Counts the lines of a file, which is at its beginning, and returns there; `None` for a stream that cannot seek,
    such as a pipe. Raises the errors of `bounded`.
    """
    if not file.seekable():
        return None
    start = file.tell()
    number = sum(1 for _ in bounded(file))
    file.seek(start)
    return number


@contextlib.contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Opens a file of text, plain or gzip, for reading, or raises `OSError`. An empty path is standard input, which
    must be plain text, as must pipes.
    """
    if not path:
        yield sys.stdin.buffer
        return
    try:
        file = pathlib.Path(path).expanduser().open("rb")
    except OSError as error:
        raise OSError(f"{path} cannot be read: {error.strerror} (working directory: {pathlib.Path.cwd()}).") from error
    with file:
        yield uncompressed(file) if file.seekable() else file  # Looking into a pipe would wait for its first line.


def _claim(file: BinaryIO, partial: pathlib.Path, path: pathlib.Path) -> None:
    """Locks the file of a name, `partial`, and empties it. Closes it and raises `OSError`, which names `path`, if
    another program has the lock, or had it and has renamed the file.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file.fileno()), os.lstat(partial)):
            raise BlockingIOError
    except (BlockingIOError, FileNotFoundError) as error:
        file.close()
        raise OSError(
            f"{path} cannot be written: another program, or another option of this one, writes it. Give another name."
        ) from error
    except OSError:  # The system has no locks.
        pass
    file.truncate()


class _Written(io.FileIO):
    """A file whose errors of writing, such as those of a full disk, name it."""

    def write(self, content) -> int | None:
        try:
            return super().write(content)
        except BrokenPipeError:  # The reader of a pipe has ended.
            raise
        except OSError as error:
            raise OSError(f"{self.name} cannot be written: {error.strerror}.") from error


@contextlib.contextmanager
def written_whole(path: str | pathlib.Path) -> Iterator[BinaryIO]:
    """Opens a file for writing under the name PATH.partial, and renames it when the `with` block ends without an error.
    Raises `OSError` if it cannot be written, or is being written already.

    If PATH is a link, its target is replaced and the link stays; PATH.partial must not be one. After an error,
    PATH.partial stays and stderr names it, unless it is empty. Anything but a regular file, such as /dev/null or a
    pipe, is written directly.
    """
    path = pathlib.Path(path).expanduser()
    direct = path.exists() and not path.is_file()
    target = path if direct else pathlib.Path(os.path.realpath(path))
    partial = path if direct else target.with_name(target.name + ".partial")
    flags = os.O_WRONLY | os.O_CREAT | (0 if direct else os.O_NOFOLLOW)
    try:
        file = io.BufferedWriter(_Written(partial, "wb", opener=lambda name, _: os.open(name, flags, 0o666)))
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}.") from error
    if not direct:
        _claim(file, partial, path)
    with os.fdopen(os.dup(file.fileno()), "wb"):  # Holds the lock until the closed file is renamed or reported.
        try:
            with file:
                yield file
        except BaseException:
            if not direct and partial.stat().st_size:
                print(f"Not finished. The output so far is in {partial}.", file=sys.stderr)
            elif not direct:
                partial.unlink()
            raise
        if not direct:
            partial.replace(target)
