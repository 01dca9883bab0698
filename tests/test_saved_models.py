"""A Keras model of the package's layers is loaded, exported and used by processes that know nothing but the package's
name.
"""

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

ROOT = pathlib.Path(__file__).parent.parent
DRAW = np.random.default_rng(1)
IDS = DRAW.integers(4, 40, (B, S)).astype("int32")
# Prints the output of every saved model, and whether it was compiled.
LOAD = """
import json, numpy, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.keras")):
    model, inputs = keras.models.load_model(path), numpy.load(path.with_suffix(".npz"))
    output = model([inputs[name] for name in inputs.files] if len(inputs.files) > 1 else inputs["arr_0"])
    print(json.dumps([path.stem, model.compiled, numpy.array(output).tolist()]))
"""


def of_one_layer(layer, inputs: list) -> keras.Model:
    symbols = [keras.Input(x.shape[1:], dtype=str(x.dtype)) for x in inputs]
    return keras.Model(symbols if len(symbols) > 1 else symbols[0], layer(*symbols))


def compiled(model: keras.Model) -> keras.Model:
    schedule = t2t_keras.TransformerSchedule(D, warmup_steps=10)
    model.compile(keras.optimizers.Adam(schedule), t2t_keras.LabelSmoothedCrossEntropy(0.1))
    return model


@pytest.fixture(scope="module")
def saved(tiny_config, tmp_path_factory) -> tuple[pathlib.Path, dict]:
    """A folder with a saved model for every public layer, and what each computes."""
    folder, outputs = tmp_path_factory.mktemp("saved"), {}
    public = [row for row in LAYERS if row[0].__name__ in t2t_keras.__all__]
    models = [(row[0](**row[1]), list(row[2].values()) if isinstance(row[2], dict) else [row[2]]) for row in public]
    models = [(layer, [DRAW.normal(size=shape).astype("float32") for shape in shapes]) for layer, shapes in models]
    models = [(of_one_layer(layer, inputs), inputs) for layer, inputs in models]
    models += [
        (of_one_layer(t2t_keras.SharedEmbedding(40, D), [IDS]), [IDS]),
        (t2t_keras.TransformerEncoder(tiny_config), [IDS]),
        (compiled(t2t_keras.Transformer(tiny_config)), [IDS, IDS[:, :T]]),
    ]
    for number, (model, inputs) in enumerate(models):
        name = f"{number:02}"
        outputs[name] = model(inputs if len(inputs) > 1 else inputs[0])
        model.save(folder / f"{name}.keras")
        np.savez(folder / f"{name}.npz", *inputs)
    classes = {layer.__name__ for layer, *_ in public} | {"SharedEmbedding", "TransformerEncoder", "Transformer"}
    everything = {name for name in t2t_keras.__all__ if isinstance(getattr(t2t_keras, name), type)}
    layers = {name for name in everything if issubclass(getattr(t2t_keras, name), keras.layers.Layer)}
    assert classes == layers - {"SequenceModel", "EncoderDecoder"}  # Those are interfaces.
    return folder, outputs


@pytest.fixture(scope="module")
def tiny_config() -> t2t_keras.ModelConfig:
    sizes = {"d_model": D, "d_ff": 12, "num_heads": 2, "d_k": 6, "d_v": 10}
    return t2t_keras.ModelConfig(vocab_size=40, encoder_layers=1, decoder_layers=1, **sizes)


@pytest.mark.medium
@pytest.mark.parametrize("imports", ["import t2t_keras, keras", "import keras, t2t_keras"])
def test_every_public_layer_loads_where_only_the_package_was_imported(saved, imports):
    """Story: "Could not locate class 'Transformer'", because names are imported when they are used."""
    folder, outputs = saved
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", f"{imports}\n{LOAD}", str(folder)]
    printed = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    found = [json.loads(line) for line in printed.splitlines()]
    assert [name for name, *_ in found] == list(outputs)
    assert [is_compiled for _, is_compiled, _ in found] == [False] * (len(found) - 1) + [True]
    for name, _, output in found:
        np.testing.assert_allclose(output, outputs[name], atol=1e-6)


def test_a_saved_model_names_classes_only_and_safe_mode_stays():
    """A file that names a function of the package, or another class, is refused."""
    for name in ("causal_mask", "train", "Nothing"):
        config = {"module": "t2t_keras", "class_name": name, "config": {}, "registered_name": f"t2t_keras>{name}"}
        with pytest.raises(TypeError, match="Could not locate class"):
            keras.saving.deserialize_keras_object(config)


@pytest.mark.medium
def test_keras_exports_the_networks_with_ids_as_inputs(tiny_config, tmp_path):
    """Story: Keras took them for float32, which no embedding reads."""
    for model, inputs in (
        (t2t_keras.Transformer(tiny_config), (IDS, IDS[:, :T])),
        (t2t_keras.TransformerEncoder(tiny_config), IDS),
    ):
        expected = model(inputs)
        model.export(tmp_path / model.name, verbose=False)
        export = tf.saved_model.load(tmp_path / model.name)
        np.testing.assert_allclose(export.serve(tf.nest.map_structure(tf.constant, inputs)), expected, atol=1e-5)
        longer = tf.nest.map_structure(lambda ids: np.tile(ids, (3, 2)), inputs)
        np.testing.assert_allclose(export.serve(tf.nest.map_structure(tf.constant, longer)), model(longer), atol=1e-5)
