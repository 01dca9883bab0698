"""Attention (section 3.2): Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V, and h of them in parallel.

Letters: B sentences, T query tokens, S key tokens, D d_model, H heads, K d_k, E d_v.
"""

import keras
from keras import ops

from t2t_keras.model.dense import Dense, leading, linear


def attention_weights(q, k, mask=None):
    """softmax(Q Kᵀ / √d_k), equation 1.

    Args:
        q: [B, H, T, K].
        k: [B, H, S, K].
        mask: boolean, broadcast to [B, H, T, S]; True: may attend. A query that may attend nowhere weighs all keys alike.

    Returns:
        [B, H, T, S] in the dtype of `q`; the softmax itself is float32.
    """
    scores = ops.cast(ops.matmul(q * q.shape[-1] ** -0.5, ops.swapaxes(k, 2, 3)), "float32")
    if mask is not None:
        scores = ops.where(mask, scores, -1e9)
    return ops.cast(ops.softmax(scores), q.dtype)


def scaled_dot_product_attention(q, k, v, mask=None):
    """softmax(Q Kᵀ / √d_k) V, equation 1. [B,H,T,K], [B,H,S,K], [B,H,S,E] → [B,H,T,E]."""
    return ops.matmul(attention_weights(q, k, mask), v)


def _swapped(x):
    """[B, T, H, K] → [B, H, T, K], and back."""
    _, first, second, width = x.shape
    if first and second and 1 in (first, second):  # Nothing moves.
        return ops.reshape(x, (-1, second, first, width))
    return ops.swapaxes(x, 1, 2)


def _standardized(attention_mask, memory):
    """What may be attended to: an explicit mask, and the mask [B, S] that Keras attaches to `memory` → broadcast to [B, H, T, S].

    Raises:
        ValueError: the explicit mask is not boolean, or has neither three nor four axes.
    """
    implicit = getattr(memory, "_keras_mask", None)
    implicit = None if implicit is None else implicit[:, None, None, :]
    if attention_mask is None:
        return implicit
    if len(attention_mask.shape) not in (3, 4) or keras.backend.standardize_dtype(attention_mask.dtype) != "bool":
        raise ValueError(
            "attention_mask must be boolean, [B, T, S] or broadcast to [B, H, T, S], True where a query may attend "
            "(a padding mask [B, S] becomes mask[:, None, None, :]). "
            f"Received: shape {tuple(attention_mask.shape)} of {attention_mask.dtype}."
        )
    if len(attention_mask.shape) == 3:
        attention_mask = attention_mask[:, None]
    return attention_mask if implicit is None else ops.logical_and(attention_mask, implicit)


@keras.saving.register_keras_serializable("t2t_keras")
class MultiHeadAttention(keras.layers.Layer):
    """Concat(head_1 … head_h) W^O, section 3.2.2; no projection has a bias.

    Args:
        num_heads: h.
        d_k: width of a head's queries and keys.
        d_v: width of a head's values.

    Call arguments:
        query: [B, T, D].
        memory: [B, S, D], or its keys and values as `keys_values` returns them. None: self-attention, whose memory is the query.
        attention_mask: boolean, [B, T, S] or broadcast to [B, H, T, S]; True: may attend. A mask that Keras attaches to the memory,
            such as that of `keras.layers.Embedding(mask_zero=True)`, counts as well.
        cache: for self-attention, keys and values of the positions before `query`, or `()` where there are none.

    Returns:
        [B, T, D]; with a `cache`, also the keys [B, H, S, K] and values [B, H, S, E] of all positions so far, the next cache.
    """

    def __init__(self, num_heads: int, d_k: int, d_v: int, **kwargs):
        super().__init__(**kwargs)
        self.num_heads, self.d_k, self.d_v = num_heads, d_k, d_v
        self.query_projection = self._projection(num_heads * d_k, "query")
        self.key_projection = self._projection(num_heads * d_k, "key")
        self.value_projection = self._projection(num_heads * d_v, "value")
        self.supports_masking = True

    def _projection(self, width: int, name: str) -> Dense:
        return Dense(width, use_bias=False, name=name, dtype=self.dtype_policy)

    def build(self, query_shape, memory_shape=None):
        memory_shape = memory_shape or query_shape
        self.query_projection.build(query_shape)
        self.key_projection.build(memory_shape)
        self.value_projection.build(memory_shape)
        self.output_projection = self._projection(query_shape[-1], "output")
        self.output_projection.build((*query_shape[:-1], self.num_heads * self.d_v))

    def _project(self, x, *projections):
        """x [B, T, D] through several projections as one product, each split into heads: [B, H, T, K] or [B, H, T, E]."""
        # Called from outside `call` too, where Keras does not cast weights.
        kernels = [ops.cast(projection.kernel, self.compute_dtype) for projection in projections]
        rows = linear(ops.cast(x, self.compute_dtype), ops.concatenate(kernels, axis=1))
        batch, length = leading(x)
        # Not slices, whose gradients are each as large as `rows` and nearly all zeros.
        ends = [sum(kernel.shape[-1] for kernel in kernels[:last]) for last in range(1, len(kernels))]
        parts = ops.split(rows, ends, axis=1) if ends else [rows]
        return [_swapped(ops.reshape(part, (batch, length, self.num_heads, part.shape[-1] // self.num_heads))) for part in parts]

    def keys_values(self, memory):
        """The memory projected once, for several calls: [B, S, D] → [B, H, S, K] and [B, H, S, E]."""
        return self._project(memory, self.key_projection, self.value_projection)

    def _queries_keys_values(self, query, memory):
        """[B, H, T, K], [B, H, S, K] and [B, H, S, E]."""
        if memory is None:
            return self._project(query, self.query_projection, self.key_projection, self.value_projection)
        keys_values = memory if isinstance(memory, tuple | list) else self.keys_values(memory)
        return *self._project(query, self.query_projection), *keys_values

    def weights_of(self, query, memory, attention_mask=None):
        """How far each query attends to each position, by head. Arguments as of a call → [B, H, T, S] float32, rows that sum to 1."""
        q, k, _ = self._queries_keys_values(query, memory)
        return ops.cast(attention_weights(q, k, _standardized(attention_mask, memory)), "float32")

    def call(self, query, memory=None, attention_mask=None, cache=None):
        q, k, v = self._queries_keys_values(query, memory)
        if cache:
            k, v = (ops.concatenate(pair, axis=2) for pair in zip(cache, (k, v), strict=True))
        mask = _standardized(attention_mask, query if memory is None else memory)
        heads = _swapped(scaled_dot_product_attention(q, k, v, mask))
        output = self.output_projection(ops.reshape(heads, (*leading(heads)[:2], self.num_heads * self.d_v)))
        return output if cache is None else (output, [k, v])

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads, "d_k": self.d_k, "d_v": self.d_v}
