"""Perplexity per sub-word: exp of the mean negative log likelihood, in nats, of references given their sources."""

import math

import tensorflow as tf

from t2t_keras.decoding.translator import Translator

_PAIRS = 512  # Tokenised at once.
_LONGEST = 2**15  # Sub-words of a sentence that is not cut.


def perplexity(translator: Translator, sources: list[str], *references: list[str]) -> float:
    """exp of the mean negative log likelihood of all sub-words of the references, end tokens counted.

    Args:
        translator: the model and its sub-words.
        sources: sentences.
        references: one list of translations for the sources, or several.

    Returns:
        At least 1; NaN where no pair has text on both sides. Other pairs are left out.
    """
    pairs = [pair for side in references for pair in zip(sources, side, strict=True) if all(line.strip() for line in pair)]
    if not pairs:
        return math.nan
    pairs.sort(key=lambda pair: len(pair[1]))  # Neighbours need little padding.

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2)
    def sums(source, target):
        tokenize = translator.tokenizer.tokenize
        log_probs = translator.log_probs(tokenize(source, max_length=_LONGEST), tokenize(target, max_length=_LONGEST)).flat_values
        return tf.reduce_sum(log_probs), tf.size(log_probs)

    total = tokens = 0
    for first in range(0, len(pairs), _PAIRS):
        log_prob, count = sums(*map(tf.constant, zip(*pairs[first : first + _PAIRS], strict=True)))
        total, tokens = total + float(log_prob), tokens + int(count)
    return math.exp(min(-total / tokens, 709.0))  # Not over the largest float.
