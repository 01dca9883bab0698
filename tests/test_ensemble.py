"""Several models that translate as one, against their probabilities combined by hand."""

import dataclasses
import itertools
import json
import math
import pathlib
import shutil
import sys
import types

import numpy as np
import programs
import pytest
import stand_in
import tensorflow as tf
from test_beam_search import ranked
from test_savedmodel import ALONE
from test_search_hooks import SOURCES, VOCAB_SIZE, searched, small
from test_tools import tool
from toy_architecture import Gru, GruConfig

import t2t_keras
from t2t_keras.cli import flags
from t2t_keras.config import BOS, EOS, DecodeConfig, ModelConfig
from t2t_keras.decoding import loading
from t2t_keras.decoding.int8 import Int8
from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.decoding.translator import Translator
from t2t_keras.model.ensemble import Ensemble, combine
from t2t_keras.model.transformer import Transformer
from t2t_keras.runs import checkpoint
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving import ctranslate2_format, savedmodel
from t2t_keras.system import files
from t2t_keras.text import vocabulary

RUN_1 = pathlib.Path(__file__).parent / "data/run_1"
DECODE = DecodeConfig(beam_size=3, extra_length=2, alpha=0.6)
LINES = ["one", "twenty-one", "", "two hundred and seven", "the third of may"]


def log_mean(probabilities, weights=(), mean: str = "probabilities") -> np.ndarray:
    """Combines probabilities [n, ..., V] of n models."""
    shares = np.array(weights or [1] * len(probabilities), float) / sum(weights or [1] * len(probabilities))
    if mean == "probabilities":
        return np.log(np.tensordot(shares, probabilities, 1))
    product = np.exp(np.tensordot(shares, np.log(probabilities), 1))
    return np.log(product / product.sum(axis=-1, keepdims=True))


def by_hand(models, source: list[int], targets: list[tuple], **options) -> list[float]:
    """Returns log P of each target, with each model reading all of it at once."""
    length = max(map(len, targets))
    target = np.array([(*tokens, *[EOS] * (length - len(tokens))) for tokens in targets])
    shifted = np.pad(target[:, :-1], [[0, 0], [1, 0]], constant_values=BOS)
    inputs = tf.constant([source] * len(targets)), tf.constant(shifted)
    log_probs = log_mean(np.stack([tf.nn.softmax(tf.cast(model(inputs), tf.float64)) for model in models]), **options)
    each = np.take_along_axis(log_probs, target[:, :, None], axis=2)[..., 0]
    return [sum(values[: len(tokens)]) for values, tokens in zip(each, targets, strict=True)]


def other(seed: int) -> list:
    """Returns models of another size and of another architecture, over the vocabulary of `small`."""
    models = [
        Transformer(
            ModelConfig(VOCAB_SIZE, encoder_layers=2, decoder_layers=2, d_model=12, d_ff=10, num_heads=3, d_k=2, d_v=5)
        ),
        Gru(GruConfig(VOCAB_SIZE, d_model=6, depth=2)),
    ]
    draw = np.random.default_rng(seed)
    for weight in itertools.chain(*(model.trainable_variables for model in models)):
        weight.assign(draw.normal(0, 0.6, weight.shape))
    return models


def test_the_mean_of_probabilities_by_hand():
    logits = [tf.constant([[math.log(1 / 2)] * 2]), tf.constant([[math.log(1 / 4) + 9, math.log(3 / 4) + 9]])]
    np.testing.assert_allclose(combine(logits, [1 / 2, 1 / 2]), np.log([[3 / 8, 5 / 8]]), rtol=1e-6)
    np.testing.assert_allclose(combine(logits, [1 / 4, 3 / 4]), np.log([[5 / 16, 11 / 16]]), rtol=1e-6)
    product = np.array([2**-0.25 * 4**-0.75 * 2**-0.5, 2**-0.25 * (3 / 4) ** 0.75 * 2**-0.5]) * 2**0.5
    received = tf.nn.softmax(combine(logits, [1 / 4, 3 / 4], mean="logs"))
    np.testing.assert_allclose(received, [product / product.sum()], rtol=1e-6)


def test_what_one_model_finds_impossible_another_may_write():
    """P < 10⁻³⁸ of one is 0 in float32, and of the other a half. In the mean of logs, one model has a veto."""
    logits = [tf.constant([[0.0, -200.0]]), tf.constant([[-200.0, -200.0]]), tf.constant([[0.0, -300.0]])]
    np.testing.assert_allclose(combine(logits, [1 / 3] * 3), np.log([[2.5 / 3, 0.5 / 3]]), rtol=1e-6)
    np.testing.assert_allclose(combine([tf.constant([[0.0, -200.0]])] * 2, [0.5, 0.5])[0, 1], -200, rtol=1e-6)
    vetoed = combine(logits, [1 / 3] * 3, mean="logs")
    assert float(vetoed[0, 1] - vetoed[0, 0]) == pytest.approx(-500 / 3, rel=1e-6)


@pytest.mark.medium
@pytest.mark.parametrize(("frozen", "mean"), [(False, "probabilities"), (True, "logs")])
def test_a_model_beside_itself_is_that_model(frozen, mean):
    model = small(1)
    one, two = (
        Translator(each, None, DECODE, frozen=frozen) for each in (model, Ensemble([model, model], [3.0, 1.0], mean))
    )
    for received, expected in zip(searched(two, SOURCES, 6), searched(one, SOURCES, 6), strict=True):
        assert [tokens for tokens, _ in received] == [tokens for tokens, _ in expected]
        np.testing.assert_allclose([score for _, score in received], [score for _, score in expected], atol=1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("options", [{}, {"weights": [1.0, 0.5, 4.0], "mean": "logs"}])
def test_models_of_other_sizes_and_architectures_find_what_is_best_by_their_mean(options):
    """The beams of the recurrent model cross, and its states follow them."""
    models = [small(1), *other(2)]
    translator = Translator(Ensemble(models, **options), None, DecodeConfig(beam_size=90, alpha=0.6), frozen=True)
    ways, every = [()], []
    for _ in range(3):
        every += [(*way, EOS) for way in ways]
        ways = [(*way, token) for way in ways for token in range(VOCAB_SIZE) if token != EOS]
    for received, source in zip(searched(translator, SOURCES, 3), SOURCES, strict=True):
        expected = ranked(dict(zip(every, by_hand(models, source, every, **options), strict=True)), 0.6)
        assert len(expected) == 1 + 6 + 36
        assert [tokens for tokens, _ in received[:25]] == [tokens for tokens, _ in expected[:25]]
        np.testing.assert_allclose(
            [score for _, score in received[:25]], [score for _, score in expected[:25]], atol=1e-4
        )


def test_given_translations_are_scored_by_the_mean():
    models, targets = [small(1), *other(2)], [[5, 4, EOS], [6, EOS], [4, 4, 4, 5, EOS]]
    ragged = [tf.ragged.constant(rows, tf.int32, row_splits_dtype=tf.int64) for rows in (SOURCES, targets)]
    received = Translator(Ensemble(models, [1.0, 2.0, 3.0]), None, DECODE).log_probs(*ragged)
    for source, target, values in zip(SOURCES, targets, received.to_list(), strict=True):
        assert sum(values) == pytest.approx(*by_hand(models, source, [target], weights=[1.0, 2.0, 3.0]), abs=1e-4)


def test_draws_are_from_the_mean():
    """One model always writes 4, the other 5, and three of four draws are of the first."""
    always = []
    for token in (4, 5):
        model = small(1)
        for weight in model.trainable_variables:
            weight.assign(tf.zeros_like(weight))
        row = np.eye(VOCAB_SIZE, 8)[[token]]
        model.embedding.matrix.assign(np.where(np.arange(VOCAB_SIZE)[:, None] == token, 40 * row, 0))
        model.decoder[-1].feed_forward_norm.norm.beta.assign(row[0])
        always.append(model)
    translator = Translator(Ensemble(always, [3.0, 1.0]), None, DECODE)
    source = tf.ragged.constant([[6, EOS]], tf.int32, row_splits_dtype=tf.int64)
    options = {"seed": tf.constant([3], tf.int64), "temperature": [1.0], "top_k": [0], "top_p": [1.0]}
    drawn, scores = translator.draw(source, tf.constant([1]), tf.constant([400]), translator.scope, **options)
    tokens = drawn.to_tensor().numpy().ravel()
    assert set(tokens) == {4, 5} and 270 < np.sum(tokens == 4) < 330
    np.testing.assert_allclose(
        scores.to_tensor().numpy().ravel(), np.log(np.where(tokens == 4, 3 / 4, 1 / 4)), atol=1e-5
    )


def test_alignments_are_the_mean_of_those_of_models_that_align():
    first, second, gru = small(1), small(2), other(3)[1]
    source, target = tf.constant([[4, 5, 6, EOS]]), tf.constant([[BOS, 6, 5]])

    def aligned(model):
        assert model.aligns
        return model.align(target, model.encode(source))

    own = [aligned(model) for model in (first, second)]
    assert np.abs(own[0] - own[1]).max() > 0.01
    np.testing.assert_allclose(aligned(Ensemble([first, gru, second])), (own[0] + own[1]) / 2, rtol=1e-5)
    assert not Ensemble([gru, gru]).aligns


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_ensemble_has_the_precision_of_its_models(dtype):
    """An export names it, and counts the bytes of a weight by it."""
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 4, "d_ff": 4, "num_heads": 1, "d_k": 2, "d_v": 2}
    model = Transformer(ModelConfig(VOCAB_SIZE, **sizes), dtype=dtype)
    ensemble = Ensemble([model, model])
    assert ensemble.compute_dtype == ensemble.variable_dtype == dtype


def test_the_memory_of_a_search_is_that_of_all_models():
    models = [small(1), *other(2)]
    assert Ensemble(models).search_memory(4, 50) == sum(model.search_memory(4, 50) for model in models)


@pytest.mark.parametrize(("options", "message"), [
    ({"weights": [1.0]}, "Expected 2 `ensemble_weights`, numbers of 1e-6 to 1e6. Received: 1.0."),
    ({"weights": [1.0, 0.0]}, "Expected 2 `ensemble_weights`, numbers of 1e-6 to 1e6. Received: 1.0, 0.0."),
    ({"weights": [1.0, math.nan]}, "Expected 2 `ensemble_weights`, numbers of 1e-6 to 1e6. Received: 1.0, nan."),
    ({"weights": [math.inf, 1.0]}, "Expected 2 `ensemble_weights`, numbers of 1e-6 to 1e6. Received: inf, 1.0."),
    ({"weights": [1e-200, 1.0]}, "Expected 2 `ensemble_weights`, numbers of 1e-6 to 1e6. Received: 1e-200, 1.0."),
    ({"weights": ["2", "1"]}, "Expected 2 `ensemble_weights`, numbers of 1e-6 to 1e6. Received: 2, 1."),
    ({"mean": "votes"}, "Expected `ensemble_mean` to be one of probabilities, logs. Received: votes."),
])  # fmt: skip
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Ensemble([small(1)] * 2, **options)


def test_vocabularies_of_other_sizes_are_refused():
    with pytest.raises(ValueError, match="Models of an ensemble must have vocabularies of one size. Received: 7, 9."):
        Ensemble([small(1), Gru(GruConfig(9, d_model=4))])


def test_models_that_read_a_text_with_other_placeholders_are_refused():
    """What one of them replaces, another would read."""
    own, same, different = (types.SimpleNamespace(pattern=pattern) for pattern in ("x", "x", "y"))
    tokenizer = types.SimpleNamespace(source=own)
    assert Translator(Ensemble([small(1)] * 2), tokenizer, DECODE, other_sources=[same]).other_sources == [same]
    with pytest.raises(ValueError, match="Models that translate together must have the same placeholders .*These have"):
        Translator(Ensemble([small(1)] * 2), tokenizer, DECODE, other_sources=[same, different])


def test_each_source_is_read_in_its_own_sub_words():
    first, *others = (
        types.SimpleNamespace(
            pattern="", detokenize=lambda ids: "text", tokenize=lambda text, name=name: f"{text} in {name}"
        )
        for name in ("the first", "the second", "the third")
    )
    translator = Translator(Ensemble([small(1)] * 3), types.SimpleNamespace(source=first), DECODE, other_sources=others)
    read = translator.sources("ids")
    assert read == {"source": "ids", "source_1": "text in the second", "source_2": "text in the third"}


def test_an_export_counts_the_shared_matrix_of_each_model_twice(tmp_path, monkeypatch):
    narrow, wide, apart = small(1), other(2)[0], Transformer(dataclasses.replace(small(1).config, source_vocab_size=9))
    number = sum(model.count_params() for model in (narrow, wide, apart)) + VOCAB_SIZE * (8 + 12)
    monkeypatch.setattr(savedmodel, "MAX_BYTES", 4 * number - 1)
    monkeypatch.setattr(savedmodel, "write_version", lambda *given: tmp_path)
    with pytest.raises(ValueError, match=f"Received: {4 * number:,} bytes for {number:,} weights"):
        savedmodel.export(Translator(Ensemble([narrow, wide, apart]), None, DECODE), tmp_path, {})


# Runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[pathlib.Path]:
    """Two runs with the same sub-words: that of the tests, and one twice as wide with random weights."""
    folder = tmp_path_factory.mktemp("runs,of_two_sizes") / "wide"
    folder.mkdir()
    shutil.copy(RUN_1 / "subwords.model", folder)
    written = json.loads((RUN_1 / "config.json").read_text())
    wide = written["model"] | {"d_model": 16, "decoder_layers": 2}
    return [RUN_1, write_run(folder, written | {"model": wide, "decode": written["decode"] | {"beam_size": 3}}, seed=4)]


def write_run(folder: pathlib.Path, config: dict, seed: int) -> pathlib.Path:
    """Random weights."""
    (folder / "config.json").write_text(json.dumps(config))
    model, draw = Transformer(ModelConfig(**config["model"])), np.random.default_rng(seed)
    for weight in model.trainable_variables:
        weight.assign_add(draw.normal(0, 0.3, weight.shape))
    checkpoint.write(checkpoint.path_of(folder, 5), model, None, {"step": 5, "best": 0.0, "best_step": 0})
    return folder


def scores_of(translator: Translator) -> np.ndarray:
    """Returns log P of the first line and two targets."""
    ids = translator.tokenizer.tokenize
    return tf.reduce_sum(translator.log_probs(ids(["one", "one"]), ids(["eins", "zwei"])), axis=1).numpy()


def test_runs_are_loaded_together(runs, messages):
    each = [scores_of(loading.load(run)) for run in runs]
    assert np.abs(each[0] - each[1]).min() > 0.1
    ensemble = loading.load(runs, ensemble_weights=[1.0, 3.0])
    models = [loading.load(run).model for run in runs]
    source, *targets = ensemble.tokenizer.tokenize(["one", "eins", "zwei"]).to_list()
    expected = [by_hand(models, source, [target], weights=[1, 3])[0] for target in targets]
    np.testing.assert_allclose(scores_of(ensemble), expected, atol=1e-4)
    assert ensemble.config.beam_size == 2 and loading.load(runs[::-1], beam_size=5).config.beam_size == 5
    assert all(f"Using the average of {run}: " in message for run, message in zip(runs, messages[2:4], strict=True))


@pytest.mark.medium
def test_the_library_takes_a_list_of_runs(runs):
    together = t2t_keras.load(list(map(str, runs)), ensemble_mean="logs")
    expected = scores_of(loading.load(runs, ensemble_mean="logs"))
    assert together.score("one", "eins") == pytest.approx(expected[0], abs=1e-5)
    assert together.score("one", "eins") != pytest.approx(t2t_keras.load(runs).score("one", "eins"), abs=1e-3)


@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"int8": True}])
def test_a_run_beside_itself_is_that_run_in_other_precisions_too(options):
    one, two = (scores_of(loading.load(each, **options)) for each in (RUN_1, [RUN_1, RUN_1]))
    np.testing.assert_allclose(two, one, atol=0.05 if "dtype" in options else 1e-4)
    assert np.abs(one - scores_of(loading.load(RUN_1))).max() > 1e-4


def test_in_bfloat16_each_run_has_its_own_weights(runs, monkeypatch):
    """And its own architecture."""
    cast, folders = loading._cast, []
    monkeypatch.setattr(
        loading, "_cast", lambda model, folder, dtype: folders.append(folder) or cast(model, folder, dtype)
    )
    for run, model in zip(runs, loading.load(runs, dtype="bfloat16").model.models, strict=True):
        for found, trained in zip(model.weights, loading.load(run).model.weights, strict=True):
            np.testing.assert_array_equal(found.numpy(), tf.cast(trained.value, tf.bfloat16).numpy())
    assert [run.folder for run in folders] == list(runs)


@pytest.fixture(scope="module")
def own_source(runs, tmp_path_factory) -> pathlib.Path:
    """A run whose source has other sub-words: the target's are those of the tests."""
    folder = tmp_path_factory.mktemp("own_source")
    shutil.copytree(runs[1], folder, dirs_exist_ok=True)
    options = {"sample": 1000, "seed": 1, "normalization": "identity", "character_coverage": 1.0}
    learned = vocabulary.learn("bpe", (line.encode() for line in stand_in.sentences(300)), 310, **options)
    (folder / files.SOURCE_SUBWORDS).write_bytes(learned)
    written = json.loads((folder / "config.json").read_text())
    config = written["model"] | {"source_vocab_size": 310}
    described = {"model": config, "source_subwords": files.describe(folder / files.SOURCE_SUBWORDS)}
    return write_run(folder, written | described, seed=6)


@pytest.mark.medium
@pytest.mark.parametrize("first", [0, 1])
def test_runs_may_have_other_sub_words_of_the_source(runs, own_source, first):
    """Each model reads the text in its own; the second of three has those of the first or not."""
    folders = [[runs[0], own_source, runs[1]], [own_source, runs[0], own_source]][first]
    ensemble, each = loading.load(folders), [loading.load(folder) for folder in folders]
    line, targets = "eleven million and twelve", ["zweihundert", "sieben"]
    own = [translator.source_tokenizer.tokenize([line]).to_list()[0] for translator in each]
    assert len(own[0]) != len(own[1])
    for target in ensemble.tokenizer.tokenize(targets).to_list():
        shifted = tf.constant([[BOS, *target[:-1]]])
        probabilities = [
            tf.nn.softmax(one.model((tf.constant([ids]), shifted)))[0].numpy()
            for one, ids in zip(each, own, strict=True)
        ]
        by_token = np.log(np.mean(probabilities, axis=0))[range(len(target)), target]
        source = ensemble.source_tokenizer.tokenize([line])
        received = ensemble.log_probs(source, tf.RaggedTensor.from_row_lengths(tf.constant(target), [len(target)]))
        np.testing.assert_allclose(received.to_list()[0], by_token, atol=1e-4)
    source = ensemble.source_tokenizer.tokenize(["one", line])
    sequences, scores = ensemble.search(source, tf.zeros(2), tf.fill([2], 30), tf.fill([2], 2))
    log_probs = tf.reduce_sum(ensemble.log_probs(source, sequences[:: ensemble.config.beam_size]), axis=1)
    np.testing.assert_allclose(scores[:, 0], log_probs, atol=1e-4)
    assert ensemble(tf.constant([line, ""]))["text"][1] == b""


@pytest.mark.medium
def test_what_has_two_sources_aligns_with_the_first(runs, own_source):
    folders = [own_source, runs[0]]
    ensemble, first = t2t_keras.load(folders), t2t_keras.load(own_source)
    [found] = ensemble.n_best("two hundred", 1, alignment=True)
    source = first._model.translator
    ids = [source.tokenizer.pieces.index(piece) for piece in found.pieces]
    read = source.source_tokenizer.tokenize(["two hundred"]).to_tensor()
    expected = source.model.align(tf.constant([[BOS, *ids[:-1]]]), source.model.encode(read))
    assert len(found.source_pieces) == found.alignment.shape[1]
    np.testing.assert_allclose(found.alignment, expected[0], atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_8_bits_are_those_of_the_weights_in_float32(runs, dtype):
    translator = loading.load(runs, dtype=dtype, int8=True)
    alone = itertools.chain(*(Int8(loading.load(run).model).matrices for run in runs))
    for found, expected in zip(translator.int8.matrices, alone, strict=True):
        np.testing.assert_array_equal(found._quantized, expected._quantized)


def test_other_sub_words_none_and_other_mistakes_are_refused(runs, tmp_path):
    strange = tmp_path / "strange"
    shutil.copytree(RUN_1, strange)
    changed = stand_in.subwords("bpe")
    (strange / "subwords.model").write_bytes(changed)
    written = json.loads((strange / "config.json").read_text())
    (strange / "config.json").write_text(json.dumps(written | {"subwords": files.describe(strange / "subwords.model")}))
    with pytest.raises(
        ValueError, match=f"the same sub-words of the target, .*run_1/subwords.model. Received: {strange}, which has"
    ):
        loading.load([RUN_1, strange])
    with pytest.raises(ValueError, match="Expected the folder of a run, or several. Received none."):
        t2t_keras.load([])
    with pytest.raises(ValueError, match="Expected several models with `ensemble_weights`. Received: 1.0, 2.0."):
        t2t_keras.load(RUN_1, ensemble_weights=[1.0, 2.0])
    with pytest.raises(FileNotFoundError, match="nothing is not a model folder"):
        t2t_keras.load([RUN_1, tmp_path / "nothing"])
    with pytest.raises(ValueError, match="a Transformer for the format of CTranslate2. Received: a model of Ensemble"):
        ctranslate2_format.write(loading.load(runs), tmp_path / "out")


@pytest.mark.medium
def test_an_export_of_an_ensemble_translates_and_draws_alone(runs, own_source, tmp_path):
    folders, options = [own_source, runs[0]], {"ensemble_weights": [1.0, 3.0], "ensemble_mean": "logs"}
    version = savedmodel.export_run(tmp_path / "exports", TrainedModel.open(folders, "latest", **options))
    command = [sys.executable, "-c", ALONE, str(version)]
    said = programs.run(command, input=json.dumps(LINES).encode(), capture_output=True, check=True).stdout
    texts, scores, log_probs, drawn, drawn_scores = json.loads(said)
    library = t2t_keras.load(folders, "latest", **options)
    translator = library._model.translator
    found = translator(tf.constant(LINES))
    assert texts == [text.decode() for text in found["text"].numpy()] == library.translate(LINES)
    np.testing.assert_allclose(scores, found["score"], atol=1e-5)
    sources, targets = translator.source_tokenizer.tokenize(LINES), translator.tokenizer.tokenize(LINES)
    np.testing.assert_allclose(log_probs, tf.reduce_sum(translator.log_probs(sources, targets), axis=1), atol=1e-4)
    sampled = library.sample(LINES, draws=3, seeds=range(len(LINES)), temperature=0.8, top_k=20, top_p=0.9)
    assert drawn == [[each.text for each in draws] for draws in sampled]
    np.testing.assert_allclose(drawn_scores, [[each.score for each in draws] for draws in sampled], atol=1e-4)
    described = json.loads((version / "assets.extra" / savedmodel.DESCRIPTION).read_text())
    assert described["models"] == [dataclasses.asdict(SavedRun.open(run).model) for run in folders]
    assert "model" not in described
    assert described["ensemble_weights"] == [0.25, 0.75] and described["ensemble_mean"] == "logs"
    assert [run["update"] for run in described["runs"]] == [5, 2000] and described["runs"][1]["checkpoint"] == "latest"


# Programs


@pytest.mark.medium
def test_flags_reach_the_ensemble(runs, tmp_path):
    (tmp_path / "in").write_text("one\ntwo hundred and seven\n")
    copies = [shutil.copytree(run, tmp_path / name) for name, run in zip("ab", runs, strict=True)]
    given = [f"--model_dir={copies[0]}, {copies[1]}", f"--input={tmp_path}/in", "--n_best=1"]
    said = tool("translate", *given, "--ensemble_weights=1,3", "--ensemble_mean=logs")
    assert said.returncode == 0, said.stderr
    ensemble = loading.load(runs, ensemble_weights=[1.0, 3.0], ensemble_mean="logs")
    expected = ensemble(tf.constant(["one", "two hundred and seven"]))["score"]
    scores = [float(line.split("\t")[1]) for line in said.stdout.decode().splitlines()]
    np.testing.assert_allclose(scores, expected, atol=1e-3)


def test_a_folder_with_a_comma_in_its_name_is_one_run(runs, tmp_path):
    assert flags.run_folders(str(runs[1])) == [runs[1]] and "," in str(runs[1])
    assert flags.run_folders(f"{tmp_path}/a, ~/b,") == [tmp_path / "a", pathlib.Path.home() / "b"]


@pytest.mark.parametrize(
    ("program", "flags", "message"),
    [
        (
            "translate", ["--ensemble_weights=1,2"],
            "Expected several models with --ensemble_weights. Received: 1.0, 2.0."
        ),
        (
            "translate", [f"--model_dir={RUN_1},{RUN_1}", "--ensemble_weights=1,x"],
            "--ensemble_weights must be numbers. Received: 1,x."
        ),
        ("translate", [f"--model_dir={RUN_1},nowhere"], "nowhere is not a model folder"),
        (
            "attention", [f"--model_dir={RUN_1},{RUN_1}", "--output=x"],
            "The attention of an ensemble cannot be drawn. Give one run, not 2."
        ),
        (
            "evaluate",
            ["--model_dir=", "--hypothesis=h", "--reference=r", "--ensemble_mean=logs"],
            "--ensemble_mean has no effect without --model_dir. Received: --ensemble_mean='logs'.",
        ),
        ("serve", [f"--model_dir={RUN_1},nowhere"], "nowhere is not a model folder"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_before_tensorflow_is_imported(program, flags, message):
    given = flags if any(flag.startswith("--model_dir") for flag in flags) else [f"--model_dir={RUN_1}", *flags]
    said = tool(program, *given)
    assert said.returncode == 1 and message in said.stderr.decode(), said.stderr.decode()
