"""What programs ask of TensorFlow beside arithmetic: GPUs, which a function sets up before TensorFlow uses them, other
machines, and files at a full disk.
"""

import contextlib
import errno
import os
import pathlib
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from t2t_keras.system import files
from t2t_keras.system.log import logger, passing

TF32_CAPABILITY = (8, 0)  # Compute capability of Ampere, the first GPUs with TF32.
# What TensorFlow raises if the disk is full, if a permission is missing, and at the system's limit of a file's size.
_WRITE_ERRORS = (tf.errors.ResourceExhaustedError, tf.errors.PermissionDeniedError, tf.errors.OutOfRangeError)


def reach_directly(hosts: Iterable[str]) -> None:
    """Keeps gRPC from reaching hosts, an IPv6 one without brackets, through the HTTP proxy that an environment variable
    names, if one does: TensorFlow would wait for them for ever.
    """
    if any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
        others = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy", "")
        os.environ["no_grpc_proxy"] = ",".join(dict.fromkeys([*filter(None, others.split(",")), *hosts]))


def hide_gpus() -> None:
    """Hides all GPUs from this process, which reads or prepares data. TensorFlow would reserve almost all of their
    memory.
    """
    with contextlib.suppress(RuntimeError):  # TensorFlow has been used already.
        tf.config.set_visible_devices([], "GPU")


def share_gpus() -> None:
    """Takes memory of the GPUs as it is needed. TensorFlow would reserve almost all of it, and a training run beside
    would find none.
    """
    with contextlib.suppress(RuntimeError):  # TensorFlow has been used already.
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)


def choose_float32(tf32: bool) -> None:
    """Chooses how GPUs multiply in float32, and logs the choice if a GPU has one: with `tf32`, factors are rounded to
    TF32, with 10 bits after the point in place of 23, as TensorFlow does by default.
    """
    tf.config.experimental.enable_tensor_float_32_execution(tf32)
    details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
    if any(gpu.get("compute_capability", (0, 0)) >= TF32_CAPABILITY for gpu in details):
        chosen = (
            "rounds factors to TF32; tf32=false keeps float32, slower"
            if tf32
            else "keeps factors in float32; tf32=true is faster"
        )
        logger.info(f"A product in float32 on the GPU {chosen}.")


def numpy_generator(seed: np.ndarray) -> np.random.Generator:
    """Returns a generator of random numbers for a seed of TensorFlow's stateless operations, [2] int64."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed.view(np.uint64).tolist())))


@contextlib.contextmanager
def without_retracing_warnings() -> Iterator[None]:
    """Hides TensorFlow's warnings of functions that are traced often, which several runs in one process cause, inside a
    `with` block or a function that it decorates.
    """
    with passing(tf.get_logger(), lambda record: "triggered tf.function retracing" not in record.getMessage()):
        yield


def gpu_peak_memory() -> float | None:
    """Returns the largest memory that TensorFlow has used so far on the fullest GPU, in GiB; `None` without a GPU."""
    gpus = [gpu.name.removeprefix("/device:") for gpu in tf.config.list_logical_devices("GPU")]
    peaks = [tf.config.experimental.get_memory_info(gpu)["peak"] for gpu in gpus]
    return max(peaks) / 2**30 if peaks else None


@contextlib.contextmanager
def writing(folder: pathlib.Path, name: pathlib.Path | None = None) -> Iterator[None]:
    """Turns TensorFlow's errors at a full or read-only disk into those of Python, and both into a readable `OSError`;
    see `files.writing`.
    """
    with files.writing(folder, name):
        try:
            yield
        except _WRITE_ERRORS as error:
            raise OSError(errno.ENOSPC, error.message) from error
