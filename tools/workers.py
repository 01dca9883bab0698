"""Starts a command as several workers on this machine, which train together (section 5.2). Each gets its own TF_CONFIG.

python tools/workers.py 2 python tools/train.py --model_dir=runs/x …

For several machines, set TF_CONFIG on each, or use a launcher of TensorFlow jobs that does; all machines must share
--model_dir. A signal is passed on to all workers. If one worker fails, the others are stopped; if this program is
killed, they get SIGTERM.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

from t2t_keras import __version__
from t2t_keras.cli import messages  # `cli.program` would set environment variables, which workers would inherit.
from t2t_keras.training.interruption import OTHER_WORKER_EXIT_CODE

GRACE_SECONDS = 30  # Until the others are killed, after a worker has failed.
_PARENT_DEATH_SIGNAL = 1  # Linux's PR_SET_PDEATHSIG.


def free_ports(number: int) -> list[int]:
    """Returns free ports of this machine."""
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Errors(threading.Thread):
    """Passes on what a worker, whose stderr is a pipe, writes there, but for lines that begin with "Error: ", which are
    `held`.
    """

    def __init__(self, worker: subprocess.Popen):
        super().__init__(daemon=True)
        self.held, self._pipe = [], worker.stderr
        self.start()

    def run(self) -> None:
        for line in self._pipe:
            if line.startswith(b"Error: "):
                self.held.append(line)
            else:
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()


def start(
    number: int, command: list[str], environment: dict | None = None, stderr: int | None = None
) -> list[subprocess.Popen]:
    """Starts the workers and returns their processes; the first is the chief. `environment` has the variables
    besides TF_CONFIG, by default those of this process; `stderr` is that of the workers other than the chief, as for
    `Popen`. On Linux, they get SIGTERM when this thread ends. Raises `OSError` if one cannot start, and kills those
    before it.
    """
    addresses, libc = [f"127.0.0.1:{port}" for port in free_ports(number)], ctypes.CDLL(None)

    def started(index: int) -> subprocess.Popen:
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        variables = {**(os.environ if environment is None else environment), "TF_CONFIG": json.dumps(config)}
        # In a session of its own, so that Ctrl-C reaches only the launcher, which passes it on.
        return subprocess.Popen(
            command,
            env=variables,
            start_new_session=True,
            stderr=stderr if index else None,
            preexec_fn=(lambda: libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)) if sys.platform == "linux" else None,
        )

    workers = []
    try:
        for index in range(number):
            workers.append(started(index))
    except BaseException:
        for worker in workers:
            worker.kill()
        raise
    return workers


def wait(workers: list[subprocess.Popen]) -> int:
    """Waits for all workers, and returns the first exit code that is not 0. That of a worker's own failure comes before
    `OTHER_WORKER_EXIT_CODE`.

    Kills the others `GRACE_SECONDS` after a worker has failed.
    """
    first, failed_at = 0, 0.0
    while True:
        codes = [worker.poll() for worker in workers]
        # Own failures first.
        failed = sorted((code for code in codes if code), key=lambda code: code == OTHER_WORKER_EXIT_CODE)
        if first in (0, OTHER_WORKER_EXIT_CODE) and failed and failed[0] != first:
            first, failed_at = failed[0], failed_at or time.monotonic()
            if first < 0:
                name = next((each.name for each in signal.Signals if each == -first), f"signal {-first}")
                print(f"Worker {codes.index(first)} was ended by {name}.", file=sys.stderr)
        if None not in codes:
            return first
        if first and time.monotonic() - failed_at > GRACE_SECONDS:
            for worker in workers:
                worker.kill()
        time.sleep(0.1)


def main() -> None:
    help_text = messages.name_programs(__doc__)
    if sys.argv[1:2] in (["--help"], ["--helpfull"], ["-h"]):
        print(help_text)
        return
    if sys.argv[1:2] == ["--version"]:
        print(f"t2t_keras {__version__}")
        return
    # More than 5 digits are no number of ports.
    if len(sys.argv) < 3 or not sys.argv[1].isdecimal() or len(sys.argv[1]) > 5 or int(sys.argv[1]) < 1:
        sys.exit(
            f"Expected a number of workers and a command. Received: {' '.join(sys.argv[1:]) or 'nothing'}.\n\n"
            f"{help_text}"
        )
    try:
        workers = start(int(sys.argv[1]), sys.argv[2:], stderr=subprocess.PIPE)
    except OSError as error:
        sys.exit(f"Error: {error}")
    errors = [Errors(worker) for worker in workers[1:]]

    def pass_on(number, frame) -> None:
        for worker in workers:
            worker.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # As with `nohup`, here and in the workers.
        signal.signal(signal.SIGHUP, pass_on)
    code = wait(workers)
    for each in errors:
        each.join(timeout=5)
    # Else the chief has said what is wrong, and the others say the same, or that the chief has ended.
    if workers[0].returncode not in (1, 2):
        sys.stderr.buffer.writelines(dict.fromkeys(line for each in errors for line in each.held))
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
