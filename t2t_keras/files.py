"""Files that are whole or not there, JSON of a bounded size, and folders that one process at a time writes into.

The lock is the kernel's, which ends with the process however that ends.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import re
import reprlib
import socket
import stat
from collections.abc import Iterator

from t2t_keras.log import logger

MOST_JSON = 2**20  # Bytes of a file that `read_json` reads.


def write_whole(path: pathlib.Path, content: bytes) -> None:
    """Writes a small file under another name first, so that a kill leaves the old one or the new one, never half of one."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def describe(path: pathlib.Path) -> dict:
    """{"bytes", "sha256"} of a file."""
    with path.open("rb") as file:
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def read_json(path: pathlib.Path, most: int = MOST_JSON) -> dict:
    """The JSON object in a file of at most so many bytes.

    Raises:
        ValueError: there is something else in it.
    """
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"Expected {path} to have at most {most:,} bytes. It has more.")
    try:
        value = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}.") from error
    if not isinstance(value, dict):
        raise ValueError(f"Expected {path} to hold a JSON object. Received: {reprlib.repr(value)}.")
    return value


@contextlib.contextmanager
def exclusive(path: pathlib.Path, what: str, wait: bool = False) -> Iterator[None]:
    """Holds a lock file inside a `with` block.

    Args:
        path: made if missing, with its folder; it stays when the lock is given back, empty. A link is not followed.
        what: is kept to one process, for the message.
        wait: whether to wait for another process that holds it.

    Raises:
        BlockingIOError: another process holds it, and is not waited for.
        FileExistsError: a file of that name is somebody's own.
        OSError: its folder is a file, or cannot be written to.
    """
    folder, foreign = path.parent, FileExistsError(f"{path} is not a lock of this program. Move it away, or give another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if path.is_symlink() or path.is_dir():
            raise foreign from error
        why = "a file" if folder.exists() and not folder.is_dir() else error.strerror
        raise type(error)(f"Expected a folder that can be written to. Received: {folder} ({why}). Give another one.") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise foreign
    with open(descriptor, "r+", encoding="utf-8", errors="replace") as file:
        holder = file.read(1000)
        if not re.fullmatch(r"(process \d+ on .*)?", holder):
            raise foreign
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            told = f"{what} is in use by {holder or 'another process'}."
            if not wait:
                raise BlockingIOError(f"{told} Wait for it to end, or give another folder.") from error
            logger.info(f"{told} Waiting for it to end …")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
