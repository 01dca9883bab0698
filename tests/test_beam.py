"""Files that Apache Beam translates are those of `translate.py`, line for line, however the work is cut, shared out and
killed.
"""

import contextlib
import dataclasses
import gzip
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import types

import programs
import pytest

pytest.importorskip("apache_beam", reason="the extra 'beam' is not installed: pip install -e '.[beam]'")

import apache_beam
import job_server
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner.worker_handlers import ControlConnection
from apache_beam.testing.util import assert_that

from t2t_keras import beam
from t2t_keras.beam import folder, job, runners, transform
from t2t_keras.config import ModelConfig, SampleConfig
from t2t_keras.decoding import process_environment
from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.runs import checkpoint, export_folder
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving import loaded  # Before a test replaces what it imports.
from t2t_keras.serving.line_translation import LineTranslation, LineTranslator
from t2t_keras.serving.saved_export import SavedExport
from t2t_keras.system import files
from t2t_keras.text import lines

ROOT = pathlib.Path(__file__).parent.parent
RUN = ROOT / "tests/data/run_1"
MODEL = TrainedModel.open(RUN)
TEXTS = {
    # The first bytes of line 22, with which a chunk begins, would be those of UTF-16 in line 1.
    "many": b"".join(b"\xff\xfe\n" if number == 22 else b"line %d\n" % number for number in range(1, 24)) + b"no end",
    "empty": b"",
    "blank": b"\n\n  \nx\n\n",
    "marked": b"\xef\xbb\xbfone\r\n\xff\xfe is not UTF-8\n\xef\xbb\xbfnot the first\none\xe2\x80\xa8line\rof\x85text\n"
    b"5\n6\n7\n"
    b"\xef\xbb\xbf8, the first of a chunk\n",
    "one_chunk": b"a\nb\nc\nd\ne\nf\ng\n",
}


# By line: what is not UTF-8 in these texts.
WRONG_BYTES = {22: "byte 0xff at column 1", 2: "byte 0xff at column 1", 4: "byte 0x85 at column 14"}


class Shouting:
    """Stands in for a translator. It makes letters large, which takes no time, and fails at a line with "stop"."""

    def __init__(self, seen: list[bytes] | None = None, fails_at: bytes = b"stop", end=None):
        self.seen, self.fails_at, self.end = [] if seen is None else seen, fails_at, end
        self.limits = self.config = self
        self.batch_size, self.max_input = 3, 40

    def __call__(self, text) -> dict:
        import tensorflow as tf

        if any(self.fails_at in line for line in text.numpy()):
            raise (self.end or RuntimeError)("Told to stop.")
        self.seen += list(text.numpy())
        truncated = tf.strings.length(text) > self.max_input
        return {"text": tf.strings.upper(text), "score": tf.zeros(tf.shape(text)), "truncated": truncated}

    def source_subwords(self, texts: list[str]) -> int:
        return sum(len(text.encode().split()) for text in texts)


class AskedToShout(LineTranslation):
    def load(self, terms, by_text=False) -> LineTranslator:
        return LineTranslator(self, terms, Shouting(), by_text)


ASKED = AskedToShout(MODEL)


@pytest.fixture(autouse=True)
def seven_lines_in_a_chunk(monkeypatch):
    monkeypatch.setattr(folder, "LINES_PER_CHUNK", 7)


@pytest.fixture
def source(tmp_path) -> pathlib.Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / f"{name}.txt").write_bytes(text)
    (folder / "packed.txt.gz").write_bytes(gzip.compress(TEXTS["many"]))
    return folder


def translate(source: pathlib.Path, asked: LineTranslation = ASKED, pattern: str = "*", **given) -> dict[str, bytes]:
    """What the folder beside `source` holds after a job, but for the messages about the lines that are not UTF-8."""
    output = source.parent / "out"
    beam.translate_files(asked, f"{source}/{pattern}", str(output), **given)
    found = {path.name: path.read_bytes() for path in output.iterdir() if path.name not in (folder.JOB, folder.LOCK)}
    for name, numbers in {"many.txt": [22], "many[1].txt": [22], "packed.txt": [22], "marked.txt": [2, 4]}.items():
        if name in found:
            problems = [
                f"Line {number}: not UTF-8: {WRONG_BYTES[number]}. U+FFFD takes the place of such bytes.\n"
                for number in numbers
            ]
            assert found.pop(f"{name}.problems").decode() == "".join(problems)
    return found


def shouted(text: bytes) -> bytes:
    return b"".join(line.replace("\r", " ").encode().upper() + b"\n" for line in lines.read_lines(io.BytesIO(text)))


def instead(monkeypatch, translator) -> None:
    """A translator for all jobs of this process."""
    monkeypatch.setattr(
        AskedToShout, "load", lambda asked, terms, by_text=False: LineTranslator(asked, terms, translator, by_text)
    )


EXPECTED = {f"{name}.txt": shouted(text) for name, text in TEXTS.items()} | {"packed.txt": shouted(TEXTS["many"])}


@pytest.mark.medium
@pytest.mark.parametrize(
    "options",
    ["", *(f"--direct_num_workers=2 --direct_running_mode=multi_{kind}" for kind in ("threading", "processing"))],
    ids=["one worker", "2 threading", "2 processing"],
)
def test_each_file_becomes_a_file_of_as_many_lines_in_their_order(source, monkeypatch, messages, options):
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT}/tests")  # For processes.
    assert translate(source, options=options) == EXPECTED
    number, subwords = (
        sum(map(count, EXPECTED.values())) for count in (lambda text: text.count(b"\n"), lambda text: len(text.split()))
    )
    said = f"Translated {number:,} lines ({subwords:,} sub-words) of 6 files in "
    assert any(message.startswith(said) and "0 failures and 4 warnings" in message for message in messages)


def test_a_name_of_a_file_is_no_pattern(source):
    """Story: "a[1].txt" matched no file."""
    (source / "many.txt").rename(source / "many[1].txt")
    assert translate(source, pattern="many[1].txt") == {"many[1].txt": EXPECTED["many.txt"]}


def test_a_job_server_gets_all_that_the_workers_need_and_counts(source, messages):
    with job_server.running() as given:
        assert translate(source, **given) == EXPECTED
    number = sum(text.count(b"\n") for text in EXPECTED.values())
    assert any(message.startswith(f"Translated {number:,} lines") for message in messages)


def test_a_line_that_cannot_be_translated_is_put_aside_with_its_place_and_reason(source, monkeypatch, messages):
    """A line that is too long, and one at which the search fails; a blank line takes their place. One that is cut is
    told too.
    """
    for module in (lines, transform):
        monkeypatch.setattr(module, "MAX_LINE", 60)
    text = b"a\n" * 8 + b"x" * 60 + b"\n" + b"y" * 200 + b"\n" + b"b\nplease stop\nc\n" + b"z" * 61 + b"\nend"
    (source / "hard.txt").write_bytes(text)
    found = translate(source, pattern="hard.txt")
    # 60 bytes with the line's end would fit, and 61 do not.
    expected = [b"A"] * 8 + [b"X" * 60, b"", b"B", b"", b"C", b"", b"END"]
    expected[8] = b""
    problems = found.pop("hard.txt.problems").decode().splitlines()
    assert found["hard.txt"].split(b"\n")[:-1] == expected
    assert [problem.split(": ", 2)[:2] for problem in problems] == [
        [f"Line {number}", "not translated"] for number in (9, 10, 12, 14)
    ]
    assert "at most 60 bytes" in problems[0] and problems[2].endswith("RuntimeError: Told to stop.")
    assert any("with 4 failures and 0 warnings" in message for message in messages)


def test_a_line_that_is_cut_is_reported_with_its_place(source, messages):
    (source / "long.txt").write_bytes(b"a\n" * 9 + b"x" * 41 + b"\n")
    found = translate(source, pattern="long.txt")
    assert (
        found["long.txt.problems"]
        == b"Line 10: longer than `max_input`=40 sub-words, end token included. Only the beginning is translated.\n"
    )
    assert any("with 0 failures and 1 warning." in message for message in messages)


def test_the_time_of_a_chunk_is_counted_in_milliseconds(monkeypatch):
    counted = []
    monkeypatch.setattr(transform, "count", lambda **numbers: counted.append(numbers))
    monkeypatch.setattr(transform, "time", types.SimpleNamespace(monotonic=iter([5.0, 5.25]).__next__))
    terms, given = ASKED.read_terms(), transform.Lines(["a b", "x" * 41, ""], {3: "too long"})
    list(transform.Handler(ASKED, terms).run_inference([given], ASKED.load(terms)))
    assert counted == [{"chunks": 1, "lines": 3, "subwords": 3, "milliseconds": 250, "failures": 1, "warnings": 1}]


def test_a_model_that_fails_at_every_line_ends_the_job(source, monkeypatch):
    instead(monkeypatch, Shouting(fails_at=b""))
    with pytest.raises(Exception, match="Told to stop"):
        translate(source)
    assert not [path for path in (source.parent / "out").glob("*.txt") if path.name != "empty.txt"]


def test_a_job_that_ended_is_finished_by_the_same_command(source, monkeypatch, messages):
    """Chunks and files that were whole are not translated again, and what was begun is removed."""
    instead(monkeypatch, Shouting(fails_at=b"line 15", end=KeyboardInterrupt))
    with pytest.raises(BaseException, match="Told to stop"):
        translate(source, pattern="many.txt")
    left = source.parent / "out" / folder.EXCHANGE
    (left / "part.0123456789abcdef.tmp").write_bytes(b"begun")
    done = [path.relative_to(left).as_posix() for path in sorted(left.rglob("*.part"))]
    assert done == ["many.txt/7-00000000.part", "many.txt/7-00000001.part"]
    seen: list[bytes] = []
    instead(monkeypatch, Shouting(seen))
    assert translate(source) == EXPECTED
    assert (seen.count(b"line 14"), seen.count(b"line 15")) == (1, 2)  # packed.txt has them too.
    (source.parent / "out" / "blank.txt").unlink()
    seen.clear()
    assert translate(source) == EXPECTED
    assert sorted(seen) == [b"", b"", b"", b"  ", b"x"]
    assert any(message.startswith("Skipping 5 finished: empty.txt, many.txt, ") for message in messages)


def test_a_chunk_ends_with_the_line_that_fills_it(monkeypatch):
    monkeypatch.setattr(folder, "LINES_PER_CHUNK", 3)
    monkeypatch.setattr(folder, "BYTES_PER_CHUNK", 4)
    assert list(folder.cut(io.BytesIO(b"a\n" * 5), "")) == [(0, 2), (4, 2), (8, 1)]
    assert list(folder.cut(io.BytesIO(b"\n" * 6 + b"abcdefg\na"), "")) == [(0, 3), (3, 3), (6, 1), (14, 1)]


def test_chunks_of_a_file_that_changed_are_translated_again(source, monkeypatch):
    instead(monkeypatch, Shouting(fails_at=b"line 15", end=KeyboardInterrupt))
    with pytest.raises(BaseException, match="Told to stop"):
        translate(source, pattern="many.txt")
    changed = (source / "many.txt").stat().st_mtime + 9
    (source / "many.txt").write_bytes(TEXTS["many"].replace(b"line", b"lime"))
    os.utime(source / "many.txt", (changed, changed))
    instead(monkeypatch, Shouting())
    assert translate(source, pattern="many.txt") == {"many.txt": EXPECTED["many.txt"].replace(b"LINE", b"LIME")}


def test_chunks_of_all_files_that_changed_are_removed(tmp_path):
    own, about = folder.Folder(str(tmp_path)), {"path": "x", "bytes": 3, "changed": 1.0}
    folder.begin(own, {}, dict.fromkeys("abc", about))
    for name in "abc":
        (tmp_path / folder.EXCHANGE / name).mkdir(parents=True)
        (tmp_path / folder.EXCHANGE / name / "7-00000000.part").touch()
    folder.begin(own, {}, {"a": about | {"changed": 2.0}, "b": about, "c": about | {"bytes": 4}})
    assert [path.parent.name for path in (tmp_path / folder.EXCHANGE).rglob("*.part")] == ["b"]


def test_calls_with_other_files_share_a_folder(source):
    """And one that finds all files finished leaves no empty folder."""
    several = ["blank", "many", "marked"]
    for pattern, names in (("blank.txt", ["blank"]), (f"mar*, {source}/many.txt", several), ("blank.txt", several)):
        assert translate(source, pattern=pattern) == {f"{name}.txt": EXPECTED[f"{name}.txt"] for name in names}


def test_a_killed_job_is_finished_by_the_same_command(source, monkeypatch):
    """SIGKILL while the third chunk of a file is translated."""
    code = f"""
import os, signal, sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
import test_beam
from t2t_keras import beam
beam.folder.LINES_PER_CHUNK = 7
end = lambda message: os.kill(os.getpid(), signal.SIGKILL)
load = lambda asked, terms, by_text: test_beam.LineTranslator(
    asked, terms, test_beam.Shouting(fails_at=b"line 15", end=end)
)
test_beam.AskedToShout.load = load
beam.translate_files(test_beam.ASKED, "{source}/many.txt", "{source.parent}/out")
"""
    assert (
        programs.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": ""}).returncode == -signal.SIGKILL
    )
    output = source.parent / "out"
    assert not list(output.glob("*.txt")) and len(list(output.rglob("*.part"))) == 2
    seen: list[bytes] = []
    instead(monkeypatch, Shouting(seen))
    assert translate(source, pattern="many.txt") == {"many.txt": EXPECTED["many.txt"]}
    assert len(seen) == 10


class AskedToDie(AskedToShout):
    """One of two workers, the first to load, is killed; see the runner of Beam, which waits for it."""

    def load(self, terms, by_text=False) -> LineTranslator:
        with contextlib.suppress(FileExistsError):
            pathlib.Path(os.environ["DEAD"]).touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().load(terms, by_text)


@pytest.mark.medium
def test_a_worker_that_is_killed_ends_the_job_and_the_same_command_finishes_it(source, tmp_path):
    options = "--direct_num_workers=2 --direct_running_mode=multi_processing"
    code = f"""
import test_beam
asked = test_beam.AskedToDie(test_beam.MODEL)
test_beam.beam.translate_files(asked, "{source}/*", "{source.parent}/out", options="{options}")
"""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests", "DEAD": str(tmp_path / "dead")}
    with (tmp_path / "said").open("wb") as file:
        command = [sys.executable, "-c", code]
        assert subprocess.run(command, env=environment, stdout=file, stderr=file, timeout=120).returncode == 1
    assert "Received: A worker ended before its work, as when memory is short." in (tmp_path / "said").read_text()
    assert translate(source) == EXPECTED


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("ends", ["with an error", "without one"])
def test_requests_to_a_worker_that_has_ended_fail(ends):
    """Story: one of ten jobs with a killed worker waited for ever, because gRPC reported no error."""

    def responses():
        yield beam_fn_api_pb2.InstructionResponse(instruction_id="answered")
        if ends == "with an error":
            raise OSError("Stream removed")

    with runners._ending_with_workers():
        connection = ControlConnection()
        answered, waiting = (
            connection.push(beam_fn_api_pb2.InstructionRequest(instruction_id=name)) for name in ("answered", "waiting")
        )
        connection.set_input(responses())
        assert answered.get(timeout=10).instruction_id == "answered"
        for future in (waiting, connection.push(beam_fn_api_pb2.InstructionRequest(instruction_id="late"))):
            with pytest.raises(RuntimeError, match="A worker ended before its work"):
                future.get(timeout=10)


def test_a_call_removes_the_chunks_of_finished_files_alone(source, monkeypatch):
    """Also those of a job that was killed after its last file was joined."""
    with monkeypatch.context() as patch, pytest.raises(BaseException, match="Told to stop"):
        instead(patch, Shouting(fails_at=b"line 15", end=KeyboardInterrupt))
        translate(source, pattern="many.txt")
    with monkeypatch.context() as patch, pytest.raises(BaseException, match="killed"):
        patch.setattr(folder.Folder, "remove_chunks", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt("killed")))
        translate(source, pattern="marked.txt")
    chunks = source.parent / "out" / folder.EXCHANGE
    begun = [chunks / "many.txt" / f"7-0000000{number}.part" for number in (0, 1)]
    assert (chunks / "marked.txt").exists()
    for pattern in ("marked.txt", "blank.txt"):
        beam.translate_files(ASKED, f"{source}/{pattern}", str(source.parent / "out"))
        assert sorted(path for path in chunks.rglob("*") if path.is_file()) == begun
        assert list(chunks.iterdir()) == [chunks / "many.txt"]
    seen: list[bytes] = []
    instead(monkeypatch, Shouting(seen))
    assert translate(source, pattern="many.txt")["many.txt"] == EXPECTED["many.txt"]
    assert len(seen) == 10 and not chunks.exists()


def test_hidden_files_are_translated_only_if_the_pattern_asks_for_them(source):
    """Such as the lock of another job, which the folder may hold."""
    (source / ".lock").touch()
    (source / ".own.txt").write_bytes(b"a\n")
    assert translate(source) == EXPECTED
    assert translate(source, pattern=".o*") == EXPECTED | {".own.txt": b"A\n"}


def test_a_file_whose_chunks_are_all_translated_is_joined(source, monkeypatch):
    """It was killed just before."""
    with monkeypatch.context() as patch, pytest.raises(BaseException, match="killed"):
        patch.setattr(folder.Folder, "join", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt("killed")))
        translate(source, pattern="one_chunk.txt")
    instead(monkeypatch, Shouting(fails_at=b""))
    assert translate(source, pattern="one_chunk.txt") == {"one_chunk.txt": EXPECTED["one_chunk.txt"]}


def test_a_second_job_in_a_folder_at_the_same_time_is_refused_and_harms_nothing(source):
    output = source.parent / "out"
    output.mkdir()
    with (
        files.exclusive(output / folder.LOCK, "it"),
        pytest.raises(BlockingIOError, match=f"{output} is in use by process"),
    ):
        translate(source)
    assert [path.name for path in output.iterdir()] == [folder.LOCK]


def test_a_job_reports_the_seconds_of_all_workers(messages):
    totals = dict.fromkeys(job.COUNTERS, 0) | {"lines": 3000, "subwords": 5, "milliseconds": 2500}
    for failures, warnings in ((0, 0), (1, 0), (0, 2)):
        job._report(folder.Folder("out"), [], totals | {"failures": failures, "warnings": warnings})
    told = "Translated 3,000 lines (5 sub-words) of 0 files in 2.5 s of all workers, with {} and {}."
    see = "See out/*.problems for the lines."
    assert messages == [
        told.format("0 failures", "0 warnings"), told.format("1 failure", "0 warnings"), see,
        told.format("0 failures", "2 warnings"), see,
    ]  # fmt: skip


def test_files_and_their_chunks_are_spread_over_the_workers(source, monkeypatch):
    pipelines, running = [], runners.running

    @contextlib.contextmanager
    def noted(options):
        with running(options) as pipeline:
            pipelines.append(pipeline)
            yield pipeline

    monkeypatch.setattr(runners, "running", noted)
    translate(source)
    assert {"Spread files", "Spread chunks"} <= pipelines[0].applied_labels


@pytest.mark.parametrize("name", ["packed.txt.gz", "many.txt"])
def test_a_packed_file_is_unpacked_once_however_many_chunks_it_has(source, monkeypatch, name):
    """Story: each chunk was read from the beginning of the file, so the time was quadratic in its length."""
    unpacked, uncompressed = [], folder.uncompressed

    def noted(file):
        stream = uncompressed(file)
        unpacked.append(isinstance(stream, gzip.GzipFile))
        return stream

    monkeypatch.setattr(folder, "uncompressed", noted)
    assert translate(source, pattern=name) == {name.removesuffix(".gz"): EXPECTED["many.txt"]}
    chunks = -(-len(TEXTS["many"].splitlines()) // 7)
    assert chunks > 2 and sum(unpacked) == 2 * name.endswith(".gz")  # To find the chunks, and to unpack.
    assert len(unpacked) == chunks + 2
    assert not list((source.parent / "out").rglob("unpacked*"))


def test_a_damaged_file_is_reported_and_the_others_are_finished(source, monkeypatch):
    packed = source / "packed.txt.gz"
    whole = packed.read_bytes()
    packed.write_bytes(whole[:-9])
    totals = job._totals
    seen: dict[str, int] = {}
    monkeypatch.setattr(job, "_totals", lambda result: seen.update(totals(result)) or seen)
    with pytest.raises(OSError, match=r"1 of 6 files could not be read, such as .*packed.txt.gz: see .*\*.problems"):
        translate(source)
    assert [seen[name] for name in ("chunks", "lines", "unreadable_files")] == [8, 44, 1]
    output = source.parent / "out"
    assert (output / "many.txt").read_bytes() == EXPECTED["many.txt"]
    said = b"packed.txt.gz is a broken gzip file: it could be read up to line 23 (Compressed file ended"
    assert said in (output / "packed.txt.problems").read_bytes()
    packed.write_bytes(whole)
    assert translate(source) == EXPECTED  # And no file of problems.


def test_what_is_refused_is_reported_before_anything_is_written(source, tmp_path):
    translate(source, pattern="blank.txt")
    with pytest.raises(ValueError, match="out was begun with other options or another model: jsonl, keep_patterns"):
        translate(source, dataclasses.replace(ASKED, keep_patterns="tags", jsonl=True))
    (source / "blank.txt").write_bytes(b"other\n")
    with pytest.raises(ValueError, match="in/blank.txt changed after the translation was finished. Give another"):
        translate(source)
    (tmp_path / "out" / "many.txt").write_bytes(b"mine")
    with pytest.raises(ValueError, match="out holds many.txt from elsewhere, under names that this job writes. Give"):
        translate(source, pattern="many.txt")
    with pytest.raises(ValueError, match="`input`: .*absent.\\* matches no file"):
        translate(source, pattern="absent.*")
    with pytest.raises(ValueError, match="`input`: .*in matches no file"):  # A folder.
        beam.translate_files(ASKED, str(source), str(tmp_path / "out"))
    with pytest.raises(ValueError, match="in holds empty.txt from elsewhere"):
        beam.translate_files(ASKED, f"{source}/empty.txt", str(source))
    with pytest.raises(ValueError, match="Expected options that Apache Beam takes.*No closing quotation"):
        beam.translate_files(ASKED, f"{source}/*", str(tmp_path / "new"), options="--x='b")
    with pytest.raises(ValueError, match="NoSuchRunner"):
        beam.translate_files(ASKED, f"{source}/*", str(tmp_path / "new"), runner="NoSuchRunner")
    assert not (tmp_path / "new").exists() and (tmp_path / "out" / "many.txt").read_bytes() == b"mine"
    (source / "packed.txt").touch()
    with pytest.raises(ValueError, match=r".*packed.txt and .*packed.txt.gz have the same name. Rename one"):
        translate(source, pattern="packed*")
    (source / "empty.txt.problems").touch()
    with pytest.raises(ValueError, match="empty.txt.problems: this program writes files of these names. Rename yours."):
        translate(source, pattern="empty*")


def test_a_description_of_another_program_is_refused(source, tmp_path):
    (tmp_path / "out").mkdir()
    for content in ("not JSON", "[]", '{"asked": 3}'):
        (tmp_path / "out" / folder.JOB).write_text(content)
        with pytest.raises(
            ValueError, match="out/translate.json was not written by `t2t-translate`. Give another folder"
        ):
            translate(source)
        assert (tmp_path / "out" / folder.JOB).read_text() == content
    (tmp_path / "out" / folder.JOB).write_text(json.dumps({"asked": {"model": 5, "export": []}, "inputs": {}}))
    with pytest.raises(ValueError, match="another model: model, export"):
        translate(source, LineTranslation(MODEL))


def test_an_exchange_that_is_a_link_is_refused(source, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / folder.EXCHANGE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="is a link, to"):
        translate(source)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.fixture(scope="module")
def translator():
    from t2t_keras.decoding.loading import load

    return load(RUN)


@pytest.fixture(scope="module")
def signatures(translator):
    """They are traced once."""
    from t2t_keras.serving.signatures import Signatures

    return Signatures(translator)


@pytest.fixture
def real(translator, signatures, monkeypatch) -> None:
    monkeypatch.setattr(
        LineTranslation, "load", lambda asked, terms, by_text=False: LineTranslator(asked, terms, signatures, by_text)
    )


def shortened(text: bytes) -> bytes:
    """Scores with fewer digits: the last ones differ with the batch."""
    return re.sub(rb"-?\d+\.\d+", lambda found: b"%.3f" % float(found[0]), text)


def plainly(asked: LineTranslation, texts: list[str]) -> bytes:
    """What `translate.py` writes."""
    translator = asked.load(asked.read_terms())
    results = translator.results(iter(texts), lambda message: None)
    return b"".join(translator.written(number, result) for number, result in enumerate(results, 1))


@pytest.mark.medium
@pytest.mark.parametrize("options", [
    {},
    {"n_best": 2},
    {"sample": SampleConfig(draws=2, seed=3)},
    {"sample": SampleConfig(draws=3, seed=3), "mbr": "chrf"},
    {"keep_patterns": "/t\\w+/"},
    {"jsonl": True},
], ids=str)  # fmt: skip
def test_the_options_of_the_search_are_those_of_translate(source, real, options):
    """Draws and numbers of lines go on from chunk to chunk."""
    asked = LineTranslation(MODEL, **options)
    texts = [f"two hundred and {number}" for number in ("one", "two", "seven")] * 3
    if asked.jsonl:
        texts = [json.dumps({"text": text, "avoid": ["und"]}) for text in texts]
    (source / "real.txt").write_text("".join(f"{text}\n" for text in texts))
    found = translate(source, asked, pattern="real.txt")
    assert shortened(found["real.txt"]) == shortened(plainly(asked, texts))
    assert len(set(found["real.txt"].splitlines())) > 2


@pytest.mark.medium
@pytest.mark.parametrize("options", [
    {},
    {"n_best": 2},
    {"sample": SampleConfig(draws=2, seed=3)},
    {"keep_patterns": "/t\\w+/"},
    {"jsonl": True, "n_best": 1},
], ids=str)  # fmt: skip
def test_an_export_writes_what_its_run_writes(real, signatures, translator, tmp_path, monkeypatch, options):
    export = tmp_path / "export"
    (export / export_folder.EXTRA).mkdir(parents=True)
    description = {"decode": dataclasses.asdict(translator.config)}
    (export / export_folder.EXTRA / export_folder.DESCRIPTION).write_text(json.dumps(description))
    monkeypatch.setattr(loaded, "read_signatures", lambda path: signatures if path == export else None)
    texts = ["two hundred and seven", "", "one", "x" * 5000]
    if options.get("jsonl"):
        both = (["zwei", "ein"], ["ein", "zwei"])
        texts = [
            json.dumps({"text": text, "constraints": each, "avoid": ["und"], "ordered": True})
            for text in texts
            for each in both
        ]
    warnings: dict[str, list[str]] = {"run": [], "export": []}

    def written(name: str, translator: LineTranslator) -> bytes:
        results = enumerate(translator.results(iter(texts), warnings[name].append), 1)
        return shortened(b"".join(translator.written(number, result) for number, result in results))

    own = LineTranslation(MODEL, **options)
    asked = LineTranslation(SavedExport(export), **options)
    assert asked.model.search == translator.config
    exported = LineTranslator(asked, own.read_terms(), loaded.LoadedExport(SavedExport(export)))
    assert written("export", exported) == written("run", own.load(own.read_terms()))
    assert warnings["export"] == warnings["run"]
    assert f"Line {len(texts)}: longer than `max_input`=" in warnings["run"][-1]


def test_an_export_with_other_weights_of_the_same_size_is_another_model(tmp_path):
    (tmp_path / export_folder.EXTRA).mkdir(parents=True)
    (tmp_path / export_folder.EXTRA / export_folder.DESCRIPTION).write_text("{}")
    identities = []
    for weights in (b"one", b"two"):
        (tmp_path / export_folder.SAVED_MODEL).write_bytes(weights)
        identities.append(LineTranslation(SavedExport(tmp_path)).identity())
    assert identities[0] != identities[1]


def test_kernels_are_chosen_for_all_runs_and_threads_alone_for_an_export(tmp_path, monkeypatch):
    chosen = []
    monkeypatch.setattr(process_environment, "choose", lambda models, *options: chosen.append((models, *options)))
    monkeypatch.setattr(process_environment, "choose_threads", lambda: chosen.append("threads"))
    wide = tmp_path / "wide"
    wide.mkdir()
    (wide / files.CONFIG).write_text(json.dumps({"version": 1, "model": {"d_model": 1024}}))
    (wide / files.SUBWORDS).touch()
    TrainedModel.open([RUN, wide], dtype="bfloat16").choose_environment()
    (tmp_path / export_folder.EXTRA).mkdir()
    (tmp_path / export_folder.EXTRA / export_folder.DESCRIPTION).write_text("{}")
    SavedExport(tmp_path).choose_environment()
    models = [SavedRun.open(RUN).model, ModelConfig(d_model=1024)]
    assert chosen == [(models, "bfloat16", False), "threads"]


@pytest.mark.medium
def test_an_option_that_an_export_refuses_is_reported_with_its_sentence(real, signatures, monkeypatch, tmp_path):
    monkeypatch.setattr(loaded, "read_signatures", lambda path: signatures)
    asked = LineTranslation(SavedExport(tmp_path), n_best=3)
    translator = LineTranslator(asked, asked.read_terms(), loaded.LoadedExport(SavedExport(tmp_path)))
    with pytest.raises(ValueError, match="n_best.* The sentence is: 'one'"):
        list(translator.results(["one"], lambda message: None))


def test_a_line_that_is_not_json_is_answered_by_a_blank_one(source, real):
    asked = LineTranslation(MODEL, jsonl=True)
    texts = ['{"text": "one"}', '{"id": 7, "text": 3}', "{", '{"text": "seven"}']
    (source / "real.jsonl").write_text("\n".join(texts))
    found = translate(source, asked, pattern="real.jsonl")
    answers, blank = [json.loads(line) for line in found["real.jsonl"].splitlines()], '{"text": ""}'
    reasons = [answer.pop("error", None) for answer in answers]
    of_second = blank.replace("{", '{"id": 7, ')
    expected = [json.loads(line) for line in plainly(asked, [texts[0], of_second, blank, texts[3]]).splitlines()]
    assert answers == [{**each, "score": pytest.approx(each["score"])} for each in expected]
    assert reasons[::3] == [None, None] and reasons[1] == "Line 2: text: expected a sentence. Received: 3."
    problems = found["real.jsonl.problems"].decode().splitlines()
    assert problems == [f"Line {number}: not translated: {reasons[number - 1]}" for number in (2, 3)]


def test_another_checkpoint_is_another_job(source, real, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(RUN, run)
    (source / "real.txt").write_text("one\n")
    asked = LineTranslation(TrainedModel.open(run, beam_size=3))
    translate(source, asked, pattern="real.txt")
    [manifest] = (run / "checkpoints").glob("*.json")
    before = manifest.read_text()
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "sha256": "0" * 64}))
    with pytest.raises(ValueError, match="another model: model_dir differ. Give"):
        translate(source, asked, pattern="real.txt")
    manifest.write_text(before)
    with pytest.raises(ValueError, match="another model: checkpoint, beam_size differ. Give"):
        translate(source, LineTranslation(TrainedModel.open(run, "latest")), pattern="real.txt")


def test_the_weights_that_describe_a_job_are_those_of_its_checkpoint(monkeypatch):
    monkeypatch.setattr(checkpoint, "identity", lambda folder, which: f"{which} of {folder.name}")
    found = LineTranslation(TrainedModel.open(RUN, "latest")).identity()
    assert found["checkpoint"] == "latest"
    assert [each["weights"] for each in found["model_dir"]] == [f"latest of {RUN.name}"]


def test_a_transform_translates_the_lines_of_a_pipeline(real, translator):
    texts = ["two hundred and seven", "", "one"]
    expected = [
        {"source": text, "text": list(dict.fromkeys(each.decode() for each in found)), "truncated": False}
        for text, found in zip(texts, translator.n_best(texts)["text"].numpy(), strict=True)
    ]
    assert expected[0]["text"] != expected[2]["text"] and [len(each["text"]) for each in expected] == [2, 1, 2]

    def check(results: list[dict]) -> None:
        assert sorted(map(str, expected)) == sorted(str({name: each[name] for name in expected[0]}) for each in results)
        assert all(len(each["score"]) == len(each["text"]) for each in results)

    with apache_beam.Pipeline() as pipeline:
        assert_that(pipeline | apache_beam.Create(texts) | beam.Translate(RUN, n_best=2), check)


def test_a_line_of_a_pipeline_that_cannot_be_translated_has_its_reason(real):
    long = "x" * 2**20 + "y"

    def check(results: list[dict]) -> None:
        found = {str(each["source"])[:9]: each for each in results}
        assert "error" not in found["one"] and found["one"]["text"]
        assert found["3"]["error"] == "text: expected a sentence. Received: 3." and found["3"]["text"] == ""
        assert "at most 1,048,576 bytes" in found["xxxxxxxxx"]["error"] and found["xxxxxxxxx"]["text"] == ""

    with apache_beam.Pipeline() as pipeline:
        assert_that(pipeline | apache_beam.Create(["one", 3, long]) | beam.Translate(RUN), check)


@pytest.mark.medium
def test_the_draws_of_a_line_in_a_pipeline_depend_on_its_text_alone(real):
    """In whatever order and batches the lines come."""
    sampled = beam.Translate(RUN, sample=SampleConfig(draws=4, seed=1))
    translator = sampled.asked.load(sampled.terms, by_text=True)
    expected = {
        text: next(translator.results([text], lambda message: None))["text"] for text in ("two hundred", "one", "seven")
    }
    assert len(set(map(str, expected.values()))) == 3
    for texts in (["two hundred", "one", "seven"], ["seven", "two hundred", "one", "one"]):

        def check(results: list[dict], texts=texts) -> None:
            assert sorted(each["source"] for each in results) == sorted(texts)
            assert all(each["text"] == expected[each["source"]] for each in results)

        with apache_beam.Pipeline() as pipeline:
            assert_that(pipeline | apache_beam.Create(texts) | sampled, check)


def test_workers_in_another_folder_find_the_model(monkeypatch):
    monkeypatch.chdir(ROOT / "tests")
    other = pathlib.Path("data/run_1")
    asked = LineTranslation(TrainedModel.open([other, RUN]), rerank_with=str(other))
    found = transform.Handler(asked, asked.read_terms()).asked
    assert (found.model, found.rerank_with) == (TrainedModel.open([RUN, RUN]), str(RUN))


@pytest.mark.parametrize("options", [
    {"n_best": 2},
    {"sample": SampleConfig(draws=2), "mbr": "chrf"},
    {"terms": "terms.tsv", "keep_patterns": "urls"},
    {"jsonl": True},
], ids=str)  # fmt: skip
def test_a_transform_translates_with_the_options_that_it_gets(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "terms.tsv").write_text("two\tdeux\n")
    made = beam.Translate(RUN, checkpoint=2000, beam_size=3, **options)
    assert made.asked == LineTranslation(TrainedModel.open(RUN, "2000", beam_size=3), **options)
    assert made.terms.translations == ({"two": "deux"} if "terms" in options else {})


def test_a_transform_reports_what_is_wrong_before_the_pipeline_runs(tmp_path):
    with pytest.raises(ValueError, match="`n_best` must be at most `beam_size`, 2. Received: n_best=3"):
        beam.Translate(RUN, n_best=3, beam_size=2)
    with pytest.raises(FileNotFoundError, match="absent"):
        beam.Translate(tmp_path / "absent")


@pytest.mark.slow
def test_the_program_with_two_processes_writes_what_it_writes_without_beam(source, tmp_path):
    texts = "".join(
        f"{number} hundred and {other}\n" for number in ("two", "three") for other in ("one", "seven", "nine")
    )
    for name in ("first", "second"):
        (source / f"{name}.en").write_text(texts)
    given = [f"--model_dir={RUN}", "--n_best=2", "--beam_size=3", "--alpha=0.9"]
    expected = programs.tool("translate", *given, input=texts.encode(), text=False).stdout
    workers = "--beam_options=--direct_num_workers=2 --direct_running_mode=multi_processing"
    flags = ["--beam_runner=DirectRunner", workers, f"--input={source}/*.en", f"--output={tmp_path}/out"]
    assert programs.tool("translate", *given, *flags).returncode == 0
    assert [(tmp_path / "out" / f"{name}.en").read_bytes() for name in ("first", "second")] == [expected] * 2
    assert expected.count(b"\n") == 12
