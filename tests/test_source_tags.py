"""Tags at the beginning of source lines: each line gets the tag of its file, which is one sub-word of the source."""

import re

import pytest
import stand_in
from logged import logged

from t2t_keras.config import BOS, DataConfig
from t2t_keras.data import corpora, prepare, text_files
from t2t_keras.runs import registry
from t2t_keras.text import vocabulary

NAMES = {"train": ("a", "b"), "valid": ("c", "d")}
VOCAB_SIZE = 320
ADVICE = "Only byte-pair encoding that was learned with this `source_tag`, and does not normalize it, keeps it as one."


@pytest.fixture
def names(tmp_path) -> dict[str, str]:
    """Two files a side for training, of 100 and 200 lines, and two for validation, of 10 and 20."""
    pairs, found = stand_in.pairs(), {}
    for side, number in (("source", 0), ("target", 1)):
        for split, sizes in (("train", (100, 200)), ("valid", (10, 20))):
            written = []
            for name, size in zip(NAMES[split], sizes, strict=True):
                path = tmp_path / f"{name}.{side}"
                path.write_text("".join(f"{name} {pair[number]}\n" for pair in pairs[:size]))
                written.append(str(path))
            found[f"{split}_{side}"] = ",".join(written)
    return found


def read(split: str, **options) -> list[tuple[str, str]]:
    found = corpora.pairs(DataConfig(**options), split, 1, text_files.Report())
    return [tuple(line.decode() for line in pair) for pair in found]


def prepared(folder, **options):
    options = {"vocab_size": VOCAB_SIZE} | options
    sizes = {name: options.pop(name) for name in ("vocab_size", "source_vocab_size") if name in options}
    prepare.Preparation(DataConfig(**options), seed=1, folder=folder, task=registry.task("translation"), **sizes).run()
    return vocabulary.load_sides(*(path.read_bytes() for path in sorted(folder.glob("subwords*.model"))))


def test_each_file_has_its_tag_or_none_or_all_have_one(names):
    for split, sizes in (("train", (100, 200)), ("valid", (10, 20))):
        plain = read(split, **names)
        assert read(split, **names, source_tag="<2xx>") == [(f"<2xx> {source}", target) for source, target in plain]
        for tag, beginnings in (
            ("<2de>,<2fr>", ("<2de> ", "<2fr> ")), (",<2fr>", ("", "<2fr> ")), ("<2de>,", ("<2de> ", "")),
        ):  # fmt: skip
            expected = [
                (beginnings[number >= sizes[0]] + source, target) for number, (source, target) in enumerate(plain)
            ]
            assert read(split, **names, source_tag=tag) == expected


def test_a_tag_follows_its_name_through_weights_and_globs_and_one_file_may_have_two(names, tmp_path):
    sources, targets = (
        f"{tmp_path}/[ab].{side},{tmp_path}/c.{side}@2,{tmp_path}/c.{side}" for side in ("source", "target")
    )
    given = names | {"train_source": sources, "train_target": targets.replace("@2", ""), "source_tag": "<g>,<w>,<1>"}
    del given["valid_source"], given["valid_target"]
    expected = 100 * ["<g> a"] + 200 * ["<g> b"] + 20 * ["<w> c"] + 10 * ["<1> c"]
    assert [source[:5] for source, _ in read("train", **given)] == expected


def test_a_line_that_is_empty_without_its_tag_is_left_out(names, tmp_path):
    (tmp_path / "a.source").write_text("one\n \n" + 98 * "two\n")
    report = text_files.Report()
    pairs = list(corpora.pairs(DataConfig(**names, source_tag="<t>"), "train", 1, report))
    assert (report.empty, report.pairs, pairs[1][0]) == (1, 299, b"<t> two")


def test_the_lines_of_a_dataset_have_the_tag():
    plain, tagged = (read("valid", dataset="builtin", builtin_pairs=100, source_tag=tag) for tag in ("", "<t>"))
    assert tagged == [(f"<t> {source}", target) for source, target in plain]


@pytest.mark.parametrize("split", ["train", "valid"])
def test_the_number_of_tags_is_that_of_the_files_of_both_splits(names, split):
    names[f"{split}_source"] = names[f"{split}_source"].split(",")[0]
    expected = (
        f"^`source_tag` must be one tag, or one for each file of `{split}_source`. Received: source_tag='<a>,<b>', "
        f"{split}_source="
    )
    with pytest.raises(ValueError, match=expected):
        DataConfig(**names, source_tag="<a>,<b>")


def test_a_tag_is_one_sub_word_and_no_text_of_the_source_is(names, tmp_path):
    with logged() as messages:
        subwords = prepared(tmp_path / "data", **names, source_tag="<2de>,<2fr>")
    assert not [message for message in messages if "tag" in message]
    places = [subwords.pieces.index(f"▁{tag}") for tag in ("<2de>", "<2fr>")]
    assert min(places) > BOS
    for line, tag in (("<2de> one", places[0]), ("<2fr> one", places[1])):
        [ids], [rest] = subwords.sentences([line.encode()]), subwords.sentences([b"one"])
        assert ids.tolist() == [tag, *rest]
        assert subwords.detokenize(subwords.tokenize([line])).numpy() == [line.encode()]
    sources, targets = prepare.read_text(tmp_path / "data", "valid")
    assert (sources[0][:7], sources[-1][:7]) == ("<2de> c", "<2fr> d") and targets[0][:2] == "c "


def test_tags_are_sub_words_of_the_source_alone(names, tmp_path):
    subwords = prepared(tmp_path / "data", **names, source_tag="<t>,", source_vocab_size=321)
    assert "▁<t>" in subwords.source.pieces and "▁<t>" not in subwords.pieces


@pytest.mark.parametrize("options", [{"subwords": "wordpiece"}, {"subwords_file": "subwords.model"}])
def test_a_tag_that_is_divided_is_reported(names, tmp_path, options):
    if "subwords_file" in options:
        prepared(tmp_path / "parent", **names)
        options = {"subwords_file": str(tmp_path / "parent/subwords.model")}
    else:
        options["vocab_size"] = 400
    with logged() as messages:
        subwords = prepared(tmp_path / "data", **names, **options, source_tag="<2de>,<2de>")
    number = len(subwords.sentences([b"<2de>"])[0]) - 1
    [told] = [message for message in messages if "tag" in message]
    assert told == f"The tag <2de> is divided into {number} sub-words. {ADVICE}"
    assert number > 1


def test_a_folder_with_other_tags_is_refused(names, tmp_path):
    prepared(tmp_path / "data", **names, source_tag="<a>,<b>")
    with pytest.raises(ValueError, match=re.escape("`source_tag` was <a>,<b>, and is now <b>,<a>")):
        prepared(tmp_path / "data", **names, source_tag="<b>,<a>")
