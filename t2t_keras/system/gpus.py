"""The GPUs of a process: whether it sees them, how it takes their memory, and how they compute in float32.

Each function takes effect if it is called before TensorFlow uses the devices.
"""

import contextlib

import tensorflow as tf

from t2t_keras.system.log import logger

TF32_CAPABILITY = (8, 0)  # Compute capability of Ampere, the first GPUs with TF32.


def hide() -> None:
    """Hides all GPUs from this process, which reads or prepares data. TensorFlow would reserve almost all of their
    memory.
    """
    with contextlib.suppress(RuntimeError):  # TensorFlow has been used already.
        tf.config.set_visible_devices([], "GPU")


def share() -> None:
    """Takes memory of the GPUs as it is needed. TensorFlow would reserve almost all of it, and a training run beside
    would find none.
    """
    with contextlib.suppress(RuntimeError):  # TensorFlow has been used already.
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)


def choose_float32(tf32: bool) -> None:
    """Chooses how GPUs multiply in float32, and logs the choice if a GPU has one.

    Args:
        tf32: whether factors are rounded to TF32, with 10 bits after the point in place of 23, as TensorFlow does by
            default.
    """
    tf.config.experimental.enable_tensor_float_32_execution(tf32)
    details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
    if any(found.get("compute_capability", (0, 0)) >= TF32_CAPABILITY for found in details):
        chosen = (
            "rounds factors to TF32; tf32=false keeps float32, slower"
            if tf32
            else "keeps factors in float32; tf32=true is faster"
        )
        logger.info(f"A product in float32 on the GPU {chosen}.")
