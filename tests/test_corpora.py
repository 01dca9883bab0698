"""Sentence pairs: two files stay aligned, and what is wrong with them is named or counted."""

import bz2
import codecs
import collections
import contextlib
import dataclasses
import errno
import gzip
import hashlib
import io
import itertools
import json
import lzma
import pathlib
import random
import re
import zipfile

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from t2t_keras.config import DataConfig
from t2t_keras.data import builtin_corpus, corpora, text_checks
from t2t_keras.system import files

BOM = codecs.BOM_UTF8


@pytest.fixture
def file(tmp_path):
    """Writes a file and gives its name."""
    names = (f"{number}.txt" for number in itertools.count())

    def write(content: str | bytes, name: str = "") -> str:
        path = tmp_path / (name or next(names))
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def read(source: str, target: str, **options) -> tuple[list, corpora.Report]:
    report = corpora.Report()
    return list(corpora.text_pairs(source, target, report=report, **options)), report


def refusal(source: str, target: str, **options) -> str:
    with pytest.raises(ValueError) as refused:
        read(source, target, **options)
    return str(refused.value)


# Text files.


def test_line_n_of_one_file_is_paired_with_line_n_of_the_other(file):
    pairs, report = read(file("one\ntwo\n"), file("eins\nzwei\n"))
    assert pairs == [(b"one", b"eins"), (b"two", b"zwei")]
    assert report == corpora.Report(pairs=2)


def test_documents_end_at_blank_lines_and_where_files_do(file):
    names = ",".join([file("one\n\ntwo\n"), file("three\n"), file("four\n \u200b\xa0\n")])
    of_documents = [(b"one",), (b"",), (b"two",), (b"",), (b"three",), (b"",), (b"four",), (b"",)]
    for documents, expected in ((True, of_documents), (False, of_documents[::2])):
        assert list(corpora.text_pairs(names, report=corpora.Report(), documents=documents)) == expected


def test_the_last_line_counts_without_its_newline(file):
    assert read(file("one\ntwo"), file("eins\nzwei\n")) == read(file("one\ntwo\n"), file("eins\nzwei"))


@pytest.mark.parametrize(
    "character", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r"], ids=ascii
)
def test_only_a_newline_ends_a_line(file, character):
    """`str.splitlines` would end one at each of these, and misalign the files."""
    pairs, _ = read(file(f"one{character}and a half\ntwo\n"), file("eins\nzwei\n"))
    assert pairs == [(f"one{character}and a half".encode(), b"eins"), (b"two", b"zwei")]


def test_a_side_may_be_several_files_and_globs_cut_at_other_lines_than_the_other_side(file):
    first, second = file("a\nb\nc\n", "source-1.txt"), file("d\ne", "source-2.txt")
    file("A\n", "target-0.txt"), file("B\nC\n", "target-1.txt"), file("D\n", "target-2.txt")
    last = file("E\n", "the last.txt")
    expected = [(letter.encode(), letter.upper().encode()) for letter in "abcde"]
    targets = first.replace("source-1", "target-*")
    assert read(f"{first},{second}", f"{targets},{last}")[0] == expected
    assert read(first.replace("source-1", "source-?"), f"{targets},{last}")[0] == expected


@pytest.mark.parametrize("target_weights", ["", "@3"])
def test_a_file_with_a_weight_is_read_as_often_on_both_sides(file, target_weights):
    sources, targets = file("a\nb\n", "a@2.en"), file("A\nB\n", "A.de")
    other, others = file("c\n", "c.en"), file("C\n", "C.de")
    pairs, report = read(f"{sources}@3,{other}", f"{targets}{target_weights},{others}")
    assert collections.Counter(pairs) == {(b"a", b"A"): 3, (b"b", b"B"): 3, (b"c", b"C"): 1} and report.pairs == 7
    assert read(f"{other}@1,{sources}@2", f"{others},{targets}")[1].pairs == 5
    names = {"train_source": f"{sources}@3", "train_target": targets, "valid_source": other, "valid_target": others}
    corpora.check_files(DataConfig(**names))
    found = corpora.identity(DataConfig(**names), seed=1)
    assert [line.split()[0] for line in found["train_source"]] == ["a@2.en@3"]
    names["train_target"] += "@3"  # Another spelling of the same pairs.
    assert corpora.identity(DataConfig(**names), seed=1) == found


@pytest.mark.parametrize(("weights", "received"), [
    (("@2", "", "", "@2"), "a@2, b@1 and A@1, B@2"),
    (("", "", "@2", ""), "a@1, b@1 and A@2, B@1"),
    (("@2", "", "", None), "a@2, b@1 and A@1"),
])  # fmt: skip
def test_weights_that_would_misalign_the_sides_are_refused(file, weights, received):
    written = [file(f"{name}\n", name) for name in "abAB"]
    names = [f"{name}{weight}" for name, weight in zip(written, weights, strict=True) if weight is not None]
    expected = f"Expected weights (@N) of the source files, and a target file for each of them. Received: {received}."
    assert refusal(",".join(names[:2]), ",".join(names[2:])) == expected


def test_weights_of_files_whose_lines_do_not_match_are_refused_though_the_totals_do(file):
    """Story: 2 x 3 + 5 lines and 2 x 2 + 7 are 11 on both sides, and most pairs were no translations."""
    sources, targets = [file("a\n" * 3, "a"), file("b\n" * 5, "b")], [file("A\n" * 2, "A"), file("B\n" * 7, "B")]
    names = {"train_source": f"{sources[0]}@2,{sources[1]}", "train_target": ",".join(targets)}
    with pytest.raises(
        ValueError, match=f"with a weight as in its target file. Received: {sources[0]} with 3 and {targets[0]} with 2"
    ):
        corpora.check_files(DataConfig(**names, valid_source=sources[0], valid_target=sources[0]))


def test_files_in_another_order_on_each_side_are_warned_of(file, messages):
    sources = [file(f"{name}\n" * number, name) for name, number in (("c", 2), ("a", 3), ("b", 5))]
    targets = [file(f"{name}\n" * number, name) for name, number in (("C", 2), ("B", 5), ("A", 3))]
    for target in ([targets[0], *targets[:0:-1]], [file("E\n" * 10, "E")], targets):
        corpora.check_texts([(",".join(sources), ",".join(target))])
    corpora.check_texts([(f"{sources[0]},{sources[0]}", file("D\n" * 4, "D"))])
    received = f"{sources[1]} with 3 and {targets[1]} with 5"
    assert messages == [
        f"Expected the files of both sides in the same order, with as many lines each. Received: {received}."
    ]


def test_spaces_after_commas_are_no_part_of_names(file):
    names, spaced = (file("a\n", "a"), file("b\n", "b")), file("c\n", " c")
    assert corpora.expand(", ".join([*names, spaced])) == [pathlib.Path(name) for name in (*names, spaced)]
    assert corpora.expand(f"{names[0]} , {names[1]}@2") == [pathlib.Path(name) for name in (names[0], *[names[1]] * 2)]


@pytest.mark.parametrize("weight", ["@0", "@-1", "@0.5", "@", "@x", "@10000"])
def test_a_weight_is_a_number_of_times(file, weight):
    name = file("a\n", "a")
    with pytest.raises(
        FileNotFoundError,
        match=rf"No such file: '{name}{weight}' .*\. A weight is a number of times, @1 to @9999, not {weight}\.$",
    ):
        read(f"{name}{weight}", file("b\n"))


def test_a_file_whose_own_name_ends_like_a_weight_is_that_file(file):
    path = pathlib.Path(file("a\n", "a@2"))
    assert corpora.expand(str(path)) == [path]
    assert corpora.expand(f"{path}@9999") == [path] * 9999


def test_a_name_may_begin_with_the_home_folder(file, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    file("a\n", "a"), file("b\n", "b.en")
    assert corpora.expand("~/a@2, ~/*.en") == [tmp_path / "a", tmp_path / "a", tmp_path / "b.en"]


def test_gzip_is_read_whatever_the_name(file):
    text = b"one\ntwo\n"
    several_members = gzip.compress(text) + gzip.compress(b"three")
    assert read(file(gzip.compress(text), "a.txt"), file(text, "b.gz"))[0] == read(file(text), file(text))[0]
    assert read(file(several_members), file("one\ntwo\nthree\n"))[0][-1] == (b"three", b"three")


def test_carriage_returns_before_a_newline_are_removed_and_counted(file):
    pairs, report = read(file("one\r\ntwo\r\nthree"), file("eins\nzwei\ndrei\r"))
    assert pairs == [(b"one", b"eins"), (b"two", b"zwei"), (b"three", b"drei")]
    assert report == corpora.Report(pairs=3, carriage_returns=3)


def test_a_byte_order_mark_is_removed_at_the_start_of_each_file_and_nowhere_else(file):
    source = f"{file(BOM + b'one')},{file(gzip.compress(BOM + b'two'))},{file(b'three' + BOM)}"
    pairs, report = read(source, file(BOM + b"eins\n" + BOM + b"zwei\ndrei\n"))
    assert pairs == [(b"one", b"eins"), (b"two", BOM + b"zwei"), (b"three" + BOM, b"drei")]
    assert report == corpora.Report(pairs=3, byte_order_marks=3)


def test_pairs_with_an_empty_side_are_left_out_and_counted(file):
    pairs, report = read(file("one\n\n \t\nfour\n\nsix\n"), file("eins\nzwei\ndrei\n\r\n\nsechs\n"))
    assert pairs == [(b"one", b"eins"), (b"six", b"sechs")]
    assert report == corpora.Report(pairs=2, empty=4, carriage_returns=1)
    pairs, report = read(file("one\n\u200b\n\xa0\nfour\n"), file("\u3000\t\nzwei\n\xad\nvier\n"))
    assert pairs == [(b"four", b"vier")] and report == corpora.Report(pairs=1, empty=3)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_last_pairs_of_the_training_text_validate_and_are_not_trained_on(file, number):
    """Usable pairs count: not the one with a blank side."""
    data = DataConfig(file("a\nb\n\nd\n") + "," + file("e\n"), file("A\nB\nC\nD\nE\n"), valid_pairs=number)
    whole = [(b"a", b"A"), (b"b", b"B"), (b"d", b"D"), (b"e", b"E")]
    corpora.check_files(data)
    reports = {split: corpora.Report() for split in ("train", "valid")}
    pairs = {split: list(corpora.pairs(data, split, 1, report)) for split, report in reports.items()}
    assert pairs == {"train": whole[:-number], "valid": whole[-number:]}
    assert reports["train"] == corpora.Report(pairs=4 - number, empty=1)
    assert reports["valid"] == corpora.Report(pairs=number)
    others = [corpora.identity(dataclasses.replace(data, valid_pairs=other), 1) for other in (0, number + 1)]
    assert corpora.identity(data, 1) not in others


@pytest.mark.parametrize(("weights", "number", "is_refused"), [
    ((1, 2), 1, True), ((2, 1), 1, False), ((2, 1), 2, False), ((2, 1), 3, True), ((1, 1), 2, False),
])  # fmt: skip
def test_pairs_that_validate_are_not_repeated_by_a_weight(file, weights, number, is_refused):
    """Story: the pairs held out of the last copy of a file were trained on in the others."""
    sources = ",".join(f"{file(text)}@{weight}" for text, weight in zip(("a\nb\n", "c\nd\n"), weights, strict=True))
    data = DataConfig(sources, f"{file('A' + chr(10) + 'B')},{file('C' + chr(10) + 'D')}", valid_pairs=number)
    train, valid = (set(corpora.pairs(data, split, 1, corpora.Report())) for split in ("train", "valid"))
    assert train.isdisjoint(valid) != is_refused
    if is_refused:
        with pytest.raises(ValueError, match=r"their files must have no weight. Received: \d.txt@2 and `valid_pairs="):
            corpora.check_files(data)
    else:
        corpora.check_files(data)


def test_a_pair_that_is_left_out_does_not_validate(file):
    """Story: blank lines counted as pairs that validate, so those of the file before were trained on and validated."""
    files = (
        f"{file('v' + chr(10) + 'w')}@2,{file('a' + chr(10) * 3 + 'b')}",
        f"{file('V' + chr(10) + 'W')},{file('A' + chr(10) * 3 + 'B')}",
    )
    corpora.check_files(DataConfig(*files, valid_pairs=2))
    with pytest.raises(ValueError, match=r"their files must have no weight. Received: \d.txt@2 and `valid_pairs=3"):
        corpora.check_files(DataConfig(*files, valid_pairs=3))


def test_validation_text_that_is_given_is_used_and_no_training_pair(file):
    texts = file("a\nb\n"), file("A\nB\n"), file("v\n"), file("V\n")
    data = DataConfig(*texts, valid_pairs=1)
    assert list(corpora.pairs(data, "train", 1, corpora.Report())) == [(b"a", b"A"), (b"b", b"B")]
    assert list(corpora.pairs(data, "valid", 1, corpora.Report())) == [(b"v", b"V")]
    assert corpora.identity(data, 1) == corpora.identity(DataConfig(*texts), 1)


def test_pairs_that_validate_must_leave_some_to_train_on_and_be_no_documents(file):
    data = DataConfig(file("a\nb\n"), file("A\nB\n"), valid_pairs=2)
    for split in ("train", "valid"):
        with pytest.raises(ValueError, match="more pairs of training text than `valid_pairs`. Received: 2 pairs"):
            list(corpora.pairs(data, split, 1, corpora.Report()))
    with pytest.raises(ValueError, match="`valid_pairs` cannot split documents. Give `valid_source`."):
        corpora.pairs(data, "train", 1, corpora.Report(), documents=True)
    with pytest.raises(ValueError, match="or `valid_pairs=500` to validate on the last 500 pairs"):
        corpora.check_files(dataclasses.replace(data, valid_pairs=0))


def test_text_that_is_scored_keeps_its_blank_lines(file):
    """Of several files, one of them compressed, with a byte order mark and ends of lines as Windows has them."""
    names = file(BOM + b"one\r\n\n  \n"), file(gzip.compress("fünf\n\n\u2028".encode()))
    assert corpora.text(",".join(names)) == ["one", "", "  ", "fünf", "", "\u2028"]


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_unequal_numbers_of_lines_are_reported_with_the_first_line_that_has_no_partner(file, swapped, compress):
    """Where they are read, and where they are counted."""
    pack = gzip.compress if compress else bytes
    short, first, second = file(pack(b"a\nb\nc")), file(pack(b"A\nB\n")), file(pack(b"C\nD\nE\nF"))
    sides = (f"{first},{second}", short) if swapped else (short, f"{first},{second}")
    message = refusal(*sides)
    counts = f"6 in {first},{second} and 3 in {short}" if swapped else f"3 in {short} and 6 in {first},{second}"
    assert counts in message and f"line 2 of {second}" in message
    for data in (DataConfig("a", "b", *sides), DataConfig(*sides, file("x"), file("y"))):
        data = data if data.train_source != "a" else dataclasses.replace(data, train_source=short, train_target=short)
        with pytest.raises(ValueError) as refused:
            corpora.check_files(data)
        assert str(refused.value) == message


def test_counting_reports_progress_where_it_takes_long(file, monkeypatch, messages):
    texts = [str(file("a\nb\n")) for _ in range(4)]
    for limit, expected in ((16, []), (15, ["Counting the lines of the text …"])):
        monkeypatch.setattr(corpora, "_QUICKLY_COUNTED", limit)
        corpora.check_files(DataConfig(*texts))
        assert messages == expected


def test_counting_finds_missing_and_broken_files_and_passes_what_reading_passes(file):
    one, same = file("a\nb"), file(gzip.compress(b"\nb\n"))
    data = DataConfig(one, same, f"{one},{same}", f"{same},{one}")
    corpora.check_files(data)
    corpora.check_files(DataConfig(dataset="builtin"))
    for changed, told in (
        ({"train_target": "gone.txt"}, "No such file: 'gone.txt'"),
        ({"valid_source": file("")}, "is empty"),
        ({"valid_source": file(gzip.compress(b"x\n" * 2000)[:-9])}, "broken gzip file: it could be read up to line"),
        ({"train_source": file(codecs.BOM_UTF16_LE + "a\nb".encode("utf-16-le"))}, "is in UTF-16"),
        ({"valid_source": "", "valid_target": ""}, "no validation text"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=told):
            corpora.check_files(dataclasses.replace(data, **changed))


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_counting_names_a_line_that_is_not_utf8(file, monkeypatch, pack):
    """Story: it was reported only after TensorFlow had been loaded. Characters of two blocks are none of two bytes."""
    monkeypatch.setattr(corpora, "_BUFFER", 3)
    good = file("ünïcödé\n日本\n")
    bad, cut = file(pack("日本\nün".encode() + b"\xfc\n")), file(pack("ü\n日".encode()[:-1]))
    with monkeypatch.context() as patched:
        patched.setattr(corpora, "_lines", None)  # The slow way, for text that is wrong.
        corpora.check_files(DataConfig(good, good, good, good))
    for name, found in ((bad, "byte 0xfc at column 4"), (cut, "byte 0xe6 at column 1")):
        found = f"line 2 is not UTF-8: {found}. Convert the file .*, or leave such lines out with `skip_bad_lines`."
        for texts in ((name, good, good, good), (good, good, good, name)):
            with pytest.raises(ValueError, match=f"^{name}, {found}$"):
                corpora.check_files(DataConfig(*texts))
            corpora.check_files(DataConfig(*texts, skip_bad_lines=True))
        corpora.check_texts([(name, good)])


def test_counting_passes_sides_that_are_cut_at_other_lines(file):
    whole, parts, others = file("a\nb\nc"), ",".join([file("a"), file("b\nc\n")]), ",".join([file("a\nb\n"), file("c")])
    for sides in ((whole, parts), (parts, whole), (parts, others)):
        corpora.check_files(DataConfig(*sides, file("x"), file("y")))


def test_a_file_with_a_weight_is_counted_once(file, monkeypatch):
    counted, count = [], corpora._count
    monkeypatch.setattr(corpora, "_count", lambda path, *how: counted.append(str(path)) or count(path, *how))
    source, target = file("a\nb\n"), file("A\nB\n")
    corpora.check_texts([(f"{source}@3", f"{target}@3"), (source, target)])
    assert counted == [source, target]


def test_no_pair_comes_after_the_files_differ(file):
    pairs = corpora.text_pairs(file("a\nb\n"), file("A\n"), report=corpora.Report())
    assert next(pairs) == (b"a", b"A")
    with pytest.raises(ValueError, match="as many lines"):
        next(pairs)


@pytest.mark.parametrize("name", ["missing.txt", "missing-*.txt", ""])
def test_a_missing_file_is_named(file, name):
    with pytest.raises(FileNotFoundError, match=f"'{name}'".replace("*", r"\*")):
        read(f"{file('a')},{name}", file("b"))


def test_a_folder_is_no_file(file, tmp_path):
    with pytest.raises(FileNotFoundError, match=f"^Expected files .* Received: '{tmp_path}', which is not a file.$"):
        read(str(tmp_path), file("b"))
    file("a", "news.en"), (tmp_path / "news").mkdir()
    with pytest.raises(FileNotFoundError, match="'.*/news', which is not a file"):
        read(f"{tmp_path}/news*", file("b"))


def test_a_name_with_brackets_is_found_though_it_looks_like_a_glob(file):
    assert read(file("a", "news[2014].en"), file("b", "news[2014].de"))[0] == [(b"a", b"b")]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_file_without_line_ends_is_named_with_its_line(file, pack):
    """Story: it was read as one line, until memory was full. A document of 8,192 long words is none."""
    document = b"word" * 8 * 8192
    assert read(file(pack(document + b"\n")), file("one\n"))[0] == [(document, b"one")]
    name = file(pack(b"one\n" + 5 * document))
    assert f"Line 2 of {name} has more than" in refusal(name, file("eins\nzwei\n"))


@pytest.mark.parametrize("empty", [b"", gzip.compress(b"")], ids=["plain", "gzip"])
def test_an_empty_file_is_named(file, empty):
    name = file(empty)
    assert f"{name} is empty" in refusal(f"{file('a')},{name}", file("b\n"))
    assert f"{name} is empty" in refusal(name, name)


@pytest.mark.parametrize(("bad", "byte", "column"), [
    (b"ab\xffcd", "0xff", 3),
    (b"\xc3", "0xc3", 1),
    (b"a\xed\xa0\x80", "0xed", 2),
    (b"abc\xc0\x80", "0xc0", 4),
    ("Grün".encode("latin-1"), "0xfc", 3),
    ("a".encode("utf-16"), "0xff", 1),
])  # fmt: skip
@pytest.mark.parametrize("side", [0, 1])
def test_a_line_that_is_not_utf8_is_named_by_file_line_and_column(file, bad, byte, column, side):
    good = file("1\n2\n3\n4\n5\n")
    broken = file(b"3\n4\n" + bad + b"\n")
    sides = [good, f"{file('1 2')},{file('2')},{broken}"]
    message = refusal(*(reversed(sides) if side == 0 else sides))
    assert f"{broken}, line 3" in message
    assert f"byte {byte} at column {column}" in message
    assert "`skip_bad_lines`" in message


def test_bad_lines_can_be_left_out_and_are_counted_once_a_pair(file):
    source, target = file(b"1\n\xff\n3\n\xff\n5\n"), file(b"1\n2\n\xc3\n\xfe\n5\n")
    pairs, report = read(source, target, skip_bad_lines=True)
    assert pairs == [(b"1", b"1"), (b"5", b"5")]
    assert report == corpora.Report(pairs=2, not_utf8=3)


def gzip_damages():
    draw = random.Random(1)
    whole = gzip.compress(b"".join(draw.randbytes(8).hex().encode() + b"\n" for _ in range(2000)))
    yield "cut after the magic number", whole[:2]
    yield "cut in the header", whole[:5]
    yield "cut in the middle", whole[: len(whole) // 2]
    yield "cut before the checksum", whole[:-8]
    yield "cut before the last byte", whole[:-1]
    for position in (2, 11, 1000, len(whole) // 2, len(whole) - 6, len(whole) - 2):
        yield f"byte {position} changed", whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :]
    yield "something after the end", whole + b"junk"


DAMAGED = dict(gzip_damages())


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_broken_gzip_file_is_named(file, damage):
    """Few changed bytes of the stream leave text that is not UTF-8, or lines missing: the checksum would have come at
    the end.
    """
    name, good = file(DAMAGED[damage]), file("x")
    message = refusal(name, file(b"x\n" * 2000))
    assert name in message
    assert "gzip" in message or "UTF-8" in message
    with pytest.raises(ValueError, match=f"^{name} is a broken gzip file"):  # Counted.
        corpora.check_files(DataConfig(name, name, good, good))


def zipped(content: bytes) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("a.txt", content)
    return written.getvalue()


OTHER_FILES = {
    "in UTF-16.*iconv -f UTF-16 -t UTF-8": ("one\ntwo\n".encode("utf-16-le"), codecs.BOM_UTF16_LE),
    "in UTF-16.*iconv": ("one\ntwo\n".encode("utf-16-be"), codecs.BOM_UTF16_BE),
    "compressed with bzip2.*bunzip2": (bz2.compress(b"one\ntwo\n"), b""),
    "compressed with bzip2.*": (bz2.compress(b"one\ntwo\n", 1), b""),
    "compressed with xz.*xz -d": (lzma.compress(b"one\ntwo\n"), b""),
    "compressed with zstd.*zstd -d": (bytes.fromhex("28b52ffd2008410000 6f6e650a74776f0a"), b""),
    "a zip archive.*unzip": (zipped(b"one\ntwo\n"), b""),
}


@pytest.mark.parametrize("skip_bad_lines", [False, True])
@pytest.mark.parametrize("told", OTHER_FILES)
def test_a_file_that_is_not_text_or_is_in_utf16_is_reported_with_what_makes_text_of_it(file, told, skip_bad_lines):
    """Story: they were "not UTF-8: byte 0x81 at column 11", or, with --skip_bad_lines, left out line by line."""
    content, mark = OTHER_FILES[told]
    name = file(mark + content)
    message = refusal(file("one\ntwo\n"), name, skip_bad_lines=skip_bad_lines)
    assert re.match(rf"{name} is {told}", message)


def test_utf16_in_gzip_is_reported_too(file):
    assert "UTF-16" in refusal(file(gzip.compress("one\n".encode("utf-16"))), file("one\n"))


@pytest.mark.parametrize("line", ["BZh9 is a magic number", "PK is two letters", "(/ and ý7z"])
def test_a_line_that_looks_a_little_like_such_a_file_is_text(file, line):
    assert read(file(line), file("one"))[0] == [(line.encode(), b"one")]


def test_a_file_that_cannot_be_read_is_named(file):
    """Reading /proc/self/mem from its beginning is an input/output error."""
    with pytest.raises(OSError, match=r"^Could not read line 1 of /proc/self/mem \(Input/output error\)\.$"):
        read(file("one\n"), "/proc/self/mem")


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_file_is_hashed_while_it_is_read(file, compress):
    """Oracle: the hash of its bytes. It is larger than what is read at once."""
    text = b"".join(b"%d\n" % number for number in range(400_000))
    content, hashes = compress(text), {}
    name, target = file(content), file(text)
    assert len(list(corpora.text_pairs(name, target, report=corpora.Report(), hashes=hashes))) == 400_000
    assert len(text) > 2**21
    expected = {name: content, target: text}
    assert hashes == {pathlib.Path(each): hashlib.sha256(value).hexdigest() for each, value in expected.items()}


def test_the_report_says_what_was_left_out_and_no_more():
    assert str(corpora.Report(pairs=1234567)) == "1,234,567 pairs"
    assert (
        str(corpora.Report(pairs=2, empty=1, too_long=3))
        == "2 pairs, 1 left out (empty side), 3 left out (longer than `max_length`)"
    )


# What the options ask for.


@pytest.mark.parametrize(
    ("split", "kind", "option"), [("train", "training", "train_source"), ("valid", "validation", "valid_source")]
)
def test_a_side_that_is_not_given_is_asked_for(split, kind, option):
    with pytest.raises(ValueError, match=f"no {kind} text.*`{option}`"):
        list(corpora.pairs(DataConfig(), split, 1, corpora.Report()))


def test_the_identity_of_files_changes_with_what_is_in_them(file):
    names = {"train_source": file("a\n", "s"), "train_target": file("b\n", "t")}
    before = corpora.identity(DataConfig(**names), seed=1)
    assert before == corpora.identity(DataConfig(**names), seed=1)
    file("A\n", "s")
    after = corpora.identity(DataConfig(**names), seed=1)
    assert [name for name in before if before[name] != after[name]] == ["train_source"]
    assert after["train_source"] == [f"s 2 {hashlib.sha256(b'A' + bytes([10])).hexdigest()}"]


def test_the_identity_of_a_dataset_is_what_decides_its_pairs():
    made = DataConfig(dataset="builtin", builtin_pairs=7)
    expected = {"dataset": "builtin", "edition": builtin_corpus.EDITION, "builtin_pairs": 7, "seed": 3}
    assert corpora.identity(made, 3) == expected
    given = {"dataset": "a/de-en", "source_language": "de", "target_language": "en"}
    given |= {"train_split": "train[:9]", "valid_split": "test"}
    assert corpora.identity(DataConfig(**given), 3) == given


def test_a_task_of_one_side_gets_the_sources_of_a_dataset():
    made = DataConfig(dataset="builtin", builtin_pairs=20)
    both = list(corpora.pairs(made, "train", 1, corpora.Report()))
    report = corpora.Report()
    assert list(corpora.pairs(made, "train", 1, report, sides=("source",))) == [(source,) for source, _ in both]
    assert report == corpora.Report(pairs=20)


# Validation files given the wrong way round.


def words(vocabulary: list[str], lines: int, seed: int) -> list[bytes]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(vocabulary, k=draw.randint(1, 8))).encode() for _ in range(lines)]


def swapped(pairs: list) -> list:
    return [(target, source) for source, target in pairs]


def test_swapped_validation_files_are_noticed_and_others_are_not():
    made = builtin_corpus.splits(300, 1)
    train, valid = (
        [(source.encode(), target.encode()) for source, target in made[split]] for split in ("train", "valid")
    )
    for some in (valid, valid[:5]):
        text_checks.check_sides(train, some)
        with pytest.raises(ValueError, match="swapped"):
            text_checks.check_sides(train, swapped(some))


@pytest.mark.parametrize("valid_lines", [1, 3, 50])
@pytest.mark.parametrize("seed", range(5))
def test_a_corpus_of_one_language_is_never_taken_for_swapped(valid_lines, seed):
    """Copying, sorting, reversing, shortening: both sides have the same words, of which short validation files have a
    few.
    """
    train = words([f"word{number}" for number in range(1000)], 200, seed)
    valid = words([f"word{number}" for number in range(2000)], valid_lines, seed + 100)
    for task in (bytes, lambda line: b" ".join(reversed(line.split())), lambda line: line.split()[0], bytes.upper):
        pairs = [[(line, task(line)) for line in lines] for lines in (train, valid)]
        text_checks.check_sides(*pairs)
        text_checks.check_sides(pairs[0], swapped(pairs[1]))


def test_validation_of_unknown_words_is_never_taken_for_swapped():
    train = list(zip(words(["a", "b"], 300, 1), words(["x"], 10, 2) * 30, strict=True))
    unknown = words(["new", "other"], 5, 3)
    text_checks.check_sides(train, list(zip(unknown, unknown, strict=True)))


@pytest.mark.parametrize(
    ("common", "valid", "refused"),
    [
        (16, ("b b", "A a"), True),  # log 17/10 = 0.53.
        (15, ("b b", "A a"), False),  # log 16/10 = 0.47.
        (16, ("a a", "b b"), False),
        (16, ("b b", "b b"), False),  # The target fits its own side.
        (16, ("a a", "a a"), False),
    ],
)
def test_sides_are_taken_for_swapped_from_half_a_nat_for_each_word_on_both(common, valid, refused):
    """By hand: each side has one word so many times and the other one 9 times; each count is taken as one more."""
    train = list(zip([b"a"] * common + [b"b"] * 9, [b"b"] * common + [b"A"] * 9, strict=True))
    with pytest.raises(ValueError, match="swapped") if refused else contextlib.nullcontext():
        text_checks.check_sides(train, [tuple(side.encode() for side in valid)])


# TFDS.

EXAMPLES = {"de": ["eins", "zwei", " ", "vier\u2028fünf"], "en": ["one", "two", "three", "four\u2028five"]}


def test_the_names_of_many_files_may_be_longer_than_the_name_of_one(tmp_path, monkeypatch):
    """Story: scores of a list of 41 files ended with "File name too long"."""
    monkeypatch.chdir(tmp_path)
    names = [f"{number:08}.txt" for number in range(41)]
    for name in names:
        pathlib.Path(name).write_text(f"{name}\n")
    assert corpora.text(",".join(names)) == names


def tfds_read(dataset: str, source: str, target: str, split: str = "train") -> list:
    data = DataConfig(dataset=dataset, source_language=source, target_language=target, train_split=split)
    return list(corpora.pairs(data, "train", 1, corpora.Report()))


@pytest.fixture
def wmt14(tmp_path):
    """wmt14_translate/de-en as if it were on disk, with four examples of ours; gives the splits that are asked for."""
    folder = tmp_path / "wmt14_translate" / "de-en" / "1.0.0"
    folder.mkdir(parents=True)
    template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    splits = [
        {"name": name, "shardLengths": ["4"], "numBytes": "64", "filepathTemplate": template}
        for name in ("train", "validation", "test")
    ]
    info = {"name": "wmt14_translate", "configName": "de-en", "version": "1.0.0", "fileFormat": "tfrecord"}
    (folder / "dataset_info.json").write_text(json.dumps(info | {"splits": splits}))
    asked = []

    def as_dataset(self, split, **_):
        asked.append(str(split))
        return tf.data.Dataset.from_tensor_slices(EXAMPLES)

    with tfds.testing.mock_data(data_dir=str(tmp_path), as_dataset_fn=as_dataset):
        yield asked


@pytest.mark.parametrize("dataset", ["wmt14_translate/de-en", "wmt14_translate/en-de"])
@pytest.mark.parametrize(("source", "target"), [("de", "en"), ("en", "de")])
def test_a_tfds_set_is_read_in_both_directions_whichever_language_its_name_puts_first(wmt14, dataset, source, target):
    expected = [pair for pair in zip(EXAMPLES[source], EXAMPLES[target], strict=True) if " " not in pair]
    assert [tuple(side.decode() for side in pair) for pair in tfds_read(dataset, source, target)] == expected


def test_empty_sides_of_a_tfds_set_are_counted(wmt14):
    report = corpora.Report()
    data = DataConfig(dataset="wmt14_translate/de-en", source_language="de", target_language="en")
    assert len(list(corpora.pairs(data, "valid", 1, report))) == 3
    assert report == corpora.Report(pairs=3, empty=1)
    assert wmt14 == ["validation"]


def test_a_newline_inside_a_tfds_sentence_stays_inside_one_line(wmt14, monkeypatch):
    """Sets made from TMX files have such sentences; the held-out text is written a sentence a line."""
    monkeypatch.setitem(EXAMPLES, "en", ["one\nand a half", "two\r\n", "three", "four"])
    found = [target for _, target in tfds_read("wmt14_translate/de-en", "de", "en")]
    assert found == [b"one and a half", b"two\r ", b"four"]


@pytest.mark.parametrize(
    ("source", "target", "option"), [("fr", "en", "source_language"), ("de", "fr", "target_language")]
)
def test_a_language_that_a_tfds_set_has_not_is_refused_with_those_it_has(wmt14, source, target, option):
    with pytest.raises(ValueError, match=f"`{option}` to be one of de, en.*Received: fr"):
        tfds_read("wmt14_translate/de-en", source, target)


@pytest.mark.parametrize(("error", "reason"), [
    (tfds.download.DownloadError("Failed to get url https://x.org/a.gz. HTTP code: 404."),
     "Failed to get .*/a.gz. HTTP code: 404"),
    (AssertionError("Manual directory m does not exist.\nCreate it."), "Manual directory m does not exist. Create it"),
    (KeyError(), "KeyError"),
    (OSError(errno.ENOSPC, "No space left on device"), ".* No space left on device"),
])  # fmt: skip
def test_what_tfds_says_of_a_set_that_it_cannot_prepare_is_a_sentence(wmt14, tmp_path, monkeypatch, error, reason):
    """Also while the data folder is written, whose disk another that is full is not taken for.

    Story: a download that had moved ended the program with a traceback.
    """

    def download(builder):
        raise error

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", download)
    expected = f"^TFDS could not prepare wmt14_translate/de-en in {tmp_path}/.*/1.0.0: {reason}\\.$"
    with pytest.raises(OSError, match=expected), files.writing(tmp_path / "data"):
        tfds_read("wmt14_translate/de-en", "de", "en")


def test_a_split_that_a_tfds_set_has_not_is_refused_with_those_it_has(wmt14):
    with pytest.raises(ValueError, match="'validate'.*train"):
        tfds_read("wmt14_translate/de-en", "de", "en", "validate")


@pytest.mark.parametrize("split", ["train[:50%]", "train[1:]", "train+validation"])
def test_a_part_of_a_tfds_split_is_a_split(wmt14, split):
    """How a set without a validation split is divided: https://www.tensorflow.org/datasets/splits"""
    assert tfds_read("wmt14_translate/de-en", "de", "en", split)
    assert wmt14 == [split]


@pytest.mark.parametrize("dataset", ["wmt14_translate/xx-en", "wmt14_translat/de-en", "wmt14_translate/de-en:9.9.9"])
def test_a_tfds_set_that_does_not_exist_is_refused(wmt14, dataset):
    with pytest.raises(
        ValueError,
        match=f"^Expected a set of TFDS as `dataset`. Received: {dataset} \\(.*(xx-en|wmt14_translat |9.9.9)",
    ):
        tfds_read(dataset, "de", "en")


def test_a_set_that_is_no_translation_is_refused(wmt14):
    with pytest.raises(ValueError, match="`source_language`"):
        tfds_read("mnist", "de", "en")


@pytest.mark.parametrize("dataset", ["wmt14_translate/de-en", "wmt14_translate/en-de"])
def test_a_tfds_set_without_metadata_is_prepared_and_read(dataset):
    """As TFDS's own mock gives it: split names come to be known by preparing the set, which is no work here."""
    with tfds.testing.mock_data(num_examples=3):
        forth, back = tfds_read(dataset, "de", "en"), tfds_read(dataset, "en", "de")
    assert len(forth) == 3
    assert forth == swapped(back)


def test_a_file_whose_name_has_a_comma_is_reported_as_such(tmp_path, monkeypatch):
    """Story: only "No such file: 'a'" was said of the file a,b.txt."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b.txt").write_text("one\n")
    with pytest.raises(FileNotFoundError, match="'a'.* Commas separate names, and 'a,b.txt' is one file: rename it"):
        corpora.expand("a,b.txt")
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b.txt").write_text("two\n")
    assert list(map(str, corpora.expand("a,b.txt"))) == ["a", "b.txt"]
