"""Several processes train together as one device does; started by `tools/workers.py`, over the loopback."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import types

import numpy as np
import programs
import pytest
import tensorflow as tf
from test_survival import FLAGS, left, trained
from toy import TWENTY, adam, assert_moved_alike, by_one_tape, joined, sgd

from t2t_keras.cli import training
from t2t_keras.runs import checkpoint
from t2t_keras.training import devices

ROOT = pathlib.Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}


# The launcher, whose workers are forks of it.
LAUNCHER = """
import types
import programs
from tools import workers
workers.subprocess = types.SimpleNamespace(
    Popen=lambda command, preexec_fn, **options: programs.Fork(command, **options), PIPE=programs.subprocess.PIPE
)
workers.main()
"""


def workers(*command: str) -> subprocess.Popen:
    """Two workers of a Python program."""
    program = [sys.executable, "-c", LAUNCHER, "2", sys.executable, *command]
    return programs.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


# Of three workers, the last ends with a message after much else, or is killed; the others end because it did.
THIRD = """
import json, os, signal, sys
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] != 2:
    sys.stderr.write("Error: another one\\n")  # In one piece, also if PYTHONUNBUFFERED is set.
    sys.exit(69)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
print("x" * 200_000, "Error: another one", "Error: c", sep="\\n", file=sys.stderr)
sys.exit(1)
"""


@pytest.mark.parametrize(
    ("how", "code", "said"), [("ends", 1, "Error: c"), ("killed", 137, "Worker 2 was ended by SIGKILL.")]
)
def test_the_launcher_says_what_befell_the_third_worker(how, code, said):
    program = [sys.executable, str(ROOT / "tools/workers.py"), "3", sys.executable, "-c", THIRD, how]
    ended = subprocess.run(program, capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    lines = ended.stderr.splitlines()
    # Of the chief, and once of the others.
    assert ended.returncode == code and said in lines and lines.count("Error: another one") == 2


def test_two_workers_go_where_one_tape_goes(tmp_path):
    process = workers(str(ROOT / "tests" / "toy_worker.py"), str(tmp_path / "weights"))
    said, errors = process.communicate()
    assert process.returncode == 0, errors
    updates = [joined(TWENTY[first : first + 2]) for first in range(0, len(TWENTY), 2)]  # Of two parts each.
    for optimizer in (sgd, adam):
        expected, _ = by_one_tape(updates, make_optimizer=optimizer)
        for worker in (0, 1):
            with np.load(tmp_path / f"weights-{optimizer.__name__}-{worker}.npz") as archive:
                assert_moved_alike(dict(archive), expected)


def train(model_dir, points: dict | None = None, clean_up_seconds: float = 0) -> subprocess.CompletedProcess:
    """A run of two workers, some of which end at a point; see `killed_runs.py`."""
    asked = json.dumps(
        {"flags": [*FLAGS, f"--model_dir={model_dir}"], "points": points or {}, "clean_up_seconds": clean_up_seconds}
    )
    process = workers(str(ROOT / "tests" / "killed_runs.py"), asked)
    said, errors = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, said, errors)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> tuple[pathlib.Path, str]:
    """The folder of a run that nothing happened to, and what it wrote to stderr.

    The interpreter's clean-up would take the chief longer than TensorFlow waits before it reports the other worker as
    crashed.
    """
    model_dir = tmp_path_factory.mktemp("runs") / "whole"
    ended = train(model_dir, clean_up_seconds=20)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("Trained.") == 1
    return model_dir, ended.stderr


@pytest.mark.medium
def test_two_workers_that_have_trained_report_no_crash(uninterrupted):
    """At the level of TensorFlow's log that shows errors."""
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] <= "2"
    assert not re.search(r"crash|unhealthy|UNAVAILABLE|StartAbort|Failed to send RPC|Traceback", uninterrupted[1]), (
        uninterrupted[1]
    )


@pytest.mark.medium
def test_two_workers_train_the_model_of_two_devices(uninterrupted, tmp_path):
    """From the same initial weights, with the same batches and the same dropout masks of each device."""
    trained(tmp_path, [None], "--cpu_devices=2")
    found, expected = (np.load(checkpoint.kept(folder)[-1]) for folder in (uninterrupted[0], tmp_path))
    with found, expected:
        names = [name for name in expected.files if name.startswith("model/")]
        assert names and all(np.abs(expected[name]).max() > 0 for name in names if "kernel" in name)
        for name in names:
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-5, err_msg=name)


def train_until_stopped(model_dir) -> int:
    """The update that two workers have saved when a signal to the launcher stops them."""
    stopped = train(model_dir, {"1": "all workers get SIGTERM in update 7"})
    assert stopped.returncode == 75, stopped.stderr
    assert stopped.stdout.count("received SIGTERM") == 1
    return checkpoint.step_of(checkpoint.kept(model_dir)[-1])


@pytest.mark.medium
def test_two_workers_that_are_stopped_save_and_exit_with_75(tmp_path):
    assert 7 <= train_until_stopped(tmp_path) < 11


@pytest.mark.slow
def test_two_workers_that_are_stopped_and_killed_end_where_uninterrupted_ones_end(uninterrupted, tmp_path):
    """One folder, one lock, one curve: what the chief writes."""
    stopped_at = train_until_stopped(tmp_path)
    killed = train(tmp_path, {"0": "in update 11", "1": "in update 11"})
    assert killed.returncode == 128 + signal.SIGKILL, killed.stderr
    assert re.search(rf"from (?:update|step) {stopped_at}\b", killed.stderr)
    assert checkpoint.step_of(checkpoint.kept(tmp_path)[-1]) in (9, stopped_at)

    ended = train(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("Trained.") == 1
    assert left(tmp_path) == left(uninterrupted[0])


@pytest.mark.slow
@pytest.mark.parametrize("worker", ["0", "1"], ids=["the chief", "another"])
def test_a_run_of_two_workers_survives_a_kill_of_one(uninterrupted, tmp_path, worker):
    """The launcher ends the other one, which waits for it; the same command goes on."""
    points = {"0": "an archive has its name and no manifest", "1": "in update 11"}
    killed = train(tmp_path, {worker: points[worker]})
    assert killed.returncode == 128 + signal.SIGKILL, killed.stderr
    assert checkpoint.step_of(checkpoint.kept(tmp_path)[-1]) == 9
    assert train(tmp_path).returncode == 0
    assert left(tmp_path) == left(uninterrupted[0])


OF_TWO = '{{"cluster": {{"worker": ["a:1", "b:1"]}}{}}}'


@pytest.mark.parametrize("text", [
    pytest.param("[" * 100_000, id="too deep"), pytest.param(f'{{"cluster": {"1" * 5000}}}', id="too large a number"),
    "{", "[]", '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}}', '{"cluster": null}', '{"cluster": {"worker": 3}}',
    '{"sparseCluster": {"worker": {"0": "a:1"}, "ps": ["b:1"]}, "task": {"type": "worker", "index": 0}}',
    *(f'{{"cluster": {cluster}, "task": {{"type": "{job}", "index": 0}}}}' for cluster, job in [
        ('{"master": ["a:1"], "worker": ["b:1"]}', "master"), ('{"master": ["a:1"], "worker": ["b:1"]}', "worker"),
        ('{"chief": ["a:1"], "worker_hosts": ["b:1"]}', "chief"), ('{"chief": ["a:1", "b:1"]}', "chief"),
        ('{"chief": [], "worker": ["a:1", "b:1"]}', "worker"),  # For TensorFlow, none of them is the chief.
        ('{"worker": ["a:1"]}', "evaluator"), ('{"worker": ["a:1"], "evaluator": ["b:1"]}', "evaluator"),
    ]),
    *(OF_TWO.format(task) for task in ["", ', "task": null', ', "task": {"type": "worker"}']),
    *(OF_TWO.format(f', "task": {{"type": "{job}", "index": {index}}}')
      for job, index in [("worker", 2), ("worker", -1), ("worker", "null"), ("chief", 0), ("evaluator", 0),
                         ("worker", "1e400"), ("worker", 0.5), ("worker", "true")]),
])  # fmt: skip
def test_a_cluster_that_cannot_be_is_refused_with_what_was_received(monkeypatch, text):
    """Story: without a task, the message was followed by a traceback of the exit."""
    monkeypatch.setenv("TF_CONFIG", text)
    monkeypatch.setattr(devices.tf.distribute, "MultiWorkerMirroredStrategy", lambda: "made")
    with pytest.raises(ValueError, match=f"TF_CONFIG.*Received: {re.escape(text)}"):
        devices.make_strategy()
    devices.exit_worker(1)  # Not at once: it is no worker.


@pytest.mark.parametrize(("addresses", "wrong"), [
    (["a:1", "b"], "b"), (["a:1", "b:"], "b:"), (["a:1", ":1"], ":1"), (["a:1", "b:http"], "b:http"),
    (["a:0", "b:1"], "a:0"), (["a:1", "b:65536"], "b:65536"), (["http://a:1", "b:1"], "http://a:1"), ([1, "b:1"], "1"),
    (["a:1", None], "None"), (["a:1", "b:1", "a:1"], "a:1 twice"),
    pytest.param(["a:1", f"b:{'1' * 5000}"], f"b:{'1' * 5000}", id="too large a port"),
    (["a:1,b:1"], "a:1,b:1"), (["a:1 b:1"], "a:1 b:1"), (["a:1", " b:1"], " b:1"), (["a:1", "::1:1"], "::1:1"),
])  # fmt: skip
def test_an_address_that_no_worker_can_have_is_named(monkeypatch, addresses, wrong):
    """Story: TensorFlow ended in a traceback, or waited for ever for the second of two workers with one address; and
    each of several in one string trained alone.
    """
    cluster = {"chief": addresses[:1], "worker": addresses[1:]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}}))
    monkeypatch.setattr(devices.tf.distribute, "MultiWorkerMirroredStrategy", lambda: "made")
    with pytest.raises(ValueError, match=f"such as host1:2222. Received: {re.escape(wrong)} in "):
        devices.make_strategy()


def test_workers_may_have_addresses_of_ipv6(monkeypatch):
    cluster = {"worker": ["[::1]:2222", "[2001:db8::1]:2222"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": "1"}}))
    monkeypatch.setattr(devices.tf.distribute, "MultiWorkerMirroredStrategy", lambda: "made")
    assert devices.make_strategy() == "made"


@pytest.mark.parametrize(("given", "expected"), [
    ({}, None),
    ({"no_proxy": "c"}, None),
    ({"http_proxy": "p:1"}, "a,2001:db8::1"),
    ({"https_proxy": "p:1", "no_proxy": "c,d"}, "c,d,a,2001:db8::1"),
    ({"grpc_proxy": "p:1", "no_proxy": "c", "no_grpc_proxy": "e"}, "e,a,2001:db8::1"),
])  # fmt: skip
def test_workers_do_not_look_for_one_another_behind_a_proxy(monkeypatch, given, expected):
    """Story: they waited for ever, also for those on their own machine."""
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_proxy", "no_grpc_proxy"):
        monkeypatch.setenv(name, given[name]) if name in given else monkeypatch.delenv(name, raising=False)
    cluster = {"worker": ["a:1", "[2001:db8::1]:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))
    made = lambda: os.environ.get("no_grpc_proxy")  # noqa: E731
    monkeypatch.setattr(devices.tf.distribute, "MultiWorkerMirroredStrategy", made)
    monkeypatch.setenv("no_grpc_proxy", given.get("no_grpc_proxy", ""))  # To be as before after the test.
    assert (devices.make_strategy() or None) == expected


@pytest.mark.parametrize(("raised", "kind", "said"), [
    (RuntimeError("Collective ops must be configured at program startup"), ValueError,
     "before TensorFlow is first used. Received: 2 workers in TF_CONFIG .*Start a new process"),
    (tf.errors.UnknownError(None, None, "Could not start gRPC server"), OSError,
     "at b:2, the address of worker 1 in TF_CONFIG. Received: Could not start gRPC server, perhaps because its port"),
], ids=["too late", "port in use"])  # fmt: skip
def test_a_worker_that_cannot_join_says_why(monkeypatch, raised, kind, said):
    """Story: the one was an error of another type than documented, the other named no port."""

    def fail():
        raise raised

    cluster = {"worker": ["a:1", "b:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}}))
    monkeypatch.setattr(devices.tf.distribute, "MultiWorkerMirroredStrategy", fail)
    with pytest.raises(kind, match=said):
        devices.make_strategy()


@pytest.mark.parametrize("text", [
    "{}",
    json.dumps({"cluster": {"worker": ["localhost:1"]}, "task": {"type": "worker", "index": 0}}),
])  # fmt: skip
def test_a_cluster_of_one_is_this_machine_alone(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    strategy = devices.make_strategy(2)
    assert strategy.num_replicas_in_sync == 2 and devices.is_chief(strategy) and not devices.several_workers(strategy)
    assert devices.broadcast_from_chief(strategy, 3.0) == 3 and devices.any_worker(strategy, True)
    devices.exit_worker(5)  # Not at once: nobody waits.


@pytest.mark.parametrize("config", [
    "{", "[]", '{"cluster": {"worker": "host:1"}}', '{"cluster": {"worker": ["host:1", "host:2"]}}',
    '{"cluster": {"worker": ["host:1", "host:2"]}, "task": {"type": "worker", "index": "x"}}',
])  # fmt: skip
def test_a_wrong_tf_config_ends_a_program_as_other_errors_do(monkeypatch, config):
    """Story: a traceback followed the sentence of the error."""
    monkeypatch.setenv("TF_CONFIG", config)
    monkeypatch.setattr(training.program, "run", lambda main: sys.exit(1))
    with pytest.raises(SystemExit, match="^1$"):
        training.run(print)


# Stands in for the end of a worker of a program, which is its argument.
AS_WORKER = """
import runpy, sys
from t2t_keras.cli import program
from t2t_keras.training import devices
program.run = lambda main: sys.exit(3)
devices.exit_worker = lambda code: print("worker", code)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
TRAINING = re.compile(r"make_strategy\(|training\.train\(")


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in (ROOT / "tools").glob("*.py") if TRAINING.search(path.read_text()))
)
def test_each_program_that_trains_ends_as_a_worker(name):
    """Story: those that train several runs cleaned up for so long that TensorFlow took them for crashed."""
    command = [sys.executable, "-c", AS_WORKER, str(ROOT / "tools" / f"{name}.py")]
    result = programs.run(command, capture_output=True, text=True, env=ENVIRONMENT | {"TF_CONFIG": "{}"})
    assert (result.returncode, result.stdout) == (3, "worker 3\n"), result.stderr


@pytest.mark.parametrize(("jobs", "task", "seconds"), [
    (["worker"], ("worker", 0), devices.CHIEF_EXIT_SECONDS),
    (["worker"], ("worker", 1), devices.EXIT_SECONDS),
    (["chief", "worker"], ("chief", 0), devices.CHIEF_EXIT_SECONDS),
    (["chief", "worker"], ("worker", 0), devices.EXIT_SECONDS),
])  # fmt: skip
def test_the_chief_exits_after_the_other_workers_and_none_at_once(monkeypatch, jobs, task, seconds):
    """Story: a worker that had its sum and was gone took the others' sums with it."""
    assert 0 < devices.EXIT_SECONDS < devices.CHIEF_EXIT_SECONDS < 10
    cluster = {job: [f"{job}:1", f"{job}:2"][: 1 if job == "chief" else 2] for job in jobs}
    monkeypatch.setenv(
        "TF_CONFIG", json.dumps({"cluster": cluster, "task": dict(zip(("type", "index"), task, strict=True))})
    )
    done = []
    monkeypatch.setattr(devices, "time", types.SimpleNamespace(sleep=done.append))
    monkeypatch.setattr(devices, "os", types.SimpleNamespace(environ=os.environ, _exit=done.append))
    devices.exit_worker(5)
    assert done == [seconds, 5]


@pytest.mark.parametrize("option", ["--help", "--helpfull", "-h"])
def test_the_launcher_prints_its_help(option):
    result = subprocess.run(programs.command("workers", option), capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert "python tools/workers.py 2 python tools/train.py" in result.stdout


def test_help_of_the_installed_launcher_names_installed_programs(monkeypatch, capsys):
    from tools import workers as launcher

    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/t2t-workers", "--help"])
    launcher.main()
    shown = capsys.readouterr().out
    assert "\nt2t-workers 2 t2t-train --model_dir" in shown and "tools/" not in shown


def test_workers_inherit_the_environment_of_a_person_and_no_more():
    """Story: the launcher would set how much TensorFlow says, and the programs take that for a person's wish."""
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"} | {
        "PYTHONPATH": str(ROOT)
    }
    command = programs.command("workers", 1, sys.executable, "-c", "import os; print(*os.environ, sep=chr(10))")
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert set(result.stdout.split()) - set(environment) - {"LC_CTYPE"} == {"TF_CONFIG"}


# A program whose chief and whose other worker say and do these, in Python.
TWO = "import json, os, sys, time\nif json.loads(os.environ['TF_CONFIG'])['task']['index'] == 0:\n    {}\nelse:\n    {}"
SAY = "print('Error: {}', file=sys.stderr); sys.exit({})"


@pytest.mark.parametrize(("chief", "other", "code", "said"), [
    (SAY.format("a", 1), SAY.format("a", 1), 1, ["Error: a"]),
    (SAY.format("a", 1), f"time.sleep(1); {SAY.format('the chief has ended', 69)}", 1, ["Error: a"]),
    (f"time.sleep(1); {SAY.format('a', 1)}", SAY.format("the chief could not", 69), 1, ["Error: a"]),
    (f"time.sleep(1); {SAY.format('another has ended', 69)}", SAY.format("b", 1), 1,
     ["Error: another has ended", "Error: b"]),
    ("os.kill(os.getpid(), 9)", "print('Careful.', file=sys.stderr)", 137,
     ["Careful.", "Worker 0 was ended by SIGKILL."]),
    ("os.kill(os.getpid(), 36)", "pass", 164, ["Worker 0 was ended by signal 36."]),
], ids=["both", "the chief", "the chief, which ends last", "the other worker", "a kill", "a signal without a name"])  # fmt: skip  # noqa: E501
def test_the_launcher_reports_the_cause_alone(chief, other, code, said):
    command = programs.command("workers", 2, sys.executable, "-c", TWO.format(chief, other))
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == code and sorted(result.stderr.splitlines()) == said


@pytest.mark.parametrize(
    "arguments",
    [[], ["2"], ["two", "python"], ["0", "python"], ["-1", "python"], ["9" * 5000, "python"]],
    ids=lambda arguments: " ".join(arguments)[:20],
)
def test_the_launcher_says_what_it_expects(arguments):
    result = subprocess.run(programs.command("workers", *arguments), capture_output=True, text=True)
    assert result.returncode == 1 and "Expected a number of workers and a command" in result.stderr


def test_the_launcher_names_a_command_that_does_not_exist():
    result = subprocess.run(programs.command("workers", 2, "no_such_program"), capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (1, "Error: [Errno 2] No such file or directory: 'no_such_program'\n")


def test_if_a_worker_cannot_start_those_before_it_are_ended(monkeypatch, tmp_path):
    """Story: where the machine had no room for all, the launcher ended with an error, and the others waited unseen."""
    from tools import workers as launcher

    def start(*args, **options):
        if started:
            raise OSError("Too many open files")
        started.append(subprocess.Popen(*args, **options))
        return started[0]

    started = []
    monkeypatch.setattr(launcher, "subprocess", types.SimpleNamespace(Popen=start))
    with pytest.raises(OSError, match="Too many open files"):
        launcher.start(2, [sys.executable, "-c", "import time; time.sleep(60)"])
    assert started[0].wait(timeout=5) == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGQUIT])
def test_workers_whose_launcher_is_killed_are_asked_to_stop(number):
    """Story: they trained on without it, and the same command was refused because they held the folder."""
    worker = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(print('stops ', end=''))); "
    launcher = subprocess.Popen(
        programs.command("workers", 2, sys.executable, "-c", f"{worker}print('runs', flush=True); time.sleep(60)"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGQUIT, signal.SIG_DFL),  # A shell with & ignores it.
    )
    assert [launcher.stdout.readline() for _ in range(2)] == ["runs\n"] * 2
    launcher.send_signal(number)
    said, _ = launcher.communicate(timeout=10)  # Until the workers have ended, too.
    assert (launcher.returncode, said) == (-number, "stops " * 2)


@pytest.mark.parametrize("ignored", [False, True], ids=["without nohup", "with nohup"])
def test_a_terminal_that_closes_ends_the_workers_of_the_launcher_unless_it_has_nohup(ignored):
    """Story: they trained on without it, unseen, and the same command was refused because they held the folder."""
    worker = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(1.5); sys.exit(7)"
    command = programs.command("workers", 1, sys.executable, "-c", worker)
    action = signal.SIG_IGN if ignored else signal.SIG_DFL
    launcher = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, action),
    )
    process = int(launcher.stdout.readline())
    launcher.send_signal(signal.SIGHUP)
    _, said = launcher.communicate()
    ended = (7, "") if ignored else (128 + signal.SIGHUP, "Worker 0 was ended by SIGHUP.\n")
    assert (launcher.returncode, said) == ended
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (75, 75), (-signal.SIGKILL, 128 + signal.SIGKILL)])
def test_the_launcher_passes_signals_on_to_all_workers_and_exits_with_their_code(monkeypatch, code, expected):
    from tools import workers as launcher

    class Worker:
        def __init__(self, number):
            self.send_signal = lambda sent: received.append((number, sent))
            self.stderr, self.returncode = [], code

    def start(number, command, stderr):
        assert (number, command) == (3, ["python", "train.py", "--x"])
        return [Worker(index) for index in range(number)]

    def wait(workers):
        for number in (signal.SIGTERM, signal.SIGINT):
            handlers[number](number, None)
        return code

    received, handlers = [], {}
    monkeypatch.setattr(launcher, "start", start)
    monkeypatch.setattr(launcher, "wait", wait)
    monkeypatch.setattr(launcher.signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(sys, "argv", ["workers.py", "3", "python", "train.py", "--x"])
    with pytest.raises(SystemExit) as ended:
        launcher.main()
    assert ended.value.code == expected
    assert received == [(worker, number) for number in (signal.SIGTERM, signal.SIGINT) for worker in range(3)]


def test_if_a_worker_fails_the_launcher_ends_the_others_with_its_code(monkeypatch):
    from tools import workers as launcher

    monkeypatch.setattr(launcher, "GRACE_SECONDS", 0.5)
    program = (
        "import json, os, sys, time; time.sleep(60 * (json.loads(os.environ['TF_CONFIG'])['task']['index'] != 1)); "
        "sys.exit(5)"
    )
    began = time.monotonic()
    started = launcher.start(4, [sys.executable, "-c", program])
    assert launcher.wait(started) == 5 and None not in [worker.poll() for worker in started]
    assert time.monotonic() - began < 20
