"""The first signal is a request, the second the end; and a time limit. Signals are real ones."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from t2t_keras.interruption import Interruption

BOTH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


@BOTH
def test_the_first_signal_is_a_request_that_names_it(number):
    with Interruption() as interruption:
        assert interruption.reason == ""
        os.kill(os.getpid(), number)
        assert number.name in interruption.reason


@BOTH
def test_the_second_signal_ends_the_process_at_once(number):
    program = (
        "import os, time\nfrom t2t_keras.interruption import Interruption\n"
        f"with Interruption():\n    for _ in range(2):\n        os.kill(os.getpid(), {int(number)})\n    time.sleep(60)\n"
    )
    began = time.monotonic()
    assert (
        subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}).returncode == -number
    )
    assert time.monotonic() - began < 30


def test_outside_the_context_signals_are_handled_as_before():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with Interruption():
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] != before
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_work_that_may_be_thrown_away_ends_at_the_signal():
    with Interruption() as interruption:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        began = time.monotonic()
        assert interruption.unless_told(lambda: time.sleep(20) or "done") is None
        assert time.monotonic() - began < 10
        assert "SIGTERM" in interruption.reason
        assert interruption.unless_told(lambda: "done") is None  # Told already.


def test_work_that_is_not_told_to_end_gives_its_result_and_its_errors():
    with Interruption() as interruption:
        assert interruption.unless_told(lambda: "done") == "done"
        with pytest.raises(ZeroDivisionError):
            interruption.unless_told(lambda: 1 / 0)


def test_a_time_limit_is_a_request_as_well():
    with Interruption(max_hours=0.2 / 3600) as interruption:
        assert interruption.reason == ""
        time.sleep(0.25)
        assert "--max_hours" in interruption.reason


def test_another_thread_than_the_main_one_trains_without_handling_signals():
    """Python lets only the main thread do so; a notebook or a server may train in another."""
    seen = []

    def work():
        with Interruption() as interruption:
            seen.append(interruption.reason)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [""]
