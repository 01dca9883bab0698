"""Aligns the words of a translation with those of its source, by the attention of a model."""

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.translator import Translator
from t2t_keras.layers.masks import shift_right
from t2t_keras.text.subwords import Subwords

MAX_PIECES = 512  # Of a sentence: the weights grow with the square.


def word_alignment(translator: Translator, source: str, target: str) -> np.ndarray | None:
    """Aligns a given translation with its source.

    Args:
        translator: a model and its sub-words.
        source: a sentence.
        target: its translation.

    Returns:
        [T, S] float32, the attention of each word of the target to each word of the source, where spaces separate
        words: the sum over the sub-words of the source's word, the mean over those of the target's word, see
        `EncoderDecoder.align`. Rows sum to 1 less the attention to the end token and, in a multilingual model, to that
        of the language. `None` if the architecture does not align, a side is blank or too long, or the sub-words have
        other words than the text, as after a normalization.
    """
    if not translator.model.aligns:
        return None
    tokenizers, texts = (translator.source_tokenizer, translator.tokenizer), (source, target)
    kept = translator.tokenizer.kept(tf.constant([source]))
    ids = [side.cut(tf.constant([text]), MAX_PIECES, kept)[0] for side, text in zip(tokenizers, texts, strict=True)]
    # Without the sub-words of the language and of the end.
    inner = [slice(int(bool(side.languages)), -1) for side in tokenizers]
    words = [_words(side, row[0, of_text]) for side, row, of_text in zip(tokenizers, ids, inner, strict=True)]
    counts = [len(list(filter(None, text.split(" ")))) for text in texts]
    if not all(counts) or [row.max(initial=-1) + 1 for row in words] != counts:
        return None
    with translator.scope():
        memory = translator.encode(translator.sources(ids[0]))
        weights = np.array(translator.model.align(shift_right(ids[1].to_tensor()), memory))[0, inner[1], inner[0]]
    of_source, of_target = (np.eye(count, dtype="float32")[row] for count, row in zip(counts, words, strict=True))
    return (of_target / of_target.sum(axis=0)).T @ weights @ of_source


def _words(tokenizer: Subwords, ids) -> np.ndarray:
    """Returns the number of the word that each sub-word belongs to, from 0. [T] int32 → [T] int."""
    spelled = [tokenizer.spelling[index] for index in ids.numpy()]
    # A space begins the word after it.
    return np.array([b"".join(spelled[: index + 1]).lstrip(b" ").count(b" ") for index in range(len(spelled))], int)
