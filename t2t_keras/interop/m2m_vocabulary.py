"""Sub-words and languages of M2M-100 and NLLB-200.

M2M-100 has `vocab.json`, a list of ids as Marian's, and NLLB-200 the ids of its SentencePiece model plus one, after the
four special ones. The languages follow: `__de__` of M2M-100 and `deu_Latn` of NLLB-200 become the pieces `>>de<<` and
`>>deu_Latn<<`.
"""

import re
from collections.abc import Collection

from t2t_keras.interop.huggingface_folder import FAST, Folder
from t2t_keras.interop.marian_vocabulary import TOKENIZER, VOCABULARY
from t2t_keras.text import piece_file

MODEL = "sentencepiece.bpe.model"
SPECIAL, ADDED = "special_tokens_map.json", "added_tokens.json"
# In the order of their ids.
_OF_SENTENCEPIECE, _OF_FAIRSEQ = ["<unk>", "<s>", "</s>"], ["<s>", "<pad>", "</s>", "<unk>"]
_LANGUAGE = re.compile(r"__([A-Za-z][\w-]*?)__|([a-z]{2,3}_[A-Z][a-z]{3})", re.ASCII)
_UNUSED = re.compile(r"</?s>|<pad>|<unk>|<mask>|madeupword\d+")  # Tokens that no text has.
# The languages of M2M-100 and of its models for WMT 2021 in the order of their ids, which transformers 5 does not write
# into the folder.
LANGUAGES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr "
    "ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps "
    "pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}


def ids_of(folder: Folder) -> dict[str, int]:
    """Returns the id of each piece, without the languages."""
    if folder.find(VOCABULARY):
        return folder.json(VOCABULARY)
    path = folder.require_subwords(MODEL)
    try:
        pieces = piece_file.pieces_of(folder.content(MODEL))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if pieces[:3] != _OF_SENTENCEPIECE:
        raise ValueError(
            f"Expected {', '.join(_OF_SENTENCEPIECE)} as the first pieces of {path}. Received: {', '.join(pieces[:3])}."
        )
    return {piece: index for index, piece in enumerate(_OF_FAIRSEQ + pieces[3:])}


def languages_of(folder: Folder, first: int) -> dict[str, int]:
    """Returns the id of each language of a model by its code, counted from `first` where no file has their ids."""
    options = folder.json(TOKENIZER)
    of_tokenizer = options.get("additional_special_tokens") or options.get("extra_special_tokens")
    listed = folder.json(SPECIAL).get("additional_special_tokens") or of_tokenizer
    names = [_text(token) for token in listed] if isinstance(listed, list) else []
    known = added_tokens(folder)
    if not any(map(_LANGUAGE.fullmatch, [*names, *known])) and folder.find(VOCABULARY):
        names = [f"__{code}__" for code in LANGUAGES.get(str(options.get("language_codes", "m2m100")), "").split()]
    tokens = {token: known.get(token, first + index) for index, token in enumerate(filter(_LANGUAGE.fullmatch, names))}
    tokens |= {token: index for token, index in known.items() if _LANGUAGE.fullmatch(token)}
    if not tokens:
        raise ValueError(
            f"Expected the codes of languages as additional_special_tokens in {folder.path / SPECIAL} or "
            f"{folder.path / TOKENIZER}. Received none."
        )
    if any(token.startswith("__") for token in tokens):  # M2M-100: its SentencePiece model has other ids.
        folder.require_subwords(VOCABULARY)
    return {next(filter(None, _LANGUAGE.fullmatch(token).groups())): index for token, index in tokens.items()}


def check_added(folder: Folder, known: Collection[str], name: str) -> None:
    """Raises `ValueError` if a model has other added tokens than those of the vocabulary in the file `name`, which are
    `known`. They would become sub-words without text.
    """
    if others := [token for token in added_tokens(folder) if token not in known]:
        raise ValueError(
            f"Expected no added tokens beside those of {name} in {folder.path}. Received: {', '.join(others):.80}."
        )


def tokens_without_text(folder: Folder) -> list[str]:
    """Returns the added tokens that are languages, or that no text has."""
    return [token for token in added_tokens(folder) if _LANGUAGE.fullmatch(token) or _UNUSED.fullmatch(token)]


def added_tokens(folder: Folder) -> dict[str, int]:
    """Returns the ids of tokens that are added to the pieces, where files have them."""
    fast, slow = folder.json(FAST).get("added_tokens", []), folder.json(TOKENIZER).get("added_tokens_decoder", {})
    try:
        known = folder.json(ADDED) | {_text(token): int(index) for index, token in slow.items()}
        known |= {token["content"]: token["id"] for token in fast}
        if all(type(index) is int for index in known.values()):
            return known
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    raise ValueError(
        f"Expected whole numbers as ids of added tokens in {TOKENIZER}, {ADDED} and {FAST} of {folder.path}. Received: "
        "other values."
    )


def _text(token) -> str:
    """Returns the text of a token, which may be an object with options."""
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else ""
