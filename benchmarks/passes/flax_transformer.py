"""The Transformer in Flax, in the manner of its WMT example: layer normalization before each sub-layer and after each
stack, embeddings of variance 1, and logits with the same matrix, divided by √D.

It departs from the example where the paper does: no dropout of attention weights and after the ReLU, and the sinusoids
of section 3.5. For speed, the logits are computed in the dtype of the activations in place of float32.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from t2t_keras.config import BOS, PAD, ModelConfig

KERNEL = nn.initializers.xavier_uniform()


def sinusoids(positions: int, d_model: int) -> np.ndarray:
    """Returns the position encodings of section 3.5, [positions, D]."""
    angle = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(positions, d_model).astype(np.float32)


class Layer(nn.Module):
    """An encoder layer, or with a memory a decoder layer."""

    config: ModelConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x, mask, memory=None, memory_mask=None):
        config = self.config

        def attention(queries, keys, mask):
            layer = nn.MultiHeadDotProductAttention(
                config.num_heads, dtype=self.dtype, use_bias=False, kernel_init=KERNEL
            )
            return layer(queries, keys, mask=mask)

        def feed_forward(x):
            inner = nn.Dense(config.d_ff, dtype=self.dtype, kernel_init=KERNEL)(x)
            return nn.Dense(config.d_model, dtype=self.dtype, kernel_init=KERNEL)(nn.relu(inner))

        def add(x, sub_layer):
            y = sub_layer(nn.LayerNorm(dtype=self.dtype)(x))
            return x + nn.Dropout(config.dropout, deterministic=False)(y)

        x = add(x, lambda y: attention(y, y, mask))
        if memory is not None:
            x = add(x, lambda y: attention(y, memory, memory_mask))
        return add(x, feed_forward)


class Transformer(nn.Module):
    """(source [B, S], target [B, T]) → logits [B, T, V] of the target."""

    config: ModelConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, source, target):
        config = self.config
        embedding = nn.Embed(config.vocab_size, config.d_model, embedding_init=nn.initializers.normal(1.0))

        def embed(ids):
            x = embedding(ids) + sinusoids(ids.shape[1], config.d_model)
            return nn.Dropout(config.dropout, deterministic=False)(x).astype(self.dtype)

        def mask(queries, keys):
            return nn.make_attention_mask(queries != PAD, keys != PAD)

        memory = embed(source)
        for _ in range(config.encoder_layers):
            memory = Layer(config, self.dtype)(memory, mask(source, source))
        memory = nn.LayerNorm(dtype=self.dtype)(memory)
        x = embed(jnp.pad(target, ((0, 0), (1, 0)), constant_values=BOS)[:, :-1])
        causal = nn.combine_masks(mask(target, target), nn.make_causal_mask(target))
        for _ in range(config.decoder_layers):
            x = Layer(config, self.dtype)(x, causal, memory, mask(target, source))
        x = nn.LayerNorm(dtype=self.dtype)(x)
        # `embedding.attend`, but not in float32, the dtype of the matrix.
        return x @ embedding.embedding.T.astype(self.dtype) / np.sqrt(config.d_model).astype(self.dtype)


def smoothed_loss(logits, target, label_smoothing: float):
    """Returns the sum of the smoothed cross entropy over real target tokens, with the smoothed targets as an array of
    the shape of the logits.
    """
    size = logits.shape[-1]
    smoothed = jax.nn.one_hot(target, size) * (1 - label_smoothing) + label_smoothing / size
    losses = -jnp.sum(smoothed * jax.nn.log_softmax(logits.astype(jnp.float32)), axis=-1)
    return jnp.sum(losses * (target != PAD))
