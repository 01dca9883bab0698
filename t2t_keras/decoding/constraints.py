"""Lexical constraints: phrases that a translation must contain, as sub-words.

They are found by dynamic beam allocation (Post and Vilar 2018). The bank of a hypothesis is the
number of sub-words of phrases that it has written. Continuations are selected from all banks in turn, so that the beam
holds hypotheses at every stage, and only a hypothesis with all phrases may end.

A hypothesis advances in the trie of its open phrases (Hu et al. 2019), and its path in the trie is the last `depth`
sub-words that it has written. Each written sub-word counts for one phrase. Where the path cannot go on, sub-words leave
it from its start, until the rest is a path: the longest phrase that it begins with, which is then done, or else one.

Letters: R sentences in the state of the search, W beams, N continuations of a hypothesis, C phrases of a sentence, L
sub-words of a phrase, V vocabulary, T tokens written so far.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.config import PAD, UNK
from t2t_keras.decoding.search_hooks import IMPOSSIBLE, Selector, largest
from t2t_keras.model.beams import follow
from t2t_keras.text.lines import BLANK
from t2t_keras.text.phrases import JOINER, MAX_PHRASES, MAX_SUBWORDS, SEPARATOR
from t2t_keras.text.subwords import Subwords

NO_TOKEN = -1


class Phrases(NamedTuple):
    """The phrases of each sentence."""

    tokens: tf.Tensor  # [R, C, L] int32, PAD after the end of each
    lengths: tf.Tensor  # [R, C] int32, 0 in an empty place
    inside: tf.Tensor  # [R, C, L, C] boolean, whether the last phrase is in the first one from sub-word l on
    ordered: tf.Tensor  # [R, C] boolean, which of them must appear in their order


class Progress(NamedTuple):
    """What each hypothesis has written of the phrases. Continuations of hypotheses have one more axis: [R, W, N, …]."""

    done: tf.Tensor  # [R, W, C] boolean
    depth: tf.Tensor  # [R, W] int32, the length of the path in the trie
    leader: tf.Tensor  # [R, W] int32, a phrase that begins with the path
    tails: tf.Tensor  # [R, W, C, L] boolean, whether the last l + 1 sub-words written are the first l + 1 of phrase c


def _divided(text) -> tf.RaggedTensor:
    """Divides phrases of sentences, see `read`: [B] string → [B, (C)] string."""
    phrases = tf.strings.split(tf.strings.regex_replace(text, r"\s*[\t\n]\s*", SEPARATOR), SEPARATOR)
    return tf.ragged.boolean_mask(phrases, ~tf.strings.regex_full_match(phrases, f"{JOINER}?{BLANK}"))


def in_order(text, ordered, number):
    """Returns which phrases of sentences must appear in their order, [B, number] boolean.

    Args:
        text: [B] string, see `read`. After an empty line, phrases may appear anywhere.
        ordered: [B] boolean, whether those before must appear in their order.
        number: of phrases, C.
    """
    before = _divided(tf.strings.regex_replace(text, r"(?s)\n[ \t]*\n.*", "")).row_lengths()
    return ordered[:, None] & (tf.range(number) < tf.cast(before, tf.int32)[:, None])


def read(tokenizer: Subwords, text, kept=None) -> tuple:
    """Converts phrases to sub-words.

    Args:
        tokenizer: the sub-words.
        text: [B] string, the phrases of each sentence, separated by tabs or line ends; blank ones are left out. One
            that begins with `JOINER` follows the text before it without a space.
        kept: [B, N] string, what the placeholders of each sentence stand for, see `Subwords.kept`.

    Returns:
        tokens: [B, C, L] int32, padded with PAD; at most `MAX_PHRASES` of at most `MAX_SUBWORDS`.
        spelled: [B, C] string, the same phrases as text, with spaces or ▁.
        number: [B] int32, the number of phrases of each sentence.
        longest: [B] int32, the number of sub-words of the longest of them, counted up to one more than allowed.
    """
    phrases = _divided(text)
    number = tf.cast(phrases.row_lengths(), tf.int32)
    phrases = phrases[:, :MAX_PHRASES]  # A request may have any number of them, which takes memory for every sentence.
    kept = kept if kept is None else tf.gather(kept, phrases.value_rowids())
    words = tokenizer.words(phrases.values, MAX_SUBWORDS + 1, kept)
    follows = tf.strings.regex_full_match(phrases.values, f"{JOINER}.*")
    phrases = phrases.with_values(tf.strings.regex_replace(phrases.values, f"^{JOINER}", ""))
    following = tokenizer.joined(phrases.values, MAX_SUBWORDS + 1, kept)
    size = tf.size(follows)
    tokens = tf.gather(tf.concat([words, following], axis=0), tf.range(size) + tf.where(follows, size, 0))
    tokens = phrases.with_values(tokens)
    longest = tf.reduce_max(phrases.with_values(tf.cast(tokens.values.row_lengths(), tf.int32)), axis=1)
    # The text of the sub-words: normalization may change it. Without a sub-word, a phrase is written as it is.
    spelled = tf.strings.reduce_join(tf.gather(tf.constant(tokenizer.spelling), tokens), axis=2).to_tensor("")
    unknown = tf.reduce_any(tokens == UNK, axis=2).to_tensor(False)
    spelled = tf.where(unknown, phrases.to_tensor(""), spelled)
    return tokens.to_tensor(PAD)[:, :, :MAX_SUBWORDS], spelled, number, tf.maximum(longest, 0)


def describe(tokens, ordered) -> Phrases:
    """Returns the phrases whose sub-words are `tokens`, [B, C, L] int32 padded with PAD. `ordered` says which must
    appear in their order, [B, C] boolean, or [B] for all of a sentence.
    """
    _, number, length = tf.unstack(tf.shape(tokens))
    if ordered.shape.rank == 1:
        ordered = tf.repeat(ordered[:, None], number, axis=1)
    ordered = tf.pad(ordered, [[0, 0], [0, tf.maximum(1 - number, 0)]])
    tokens = tf.pad(
        tokens, [[0, 0], [0, tf.maximum(1 - number, 0)], [0, tf.maximum(1 - length, 0)]], constant_values=PAD
    )
    present = tokens != PAD
    lengths = tf.reduce_sum(tf.cast(present, tf.int32), axis=-1)
    length = tf.shape(tokens)[2]
    longer = tf.pad(tokens, [[0, 0], [0, 0], [0, length]], constant_values=NO_TOKEN)

    def compare(place, inside):
        """Compares one sub-word of each phrase, which takes less memory than all."""
        there = longer[:, :, None, place : place + length] == tokens[:, None, :, place, None]
        return place + 1, inside & (there | ~present[:, None, :, place, None])

    inside = tf.ones(tf.gather(tf.shape(tokens), [0, 1, 1, 2]), tf.bool) & present[:, None, :, :1]
    _, inside = tf.while_loop(lambda place, _: place < length, compare, (0, inside))
    return Phrases(tokens, lengths, tf.transpose(inside, [0, 1, 3, 2]), ordered)


def start(phrases: Phrases, beam_size: int) -> Progress:
    """Returns the progress before the first token."""
    batch, number, length = tf.unstack(tf.shape(phrases.tokens))
    nothing = tf.zeros([batch, beam_size], tf.int32)
    none = tf.zeros([batch, beam_size, number, length], tf.bool)
    return Progress(none[..., 0], nothing, nothing, none)


def _open(phrases: Phrases, done):
    """Returns whether a phrase may be begun or continued, [R, W, N, C] boolean: any that is not done, but of those in
    order the first.
    """
    missing, ordered = tf.logical_not(done) & (phrases.lengths > 0)[:, None, None], phrases.ordered[:, None, None]
    first = tf.cumsum(tf.cast(missing & ordered, tf.int32), axis=-1) == 1
    return missing & (first | tf.logical_not(ordered))


def advance(phrases: Phrases, progress: Progress, tokens) -> Progress:
    """Returns the progress of hypotheses after one more token.

    Args:
        phrases: of each sentence.
        progress: [R, W, N, …], or with an N of 1.
        tokens: [R, W, N] int32. `NO_TOKEN` is in no phrase.
    """
    lengths, number = phrases.lengths[:, None, None], tf.shape(phrases.lengths)[1]
    sizes = tf.range(1, tf.shape(phrases.tokens)[2] + 1)
    longer = tf.concat([tf.ones_like(progress.tails[..., :1]), progress.tails[..., :-1]], axis=-1)
    tails = longer & (phrases.tokens[:, None, None] == tokens[..., None, None]) & (sizes <= lengths[..., None])
    inside = tf.gather(phrases.inside, progress.leader, batch_dims=1)  # [R, W, N, L, C]
    starts = sizes[:, None] - 1
    written = progress.depth[..., None, None] + 1
    inside &= starts + lengths[..., None, :] < written  # Otherwise the phrase is all that is left, a path.

    def paths(open_phrases, left):
        """Returns the path among the last `left` sub-words along each phrase, [R, W, N, C]: its size."""
        possible = tails & open_phrases[..., None] & (sizes <= left[..., None, None])
        return tf.reduce_max(tf.where(possible, sizes, 0), axis=-1)

    def finish(_, done, left, __):
        """Finishes the longest of the phrases that begin first, if one ends. Returns whether one does, and the paths
        before.
        """
        open_phrases = _open(phrases, done)
        reached = paths(open_phrases, left)
        following = starts >= written - left[..., None, None]
        before_path = starts < written - tf.reduce_max(reached, axis=-1)[..., None, None]
        # The size of each phrase that ends, [R, W, N, L, C] by its start; otherwise 0.
        ended = tf.where(inside & open_phrases[..., None, :] & following & before_path, lengths[..., None, :], 0)
        longest = tf.reduce_max(ended, axis=-1)  # [R, W, N, L]
        first = tf.argmax(longest > 0, axis=-1, output_type=tf.int32)
        size = tf.gather(longest, first, batch_dims=3)
        phrase = tf.argmax(tf.gather(ended, first, batch_dims=3), axis=-1, output_type=tf.int32)
        finished = (phrase[..., None] == tf.range(number)) & (size > 0)[..., None]
        left = tf.where(size > 0, written[..., 0, 0] - first - size, left)
        return tf.reduce_any(size > 0), tf.ensure_shape(done | finished, done.shape), left, reached

    # Of each of N tokens, with the static sizes of both.
    done = progress.done | tf.zeros_like(tokens[..., None], tf.bool)
    left, nothing = progress.depth + 1 + tf.zeros_like(tokens), tf.zeros_like(done, tf.int32)
    _, done, _, reached = tf.while_loop(lambda ends, *_: ends, finish, (True, done, left, nothing))
    return Progress(done, tf.reduce_max(reached, axis=-1), tf.argmax(reached, axis=-1, output_type=tf.int32), tails)


def bank(phrases: Phrases, progress: Progress):
    """Returns the number of sub-words of phrases that each continuation has: [R, W, N] int32."""
    return tf.reduce_sum(tf.where(progress.done, phrases.lengths[:, None, None], 0), axis=-1) + progress.depth


def _with_continuations(progress: Progress) -> Progress:
    return tf.nest.map_structure(lambda x: x[:, :, None], progress)


def advance_hypotheses(phrases: Phrases, progress: Progress, tokens) -> Progress:
    """Returns the progress [R, W, …] after one more token of each hypothesis, [R, W] int32."""
    return tf.nest.map_structure(
        lambda x: x[:, :, 0], advance(phrases, _with_continuations(progress), tokens[:, :, None])
    )


def met(tokens, ordered, sequences):
    """Returns whether translations contain their phrases, each its own sub-words.

    Phrases may overlap so that those found first leave no room for others. They are looked for from both ends.

    Args:
        tokens: phrases, [B, C, L] int32, padded with PAD.
        ordered: [B] or [B, C] boolean, whether the phrases must appear in their order, or which.
        sequences: translations, [B, W, T] int32.

    Returns:
        [B, W] boolean.
    """
    lengths = tf.reduce_sum(tf.cast(tokens != PAD, tf.int32), axis=2)
    places = tf.range(tf.shape(tokens)[2])
    places = tf.where(places < lengths[..., None], lengths[..., None] - 1 - places, places)
    backwards = tf.reverse(tf.gather(tokens, places, batch_dims=2), [1])
    # Both ways at once, as twice as many sentences: half the graph. The last token is in no phrase.
    from_end = tf.reverse(ordered, [1]) if ordered.shape.rank == 2 else ordered
    phrases = describe(tf.concat([tokens, backwards], axis=0), tf.concat([ordered, from_end], axis=0))
    sequences = tf.concat([sequences, tf.reverse(sequences, [2])], axis=0)
    sequences = tf.pad(sequences, [[0, 0], [0, 0], [0, 1]], constant_values=NO_TOKEN)
    number = tf.where(tf.reduce_any(phrases.lengths > 0), tf.shape(sequences)[2], 0)
    progress = start(phrases, tf.shape(sequences)[1])
    _, progress = tf.while_loop(
        lambda position, _: position < number,
        lambda position, progress: (position + 1, advance_hypotheses(phrases, progress, sequences[:, :, position])),
        (0, progress),
    )
    found = tf.reduce_all(progress.done | (phrases.lengths == 0)[:, None], axis=-1)
    return tf.reduce_any(tf.stack(tf.split(found, 2)), axis=0)


class Banks(Selector):
    """Dynamic beam allocation: selects the best continuation of each bank in turn, the fullest bank first.

    Args:
        tokens: phrases that must appear, [B, C, L] int32, padded with PAD; without the end token.
        ordered: [B] or [B, C] boolean, whether they must appear in their order, or which.
        max_length: [B] int32, maximum number of tokens of a translation.
        beam_size: W.
        eos_id: the end token, which only hypotheses with all phrases may write. It is a bank of its own, above all
            others, so whatever may end does; in greedy search, at the last position only.
    """

    def __init__(self, tokens, ordered, max_length, beam_size: int, eos_id: int):
        phrases = describe(tokens, ordered)
        self.state, self.eos_id = (phrases, start(phrases, beam_size), max_length), eos_id
        self.has_phrases = tf.reduce_any(phrases.lengths > 0)

    def applies(self, position):
        return self.has_phrases

    def __call__(self, log_probs, hypotheses, state):
        phrases, progress, max_length = state
        read = tf.where(hypotheses.position > 0, hypotheses.tokens, NO_TOKEN)
        progress = advance_hypotheses(phrases, follow(progress, hypotheses.ancestors), read)
        beam_size, vocab_size = log_probs.shape[1:]
        last = hypotheses.position + 1 >= max_length
        per_beam = min(self.number(beam_size) + 1, vocab_size)
        _, likely = largest(tf.reshape(log_probs, [-1, vocab_size]), per_beam)
        likely = tf.reshape(likely, [-1, beam_size, per_beam])
        tokens, banks, allowed = self._candidates(phrases, progress, likely, (beam_size > 1) | last[:, None, None])
        added = tf.where(allowed, tf.gather(log_probs, tokens, batch_dims=2), IMPOSSIBLE)
        totals, width = hypotheses.log_probs[..., None] + added, tf.shape(added)[2]
        totals, banks, tokens = (tf.reshape(x, [-1, beam_size * width]) for x in (totals, banks, tokens))
        chosen = _in_turn(totals, banks, self.number(beam_size))
        totals, tokens = (tf.gather(x, chosen, batch_dims=1) for x in (totals, tokens))
        return (totals, chosen // width, tokens), (phrases, progress, max_length)

    def _candidates(self, phrases: Phrases, progress: Progress, likely, end_first) -> tuple:
        """Adds to likely continuations those that a bank waits for, however unlikely they are.

        Args:
            phrases: of each sentence.
            progress: of each hypothesis, before its continuations.
            likely: [R, W, N] int32.
            end_first: [R, 1, 1] boolean, whether the end token has a bank of its own.

        Returns:
            tokens: [R, W, N + 2 C + 1] int32.
            banks: the bank of each, int32.
            allowed: boolean, False for the end token where a phrase is missing, and for one in no phrase or listed
                before.
        """
        end = tf.fill(tf.concat([tf.shape(progress.depth), [1]], axis=0), self.eos_id)
        tokens = tf.concat([likely, _next_tokens(phrases, progress), end], axis=2)
        banks = bank(phrases, advance(phrases, _with_continuations(progress), tokens))
        rest = banks[..., -1:]  # As the end token, those that are in no phrase.
        may_end = rest == tf.reduce_sum(phrases.lengths, axis=1)[:, None, None]
        banks += tf.cast((tokens == self.eos_id) & may_end & (rest > 0) & end_first, tf.int32)
        number = tf.range(tf.shape(tokens)[2])
        twice = tf.reduce_any((tokens[..., None] == tokens[:, :, None]) & (number[:, None] > number), axis=-1)
        useful = (number < tf.shape(likely)[2]) | (banks > rest)
        return tokens, banks, useful & tf.logical_not(twice) & ((tokens != self.eos_id) | may_end)


def _next_tokens(phrases: Phrases, progress: Progress):
    """Returns tokens that begin or continue a phrase, two for each: [R, W, 2 C] int32."""
    lengths, sizes = phrases.lengths[:, None], tf.range(1, tf.shape(phrases.tokens)[2] + 1)
    continued = progress.tails & (sizes <= progress.depth[..., None, None]) & (sizes < lengths[..., None])
    after = tf.reduce_max(tf.where(continued, sizes, 0), axis=-1)
    first = tf.zeros_like(after)
    return tf.concat(
        [
            tf.reduce_sum(tf.where(sizes - 1 == size[..., None], phrases.tokens[:, None], 0), axis=-1)
            for size in (after, first)
        ],
        axis=-1,
    )


def _in_turn(totals, banks, number: int):
    """Selects candidates from all banks in turn: the best of each, the fullest bank first, then the second of each, ….

    Args:
        totals: scores of all candidates of a sentence, [R, X] float32; -inf is none.
        banks: [R, X] int32.
        number: how many to select, at most X.

    Returns:
        Indices of candidates, [R, number] int32.
    """
    size = tf.shape(totals)[1]
    totals, by_score = tf.math.top_k(totals, size)
    banks = tf.where(totals > IMPOSSIBLE, tf.gather(banks, by_score, batch_dims=1), NO_TOKEN)
    banks, by_bank = tf.math.top_k(banks, size)  # Of equal ones the first.
    rank = tf.range(size) - tf.searchsorted(-banks, -banks)
    # The fuller bank stands first, and stays first among those of equal rank.
    _, first = tf.math.top_k(-tf.where(banks >= 0, rank, tf.int32.max), number)
    return tf.gather(by_score, tf.gather(by_bank, first, batch_dims=1), batch_dims=1)
