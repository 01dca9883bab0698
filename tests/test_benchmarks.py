"""What is compared is alike: the peers have our weights, and the sources, lengths and ends are those it says.

`tests/peers.sh` installs PyTorch and transformers and runs these tests with them; elsewhere those that need them are skipped.
"""

import dataclasses
import importlib
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import toy
from absl import flags

from t2t_keras.config import BOS, EOS, PAD, ModelConfig
from t2t_keras.model.transformer import Transformer

ROOT = pathlib.Path(__file__).parent.parent
PEERS = "PyTorch and transformers are not installed: tests/peers.sh installs them and runs this test"
SMALL = ModelConfig(60, encoder_layers=2, decoder_layers=3, d_model=16, d_ff=24, num_heads=2, d_k=8, d_v=8)


@pytest.mark.parametrize("config", [SMALL, dataclasses.replace(SMALL, learned_positions=6)], ids=["sinusoids", "learned positions"])
def test_marian_with_our_weights_has_our_logits(config):
    torch = pytest.importorskip("torch", reason=PEERS)
    pytest.importorskip("transformers", reason=PEERS)
    from benchmarks import decode

    model = Transformer(config)
    toy.set_weights(model)
    peer = decode.to_marian(model, 20)
    draw = np.random.default_rng(2)
    source = toy.padded([[*draw.integers(4, 60, length), EOS] for length in (9, 3, 14)])
    target = np.concatenate([np.full([3, 1], BOS), draw.integers(4, 60, [3, 11])], axis=1).astype(np.int32)
    with torch.inference_mode():
        ids = torch.from_numpy(source).long()
        logits = peer(input_ids=ids, attention_mask=(ids != PAD).long(), decoder_input_ids=torch.from_numpy(target).long()).logits
    np.testing.assert_allclose(logits.numpy(), model((source, target)).numpy(), rtol=0, atol=1e-4)


def test_heads_that_marian_has_not_are_refused():
    pytest.importorskip("transformers", reason=PEERS)
    from benchmarks import decode

    with pytest.raises(ValueError, match="Received: num_heads=2, d_k=6, d_v=8, d_model=16"):
        decode.to_marian(Transformer(dataclasses.replace(SMALL, d_k=6)), 20)


def test_a_model_that_never_ends_gives_no_special_id_a_chance():
    from benchmarks import our_decoder

    model = our_decoder.never_ending(dataclasses.replace(SMALL, d_model=64))
    draw = np.random.default_rng(3)
    source, target = (draw.integers(0, 60, [5, 8]).astype(np.int32) for _ in range(2))
    log_p = tf.nn.log_softmax(model((source, target))).numpy()
    assert log_p[..., : EOS + 1].max() < log_p[..., EOS + 1 :].min() - 5


@pytest.mark.slow
def test_all_systems_write_equally_much_and_float32_writes_the_same():
    pytest.importorskip("ctranslate2", reason="the extra 'ctranslate2' is not installed: pip install -e '.[ctranslate2]'")
    arguments = ["--config=C256", "--vocab_size=100", "--target_length=6", "--sentences=6", "--single_sentences=3", "--rounds=1", "--json"]
    program = [sys.executable, str(ROOT / "benchmarks/decode.py"), *arguments, "--batch_sizes=4,1", "--beam_sizes=2,1"]
    result = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, check=True)
    measured = json.loads(result.stdout)
    assert measured["machine"]["cores"] >= 1
    systems = {row["system"] for row in measured["rows"]}
    assert {"t2t_keras float32", "CTranslate2 float32"} <= systems
    assert len(measured["rows"]) == 4 * len(systems)
    for row in measured["rows"]:
        assert row["mean_length"] == 6
        assert row["sub_words_per_second"] == pytest.approx(6 * row["sentences_per_second"])
        if row["system"].endswith("float32"):
            assert row["equal"] == 1


# Table 1.


@pytest.fixture
def table1():
    """The module. Its flags have the names of decode.py's, of which a process can have one: those of decode.py are removed."""
    for flag in list(flags.FLAGS.flags_by_module_dict().get("benchmarks.decode", [])):
        delattr(flags.FLAGS, flag.name)
    return importlib.import_module("benchmarks.table1")


def test_the_fitted_exponent_of_a_power_is_its_exponent(table1):
    points = {str(n): 3e-6 * n**1.7 for n in (64, 512, 1024, 4096)}
    points["64"] = 5.0  # Below the lengths that are fitted.
    assert table1.fitted_exponent(points, 512) == pytest.approx(1.7)


@pytest.mark.parametrize(
    ("name", "sequential", "path", "dilated"),
    [
        ("attention", 2, 1, None),
        ("restricted", 2, 25, None),
        ("recurrent", 12, 101, None),
        ("convolutional", 1, 50, 4),
        ("separable", 2, 50, 4),
        ("attention_projected", 4, 1, None),
        ("restricted_projected", 4, 25, None),
    ],
)
def test_sequential_operations_and_path_lengths_are_those_of_the_layers(table1, name, sequential, path, dilated):
    """By hand, for r = 8 and k = 5 and 101 positions: 4 and 2 positions a layer; with dilations, 2 + 10 + 50 + 250."""
    settings = table1.Settings(d=16, heads=2, window=8, kernel=5)
    assert table1.sequential_operations(table1.LAYERS[name], settings, 12) == sequential
    assert table1.path_length(name, settings, 101) == path
    if dilated:
        assert table1.path_length(name, settings, 101, dilated=True) == dilated


def test_measurements_are_continued_and_make_a_table_and_a_picture(table1, monkeypatch, tmp_path):
    from t2t_keras.visualization import figures

    measured = []

    def seconds_of(call):
        measured.append([gradient.shape for gradient in call()])
        return 0.001 * len(measured)

    monkeypatch.setattr(table1, "measure_memory", lambda name, settings, lengths: {str(n): 1000 * n**2 for n in lengths})
    monkeypatch.setattr(table1, "seconds_of", seconds_of)
    settings, saved = table1.Settings(d=8, heads=2, window=4), []
    results = table1.measure(
        settings, [8, 16], 1, {"settings": dataclasses.asdict(settings)}, lambda found: saved.append(json.dumps(found))
    )
    number = 2 * len(table1.LAYERS)
    assert len(measured) == number and json.loads(saved[-1]) == results
    again = table1.measure(settings, [8, 16, 32], 2, json.loads(saved[-1]), lambda found: None)
    assert len(measured) == 3 * number, "a second round of two lengths, and two rounds of a third"
    assert all(len(seconds) == 2 for points in again["seconds"].values() for seconds in points.values())
    head, line, *rows = table1.table(again, 8).splitlines()
    assert len(rows) == len(table1.LAYERS) and {row.count("|") for row in (head, line, *rows)} == {12}
    assert all(" 2.00 | O(" in row for row in rows), "the exponent of the memory"
    figures.save(table1.picture(again, 8), tmp_path / "table1.svg")
    drawn = (tmp_path / "table1.svg").read_text()
    assert all(layer.name in drawn for layer in table1.LAYERS.values()) and "n^2.00" in drawn


@pytest.mark.slow
def test_memory_of_full_attention_grows_with_the_square_and_of_restricted_attention_with_the_length(table1):
    lengths, settings = [512, 1024, 2048], table1.Settings(d=64, heads=8, window=16)
    full, restricted = (table1.measure_memory(name, settings, lengths) for name in ("attention", "restricted"))
    assert 1.7 < table1.fitted_exponent(full, 512) < 2.3
    assert table1.fitted_exponent(restricted, 512) < 1.4
    assert full["2048"] > 5 * restricted["2048"]


# The rehearsal of WMT14. It has flags of the same names as decode.py, so it runs in a process of its own.


def rehearsal(code: str, *arguments) -> str:
    """What some code prints with the module as `rehearsal` and the arguments in `sys.argv`."""
    program = f"import pathlib, sys\nfrom benchmarks import wmt14_rehearsal as rehearsal\n{code}"
    result = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_the_text_of_the_rehearsal_is_aligned_as_long_as_wmt14_s_and_the_same_each_time(tmp_path):
    code = "rehearsal.TYPES, rehearsal.PAIRS_AT_ONCE = 5000, 700\nrehearsal.generate(pathlib.Path(sys.argv[1]), 2000)"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        rehearsal(code, tmp_path / name)
    for name, number in {"train.en": 2000, "train.de": 2000, "valid.en": 3000, "valid.de": 3000}.items():
        lines = (tmp_path / "one" / name).read_text(encoding="utf-8").split("\n")
        assert len(lines) == number + 1 and all(lines[:-1])
        assert 22 < np.mean([len(line.split()) for line in lines[:-1]]) < 28
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_rehearsal_compares_all_weights_and_not_the_duration(tmp_path):
    code = "print(rehearsal.difference(*map(pathlib.Path, sys.argv[1:])))"
    paths = [tmp_path / "whole.npz", tmp_path / "killed.npz"]
    for path, state in zip(paths, ("10 s", "20 s"), strict=True):
        np.savez(path, state=state, kernel=np.ones(3), bias=np.ones(2))
    assert rehearsal(code, *paths) == "weights and optimizer equal those of the run without a break"
    np.savez(paths[1], state="20 s", kernel=np.array([1, 1, 1.25]), bias=np.ones(2))
    assert rehearsal(code, *paths).startswith("1 of 2 arrays")
