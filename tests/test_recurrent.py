"""Cells are Keras's, cut into the projection of inputs and the transition; layer normalisation is Ba et al.'s."""

import keras
import numpy as np
import numpy_rnn
import pytest
import tensorflow as tf
from keras import ops
from keras.src import backend
from test_oracle import randomized

from t2t_keras import config
from t2t_keras.layers.inference import inference
from t2t_keras.layers.recurrent import CELLS, GRU, LSTM, ConditionalRecurrence, bidirectional

B, W, T, X, D = 2, 3, 4, 5, 6
DRAW = np.random.default_rng(1)
INPUTS, MASK = DRAW.normal(size=(B, T, X)).astype("float32"), np.array([[True] * 4, [True, True, False, False]])
KERAS = {"gru": keras.layers.GRUCell, "lstm": keras.layers.LSTMCell}
NUMBER = {"gru": 1, "lstm": 2}


def states_of(kind: str, *leading: int) -> list:
    return [DRAW.normal(size=(*leading, D)).astype("float32") for _ in range(NUMBER[kind])]


def made(kind: str, **options):
    cell = CELLS[kind](D, **options)
    cell.build((None, X))
    return randomized(cell)


def test_the_options_name_the_cells():
    assert tuple(CELLS) == config.CELLS


@pytest.mark.parametrize("kind", CELLS)
def test_a_cell_is_that_of_keras_with_the_same_weights(kind):
    ours, theirs, states = made(kind), KERAS[kind](D), states_of(kind, B)
    theirs.build((None, X))
    wanted = [(weight.name, weight.shape) for weight in theirs.weights]
    assert [(weight.name, weight.shape) for weight in ours.weights] == wanted
    assert kind == "gru" or np.array_equal(CELLS[kind](D).bias_initializer((4 * D,)), theirs.bias_initializer((4 * D,)))
    theirs.set_weights(ours.get_weights())
    (output, after), (expected, expected_after) = ours(INPUTS[:, 0], states), theirs(INPUTS[:, 0], states)
    np.testing.assert_allclose(output, expected, atol=1e-6)
    for one, other in zip(after, expected_after, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("kind", CELLS)
def test_beams_may_have_an_axis_of_their_own(kind, layer_norm):
    """And each is the oracle's, one row at a time."""
    cell, states = made(kind, layer_norm=layer_norm), states_of(kind, B, W)
    inputs = DRAW.normal(size=(B, W, X)).astype("float32")
    found = cell.transition(cell.project(inputs), states)
    weights = {
        f"cell/{weight.path.split('/', 1)[1]}": weight.numpy() for weight in cell.weights if "seed" not in weight.path
    }
    for row, beam in np.ndindex(B, W):
        expected = numpy_rnn.cell(kind, inputs[row, beam], [state[row, beam] for state in states], weights, "cell")
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one[row, beam], other, atol=1e-5)


def test_layer_normalisation_ignores_the_scale_of_inputs():
    plain, normalised = made("gru"), made("gru", layer_norm=True)
    for cell, same in ((plain, False), (normalised, True)):
        cell.bias.assign(np.zeros(cell.bias.shape))
        assert np.allclose(cell.project(100 * INPUTS), cell.project(INPUTS), atol=1e-4) == same


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("kind", CELLS)
def test_both_directions_read_from_their_own_end_and_skip_padding(kind, layer_norm):
    layer = bidirectional(kind, D, layer_norm, name="encoder_0", dtype="float32")
    layer.build((None, None, X))
    randomized(layer)
    found = np.array(layer(INPUTS, mask=MASK))
    weights = {weight.path: weight.numpy() for weight in layer.trainable_weights}
    for row, length in enumerate(MASK.sum(axis=1)):
        for side, order in ((0, range(length)), (1, reversed(range(length)))):
            path = f"encoder_0/{('forward', 'backward')[side]}_{kind}/{kind}_cell"
            states = numpy_rnn.zeros(kind, weights, path)
            for position in order:
                states = numpy_rnn.cell(kind, INPUTS[row, position], states, weights, path)
                np.testing.assert_allclose(found[row, position, side * D : side * D + D], states[0], atol=1e-5)


@pytest.mark.parametrize("kind", CELLS)
def test_cudnn_is_for_training_alone(kind, monkeypatch):
    """An export that is made beside a GPU would otherwise need one. Each direction asks Keras's backend once."""
    layer, asked = bidirectional(kind, D, False, name="encoder_0", dtype="float32"), []
    layer.build((None, None, X))

    def kernel(*args, **kwargs):
        asked.append(kind)
        raise NotImplementedError

    monkeypatch.setattr(backend, kind, kernel)
    before = layer(INPUTS, mask=MASK)
    assert asked == [kind] * 2
    with inference():
        np.testing.assert_allclose(layer(INPUTS, mask=MASK), before, atol=1e-6)
    assert asked == [kind] * 2


@pytest.mark.parametrize("kind", CELLS)
def test_a_conditional_recurrence_attends_with_its_first_state_and_reads_the_context_with_its_second(kind):
    layer = ConditionalRecurrence(kind, D, "scaled", layer_norm=True)
    layer.build((None, None, X), (None, None, 7))
    randomized(layer)
    assert layer.num_states == NUMBER[kind]
    memory, states = DRAW.normal(size=(B, T, 7)).astype("float32"), states_of(kind, B, W)
    projected = layer.first.project(np.tile(INPUTS[:, :1], (1, W, 1)))
    after, context, weights = layer(projected, states, memory, layer.attention.keys(memory), MASK)
    middle = layer.first.transition(projected, states)
    np.testing.assert_allclose(
        weights, layer.attention.weights_of(middle[0], layer.attention.keys(memory), MASK), atol=1e-6
    )
    np.testing.assert_allclose(context, np.array(weights) @ memory, atol=1e-6)
    for one, other in zip(after, layer.second.transition(layer.second.project(context), middle), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert not np.array(weights)[1, :, 2:].any()


def test_layers_can_be_written_and_read():
    cell = CELLS["lstm"].from_config(CELLS["lstm"](D, layer_norm=True).get_config())
    assert cell.layer_norm and cell.units == D and len(cell.norms) == 2
    options = {"cell": "lstm", "units": D, "attention": "unscaled", "layer_norm": True}
    assert ConditionalRecurrence.from_config(ConditionalRecurrence(**options).get_config()).options == options


@pytest.mark.parametrize("kind", CELLS)
def test_states_and_sums_in_bfloat16_stay_in_bfloat16(kind):
    cell = CELLS[kind](D, layer_norm=True, dtype="mixed_bfloat16")
    cell.build((None, X))
    assert cell.kernel.dtype == "float32"
    states = [tf.cast(state, tf.bfloat16) for state in states_of(kind, B)]
    assert {each.dtype for each in cell.transition(cell.project(INPUTS[:, 0]), states)} == {tf.bfloat16}


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
@pytest.mark.parametrize("layer", [GRU, LSTM])
def test_recurrent_layers_are_made_in_bfloat16_without_options(layer, dtype):
    """Story: Keras's default for the recurrent matrix is a decomposition that TensorFlow has not in bfloat16."""
    short, long = layer(D, dtype=dtype), layer(D)
    for made_layer in (short, long):
        made_layer.build((None, None, X))
    short.set_weights([ops.convert_to_numpy(ops.cast(weight, short.variable_dtype)) for weight in long.weights])
    np.testing.assert_allclose(ops.cast(short(INPUTS), "float32"), long(INPUTS), atol=0.03)
    assert short.get_config()["recurrent_initializer"]["class_name"] == "GlorotUniform"
