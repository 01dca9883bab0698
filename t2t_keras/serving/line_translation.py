"""Translates lines of text with the options of `translate.py`, which workers of Apache Beam share."""

import collections
import dataclasses
import functools
import json
import math
import pathlib
import zlib
from collections.abc import Callable, Iterable, Iterator

from t2t_keras.config import RERANK_DIRECTIONS, SampleConfig
from t2t_keras.decoding.trained_model import TrainedModel, languages_of
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving import output
from t2t_keras.serving.saved_export import SavedExport
from t2t_keras.text.kept import Kept
from t2t_keras.text.request import Request, note_others, read_requests, with_phrases
from t2t_keras.text.tags import with_tags_checked
from t2t_keras.text.terminology import Terms, read_terms

READ_AHEAD = 4096  # Lines that are sorted by length together.


@dataclasses.dataclass(frozen=True)
class LineTranslation:
    """Options of translating lines. Making one imports no TensorFlow.

    Args:
        model: the model.
        n_best: number of translations of a line, with their scores; 0 is the best, as text only.
        sample: options of sampling, in place of a search.
        mbr: "chrf" to choose by minimum Bayes risk, or empty.
        rerank_with: folder of another run, or empty; with `rerank_weight` and `rerank_direction`, see
            `decoding.reranking`.
        jsonl: whether lines are JSON objects.
        terms: file of terms, or empty.
        keep_patterns: see `patterns.parse`.
        alignment: whether to align the words; see `requests.pharaoh`.
        word_scores: whether to score the words, with `jsonl`; see `protocol.Translation`.
        batch_size: number of sentences translated at once; 0 chooses it by the cores or the GPU.

    Raises:
        FileNotFoundError: `rerank_with` is not a run.
        ValueError: an option is invalid, or options contradict each other.
    """

    model: TrainedModel | SavedExport
    n_best: int = 0
    sample: SampleConfig | None = None
    mbr: str = ""
    rerank_with: str = ""
    rerank_weight: float = 1.0
    rerank_direction: str = RERANK_DIRECTIONS[0]
    jsonl: bool = False
    terms: str = ""
    keep_patterns: str = ""
    alignment: bool = False
    word_scores: bool = False
    batch_size: int = 0

    def __post_init__(self):
        search, reordered, phrase_options = self.model.search, self.reordered, self.phrase_options
        if self.n_best > search.beam_size:
            raise ValueError(
                f"`n_best` must be at most `beam_size`, {search.beam_size}. Received: n_best={self.n_best}."
            )
        if phrase_options and reordered:
            raise ValueError(
                f"{phrase_options} cannot be combined with {reordered}, which may choose translations without a phrase."
            )
        if self.sample and (self.n_best or phrase_options):
            raise ValueError(f"{phrase_options or f'`n_best={self.n_best}`'} has no effect on `sample`. Leave out one.")
        if self.alignment and (reordered or self.sample):
            raise ValueError(f"`alignment` cannot be combined with {reordered or '`sample`'}.")
        if self.alignment and self.terms and self.model.inline_terms:
            raise ValueError("`alignment` cannot be combined with `terms` of a model that was trained with terms.")
        if self.mbr not in ("", "chrf"):
            raise ValueError(f"`mbr` must be chrf, or empty. Received: {self.mbr!r}.")
        if phrase_options and search.diverse_groups > 1:
            raise ValueError(
                f"{phrase_options} needs one group of beams. Received: diverse_groups={search.diverse_groups}."
            )
        name, candidates = ("draws", self.sample.draws) if self.sample else ("beam_size", search.beam_size)
        if reordered and candidates == 1:
            raise ValueError(f"{reordered} needs a `{name}` of at least 2. Received: {name}=1.")
        if self.sample and self.mbr and self.rerank_with:
            raise ValueError(f"With `sample`, give one of {reordered}.")
        if not self.rerank_weight < math.inf:  # NaN is not, too.
            raise ValueError(f"`rerank_weight` must be finite. Received: {self.rerank_weight}.")
        if self.rerank_with:
            _ = self.other.model
            self.other.check_checkpoint(self.model.checkpoint)
            if self.rerank_direction == "backward" and (tags := self.other_model.needed_tags):
                raise ValueError(
                    "With `rerank_direction=backward`, the run of `rerank_with` reads translations, so it must not "
                    f"need tags. Received: {self.rerank_with}, whose sources begin with {' or '.join(tags[:5])}."
                )
        Kept(self.keep_patterns)

    @functools.cached_property
    def other(self) -> SavedRun:
        """The run that reranks."""
        run = SavedRun.find(pathlib.Path(self.rerank_with).expanduser())
        if run is None:
            raise FileNotFoundError(f"`rerank_with` must be the folder of a run. Received: {self.rerank_with}.")
        return run

    @property
    def other_model(self) -> TrainedModel:
        """The model of the run that reranks, with the checkpoint and the arithmetic of the model."""
        options = self.model.checkpoint, self.model.dtype, self.model.int8
        return TrainedModel((self.other,), self.other.search, *options, **self.languages_of_other)

    @property
    def languages_of_other(self) -> dict[str, str]:
        """The languages of the run that reranks, if it is multilingual: those of the model, the other way round for
        `backward`.
        """
        if not languages_of(self.other):
            return {}
        names = ["source_language", "target_language"]
        languages = [self.model.languages.get(name, "") for name in names]
        return dict(zip(names, reversed(languages) if self.rerank_direction == "backward" else languages, strict=True))

    @property
    def reordered(self) -> str:
        """The options that choose among the translations of a line, for messages."""
        return " and ".join(f"`{name}={value}`" for name in ("mbr", "rerank_with") if (value := getattr(self, name)))

    @property
    def phrase_options(self) -> str:
        """The options that give a line phrases of its own, for messages."""
        return " and ".join(f"`{name}`" for name in ("jsonl", "terms", "keep_patterns") if getattr(self, name))

    @property
    def write(self) -> Callable[[int, dict], str]:
        """The output format: a function from the number and the result of a line to the text that is written."""
        if self.jsonl:
            return output.json_line
        number = self.n_best
        if self.sample and not self.reordered and self.sample.draws > 1:
            number = self.sample.draws
        return functools.partial(output.numbered_lines, most=number) if number else output.text_line

    def absolute(self) -> "LineTranslation":
        """Returns the same with absolute paths, for processes in other folders."""
        rerank_with = str(self.other.folder.absolute()) if self.rerank_with else ""
        return dataclasses.replace(self, model=self.model.absolute(), rerank_with=rerank_with)

    def identity(self) -> dict:
        """Describes as JSON what the translations depend on: every option by its name, and the weights by their
        hashes.
        """
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del options["model"], options["batch_size"]  # A translation does not depend on the other sentences.
        options["sample"] = dataclasses.asdict(self.sample) if self.sample else None
        terms = self.read_terms()
        options["terms"] = {
            term: [translation, *terms.forbidden.get(term, ())] for term, translation in terms.translations.items()
        }
        if self.rerank_with:
            options["rerank_with"] = self.other.identity(self.model.checkpoint)
        return json.loads(json.dumps(options | self.model.identity()))

    def read_terms(self) -> Terms:
        """Reads the file of terms, if there is one. Raises `OSError` or `ValueError` if it cannot be used."""
        return read_terms(self.terms)

    def load(self, terms: Terms, by_text: bool = False) -> "LineTranslator":
        """Loads the model; see `LineTranslator`. `terms` are those of `read_terms`, which a worker may not be able to
        read.
        """
        from t2t_keras.serving.loaded import load

        return LineTranslator(self, terms, load(self.model), by_text)


class LineTranslator:
    """Translates lines with a model of `loaded.load`; `by_text` says whether samples depend on the text of a line in
    place of its number.
    """

    def __init__(self, asked: LineTranslation, terms: Terms, model, by_text: bool = False):
        self.asked, self.terms, self.model, self.by_text = asked, terms, model, by_text
        self.patterns = Kept(asked.keep_patterns)
        self.copied = copied_by(asked.model.pattern)
        self._function = model.n_best if asked.n_best or asked.reordered else model
        if asked.sample:
            from t2t_keras.serving.requests import sampler

            self._function = sampler(model, asked.sample)
        if asked.rerank_with:
            from t2t_keras.decoding.reranking import reranked

            other = asked.other_model
            alpha = 0.0 if asked.sample else model.config.alpha
            options = {"weight": asked.rerank_weight, "alpha": alpha, "direction": asked.rerank_direction}
            options["unknown_tags"] = [tag for tag in asked.model.tags if tag and tag not in other.tags]
            self._function = reranked(self._function, other.load(), **options)

    def results(
        self, texts: Iterable[str], warn: Callable[[str], None], first: int = 1, read_ahead: int = READ_AHEAD
    ) -> Iterator[dict]:
        """Translates lines, in order and in bounded memory, and yields "text", "score" and other outputs for each; see
        `decoding.translator.translate_lines`. `warn` is called with messages about a line, which begin with its number;
        `first` is that of the first line.
        """
        from t2t_keras.decoding.translator import translate_lines

        asked, others = self.asked, collections.deque()
        batch_size = asked.batch_size or self.model.limits.batch_size
        if asked.phrase_options or asked.alignment:
            function, texts = self._translated_requests, self._requests(texts, others, warn, first)
        else:
            function, texts = self._translated, with_tags_checked(texts, asked.model.tags, warn, first)
        if asked.alignment:
            from t2t_keras.serving.signatures import MAX_ALIGNED, MAX_ALIGNMENTS

            most = MAX_ALIGNMENTS // (asked.model.search.beam_size * 2 * MAX_ALIGNED * MAX_ALIGNED)
            batch_size = max(min(batch_size, most), 1)
        drawn_from = first - 1 if asked.sample else None
        results = translate_lines(function, texts, batch_size=batch_size, read_ahead=read_ahead, first=drawn_from)
        if asked.mbr:
            from t2t_keras.decoding.minimum_bayes_risk import by_mbr

            results = (by_mbr(result, weighted=not asked.sample) for result in results)
        for number, result in enumerate(results, first):
            if asked.alignment:
                result["alignment"] = _decoded(result["alignment"])
            for problem in self._problems(result):
                warn(f"Line {number}: {problem}")
            yield (others.popleft() if others else {}) | self._shown(result)

    def _requests(
        self, texts: Iterable[str], others: collections.deque, warn: Callable[[str], None], first: int
    ) -> Iterator[str]:
        """Yields the requests of lines, with their phrases, as JSON; `others` gets the other keys of each line."""
        asked = self.asked
        requests = read_requests(texts, first) if asked.jsonl else map(Request, texts)
        requests = note_others(requests, others)
        requests = with_tags_checked(requests, asked.model.tags, warn, first, lambda request: request.text)
        options = self.model.fits, asked.model.tags, first, asked.model.inline_terms, self.model.reads, self.copied
        requests = with_phrases(requests, self.terms, self.patterns, warn, *options)
        return (json.dumps(dataclasses.asdict(request)) for request in requests)

    def _problems(self, result: dict) -> Iterator[str]:
        """Yields what a user should know of the result of a line. With `jsonl`, the line itself tells the rest."""
        asked = self.asked
        if result["truncated"]:
            longest = f"`max_input`={self.model.config.max_input:,} sub-words, end token included"
            yield f"longer than {longest}. Only the beginning is translated."
        if result.get("unranked"):
            yield (
                f"not reranked. It or a translation is longer than `max_input` of `rerank_with={asked.rerank_with}`, "
                f"{asked.other.search.max_input:,} sub-words."
            )
        met = result.get("constraints_met", True)
        if not asked.jsonl and not (met if isinstance(met, bool) else all(met)):
            yield f"a translation lacks a phrase ({asked.phrase_options})."
        if asked.terms and not asked.jsonl and output.is_doubtful(result):
            yield "doubtful: its terms make another word very unlikely. Check it."
        aligned = result.get("alignment", "")
        if asked.alignment and output.best(result) and not (aligned if isinstance(aligned, str) else aligned[0]):
            from t2t_keras.serving.signatures import MAX_ALIGNED

            yield (
                f"no alignment: the source has more than {MAX_ALIGNED} sub-words, or its sub-words do not spell the "
                "words of the text."
            )

    def _shown(self, result: dict) -> dict:
        """Returns the outputs of a line from the result of the model."""
        asked = self.asked
        left_out = {"unranked", "word_scores", *(() if asked.terms else ["doubtful"])}
        if asked.jsonl:
            left_out.add("truncated")  # A line may have a key of this name.
        shown = {name: value for name, value in result.items() if name not in left_out}
        if scores := result.get("word_scores"):
            rows = list(map(json.loads, scores if asked.n_best else [scores]))
            shown |= {name: [row[name] for row in rows] for name in rows[0]} if asked.n_best else rows[0]
        return output.merged(shown) if asked.n_best else shown

    def best(self, texts: Iterable[str], warn: Callable[[str], None]) -> list[str]:
        """Returns the best translation of each line; `warn` is that of `results`."""
        return [output.best(result) for result in self.results(texts, warn)]

    def source_subwords(self, texts: list[str]) -> int:
        """Counts the sub-words of lines, with end tokens; 0 for an export, which does not tell them."""
        return self.model.source_subwords([json.loads(text)["text"] for text in texts] if self.asked.jsonl else texts)

    def _translated(self, text, *number) -> dict:
        if number and self.by_text:
            number = [_hashes(text)]
        return self._function(text, *number)

    def _translated_requests(self, text) -> dict:
        from t2t_keras.serving.requests import translate_requests

        requests = [Request.from_json(line) for line in text.numpy()]
        return translate_requests(self.model, requests, self.asked.n_best, self.asked.alignment, self.asked.word_scores)

    def written(self, number: int, result: dict) -> bytes:
        """Returns the lines to write for the result of line `number`."""
        return self.asked.write(number, result).encode()


def _decoded(texts: bytes | list[bytes]) -> str | list[str]:
    return texts.decode() if isinstance(texts, bytes) else [text.decode() for text in texts]


def copied_by(pattern: str) -> Kept:
    """Returns what a model copies whose sub-words have placeholders for a pattern. Imports TensorFlow only where there
    is one.
    """
    if not pattern:
        return Kept("")
    from t2t_keras.text.placeholders import find_all

    return Kept("", find_all, pattern)


def _hashes(text):
    """Returns a hash of each line: [B] string → [B] int64, at least 0 and less than 2³²."""
    import tensorflow as tf

    return tf.constant([zlib.crc32(line) for line in text.numpy()], tf.int64)
