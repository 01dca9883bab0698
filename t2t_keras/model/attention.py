"""Attention (section 3.2): Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V, and h of them in parallel.

Letters: B sentences, T query tokens, S key tokens, D d_model, H heads, K d_k, E d_v.
"""

import keras
from keras import ops

from t2t_keras.model.dense import Dense, leading, product


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


@keras.saving.register_keras_serializable("t2t_keras")
class MultiHeadAttention(keras.layers.Layer):
    """Concat(head_1 … head_h) W^O, section 3.2.2; no projection has a bias.

    Args:
        num_heads: h.
        d_k: width of a head's queries and keys.
        d_v: width of a head's values.

    Call arguments:
        query: [B, T, D].
        memory: [B, S, D]; the query itself for self-attention.
        mask: boolean [B|1, H|1, T|1, S]; True: may attend.

    Returns:
        [B, T, D].
    """

    def __init__(self, num_heads: int, d_k: int, d_v: int, **kwargs):
        super().__init__(**kwargs)
        self.num_heads, self.d_k, self.d_v = num_heads, d_k, d_v
        self.query_projection = self._projection(num_heads * d_k, "query")
        self.key_projection = self._projection(num_heads * d_k, "key")
        self.value_projection = self._projection(num_heads * d_v, "value")

    def _projection(self, width: int, name: str) -> Dense:
        return Dense(width, use_bias=False, name=name, dtype=self.dtype_policy)

    def build(self, query_shape, memory_shape):
        self.query_projection.build(query_shape)
        self.key_projection.build(memory_shape)
        self.value_projection.build(memory_shape)
        self.output_projection = self._projection(query_shape[-1], "output")
        self.output_projection.build((*query_shape[:-1], self.num_heads * self.d_v))

    def project(self, x, *projections):
        """x [B, T, D] through several projections at once, each split into heads: [B, H, T, K] or [B, H, T, E]."""
        # Called from outside `call` too, where Keras does not cast weights.
        kernels = [ops.cast(projection.kernel, self.compute_dtype) for projection in projections]
        rows = product(ops.cast(x, self.compute_dtype), ops.concatenate(kernels, axis=1))
        batch, length = leading(x)
        # Not slices, whose gradients are each as large as `rows` and nearly all zeros.
        ends = [sum(kernel.shape[-1] for kernel in kernels[:last]) for last in range(1, len(kernels))]
        parts = ops.split(rows, ends, axis=1) if ends else [rows]
        return [_swapped(ops.reshape(part, (batch, length, self.num_heads, part.shape[-1] // self.num_heads))) for part in parts]

    def queries(self, x):
        """[B, T, D] → [B, H, T, K]."""
        return self.project(x, self.query_projection)[0]

    def keys_values(self, memory):
        """What is attended to: [B, S, D] → [B, H, S, K] and [B, H, S, E]."""
        return self.project(memory, self.key_projection, self.value_projection)

    def queries_keys_values(self, x):
        """All three of self-attention: [B, T, D] → [B, H, T, K], [B, H, T, K] and [B, H, T, E]."""
        return self.project(x, self.query_projection, self.key_projection, self.value_projection)

    def attend(self, queries, keys, values, mask=None):
        """What `queries` and `keys_values` return → [B, T, D]."""
        if mask is not None and (len(mask.shape) != 4 or keras.backend.standardize_dtype(mask.dtype) != "bool"):
            raise ValueError(
                "mask must be boolean and broadcast to [B, H, T, S], True where a query may attend "
                f"(a padding mask [B, S] becomes mask[:, None, None, :]). Received: shape {tuple(mask.shape)} of {mask.dtype}."
            )
        heads = _swapped(scaled_dot_product_attention(queries, keys, values, mask))
        return self.output_projection(ops.reshape(heads, (*leading(heads)[:2], self.num_heads * self.d_v)))

    def call(self, query, memory, mask=None):
        return self.attend(self.queries(query), *self.keys_values(memory), mask)

    def compute_mask(self, *inputs_and_masks):
        return None  # `mask` is about the scores; Keras would attach it to the output.

    def compute_output_shape(self, query_shape, memory_shape):
        return query_shape

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads, "d_k": self.d_k, "d_v": self.d_v}
