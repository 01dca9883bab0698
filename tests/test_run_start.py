"""The options that a run starts and resumes with: given ones, those of a run or a data folder, and refused ones."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from test_run_folder import OPTIONS, ROOT, rewrite, write

from t2t_keras.config import DataConfig, DecodeConfig, ModelConfig, TrainConfig
from t2t_keras.data.prepare import Preparation
from t2t_keras.runs import checkpoint, data_folder, export_folder, run_options
from t2t_keras.runs.run_start import Start, is_same
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system import files


def changes(model_dir: pathlib.Path, given: dict, data_dir: str = "") -> str:
    """What is said when a run is started again with these options."""
    return Start.open(model_dir, given, data_dir).changes()


# Resuming.


def test_options_of_an_earlier_start_that_are_not_given_again_are_listed(tmp_path):
    """Story: options of a dry run stayed in the folder, and the training that followed had them without a word."""
    earlier = {
        "train_steps": "command line", "d_ff": "flagfile multi30k_en_de", "d_model": "parent: command line",
        "alpha": "command line",
    }  # fmt: skip
    write(tmp_path, dataclasses.replace(OPTIONS, sources={**earlier, "vocab_size": "data folder"}))
    values = {
        name: value for group in (OPTIONS.model, OPTIONS.train, OPTIONS.decode) for name, value in vars(group).items()
    }

    def retained(**given) -> str:
        sources = dict.fromkeys(["model_dir", *given], "command line")
        return Start.open(tmp_path, given, sources=sources).retained()

    expected = [f"`{name}={values[name]}`" for name in ("d_ff", "train_steps", "alpha")]
    assert retained(warmup_steps=7) == ", ".join(expected)
    assert retained(train_steps=7) == ", ".join([expected[0], expected[2]])
    assert retained(train_steps=7, d_ff=8, alpha=1.0) == ""
    assert retained() == "", "A start that is given nothing resumes with all that it had."


FILES = {"train_source": "a", "train_target": "b", "valid_source": "c", "valid_target": "d"}
BERT = {"architecture": "bert"}


@pytest.mark.parametrize(("given", "unused", "reason"), [
    (FILES, {"builtin_pairs": 5}, "without `dataset=builtin`"),
    (FILES, {"train_split": "a"}, "without `dataset`"),
    ({"dataset": "builtin"}, {"valid_split": "a"}, "with `dataset=builtin`"),
    ({"dataset": "builtin"}, {"skip_bad_lines": True}, "with `dataset`"),
    (FILES, {"valid_pairs": 5}, "with `valid_source`"),
    ({"dataset": "builtin"}, {"valid_pairs": 5}, "with `dataset`"),
    (FILES | {"subwords_file": "x"}, {"vocab_sample": 500}, "with `subwords_file`"),
    (FILES | {"subwords_file": "x"}, {"normalization": "nfkc", "character_coverage": 1.0}, "with `subwords_file`"),
    (FILES | {"subwords_file": "x", "source_subwords_file": "y", "source_vocab_size": 99}, {"vocab_sample": 500},
     "with `subwords_file`"),
    (BERT, {"beam_size": 2}, "in the task pretraining"),
    (BERT, {"max_input": 7, "valid_sentences": 3, "attention_images": 2}, "in the task pretraining"),
    ({"architecture": "classifier"}, {"alpha": 1.0}, "in the task classification"),
    ({}, {"diversity": 2.0}, "without `diverse_groups`"),
    ({"valid_sentences": 0, "best_metric": "loss"}, {"attention_images": 2}, "without `valid_sentences`"),
    ({"learning_rate": 0.1}, {"learning_rate_factor": 2.0}, "with `learning_rate`"),
    ({}, {"parent_checkpoint": "best", "parent_subwords": False}, "without `parent` or `encoder_from`"),
    ({}, {"parent_optimizer": True}, "without `parent` or `encoder_from`"),
    ({}, {"freeze_embeddings": 5}, "without `embeddings`"),
    ({"train_steps": 40}, {"profile_steps": "41,60"}, "after the last update"),
], ids=str)  # fmt: skip
def test_an_option_that_has_no_effect_is_refused_where_it_is_given(tmp_path, given, unused, reason):
    """But not what a flagfile says, which may be for several kinds of runs, nor what the run has already."""
    names, received = (f"`{name}`" for name in unused), ", ".join(f"{name}={value!r}" for name, value in unused.items())
    with pytest.raises(ValueError) as error:
        Start.open(tmp_path, given | unused)
    rule = f"{' and '.join(names)} {'has' if len(unused) == 1 else 'have'} no effect {reason}. Received: "
    assert str(error.value).startswith(rule)
    assert received in str(error.value) or "profile_steps=41,60, train_steps=40" in str(error.value)
    chosen = Start.open(tmp_path, given | unused, sources=dict.fromkeys(unused, "flagfile mine")).options
    write(tmp_path, chosen)
    again = Start.open(tmp_path, given | unused).options
    assert (again.train, again.decode) == (chosen.train, chosen.decode)


@pytest.mark.parametrize("given", [
    {"dataset": "builtin", "builtin_pairs": 5, "source_language": "en", "target_language": "de"},
    {"dataset": "ted/x", "source_language": "en", "target_language": "de", "train_split": "a", "valid_split": "b"},
    FILES | {"skip_bad_lines": True, "vocab_sample": 500},
    FILES | {"subwords_file": "x", "source_vocab_size": 400, "vocab_sample": 500},
    FILES | {"subwords_file": "x", "source_language": "en", "target_language": "de"},
    FILES | {"train_source": "a.en,b.tmx.gz", "source_language": "en", "target_language": "de"},
    {"train_source": "A.TMX", "valid_source": "b.tsv", "source_language": "en", "target_language": "de"},
    {"diverse_groups": 2, "diversity": 2.0},
    {"train_steps": 40, "profile_steps": "40,60"},
    {"embeddings": "x", "freeze_embeddings": 5},
    {"builtin_pairs": 40_000, "train_split": "train", "parent_checkpoint": "average", "learning_rate_factor": 1.0},
    BERT | {"beam_size": 4, "valid_sentences": 0, "attention_images": 0, "alpha": 0.0},
], ids=str)  # fmt: skip
def test_an_option_with_an_effect_or_its_default_or_that_asks_for_nothing_is_accepted(tmp_path, given):
    chosen = Start.open(tmp_path, given).options
    values = {name: value for group in chosen.groups.values() for name, value in vars(group).items()}
    given = {name: os.path.abspath(value) if name == "embeddings" else value for name, value in given.items()}
    assert {
        name: values[name] for name in given if name in values and name not in ("train_split", "builtin_pairs")
    } == {name: value for name, value in given.items() if name not in ("architecture", "train_split", "builtin_pairs")}


@pytest.mark.parametrize(("given", "refused"), [
    ({"vocab_size": 100}, "vocab_size=100"),
    ({"vocab_size": 260}, "vocab_size=260"),
    ({"vocab_size": 300, "source_vocab_size": 260}, "source_vocab_size=260"),
    ({"vocab_size": 261}, ""),
    ({"vocab_size": 100, "subwords_file": "x"}, ""),
    ({"vocab_size": 300, "source_vocab_size": 260, "source_subwords_file": "x"}, ""),
], ids=str)  # fmt: skip
def test_a_vocabulary_without_room_for_characters_is_refused_before_the_text_is_read(tmp_path, given, refused):
    """Story: --vocab_size=100 failed after an hour of reading."""
    if not refused:
        assert Start.open(tmp_path, FILES | given).options.model.vocab_size == given["vocab_size"]
        return
    with pytest.raises(ValueError, match=f"must be more than 260: .* Received: {refused}.$"):
        Start.open(tmp_path, FILES | given)


def other(field):
    """A valid value that is not the default."""
    texts = {
        "dtype": "bfloat16", "damaged_records": "skip", "best_metric": "loss", "normalization": "nfkc",
        "dataset": "ted/x", "source_language": "en", "target_language": "de", "profile_steps": "1,2",
        "keep_patterns": "braces", "source_tag": "<2de>", "norm": "pre", "sinusoids": "tensor2tensor",
        "attention": "unscaled", "jit_compile": "false",
        "activation": "gelu", "parent_checkpoint": "latest", "augment": "upper:0.1",
        "subwords": "bpe",  # The default: word pieces have no normalization. See test_word_pieces.py.
    }  # fmt: skip
    if field.name in (numbers := {"source_vocab_size": 9, "length_buckets": 1.5}):
        return numbers[field.name]
    if field.type is str:
        return texts.get(field.name, "" if "_source" in field.name or "_target" in field.name else "grpc://host:1")
    return {
        bool: lambda: not field.default,
        int: lambda: field.default + 2,
        float: lambda: field.default * 0.99 or 0.25,
    }[field.type]()


def test_a_run_that_is_started_again_has_every_option_that_it_had(tmp_path, monkeypatch):
    """Story: --warmup_steps=20, forgotten at the second start, became 4000, and the rate 0.00030 instead of 0.0051."""
    # By other options.
    excluded = {
        "cooldown_share": 0.0, "deterministic": False, "embeddings": "", "encoder_from": "", "freeze_embeddings": 0,
        "learning_rate": 0.0, "parent_optimizer": False, "sinusoids": "paper", "first_position": 0, "r_drop": 0.0,
        "bpe_dropout": 0.0, "augment": "", "attention_window": 0,
    }  # fmt: skip
    groups = {}
    for name, group in run_options.groups_of().items():
        values = {field.name: other(field) for field in dataclasses.fields(group)}
        groups[name] = group(**{**values, **{option: value for option, value in excluded.items() if option in values}})
        same = [field.name for field in dataclasses.fields(group) if getattr(groups[name], field.name) == field.default]
        assert set(same) <= {*excluded, "subwords", "train_source", "train_target", "valid_source", "valid_target"}
    monkeypatch.setattr(checkpoint, "identity", lambda parent, which: {})
    options = run_options.Options(**groups, data_dir="/data/x")
    write(tmp_path, options)
    assert SavedRun.open(tmp_path).options == options
    # Of the data the folder is enough; `training.run.train` takes the text's names from the run if that is gone.
    assert Start.open(tmp_path, {}).options == dataclasses.replace(options, data=DataConfig())
    assert Start.open(tmp_path, {"max_length": 99}).options.data == dataclasses.replace(options.data, max_length=99)
    assert changes(tmp_path, {}) == ""


def test_a_new_run_has_the_options_given_and_the_defaults(tmp_path):
    assert Start.open(tmp_path / "new", {}).options == run_options.Options()
    expected = run_options.Options(
        ModelConfig(d_ff=8), TrainConfig(seed=2), DecodeConfig(alpha=1.0), DataConfig(dataset="builtin")
    )
    assert Start.open(tmp_path / "new", {"d_ff": 8, "seed": 2, "alpha": 1.0, "dataset": "builtin"}).options == expected


@pytest.mark.parametrize(("given", "sources", "expected"), [
    ({"epochs": 3.0}, {}, (100_000, 3.0)),
    ({"train_steps": 9}, {}, (9, 0.0)),
    ({"epochs": 3.0, "train_steps": 9}, {"epochs": "flagfile small", "train_steps": "command line"}, (9, 0.0)),
    ({"epochs": 3.0, "train_steps": 9}, {"epochs": "command line", "train_steps": "flagfile x"}, (100_000, 3.0)),
    ({"epochs": 0.0, "train_steps": 9}, {"epochs": "command line", "train_steps": "command line"}, (9, 0.0)),
    ({"epochs": 3.0, "train_steps": 9}, {"epochs": "command line", "train_steps": "command line"}, None),
    ({"epochs": 3.0, "train_steps": 9}, {}, None),
    ({"epochs": 3.0, "train_steps": 9}, {"epochs": "flagfile small", "train_steps": "row a"}, (9, 0.0)),
    ({"epochs": 3.0, "train_steps": 9}, {"epochs": "row a", "train_steps": "flagfile x"}, (100_000, 3.0)),
    ({"epochs": 3.0, "train_steps": 9}, {"epochs": "row a", "train_steps": "command line"}, (9, 0.0)),
    ({"epochs": 3.0, "train_steps": 9}, {"epochs": "flagfile x", "train_steps": "flagfile y"}, None),
])  # fmt: skip
def test_the_length_is_of_updates_or_epochs_and_the_command_line_overrides_a_flagfile(
    tmp_path, given, sources, expected
):
    if expected is None:
        with pytest.raises(
            ValueError, match="`train_steps` and `epochs` exclude each other. Received: train_"
        ) as refused:
            Start.open(tmp_path / "new", given, sources=sources)
        assert ("Give epochs=0" in str(refused.value)) == bool(sources)
    else:
        train = Start.open(tmp_path / "new", given, sources=sources).options.train
        assert (train.train_steps, train.epochs) == expected


def test_updates_given_to_a_run_of_epochs_are_its_length(tmp_path):
    write(tmp_path, dataclasses.replace(OPTIONS, train=dataclasses.replace(OPTIONS.train, epochs=3.0, train_steps=12)))
    assert Start.open(tmp_path, {}).options.train.epochs == 3
    train = Start.open(tmp_path, {"train_steps": 40}).options.train
    assert (train.train_steps, train.epochs) == (40, 0)
    assert Start.open(tmp_path, {"epochs": 4.0}).options.train.epochs == 4


def test_no_lengths_are_rounded_by_0_and_by_1(tmp_path):
    write(tmp_path)
    assert changes(tmp_path, {"length_buckets": 1.0}) == ""
    with pytest.raises(ValueError, match="length_buckets=1.15"):
        changes(tmp_path, {"length_buckets": 1.15})
    same = [[is_same("length_buckets", old, new) for new in (0.0, 1.0, 1.15)] for old in (0.0, 1.0, 1.15)]
    assert same == [[True, True, False]] * 2 + [[False, False, True]]


@pytest.mark.parametrize(
    ("name", "values"), [("length_buckets", [1.15, "1.15", [1.15], None]), ("parent", ["x", ["x"], 1, None])]
)
def test_values_of_other_types_are_other_values(name, values):
    """Story: those of somebody's grid.json ended in a traceback."""
    for old in values:
        assert [is_same(name, old, new) for new in values] == [new is old for new in values]


def test_options_as_they_are_leave_a_run_what_it_decided_when_it_started(tmp_path):
    """Story: a grid could not resume a run of a compiled step, for which 0 had become 1.15."""
    train = dataclasses.replace(OPTIONS.train, length_buckets=1.15, epochs=14.0, train_steps=511)
    write(tmp_path, dataclasses.replace(OPTIONS, train=train))
    asked = dataclasses.replace(OPTIONS, train=dataclasses.replace(train, length_buckets=0.0, train_steps=100_000))
    start = Start.of(tmp_path, asked)
    assert start.changes() == "" and start.options.train == train
    longer = dataclasses.replace(asked, train=dataclasses.replace(asked.train, epochs=15.0, length_buckets=1.3))
    assert Start.of(tmp_path, longer).options.train == longer.train
    assert Start.of(tmp_path / "new", asked).options == asked


def test_a_vocabulary_that_the_text_decides_stays_the_one_that_it_decided(tmp_path):
    write(tmp_path)
    assert Start.open(tmp_path / "new", {"vocab_size": 0}).options.model.vocab_size == 0
    assert Start.open(tmp_path, {"vocab_size": 0}).options.model.vocab_size == OPTIONS.model.vocab_size
    assert changes(tmp_path, {"vocab_size": 0}) == ""


@pytest.mark.parametrize("given", ["~/vectors.txt", "vectors.txt"])
def test_a_file_of_word_vectors_is_found_from_any_folder(tmp_path, monkeypatch, given):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert Start.open(tmp_path / "run", {"embeddings": given}).options.train.embeddings == str(tmp_path / "vectors.txt")


def test_an_option_given_wins_over_the_run_s(tmp_path):
    write(tmp_path)
    resolved = Start.open(tmp_path, {"train_steps": 30, "alpha": 1.5}, "/data/y").options
    assert resolved.train == dataclasses.replace(OPTIONS.train, train_steps=30)
    assert resolved.decode == DecodeConfig(beam_size=2, alpha=1.5)
    assert resolved.data_dir == "/data/y"


def test_an_option_that_does_not_fit_the_run_s_others_is_reported_with_where_those_are(tmp_path):
    write(tmp_path, dataclasses.replace(OPTIONS, train=TrainConfig(best_metric="loss", valid_sentences=0)))
    assert Start.open(tmp_path, {"patience": 3}).options.train.best_metric == "loss"
    message = "best_metric='bleu', valid_sentences=0.*Options not given are those of .*config.json"
    with pytest.raises(ValueError, match=message):
        Start.open(tmp_path, {"best_metric": "bleu"})


def test_what_changes_is_announced_with_both_values(tmp_path):
    write(tmp_path)
    said = changes(
        tmp_path, {"warmup_steps": 4000, "train_steps": 10, "dtype": "bfloat16", "beam_size": 5}, str(tmp_path / "data")
    )
    expected = (
        f"`warmup_steps` 20 → 4000, `dtype` float32 → bfloat16, `beam_size` 2 → 5, `data_dir` /data/x → {tmp_path}/data"
    )
    assert said == expected


def test_all_options_that_may_not_change_are_named_at_once_with_both_values(tmp_path):
    """Story: a run of ten model options took ten tries."""
    write(tmp_path)
    given = {
        "vocab_size": 350, "d_ff": 16, "seed": 2, "batch_tokens": 500, "train_source": "b.en", "max_length": 50,
        "train_steps": 11,
    }  # fmt: skip
    with pytest.raises(ValueError) as raised:
        changes(tmp_path, given)
    assert str(raised.value) == (
        f"Expected the options that {tmp_path} was trained with. Received: vocab_size=350 (the run: 340), d_ff=16 (the "
        "run: 2048), batch_tokens=500 (the run: 400), seed=2 (the run: 1), train_source=b.en (the run: a.en), "
        "max_length=50 (the run: 100). Leave them out to resume that run, or start a new run in another `model_dir`."
    )


@pytest.mark.parametrize("name", [
    *(field.name for field in dataclasses.fields(ModelConfig)), "seed", "batch_tokens", "buckets_per_update",
    "best_metric", "max_length", "normalization", "character_coverage", "vocab_sample", "skip_bad_lines",
    "keep_patterns", "source_tag", "builtin_pairs",
    "train_split",
])  # fmt: skip
def test_what_decides_weights_or_the_order_of_the_data_may_not_change(tmp_path, name):
    write(tmp_path)
    [field] = [
        field for group in run_options.groups_of().values() for field in dataclasses.fields(group) if field.name == name
    ]
    with pytest.raises(ValueError, match=f"Received: {name}="):
        changes(tmp_path, {name: other(field)})


@pytest.mark.parametrize(("name", "value"), [
    ("parent", "/other"), ("parent_checkpoint", "latest"), ("parent_subwords", False), ("parent_optimizer", True),
    ("freeze", "encoder"), ("bpe_dropout", 0.1), ("augment", "upper:0.1"), ("ema_decay", 0.9),
])  # fmt: skip
def test_what_a_run_started_from_and_how_it_trains_may_not_change(tmp_path, monkeypatch, name, value):
    monkeypatch.setattr(checkpoint, "identity", lambda parent, which: {})
    write(tmp_path, dataclasses.replace(OPTIONS, train=TrainConfig(parent="/parent", parent_checkpoint="3")))
    with pytest.raises(ValueError, match=f"Received: {name}={value} \\(the run: "):
        changes(tmp_path, {name: value})


def test_where_there_are_no_weights_anything_may_change_and_is_announced(tmp_path):
    write(tmp_path, weights=False)
    assert changes(tmp_path, {"d_ff": 16, "seed": 2}) == "`d_ff` 2048 → 16, `seed` 1 → 2"


def test_text_under_another_name_is_left_to_those_who_read_it(tmp_path):
    """The same file may be elsewhere now; `Preparation.check` compares what is in it."""
    write(tmp_path)
    assert changes(tmp_path, {"train_source": "/abs/a.en"}) == "`train_source` a.en → /abs/a.en"


def test_a_run_on_data_prepared_elsewhere_learns_of_its_text_later(tmp_path):
    write(tmp_path, dataclasses.replace(OPTIONS, data=DataConfig()))
    assert changes(tmp_path, {"dataset": "builtin", "max_length": 99}) == ""


def test_the_data_folder_is_kept_wherever_the_run_and_the_shell_go(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model_dir = tmp_path / "run"
    assert Start.open(model_dir, {}, "shared/x").options.data_dir == f"{tmp_path}/shared/x"
    assert Start.open(model_dir, {}, "run/data").options.data_dir == ""
    options = run_options.Options()
    assert options.data_folder(model_dir) == model_dir / "data"
    assert dataclasses.replace(options, data_dir="/data/x").data_folder(model_dir) == pathlib.Path("/data/x")


def test_options_are_resolved_without_tensorflow():
    """So that a wrong one is reported at once."""
    program = (
        "import sys, t2t_keras.runs.run_start; print([name for name in ('tensorflow', 'keras') if name in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert finished.stdout.strip() == "[]"


# Where options come from.


def test_the_table_of_options_shows_where_each_value_comes_from(tmp_path):
    sources = {"d_ff": "flagfile small", "alpha": "command line"}
    first = Start.open(tmp_path, {"d_ff": 100, "alpha": 0.5, "seed": 7}, sources=sources).options
    rows = {
        row[1].strip(): (row[2].strip(), row[3].strip())
        for row in (line.split("|") for line in first.table().splitlines())
    }
    options = {field.name for group in run_options.groups_of().values() for field in dataclasses.fields(group)}
    assert rows.keys() - {"option", "---"} == options | {"architecture", "data_dir"}
    assert rows["d_ff"] == ("100", "flagfile small") and rows["alpha"] == ("0.5", "command line")
    assert rows["seed"] == ("7", "given") and rows["num_heads"] == ("8", "default")
    subwords, records = tmp_path / "s", tmp_path / "r"
    subwords.write_bytes(b"s")
    records.write_bytes(b"r")
    SavedRun.write(tmp_path, first, subwords, records)
    again = Start.open(tmp_path, {"alpha": 0.4}, sources={"alpha": "command line"}).options
    assert (again.sources["d_ff"], again.sources["num_heads"]) == ("run: flagfile small", "run: default")
    assert again.sources["alpha"] == "command line"
    assert re.search(r"\| d_ff +\| 100 +\| run: flagfile small \|", again.table())
    SavedRun.write(tmp_path, again, subwords, records)
    third = Start.open(tmp_path, {}).options
    assert (third.sources["d_ff"], third.sources["alpha"]) == ("run: flagfile small", "run: command line")


def test_where_a_run_of_before_had_its_options_from_is_not_known(tmp_path):
    write(tmp_path)
    rewrite(tmp_path, lambda written: written.pop("sources"))
    assert set(Start.open(tmp_path, {}).options.sources.values()) == {"run: unknown"}


# The data folder of a new run.


def prepared(folder: pathlib.Path, **recorded) -> pathlib.Path:
    """A data folder that was prepared with these options."""
    folder.mkdir(parents=True)
    options = {
        "task": "translation", "vocab_size": 2000, "max_length": 100, "subwords": "wordpiece",
        "normalization": "identity",
    }  # fmt: skip
    (folder / "corpus.json").write_text(json.dumps({"options": options | recorded}))
    return folder


@pytest.mark.parametrize(
    "given", [{"max_length": 256}, {"max_length": 99}, {"normalization": "nfkc", "vocab_size": 300}], ids=str
)
def test_a_resumed_run_keeps_the_options_of_its_data_folder(tmp_path, given):
    """Story: --max_length=256, the default, was accepted, and the run had gone on with the 100 of its data."""
    folder, run = prepared(tmp_path / "data"), tmp_path / "run"
    (tmp_path / "some").write_text("")
    run.mkdir()
    SavedRun.write(run, Start.open(run, {}, str(folder)).options, tmp_path / "some", tmp_path / "some")
    name, value = next(iter(given.items()))
    with pytest.raises(ValueError, match=f"^{folder} was prepared .*: `{name}` was .*, and is now {value}. Give the "):
        Start.open(run, given)


def test_one_message_names_options_of_the_data_and_of_training_that_may_not_change(tmp_path):
    folder, run = prepared(tmp_path / "data", dataset="builtin", builtin_pairs=500), tmp_path / "run"
    write(run, Start.open(run, {"dataset": "builtin", "max_length": 100}, str(folder)).options)
    with pytest.raises(ValueError) as refused:
        changes(run, {"max_length": 90, "dropout": 0.3, "batch_tokens": 99})
    received = str(refused.value)
    for change in ("max_length=90 (the run: 100)", "dropout=0.3 (the run: 0.1)", "batch_tokens=99 (the run: 25000)"):
        assert change in received


def test_a_file_of_terms_is_compared_by_its_content_wherever_it_is(tmp_path, monkeypatch):
    """Stories: the same command was refused for a folder in its path, or for a file of that name elsewhere."""
    (tmp_path / "lists").mkdir()
    terms = tmp_path / "lists" / "terms.tsv"
    terms.write_text("man\tMann\n")
    folder = prepared(tmp_path / "data", train_terms=f"terms.tsv {files.describe(terms)}", max_length=256)
    monkeypatch.chdir(tmp_path)
    for given in ({}, {"train_terms": str(terms)}, {"train_terms": "lists/terms.tsv"}):
        (tmp_path / "terms.tsv").write_text("another\tfile\n")
        Preparation.of(Start.open(tmp_path / "run", given, str(folder)).options, folder).check()
        with pytest.raises(ValueError, match="`train_terms` was terms.tsv .*, and is now terms.tsv "):
            options = Start.open(tmp_path / "run", {"train_terms": "terms.tsv"}, str(folder)).options
            Preparation.of(options, folder).check()


def test_a_resumed_run_needs_no_text_for_an_option_that_it_has(tmp_path):
    """As of a flagfile that is given again."""
    text = {name: f"/gone/{name}" for name in ("train_source", "train_target", "valid_source", "valid_target")}
    write(tmp_path, Start.open(tmp_path, {**text, "max_length": 100}).options)
    assert Start.open(tmp_path, {"max_length": 100}).options.data == DataConfig()
    assert Start.open(tmp_path, {"max_length": 90}).options.data == DataConfig(**text, max_length=90)
    assert Start.open(tmp_path, {**text, "max_length": 100}).options.data == DataConfig(**text, max_length=100)


def test_a_new_run_takes_what_its_data_folder_was_prepared_with(tmp_path):
    """Story: `prepare.py --vocab_size=2000`, then `train.py --data_dir`, failed with --vocab_size=37000."""
    folder = prepared(tmp_path / "data", dataset="builtin", builtin_pairs=500, seed=4)
    alone = Start.open(tmp_path / "run", {"d_ff": 8}, str(folder)).options
    assert alone.model == ModelConfig(2000, d_ff=8)
    # The dataset is compared only if it is given.
    assert alone.data == DataConfig(max_length=100, subwords="wordpiece")
    expected = {*("vocab_size", "source_tag", "max_length", "subwords", "normalization", "keep_patterns")}
    assert {name: source for name, source in alone.sources.items() if source == "data folder"}.keys() == expected
    assert re.search(r"\| vocab_size +\| 2000 +\| data folder \|", alone.table())
    named = Start.open(tmp_path / "run", {"dataset": "builtin", "max_length": 100}, str(folder)).options
    assert named.data == DataConfig(dataset="builtin", builtin_pairs=500, max_length=100, subwords="wordpiece")
    assert named.sources["max_length"] == "given"
    # Reading tells that it differs.
    text = Start.open(tmp_path / "run", {"train_source": "a", "train_target": "b"}, str(folder)).options
    assert text.data == DataConfig(train_source="a", train_target="b", max_length=100, subwords="wordpiece")


def test_a_data_folder_in_the_run_s_place_counts_too_and_a_run_s_own_options_come_first(tmp_path):
    prepared(tmp_path / "run" / "data")
    assert Start.open(tmp_path / "run", {}).options.model.vocab_size == 2000
    write(tmp_path / "run", dataclasses.replace(OPTIONS, data_dir=""))
    assert Start.open(tmp_path / "run", {}).options.model.vocab_size == 340


def test_options_that_the_data_was_not_prepared_with_are_reported_with_both_values(tmp_path):
    folder = prepared(tmp_path / "data", dataset="builtin", builtin_pairs=500)
    with pytest.raises(ValueError) as refused:  # 256 is the default, and was given.
        Start.open(tmp_path / "run", {"vocab_size": 340, "max_length": 256, "d_ff": 8}, str(folder))
    assert str(refused.value).startswith(
        f"{folder} was prepared from another corpus or with other options: `max_length` was 100, and is now 256; "
        "`vocab_size` was 2000, and is now 340. "
    )
    with pytest.raises(ValueError, match="`builtin_pairs` was 500, and is now 7"):
        Start.open(tmp_path / "run", {"builtin_pairs": 7}, str(folder))


def test_a_folder_without_a_run_is_not_taken_for_a_new_one_that_lacks_text(tmp_path):
    """Story: --model_dir=runs/typo said that there was no training text, and left a lock behind."""

    def check(given: dict, data_dir: str = "") -> None:
        Start.open(tmp_path / "typo", given, data_dir).check()

    message = f"There is no run in {tmp_path}/typo. .* `train_source` and `train_target`, `dataset`"
    with pytest.raises(FileNotFoundError, match=message):
        check({"train_steps": 7})
    with pytest.raises(FileNotFoundError, match=f"There is no prepared data in {tmp_path}/gone. "):
        check({}, str(tmp_path / "gone"))
    check({"dataset": "builtin"})
    check({}, str(prepared(tmp_path / "data")))
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "lock").touch()  # Of one who prepares it.
    check({}, str(tmp_path / "half"))
    assert not (tmp_path / "typo").exists()
    write(tmp_path / "typo")
    check({})


def test_the_folder_of_a_run_is_none_for_data(tmp_path):
    """Stories: preparing into a run's folder replaced its sub-words; one folder for both waited for its own lock."""

    def refused(data_dir: pathlib.Path) -> str:
        with pytest.raises(ValueError) as raised:
            Start.open(tmp_path / "new", {"dataset": "builtin"}, str(data_dir)).check()
        assert not (tmp_path / "new").exists()
        return str(raised.value)

    both = tmp_path / "new"
    assert refused(both) == f"`model_dir` and `data_dir` must be two folders. Received: {both} for both."
    run = tmp_path / "run"
    write(run)
    received = f"Expected a folder for data as `data_dir`. Received: {run}, which holds a run."
    assert refused(run) == f"{received} Give another one."
    (run / files.DATA).mkdir(exist_ok=True)
    (run / files.DATA / data_folder.CORPUS).write_text("{}")
    assert refused(run) == f"{received} The data of the run are in {run / 'data'}."
    (run / files.CONFIG).unlink()  # The checkpoints are left.
    assert refused(run).startswith(received)


@pytest.mark.parametrize(("given", "expected"), [
    ({"best_metric": "chrf"}, "Expected `best_metric` to be one of bleu, loss. Received: best_metric=chrf."),
    ({"train_source": "a.en"}, "Give `train_target` too: the task translation needs both sides."),
    ({"valid_source": "a.en"}, "Give `valid_target` too: the task translation needs both sides."),
    ({"architecture": "cnn"}, "Received: architecture=cnn."),
    ({"units": 3}, "Expected options of architecture=transformer. Received: units=3, which no architecture has."),
])  # fmt: skip
def test_what_does_not_fit_the_architecture_or_its_task_is_refused(tmp_path, given, expected):
    with pytest.raises(ValueError, match=re.escape(expected)):
        Start.open(tmp_path / "new", given)


def start(model_dir: pathlib.Path) -> None:
    Start.open(model_dir, {"dataset": "builtin"}).check()


@pytest.mark.parametrize(("check", "name"), [
    (start, "model_dir"),
    (data_folder.check, "data_dir"),
    (export_folder.check, "export_dir"),
    (lambda path: files.check_new(path, "export_dir"), "export_dir"),
], ids=["model_dir", "data_dir", "export_dir", "new"])  # fmt: skip
def test_what_cannot_be_a_folder_is_reported(tmp_path, monkeypatch, check, name):
    """A file, a pipe, a link to nothing, or a path through one of them."""
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nothing")
    monkeypatch.chdir(tmp_path)
    for other in ("file", "pipe", "link"):
        for path in (pathlib.Path(other), tmp_path / other / "in" / "it"):
            what = "which" if path.name == other else f"but {tmp_path / other}"
            with pytest.raises(NotADirectoryError) as raised:
                check(path)
            assert str(raised.value) == f"`{name}` must be a folder. Received: {path}, {what} is not a folder."
    (tmp_path / "empty").mkdir()
    (tmp_path / "link to a folder").symlink_to("empty")
    for path in ("empty", "new", "link to a folder", "new/in/it"):
        check(pathlib.Path(path))
    with pytest.raises(ValueError, match=f"^`{name}` must be a path in UTF-8. Received: d\udcfcr/in. Rename"):
        check(pathlib.Path(os.fsdecode(b"d\xfcr")) / "in")  # Story: TensorFlow's error came when the text was read.
    assert {path.name for path in tmp_path.iterdir()} == {"file", "pipe", "link", "empty", "link to a folder"}
