"""Sub-words of the source alone: in records, in a run's folder, and for all that reads or writes text."""

import dataclasses
import hashlib
import json
import math
import pathlib
import shutil

import numpy as np
import programs
import pytest
import stand_in
import tensorflow as tf
import toy_task  # noqa: F401
from test_architecture import arrays
from test_parent import GIVEN, trained
from test_prepare import TRAIN, VALID, contents, texts, write_text

from t2t_keras.config import BOS, EOS, DataConfig, DecodeConfig
from t2t_keras.data import corpora, prepare, shards
from t2t_keras.decoding.loading import load
from t2t_keras.decoding.reranking import reranked
from t2t_keras.decoding.translator import Translator, translate_lines
from t2t_keras.evaluation.cross_entropy import perplexity
from t2t_keras.reporting.attention import attention_of
from t2t_keras.runs import checkpoint, data_folder, registry, run_options
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving import savedmodel
from t2t_keras.serving.signatures import Signatures
from t2t_keras.text import tokenizer_ops, vocabulary

# A data folder.

SIZES = {"vocab_size": 310, "source_vocab_size": 320}
TASK = registry.task("translation")


@pytest.fixture
def data(tmp_path) -> DataConfig:
    return DataConfig(
        **write_text(tmp_path, "train", TRAIN), **write_text(tmp_path, "valid", VALID), character_coverage=1.0
    )


def prepared(data: DataConfig, folder: pathlib.Path, write_train=prepare.write, **options) -> pathlib.Path:
    prepare.Preparation(data, seed=1, folder=folder, task=TASK, **{**SIZES, **options}).run(write_train)
    return folder


def learned(side: int, size: int, kind: str = "bpe") -> bytes:
    lines = (pair[side].encode() for pair in TRAIN)
    return vocabulary.learn(
        kind, lines, size, sample=2_000_000, seed=1, normalization="identity", character_coverage=1.0
    )


def test_each_side_has_the_sub_words_that_its_text_gives_and_records_have_their_ids(data, tmp_path):
    folder = prepared(data, tmp_path / "data")
    assert (folder / "subwords.source.model").read_bytes() == learned(0, 320)
    assert (folder / "subwords.model").read_bytes() == learned(1, 310)
    assert (texts(folder, "train"), texts(folder, "valid")) == (TRAIN, VALID)
    assert data_folder.recorded_options(folder)["source_vocab_size"] == 320


def test_a_computed_size_that_the_target_does_not_give_adapts_to_the_target_alone(data, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "vocabulary_size", lambda pairs: 10_000)
    folder = prepared(data, tmp_path / "data", vocab_size=0)
    with pytest.raises(ValueError, match="which gives ([0-9]+) at most") as refused:
        learned(1, 10_000)
    assert (folder / "subwords.model").read_bytes() == learned(1, refused.value.nearest)
    assert (folder / "subwords.source.model").read_bytes() == learned(0, 320)


def test_the_source_sub_words_of_an_unfinished_preparation_are_not_those_of_the_next_one(data, tmp_path):
    """Story: a run of shared sub-words found the file, and translated with sub-words that it had not learned."""
    with pytest.raises(ValueError, match="is longer than `max_length=2`"):
        prepared(dataclasses.replace(data, max_length=2), tmp_path / "data")
    assert data_folder.source_subwords_in(tmp_path / "data")
    assert data_folder.source_subwords_in(prepared(data, tmp_path / "data", source_vocab_size=0)) is None


@pytest.mark.parametrize(
    "sizes", [SIZES, {"vocab_size": 310, "source_vocab_size": 0}], ids=["two matrices", "a shared matrix"]
)
def test_given_files_are_those_of_their_sides(data, tmp_path, sizes, messages):
    """With a shared matrix, as models of other toolkits have, both have as many ids."""
    files = [tmp_path / name for name in ("a.model", "b.model")]
    for path, model in zip(files, (learned(1, 310), learned(0, sizes["source_vocab_size"] or 310)), strict=True):
        path.write_bytes(model)
    given = dataclasses.replace(data, subwords_file=str(files[0]), source_subwords_file=str(files[1]))
    folder = prepared(given, tmp_path / "data", **sizes)
    assert any("share one embedding matrix" in message for message in messages) == (sizes != SIZES)
    found = [(folder / name).read_bytes() for name in ("subwords.model", "subwords.source.model")]
    assert found == [path.read_bytes() for path in files]
    assert texts(folder, "train") == TRAIN
    prepared(given, folder, **sizes)  # Used again.
    files[1].write_bytes(files[0].read_bytes())
    with pytest.raises(ValueError, match="`source_subwords_file` was b.model .*, and is now b.model "):
        prepared(given, folder, **sizes)


@pytest.mark.parametrize(("options", "told"), [
    ({"source_vocab_size": 0}, "`source_vocab_size` was 320, and is now not given"),
    ({"source_vocab_size": 321}, "`source_vocab_size` was 320, and is now 321"),
    ({"vocab_size": 311}, "`vocab_size` was 310, and is now 311"),
])  # fmt: skip
def test_a_folder_prepared_with_other_sizes_is_refused(data, tmp_path, options, told):
    folder = prepared(data, tmp_path / "data")
    with pytest.raises(ValueError, match=told):
        prepared(data, folder, **options)


@pytest.mark.parametrize(("option", "sizes", "told"), [
    ("source_subwords_file", SIZES,
     "Expected source_vocab_size=310, that of .*given.model. Received: source_vocab_size=320"),
    ("source_subwords_file", {"source_vocab_size": 0, "vocab_size": 320},
     "Expected vocab_size=310, .* Received: vocab_size=320"),
    ("subwords_file", {"vocab_size": 320}, "Expected vocab_size=310, that of .*given.model. Received: vocab_size=320"),
])  # fmt: skip
def test_a_given_file_of_another_size_is_refused_by_the_option_of_its_side(data, tmp_path, option, sizes, told):
    (tmp_path / "given.model").write_bytes(learned(1, 310))
    with pytest.raises(ValueError, match=told):
        prepared(dataclasses.replace(data, **{option: str(tmp_path / "given.model")}), tmp_path / "data", **sizes)


def test_too_few_sub_words_are_reported_by_the_option_of_the_source(data, tmp_path):
    with pytest.raises(ValueError, match="^`source_vocab_size=100` is too small for this text"):
        prepared(data, tmp_path / "data", source_vocab_size=100)


@pytest.mark.parametrize("given", ["subwords_file", "source_subwords_file"])
def test_without_tf_text_word_pieces_of_either_side_are_refused_before_any_text_is_read(
    data, tmp_path, monkeypatch, given
):
    (tmp_path / "given.model").write_bytes(learned(1, 290, "wordpiece"))
    monkeypatch.setattr(tokenizer_ops, "tf_text", None)
    monkeypatch.setattr(corpora, "pairs", lambda *args, **options: pytest.fail("Text was read."))
    asked = dataclasses.replace(data, subwords="wordpiece", **{given: str(tmp_path / "given.model")})
    with pytest.raises(ValueError, match="Learning word pieces needs TF.Text"):
        prepared(asked, tmp_path / "data", vocab_size=290, source_vocab_size=290)
    assert not (tmp_path / "data").exists()


def test_beam_writes_the_same_folder(data, tmp_path):
    preparing = pytest.importorskip("t2t_keras.beam.preparing", reason="the extra 'beam' is not installed")
    folder = prepared(data, tmp_path / "beam", write_train=preparing.writer("DirectRunner"))
    assert contents(folder) == contents(prepared(data, tmp_path / "local"))


def test_the_type_of_ids_holds_those_of_the_larger_vocabulary(data, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "id_type", lambda size: np.dtype("<u2" if size <= 310 else "<i4"))
    folder = prepared(data, tmp_path / "data")
    assert shards.read_info(folder / "train")["vocab_size"] == 320
    assert texts(folder, "train") == TRAIN


# A run.

OPTIONS = {
    **{"source_vocab_size": 330, "attention_bias": True, "attention": "additive", "activation": "swish"},
    **{"tie_logits": False, "logits_bias": True},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A run and, in `data`, its data."""
    folder = tmp_path_factory.mktemp("runs")
    trained(folder / "run", **GIVEN | OPTIONS)
    return folder / "run"


def resolved(model_dir: pathlib.Path, data_dir: pathlib.Path, **given) -> run_options.Options:
    return Start.open(model_dir, given, str(data_dir)).options


@pytest.mark.medium
def test_a_new_run_has_the_sizes_that_its_data_was_prepared_with(folder, tmp_path):
    options = resolved(tmp_path / "new", folder / "data")
    assert (options.model.vocab_size, options.model.source_vocab_size) == (340, 330)
    assert options.sources["source_vocab_size"] == "data folder"
    for size in (0, 331):
        with pytest.raises(ValueError, match=f"`source_vocab_size` was 330, and is now {size}. Give"):
            resolved(tmp_path / "new", folder / "data", source_vocab_size=size)


def test_data_without_sub_words_of_the_source_are_not_for_a_run_that_has_some(tmp_path):
    data = DataConfig(dataset="builtin", builtin_pairs=300)
    prepare.Preparation(data, 330, 1, tmp_path / "data", TASK).run()
    with pytest.raises(ValueError, match="`source_vocab_size` was 0, and is now 330"):
        resolved(tmp_path / "new", tmp_path / "data", source_vocab_size=330)
    assert resolved(tmp_path / "new", tmp_path / "data").model.source_vocab_size == 0


@pytest.mark.medium
@pytest.mark.parametrize("given", [{"source_subwords_file": "x.model"}, {}], ids=["option", "data folder"])
def test_a_task_of_one_vocabulary_refuses_another(folder, tmp_path, given):
    """Its architecture may not even have the option."""
    with pytest.raises(ValueError, match="source_"):
        Start.open(tmp_path / "new", given | {"architecture": "tagger"}, "" if given else str(folder / "data"))


@pytest.mark.medium
def test_the_folder_of_a_run_has_both_files_and_their_hashes(folder):
    written = json.loads((folder / "config.json").read_text())
    for key, name in (("subwords", "subwords.model"), ("source_subwords", "subwords.source.model")):
        content = (folder / name).read_bytes()
        assert content == (folder / "data" / name).read_bytes()
        assert written[key] == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@pytest.mark.medium
@pytest.mark.parametrize("name", ["subwords.model", "subwords.source.model"])
def test_a_run_does_not_do_without_one_of_its_files_nor_with_another(folder, tmp_path, name):
    shutil.copytree(folder, tmp_path / "run")
    path, other = tmp_path / "run" / name, {"subwords.model": "subwords.source.model"}.get(name, "subwords.model")
    shutil.copy(tmp_path / "run" / other, path)
    with pytest.raises(ValueError, match=f"{name} is not what .* was trained with"):
        load(tmp_path / "run")
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"{name} is missing"):
        load(tmp_path / "run")


@pytest.mark.medium
def test_a_run_does_not_go_on_with_other_sub_words_of_the_source(folder):
    subwords, records = folder / "data" / "subwords.model", folder / "data" / "train" / shards.RECORDS
    SavedRun.open(folder).check_data(subwords, records, folder / "subwords.source.model")
    for other in (None, subwords):
        with pytest.raises(ValueError, match="holds a model with other sub-words"):
            SavedRun.open(folder).check_data(subwords, records, other)


@pytest.mark.medium
def test_a_resumed_run_is_the_uninterrupted_one(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "again")
    checkpoint.put_aside(tmp_path / "again", after=checkpoint.path_of(tmp_path / "again", 2))
    trained(tmp_path / "again")
    whole, again = arrays(folder), arrays(tmp_path / "again")
    assert again.keys() == whole.keys()
    for name, expected in whole.items():
        np.testing.assert_allclose(again[name], expected, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.medium
def test_a_child_has_the_sub_words_of_both_sides_from_its_parent(folder, tmp_path):
    said = trained(
        tmp_path / "child", parent=str(folder), dataset="builtin", builtin_pairs=350, train_steps=1, valid_steps=1,
        valid_sentences=0, best_metric="loss", batch_tokens=400
    )  # fmt: skip
    assert "Starting from the" in said and "weights that it does not have" not in said
    for name in ("subwords.model", "subwords.source.model"):
        assert (tmp_path / "child" / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.medium
def test_a_loaded_run_reads_and_writes_with_its_two_vocabularies(folder):
    translator = load(folder)
    assert (translator.source_tokenizer.vocab_size, translator.tokenizer.vocab_size) == (330, 340)
    assert translator.model.encoder.embedding.matrix.shape == (330, 8)


# A translator.

DECODE = DecodeConfig(beam_size=2, max_input=24, extra_length=4)
LINES = [
    "two hundred and seven", "", "one", "😀 ½",
    "the twenty-first of may nineteen ninety-nine and one million and one euros",
]  # fmt: skip
SOURCE_SIZE = 300


@pytest.fixture(scope="module")
def translator() -> Translator:
    english = (source.encode() for source, _ in stand_in.pairs())
    own = vocabulary.learn(
        "bpe", english, SOURCE_SIZE, sample=10_000, seed=1, normalization="identity", character_coverage=1.0
    )
    tokenizer = vocabulary.load_sides(stand_in.subwords("bpe"), own)
    model = stand_in.translator(
        DECODE, source_vocab_size=SOURCE_SIZE, attention_bias=True, tie_logits=False, logits_bias=True
    ).model
    return Translator(model, tokenizer, DECODE, frozen=True)


@pytest.fixture(scope="module")
def service(translator) -> Signatures:
    return Signatures(translator)


def own_ids(translator: Translator, lines: list[str]) -> tf.RaggedTensor:
    """Of sources, cut to `max_input`."""
    alone = vocabulary.load(translator.tokenizer.models[1])
    return tf.ragged.constant(
        [[*ids[:-1][: DECODE.max_input - 1], EOS] for ids in alone.tokenize(tf.constant(lines)).to_list()], tf.int32
    )


def log_p(translator: Translator, source: str, target: str) -> list[float]:
    ids = own_ids(translator, [source]).to_tensor()
    tokens = translator.tokenizer.tokenize(tf.constant([target]))[0].numpy()
    logits = translator.model((ids, tf.constant([[BOS, *tokens[:-1]]])))[0]
    return [float(row[token]) for row, token in zip(tf.nn.log_softmax(logits), tokens, strict=True)]


@pytest.mark.medium
def test_a_translation_is_what_the_search_writes_for_the_ids_of_the_source(translator, service):
    ids, number = own_ids(translator, LINES), tf.ones(len(LINES), tf.int32)
    assert max(map(len, ids.to_list())) == DECODE.max_input
    lengths = tf.cast(ids.row_lengths(), tf.int32) + DECODE.extra_length
    sequences, scores = translator.search(ids, tf.fill(len(LINES), DECODE.alpha), lengths, number)
    blank = tf.constant([not line for line in LINES])
    expected = {name: values[:, 0] for name, values in translator.texts(sequences, scores, blank).items()}
    for found in (translator(tf.constant(LINES)), service.translate(tf.constant(LINES))):
        np.testing.assert_array_equal(found["text"], expected["text"])
        np.testing.assert_allclose(found["score"], expected["score"], atol=1e-5)
        np.testing.assert_array_equal(found["truncated"], [False] * 4 + [True])
    assert len(set(expected["text"].numpy())) == len(LINES)


@pytest.mark.medium
def test_the_best_of_many_samples_are_read_with_the_source_s_sub_words_too(translator, service):
    """At a low temperature all draws are the greedy translation."""
    rows = tf.ones(len(LINES), tf.int32)
    found = service.sample(
        tf.constant(LINES), tf.zeros(len(LINES), tf.int64), rows, tf.fill(len(LINES), 0.01), 0 * rows,
        tf.ones(len(LINES)), 0 * rows,
    )  # fmt: skip
    greedy = Translator(translator.model, translator.tokenizer, dataclasses.replace(DECODE, beam_size=1))
    np.testing.assert_array_equal(found["text"][:, 0], greedy(tf.constant(LINES))["text"])


@pytest.mark.medium
def test_scores_of_given_translations_are_log_p_of_the_target_s_sub_words(translator, service):
    pairs = [("two hundred and seven", "zweihundertsieben"), ("one", "eins")]
    expected = [log_p(translator, *pair) for pair in pairs]
    found = service.score(*map(tf.constant, zip(*pairs, strict=True)))
    np.testing.assert_allclose(found["log_prob"], [sum(values) for values in expected], atol=1e-4)
    total, number = sum(map(sum, expected)), sum(map(len, expected))
    sources, targets = map(list, zip(*pairs, strict=True))
    assert perplexity(translator, sources, targets) == pytest.approx(math.exp(-total / number), rel=1e-4)


@pytest.mark.medium
def test_a_model_that_translates_back_reads_the_translation_with_its_source_s_sub_words(translator):
    """Both sides swap roles: each model tokenizes its own."""
    forward = stand_in.translator(DECODE)
    found = list(
        translate_lines(reranked(forward.n_best, translator, weight=1.0, alpha=0.0, direction="backward"), [LINES[0]])
    )[0]
    before = list(translate_lines(forward.n_best, [LINES[0]]))[0]
    expected = {
        text: score + sum(log_p(translator, text, LINES[0]))
        for text, score in zip(before["text"], before["score"], strict=True)
    }
    assert dict(zip(found["text"], found["score"], strict=True)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.medium
def test_pieces_of_each_side_are_named_by_its_own_sub_words(translator, service):
    line, rows = LINES[0], [1]
    found = service.translate_with_options(
        text=tf.constant([line]), alpha=tf.fill(rows, -1.0), max_length=tf.zeros(rows, tf.int32),
        n_best=tf.ones(rows, tf.int32), prefix=tf.constant(["zwei"]), alignment=tf.constant([True]),
        constraints=tf.constant([""]), avoid=tf.constant([""]), ordered=tf.constant([False]),
    )  # fmt: skip
    source, target = translator.source_tokenizer, translator.tokenizer
    received = [piece.decode() for piece in found["source_pieces"][0].numpy()]
    assert received == [source.pieces[i] for i in own_ids(translator, [line])[0].numpy()]
    forced = [target.pieces[i] for i in target.tokenize(["zwei"])[0, :-1].numpy()]
    assert [piece.decode() for piece in found["pieces"][0, 0].numpy()][: len(forced)] == forced
    attention = attention_of(translator, line, "zwei eins")
    assert "".join(attention.source.pieces).replace("▁", " ") == f" {line}</s>"
    assert "".join(attention.target.pieces).replace("▁", " ") == " zwei eins</s>"
    assert attention.source.words[-1] == "</s>" and attention.target.words[:2] == ("zwei", "eins")


@pytest.mark.medium
def test_an_export_without_this_package_reads_and_writes_as_the_translator(translator, service, tmp_path):
    version = savedmodel.export(translator, tmp_path, {})
    described = json.loads((version / "assets.extra" / savedmodel.DESCRIPTION).read_text())
    hashes = [hashlib.sha256(model).hexdigest() for model in translator.tokenizer.models]
    assert [described["subwords_sha256"], described["source_subwords_sha256"]] == hashes
    written, _, log_probs = programs.alone(programs.TRANSLATE, version, LINES)
    lines = tf.constant(LINES)
    assert written == [text.decode("utf-8", "replace") for text in translator(lines)["text"].numpy()]
    np.testing.assert_allclose(log_probs, service.score(lines, lines)["log_prob"], atol=1e-4)


def test_the_limit_of_an_export_counts_matrices_that_are_not_shared_once(translator, tmp_path, monkeypatch):
    number = translator.model.config.num_weights
    monkeypatch.setattr(savedmodel, "MAX_BYTES", 4 * number - 1)
    with pytest.raises(ValueError, match=f"Received: {4 * number:,} bytes for {number:,} weights"):
        savedmodel.export(translator, tmp_path, {})


def test_ctranslate2_translates_alike(translator, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra 'ctranslate2' is not installed")
    from t2t_keras.serving import ctranslate2_format

    ctranslate2_format.write(translator, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "model.bin", "config.json", "README.md", "source_vocabulary.json", "target_vocabulary.json",
        "subwords.model", "subwords.source.model",
    }  # fmt: skip
    theirs = ctranslate2.Translator(str(tmp_path), compute_type="float32", intra_threads=1)
    source, target = LINES[0], "zweihundertsieben"
    ids, tokens = own_ids(translator, [source])[0, :-1].numpy(), translator.tokenizer.tokenize([target])[0, :-1].numpy()
    pieces = [translator.source_tokenizer.pieces[i] for i in ids], [translator.tokenizer.pieces[i] for i in tokens]
    [scored] = theirs.score_batch(*([each] for each in pieces))
    np.testing.assert_allclose(scored.log_probs, log_p(translator, source, target), atol=1e-4)
