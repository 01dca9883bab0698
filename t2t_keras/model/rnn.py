"""The recurrent translator with attention (Bahdanau et al. 2015, https://arxiv.org/abs/1409.0473), which the
Transformer replaced.

A bidirectional encoder reads the source; the decoder attends to it at each step, between two transitions of its state:

    h_1 … h_S = [forward; backward](x_1 … x_S)         s_0 = tanh(W mean(h))
    s_t, c_t = the conditional recurrence of y_(t-1)    P(y_t) = softmax(E tanh(W [s_t; c_t; y_(t-1)]))

Letters: B sentences, R sentences in a search, W beams, S source tokens, T target tokens, D d_model, E width of
embeddings, V vocabulary.
"""

import dataclasses
from typing import NamedTuple

import keras
from keras import ops

from t2t_keras.config import ADDITIVE, PAD, RnnConfig
from t2t_keras.layers.dense import Dense, at_least_float32
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.layers.masks import shift_right
from t2t_keras.layers.recurrent import ConditionalRecurrence, bidirectional
from t2t_keras.model.beams import follow
from t2t_keras.model.linear_cross_entropy import linear_cross_entropy
from t2t_keras.model.protocols import EncoderDecoder


class ReadSource(NamedTuple):
    """A source as the decoder attends to it."""

    annotations: object  # h, [B, S, 2 D]
    keys: object  # [B, S, D]
    mask: object  # boolean [B, S], True at tokens; in a row of padding at the first position
    start: list  # s_0, [B, D] for each state


@keras.saving.register_keras_serializable("t2t_keras")
class Rnn(EncoderDecoder):
    """The recurrent encoder and decoder. A call maps a source and a shifted target to logits, as that of the
    `Transformer`.

    Args:
        config: options of the network, an `RnnConfig` or a dictionary of its fields.

    Call arguments:
        inputs: (source [B, S], target [B, T]) int, 0-padded. The target is shifted right: it starts with BOS.

    Returns:
        Logits [B, T, V] float32 of the token after each target position.
    """

    compiles = False  # The gradients of its loops need lists without a fixed size.

    def __init__(self, config: RnnConfig, name: str = "rnn", **kwargs):
        super().__init__(RnnConfig(**config) if isinstance(config, dict) else config, name=name, **kwargs)
        config, policy = self.config, {"dtype": self.dtype_policy}
        cells = {"cell": config.cell, "units": config.d_model, "layer_norm": config.layer_norm}
        self.embedding = SharedEmbedding(config.vocab_size, config.width, config.tie_logits, name="embedding", **policy)
        self.source_embedding = self.embedding
        if config.source_vocab_size:
            self.source_embedding = SharedEmbedding(
                config.source_vocab_size, config.width, name="source_embedding", **policy
            )
        self.encoder = [
            bidirectional(**cells, name=f"encoder_{index}", **policy) for index in range(config.encoder_layers)
        ]
        self.decoder = ConditionalRecurrence(**cells, attention=config.attention, name="decoder", **policy)
        self.start = Dense(self.decoder.num_states * config.d_model, activation="tanh", name="start", **policy)
        self.readout = Dense(config.width, activation="tanh", name="readout", **policy)
        self.source_dropout = Dropout(config.embedding_dropout, name="source_dropout", **policy)
        self.target_dropout = Dropout(config.embedding_dropout, name="target_dropout", **policy)
        self.context_dropout = Dropout(config.context_dropout, name="context_dropout", **policy)
        self.output_dropout = Dropout(config.output_dropout, name="output_dropout", **policy)
        # In TensorFlow, XLA does not compile the gradient of a loop over any number of tokens.
        self.supports_jit = keras.backend.backend() != "tensorflow"
        self.build(((None, None), (None, None)))

    def build(self, input_shape):
        config = self.config
        memory, state = 2 * config.d_model, config.d_model
        self.embedding.build((None, None))
        if config.source_vocab_size:
            self.source_embedding.build((None, None))
        for index, layer in enumerate(self.encoder):
            layer.build((None, None, memory if index else config.width))
        self.decoder.build((None, None, config.width), (None, None, memory))
        self.start.build((None, memory))
        self.readout.build((None, None, state + memory + config.width))
        self.built = True

    def encode(self, source, training=False) -> ReadSource:
        """Encodes a source [B, S] int for `decode`."""
        # A GPU's kernel refuses rows without a token.
        mask = ops.logical_or(ops.not_equal(source, PAD), ops.equal(ops.arange(ops.shape(source)[1]), 0))
        x = self.source_dropout(self.source_embedding(source), training=training)
        for layer in self.encoder:
            x = layer(x, mask=mask, training=training)
        x = self.context_dropout(x, training=training)
        real = ops.cast(mask, x.dtype)[:, None]
        mean = ops.squeeze(ops.matmul(real, x), 1) / ops.sum(real, axis=2)
        start = ops.split(self.start(mean), self.decoder.num_states, axis=-1)
        return ReadSource(x, self.decoder.attention.keys(x), mask, start)

    def initial_state(self, memory: ReadSource, beams: int) -> list:
        """Returns s_0 for each beam, [B, W, D]."""
        return [ops.repeat(state[:, None], beams, axis=1) for state in memory.start]

    def decode(self, target, memory: ReadSource, state=None, position=0, ancestors=None, training=False):
        """Computes the logits of target tokens; see `EncoderDecoder.decode`. Each of its states is [R, W, D]."""
        y = self.target_dropout(self.embedding(target), training=training)
        if state is None:
            hidden, context, _ = self._unroll(y, memory)
        else:
            state, context, _ = self._step(self.decoder.first.project(y), follow(state, ancestors), memory)
            hidden = state[0]
        return ops.cast(self.embedding.logits(self._output(hidden, context, y, training)), "float32"), state

    def _step(self, projected, states: list, memory: ReadSource) -> tuple:
        return self.decoder(projected, states, memory.annotations, memory.keys, memory.mask)

    def _unroll(self, y, memory: ReadSource) -> tuple:
        """Applies the recurrence to all embedded target tokens, [B, T, E], each a step of a loop. Returns the states
        [B, T, D], the contexts [B, T, 2 D], and the attention weights [B, T, S] float32 or float64.
        """

        def one_token(before, projected):
            following = self._step(projected, before[0], memory)
            return following, following

        # The loop is over the first axis; inside, the axis of beams has size 1.
        projected = ops.swapaxes(self.decoder.first.project(y), 0, 1)[:, :, None]
        weights = at_least_float32(memory.annotations[..., 0])[:, None]  # Of their shape and dtype.
        nothing = ops.zeros_like(memory.annotations[:, :1]), ops.zeros_like(weights)
        _, (states, *others) = ops.scan(one_token, (self.initial_state(memory, 1), *nothing), projected)
        return tuple(ops.swapaxes(ops.squeeze(x, 2), 0, 1) for x in (states[0], *others))

    def _output(self, hidden, context, y, training):
        """Combines states, contexts and tokens, [B, T, …] each, to what the logits are computed from, [B, T, E]."""
        return self.output_dropout(self.readout(ops.concatenate([hidden, context, y], axis=-1)), training=training)

    def cross_entropy(self, source, target, label_smoothing: float, training=False) -> tuple:
        """Sums the loss of section 5.4 in little memory; see `EncoderDecoder.cross_entropy` and
        `linear_cross_entropy`.
        """
        y = self.target_dropout(self.embedding(shift_right(target)), training=training)
        hidden, context, _ = self._unroll(y, self.encode(source, training=training))
        # A tensor, because a custom gradient does not take variables.
        matrix = ops.cast(self.embedding.logits_matrix, "float32")
        return linear_cross_entropy(self._output(hidden, context, y, training), matrix, target, label_smoothing)

    def align(self, target, memory: ReadSource):
        """Aligns a target [B, T] with its source by the attention weights, [B, T, S] float32."""
        return ops.cast(self._unroll(self.embedding(target), memory)[2], "float32")

    def flops(self, rows, source, target):
        """Counts the operations of a forward pass over B rows of S source and T target tokens."""
        config, gates, memory = self.config, self.config.gates * self.config.d_model, 2 * self.config.d_model
        widths = [memory if index else config.width for index in range(config.encoder_layers)]  # Inputs of each layer.
        source_token = sum(2 * gates * (width + config.d_model) for width in widths) + memory * config.d_model
        target_token = gates * (config.width + memory + 2 * config.d_model) + config.d_model**2
        target_token += config.width * (config.d_model + memory + config.width + config.vocab_size)
        start, attention = memory * self.decoder.num_states * config.d_model, source * (config.d_model + memory)
        return 2 * rows * (source * source_token + start + target * (target_token + attention))

    def memory_cost(self, rows: int, source: int, target: int) -> float:
        """See `SequenceModel.memory_cost`. The attention weights [T, S] are smaller than the states."""
        return rows * (source + target + source * target / (8 * self.config.d_model))

    def search_memory(self, beams: int, length: int) -> int:
        """See `EncoderDecoder.search_memory`. Additive attention compares each beam with each key, [W, S, D]."""
        config, scores = self.config, beams * length
        compared = 2 * scores * config.d_model if config.attention == ADDITIVE else 0
        return super().search_memory(beams, length) + 4 * (4 * scores + compared)

    @property
    def embedding_matrix(self):
        """The matrix of the target's embedding, [V, E]."""
        return self.embedding.matrix

    @property
    def source_embedding_matrix(self):
        """The matrix of the source's embedding, [V, E], if it has one of its own."""
        return self.source_embedding.matrix if self.config.source_vocab_size else None

    def get_config(self):
        return {**super().get_config(), "config": dataclasses.asdict(self.config)}
