"""Text in lines, as all programs read and write it: line n of what comes out belongs to line n of what came in."""

import codecs
import contextlib
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO


def read_lines(stream: Iterable[bytes]) -> Iterator[str]:
    """Lines without their end. Only \\n ends a line, as in training; a byte order mark is no part of the first."""
    for number, line in enumerate(stream):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 0 else line
        yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")


def one_line(text: str) -> str:
    """A model may write any byte. A line end would put all that follows beside the wrong source."""
    return text.replace("\n", " ")


def count(file: BinaryIO) -> int | None:
    """Lines from where a file stands to its end, and back; None of what cannot go back, such as a pipe."""
    if not file.seekable():
        return None
    start = file.tell()
    number = sum(1 for _ in file)
    file.seek(start)
    return number


@contextlib.contextmanager
def written_whole(path: str | pathlib.Path) -> Iterator[BinaryIO]:
    """A file to write, called PATH.partial until all is written; what there was under its own name stays until then.

    A link stays, and what it points to is written. After an error PATH.partial stays, and stderr says so. What is no regular file,
    such as /dev/null or a pipe, is written directly.

    Raises:
        OSError: it cannot be written.
    """
    path = pathlib.Path(path).expanduser()
    direct = path.exists() and not path.is_file()
    target = path if direct else pathlib.Path(os.path.realpath(path))
    partial = path if direct else target.with_name(target.name + ".partial")
    try:
        file = partial.open("wb")
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}.") from error
    try:
        with file:
            yield file
    except BaseException:
        if not direct and partial.stat().st_size:
            print(f"Not finished; what there is so far is in {partial}.", file=sys.stderr)
        elif not direct:
            partial.unlink()
        raise
    if not direct:
        partial.replace(target)
