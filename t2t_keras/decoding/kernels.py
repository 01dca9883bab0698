"""Which kernels TensorFlow decodes with on a CPU. TensorFlow reads this once, when it is imported; this module does not import it."""

import os
from collections.abc import MutableMapping

from t2t_keras.config import ModelConfig

ONEDNN = "TF_ENABLE_ONEDNN_OPTS"  # TensorFlow's variable: 0 takes the kernels of Eigen, 1, the default, those of oneDNN.
NARROW = 128  # d_model up to which Eigen's kernels are faster in float32. With 512 they are slower.


def choose(config: ModelConfig, dtype: str, int8: bool, environment: MutableMapping[str, str] = os.environ) -> None:
    """Chooses the faster kernels for a model, unless the user has chosen.

    oneDNN takes several microseconds to start each operation, and more at the first use of a shape. In a narrow model, most operations
    take less than that. It always pays in bfloat16.

    Args:
        config: of the model.
        dtype: of the arithmetic.
        int8: whether matrices are kept in 8 bits.
        environment: the variables to change.
    """
    if dtype == "float32" and not int8 and config.d_model <= NARROW:
        environment.setdefault(ONEDNN, "0")
