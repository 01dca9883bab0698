"""The Transformer (section 3, Figure 1): an encoder, a decoder, and the embedding matrix that they share, unless
options say otherwise.

Letters: B sentences, S source tokens, T target tokens, D d_model, H heads, K d_k, E d_v, V vocabulary.
"""

import dataclasses
from typing import NamedTuple

import keras
from keras import ops

from t2t_keras.config import PRE, ModelConfig
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.layers.layer_norm import LayerNorm
from t2t_keras.layers.masks import ancestry_mask, causal_mask, padding_mask, shift_right
from t2t_keras.layers.stacks import DecoderLayer
from t2t_keras.model import flops
from t2t_keras.model.encoder import LAYER_OPTIONS, TransformerEncoder, word_dropout
from t2t_keras.model.linear_cross_entropy import Consistency, linear_cross_entropy, r_drop, simcut
from t2t_keras.model.protocols import EncoderDecoder


class EncodedSource(NamedTuple):
    """An encoded source: the keys and values for each decoder layer, projected once, and the padding mask."""

    keys_values: list  # ([B, H, S, K], [B, H, S, E]) for each decoder layer
    mask: object  # boolean [B, 1, 1, S]


@keras.saving.register_keras_serializable("t2t_keras")
class Transformer(EncoderDecoder):
    """The Transformer. A call maps a source and a shifted target to logits. A search calls `encode` once and `decode`
    step by step.

    Args:
        config: options of the network, a `ModelConfig` or a dictionary of its fields.

    Call arguments:
        inputs: (source [B, S], target [B, T]) int, 0-padded. The target is shifted right: it starts with BOS.

    Returns:
        Logits [B, T, V] float32 of the token after each target position.

    Example:

    ```python
    config = t2t_keras.ModelConfig(vocab_size=100, encoder_layers=2, decoder_layers=2, d_model=16, d_ff=32, num_heads=2)
    model = t2t_keras.Transformer(config)
    source, target = np.array([[5, 6, 7, 3], [8, 3, 0, 0]]), np.array([[9, 4, 3], [9, 3, 0]])
    model((source, t2t_keras.shift_right(target))).shape  # (2, 3, 100)
    smoothed, negative_log_likelihood = model.cross_entropy(source, target, label_smoothing=0.1)
    ```
    """

    def __init__(self, config: ModelConfig, name: str = "transformer", **kwargs):
        super().__init__(ModelConfig(**config) if isinstance(config, dict) else config, name=name, **kwargs)
        config, policy = self.config, {"dtype": self.dtype_policy}
        options = {key: getattr(config, key) for key in LAYER_OPTIONS}
        embedding = SharedEmbedding(
            config.vocab_size, config.d_model, config.tie_logits, config.logits_bias, name="embedding", **policy
        )
        self.encoder = TransformerEncoder(
            config, name=name, embedding=None if config.source_vocab_size else embedding, **policy
        )
        self.embedding, self.positions = embedding, self.encoder.positions
        self.word_dropout = word_dropout(config, "target", policy)
        self.target_dropout = Dropout(config.dropout, name="target_dropout", **policy)
        self.decoder = [DecoderLayer(**options, name=f"decoder_{i}", **policy) for i in range(config.decoder_layers)]
        self.norm = LayerNorm(epsilon=config.norm_epsilon, name="decoder", **policy) if config.norm == PRE else None
        self.build(((None, None), (None, None)))

    def build(self, input_shape):
        shape = (None, None, self.config.d_model)
        if not self.embedding.built:
            self.embedding.build((None, None))
        for layer in self.decoder:
            layer.build(shape, shape)
        if self.norm:
            self.norm.build(shape)
        self.built = True

    def encode(self, source, training=False) -> EncodedSource:
        """Encodes a source [B, S] int for `decode`."""
        x = self.encoder(source, training=training)
        mask = padding_mask(self.encoder.read(source))
        return EncodedSource([layer.cross_attention.keys_values(x) for layer in self.decoder], mask)

    def initial_state(self, memory: EncodedSource, beams: int):
        """Returns the cache before the first token: for each layer, keys [B, H, 0, K] and values [B, H, 0, E]."""
        config, batch = self.config, ops.shape(memory.mask)[0]
        shapes = [(batch, config.num_heads, 0, width) for width in (config.d_k, config.d_v)]
        return [[ops.zeros(shape, self.compute_dtype) for shape in shapes] for _ in self.decoder]

    def decode(self, target, memory: EncodedSource, state=None, position=0, ancestors=None, training=False):
        """Computes the logits of target tokens. Training decodes whole sentences (`state=None`), search one token of T
        beams at a time.

        Args:
            target: [B, T] int, the tokens at `position` … `position + T - 1`; the token at position 0 is BOS.
            memory: the result of `encode`.
            state: the cache from the previous `decode`, with the keys and values of all earlier targets.
            position: number of positions in the cache; int or int32 scalar.
            ancestors: [B, T, position + 1] int, for beam search. The T targets are then not T positions, but T beams at
                one `position`. ancestors[t, p] is the beam that read the token at position p of the hypothesis of beam
                t; its last entry is t. The cache is never reordered.
            training: whether to apply dropout.

        Returns:
            The logits [B, T, V] float32, and the next cache: for each layer, keys [B, H, P, K] and values [B, H, P, E]
            of all P targets so far.
        """
        x, state = self._decode(target, memory, state, position, ancestors, training)
        return ops.cast(self.embedding.logits(x), "float32"), state

    def _decode(self, target, memory: EncodedSource, cache=None, position=0, ancestors=None, training=False):
        """Applies the decoder to target tokens [B, T]; see `decode`. Returns [B, T, D] and the next cache."""
        mask = causal_mask(position, ops.shape(target)[1]) if ancestors is None else ancestry_mask(ancestors)
        x = self.embedding(target)
        for layer in self.word_dropout:
            x = layer(x, training=training)
        x = self.target_dropout(
            self.positions(x, position=position, step=1 if ancestors is None else 0), training=training
        )
        x, cache = self._decoder_layers(self.decoder, x, memory, mask, cache, training)
        return self.norm(x) if self.norm else x, cache

    def cross_entropy(self, source, target, label_smoothing: float, training=False) -> tuple:
        """Sums the loss of section 5.4 in little memory; see `EncoderDecoder.cross_entropy` and `linear_cross_entropy`.

        With R-Drop or SimCut, training adds the divergence of a second pass, whose rows are the second half of a batch.
        """
        sources, targets = (ops.concatenate([ids] * (self.passes if training else 1)) for ids in (source, target))
        x, _ = self._decode(shift_right(targets), self.encode(sources, training=training), training=training)
        # Tensors, because a custom gradient does not take variables.
        matrix = ops.cast(self.embedding.logits_matrix, "float32")
        bias = None if self.embedding.bias is None else ops.cast(self.embedding.bias, "float32")
        return linear_cross_entropy(x, matrix, target, label_smoothing, bias, self._consistency() if training else None)

    def _consistency(self) -> Consistency | None:
        """Returns the weights of the two passes of training, if there are two."""
        config = self.config
        if config.r_drop:
            return r_drop(config.r_drop)
        return simcut(config.simcut) if config.simcut else None

    @property
    def passes(self) -> int:
        """See `SequenceModel.passes`."""
        return 2 if self._consistency() else 1

    def _decoder_layers(self, layers: list, x, memory: EncodedSource, mask, cache=None, training=False):
        """Applies some first layers of the decoder to x [B, T, D]. Returns [B, T, D] and the next cache."""
        next_cache = []
        for index, layer in enumerate(layers):
            x, keys_values = layer(
                x,
                memory.keys_values[index],
                attention_mask=mask,
                cross_attention_mask=memory.mask,
                cache=() if cache is None else cache[index],
                training=training,
            )
            next_cache.append(keys_values)
        return x, next_cache

    def align(self, target, memory: EncodedSource):
        """Aligns a target with its source: the attention to the source in the last decoder layer but one, averaged over
        the heads.

        That layer aligns best (Garg et al. 2019, https://aclanthology.org/D19-1453, section 4.1).

        Args:
            target: [B, T] int; the first token is BOS.
            memory: the result of `encode`.

        Returns:
            [B, T, S] float32; rows sum to 1. Row t is the attention that predicts the token after target t.
        """
        *before, layer = self.decoder[:-1] or self.decoder
        mask = causal_mask(0, ops.shape(target)[1])
        x, _ = self._decoder_layers(before, self.positions(self.embedding(target)), memory, mask)
        y = layer.self_attention(layer.self_attention_norm.sublayer_input(x), attention_mask=mask)
        x = layer.cross_attention_norm.sublayer_input(layer.self_attention_norm(x, y))
        return ops.mean(layer.cross_attention.weights_of(x, memory.keys_values[len(before)], memory.mask), axis=1)

    def flops(self, rows, source, target):
        """Counts the operations of a forward pass over B rows of S source and T target tokens; see `flops.forward`."""
        return flops.forward(self.config, rows, source, target)

    def memory_cost(self, rows: int, source: int, target: int) -> float:
        """See `SequenceModel.memory_cost` and `flops.memory_cost`."""
        return flops.memory_cost(self.config, rows, source, target)

    def search_memory(self, beams: int, length: int) -> int:
        """See `EncoderDecoder.search_memory` and `flops.search_memory`."""
        return flops.search_memory(self.config, beams, length)

    @property
    def embedding_matrix(self):
        """The matrix of the target's embedding, [V, D]."""
        return self.embedding.matrix

    @property
    def source_embedding_matrix(self):
        """The matrix of the source's embedding, [V, D], if it has one of its own."""
        return self.encoder.embedding.matrix if self.config.source_vocab_size else None

    def get_config(self):
        return {**super().get_config(), "config": dataclasses.asdict(self.config)}
