"""What an encoder predicts in held-out documents, beside the unigram and the bigram model of the training text."""

import dataclasses
import json
import pathlib
import re
import shutil

import numpy as np
import programs
import pytest
import tensorflow as tf
from test_pretraining import GIVEN, documents
from test_shards import flip

from t2t_keras.config import BOS, EOS, UNK
from t2t_keras.data import shards
from t2t_keras.decoding import loading
from t2t_keras.experiments import masked_words
from t2t_keras.layers.inference import inference
from t2t_keras.runs import checkpoint, registry
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.tasks import masking
from t2t_keras.training import devices, run

ROOT = pathlib.Path(__file__).parent.parent


def opened(folder: pathlib.Path) -> SavedRun:
    return SavedRun.open(folder / "bert")


def test_counts_of_words_and_of_pairs():
    """By hand: 7 comes five times; after 5 comes 6 twice and 7 once; after 7 come 5 and 7 once each: the first wins."""
    texts = [np.array([5, 6, 7]), np.array([5, 6]), np.array([5, 7, 7, 5]), np.array([7]), np.array([7])]
    unigram, following = masked_words.counts(iter([texts[:1], texts[1:4], texts[4:]]), 9)
    assert unigram == 7
    assert following.tolist() == [7, 7, 7, 7, 7, 6, 7, 5, 7]


@pytest.mark.parametrize(("per_shard", "expected"), [(2, [[[5, 6, 7], [8, 7, 6]]]), (1, [[[5, 6, 7]], [[8, 7, 6]]])])
def test_pairs_are_counted_across_the_ends_of_sentences_in_every_shard(tmp_path, monkeypatch, per_shard, expected):
    """As they are guessed: two records, of sentences of 2 and 1, and 1 and 2 sub-words."""
    monkeypatch.setattr(shards, "PAIRS_PER_SHARD", per_shard)
    task = registry.task("pretraining")
    rows = [([BOS, 5, 6, 7, EOS, EOS], [2, 1]), ([BOS, 8, 7, 6, EOS, EOS], [1, 2])]
    records = [(*map(np.array, row), np.array([number])) for number, row in enumerate(rows, 1)]
    info = shards.write(tmp_path, iter(records), vocab_size=20, columns=task.on_disk, count=2, size=50, seed=8)
    assert sorted(sorted(map(np.ndarray.tolist, texts)) for texts in masked_words._texts(tmp_path, info)) == expected


@pytest.fixture
def damaged(tmp_path, monkeypatch) -> dict:
    """The description of two shards in a folder with one record each; a byte of the first one is flipped."""
    monkeypatch.setattr(shards, "PAIRS_PER_SHARD", 1)
    task = registry.task("pretraining")
    records = [tuple(map(np.array, ([BOS, *words, EOS, EOS], [2, 1], [1]))) for words in ([5, 6, 7], [8, 7, 6])]
    info = shards.write(tmp_path, iter(records), vocab_size=20, columns=task.on_disk, count=2, size=50, seed=8)
    flip(tmp_path / info["shards"][0], shards.FRAME_BEFORE + 5)
    return info


def test_damaged_records_that_training_skips_are_not_counted(tmp_path, damaged, capfd):
    """Story: a run that had skipped a damaged record could never be evaluated."""
    lost, whole = masked_words._texts(tmp_path, damaged, "skip")
    assert np.concatenate(lost).size == 0 and len(whole) == 1
    assert f"Damaged record at byte 12 of {tmp_path / damaged['shards'][0]}" in capfd.readouterr().err
    assert masked_words.counts([lost, whole], 20)[0] == min(whole[0])


def test_other_damaged_records_end_the_evaluation_in_one_sentence(tmp_path, damaged):
    with pytest.raises(ValueError) as raised:
        list(masked_words._texts(tmp_path, damaged))
    assert str(raised.value) == (
        f"Expected intact records. Received: 1 damaged, the first at byte 12 of {tmp_path / damaged['shards'][0]}. "
        f"Remove {tmp_path.parent} and prepare again, or leave damaged records out with `damaged_records=skip`."
    )


def test_the_bigram_model_takes_the_word_after_the_one_before():
    """Unless that one is special, or masked itself, though it may stand there still."""
    following = np.arange(100, 120)
    tokens = np.array([BOS, UNK, 8, 9, UNK, EOS, 12, 13, 14, EOS])
    assert masked_words.guesses(tokens, np.array([2, 4, 5, 7, 9]), 50, following).tolist() == [50, 108, 50, 50, 113]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """An encoder after 30 updates."""
    folder = tmp_path_factory.mktemp("masked_words")
    for split, number in (("train", 100), ("valid", 10), ("test", 30)):
        (folder / f"{split}.txt").write_text(documents(number, seed=number))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        start = Start.open(folder / "bert", GIVEN | {"train_steps": 30})
        run.train(start, strategy=devices.make_strategy())
    return folder


@pytest.mark.medium
def test_figures_are_shares_of_the_same_words(folder):
    found = masked_words.evaluate(opened(folder), "latest", str(folder / "test.txt"), 3)
    one, again = (masked_words.evaluate(opened(folder), "latest", str(folder / "test.txt"), 1) for _ in range(2))
    assert one == again and one["texts"] * 3 == found["texts"]
    assert found["words"] == pytest.approx(3 * one["words"], rel=0.1)
    assert 0.5 <= found["chance"] < 0.65 and 0.3 < found["next_sentences"] <= 1
    # "the ship is by the wave": "the" is most frequent, and after "is" comes "by", after which comes "the".
    assert 0.1 < found["unigram"] < found["bigram"] < 0.9
    assert found["masked_words"] > 0.1


@pytest.mark.medium
def test_figures_are_those_of_all_texts_at_once(folder, monkeypatch):
    """Of two draws, though the texts are read three at a time."""
    options = SavedRun.open(folder / "bert").options
    model, tokenizer = loading.make_model(SavedRun.open(folder / "bert"), "latest")
    checkpoint.load(folder / "bert", "latest", model)
    train = folder / "bert/data/train"
    unigram, following = masked_words.counts(masked_words._texts(train, shards.read_info(train)), tokenizer.vocab_size)
    records = masked_words._records(options.task, tokenizer, str(folder / "test.txt"), options.data.max_length)
    change = masking.renewal(tokenizer, options.model.mask_rate, options.model.whole_words).change
    right, words, answers = np.zeros(4), 0, []
    for draw in range(2):
        batch = {name: ids.to_tensor() for name, ids in change(records, tf.constant([0, draw], tf.int64)).items()}
        with inference():
            sums = model.losses(*(batch[column.name] for column in options.task.columns), 0.0)
        right[:2] += float(sums["right"]), float(sums["next_right"])
        tokens, masked, target = (batch[name].numpy() for name in ("tokens", "masked", "target"))
        for row in range(len(tokens)):
            places, wanted = masked[row][masked[row] > 0], target[row][target[row] > 0]
            right[2] += np.sum(wanted == unigram)
            right[3] += np.sum(masked_words.guesses(tokens[row], places, unigram, following) == wanted)
            words += len(wanted)
        answers += batch["following"].numpy().ravel().tolist()
    monkeypatch.setattr(masked_words, "ROWS", 3)
    share = answers.count(2) / len(answers)
    assert masked_words.evaluate(opened(folder), "latest", str(folder / "test.txt"), 2) == {
        "masked_words": pytest.approx(right[0] / words, abs=2 / words),
        "next_sentences": pytest.approx(right[1] / len(answers), abs=2 / len(answers)),
        "unigram": right[2] / words,
        "bigram": right[3] / words,
        "chance": pytest.approx(max(share, 1 - share)),
        "words": words,
        "texts": len(answers),
    }


@pytest.mark.medium
def test_the_data_may_be_in_another_place_and_must_be_those_of_the_run(folder, tmp_path):
    test = str(folder / "test.txt")
    expected = masked_words.evaluate(opened(folder), "latest", test, 1)
    shutil.copytree(folder / "bert", tmp_path / "bert")
    (tmp_path / "bert/data").rename(tmp_path / "data")
    with pytest.raises(FileNotFoundError, match="train is missing"):
        masked_words.evaluate(opened(tmp_path), "latest", test, 1)
    assert masked_words.evaluate(opened(tmp_path), "latest", test, 1, str(tmp_path / "data")) == expected


@pytest.mark.medium
def test_the_program_prints_a_table_or_json(folder):
    flags = ["--model_dir=bert", "--evaluate=test.txt", "--draws=1"]
    shown, asjson = (programs.tool("pretrain", *flags, *more, cwd=folder, timeout=120) for more in ([], ["--json"]))
    assert shown.returncode == asjson.returncode == 0, shown.stderr
    found = json.loads(asjson.stdout)
    assert shown.stdout == masked_words.table(found) + "\n"
    assert f"| masked words | {100 * found['masked_words']:.1f}% | {found['words']:,} |" in shown.stdout


def test_the_table_has_each_figure_in_its_row():
    found = {
        "masked_words": 0.5, "unigram": 0.1, "bigram": 0.25, "words": 1200, "next_sentences": 0.9, "chance": 0.55,
        "texts": 80,
    }  # fmt: skip
    assert [
        [cell.strip() for cell in row.strip("|").split("|")] for row in masked_words.table(found).splitlines()[2:]
    ] == [
        ["masked words", "50.0%", "1,200"], ["… by a unigram model", "10.0%", "1,200"],
        ["… by a bigram model", "25.0%", "1,200"], ["next sentences", "90.0%", "80"], ["… by chance", "55.0%", "80"],
    ]  # fmt: skip


@pytest.mark.parametrize(("flags", "said"), [
    (["--draws=5", "--nojson", "--checkpoint=best"],
     "--draws and --checkpoint have no effect without --evaluate. Received: --draws=5, --checkpoint='best'."),
    (["--evaluate=test.txt", "--train_steps=5"],
     "--train_steps has no effect with --evaluate. Received: --train_steps=5."),
    (["--evaluate="], "--evaluate must be a file. Received: an empty text."),  # Story: `--evaluate=$UNSET` trained.
], ids=["training", "evaluation", "no file"])  # fmt: skip
def test_flags_of_training_and_of_evaluation_are_not_for_the_other(flags, said):
    refused = programs.tool("pretrain", "--model_dir=bert", *flags, modules=programs.WITHOUT_TENSORFLOW)
    assert (refused.returncode, refused.stderr) == (1, f"Error: {said}\n")


@pytest.mark.medium
def test_a_run_that_does_not_fit_is_refused_before_a_model_is_made(folder, tmp_path, monkeypatch):
    shutil.copytree(folder / "bert", tmp_path / "bert")
    monkeypatch.setattr(loading, "make", lambda *_: pytest.fail("a model is made"))
    [own] = checkpoint.kept(tmp_path / "bert")
    whole = own.read_bytes()
    own.write_bytes(whole[:100])
    with pytest.raises(checkpoint.DamagedError, match="damaged, or of another model"):
        masked_words.evaluate(opened(tmp_path), "latest", str(folder / "test.txt"), 1)
    own.write_bytes(whole)
    with (tmp_path / "bert/data/train" / shards.RECORDS).open("ab") as file:
        file.write(b"\n")
    with pytest.raises(ValueError, match="was trained on other records"):
        masked_words.evaluate(opened(tmp_path), "latest", str(folder / "test.txt"), 1)


@pytest.mark.medium
def test_arithmetic_and_masks_are_those_of_the_run_and_weights_those_that_are_asked_for(folder, monkeypatch):
    called, renewal, options = [], masking.renewal, SavedRun.open(folder / "bert").options
    train, model = dataclasses.replace(options.train, tf32=False), dataclasses.replace(options.model, whole_words=True)
    monkeypatch.setattr(SavedRun, "options", dataclasses.replace(options, train=train, model=model))
    monkeypatch.setattr(
        masking, "renewal", lambda tokenizer, *given: called.append(given) or renewal(tokenizer, *given)
    )
    monkeypatch.setattr(checkpoint, "load", lambda folder, which, model: called.append(which))
    monkeypatch.setattr(masked_words, "share_gpus", lambda: called.append("share"))
    monkeypatch.setattr(masked_words, "choose_float32", called.append)
    monkeypatch.setattr(
        masked_words.files, "check_ends", lambda path: called.append(path.name) if path.parent == folder else None
    )
    masked_words.evaluate(opened(folder), "average", str(folder / "test.txt"), 1)
    assert called == ["test.txt", "share", False, "average", (0.2, True)], "after the text, which is whole"


@pytest.mark.medium
@pytest.mark.parametrize(
    ("of_run", "given", "expected"), [("skip", "", "skip"), ("stop", "skip", "skip"), ("skip", "stop", "stop")]
)
def test_damaged_records_are_treated_as_in_the_run_unless_an_option_says_otherwise(
    folder, monkeypatch, of_run, given, expected
):
    read, texts, options = [], masked_words._texts, SavedRun.open(folder / "bert").options
    train = dataclasses.replace(options.train, damaged_records=of_run)
    monkeypatch.setattr(SavedRun, "options", dataclasses.replace(options, train=train))
    monkeypatch.setattr(masked_words, "_texts", lambda *given: read.append(given[2]) or texts(*given))
    masked_words.evaluate(opened(folder), "latest", str(folder / "test.txt"), 1, damaged_records=given)
    assert read == [expected]
    with pytest.raises(ValueError, match="Expected one of stop, skip"):
        masked_words.evaluate(opened(folder), "latest", str(folder / "test.txt"), 1, damaged_records="ask")


@pytest.mark.medium
def test_text_without_documents_and_runs_of_other_tasks_are_refused(folder, tmp_path):
    (tmp_path / "lines").write_text("the ship\nthe wave\n")
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 'lines'} needs two documents or more")):
        masked_words.evaluate(opened(folder), "latest", str(tmp_path / "lines"), 1)
    for text, received in (
        ("the ship\n\nthe wave\n", "no document has two sentences"),
        ("the ship\nthe wave\n\n", "one such document"),
    ):
        (tmp_path / "short").write_text(text)
        with pytest.raises(ValueError, match=re.escape(f"in {tmp_path / 'short'}. Received: {received}.")):
            masked_words.evaluate(opened(folder), "latest", str(tmp_path / "short"), 1)
    with pytest.raises(ValueError, match=re.escape("Expected a run of `t2t-pretrain`. Received:")):
        masked_words.evaluate(SavedRun.open(ROOT / "tests/data/run_1"), "latest", str(tmp_path / "lines"), 1)
