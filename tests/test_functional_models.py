"""Public layers as parts of other people's Keras models: functional and subclassed ones, saved, and in wrappers."""

import keras
import numpy as np
import pytest
from keras import ops

import t2t_keras

IDS = np.array([[3, 4, 5], [6, 7, 0]])
X = np.random.default_rng(1).normal(size=(2, 5, 8)).astype(np.float32)


def doubled(model: keras.Model) -> None:
    model.set_weights([2 * weight for weight in model.get_weights()])


def reloaded(model: keras.Model, tmp_path) -> keras.Model:
    model.save(tmp_path / "model.keras")
    return keras.models.load_model(tmp_path / "model.keras")


@pytest.mark.parametrize("length", [3, None])
@pytest.mark.parametrize("options", [{}, {"tie_logits": False}, {"logits_bias": True}])
def test_logits_in_a_functional_model_are_those_of_the_weights_of_the_moment(tmp_path, length, options):
    """Story: they were of the weights when the model was made, and the matrix of the logits was not trained."""
    layer, ids = t2t_keras.SharedEmbedding(20, 8, **options), keras.Input((length,), dtype="int32")
    model = keras.Model(ids, layer.logits(layer(ids)))
    doubled(model)
    expected = layer.logits(layer(IDS))
    np.testing.assert_array_equal(model(IDS), expected)
    np.testing.assert_allclose(reloaded(model, tmp_path)(IDS), expected, atol=1e-6)
    matrix = layer.logits_matrix.numpy()
    model.compile(keras.optimizers.SGD(1.0), t2t_keras.LabelSmoothedCrossEntropy())
    model.fit(IDS, IDS, verbose=0)
    assert not np.allclose(layer.logits_matrix, matrix)


def test_the_input_of_a_sub_layer_with_pre_norm_is_part_of_a_functional_model(tmp_path):
    norm, inputs = t2t_keras.AddAndNorm(0.1, pre=True), keras.Input((5, 8))
    feed_forward = t2t_keras.FeedForward(16)
    model = keras.Model(inputs, norm(inputs, feed_forward(norm.sublayer_input(inputs))))
    assert len(model.weights) == 6
    doubled(model)
    expected = norm(X, feed_forward(norm.sublayer_input(X)))
    np.testing.assert_array_equal(model(X), expected)
    np.testing.assert_allclose(reloaded(model, tmp_path)(X), expected, atol=1e-6)


@pytest.mark.parametrize("method", ["keys_values", "weights_of", "scores_of", "encode", "restricted_attention"])
def test_what_would_leave_its_weights_out_of_a_functional_model_is_refused(tiny, method):
    attention, inputs = t2t_keras.MultiHeadAttention(2, 4, 4), keras.Input((5, 8))
    attention(X)
    calls = {
        "keys_values": lambda: attention.keys_values(inputs),
        "weights_of": lambda: attention.weights_of(inputs, inputs),
        "scores_of": lambda: attention.scores_of(inputs, None),
        "encode": lambda: t2t_keras.Transformer(tiny).encode(keras.Input((5,), dtype="int32")),
        "restricted_attention": lambda: t2t_keras.restricted_attention(*[keras.Input((2, 5, 4))] * 3, window=3),
    }
    name = "keys_values" if method == "encode" else method
    with pytest.raises(ValueError, match=f"^`{name}` takes arrays. In a functional model, call the layer"):
        calls[method]()


def test_a_causal_mask_of_an_unknown_length_is_refused_with_what_to_do():
    with pytest.raises(ValueError, match="call `causal_mask` inside a layer"):
        t2t_keras.causal_mask(0, ops.shape(keras.Input((None,)))[1])


@keras.saving.register_keras_serializable("test_functional_models")
class Tagger(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = t2t_keras.SharedEmbedding(30, 8)
        self.layer = t2t_keras.EncoderLayer(2, 4, 4, 16, 0.1)

    def call(self, ids):
        return self.layer(self.embedding(ids))


def test_a_model_that_keras_builds_with_floats_is_loaded_with_its_weights(tmp_path):
    """Story: it had other weights, with a warning."""
    model = Tagger()
    expected = model(IDS)
    np.testing.assert_allclose(reloaded(model, tmp_path)(IDS), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "int64"])
def test_ids_of_other_types_are_embedded(dtype):
    layer = t2t_keras.SharedEmbedding(30, 8)
    model = keras.Sequential([layer, keras.layers.Dense(2)])
    assert model(IDS.astype(dtype)).shape == (2, 3, 2)
    np.testing.assert_array_equal(layer(IDS.astype(dtype)), layer(IDS))


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_ids_that_come_as_floats_are_not_rounded(dtype):
    layer, ids = t2t_keras.SharedEmbedding(70_000, 4, dtype=dtype), np.array([[257, 4097, 69_999]])
    np.testing.assert_array_equal(layer(ids.astype("float32")), layer(ids))
    assert layer(ids).dtype == layer.logits(layer(ids)).dtype == dtype.removeprefix("mixed_")


def test_an_explicit_mask_takes_the_place_of_an_attached_one():
    x, mask = keras.layers.Embedding(9, 8, mask_zero=True)(np.array([[3, 4, 0]])), np.array([[True, False, False]])
    layer = t2t_keras.MultiHeadAttention(2, 4, 4)
    np.testing.assert_allclose(layer(x, mask=mask), layer(ops.convert_to_tensor(x.numpy()), mask=mask), atol=1e-6)


def test_a_layer_that_is_not_built_has_output_shapes():
    layer, ids = t2t_keras.SharedEmbedding(30, 8), keras.KerasTensor((2, 3), "int32")
    assert layer.compute_output_spec(ids).shape == (2, 3, 8)
    assert layer.compute_output_spec(keras.KerasTensor((2, 3, 8)), reverse=True).shape == (2, 3, 30)


def test_the_sum_of_a_sub_layer_needs_its_output():
    with pytest.raises(ValueError, match="Expected the output y of the sub-layer"):
        t2t_keras.AddAndNorm(0.1)(X)


@pytest.mark.parametrize("layer", [
    t2t_keras.EncoderLayer(2, 4, 4, 16, 0.0),
    t2t_keras.EncoderLayer(2, 4, 4, 16, 0.0, attention_window=3, norm="pre"),
    t2t_keras.MultiHeadAttention(2, 4, 4),
    t2t_keras.RestrictedSelfAttention(2, 4, 4, window=3),
], ids=["encoder", "restricted encoder", "attention", "restricted attention"])  # fmt: skip
def test_a_layer_in_time_distributed_has_the_mask_of_each_step(layer):
    """Story: it attended to padding."""
    embedding, ids = keras.layers.Embedding(9, 8, mask_zero=True), keras.Input((2, 4), dtype="int32")
    model = keras.Model(ids, keras.layers.TimeDistributed(layer)(embedding(ids)))
    given = np.array([[[3, 4, 0, 0], [5, 6, 7, 8]]])
    short = layer(embedding(given[:, 0, :2]))
    np.testing.assert_allclose(model(given)[0, 0, :2], short[0], atol=1e-6)
    np.testing.assert_allclose(model(given)[0, 1], layer(embedding(given[:, 1]))[0], atol=1e-6)


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_mask_is_combined_with_one_of_attention(is_causal):
    layer, padded = t2t_keras.EncoderLayer(2, 4, 4, 16, 0.0), np.array([[True] * 3 + [False] * 2] * 2)
    causal = t2t_keras.causal_mask(0, 5) if is_causal else None
    short = t2t_keras.causal_mask(0, 3) if is_causal else None
    for attention_mask in (causal, causal[0] if is_causal else None):  # Of three axes too.
        found = layer(X, attention_mask=attention_mask, mask=padded)
        np.testing.assert_allclose(found[:, :3], layer(X[:, :3], attention_mask=short), atol=1e-6)


def test_a_mask_of_the_query_alone_is_refused_with_a_cache():
    layer = t2t_keras.MultiHeadAttention(2, 4, 4)
    _, cache = layer(X[:, :3], cache=())
    with pytest.raises(ValueError, match="With a `cache`, masks must cover the keys of the cache and of the query."):
        layer(X[:, 3:4], cache=cache, mask=np.ones((2, 1), bool))


def test_keys_and_values_computed_before_have_the_mask_of_their_memory():
    memory = keras.layers.Embedding(9, 8, mask_zero=True)(np.array([[3, 4, 0, 0]]))
    layer, y = t2t_keras.DecoderLayer(2, 4, 4, 16, 0.0), X[:1]
    expected = layer(y, memory)
    np.testing.assert_allclose(layer(y, layer.cross_attention.keys_values(memory)), expected, atol=1e-6)
    assert not np.allclose(layer(y, ops.convert_to_tensor(memory.numpy())), expected, atol=1e-4)


@pytest.mark.parametrize("ignored", [-1, -100])
def test_negative_targets_are_ignored_like_padding(ignored):
    loss, logits = t2t_keras.LabelSmoothedCrossEntropy(0.1), X[:, :2]
    expected = loss(np.array([[5, 0], [3, 4]]), logits)
    np.testing.assert_allclose(loss(np.array([[5, ignored], [3, 4]]), logits), expected)


def test_without_smoothing_words_may_be_impossible():
    logits = np.zeros((1, 1, 4), np.float32)
    logits[..., 3] = -np.inf
    assert float(t2t_keras.LabelSmoothedCrossEntropy(0.0)(np.array([[2]]), logits)) == pytest.approx(np.log(3))


@pytest.mark.parametrize("layer", [t2t_keras.SinusoidalPositions(), t2t_keras.LearnedPositions(9)])
@pytest.mark.parametrize("shape", [(5, 8), (1, 1, 5, 8)])
def test_positions_of_what_is_no_sentence_are_refused(layer, shape):
    with pytest.raises(ValueError, match=r"Expected vectors of positions in sentences, \[B, T, D\]. Received: shape"):
        layer(np.zeros(shape, np.float32))
