"""How TensorFlow decodes on a CPU: its kernels and threads, as environment variables. TensorFlow must not be imported
before.
"""

import os
from collections.abc import MutableMapping, Sequence

from t2t_keras.config import ModelConfig

# TensorFlow's variable: 0 takes the kernels of Eigen, 1, the default, those of oneDNN.
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
THREADS = "TF_NUM_INTRAOP_THREADS"  # TensorFlow's variable: the number of threads of an operation.
NARROW = 128  # d_model up to which Eigen's kernels are faster in float32. With 512 they are slower.


def choose(
    models: Sequence[ModelConfig], dtype: str, int8: bool, environment: MutableMapping[str, str] = os.environ
) -> None:
    """Chooses the faster kernels for models, and the threads, unless the user has chosen.

    oneDNN takes several microseconds to start each operation, and more at the first use of a shape. In a narrow model,
    most operations take less than that. It always pays in bfloat16.

    Args:
        models: options of each model.
        dtype: dtype of the arithmetic.
        int8: whether matrices have 8 bits.
        environment: the variables to change.
    """
    choose_threads(environment)
    if dtype == "float32" and not int8 and all(model.d_model <= NARROW for model in models):
        environment.setdefault(ONEDNN, "0")


def choose_threads(environment: MutableMapping[str, str] = os.environ) -> None:
    """Chooses one thread for each operation, unless the user has chosen.

    An operation of a decoder step is too small for several threads. Instead, each core translates a part of the batch;
    see `sub_batches.py`.
    """
    environment.setdefault(THREADS, "1")
