"""Cross-entropy per sub-word, in nats: the perplexity of references, and a score of pairs by two models.

Perplexity is exp of the mean negative log likelihood of references given their sources.

Dual conditional cross-entropy (Junczys-Dowmunt 2018, arXiv 1809.00197, section 2.1) is |H_f − H_b| + ½ (H_f + H_b),
where H_f is the cross-entropy of the target given the source, and H_b that of the source given the target by a model
that translates back. It is small if both models expect the pair, and to the same extent.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.translator import Translator
from t2t_keras.runs.task import perplexity as perplexity_of
from t2t_keras.text.lines import is_blank

PAIRS = 512  # Pairs to tokenise at once.
# Sub-words of a sentence that are scored at least: attention takes memory with the square of the length.
_LONGEST = 2**12


def log_probs(translator: Translator, source, target) -> tf.RaggedTensor:
    """Returns log P of each sub-word of targets given their sources, end tokens included: [B] string, [B] string → [B,
    (T)] float32. Sentences are cut to 4,096 sub-words, or to what the model translates if that is more.
    """
    phrases, longest = translator.tokenizer.kept(source), max(_LONGEST, translator.config.max_input)
    sources = translator.source_tokenizer.tokenize(source, max_length=longest, kept=phrases)
    longest = max(_LONGEST, translator.config.max_input + translator.config.extra_length)
    targets = translator.tokenizer.tokenize(target, max_length=longest, kept=phrases)
    return translator.log_probs(sources, targets)


def perplexity(translator: Translator, sources: list[str], *references: list[str]) -> float:
    """Computes the perplexity, at least 1, over all sub-words of one or more lists of references, including end tokens.
    Pairs with a blank side are ignored; NaN if there is no other pair. Very long sentences are cut; see `log_probs`.
    """
    pairs = [pair for side in references for pair in zip(sources, side, strict=True) if not any(map(is_blank, pair))]
    if not pairs:
        return math.nan
    pairs.sort(key=lambda pair: len(pair[1]))  # Similar lengths need little padding.

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2, autograph=False)
    def sums(source, target):
        values = log_probs(translator, source, target).flat_values
        return tf.reduce_sum(values), tf.size(values)

    total = tokens = 0
    for first in range(0, len(pairs), PAIRS):
        log_prob, count = sums(*map(tf.constant, zip(*pairs[first : first + PAIRS], strict=True)))
        total, tokens = total + float(log_prob), tokens + int(count)
    return perplexity_of(-total / tokens)


def _cross_entropies(translator: Translator) -> Callable:
    """Returns a function from sources and targets, [B] string, to cross-entropies, [B] float32 in nats per sub-word."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2, autograph=False)
    def cross_entropies(source, target):
        return -tf.reduce_mean(log_probs(translator, source, target), axis=1)

    return cross_entropies


def dual_cross_entropy(
    forward: Translator, backward: Translator
) -> Callable[[Sequence[str], Sequence[str]], list[float]]:
    """Returns a function from sources and targets, none of them blank, to the score of each pair, in nats. `forward`
    translates sources, and `backward` targets, with any sub-words.
    """
    models = _cross_entropies(forward), _cross_entropies(backward)

    def scores(sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        order = np.argsort([len(target) for target in targets], kind="stable")  # Similar lengths need little padding.
        values = np.empty(len(order))
        for first in range(0, len(order), PAIRS):
            chosen = order[first : first + PAIRS]
            pair = [tf.constant([side[index] for index in chosen]) for side in (sources, targets)]
            ahead, back = (np.float64(model(*sides)) for model, sides in zip(models, (pair, pair[::-1]), strict=True))
            values[chosen] = np.abs(ahead - back) + (ahead + back) / 2
        return values.tolist()

    return scores
