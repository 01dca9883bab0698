"""What a server offers: a `Translator` with options for each sentence, alignments, and the scores of given translations.

Every input is [B], a value for each sentence, so that a server may join the requests of different people. What is wrong with one
sentence is said in its row and leaves the others alone.

Letters: B sentences, W beams, S source and T target sub-words.
"""

import tensorflow as tf

from t2t_keras.config import PAD
from t2t_keras.decoding.sub_batches import in_sub_batches
from t2t_keras.decoding.translator import MOST_ROWS, MOST_SCORED, Translator
from t2t_keras.model.masks import shift_right, token_mask

MOST_ALIGNED = 256  # Sub-words of a source that has an alignment, and half of those of its translation.
MOST_ALIGNMENTS = 2**27  # Numbers of all alignments in an answer, with padding.
OWN_ALPHA = -1.0  # Asks for the configuration's.
MOST_ALPHA = 10.0


def _inputs(**dtypes) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([None], dtype, name) for name, dtype in dtypes.items()]


def _same_rows(first: str, **inputs) -> None:
    """Fails where an input has not as many values as the first."""
    expected = tf.size(inputs[first])
    for name, values in inputs.items():
        text = f"{name}: expected as many values as '{first}' has, one for each sentence. Received:"
        tf.debugging.Assert(tf.size(values) == expected, [text, tf.size(values), "Expected:", expected])


def _error_where(wrong, text: str, received):
    """`text` and what was received where it is wrong, else nothing. [B] → [B] string."""
    return tf.where(wrong, tf.strings.join([text, " Received: ", tf.strings.as_string(received), ". "]), "")


class Service(tf.Module):
    """The signatures of an export.

    Args:
        translator: what translates.
    """

    def __init__(self, translator: Translator):
        super().__init__(name="service")
        self.translator = translator
        self._pieces = translator.tokenizer.pieces

    @property
    def _longest(self) -> int:
        config = self.translator.config
        return config.max_input + config.extra_length

    @tf.function(input_signature=_inputs(text=tf.string))
    def translate(self, text):
        """[B] string → {"text": [B] string, "score": [B] float32}, the best translation by the configuration's search.

        A blank line gives an empty line of score 0. Sources of more than `max_input` sub-words are cut.
        """
        rows = tf.shape(text)
        alpha, nothing = tf.fill(rows, OWN_ALPHA), tf.fill(rows, "")
        found = self.translate_with_options(text, alpha, tf.zeros(rows, tf.int32), tf.ones(rows, tf.int32), nothing, tf.fill(rows, False))
        return {name: found[name][:, 0] for name in ("text", "score")}

    @tf.function(
        input_signature=_inputs(text=tf.string, alpha=tf.float32, max_length=tf.int32, n_best=tf.int32, prefix=tf.string, alignment=tf.bool)
    )
    def translate_with_options(self, text, alpha, max_length, n_best, prefix, alignment):
        """Translations by options of each sentence's own. One with an option that cannot be has an `error` and empty translations.

        Args:
            text: [B] string.
            alpha: [B] float32, of the length penalty, 0 to 10; -1: the configuration's.
            max_length: [B] int32, most sub-words written, the end token counted; 0: source + `extra_length`.
            n_best: [B] int32, translations wanted, 1 to W.
            prefix: [B] string, what the translation begins with; spaces at its ends do not count.
            alignment: [B] boolean, whether an alignment is wanted; of sources of at most 256 sub-words.

        Returns:
            text: [B, W] string, best first; empty after the first n_best.
            score: [B, W] float32, log P / lp; 0 of a blank sentence and after the first n_best.
            truncated: [B] boolean, whether the source was cut to `max_input` sub-words.
            error: [B] string, what is wrong with the options; empty where nothing is.
            source_pieces [B, S] and pieces [B, W, T]: strings, the sub-words with their end tokens; and
            alignment: [B, W, T, S] float32, how far each piece looks at each source piece, 1 in sum, see `Transformer.align`. Rows
                that did not ask are empty strings and zeros; if none asked, S and T are 0.

        Raises:
            InvalidArgumentError: an input has not as many values as `text`, or the alignments of all rows together are too large.
        """
        _same_rows("text", text=text, alpha=alpha, max_length=max_length, n_best=n_best, prefix=prefix, alignment=alignment)
        config, beam_size = self.translator.config, self.translator.config.beam_size
        source, truncated = self.translator.tokenizer.cut(text, config.max_input)
        length = tf.cast(source.row_lengths(), tf.int32)
        forced, _ = self.translator.tokenizer.cut(prefix, self._longest + 1)
        forced = forced[:, :-1]
        wanted = tf.where(max_length == 0, length + config.extra_length, tf.minimum(max_length, self._longest))
        number = tf.cast(forced.row_lengths(), tf.int32)
        possible = (alpha == OWN_ALPHA) | (alpha >= 0) & (alpha <= MOST_ALPHA)
        error = tf.strings.join([
            _error_where(~possible, f"alpha: expected 0 to {MOST_ALPHA:g}, or {OWN_ALPHA:g}.", alpha),
            _error_where(max_length < 0, "max_length: expected 1 or more, or 0 for the model's own.", max_length),
            _error_where((n_best < 1) | (n_best > beam_size), f"n_best: expected 1 to {beam_size}, the exported beam.", n_best),
            _error_where(
                alignment & ((length > MOST_ALIGNED) | (wanted > 2 * MOST_ALIGNED)),
                f"alignment: expected at most {MOST_ALIGNED} sub-words of source, and {2 * MOST_ALIGNED} of max_length.",
                tf.maximum(length, wanted),
            ),
            _error_where(
                (number > 0) & (number >= wanted) & (max_length >= 0), "prefix: expected fewer sub-words than max_length.", number
            ),
        ])  # fmt: skip
        refused = error != ""
        sequences, scores = self.translator.search(
            source,
            tf.where(refused | (alpha == OWN_ALPHA), config.alpha, alpha),
            tf.where(refused, 1, wanted),
            tf.where(refused, 1, n_best),
            forced,
        )
        absent = (refused | (length == 1))[:, None] | (tf.range(beam_size)[None] >= n_best[:, None]) | ~tf.math.is_finite(scores)
        found = self.translator.texts(sequences, scores, absent)
        return {**found, "truncated": truncated, "error": error, **self._aligned(source, sequences, alignment, absent)}

    def _aligned(self, source, sequences, alignment, absent):
        """Sub-words and alignments of the translations that are there and were asked for."""
        batch, beam_size = tf.shape(absent)[0], self.translator.config.beam_size
        asked = tf.where(alignment[:, None] & ~absent)  # [N, 2], int64: sentence and place.
        sources = tf.gather(source, asked[:, 0])
        targets = tf.gather(sequences, asked[:, 0] * beam_size + asked[:, 1])
        widths = [tf.reduce_max(tf.concat([[0], tf.cast(ids.row_lengths(), tf.int32)], axis=0)) for ids in (targets, sources)]
        most_targets, most_sources = widths
        shape = tf.cast([batch, beam_size, *widths], tf.int64)
        text = (
            f"alignment: expected at most {MOST_ALIGNMENTS} numbers [B, W, T, S] in an answer. Ask for fewer sentences at once. Received:"
        )
        tf.debugging.Assert(tf.reduce_prod(shape) <= MOST_ALIGNMENTS, [text, shape])

        def align(rows):
            source, target = rows["source"].to_tensor(PAD), rows["target"].to_tensor(PAD)
            model = self.translator.model
            with self.translator.weights():
                weights = model.align(shift_right(target), model.encode(source)) * token_mask(target)[:, :, None]
            missing = [[0, 0]] + [[0, most - tf.shape(weights)[axis]] for axis, most in enumerate(widths, 1)]
            return [tf.reshape(tf.pad(weights, missing), [-1])]

        weights, order = in_sub_batches(
            align,
            {"source": sources, "target": targets},
            tf.cast(sources.row_lengths() + targets.row_lengths(), tf.int32),
            most_rows=MOST_ROWS,
            most_tokens=MOST_SCORED,
            outputs=[tf.TensorSpec([None], tf.float32)],
        )
        weights = tf.reshape(weights, [tf.size(order), most_targets, most_sources])
        names, places = tf.constant(self._pieces), [batch, beam_size, most_targets]
        shown = alignment & ~absent[:, 0]
        source_pieces = tf.gather(names, tf.ragged.boolean_mask(source, shown)).to_tensor("")
        return {
            "source_pieces": tf.scatter_nd(tf.where(shown), source_pieces, [batch, most_sources]),
            "pieces": tf.scatter_nd(asked, tf.gather(names, targets).to_tensor(""), places),
            "alignment": tf.scatter_nd(tf.gather(asked, order), weights, [*places, most_sources]),
        }

    @tf.function(input_signature=_inputs(source=tf.string, target=tf.string))
    def score(self, source, target):
        """How likely given translations are.

        Args:
            source: [B] string.
            target: [B] string.

        Returns:
            log_prob: [B] float32, log P(target | source), the end token counted.
            token_log_probs: [B, T] float32, of each sub-word; zeros after the end token.
            length: [B] int32, the sub-words of the target, the end token counted.
            truncated: [B] boolean, whether source or target was cut, to `max_input` and `max_input` + `extra_length` sub-words.

        Raises:
            InvalidArgumentError: there are not as many targets as sources.
        """
        _same_rows("source", source=source, target=target)
        sources, source_cut = self.translator.tokenizer.cut(source, self.translator.config.max_input)
        targets, target_cut = self.translator.tokenizer.cut(target, self._longest)

        log_probs = self.translator.log_probs(sources, targets)
        return {
            "log_prob": tf.reduce_sum(log_probs, axis=1),
            "token_log_probs": log_probs.to_tensor(),
            "length": tf.cast(targets.row_lengths(), tf.int32),
            "truncated": source_cut | target_cut,
        }
