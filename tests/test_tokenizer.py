"""Sub-words (section 5.1): text survives the way to ids and back, whatever is in it."""

import codecs
import collections
import hashlib
import io
import os
import pathlib
import random
import re
import sys

import programs
import pytest
import sentencepiece
import tensorflow as tf

from t2t_keras.config import BOS, EOS, PAD, UNK, DataConfig
from t2t_keras.text import byte_pairs, vocabulary
from t2t_keras.text.lines import is_blank
from t2t_keras.text.subwords import draw_sample
from t2t_keras.text.word_pieces import WordPieces

ESCAPE, UNDERSCORE = "\ue0f0", "▁"
KINDS = {"bpe": 360, "wordpiece": 310, "word": 275}  # Of sub-words, and how many are learned here.
WORDS = "the quick brown fox jumps over a lazy dog zwei Füße größer schön 1990 21 3.5".split()
# Letters, the escaped characters, spaces that are no space, ends of lines that are none, marks, controls, look-alikes.
NASTY = (
    "a", "ß", "7", " ", "▁", ESCAPE, ESCAPE + "0", ESCAPE + "1", ESCAPE + ESCAPE, "0", "1", "\x00", "\t", "\r",
    "\n", "\x0b", "\x0c", "\x11", "\x1b", "\x7f", "\x85", "\u00a0", "\u00ad", "\u200b", "\u200d", "\u200f", "\u2028",
    "\u2029", "\u202e", "\u2047", "\u2585", "\u3000", "\ufeff", "\ufffd", "\uffff", "\U0010ffff", "e\u0301",
    "\u0301", "é", "ﬁ", "½", "…", "مرحبا", "שלום", "नमस्ते", "漢字", "한국어", "ไทย", "😀", "👩\u200d👧", "🇩🇪", "<s>",
    "</s>", "<unk>", "<pad>", "<0x41>", "<0x", ">", "&amp;", "\\", '"', "''", ".*", "\\0", "$1", "the", "quick",
    "größer",
)  # fmt: skip


def text(lines: int, seed: int) -> list[bytes]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))).encode() for _ in range(lines)]


def learn(
    lines, vocab_size: int = 0, *, kind: str = "bpe", sample: int = 10**6, seed: int = 1,
    normalization: str = "identity",
) -> bytes:  # fmt: skip
    options = {"sample": sample, "seed": seed, "normalization": normalization, "character_coverage": 0.9995}
    return vocabulary.learn(kind, lines, vocab_size or KINDS[kind], **options)


def learned_by_hand(**options) -> bytes:
    """Returns a model that a person learned with SentencePiece and some of its options."""
    written = io.BytesIO()
    lines = (line.decode() for line in text(400, seed=1))
    options = {"model_type": "bpe", "vocab_size": 60, "minloglevel": 2, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=written, **options)
    return written.getvalue()


@pytest.fixture(scope="session", params=KINDS)
def kind(request) -> str:
    return request.param


@pytest.fixture(scope="session")
def subwords(kind):
    """Learned from words, and from the two escaped characters so often that they would be parts of sub-words."""
    strange = [f"the{UNDERSCORE}fox {ESCAPE}0{UNDERSCORE} {ESCAPE}{ESCAPE}1 dog".encode()] * 100
    return vocabulary.load(learn(text(400, seed=1) + strange, kind=kind))


def round_trip(subwords, lines: list[str]) -> list[str]:
    return [line.decode() for line in subwords.detokenize(subwords.tokenize(tf.constant(lines))).numpy()]


def single_spaced(line: str) -> str:
    return "" if is_blank(line) else re.sub(" +", " ", line).strip(" ")


def nasty_lines(count: int, seed: int) -> list[str]:
    """Lines of nasty parts, and of characters from anywhere in Unicode."""
    draw = random.Random(seed)

    def part() -> str:
        if draw.random() < 0.7:
            return draw.choice(NASTY)
        return chr(draw.choice((draw.randrange(0xD800), draw.randrange(0xE000, 0x110000))))

    return [single_spaced("".join(part() for _ in range(draw.randint(1, 12)))) for _ in range(count)]


@pytest.mark.parametrize("line", ["", "the quick brown fox", "größer und schöner", *NASTY], ids=ascii)
def test_a_line_comes_back_as_it_was(subwords, line):
    line = single_spaced(line)
    assert round_trip(subwords, [line]) == [line]


def test_any_line_of_nasty_characters_comes_back_as_it_was(subwords):
    lines = nasty_lines(4000, seed=2)
    assert round_trip(subwords, lines) == lines


def test_every_sequence_of_four_characters_around_the_escape_comes_back_as_it_was(subwords):
    alphabet = [ESCAPE, UNDERSCORE, "0", "1", "a"]
    lines = [a + b + c + d for a in alphabet for b in alphabet for c in alphabet for d in alphabet]
    assert round_trip(subwords, lines) == lines


def test_doubled_and_edge_spaces_are_what_is_lost(subwords):
    assert round_trip(subwords, ["  the  fox ", " ", "a \u00a0 b"]) == ["the fox", "", "a \u00a0 b"]


@pytest.mark.parametrize("line", ["", "  ", "\t", "\xa0", "\u3000", "\u200b", "\u2028 \xad", "\u200f" * 400], ids=ascii)
def test_a_blank_line_has_an_end_token_only(subwords, line):
    """Story: a line of a tab or of U+200B was translated, and trained on."""
    ids, truncated = subwords.cut(tf.constant([line, "the", line + "the"]), 9)
    assert subwords.is_blank(ids).numpy().tolist() == [True, False, False] and ids[0].numpy().tolist() == [EOS]
    assert not truncated[0] and subwords.words([line]).row_lengths()[0] == 0
    assert subwords.sentences([line.encode()])[0].tolist() == [EOS]


def test_special_ids_are_those_of_the_config(subwords):
    assert subwords.pieces[: EOS + 1] == ("<pad>", "<unk>", "<s>", "</s>")
    assert subwords.pieces[EOS + 1 : EOS + 257] == tuple(f"<0x{byte:02X}>" for byte in range(256))


def test_special_ids_of_sentencepiece_are_those_of_the_config():
    processor = sentencepiece.SentencePieceProcessor(model_proto=learn(text(400, seed=1)))
    ids = [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()]
    assert ids == [PAD, UNK, BOS, EOS] == [0, 1, 2, 3]


def test_a_sentence_is_ordinary_sub_words_and_then_the_end(subwords):
    for ids in subwords.tokenize(tf.constant(["", *NASTY, *nasty_lines(1000, seed=3)])).to_list():
        *words, end = ids
        assert end == EOS
        assert all(EOS < word < subwords.vocab_size for word in words)


def test_a_line_that_spells_a_special_symbol_is_not_one(subwords):
    for line in ("<s>", "</s>", "<unk>", "<pad>", "<0x41>"):
        [ids] = subwords.tokenize(tf.constant([line])).to_list()
        assert len(ids) > 3


def test_an_empty_line_is_the_end_alone(subwords):
    assert subwords.tokenize(tf.constant(["", "a"])).to_list()[0] == [EOS]


def test_no_lines_are_no_sentences(subwords):
    ids = subwords.tokenize(tf.constant([], tf.string))
    assert ids.nrows() == 0
    assert subwords.detokenize(ids).numpy().tolist() == []


def test_text_that_follows_other_text_is_written_without_a_space(subwords):
    parts = ["{0}", "<b>", "</b>", "one", "é", "½😀", "\ue0f2", "▁", "a b", "http://x.de/a?b=1", "", " x", "\x11\x00"]
    found = subwords.joined(tf.constant(parts), 50)
    words = subwords.tokenize(["two"] * len(parts))[:, :-1]
    whole = subwords.detokenize(tf.concat([words, found], axis=1)).numpy()
    assert [text.decode() for text in whole] == ["two" + part for part in parts]
    assert subwords.joined(tf.constant(parts), 2).to_list() == [ids[:2] for ids in found.to_list()]


def test_special_ids_among_a_translation_are_not_written(subwords):
    [[*words, _]] = subwords.tokenize(tf.constant(["quick fox"])).to_list()
    ids = tf.ragged.constant([[BOS, *words[:1], UNK, PAD, *words[1:], EOS, PAD], [EOS], []], dtype=tf.int32)
    assert subwords.detokenize(ids).numpy().tolist() == [b"quick fox", b"", b""]


def test_any_ids_make_valid_utf8(subwords):
    """A model may put bytes together that are no character."""
    draw = random.Random(4)
    ids = tf.ragged.constant(
        [draw.choices(range(subwords.vocab_size), k=draw.randint(0, 9)) for _ in range(1000)], dtype=tf.int32
    )
    for line in subwords.detokenize(ids).numpy():
        line.decode("utf-8")


@pytest.mark.parametrize("max_length", [1, 2, 3, 7, 1000])
def test_a_cut_sentence_keeps_its_end(subwords, max_length):
    lines = tf.constant(["", "a", *nasty_lines(200, seed=5)])
    for whole, cut in zip(
        subwords.tokenize(lines).to_list(), subwords.tokenize(lines, max_length).to_list(), strict=True
    ):
        assert cut == (whole if len(whole) <= max_length else [*whole[: max_length - 1], EOS])


def test_long_text_is_read_up_to_the_last_sub_word_that_is_asked_for(subwords):
    text = tf.constant([" ".join(WORDS * 20)])
    assert subwords.tokenize(text, 61).to_list() == [[*subwords.tokenize(text)[0, :60].numpy(), EOS]]
    assert subwords.joined(text, 60).to_list() == subwords.joined(text, 10**4)[:, :60].to_list()


def test_a_line_with_text_beyond_what_is_read_is_cut_although_it_has_few_sub_words(subwords):
    """Spaces are none. With 20 sub-words and one more, of 64 bytes each, 1,344 bytes are read."""
    lines = tf.constant([f"a{' ' * number}b" for number in (1342, 1343)])
    ids, cut = subwords.cut(lines, 20)
    assert cut.numpy().tolist() == [False, True] and subwords.detokenize(ids).numpy().tolist() == [b"a b", b"a"]


def test_every_byte_that_is_not_utf8_becomes_a_replacement_character(subwords):
    """Oracle: Python's decoder, which for SentencePiece replaces one byte at a time. The parts are whole and broken ▁,
    escape, emoji, surrogate. For word pieces, the beginning of a character makes one replacement character, whatever
    its number of bytes.
    """
    codecs.register_error("byte by byte", lambda error: ("\ufffd", error.start + 1))
    draw = random.Random(6)
    parts = [
        UNDERSCORE.encode(), ESCAPE.encode(), b"\xe2\x96", b"\x81", b"\xee\x83", b"\xb0", b"0", b"1", b"a", b" b",
        b"\x00", b"\xff", b"\xc3",
    ]  # fmt: skip
    parts += [b"\xa4", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xf0\x9f\x98\x80", b"\xf0\x9f"]
    lines = [b"".join(draw.choices(parts, k=draw.randint(1, 8))) for _ in range(1500)]
    lines += [draw.randbytes(draw.randint(1, 8)) for _ in range(1500)]
    expected = [
        single_spaced(line.decode("utf-8", errors="replace" if isinstance(subwords, WordPieces) else "byte by byte"))
        for line in lines
    ]
    assert round_trip(subwords, lines) == expected


def test_the_graph_gives_the_ids_that_eager_gives(subwords):
    lines = tf.constant(nasty_lines(200, seed=7))
    in_graph = tf.function(subwords.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    assert in_graph(lines).to_list() == subwords.tokenize(lines).to_list()


def test_without_identity_text_is_normalised_but_the_escaped_characters_stay():
    subwords = byte_pairs.BytePairs(learn(text(400, seed=1), normalization="nfkc"))
    assert round_trip(subwords, ["½ ﬁ", f"{UNDERSCORE}a{ESCAPE}0"]) == ["1⁄2 fi", f"{UNDERSCORE}a{ESCAPE}0"]


@pytest.mark.parametrize(
    "moved",
    [{"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2}, {"pad_id": 3, "unk_id": 0, "bos_id": 1, "eos_id": 2}],
)
def test_a_model_learned_with_other_special_ids_is_refused_with_the_options_that_it_needs(moved):
    """Those of the message give one that is taken."""
    with pytest.raises(ValueError, match=r"special ids.*--pad_id=0.*Received.*--unk_id=0.*Train it with") as refused:
        byte_pairs.BytePairs(learned_by_hand(**moved))
    advised = dict(re.findall(r"--(\w+)=(\d+)", str(refused.value).partition("Received")[0]))
    assert byte_pairs.BytePairs(learned_by_hand(**{name: int(id) for name, id in advised.items()})).vocab_size == 60


def test_a_model_with_spaces_at_the_ends_of_words_is_refused():
    """Story: each translation ended in a space, and no sub-word began a word."""
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    with pytest.raises(ValueError, match="at the beginning of words.*Train it without --treat_whitespace_as_suffix"):
        byte_pairs.BytePairs(learned_by_hand(**ids, treat_whitespace_as_suffix=True))


def test_the_list_of_pieces_beside_a_model_is_refused_without_a_library_s_words():
    """Story: the message had a line of SentencePiece's sources."""
    with pytest.raises(ValueError) as refused:
        byte_pairs.BytePairs(b"<unk>\t0\n<s>\t0\n")
    assert str(refused.value) == "Not a SentencePiece model, a file that ends in .model: 14 other bytes."


def test_too_large_a_vocabulary_is_refused_with_the_largest_that_can_be_learned(kind):
    lines = text(400, seed=1)
    with pytest.raises(ValueError, match="^`vocab_size=5000` is too large.*more text") as refused:
        learn(lines, 5000, kind=kind)
    largest = int(re.search(r"gives (\d+) at most", str(refused.value))[1])
    assert vocabulary.load(learn(lines, largest, kind=kind)).vocab_size == largest
    with pytest.raises(ValueError, match=f"gives {largest} at most. Give `vocab_size={largest}`, or more text"):
        learn(lines, largest + 1, kind=kind)


def test_too_small_a_vocabulary_is_refused_with_the_smallest_that_can_be_learned(kind):
    """Story: a newcomer's --vocab_size=100 was answered by "give more text"."""
    lines = text(400, seed=1)
    needed, of_text = 1, "a word"
    if kind != "word":
        needed = len({*b"".join(lines).decode(), UNDERSCORE} - {" "})
        of_text = f"{needed} characters"
    with pytest.raises(ValueError, match=f"^`vocab_size=100` is too small.*256 bytes and {of_text}") as refused:
        learn(lines, 100, kind=kind)
    assert "more text" not in str(refused.value)
    smallest = int(re.search(r"needs (\d+) or more", str(refused.value))[1])
    assert smallest == 4 + 256 + needed
    assert vocabulary.load(learn(lines, smallest, kind=kind)).vocab_size == smallest


def test_no_text_is_refused(kind):
    with pytest.raises(ValueError, match="text"):
        learn([], kind=kind)


def test_the_same_text_gives_the_same_model(kind):
    assert learn(text(400, seed=1), kind=kind) == learn(text(400, seed=1), kind=kind)


def learned_from_a_sample(seed: int, kind: str) -> str:
    draw = random.Random(0)
    lines = ["".join(draw.choices("abcdefghij", k=8)).encode() for _ in range(3000)]
    return hashlib.sha256(learn(lines, 400, kind=kind, sample=150, seed=seed)).hexdigest()


@pytest.mark.medium
def test_a_sample_of_the_text_gives_the_same_model_in_every_process(kind):
    """SentencePiece 0.2.3 draws from a generator that `set_random_generator_seed` does not reach."""
    program = f"import test_tokenizer; print(test_tokenizer.learned_from_a_sample(1, '{kind}'))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path])}
    there = programs.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == learned_from_a_sample(1, kind)


def test_another_seed_learns_from_another_sample(kind):
    assert learned_from_a_sample(1, kind) != learned_from_a_sample(2, kind)


def test_every_line_is_drawn_with_the_same_probability():
    lines = [str(index).encode() for index in range(6)]
    drawn = collections.Counter(line for seed in range(2000) for line in draw_sample(lines, 3, seed))
    # Four and a half standard deviations.
    assert all(abs(number - 1000) < 100 for number in drawn.values()) and len(drawn) == 6
    assert draw_sample(lines, 6, 1) == draw_sample(lines, 7, 1) == [line.decode() for line in lines]


def test_an_underscore_of_sentencepiece_in_the_text_is_learned_as_a_character():
    lines = [f"fox{UNDERSCORE}dog {ESCAPE}cat".encode()] * 100 + text(400, seed=1)
    assert {f"{ESCAPE}1", f"{ESCAPE}0"} <= set(vocabulary.load(learn(lines, 420)).pieces)


def test_a_sample_too_small_to_learn_from_is_refused_by_the_name_of_its_option():
    """SentencePiece learns from more than 100 sentences only, and says so in its own words."""
    with pytest.raises(ValueError, match="vocab_sample"):
        learn(text(400, seed=1), sample=DataConfig(vocab_sample=100).vocab_sample)


def test_sub_words_are_learned_from_long_lines_too(kind):
    """SentencePiece leaves out lines of more than 4,192 bytes unless told otherwise."""
    lines = [b"xylophone " * 1000, *text(200, seed=1)]
    assert "▁xylophone" in vocabulary.load(learn(lines, kind=kind)).pieces


@pytest.mark.medium
def test_sub_words_are_those_of_the_same_words_in_short_lines(kind):
    """Story: SentencePiece leaves out lines of more than 65,536 bytes, so documents of 100 KB gave no sub-words."""
    words = b" ".join(text(9000, seed=2)).split()
    documents = [b" ".join(words[first::3]) for first in range(3)] + text(150, seed=1)
    short = [b" ".join(document.split()[place : place + 9]) for document in documents for place in range(0, 18000, 9)]
    assert len(documents[0]) > 1 << 16
    options = {"kind": kind, "vocab_size": KINDS[kind]}
    assert vocabulary.load(learn(documents, **options)).pieces == vocabulary.load(learn(short, **options)).pieces


def test_lines_with_a_character_that_sentencepiece_reserves_are_learned_from(messages):
    lines = ["xylophone\u2585 xylophone".encode()] * 200 + text(200, seed=1)
    subwords = vocabulary.load(learn(lines))
    assert "▁xylophone" in subwords.pieces and "\u2585" not in "".join(subwords.pieces)
    assert round_trip(subwords, ["xylophone\u2585"]) == ["xylophone\u2585"]
    assert messages == ["U+2585, in 200 lines, gets no sub-word: it is spelled in bytes."]


def test_lines_are_divided_where_sentencepiece_would_leave_them_out():
    """It reads lines of 65,536 bytes, and a character has up to 4."""
    most = 16_384
    assert list(byte_pairs._readable("😀" * most)) == ["😀" * most]
    assert list(byte_pairs._readable("😀" * (most + 1))) == ["😀" * most, "😀"]
    assert list(byte_pairs._readable(f"{'a' * (most - 5)} {'b' * 9}")) == ["a" * (most - 5), f" {'b' * 9}"]


@pytest.mark.parametrize(
    ("message", "shown"), [("no space", "no space"), ("trainer.cc(12) Bad (text) here. ", "Bad (text) here.")]
)
def test_what_sentencepiece_cannot_do_is_its_message(monkeypatch, message, shown):
    def train(**options):
        raise RuntimeError(message)

    monkeypatch.setattr(byte_pairs.sentencepiece.SentencePieceTrainer, "train", train)
    with pytest.raises(ValueError, match=re.escape(f"from this text. Its message: {shown}") + r"\Z"):
        learn(text(5, seed=1))


def test_a_word_longer_than_sentencepiece_reads_is_learned_from_in_parts():
    lines = [b"xylophone" * 12_000, *text(200, seed=1)]
    assert any(len(piece) > 5 and piece in "xylophone" * 3 for piece in vocabulary.load(learn(lines)).pieces)


def test_what_stops_the_text_is_not_taken_for_a_fault_of_the_vocabulary(kind):
    """A file that breaks while it is read, or Ctrl-C."""

    def broken():
        yield from text(50, seed=1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(broken(), kind=kind)


def test_a_file_that_is_no_model_is_refused():
    with pytest.raises(ValueError, match="SentencePiece model"):
        vocabulary.load(b"no model")
