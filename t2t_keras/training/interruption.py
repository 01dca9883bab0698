"""Stopping a run early by SIGTERM, SIGINT (Ctrl-C) or a time limit: it saves its state first."""

import os
import signal
import threading
import time
from collections.abc import Callable

# What a stopped run's process exits with, sysexits.h's "temporary failure": the same command, run again, resumes.
EXIT_CODE = 75
SIGNALS = (signal.SIGTERM, signal.SIGINT)
ECHO_SECONDS = 0.5  # A terminal, a launcher and a service manager may each pass on the same signal.
STARTED = time.monotonic()  # The process, near enough: programs import this among the first.


class StoppedError(Exception):
    """A run was stopped early and has saved its state."""


class _Abandoned(BaseException):
    """Raised by the signal handler inside work that may be thrown away; nothing in between should take it for an error."""


class Interruption:
    """A context in which the first signal is a request, and a second one ends the process at once.

    Python handles signals between two steps of its main thread, which may be inside TensorFlow for long, or for ever. So that
    the second signal works there too, another thread hears of them through `signal.set_wakeup_fd`.

    Args:
        max_hours: of time from the start of the process after which a request is made; 0: never.
    """

    def __init__(self, max_hours: float = 0.0):
        self._max_hours = max_hours
        self._signal, self._abandonable, self._handlers = None, False, {}

    @property
    def reason(self) -> str:
        """Why the run is to end; empty while it is not."""
        if self._signal is not None:
            return f"received {self._signal.name}"
        over = 0 < self._max_hours <= (time.monotonic() - STARTED) / 3600
        return f"--max_hours={self._max_hours:g} are over" if over else ""

    def _handle(self, number, frame) -> None:
        if self._signal is None:
            self._signal = signal.Signals(number)
            if self._abandonable:
                raise _Abandoned

    def _listen(self, pipe: int) -> None:
        first = None
        while numbers := os.read(pipe, 64):
            for number in set(numbers) & set(SIGNALS):
                if first is not None and time.monotonic() - first > ECHO_SECONDS:
                    os._exit(128 + number)
                first = first or time.monotonic()

    def unless_stopped(self, work: Callable):
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
            listening, self._pipe = os.pipe()
            os.set_blocking(self._pipe, False)
            threading.Thread(target=self._listen, args=(listening,), daemon=True).start()
            self._wakeup = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
            self._handlers = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *exception) -> None:
        if self._handlers:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._wakeup)
            os.close(self._pipe)  # The listener reads the end, and ends.
