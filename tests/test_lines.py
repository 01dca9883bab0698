"""Line n of what comes out belongs to line n of what came in, whatever bytes the lines hold."""

import gzip
import io
import os
import pathlib
import sys
import threading
import types
import unicodedata

import pytest
import tensorflow as tf

from t2t_keras.text import lines


def test_blank_is_what_unicode_calls_whitespace_or_format_in_python_and_in_a_graph():
    """Every character; a later Unicode than Python's may have given a category to one that has none yet."""
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    expected = {each for each in characters if each.isspace() or unicodedata.category(each) in ("Zs", "Zl", "Zp", "Cf")}
    found = {each for each in characters if lines.is_blank(each)}
    assert expected <= found and {unicodedata.category(each) for each in found - expected} <= {"Cn", "Mn"}
    blank = tf.strings.regex_full_match(characters, lines.BLANK).numpy()
    assert found == {each for each, is_blank in zip(characters, blank, strict=True) if is_blank}


@pytest.mark.parametrize(
    ("text", "blank"),
    [("", True), (" \t\u200b\xa0\r", True), ("\u3000a", False), ("\x00", False), ("\u0301", False), ("￭", False)],
    ids=ascii,
)
def test_a_line_is_blank_as_a_whole(text, blank):
    assert lines.is_blank(text) == lines.is_blank(text.encode()) == blank
    assert tf.strings.regex_full_match(text, lines.BLANK) == blank


def test_bytes_that_are_not_utf8_are_not_blank():
    assert not lines.is_blank(b" \xff") and not tf.strings.regex_full_match(b" \xff", lines.BLANK)


def test_words_are_joined_by_single_spaces_and_other_spaces_are_part_of_them():
    assert lines.single_spaced(" 5\xa0km \t\r\n in\u202f\u3000x\u2028 ") == "5\xa0km in\u202f\u3000x\u2028"


def test_only_a_line_feed_ends_a_line_and_a_byte_order_mark_is_dropped():
    stream = io.BytesIO(b"\xef\xbb\xbfone\r\n\xef\xbb\xbftwo\n\xff\x00 \xe2\x80\xa8 \xc2\x85\r \x0b\n\nlast")
    found = list(lines.read_lines(stream))
    assert found == ["one", "\ufefftwo", "\ufffd\x00 \u2028 \x85\r \x0b", "", "last"]


@pytest.mark.parametrize("read", [lambda file: list(lines.read_lines(file)), lines.count])
def test_a_line_too_long_to_be_a_sentence_is_reported_before_all_of_it_is_in_memory(tmp_path, read):
    """Story: a file without line ends was one endless line."""
    path = tmp_path / "text"
    path.write_bytes(b"short\n" + b"x" * (lines.MAX_LINE - 1) + b"\n")
    with path.open("rb") as file:
        read(file)
    with path.open("ab") as file:
        file.truncate(2**29)  # Of which the disk holds nothing.
    expected = f"^Line 3 of {path} has more than 1,048,576 bytes. End each"
    with path.open("rb") as file, pytest.raises(ValueError, match=expected):
        read(file)


def test_a_line_that_is_too_long_may_be_cut_and_the_next_one_follows(monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE", 4)
    stream = io.BytesIO(b"123\n1234\nab\n" + b"1" * 20 + b"\ncd\n12345")
    assert list(lines.bounded(stream, cut=True)) == [b"123\n", b"1234\n", b"ab\n", b"11111", b"cd\n", b"12345"]


def test_the_first_line_that_is_not_utf8_is_named_once(tmp_path, caplog):
    """Story: other encodings were translated without a word."""
    path = tmp_path / "text"
    path.write_bytes("gut\nSch\u00f6n\n".encode() + "Sch\u00f6n\n\u00e9\n".encode("latin-1"))
    with lines.opened(str(path)) as file:
        assert list(lines.read_lines(file)) == ["gut", "Sch\u00f6n", "Sch\ufffdn", "\ufffd"]
    [warning] = caplog.messages
    assert warning == (
        f"{path}, line 3 is not UTF-8: byte 0xf6 at column 4. Convert the file (iconv -f \u2026 -t UTF-8). Until then, "
        "U+FFFD takes the place of such bytes."
    )


def test_a_file_may_be_compressed_with_gzip(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(gzip.compress(b"one\ntwo\n") + gzip.compress(b"three"))
    with lines.opened(str(path)) as file:
        assert lines.count(file) == 3 and list(lines.read_lines(file)) == ["one", "two", "three"]
    path.write_bytes(path.read_bytes()[:-9])
    expected = f"^{path} is a broken gzip file: .* up to line 2 .*again.$"
    with lines.opened(str(path)) as file, pytest.raises(ValueError, match=expected):
        list(lines.read_lines(file))


def test_standard_input_is_text(monkeypatch):
    """It may come line by line, so nothing looks into it before its first line is wanted."""
    stream = io.BytesIO(gzip.compress(b"one\n"))
    stream.name = "<stdin>"
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=stream))
    with lines.opened("") as file:
        assert file is stream and file.tell() == 0
    expected = "^<stdin> is compressed with gzip. Expected UTF-8 text: convert it with gzip -d.$"
    with pytest.raises(ValueError, match=expected):
        list(lines.read_lines(file))
    assert not stream.closed


def test_a_pipe_is_not_read_before_its_first_line_is_wanted(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer, found = os.open(path, os.O_RDWR), []

    def read() -> None:
        with lines.opened(str(path)) as file:
            found.append(file)
            found.append(file.readline())

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(0.2)
    assert len(found) == 1 and thread.is_alive()
    os.write(writer, b"one\n")
    thread.join(10)
    assert found[1] == b"one\n"
    os.close(writer)


@pytest.mark.parametrize(
    ("beginning", "kind"), [("one".encode("utf-16"), "in UTF-16"), (b"BZh91AY&SY", "compressed with bzip2")]
)
def test_other_files_are_named_by_their_first_bytes_alone(beginning, kind):
    for text, number in ((beginning + b"\n", 0), (b"one\n" + beginning, 2)):
        found = lines.read_lines(io.BytesIO(text))
        if number:
            assert len(list(found)) == number
        else:
            with pytest.raises(ValueError, match=f"^the text is {kind}. Expected UTF-8 text: convert it with "):
                next(found)


@pytest.mark.parametrize("text", ["a\rb", "a\rb\r", "a\r\rb"])
def test_a_file_whose_lines_end_in_carriage_returns_alone_is_refused(text):
    """Story: files of such lines were one line, in silence."""
    expected = "^the text has . carriage returns and no line feed in its first . bytes. Only "
    with pytest.raises(ValueError, match=expected):
        list(lines.read_lines(io.BytesIO(text.encode())))
    assert list(lines.read_lines(io.BytesIO(f"{text}\n".encode()))) == [text.removesuffix("\r")]
    assert list(lines.read_lines(io.BytesIO(b"a\r"))) == ["a"]


def test_what_a_model_wrote_is_one_line():
    """Also for readers that end lines at a carriage return, as Python's text files do."""
    assert lines.one_line("one\ntwo\r\u2028 three\r\nfour") == "one two \u2028 three four"


def test_lines_are_counted_from_where_a_file_stands():
    file = io.BytesIO(b"one\ntwo\nthree")
    file.readline()
    assert (lines.count(file), file.readline(), lines.count(io.BytesIO())) == (2, b"two\n", 0)


def test_lines_of_a_pipe_cannot_be_counted():
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    assert lines.count(Pipe(b"one\n")) is None


def test_a_file_gets_its_name_when_all_is_written(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"before")
    with lines.written_whole(path) as file:
        file.write(b"after")
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("before", [b"before", None])
def test_what_a_link_points_to_is_written_and_the_link_stays(tmp_path, before):
    """Also where it points to a file that is not there yet."""
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    if before is not None:
        target.write_bytes(before)
    link.symlink_to("folder/target")
    with lines.written_whole(link) as file:
        file.write(b"after")
    assert link.is_symlink() and target.read_bytes() == b"after"
    assert {path.name for path in tmp_path.rglob("*")} == {"folder", "target", "link"}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_was_written_before_an_error_is_kept_beside_the_file(tmp_path, capsys, error):
    path = tmp_path / "out"
    path.write_bytes(b"before")
    with pytest.raises(error), lines.written_whole(path) as file:
        file.write(b"half")
        raise error
    partial = tmp_path / "out.partial"
    assert (path.read_bytes(), partial.read_bytes()) == (b"before", b"half")
    assert str(partial) in capsys.readouterr().err


def test_a_file_is_written_by_one_alone(tmp_path):
    """Story: a second program emptied what the first was writing, and both wrote on in one file."""
    path = tmp_path / "out"
    (tmp_path / "out.partial").write_bytes(b"of a killed program")
    with lines.written_whole(path) as file:
        file.write(b"one")
        with pytest.raises(OSError, match="out cannot be written: another program"), lines.written_whole(path):
            pytest.fail("the block ran")
    assert path.read_bytes() == b"one" and list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_closed_is_not_written_by_another_before_it_has_its_name(tmp_path, monkeypatch):
    path, replace = tmp_path / "out", pathlib.Path.replace

    def with_another(partial, target):
        with pytest.raises(OSError, match="out cannot be written: another program"), lines.written_whole(path):
            pytest.fail("the block ran")
        return replace(partial, target)

    monkeypatch.setattr(pathlib.Path, "replace", with_another)
    with lines.written_whole(path) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole"


def test_a_file_that_was_renamed_since_it_was_opened_stays_whole(tmp_path, monkeypatch):
    path = tmp_path / "out"

    def finished_by_another(file, operation):
        (tmp_path / "out.partial").write_bytes(b"whole")
        (tmp_path / "out.partial").rename(path)

    monkeypatch.setattr(lines.fcntl, "flock", finished_by_another)
    with pytest.raises(OSError, match="out cannot be written: another program"), lines.written_whole(path):
        pytest.fail("the block ran")
    assert path.read_bytes() == b"whole"


def test_an_unfinished_output_that_is_a_link_is_not_written_through(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"before")
    (tmp_path / "out.partial").symlink_to(tmp_path / "elsewhere")
    expected = "out cannot be written: Too many levels of symbolic links"
    with pytest.raises(OSError, match=expected), lines.written_whole(tmp_path / "out"):
        pass
    assert (tmp_path / "elsewhere").read_bytes() == b"before" and not (tmp_path / "out").exists()


def test_an_error_before_anything_is_written_leaves_nothing(tmp_path):
    with pytest.raises(ValueError), lines.written_whole(tmp_path / "out"):
        raise ValueError
    assert not list(tmp_path.iterdir())


def test_what_is_no_regular_file_is_written_directly():
    with lines.written_whole("/dev/null") as file:
        file.write(b"gone")
    assert pathlib.Path("/dev/null").is_char_device() and not pathlib.Path("/dev/null.partial").exists()


def test_a_link_to_what_is_no_regular_file_is_written_through_and_stays_also_after_an_error(tmp_path, capsys):
    """/dev/stdout is one."""
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    with lines.written_whole(link) as file:
        file.write(b"gone")
    with pytest.raises(ValueError), lines.written_whole(link) as file:
        file.write(b"half")
        raise ValueError
    assert list(tmp_path.iterdir()) == [link] and link.is_symlink() and not capsys.readouterr().err


def test_a_new_file_has_the_permissions_that_a_plain_open_gives(tmp_path):
    old = os.umask(0o027)
    try:
        with lines.written_whole(tmp_path / "out"):
            pass
    finally:
        os.umask(old)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    """A shell leaves it as it is in --output=~/out."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with lines.written_whole("~/out") as file:
        file.write(b"one\n")
    with lines.opened("~/out") as file:
        assert list(lines.read_lines(file)) == ["one"]
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


@pytest.mark.parametrize("name", ["", "missing/out"])
def test_a_file_that_cannot_be_written_is_reported_before_it_is(tmp_path, name):
    with pytest.raises(OSError, match=f"{tmp_path / name} cannot be written"), lines.written_whole(tmp_path / name):
        pytest.fail("the block ran")


@pytest.mark.parametrize("content", [b"x", b"x" * 10**6])
def test_output_that_does_not_fit_on_the_disk_is_named(content):
    """Story: translate.py --output ended with `[Errno 28] No space left on device`, of no file."""
    expected = "^/dev/full cannot be written: No space left on device.$"
    with pytest.raises(OSError, match=expected), lines.written_whole("/dev/full") as file:
        file.write(content)


def test_a_reader_of_an_output_pipe_that_ends_is_no_full_disk(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(BrokenPipeError), lines.written_whole(tmp_path / "pipe") as file:
        os.close(reader)
        file.write(b"x" * 10**6)
