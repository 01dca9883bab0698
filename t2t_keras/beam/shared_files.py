"""Files that a program and the Apache Beam workers exchange, on any file system of Beam."""

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from apache_beam.io.filesystems import FileSystems

from t2t_keras.data.text_files import Pair
from t2t_keras.system.files import EXCHANGE


def absolute(path: str) -> str:
    """Returns a path that is the same in every process of this machine; one of another file system stays."""
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


def remove(folder: str) -> None:
    """Removes a folder with all that it holds, if there is one."""
    if FileSystems.exists(folder):
        FileSystems.delete([folder])


@contextlib.contextmanager
def exchange(parent: str) -> Iterator[str]:
    """Makes an empty folder for one job at a time in `parent`, which the program and the workers can read and write,
    and removes it at the end of the `with` block. What `parent` holds beside stays.
    """
    folder = FileSystems.join(absolute(parent), EXCHANGE)
    remove(folder)
    FileSystems.mkdirs(folder)
    try:
        yield folder
    finally:
        remove(folder)


@contextlib.contextmanager
def replacing(path: str, folder: str) -> Iterator[BinaryIO]:
    """Opens a new file in a folder, which gets the name `path` at the end of the `with` block.

    A runner may repeat or kill what writes it.
    """
    # `files.check_no_links` removes it after a kill.
    unfinished = FileSystems.join(folder, f"part.{secrets.token_hex(8)}.tmp")
    with FileSystems.create(unfinished) as file:
        yield file
    FileSystems.rename([unfinished], [path])


def chunk(folder: str, first: int) -> str:
    """Returns the file of the chunk of this first pair."""
    return FileSystems.join(folder, f"{first:012d}.text")


def write_chunks(chunks: Iterable[list[Pair]], folder: str) -> Iterator[int]:
    """Writes chunks of pairs for the workers, one file for each, with alternating lines of the sides. Yields the index
    of the first pair of each, counted over all.
    """
    first = 0
    for pairs in chunks:
        with FileSystems.create(chunk(folder, first)) as file:
            file.write(b"".join(line + b"\n" for pair in pairs for line in pair))
        yield first
        first += len(pairs)


def read_chunk(folder: str, first: int, sides: int) -> list[Pair]:
    """Returns the pairs of a chunk, of so many sides."""
    with FileSystems.open(chunk(folder, first)) as file:
        lines = file.read().split(b"\n")[:-1]
    return list(zip(*(lines[side::sides] for side in range(sides)), strict=True))
