"""Every config is complete: its flags are known, and a model and a schedule can be made of it."""

import dataclasses
import pathlib

import keras
import numpy as np
import programs
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from test_run import train

from t2t_keras.config import DataConfig, DecodeConfig, ModelConfig, RnnConfig, TrainConfig, paper
from t2t_keras.data import prepare
from t2t_keras.decoding import loading
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system import files
from t2t_keras.text import vocabulary, word_pieces
from t2t_keras.training.optimizer import TransformerSchedule, schedule_of

CONFIGS = sorted((pathlib.Path(__file__).parent.parent / "configs").glob("*.flags"))


def values_of(path: pathlib.Path) -> dict[str, str]:
    """The flags of a flagfile, without absl: it names each once, after the config that it changes, if there is one."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    pairs = [line.removeprefix("--").split("=", 1) for line in lines if line and not line.startswith("#")]
    values = dict(pairs)
    assert len(values) == len(pairs), "a flag is set twice"
    assert "flagfile" not in values or pairs[0][0] == "flagfile"
    changed = values.pop("flagfile", "")
    return (values_of(path.with_name(f"{changed}.flags")) if changed else {}) | values


def read(path: pathlib.Path) -> tuple:
    """The options of a flagfile, each of which converts to its type."""
    values = values_of(path)
    model = {"transformer": ModelConfig, "rnn": RnnConfig}[values.pop("architecture", "transformer")]
    groups = (model, TrainConfig, DecodeConfig, DataConfig)
    fields = {field.name: (group, field) for group in groups for field in dataclasses.fields(group)}
    assert set(values) <= {*fields, "divide_widths", "divide_layers"}
    given = {group: {} for group in groups}
    for name, value in values.items():
        if name in fields:
            group, field = fields[name]
            given[group][name] = field.type(value)
    return tuple(group(**options) for group, options in given.items())


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_begins_with_what_to_expect_and_the_command(path):
    comment = path.read_text(encoding="utf-8").split("--", 1)[0]
    assert comment.startswith("# ")
    assert "python tools/train.py" in path.read_text(encoding="utf-8") or "./tools/quickstart.sh" in comment


def test_the_paper_s_models_are_rows_of_table_3():
    """Section 6.1: base and big, for En-De and En-Fr; the big En-Fr model has P_drop 0.1 instead of 0.3."""
    expected = {
        "wmt14_en_de_base": (paper.model("base"), 100_000, 5),
        "wmt14_en_de_big": (paper.model("big"), 300_000, 20),
        "wmt14_en_fr_base": (paper.model("base", vocab_size=32_000), 100_000, 5),
        "wmt14_en_fr_big": (paper.model("big", vocab_size=32_000, dropout=0.1), 300_000, 20),
    }
    for path in CONFIGS:
        if path.stem in expected:
            model, train, decode, data = read(path)
            assert (model, train.train_steps, train.keep_checkpoints) == expected[path.stem]
            assert (train.batch_tokens, train.warmup_steps, train.label_smoothing) == (25_000, 4000, 0.1)
            assert train.checkpoint_minutes == 10
            assert (decode.beam_size, decode.alpha, decode.extra_length) == (4, 0.6, 50)
            assert data.source_language == "en" and data.dataset.startswith("wmt14_translate/")
    assert set(expected) <= {path.stem for path in CONFIGS}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_makes_a_schedule_that_peaks_at_its_warm_up(path):
    model, train, _, _ = read(path)
    schedule = schedule_of(model.d_model, dataclasses.replace(train, cooldown_steps=0))
    peak = train.warmup_steps
    rates = [float(schedule(step - 1)) for step in (1, peak - 1, peak, peak + 1)]
    assert max(rates) == rates[2]
    assert 1e-4 < rates[2] < 1e-2


def test_the_quick_start_s_rate_falls_to_zero_after_its_warm_up():
    """Section 5.3's warm-up, and then a cooldown to the last update, after which the rate would be 0."""
    model, train, _, _ = read(next(path for path in CONFIGS if path.stem == "quickstart"))
    assert train.warmup_steps + train.cooldown_steps == train.train_steps
    rates = np.array(schedule_of(model.d_model, train)(np.arange(train.train_steps + 1)))
    assert rates.argmax() == train.warmup_steps - 1 and rates[-2] < max(rates) / 1000 and rates[-1] == 0


def test_multi30k_peaks_at_the_rate_of_its_recipe():
    """Wu et al. (2021): 5e-3 at update 2,000."""
    model, train, _, _ = read(next(path for path in CONFIGS if path.stem == "multi30k_en_de"))
    schedule = TransformerSchedule(model.d_model, train.warmup_steps, train.learning_rate_factor)
    assert float(schedule(train.warmup_steps - 1)) == pytest.approx(5e-3, rel=1e-3)


def test_the_parsing_models_are_those_of_section_6_3():
    """4 layers, d_model 1024, beam 21, alpha 0.3, at most input + 300; 16 K sub-words for WSJ alone and 32 K with more
    text.
    """
    sizes = {"encoder_layers": 4, "decoder_layers": 4, "d_model": 1024, "d_k": 128, "d_v": 128}
    expected = dataclasses.replace(paper.model("base"), **sizes, dropout=0.2)
    for name, vocab_size in (("parsing_wsj", 16_000), ("parsing_semi_supervised", 32_000)):
        model, train, decode, data = read(next(path for path in CONFIGS if path.stem == name))
        assert model == dataclasses.replace(expected, vocab_size=vocab_size)
        assert (decode.beam_size, decode.alpha, decode.extra_length) == (21, 0.3, 300)
        assert (train.batch_tokens, train.label_smoothing) == (25_000, 0.1)
        assert data.max_length >= 512, "a long sentence has several hundred brackets"


def test_the_quick_start_s_model_can_be_made():
    from t2t_keras.model.transformer import Transformer

    model, *_ = read(next(path for path in CONFIGS if path.stem == "quickstart"))
    assert isinstance(Transformer(model), keras.Model)


@pytest.mark.medium
@pytest.mark.parametrize(
    "path",
    [
        # The base models read the same sets.
        pytest.param(path, marks=[pytest.mark.slow] * path.stem.endswith("big"), id=path.stem)
        for path in CONFIGS
        if path.stem.startswith("wmt14")
    ],
)
def test_a_wmt14_config_runs_on_the_mock_of_its_set(path, tmp_path):
    """From TFDS to a translation, with a small model and small batches."""
    model, config, decode, data = read(path)
    small = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_ff": 16, "num_heads": 2, "d_k": 4, "d_v": 4}
    short = {"train_steps": 2, "batch_tokens": 400, "valid_sentences": 0, "best_metric": "loss", "checkpoint_steps": 1}
    model, config = dataclasses.replace(model, vocab_size=290, **small), dataclasses.replace(config, **short)
    with tfds.testing.mock_data(num_examples=300):
        state, said = train(tmp_path, model=model, train=config, decode=decode, data=data)
    assert state.step == 2 and "loss" in said
    subwords = vocabulary.load(*SavedRun.open(tmp_path).subwords())
    assert isinstance(subwords, word_pieces.WordPieces) == ("en_fr" in path.stem), "section 5.1"
    assert (tmp_path / files.DATA / prepare.CORPUS).exists()
    assert loading.load(tmp_path)(tf.constant(["abc def"]))["text"].shape == [1]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("name", "folder", "wrong"), [("prepare", "data", "max_length=1"), ("train", "model", "d_model=0")]
)
def test_a_program_takes_the_config_by_name(path, tmp_path, name, folder, wrong):
    """A wrong option after it shows that the flagfile itself was read: nothing else is reported.

    Story: prepare.py did not know --beam_size and --alpha, which are in the configs of WMT14.
    """
    given = [f"--flagfile={path.stem}", f"--{folder}_dir={tmp_path}", f"--{wrong}"]
    given += ["--model=table3/base"] * (name == "train" and path.stem.startswith("table3"))
    result = programs.tool(name, *given, modules=programs.WITHOUT_TENSORFLOW)
    assert result.returncode == 1 and wrong in result.stderr
