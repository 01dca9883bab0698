"""The Transformer (section 3, Figure 1): an encoder, a decoder, and the one matrix they share.

Letters: B sentences, S source tokens, T target tokens, D d_model, H heads, K d_k, E d_v, V vocabulary.
"""

import dataclasses
from typing import NamedTuple

import keras
from keras import ops

from t2t_keras.model.attention import attention_weights
from t2t_keras.config import PAD, ModelConfig
from t2t_keras.model.dropout import Dropout
from t2t_keras.model.embedding import SharedEmbedding
from t2t_keras.model.positions import LearnedPositions, SinusoidalPositions
from t2t_keras.model.stacks import DecoderLayer, EncoderLayer


class Memory(NamedTuple):
    """An encoded source: every decoder layer's keys and values, projected once, and which positions are words."""

    keys_values: list  # of ([B, H, S, K], [B, H, S, E]), a pair for each decoder layer
    mask: object  # boolean [B, 1, 1, S]


def padding_mask(ids):
    """True at words. [B, S] int → boolean [B, 1, 1, S]."""
    return ops.not_equal(ids, PAD)[:, None, None, :]


def causal_mask(position, length):
    """key position <= query position, for queries at position … position + length - 1 → boolean [1, 1, T, position + T]."""
    return (ops.arange(position + length)[None, :] <= position + ops.arange(length)[:, None])[None, None]


def ancestry_mask(ancestors):
    """Beam w sees what beam ancestors[w, p] wrote at position p. [B, W, P] int → boolean [B, 1, W, P · W], keys by position, then beam."""
    batch, beams, positions = ops.shape(ancestors)
    seen = ops.equal(ancestors[..., None], ops.arange(beams))
    return ops.reshape(seen, (batch, 1, beams, positions * beams))


@keras.saving.register_keras_serializable("t2t_keras")
class Transformer(keras.Model):
    """Source and shifted target in, logits out; or `encode` once and `decode` step by step.

    Call arguments:
        inputs: (source [B, S], target [B, T]) int, 0-padded. The target is shifted right already: it starts with BOS.

    Returns:
        Logits [B, T, V] of the token after each target position, float32.
    """

    def __init__(self, config: ModelConfig, name: str = "transformer", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config = ModelConfig(**config) if isinstance(config, dict) else config
        policy = {"dtype": self.dtype_policy}
        sizes = {key: getattr(config, key) for key in ("num_heads", "d_k", "d_v", "d_ff", "dropout")}
        self.embedding = SharedEmbedding(config.vocab_size, config.d_model, name="embedding", **policy)
        self.positions = (
            LearnedPositions(config.learned_positions, name="positions", **policy)
            if config.learned_positions
            else SinusoidalPositions(name="positions", **policy)
        )
        self.source_dropout = Dropout(config.dropout, name="source_dropout", **policy)
        self.target_dropout = Dropout(config.dropout, name="target_dropout", **policy)
        self.encoder = [EncoderLayer(**sizes, name=f"encoder_{i}", **policy) for i in range(config.encoder_layers)]
        self.decoder = [DecoderLayer(**sizes, name=f"decoder_{i}", **policy) for i in range(config.decoder_layers)]
        self.build(((None, None), (None, None)))

    def build(self, input_shape):
        shape = (None, None, self.config.d_model)
        self.embedding.build((None, None))
        self.positions.build(shape)
        for layer in self.encoder:
            layer.build(shape)
        for layer in self.decoder:
            layer.build(shape, shape)
        self.built = True

    def encode(self, source, training=False) -> Memory:
        """Reads the source. [B, S] int → what `decode` looks up."""
        mask = padding_mask(source)
        x = self.source_dropout(self.positions(self.embedding(source)), training=training)
        for layer in self.encoder:
            x = layer(x, mask=mask, training=training)
        return Memory([layer.cross_attention.keys_values(x) for layer in self.decoder], mask)

    def decode(self, target, memory: Memory, cache=None, position=0, ancestors=None, training=False):
        """Continues a target. One path for training (`cache=None`, whole sentences) and for search (a token at a time, T beams).

        Args:
            target: [B, T] int, which stands at `position` … `position + T - 1`; the first token of all is BOS.
            memory: what `encode` returned.
            cache: what the last `decode` returned: keys and values of the targets before.
            position: int or int32 scalar, the number of positions in `cache`.
            ancestors: [B, T, position + 1] int, for beam search. The targets are then not T positions but T beams at one
                `position`; beam t goes on from what the beams ancestors[t] wrote, a beam for each position, the last itself.
                Nothing in the cache is ever reordered.

        Returns:
            (logits [B, T, V] float32, cache: for each layer ([B, H, P, K], [B, H, P, E]), P targets so far)
        """
        mask = causal_mask(position, ops.shape(target)[1]) if ancestors is None else ancestry_mask(ancestors)
        x = self.positions(self.embedding(target), position=position, step=1 if ancestors is None else 0)
        x = self.target_dropout(x, training=training)
        grown = []
        for index, layer in enumerate(self.decoder):
            queries, *keys_values = layer.self_attention.queries_keys_values(x)
            if cache is not None:
                keys_values = [ops.concatenate(pair, axis=2) for pair in zip(cache[index], keys_values, strict=True)]
            grown.append(keys_values)
            x = layer.look_back(x, queries, keys_values, mask, training)
            x = layer.look_up(x, memory.keys_values[index], memory.mask, training)
        return ops.cast(self.embedding.logits(x), "float32"), grown

    def align(self, target, memory: Memory):
        """How each target attends to the source: the mean over the heads of the last decoder layer but one.

        That layer aligns best (Garg et al. 2019, https://aclanthology.org/D19-1453, section 4.1).

        Args:
            target: [B, T] int; the first is BOS.
            memory: what `encode` returned.

        Returns:
            [B, T, S] float32, rows that sum to 1: where the model looks in order to write the token after each.
        """
        mask = causal_mask(0, ops.shape(target)[1])
        x = self.positions(self.embedding(target))
        layers = self.decoder[:-1] or self.decoder
        for index, layer in enumerate(layers):
            queries, *keys_values = layer.self_attention.queries_keys_values(x)
            x = layer.look_back(x, queries, keys_values, mask)
            if index < len(layers) - 1:
                x = layer.look_up(x, memory.keys_values[index], memory.mask)
        keys, _ = memory.keys_values[index]
        weights = attention_weights(layer.cross_attention.queries(x), keys, memory.mask)
        return ops.mean(ops.cast(weights, "float32"), axis=1)

    def empty_cache(self, batch):
        """The cache before the first token, of no length: for each layer ([B, H, 0, K], [B, H, 0, E])."""
        config = self.config
        shapes = [(batch, config.num_heads, 0, width) for width in (config.d_k, config.d_v)]
        return [[ops.zeros(shape, self.compute_dtype) for shape in shapes] for _ in self.decoder]

    def call(self, inputs, training=False):
        source, target = inputs
        logits, _ = self.decode(target, self.encode(source, training=training), training=training)
        return logits

    def get_config(self):
        return {**super().get_config(), "config": dataclasses.asdict(self.config)}
