"""BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805): the encoder reads one sentence or two, and is trained on
text alone.

A text is [CLS] A [SEP], or [CLS] A [SEP] B [SEP]. A vector is added to the embeddings of the second sentence. The first
position stands for the whole text. Letters: B rows, S tokens, M masked words, D d_model, V vocabulary, C classes.
"""

import dataclasses

import keras
from keras import ops

from t2t_keras.config import EOS, PAD, BertConfig, ClassifierConfig
from t2t_keras.layers.dense import Dense
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.layers.layer_norm import LayerNorm
from t2t_keras.layers.masks import token_mask
from t2t_keras.model.encoder import TransformerEncoder
from t2t_keras.model.loss import cross_entropy
from t2t_keras.model.protocols import SequenceModel


class PairEncoder(TransformerEncoder):
    """The encoder of the Transformer for one sentence or two. It adds a vector to the second one, after the first EOS,
    [SEP].

    That vector stands for both segment embeddings of BERT: that of the first sentence is part of its positions. Without
    a second sentence, this is the encoder of a translator.
    """

    def build(self, input_shape):
        initializer = keras.initializers.RandomNormal(stddev=0.02)
        options = {"use_bias": False, "kernel_initializer": initializer, "dtype": self.dtype_policy}
        self.second = Dense(self.config.d_model, **options, name="second")
        self.second.build((None, None, 1))
        super().build(input_shape)

    def embed(self, ids, training=False):
        """Embeds ids, their positions and their segments, [B, S] int → [B, S, D]."""
        ends = ops.cast(ops.equal(ids, EOS), "int32")
        second = ops.logical_and(ops.cumsum(ends, axis=1) > ends, ops.not_equal(ids, PAD))
        return super().embed(ids, training) + self.second(ops.cast(second, self.compute_dtype)[..., None])


class _PairModel(SequenceModel):
    """A `PairEncoder` and the pooler, tanh(W h_[CLS] + b)."""

    predicts_words = False

    def __init__(self, config, name: str, **kwargs):
        super().__init__(config, name=name, **kwargs)
        policy = {"dtype": self.dtype_policy}
        embedding = SharedEmbedding(
            config.vocab_size, config.d_model, logits_bias=self.predicts_words, name="embedding", **policy
        )
        self.encoder = PairEncoder(config.encoder, embedding=embedding, **policy)
        self.pooler = Dense(config.d_model, activation="tanh", name="pooler", **policy)
        self.pooler.build((None, config.d_model))  # Here, so that its weights have the same names in every model.

    def call(self, ids, training=False):
        """Encodes texts, [B, S] int → [B, S, D]."""
        return self.encoder(ids, training=training)

    def flops(self, rows, source):
        """Counts the operations of a forward pass, but for the heads; see `SequenceModel.flops`."""
        return self.encoder.flops(rows, source) + 2 * rows * self.config.d_model**2

    def memory_cost(self, rows: int, source: int) -> float:
        """See `SequenceModel.memory_cost`."""
        return self.encoder.memory_cost(rows, source)

    @property
    def embedding_matrix(self):
        """The embeddings of the sub-words, [V, D]."""
        return self.encoder.embedding_matrix

    def get_config(self):
        return {**super().get_config(), "config": dataclasses.asdict(self.config)}


@keras.saving.register_keras_serializable("t2t_keras")
class Bert(_PairModel):
    """An encoder in pretraining: its heads predict masked words, and whether the second sentence follows the first.
    `config` is a `BertConfig` or a dictionary of its fields.
    """

    predicts_words = True

    def __init__(self, config: BertConfig, name: str = "bert", **kwargs):
        super().__init__(BertConfig(**config) if isinstance(config, dict) else config, name=name, **kwargs)
        config, policy = self.config, {"dtype": self.dtype_policy}
        self.words = Dense(config.d_model, activation="gelu", name="words", **policy)
        self.words_norm = LayerNorm(epsilon=config.encoder.norm_epsilon, name="words_norm", **policy)
        self.following = Dense(2, name="following", **policy)
        self.build((None, None))

    def build(self, input_shape):
        shape = (None, None, self.config.d_model)
        self.words.build(shape)
        self.words_norm.build(shape)
        self.following.build((None, self.config.d_model))
        self.built = True

    def word_logits(self, hidden, masked):
        """Computes logits of the words, [B, M, V] float32, at some positions, counted from 1, [B, M] int, 0-padded.
        `hidden` is the result of a call, [B, S, D].
        """
        chosen = ops.take_along_axis(hidden, ops.maximum(masked - 1, 0)[..., None], axis=1)
        return ops.cast(self.encoder.embedding.logits(self.words_norm(self.words(chosen))), "float32")

    def following_logits(self, hidden):
        """Computes logits of "is another sentence" and "follows": [B, S, D] → [B, 2] float32."""
        return ops.cast(self.following(self.pooler(hidden[:, 0])), "float32")

    def losses(self, tokens, masked, target, following, label_smoothing: float, training: bool = False) -> dict:
        """Computes the losses of both heads.

        The loss of a text's second sentence counts as often as the text has masked words, so that both means of BERT's
        objective have one denominator, on any number of devices.

        Args:
            tokens: [B, S] int.
            masked: positions of the masked words, see `word_logits`.
            target: the masked words, [B, M] int, 0-padded.
            following: [B, 1] int, 2 if the second sentence follows the first, and 1 if not; 0 in an empty row.
            label_smoothing: ε of the masked words; 0 in BERT.

        Returns:
            Sums, [] float32: "objective", what training minimises; "loss", of the masked words, and "right", the number
            of those that are most likely; "next_loss", "next_right", the same of the texts, and "texts", their number.
        """
        hidden = self(tokens, training=training)
        logits = self.word_logits(hidden, masked)
        smoothed, loss = cross_entropy(logits, target, label_smoothing)
        likeliest = ops.equal(ops.argmax(logits, axis=-1), ops.cast(target, "int32"))
        right = ops.cast(likeliest, "float32") * token_mask(target)
        logits, following = self.following_logits(hidden), following[:, 0]
        answer, texts = ops.maximum(following - 1, 0), token_mask(following)
        next_loss = ops.sparse_categorical_crossentropy(answer, logits, from_logits=True)
        next_loss = next_loss * ops.sum(token_mask(target), axis=1)
        likeliest = ops.equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), ops.cast(answer, "int32"))
        next_right = ops.cast(likeliest, "float32") * texts
        sums = {"objective": ops.sum(smoothed) + ops.sum(next_loss), "loss": loss, "right": right}
        sums |= {"next_loss": next_loss, "next_right": next_right, "texts": texts}
        return {name: ops.sum(value) for name, value in sums.items()}

    def flops(self, rows, source):
        """Counts the operations of a forward pass over B texts of S tokens; see `SequenceModel.flops`."""
        masked_word = 2 * self.config.d_model * (self.config.d_model + self.config.vocab_size)
        return super().flops(rows, source) + rows * (source * self.config.mask_rate * masked_word)


@keras.saving.register_keras_serializable("t2t_keras")
class Classifier(_PairModel):
    """A classifier of texts. A call encodes them; `class_logits` classifies. `config` is a `ClassifierConfig`, which
    must have labels, or a dictionary of its fields.
    """

    def __init__(self, config: ClassifierConfig, name: str = "classifier", **kwargs):
        super().__init__(ClassifierConfig(**config) if isinstance(config, dict) else config, name=name, **kwargs)
        if not self.config.labels:
            raise ValueError(
                "A classifier needs `labels`, the names of the classes. `t2t-classify` reads them from the training "
                "text."
            )
        config, policy = self.config, {"dtype": self.dtype_policy}
        self.pooled_dropout = Dropout(config.dropout, name="pooled_dropout", **policy)
        self.classes = Dense(len(config.names), name="classes", **policy)
        self.build((None, None))

    def build(self, input_shape):
        self.classes.build((None, self.config.d_model))
        self.built = True

    def class_logits(self, ids, training=False):
        """Computes logits of the classes, in the order of their names: [B, S] int → [B, C] float32."""
        pooled = self.pooler(self(ids, training=training)[:, 0])
        return ops.cast(self.classes(self.pooled_dropout(pooled, training=training)), "float32")

    def losses(self, tokens, label, label_smoothing: float, training: bool = False) -> dict:
        """Computes the loss of some texts, [B, S] int. `label` is the position of the class among the names, counted
        from 1, [B, 1] int; 0 in an empty row.

        Returns sums, [] float32: "objective", what training minimises; "loss", in nats, and "right", the number of
        right classes.
        """
        logits, classes = self.class_logits(tokens, training), ops.arange(1, len(self.config.names) + 1, dtype="int32")
        is_class = ops.cast(ops.equal(label[:, :1], classes), "float32")  # [B, C]; no class in an empty row.
        log_probs, real = ops.log_softmax(logits), ops.sum(is_class, axis=1)
        loss = -ops.sum(is_class * log_probs, axis=1)
        objective = (1 - label_smoothing) * loss - label_smoothing * real * ops.mean(log_probs, axis=1)
        right = ops.take_along_axis(is_class, ops.argmax(logits, axis=1)[:, None], axis=1)
        return {"objective": ops.sum(objective), "loss": ops.sum(loss), "right": ops.sum(right)}
