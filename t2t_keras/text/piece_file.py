"""The file of `sentence_pieces`: the line `HEAD`, a line of JSON, and a SentencePiece model.

The line of JSON is the list of the pieces from id 4 on. For a multilingual model it is an object: "pieces" has the
list, with a piece such as `>>deu_Latn<<` for each language, and "language" the code of the language of all lines that
do not begin with such a tag. With "language" null, no line begins with a tag, and an empty SentencePiece model stands
for text that is divided into sub-words already, with a space between them.
"""

import difflib
import json
import re
from collections.abc import Sequence
from typing import NamedTuple

import sentencepiece

from t2t_keras.text.spelling import SPECIAL

HEAD = b"SentencePiece model after the list of its ids\n"
TAG = re.compile(r">>([^<>]+)<<")  # The piece of a language, with its code.


def tag_of(language: str) -> str:
    """Returns the piece of a language, with which a line in it may begin."""
    return f">>{language}<<"


class Pieces(NamedTuple):
    """What a file holds."""

    pieces: tuple[str, ...]  # All sub-words in the order of their ids.
    processor: bytes  # The SentencePiece model.
    language: str | None  # The code of the language, "" if none is chosen; `None` if the pieces are not multilingual.
    tagged: bool = True  # Whether a line may begin with a tag.

    @property
    def languages(self) -> tuple[str, ...]:
        """The codes of all languages."""
        return () if self.language is None else tuple(tag[1] for tag in map(TAG.fullmatch, self.pieces) if tag)


def pack(pieces: list[str], processor: bytes, language: str | None = None, tagged: bool = True) -> bytes:
    """Returns the content of a file of sub-words from id 4 on and a SentencePiece model; see `Pieces`. Raises
    `ValueError` if a sub-word is there twice, `processor` is no SentencePiece model, or no piece is of this language.
    """
    if language is not None and not tagged:
        raise ValueError(f"Sub-words without tags have no language. Received: {language!r}.")
    plain = tagged and language is None
    line = json.dumps(pieces if plain else {"language": language if tagged else None, "pieces": pieces})
    content = HEAD + line.encode() + b"\n" + processor
    unpack(content)
    return content


def unpack(content: bytes) -> Pieces:
    """Reads the content of a file. Raises `ValueError` if the list has a sub-word twice, or it is no such file."""
    line, _, processor = content.removeprefix(HEAD).partition(b"\n")
    try:
        pieces, language, tagged = json.loads(line), None, True
        if isinstance(pieces, dict) and pieces.keys() == {"language", "pieces"}:
            if isinstance(pieces["language"], str | None):
                pieces, language = pieces["pieces"], pieces["language"]
                tagged = language is not None
        if processor or tagged:  # The constructor takes an empty one.
            sentencepiece.SentencePieceProcessor().LoadFromSerializedProto(processor)
    except (ValueError, RecursionError, RuntimeError) as error:
        received = f"{len(content):,} other bytes ({error!s:.200})"
        raise ValueError(f"Not a list of sub-words and a SentencePiece model: {received}.") from error
    if not isinstance(pieces, list) or not all(isinstance(piece, str) and _is_text(piece) for piece in pieces):
        raise ValueError("What stands before the SentencePiece model is not a list of sub-words.")
    if len(set(pieces)) < len(pieces):
        raise ValueError("The list of sub-words before the SentencePiece model has one of them twice.")
    result = Pieces((*SPECIAL, *pieces), processor, language, tagged)
    if language:
        check_language(language, result.languages)
    return result


def with_language(content: bytes, language: str) -> bytes:
    """Returns the content of a file with another language. Raises `ValueError` if the file does not have it."""
    unpacked = unpack(content) if content.startswith(HEAD) else None
    if unpacked is None or unpacked.language is None:
        raise ValueError(f"The model is not multilingual, so it has no language {language!r:.80}.")
    return pack(list(unpacked.pieces[len(SPECIAL) :]), unpacked.processor, language)


def without_language(content: bytes) -> bytes:
    """Returns the content of a file of any kind without its language, to compare it with others."""
    if not content.startswith(HEAD) or not (unpacked := unpack(content)).language:
        return content
    return pack(list(unpacked.pieces[len(SPECIAL) :]), unpacked.processor, "")


def with_chosen(content: bytes, option: str, language: str = "") -> bytes:
    """Returns the content of a file of any kind, with a language if its code is given, by the `option` that messages
    name. Raises `ValueError` if the file has not this language, or is multilingual and none is chosen.
    """
    if language:
        try:
            return with_language(content, language)
        except ValueError as error:
            raise ValueError(f"`{option}`: {error}") from error
    if content.startswith(HEAD) and (unpacked := unpack(content)).language == "":
        examples = f"{len(unpacked.languages)} languages, such as {', '.join(unpacked.languages[:5])}"
        raise ValueError(f"The model is multilingual. Choose `{option}` among its {examples}.")
    return content


def with_languages(contents: Sequence[bytes], source_language: str = "", target_language: str = "") -> list[bytes]:
    """Returns the contents of the files of the target and, if it has its own, of the source, with given languages; see
    `with_chosen`.
    """
    chosen = (("target_language", target_language), ("source_language", source_language))
    if source_language and len(contents) < 2:  # Multilingual models have both.
        with_chosen(contents[0], *chosen[1])
    return [with_chosen(content, *language) for content, language in zip(contents, chosen, strict=False)]


def pieces_of(processor: bytes) -> list[str]:
    """Returns the pieces of a SentencePiece model in the order of its own ids. Raises `ValueError` if it is none."""
    model = _loaded(processor)
    return [model.IdToPiece(index) for index in range(model.GetPieceSize())]


def divided(processor: bytes, text: str) -> list[str]:
    """Divides a text into the pieces of a SentencePiece model."""
    return _loaded(processor).EncodeAsPieces(text)


def _loaded(processor: bytes) -> sentencepiece.SentencePieceProcessor:
    model = sentencepiece.SentencePieceProcessor()
    try:
        model.LoadFromSerializedProto(processor)
    except RuntimeError as error:
        raise ValueError(f"Not a SentencePiece model: {len(processor):,} other bytes.") from error
    return model


def check_language(language: str, languages: Sequence[str]) -> None:
    """Raises `ValueError` for a language that is not among some, with the nearest ones."""
    if language not in languages:
        near = difflib.get_close_matches(language, languages, 5, 0.4) or languages[:5]
        raise ValueError(
            f"{language!r:.80} is none of the {len(languages)} languages of the model. Did you mean {', '.join(near)}?"
        )


def _is_text(piece: str) -> bool:
    """Returns whether UTF-8 has a piece: JSON may have half of a surrogate pair."""
    return piece.encode(errors="ignore").decode() == piece
