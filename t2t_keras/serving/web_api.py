"""The web application (WSGI) of a translation server: a page, and the HTTP APIs of LibreTranslate and of Apertium-APy,
which translation platforms, subtitle editors and translators' tools speak.
"""

import contextlib
import hmac
import ipaddress
import json
import pathlib
import time
import urllib.parse
from collections.abc import Callable, Sequence

from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import BadRequest, Forbidden, HTTPException, RequestEntityTooLarge, UnsupportedMediaType
from werkzeug.wrappers import Request, Response

from t2t_keras.serving.batching import BusyError
from t2t_keras.serving.client import NoAnswerError
from t2t_keras.serving.markup import Document
from t2t_keras.serving.metrics import Metrics
from t2t_keras.serving.protocol import merged
from t2t_keras.serving.served_models import Pair, ServedModels
from t2t_keras.system.log import logger
from t2t_keras.text.lines import is_blank, single_spaced
from t2t_keras.text.phrases import Request as Sentence
from t2t_keras.text.phrases import Terms, check_unicode
from t2t_keras.text.sentences import lines, sentences, whole

PAGE = pathlib.Path(__file__).with_name("page.html")
MAX_REQUEST = 256 * 1024  # Bytes.
MAX_SENTENCES = 1024  # Of a request.
MAX_WEIGHTS = 2**20  # Of attention, in the details of an answer: some 25 MB of JSON.
SURE = 90.0  # Per cent, for text that stays as it is because it is in the target language already.
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
APERTIUM = ("/listPairs", "/listpairs")
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
        origins: further origins of web pages and browser extensions that may send requests; "*" is all.
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
        # One byte more than `_fields` allows: of a body without a length, werkzeug reads as much and cuts the rest off.
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
            answer = self._answers.get((method, request.path))
            if method == "OPTIONS" and origin:
                response = Response(status=204)
                response.headers["Access-Control-Allow-Methods"] = "GET, POST"
                response.headers["Access-Control-Allow-Headers"] = "Content-Type"
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
                raise Forbidden(f"Expected a request of the page at {request.host}. Received one of another site.")
            return ""
        if self._origins & {origin.lower(), "*"}:
            return origin
        if _host_of(origin) != host:
            raise Forbidden(
                f"Expected a request of the page at {request.host}. Received one of {origin}. If that is the address "
                f"of a proxy or of a site to trust, start the server with --origins={origin}."
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
        texts = _texts(fields)
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
        """Returns the fields of a request, in its address, in JSON or in a form. Raises `HTTPException` if it is too
        large, has no fields, or not the key.
        """
        fields = _unlisted(request.args)
        try:
            too_large = len(body := request.get_data()) > MAX_REQUEST
        except RequestEntityTooLarge:
            too_large = True
        if too_large:
            raise RequestEntityTooLarge(f"Expected a request of at most {MAX_REQUEST // 1024} KiB. Send several.")
        if request.mimetype == "application/json":
            try:
                values = json.loads(body)
            except (ValueError, RecursionError):
                values = None
            if not isinstance(values, dict):
                raise BadRequest("Expected a JSON object in UTF-8.")
            fields |= values
        elif request.method == "POST" and request.mimetype not in (
            "application/x-www-form-urlencoded", "multipart/form-data", ""
        ):  # fmt: skip
            raise UnsupportedMediaType("Expected application/json, or a form.")
        else:
            fields |= _unlisted(request.form)
        fields = {name: value for name, value in fields.items() if value is not None}
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
        fields = self._fields(request)
        apertium = "langpair" in fields
        if apertium:
            source, bar, target = str(fields["langpair"]).partition("|")
            if not (source and bar and target):
                raise BadRequest("Expected `langpair` to be two codes of languages, such as en|de.")
            fields |= {"source": source, "target": target}
        elif request.method == "GET":
            raise BadRequest("Expected `langpair`, as of Apertium, or POST.")
        texts = _texts(fields)
        for name in ("source", "target"):
            if not isinstance(code := fields.get(name, ""), str) or not code:
                raise BadRequest(f"Expected `{name}` to be the code of a language. Received: {code!r:.80}.")
        listed = texts if isinstance(texts, list) else [texts]
        if len(listed) > MAX_SENTENCES:
            raise RequestEntityTooLarge(f"Expected at most {MAX_SENTENCES:,} texts in a request.")
        asked = _Options(fields, listed if isinstance(texts, list) else None)
        documents = [
            Document(text, asked.is_html, whole if is_whole else sentences if self._split else lines)
            for text, is_whole in zip(listed, asked.is_whole, strict=True)
        ]
        pairs = [self._pair(fields["source"], fields["target"], " ".join(each.sentences)) for each in documents]
        if any(is_whole and len(each.sentences) > 1 for is_whole, each in zip(asked.is_whole, documents, strict=True)):
            raise BadRequest(
                "Expected one paragraph of HTML with `constraints`, `prefix` or `details`. Received: several."
            )
        if sum(len(document.sentences) for document in documents) > MAX_SENTENCES:
            raise RequestEntityTooLarge(f"Expected at most {MAX_SENTENCES:,} sentences in a request.")
        rows, number = [[] for _ in listed], asked.alternatives + 1
        for pair in dict.fromkeys(pair for pair, _ in pairs if pair):
            chosen = [place for place, (other, _) in enumerate(pairs) if other == pair]
            requests = [
                Sentence(text, asked.constraints[place], asked.avoid[place])
                for place in chosen
                for text in documents[place].sentences
            ]
            if not requests:
                continue
            options = {"glossary": asked.glossary, "prefix": asked.prefix, "word_scores": asked.details}
            options["alignment"] = asked.details or any(documents[place].has_tags for place in chosen)
            found = iter(self._models.translate(pair, requests, number, deadline, **options))
            for place in chosen:
                rows[place] = [merged(next(found)) for _ in documents[place].sentences]
        shown = []
        for text, document, found, (pair, _) in zip(listed, documents, rows, pairs, strict=True):
            if not pair:
                shown.append([text])
                continue
            # The next best translation of a text has the next best of each sentence.
            most = min(number, max(map(len, found), default=1))
            best = ([row[min(rank, len(row) - 1)] for row in found] for rank in range(most))
            shown.append(list(dict.fromkeys(map(document.translated, best))))
        if apertium:
            answer = {"translatedText": shown[0][0] if isinstance(texts, str) else [each[0] for each in shown]}
            return _of_apertium(answer)

        def unlisted(values: list):
            return values if isinstance(texts, list) else values[0]

        answer = {"translatedText": unlisted([best for best, *_ in shown])}
        if asked.alternatives:
            answer["alternatives"] = unlisted([others for _, *others in shown])
        if any(each.truncated for found in rows for row in found for each in row):
            answer["truncated"] = True
        if fields["source"] == "auto":
            answer["detectedLanguage"] = unlisted([found for _, found in pairs])
        if asked.details:
            aligned = (each.alignment for found in rows for row in found for each in row)
            if sum(weights.size for weights in aligned if weights is not None) > MAX_WEIGHTS:
                raise RequestEntityTooLarge("Expected fewer or shorter texts with `details`. Send several requests.")
            answer["translations"] = unlisted([[each.as_json() for row in found for each in row] for found in rows])
        return _json(answer)


class _Options:
    """The fields of a request beside the text and its languages. Those of a form are text, lists in JSON. If the texts
    are a list, each has phrases of its own. Raises `ValueError` for an invalid field.
    """

    def __init__(self, fields: dict, texts: list[str] | None):
        form = _given(fields, "format", "text")
        if form not in ("text", "html", "txt"):
            raise ValueError(f"Expected `format` to be text or html. Received: {form!r:.80}.")
        self.is_html = form == "html"
        alternatives = _given(fields, "alternatives", 0)
        if isinstance(alternatives, str) and alternatives.isascii() and alternatives.isdecimal():
            alternatives = int(alternatives[:4])
        if type(alternatives) is not int or alternatives < 0:
            raise ValueError(f"Expected `alternatives` to be a whole number. Received: {alternatives!r:.80}.")
        self.alternatives = min(alternatives, 100)
        details = _given(fields, "details", False)
        if details not in (True, False, "true", "1", "false", "0"):
            raise ValueError(f"Expected `details` to be true or false. Received: {details!r:.80}.")
        self.details = details in (True, "true", "1")
        self.prefix = _given(fields, "prefix", "")
        if not isinstance(self.prefix, str):
            raise ValueError(f"Expected `prefix` to be text. Received: {self.prefix!r:.80}.")
        check_unicode(self.prefix)
        self.prefix = single_spaced(self.prefix)
        self.glossary = _glossary(_listed(fields, "glossary"))
        self.constraints, self.avoid = (
            [_listed(fields, name)] if texts is None else _listed(fields, name) or [()] * len(texts)
            for name in ("constraints", "avoid")
        )
        for name in ("constraints", "avoid"):
            if texts is not None and len(getattr(self, name)) != len(texts):
                raise ValueError(f"Expected `{name}` to have a list of phrases for each of {len(texts)} texts.")
        # What must be in a translation is in one sentence.
        self.is_whole = [bool(required or self.prefix or self.details) for required in self.constraints]


def _unlisted(fields: MultiDict) -> dict:
    """Returns the values of fields: those of one that is there several times as a list."""
    return {name: values if len(values) > 1 else values[0] for name, values in fields.lists()}


def _given(fields: dict, name: str, default):
    """Returns a field, or the default if it is not there or empty."""
    return default if (value := fields.get(name, "")) == "" else value


def _listed(fields: dict, name: str) -> list:
    value = fields.get(name) or []
    if isinstance(value, str):  # Of a form.
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list):
        raise ValueError(f"Expected `{name}` to be a list, in a form as JSON. Received: {fields[name]!r:.80}.")
    return value


def _glossary(rows: list) -> Terms | None:
    for row in rows:
        if not isinstance(row, list) or not 2 <= len(row) <= 3 or not all(isinstance(each, str) for each in row):
            raise ValueError(
                "Expected `glossary` to be a list of [term, translation] or [term, translation, forbidden forms with | "
                f"between them]. Received: {row!r:.80}."
            )
        check_unicode(" ".join(row))
        if any(map(is_blank, row[:2])):
            raise ValueError(f"Expected text as term and translation of `glossary`. Received: {row!r:.80}.")
    return Terms.read(["\t".join(map(single_spaced, row)) for row in rows], "the glossary") if rows else None


def _texts(fields: dict) -> str | list[str]:
    texts = fields.get("q")
    if not isinstance(texts, str) and not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
        raise BadRequest(
            f"Expected `q` to be a text or a list of texts, in JSON or in a form with its Content-Type. Received: "
            f"{texts!r:.80}."
        )
    return texts


def _code(language: str, known: Sequence[str], name: str) -> str:
    """Returns the code among known ones that is meant: with another region or case, if need be."""

    def simple(code: str) -> str:
        return code.lower().replace("_", "-")

    by_name = {simple(code).partition("-")[0]: code for code in reversed(known)}
    by_name |= {simple(code): code for code in known} | {code: code for code in known}
    for form in (language, simple(language), simple(language).partition("-")[0]):
        if form in by_name:
            return by_name[form]
    raise BadRequest(f"Expected `{name}` to be one of {', '.join(known):.300}. Received: {language!r:.80}.")


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
