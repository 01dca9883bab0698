"""Attention functions compared: figures of scores by hand and of whole models by the equations, measurements, tables
and the program.
"""

import dataclasses
import itertools
import json
import math
import pathlib
import re
import subprocess
from types import SimpleNamespace

import keras
import numpy as np
import numpy_transformer as paper
import programs
import pytest
import tensorflow as tf
from test_oracle import as_in_the_paper, randomized, values_of

from t2t_keras.config import BOS, EOS, ModelConfig, TrainConfig
from t2t_keras.experiments import attention_functions, series, table1
from t2t_keras.experiments.attention_functions import FIGURES, of_model, of_scores
from t2t_keras.model.transformer import Transformer
from t2t_keras.reporting import figures
from t2t_keras.runs import run_options
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun

ROOT = pathlib.Path(__file__).parent.parent
PROGRAM = ROOT / "tools/attention_functions.py"
FUNCTIONS = ("additive", "scaled", "unscaled")
DRAW = np.random.default_rng(1)


def test_figures_of_two_keys_by_hand_and_of_one_there_are_none():
    """Weights 1/4 and 3/4; the third key is masked. The second query sees one key only."""
    scores = np.array([[0.0, math.log(3), 100.0], [5.0, 1.0, 2.0]])
    found = of_scores(scores, np.array([[True, True, False], [True, False, False]]))
    entropy = (math.log(4) / 4 + 3 * math.log(4 / 3) / 4) / math.log(2)
    np.testing.assert_allclose(found, [[math.log(3) ** 2 / 2, entropy, 2 * 3 / 16 / (1 / 2)]], rtol=1e-12)


@pytest.mark.parametrize(("scores", "expected"), [([7.0] * 5, (0, 1, 1)), ([0.0, 0.0, 2000.0], (4e6 / 3, 0, 0))])
def test_equal_scores_have_all_entropy_and_gradient_and_a_far_larger_one_leaves_none(scores, expected):
    np.testing.assert_allclose(of_scores(np.array(scores), np.array(True)), [expected], atol=1e-12)


def test_the_gradient_is_the_trace_of_the_derivatives_of_softmax():
    scores = DRAW.normal(size=(4, 6))
    with tf.GradientTape() as tape:
        given = tf.constant(scores)
        tape.watch(given)
        weights = tf.nn.softmax(given)
    traces = np.trace(tape.batch_jacobian(weights, given).numpy(), axis1=1, axis2=2)
    np.testing.assert_allclose(of_scores(scores, np.array(True))[:, 2], traces / (1 - 1 / 6), rtol=1e-6)


@pytest.mark.parametrize("d_k", [4, 64])
def test_products_of_independent_components_have_the_variance_of_footnote_4(d_k):
    q, k = DRAW.normal(size=(2000, 1, d_k)), DRAW.normal(size=(2000, 20, d_k))
    products = (q @ np.swapaxes(k, 1, 2))[:, 0]
    unscaled, scaled = (of_scores(scores, np.array(True)).mean(axis=0) for scores in (products, products / d_k**0.5))
    assert unscaled[0] == pytest.approx(d_k, rel=0.1) and scaled[0] == pytest.approx(1, rel=0.1)
    assert scaled[1] > 0.8 and scaled[2] > 0.85, "of any d_k"
    assert unscaled[1:].max() < (0.3 if d_k == 64 else 0.8)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_figures_of_a_model_are_those_of_the_paper_s_weights(tiny, function):
    """Scores differ from the logs of their weights by one number for each query."""
    model = randomized(Transformer(dataclasses.replace(tiny, attention=function)))
    pairs = [([7, 12, 33, 5, EOS], [14, 8, EOS]), ([39, 4, EOS], [25, 4, 17, 17, 36, EOS])]
    weights, found, loss = as_in_the_paper(values_of(model), model.config), [], 0.0
    for source, target in pairs:
        shifted = [BOS, *target[:-1]]
        loss += paper.smoothed_loss(paper.logits(source, shifted, weights), target, 0.0).sum()
        for p in paper.all_attention(source, shifted, weights).values():
            for row in p.reshape(-1, p.shape[-1]):
                p = row[row > 0]
                if len(p) > 1:
                    n, entropy = len(p), -np.sum(p * np.log(p))
                    found.append([np.var(np.log(p), ddof=1), entropy / math.log(n), (1 - np.sum(p**2)) / (1 - 1 / n)])
    expected = dict(zip(FIGURES, np.mean(found, axis=0), strict=True)) | {"perplexity": math.exp(loss / 9)}
    found = of_model(model, [tuple(np.array(ids, "int32") for ids in pair) for pair in pairs])
    assert found == pytest.approx(expected, rel=1e-4)
    assert not any("call" in vars(layer) for layer in model._flatten_layers())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_timed_is_attention_with_the_function(function):
    attend, shapes = attention_functions.LAYERS[function].make(table1.Settings(d=12, heads=2), 5)
    assert shapes == [(1, 2, 5, 6)] * 3
    q, k, v = DRAW.normal(size=(3, 1, 2, 5, 6)).astype("float32")
    scores = {
        "additive": np.tanh(q[:, :, :, None] + k[:, :, None]).sum(axis=-1) / 6**0.5,
        "scaled": q @ np.swapaxes(k, 2, 3) / 6**0.5,
        "unscaled": q @ np.swapaxes(k, 2, 3),
    }[function]
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(attend(q, k, v), weights @ v, atol=1e-5)


# Measurements.


@pytest.fixture
def stand_ins(monkeypatch) -> list:
    """What was trained. A run's figures tell its d_k; a call takes a millisecond, and memory is n MiB."""
    trained = []

    def figures_of_run(folder, options, strategy, quiet):
        trained.append((folder.name, options.model.attention, options.model.d_k, strategy))
        d_k, perplexity = options.model.d_k, 8.25 + FUNCTIONS.index(options.model.attention)
        part = 1 / (1 + d_k)
        return {
            "options": series.determining(options),
            "before": {"variance": 2.0, "entropy": part, "gradient": part / 2, "perplexity": 400.0},
            "after": {"variance": 3.0 * d_k, "entropy": part / 3, "gradient": part / 4, "perplexity": perplexity},
        }

    def measure_memory(name, settings, lengths, module):
        times = 9 if module == "attention_functions" and name == "additive" else 1
        return {str(n): n * 2**20 * times for n in lengths}

    monkeypatch.setattr(attention_functions, "_figures_of_run", figures_of_run)
    monkeypatch.setattr(table1, "measure_memory", measure_memory)
    monkeypatch.setattr(table1, "seconds_of", lambda call: 0.001 * call()[0].shape[2])
    return trained


def runs(*widths: int, dropout: float = 0.1, **train) -> dict:
    found = {}
    for d_k, function in itertools.product(widths, FUNCTIONS):
        sizes = {"d_model": 16, "num_heads": 16 // d_k, "d_k": d_k, "d_v": d_k}
        model = ModelConfig(340, **sizes, attention=function, dropout=dropout)
        found[function, d_k] = run_options.Options(model, TrainConfig(**train))
    return found


SETTINGS = table1.Settings(d=8, heads=2)


def measured(folder: pathlib.Path, *widths: int, **options) -> dict:
    return attention_functions.measure(SETTINGS, [16, 8], 2, runs(*widths, **options), folder, strategy="all")


def test_measurements_are_continued(stand_ins, tmp_path, monkeypatch, messages):
    freed = []
    monkeypatch.setattr(attention_functions.keras.backend, "clear_session", lambda: freed.append(len(stand_ins)))
    measured(tmp_path / "deep/new", 4)
    assert stand_ins == [(f"{function}_4", function, 4, "all") for function in FUNCTIONS]
    assert [message for message in messages if message.startswith("Run ")] == [
        f"Run {number} of 3: {function}, d_k = 4." for number, function in enumerate(FUNCTIONS, 1)
    ]
    assert freed == [0, 1, 2], "before each run, the graphs of the one before"
    results = measured(tmp_path / "deep/new", 4, 8)
    assert stand_ins[3:] == [(f"{function}_8", function, 8, "all") for function in FUNCTIONS]
    assert results == json.loads((tmp_path / "deep/new/attention_functions.json").read_text())
    assert results["runs"]["scaled"]["8"]["options"] == series.determining(runs(8)["scaled", 8])
    assert all(results["seconds"][function] == {"8": [0.008] * 2, "16": [0.016] * 2} for function in FUNCTIONS)


def test_runs_of_other_options_are_refused_before_anything_is_measured(stand_ins, tmp_path):
    measured(tmp_path, 4, seed=1)
    expected = r"^Expected the options of the runs in .*Received: seed=2 \(.*attention_functions.json: 1\)\. Give an"
    with pytest.raises(ValueError, match=expected):
        measured(tmp_path, 8, 4, seed=2)
    assert len(stand_ins) == 3


@pytest.mark.parametrize(
    ("before", "now"), [({"seed": 1}, {"seed": 2}), ({"dropout": 0.0}, {})], ids=["training", "model"]
)
def test_runs_of_another_d_k_must_have_the_options_of_those_before(stand_ins, tmp_path, before, now):
    """Story: the second command named the new widths and had lost a flag, and the table had runs with dropout and runs
    without.
    """
    measured(tmp_path, 4, **before)
    expected = r"Received: (seed=2 \(.*: 1\)|dropout=0.1 \(.*: 0.0\))\. Give another `output_dir`\.$"
    with pytest.raises(ValueError, match=expected):
        measured(tmp_path, 8, **now)
    assert len(stand_ins) == 3


def test_a_vocabulary_that_the_text_decides_is_compared_with_none(stand_ins, tmp_path):
    """Story: with `vocab_size=0`, the same command again was refused."""
    results = measured(tmp_path, 4)
    asked = runs(4, 8)
    for name, options in asked.items():
        asked[name] = dataclasses.replace(options, model=dataclasses.replace(options.model, vocab_size=0))
    attention_functions.measure(SETTINGS, [16, 8], 2, asked, tmp_path, strategy="all")
    assert len(stand_ins) == 6 and results["runs"]["scaled"]["4"]["options"]["vocab_size"] == 340


@pytest.mark.parametrize("d_k", [4, 8], ids=["the same runs", "another d_k"])
def test_runs_of_other_data_are_refused(stand_ins, tmp_path, d_k):
    """Story: the figures of the text before were printed, and runs of other text joined them in the table."""
    measured(tmp_path, 4)
    folder, some = tmp_path / "scaled_4", tmp_path / "some"
    (folder / "data/train").mkdir(parents=True)
    some.touch()
    SavedRun.write(folder, runs(4)["scaled", 4], some, some)
    for name, content in (("corpus.json", "{}"), ("subwords.model", "other sub-words"), ("train/records.tsv", "")):
        (folder / "data" / name).write_text(content)
    with pytest.raises(ValueError, match=f"{folder} holds a model with other sub-words than {folder / 'data'}"):
        measured(tmp_path, d_k)
    assert len(stand_ins) == 3


def test_an_unfinished_run_is_not_resumed_with_other_options(stand_ins, tmp_path):
    folder, some = tmp_path / "scaled_4", tmp_path / "some"
    (folder / "checkpoints").mkdir(parents=True)
    some.touch()
    SavedRun.write(folder, runs(4, seed=1)["scaled", 4], some, some)
    (folder / "checkpoints/step-000000005.json").touch()
    with pytest.raises(ValueError, match=r"Expected the options that scaled_4 was trained with\. Received: seed=2 "):
        measured(tmp_path, 4, seed=2)
    assert stand_ins == [] and not (tmp_path / "attention_functions.json").exists()
    measured(tmp_path, 4, seed=1)


def test_options_without_effect_and_those_of_later_versions_do_not_keep_a_comparison_from_going_on(stand_ins, tmp_path):
    results = measured(tmp_path, 4)
    for runs_of in results["runs"].values():
        del runs_of["4"]["options"]["ema_decay"]
    (tmp_path / "attention_functions.json").write_text(json.dumps(results))
    measured(tmp_path, 4, 8, max_hours=3.0, log_steps=7)
    assert [name for name, *_ in stand_ins] == [f"{function}_{d_k}" for d_k in (4, 8) for function in FUNCTIONS]


def test_the_tables_and_the_picture_show_what_was_measured(stand_ins, tmp_path):
    results = measured(tmp_path, 8, 4)
    results["seconds"]["unscaled"] = {"16": [0.05], "8": [0.02]}
    results["runs"]["unscaled"]["8"]["after"] |= {"variance": 36123.0}
    cost, of_runs = ([[cell.strip() for cell in line.strip("|").split("|")] for line in each.splitlines()] for each in
                     attention_functions.tables(results).split("\n\n"))  # fmt: skip
    assert cost[0] == ["function", "ms, n = 8", "ms, n = 16", "MiB, n = 8", "MiB, n = 16"]
    assert cost[1] == ["---", *["---:"] * 4] and of_runs[1] == ["---", "---", *["---:"] * 7]
    assert cost[2:] == [
        ["additive", "8", "16", "72", "144"],
        ["scaled", "8", "16", "8", "16"],
        ["unscaled", "20", "50", "8", "16"],
    ]
    assert [row[:2] for row in of_runs[2:]] == [[d_k, function] for d_k in ("4", "8") for function in FUNCTIONS]
    assert of_runs[0][2:4] == ["variance, first", "variance, last"] and of_runs[0][-1] == "perplexity"
    assert of_runs[2][2:] == ["2", "12", "0.2", "0.0667", "0.1", "0.05", "8.25"] and of_runs[-1][3] == "36,100"
    assert [row[-1] for row in of_runs[2:]] == ["8.25", "9.25", "10.25"] * 2
    assert all(len(row) == len(table[0]) for table in (cost, of_runs) for row in table)
    picture = attention_functions.picture(results)
    (legend,) = picture.legends
    both = [f"{function}, {when}" for function in FUNCTIONS for when in ("untrained", "trained")]
    assert [text.get_text() for text in legend.get_texts()] == [*both, "d_k: footnote 4"]
    assert [axes.get_yscale() for axes in picture.axes] == ["log", "linear", "linear", "linear", "log", "log"]
    panels = [[list(line.get_ydata()) for line in axes.lines] for axes in picture.axes]
    assert panels[0] == [*[[2, 2], [12, 24]] * 2, [2, 2], [12, 36123], [4, 8]], "and the line of footnote 4"
    assert panels[2][1] == pytest.approx([1 / 20, 1 / 36]) and panels[3] == [[8.25] * 2, [9.25] * 2, [10.25] * 2]
    assert panels[4] == [*[pytest.approx([16, 8])] * 2, pytest.approx([50, 20])]
    assert panels[5] == [[144, 72], [16, 8], [16, 8]]


def test_lengths_that_were_not_measured_of_all_functions_are_left_out_of_the_table(stand_ins, tmp_path):
    """Story: after a command that was stopped while it measured, one with fewer lengths ended with a KeyError."""
    results = measured(tmp_path, 4)
    results["memory"]["additive"]["32"] = 2**20
    for function in FUNCTIONS:
        results["memory"][function]["64"] = 2**20
    (tmp_path / "attention_functions.json").write_text(json.dumps(results))
    head = attention_functions.tables(measured(tmp_path, 4)).splitlines()[0]
    shown = [cell.strip() for cell in head.strip("|").split("|")][1:]
    assert shown == ["ms, n = 8", "ms, n = 16", "MiB, n = 8", "MiB, n = 16"]


def test_exponents_are_fitted_from_128_on_and_what_could_not_be_measured_is_not_drawn(stand_ins, tmp_path):
    results = measured(tmp_path, 4)
    results["memory"] = dict.fromkeys(FUNCTIONS, {"64": 0, "127": 1, "128": 2**20, "256": 4 * 2**20})
    memory = attention_functions.picture(results).axes[5]
    assert [list(line.get_ydata()) for line in memory.lines] == [[2**-20, 1, 4]] * 3
    labels = [text.get_text() for text in memory.get_legend().get_texts()]
    assert labels == [f"{function}: n^2.00" for function in FUNCTIONS]


@pytest.mark.parametrize(("number", "read", "longest"), [(3, [0, 1, 2], 90), (250, list(range(0, 200, 2)), 2)])
def test_a_run_is_measured_with_its_first_weights_and_its_last(monkeypatch, tmp_path, number, read, longest):
    """Story: after its training, a run ended at a sentence longer than a micro-batch of one row.

    On at most 100 of the validation pairs, of all lengths: every second one of 250. The seed decides on the first
    weights.
    """
    given, measured = [], []
    rows = np.array([[4 + row, 3, 0] for row in range(number)], "int32")

    def batches(folder, **options):
        given.append((folder, options))
        return tf.data.Dataset.from_tensor_slices({"source": rows[:, None], "target": rows[:, None, ::-1]})

    def load(folder, which, model):
        given.append((folder, which))
        model.set_weights([1 + weight for weight in model.get_weights()])

    def of_model(model, pairs):
        measured.append((model.get_weights(), [tuple(ids.tolist() for ids in pair) for pair in pairs]))
        return {"perplexity": len(measured)}

    monkeypatch.setattr(
        attention_functions.run, "train", lambda *arguments, **options: given.append((*arguments, options))
    )
    monkeypatch.setattr(attention_functions.batching, "batches", batches)
    info = {"columns": {"source": True, "target": True}, "source_longest": longest, "target_longest": 2}
    monkeypatch.setattr(attention_functions.shards, "read_info", {tmp_path / "data/valid": info}.get)
    monkeypatch.setattr(attention_functions.checkpoint, "load", load)
    monkeypatch.setattr(attention_functions, "of_model", of_model)
    model = ModelConfig(9, encoder_layers=1, decoder_layers=1, d_model=4, d_ff=4, num_heads=1, d_k=2, d_v=2)
    options = run_options.Options(model, TrainConfig(seed=3, micro_batch_tokens=77))
    asked = dataclasses.replace(options, model=dataclasses.replace(model, vocab_size=0))  # The text decides it.
    monkeypatch.setattr(attention_functions.SavedRun, "open", {tmp_path: SimpleNamespace(options=options)}.get)
    found = attention_functions._figures_of_run(tmp_path, asked, "all", "quiet")
    assert found.pop("options") == series.determining(options), "with the size that the text decided"
    assert found == {"before": {"perplexity": 1}, "after": {"perplexity": 2}}
    reading = {"batch_tokens": max(77, longest), "seed": 0, "epochs": 1}
    trained = (Start.of(tmp_path, asked), {"strategy": "all", "quiet": "quiet"})
    assert given == [trained, (options.data_folder(tmp_path) / "valid", reading), (tmp_path, "latest")]
    keras.utils.set_random_seed(3)
    first = Transformer(model).get_weights()
    for extra, (weights, pairs) in enumerate(measured):
        assert pairs == [([4 + row, 3], [3, 4 + row]) for row in read]
        for ours, expected in zip(weights, first, strict=True):
            np.testing.assert_allclose(ours, extra + expected, rtol=1e-6)


def program(tmp_path, *arguments: str) -> subprocess.CompletedProcess:
    return programs.tool("attention_functions", f"--output_dir={tmp_path}/out", *arguments, cwd=tmp_path)


@pytest.mark.parametrize(("arguments", "message"), [
    (["--widths=8,x"], "Expected --widths to be positive numbers. Received: 8,x."),
    (["--lengths=0"], "Expected --lengths to be positive numbers. Received: 0."),
    (["--widths=24", "--d_model=64"], "--widths must divide --d_model=64. Received: 24."),
    (["--attention=additive"], "This program sets attention, num_heads, d_k, d_v. Leave out --attention."),
    ([], "There is no prepared data in"),
], ids=str)  # fmt: skip
def test_wrong_flags_are_refused_in_one_sentence(tmp_path, arguments, message):
    result = program(tmp_path, *arguments)
    assert result.returncode == 1 and message in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("example", re.findall(r"^python tools/.*(?:\n    .*)*", PROGRAM.read_text(), re.MULTILINE))
def test_the_examples_of_its_help_have_options_that_a_run_can_start_with(tmp_path, example):
    """Story: their --train_steps was less than the cooldown of the flagfile. Here a missing TensorFlow ends what has
    passed the checks.
    """
    flags = example.replace("\\", "").split()[2:]
    assert flags[0] == "--flagfile=quickstart"
    result = programs.without_tensorflow("attention_functions", *flags, cwd=tmp_path, timeout=60)
    assert re.search("ModuleNotFoundError: import of (keras|tensorflow) halted", result.stderr), result.stderr


@pytest.mark.slow
def test_the_program_trains_measures_and_draws(tmp_path):
    """And scores grow with d_k without the scale, as footnote 4 says."""
    flags = (
        "--dataset=builtin --builtin_pairs=500 --vocab_size=400 --d_model=16 --d_ff=16 --encoder_layers=1 "
        "--decoder_layers=1 --train_steps=2 --batch_tokens=512 --valid_sentences=0 --best_metric=loss --lengths=8,16 "
        "--rounds=1 --widths=4,16"
    )
    result = program(tmp_path, *flags.split())
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("| unscaled |") == 3
    assert (tmp_path / "out/attention_functions.png").read_bytes().startswith(b"\x89PNG")
    results = json.loads((tmp_path / "out/attention_functions.json").read_text())
    found = results["runs"]
    before = {function: [of_run["before"] for of_run in found[function].values()] for function in FUNCTIONS}
    assert before["unscaled"][1]["variance"] > 2 * before["unscaled"][0]["variance"]
    assert before["unscaled"][1]["gradient"] < before["scaled"][1]["gradient"]
    assert found["scaled"]["4"]["after"] != found["scaled"]["4"]["before"]
    figures.save(attention_functions.picture(results), tmp_path / "again.png")
