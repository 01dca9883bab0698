"""Functions with a hand-written gradient."""

from collections.abc import Callable

from keras import ops

from t2t_keras.layers.inference import mode


def custom_gradient(function: Callable) -> Callable:
    """Gives a function a hand-written gradient on every backend.

    It wraps `ops.custom_gradient`, which passes other arguments to the gradient on PyTorch than on TensorFlow and JAX.
    A function that computes its gradient along with its result asks `mode` whether it is wanted.

    Args:
        function: returns its result and a gradient function, which maps the gradient of the result to those of the
            arguments.

    Returns:
        A function of the same arguments that returns the result only.
    """

    def with_arguments(*arguments):
        result, gradient = function(*arguments)

        def of_backend(*received, upstream=None):
            return gradient(received[0] if upstream is None else upstream)

        return result, of_backend

    def call(*arguments):
        return function(*arguments)[0] if mode().inference else ops.custom_gradient(with_arguments)(*arguments)

    return call
