"""Weights as constants of a graph: what is traced inside the scope holds the values of now, and needs no variables.

TensorFlow on a CPU keeps a constant weight in the order that its fastest product reads; a variable it reorders at each use.
"""

import threading

import keras
from keras import ops

_scopes = threading.local()


def _number() -> int:
    return getattr(_scopes, "number", 0)


class Constants(keras.StatelessScope):
    """The scope. A graph of a loop's body needs one of its own.

    Args:
        values: {id of a Keras variable: NumPy array, or a function that gives a tensor}, see `values_of`.
    """

    def __init__(self, values: dict):
        super().__init__()
        self.values, self.constants = values, {}

    def __enter__(self):
        _scopes.number = _number() + 1
        return super().__enter__()

    def __exit__(self, *error):
        _scopes.number = _number() - 1
        return super().__exit__(*error)

    def get_current_value(self, variable):
        """A variable's constant, made when it is first asked for: other weights stay out of the graph."""
        if id(variable) not in self.constants:
            value = self.values[id(variable)]
            self.constants[id(variable)] = value() if callable(value) else ops.convert_to_tensor(value)
        return self.constants[id(variable)]


def values_of(model) -> dict:
    """What `Constants` takes: a model's weights as they are now."""
    return {id(variable): ops.convert_to_numpy(variable.value) for variable in model.variables}


def are_weights_constant() -> bool:
    """Whether weights are constants here, so that no gradient is wanted."""
    return _number() > 0
