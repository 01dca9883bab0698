"""One step of the beam search on a cache of fixed length: as operations of TensorFlow, and compiled by XLA.

A search on a GPU launches each operation of a step. A compiled step needs a cache whose length grows by blocks, with a
mask over what is empty: this measures what such a step would take.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from t2t_keras.config import EOS
from t2t_keras.layers.inference import inference
from t2t_keras.model.transformer import EncodedSource


def make_steps(model, rows: int, beams: int, positions: int, source: int) -> dict[str, Callable]:
    """Makes a function for each kind of step of a `Transformer`, which computes the most likely token of each beam, and
    waits for it. There are `rows` sentences with `beams` each; the cache has `positions` tokens, and `source` is the
    length of the sources.
    """
    config, draw, dtype = model.config, np.random.default_rng(1), model.compute_dtype
    widths = config.d_k, config.d_v

    def normal(length: int, width: int) -> tf.Tensor:
        return tf.constant(draw.standard_normal((rows, config.num_heads, length, width), np.float32), dtype)

    def keys_values(length: int) -> list:
        return [[normal(length, width) for width in widths] for _ in range(config.decoder_layers)]

    memory, cache = keys_values(source), keys_values(positions * beams)
    tokens = tf.constant(draw.integers(EOS + 1, config.vocab_size, (rows, beams)), tf.int32)
    ancestors = tf.constant(draw.integers(0, beams, (rows, beams, positions + 1)), tf.int32)
    mask = tf.ones([rows, 1, 1, source], tf.bool)

    def step(tokens, ancestors, memory, cache):
        with inference():
            encoded = EncodedSource(memory, mask)
            logits, after = model.decode(tokens, encoded, state=cache, position=positions, ancestors=ancestors)
        return tf.argmax(tf.nn.log_softmax(logits), axis=-1), after

    kinds = {"plain": False, "compiled": True}
    functions = {name: tf.function(step, autograph=False, jit_compile=compiled) for name, compiled in kinds.items()}
    return {
        name: lambda function=function: function(tokens, ancestors, memory, cache)[0].numpy()
        for name, function in functions.items()
    }
