"""From text to a data folder: whole or not there, and never another corpus than was asked for."""

import contextlib
import dataclasses
import functools
import gzip
import hashlib
import io
import json
import multiprocessing
import os
import pathlib
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
import toy
from logged import logged
from test_lock import HOLDER

from t2t_keras.config import EOS, TEXTS, DataConfig
from t2t_keras.data import builtin_corpus, corpora, prepare, processes, shards, text_checks, text_files
from t2t_keras.runs import data_folder, registry
from t2t_keras.runs.run_start import Start
from t2t_keras.system import files
from t2t_keras.text import piece_file, vocabulary
from t2t_keras.text.subwords import Subwords

ROOT = pathlib.Path(__file__).parent.parent
ENGLISH = "the small big red house tree car is stands runs and under".split()
GERMAN = "das kleine große rote Haus Baum Auto ist steht läuft und unter".split()
VOCAB = 320


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    """Word by word translations of 2 to 9 words."""
    draw = random.Random(seed)
    chosen = [draw.choices(range(len(ENGLISH)), k=draw.randint(2, 9)) for _ in range(count)]
    return [tuple(" ".join(language[word] for word in words) for language in (ENGLISH, GERMAN)) for words in chosen]


def write_text(folder: pathlib.Path, split: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    names = {}
    for side, lines in zip(shards.SIDES, zip(*pairs, strict=True), strict=True):
        path = folder / f"{split}.{side}"
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
        names[f"{split}_{side}"] = str(path)
    return names


TRAIN, VALID = sentences(200, seed=1), sentences(20, seed=2)


@pytest.fixture
def data(tmp_path) -> DataConfig:
    return DataConfig(**write_text(tmp_path, "train", TRAIN), **write_text(tmp_path, "valid", VALID))


@pytest.fixture
def folder(tmp_path) -> pathlib.Path:
    return tmp_path / "deep" / "data"


def run(data: DataConfig, folder: pathlib.Path, vocab_size: int = VOCAB, seed: int = 1) -> list[str]:
    with logged() as said:
        prepare.Preparation(data, vocab_size, seed, folder, registry.task("translation")).run()
    return said


def test_without_a_size_the_vocabulary_is_that_of_the_number_of_pairs(data, folder, monkeypatch):
    monkeypatch.setattr(prepare, "vocabulary_size", lambda pairs: VOCAB + pairs - len(TRAIN))
    said = run(data, folder, 0)
    assert f"Learning {VOCAB:,} sub-words …" in said
    assert subwords_of(folder).vocab_size == VOCAB
    before = contents(folder)
    run(data, folder, 0)
    run(data, folder, VOCAB)
    assert contents(folder) == before, "the same folder, whether the size is given or not"
    with pytest.raises(ValueError, match=f"`vocab_size` was {VOCAB}, and is now {VOCAB + 1}"):
        run(data, folder, VOCAB + 1)


@pytest.mark.parametrize(("kind", "size", "bound"), [
    ("bpe", 10_000, "most"), ("bpe", 261, "least"), ("wordpiece", 10_000, "most"), ("wordpiece", 261, "least"),
    ("word", 10_000, "most"),
])  # fmt: skip
def test_without_a_size_the_vocabulary_is_one_that_the_text_gives(data, folder, monkeypatch, kind, size, bound):
    """Story: for text of few words, preparing ended with the advice to change a size that nobody had given."""
    monkeypatch.setattr(prepare, "vocabulary_size", lambda pairs: size)
    data = dataclasses.replace(data, subwords=kind)
    with pytest.raises(ValueError, match=f"`vocab_size={size}` is too .* for this text") as refused:
        run(data, folder, size)
    expected = int(re.search("gives ([0-9]+) at most|needs ([0-9]+) or more", str(refused.value)).expand(r"\1\2"))
    assert f"The text gives {expected:,} sub-words at {bound}." in run(data, folder, 0)
    assert subwords_of(folder).vocab_size == expected
    assert texts(folder, "train") == TRAIN


def test_without_a_size_the_vocabulary_is_that_of_the_file_of_sub_words(data, folder, tmp_path):
    run(data, folder)
    again = dataclasses.replace(data, subwords_file=str(folder / "subwords.model"))
    run(again, tmp_path / "again", 0)
    assert json.loads((tmp_path / "again" / "corpus.json").read_text())["options"]["vocab_size"] == VOCAB


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def subwords_of(folder: pathlib.Path) -> Subwords:
    files = [folder / prepare.SUBWORDS, data_folder.source_subwords_in(folder)]
    return vocabulary.load_sides(*(path.read_bytes() for path in files if path))


def texts(folder: pathlib.Path, split: str) -> list[tuple[str, str]]:
    """What the shards of a split say, as text."""
    subwords = subwords_of(folder)
    info = shards.read_info(folder / split)
    columns = shards.read(folder / split, list(range(len(info["shards"]))))
    sides = []
    for side in shards.SIDES:
        ids = tf.RaggedTensor.from_row_lengths(columns[f"{side}_ids"], columns[f"{side}_lengths"])
        assert (ids[:, -1:].values.numpy() == EOS).all()
        own = subwords.source if side == "source" else subwords
        sides.append([line.decode() for line in own.detokenize(ids).numpy()])
    return list(zip(*sides, strict=True))


# A whole folder.


def test_two_text_files_become_a_folder_that_says_the_same(data, folder):
    said = run(data, folder)
    assert texts(folder, "train") == TRAIN
    assert texts(folder, "valid") == VALID
    assert not any("share one embedding matrix" in line for line in said)
    for split, pairs in (("train", TRAIN), ("valid", VALID)):
        source, target = (
            subwords_of(folder).tokenize(tf.constant(side)).row_lengths().numpy().mean()
            for side in zip(*pairs, strict=True)
        )
        assert any(
            line.startswith(f"{split}: ") and f"; {source:.1f} + {target:.1f} sub-words a pair; " in line
            for line in said
        )
    described = json.loads((folder / prepare.CORPUS).read_text())
    assert described["report"]["train"] == dataclasses.asdict(text_files.Report(pairs=200))
    assert described["report"]["valid"] == dataclasses.asdict(text_files.Report(pairs=20))


def test_the_chunks_that_text_is_encoded_in_leave_no_trace(data, folder, tmp_path, monkeypatch):
    run(data, folder)
    monkeypatch.setattr(prepare, "PAIRS_AT_ONCE", 7)
    run(data, tmp_path / "in chunks")
    assert contents(tmp_path / "in chunks") == contents(folder)


def test_records_that_another_process_packs_leave_no_trace(data, folder, tmp_path, monkeypatch):
    """Some records are too long; whole chunks of them too."""
    data = dataclasses.replace(data, max_length=12)
    run(data, folder)
    assert 0 < shards.read_info(folder / "train")["pairs"] < 190
    monkeypatch.setattr(prepare, "PAIRS_AT_ONCE", 7)
    asked = []

    def ordered(make, arguments, items, number):
        asked.append(number)
        function = pickle.loads(pickle.dumps(make))(*pickle.loads(pickle.dumps(arguments)))  # noqa: S301
        return (pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(item))))) for item in items)  # noqa: S301

    monkeypatch.setattr(processes, "ordered", ordered)
    monkeypatch.setattr(tf.config, "threading", mock.Mock())
    monkeypatch.setattr(prepare, "hide_gpus", lambda: asked.append("no GPU"))
    write = functools.partial(prepare.write, number=3)
    prepare.Preparation(data, VOCAB, 1, tmp_path / "packed", registry.task("translation")).run(write)
    assert asked == [3, "no GPU"] and contents(tmp_path / "packed") == contents(folder)
    called = [mock.call.set_intra_op_parallelism_threads(1), mock.call.set_inter_op_parallelism_threads(1)]
    assert tf.config.threading.mock_calls == called, "processes do not take each other's cores"
    for some in (
        [None, None],
        [None, (np.array([5, 6]), np.array([7])), None, (np.array([8]), np.array([9, 3])), None],
    ):
        again = list(prepare._unpacked(prepare._packed(some)))
        expected = [record and [*map(list, record)] for record in some]
        assert [record and [ids.tolist() for ids in record] for record in again] == expected


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 4])
def test_every_number_of_processes_writes_the_same_bytes(data, folder, tmp_path, monkeypatch, number):
    run(data, folder)
    monkeypatch.setattr(prepare, "PAIRS_AT_ONCE", 7)
    write = functools.partial(prepare.write, number=number)
    prepare.Preparation(data, VOCAB, 1, tmp_path / "again", registry.task("translation")).run(write)
    assert contents(tmp_path / "again") == contents(folder)


@pytest.mark.slow
def test_a_folder_whose_worker_was_killed_is_made_again(data, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "PAIRS_AT_ONCE", 7)

    def write(*arguments, **options):
        def pairs():
            for count, pair in enumerate(arguments[1]):
                if count == 150:
                    for child in multiprocessing.active_children():
                        child.kill()
                yield pair

        return prepare.write(arguments[0], pairs(), *arguments[2:], number=2, **options)

    with pytest.raises(OSError, match="^Expected 2 processes that share the work.*Give fewer `processes`"):
        prepare.Preparation(data, VOCAB, 1, folder, registry.task("translation")).run(write)
    assert not (folder / prepare.CORPUS).exists()
    run(data, folder)
    run(data, tmp_path / "whole")
    assert contents(folder) == contents(tmp_path / "whole")


def descendants(process: int) -> set[int]:
    """The processes that a process has started, and those that they have."""
    found, parents = {process}, {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_program_that_is_stopped_half_way_leaves_no_process_and_a_folder_that_is_made_again(
    data, folder, tmp_path, sent, code
):
    train = write_text(tmp_path, "train", sentences(50, seed=1) * 800)
    flags = [f"--{name}={value}" for name, value in (vars(data) | train).items() if name in TEXTS and value]
    command = [sys.executable, "tools/prepare.py", *flags, f"--vocab_size={VOCAB}", "--seed=1", "--processes=2"]
    with subprocess.Popen(
        [*command, f"--data_dir={folder}"], cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        said = next(line for line in process.stderr if "Writing token ids" in line)
        while not any(path.stat().st_size for path in folder.glob("train/*")):
            assert process.poll() is None, said
            time.sleep(0.01)
        started = descendants(process.pid)
        assert len(started) >= 2
        (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)
        said = process.stderr.read()
    assert process.returncode == code and "Traceback" not in said, said
    deadline = time.monotonic() + 20
    while any(pathlib.Path(f"/proc/{child}").exists() for child in started):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not (folder / prepare.CORPUS).exists() and not (folder / "train" / shards.INFO).exists()
    data = dataclasses.replace(data, **train)
    run(data, folder)
    subprocess.run([*command, f"--data_dir={tmp_path / 'whole'}"], cwd=ROOT, check=True)
    assert contents(folder) == contents(tmp_path / "whole")


def test_progress_is_reported_from_time_to_time(messages, monkeypatch):
    clock = iter(range(0, 1000, 20))
    monkeypatch.setattr(prepare.time, "monotonic", lambda: next(clock))
    assert list(prepare._with_progress(range(4097), "pair", 5000)) == list(range(4097))
    assert messages == ["… 1,024 of 5,000 pairs, 26 pairs/s.", "… 3,072 of 5,000 pairs, 38 pairs/s."]


def test_the_held_out_text_is_kept_line_for_line(data, folder, tmp_path):
    """The lines of which a translation is scored: too long ones too, and ends of lines that are none."""
    strange = [
        *VALID, ("a\u2028b\x85c\x0c d", "e\rf ▁ \ue0f0g"), ("long " * 300 + "end", "lang"), ("  two  spaces ", "x"),
    ]  # fmt: skip
    names = write_text(tmp_path, "valid", strange)
    run(dataclasses.replace(data, **names), folder)
    for side in shards.SIDES:
        assert (folder / f"valid.{side}.txt").read_bytes() == pathlib.Path(names[f"valid_{side}"]).read_bytes()
    assert list(zip(*prepare.read_text(folder, "valid"), strict=True)) == strange
    assert shards.read_info(folder / "valid")["pairs"] == len(strange) - 1


@pytest.mark.parametrize(("content", "told"), [
    (None, r"valid.target.txt cannot be read: No such file or directory\. Remove \S+ and prepare again\.$"),
    (b"\xff\n\n", r"valid.target.txt is not UTF-8\. Remove \S+ and prepare again\.$"),
    (b"one\n", r"valid.target.txt to have 2 lines, as that of the source\. Received: 1\. Remove \S+ and prepare again"),
])  # fmt: skip
def test_held_out_text_that_was_changed_is_refused_in_a_sentence(tmp_path, content, told):
    """Story: a resumed run ended with words of Python, such as `zip() argument 2 is longer than argument 1`."""
    (tmp_path / "valid.source.txt").write_text("eins\nzwei\n")
    if content is not None:
        (tmp_path / "valid.target.txt").write_bytes(content)
    with pytest.raises(ValueError, match=told):
        prepare.read_text(tmp_path, "valid")


def test_text_that_was_changed_is_told_by_its_name_size_and_hash(data, folder):
    """Story: the message had lists of Python with whole hashes."""
    run(data, folder)
    source, old = pathlib.Path(data.train_source), hashlib.sha256(pathlib.Path(data.train_source).read_bytes())
    size = source.stat().st_size
    pathlib.Path(data.train_target).write_bytes(b"x\n" + pathlib.Path(data.train_target).read_bytes())
    source.write_bytes(b"y\n" + source.read_bytes())
    new = hashlib.sha256(source.read_bytes())
    with pytest.raises(ValueError) as refused:
        run(data, folder)
    was, now = (
        f"{source.name} ({bytes_:,} bytes, SHA-256 {each.hexdigest()[:8]}…)"
        for bytes_, each in ((size, old), (size + 2, new))
    )
    assert f"options: `train_source` was {was}, and is now {now}; `train_target` was " in str(refused.value)


def test_terms_that_were_changed_are_told_by_their_name_size_and_hash(tmp_path):
    """These are recorded as `describe` has them, in another form than text."""
    path, content = tmp_path / "my 2 terms.tsv", b"dog\tHund\n"
    path.write_bytes(content)
    recorded = f"{path.name} {files.describe(path)}"
    shown = f"{path.name} (9 bytes, SHA-256 {hashlib.sha256(content).hexdigest()[:8]}…)"
    with pytest.raises(ValueError) as refused:
        data_folder.check_options(tmp_path, {"train_terms": recorded}, {"train_terms": None})
    assert f"`train_terms` was {shown}, and is now not given. " in str(refused.value)


def test_the_builtin_corpus_has_a_test_text_too(folder):
    run(DataConfig(dataset="builtin", builtin_pairs=150), folder, seed=3)
    made = builtin_corpus.splits(150, 3)
    assert texts(folder, "train") == made["train"]
    for split in ("valid", "test"):
        assert list(zip(*prepare.read_text(folder, split), strict=True)) == made[split]


def test_held_out_pairs_take_no_more_files_than_they_fill(data, folder, monkeypatch):
    """Validation text of 3,000 lines beside 4.5 million of training text is one shard, not 69."""
    monkeypatch.setattr(shards, "PAIRS_PER_SHARD", 50)
    run(data, folder)
    assert len(shards.read_info(folder / "train")["shards"]) == 4
    assert len(shards.read_info(folder / "valid")["shards"]) == 1


def test_the_bytes_of_the_text_decide_the_number_of_files_too(data, folder, monkeypatch):
    """And that of the processes, where none is asked for."""
    asked = []
    monkeypatch.setattr(processes, "number", lambda *given: asked.append(given) or 1)
    monkeypatch.setattr(shards, "BYTES_PER_SHARD", 500)
    run(data, folder)
    sizes = [sum(len(line.encode()) for pair in pairs for line in pair) for pairs in (TRAIN, VALID)]
    for split, size in zip(("train", "valid"), sizes, strict=True):
        assert size > 500 and len(shards.read_info(folder / split)["shards"]) == -(-size // 500)
    assert asked == [(1, size) for size in reversed(sizes)]


def test_a_file_of_sub_words_may_be_in_the_home_folder(data, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    model = (ROOT / "tests/data/run_1/subwords.model").read_bytes()
    (tmp_path / "given.model").write_bytes(model)
    given, size = dataclasses.replace(data, subwords_file="~/given.model"), vocabulary.load(model).vocab_size
    run(given, folder, size)
    assert (folder / prepare.SUBWORDS).read_bytes() == model
    assert run(given, folder, size) == [f"Using the data in {folder}."]


def test_a_file_of_sub_words_that_cannot_spell_other_characters_is_warned_of(data, tmp_path):
    """Story: translations lacked the rare characters of a model of SentencePiece that knows no bytes."""
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    for byte_fallback in (False, True):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([f"{source} {target}" for source, target in TRAIN]), model_writer=model,
            model_type="bpe", vocab_size=400, byte_fallback=byte_fallback, hard_vocab_limit=False, minloglevel=2, **ids
        )  # fmt: skip
        path = tmp_path / f"{byte_fallback}.model"
        path.write_bytes(model.getvalue())
        size = vocabulary.load(model.getvalue()).vocab_size
        said = run(dataclasses.replace(data, subwords_file=str(path)), tmp_path / f"{byte_fallback}", size)
        lost = (
            f"{path} was trained without `byte_fallback`: characters that it lacks become <unk>, which translations "
            "leave out."
        )
        assert (lost in said) == (not byte_fallback)


# What is left out.


def test_pairs_longer_than_the_limit_are_left_out_and_counted(data, folder):
    """The limit counts sub-words and the end, on the longer side."""
    run(data, folder.parent / "all")
    subwords = subwords_of(folder.parent / "all")
    longest = np.max([subwords.tokenize(tf.constant(side)).row_lengths() for side in zip(*TRAIN, strict=True)], axis=0)
    limit = int(np.median(longest))
    short = [pair for pair, length in zip(TRAIN, longest, strict=True) if length <= limit]
    assert limit in longest and 0 < len(short) < 200
    said = run(dataclasses.replace(data, max_length=limit), folder)
    assert texts(folder, "train") == short
    report = json.loads((folder / prepare.CORPUS).read_text())["report"]
    assert (report["train"]["pairs"], report["train"]["too_long"]) == (len(short), 200 - len(short))
    assert any(f"{200 - len(short)} left out (longer than `max_length`)" in line for line in said)
    assert shards.read_info(folder / "train")["pairs"] == len(short)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_text_of_which_every_pair_is_too_long_is_refused(data, folder, tmp_path, split):
    names = write_text(tmp_path, split, [(" ".join(ENGLISH) * 3, " ".join(GERMAN))] * 20)
    with pytest.raises(ValueError, match=f"{split}.*longer than `max_length=30`"):
        run(dataclasses.replace(data, max_length=30, **names), folder)
    assert not (folder / prepare.CORPUS).exists()
    assert (folder / "train").exists() == (split == "train"), "Validation first: the training text takes longer."


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_text_without_a_usable_pair_is_refused(data, folder, tmp_path, split):
    names = write_text(tmp_path, split, [("one", " "), ("", "zwei")])
    with pytest.raises(ValueError, match=r"no usable pair: 0 pairs, 2 left out \(empty side"):
        run(dataclasses.replace(data, **names), folder)


def test_a_sentence_limit_that_lengths_on_disk_cannot_hold_is_refused():
    """Lengths are uint16: a sentence of 65,536 sub-words would stop the writing with an OverflowError."""
    with pytest.raises(ValueError, match="max_length"):
        DataConfig(max_length=2**16)


@pytest.mark.parametrize("missing", ["train", "valid"])
def test_text_that_is_not_given_is_asked_for(data, folder, missing):
    with pytest.raises(ValueError, match=f"`{missing}_source`"):
        run(dataclasses.replace(data, **{f"{missing}_source": "", f"{missing}_target": ""}), folder)


def test_swapped_validation_files_are_refused_before_anything_is_written(data, folder):
    """An empty folder, which somebody has made, is as good as none."""
    folder.mkdir(parents=True)
    with pytest.raises(ValueError, match="swapped"):
        run(dataclasses.replace(data, valid_source=data.valid_target, valid_target=data.valid_source), folder)
    assert contents(folder) == {prepare.LOCK: b""}


def test_text_of_both_directions_is_not_taken_for_swapped_files(data, folder, monkeypatch):
    """Story: the first 20,000 pairs had one direction, and most of the validation text the other."""
    monkeypatch.setattr(text_checks, "COMPARED_PAIRS", len(TRAIN) // 2)
    both = {
        "train_source": f"{data.train_source},{data.train_target}",
        "train_target": f"{data.train_target},{data.train_source}",
    }
    run(dataclasses.replace(data, **both, valid_source=data.valid_target, valid_target=data.valid_source), folder)
    with pytest.raises(ValueError, match="swapped"):
        changed = dataclasses.replace(data, valid_source=data.valid_target, valid_target=data.valid_source)
        run(changed, folder.parent / "other")


def test_the_pairs_that_are_compared_are_drawn_from_all_of_the_text(data, folder, monkeypatch):
    monkeypatch.setattr(text_checks, "COMPARED_PAIRS", 40)
    drawn, number = [], len(TRAIN)
    monkeypatch.setattr(text_checks, "check_sides", lambda train, valid: drawn.extend(train))
    run(data, folder)
    places = sorted(TRAIN.index((pair[0].decode(), pair[-1].decode())) for pair in drawn)
    assert len(places) == 40
    for quarter in range(4):  # Of 40 drawn, 10 are expected in each, with a standard deviation of 2.5.
        assert 3 <= sum(quarter * number <= 4 * place < (quarter + 1) * number for place in places) <= 17


def test_a_file_that_is_missing_is_reported_before_a_folder_is_made(data, folder):
    with pytest.raises(FileNotFoundError, match="gone.txt"):
        run(dataclasses.replace(data, valid_target="gone.txt"), folder)
    assert not folder.exists()


def test_validation_pairs_that_are_in_the_training_text_are_counted(data, folder, tmp_path):
    """The pair, not one side of it; and every time that it is in the validation text."""
    assert not set(VALID) & set(TRAIN)
    assert not any("in the training text" in line for line in run(data, folder.parent / "other"))
    source, target = TRAIN[0]
    names = write_text(
        tmp_path, "valid", [*VALID, *TRAIN[:3], TRAIN[0], (source, target + " und"), ("and " + source, target)]
    )
    data = dataclasses.replace(data, **names)
    assert "Also in the training text: 4 of 26 validation pairs." in run(data, folder)


def test_validation_pairs_are_found_among_training_pairs_that_get_terms(data, folder, tmp_path):
    """Story: pairs that got terms were not found again."""
    terms = tmp_path / "terms.tsv"
    words = {(source.split()[0], target.split()[0]) for source, target in TRAIN[:40]}
    terms.write_text("".join(f"{source}\t{target}\n" for source, target in dict(words).items()))
    names = write_text(tmp_path, "valid", TRAIN[:40])
    said = run(dataclasses.replace(data, **names, train_terms=str(terms)), folder)
    assert "Also in the training text: 40 of 40 validation pairs." in said
    assert "Training text: 200 pairs, 89 with terms in the source." in said


def test_pairs_with_terms_are_counted_among_the_pairs_of_the_text_and_not_among_those_that_are_short_enough(
    data, folder, tmp_path
):
    """Story: of 110 pairs that were left, 44 had terms; some of the 44 were among the 98 that were left out."""
    terms = tmp_path / "terms.tsv"
    terms.write_text("".join("\t".join(side.split()[0] for side in pair) + "\n" for pair in TRAIN))
    said = run(dataclasses.replace(data, train_terms=str(terms), max_length=12), folder)
    [text] = [line for line in said if "with terms" in line]
    [written] = [line for line in said if line.startswith("train: ")]
    assert text.startswith("Training text: 200 pairs, ") and "left out (longer than `max_length`)" in written


@pytest.mark.parametrize(("identical", "tag", "told"), [(201, "", True), (200, "", False), (201, "<t>", True)])
def test_training_text_that_is_mostly_the_same_on_both_sides_is_noticed(data, folder, tmp_path, identical, tag, told):
    """It may be a task of copying, which is why it is not refused."""
    copies = [(source, source) for source, _ in sentences(identical, seed=3)]
    data = dataclasses.replace(data, **write_text(tmp_path, "train", [*TRAIN, *copies]), source_tag=tag)
    said = run(data, folder)
    assert any(line.startswith(f"In {identical} of {200 + identical} training pairs") for line in said) == told


# Every option has its effect.


@pytest.mark.parametrize(("normalization", "kept"), [("identity", "½ ﬁ"), ("nfkc", "1⁄2 fi")])
def test_text_is_normalised_as_asked(data, folder, tmp_path, normalization, kept):
    names = write_text(tmp_path, "train", [("½ ﬁ", "eins"), *TRAIN])
    run(dataclasses.replace(data, **names, normalization=normalization), folder)
    assert texts(folder, "train") == [(kept, "eins"), *TRAIN]


@pytest.mark.parametrize(("coverage", "known"), [(1.0, True), (0.999, False)])
def test_characters_are_covered_as_asked(data, folder, tmp_path, coverage, known):
    """A character of one line in two hundred is a sub-word, or is spelled in bytes."""
    names = write_text(tmp_path, "train", [("Ж", "eins"), *TRAIN])
    run(dataclasses.replace(data, **names, character_coverage=coverage), folder)
    assert ("Ж" in subwords_of(folder).pieces) == known
    assert texts(folder, "train")[0] == ("Ж", "eins")


@pytest.mark.parametrize("seed", [1, 2])
def test_sub_words_are_learned_from_a_sample_as_large_as_asked_drawn_by_the_seed(data, folder, seed):
    run(dataclasses.replace(data, vocab_sample=101), folder, seed=seed)
    lines = [line.encode() for pair in TRAIN for line in pair]
    coverage = data.character_coverage
    models = {
        (sample, drawn_by): vocabulary.learn(
            "bpe", lines, VOCAB, sample=sample, seed=drawn_by, normalization="identity", character_coverage=coverage
        )
        for sample, drawn_by in ((101, 1), (101, 2), (10**6, 1))
    }
    assert [name for name, model in models.items() if model == subwords_of(folder).model] == [(101, seed)]


@pytest.mark.parametrize("split", ["train", "valid"])
def test_lines_that_are_not_utf8_stop_the_preparing_or_are_left_out_as_asked(data, folder, split):
    path = pathlib.Path(getattr(data, f"{split}_source"))
    path.write_bytes(b"\xe9 " + path.read_bytes())
    with pytest.raises(ValueError, match=rf"{split}\.source, line 1 is not UTF-8"):
        run(data, folder)
    said = run(dataclasses.replace(data, skip_bad_lines=True), folder)
    assert texts(folder, split) == {"train": TRAIN, "valid": VALID}[split][1:]
    assert any("1 left out (not UTF-8)" in line for line in said)


# A folder that is there already.


def test_a_prepared_folder_is_used_again_as_it_is(data, folder):
    run(data, folder)
    before = contents(folder)
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert run(data, folder) == [f"Using the data in {folder}."]
    assert contents(folder) == before
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == times


def test_a_prepared_folder_is_used_where_no_corpus_is_named(data, folder):
    run(data, folder)
    assert run(DataConfig(), folder) == [f"Using the data in {folder}."]


@pytest.mark.parametrize(("given", "told"), [
    ({"max_length": 50}, "`max_length` was 100, and is now 50"),
    ({"max_length": 100, "normalization": "nfkc"}, "options: `normalization` was identity, and is now nfkc"),
    ({"builtin_pairs": 7}, "`builtin_pairs` was not given, and is now 7"),
    ({"valid_source": "train.source", "valid_target": "train.target"},
     r"`valid_source` was valid.source \([0-9,]+ bytes, SHA-256 \w{8}…\), and is now train.source \("),
])  # fmt: skip
def test_data_options_are_compared_where_no_corpus_is_named(data, folder, tmp_path, monkeypatch, given, told):
    monkeypatch.chdir(tmp_path)
    run(dataclasses.replace(data, max_length=100), folder)
    with pytest.raises(ValueError, match=told):
        run(DataConfig(**given), folder)
    for same in ({"max_length": 100}, {"valid_source": "valid.source", "valid_target": "valid.target"}):
        assert run(DataConfig(**same), folder) == [f"Using the data in {folder}."]


@pytest.mark.parametrize("builtin", [True, False])
def test_a_folder_knows_the_options_that_it_was_prepared_with(data, folder, builtin):
    changed = {"max_length": 100, "skip_bad_lines": True}
    made = (
        DataConfig(dataset="builtin", builtin_pairs=150, **changed) if builtin else dataclasses.replace(data, **changed)
    )
    run(made, folder)
    assert data_folder.prepared_with(folder) == (made if builtin else DataConfig(**changed))


def test_a_dataset_with_the_sub_words_of_an_imported_model_is_used_again(folder, tmp_path):
    """Story: its `corpus.json` was said to be damaged, and the run could not be resumed."""
    learned = vocabulary.learn(
        "bpe", [b"one two three"], 270, sample=1000, seed=1, normalization="identity", character_coverage=1.0
    )
    path = tmp_path / "of {a} model"
    path.write_bytes(piece_file.pack([*map(str, range(10)), "one", "▁two"], learned))
    size = vocabulary.load(path.read_bytes()).vocab_size
    made = DataConfig(dataset="builtin", builtin_pairs=150, subwords="sentencepiece", subwords_file=str(path))
    run(made, folder, size)
    assert data_folder.prepared_with(folder) == dataclasses.replace(made, subwords_file=path.name)
    options = Start.open(tmp_path / "run", {}, str(folder)).options
    assert (options.data.subwords, options.model.vocab_size) == ("sentencepiece", size)
    path.unlink()
    assert run(data_folder.prepared_with(folder), folder, size) == [f"Using the data in {folder}."]


def test_the_pairs_that_an_older_version_counted_are_known_by_their_option(folder):
    made = DataConfig(dataset="builtin", builtin_pairs=150)
    run(made, folder)
    (folder / prepare.CORPUS).write_text((folder / prepare.CORPUS).read_text().replace('"builtin_pairs"', '"pairs"'))
    assert run(made, folder) == [f"Using the data in {folder}."]


def test_a_folder_of_a_version_without_word_pieces_and_tasks_is_of_byte_pair_encoding_and_translation(data, folder):
    run(data, folder)
    described = json.loads((folder / prepare.CORPUS).read_text())
    del described["options"]["subwords"], described["options"]["task"]
    (folder / prepare.CORPUS).write_text(json.dumps(described))
    assert run(data, folder) == [f"Using the data in {folder}."]
    assert data_folder.prepared_with(folder).subwords == "bpe"
    with pytest.raises(ValueError, match="`subwords` was bpe, and is now wordpiece"):
        run(dataclasses.replace(data, subwords="wordpiece"), folder)


@pytest.mark.parametrize("changed", [
    {"max_length": 100}, {"subwords": "wordpiece"}, {"normalization": "nfkc"}, {"character_coverage": 1.0},
    {"vocab_sample": 1000}, {"skip_bad_lines": True},
], ids=lambda changed: next(iter(changed)))  # fmt: skip
def test_a_folder_prepared_with_another_option_is_refused_by_its_name(data, folder, changed):
    run(data, folder)
    before = contents(folder)
    [(name, value)] = changed.items()
    with pytest.raises(ValueError, match=f"`{name}` was {getattr(data, name)}, and is now {value}"):
        run(dataclasses.replace(data, **changed), folder)
    assert contents(folder) == before


def test_a_folder_prepared_with_another_vocabulary_is_refused(data, folder):
    run(data, folder)
    with pytest.raises(ValueError, match=f"`vocab_size` was {VOCAB}, and is now {VOCAB - 1}"):
        run(data, folder, VOCAB - 1)


def test_every_option_that_differs_is_named_with_both_values(data, folder):
    run(data, folder)
    with pytest.raises(ValueError) as refused:
        run(dataclasses.replace(data, max_length=100, normalization="nfkc"), folder, VOCAB - 1)
    changes = ("`max_length` was 256, and is now 100", "`normalization` was identity, and is now nfkc")
    assert all(change in str(refused.value) for change in (*changes, f"`vocab_size` was {VOCAB}"))
    assert "train_source" not in str(refused.value) and "vocab_sample" not in str(refused.value)


@pytest.mark.parametrize("broken", [
    b"", b"[]", b"{}", b'{"options": 3}', b'{"options": ["a"]}', b'{"options": "abc"}', b"\xff", b"[" * 10**5,
    b'{"options": {"train_source": 5}}', b'{"options": {"valid_target": "a.de 3 ab"}}',
])  # fmt: skip
def test_a_folder_whose_corpus_json_is_damaged_is_reported(data, folder, broken):
    run(data, folder)
    (folder / prepare.CORPUS).write_bytes(broken)
    with pytest.raises(ValueError, match=r"corpus\.json .*prepare again\.$"):
        run(data, folder)


def test_a_byte_that_changes_behind_the_first_mebibyte_makes_another_corpus(data, folder):
    """Story: of each file, the size and the first MiB were compared. The time of the file is not asked."""
    path = pathlib.Path(data.train_source)
    path.write_bytes(b"the small red house\n" * 60_000)
    pathlib.Path(data.train_target).write_bytes(b"das kleine rote Haus\n" * 60_000)
    run(data, folder)
    assert run(data, folder) == [f"Using the data in {folder}."]
    before = path.stat()
    assert before.st_size > 2**20
    with path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(b"d")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    with pytest.raises(ValueError, match="another corpus.*`train_source` was"):
        run(data, folder)


@pytest.mark.parametrize(
    ("sides", "change"),
    [(("source", "target"), lambda text: f"{text}one more\n"), (("target",), lambda text: text.replace("e", "f"))],
    ids=["both grow", "the second"],
)
def test_a_file_that_changes_while_it_is_read_is_reported(data, folder, monkeypatch, sides, change):
    learn = vocabulary.learn

    def learn_while_text_changes(*args, **options):
        model = learn(*args, **options)
        for path in (pathlib.Path(getattr(data, f"train_{side}")) for side in sides):
            path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
        return model

    message = rf"train\.{sides[0]} was changed while it was being read"
    with monkeypatch.context() as patch, pytest.raises(ValueError, match=message):
        patch.setattr(vocabulary, "learn", learn_while_text_changes)
        run(data, folder)
    assert not (folder / prepare.CORPUS).exists()


def test_a_file_that_changes_before_its_second_reading_is_reported(data, folder, monkeypatch):
    """Story: with `valid_pairs`, the training text is read for validation first, and nobody compared the readings."""
    pairs, data = corpora.pairs, dataclasses.replace(data, valid_source="", valid_target="", valid_pairs=20)

    def pairs_of_growing_text(data, split, *args, **options):
        yield from pairs(data, split, *args, **options)
        for path in (pathlib.Path(data.train_source), pathlib.Path(data.train_target)):
            path.write_text(path.read_text(encoding="utf-8") + "one more\n", encoding="utf-8")

    monkeypatch.setattr(corpora, "pairs", pairs_of_growing_text)
    with pytest.raises(ValueError, match=r"train\.source was changed while it was being read"):
        run(data, folder)


def test_preparing_reads_no_file_once_more_for_its_hash(data, folder, monkeypatch):
    """And a file that is compressed is hashed as it lies there."""
    path = pathlib.Path(data.train_source)
    path.write_bytes(gzip.compress(path.read_bytes()[:500]) + gzip.compress(path.read_bytes()[500:]))
    expected = f"train.source {path.stat().st_size} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    monkeypatch.setattr(corpora, "describe", lambda path: pytest.fail(f"{path} was read again"))
    run(data, folder)
    assert json.loads((folder / prepare.CORPUS).read_text())["options"]["train_source"] == [expected]


@pytest.mark.parametrize("name", ["train_source", "train_target", "valid_source", "valid_target"])
def test_a_folder_prepared_from_another_text_is_refused_by_its_side(data, folder, name):
    """Of the same name and size, even."""
    run(data, folder)
    path = pathlib.Path(getattr(data, name))
    path.write_bytes(path.read_bytes().replace(b"e", b"E", 1))
    with pytest.raises(ValueError, match=f"another corpus.*`{name}` was"):
        run(data, folder)


def test_a_folder_prepared_from_another_set_is_refused(data, folder):
    run(data, folder)
    with pytest.raises(ValueError, match="another corpus"):
        run(DataConfig(dataset="builtin", builtin_pairs=150), folder)


@pytest.mark.parametrize(
    ("changed", "seed", "name"),
    [({"builtin_pairs": 151}, 1, "`builtin_pairs` was 150, and is now 151"), ({}, 2, "seed")],
)
def test_a_folder_prepared_from_another_builtin_corpus_is_refused(folder, changed, seed, name):
    made = DataConfig(dataset="builtin", builtin_pairs=150)
    run(made, folder)
    with pytest.raises(ValueError, match=name):
        run(dataclasses.replace(made, **changed), folder, seed=seed)


# Killed half-way.


@pytest.mark.parametrize(
    "killed_at", ["learning", "train shards", "valid shards", "valid text", "corpus.json", "half of corpus.json"]
)
def test_a_folder_that_was_killed_half_way_is_made_again(data, folder, tmp_path, monkeypatch, killed_at):
    run(data, tmp_path / "whole")

    def kill(*_, **__):
        raise KeyboardInterrupt

    def kill_split(split, function):
        def writing(path, pairs, **options):
            if path.name == split:
                # Half a shard, and more files than there will be. Beam would have left its text too.
                options["count"] = 10**6
                (path / files.EXCHANGE).mkdir(parents=True)
                (path / files.EXCHANGE / "000000000000.text").write_bytes(b"left\nover\n")
                function(path, list(pairs)[:10], **options)
                kill()
            return function(path, pairs, **options)

        return writing

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if killed_at == "learning":
            patch.setattr(vocabulary, "learn", kill)
        elif killed_at.endswith("shards"):
            patch.setattr(shards, "write", kill_split(killed_at.split()[0], shards.write))
        elif killed_at == "valid text":
            patch.setattr(prepare.Preparation, "_write_text", kill)
        elif killed_at == "corpus.json":
            patch.setattr(prepare.Preparation, "_options", kill)
        else:
            patch.setattr(os, "fsync", kill)  # Written under another name, and not yet on disk.
        run(data, folder)
    assert not (folder / prepare.CORPUS).exists()
    run(data, folder)
    assert contents(folder) == contents(tmp_path / "whole")


# A full disk.

FILES = (
    prepare.SUBWORDS, "train/00000-of-00001.tfrecord", "train/records.tsv", "train/info.json",
    "valid/00000-of-00001.tfrecord", "valid.source.txt", "valid.target.txt", prepare.CORPUS,
)  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_full_disk_is_reported_in_a_sentence_and_the_same_command_goes_on_when_there_is_room(
    data, folder, tmp_path, monkeypatch, name
):
    """Whichever file it is that does not fit."""
    message = r"^Could not write .*data \(.*No space left on device\)\. It is incomplete and is not used: free space"
    with monkeypatch.context() as patched, pytest.raises(OSError, match=message):
        toy.fill_disk(patched, f"{pathlib.Path(name).name}*")
        run(data, folder)
    assert not (folder / prepare.CORPUS).exists()
    run(data, folder)
    run(data, tmp_path / "whole")
    assert contents(folder) == contents(tmp_path / "whole")


def test_text_is_tokenized_and_sent_in_chunks_that_documents_fill_sooner():
    pairs = [(b"x" * length, b"y" * length) for length in (1, 1, 1, 50, 1, 60, 1)]
    listed = [[len(pair[0]) for pair in chunk] for chunk in text_files.chunks(iter(pairs), 3, 100)]
    assert listed == [[1, 1, 1], [50], [1, 60], [1]]


def test_chunks_of_documents_end_where_one_does():
    pairs = [(b"x" * length,) for length in (1, 1, 1, 1, 0, 1, 0, 70, 70, 0, 1)]
    for documents in (pairs, [(pair * 2) for pair in pairs]):
        most = 100 * len(documents[0])
        listed = [
            [len(pair[0]) for pair in chunk] for chunk in text_files.chunks(iter(documents), 3, most, documents=True)
        ]
        assert listed == [[1, 1, 1, 1, 0], [1, 0, 70, 70, 0], [1]]


def test_a_file_is_left_as_it_is(data, tmp_path):
    (tmp_path / "file").write_text("mine")
    message = "^`data_dir` must be a folder. Received: .*/file, which is not a folder.$"
    with pytest.raises(NotADirectoryError, match=message):
        run(data, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_of_other_files_is_left_as_it_is(data, folder):
    """Story: `--valid_source=data/valid.source.txt … --data_dir=data` wrote over the validation text."""
    folder.mkdir(parents=True)
    (folder / "valid.source.txt").write_text("mine\n")
    with pytest.raises(FileExistsError, match="holds files and no prepared data. Give a new or an empty folder"):
        run(data, folder)
    assert contents(folder) == {"valid.source.txt": b"mine\n"}


def test_the_folder_of_a_run_is_left_as_it_is(data, folder):
    """Story: both kinds of folders have a lock, and preparing replaced the sub-words of a run."""
    folder.mkdir(parents=True)
    for name in (files.CONFIG, files.SUBWORDS, files.LOCK):
        (folder / name).touch()
    before = contents(folder)
    with pytest.raises(ValueError, match="^Expected a folder for data as `data_dir`. Received: .*, which holds a run."):
        run(data, folder)
    assert contents(folder) == before


def test_text_that_cannot_be_read_is_not_taken_for_a_folder_that_cannot_be_written(data, folder):
    def write_from_a_broken_disk(path, pairs, *args, **options):
        raise OSError(f"Could not read line 7 of {data.train_source} (Input/output error).")

    with pytest.raises(OSError, match=r"^Could not read line 7"):
        prepare.Preparation(data, VOCAB, 1, folder, registry.task("translation")).run(write_from_a_broken_disk)


def test_an_error_of_the_system_is_of_the_folder_only_if_it_names_a_file_in_it(data, folder):
    for name, told in (
        (folder / "train" / "x", "^Could not write"),
        ("/elsewhere/x", r"Permission denied: '/elsewhere/x'$"),
    ):

        def write(*args, name=name, **options):
            raise PermissionError(13, "Permission denied", name)

        with pytest.raises(OSError, match=told):
            prepare.Preparation(data, VOCAB, 1, folder, registry.task("translation")).run(write)


# Two at a time.


@pytest.fixture
def holder(folder):
    """Another process that is preparing the folder."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder / "lock")], stdout=subprocess.PIPE, env=environment
    ) as process:
        try:
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


def run_beside(holder, data: DataConfig, folder: pathlib.Path, end) -> list[str]:
    """Prepares; while this process waits, the other one has an `end`."""

    def finish() -> None:
        end()
        holder.kill()

    def act(message: str) -> None:
        if "Waiting" in message:
            assert list(contents(folder)) == ["lock"]
            threading.Timer(0.5, finish).start()

    with logged(act) as said:
        prepare.Preparation(data, VOCAB, 1, folder, registry.task("translation")).run()
    assert said[0].startswith(f"{folder} is in use by process {holder.pid} on ")
    return said[1:]


def test_the_second_of_two_waits_for_the_first_and_uses_what_it_made(data, folder, tmp_path, holder):
    """Story: two trainers that were given one --data_dir wrote over each other's shards."""
    run(data, tmp_path / "alone")
    said = run_beside(holder, data, folder, lambda: shutil.copytree(tmp_path / "alone", folder, dirs_exist_ok=True))
    assert said == [f"Using the data in {folder}."]
    assert contents(folder) == contents(tmp_path / "alone")


def test_the_second_of_two_refuses_what_the_first_made_of_another_corpus(data, folder, tmp_path, holder):
    run(data, tmp_path / "alone", VOCAB - 1)
    with pytest.raises(ValueError, match=f"`vocab_size` was {VOCAB - 1}, and is now {VOCAB}"):
        run_beside(holder, data, folder, lambda: shutil.copytree(tmp_path / "alone", folder, dirs_exist_ok=True))


def test_the_second_of_two_prepares_the_folder_where_the_first_was_killed(data, folder, tmp_path, holder):
    said = run_beside(holder, data, folder, lambda: None)
    assert said[0].startswith("Reading") and said[-1].startswith("train: ")
    run(data, tmp_path / "alone")
    assert contents(folder) == contents(tmp_path / "alone")


def test_a_prepared_folder_is_read_by_many_and_needs_no_lock(data, folder):
    """It may be on a disk that is read only."""
    run(data, folder)
    with files.exclusive(folder / "lock", "the folder"):
        assert run(data, folder) == [f"Using the data in {folder}."]


def test_who_names_no_corpus_waits_for_the_one_that_prepares_and_uses_what_it_made(folder, data, tmp_path, holder):
    """Story: README's prepare.py and train.py were refused where the second did not wait for the first."""
    run(data, tmp_path / "alone")
    said = run_beside(
        holder, DataConfig(), folder, lambda: shutil.copytree(tmp_path / "alone", folder, dirs_exist_ok=True)
    )
    assert said == [f"Using the data in {folder}."]


def test_who_names_no_corpus_is_asked_for_one_where_the_one_that_prepared_was_killed(folder, holder):
    with pytest.raises(ValueError, match="no training text. Give `train_source`"):
        run_beside(holder, DataConfig(), folder, lambda: None)
