"""Masks (section 3.2.3) and the shifted target: what each position may attend to, and what the decoder reads.

Attention masks are boolean, True where a query may attend, and broadcast to [B, H, T, S].
"""

from keras import ops

from t2t_keras.config import BOS, PAD


def padding_mask(ids):
    """True at tokens, False at padding. [B, S] int → boolean [B, 1, 1, S]."""
    return ops.not_equal(ids, PAD)[:, None, None, :]


def causal_mask(position, length):
    """key position <= query position, for queries at position … position + length - 1 → boolean [1, 1, T, position + T]."""
    return (ops.arange(position + length)[None, :] <= position + ops.arange(length)[:, None])[None, None]


def ancestry_mask(ancestors):
    """Beam w sees what beam ancestors[w, p] wrote at position p. [B, W, P] int → boolean [B, 1, W, P · W], keys by position, then beam."""
    batch, beams, positions = ops.shape(ancestors)
    seen = ops.equal(ancestors[..., None], ops.arange(beams))
    return ops.reshape(seen, (batch, 1, beams, positions * beams))


def shift_right(target):
    """The decoder's input for `target`: BOS, then all but the last column. [B, T] int → [B, T]."""
    return ops.concatenate([ops.full_like(target[:, :1], BOS), target[:, :-1]], axis=1)


def token_mask(target):
    """1 at tokens, 0 at padding. [B, T] int → [B, T] float32."""
    return ops.cast(ops.not_equal(target, PAD), "float32")
