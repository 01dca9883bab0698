"""Training progress on stderr: a progress bar in a terminal; otherwise, as in a log file, a line at each log
interval.
"""

import contextlib
import logging
import sys
import time

import tqdm

from t2t_keras.system.log import logger

FIRST_ESTIMATE_SECONDS = 30.0


class ProgressBar:
    """Shows how many of the `total` updates a run has made, as a context manager.

    While the bar is shown, log messages are written above it. With `shown` false, it shows nothing.
    """

    def __init__(self, total: int, step: int, shown: bool = True):
        terminal = bool(sys.stderr) and sys.stderr.isatty()  # `None` if it was closed at the start.
        hidden = not (shown and terminal)
        options = {"unit": " updates", "mininterval": 0.2, "dynamic_ncols": True}
        self._bar = tqdm.tqdm(total=total, initial=step, disable=hidden, **options)
        self._lines = shown and bool(sys.stderr) and not terminal
        self._total, self._first, self._step, self._started = total, step, step, time.monotonic()
        self._estimated = False
        self._log_above_bar = contextlib.ExitStack()

    def __enter__(self) -> "ProgressBar":
        if not self._bar.disable:
            import tqdm.contrib.logging  # In a notebook without ipywidgets, where no bar is shown, this import warns.

            self._log_above_bar.enter_context(
                tqdm.contrib.logging.logging_redirect_tqdm([logger] if logger.handlers else [logging.getLogger()])
            )
        return self

    def __exit__(self, *exception) -> None:
        self._bar.close()
        self._log_above_bar.close()

    def update(self) -> None:
        """Advances the bar by one update. In a log file, the first line with the time left comes after half a minute,
        however long updates take.
        """
        self._bar.update()
        self._step += 1
        if self._lines and not self._estimated and time.monotonic() - self._started > FIRST_ESTIMATE_SECONDS:
            self.log(self._step, {})

    def log(self, step: int, metrics: dict[str, str]) -> None:
        """Shows metrics, formatted values by name, after some updates: beside the bar, or on a line of their own with
        the time of day and the estimated time left.
        """
        self._bar.set_postfix(metrics, refresh=False)
        self._estimated = True
        if self._lines:
            seconds_left = (self._total - step) * (time.monotonic() - self._started) / (step - self._first)
            metrics = {**metrics, "time left": tqdm.tqdm.format_interval(seconds_left)}
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            shown = ", ".join(f"{name} {value}" for name, value in metrics.items())
            with contextlib.suppress(OSError):  # Training does not end with the reader of its log.
                print(f"{now} update {step:,} of {self._total:,}: {shown}", file=sys.stderr, flush=True)
