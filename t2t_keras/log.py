"""The library's logger. Python users turn it on with `logging`; programs show its messages as plain lines on stderr."""

import contextlib
import logging
from collections.abc import Iterator

logger = logging.getLogger("t2t_keras")


@contextlib.contextmanager
def warnings_only(active: bool = True) -> Iterator[None]:
    """While active, logs warnings and errors only, as workers other than the chief do."""

    def passes(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or not active

    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)
