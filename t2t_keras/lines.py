"""Text in lines, as all programs read and write it: line n of what comes out belongs to line n of what came in."""

import codecs
from collections.abc import Iterable, Iterator


def read_lines(stream: Iterable[bytes]) -> Iterator[str]:
    """Lines without their end. Only \\n ends a line, as in training; a byte order mark is no part of the first."""
    for number, line in enumerate(stream):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 0 else line
        yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")


def one_line(text: str) -> str:
    """A model may write any byte. A line end would put all that follows beside the wrong source."""
    return text.replace("\n", " ")
