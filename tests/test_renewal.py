"""A task may change its records anew each epoch, as a function of the seed, the epoch and the record's place."""

import collections
import dataclasses
import itertools
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import toy
from test_architecture import arrays, resumed
from toy_task import LOWER, Tagger, TaggerConfig, Tagging

from t2t_keras import Column, Renewal, register_architecture, register_task
from t2t_keras.config import EOS
from t2t_keras.data import batching, data_service, shards
from t2t_keras.reporting import curves
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.training import devices, run

PAIRS, WINDOW, BUDGET = 90, 40, 100
HIGH = 10_000


def draw(records: dict, seed) -> dict:
    """Repeats the last id of each row up to three times, and draws two numbers for it."""
    ids = records["source"]
    more, number = (
        tf.random.stateless_uniform([ids.nrows()], [seed[0], seed[1] + n], 1, HIGH, tf.int32) for n in range(2)
    )
    times = tf.cast(more % 4, tf.int64)
    longer = tf.concat([ids, tf.RaggedTensor.from_row_lengths(tf.repeat(ids[:, -1:].values, times), times)], axis=1)
    return {
        "source": longer,
        "drawn": tf.RaggedTensor.from_uniform_row_length(tf.reshape(tf.stack([number, more], 1), [-1]), 2),
    }


RENEWAL = Renewal(("source", "drawn"), draw)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """Windows of two shards of about 15 rows. Row n has 1 to 9 times n + 4."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "PAIRS_PER_SHARD", 15)
        path = tmp_path_factory.mktemp("shards")
        rows = [(np.array([row + 4] * (1 + row % 9)), np.array([1])) for row in range(PAIRS)]
        shards.write(path, rows, count=PAIRS, vocab_size=200, seed=1, columns={"source": True, "left": False})
    return path


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(batching, "WINDOW_PAIRS", WINDOW)
    monkeypatch.setattr(batching, "RENEWED_PAIRS", 7)


def listed(folder, seed: int = 1, epochs: int = 1, **given) -> list[dict]:
    reading = {"batch_tokens": BUDGET, "seed": seed, "epochs": epochs, "renewal": RENEWAL} | given
    return list(batching.batches(folder, **reading).as_numpy_iterator())


def rows(batches: list[dict]) -> dict[int, tuple]:
    """What was drawn for each row: its length, and the numbers."""
    found = {}
    for batch in batches:
        assert batch.keys() == {"source", "drawn", "position", "damaged"} and batch["source"].size <= BUDGET
        for ids, drawn in zip(batch["source"], batch["drawn"].tolist(), strict=True):
            [name] = set(ids[ids > 0].tolist())
            assert name - 4 not in found, "a row comes once"
            found[name - 4] = (int((ids > 0).sum()), *drawn)
    return found


def test_rows_are_changed_before_they_are_cut_into_batches_and_their_columns_stay_together(folder, small):
    found = rows(listed(folder))
    assert sorted(found) == list(range(PAIRS))
    for row, (length, _, more) in found.items():
        assert length == 1 + row % 9 + more % 4
    assert len({number for _, number, _ in found.values()}) > PAIRS * 0.95, "one draw for each row"


@pytest.mark.medium
def test_as_many_rows_are_changed_at_once_as_there_is_room_for(folder, small, monkeypatch):
    """Of the longest row, of 9 ids, 7 have room in 71; at least one is changed."""
    for number, room in ((7, 71), (1, 5)):
        monkeypatch.setattr(batching, "RENEWED_TOKENS", 2**22)
        monkeypatch.setattr(batching, "RENEWED_PAIRS", number)
        expected = rows(listed(folder))
        monkeypatch.setattr(batching, "RENEWED_TOKENS", room)
        monkeypatch.setattr(batching, "RENEWED_PAIRS", 2**13)
        assert rows(listed(folder)) == expected, number


@pytest.mark.medium
def test_changes_are_a_function_of_the_seed_and_the_epoch(folder, small):
    both = listed(folder, epochs=2)
    first = rows(both[: len(listed(folder))])
    assert first == rows(listed(folder))
    second, other = rows(both[len(listed(folder)) :]), rows(listed(folder, seed=2))
    for one, two in itertools.combinations((first, second, other), 2):
        assert sum(one[row] == two[row] for row in one) < 3


@pytest.mark.medium
def test_from_any_position_exactly_the_rest_comes(folder, small):
    whole = listed(folder, epochs=2)
    for done in (1, len(whole) // 3, len(whole) // 2 + 1):
        rest = listed(folder, epochs=2, start=batching.Position(*whole[done - 1]["position"].tolist()))
        toy.assert_same_batches(rest, whole[done:])


def test_without_a_renewal_batches_have_the_columns_on_disk(folder, small):
    assert listed(folder, renewal=None)[0].keys() == {"source", "left", "position", "damaged"}


def test_a_window_without_rows_is_none(folder, small, tmp_path):
    """All records of some shards are damaged."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    lost = shards.read_info(tmp_path)["shards"][:4]
    for name in lost:
        content = bytearray((tmp_path / name).read_bytes())
        content[20] ^= 64
        (tmp_path / name).write_bytes(content)
    found = rows(listed(tmp_path, damaged_records="skip"))
    assert 0 < len(found) < PAIRS
    assert all(length == 1 + row % 9 + more % 4 for row, (length, _, more) in found.items())


def test_the_pipeline_holds_no_python(folder):
    dataset = batching.batches(folder, batch_tokens=BUDGET, seed=1, epochs=1, renewal=RENEWAL)
    graph = tf.compat.v1.GraphDef.FromString(tf.raw_ops.DatasetToGraphV2(input_dataset=dataset._variant_tensor).numpy())
    ops = {
        node.op for nodes in (graph.node, *(function.node_def for function in graph.library.function)) for node in nodes
    }
    assert not {op for op in ops if "PyFunc" in op or "Generator" in op or "Stateful" in op}


def test_a_data_service_changes_them_likewise(folder, small, monkeypatch):
    """Its workers run the pipeline itself; see test_data_service.py for the rest."""
    asked = []
    monkeypatch.setattr(data_service, "check", lambda service: None)
    monkeypatch.setattr(
        batching, "batches", lambda folder, **reading: asked.append(reading) or tf.data.Dataset.range(2)
    )
    data_service.batches(
        folder, service="grpc://a:1", job="j", batch_tokens=BUDGET, seed=5, damaged_records="skip", renewal=RENEWAL
    )
    expected = {
        "batch_tokens": BUDGET, "seed": 5, "damaged_records": "skip", "renewal": RENEWAL, "start": batching.START,
        "epochs": 1,
    }  # fmt: skip
    assert asked == [expected]


# A run.


class Blanks(Tagging):
    """Tags words of which some are blanked anew each epoch; the validation set has the same blanks each time."""

    name = "blanks"
    stored = (Column("words"), Column("tags", counted=False, is_text=False))

    def renewal(self, tokenizer, options, training):
        assert options.architecture == "blank_tagger" and tokenizer.vocab_size == options.model.vocab_size

        def change(records, seed):
            words = records["words"]
            hidden = tf.random.stateless_uniform(tf.shape(words.values), seed) < (0.3 if training else 1.0)
            return {
                "words": words.with_values(tf.where(hidden & (words.values != EOS), 1, words.values)),
                "case": records["tags"],
            }

        return Renewal(("words", "case"), change)

    def loss(self, model, columns, **given):
        sums = super().loss(model, columns, **given)
        sums["correct"] = tf.math.count_nonzero(columns["words"] == 1, dtype=tf.float32)  # Blanks, for the tests.
        return sums


register_task(Blanks.name, Blanks)
register_architecture("blank_tagger", options=TaggerConfig, model=Tagger, task=Blanks.name)


def trained(model_dir: pathlib.Path, number: int, **given):
    given = {
        "architecture": "blank_tagger", "train_source": "train.txt", "valid_source": "valid.txt", "vocab_size": 269,
        "warmup_steps": 60, "batch_tokens": 300, "micro_batch_tokens": 100, "buckets_per_update": 2, "valid_steps": 4,
        "checkpoint_steps": 4, "log_steps": 1, "max_length": 60, "train_steps": 8, "dropout": 0.0, **given,
    }  # fmt: skip
    data = str(model_dir.parent / "data")
    return run.train(Start.open(model_dir, given, data), strategy=devices.make_strategy(number))


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> pathlib.Path:
    """A run on two devices, one killed after 4 of 8 updates and resumed, and one on one device; 2 epochs or more."""
    folder = tmp_path_factory.mktemp("blanks")
    lines = [" ".join(f"w{row * n % 7}" for n in range(1, 2 + row % 6)) for row in range(90)]
    for split in ("train", "valid"):
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        trained(folder / "whole", 2)
        resumed(folder / "whole", folder / "resumed", 4)
        trained(folder / "alone", 1)
    return folder


@pytest.mark.medium
def test_a_resumed_run_has_the_same_weights(runs):
    whole, again = arrays(runs / "whole"), arrays(runs / "resumed")
    for name in whole:
        np.testing.assert_array_equal(again[name], whole[name], err_msg=name)


@pytest.mark.medium
def test_devices_share_the_same_records_and_each_epoch_has_others(runs):
    blanks = {name: curves.read(runs / name)["train/accuracy"] for name in ("whole", "alone")}
    assert blanks["whole"] == pytest.approx(blanks["alone"])
    epochs = curves.read(runs / "whole")["train/epoch"]
    assert max(epochs.values()) >= 2
    assert len(set(blanks["whole"].values())) > 4
    assert all(0.1 < share < 0.4 for share in blanks["whole"].values())


@pytest.mark.medium
def test_the_validation_set_is_changed_as_such_and_the_same_each_time(runs):
    """All words are blank there, but not the end."""
    figures = curves.read(runs / "whole")["valid/accuracy"]
    assert len(figures) == 2 and len(set(figures.values())) == 1
    info = shards.read_info(runs / "data/valid")
    assert figures[4] == pytest.approx(1 - info["pairs"] / info["words_tokens"])


@pytest.mark.medium
def test_a_record_on_disk_has_the_columns_that_are_stored(runs):
    info = shards.read_info(runs / "data/train")
    assert info["columns"] == {"words": True, "tags": False}
    read = shards.read(runs / "data/train", [0])
    assert collections.Counter(read["tags_ids"].numpy().tolist()) == {LOWER: info["tags_tokens"]}


@pytest.mark.medium
def test_the_options_reach_a_dry_run(runs, monkeypatch, caplog):
    """Its dummy micro-batches have the columns of batches."""
    monkeypatch.chdir(runs)
    options = SavedRun.open(runs / "whole").options
    options = dataclasses.replace(options, train=dataclasses.replace(options.train, micro_batch_tokens=80))
    assert run.train(Start.of(runs / "whole", options), strategy=devices.make_strategy(1), dry_run=True) is None
