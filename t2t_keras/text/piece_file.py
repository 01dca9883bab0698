"""The file of `sentence_pieces`: the line `HEAD`, a line with the pieces from id 4 on, a JSON list, and a SentencePiece model."""

import json

import sentencepiece

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")  # In the order of their ids in `config.py`.
HEAD = b"SentencePiece model after the list of its ids\n"


def pack(pieces: list[str], processor: bytes) -> bytes:
    """Returns the content of a file.

    Args:
        pieces: the sub-words from id 4 on.
        processor: the SentencePiece model.

    Raises:
        ValueError: see `unpack`.
    """
    content = HEAD + json.dumps(pieces).encode() + b"\n" + processor
    unpack(content)
    return content


def unpack(content: bytes) -> tuple[tuple[str, ...], bytes]:
    """Returns all sub-words in the order of their ids, and the SentencePiece model.

    Raises:
        ValueError: the list has a sub-word twice, or the content is not that of such a file.
    """
    line, _, processor = content.removeprefix(HEAD).partition(b"\n")
    try:
        pieces = json.loads(line)
        sentencepiece.SentencePieceProcessor().LoadFromSerializedProto(processor)  # The constructor takes an empty one.
    except (ValueError, RecursionError, RuntimeError) as error:
        raise ValueError(f"Expected a list of sub-words and a SentencePiece model. Received: {len(content):,} other bytes.") from error
    if not isinstance(pieces, list) or not all(isinstance(piece, str) and _is_text(piece) for piece in pieces):
        raise ValueError("Expected a list of sub-words before the SentencePiece model. Received: something else.")
    if len(set(pieces)) < len(pieces):
        raise ValueError("Expected different sub-words before the SentencePiece model. Received: one of them twice.")
    return (*SPECIAL, *pieces), processor


def _is_text(piece: str) -> bool:
    """Returns whether UTF-8 has a piece: JSON may have half of a surrogate pair."""
    return piece.encode(errors="ignore").decode() == piece
