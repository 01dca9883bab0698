"""Classifiers of sentences and pairs: records, losses by hand, what they start from, and their exports."""

import dataclasses
import hashlib
import json
import os
import pathlib
import random
import re
import types

import keras
import numpy as np
import programs
import pytest
import tensorflow as tf
from logged import logged
from test_pretraining import GIVEN as PRETRAINING
from test_pretraining import SUBJECTS, Letters, documents, dropouts_drawn

import t2t_keras
from t2t_keras.config import BOS, EOS, ClassifierConfig, DataConfig, ModelConfig, TrainConfig
from t2t_keras.data import prepare, shards
from t2t_keras.evaluation import bag_of_words
from t2t_keras.model.bert import Classifier
from t2t_keras.runs import checkpoint, export_folder, run_options
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving import classifier
from t2t_keras.system import files
from t2t_keras.tasks import classification
from t2t_keras.text import vocabulary
from t2t_keras.training import devices, run

SMALL = ClassifierConfig(300, encoder_layers=1, d_model=8, d_ff=12, num_heads=2, dropout=0.0, labels="no,yes,perhaps")

# Records and losses.


def test_a_record_has_the_sentences_between_separators_and_the_bytes_of_the_label():
    lines = [b"yes\tab c", b"no\t a \tbc ", b"yes\td"]
    found = []
    for ids, label in classification.Classification().records(Letters(), lines):
        parts = np.split(ids, np.flatnonzero(ids == EOS) + 1)
        found.append((["".join(map(chr, part[part > EOS])) for part in parts], ids[0], label.tolist()))
    assert found == [(["abc", ""], BOS, [*b"yes"]), (["a", "bc", ""], BOS, [*b"no"]), (["d", ""], BOS, [*b"yes"])]


def test_defaults_of_training_are_those_of_bert():
    """The rate and the norm of clipping are those of its run_classifier.py and optimization.py."""
    expected = {"label_smoothing": 0.0, "learning_rate": 5e-5, "warmup_steps": 100, "clip_norm": 1.0}
    assert classification.Classification.defaults == expected


def test_a_label_becomes_its_position_whatever_the_names_are():
    """Story: of 300 labels two had the same number, and were refused as no different names."""
    names = [f"label {number}" for number in range(3000)] + ["é", "ü"]
    options = types.SimpleNamespace(model=ClassifierConfig(labels=",".join(names)))
    records = records_of(given := ["label 2999", "é", "label 0", "ü"])
    renewed = classification.Classification().renewal(None, options, training=True).change(records, [1, 2])
    assert renewed["label"].to_list() == [[3000], [3001], [1], [3002]] and renewed["tokens"] is records["tokens"]
    assert renewed["label"].dtype == tf.int32
    assert len(given) == 4


def records_of(labels: list[str]) -> dict:
    task = classification.Classification()
    ids, found = zip(*task.records(Letters(), [f"{name}\ta b".encode() for name in labels]), strict=True)
    columns = [[list(map(int, row)) for row in rows] for rows in (ids, found)]
    return {name: tf.ragged.constant(rows, tf.int32) for name, rows in zip(task.on_disk, columns, strict=True)}


def test_another_label_of_the_training_text_is_an_error():
    """Story: such texts were left out without a message, in data that was prepared before."""
    change = classification.Classification().renewal(None, types.SimpleNamespace(model=SMALL), training=True).change
    records = records_of(["yes", "néutral", "no", "odd", "odd"])
    expected = "Expected `labels` of the text. Received: labels=no,yes,perhaps, and in the text néutral, odd"
    with pytest.raises(ValueError, match=f"{re.escape(expected)}$"), shards.plain_errors():
        tf.data.Dataset.from_tensors(records).map(lambda records: change(records, [1, 2])).get_single_element()


def test_sub_words_are_learned_from_the_sentences_alone(tmp_path):
    """Story: with the tab before them, first words were without the mark of a word, and labels were sub-words."""
    for split in ("train", "valid"):
        (tmp_path / split).write_text("positive\tThe ship\tThe wave\nnegative\tThe barn\n" * 50)
    data = DataConfig(train_source=str(tmp_path / "train"), valid_source=str(tmp_path / "valid"))
    prepare.Preparation(data, 290, 1, tmp_path / "data", classification.Classification()).run()
    pieces = vocabulary.load((tmp_path / "data/subwords.model").read_bytes()).pieces
    assert "▁The" in pieces and not any("pos" in piece or "neg" in piece or "\t" in piece for piece in pieces)


@pytest.mark.parametrize("line", ["only text", "yes\t", "yes\t ", "\ttext", "yes\ta\tb\tc", "yes\ta\t", "yes\t\u200b"])
def test_a_line_of_other_fields_is_refused_with_its_number(line):
    expected = "train.tsv, line 4: Expected a label and one sentence or two, with tabs between them"
    with pytest.raises(ValueError, match=expected):
        classification.read(["no\tb", "", " ", line], "train.tsv")


def test_spaces_around_labels_and_sentences_do_not_count_and_blank_lines_are_none():
    found = classification.read([" no \t b c ", "  ", "\u3000", "yes\ta\t b"], "train.tsv")
    assert found == [("no", "b c"), ("yes", "a", "b")]
    with pytest.raises(ValueError, match="Expected labels and sentences in train.tsv. Received: blank lines."):
        classification.read(["", " "], "train.tsv")


@pytest.mark.parametrize("header", ["Label\tsentence", "text\tlabel", "class\tquestion\tanswer", "sentiment\ttext"])
def test_a_header_is_no_class(header):
    """Story: its name was one of the classes, without a word."""
    rows = ["no\ta", "yes\ta label", "no\tlabel"]
    for lines in (["", header, *rows], [header, *rows, header, *rows], [header]):
        with pytest.raises(
            ValueError, match=re.escape(f"Expected train.tsv without a header. Received: {header!r} as")
        ):
            classification.read(lines, "train.tsv")
    for lines in (rows, rows[::-1], [header, *rows, f"{header} a"], ["noun\tclass", *rows]):
        assert len(classification.read(lines, "train.tsv")) == len(lines)


def test_losses_are_those_of_the_probabilities():
    model = Classifier(SMALL)
    tokens = np.array([[BOS, 300 - 1, 7, EOS], [BOS, 8, EOS, 0], [BOS, 9, 11, EOS], [0, 0, 0, 0]])
    label = np.array([[2], [3], [1], [0]])
    log_probs = np.log(tf.nn.softmax(model.class_logits(tokens)).numpy())[:3]
    classes = np.array([1, 2, 0])
    of_class = log_probs[np.arange(3), classes]
    given = {"label_smoothing": 0.3, "training": False}
    sums = classification.Classification().loss(model, {"tokens": tokens, "label": label}, **given)
    sums = {name: float(value) for name, value in sums.items()}
    assert sums["loss"] == pytest.approx(-of_class.sum(), rel=1e-5)
    assert sums["objective"] == pytest.approx(-(0.7 * of_class + 0.3 * log_probs.mean(axis=1)).sum(), rel=1e-5)
    assert sums["right"] == (log_probs.argmax(axis=1) == classes).sum()
    assert model.count_params() == SMALL.num_weights


def test_every_dropout_acts_in_training_and_none_in_validation():
    model = Classifier(dataclasses.replace(SMALL, dropout=0.5))
    batch = {"tokens": np.array([[BOS, 7, EOS]]), "label": np.array([[2]])}
    task = classification.Classification()
    drawn = dropouts_drawn(model, lambda training: task.loss(model, batch, label_smoothing=0.0, training=training))
    assert "pooled_dropout" in drawn and len(drawn) == 5


def test_a_classifier_without_labels_is_refused():
    with pytest.raises(ValueError, match="A classifier needs `labels`, the names of the classes."):
        Classifier(ClassifierConfig(300, encoder_layers=1, d_model=8, d_ff=12, num_heads=2))


@pytest.mark.parametrize("labels", ["yes", "yes,yes", "yes,,no", ","])
def test_labels_are_different_names(labels):
    with pytest.raises(ValueError, match="`labels` must be two different names or more. Received: labels="):
        ClassifierConfig(labels=labels)


def test_a_bag_of_words_distinguishes_sides():
    pytest.importorskip("sklearn")
    texts = [("a", "cat dog", "cow"), ("b", "cow", "cat dog")] * 10
    assert bag_of_words.accuracy(texts, texts[:2]) == 1
    tested = [("a", "a Cat"), ("b", "dog dog"), ("a", "dog")]
    assert bag_of_words.accuracy([("a", "cat"), ("b", "dog")] * 5, tested) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="`bag_of_words` must be text with two labels or more. Received: a only."):
        bag_of_words.accuracy([("a", "cat"), ("a", "dog")], tested)


@pytest.mark.parametrize(("state", "update"), [({"step": 7}, 7), ({}, None)])
def test_an_export_is_described_and_not_written_into_a_run(monkeypatch, tmp_path, state, update):
    model, subwords = types.SimpleNamespace(config=SMALL, weights=[]), types.SimpleNamespace(model=b"sub-words")
    loaded = types.SimpleNamespace(model=model, tokenizer=subwords, names=SMALL.names, max_length=64, classify=None)
    asked = []
    monkeypatch.setattr(classifier, "load", lambda *arguments: asked.append(arguments) or (loaded, state))
    run = SavedRun(tmp_path / "run", {"model": {}, "architecture": "classifier"})
    monkeypatch.setattr(tf.saved_model, "save", lambda held, path, signatures: None)
    version = classifier.export(tmp_path / "export", run, "best")
    assert asked == [(run, "best")]
    description = json.loads((version / export_folder.EXTRA / export_folder.DESCRIPTION).read_text())
    assert description.pop("versions") == {"t2t_keras": t2t_keras.__version__, "tensorflow": tf.__version__}
    assert description == {
        "model": dataclasses.asdict(SMALL), "labels": ["no", "yes", "perhaps"], "max_length": 64,
        "architecture": "classifier", "subwords_sha256": hashlib.sha256(b"sub-words").hexdigest(), "checkpoint": "best",
        "update": update,
    }  # fmt: skip
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / files.CONFIG).touch()
    with pytest.raises(ValueError, match=f"{tmp_path / 'run'} holds a run, and cannot hold exports."):
        classifier.export(tmp_path / "run", run)


# A run that starts from an encoder.

TRAINING = {
    "train_source": "train.tsv", "valid_source": "valid.tsv", "dropout": 0.0, "warmup_steps": 10, "learning_rate": 0.01,
    "batch_tokens": 600, "micro_batch_tokens": 300, "buckets_per_update": 2, "valid_steps": 15, "checkpoint_steps": 15,
    "log_steps": 5,
}  # fmt: skip
SIZES = {name: PRETRAINING[name] for name in ("vocab_size", "encoder_layers", "d_model", "d_ff", "num_heads")}


def examples(number: int, seed: int) -> list[tuple[str, str, str]]:
    """Whether two sentences are of one subject."""
    draw, found = random.Random(seed), []
    for _ in range(number):
        one, two = draw.choices(list(SUBJECTS), k=2)
        words = ([draw.choice(SUBJECTS[each]) for _ in range(2)] for each in (one, two))
        found.append(("same" if one == two else "other", *(f"the {a} is by the {b}" for a, b in words)))
    return found


def program(*given, **options):
    return programs.tool("classify", *given, text=False, timeout=120, **options)


def test_a_classifier_has_the_weights_that_were_asked_for_and_the_arithmetic_and_length_of_training(
    tmp_path, monkeypatch
):
    """And room on the GPU is left for others."""
    called = []
    groups = {"train": TrainConfig(tf32=False), "data": DataConfig(max_length=24)}
    options = run_options.Options(SMALL, **groups, architecture="classifier")
    (tmp_path / "subwords").touch()
    (tmp_path / "run").mkdir()
    run = SavedRun.write(tmp_path / "run", options, tmp_path / "subwords", None)
    model = types.SimpleNamespace(config=SMALL)
    monkeypatch.setattr(classifier, "share_gpus", lambda: called.append("share"))
    monkeypatch.setattr(classifier, "choose_float32", lambda *given: called.append(given))
    monkeypatch.setattr(classifier, "make_model", lambda *given: called.append(given) or (model, "sub-words"))
    monkeypatch.setattr(checkpoint, "load", lambda *given: called.append(given) or ("best weights", {"step": 7}))
    found, state = classifier.load(run, "best")
    assert called == ["share", (False,), (run, "best"), (run.folder, "best", model)]
    assert (found.model, found.tokenizer, found.max_length, state) == (model, "sub-words", 24, {"step": 7})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A pretrained encoder, and a classifier of pairs that starts from it, trained by the program."""
    folder = tmp_path_factory.mktemp("classifier")
    for split, number in (("train", 60), ("valid", 20)):
        (folder / f"{split}.txt").write_text(documents(number, seed=number))
        lines = ("\t".join(fields) + "\n" for fields in examples(number * 3, seed=number))
        (folder / f"{split}.tsv").write_text("".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        given = PRETRAINING | {"train_steps": 3, "checkpoint_steps": 3, "valid_steps": 3}
        run.train(
            Start.of(folder / "bert", Start.open(folder / "bert", given).options), strategy=devices.make_strategy()
        )
    flags = [f"--{name}={value}" for name, value in TRAINING.items()]
    result = program(*flags, "--train_steps=15", "--encoder_from=bert", "--model_dir=pairs", cwd=folder)
    assert result.returncode == 0, result.stderr.decode()
    assert b"--predict < text" in result.stdout and b" per text, " in result.stderr
    assert b", texts/s " in result.stderr
    return folder


@pytest.mark.medium
def test_the_labels_are_those_of_the_training_text_and_the_sizes_and_sub_words_those_of_the_encoder(folder):
    options = SavedRun.open(folder / "pairs").options
    assert options.model == ClassifierConfig(**SIZES, dropout=0.0, labels="other,same")
    assert options.train.label_smoothing == 0.0 and options.train.best_metric == "accuracy"
    assert options.sources["d_ff"] == "parent: given" and options.sources["labels"] == "given"
    assert (folder / "pairs/subwords.model").read_bytes() == (folder / "bert/subwords.model").read_bytes()
    recorded = json.loads((folder / "pairs/config.json").read_text())
    assert recorded["parent"] == {"checkpoints": checkpoint.identity(folder / "bert", "average")}


def arrays_of(model_dir: pathlib.Path, step: int) -> dict:
    with np.load(checkpoint.path_of(model_dir, step)) as archive:
        return {name: archive[name] for name in archive.files if name.startswith("model/")}


@pytest.mark.medium
@pytest.mark.parametrize("architecture", ["classifier", "transformer"])
def test_the_encoder_starts_with_the_weights_of_the_run(folder, monkeypatch, architecture):
    """After one update with a rate of almost 0: the same but for the heads, and how many are told."""
    monkeypatch.chdir(folder)
    given = {"architecture": architecture, "encoder_from": "bert", "train_steps": 1, "learning_rate": 1e-12}
    if architecture == "classifier":
        given |= {name: TRAINING[name] for name in ("train_source", "valid_source")} | {"labels": "other,same"}
    else:
        given |= {"dataset": "builtin", "builtin_pairs": 200, "decoder_layers": 1}
        given |= {"valid_sentences": 0, "best_metric": "loss"}
    with logged() as said:
        start = Start.open(folder / architecture, given | {"warmup_steps": 1})
        run.train(start, strategy=devices.make_strategy())
    theirs, ours = arrays_of(folder / "bert", 3), arrays_of(folder / architecture, 1)
    same = {name for name in ours if name in theirs}
    for name in same:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-6, err_msg=name)
    expected = {name for name in theirs if "/transformer/" in name and "logits_bias" not in name}
    if architecture == "classifier":
        expected |= {name for name in theirs if "pooler" in name}
    else:
        expected -= {name for name in theirs if "second" in name}
    assert same == expected and len(same) > 15
    assert f"{len(same)} of {len(ours)} weights come from the parent." in "\n".join(said)


@pytest.mark.medium
def test_a_run_without_such_an_encoder_is_refused(folder, tmp_path):
    (tmp_path / "rnn").mkdir()
    of_bert = folder / "bert/subwords.model", folder / "bert/data/train/records.tsv"
    SavedRun.write(tmp_path / "rnn", run_options.Options.default("rnn"), *of_bert)
    checkpoint.path_of(tmp_path / "rnn", 3).parent.mkdir()
    checkpoint.path_of(tmp_path / "rnn", 3).with_suffix(".json").write_text("{}")
    for own, architecture in ((tmp_path / "rnn", "classifier"), (folder / "bert", "rnn")):
        expected = "Expected an encoder of the Transformer, with one vocabulary, as `encoder_from`. Received: arch"
        with pytest.raises(ValueError, match=expected):
            Start.open(tmp_path / "new", {"encoder_from": str(own), "architecture": architecture})
    others = {"sinusoids": "tensor2tensor", "first_position": 2, "attention": "unscaled"}
    other = ModelConfig(400, d_model=8, num_heads=2, d_k=3, d_v=4, **others)
    SavedRun.write(tmp_path / "rnn", run_options.Options(other), *of_bert)
    received = "d_k=3, sinusoids=tensor2tensor, first_position=2, attention=unscaled"
    expected = f"Expected an encoder that architecture=classifier can have. Received: {received} in"
    with pytest.raises(ValueError, match=re.escape(expected)):
        Start.open(tmp_path / "new", {"encoder_from": str(tmp_path / "rnn"), "architecture": "classifier"})
    with pytest.raises(FileNotFoundError, match="Give the `encoder_from` of a training run."):
        Start.open(tmp_path / "new", {"encoder_from": str(tmp_path)})


@pytest.mark.medium
def test_the_program_evaluates_predicts_and_exports(folder):
    """And an export, in a process without this package, tells the same."""
    result = program("--model_dir=pairs", "--evaluate=valid.tsv", "--json", cwd=folder)
    assert result.returncode == 0, result.stderr.decode()
    figures = json.loads(result.stdout)
    texts = examples(60, seed=20)
    lines = ["\t".join(own) for _, *own in texts]
    lines += ["", "a ship", " ".join(["long"] * 400) + "\tthe wave", "é ✓"]
    stdin = "".join(f"{line}\n" for line in lines).encode()
    result = program("--model_dir=pairs", "--predict", "--json", input=stdin, cwd=folder)
    assert result.returncode == 0, result.stderr.decode()
    found = list(map(json.loads, result.stdout.decode().splitlines()))
    assert len(found) == len(lines)
    for each in found:
        assert list(each["probabilities"]) == ["other", "same"]
        assert sum(each["probabilities"].values()) == pytest.approx(1)
        assert each["label"] == max(each["probabilities"], key=each["probabilities"].get)
    right = np.mean([each["label"] == label for each, (label, *_) in zip(found, texts, strict=False)])
    assert figures["accuracy"] == pytest.approx(right) and figures["texts"] == 60
    assert figures["most_frequent_label_here"] == pytest.approx(np.mean([label == "other" for label, *_ in texts]))
    assert "most_frequent_label_of_training" not in figures

    result = program("--model_dir=pairs", "--export_dir=export", cwd=folder)
    assert result.returncode == 0, result.stderr.decode()
    code = (
        "import json, sys, tensorflow as tf, tensorflow_text\n"
        "found = "
        "tf.saved_model.load(sys.argv[1]).signatures['serving_default'](text=tf.constant(json.load(sys.stdin)))\n"
        "assert not {'t2t_keras'} & sys.modules.keys(), 'the package is used'\n"
        "print(json.dumps([[label.decode() for label in found['label'].numpy()], "
        "found['probabilities'].numpy().tolist(), [[label.decode() for label in row] for row in "
        "found['labels'].numpy()]]))"
    )
    labels, probabilities, names = programs.alone(code, folder / "export/1", lines)
    assert labels == [each["label"] for each in found] and names == [["other", "same"]] * len(lines)
    np.testing.assert_allclose(probabilities, [list(each["probabilities"].values()) for each in found], atol=1e-5)
    written = (folder / "export/1/assets.extra/t2t_keras.json").read_text()
    description = json.loads(written)
    assert written == json.dumps(description, indent=2) + "\n"  # For people too.
    assert description["labels"] == ["other", "same"] and description["update"] == 15
    with pytest.raises(ValueError, match="an export of a translator of t2t_keras. Received: .*/1, a classifier."):
        t2t_keras.load(folder / "export")


@pytest.mark.medium
def test_the_words_of_a_prediction_are_those_of_training(folder):
    """And of two long sentences each has at least half of the room."""
    model, _ = classifier.load(SavedRun.open(folder / "pairs"))
    lines = ["same\tthe ship is by the wave\tthe barn is by the corn", "same\tthe ship"]
    found = classification.Classification().records(model.tokenizer, [line.encode() for line in lines])
    records = [ids.tolist() for ids, _ in found]
    tokens = model.tokens(tf.constant([line.partition("\t")[2] for line in lines])).numpy()
    assert [row[row > 0].tolist() for row in tokens] == records
    short = classifier.TextClassifier(model.model, model.tokenizer, 12)
    many = "ship " * 20
    for first, second in ((many, many), (many, "e"), ("e", many), (many, ""), ("e", "e")):
        one, two = (model.tokenizer.words(tf.constant([text])).values.numpy().tolist() for text in (first, second))
        while len(one) + len(two) > (9 if second else 10):  # As in BERT.
            (one if len(one) > len(two) else two).pop()
        expected = [BOS, *one, EOS, *two, *[EOS] * bool(second)]
        assert short.tokens(tf.constant([f"{first}\t{second}"])).numpy().tolist() == [expected]


@pytest.mark.medium
@pytest.mark.parametrize(("given", "expected"), [
    (["--predict", "--evaluate=x"], "The program does one thing at a time. Received: --evaluate and --predict."),
    (["--predict", "--train_steps=5"], "--train_steps has no effect with --predict."),
    (["--predict", "--dry_run", "--cpu_devices=2"], "--cpu_devices and --dry_run have no effect with --predict."),
    (["--evaluate=valid.tsv", "--data_dir=x"], "--data_dir has no effect with --evaluate."),
    (["--bag_of_words=x"], "--bag_of_words has no effect without --evaluate."),
    (["--evaluate="], "--evaluate must be a path. Received: an empty text."),
    (["--export_dir="], "--export_dir must be a path. Received: an empty text."),
    (["--train_source=bad.tsv", "--valid_source=valid.tsv"], "bad.tsv, line 3 is not UTF-8"),
    (["--train_source=valid.tsv", "--valid_source=bad.tsv"], "bad.tsv, line 3 is not UTF-8"),
    (["--train_source=bad.tsv", "--valid_source=strange.tsv", "--skip_bad_lines"],
     "The labels of --valid_source must be among those of --train_source: a, b."),
    (["--train_source=strange.tsv", "--valid_source=bad.tsv", "--skip_bad_lines"],
     "The labels of --valid_source must be among those of --train_source: neither. Received: a, b."),
    (["--evaluate=valid.tsv", "--output=x"], "--output has no effect without --predict."),
    (["--train_source=train.tsv", "--valid_source=strange.tsv"],
     "The labels of --valid_source must be among those of --train_source: other, same. "),
    (["--train_source=train.tsv", "--valid_source=valid.tsv", "--labels=a,b"],
     "--labels must be those of the training text: other,same."),
    (["--train_source=commas.tsv", "--valid_source=commas.tsv"], "A label must not have a comma. Received: 'a,b'."),
    (["--train_source=commas.tsv", "--valid_pairs=1"], "A label must not have a comma. Received: 'a,b'."),
    (["--train_source=train.txt", "--valid_source=valid.txt"],
     "train.txt, line 1: Expected a label and one sentence or two"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_at_once(folder, given, expected):
    (folder / "strange.tsv").write_text("neither\ta\n")
    (folder / "commas.tsv").write_text("a,b\tx\nc\ty\n")
    (folder / "bad.tsv").write_bytes(b"a\tx\n\nc\t\xff\nb\ty\n")
    result = program("--model_dir=new", *given, cwd=folder, modules=programs.WITHOUT_TENSORFLOW)
    assert result.returncode == 1 and result.stderr.decode().startswith(f"Error: {expected}"), result.stderr.decode()


@pytest.mark.medium
@pytest.mark.parametrize("architecture", ["classifier", "transformer"])
@pytest.mark.parametrize(
    ("option", "value"), [("num_heads", 4), ("activation", "relu"), ("norm", "pre"), ("learned_positions", 300)]
)
def test_options_of_the_encoder_are_those_of_its_run(folder, tmp_path, architecture, option, value):
    """Story: the weights of 2 heads were taken for 4, because their shapes are the same."""
    given = {"architecture": architecture, "encoder_from": str(folder / "bert")}
    theirs = getattr(SavedRun.open(folder / "bert").options.model, option)
    expected = f"Expected {option}={theirs}, of the encoder in {folder / 'bert'}. Received: {option}={value}."
    with pytest.raises(ValueError, match=re.escape(expected)):
        Start.open(tmp_path / "new", given | {option: value})
    free = {option: theirs, "dropout": 0.3, "vocab_size": 400, "parent_subwords": False}
    assert Start.open(tmp_path / "new", given | free).options.model.dropout == 0.3


@pytest.mark.parametrize("architecture", ["bert", "classifier"])
@pytest.mark.parametrize(("given", "expected"), [
    ({"subwords": "sentencepiece", "subwords_file": "x"}, "Received: subwords=sentencepiece."),
    ({"keep_patterns": "urls"}, "Received: keep_patterns=urls."),
    ({"source_tag": "<2de>"}, "Received: source_tag=<2de>."),
    ({"max_length": 513}, "Expected `max_length` of at most the 512 learned positions. Received: max_length=513,"),
    ({"learned_positions": 200}, "Received: max_length=256, learned_positions=200."),
])  # fmt: skip
def test_options_that_do_not_fit_tasks_of_an_encoder_are_refused(tmp_path, architecture, given, expected):
    of_text = {"architecture": architecture, "train_source": "x", "valid_source": "y"}
    with pytest.raises(ValueError, match=re.escape(expected)):
        Start.open(tmp_path, of_text | given)
    Start.open(tmp_path, of_text | {"learned_positions": 0, "max_length": 600})


@pytest.mark.medium
def test_labels_that_the_run_does_not_have_are_not_taken_for_errors(folder):
    (folder / "unknown.tsv").write_text("same\ta ship\nneither\ta barn\n")
    result = program("--model_dir=pairs", "--evaluate=unknown.tsv", cwd=folder, modules=programs.WITHOUT_TENSORFLOW)
    expected = "Error: The labels of --evaluate must be those of the run: other, same. Received: neither."
    assert result.returncode == 1 and result.stderr.decode().startswith(expected), result.stderr.decode()


@pytest.mark.medium
def test_scikit_learn_is_needed_before_a_model_is_loaded(folder, tmp_path):
    """The run has no weights, which would be missed next."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.json").write_bytes((folder / "pairs/config.json").read_bytes())
    (tmp_path / "sklearn.py").write_text("raise ModuleNotFoundError('sklearn')\n")
    given = [f"--model_dir={tmp_path / 'run'}", "--evaluate=valid.tsv", "--bag_of_words=train.tsv"]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    result = program(*given, cwd=folder, modules=programs.WITHOUT_TENSORFLOW, env=environment)
    assert result.returncode == 1 and result.stderr.decode() == f"Error: {bag_of_words.MISSING}\n"


def test_in_bfloat16_logits_are_computed_in_float32_and_a_keras_file_has_its_weights(tmp_path):
    ids, short = np.array([[BOS, 5, 6, EOS]]), Classifier(SMALL, dtype="mixed_bfloat16")
    assert short.class_logits(ids).dtype == "float32" and short(ids).dtype == "bfloat16"
    model = Classifier(SMALL)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.config == SMALL
    np.testing.assert_allclose(loaded.class_logits(ids), model.class_logits(ids), atol=1e-6)


@pytest.mark.medium
def test_more_positions_than_the_encoder_has_from_training_are_reported(folder, monkeypatch):
    """The encoder was trained with max_length=24."""
    monkeypatch.chdir(folder)
    given = {name: TRAINING[name] for name in ("train_source", "valid_source")}
    given |= {"architecture": "classifier", "labels": "other,same", "encoder_from": "bert", "train_steps": 1}
    for length, number in ((40, 1), (24, 0)):
        with logged() as said:
            start = Start.open(folder / f"long_{length}", given | {"max_length": length})
            run.train(start, strategy=devices.make_strategy(), dry_run=True)
        expected = f"Positions beyond 24 were not trained in {folder / 'bert'}. Received: max_length={length}."
        assert sum(expected in line for line in said) == number


@pytest.mark.medium
def test_the_classes_of_a_parent_are_those_of_its_child(folder):
    """Story: the weights of two classes became those of two others, because only their number was compared."""
    flags = ["--parent=pairs", "--train_steps=1", "--dry_run", "--model_dir=child"]
    for name in ("train", "valid"):
        text = (folder / f"{name}.tsv").read_text(encoding="utf-8")
        (folder / f"{name}_renamed.tsv").write_text(text.replace("same\t", "equal\t"), encoding="utf-8")
    result = program("--train_source=train_renamed.tsv", "--valid_source=valid_renamed.tsv", *flags, cwd=folder)
    expected = (
        f"Expected --labels=other,same, of the model in {folder / 'pairs'}. Received: --labels=equal,other. Give it as "
        "--encoder_from"
    )
    assert result.returncode == 1 and expected in result.stderr.decode(), result.stderr.decode()
    (folder / "reversed").mkdir()
    config = json.loads((folder / "pairs/config.json").read_text())
    config["model"]["labels"] = "same,other"
    for path in (folder / "pairs").iterdir():
        if path.name != "config.json" and path.name != "data":
            (folder / "reversed" / path.name).symlink_to(path)
    (folder / "reversed/config.json").write_text(json.dumps(config))
    texts = [f"--{name}={TRAINING[name]}" for name in ("train_source", "valid_source")]
    result = program(*texts, "--parent=reversed", *flags[1:], cwd=folder)
    assert result.returncode == 0, result.stderr.decode()
    assert SavedRun.open(folder / "child").options.model.labels == "same,other"


@pytest.mark.medium
def test_labels_that_the_text_does_not_have_are_refused(folder, monkeypatch):
    monkeypatch.chdir(folder)
    given = {name: TRAINING[name] for name in ("train_source", "valid_source")} | SIZES
    given |= {"architecture": "classifier", "labels": "same,neither", "train_steps": 1}
    with pytest.raises(ValueError, match=re.escape("Received: labels=same,neither, and 'other' in the text.")):
        run.train(Start.open(folder / "strange", given), strategy=devices.make_strategy())


@pytest.mark.medium
def test_runs_of_other_tasks_are_refused(folder):
    with pytest.raises(ValueError, match=re.escape("Expected a run of `t2t-classify`. Received:")):
        classifier.load(SavedRun.open(folder / "bert"))
