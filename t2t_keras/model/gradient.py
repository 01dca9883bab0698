"""Functions with a gradient of their own, written out."""

from collections.abc import Callable

from keras import ops

from t2t_keras.model.constants import are_weights_constant


def custom_gradient(function: Callable) -> Callable:
    """A function that returns its result and, from the gradient of that, those of its arguments; it gives the result alone.

    As `ops.custom_gradient`, whose gradients are called in one way on TensorFlow and JAX and in another on PyTorch. Where weights
    are constants no gradient is wanted, and TensorFlow, which keeps gradients for ever, would keep the weights with them.
    """

    def with_arguments(*arguments):
        result, gradient = function(*arguments)

        def of_backend(*received, upstream=None):
            return gradient(received[0] if upstream is None else upstream)

        return result, of_backend

    def call(*arguments):
        return function(*arguments)[0] if are_weights_constant() else ops.custom_gradient(with_arguments)(*arguments)

    return call
