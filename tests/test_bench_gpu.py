"""What `benchmarks/gpu.py` needs on a machine without TensorFlow, and what it refuses."""

import pathlib
import sys

import numpy as np
import programs
import pytest

from benchmarks.passes import stablehlo

ROOT = pathlib.Path(__file__).parent.parent


def test_boolean_constants_are_spelled_out():
    """Bits 0, 2, 3 and 9 of the bytes 0D and 02 are set."""
    text = 'a = dense<"0x0D02"> : tensor<2x5xi1>; b = dense<"0x0D02"> : tensor<2xi8>'
    assert stablehlo.spelled_out(text) == (
        "a = dense<[[true, false, true, true, false], [false, false, false, false, true]]> : tensor<2x5xi1>; "
        'b = dense<"0x0D02"> : tensor<2xi8>'
    )


def test_inputs_are_the_same_on_every_machine():
    ids, weight = {"shape": [2, 3], "below": 50}, {"shape": [2], "mean": 1, "deviation": 0.5}
    assert stablehlo.value_of(ids, 4).tolist() == np.random.default_rng(5).integers(4, 50, (2, 3)).tolist()
    expected = 1 + 0.5 * np.random.default_rng(9).standard_normal(2)
    np.testing.assert_allclose(stablehlo.value_of(weight, 8), expected, rtol=1e-6)
    assert stablehlo.value_of({"value": [7, 8], "dtype": "int64"}, 0).dtype == np.int64


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "Expected one of measure, export, run. Received: none."),
    (["all"], "Expected one of measure, export, run. Received: all."),
    (["run"], "`run` needs --folder."),
])  # fmt: skip
def test_wrong_commands_are_refused(arguments, message):
    command = [sys.executable, str(ROOT / "benchmarks/gpu.py"), *arguments]
    result = programs.run(command, modules=programs.WITHOUT_TENSORFLOW, capture_output=True, text=True)
    assert result.returncode == 1 and message in result.stdout + result.stderr
