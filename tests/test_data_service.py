"""The tf.data service: a dispatcher and two workers in processes of their own make the batches that one machine makes."""

import concurrent.futures
import itertools
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import uuid

import numpy as np
import pytest
import tensorflow as tf
from test_survival import FLAGS

from t2t_keras import batching, checkpoint, data_service, shards
from t2t_keras.config import EOS
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
            sides = ([[n // 50 + 4, n % 50 + 4, *[mark] * draw.integers(1, 22), EOS] for _ in shards.SIDES] for n in range(PAIRS))
            pairs = (tuple(np.array(side) for side in pair) for pair in sides)
            shards.write(base / place / "copy", pairs, count=PAIRS, vocab_size=63, seed=1)
    return base


@pytest.fixture(scope="module")
def service(places):
    """The dispatcher's address; the processes are started at once, and have to end when they are told to."""
    dispatcher, *workers = free_ports(3)
    address = f"grpc://localhost:{dispatcher}"

    def start(place: str, *flags: str) -> subprocess.Popen:
        command = [sys.executable, str(ROOT / "tools/data_service.py"), *flags]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=places / place, env={**os.environ, "PYTHONPATH": str(ROOT)})

    processes = [start("trainer", f"--port={dispatcher}")]
    processes += [start(place, f"--port={port}", f"--dispatcher={address}") for place, port in zip(("one", "two"), workers, strict=True)]
    try:
        assert [process.stdout.readline() for process in processes] == [
            f"A dispatcher is ready: train with --data_service={address}\n",
            *(f"A worker of {address} is ready at grpc://localhost:{port}\n" for port in workers),
        ]
        yield address
        for process, number in zip(processes, (signal.SIGTERM, signal.SIGINT, signal.SIGTERM), strict=True):
            process.send_signal(number)
            assert process.wait(timeout=20) == -number
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture
def batches(service, places, monkeypatch):
    """Iterators over what the service sends, each of a job of its own unless told otherwise."""
    monkeypatch.setattr(batching, "WINDOW_PAIRS", 90)
    monkeypatch.chdir(places / "trainer")

    def served(job: str = "", start=batching.START):
        return data_service.batches(
            FOLDER, service=service, job=job or uuid.uuid4().hex, batch_tokens=BUDGET, seed=1, start=start
        ).as_numpy_iterator()

    return served


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


def test_every_pair_comes_exactly_once_an_epoch_in_the_batches_that_one_machine_makes(batches):
    expected, served = local(epochs=3), batches()
    for epoch in range(3):
        here = [batch for batch in expected if epoch_of(batch) == epoch]
        received = list(itertools.islice(served, len(here)))
        assert sorted(itertools.chain(*map(names, received))) == list(range(PAIRS))
        assert composition(received) == composition(here)


def test_both_workers_make_batches_and_the_trainer_makes_none(batches):
    """Which worker makes how many is a race: the second is waited for, though not for ever."""
    makers, began = set(), time.monotonic()
    for batch in batches():
        makers |= set(batch["source"][:, 2].tolist())
        if len(makers) > 1 or time.monotonic() - began > 60:
            break
    assert makers == {MARKS["one"], MARKS["two"]}


def test_from_a_position_the_rest_of_its_epoch_comes_and_then_whole_epochs(batches):
    """A start is a new job: it does not get what an old one, still open, has left."""
    old = batches()
    for _ in range(7):
        newest = batching.Position(*next(old)["position"].tolist())
    rest = local(epochs=2, start=newest)
    received = list(itertools.islice(batches(start=newest), len(rest)))
    assert composition(received) == composition(rest)
    assert [epoch_of(batch) for batch in received] == [epoch_of(batch) for batch in rest]


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


def test_an_address_where_nothing_answers_is_told_within_seconds_with_what_to_start():
    [port] = free_ports(1)
    began = time.monotonic()
    with pytest.raises(ConnectionError, match=rf"at grpc://localhost:{port}\. .*refused\. Start .*data_service.py --port={port}"):
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


@pytest.mark.parametrize("address", ["localhost:5050", "grpc://localhost", "grpc://:5050", "http://localhost:5050"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ValueError, match=rf"grpc://host:port\. Received: {address}\."):
        data_service.check(address)


def test_a_run_trains_from_the_service_and_goes_on_with_two_workers(service, tmp_path):
    """Of two workers, each gets batches of its own, of half the tokens."""
    flags = [*(flag for flag in FLAGS if flag != "--deterministic"), f"--model_dir={tmp_path}", f"--data_service={service}"]
    train = [sys.executable, str(ROOT / "tools/train.py"), *flags]
    two_workers = [sys.executable, str(ROOT / "tools/workers.py"), "2"]
    for command, end in ((train, 4), (two_workers + train, 7)):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        result = subprocess.run([*command, f"--train_steps={end}"], capture_output=True, text=True, env=environment)
        assert result.returncode == 0, result.stderr
        assert checkpoint.step_of(checkpoint.kept(tmp_path)[-1]) == end
    assert "Going on from update 4" in result.stdout and "2 device(s)" in result.stdout


def test_a_damaged_record_that_a_worker_finds_is_told_in_the_same_sentence(service, places, monkeypatch):
    monkeypatch.chdir(places / "trainer")
    monkeypatch.setattr(shards, "_fingerprints", lambda contents: tf.ones(tf.shape(contents), tf.int64))
    with (
        pytest.raises(ValueError, match=r"^Expected records.*damaged, the first at byte \d+ of .*--damaged_records=skip\.$"),
        shards.plain_errors(),
    ):
        next(iter(data_service.batches(FOLDER, service=service, job=uuid.uuid4().hex, batch_tokens=BUDGET, seed=3)))
