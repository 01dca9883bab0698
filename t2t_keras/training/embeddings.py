"""Starts embeddings from word vectors, and holds them for the first updates."""

import pathlib
from collections.abc import Collection, Iterable

import numpy as np

from t2t_keras.interop import word_vectors
from t2t_keras.runs import run_options
from t2t_keras.runs.saved_run import EMBEDDINGS
from t2t_keras.system.files import write_whole
from t2t_keras.system.log import logger

_MARK = "▁"  # Before sub-words that begin a word.


def check(options: run_options.Options) -> None:
    """Checks what can be found out about the option `embeddings` before TensorFlow is imported: the file, see
    `word_vectors.check`, and that source and target have one vocabulary.
    """
    if options.source_vocab_size:
        raise ValueError(
            "Expected one vocabulary of both sides with `embeddings`. Received: "
            f"source_vocab_size={options.source_vocab_size}."
        )
    word_vectors.check(pathlib.Path(options.train.embeddings), getattr(options.model, "width", options.model.d_model))


def start(path: pathlib.Path, matrix, pieces: Iterable[str]) -> list[str]:
    """Sets the rows of the embedding matrix, a variable [V, D], of sub-words that are whole words to their vectors in a
    file, times one factor that gives them the variance of the matrix. `pieces` are the sub-words in the order of their
    ids.

    Returns the sub-words that have a vector. Raises the errors of `word_vectors.read`, and `ValueError` if there is
    none of them, all are 0, or the model has no matrix.
    """
    if matrix is None:
        raise ValueError(
            "Expected a model with an embedding matrix for word vectors. Received: one without. Leave `embeddings` out."
        )
    logger.info(f"Reading word vectors from {path} …")
    rows = {piece[1:]: row for row, piece in enumerate(pieces) if piece.startswith(_MARK) and len(piece) > 1}
    values = np.array(matrix)
    found = word_vectors.read(path, values.shape[1], rows)
    vectors = np.array(list(found.values()), "float32").reshape(-1, values.shape[1])
    if not vectors.any():
        some = ", ".join(sorted(rows)[:5])
        raise ValueError(
            f"Expected vectors of words in the vocabulary, such as {some}. Received: none in {path}, or all 0."
        )
    values[[rows[word] for word in found]] = vectors * np.sqrt(
        np.mean(values**2) / np.mean(vectors.astype("float64") ** 2)
    )
    matrix.assign(values)
    logger.info(
        f"{len(found):,} of the {len(rows):,} sub-words that begin a word have a vector in {path}; the others start at "
        "random."
    )
    return sorted(_MARK + word for word in found)


def write(model_dir: pathlib.Path, pieces: list[str]) -> None:
    """Writes the result of `start` to the folder of the run, which needs the file of vectors no more."""
    write_whole(model_dir / EMBEDDINGS, "".join(f"{piece}\n" for piece in pieces).encode())


def read(model_dir: pathlib.Path, pieces: Collection[str]) -> list[str]:
    """Reads what `write` has written. `pieces` are all sub-words; a file that has others, or is cut off, is refused."""
    path = model_dir / EMBEDDINGS
    if not path.is_file():
        raise FileNotFoundError(
            f"Expected {path}, which names the embeddings to freeze. Received none. Restore it from a copy."
        )
    largest = sum(len(piece.encode(errors="replace")) + 1 for piece in pieces)
    with path.open("rb") as file:
        *started, rest = file.read(largest + 1).decode(errors="replace").split("\n")
    if rest or not started or not set(started) <= set(pieces):
        raise ValueError(
            f"Expected sub-words of the run in {path}, one a line. Received: something else. Restore it from a copy."
        )
    return started
