"""Scores pairs of sentences by two models that translate in opposite directions (Junczys-Dowmunt 2018, arXiv
1809.00197, section 2.1).

|H_f − H_b| + ½ (H_f + H_b), where H_f is the cross-entropy of the target given the source, per sub-word, and H_b that
of the source given the target: small if both models expect the pair, and to the same extent.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.translator import Translator
from t2t_keras.evaluation import perplexity


def _cross_entropies(translator: Translator) -> Callable:
    """Returns a function from sources and targets, [B] string each, to cross-entropies: [B] float32, in nats per
    sub-word.
    """

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2, autograph=False)
    def cross_entropies(source, target):
        return -tf.reduce_mean(perplexity.log_probs(translator, source, target), axis=1)

    return cross_entropies


def dual_cross_entropy(
    forward: Translator, backward: Translator
) -> Callable[[Sequence[str], Sequence[str]], list[float]]:
    """Returns a function from sources and targets, none of them blank, to the score of each pair, in nats.

    Args:
        forward: translates sources.
        backward: translates targets, with any sub-words.
    """
    models = _cross_entropies(forward), _cross_entropies(backward)

    def scores(sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        order = np.argsort([len(target) for target in targets], kind="stable")  # Similar lengths need little padding.
        found = np.empty(len(order))
        for first in range(0, len(order), perplexity.PAIRS):
            chosen = order[first : first + perplexity.PAIRS]
            pair = [tf.constant([side[index] for index in chosen]) for side in (sources, targets)]
            ahead, back = (np.float64(model(*sides)) for model, sides in zip(models, (pair, pair[::-1]), strict=True))
            found[chosen] = np.abs(ahead - back) + (ahead + back) / 2
        return found.tolist()

    return scores
