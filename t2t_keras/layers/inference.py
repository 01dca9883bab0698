"""Inference: nothing is differentiated, and an engine may compute linear maps in its own way."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Mode(NamedTuple):
    """How the network runs: whether nothing is differentiated, and the function of an engine that computes
    `dense.linear`.
    """

    inference: bool = False
    linear: Callable | None = None


_TRAINING = Mode()
_mode: contextvars.ContextVar[Mode] = contextvars.ContextVar("mode", default=_TRAINING)


def mode() -> Mode:
    """Returns how the network runs at this point of the program."""
    return _mode.get()


@contextlib.contextmanager
def inference(linear: Callable | None = None) -> Iterator[None]:
    """Enters the mode of inference inside a `with` block: no hand-written gradients, and `linear` computes linear maps.

    TensorFlow keeps each traced gradient, and its graph, until the process ends.

    Args:
        linear: computes `dense.linear`, for an engine that is faster: (rows [N, D], kernel [D, F], bias [F] or `None`)
            → [N, F]. `None` leaves it as it is.
    """
    token = _mode.set(Mode(True, linear or mode().linear))
    try:
        yield
    finally:
        _mode.reset(token)
