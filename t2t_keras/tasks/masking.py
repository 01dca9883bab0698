"""Pairs of sentences and masked words, drawn in the graph from a seed (Devlin et al. 2019, section 3.1 and appendix
A.1).

A record becomes [CLS] A [SEP] B [SEP]. A are its first sentences, and B the others or, for half of the records,
sentences of another document. Of the 15% of the sub-words to predict, 80% become [MASK], 10% another sub-word, and 10%
stay.

Letters: N records, L the sub-words of the longest, M the sentences of the record that has most.
"""

import numpy as np
import tensorflow as tf

from t2t_keras.config import BOS, EOS, PAD, UNK
from t2t_keras.runs.task import Renewal
from t2t_keras.text.subwords import Subwords

RANDOM_SECOND, MASKED, REPLACED = 0.5, 0.8, 0.1  # Shares: of the records; and of the sub-words to predict.
LONG_WORD = 16  # Sub-words.
TRIES = 10  # At finding another document, as in BERT.


def renewal(tokenizer: Subwords, mask_rate: float, whole_words: bool) -> Renewal:
    """Returns what makes "tokens", "masked", "target" and "following" of the "tokens", "lengths" and "document" of
    `Pretraining.records`. `mask_rate` is the share of the sub-words to predict; with `whole_words`, all sub-words of a
    word are masked, or none.
    """
    parts = tokenizer.word_parts if whole_words else None

    def change(records: dict, seed) -> dict:
        of_pairs, of_masks = tf.unstack(tf.random.split(seed, 2))
        tokens, following = pairs(records["tokens"], records["lengths"], records["document"], of_pairs)
        tokens, masked, target = mask(tokens, of_masks, tokenizer.vocab_size, mask_rate, parts)
        return {"tokens": tokens, "masked": masked, "target": target, "following": following}

    def longest(length: int) -> dict[str, int]:
        masked = min(length, max(1, round(mask_rate * length)) + whole_words * LONG_WORD)
        return {"masked": masked, "target": masked, "following": 1}

    return Renewal(("tokens", "masked", "target", "following"), change, longest)


def _column(values) -> tf.RaggedTensor:
    """[N] → ragged [N, 1] int32."""
    return tf.RaggedTensor.from_tensor(tf.cast(values, tf.int32)[:, None], ragged_rank=1)


def _below(number, size, seed):
    """Draws an integer from 0 to below `number`: [N] int64, whose shape is `size` where the number is one for all."""
    drawn = tf.random.stateless_uniform(size, seed, dtype=tf.float64)
    return tf.cast(drawn * tf.cast(number, tf.float64), tf.int64)  # Below it: a draw is at most 1 - 2^-52.


def pairs(tokens: tf.RaggedTensor, lengths: tf.RaggedTensor, document: tf.RaggedTensor, seed) -> tuple:
    """Draws pairs of sentences. They are no longer than the records.

    For each record another one is drawn, of another document, and half of the records take their second sentences from
    it. A limit for these is drawn below what either of both has left, so that its length does not give it away. As many
    sentences as fit are taken; if not even one does, it is cut. Where no other document is found, the second sentences
    follow.

    Args:
        tokens: [CLS] sentences [SEP] [SEP], ragged [N, (L)] int32.
        lengths: of the sentences, at least two, ragged [N, (M)] int32.
        document: a number for each document, ragged [N, 1] int32.
        seed: [2] int64.

    Returns:
        [CLS] A [SEP] B [SEP], ragged [N, (length)] int32; and ragged [N, 1] int32, 2 where B follows A, and 1 where it
        does not.
    """
    of_split, of_choice, of_other, of_start, of_limit = tf.unstack(tf.random.split(seed, 5))
    number, document = tokens.nrows(), document.values
    sentences = tf.cast(lengths.row_lengths(), tf.int64)
    ends = tf.cumsum(tf.cast(lengths.to_tensor(), tf.int64), axis=1)  # [N, M]; after the last sentence the same again.

    def end_of(sentence, record):
        return tf.gather_nd(ends, tf.stack([record, sentence], axis=1))

    first = _below(sentences - 1, [number], of_split)  # The last sentence of A.
    candidates = _below(number, [number, TRIES], of_other)
    differs = tf.gather(document, candidates) != document[:, None]
    other = tf.gather(candidates, tf.argmax(differs, axis=1), batch_dims=1)
    before = _below(tf.gather(sentences, other) - 1, [number], of_start)  # The last one before B there.
    is_random = tf.reduce_any(differs, axis=1) & (tf.random.stateless_uniform([number], of_choice) < RANDOM_SECOND)

    own = tf.range(number)
    of_first, of_before = end_of(first, own), end_of(before, other)
    most = tf.minimum(ends[:, -1] - of_first, tf.gather(ends[:, -1], other) - of_before)
    limit = tf.maximum(most - 1 - _below(tf.maximum(most // 2, 1), [number], of_limit), 1)
    source, begin = tf.where(is_random, other, own), tf.where(is_random, of_before, of_first)
    their_ends = tf.gather(ends, source)
    # Sentences that fit end there.
    whole = tf.reduce_max(tf.where(their_ends <= (begin + limit)[:, None], their_ends, 0), axis=1)
    end = tf.where(whole > begin, whole, begin + limit)

    at = tokens.row_starts() + 1  # Of each record's first sentence.
    start = tf.gather(at, source)
    places = ((at, at + of_first), (start + begin, start + end))
    parts = [tf.gather(tokens.values, tf.ragged.range(*place)) for place in places]
    begin_of_text, end_of_part = (_column(tf.fill([number], token)) for token in (BOS, EOS))
    text = tf.concat([begin_of_text, parts[0], end_of_part, parts[1], end_of_part], axis=1)
    return text, _column(tf.where(is_random, 1, 2))


def mask(
    tokens: tf.RaggedTensor, seed, vocab_size: int, rate: float, word_parts: tuple[np.ndarray, np.ndarray] | None = None
) -> tuple:
    """Masks sub-words: of each text max(1, round(rate × length)), which counts [CLS] and [SEP], though these are never
    masked.

    With `word_parts`, see `Subwords.word_parts`, all sub-words of the word that reaches this number are masked, so it
    may be exceeded. `tokens` is ragged [N, (L)] int32, where a text has one or more that are not special, and `seed`
    [2] int64.

    Returns:
        The text with masks, ragged [N, (L)] int32; the positions of the masked sub-words, counted from 1, and these
        sub-words, both ragged [N, (number)] int32.
    """
    of_order, of_kind, of_word = tf.unstack(tf.random.split(seed, 3))
    ids = tokens.to_tensor()  # [N, L]
    ordinary = (ids != PAD) & (ids != BOS) & (ids != EOS)
    order = tf.where(ordinary, tf.random.stateless_uniform(tf.shape(ids), of_order), 2.0)
    place = tf.range(tf.shape(ids)[1])[None] + tf.zeros_like(ids)
    begins = place  # Where the word of each sub-word begins.
    if word_parts:
        goes_on, ends_inside = (tf.constant(each) for each in word_parts)
        joined = tf.gather(goes_on, ids) & tf.pad(tf.gather(ends_inside, ids)[:, :-1], [[0, 0], [1, 0]])
        words = tf.cumsum(tf.cast(~joined, tf.int32), axis=1)
        begins = tf.searchsorted(words, words)
        order = tf.gather(order, begins, batch_dims=1)
    ranked = tf.argsort(order, axis=1, stable=True)
    rank = tf.argsort(ranked, axis=1)
    number = tf.maximum(1, tf.cast(tf.round(rate * tf.cast(tokens.row_lengths(), tf.float32)), tf.int32))
    chosen = ordinary & (tf.gather(rank, begins, batch_dims=1) < number[:, None])

    kind = tf.random.stateless_uniform(tf.shape(ids), of_kind)
    word = tf.random.stateless_uniform(tf.shape(ids), of_word, EOS + 1, vocab_size, tf.int32)
    changed = tf.where(kind < MASKED, UNK, tf.where(kind < MASKED + REPLACED, word, ids))
    texts = tf.RaggedTensor.from_tensor(tf.where(chosen, changed, ids), lengths=tokens.row_lengths())
    positions, targets = (tf.ragged.boolean_mask(each, chosen) for each in (place + 1, ids))
    return texts, positions, targets
