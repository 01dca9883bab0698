"""The recurrent translator, and an architecture that the package does not know, train, resume, translate and are
exported.
"""

import dataclasses
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import programs
import pytest
import tensorflow as tf
from toy_architecture import Gru, GruConfig

import t2t_keras
from t2t_keras.config import DataConfig, DecodeConfig, TrainConfig
from t2t_keras.decoding import loading
from t2t_keras.decoding.beam_search import length_penalty
from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.reporting import pages, pictures
from t2t_keras.reporting.attention import attention_of
from t2t_keras.runs import checkpoint, registry, run_options
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving import ctranslate2_format, savedmodel
from t2t_keras.serving.loaded import LoadedExport
from t2t_keras.serving.saved_export import SavedExport
from t2t_keras.training import devices, run

ROOT = pathlib.Path(__file__).parent.parent
GIVEN = {
    "dataset": "builtin", "builtin_pairs": 600, "warmup_steps": 10, "batch_tokens": 400, "micro_batch_tokens": 300,
    "buckets_per_update": 2, "valid_steps": 3, "valid_sentences": 3, "checkpoint_steps": 3, "beam_size": 3,
    "extra_length": 2,
}  # fmt: skip
# Own options of each architecture, and one of its weights.
OWN = {
    "gru": ({"depth": 2}, "model/writer/stacked_rnn_cells/cell_1/kernel"),
    "rnn": ({"vocab_size": 340, "d_model": 16, "d_embedding": 12}, "model/rnn/decoder/attention/vector"),
}


def options_of(architecture: str) -> dict:
    return GIVEN | {"architecture": architecture} | OWN[architecture][0]


def arrays(model_dir: pathlib.Path) -> dict:
    with np.load(checkpoint.kept(model_dir)[-1]) as archive:
        return {name: archive[name] for name in archive.files if name != "state"}


def resumed(model_dir: pathlib.Path, to: pathlib.Path, step: int) -> None:
    """Copies a run as it was when it had saved an update, and resumes the copy by its folder alone."""
    shutil.copytree(model_dir, to)
    checkpoint.put_aside(to, after=checkpoint.path_of(to, step))
    assert checkpoint.step_of(checkpoint.kept(to)[-1]) == step
    run.train(Start.open(to, {}), strategy=devices.make_strategy(2))


@pytest.fixture(scope="module", params=OWN)
def architecture(request) -> str:
    return request.param


@functools.cache
def runs(root: pathlib.Path, architecture: str) -> pathlib.Path:
    folder, given = root / architecture, options_of(architecture) | {"train_steps": 6}
    run.train(Start.open(folder / "whole", given, str(folder / "data")), strategy=devices.make_strategy(2))
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("architectures")


@pytest.fixture(scope="module")
def folder(root, architecture) -> pathlib.Path:
    """A run of six updates."""
    return runs(root, architecture)


@pytest.fixture(scope="module")
def gru(root) -> pathlib.Path:
    """That of the architecture that the package does not know."""
    return runs(root, "gru")


@pytest.fixture(scope="module")
def rnn(root) -> pathlib.Path:
    return runs(root, "rnn")


@pytest.fixture(scope="module")
def translator(folder):
    return loading.load(folder / "whole", "latest")


LINES = ["twenty-one", "", "one hundred and seven", "the third of may", "two euros and three cents", "five"]


@pytest.mark.medium
def test_a_run_on_two_devices_has_all_weights_and_names_its_architecture(folder, architecture):
    whole = arrays(folder / "whole")
    assert OWN[architecture][1] in whole
    sizes = [array.size for name, array in whole.items() if name.startswith("model/")]
    assert sum(sizes) == SavedRun.open(folder / "whole").options.model.num_weights
    assert json.loads((folder / "whole" / "config.json").read_text())["architecture"] == architecture


@pytest.mark.medium
def test_a_killed_run_resumes_to_the_last_bit(gru):
    resumed(gru / "whole", gru / "resumed", 3)
    whole, again = arrays(gru / "whole"), arrays(gru / "resumed")
    assert whole.keys() == again.keys()
    for name in whole:
        np.testing.assert_array_equal(again[name], whole[name], err_msg=name)


@pytest.mark.medium
def test_scores_of_the_search_are_those_of_whole_sentences(translator):
    """The states of beams that cross are those of their own hypotheses."""
    found = translator.n_best(tf.constant(LINES))
    for line, texts, scores in zip(LINES, found["text"].numpy(), found["score"].numpy(), strict=True):
        if not line:
            continue
        source = translator.tokenizer.tokenize([line] * len(texts))
        sequences, _ = translator.search(
            source, tf.fill([len(texts)], 0.6), tf.cast(source.row_lengths(), tf.int32) + 2, tf.fill([len(texts)], 3)
        )
        target = sequences[:3]
        log_probs = tf.reduce_sum(translator.log_probs(source, target), axis=1)
        np.testing.assert_allclose(scores, log_probs / length_penalty(target.row_lengths(), 0.6), atol=1e-5)
        assert len({tuple(ids) for ids in target.to_list()}) == 3


@pytest.mark.medium
def test_a_translation_does_not_depend_on_the_batch(translator):
    together = translator(tf.constant(LINES))
    for index, line in enumerate(LINES):
        alone = translator(tf.constant([line]))
        assert alone["text"][0] == together["text"][index]
        np.testing.assert_allclose(alone["score"][0], together["score"][index], atol=1e-5)


@pytest.mark.medium
def test_an_export_translates_scores_and_aligns(folder, translator, architecture):
    """The alignments of a model that does not align are zeros."""
    version = savedmodel.export_run(folder / "exports", TrainedModel.open(folder / "whole", "latest"))
    export = LoadedExport(SavedExport(version))
    found, expected = export(tf.constant(LINES)), translator(tf.constant(LINES))
    assert found["text"].numpy().tolist() == expected["text"].numpy().tolist()
    np.testing.assert_allclose(found["score"], expected["score"], atol=1e-5)
    assert json.loads((version / "assets.extra" / "t2t_keras.json").read_text())["architecture"] == architecture
    loaded = t2t_keras.TextTranslator(export)
    assert len(loaded.n_best("five", 2)) == 2 and loaded.score("five", "fünf") < 0
    for found in loaded.n_best("five", 2, alignment=True):
        assert found.alignment.shape == (len(found.pieces), len(found.source_pieces))
        np.testing.assert_allclose(found.alignment.sum(axis=1), translator.model.aligns, atol=1e-5)


@pytest.mark.medium
def test_bfloat16_and_int8_translate_too(folder):
    source, target = tf.constant(["five", "twenty-one"]), tf.constant(["fünf", "einundzwanzig"])
    log_probs = []
    for options in ({}, {"dtype": "bfloat16"}, {"int8": True}):
        translator = loading.load(folder / "whole", "latest", **options)
        sides = (translator.tokenizer.tokenize(side) for side in (source, target))
        log_probs.append(tf.reduce_sum(translator.log_probs(*sides), axis=1))
        assert translator(source)["text"].shape == (2,)
    for received in log_probs[1:]:
        assert (received != log_probs[0]).numpy().all()
        np.testing.assert_allclose(received, log_probs[0], rtol=0.02)


@pytest.mark.medium
def test_what_needs_the_transformer_is_refused_in_a_sentence(translator):
    name = type(translator.model).__name__
    expected = f"Expected a Transformer for the format of CTranslate2. Received: a model of {name}."
    with pytest.raises(ValueError, match=re.escape(expected)):
        ctranslate2_format.specification(translator.model, list(translator.tokenizer.pieces), 9)


@pytest.mark.medium
def test_attention_that_a_model_does_not_have_is_not_drawn(gru):
    expected = "The attention of this model cannot be drawn: Gru."
    with pytest.raises(ValueError, match=re.escape(expected)):
        attention_of(loading.load(gru / "whole", "latest"), "five")


@pytest.mark.medium
def test_the_attention_of_the_recurrent_translator_is_its_alignment_in_a_page_a_picture_and_tensorboard(rnn):
    translator = loading.load(rnn / "whole", "latest")
    found, source = (
        attention_of(translator, "twenty-one", "einundzwanzig"),
        translator.tokenizer.tokenize(["twenty-one"]).to_tensor(),
    )
    read = [translator.tokenizer.pieces.index(piece) for piece in found.target_input.pieces]
    with translator.scope():
        alignment = translator.model.align(tf.constant([read]), translator.model.encode(source))
    np.testing.assert_allclose(found.cross[0], alignment, atol=1e-6)
    assert found.encoder.shape[0] == found.decoder.shape[0] == 0 and found.cross.shape[:2] == (1, 1)
    np.testing.assert_allclose(found.by_words().cross.sum(axis=-1), 1, atol=1e-5)
    data = json.loads(re.search(r'id="data">(.*?)</script>', pages.attention_page({1: found}))[1])
    shown = data["sentences"][0]["weights"]
    assert shown["encoder"] == shown["decoder"] == [] and len(shown["cross"][0][0]) == found.cross.size
    [image] = pictures.attention_images(translator, [("five", "fünf")], 1)().values()
    assert image.dtype == np.uint8 and np.ptp(image) > 100


@pytest.mark.medium
def test_attention_py_draws_what_the_recurrent_translator_has(rnn, tmp_path):
    (tmp_path / "lines").write_text("five\n")
    given = [f"--model_dir={rnn / 'whole'}", f"--output={tmp_path / 'out'}", f"--input={tmp_path / 'lines'}"]
    given.append("--checkpoint=latest")
    wrong_ones = {"attention=encoder": "Expected cross as", "layer=2": "from 1 to 1", "heads=2": "from 1 to 1"}
    for wrong, expected in wrong_ones.items():
        _, said = run_program("attention", *given, f"--{wrong}").communicate()
        assert expected in said.splitlines()[-1]
    process = run_program("attention", *given)
    said = process.communicate()
    assert process.returncode == 0, said
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"attention.html", "001_cross_layer_1_lines.png", "001_cross_layer_1_heat_maps.png"}


@pytest.mark.medium
def test_a_run_keeps_its_architecture(gru):
    with pytest.raises(ValueError, match=re.escape("Expected architecture=gru, that of the run in")):
        Start.open(gru / "whole", {"architecture": "transformer"})
    expected = (
        "Expected options of architecture=gru. Received: num_heads=4, an option of architecture=transformer or bert or "
        "classifier."
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        Start.open(gru / "whole", {"num_heads": 4})
    table = Start.open(gru / "whole", {}).options.table()
    assert re.search(r"\| architecture +\| gru +\| run: ", table)
    assert re.search(r"\| depth +\| 2 ", table)
    assert "num_heads" not in table


@pytest.mark.medium
def test_a_stranger_s_architecture_is_looked_up_and_never_imported(tmp_path, gru):
    config = json.loads((gru / "whole" / "config.json").read_text())
    for name in ("os:system", "nobody", 3, None, ["gru"]):
        (tmp_path / "config.json").write_text(json.dumps(config | {"architecture": name}))
        with pytest.raises(ValueError, match="Install the package that registers it"):
            _ = SavedRun.open(tmp_path).options


def test_the_memory_of_an_architecture_that_estimates_none_is_that_of_its_tokens_and_logits():
    model = Gru(GruConfig(9, d_model=4))
    assert model.memory_cost(3, 5, 7) == 3 * (5 + 7) and model.search_memory(4, 50) == 12 * 4 * 9
    assert model.passes == 1 and model.source_embedding_matrix is None


def test_a_run_without_the_key_is_a_transformer(tmp_path):
    path = ROOT / "tests/data/run_1"
    assert "architecture" not in json.loads((path / "config.json").read_text())
    assert SavedRun.open(path).options.architecture == "transformer"


class Counted:
    num_weights = 0


# What a beginner writes: a default without help, and annotations that `from __future__ import annotations` has made
# text.
FIELDS = [("vocab_size", int, t2t_keras.option(9, "")), ("d_model", int, 8), ("depth", "int", t2t_keras.option(1, ""))]


@pytest.mark.parametrize(("options", "expected"), [
    (dataclasses.make_dataclass("Empty", []), "Received none named d_model, vocab_size, num_weights"),
    (dataclasses.make_dataclass("NotCounted", ["vocab_size", "d_model"]), "Received none named num_weights"),
    (GruConfig, "is registered"),
    (dataclasses.make_dataclass("Plain", FIELDS, bases=(Counted,)),
     "`t2t_keras.option`s of type bool, int, float or str in Plain, without .* Received: d_model, depth"),
    (dataclasses.make_dataclass("Clash", ["vocab_size", "seed", "alpha"]), re.escape("Received: ['alpha', 'seed'].")),
])  # fmt: skip
def test_a_registration_is_checked(options, expected):
    with pytest.raises(ValueError, match=expected):
        registry.register_architecture("gru" if options is GruConfig else "other", options=options, model=Gru)


PROGRAM = """
import sys
sys.path[:0] = [{tests!r}, {root!r}]
import toy_architecture
from tools import {program} as program
program.main()
"""


def run_program(program: str, *arguments: str, **options) -> subprocess.Popen:
    code = PROGRAM.format(tests=str(ROOT / "tests"), root=str(ROOT), program=program)
    return programs.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.mark.medium
def test_help_shows_the_options_of_the_chosen_architecture_alone():
    shown, _ = run_program("train", "--architecture=gru", "--helpfull").communicate()
    assert "--depth: Number of decoder cells." in shown
    assert "--d_model: Width of embeddings" in shown
    assert "--num_heads" not in shown
    other, _ = run_program("train", "--helpfull").communicate()
    assert "--num_heads" in other and "--depth" not in other


@pytest.mark.medium
def test_an_option_of_another_architecture_is_refused_with_both_names(gru):
    run = gru / "whole"
    for given in (
        ["--architecture=gru", "--model_dir=new"],
        [f"--model_dir={run}"],
        [f"--parent={run}", "--model_dir=new"],
    ):
        process = run_program("train", *given, "--num_heads=4")
        _, said = process.communicate()
        assert process.returncode == 1
        assert said.splitlines()[-1] == (
            "Error: --num_heads is an option of --architecture=transformer or --architecture=bert or "
            "--architecture=classifier, and not of --architecture=gru."
        )


@pytest.mark.slow
def test_a_killed_run_ends_with_the_weights_of_one_that_was_not(tmp_path, architecture):
    flags = [
        f"--{name}={value}"
        for name, value in (
            options_of(architecture) | {"train_steps": 40, "checkpoint_steps": 4, "deterministic": True}
        ).items()
    ]
    for name in ("killed", "whole"):
        process = run_program("train", *flags, f"--model_dir={tmp_path / name}", f"--data_dir={tmp_path / 'data'}")
        if name == "killed":
            while process.poll() is None and len(checkpoint.kept(tmp_path / name)) < 2:
                pass
            process.send_signal(signal.SIGKILL)
            process.communicate()
            assert process.returncode == -signal.SIGKILL
            process = run_program("train", f"--model_dir={tmp_path / name}")  # With all of its options.
        _, said = process.communicate()
        assert process.returncode == 0, said
    killed, whole = arrays(tmp_path / "killed"), arrays(tmp_path / "whole")
    for name in whole:
        np.testing.assert_array_equal(killed[name], whole[name], err_msg=name)


def test_groups_of_options_have_their_defaults():
    options = run_options.Options.default("gru")
    assert options == run_options.Options(GruConfig(), TrainConfig(), DecodeConfig(), DataConfig(), architecture="gru")
    assert [*options.groups] == ["model", "train", "decode", "data"]


def with_plugin(tmp_path: pathlib.Path, code: str) -> dict:
    """The environment of a process in which a package with three plugins is installed, the second of which has this
    code.
    """
    (tmp_path / "mine.py").write_text(code)
    (tmp_path / "mine-1.0.dist-info").mkdir()
    (tmp_path / "mine-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (tmp_path / "mine-1.0.dist-info/entry_points.txt").write_text(
        "[t2t_keras.plugins]\nfirst = json\nmine = mine\nthird = json\n"
    )
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "tests")])}


def train_help(environment: dict, *arguments: str) -> subprocess.CompletedProcess:
    return programs.tool("train", *arguments, "--helpfull", modules=programs.WITHOUT_TENSORFLOW, env=environment)


@pytest.mark.medium
def test_an_installed_package_registers_its_architecture_as_a_plugin(tmp_path):
    result = train_help(with_plugin(tmp_path, "import toy_architecture\n"), "--architecture=gru")
    assert "--depth: Number of decoder cells." in result.stdout, result.stderr


def test_a_plugin_that_cannot_be_imported_is_named(tmp_path):
    environment = with_plugin(tmp_path, "import nothing_of_this_name\n")
    assert "--num_heads" in train_help(environment).stdout  # The Transformer needs no plugin.
    result = train_help(environment, "--architecture=gru")
    assert (
        "The plugin mine cannot be imported (No module named 'nothing_of_this_name'). Repair it, or remove its package."
        in result.stderr
    )
