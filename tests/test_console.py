"""The progress of a run: a bar in a terminal, lines with the time in a file, the same figures in both."""

import io
import logging
import re
import sys
import time

import programs
import pytest
from logged import logged
from test_training import Run
from toy import pretended_train_step

from t2t_keras.reporting.console import ProgressBar
from t2t_keras.system.log import logger
from t2t_keras.training import loop

LINE = (
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d update (\d+) of 8: "
    r"epoch (\d+), loss ([\d.]+), learning rate ([\d.e-]+), tokens/s ([\d,]+), time left (\d\d:\d\d)"
)


@pytest.fixture
def no_graphs(monkeypatch):
    monkeypatch.setattr(loop, "make_train_step", pretended_train_step([]))


def test_redirected_a_run_writes_one_line_with_the_time_at_each_log_interval(folder, tmp_path, no_graphs, capfd):
    run = Run(folder, tmp_path, log_steps=3)
    lines = capfd.readouterr().err.splitlines()
    found = [re.fullmatch(LINE, line) for line in lines]
    assert all(found) and "\r" not in "".join(lines), lines
    steps, epochs, losses, rates, speeds, left = zip(*(match.groups() for match in found), strict=True)
    assert steps == ("3", "6", "8") and left[-1] == "00:00"
    assert epochs == ("1", "1", "2")  # Of about six updates.
    assert losses == tuple(f"{loss:.3f}" for loss in run.curve("train/loss").values()) == ("3.000",) * 3
    assert rates == tuple(f"{rate:.3g}" for rate in run.curve("train/learning_rate").values())
    assert speeds == tuple(f"{speed:,.0f}" for speed in run.curve("utilization/target_tokens_per_second").values())


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("stderr", [None, Broken()], ids=["closed", "without a reader"])
def test_training_does_not_need_a_reader_of_its_progress(folder, tmp_path, no_graphs, monkeypatch, capfd, stderr):
    """Story: `train.py … 2>&1 | head` lost all updates since the last checkpoint, without a message."""
    monkeypatch.setattr(sys, "stderr", stderr)
    assert Run(folder, tmp_path, log_steps=3).state.step == 8
    assert capfd.readouterr().out == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_where_no_bar_is_shown_nothing_warns_of_widgets_that_it_would_need():
    """Story: tqdm's warning of a notebook without ipywidgets came before training, which shows lines there."""
    code = """
import sys
from t2t_keras.reporting.console import ProgressBar
with ProgressBar(8, 0) as shown:
    shown.update()
assert "tqdm" in sys.modules and "tqdm.auto" not in sys.modules
"""
    result = programs.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_in_a_terminal_a_bar_shows_the_same_figures(folder, tmp_path, no_graphs, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    run = Run(folder, tmp_path, log_steps=3)
    last = sys.stderr.getvalue().split("\r")[-1].strip()
    assert "8/8" in last and "\n" not in last
    assert re.search(r"epoch=2, loss=3\.000, learning rate=[\d.]+, tokens/s=[\d,]+\]", last)
    assert f"tokens/s={run.curve('utilization/target_tokens_per_second')[8]:,.0f}" in last


def test_the_bar_of_a_run_that_goes_on_begins_at_its_checkpoint(folder, tmp_path, no_graphs, monkeypatch):
    Run(folder, tmp_path, train_steps=4)
    monkeypatch.setattr(sys, "stderr", Terminal())
    Run(folder, tmp_path)
    first = next(text for text in sys.stderr.getvalue().split("\r") if text.strip())
    assert "4/8" in first


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_a_worker_that_shows_no_progress_still_logs_messages(monkeypatch, stream, messages):
    monkeypatch.setattr(sys, "stderr", stream())
    with ProgressBar(10, 0, shown=False) as worker:
        worker.update()
        worker.log(1, {"loss": "1"})
        logger.info("a word")
    assert sys.stderr.getvalue() == "" and messages == ["a word"]


def test_the_bar_of_a_resumed_run_begins_where_it_is(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with ProgressBar(10, 4) as shown:
        shown.update()
    first, *_, last = [text for text in sys.stderr.getvalue().split("\r") if text.strip()]
    assert "4/10" in first and "5/10" in last and "updates" in last


def test_the_time_left_is_at_the_pace_since_this_start(monkeypatch, capsys):
    """A run that goes on from update 100 and makes 10 more in 60 seconds has 90 more to make until update 200."""
    seconds = iter([1000.0, 1060.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))
    with ProgressBar(200, 100) as shown:
        shown.log(110, {"loss": "1"})
    assert capsys.readouterr().err.endswith("update 110 of 200: loss 1, time left 09:00\n")


@pytest.mark.parametrize(("seconds", "expected"), [(20, [2, 10]), (1, [10])], ids=["slow", "fast"])
def test_the_time_left_is_told_within_the_first_minute_however_long_updates_take(
    monkeypatch, capsys, seconds, expected
):
    """In a log file, where a line comes every `log_steps` updates otherwise, here 10."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with ProgressBar(200, 0) as shown:
        for step in range(1, 11):
            now[0] += seconds
            if step == 10:
                shown.log(step, {"loss": "1"})
            shown.update()
    steps = [int(step) for step in re.findall(r"update (\d+) of 200", capsys.readouterr().err)]
    assert steps == expected


def test_messages_and_progress_stand_in_one_file_in_the_order_they_were_written(monkeypatch, tmp_path):
    with (tmp_path / "log").open("a") as errors:
        monkeypatch.setattr(sys, "stderr", errors)
        with logged(lambda message: print(message, file=sys.stderr)), ProgressBar(10, 0) as shown:
            shown.log(1, {"loss": "1"})
            logger.info("between")
            shown.log(2, {"loss": "2"})
            logger.info("after")
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.partition(" update ")[2][:1] or line for line in lines] == ["1", "between", "2", "after"]


@pytest.mark.parametrize("handling", [logger, logging.getLogger()], ids=["the package's", "the program's"])
def test_messages_are_written_above_the_bar(monkeypatch, handling):
    """A message printed over a bar would leave the rest of the bar behind it on its line."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    handler = logging.StreamHandler()
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", handling is not logger)
    monkeypatch.setattr(handling, "handlers", [handler])
    monkeypatch.setattr(logger, "isEnabledFor", lambda level: level >= logging.INFO)
    with ProgressBar(10, 0) as shown:
        shown.update()
        logger.info("a message")
    assert handling.handlers == [handler]
    assert "a message" in [text.rpartition("\r")[2] for text in sys.stderr.getvalue().split("\n")]
