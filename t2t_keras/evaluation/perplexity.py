"""Perplexity per sub-word: exp of the mean negative log likelihood (in nats) of references given their sources."""

import math

import tensorflow as tf

from t2t_keras.decoding.translator import Translator
from t2t_keras.text.lines import is_blank

PAIRS = 512  # Pairs to tokenise at once.
# Longer sentences are cut to this number of sub-words, or to what the model translates if that is more: attention takes
# memory with the square of the length.
_LONGEST = 2**12


def log_probs(translator: Translator, source, target) -> tf.RaggedTensor:
    """Returns log P of each sub-word of targets given their sources, end tokens included: [B] string, [B] string → [B,
    (T)] float32.
    """
    kept, longest = translator.tokenizer.kept(source), max(_LONGEST, translator.config.max_input)
    sources = translator.source_tokenizer.tokenize(source, max_length=longest, kept=kept)
    longest = max(_LONGEST, translator.config.max_input + translator.config.extra_length)
    targets = translator.tokenizer.tokenize(target, max_length=longest, kept=kept)
    return translator.log_probs(sources, targets)


def perplexity(translator: Translator, sources: list[str], *references: list[str]) -> float:
    """Computes the perplexity over all sub-words of the references, including end tokens.

    Args:
        translator: the model and its sub-words.
        sources: sentences.
        references: one or more lists of translations of the sources.

    Returns:
        A number of at least 1. Pairs with a blank side are ignored; NaN if there is no other pair.
    """
    pairs = [pair for side in references for pair in zip(sources, side, strict=True) if not any(map(is_blank, pair))]
    if not pairs:
        return math.nan
    pairs.sort(key=lambda pair: len(pair[1]))  # Similar lengths need little padding.

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2, autograph=False)
    def sums(source, target):
        found = log_probs(translator, source, target).flat_values
        return tf.reduce_sum(found), tf.size(found)

    total = tokens = 0
    for first in range(0, len(pairs), PAIRS):
        log_prob, count = sums(*map(tf.constant, zip(*pairs[first : first + PAIRS], strict=True)))
        total, tokens = total + float(log_prob), tokens + int(count)
    return math.exp(min(-total / tokens, 709.0))  # exp of more is not a finite float.
