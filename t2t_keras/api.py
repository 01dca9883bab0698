"""The Python API: `load` a trained model to translate with, or `train` one."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.config import AVERAGE, MAX_ALPHA, SampleConfig, check_names
from t2t_keras.decoding import loading, sampling
from t2t_keras.decoding.search_hooks import Scorer, Selector
from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.decoding.translator import Translator, translate_lines
from t2t_keras.runs import registry, run_options
from t2t_keras.runs.checkpoint import BEST, STEP, kept
from t2t_keras.runs.run_start import Start
from t2t_keras.serving import loaded as loaded_models
from t2t_keras.serving import saved_export
from t2t_keras.serving.line_translation import copied_by
from t2t_keras.serving.protocol import OWN_ALPHA, Translation, as_line, merged
from t2t_keras.serving.requests import check, checked, option_inputs, sample_inputs, translate_with_terms
from t2t_keras.system.files import CONFIG
from t2t_keras.system.log import logger
from t2t_keras.system.native_messages import without_noise, without_remarks
from t2t_keras.system.tensorflow import without_retracing_warnings
from t2t_keras.text import piece_file
from t2t_keras.text.kept import Kept
from t2t_keras.text.lines import one_line
from t2t_keras.text.placeholders import find_all
from t2t_keras.text.request import Request, check_unicode, with_phrases
from t2t_keras.text.tags import with_tags_checked
from t2t_keras.text.terminology import Terms, read_terms

Text = str | Sequence[str]
Phrases = Sequence[str] | Sequence[Sequence[str]]  # Of a sentence, or of each sentence of a list.


class TextTranslator:
    """Translates text with the model of a run or of an exported SavedModel; see `load`. A fork of the process that
    loaded it raises `RuntimeError`.

    Args:
        model: a loaded model; see `serving.loaded.load`.
        batch_size: number of sentences to translate at once, unless a call says otherwise.
        languages: the codes of the languages of a multilingual model; otherwise empty.
        tags: tags that a source may begin with.
        inline_terms: whether the model was trained on text with terms.
        pattern: the regular expression of text that the model copies.
    """

    def __init__(
        self,
        model,
        batch_size: int = 64,
        languages: Sequence[str] = (),
        tags: Sequence[str] = (),
        inline_terms: bool = False,
        pattern: str = "",
    ):
        self._model, self._batch_size, self._languages, self._tags = model, batch_size, languages, tags
        self._inline_terms, self._copied = inline_terms, copied_by(pattern)
        self._process = os.getpid()

    def __reduce__(self):
        raise TypeError("A loaded model cannot be copied or pickled. Load it again where it is needed.")

    @without_retracing_warnings()
    def translate(
        self, text: Text, batch_size: int = 0, *, source_language: str = "", target_language: str = ""
    ) -> str | list[str]:
        """Translates a sentence or a list of sentences.

        If a sentence has more sub-words than `max_input` of `DecodeConfig`, only its beginning is translated, with a
        warning.

        Args:
            text: a sentence, or a list of sentences. A line break within a sentence counts as a space.
            batch_size: number of sentences translated at once; 0 chooses it by the cores or the GPU, and is 64 for an
                export.
            source_language, target_language: codes of a multilingual model; empty for those that it was loaded with.

        Returns:
            The best translation, or a list of the best translations.

        Raises:
            TypeError: `text` is neither a string nor a sequence of strings.
            ValueError: a sentence has half of a surrogate pair, `batch_size` is invalid, or the model has no such
                language.
        """
        texts = self._in_language(self._sources(text), source_language)
        [prefix] = self._in_language([""], target_language)

        def into_language(lines) -> dict:
            found = checked(self._model.translate_with_options(**option_inputs(lines, prefix=prefix)), lines)
            return {"text": found["text"][:, 0], "truncated": found["truncated"]}

        function = into_language if prefix else self._model
        results = list(translate_lines(function, texts, batch_size=_size(batch_size, self._batch_size)))
        _warn_of_truncated([result["truncated"] for result in results], 0)
        found = [result["text"] for result in results]
        return found[0] if isinstance(text, str) else found

    def _sources(self, text: Text) -> list[str]:
        """Returns sentences as a list of lines; see `_listed`. Warns of those without a tag that the model knows.

        Raises `RuntimeError` in a process that was forked after the model was loaded, where TensorFlow would hang.
        """
        if self._process != os.getpid():
            raise RuntimeError("The model was loaded in another process, of which this one is a fork. Load it here.")
        return list(with_tags_checked(_listed(text), self._tags, logger.warning, unit="Sentence"))

    def _in_language(self, texts: list[str], language: str) -> list[str]:
        """Begins sentences with the tag of a language, if one is given; those that begin with a tag keep theirs."""
        if not language:
            return texts
        if not self._languages:
            raise ValueError(
                f"Expected a multilingual model for the language {language!r:.80}. Received: a model without languages."
            )
        piece_file.check_language(language, self._languages)
        begin = piece_file.tag_of(language)
        return [
            text if (tag := piece_file.TAG.match(text)) and tag[1] in self._languages else begin + text
            for text in texts
        ]

    @without_retracing_warnings()
    def n_best(
        self,
        text: Text,
        n: int | None = None,
        *,
        alpha: float | None = None,
        prefix: str = "",
        alignment: bool = False,
        word_scores: bool = False,
        constraints: Phrases = (),
        avoid: Phrases = (),
        ordered: bool = False,
        keep_patterns: str = "",
        terms: Mapping[str, str | Sequence[str]] | str | os.PathLike = "",
        source_language: str = "",
        target_language: str = "",
        batch_size: int = 0,
    ) -> list[Translation] | list[list[Translation]]:
        """Finds the n best translations of a sentence or of each sentence of a list.

        Args:
            text: a sentence, or a list of sentences.
            n: number of translations, at most the model's beam size; by default 4, or the beam size if it is smaller.
                There are fewer if some have the same text.
            alpha: exponent of the length penalty, 0 to 10; `None` is the model's.
            prefix: text that every translation begins with.
            alignment: whether to return sub-words and alignments, of sentences of at most 256 sub-words.
            word_scores: whether to return log P of each word and sub-word.
            constraints: phrases that each translation must contain; for a list of sentences, such a list for each. A
                phrase that is given twice must appear twice. One that begins with ￭ follows other text without a space.
            avoid: likewise, phrases that it must not contain as whole words.
            ordered: whether the constraints must appear in their order.
            keep_patterns: what the translations must copy from their source, see `patterns.parse`: further constraints.
                Text that is too long for a constraint is left out, with a warning.
            terms: a mapping of each term to its translation, or to a list of the translation and forbidden forms; or a
                file of terms. Where a term is in the source, its translation replaces what the model would write.
            source_language, target_language: as in `translate`.
            batch_size: number of sentences translated at once; 0 is 32.

        Returns:
            The translations, best first; for a list of sentences a list of such lists.

        Raises:
            TypeError: `text` is neither a string nor a sequence of strings, or an option has another type.
            ValueError: an option is invalid, or a sentence is too long.
        """
        if not isinstance(ordered, bool | np.bool_):
            raise TypeError(f"`ordered` must be true or false. Received: ordered={ordered!r:.80}.")
        texts, found, ordered = self._sources(text), [], bool(ordered)
        number = None if isinstance(text, str) else len(texts)
        rows = zip(texts, _phrases(number, constraints, "constraints"), _phrases(number, avoid, "avoid"), strict=True)
        requests = with_phrases(
            (Request(*row, ordered) for row in rows),
            _terms(terms),
            Kept(keep_patterns, find_all),
            logger.warning,
            lambda phrase, line: self._model.fits(phrase, line),
            self._tags,
            inline=self._inline_terms,
            reads=lambda line: self._model.reads(*self._in_language([line], source_language)),
            copied=self._copied,
        )
        requests = list(requests)
        if n is None:
            n = min(4, self._model.config.beam_size)
        if not isinstance(n, int | np.integer) or isinstance(n, bool):
            raise TypeError(f"`n` must be an int. Received: n={n!r}.")
        if not isinstance(prefix, str):
            raise TypeError(f"`prefix` must be one text for all sentences. Received: prefix={prefix!r:.80}.")
        n, [prefix] = int(n), _listed(prefix)  # The signature takes no int64.
        if alpha is not None and alpha < 0:  # The signature takes -1 for the model's.
            raise ValueError(f"Expected `alpha` of 0 to {MAX_ALPHA:g}, or None for the model's. Received: {alpha}.")
        texts, [prefix] = self._in_language(texts, source_language), self._in_language([prefix], target_language)
        alpha = OWN_ALPHA if alpha is None else float(alpha)
        annotated = self._in_language([request.annotated or request.text for request in requests], source_language)
        requests = [
            dataclasses.replace(request, text=line, annotated=request.annotated and with_terms)
            for request, line, with_terms in zip(requests, texts, annotated, strict=True)
        ]
        size = _size(batch_size, 32)
        options = {"alpha": alpha, "prefix": prefix, "alignment": alignment, "word_scores": word_scores}
        for first in range(0, len(texts), size):
            chosen = requests[first : first + size]
            found += map(merged, translate_with_terms(self._model, chosen, n, **options))
            _warn_of_truncated([each[0].truncated for each in found[first:]], first)
        return found[0] if isinstance(text, str) else found

    @without_retracing_warnings()
    def sample(
        self, text: Text, *, seeds: Sequence[int] = (), batch_size: int = 0, **options
    ) -> list[Translation] | list[list[Translation]]:
        """Draws translations at random, with the probabilities of the model.

        Args:
            text: a sentence, or a list of sentences.
            seeds: a seed for each sentence, in place of those made of `seed` and the place in the list.
            batch_size: number of sentences translated at once; 0 chooses it by the cores or the GPU, and is 64 for an
                export.
            options: fields of `SampleConfig`: `draws`, `seed`, `temperature`, `top_k` and `top_p`.

        Returns:
            The draws, whose scores are log P; for a list of sentences a list of such lists.

        Raises:
            TypeError: `text` is neither a string nor a sequence of strings, or an option is unknown.
            ValueError: an option is invalid, or there is not one seed for each sentence.
        """
        check_names(options, [field.name for field in dataclasses.fields(SampleConfig)])
        texts, config = self._sources(text), SampleConfig(**options)
        size, found = _size(batch_size, self._batch_size), []
        own = list(seeds) or [sampling.seed_of_line(config.seed, number) for number in range(len(texts))]
        if len(own) != len(texts):
            raise ValueError(
                f"Expected a seed for each sentence. Received: {len(own)} seeds and {len(texts)} sentences."
            )
        for first in range(0, len(texts), size):
            chosen, seed = texts[first : first + size], tf.constant(own[first : first + size], tf.int64)
            outputs = self._model.sample(**sample_inputs(tf.constant(chosen), seed, config))
            check(outputs, chosen)
            outputs = {name: value.numpy() for name, value in outputs.items()}
            _warn_of_truncated(outputs["truncated"], first)
            for *drawn, cut in zip(*(outputs[name].tolist() for name in ("text", "score", "truncated")), strict=True):
                decoded = [(as_line(each), score) for each, score in zip(*drawn, strict=True)]
                found.append([Translation(*each, truncated=cut) for each in decoded])
        return found[0] if isinstance(text, str) else found

    @without_retracing_warnings()
    def score(
        self, source: Text, target: Text, batch_size: int = 0, *, source_language: str = "", target_language: str = ""
    ) -> float | list[float]:
        """Computes log P(target | source), in nats, including the end token.

        Args:
            source: a sentence, or a list of sentences.
            target: its translation, or a list of translations.
            batch_size: number of pairs scored at once; 0 is 32.
            source_language, target_language: as in `translate`. The sub-word of the target's language counts too.

        Returns:
            The log probability, or a list of log probabilities.

        Raises:
            TypeError: `source` or `target` is neither a string nor a sequence of strings.
            ValueError: the numbers of sentences differ, or the model has no such language.
        """
        sources = self._in_language(self._sources(source), source_language)
        targets = self._in_language(_listed(target), target_language)
        if isinstance(source, str) != isinstance(target, str) or len(sources) != len(targets):
            of_source, of_target = (
                "a sentence" if isinstance(text, str) else f"a list of {len(texts)}"
                for text, texts in ((source, sources), (target, targets))
            )
            raise ValueError(
                "Expected a sentence as source and one as target, or two lists of the same length. Received: "
                f"{of_source} as source, {of_target} as target."
            )
        size, found = _size(batch_size, 32), []
        for first in range(0, len(sources), size):
            chosen = slice(first, first + size)
            outputs = self._model.score(source=tf.constant(sources[chosen]), target=tf.constant(targets[chosen]))
            _warn_of_truncated(outputs["truncated"], first)
            found += outputs["log_prob"].numpy().tolist()
        return found[0] if isinstance(source, str) else found


def _phrases(number: int | None, phrases: Phrases, name: str) -> list[Sequence[str]]:
    """Returns the phrases of each sentence of a list, whose number is given, or of a single sentence. Raises
    `ValueError` if they are not one list of phrases for each sentence of the list.
    """
    if number is None:
        return [phrases]
    rows = list(phrases or [()] * number)
    if isinstance(phrases, str) or len(rows) != number:
        raise ValueError(
            f"{name}: expected a list of phrases for each of {number} sentences. Received: {phrases!r:.80}."
        )
    return rows


def _terms(terms: Mapping[str, str | Sequence[str]] | str | os.PathLike) -> Terms:
    """Returns the terms of a mapping or of a file."""
    if isinstance(terms, str | os.PathLike):
        return read_terms(os.fspath(terms))
    entries = {term: [entry] if isinstance(entry, str) else list(entry) for term, entry in terms.items()}
    if wrong := [term for term, entry in entries.items() if not entry]:
        raise ValueError(f"terms: expected a translation for each term. Received: none for {wrong[0]!r:.80}.")
    forms = {term: entry[1:] for term, entry in entries.items()}
    return Terms({term: entry[0] for term, entry in entries.items()}, forms)


def _listed(text: Text) -> list[str]:
    """Returns a sentence or a sequence of sentences as a list of lines. Raises `TypeError` for anything else, and
    `ValueError` if a sentence has half of a surrogate pair.
    """
    texts = [text] if isinstance(text, str | bytes) or not isinstance(text, Iterable) else list(text)
    if wrong := [each for each in texts if not isinstance(each, str)]:
        raise TypeError(f"Expected a sentence or a list of sentences. Received: {type(wrong[0]).__name__}.")
    for each in texts:
        check_unicode(each)
    return list(map(one_line, texts))


def _size(batch_size: int, chosen: int) -> int:
    """Returns a batch size, or the `chosen` one for 0. Raises `ValueError` for an invalid one."""
    if not isinstance(batch_size, int | np.integer) or batch_size < 0:
        raise ValueError(
            f"Expected `batch_size` to be a whole number, 0 or more; 0 means {chosen}. Received: {batch_size!r}."
        )
    return int(batch_size) or chosen


def _warn_of_truncated(truncated: Sequence[bool], first: int) -> None:
    """Warns of the sentences that were too long, of those that follow the first `first`."""
    if numbers := [str(first + row + 1) for row in np.flatnonzero(truncated)]:
        logger.warning(
            f"Sentence {', '.join(numbers)}: truncated to the limits of the model (`max_input`, `extra_length`)."
        )


def load(
    path: str | os.PathLike | Sequence[str | os.PathLike],
    checkpoint: str | int = "average",
    *,
    scorers: Sequence[Callable[[dict], Scorer]] = (),
    selector: Callable[[dict], Selector] | None = None,
    **options,
) -> TextTranslator:
    """Loads the model of a run or of an export, or those of several runs, which translate together.

    Args:
        path: folder of a run; or `export_dir` of an export, whose newest version is loaded; or one version in it. An
            export can run any code: load only exports that you trust. Or a list of folders of runs that write the same
            sub-words: an ensemble, whose prediction at each step is the mean of theirs.
        checkpoint: weights of a run: "average", "best", "latest", "ema" or the number of an update.
        scorers: for a run, functions that make scorers of the search, each from the inputs of some sentences, among
            them "source" [R, S], "alpha", "max_length" and "n_best" [R], and "beam_size", a number.
        selector: for a run, the function that makes the selector of the search, likewise.
        options: for a run, `dtype` ("float32" or "bfloat16"), `int8`, and fields of `DecodeConfig` such as `beam_size`;
            for several, also `ensemble_weights`, a positive number for each, and `ensemble_mean`, "probabilities" or
            "logs"; for a multilingual model, `source_language` and `target_language`.

    Raises:
        FileNotFoundError: a folder has no trained model.
        TypeError: an option is unknown.
        ValueError: a model is damaged, an option is invalid, a folder holds a run and an export, or runs have different
            sub-words.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not all(map(os.fspath, paths)):
        raise ValueError("Expected the folder of a run or of an export. Received: an empty path.")
    folders = [pathlib.Path(path).expanduser() for path in paths]
    chosen = {"checkpoint": str(checkpoint)} if checkpoint != AVERAGE else {}
    model = saved_export.open_model(folders, **chosen, **_plain(options))
    return of_model(model, scorers=scorers, selector=selector)


def _plain(options: dict) -> dict:
    """Returns options with Python's numbers and text in place of NumPy's numbers and arrays and of paths."""
    arrays = np.generic, np.ndarray
    plain = {name: value.tolist() if isinstance(value, arrays) else value for name, value in options.items()}
    return {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in plain.items()}


@without_remarks()
def of_model(model: TrainedModel | saved_export.SavedExport, **hooks) -> TextTranslator:
    """Loads an opened model, with the `scorers` and `selector` of `hooks`; see `load`."""
    with without_noise():
        loaded = loaded_models.load(model, **hooks)
    facts = model.tags, model.inline_terms, model.pattern
    return TextTranslator(loaded, loaded.limits.batch_size, loaded.languages, *facts)


@dataclasses.dataclass(frozen=True)
class Run:
    """A training run in its folder.

    Args:
        model_dir: the run's folder.
    """

    model_dir: pathlib.Path
    # What `evaluate` has loaded: by checkpoint, the files it was loaded from and the translator.
    _loaded: dict[str, tuple[list, Translator]] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self):
        object.__setattr__(self, "model_dir", pathlib.Path(self.model_dir).expanduser())

    def load(
        self,
        checkpoint: str | int = "average",
        *,
        scorers: Sequence[Callable[[dict], Scorer]] = (),
        selector: Callable[[dict], Selector] | None = None,
        **options,
    ) -> TextTranslator:
        """Loads the trained model; see `t2t_keras.load`. It never loads an export."""
        model = TrainedModel.open(self.model_dir, str(checkpoint), **_plain(options))
        return of_model(model, scorers=scorers, selector=selector)

    @without_retracing_warnings()
    def evaluate(
        self,
        source: Text,
        *references: Text,
        checkpoint: str | int = "average",
        lowercase: bool = False,
        tokenize: str = "13a",
    ) -> dict:
        """Translates sentences and scores the translations.

        The model stays in memory for further calls, until the run has new checkpoints.

        Args:
            source: a sentence, or a list of sentences.
            references: their reference translations; one list or several.
            checkpoint: "average", "best", "latest", "ema" or the number of an update.
            lowercase: whether BLEU and chrF ignore case.
            tokenize: sacreBLEU's tokenizer.

        Returns:
            Scores by name; see `evaluation.evaluate.evaluate`.
        """
        from t2t_keras.evaluation.evaluate import evaluate

        tags = TrainedModel.open(self.model_dir, str(checkpoint)).tags
        sources = list(with_tags_checked(_listed(source), tags, logger.warning, unit="Sentence"))
        texts = (sources, *map(_listed, references))
        return evaluate(self._translator(str(checkpoint)), *texts, lowercase=lowercase, tokenize=tokenize)[1]

    def _translator(self, checkpoint: str) -> Translator:
        """Loads a translator, or returns the one loaded before if its files have not changed."""
        paths = [self.model_dir / CONFIG, *(path for kind in (STEP, BEST) for path in kept(self.model_dir, kind))]
        files = [(path.name, path.stat().st_mtime_ns) for path in paths if path.exists()]
        if checkpoint not in self._loaded or self._loaded[checkpoint][0] != files:
            with without_noise():
                self._loaded[checkpoint] = files, loading.load(self.model_dir, checkpoint)
        return self._loaded[checkpoint][1]

    @without_remarks()
    def export(self, export_dir: str | os.PathLike, checkpoint: str | int = "average", **options) -> pathlib.Path:
        """Exports the trained model as a SavedModel for TensorFlow Serving.

        Args:
            export_dir: folder of the model's versions, to which the next version is added.
            checkpoint, options: see `t2t_keras.load`.

        Returns:
            The folder of the new version.
        """
        from t2t_keras.serving.savedmodel import export_run

        model = TrainedModel.open(self.model_dir, str(checkpoint), **_plain(options))
        with without_noise():
            return export_run(pathlib.Path(export_dir).expanduser(), model)


@without_remarks()
def train(model_dir: str | os.PathLike, *, data_dir: str | os.PathLike = "", cpu_devices: int = 1, **options) -> Run:
    """Trains a model, or resumes the run in a folder, on all GPUs of this machine or on its CPU. It seeds the random
    numbers of the process, those of Python, NumPy and TensorFlow, with `seed`, and `deterministic` stays on in it.

    Args:
        model_dir: the run's folder. An existing run is resumed with its own options, except for those given here.
        data_dir: folder of prepared data, or where to prepare it; empty: the run's, or `data` in `model_dir`.
        cpu_devices: number of virtual CPU devices to train on without a GPU. More than one must be set before
            TensorFlow is first used.
        options: `architecture`, the fields of its options (`ModelConfig` for the Transformer), and those of
            `TrainConfig`, `DecodeConfig` and `DataConfig`. They are also the flags of `tools/train.py`.

    Returns:
        The run.

    Raises:
        TypeError: an option is unknown.
        FileNotFoundError, ValueError: the corpus or an option cannot be used.
        BlockingIOError: another process trains in `model_dir`.
        training.interruption.StoppedError: the run was stopped early and has saved its state.
    """
    from t2t_keras.training import devices, run

    named = options.get(run_options.ARCHITECTURE, run_options.TRANSFORMER)
    known = run_options.option_names(named) | {run_options.ARCHITECTURE}
    if options.keys() - known:  # Those of other architectures, whose plugins are imported, may be of the run.
        check_names(options, known.union(*map(run_options.option_names, registry.architectures())))
    if not os.fspath(model_dir):
        raise ValueError("Expected the folder of a run as `model_dir`. Received: an empty path.")
    folder, options = pathlib.Path(model_dir).expanduser(), _plain(options)
    if "parent_checkpoint" in options:  # As in `load`, the number of an update may be a number.
        options["parent_checkpoint"] = str(options["parent_checkpoint"])
    start = Start.open(folder, options, os.path.expanduser(data_dir))
    with without_noise():
        strategy = devices.make_strategy(cpu_devices, start.options.train)
    run.train(start, strategy=strategy, quiet=without_noise)
    return Run(folder)
