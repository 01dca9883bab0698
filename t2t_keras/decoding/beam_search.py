"""Beam search (section 6.1): a pure function over a step; score(Y) = log P(Y) / lp(Y), lp(Y) = ((5 + |Y|) / 6)^α.

Letters: B sentences, R of them that the step still works on, W beams, V vocabulary, T tokens written so far.
"""

import tensorflow as tf

IMPOSSIBLE = float("-inf")
_FEWER = 0.75  # When this share of the sentences in the state is left, the others leave it.


def length_penalty(length, alpha):
    """Wu et al. (2016), equation 14: ((5 + |Y|) / 6)^α, where |Y| counts the end token."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


def _gather(nest, index):
    """Rows [B, W, …] of each sentence by index [B, W']."""
    return tf.nest.map_structure(lambda x: tf.gather(x, index, batch_dims=1), nest)


def _block(vocab_size: int) -> int:
    """The divisor of V nearest to 100: what V is cut into to find its largest values."""
    return min((n for n in range(1, vocab_size + 1) if vocab_size % n == 0), key=lambda n: abs(n - 100))


def largest(x, number: int):
    """`tf.math.top_k` of [N, V] float32, V static: by the largest of each block first, six times as fast where V is large.

    Returns:
        values [N, number] float32, largest first, and their indices [N, number] int32.
    """
    rows, vocab_size = tf.shape(x)[0], x.shape[-1]
    block = _block(vocab_size)
    if vocab_size // block < 4 * number or block < 8:
        return tf.math.top_k(x, number)
    blocks = tf.reshape(x, [rows, vocab_size // block, block])
    # The k largest values lie in the k blocks of the largest maxima. In order, so that of equal values the first comes first.
    _, chosen = tf.math.top_k(tf.reduce_max(blocks, axis=-1), number)
    chosen = tf.sort(chosen, axis=-1)
    values, index = tf.math.top_k(tf.reshape(tf.gather(blocks, chosen, batch_dims=1), [rows, number * block]), number)
    return values, tf.gather(chosen, index // block, batch_dims=1) * block + index % block


def likeliest(logits, number: int):
    """log P of the likeliest tokens. [N, V] float32 → log P [N, number], largest first; tokens [N, number] int32; log Σ exp [N, 1].

    What has P < 10⁻³⁸, float32's end, beside others of the row counts as one.
    """
    # One pass of softmax over V where a log-softmax makes several; log Σ exp(x) = x - log P(x), most exact for the largest.
    probabilities, tokens = largest(tf.nn.softmax(logits), number)
    values = tf.gather(logits, tokens, batch_dims=1)
    normalizer = values[:, :1] - tf.math.log(probabilities[:, :1])
    return values - normalizer, tokens, normalizer


def beam_search(step, state, start, *, eos_id: int, beam_size: int, max_length, alpha, n_best=None, prefix=None):
    """The best continuations of `start`, best first.

    A hypothesis that ends is set aside with its score. A sentence is done when no running hypothesis could still be one of the
    best `n_best`, however long it grew, or at its own `max_length`. It then leaves the state, so the step works on fewer
    sentences; a translation does not depend on the sentences beside it.

    Args:
        step: (tokens [R, W] int32, ancestors [R, W, T + 1] int32, position T, state) → (logits [R, W, V] float32, state). Beams
            are never reordered in the state. Instead `ancestors` says which beam wrote each token of a hypothesis: token t of
            beam w was the one at [ancestors[w, t]] of the `tokens` at position t, so its last entry is always w itself.
        state: nest of tensors [B, …], all that the step has about each sentence. An axis that is statically 0 may grow.
        start: [B] int32, the token that is read first; it is not part of the result.
        eos_id: the token that ends a hypothesis.
        beam_size: W; 1 is greedy search.
        max_length: [B] int32, most tokens written for each sentence, the end token counted; at least 1.
        alpha: of the length penalty; a number or [B] float32.
        n_best: [B] int32, how many hypotheses will be looked at, 1 … W; all W if not given. The others may not be the best.
        prefix: [B, P] int32, tokens that each translation begins with, then zeros; not `eos_id`.

    Returns:
        sequences: [B, W, T] int32, 0 after the end. One without `eos_id` did not end in time; it comes after all that did.
        scores: [B, W] float32; -inf in a place that no hypothesis takes.
    """
    batch, beams = tf.shape(start)[0], tf.range(beam_size)
    alpha = tf.broadcast_to(tf.convert_to_tensor(alpha, tf.float32), [batch])[:, None]
    last = tf.fill([batch, 1], beam_size - 1) if n_best is None else n_best[:, None] - 1
    prefix = tf.zeros([batch, 0], tf.int32) if prefix is None else prefix
    longest = tf.reshape(max_length, [batch, 1])
    best_penalty = tf.maximum(length_penalty(longest, alpha), length_penalty(1, alpha))
    number_of_candidates = 2 * beam_size if beam_size > 1 else 1

    def candidates(position, log_probs, logits, prefix):
        """The best ways to go on from beams of log P [R, W]: log P, parent and token, each [R, 2 W]."""
        vocab_size = logits.shape[-1]
        # Every beam ends at most once, so 2 W candidates hold W that go on.
        number = min(number_of_candidates, vocab_size)
        values, tokens, normalizer = likeliest(tf.reshape(logits, [-1, vocab_size]), number)
        totals = tf.reshape(log_probs, [-1, 1]) + values
        totals, index = tf.math.top_k(tf.reshape(totals, [-1, beam_size * number]), number_of_candidates)
        tokens = tf.gather(tf.reshape(tokens, [-1, beam_size * number]), index, batch_dims=1)
        parents = index // number
        if prefix.shape[1] != 0:
            wanted = tf.pad(prefix, [[0, 0], [0, 1]])[:, tf.minimum(position, tf.shape(prefix)[1])]
            forced = tf.gather(logits[:, 0], wanted, batch_dims=1) - tf.reshape(normalizer, [-1, beam_size])[:, 0] + log_probs[:, 0]
            only = tf.concat([forced[:, None], tf.fill([tf.size(wanted), number_of_candidates - 1], IMPOSSIBLE)], axis=1)
            is_forced = (wanted > 0)[:, None]
            totals, tokens = tf.where(is_forced, only, totals), tf.where(is_forced, wanted[:, None], tokens)
            parents = tf.where(is_forced, 0, parents)
        return totals, parents, tokens

    def body(position, done, running, finished, rows, state):
        active = tf.logical_not(done) & (position < max_length)
        working = tf.gather(active, rows)
        left = tf.reduce_sum(tf.cast(working, tf.float32))

        def without_those_done():
            kept = tf.boolean_mask(tf.range(tf.size(rows)), working)
            return tf.nest.map_structure(lambda x: tf.gather(x, kept), (rows, state))

        rows, state = tf.cond(left <= _FEWER * tf.cast(tf.size(rows), tf.float32), without_those_done, lambda: (rows, state))
        here = {name: tf.gather(running[name], rows) for name in ("tokens", "ancestors", "log_probs")}
        logits, state = step(here["tokens"], here["ancestors"], position, state)
        found = candidates(position, here["log_probs"], logits, tf.gather(prefix, rows))
        totals, parent, token = (tf.scatter_nd(rows[:, None], x, [batch, number_of_candidates]) for x in found)
        ends = token == eos_id
        sequences = tf.concat([_gather(running["sequences"], parent), token[:, :, None]], axis=2)

        # The W best of those that ended before and those that end now.
        ended = tf.where(ends & active[:, None], totals / length_penalty(position + 1, alpha), IMPOSSIBLE)
        scores, kept = tf.math.top_k(tf.concat([finished["scores"], ended], axis=1), beam_size)
        both = tf.concat([tf.pad(finished["sequences"], [[0, 0], [0, 0], [0, 1]]), sequences], axis=1)
        finished = {"scores": scores, "sequences": _gather(both, kept)}

        going_on, kept = tf.math.top_k(tf.where(ends, IMPOSSIBLE, totals), beam_size)
        ancestors = _gather(running["ancestors"], _gather(parent, kept))
        following = {"log_probs": going_on, "tokens": _gather(token, kept), "sequences": _gather(sequences, kept), "ancestors": ancestors}
        unchanged = {**running, "sequences": tf.pad(running["sequences"], [[0, 0], [0, 0], [0, 1]])}
        running = tf.nest.map_structure(
            lambda new, old: tf.where(tf.reshape(active, [-1] + [1] * (len(new.shape) - 1)), new, old), following, unchanged
        )
        running["ancestors"] = tf.concat([running["ancestors"], themselves], axis=2)
        best_to_come = running["log_probs"][:, :1] / best_penalty
        done |= tf.squeeze(best_to_come <= tf.gather(finished["scores"], last, batch_dims=1), axis=1)
        return position + 1, done, running, finished, rows, state

    def goes_on(position, done, *_):
        return tf.reduce_any(tf.logical_not(done) & (position < max_length))

    nothing = tf.zeros([batch, beam_size, 0], tf.int32)
    themselves = tf.tile(beams[None, :, None], [batch, 1, 1])
    running = {
        # All beams start alike, so all but the first are ruled out.
        "log_probs": tf.tile(tf.where(beams == 0, 0.0, IMPOSSIBLE)[None], [batch, 1]),
        "tokens": tf.tile(start[:, None], [1, beam_size]),
        "sequences": nothing,
        "ancestors": themselves,
    }
    finished = {"scores": tf.fill([batch, beam_size], IMPOSSIBLE), "sequences": nothing}
    initial = (tf.constant(0), tf.zeros([batch], tf.bool), running, finished, tf.range(batch), state)

    written, scores = tf.TensorShape([None, beam_size, None]), tf.TensorShape([None, beam_size])
    shapes = (
        tf.TensorShape([]),
        tf.TensorShape([None]),
        {"log_probs": scores, "tokens": scores, "sequences": written, "ancestors": written},
        {"scores": scores, "sequences": written},
        tf.TensorShape([None]),
        tf.nest.map_structure(lambda x: tf.TensorShape([None] + [size or None for size in x.shape[1:]]), state),
    )
    _, _, running, finished, _, _ = tf.while_loop(goes_on, body, initial, shape_invariants=shapes)

    # Those that ended come first; running ones, all of one length and sorted already, fill the places left.
    number_ended = tf.reduce_sum(tf.cast(finished["scores"] > IMPOSSIBLE, tf.int32), axis=1, keepdims=True)
    running_scores = running["log_probs"] / length_penalty(longest, alpha)
    chosen = tf.where(beams[None] < number_ended, beams[None], beam_size + beams[None] - number_ended)
    sequences = tf.concat([finished["sequences"], running["sequences"]], axis=1)
    return _gather((sequences, tf.concat([finished["scores"], running_scores], axis=1)), chosen)
