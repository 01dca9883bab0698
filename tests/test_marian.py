"""Imported Marian models: logits of a NumPy Marian, ids of SentencePiece, what a run does, and one sentence for other
folders.
"""

import contextlib
import functools
import http.server
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import threading
import types
import warnings

import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.errors
import huggingface_hub.utils
import marian_folder
import numpy as np
import programs
import pytest
import safetensors.numpy
import tensorflow as tf

import t2t_keras
from t2t_keras.config import BOS, EOS, PAD, UNK
from t2t_keras.decoding import loading
from t2t_keras.interop import huggingface_folder, marian_config, marian_vocabulary, marian_weights
from t2t_keras.runs import run_folder, run_start

ROOT = pathlib.Path(__file__).parent.parent
STEP_0 = "checkpoints/step-000000000.npz"
LINES = ["a dog runs", ">>de<< two men play ball near the house", "猫 1 2024", "don't </s> ½", "tree"]


@pytest.fixture(scope="module", params=marian_folder.SHAPES)
def imported(request, tmp_path_factory):
    """A Marian folder and the run that it becomes."""
    folder = marian_folder.make(tmp_path_factory.mktemp("marian") / "model", **marian_folder.SHAPES[request.param])
    model_dir = folder.parent / "run"
    t2t_keras.import_marian(folder, model_dir)
    return folder, loading.load(model_dir)


@pytest.fixture(scope="module")
def opus(tmp_path_factory):
    """A Marian folder with the shape of OPUS-MT's, which tests may copy."""
    return marian_folder.make(tmp_path_factory.mktemp("marian") / "model")


@pytest.fixture(scope="module")
def run(opus):
    t2t_keras.import_marian(opus, opus.parent / "run")
    return opus.parent / "run"


def marian_ids(folder, tokenizer, side: str) -> list[int]:
    """Marian's id for each of ours but that of the start token."""
    separate = (folder / "target_vocab.json").exists()
    ids = json.loads((folder / ("target_vocab.json" if separate and side == "target" else "vocab.json")).read_text())
    others = [ids[piece] if piece in ids else int(piece[1:-1]) for piece in tokenizer.pieces[EOS + 1 :]]
    return [ids["<pad>"], ids["<unk>"], -1, ids["</s>"], *others]


def test_logits_are_those_of_marian(imported):
    folder, translator = imported
    theirs = {
        side: marian_ids(folder, each, side)
        for side, each in (("source", translator.source_tokenizer), ("target", translator.tokenizer))
    }
    ours = {side: {index: own for own, index in enumerate(ids) if index >= 0} for side, ids in theirs.items()}
    start = json.loads((folder / "config.json").read_text())["decoder_start_token_id"]
    draw = np.random.default_rng(1)
    for line in LINES:
        source = marian_folder.ids_of(folder, line)
        target = [
            int(index)
            for index in draw.choice([index for index in theirs["target"] if index >= 0 and index != start], 6)
        ]
        expected = marian_folder.logits(folder, source, [start, *target])
        own_source, own_target = (
            [ours[side][index] for index in ids] for side, ids in (("source", source), ("target", target))
        )
        found, _ = translator.model.decode(
            tf.constant([[BOS, *own_target]]), translator.model.encode(tf.constant([own_source]))
        )
        kept = [own for own in range(len(theirs["target"])) if own not in (PAD, BOS)]
        np.testing.assert_allclose(
            found[0].numpy()[:, kept], expected[:, [theirs["target"][own] for own in kept]], atol=1e-4
        )
        assert np.abs(expected).max() > 3 and expected.std() > 0.5
        assert np.all(found[0].numpy()[:, [PAD, BOS]] < expected.max() - 90)


def test_a_model_may_have_the_position_encodings_of_marian_itself(opus, run, tmp_path):
    t2t_keras.import_marian(opus, tmp_path / "run", native_positions=True)
    model, usual = loading.load(tmp_path / "run").model, loading.load(run).model
    # Marian's id 0, the end token, is ours after padding and the start token.
    source, target = ([9, 12, 20, EOS], [7, 30, 15])
    theirs = marian_ids(opus, loading.load(run).tokenizer, "target")
    start = json.loads((opus / "config.json").read_text())["decoder_start_token_id"]
    ids = [theirs[own] for own in source], [start, *(theirs[own] for own in target)]
    kept = [own for own in range(len(theirs)) if own not in (PAD, BOS)]
    for native, each in ((True, model), (False, usual)):
        found, _ = each.decode(tf.constant([[BOS, *target]]), each.encode(tf.constant([source])))
        expected = marian_folder.logits(opus, *ids, native=native)[:, [theirs[own] for own in kept]]
        np.testing.assert_allclose(found[0].numpy()[:, kept], expected, atol=1e-4)
        assert (
            np.abs(
                expected - marian_folder.logits(opus, *ids, native=not native)[:, [theirs[own] for own in kept]]
            ).max()
            > 1e-2
        )


def test_ids_of_nasty_lines_are_those_of_sentencepiece_and_the_list(imported):
    folder, translator = imported
    lines = marian_folder.nasty_lines(300)
    for side, tokenizer in (("source", translator.source_tokenizer), ("target", translator.tokenizer)):
        ours = {index: own for own, index in enumerate(marian_ids(folder, tokenizer, side))}
        expected = [[ours[index] for index in marian_folder.ids_of(folder, line, side)] for line in lines]
        assert tokenizer.tokenize(tf.constant(lines)).to_list() == expected


def greedy(folder, line: str, length: int) -> list[int]:
    """The most likely ids one after another, without padding, in Marian's ids."""
    config = json.loads((folder / "config.json").read_text())
    source, target = marian_folder.ids_of(folder, line), [config["decoder_start_token_id"]]
    while len(target) <= length and target[-1] != 0:
        logits = marian_folder.logits(folder, source, target)[-1]
        logits[config["pad_token_id"]] = -np.inf
        target.append(int(logits.argmax()))
    return target[1:]


def test_greedy_translations_are_those_of_marian(imported):
    folder, _ = imported
    translator = loading.load(folder.parent / "run", beam_size=1, alpha=0.0, extra_length=3)
    theirs = marian_ids(folder, translator.tokenizer, "target")
    lines = LINES[:3]
    source = translator.source_tokenizer.tokenize(tf.constant(lines))
    length = tf.cast(source.row_lengths(), tf.int32) + 3
    found, _ = translator.search(source, tf.zeros(3), length, tf.ones(3, tf.int32))
    expected = [greedy(folder, line, int(most)) for line, most in zip(lines, length, strict=True)]
    assert [[theirs[own] for own in row] for row in found.to_list()] == expected


def test_the_run_says_where_its_options_are_from(opus, run):
    options = run_folder.read(run)
    assert (
        options.model.activation == "swish"
        and options.model.d_k == 8
        and options.model.attention_bias
        and options.model.logits_bias
    )
    assert options.sources["activation"] == f"import of {opus}" and options.data.subwords == "sentencepiece"
    assert (options.data.source_language, options.data.target_language) == ("en", "de")
    with np.load(run / STEP_0) as arrays:
        assert json.loads(str(arrays["state"])) == {"step": 0, "best": 0.0, "best_step": 0}
    assert (options.decode.beam_size, options.decode.alpha, options.decode.max_input) == (4, 0.0, 64)


def test_where_options_are_from_is_one_line(opus, tmp_path):
    folder = shutil.copytree(opus, tmp_path / "of\ntwo lines")
    t2t_keras.import_marian(folder, tmp_path / "run")
    assert run_folder.read(tmp_path / "run").sources["d_model"] == f"import of {str(folder)!r}"


def test_the_folder_of_the_run_may_be_the_current_one(opus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    t2t_keras.import_marian(opus, ".")
    assert run_folder.read(tmp_path).model.d_model == 16


@pytest.mark.parametrize("given", [{"source_language": "en"}, {"target_language": "de"}])
def test_a_marian_model_takes_no_languages(opus, tmp_path, given):
    with pytest.raises(ValueError, match="Expected no `source_language` and `target_language` for a Marian model"):
        t2t_keras.import_huggingface(opus, tmp_path / "run", **given)


def test_an_embedding_that_is_read_in_parts_is_the_same(opus, run, tmp_path, monkeypatch):
    for rows in (1, 7, 30):
        monkeypatch.setattr(marian_weights, "_BLOCK", rows)
        t2t_keras.import_marian(opus, tmp_path / str(rows))
        assert (tmp_path / str(rows) / STEP_0).read_bytes() == (run / STEP_0).read_bytes()


def test_a_matrix_of_both_sides_stays_one_whatever_its_start_token(tmp_path):
    folder = marian_folder.make(tmp_path / "model", options={"decoder_start_token_id": 3})
    t2t_keras.import_marian(folder, tmp_path / "run")
    shared = safetensors.numpy.load_file(folder / "model.safetensors")["model.shared.weight"]
    with np.load(tmp_path / "run" / STEP_0) as arrays:
        assert "model/transformer/source_embedding/matrix" not in arrays.files
        assert sorted(arrays["model/transformer/embedding/matrix"][BOS]) == sorted(shared[3])


def test_with_two_lists_the_start_token_is_one_of_the_target_alone(tmp_path):
    options = {"decoder_vocab_size": 58, "decoder_start_token_id": 3}
    t2t_keras.import_marian(
        marian_folder.make(tmp_path / "model", separate=True, shared=True, options=options), tmp_path / "run"
    )
    with np.load(tmp_path / "run" / STEP_0) as arrays:
        source, target = (arrays[f"model/transformer/{name}/matrix"] for name in ("source_embedding", "embedding"))
    assert np.array_equal(source[BOS], source[PAD]) and not np.array_equal(target[BOS], target[PAD])


def changed(folder, name: str, **values) -> None:
    path = folder / name
    path.write_text(
        json.dumps({key: value for key, value in (json.loads(path.read_text()) | values).items() if value is not ...})
    )


@pytest.mark.parametrize(
    ("search", "expected", "left"),
    [
        ({}, {"beam_size": 1, "alpha": 1.25, "no_repeat_ngram": 0}, ""),
        (
            {"num_beams": 6, "length_penalty": 0.8, "no_repeat_ngram_size": 3},
            {"beam_size": 6, "alpha": 1.0, "no_repeat_ngram": 3},
            "",
        ),
        ({"bad_words_ids": [[5], [6, 7]], "do_sample": True}, {"beam_size": 1}, "do_sample, bad_words_ids"),
        ({"forced_eos_token_id": 3, "min_length": 4}, {}, "min_length, forced_eos_token_id"),
        ({"length_penalty": -1}, {"alpha": 0.0}, "length_penalty"),
        ({"length_penalty": 1 / 3, "forced_bos_token_id": 5}, {"alpha": 0.4167}, "forced_bos_token_id"),
        ({"bad_words_ids": [[5], 7, [True], [-1], [10**6]]}, {}, "bad_words_ids"),
        (
            {"guidance_scale": 1.5, "stop_strings": ["."], "force_words_ids": [[5]]},
            {"beam_size": 1},
            "guidance_scale, stop_strings, force_words_ids",
        ),
        ({"guidance_scale": 1, "stop_strings": None, "force_words_ids": []}, {}, ""),
        ({"eos_token_id": [0, 3], "pad_token_id": 7, "decoder_start_token_id": None}, {}, "pad_token_id, eos_token_id"),
        ({"bad_words_ids": [[5], [0]]}, {}, ""),  # Nor does `generate` forbid the end token.
        (
            {
                "min_length": 0,
                "do_sample": False,
                "repetition_penalty": 1.0,
                "renormalize_logits": True,
                "forced_eos_token_id": 0,
            },
            {},
            "",
        ),
    ],
)
def test_options_of_the_search_are_taken_over_or_reported(opus, tmp_path, search, expected, left):
    folder = shutil.copytree(opus, tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps(search))
    config = marian_config.read(huggingface_folder.Folder(folder))
    assert {name: getattr(config.decode, name) for name in expected} == expected
    assert ", ".join(config.left) == left
    assert config.forbidden == ([5] if "bad_words_ids" in search else [])


UNCHANGED = {
    "do_sample": [False, None],
    "min_length": [0, 1, None],
    "min_new_tokens": [0, None],
    "repetition_penalty": [1.0, None],
    "encoder_no_repeat_ngram_size": [0, None],
    "num_beam_groups": [1, None],
    "diversity_penalty": [0.0, None],
    "early_stopping": [False, None],
    "guidance_scale": [1.0, None],
    "exponential_decay_length_penalty": [None],
    "sequence_bias": [None],
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens", "stop_strings", "force_words_ids"), [None, []]),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_options_of_the_search_that_change_nothing_are_not_reported(opus, tmp_path, name):
    """They are in the files of many models."""
    folder = shutil.copytree(opus, tmp_path / "model")
    for value in UNCHANGED[name]:
        (folder / "generation_config.json").write_text(json.dumps({name: value}))
        assert marian_config.read(huggingface_folder.Folder(folder)).left == []
    (folder / "generation_config.json").write_text(json.dumps({name: 2}))
    assert marian_config.read(huggingface_folder.Folder(folder)).left == [name]


def test_an_end_that_is_not_forced_is_no_option_of_the_search(opus, tmp_path):
    folder = shutil.copytree(opus, tmp_path / "model")
    changed(folder, "config.json", forced_eos_token_id=None, num_beams=None)
    changed(folder, "generation_config.json", forced_eos_token_id=..., num_beams=...)
    config = marian_config.read(huggingface_folder.Folder(folder))
    assert config.left == [] and config.decode.beam_size == 1


def test_what_config_json_does_not_say_is_as_in_transformers(opus, tmp_path):
    folder = shutil.copytree(opus, tmp_path / "model")
    names = ("share_encoder_decoder_embeddings", "tie_word_embeddings", "scale_embedding", "static_position_embeddings")
    changed(
        folder,
        "config.json",
        **dict.fromkeys(names, ...),
        eos_token_id=[0],
        encoder_attention_heads=1,
        decoder_attention_heads=1,
    )
    config = marian_config.read(huggingface_folder.Folder(folder))
    assert (config.shared, config.tied, config.scaled, config.eos) == (True, True, False, 0)
    assert (config.model.num_heads, config.model.d_k) == (1, 16)


NETWORK = {
    "is_encoder_decoder": True,
    "is_decoder": False,
    "normalize_before": False,
    "add_final_layer_norm": False,
    "normalize_embedding": False,
    "static_position_embeddings": True,
}


@pytest.mark.parametrize("name", NETWORK)
def test_what_makes_another_network_is_refused_and_what_makes_this_one_is_not(opus, tmp_path, name):
    folder = shutil.copytree(opus, tmp_path / "model")
    changed(folder, "config.json", **{name: NETWORK[name]})
    assert marian_config.read(huggingface_folder.Folder(folder)).model.d_model == 16
    changed(folder, "config.json", **{name: not NETWORK[name]})
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


def test_options_of_the_search_may_be_in_config_json(opus, tmp_path):
    """As before transformers 4.27."""
    folder = shutil.copytree(opus, tmp_path / "model")
    (folder / "generation_config.json").unlink()
    changed(folder, "config.json", num_beams=3)
    assert marian_config.read(huggingface_folder.Folder(folder)).decode.beam_size == 3
    (folder / "generation_config.json").write_text('{"no_repeat_ngram_size": 2}')
    found = marian_config.read(huggingface_folder.Folder(folder)).decode
    assert (found.beam_size, found.no_repeat_ngram) == (1, 2), "`generate` reads one of the files."


def test_forbidden_words_are_never_written(opus, tmp_path):
    folder, line = shutil.copytree(opus, tmp_path / "model"), "a dog runs"
    worst = greedy(opus, line, 5)[0]
    (folder / "generation_config.json").write_text(json.dumps({"bad_words_ids": [[worst]]}))
    t2t_keras.import_marian(folder, tmp_path / "run")
    translator = loading.load(tmp_path / "run", beam_size=1)
    own = marian_ids(folder, translator.tokenizer, "target").index(worst)
    source = translator.source_tokenizer.tokenize(tf.constant([line]))
    found, _ = translator.search(source, tf.zeros(1), tf.constant([5]), tf.constant([1]))
    assert own not in found.to_list()[0]


def test_no_state_of_the_decoder_makes_a_forbidden_word_likely(opus, tmp_path):
    """Its logit is the largest for γ ∘ n + β with n along γ ∘ e and of length √d_model, as a layer normalization has
    it.
    """
    folder, arrays = shutil.copytree(opus, tmp_path / "model"), safetensors.numpy.load_file(opus / "model.safetensors")
    arrays["model.shared.weight"] *= 50
    safetensors.numpy.save_file(arrays, folder / "model.safetensors")
    (folder / "generation_config.json").write_text(json.dumps({"bad_words_ids": [[5]]}))
    t2t_keras.import_marian(folder, tmp_path / "run")
    translator = loading.load(tmp_path / "run")
    own = marian_ids(folder, translator.tokenizer, "target").index(5)
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
        own = marian_ids(folder, loading.load(tmp_path / f"run {sign}").tokenizer, "target").index(5)
        with np.load(tmp_path / f"run {sign}" / STEP_0) as written:
            assert written["model/transformer/embedding/logits_bias"][own] <= -100


def test_rates_of_dropout_are_those_of_the_model(opus, tmp_path):
    folder, rates = (
        shutil.copytree(opus, tmp_path / "model"),
        {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1},
    )
    changed(folder, "config.json", **rates)
    model = marian_config.read(huggingface_folder.Folder(folder)).model
    assert {name: getattr(model, name) for name in rates} == rates


def test_bfloat16_is_read_in_a_process_without_tensorflow(opus, tmp_path):
    """Story: NumPy did not know bfloat16, which TensorFlow brings."""
    folder, arrays = shutil.copytree(opus, tmp_path / "model"), safetensors.numpy.load_file(opus / "model.safetensors")
    arrays = {name: array.astype(tf.bfloat16.as_numpy_dtype) for name, array in arrays.items()}
    safetensors.numpy.save_file(arrays, folder / "model.safetensors")
    command = [
        sys.executable,
        ROOT / "tools" / "import_marian.py",
        f"--from={folder}",
        f"--model_dir={tmp_path / 'run'}",
    ]
    programs.run(command, check=True, modules=programs.WITHOUT_TENSORFLOW)
    safetensors.numpy.save_file(
        {name: array.astype(np.float32) for name, array in arrays.items()}, folder / "model.safetensors"
    )
    t2t_keras.import_marian(folder, tmp_path / "expected")
    assert (tmp_path / "run" / STEP_0).read_bytes() == (tmp_path / "expected" / STEP_0).read_bytes()


def test_the_start_token_of_sentencepiece_may_be_in_the_list(opus, tmp_path):
    folder = shutil.copytree(opus, tmp_path / "model")
    ids = json.loads((folder / "vocab.json").read_text())
    renamed = next(piece for piece, index in ids.items() if index == 9)
    changed(folder, "vocab.json", **{renamed: ..., "<s>": 9})
    t2t_keras.import_marian(folder, tmp_path / "run")
    pieces = loading.load(tmp_path / "run").tokenizer.pieces
    # Padding and the start token come first.
    assert pieces.index("<s>") == BOS and pieces.index("<s>", BOS + 1) == 9 + 2


def test_weights_that_files_hold_twice_are_one(opus, run, tmp_path):
    """As in files of transformers 4, which also hold the position encodings. A bias of the logits that is missing is
    0.
    """
    folder = shutil.copytree(opus, tmp_path / "model")
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


LOAD = """
import sys
import tensorflow as tf, tensorflow_text
model = tf.saved_model.load(sys.argv[1])
found = model.signatures["serving_default"](text=tf.constant(sys.argv[2:]))
assert "t2t_keras" not in sys.modules
print("\\n".join(text.decode() for text in found["text"].numpy()))
"""


@pytest.mark.medium
def test_an_export_translates_alike_in_a_process_without_this_package(run, tmp_path):
    expected = t2t_keras.load(run).translate(LINES)
    export = t2t_keras.Run(run).export(tmp_path / "export")
    command = [sys.executable, "-c", LOAD, str(export), *LINES]
    result = programs.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=programs.without_this_package(), check=True
    )
    assert result.stdout.splitlines() == expected


def test_a_new_run_has_the_sub_words_of_an_import(run, tmp_path):
    given = {
        "parent": str(run),
        **dict.fromkeys(("train_source", "train_target", "valid_source", "valid_target"), "text"),
    }
    data = run_start.resolve(tmp_path / "run", given).data
    files = str(run / run_folder.SUBWORDS), str(run / run_folder.SOURCE_SUBWORDS)
    assert (data.subwords, data.subwords_file, data.source_subwords_file) == ("sentencepiece", *files)
    assert run_start.resolve(tmp_path / "run", given | {"subwords_file": "mine"}).data.subwords == "bpe"


@pytest.mark.slow
def test_a_new_run_starts_from_an_import(run, tmp_path):
    """With its sub-words, of both sides. What was forbidden stays so."""
    text = {}
    for split in ("train", "valid"):
        for side, words in (("source", marian_folder.SOURCE_WORDS), ("target", marian_folder.TARGET_WORDS)):
            path = tmp_path / f"{split}.{side}"
            path.write_text("".join(f"{first} {second}\n" for first in words[:9] for second in words[:9]))
            text[f"{split}_{side}"] = str(path)
    sizes = {
        "batch_tokens": 200,
        "buckets_per_update": 1,
        "train_steps": 2,
        "warmup_steps": 1,
        "learning_rate_factor": 0.1,
    }
    t2t_keras.train(
        tmp_path / "run", parent=run, **text, **sizes, valid_sentences=0, attention_images=0, best_metric="loss"
    )
    parent, child = loading.load(run), loading.load(tmp_path / "run")
    assert child.tokenizer.models == parent.tokenizer.models and len(child.tokenizer.models) == 2
    for before, after in zip(parent.model.weights, child.model.weights, strict=True):
        moved = np.abs(after.numpy() - before.numpy())
        assert 0 < moved.max() < 0.2, before.path
    assert child.model.embedding.bias.numpy()[[PAD, BOS]].max() < -100


# Folders that do not fit.


LAYER, NORM = "model.decoder.layers.0.fc1.weight", "model.encoder.layer_norm.weight"
POSITIONS = "model.encoder.embed_positions.weight"
BROKEN = {}


def broken(name: str, message: str):
    """Adds a function that breaks a folder, and what the error says."""

    def add(break_it):
        BROKEN[name] = break_it, message

    return add


def broken_options(file: str, name: str, message: str, **values) -> None:
    BROKEN[name] = lambda folder: changed(folder, file, **values), message


def broken_tensors(name: str, message: str, change) -> None:
    def break_it(folder):
        arrays = safetensors.numpy.load_file(folder / "model.safetensors")
        change(arrays)
        safetensors.numpy.save_file(arrays, folder / "model.safetensors")

    BROKEN[name] = break_it, message


def broken_header(name: str, tensors: dict, size: int | None = None) -> None:
    def break_it(folder):
        content = json.dumps({each: {"dtype": "F32", **values} for each, values in tensors.items()}).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", size or len(content)) + content + bytes(8))

    BROKEN[name] = break_it, "safetensors file.*damaged"


of_model = functools.partial(broken_options, "config.json")
of_model("another architecture", "model_type=marian.*'bart'", model_type="bart")
of_model("no model type", "no model_type", model_type=...)
of_model("pre-norm", "normalize_before=False.*True", normalize_before=True)
of_model("a decoder alone", "is_encoder_decoder=True.*False", is_encoder_decoder=False)
of_model("activation", "activation_function.*gelu_new", activation_function="gelu_new")
of_model("no activation", "activation_function of type str", activation_function=...)
of_model("text for a number", "d_model of type int.*'16'", d_model="16")
of_model("true for a number", "encoder_layers of type int", encoder_layers=True)
of_model("huge", "at most 65,536", d_model=2**40)
of_model("negative", "decoder_layers=-1", decoder_layers=-1)
of_model("odd width", "even number", d_model=15, encoder_attention_heads=3, decoder_attention_heads=3)
of_model("heads", "heads that divide d_model", encoder_attention_heads=3, decoder_attention_heads=3)
of_model("no heads", "heads that divide d_model", encoder_attention_heads=0, decoder_attention_heads=0)
of_model("unlike heads", "same attention_heads.*encoder_attention_heads=2", decoder_attention_heads=4)
of_model("unlike widths", "same ffn_dim.*decoder_ffn_dim=30", decoder_ffn_dim=30)
of_model("padding", "pad_token_id of 0 to", pad_token_id=10**6)
of_model("other padding", "ids of padding and end", pad_token_id=5)
of_model("other end", "ids of padding and end", eos_token_id=7)
of_model("a start before the first", "decoder_start_token_id of 0 to", decoder_start_token_id=-1)
of_model("several ends", "eos_token_id of 0 to", eos_token_id=[0, 2])
of_model("no start", "decoder_start_token_id of 0 to", decoder_start_token_id=...)
of_model("positions", "max_input=-1", max_position_embeddings=-1)
of_model("whole number that no float holds", "dropout of type float.*1000", dropout=10**400)
of_model("largest whole number that a float holds", r"dropout rate in \[0, 1\)", dropout=int(sys.float_info.max))
of_model("activation of two lines", r"Received: 'a\\nb'", activation_function="a\nb")
broken_options("generation_config.json", "beams", "beam_size=0", num_beams=0)
broken_options("generation_config.json", "penalty", "length_penalty of type float", length_penalty="a")
broken_options("generation_config.json", "penalty that is infinite", "a finite number", length_penalty=float("inf"))
broken_options("vocab.json", "id above", "different ids below.*1000000", a=10**6)
broken_options("vocab.json", "id below", "different ids below.*-1", a=-1)
broken_options("vocab.json", "id twice", "an id twice", a=5)
broken_options("vocab.json", "id is text", "different ids below", a="5")
broken_options("vocab.json", "no unknown", "Received none of <unk>", **{"<unk>": ...})
broken_options("tokenizer_config.json", "no second list", "target_vocab.json.*missing", separate_vocabs=True)
broken_options(
    "tokenizer_config.json", "added tokens", "no added tokens.*<2de>", added_tokens_decoder={"3": {"content": "<2de>"}}
)
broken_tensors("last norm", f"{NORM} besides", lambda arrays: arrays.update({NORM: np.ones(16, np.float32)}))
broken_tensors("unknown", "Received x and 1 more besides", lambda arrays: arrays.update(x=np.ones(3), y=np.ones(3)))
broken_tensors("name of two lines", "Received x y besides", lambda arrays: arrays.update({"x\ny": np.ones(3)}))
broken_tensors("missing", "fc1.weight. It is missing", lambda arrays: arrays.pop(LAYER))
broken_tensors(
    "no embedding",
    "Expected the weight model.shared.weight. It is missing",
    lambda arrays: arrays.pop("model.shared.weight"),
)
broken_tensors(
    "not tied to one of two",
    "They differ",
    lambda arrays: arrays.update(
        {
            "lm_head.weight": arrays["model.shared.weight"] + 1,
            "model.encoder.embed_tokens.weight": arrays["model.shared.weight"].copy(),
        }
    ),
)
broken_tensors(
    "shape", r"shape \(24, 16\).*\(23, 16\)", lambda arrays: arrays.update({LAYER: arrays[LAYER][:-1].copy()})
)
broken_tensors(
    "whole numbers", "fc1.weight.*types F64.*I32", lambda arrays: arrays.update({LAYER: arrays[LAYER].astype(np.int32)})
)
broken_tensors(
    "not finite", "fc1.weight with infinity or NaN", lambda arrays: arrays[LAYER].__setitem__((3, 3), np.nan)
)
broken_tensors(
    "too large for float32", "fc1.weight with infinity", lambda arrays: arrays.update({LAYER: np.full((24, 16), 1e300)})
)
broken_tensors(
    "too large for the logits",
    "finite logits",
    lambda arrays: arrays["model.shared.weight"].__setitem__(slice(None), 3e38),
)
broken_tensors(
    "not tied",
    "lm_head.weight. They differ",
    lambda arrays: arrays.update({"lm_head.weight": arrays["model.shared.weight"] + 1}),
)
broken_tensors(
    "positions that are no sinusoids",
    "sinusoids",
    lambda arrays: arrays.update({POSITIONS: np.ones((64, 16), np.float32)}),
)
broken_header("header too long", {}, 2**60)
broken_header("header that is cut", {"a": {"shape": [2], "data_offsets": [0, 8]}}, 20)
broken_header("tensors on each other", dict.fromkeys("ab", {"shape": [2], "data_offsets": [0, 8]}))
broken_header("tensor outside of the file", {"a": {"shape": [2**40], "data_offsets": [0, 2**42]}})
broken_header("tensor larger than its place", {"a": {"shape": [2**40], "data_offsets": [0, 8]}})


@broken("config is a list", "JSON object")
def _(folder):
    (folder / "config.json").write_text("[]")


@broken("config is cut", "damaged")
def _(folder):
    (folder / "config.json").write_text('{"model_type"')


@broken("weights are cut", "safetensors file.*damaged")
def _(folder):
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9])


@broken("a start after the last", "decoder_start_token_id of 0 to")
def _(folder):
    changed(folder, "config.json", decoder_start_token_id=len(json.loads((folder / "vocab.json").read_text())))


@broken("sub-words are cut", "target.spm does not fit")
def _(folder):
    (folder / "target.spm").write_bytes((folder / "target.spm").read_bytes()[:100])


@broken("BPE files", "source.spm.*BPE files are not supported")
def _(folder):
    (folder / "source.spm").rename(folder / "source.bpe")


@broken("no config", "config.json.*missing")
def _(folder):
    (folder / "config.json").unlink()


@broken("no list", "vocab.json.*missing")
def _(folder):
    (folder / "vocab.json").unlink()


@broken("no weights", "model.safetensors in")
def _(folder):
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize("name", BROKEN)
def test_a_folder_that_does_not_fit_is_refused_in_one_sentence_and_nothing_is_written(opus, tmp_path, name):
    break_it, message = BROKEN[name]
    folder = shutil.copytree(opus, tmp_path / "model")
    break_it(folder)
    with warnings.catch_warnings(), pytest.raises((ValueError, FileNotFoundError), match=message) as raised:
        warnings.simplefilter("error")
        t2t_keras.import_marian(folder, tmp_path / "run")
    assert len(str(raised.value)) < 600 and "\n" not in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


@pytest.mark.parametrize("name", ["config.json", "vocab.json", "source.spm", "model.safetensors"])
def test_links_are_not_followed(opus, tmp_path, name):
    folder = shutil.copytree(opus, tmp_path / "model")
    (folder / name).unlink()
    (folder / name).symlink_to(opus / name)
    with pytest.raises(ValueError, match=f"no links.*{name}"):
        t2t_keras.import_marian(folder, tmp_path / "run")


def test_what_is_no_file_is_not_read(opus, tmp_path):
    """A named pipe would wait for ever."""
    folder = shutil.copytree(opus, tmp_path / "model")
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(ValueError, match="Expected a file"):
        t2t_keras.import_marian(folder, tmp_path / "run")


@pytest.mark.parametrize("name", ["source.spm", "vocab.json"])
def test_a_file_of_text_has_a_greatest_size(opus, tmp_path, monkeypatch, name):
    """What is read into memory at once."""
    most = max((opus / each).stat().st_size for each in ("source.spm", "target.spm", "vocab.json", "config.json"))
    monkeypatch.setattr(huggingface_folder, "MAX_TEXT", most)
    t2t_keras.import_marian(opus, tmp_path / "run")
    folder = shutil.copytree(opus, tmp_path / "model")
    with (folder / name).open("ab") as file:
        file.truncate(most + 1)
    with pytest.raises(ValueError, match=f"{name}.*{most:,} bytes|{most:,} bytes.*{name}"):
        t2t_keras.import_marian(folder, tmp_path / "other")


def test_a_file_is_no_name_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "opus").touch()
    monkeypatch.setattr(huggingface_folder, "_download", lambda *given: pytest.fail("asked for"))
    with pytest.raises(FileNotFoundError, match="Expected a folder, or a name such as .* Received: opus."):
        t2t_keras.import_marian("opus", tmp_path / "run")


def test_a_folder_with_files_is_left_alone(opus, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(FileExistsError, match="new or an empty"):
        t2t_keras.import_marian(opus, tmp_path)
    with pytest.raises(NotADirectoryError, match="Expected a folder as `model_dir`"):
        t2t_keras.import_marian(opus, tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("source", ["", "./nowhere", "/nowhere/at/all", "a/b/c", "x y", "../no/such"])
def test_what_is_neither_a_folder_nor_a_name_is_refused(source, tmp_path):
    with pytest.raises(FileNotFoundError, match="Expected a folder, or a name"):
        t2t_keras.import_marian(source, tmp_path / "run")


# The hub.


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves the files of a folder as the model `some/opus`, as the hub does."""

    folder: pathlib.Path
    requests: list[str]
    protocol_version = "HTTP/1.1"

    def answer(self, body: bool) -> None:
        self.requests.append(self.path)
        _, *model, resolve, revision, name = self.path.split("/")
        path, error = self.folder / name, ""
        if model != ["some", "opus"] or resolve != "resolve":
            error = "RepoNotFound"
        elif not path.exists():
            error = "EntryNotFound"
        content = b"" if error else path.read_bytes()
        self.send_response(404 if error else 200)
        if error:
            self.send_header("X-Error-Code", error)
        self.send_header("X-Repo-Commit", "c" * 40)
        self.send_header("ETag", f'"{name}-1"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def log_message(self, *arguments) -> None:
        pass


@contextlib.contextmanager
def served(folder, cache):
    """Environment for programs: a hub on this machine, and a cache of their own; and the requests that it gets."""
    handler = type("Bound", (Hub,), {"folder": folder, "requests": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    environment = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}", "HF_HOME": str(cache)}
    yield environment | {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}, handler.requests
    server.shutdown()
    server.server_close()


@pytest.fixture
def hub(opus, tmp_path):
    with served(opus, tmp_path / "hf") as found:
        yield found


def tool(*arguments, env=None) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "tools" / "import_marian.py", *arguments]
    return programs.run(
        command, modules=programs.WITHOUT_TENSORFLOW, capture_output=True, text=True, env=env or dict(os.environ)
    )


def contents(model_dir: pathlib.Path) -> dict[str, bytes]:
    """The files of a run but for its `config.json`, which names the source."""
    paths = [path for path in model_dir.rglob("*") if path.is_file() and path.suffix != ".json"]
    return {str(path.relative_to(model_dir)): path.read_bytes() for path in paths}


def test_all_files_of_a_model_of_the_hub_are_of_one_revision(tmp_path, hub):
    environment, requests = hub
    result = tool("--from=some/opus", f"--model_dir={tmp_path}/run", env=environment)
    assert result.returncode == 0, result.stderr
    assert {path.split("/")[4] for path in requests if "config.json" not in path} == {"c" * 40}


@pytest.mark.parametrize(("separate", "token", "where"), [(False, "</s>", ""), (True, "only", "target_vocab.json")])
def test_special_tokens_of_a_vocabulary_may_be_listed_again(tmp_path, separate, token, where):
    folder = marian_folder.make(tmp_path / "model", **({"separate": True} if separate else {}))
    if where:
        vocabulary = json.loads((folder / where).read_text())
        piece = next(piece for piece in vocabulary if piece not in json.loads((folder / "vocab.json").read_text()))
        token = piece
    changed(folder, "tokenizer_config.json", added_tokens_decoder={"0": {"content": token}})
    t2t_keras.import_marian(folder, tmp_path / "run")


def test_a_file_of_pytorch_is_read_as_data(tmp_path, monkeypatch):
    asked = []

    def load(path, **options):
        asked.append(options)
        if len(asked) == 1:
            raise RuntimeError("mmap can only be used with files saved with the new zipfile format")
        return {}

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(load=load, is_tensor=bool, strided="strided"))
    huggingface_folder._pickled(tmp_path / "pytorch_model.bin")
    assert [options["weights_only"] for options in asked] == [True, True]
    assert [options.get("mmap", False) for options in asked] == [True, False]


def test_a_file_of_json_may_have_tens_of_megabytes(tmp_path):
    """`tokenizer.json` of NLLB-200 has 17."""
    (tmp_path / "tokenizer.json").write_text('{"a": 1' + " " * 20_000_000 + "}")
    assert huggingface_folder.Folder(tmp_path).json("tokenizer.json") == {"a": 1}


def test_a_model_of_the_hub_is_downloaded_once_and_is_the_same(run, tmp_path, hub):
    environment, requests = hub
    result = tool("--from=some/opus", f"--model_dir={tmp_path}/run", env=environment)
    assert result.returncode == 0, result.stderr
    found, expected = contents(tmp_path / "run"), contents(run)
    assert found.keys() == expected.keys() and all(found[name] == expected[name] for name in found if name != STEP_0)
    with np.load(tmp_path / "run" / STEP_0) as arrays, np.load(run / STEP_0) as others:
        assert all(np.array_equal(arrays[name], others[name]) for name in others.files)
    assert run_folder.read(tmp_path / "run").sources["d_model"] == "import of the hub's some/opus"
    number = len(requests)
    assert sum("model.safetensors" in path for path in requests) == 2  # HEAD and GET.
    again = tool("--from=some/opus", f"--model_dir={tmp_path}/again", env=environment)
    assert again.returncode == 0 and not any("safetensors" in path for path in requests[number:]), again.stderr
    offline = tool("--from=some/opus", f"--model_dir={tmp_path}/offline", env=environment | {"HF_HUB_OFFLINE": "1"})
    assert offline.returncode == 0, offline.stderr


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("some/other", {}, "There is no folder some/other, and no model of this name on the hub"),
        ("some/opus", {"HF_HUB_OFFLINE": "1"}, "the hub cannot be reached"),
        ("some--x/..opus", {}, "Expected a folder, or a name"),
        ("some/opus--x", {}, "cannot be downloaded from the hub: "),
        pytest.param(
            "some/opus", {"HF_ENDPOINT": "http://127.0.0.1:9"}, "the hub cannot be reached", marks=pytest.mark.slow
        ),
    ],
)
def test_the_hub_answers_in_one_sentence(tmp_path, hub, name, options, message):
    environment, _ = hub
    result = tool(f"--from={name}", f"--model_dir={tmp_path}/run", env=environment | options)
    *before, last = result.stderr.splitlines()
    assert result.returncode == 1 and last.startswith("Error: ") and message in last, result.stderr
    assert before in ([], [f"There is no folder {name}: reading the model of this name from the Hugging Face hub …"])
    assert not (tmp_path / "run").exists()


class Cache:
    """The cache of the hub as its library lays it out, reached through a link, with the library's function for
    downloads.

    Attributes:
        snapshot: the folder of the revision abc.
        seen: the files that were asked for, each with its revision.
        error: makes an error of the name of a file that is not there.
    """

    def __init__(self, folder: pathlib.Path):
        (folder / "real").mkdir()
        (folder / "hub").symlink_to("real")
        self.snapshot, self.seen = folder / "hub/models--some--opus/snapshots/abc", []
        self.snapshot.mkdir(parents=True)
        self.error = huggingface_hub.errors.EntryNotFoundError
        self.verbosity = set()

    def add(self, name: str, content: str = "{}", model: str = "some--opus") -> None:
        blob = self.snapshot.parents[2] / f"models--{model}/blobs" / name
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_text(content)
        (self.snapshot / name).symlink_to(os.path.relpath(blob, self.snapshot))

    def download(self, name: str, file: str, revision: str | None) -> str:
        self.seen.append((file, revision))
        self.verbosity.add(huggingface_hub.utils.logging.get_verbosity())
        if not (self.snapshot / file).exists():
            raise self.error(file)
        return str(self.snapshot / file)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    found = Cache(tmp_path)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", found.download)
    return found


@pytest.mark.parametrize(
    ("there", "torch", "asked"),
    [
        (["model.safetensors", "b.json"], True, ["model.safetensors"]),
        ([], False, ["model.safetensors", "model.safetensors.index.json"]),
        ([], True, ["model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"]),
        (
            ["model.safetensors.index.json"],
            True,
            ["model.safetensors", "model.safetensors.index.json", "1.safetensors", "2.safetensors"],
        ),
    ],
)
def test_no_more_files_of_the_hub_are_asked_for_than_can_be_read(cache, monkeypatch, there, torch, asked):
    """The first one tells the revision of the others. PyTorch's file is the last resort."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: torch or None)
    before = huggingface_hub.utils.logging.get_verbosity()
    for name in ["a.json", *there]:
        cache.add(name, json.dumps({"weight_map": {"x": "1.safetensors", "y": "2.safetensors"}}))
    folder = huggingface_folder.find("some/opus", ("a.json", "b.json", "c.json"))
    assert cache.seen == [("a.json", None), *((name, "abc") for name in ("b.json", "c.json", *asked))]
    assert (
        folder.of_hub
        and folder.find("a.json").read_text() == folder.content("a.json").decode()
        and folder.find("c.json") is None
    )
    assert (
        cache.verbosity == {huggingface_hub.utils.logging.ERROR}
        and huggingface_hub.utils.logging.get_verbosity() == before
    )


def test_links_of_the_cache_lead_to_files_of_the_same_model(cache):
    cache.add("a.json")
    cache.add("b.json", model="another--one")
    folder = huggingface_folder.find("some/opus", ("a.json", "b.json"))
    assert folder.json("a.json") == {}
    with pytest.raises(ValueError, match="no links.*b.json"):
        folder.json("b.json")


def test_a_model_without_its_first_file_is_refused(cache):
    with pytest.raises(FileNotFoundError, match="Expected a.json in the model some/opus of the hub. It is missing."):
        huggingface_folder.find("some/opus", ("a.json", "b.json"))


@pytest.mark.parametrize("offline", [False, True])
def test_a_hub_that_goes_away_is_no_file_that_is_missing(cache, monkeypatch, offline):
    """But with HF_HUB_OFFLINE, files that a model does not have are not in the cache either."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
    cache.error = huggingface_hub.errors.LocalEntryNotFoundError
    cache.add("a.json")
    if offline:
        assert huggingface_folder.find("some/opus", ("a.json", "b.json")).find("b.json") is None
    else:
        with pytest.raises(
            ValueError, match="the hub cannot be reached for the model of this name. Its cache lacks files of it."
        ):
            huggingface_folder.find("some/opus", ("a.json", "b.json"))
    with pytest.raises(ValueError, match="the hub cannot be reached"):
        huggingface_folder.find("some/opus", ("b.json", "a.json"))


def test_a_long_answer_of_the_hub_is_shortened(cache):
    cache.error = lambda file: huggingface_hub.errors.HFValidationError("no such\nname " * 500)
    with pytest.raises(ValueError, match="cannot be downloaded from the hub: no such name no such") as told:
        huggingface_folder.find("some/opus", ("a.json",))
    assert "\n" not in str(told.value) and len(str(told.value)) < 450


# Memory.


MEMORY = """
import pathlib, re, sys
from t2t_keras.interop import huggingface_folder, marian
import numpy, safetensors
def peak():  # ru_maxrss may be that of the process before `exec`.
    return 1024 * int(re.search("VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
before = peak()
marian.import_marian(*sys.argv[1:])
print(peak() - before)
assert "tensorflow" not in sys.modules and "keras" not in sys.modules
"""


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_an_import_takes_less_memory_than_twice_the_model_and_no_tensorflow(tmp_path, dtype):
    """Of the size of OPUS-MT's."""
    sizes = {"d_model": 512, "ffn_dim": 2048, "encoder_layers": 6, "decoder_layers": 6}
    rows = {"vocab_size": 58_101, "decoder_vocab_size": 58_101}
    folder = marian_folder.make(tmp_path / "model", sizes=sizes, options=rows, dtype=dtype)
    size = (folder / "model.safetensors").stat().st_size
    assert size > 140e6
    command = [sys.executable, "-c", MEMORY, str(folder), str(tmp_path / "run")]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 2 * size


@pytest.mark.parametrize(
    ("source", "target", "given"),
    [
        ("en", "de", True),
        ("zh_Hans", "en-GB", True),
        ("en", "en", False),
        ("en", 3, False),
        (None, "de", False),
        ("en: x", "de", False),
    ],
)
def test_languages_are_two_codes_or_none(tmp_path, source, target, given):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"source_lang": source, "target_lang": target}))
    found = marian_vocabulary.languages_of(huggingface_folder.Folder(tmp_path))
    assert found == ({"source_language": source, "target_language": target} if given else {})
