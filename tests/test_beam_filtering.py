"""Apache Beam divides parallel text as the local path does, byte for byte, however the work is cut and shared out."""

import functools
import gzip
import math
import os
import pathlib
import signal
import subprocess
import sys

import programs
import pytest
from test_filtering import FRENCH, GOOD, contents, noise, rejected, write

from t2t_keras.config import FilterConfig
from t2t_keras.filtering import judging

pytest.importorskip("apache_beam", reason="the extra 'beam' is not installed: pip install -e '.[beam]'")

import job_server

from t2t_keras.beam import filtering

ROOT = pathlib.Path(__file__).parent.parent
RUN = ROOT / "tests/data/run_1"
EVERY_RULE = FilterConfig(
    source_script="Latin", target_script="Latin", source_language="en", min_language=1e-3, max_cross_entropy=25.0
)
DEFAULT = FilterConfig()
THREADS, PROCESSES = (
    f"--direct_num_workers=2 --direct_running_mode=multi_{kind}" for kind in ("threading", "processing")
)


@pytest.fixture(autouse=True)
def eleven_pairs_in_a_chunk(monkeypatch):
    """And about forty hashes in a group."""
    monkeypatch.setattr(judging, "PAIRS_AT_ONCE", 11)
    monkeypatch.setattr(filtering, "HASHES_IN_GROUP", 40)


def scores(sources, targets) -> list[float]:
    """Stand-in for models: the scores have many digits, and some are not numbers."""
    found = [math.sqrt(len(source)) * len(target) / 10 for source, target in zip(sources, targets, strict=True)]
    return [math.nan if "river river" in source else score for source, score in zip(sources, found, strict=True)]


def load_scores():
    return scores


@pytest.fixture
def text(tmp_path) -> list[str]:
    """Pairs that break each rule, in files of both kinds whose line ends differ, with repetitions in other files."""
    bad = [(GOOD[0], "Мужчина играет на гитаре.")]
    bad.append((FRENCH, "A man plays the guitar on a stage with the public before him"))
    latin = ("caf\u00e9 au lait".encode("latin-1") + b"\n", "kaffee")
    parts = [[*noise(150), *bad, latin], noise(60), [*noise(25), latin, *bad, *noise(40)]]
    for number, pairs in enumerate(parts):
        for path in write(tmp_path, pairs, f"part{number}"):
            path = pathlib.Path(path)
            if number == 0:
                path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
            if number == 1:
                path.write_bytes(gzip.compress(path.read_bytes()))
            if number == 2:
                path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    return [f"{tmp_path}/part[01].{side},{tmp_path}/part2.{side}" for side in judging.SIDES]


def both(text: list[str], folder: pathlib.Path, config: FilterConfig = DEFAULT, load=None, **given):
    """The contents of the folders of Beam and of the local path."""
    given = {"runner": "DirectRunner", "load_scores": load, **given}
    found = filtering.filter_text(*text, folder / "beam", config, **given)
    local = judging.filter_text(*text, folder / "local", config, scores=load and load(), number=1)
    assert found == local and sorted(contents(folder / "beam")) == sorted(contents(folder / "local"))
    return contents(folder / "beam"), contents(folder / "local")


@pytest.mark.medium
@pytest.mark.parametrize("options", ["", THREADS, PROCESSES], ids=["one worker", "two threads", "two processes"])
def test_beam_writes_every_file_as_the_local_path_does(text, tmp_path, monkeypatch, options):
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT}/tests")  # For processes.
    beam, local = both(text, tmp_path, EVERY_RULE, load_scores, options=options)
    assert beam == local
    assert {rule for _, rule in rejected(tmp_path / "beam")} == set(judging.RULES)
    assert b"\tcross_entropy\tnan\n" in beam["rejected.tsv"] and beam["kept.cross_entropy.txt"].count(b"\n") > 30
    assert not list(tmp_path.glob(".unfinished*"))


@pytest.mark.medium
def test_a_job_server_gets_all_that_the_workers_need(text, tmp_path):
    with job_server.running() as given:
        beam, local = both(text, tmp_path, EVERY_RULE, load=load_scores, **given)
    assert beam == local


@pytest.mark.parametrize("exact", ["pair", "source", "target", "none"])
@pytest.mark.parametrize("near", ["pair", "source", "target", "none"])
def test_the_first_of_those_that_repeat_each_other_stays(tmp_path, monkeypatch, exact, near):
    """In the order of the text, and near repetitions among those that are no exact ones."""
    monkeypatch.setattr(judging, "PAIRS_AT_ONCE", 3)
    monkeypatch.setattr(filtering, "HASHES_IN_GROUP", 7)
    repeated = [("a cat", "eine Katze"), ("A cat!", "eine Katze"), ("a cat", "Eine Katze 2"), ("a dog", "ein Hund")]
    repeated.append(("A dog.", "Ein Hund."))
    pairs = [repeated[(7 * index + index // 3) % 5] for index in range(29)]
    config = FilterConfig(duplicates=exact, near_duplicates=near, max_length_ratio=0.0)
    beam, local = both(write(tmp_path, pairs), tmp_path, config)
    assert beam == local
    assert len(rejected(tmp_path / "beam")) >= (0 if exact == near == "none" else 20)


def test_a_near_repetition_of_a_pair_that_is_an_exact_one_stays(tmp_path, monkeypatch):
    """Line 3 repeats the source of line 1, and only line 4 is near it: with line 3, line 4 would be rejected."""
    pairs = [("a cat", "eine Katze"), ("the dog", "der Hund"), ("a cat", "die Katze"), ("one cat", "Die Katze!")]
    monkeypatch.setattr(judging, "PAIRS_AT_ONCE", 2)
    config = FilterConfig(duplicates="source", near_duplicates="target", max_length_ratio=0.0)
    beam, local = both(write(tmp_path, pairs), tmp_path, config)
    assert beam == local and rejected(tmp_path / "beam") == [(3, "duplicate")]


@pytest.mark.medium
def test_two_runs_are_loaded_by_the_worker_and_score_as_they_do_without_beam(text, tmp_path):
    load = functools.partial(judging.load_scores, [RUN, RUN])
    beam, local = both(text, tmp_path, FilterConfig(max_cross_entropy=9.0), load=load)
    assert beam == local
    assert len(set(beam["kept.cross_entropy.txt"].split())) > 20 and b"\tcross_entropy\t" in beam["rejected.tsv"]


def test_models_are_loaded_once_in_a_process(text, tmp_path):
    calls = tmp_path / "calls"
    beam, _ = both(text, tmp_path, load=functools.partial(_counted, calls), options=THREADS)
    assert calls.read_text() == "loaded\n" * 2  # By Beam and by this test.


def _counted(calls: pathlib.Path):
    with calls.open("a") as file:
        file.write("loaded\n")
    return scores


def test_the_exchange_may_be_elsewhere_and_is_removed(text, tmp_path):
    other = tmp_path / "other"
    (other / "t2t_keras_exchange").mkdir(parents=True)
    (other / "t2t_keras_exchange" / "000000000000.text.json").write_text("left")
    (other / "notes.txt").write_text("mine")
    beam, local = both(text, tmp_path, exchange=str(other))
    assert beam == local and contents(other) == {"notes.txt": b"mine"}


@pytest.mark.medium
def test_what_cannot_be_filtered_leaves_nothing(text, tmp_path):
    empty = tmp_path / "empty"
    empty.touch()
    before = sorted(tmp_path.iterdir())

    def refused(*given, runner="DirectRunner", load=None) -> str:
        with pytest.raises(Exception) as raised:
            filtering.filter_text(*given, tmp_path / "out", FilterConfig(), runner=runner, load_scores=load)
        assert sorted(tmp_path.iterdir()) == before
        return str(raised.value)

    assert "is empty. Expected a sentence on each line." in refused(text[0], f"{text[1]},{empty}")
    shorter = text[1].rpartition(",")[0]
    assert "Expected as many lines of source as of target. Received: 281 in" in refused(text[0], shorter)
    assert "NoSuchRunner" in refused(*text, runner="NoSuchRunner")
    assert "no weights here" in refused(*text, load=_failing)


def _failing():
    raise ValueError("no weights here")


@pytest.mark.medium
def test_a_job_that_is_killed_leaves_no_folder_and_the_same_command_makes_it(text, tmp_path):
    code = f"""
import os, pathlib, signal, sys
from t2t_keras.config import FilterConfig
from t2t_keras.beam import filtering
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
output = pathlib.Path({str(tmp_path / "beam")!r})
filtering.filter_text(*{text!r}, output, FilterConfig(), runner="DirectRunner", load_scores=die)
"""
    killed = programs.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "beam").exists() and list(tmp_path.glob(".unfinished-beam-*"))
    beam, local = both(text, tmp_path)
    assert beam == local and not list(tmp_path.glob(".unfinished*"))


def test_elements_between_workers_do_not_grow_with_the_number_of_repetitions(tmp_path, monkeypatch):
    """A group gets one hash of a text for each chunk."""
    found = tmp_path / "found"
    repeated = filtering._repeated

    def seen(group, parts):
        with found.open("a") as file:
            file.write(f"{[len(hashes) for _, _, hashes in parts]}")
        return repeated(group, parts)

    monkeypatch.setattr(filtering, "_repeated", seen)
    both(write(tmp_path, [("a cat", "eine Katze")] * 60), tmp_path, FilterConfig(near_duplicates="none"))
    assert found.read_text() == "[1, 1, 1, 1, 1, 1]"


@pytest.mark.slow
def test_the_program_writes_what_it_writes_without_beam(text, tmp_path):
    """Processes of their own, whose TensorFlow reads the environment that the program chooses."""
    given = [f"--source={text[0]}", f"--target={text[1]}", "--max_cross_entropy=0"]
    program = programs.command("filter", *given, f"--forward_run={RUN}", f"--backward_run={RUN}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*program, f"--output_dir={tmp_path}/local"], env=environment, check=True)
    beam = ["--beam_runner=DirectRunner", f"--beam_options={PROCESSES}", f"--output_dir={tmp_path}/beam"]
    result = subprocess.run([*program, *beam], env=environment, check=True, capture_output=True)
    assert result.stderr.decode().splitlines()[-1] == f"Wrote {tmp_path}/beam."
    assert contents(tmp_path / "beam") == contents(tmp_path / "local")
