"""Progress of a training run on stderr: a bar in a terminal; elsewhere, as in a log file, a line with the time at each log interval."""

import contextlib
import sys
import time

import tqdm
import tqdm.contrib.logging

from t2t_keras.log import logger


class Console:
    """Shows the progress of a run. A context manager.

    Args:
        total: updates of the whole run.
        step: updates made before.
        shown: False shows no progress.
    """

    def __init__(self, total: int, step: int, shown: bool = True):
        terminal = sys.stderr.isatty()
        self._bar = tqdm.tqdm(
            total=total, initial=step, unit=" updates", mininterval=0.2, dynamic_ncols=True, disable=not (shown and terminal)
        )
        self._lines = shown and not terminal
        self._total, self._first, self._began = total, step, time.monotonic()
        self._log_above_bar = contextlib.ExitStack()

    def __enter__(self) -> "Console":
        if not self._bar.disable:
            self._log_above_bar.enter_context(tqdm.contrib.logging.logging_redirect_tqdm([logger]))
        return self

    def __exit__(self, *exception) -> None:
        self._bar.close()
        self._log_above_bar.close()

    def update(self) -> None:
        """Counts an update."""
        self._bar.update()

    def log(self, step: int, figures: dict[str, str]) -> None:
        """Shows figures by name: after the bar, which has the time left, or as a line with that and the time of day."""
        self._bar.set_postfix(figures, refresh=False)
        if self._lines:
            seconds_left = (self._total - step) * (time.monotonic() - self._began) / (step - self._first)
            figures = {**figures, "time left": tqdm.tqdm.format_interval(seconds_left)}
            now, shown = time.strftime("%Y-%m-%d %H:%M:%S"), ", ".join(f"{name} {value}" for name, value in figures.items())
            print(f"{now} update {step:,} of {self._total:,}: {shown}", file=sys.stderr, flush=True)
