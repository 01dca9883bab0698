"""A vocabulary of whole words: the most frequent have ids, no text is lost. See `test_tokenizer.py` too."""

import pytest
import stand_in

from t2t_keras.config import EOS, DecodeConfig
from t2t_keras.serving import ctranslate2_format
from t2t_keras.text import spelling, vocabulary
from t2t_keras.text.words import HEAD, Words, learn

OPTIONS = {"sample": 1000, "seed": 1, "normalization": "identity", "character_coverage": 1.0}
FIRST_BYTE = 4
LINES = [b"the house is big", b"the dog is big , really", b"the dog and the house"] * 5


@pytest.fixture(scope="module")
def words() -> Words:
    """the: 4, then house, is, big and dog: 2 each."""
    return vocabulary.load(learn(LINES, 265, **OPTIONS))


def spelled(word: str) -> list[int]:
    return [FIRST_BYTE + byte for byte in ("▁" + word).encode()]


def test_the_most_frequent_words_have_an_id_and_the_others_are_spelled(words):
    assert isinstance(words, Words) and vocabulary.kind(words.model) == "word"
    assert words.pieces[:5] == ("<pad>", "<unk>", "<s>", "</s>", "<0x00>") and words.pieces[260] == "▁the"
    assert set(words.pieces[260:]) == {"▁the", "▁house", "▁is", "▁big", "▁dog"}
    number = {piece: index for index, piece in enumerate(words.pieces)}
    expected = [number["▁the"], *spelled("houses"), *spelled("and"), number["▁dog"], *spelled("Füße"), EOS]
    assert words.tokenize(["the houses and dog Füße"])[0].numpy().tolist() == expected


@pytest.mark.parametrize(
    "line", ["cat", "cat dog", "dog cat", "cats and the cat", "▁ dog ▁cat▁", "the  cat ", "\ue0f0 dog"]
)
def test_words_in_bytes_keep_their_spaces(words, line):
    ids = words.tokenize([line])
    assert words.detokenize(ids).numpy()[0].decode() == " ".join(line.split(" ")).strip().replace("  ", " ")


def test_a_very_long_word_has_no_id():
    """The time of reading a line is limited by the largest size of a sub-word."""
    fits, long = "a" * 58, "b" * 59
    words = vocabulary.load(learn([f"{long} {fits} x".encode()] * 9, 262, **OPTIONS))
    assert set(words.pieces[260:]) == {"▁" + fits, "▁x"}
    with pytest.raises(ValueError, match="gives 262 at most"):
        learn([f"{long} {fits} x".encode()] * 9, 263, **OPTIONS)


def test_text_that_goes_on_with_a_word_is_spelled_without_a_space(words):
    assert words.joined(["cat dog"], 50)[0].numpy().tolist()[:3] == [FIRST_BYTE + byte for byte in b"cat"]


def test_another_file_is_refused():
    with pytest.raises(ValueError, match="Not a vocabulary of words: 3 other bytes."):
        Words(b"abc")
    with pytest.raises(ValueError, match="Not a SentencePiece model"):
        vocabulary.load(HEAD + b"abc")


def test_a_model_translates_with_them_and_the_format_of_ctranslate2_is_refused(tmp_path):
    pytest.importorskip("ctranslate2")
    translator = stand_in.translator(DecodeConfig(beam_size=2, extra_length=9), kind="word")
    lines = ["one unheard word", "one"]
    together = translator(lines)["text"].numpy().tolist()
    assert together == [translator([line])["text"].numpy()[0] for line in lines] and any(together)
    message = "needs a model with byte-pair encoding. Received: a model with other sub-words"
    with pytest.raises(ValueError, match=message):
        ctranslate2_format.write(translator, tmp_path / "new")


def test_a_word_has_the_sum_of_its_sub_words():
    pieces = ["▁caf", "<0xC3>", "<0xA9>", "▁", "x", "▁▁y", "<0x20>", "<unk>", "z"]
    log_probs = [-1.0, -2.0, -4.0, -8.0, -16.0, -32.0, -64.0, -128.0, -256.0]
    sums = (-7.0, -24.0, -32.0, -448.0)
    assert spelling.by_word(pieces, log_probs, "café x  y \ufffdz") == (("café", "x", "y", "\ufffdz"), sums)
    assert spelling.by_word(pieces, log_probs, "another text") == (("café", "x", "y", "z"), sums)
    assert spelling.by_word([], [], "") == ((), ())
    ends = ["ca", "fé▁", ". ▁", "x▁"]  # As of tensor2tensor.
    assert spelling.by_word(ends, [-1.0, -2.0, -4.0, -8.0], "café. x") == (("café.", "x"), (-7.0, -8.0))


@pytest.mark.parametrize(("pieces", "words", "expected"), [
    (["▁a", "b", "▁c"], 2, [0, 0, 1]),
    (["▁a", "b", "▁c"], 3, None),  # Of a text that was cut: three sub-words are not three words.
    (["b", "▁c"], 2, [0, 1]),
    (["a", "b", "c"], 3, [0, 1, 2]),
    (["a", "b", "c"], 1, [0, 0, 0]),
    (["a", "b", "c"], 2, None),
    (["a▁", "b", "c▁"], 2, [0, 1, 1]),
    ([], 0, None),
    (["▁a", "<unk>", "▁b"], 2, [0, 0, 1]),
    # A word that is spelled in bytes, with the ▁ before it.
    (["▁a", "<0xE2>", "<0x96>", "<0x81>", "<0xC3>", "<0xBC>", "▁b"], 3, [0, 1, 1, 1, 1, 1, 2]),
    (["▁a", "<0xE2>", "<0x96>", "<0x81>", "b", "▁b"], 2, [0, 0, 0, 0, 0, 1]),  # A ▁ of the text.
])  # fmt: skip
def test_the_words_of_sub_words_are_as_many_as_those_of_the_text(pieces, words, expected):
    numbers = spelling.word_numbers(pieces, " ".join("w" * words))
    assert expected is None if numbers is None else numbers.tolist() == expected
