"""Functions with a gradient of their own, written out."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator

from keras import ops

_wanted: contextvars.ContextVar[bool] = contextvars.ContextVar("gradients", default=True)


@contextlib.contextmanager
def no_gradients() -> Iterator[None]:
    """Inside, no gradient is recorded. TensorFlow keeps recorded gradients for ever, and with them the graph they are in."""
    token = _wanted.set(False)
    try:
        yield
    finally:
        _wanted.reset(token)


def custom_gradient(function: Callable) -> Callable:
    """A function of the same arguments that returns the result alone and has the gradient written beside it.

    As `ops.custom_gradient`, which TensorFlow and JAX call in one way and PyTorch in another.

    Args:
        function: returns its result, and a function from the gradient of the result to those of the arguments.
    """

    def with_arguments(*arguments):
        result, gradient = function(*arguments)

        def of_backend(*received, upstream=None):
            return gradient(received[0] if upstream is None else upstream)

        return result, of_backend

    def call(*arguments):
        return ops.custom_gradient(with_arguments)(*arguments) if _wanted.get() else function(*arguments)[0]

    return call
