"""One process at a time that writes into a folder: a lock of the kernel, which ends with the process however that ends."""

import contextlib
import fcntl
import os
import pathlib
import socket
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def exclusive(path: pathlib.Path, what: str, wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Holds a lock file inside a `with` block.

    Args:
        path: made if missing, with its folder; it stays when the lock is given back, empty.
        what: is kept to one process, for the message.
        wait: told, once, that another process holds it, which is then waited for; None: it is not waited for.

    Raises:
        BlockingIOError: another process holds it, and is not waited for.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "another process"
            if not wait:
                raise BlockingIOError(f"{what} is in use by {holder}. Wait for it to end, or give another folder.") from error
            wait(f"{what} is in use by {holder}. Waiting for it to end …")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
