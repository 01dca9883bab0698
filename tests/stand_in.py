"""What stands in for a trained model: a translator of random weights, a model that copies, and a SavedModel that
shouts.
"""

import functools
import pathlib
import random
import unittest.mock

import numpy as np
import tensorflow as tf

from t2t_keras.config import EOS, DecodeConfig, ModelConfig
from t2t_keras.data import builtin_corpus
from t2t_keras.decoding.translator import Translator
from t2t_keras.model.protocols import EncoderDecoder
from t2t_keras.model.transformer import Transformer
from t2t_keras.reporting.attention import SentenceAttention, Tokens
from t2t_keras.text import vocabulary

BEAM_SIZE = 2
VOCAB_SIZE = 330
MAX_INPUT = 10_000


@functools.cache
def pairs(number: int = 300) -> list[tuple[str, str]]:
    """Different English-German pairs with long numbers: most sentences have many words."""
    draw, found = random.Random(3), {}
    with unittest.mock.patch.object(
        builtin_corpus, "_some_number", lambda draw: draw.randrange(10 ** draw.randint(1, 6))
    ):
        while len(found) < 1000 + number:
            found.setdefault(*draw.choice(builtin_corpus.KINDS)(draw))
    return list(found.items())[1000:]


def sentences(number: int) -> list[str]:
    """English that the sub-words below were learned from."""
    return [source for source, _ in pairs(max(300, number))][:number]


@functools.cache
def subwords(kind: str) -> bytes:
    lines = (side.encode() for pair in pairs() for side in pair)
    return vocabulary.learn(
        kind, lines, VOCAB_SIZE, sample=10_000, seed=1, normalization="identity", character_coverage=1.0
    )


def translator(
    decode: DecodeConfig, frozen: bool = True, dtype: str = "float32", kind: str = "bpe", **options
) -> Translator:
    """Weights three times as large as at the start of training, so that translations differ, and that lean to the end
    token.

    Further options are those of the model; with some, biases are not zero.
    """
    config = ModelConfig(
        VOCAB_SIZE, encoder_layers=1, decoder_layers=2, d_model=16, d_ff=32, num_heads=2, d_k=6, d_v=10, **options
    )
    model, draw = Transformer(config, dtype=dtype), np.random.default_rng(5)
    for weight in model.trainable_variables:
        if weight.path.endswith(("kernel", "matrix")):
            value = draw.normal(
                0, 3 * sum(weight.shape) ** -0.5 if weight.path.endswith("kernel") else 16**-0.5, weight.shape
            )
            if weight.path.endswith("matrix"):
                value[EOS + 1 : EOS + 257] /= 3  # Of single bytes, which it then seldom writes.
            weight.assign(value)
        elif options and weight.path.endswith("bias"):
            weight.assign(draw.normal(0, 0.3, weight.shape))
    end = np.array(tf.cast(model.embedding.logits_matrix.value[EOS], tf.float32))
    last = model.norm or model.decoder[-1].feed_forward_norm.norm
    last.beta.assign(0.75 * end / (end @ end))
    return Translator(model, vocabulary.load(subwords(kind)), decode, frozen=frozen)


def attention(source: str, target: str, layers: int = 2, heads: int = 3, seed: int = 0) -> SentenceAttention:
    """Made-up weights of two sentences. A sub-word has at most four letters."""
    draw = np.random.default_rng(seed)

    def tokens(words: list[str]) -> Tokens:
        pieces = [
            [("▁" if start == 0 else "") + word[start : start + 4] for start in range(0, len(word), 4)]
            for word in words
        ]
        pieces = [[word] if word in ("<s>", "</s>") else cut for word, cut in zip(words, pieces, strict=True)]
        return Tokens(tuple(sum(pieces, [])), tuple(words), tuple(map(len, pieces)))

    def weights(rows: Tokens, columns: Tokens, causal: bool = False) -> np.ndarray:
        found = draw.dirichlet(np.full(len(columns.pieces), 0.15), (layers, heads, len(rows.pieces)))
        found = (np.tril(found) if causal else found) + 1e-3 * np.eye(*found.shape[2:])
        return (found / found.sum(axis=-1, keepdims=True)).astype("float32")

    read, predicted = tokens([*source.split(" "), "</s>"]), tokens([*target.split(" "), "</s>"])
    written = tokens(["<s>", *target.split(" ")])
    return SentenceAttention(
        read,
        predicted,
        written,
        weights(read, read),
        weights(predicted, written, causal=True),
        weights(predicted, read),
    )


class Copier(EncoderDecoder):
    """A model of hand-set probabilities: with `skill` 1 greedy search copies its source, a wide beam with a small alpha
    does not.

    A rival to the first token is less likely than that, but ends for certain, while every token of a copy has some
    doubt. With `skill` 0, as at the start, every token is as likely as every other.

    Attributes:
        endless: the last sub-word comes again and again.
        steps: of the search, counted where functions run eagerly.
    """

    RIVAL = EOS + 1

    def __init__(self, config: ModelConfig, dtype=None, endless: bool = False):
        super().__init__(config, name="copier")
        self.vocab_size, self.endless, self.steps = config.vocab_size, endless, 0
        self.skill = self.add_weight(shape=(), initializer="zeros", name="skill")
        self.built = True

    def flops(self, rows, source, target):
        return 0

    def encode(self, source, training=False):
        return source

    def initial_state(self, memory, beams):
        return ()

    def decode(self, target, memory, state=None, position=0, ancestors=None, training=False):
        self.steps += 1
        wanted = memory[:, tf.minimum(position, tf.shape(memory)[1] - 1 - self.endless)]
        likely = 4 * tf.one_hot(wanted, self.vocab_size) + tf.where(position == 0, 3.5, 0.0) * tf.one_hot(
            self.RIVAL, self.vocab_size
        )
        ends = 20 * tf.one_hot(EOS, self.vocab_size)
        logits = tf.where((target == self.RIVAL)[..., None], ends, likely[:, None])
        return tf.convert_to_tensor(self.skill) * (logits - self.endless * ends), state


def _column(dtype, *names: str) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([None], dtype, name) for name in names]


class StandIn(tf.Module):
    """The best translation of a line has its a to z in capitals, the second its A to Z in small letters; scores are of
    the length.

    Of constraints, only ordered ones are met, and what is to be avoided is refused. A line of more than `MAX_INPUT`
    bytes is reported as truncated.
    """

    @tf.function(input_signature=_column(tf.string, "text"))
    def translate(self, text):
        length = tf.strings.length(text)
        return {
            "text": tf.strings.upper(text),
            "score": -0.1 * tf.cast(length, tf.float32),
            "truncated": length > MAX_INPUT,
        }

    @tf.function(
        input_signature=[
            *_column(tf.string, "text"),
            *_column(tf.float32, "alpha"),
            *_column(tf.int32, "max_length", "n_best"),
            *_column(tf.string, "prefix"),
            *_column(tf.bool, "alignment"),
            *_column(tf.string, "constraints", "avoid"),
            *_column(tf.bool, "ordered"),
        ]
    )
    def translate_with_options(self, text, alpha, max_length, n_best, prefix, alignment, constraints, avoid, ordered):
        alpha = tf.where(alpha == -1, 0.6, alpha)
        cannot_be = [
            ((alpha < 0) | tf.math.is_nan(alpha), "alpha: expected 0 or more. "),
            (n_best > BEAM_SIZE, f"n_best: expected at most {BEAM_SIZE}. "),
        ]
        error = tf.strings.join([tf.where(wrong, said, "") for wrong, said in cannot_be])
        length = tf.where(max_length > 0, max_length, tf.strings.length(text))
        cut = tf.strings.substr(text, tf.zeros_like(length), length, unit="UTF8_CHAR")
        texts = [tf.strings.upper(cut), tf.strings.lower(cut)]
        score = -0.1 * tf.cast(tf.strings.length(cut), tf.float32)
        batch = tf.shape(text)[0]
        width = tf.where(tf.reduce_any(alignment), 3, 0)  # Of pieces that this model does not have.
        return {
            "text": tf.stack([tf.strings.join([prefix, text]) for text in texts], axis=1),
            "score": tf.stack([score - alpha, score - 2 * alpha], axis=1),
            "constraints_met": tf.tile((constraints == "")[:, None] | ordered[:, None], [1, BEAM_SIZE]),
            "truncated": tf.strings.length(text) > MAX_INPUT,
            "error": tf.strings.join([error, tf.where(avoid == "", "", "avoid: expected nothing. ")]),
            "source_pieces": tf.fill([batch, width], "▁"),
            "pieces": tf.fill([batch, BEAM_SIZE, width], "▁"),
            "alignment": tf.zeros([batch, BEAM_SIZE, width, width]),
        }

    @tf.function(
        input_signature=[
            *_column(tf.string, "text"),
            *_column(tf.int64, "seed"),
            *_column(tf.int32, "draws"),
            *_column(tf.float32, "temperature"),
            *_column(tf.int32, "top_k"),
            *_column(tf.float32, "top_p"),
            *_column(tf.int32, "max_length"),
        ]
    )
    def sample(self, text, seed, draws, temperature, top_k, top_p, max_length):
        """A draw is the text with its options, the number of the draw last."""
        options = [tf.strings.as_string(each) for each in (seed, top_k, max_length)]
        numbers = tf.range(tf.reduce_max(draws))
        drawn = tf.strings.join([text, *options, ""], " ")[:, None] + tf.strings.as_string(numbers)
        there = numbers < draws[:, None]
        return {
            "text": tf.where(there, drawn, ""),
            "score": tf.where(there, -temperature[:, None] - top_p[:, None] * tf.cast(numbers, tf.float32), 0.0),
            "truncated": tf.strings.length(text) > MAX_INPUT,
            "error": tf.where(top_p > 1, "top_p: expected at most 1. ", ""),
        }

    @tf.function(input_signature=_column(tf.string, "source", "target"))
    def score(self, source, target):
        length = tf.strings.length(target)
        each = -tf.cast(tf.sequence_mask(length), tf.float32)
        pieces = tf.strings.bytes_split(target).to_tensor("")
        return {
            "log_prob": tf.reduce_sum(each, axis=1), "token_log_probs": each, "length": length, "pieces": pieces,
            "truncated": tf.strings.length(source) > MAX_INPUT,
        }  # fmt: skip


def write(export_dir: pathlib.Path, version: int = 1) -> pathlib.Path:
    """export_dir/version/, as a model server wants it; returns export_dir."""
    model = StandIn()
    names = {"serving_default": "translate"} | {name: name for name in ("translate_with_options", "sample", "score")}
    signatures = {signature: getattr(model, name) for signature, name in names.items()}
    tf.saved_model.save(model, str(export_dir / str(version)), signatures=signatures)
    return export_dir
