"""Imported Marian models: their options, vocabularies, and what a run does. The rest is in `test_imports.py`."""

import json
import pathlib
import shutil
import sys

import numpy as np
import programs
import pytest
import safetensors.numpy
import tensorflow as tf
import transformers_models as models

import t2t_keras
from t2t_keras.config import BOS, EOS, PAD, UNK
from t2t_keras.decoding import loading
from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.interop import huggingface_folder, marian_config, marian_vocabulary, marian_weights
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system import files

ROOT = pathlib.Path(__file__).parent.parent
STEP_0 = "checkpoints/step-000000000.npz"
LINES = ["a dog runs", ">>de<< two men play ball near the house", "猫 1 2024", "don't </s> ½", "tree"]


@pytest.fixture
def folder(opus, tmp_path) -> pathlib.Path:
    """A copy of the model, to change."""
    return shutil.copytree(opus, tmp_path / "model")


@pytest.fixture(scope="module")
def run(opus):
    t2t_keras.import_marian(opus, opus.parent / "run")
    return opus.parent / "run"


def test_a_model_may_have_the_position_encodings_of_marian_itself(opus, run, tmp_path):
    t2t_keras.import_marian(opus, tmp_path / "run", native_positions=True)
    model, usual = loading.load(tmp_path / "run").model, loading.load(run).model
    # Marian's id 0, the end token, is ours after padding and the start token.
    source, target = ([9, 12, 20, EOS], [7, 30, 15])
    theirs = models.ids_of_ours(opus, loading.load(run).tokenizer.pieces, "target")
    start = json.loads((opus / "config.json").read_text())["decoder_start_token_id"]
    ids = [theirs[own] for own in source], [start, *(theirs[own] for own in target)]
    kept = [own for own in range(len(theirs)) if own not in (PAD, BOS)]
    for native, each in ((True, model), (False, usual)):
        found, _ = each.decode(tf.constant([[BOS, *target]]), each.encode(tf.constant([source])))
        expected = models.logits(opus, *ids, native=native)[:, [theirs[own] for own in kept]]
        np.testing.assert_allclose(found[0].numpy()[:, kept], expected, atol=1e-4)
        other = models.logits(opus, *ids, native=not native)[:, [theirs[own] for own in kept]]
        assert np.abs(expected - other).max() > 1e-2


def test_the_run_says_where_its_options_are_from(opus, run):
    options = SavedRun.open(run).options
    assert options.model.activation == "swish" and options.model.d_k == 8 and options.model.attention_bias
    assert options.model.logits_bias
    assert options.sources["activation"] == f"import of {opus}" and options.data.subwords == "sentencepiece"
    assert (options.data.source_language, options.data.target_language) == ("en", "de")
    with np.load(run / STEP_0) as arrays:
        assert json.loads(str(arrays["state"])) == {"step": 0, "best": 0.0, "best_step": 0}
    assert (options.decode.beam_size, options.decode.alpha, options.decode.max_input) == (4, 0.0, 64)


def test_where_options_are_from_is_one_line(opus, tmp_path):
    folder = shutil.copytree(opus, tmp_path / "of\ntwo lines")
    t2t_keras.import_marian(folder, tmp_path / "run")
    assert SavedRun.open(tmp_path / "run").options.sources["d_model"] == f"import of {str(folder)!r}"


def test_the_folder_of_the_run_may_be_the_current_one(opus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    t2t_keras.import_marian(opus, ".")
    assert SavedRun.open(tmp_path).options.model.d_model == 16


@pytest.mark.parametrize("given", [{"source_language": "en"}, {"target_language": "de"}])
def test_a_marian_model_takes_no_languages(opus, tmp_path, given):
    with pytest.raises(ValueError, match="`source_language` and `target_language` do not apply to a Marian model"):
        t2t_keras.import_huggingface(opus, tmp_path / "run", **given)


def test_an_embedding_that_is_read_in_parts_is_the_same(opus, run, tmp_path, monkeypatch):
    for rows in (1, 7, 30):
        monkeypatch.setattr(marian_weights, "_BLOCK", rows)
        t2t_keras.import_marian(opus, tmp_path / str(rows))
        assert (tmp_path / str(rows) / STEP_0).read_bytes() == (run / STEP_0).read_bytes()


def test_a_matrix_of_both_sides_stays_one_whatever_its_start_token(tmp_path):
    folder = models.make(tmp_path / "model", options={"decoder_start_token_id": 3})
    t2t_keras.import_marian(folder, tmp_path / "run")
    shared = safetensors.numpy.load_file(folder / "model.safetensors")["model.shared.weight"]
    with np.load(tmp_path / "run" / STEP_0) as arrays:
        assert "model/transformer/source_embedding/matrix" not in arrays.files
        assert sorted(arrays["model/transformer/embedding/matrix"][BOS]) == sorted(shared[3])


def test_with_two_lists_the_start_token_is_one_of_the_target_alone(tmp_path):
    options = {"decoder_vocab_size": 58, "decoder_start_token_id": 3}
    t2t_keras.import_marian(
        models.make(tmp_path / "model", separate=True, shared=True, options=options), tmp_path / "run"
    )
    with np.load(tmp_path / "run" / STEP_0) as arrays:
        source, target = (arrays[f"model/transformer/{name}/matrix"] for name in ("source_embedding", "embedding"))
    assert np.array_equal(source[BOS], source[PAD]) and not np.array_equal(target[BOS], target[PAD])


@pytest.mark.parametrize(("search", "expected", "left"), [
    ({}, {"beam_size": 1, "alpha": 1.25, "no_repeat_ngram": 0}, ""),
    ({"num_beams": 6, "length_penalty": 0.8, "no_repeat_ngram_size": 3},
     {"beam_size": 6, "alpha": 1.0, "no_repeat_ngram": 3}, ""),
    ({"bad_words_ids": [[5], [6, 7]], "do_sample": True}, {"beam_size": 1}, "do_sample, bad_words_ids"),
    ({"forced_eos_token_id": 3, "min_length": 4}, {}, "min_length, forced_eos_token_id"),
    ({"length_penalty": -1}, {"alpha": 0.0}, "length_penalty"),
    ({"length_penalty": 1 / 3, "forced_bos_token_id": 5}, {"alpha": 0.4167}, "forced_bos_token_id"),
    ({"bad_words_ids": [[5], 7, [True], [-1], [10**6]]}, {}, "bad_words_ids"),
    ({"guidance_scale": 1.5, "stop_strings": ["."], "force_words_ids": [[5]]}, {"beam_size": 1},
     "guidance_scale, stop_strings, force_words_ids"),
    ({"guidance_scale": 1, "stop_strings": None, "force_words_ids": []}, {}, ""),
    ({"eos_token_id": [0, 3], "pad_token_id": 7, "decoder_start_token_id": None}, {}, "pad_token_id, eos_token_id"),
    ({"bad_words_ids": [[5], [0]]}, {}, ""),  # Nor does `generate` forbid the end token.
    ({"encoder_repetition_penalty": 1.2, "max_new_tokens": 9}, {}, "encoder_repetition_penalty, max_new_tokens"),
    ({"penalty_alpha": 0.6, "forced_decoder_ids": [[1, 5]]}, {}, "penalty_alpha, forced_decoder_ids"),
    ({"of_tomorrow": 2, "max_time": 1.5, "dola_layers": None, "temperature": 0.7, "use_cache": True}, {},
     "max_time, of_tomorrow"),
    ({"renormalize_logits": True, "no_repeat_ngram_size": 2}, {"no_repeat_ngram": 2}, "renormalize_logits"),
    ({"renormalize_logits": False, "no_repeat_ngram_size": 2}, {"no_repeat_ngram": 2}, ""),
    ({"min_length": 0, "do_sample": False, "repetition_penalty": 1.0, "renormalize_logits": True,
      "forced_eos_token_id": 0}, {}, ""),
])  # fmt: skip
def test_options_of_the_search_are_taken_over_or_reported(folder, search, expected, left):
    (folder / "generation_config.json").write_text(json.dumps(search))
    config = marian_config.read(huggingface_folder.Folder(folder))
    assert {name: getattr(config.decode, name) for name in expected} == expected
    assert ", ".join(config.left) == left
    assert config.forbidden == ([5] if "bad_words_ids" in search else [])


UNCHANGED = {
    "do_sample": [False, None], "min_length": [0, 1, None], "min_new_tokens": [0, None],
    "repetition_penalty": [1.0, None], "encoder_no_repeat_ngram_size": [0, None], "num_beam_groups": [1, None],
    "diversity_penalty": [0.0, None], "early_stopping": [False, None], "guidance_scale": [1.0, None],
    "exponential_decay_length_penalty": [None], "sequence_bias": [None], "encoder_repetition_penalty": [1.0, None],
    "forced_decoder_ids": [None, []], "max_new_tokens": [None], "penalty_alpha": [0.0, None],
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens", "stop_strings", "force_words_ids"), [None, []]),
}  # fmt: skip


@pytest.mark.parametrize("name", UNCHANGED)
def test_options_of_the_search_that_change_nothing_are_not_reported(folder, name):
    """They are in the files of many models."""
    for value in UNCHANGED[name]:
        (folder / "generation_config.json").write_text(json.dumps({name: value}))
        assert marian_config.read(huggingface_folder.Folder(folder)).left == []
    (folder / "generation_config.json").write_text(json.dumps({name: 2}))
    assert marian_config.read(huggingface_folder.Folder(folder)).left == [name]


def test_an_end_that_is_not_forced_is_no_option_of_the_search(folder):
    models.rewrite(folder, "config.json", forced_eos_token_id=None, num_beams=None)
    models.rewrite(folder, "generation_config.json", forced_eos_token_id=..., num_beams=...)
    config = marian_config.read(huggingface_folder.Folder(folder))
    assert config.left == [] and config.decode.beam_size == 1


def test_what_config_json_does_not_say_is_as_in_transformers(folder):
    names = ("share_encoder_decoder_embeddings", "tie_word_embeddings", "scale_embedding", "static_position_embeddings")
    models.rewrite(
        folder, "config.json", **dict.fromkeys(names, ...), eos_token_id=[0], encoder_attention_heads=1,
        decoder_attention_heads=1,
    )  # fmt: skip
    config = marian_config.read(huggingface_folder.Folder(folder))
    assert (config.shared, config.tied, config.scaled, config.eos) == (True, True, False, 0)
    assert (config.model.num_heads, config.model.d_k) == (1, 16)


NETWORK = {
    "is_encoder_decoder": True, "is_decoder": False, "normalize_before": False, "add_final_layer_norm": False,
    "normalize_embedding": False, "static_position_embeddings": True,
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORK)
def test_what_makes_another_network_is_refused_and_what_makes_this_one_is_not(folder, name):
    models.rewrite(folder, "config.json", **{name: NETWORK[name]})
    assert marian_config.read(huggingface_folder.Folder(folder)).model.d_model == 16
    models.rewrite(folder, "config.json", **{name: not NETWORK[name]})
    with pytest.raises(ValueError, match=f"Expected {name}={NETWORK[name]}"):
        marian_config.read(huggingface_folder.Folder(folder))


def test_ids_of_a_list_are_below_the_size_of_the_model():
    ids, where = {"</s>": 0, "<unk>": 1, "a": 2}, pathlib.Path("vocab.json")
    assert marian_vocabulary.Vocabulary(where, ids, 4, pad=3).rows.tolist() == [3, 1, 3, 0, 2]
    for other, pad in (({"b": 4}, 3), ({"b": -1}, 3), ({"b": 2}, 3), ({}, 4), ({}, 5), ({}, 0), ({}, 1)):
        with pytest.raises(ValueError, match="Expected different ids below 4"):
            marian_vocabulary.Vocabulary(where, ids | other, 4, pad)


def test_an_import_names_the_options_of_the_search_that_it_ignores(opus, tmp_path, messages):
    t2t_keras.import_marian(opus, tmp_path / "run")
    assert not [message for message in messages if "ignored" in message]
    folder = shutil.copytree(opus, tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, "min_length": 4}))
    t2t_keras.import_marian(folder, tmp_path / "other")
    assert "Options of the search without a counterpart are ignored: do_sample, min_length." in "\n".join(messages)


def test_options_of_the_search_may_be_in_config_json(folder):
    """As before transformers 4.27."""
    (folder / "generation_config.json").unlink()
    models.rewrite(folder, "config.json", num_beams=3)
    assert marian_config.read(huggingface_folder.Folder(folder)).decode.beam_size == 3
    (folder / "generation_config.json").write_text('{"no_repeat_ngram_size": 2}')
    found = marian_config.read(huggingface_folder.Folder(folder)).decode
    assert (found.beam_size, found.no_repeat_ngram) == (1, 2), "`generate` reads one of the files."


def test_forbidden_words_are_never_written(opus, tmp_path):
    folder, line = shutil.copytree(opus, tmp_path / "model"), "a dog runs"
    worst = models.greedy(opus, line, 5)[0]
    (folder / "generation_config.json").write_text(json.dumps({"bad_words_ids": [[worst]]}))
    t2t_keras.import_marian(folder, tmp_path / "run")
    translator = loading.load(tmp_path / "run", beam_size=1)
    own = models.ids_of_ours(folder, translator.tokenizer.pieces, "target").index(worst)
    source = translator.source_tokenizer.tokenize(tf.constant([line]))
    found, _ = translator.search(source, tf.zeros(1), tf.constant([5]), tf.constant([1]))
    assert own not in found.to_list()[0]


def test_no_state_of_the_decoder_makes_a_forbidden_word_likely(opus, tmp_path):
    """Its logit is the largest for γ ∘ n + β with n along γ ∘ e and of length √d_model, as a normalization has it."""
    folder, arrays = shutil.copytree(opus, tmp_path / "model"), safetensors.numpy.load_file(opus / "model.safetensors")
    arrays["model.shared.weight"] *= 50
    safetensors.numpy.save_file(arrays, folder / "model.safetensors")
    (folder / "generation_config.json").write_text(json.dumps({"bad_words_ids": [[5]]}))
    t2t_keras.import_marian(folder, tmp_path / "run")
    translator = loading.load(tmp_path / "run")
    own = models.ids_of_ours(folder, translator.tokenizer.pieces, "target").index(5)
    norm = "model.decoder.layers.0.final_layer_norm"
    e, gamma, beta = (arrays[name].astype(float) for name in ("model.shared.weight", f"{norm}.weight", f"{norm}.bias"))
    largest = 16**0.5 * np.linalg.norm(gamma * e[5]) + beta @ e[5]
    assert largest > 100 and largest + translator.model.embedding.bias.numpy()[own] < -99


def test_a_forbidden_word_is_known_by_its_bias(opus, tmp_path):
    """Also one that the last layer normalization makes unlikely: exports look for a bias of -100 or less."""
    folder, arrays = shutil.copytree(opus, tmp_path / "model"), safetensors.numpy.load_file(opus / "model.safetensors")
    norm = "model.decoder.layers.0.final_layer_norm"
    for sign in (-1, 1):
        arrays |= {f"{norm}.weight": np.zeros(16, np.float32), f"{norm}.bias": sign * arrays["model.shared.weight"][5]}
        safetensors.numpy.save_file(arrays, folder / "model.safetensors")
        (folder / "generation_config.json").write_text(json.dumps({"bad_words_ids": [[5]]}))
        t2t_keras.import_marian(folder, tmp_path / f"run {sign}")
        own = models.ids_of_ours(folder, loading.load(tmp_path / f"run {sign}").tokenizer.pieces, "target").index(5)
        with np.load(tmp_path / f"run {sign}" / STEP_0) as written:
            assert written["model/transformer/embedding/logits_bias"][own] <= -100


def test_rates_of_dropout_are_those_of_the_model(folder):
    rates = {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1}
    models.rewrite(folder, "config.json", **rates)
    model = marian_config.read(huggingface_folder.Folder(folder)).model
    assert {name: getattr(model, name) for name in rates} == rates


def test_bfloat16_is_read_in_a_process_without_tensorflow(opus, tmp_path):
    """Story: NumPy did not know bfloat16, which TensorFlow brings."""
    folder, arrays = shutil.copytree(opus, tmp_path / "model"), safetensors.numpy.load_file(opus / "model.safetensors")
    arrays = {name: array.astype(tf.bfloat16.as_numpy_dtype) for name, array in arrays.items()}
    safetensors.numpy.save_file(arrays, folder / "model.safetensors")
    command = [
        sys.executable, ROOT / "tools" / "import_marian.py", f"--from={folder}", f"--model_dir={tmp_path / 'run'}",
    ]  # fmt: skip
    programs.run(command, check=True, modules=programs.WITHOUT_TENSORFLOW)
    safetensors.numpy.save_file(
        {name: array.astype(np.float32) for name, array in arrays.items()}, folder / "model.safetensors"
    )
    t2t_keras.import_marian(folder, tmp_path / "expected")
    assert (tmp_path / "run" / STEP_0).read_bytes() == (tmp_path / "expected" / STEP_0).read_bytes()


def test_the_start_token_of_sentencepiece_may_be_in_the_list(folder, tmp_path):
    ids = json.loads((folder / "vocab.json").read_text())
    renamed = next(piece for piece, index in ids.items() if index == 9)
    models.rewrite(folder, "vocab.json", **{renamed: ..., "<s>": 9})
    t2t_keras.import_marian(folder, tmp_path / "run")
    pieces = loading.load(tmp_path / "run").tokenizer.pieces
    # Padding and the start token come first.
    assert pieces.index("<s>") == BOS and pieces.index("<s>", BOS + 1) == 9 + 2


def test_weights_that_files_hold_twice_are_one(folder, opus, run, tmp_path):
    """As in files of transformers 4, which also hold the position encodings. A missing bias of the logits is 0."""
    arrays = safetensors.numpy.load_file(opus / "model.safetensors")
    for name in ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"):
        arrays[name] = arrays["model.shared.weight"].copy()
    angles = np.arange(64)[:, None] / 10000 ** (np.arange(0, 16, 2) / 16)
    for side in ("encoder", "decoder"):
        # Rounded, as in files of less precision.
        table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float16)
        arrays[f"model.{side}.embed_positions.weight"] = table.astype(np.float32)
    del arrays["final_logits_bias"]
    safetensors.numpy.save_file(arrays, folder / "model.safetensors")
    (tmp_path / "run").mkdir()  # An empty folder is as good as none.
    t2t_keras.import_marian(folder, tmp_path / "run")
    bias = "model/transformer/embedding/logits_bias"
    with np.load(run / STEP_0) as expected, np.load(tmp_path / "run" / STEP_0) as found:
        assert expected.files == found.files
        assert all(np.array_equal(expected[name], found[name]) for name in found.files if name != bias)
        assert np.all(found[bias][[PAD, BOS]] < -100) and not found[bias][[UNK, *range(EOS, len(found[bias]))]].any()


# What a run does.


def test_a_new_run_has_the_sub_words_of_an_import(run, tmp_path):
    texts = dict.fromkeys(("train_source", "train_target", "valid_source", "valid_target"), "text")
    given = {"parent": str(run), **texts}
    data = Start.open(tmp_path / "run", given).options.data
    subwords = str(run / files.SUBWORDS), str(run / files.SOURCE_SUBWORDS)
    assert (data.subwords, data.subwords_file, data.source_subwords_file) == ("sentencepiece", *subwords)
    assert Start.open(tmp_path / "run", given | {"subwords_file": "mine"}).options.data.subwords == "bpe"


@pytest.mark.slow
def test_a_new_run_starts_from_an_import(run, tmp_path):
    """With its sub-words, of both sides. What was forbidden stays so."""
    text = {}
    for split in ("train", "valid"):
        for side, words in (("source", models.SOURCE_WORDS), ("target", models.TARGET_WORDS)):
            path = tmp_path / f"{split}.{side}"
            path.write_text("".join(f"{first} {second}\n" for first in words[:9] for second in words[:9]))
            text[f"{split}_{side}"] = str(path)
    sizes = {
        "batch_tokens": 200, "buckets_per_update": 1, "train_steps": 2, "warmup_steps": 1, "learning_rate_factor": 0.1,
    }  # fmt: skip
    t2t_keras.train(
        tmp_path / "run", parent=run, **text, **sizes, valid_sentences=0, attention_images=0, best_metric="loss"
    )
    parent, child = loading.load(run), loading.load(tmp_path / "run")
    assert child.tokenizer.models == parent.tokenizer.models and len(child.tokenizer.models) == 2
    for before, after in zip(parent.model.weights, child.model.weights, strict=True):
        moved = np.abs(after.numpy() - before.numpy())
        assert 0 < moved.max() < 0.2, before.path
    assert child.model.embedding.bias.numpy()[[PAD, BOS]].max() < -100


@pytest.mark.parametrize(("separate", "token", "where"), [(False, "</s>", ""), (True, "only", "target_vocab.json")])
def test_special_tokens_of_a_vocabulary_may_be_listed_again(tmp_path, separate, token, where):
    folder = models.make(tmp_path / "model", **({"separate": True} if separate else {}))
    if where:
        vocabulary = json.loads((folder / where).read_text())
        piece = next(piece for piece in vocabulary if piece not in json.loads((folder / "vocab.json").read_text()))
        token = piece
    models.rewrite(folder, "tokenizer_config.json", added_tokens_decoder={"0": {"content": token}})
    t2t_keras.import_marian(folder, tmp_path / "run")


@pytest.mark.parametrize(("source", "target", "given"), [
    ("en", "de", True), ("zh_Hans", "en-GB", True), ("en", "en", False), ("en", 3, False), (None, "de", False),
    ("en: x", "de", False),
])  # fmt: skip
def test_languages_are_two_codes_or_none(tmp_path, source, target, given):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"source_lang": source, "target_lang": target}))
    found = marian_vocabulary.languages_of(huggingface_folder.Folder(tmp_path))
    assert found == ({"source_language": source, "target_language": target} if given else {})


def test_a_model_of_several_languages_tells_at_import_which_tags_a_line_may_begin_with(folder, tmp_path, messages):
    t2t_keras.import_marian(folder, tmp_path / "two")
    assert any("one of 2 tags, >>de<<, >>en US<<." in message for message in messages)
    assert TrainedModel.open(tmp_path / "two").tags == [">>de<<", ">>en US<<"]
    pieces = json.loads((folder / "vocab.json").read_text())
    one_tag = {piece.replace(">>en US<<", "en US"): index for piece, index in pieces.items()}
    (folder / "vocab.json").write_text(json.dumps(one_tag))
    messages.clear()
    t2t_keras.import_marian(folder, tmp_path / "one")
    assert not [message for message in messages if "several languages" in message]
    assert TrainedModel.open(tmp_path / "one").tags == [""]


@pytest.mark.parametrize("value", ["true", 1, None])
def test_whether_vocabularies_are_separate_is_true_or_false(folder, tmp_path, value):
    """Story: "true" in quotes was read as false."""
    models.rewrite(folder, "tokenizer_config.json", separate_vocabs=value)
    with pytest.raises(ValueError, match="separate_vocabs to be true or false"):
        t2t_keras.import_marian(folder, tmp_path / "run")
