"""The two hooks of beam search: what scores continuations, and what selects them.

A hook has a state, a nest of tensors [R, …] or [R, W, …] with a row for each sentence. Finished sentences leave it as
they leave the state of the step. A state for each beam is not reordered: the hook does so itself, with
`model.beams.follow`.

Letters: B sentences, R sentences still in the state, W beams, N continuations of a sentence, V vocabulary, T tokens
written so far.
"""

from typing import NamedTuple

import tensorflow as tf

IMPOSSIBLE = float("-inf")


class Hypotheses(NamedTuple):
    """The unfinished hypotheses that hooks continue. Before the first token, a sentence has one, in its first beam.
    Rows of finished sentences may be among them, with any content: what is selected for them is ignored.
    """

    position: tf.Tensor  # [] int32, T
    log_probs: tf.Tensor  # [R, W] float32, log P of each so far, -inf in an empty place
    tokens: tf.Tensor  # [R, W] int32, the last token of each, which the step has just read
    ancestors: tf.Tensor  # [R, W, T + 1] int32, the beam that read each token; see `beam_search`
    sequences: tf.Tensor  # [R, W, T] int32, all tokens but the start token


class Scorer:
    """Changes the scores of continuations, for example to -inf for those that are not allowed.

    Attributes:
        state: its state before the first token, a nest of tensors [B, …]. An axis of static size 0 may grow.

    Example:

    ```python
    class Forbidden(t2t_keras.Scorer):  # Never writes one token of each sentence, [B] int32.
        def __init__(self, tokens):
            self.state = tokens

        def __call__(self, log_probs, hypotheses, tokens):
            forbidden = tokens[:, None, None] == np.arange(log_probs.shape[-1])
            return ops.where(forbidden, -np.inf, log_probs), tokens

    log_probs, _ = Forbidden(np.array([1]))(np.zeros((1, 2, 3)), None, np.array([1]))
    log_probs.numpy().tolist()  # [[[0.0, -inf, 0.0], [0.0, -inf, 0.0]]]
    ```
    """

    state = ()

    def applies(self, position):
        """Returns whether the scorer is still needed: `True`, or [] boolean that stays False once it is.

        The search does not call it at positions where it is False, and is fastest where it is False for all scorers.
        """
        return True

    def __call__(self, log_probs, hypotheses: Hypotheses, state) -> tuple:
        """Scores the continuations by one token.

        Args:
            log_probs: [R, W, V] float32, log P of the next token, as changed by the scorers before this one.
            hypotheses: what is continued.
            state: the state that the last call returned.

        Returns:
            log_probs: [R, W, V] float32, at most 0, or the search may end too early. They need not sum to 1.
            state: the next state.
        """
        raise NotImplementedError


class Selector:
    """Selects the continuations of each sentence.

    Attributes:
        state: its state before the first token, a nest of tensors [B, …]. An axis of static size 0 may grow.

    Example:

    ```python
    class Likeliest(t2t_keras.Selector):  # Continues each beam by its most likely token.
        def number(self, beam_size):
            return beam_size

        def __call__(self, log_probs, hypotheses, state):
            tokens = ops.argmax(log_probs, axis=-1)
            parents = ops.zeros_like(tokens) + np.arange(tokens.shape[1])
            return (hypotheses.log_probs + ops.max(log_probs, axis=-1), parents, tokens), state

    hypotheses = Hypotheses(0, np.zeros((1, 2)), None, None, None)  # Of decoding/search_hooks.py.
    (_, parents, tokens), _ = Likeliest()(np.log([[[0.2, 0.8], [0.6, 0.4]]]), hypotheses, ())
    tokens.numpy().tolist(), parents.numpy().tolist()  # ([[1, 0]], [[0, 1]])
    ```
    """

    state = ()

    def applies(self, position):
        """Returns whether it is still needed, as a `Scorer` does. Where it is not, `Best` selects, with the same N."""
        return True

    def number(self, beam_size: int) -> int:
        """Returns N, the number of continuations, at least W. By default 2 W, of which at most W have an end token; 1
        in greedy search.
        """
        return 2 * beam_size if beam_size > 1 else 1

    def groups(self, beam_size: int) -> int:
        """Returns G, the number of groups of W / G consecutive beams that do not compete with those of other groups.

        Of N continuations, each group has N / G consecutive ones; their parents are its own beams. It has its own
        finished hypotheses.
        """
        return 1

    def __call__(self, log_probs, hypotheses: Hypotheses, state) -> tuple:
        """Selects N continuations. The first W of those without an end token are the next hypotheses, in this order.

        Args:
            log_probs: [R, W, V] float32, scores of the next token.
            hypotheses: what is continued.
            state: the state that the last call returned.

        Returns:
            totals: [R, N] float32, the scores of hypotheses with their continuations; -inf leaves a place empty.
            parents: [R, N] int32, the beam that each one continues.
            tokens: [R, N] int32.

            These three in a tuple, and the next state.
        """
        raise NotImplementedError

    def of_unscored(self, logits, hypotheses: Hypotheses, state) -> tuple:
        """Selects as a call does, from logits [R, W, V], in a search without scorers. It may be faster if it needs no
        log P.
        """
        return self(normalized(logits), hypotheses, state)


class Prefix(Scorer):
    """Forces the first tokens of each translation.

    Args:
        prefix: [B, P] int32, padded with zeros; without the end token.
    """

    def __init__(self, prefix):
        self.state, self.length = prefix, tf.shape(prefix)[1]

    def applies(self, position):
        return position < self.length

    def __call__(self, log_probs, hypotheses, prefix):
        forced = tf.pad(prefix, [[0, 0], [0, 1]])[:, tf.minimum(hypotheses.position, self.length), None]
        allowed = (forced == 0) | (forced == tf.range(log_probs.shape[-1]))
        return tf.where(allowed[:, None], log_probs, IMPOSSIBLE), prefix


class NoRepeatedNgrams(Scorer):
    """Forbids each token that would complete an n-gram of its hypothesis for the second time, unless nothing else is
    allowed (Paulus et al. 2017, https://arxiv.org/abs/1705.04304, section 2.5).

    Args:
        size: n, at least 1.
    """

    def __init__(self, size: int):
        self._before = size - 1

    def __call__(self, log_probs, hypotheses: Hypotheses, state):
        # Nothing, -1, stands before the first token, so that every token comes after n - 1 others.
        written = tf.pad(hypotheses.sequences, [[0, 0], [0, 0], [self._before, 0]], constant_values=-1)
        position = hypotheses.position

        def compare(place, again):
            return place - 1, again & (written[:, :, place : place + position] == written[:, :, place + position, None])

        # [R, W, T], whether a token comes after what is last now. The last token is compared first: few come after it,
        # so that the loop soon ends for any n.
        again = tf.ones_like(hypotheses.sequences, tf.bool)
        _, again = tf.while_loop(
            lambda place, again: tf.reduce_any(again),
            compare,
            (self._before - 1, again),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, None, None])),
            maximum_iterations=self._before,
        )
        vocab_size = log_probs.shape[-1]
        rows = tf.reshape(log_probs, [-1, vocab_size])
        repeated = tf.where(tf.reshape(again, [-1, position]))
        tokens = tf.gather_nd(tf.reshape(hypotheses.sequences, [-1, position]), repeated)
        places = tf.stack([repeated[:, 0], tf.cast(tokens, tf.int64)], axis=1)
        allowed = tf.tensor_scatter_nd_update(rows, places, tf.fill([tf.shape(places)[0]], IMPOSSIBLE))
        possible = tf.reduce_max(allowed, axis=1, keepdims=True) > IMPOSSIBLE
        return tf.reshape(tf.where(possible, allowed, rows), tf.shape(log_probs)), state


class Best(Selector):
    """Selects the best continuations: beam search, or greedy search if W is 1."""

    def __call__(self, log_probs, hypotheses, state):
        number, vocab_size = self.number(hypotheses.log_probs.shape[1]), log_probs.shape[-1]
        values, tokens = largest(tf.reshape(log_probs, [-1, vocab_size]), min(number, vocab_size))
        return _best(values, tokens, hypotheses.log_probs, number), state

    def of_logits(self, logits, log_probs):
        """Selects as a call does, but faster: of the logits [R, W, V], only those of likely tokens are normalized. The
        `log_probs` [R, W] are those of the hypotheses.
        """
        number, vocab_size = self.number(log_probs.shape[1]), logits.shape[-1]
        values, tokens, _ = top_log_probs(tf.reshape(logits, [-1, vocab_size]), min(number, vocab_size))
        return _best(values, tokens, log_probs, number)


BEST = Best()


def _best(values, tokens, log_probs, number: int) -> tuple:
    """Selects the best continuations of each sentence.

    Args:
        values: log P of the K best continuations of each beam, [R · W, K].
        tokens: their tokens, [R · W, K].
        log_probs: log P of the hypotheses, [R, W].
        number: N.

    Returns:
        totals, parents and tokens, each [R, N].
    """
    beam_size, per_beam = log_probs.shape[1], values.shape[1]
    totals = tf.reshape(log_probs, [-1, 1]) + values
    totals, index = tf.math.top_k(tf.reshape(totals, [-1, beam_size * per_beam]), number)
    return totals, index // per_beam, tf.gather(tf.reshape(tokens, [-1, beam_size * per_beam]), index, batch_dims=1)


def normalized(logits):
    """Computes log P of all tokens, with the same bits as `top_log_probs`: [R, W, V] float32 → [R, W, V]."""
    rows = tf.reshape(logits, [-1, logits.shape[-1]])
    *_, normalizer = top_log_probs(rows, 1)
    return tf.reshape(rows - normalizer, tf.shape(logits))


def top_log_probs(logits, number: int):
    """Finds the most likely tokens. Tokens with P < 10⁻³⁸, the smallest float32, are not distinguished.

    Args:
        logits: [N, V] float32.
        number: how many tokens to find in each row, k.

    Returns:
        log P [N, k] float32, largest first; the tokens [N, k] int32; and log Σ exp(logits) [N, 1] float32.
    """
    # A softmax reads V once, a log-softmax several times. log Σ exp(x) = x - log P(x), which is most accurate for the
    # largest x.
    probabilities, tokens = largest(tf.nn.softmax(logits), number)
    values = tf.gather(logits, tokens, batch_dims=1)
    normalizer = values[:, :1] - tf.math.log(probabilities[:, :1])
    return values - normalizer, tokens, normalizer


def block_size(vocab_size: int) -> int:
    """Returns the divisor of V nearest to 100, the size of the blocks in which `largest` searches."""
    return min((n for n in range(1, vocab_size + 1) if vocab_size % n == 0), key=lambda n: abs(n - 100))


def largest(x, number: int):
    """Computes `tf.math.top_k`, six times as fast for a large V: it finds the best blocks first.

    Args:
        x: [N, V] float32, V static.
        number: how many values to find in each row, k.

    Returns:
        Values [N, k] float32, largest first, and their indices [N, k] int32.
    """
    rows, vocab_size = tf.shape(x)[0], x.shape[-1]
    block = block_size(vocab_size)
    if vocab_size // block < 4 * number or block < 8:
        return tf.math.top_k(x, number)
    blocks = tf.reshape(x, [rows, vocab_size // block, block])
    # The k largest values are in the k blocks with the largest maxima. Sorting the blocks puts the first of equal
    # values first.
    _, chosen = tf.math.top_k(tf.reduce_max(blocks, axis=-1), number)
    chosen = tf.sort(chosen, axis=-1)
    values, index = tf.math.top_k(tf.reshape(tf.gather(blocks, chosen, batch_dims=1), [rows, number * block]), number)
    return values, tf.gather(chosen, index // block, batch_dims=1) * block + index % block
