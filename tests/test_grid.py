"""Grids of variants and seeds: runs are trained and scored once, and the table has means, their noise and
differences.
"""

import contextlib
import csv
import dataclasses
import io
import json
import math
import pathlib
import re
import shutil
import subprocess
import time
import types

import numpy as np
import programs
import pytest
from pretended_runs import PretendedRuns

from t2t_keras.config import DataConfig, DecodeConfig, ModelConfig, TrainConfig
from t2t_keras.data import prepare
from t2t_keras.experiments import grid, grid_report, series
from t2t_keras.experiments.grid import Scoring
from t2t_keras.experiments.grid_report import Result
from t2t_keras.runs import run_options
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system import files
from t2t_keras.training import run
from t2t_keras.training.interruption import StoppedError
from t2t_keras.training.state import TrainState

ROOT = pathlib.Path(__file__).parent.parent
# BLEU on the validation set and on a test set.
BLEU = {
    "base": {1: (40.0, 30.0), 2: (41.0, 32.0)},
    "b": {1: (40.7, 31.5), 2: (41.1, 32.5)},
    "a": {1: (43.0, 33.0), 2: (43.4, 34.0)},
}


def results(rows=BLEU) -> list[Result]:
    """One for each seed of rows, the second seed first."""
    scoring, found = {"checkpoint": "ema", "search": {"beam_size": 5, "alpha": 1.25}}, []
    for row, seeds in rows.items():
        changes = {} if row == "base" else {"dropout": 0.3, "parent": f"my {row}"}
        for seed, both in sorted(seeds.items(), reverse=True):
            scores = {
                name: {"bleu": bleu, "chrf": bleu + 20, "perplexity": bleu / 8}
                for name, bleu in zip(("valid", "news"), both, strict=True)
            }
            figures = seed, 100 * seed, 1234567, 3600.0 * seed, 5e9, math.nan
            others = {"signature": "nrefs:1|case:lc", "options": {}, "scoring": scoring}
            found.append(Result(row, changes, *figures, scores=scores, **others))
    return found


def cells(groups: dict) -> list[list[str]]:
    lines = [line for line in grid_report.as_markdown(groups).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_has_means_deviations_and_differences_from_base_best_row_first():
    header, _, base, a, b = cells(grid_report.grouped(results()))
    assert header[:6] == ["row", "changes", "seeds", "valid: BLEU", "news: BLEU", "difference from base"]
    # The deviation of 40 and 41 is 1/√2, that of 30 and 32 is √2. The pooled variance is (0.5 + 0.08 + 0.08) / 3 =
    # 0.22, the error √0.22 of two means of two, and t 3.18.
    assert base == ["base", "–", "1, 2", "40.5 ± 0.7", "31.0 ± 1.4", "", "5.06 ± 0.09", "1,234,567", "150", "1.50"]
    assert a[:6] == ["a", "`--dropout=0.3 --parent='my a'`", "1, 2", "43.2 ± 0.3", "33.5 ± 0.7", "**+2.7 ± 0.5**"]
    assert b[5] == "+0.4 ± 0.5"
    text = grid_report.as_markdown(grid_report.grouped(results()))
    assert "sacreBLEU (nrefs:1|case:lc)" in text and "--checkpoint=ema with beam 5 and α 1.25" in text


def test_one_seed_has_no_deviation_and_no_error_and_rows_without_base_no_difference():
    _, _, base, a = cells(grid_report.grouped(results({"base": {3: (40.0, 30.0)}, "a": {3: (39.0, 31.0)}})))
    assert (base[2:5], a[3:6]) == (["3", "40.0", "30.0"], ["39.0", "31.0", "-1.0"])
    assert cells(grid_report.grouped(results({"a": {3: (39.0, 31.0)}})))[2][5] == ""


@pytest.mark.parametrize(("perplexities", "expected"), [
    ([math.inf, 2.5], "inf"), ([math.inf, math.inf], "inf"), ([math.nan, 2.5], "nan"), ([2.0, 3.0], "2.50 ± 0.71"),
])  # fmt: skip
def test_a_row_whose_perplexity_is_infinite_has_no_deviation(perplexities, expected):
    """Story: two seeds of a row that diverged ended the grid, and each later start of it, with a traceback."""
    found = results({"a": BLEU["a"]})
    for result, perplexity in zip(found, perplexities, strict=True):
        result.scores["valid"]["perplexity"] = perplexity
    assert cells(grid_report.grouped(found))[2][6] == expected


def test_the_noise_of_the_seeds_is_pooled_over_rows_of_any_number():
    noise = grid_report.Noise.of([[1.0, 3.0], [5.0, 6.0, 10.0], [7.0]])
    assert (noise.variance, noise.degrees) == (pytest.approx((2 + 14) / 3), 3)
    assert grid_report.Noise.of([[7.0], [8.0]]) == grid_report.Noise(0.0, 0)


@pytest.mark.parametrize(
    ("values", "of_base", "expected"),
    [
        ([38.0, 38.2], [40.0, 40.2], "**-2.0 ± 0.3**"),
        ([41.0], [40.0, 40.2], "**+0.9 ± 0.4**"),
        ([40.74], [40.0], "+0.7 ± 0.4"),  # 0.74 / (0.3 √2) = 1.74.
        ([40.97], [40.0], "**+1.0 ± 0.4**"),  # 2.29.
        ([40.0, 40.2], [40.0, 40.2], "+0.0 ± 0.3"),
    ],
)
def test_a_difference_is_bold_where_the_t_test_rejects_that_the_rows_are_alike(values, of_base, expected):
    """11 degrees of freedom: 2.2."""
    assert grid_report.Noise(0.09, 11).difference(values, of_base) == expected


def within(limit: float, degrees: int) -> float:
    """The probability that Student's t is at most so large, of either sign: the integral of its density."""
    density = math.gamma((degrees + 1) / 2) / math.sqrt(degrees * math.pi) / math.gamma(degrees / 2)
    t = np.linspace(0, limit, 201)
    return 2 * float(np.trapezoid(density * (1 + t**2 / degrees) ** (-(degrees + 1) / 2), t))


def test_few_seeds_need_a_larger_difference():
    """Twice the variance of 0.5 is the square of the standard error, of one value each: 1."""
    for degrees in range(1, 11):
        noise = grid_report.Noise(0.5, degrees)
        limit = next(each for each in np.arange(2.2, 13, 0.001) if within(each, degrees) > 0.95)
        assert noise.difference([limit + 0.002], [0.0]).startswith("**")
        assert not noise.difference([limit - 0.002], [0.0]).startswith("**")
    assert grid_report.Noise(0.5, 50).difference([2.229], [0.0]) == "**+2.2 ± 1.0**"
    assert grid_report.Noise(0.5, 50).difference([2.228], [0.0]) == "+2.2 ± 1.0", "as large as the limit"
    assert grid_report.Noise(0.0, 2).difference([40.04], [40.0]) == "+0.0 ± 0.0"


def test_a_bar_in_an_option_is_no_cell_of_the_table():
    found = results({"base": {1: (40.0, 30.0)}, "a": {1: (39.0, 31.0)}})
    found[1] = dataclasses.replace(found[1], changes={"keep_patterns": "/a|b/"})
    assert r"| `--keep_patterns='/a\|b/'` |" in grid_report.as_markdown(grid_report.grouped(found))


def test_the_csv_file_has_a_line_for_each_run_with_all_scores():
    rows = list(csv.DictReader(io.StringIO(grid_report.as_csv(grid_report.grouped(results())))))
    assert [(row["row"], row["seed"]) for row in rows] == [(row, seed) for row in ("base", "a", "b") for seed in "12"]
    expected = {"changes": "--dropout=0.3 --parent='my a'", "updates": "200", "parameters": "1234567"}
    expected |= {"seconds": "7200.0", "flops": "5000000000.0", "signature": "nrefs:1|case:lc"}
    assert expected.items() <= rows[3].items()
    assert [rows[3][f"valid_{metric}"] for metric in ("bleu", "chrf", "perplexity")] == ["43.4", "63.4", "5.425"]
    assert [rows[3][f"news_{metric}"] for metric in ("bleu", "chrf", "perplexity")] == ["34.0", "54.0", "4.25"]


def test_the_picture_has_a_point_for_each_run_and_a_line_for_each_mean():
    valid, news = grid_report.picture(grid_report.grouped(results())).axes
    assert (valid.get_title(), news.get_title()) == ("valid", "news")
    assert [label.get_text() for label in valid.get_yticklabels()] == ["base", "a", "b"]
    lines = {tuple(line.get_xdata()): list(line.get_ydata()) for line in news.lines}
    assert lines[33.0, 34.0] == [1, 1] and lines[31.5, 32.5] == [2, 2] and lines[(33.5,)] == [1]
    assert lines[31.0, 31.0] == [0, 1]  # The mean of base, over the height of the panel.


@pytest.fixture
def trained(monkeypatch):
    def evaluate(folder, sources, references, **options):
        row, seed = folder.parent.name, int(folder.name.removeprefix("seed"))
        bleu = BLEU[row][seed][0 if sources == ["valid text"] else 1] + options["lowercase"]
        signature = f"tok:{options['tokenize']}"
        return [], {"bleu": bleu, "chrf": 50.0, "perplexity": 5.0, "signature": signature, "loss": 1.0}

    speeds = {"utilization/target_tokens_per_second": {1: 5.0, 2: 100.0, 3: 7.0}}
    monkeypatch.setattr(grid, "read_scalars", lambda logs: speeds if logs.name == "logs" else {})
    monkeypatch.setattr(grid.prepare, "read_text", lambda data, split: ([f"{split} text"], ["ref"]))
    name_of = lambda folder: f"{folder.parent.name}/{folder.name}"  # noqa: E731
    return PretendedRuns(monkeypatch, evaluate, name_of, seconds=lambda name: 60.0, flops=lambda name: 7.0)


ROWS = {"base": {}, "a": {"dropout": 0.3}}
RESULT = "grid.json"
SCORING = Scoring(DecodeConfig(alpha=1.5), {"news": (["a b"], ["c d"])}, "best", False, "none")


def runs(*seeds: int, **changed) -> dict[str, run_options.Options]:
    of_training = {field.name for field in dataclasses.fields(TrainConfig)}
    of_models = {name: changed.pop(name) for name in list(changed) if name not in of_training}
    models = {"base": ModelConfig(**of_models), "a": ModelConfig(dropout=0.3, **of_models)}
    trains = {seed: TrainConfig(**{"train_steps": 10, "seed": seed, **changed}) for seed in seeds}
    data = DataConfig(dataset="builtin")
    return {
        f"{row}/seed{seed}": run_options.Options(model=model, train=train, data=data)
        for seed, train in trains.items()
        for row, model in models.items()
    }


@contextlib.contextmanager
def quietly():
    yield


def train(output_dir, *seeds, scoring=SCORING, **options) -> list[Result]:
    return list(grid.train(ROWS, runs(*seeds, **options), output_dir, scoring, strategy="all", quiet=quietly))


def train_base(output_dir, options=None, scoring=SCORING) -> list[Result]:
    """The row alone, with its second seed."""
    options = {"base/seed2": options or runs(2)["base/seed2"]}
    return list(grid.train({"base": {}}, options, output_dir, scoring, strategy="all"))


def test_each_run_is_trained_and_scored_once_and_its_result_has_all_sets(tmp_path, trained):
    trained.stop = "base/seed2"
    with pytest.raises(StoppedError):
        train(tmp_path, 1, 2)
    trained.stop = None
    found = train(tmp_path, 1, 2)
    assert trained == ["base/seed1", "a/seed1", "base/seed2", "a/seed2"] and set(trained.given) == {("all", quietly)}
    scored = [(name, checkpoint, search["alpha"]) for name, checkpoint, search in trained.scored[2:]]
    assert scored == [("base/seed2", "best", 1.5), ("a/seed2", "best", 1.5)]
    assert [(each.row, each.seed, each.changes) for each in found] == [("base", 2, {}), ("a", 2, {"dropout": 0.3})]
    result = grid.read_results(tmp_path)["a/seed2"]
    assert result == found[1]
    assert result.scores == {
        name: {"bleu": bleu, "chrf": 50.0, "perplexity": 5.0}
        for name, bleu in zip(("valid", "news"), BLEU["a"][2], strict=True)
    }
    figures = result.updates, result.seconds, result.flops, result.parameters
    assert figures == (10, 60.0, 7.0, ModelConfig().num_weights)
    assert result.signature == "tok:none" and result.options["dropout"] == 0.3 and result.options["seed"] == 2
    assert result.target_tokens_per_second == 7.0, "the median"
    assert train(tmp_path, 1, 2) == []


def test_where_all_runs_fail_no_table_is_spoken_of(tmp_path, trained):
    trained.fail = "base/seed2"
    said = "The updates of base/seed2 were not finite; see the messages above. Lower the learning rate"
    with pytest.raises(ValueError, match=said):
        train_base(tmp_path)


@pytest.mark.parametrize(
    "changed",
    [{"checkpoint": "average"}, {"lowercase": True}, {"tokenize": "13a"}, {"search": DecodeConfig()}, {"tests": {}}]
    + [{"tests": {"news": (["a b"], ["c e"])}}, {"tests": {"news": (["a b"], ["c d"]), "talks": (["e"], ["f"])}}],
    ids=str,
)
def test_runs_that_were_scored_in_another_way_are_scored_again_and_do_not_mix_in_the_table(
    tmp_path, trained, messages, changed
):
    train(tmp_path, 1)
    other = dataclasses.replace(SCORING, **changed)
    again = {name: options for name, options in runs(1).items() if name == "base/seed1"}
    assert [result.row for result in grid.train({"base": {}}, again, tmp_path, other, strategy="all")] == ["base"]
    result = grid.read_results(tmp_path)["base/seed1"]
    assert result.scoring == other.described() and [*result.scores] == ["valid", *other.tests]
    assert grid.write(tmp_path, other) == ["grid.md", "grid.csv", "grid.png"]
    assert [row["row"] for row in csv.DictReader((tmp_path / "grid.csv").open())] == ["base"]
    [message] = [message for message in messages if "leaves out" in message]
    assert "leaves out a/seed1, scored" in message


def test_the_table_never_mixes_results_of_this_command_with_those_before(tmp_path, trained):
    """Story: between two runs of 20 updates the table had the mean of 20 and 10."""
    train(tmp_path, 1, 2)
    tables = []
    for _ in grid.train(ROWS, runs(1, 2, train_steps=20), tmp_path, SCORING, strategy="all"):
        grid.write(tmp_path, SCORING)
        tables.append([row["updates"] for row in csv.DictReader((tmp_path / "grid.csv").open())])
    assert tables == [["20"] * number for number in (1, 2, 3, 4)]


def test_no_run_is_left_out_with_a_warning_that_is_scored_again_next(tmp_path, trained, messages):
    train(tmp_path, 1)
    assert len(train(tmp_path, 1, scoring=dataclasses.replace(SCORING, lowercase=True))) == 2
    assert not any("leaves out" in message for message in messages)


def test_further_seeds_with_another_number_of_builtin_pairs_are_refused(tmp_path, trained):
    train(tmp_path, 1)
    fewer = dataclasses.replace(runs(2)["base/seed2"], data=DataConfig(dataset="builtin", builtin_pairs=77))
    with pytest.raises(ValueError, match="Received: builtin_pairs=77 "):
        train_base(tmp_path, fewer)


def test_the_table_has_all_rows_and_seeds_of_the_folder(tmp_path, trained):
    assert grid.write(tmp_path, SCORING) == []
    for seed in (2, 1):
        train(tmp_path, seed)
    grid.write(tmp_path, SCORING)
    rows = [(row["row"], row["seed"], row["news_bleu"]) for row in csv.DictReader((tmp_path / "grid.csv").open())]
    assert rows == [("base", "1", "30.0"), ("base", "2", "32.0"), ("a", "1", "33.0"), ("a", "2", "34.0")]


@pytest.mark.parametrize(
    "changed",
    [{"r_drop": 1.0}, {"d_ff": 8}, {"warmup_steps": 7}, {"bpe_dropout": 0.1}, {"augment": "upper:0.1"}]
    + [{"ema_decay": 0.9}, {"freeze": "encoder"}, {"batch_tokens": 9}, {"dtype": "bfloat16"}]
    + [{"checkpoint_steps": 3}, {"checkpoint_minutes": 3.0}, {"keep_checkpoints": 2}, {"train_steps": 5}],
    ids=str,
)
def test_a_result_of_other_options_is_refused(tmp_path, trained, changed):
    train(tmp_path, 1)
    with pytest.raises(ValueError, match=f"trained with. Received: {next(iter(changed))}=.* Give another `output_dir`"):
        train(tmp_path, 1, **changed)
    assert len(trained) == 2


def test_further_seeds_of_a_row_with_a_length_of_its_own_join_those_before(tmp_path, trained):
    """Its runs have neither the updates nor the epochs of the others."""
    base = runs(1, 2)

    def of_row(seed: int) -> run_options.Options:
        train = dataclasses.replace(base[f"a/seed{seed}"].train, epochs=2.0, train_steps=340)
        return dataclasses.replace(base[f"a/seed{seed}"], train=train)

    for seed in (1, 2):
        chosen = {f"base/seed{seed}": base[f"base/seed{seed}"], f"a/seed{seed}": of_row(seed)}
        rows = {"base": {}, "a": {"dropout": 0.3, "epochs": 2.0}}
        assert len(list(grid.train(rows, chosen, tmp_path, SCORING, strategy="all", quiet=quietly))) == 2


@pytest.mark.parametrize("changed", [{"d_ff": 8}, {"warmup_steps": 7}, {"train_steps": 20}], ids=str)
def test_further_seeds_with_other_options_are_refused(tmp_path, trained, changed):
    """Story: the second command had lost a flag, and the table had the mean of two different models."""
    train(tmp_path, 1)
    with pytest.raises(ValueError, match=f"Received: {next(iter(changed))}=.* Give another `output_dir`"):
        train_base(tmp_path, runs(2, **changed)["base/seed2"])
    assert len(trained) == 2


def test_a_row_keeps_its_options(tmp_path, trained):
    train(tmp_path, 1)
    other = {"base/seed2": runs(2)["base/seed2"], "a/seed2": runs(2)["a/seed2"]}
    with pytest.raises(ValueError, match=r"Received: no options for a"):
        list(grid.train({"base": {}, "a": {}}, {"base/seed2": other["base/seed2"]}, tmp_path, SCORING, strategy="all"))
    with pytest.raises(ValueError, match=r"--r_drop=5 for a \(.*a/seed1: --dropout=0.3\). Give the row another name"):
        list(grid.train({"base": {}, "a": {"r_drop": 5}}, other, tmp_path, SCORING, strategy="all"))
    assert len(train_base(tmp_path)) == 1


def test_an_older_result_may_have_an_option_that_no_longer_counts(tmp_path, trained):
    train(tmp_path, 1)
    path = tmp_path / "base/seed1" / RESULT
    result = json.loads(path.read_text())
    result["options"]["damaged_records"] = "stop"
    path.write_text(json.dumps(result))
    assert [result.seed for result in train_base(tmp_path)] == [2]


def test_runs_may_be_named_in_any_order(tmp_path, trained):
    """What other runs are compared with is base, not the first row."""
    train(tmp_path, 1)
    again = dict(reversed(runs(2).items()))
    assert [result.row for result in grid.train(ROWS, again, tmp_path, SCORING, strategy="all")] == ["a", "base"]


@pytest.mark.parametrize("origin", ["parent", "encoder_from"])
def test_a_row_that_starts_from_another_run_has_the_options_of_that_run(tmp_path, trained, origin):
    train(tmp_path, 1)
    path = tmp_path / "a/seed1" / RESULT
    result = grid.read_results(tmp_path)["a/seed1"]
    changed = dataclasses.replace(result, changes={origin: "x"}, options=result.options | {"d_model": 8, origin: "x"})
    path.write_text(json.dumps(dataclasses.asdict(changed)))
    assert len(train_base(tmp_path)) == 1


def test_an_unfinished_run_is_not_resumed_with_other_options(tmp_path, trained):
    train(tmp_path, 1)
    (tmp_path / "base/seed1" / RESULT).unlink()
    (tmp_path / "base/seed1/checkpoints").mkdir()
    (tmp_path / "base/seed1/checkpoints/step-000000005.json").touch()
    with pytest.raises(ValueError, match="Received: warmup_steps=7 .*base/seed1: 4000"):
        train(tmp_path, 1, warmup_steps=7)
    assert [result.updates for result in train(tmp_path, 1, train_steps=10)] == [10]


@pytest.mark.parametrize(("updates", "before"), [(11, 20), (11, 10), (10, 20)])
def test_an_unfinished_run_that_has_more_updates_than_are_wanted_is_refused(tmp_path, trained, updates, before):
    """Story: after --train_steps=2000, stopped at 1,500, came --train_steps=1000, and that run was compared with runs
    of 1,000 updates.
    """
    folder, some = tmp_path / "base/seed1", tmp_path / "some"
    (folder / "checkpoints").mkdir(parents=True)
    some.touch()
    SavedRun.write(folder, runs(1, train_steps=before)["base/seed1"], some, some)
    for step in (9, updates):
        (folder / f"checkpoints/step-{step:09d}.json").touch()
    if updates == 10:
        assert [result.updates for result in train(tmp_path, 1)] == [10, 10]
        return
    expected = f"{folder} has had 11 updates, more than train_steps=10. Give `train_steps` of 11 or more, or another"
    with pytest.raises(ValueError, match=re.escape(f"{expected} `output_dir`.")):
        train(tmp_path, 1)
    assert trained == []


@pytest.mark.parametrize("source_vocab_size", [0, 300])
def test_a_finished_run_of_other_text_is_refused(tmp_path, trained, monkeypatch, source_vocab_size):
    """Story: the figures of the text before were printed."""
    train(tmp_path, 1, source_vocab_size=source_vocab_size)
    calls = []
    monkeypatch.setattr(SavedRun, "check_data", lambda run, *given: calls.append((run.folder, *given)))
    monkeypatch.setattr(series.prepare.Preparation, "check", lambda preparation: calls.append(preparation))
    data = tmp_path / "base/seed1/data"
    data.mkdir()
    (data / "corpus.json").touch()
    own_source = data / files.SOURCE_SUBWORDS if source_vocab_size else None
    if own_source:
        own_source.touch()
    train(tmp_path, 1, source_vocab_size=source_vocab_size)
    options = runs(1, source_vocab_size=source_vocab_size)["base/seed1"]
    folder = tmp_path / "base/seed1"
    prepared = options.data, options.model.vocab_size, 1, data, options.task, source_vocab_size
    expected = folder, data / "subwords.model", data / "train/records.tsv", own_source
    assert calls == [expected, prepare.Preparation(*prepared)]
    (folder / RESULT).unlink()
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/step-000000010.json").touch()
    train(tmp_path, 1, source_vocab_size=source_vocab_size)
    assert len(calls) == 2, "An unfinished run checks its data itself."


@pytest.mark.parametrize("scored_again", [False, True])
def test_the_time_left_is_that_of_runs_without_all_their_updates(tmp_path, trained, messages, scored_again):
    train(tmp_path, 1)
    for name in ("base/seed2", "a/seed2"):
        folder = tmp_path / name / "checkpoints"
        folder.mkdir(parents=True)
        SavedRun.write(folder.parent, runs(2)[name], tmp_path / "a/seed1/some", tmp_path / "a/seed1/some")
        (folder / f"step-{10 if scored_again else 9:09d}.json").touch()
    train(tmp_path, 1, 2)
    [message] = [message for message in messages if message.startswith("Run 3 of 4")]
    assert message == (
        "Run 3 of 4: base/seed2." if scored_again else "Run 3 of 4: base/seed2; about 2 min left for 2 run(s)."
    )


def test_max_hours_counts_from_the_first_run(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(run, "train", lambda start, **others: given.append(others["started"]) or TrainState(step=10))
    monkeypatch.setattr(grid, "load", lambda *args, **options: None)
    monkeypatch.setattr(
        grid, "evaluate", lambda *args, **options: ([], {"bleu": 1.0, "chrf": 1.0, "perplexity": 1.0, "signature": ""})
    )
    monkeypatch.setattr(grid.prepare, "read_text", lambda *args: ([], []))
    monkeypatch.setattr(grid, "write_whole", lambda *args: None)
    of_run = types.SimpleNamespace(options=run_options.Options())
    monkeypatch.setattr(grid.saved_run.SavedRun, "open", lambda folder: of_run)
    before = time.monotonic()
    train(tmp_path, 1)
    assert len(given) == 2 and given[0] == given[1] and before <= given[0] <= time.monotonic()


def test_a_row_that_changes_other_options_with_the_same_effect_is_scored_again(tmp_path, trained):
    train(tmp_path, 1)
    rows = {"base": {}, "a": {"dropout": 0.3, "log_steps": 7}}
    again = list(grid.train(rows, runs(1), tmp_path, SCORING, strategy="all"))
    assert [(result.row, result.changes) for result in again] == [("a", rows["a"])]
    assert [name for name, *_ in trained.scored] == ["base/seed1", "a/seed1", "a/seed1"]


def test_more_updates_train_on_and_options_without_effect_on_the_result_change_nothing(tmp_path, trained):
    train(tmp_path, 1)
    assert train(tmp_path, 1, log_steps=7, device_tflops=0.5, max_hours=3.0, micro_batch_tokens=9) == []
    assert [result.updates for result in train(tmp_path, 1, train_steps=20)] == [20, 20]


def test_no_lengths_are_rounded_by_0_and_by_1(tmp_path, trained):
    train(tmp_path, 1)
    assert train(tmp_path, 1, length_buckets=1.0) == []
    assert [result.seed for result in train(tmp_path, 2, length_buckets=1.0)] == [2, 2]
    with pytest.raises(ValueError, match="length_buckets=1.15"):
        train(tmp_path, 1, length_buckets=1.15)


def test_what_the_text_decides_is_that_of_the_run(tmp_path, trained, monkeypatch):
    """Story: of runs with `vocab_size=0` and `epochs`, as of `flagfile=small`, the table counted no embeddings, and the
    same command again refused them.
    """
    stand_in = run.train

    def train_and_decide(start, **others):
        options = start.options
        model = dataclasses.replace(options.model, vocab_size=400)
        decided = dataclasses.replace(options.train, train_steps=round(3 * options.train.epochs), length_buckets=1.15)
        decided = dataclasses.replace(options, model=model, train=decided)
        return stand_in(types.SimpleNamespace(folder=start.folder, options=decided), **others)

    monkeypatch.setattr(run, "train", train_and_decide)
    asked = {"vocab_size": 0, "epochs": 4.0, "train_steps": 100_000}
    found = train(tmp_path, 1, **asked)
    assert [result.updates for result in found] == [12, 12]
    assert found[0].parameters == ModelConfig(vocab_size=400).num_weights
    assert [found[0].options[name] for name in ("vocab_size", "train_steps")] == [400, 12]
    assert train(tmp_path, 1, **asked) == []
    assert [result.seed for result in train(tmp_path, 1, 2, **asked)] == [2, 2]
    assert [result.updates for result in train(tmp_path, 1, 2, **asked | {"epochs": 5.0})] == [15] * 4
    with pytest.raises(ValueError, match=r"Received: epochs=4.0 \(.*: 5.0\). Give another"):
        train(tmp_path, 1, 2, **asked)
    for row in ("base", "a"):  # Without their results too.
        folder = tmp_path / row / "seed1"
        (folder / RESULT).unlink()
        (folder / "checkpoints").mkdir()
        (folder / "checkpoints/step-000000015.json").touch()
    with pytest.raises(ValueError, match=r"Received: epochs=4.0 \(.*: 5.0\). Give another"):
        train(tmp_path, 1, **asked)


def test_a_result_of_so_many_updates_is_none_of_epochs(tmp_path, trained):
    """Story: the table had the rows before with their updates, and the new ones with as many as the epochs have."""
    train(tmp_path, 1)
    with pytest.raises(ValueError, match=r"Received: epochs=4.0 \(.*: 0.0\). Give another"):
        train(tmp_path, 1, epochs=4.0)


def test_a_copy_of_a_run_is_no_further_seed(tmp_path, trained):
    """Story: it halved the standard error of its row."""
    train(tmp_path, 1)
    shutil.copytree(tmp_path / "a" / "seed1", tmp_path / "a" / "seed1_old")
    with pytest.raises(ValueError, match=r"seed1_old/.* is the result of a with seed 1\. Rename .*/a/seed1_old, or"):
        train(tmp_path, 1)


@pytest.mark.parametrize("content", ["{}", "[]", "{", '{"row": "base"}', None], ids=str)
def test_a_damaged_result_is_named_in_a_sentence(tmp_path, trained, content):
    train(tmp_path, 1)
    path = tmp_path / "a" / "seed1" / RESULT
    path.write_text(content if content is not None else path.read_text().replace('"seed": 1,', '"seed": "1",', 1))
    with pytest.raises(ValueError, match=RESULT):
        train(tmp_path, 1)


def grid_py(*flags: str) -> subprocess.CompletedProcess:
    return programs.tool("grid", *flags, modules=programs.WITHOUT_TENSORFLOW)


@pytest.mark.parametrize(("flags", "message"), [
    (["--row=base --dropout=0.1"], "Expected --row="),
    (["--row=data --dropout=0.1"], "Expected --row="),
    (["--row=grid.md --dropout=0.1"], "from base, data, grid.csv, grid.md, grid.png. Received: --row='grid.md"),
    (["--checkpoint=999"], "--checkpoint must be average, best, latest or ema, which every run has. Received: 999"),
    (["--row=../up --dropout=0.1"], "Expected --row="),
    (["--row=" + "x" * 256], "of at most 255 letters"),  # Story: it was refused when base had been trained.
    (["--row=a --dropout=0.1", "--row=a"], "Expected --row="),
    (["--row=a --dropuot=0.1"], "--row=a: .*dropuot"),
    (["--row=a --dropout=much"], "--row=a: .*dropout"),
    (["--row=a --dropout='0.1"], "--row=a: No closing quotation"),
    (["--row=a 0.1"], "--row=a may change training and the model alone. Received: 0.1"),
    (["--row=a --alpha=1"], "Received: --alpha"),
    (["--row=a --seed=2"], "Received: --seed"),
    (["--row=a --seeds=2"], "Received: --seeds"),
    (["--row=a --num_heads=0"], "num_heads"),
    (["--seed=3"], "Give --seeds in place of --seed=3"),
    (["--seeds=1,x"], "--seeds must be different whole numbers, as in 1,2,3. Received: 1,x"),
    (["--seeds=1,1"], "Received: 1,1"),
    (["--architecture=bert"], "A grid compares models that translate"),
    (["--test_source=a.en"], "Each --test_source needs a --test_target. Received: 1 and 0"),
    (["--test_source=nope.en", "--test_target=nope.de"], "No such file: 'nope.en'"),
    (["--checkpoint=ema", "--row=a --ema_decay=0.99"], "Received: base without it"),
    (["--row=a --embeddings=no.vec"], "no.vec"),
    (["--row=a --parent=no_run"], "no_run"),
    (["--row=a --learning_rate_factor=-1"], "learning_rate_factor=-1"),
    (["--row=a --flagfile=quickstart --num_heads=0"], "num_heads=0"),
    (["--row=a --flagfile=nope"], "nope"),
], ids=str)  # fmt: skip
def test_wrong_rows_seeds_and_tests_are_refused_in_a_line(tmp_path, flags, message):
    result = grid_py("--dataset=builtin", f"--output_dir={tmp_path}/grid", *flags)
    assert result.returncode == 1 and re.search(message, result.stderr) and "Traceback" not in result.stderr, (
        result.stderr
    )
    assert not (tmp_path / "grid").exists()


def test_two_test_sets_of_one_name_are_refused(tmp_path):
    for name in ("news.en", "news.de", "news.fr", "valid.en"):
        (tmp_path / name).write_text("text\n")
    for first, second in (("news.en", "news.fr"), ("valid.en", "news.en")):
        sides = [f"--test_source={tmp_path / name}" for name in (first, second)]
        sides += [f"--test_target={tmp_path}/news.de"] * 2
        result = grid_py("--dataset=builtin", f"--output_dir={tmp_path}/grid", *sides)
        assert result.returncode == 1 and "must differ" in result.stderr


def test_missing_text_is_reported_before_tensorflow_is_imported(tmp_path):
    result = programs.without_tensorflow("grid", f"--output_dir={tmp_path}/grid")
    assert result.returncode == 1 and "--train_source" in result.stderr and not (tmp_path / "grid").exists()


@pytest.mark.slow
def test_the_program_trains_scores_and_compares_variants_and_seeds(tmp_path):
    (tmp_path / "news.en").write_text("a dog\nthe cat\n")
    (tmp_path / "news.de").write_text("ein Hund\ndie Katze\n")
    flags = (
        "--dataset=builtin --builtin_pairs=600 --vocab_size=400 --encoder_layers=1 --decoder_layers=1 --d_model=16 "
        "--d_ff=32 --num_heads=2 --d_k=8 --d_v=8 --train_steps=4 --batch_tokens=400 --valid_steps=4 "
        "--valid_sentences=20 --log_steps=2 --checkpoint_steps=2 --beam_size=2 --seeds=1,2"
    ).split()
    flags += [f"--output_dir={tmp_path}/grid", f"--test_source={tmp_path}/news.en", f"--test_target={tmp_path}/news.de"]
    flags += ["--row=wide --d_model=32", "--row=small_vocabulary --vocab_size=330 --bpe_dropout=0.1"]
    result = grid_py(*flags)
    assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader((tmp_path / "grid/grid.csv").open()))
    assert sorted((row["row"], row["seed"]) for row in rows) == [
        (row, seed) for row in ("base", "small_vocabulary", "wide") for seed in ("1", "2")
    ]
    expected = {"base": (16, 400, 0.0), "wide": (32, 400, 0.0), "small_vocabulary": (16, 330, 0.1)}
    for row in rows:
        folder = tmp_path / "grid" / row["row"] / f"seed{row['seed']}"
        options = SavedRun.open(folder).options
        assert (options.model.d_model, options.model.vocab_size, options.train.bpe_dropout) == expected[row["row"]]
        assert options.train.seed == int(row["seed"]) and int(row["parameters"]) == options.model.num_weights
        assert float(row["valid_perplexity"]) > 1 and float(row["news_perplexity"]) > 1 and float(row["seconds"]) > 0
    assert len({row["valid_perplexity"] for row in rows}) == len(rows)
    assert sorted(path.name for path in (tmp_path / "grid/data").iterdir()) == ["base", "small_vocabulary"]
    again = grid_py(*flags)
    assert again.returncode == 0 and "Options" not in again.stderr
    assert list(csv.DictReader((tmp_path / "grid/grid.csv").open())) == rows


def test_only_these_options_of_training_may_differ_among_the_runs_of_a_table():
    assert vars(TrainConfig()).keys() - series.determining(run_options.Options()).keys() == {
        "attention_images", "damaged_records", "data_service", "deterministic", "device_tflops", "histogram_steps",
        "jit_compile", "log_steps", "max_hours", "max_skipped", "micro_batch_tokens", "micro_batches_at_once",
        "profile_steps", "tf32",
    }  # fmt: skip
