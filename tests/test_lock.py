"""One process at a time in a folder, and a kill gives the lock back."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest
from logged import logged

from t2t_keras.system import files

HOLDER = """
import pathlib, sys, time
from logged import logged

from t2t_keras.system import files
with files.exclusive(pathlib.Path(sys.argv[1]), "runs/x"):
    print("held", flush=True)
    time.sleep(60)
"""


def hold(lock: pathlib.Path) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, lock], stdout=subprocess.PIPE, env=environment)
    assert holder.stdout.readline() == b"held\n"
    return holder


def test_another_process_is_refused_until_the_first_is_killed(tmp_path):
    holder = hold(tmp_path / "lock")
    try:
        expected = f"runs/x is in use by process {holder.pid} on "
        with pytest.raises(BlockingIOError, match=expected), files.exclusive(tmp_path / "lock", "runs/x"):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with files.exclusive(tmp_path / "lock", "runs/x"):
        assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")


def test_a_process_that_waits_says_for_whom_and_gets_the_lock_after_it(tmp_path):
    ended = []
    with hold(tmp_path / "lock") as holder:

        def end() -> None:
            ended.append(True)
            holder.kill()

        with (
            logged(lambda message: threading.Timer(0.5, end).start()) as said,
            files.exclusive(tmp_path / "lock", "data/x", wait=True),
        ):
            assert ended
            assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")
    assert [text.startswith(f"data/x is in use by process {holder.pid} on ") for text in said] == [True]
    assert (tmp_path / "lock").read_bytes() == b""


def test_the_lock_is_given_back_after_an_error(tmp_path):
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), files.exclusive(tmp_path / "new" / "lock", "x"):
            raise ZeroDivisionError


@pytest.mark.parametrize("content", ["years of work", "", None])
def test_a_lock_that_is_a_link_does_not_change_what_it_points_to(tmp_path, content):
    """Story: a folder from somebody else, with `lock` as a link to one's own file, emptied that file."""
    mine = tmp_path / "mine.txt"
    if content is not None:
        mine.write_text(content)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(mine)
    link = tmp_path / "run" / "lock"
    with pytest.raises(FileExistsError, match="run/lock is not a lock"), files.exclusive(link, "x"):
        pass
    assert mine.read_text() == content if content is not None else not mine.exists()


def test_a_file_called_lock_that_is_somebody_s_own_is_left_alone(tmp_path):
    (tmp_path / "lock").write_text("combination: 1234")
    with pytest.raises(FileExistsError, match="is not a lock"), files.exclusive(tmp_path / "lock", "x"):
        pass
    assert (tmp_path / "lock").read_text() == "combination: 1234"


def test_a_pipe_or_a_folder_called_lock_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(FileExistsError, match="is not a lock"), files.exclusive(tmp_path / name, "x"):
            pass


def test_a_file_in_place_of_a_folder_is_reported_in_a_sentence(tmp_path):
    (tmp_path / "run").write_text("")
    for path in (tmp_path / "run" / "lock", tmp_path / "run" / "deeper" / "lock"):
        with pytest.raises(OSError, match="^.*run.* cannot be written to") as raised, files.exclusive(path, "x"):
            pass
        assert raised.value.errno is None


def test_a_folder_that_cannot_be_written_to_is_reported_in_a_sentence():
    """/proc takes no file, from root either."""
    for folder in (pathlib.Path("/proc"), pathlib.Path("/proc/run")):
        expected = rf"^{folder} cannot be written to \("
        with pytest.raises(OSError, match=expected), files.exclusive(folder / "lock", "x"):
            pass
