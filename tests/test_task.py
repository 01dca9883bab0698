"""A task that the package does not know is prepared, trained and validated like translation."""

import dataclasses
import json
import math
import pathlib
import random
import re
import types

import numpy as np
import pytest
import tensorflow as tf
from test_architecture import arrays
from toy_task import LOWER, Tagger, TaggerConfig, Tagging, tag

import t2t_keras
from t2t_keras.beam import preparing
from t2t_keras.config import DataConfig, DecodeConfig, ModelConfig, TrainConfig
from t2t_keras.data import batching, prepare, shards, text_files
from t2t_keras.model.protocols import make
from t2t_keras.model.transformer import Transformer
from t2t_keras.reporting import curves
from t2t_keras.runs import checkpoint, registry, run_options
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.text import vocabulary
from t2t_keras.training import devices, run, train_step
from t2t_keras.training.state import TrainState

WORDS = "ship the a sails to in and sees rome anna paris nato usa".split()
CASES = {word: word.title() for word in ("rome", "anna", "paris")} | {word: word.upper() for word in ("nato", "usa")}
GIVEN = {
    "architecture": "tagger", "train_source": "train.txt", "valid_source": "valid.txt", "vocab_size": 300,
    "warmup_steps": 60, "batch_tokens": 1000, "micro_batch_tokens": 300, "buckets_per_update": 1, "valid_steps": 60,
    "checkpoint_steps": 60, "log_steps": 60, "max_length": 60,
}  # fmt: skip


def sentences(number: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [
        " ".join(CASES.get(word, word) for word in draw.choices(WORDS, k=draw.randint(1, 6))) for _ in range(number)
    ]


def trained(model_dir: pathlib.Path, **given) -> TrainState:
    data_dir = "" if (model_dir / "config.json").exists() else str(model_dir.parent / "data")
    return run.train(Start.open(model_dir, given, data_dir), strategy=devices.make_strategy(2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A run of 120 updates on two devices."""
    folder = tmp_path_factory.mktemp("tagging")
    for split, number in (("train", 500), ("valid", 50)):
        (folder / f"{split}.txt").write_text("\n".join(sentences(number, seed=number)) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        trained(folder / "whole", **GIVEN, train_steps=120)
    return folder


@pytest.mark.medium
def test_a_record_has_the_columns_of_the_task(folder):
    info = shards.read_info(folder / "data/train")
    assert info["columns"] == {"words": True, "case": False} and info["pairs"] == 500
    read = shards.read(folder / "data/train", list(range(len(info["shards"]))))
    words, case = (
        tf.RaggedTensor.from_row_lengths(read[f"{name}_ids"], read[f"{name}_lengths"]).to_list()
        for name in ("words", "case")
    )
    tokenizer = vocabulary.load((folder / "data/subwords.model").read_bytes())
    texts = [text.decode() for text in tokenizer.detokenize(tf.ragged.constant(words, tf.int32)).numpy()]
    assert sorted(texts) == sorted(line.lower() for line in sentences(500, seed=500))
    for text, ids, tags in zip(texts, words, case, strict=True):
        assert len(ids) == len(tags) and tags[-1] == LOWER
        first_pieces = [place for place, piece in enumerate(ids) if tokenizer.pieces[piece].startswith("▁")]
        assert [tags[place] for place in first_pieces] == [tag(CASES.get(word, word)) for word in text.split()]


@pytest.mark.medium
def test_batches_keep_to_the_budget_and_their_columns_belong_together(folder):
    epoch = [*batching.batches(folder / "data/train", batch_tokens=100, seed=1, epochs=1)]
    assert sum(int(tf.math.count_nonzero(batch["words"][:, 0])) for batch in epoch) == 500
    for batch in epoch:
        assert batch["words"].shape == batch["case"].shape and tf.size(batch["words"]) <= 100
        np.testing.assert_array_equal(batch["words"] > 0, batch["case"] > 0)


@pytest.mark.medium
def test_a_checkpoint_has_all_weights(folder):
    sizes = [array.size for name, array in arrays(folder / "whole").items() if name.startswith("model/")]
    assert sum(sizes) == TaggerConfig(300).num_weights


@pytest.mark.medium
def test_validation_has_the_figures_of_the_task_and_selects_the_best_checkpoint_by_its_metric(folder, drawn_curves):
    scalars = curves.read(folder / "whole")
    accuracy = scalars["valid/accuracy"]
    assert [*accuracy] == [60, 120] and accuracy[120] > 0.9 and scalars["train/accuracy"][120] > 0.85
    assert not {"valid/bleu", "valid/perplexity", "train/smoothed_loss"} & scalars.keys()
    state = json.loads(str(np.load(checkpoint.kept(folder / "whole")[-1])["state"]))
    best = max(accuracy.values()), max(accuracy, key=accuracy.get)
    assert (state["best"], state["best_step"]) == (pytest.approx(best[0]), best[1])
    assert (folder / "whole/curves.png").exists() and drawn_curves({"whole": scalars}).startswith(b"\x89PNG")


@pytest.mark.medium
def test_accuracy_is_that_of_the_model_on_the_validation_set(folder):
    options = SavedRun.open(folder / "whole").options
    model = registry.architecture("tagger").model_class()(options.model)
    checkpoint.load(folder / "whole", "latest", model)
    right = total = 0
    for batch in batching.batches(folder / "data/valid", batch_tokens=1000, seed=0, epochs=1):
        there = batch["case"].numpy() > 0
        right += (np.argmax(model(batch["words"]), axis=-1) == batch["case"].numpy())[there].sum()
        total += there.sum()
    assert curves.read(folder / "whole")["valid/accuracy"][120] == pytest.approx(right / total, abs=1e-6)


@pytest.mark.medium
def test_beam_writes_the_same_files(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    data = DataConfig(train_source="train.txt", valid_source="valid.txt", max_length=60)
    prepare.Preparation(data, 300, 1, tmp_path / "beam", registry.task("case_tagging")).run(
        preparing.writer("DirectRunner")
    )
    for path in (folder / "data/train").iterdir():
        assert (tmp_path / "beam/train" / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.medium
def test_data_of_another_task_is_refused(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(ValueError, match=re.escape("`task` was case_tagging, and is now translation")):
        prepare.Preparation(DataConfig(), 300, 1, folder / "data", registry.task("translation")).run()


@pytest.mark.parametrize(("given", "message"), [
    ({"best_metric": "bleu"}, "Expected `best_metric` to be one of accuracy, loss. Received: best_metric=bleu."),
    ({"train_source": "a", "train_target": "b"},
     "Expected `train_source`, or none, for the task case_tagging. Received: train_source=a, train_target=b."),
])  # fmt: skip
def test_a_metric_and_a_side_of_another_task_are_refused(tmp_path, given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Start.open(tmp_path, {"architecture": "tagger", **given})


def test_a_metric_of_translations_needs_some_also_in_a_task_of_somebody(tmp_path, monkeypatch):
    """Story: a run whose `best_metric` was chrF of no sentences ended at its first validation."""
    chrf = t2t_keras.Metric("chrf", "chrF", valid="chrF of greedy translations.", translates=True)
    monkeypatch.setattr(Tagging, "metrics", (*Tagging.metrics, chrf))
    monkeypatch.setattr(Tagging, "best_metrics", ("chrf", "accuracy"))
    given = {"architecture": "tagger", "valid_sentences": 0}
    Start.open(tmp_path, {**given, "best_metric": "accuracy"})
    with pytest.raises(ValueError, match="`best_metric=chrf` needs `valid_sentences` above 0. Received: best_metric="):
        Start.open(tmp_path, given)


def test_a_task_has_its_own_default_metric_and_sums_of_its_own(monkeypatch):
    assert run_options.Options.default("tagger").train.best_metric == "accuracy"
    monkeypatch.setattr(Tagging, "sums", ("loss", "smoothed_loss", "finite", "correct", "seconds"))
    with pytest.raises(ValueError, match=re.escape("names than those of every task. Received: finite, seconds.")):
        registry.task_of("tagger")


@pytest.mark.parametrize(("fault", "message"), [
    ({"target": "tags"}, "Expected `target` of the task 'case_tagging' to be one of its columns, words, case. "
     "Received: 'tags'."),
    ({"loss": t2t_keras.Task.loss}, "Expected the methods `records` and `loss` of the task 'case_tagging'. It lacks "
     "`loss`."),
])  # fmt: skip
def test_a_task_that_cannot_be_trained_is_refused_before_text_is_read(monkeypatch, fault, message):
    for name, value in fault.items():
        monkeypatch.setattr(Tagging, name, value)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        registry.task_of("tagger")


def test_a_task_has_the_name_of_its_registration(monkeypatch):
    monkeypatch.setattr(registry, "_tasks", {"first": Tagging, "second": Tagging})
    assert [registry.task(name).name for name in ("first", "second", "first")] == ["first", "second", "first"]


@pytest.mark.parametrize(("fault", "message"), [
    ({"num_weights": 1_000}, r"^Expected `num_weights` of TaggerConfig to be the number of weights of Tagger, [\d,]+\. "
     r"Received: 1,000\.$"),
    ({"flops": t2t_keras.SequenceModel.flops}, "^Expected a method `flops` of Tagger, which counts its operations.$"),
])  # fmt: skip
def test_a_model_that_does_not_count_its_weights_or_its_operations_is_refused_when_it_is_made(
    monkeypatch, fault, message
):
    """Story: a run with a wrong number of weights was trained and saved, and then called damaged."""
    for name, value in fault.items():
        monkeypatch.setattr(TaggerConfig if name == "num_weights" else Tagger, name, value)
    with pytest.raises(ValueError, match=message):
        make(registry.architecture("tagger"), TaggerConfig(vocab_size=40, d_model=8))


@pytest.mark.parametrize("name", ["position", "damaged", "Words", "a-b", ""])
def test_a_column_has_a_name_that_can_be_read_back(tmp_path, name):
    with pytest.raises(ValueError, match="Expected columns named in lower case, and not position or damaged."):
        shards.write(tmp_path, [([5], [1])], count=1, vocab_size=9, seed=0, columns={"words": True, name: False})


ROWS_WITHOUT_INTEGERS = "Expected one integer or more in each row of column 'case'. Received: "


@pytest.mark.parametrize(("ids", "message"), [
    *(([value], "Expected integers from 1 to 65,535 in column 'case'. Received:") for value in (0, -1, 2**16)),
    ([], f"{ROWS_WITHOUT_INTEGERS}none in a row."),
    (np.array([1.5]), f"{ROWS_WITHOUT_INTEGERS}numbers of type float64."),
])  # fmt: skip
def test_a_column_has_integers_in_each_row_that_are_no_padding_and_fit_its_type(tmp_path, ids, message):
    columns = {"words": True, "case": False}
    with pytest.raises(ValueError, match=re.escape(message)):
        shards.write(tmp_path, [([5, 6], [1]), ([5], ids)], count=2, vocab_size=9, seed=0, columns=columns)


@pytest.mark.medium
@pytest.mark.parametrize(("change", "received"), [
    (lambda records: records[1:], "1 records of 2 lines"),
    (lambda records: [each[:1] for each in records], "a record of 1 columns"),
])  # fmt: skip
def test_a_task_makes_a_whole_record_of_each_line(folder, monkeypatch, change, received):
    records, tokenizer = Tagging.records, vocabulary.load((folder / "data/subwords.model").read_bytes())
    monkeypatch.setattr(Tagging, "records", lambda *args: change(list(records(*args))))
    lines = iter([(b"the ship",), (b"Anna",)])
    with pytest.raises(ValueError, match=re.escape(f"for each line (words, case). Received: {received}.")):
        list(prepare.encode(lines, tokenizer, 40, text_files.Report(), registry.task("case_tagging")))


def test_the_limit_of_lengths_is_that_of_the_columns_that_count(monkeypatch):
    monkeypatch.setattr(
        Tagging, "records", lambda self, tokenizer, lines: [(np.ones(len(line)), np.ones(9)) for line in lines]
    )
    report = text_files.Report(pairs=2)
    first, second = prepare.encode(iter([(b"abc",), (b"abcd",)]), None, 3, report, registry.task("case_tagging"))
    assert [len(column) for column in first] == [3, 9] and second is None
    assert report == text_files.Report(pairs=1, too_long=1)


@pytest.mark.medium
def test_other_sums_than_the_task_names_are_refused_before_the_first_update(folder, monkeypatch):
    monkeypatch.setattr(Tagging, "sums", ("smoothed_loss", "correct"))
    options = run_options.Options.default("tagger")
    model = registry.architecture("tagger").model_class()(options.model)
    columns = {"words": tf.constant([[5, 6]]), "case": tf.constant([[1, 1]])}
    message = "Expected the sums smoothed_loss, correct from `loss` of the task case_tagging. Received: loss, "
    with pytest.raises(ValueError, match=message):
        train_step.micro_batch_gradients(
            model, registry.task("case_tagging"), options.train, columns, step=0, micro_batch=0, replica=0, scale=1.0
        )


@pytest.mark.medium
def test_a_tagger_does_not_translate(folder):
    with pytest.raises(ValueError, match="does not translate: its architecture is"):
        t2t_keras.load(folder / "whole")


def test_an_encoder_has_the_names_of_weights_that_it_has_in_the_translator(tmp_path):
    config = ModelConfig(50, encoder_layers=2, decoder_layers=1, d_model=8, d_ff=12, num_heads=2, d_k=4, d_v=4)
    translator, encoder = Transformer(config), t2t_keras.TransformerEncoder(config)
    expected = {weight.path for weight in translator.weights if "decoder" not in weight.path}
    assert {weight.path for weight in encoder.weights} == expected
    checkpoint.write(checkpoint.path_of(tmp_path, 7), translator, None, {})
    _, left = checkpoint.start(tmp_path, "latest", encoder)
    assert left.unset == [] and {name for name in left.unused if "decoder" not in name} == set()
    ids = np.array([[5, 6, 7, 3, 0], [8, 3, 0, 0, 0]])
    np.testing.assert_array_equal(encoder(ids), translator.encoder(ids))


@pytest.mark.parametrize(("name", "of_batch", "on_disk"), [
    ("translation", {"source": "counted text", "target": "counted text"}, None),
    ("classification", {"tokens": "counted text", "label": ""}, {"tokens": "counted text", "name": ""}),
    ("pretraining", {"tokens": "counted text", "masked": "", "target": "text", "following": ""},
     {"tokens": "counted text", "lengths": "", "document": ""}),
])  # fmt: skip
def test_of_the_columns_of_a_task_those_that_the_network_reads_count_and_ids_of_sub_words_are_text(
    name, of_batch, on_disk
):
    task = registry.task(name)
    for columns, expected in ((task.columns, of_batch), (task.stored, on_disk or {})):
        kinds = {each.name: " ".join(["counted"] * each.counted + ["text"] * each.is_text) for each in columns}
        assert kinds == expected


@pytest.mark.parametrize(("name", "training", "validation"), [
    ("translation", {"loss": 1.5, "perplexity": math.exp(1.5), "smoothed_loss": 2.0},
     {"loss": 1.5, "perplexity": math.exp(1.5)}),
    ("classification", {"loss": 1.5, "accuracy": 0.5}, {"loss": 1.5, "accuracy": 0.5}),
    ("pretraining", *[{"loss": 1.5, "masked_accuracy": 0.5, "next_loss": 0.75, "next_accuracy": 0.25}] * 2),
])  # fmt: skip
def test_what_a_task_measures_is_a_mean_and_has_a_curve(name, training, validation):
    """BLEU, which is a curve of validation too, is measured apart."""
    task = registry.task(name)
    sums = {
        "target_tokens": 4.0, "loss": 6.0, "smoothed_loss": 8.0, "right": 2.0, "next_loss": 3.0, "next_right": 2.0,
        "texts": 8.0,
    }  # fmt: skip
    assert task.measure(sums, True) == pytest.approx(training)
    assert task.measure(sums, False) == pytest.approx(validation)
    assert {each.name for each in task.metrics if each.train} == training.keys()
    assert {each.name for each in task.metrics if each.valid} - {"bleu"} == validation.keys()
    assert set(task.best_metrics) <= {each.name for each in task.metrics if each.valid}


def test_validation_translates_so_many_sentences_greedily_and_shows_the_first_five(monkeypatch, messages):
    seen = {}

    def translate_lines(greedy, sources, *, batch_size):
        seen.update(search=greedy.decode, sources=sources, batch_size=batch_size)
        return [{"text": f"{line.upper()}|"} for line in sources]

    def translator(model, tokenizer, decode):
        return types.SimpleNamespace(
            model=model, tokenizer=tokenizer, decode=decode, limits=types.SimpleNamespace(batch_size=7)
        )

    def bleu(hypotheses, references):
        seen.update(hypotheses=hypotheses, references=references)
        return {"bleu": 12.5}

    monkeypatch.setattr("t2t_keras.decoding.translator.Translator", translator)
    monkeypatch.setattr("t2t_keras.decoding.translator.translate_lines", translate_lines)
    monkeypatch.setattr("t2t_keras.evaluation.scores.bleu", bleu)
    monkeypatch.setattr(
        "t2t_keras.reporting.pictures.attention_images", lambda *given: lambda: {"attention": given[1:]}
    )
    decode = DecodeConfig(beam_size=4, alpha=0.25, diverse_groups=2)
    options = types.SimpleNamespace(decode=decode, train=TrainConfig(valid_sentences=6, attention_images=3))
    sources, references = list("abcdefgh"), list("12345678")
    task = registry.task("translation")
    found = task.validation("a model", "a tokenizer", options, (sources, references))()
    assert seen == {
        "search": dataclasses.replace(decode, beam_size=1, diverse_groups=1), "sources": sources[:6], "batch_size": 7,
        "hypotheses": ["A|", "B|", "C|", "D|", "E|", "F|"], "references": references[:6],
    }  # fmt: skip
    rows = [
        f"| {source} | {source.upper()}\\| | {reference} |" for source, reference in zip("abcde", "12345", strict=True)
    ]
    assert found == {
        "bleu": 12.5,
        "samples": "\n".join(["| source | translation | reference |", "| --- | --- | --- |", *rows]),
        "attention": ([*zip("abcdef", "123456", strict=True)], 3),
    }
    assert not messages
    spaced, unspaced = ["twenty characters or more"] * 7, ["天气" * 11] * 7
    for metric, lines in (("bleu", spaced), ("bleu", unspaced), ("loss", unspaced)):
        given = types.SimpleNamespace(decode=decode, train=TrainConfig(valid_sentences=6, best_metric=metric))
        task.validation("a model", "a tokenizer", given, (sources, lines))
    assert messages == [
        "Validation BLEU counts words between spaces, which the script of the references does not have: choose "
        "`best_metric=loss`."
    ]
    none = types.SimpleNamespace(decode=decode, train=TrainConfig(valid_sentences=0, best_metric="loss"))
    assert task.validation("a model", "a tokenizer", none, (sources, references))() == {}
