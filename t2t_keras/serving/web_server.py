"""An HTTP server of an application (WSGI), for anyone who reaches its port: requests that do not arrive end soon, and
connections have a limit.
"""

import contextlib
import io
import json
import threading
import time
from collections.abc import Callable

from werkzeug.serving import BaseWSGIServer, ThreadedWSGIServer, WSGIRequestHandler

MAX_CONNECTIONS = 256  # At the same time; each has a thread.
MAX_SECONDS = 10.0  # For the whole of a request to arrive, and for each part of an answer to be taken.
LAST_SECONDS = 8.0  # For open connections when the server ends; Docker kills a program after 10 s.


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
    error_content_type = "application/json"

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_UntilDeadline(self.connection))

    def send_error(self, code, message=None, explain=None) -> None:
        """Answers a request that is no HTTP as the application answers what is invalid: in JSON, not in HTML."""
        self.error_message_format = json.dumps({"error": message or self.responses[code][0]}).replace("%", "%%")
        super().send_error(code, message, explain)

    def log_request(self, code="-", size="-") -> None:
        """Requests hold what a person types, and are not logged."""

    def log_error(self, format, *args) -> None:
        """Requests that do not arrive in time are not logged either."""


class _Server(ThreadedWSGIServer):
    """Serves at most `MAX_CONNECTIONS` at a time; others get status 503 at once."""

    def __init__(self, *args, refused: Callable[[], None]):
        super().__init__(*args)
        self._free, self._refused = threading.Semaphore(MAX_CONNECTIONS), refused

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        """Serves until Ctrl-C or `shutdown()`. Then it accepts no more requests, and gives those under way
        `LAST_SECONDS`, which a second Ctrl-C ends.
        """
        super().serve_forever(poll_interval)
        until = time.monotonic() + LAST_SECONDS
        for _ in range(MAX_CONNECTIONS):
            self._free.acquire(timeout=max(until - time.monotonic(), 0))

    def process_request(self, request, client_address) -> None:
        if self._free.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except Exception:  # No thread could be started.
                self._free.release()
                raise
            return
        self._refused()
        body = json.dumps({"error": "Too many connections. Try again."})
        head = (
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close"
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


def serve(
    application: Callable, host: str = "localhost", port: int = 0, refused: Callable[[], None] = lambda: None
) -> BaseWSGIServer:
    """Binds a server of a WSGI application, which `serve_forever()` runs. Port 0 takes a free one, which `server.port`
    has. `refused` is called for each connection that is refused. Raises `OSError` if the port is taken, or the host is
    not this machine's.
    """
    try:
        return _Server(host, port, application, _Handler, refused=refused)
    except SystemExit as error:  # Werkzeug's answer to a port that is taken.
        raise OSError(f"Could not listen on {host}:{port}. Give another `host` or `port`.") from error
