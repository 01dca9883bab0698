"""Token ids on disk: what is written is what is read, whatever the vocabulary, and damage is noticed."""

import json

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import shards

SMALL, LARGE = 60_000, 70_000  # Sub-words: ids of two bytes, and of four.


def make_pairs(count: int, vocab_size: int, seed: int = 1) -> list[tuple[np.ndarray, np.ndarray]]:
    """Sentences of 1 to 12 ids; the largest id is among them."""
    draw = np.random.default_rng(seed)
    pairs = [tuple(draw.integers(3, vocab_size, draw.integers(1, 13)).astype(np.int32) for _ in shards.SIDES) for _ in range(count)]
    pairs[0][0][0] = pairs[-1][1][0] = vocab_size - 1
    return pairs


def read_pairs(folder, info: dict) -> list[tuple]:
    """Pairs of a folder as tuples of ids, shard by shard."""
    read = []
    for name in info["shards"]:
        columns = {key: value.numpy() for key, value in shards.read([str(folder / name)], info["vocab_size"]).items()}
        sides = []
        for side in shards.SIDES:
            ends = np.cumsum(columns[f"{side}_lengths"])
            assert ends[-1] == len(columns[f"{side}_ids"])
            sides.append([tuple(ids.tolist()) for ids in np.split(columns[f"{side}_ids"], ends[:-1])])
        read += zip(*sides, strict=True)
    return read


def as_tuples(pairs) -> list[tuple]:
    return [tuple(tuple(ids.tolist()) for ids in pair) for pair in pairs]


@pytest.fixture
def small_shards(monkeypatch):
    """So that a few hundred pairs fill several shards of several records."""
    monkeypatch.setattr(shards, "PAIRS_PER_SHARD", 100)
    monkeypatch.setattr(shards, "PAIRS_PER_RECORD", 16)


@pytest.mark.parametrize("vocab_size", [SMALL, 2**16, 2**16 + 1, LARGE])
def test_every_pair_is_read_back_once_with_its_ids(tmp_path, small_shards, vocab_size):
    pairs = make_pairs(350, vocab_size)
    info = shards.write(tmp_path, pairs, count=350, vocab_size=vocab_size, seed=1)
    assert len(info["shards"]) == 4
    assert sorted(read_pairs(tmp_path, info)) == sorted(as_tuples(pairs))


def test_one_shard_keeps_the_order(tmp_path):
    pairs = make_pairs(2000, SMALL)
    info = shards.write(tmp_path, pairs, count=2000, vocab_size=SMALL, seed=1)
    assert read_pairs(tmp_path, info) == as_tuples(pairs)


def test_all_shards_can_be_read_at_once(tmp_path, small_shards):
    info = shards.write(tmp_path, make_pairs(350, SMALL), count=350, vocab_size=SMALL, seed=1)
    whole = shards.read([str(tmp_path / name) for name in info["shards"]], SMALL)
    parts = [shards.read([str(tmp_path / name)], SMALL) for name in info["shards"]]
    for column in whole:
        np.testing.assert_array_equal(whole[column], tf.concat([part[column] for part in parts], 0))


def test_ids_take_two_bytes_up_to_65536_sub_words_and_four_above():
    assert [shards.id_type(size).itemsize for size in (100, 2**16, 2**16 + 1, 10**6)] == [2, 2, 4, 4]
    for size in (2**16, 2**16 + 1, 10**6):
        assert np.array([size - 1]).astype(shards.id_type(size))[0] == size - 1


def test_a_sorted_corpus_is_spread_evenly_over_the_shards(tmp_path, small_shards):
    """Each shard gets about as many pairs as any other, and they are about as long."""
    pairs = [(np.full(length, 5), np.full(length, 6)) for length in range(1, 1001)]
    info = shards.write(tmp_path, pairs, count=1000, vocab_size=SMALL, seed=1)
    assert len(info["shards"]) == 10
    for name in info["shards"]:
        lengths = shards.read([str(tmp_path / name)], SMALL)["source_lengths"].numpy()
        # Five standard deviations of a fair draw: √(1000 · 0.1 · 0.9) pairs, and 289 / √n of a mean of uniform lengths.
        assert abs(len(lengths) - 100) < 5 * 9.5
        assert abs(lengths.mean() - 500.5) < 5 * 289 / np.sqrt(len(lengths))


def test_the_info_counts_what_was_written(tmp_path, small_shards):
    pairs = make_pairs(350, SMALL)
    info = shards.write(tmp_path, iter(pairs), count=300, vocab_size=SMALL, seed=1)
    expected = {"pairs": 350, "vocab_size": SMALL}
    for index, side in enumerate(shards.SIDES):
        lengths = [len(pair[index]) for pair in pairs]
        expected |= {f"{side}_tokens": sum(lengths), f"{side}_longest": max(lengths)}
    assert expected.items() <= info.items()
    assert sorted(info["shards"]) == sorted(path.name for path in tmp_path.glob("*.tfrecord"))
    assert info == shards.read_info(tmp_path) == json.loads((tmp_path / "info.json").read_text())


def test_no_pairs_are_written_too(tmp_path):
    info = shards.write(tmp_path, [], count=0, vocab_size=SMALL, seed=1)
    assert (info["pairs"], info["source_longest"]) == (0, 0)


def test_there_are_never_more_files_than_can_be_open(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "MAX_SHARDS", 3)
    pairs = make_pairs(50, SMALL)
    info = shards.write(tmp_path, pairs, count=10**9, vocab_size=SMALL, seed=1)
    assert len(info["shards"]) == 3
    assert sorted(read_pairs(tmp_path, info)) == sorted(as_tuples(pairs))


def test_a_folder_whose_writing_was_stopped_has_no_info(tmp_path):
    def stopped():
        yield from make_pairs(20, SMALL)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shards.write(tmp_path, stopped(), count=100, vocab_size=SMALL, seed=1)
    assert not (tmp_path / shards.INFO).exists()


def test_a_changed_byte_is_noticed_wherever_it_is(tmp_path):
    info = shards.write(tmp_path, make_pairs(30, SMALL), count=30, vocab_size=SMALL, seed=1)
    path = tmp_path / info["shards"][0]
    whole = path.read_bytes()
    for position in np.linspace(0, len(whole) - 1, 60, dtype=int):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(tf.errors.DataLossError):
            shards.read([str(path)], SMALL)


def test_a_file_that_ends_inside_a_record_is_noticed(tmp_path):
    info = shards.write(tmp_path, make_pairs(30, SMALL), count=30, vocab_size=SMALL, seed=1)
    path = tmp_path / info["shards"][0]
    whole = path.read_bytes()
    for size in (12, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(tf.errors.DataLossError):
            shards.read([str(path)], SMALL)


def test_the_seed_decides_every_byte(tmp_path, small_shards):
    def written(folder: str, seed: int) -> dict[str, bytes]:
        shards.write(tmp_path / folder, make_pairs(350, SMALL), count=350, vocab_size=SMALL, seed=seed)
        return {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()}

    first, again, other = written("first", 1), written("again", 1), written("other", 2)
    assert first == again
    assert first.keys() == other.keys()
    assert not [name for name in first if name != shards.INFO and first[name] == other[name]]


def test_a_sentence_longer_than_a_length_can_tell_is_not_written_as_a_shorter_one(tmp_path):
    """Lengths are uint16. A sentence of 65,536 + 5 sub-words must not become one of 5."""
    sentence = np.full(2**16 + 5, 7)
    with pytest.raises((ValueError, OverflowError)):
        shards.write(tmp_path, [(sentence, sentence)], count=1, vocab_size=SMALL, seed=1)
