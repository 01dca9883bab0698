"""A whole run, small: what its folder holds, what TensorBoard shows, and what going on, loading and scoring make of it."""

import dataclasses
import json
import math

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import builtin_corpus, checkpoint, corpus, devices, evaluation, experiment, lock, prepare
from t2t_keras.config import DataConfig, DecodeConfig, ModelConfig, TrainConfig, from_json
from t2t_keras.tokenizer import Tokenizer
from t2t_keras.transformer import Transformer
from t2t_keras.translator import translate_lines

MODEL = ModelConfig(340, encoder_layers=1, decoder_layers=1, d_model=8, d_ff=16, num_heads=2, d_k=4, d_v=4)
TRAIN = TrainConfig(
    train_steps=4, warmup_steps=10, batch_tokens=400, device_tokens=1000, valid_steps=2, valid_sentences=7, checkpoint_steps=1,
    keep_checkpoints=3, log_steps=2
)  # fmt: skip
DECODE = DecodeConfig(beam_size=3, alpha=0.5, extra_length=2)
DATA = DataConfig(dataset="builtin", builtin_pairs=600)


def train(model_dir, *, model=MODEL, train=TRAIN, decode=DECODE, data=DATA, data_dir=None, number=1, dry_run=False) -> tuple:
    """The run's progress and what it said."""
    said = []
    strategy = devices.make_strategy(number)
    progress = experiment.train(
        model_dir, model, train, decode, data, data_dir=data_dir, strategy=strategy, dry_run=dry_run, say=said.append
    )
    return progress, "\n".join(said)


def points(model_dir) -> dict:
    """{tag: {step: value}} of everything in the run's TensorBoard folder."""
    found = {}
    for path in sorted((model_dir / "logs").iterdir()):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = tf.make_ndarray(value.tensor).item()
    return found


def files(folder) -> dict:
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of four updates; tests leave it as it is."""
    model_dir = tmp_path_factory.mktemp("runs") / "builtin"
    return model_dir, *train(model_dir)


def test_the_folder_holds_what_the_module_says_and_no_more(run):
    model_dir, _, _ = run
    assert {path.name for path in model_dir.iterdir()} == {"config.json", "subwords.model", "data", "checkpoints", "logs", "lock"}
    assert [path.name for path in checkpoint.kept(model_dir)] == [f"step-00000000{step}.npz" for step in (2, 3, 4)]
    assert from_json(model_dir / "config.json", model=ModelConfig, train=TrainConfig, decode=DecodeConfig) == (MODEL, TRAIN, DECODE)
    assert (model_dir / "subwords.model").read_bytes() == (model_dir / "data" / "subwords.model").read_bytes()
    assert Tokenizer((model_dir / "subwords.model").read_bytes()).vocab_size == MODEL.vocab_size


def test_a_model_folder_can_do_without_its_data(run, tmp_path):
    """What comes after training asks for the folder and nothing else."""
    for name, content in files(run[0]).items():
        if name.parts[0] not in ("data", "logs"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
    assert experiment.load(tmp_path, say=lambda text: None).config == DECODE


def test_tensorboard_shows_training_speed_padding_and_validation(run):
    found = points(run[0])
    training_tags = {
        "train/loss", "train/learning_rate", "train/gradient_norm", "train/skipped_updates", "train/loss_scale",
        "speed/target_tokens_per_second", "speed/updates_per_second", "data/padding_share", "data/damaged_records",
    }  # fmt: skip
    validation_tags = {"valid/loss", "valid/perplexity", "valid/bleu", "valid/samples"}
    assert set(found) == training_tags | validation_tags
    assert all(sorted(found[tag]) == [2, 4] for tag in found)
    assert found["train/learning_rate"] == pytest.approx({step: 8**-0.5 * step * 10**-1.5 for step in (2, 4)})
    assert found["valid/perplexity"] == pytest.approx({step: math.exp(loss) for step, loss in found["valid/loss"].items()}, rel=1e-5)
    # Before it has learned anything a model is about as good as a guess.
    assert found["valid/loss"][2] == pytest.approx(math.log(MODEL.vocab_size), rel=0.3)
    assert all(0 < share < 0.5 for share in found["data/padding_share"].values())


def test_the_samples_are_a_table_of_source_translation_and_reference(run):
    table = points(run[0])["valid/samples"][4].decode()
    sources, references = prepare.read_text(run[0] / "data", "valid")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n")]
    assert rows[0] == ["source", "translation", "reference"]
    assert [row[0] for row in rows[2:]] == sources[:5]
    assert [row[-1] for row in rows[2:]] == references[:5]


def test_bleu_in_training_is_sacrebleu_of_greedy_translations(run):
    """Of the first --valid_sentences, by the translator that is served: the weights after the last update are on disk."""
    model_dir, _, _ = run
    sources, references = (side[: TRAIN.valid_sentences] for side in prepare.read_text(model_dir / "data", "valid"))
    greedy = experiment.load(model_dir, "latest", say=lambda text: None, beam_size=1)
    hypotheses = [result["text"] for result in translate_lines(greedy, sources)]
    assert points(model_dir)["valid/bleu"][4] == pytest.approx(evaluation.bleu(hypotheses, references)["bleu"], abs=1e-4)


def test_perplexity_is_the_exponential_of_the_validation_loss_of_the_same_text(run):
    """Two ways to one figure: shards that training validates on, and lines of text."""
    model_dir, _, _ = run
    translator = experiment.load(model_dir, "latest", say=lambda text: None)
    sources, references = prepare.read_text(model_dir / "data", "valid")
    expected = math.exp(points(model_dir)["valid/loss"][4])
    assert experiment.perplexity(translator, sources, references) == pytest.approx(expected, rel=1e-5)
    assert experiment.perplexity(translator, sources, references, device_tokens=50) == pytest.approx(expected, rel=1e-5)


def test_scores_are_of_the_lines_that_translating_gives(run):
    translator = experiment.load(run[0], say=lambda text: None)
    sources, references = (side[:4] for side in prepare.read_text(run[0] / "data", "valid"))
    translated = [result["text"] for result in translate_lines(translator, sources)]
    references = [*references[:3], translated[3]]  # So that one is exactly right.
    hypotheses, scores = experiment.evaluate(translator, sources, references, lowercase=True)
    assert hypotheses == translated
    assert scores["bleu"] == evaluation.bleu(translated, references, lowercase=True)["bleu"]
    assert "case:lc" in scores["signature"]
    assert scores["chrf"] == evaluation.chrf(translated, references)["chrf"]
    assert scores["exact_match"] == 1 / 4
    assert (scores["sentences"], scores["beam_size"], scores["alpha"]) == (4, 3, 0.5)
    assert json.loads(json.dumps(scores)) == scores


@pytest.mark.parametrize("which", ["average", "best", "latest"])
def test_a_loaded_translator_has_the_weights_that_were_asked_for(run, which):
    model_dir, progress, _ = run
    said = []
    translator = experiment.load(model_dir, which, say=said.append)
    paths = {
        "average": checkpoint.kept(model_dir),
        "latest": checkpoint.kept(model_dir)[-1:],
        "best": checkpoint.kept(model_dir, checkpoint.BEST),
    }
    for weight in translator.model.trainable_variables:
        arrays = [np.load(path)[f"model/{weight.path}"].astype(np.float64) for path in paths[which]]
        np.testing.assert_allclose(weight.numpy(), np.mean(arrays, axis=0), rtol=1e-6, atol=1e-7)
    steps = {"average": "2, 3, 4", "latest": "4", "best": str(progress.best_step)}
    assert which in said[0] and said[0].rstrip(".").endswith(steps[which])


def test_a_loaded_translator_searches_as_it_was_trained_to_unless_told_otherwise(run):
    assert experiment.load(run[0], say=lambda text: None).config == DECODE
    assert experiment.load(run[0], say=lambda text: None, beam_size=2).config == dataclasses.replace(DECODE, beam_size=2)
    with pytest.raises(ValueError, match="beam_size=0"):
        experiment.load(run[0], say=lambda text: None, beam_size=0)


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json.*--model_dir"):
        experiment.load(tmp_path)


@pytest.fixture
def copy(run, tmp_path):
    """A copy of the run that a test may change."""
    model_dir = tmp_path / "copy"
    for name, content in files(run[0]).items():
        (model_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (model_dir / name).write_bytes(content)
    return model_dir


def test_a_finished_run_that_is_started_again_ends_at_once(copy):
    """In the same process too, as in a notebook."""
    before = files(copy)
    progress, said = train(copy)
    assert progress.step == 4 and "Going on from update 4" in said
    after = files(copy)
    assert {name for name in before if after[name] != before[name]} == set()
    assert {name.parts[0] for name in set(after) - set(before)} <= {"logs"}


def test_a_run_goes_on_to_a_later_end_with_other_options_that_do_not_change_the_data(copy):
    longer = dataclasses.replace(TRAIN, train_steps=5, warmup_steps=20, keep_checkpoints=2, valid_sentences=1)
    progress, said = train(copy, train=longer, decode=dataclasses.replace(DECODE, beam_size=2))
    assert progress.step == 5 and "Using the data in" in said and "Learning" not in said
    assert [checkpoint.step_of(path) for path in checkpoint.kept(copy)] == [4, 5]
    assert points(copy)["train/learning_rate"][5] == pytest.approx(8**-0.5 * 5 * 20**-1.5)
    assert experiment.load(copy, say=lambda text: None).config.beam_size == 2


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("model", "d_ff", 32), ("model", "encoder_layers", 2), ("model", "dropout", 0.3), ("model", "vocab_size", 350),
        ("train", "seed", 2), ("train", "batch_tokens", 500), ("train", "batch_parts", 3), ("train", "early_stopping", "loss"),
    ],
)  # fmt: skip
def test_another_model_in_the_same_folder_is_refused_by_the_name_of_its_flag(run, part, name, value):
    model_dir, _, _ = run
    before = files(model_dir)
    old = getattr({"model": MODEL, "train": TRAIN}[part], name)
    changed = dataclasses.replace({"model": MODEL, "train": TRAIN}[part], **{name: value})
    with pytest.raises(ValueError, match=f"--{name}={old}.*Received: {value}.*--model_dir"):
        train(model_dir, **{part: changed})
    assert files(model_dir) == before


def test_another_corpus_in_the_same_folder_is_refused(run):
    model_dir, _, _ = run
    before = files(model_dir)
    with pytest.raises(ValueError, match="600.*700.*--model_dir"):
        train(model_dir, data=dataclasses.replace(DATA, builtin_pairs=700))
    assert files(model_dir) == before


def test_sub_words_of_other_data_are_refused(run, tmp_path):
    """The same number of them, learned from other text: every id would mean something else."""
    model_dir, _, _ = run
    before = files(model_dir)
    other = DataConfig(dataset="builtin", builtin_pairs=200)
    with pytest.raises(ValueError, match="other sub-words"):
        train(model_dir, data=other, data_dir=tmp_path)
    assert files(model_dir) == before


def test_prepared_data_of_another_vocabulary_is_refused_before_anything_is_written(run, tmp_path):
    with pytest.raises(ValueError, match="--vocab_size=340.*Received: 350"):
        train(tmp_path / "new", model=dataclasses.replace(MODEL, vocab_size=350), data=DataConfig(), data_dir=run[0] / "data")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["lock"]


def test_no_corpus_at_all_is_told_what_to_give(tmp_path):
    with pytest.raises(ValueError, match="--train_source"):
        train(tmp_path / "new", data=DataConfig())
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["lock"]


def test_bfloat16_on_two_devices_from_prepared_data_leaves_float32_weights_and_a_model_that_loads(run, tmp_path):
    """Hardware and arithmetic are no part of a model: what is kept of it is the same."""
    options = {"train_steps": 2, "dtype": "bfloat16", "device_tokens": 100, "valid_sentences": 0, "early_stopping": "loss"}
    progress, said = train(tmp_path, train=dataclasses.replace(TRAIN, **options), data=DataConfig(), data_dir=run[0] / "data", number=2)
    assert progress.step == 2 and "2 device(s)" in said and "bfloat16" in said
    assert not (tmp_path / "data").exists()
    with np.load(checkpoint.kept(tmp_path)[-1]) as archive:
        assert {archive[name].dtype.name for name in archive.files if name.startswith("model/")} == {"float32"}
    translator = experiment.load(tmp_path, say=lambda text: None, beam_size=1)
    assert np.isfinite(translator(tf.constant(["two"]))["score"]).all()
    # The seed decides the weights, so that two such runs differ by rounding alone.
    expected = points(run[0])["valid/loss"][2]
    assert points(tmp_path)["valid/loss"][2] == pytest.approx(expected, rel=0.02)


def test_a_translator_lives_on_when_another_model_is_trained(run, copy):
    """See test_translator: setting the seed takes TF.Text's sub-words away."""
    translator = experiment.load(run[0], say=lambda text: None, beam_size=1)
    before = translator(tf.constant(["two"]))["text"].numpy().tolist()
    train(copy)
    assert translator(tf.constant(["two"]))["text"].numpy().tolist() == before


def test_the_test_split_of_the_builtin_corpus_lies_beside_the_data(run):
    sources, references = prepare.read_text(run[0] / "data", "test")
    expected = [tuple(side.decode() for side in pair) for pair in corpus.pairs(DATA, "test", TRAIN.seed, corpus.Report())]
    assert list(zip(sources, references, strict=True)) == expected


def test_a_dry_run_prepares_and_rehearses_and_binds_nobody_to_its_sizes(tmp_path):
    progress, said = train(tmp_path, dry_run=True)
    assert progress is None and said.count("Rehearsed ") == 4  # Up to 8, 16, 32 and 53 sub-words.
    assert checkpoint.kept(tmp_path) == [] and not (tmp_path / "logs").exists()
    progress, said = train(tmp_path, dry_run=True, model=dataclasses.replace(MODEL, d_ff=8))
    assert "Using the data in" in said and "Rehearsed " in said


def test_a_damaged_checkpoint_is_not_averaged_in_silence(run, tmp_path):
    for name, content in files(run[0]).items():
        if name.parts[0] not in ("data", "logs"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
    checkpoint.kept(tmp_path)[0].write_bytes(b"")
    with pytest.raises(checkpoint.DamagedError, match="step-000000002.npz"):
        experiment.load(tmp_path, say=lambda text: None)


def test_an_update_that_is_not_finite_is_on_disk_as_ids_and_as_text(monkeypatch, tmp_path):
    """A weight that is not a number, as a broken device may leave one, ends a run with the pairs at hand."""
    make = Transformer.__init__

    def spoiled(self, *args, **kwargs):
        make(self, *args, **kwargs)
        self.decoder[0].feed_forward.inner.kernel.assign(self.decoder[0].feed_forward.inner.kernel * np.nan)

    monkeypatch.setattr(Transformer, "__init__", spoiled)
    with pytest.raises(ValueError, match="2 updates in a row, up to 2.*the weight transformer/decoder_0/feed_forward/inner/kernel"):
        train(tmp_path, train=dataclasses.replace(TRAIN, max_skipped=2))
    [report] = (tmp_path / "not_finite").glob("*.json")
    pairs = [tuple(pair) for finding in json.loads(report.read_text()) for pair in finding["pairs"]]
    assert set(pairs) <= set(builtin_corpus.splits(DATA.builtin_pairs, seed=TRAIN.seed)["train"])
    with np.load(report.with_suffix(".npz")) as archive:
        assert len(archive["source"]) == len(pairs)


def test_a_second_trainer_in_the_same_folder_is_refused_and_changes_nothing(run):
    model_dir = run[0]
    before = files(model_dir)
    with lock.exclusive(model_dir / "lock", "a first trainer"), pytest.raises(BlockingIOError, match=f"{model_dir} is in use by process"):
        train(model_dir, train=dataclasses.replace(TRAIN, train_steps=8))
    assert files(model_dir) == before
