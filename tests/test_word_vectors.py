"""Word vectors of gensim's Word2Vec are read in each format, bounded in memory; other files are refused early."""

import codecs
import importlib
import logging
import os
import pathlib
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import toy

from t2t_keras.interop import word_vectors

gensim = pytest.importorskip("gensim", reason="the extra 'embeddings' is not installed: pip install -e '.[embeddings]'")
from gensim.models import KeyedVectors, Word2Vec  # noqa: E402

ROOT = pathlib.Path(__file__).parent.parent
WIDTH = 6
SENTENCES = [text.split(" ") for text in ("the dog plays", "der Hund spielt", "the Füße ▁ x", "a dog and a cat")] * 5
FORMATS = {
    "text": {"binary": False}, "binary": {"binary": True}, "glove": {"binary": False, "write_header": False},
}  # fmt: skip


@pytest.fixture(scope="module")
def learned() -> KeyedVectors:
    return Word2Vec(SENTENCES, vector_size=WIDTH, min_count=1, seed=1, workers=1, epochs=2).wv


@pytest.fixture(params=FORMATS)
def file(request, learned, tmp_path) -> pathlib.Path:
    """All have the same name."""
    learned.save_word2vec_format(str(tmp_path / "vectors.txt"), **FORMATS[request.param])
    return tmp_path / "vectors.txt"


def test_the_contents_determine_the_format(file, request, learned):
    number = len(learned)
    expected = {"text": (WIDTH, False, number), "binary": (WIDTH, True, number), "glove": (WIDTH, False, None)}
    assert word_vectors.check(file, WIDTH) == expected[request.node.callspec.params["file"]]


def test_the_vectors_of_the_words_asked_for_are_read_and_no_others(file, learned):
    found = word_vectors.read(file, WIDTH, ["dog", "Füße", "x", "never"])
    assert found.keys() == {"dog", "Füße", "x"}
    for word, vector in found.items():
        assert vector.dtype == "float32"
        np.testing.assert_allclose(vector, learned[word], atol=1e-6)
    assert word_vectors.read(file, WIDTH, []) == {}


def test_of_a_word_twice_the_first_counts(tmp_path):
    (tmp_path / "v").write_text("a 1 2\na 3 4\nb 5 6\n")
    expected = {"a": [1, 2], "b": [5, 6]}
    assert {word: vector.tolist() for word, vector in word_vectors.read(tmp_path / "v", 2, "ab").items()} == expected


def test_memory_is_that_of_the_words_asked_for(tmp_path):
    """In a process of its own, whose highest memory is known. 100,000 vectors are 40 MB."""
    number, width = 100_000, 100
    rows = (f"w{index} ".encode() + np.full(width, index, "float32").tobytes() for index in range(number))
    (tmp_path / "v").write_bytes(f"{number} {width}\n".encode() + b"".join(rows))
    (tmp_path / "small").write_bytes(f"1 {width}\n".encode() + b"w " + bytes(4 * width))
    program = f"""
import pathlib
from t2t_keras.interop import word_vectors
from t2t_keras.system.machine import peak_memory, resident_memory
word_vectors.read(pathlib.Path("small"), {width}, ["w"])
before = max(resident_memory(), peak_memory())
found = word_vectors.read(pathlib.Path("v"), {width}, ["w7", "w99999"])
print(found["w7"][0], found["w99999"][-1], peak_memory() - before)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    first, last, grown = map(float, done.stdout.split())
    assert (first, last) == (7, 99999) and grown < 2e7


# What is refused.


def wrong(tmp_path, content: bytes, width: int = WIDTH) -> str:
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError) as raised:
        word_vectors.check(path, width)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\n", b"\x89PNG\r\n\x1a\n" + bytes(500), b"\x80\x04\x95pickle" * 50, b"just some text\nand more\n",
        b"word\n", b"0 0\n", b"\x1b[31m red\n" + b"x" * 999, b"3 6\n",
    ],
    ids=["empty", "a line end", "a picture", "a pickle", "text", "a word", "no words", "colours", "a header alone"],
)  # fmt: skip
def test_what_has_no_vectors_is_refused(tmp_path, content):
    message = wrong(tmp_path, content)
    usual = "Expected word vectors in the text or binary format of Word2Vec"
    expected = "Expected 3 word vectors" if content == b"3 6\n" else usual
    assert message.startswith(expected) and "vectors.txt" in message and "\x1b" not in message
    assert len(message) < 300 + len(str(tmp_path))


def test_a_header_of_a_number_that_is_no_number_of_words_is_none(tmp_path):
    """Python converts no text of so many digits."""
    assert "Received: 1 in" in wrong(tmp_path, b"9" * 5000 + b" 6\n" + b"a 1 2 3 4 5 6\n")


@pytest.mark.parametrize(
    "content", [b"2 2\na 1 2\nb 3 4\n", b"2 2\na " + bytes(8) + b"b " + bytes(8)], ids=["text", "binary"]
)
def test_the_smallest_file_that_its_header_allows_is_read_and_a_smaller_one_is_not(tmp_path, content):
    (tmp_path / "v").write_bytes(content)
    assert word_vectors.read(tmp_path / "v", 2, "ab").keys() == {"a", "b"}
    found = f"as its header says: {len(content):,} bytes or more. Received: {len(content) - 1:,} bytes"
    assert found in wrong(tmp_path, content[:-1], 2)


@pytest.mark.parametrize("header", ["999999999999999 6", "4 6", "1000000000 6"])
@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_a_header_of_more_words_than_the_file_can_hold_is_refused_before_anything_is_allocated(
    learned, tmp_path, header, binary
):
    rows = b"".join(
        b"w%d " % index + (bytes(range(1, 25)) if binary else b"1 2 3 4 5 6\n")
        for index in range(1 if header[0] == "4" else 3)
    )
    with toy.memory_below(1e7):
        message = wrong(tmp_path, header.encode() + b"\n" + rows)
    assert f"Expected {int(header.split()[0]):,} word vectors in" in message and "Copy the file again." in message


def test_a_header_of_fewer_or_more_words_than_lines_is_refused(learned, tmp_path):
    """Story: of two files that were joined, the vectors of the second were lost."""
    for name in "ab":
        learned.save_word2vec_format(str(tmp_path / name))
    both = (tmp_path / "a").read_bytes() + (tmp_path / "b").read_bytes()
    number, lines = len(learned), 2 * len(learned) + 1
    for content, count in ((both, lines), (both.replace(b"%d " % number, b"%d " % (lines + 1), 1), lines)):
        (tmp_path / "v").write_bytes(content)
        with pytest.raises(ValueError, match=f"as its header says. Received: {count} lines after the header. Correct"):
            word_vectors.read(tmp_path / "v", WIDTH, ["dog"])
    lines = (tmp_path / "a").read_bytes().rstrip()
    for end in (b"\n", b"\n\n \n"):  # Blank lines are none.
        (tmp_path / "v").write_bytes(lines + end)
        assert word_vectors.read(tmp_path / "v", WIDTH, ["dog"]).keys() == {"dog"}


def test_a_binary_header_of_fewer_words_than_the_file_has_is_refused(learned, tmp_path, monkeypatch):
    """Story: of two files that were joined, the vectors of the second were lost, without a word."""
    learned.save_word2vec_format(str(tmp_path / "a"), binary=True)
    one, number = (tmp_path / "a").read_bytes(), len(learned)
    header, rows = one[: one.index(b"\n") + 1], one[one.index(b"\n") + 1 :]
    size = len(rows)
    for block in (size, size // 2, 7, 2**22):  # The vectors may end where a block does.
        monkeypatch.setattr(word_vectors, "_START", max(block, 4 * WIDTH + len(header) + 20))
        for content, rest in ((one + one, len(one)), (one + rows, size), (one + b"x", 1)):
            (tmp_path / "v").write_bytes(content)
            with pytest.raises(
                ValueError, match=f"Expected {number} word.* Received: {rest:,} bytes after these. Corr"
            ):
                word_vectors.read(tmp_path / "v", WIDTH, ["dog"])
        (tmp_path / "v").write_bytes(header.replace(b"%d " % number, b"%d " % (2 * number)) + rows + rows)
        np.testing.assert_array_equal(word_vectors.read(tmp_path / "v", WIDTH, ["dog"])["dog"], learned["dog"])
    lines = [f"{word} ".encode() + learned[word].tobytes() for word in learned.index_to_key]  # As the program writes.
    (tmp_path / "v").write_bytes(header + b"\n".join(lines) + b"\n")
    np.testing.assert_array_equal(word_vectors.read(tmp_path / "v", WIDTH, ["dog"])["dog"], learned["dog"])


@pytest.mark.parametrize(("module", "level"), [("gzip", {}), ("bz2", {}), ("bz2", {"compresslevel": 1}), ("lzma", {})])
def test_a_compressed_file_is_to_be_unpacked(tmp_path, module, level):
    """Story: the message showed its bytes."""
    content = importlib.import_module(module).compress(b"a 1 2\nb 3 4\n", **level)
    assert wrong(tmp_path, content, 2).endswith("which is compressed. Unpack it, and give the file in it.")


def test_a_zip_is_to_be_unpacked(tmp_path):
    """Also one that stores the lines as they are, whose first word was lost."""
    with zipfile.ZipFile(tmp_path / "v.zip", "w") as archive:
        archive.writestr("v.txt", "a 1 2\nb 3 4\n")
    assert "which is compressed. Unpack it" in wrong(tmp_path, (tmp_path / "v.zip").read_bytes(), 2)


@pytest.mark.parametrize("header", ["", "2 2\n"])
def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path, header):
    """Story: the first word of a file of GloVe had no vector, and a header was a vector of one number."""
    message = wrong(tmp_path, codecs.BOM_UTF8 + f"{header}a 1 2\nb 3 4\n".encode(), 2)
    assert message.endswith("which begins with a byte order mark. Remove its first three bytes.")


def test_a_line_of_a_word_with_spaces_is_to_be_removed(tmp_path):
    """As glove.840B has them."""
    (tmp_path / "v").write_text("a 1 2\nat name@domain.com 3 4\n")
    with pytest.raises(ValueError, match="name@domain.com.* Remove lines that are not a word without spaces and 2 num"):
        word_vectors.read(tmp_path / "v", 2, ["a"])


def test_vectors_of_another_width_are_refused(file):
    message = r"^Expected word vectors of 8 numbers, the width of the embeddings. Received: 6 in .*vectors.txt\.$"
    with pytest.raises(ValueError, match=message):
        word_vectors.check(file, 8)


@pytest.mark.parametrize("format_", FORMATS)
def test_vectors_that_are_far_wider_are_counted_too(tmp_path, format_):
    vectors = KeyedVectors(3000)
    vectors.add_vectors(["a", "b"], np.full((2, 3000), 1 / 3, "float32"))
    vectors.save_word2vec_format(str(tmp_path / "v"), **FORMATS[format_])
    with pytest.raises(ValueError, match="Received: 3,000 in"):
        word_vectors.check(tmp_path / "v", 8)


def test_spaces_at_the_ends_of_lines_are_no_numbers(tmp_path):
    """As the program word2vec writes them."""
    for end in ("\n", "\r\n"):
        for header in ("2 2", ""):
            (tmp_path / "v").write_bytes(f"{header + end if header else ''}a 1 2 {end}b 3 4 {end}".encode())
            assert word_vectors.read(tmp_path / "v", 2, ["b"])["b"].tolist() == [3, 4]


def test_a_vector_may_be_one_number(tmp_path):
    """A word and a number are no header."""
    (tmp_path / "v").write_text("a 1\nb 2\n")
    assert word_vectors.read(tmp_path / "v", 1, ["b"])["b"].tolist() == [2]


def test_words_that_are_not_read_are_no_warnings(file, caplog):
    with caplog.at_level(logging.INFO, "gensim"):
        word_vectors.read(file, WIDTH, ["dog"])
        assert logging.getLogger("gensim").level == logging.INFO
    assert not [record for record in caplog.records if record.name.startswith("gensim")]


def test_a_header_of_another_width_than_the_rows_is_refused(tmp_path):
    assert "which begins with '3 6'" in wrong(tmp_path, b"3 6\n" + b"a 1 2 3 4 5\n" * 3)


def test_a_file_that_is_cut_off_is_refused(file, request, learned):
    content = file.read_bytes()
    file.write_bytes(content[:-9])
    with pytest.raises(ValueError, match="truncated|damaged|as its header says"):
        word_vectors.read(file, WIDTH, ["dog"])
    if request.node.callspec.params["file"] != "binary":
        file.write_bytes(content[: content.rindex(b" ")] + b"\n")  # A row is short of a number.
        with pytest.raises(ValueError, match="which is damaged"):
            word_vectors.read(file, WIDTH, learned.key_to_index)


def test_a_plain_file_with_the_name_of_a_compressed_one_is_named(tmp_path):
    """Story: the error of gzip named no file."""
    (tmp_path / "v.txt.gz").write_text("1 2\ndog 0.5 1.5\n")
    with pytest.raises(ValueError, match="Received: .*v.txt.gz, which is damaged"):
        word_vectors.read(tmp_path / "v.txt.gz", 2, ["dog"])


def test_numbers_that_are_not_finite_are_refused(tmp_path):
    (tmp_path / "v").write_text("a 1 2\nb nan 2\nc inf 1\n")
    assert word_vectors.read(tmp_path / "v", 2, ["a"])["a"].tolist() == [1, 2]
    with pytest.raises(ValueError, match="Expected finite numbers in .* Received: infinity or NaN for the word 'b'"):
        word_vectors.read(tmp_path / "v", 2, ["a", "b", "c"])


def test_a_missing_file_and_a_missing_gensim_are_reported(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="No such file of word vectors: '.*nowhere'"):
        word_vectors.check(tmp_path / "nowhere", 2)
    (tmp_path / "v").write_text("a 1 2\n")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 't2t_keras\[embeddings\]'"):
        word_vectors.check(tmp_path / "v", 2)
