"""The attention functions that section 3.2.1 compares, and a layer of one head that attends with any of them.

    additive    v · tanh(q + k)    Bahdanau et al. 2015, appendix A.1.2; q and k are W s and U h
    scaled      q · k / √d_k       section 3.2.1
    unscaled    q · k              Luong et al. 2015

They take any axes before the last two, such as [B, H] of several heads.

Letters: B sentences, H heads, T queries, S keys, D width of queries, C width of the memory, K width of their
projections.
"""

from collections.abc import Callable

import keras
from keras import ops

from t2t_keras.layers.dense import Dense, at_least_float32
from t2t_keras.layers.inference import custom_gradient


@custom_gradient
def additive_scores(q, k, v):
    """Returns v · tanh(q_t + k_s), [B, T, S] or [B, H, T, S], for each query and key.

    The gradient computes tanh again: a decoder that attends at every step, or in every layer, would otherwise keep [T,
    S, K] numbers of each sentence and head.

    Args:
        q: queries [B, T, K], or of several heads [B, H, T, K].
        k: keys [B, S, K] or [B, H, S, K].
        v: weights [K], or of each head [H, 1, K].
    """

    def hidden():
        return ops.tanh(ops.expand_dims(q, -2) + ops.expand_dims(k, -3))

    def gradient(upstream):
        tanh = hidden()
        slope = 1 - ops.square(tanh)
        grad_q = ops.squeeze(ops.matmul(ops.expand_dims(upstream, -2), slope), -2) * v
        grad_k = _sum(ops.expand_dims(upstream, -1) * slope, -3) * v
        batch_axes, width = ops.shape(q)[:-2], q.shape[-1]
        grad_v = ops.matmul(ops.reshape(upstream, (*batch_axes, 1, -1)), ops.reshape(tanh, (*batch_axes, -1, width)))
        return grad_q, grad_k, ops.reshape(_sum(grad_v, 0), v.shape)

    return ops.squeeze(ops.matmul(hidden(), ops.expand_dims(v, -1)), -1), gradient


def _sum(x, axis: int):
    """Sums in float32 at least, unlike TensorFlow on a CPU, where 1,000 ones in bfloat16 are 256."""
    return ops.cast(ops.sum(at_least_float32(x), axis=axis), x.dtype)


def scaled_scores(q, k):
    """Returns q · k / √K for each query and key: [..., T, K] and [..., S, K] → [..., T, S]."""
    return unscaled_scores(q * q.shape[-1] ** -0.5, k)


def unscaled_scores(q, k):
    """Returns q · k for each query and key: [..., T, K] and [..., S, K] → [..., T, S].

    An einsum, because the loop of a decoder would keep the transposed keys of each step for the gradient.
    """
    q, k = without_float16(q), without_float16(k)
    return ops.einsum("...tk,...sk->...ts", q, k)


def without_float16(x):
    """Returns float16 as float32: a product of a query and a key may exceed 65,504. Other dtypes have the range."""
    return ops.cast(x, "float32") if keras.backend.standardize_dtype(x.dtype) == "float16" else x


FUNCTIONS: dict[str, Callable] = {"additive": additive_scores, "scaled": scaled_scores, "unscaled": unscaled_scores}


def check_function(name: str) -> None:
    """Raises `ValueError` if there is no attention function of this name."""
    if name not in FUNCTIONS:
        raise ValueError(f"`function` must be one of {', '.join(FUNCTIONS)}. Received: function={name}.")


def masked_softmax(scores, mask=None):
    """Returns the softmax of scores, [..., S], in float32 at least, over the keys that a mask allows, boolean and
    broadcast to their shape, or over all if it allows none or is `None`.
    """
    scores = at_least_float32(scores)
    if mask is not None:
        scores = ops.where(mask, scores, -1e9)
    # Keras warns of the softmax of a single score, which is 1, with gradient 0.
    return 0.0 * scores + 1.0 if scores.shape[-1] == 1 else ops.softmax(scores)


@keras.saving.register_keras_serializable("t2t_keras")
class Attention(keras.layers.Layer):
    """Attention with one head, whose queries and keys are projections, and whose values are the memory itself.

    Args:
        units: width of the projections, K.
        function: name of an attention function, one of `FUNCTIONS`.

    Call arguments:
        query: [B, T, D].
        memory: [B, S, C].
        mask: boolean [B, S], True where a query may attend; `None` for everywhere.

    Returns:
        The mean of the memory, weighted by attention, [B, T, C].

    Raises:
        ValueError: there is no such function.
    """

    def __init__(self, units: int, function: str = "additive", **kwargs):
        super().__init__(**kwargs)
        check_function(function)
        self.units, self.function = units, function
        self.query_projection = Dense(units, use_bias=False, name="query", dtype=self.dtype_policy)
        self.key_projection = Dense(units, use_bias=False, name="key", dtype=self.dtype_policy)

    def build(self, query_shape, memory_shape):
        self.query_projection.build(query_shape)
        self.key_projection.build(memory_shape)
        self.vector = None
        if self.function == "additive":
            self.vector = self.add_weight(shape=(self.units, 1), initializer="glorot_uniform", name="vector")

    def keys(self, memory):
        """Projects the memory once for several calls: [B, S, C] → [B, S, K]."""
        return self.key_projection(memory)

    def weights_of(self, query, keys, mask=None):
        """Returns the attention weights, [B, T, S] float32 or float64, of a query [B, T, D] and the result of `keys`,
        [B, S, K]; rows sum to 1. The mask is boolean [B, S], True where a query may attend; `None` for everywhere.
        """
        vector = () if self.vector is None else (ops.ravel(ops.cast(self.vector, self.compute_dtype)),)
        scores = FUNCTIONS[self.function](self.query_projection(query), keys, *vector)
        return masked_softmax(scores, None if mask is None else ops.expand_dims(mask, 1))

    def call(self, query, memory, mask=None):
        weights = self.weights_of(query, self.keys(memory), mask)
        return ops.matmul(ops.cast(weights, self.compute_dtype), memory)

    def get_config(self):
        return {**super().get_config(), "units": self.units, "function": self.function}
