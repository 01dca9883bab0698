"""Apache Beam writes the folder that the local path writes, byte for byte, however the work is cut and shared out."""

import gzip
import pathlib

import pytest
from test_prepare import TRAIN, VALID, VOCAB, contents, sentences, write_text

from t2t_keras.config import DataConfig
from t2t_keras.data import prepare, shards
from t2t_keras.runs import registry

pytest.importorskip("apache_beam", reason="the extra 'beam' is not installed: pip install -e '.[beam]'")

import job_server

from t2t_keras.beam import preparing, shared_files

MAX_LENGTH = 24  # Some pairs of TRAIN are longer.


@pytest.fixture
def data(tmp_path, monkeypatch) -> DataConfig:
    """Several shards from several chunks, of which neither number divides the other."""
    monkeypatch.setattr(shards, "PAIRS_PER_SHARD", 40)
    monkeypatch.setattr(preparing, "PAIRS_PER_CHUNK", 23)
    train = [*TRAIN[:50], ("empty", " "), *TRAIN[50:], ("a\u2028b\x85c\x0c d", "e\rf ▁ \ue0f0g")]
    return DataConfig(
        **write_text(tmp_path, "train", train), **write_text(tmp_path, "valid", VALID), max_length=MAX_LENGTH
    )


def run(data: DataConfig, folder: pathlib.Path, seed: int = 1, **beam_options) -> dict[str, bytes]:
    write = preparing.writer(**beam_options) if beam_options else prepare.write
    prepare.Preparation(data, VOCAB, seed, folder, registry.task("translation")).run(write)
    return contents(folder)


@pytest.mark.parametrize(
    "options", ["", "--direct_num_workers=2 --direct_running_mode=multi_threading"], ids=["one worker", "two"]
)
def test_beam_writes_every_file_as_the_local_path_does(data, tmp_path, monkeypatch, options, messages):
    monkeypatch.setattr(shards, "PAIRS_PER_RECORD", 16)
    local = run(data, tmp_path / "local")
    assert any("1 left out (empty side)" in line and "longer than `max_length`" in line for line in messages)
    assert len(shards.read_info(tmp_path / "local" / "train")["shards"]) == 6
    assert len(shards.read_records(tmp_path / "local" / "train")) > 9
    assert run(data, tmp_path / "beam", runner="DirectRunner", options=options) == local


def test_a_job_server_gets_all_that_the_workers_need(data, tmp_path):
    with job_server.running() as given:
        assert run(data, tmp_path / "beam", **given) == run(data, tmp_path / "local")


@pytest.mark.medium
def test_workers_in_processes_of_their_own_write_the_same(data, tmp_path):
    """They get everything from the pipeline; nothing of this process reaches them."""
    options = "--direct_num_workers=2 --direct_running_mode=multi_processing"
    assert run(data, tmp_path / "beam", runner="DirectRunner", options=options) == run(data, tmp_path / "local")


def test_a_shard_that_no_pair_falls_to_is_written_too(data, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "PAIRS_PER_SHARD", 10**6)
    monkeypatch.setattr(shards, "BYTES_PER_SHARD", 60)  # About as much as a pair.
    local = run(data, tmp_path / "local")
    assert b"" in local.values()
    assert run(data, tmp_path / "beam", runner="DirectRunner") == local


@pytest.mark.medium
def test_other_corpora_than_plain_text_are_the_same_too(data, tmp_path):
    for path in (pathlib.Path(getattr(data, f"train_{side}")) for side in shards.SIDES):
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert run(data, tmp_path / "beam gzip", runner="DirectRunner") == run(data, tmp_path / "local gzip")
    made = DataConfig(dataset="builtin", builtin_pairs=150)
    assert run(made, tmp_path / "beam", runner="DirectRunner", seed=3) == run(made, tmp_path / "local", seed=3)


def test_the_exchange_is_emptied_before_and_after(data, tmp_path):
    """What a killed run left there is not read; another folder than the default does as well, and what else it holds
    stays.
    """
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    exchange = tmp_path / "other" / "t2t_keras_exchange"
    exchange.mkdir()
    (exchange / "000000000000.text").write_bytes(b"left\nover\n")
    (exchange / "000000000099.text").write_bytes(b"left\nover\n")
    found = run(data, tmp_path / "beam", runner="DirectRunner", exchange=str(exchange.parent))
    assert found == run(data, tmp_path / "local")
    assert contents(exchange.parent) == {"notes.txt": b"mine"}


@pytest.mark.parametrize(("runner", "options", "told"), [
    ("NoSuchRunner", "", "NoSuchRunner"),
    ("DataflowRunner", "", "apache_beam\\[gcp\\]|project"),
    ("DirectRunner", "'unclosed", "quotation"),
])  # fmt: skip
def test_what_beam_does_not_take_is_reported_before_any_text_is_read(runner, options, told):
    with pytest.raises(ValueError, match=told):
        preparing.writer(runner, options)


def test_a_folder_of_this_machine_has_one_name_in_all_processes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    given = {"a": tmp_path / "a", "~/a": tmp_path / "home/a", "gs://a/~": "gs://a/~", "/a/../b": "/b"}
    assert [shared_files.absolute(path) for path in given] == [str(path) for path in given.values()]


def test_a_corpus_of_which_every_pair_is_too_long_is_refused(data, tmp_path):
    names = write_text(tmp_path, "train", [(f"{source} " * 50, target) for source, target in sentences(30, seed=4)])
    long = DataConfig(**names, **write_text(tmp_path, "valid", VALID), max_length=MAX_LENGTH)
    with pytest.raises(ValueError, match=f"Every train pair is longer than `max_length={MAX_LENGTH}`: 0 pairs, 30"):
        run(long, tmp_path / "beam", runner="DirectRunner")
