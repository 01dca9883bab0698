"""The recurrent translator: its equations in NumPy, one decoding path for training and search, nothing of padding."""

import dataclasses
import math

import keras
import numpy as np
import numpy_rnn
import pytest
import tensorflow as tf
from keras import ops
from test_flops import products
from test_oracle import padded, randomized, values_of

from t2t_keras.config import BOS, EOS, PAD, RnnConfig
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.masks import shift_right
from t2t_keras.model.loss import cross_entropy
from t2t_keras.model.protocols import make
from t2t_keras.model.rnn import Rnn
from t2t_keras.runs import registry

SOURCES = [[7, 12, 33, 5, EOS], [39, 4, EOS], [9, 9, 21, 30, 18, 6, EOS], [EOS]]
TARGETS = [[14, 8, EOS], [25, 4, 17, 17, 36, EOS], [5, EOS], [8, 8, 8, EOS]]
SOURCE, TARGET = padded(SOURCES), padded(TARGETS)
SHIFTED = np.array(shift_right(TARGET))

SMALL = RnnConfig(vocab_size=40, d_model=6, d_embedding=10)
OPTIONS = {
    "the defaults": {},
    "without layer normalisation": {"layer_norm": False},
    "lstm": {"cell": "lstm"},
    "lstm without layer normalisation, unscaled": {"cell": "lstm", "layer_norm": False, "attention": "unscaled"},
    "all": {
        **{"attention": "scaled", "layer_norm": False, "encoder_layers": 2, "d_embedding": 0},
        **{"source_vocab_size": 45, "tie_logits": False},
    },
}


@pytest.fixture(params=OPTIONS)
def model(request) -> Rnn:
    keras.utils.set_random_seed(7)
    return randomized(make(registry.architecture("rnn"), dataclasses.replace(SMALL, **OPTIONS[request.param])))


@pytest.fixture
def plain() -> Rnn:
    keras.utils.set_random_seed(7)
    return randomized(Rnn(SMALL))


def assert_close(received, expected, tolerance=1e-5):
    np.testing.assert_allclose(received, expected, rtol=0, atol=tolerance)


def test_logits_and_alignments_of_a_padded_batch_are_those_of_the_equations_for_each_sentence(model):
    logits, alignment = np.array(model((SOURCE, SHIFTED))), np.array(model.align(SHIFTED, model.encode(SOURCE)))
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected, weights = numpy_rnn.decode(model.config, source, SHIFTED[row, : len(target)], values_of(model))
        assert_close(logits[row, : len(target)], expected)
        assert_close(alignment[row, : len(target), : len(source)], weights)
        assert not alignment[row, :, len(source) :].any()
    assert_close(alignment.sum(axis=2), np.ones(TARGET.shape))
    assert np.ptp(alignment[2, 0, :7]) > 1e-3  # The words differ.


def test_the_loss_in_blocks_and_its_gradients_are_those_of_the_logits(model):
    variables = [weight.value for weight in model.trainable_variables]

    def with_gradients(function):
        with tf.GradientTape() as tape:
            smoothed, negative_log_likelihood = function()
        gradients = tape.gradient(smoothed, variables)
        return [smoothed, negative_log_likelihood, *map(tf.convert_to_tensor, gradients)]

    received = with_gradients(lambda: model.cross_entropy(SOURCE, TARGET, 0.1))
    expected = with_gradients(lambda: map(ops.sum, cross_entropy(model((SOURCE, SHIFTED)), TARGET, 0.1)))
    for ours, theirs, name in zip(
        received, expected, ("loss", "likelihood", *(each.path for each in model.trainable_variables)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4, err_msg=name)
    assert all(np.abs(gradient).max() > 1e-4 for gradient in received[2:])


def test_the_gradient_is_the_slope_of_the_loss(model):
    """Along one random direction through all weights, by a central difference of the equations in float64."""
    draw = np.random.default_rng(5)
    directions = {name: draw.normal(size=value.shape) for name, value in values_of(model).items()}

    def loss(step: float) -> float:
        weights = {name: value + step * directions[name] for name, value in values_of(model).items()}
        total = 0.0
        for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
            logits, _ = numpy_rnn.decode(model.config, source, SHIFTED[row, : len(target)], weights)
            total -= sum(line[token] - np.logaddexp.reduce(line) for line, token in zip(logits, target, strict=True))
        return total

    with tf.GradientTape() as tape:
        smoothed, negative_log_likelihood = model.cross_entropy(SOURCE, TARGET, 0.0)
    gradients = tape.gradient(smoothed, [weight.value for weight in model.trainable_variables])
    slope = sum(
        float(np.sum(tf.convert_to_tensor(gradient) * directions[name]))
        for gradient, name in zip(gradients, directions, strict=True)
    )
    assert float(negative_log_likelihood) == pytest.approx(loss(0.0), rel=1e-5)
    assert slope == pytest.approx((loss(1e-6) - loss(-1e-6)) / 2e-6, rel=1e-3)


def test_step_by_step_with_beams_that_cross_the_logits_are_those_of_whole_sentences(model):
    """Three beams with drawn parents. The last column of a hypothesis's own path has the logits of teacher forcing."""
    draw, rows, beams, length = np.random.default_rng(2), len(SOURCES), 3, 6
    memory = model.encode(SOURCE)
    state = model.initial_state(memory, beams)
    tokens = np.full((rows, beams), BOS, "int32")
    ancestors, paths = np.tile(np.arange(beams)[None, :, None], (rows, 1, 1)), tokens[:, :, None]
    for position in range(length):
        logits, state = model.decode(
            tokens, memory, state=state, position=position, ancestors=tf.constant(ancestors, tf.int32)
        )
        for beam in range(beams):
            whole, _ = model.decode(paths[:, beam], memory)
            assert_close(np.array(logits)[:, beam], np.array(whole)[:, -1])
        parents, tokens = draw.integers(0, beams, (rows, beams)), draw.integers(4, 40, (rows, beams)).astype("int32")
        ancestors = np.concatenate(
            [np.take_along_axis(ancestors, parents[:, :, None], axis=1), ancestors[:, :, :0]], axis=2
        )
        ancestors = np.concatenate([ancestors, np.tile(np.arange(beams)[None, :, None], (rows, 1, 1))], axis=2)
        paths = np.concatenate([np.take_along_axis(paths, parents[:, :, None], axis=1), tokens[:, :, None]], axis=2)
    assert np.abs(np.diff(np.array(logits), axis=1)).max() > 1e-2  # Beams differ.


def test_columns_of_padding_change_nothing(model):
    wide_source, wide_target = np.pad(SOURCE, [(0, 0), (0, 4)]), np.pad(SHIFTED, [(0, 0), (0, 3)])
    assert_close(np.array(model((wide_source, wide_target)))[:, : SHIFTED.shape[1]], model((SOURCE, SHIFTED)), 1e-6)
    before, after = (
        model.cross_entropy(*pair, 0.1) for pair in ((SOURCE, TARGET), (wide_source, np.pad(TARGET, [(0, 0), (0, 3)])))
    )
    assert float(after[0]) == pytest.approx(float(before[0]), rel=1e-6)


def test_rows_of_padding_alone_give_finite_logits_no_loss_and_no_gradient(model):
    nothing = np.zeros((2, 3), "int32")
    with tf.GradientTape() as tape:
        logits = model((nothing, np.array(shift_right(nothing))), training=True)
        loss, _ = model.cross_entropy(nothing, nothing, 0.1, training=True)
    assert np.isfinite(logits).all() and float(loss) == 0
    for gradient in tape.gradient(
        loss, [weight.value for weight in model.trainable_variables], unconnected_gradients="zero"
    ):
        assert not np.any(tf.convert_to_tensor(gradient))


@pytest.mark.parametrize("position", [1, 3, 5])
def test_a_changed_target_word_changes_no_earlier_logit_and_all_later_ones(plain, position):
    changed = SHIFTED.copy()
    changed[:, position] = 20
    difference = np.abs(np.array(plain((SOURCE, changed))) - np.array(plain((SOURCE, SHIFTED)))).max(axis=-1)
    assert (difference[:, :position] < 1e-6).all() and (difference[:, position:] > 1e-6).all()


@pytest.mark.parametrize(("option", "names"), [
    ("embedding_dropout", {"source_dropout", "target_dropout"}),
    ("context_dropout", {"context_dropout"}),
    ("output_dropout", {"output_dropout"}),
])  # fmt: skip
def test_a_dropout_acts_where_it_says_and_in_training_alone(option, names):
    none = dict.fromkeys(("embedding_dropout", "context_dropout", "output_dropout"), 0.0)
    model = Rnn(dataclasses.replace(SMALL, **none | {option: 0.5}))
    dropouts = [layer for layer in model._flatten_layers() if isinstance(layer, Dropout)]
    assert {layer.name for layer in dropouts if layer.rate == 0.5} == names and len(dropouts) == 4
    before = [layer.seed_generator.state.numpy() for layer in dropouts]
    losses = [
        float(model.cross_entropy(SOURCE, TARGET, 0.0, training=training)[0]) for training in (False, False, True)
    ]
    drawn = [
        layer.name
        for layer, state in zip(dropouts, before, strict=True)
        if np.any(layer.seed_generator.state.numpy() != state)
    ]
    assert losses[0] == losses[1] != losses[2] and set(drawn) == names


def test_dropped_contexts_are_what_the_start_and_the_attention_see():
    """At a rate near 1, nothing of the source is left: neither in the first state nor in the contexts."""
    config = dataclasses.replace(SMALL, context_dropout=0.9999, layer_norm=False)
    memory = randomized(Rnn(config)).encode(SOURCE, training=True)
    assert not np.any(memory.annotations) and np.ptp(memory.start[0], axis=0).max() == 0


def test_a_model_has_the_weights_that_are_counted(model):
    assert sum(math.prod(weight.shape) for weight in model.trainable_variables) == model.config.num_weights
    assert model.embedding_matrix.shape[0] == model.config.vocab_size


def test_a_decoder_step_and_the_rest_have_the_counted_products(model):
    """A step of the search over W beams has the products of W positions. A loop's graph has those of one position."""
    beams, rows, length = 5, 3, 7
    source = tf.ones([rows, length], tf.int32)
    memory = model.encode(source)
    ancestors = tf.zeros([rows, beams, 1], tf.int32)

    def step():
        state = model.initial_state(memory, beams)
        return model.decode(tf.ones([rows, beams], tf.int32), memory, state=state, ancestors=ancestors)[0]

    of_step = products(tf.function(step, autograph=False))
    if model.config.attention == "additive":  # `products` takes v · tanh(…) for a sum.
        of_step += 2 * rows * beams * length * model.config.d_model
    config, gates = model.config, {"gru": 3, "lstm": 4}[model.config.cell] * model.config.d_model
    assert model.flops(rows, length, beams) - model.flops(rows, length, 0) == of_step
    inputs = [config.d_embedding or config.d_model] + [2 * config.d_model] * (config.encoder_layers - 1)
    of_encoder = sum(2 * 2 * rows * length * gates * (width + config.d_model) for width in inputs)
    of_keys = 2 * rows * length * 2 * config.d_model * config.d_model
    of_start = 2 * rows * 2 * config.d_model * config.d_model * len(memory.start)
    assert model.flops(rows, length, 0) == of_encoder + of_keys + of_start
    assert float(model.flops(*map(tf.constant, (3.0, 7.0, 5.0)))) == model.flops(rows, length, beams)


def test_long_sentences_cost_more_memory_and_so_do_beams():
    model = Rnn(SMALL)
    assert model.memory_cost(2, 30, 20) == 2 * (30 + 20 + 600 / 48)
    additive, scaled = (
        Rnn(dataclasses.replace(SMALL, attention=name)).search_memory(4, 50) for name in ("additive", "scaled")
    )
    assert scaled == 12 * 4 * 40 + 16 * 200 and additive - scaled == 8 * 200 * 6


def accumulated(model, length: int) -> int:
    """Numbers that the loop over positions keeps for the gradient, for a sentence of so many sub-words on each side."""
    ids = tf.ones([1, length], tf.int32)

    def gradient():
        with tf.GradientTape() as tape:
            loss, _ = model.cross_entropy(ids, ids, 0.1)
        return tape.gradient(loss, [weight.value for weight in model.trainable_variables])

    graph = tf.function(gradient, autograph=False).get_concrete_function().graph
    graphs = [graph, *(called.graph for called in graph._functions.values() if hasattr(called, "graph"))]
    pushed = [
        operation.inputs[1].shape
        for each in graphs
        for operation in each.get_operations()
        if operation.type == "TensorListPushBack" and operation.inputs[1].shape.rank
    ]
    assert pushed and all(shape.is_fully_defined() for shape in pushed)
    return max(shape.num_elements() for shape in pushed)


@pytest.mark.parametrize("attention", ["additive", "scaled", "unscaled"])
def test_no_step_keeps_a_copy_of_the_memory_for_the_gradient(attention):
    """Story: the transposed keys of each step were kept: 8,192 tokens of long sentences took 2 GB more."""
    model = Rnn(dataclasses.replace(SMALL, attention=attention, layer_norm=False))
    assert accumulated(model, 50) < 50 * SMALL.d_model


def test_it_survives_the_ways_of_a_keras_model(plain, tmp_path):
    path = tmp_path / "model.keras"
    plain.save(path)
    loaded = keras.saving.load_model(path)
    assert loaded.config == plain.config
    assert_close(loaded((SOURCE, SHIFTED)), plain((SOURCE, SHIFTED)), 1e-6)


@pytest.mark.parametrize("layer_norm", [True, False])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_in_bfloat16_weights_and_logits_are_near_those_of_float32(cell, layer_norm):
    config = dataclasses.replace(SMALL, cell=cell, layer_norm=layer_norm)
    model, short = randomized(Rnn(config)), Rnn(config, dtype="bfloat16")
    for weight, of in zip(short.trainable_variables, model.trainable_variables, strict=True):
        weight.assign(ops.cast(of, "bfloat16"))
    logits, expected = np.array(short((SOURCE, SHIFTED))), np.array(model((SOURCE, SHIFTED)))
    assert logits.dtype == "float32" and 0 < np.abs(logits - expected).max() < 0.1 * np.abs(expected).max()


def test_in_float64_alignments_and_losses_are_near_those_of_float32(plain):
    """Story: the loop over target tokens began with weights of float32 and went on with weights of float64."""
    double = Rnn(SMALL, dtype="float64")
    double.set_weights(plain.get_weights())
    (alignment, loss), expected = (
        (model.align(SHIFTED, model.encode(SOURCE)), model.cross_entropy(SOURCE, TARGET, 0.1)[0])
        for model in (double, plain)
    )
    assert alignment.dtype == tf.float32
    assert_close(alignment, expected[0])
    np.testing.assert_allclose(loss, expected[1], rtol=1e-5)


def test_padding_is_seen_by_neither_direction_of_the_encoder(plain):
    """The last annotation of the backward direction has read one token; padding behind it would be read before it."""
    for row, source in enumerate(SOURCES):
        in_batch, alone = (plain.encode(ids).annotations for ids in (SOURCE, np.array([source], "int32")))
        assert_close(in_batch[row, : len(source)], alone[0], 1e-6)
    assert (SOURCE == PAD).any()
