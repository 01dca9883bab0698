"""All attention weights of a sentence and its translation (section 3.2), which the figures of the paper's appendix
show.

Letters: L layers, H heads, T queries, S keys.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from keras import ops

from t2t_keras.config import BOS, EOS
from t2t_keras.decoding.translator import Translator
from t2t_keras.layers.attention import MultiHeadAttention
from t2t_keras.layers.masks import shift_right
from t2t_keras.model.ensemble import Ensemble
from t2t_keras.model.transformer import Transformer
from t2t_keras.system.compat import replaced_calls
from t2t_keras.text.lines import is_blank, one_line
from t2t_keras.text.spelling import word_numbers
from t2t_keras.text.subwords import Subwords

KINDS = ("encoder", "decoder", "cross")
MAX_PIECES = 256  # Of a sentence: weights and pictures grow with the square.
MAX_ALIGNED = 512  # Of a sentence whose words alone are aligned.


@dataclasses.dataclass(frozen=True)
class Tokens:
    """Sub-words, and the words that they make up.

    Attributes:
        pieces: sub-words as SentencePiece writes them; ▁ starts a word, and `</s>` is the end token.
        words: the words in plain text. Only spaces separate words. The start and end tokens are words of their own.
        sizes: how many pieces each word has.
    """

    pieces: tuple[str, ...]
    words: tuple[str, ...]
    sizes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class SentenceAttention:
    """The attention weights of one sentence and its translation. A recurrent model has `cross` only, of one layer with
    one head.

    Row t of `decoder` and `cross` belongs to the position that predicts piece t of `target`, and rows are labelled with
    that piece, as in Tensor2Tensor's pictures. That position has read the pieces before it: column s of `decoder`
    belongs to piece s of `target_input`, which begins with the start token. Tensor2Tensor labels these columns with the
    predicted pieces too.

    Attributes:
        source, target: what is read and what is predicted, each with its end token. A translation that beam search had
            to stop has none.
        target_input: what the decoder reads: the start token and all but the last piece of `target`.
        encoder: encoder self-attention, [L, H, S, S] float32.
        decoder: decoder self-attention, [L, H, T, T] float32. Zero above the diagonal (section 3.2.3).
        cross: the decoder's attention to the source, [L, H, T, S] float32.
    """

    source: Tokens
    target: Tokens
    target_input: Tokens
    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray

    def weights(self, kind: str) -> np.ndarray:
        """The weights of `encoder`, `decoder` or `cross` attention, [L, H, T, S] float32; each row sums to 1."""
        if kind not in KINDS:
            raise ValueError(f"Expected {', '.join(KINDS)} attention. Received: {kind}.")
        return getattr(self, kind)

    def sides(self, kind: str) -> tuple[Tokens, Tokens]:
        """What attends and what it attends to: the labels of rows and of columns."""
        return {
            "encoder": (self.source, self.source),
            "decoder": (self.target, self.target_input),
            "cross": (self.target, self.source),
        }[kind]

    def by_words(self) -> "SentenceAttention":
        """The same with words in place of sub-words.

        Attention to a word is the sum over its pieces, and attention from a word is the mean over its pieces, so rows
        still sum to 1.
        """
        merged = {}
        for kind in KINDS:
            queries, keys = (np.array(side.sizes) for side in self.sides(kind))
            weights = np.add.reduceat(self.weights(kind), np.cumsum(keys) - keys, axis=-1)
            merged[kind] = np.add.reduceat(weights, np.cumsum(queries) - queries, axis=-2) / queries[:, None].astype(
                "float32"
            )
        tokens = {name: getattr(self, name) for name in ("source", "target", "target_input")}
        return SentenceAttention(
            **{name: Tokens(side.words, side.words, (1,) * len(side.words)) for name, side in tokens.items()}, **merged
        )


def layers_of(model: Transformer) -> dict[str, list[MultiHeadAttention]]:
    """Returns the attention layers of a model by their kind, in the order in which they are called."""
    return {
        "encoder": [layer.self_attention for layer in model.encoder.stack],
        "decoder": [layer.self_attention for layer in model.decoder],
        "cross": [layer.cross_attention for layer in model.decoder],
    }


def observing(layers: Sequence[MultiHeadAttention], observe: Callable) -> contextlib.AbstractContextManager:
    """Returns a context in which attention layers call `observe`, in eager mode and without a cache, with the layer and
    its query, memory and mask.

    Only these layers are observed, and only inside the context: other models, training and decoding run the same code
    as before.
    """

    def observed(layer: MultiHeadAttention) -> Callable:
        def call(query, memory=None, attention_mask=None, **options):
            observe(layer, query, memory, attention_mask)
            return type(layer).call(layer, query, memory, attention_mask, **options)

        return call

    return replaced_calls([(layer, observed(layer)) for layer in layers])


def check_attention(model) -> None:
    """Raises `ValueError` unless the attention of a model can be drawn: all that a Transformer has, or the alignment of
    another model.
    """
    if not model.aligns or isinstance(model, Ensemble):
        raise ValueError(f"The attention of this model cannot be drawn: {type(model).__name__}.")


def attention_of(
    translator: Translator, source: str, target: str | None = None, max_pieces: int = MAX_PIECES
) -> SentenceAttention:
    """Computes all attention weights of a sentence and its translation: `target` or, with `None`, the best that beam
    search finds. The source and a given target have at most `max_pieces` sub-words with the end token.

    Raises `ValueError` if a sentence is blank or too long; see also `check_attention`.
    """
    check_attention(translator.model)
    phrases = translator.tokenizer.kept(tf.constant([one_line(source)]))
    ids = _ids(translator.source_tokenizer, "source", source, min(max_pieces, translator.config.max_input), phrases)
    if target is None:
        predicted = _translated(translator, ids)
    else:
        predicted = _ids(translator.tokenizer, "target", target, max_pieces, phrases)
    read, tokenizer = shift_right(tf.constant([predicted], tf.int32)), translator.tokenizer
    with translator.scope():
        weights = (_of_transformer if isinstance(translator.model, Transformer) else _aligned)(
            translator.model, tf.constant([ids]), read
        )
    return SentenceAttention(
        _tokens(translator.source_tokenizer, ids),
        _tokens(tokenizer, predicted),
        _tokens(tokenizer, [BOS, *predicted[:-1]]),
        *weights,
    )


def _of_transformer(model: Transformer, source, target) -> list[np.ndarray]:
    """Returns the weights of each of `KINDS`, [L, H, T, S]."""
    layers, weights = layers_of(model), {}

    def record(layer: MultiHeadAttention, query, memory, mask) -> None:
        weights[layer] = ops.convert_to_numpy(layer.weights_of(query, memory, mask))

    with observing(sum(layers.values(), []), record):
        model.decode(target, model.encode(source))
    return [np.concatenate([weights[layer] for layer in layers[kind]]) for kind in KINDS]


def _aligned(model, source, target) -> list[np.ndarray]:
    """The alignment as the only layer and head; no layers of self-attention."""
    sides = source.shape[1], target.shape[1]
    nothing = [np.zeros((0, 0, length, length), np.float32) for length in sides]
    return [*nothing, ops.convert_to_numpy(model.align(target, model.encode(source)))[None]]


def _ids(tokenizer: Subwords, name: str, text: str, longest: int, phrases) -> list[int]:
    """The sub-words of a sentence with the end token."""
    if is_blank(text):
        raise ValueError(f"The {name} sentence is blank.")
    ids, cut = tokenizer.cut(tf.constant([one_line(text)]), longest, phrases)
    if cut[0]:
        raise ValueError(
            f"The {name} has more than {longest:,} sub-words, with the end token: {text[:60]!r}… Shorten it."
        )
    return ids[0].numpy().tolist()


def _translated(translator: Translator, ids: list[int]) -> list[int]:
    """The best translation of a sentence by beam search, in sub-words."""
    config = translator.config
    sequences, _ = translator.search(
        tf.RaggedTensor.from_tensor(tf.constant([ids], tf.int32)),
        tf.constant([float(config.alpha)]),
        tf.constant([len(ids) + config.extra_length]),
        tf.constant([1]),
    )
    return sequences[0].numpy().tolist()


def _tokens(tokenizer: Subwords, ids: list[int]) -> Tokens:
    """The pieces of some ids, and their words."""
    words: list[list[int]] = []
    for is_special, run in itertools.groupby(ids, lambda index: index <= EOS):
        run = list(run)
        words += [[index] for index in run] if is_special else _words(tokenizer, run)
    texts = tokenizer.detokenize(tf.ragged.constant(words, tf.int32)).numpy()
    return Tokens(
        tuple(tokenizer.pieces[piece] for piece in ids),
        tuple(
            text.decode("utf-8", "replace").strip(" ") or tokenizer.pieces[word[0]]
            for text, word in zip(texts, words, strict=True)
        ),
        tuple(map(len, words)),
    )


def _words(tokenizer: Subwords, ids: list[int]) -> list[list[int]]:
    """The ids of each word. ▁ begins one where the sub-words have other words than their text."""
    pieces, row = [tokenizer.pieces[index] for index in ids], tf.ragged.constant([ids], tf.int32)
    numbers = word_numbers(pieces, tokenizer.detokenize(row).numpy()[0].decode("utf-8", "replace"))
    if numbers is None:
        numbers = np.cumsum([piece.startswith("▁") for piece in pieces])
    return [[index for index, _ in run] for _, run in itertools.groupby(zip(ids, numbers, strict=True), lambda x: x[1])]


def word_alignment(translator: Translator, source: str, target: str) -> np.ndarray | None:
    """Aligns a given translation with its source.

    Returns:
        [T, S] float32, the attention of each word of the target to each word of the source, where spaces separate
        words: the sum over the sub-words of the source's word, the mean over those of the target's word, see
        `EncoderDecoder.align`. Rows sum to 1 less the attention to the end token and, in a multilingual model, to that
        of the language. `None` if the architecture does not align, a side is blank or too long, or the sub-words have
        other words than the text, as after a normalization.
    """
    if not translator.model.aligns:
        return None
    tokenizers, texts = (translator.source_tokenizer, translator.tokenizer), (source, target)
    phrases = translator.tokenizer.kept(tf.constant([source]))
    ids = [side.cut(tf.constant([text]), MAX_ALIGNED, phrases)[0] for side, text in zip(tokenizers, texts, strict=True)]
    # Without the sub-words of the language and of the end.
    inner = [slice(int(bool(side.languages)), -1) for side in tokenizers]
    words = [
        word_numbers([side.pieces[index] for index in row[0, of_text].numpy()], text)
        for side, row, of_text, text in zip(tokenizers, ids, inner, texts, strict=True)
    ]
    if any(row is None for row in words):
        return None
    with translator.scope():
        memory = translator.encode(translator.sources(ids[0]))
        weights = np.array(translator.model.align(shift_right(ids[1].to_tensor()), memory))[0, inner[1], inner[0]]
    of_source, of_target = (np.eye(row.max() + 1, dtype="float32")[row] for row in words)
    return (of_target / of_target.sum(axis=0)).T @ weights @ of_source
