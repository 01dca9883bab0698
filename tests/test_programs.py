"""A program that is a fork of a process with its imports does what it does in a process that begins with nothing."""

import os
import pathlib
import subprocess
import sys

import programs
import pytest

PROGRAMS = {
    "what it is given": "import os, sys; print(sys.argv, os.getcwd(), os.environ.get('NAME'), os.environ.get('HOME'), "
    "sys.stdin.read())",
    "an exit code": "import sys; sys.exit(75)",
    "an exit message": "import sys; sys.exit('Error: said.')",
    "an error": "print('before'); raise ValueError('wrong')",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    # A shell starts what it runs in the background with SIGINT ignored.
    "Ctrl-C": "from signal import *; import time; signal(SIGINT, default_int_handler); raise_signal(SIGINT); "
    "time.sleep(9)",
    "its end": "import atexit, threading; atexit.register(print, 'last'); threading.Timer(0.1, print, "
    "['before']).start()",
    "a group": "import os; print(os.getsid(0) == os.getpid())",
    "its main module": "import sys; print(__name__, sys.modules['__main__'].__doc__, sys.path[:2])",
}


@pytest.mark.parametrize("form", ["code", "file"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fork_ends_and_says_what_a_process_of_its_own_does(tmp_path, name, form):
    command = [sys.executable, "-c", PROGRAMS[name], "one", "--two"]
    if form == "file":
        (tmp_path / "program.py").write_text(f'"""What it does."""\n{PROGRAMS[name]}\n')
        command[1:3] = [str(tmp_path / "program.py")]
    environment = {"NAME": "a name", "PATH": os.environ["PATH"], "PYTHONPATH": "mine"}
    options = {
        "input": "given", "capture_output": True, "text": True, "cwd": tmp_path, "env": environment,
        "start_new_session": True,
    }  # fmt: skip
    expected = subprocess.run(command, **options)
    found = programs.run(command, modules=programs.WITHOUT_TENSORFLOW, **options)
    assert (found.returncode, found.stdout) == (expected.returncode, expected.stdout)
    assert found.stderr.splitlines()[-1:] == expected.stderr.splitlines()[-1:]


def test_a_fork_has_the_modules_asked_for_and_none_of_this_package():
    code = "import sys; print(*sorted({'numpy', 'tensorflow', 't2t_keras'} & set(sys.modules)))"
    for modules, expected in (
        (programs.WITHOUT_TENSORFLOW, "numpy\n"),
        (programs.WITH_TENSORFLOW, "numpy tensorflow\n"),
    ):
        found = programs.run([sys.executable, "-c", code], modules=modules, capture_output=True, text=True).stdout
        assert found == expected


def test_a_program_that_takes_too_long_is_ended():
    with pytest.raises(subprocess.TimeoutExpired):
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        programs.run(command, modules=programs.WITHOUT_TENSORFLOW, timeout=0.2)


def test_forks_are_children_of_the_process_that_asks():
    with programs.Popen(
        [sys.executable, "-c", "import os; print(os.getppid())"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert int(process.communicate()[0]) == os.getpid()
    assert not pathlib.Path(f"/proc/{process.pid}").exists()
