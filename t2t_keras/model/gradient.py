"""Functions with a hand-written gradient."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator

from keras import ops

_wanted: contextvars.ContextVar[bool] = contextvars.ContextVar("gradients", default=True)


@contextlib.contextmanager
def no_gradients() -> Iterator[None]:
    """Turns hand-written gradients off inside a `with` block. TensorFlow keeps each traced one, and its graph, until the process ends."""
    token = _wanted.set(False)
    try:
        yield
    finally:
        _wanted.reset(token)


def gradients_wanted() -> bool:
    """Returns whether hand-written gradients are on. A function that computes its gradient along with its result asks this."""
    return _wanted.get()


def custom_gradient(function: Callable) -> Callable:
    """Gives a function a hand-written gradient on every backend.

    It wraps `ops.custom_gradient`, which passes other arguments to the gradient on PyTorch than on TensorFlow and JAX.

    Args:
        function: returns its result and a gradient function, which maps the gradient of the result to those of the arguments.

    Returns:
        A function of the same arguments that returns the result only.
    """

    def with_arguments(*arguments):
        result, gradient = function(*arguments)

        def of_backend(*received, upstream=None):
            return gradient(received[0] if upstream is None else upstream)

        return result, of_backend

    def call(*arguments):
        return ops.custom_gradient(with_arguments)(*arguments) if _wanted.get() else function(*arguments)[0]

    return call
