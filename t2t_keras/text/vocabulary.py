"""The vocabulary of sub-words (section 5.1): learns it, and loads it from its file, whatever its kind."""

from t2t_keras.text import (
    byte_pairs,
    piece_file,
    sentence_pieces,
    tensor2tensor,
    tensor2tensor_file,
    tokenizer_ops,
    word_pieces,
    words,
)
from t2t_keras.text.subwords import Subwords

_LEAST_COVERAGE = 0.98  # Of SentencePiece.
_LEARN = {"bpe": byte_pairs.learn, "wordpiece": word_pieces.learn, "word": words.learn}
# The class of each kind, and how its files begin. Those that begin otherwise are of byte-pair encoding.
_KINDS = {
    "wordpiece": (word_pieces.WordPieces, word_pieces.HEAD),
    "word": (words.Words, words.HEAD),
    "sentencepiece": (sentence_pieces.SentencePieces, piece_file.HEAD),
    "tensor2tensor": (tensor2tensor.Tensor2TensorSubwords, tensor2tensor_file.HEADS),
    "bpe": (byte_pairs.BytePairs, b""),
}


def check_can_learn(kind: str, character_coverage: float = 1.0) -> None:
    """Raises `ValueError` if a kind of sub-words only comes with a model of another toolkit, or its learner is not
    installed, or does not learn so small a share of the characters.
    """
    if kind not in _LEARN:
        raise ValueError(
            f"`subwords={kind}` needs a `subwords_file`, and with `source_vocab_size` a `source_subwords_file`; only "
            f"{', '.join(_LEARN)} are learned. To train an imported model, give it as the `parent` of a new run."
        )
    if kind == "wordpiece" and tokenizer_ops.tf_text is None:
        raise ValueError(
            "Learning word pieces needs TF.Text (pip install tensorflow-text), which is not installed. Use "
            "`subwords=bpe`, or a `subwords_file` of word pieces that were learned elsewhere."
        )
    if kind != "wordpiece" and character_coverage < _LEAST_COVERAGE:
        raise ValueError(
            f"`character_coverage` must be at least {_LEAST_COVERAGE}, except with `subwords=wordpiece`. Received: "
            f"character_coverage={character_coverage}."
        )


def learn(kind: str, *args, **options) -> bytes:
    """Learns sub-words of the kind `bpe`, `wordpiece` or `word`, with the arguments and errors of `byte_pairs.learn`,
    of which `word_pieces.learn` has fewer, and those of `check_can_learn`. Returns the content of the file.
    """
    check_can_learn(kind)
    return _LEARN[kind](*args, **options)


def kind(model: bytes) -> str:
    """Returns the kind of sub-words that a file has: one of the choices of `DataConfig.subwords`."""
    return next(name for name, (_, head) in _KINDS.items() if model.startswith(head))


def load(model: bytes) -> Subwords:
    """Loads sub-words from the content of their file. Raises `ValueError` if it is neither a SentencePiece model with
    the ids of `config.networks`, nor a list of word pieces, nor a `piece_file`, nor a vocabulary of words or of
    tensor2tensor.
    """
    return _KINDS[kind(model)][0](model)


def load_sides(model: bytes, source_model: bytes | None = None) -> Subwords:
    """Loads the sub-words of targets from the content of their file, with those of sources as their `source`; `None` if
    they are the same. Raises the errors of `load`.
    """
    subwords = load(model)
    subwords.own_source = None if source_model is None else load(source_model)
    return subwords
