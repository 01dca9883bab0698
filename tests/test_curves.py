"""The curves of runs as a picture and a table, and the program that compares runs."""

import csv
import io
import math
import os
import pathlib
import shutil
import subprocess
import sys
import types

import numpy as np
import programs
import pytest
import tensorflow as tf
import toy
from google.protobuf import text_format
from logged import logged
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
from tensorboard.plugins.projector import ProjectorConfig

from t2t_keras.reporting import curves, embedding_projector, event_files, figures, pictures
from t2t_keras.reporting.event_files import read_scalars
from t2t_keras.reporting.tensorboard import TensorBoardWriter
from t2t_keras.training.state import TrainState

pytestmark = pytest.mark.usefixtures("drawn_curves")
THIRD = float(np.float32(1 / 3))  # A number that needs all digits of a float32.


def train_points(model_dir: pathlib.Path, steps, loss: float = 3.0) -> TensorBoardWriter:
    """The points of a run's training, as the loop writes them, without a checkpoint."""
    board = TensorBoardWriter(model_dir / "logs", config="| option |")
    for step in steps:
        scalars = {"train/loss": loss / step, "train/learning_rate": 1e-4 * step}
        board.write(step, scalars | {"utilization/target_tokens_per_second": 100.0 * step})
    return board


@pytest.fixture
def model_dir(tmp_path) -> pathlib.Path:
    """A run of three points and a validation."""
    folder = tmp_path / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"version": 1, "model": {}}')
    train_points(folder, [10, 20, 30]).write(20, {"valid/loss": THIRD, "valid/bleu": 12.5, "valid/samples": "| text |"})
    return folder


def update(model_dir: pathlib.Path) -> None:
    curves.update(model_dir, read_scalars(model_dir / "logs"))


def table(model_dir: pathlib.Path) -> list[dict]:
    return list(csv.DictReader(io.StringIO((model_dir / "curves.csv").read_text())))


def test_scalars_are_read_as_tensorflow_reads_them(model_dir):
    expected = {}
    for path in (model_dir / "logs").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    expected.setdefault(value.tag, {})[event.step] = tf.make_ndarray(value.tensor).item()
    assert read_scalars(model_dir / "logs") == expected
    assert expected["valid/loss"] == {20: THIRD}


def test_a_point_that_is_being_written_is_left_out(model_dir):
    [path] = (model_dir / "logs").iterdir()
    whole = read_scalars(model_dir / "logs")
    path.write_bytes(path.read_bytes() + path.read_bytes()[:100])
    assert read_scalars(model_dir / "logs") == whole
    content = path.read_bytes()
    for length in (0, 11, 30, 200, len(content) - 103):
        path.write_bytes(content[:length])
        found = read_scalars(model_dir / "logs")
        assert all(points.items() <= whole[tag].items() for tag, points in found.items())
        assert len(found) < len(whole) or length > 200


def test_only_what_has_been_written_since_is_read_again(model_dir, monkeypatch):
    """Also where the last record was incomplete, and of a further file."""
    read, parse = [], event_files.Event.FromString
    noted = types.SimpleNamespace(FromString=lambda record: read.append(record) or parse(record))
    monkeypatch.setattr(event_files, "Event", noted)
    logs = event_files.ScalarReader(model_dir / "logs")
    [path] = (model_dir / "logs").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    assert "valid/bleu" in logs.read() and 20 in logs.read()["valid/bleu"]
    number = len(read)
    path.write_bytes(whole)
    train_points(model_dir, [40])
    found = logs.read()
    assert len(read) - number == 1 + 4  # The last one, and a new file's: its version and three points.
    assert found["train/loss"][40] == np.float32(3 / 40) and logs.read() == found and len(read) - number == 5
    assert read_scalars(model_dir / "logs") == found


def written(path: pathlib.Path, values: dict[int, list]) -> None:
    """An event file of values by step."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for step, summary in values.items():
            writer.write(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=summary)).SerializeToString())


def test_scalars_are_single_floats_in_either_form_and_in_the_order_of_their_steps(tmp_path):
    """TensorFlow may write a number as such or as bytes; lists of numbers and whole numbers are none of ours."""
    shape = {"dim": [{"size": 1}]}
    several = {
        "bytes": {"tensor_content": np.float32(0.5).tobytes()},
        "number": {"float_val": [0.25]},
        "list": {"float_val": [0.75], "tensor_shape": shape},
        "bytes of a list": {"tensor_content": bytes(4), "tensor_shape": shape},
        "empty": {},
        "bytes of two": {"tensor_content": bytes(8)},
        "whole": {"dtype": 3, "int_val": [3], "tensor_content": bytes(4)},
    }
    tensors = {tag: tensor_pb2.TensorProto(**{"dtype": 1, **fields}) for tag, fields in several.items()}
    values = [summary_pb2.Summary.Value(tag=tag, tensor=tensor) for tag, tensor in tensors.items()]
    written(tmp_path / "events.out.tfevents.1", {20: values, 10: values[:1]})
    found = read_scalars(tmp_path)
    assert found == {"bytes": {10: 0.5, 20: 0.5}, "number": {20: 0.25}}
    assert list(found["bytes"]) == [10, 20]


def test_of_two_files_the_one_that_was_begun_last_counts(tmp_path):
    """Their names have numbers of any number of digits."""
    for name, number in (("10.host.5.2", 2.0), ("9.host.5.10", 1.0), ("10.host.5.11", 3.0)):
        value = summary_pb2.Summary.Value(tag="a", tensor=tensor_pb2.TensorProto(dtype=1, float_val=[number]))
        written(tmp_path / f"events.out.tfevents.{name}", {1: [value]})
    assert read_scalars(tmp_path) == {"a": {1: 3.0}}


def event_of(step: int) -> bytes:
    value = summary_pb2.Summary.Value(tag="a", tensor=tensor_pb2.TensorProto(dtype=1, float_val=[1.0]))
    return event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[value])).SerializeToString()


def test_a_record_that_is_none_of_tensorboard_ends_what_is_read_of_a_file(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "events.out.tfevents.1")) as writer:
        for each in (event_of(1), b"no event", event_of(2)):
            writer.write(each)
    assert read_scalars(tmp_path) == {"a": {1: 1.0}}


def test_a_record_that_is_far_too_long_is_not_read(tmp_path):
    """As of a stranger's sparse file."""
    path = tmp_path / "events.out.tfevents.1"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(event_of(1))
    with path.open("ab") as file:
        file.write((2**36).to_bytes(8, "little") + bytes(4))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + 2**36 + 4)
    with tf.io.TFRecordWriter(str(tmp_path / "events.out.tfevents.2")) as writer:
        writer.write(event_of(2))
    assert read_scalars(tmp_path) == {"a": {1: 1.0, 2: 1.0}}


def test_a_pipe_among_the_event_files_is_not_opened(tmp_path):
    """Story: a program waited for ever for somebody to write into it."""
    with tf.io.TFRecordWriter(str(tmp_path / "events.out.tfevents.2")) as writer:
        writer.write(event_of(1))
    os.mkfifo(tmp_path / "events.out.tfevents.1")
    pipe = os.open(tmp_path / "events.out.tfevents.1", os.O_RDWR)  # So that a fault fails and does not wait.
    try:
        assert read_scalars(tmp_path) == {"a": {1: 1.0}}
        TensorBoardWriter(tmp_path).start(0, 0)
        assert read_scalars(tmp_path) == {}
    finally:
        os.close(pipe)


def test_a_large_file_is_read_record_by_record(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "events.out.tfevents.1")) as writer:
        for step in range(20):
            value = [tf.compat.v1.Summary.Value(tag="train/loss", simple_value=0, node_name="x" * 2**20)]
            writer.write(tf.compat.v1.Event(step=step, summary=tf.compat.v1.Summary(value=value)).SerializeToString())
    with toy.memory_below(8 * 2**20):
        read_scalars(tmp_path)


def test_the_table_has_a_row_for_each_step_and_an_empty_cell_where_nothing_was_measured(model_dir):
    update(model_dir)
    rows = table(model_dir)
    assert [row["step"] for row in rows] == ["10", "20", "30"]
    assert [row["valid/bleu"] for row in rows] == ["", "12.5", ""]
    tags = "train/learning_rate train/loss utilization/target_tokens_per_second valid/bleu valid/loss"
    assert list(rows[0]) == ["step", *tags.split()]
    assert np.float32(rows[1]["valid/loss"]) == np.float32(THIRD)


def test_steps_are_in_order_in_the_table_and_a_run_without_points_has_none(tmp_path, drawn):
    assert curves.as_csv({"a": {16: 1.0, 3: 2.0}, "b": {8: 0.5}}) == "step,a,b\n3,2,\n8,,0.5\n16,1,\n"
    curves.update(tmp_path, {})
    assert drawn == [] and list(tmp_path.iterdir()) == []


def test_a_run_has_points_where_one_is_finite(model_dir):
    shutil.rmtree(model_dir / "logs")
    board = TensorBoardWriter(model_dir / "logs")
    board.write(1, {"train/loss": math.nan})
    with pytest.raises(ValueError, match="has no points yet"):
        curves.read(model_dir)
    board.write(2, {"train/loss": 0.0})
    assert curves.read(model_dir)["train/loss"][2] == 0


def test_after_a_kill_and_a_resume_each_step_is_there_once_with_its_last_value(model_dir):
    TensorBoardWriter(model_dir / "logs").start(20, 20)
    train_points(model_dir, [30, 40], loss=6.0)
    update(model_dir)
    losses = {row["step"]: float(row["train/loss"]) for row in table(model_dir)}
    assert losses == pytest.approx({"10": 0.3, "20": 0.15, "30": 0.2, "40": 0.15})


def lines(figure) -> dict[str, list]:
    """The curves of each panel of a figure, by the panel's title."""
    return {axes.get_title(loc="left"): axes.lines for axes in figure.axes}


def test_the_picture_of_a_run_shows_loss_quality_rate_and_speed_with_their_units(model_dir):
    figure = curves.figure({"mine": curves.read(model_dir)})
    numbers = {title: len(found) for title, found in lines(figure).items()}
    assert numbers == {"Loss": 2, "BLEU": 1, "Learning rate": 1, "Speed": 1}
    assert all(axes.get_xlabel() == "update" and axes.get_ylabel() for axes in figure.axes)
    assert "mine" in figure.get_suptitle() and "BLEU 12.5 at update 20" in figure.get_suptitle()
    [speed] = lines(figure)["Speed"]
    assert list(speed.get_xdata()) == [10, 20, 30] and list(speed.get_ydata()) == [1000, 2000, 3000]


@pytest.mark.parametrize(
    ("tag", "title"),
    [("valid/bleu", "best BLEU 30.0 at update 2,000"), ("valid/loss", "best validation loss 10.000 at update 10")],
)
def test_the_title_has_the_best_validation_which_need_not_be_the_first_or_the_last(tag, title):
    figure = curves.figure({"mine": {tag: {1: math.nan, 5: 20.0, 10: 10.0, 2000: 30.0, 3000: 25.0, 4000: math.nan}}})
    assert figure.get_suptitle() == f"Training of mine: {title}"


def test_of_validations_without_a_bleu_the_title_has_the_last_which_is_the_checkpoint_that_is_kept():
    points, state = {10: 0.0, 20: 0.0, 30: 0.0}, TrainState()
    for state.step, score in points.items():
        state.count_validation(score)
    figure = curves.figure({"mine": {"valid/bleu": points}})
    assert state.best_step == 30 and figure.get_suptitle() == "Training of mine: best BLEU 0.0 at update 30"


def test_the_axis_of_a_loss_leaves_out_the_first_updates_of_each_run():
    """The first twentieth of a curve, whose loss is several times higher."""
    first = {
        "train/loss": {step: 9.0 if step < 2 else 5.0 - step / 100 for step in range(40)},
        "valid/loss": {20: 3.0, 40: 2.0},
    }
    second = {
        "train/loss": {step: 8.0 if step < 1 else 4.96 - step / 100 for step in range(38)},
        "train/learning_rate": {1: 2.0, 40: 0.5},
    }
    only_second = {axes.get_title(loc="left"): axes for axes in curves.figure({"b": second}).axes}
    assert only_second["Loss"].get_ylim()[1] == pytest.approx(1.05 * 4.95)
    for runs in ({"a": first}, {"a": first, "b": second}, {"b": second, "a": first}):
        axes = {axes.get_title(loc="left"): axes for axes in curves.figure(runs).axes}
        assert axes["Loss"].get_ylim()[1] == pytest.approx(1.05 * 4.98)
        assert axes["Loss"].get_xlim() == (0, pytest.approx(1.02 * 40))
    assert axes["Learning rate"].get_ylim()[1] > 2 and axes["Speed"].get_ylim()[0] == 0


def test_the_axis_of_a_loss_reaches_where_it_rises_again():
    """Story: the validation loss of a run that overfitted left the picture."""
    run = {
        "train/loss": {step: 5.0 / step for step in range(1, 41)},
        "valid/loss": {10: 2.0, 20: 1.0, 30: 6.0, 40: 4.0},
    }
    assert curves.figure({"a": run}).axes[0].get_ylim()[1] == pytest.approx(1.05 * 6.0)


@pytest.fixture
def drawn(monkeypatch) -> list[dict]:
    """The scalars of each picture, which is not drawn."""
    found = []
    monkeypatch.setattr(curves, "picture", lambda runs: found.append(runs) or b"a picture")
    return found


def test_each_run_is_drawn_under_its_own_name(model_dir, tmp_path, drawn):
    for name, loss in (("second", 5.0), ("first", 7.0)):
        shutil.copytree(model_dir, tmp_path / name / "mine")
        train_points(tmp_path / name / "mine", [30], loss=loss * 30)
    train_points(model_dir, [30], loss=0.5 * 30)
    others = [tmp_path / name / "mine" for name in ("second", "first", "first/../second")]
    curves.compare([others[0], model_dir, *others[1:]], tmp_path / "all.png")
    [runs] = drawn
    losses = {name: scalars["train/loss"][30] for name, scalars in runs.items()}
    assert losses == {"second/mine": 5, "runs/mine": 0.5, "first/mine": 7}
    assert (tmp_path / "all.png").read_bytes() == b"a picture"
    update(model_dir)
    assert drawn[1] == {"mine": curves.read(model_dir)}


def test_updates_are_whole_numbers_also_where_there_are_few():
    ticks = curves.figure({"mine": {"valid/loss": {1: 9.0, 2: 5.0}}}).axes[0].get_xticks()
    assert ticks.tolist() == [round(tick) for tick in ticks] and len(ticks) > 1
    many = curves.figure({"mine": {"valid/loss": {1: 9.0, 500: 5.0}}}).axes[0].get_xticks()
    assert many[:6].tolist() == list(range(0, 501, 100))


def test_without_bleu_and_perplexity_it_shows_the_first_other_figure_of_validation():
    names = "train/gradient_norm", "train/right_tags", "valid/loss", "valid/right_tags", "valid/z"
    figure = curves.figure({"mine": {name: {1: 0.5, 2: 0.75} for name in names}})
    assert len(lines(figure)["Right tags"]) == 2
    assert list(lines(figure)) == ["Loss", "Right tags", "Learning rate", "Speed"]
    assert [axes.get_ylabel() for axes in figure.axes][1] == "right tags"


def test_quality_is_bleu_or_perplexity_or_another_figure_of_validation():
    perplexity = {"train/perplexity": {1: 900.0, 2: 5.0}, "valid/perplexity": {2: 6.0}}
    accuracy = {"train/accuracy": {1: 0.5}, "valid/accuracy": {1: 0.25}, "valid/loss": {1: 1.0}}
    accuracy["train/perplexity"] = {1: 9.0}
    for scalars, expected in (
        (perplexity | {"valid/bleu": {2: 20.0}}, ("BLEU", "linear", 1)),
        (perplexity, ("Perplexity", "log", 2)),
        (accuracy, ("Accuracy", "linear", 2)),
    ):
        axes = curves.figure({"a": scalars}).axes[1]
        assert (axes.get_title(loc="left"), axes.get_yscale(), len(axes.lines)) == expected
    loss = curves.figure({"a": perplexity}).axes[0]
    assert loss.get_ylim() == (0, 1) and [text.get_text() for text in loss.texts] == ["no points yet"]


@pytest.mark.parametrize(("tag", "expected"), [
    ("valid/bleu", ["nats per sub-word", "BLEU of greedy translations", "target tokens per second"]),
    ("valid/accuracy", ["nats", "accuracy", "targets per second"]),
])  # fmt: skip
def test_units_are_those_of_translation_for_its_runs_alone(tag, expected):
    """Story: the curves of a classifier, whose loss is that of a text, had nats per sub-word and tokens per second."""
    loss, quality, _, speed = curves.figure({"a": {"train/loss": {1: 2.0}, "valid/loss": {1: 2.0}, tag: {1: 1.0}}}).axes
    assert [axes.get_ylabel() for axes in (loss, quality, speed)] == expected


def test_several_runs_have_no_smoothed_loss_and_many_points_no_markers():
    run = {
        name: {step: 1.0 for step in range(number)}
        for name, number in (("train/loss", 50), ("train/smoothed_loss", 50), ("valid/loss", 40))
    }
    many = run | {"valid/loss": {step: 1.0 for step in range(41)}}
    assert len(lines(curves.figure({"a": run}))["Loss"]) == 3
    found = lines(curves.figure({"a": run, "b": many, "c": {"train/loss": {1: 1.0}}}))["Loss"]
    markers = [(len(line.get_xdata()), line.get_marker()) for line in found]
    assert markers == [(50, ""), (50, ""), (1, "o"), (40, "o"), (41, "")]


def test_a_dollar_sign_in_the_name_of_a_run_begins_no_formula():
    one = curves.figure({"a$b$": {"train/loss": {1: 1.0}}})
    two = curves.figure({name: {"train/loss": {1: 1.0}} for name in ("a$b$", "$c$")})
    shown = [one._suptitle, *two.legends[0].get_texts()]
    assert [text.get_text() for text in shown] == ["Training of a$b$", "a$b$", "$c$"]
    assert not any(text.get_parse_math() for text in shown)


def test_bytes_of_a_name_that_are_no_utf_8_are_drawn_as_such():
    """Story: a traceback of matplotlib, for the folder of a run that came from an archive of another system."""
    name, shown = os.fsdecode(b"M\xfcller"), "M\ufffdller"
    one, two = (curves.figure({each: {"train/loss": {1: 1.0}} for each in names}) for names in ([name], [name, "b"]))
    assert one._suptitle.get_text() == f"Training of {shown}"
    assert [text.get_text() for text in two.legends[0].get_texts()] == [shown, "b"]
    figures.encoded(one, "png")
    figures.encoded(two, "png")


def test_a_picture_is_drawn_where_values_are_not_finite_or_few():
    for points in ({1: math.nan, 2: math.inf}, {1: math.nan, 2: 1.0}, {1: 1.0}):
        scalars = dict.fromkeys(("train/loss", "train/perplexity", "train/learning_rate"), points)
        assert curves.picture({"mine": scalars}).startswith(b"\x89PNG")


def test_each_of_many_runs_has_its_own_colour_and_line_style():
    runs = {str(number): {"valid/bleu": {1: float(number), 2: number + 1.0}} for number in range(28)}
    figure = curves.figure(runs)
    found = lines(figure)["BLEU"]
    assert len({(line.get_color(), line.get_linestyle()) for line in found}) == 28
    assert figure.get_figheight() == pytest.approx(5.8 + 10 * 0.22), "ten rows of names"
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(runs)
    assert [line.get_color() for line in legend.get_lines()] == [line.get_color() for line in found]


@pytest.mark.parametrize("length", [5, 20, 40, 80])
def test_the_names_of_runs_fit_into_the_picture(length):
    drawn = curves.figure({str(number).ljust(length, "n"): {"valid/bleu": {1: 1.0, 2: 2.0}} for number in range(4)})
    drawn.canvas.draw()
    box = drawn.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= drawn.bbox.width and box.y0 >= 0


def test_a_run_without_bleu_hides_that_of_no_other_and_gives_away_no_colour():
    figure = curves.figure({"a": {"valid/loss": {1: 1.0}}, "b": {"valid/bleu": {1: 10.0, 2: 12.0}}})
    [line], [legend] = lines(figure)["BLEU"], figure.legends
    colours = [line.get_color() for line in legend.get_lines()]
    assert line.get_color() == colours[1] != colours[0]


def test_names_of_runs_are_short_and_distinct():
    folders = [pathlib.Path(name) for name in ("/a/x/run", "/b/x/run", "/b/y/other")]
    assert curves.distinct_names(folders) == ["a/x/run", "b/x/run", "b/y/other"]
    assert curves.distinct_names(folders[1:]) == ["run", "other"]


@pytest.fixture
def matrix() -> np.ndarray:
    return np.arange(12, dtype=np.float32).reshape(4, 3)


class Model:
    """As much of a `Transformer` as the pictures read."""

    def __init__(self, matrix: np.ndarray, source: np.ndarray | None = None):
        self.embedding_matrix = tf.Variable(matrix)
        self.source_embedding_matrix = None if source is None else tf.Variable(source)


class Words:
    """As much of `Subwords` as the pictures read."""

    def __init__(self, pieces: tuple[str, ...], source: "Words | None" = None):
        self.pieces, self.source = pieces, source or self


def test_a_picture_that_fails_warns_once_and_the_others_are_still_made(model_dir, matrix, monkeypatch):
    update = pictures.updates(model_dir, Model(matrix), Words(("a", "b", "c", "d")))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # As if it were not installed.
    with logged() as said:
        update(True)
        update(True)
    [warning] = said
    assert "curves" in warning and "matplotlib" in warning
    assert len(table(model_dir)) == 3 and not (model_dir / "curves.png").exists()
    assert (model_dir / "logs" / embedding_projector.CONFIG).exists()


def test_a_full_disk_stops_no_run(model_dir, matrix, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(curves, "write_whole", full)
    monkeypatch.setattr(embedding_projector, "write_whole", full)
    with logged() as said:
        pictures.updates(model_dir, Model(matrix), Words(("a", "b", "c", "d")))(True)
    assert len(said) == 2 and all("No space left" in each and "Training continues" in each for each in said)


def test_a_model_without_an_embedding_matrix_has_no_projector_and_that_is_no_failure(
    model_dir, matrix, drawn, messages
):
    model = Model(matrix)
    model.embedding_matrix = None
    pictures.updates(model_dir, model, Words(("a",)))(True)
    assert messages == [] and not (model_dir / "logs" / embedding_projector.CONFIG).exists()


def test_the_projector_gets_both_matrices_of_two_vocabularies(model_dir, matrix):
    words = Words(("a", "b", "c", "d"), Words(("e", "f")))
    pictures.updates(model_dir, Model(matrix, -matrix[:2]), words)(True)
    folder = model_dir / "logs" / "projector"
    assert np.loadtxt(folder / "vectors.tsv", delimiter="\t").tolist() == matrix.tolist()
    assert np.loadtxt(folder / "source_vectors.tsv", delimiter="\t").tolist() == (-matrix[:2]).tolist()
    assert (folder / "source_subwords.tsv").read_text().splitlines() == ["sub-word\tid", "e\t0", "f\t1"]
    config = text_format.Parse((model_dir / "logs" / embedding_projector.CONFIG).read_text(), ProjectorConfig())
    assert [(each.tensor_path, each.metadata_path) for each in config.embeddings] == [
        (f"projector/{side}vectors.tsv", f"projector/{side}subwords.tsv") for side in ("", "source_")
    ]


def test_the_projector_gets_the_embeddings_of_the_best_validation_with_their_sub_words(model_dir, matrix):
    model = Model(matrix)
    update = pictures.updates(model_dir, model, Words(("<pad>", "▁a", "b\tc", "ü\n")))
    update(True)
    model.embedding_matrix.assign(-matrix)
    update(False)
    folder = model_dir / "logs" / "projector"
    assert np.loadtxt(folder / "vectors.tsv", delimiter="\t").tolist() == matrix.tolist()
    labels = (folder / "subwords.tsv").read_text("utf-8").splitlines()
    assert labels == ["sub-word\tid", "<pad>\t0", "▁a\t1", "b<tab>c\t2", "ü<newline>\t3"]
    config = (model_dir / "logs" / "projector_config.pbtxt").read_text()
    assert '"projector/vectors.tsv"' in config and '"projector/subwords.tsv"' in config


def test_the_projector_gets_the_first_sub_words_with_their_own_embeddings(tmp_path, matrix, monkeypatch):
    monkeypatch.setattr(embedding_projector, "MAX_SUBWORDS", 2)
    tmp_path /= "deep/logs"
    embedding_projector.write(tmp_path, ("a", "b", "c", "d"), matrix + 0.125)
    found = np.loadtxt(tmp_path / "projector" / "vectors.tsv", delimiter="\t")
    assert found.tolist() == [[0.125, 1.125, 2.125], [3.125, 4.125, 5.125]]
    assert (tmp_path / "projector" / "subwords.tsv").read_text().splitlines() == ["sub-word\tid", "a\t0", "b\t1"]


def program(*arguments: str, cwd: pathlib.Path) -> subprocess.CompletedProcess:
    return programs.tool("curves", *arguments, modules=programs.WITHOUT_TENSORFLOW, cwd=cwd)


def test_the_program_compares_runs_and_flags_may_follow_them(model_dir, tmp_path):
    shutil.copytree(model_dir, tmp_path / "other" / "mine")
    result = program("runs/mine", "other/mine", "--output=both.png", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "Wrote both.png.\n"), result.stderr
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("arguments", "code", "message"), [
    ((), 2, "Give the folder of a training run, or several. See --help."),
    (("nowhere",), 1, "nowhere is not a model folder: it has no config.json"),
    (("runs",), 1, "runs is not a model folder: it has no config.json"),
    (("runs/mine", "empty"), 1, "empty/logs has no points yet"),
    (("runs/mine", "--output=x.pdf"), 1, "--output must end in .png. Received: --output=x.pdf."),
    (("runs/mine", "--output=no/x.png"), 1, "--output must lie in a folder that exists. Received: --output=no/x.png."),
])  # fmt: skip
def test_the_program_says_what_is_wrong_in_a_sentence(model_dir, tmp_path, arguments, code, message):
    (tmp_path / "empty").mkdir()
    shutil.copy(model_dir / "config.json", tmp_path / "empty")
    result = program(*arguments, cwd=tmp_path)
    assert result.returncode == code
    [said] = result.stderr.splitlines()
    assert message in said
