"""Keras models of the package's layers, saved here, load in other processes, which have only imported the package and
may have another backend, and compute and learn the same there.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from test_keras_layers import LAYERS, B, D, S, T

import t2t_keras
from t2t_keras.config import RnnConfig
from t2t_keras.layers.recurrent import GRU, LSTM, GRUCell, LSTMCell
from t2t_keras.model.rnn import Rnn

ROOT = pathlib.Path(__file__).parent.parent
DRAW = np.random.default_rng(1)
IDS = DRAW.integers(4, 40, (B, S)).astype("int32")
SIZES = {"d_model": D, "d_ff": 12, "num_heads": 2, "d_k": 6, "d_v": 10}
CONFIG = t2t_keras.ModelConfig(vocab_size=40, encoder_layers=1, decoder_layers=1, **SIZES)
CELLS = (GRUCell, LSTMCell)

# What every process does with a model: its output, and that after an update without dropout.
OUTPUTS = """
import keras
import numpy as np


def outputs_of(model, inputs):
    inputs = inputs if len(inputs) > 1 else inputs[0]
    before = keras.ops.convert_to_numpy(model(inputs))
    if model.trainable_weights:
        for layer in model._flatten_layers():
            if hasattr(layer, "rate"):
                layer.rate = 0.0
        model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
        model.train_on_batch(inputs, np.zeros_like(before))
    return before, keras.ops.convert_to_numpy(model(inputs))
"""
LOAD = """
import json, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.keras")):
    model, inputs = keras.models.load_model(path), np.load(path.with_suffix(".npz"))
    compiled, outputs = model.compiled, outputs_of(model, [inputs[name] for name in inputs.files])
    print(json.dumps([path.stem, compiled, *(output.tolist() for output in outputs)]))
"""
# Half of the values, 101 an odd number of them a row, become zero.
DROPOUT = """
import keras, numpy, t2t_keras
dropped = keras.ops.convert_to_numpy(t2t_keras.Dropout(0.5)(numpy.ones((200, 101), "float32"), training=True))
assert set(numpy.unique(dropped)) == {0.0, 2.0} and abs(dropped.mean() - 1) < 0.05, dropped.mean()
correlation = numpy.corrcoef(dropped[:, :-1].ravel(), dropped[:, 1:].ravel())[0, 1]
assert abs(correlation) < 0.05, correlation
"""
exec(OUTPUTS)


def of_one_layer(layer, inputs: list) -> keras.Model:
    symbols = [keras.Input(x.shape[1:], dtype=str(x.dtype)) for x in inputs]
    return keras.Model(symbols if len(symbols) > 1 else symbols[0], layer(*symbols))


def compiled(model: keras.Model) -> keras.Model:
    schedule = t2t_keras.TransformerSchedule(D, warmup_steps=10)
    model.compile(keras.optimizers.Adam(schedule), t2t_keras.LabelSmoothedCrossEntropy(0.1))
    return model


def save(folder: pathlib.Path, models: list) -> dict:
    """Saves models with their inputs. Returns by name what each computes, before and after an update."""
    outputs = {}
    for number, (model, inputs) in enumerate(models):
        name = f"{number:02}"
        model.save(folder / f"{name}.keras")
        np.savez(folder / f"{name}.npz", *inputs)
        outputs[name] = outputs_of(model, inputs)  # noqa: F821
    return outputs


def run(code: str, *arguments, **environment) -> str:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def check_loads(imports: str, saved: tuple, **environment) -> None:
    folder, outputs = saved
    lines = run(f"{imports}\n{OUTPUTS}\n{LOAD}", folder, **environment).splitlines()
    found = {name: others for name, *others in map(json.loads, lines)}
    assert list(found) == list(outputs)
    for name, (_, *both) in found.items():
        for output, expected in zip(both, outputs[name], strict=True):
            np.testing.assert_allclose(output, expected, atol=2e-5, err_msg=name)
    assert [name for name, (is_compiled, *_) in found.items() if is_compiled] == list(outputs)[-1:]


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> tuple[pathlib.Path, dict]:
    """A folder with a saved model for every public layer, and what each computes."""
    # With `pre`, the norm of `AddAndNorm` is a part of another call, and a model of this layer alone learns nothing.
    public = [row for row in LAYERS if row[0].__name__ in t2t_keras.__all__ and "pre" not in row[1]]
    models = [(row[0](**row[1]), list(row[2].values()) if isinstance(row[2], dict) else [row[2]]) for row in public]
    models = [(layer, [DRAW.normal(size=shape).astype("float32") for shape in shapes]) for layer, shapes in models]
    models = [(of_one_layer(layer, inputs), inputs) for layer, inputs in models]
    models += [
        (of_one_layer(t2t_keras.SharedEmbedding(40, D), [IDS]), [IDS]),
        (t2t_keras.TransformerEncoder(CONFIG), [IDS]),
        (compiled(t2t_keras.Transformer(CONFIG)), [IDS, IDS[:, :T]]),
    ]
    classes = {layer.__name__ for layer, *_ in public} | {"SharedEmbedding", "TransformerEncoder", "Transformer"}
    everything = {name for name in t2t_keras.__all__ if isinstance(getattr(t2t_keras, name), type)}
    layers = {name for name in everything if issubclass(getattr(t2t_keras, name), keras.layers.Layer)}
    assert classes == layers - {"SequenceModel", "EncoderDecoder"}  # Those are interfaces.
    folder = tmp_path_factory.mktemp("saved")
    return folder, save(folder, models)


@pytest.fixture(scope="module")
def saved_recurrent(tmp_path_factory) -> tuple[pathlib.Path, dict]:
    """Likewise, of the recurrent layers and the recurrent translator."""
    x = DRAW.normal(size=(B, T, D)).astype("float32")
    layers = [keras.layers.RNN(cell(D, layer_norm=norm)) for cell in CELLS for norm in (False, True)]
    layers += [layer(D, return_sequences=True) for layer in (GRU, LSTM)]
    config = RnnConfig(vocab_size=40, d_model=D, d_embedding=D, encoder_layers=1)
    models = [(of_one_layer(layer, [x]), [x]) for layer in layers]
    folder = tmp_path_factory.mktemp("recurrent")
    return folder, save(folder, [*models, (compiled(Rnn(config)), [IDS, IDS[:, :T]])])


@pytest.mark.medium
@pytest.mark.parametrize("imports", ["import t2t_keras, keras", "import keras, t2t_keras"])
def test_every_public_layer_loads_where_only_the_package_was_imported(saved, imports):
    """Story: "Could not locate class 'Transformer'", because names are imported when they are used."""
    check_loads(imports, saved)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_layers_compute_and_learn_the_same_on_every_backend(saved, saved_recurrent, backend):
    """Story: `ops.unstack` takes no variable on JAX and PyTorch, and Keras has no uint16 for dropout on PyTorch."""
    if not importlib.util.find_spec(backend):
        pytest.skip("needs the extra `backends`")
    check_loads("import t2t_keras", saved, KERAS_BACKEND=backend)
    check_loads("import t2t_keras.layers.recurrent, t2t_keras.model.rnn", saved_recurrent, KERAS_BACKEND=backend)
    run(DROPOUT, KERAS_BACKEND=backend)


def test_a_saved_model_cannot_name_a_function_or_another_class_of_the_package():
    for name in ("causal_mask", "train", "Nothing"):
        config = {"module": "t2t_keras", "class_name": name, "config": {}, "registered_name": f"t2t_keras>{name}"}
        with pytest.raises(TypeError, match="Could not locate class"):
            keras.saving.deserialize_keras_object(config)


@pytest.mark.medium
def test_keras_exports_the_networks_with_ids_as_inputs(tmp_path):
    """Story: Keras took them for float32, which no embedding reads."""
    for model, inputs in (
        (t2t_keras.Transformer(CONFIG), (IDS, IDS[:, :T])),
        (t2t_keras.TransformerEncoder(CONFIG), IDS),
    ):
        expected = model(inputs)
        model.export(tmp_path / model.name, verbose=False)
        export = tf.saved_model.load(tmp_path / model.name)
        np.testing.assert_allclose(export.serve(tf.nest.map_structure(tf.constant, inputs)), expected, atol=1e-5)
        longer = tf.nest.map_structure(lambda ids: np.tile(ids, (3, 2)), inputs)
        np.testing.assert_allclose(export.serve(tf.nest.map_structure(tf.constant, longer)), model(longer), atol=1e-5)


@pytest.mark.medium
def test_the_recurrent_translator_trains_where_xla_is_asked_for():
    """Story: XLA has no gradient of a loop whose length it does not know."""
    model = Rnn(RnnConfig(vocab_size=40, d_model=D, d_embedding=D, encoder_layers=1))
    with pytest.warns(UserWarning, match="jit_compile"):
        model.compile("sgd", t2t_keras.LabelSmoothedCrossEntropy(0.1), jit_compile=True)
    assert np.isfinite(model.train_on_batch((IDS, IDS), IDS))
