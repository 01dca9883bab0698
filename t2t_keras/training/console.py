"""Progress of a training run on stderr: a bar in a terminal; elsewhere, as in a log file, a line with the time at each log interval."""

import sys
import time
from collections.abc import Callable

import tqdm


class Console:
    """Shows the progress of a run. A context manager.

    Args:
        total: updates of the whole run.
        step: updates made before.
        say: called with other messages.
        shown: False shows no progress.
    """

    def __init__(self, total: int, step: int, say: Callable, shown: bool = True):
        terminal = sys.stderr.isatty()
        self._bar = tqdm.tqdm(
            total=total, initial=step, unit=" updates", mininterval=0.2, dynamic_ncols=True, disable=not (shown and terminal)
        )
        self._lines = shown and not terminal
        self._say, self._total, self._first, self._began = say, total, step, time.monotonic()

    def __enter__(self) -> "Console":
        return self

    def __exit__(self, *exception) -> None:
        self._bar.close()

    def say(self, text: str) -> None:
        """Passes a message on, above the bar if there is one."""
        with self._bar.external_write_mode():
            self._say(text)
        sys.stdout.flush()

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
            sys.stdout.flush()  # Where both go to one file, lines keep their order.
            print(f"{now} update {step:,} of {self._total:,}: {shown}", file=sys.stderr, flush=True)
