"""Reranks n-best lists by the score that another model gives to each translation, such as one that writes from right to
left (Sennrich et al., 2016, section 3.3) or one that translates back (Yee et al., 2019).
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.beam_search import length_penalty
from t2t_keras.decoding.translator import Translator
from t2t_keras.text.tags import without_tag

# The (source, target) that a model scores for a source X and its translation Y.
DIRECTIONS: dict[str, Callable] = {
    "forward": lambda source, target: (source, target),  # P(Y | X)
    # P(Y, its words in reverse | X)
    "right_to_left": lambda source, target: (source, " ".join(reversed(target.split()))),
    "backward": lambda source, target: (target, source),  # P(X | Y)
}


def reranked(
    n_best: Callable,
    other: Translator,
    *,
    weight: float,
    alpha: float,
    direction: str = "forward",
    unknown_tags: Sequence[str] = (),
) -> Callable:
    """Returns a function like `n_best`, whose lists are reordered by score + weight · (log P / lp) of another model.

    Args:
        n_best: [B] string → {"text": [B, W] string, "score": [B, W] float32}, such as that of a `Translator`. Further
            arguments are passed on to it.
        other: the other model, with any sub-words.
        weight: of its scores.
        alpha: exponent of its length penalty lp.
        direction: one of `DIRECTIONS`: "forward"; "right_to_left", for a model of targets with their words in reverse
            order; "backward", for one from the target language to the source language.
        unknown_tags: tags of sources that the other model does not know; it reads the sources without them.

    Empty places of a list stay last, with score 0. A list keeps its order and its scores where the other model cannot
    read the source or a translation whole; "unranked" [B] boolean says so.
    """
    pair_of = DIRECTIONS[direction]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2, autograph=False)
    def scores_of(source, target):
        longest = other.config.max_input
        kept = other.tokenizer.kept(source)
        sources, source_cut = other.source_tokenizer.cut(source, longest, kept)
        targets, target_cut = other.tokenizer.cut(target, longest + other.config.extra_length, kept)
        log_probs = tf.reduce_sum(other.log_probs(sources, targets), axis=1)
        return log_probs / length_penalty(targets.row_lengths(), alpha), source_cut | target_cut

    def rerank(text, *arguments):
        result = n_best(text, *arguments)
        texts, scores = result["text"].numpy(), result["score"].numpy()
        sources = [line.decode("utf-8", "replace") for line in text.numpy()]
        if unknown_tags:
            sources = [without_tag(source, unknown_tags) for source in sources]
        targets = [line.decode("utf-8", "replace") for line in texts.ravel()]
        pairs = list(map(pair_of, np.repeat(np.array(sources, object), texts.shape[1]), targets))
        other_scores, cut = (
            values.numpy().reshape(scores.shape) for values in scores_of(*map(tf.constant, zip(*pairs, strict=True)))
        )
        empty = (scores == 0) & (texts == b"")  # A place without a translation, or a blank source.
        totals = np.where(empty, -np.inf, scores + weight * other_scores)
        order = np.argsort(-totals, axis=1, kind="stable")
        unranked = np.any(cut & ~empty, axis=1)  # The score of a beginning is that of a shorter translation.
        totals[unranked], order[unranked] = scores[unranked], np.arange(scores.shape[1])
        totals = np.take_along_axis(totals, order, axis=1)
        return {
            **result,
            "text": tf.gather(result["text"], order, batch_dims=1),
            "score": tf.constant(np.where(np.isfinite(totals), totals, 0).astype("float32")),
            "unranked": tf.constant(unranked),
        }

    return rerank
