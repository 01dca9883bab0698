"""The first signal is a request, the second the end; and a time limit. Signals are real ones."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import programs
import pytest
from test_survival import FLAGS

from t2t_keras.runs import checkpoint
from t2t_keras.training import interruption
from t2t_keras.training.interruption import Interruption

ROOT = pathlib.Path(__file__).parent.parent
BOTH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


@BOTH
def test_the_first_signal_is_a_request_that_names_it(number):
    with Interruption() as stop:
        assert stop.reason == ""
        os.kill(os.getpid(), number)
        assert number.name in stop.reason


@BOTH
@pytest.mark.parametrize(
    "busy", ["time.sleep(60)", "hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"], ids=["in Python", "in C"]
)
def test_the_second_signal_ends_the_process_at_once(number, busy):
    """Also where Python's main thread does not come back from a call, as one that waits for a worker which is gone."""
    program = (
        "import hashlib, time\nfrom t2t_keras.training.interruption import Interruption\n"
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


@pytest.mark.parametrize("session", ["sys.ps1 = '>>> '", ""], ids=["interactive", "program"])
def test_a_second_interrupt_ends_a_run_of_an_interactive_session_and_not_the_session(session):
    """Story: interrupting a notebook's cell twice ended the kernel, and all of its variables were lost."""
    program = (
        f"import os, signal, sys, time\n{session}\nfrom t2t_keras.training import interruption\n"
        "interruption.ECHO_SECONDS = -1\ntry:\n    with interruption.Interruption() as stop:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n        print(stop.reason, flush=True)\n"
        "        while True:\n            os.kill(os.getpid(), signal.SIGINT)\n            time.sleep(0.1)\n"
        "except KeyboardInterrupt:\n    time.sleep(0.2)\n    print('here')\n"
    )
    result = programs.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    expected = (0, "received SIGINT\nhere\n") if session else (128 + signal.SIGINT, "received SIGINT\n")
    assert (result.returncode, result.stdout) == expected


@pytest.mark.parametrize("interactive", [False, True])
def test_an_echo_of_a_signal_is_the_same_request(monkeypatch, interactive):
    """Ctrl-C reaches a whole group of processes, and a launcher passes it on once more."""
    if interactive:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    monkeypatch.setattr(interruption, "ECHO_SECONDS", 60)  # However slow the machine is.
    threads = set(threading.enumerate())
    with Interruption() as stop:
        [listening] = set(threading.enumerate()) - threads
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
            assert "SIGINT" in stop.reason
    listening.join()  # It has read all of them.


def test_signals_that_a_program_handles_itself_do_not_end_it(monkeypatch):
    """Such as those of its child processes and its timers."""
    ended, threads = [], set(threading.enumerate())
    monkeypatch.setattr(interruption, "ECHO_SECONDS", -1)
    monkeypatch.setattr(os, "_exit", ended.append)
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    try:
        with Interruption() as stop:
            for number in before:
                os.kill(os.getpid(), number)
            [listening] = set(threading.enumerate()) - threads
        listening.join()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert ended == [] and stop.reason == ""


def test_outside_the_context_signals_are_handled_as_before():
    own = {number: lambda *_: None for number in (signal.SIGTERM, signal.SIGINT)}
    before = {number: signal.signal(number, handler) for number, handler in own.items()}
    try:
        with Interruption():
            assert all(signal.getsignal(number) != handler for number, handler in own.items())
        assert {number: signal.getsignal(number) for number in own} == own
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_outside_the_context_signals_wake_whom_they_woke_before():
    """The loop of asyncio waits for them so, as in a notebook."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing)
    try:
        with Interruption():
            pass
    finally:
        after = signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)
    assert after == writing


def test_work_that_may_be_thrown_away_ends_at_the_signal():
    with Interruption() as stop:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        began = time.monotonic()
        assert stop.unless_stopped(lambda: time.sleep(20) or "done") is None
        assert time.monotonic() - began < 10
        assert "SIGTERM" in stop.reason
        assert stop.unless_stopped(lambda: "done") is None  # Told already.


def test_work_that_is_not_stopped_gives_its_result_and_its_errors():
    with Interruption() as stop:
        assert stop.unless_stopped(lambda: "done") == "done"
        with pytest.raises(ZeroDivisionError):
            stop.unless_stopped(lambda: 1 / 0)


def test_a_time_limit_is_a_request_as_well_and_counts_from_the_start_of_the_run():
    """Story: it counted from the import, so a notebook that had been open for hours stopped at once."""
    for hours, reason in ((9.9, ""), (10, "reached the time limit max_hours=10")):
        with Interruption(max_hours=10, started=time.monotonic() - hours * 3600) as stop:
            assert stop.reason == reason


def test_no_file_stays_open_afterwards():
    """Story: each run of a process left a pipe open."""

    before, threads = len(os.listdir("/proc/self/fd")), set(threading.enumerate())
    for _ in range(20):
        with Interruption():
            listening = set(threading.enumerate()) - threads
    for thread in listening:
        thread.join()
    assert len(os.listdir("/proc/self/fd")) < before + 10


def test_another_thread_than_the_main_one_trains_without_handling_signals():
    """Python lets only the main thread do so; a notebook or a server may train in another."""
    seen = []

    def work():
        with Interruption() as stop:
            seen.append(stop.reason)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [""]


def start_training(model_dir: pathlib.Path, *flags: str) -> subprocess.Popen:
    """`train.py` as a person starts it in a terminal, which sends Ctrl-C to its group; it would train for hours."""
    steps = ["--train_steps=1000000", *flags, "--valid_steps=1000000"]
    command = programs.command("train", *FLAGS, f"--model_dir={model_dir}", *steps)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return programs.Popen(command, env=environment, text=True, start_new_session=True, **pipes)


def assert_stopped(process: subprocess.Popen, model_dir: pathlib.Path, reason: str) -> None:
    """It saved where it stopped, said why, and ended with the code that README.md promises."""
    said, _ = process.communicate()
    assert process.returncode == 75, said
    (step,) = re.findall(rf"Stopped at \w+ ([\d,]+): {reason}", said)
    assert checkpoint.step_of(checkpoint.kept(model_dir)[-1]) == int(step.replace(",", "")) > 0


@pytest.mark.medium
@pytest.mark.parametrize(("name", "then_a_limit"), [
    ("SIGTERM", False),
    pytest.param("SIGINT", True, marks=pytest.mark.slow),
], ids=["SIGTERM", "Ctrl-C and a limit"])  # fmt: skip
def test_a_run_that_is_stopped_by_a_signal_or_a_time_limit_saves_and_exits_with_75(tmp_path, name, then_a_limit):
    process = start_training(tmp_path)
    try:
        while not checkpoint.kept(tmp_path) and process.poll() is None:
            time.sleep(0.05)
        os.killpg(process.pid, signal.Signals[name])
        assert_stopped(process, tmp_path, f"received {name}")
        if then_a_limit:
            process = start_training(tmp_path, "--max_hours=0.0001")
            assert_stopped(process, tmp_path, "reached the time limit --max_hours=0.0001")
    finally:
        process.kill()
