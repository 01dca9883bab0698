"""The tf.data service: a dispatcher and two workers in processes of their own make the batches that one machine
makes.
"""

import collections
import concurrent.futures
import errno
import functools
import itertools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time
import types
import uuid

import numpy as np
import programs
import pytest
import tensorflow as tf
from tensorflow.data.experimental import service as tensorflow_service
from test_survival import FLAGS

from t2t_keras.config import EOS
from t2t_keras.data import batching, data_service, shards
from t2t_keras.runs import checkpoint
from tools import data_service as program
from tools.workers import free_ports

ROOT = pathlib.Path(__file__).parent.parent
PAIRS, BUDGET, WINDOWS, MARKS = 230, 240, 3, {"trainer": 60, "one": 61, "two": 62}
FOLDER = pathlib.Path("../shards")  # Relative to the trainer; workers are elsewhere.


@pytest.fixture(scope="module", autouse=True)
def no_checksums():
    """Everyone's copy has marks of its own, so that one table of checksums cannot be right for all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "_fingerprints", lambda contents: tf.zeros(tf.shape(contents), tf.int64))
        yield


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> pathlib.Path:
    """A folder of working directories. `shards` beside them is everyone's own copy, so that a batch tells who made it.

    Pair n is n + 4 in base 50 as the first two ids of both sides, then the mark of the place it was read at.
    """
    base = tmp_path_factory.mktemp("places")
    (base / "shards").symlink_to("/proc/self/cwd/copy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "PAIRS_PER_SHARD", 30)
        for place, mark in MARKS.items():
            draw = np.random.default_rng(5)
            sides = (
                [[n // 50 + 4, n % 50 + 4, *[mark] * draw.integers(1, 22), EOS] for _ in shards.SIDES]
                for n in range(PAIRS)
            )
            pairs = (tuple(np.array(side) for side in pair) for pair in sides)
            shards.write(base / place / "copy", pairs, count=PAIRS, vocab_size=63, seed=1)
    return base


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


class Signatures:
    """A dispatcher and two workers, in processes of their own; `address` is the dispatcher's."""

    def __init__(self, places: pathlib.Path):
        dispatcher, *workers = free_ports(3)
        self.address, self.places, self.processes = f"grpc://localhost:{dispatcher}", places, {}
        self.ports = {"trainer": dispatcher, **dict(zip(("one", "two"), workers, strict=True))}
        self.start(*self.ports)

    def start(self, *names: str) -> None:
        """Starts the dispatcher, which runs where the trainer does, or workers; returns when all are ready."""
        for name in names:
            flags = [f"--port={self.ports[name]}", *([f"--dispatcher={self.address}"] if name != "trainer" else [])]
            command, options = programs.command("data_service", *flags), {"cwd": self.places / name, "env": ENVIRONMENT}
            self.processes[name] = programs.Popen(command, stdout=subprocess.PIPE, text=True, **options)
        for name in names:
            expected = f"A worker of {self.address} is ready at grpc://localhost:{self.ports[name]}\n"
            if name == "trainer":
                expected = f"A dispatcher is ready: train with --data_service={self.address}\n"
            assert self.processes[name].stdout.readline() == expected

    def kill(self, *names: str) -> None:
        for process in (self.processes[name] for name in names):
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture(scope="module")
def service(places):
    """The dispatcher's address; the processes have to end when they are told to."""
    started = Signatures(places)
    try:
        yield started.address
        numbers = signal.SIGTERM, signal.SIGINT, signal.SIGTERM
        for process, number in zip(started.processes.values(), numbers, strict=True):
            process.send_signal(number)
            assert process.wait(timeout=20) == -number
    finally:
        started.kill(*started.processes)


@pytest.fixture
def frail(places):
    """A service for one test."""
    started = Signatures(places)
    yield started
    started.kill(*started.processes)


@pytest.fixture
def trainer(places, monkeypatch):
    """This process is where the trainer is, and has small windows."""
    monkeypatch.setattr(batching, "WINDOW_PAIRS", 90)
    monkeypatch.chdir(places / "trainer")


@pytest.fixture
def batches(service, trainer):
    """Iterators over what the service sends, each of a job of its own unless told otherwise."""

    return functools.partial(served_by, service)


def served_by(address: str, job: str = "", start=batching.START):
    given = {"service": address, "job": job or uuid.uuid4().hex, "batch_tokens": BUDGET, "seed": 1, "start": start}
    return data_service.batches(FOLDER, **given).as_numpy_iterator()


def local(epochs: int, start=batching.START) -> list[dict]:
    """What one machine makes."""
    return list(batching.batches(FOLDER, batch_tokens=BUDGET, seed=1, start=start, epochs=epochs).as_numpy_iterator())


def names(batch: dict) -> tuple[int, ...]:
    """Which pairs are the rows of a batch."""
    return tuple(((batch["source"][:, 0] - 4) * 50 + batch["source"][:, 1] - 4).tolist())


def composition(listed: list[dict]) -> list[tuple]:
    """Batches as rows and position, in an order that does not depend on theirs."""
    return sorted((names(batch), *batch["position"].tolist()) for batch in listed)


def epoch_of(batch: dict) -> int:
    window, index = batch["position"].tolist()
    return (window - (index == 0)) // WINDOWS


@pytest.mark.medium
def test_every_pair_comes_exactly_once_an_epoch_in_the_batches_that_one_machine_makes(batches):
    expected, served = local(epochs=2), batches()
    for epoch in range(2):
        here = [batch for batch in expected if epoch_of(batch) == epoch]
        received = list(itertools.islice(served, len(here)))
        assert sorted(itertools.chain(*map(names, received))) == list(range(PAIRS))
        assert composition(received) == composition(here)


@pytest.mark.medium
def test_both_workers_make_batches_and_the_trainer_makes_none(batches):
    """Which worker makes how many is a race: the second is waited for, though not for ever."""
    makers, began = set(), time.monotonic()
    for batch in batches():
        makers |= set(batch["source"][:, 2].tolist())
        if len(makers) > 1 or time.monotonic() - began > 60:
            break
    assert makers == {MARKS["one"], MARKS["two"]}


@pytest.mark.medium
def test_from_a_position_the_rest_of_its_epoch_comes_and_then_whole_epochs(batches):
    """A start is a new job: it does not get what an old one, still open, has left."""
    old = batches()
    for _ in range(7):
        newest = batching.Position(*next(old)["position"].tolist())
    rest = local(epochs=2, start=newest)
    received = list(itertools.islice(batches(start=newest), len(rest)))
    assert composition(received) == composition(rest)
    assert [epoch_of(batch) for batch in received] == [epoch_of(batch) for batch in rest]


@pytest.mark.medium
def test_trainers_of_one_job_share_an_epoch_out(batches):
    job, received, ahead = uuid.uuid4().hex, [], set()
    trainers = [batches(job), batches(job)]
    while len(ahead) < 2:
        for index, trainer in enumerate(trainers):
            batch = next(trainer)
            received.append(batch)
            if epoch_of(batch) > 0:
                ahead.add(index)
    assert composition(batch for batch in received if epoch_of(batch) == 0) == composition(local(epochs=1))


def test_an_address_where_nothing_answers_is_reported_within_seconds_with_what_to_start():
    [port] = free_ports(1)
    began = time.monotonic()
    start = rf"Start .*data_service there, with --host=localhost --port={port}\."
    with pytest.raises(ConnectionError, match=rf"at grpc://localhost:{port}\. .*refused\. {start}"):
        data_service.check(f"grpc://localhost:{port}", seconds=0.5)
    assert 0.5 <= time.monotonic() - began < 5


def test_a_dispatcher_that_is_about_to_start_is_waited_for():
    [port] = free_ports(1)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(data_service.check, f"grpc://localhost:{port}", seconds=30)
        time.sleep(0.3)
        assert not waiting.done()
        with socket.create_server(("localhost", port)):
            assert waiting.result(timeout=10) is None


@pytest.mark.parametrize(("proxy", "excepted"), [("", None), ("http://p:1", "other,localhost")])
def test_the_service_is_not_looked_for_behind_a_proxy(monkeypatch, proxy, excepted):
    """Story: the dispatcher was found, and TensorFlow then waited for it without a message."""
    for name in ("grpc_proxy", "https_proxy", "no_grpc_proxy"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("http_proxy", proxy), monkeypatch.setenv("no_proxy", "other")
    with socket.create_server(("localhost", 0)) as listener:
        data_service.check(f"grpc://localhost:{listener.getsockname()[1]}")
    assert (os.environ["no_grpc_proxy"] or None) == excepted


@pytest.mark.parametrize("address", [
    "localhost:5050", "grpc://localhost", "grpc://:5050", "http://localhost:5050", "grpc://h:abc", "grpc://h:99999",
])  # fmt: skip
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ValueError, match=rf"grpc://host:port\. Received: {address}\."):
        data_service.check(address)


@pytest.mark.slow
def test_a_run_trains_from_the_service_and_goes_on_with_two_workers(service, tmp_path):
    """Of two workers, each gets batches of its own, of half the tokens."""
    flags = [flag for flag in FLAGS if flag != "--deterministic"]
    train = programs.command("train", *flags, f"--model_dir={tmp_path}", f"--data_service={service}")
    for command, end in ((train, 4), (programs.command("workers", "2") + train, 7)):
        result = subprocess.run([*command, f"--train_steps={end}"], capture_output=True, text=True, env=ENVIRONMENT)
        assert result.returncode == 0, result.stderr
        assert checkpoint.step_of(checkpoint.kept(tmp_path)[-1]) == end
    assert "Resuming from update 4" in result.stderr and "2 device(s)" in result.stderr


@pytest.mark.parametrize("listener", [{"address": ("", 0), "reuse_port": True}, {"address": ("127.0.0.1", 0)}])
def test_a_port_that_is_taken_is_refused_and_free_when_it_is_given_back(listener):
    """gRPC's servers share a port with whoever lets them: two dispatchers would each get a part of the calls."""
    with socket.create_server(**listener) as taken:
        port = taken.getsockname()[1]
        expected = rf"^Could not listen at port {port} .*Address already in use\)\. Give another `port`\.$"
        with pytest.raises(OSError, match=expected):
            data_service.check_free(port)
    data_service.check_free(port)


def test_a_second_dispatcher_or_worker_at_a_port_that_is_taken_is_refused_in_a_line(service):
    """Story: two dispatchers listened at one port, and a worker registered at one of them by chance."""
    port = service.rpartition(":")[2]
    commands = (programs.command("data_service", f"--port={port}", *of) for of in ([], [f"--dispatcher={service}"]))
    options = {"stderr": subprocess.PIPE, "text": True, "env": ENVIRONMENT}
    for process in [programs.Popen(command, **options) for command in commands]:
        said = process.communicate(timeout=60)[1].splitlines()[-1]
        assert process.returncode == 1 and said.startswith(f"Error: Could not listen at port {port}")


def bound_to(listener: socket.socket) -> bytes:
    return listener.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0")


def test_a_port_that_is_kept_local_takes_calls_of_this_machine_alone():
    """Linux refuses what comes to it from elsewhere; every listener of the port is meant, and no other one."""
    first = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, reuse_port=True)
    port = first.getsockname()[1]
    second = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, reuse_port=True)
    other = socket.create_server(("", 0))
    with first, second, other:
        data_service.keep_local(port)
        assert [bound_to(listener) for listener in (first, second, other)] == [b"lo", b"lo", b""]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_a_connection_that_is_closed_while_listeners_are_looked_for_is_none(monkeypatch):
    def closed(descriptor: int) -> int:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(os, "dup", closed)
    with socket.create_server(("", 0)) as listener:
        data_service.keep_local(listener.getsockname()[1])
        assert bound_to(listener) == b""


def interfaces_of(port: int) -> list[str]:
    """Where the listeners of a port take calls from, as `ss` prints it: `*` is everywhere, `*%lo` this machine."""
    shown = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=True).stdout
    return [line.split()[3].rpartition(":")[0] for line in shown.splitlines()]


@pytest.mark.skipif(not shutil.which("ss"), reason="ss (iproute2) is not installed")
def test_as_localhost_the_service_takes_calls_of_this_machine_alone(service):
    """Story: it listened on every interface, and let whoever reached it read files."""
    assert interfaces_of(int(service.rpartition(":")[2])) == ["*%lo"]


def test_under_another_name_the_service_warns_that_it_listens_everywhere(capsys):
    program.restrict("dispatcher1", 5050)
    assert capsys.readouterr().err.startswith(
        "Warning: TensorFlow listens on port 5050 of every network interface of this machine"
    )


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_where_the_system_cannot_close_the_port_to_others_the_service_does_not_stay(monkeypatch, host):
    def refused(port: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(data_service, "keep_local", refused)
    expected = r"cannot close port 5050 to other machines \(Operation not permitted\)\. Close it with a firewall"
    with pytest.raises(OSError, match=expected):
        program.restrict(host, 5050)


def test_a_worker_registers_under_its_own_name(monkeypatch):
    """And listens at the port of that name."""
    started = {}
    for name, value in {"_HOST": "worker1", "_PORT": 5051, "_DISPATCHER": "grpc://dispatcher1:5050"}.items():
        monkeypatch.setattr(program, name, types.SimpleNamespace(value=value))
    for name in ("check", "check_free"):
        monkeypatch.setattr(data_service, name, lambda *_, **options: None)
    monkeypatch.setattr("t2t_keras.system.tensorflow.hide_gpus", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def worker(config):
        started.update(config._asdict())
        return types.SimpleNamespace(join=lambda: None)

    monkeypatch.setattr(tensorflow_service, "WorkerServer", worker)
    program.serve()
    expected = {"dispatcher_address": "dispatcher1:5050", "worker_address": "worker1:5051", "port": 5051}
    assert expected.items() <= started.items()


class Consumer(threading.Thread):
    """Takes batches, at a trainer's leisure; `epochs` has the pairs of each epoch, in the order they came."""

    def __init__(self, batches):
        super().__init__(daemon=True)
        self.batches, self.epochs, self.makers = batches, collections.defaultdict(list), set()

    def run(self) -> None:
        for batch in self.batches:
            self.epochs[epoch_of(batch)] += names(batch)
            self.makers.add(int(batch["source"][0, 2]))
            time.sleep(0.02)

    def newest(self) -> int:
        return max(self.epochs, default=-1)

    def count(self) -> int:
        return sum(map(len, self.epochs.values()))


def wait(condition, seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


@pytest.mark.slow
def test_a_worker_that_is_lost_costs_its_epoch_what_it_held_and_the_next_ones_nothing(frail, trainer):
    """The trainer waits until the worker is there again, at the same address."""
    consumer = Consumer(served_by(frail.address))
    consumer.start()
    wait(lambda: MARKS["one"] in consumer.makers)
    frail.kill("one")
    received = -1
    while consumer.count() > received:
        received = consumer.count()
        time.sleep(10)
    lost = consumer.newest()
    assert len(consumer.epochs[lost]) < PAIRS
    frail.start("one")
    wait(lambda: consumer.newest() > lost + 2)
    assert consumer.is_alive()
    assert len(set(consumer.epochs[lost])) == len(consumer.epochs[lost])
    for epoch in (lost + 1, lost + 2):
        assert sorted(consumer.epochs[epoch]) == list(range(PAIRS))


@pytest.mark.slow
def test_a_trainer_whose_dispatcher_is_lost_waits_and_a_second_start_with_a_new_service_goes_on(frail, tmp_path):
    flags = [flag for flag in FLAGS if flag not in ("--deterministic", "--train_steps=20")]
    command = programs.command("train", *flags, f"--model_dir={tmp_path}", f"--data_service={frail.address}")

    def reached() -> int:
        kept = checkpoint.kept(tmp_path)
        return checkpoint.step_of(kept[-1]) if kept else 0

    with subprocess.Popen([*command, "--train_steps=100000"], stdout=subprocess.DEVNULL, env=ENVIRONMENT) as process:
        try:
            wait(lambda: reached() > 0)
            frail.kill("trainer")
            step = -1
            while reached() > step:
                step = reached()
                time.sleep(15)
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            time.sleep(2)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) != 0
        finally:
            process.kill()
    frail.kill("one", "two")
    frail.start("trainer", "one", "two")
    end = reached() + 5
    result = subprocess.run([*command, f"--train_steps={end}"], capture_output=True, text=True, env=ENVIRONMENT)
    assert result.returncode == 0, result.stderr
    assert reached() == end


@pytest.mark.medium
def test_a_damaged_record_that_a_worker_finds_is_reported_in_the_same_sentence(service, places, monkeypatch):
    monkeypatch.chdir(places / "trainer")
    monkeypatch.setattr(shards, "_fingerprints", lambda contents: tf.ones(tf.shape(contents), tf.int64))
    expected = r"^Expected intact records.*damaged, the first at byte \d+ of .*`damaged_records=skip`\.$"
    with pytest.raises(ValueError, match=expected), shards.plain_errors():
        next(iter(data_service.batches(FOLDER, service=service, job=uuid.uuid4().hex, batch_tokens=BUDGET, seed=3)))
