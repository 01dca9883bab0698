"""t2t_keras as the benchmarks of decoding run it: from ids to ids, and a model whose translations have any wanted
length.
"""

import functools
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.config import EOS, DecodeConfig, ModelConfig
from t2t_keras.decoding.translator import Translator
from t2t_keras.model.transformer import Transformer


def translate_function(model: Transformer, alpha: float, cores: int = 0) -> Callable:
    """Returns a function that translates a batch: (source ids, maximum lengths, beam size) → target ids. Ids are a list
    for each sentence, maximum lengths a number.

    The model must not change afterwards, because its weights become constants. `cores` is the number of cores to divide
    a batch among; 0: all.
    """

    @functools.cache
    def search_of(beam_size: int):
        translator = Translator(model, None, DecodeConfig(beam_size=beam_size), frozen=True)
        translator.limits = translator.limits._replace(cores=cores or translator.limits.cores)

        @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)])
        def search(source, max_lengths):
            rows = tf.shape(max_lengths)
            return translator.search(source, tf.fill(rows, alpha), max_lengths, tf.ones(rows, tf.int32))[0][::beam_size]

        return search

    def translate(sources: list[list[int]], max_lengths: list[int], beam_size: int) -> list[list[int]]:
        ids = tf.ragged.constant(sources, tf.int32, row_splits_dtype=tf.int64)
        return search_of(beam_size)(ids, tf.constant(max_lengths)).to_list()

    return translate


def never_ending(config: ModelConfig, seed: int = 1, dtype: str = "float32") -> Transformer:
    """Makes a model with random weights that never predicts a special id, such as the end token.

    The last layer norm fixes one coordinate, whose embedding weight is low for the special ids alone.
    """
    keras.utils.set_random_seed(seed)
    model = Transformer(config, dtype=dtype)
    norm, matrix = model.decoder[-1].feed_forward_norm.norm, model.embedding.matrix.numpy()
    gamma, beta = norm.gamma.numpy(), norm.beta.numpy()
    # Other logits have variance 1, so 8 · -2 is 16 standard deviations below them.
    gamma[0], beta[0], matrix[:, 0] = 0, 8, 0
    matrix[: EOS + 1, 0] = -2
    for weight in model.trainable_variables:  # Their initial zeros are faster than a trained model's.
        if weight.path.endswith("/bias"):
            weight.assign(keras.random.normal(weight.shape, stddev=0.05, seed=seed))
    for weight, value in ((norm.gamma, gamma), (norm.beta, beta), (model.embedding.matrix, matrix)):
        weight.assign(np.array(value))
    return model
