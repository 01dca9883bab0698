"""How cost grows: theory is fitted to measurements, each in processes of its own, and nothing is measured twice."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import programs
import pytest

from benchmarks import growth as growth_program
from benchmarks.growth_experiments import data, decoding, recurrent, training
from benchmarks.growth_experiments.experiment import Experiment, Panel
from benchmarks.growth_experiments.results import fitted, picture, rows, table
from benchmarks.train_peers import ours
from t2t_keras.config import ModelConfig, RnnConfig

ROOT = pathlib.Path(__file__).parent.parent
LINE = Panel("seconds", "Speed", "sentences per second", lambda x: (1, x), "constant + ∝ x", per_second=True)
EXPERIMENT = Experiment("sentences", (1, 2, 4), lambda x: {}, (LINE,), lambda x: 10 * x)
SMALL = ModelConfig(60, encoder_layers=1, decoder_layers=1, d_model=16, d_ff=24, num_heads=2, d_k=8, d_v=8)


def test_multiples_of_the_terms_are_found_from_exact_values():
    assert fitted(LINE, {x: 3 + 0.5 * x for x in (1, 2, 10, 300)}) == pytest.approx([3, 0.5])


def test_the_fit_weighs_relative_errors():
    """With one term, the best multiple c of values y and terms t minimizes the sum of (1 - c t / y)²: c = Σ(t/y) /
    Σ(t/y)².
    """
    panel = dataclasses.replace(LINE, terms=lambda x: (x,))
    shares = [1 / 2, 100 / 300]
    assert fitted(panel, {1: 2.0, 100: 300.0}) == pytest.approx([sum(shares) / sum(share**2 for share in shares)])


def test_no_multiple_is_negative():
    assert fitted(LINE, {x: 2 * x - 0.5 for x in (1, 2, 4, 8)})[0] == 0


def test_a_table_has_the_measured_and_the_expected_speed():
    results = {str(x): {"seconds": 3 + 0.5 * x} for x in (4, 1, 2)}
    speeds = {x: 10 * x / (3 + 0.5 * x) for x in (1, 2, 4)}
    assert rows(EXPERIMENT, results) == [pytest.approx([x, speed, speed]) for x, speed in speeds.items()]
    assert table(EXPERIMENT, results).splitlines() == [
        "| sentences | Speed: sentences per second | expected: constant + ∝ x |",
        "| ---: | ---: | ---: |",
        "| 1 | 2.86 | 2.86 |",
        "| 2 | 5 | 5 |",
        "| 4 | 8 | 8 |",
    ]


@pytest.mark.parametrize("group", growth_program.GROUPS.values(), ids=growth_program.GROUPS)
def test_each_quantity_of_an_experiment_has_its_plot_with_measurements_and_theory(group):
    measured = []
    for each in group.values():
        names = {panel.quantity for panel in each.panels}
        measured.append((each, {str(x): {name: 1.0 + x for name in names} for x in each.values}))
    figure = picture(measured)
    plots = [axes for axes in figure.axes if axes.get_title(loc="left")]
    panels = [(each, panel) for each in group.values() for panel in each.panels]
    for axes, (experiment, panel) in zip(plots, panels, strict=True):
        assert axes.get_title(loc="left") == panel.title and axes.get_xlabel() == experiment.x_label
        expected, points = axes.lines
        assert expected.get_label() == panel.theory and points.get_label() == "measured"
        if panel.per_second:
            unit = [experiment.amount(x) / (1 + x) for x in experiment.values]
        else:
            unit = [(1 + x) / panel.scale for x in experiment.values]
        assert points.get_ydata() == pytest.approx(unit)


def test_a_logarithmic_axis_has_plain_numbers():
    """Story: labels such as $\\mathdefault{6\\times10^{1}}$ hid the plots."""
    experiment = Experiment("x", (1, 10), lambda x: {}, (Panel("seconds", "Time", "seconds", lambda x: (x,), "∝ x"),))
    figure = picture([(experiment, {"1": {"seconds": 0.6}, "10": {"seconds": 70.0}})])
    figure.draw_without_rendering()
    labels = [label.get_text() for which in ("major", "minor") for label in figure.axes[0].get_yticklabels(which=which)]
    assert {"0.5", "1", "50"} <= set(labels) and not any("$" in label for label in labels)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("network", "model", "options"),
    [("Transformer", SMALL, {}), ("Rnn", RnnConfig(60, d_model=8), {"architecture": "rnn", "dtype": "float32"})],
)
def test_updates_of_the_product_are_measured(monkeypatch, network, model, options):
    made, networks, dtypes, start_run = [], [], [], ours.start_run

    def recorded(*arguments):
        strategy, model, batches, train_step = start_run(*arguments)
        networks.append(type(model).__name__)
        dtypes.append(model.compute_dtype)

        def counted(batch, scale):
            made.append(batch["target"].shape)
            return train_step(batch, scale)

        return strategy, model, batches, counted

    monkeypatch.setattr(ours, "start_run", recorded)
    found = training.train(model, tokens=64, length=8, micro_batch_tokens=32, **options)
    assert made == [(2, 4, 8)] * (training.WARM_UP + training.UPDATES)
    assert found.keys() == {"seconds", "bytes"} and 0 < found["seconds"] < 10
    assert (networks, dtypes) == ([network], [options.get("dtype", "bfloat16")])


@pytest.mark.medium
@pytest.mark.parametrize(
    ("experiment", "measure"), [("pairs", lambda: data.prepare(500)), ("checkpoint", lambda: data.resume(64))]
)
def test_a_measurement_has_the_quantities_of_the_plots(experiment, measure):
    found = measure()
    assert found.keys() >= {panel.quantity for panel in data.EXPERIMENTS[experiment].panels}
    assert all(quantity > 0 for quantity in found.values())


def test_the_recurrent_translator_and_the_transformer_are_those_of_multi30k():
    """Beside the flags of data and of training, the flagfiles have these sizes."""
    models = {"multi30k_en_de_rnn": recurrent.RECURRENT_MODEL, "multi30k_en_de": recurrent.TRANSFORMER_MODEL}
    for name, model in models.items():
        lines = (ROOT / f"configs/{name}.flags").read_text(encoding="utf-8").splitlines()
        given = dict(line.removeprefix("--").split("=") for line in lines if line.startswith("--"))
        fields = {key: value.lower() for key, value in given.items() if hasattr(model, key)}
        assert len(fields) > 6 and fields == {key: str(getattr(model, key)).lower() for key in fields}


def test_base_is_one_of_the_widths():
    assert training.of_width(512) == training.BASE


def growth(*arguments) -> subprocess.CompletedProcess:
    program = [sys.executable, str(ROOT / "benchmarks/growth.py"), *map(str, arguments)]
    return programs.run(program, modules=programs.WITHOUT_TENSORFLOW, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.medium
def test_what_a_file_has_is_not_measured_again(tmp_path):
    file = tmp_path / "growth.json"
    beams = {str(x): {"seconds": 1.0 + x} for x in decoding.EXPERIMENTS["beam"].values}
    file.write_text(json.dumps({"machine": "an abacus", "beam": beams}), encoding="utf-8")
    result = growth("--experiments=beam", f"--json={file}", f"--output={tmp_path / 'pictures'}")
    assert result.returncode == 0, result.stderr
    assert growth("--experiments=beam,batch", f"--json={file}").returncode == 1, (
        "no machine continues the file of another"
    )
    assert "an abacus" in result.stdout and "| 16 | 0.941 | 0.941 |" in result.stdout
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["growth_decoding.png"]
    result = growth("--experiments=beams")
    assert result.returncode and "Received: beams" in result.stderr


@pytest.mark.slow
def test_a_measurement_runs_in_a_process_of_its_own_and_several_add_their_memory():
    code = """if True:
        from benchmarks import growth
        import json
        print(json.dumps([growth.measure("checkpoint", 128), growth.combined([{"seconds": 1, "bytes": 2}] * 2)]))"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    checkpoint, combined = json.loads(result.stdout.splitlines()[-1])
    assert checkpoint["file_bytes"] == pytest.approx(12 * training.of_width(128).num_weights, rel=0.01)
    assert combined == {"seconds": 1, "bytes": 4}
