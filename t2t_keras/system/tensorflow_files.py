"""Files that TensorFlow writes: its errors at a full or read-only disk, as those of Python."""

import contextlib
import errno
import pathlib
from collections.abc import Iterator

import tensorflow as tf

from t2t_keras.system import files

# What TensorFlow raises if the disk is full, if a permission is missing, and at the system's limit of a file's size.
_WRITE_ERRORS = (tf.errors.ResourceExhaustedError, tf.errors.PermissionDeniedError, tf.errors.OutOfRangeError)


@contextlib.contextmanager
def writing(folder: pathlib.Path, name: pathlib.Path | None = None) -> Iterator[None]:
    """`files.writing`, also for the errors of TensorFlow."""
    with files.writing(folder, name):
        try:
            yield
        except _WRITE_ERRORS as error:
            raise OSError(errno.ENOSPC, error.message) from error
