"""Sentence pairs of the options: text files, validation pairs held out, TFDS."""

import codecs
import collections
import contextlib
import dataclasses
import errno
import gzip
import hashlib
import json
import random

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from test_text_files import DAMAGED, read, refusal

from t2t_keras.config import DataConfig
from t2t_keras.data import builtin_corpus, corpora, text_checks, text_files
from t2t_keras.system import files


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


def test_weights_of_files_whose_lines_do_not_match_are_refused_though_the_totals_do(file):
    """Story: 2 x 3 + 5 lines and 2 x 2 + 7 are 11 on both sides, and most pairs were no translations."""
    sources, targets = [file("a\n" * 3, "a"), file("b\n" * 5, "b")], [file("A\n" * 2, "A"), file("B\n" * 7, "B")]
    names = {"train_source": f"{sources[0]}@2,{sources[1]}", "train_target": ",".join(targets)}
    with pytest.raises(
        ValueError, match=f"with a weight as in its target file. Received: {sources[0]} with 3 and {targets[0]} with 2"
    ):
        corpora.check_files(DataConfig(**names, valid_source=sources[0], valid_target=sources[0]))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_last_pairs_of_the_training_text_validate_and_are_not_trained_on(file, number):
    """Usable pairs count: not the one with a blank side."""
    data = DataConfig(file("a\nb\n\nd\n") + "," + file("e\n"), file("A\nB\nC\nD\nE\n"), valid_pairs=number)
    whole = [(b"a", b"A"), (b"b", b"B"), (b"d", b"D"), (b"e", b"E")]
    corpora.check_files(data)
    reports = {split: text_files.Report() for split in ("train", "valid")}
    pairs = {split: list(corpora.pairs(data, split, 1, report)) for split, report in reports.items()}
    assert pairs == {"train": whole[:-number], "valid": whole[-number:]}
    assert reports["train"] == text_files.Report(pairs=4 - number, empty=1)
    assert reports["valid"] == text_files.Report(pairs=number)
    others = [corpora.identity(dataclasses.replace(data, valid_pairs=other), 1) for other in (0, number + 1)]
    assert corpora.identity(data, 1) not in others


@pytest.mark.parametrize(("weights", "number", "is_refused"), [
    ((1, 2), 1, True), ((2, 1), 1, False), ((2, 1), 2, False), ((2, 1), 3, True), ((1, 1), 2, False),
])  # fmt: skip
def test_pairs_that_validate_are_not_repeated_by_a_weight(file, weights, number, is_refused):
    """Story: the pairs held out of the last copy of a file were trained on in the others."""
    sources = ",".join(f"{file(text)}@{weight}" for text, weight in zip(("a\nb\n", "c\nd\n"), weights, strict=True))
    data = DataConfig(sources, f"{file('A' + chr(10) + 'B')},{file('C' + chr(10) + 'D')}", valid_pairs=number)
    train, valid = (set(corpora.pairs(data, split, 1, text_files.Report())) for split in ("train", "valid"))
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
    assert list(corpora.pairs(data, "train", 1, text_files.Report())) == [(b"a", b"A"), (b"b", b"B")]
    assert list(corpora.pairs(data, "valid", 1, text_files.Report())) == [(b"v", b"V")]
    assert corpora.identity(data, 1) == corpora.identity(DataConfig(*texts), 1)


def test_pairs_that_validate_must_leave_some_to_train_on_and_be_no_documents(file):
    data = DataConfig(file("a\nb\n"), file("A\nB\n"), valid_pairs=2)
    for split in ("train", "valid"):
        with pytest.raises(ValueError, match="more pairs of training text than `valid_pairs`. Received: 2 pairs"):
            list(corpora.pairs(data, split, 1, text_files.Report()))
    with pytest.raises(ValueError, match="`valid_pairs` cannot split documents. Give `valid_source`."):
        corpora.pairs(data, "train", 1, text_files.Report(), documents=True)
    with pytest.raises(ValueError, match="or `valid_pairs=500` to validate on the last 500 pairs"):
        corpora.check_files(dataclasses.replace(data, valid_pairs=0))


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
        monkeypatch.setattr(text_files, "_QUICKLY_COUNTED", limit)
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
    monkeypatch.setattr(text_files, "_BUFFER", 3)
    good = file("ünïcödé\n日本\n")
    bad, cut = file(pack("日本\nün".encode() + b"\xfc\n")), file(pack("ü\n日".encode()[:-1]))
    with monkeypatch.context() as patched:
        patched.setattr(text_files, "_lines", None)  # The slow way, for text that is wrong.
        corpora.check_files(DataConfig(good, good, good, good))
    for name, found in ((bad, "byte 0xfc at column 4"), (cut, "byte 0xe6 at column 1")):
        found = f"line 2 is not UTF-8: {found}. Convert the file .*, or leave such lines out with `skip_bad_lines`."
        for texts in ((name, good, good, good), (good, good, good, name)):
            with pytest.raises(ValueError, match=f"^{name}, {found}$"):
                corpora.check_files(DataConfig(*texts))
            corpora.check_files(DataConfig(*texts, skip_bad_lines=True))
        text_files.check_texts([(name, good)])


def test_counting_passes_sides_that_are_cut_at_other_lines(file):
    whole, parts, others = file("a\nb\nc"), ",".join([file("a"), file("b\nc\n")]), ",".join([file("a\nb\n"), file("c")])
    for sides in ((whole, parts), (parts, whole), (parts, others)):
        corpora.check_files(DataConfig(*sides, file("x"), file("y")))


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


# What the options ask for.


@pytest.mark.parametrize(
    ("split", "kind", "option"), [("train", "training", "train_source"), ("valid", "validation", "valid_source")]
)
def test_a_side_that_is_not_given_is_asked_for(split, kind, option):
    with pytest.raises(ValueError, match=f"no {kind} text.*`{option}`"):
        list(corpora.pairs(DataConfig(), split, 1, text_files.Report()))


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
    both = list(corpora.pairs(made, "train", 1, text_files.Report()))
    report = text_files.Report()
    assert list(corpora.pairs(made, "train", 1, report, sides=("source",))) == [(source,) for source, _ in both]
    assert report == text_files.Report(pairs=20)


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


def tfds_read(dataset: str, source: str, target: str, split: str = "train") -> list:
    data = DataConfig(dataset=dataset, source_language=source, target_language=target, train_split=split)
    return list(corpora.pairs(data, "train", 1, text_files.Report()))


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
    report = text_files.Report()
    data = DataConfig(dataset="wmt14_translate/de-en", source_language="de", target_language="en")
    assert len(list(corpora.pairs(data, "valid", 1, report))) == 3
    assert report == text_files.Report(pairs=3, empty=1)
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
