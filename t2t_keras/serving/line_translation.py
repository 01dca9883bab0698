"""Translates lines of text with the options of `translate.py`, which workers of Apache Beam share."""

import dataclasses
import functools
import json
import math
import pathlib
import zlib
from collections.abc import Callable, Iterable, Iterator

from t2t_keras.config import RERANK_DIRECTIONS, DecodeConfig, SampleConfig
from t2t_keras.decoding import process_environment
from t2t_keras.runs import checkpoint, export_folder, run_folder
from t2t_keras.system import files
from t2t_keras.text import phrases, piece_file
from t2t_keras.text.lines import is_blank

READ_AHEAD = 4096  # Lines that are sorted by length together.


@dataclasses.dataclass(frozen=True)
class LineTranslation:
    """Options of translating lines. Making one imports no TensorFlow.

    Args:
        model: arguments of `decoding.loading.load`, with a list of folders as `model_dir`; or {"export": folder}.
        n_best: number of translations of a line, with their scores; 0 is the best, as text only.
        sample: options of sampling, in place of a search.
        mbr: "chrf" to choose by minimum Bayes risk, or empty.
        rerank_with: folder of another run, or empty; with `rerank_weight` and `rerank_direction`, see
            `decoding.reranking`.
        jsonl: whether lines are JSON objects.
        terms: file of terms, or empty.
        keep_patterns: see `patterns.parse`.
        batch_size: number of sentences translated at once; 0 chooses it by the cores or the GPU.

    Raises:
        FileNotFoundError: `rerank_with` is not a run.
        ValueError: an option is invalid, or options contradict each other.
    """

    model: dict
    n_best: int = 0
    sample: SampleConfig | None = None
    mbr: str = ""
    rerank_with: str = ""
    rerank_weight: float = 1.0
    rerank_direction: str = RERANK_DIRECTIONS[0]
    jsonl: bool = False
    terms: str = ""
    keep_patterns: str = ""
    batch_size: int = 0

    def __post_init__(self):
        beam_size, groups, reordered, with_phrases = (
            self.search.beam_size,
            self.search.diverse_groups,
            self.reordered,
            self.with_phrases,
        )
        if self.n_best > beam_size:
            raise ValueError(f"Expected `n_best` of at most `beam_size`, {beam_size}. Received: n_best={self.n_best}.")
        if with_phrases and reordered:
            raise ValueError(
                f"Expected {with_phrases} without {reordered}, which may choose translations without a phrase."
            )
        if self.sample and (self.n_best or with_phrases):
            raise ValueError(f"Expected {with_phrases or f'`n_best={self.n_best}`'} without `sample`. Received both.")
        if self.mbr not in ("", "chrf"):
            raise ValueError(f"Expected `mbr` to be chrf, or empty. Received: {self.mbr!r}.")
        if with_phrases and groups > 1:
            raise ValueError(f"Expected one group of beams with {with_phrases}. Received: diverse_groups={groups}.")
        name, candidates = ("draws", self.sample.draws) if self.sample else ("beam_size", beam_size)
        if reordered and candidates == 1:
            raise ValueError(f"Expected a `{name}` of at least 2 with {reordered}. Received: {name}=1.")
        if self.sample and self.mbr and self.rerank_with:
            raise ValueError(f"Expected one of {reordered} with `sample`. Received both.")
        if not self.rerank_weight < math.inf:  # NaN is not, too.
            raise ValueError(f"Expected a finite `rerank_weight`. Received: {self.rerank_weight}.")
        if self.rerank_with:
            if not run_folder.is_run(self.other):
                raise FileNotFoundError(f"Expected the folder of a run as `rerank_with`. Received: {self.rerank_with}.")
            run_folder.groups(self.other, "model")
        phrases.Kept(self.keep_patterns)

    @functools.cached_property
    def search(self) -> DecodeConfig:
        """The options of the search."""
        if "export" in self.model:
            return export_folder.search_of(export_folder.description(self.model["export"]))
        [own] = run_folder.groups(self.model["model_dir"][0], "decode")
        names = {field.name for field in dataclasses.fields(DecodeConfig)}
        return dataclasses.replace(own, **{name: value for name, value in self.model.items() if name in names})

    @property
    def other(self) -> pathlib.Path:
        """The folder of the run that reranks."""
        return pathlib.Path(self.rerank_with).expanduser()

    @property
    def languages_of_other(self) -> dict[str, str]:
        """The languages of the run that reranks, if it is multilingual: those of the model, the other way round for
        `backward`.
        """
        if not _languages(self.other):
            return {}
        own = (
            export_folder.description(self.model["export"])
            if "export" in self.model
            else _languages(self.model["model_dir"][0])
        )
        names = ["source_language", "target_language"]
        chosen = [self.model.get(name) or own.get(name, "") for name in names]
        return dict(zip(names, reversed(chosen) if self.rerank_direction == "backward" else chosen, strict=True))

    @functools.cached_property
    def tags(self) -> list[str]:
        """The tags that source lines of the model may begin with."""
        if "export" in self.model:
            return export_folder.description(self.model["export"]).get("tags", [])
        [data] = run_folder.groups(self.model["model_dir"][0], "data")
        return data.tags

    @property
    def reordered(self) -> str:
        """The options that choose among the translations of a line, for messages."""
        return " and ".join(f"`{name}={value}`" for name in ("mbr", "rerank_with") if (value := getattr(self, name)))

    @property
    def with_phrases(self) -> str:
        """The options that give a line phrases of its own, for messages."""
        return " and ".join(f"`{name}`" for name in ("jsonl", "terms", "keep_patterns") if getattr(self, name))

    def absolute(self) -> "LineTranslation":
        """Returns the same with paths that hold in a process of another folder."""
        folders = {"export": self.model["export"].absolute()} if "export" in self.model else None
        folders = folders or {"model_dir": [folder.absolute() for folder in self.model["model_dir"]]}
        return dataclasses.replace(
            self, model=self.model | folders, rerank_with=str(self.other.absolute()) if self.rerank_with else ""
        )

    def choose_environment(self) -> None:
        """Sets the environment that the model decodes in. TensorFlow must not be imported before."""
        if "export" in self.model:
            process_environment.choose_threads()
        else:
            models = [run_folder.groups(folder, "model")[0] for folder in self.model["model_dir"]]
            process_environment.choose(models, self.model["dtype"], self.model["int8"])

    def identity(self) -> dict:
        """Describes as JSON what the translations depend on: every option by its name, and the weights by their
        hashes.
        """

        def run(folder: pathlib.Path, which: str) -> dict:
            return {
                "weights": checkpoint.identity(folder, which),
                "config": json.loads((folder / run_folder.CONFIG).read_bytes()),
            }

        found = {**dataclasses.asdict(self), "terms": self.read_terms().translations}
        del found["batch_size"]  # A translation does not depend on the other sentences.
        found |= found.pop("model")
        if "export" in self.model:
            export = self.model["export"]
            found["export"] = {
                "description": export_folder.description(export),
                **files.describe(export / export_folder.SAVED_MODEL),
            }
        else:
            found["checkpoint"] = found.pop("which")
            found["model_dir"] = [run(folder, self.model["which"]) for folder in self.model["model_dir"]]
        if self.rerank_with:
            found["rerank_with"] = run(self.other, "average")
        return json.loads(json.dumps(found))

    def read_terms(self) -> phrases.Terms:
        """Reads the file of terms, if there is one. Raises `OSError` or `ValueError` if it cannot be used."""
        from t2t_keras.text import lines

        if not self.terms:
            return phrases.Terms({})
        with lines.opened(self.terms) as file:
            return phrases.Terms.read(lines.read_lines(file), self.terms)

    def load(self, terms: phrases.Terms, by_text: bool = False) -> "LineTranslator":
        """Loads the model; see `LineTranslator`. `terms` are those of `read_terms`, which a worker may not be able to
        read.
        """
        if "export" in self.model:
            from t2t_keras.serving.loaded import LoadedExport

            return LineTranslator(self, terms, LoadedExport(self.model["export"]), by_text)
        from t2t_keras.decoding.loading import load

        return LineTranslator(self, terms, load(**self.model), by_text)


class LineTranslator:
    """Translates lines with a loaded model.

    Args:
        asked: the options.
        terms: translations of terms.
        translator: a `Translator` or a `LoadedExport`.
        by_text: whether samples depend on the text of a line in place of its number.
    """

    def __init__(self, asked: LineTranslation, terms: phrases.Terms, translator, by_text: bool = False):
        from t2t_keras.text.placeholders import find_all

        self.asked, self.terms, self.translator, self.by_text = asked, terms, translator, by_text
        self.kept = phrases.Kept(asked.keep_patterns, find_all)
        self._signatures = translator
        if (asked.with_phrases or asked.sample) and not self._is_export:
            from t2t_keras.serving.signatures import Signatures

            self._signatures = Signatures(translator)
        self._function = translator.n_best if asked.n_best or asked.reordered else translator
        if asked.sample:
            from t2t_keras.serving.requests import sampler

            self._function = sampler(self._signatures, asked.sample)
        if asked.rerank_with:
            from t2t_keras.decoding.loading import load
            from t2t_keras.decoding.reranking import reranked

            other = load(asked.other, dtype=asked.model.get("dtype", "float32"), **asked.languages_of_other)
            alpha = 0.0 if asked.sample else translator.config.alpha
            options = {"weight": asked.rerank_weight, "alpha": alpha, "direction": asked.rerank_direction}
            self._function = reranked(self._function, other, **options)

    @property
    def _is_export(self) -> bool:
        return "export" in self.asked.model

    def results(
        self, texts: Iterable[str], warn: Callable[[str], None], first: int = 1, read_ahead: int = READ_AHEAD
    ) -> Iterator[dict]:
        """Translates lines, in order and in bounded memory.

        Args:
            texts: the lines.
            warn: is called with messages about a line, which begin with its number.
            first: the number of the first line.
            read_ahead: number of lines to read ahead.

        Yields:
            "text", "score" and other outputs for each line; see `decoding.translator.translate_lines`.
        """
        from t2t_keras.decoding.translator import translate_lines

        asked, function = self.asked, self._translated
        if not asked.jsonl:
            texts = _with_tags_checked(texts, asked.tags, warn, first)
        if asked.with_phrases:
            requests = phrases.read_requests(texts, first) if asked.jsonl else map(phrases.Request, texts)
            fits, tags = self._signatures.fits, asked.tags

            def find(text: str) -> list[str]:
                text = phrases.untagged(text, tags)
                return [*self.terms.of(text), *self.kept.of(text)]

            texts = (
                json.dumps(dataclasses.asdict(request))
                for request in phrases.with_constraints(requests, find, warn, fits, first)
            )
            function = self._translated_requests
        results = translate_lines(
            function,
            texts,
            batch_size=asked.batch_size or self.translator.limits.batch_size,
            read_ahead=read_ahead,
            first=first - 1 if asked.sample else None,
        )
        if asked.mbr:
            from t2t_keras.decoding.minimum_bayes_risk import by_mbr

            results = (by_mbr(result, weighted=not asked.sample) for result in results)
        for number, result in enumerate(results, first):
            if result["truncated"]:
                longest = f"`max_input`={self.translator.config.max_input:,} sub-words, end token included"
                warn(f"Line {number}: longer than {longest}. Only the beginning is translated.")
            met = result.get("constraints_met", True)
            if not asked.jsonl and not (met if isinstance(met, bool) else all(met)):
                warn(f"Line {number}: a translation lacks a phrase ({asked.with_phrases}).")
            yield result

    def best(self, texts: Iterable[str], warn: Callable[[str], None]) -> list[str]:
        """Returns the best translation of each line; `warn` is that of `results`."""
        return [self._best(result) for result in self.results(texts, warn)]

    def _best(self, result: dict) -> str:
        return result["text"][0] if self.asked.reordered else result["text"]

    def source_subwords(self, texts: list[str]) -> int:
        """Counts the sub-words of lines, with end tokens; 0 for an export, which does not tell them."""
        if self._is_export or not texts:
            return 0
        sentences = [json.loads(text)["text"] for text in texts] if self.asked.jsonl else texts
        return int(self.translator.source_tokenizer.tokenize(sentences).flat_values.shape[0])

    def _translated(self, text, *number) -> dict:
        if number and self.by_text:
            number = [_hashes(text)]
        return self._function(text, *number)

    def _translated_requests(self, text) -> dict:
        from t2t_keras.serving.requests import translate_requests

        requests = [phrases.Request(**json.loads(line)) for line in text.numpy()]
        return translate_requests(self._signatures, requests, self.asked.n_best)

    def written(self, number: int, result: dict) -> bytes:
        """Returns the lines to write for the result of line `number`."""
        asked = self.asked
        if asked.jsonl:
            answer = {name: value for name, value in result.items() if name != "truncated"}
            return f"{json.dumps(answer, ensure_ascii=False)}\n".encode()
        wanted = (0 if asked.reordered else asked.sample.draws) if asked.sample else asked.n_best
        if not wanted:
            return f"{self._best(result)}\n".encode()
        best = list(zip(result["text"], result["score"], strict=True))[:wanted]
        text_only = asked.sample and asked.sample.draws == 1
        return b"".join(
            (f"{text}\n" if text_only else f"{number}\t{score:.4f}\t{text}\n").encode() for text, score in best
        )


def _with_tags_checked(texts: Iterable[str], tags: list[str], warn: Callable[[str], None], first: int) -> Iterator[str]:
    """Yields lines, and warns of the first one without a tag, if all sentences that the model was trained on had one of
    `tags`.
    """
    begins, warned = tuple(f"{tag} " for tag in tags), not tags or not all(tags)
    for number, text in enumerate(texts, first):
        if not warned and not is_blank(text) and not text.startswith(begins):
            warned = True
            warn(
                f"Line {number}: expected a tag at the beginning, {' or '.join(tags)}, as in the text that the model "
                "was trained on."
            )
        yield text


def _languages(model_dir: pathlib.Path) -> dict[str, str]:
    """Returns the languages of a run by the names of their options; none unless it is multilingual."""
    files = dict(zip(("target_language", "source_language"), run_folder.read_subwords(model_dir), strict=False))
    found = {
        name: piece_file.unpack(content).language
        for name, content in files.items()
        if content.startswith(piece_file.HEAD)
    }
    return {name: language for name, language in found.items() if language is not None}


def _hashes(text):
    """Returns a hash of each line: [B] string → [B] int64, at least 0 and less than 2³²."""
    import tensorflow as tf

    return tf.constant([zlib.crc32(line) for line in text.numpy()], tf.int64)
