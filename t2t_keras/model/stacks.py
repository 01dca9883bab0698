"""Encoder and decoder stacks (section 3.1): every sub-layer's output is LayerNorm(x + Dropout(Sublayer(x)))."""

import keras

from t2t_keras.model.attention import MultiHeadAttention
from t2t_keras.model.dropout import Dropout
from t2t_keras.model.feed_forward import FeedForward
from t2t_keras.model.layer_norm import LayerNorm


@keras.saving.register_keras_serializable("t2t_keras")
class AddAndNorm(keras.layers.Layer):
    """LayerNorm(x + Dropout(y)), sections 3.1 and 5.4. [B, T, D], [B, T, D] → [B, T, D]."""

    def __init__(self, dropout: float, **kwargs):
        super().__init__(**kwargs)
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)
        self.norm = LayerNorm(epsilon=1e-6, name="norm", dtype=self.dtype_policy)

    def build(self, x_shape, y_shape):
        self.norm.build(x_shape)

    def call(self, x, y, training=False):
        return self.norm(x + self.dropout(y, training=training))

    def compute_output_shape(self, x_shape, y_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout.rate}


class _StackLayer(keras.layers.Layer):
    """What encoder and decoder layers share: their sizes, and self-attention."""

    def __init__(self, num_heads: int, d_k: int, d_v: int, d_ff: int, dropout: float, **kwargs):
        super().__init__(**kwargs)
        self.sizes = {"num_heads": num_heads, "d_k": d_k, "d_v": d_v, "d_ff": d_ff, "dropout": dropout}
        self.self_attention = self._attention("self_attention")
        self.self_attention_norm = self._add_and_norm("self_attention_norm")
        self.feed_forward = FeedForward(d_ff, name="feed_forward", dtype=self.dtype_policy)
        self.feed_forward_norm = self._add_and_norm("feed_forward_norm")

    def _attention(self, name: str) -> MultiHeadAttention:
        sizes = {key: self.sizes[key] for key in ("num_heads", "d_k", "d_v")}
        return MultiHeadAttention(**sizes, name=name, dtype=self.dtype_policy)

    def _add_and_norm(self, name: str) -> AddAndNorm:
        return AddAndNorm(self.sizes["dropout"], name=name, dtype=self.dtype_policy)

    def _build_attention(self, attention, norm, x_shape, memory_shape):
        attention.build(x_shape, memory_shape)
        norm.build(x_shape, x_shape)

    def _build_shared(self, x_shape):
        self._build_attention(self.self_attention, self.self_attention_norm, x_shape, x_shape)
        self.feed_forward.build(x_shape)
        self.feed_forward_norm.build(x_shape, x_shape)

    def compute_mask(self, *inputs_and_masks):
        return None  # `mask` is about the scores; Keras would attach it to the output.

    def get_config(self):
        return {**super().get_config(), **self.sizes}


@keras.saving.register_keras_serializable("t2t_keras")
class EncoderLayer(_StackLayer):
    """Self-attention, then feed-forward. x [B, S, D], mask boolean [B, 1, 1, S] → [B, S, D]."""

    def build(self, x_shape):
        self._build_shared(x_shape)

    def call(self, x, mask=None, training=False):
        y = self.self_attention.attend(*self.self_attention.queries_keys_values(x), mask)
        x = self.self_attention_norm(x, y, training=training)
        return self.feed_forward_norm(x, self.feed_forward(x), training=training)

    def compute_output_shape(self, x_shape):
        return x_shape


@keras.saving.register_keras_serializable("t2t_keras")
class DecoderLayer(_StackLayer):
    """Self-attention, attention over the encoder's output, then feed-forward.

    Call arguments:
        x: [B, T, D].
        memory: [B, S, D], the encoder's output.
        mask: boolean [B|1, 1, T, T], which earlier targets each position may see (section 3.2.3).
        memory_mask: boolean [B, 1, 1, S], which source positions are words.

    Returns:
        [B, T, D].
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cross_attention = self._attention("cross_attention")
        self.cross_attention_norm = self._add_and_norm("cross_attention_norm")

    def build(self, x_shape, memory_shape):
        self._build_shared(x_shape)
        self._build_attention(self.cross_attention, self.cross_attention_norm, x_shape, memory_shape)

    def look_back(self, x, queries, keys_values, mask=None, training=False):
        """The first sub-layer, over projected targets: queries of x, keys and values of all so far."""
        return self.self_attention_norm(x, self.self_attention.attend(queries, *keys_values, mask), training=training)

    def look_up(self, x, memory_keys_values, memory_mask=None, training=False):
        """The other two sub-layers, over the projected source."""
        y = self.cross_attention.attend(self.cross_attention.queries(x), *memory_keys_values, memory_mask)
        x = self.cross_attention_norm(x, y, training=training)
        return self.feed_forward_norm(x, self.feed_forward(x), training=training)

    def call(self, x, memory, mask=None, memory_mask=None, training=False):
        queries, *keys_values = self.self_attention.queries_keys_values(x)
        x = self.look_back(x, queries, keys_values, mask, training)
        return self.look_up(x, self.cross_attention.keys_values(memory), memory_mask, training)

    def compute_output_shape(self, x_shape, memory_shape):
        return x_shape
