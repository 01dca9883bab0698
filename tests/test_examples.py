"""The examples in the docstrings of public layers and functions run, and their comments are true."""

import ast
import inspect
import re

import keras
import numpy as np
import pytest
from keras import ops

import t2t_keras
from t2t_keras.decoding.search_hooks import Hypotheses

# What `docs/python.md` explains by a whole program is not among them.
WITH_EXAMPLE = {
    *("MultiHeadAttention", "RestrictedSelfAttention", "restricted_attention", "scaled_dot_product_attention"),
    *("AddAndNorm", "DecoderLayer", "EncoderLayer", "FeedForward", "Dense", "Dropout", "LayerNorm"),
    *("LearnedPositions", "SinusoidalPositions", "SharedEmbedding", "causal_mask", "padding_mask", "shift_right"),
    *("Transformer", "TransformerEncoder", "LabelSmoothedCrossEntropy", "TransformerSchedule"),
    *("Scorer", "Selector", "follow", "mbr"),
}


def example_of(name: str) -> str:
    """The code of the example of a public name; empty if it has none."""
    match = re.search(r"^Example:\n\n```python\n(.*?)```", inspect.getdoc(getattr(t2t_keras, name)) or "", re.M | re.S)
    return match[1] if match else ""


def run(code: str) -> int:
    """Runs an example. An expression with a comment behind it must have the value in the comment. Counts these."""
    values = {"t2t_keras": t2t_keras, "keras": keras, "np": np, "ops": ops, "Hypotheses": Hypotheses}
    lines, checked = code.splitlines(), 0
    for statement in ast.parse(code).body:
        _, mark, comment = lines[statement.end_lineno - 1].partition("  # ")
        if isinstance(statement, ast.Expr) and mark:
            exec(f"value = {ast.unparse(statement)}", values)
            assert str(values["value"]) == comment, f"{ast.unparse(statement)} is {values['value']}"
            checked += 1
        else:
            exec(ast.unparse(statement), values)
    return checked


@pytest.mark.parametrize("name", sorted(t2t_keras.__all__))
def test_an_example_runs_and_says_the_truth(name):
    assert bool(code := example_of(name)) == (name in WITH_EXAMPLE)
    if code:
        assert run(code) > 0


def test_a_wrong_comment_is_found():
    assert run("x = 1  # a comment\nx + 1  # 2\n") == 1
    with pytest.raises(AssertionError, match="x . 1 is 2"):
        run("x = 1\nx + 1  # 3\n")
