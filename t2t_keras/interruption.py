"""How a run is told to end before it is done: by SIGTERM, SIGINT (Ctrl-C) or a time limit; what was begun is saved first."""

import os
import signal
import threading
import time
from collections.abc import Callable

# What a stopped run's process exits with, sysexits.h's "temporary failure": the same command, run again, goes on.
EXIT_CODE = 75


class StoppedError(Exception):
    """A run was told to end, and has saved where it stands."""


class _Abandoned(BaseException):
    """Raised by the signal handler inside work that may be thrown away; nothing in between should take it for an error."""


class Interruption:
    """A context in which the first signal is a request, and the second ends the process at once.

    Args:
        max_hours: of time from now after which a request is made; 0: never.
    """

    def __init__(self, max_hours: float = 0.0):
        self._ends = time.monotonic() + 3600 * max_hours if max_hours else float("inf")
        self._limit = f"--max_hours={max_hours:g} are over"
        self._signal, self._abandonable, self._handlers = None, False, {}

    @property
    def reason(self) -> str:
        """Why the run is to end; empty while it is not."""
        if self._signal is not None:
            return f"received {self._signal.name}"
        return self._limit if time.monotonic() >= self._ends else ""

    def _handle(self, number, frame) -> None:
        if self._signal is not None:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self._signal = signal.Signals(number)
        if self._abandonable:
            raise _Abandoned

    def unless_told(self, work: Callable):
        """What `work()` returns; None where a signal came before or meanwhile: what is done inside is thrown away at once."""
        try:
            try:
                self._abandonable = True
                return None if self.reason else work()
            finally:
                self._abandonable = False
        except _Abandoned:
            return None

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():  # Elsewhere Python lets nobody handle signals.
            for number in (signal.SIGTERM, signal.SIGINT):
                self._handlers[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
