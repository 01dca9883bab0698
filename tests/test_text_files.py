"""Lines of text files: two files stay aligned, and what is wrong with them is named or counted."""

import bz2
import codecs
import gzip
import hashlib
import io
import lzma
import os
import pathlib
import random
import re
import zipfile

import pytest

from t2t_keras.data import text_files

BOM = codecs.BOM_UTF8


def read(source: str, target: str, **options) -> tuple[list, text_files.Report]:
    report = text_files.Report()
    return list(text_files.pairs(source, target, report=report, **options)), report


def refusal(source: str, target: str, **options) -> str:
    with pytest.raises(ValueError) as refused:
        read(source, target, **options)
    return str(refused.value)


def test_line_n_of_one_file_is_paired_with_line_n_of_the_other(file):
    pairs, report = read(file("one\ntwo\n"), file("eins\nzwei\n"))
    assert pairs == [(b"one", b"eins"), (b"two", b"zwei")]
    assert report == text_files.Report(pairs=2)


def test_documents_end_at_blank_lines_and_where_files_do(file):
    names = ",".join([file("one\n\ntwo\n"), file("three\n"), file("four\n \u200b\xa0\n")])
    of_documents = [(b"one",), (b"",), (b"two",), (b"",), (b"three",), (b"",), (b"four",), (b"",)]
    for documents, expected in ((True, of_documents), (False, of_documents[::2])):
        assert list(text_files.pairs(names, report=text_files.Report(), documents=documents)) == expected


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


def test_files_in_another_order_on_each_side_are_warned_of(file, messages):
    sources = [file(f"{name}\n" * number, name) for name, number in (("c", 2), ("a", 3), ("b", 5))]
    targets = [file(f"{name}\n" * number, name) for name, number in (("C", 2), ("B", 5), ("A", 3))]
    for target in ([targets[0], *targets[:0:-1]], [file("E\n" * 10, "E")], targets):
        text_files.check_texts([(",".join(sources), ",".join(target))])
    text_files.check_texts([(f"{sources[0]},{sources[0]}", file("D\n" * 4, "D"))])
    received = f"{sources[1]} with 3 and {targets[1]} with 5"
    assert messages == [
        f"Expected the files of both sides in the same order, with as many lines each. Received: {received}."
    ]


def test_spaces_after_commas_are_no_part_of_names(file):
    names, spaced = (file("a\n", "a"), file("b\n", "b")), file("c\n", " c")
    assert text_files.expand(", ".join([*names, spaced])) == [pathlib.Path(name) for name in (*names, spaced)]
    assert text_files.expand(f"{names[0]} , {names[1]}@2") == [
        pathlib.Path(name) for name in (names[0], *[names[1]] * 2)
    ]


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
    assert text_files.expand(str(path)) == [path]
    assert text_files.expand(f"{path}@9999") == [path] * 9999


def test_a_name_may_begin_with_the_home_folder(file, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    file("a\n", "a"), file("b\n", "b.en")
    assert text_files.expand("~/a@2, ~/*.en") == [tmp_path / "a", tmp_path / "a", tmp_path / "b.en"]


def test_gzip_is_read_whatever_the_name(file):
    text = b"one\ntwo\n"
    several_members = gzip.compress(text) + gzip.compress(b"three")
    assert read(file(gzip.compress(text), "a.txt"), file(text, "b.gz"))[0] == read(file(text), file(text))[0]
    assert read(file(several_members), file("one\ntwo\nthree\n"))[0][-1] == (b"three", b"three")


def test_carriage_returns_before_a_newline_are_removed_and_counted(file):
    pairs, report = read(file("one\r\ntwo\r\nthree"), file("eins\nzwei\ndrei\r"))
    assert pairs == [(b"one", b"eins"), (b"two", b"zwei"), (b"three", b"drei")]
    assert report == text_files.Report(pairs=3, carriage_returns=3)


def test_a_byte_order_mark_is_removed_at_the_start_of_each_file_and_nowhere_else(file):
    source = f"{file(BOM + b'one')},{file(gzip.compress(BOM + b'two'))},{file(b'three' + BOM)}"
    pairs, report = read(source, file(BOM + b"eins\n" + BOM + b"zwei\ndrei\n"))
    assert pairs == [(b"one", b"eins"), (b"two", BOM + b"zwei"), (b"three" + BOM, b"drei")]
    assert report == text_files.Report(pairs=3, byte_order_marks=3)


def test_pairs_with_an_empty_side_are_left_out_and_counted(file):
    pairs, report = read(file("one\n\n \t\nfour\n\nsix\n"), file("eins\nzwei\ndrei\n\r\n\nsechs\n"))
    assert pairs == [(b"one", b"eins"), (b"six", b"sechs")]
    assert report == text_files.Report(pairs=2, empty=4, carriage_returns=1)
    pairs, report = read(file("one\n\u200b\n\xa0\nfour\n"), file("\u3000\t\nzwei\n\xad\nvier\n"))
    assert pairs == [(b"four", b"vier")] and report == text_files.Report(pairs=1, empty=3)


def test_text_that_is_scored_keeps_its_blank_lines(file):
    """Of several files, one of them compressed, with a byte order mark and ends of lines as Windows has them."""
    names = file(BOM + b"one\r\n\n  \n"), file(gzip.compress("fünf\n\n\u2028".encode()))
    assert text_files.text(",".join(names)) == ["one", "", "  ", "fünf", "", "\u2028"]


def test_a_file_with_a_weight_is_counted_once(file, monkeypatch):
    counted, count = [], text_files._count
    monkeypatch.setattr(text_files, "_count", lambda path, *how: counted.append(str(path)) or count(path, *how))
    source, target = file("a\nb\n"), file("A\nB\n")
    text_files.check_texts([(f"{source}@3", f"{target}@3"), (source, target)])
    assert counted == [source, target]


def test_no_pair_comes_after_the_files_differ(file):
    pairs = text_files.pairs(file("a\nb\n"), file("A\n"), report=text_files.Report())
    assert next(pairs) == (b"a", b"A")
    with pytest.raises(ValueError, match="as many lines"):
        next(pairs)


@pytest.mark.parametrize("name", ["missing.txt", "missing-*.txt"])
def test_a_missing_file_is_named(file, name):
    with pytest.raises(FileNotFoundError, match=f"'{name}'".replace("*", r"\*")):
        read(f"{file('a')},{name}", file("b"))


def test_a_folder_is_no_file(file, tmp_path):
    with pytest.raises(FileNotFoundError, match=f"^Expected files .* Received: '{tmp_path}', which is not a file.$"):
        read(str(tmp_path), file("b"))
    file("a", "news.en"), (tmp_path / "news").mkdir()
    with pytest.raises(FileNotFoundError, match="'.*/news', which is not a file"):
        read(f"{tmp_path}/news*", file("b"))


def test_a_link_to_a_file_that_is_gone_is_no_pipe(file, tmp_path):
    (tmp_path / "linked").symlink_to(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match="'.*/linked', which is not a file.$"):
        read(f"{tmp_path}/linked*", file("b"))


def test_a_pipe_as_a_text_is_refused_with_the_reason(tmp_path):
    """Story: of `--train_source=<(zcat a.gz)`, people learned only that it is no file."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match="pipe', which is not a file. Text is read more than once: write what"):
        text_files.expand(str(tmp_path / "pipe"))


@pytest.mark.parametrize("names", ["", "{},", ",{}", "{}, ,{}"])
def test_a_name_of_no_characters_is_told_with_the_names_around_it(tmp_path, names):
    """Story: `--train_source=a.en,` ended with "No such file: ''"."""
    (tmp_path / "a").write_text("one\n")
    given = names.replace("{}", str(tmp_path / "a"))
    with pytest.raises(FileNotFoundError) as refused:
        text_files.expand(given)
    assert str(refused.value) == f"Expected names of files with commas between them. Received: '{given}'."


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
    assert report == text_files.Report(pairs=2, not_utf8=3)


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
    assert len(list(text_files.pairs(name, target, report=text_files.Report(), hashes=hashes))) == 400_000
    assert len(text) > 2**21
    expected = {name: content, target: text}
    assert hashes == {pathlib.Path(each): hashlib.sha256(value).hexdigest() for each, value in expected.items()}


def test_the_report_says_what_was_left_out_and_no_more():
    assert str(text_files.Report(pairs=1234567)) == "1,234,567 pairs"
    assert str(text_files.Report(pairs=1, byte_order_marks=1)) == "1 pair, 1 byte order mark removed"
    assert (
        str(text_files.Report(pairs=2, empty=1, too_long=3))
        == "2 pairs, 1 left out (empty side), 3 left out (longer than `max_length`)"
    )


def test_the_names_of_many_files_may_be_longer_than_the_name_of_one(tmp_path, monkeypatch):
    """Story: scores of a list of 41 files ended with "File name too long"."""
    monkeypatch.chdir(tmp_path)
    names = [f"{number:08}.txt" for number in range(41)]
    for name in names:
        pathlib.Path(name).write_text(f"{name}\n")
    assert text_files.text(",".join(names)) == names


def test_a_file_whose_name_has_a_comma_is_reported_as_such(tmp_path, monkeypatch):
    """Story: only "No such file: 'a'" was said of the file a,b.txt."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b.txt").write_text("one\n")
    with pytest.raises(FileNotFoundError, match="'a'.* Commas separate names, and 'a,b.txt' is one file: rename it"):
        text_files.expand("a,b.txt")
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b.txt").write_text("two\n")
    assert list(map(str, text_files.expand("a,b.txt"))) == ["a", "b.txt"]
