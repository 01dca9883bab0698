"""The first signal is a request, the second the end; and a time limit. Signals are real ones."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from t2t_keras import interruption
from t2t_keras.interruption import Interruption

BOTH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


@BOTH
def test_the_first_signal_is_a_request_that_names_it(number):
    with Interruption() as told:
        assert told.reason == ""
        os.kill(os.getpid(), number)
        assert number.name in told.reason


@BOTH
@pytest.mark.parametrize("busy", ["time.sleep(60)", "hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"], ids=["in Python", "in C"])
def test_the_second_signal_ends_the_process_at_once(number, busy):
    """Also where Python's main thread does not come back from a call, as one that waits for a worker which is gone."""
    program = (
        "import hashlib, time\nfrom t2t_keras.interruption import Interruption\n"
        f"with Interruption():\n    print('in', flush=True)\n    {busy}\n    {busy}\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        process.send_signal(number)
        time.sleep(2 * interruption.ECHO_SECONDS)
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(timeout=10) == 128 + number
    finally:
        process.kill()


def test_an_echo_of_a_signal_is_the_same_request(monkeypatch):
    """Ctrl-C reaches a whole group of processes, and a launcher passes it on once more."""
    monkeypatch.setattr(interruption, "ECHO_SECONDS", 60)  # However slow the machine is.
    with Interruption() as told:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        assert "SIGINT" in told.reason


def test_outside_the_context_signals_are_handled_as_before():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with Interruption():
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] != before
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_work_that_may_be_thrown_away_ends_at_the_signal():
    with Interruption() as told:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        began = time.monotonic()
        assert told.unless_told(lambda: time.sleep(20) or "done") is None
        assert time.monotonic() - began < 10
        assert "SIGTERM" in told.reason
        assert told.unless_told(lambda: "done") is None  # Told already.


def test_work_that_is_not_told_to_end_gives_its_result_and_its_errors():
    with Interruption() as told:
        assert told.unless_told(lambda: "done") == "done"
        with pytest.raises(ZeroDivisionError):
            told.unless_told(lambda: 1 / 0)


def test_a_time_limit_is_a_request_as_well_and_counts_from_the_start_of_the_process(monkeypatch):
    with Interruption(max_hours=10) as told:
        assert told.reason == ""
        monkeypatch.setattr(interruption, "STARTED", time.monotonic() - 10 * 3600)
        assert told.reason == "--max_hours=10 are over"


def test_another_thread_than_the_main_one_trains_without_handling_signals():
    """Python lets only the main thread do so; a notebook or a server may train in another."""
    seen = []

    def work():
        with Interruption() as told:
            seen.append(told.reason)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [""]
