"""Hides messages that TensorFlow writes on every machine, or on every machine without a GPU."""

import contextlib
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator

from t2t_keras.system.log import passing

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Lines that TensorFlow 2.21 writes at any log level.
_NOISE = "|".join((
    "^WARNING: All log messages before absl::InitializeLog",
    r"^I[0-9]{4} .*\] oneDNN custom operations are on",
    r"^I[0-9]{4} .*\] Could not find cuda drivers on your machine",
    r"LOG\(INFO\) precompiled_charsmap is empty",  # TF.Text, for sub-words without normalization.
))  # fmt: skip
_redirecting = threading.Lock()


def choose_level() -> None:
    """Sets the level of TensorFlow's messages, unless the user has. TensorFlow reads it when it is imported.

    2 shows errors; 3 hides them too, as without a GPU most logged errors are about the missing GPU.
    """
    os.environ.setdefault(_LEVEL, "2" if list(pathlib.Path("/dev").glob("nvidia*")) else "3")


@contextlib.contextmanager
def without_remarks() -> Iterator[None]:
    """Hides the lines that TensorFlow's Python writes to stdout in an interactive session, such as a notebook, and only
    there: devices, folders of unfinished exports, tracebacks of threads that are stopped. Warnings stay.

    Does nothing if the user has set TF_CPP_MIN_LOG_LEVEL to 0, which asks for all messages.
    """
    everything = os.environ.get(_LEVEL) == "0"
    with passing(logging.getLogger("tensorflow"), lambda record: everything or record.levelno > logging.INFO):
        yield


@contextlib.contextmanager
def without_noise():
    """Hides what TF_CPP_MIN_LOG_LEVEL does not suppress, while TensorFlow is imported or a model is loaded.

    Everything else is still written, even if the process crashes: `grep` reads stderr meanwhile. Does nothing if the
    user has set TF_CPP_MIN_LOG_LEVEL to 0, which asks for all messages.
    """
    if os.environ.get(_LEVEL) == "0":
        yield
        return
    choose_level()
    # The redirection holds for the whole process: what is nested, or in another thread, is within it already.
    if not shutil.which("grep") or not _redirecting.acquire(blocking=False):
        yield
        return
    try:
        with _filtered_stderr():
            yield
    finally:
        _redirecting.release()


@contextlib.contextmanager
def _filtered_stderr():
    if sys.stderr:
        sys.stderr.flush()
    try:
        stderr = os.dup(2)
    except OSError:  # It is closed.
        yield
        return
    with subprocess.Popen(
        ["grep", "-vE", "--line-buffered", _NOISE], stdin=subprocess.PIPE, stdout=2, start_new_session=True
    ) as grep:
        os.dup2(grep.stdin.fileno(), 2)
        try:
            yield
        finally:
            if sys.stderr:
                sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
