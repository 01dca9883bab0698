"""What an option is: a field of a dataclass, with its help text and what its values must be."""

import dataclasses
import reprlib
import sys

MAX_INT = 2**31 - 1  # Largest value of an integer option that sets no smaller limit.
_TYPES = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}
_SHORTENED = reprlib.Repr()  # For messages: values may have any size.
_SHORTENED.maxstring = _SHORTENED.maxother = _SHORTENED.maxlong = 200


def option(default, text: str, maximum: int = MAX_INT):
    """Returns a dataclass field.

    Args:
        default: the default value.
        text: the help text.
        maximum: largest value of an integer option.
    """
    return dataclasses.field(default=default, metadata={"help": text, "maximum": maximum})


def require(fields, condition: bool, names: str, expected: str) -> None:
    """Raises `ValueError` unless a condition holds.

    Args:
        fields: the dataclass.
        condition: the condition.
        names: space-separated fields that it is about; the message shows their values.
        expected: what the message expects.
    """
    if not condition:
        received = ", ".join(f"{name}={_SHORTENED.repr(getattr(fields, name))}" for name in names.split())
        raise ValueError(f"Expected {expected}. Received: {received}.")


def check_types(fields) -> None:
    """Checks that each field has a value of its type, and that numbers are finite and within the limit of their
    field.
    """
    for field in dataclasses.fields(fields):
        value = getattr(fields, field.name)
        fits = isinstance(value, (int, float) if field.type is float else field.type) and (
            field.type is bool or not isinstance(value, bool)
        )
        if fits and field.type is float:
            fits = abs(value) <= sys.float_info.max
        require(fields, fits, field.name, _TYPES[field.type])
        if field.type is int:
            maximum = field.metadata["maximum"]
            require(fields, value <= maximum, field.name, f"at most {maximum:,}")
