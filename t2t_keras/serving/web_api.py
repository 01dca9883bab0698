"""The web application (WSGI) of a translation server: a page, and the HTTP APIs of LibreTranslate and of Apertium-APy,
which translation platforms, subtitle editors and translators' tools speak.
"""

import contextlib
import hmac
import ipaddress
import itertools
import json
import pathlib
import re
import time
import urllib.parse
from collections.abc import Callable, Sequence

from werkzeug.exceptions import BadRequest, Forbidden, HTTPException, RequestEntityTooLarge
from werkzeug.wrappers import Request, Response

from t2t_keras.serving.batching import BusyError
from t2t_keras.serving.client import NoAnswerError
from t2t_keras.serving.markup import Document
from t2t_keras.serving.metrics import Metrics
from t2t_keras.serving.protocol import Translation, merged
from t2t_keras.serving.served_models import Pair, ServedModels
from t2t_keras.serving.translation_request import MAX_REQUEST, MAX_SENTENCES, TranslationRequest, read_fields, texts_of
from t2t_keras.system.log import logger
from t2t_keras.text.lines import is_blank
from t2t_keras.text.phrases import holds
from t2t_keras.text.request import Request as Sentence
from t2t_keras.text.sentences import lines, sentences, whole

PAGE = pathlib.Path(__file__).with_name("page.html")
MAX_WEIGHTS = 2**20  # Of attention, in the details of an answer: some 25 MB of JSON.
SURE = 90.0  # Per cent, for text that stays as it is because it is in the target language already.
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
APERTIUM = ("/listPairs", "/listpairs")
_CHINESE_SCRIPTS = {"cn": "hans", "sg": "hans", "tw": "hant", "hk": "hant", "mo": "hant"}  # By region.
_SCRIPTS = {"arab", "beng", "cyrl", "deva", "guru", "hans", "hant", "latn", "mong", "mtei", "olck", "tfng", "tibt"}
_APERTIUM = "t2t_keras.apertium"  # In the environment of a request: whether its API is Apertium's.
_HEADERS = {
    # The page loads nothing from other hosts, and no other page may show it in a frame.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
# Text → the code of its language and how probable that is, 0 to 1, among some codes, or among all if none are given.
Identify = Callable[[str, Sequence[str]], tuple[str, float]]


class WebApi:
    """The application.

    Args:
        models: what translates.
        title: the page's heading.
        n_best: number of translations that the page shows.
        hosts: names under which the server may be called. Requests for other names are refused, so that a page of
            another site cannot reach the models by a name of its own for this address (DNS rebinding). Empty allows all
            names, as a server for other machines needs.
        origins: further origins of web pages and browser extensions that may send requests; "*" is all. `ValueError`
            for a text that is none.
        api_key: what requests for a translation must have; empty for none.
        timeout: seconds from a whole request to its answer.
        split: whether a text is translated sentence by sentence, not line by line.
        identify: identifies languages; `None` if nothing does.
    """

    def __init__(
        self,
        models: ServedModels,
        *,
        title: str = "Translate",
        n_best: int = 4,
        hosts: Sequence[str] = LOOPBACK,
        origins: Sequence[str] = (),
        api_key: str = "",
        timeout: float = 60.0,
        split: bool = True,
        identify: Identify | None = None,
        metrics: Metrics | None = None,
    ):
        for origin in origins:
            if not re.fullmatch(r"\*|null|file://|[\w.+-]+://[^\s/?#]+", origin):
                raise ValueError(f"Expected `origins` such as https://example.org, without a path. Received: {origin}.")
        self._models, self._title, self._n_best, self._split = models, title, n_best, split
        self._hosts, self._origins = {host.lower() for host in hosts}, {origin.lower() for origin in origins}
        if self._hosts:  # A proxy passes on the name that the page has.
            self._hosts |= {_without_port(_host_of(origin)) for origin in self._origins} - {""}
        self._api_key, self._timeout, self._identify = api_key, timeout, identify
        self.metrics = metrics or Metrics()
        self._sources: dict[str, list[str]] = {}  # Of each target.
        for source, target in models.pairs:
            self._sources.setdefault(target, []).append(source)
        self._all_sources = list(dict.fromkeys(source for source, _ in models.pairs))
        self._answers: dict[tuple[str, str], Callable[[Request], Response]] = {
            ("GET", "/"): lambda request: Response(PAGE.read_bytes(), mimetype="text/html"),
            ("GET", "/languages"): self._languages,
            ("GET", "/health"): lambda request: _json({"status": "ok"}),
            ("GET", "/metrics"): lambda request: Response(self.metrics.text(), mimetype="text/plain; version=0.0.4"),
            ("GET", "/frontend/settings"): self._settings,
            ("GET", "/translate"): self._translation,
            ("POST", "/translate"): self._translation,
            ("POST", "/detect"): self._detection,
            **{("GET", path): self._list_pairs for path in APERTIUM},
        }

    def __call__(self, environ, start_response):
        request, began = Request(environ), time.monotonic()
        # One byte more than `read_fields` allows: werkzeug cuts off the rest of a body without a length.
        request.max_content_length = request.max_form_memory_size = MAX_REQUEST + 1
        response = self._respond(request)
        response.headers.update(_HEADERS)
        known = request.path in {path for _, path in self._answers}
        path = request.path if known else "other"
        self.metrics.count("t2t_requests_total", path=path, status=response.status_code)
        if path == "/translate" and response.status_code == 200:
            self.metrics.observe("t2t_request_seconds", time.monotonic() - began)
        return response(environ, start_response)

    def _respond(self, request: Request) -> Response:
        origin = ""
        try:
            origin = self._allowed_origin(request)
            method = {"HEAD": "GET"}.get(request.method, request.method)
            answer, allowed = self._answers.get((method, request.path)), self._allowed_methods(request.path)
            if method == "OPTIONS" and (origin or allowed):
                response = Response(status=204)
                response.headers["Allow"] = allowed
                if origin:
                    response.headers["Access-Control-Allow-Methods"] = "GET, POST"
                    response.headers["Access-Control-Allow-Headers"] = "Content-Type"
            elif answer is None and allowed:
                message = f"Expected one of {allowed} for {request.path}. Received: {request.method}."
                response = self._failed(request, message, 405)
                response.headers["Allow"] = allowed
            elif answer is None:
                response = _json({"error": f"There is no {request.method} {request.path}."}, 404)
            else:
                response = answer(request)
        except HTTPException as error:
            response = self._failed(request, error.description, error.code)
        except (BusyError, NoAnswerError) as error:
            response = self._failed(request, str(error), 503)
            response.headers["Retry-After"] = "1"
        except ValueError as error:
            response = self._failed(request, str(error), 400)
        except Exception as error:  # The server goes on.
            logger.warning(f"Could not answer a request: {error}")
            response = self._failed(request, f"The model failed: {error}", 500)
        if origin:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Vary"] = "Origin"
        return response

    def _allowed_methods(self, path: str) -> str:
        """Returns the methods of a path, as in the header Allow; "" if there is no such path."""
        methods = [method for method, known in self._answers if known == path]
        return ", ".join([*methods, *(["HEAD"] if "GET" in methods else []), "OPTIONS"]) if methods else ""

    def _failed(self, request: Request, message: str, status: int) -> Response:
        apertium = {"status": "error", "code": status, "message": message, "explanation": message}
        is_apertium = "langpair" in request.args or request.environ.get(_APERTIUM)
        return _json({"error": message} | (apertium if is_apertium else {}), status)

    def _allowed_origin(self, request: Request) -> str:
        """Returns the origin of a request of another site that is allowed; "" for one of the page or of a program.
        Raises `HTTPException` for others.
        """
        host = request.host.lower()
        if self._hosts and _without_port(host) not in self._hosts:
            raise Forbidden(
                f"Expected one of the hosts {', '.join(sorted(self._hosts))}. Received: {request.host}. If a proxy "
                f"passes this name on, start the server with --origins=https://{request.host}."
            )
        origin = request.headers.get("Origin")
        if origin is None:
            # As of an image in a page of another site.
            if request.headers.get("Sec-Fetch-Site") == "cross-site" and request.path != "/" and not self._origins:
                raise Forbidden(f"Expected a request from the page at {request.host}. Received: one from another site.")
            return ""
        if self._origins & {origin.lower(), "*"}:
            return origin
        if _host_of(origin) != host:
            raise Forbidden(
                f"Expected a request from the page at {request.host}. Received: one from {origin}. If you trust this "
                f"proxy or site, start the server with --origins={origin}."
            )
        return ""

    def _settings(self, request: Request) -> Response:
        source, target = self._models.pairs[0]
        return _json(
            {
                "title": self._title,
                "n_best": self._n_best,
                "apiKeys": bool(self._api_key),
                "keyRequired": bool(self._api_key),
                "charLimit": MAX_REQUEST // 12,  # In a form, a character may have 12 bytes, as in JSON.
                "filesTranslation": False,
                "frontendTimeout": 300,
                "suggestions": False,
                "supportedFilesFormat": [],
                "language": {"source": _named(source), "target": _named(target)},
            }
        )

    def _languages(self, request: Request) -> Response:
        targets: dict[str, list[str]] = {}
        for source, target in self._models.pairs:
            targets.setdefault(source, []).append(target)
            targets.setdefault(target, [])
        return _json([_named(code) | {"targets": others} for code, others in targets.items()])

    def _list_pairs(self, request: Request) -> Response:
        pairs = [{"sourceLanguage": source, "targetLanguage": target} for source, target in self._models.pairs]
        return _of_apertium(pairs)

    def _detection(self, request: Request) -> Response:
        fields = self._fields(request)
        texts = texts_of(fields)
        found = self._identified([], " ".join(texts) if isinstance(texts, list) else texts)
        return _json([found])

    def _identified(self, among: Sequence[str], text: str) -> dict:
        if self._identify is None:
            raise BadRequest(
                "Languages are identified by py3langid and langcodes, which are not both installed: pip install "
                "'t2t_keras[filter]'. Or give the code of the language as `source`."
            )
        language, probability = self._identify(text, among)
        if is_blank(text):
            probability = 0.0
        return {"language": language, "confidence": round(100 * probability, 1)}

    def _fields(self, request: Request) -> dict:
        """Returns the fields of a request. Raises `HTTPException` if these cannot be read, or lack the key."""
        fields = read_fields(request)
        request.environ[_APERTIUM] = "langpair" in fields
        key = fields.get("api_key", fields.get("key", ""))
        keys = [str(each).encode(errors="surrogatepass") for each in (key, self._api_key)]
        if self._api_key and not (isinstance(key, str) and hmac.compare_digest(*keys)):
            raise Forbidden("Expected the `api_key` of this server.")
        return fields

    def _pair(self, source: str, target: str, text: str) -> tuple[Pair | None, dict | None]:
        """Returns the languages of the models for those of a request, and what was identified for "auto". Text that is
        surely in the target language needs no model.
        """
        target, found = _code(target, list(self._sources), "target"), None
        possible = self._sources.get(target, [])
        if source == "auto" and len(possible) == 1 and self._identify is None:
            found = {"language": possible[0], "confidence": 0.0}
        elif source == "auto":
            if target not in possible:
                with contextlib.suppress(ValueError):  # None of these languages can be identified.
                    # Of two codes of a language, the first, that of a source, is found.
                    found = self._identified([*possible, target], text)
                    if found["language"] == target and found["confidence"] >= SURE:
                        return None, found
            found = self._identified(possible, text)
        pair = found["language"] if found else _code(source, self._all_sources, "source"), target
        if pair[0] not in possible:
            raise BadRequest(f"Expected languages that a model translates between. Received: {pair[0]} and {target}.")
        return pair, found

    def _translation(self, request: Request) -> Response:
        deadline = time.monotonic() + self._timeout
        asked = TranslationRequest(self._fields(request), is_posted=request.method == "POST")
        documents = self._documents(asked)
        pairs = [self._pair(asked.source, asked.target, " ".join(document.sentences)) for document in documents]
        found = self._translated(asked, documents, [pair for pair, _ in pairs], deadline)
        shown = [
            _best_texts(document, rows, asked.alternatives + 1) if pair else [text]
            for text, document, rows, (pair, _) in zip(asked.texts, documents, found, pairs, strict=True)
        ]
        answer = {"translatedText": asked.unlisted([best for best, *_ in shown])}
        if asked.is_apertium:
            return _of_apertium(answer)
        if asked.alternatives:
            answer["alternatives"] = asked.unlisted([others for _, *others in shown])
        translations = [[translation for row in rows for translation in row] for rows in found]
        if any(translation.truncated for translation in itertools.chain(*translations)):
            answer["truncated"] = True
        if not all(map(_is_met, asked.constraints, documents, found)):
            answer["constraints_met"] = False
        if asked.source == "auto":
            answer["detectedLanguage"] = asked.unlisted([identified for _, identified in pairs])
        if asked.details:
            alignments = (translation.alignment for translation in itertools.chain(*translations))
            if sum(weights.size for weights in alignments if weights is not None) > MAX_WEIGHTS:
                raise RequestEntityTooLarge("Expected fewer or shorter texts with `details`. Send several requests.")
            answer["translations"] = asked.unlisted([[each.as_json() for each in of_text] for of_text in translations])
        return _json(answer)

    def _documents(self, asked: TranslationRequest) -> list[Document]:
        """Divides the texts into sentences. Raises `HTTPException` if there are too many."""
        divide = sentences if self._split else lines
        documents = [
            Document(text, asked.is_html, whole if is_whole else divide)
            for text, is_whole in zip(asked.texts, asked.is_whole, strict=True)
        ]
        if any(is_whole and len(each.sentences) > 1 for is_whole, each in zip(asked.is_whole, documents, strict=True)):
            raise BadRequest(
                "Expected one paragraph of HTML with `constraints`, `prefix` or `details`. Received: several."
            )
        if (number := sum(len(document.sentences) for document in documents)) > MAX_SENTENCES:
            received = f"{number:,}. Send several requests."
            raise RequestEntityTooLarge(
                f"Expected at most {MAX_SENTENCES:,} sentences in a request. Received: {received}"
            )
        return documents

    def _translated(
        self, asked: TranslationRequest, documents: list[Document], pairs: list[Pair | None], deadline: float
    ) -> list[list[list[Translation]]]:
        """Returns the translations of each sentence of each text, best first, with one request for each pair of
        languages. A text without a pair has none.
        """
        found: list[list] = [[] for _ in documents]
        for pair in filter(None, dict.fromkeys(pairs)):
            chosen = [place for place, other in enumerate(pairs) if other == pair]
            requests = [
                Sentence(text, asked.constraints[place], asked.avoid[place])
                for place in chosen
                for text in documents[place].sentences
            ]
            if requests:
                options = {"glossary": asked.glossary, "prefix": asked.prefix, "word_scores": asked.details}
                options["alignment"] = asked.details or any(documents[place].has_tags for place in chosen)
                rows = iter(self._models.translate(pair, requests, asked.alternatives + 1, deadline, **options))
                for place in chosen:
                    found[place] = [merged(next(rows)) for _ in documents[place].sentences]
        return found


def _is_met(constraints: Sequence[str], document: Document, rows: list[list[Translation]]) -> bool:
    """Returns whether a text's translation has its phrases. What is not translated, as blank text, is as it was."""
    if not rows:
        return all(holds(" ".join(document.sentences), phrase) for phrase in constraints)
    return all(best.constraints_met for best, *_ in rows)


def _best_texts(document: Document, rows: list[list[Translation]], most: int) -> list[str]:
    """Returns the translations of a text, best first: the next best one has the next best of each sentence."""
    most = min(most, max(map(len, rows), default=1))
    best = ([row[min(rank, len(row) - 1)] for row in rows] for rank in range(most))
    return list(dict.fromkeys(map(document.translated, best)))


def _code(language: str, known: Sequence[str], name: str) -> str:
    """Returns the code among known ones that is meant: with another region or case, if need be, but not with another
    script.
    """

    def parts(code: str) -> list[str]:
        return code.lower().replace("_", "-").split("-")

    def distance(code: str) -> tuple:
        found = parts(code)
        is_other_script = _script(asked) not in ("", _script(found))
        return code != language, found != asked, is_other_script, -len({*found} & {*asked}), len(found)

    asked = parts(language)
    same = (code for code in known if parts(code)[0] == asked[0])
    meant = [code for code in same if len({_script(asked), _script(parts(code))} - {""}) < 2]
    if meant:
        return min(meant, key=distance)
    raise BadRequest(f"Expected `{name}` to be one of {', '.join(known):.300}. Received: {language!r:.80}.")


def _script(code: list[str]) -> str:
    """Returns the script in the parts of a code, such as latn; for Chinese, else that of its region, such as hant for
    tw; "" without one.
    """
    regions = _CHINESE_SCRIPTS if code[0] in ("zh", "zho", "cmn") else {}
    return next((regions.get(part, part) for part in code[1:] if part in regions or part in _SCRIPTS), "")


def hosts(host: str) -> tuple[str, ...]:
    """Returns the names under which a server that listens on an interface may be called; none, which is any name,
    beyond this machine.
    """
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return (*LOOPBACK, host)
    return LOOPBACK if host == "localhost" else ()


def _host_of(origin: str) -> str:
    """Returns the host and port of an origin."""
    try:
        return urllib.parse.urlsplit(origin.lower()).netloc
    except ValueError as error:  # As for "http://[".
        raise BadRequest(f"Expected an origin such as http://localhost:8000. Received: {origin:.80}.") from error


def _without_port(host: str) -> str:
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _named(code: str) -> dict[str, str]:
    return {"code": code, "name": code}


def _of_apertium(answer: dict | list) -> Response:
    return _json({"responseData": answer, "responseDetails": None, "responseStatus": 200})


def _json(value: dict | list, status: int = 200) -> Response:
    body = json.dumps(value, ensure_ascii=False).encode(errors="replace")
    return Response(body, status, mimetype="application/json")
