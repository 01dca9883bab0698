"""Rows of Table 3 are trained, scored as section 6.2 does, and compared with the paper; none is done twice."""

import contextlib
import csv
import dataclasses
import io
import json
import math
import pathlib
import re
import subprocess

import programs
import pytest
import tensorflow as tf
from pretended_runs import PretendedRuns
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from t2t_keras.config import DataConfig, DecodeConfig, ModelConfig, TrainConfig, paper
from t2t_keras.experiments import grid, table3, table3_report
from t2t_keras.experiments.grid_report import VALID, Result
from t2t_keras.runs import run_options
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.training.interruption import StoppedError

RESULT = "table3.json"  # In the folder of a row.


def result_of(row: str, bleu: float, perplexity: float = 9.87) -> Result:
    changes, scores = paper.table_3(row, divide_widths=4), {"bleu": bleu, "chrf": 50.0, "perplexity": perplexity}
    return Result(
        row, changes, 1, 2000, 1234567, 60.0, 1.5e15, 8765.4, {VALID: scores}, "nrefs:1", {}, table3.SCORING.described()
    )


RESULTS = [result_of("base", 30.0), result_of("A1", 29.0, 10.25), result_of("E", 30.5)]


def test_the_markdown_table_has_ours_beside_the_paper_s_and_marks_differences_above_the_noise():
    header, _, base, one_head, learned, *_ = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table3_report.as_markdown(RESULTS).splitlines()
    ]
    assert len(header) == len(base) == len(one_head)
    assert base[:5] == ["base", "–", "9.87", "30.0", ""] and base[5:8] == ["4.92", "25.8", ""]
    assert one_head[:8] == ["A1", "num_heads=1, d_k=512, d_v=512", "10.25", "29.0", "**-1.0**", "5.29", "24.9", "-0.9"]
    assert learned[4:8] == ["+0.5", "4.92", "25.7", "-0.1"], "as large as the noise"
    assert base[8:] == ["1,234,567", "63,045,632", "65", "2,000", "8,765", "1.5e+15"]
    assert "nrefs:1" in table3_report.as_markdown(RESULTS)


def test_a_row_of_other_depth_has_one_n_and_what_is_unknown_is_empty():
    unknown = dataclasses.replace(result_of("C2", 28.0), target_tokens_per_second=math.nan, flops=math.nan)
    row = [cell.strip() for cell in table3_report.as_markdown([unknown]).splitlines()[2].strip("|").split("|")]
    assert row[1] == "N=2" and row[-3:] == ["2,000", "", ""]
    assert row[9] == "33,644,544", "37,000 · 512 + 2 · (12 · 512² + 4 · 512 · 2048 + 2 · (2048 + 512) + 10 · 512)"


def test_rows_without_base_have_no_differences():
    assert "**" not in table3_report.as_markdown(RESULTS[1:])


def test_the_csv_table_has_every_figure_and_the_options_of_the_row():
    rows = list(csv.DictReader(io.StringIO(table3_report.as_csv(RESULTS))))
    assert [row["row"] for row in rows] == ["base", "A1", "E"]
    assert rows[1]["paper_num_heads"] == "1" and rows[1]["paper_d_k"] == "512" and rows[1]["d_k"] == "128"
    assert rows[1]["paper_bleu"] == "24.9" and float(rows[1]["flops"]) == 1.5e15
    assert (
        rows[1]["paper_perplexity"], rows[1]["paper_parameters_in_millions"], rows[0]["paper_parameters_in_millions"],
    ) == ("5.29", "", "65")  # fmt: skip
    assert rows[2]["paper_learned_positions"] == "1024" and rows[2]["paper_parameters_in_millions"] == ""


def test_the_picture_has_our_differences_from_base_above_the_paper_s():
    [axes] = table3_report.picture(RESULTS).axes
    assert [label.get_text().partition(":")[0] for label in axes.get_yticklabels()] == ["A1", "E"]
    ours, theirs = ([bar.get_width() for bar in bars] for bars in axes.containers)
    assert (ours, theirs) == (pytest.approx([-1.0, 0.5]), pytest.approx([-0.9, -0.1]))


@pytest.fixture
def trained(monkeypatch):
    def evaluate(translator, sources, references, **options):
        assert (sources, references) == (["a"], ["b"]) and options == {"lowercase": False, "tokenize": "13a"}
        return [], {"perplexity": 9.0, "bleu": 30.0, "chrf": 50.0, "signature": "nrefs:1"}

    monkeypatch.setattr(grid.prepare, "read_text", lambda folder, split: (["a"], ["b"]) if split == "valid" else None)
    seconds = lambda name: 10800.0 if name == "A1" else 3600.0  # noqa: E731
    return PretendedRuns(monkeypatch, evaluate, lambda folder: folder.name, seconds=seconds)


def options_of(*names: str, **train) -> dict[str, run_options.Options]:
    train = TrainConfig(**{"train_steps": 10, **train})
    return {
        name: run_options.Options(model=paper.model(name), train=train, data=DataConfig(dataset="builtin"))
        for name in names
    }


def test_a_row_has_the_scores_of_its_last_checkpoint_on_the_validation_set_with_the_search_of_section_6_2(
    tmp_path, trained
):
    def quiet():
        quiet.entered += 1
        return contextlib.nullcontext()

    quiet.entered = 0
    options = dataclasses.replace(options_of("base")["base"], decode=DecodeConfig(beam_size=9))
    [result] = table3.train({"base": options}, tmp_path, strategy="all", quiet=quiet)
    assert trained.given == [("all", quiet)] and quiet.entered == 1, "for the scores"
    search = {"beam_size": 4, "alpha": 0.6, "extra_length": 50, "max_input": 1024, "search_rows": 0, "search_cores": 0}
    search |= {"no_repeat_ngram": 0, "diverse_groups": 1, "diversity": 0.5}
    assert trained.scored == [("base", "latest", search)]
    figures = {"perplexity": 9.0, "bleu": 30.0, "signature": "nrefs:1", "parameters": 63_045_632, "seconds": 3600.0}
    assert figures.items() <= table3_report.values(result).items() and result.updates == 10
    assert grid.read_results(tmp_path, table3.RESULTS)["base"].scores == result.scores


def test_a_stopped_table_resumes_at_its_row_and_trains_no_row_twice(tmp_path, trained, messages):
    trained.stop = "E"
    with pytest.raises(StoppedError):
        list(table3.train(options_of("base", "A1", "E"), tmp_path, strategy=None))
    trained.stop = None
    results = list(table3.train(options_of("base", "A1", "E", "B16"), tmp_path, strategy=None))
    assert trained == ["base", "A1", "E", "B16"]
    assert [result.row for result in results] == ["E", "B16"]
    assert [message for message in messages if message.startswith("Run ")] == [
        "Run 1 of 3: base.", "Run 2 of 3: A1; about 2.0 h left for 2 run(s).",
        "Run 3 of 3: E; about 2.0 h left for 1 run(s).", "Run 3 of 4: E; about 4.0 h left for 2 run(s).",
        "Run 4 of 4: B16; about 1.7 h left for 1 run(s).",
    ]  # fmt: skip
    assert trained.freed == 5, "the graphs of the runs before"
    assert len([message for message in messages if message == "B16: valid: perplexity 9.00, BLEU 30.00."]) == 1


def test_an_unfinished_row_may_end_earlier(tmp_path, trained):
    [result] = table3.train(options_of("base"), tmp_path, strategy=None)
    (tmp_path / "base" / RESULT).unlink()
    (tmp_path / "base/checkpoints").mkdir()
    (tmp_path / "base/checkpoints/step-000000003.json").touch()
    found = [result.updates for result in table3.train(options_of("base", train_steps=5), tmp_path, strategy=None)]
    assert found == [5]


def test_the_result_of_another_row_is_refused(tmp_path, trained):
    list(table3.train(options_of("base"), tmp_path, strategy=None))
    (tmp_path / "base").rename(tmp_path / "E")
    with pytest.raises(ValueError, match=r"E/table3\.json is the result of base\. Rename .*/E, or move it out"):
        list(table3.train(options_of("E"), tmp_path, strategy=None))


def test_a_row_that_diverges_does_not_keep_the_others_from_training(tmp_path, trained, messages):
    """Story: the first such row ended a table of twenty."""
    trained.fail, results = "A1", []
    with pytest.raises(ValueError, match="The updates of A1 were not finite; .* has the table of the others."):
        results.extend(table3.train(options_of("base", "A1", "E"), tmp_path, strategy=None))
    assert trained == ["base", "E"]
    assert any("A1: 20 updates in a row were not finite." in message for message in messages)
    assert "Run 3 of 3: E; about 1.0 h left for 1 run(s)." in messages, "not that of A1"
    trained.fail = None
    assert [result.row for result in table3.train(options_of("base", "A1", "E"), tmp_path, strategy=None)] == ["A1"]


def test_no_table_is_promised_if_all_rows_diverge(tmp_path, trained):
    trained.fail = "base"
    with pytest.raises(ValueError, match="not finite; see the messages above. Lower the learning rate of all runs"):
        list(table3.train(options_of("base"), tmp_path, strategy=None))


def test_more_updates_train_on_and_options_without_effect_on_the_result_change_nothing(tmp_path, trained):
    list(table3.train(options_of("base"), tmp_path, strategy=None))
    without_effect = {"log_steps": 7, "device_tflops": 0.5, "checkpoint_steps": 3, "keep_checkpoints": 2}
    list(table3.train(options_of("base", **without_effect, valid_steps=3), tmp_path, strategy=None))
    assert trained == ["base"]
    [result] = table3.train(options_of("base", train_steps=20), tmp_path, strategy=None)
    assert trained == ["base", "base"] and result.updates == 20


@pytest.mark.parametrize(
    "changed",
    [
        {"warmup_steps": 7}, {"label_smoothing": 0.3}, {"train_steps": 5}, {"dtype": "bfloat16"}, {"seed": 7},
        {"batch_tokens": 9},
    ]
    + [
        {"buckets_per_update": 3}, {"clip_norm": 2.0}, {"learning_rate_factor": 0.5}, {"patience": 4},
        {"bpe_dropout": 0.1},
    ]
    + [{"freeze": "embedding"}, {"parent": "x"}],
    ids=str,
)  # fmt: skip
def test_a_finished_row_of_other_options_is_refused(tmp_path, trained, changed):
    """Story: such a row was scored again under the new options, with the weights of the old ones."""
    list(table3.train(options_of("base"), tmp_path, strategy=None))
    with pytest.raises(ValueError, match=f"Received: {next(iter(changed))}=.* Give another `output_dir`"):
        list(table3.train(options_of("base", **changed), tmp_path, strategy=None))
    assert trained == ["base"]


def test_validations_matter_if_they_may_end_the_training(tmp_path, trained):
    list(table3.train(options_of("base", patience=4), tmp_path, strategy=None))
    for name in ("valid_steps", "valid_sentences"):
        with pytest.raises(ValueError, match=f"Received: {name}=3"):
            list(table3.train(options_of("base", patience=4, **{name: 3}), tmp_path, strategy=None))


def test_an_older_result_has_the_options_of_its_run(tmp_path, trained):
    """Story: those that it lacked were taken for the defaults."""
    list(table3.train(options_of("base", clip_norm=2.0), tmp_path, strategy=None))
    path = tmp_path / "base" / RESULT
    result = json.loads(path.read_text())
    del result["options"]["clip_norm"]
    path.write_text(json.dumps(result))
    list(table3.train(options_of("base", clip_norm=2.0, damaged_records="skip"), tmp_path, strategy=None))
    assert trained == ["base"]
    with pytest.raises(ValueError, match=r"Received: clip_norm=0.0 \(.*base: 2.0\)"):
        list(table3.train(options_of("base"), tmp_path, strategy=None))


@pytest.mark.parametrize(
    ("divisor", "changed", "received"),
    [(1, {"warmup_steps": 7}, r"warmup_steps=7 \(.*base: 4000\)")]
    + [(4, {}, r"--d_model=128 .* for base \(.*base: .*--d_model=512 ")]
    + [
        (1, {name: value}, rf"Received: --{name}={value} for base \(.*base: --{name}={before}\)")
        for name, value, before in (("train_steps", 5, 10), ("train_steps", 20, 10), ("seed", 7, 1))
    ],
)
def test_rows_of_an_earlier_command_must_have_the_options_of_this_one(tmp_path, trained, divisor, changed, received):
    """Story: a table had rows of two learning rates, and a bold difference between them."""
    list(table3.train(options_of("base"), tmp_path, strategy=None))
    earlier = options_of("base", **changed)
    model = {
        name: value for name, value in paper.table_3("base", divisor).items() if hasattr(earlier["base"].model, name)
    }
    earlier["base"] = dataclasses.replace(earlier["base"], model=dataclasses.replace(earlier["base"].model, **model))
    with pytest.raises(ValueError, match=received):
        list(table3.train(options_of("E", **changed), tmp_path, earlier=earlier, strategy=None))
    assert trained == ["base"]
    list(table3.train(options_of("E"), tmp_path, earlier=options_of("base"), strategy=None))
    assert trained == ["base", "E"]


def test_a_score_may_be_a_whole_number(tmp_path):
    save(tmp_path, result_of("base", 30))
    assert grid.read_results(tmp_path, table3.RESULTS) == {"base": result_of("base", 30)}


@pytest.mark.parametrize(
    ("before", "after"),
    [(r"(?s).*", text) for text in ("{}", "[]", "{", '{"row": "base"}')]
    + [("30.0", '"30"'), ('"row": "base"', '"row": "A2"'), ('"row"', '"more": 1, "row"'), ('"valid"', '"test"')],
    ids=str,
)
def test_a_damaged_result_is_named_in_a_sentence(tmp_path, trained, before, after):
    list(table3.train(options_of("base"), tmp_path, strategy=None))
    path = tmp_path / "base" / RESULT
    path.write_text(re.sub(before, after, path.read_text(), count=1))
    with pytest.raises(ValueError, match=RESULT):
        list(table3.train(options_of("base"), tmp_path, strategy=None))


def save(output_dir: pathlib.Path, *results: Result) -> None:
    for result in results:
        (output_dir / result.row).mkdir(exist_ok=True)
        (output_dir / result.row / RESULT).write_text(json.dumps(dataclasses.asdict(result)))


def test_the_table_has_all_rows_with_a_result_in_the_paper_s_order(tmp_path):
    """Story: a call for a single row left only that row in the table."""
    save(tmp_path, RESULTS[2])
    assert table3.write(tmp_path) == ["table3.md", "table3.csv"]
    (tmp_path / "E" / RESULT).unlink()
    save(tmp_path, RESULTS[0])
    assert table3.write(tmp_path) == ["table3.md", "table3.csv"], "A picture needs another row."
    save(tmp_path, *RESULTS)
    assert table3.write(tmp_path) == ["table3.md", "table3.csv", "table3.png"]
    dots_per_metre = (tmp_path / "table3.png").read_bytes().partition(b"pHYs")[2][:4]
    assert round(int.from_bytes(dots_per_metre) * 0.0254) == 130
    assert [row["row"] for row in csv.DictReader((tmp_path / "table3.csv").open())] == ["base", "A1", "E"]
    (tmp_path / "base" / RESULT).unlink()
    table3.write(tmp_path)
    assert not (tmp_path / "table3.png").exists(), "of a base that is gone"


def test_tensorboard_compares_the_rows_and_forgets_those_that_are_gone(tmp_path):
    (tmp_path / table3.LOGS / "train").mkdir(parents=True)
    save(tmp_path, *RESULTS)
    table3.write(tmp_path)
    (tmp_path / "E" / RESULT).unlink()
    table3.write(tmp_path)
    assert sorted(path.name for path in (tmp_path / table3.LOGS).iterdir()) == ["A1", "base", "train"], (
        "The last is someone else's."
    )
    events = EventAccumulator(str(tmp_path / table3.LOGS / "A1"))
    events.Reload()
    names = {"bleu", "perplexity", "parameters", "target_tokens_per_second", "flops", "seconds"}
    assert names == {tag for tag in events.Tags()["tensors"] if not tag.startswith("_hparams_")}
    assert [event.step for name in names for event in events.Tensors(name)] == [2000] * len(names)
    values = {name: tf.make_ndarray(events.Tensors(name)[0].tensor_proto) for name in names}
    assert values == {name: pytest.approx(table3_report.values(RESULTS[1])[name]) for name in names}
    [content] = (events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content,)
    row = metadata.parse_session_start_info_plugin_data(content)
    assert row.hparams["row"].string_value == "A1" and row.hparams["num_heads"].number_value == 1
    assert row.group_name == ""  # TensorBoard puts the name of the folder there.


def table3_py(*flags: str) -> subprocess.CompletedProcess:
    return programs.tool("table3", *flags, modules=programs.WITHOUT_TENSORFLOW)


@pytest.mark.parametrize(("flags", "named"), [
    (["--rows=base,A2"], "A16"),
    (["--rows="], "--rows"),
    (["--num_heads=4", "--dataset=builtin"], "--num_heads"),
    (["--label_smoothing=0", "--dataset=builtin"], "--label_smoothing"),
    (["--beam_size=2", "--dataset=builtin"], "--beam_size"),
    (["--divide_widths=0.5"], "--divide_widths"),
    (["--divide_layers=3", "--rows=base,C2,C4", "--dataset=builtin"], "C2 and C4 the same model"),
    (["--rows=base"], "--train_source"),
])  # fmt: skip
def test_wrong_rows_and_options_that_rows_set_are_refused_in_a_line(tmp_path, flags, named):
    result = table3_py(f"--output_dir={tmp_path}/table", *flags)
    assert result.returncode == 1 and named in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "table").exists()


def test_train_py_refuses_an_unknown_row(tmp_path):
    flags = ["--model=table3/A9", f"--model_dir={tmp_path}/run", "--dataset=builtin"]
    result = programs.tool("train", *flags, modules=programs.WITHOUT_TENSORFLOW)
    assert result.returncode == 1 and "A16" in result.stderr and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_program_trains_scores_and_compares_rows(tmp_path):
    flags = (
        "--divide_widths=64 --divide_layers=6 --dataset=builtin --builtin_pairs=1000 --vocab_size=400 --train_steps=4 "
        "--batch_tokens=200 --valid_sentences=0 --best_metric=loss --valid_steps=4 --log_steps=2"
    )
    command = [f"--output_dir={tmp_path}", "--rows=base,D_ls0.2,big", *flags.split()]
    result = table3_py(*command)
    assert result.returncode == 0, result.stderr
    rows = {row["row"]: row for row in csv.DictReader((tmp_path / "table3.csv").open())}
    assert list(rows) == ["base", "D_ls0.2", "big"]
    for name, row in rows.items():
        options = SavedRun.open(tmp_path / name).options
        assert int(row["parameters"]) == options.model.num_weights
        assert float(row["flops"]) > 0 and float(row["target_tokens_per_second"]) > 0 and float(row["perplexity"]) > 1
        expected = paper.table_3(name, 64, 6)
        of_model = {key: each for key, each in expected.items() if key not in ("label_smoothing", "train_steps")}
        assert dataclasses.asdict(options.model) == dataclasses.asdict(ModelConfig(vocab_size=400, **of_model))
        assert options.train.label_smoothing == expected["label_smoothing"] and options.train.train_steps == 4
    again = table3_py(*command)
    assert again.returncode == 0 and "Resuming" not in again.stderr and "Options" not in again.stderr
