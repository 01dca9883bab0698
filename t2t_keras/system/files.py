"""Atomic writes, JSON files of limited size, lock files, and names of files that several folders have.

The kernel holds the lock and releases it when the process ends, even if it is killed.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import re
import reprlib
import secrets
import shutil
import socket
import stat
from collections.abc import Iterator
from typing import BinaryIO

from t2t_keras.system.log import logger

# In the folders of runs and of prepared data. SOURCE_SUBWORDS is there only if the source has a vocabulary of its own.
CONFIG, SUBWORDS, SOURCE_SUBWORDS, DATA, LOCK = "config.json", "subwords.model", "subwords.source.model", "data", "lock"
EXCHANGE = "t2t_keras_exchange"  # Folder of what a program and the workers of Apache Beam exchange.
MAX_JSON = 2**20  # Maximum size of a JSON file in bytes.
UNFINISHED = r"[0-9a-f]{16}\.tmp"  # How the names of the files of `replacing` end until they are whole.


class WriteError(OSError):
    """A file could not be written: an `OSError` whose message is a sentence."""

    def __str__(self) -> str:
        return (
            f"Could not write {self.filename} ({self.strerror}). The earlier content is unchanged: free space, or give "
            "permission, and run the same command again."
        )


@contextlib.contextmanager
def writing(folder: pathlib.Path, name: pathlib.Path | None = None) -> Iterator[None]:
    """Turns the errors of the system at a full or read-only disk into a readable `OSError` that names the folder, or
    `name` in place of it.
    """
    try:
        yield
    except OSError as error:
        elsewhere = error.filename is not None and not pathlib.Path(str(error.filename)).is_relative_to(folder)
        if error.errno is None or elsewhere:  # A readable error already, or an error of a file that was read.
            raise
        raise OSError(
            f"Could not write {name or folder} ({error.strerror}). It is incomplete and is not used: free space, or "
            "give permission, and run the same command again."
        ) from error


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[BinaryIO]:
    """Opens a new file for writing, which replaces `path` at the end of the `with` block.

    A kill leaves the old file or the new one, never a partial one. Links are not followed: until it is whole, the file
    has a name beside `path` that nobody can foresee. After an error it is removed; what a kill leaves, `check_no_links`
    removes.
    """
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    with unfinished.open("xb") as file:  # x: a file or a link of this name is an error.
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(unfinished, path)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise


def write_whole(path: pathlib.Path, content: bytes) -> None:
    """Writes a small file atomically; see `replacing`. Raises `WriteError` if that fails: the old file is unchanged."""
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise WriteError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[bool]:
    """Yields whether this `with` block holds the lock of a folder: no if another has it, or the system has no locks."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except OSError:
            locked = False
        yield locked
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def making_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Makes an empty folder, which gets the name `path` at the end of the `with` block.

    Until then its name is hidden and cannot be foreseen. After an error it is removed; what a kill leaves, the next
    call removes. A lock keeps the folder from calls of other processes.
    """
    begin = f".unfinished-{path.name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.iterdir():
        if re.fullmatch(re.escape(begin) + "-[0-9a-f]{16}", left.name) and not left.is_symlink():
            with contextlib.suppress(OSError), _locked(left) as locked:
                if locked:
                    shutil.rmtree(left)
    unfinished = path.with_name(f"{begin}-{secrets.token_hex(8)}")
    unfinished.mkdir()
    try:
        with _locked(unfinished):
            yield unfinished
        unfinished.rename(path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def check_no_link(path: pathlib.Path) -> None:
    """Raises `ValueError` if a path is a link, through which a program would write to another place."""
    if path.is_symlink():
        raise ValueError(
            f"{path} is a link, to {os.readlink(path)}; a program would write there. Replace the link with a copy of "
            "its target, or give another folder."
        )


def check_no_links(*paths: pathlib.Path) -> None:
    """Checks that files and folders, which this process has locked, and all that the folders hold are no links, before
    a program writes to them; removes what a killed `replacing` left. Those that do not exist are skipped.
    """
    for top in paths:
        below = (pathlib.Path(folder) / name for folder, folders, names in os.walk(top) for name in folders + names)
        for path in (top, *below):
            check_no_link(path)
            if re.search(rf"\.{UNFINISHED}$", path.name) and path.is_file():
                path.unlink()


def check_folder(path: pathlib.Path, name: str) -> None:
    """Checks that a path is, or can become, a folder, else raises `NotADirectoryError`; `name` is the option for it.
    Raises `ValueError` for a path that is not UTF-8, in which TensorFlow writes no files.
    """
    if re.search("[\ud800-\udfff]", str(path)):  # Which stand for other bytes.
        raise ValueError(f"`{name}` must be a path in UTF-8. Received: {path}. Rename the folder, or give another one.")
    nearest = next(part for part in (path, *path.parents) if os.path.lexists(part))
    if not nearest.is_dir():
        what = "which" if nearest == path else f"but {nearest}"
        raise NotADirectoryError(f"`{name}` must be a folder. Received: {path}, {what} is not a folder.")


def check_new(path: pathlib.Path, name: str) -> None:
    """Raises `FileExistsError` if a path is not a new or an empty folder, and the errors of `check_folder`."""
    check_folder(path, name)
    if path.exists() and any(path.iterdir()):
        raise FileExistsError(
            f"`{name}` must be a new or an empty folder. Received: {path}, which holds files. Give another one."
        )


def check_ends(path: pathlib.Path) -> None:
    """Raises `ValueError` if a path is a pipe, a socket or a device, from which a program could read for ever."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path} must be a file. It is a pipe, a socket or a device.")


def describe(path: pathlib.Path) -> dict:
    """Returns the size and the hash of a file: {"bytes": int, "sha256": str}. Raises `ValueError` for a pipe."""
    check_ends(path)
    with path.open("rb") as file:
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def read_json(path: pathlib.Path, max_bytes: int = MAX_JSON) -> dict:
    """Reads a JSON object from a file. More than `max_bytes`, or anything but an object, is a `ValueError`."""
    check_ends(path)
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"{path} has more than {max_bytes:,} bytes, the maximum.")
    if not content:
        raise ValueError(f"{path} is damaged: it is empty.")
    try:
        value = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}.") from error
    if not isinstance(value, dict):
        raise ValueError(f"Expected {path} to hold a JSON object. Received: {reprlib.repr(value)}.")
    return value


@contextlib.contextmanager
def exclusive(path: pathlib.Path, what: str, wait: bool = False) -> Iterator[None]:
    """Holds a lock file inside a `with` block; it is created with its folder if it does not exist, and stays there,
    empty. Links are not followed. `what` names the locked resource in messages.

    Raises `BlockingIOError` if another process holds the lock and `wait` is false, and `FileExistsError` if the file is
    not a lock file: it may be the user's.
    """
    folder = path.parent
    foreign = FileExistsError(f"{path} is not a lock of this program. Move it away, or give another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if path.is_symlink() or path.is_dir():
            raise foreign from error
        raise type(error)(f"{folder} cannot be written to ({error.strerror}). Give another folder.") from error
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
            message = f"{what} is in use by {holder or 'another process'}."
            if not wait:
                raise BlockingIOError(f"{message} Wait for it to end, or give another folder.") from error
            logger.info(f"{message} Waiting for it to end …")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
