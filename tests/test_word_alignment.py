"""Alignments of words: against the alignments of sub-words that a server returns, added up word by word."""

import json

import numpy as np
import pytest
import stand_in
import tensorflow as tf

from t2t_keras.config import DecodeConfig, ModelConfig
from t2t_keras.decoding.translator import Translator
from t2t_keras.reporting.attention import MAX_ALIGNED, word_alignment
from t2t_keras.serving import signatures
from t2t_keras.serving.protocol import options_for
from t2t_keras.serving.requests import pharaoh, translate_requests
from t2t_keras.serving.signatures import Signatures
from t2t_keras.text.request import Request


@pytest.fixture(scope="module")
def translator() -> Translator:
    return stand_in.translator(DecodeConfig(beam_size=2, extra_length=4))


@pytest.fixture(scope="module")
def service(translator) -> Signatures:
    return Signatures(translator)


def words_of(pieces: list[str]) -> list[list[int]]:
    """The places of the sub-words of each word; a ▁ alone belongs to the word after it."""
    words = []
    for place, piece in enumerate(pieces):
        if piece.startswith("▁") and (not words or pieces[words[-1][-1]] != "▁"):
            words.append([])
        words[-1].append(place)
    return words


@pytest.mark.medium
def test_weights_of_words_are_those_of_their_sub_words(translator, service):
    """Of translations that are forced as prefixes: what follows does not change their weights."""
    sources, targets = zip(*stand_in.pairs()[:20], strict=True)
    rows = [20]
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
        assert pharaoh(source, target, [*read, "</s>"], written, weights) == links(expected)


def links(expected) -> str:
    return " ".join(f"{best}-{word}" for word, best in enumerate(np.argmax(expected, axis=1)))


@pytest.mark.medium
def test_requests_have_the_links_of_their_own_translations(service):
    requests = [Request(line) for line in stand_in.sentences(20)]
    found = translate_requests(service, requests, 2, alignment=True)
    inputs = options_for(requests, n_best=2, alignment=True)
    outputs = service.translate_with_options(**{name: tf.constant(values) for name, values in inputs.items()})
    names, expected = ("text", "source_pieces", "pieces", "alignment"), []
    for request, *row in zip(requests, *(outputs[name].numpy() for name in names), strict=True):
        texts, read, written, weights = row
        read = [piece.decode() for piece in read if piece]
        for rank, text in enumerate(texts):
            pieces = [piece.decode() for piece in written[rank] if piece]
            expected.append(pharaoh(request.text, text.decode(), read, pieces, weights[rank]))
    assert [text.decode() for text in found["alignment"].numpy().ravel()] == expected and len(set(expected)) > 5
    best = translate_requests(service, requests, alignment=True)["alignment"]
    assert [text.decode() for text in best.numpy()] == expected[::2]
    assert "alignment" not in translate_requests(service, requests)


WEIGHTS = np.array([
    [0.1, 0.3, 0.2, 0.2, 0.2],
    [0.0, 0.1, 0.0, 0.0, 0.9],
    [0.2, 0.2, 0.3, 0.1, 0.2],
    [0.0, 0.0, 0.0, 0.0, 1.0],
])  # fmt: skip


@pytest.mark.parametrize(("source", "target", "source_pieces", "pieces", "first", "expected"), [
    # Word 0 of the source is the first two sub-words: .4 of the first row against .2 and .2, and so on.
    ("ab c d", "x yz", ["▁a", "b", "▁c", "▁d", "</s>"], ["▁x", "▁y", "z", "</s>"], 0, "0-0 0-1"),
    ("a bc d", "x yz", ["▁a", "▁b", "c", "▁d", "</s>"], ["▁x", "▁y", "z", "</s>"], 0, "1-0 1-1"),
    ("a b c d", "xy z", ["▁a", "▁b", "▁c", "▁d", "</s>"], ["▁x", "y", "▁z", "</s>"], 0, "1-0 2-1"),
    # A search that was stopped writes no end token. A ▁ alone belongs to the word after it.
    ("a b c", "x y", ["▁a", "▁", "b", "▁c", "</s>"], ["▁x", "▁y"], 0, "1-0 1-1"),
    # The first sub-word of each side is that of its language: the links are those of row 2.
    ("a b c", "x", [">>eng<<", "▁a", "▁b", "▁c", "</s>"], [">>deu<<", "▁x", "</s>"], 1, "0-0"),
    # A byte can be a space.
    ("a b", "x", ["▁a", "<0x20>", "b", "</s>"], ["▁x", "</s>"], 0, "1-0"),
    # Other words than those of the text: normalization, placeholders with spaces, a cut source.
    ("a\xa0b", "x", ["▁a", "▁b", "</s>"], ["▁x", "</s>"], 0, ""),
    ("a b", "x y", ["▁a", "▁b", "</s>"], ["｟1｠", "</s>"], 0, ""),
    ("a b c", "x", ["▁a", "▁b", "</s>"], ["▁x", "</s>"], 0, ""),
    ("", "", ["</s>"], ["</s>"], 0, ""),
    ("a", "", [], [], 0, ""),
])  # fmt: skip
def test_pharaoh_s_links_of_a_table(source, target, source_pieces, pieces, first, expected):
    assert pharaoh(source, target, source_pieces, pieces, WEIGHTS, first) == expected


@pytest.mark.medium
def test_a_model_that_does_not_align_is_refused_and_a_long_source_has_no_alignment(translator, service):
    line = stand_in.sentences(1)[0]
    requests = [Request(line), Request("a " * (signatures.MAX_ALIGNED + 1)), Request("")]
    first, long, blank = translate_requests(service, requests, alignment=True)["alignment"].numpy()
    assert first and long == blank == b""
    # Story: a batch of long sources alone was said to be of a model that does not align.
    scored = translate_requests(service, requests[1:2], alignment=True, word_scores=True)
    assert scored["alignment"].numpy().tolist() == [b""] and json.loads(scored["word_scores"].numpy()[0])["words"]
    with pytest.raises(ValueError, match="avoid: expected at most 32 phrases|avoid: expected phrases of at most 32"):
        translate_requests(service, [Request(line, avoid=["x y " * 40])], alignment=True)
    config = ModelConfig(stand_in.VOCAB_SIZE, encoder_layers=1, decoder_layers=1, d_model=4, d_ff=4, num_heads=1)
    copier = Signatures(Translator(stand_in.Copier(config), translator.tokenizer, DecodeConfig()))
    with pytest.raises(ValueError, match="The architecture of this model does not align. Leave out `alignment`."):
        translate_requests(copier, requests, alignment=True)


def test_what_cannot_be_aligned_has_none(translator):
    assert word_alignment(translator, "one  two ", " eins zwei").shape == (2, 2)
    assert word_alignment(translator, "", "eins") is word_alignment(translator, "one", " ") is None
    assert word_alignment(translator, "one", "eins " * MAX_ALIGNED) is None
    config = ModelConfig(stand_in.VOCAB_SIZE, encoder_layers=1, decoder_layers=1, d_model=4, d_ff=4, num_heads=1)
    assert (
        word_alignment(Translator(stand_in.Copier(config), translator.tokenizer, DecodeConfig()), "one", "eins") is None
    )
