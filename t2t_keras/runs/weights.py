"""Assigns arrays to variables by name. All names, shapes and dtypes are checked first: an error leaves every variable
as it was.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

Names = Callable[[str], str | None]


class MismatchError(ValueError):
    """Arrays do not fit the variables."""


class Left(NamedTuple):
    """Names without a counterpart."""

    unset: list[str]  # Variables that keep their values.
    unused: list[str]  # Arrays that no variable takes.


def match(
    variables: Mapping[str, Any],
    stored: Collection[str],
    header: Callable[[str], Any],
    names: Names = str,
    *,
    source: object = "the arrays",
    partial: bool = False,
    cast: bool = False,
) -> tuple[dict[str, Any], Left]:
    """Finds the array of each variable, with the arguments and errors of `assign`, but for the arrays: `stored` are
    their names, and `header` maps the name of one that matches to an object with its `shape` and `dtype`.

    Returns the headers by name of the variable, and what is left.
    """
    chosen = {name: names(name) for name in variables}
    matched = {name: array for name, array in chosen.items() if array in stored}
    left = Left(sorted(variables.keys() - matched.keys()), sorted(set(stored) - set(matched.values())))
    missing = [chosen[name] for name in left.unset if chosen[name] is not None]
    if (missing or left.unused) and not (partial and matched):
        differing = " but has ".join(no + _some(these) for no, these in (("no ", missing), ("", left.unused)) if these)
        raise MismatchError(f"{source} has {differing}: it belongs to another model.")
    headers = {name: header(array) for name, array in matched.items()}
    for name, found in headers.items():
        expected, received = ((tuple(each.shape), _dtype(each, cast)) for each in (variables[name], found))
        if expected != received:
            raise MismatchError(f"Expected '{name}' of shape and dtype {expected} in {source}. Received: {received}.")
    return headers, left


def assign(
    variables: Mapping[str, Any],
    arrays: Mapping[str, Any],
    names: Names = str,
    *,
    source: object = "the arrays",
    partial: bool = False,
    cast: bool = False,
) -> Left:
    """Assigns NumPy arrays or variables to variables by name, and returns what is left. Raises `MismatchError` if the
    names differ, or an array has another shape or dtype than its variable.

    Args:
        names: name of a variable → name of its array, or `None` if the variable keeps its value. By default the names
            are the same.
        source: where the arrays come from, for messages.
        partial: whether variables may lack an array and arrays a variable. At least one of them must match.
        cast: whether floating-point arrays of any precision are rounded to that of their variables.
    """
    matched, left = match(
        variables, arrays.keys(), arrays.__getitem__, names, source=source, partial=partial, cast=cast
    )
    for name, array in matched.items():
        variables[name].assign(array)
    return left


def _dtype(array, cast: bool) -> str:
    name = getattr(array.dtype, "name", array.dtype)  # Keras gives a name, NumPy and TensorFlow an object.
    return "float" if cast and "float" in name else name


def _some(names: list[str]) -> str:
    first, *others = sorted(names)
    return f"'{first}'" + (f" and {len(others)} more" if others else "")
