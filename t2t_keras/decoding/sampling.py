"""Sampling: translations drawn with the probabilities of the model, for back-translation and minimum Bayes risk.

A draw depends on the seed of its sentence, its own number and its probabilities alone. Each random number is a hash of
the seed, the number of the draw and the position, because TensorFlow's stateless generators take one seed for a whole
tensor.

Letters: R sentences still in the state, W beams, N rows, V vocabulary.
"""

from collections.abc import Callable

import tensorflow as tf

from t2t_keras.decoding.search_hooks import Hypotheses, Selector, block_size, normalized

AT_ONCE = 4  # Draws of a sentence that share the encoder's output, and a row of a sub-batch.


def random_bits(seed, index):
    """Returns the numbers of given indices in the sequences of given seeds, by SplitMix64 (Steele, Lea and Flood 2014).

    Args:
        seed: uint64.
        index: uint64, from 0; it broadcasts with `seed`.

    Returns:
        uint64.
    """
    x = seed + (index + 1) * tf.constant(0x9E3779B97F4A7C15, tf.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ tf.bitwise.right_shift(x, tf.constant(shift, tf.uint64))) * tf.constant(factor, tf.uint64)
    return x ^ tf.bitwise.right_shift(x, tf.constant(31, tf.uint64))


def keys(seed, draw):
    """Returns the key of each draw, uint64, which is its seed.

    Args:
        seed: int64, of a sentence.
        draw: int32, the number of a draw, from 0; it broadcasts with `seed`.
    """
    return random_bits(tf.cast(seed, tf.uint64), tf.cast(draw, tf.uint64))


def seed_of_line(seed, number):
    """Returns the seed of a line, 2³² · seed + number, where lines count from 0; numbers or arrays."""
    return seed * 2**32 + number


def _uniform(bits):
    """Converts random bits to numbers in [0, 1), float64."""
    return tf.cast(tf.cast(tf.bitwise.right_shift(bits, tf.constant(12, tf.uint64)), tf.int64), tf.float64) * 2.0**-52


def _find(weights, uniform):
    """Finds the index at which the cumulative weight passes a share of the total. Its weight is above 0.

    Args:
        weights: [N, X], at least 0.
        uniform: the share, [N] float64 in [0, 1).

    Returns:
        The index, [N] int32, and which share of the weight at this index is passed, [N] float64.
    """
    weights = tf.cast(weights, tf.float64)
    cumulative = tf.cumsum(weights, axis=1)
    total = cumulative[:, -1:]
    wanted = uniform[:, None] * total
    index = tf.reduce_sum(tf.cast((cumulative <= wanted) & (cumulative < total), tf.int32), axis=1, keepdims=True)
    weight, end = (tf.gather(x, index, batch_dims=1) for x in (weights, cumulative))
    rest = tf.clip_by_value((wanted - end + weight) / weight, 0.0, 1.0)
    return tf.squeeze(index, axis=1), tf.squeeze(rest, axis=1)


def draw(probabilities, uniform):
    """Draws a token of each row by the inverse of the cumulative distribution: first a block of tokens, then one of
    them.

    Args:
        probabilities: [N, V] float32, V static; they need not sum to 1.
        uniform: [N] float64 in [0, 1).

    Returns:
        [N] int32.
    """
    size, vocab_size = block_size(probabilities.shape[1]), probabilities.shape[1]
    blocks = tf.reshape(probabilities, [-1, vocab_size // size, size])
    block, rest = _find(tf.reduce_sum(blocks, axis=2), uniform)
    token, _ = _find(tf.gather(blocks, block, batch_dims=1), rest)
    return block * size + token


def _bound(probabilities, top_k):
    """Returns a lower bound of the k-th largest probability of each row, [N, 1]: the k-th largest block maximum, or 0
    if k is 0.
    """
    size, vocab_size = block_size(probabilities.shape[1]), probabilities.shape[1]
    number = vocab_size // size
    maxima = tf.reduce_max(tf.reshape(probabilities, [-1, number, size]), axis=2)
    maxima = tf.pad(tf.sort(maxima, axis=1, direction="DESCENDING"), [[0, 0], [1, 1]])
    return tf.gather(maxima, tf.minimum(top_k, number + 1)[:, None], batch_dims=1)


def draw_of_most_likely(probabilities, top_k, top_p, uniform: Callable):
    """Draws a token of each row from its most likely ones.

    It draws until a token is among them, each time from those that are more likely than the last: without sorting,
    after few rounds (the rejection sampling of FlashInfer's `top_k_top_p_sampling_from_probs`).

    Args:
        probabilities: [N, V] float32, which sum to 1.
        top_k: [N] int32, k: the token is among the k most likely ones; 0 allows all.
        top_p: [N] float32, p: the tokens more likely than the one drawn have together less than p; 1 allows all.
        uniform: (number of a round, rows [M] int32) → [M] float64 in [0, 1).

    Returns:
        [N] int32.
    """

    def again(number, tokens, rows):
        probs, k, p, last = (tf.gather(x, rows) for x in (probabilities, top_k, top_p, tokens))
        more_likely = probs > tf.gather(probs, last[:, None], batch_dims=1)
        none = tf.zeros_like(rows, tf.bool)
        beyond_k = tf.cond(
            tf.reduce_any(k > 0),
            lambda: (k > 0) & (tf.reduce_sum(tf.cast(more_likely, tf.int32), axis=1) >= k),
            lambda: none,
        )
        beyond_p = tf.cond(
            tf.reduce_any(p < 1),
            lambda: (p < 1) & (tf.reduce_sum(tf.where(more_likely, probs, 0.0), axis=1) >= p),
            lambda: none,
        )
        wrong = beyond_k | beyond_p
        rows, probs, more_likely = (tf.boolean_mask(x, wrong) for x in (rows, probs, more_likely))
        others = draw(tf.where(more_likely, probs, 0.0), uniform(number, rows))
        return number + 1, tf.tensor_scatter_nd_update(tokens, rows[:, None], others), rows

    def limited():
        allowed = tf.where(probabilities >= _bound(probabilities, top_k), probabilities, 0.0)
        first = tf.cond(tf.reduce_any(top_k > 0), lambda: draw(allowed, uniform(0, every)), whole)
        rows = tf.cast(tf.where((top_k > 0) | (top_p < 1))[:, 0], tf.int32)
        shapes = (tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([None]))
        return tf.while_loop(
            lambda number, tokens, rows: tf.size(rows) > 0, again, (1, first, rows), shape_invariants=shapes
        )[1]

    every = tf.range(tf.shape(probabilities)[0])
    whole = lambda: draw(probabilities, uniform(0, every))  # noqa: E731
    return tf.cond(tf.reduce_any((top_k > 0) | (top_p < 1)), limited, whole)


def divided(rows: dict, draws) -> dict:
    """Repeats the rows of sentences [B, …], so that each has at most `AT_ONCE` draws.

    Returns:
        The rows [R, …], with "draws", the number of draws of each, and "first", the number of its first one; both [R]
        int32.
    """
    parts = -(-draws // AT_ONCE)
    first = AT_ONCE * tf.ragged.range(parts).values
    rows = {name: tf.gather(x, tf.repeat(tf.range(tf.size(draws)), parts)) for name, x in rows.items()}
    return {**rows, "draws": tf.minimum(tf.repeat(draws, parts) - first, AT_ONCE), "first": first}


def repeated(memory, rows: dict) -> tuple:
    """Repeats what the encoder has read, a nest of tensors [R, …], and the rows [R, …] of `divided` for each draw."""
    memory, draws = tf.nest.map_structure(lambda x: tf.repeat(x, rows["draws"], axis=0), (memory, rows))
    return memory, {**draws, "number": draws["first"] + tf.ragged.range(rows["draws"]).values}


def sampled(draws: dict) -> "Sampled":
    """Builds the selector for sampling from the rows of `repeated`. Every draw is its own search with `beam_size=1`."""
    draw_keys = keys(draws["seed"], draws["number"])[:, None]
    return Sampled(draw_keys, draws["temperature"], draws["top_k"], draws["top_p"])


class Sampled(Selector):
    """Draws a continuation of each beam. Every beam is a draw from the first token on, and stays until the search ends.

    With temperature τ, a token is drawn with a probability proportional to P^(1 / τ), among those that `top_k` and
    `top_p` allow. Totals are log P of the model.

    Args:
        keys: [B, W] uint64, see `keys`.
        temperature: [B] float32, τ, above 0.
        top_k: [B] int32, number of most likely tokens to draw from; 0: all.
        top_p: [B] float32, probability in (0, 1] that the tokens to draw from reach, most likely first (Holtzman et al.
            2020).
    """

    def __init__(self, keys, temperature, top_k, top_p):
        self.state = (keys, temperature, top_k, top_p)

    def number(self, beam_size):
        return beam_size

    def groups(self, beam_size):
        return beam_size

    def __call__(self, log_probs, hypotheses: Hypotheses, state):
        tokens = self._draw(tf.nn.softmax(log_probs / state[1][:, None, None]), hypotheses.position, state)
        return self._continuations(tokens, tf.gather(log_probs, tokens, batch_dims=2), hypotheses), state

    def of_unscored(self, logits, hypotheses, state):
        temperature = state[1][:, None, None]
        other = tf.reduce_any(temperature != 1)
        probabilities = tf.cond(other, lambda: tf.nn.softmax(logits / temperature), lambda: tf.nn.softmax(logits))
        tokens = self._draw(probabilities, hypotheses.position, state)

        def at_tokens(x):
            return tf.gather(x, tokens, batch_dims=2)

        values = tf.cond(other, lambda: at_tokens(normalized(logits)), lambda: tf.math.log(at_tokens(probabilities)))
        return self._continuations(tokens, values, hypotheses), state

    def _draw(self, probabilities, position, state):
        """Draws a token of each beam: [R, W, V] → [R, W]."""
        keys, _, top_k, top_p = state
        beam_size, vocab_size = probabilities.shape[1:]
        bits = tf.reshape(random_bits(keys, tf.cast(position, tf.uint64)), [-1])
        tokens = draw_of_most_likely(
            tf.reshape(probabilities, [-1, vocab_size]),
            tf.repeat(top_k, beam_size),
            tf.repeat(top_p, beam_size),
            lambda number, rows: _uniform(random_bits(tf.gather(bits, rows), tf.cast(number, tf.uint64))),
        )
        return tf.reshape(tokens, [-1, beam_size])

    def _continuations(self, tokens, log_probs, hypotheses: Hypotheses) -> tuple:
        """Returns totals, parents and tokens. Before the first token, all beams continue the first hypothesis."""
        before = tf.where(hypotheses.position == 0, hypotheses.log_probs[:, :1], hypotheses.log_probs)
        return before + log_probs, tf.zeros_like(tokens) + tf.range(tokens.shape[1]), tokens
