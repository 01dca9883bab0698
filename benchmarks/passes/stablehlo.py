"""What an exported step needs on a machine without TensorFlow: its inputs, and StableHLO that newer readers take."""

import math
import re

import numpy as np

from t2t_keras.config import EOS

SEED = 1


def value_of(spec: dict, index: int) -> np.ndarray:
    """Returns an input of a step from its description, the same on every machine."""
    if "value" in spec:
        return np.array(spec["value"], spec["dtype"])
    shape, draw = spec["shape"], np.random.default_rng(SEED + index)
    if "below" in spec:
        return draw.integers(EOS + 1, spec["below"], shape).astype(np.int32)
    return (spec["mean"] + spec["deviation"] * draw.standard_normal(shape)).astype(np.float32)


def spelled_out(text: str) -> str:
    """Returns StableHLO whose boolean constants are words. TensorFlow packs them into bits, as newer readers do not."""

    def words(found: re.Match) -> str:
        shape = list(map(int, found[2].split("x")[:-1]))
        packed = np.frombuffer(bytes.fromhex(found[1]), np.uint8)
        bits = np.unpackbits(packed, bitorder="little")[: math.prod(shape)].astype(bool).reshape(shape)
        return f"dense<{str(bits.tolist()).lower()}> : tensor<{found[2]}>"

    return re.sub(r'dense<"0x([0-9A-F]+)"> : tensor<((?:\d+x)+i1)>', words, text)
