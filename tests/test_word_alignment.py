"""Alignments of words: against the alignments of sub-words that a server returns, added up word by word."""

import numpy as np
import pytest
import stand_in
import tensorflow as tf

from t2t_keras.config import DecodeConfig, ModelConfig
from t2t_keras.decoding.translator import Translator
from t2t_keras.reporting.attention import MAX_ALIGNED, word_alignment
from t2t_keras.serving.signatures import Signatures


@pytest.fixture(scope="module")
def translator() -> Translator:
    return stand_in.translator(DecodeConfig(beam_size=2, extra_length=4))


def words_of(pieces: list[str]) -> list[list[int]]:
    """The places of the sub-words of each word; a ▁ alone belongs to the word after it."""
    words = []
    for place, piece in enumerate(pieces):
        if piece.startswith("▁") and (not words or pieces[words[-1][-1]] != "▁"):
            words.append([])
        words[-1].append(place)
    return words


@pytest.mark.medium
def test_weights_of_words_are_those_of_their_sub_words(translator):
    """Of translations that are forced as prefixes: what follows does not change their weights."""
    sources, targets = zip(*stand_in.pairs()[:20], strict=True)
    service, rows = Signatures(translator), [20]
    nothing, no, number = tf.fill(rows, ""), tf.fill(rows, False), tf.zeros(rows, tf.int32)
    options = (tf.zeros(rows), number + 150, number + 1, tf.constant(targets), ~no, nothing, nothing, no)
    found = {
        name: value.numpy() for name, value in service.translate_with_options(tf.constant(sources), *options).items()
    }
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        size = len(translator.tokenizer.tokenize([target])[0]) - 1
        read = [piece.decode() for piece in found["source_pieces"][row] if piece][:-1]
        written, weights = [piece.decode() for piece in found["pieces"][row, 0, :size]], found["alignment"][row, 0]
        expected = [
            [sum(weights[t, s] for t in of_target for s in of_source) / len(of_target) for of_source in words_of(read)]
            for of_target in words_of(written)
        ]
        np.testing.assert_allclose(word_alignment(translator, source, target), expected, atol=1e-5)


def test_what_cannot_be_aligned_has_none(translator):
    assert word_alignment(translator, "one  two ", " eins zwei").shape == (2, 2)
    assert word_alignment(translator, "", "eins") is word_alignment(translator, "one", " ") is None
    assert word_alignment(translator, "one", "eins " * MAX_ALIGNED) is None
    config = ModelConfig(stand_in.VOCAB_SIZE, encoder_layers=1, decoder_layers=1, d_model=4, d_ff=4, num_heads=1)
    assert (
        word_alignment(Translator(stand_in.Copier(config), translator.tokenizer, DecodeConfig()), "one", "eins") is None
    )
