"""Table 1 by hand: exponents of powers, operations and paths of small layers; and measurements are continued."""

import dataclasses
import json
import math
import os
import pathlib
import re
import sys
import types

import programs
import pytest

from t2t_keras.experiments import table1
from t2t_keras.reporting import figures

ROOT = pathlib.Path(__file__).parent.parent


def test_the_fitted_exponent_of_a_power_is_its_exponent():
    points = {str(n): 3e-6 * n**1.7 for n in (64, 512, 1024, 4096)}
    points["64"] = 5.0  # Below the lengths that are fitted.
    points["2048"] = 0.0  # Too little to be measured.
    assert table1.fitted_exponent(points, 512) == pytest.approx(1.7)
    assert math.isnan(table1.fitted_exponent(points, 4096)), "of one length"


@pytest.mark.parametrize(("name", "sequential", "path", "dilated"), [
    ("attention", 2, 1, None), ("restricted", 2, 25, None), ("recurrent", 12, 101, None),
    ("convolutional", 1, 50, 4), ("separable", 2, 50, 4), ("attention_projected", 4, 1, None),
    ("restricted_projected", 4, 25, None),
])  # fmt: skip
def test_sequential_operations_and_path_lengths_are_those_of_the_layers(name, sequential, path, dilated):
    """By hand, for r = 8 and k = 5 and 101 positions: 4 and 2 positions a layer; with dilations, 2 + 10 + 50 + 250."""
    settings = table1.Settings(d=16, heads=2, window=8, kernel=5)
    assert table1.sequential_operations(table1.LAYERS[name], settings, 12) == sequential
    assert table1.path_length(name, settings, 101) == path
    if dilated:
        assert table1.path_length(name, settings, 101, dilated=True) == dilated
        assert table1.path_length(name, dataclasses.replace(settings, kernel=3), 12) == 11


@pytest.mark.parametrize(("name", "weights"), [
    ("attention", 0), ("restricted", 0), ("recurrent", 4 * (2 * 16**2 + 16)), ("convolutional", 3 * 16**2 + 16),
    ("separable", 3 * 16 + 16**2 + 16), ("attention_projected", 4 * 16**2), ("restricted_projected", 4 * 16**2),
])  # fmt: skip
def test_a_layer_maps_n_vectors_to_as_many_of_its_width(name, weights):
    """With the paper's weights: a step returns their gradients and the inputs'. Its graph serves all lengths."""
    traced, layer = [], table1.LAYERS[name]

    def make(settings, length, **options):
        function, shapes = layer.make(settings, length, **options)

        def call(*inputs):
            traced.append(inputs)
            output = function(*inputs)
            assert output.shape.as_list() == inputs[-1].shape.as_list()
            return output

        call.trainable_variables = getattr(function, "trainable_variables", [])
        return call, shapes

    step = table1.step_of(dataclasses.replace(layer, make=make), table1.Settings(d=16, heads=2, window=4, kernel=3))
    inputs = 3 if "projected" not in name and "ttention" in layer.name else 1
    for length in (5, 6):
        gradients = step(length)()
        assert sum(math.prod(gradient.shape) for gradient in gradients) == inputs * length * 16 + weights
    assert len(traced) == 1


def test_a_short_call_is_repeated_for_a_twentieth_of_a_second(monkeypatch):
    """Each call advances the clock."""
    clock = types.SimpleNamespace(now=100.0, calls=0)

    def call(seconds):
        clock.now += seconds
        clock.calls += 1

    monkeypatch.setattr(table1, "time", types.SimpleNamespace(perf_counter=lambda: clock.now))
    for seconds, calls in ((1 / 64, 4), (1.0, 1)):
        clock.calls = 0
        assert (table1.seconds_of(lambda seconds=seconds: call(seconds)), clock.calls) == (seconds, calls)
    ticks = iter([0.0, 1.0, 1.0])  # The computer was busy before the first call.
    monkeypatch.setattr(table1, "time", types.SimpleNamespace(perf_counter=lambda: next(ticks)))
    assert table1.seconds_of(lambda: None) == 1.0


def test_memory_is_measured_in_a_process_that_finds_the_same_packages(monkeypatch):
    program = (
        "import json, os, sys; print('a warning'); print(json.dumps([\"{0}\", os.environ['PYTHONPATH'], "
        "*json.loads(sys.argv[1])]))"
    )
    monkeypatch.setattr(table1, "_WORK", program)
    monkeypatch.setattr(sys, "path", ["", "one", "other"])
    expected = ["table1", f"one{os.pathsep}other", "recurrent", {"d": 8, "heads": 2, "window": 64, "kernel": 3}, [2, 1]]
    assert table1.measure_memory("recurrent", table1.Settings(d=8, heads=2), [2, 1]) == expected
    monkeypatch.setattr(table1, "_WORK", "import sys; sys.exit(1000 * 'x' + 'the end')")
    with pytest.raises(ValueError, match="failed: x{493}the end$"):
        table1.measure_memory("recurrent", table1.Settings(), [2])


@pytest.fixture
def steps(monkeypatch) -> list:
    """What is run and measured, in its order; nothing is computed. Nothing is saved yet."""
    found = []

    def step_of(layer, settings):
        found.append(("graph", layer, settings))
        return lambda length: lambda: found.append((layer, length)) or 0.5

    def measure_memory(name, settings, lengths, module):
        found.append(("memory", name, settings, lengths, module))
        return {str(n): n for n in lengths}

    monkeypatch.setattr(table1, "step_of", step_of)
    monkeypatch.setattr(table1, "seconds_of", lambda call: call())
    monkeypatch.setattr(table1, "measure_memory", measure_memory)
    return found


def test_a_round_visits_all_lengths_and_layers_one_after_the_other(steps, messages):
    results, saved, (a, b) = {}, [], (dataclasses.replace(table1.LAYERS["attention"], name=name) for name in ("A", "B"))
    layers, settings = {"a": a, "b": b}, table1.Settings()
    table1.measure_cost(layers, settings, [16, 32], 2, results, lambda: saved.append(len(steps)), "my_module")
    one_round = [(a, 16), (b, 16), (a, 32), (b, 32)]
    warm = [("graph", a, settings), (a, 8), (a, 16), ("graph", b, settings), (b, 8), (b, 16), (a, 32), (b, 32)]
    assert steps == [*(("memory", name, settings, [16, 32], "my_module") for name in "ab"), *warm, *one_round]
    assert results["seconds"] == {name: {"16": [0.5] * 2, "32": [0.5] * 2} for name in "ab"}
    assert saved == [1, 2, 10, 14], "after each measurement of memory, and each round"
    assert [message[:13] for message in messages] == ["Memory: A …", "Memory: B …", "Time, round 1", "Time, round 2"]
    table1.measure_cost(layers, settings, [16, 32], 2, results, lambda: None, "my_module")
    assert len(steps) == 14 and len(messages) == 4


def test_what_was_counted_is_kept_though_memory_cannot_be_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(table1, "sequential_operations", lambda layer, settings, length: length)
    monkeypatch.setattr(table1, "path_length", lambda name, settings, length, dilated=False: (length, dilated))
    monkeypatch.setattr(table1, "measure_memory", lambda *given: {}["the process failed"])
    settings, file = table1.Settings(d=8, heads=2), tmp_path / "table1.json"
    for given in (file, None):
        with pytest.raises(KeyError, match="the process failed"):
            table1.measure(settings, [8], 1, given)
    results = json.loads(file.read_text())
    assert results["sequential"] == dict.fromkeys(table1.LAYERS, 32)
    assert results["paths"] == {
        name: [[1024, False], *([[1024, True]] if name in ("convolutional", "separable") else [])]
        for name in table1.LAYERS
    }
    monkeypatch.setattr(table1, "sequential_operations", lambda *given: pytest.fail("counted again"))
    with pytest.raises(KeyError, match="the process failed"):
        table1.measure(settings, [8], 1, file)


@pytest.fixture
def measured(monkeypatch) -> list:
    """The shapes of the gradients of each timed call. The nth call takes n milliseconds, and memory n² kB."""
    calls = []

    def seconds_of(call):
        calls.append([gradient.shape for gradient in call()])
        return 0.001 * len(calls)

    monkeypatch.setattr(
        table1, "measure_memory", lambda name, settings, lengths, module: {str(n): 1000 * n**2 for n in lengths}
    )
    monkeypatch.setattr(table1, "seconds_of", seconds_of)
    return calls


@pytest.mark.medium
def test_measurements_are_continued_and_make_a_table_and_a_picture(measured, tmp_path):
    settings, file, number = table1.Settings(d=8, heads=2, window=4), tmp_path / "table1.json", 2 * len(table1.LAYERS)
    first = table1.measure(settings, [8, 16], 1, file)
    assert len(measured) == number
    again = table1.measure(settings, [8, 16, 32], 2, file)
    assert len(measured) == 3 * number, "a second round of two lengths, and two rounds of a third"
    assert all(len(seconds) == 2 for points in again["seconds"].values() for seconds in points.values())
    assert again["seconds"]["attention"]["8"][:1] == first["seconds"]["attention"]["8"]
    head, line, *rows = table1.table(again, 8).splitlines()
    assert len(rows) == len(table1.LAYERS) and {row.count("|") for row in (head, line, *rows)} == {12}
    assert all(" 2.00 | O(" in row for row in rows), "the exponent of the memory"
    figures.save(table1.picture(again, 8), tmp_path / "table1.svg")
    drawn = (tmp_path / "table1.svg").read_text()
    assert all(layer.name in drawn for layer in table1.LAYERS.values()) and "n^2.00" in drawn


def test_the_table_is_in_milliseconds_and_mebibytes_and_so_is_the_picture():
    """The second of three lengths is the one nearest to the first that the exponents are fitted to."""
    layers = dict.fromkeys(table1.LAYERS)
    results = {
        "settings": dataclasses.asdict(table1.Settings(d=8, heads=2, window=4)),
        "seconds": {
            name: {"1024": [0.64, 0.5, 1.5], "64": [0.001, 0.009, 0.0025], "256": [0.03, 0.09, 0.04]} for name in layers
        },
        "memory": {name: {"32": 0, "64": 2**20, "256": 3 * 2**20, "1024": 12 * 2**20} for name in layers},
        "sequential": dict.fromkeys(layers, 4),
        "paths": {name: [7, 3] if name in ("convolutional", "separable") else [5] for name in layers},
    }
    _, _, *rows = table1.table(results, 256).splitlines()
    for (name, layer), row in zip(table1.LAYERS.items(), rows, strict=True):
        path = "3 dilated, 7 not" if name in ("convolutional", "separable") else "5"
        measured = "40 | 640 | 2.00 | 12 | 1.00"
        assert row == (
            f"| {layer.name} | O({layer.complexity}) | {measured} | O({layer.sequential}) | 4 | O({layer.path}) | "
            f"{path} |"
        )
    assert "| 2.5 | 640 |" in table1.table(results, 64)
    assert [*map(table1.milliseconds, (0.00994, 0.00996, 0.0104))] == ["9.9", "10", "10"]
    head, _, row, *_ = (line.split(" | ") for line in table1.table(results, 1024).splitlines())
    assert [row[place] for place, name in enumerate(head) if name == "exponent of n"] == ["", ""], "of one length"
    labels = [line.get_label() for axes in table1.picture(results, 1024).axes for line in axes.lines]
    assert not any("nan" in label or "n^" in label for label in labels)
    time, memory = ([list(line.get_ydata()) for line in axes.lines] for axes in table1.picture(results, 256).axes)
    assert time == [pytest.approx([640, 2.5, 40])] * len(layers) and memory == [[1, 3, 12]] * len(layers)


def test_measurements_of_other_settings_are_not_continued(tmp_path):
    settings = dataclasses.asdict(table1.Settings(d=8, heads=2, window=4))
    (tmp_path / "table1.json").write_text(json.dumps({"settings": settings, "seconds": {}}))
    with pytest.raises(ValueError, match="'window': 2.*Received: .*'window': 4"):
        table1.measure(table1.Settings(d=8, heads=2, window=2), [8], 1, tmp_path / "table1.json")


def test_measurements_of_another_machine_are_not_continued(tmp_path):
    results = table1.read_results(table1.Settings(), None)
    (tmp_path / "table1.json").write_text(json.dumps(results))
    assert table1.read_results(table1.Settings(), tmp_path / "table1.json") == results
    (tmp_path / "table1.json").write_text(json.dumps(results | {"machine": "another, 9 cores"}))
    with pytest.raises(ValueError, match=f"of {re.escape(results['machine'])}. Received: another, 9 cores."):
        table1.read_results(table1.Settings(), tmp_path / "table1.json")


@pytest.mark.medium
@pytest.mark.parametrize(("flag", "message"), [
    ("--lengths=", "Expected --lengths to be positive numbers. Received: none."),
    ("--lengths=8,-5", "Received: 8,-5."), ("--output=x.pdf", "Expected a picture as png or svg. Received: x.pdf."),
    ("--window=1", "--window=1"), ("--output=no_folder/x.png", "no_folder/x.png cannot be written")
])  # fmt: skip
def test_the_program_refuses_what_it_cannot_do_before_it_measures(flag, message):
    result = programs.tool("table1", flag, modules=programs.WITHOUT_TENSORFLOW)
    assert result.returncode == 1 and message in result.stderr and "Traceback" not in result.stderr


def test_the_settings_are_those_of_the_base_model():
    assert str(table1.Settings()) == "d = 512, 8 heads, r = 64, k = 3"


def test_memory_is_the_peak_above_what_the_process_has_before(monkeypatch, capsys):
    """Of each length, in increasing order, after a short one that builds the graph."""
    lengths, peaks = [], iter([1500, 1900, 2600])
    append = lambda layer, settings: lambda length: lambda: lengths.append((layer.name, settings.d, length))  # noqa: E731
    monkeypatch.setattr(table1, "step_of", append)
    monkeypatch.setattr(table1, "resident_memory", lambda: 1000 if len(lengths) == 1 else 0)
    monkeypatch.setattr(table1, "peak_memory", lambda: next(peaks))
    table1.work(json.dumps(["recurrent", {"d": 16, "heads": 2}, [64, 32, 128]]), table1.LAYERS)
    assert json.loads(capsys.readouterr().out) == {"32": 500, "64": 900, "128": 1600}
    assert lengths[0][2] < 32 and lengths[1:] == [("Recurrent (LSTM)", 16, length) for length in (32, 64, 128)]


def test_the_table_has_the_medians_the_exponents_and_the_counts():
    seconds = {str(n): [1e-7 * n**2, 2e-7 * n**2, 9e-7 * n**2] for n in (512, 64, 128)}
    memory = {str(n): 2**20 * n for n in (64, 128, 512)}
    names = list(table1.LAYERS)
    results = {
        "seconds": dict.fromkeys(names, seconds) | {"separable": {str(n): [1e-6 * n] for n in (64, 128, 512)}},
        "memory": dict.fromkeys(names, memory) | {"separable": {str(n): 2**14 * n**2 for n in (64, 128, 512)}},
        "sequential": {name: place + 1 for place, name in enumerate(names)},
        "paths": {name: [1000 + place] for place, name in enumerate(names)} | {"separable": [2000, 11]},
    }
    head, line, *rows = [
        [cell.strip() for cell in row.strip("|").split("|")] for row in table1.table(results, 120).splitlines()
    ]
    assert head[:5] == ["layer", "complexity", "time, n = 128 (ms)", "n = 512 (ms)", "exponent of n"]
    assert head[5:] == [
        "memory, n = 512 (MiB)", "exponent of n", "sequential", "counted, n = 32", "longest path", "counted, n = 1,024",
    ]  # fmt: skip
    assert line == ["---", "---", *["---:"] * 5, "---", "---:", "---", "---:"]
    assert rows[0] == ["Self-attention", "O(n² · d)", "3.3", "52", "2.00", "512", "1.00", "O(1)", "1", "O(1)", "1,000"]
    assert rows[4][2:] == ["0.13", "0.51", "1.00", "4,096", "2.00", "O(1)", "5", "O(log_k n)", "11 dilated, 2,000 not"]


@pytest.mark.parametrize(("wrong", "named"), [({"d": 10, "heads": 4}, "d=10, heads=4"), ({"kernel": 4}, "kernel=4")])
def test_settings_that_no_layer_has_are_refused(wrong, named):
    with pytest.raises(ValueError, match=f"Received: {named}"):
        table1.Settings(**wrong)


@pytest.mark.slow
def test_memory_of_full_attention_grows_with_the_square_and_of_restricted_attention_with_the_length():
    lengths, settings = [512, 1024, 2048], table1.Settings(d=64, heads=8, window=16)
    full, restricted = (table1.measure_memory(name, settings, lengths) for name in ("attention", "restricted"))
    assert 1.7 < table1.fitted_exponent(full, 512) < 2.3
    assert table1.fitted_exponent(restricted, 512) < 1.4
    assert full["2048"] > 5 * restricted["2048"]


@pytest.mark.slow
def test_the_program_prints_a_line_for_each_layer_and_draws_the_picture(tmp_path):
    """Slow: memory is measured in a process for each layer."""
    sizes = ["--d=16", "--heads=2", "--window=8", "--lengths=16,32", "--fit_from=16", "--rounds=1"]
    written = [f"--json={tmp_path}/table1.json", f"--output={tmp_path}/table1.png"]
    result = programs.tool("table1", *sizes, *written, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "d = 16, 2 heads, r = 8, k = 3." in result.stdout
    assert all(f"| {layer.name} | O({layer.complexity}) |" in result.stdout for layer in table1.LAYERS.values())
    assert {path.name for path in tmp_path.iterdir()} == {"table1.json", "table1.png"}
