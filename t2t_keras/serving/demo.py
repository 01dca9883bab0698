"""A page on this machine on which a person types a sentence and sees its translations, their scores and their
alignment.

The page is one file, `demo.html`. It sends each sentence as JSON to `/translate` of the server that it came from, and
to nowhere else.
"""

import contextlib
import io
import json
import pathlib
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence

import numpy as np
from werkzeug.exceptions import BadRequest, Forbidden, HTTPException, UnsupportedMediaType
from werkzeug.serving import BaseWSGIServer, ThreadedWSGIServer, WSGIRequestHandler
from werkzeug.wrappers import Request, Response

from t2t_keras.serving.protocol import Translation, merged, options_for
from t2t_keras.system.log import logger
from t2t_keras.text.lines import is_blank, single_spaced
from t2t_keras.text.phrases import Request as Sentence

PAGE = pathlib.Path(__file__).with_name("demo.html")
MAX_REQUEST = 64 * 1024  # Bytes.
MAX_CONNECTIONS = 32  # At the same time; each has a thread.
MAX_SECONDS = 10.0  # For the whole of a request to arrive, and for each part of an answer to be taken.
WARM_UP_WORDS = (1, 20)
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
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


# How an error begins about a sentence that is too long for an alignment, but not for a translation.
_NOT_ALIGNED = "alignment: "
# (sentence, prefix, n, constraints=(), avoid=()) → the n best translations, best first. The phrases are given only if
# there are some.
Translate = Callable[..., list[Translation]]


def from_translator(translator) -> Translate:
    """Translates with what `t2t_keras.load` returned."""

    def translate(text: str, prefix: str, n: int, **phrases) -> list[Translation]:
        try:
            return translator.n_best(text, n, prefix=prefix, alignment=True, **phrases)
        except ValueError as error:
            if not str(error).startswith(_NOT_ALIGNED):
                raise
        return translator.n_best(text, n, prefix=prefix, **phrases)

    return translate


def from_server(predict: Callable[[str, dict[str, list]], dict[str, list]]) -> Translate:
    """Translates with a model server; `predict` is what `client.connect` returned.

    Raises:
        ValueError: the server refuses a sentence or an option.
    """

    def translate(
        text: str, prefix: str, n: int, constraints: Sequence[str] = (), avoid: Sequence[str] = ()
    ) -> list[Translation]:
        request = Sentence(text, constraints, avoid)
        for alignment in (True, False):
            inputs = options_for([request], n_best=n, prefix=prefix, alignment=alignment)
            outputs = {name: values[0] for name, values in predict("translate_with_options", inputs).items()}
            if not outputs["error"].startswith(_NOT_ALIGNED):
                break
        if outputs["error"]:
            raise ValueError(outputs["error"].strip())
        source_pieces, translations = tuple(filter(None, outputs["source_pieces"])), []
        for beam in range(n):
            pieces = tuple(filter(None, outputs["pieces"][beam]))
            alignment = [row[: len(source_pieces)] for row in outputs["alignment"][beam][: len(pieces)]]
            text, score, met = (outputs[name][beam] for name in ("text", "score", "constraints_met"))
            truncated = outputs["truncated"]
            translations.append(Translation(text, score, pieces, source_pieces, np.array(alignment), met, truncated))
        return merged(translations)

    return translate


def warm_up(translate: Translate, n: int) -> None:
    """Translates a short and a long sentence, so that the first person need not wait for graphs and kernels to be
    made.
    """
    for words in WARM_UP_WORDS:
        translate(" ".join(["a"] * words), "", n)


def _host_of(origin: str) -> str:
    """Returns the host and port of an origin."""
    try:
        return urllib.parse.urlsplit(origin.lower()).netloc
    except ValueError as error:  # As for "http://[".
        raise BadRequest(f"Expected an origin such as http://localhost:8000. Received: {origin:.80}.") from error


class Demo:
    """The web application (WSGI): the page at `/`, translations at `/translate`.

    One sentence is translated at a time. While a person types, a page may send several; those that a newer one of the
    same page has overtaken are answered with status 409 and not translated.

    Args:
        translate: see `from_translator` and `from_server`.
        title: the page's heading, such as the model's name.
        n_best: number of translations shown, at most the model's beam size.
        hosts: names under which the server may be called. Requests for other names are refused, so that a page of
            another site cannot reach the model by a name of its own for this address (DNS rebinding). Empty allows all
            names, as a server for other machines needs.
    """

    def __init__(self, translate: Translate, *, title: str, n_best: int = 4, hosts: tuple[str, ...] = LOOPBACK):
        self._translate, self._title, self._n_best, self._hosts = (
            translate,
            title,
            n_best,
            {host.lower() for host in hosts},
        )
        self._lock, self._newest_lock, self._newest = threading.Lock(), threading.Lock(), {}

    def __call__(self, environ, start_response):
        return self._respond(Request(environ))(environ, start_response)

    def _respond(self, request: Request) -> Response:
        request.max_content_length = MAX_REQUEST
        try:
            host = request.host.lower()
            name = host if host.endswith("]") else host.rpartition(":")[0] or host  # Without its port.
            if self._hosts and name not in self._hosts:
                raise Forbidden(
                    f"Expected one of the hosts {', '.join(sorted(self._hosts))}. Received: {request.host}."
                )
            origin = request.headers.get("Origin")
            if origin is not None and _host_of(origin) != host:
                raise Forbidden(f"Expected a request of the page at {request.host}. Received one of {origin}.")
            if request.path == "/" and request.method in ("GET", "HEAD"):
                return Response(PAGE.read_bytes(), mimetype="text/html", headers=_HEADERS)
            if request.path == "/settings" and request.method == "GET":
                return self._json({"title": self._title, "n_best": self._n_best})
            if request.path == "/translate" and request.method == "POST":
                return self._translation(request)
            return self._json({"error": f"There is no {request.method} {request.path}."}, 404)
        except HTTPException as error:
            return self._json({"error": error.description}, error.code)
        except Exception as error:  # The page shows it; the server goes on.
            logger.warning(f"Could not answer a request: {error}")
            return self._json({"error": f"The model failed: {error}"}, 500)

    def _json(self, value: dict, status: int = 200) -> Response:
        return Response(json.dumps(value, ensure_ascii=False), status, mimetype="application/json", headers=_HEADERS)

    def _translation(self, request: Request) -> Response:
        if request.mimetype != "application/json":  # Which a form of another site cannot send.
            raise UnsupportedMediaType("Expected application/json.")
        try:
            body = json.loads(request.get_data())
            text, prefix, page, number = (body[name] for name in ("text", "prefix", "page", "number"))
            lists = {name: body.get(name, "") for name in ("constraints", "avoid")}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadRequest("Expected a JSON object with text, prefix, page and number.") from error
        if not all(isinstance(each, str) for each in (text, prefix, page, *lists.values())) or type(number) is not int:
            raise BadRequest(
                "Expected text, prefix, constraints, avoid and page as strings and number as a whole number."
            )
        lists = {
            name: [single_spaced(line) for line in re.split("[\r\n]+", lines) if not is_blank(line)]
            for name, lines in lists.items()
        }
        phrases = {name: lines for name, lines in lists.items() if lines}
        text, prefix = map(single_spaced, (text, prefix))
        with self._newest_lock:
            self._newest[page] = max(number, self._newest.pop(page, number))
            while len(self._newest) > 100:  # Pages that were closed.
                self._newest.pop(next(iter(self._newest)))
        with self._lock:
            if self._newest.get(page, number) > number:
                return self._json({"error": "A newer sentence arrived."}, 409)
            try:
                translations = self._translate(text, prefix, self._n_best, **phrases) if not is_blank(text) else []
            except (ValueError, OSError) as error:
                return self._json({"error": str(error)}, 422)
        return self._json({"number": number, "translations": [each.as_json() for each in translations]})


class _UntilDeadline(io.RawIOBase):
    """What arrives at a connection within `MAX_SECONDS`; later reads raise `TimeoutError`."""

    def __init__(self, connection):
        self._connection, self._deadline = connection, time.monotonic() + MAX_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        self._connection.settimeout(max(self._deadline - time.monotonic(), 0.001))
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(MAX_SECONDS)  # For answers.


class _Handler(WSGIRequestHandler):
    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_UntilDeadline(self.connection))

    def log_request(self, code="-", size="-") -> None:
        """Requests hold what a person types, and are not logged."""

    def log_error(self, format, *args) -> None:
        """Requests that do not arrive in time are not logged either."""


class _Server(ThreadedWSGIServer):
    """Serves at most `MAX_CONNECTIONS` at a time; others get status 503 at once."""

    def __init__(self, *args):
        super().__init__(*args)
        self._free = threading.Semaphore(MAX_CONNECTIONS)

    def process_request(self, request, client_address) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        body = json.dumps({"error": "Too many connections. Try again."})
        head = (
            f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Connection: close"
        )
        request.settimeout(0)  # Whoever does not take the answer at once does not get it.
        with contextlib.suppress(OSError):
            request.sendall(f"{head}\r\n\r\n{body}".encode())
        self.shutdown_request(request)

    def process_request_thread(self, request, client_address) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


def serve(demo: Demo, host: str = "localhost", port: int = 0) -> BaseWSGIServer:
    """Binds a server, which `serve_forever()` runs.

    Args:
        demo: the application.
        host: the interface to listen on.
        port: 0 takes a free one; `server.port` has it.

    Raises:
        OSError: the port is taken, or the host is not this machine's.
    """
    try:
        return _Server(host, port, demo, _Handler)
    except SystemExit as error:  # Werkzeug's answer to a port that is taken.
        raise OSError(f"Could not listen on {host}:{port}. Give another `port`.") from error
