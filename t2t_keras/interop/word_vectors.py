"""Reads word vectors in the formats of Word2Vec, text or binary, and of GloVe, with gensim.

    Word2Vec, text      a header with the number of words and the width; in each line a word and its numbers
    Word2Vec, binary    the same header; each word is followed by a space and float32 numbers
    GloVe               the lines alone

The contents of a file tell its format, not its name. Its header and size are checked before anything is allocated.
"""

import codecs
import contextlib
import importlib.util
import logging
import os
import pathlib
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from t2t_keras.system.log import printable
from t2t_keras.text.lines import compression

_START = 2**22  # Bytes that have the header and a line of any width.
_EXPECTED = "Expected word vectors in the text or binary format of Word2Vec, or that of GloVe"


class Format(NamedTuple):
    """What the beginning of a file says.

    Attributes:
        width: of a vector.
        binary: whether numbers are float32, and not text.
        number: of vectors, in the header; `None` without one.
    """

    width: int
    binary: bool
    number: int | None


def check(path: pathlib.Path, width: int) -> Format:
    """Returns the format of a file of word vectors of `width` numbers, without reading all of it.

    Raises `FileNotFoundError`, or `ValueError` if it has no word vectors, or some of another width, or is shorter than
    its header says; or if gensim is not installed.
    """
    if not path.is_file():
        raise FileNotFoundError(f"No such file of word vectors: '{path}'.")
    if not importlib.util.find_spec("gensim"):
        raise ValueError(
            "Word vectors are read with gensim: pip install 't2t_keras[embeddings]', or -e '.[embeddings]' in a "
            "checkout."
        )
    with path.open("rb") as file:
        first, _, rest = file.read(_START).partition(b"\n")
    if compression(first):
        raise ValueError(f"{_EXPECTED}. Received: {path}, which is compressed. Unpack it, and give the file in it.")
    if first.startswith(codecs.BOM_UTF8):
        raise ValueError(
            f"{_EXPECTED}. Received: {path}, which begins with a byte order mark. Remove its first three bytes."
        )
    fields = first.split()
    header = len(fields) == 2 and all(field.isdigit() and len(field) < 20 for field in fields)
    row_width = _width(rest.partition(b"\n")[0] if header else first)
    file_format = Format(
        int(fields[1]) if header else row_width, header and row_width == 0, int(fields[0]) if header else None
    )
    if not file_format.width or (header and row_width not in (0, file_format.width)):
        text = first[:60].decode(errors="replace")
        raise ValueError(f"{_EXPECTED}. Received: {path}, which begins with {text!r}.")
    if file_format.width != width:
        expected = f"Expected word vectors of {width:,} numbers, the width of the embeddings."
        raise ValueError(f"{expected} Received: {file_format.width:,} in {path}.")
    if header:
        smallest = len(first) + 1 + file_format.number * (2 + file_format.width * (4 if file_format.binary else 2))
        if path.stat().st_size < smallest:
            raise ValueError(
                f"Expected {file_format.number:,} word vectors in {path}, as its header says: {smallest:,} bytes or "
                f"more. Received: {path.stat().st_size:,} bytes. Copy the file again."
            )
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        if not file_format.binary and file.read() != b"\n":
            raise ValueError(
                f"Expected word vectors in {path} that end with a line end. Received: a truncated file. Copy it again."
            )
    return file_format


def read(path: pathlib.Path, width: int, words: Collection[str]) -> dict[str, np.ndarray]:
    """Reads the vectors, [width] float32, of those of `words` that a file has. Memory grows with their number, not
    with the number of words in the file.

    Raises the errors of `check`, and `ValueError` if the file is damaged, or has numbers that are not finite.
    """
    file_format, words = check(path, width), frozenset(words)
    if received := _unlike_header(path, file_format):
        raise ValueError(
            f"Expected {file_format.number:,} word vectors in {path}, as its header says. Received: {received}. "
            "Correct its number. Of files that were joined, only one may keep its header."
        )
    with _quiet():
        from gensim.models import KeyedVectors

        class Wanted(KeyedVectors):
            """Vectors of the words alone. What is allocated for the others is never written, and so takes no memory."""

            def has_index_for(self, key):
                # A word with an index is not read again.
                return key not in words or super().has_index_for(key)

        options = {"binary": file_format.binary, "no_header": file_format.number is None, "unicode_errors": "replace"}
        try:
            vectors = Wanted.load_word2vec_format(str(path.resolve()), **options)
            read = {word: np.array(vectors[word]) for word in words & vectors.key_to_index.keys()}
        except (ValueError, OSError, EOFError, MemoryError, OverflowError, AssertionError) as error:
            advice = f" Remove lines that are not a word without spaces and {width:,} numbers."
            raise ValueError(
                f"{_EXPECTED}. Received: {path}, which is damaged ({printable(str(error))[:200]})."
                f"{'' if file_format.binary else advice}"
            ) from error
    if wrong := [word for word, vector in read.items() if not np.isfinite(vector).all()]:
        raise ValueError(f"Expected finite numbers in {path}. Received: infinity or NaN for the word {min(wrong)!r}.")
    return read


def _unlike_header(path: pathlib.Path, file_format: Format) -> str:
    """Returns in words what a file has in place of the number of vectors in its header; "" if it has that number, or no
    header. A binary file with fewer vectors is left to the reader.
    """
    if file_format.number is None:
        return ""
    if file_format.binary:
        size = _size_after(path, file_format)
        return f"{size:,} bytes after these" if size else ""
    lines = _lines(path) - 1
    return "" if lines == file_format.number else f"{lines:,} lines after the header"


def _lines(path: pathlib.Path) -> int:
    """Returns the number of lines of a file, without blank ones at its end."""
    ends, blank = 0, 0  # All line ends, and those at the end of the file.
    with path.open("rb") as file:
        while block := file.read(_START):
            text = block.rstrip()
            ends, blank = ends + block.count(b"\n"), (0 if text else blank) + block[len(text) :].count(b"\n")
    return ends - blank + 1


def _size_after(path: pathlib.Path, file_format: Format) -> int:
    """Returns the number of bytes after the vectors of a binary file; 0 if they are whitespace, or if it has fewer
    vectors than its header says.
    """
    size = 4 * file_format.width
    with path.open("rb") as file:
        file.readline()
        block, end = b"", 0  # The end of a vector in the block.
        for _ in range(file_format.number):
            while (start := block.find(b" ", end) + 1) == 0 or start + size > len(block):
                if not (more := file.read(_START)):
                    return 0
                block, end = block[end:] + more, 0
            end = start + size
        rest = block[end:] + file.read(_START)
        return len(rest) + path.stat().st_size - file.tell() if rest.strip() else 0


def _width(row: bytes) -> int:
    """Returns how many numbers follow the word in a line of text; 0 if it is no such line."""
    with contextlib.suppress(ValueError):
        _, *numbers = row.decode(errors="replace").split(" ")
        return len([float(number) for number in numbers if number.strip()])
    return 0


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences gensim, which warns of each word that is not read."""
    logger = logging.getLogger("gensim")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
