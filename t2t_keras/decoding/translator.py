"""Text in, text and scores out (section 6.1): the one object that scores BLEU, translates on the command line and is served.

Letters: B sentences, W beams, S source and T target sub-words.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import tensorflow as tf

from t2t_keras.config import BOS, EOS, PAD, DecodeConfig
from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.frozen_weights import FrozenWeights, values_of
from t2t_keras.decoding.int8 import Int8
from t2t_keras.decoding.sub_batches import in_sub_batches
from t2t_keras.model.gradient import no_gradients
from t2t_keras.model.loss import cross_entropy
from t2t_keras.model.masks import shift_right
from t2t_keras.text.lines import one_line
from t2t_keras.text.tokenizer import Tokenizer

MOST_ROWS, MOST_TOKENS = 32, 4096  # Searched at once: sentences, and sub-words a side with padding.
MOST_SCORED = 1024  # Sub-words with padding that are scored at once, each of which has V logits.


class Translator(tf.Module):
    """A model, its sub-words and beam search.

    Any number of sentences of any length may come at once: they are worked on a few at a time, and a translation does not depend
    on the sentences beside it.

    Args:
        model: a `Transformer`: anything with `encode`, `decode` and `empty_cache`.
        tokenizer: the sub-words it was trained with.
        config: how to search.
        frozen: the search may keep the weights as they are now, which is faster; not those of a model that is being trained.
        int8: the model's weights in 8 bits, which all is done with.

    Attributes:
        weights: the scope in which the model has its weights; the search has one of its own.
    """

    def __init__(self, model, tokenizer: Tokenizer, config: DecodeConfig, frozen: bool = False, int8: Int8 | None = None):
        super().__init__(name="translator")
        self.model, self.tokenizer, self.config, self.int8 = model, tokenizer, config, int8
        values = int8.values if int8 else values_of(model) if frozen else None
        self._search_weights = (lambda: FrozenWeights(values)) if values else contextlib.nullcontext
        # A graph outside the search has no gain of constants, which it would hold a second time.
        self.weights = self._search_weights if int8 else no_gradients

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def n_best(self, text):
        """[B] string → {"text": [B, W] string, "score": [B, W] float32}, best first. A blank line gives empty lines of score 0."""
        return self._n_best(text, self.config.beam_size)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def __call__(self, text):
        """[B] string → {"text": [B] string, "score": [B] float32}."""
        return {name: values[:, 0] for name, values in self._n_best(text, 1).items()}

    def truncated(self, text):
        """[B] string → [B] boolean, whether a source has more than `max_input` sub-words, of which only the first are translated."""
        return self.tokenizer.cut(text, self.config.max_input)[1]

    def _n_best(self, text, number: int):
        source = self.tokenizer.tokenize(text, max_length=self.config.max_input)
        rows, length = tf.shape(text), tf.cast(source.row_lengths(), tf.int32)
        sequences, scores = self.search(
            source, tf.fill(rows, float(self.config.alpha)), length + self.config.extra_length, tf.fill(rows, number)
        )
        return self.texts(sequences, scores, blank=length == 1)

    def texts(self, sequences: tf.RaggedTensor, scores, blank):
        """What `search` found, in words: {"text": [B, W] string, "score": [B, W] float32}, empty and 0 where `blank`, [B] or [B, W]."""
        blank = tf.reshape(blank, [tf.shape(scores)[0], -1]) | ~tf.math.is_finite(scores)
        texts = tf.reshape(self.tokenizer.detokenize(sequences), tf.shape(scores))
        return {"text": tf.where(blank, "", texts), "score": tf.where(blank, 0.0, scores)}

    def search(self, source: tf.RaggedTensor, alpha, max_length, n_best, prefix: tf.RaggedTensor | None = None):
        """Beam search with options for each sentence, see `beam_search`.

        Args:
            source: [B, (S)] int32, each ending in EOS.
            alpha: [B] float32.
            max_length, n_best: [B] int32.
            prefix: [B, (P)] int32, what the translations begin with.

        Returns:
            Translations [B · W, (T)] int32, those of a sentence one after the other, best first; and their scores [B, W] float32.
        """
        rows = {"source": source, "alpha": alpha, "max_length": max_length, "n_best": n_best}
        if prefix is not None:
            rows["prefix"] = prefix
        beam_size = self.config.beam_size
        ids, lengths, scores, order = in_sub_batches(
            self._search,
            rows,
            # Memory is of both: a row may ask for a long translation of a short source.
            tf.maximum(tf.cast(source.row_lengths(), tf.int32), max_length),
            most_rows=MOST_ROWS,
            most_tokens=MOST_TOKENS,
            outputs=[
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None], tf.int64),
                tf.TensorSpec([None, beam_size], tf.float32),
            ],
        )
        where = tf.math.invert_permutation(order)
        sequences = tf.RaggedTensor.from_row_lengths(ids, lengths, validate=False)
        places = tf.reshape(where[:, None] * beam_size + tf.range(beam_size), [-1])
        return tf.gather(sequences, places), tf.gather(scores, where)

    def log_probs(self, source: tf.RaggedTensor, target: tf.RaggedTensor) -> tf.RaggedTensor:
        """log P of each sub-word of given translations.

        Args:
            source: [B, (S)] int32, each ending in EOS.
            target: [B, (T)] int32, likewise.

        Returns:
            [B, (T)] float32, in nats.
        """

        def read(rows):
            source, target = rows["source"].to_tensor(PAD), rows["target"].to_tensor(PAD)
            with self.weights():
                logits, _ = self.model.decode(shift_right(target), self.model.encode(source))
                _, negative_log_likelihood = cross_entropy(logits, target, 0.0)
            return [-tf.boolean_mask(negative_log_likelihood, target != PAD)]

        length = target.row_lengths()
        log_probs, order = in_sub_batches(
            read,
            {"source": source, "target": target},
            tf.cast(tf.maximum(source.row_lengths(), length), tf.int32),
            most_rows=MOST_ROWS,
            most_tokens=MOST_SCORED,
            outputs=[tf.TensorSpec([None], tf.float32)],
        )
        in_order = tf.RaggedTensor.from_row_lengths(log_probs, tf.gather(length, order), validate=False)
        return tf.gather(in_order, tf.math.invert_permutation(order))

    def _search(self, rows):
        """Some rows of `search` → sub-words of all translations in one row, their lengths [R · W], scores [R, W]."""
        config, model, weights = self.config, self.model, self._search_weights
        source = rows.pop("source").to_tensor(PAD)
        if "prefix" in rows:
            rows["prefix"] = rows["prefix"].to_tensor(PAD)

        def step(tokens, ancestors, position, state):
            memory, cache = state
            with weights():
                logits, cache = model.decode(tokens, memory, cache=cache, position=position, ancestors=ancestors)
            return logits, (memory, cache)

        number = tf.shape(source)[0]
        with weights():
            state = (model.encode(source), model.empty_cache(number))
        start = tf.fill([number], BOS)
        sequences, scores = beam_search(step, state, start, eos_id=EOS, beam_size=config.beam_size, **rows)
        written = tf.RaggedTensor.from_tensor(tf.reshape(sequences, [number * config.beam_size, tf.shape(sequences)[2]]), padding=PAD)
        return written.values, written.row_lengths(), scores


def translate_lines(translate: Callable, lines: Iterable[str], *, batch_size: int = 64, read_ahead: int = 4096) -> Iterator[dict]:
    """Translates line by line, in order, however many there are.

    Lines are read ahead, sorted by length so that a batch has little padding, and given back in their own order.

    Args:
        translate: a `Translator` or its `n_best`; whatever else it returns for each line is passed on.
        lines: sentences.
        batch_size: sentences at once.
        read_ahead: lines held at once.

    Yields:
        What `translate` returns for each line: {"text": str or list of str, "score": float or list of float}.
    """
    lines = iter(lines)
    while ahead := [line for _, line in zip(range(read_ahead), lines, strict=False)]:
        order = sorted(range(len(ahead)), key=lambda i: len(ahead[i]))
        results: list = [None] * len(ahead)
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            output = translate(tf.constant([ahead[i] for i in chosen]))
            texts, rest = output["text"].numpy(), {name: values.numpy().tolist() for name, values in output.items() if name != "text"}
            for row, index in enumerate(chosen):
                found = [one_line(text.decode("utf-8", "replace")) for text in np.atleast_1d(texts[row])]
                results[index] = {"text": found if texts.ndim == 2 else found[0], **{name: rest[name][row] for name in rest}}
        yield from results
