"""A vocabulary of whole words: the most frequent have an id each, and all others are spelled in bytes: no text is lost.

It is that of systems before sub-words (Bahdanau et al. 2015 kept the 30,000 most frequent words and made all others
unknown). SentencePiece learns it, and its file is the line `HEAD` and then a SentencePiece model of words.
"""

from collections.abc import Iterable, Iterator

import tensorflow as tf

from t2t_keras.config import EOS
from t2t_keras.text import byte_pairs
from t2t_keras.text.sentencepiece_model import UNDERSCORE
from t2t_keras.text.spelling import BYTES
from t2t_keras.text.subwords import BYTES_PER_PIECE

HEAD = b"SentencePiece model of words\n"


class Words(byte_pairs.BytePairs):
    """Whole words, and bytes. Raises `ValueError` if `model` is no file that `learn` made."""

    def __init__(self, model: bytes):
        if not model.startswith(HEAD):
            raise ValueError(f"Not a vocabulary of words: {len(model):,} other bytes.")
        super().__init__(model.removeprefix(HEAD))
        self.model = model

    def _spaced(self, text):
        """Restores spaces: a word in bytes brings the ▁ before it in bytes, and a ▁ of the text is escaped."""
        text = tf.strings.regex_replace(text, UNDERSCORE, " ")
        return tf.strings.regex_replace(text, r"\A ", "")


def learn(lines: Iterable[bytes], vocab_size: int, **options) -> bytes:
    """Takes the most frequent words of both languages. Words are what spaces separate; a very long one has no id.

    Arguments and errors are those of `byte_pairs.learn`. Returns the content of the file.
    """
    smallest = EOS + 1 + len(BYTES) + 1
    if vocab_size < smallest:
        raise ValueError(
            f"`vocab_size={vocab_size}` is too small for a vocabulary of words, which needs {smallest} or more: "
            f"{EOS + 1} special ids, 256 bytes and a word. Raise it."
        )
    return HEAD + byte_pairs.learn(_without_long_words(lines), vocab_size, model_type="word", **options)


def _without_long_words(lines: Iterable[bytes]) -> Iterator[bytes]:
    longest = BYTES_PER_PIECE - 2 * len(UNDERSCORE.encode())  # Escaped characters are longer.
    return (b" ".join(word for word in line.split(b" ") if len(word) <= longest) for line in lines)
