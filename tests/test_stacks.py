"""Section 3.1: LayerNorm(x + Sublayer(x)), layers made of it; and an exam that every public layer passes."""

import keras
import numpy as np
import pytest
from keras import ops

from t2t_keras.layers.attention import MultiHeadAttention
from t2t_keras.layers.dense import Dense
from t2t_keras.layers.dropout import Dropout, WordDropout
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.layer_norm import LayerNorm
from t2t_keras.layers.masks import causal_mask, padding_mask
from t2t_keras.layers.positions import LearnedPositions, SinusoidalPositions
from t2t_keras.layers.restricted_attention import RestrictedSelfAttention
from t2t_keras.layers.stacks import AddAndNorm, DecoderLayer, EncoderLayer

B, T, S, D = 2, 3, 5, 8
SIZES = {"num_heads": 2, "d_k": 6, "d_v": 10, "d_ff": 12, "dropout": 0.1}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


SOURCE_MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)[:, None, None, :]
TARGET_MASK = np.tri(T, dtype=bool)[None, None]


# LayerNorm(x + Sublayer(x))


def test_add_and_norm_on_a_hand_example():
    x, y = np.array([[[1.0, 1, 1, 1]]], "float32"), np.array([[[0.0, 2, 4, 6]]], "float32")
    # The sum 1, 3, 5, 7 has mean 4 and variance (9 + 1 + 1 + 9) / 4 = 5.
    np.testing.assert_allclose(AddAndNorm(0.0)(x, y), np.array([[[-3, -1, 1, 3]]]) / np.sqrt(5), atol=1e-6)


def test_pre_norm_on_a_hand_example():
    """Story: `sublayer_input` made the weights, and the layer then failed because it had some."""
    layer, x = AddAndNorm(0.0, pre=True), np.array([[[1.0, 3, 5, 7]]], "float32")
    y = layer.sublayer_input(x)
    np.testing.assert_allclose(y, np.array([[[-3, -1, 1, 3]]]) / np.sqrt(5), atol=1e-6)
    np.testing.assert_allclose(layer(x, y), x + y, atol=1e-6)
    assert [weight.shape for weight in layer.weights] == [(4,), (4,)]
    read = keras.Input((None, 4))
    norm = AddAndNorm(0.0, pre=True)
    model = keras.Model(read, norm(read, norm.sublayer_input(read)))
    np.testing.assert_allclose(model(x), x + y, atol=1e-6)


def test_gain_and_bias_come_after_the_normalisation():
    layer = AddAndNorm(0.0)
    layer.build((None, None, 4), (None, None, 4))
    layer.set_weights([np.array([2.0, 2, 2, 10]), np.array([0.0, 0, 0, 1])])
    x = np.array([[[1.0, 3, 5, 7]]], "float32")
    expected = [[[-6 / 5**0.5, -2 / 5**0.5, 2 / 5**0.5, 1 + 30 / 5**0.5]]]
    np.testing.assert_allclose(layer(x, np.zeros_like(x)), expected, atol=1e-5)


def test_dropout_falls_on_the_sub_layer_and_not_on_what_is_carried_past_it():
    """At this rate next to nothing of the sub-layer is left, and x comes through whole."""
    keras.utils.set_random_seed(1)
    x, y = normal(4, 50, D), normal(4, 50, D, seed=1)
    layer = AddAndNorm(0.999)
    kept = np.array(layer(x, y, training=True))
    alone = np.array(layer(x, np.zeros_like(y)))
    assert np.mean(np.abs(kept - alone).max(axis=-1) < 1e-5) > 0.97
    assert not np.allclose(layer(x, y), alone)


def test_an_encoder_layer_is_attention_then_feed_forward_each_added_and_normalised():
    layer, x = EncoderLayer(**SIZES), normal(B, S, D)
    received = layer(x, attention_mask=SOURCE_MASK)
    y = layer.self_attention_norm(x, layer.self_attention(x, x, attention_mask=SOURCE_MASK))
    expected = layer.feed_forward_norm(y, layer.feed_forward(y))
    np.testing.assert_allclose(received, expected, atol=1e-6)


def test_a_decoder_layer_looks_at_itself_then_at_the_source_then_feeds_forward():
    layer, x, memory = DecoderLayer(**SIZES), normal(B, T, D), normal(B, S, D, seed=1)
    received = layer(x, memory, attention_mask=TARGET_MASK, cross_attention_mask=SOURCE_MASK)
    y = layer.self_attention_norm(x, layer.self_attention(x, x, attention_mask=TARGET_MASK))
    y = layer.cross_attention_norm(y, layer.cross_attention(y, memory, attention_mask=SOURCE_MASK))
    expected = layer.feed_forward_norm(y, layer.feed_forward(y))
    np.testing.assert_allclose(received, expected, atol=1e-6)


def test_masks_from_ids_reach_the_attention_they_are_for():
    """The future of the target and the padding of the source change nothing; the past and the words do."""
    layer, x, memory = DecoderLayer(**SIZES), normal(B, T, D), normal(B, S, D, seed=1)
    source = np.array([[4, 5, 6, 7, 3], [4, 5, 3, 0, 0]])

    def out(x, memory):
        return np.array(layer(x, memory, attention_mask=causal_mask(0, T), cross_attention_mask=padding_mask(source)))

    before, future, padding, word = out(x, memory), x.copy(), memory.copy(), memory.copy()
    future[:, 2] += 1
    padding[1, 3:] += 1
    word[1, 2] += 1
    np.testing.assert_allclose(out(future, memory)[:, :2], before[:, :2], atol=1e-6)
    np.testing.assert_allclose(out(x, padding), before, atol=1e-6)
    assert np.abs(out(x, word)[1] - before[1]).min(axis=-1).max() > 1e-4


@pytest.mark.parametrize("layer_class", [EncoderLayer, DecoderLayer])
def test_the_last_thing_a_layer_does_is_to_normalise(layer_class):
    """Before a gain and a bias are learned, every position has mean 0 and variance 1, whatever came in."""
    x = 10 * normal(B, T, D) + 3
    memories = [x] if layer_class is DecoderLayer else []
    out = np.array(layer_class(**SIZES)(x, *memories))
    np.testing.assert_allclose(out.mean(axis=-1), np.zeros((B, T)), atol=1e-5)
    np.testing.assert_allclose(out.var(axis=-1), np.ones((B, T)), atol=1e-3)


@pytest.mark.parametrize("layer", [EncoderLayer, DecoderLayer])
def test_a_place_of_layer_normalization_that_does_not_exist_is_refused(layer):
    """Story: a misspelt one was "post"."""
    with pytest.raises(ValueError, match="^`norm` must be one of post, pre. Received: norm=Pre.$"):
        layer(**SIZES, norm="Pre")


@pytest.mark.parametrize("argument", ["attention_mask", "cross_attention_mask"])
def test_a_decoder_layer_refuses_a_mask_of_the_wrong_rank_as_attention_does(argument):
    """A padding mask [B, S] would broadcast to [1, 1, T, S] wherever B = T, and mean another thing."""
    layer, x = DecoderLayer(**SIZES), normal(T, T, D)
    with pytest.raises(ValueError, match=r"attention_mask must be boolean"):
        layer(x, x, **{argument: np.ones((T, T), bool)})


def test_a_decoder_layer_is_causal_unless_another_mask_is_given():
    layer, x, memory = DecoderLayer(**SIZES), normal(B, T, D), normal(B, S, D, seed=1)
    np.testing.assert_array_equal(layer(x, memory), layer(x, memory, attention_mask=TARGET_MASK))
    assert (
        np.abs(np.array(layer(x, memory, attention_mask=np.ones((1, 1, T, T), bool))) - layer(x, memory)).max() > 1e-3
    )


def test_a_decoder_layer_with_a_cache_gives_a_position_at_a_time_what_it_gives_at_once():
    layer, x, memory = DecoderLayer(**SIZES), normal(B, T, D), normal(B, S, D, seed=1)
    cache, outputs = (), []
    for position in range(T):
        output, cache = layer(x[:, position : position + 1], memory, cache=cache)
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), layer(x, memory), atol=1e-5)


def test_padding_that_keras_masks_changes_no_word_through_a_whole_stack():
    """Embedding(mask_zero=True), two encoder layers, and a decoder layer over them, as a functional model."""
    source, target = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    embedding = keras.layers.Embedding(20, D, mask_zero=True)
    memory = EncoderLayer(**SIZES)(EncoderLayer(**SIZES)(embedding(source)))
    model = keras.Model([source, target], DecoderLayer(**SIZES)(embedding(target), memory))
    ids, words = np.array([[4, 5, 6, 0, 0]]), np.array([[7, 8, 0]])
    expected = model([ids[:, :3], words[:, :2]])
    np.testing.assert_allclose(model([ids, words])[:, :2], expected, atol=1e-5)
    assert np.abs(np.array(model([np.where(ids == 0, 9, ids), words]))[:, :2] - expected).max() > 1e-3


# The exam


X, MEMORY = normal(B, T, D), normal(B, S, D, seed=1)
IDS = np.array([[4, 19, 0], [7, 7, 1]], "int32")

# Each layer, its configuration, and its arguments by name.
CANDIDATES = [
    (MultiHeadAttention, {"num_heads": 2, "d_k": 6, "d_v": 10},
     {"query": X, "memory": MEMORY, "attention_mask": SOURCE_MASK}),
    (RestrictedSelfAttention, {"num_heads": 2, "d_k": 6, "d_v": 10, "window": 3},
     {"query": MEMORY, "attention_mask": SOURCE_MASK}),
    (Dense, {"units": D}, {"x": X}),
    (LayerNorm, {"epsilon": 1e-6}, {"x": X}),
    (FeedForward, {"d_ff": 12}, {"x": X}),
    (SharedEmbedding, {"vocab_size": 20, "d_model": D}, {"ids": IDS}),
    (SinusoidalPositions, {}, {"x": X}),
    (LearnedPositions, {"rows": 2}, {"x": X}),
    (Dropout, {"rate": 0.1, "seed": 3}, {"x": X}),
    (WordDropout, {"rate": 0.1, "second_half": True, "seed": 3}, {"x": X}),
    (AddAndNorm, {"dropout": 0.1}, {"x": X, "y": normal(B, T, D, seed=2)}),
    (EncoderLayer, SIZES, {"x": MEMORY, "attention_mask": SOURCE_MASK}),
    (EncoderLayer, {**SIZES, "attention_window": 3}, {"x": MEMORY, "attention_mask": SOURCE_MASK}),
    (DecoderLayer, SIZES,
     {"x": X, "memory": MEMORY, "attention_mask": TARGET_MASK, "cross_attention_mask": SOURCE_MASK}),
]  # fmt: skip
every_layer = pytest.mark.parametrize(
    ("layer_class", "config", "inputs"),
    [pytest.param(*candidate, id=candidate[0].__name__) for candidate in CANDIDATES],
)
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])


def call(layer, arguments: dict):
    """The first argument goes by position, as Keras wants it."""
    first, *others = arguments
    return layer(arguments[first], **{name: arguments[name] for name in others})


def in_a_model(layer, inputs: dict):
    """The layer alone in a functional model, whose sentences may have any number and length."""

    def lengths(array):
        return tuple(None if size in (T, S) else size for size in array.shape[1:])

    tensors = {name: keras.Input(lengths(array), dtype=array.dtype, name=name) for name, array in inputs.items()}
    return keras.Model(tensors, call(layer, tensors))


def as_float(tensor) -> np.ndarray:
    return np.array(ops.cast(tensor, "float32"))


def test_every_layer_that_can_be_saved_sits_the_exam():
    registered = {each for name, each in keras.saving.get_custom_objects().items() if name.startswith("t2t_keras>")}
    layers = {each for each in registered if issubclass(each, keras.layers.Layer) and not issubclass(each, keras.Model)}
    # Steps of a loop, see test_recurrent.py and test_attention_functions.py.
    layers -= {each for each in layers if each.__module__.endswith((".recurrent", ".attention_functions"))}
    assert layers == {layer_class for layer_class, _, _ in CANDIDATES}


@every_layer
@both_dtypes
def test_in_a_functional_model_a_layer_computes_what_it_computes_eagerly(layer_class, config, inputs, dtype):
    layer = layer_class(**config, dtype=dtype)
    model, eager = in_a_model(layer, inputs), call(layer, inputs)
    np.testing.assert_array_equal(as_float(model(inputs)), as_float(eager))
    symbolic = model.output
    dtypes = {keras.backend.standardize_dtype(each.dtype) for each in (symbolic, eager)}
    assert dtypes == {layer.compute_dtype}
    assert all(expected in (None, received) for expected, received in zip(symbolic.shape, eager.shape, strict=True))
    assert symbolic.shape[-1] == D


@every_layer
@both_dtypes
def test_a_saved_layer_comes_back_with_its_config_its_policy_and_its_outputs(
    layer_class, config, inputs, dtype, tmp_path
):
    layer = layer_class(**config, dtype=dtype)
    model = in_a_model(layer, inputs)
    for weight in layer.trainable_variables:
        weight.assign(normal(*weight.shape, seed=4))
    model.save(tmp_path / "layer.keras")
    loaded = keras.models.load_model(tmp_path / "layer.keras")
    (again,) = (each for each in loaded.layers if type(each) is type(layer))
    assert again.get_config() == layer.get_config() and config.items() <= again.get_config().items()
    assert again.dtype_policy.name == dtype
    np.testing.assert_array_equal(as_float(loaded(inputs)), as_float(model(inputs)))


@every_layer
@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights")
def test_one_fit_step_moves_every_weight(layer_class, config, inputs):
    layer = layer_class(**config)
    model = in_a_model(layer, inputs)
    model.compile(keras.optimizers.SGD(1.0), "mse", jit_compile=False)
    before = layer.get_weights()[: len(layer.trainable_variables)]
    wanted = normal(*call(layer, inputs).shape, seed=5)
    rows = {name: np.repeat(array, B // len(array), axis=0) for name, array in inputs.items()}
    history = model.fit(rows, wanted, batch_size=B, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    for weight, value in zip(layer.trainable_variables, before, strict=True):
        assert np.isfinite(weight).all() and not np.array_equal(weight, value), weight.path
