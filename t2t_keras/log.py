"""The library's logger. Python users configure it with `logging`; the programs show its messages on stderr."""

import contextlib
import logging
from collections.abc import Iterator

logger = logging.getLogger("t2t_keras")


@contextlib.contextmanager
def warnings_only(active: bool = True) -> Iterator[None]:
    """Logs only warnings and errors while active. Workers other than the chief use it."""

    def passes(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or not active

    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)
