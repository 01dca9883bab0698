"""Placeholders for text to keep: against regular expressions, in sub-words, records, translations and an export."""

import dataclasses
import random
import re

import numpy as np
import programs
import pytest
import sentencepiece
import stand_in
import tensorflow as tf
from logged import logged

from t2t_keras.config import EOS, DataConfig, DecodeConfig, ModelConfig
from t2t_keras.config.patterns import parse
from t2t_keras.data import prepare
from t2t_keras.decoding import constraints
from t2t_keras.decoding.reranking import reranked
from t2t_keras.decoding.translator import Translator
from t2t_keras.evaluation.cross_entropy import perplexity
from t2t_keras.model.transformer import Transformer
from t2t_keras.reporting import attention
from t2t_keras.reporting.attention import word_alignment
from t2t_keras.runs import registry
from t2t_keras.serving import savedmodel
from t2t_keras.serving.signatures import Signatures
from t2t_keras.text import vocabulary
from t2t_keras.text.kept import Kept
from t2t_keras.text.placeholders import NAMES, NUMBER, Placeholders, common
from t2t_keras.text.request import Request, with_phrases
from t2t_keras.text.sentencepiece_model import escaping, pattern_of, with_pattern
from t2t_keras.text.terminology import Terms

PATTERN = parse("braces,printf,tags,urls,emails")
VOCAB_SIZE = 350
LINES = [
    "two {0} <b>hundred</b> {0}", "one", "", "%s: http://x.de/{1} ｟1｠",
    "".join(f"{{{number}}}" for number in range(20)),
]  # fmt: skip


def learned(pattern: str = PATTERN, normalization: str = "identity") -> bytes:
    lines = [f"{side} {{x}}<i>http://xyz.de" for pair in stand_in.pairs() for side in pair]
    options = {"sample": 10_000, "seed": 1, "normalization": normalization, "character_coverage": 1.0}
    return vocabulary.learn("bpe", map(str.encode, lines), VOCAB_SIZE, **options, pattern=pattern)


@pytest.fixture(scope="module")
def subwords():
    return vocabulary.load(learned())


@pytest.fixture(scope="module")
def copier(subwords):
    model = stand_in.Copier(ModelConfig(VOCAB_SIZE, encoder_layers=1, decoder_layers=1, d_model=4, d_ff=4, num_heads=1))
    model.RIVAL = EOS + 1 + NUMBER  # In place of the first placeholder.
    model.skill.assign(1.0)
    return Translator(model, subwords, DecodeConfig(beam_size=1, max_input=60, extra_length=5))


def test_attention_and_alignments_are_of_the_placeholders_that_a_model_reads(subwords, monkeypatch):
    """Of a sentence and a given translation."""
    model = Transformer(
        ModelConfig(VOCAB_SIZE, encoder_layers=1, decoder_layers=1, d_model=8, d_ff=8, num_heads=1, d_k=8, d_v=8)
    )
    translator, read = Translator(model, subwords, DecodeConfig(beam_size=1)), []
    found = attention.attention_of(translator, "one {0}", "two {0}")
    assert all("".join(side.pieces[:-1]).endswith("｟1｠") for side in (found.source, found.target))
    align = model.align
    monkeypatch.setattr(model, "align", lambda target, memory: read.append(target.numpy()) or align(target, memory))
    assert word_alignment(translator, "one {0}", "two {0}").shape == (2, 2)
    assert subwords.pieces.index("｟1｠") in read[0]


def nasty_lines(number: int) -> list[str]:
    draw = random.Random(4)
    parts = [
        "{0}", "{ab}", "%s", "%", "<b>", "</b>", "<", "http://x.de", "a@b.de", "one", "ü", " ", "｟1｠", "｟",
        "⦅\ue0f3", "\ue0f3", "\ue0f0", "{", "}",
    ]  # fmt: skip
    return ["".join(draw.choices(parts, k=draw.randint(0, 30))) for _ in range(number)]


def in_python(line: str) -> tuple[str, list[str]]:
    """The line with placeholders, and what they stand for."""
    found = list(dict.fromkeys([match[0] for match in re.finditer(PATTERN, line, re.ASCII)][:64]))[:NUMBER]
    places = re.split(f"({PATTERN})", line, flags=re.ASCII)
    names = dict(zip(found, NAMES, strict=False))
    escaped = [
        names.get(part, "") if odd % 2 and part in names else re.sub("[｟⦅]", "\\g<0>\ue0f3", part)
        for odd, part in enumerate(places)
    ]
    return "".join(escaped), found


def test_text_is_replaced_as_in_python_and_comes_back_as_it_was():
    many = "{0}" * 63 + "{1}{2}"  # What is looked for ends with {1}.
    lines, placeholders = [*nasty_lines(500), *LINES, many], Placeholders(PATTERN)
    kept = placeholders.find(tf.constant(lines))
    replaced = placeholders.replace(tf.constant(lines), kept)
    expected = [in_python(line) for line in lines]
    assert [text.decode() for text in replaced.numpy()] == [text for text, _ in expected]
    assert [[each.decode() for each in row if each] for row in kept.numpy()] == [found for _, found in expected]
    assert [text.decode() for text in placeholders.restore(replaced, kept).numpy()] == lines


def test_a_match_of_empty_text_has_no_placeholder():
    """Story: each had the first number that stands for nothing."""
    placeholders, lines = Placeholders(r"\b\d*"), tf.constant(["hello 12 world", "x"])
    kept = placeholders.find(lines)
    replaced = placeholders.replace(lines, kept)
    assert [text.decode() for text in replaced.numpy()] == ["hello ｟1｠ world", "x"]
    assert placeholders.restore(replaced, kept).numpy().tolist() == lines.numpy().tolist()


def test_placeholders_that_stand_for_nothing_are_left_out():
    restored = Placeholders("x").restore(
        ["a ｟2｠ ｟1｠｟16｠", "｟1｠", "｟17｠"], [["x"] + [""] * 15, [""] * 16, ["x"] * 16]
    )
    assert restored.numpy().tolist() == [b"a  x", b"", "｟17｠".encode()]


def test_what_both_sides_share_is_in_the_order_of_the_first_by_hand():
    first = [["c", "a", "b", ""], ["a", "", "", ""], ["", "", "", ""]]
    second = [["b", "c", ""], ["b", "", ""], ["", "", ""]]
    expected = [["c", "b"], [], []]
    found = common(tf.constant(first), tf.constant(second)).numpy()
    assert found.shape == (3, NUMBER) and [[each.decode() for each in row if each] for row in found] == expected


@pytest.mark.parametrize("normalization", ["identity", "nfkc"])
def test_a_placeholder_is_one_sub_word_wherever_it_is_and_text_with_any_comes_back(normalization):
    subwords = vocabulary.load(learned(normalization=normalization))
    ids = {subwords.pieces.index(name) for name in NAMES}
    lines = [" ".join(line.split()) for line in [*nasty_lines(200), "one{0}two", "<b>one</b>", "{0}", "é{0}é", *LINES]]
    kept = subwords.kept(tf.constant(lines))
    found = subwords.tokenize(lines, kept=kept)
    for line, row in zip(lines, found.to_list(), strict=True):
        replaced, _ = in_python(line)
        received = [piece for piece in row if piece in ids]
        assert received == [subwords.pieces.index(name) for name in re.findall(r"｟\d+｠", replaced)]
    if normalization == "identity":
        assert [text.decode() for text in subwords.detokenize(found, kept).numpy()] == lines
    cut, _ = subwords.cut(tf.constant(lines), 4, kept)
    assert [row[:-1] for row in cut.to_list()] == [row[:-1][:3] for row in found.to_list()]
    assert subwords.joined(["{0}"], 9, subwords.kept(["{0}"])).to_list() == [[subwords.pieces.index(NAMES[0])]]


def test_a_long_pattern_is_in_the_file_that_sentencepiece_still_reads(subwords):
    long = f"{PATTERN}|{'x' * 20_000}"
    for pattern, found in (
        (PATTERN, subwords), (long, vocabulary.load(learned(long))), ("<y>", vocabulary.load(learned("<y>"))),
    ):  # fmt: skip
        assert found.pattern == found.placeholders.pattern == pattern
        processor = sentencepiece.SentencePieceProcessor(model_proto=found.model)
        assert processor.vocab_size() == found.vocab_size and processor.encode("｟2｠", out_type=str) == ["▁", "｟2｠"]
    plain = vocabulary.load(stand_in.subwords("bpe"))
    assert plain.pattern == "" and plain.kept(tf.constant(["{0}"])) is None and not set(NAMES) & set(plain.pieces)


def test_a_pattern_of_any_length_is_read_back_and_the_model_is_still_one():
    """The length of a field has seven bits in a byte, so it takes one byte up to 127 and two up to 16,383."""
    plain = stand_in.subwords("bpe")
    for size in (*range(98, 108), *range(16_354, 16_364)):
        model = with_pattern(plain, "x" * size)
        assert pattern_of(model) == "x" * size
        assert sentencepiece.SentencePieceProcessor(model_proto=model).vocab_size() == stand_in.VOCAB_SIZE


def test_text_around_what_is_kept_is_not_joined_and_a_word_has_letters_of_ascii_as_in_re2():
    """Seven merges make the words; if one was left of two, sub-words would be of both."""
    options = {"sample": 10_000, "seed": 1, "normalization": "identity", "character_coverage": 1.0}
    lines = ["one{x}two {é}".encode()] * 99
    pieces = vocabulary.load(vocabulary.learn("bpe", lines, 260 + NUMBER + 9 + 7, **options, pattern=r"\{\w+\}")).pieces
    assert {"▁one", "▁two", "é"} <= set(pieces) and not [piece for piece in pieces if "et" in piece]


def test_no_sub_word_is_learned_from_text_to_keep(subwords):
    assert not {piece for piece in subwords.pieces if "xyz" in piece or "http" in piece}
    assert {piece for piece in vocabulary.load(learned("<never>")).pieces if "http" in piece or "{x}" in piece}


def test_what_re2_does_not_know_is_refused_in_one_sentence():
    message = r"^`keep_patterns`: expected regular expressions of RE2. Received: 'a.*Z' \(invalid escape"
    with pytest.raises(ValueError, match=message):
        Placeholders(r"a\Z")


def test_a_record_has_the_same_placeholder_on_both_sides_and_sub_words_for_what_one_side_has(subwords):
    """By hand: of {0}, <b> and %s, the target has %s and {0}; its {9} is its own."""
    [(source, target), (other, _)] = registry.task("translation").records(
        subwords, [b"{0} <b> %s {0}", b"{1}"], [b"%s {9} {0}", b"{2}"]
    )
    pieces = [
        [piece for piece in (subwords.pieces[index] for index in row) if piece in NAMES]
        for row in (source, target, other)
    ]
    assert pieces == [["｟1｠", "｟2｠", "｟1｠"], ["｟2｠", "｟1｠"], []]
    spelled = [
        subwords.detokenize(tf.RaggedTensor.from_tensor(ids[None])).numpy()[0].decode()
        for ids in (source, target, other)
    ]
    assert spelled == ["｟1｠ <b> ｟2｠ ｟1｠", "｟2｠ {9} ｟1｠", "{1}"]


@pytest.mark.medium
def test_a_model_that_copies_sub_words_copies_text_to_keep_in_every_way_to_translate(copier):
    text = tf.constant(LINES)
    assert [found.decode() for found in copier(text)["text"].numpy()] == LINES
    assert [found.decode() for found in copier.n_best(text)["text"].numpy()[:, 0]] == LINES
    service, rows = Signatures(copier), [len(LINES)]
    assert [found.decode() for found in service.translate(text)["text"].numpy()] == LINES
    options = [tf.fill(rows, 3), tf.fill(rows, 0.05), tf.ones(rows, tf.int32), tf.ones(rows), tf.zeros(rows, tf.int32)]
    drawn = service.sample(text, tf.zeros(rows, tf.int64), *options)["text"].numpy()
    assert [[found.decode() for found in row] for row in drawn] == [[line] * 3 for line in LINES]
    # Of {0} … {19}, the first 16 are one sub-word each, and the others four or more.
    assert not copier(text)["truncated"].numpy().any() and copier(tf.constant(["{0} " * 61]))["truncated"].numpy().all()


@pytest.mark.medium
def test_scores_are_of_placeholders(copier):
    """A pair has the same score whatever stands in the braces of both sides, but not with other ones in the target."""
    pairs = [("one {0}", "one {0}"), ("one {abcdef}", "one {abcdef}"), ("one {0}", "one {abcdef}")]
    service = Signatures(copier)
    found = service.score(*map(tf.constant, zip(*pairs, strict=True)))
    log_probs, lengths = found["log_prob"].numpy(), found["length"].numpy()
    assert log_probs[0] == pytest.approx(log_probs[1], abs=1e-5) and log_probs[2] < log_probs[0] - 1
    assert lengths[0] == lengths[1] == copier.tokenizer.tokenize(["one ｟1｠"]).row_lengths()[0] < lengths[2]
    for (source, target), log_prob, length in zip(pairs, log_probs, lengths, strict=True):
        assert perplexity(copier, [source], [target]) == pytest.approx(np.exp(-log_prob / length), rel=1e-4)
    lists = {"text": tf.constant([["one {abcdef}", "one {0}"]]), "score": tf.constant([[-1.0, -1.0]])}
    ranked = reranked(lambda text: lists, copier, weight=1.0, alpha=0.0)(tf.constant(["one {0}"]))
    assert ranked["text"].numpy().tolist() == [[b"one {0}", b"one {abcdef}"]]
    np.testing.assert_allclose(ranked["score"], [[log_probs[0] - 1, log_probs[2] - 1]], rtol=1e-5)


@pytest.mark.medium
def test_phrases_and_a_forced_start_have_the_placeholders_of_their_source(copier):
    text, rows = tf.constant(["one {0} <b>", "one {1}"]), [2]
    kept = copier.tokenizer.kept(text)
    tokens, *_ = constraints.read(copier.tokenizer, tf.constant(["<b>\t￭{0}", "{0}"]), kept)
    names = [[copier.tokenizer.pieces[index] for index in row if index] for row in tokens[0].numpy()]
    assert names == [["▁", "｟2｠"], ["｟1｠"]]
    assert not set(NAMES) & {copier.tokenizer.pieces[index] for index in tokens[1].numpy().ravel()}
    service = Signatures(copier)
    found = service.translate_with_options(
        text, tf.zeros(rows), tf.zeros(rows, tf.int32), tf.ones(rows, tf.int32), prefix=tf.constant(["<b>", "{1} {1}"]),
        alignment=tf.fill(rows, True), constraints=tf.constant(["{0}\t<b>", ""]), avoid=tf.fill(rows, ""),
        ordered=tf.fill(rows, False),
    )  # fmt: skip
    texts = [row[0].decode() for row in found["text"].numpy()]
    assert texts[0].startswith("<b>") and "{0}" in texts[0] and texts[1].startswith("{1} {1}")
    assert found["constraints_met"].numpy().all()


def test_text_to_keep_of_any_length_fits_a_constraint_of_its_own_sentence(copier):
    """Story: a long URL, one placeholder for the model, was left out as a phrase of too many sub-words."""
    service, url = Signatures(copier), f"http://x.de/{'z' * 99}"
    [request] = with_phrases([Request(f"one {url} two")], Terms({}), Kept("urls"), pytest.fail, service.fits)
    assert request.required == [url]
    assert not service.fits(url, "one http://x.de two")


def test_a_text_is_read_to_its_end_if_its_sub_words_with_their_placeholders_fit(copier):
    """Of 60: each {…} is one, with a space before it two, and there is an end token."""
    reads = Signatures(copier).reads
    assert [reads("{longer}" * number) for number in (58, 59)] == [True, False]
    assert [reads("{longer} " * number) for number in (29, 30)] == [True, False]
    assert not reads("{longer" * 58)


@pytest.mark.medium
def test_an_export_keeps_text_in_a_process_without_this_package(copier, tmp_path):
    version = savedmodel.export(copier, tmp_path, {})
    assert programs.alone(programs.TRANSLATE, version, LINES)[0] == LINES


def test_the_end_is_no_placeholder(subwords):
    assert min(map(subwords.pieces.index, NAMES)) == EOS + 1


@pytest.fixture
def data(tmp_path) -> DataConfig:
    lines = [f"{source} {{{number}}} %s <b>\n" for number, (source, _) in enumerate(stand_in.pairs())]
    for name in ("train.source", "train.target", "valid.source", "valid.target"):
        (tmp_path / name).write_text("".join(line.replace("%s", "%d") if "target" in name else line for line in lines))
    names = {
        f"{split}_{side}": str(tmp_path / f"{split}.{side}")
        for split in ("train", "valid")
        for side in ("source", "target")
    }
    return DataConfig(**names, keep_patterns="braces,tags")


def prepared(data: DataConfig, folder) -> None:
    prepare.Preparation(data, VOCAB_SIZE, 1, folder, registry.task("translation")).run()


def test_prepared_data_have_placeholders_and_say_in_how_many_pairs(data, tmp_path):
    folder = tmp_path / "data"
    with logged() as messages:
        prepared(data, folder)
    assert "Text to keep is on both sides of 300 training pairs." in messages
    subwords = vocabulary.load((folder / "subwords.model").read_bytes())
    assert subwords.pattern == parse("braces,tags")
    prepared(data, folder)  # Is used again.
    with pytest.raises(ValueError, match="`keep_patterns` was braces,tags, and is now braces"):
        prepared(dataclasses.replace(data, keep_patterns="braces"), folder)
    # With its file, another folder has the same placeholders, whether they are asked for or not.
    given = dataclasses.replace(data, subwords_file=str(folder / "subwords.model"))
    prepared(dataclasses.replace(given, keep_patterns=""), tmp_path / "other")
    first, second = (
        sorted(path.read_bytes() for path in (tmp_path / name / "train").glob("*.tfrecord"))
        for name in ("data", "other")
    )
    assert first == second
    message = "^Expected placeholders of keep_patterns=urls in .*subwords.model. It has those of .*{"
    with pytest.raises(ValueError, match=message):
        prepared(dataclasses.replace(given, keep_patterns="urls"), tmp_path / "third")


def test_sub_words_that_are_learned_for_the_source_alone_do_not_fit_a_file_with_placeholders(data, tmp_path):
    (tmp_path / "target.model").write_bytes(learned())
    given = dataclasses.replace(data, keep_patterns="", subwords_file=str(tmp_path / "target.model"))
    task = registry.task("translation")
    message = "^Expected source and target sub-words with the same placeholders .* Give `subwords_file` and"
    with pytest.raises(ValueError, match=message):
        prepare.Preparation(given, VOCAB_SIZE, 1, tmp_path / "data", task, source_vocab_size=320).run()


def test_patterns_that_no_pair_shares_and_that_re2_does_not_know_are_reported(data, tmp_path):
    with logged() as messages:
        prepared(dataclasses.replace(data, keep_patterns="printf"), tmp_path / "data")
    assert any(
        message.startswith("No training pair has text to keep on both sides (keep_patterns=printf)")
        for message in messages
    )
    message = "^`keep_patterns`: expected regular expressions of RE2. Received: "
    with logged() as messages, pytest.raises(ValueError, match=message):
        prepared(dataclasses.replace(data, keep_patterns=r"/a\Z/"), tmp_path / "none")
    with pytest.raises(ValueError, match=r"^Expected tags that `keep_patterns` does not match. .*: source_tag=<news>"):
        prepared(dataclasses.replace(data, source_tag="<news>"), tmp_path / "none")
    assert not messages, "no text is read before"
    said = "`keep_patterns` needs `subwords=bpe`. Received: subwords=.wordpiece., keep_p"
    with pytest.raises(ValueError, match=said):
        dataclasses.replace(data, subwords="wordpiece")
    with pytest.raises(ValueError, match="`keep_patterns`: expected names among braces"):
        dataclasses.replace(data, keep_patterns="brace")


@pytest.mark.parametrize("normalization", ["identity", "nmt_nfkc"])
def test_escaping_by_the_rules_of_a_model_is_silent(normalization, capfd):
    """Story: SentencePiece wrote to stderr that it loads a CharsMap, in the middle of the program's own lines."""
    model = learned(normalization=normalization)
    sentencepiece.set_min_log_level(0)
    assert escaping(model).startswith(model)
    assert capfd.readouterr() == ("", "")
