"""Several processes give what one gives, in its order, and never hang: whoever is killed or interrupted."""

import itertools
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from t2t_keras.data import processes
from t2t_keras.system import machine

HERE = pathlib.Path(__file__).parent


def make_square(offset: int):
    """The first item takes longest."""

    def square(item: int) -> int:
        time.sleep(0.3 * (item == 0))
        return item * item + offset

    return square


def make_harmful():
    def harm(item):
        if item == "raise":
            raise ValueError("Expected a number.")
        os.kill(os.getpid(), item)
        return item

    return harm


def make_own_pid():
    return lambda item: os.getpid()


def make_pid(folder: pathlib.Path, number: int):
    """The first item of each process waits until as many have one."""

    def pid_of(item: int) -> int:
        (folder / str(os.getpid())).touch()
        while len(os.listdir(folder)) < number:
            time.sleep(0.01)
        return os.getpid()

    return pid_of


class SlowToUnpickle:
    """As what imports TensorFlow."""

    def __reduce__(self):
        return time.sleep, (60,)


@pytest.mark.parametrize("number", [1, 3])
def test_results_come_in_the_order_of_the_items(number):
    expected = [item * item + 5 for item in range(20)]
    assert list(processes.ordered(make_square, (5,), iter(range(20)), number)) == expected


def test_one_process_is_this_one(tmp_path):
    assert set(processes.ordered(make_pid, (tmp_path, 1), range(3), 1)) == {os.getpid()}


def test_several_processes_share_the_work_and_end_with_it(tmp_path):
    pids = set(processes.ordered(make_pid, (tmp_path, 2), range(4), 2))
    assert len(pids) == 2 and os.getpid() not in pids
    assert not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids)


def test_only_a_few_items_are_read_ahead():
    items = itertools.count()
    results = processes.ordered(make_square, (0,), items, 2)
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    assert next(items) == 2 * 2 + 2
    results.close()


def test_a_process_that_is_killed_ends_the_work_with_advice():
    with pytest.raises(OSError, match="^Expected 2 processes .* Give fewer `processes`"):
        list(processes.ordered(make_harmful, (), [signal.SIGKILL] * 9, 2))


def test_an_error_in_a_process_is_that_of_the_function():
    with pytest.raises(ValueError, match="^Expected a number.$"):
        list(processes.ordered(make_harmful, (), ["raise"], 2))


def test_ctrl_c_reaches_the_first_process_alone():
    assert list(processes.ordered(make_harmful, (), [signal.SIGINT] * 2, 2)) == [signal.SIGINT] * 2
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def has_ended(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_bytes().split()[2] == b"Z"
    except OSError:
        return True


@pytest.mark.parametrize("starting", [False, True])
def test_processes_end_when_the_first_one_is_killed(starting):
    code = f"""
import itertools, multiprocessing, os, signal
from test_processes import SlowToUnpickle, make_own_pid, make_square, processes

def end(pid):
    print(pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

def items():
    yield 0
    end(multiprocessing.active_children()[0].pid)

if {starting}:
    next(processes.ordered(make_square, (SlowToUnpickle(),), items(), 2))
end(next(processes.ordered(make_own_pid, (), itertools.repeat(0), 2)))
"""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    result = subprocess.run([sys.executable, "-c", code], cwd=HERE, env=environment, stdout=subprocess.PIPE, timeout=60)
    assert result.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 20
    while not has_ended(int(result.stdout)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_error_does_not_wait_for_processes_that_still_start():
    def items():
        yield 0
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(processes.ordered(make_square, (SlowToUnpickle(),), items(), 2))
    assert time.monotonic() - started < 30


def test_that_processes_cannot_start_is_no_error_of_a_file(monkeypatch):
    def submit(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(processes.concurrent.futures.ProcessPoolExecutor, "submit", submit)
    with pytest.raises(
        OSError, match=r"^Expected room for 3 processes. Received: Too many open files. Give fewer `processes`.$"
    ) as raised:
        list(processes.ordered(make_own_pid, (), range(9), 3))
    assert raised.value.errno is None


@pytest.mark.parametrize(("wanted", "size", "free", "number"), [
    (3, 10, 0, 3),
    (0, 2**40, 2**40, 8),
    (0, 2**24 * 3, 2**40, 3),
    (0, 10, 2**40, 1),
    (0, 2**40, 2**31, 2),
    (0, 2**40, float("inf"), 8),
])  # fmt: skip
def test_as_many_processes_as_pay(monkeypatch, wanted, size, free, number):
    monkeypatch.setattr(machine, "cores", lambda: 8)
    monkeypatch.setattr(machine, "free_memory", lambda: free)
    assert processes.number(wanted, size) == number
