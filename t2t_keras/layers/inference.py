"""How the network runs. In inference, nothing is differentiated and an engine may compute linear maps in its own way.
In training, functions may have a hand-written gradient.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import NamedTuple

from keras import ops


class Mode(NamedTuple):
    """Whether nothing is differentiated; the function of an engine that computes `dense.linear`; and whether XLA
    compiles the network, for one shape.
    """

    inference: bool = False
    linear: Callable | None = None
    compiled: bool = False


_TRAINING = Mode()
_mode: contextvars.ContextVar[Mode] = contextvars.ContextVar("mode", default=_TRAINING)


def mode() -> Mode:
    """Returns how the network runs at this point of the program."""
    return _mode.get()


@contextlib.contextmanager
def inference(linear: Callable | None = None) -> Iterator[None]:
    """Enters the mode of inference inside a `with` block: no hand-written gradients, and `linear` computes
    `dense.linear`, for an engine that is faster: (rows [N, D], kernel [D, F], bias [F] or `None`) → [N, F]. `None`
    leaves it as it is.

    TensorFlow keeps each traced gradient, and its graph, until the process ends.
    """
    token = _mode.set(Mode(True, linear or mode().linear))
    try:
        yield
    finally:
        _mode.reset(token)


@contextlib.contextmanager
def compiled() -> Iterator[None]:
    """Enters a part that XLA compiles inside a `with` block: functions then prefer few large operations to many small
    ones, because XLA fuses what lies between matrix products.
    """
    token = _mode.set(mode()._replace(compiled=True))
    try:
        yield
    finally:
        _mode.reset(token)


def custom_gradient(function: Callable) -> Callable:
    """Gives a function a hand-written gradient on every backend. `function` returns its result and a gradient function,
    which maps the gradient of the result to those of the arguments; the new function returns only the result.

    It wraps `ops.custom_gradient`, which passes other arguments to the gradient on PyTorch than on TensorFlow and JAX.
    A function that computes its gradient along with its result asks `mode` whether it is wanted.
    """

    def with_gradient(*arguments):
        result, gradient = function(*arguments)

        def backend_gradient(*received, upstream=None):
            return gradient(received[0] if upstream is None else upstream)

        return result, backend_gradient

    def call(*arguments):
        return function(*arguments)[0] if mode().inference else ops.custom_gradient(with_gradient)(*arguments)

    return call
