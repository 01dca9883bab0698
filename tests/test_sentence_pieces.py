"""Sub-words of Marian models: pieces of a SentencePiece model with ids from a list, in the graph."""

import functools
import json
import struct

import pytest
import tensorflow as tf
import transformers_models as models

from t2t_keras.config import EOS, UNK
from t2t_keras.text import piece_file, sentencepiece_model, vocabulary

TAGS = [">>de<<", ">>en US<<"]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def sides(request):
    """The SentencePiece model of the source, and the pieces of both sides in an order of their own."""
    source, target = (models.spm(words, request.param) for words in (models.SOURCE_WORDS, models.TARGET_WORDS))
    listed = [piece for piece in models.vocabulary(source, target, more=tuple(TAGS)) if piece not in piece_file.SPECIAL]
    return source, listed


@pytest.fixture(scope="module")
def subwords(sides):
    source, listed = sides
    return vocabulary.load(piece_file.pack(listed, source))


def test_ids_are_those_of_the_list_for_the_pieces_of_sentencepiece(sides, subwords, tmp_path):
    """Also for text without a piece on this side that the other side has a piece for, as in transformers' tokenizer."""
    source, listed = sides
    (tmp_path / "source.spm").write_bytes(source)
    ids = {"</s>": EOS, "<unk>": UNK} | {piece: EOS + 1 + index for index, piece in enumerate(listed)}
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    lines = models.nasty_lines(1000)
    found = subwords.tokenize(tf.constant(lines)).to_list()
    assert found == [models.ids_of(tmp_path, line) for line in lines]
    assert sum(UNK in ids for ids in found) > 300 and sum(UNK not in ids for ids in found) > 100


def test_a_tag_is_one_sub_word_at_the_beginning_of_a_line_only(subwords):
    tag, plain = subwords.pieces.index(">>de<<"), subwords.tokenize(tf.constant(["a dog"])).to_list()[0]
    lines = [">>de<< a dog", ">>de<<", ">>xx<<a dog", "a >>de<< dog"]
    first, alone, unknown, inside = subwords.tokenize(tf.constant(lines)).to_list()
    assert first == [tag, *plain] and alone == [tag, EOS] and unknown == [UNK, *plain] and tag not in inside


def test_text_that_spells_a_special_token_is_text(subwords):
    for spelled in ("</s>", "<pad>", "<s>"):
        assert min(subwords.tokenize(tf.constant([f"a {spelled} dog"])).to_list()[0][:-1]) >= UNK
        assert subwords.tokenize(tf.constant([f"a {spelled} dog"])).to_list()[0].count(EOS) == 1


def test_text_without_a_piece_that_follows_other_text_is_unknown_and_not_lost(sides, subwords):
    """Story: a first character without a piece was one with the mark before the text, and left out with it."""
    texts = ["☃", "☃a", "a dog", "", "☃☃ dog"]
    found = subwords.joined(tf.constant(texts), 50).to_list()
    assert found[0] == [UNK] and found[1][0] == UNK and len(found[1]) > 1 and found[3] == []
    shown = subwords.detokenize(tf.ragged.constant([[*subwords.tokenize(["x"])[0, :-1].numpy(), *found[2]]], tf.int32))
    assert shown.numpy()[0].decode().endswith("a dog")
    assert found[4][0] == UNK and subwords.tokenize(tf.constant(["dog"])).to_list()[0][:-1] == found[4][1:]
    assert subwords.joined(tf.constant(texts), 1).to_list() == [ids[:1] for ids in found]


@pytest.mark.parametrize("listed", ["all", "without <0x00>", "without bytes"])
def test_text_that_follows_other_text_is_not_lost_where_a_model_spells_bytes(listed):
    model = models.spm(models.SOURCE_WORDS, size=330, byte_fallback=True)
    pieces = [piece for piece in models.pieces_of(model) if piece not in piece_file.SPECIAL]
    if listed != "all":
        pieces = [piece for piece in pieces if not piece.startswith("<0x00>" if listed[-1] == ">" else "<0x")]
    subwords = vocabulary.load(piece_file.pack(pieces, model))
    [found] = subwords.joined(tf.constant(["dog ☃"]), 50).to_list()
    shown = subwords.detokenize(tf.ragged.constant([found], tf.int32)).numpy()[0].decode()
    assert shown == ("dog" if listed == "without bytes" else "dog ☃")


def test_a_token_that_follows_other_text_is_itself():
    tokens = vocabulary.load(piece_file.pack([".", "dog"], b"", tagged=False))
    assert tokens.joined(tf.constant([". dog", "☃"]), 9).to_list() == [[4, 5], [UNK]]


def test_pieces_become_text_again():
    listed = ["▁a", "▁dog", ">>de<<", "▁猫", "s"]
    subwords = vocabulary.load(piece_file.pack(listed, models.spm(models.SOURCE_WORDS)))
    rows = [[4, 5, 8, EOS], [6, 7, EOS], [EOS], [UNK, 4]]
    found = subwords.detokenize(tf.ragged.constant(rows, tf.int32)).numpy()
    assert [text.decode() for text in found] == ["a dogs", ">>de<< 猫", "", "a"]


def test_bytes_become_characters():
    model = models.spm(models.SOURCE_WORDS)
    subwords = vocabulary.load(piece_file.pack(["<0xC3>", "<0xA9>", "\u3000", "▁x"], model))
    found = subwords.detokenize(tf.ragged.constant([[7, 4, 5, 6], [4]], tf.int32)).numpy()
    assert [text.decode() for text in found] == ["xé", "�"]


def test_the_kind_is_known_by_the_file(sides):
    source, listed = sides
    assert vocabulary.kind(piece_file.pack(listed, source)) == "sentencepiece"
    assert vocabulary.kind(source) == "bpe"


def test_such_sub_words_cannot_be_learned():
    with pytest.raises(ValueError, match="subwords_file"):
        vocabulary.learn("sentencepiece", [b"a"], 300)


@pytest.mark.parametrize(("content", "message"), [
    (b"", "other bytes"), (b'["a"]\n', "other bytes"), (b'["a"]\nno model', "other bytes"),
    (b'{"a": 1}\nMODEL', "is not a list of sub-words"), (b"[1]\nMODEL", "is not a list of sub-words"),
    (b'["a", "a"]\nMODEL', "one of them twice"), (b'["a", "\\ud800"]\nMODEL', "is not a list of sub-words"),
    (b"[" * 100_000 + b"\nMODEL", "other bytes"),
])  # fmt: skip
def test_other_files_are_refused(content, message):
    model = models.spm(models.SOURCE_WORDS)
    with pytest.raises(ValueError, match=message):
        vocabulary.load(piece_file.HEAD + content.replace(b"MODEL", model))


# A multilingual model.

LISTED = ["▁a", ">>deu_Latn<<", ">>fra_Latn<<", ">>eng_Latn<<"]


@functools.cache
def processor() -> bytes:
    return models.spm(models.SOURCE_WORDS)


def packed(language: str | None) -> bytes:
    return piece_file.pack(LISTED, processor(), language)


def test_a_file_of_many_languages_has_one_of_them_or_none():
    none, german, french, without = map(packed, ("", "deu_Latn", "fra_Latn", None))
    assert piece_file.with_language(none, "deu_Latn") == piece_file.with_language(french, "deu_Latn") == german
    expected = ["", "deu_Latn", "fra_Latn", None]
    assert [piece_file.unpack(content).language for content in (none, german, french, without)] == expected
    assert (
        piece_file.unpack(german).languages == piece_file.unpack(none).languages == ("deu_Latn", "fra_Latn", "eng_Latn")
    )
    assert piece_file.unpack(without).languages == ()
    assert len({piece_file.unpack(content)[:2] for content in (none, german, without)}) == 1
    assert [piece_file.without_language(content) for content in (none, german, french)] == [none] * 3
    assert [piece_file.without_language(content) for content in (without, b"bpe")] == [without, b"bpe"]


def test_languages_are_chosen_for_the_target_and_the_source():
    none, german, french = map(packed, ("", "deu_Latn", "fra_Latn"))
    assert piece_file.with_languages([none, none], "deu_Latn", "fra_Latn") == [french, german]
    assert piece_file.with_languages([german, french]) == [german, french]
    assert piece_file.with_languages([german, french], target_language="fra_Latn") == [french, french]
    assert piece_file.with_languages([b"bpe"]) == [b"bpe"]
    for contents, chosen, option in (([none, german], {}, "target_language"), ([german, none], {}, "source_language")):
        message = f"^The model is multilingual. Choose `{option}` among its 3 languages, such as deu_Latn, fra_Latn"
        with pytest.raises(ValueError, match=message):
            piece_file.with_languages(contents, **chosen)


def test_a_file_without_languages_takes_none():
    message = "The model is not multilingual, so it has no language 'deu_Latn'."
    for content in (packed(None), b"bpe"):
        with pytest.raises(ValueError, match=f"^{message}$"):
            piece_file.with_language(content, "deu_Latn")
        for option in ("source_language", "target_language"):
            with pytest.raises(ValueError, match=f"^`{option}`: {message}$"):
                piece_file.with_languages([content], **{option: "deu_Latn"})


def test_a_language_that_is_not_among_the_sub_words_is_refused():
    changed = packed("").replace(b'"language": ""', b'"language": "deu"')
    for refused in (
        lambda: packed("deu"), lambda: piece_file.with_language(packed(""), "deu"), lambda: vocabulary.load(changed),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="^'deu' is none of the 3 languages of the model. Did you mean deu_Latn"):
            refused()


@pytest.mark.parametrize(("number", "content", "reason"), [
    (1, sentencepiece_model._field(1, b"a" * 400_000), "piece is too long"),
    (3, sentencepiece_model._field(2, struct.pack("<I", 2**32 - 16) + bytes(64)), "Trie data size exceeds"),
    (3, sentencepiece_model._field(2, struct.pack("<I", 1024) + bytes(range(1, 256)) * 5 + b"a\0"), "is invalid"),
])  # fmt: skip
def test_a_crafted_model_is_refused_before_tensorflow_reads_it(number, content, reason):
    """A piece of 400,000 characters, and maps of characters that point outside; of both kinds of sub-words."""
    model = models.spm(models.SOURCE_WORDS) + sentencepiece_model._field(number, content)
    for crafted in (model, piece_file.HEAD + b'["a"]\n' + model):
        with pytest.raises(ValueError, match="^Not a .*SentencePiece model.*: [0-9,]+ other bytes") as refused:
            vocabulary.load(crafted)
        assert reason in str(refused.value.__cause__)
