"""Arrays become the values of variables by name, all or none, and what has no counterpart is named."""

import keras
import numpy as np
import pytest

from t2t_keras.runs import weights
from t2t_keras.runs.weights import Left, MismatchError

ARRAYS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.float32([7, 8]), "n": np.int32(9)}


def variables(**changes) -> dict[str, keras.Variable]:
    """Variables of the names, shapes and dtypes of `ARRAYS`, but for the changes; all zeros."""
    zeros = {name: np.zeros_like(array) for name, array in ARRAYS.items()} | changes
    return {name: keras.Variable(value, dtype=str(value.dtype)) for name, value in zeros.items() if value is not None}


def values(these: dict) -> dict[str, list]:
    return {name: np.asarray(variable).tolist() for name, variable in these.items()}


def test_same_names_take_their_arrays_and_nothing_is_left():
    these = variables()
    assert weights.assign(these, ARRAYS) == Left([], [])
    assert values(these) == values(ARRAYS)


# What differs from ARRAYS, how names map, whether that is asked for → what is left; what the variables become.
ZEROS = {name: np.zeros_like(array).tolist() for name, array in ARRAYS.items()}
GIVEN = values(ARRAYS)
MAPPINGS = {
    "renamed": ({"a": None, "A": np.zeros_like(ARRAYS["a"])}, str.lower, False, Left([], []), {"A": GIVEN["a"]}),
    "two of one array": ({"c": np.zeros_like(ARRAYS["b"])}, lambda name: name.replace("c", "b"), False, Left([], []),
                         {"c": GIVEN["b"]}),
    "left as it is": ({"c": np.float32([5])}, lambda name: None if name == "c" else name, False, Left(["c"], []),
                      {"c": [5]}),
    "left out": ({}, lambda name: None if name == "b" else name, True, Left(["b"], ["b"]), {"b": ZEROS["b"]}),
    "one more variable": ({"c": np.float32([5])}, str, True, Left(["c"], []), {"c": [5]}),
    "one more array": ({"b": None}, str, True, Left([], ["b"]), {}),
    "only one in common": ({"b": None, "n": None, "d": np.float32(1), "c": np.float32(1)}, str, True,
                           Left(["c", "d"], ["b", "n"]), {}),
}  # fmt: skip


@pytest.mark.parametrize("case", MAPPINGS)
def test_names_are_mapped_and_what_is_left_is_reported(case):
    changes, names, partial, left, expected = MAPPINGS[case]
    these = variables(**changes)
    before = values(these)
    assert weights.assign(these, ARRAYS, names, partial=partial) == left
    assert values(these) == {name: GIVEN.get(name, before[name]) for name in these} | expected


REFUSED = {
    "one is missing": ({"c": np.float32(0)}, str, {}, "file has no 'c': it belongs to another model."),
    "three are missing": (dict.fromkeys("edc", np.float32(0)), str, {},
        "file has no 'c' and 2 more: it belongs to another model."),
    "one is too much": ({"b": None}, str, {}, "file has 'b': it belongs to another model."),
    "both": ({"b": None, "n": None, "c": np.float32(0)}, str, {},
        "file has no 'c' but has 'b' and 1 more: it belongs to another model."),
    "missing by its name in the file": ({}, lambda name: f"x/{name}", {},
        "file has no 'x/a' and 2 more but has 'a' and 2 more: it be"),
    "nothing in common": ({}, lambda name: None, {"partial": True},
        "file has 'a' and 2 more: it belongs to another model."),
    "shape": ({"n": np.zeros((4, 5), np.int32)}, str, {},
        "Expected 'n' of shape and dtype ((4, 5), 'int32') in file. Received: (()"),
    "shape of some": ({"b": np.float32([0] * 3)}, str, {"partial": True},
        "'b' of shape and dtype ((3,), 'float32') in file. Received"),
    "shape with a cast": ({"b": np.float32([0] * 3)}, str, {"cast": True},
        "Expected 'b' of shape and dtype ((3,), 'float') in file."),
    "dtype": ({"b": np.float16([0, 0])}, str, {},
        "'b' of shape and dtype ((2,), 'float16') in file. Received: ((2,), 'float32')."),
    "an integer is no number to round": ({"n": np.float32(0)}, str, {"cast": True},
        "((), 'float') in file. Received: ((), 'int32')."),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_by_name_with_nothing_assigned(case):
    changes, names, options, expected = REFUSED[case]
    these = variables(**changes)
    before = values(these)
    with pytest.raises(MismatchError) as raised:
        weights.assign(these, ARRAYS, names, source="file", **options)
    assert expected in str(raised.value)
    assert values(these) == before


def test_a_cast_rounds_to_the_nearest_even_number_of_the_variable_s_type():
    """bfloat16 has 8 bits of fraction with the first: of 256 to 512 it has the even numbers."""
    these = {"x": keras.Variable(np.zeros(5), dtype="bfloat16")}
    weights.assign(these, {"x": keras.Variable([256, 257, 258, 259, 261], dtype="float32")}, cast=True)
    assert np.asarray(keras.ops.cast(these["x"], "float32")).tolist() == [256, 256, 258, 260, 260]


def test_only_headers_of_matching_names_are_asked_for_and_all_before_any_is_assigned():
    asked = []

    def header(name):
        asked.append(name)
        return ARRAYS[name]

    weights.match(variables(b=None), ARRAYS.keys(), header, partial=True)
    assert asked == ["a", "n"]
