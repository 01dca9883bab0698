"""Lexical constraints: phrases that a translation must contain or must not contain, as sub-words.

Phrases that must appear are found by dynamic beam allocation (Post and Vilar 2018). The bank of a hypothesis is the
number of sub-words of phrases that it has written. Continuations are selected from all banks in turn, so that the beam
holds hypotheses at every stage, and only a hypothesis with all phrases may end.

A hypothesis advances in the trie of its open phrases (Hu et al. 2019), and its path in the trie is the last `depth`
sub-words that it has written. Each written sub-word counts for one phrase. Where the path cannot go on, the longest
phrase that it begins with is done, and the new path is the longest one among the sub-words after that phrase.

Letters: R sentences in the state of the search, W beams, N continuations of a hypothesis, C phrases of a sentence, L
sub-words of a phrase, V vocabulary, T tokens written so far.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.config import PAD
from t2t_keras.decoding.search_hooks import IMPOSSIBLE, Scorer, Selector, largest
from t2t_keras.model.beams import follow
from t2t_keras.text.lines import BLANK
from t2t_keras.text.phrases import JOINER, MAX_PHRASES, MAX_SUBWORDS, SEPARATOR
from t2t_keras.text.subwords import Subwords

NO_TOKEN = -1


class Phrases(NamedTuple):
    """The phrases of each sentence."""

    tokens: tf.Tensor  # [R, C, L] int32, PAD after the end of each
    lengths: tf.Tensor  # [R, C] int32, 0 in an empty place
    common: tf.Tensor  # [R, C, C] int32, the number of sub-words that two phrases begin with alike
    ordered: tf.Tensor  # [R] boolean, whether they must appear in their order


class Progress(NamedTuple):
    """What each hypothesis has written of the phrases. Continuations of hypotheses have one more axis: [R, W, N, …]."""

    done: tf.Tensor  # [R, W, C] boolean
    depth: tf.Tensor  # [R, W] int32, the length of the path in the trie
    leader: tf.Tensor  # [R, W] int32, a phrase that begins with the path
    tails: tf.Tensor  # [R, W, C, L] boolean, whether the last l + 1 sub-words written are the first l + 1 of phrase c


def read(tokenizer: Subwords, text, kept=None) -> tuple:
    """Converts phrases to sub-words.

    Args:
        tokenizer: the sub-words.
        text: [B] string, the phrases of each sentence, separated by tabs or line ends; blank ones are left out. One
            that begins with `JOINER` follows the text before it without a space.
        kept: [B, N] string, what the placeholders of each sentence stand for, see `Subwords.kept`.

    Returns:
        tokens: [B, C, L] int32, padded with PAD; at most `MAX_PHRASES` of at most `MAX_SUBWORDS`.
        spelled: [B, C] string, the same phrases.
        number: [B] int32, the number of phrases of each sentence.
        longest: [B] int32, the number of sub-words of the longest of them, counted up to one more than allowed.
    """
    phrases = tf.strings.split(tf.strings.regex_replace(text, r"\s*[\t\n]\s*", SEPARATOR), SEPARATOR)
    phrases = tf.ragged.boolean_mask(phrases, ~tf.strings.regex_full_match(phrases, f"{JOINER}?{BLANK}"))
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
    tokens, spelled = tokens.to_tensor(PAD)[:, :, :MAX_SUBWORDS], tf.strings.strip(phrases.to_tensor(""))
    return tokens, spelled, number, tf.maximum(longest, 0)


def describe(tokens, ordered) -> Phrases:
    """Returns the phrases whose sub-words are `tokens`, [B, C, L] int32 padded with PAD. `ordered` is [B] boolean."""
    _, number, length = tf.unstack(tf.shape(tokens))
    tokens = tf.pad(
        tokens, [[0, 0], [0, tf.maximum(1 - number, 0)], [0, tf.maximum(1 - length, 0)]], constant_values=PAD
    )
    present = tokens != PAD
    same = (tokens[:, :, None] == tokens[:, None]) & present[:, :, None]
    common = tf.reduce_sum(tf.math.cumprod(tf.cast(same, tf.int32), axis=-1), axis=-1)
    return Phrases(tokens, tf.reduce_sum(tf.cast(present, tf.int32), axis=-1), common, ordered)


def start(phrases: Phrases, beam_size: int) -> Progress:
    """Returns the progress before the first token."""
    batch, number, length = tf.unstack(tf.shape(phrases.tokens))
    nothing = tf.zeros([batch, beam_size], tf.int32)
    none = tf.zeros([batch, beam_size, number, length], tf.bool)
    return Progress(none[..., 0], nothing, nothing, none)


def _open(phrases: Phrases, done):
    """Returns whether a phrase may be begun or continued, [R, W, N, C] boolean: any that is not done, or the first."""
    missing = tf.logical_not(done) & (phrases.lengths > 0)[:, None, None]
    first = tf.cumsum(tf.cast(missing, tf.int32), axis=-1) == 1
    return missing & (first | tf.logical_not(phrases.ordered)[:, None, None, None])


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
    available = _open(phrases, progress.done)
    depth = progress.depth[..., None, None]
    goes_on = tf.reduce_any(tails & available[..., None] & (sizes == depth + 1), axis=[-2, -1])
    begun = tf.gather(phrases.common, progress.leader, batch_dims=1)
    ended = tf.where(available & (begun >= lengths) & (lengths <= progress.depth[..., None]), lengths, 0)
    longest = tf.where(goes_on, 0, tf.reduce_max(ended, axis=-1))
    ends = (tf.argmax(ended, axis=-1, output_type=tf.int32)[..., None] == tf.range(number)) & (longest > 0)[..., None]
    done = progress.done | ends
    free = progress.depth + 1 - longest  # Of the last tokens, those that belong to no phrase that is done.
    on_path = tails & _open(phrases, done)[..., None] & (sizes <= free[..., None, None])
    reached = tf.reduce_max(tf.where(on_path, sizes, 0), axis=-1)
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

    Args:
        tokens: phrases, [B, C, L] int32, padded with PAD.
        ordered: [B] boolean, whether the phrases must appear in their order.
        sequences: translations, [B, W, T] int32.

    Returns:
        [B, W] boolean.
    """
    phrases = describe(tokens, ordered)
    number = tf.where(tf.reduce_any(phrases.lengths > 0), tf.shape(sequences)[2], 0)
    progress = start(phrases, tf.shape(sequences)[1])
    _, progress = tf.while_loop(
        lambda position, _: position < number,
        lambda position, progress: (position + 1, advance_hypotheses(phrases, progress, sequences[:, :, position])),
        (0, progress),
    )
    end = tf.fill(tf.shape(progress.depth), NO_TOKEN)
    done = advance_hypotheses(phrases, progress, end).done | (phrases.lengths == 0)[:, None]
    return tf.reduce_all(done, axis=-1)


class Banks(Selector):
    """Dynamic beam allocation: selects the best continuation of each bank in turn, the fullest bank first.

    Args:
        tokens: phrases that must appear, [B, C, L] int32, padded with PAD; without the end token.
        ordered: [B] boolean, whether they must appear in their order.
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
        wanted, banks, rest, may_end = self._wanted(phrases, progress, (beam_size > 1) | last[:, None, None])
        per_beam = min(self.number(beam_size) + 1, vocab_size)
        values, likely = (
            tf.reshape(x, [-1, beam_size, per_beam]) for x in largest(tf.reshape(log_probs, [-1, vocab_size]), per_beam)
        )
        again = tf.reduce_any((likely[..., None] == wanted[:, :, None]) & (banks > rest)[:, :, None], axis=-1)
        allowed = tf.logical_not(again) & ((likely != self.eos_id) | may_end)
        wanted_values = tf.gather(log_probs, wanted, batch_dims=2)
        added = tf.concat(
            [tf.where(allowed, values, IMPOSSIBLE), tf.where(banks > rest, wanted_values, IMPOSSIBLE)], axis=2
        )
        totals, width = hypotheses.log_probs[..., None] + added, tf.shape(added)[2]
        tokens = tf.concat([likely, wanted], axis=2)
        banks = tf.concat([tf.zeros_like(likely) + rest, banks], axis=2)
        totals, banks, tokens = (tf.reshape(x, [-1, beam_size * width]) for x in (totals, banks, tokens))
        chosen = _in_turn(totals, banks, self.number(beam_size))
        totals, tokens = (tf.gather(x, chosen, batch_dims=1) for x in (totals, tokens))
        return (totals, chosen // width, tokens), (phrases, progress, max_length)

    def _wanted(self, phrases: Phrases, progress: Progress, end_first) -> tuple:
        """Finds the continuations that a bank waits for, however unlikely they are.

        Args:
            phrases: of each sentence.
            progress: of each hypothesis, before its continuations.
            end_first: [R, 1, 1] boolean, whether the end token has a bank of its own.

        Returns:
            tokens: [R, W, 2 C + 1] int32.
            banks: [R, W, 2 C + 1] int32, the bank of each token; that of `rest` for one in no phrase or listed before.
            rest: [R, W, 1] int32, the bank of all other tokens.
            may_end: [R, W, 1] boolean, whether all phrases are there.
        """
        end = tf.fill(tf.concat([tf.shape(progress.depth), [1]], axis=0), self.eos_id)
        tokens = tf.concat([_next_tokens(phrases, progress), end], axis=2)
        banks = bank(phrases, advance(phrases, _with_continuations(progress), tokens))
        rest = banks[..., -1:]  # As the end token, they are in no phrase.
        may_end = rest == tf.reduce_sum(phrases.lengths, axis=1)[:, None, None]
        banks += tf.cast((tokens == self.eos_id) & may_end & (rest > 0) & end_first, tf.int32)
        number = tf.range(tf.shape(tokens)[2])
        twice = tf.reduce_any((tokens[..., None] == tokens[:, :, None]) & (number[:, None] > number), axis=-1)
        return tokens, tf.where(twice, rest, banks), rest, may_end


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


class Avoided(Scorer):
    """Forbids phrases.

    With `words`, a phrase is forbidden as whole words only: after its last sub-word, others may go on with the word.
    With `spelled`, this holds for the text, in whatever sub-words it is written.

    Args:
        tokens: phrases that must not appear, [B, C, L] int32, padded with PAD.
        max_length: [B] int32, maximum number of tokens of a translation.
        words: two arrays [V] boolean: which sub-words go on with the word before them, and which end where a word may
            go on. `None` forbids the sub-words whatever follows.
        spelled: [B, C] string, the phrases as text.
        spelling: the bytes of each sub-word, V; goes with `spelled`. Detokenizing has a state, and searches would wait
            for each other.
    """

    def __init__(self, tokens, max_length, words=None, spelled=None, spelling: Sequence[bytes] = ()):
        phrases = describe(tokens, tf.zeros_like(max_length, tf.bool))
        backwards = tf.reverse_sequence(
            tf.reshape(phrases.tokens, [-1, tf.shape(phrases.tokens)[2]]), tf.reshape(phrases.lengths, [-1]), seq_axis=1
        )
        spelled = tf.zeros_like(phrases.lengths[:, :0], tf.string) if spelled is None else spelled
        self.state = tf.reshape(backwards, tf.shape(phrases.tokens)), max_length, spelled
        self.has_phrases, self.words, self.spelling = tf.reduce_any(phrases.lengths > 0), words, spelling

    def applies(self, position):
        return self.has_phrases

    def __call__(self, log_probs, hypotheses, state):
        backwards, max_length, spelled = state
        phrases, length = backwards[:, None], tf.shape(backwards)[2]
        rows, number = tf.shape(backwards)[0], tf.shape(backwards)[1]
        written = tf.pad(hypotheses.sequences, [[0, 0], [0, 0], [length, 0]])[:, :, -length:]
        written = tf.reverse(written, [2])[:, :, None]  # [R, W, 1, L], the last token first.

        def ends_in(phrases, written):
            return tf.reduce_all((phrases == PAD) | (phrases == written), axis=-1)

        last = backwards[:, :, 0]
        at_once = tf.ones_like(last, tf.bool)
        if self.words:
            inside, joined = map(tf.constant, self.words)
            at_once = tf.logical_not(tf.gather(joined, last)) | (hypotheses.position + 1 >= max_length)[:, None]
            whole = tf.reduce_any(ends_in(phrases, written) & (last != PAD)[:, None], axis=2)
            if self.spelling:
                texts = tf.strings.reduce_join(tf.gather(tf.constant(self.spelling), hypotheses.sequences), axis=2)
                whole |= _ends_in_words(
                    tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace"), spelled
                )
            log_probs = tf.where(whole[..., None] & tf.logical_not(inside), IMPOSSIBLE, log_probs)
        almost = ends_in(phrases[..., 1:], written[..., :-1]) & (at_once & (last != PAD))[:, None]
        beam_size = log_probs.shape[1]
        where = tf.stack(
            tf.meshgrid(tf.range(rows), tf.range(beam_size), tf.range(number), indexing="ij")[:2]
            + [tf.tile(last[:, None], [1, beam_size, 1])],
            axis=-1,
        )
        return tf.tensor_scatter_nd_min(log_probs, where, tf.where(almost, IMPOSSIBLE, -IMPOSSIBLE)), state


def _ends_in_words(texts, phrases):
    """Returns whether a text ends in one of the phrases of its sentence, not in a word that the phrase is the end of.

    Args:
        texts: [R, W] string.
        phrases: [R, C] string; empty ones are none.

    Returns:
        [R, W] boolean.
    """
    shape = tf.concat([tf.shape(texts), tf.shape(phrases)[1:]], axis=0)
    texts, phrases = (tf.reshape(tf.broadcast_to(x, shape), [-1]) for x in (texts[:, :, None], phrases[:, None]))
    sizes = tf.strings.length(phrases, "UTF8_CHAR")
    first = tf.strings.length(texts, "UTF8_CHAR") - sizes
    same = tf.strings.substr(texts, tf.maximum(first, 0), sizes, "UTF8_CHAR") == phrases
    before = tf.strings.substr(texts, tf.maximum(first - 1, 0), tf.cast(first > 0, tf.int32), "UTF8_CHAR")
    ends = same & (sizes > 0) & (first >= 0) & tf.logical_not(tf.strings.regex_full_match(before, r"[\pL\pM\pN]"))
    return tf.reduce_any(tf.reshape(ends, shape), axis=2)
