"""One process at a time that writes into a folder: a lock of the kernel, which ends with the process however that ends."""

import contextlib
import fcntl
import os
import pathlib
import re
import socket
import stat
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def exclusive(path: pathlib.Path, what: str, wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Holds a lock file inside a `with` block.

    Args:
        path: made if missing, with its folder; it stays when the lock is given back, empty. A link is not followed.
        what: is kept to one process, for the message.
        wait: told, once, that another process holds it, which is then waited for; None: it is not waited for.

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
            wait(f"{told} Waiting for it to end …")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
