"""Private names of other packages: one module uses them, and each means what it did when its function was written."""

import ast
import importlib.util
import inspect
import pathlib
import re
import sys
import textwrap
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import sacrebleu
import tensorflow as tf
from keras.src import backend
from keras.src.backend.common import global_state
from sacrebleu.metrics.base import Metric
from tensorflow.python.framework import ops as tensorflow_ops

from t2t_keras.system import compat
from t2t_keras.text import byte_pairs

if importlib.util.find_spec("tensorflow_text"):
    import tensorflow_text as tf_text
    from tensorflow_text.python.ops import sentencepiece_tokenizer
else:
    tf_text = sentencepiece_tokenizer = None

ROOT = pathlib.Path(__file__).parent.parent
COMPAT = ROOT / "t2t_keras/system/compat.py"
FILES = sorted({*(ROOT / "t2t_keras").rglob("*.py"), *(ROOT / "tools").glob("*.py")} - {COMPAT})
# Documented, in spite of their underscore; and Python's own parser of regular expressions, which `config` needs.
PUBLIC = {"_asdict", "_fields", "_make", "_replace", "_exit", "_create_resource", "_destroy_resource", "_initialize"}
PUBLIC |= {"_parser"}
PRIVATE = re.compile(r"_[a-z]\w*", re.IGNORECASE)


def keras_mask():
    layer = keras.layers.Embedding(9, 4, mask_zero=True)
    x = layer(np.array([[5, 3, 0]]))
    np.testing.assert_array_equal(compat.keras_mask(x), [[True, True, False]])
    np.testing.assert_array_equal(compat.keras_mask(keras.layers.Dropout(0.1)(x)), [[True, True, False]])
    assert compat.keras_mask(tf.zeros([1, 3])) is None and compat.keras_mask([x, x]) is None


def with_keras_mask():
    x, mask = tf.zeros([1, 3, 4]), np.array([[True, True, False]])
    np.testing.assert_array_equal(compat.keras_mask(compat.with_keras_mask(x, mask)), mask)
    np.testing.assert_array_equal(compat.keras_mask(keras.layers.Dropout(0.1)(x)), mask)


def layers_of():
    dense = [keras.layers.Dense(2) for _ in range(3)]
    inner = keras.Sequential([dense[0], dense[1]])
    model = keras.Sequential([inner, dense[2], dense[0]])
    received = [layer for layer in compat.layers_of(model) if not isinstance(layer, keras.layers.InputLayer)]
    assert sorted(map(id, received)) == sorted(map(id, [inner, *dense]))


def own_names():
    keras.layers.Dense(1)
    with compat.own_names():
        assert [keras.layers.Dense(1).name for _ in range(2)] == ["dense", "dense_1"]
    before = int(keras.layers.Dense(1).name.rpartition("_")[2])
    with compat.own_names():
        keras.layers.Dense(1)
    assert keras.layers.Dense(1).name == f"dense_{before + 1}"


def replaced_calls():
    layer, other = keras.layers.Dense(2), keras.layers.Dense(2)
    layer.build((1, 3)), other.build((1, 3))
    x, before = tf.ones([1, 3]), set(vars(layer))
    expected, wanted = x @ layer.kernel, x @ other.kernel
    with compat.replaced_calls([(layer, other)]):
        np.testing.assert_array_equal(layer(x), wanted)
        with compat.replaced_calls([(layer, lambda x: 7 * x)]):
            np.testing.assert_array_equal(layer(x), 7 * x)
        np.testing.assert_array_equal(layer(x), wanted)
        assert len(layer.weights) == 2  # The other layer is not a part of it.
    np.testing.assert_array_equal(layer(x), expected)
    assert set(vars(layer)) == before


def adam_averages():
    optimizer = keras.optimizers.Adam(beta_1=0.75, beta_2=0.875)
    weights, gradients = (
        [keras.Variable(np.zeros(size, "float32")) for size in (2, 3)],
        [tf.ones([2]), 4 * tf.ones([3])],
    )
    optimizer.build(weights)
    optimizer.apply(gradients)
    for weight, gradient in zip(weights, gradients, strict=True):
        mean, variance = compat.adam_averages(optimizer, weight)
        np.testing.assert_allclose(mean.value, 0.25 * gradient)
        np.testing.assert_allclose(variance.value, 0.125 * gradient**2)


def moving_average():
    optimizer = keras.optimizers.Adam(use_ema=True, ema_momentum=0.75)
    weights = [keras.Variable(np.zeros(size, "float32"), name=name) for size, name in ((2, "a"), (3, "b"))]
    optimizer.build(weights)
    for _ in range(2):
        expected = [np.array(weight) for weight in weights]
        optimizer.apply([tf.ones([2]), -tf.ones([3])])
    for weight, first in zip(weights, expected, strict=True):
        wanted = 0.75 * first + 0.25 * np.array(weight)
        np.testing.assert_allclose(compat.moving_average(optimizer, weight), wanted, rtol=1e-6)


def moving_averages():
    optimizer = keras.optimizers.Adam(use_ema=True)
    weights = [keras.Variable(np.zeros(size, "float32"), name=name) for size, name in ((2, "a"), (3, "b"))]
    optimizer.build(weights)
    found = compat.moving_averages(optimizer)
    assert list(found) == ["a", "b"]
    assert all(found[weight.path] is compat.moving_average(optimizer, weight) for weight in weights)


def number_collective_keys():
    def keys_of(number: int) -> set[int]:
        class Strategy(tf.distribute.MirroredStrategy):
            def __init__(self):
                compat.number_collective_keys(self, number)
                super().__init__(["/cpu:0", "/cpu:1"])

        strategy = Strategy()

        def summed():
            return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.ones([])))

        operations = tf.function(summed).get_concrete_function().graph.get_operations()
        return {int(tf.get_static_value(each.inputs[2])) for each in operations if each.type == "CollectiveReduceV2"}

    assert keys_of(1) == keys_of(1) and keys_of(1).isdisjoint(keys_of(2))


def number_functions_from_a_round_number():
    def number() -> int:
        function = tf.function(lambda: tf.ones([])).get_concrete_function()
        return int(function.name.rpartition(b"_")[2])

    found = []
    for _ in range(2):
        compat.number_functions_from_a_round_number()
        found.append(number())
    assert number() > found[1] == found[0] + 1_000_000


def share_sentencepiece_model():
    if tf_text is None:
        pytest.skip("TF.Text is not installed")
    lines = (f"{number} times {number + 1}".encode() for number in range(100))
    model = byte_pairs.learn(lines, 280, sample=100, seed=1, normalization="identity", character_coverage=1.0)
    tokenizer, text = tf_text.SentencepieceTokenizer(model, out_type=tf.int32), ["7 times 8"]
    expected = tokenizer.tokenize(text).to_list()
    compat.share_sentencepiece_model(tokenizer, model)
    tf.random.set_seed(1)
    assert tokenizer.tokenize(text).to_list() == expected
    assert tokenizer.detokenize(expected).numpy().tolist() == [b"7 times 8"]


SYSTEM, REFERENCES = ["a b c d e", "f"], [["a b c d x", "f g"]]


def corpus_statistics():
    bleu = sacrebleu.BLEU()
    first, second = compat.corpus_statistics(bleu, SYSTEM, REFERENCES)
    # Lengths of system and reference, then right and all n-grams of each order.
    assert list(first) == [5, 5, 4, 3, 2, 1, 5, 4, 3, 2] and list(second) == [1, 2, 1, 0, 0, 0, 1, 0, 0, 0]


def score_of_statistics():
    for metric in (sacrebleu.BLEU(), sacrebleu.CHRF()):
        found = (compat.corpus_statistics(metric, SYSTEM, references) for references in ([SYSTEM], REFERENCES))
        whole, other = (np.sum(each, axis=0).tolist() for each in found)
        assert compat.score_of_statistics(metric, whole) == pytest.approx(100)
        assert compat.score_of_statistics(metric, other) == metric.corpus_score(SYSTEM, REFERENCES).score


CHECKS = (
    keras_mask, with_keras_mask, layers_of, own_names, replaced_calls, adam_averages, moving_average, moving_averages,
    number_collective_keys, number_functions_from_a_round_number, share_sentencepiece_model, corpus_statistics,
    score_of_statistics,
)  # fmt: skip


def verify(check) -> None:
    """Runs a check. Fails with a sentence."""
    try:
        check()
    except Exception as error:
        tf_text_version = tf_text.__version__ if tf_text else "not installed"
        versions = f"TensorFlow {tf.__version__}, TF.Text {tf_text_version}, Keras {keras.__version__}"
        pytest.fail(
            f"A private name that compat.{check.__name__} uses has gone or changed its meaning ({versions}). "
            f"The docstring of the function says what the name stood for. {type(error).__name__}: {error}",
            pytrace=False,
        )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_private_name_means_what_it_did(check):
    verify(check)


def test_every_function_of_the_module_has_a_check_and_says_what_is_private():
    functions = [value for value in vars(compat).values() if getattr(value, "__module__", "") == compat.__name__]
    assert [function.__name__ for function in functions] == [check.__name__ for check in CHECKS]
    assert all("Private: `" in function.__doc__ for function in functions)


@pytest.mark.parametrize(("check", "owner", "name", "meaning"), [
    (keras_mask, backend, "get_keras_mask", lambda x: None),
    (with_keras_mask, backend, "set_keras_mask", lambda x, mask: None),
    (layers_of, keras.Layer, "_flatten_layers", lambda self, include_self: self.layers),
    (own_names, global_state, "set_global_attribute", lambda name, value: None),
    (replaced_calls, keras.Layer, "__call__", lambda self, x: type(self).call(self, x)),
    (adam_averages, keras.optimizers.Adam, "_get_variable_index", lambda self, variable: 0),
    (moving_average, keras.optimizers.Adam, "_get_variable_index", lambda self, variable: 0),
    (number_collective_keys, tf.distribute.MirroredStrategy, "_collective_key_base",
     property(lambda self: 0, lambda self, base: None)),
    (number_functions_from_a_round_number, tensorflow_ops, "uid", lambda: 0),
    (share_sentencepiece_model, sentencepiece_tokenizer, "_SentencepieceModelResource", lambda model, name: None),
    (corpus_statistics, Metric, "_extract_corpus_statistics", lambda self, system, references: [[1.0], [2.0]]),
    (score_of_statistics, sacrebleu.BLEU, "_compute_score_from_stats", lambda self, sums: SimpleNamespace(score=1.0)),
], ids=lambda value: getattr(value, "__name__", ""))  # fmt: skip
def test_a_name_that_changes_its_meaning_is_reported(monkeypatch, check, owner, name, meaning):
    if owner is None:
        pytest.skip("TF.Text is not installed")
    monkeypatch.setattr(owner, name, meaning)
    said = f"compat.{check.__name__} uses has gone or changed its meaning .*Keras {keras.__version__}"
    with pytest.raises(pytest.fail.Exception, match=said):
        verify(check)


# No other file.


def defined(tree: ast.AST) -> set[str]:
    """Returns the attributes that the classes of a file define: fields, methods, and what they assign to `self` and
    `cls`.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found |= {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.ClassDef)}
            fields = [part for part in node.body if isinstance(part, ast.Assign | ast.AnnAssign)]
            found |= {each.id for part in fields for each in ast.walk(part) if isinstance(each, ast.Name)}
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found |= {node.attr} if ast.unparse(node.value) in ("self", "cls") else set()
    return found


def private_names(code: str) -> list[str]:
    """Returns the private names of other modules that a file uses."""
    tree = ast.parse(code)
    allowed, found = defined(tree) | PUBLIC, []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.append(node.attr)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            names = [part for name in (*modules, *(alias.name for alias in node.names)) for part in name.split(".")]
            # Of Keras and of TensorFlow.
            found += [f"_{name}" if name in ("src", "python") else name for name in names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr", "delattr"):
            found += [ast.literal_eval(node.args[1])] if isinstance(node.args[1], ast.Constant) else []
    return [name for name in found if PRIVATE.fullmatch(name) and name not in allowed]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_uses_no_private_name_of_another_module(path):
    assert private_names(path.read_text(encoding="utf-8")) == [], f"Use them in {COMPAT.relative_to(ROOT)}."


@pytest.mark.parametrize(("code", "expected"), [
    ("x._keras_mask", ["_keras_mask"]),
    ("x.y()._z = 1", ["_z"]),
    ("getattr(x, '_keras_mask', None)", ["_keras_mask"]),
    ("from keras.src import backend", ["_src"]),
    ("import tensorflow.python.ops", ["_python"]),
    ("from absl.flags import _flag", ["_flag"]),
    ("class A(B):\n    def f(self):\n        return self._of_base", ["_of_base"]),
    ("def _parse(): pass\nclass A(B):\n    def f(self):\n        return self._parse()", ["_parse"]),
    ("class A(B):\n    def __init__(self):\n        self._x = 1\n    def f(self, other):\n"
     "        return self._x + other._x", []),
    ("class A(B):\n    _x: int = 1\n    _y, _z = 2, 3\n    def f(self):\n        return self._x, self._y, self._z", []),
    ("row._replace(x=1), x.__class__, _helper(), from_module.name", []),
])  # fmt: skip
def test_a_private_name_is_found_wherever_it_stands(code, expected):
    assert private_names(code) == expected


def source_of(cls: type) -> str:
    """Returns the source of a class, empty for one that is not written in Python."""
    try:
        return inspect.getsource(cls)
    except (TypeError, OSError):
        return ""


def taken(cls: type) -> dict[str, set[str]]:
    """Returns the private names that a class defines although a base in another package uses them, by the name of the
    base.
    """
    own = {name for name in defined(ast.parse(textwrap.dedent(source_of(cls)))) if PRIVATE.fullmatch(name)} - PUBLIC
    bases = [base for base in cls.__mro__ if base.__module__.split(".")[0] != cls.__module__.split(".")[0]]
    found = {base.__name__: own & set(re.findall(r"\b_[a-z]\w*", source_of(base))) for base in bases}
    return {name: names for name, names in found.items() if names}


@pytest.mark.medium
def test_no_class_takes_a_private_name_that_its_base_in_another_package_has():
    """Where it replaced one without knowing, the base would break."""
    for path in sorted((ROOT / "t2t_keras").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if any(map(PRIVATE.fullmatch, defined(ast.parse(path.read_text(encoding="utf-8"))))):
            classes = [value for value in vars(importlib.import_module(name)).values() if inspect.isclass(value)]
            assert [(cls, taken(cls)) for cls in classes if cls.__module__ == name and taken(cls)] == []


def test_a_private_name_that_is_taken_is_found():
    class Numbered(tf.distribute.MirroredStrategy):
        def __init__(self):
            self._collective_key_base, self._ours = 1, 2

    assert taken(Numbered) == {"MirroredStrategy": {"_collective_key_base"}}


def test_outside_its_functions_the_module_imports_the_standard_library_alone():
    """The network uses it without TensorFlow, scores without Keras."""
    nodes = ast.parse(COMPAT.read_text(encoding="utf-8")).body
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {ast.unparse(node).split()[1].partition(".")[0] for node in imports} <= sys.stdlib_module_names
