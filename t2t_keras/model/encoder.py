"""The encoder (section 3.1), alone or as a part of the Transformer: its weights have the same names in both."""

import dataclasses

import keras
from keras import ops

from t2t_keras.config import EOS, PAD, PRE, ModelConfig
from t2t_keras.layers.dropout import Dropout, WordDropout
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.layers.layer_norm import LayerNorm
from t2t_keras.layers.masks import padding_mask
from t2t_keras.layers.positions import LearnedPositions, SinusoidalPositions
from t2t_keras.layers.stacks import EncoderLayer
from t2t_keras.model import flops
from t2t_keras.model.protocols import SequenceModel

# Options of encoder and decoder layers.
LAYER_OPTIONS = (
    *("num_heads", "d_k", "d_v", "d_ff", "dropout", "attention_dropout", "activation_dropout"),
    *("attention_bias", "attention", "activation", "norm", "norm_epsilon"),
)


def word_dropout(config: ModelConfig, side: str, policy: dict) -> list[WordDropout]:
    """Returns the layer that drops words of a side, "source" or "target", in a list; none without such dropout."""
    if not config.word_dropout:  # The layer would change the random numbers of the others.
        return []
    return [WordDropout(config.word_dropout, second_half=config.simcut > 0, name=f"{side}_word_dropout", **policy)]


@keras.saving.register_keras_serializable("t2t_keras")
class TransformerEncoder(SequenceModel):
    """Embeddings, positions and the stack of encoder layers: ids [B, S] int, 0-padded → [B, S, D].

    Weights are named "transformer/embedding/matrix", "transformer/encoder_0/…" and so on, also inside another model: an
    encoder starts from the checkpoint of a translator. The embedding of a vocabulary of the source is
    "transformer/source_embedding/matrix".

    Args:
        config: options of the network, a `ModelConfig` or a dictionary of its fields. Those of the decoder do not
            matter.
        embedding: the embedding, if it is shared with a decoder.

    Example:

    ```python
    config = t2t_keras.ModelConfig(vocab_size=100, encoder_layers=2, d_model=16, d_ff=32, num_heads=2)
    t2t_keras.TransformerEncoder(config)(np.array([[5, 6, 7, 3], [8, 3, 0, 0]])).shape  # (2, 4, 16)
    ```
    """

    def __init__(
        self, config: ModelConfig, name: str = "transformer", embedding: SharedEmbedding | None = None, **kwargs
    ):
        super().__init__(ModelConfig(**config) if isinstance(config, dict) else config, name=name, **kwargs)
        config, policy = self.config, {"dtype": self.dtype_policy}
        options = {key: getattr(config, key) for key in (*LAYER_OPTIONS, "attention_window")}
        self.embedding = embedding or SharedEmbedding(
            config.source_vocab_size or config.vocab_size,
            config.d_model,
            name="source_embedding" if config.source_vocab_size else "embedding",
            **policy,
        )
        self.positions = (
            LearnedPositions(config.learned_positions, name="positions", **policy)
            if config.learned_positions
            else SinusoidalPositions(config.sinusoids, config.first_position, name="positions", **policy)
        )
        self.word_dropout = word_dropout(config, "source", policy)
        self.dropout = Dropout(config.dropout, name="source_dropout", **policy)
        self.stack = [EncoderLayer(**options, name=f"encoder_{i}", **policy) for i in range(config.encoder_layers)]
        self.norm = LayerNorm(epsilon=config.norm_epsilon, name="encoder", **policy) if config.norm == PRE else None
        self.build((None, None))

    def build(self, input_shape):
        shape = (None, None, self.config.d_model)
        if not self.embedding.built:  # It may be another model's.
            self.embedding.build((None, None))
        self.positions.build(shape)
        for layer in self.stack:
            layer.build(shape)
        if self.norm:
            self.norm.build(shape)
        self.built = True

    def embed(self, ids, training=False):
        """Embeds ids and their positions, [B, S] int → [B, S, D]."""
        x = self.embedding(ids)
        for layer in self.word_dropout:
            x = layer(x, training=training)
        return self.positions(x)

    def read(self, ids):
        """Replaces what the encoder does not read by padding: [B, S] int → [B, S] int. A blank source keeps its end:
        with padding alone, its attention would depend on the longest source of the batch.
        """
        if self.config.source_end:
            return ids
        first, rest = ids[:, :1], ids[:, 1:]
        return ops.concatenate([first, ops.where(ops.equal(rest, EOS), PAD, rest)], axis=1)

    def call(self, ids, training=False):
        ids = self.read(ids)
        mask = padding_mask(ids)
        x = self.dropout(self.embed(ids, training), training=training)
        for layer in self.stack:
            x = layer(x, attention_mask=mask, training=training)
        return self.norm(x) if self.norm else x

    def flops(self, rows, source):
        """Counts the operations of a forward pass over B rows of S tokens; see `SequenceModel.flops`."""
        return rows * flops.encoder(self.config, source)

    def memory_cost(self, rows: int, source: int) -> float:
        """See `SequenceModel.memory_cost` and `flops.memory_cost`."""
        return flops.memory_cost(self.config, rows, source)

    @property
    def embedding_matrix(self):
        """The matrix of the source's embedding, [V, D]."""
        return self.embedding.matrix

    def get_config(self):
        return {**super().get_config(), "config": dataclasses.asdict(self.config)}
