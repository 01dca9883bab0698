"""Token ids on disk: what is written is what is read, whatever the vocabulary, and damage is noticed."""

import itertools
import json
import logging

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data import shards

SMALL, LARGE = 60_000, 70_000  # Sub-words: ids of two bytes, and of four.


def make_pairs(count: int, vocab_size: int, seed: int = 1) -> list[tuple[np.ndarray, np.ndarray]]:
    """Sentences of 1 to 12 ids; the largest id is among them."""
    draw = np.random.default_rng(seed)
    pairs = [
        tuple(draw.integers(3, vocab_size, draw.integers(1, 13)).astype(np.int32) for _ in shards.SIDES)
        for _ in range(count)
    ]
    pairs[0][0][0] = pairs[-1][1][0] = vocab_size - 1
    return pairs


def read_pairs(folder, info: dict) -> list[tuple]:
    """Pairs of a folder as tuples of ids, shard by shard."""
    read = []
    for index in range(len(info["shards"])):
        columns = {key: value.numpy() for key, value in shards.read(folder, [index]).items()}
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


def test_records_and_shards_of_documents_hold_fewer_pairs_and_those_of_sentences_as_many_as_before(
    tmp_path, monkeypatch
):
    """Story: of 8,192 sub-words a line, a record in writing took 64 MB in each of 512 shards, and a window 17 GB."""

    def written(name: str, pairs: list, size: int) -> dict[str, bytes]:
        shards.write(tmp_path / name, pairs, count=len(pairs), size=size, vocab_size=SMALL, seed=1)
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    sentences, document = make_pairs(2100, SMALL), np.full(8192, 7, np.int32)
    now = written("sentences", sentences, 2100 * 200)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "TOKENS_PER_RECORD", 10**12)
        patch.setattr(shards, "BYTES_PER_SHARD", 10**12)
        assert written("unbounded", sentences, 2100 * 200) == now
    monkeypatch.setattr(shards, "BYTES_PER_SHARD", 2**20)
    documents = [(document, document)] * 70
    assert len([name for name in written("documents", documents, 5 * 2**20) if name.endswith(".tfrecord")]) == 5
    written("one", documents, 0)
    assert column(tmp_path / "one", "pairs") == [8] * 8 + [6]  # 2^17 sub-words, and the rest.
    assert read_pairs(tmp_path / "one", shards.read_info(tmp_path / "one")) == as_tuples(documents)


def test_the_number_of_shards_of_ordinary_text_is_that_of_its_pairs():
    expected = [1, 1, 1, 2, 69, 512]
    assert [len(shards.names(count, count * 250)) for count in (0, 1, 2**16, 2**16 + 1, 4_500_000, 10**9)] == expected
    assert len(shards.names(10_000, 10_000 * 80_000)) == 12  # Documents: 800 MB of text.


@pytest.mark.slow
def test_a_record_behind_two_gibibytes_of_a_shard_is_read(tmp_path):
    """Story: offsets were int32. The disk holds nothing of the first record, which is left out as damaged."""
    pairs = make_pairs(30, SMALL)
    [name] = shards.write(tmp_path, pairs, count=30, vocab_size=SMALL, seed=1)["shards"]
    record, path = (tmp_path / name).read_bytes(), tmp_path / name
    with path.open("wb") as file:
        for _ in range(2):
            file.seek(2**31 - 1000, 1)
        file.write(record)
    header, line = (tmp_path / shards.RECORDS).read_text().splitlines()
    _, _, length, number, fingerprint = line.split("\t")
    first = 2**31 - 1000 - 16
    rows = [
        (0, 12, first, 1, 0),
        (0, 12 + first + 16, first, 1, 0),
        (0, 2 * (first + 16) + 12, length, number, fingerprint),
    ]
    (tmp_path / shards.RECORDS).write_text(
        "".join("\t".join(map(str, row)) + "\n" for row in (header.split("\t"), *rows))
    )
    columns = shards.read(tmp_path, [0], "skip")
    assert columns["damaged"] == 2
    np.testing.assert_array_equal(columns["source_ids"], np.concatenate([pair[0] for pair in pairs]))


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


def test_a_dataset_of_shards_needs_no_conversion_of_python_code(tmp_path, small_shards):
    """Story: TensorFlow warned that it could not convert the function, in the course's last notebook."""
    info = shards.write(tmp_path, make_pairs(350, SMALL), count=350, vocab_size=SMALL, seed=1)
    warnings = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())
    tf.get_logger().addHandler(handler)
    try:
        dataset = tf.data.Dataset.range(len(info["shards"])).map(lambda shard: shards.read(tmp_path, [shard]))
        assert sum(part["source_lengths"].shape[0] for part in dataset.as_numpy_iterator()) == 350
    finally:
        tf.get_logger().removeHandler(handler)
    assert warnings == []


def test_all_shards_can_be_read_at_once(tmp_path, small_shards):
    shards.write(tmp_path, make_pairs(350, SMALL), count=350, vocab_size=SMALL, seed=1)
    whole = shards.read(tmp_path, [2, 0, 3, 1])
    parts = [shards.read(tmp_path, [index]) for index in (2, 0, 3, 1)]
    for column in whole.keys() - {"damaged"}:
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
    for index in range(10):
        lengths = shards.read(tmp_path, [index])["source_lengths"].numpy()
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
    assert (tmp_path / shards.INFO).read_text() == json.dumps(info, indent=2) + "\n"
    assert sorted(read_pairs(tmp_path, info)) == sorted(as_tuples(pairs))


def test_a_folder_whose_writing_was_stopped_has_no_info(tmp_path):
    def stopped():
        yield from make_pairs(20, SMALL)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shards.write(tmp_path, stopped(), count=100, vocab_size=SMALL, seed=1)
    assert not (tmp_path / shards.INFO).exists()


# Damage.


def column(folder, name: str) -> list[int]:
    return shards.read_records(folder)[:, shards.COLUMNS.index(name)].tolist()


def flip(path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_the_files_are_tfrecord_files_with_the_records_where_the_index_says(tmp_path, small_shards):
    """Oracle: TensorFlow's own reader, which checks length and checksum of every record."""
    info = shards.write(tmp_path, make_pairs(350, SMALL), count=350, vocab_size=SMALL, seed=1)
    records = iter(zip(*(column(tmp_path, name) for name in shards.COLUMNS), strict=True))
    for shard, name in enumerate(info["shards"]):
        whole = (tmp_path / name).read_bytes()
        for content in tf.data.TFRecordDataset(str(tmp_path / name)).as_numpy_iterator():
            index, offset, length, pairs, fingerprint = next(records)
            lengths = tf.train.Example.FromString(content).features.feature["source_lengths"].bytes_list.value[0]
            assert (index, len(content), len(lengths) // 2) == (shard, length, pairs)
            assert whole[offset : offset + length] == content
            assert fingerprint == int.from_bytes(tf.fingerprint([content]).numpy().tobytes(), "little") % 2**62
    assert not list(records)


@pytest.mark.parametrize("damaged_records", ["stop", "skip"])
def test_a_changed_byte_is_noticed_or_does_not_matter_wherever_it_is(tmp_path, capfd, damaged_records):
    """Of the content every byte is noticed; of the length and checksums around it none is needed."""
    pairs = make_pairs(30, SMALL)
    info = shards.write(tmp_path, pairs, count=30, vocab_size=SMALL, seed=1)
    path = tmp_path / info["shards"][0]
    whole = path.read_bytes()
    [(offset, length)] = zip(column(tmp_path, "offset"), column(tmp_path, "length"), strict=True)
    assert (offset, offset + length) == (12, len(whole) - 4)
    for position in {*range(12), *np.linspace(12, len(whole) - 5, 40, dtype=int), *range(len(whole) - 4, len(whole))}:
        path.write_bytes(whole)
        flip(path, position)
        if not offset <= position < offset + length:
            assert read_pairs(tmp_path, info) == as_tuples(pairs)
        elif damaged_records == "stop":
            with pytest.raises(tf.errors.InvalidArgumentError, match=f"byte 12 of {path}"):
                shards.read(tmp_path, [0])
        else:
            columns = shards.read(tmp_path, [0], "skip")
            assert columns.pop("damaged") == 1
            assert not [name for name, values in columns.items() if tf.size(values)]
            assert capfd.readouterr().err == f"Damaged record at byte 12 of {path}: 30 pairs are left out.\n"


def test_only_a_damaged_record_is_left_out_and_its_neighbours_stay(tmp_path, small_shards):
    """The second record of shard 0 and the last of shard 2, of 16 pairs and fewer."""
    info = shards.write(tmp_path, make_pairs(350, SMALL), count=350, vocab_size=SMALL, seed=1)
    whole = read_pairs(tmp_path, info)
    rows = shards.read_records(tmp_path).tolist()
    lost = [1, max(index for index, row in enumerate(rows) if row[0] == 2)]
    for index in lost:
        shard, offset, length, _, _ = rows[index]
        flip(tmp_path / info["shards"][shard], offset + length // 2)
        # The length too, from which TensorFlow would not find the next record.
        flip(tmp_path / info["shards"][shard], offset - 9)
    ends = np.cumsum([0, *column(tmp_path, "pairs")]).tolist()
    expected = [
        pair for index in range(len(rows)) if index not in lost for pair in whole[ends[index] : ends[index + 1]]
    ]
    columns = shards.read(tmp_path, [0, 1, 2, 3], "skip")
    assert columns["damaged"] == 2
    for side in range(2):
        wanted = [number for pair in expected for number in pair[side]]
        assert columns[f"{[*shards.SIDES][side]}_ids"].numpy().tolist() == wanted
        assert columns[f"{[*shards.SIDES][side]}_lengths"].numpy().tolist() == [len(pair[side]) for pair in expected]


def test_of_a_file_that_became_too_short_the_whole_records_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "PAIRS_PER_RECORD", 10)
    info = shards.write(tmp_path, make_pairs(30, SMALL), count=30, vocab_size=SMALL, seed=1)
    path, ends = tmp_path / info["shards"][0], np.add(column(tmp_path, "offset"), column(tmp_path, "length"))
    whole = path.read_bytes()
    for size in [0, 5, 12, 20, *ends, *(ends - 1), *(ends + 1), *(ends + 4), *(ends + 16)]:
        path.write_bytes(whole[:size])
        intact = sum(end <= size for end in ends)
        columns = shards.read(tmp_path, [0], "skip")
        assert (columns["damaged"], len(columns["source_lengths"])) == (3 - intact, 10 * intact)
        if intact < 3:
            with pytest.raises(tf.errors.InvalidArgumentError, match=f"{3 - intact} damaged"):
                shards.read(tmp_path, [0])


def test_sizes_are_checked_before_anything_is_read(tmp_path, caplog, small_shards):
    info = shards.write(tmp_path / "train", make_pairs(350, SMALL), count=350, vocab_size=SMALL, seed=1)
    folder, path = tmp_path / "train", tmp_path / "train" / info["shards"][2]
    shards.check_sizes(folder)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        ValueError, match=f"{path} to have {size:,} bytes. Received: {size - 1:,}. Remove {tmp_path} .*=skip"
    ) as raised:
        shards.check_sizes(folder)
    assert not caplog.messages
    shards.check_sizes(folder, "skip")
    assert caplog.messages == [str(raised.value).split(" Remove")[0]]


@pytest.mark.parametrize("damaged_records", ["stop", "skip"])
def test_a_shard_that_is_missing_always_stops(tmp_path, damaged_records):
    info = shards.write(tmp_path, make_pairs(30, SMALL), count=30, vocab_size=SMALL, seed=1)
    (tmp_path / info["shards"][0]).unlink()
    with pytest.raises(FileNotFoundError, match=info["shards"][0]):
        shards.check_sizes(tmp_path, damaged_records)


def test_a_damaged_index_is_reported_by_its_name(tmp_path):
    shards.write(tmp_path, make_pairs(30, SMALL), count=30, vocab_size=SMALL, seed=1)
    path = tmp_path / shards.RECORDS
    whole = path.read_bytes()
    for content in (b"", whole[: len(whole) // 2], whole[: whole.rindex(b"\t")], whole.replace(b"1", b"\xff")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{path} is missing or damaged.*prepare again"):
            shards.read_records(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match=f"{path} is missing"):
        shards.read_records(tmp_path)


@pytest.mark.parametrize(("name", "value"), [
    *(("shards", value) for value in ([], ["/etc/passwd"], ["../train/00000-of-00001.tfrecord"], [3], 3, None)),
    ("shards", "00000-of-00001.tfrecord"),
    *(
        ("columns", value)
        for value in ({}, ["source"], {"source": True, "../x": True}, {"source": True, "position": True}, None)
    ),
    *(
        (name, value) for name in ("pairs", "vocab_size", "source_longest")
        for value in (-1, 2**62, 2**70, 1.5, "9", True, None)
    ),
])  # fmt: skip
def test_an_info_that_was_not_written_by_this_program_is_reported_by_its_name(tmp_path, name, value):
    """Story: the names of shards were opened whatever they were, wherever they led."""
    info = shards.write(tmp_path, make_pairs(30, SMALL), count=30, vocab_size=SMALL, seed=1)
    (tmp_path / shards.INFO).write_text(json.dumps({**info, name: value}))
    with pytest.raises(ValueError, match=f"Expected '{name}' in {tmp_path / shards.INFO} to be .* Received: "):
        shards.read_info(tmp_path)


def test_an_info_of_an_older_version_has_the_columns_of_translation(tmp_path):
    info = shards.write(tmp_path, make_pairs(30, SMALL), count=30, vocab_size=SMALL, seed=1)
    (tmp_path / shards.INFO).write_text(json.dumps({name: value for name, value in info.items() if name != "columns"}))
    assert shards.read_info(tmp_path) == info and info["columns"] == {"source": True, "target": True}


@pytest.mark.parametrize("content", [b"[]", b"{", b"[" * 10**5, b"\xff"])
def test_an_info_that_is_no_object_is_reported_by_its_name(tmp_path, content):
    (tmp_path / shards.INFO).write_bytes(content)
    with pytest.raises(ValueError, match=str(tmp_path / shards.INFO)):
        shards.read_info(tmp_path)


def test_a_folder_without_an_info_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="info.json is missing.*prepare again"):
        shards.read_info(tmp_path)


@pytest.mark.parametrize("column", range(5))
@pytest.mark.parametrize("value", [2**70, -(2**70), -1, 2**62 + 1, "", "x", "9" * 5000])
def test_a_number_that_cannot_be_in_the_index_is_reported_with_its_line(tmp_path, small_shards, column, value):
    """Story: an offset of 2^70 was an OverflowError with a traceback, and one of -1 an error of TensorFlow's."""
    shards.write(tmp_path, make_pairs(350, SMALL), count=350, vocab_size=SMALL, seed=1)
    path = tmp_path / shards.RECORDS
    lines = [each.split("\t") for each in path.read_text().splitlines()]
    lines[7][column] = str(value)
    path.write_text("".join("\t".join(each) + "\n" for each in lines))
    with pytest.raises(ValueError, match=f"{path} is missing or damaged: .*prepare again"):
        shards.read_records(tmp_path)


def test_shards_are_numbered_from_0(tmp_path, small_shards):
    shards.write(tmp_path, make_pairs(350, SMALL), count=350, vocab_size=SMALL, seed=1)
    path = tmp_path / shards.RECORDS
    header, *lines = path.read_text().splitlines()
    numbers = [line.partition("\t") for line in lines]
    path.write_text("\n".join([header, *(f"{int(shard) - 1}\t{rest}" for shard, _, rest in numbers)]) + "\n")
    with pytest.raises(ValueError, match="is missing or damaged: line 2 is '-1"):
        shards.read_records(tmp_path)


@pytest.mark.parametrize(("column", "limit"), [("length", 2**31), ("pairs", 2**31), ("fingerprint", 2**62)])
def test_numbers_of_the_index_below_their_limit_are_read(tmp_path, column, limit):
    shards.write(tmp_path, make_pairs(30, SMALL), count=30, vocab_size=SMALL, seed=1)
    path, place, info = tmp_path / shards.RECORDS, shards.COLUMNS.index(column), shards.read_info(tmp_path)
    header, record = (line.split("\t") for line in path.read_text().splitlines())
    for value in (0, limit - 1, limit):
        if column == "pairs":
            (tmp_path / shards.INFO).write_text(json.dumps(info | {"pairs": value}))
        record[place] = str(value)
        path.write_text("\t".join(header) + "\n" + "\t".join(record) + "\n")
        if value == limit:
            with pytest.raises(ValueError, match=f"{path} is missing or damaged: line 2"):
                shards.read_records(tmp_path)
        else:
            assert shards.read_records(tmp_path)[0, place] == value


def test_records_of_other_pairs_than_those_of_the_description_are_reported(tmp_path):
    info = shards.write(tmp_path, make_pairs(350, SMALL), count=350, vocab_size=SMALL, seed=1)
    (tmp_path / shards.INFO).write_text(json.dumps(info | {"pairs": 349}))
    message = f"{shards.RECORDS} is missing or damaged: it has 350 pairs, and info.json has 349. Remove"
    with pytest.raises(ValueError, match=message):
        shards.read_records(tmp_path)


def test_records_that_overlap_or_lie_in_no_shard_are_reported(tmp_path, small_shards):
    shards.write(tmp_path, make_pairs(350, SMALL), count=350, vocab_size=SMALL, seed=1)
    path = tmp_path / shards.RECORDS
    header, *lines = path.read_text().splitlines(keepends=True)
    for wrong in (
        lines + lines[-1:], lines[1:], lines[::-1], [*lines, "4" + lines[0][1:]], [*lines[:3], "0\t1\n", *lines[3:]],
    ):  # fmt: skip
        path.write_text("".join([header, *wrong]))
        with pytest.raises(ValueError, match=f"{path} is missing or damaged"):
            shards.read_records(tmp_path)


def test_a_stop_at_a_damaged_record_reaches_a_person_as_one_sentence_whatever_the_folder_is_called(tmp_path):
    folder = tmp_path / "Köln's [data]" / "train"
    info = shards.write(folder, make_pairs(30, SMALL), count=30, vocab_size=SMALL, seed=1)
    path = folder / info["shards"][0]
    flip(path, 100)
    dataset = tf.data.Dataset.range(1).map(lambda shard: shards.read(folder, [shard])).prefetch(1)
    with pytest.raises(ValueError) as raised, shards.plain_errors():
        next(iter(dataset))
    assert str(raised.value) == (
        f"Expected intact records. Received: 1 damaged, the first at byte 12 of {path}. "
        f"Remove {folder.parent} and prepare again, or leave damaged records out with `damaged_records=skip`."
    )


def test_other_errors_pass_as_they_are():
    for error in (
        tf.errors.NotFoundError(None, None, "no [Expected] file"),
        tf.errors.InvalidArgumentError(None, None, "a [shape]"),
    ):
        with pytest.raises(type(error)) as raised, shards.plain_errors():
            raise error
        assert raised.value is error


def test_the_seed_decides_every_byte(tmp_path, small_shards):
    def written(folder: str, seed: int) -> dict[str, bytes]:
        shards.write(tmp_path / folder, make_pairs(350, SMALL), count=350, vocab_size=SMALL, seed=seed)
        return {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()}

    first, again, other = written("first", 1), written("again", 1), written("other", 2)
    assert first == again
    assert first.keys() == other.keys()
    assert not [name for name in first if name != shards.INFO and first[name] == other[name]]


def test_a_pair_s_shard_is_a_function_of_the_seed_and_its_index():
    """So that whoever writes a part of the corpus draws what one who writes all of it draws."""
    whole = list(itertools.islice(shards.draw(seed=3, number=7), 20_000))
    assert set(whole) == set(range(7))
    for first in (1, 2, 1000, 8191, 8192, 19_999):
        assert list(itertools.islice(shards.draw(3, 7, first), 20_000 - first)) == whole[first:]
    assert list(itertools.islice(shards.draw(4, 7), 20_000)) != whole


def test_a_pair_that_is_left_out_moves_no_other(tmp_path, small_shards):
    pairs = make_pairs(350, SMALL)
    whole, fewer = (tmp_path / name for name in ("whole", "fewer"))
    info = shards.write(whole, pairs, count=350, vocab_size=SMALL, seed=1)
    left_out = {0, 5, 6, 200, 349}
    shards.write(
        fewer,
        [None if index in left_out else pair for index, pair in enumerate(pairs)],
        count=350,
        vocab_size=SMALL,
        seed=1,
    )
    gone = [as_tuples(pairs)[index] for index in left_out]
    assert read_pairs(fewer, info) == [pair for pair in read_pairs(whole, info) if pair not in gone]
    assert shards.read_info(fewer)["pairs"] == 345


def test_pairs_keep_their_order_within_a_shard(tmp_path, small_shards):
    pairs = as_tuples(make_pairs(350, LARGE))
    info = shards.write(tmp_path, [tuple(map(np.array, pair)) for pair in pairs], count=350, vocab_size=LARGE, seed=1)
    ends = np.cumsum([0, *(len(shards.read(tmp_path, [index])["source_lengths"]) for index in range(4))])
    indices = [pairs.index(pair) for pair in read_pairs(tmp_path, info)]
    for begin, end in itertools.pairwise(ends):
        assert indices[begin:end] == sorted(indices[begin:end])


def test_a_sentence_longer_than_a_length_can_hold_is_not_written_as_a_shorter_one(tmp_path):
    """Lengths are uint16. A sentence of 65,536 + 5 sub-words must not become one of 5."""
    sentence = np.full(2**16 + 5, 7)
    with pytest.raises((ValueError, OverflowError)):
        shards.write(tmp_path, [(sentence, sentence)], count=1, vocab_size=SMALL, seed=1)
