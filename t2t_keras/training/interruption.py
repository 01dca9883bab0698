"""Stops a run early on SIGTERM, SIGINT (Ctrl-C) or a time limit, so that it can save its state first."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

# Exit code of a stopped run, EX_TEMPFAIL of sysexits.h: the same command, run again, resumes.
EXIT_CODE = 75
OTHER_WORKER_EXIT_CODE = 69  # Of a run whose other worker has ended, EX_UNAVAILABLE of sysexits.h.
SIGNALS = (signal.SIGTERM, signal.SIGINT)
ECHO_SECONDS = 0.5  # A terminal, a launcher and a service manager may each send the same signal once.


class StoppedError(Exception):
    """Raised when a run was stopped early and has saved its state."""


class OtherWorkerError(Exception):
    """Raised in a worker because another one has ended."""


class _Discarded(BaseException):
    """Raised by the signal handler inside `unless_stopped`. A `BaseException`, which no `except Exception` catches."""


class Interruption:
    """Turns the first signal, or a time limit, into a request to stop, as a context manager. A second signal ends the
    process at once; in an interactive session, such as a notebook, whose variables are to stay, a second Ctrl-C raises
    `KeyboardInterrupt` instead. The limit `max_hours`, 0 for none, counts from `started`, a time of `time.monotonic`.

    Python runs signal handlers in its main thread, between two byte codes. A call of TensorFlow can block the main
    thread for long or for good, so another thread waits for the second signal through `signal.set_wakeup_fd`.

    In a thread other than the main one, where Python does not allow signal handlers, only the time limit applies.
    """

    def __init__(self, max_hours: float = 0.0, started: float = math.inf):
        self._max_hours, self._started = max_hours, started
        self._signal, self._discardable, self._handlers = None, False, {}
        self._first = math.inf  # The time of the first signal.
        # Python has no `ps1` in a program, and the flag alone while the program of `python -i` runs.
        self._interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)

    @property
    def reason(self) -> str:
        """Why the run should stop; empty if it should continue."""
        if self._signal is not None:
            return f"received {self._signal.name}"
        over = 0 < self._max_hours <= (time.monotonic() - self._started) / 3600
        return f"reached the time limit max_hours={self._max_hours:g}" if over else ""

    def _handle(self, number, frame) -> None:
        if self._signal is None:
            self._signal, self._first = signal.Signals(number), time.monotonic()
            if self._discardable:
                raise _Discarded
        elif self._interrupts(number) and time.monotonic() - self._first > ECHO_SECONDS:
            raise KeyboardInterrupt

    def _interrupts(self, number: int) -> bool:
        return self._interactive and number == signal.SIGINT

    def _listen(self, pipe: int) -> None:
        first = None
        with open(pipe, "rb", buffering=0) as received:
            while numbers := received.read(64):
                for number in set(numbers) & set(SIGNALS):
                    late = first is not None and time.monotonic() - first > ECHO_SECONDS
                    if late and not self._interrupts(number):
                        os._exit(128 + number)
                    first = first or time.monotonic()

    def unless_stopped(self, work: Callable):
        """Returns `work()`, or `None` if a request to stop came before or during it. A signal ends the work at once."""
        try:
            try:
                self._discardable = True
                return None if self.reason else work()
            finally:
                self._discardable = False
        except _Discarded:
            return None

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
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
            os.close(self._pipe)  # Ends the listening thread.
