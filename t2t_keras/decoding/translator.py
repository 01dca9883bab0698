"""Translates text with scores (section 6.1). BLEU, the command line and exports all use the same `Translator`.

Letters: B sentences, W beams, S source and T target sub-words.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.config import BOS, EOS, PAD, DecodeConfig
from t2t_keras.decoding import sampling
from t2t_keras.decoding.avoided import Avoided
from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.constraints import Banks
from t2t_keras.decoding.diverse_beams import DiverseBeams
from t2t_keras.decoding.frozen_weights import FrozenWeights, values_of
from t2t_keras.decoding.int8 import Int8
from t2t_keras.decoding.search_hooks import BEST, NoRepeatedNgrams, Prefix, Scorer, Selector
from t2t_keras.decoding.sub_batches import in_sub_batches, limits_here
from t2t_keras.layers.inference import inference
from t2t_keras.layers.masks import shift_right
from t2t_keras.model.loss import cross_entropy
from t2t_keras.text.lines import one_line
from t2t_keras.text.subwords import Subwords

# With more, a sub-batch has fewer sentences, because the memory for one grows with the square of its beams.
MANY_BEAMS = 32
# Beams of a sentence with constraints, at least: the banks of `constraints` share them.
CONSTRAINED_BEAMS = 8
# The search pads sources to a multiple of this length, because oneDNN compiles kernels for each length.
SOURCE_MULTIPLE = 4

Inputs = dict[str, tf.Tensor]  # [R, …] by name, a row for each sentence.


class Translator(tf.Module):
    """Translates text with a model, its sub-words and beam search.

    A call takes any number of sentences of any length and processes them in sub-batches. A translation does not depend
    on the other sentences.

    Args:
        model: a `model.protocols.EncoderDecoder`, such as a `model.ensemble.Ensemble` of several.
        tokenizer: the sub-words that the model was trained with; its `source` has those of sources.
        config: options of the search.
        frozen: whether the search may copy the current weights into its graph, which is faster. Not for a model in
            training.
        int8: weights in 8 bits, which replace those of the model.
        scorers: functions that make the scorers of a search; each receives the inputs of some sentences: "source" [R,
            S], "alpha" [R], "max_length" [R], "n_best" [R], and the other inputs of `search`, ragged ones padded; and
            "beam_size", the number of beams W, which differs for samples and for sentences with constraints.
        selector: the function that makes the selector of a search, likewise; without it, that of `config`.
        other_sources: sub-words of the further sources that an ensemble reads; see `model.ensemble.Ensemble`.

    Attributes:
        constrained_beams: the number of beams of a sentence with constraints.
        limits: of sub-batches: those of this machine. They are fixed when a graph is traced.
        scope: makes the context that the model is called in outside the search.
        search_scope: makes the context that the search calls the model in.

    Raises:
        ValueError: models that translate together have other placeholders, or a hook is not a function that makes it.
    """

    def __init__(
        self,
        model,
        tokenizer: Subwords,
        config: DecodeConfig,
        frozen: bool = False,
        int8: Int8 | None = None,
        scorers: Sequence[Callable[[Inputs], Scorer]] = (),
        selector: Callable[[Inputs], Selector] | None = None,
        other_sources: Sequence[Subwords] = (),
    ):
        super().__init__(name="translator")
        if callable(scorers):
            raise ValueError(f"`scorers` must be a list of functions. Received: {scorers!r:.80}.")
        scorers = tuple(scorers)
        for hook in (*scorers, selector):
            if not (hook is None or callable(hook)) or isinstance(hook, Scorer | Selector):
                raise ValueError(
                    "`scorers` and `selector` must be functions that make them from the inputs of a search, such as "
                    f"`lambda inputs: MyScorer()`. Received: {hook!r:.80}."
                )
        self.model, self.tokenizer, self.config, self.int8, self.scorers = model, tokenizer, config, int8, scorers
        self.other_sources = list(other_sources)
        if any(other.pattern != tokenizer.source.pattern for other in other_sources):
            raise ValueError(
                "Models that translate together must have the same placeholders (`keep_patterns`). These have not."
            )
        searched = selector is None and config.diverse_groups == 1
        self.constrained_beams = max(config.beam_size, CONSTRAINED_BEAMS) if searched else config.beam_size
        groups = DiverseBeams(config.diverse_groups, config.diversity, EOS) if config.diverse_groups > 1 else BEST
        self.selector = selector or (lambda inputs: groups)
        self.limits = limits_here(config.search_rows, config.search_cores)
        values = int8.values if int8 else values_of(model) if frozen else None
        self.search_scope = (lambda: FrozenWeights(values)) if values else inference
        # Constants make only the search faster. Another graph would hold a second copy of the weights.
        self.scope = self.search_scope if int8 else inference

    @property
    def source_tokenizer(self) -> Subwords:
        """The sub-words of sources."""
        return self.tokenizer.source

    def sources(self, source: tf.RaggedTensor) -> dict[str, tf.RaggedTensor]:
        """Returns the inputs of `encode` by name: a source [B, (S)] int32, and the same text in `other_sources`."""
        if not self.other_sources:
            return {"source": source}
        text = self.source_tokenizer.detokenize(source)
        return {"source": source} | {
            f"source_{n}": other.tokenize(text) for n, other in enumerate(self.other_sources, 1)
        }

    def _language(self, source: tf.RaggedTensor) -> dict:
        """Returns the prefix of translations into the target's language, if it has one."""
        if self.tokenizer is None or not self.tokenizer.language:  # Searches of ids alone need no sub-words.
            return {}
        return {"prefix": self.tokenizer.tokenize(tf.fill([source.nrows(out_type=tf.int32)], "")).to_tensor(PAD)[:, :1]}

    def encode(self, inputs: dict, multiple: int = 1):
        """Encodes a batch of `sources`, padded to a multiple of a length; see `EncoderDecoder.encode`."""
        sources = [inputs["source"], *(inputs[f"source_{n}"] for n in range(1, len(self.other_sources) + 1))]
        sources = [x.to_tensor(PAD) if isinstance(x, tf.RaggedTensor) else x for x in sources]
        if multiple > 1:
            sources = [tf.pad(x, [[0, 0], [0, -tf.shape(x)[1] % multiple]]) for x in sources]
        return self.model.encode(tuple(sources) if self.other_sources else sources[0])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def n_best(self, text):
        """Translates [B] string → {"text": [B, W] string, "score": [B, W] float32, "truncated": [B] boolean}, the best
        of a line first.

        A blank line gives empty translations with score 0. Sources are cut to `max_input` sub-words; `truncated` is
        True for those.
        """
        return self._n_best(text, self.config.beam_size)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def __call__(self, text):
        """Translates [B] string → {"text": [B] string, "score": [B] float32, "truncated": [B] boolean}; see
        `n_best`.
        """
        found = self._n_best(text, 1)
        return found | {name: found[name][:, 0] for name in ("text", "score")}

    def _n_best(self, text, number: int):
        kept = self.tokenizer.kept(text)
        source, truncated = self.source_tokenizer.cut(text, self.config.max_input, kept)
        rows, length = tf.shape(text), tf.cast(source.row_lengths(), tf.int32)
        sequences, scores = self.search(
            source, tf.fill(rows, float(self.config.alpha)), length + self.config.extra_length, tf.fill(rows, number)
        )
        return self.texts(sequences, scores, blank=self.source_tokenizer.is_blank(source), kept=kept) | {
            "truncated": truncated
        }

    def texts(self, sequences: tf.RaggedTensor, scores, blank, kept=None):
        """Converts results of `search` to text.

        Args:
            sequences: [B · W, (T)] int32.
            scores: [B, W] float32.
            blank: [B] or [B, W] boolean, True where the text must be empty and the score 0.
            kept: [B, N] string, what the placeholders of each sentence stand for, see `Subwords.kept`.

        Returns:
            {"text": [B, W] string, "score": [B, W] float32}.
        """
        blank = tf.reshape(blank, [tf.shape(scores)[0], -1]) | ~tf.math.is_finite(scores)
        kept = kept if kept is None else tf.repeat(kept, tf.shape(scores)[1], axis=0)
        texts = tf.reshape(self.tokenizer.detokenize(sequences, kept), tf.shape(scores))
        return {"text": tf.where(blank, "", texts), "score": tf.where(blank, 0.0, scores)}

    def search(self, source: tf.RaggedTensor, alpha, max_length, n_best, **inputs):
        """Runs beam search with options for each sentence; see `beam_search`.

        Args:
            source: [B, (S)] int32; each row ends in EOS.
            alpha: [B] float32.
            max_length, n_best: [B] int32.
            inputs: of the scorers and the selector, [B, …] or ragged. These are known to every translator: `prefix`,
                [B, (P)] int32, sub-words that the translations must start with, by default the target's language, if it
                has one; `constraints`, [B, C, L] int32, padded with PAD, phrases that they must contain, in this order
                if `ordered`, [B] or [B, C] boolean, which goes with it; and `avoid`, [B, C] string, padded with "",
                phrases that they must not contain as whole words. Sentences with constraints have `constrained_beams`.
                A translator with a selector of its own does not heed `constraints`.

        Returns:
            Translations [B · W, (T)] int32, W consecutive rows for each sentence, best first; and their scores [B, W]
            float32.
        """
        rows = {
            **self.sources(source),
            "alpha": alpha,
            "max_length": max_length,
            "n_best": n_best,
            **self._language(source),
            **inputs,
        }
        beam_size = self.config.beam_size
        if "constraints" not in inputs or beam_size == self.constrained_beams:
            return self._searched(rows, beam_size, self.search_scope)
        # Rows without constraints are searched as if there were no others.
        constrained = tf.reduce_any(inputs["constraints"] != PAD, axis=[1, 2])
        parts = []
        for chosen, beams, scope in (
            (~constrained, beam_size, self.search_scope),
            (constrained, self.constrained_beams, self._read_once()),
        ):
            own = {name: tf.gather(x, tf.where(chosen)[:, 0]) for name, x in rows.items()}
            if beams == beam_size:
                del own["constraints"], own["ordered"]
            parts.append((tf.where(chosen)[:, 0], *self._searched(own, beams, scope)))
        order, sequences, scores = (tf.concat(each, axis=0) for each in zip(*parts, strict=True))
        return _in_order(tf.cast(order, tf.int32), sequences, scores)

    def _read_once(self) -> Callable:
        """Returns a maker of scopes with the weights of `scope`, which are read here: loops that read variables would
        wait for each other.
        """
        if self.int8:
            return self.scope
        values = {id(weight): tf.convert_to_tensor(weight.value) for weight in self.model.weights}
        return lambda: FrozenWeights(values)

    def _searched(self, rows: dict, beams: int, scope: Callable):
        """Searches rows with a number of beams. Returns what `search` does, of the best `beam_size` of each row."""
        beam_size = self.config.beam_size
        fewer, shared = max(beams // MANY_BEAMS, 1) ** 2, beams // beam_size
        ids, lengths, scores, order = in_sub_batches(
            functools.partial(self._search, beam_size=beams, scope=scope),
            rows,
            # Both need memory: a row may ask for a long translation of a short source.
            tf.maximum(tf.cast(rows["source"].row_lengths(), tf.int32), rows["max_length"]),
            max_rows=max(self.limits.rows // (fewer * shared), 1),
            max_tokens=self.limits.tokens // (fewer * shared),
            cores=self.limits.cores,
            outputs=[
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None], tf.int64),
                tf.TensorSpec([None, beam_size], tf.float32),
            ],
        )
        return _in_order(order, tf.RaggedTensor.from_row_lengths(ids, lengths, validate=False), scores)

    def log_probs(self, source: tf.RaggedTensor, target: tf.RaggedTensor) -> tf.RaggedTensor:
        """Computes log P of each sub-word of given translations.

        Args:
            source: [B, (S)] int32; each row ends in EOS.
            target: [B, (T)] int32; each row ends in EOS.

        Returns:
            [B, (T)] float32, in nats.
        """

        def read(rows):
            target = rows["target"].to_tensor(PAD)
            with self.scope():
                logits, _ = self.model.decode(shift_right(target), self.encode(rows))
                _, negative_log_likelihood = cross_entropy(logits, target, 0.0)
            return [-tf.boolean_mask(negative_log_likelihood, target != PAD)]

        length = target.row_lengths()
        log_probs, order = in_sub_batches(
            read,
            {**self.sources(source), "target": target},
            tf.cast(tf.maximum(source.row_lengths(), length), tf.int32),
            max_rows=self.limits.rows,
            max_tokens=self.limits.scored_tokens,
            outputs=[tf.TensorSpec([None], tf.float32)],
        )
        in_order = tf.RaggedTensor.from_row_lengths(log_probs, tf.gather(length, order), validate=False)
        return tf.gather(in_order, tf.math.invert_permutation(order))

    def drawn_texts(self, sequences: tf.RaggedTensor, scores: tf.RaggedTensor, blank, kept=None):
        """Converts results of `draw` to text, as `texts` does.

        Args:
            sequences, scores: the translations.
            blank: [B] boolean, see `texts`.
            kept: [B, N] string, see `texts`.

        Returns:
            {"text": [B, N] string, "score": [B, N] float32}, in the order of the draws; empty and 0 after those of a
            sentence.
        """
        kept = kept if kept is None else tf.gather(kept, scores.value_rowids())
        texts = scores.with_values(self.tokenizer.detokenize(sequences.values, kept)).to_tensor("")
        scores = scores.to_tensor()
        absent = blank[:, None] | ~tf.math.is_finite(scores)
        return {"text": tf.where(absent, "", texts), "score": tf.where(absent, 0.0, scores)}

    def draw(self, source: tf.RaggedTensor, max_length, draws, scope: Callable, **options):
        """Draws translations with options for each sentence; see `sampling`. Each draw is a search of its own.

        Args:
            source: [B, (S)] int32; each row ends in EOS.
            max_length: [B] int32.
            draws: [B] int32, number of translations of each sentence.
            scope: makes the context that the model is called in.
            options: `seed` [B] int64, `temperature` [B] float32, `top_k` [B] int32, `top_p` [B] float32, and inputs of
                the scorers.

        Returns:
            Translations [B, (N), (T)] int32, in the order of their numbers; and log P of each, [B, (N)] float32.
        """
        batch = tf.shape(draws)
        rows = {
            **self.sources(source),
            "max_length": max_length,
            "alpha": tf.zeros(batch),
            "n_best": tf.ones(batch, tf.int32),
        }
        rows |= {**self._language(source), **options}
        rows = sampling.divided(rows, draws)
        ids, lengths, scores, order = in_sub_batches(
            functools.partial(self._search, beam_size=1, scope=scope),
            rows,
            tf.maximum(tf.cast(rows["source"].row_lengths(), tf.int32), rows["max_length"]),
            max_rows=self.limits.rows,
            max_tokens=self.limits.tokens,
            cores=self.limits.cores,
            outputs=[
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None], tf.int64),
                tf.TensorSpec([None, 1], tf.float32),
            ],
        )
        where, number = tf.math.invert_permutation(order), tf.cast(tf.gather(rows["draws"], order), tf.int64)
        sequences = tf.RaggedTensor.from_nested_row_lengths(ids, [number, lengths], validate=False)
        scores = tf.RaggedTensor.from_row_lengths(scores[:, 0], number, validate=False)
        own = tf.cast(draws, tf.int64)
        return tuple(
            tf.RaggedTensor.from_row_lengths(tf.gather(x, where).values, own, validate=False)
            for x in (sequences, scores)
        )

    def _known_scorers(self, inputs: Inputs) -> Iterator[Scorer]:
        if "prefix" in inputs:
            yield Prefix(inputs["prefix"])
        if "avoid" in inputs:
            yield Avoided(inputs["avoid"], inputs["max_length"], self.tokenizer.spelling)
        if self.config.no_repeat_ngram:
            yield NoRepeatedNgrams(self.config.no_repeat_ngram)

    def _known_selector(self, inputs: Inputs) -> Selector:
        if "draws" in inputs:
            return sampling.sampled(inputs)
        selector = _made(self.selector, inputs)
        if selector is BEST and "constraints" in inputs:
            beams = self.constrained_beams
            return Banks(inputs["constraints"], inputs["ordered"], inputs["max_length"], beams, EOS)
        return selector

    def _search(self, rows, *, beam_size: int, scope: Callable):
        """Searches a sub-batch of R rows. Returns the sub-words of all translations in one row, their lengths [R · W]
        and scores [R, W].
        """
        inputs = {name: x.to_tensor(PAD) if isinstance(x, tf.RaggedTensor) else x for name, x in rows.items()}

        def step(tokens, ancestors, position, state):
            memory, before = state
            with scope():
                logits, after = self.model.decode(tokens, memory, state=before, position=position, ancestors=ancestors)
            return logits, (memory, after)

        with scope():
            memory = self.encode(inputs, SOURCE_MULTIPLE)
            if "draws" in inputs:
                memory, inputs = sampling.repeated(memory, inputs)
            state = memory, self.model.initial_state(memory, beam_size)
        number = tf.shape(inputs["source"])[0]
        given = inputs | {"beam_size": beam_size}
        sequences, scores = beam_search(
            step,
            state,
            tf.fill([number], BOS),
            eos_id=EOS,
            beam_size=beam_size,
            max_length=inputs["max_length"],
            alpha=inputs["alpha"],
            n_best=inputs["n_best"],
            scorers=[*self._known_scorers(inputs), *(_made(make, given) for make in self.scorers)],
            selector=self._known_selector(given),
        )
        best = min(beam_size, self.config.beam_size)  # `draw` has one beam.
        sequences = tf.reshape(sequences[:, :best], [number * best, tf.shape(sequences)[2]])
        written = tf.RaggedTensor.from_tensor(sequences, padding=PAD)
        return written.values, written.row_lengths(), scores[:, :best]


def _made(make: Callable, inputs: Inputs) -> Scorer | Selector:
    if (hook := make(inputs)) is None:
        raise ValueError(f"Expected a scorer or a selector from {make!r:.80}. Received: None.")
    return hook


def _in_order(order, sequences: tf.RaggedTensor, scores):
    """Sorts translations, W consecutive rows for each sentence, and their scores [B, W] by the number of the sentence,
    `order` [B] int32.
    """
    where, beam_size = tf.math.invert_permutation(order), scores.shape[1]
    places = tf.reshape(where[:, None] * beam_size + tf.range(beam_size), [-1])
    return tf.gather(sequences, places), tf.gather(scores, where)


def translate_lines(
    translate: Callable, lines: Iterable[str], *, batch_size: int = 64, read_ahead: int = 4096, first: int | None = None
) -> Iterator[dict]:
    """Translates any number of lines, in bounded memory.

    It reads lines ahead and sorts them by length, so that batches need little padding. The results are in the order of
    the lines.

    Args:
        translate: a `Translator`, its `n_best`, or a function that adds other outputs for each line to their results.
        lines: sentences.
        batch_size: number of sentences in a batch.
        read_ahead: number of lines to read ahead.
        first: the number of the first line, if `translate` also takes the numbers of the lines, [B] int64.

    Yields:
        A dictionary for each line: "text" (str, or list of str for `n_best`), "score" (float, or list of float), and
        the other outputs.
    """
    lines, done = iter(lines), 0
    while ahead := [line for _, line in zip(range(read_ahead), lines, strict=False)]:
        order = sorted(range(len(ahead)), key=lambda i: len(ahead[i]))
        results: list = [None] * len(ahead)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            numbers = [] if first is None else [tf.constant([first + done + i for i in chosen], tf.int64)]
            output = translate(tf.constant([ahead[i] for i in chosen]), *numbers)
            texts, rest = (
                output["text"].numpy(),
                {name: values.numpy().tolist() for name, values in output.items() if name != "text"},
            )
            for row, index in enumerate(chosen):
                found = [one_line(text.decode("utf-8", "replace")) for text in np.atleast_1d(texts[row])]
                results[index] = {
                    "text": found if texts.ndim == 2 else found[0],
                    **{name: rest[name][row] for name in rest},
                }
        yield from results
        done += len(ahead)
