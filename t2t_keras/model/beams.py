"""States of a decoder that must follow their beams. The search never reorders a state; it says which beam each beam
continues.

Letters: B sentences, W beams, T tokens written so far.
"""

import keras
from keras import ops


def parents(ancestors):
    """Returns the beam at the previous position that each beam continues, [B, W] int; before the first token, the beam
    itself. `ancestors` is [B, W, T + 1] int; see `beam_search`.
    """
    return ancestors[:, :, -2:][:, :, 0]


def follow(state, ancestors):
    """Reorders a state from the previous position, so that each beam has that of its own hypothesis.

    A recurrent decoder and a scorer with a state for each beam call this once at every position, before they use their
    state. Nothing changes before the first token.

    Args:
        state: nest of tensors [B, W, …].
        ancestors: [B, W, T + 1] int; see `beam_search`.

    Returns:
        A nest like `state`, whose beam w is beam `parents(ancestors)[:, w]` of `state`.

    Example:

    ```python
    state, ancestors = np.array([[[10], [20]]]), np.array([[[0, 1, 0], [0, 1, 1]]])  # Both beams continue beam 1.
    t2t_keras.follow(state, ancestors).numpy().tolist()  # [[[20], [20]]]
    ```
    """
    batch, beams, _ = ops.shape(ancestors)
    rows = ops.arange(batch, dtype="int32")[:, None] * beams + ops.cast(parents(ancestors), "int32")

    def reorder(x):
        return ops.take(ops.reshape(x, (batch * beams, *ops.shape(x)[2:])), rows, axis=0)

    return keras.tree.map_structure(reorder, state)
