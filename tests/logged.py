"""What the library logs, for tests."""

import contextlib
import logging
from collections.abc import Callable, Iterator

from t2t_keras.system.log import logger


@contextlib.contextmanager
def logged(act: Callable[[str], None] = lambda message: None) -> Iterator[list[str]]:
    """The messages logged inside, of all levels; `act` is called with each."""
    messages, level, handler = [], logger.level, logging.Handler()

    def emit(record: logging.LogRecord) -> None:
        messages.append(record.getMessage())
        act(messages[-1])

    handler.emit = emit
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
