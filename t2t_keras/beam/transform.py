"""Translates with Apache Beam in a pipeline of one's own: `Translate`.

The workers load the model by Beam's RunInference, once for each process, and translate chunks of lines as
`translate.py` does.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import time
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.ml.inference.base import ModelHandler, RunInference

from t2t_keras.beam.folder import Chunk
from t2t_keras.config import AVERAGE, SampleConfig
from t2t_keras.serving.line_translation import READ_AHEAD, LineTranslation, LineTranslator
from t2t_keras.serving.saved_export import open_model
from t2t_keras.text.lines import MAX_LINE
from t2t_keras.text.request import KEYS, Request, read_requests
from t2t_keras.text.terminology import Terms


@dataclasses.dataclass(frozen=True)
class Lines:
    """Lines to translate together, with why some cannot be translated (`failures`, by line number), the number of the
    first line, from 1, the chunk that they are from, if from a file, and messages about lines.
    """

    texts: Sequence[str]
    failures: dict[int, str]
    first: int = 1
    chunk: Chunk | None = None
    warnings: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Translated:
    """The results of lines, what is written for each, and messages about them."""

    lines: Lines
    results: Sequence[dict]
    written: Sequence[bytes]
    problems: Sequence[str]


def count(**numbers: int) -> None:
    for name, number in numbers.items():
        Metrics.counter("t2t_keras", name).inc(number)


def failures_of(texts: Sequence[str], sizes: Iterable[int], jsonl: bool, first: int = 1) -> dict[int, str]:
    """Returns by line number why lines cannot be translated, as far as that is seen without a model, from their texts
    and their sizes in bytes. `jsonl` says that lines are JSON objects; the first line has the number `first`.
    """
    failures = {}
    for number, (text, size) in enumerate(zip(texts, sizes, strict=True), first):
        try:
            if size > MAX_LINE:
                raise ValueError(f"Expected lines of at most {MAX_LINE:,} bytes. Received: a longer one.")
            Request(text)
            if jsonl:
                list(read_requests([text], number))
        except ValueError as error:
            failures[number] = str(error)
    return failures


class Handler(ModelHandler):
    """Loads a model and translates chunks of lines with it, for RunInference.

    RunInference shares the model among the threads of a process and has counters of its own. Its handlers for
    TensorFlow stack tensors of one shape and return them without order; this one gives whole chunks to
    `LineTranslator`, which sorts their lines by length.
    """

    def __init__(self, asked: LineTranslation, terms: Terms, by_text: bool = False):
        super().__init__(min_batch_size=1, max_batch_size=1)
        self.asked, self.terms, self.by_text = asked.absolute(), terms, by_text

    def load_model(self) -> LineTranslator:
        self.asked.model.choose_environment()
        return self.asked.load(self.terms, self.by_text)

    def run_inference(self, batch: Sequence[Lines], model: LineTranslator, inference_args=None) -> Iterator[Translated]:
        for lines in batch:
            started, warnings, failures = time.monotonic(), [*lines.warnings], dict(lines.failures)
            texts = [
                _blank(self.asked.jsonl, text) if number in failures else text
                for number, text in enumerate(lines.texts, lines.first)
            ]
            results = list(_results(model, texts, lines.first, warnings, failures))
            count(
                chunks=1,
                lines=len(results),
                subwords=model.source_subwords(texts),
                milliseconds=round(1000 * (time.monotonic() - started)),
                failures=len(failures),
                warnings=len(warnings),
            )
            for number, reason in failures.items():
                results[number - lines.first] |= {"error": reason}
            messages = [(number, f"Line {number}: not translated: {reason}") for number, reason in failures.items()]
            messages += [(int(re.match(r"Line (\d+)", message)[1]), message) for message in warnings]
            written = [model.written(number, result) for number, result in enumerate(results, lines.first)]
            yield Translated(lines, results, written, [message for _, message in sorted(messages)])

    def get_metrics_namespace(self) -> str:
        return "t2t_keras"


def _blank(jsonl: bool, text: str) -> str:
    """Returns what takes the place of a line that cannot be translated. A JSON line keeps the keys for the output."""
    if not jsonl:
        return ""
    with contextlib.suppress(ValueError, RecursionError, AttributeError):
        others = {name: value for name, value in json.loads(text).items() if name not in KEYS}
        line = json.dumps(others | {"text": ""})
        list(read_requests([line]))
        return line
    return json.dumps({"text": ""})


def _results(
    model: LineTranslator, texts: list[str], first: int, warnings: list[str], failures: dict[int, str]
) -> Iterator[dict]:
    """Yields the result of each line. If one makes the search fail, halves of the lines are tried until it is alone; it
    is then a failure.

    If a blank line fails too, then not for the text, and its error is raised.
    """
    own: list[str] = []
    try:
        results = list(model.results(texts, own.append, first))
    except Exception as error:
        if len(texts) > 1:
            half = len(texts) // 2
            yield from _results(model, texts[:half], first, warnings, failures)
            yield from _results(model, texts[half:], first + half, warnings, failures)
            return
        results = list(model.results([_blank(model.asked.jsonl, texts[0])], own.append, first))
        failures[first] = f"{type(error).__name__}: {error}"
    warnings += own
    yield from results


class Translate(beam.PTransform):
    """Translates lines with a run or an export: a PCollection of str → a PCollection of dict.

        lines | t2t_keras.beam.Translate("runs/mine", beam_size=8)

    Args:
        path: folder of a run, or of an export.
        n_best: number of translations of a line; 0 is the best, not in a list.
        sample: options of sampling. The draws of a line depend on its text, because a PCollection has no order.
        checkpoint: weights of the run.
        terms, keep_patterns, jsonl, mbr: see `line_translation.LineTranslation`.
        options: see `decoding.trained_model.TrainedModel.open`; none for an export.

    Each dictionary has "source", the line; "text" and "score", or lists of them for `n_best`, `sample` and `mbr`;
    "truncated", whether only its beginning was translated, except with `jsonl`; with phrases "constraints_met"; and, if
    the line could not be translated, "error".

    Raises:
        FileNotFoundError: a folder is missing.
        ValueError: an option is invalid.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        n_best: int = 0,
        sample: SampleConfig | None = None,
        checkpoint: str | int = "average",
        terms: str = "",
        keep_patterns: str = "",
        jsonl: bool = False,
        mbr: str = "",
        **options,
    ):
        super().__init__()
        folder = pathlib.Path(path).expanduser()
        if checkpoint != AVERAGE:
            options["checkpoint"] = str(checkpoint)
        self.asked = LineTranslation(
            open_model([folder], **options),
            n_best=n_best,
            sample=sample,
            terms=terms,
            keep_patterns=keep_patterns,
            jsonl=jsonl,
            mbr=mbr,
        )
        self.terms = self.asked.read_terms()

    def expand(self, lines):
        asked = self.asked
        return (
            lines
            | "Batch" >> beam.BatchElements(min_batch_size=64, max_batch_size=READ_AHEAD)
            | "Check" >> beam.Map(lambda texts: Lines(texts, failures_of(texts, map(_size, texts), asked.jsonl)))
            | "Translate" >> RunInference(Handler(asked, self.terms, by_text=True))
            | "Results" >> beam.FlatMap(_with_sources)
        )


def _size(text: str) -> int:
    return len(str(text).encode("utf-8", "surrogatepass"))


def _with_sources(translated: Translated) -> Iterator[dict]:
    for source, result in zip(translated.lines.texts, translated.results, strict=True):
        yield {"source": source, **result}
