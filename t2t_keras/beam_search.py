"""Beam search (section 6.1): a pure function over a step; score(Y) = log P(Y) / lp(Y), lp(Y) = ((5 + |Y|) / 6)^α.

Letters: B sentences, W beams, V vocabulary, T tokens written so far.
"""

import tensorflow as tf

IMPOSSIBLE = float("-inf")


def length_penalty(length, alpha):
    """Wu et al. (2016), equation 14: ((5 + |Y|) / 6)^α, where |Y| counts the end token."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


def _gather(nest, index):
    """Rows [B, W, …] of each sentence by index [B, W']."""
    return tf.nest.map_structure(lambda x: tf.gather(x, index, batch_dims=1), nest)


def beam_search(step, state, start, *, eos_id: int, beam_size: int, max_length, alpha: float):
    """The best continuations of `start`, best first.

    A hypothesis that ends is set aside with its score. A sentence is done when no running hypothesis could still beat the worst
    of W that ended, however long it grew, or at its own `max_length`. It is then left alone, so a translation does not depend
    on the sentences beside it.

    Args:
        step: (tokens [B·W] int32, position int32, state) → (logits [B·W, V], state). Everything that does not change from
            step to step belongs in its closure.
        state: nest of tensors [B·W, …], which may grow along their second axis; W copies of a sentence are neighbours.
        start: [B] int32, the token that is read first; it is not part of the result.
        eos_id: the token that ends a hypothesis.
        beam_size: W; 1 is greedy search.
        max_length: [B] int32, most tokens written for each sentence, the end token counted; at least 1.
        alpha: of the length penalty.

    Returns:
        sequences: [B, W, T] int32, 0 after the end. One without `eos_id` did not end in time; it comes after all that did.
        scores: [B, W] float32.
    """
    batch, beams = tf.shape(start)[0], tf.range(beam_size)
    first_row = (tf.range(batch) * beam_size)[:, None]
    best_penalty = tf.maximum(length_penalty(max_length, alpha), length_penalty(1, alpha))[:, None]

    def merge_finished(finished, scores, sequences):
        """The W best of those that ended before and those that end now."""
        scores = tf.concat([finished["scores"], scores], axis=1)
        sequences = tf.concat([finished["sequences"], sequences], axis=1)
        scores, kept = tf.math.top_k(scores, beam_size)
        return {"scores": scores, "sequences": _gather(sequences, kept)}

    def body(position, done, running, finished, state):
        active = tf.logical_not(done) & (position < max_length)
        logits, state = step(tf.reshape(running["tokens"], [-1]), position, state)
        log_probs = tf.nn.log_softmax(tf.cast(logits, tf.float32))
        vocab_size = tf.shape(log_probs)[-1]
        totals = tf.reshape(log_probs, [batch, beam_size, -1]) + running["log_probs"][:, :, None]
        # Every beam ends at most once, so 2 W candidates hold W that go on.
        totals, index = tf.math.top_k(tf.reshape(totals, [batch, -1]), 2 * beam_size if beam_size > 1 else 1)
        parent, token = index // vocab_size, index % vocab_size
        ends = token == eos_id
        candidates = tf.concat([_gather(running["sequences"], parent), token[:, :, None]], axis=2)

        ended = tf.where(ends & active[:, None], totals / length_penalty(position + 1, alpha), IMPOSSIBLE)
        finished = {"scores": finished["scores"], "sequences": tf.pad(finished["sequences"], [[0, 0], [0, 0], [0, 1]])}
        finished = merge_finished(finished, ended, candidates)

        going_on, kept = tf.math.top_k(tf.where(ends, IMPOSSIBLE, totals), beam_size)
        unchanged = {**running, "sequences": tf.pad(running["sequences"], [[0, 0], [0, 0], [0, 1]])}
        following = {"log_probs": going_on, "tokens": _gather(token, kept), "sequences": _gather(candidates, kept)}
        running = tf.nest.map_structure(
            lambda new, old: tf.where(tf.reshape(active, [-1] + [1] * (len(new.shape) - 1)), new, old), following, unchanged
        )
        if beam_size > 1:
            rows = tf.reshape(first_row + _gather(parent, kept), [-1])
            state = tf.nest.map_structure(lambda x: tf.gather(x, rows), state)
        best_to_come = running["log_probs"][:, :1] / best_penalty
        done |= tf.squeeze(best_to_come <= finished["scores"][:, -1:], axis=1)
        return position + 1, done, running, finished, state

    def goes_on(position, done, *_):
        return tf.reduce_any(tf.logical_not(done) & (position < max_length))

    nothing = tf.zeros([batch, beam_size, 0], tf.int32)
    running = {
        # All beams start alike, so all but the first are ruled out.
        "log_probs": tf.tile(tf.where(beams == 0, 0.0, IMPOSSIBLE)[None], [batch, 1]),
        "tokens": tf.tile(start[:, None], [1, beam_size]),
        "sequences": nothing,
    }
    finished = {"scores": tf.fill([batch, beam_size], IMPOSSIBLE), "sequences": nothing}
    initial = (tf.constant(0), tf.zeros([batch], tf.bool), running, finished, state)

    def may_grow(x):
        return tf.TensorShape([None, None, *x.shape[2:]][: len(x.shape)])

    written = tf.TensorShape([None, beam_size, None])
    scores = tf.TensorShape([None, beam_size])
    shapes = (
        tf.TensorShape([]),
        tf.TensorShape([None]),
        {"log_probs": scores, "tokens": scores, "sequences": written},
        {"scores": scores, "sequences": written},
        tf.nest.map_structure(may_grow, state),
    )
    _, _, running, finished, _ = tf.while_loop(goes_on, body, initial, shape_invariants=shapes)

    # Those that ended come first; running ones, all of one length and sorted already, fill the places left.
    number_ended = tf.reduce_sum(tf.cast(finished["scores"] > IMPOSSIBLE, tf.int32), axis=1, keepdims=True)
    running_scores = running["log_probs"] / length_penalty(max_length, alpha)[:, None]
    chosen = tf.where(beams[None] < number_ended, beams[None], beam_size + beams[None] - number_ended)
    sequences = tf.concat([finished["sequences"], running["sequences"]], axis=1)
    return _gather((sequences, tf.concat([finished["scores"], running_scores], axis=1)), chosen)
