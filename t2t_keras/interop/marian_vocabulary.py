"""Sub-words of a Marian model: from `vocab.json` and a SentencePiece model to a file of `text.piece_file`.

The ids of `config.py` come first, and the others follow in Marian's order. The start token, which Marian has no id for,
reads the row that Marian's decoder starts from.
"""

import pathlib
import re
import reprlib

import numpy as np

from t2t_keras.config import BOS, EOS, PAD, UNK
from t2t_keras.interop.huggingface_folder import Folder
from t2t_keras.text import piece_file

VOCABULARY, TARGET_VOCABULARY, TOKENIZER = "vocab.json", "target_vocab.json", "tokenizer_config.json"
SOURCE_MODEL, TARGET_MODEL = "source.spm", "target.spm"
LANGUAGES = ("source_lang", "target_lang")  # In `TOKENIZER`.
_LANGUAGE = re.compile("[A-Za-z][A-Za-z_-]{1,19}")
_EOS, _UNK, _PAD = "</s>", "<unk>", "<pad>"


class Vocabulary:
    """The list of a side.

    Args:
        path: the file, for messages.
        ids: Marian's id of each piece.
        rows: number of ids in the model.
        pad: Marian's id of the padding, unless the file has another.
        start: Marian's id of the first token that the decoder reads; `None` for that of the padding.

    Attributes:
        pad, eos: Marian's ids.
        rows: [V] int, Marian's id for each of ours.
    """

    def __init__(self, path: pathlib.Path, ids: dict, rows: int, pad: int, start: int | None = None):
        self._path = path
        wrong = {piece: index for piece, index in ids.items() if type(index) is not int or not 0 <= index < rows}
        if wrong or len(set(ids.values())) < len(ids):
            received = reprlib.repr(wrong) if wrong else "an id twice"
            raise ValueError(
                f"Expected different ids below {rows:,}, the vocabulary size of the model, in {path}. Received: "
                f"{received}."
            )
        if missing := sorted({_EOS, _UNK} - ids.keys()):
            raise ValueError(f"Expected {_EOS} and {_UNK} in {path}. Missing: {', '.join(missing)}.")
        self.pad, unknown, self.eos = ids.get(_PAD, pad), ids[_UNK], ids[_EOS]
        special = {self.pad, unknown, self.eos}
        if len(special) < 3 or self.pad >= rows:
            raise ValueError(
                f"Expected different ids below {rows:,} of {_PAD}, {_UNK} and {_EOS} in {path}. Received: {self.pad}, "
                f"{unknown} and {self.eos}."
            )
        others = [index for index in range(rows) if index not in special]
        # In the order of these ids.
        first = {PAD: self.pad, UNK: unknown, BOS: self.pad if start is None else start, EOS: self.eos}
        self.rows = np.array([*first.values(), *others])
        pieces = {index: piece for piece, index in ids.items()}
        self._pieces = [pieces.get(index, f"<{index}>") for index in others]  # A model may have ids that no piece has.

    def packed(self, folder: Folder, name: str, language: str | None = None) -> bytes:
        """Returns the sub-words of a side with the SentencePiece model `name`; for `language` see
        `piece_file.Pieces`.
        """
        if folder.find(name) is None:
            raise FileNotFoundError(
                f"{folder.path} has no {name}. Models with BPE files instead of SentencePiece are not supported."
            )
        # A SentencePiece model that is itself the list divides tags as well.
        tagged = language is not None or folder.find(name) != self._path
        try:
            return piece_file.pack(self._pieces, folder.content(name), language, tagged)
        except ValueError as error:
            raise ValueError(f"{folder.path / name} does not fit: {error}") from error


def is_separate(folder: Folder) -> bool:
    """Returns whether each side has a list of its own."""
    separate = folder.json(TOKENIZER).get("separate_vocabs", False)
    if not isinstance(separate, bool):
        raise ValueError(
            f"Expected separate_vocabs to be true or false in {folder.path / TOKENIZER}. Received: {separate!r:.80}."
        )
    return separate


def languages_of(folder: Folder) -> dict[str, str]:
    """Returns the languages of a model as options of `DataConfig`; none unless they are two."""
    codes = [folder.json(TOKENIZER).get(name) for name in LANGUAGES]
    if codes[0] == codes[1] or not all(isinstance(code, str) and _LANGUAGE.fullmatch(code) for code in codes):
        return {}
    return dict(zip(("source_language", "target_language"), codes, strict=True))
