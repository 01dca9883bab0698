"""Measures a model server under load: latencies and throughput with several requests at the same time, by locust.

python benchmarks/serving.py --export_dir=exports/x --source=test.en               # servers of the tests, and serve.py
python benchmarks/serving.py --server=grpc://localhost:8500 --source=test.en       # a server that runs already

Each user sends a sentence, waits for its translation, and sends the next one. To install locust: pip install -e
'.[client]' locust.
"""

import contextlib
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from absl import flags

# `python benchmarks/serving.py` puts only this folder there.
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from benchmarks.passes.process import ROOT, process_environment
from t2t_keras.cli import program
from t2t_keras.serving import client
from t2t_keras.system import machine
from t2t_keras.text import lines

_EXPORT_DIR = flags.DEFINE_string(
    "export_dir", "", "Export to serve by the server of the tests, with and without batching, and by serve.py."
)
_SERVER = flags.DEFINE_list(
    "server", [], "Servers that run already, as grpc://host:port or http://host:port, in place of --export_dir."
)
_MODEL_NAME = flags.DEFINE_string("model_name", "translate", "Name of the model on the server.")
_SOURCE = flags.DEFINE_string("source", "", "Sentences to send, one per line.")
_USERS = flags.DEFINE_list("users", ["1", "8", "32"], "Numbers of users at the same time.")
_SECONDS = flags.DEFINE_float("seconds", 20, "Length of each measurement.", lower_bound=1)
_WARM_UP = flags.DEFINE_float(
    "warm_up", 10, "Seconds of load by one user before the measurements of a server.", lower_bound=1
)

PERCENTILES = (0.5, 0.95, 0.99)
Send = Callable[[str], object]  # Sends a sentence, and returns after its translation has come.


def to_server(address: str) -> Send:
    """Requests of one sentence each, as those of `serving/client.py`."""
    predict = client.connect(client.Model(address, _MODEL_NAME.value))
    return lambda line: client.translate_batch(predict, [line])


def to_api(address: str) -> Send:
    """Requests as those of LibreTranslate's front ends."""
    import requests

    session = requests.Session()

    def send(line: str) -> None:
        body = {"q": line, "source": "en", "target": "de"}
        session.post(f"{address}/translate", json=body, timeout=60).raise_for_status()

    return send


@contextlib.contextmanager
def started(program: list[str], announced: str, stream: str = "stdout") -> Iterator[str]:
    """A program that runs inside a `with` block, and what it says at its start that matches a pattern."""
    # The settings of a server; see serving/README.md.
    threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": str(machine.cores())}
    environment = {**threads, "TF_CPP_MIN_LOG_LEVEL": "3", **process_environment()}
    command = [sys.executable, *program]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, text=True, **{stream: subprocess.PIPE}
    ) as process:
        try:
            for line in getattr(process, stream):
                if found := re.search(announced, line):
                    yield found[0]
                    return
            raise ValueError(f"{program[0]} ended with {process.wait()} before it listened. Run it alone to see why.")
        finally:
            process.terminate()


def served(export_dir: str) -> Iterator[tuple[str, str, Callable[[], Send]]]:
    """Yields (server, protocol, what connects a user) of each server, which runs until the next ones."""
    for name, more in (("loopback", []), ("loopback, batching", ["--batching"])):
        with started([str(ROOT / "tests/loopback_server.py"), export_dir, *more], "{.*}") as addresses:
            for scheme, address in json.loads(addresses).items():
                yield name, {"grpc": "gRPC", "http": "REST"}[scheme], lambda address=address: to_server(address)
    languages = ["--source_language=en", "--target_language=de"]
    for name, more in (("serve.py, one at a time", ["--max_batch=1", "--max_wait_ms=0"]), ("serve.py", [])):
        program = [str(ROOT / "tools/serve.py"), f"--model_dir={export_dir}", "--port=0", *languages, *more]
        with started(program, r"http://[\w.:]+", "stderr") as address:
            yield name, "HTTP", lambda address=address: to_api(address)


def measure(
    connect: Callable[[], Send], users: int, sentences: Iterator[str], seconds: float
) -> tuple[list[float], float, float]:
    """Sends sentences, which have no end, by several users at the same time, each waiting for its answers. `connect`
    connects a user to the server. The first second does not count.

    Returns the `PERCENTILES` of the latencies in milliseconds, rounded as locust does, the translations in a second,
    and the share of requests that failed.
    """
    import gevent
    import locust
    from locust.env import Environment

    class User(locust.User):
        def on_start(self):
            self.send = connect()

        @locust.task
        def translate(self):
            began, failure = time.perf_counter(), None
            try:
                self.send(next(sentences))
            except (ValueError, OSError) as error:
                failure = error
            milliseconds = 1000 * (time.perf_counter() - began)
            outcome = {"response_time": milliseconds, "response_length": 0, "exception": failure, "context": {}}
            self.environment.events.request.fire(request_type="", name="translate", **outcome)

    # A greenlet killed inside gRPC would stop those of the next users.
    environment = Environment(user_classes=[User], stop_timeout=60)
    runner = environment.create_local_runner()
    runner.start(users, spawn_rate=users)
    gevent.sleep(1)
    environment.stats.reset_all()
    gevent.sleep(seconds)
    counted = environment.stats.get("translate", "")
    latencies = [counted.get_response_time_percentile(each) for each in PERCENTILES]
    rate, failed = (counted.num_requests - counted.num_failures) / seconds, counted.fail_ratio
    for error in environment.stats.errors.values():
        print(f"{error.occurrences} requests of {users} users failed: {error.error}", file=sys.stderr)
    runner.quit()
    return latencies, rate, failed


def serving() -> None:
    if bool(_EXPORT_DIR.value) == bool(_SERVER.value) or not _SOURCE.value:
        raise ValueError("Expected --source, and one of --export_dir and --server.")
    try:
        import locust.env  # First: it replaces Python's sockets and threads by those of gevent.  # noqa: F401
    except ImportError as error:
        raise ValueError("benchmarks/serving.py requires locust: pip install locust.") from error
    import grpc.experimental.gevent

    grpc.experimental.gevent.init_gevent()
    users = [int(each) for each in _USERS.value]
    with lines.opened(_SOURCE.value) as file:
        known = [line for line in lines.read_lines(file) if line.strip()]
    if not known:
        raise ValueError(f"Expected sentences in {_SOURCE.value}. Received: blank lines.")
    sentences = itertools.cycle(known)
    if _SERVER.value:
        targets = ((address, "", lambda address=address: to_server(address)) for address in _SERVER.value)
    else:
        targets = served(_EXPORT_DIR.value)
    here = machine.cpu()
    print(f"{here['cores']} cores of {here['cpu']}; load average {os.getloadavg()[0]:.1f} before\n")
    print(
        "| server | protocol | users | p50 ms | p95 ms | p99 ms | sentences/s | failed |\n"
        "|---|---|---:|---:|---:|---:|---:|---:|"
    )
    with program.without_noise():
        for server, protocol, connect in targets:
            measure(connect, 1, sentences, _WARM_UP.value)
            for number in users:
                latencies, rate, failed = measure(connect, number, sentences, _SECONDS.value)
                times = " | ".join(f"{each:.0f}" for each in latencies)
                print(f"| {server} | {protocol} | {number} | {times} | {rate:.1f} | {failed:.0%} |", flush=True)


if __name__ == "__main__":
    program.run(serving)
