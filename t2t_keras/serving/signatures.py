"""The signatures of a server: translation with options for each sentence, alignments, samples, and scores of given
translations.

Every input is [B], one value for each sentence, so that a server can batch requests of different clients. An error in
one sentence is reported in its row and does not affect other sentences.

Letters: B sentences, W beams, S source and T target sub-words.
"""

import re
from collections.abc import Sequence

import tensorflow as tf

from t2t_keras.config import MAX_ALPHA, MAX_TEMPERATURE, MIN_TEMPERATURE, PAD, TEMPERATURES, UNK, DecodeConfig
from t2t_keras.decoding import constraints as lexical
from t2t_keras.decoding.sub_batches import Limits, in_sub_batches
from t2t_keras.decoding.translator import Translator
from t2t_keras.layers.masks import shift_right, token_mask
from t2t_keras.serving.protocol import MAX_DRAWS, OPTIONS, OWN_ALPHA, SAMPLES, Int64
from t2t_keras.serving.requests import option_inputs
from t2t_keras.text.phrases import MAX_PHRASES, MAX_SUBWORDS

MAX_ALIGNED = 256  # Maximum number of source sub-words for an alignment. A translation may have twice as many.
MAX_ALIGNMENTS = 2**27  # Maximum size [B, W, T, S] of the alignments in a response.
_DTYPES = {str: tf.string, float: tf.float32, int: tf.int32, Int64: tf.int64, bool: tf.bool}


def _inputs(**values) -> list[tf.TensorSpec]:
    """Returns the specifications of inputs [B] with the types of given values."""
    return [tf.TensorSpec([None], _DTYPES[type(value)], name) for name, value in values.items()]


def _same_rows(**inputs) -> list:
    """Returns the inputs once all have as many values as the first. Nothing reads them before, so that no other
    operation fails first.
    """
    first, *others = inputs
    expected = tf.size(inputs[first])
    checks = []
    for name in others:
        text = f"{name}: expected one value for each sentence, as many as in '{first}'. Received:"
        number = tf.size(inputs[name])
        checks.append(tf.debugging.Assert(number == expected, [text, number, "Expected:", expected]))
    with tf.control_dependencies(checks):
        return [tf.identity(values) for values in inputs.values()]


def _error_where(wrong, text: str, received):
    """Returns an error message with the received value where `wrong` is True, otherwise an empty string. [B] → [B]
    string.
    """
    return tf.where(wrong, tf.strings.join([text, " Received: ", tf.strings.as_string(received), ". "]), "")


def _largest(numbers):
    """Returns the largest of some numbers, [B] int32; 0 of none."""
    return tf.reduce_max(tf.concat([[0], numbers], axis=0))


def _phrase_errors(name: str, number, longest) -> list:
    """Returns error messages for too many or too long phrases, two tensors [B] string."""
    return [
        _error_where(number > MAX_PHRASES, f"{name}: expected at most {MAX_PHRASES} phrases.", number),
        _error_where(longest > MAX_SUBWORDS, f"{name}: expected phrases of at most {MAX_SUBWORDS} sub-words.", longest),
    ]


class Signatures(tf.Module):
    """A translator with the signatures of an export.

    Args:
        translator: the model to serve.

    Attributes:
        sampling_scope: makes the context that `sample` calls the model in.
    """

    def __init__(self, translator: Translator):
        super().__init__(name="service")
        self.translator, self.sampling_scope = translator, translator.search_scope

    def __call__(self, text) -> dict:
        """Translates as `Translator` does, without options."""
        return self.translator(text)

    def n_best(self, text) -> dict:
        """See `Translator.n_best`."""
        return self.translator.n_best(text)

    @property
    def config(self) -> DecodeConfig:
        """The options of the search."""
        return self.translator.config

    @property
    def limits(self) -> Limits:
        """The limits of sub-batches."""
        return self.translator.limits

    @property
    def languages(self) -> Sequence[str]:
        """Codes of the languages of a multilingual model."""
        return self.translator.tokenizer.languages

    def source_subwords(self, texts: list[str]) -> int:
        """Counts the sub-words of texts, with end tokens."""
        return int(self.translator.source_tokenizer.tokenize(texts).flat_values.shape[0]) if texts else 0

    @property
    def _longest(self) -> int:
        config = self.translator.config
        return config.max_input + config.extra_length

    @tf.function(input_signature=_inputs(text=""), autograph=False)
    def translate(self, text):
        """Translates with the configured search: [B] string → {"text": [B] string, "score": [B] float32, "truncated":
        [B] boolean}.

        A blank line gives an empty translation with score 0. Sources are cut to `max_input` sub-words; `truncated` is
        True for those.
        """
        found = self.translate_with_options(**option_inputs(text))
        return {**{name: found[name][:, 0] for name in ("text", "score")}, "truncated": found["truncated"]}

    @tf.function(input_signature=_inputs(text="", **OPTIONS), autograph=False)
    def translate_with_options(self, text, alpha, max_length, n_best, prefix, alignment, constraints, avoid, ordered):
        """Translates with options for each sentence. A sentence with an invalid option gets an `error` and empty
        translations.

        Args:
            text: [B] string.
            alpha: [B] float32, α of the length penalty, 0 to 10; -1 for that of the configuration.
            max_length: [B] int32, maximum number of sub-words, including the end token; 0 for source + `extra_length`.
            n_best: [B] int32, number of translations, 1 to W.
            prefix: [B] string, text that the translation must start with. Spaces at its start and end are ignored. In a
                multilingual model, it may begin with the tag of its language, such as >>deu_Latn<<, and so may `text`.
            alignment: [B] boolean, whether to return an alignment. The source may then have at most 256 sub-words, and
                a translation 512.
            constraints: [B] string, phrases that the translation must contain, separated by tabs or line ends; at most
                32, of at most 32 sub-words each. A phrase that is given twice must appear twice. One that begins with ￭
                follows other text without a space.
            avoid: [B] string, likewise, phrases that the translation must not contain as whole words.
            ordered: [B] boolean, whether the constraints must appear in their order; those after an empty line may
                appear anywhere.

        Returns:
            text: [B, W] string, best first; empty after the first n_best. Two may be the same, in different sub-words.
            score: [B, W] float32, log P / lp; 0 for a blank sentence and after the first n_best.
            constraints_met: [B, W] boolean, whether the translation contains all its constraints. It does not where
                there is no room for them within the maximum length, or the model has no sub-words for their characters.
            truncated: [B] boolean, whether the source was cut to `max_input` sub-words.
            error: [B] string, the error in the options; empty if there is none.
            source_pieces: [B, S] string, the sub-words of the source, with the end token.
            pieces: [B, W, T] string, the sub-words of the translations, each with its end token unless it was cut at
                its maximum length.
            alignment: [B, W, T, S] float32, the attention of each sub-word to the source; rows sum to 1, see
                `EncoderDecoder.align`. Zeros if the architecture does not align.

            The last three are empty strings and zeros in rows that did not ask for an alignment. If no row did, S and T
            are 0.

        Raises:
            InvalidArgumentError: an input has another number of values than `text`, or the alignments of all rows are
                too large.
        """
        text, alpha, max_length, n_best, prefix, alignment, constraints, avoid, ordered = _same_rows(
            text=text, alpha=alpha, max_length=max_length, n_best=n_best, prefix=prefix, alignment=alignment,
            constraints=constraints, avoid=avoid, ordered=ordered,
        )  # fmt: skip
        config, beam_size = self.translator.config, self.translator.config.beam_size
        kept = self.translator.tokenizer.kept(text)
        source, truncated = self.translator.source_tokenizer.cut(text, config.max_input, kept)
        length = tf.cast(source.row_lengths(), tf.int32)
        forced, _ = self.translator.tokenizer.cut(prefix, self._longest + 1, kept)
        forced = forced[:, :-1]
        wanted = tf.where(max_length == 0, length + config.extra_length, tf.minimum(max_length, self._longest))
        wanted = tf.where(alignment & (max_length == 0), tf.minimum(wanted, 2 * MAX_ALIGNED), wanted)
        number = tf.cast(forced.row_lengths(), tf.int32)
        (wanted_phrases, *sizes), (avoided, *avoided_sizes) = self._phrases(constraints, avoid, kept)
        ordered = lexical.in_order(constraints, ordered, tf.shape(wanted_phrases)[1])
        counts = ", including that of the language" if self.translator.tokenizer.languages else ""
        possible = (alpha == OWN_ALPHA) | (alpha >= 0) & (alpha <= MAX_ALPHA)
        error = tf.strings.join([
            _error_where(
                ~possible, f"alpha: expected 0 to {MAX_ALPHA:g}, or {OWN_ALPHA:g} for that of the model.", alpha
            ),
            _error_where(
                max_length < 0, "max_length: expected 1 or more, or 0 for the default of the model.", max_length
            ),
            _error_where(
                (n_best < 1) | (n_best > beam_size), f"n_best: expected 1 to {beam_size}, the beam size.", n_best
            ),
            _error_where(
                alignment & ((length > MAX_ALIGNED) | (wanted > 2 * MAX_ALIGNED)),
                f"alignment: expected a source of at most {MAX_ALIGNED} sub-words and a max_length of at most "
                f"{2 * MAX_ALIGNED}.",
                tf.where(length > MAX_ALIGNED, length, wanted),
            ),
            _error_where(
                (number > 0) & (number >= wanted) & (max_length >= 0),
                f"prefix: expected fewer sub-words than max_length{counts}.", number
            ),
            *self._prefix_errors(prefix),
            *_phrase_errors("constraints", *sizes),
            _error_where(
                (sizes[0] > 0) & (config.diverse_groups > 1),
                "constraints: expected none with several groups of beams.", sizes[0]
            ),
            *_phrase_errors("avoid", *avoided_sizes),
        ])  # fmt: skip
        refused = error != ""
        sequences, scores = self.translator.search(
            source,
            tf.where(refused | (alpha == OWN_ALPHA), config.alpha, alpha),
            tf.where(refused, 1, wanted),
            tf.where(refused, 1, n_best),
            prefix=forced,
            constraints=tf.where(refused[:, None, None], PAD, wanted_phrases),
            ordered=ordered,
            avoid=tf.where(refused[:, None], "", avoided),
        )
        blank = self.translator.source_tokenizer.is_blank(source)
        beyond = tf.range(beam_size)[None] >= n_best[:, None]
        absent = (refused | blank)[:, None] | beyond | ~tf.math.is_finite(scores)
        found = self.translator.texts(sequences, scores, absent, kept)
        written = sequences.to_tensor(PAD)
        written = tf.reshape(written, [tf.shape(text)[0], beam_size, tf.shape(written)[1]])
        # Text leaves out <unk>, which a phrase may have in an imported model.
        impossible = tf.reduce_any(wanted_phrases == UNK, axis=[1, 2])[:, None] | absent & (sizes[0] > 0)[:, None]
        # All hypotheses are impossible where the prefix has what is to be avoided.
        contradicts = (avoided_sizes[0] > 0) & (sizes[0] == 0) & ~(refused | blank) & ~tf.math.is_finite(scores[:, 0])
        error = tf.where(contradicts, "avoid: expected phrases that are not in the prefix.", error)
        found["constraints_met"] = lexical.met(wanted_phrases, ordered, written) & ~impossible
        return {**found, "truncated": truncated, "error": error, **self._aligned(source, sequences, alignment, absent)}

    def _phrases(self, constraints, avoid, kept) -> tuple:
        """Reads all phrases at once, which takes a graph half as large. Returns the sub-words of constraints, the text
        of what is to be avoided, and with each the last two results of `constraints.read`.
        """
        batch, both = tf.shape(constraints)[0], tf.concat([constraints, avoid], axis=0)
        kept = kept if kept is None else tf.tile(kept, [2, 1])
        tokens, spelled, number, longest = lexical.read(self.translator.tokenizer, both, kept)
        sizes, avoided_sizes = (number[:batch], longest[:batch]), (number[batch:], longest[batch:])
        # The search needs memory for each place, also where it is empty.
        most, most_avoided, width = map(_largest, (sizes[0], avoided_sizes[0], sizes[1]))
        return (tokens[:batch, :most, :width], *sizes), (spelled[batch:, :most_avoided], *avoided_sizes)

    def _prefix_errors(self, prefix) -> list:
        """Returns error messages [B] string where a multilingual model has no language for the tag of a prefix."""
        languages = self.translator.tokenizer.languages
        if not languages:
            return []
        known = tf.strings.regex_full_match(prefix, f"(?s)>>({'|'.join(map(re.escape, languages))})<<.*")
        wrong = tf.strings.regex_full_match(prefix, "(?s)>>[^<>]+<<.*") & ~known
        tag = tf.strings.regex_replace(prefix, "<<(?s:.*)", "<<")
        return [_error_where(wrong, "prefix: expected the tag of a language of the model.", tag)]

    def fits(self, phrase: str, text: str) -> bool:
        """Returns whether a phrase has few enough sub-words for a constraint of a text, whose placeholders are one
        each.
        """
        tokenizer = self.translator.tokenizer
        *_, longest = lexical.read(tokenizer, tf.constant([phrase]), tokenizer.kept(tf.constant([text])))
        return bool(longest[0] <= MAX_SUBWORDS)

    def reads(self, text: str) -> bool:
        """Returns whether the model reads all of a text, not only its first `max_input` sub-words."""
        kept = self.translator.tokenizer.kept(tf.constant([text]))
        _, truncated = self.translator.source_tokenizer.cut([text], self.config.max_input, kept)
        return not bool(truncated[0])

    def _aligned(self, source, sequences, alignment, absent):
        """Returns sub-words and alignments of the translations that exist and whose rows ask for alignments."""
        batch, beam_size = tf.shape(absent)[0], self.translator.config.beam_size
        asked = tf.where(alignment[:, None] & ~absent)  # [N, 2] int64: sentence and rank.
        sources = tf.gather(source, asked[:, 0])
        targets = tf.gather(sequences, asked[:, 0] * beam_size + asked[:, 1])
        widths = [_largest(tf.cast(ids.row_lengths(), tf.int32)) for ids in (targets, sources)]
        max_targets, max_sources = widths
        shape = tf.cast([batch, beam_size, *widths], tf.int64)
        text = f"alignment: expected at most {MAX_ALIGNMENTS} numbers [B, W, T, S] in a response."
        text += " Send fewer sentences at once. Received:"
        tf.debugging.Assert(tf.reduce_prod(shape) <= MAX_ALIGNMENTS, [text, shape])

        def align(rows):
            source, target = rows["source"].to_tensor(PAD), rows["target"].to_tensor(PAD)
            model = self.translator.model
            with self.translator.scope():
                if model.aligns:
                    weights = model.align(shift_right(target), self.translator.encode(rows))
                    weights *= token_mask(target)[:, :, None]
                else:
                    weights = tf.zeros([*tf.unstack(tf.shape(target)), tf.shape(source)[1]])
            missing = [[0, 0]] + [[0, most - tf.shape(weights)[axis]] for axis, most in enumerate(widths, 1)]
            return [tf.reshape(tf.pad(weights, missing), [-1])]

        weights, order = in_sub_batches(
            align,
            {**self.translator.sources(sources), "target": targets},
            tf.cast(sources.row_lengths() + targets.row_lengths(), tf.int32),
            max_rows=self.translator.limits.rows,
            max_tokens=self.translator.limits.scored_tokens,
            outputs=[tf.TensorSpec([None], tf.float32)],
        )
        weights = tf.reshape(weights, [tf.size(order), max_targets, max_sources])
        sides = (self.translator.tokenizer, self.translator.source_tokenizer)
        names, source_names = (tf.constant(side.pieces) for side in sides)
        places = [batch, beam_size, max_targets]
        shown = alignment & ~absent[:, 0]
        source_pieces = tf.gather(source_names, tf.ragged.boolean_mask(source, shown)).to_tensor("")
        return {
            "source_pieces": tf.scatter_nd(tf.where(shown), source_pieces, [batch, max_sources]),
            "pieces": tf.scatter_nd(asked, tf.gather(names, targets).to_tensor(""), places),
            "alignment": tf.scatter_nd(tf.gather(asked, order), weights, [*places, max_sources]),
        }

    @tf.function(input_signature=_inputs(text="", **SAMPLES), autograph=False)
    def sample(self, text, seed, draws, temperature, top_k, top_p, max_length):
        """Draws translations at random, with the probabilities of the model. A sentence with an invalid option gets an
        `error` and none.

        Args:
            text: [B] string.
            seed: [B] int64. The draws of a sentence depend on its seed and its options alone.
            draws: [B] int32, number of translations, 1 to 1,000. Further ones do not change those before.
            temperature: [B] float32, τ, 0.01 to 100: sub-words are drawn with probabilities proportional to P^(1 / τ).
            top_k: [B] int32, number of most likely sub-words to draw from; 0 for all.
            top_p: [B] float32, draws from the fewest most likely sub-words that have this probability together; 1 for
                all.
            max_length: [B] int32, maximum number of sub-words, including the end token; 0 for source + `extra_length`.

        Returns:
            text: [B, W] string, in the order of their numbers, where W is the largest of the valid `draws`; empty after
                the draws of its sentence.
            score: [B, W] float32, log P of the model; 0 for a blank sentence and after its draws.
            truncated: [B] boolean, whether the source was cut to `max_input` sub-words.
            error: [B] string, the error in the options; empty if there is none.

        Raises:
            InvalidArgumentError: an input has another number of values than `text`.
        """
        text, draws, seed, temperature, top_k, top_p, max_length = _same_rows(
            text=text, draws=draws, seed=seed, temperature=temperature, top_k=top_k, top_p=top_p, max_length=max_length
        )
        config = self.translator.config
        kept = self.translator.tokenizer.kept(text)
        source, truncated = self.translator.source_tokenizer.cut(text, config.max_input, kept)
        length = tf.cast(source.row_lengths(), tf.int32)
        possible = (temperature >= MIN_TEMPERATURE) & (temperature <= MAX_TEMPERATURE)
        error = tf.strings.join([
            _error_where((draws < 1) | (draws > MAX_DRAWS), f"draws: expected 1 to {MAX_DRAWS:,}.", draws),
            _error_where(~possible, f"temperature: expected {TEMPERATURES}.", temperature),
            _error_where(top_k < 0, "top_k: expected 1 or more, or 0 for all sub-words.", top_k),
            _error_where(~((top_p > 0) & (top_p <= 1)), "top_p: expected a probability in (0, 1].", top_p),
            _error_where(
                max_length < 0, "max_length: expected 1 or more, or 0 for the default of the model.", max_length
            ),
        ])  # fmt: skip
        sequences, scores = self.translator.draw(
            source,
            tf.where(max_length == 0, length + config.extra_length, tf.minimum(max_length, self._longest)),
            tf.where(error == "", draws, 0),
            self.sampling_scope,
            seed=seed,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
        )
        blank = self.translator.source_tokenizer.is_blank(source)
        return {**self.translator.drawn_texts(sequences, scores, blank, kept), "truncated": truncated, "error": error}

    @tf.function(input_signature=_inputs(source="", target=""), autograph=False)
    def score(self, source, target):
        """Scores given translations.

        Args:
            source: [B] string.
            target: [B] string.

        Returns:
            log_prob: [B] float32, log P(target | source), including the end token.
            token_log_probs: [B, T] float32, log P of each sub-word; zeros after the end token.
            length: [B] int32, number of sub-words of the target, including the end token.
            pieces: [B, T] string, the sub-words of the target, with the end token.
            truncated: [B] boolean, whether the source was cut to `max_input` or the target to `max_input` +
                `extra_length` sub-words.

        Raises:
            InvalidArgumentError: the number of targets is not that of the sources.
        """
        source, target = _same_rows(source=source, target=target)
        kept = self.translator.tokenizer.kept(source)
        sources, source_cut = self.translator.source_tokenizer.cut(source, self.translator.config.max_input, kept)
        targets, target_cut = self.translator.tokenizer.cut(target, self._longest, kept)

        log_probs = self.translator.log_probs(sources, targets)
        return {
            "log_prob": tf.reduce_sum(log_probs, axis=1),
            "token_log_probs": log_probs.to_tensor(),
            "length": tf.cast(targets.row_lengths(), tf.int32),
            "pieces": tf.gather(tf.constant(self.translator.tokenizer.pieces), targets).to_tensor(""),
            "truncated": source_cut | target_cut,
        }
