"""Encoder and decoder layers (section 3.1): the output of every sub-layer is LayerNorm(x + Dropout(Sublayer(x))).

By option, it is x + Dropout(Sublayer(LayerNorm(x))), pre-norm (Xiong et al. 2020, https://arxiv.org/abs/2002.04745).
Weights have the same names in both.
"""

import keras
from keras import ops

from t2t_keras.config import NORMS, POST, PRE
from t2t_keras.layers.attention import MultiHeadAttention
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.layer_norm import LayerNorm
from t2t_keras.layers.masks import causal_mask
from t2t_keras.layers.restricted_attention import RestrictedSelfAttention


@keras.saving.register_keras_serializable("t2t_keras")
class AddAndNorm(keras.layers.Layer):
    """Computes LayerNorm(x + Dropout(y)), sections 3.1 and 5.4: [B, T, D] and [B, T, D] → [B, T, D].

    Args:
        dropout: P_drop.
        epsilon: what layer normalization adds to the variance.
        pre: whether the sub-layer reads LayerNorm(x) instead, and the result is x + Dropout(y).

    Call arguments:
        x: input of the sub-layer, before any layer normalization, [B, T, D].
        y: output of the sub-layer, [B, T, D]; with `pre`, `None` returns what the sub-layer reads.
        training: whether to apply dropout.

    Example:

    ```python
    x = np.ones((2, 5, 8), "float32")
    feed_forward, norm = t2t_keras.FeedForward(d_ff=32), t2t_keras.AddAndNorm(dropout=0.1)
    y = feed_forward(norm.sublayer_input(x))
    norm(x, y, training=True).shape  # (2, 5, 8)
    ```
    """

    def __init__(self, dropout: float, epsilon: float = 1e-6, pre: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.pre = pre
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)
        self.norm = LayerNorm(epsilon=epsilon, name="norm", dtype=self.dtype_policy)
        self.supports_masking = True

    def build(self, x_shape, y_shape=None):
        if not self.norm.built:  # As by `sublayer_input`.
            self.norm.build(x_shape)

    def sublayer_input(self, x):
        """Returns what the sub-layer reads, [B, T, D] → [B, T, D]: LayerNorm(x) with pre-norm, else x itself."""
        if not self.pre:
            return x
        return self(x) if isinstance(x, keras.KerasTensor) else self.norm(x)  # A functional model has calls alone.

    def call(self, x, y=None, training=False):
        if y is None and self.pre:
            return self.norm(x)
        if y is None:
            raise ValueError("Expected the output y of the sub-layer. Received: none.")
        x = x + self.dropout(y, training=training)
        return x if self.pre else self.norm(x)

    def compute_output_shape(self, x_shape, y_shape=None):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout.rate, "epsilon": self.norm.epsilon, "pre": self.pre}


class _StackLayer(keras.layers.Layer):
    """The sub-layers that encoder and decoder layers share: self-attention and the feed-forward network."""

    def __init__(
        self,
        num_heads: int,
        d_k: int,
        d_v: int,
        d_ff: int,
        dropout: float,
        *,
        attention_window: int,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        attention_bias: bool = False,
        attention: str = "scaled",
        activation: str = "relu",
        norm: str = POST,
        norm_epsilon: float = 1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if norm not in NORMS:
            raise ValueError(f"`norm` must be one of {', '.join(NORMS)}. Received: norm={norm}.")
        self.options = {
            "num_heads": num_heads,
            "d_k": d_k,
            "d_v": d_v,
            "d_ff": d_ff,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "activation_dropout": activation_dropout,
            "attention_bias": attention_bias,
            "attention": attention,
            "activation": activation,
            "norm": norm,
            "norm_epsilon": norm_epsilon,
        }
        self.self_attention = self._attention("self_attention", attention_window)
        self.self_attention_norm = self._add_and_norm("self_attention_norm")
        self.feed_forward = FeedForward(
            d_ff, activation, activation_dropout, name="feed_forward", dtype=self.dtype_policy
        )
        self.feed_forward_norm = self._add_and_norm("feed_forward_norm")
        self.supports_masking = True

    def _attention(self, name: str, window: int = 0) -> MultiHeadAttention:
        options = {
            **{key: self.options[key] for key in ("num_heads", "d_k", "d_v")},
            "use_bias": self.options["attention_bias"],
            "function": self.options["attention"],
            "dropout": self.options["attention_dropout"],
            "name": name,
            "dtype": self.dtype_policy,
        }
        return RestrictedSelfAttention(**options, window=window) if window else MultiHeadAttention(**options)

    def _add_and_norm(self, name: str) -> AddAndNorm:
        dropout, epsilon, pre = self.options["dropout"], self.options["norm_epsilon"], self.options["norm"] == PRE
        return AddAndNorm(dropout, epsilon, pre, name=name, dtype=self.dtype_policy)

    def build(self, x_shape):
        self.self_attention.build(x_shape, x_shape)
        self.self_attention_norm.build(x_shape, x_shape)
        self.feed_forward.build(x_shape)
        self.feed_forward_norm.build(x_shape, x_shape)

    def get_config(self):
        return {**super().get_config(), **self.options}


@keras.saving.register_keras_serializable("t2t_keras")
class EncoderLayer(_StackLayer):
    """Encoder layer: self-attention, then the feed-forward network.

    Args:
        num_heads: number of heads, h.
        d_k: width of the queries and keys of one head.
        d_v: width of the values of one head.
        d_ff: inner width of the feed-forward network.
        dropout: P_drop.
        attention_window: the size r of the neighborhood that self-attention is restricted to (section 4): position i
            attends to the positions j with |i - j| <= r // 2. 0 does not restrict it.
        attention_dropout: dropout rate of the attention weights; not in the paper.
        activation_dropout: dropout rate between the two layers of the feed-forward network; not in the paper.
        attention_bias: whether the projections of attention have a bias; not in the paper.
        attention: name of the attention function, "scaled" as in the paper, "unscaled" or "additive"; see
            `MultiHeadAttention`.
        activation: of the feed-forward network; see `FeedForward`.
        norm: where layer normalization is, "post" as in the paper or "pre"; see `AddAndNorm`.
        norm_epsilon: see `AddAndNorm`.

    Call arguments:
        x: [B, S, D]. A mask that Keras attaches to it is a padding mask.
        attention_mask: boolean, [B, S, S] or a shape that broadcasts to [B, H, S, S]; True where a query may attend.
            With an `attention_window`, its size must be 1 along the queries.
        mask: a padding mask [B, S], such as wrappers pass, in place of one that Keras attaches to x.
        training: whether to apply dropout.

    Returns:
        [B, S, D].

    Raises:
        ValueError: an option has a value that it cannot have.

    Example:

    ```python
    ids = np.array([[5, 6, 7, 3], [8, 3, 0, 0]])
    layer = t2t_keras.EncoderLayer(num_heads=2, d_k=4, d_v=4, d_ff=32, dropout=0.1)
    layer(np.ones((2, 4, 8), "float32"), attention_mask=t2t_keras.padding_mask(ids)).shape  # (2, 4, 8)
    ```
    """

    def __init__(
        self, num_heads: int, d_k: int, d_v: int, d_ff: int, dropout: float, attention_window: int = 0, **kwargs
    ):
        super().__init__(num_heads, d_k, d_v, d_ff, dropout, attention_window=attention_window, **kwargs)
        self.attention_window = attention_window

    def call(self, x, attention_mask=None, training=False, mask=None):
        query = self.self_attention_norm.sublayer_input(x)
        y = self.self_attention(query, attention_mask=attention_mask, training=training, mask=mask)
        x = self.self_attention_norm(x, y, training=training)
        y = self.feed_forward(self.feed_forward_norm.sublayer_input(x), training=training)
        return self.feed_forward_norm(x, y, training=training)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "attention_window": self.attention_window}


@keras.saving.register_keras_serializable("t2t_keras")
class DecoderLayer(_StackLayer):
    """Decoder layer: self-attention, attention to the encoder output, then the feed-forward network.

    The arguments are those of `EncoderLayer`, without an `attention_window`.

    Call arguments:
        x: [B, T, D].
        memory: the encoder output [B, S, D], or its keys and values from `cross_attention.keys_values`. A mask that
            Keras attaches to it is a padding mask.
        attention_mask: boolean, [B, T, T] or a shape that broadcasts to [B, H, T, T]; True where a target position may
            attend. `None` is causal: no position attends to a later one (section 3.2.3).
        cross_attention_mask: boolean, [B, T, S] or a shape that broadcasts to [B, H, T, S]; True where a target
            position may attend to a source position.
        cache: keys and values of the positions before x, or `()` if there are none; see `MultiHeadAttention`.
        training: whether to apply dropout.

    Returns:
        [B, T, D]. With a `cache`, also the next cache.

    Example:

    ```python
    x, memory = np.ones((2, 3, 8), "float32"), np.ones((2, 5, 8), "float32")
    layer = t2t_keras.DecoderLayer(num_heads=2, d_k=4, d_v=4, d_ff=32, dropout=0.1)
    whole = layer(x, memory)
    whole.shape  # (2, 3, 8)
    before, cache = layer(x[:, :2], memory, cache=())
    last, cache = layer(x[:, 2:], memory, cache=cache)
    np.allclose(last, whole[:, 2:], atol=1e-5)  # True
    ```
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, attention_window=0, **kwargs)
        self.cross_attention = self._attention("cross_attention")
        self.cross_attention_norm = self._add_and_norm("cross_attention_norm")

    def build(self, x_shape, memory_shape):
        super().build(x_shape)
        self.cross_attention.build(x_shape, memory_shape)
        self.cross_attention_norm.build(x_shape, x_shape)

    def call(self, x, memory, attention_mask=None, cross_attention_mask=None, cache=None, training=False):
        if attention_mask is None:
            attention_mask = causal_mask(ops.shape(cache[0])[2] if cache else 0, ops.shape(x)[1])
        query = self.self_attention_norm.sublayer_input(x)
        y = self.self_attention(query, attention_mask=attention_mask, cache=cache, training=training)
        if cache is not None:
            y, cache = y
        x = self.self_attention_norm(x, y, training=training)
        query = self.cross_attention_norm.sublayer_input(x)
        y = self.cross_attention(query, memory, attention_mask=cross_attention_mask, training=training)
        x = self.cross_attention_norm(x, y, training=training)
        y = self.feed_forward(self.feed_forward_norm.sublayer_input(x), training=training)
        x = self.feed_forward_norm(x, y, training=training)
        return x if cache is None else (x, cache)
