"""Reads and writes text in lines. All programs use this, so that line n of their output belongs to line n of their input."""

import codecs
import contextlib
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import BinaryIO

MAX_LINE = 2**20  # Bytes: 30 for each of 32,768 sub-words. A file without line ends would be one line, and take all memory.


def bounded(stream: BinaryIO, name: str = "", cut: bool = False) -> Iterator[bytes]:
    """Yields the lines of a file with their line ends.

    Args:
        stream: the file.
        name: its name for messages; by default the one that it was opened with.
        cut: whether to yield the beginning of a line that is too long, one byte more than `MAX_LINE`, in place of the error.

    Raises:
        ValueError: a line has more than `MAX_LINE` bytes.
    """
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE and cut:
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = stream.readline(MAX_LINE)
        elif len(line) > MAX_LINE:
            raise ValueError(
                f"Expected lines of at most {MAX_LINE:,} bytes. Received: a longer one, line {number:,} of "
                f"{name or getattr(stream, 'name', 'the text')}. End each sentence with a line feed."
            )
        yield line


def read_lines(stream: BinaryIO) -> Iterator[str]:
    """Yields lines without their line ends and without a byte order mark. As in training, only \\n ends a line.

    Raises:
        ValueError: a line has more than `MAX_LINE` bytes.
    """
    for number, line in enumerate(bounded(stream), 1):
        yield decoded(line, number)


def decoded(line: bytes, number: int) -> str:
    """Returns the text of a line of a file, where `number` is 1 for the first, which may begin with a byte order mark."""
    line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
    return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")


def one_line(text: str) -> str:
    """Replaces line ends in a translation by spaces, because they would shift all later lines of the output."""
    return text.replace("\n", " ")


def count(file: BinaryIO) -> int | None:
    """Counts the lines from the current position of a file to its end, and restores the position.

    Returns:
        The number of lines, or `None` for a stream that cannot seek, such as a pipe.

    Raises:
        ValueError: a line has more than `MAX_LINE` bytes.
    """
    if not file.seekable():
        return None
    start = file.tell()
    number = sum(1 for _ in bounded(file))
    file.seek(start)
    return number


def opened(path: str) -> BinaryIO:
    """Opens a file of text for reading.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        return pathlib.Path(path).expanduser().open("rb")
    except OSError as error:
        raise OSError(
            f"Expected a file of text. Received: {path}, which cannot be read: {error.strerror} (working directory: {pathlib.Path.cwd()})."
        ) from error


@contextlib.contextmanager
def written_whole(path: str | pathlib.Path) -> Iterator[BinaryIO]:
    """Opens a file for writing under the name PATH.partial, and renames it when the `with` block ends without an error.

    If PATH is a link, its target is replaced and the link stays; PATH.partial must not be one. After an error, PATH.partial stays and
    stderr names it, unless it is empty. Anything but a regular file, such as /dev/null or a pipe, is written directly.

    Raises:
        OSError: the file cannot be written.
    """
    path = pathlib.Path(path).expanduser()
    direct = path.exists() and not path.is_file()
    target = path if direct else pathlib.Path(os.path.realpath(path))
    partial = path if direct else target.with_name(target.name + ".partial")
    try:
        file = open(partial, "wb", opener=lambda name, mode: os.open(name, mode if direct else mode | os.O_NOFOLLOW, 0o666))
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}.") from error
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
