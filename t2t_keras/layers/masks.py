"""Masks (section 3.2.3) and the shifted target, which the decoder reads.

Attention masks are boolean, True where a query may attend, and broadcast to [B, H, T, S].
"""

from keras import ops

from t2t_keras.config import BOS, PAD


def padding_mask(ids):
    """Returns an attention mask that hides padding: ids [B, S] int → boolean [B, 1, 1, S], True at tokens.

    Example:

    ```python
    t2t_keras.padding_mask(np.array([[5, 7, 0]])).numpy().tolist()  # [[[[True, True, False]]]]
    ```
    """
    return ops.not_equal(ids, PAD)[:, None, None, :]


def causal_mask(position, length):
    """Returns an attention mask that hides later positions.

    Args:
        position: position of the first query; int or int32 scalar.
        length: number of queries, T.

    Returns:
        Boolean [1, 1, T, position + T], True if the position of the key is at most that of the query.

    Raises:
        ValueError: the length is `None`.

    Example:

    ```python
    t2t_keras.causal_mask(0, 3).numpy().astype(int)[0, 0].tolist()  # [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    t2t_keras.causal_mask(2, 1).numpy().astype(int)[0, 0].tolist()  # [[1, 1, 1]]
    ```
    """
    if length is None:
        raise ValueError("The number of queries is unknown in a functional model: call `causal_mask` inside a layer.")
    return (ops.arange(position + length)[None, :] <= position + ops.arange(length)[:, None])[None, None]


def ancestry_mask(ancestors):
    """Returns an attention mask for beams, boolean [B, 1, W, P · W]: beam w sees the token that beam ancestors[w, p]
    read at each position p, where `ancestors` is [B, W, P] int. The keys are ordered by position, then by beam.
    """
    batch, beams, positions = ops.shape(ancestors)
    seen = ops.equal(ancestors[..., None], ops.arange(beams))
    return ops.reshape(seen, (batch, 1, beams, positions * beams))


def shift_right(target):
    """Returns the decoder input for `target`: BOS, then all columns but the last. [B, T] int → [B, T].

    Example:

    ```python
    t2t_keras.shift_right(np.array([[5, 7, 3]])).numpy().tolist()  # [[2, 5, 7]]
    ```
    """
    return ops.concatenate([ops.full_like(target[:, :1], BOS), target[:, :-1]], axis=1)


def token_mask(target):
    """Returns 1 at tokens and 0 at padding: [B, T] int → [B, T] float32."""
    return ops.cast(ops.not_equal(target, PAD), "float32")
