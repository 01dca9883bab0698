"""One process at a time in a folder, and a kill gives the lock back."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from t2t_keras import lock

HOLDER = """
import pathlib, sys, time
from t2t_keras import lock
with lock.exclusive(pathlib.Path(sys.argv[1]), "runs/x"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_another_process_is_refused_until_the_first_is_killed(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "lock")], stdout=subprocess.PIPE, env=environment)
    try:
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(BlockingIOError, match=f"runs/x is in use by process {holder.pid} on "),
            lock.exclusive(tmp_path / "lock", "runs/x"),
        ):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with lock.exclusive(tmp_path / "lock", "runs/x"):
        assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")


def test_a_process_that_waits_says_for_whom_and_gets_the_lock_after_it(tmp_path):
    environment, said, ended = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, [], []
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "lock")], stdout=subprocess.PIPE, env=environment) as holder:

        def end() -> None:
            ended.append(True)
            holder.kill()

        def wait(text: str) -> None:
            said.append(text)
            threading.Timer(0.5, end).start()

        assert holder.stdout.readline() == b"held\n"
        with lock.exclusive(tmp_path / "lock", "data/x", wait):
            assert ended
            assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")
    assert [text.startswith(f"data/x is in use by process {holder.pid} on ") for text in said] == [True]
    assert (tmp_path / "lock").read_bytes() == b""


def test_the_lock_is_given_back_after_an_error(tmp_path):
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), lock.exclusive(tmp_path / "new" / "lock", "x"):
            raise ZeroDivisionError
