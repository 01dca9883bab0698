"""A whole run, small: what its folder holds, what TensorBoard shows, and what going on, loading and scoring make."""

import contextlib
import dataclasses
import json
import math
import pathlib
import shlex
import shutil
import time
import types

import keras
import numpy as np
import pytest
import stand_in
import tensorflow as tf
from logged import logged

from t2t_keras.config import DataConfig, DecodeConfig, ModelConfig, TrainConfig
from t2t_keras.data import batching, builtin_corpus, corpora, prepare, shards, text_files
from t2t_keras.decoding.loading import load, read_tokenizer
from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.decoding.translator import Translator, translate_lines
from t2t_keras.evaluation import scores
from t2t_keras.evaluation.cross_entropy import perplexity
from t2t_keras.evaluation.evaluate import evaluate
from t2t_keras.model.transformer import Transformer
from t2t_keras.runs import checkpoint, registry, run_options, saved_run
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving.savedmodel import export_run
from t2t_keras.system import files
from t2t_keras.text.byte_pairs import BytePairs
from t2t_keras.training import devices, loop, parent, train_step
from t2t_keras.training import run as training_run
from t2t_keras.training.interruption import OtherWorkerError, StoppedError
from t2t_keras.training.state import TrainState

MODEL = ModelConfig(340, encoder_layers=1, decoder_layers=1, d_model=8, d_ff=16, num_heads=2, d_k=4, d_v=4)
TRAIN = TrainConfig(
    train_steps=4, warmup_steps=10, batch_tokens=400, micro_batch_tokens=1000, valid_steps=2, valid_sentences=7,
    checkpoint_steps=1, keep_checkpoints=3, log_steps=2
)  # fmt: skip
DECODE = DecodeConfig(beam_size=3, alpha=0.5, extra_length=2)
DATA = DataConfig(dataset="builtin", builtin_pairs=600)


def resume(model_dir, **given) -> tuple:
    """`train` as `train.py --model_dir` with some options does it."""
    options = Start.open(model_dir, given).options
    return train(model_dir, model=options.model, train=options.train, decode=options.decode, data=options.data)


def train(
    model_dir, *, model=MODEL, train=TRAIN, decode=DECODE, data=DATA, data_dir=None, number=1, dry_run=False
) -> tuple:
    """The run's state and what it logged."""
    strategy = devices.make_strategy(number)
    options = run_options.Options(
        model, train, decode, data, run_options.stored(model_dir, data_dir) if data_dir else ""
    )
    with logged() as said:
        state = training_run.train(Start.of(model_dir, options), strategy=strategy, dry_run=dry_run)
    return state, "\n".join(said)


def points(model_dir) -> dict:
    """{tag: {step: value}} of everything in the run's TensorBoard folder."""
    found = {}
    for path in sorted((model_dir / "logs").glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if not value.tag.startswith(("_hparams_/", "custom_scalars")):  # Written once, for the whole run.
                    values = tf.make_ndarray(value.tensor)
                    # An image has three.
                    found.setdefault(value.tag, {})[event.step] = values.item() if values.size == 1 else values
    return found


def contents(folder) -> dict:
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of four updates; tests leave it as it is."""
    model_dir = tmp_path_factory.mktemp("runs") / "builtin"
    return model_dir, *train(model_dir)


@pytest.mark.medium
def test_the_folder_holds_what_the_module_says_and_no_more(run):
    model_dir, _, _ = run
    expected = {"config.json", "subwords.model", "data", "checkpoints", "logs", "lock", "curves.png", "curves.csv"}
    assert {path.name for path in model_dir.iterdir()} == expected
    assert [path.name for path in checkpoint.kept(model_dir)] == [f"step-00000000{step}.npz" for step in (2, 3, 4)]
    assert SavedRun.open(model_dir).options == run_options.Options(MODEL, TRAIN, DECODE, DATA)
    assert (model_dir / "subwords.model").read_bytes() == (model_dir / "data" / "subwords.model").read_bytes()
    assert BytePairs((model_dir / "subwords.model").read_bytes()).vocab_size == MODEL.vocab_size


@pytest.mark.medium
def test_the_text_decides_the_vocabulary_and_how_many_updates_are_two_epochs(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "vocabulary_size", lambda pairs: 340)
    given = dataclasses.replace(TRAIN, epochs=2.0, batch_tokens=4000, buckets_per_update=2, cooldown_share=0.5)
    given = dataclasses.replace(given, valid_sentences=0, best_metric="loss", profile_steps="900,901")
    state, said = train(tmp_path, model=dataclasses.replace(MODEL, vocab_size=0), train=given)
    epochs = batching.batches(tmp_path / "data" / "train", batch_tokens=2000, seed=given.seed, epochs=2)
    updates = round(len(list(epochs)) / 2)
    saved = SavedRun.open(tmp_path).options
    assert state.step == saved.train.train_steps == updates > 2 and saved.train.epochs == 2
    assert saved.model == MODEL
    assert {name for name, source in saved.sources.items() if source == "computed"} == {"vocab_size", "train_steps"}
    assert "`profile_steps=900,901` is after the last of" in said
    again = Start.open(tmp_path, {"vocab_size": 0}, sources={"vocab_size": "flagfile small"}).options.sources
    assert again["vocab_size"] == "run: computed"
    retained = Start.open(tmp_path, {"warmup_steps": 9}).retained()
    assert "vocab_size" not in retained and "train_steps" not in retained
    assert f"`epochs=2`: {updates:,} updates, {updates / 2:,.1f} per epoch." in said
    with pytest.MonkeyPatch.context() as patch:  # A resumed run does not count them again.
        patch.setattr(batching, "batches_per_epoch", None)
        assert resume(tmp_path, vocab_size=0, epochs=2.0)[0].step == updates
    assert resume(tmp_path, train_steps=updates + 1)[0].step == updates + 1


@pytest.mark.medium
@pytest.mark.parametrize("noise", [{"bpe_dropout": 0.5}, {"augment": "upper:1"}])
def test_an_epoch_of_changed_text_has_more_updates(run, noise):
    """Story: they were counted by the text on disk, so that --epochs=14 ended in the twelfth."""
    options = run_options.Options(
        MODEL, dataclasses.replace(TRAIN, epochs=3.0, batch_tokens=800, buckets_per_update=2, **noise), DECODE, DATA
    )
    folder, train = run[0] / "data", options.train
    renewal = options.task.renewal(read_tokenizer(SavedRun.open(run[0])), options, training=True)
    reading = {"batch_tokens": 400, "seed": train.seed, "epochs": 1}
    before, batches = (
        len(list(batching.batches(folder / "train", **reading, renewal=each))) for each in (None, renewal)
    )
    assert training_run._with_sizes_of(folder, options).train.train_steps == round(3 * batches / 2) > 3 * before / 2


@pytest.mark.parametrize(
    ("model", "expected"), [(MODEL, []), (ModelConfig(340), ["600 pairs are few for 44 million weights"])]
)
def test_a_model_much_too_large_for_its_text_is_told(run, messages, model, expected):
    folder = run[0] / "data"
    training_run._with_sizes_of(folder, run_options.Options(model, TRAIN, DECODE, DATA))
    assert [said.split(":")[0] for said in messages] == expected


def test_a_cooldown_longer_than_the_updates_of_epochs_is_refused(run):
    train = dataclasses.replace(TRAIN, epochs=0.1, cooldown_steps=5_000)
    with pytest.raises(ValueError, match="Received: cooldown_steps=5,000 for [0-9]+ updates. `cooldown_share`"):
        training_run._with_sizes_of(run[0] / "data", run_options.Options(MODEL, train, DECODE, DATA))
    before = types.SimpleNamespace(train=dataclasses.replace(train, cooldown_steps=0, train_steps=300))
    with pytest.raises(ValueError, match="Received: cooldown_steps=5,000 for 300 updates."):
        training_run._with_sizes_of(run[0] / "data", run_options.Options(MODEL, train, DECODE, DATA), before)


def test_a_model_folder_can_do_without_its_data(run, tmp_path):
    """What comes after training asks for the folder and nothing else."""
    for name, content in contents(run[0]).items():
        if name.parts[0] not in ("data", "logs"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
    assert load(tmp_path).config == DECODE


def test_tensorboard_shows_training_speed_padding_and_validation(run):
    found = points(run[0])
    training_tags = {
        "train/loss", "train/smoothed_loss", "train/perplexity",
        "train/learning_rate", "train/gradient_norm", "train/skipped_updates", "train/loss_scale",
        "utilization/target_tokens_per_second", "utilization/updates_per_second", "utilization/padding_share",
        "utilization/damaged_records",
        "train/epoch", "train/target_tokens_seen", "train/flops", "utilization/peak_memory_gib",
        "utilization/real_token_share", "utilization/tflops",
    }  # fmt: skip
    validation_tags = {"valid/loss", "valid/perplexity", "valid/bleu", "valid/samples", "valid/attention_1"}
    assert set(found) == training_tags | validation_tags | {"config"}
    assert sorted(found["config"]) == [0] and b"| batch_tokens" in found["config"][0]
    assert all(sorted(found[tag]) == [2, 4] for tag in found if tag != "config")
    assert found["train/learning_rate"] == pytest.approx({step: 8**-0.5 * step * 10**-1.5 for step in (2, 4)})
    received = found["train/perplexity"]
    assert received == pytest.approx({step: math.exp(loss) for step, loss in found["train/loss"].items()}, rel=1e-5)
    assert found["valid/perplexity"] == pytest.approx(
        {step: math.exp(loss) for step, loss in found["valid/loss"].items()}, rel=1e-5
    )
    # Before it has learned anything a model is about as good as a guess.
    assert found["valid/loss"][2] == pytest.approx(math.log(MODEL.vocab_size), rel=0.3)
    assert all(0 < share < 0.5 for share in found["utilization/padding_share"].values())


def test_the_samples_are_a_table_of_source_translation_and_reference(run):
    table = points(run[0])["valid/samples"][4].decode()
    sources, references = prepare.read_text(run[0] / "data", "valid")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n")]
    assert rows[0] == ["source", "translation", "reference"]
    assert [row[0] for row in rows[2:]] == sources[:5]
    assert [row[-1] for row in rows[2:]] == references[:5]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> pathlib.Path:
    """A data folder alone; its shards have several records."""
    folder = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "PAIRS_PER_RECORD", 100)
        prepare.Preparation(DATA, MODEL.vocab_size, TRAIN.seed, folder, registry.task("translation")).run()
    return folder


def handed_over(monkeypatch, model_dir, prepared, state=None, **options) -> types.SimpleNamespace:
    """What `training_run.train` makes of prepared data and hands to the loop, which is not run and returns a state."""
    found = types.SimpleNamespace()

    def make_trainer(strategy, model, optimizer, task, config, **others):
        vars(found).update(model=model, optimizer=optimizer, config=config, **others)
        return types.SimpleNamespace(train=lambda: state or TrainState())

    monkeypatch.setattr(loop, "Trainer", make_trainer)
    train(model_dir, data=DataConfig(), data_dir=prepared, **options)
    return found


def test_a_run_keeps_what_its_data_was_prepared_with(prepared, tmp_path, monkeypatch):
    """Story: beside --data_dir, --max_length had no effect and was in config.json."""
    handed_over(monkeypatch, tmp_path / "run", prepared)
    kept = SavedRun.open(tmp_path / "run").options
    assert kept.data == DATA and kept.sources["max_length"] == "data folder"
    with pytest.raises(ValueError, match="`max_length` was 256, and is now 50"):
        train(tmp_path / "other", data=DataConfig(max_length=50), data_dir=prepared)
    with pytest.raises(ValueError, match="`max_length` was 256, and is now 50"):
        train(tmp_path / "run", data=DataConfig(max_length=50), data_dir=prepared)


def test_bleu_in_training_is_of_greedy_translations_by_the_weights_of_the_moment(prepared, tmp_path, monkeypatch):
    """Of the first --valid_sentences in order, by a model that translates them rightly if it is searched greedily."""
    lines, references = (side[:10] for side in prepare.read_text(prepared, "valid"))
    references = [*lines[: TRAIN.valid_sentences], *references[TRAIN.valid_sentences :]]
    monkeypatch.setattr(prepare, "read_text", lambda folder, split, sides: (lines, references))
    monkeypatch.setattr("t2t_keras.model.transformer.Transformer", stand_in.Copier)
    monkeypatch.setattr("t2t_keras.config.ModelConfig.num_weights", 1)
    monkeypatch.setattr(
        train_step, "make_validation", lambda *_: lambda: {"loss": 2.0, "smoothed_loss": 2.0, "target_tokens": 2.0}
    )
    found = handed_over(monkeypatch, tmp_path, prepared)
    assert found.validate(1)["valid/bleu"] < 1
    found.model.skill.assign(1.0)
    metrics = found.validate(2)
    assert metrics["valid/bleu"] == pytest.approx(100)
    assert metrics["valid/samples"].splitlines()[2] == f"| {lines[0]} | {lines[0]} | {lines[0]} |"
    wide = Translator(found.model, BytePairs((tmp_path / "subwords.model").read_bytes()), DECODE)
    assert wide(tf.constant(lines[:1]))["text"].numpy()[0].decode() != lines[0]


def test_a_validation_reads_its_set_once_also_where_a_sentence_is_longer_than_a_micro_batch(
    prepared, tmp_path, monkeypatch
):
    read, batches = [], batching.batches
    monkeypatch.setattr(
        batching, "batches", lambda folder, **options: read.append(options) or batches(folder, **options)
    )
    longest = max(shards.counted(shards.read_info(prepared / "valid")))
    for name, tokens in (("shorter", longest - 1), ("longer", 1000)):
        handed_over(monkeypatch, tmp_path / name, prepared, train=dataclasses.replace(TRAIN, micro_batch_tokens=tokens))
    assert [(options["batch_tokens"], options["epochs"]) for options in read] == [(longest, 1), (1000, 1)]


@pytest.mark.parametrize("options", [{}, {"learning_rate": 0.1}])
def test_a_loss_above_that_of_equally_likely_sub_words_is_told_after_the_warm_up(
    prepared, tmp_path, monkeypatch, messages, options
):
    """Story: a loss of a million was the best so far, and the run ended as if all was well."""
    uniform, losses = math.log(MODEL.vocab_size), []
    monkeypatch.setattr(
        train_step,
        "make_validation",
        lambda *_: lambda: {"loss": 2 * losses[-1], "smoothed_loss": 2.0, "target_tokens": 2.0},
    )
    given = {"valid_sentences": 0, "best_metric": "loss", "warmup_steps": 5} | options
    found = handed_over(monkeypatch, tmp_path, prepared, train=dataclasses.replace(TRAIN, **given))
    for step, loss in ((5, uniform + 1), (6, uniform - 0.01), (7, uniform + 0.01)):
        losses.append(loss)
        found.validate(step)
    [told] = [message for message in messages if message.startswith("The validation loss is above")]
    assert f"above {uniform:.2f}, that of" in told
    assert told.endswith(f"try a lower `{'learning_rate' if options else 'learning_rate_factor'}`.")


def test_a_task_that_measures_no_loss_is_told_so(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(train_step, "make_validation", lambda *_: lambda: {})
    monkeypatch.setattr(type(registry.task("translation")), "measure", lambda self, sums, training: {"bleu": 1.0})
    found = handed_over(monkeypatch, tmp_path, prepared)
    with pytest.raises(ValueError, match="Expected 'loss' from `measure` of the task translation. Received: bleu."):
        found.validate(1)


def test_the_length_of_texts_is_compared_with_the_parent_s_where_positions_are_learned(prepared, tmp_path, monkeypatch):
    compared, theirs = [], tmp_path / "theirs"
    theirs.mkdir()
    SavedRun.write(theirs, run_options.Options(MODEL), prepared / files.SUBWORDS, None)
    monkeypatch.setattr(
        parent, "warn_of_text", lambda run, data, positions: compared.append((run.folder, data.max_length, positions))
    )
    monkeypatch.setattr(parent, "start", lambda *given: None)
    monkeypatch.setattr(checkpoint, "identity", lambda *given: {})
    child = dataclasses.replace(TRAIN, parent=str(theirs), parent_subwords=False)
    for name, positions in (("sinusoids", 0), ("learned", 300)):
        model = dataclasses.replace(MODEL, learned_positions=positions)
        handed_over(monkeypatch, tmp_path / name, prepared, model=model, train=child)
    assert compared == [(theirs, 256, 0), (theirs, 256, 300)]


def test_a_run_reports_the_devices_the_time_and_the_cost_of_all_of_them(prepared, tmp_path, monkeypatch, messages):
    state = TrainState(step=1234, seconds=90.0)
    handed_over(monkeypatch, tmp_path, prepared, state, number=2, train=dataclasses.replace(TRAIN, device_tflops=0.5))
    assert any("float32, 2 device(s): CPU:0, CPU:1; 400 tokens per side and update" in line for line in messages)
    assert messages[-2] == "1,234 updates in 1.5 minutes, all resumes included."
    assert "90 s × 2 device(s) × 0.5 TFLOPS" in messages[-1]


def test_a_run_of_several_workers_reports_how_many_they_are(monkeypatch, tmp_path, messages):
    """Story: "6 device(s): CPU:0, CPU:1" named those of one worker, as if they were all."""
    monkeypatch.setattr(devices, "several_workers", lambda strategy: True)
    monkeypatch.setattr(devices, "process_count", lambda strategy: 3)
    here = types.SimpleNamespace(worker_devices=["/device:CPU:0", "/device:CPU:1"])
    model = types.SimpleNamespace(config=None, trainable_variables=[], count_params=lambda: 7)
    strategy = types.SimpleNamespace(extended=here, num_replicas_in_sync=6)
    training_run._log_model(strategy, model, TRAIN, tmp_path)
    assert "6 device(s): CPU:0, CPU:1 of each of 3 workers; 400 tokens" in messages[-1]


def test_the_command_of_tensorboard_can_be_pasted(prepared, tmp_path, monkeypatch, messages):
    """Story: a space in the name of the folder divided it."""
    handed_over(monkeypatch, tmp_path / "my run", prepared)
    [command] = [line.partition("TensorBoard: ")[2] for line in messages if "TensorBoard: " in line]
    assert shlex.split(command) == ["tensorboard", "--logdir", f"{tmp_path}/my run/logs"]


def test_an_update_is_diagnosed_with_its_own_step_scale_and_text(prepared, tmp_path, monkeypatch):
    """Its random numbers follow from the updates that changed weights, which are fewer than all updates."""
    found = handed_over(monkeypatch, tmp_path, prepared)
    monkeypatch.setattr(training_run.diagnosis, "write_report", lambda *given, **place: (given, place))
    found.optimizer.iterations.assign(5)
    (path, _, model, task, config, batch), place = found.diagnose("a batch", 7, 512.0)
    assert (path, batch) == (tmp_path / "not_finite" / "update-000000007-worker-0.npz", "a batch")
    assert (model, task.name, config) == (found.model, "translation", TRAIN)
    text_of, ids = place.pop("text_of"), [read_ids(tmp_path, line) for line in ("one", "two")]
    assert place == {"iterations": 5, "scale": 512.0} and text_of("source", ids) == ["one", "two"]


def read_ids(model_dir, line: str) -> list[int]:
    """The sub-words of a line, padded to ten."""
    ids = BytePairs((model_dir / "subwords.model").read_bytes()).tokenize([line])[0].numpy().tolist()
    return ids + [0] * (10 - len(ids))


def test_tensorboard_has_the_graph_the_charts_and_what_each_curve_shows(run):
    events = [
        event for path in (run[0] / "logs").glob("events*") for event in tf.compat.v1.train.summary_iterator(str(path))
    ]
    assert sum(event.HasField("graph_def") for event in events) == 1
    values = {value.tag: value for event in events for value in event.summary.value}
    assert {"custom_scalars__config__", "_hparams_/experiment", "_hparams_/session_start_info"} < values.keys()
    described = {metric.name: metric.valid for metric in registry.task("translation").metrics if metric.valid}
    assert {name: values[f"valid/{name}"].metadata.summary_description for name in described} == described


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_run_computes_in_the_dtype_that_was_asked_for_and_keeps_its_weights_in_float32(
    prepared, tmp_path, monkeypatch, dtype
):
    found = handed_over(monkeypatch, tmp_path, prepared, train=dataclasses.replace(TRAIN, dtype=dtype))
    [(keys, values)] = found.model.encode(tf.constant([[5, 6, 3]])).keys_values
    assert keys.dtype.name == values.dtype.name == dtype
    assert {weight.dtype for weight in found.model.trainable_variables} == {"float32"}
    assert found.config.dtype == dtype


def test_perplexity_is_the_exponential_of_the_validation_loss_of_the_same_text(run):
    """Two ways to one figure: shards that training validates on, and lines of text."""
    model_dir, _, _ = run
    translator = load(model_dir, "latest")
    sources, references = prepare.read_text(model_dir / "data", "valid")
    expected = math.exp(points(model_dir)["valid/loss"][4])
    assert perplexity(translator, sources, references) == pytest.approx(expected, rel=1e-5)


@pytest.mark.medium
def test_scores_are_of_the_lines_that_translating_gives(run):
    translator = load(run[0])
    sources, references = (side[:4] for side in prepare.read_text(run[0] / "data", "valid"))
    translated = [result["text"] for result in translate_lines(translator, sources)]
    references = [*references[:3], translated[3]]  # So that one is exactly right.
    hypotheses, found = evaluate(translator, sources, references, lowercase=True, tokenize="char")
    assert hypotheses == translated
    expected = scores.scores(translated, references, lowercase=True, tokenize="char")
    assert {name: found[name] for name in expected} == expected
    assert "case:lc" in found["signature"] and "tok:char" in found["signature"]
    assert found["perplexity"] == perplexity(translator, sources, references)
    assert found["exact_match"] == 1 / 4
    assert (found["sentences"], found["beam_size"], found["alpha"]) == (4, 3, 0.5)
    assert json.loads(json.dumps(found)) == found


def test_perplexity_is_of_all_references_and_leaves_out_pairs_with_a_blank_side(run):
    translator = load(run[0])
    sources, references = (side[:4] for side in prepare.read_text(run[0] / "data", "valid"))
    pairs = [(sources[0], references[0]), (sources[3], references[3]), *zip(sources[:2], references[2:], strict=True)]
    expected = perplexity(translator, *map(list, zip(*pairs, strict=True)))
    lines = [sources[0], sources[1], sources[3]], [references[0], "", references[3]], [references[2], references[3], ""]
    assert perplexity(translator, *lines) == pytest.approx(expected, rel=1e-5)
    assert math.isnan(perplexity(translator, ["", "one", "\u200b"], ["eins", "\t", "zwei"]))


@pytest.mark.parametrize("which", ["average", "best", "latest"])
def test_a_loaded_translator_has_the_weights_that_were_asked_for(run, which):
    model_dir, state, _ = run
    with logged() as said:
        translator = load(model_dir, which)
    paths = {
        "average": checkpoint.kept(model_dir),
        "latest": checkpoint.kept(model_dir)[-1:],
        "best": checkpoint.kept(model_dir, checkpoint.BEST),
    }
    for weight in translator.model.trainable_variables:
        arrays = [np.load(path)[f"model/{weight.path}"].astype(np.float64) for path in paths[which]]
        np.testing.assert_allclose(weight.numpy(), np.mean(arrays, axis=0), rtol=1e-6, atol=1e-7)
    steps = {"average": "2, 3, 4", "latest": "4", "best": str(state.best_step)}
    assert which in said[0] and said[0].rstrip(".").endswith(steps[which])


def test_a_loaded_translator_searches_by_default_as_it_was_trained_to(run):
    assert load(run[0]).config == DECODE
    assert load(run[0], beam_size=2).config == dataclasses.replace(DECODE, beam_size=2)
    with pytest.raises(ValueError, match="beam_size=0"):
        load(run[0], beam_size=0)


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json.*`model_dir`"):
        load(tmp_path)


@pytest.fixture
def copy(run, tmp_path):
    """A copy of the run that a test may change."""
    model_dir = tmp_path / "copy"
    for name, content in contents(run[0]).items():
        (model_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (model_dir / name).write_bytes(content)
    return model_dir


@pytest.mark.parametrize("start", [train, resume])
def test_a_finished_run_that_is_started_again_ends_at_once(copy, start):
    """In the same process too, as in a notebook; with all of its options, or with none of them."""
    before = contents(copy)
    state, said = start(copy)
    assert state.step == 4 and "update 4" in said and "Changed" not in said
    after = contents(copy)
    # Its title names the folder.
    assert {name for name in before if after[name] != before[name]} <= {pathlib.Path("curves.png")}
    assert {name.parts[0] for name in set(after) - set(before)} <= {"logs"}


@pytest.mark.medium
def test_a_run_is_resumed_with_its_options_but_for_those_given_which_are_announced(copy):
    """Story: without --warmup_steps, the learning rate was silently another one, and config.json was overwritten."""
    state, said = resume(copy, train_steps=5, cooldown_steps=2, keep_checkpoints=2, valid_sentences=1, beam_size=2)
    assert state.step == 5 and "Using the data in" in said and "Learning" not in said
    changes = (
        "`train_steps` 4 → 5, `cooldown_steps` 0 → 2, `keep_checkpoints` 3 → 2, `valid_sentences` 7 → 1, `beam_size` 3 "
        "→ 2"
    )
    assert f"Changed: {changes}." in said
    assert [checkpoint.step_of(path) for path in checkpoint.kept(copy)] == [4, 5]
    assert points(copy)["train/learning_rate"][5] == pytest.approx(8**-0.5 * 5 * TRAIN.warmup_steps**-1.5 / 2)
    changed = dataclasses.replace(TRAIN, train_steps=5, cooldown_steps=2, keep_checkpoints=2, valid_sentences=1)
    found = SavedRun.open(copy).options
    assert found == run_options.Options(MODEL, changed, dataclasses.replace(DECODE, beam_size=2), DATA)


def test_other_workers_take_the_options_of_the_chief_s_folder(copy, monkeypatch):
    monkeypatch.setattr(devices, "is_chief", lambda strategy: False)
    seeds, set_seed = [], keras.utils.set_random_seed
    monkeypatch.setattr(keras.utils, "set_random_seed", lambda seed: (seeds.append(seed), set_seed(seed)))
    state, _ = train(
        copy,
        train=dataclasses.replace(TRAIN, train_steps=8, seed=TRAIN.seed + 1),
        decode=dataclasses.replace(DECODE, beam_size=1),
    )
    assert state.step == 4 and seeds == [TRAIN.seed]
    assert SavedRun.open(copy).options.train == TRAIN


@pytest.mark.parametrize("name", ["data/subwords.model", "data/train/records.tsv"])
@pytest.mark.parametrize("is_missing", [True, False])
def test_other_workers_refuse_other_data_than_the_chief_s(copy, monkeypatch, name, is_missing):
    """Story: a worker whose `data_dir` was a folder of its own, with other text, trained on other pairs unnoticed."""
    monkeypatch.setattr(devices, "is_chief", lambda strategy: False)
    (copy / name).unlink() if is_missing else (copy / name).write_bytes(b"other")
    with pytest.raises(ValueError, match=f"chief's data. Received: .* in {copy}/data on this worker.*`data_dir`"):
        train(copy)


@pytest.mark.parametrize(("changed", "received"), [(True, "another"), (False, "no")])
def test_other_workers_refuse_another_folder_than_the_chief_s(copy, monkeypatch, changed, received):
    """Story: a worker whose `model_dir` was a folder of its own had its own options, such as another learning rate."""
    config, chiefs = copy / files.CONFIG, []
    monkeypatch.setattr(devices, "several_workers", lambda strategy: True)
    monkeypatch.setattr(devices, "broadcast_from_chief", lambda strategy, value: chiefs.append(value) or chiefs[0])
    training_run._check_folder_of_chief(None, copy)  # The chief.
    training_run._check_folder_of_chief(None, copy)  # A worker that shares its folder.
    config.write_text(config.read_text().replace('"seed": 1', '"seed": 2')) if changed else config.unlink()
    monkeypatch.setattr(devices, "chief_first", lambda strategy, prepare: None)  # A worker that is not the chief.
    for check in (
        lambda: training_run._check_folder_of_chief(None, copy),
        lambda: training_run._prepare_first(types.SimpleNamespace(folder=copy), None, False, contextlib.ExitStack()),
    ):
        with pytest.raises(
            ValueError, match=f"chief's folder. Received: {received} config.json in {copy} on this worker"
        ):
            check()


@pytest.mark.medium
@pytest.mark.parametrize("is_new", [True, False])
def test_other_workers_dry_run_a_new_run_with_the_options_that_the_chief_wrote(copy, monkeypatch, is_new):
    """Story: others had no vocabulary, which the chief had decided. Of a run with checkpoints it writes no options."""
    if is_new:
        shutil.rmtree(copy / "checkpoints")
    monkeypatch.setattr(devices, "is_chief", lambda strategy: False)
    seeds, set_seed = [], keras.utils.set_random_seed
    monkeypatch.setattr(keras.utils, "set_random_seed", lambda seed: (seeds.append(seed), set_seed(seed)))
    train(copy, train=dataclasses.replace(TRAIN, train_steps=8, seed=TRAIN.seed + 1), dry_run=True)
    assert seeds == [TRAIN.seed if is_new else TRAIN.seed + 1]


def test_a_trainer_knows_how_many_lines_the_validation_set_has(copy, monkeypatch):
    def trainer(*_, valid_lines, **others):
        raise StoppedError(valid_lines)

    monkeypatch.setattr(loop, "Trainer", trainer)
    with pytest.raises(StoppedError) as stopped:
        train(copy)
    assert stopped.value.args == (len((copy / "data" / "valid.source.txt").read_text().splitlines()),)


@pytest.mark.parametrize("d_ff", [32, 4096])
def test_another_model_in_the_same_folder_is_refused_by_the_names_of_its_flags(run, d_ff):
    """See test_run_start for every option. Story: for a much larger one, the checkpoint was called damaged."""
    model_dir, _, _ = run
    before = contents(model_dir)
    with pytest.raises(ValueError, match=rf"d_ff={d_ff} \(the run: 16\), seed=2 \(the run: 1\)\. .*`model_dir`"):
        model = dataclasses.replace(MODEL, d_ff=d_ff)
        train(model_dir, model=model, train=dataclasses.replace(TRAIN, seed=2, train_steps=9))
    assert contents(model_dir) == before


def test_a_folder_of_somebody_s_own_files_stays_as_it_is(tmp_path):
    """Story: config.json and subwords.model of another program were replaced."""
    (tmp_path / "config.json").write_text('{"architectures": ["MarianMTModel"]}')
    (tmp_path / "subwords.model").write_bytes(b"theirs")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"{tmp_path}/config.json is not the config.json of a run.*`model_dir`"):
        train(tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "use", [load, resume, lambda folder: export_run(folder.parent / "export", TrainedModel.open(folder))]
)
def test_sub_words_of_another_run_are_refused_by_all_that_use_a_run(run, copy, use):
    """Story: translating failed inside TensorFlow, and an export took them along."""
    (copy / "subwords.model").write_bytes((run[0] / "subwords.model").read_bytes() + b" ")
    before = contents(copy)
    with pytest.raises(ValueError, match="subwords.model is not what .* was trained with"):
        use(copy)
    assert contents(copy) == before and not (copy.parent / "export").exists()


def test_sub_words_of_another_number_are_refused_where_the_folder_has_no_hash_of_its_own(copy):
    """A folder of before there were any."""
    config = json.loads((copy / "config.json").read_text())
    del config["version"], config["subwords"], config["records"]
    (copy / "config.json").write_text(json.dumps({**config, "model": {**config["model"], "vocab_size": 339}}))
    with pytest.raises(ValueError, match="Expected the model's 339 sub-words. Received: 340"):
        load(copy)


def test_the_same_sub_words_with_other_pairs_are_refused(copy):
    """One pair more or less, and a run would go on elsewhere in its data."""
    folder = copy / "data" / "train"
    columns = shards.read(folder, [0])
    sides = [
        tf.RaggedTensor.from_row_lengths(columns[f"{side}_ids"], columns[f"{side}_lengths"]).to_list()
        for side in shards.SIDES
    ]
    pairs = [tuple(map(np.array, pair)) for pair in zip(*sides, strict=True)]
    shards.write(folder, pairs[:-1], count=len(pairs), vocab_size=MODEL.vocab_size, seed=1)
    with pytest.raises(ValueError, match="was trained on other records than"):
        resume(copy)


def test_a_model_far_larger_than_its_checkpoints_is_refused_before_it_takes_memory(copy):
    """400 layers of 65,536 would take 260 terabytes."""
    config = json.loads((copy / "config.json").read_text())
    config["model"].update(encoder_layers=200, decoder_layers=200, d_model=2**16, d_ff=2**20)
    (copy / "config.json").write_text(json.dumps(config))
    for use in (load, resume):
        with pytest.raises(checkpoint.DamagedError, match="float32 weights in .*npz. Received"):
            use(copy)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_loaded_translator_calculates_in_the_type_that_was_asked_for(run, dtype):
    model = load(run[0], dtype=dtype).model
    assert model.compute_dtype == dtype
    assert {weight.dtype for weight in model.trainable_variables} == {dtype}


def test_another_corpus_in_the_same_folder_is_refused(run):
    model_dir, _, _ = run
    before = contents(model_dir)
    with pytest.raises(ValueError, match=r"builtin_pairs=700 \(the run: 600\).*`model_dir`"):
        train(model_dir, data=dataclasses.replace(DATA, builtin_pairs=700))
    assert contents(model_dir) == before


def test_sub_words_of_other_data_are_refused(run, tmp_path):
    """The same number of them, learned from other text: every id would mean something else."""
    model_dir, _, _ = run
    before = contents(model_dir)
    prepare.Preparation(
        DataConfig(dataset="builtin", builtin_pairs=200), MODEL.vocab_size, 1, tmp_path, registry.task("translation")
    ).run()
    with pytest.raises(ValueError, match="other sub-words"):
        train(model_dir, data=DataConfig(), data_dir=tmp_path)
    assert contents(model_dir) == before


def test_prepared_data_of_another_vocabulary_is_refused_before_anything_is_written(run, tmp_path):
    with pytest.raises(ValueError, match="`vocab_size` was 340, and is now 350"):
        model = dataclasses.replace(MODEL, vocab_size=350)
        train(tmp_path / "new", model=model, data=DataConfig(), data_dir=run[0] / "data")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["lock"]


def test_no_corpus_at_all_is_reported_with_what_to_give(tmp_path):
    with pytest.raises(FileNotFoundError, match="`train_source`"):
        train(tmp_path / "new", data=DataConfig())
    assert not (tmp_path / "new").exists()


@pytest.mark.medium
def test_bfloat16_on_two_devices_from_prepared_data_leaves_float32_weights_and_a_model_that_loads(run, tmp_path):
    """Hardware and arithmetic are no part of a model: what is kept of it is the same."""
    options = {
        "train_steps": 2, "dtype": "bfloat16", "micro_batch_tokens": 100, "valid_sentences": 0, "best_metric": "loss",
    }  # fmt: skip
    state, said = train(
        tmp_path, train=dataclasses.replace(TRAIN, **options), data=DataConfig(), data_dir=run[0] / "data", number=2
    )
    assert state.step == 2 and "2 device(s)" in said and "bfloat16" in said
    assert not (tmp_path / "data").exists()
    with np.load(checkpoint.kept(tmp_path)[-1]) as archive:
        assert {archive[name].dtype.name for name in archive.files if name.startswith("model/")} == {"float32"}
    translator = load(tmp_path, beam_size=1)
    assert np.isfinite(translator(tf.constant(["two"]))["score"]).all()
    # The seed decides the weights, so that two such runs differ by rounding alone.
    expected = points(run[0])["valid/loss"][2]
    assert points(tmp_path)["valid/loss"][2] == pytest.approx(expected, rel=0.02)


@pytest.mark.medium
def test_a_translator_lives_on_when_another_model_is_trained(run, copy):
    """See test_translator: setting the seed takes TF.Text's sub-words away."""
    translator = load(run[0], beam_size=1)
    before = translator(tf.constant(["two"]))["text"].numpy().tolist()
    train(copy)
    assert translator(tf.constant(["two"]))["text"].numpy().tolist() == before


def test_the_test_split_of_the_builtin_corpus_lies_beside_the_data(run):
    sources, references = prepare.read_text(run[0] / "data", "test")
    expected = [
        tuple(side.decode() for side in pair) for pair in corpora.pairs(DATA, "test", TRAIN.seed, text_files.Report())
    ]
    assert list(zip(sources, references, strict=True)) == expected


@pytest.mark.medium
def test_a_dry_run_prepares_and_runs_the_largest_micro_batches_and_the_options_may_still_change(tmp_path, monkeypatch):
    monkeypatch.setattr(Start, "retained", lambda start: f"`d_model={start.options.model.d_model}`")
    state, said = train(tmp_path, dry_run=True)
    assert "earlier start" not in said
    # Up to 8, 16, 32 and 53 sub-words.
    assert state is None and said.count("Largest micro-batch of lengths up to ") == 4
    assert f"{tmp_path} has these options now. Give other ones to change them." in said
    assert checkpoint.kept(tmp_path) == [] and not (tmp_path / "logs").exists()
    state, said = train(tmp_path, dry_run=True, model=dataclasses.replace(MODEL, d_ff=8))
    assert "Using the data in" in said and "Largest micro-batch" in said
    assert "Options of an earlier start that were not given again: `d_model=8`." in said
    assert SavedRun.open(tmp_path).options.model.d_ff == 8


@pytest.mark.medium
def test_a_dry_run_of_a_run_that_is_there_changes_none_of_its_options(copy, monkeypatch):
    monkeypatch.setattr(Start, "retained", lambda start: "`d_model=8`")
    before = contents(copy)
    _, said = train(copy, dry_run=True, train=dataclasses.replace(TRAIN, micro_batch_tokens=500))
    assert "Changed for this dry run only: `micro_batch_tokens` 1000 → 500." in said
    assert "has these options now" not in said and "earlier start" not in said
    assert contents(copy) == before


def test_a_damaged_checkpoint_is_not_averaged_in_silence(run, tmp_path):
    for name, content in contents(run[0]).items():
        if name.parts[0] not in ("data", "logs"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
    checkpoint.kept(tmp_path)[0].write_bytes(b"")
    with pytest.raises(checkpoint.DamagedError, match="step-000000002.npz"):
        load(tmp_path)


@pytest.mark.medium
def test_an_update_that_is_not_finite_is_on_disk_as_ids_and_as_text(monkeypatch, tmp_path):
    """A weight that is not a number ends a run with the pairs at hand. Each side has its sub-words."""
    make = Transformer.__init__

    def spoiled(self, *args, **kwargs):
        make(self, *args, **kwargs)
        self.decoder[0].feed_forward.inner.kernel.assign(self.decoder[0].feed_forward.inner.kernel * np.nan)

    monkeypatch.setattr(Transformer, "__init__", spoiled)
    message = "2 updates in a row, up to 2.*the weight transformer/decoder_0/feed_forward/inner/kernel"
    with pytest.raises(ValueError, match=message):
        model = dataclasses.replace(MODEL, source_vocab_size=330)
        train(tmp_path, model=model, train=dataclasses.replace(TRAIN, max_skipped=2))
    [report] = (tmp_path / "not_finite").glob("*.json")
    pairs = [tuple(pair) for finding in json.loads(report.read_text()) for pair in finding["pairs"]]
    assert set(pairs) <= set(builtin_corpus.splits(DATA.builtin_pairs, seed=TRAIN.seed)["train"])
    with np.load(report.with_suffix(".npz")) as archive:
        assert len(archive["source"]) == len(pairs)


def test_the_time_limit_of_a_run_counts_from_its_start_before_the_data_is_prepared(monkeypatch, prepared, copy):
    class _AskedError(Exception):
        pass

    def asked(*args, started, **others):
        raise _AskedError(started)

    start, strategy, check, checked = Start.open(copy, {}), devices.make_strategy(1), saved_run.check_before_writing, []
    monkeypatch.setattr(
        saved_run, "check_before_writing", lambda folder: checked.append(time.monotonic()) or check(folder)
    )
    monkeypatch.setattr(loop, "Trainer", asked)
    before = time.monotonic()
    with pytest.raises(_AskedError) as raised:
        training_run.train(start, strategy=strategy)
    assert before <= raised.value.args[0] <= checked[0]
    with pytest.raises(_AskedError) as raised:
        training_run.train(start, strategy=strategy, started=123.0)
    assert raised.value.args == (123.0,)


def test_a_worker_that_another_one_leaves_alone_says_so(monkeypatch, copy):
    def train() -> None:
        raise tf.errors.UnavailableError(None, None, "Connection reset by peer")

    monkeypatch.setattr(loop, "Trainer", lambda *args, **others: types.SimpleNamespace(train=train))
    start, strategy = Start.open(copy, {}), devices.make_strategy(1)
    with pytest.raises(tf.errors.UnavailableError):
        training_run.train(start, strategy=strategy)
    monkeypatch.setattr(devices, "several_workers", lambda strategy: True)
    with pytest.raises(OtherWorkerError, match="Another worker has ended or cannot be reached."):
        training_run.train(start, strategy=strategy)


def test_a_second_trainer_in_the_same_folder_is_refused_and_changes_nothing(run):
    model_dir = run[0]
    before = contents(model_dir)
    in_use = pytest.raises(BlockingIOError, match=f"{model_dir} is in use by process")
    with files.exclusive(model_dir / "lock", "a first trainer"), in_use:
        train(model_dir, train=dataclasses.replace(TRAIN, train_steps=8))
    assert contents(model_dir) == before
