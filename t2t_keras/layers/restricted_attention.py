"""Restricted self-attention (section 4): each position attends only to a neighborhood of r positions around it.

Table 1 gives it a complexity of O(r · n · d) for n positions, where full self-attention has O(n² · d). The sequence is
cut into blocks. The queries of a block attend, in one matrix product, to the keys of the block and to R = r // 2 keys
before and after it. A mask removes the keys that are too far from a query. So no tensor has two axes of length n, and
time and memory grow linearly with n.

Letters: B sentences, S positions, H heads, K d_k, E d_v, N blocks, L positions of a block, C = L + 2R keys around a
block.
"""

import keras
from keras import ops

from t2t_keras.layers.attention import MultiHeadAttention, scaled_dot_product_attention
from t2t_keras.layers.dense import check_arrays

_SMALLEST_BLOCK = 64  # Smaller blocks compute fewer unused scores, but their matrix products are slower.


def _clip(size: int, low: int, high):
    """Returns `size` within [low, max(low, high)]; `high` may be a scalar tensor."""
    return max(low, min(size, high)) if isinstance(high, int) else ops.maximum(low, ops.minimum(size, high))


def _sizes(window: int, length) -> tuple:
    """Returns R and L for a window and a sequence length; the length may be a scalar tensor."""
    return _clip(window // 2, 0, length), _clip(max(window // 2, _SMALLEST_BLOCK), 1, length)


def computed_scores(window: int, length):
    """Returns how many attention scores a head computes for a sequence: N · L · C, or with window 0, S · S."""
    if not window:
        return length * length
    reach, block = _sizes(window, length)
    return -(-length // block) * block * (block + 2 * reach)


def _cut(x, block, around: int = 0):
    """Cuts x [B, H, S, K] into blocks [B, H, N, L, K]. Zeros fill the last one and `around` more blocks at each end."""
    batch, heads, length, width = ops.shape(x)
    number = -(-length // block)
    x = ops.pad(x, [[0, 0], [0, 0], [around * block, (number + around) * block - length], [0, 0]])
    return ops.reshape(x, (batch, heads, number + 2 * around, block, width))


def _neighborhoods(x, block, reach):
    """Returns each block of x [B, H, S, K] with its R neighbors on both sides: [B, H, N, C, K]. Beyond the ends there
    are zeros.
    """
    blocks = _cut(x, block, around=1)
    before, after = blocks[:, :, :-2, block - reach :], blocks[:, :, 2:, :reach]
    return ops.concatenate([before, blocks[:, :, 1:-1], after], axis=3)


def _mask(mask, length, block, reach):
    """Returns the mask of all blocks, boolean [B, H, N, L, C] or a shape that broadcasts to it. See
    `restricted_attention` for `mask`.
    """

    def around_blocks(keys):
        return _neighborhoods(keys[:, :, 0, :, None], block, reach)[:, :, :, None, :, 0]

    distance = ops.arange(block + 2 * reach) - ops.arange(block)[:, None] - reach
    positions = ops.ones((1, 1, 1, length), "bool")
    near = ops.logical_and(ops.abs(distance) <= reach, around_blocks(positions))
    if mask is None:
        return near
    allowed = ops.logical_and(near, around_blocks(ops.logical_and(mask, positions)))
    return ops.logical_or(allowed, ops.logical_and(near, ops.logical_not(ops.any(allowed, axis=-1, keepdims=True))))


def restricted_attention(q, k, v, window: int, mask=None):
    """Returns softmax(Q Kᵀ / √d_k) V, equation 1, where position i attends only to j with |i - j| <= window // 2.

    Args:
        q: queries [B, H, S, K].
        k: keys [B, H, S, K].
        v: values [B, H, S, E].
        window: the size r of the neighborhood, at least 1. An even r has the neighborhood of r + 1, because it is
            centered.
        mask: boolean, four axes that broadcast to [B, H, 1, S]; True at keys that may be attended to. A neighborhood
            without such a key, as far inside padding, is not masked.

    Returns:
        [B, H, S, E]. The softmax is computed in float32 at least.

    Raises:
        ValueError: `window` is not positive, the mask differs between queries, or it does not have four axes.

    Example:

    ```python
    q, k, v = np.ones((1, 1, 4, 2), "float32"), np.ones((1, 1, 4, 2), "float32"), np.array([[[[0.0], [2], [4], [9]]]])
    ops.squeeze(t2t_keras.restricted_attention(q, k, v, window=3)).numpy().round(2).tolist()  # [1.0, 2.0, 5.0, 6.5]
    ```
    """
    check_arrays("restricted_attention", q, k, v)
    if window < 1:
        raise ValueError(f"`window` must be at least 1. Received: window={window}.")
    if mask is not None and (len(mask.shape) != 4 or mask.shape[2] != 1):
        raise ValueError(
            "Expected a mask that is the same for all queries, [B, 1, 1, S] or [B, H, 1, S]: restricted attention has "
            f"no tensor of size S · S. Received: shape {tuple(mask.shape)}."
        )
    batch, heads, length, _ = ops.shape(q)
    reach, block = _sizes(window, length)
    k, v = (_neighborhoods(x, block, reach) for x in (k, v))
    blocks = scaled_dot_product_attention(_cut(q, block), k, v, _mask(mask, length, block, reach))
    return ops.reshape(blocks, (batch, heads, ops.shape(blocks)[2] * block, v.shape[-1]))[:, :, :length]


@keras.saving.register_keras_serializable("t2t_keras")
class RestrictedSelfAttention(MultiHeadAttention):
    """Multi-head self-attention in which each position attends to a neighborhood, with `MultiHeadAttention`'s weights.

    Args:
        num_heads: number of heads, h.
        d_k: width of the queries and keys of one head.
        d_v: width of the values of one head.
        window: the size r of the neighborhood: position i attends to the positions j with |i - j| <= window // 2.
        use_bias: whether the four projections have a bias; not in the paper.
        function: "scaled"; other attention functions are refused.
        dropout: 0; there is no dropout of the attention weights.

    Call arguments:
        query: [B, S, D].
        attention_mask: boolean, a shape that broadcasts to [B, H, 1, S]; True at positions that may be attended to. The
            layer combines it with a mask that Keras attaches to the query.

    Returns:
        [B, S, D].

    Raises:
        ValueError: `window` is not positive, the function or the dropout rate is another one, the mask differs between
            queries, or the call has a `memory` or a `cache`.

    Example:

    ```python
    layer = t2t_keras.RestrictedSelfAttention(num_heads=2, d_k=4, d_v=4, window=16)
    layer(np.ones((1, 1000, 8), "float32")).shape  # (1, 1000, 8)
    ```
    """

    def __init__(
        self,
        num_heads: int,
        d_k: int,
        d_v: int,
        window: int,
        use_bias: bool = False,
        function: str = "scaled",
        dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(num_heads, d_k, d_v, use_bias, function, dropout, **kwargs)
        if window < 1:
            raise ValueError(f"`window` must be at least 1. Received: window={window}.")
        if function != "scaled":
            raise ValueError(f"Restricted self-attention has `function=scaled` only. Received: function={function}.")
        if dropout:
            raise ValueError(f"Restricted self-attention has no dropout of the weights. Received: dropout={dropout}.")
        self.window = window

    def _attend(self, q, k, v, mask, training=False):
        return restricted_attention(q, k, v, self.window, mask)

    def _weights(self, q, k, mask):
        # For pictures of short sequences. Attention returns its weights if the values are the rows of the identity
        # matrix.
        return self._attend(q, k, ops.eye(k.shape[2], dtype=k.dtype)[None, None], mask)

    def call(self, query, memory=None, attention_mask=None, cache=None, training=False, mask=None):
        if memory is not None or cache is not None:
            raise ValueError("Restricted self-attention takes no `memory` and no `cache`: give a `query` alone.")
        return super().call(query, attention_mask=attention_mask, mask=mask)

    def get_config(self):
        return {**super().get_config(), "window": self.window}
