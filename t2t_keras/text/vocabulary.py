"""The vocabulary of sub-words (section 5.1): learns it, and loads it from its file, whatever its kind."""

from t2t_keras.text import byte_pairs, word_pieces
from t2t_keras.text.subwords import Subwords

_LEARN = {"bpe": byte_pairs.learn, "wordpiece": word_pieces.learn}


def learn(kind: str, *args, **options) -> bytes:
    """Learns sub-words.

    Args:
        kind: `bpe` or `wordpiece`.
        args, options: see `byte_pairs.learn` and `word_pieces.learn`, which have the same arguments.

    Returns:
        The content of the file.

    Raises:
        ValueError: the text does not give such a vocabulary.
    """
    return _LEARN[kind](*args, **options)


def kind(model: bytes) -> str:
    """Returns the kind of sub-words that a file has: `bpe` or `wordpiece`."""
    return "wordpiece" if model.startswith(word_pieces.HEAD) else "bpe"


def load(model: bytes) -> Subwords:
    """Loads sub-words from the content of their file.

    Raises:
        ValueError: the content is neither a SentencePiece model with the ids of `config.py` nor a list of word pieces.
    """
    return {"bpe": byte_pairs.BytePairs, "wordpiece": word_pieces.WordPieces}[kind(model)](model)


def load_sides(model: bytes, source_model: bytes | None = None) -> Subwords:
    """Loads the sub-words of targets, with those of sources as their `source`.

    Args:
        model: the content of the file of the targets' sub-words.
        source_model: of the sources'; `None` if they are the same.

    Raises:
        ValueError: see `load`.
    """
    subwords = load(model)
    subwords.own_source = None if source_model is None else load(source_model)
    return subwords
