"""The models of a server by the languages that they translate between. They are loaded when a request needs them."""

import contextlib
import dataclasses
import functools
import itertools
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.serving import terms
from t2t_keras.serving.batching import Batcher, BusyError
from t2t_keras.serving.client import Predict
from t2t_keras.serving.line_translation import copied_by
from t2t_keras.serving.protocol import Translation, options_for
from t2t_keras.serving.saved_export import SavedExport
from t2t_keras.system import machine
from t2t_keras.system.native_messages import without_noise
from t2t_keras.text import piece_file
from t2t_keras.text.kept import Kept
from t2t_keras.text.phrases import JOINER, MAX_SUBWORDS
from t2t_keras.text.request import Request, with_phrases
from t2t_keras.text.terminology import Terms

Pair = tuple[str, str]  # The codes of the source's and of the target's language.
WARM_UP_WORDS = (1, 20)
MAX_LANGUAGES = 500  # Of a model that is served in all its pairs.


@dataclasses.dataclass(frozen=True, eq=False)
class ServedModel:
    """A model that is not loaded yet.

    Args:
        name: what people call it.
        beginnings: by pair, with what its sources and its translations begin, such as the tags of the languages.
        load: loads it.
        workers: number of batches that it translates at the same time.
        inline_terms: whether it was trained on text with terms.
        pattern: the regular expression of text that it copies.
    """

    name: str
    beginnings: dict[Pair, tuple[str, str]]
    load: Callable[[], Predict]
    workers: int = 1
    inline_terms: bool = False
    pattern: str = ""


def local(
    name: str, model: TrainedModel | SavedExport, source: str = "", target: str = "", unknown: Pair = ("", "")
) -> ServedModel:
    """Returns a model of this machine. Does not import TensorFlow.

    Args:
        name: what people call it.
        model: the model.
        source, target: the codes of its languages; empty for those that it knows. Of several languages, and of several
            tags of languages, they choose one.
        unknown: what to call its languages if it does not know them.

    Raises:
        ValueError: it does not know its languages and `unknown` is not given, or it lacks those that are given.
    """

    def load() -> Predict:
        with without_noise():
            from t2t_keras.serving.loaded import load
            from t2t_keras.serving.requests import predictor

            return predictor(load(model))

    # A run divides a batch among the cores; an export does not.
    workers = machine.cores() if isinstance(model, SavedExport) else 1
    beginnings = _beginnings(name, model, source, target, unknown)
    return ServedModel(name, beginnings, load, workers, model.inline_terms, model.pattern)


def _beginnings(
    name: str, model: TrainedModel | SavedExport, source: str, target: str, unknown: Pair
) -> dict[Pair, tuple[str, str]]:
    if languages := model.codes:
        for language in filter(None, (source, target)):
            piece_file.check_language(language, languages)
        if len(languages) > MAX_LANGUAGES and not (source or target):
            raise ValueError(
                f"{name} has {len(languages):,} languages, more than {MAX_LANGUAGES}. Give `source_language` or "
                "`target_language`."
            )
        sides = ([given] if given else languages for given in (source, target))
        pairs = [pair for pair in itertools.product(*sides) if len(set(pair)) == 2]
        if not pairs:
            raise ValueError(f"`source_language` and `target_language` must differ. Received for {name}: {source}.")
        return {pair: (piece_file.tag_of(pair[0]), piece_file.tag_of(pair[1])) for pair in pairs}
    known, tags = model.pair, list(model.tags) or [""]
    first, last = (given or default for given, default in zip((source, target), known or unknown, strict=True))
    names = {tag: re.sub(r"^2|[^\w-]", "", re.sub(r"[<>]", "", tag)) for tag in tags}
    by_target, is_one = {}, (known or target) and target not in filter(None, names.values())
    for tag, code in names.items():
        # A tag names a target language, such as <2de> and >>de<<, or a domain if all targets have one language.
        is_domain = is_one and code not in ("", last) and not re.match("<2|>>", tag)
        code = f"{last}-{code}" if is_domain else code or last
        by_target[code] = tag and f"{tag} "
    if not first or "" in by_target:
        received = f"source_language={first or 'unknown'}, target_language={last or 'unknown'}"
        raise ValueError(
            f"`source_language` and `target_language` must be codes, such as en and de, of the languages of {name}, "
            f"which does not name them itself. Received: {received}."
        )
    if target and "" not in by_target.values():
        chosen = {code: tag for code, tag in by_target.items() if code == target or code.startswith(f"{target}-")}
        if not chosen:
            raise ValueError(f"`target_language` must be one of {', '.join(by_target)} for {name}. Received: {target}.")
        by_target = chosen
    return {(first, code): (tag, "") for code, tag in by_target.items()}


def remote(name: str, predict: Predict, source: str, target: str) -> ServedModel:
    """Returns a model of a model server; `predict` is what `client.connect` returned."""
    return ServedModel(name, {(source, target): ("", "")}, lambda: predict, workers=4)


class _Ticket:
    """A request that waits for a model, and the error of the one that could not load it."""

    error: Exception | None = None


class ServedModels:
    """The models of a server, of which some are loaded: those that were needed last.

    Args:
        models: the models. Of those for the same pair, the first translates.
        max_loaded: how many may be loaded at the same time.
        batching: options of `Batcher`.
    """

    def __init__(self, models: Sequence[ServedModel], max_loaded: int = 1, **batching):
        self.models, self._max_loaded, self._batching = list(models), max_loaded, batching
        self._model = {pair: model for model in reversed(self.models) for pair in model.beginnings}
        # In the order of the models.
        self.pairs = [pair for model in self.models for pair in model.beginnings if self._model[pair] is model]
        # The least recently needed first; `None` while it is loaded.
        self._loaded: OrderedDict[ServedModel, tuple[Batcher, int] | None] = OrderedDict()
        self._users = dict.fromkeys(self.models, 0)
        self._waiting: dict[ServedModel, list[_Ticket]] = {model: [] for model in self.models}
        self._leaving: set[ServedModel] = set()
        self._changed = threading.Condition()

    @property
    def waiting(self) -> int:
        """The number of sentences that wait."""
        return sum(len(each[0]) for each in list(self._loaded.values()) if each)

    @property
    def loaded(self) -> int:
        """The number of models in memory."""
        return len(self._loaded)

    def load_first(self) -> None:
        """Loads the first model."""
        with self._used(self.models[0], float("inf")):
            pass

    def translate(
        self,
        pair: Pair,
        requests: Sequence[Request],
        n_best: int,
        deadline: float,
        *,
        glossary: Terms | None = None,
        prefix: str = "",
        alignment: bool = False,
        word_scores: bool = False,
    ) -> list[list[Translation]]:
        """Translates sentences.

        Args:
            pair: one of `pairs`.
            requests: the sentences.
            n_best: number of translations of each; there are fewer if the model has fewer beams.
            deadline: when to give up, as `time.monotonic` counts; later if the model has to be loaded.
            glossary: terms to translate as they say.
            prefix: text that every translation begins with.
            alignment: whether to align; a sentence that is too long for that has no alignment.
            word_scores: whether to score the words.

        Raises:
            ValueError: a sentence or an option is refused.
            BusyError: too many sentences wait, or the deadline is over.
        """
        model = self._model[pair]
        begin, tag = model.beginnings[pair]
        with self._used(model, deadline) as (batcher, beam_size, loading):
            # A model that takes longer to load than the deadline allows would never translate, where models alternate.
            predict = functools.partial(batcher, deadline=deadline + loading)

            def fits(phrase: str, text: str) -> bool:
                inputs = {"source": [text], "target": [phrase.removeprefix(JOINER)]}
                return predict("score", inputs)["length"][0] <= MAX_SUBWORDS + 1 + bool(tag)

            if glossary:
                facts = {"inline": model.inline_terms, "copied": copied_by(model.pattern)}
                requests = list(with_phrases(requests, glossary, Kept(""), _refuse, fits, **facts))
            requests = [
                dataclasses.replace(each, text=begin + each.text, annotated=each.annotated and begin + each.annotated)
                for each in requests
            ]
            n_best, options = min(n_best, beam_size), {"alignment": alignment, "word_scores": word_scores}
            options |= {"lenient": True, "beam_size": beam_size, "prefix": tag + prefix}
            rows = terms.predicted(predict, requests, n_best, **options)
        for row in rows:
            if isinstance(row, str):
                raise ValueError(row.strip())
        return rows

    @contextlib.contextmanager
    def _used(self, model: ServedModel, deadline: float) -> Iterator[tuple[Batcher, int, float]]:
        """Keeps a model in memory inside a `with` block, loading it if need be. Also gives the seconds in which models
        were loaded meanwhile.
        """
        loaded, loading = self._take(model, deadline)
        try:
            if not loaded:
                began = time.monotonic()
                loaded = self._load(model)
                loading += time.monotonic() - began
            yield *loaded, loading
        finally:
            with self._changed:
                self._users[model] -= 1
                self._changed.notify_all()

    def _take(self, model: ServedModel, deadline: float) -> tuple[tuple[Batcher, int] | None, float]:
        """Waits until a model can be used, and counts one more user. Returns the model, `None` if the caller is to load
        it, and the seconds in which models were loaded, which do not count.

        If another caller cannot load this one, its error is raised.
        """
        ticket, loading = _Ticket(), 0.0
        with self._changed:
            waiting = self._waiting[model]
            waiting.append(ticket)
            try:
                while ticket in waiting:  # `_load` admits all that wait.
                    if self._loaded.get(model) and model not in self._leaving:
                        self._loaded.move_to_end(model)
                        self._users[model] += 1
                        break
                    if model not in self._loaded and self._make_room():
                        self._loaded[model] = None
                        self._users[model] += 1
                        break
                    is_loading, began = None in self._loaded.values(), time.monotonic()
                    seconds = threading.TIMEOUT_MAX if is_loading else deadline + loading - began
                    if seconds <= 0:
                        raise BusyError("The model could not be loaded in time, because others are in use. Try again.")
                    self._changed.wait(min(seconds, threading.TIMEOUT_MAX))
                    loading += is_loading * (time.monotonic() - began)
                if ticket.error:
                    raise ticket.error
                return self._loaded[model], loading
            finally:
                if ticket in waiting:
                    waiting.remove(ticket)
                if not any(each for other, each in self._waiting.items() if other not in self._loaded):
                    self._leaving.clear()  # Nothing waits for their places any longer.
                    self._changed.notify_all()

    def _make_room(self) -> bool:
        """Returns whether one more model may be loaded. If not, no new request uses the model that was not needed for
        longest, so that it gets free.
        """
        if len(self._loaded) < self._max_loaded:
            return True
        loaded = [other for other, each in self._loaded.items() if each]
        for other in [*self._leaving, *loaded]:
            if not self._users[other]:
                self._leaving.discard(other)
                self._loaded.pop(other)[0].close()
                self._changed.notify_all()
                return True
        if not self._leaving:
            self._leaving.update(loaded[:1])
        return False

    def _load(self, model: ServedModel) -> tuple[Batcher, int]:
        """Loads a model and translates a short and a long sentence, so that no person waits for graphs and kernels."""
        loaded = failure = None
        try:
            predict = model.load()
            for words in WARM_UP_WORDS:
                begin, tag = next(iter(model.beginnings.values()))
                request = Request(begin + " ".join(["a"] * words))
                outputs = predict("translate_with_options", options_for([request], prefix=tag, alignment=True))
            batcher = Batcher(predict, model.workers, **self._batching)
            loaded = batcher, len(outputs["text"][0])
            return loaded
        except ValueError as error:  # Of the model, and not of a request.
            failure = OSError(str(error))
            raise failure from error
        except Exception as error:
            failure = error
            raise
        finally:
            with self._changed:
                waiting = self._waiting[model]
                if loaded:
                    self._loaded[model] = loaded
                    self._users[model] += len(waiting)
                else:
                    del self._loaded[model]
                if loaded or failure:
                    for ticket in waiting:
                        ticket.error = failure
                    waiting.clear()
                self._changed.notify_all()


def _refuse(message: str) -> None:
    # Without the number of a line, and what another program would leave out.
    raise ValueError(message.partition(": ")[2].replace("Left out:", "These are more or longer:"))
