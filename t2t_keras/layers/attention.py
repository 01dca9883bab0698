"""Attention (section 3.2): Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V, and h of them in parallel.

By option, heads have another of the functions that section 3.2.1 compares; see `attention_functions`.

Letters: B sentences, T query tokens, S key tokens, D d_model, H heads, K d_k, E d_v.
"""

import keras
from keras import ops

from t2t_keras.layers.attention_functions import FUNCTIONS, check_function, masked_softmax, without_float16
from t2t_keras.layers.dense import Dense, check_arrays, leading, linear
from t2t_keras.layers.dropout import Dropout
from t2t_keras.system.compat import keras_mask, with_keras_mask


def attention_weights(q, k, mask=None):
    """Returns softmax(Q Kᵀ / √d_k), the attention weights of equation 1: [B, H, T, S] in the dtype of `q`. The softmax
    is computed in float32 at least.

    Args:
        q: queries [B, H, T, K]; there may be more axes before the last two.
        k: keys [B, H, S, K].
        mask: boolean, broadcast to [B, H, T, S]; True where a query may attend. If a query may attend to no key, all
            its weights are equal.
    """
    scores = ops.matmul(without_float16(q * q.shape[-1] ** -0.5), ops.swapaxes(without_float16(k), -2, -1))
    return ops.cast(masked_softmax(scores, mask), q.dtype)


def scaled_dot_product_attention(q, k, v, mask=None):
    """Returns softmax(Q Kᵀ / √d_k) V, equation 1.

    Args:
        q: queries [B, H, T, K].
        k: keys [B, H, S, K].
        v: values [B, H, S, E].
        mask: boolean, broadcast to [B, H, T, S]; True where a query may attend.

    Returns:
        [B, H, T, E].

    Example:

    ```python
    q, k, v = np.ones((1, 1, 2, 4)), np.ones((1, 1, 3, 4)), np.array([[[[1.0], [2.0], [6.0]]]])
    ops.squeeze(t2t_keras.scaled_dot_product_attention(q, k, v)).numpy().round(2).tolist()  # [3.0, 3.0]
    mask = t2t_keras.padding_mask(np.array([[5, 7, 0]]))
    ops.squeeze(t2t_keras.scaled_dot_product_attention(q, k, v, mask)).numpy().round(2).tolist()  # [1.5, 1.5]
    ```
    """
    return ops.matmul(attention_weights(q, k, mask), v)


def _swap_heads(x):
    """Swaps the axes of positions and heads: [B, T, H, K] ↔ [B, H, T, K]."""
    _, first, second, width = x.shape
    if first and second and 1 in (first, second):  # A reshape is enough: the data keeps its order.
        return ops.reshape(x, (-1, second, first, width))
    return ops.swapaxes(x, 1, 2)


def _check_masks_cover_cache(attention_mask, query, mask, cached: int | None, keys: int | None) -> None:
    """Refuses masks without the cached positions. A mask of length 1 would otherwise broadcast to all of them.

    The query may carry a Keras mask [B, T], or have `mask`. `cached` is the number of keys in the cache, and `keys`
    that in the cache and the query; `None` if a graph does not know it.
    """
    expected = "With a `cache`, masks must cover the keys of the cache and of the query. "
    if not (keras_mask(query) is None and mask is None) and cached != 0:
        raise ValueError(
            f"{expected}The Keras mask of the query covers the query only. Remove it, and give an `attention_mask` [B, "
            "T, S] for all keys."
        )
    if attention_mask is not None and keys is not None and tuple(attention_mask.shape)[-1:] not in ((keys,), (None,)):
        raise ValueError(
            f"{expected}Expected: an attention_mask whose last axis is {keys}, {cached} of them cached. "
            f"Received: shape {tuple(attention_mask.shape)}."
        )


def _combine_masks(attention_mask, memory, mask=None):
    """Combines an explicit mask with `mask` [B, S] or else with the one that Keras attaches to `memory` or to its keys.
    Returns a boolean mask that broadcasts to [B, H, T, S], or `None` if there is no mask.
    """
    implicit = mask
    if implicit is None:
        implicit = keras_mask(memory[0] if isinstance(memory, tuple | list) else memory)
    implicit = None if implicit is None else implicit[:, None, None, :]
    if attention_mask is None:
        return implicit
    if len(attention_mask.shape) not in (3, 4) or keras.backend.standardize_dtype(attention_mask.dtype) != "bool":
        raise ValueError(
            "attention_mask must be boolean, of shape [B, T, S] or a shape that broadcasts to [B, H, T, S], True where "
            "a query may attend (for a padding mask [B, S], give mask[:, None, None, :]). Received: shape "
            f"{tuple(attention_mask.shape)} of {attention_mask.dtype}."
        )
    if len(attention_mask.shape) == 3:
        attention_mask = attention_mask[:, None]
    return attention_mask if implicit is None else ops.logical_and(attention_mask, implicit)


@keras.saving.register_keras_serializable("t2t_keras")
class MultiHeadAttention(keras.layers.Layer):
    """Multi-head attention, Concat(head_1 … head_h) W^O (section 3.2.2).

    Args:
        num_heads: number of heads, h.
        d_k: width of the queries and keys of one head.
        d_v: width of the values of one head.
        use_bias: whether the four projections have a bias; not in the paper.
        function: name of the attention function: "scaled" as in the paper, "unscaled" or "additive"; see
            `attention_functions`.
        dropout: dropout rate of the attention weights; not in the paper.

    Call arguments:
        query: [B, T, D].
        memory: the sequence to attend to, [B, S, D], or its keys and values from `keys_values`. `None` is
            self-attention: the memory is the query.
        attention_mask: boolean, [B, T, S] or a shape that broadcasts to [B, H, T, S]; True where a query may attend.
            The layer combines it with a mask that Keras attaches to the memory, such as that of
            `keras.layers.Embedding(mask_zero=True)`.
        cache: for self-attention, the keys and values of the positions before `query`, or `()` if there are none. A
            mask must then cover the cached positions too: a query with a Keras mask is refused unless the cache is
            empty.
        mask: for self-attention, a padding mask [B, T], such as wrappers pass, in place of one that Keras attaches.
        training: whether to apply dropout.

    Returns:
        [B, T, D]. With a `cache`, also the next cache: the keys [B, H, S, K] and values [B, H, S, E] of all positions
        so far.

    Raises:
        ValueError: there is no such function, `attention_mask` has a wrong dtype or shape, or a mask does not cover the
            cached positions.

    Example:

    ```python
    query, memory = np.ones((2, 3, 8), "float32"), np.ones((2, 5, 8), "float32")
    layer = t2t_keras.MultiHeadAttention(num_heads=2, d_k=4, d_v=4)
    layer(query, memory).shape  # (2, 3, 8)
    layer(query, attention_mask=t2t_keras.causal_mask(0, 3)).shape  # (2, 3, 8)
    ```
    """

    def __init__(
        self,
        num_heads: int,
        d_k: int,
        d_v: int,
        use_bias: bool = False,
        function: str = "scaled",
        dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_function(function)
        self.num_heads, self.d_k, self.d_v, self.use_bias, self.function = num_heads, d_k, d_v, use_bias, function
        self.query_projection = self._projection(num_heads * d_k, "query")
        self.key_projection = self._projection(num_heads * d_k, "key")
        self.value_projection = self._projection(num_heads * d_v, "value")
        # None at all without a rate: its seed would change the random numbers of other layers.
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy) if dropout else None
        self.supports_masking = True

    def _projection(self, width: int, name: str) -> Dense:
        return Dense(width, use_bias=self.use_bias, name=name, dtype=self.dtype_policy)

    def build(self, query_shape, memory_shape=None):
        memory_shape = memory_shape or query_shape
        self.query_projection.build(query_shape)
        self.key_projection.build(memory_shape)
        self.value_projection.build(memory_shape)
        self.output_projection = self._projection(query_shape[-1], "output")
        self.output_projection.build((*query_shape[:-1], self.num_heads * self.d_v))
        self.vector = None
        if self.function == "additive":
            # With a standard deviation of d_k^-1/2, scores have a variance below 1.
            initializer = keras.initializers.RandomNormal(stddev=self.d_k**-0.5)
            self.vector = self.add_weight(shape=(self.num_heads, self.d_k), initializer=initializer, name="vector")

    def _project(self, x, *projections):
        """Applies several projections to x [B, T, D]; each result has its heads: [B, H, T, K] or [B, H, T, E]."""
        if len({projection.units for projection in projections}) > 1:
            return [self._project(x, projection)[0] for projection in projections]
        # One matrix product and one swap of axes for all. This also runs outside `call`, where Keras casts no weights.
        kernel = ops.concatenate(
            [ops.cast(projection.kernel, self.compute_dtype) for projection in projections], axis=1
        )
        bias = (
            ops.concatenate([ops.cast(projection.bias, self.compute_dtype) for projection in projections])
            if self.use_bias
            else None
        )
        rows = linear(ops.cast(x, self.compute_dtype), kernel, bias)
        heads = len(projections) * self.num_heads
        x = _swap_heads(ops.reshape(rows, (*leading(x), heads, rows.shape[-1] // heads)))
        # `split`, because the gradient of each slice would be as large as `x` and almost all zeros.
        return ops.split(x, len(projections), axis=1) if len(projections) > 1 else [x]

    def keys_values(self, memory):
        """Projects the memory once for several calls: [B, S, D] → keys [B, H, S, K] and values [B, H, S, E]. The keys
        have the mask that Keras attaches to the memory, until they pass through another operation or function: give an
        `attention_mask` then.
        """
        check_arrays("keys_values", memory)
        keys, values = self._project(memory, self.key_projection, self.value_projection)
        return [with_keras_mask(keys, keras_mask(memory)), values]

    def _queries_keys_values(self, query, memory):
        """Returns queries [B, H, T, K], keys [B, H, S, K] and values [B, H, S, E]."""
        if memory is None:
            return self._project(query, self.query_projection, self.key_projection, self.value_projection)
        keys_values = memory if isinstance(memory, tuple | list) else self.keys_values(memory)
        return *self._project(query, self.query_projection), *keys_values

    def weights_of(self, query, memory, attention_mask=None):
        """Returns the attention weights of each head in a call with these arguments, [B, H, T, S] float32."""
        check_arrays("weights_of", query)
        q, k, _ = self._queries_keys_values(query, memory)
        memory = query if memory is None else memory
        return ops.cast(self._weights(q, k, _combine_masks(attention_mask, memory)), "float32")

    def scores_of(self, query, memory):
        """Returns the scores of each head before masks and softmax for the arguments of a call, [B, H, T, S]."""
        check_arrays("scores_of", query)
        q, k, _ = self._queries_keys_values(query, memory)
        return self._scores(q, k)

    def _scores(self, q, k):
        vector = () if self.vector is None else (ops.expand_dims(ops.cast(self.vector, self.compute_dtype), 1),)
        return FUNCTIONS[self.function](q, k, *vector)

    def _weights(self, q, k, mask):
        if self.function == "scaled":
            return attention_weights(q, k, mask)
        return ops.cast(masked_softmax(self._scores(q, k), mask), q.dtype)

    def _attend(self, q, k, v, mask, training=False):
        weights = self._weights(q, k, mask)
        return ops.matmul(self.dropout(weights, training=training) if self.dropout else weights, v)

    def call(self, query, memory=None, attention_mask=None, cache=None, training=False, mask=None):
        q, k, v = self._queries_keys_values(query, memory)
        mask, memory = (mask, query) if memory is None else (None, memory)
        if cache:
            k, v = (ops.concatenate(pair, axis=2) for pair in zip(cache, (k, v), strict=True))
            _check_masks_cover_cache(attention_mask, memory, mask, cache[0].shape[2], k.shape[2])
        mask = _combine_masks(attention_mask, memory, mask)
        heads = _swap_heads(self._attend(q, k, v, mask, training))
        output = self.output_projection(ops.reshape(heads, (*leading(heads)[:2], self.num_heads * self.d_v)))
        return output if cache is None else (output, [k, v])

    def compute_output_shape(self, query_shape, memory_shape=None, **shapes):
        return query_shape

    def compute_output_spec(self, *args, **kwargs):
        return keras.Operation.compute_output_spec(self, *args, **kwargs)  # With a `cache`, there is another output.

    def get_config(self):
        options = {name: getattr(self, name) for name in ("num_heads", "d_k", "d_v", "use_bias", "function")}
        return {**super().get_config(), **options, "dropout": self.dropout.rate if self.dropout else 0.0}
