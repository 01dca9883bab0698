"""Python programs in processes of their own that start at once: forks of a process that has imported what takes
seconds.

`run` and `Popen` take what those of `subprocess` take, and what they return is what these return. Each group of modules
in `IMPORTED` has a server, started at its first use and ended with the process that uses it; it has run no operation of
TensorFlow and imported nothing of this package. A program that is about the start itself (what is imported when, or
environment variables that TensorFlow reads when it is imported) needs `subprocess`.
"""

import atexit
import ctypes
import functools
import gc
import importlib.util
import io
import json
import os
import pathlib
import pty
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable

ROOT = pathlib.Path(__file__).parent.parent
WITHOUT_TENSORFLOW = (
    "absl.app", "absl.flags", "absl.logging", "matplotlib.pyplot", "numpy", "sacrebleu", "sentencepiece", "tqdm",
)  # fmt: skip
WITH_TENSORFLOW = (
    *(*WITHOUT_TENSORFLOW, "tensorflow", "keras", "tensorboard.plugins.hparams.summary"),
    *(["tensorflow_text"] if importlib.util.find_spec("tensorflow_text") else []),
)
# For `alone`: what an export makes of lines: the translations, their scores, and the scores of the lines themselves.
TRANSLATE = """
import json, sys
import tensorflow as tf, tensorflow_text
lines = tf.constant(json.load(sys.stdin))
signatures = tf.saved_model.load(sys.argv[1]).signatures
found, scores = signatures["serving_default"](text=lines), signatures["score"](source=lines, target=lines)
assert not [name for name in sys.modules if name.split(".")[0] == "t2t_keras"]
texts = [text.decode("utf-8", "replace") for text in found["text"].numpy()]
print(json.dumps([texts, found["score"].numpy().tolist(), scores["log_prob"].numpy().tolist()]))
"""
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER.
_LIMIT = 2**18  # Bytes of a request.


class Popen(subprocess.Popen):
    """A process that runs `python FILE …` or `python -c CODE …` with `modules` imported already."""

    def __init__(self, command, *args, modules: tuple[str, ...] = WITH_TENSORFLOW, **options):
        self._modules = modules
        super().__init__(list(map(str, command)), *args, **options)

    def _execute_child(
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid, umask,
        start_new_session, process_group,
    ):  # fmt: skip
        assert args[0] == sys.executable and not (preexec_fn or pass_fds or shell), args
        environment = os.environ if env is None else env
        request = {
            "arguments": args[1:],
            "cwd": os.path.abspath(cwd or "."),
            "environment": {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()},
            "new_session": start_new_session,
        }
        self.pid = self._start(
            request, [own if given == -1 else given for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        )
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def _start(self, request: dict, streams: list[int]) -> int:
        level = request["environment"].get("TF_CPP_MIN_LOG_LEVEL", "3") if "tensorflow" in self._modules else ""
        return _server(self._modules, level, os.getpid()).start(request, streams)


class Fork(Popen):
    """The same as a fork of this process, which must not have used TensorFlow."""

    def _start(self, request: dict, streams: list[int]) -> int:
        process = os.fork()
        if not process:
            _end(_code_of(functools.partial(_run, **request, streams=[os.dup(stream) for stream in streams])))
        return process


def run(
    command, *, input=None, capture_output=False, timeout=None, check=False, **options
) -> subprocess.CompletedProcess:
    """As `subprocess.run`."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with Popen(command, **options) as process:
        try:
            said, errors = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    if errors and "need TF.Text" in os.fsdecode(errors):
        import pytest  # Not above: it is no part of a program.

        pytest.skip("TF.Text is not installed")
    result = subprocess.CompletedProcess(process.args, process.returncode, said, errors)
    if check:
        result.check_returncode()
    return result


def command(name: str, *arguments) -> list[str]:
    """Returns the command that runs tools/NAME.py."""
    return [sys.executable, str(ROOT / "tools" / f"{name}.py"), *map(str, arguments)]


def tool(name: str, *arguments, **options) -> subprocess.CompletedProcess:
    """Runs tools/NAME.py with this repository on its path. What it writes is text, unless an option says otherwise."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return run(command(name, *arguments), **{"capture_output": True, "text": True, "env": environment, **options})


def without_tensorflow(name: str, *arguments, **options) -> subprocess.CompletedProcess:
    """Runs tools/NAME.py where neither TensorFlow nor Keras can be imported."""
    code = "import runpy, sys\nsys.modules['tensorflow'] = sys.modules['keras'] = None\ndel sys.argv[0]\n"
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    options = {"capture_output": True, "text": True, "env": environment, "modules": WITHOUT_TENSORFLOW, **options}
    return run([sys.executable, "-c", code, *command(name, *arguments)[1:]], **options)


def without_this_package() -> dict[str, str]:
    """Returns the environment of a process in which this project is not on the path."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def alone(code: str, version: pathlib.Path, given):
    """Runs code in the folder of an export, with nothing of this project on its path.

    Args:
        code: reads JSON from stdin, and prints JSON last. Its argument is the folder.
        version: the folder.
        given: what it reads.

    Returns:
        What it prints.
    """
    command = [sys.executable, "-c", code, str(version)]
    result = run(
        command,
        input=json.dumps(given).encode(),
        capture_output=True,
        env=without_this_package(),
        cwd=version,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr.decode()
    return json.loads(result.stdout.decode().splitlines()[-1])


class _Server:
    """A process that has imported modules, and forks when asked to."""

    def __init__(self, modules: tuple[str, ...], level: str):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", __file__, str(theirs.fileno()), *modules]
        self.process = subprocess.Popen(
            command, env={**without_this_package(), "TF_CPP_MIN_LOG_LEVEL": level}, pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        theirs.close()
        atexit.register(self.stop)

    def start(self, request: dict, streams: list[int]) -> int:
        """Returns the process number of a new child of this process."""
        libc = ctypes.CDLL(None)
        libc.prctl(_SUBREAPER, 1, 0, 0, 0)  # The parent of the new process ends at once; this process takes its place.
        try:
            socket.send_fds(self.socket, [json.dumps(request).encode()], streams)
            return int(self.socket.recv(_LIMIT))
        finally:
            libc.prctl(_SUBREAPER, 0, 0, 0, 0)

    def stop(self) -> None:
        self.socket.close()
        self.process.wait()


@functools.cache
def _server(modules: tuple[str, ...], level: str, process: int) -> _Server:
    return _Server(modules, level)


def _serve(requests: socket.socket) -> None:
    """Forks for each request, runs in that process what was asked for, and answers with its number; ends when no
    request comes.
    """
    while True:
        request, streams, _, _ = socket.recv_fds(requests, _LIMIT, 3)
        if not request:
            os._exit(0)
        reading, writing = os.pipe()
        between = os.fork()
        if not between:
            parent = os.getpid()
            process = os.fork()
            if process:
                os.write(writing, str(process).encode())
                os._exit(0)
            requests.close()
            os.close(reading)
            os.close(writing)
            while os.getppid() == parent:  # Until the process that asks is the parent.
                time.sleep(1e-4)
            _end(_code_of(functools.partial(_run, **json.loads(request), streams=streams)))
        os.waitpid(between, 0)
        requests.send(os.read(reading, 20))
        for each in (reading, writing, *streams):
            os.close(each)


def _run(arguments: list[str], cwd: str, environment: dict[str, str], new_session: bool, streams: list[int]) -> None:
    """Runs a program as the interpreter does that is started with these arguments."""
    if new_session:
        os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", closefd=False)
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    code, first, name = (
        (arguments[1], "", "<string>") if arguments[0] == "-c" else (None, os.path.dirname(arguments[0]), arguments[0])
    )
    sys.argv = ["-c", *arguments[2:]] if code is not None else arguments
    sys.path[:0] = [first, *map(os.path.abspath, filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)))]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if code is None:
        main.__file__ = name
        with open(name, "rb") as file:
            code = file.read()
    exec(compile(code, name, "exec"), main.__dict__)


def _draw() -> None:
    """Draws a picture, which loads the fonts: forks of this process need not."""
    figure = sys.modules["matplotlib.pyplot"].figure(layout="constrained")
    figure.suptitle("A")
    figure.subplots()
    figure.savefig(io.BytesIO())
    sys.modules["matplotlib.pyplot"].close(figure)


def _code_of(program) -> int:
    """Returns the exit code of a program, or minus the signal that ends it; writes what the interpreter writes of an
    exception.
    """
    try:
        program()
        return 0
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return (ended.code or 0) & 255
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException as error:
        traceback.print_exc()
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def _end(code: int) -> None:
    """Ends this process as the interpreter does, but for the clean-up of modules."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    if "matplotlib.pyplot" in sys.modules:
        _draw()
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))


def answers_each_line(start: Callable, answers: dict[bytes, bytes]) -> None:
    """Checks that a program with --flush answers a line before the next comes.

    Args:
        start: starts the program, with its arguments and the options of `Popen`.
        answers: the answer to each line.
    """
    with start("--flush", start=Popen, stdin=subprocess.PIPE) as process:
        for line, answer in answers.items():
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            assert select.select([process.stdout], [], [], 30)[0], "no answer"
            assert process.stdout.readline() == answer + b"\n"
        process.stdin.close()
        assert process.wait(timeout=30) == 0


def answers_what_is_typed(start: Callable, line: str, answer: bytes) -> None:
    """Checks that a program asks for a sentence at a terminal, and answers one before the next is typed.

    Args:
        start: starts the program, with the options of `Popen`.
        line: what is typed.
        answer: how its answer begins.
    """
    terminal, end = pty.openpty()
    with start(start=Popen, stdin=end, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.write(terminal, f"{line}\n".encode())
        assert select.select([process.stdout], [], [], 60)[0]
        assert process.stdout.readline().startswith(answer)
        os.write(terminal, b"\x04")
        assert b"Type a sentence and press Enter; end with Ctrl-D." in process.stderr.read()
    os.close(end)
    os.close(terminal)
