"""The library's logger. Python users configure it with `logging`; the programs show its messages on stderr."""

import contextlib
import logging
import re
from collections.abc import Callable, Iterator

logger = logging.getLogger("t2t_keras")
# Control characters but line feeds and tabs, and what changes the direction of text: a terminal obeys them.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Returns a text with its control characters escaped, as in "\\x1b[2J": values of a file may come from anybody."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def number_of(count: int, noun: str) -> str:
    """Returns a number with its noun, such as "1 pair" and "2,000 pairs"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


@contextlib.contextmanager
def passing(log: logging.Logger, passes: Callable[[logging.LogRecord], bool]) -> Iterator[None]:
    """Logs only the records that pass, inside a `with` block."""
    log.addFilter(passes)
    try:
        yield
    finally:
        log.removeFilter(passes)


def warnings_only(active: bool = True) -> contextlib.AbstractContextManager:
    """Logs only warnings and errors while active. Workers other than the chief use it."""
    return passing(logger, lambda record: record.levelno >= logging.WARNING or not active)
