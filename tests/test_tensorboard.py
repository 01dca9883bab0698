"""A point a step in TensorBoard, however often a run began again."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import toy
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.context import RequestContext
from tensorboard.plugins import base_plugin
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups, metadata, plugin_data_pb2

from t2t_keras.config import ModelConfig, TrainConfig
from t2t_keras.reporting import hparams, scalars
from t2t_keras.reporting.tensorboard import TensorBoardWriter
from t2t_keras.runs import run_options


def points(folder) -> list[tuple]:
    """(tag, step, value) of all files, in their order."""
    found = []
    for path in sorted(folder.iterdir()):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            found += [(value.tag, event.step, tf.make_ndarray(value.tensor).item()) for value in event.summary.value]
    return found


def draw(folder, steps) -> None:
    board = TensorBoardWriter(folder)
    for step in steps:
        board.write(step, {"train/loss": float(step), "valid/samples": f"text {step}"})


def loss_steps(folder) -> list[int]:
    return [step for tag, step, _ in points(folder) if tag == "train/loss"]


def test_points_after_the_step_are_forgotten_and_the_others_stay_as_they_were(tmp_path):
    draw(tmp_path, [10, 20])
    draw(tmp_path, [30, 40])
    before = points(tmp_path)
    TensorBoardWriter(tmp_path).start(30, 30)
    assert points(tmp_path) == [point for point in before if point[1] <= 30]
    draw(tmp_path, [40, 50])
    assert loss_steps(tmp_path) == [10, 20, 30, 40, 50]


@pytest.mark.parametrize("torn", [1, 5, 40], ids=lambda torn: f"{torn} bytes short")
def test_a_record_that_a_kill_cut_off_is_forgotten_and_all_before_it_stay(tmp_path, torn):
    draw(tmp_path, [10, 20])
    [path] = tmp_path.iterdir()
    before = points(tmp_path)
    path.write_bytes(path.read_bytes()[:-torn])
    TensorBoardWriter(tmp_path).start(20, 20)
    assert points(tmp_path) == before[:-1] and len(before) == 4
    assert [path] == list(tmp_path.iterdir())
    draw(tmp_path, [30])
    # Files of one second have no order of their own.
    expected = [*before[:-1], ("train/loss", 30, 30.0)]
    assert sorted(points(tmp_path), key=lambda point: point[1])[: len(before)] == expected


def test_files_without_such_points_are_not_touched(tmp_path):
    draw(tmp_path, [10])
    [path] = tmp_path.iterdir()
    before = path.stat().st_ino, path.stat().st_mtime_ns
    TensorBoardWriter(tmp_path).start(10, 10)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == before


@pytest.mark.parametrize("folder", ["missing", "."])
def test_where_nothing_was_drawn_there_is_nothing_to_forget(tmp_path, folder):
    TensorBoardWriter(tmp_path / folder).start(0, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_validation_that_was_not_saved_is_forgotten_alone(tmp_path):
    """Its update was, by a signal that ended it; it will be made again."""
    draw(tmp_path, [10, 20])
    TensorBoardWriter(tmp_path).start(20, 10)
    assert loss_steps(tmp_path) == [10, 20]
    [path] = tmp_path.iterdir()
    tags = {
        value.tag: event.step
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    }
    assert tags == {"train/loss": 20, "valid/samples": 10}


def test_a_large_file_is_not_in_memory_when_a_run_resumes(tmp_path):
    """With a point to remove, at its end."""
    path = tmp_path / "events.out.tfevents.1"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for step in range(20):
            value = [tf.compat.v1.Summary.Value(tag="weights", simple_value=0, node_name="x" * 2**20)]
            writer.write(tf.compat.v1.Event(step=step, summary=tf.compat.v1.Summary(value=value)).SerializeToString())
    size = path.stat().st_size
    with toy.memory_below(8 * 2**20):
        TensorBoardWriter(tmp_path).start(18, 18)
    steps = [event.step for event in tf.compat.v1.train.summary_iterator(str(path))]
    assert steps == list(range(19)) and 0.9 * size < path.stat().st_size < size


def test_a_folder_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "logs").write_bytes(b"a file where a folder should be")
    with pytest.raises(OSError, match="Could not write to .*logs"):
        TensorBoardWriter(tmp_path / "logs").write(1, {"train/loss": 1.0})


OPTIONS = run_options.Options()


def board_of(folder, options=OPTIONS, **others) -> TensorBoardWriter:
    """A writer with all that a run writes once."""
    return TensorBoardWriter(folder, once=[*hparams.summaries(options), scalars.layout(OPTIONS.task.metrics)], **others)


def once_written(folder) -> list[tuple]:
    """(tag, step) of what is written once, in the order of the files; and each graph."""
    found = []
    for path in sorted(folder.iterdir()):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            found += [("graph", event.step)] * event.HasField("graph_def")
            found += [
                (value.tag, event.step)
                for value in event.summary.value
                if value.tag.startswith(("_hparams_", "custom"))
            ]
    return found


def small_graph() -> tf.Graph:
    return tf.function(lambda x: x + 1).get_concrete_function(tf.TensorSpec([])).graph


ONCE = ["_hparams_/experiment", "_hparams_/session_start_info", "custom_scalars__config__", "graph"]


@pytest.mark.parametrize("step", [0, 20], ids=["killed before a checkpoint", "resumed"])
def test_what_describes_a_run_is_written_once_however_often_it_resumes(tmp_path, step):
    for start in (0, step, step):
        board = board_of(tmp_path, graph=small_graph)
        board.start(start, start)
        for update in (1, 2):
            board.write(start + update, {"train/loss": 1.0})
    assert sorted(once_written(tmp_path)) == [(tag, 0) for tag in ONCE]


def test_what_a_kill_left_twice_is_kept_once(tmp_path):
    """In two files, of which the second one has nothing that the first one lacks."""
    board = board_of(tmp_path, graph=small_graph)
    board.start(0, 0)
    board.write(1, {"train/loss": 1.0})
    [path] = tmp_path.iterdir()
    content = path.read_bytes()
    path.with_name(f"{path.name}.2").write_bytes(content)
    board_of(tmp_path, graph=small_graph).start(1, 1)
    assert sorted(once_written(tmp_path)) == [(tag, 0) for tag in ONCE]
    assert path.read_bytes() == content


def test_the_graph_is_made_after_the_first_metrics(tmp_path):
    board = board_of(tmp_path, graph=small_graph)
    board.start(0, 0)
    assert ("graph", 0) not in once_written(tmp_path)
    board.write(1, {"train/loss": 1.0})
    assert ("graph", 0) in once_written(tmp_path)


def test_a_run_whose_folder_was_moved_stays_one_row_of_the_hparams_tab(tmp_path):
    board_of(tmp_path / "before").start(0, 0)
    (tmp_path / "before").rename(tmp_path / "after")
    [path] = (tmp_path / "after").iterdir()
    content = path.read_bytes()
    board_of(tmp_path / "after").start(0, 0)
    assert path.read_bytes() == content


@pytest.mark.parametrize("origin", ["parent", "encoder_from", "embeddings"])
def test_a_copy_of_a_run_is_another_trial_and_trials_have_the_names_of_tensorboard_s_runs(tmp_path, origin):
    """Story: the trial was the absolute path, cut off, of the run's first folder, and a copy merged with it."""
    options = dataclasses.replace(OPTIONS, train=TrainConfig(**{origin: str(tmp_path / "parent")}))
    for name in ("a/logs", "b/logs"):
        board_of(tmp_path / name, options).start(0, 0)
    contents = b"".join(path.read_bytes() for path in tmp_path.rglob("events.*"))
    assert str(tmp_path).encode() not in contents and b"parent" in contents
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(tmp_path))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(tmp_path))
    context = backend_context.Context(base_plugin.TBContext(multiplexer=multiplexer, data_provider=provider))
    request = api_pb2.ListSessionGroupsRequest(start_index=0, slice_size=9, allowed_statuses=api_pb2.Status.values())
    handler = list_session_groups.Handler(RequestContext(), context, "", request)
    assert [group.name for group in handler.run().session_groups] == ["a/logs", "b/logs"]


def test_options_that_changed_replace_those_in_the_hparams_tab(tmp_path):
    board_of(tmp_path).start(0, 0)
    draw(tmp_path, [10])
    changed = dataclasses.replace(OPTIONS, train=TrainConfig(train_steps=7))
    board_of(tmp_path, changed).start(10, 10)
    expected = [(ONCE[0], 10), (ONCE[1], 10), (ONCE[2], 0)]  # The columns too: another one differs.
    assert sorted(once_written(tmp_path)) == expected
    board_of(tmp_path, changed).start(10, 10)
    assert sorted(once_written(tmp_path)) == expected
    assert loss_steps_of(tmp_path) == [10]


def loss_steps_of(folder) -> list[int]:
    events = (event for path in sorted(folder.iterdir()) for event in tf.compat.v1.train.summary_iterator(str(path)))
    return [event.step for event in events for value in event.summary.value if value.tag == "train/loss"]


def test_the_hparams_tab_has_every_option_and_the_scores_of_validation():
    """As TensorBoard's own plugin reads them."""
    experiment, session = (Summary.FromString(each).value[0].metadata for each in hparams.summaries(OPTIONS))
    columns = metadata.parse_experiment_plugin_data(experiment.plugin_data.content)
    names = {"architecture", *run_options.option_names()}
    assert {info.name for info in columns.hparam_infos} == names
    expected = [(f"valid/{name}", f"validation {name}") for name in ("BLEU", "loss", "perplexity")]
    found = [(info.name.tag, info.display_name) for info in columns.metric_infos]
    assert found == [(tag.lower(), name) for tag, name in expected]
    row = metadata.parse_session_start_info_plugin_data(session.plugin_data.content)
    assert row.hparams["d_model"].number_value == 512 and row.hparams["dtype"].string_value == "float32"
    assert row.hparams.keys() == names


@pytest.mark.parametrize("compared", [None, {"dropout", "seed"}])
def test_what_differs_comes_first_in_the_hparams_tab(compared):
    """As TensorBoard's own plugin orders the columns: by `differs`, then by name."""
    options = dataclasses.replace(OPTIONS, model=ModelConfig(norm="pre", d_ff=64))
    columns = Summary.FromString(hparams.summaries(options, compared)[0]).value[0].metadata
    experiment = metadata.parse_experiment_plugin_data(columns.plugin_data.content)
    backend_context._sort_and_reduce_to_hparams_limit(experiment)
    expected = sorted(compared or {name for values in options.differing().values() for name in values})
    assert [info.name for info in experiment.hparam_infos][: len(expected)] == expected
    assert {"norm", "d_ff"} <= {*expected} or compared


def test_other_columns_of_the_hparams_tab_are_told_apart_and_starts_are_not():
    (columns, row), (others, _) = hparams.summaries(OPTIONS), hparams.summaries(OPTIONS)
    changed = Summary.FromString(others)
    data = metadata.parse_experiment_plugin_data(changed.value[0].metadata.plugin_data.content)
    del data.hparam_infos[0]
    contents = [Summary.FromString(each).value[0].metadata.plugin_data.content for each in (columns, others, row)]
    another = plugin_data_pb2.HParamsPluginData(version=0, experiment=data).SerializeToString()
    first, same, of_row = map(hparams.comparable, contents)
    assert first == same != hparams.comparable(another) and of_row != first
    later = plugin_data_pb2.HParamsPluginData.FromString(contents[2])
    later.session_start_info.start_time_secs += 9
    assert hparams.comparable(later.SerializeToString()) == of_row


def test_options_given_as_numbers_of_numpy_are_shown_too():
    """As a search over options in Python gives them."""
    options = run_options.Options(
        model=ModelConfig(dropout=np.float64(0.25)), train=TrainConfig(dtype=np.str_("bfloat16"))
    )
    columns, row = (Summary.FromString(each).value[0].metadata for each in hparams.summaries(options))
    types = {
        info.name: info.type for info in metadata.parse_experiment_plugin_data(columns.plugin_data.content).hparam_infos
    }
    values = metadata.parse_session_start_info_plugin_data(row.plugin_data.content).hparams
    assert (types["dropout"], values["dropout"].number_value) == (api_pb2.DATA_TYPE_FLOAT64, 0.25)
    assert (types["dtype"], values["dtype"].string_value) == (api_pb2.DATA_TYPE_STRING, "bfloat16")


def kinds(folder) -> dict:
    """Which plugin shows a tag, and its description."""
    events = (event for path in sorted(folder.iterdir()) for event in tf.compat.v1.train.summary_iterator(str(path)))
    values = (value for event in events for value in event.summary.value)
    return {value.tag: (value.metadata.plugin_data.plugin_name, value.metadata.summary_description) for value in values}


def test_numbers_texts_images_and_arrays_are_shown_each_in_its_way(tmp_path):
    images = np.zeros([5, 4, 4, 3], np.uint8)
    metrics = {
        "train/learning_rate": 1.0, "config": "text", "attention": images, "weights/a": np.ones([3, 2], np.float32),
    }  # fmt: skip
    TensorBoardWriter(tmp_path).write(1, metrics)
    found = kinds(tmp_path)
    expected = {"train/learning_rate": "scalars", "config": "text", "attention": "images", "weights/a": "histograms"}
    assert {tag: plugin for tag, (plugin, _) in found.items()} == expected
    assert found["train/learning_rate"][1] == scalars.DESCRIPTIONS["train/learning_rate"]
    events = (event for path in tmp_path.iterdir() for event in tf.compat.v1.train.summary_iterator(str(path)))
    [shown] = [value for event in events for value in event.summary.value if value.tag == "attention"]
    assert len(shown.tensor.string_val) == 2 + 5, "width, height and each image"


def test_the_peak_memory_of_a_process_is_in_gib(monkeypatch):
    monkeypatch.setattr(scalars.machine, "peak_memory", lambda: 3 * 2**29)
    assert scalars.peak_memory() == {"utilization/peak_memory_gib": 1.5}


def test_charts_are_of_curves_that_there_are():
    layout = layout_pb2.Layout.FromString(
        Summary.FromString(scalars.layout(OPTIONS.task.metrics)).value[0].tensor.string_val[0]
    )
    tags = [tag for category in layout.category for chart in category.chart for tag in chart.multiline.tag]
    assert layout.category[0].title == "Training and validation"
    described = scalars.descriptions(OPTIONS.task.metrics)
    assert all(described(tag.strip("^$")) for tag in tags)
    charts, others = (
        {chart.title: list(chart.multiline.tag) for chart in category.chart} for category in layout.category[:2]
    )
    both = {"Loss": ["^train/loss$", "^valid/loss$"], "Perplexity": ["^train/perplexity$", "^valid/perplexity$"]}
    assert charts == {**both, "BLEU": ["^valid/bleu$"]}
    assert others == {"Learning rate": ["^train/learning_rate$"], "Gradient norm": ["^train/gradient_norm$"]}
    assert described("train/bleu") is None and "one layer" in described("train_gradient_norm/encoder_0")
