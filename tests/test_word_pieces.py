"""Word pieces (section 5.1, English-French): segmentation and learning, and that all that uses sub-words can use them.

What they share with byte-pair encoding is tested in test_tokenizer.py.
"""

import collections
import dataclasses
import pathlib
import random
import unicodedata

import numpy as np
import programs
import pytest
import stand_in
import tensorflow as tf
from test_run import DECODE, MODEL, TRAIN, resume, train
from test_savedmodel import LINES
from test_tokenizer import NASTY, nasty_lines, round_trip, text

from t2t_keras.config import EOS, DataConfig, DecodeConfig
from t2t_keras.data import builtin_corpus, prepare
from t2t_keras.decoding import loading
from t2t_keras.evaluation import cross_entropy
from t2t_keras.reporting import attention, embedding_projector
from t2t_keras.runs import registry
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving import ctranslate2_format, savedmodel
from t2t_keras.text import vocabulary, word_pieces
from t2t_keras.text.word_pieces import HEAD, WordPieces

FIRST = EOS + 257  # The first id that is neither special nor a byte.
DATA = DataConfig(dataset="builtin", builtin_pairs=600, subwords="wordpiece")


def learn(lines, vocab_size: int, character_coverage: float = 1.0) -> WordPieces:
    options = {"sample": 10**6, "seed": 1, "normalization": "identity", "character_coverage": character_coverage}
    return WordPieces(word_pieces.learn(lines, vocab_size, **options))


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    return [side.encode() for pair in builtin_corpus.splits(400, seed=3)["train"] for side in pair]


@pytest.fixture(scope="module")
def pieces(lines) -> WordPieces:
    return learn(lines, 600)


def longest_matches(pieces: tuple[str, ...], line: str) -> list[int]:
    """Oracle: from left to right, the longest piece that fits; a character without one in bytes; none of blank text."""
    if all(character.isspace() or unicodedata.category(character) == "Cf" for character in line):
        return [EOS]
    ids = {piece.replace("▁", " "): FIRST + index for index, piece in enumerate(pieces[FIRST:])}
    rest, found = "".join(f" {word}" for word in line.split(" ") if word), []
    while rest:
        length = max((length for length in range(1, 17) if rest[:length] in ids), default=0)
        found += [ids[rest[:length]]] if length else [EOS + 1 + byte for byte in rest[0].encode()]
        rest = rest[length or 1 :]
    return [*found, EOS]


def test_of_characters_that_are_equally_frequent_the_first_in_unicode_are_kept():
    """Whatever line comes first."""
    for word in ("ab", "ba"):
        assert word_pieces._alphabet(collections.Counter({"▁" + word: 1}), 0.5) == {"▁", "a"}


def test_a_line_is_cut_into_the_longest_pieces_from_left_to_right(pieces, lines):
    draw = random.Random(1)
    parts = [piece.replace("▁", " ") for piece in pieces.pieces[FIRST:]] + list(NASTY)
    made = ["".join(draw.choices(parts, k=draw.randint(1, 9))) for _ in range(1000)]
    made += [*(line.decode() for line in lines[:300]), *nasty_lines(300, seed=2)]
    for line, ids in zip(made, pieces.tokenize(tf.constant(made)).to_list(), strict=True):
        assert ids == longest_matches(pieces.pieces, line), line


def test_a_piece_that_begins_a_word_has_a_mark_and_others_have_none():
    """The example of Wu et al. (2016), section 4.1."""
    own = [
        "▁", "▁J", "et", "▁makers", "▁fe", "ud", "▁over", "▁seat", "▁width", "▁with", "▁big", "▁orders", "▁at",
        "▁stake",
    ]  # fmt: skip
    subwords = WordPieces(HEAD + "".join(f"{piece}\n" for piece in own).encode())
    [ids] = subwords.tokenize(tf.constant(["Jet makers feud over seat width with big orders at stake"])).to_list()
    assert [subwords.pieces[index] for index in ids] == [*own[1:], "</s>"]


@pytest.mark.parametrize("byte", range(128))
def test_every_ascii_character_comes_back_whether_it_has_a_piece_or_not(pieces, byte):
    """TF.Text's operation cannot match byte 0, and reads outside of its memory at a piece that is byte 17."""
    line = f"a{chr(byte)}b {chr(byte)}".strip(" ")
    assert round_trip(pieces, [line]) == [" ".join(line.split(" "))]


def test_a_word_of_any_length_is_not_unknown(pieces):
    """TF.Text has a maximum of 100 bytes, beyond which a word is unknown."""
    long = ["x" * 10**5, "größer" * 10**4, "漢" * 10**4]
    assert round_trip(pieces, long) == long


def test_pieces_do_not_cross_letters_digits_and_other_characters():
    learned = learn(["(word) 1990s, 3.5% (word). e-mail: foo@bar.com नमस्ते".encode()] * 50, 304)
    for piece in learned.pieces[FIRST:]:
        assert len({word_pieces._kind(character) for character in piece.removeprefix("▁")}) <= 1
    assert {"▁(", "word", "▁1990", "▁नमस्ते"} <= set(learned.pieces)


def test_the_most_frequent_pieces_come_first_after_the_characters(pieces, lines):
    longer = [index for index, piece in enumerate(pieces.pieces) if index >= FIRST and len(piece) > 1]
    assert longer == list(range(longer[0], pieces.vocab_size))
    counts = collections.Counter(id for ids in pieces.tokenize(tf.constant(lines)).to_list() for id in ids)
    first, last = (np.mean([counts[index] for index in part]) for part in (longer[:50], longer[-50:]))
    assert first > 5 * last > 0


def test_fewer_pieces_a_sentence_than_characters_and_not_more_than_of_byte_pair_encoding_by_much(lines):
    options = {"sample": 10**6, "seed": 1, "normalization": "identity", "character_coverage": 1.0}
    number = {
        kind: len(vocabulary.load(vocabulary.learn(kind, lines, 600, **options)).tokenize(lines).values)
        for kind in ("bpe", "wordpiece")
    }
    assert number["wordpiece"] < 1.1 * number["bpe"] < 0.5 * sum(map(len, lines))


def test_rare_characters_control_characters_and_the_mark_are_spelled_in_bytes():
    made = [line.decode() for line in text(400, seed=1)] + ["a\tb▁c\x85 漢", "▁▁▁ ▁x x▁y"] * 9
    learned = learn([line.encode() for line in made], 305, character_coverage=0.995)
    characters = {piece for piece in learned.pieces[FIRST:] if len(piece) == 1}
    assert not characters & set("\t\x85漢") and "ß" in characters
    assert not [piece for piece in learned.pieces[FIRST:] if set(piece) & set("\t\x85漢 ") or "▁" in piece[1:]]
    assert round_trip(learned, made[-1:]) == made[-1:]


def test_characters_of_words_too_rare_to_learn_from_have_pieces(monkeypatch):
    """Learning looks at the most frequent words only."""
    monkeypatch.setattr(word_pieces, "WORDS", 3)
    learned = learn([b"the fox the fox the dog", b"Zyzzyva"], 300 - 24)
    assert {"Z", "y", "z", "v", "▁the"} <= set(learned.pieces[FIRST:])
    assert "▁Zyzzyva" not in learned.pieces


@pytest.mark.parametrize(("wanted", "expected"), [(95, 97), (9000, 10_000), (20_000, 10_000), (10, 10)])
def test_learning_looks_for_the_number_of_occurrences_that_gives_few_more_pieces_than_wanted(
    monkeypatch, wanted, expected
):
    """10,000 / k pieces occur k times or more: 97 of them at least 103 times, which is within 5% above 95."""
    pytest.importorskip("tensorflow_text", reason="TF.Text is not installed")
    tried = []

    def learn_with_thresh(counts, threshold, params):
        tried.append(threshold)
        return [str(number) for number in range(10_000 // threshold)]

    learner = "tensorflow_text.tools.wordpiece_vocab.wordpiece_tokenizer_learner_lib"
    monkeypatch.setattr(f"{learner}.learn_with_thresh", learn_with_thresh)
    assert len(word_pieces._learn_pieces([("a", 3), ("the", 1000)], wanted)) == expected
    assert len(tried) == len(set(tried)) <= 10


def test_pieces_have_at_most_16_characters():
    learned = learn([b"abcdefghijklmnopqrstuvwxyz0123456789" * 3] * 9, 300)
    assert max(map(len, learned.pieces[FIRST:])) <= 16


def test_a_piece_may_have_16_characters_of_four_bytes():
    longest = "😀" * 16
    subwords = WordPieces(HEAD + f"▁\n{longest}\n".encode())
    assert subwords.tokenize(tf.constant([longest])).to_list() == [[FIRST, FIRST + 1, EOS]]


@pytest.mark.parametrize(("rest", "found"), [
    (b"a\nb", "no line end"), (b"a\na\n", "'a'"), (b"\n", "''"), (b"x" * 65 + b"\n", "'xxx"),
    ("a▁\n".encode(), "'a▁'"), (b"a b\n", "'a b'"), (b"<s>\n", "'<s>'"), (b"\x11a\n", r"'\\x11a'"),
    (b"\xff\n", "UTF-8"),
])  # fmt: skip
def test_a_damaged_file_is_refused(rest, found):
    with pytest.raises(ValueError, match=f"(?s)[Ww]ord pieces.*{found}"):
        vocabulary.load(HEAD + rest)


def test_another_normalization_is_refused():
    message = "`normalization` needs `subwords=bpe`.*subwords='wordpiece', normalization='nfkc'"
    with pytest.raises(ValueError, match=message):
        DataConfig(subwords="wordpiece", normalization="nfkc")
    with pytest.raises(ValueError, match="normalization=nfkc"):
        word_pieces.learn([], 500, sample=1000, seed=1, normalization="nfkc", character_coverage=1.0)


@pytest.mark.medium
def test_beam_and_this_process_write_the_same(tmp_path):
    pytest.importorskip("apache_beam", reason="the extra 'beam' is not installed: pip install -e '.[beam]'")
    from t2t_keras.beam import preparing

    contents = []
    for name, write in (("local", prepare.write), ("beam", preparing.writer("DirectRunner"))):
        prepare.Preparation(DATA, MODEL.vocab_size, 1, tmp_path / name, registry.task("translation")).run(write)
        contents.append(
            {
                path.relative_to(tmp_path / name): path.read_bytes()
                for path in (tmp_path / name).rglob("*")
                if path.is_file()
            }
        )
    assert contents[0] == contents[1]
    assert contents[0][pathlib.Path(prepare.SUBWORDS)].startswith(HEAD)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> pathlib.Path:
    model_dir = tmp_path_factory.mktemp("run")
    train(model_dir, data=DATA)
    return model_dir


@pytest.mark.medium
def test_a_run_trains_and_draws_and_labels_its_embeddings_with_word_pieces(run):
    subwords = WordPieces(*SavedRun.open(run).subwords())
    assert subwords.vocab_size == MODEL.vocab_size
    labels = (run / "logs" / embedding_projector.FOLDER / embedding_projector.LABELS).read_text().splitlines()
    assert labels[FIRST + 1].split("\t")[0] == subwords.pieces[FIRST]


@pytest.mark.medium
def test_a_run_is_resumed_with_its_kind_of_sub_words_and_with_no_other(run):
    assert SavedRun.open(run).options.data.subwords == "wordpiece"
    with pytest.raises(ValueError, match=r"was trained with. Received: subwords=bpe \(the run: wordpiece\). "):
        resume(run, **{**dataclasses.asdict(DATA), "subwords": "bpe"})
    state, _ = resume(run, train_steps=TRAIN.train_steps + 1)
    assert state.step == TRAIN.train_steps + 1


@pytest.mark.medium
def test_a_run_translates_scores_and_shows_attention(run):
    translator = loading.load(run)
    lines = ["one hundred and two", "😀"]
    assert translator.n_best(tf.constant(lines))["text"].shape == [2, DECODE.beam_size]
    assert cross_entropy.perplexity(translator, lines, ["einhundertzwei", "😀"]) > 1
    found = attention.attention_of(translator, "one hundred", "einhundert")
    assert [*found.source.words] == ["one", "hundred", "</s>"]


@pytest.fixture(scope="module")
def translator():
    return stand_in.translator(DecodeConfig(beam_size=2, alpha=0.8, max_input=24, extra_length=4), kind="wordpiece")


@pytest.mark.medium
def test_an_export_translates_the_same_in_a_process_without_this_package(translator, tmp_path):
    version = savedmodel.export(translator, tmp_path, {})
    texts, scores, _ = programs.alone(programs.TRANSLATE, version, LINES)
    expected = translator(tf.constant(LINES))
    assert texts == [text.decode() for text in expected["text"].numpy()]
    np.testing.assert_allclose(scores, expected["score"], atol=1e-4)


def test_ctranslate2_s_format_is_refused(translator, tmp_path):
    """Its example needs SentencePiece."""
    with pytest.raises(ValueError, match="byte-pair encoding"):
        ctranslate2_format.write(translator, tmp_path / "new")
    assert not (tmp_path / "new").exists()
