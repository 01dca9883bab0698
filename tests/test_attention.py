"""Section 3.2: scaled dot-product attention, h of them in parallel, and what a mask may and may not do."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_keras.layers.attention import MultiHeadAttention, attention_weights, scaled_dot_product_attention
from t2t_keras.layers.masks import causal_mask

B, T, S, D, H, K, E = 2, 3, 5, 8, 2, 6, 10
# Projections of one width are one product.
WIDTHS = pytest.mark.parametrize("d_v", [K, E], ids=["d_k = d_v", "d_k < d_v"])
IDS = np.array([[4, 7, 9, 0, 0], [5, 5, 6, 8, 3]])


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


@pytest.fixture
def qkv(rng):
    return normal(rng, B, H, T, K), normal(rng, B, H, S, K), normal(rng, B, H, S, E)


@pytest.fixture
def mask(rng):
    """Random, but every query may attend somewhere."""
    mask = rng.random((B, H, T, S)) < 0.5
    mask[..., 1] = True
    return mask


def test_attention_equals_that_of_keras_ops(qkv, mask):
    """Whose heads stand after the positions: [B, T, H, K]."""
    for allowed in (None, mask):
        expected = ops.dot_product_attention(*(np.swapaxes(x, 1, 2) for x in qkv), mask=allowed)
        np.testing.assert_allclose(scaled_dot_product_attention(*qkv, allowed), np.swapaxes(expected, 1, 2), atol=1e-6)


def test_attention_on_one_query_and_two_keys_is_what_the_equation_gives_by_hand():
    q = np.array([3.0, 0, 4, 0]).reshape(1, 1, 1, 4)
    k = np.array([[0.0, 1, 0, 1], [2 * np.log(3) / 3, 0, 0, 0]]).reshape(1, 1, 2, 4)
    v = np.array([[8.0], [16.0]]).reshape(1, 1, 2, 1)
    # Scores 0 and 2 log 3, divided by √4: weights 1/4 and 3/4.
    np.testing.assert_allclose(attention_weights(q, k)[0, 0], [[0.25, 0.75]], rtol=1e-6)
    np.testing.assert_allclose(scaled_dot_product_attention(q, k, v).numpy().item(), 14, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("bfloat16", 2e-2)])
def test_the_weights_of_a_query_sum_to_one_and_keep_its_dtype(qkv, mask, dtype, tolerance):
    q, k = (ops.cast(x, dtype) for x in qkv[:2])
    weights = attention_weights(q, k, mask)
    assert keras.backend.standardize_dtype(weights.dtype) == dtype
    weights = np.array(ops.cast(weights, "float32"))
    np.testing.assert_allclose(weights.sum(axis=-1), np.ones((B, H, T)), atol=tolerance)
    assert (weights[~mask] == 0).all() and (weights[mask] > 0).all()


def test_a_masked_key_never_matters(qkv):
    q, k, v = qkv
    mask = (np.arange(S) != 2)[None, None, None]
    before = scaled_dot_product_attention(q, k, v, mask)
    k, v = k.copy(), v.copy()
    k[:, :, 2], v[:, :, 2] = 1000 * k[:, :, 2], -1000 * v[:, :, 2]
    np.testing.assert_array_equal(scaled_dot_product_attention(q, k, v, mask), before)
    assert not np.allclose(scaled_dot_product_attention(q, k, v), before)


def test_masking_keys_equals_leaving_them_out(qkv):
    q, k, v = qkv
    masked = scaled_dot_product_attention(q, k, v, (np.arange(S) < 3)[None, None, None])
    np.testing.assert_allclose(masked, scaled_dot_product_attention(q, k[:, :, :3], v[:, :, :3]), atol=1e-6)


def test_a_query_that_may_attend_nowhere_weighs_all_keys_alike(qkv):
    q, k, v = qkv
    nowhere = scaled_dot_product_attention(100 * q, 100 * k, v, np.zeros((1, 1, 1, S), bool))
    np.testing.assert_allclose(nowhere, np.broadcast_to(v.mean(axis=2, keepdims=True), nowhere.shape), atol=1e-6)


def test_the_vector_of_additive_attention_starts_with_a_variance_of_one_over_d_k():
    keras.utils.set_random_seed(1)
    layer = MultiHeadAttention(40, 100, 4, function="additive")
    layer.build((None, None, 4))
    assert layer.vector.numpy().std() == pytest.approx(0.1, rel=0.08)  # 4,000 draws: seven standard errors.


def test_scores_in_the_millions_stay_finite_and_stay_masked(qkv, mask):
    q, k, v = qkv
    weights = np.array(attention_weights(1e3 * q, 1e3 * k, mask))
    np.testing.assert_allclose(weights.sum(axis=-1), np.ones((B, H, T)), atol=1e-6)
    assert (weights[~mask] == 0).all() and np.isfinite(scaled_dot_product_attention(1e3 * q, 1e3 * k, v)).all()


def test_in_bfloat16_only_the_result_of_the_softmax_is_rounded():
    scores = np.linspace(-4, 4, 65)  # Multiples of 1/8, which bfloat16 holds exactly; d_k = 1 leaves them as they are.
    q, k = ops.ones((1, 1, 1, 1), "bfloat16"), ops.cast(scores.reshape(1, 1, -1, 1), "bfloat16")
    weights = np.array(ops.cast(attention_weights(q, k), "float32"))[0, 0, 0]
    np.testing.assert_allclose(weights, np.exp(scores) / np.exp(scores).sum(), rtol=2**-8)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_a_mask_broadcasts_over_sentences_heads_and_queries(rng, mask, axes):
    layer, query, memory = MultiHeadAttention(H, K, E), normal(rng, B, T, D), normal(rng, B, S, D)
    small = mask.any(axis=axes, keepdims=True)
    full = np.broadcast_to(small, mask.shape)
    found, expected = (layer(query, memory, attention_mask=each) for each in (small, full))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_one_head_with_identity_projections_is_scaled_dot_product_attention(rng):
    layer, query, memory = MultiHeadAttention(num_heads=1, d_k=D, d_v=D), normal(rng, B, T, D), normal(rng, B, S, D)
    layer.build(query.shape, memory.shape)
    layer.set_weights([np.eye(D)] * 4)
    one_head = scaled_dot_product_attention(query[:, None], memory[:, None], memory[:, None])
    np.testing.assert_allclose(layer(query, memory), one_head[:, 0], atol=1e-6)


@WIDTHS
def test_h_heads_are_the_sum_of_layers_of_one_head_each(rng, mask, d_v):
    """Head i owns its columns of W^Q, W^K and W^V and its rows of W^O; concatenating before W^O sums what each row
    block gives.
    """
    layer, query, memory = MultiHeadAttention(H, K, d_v), normal(rng, B, T, D), normal(rng, B, S, D)
    together = layer(query, memory, attention_mask=mask)
    w_q, w_k, w_v, w_o = layer.get_weights()
    alone = 0
    for i in range(H):
        head = MultiHeadAttention(1, K, d_v)
        head.build(query.shape, memory.shape)
        qk, ve = slice(i * K, (i + 1) * K), slice(i * d_v, (i + 1) * d_v)
        head.set_weights([w_q[:, qk], w_k[:, qk], w_v[:, ve], w_o[ve]])
        alone += np.array(head(query, memory, attention_mask=mask[:, i : i + 1]))
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_the_four_projections_have_the_papers_widths_and_no_bias():
    layer = MultiHeadAttention(H, K, E)
    layer.build((None, None, D), (None, None, D))
    shapes = {weight.path.split("/")[-2]: tuple(weight.shape) for weight in layer.weights}
    assert shapes == {"query": (D, H * K), "key": (D, H * K), "value": (D, H * E), "output": (H * E, D)}


@WIDTHS
def test_by_option_the_four_projections_have_a_bias(rng, mask, d_v):
    """A bias is a row of the matrix for a last feature that is always 1."""
    layer, query, memory = MultiHeadAttention(H, K, d_v, use_bias=True), normal(rng, B, T, D), normal(rng, B, S, D)
    layer.build(query.shape, memory.shape)
    assert not any(np.any(weight) for weight in layer.weights if weight.name == "bias")
    layer.set_weights([normal(rng, *weight.shape) for weight in layer.weights])
    w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = layer.get_weights()
    plain = MultiHeadAttention(H, K, d_v)
    plain.build((B, T, D + 1), (B, S, D + 1))
    with_bias = [np.concatenate([kernel, bias[None]]) for kernel, bias in ((w_q, b_q), (w_k, b_k), (w_v, b_v))]
    plain.set_weights([*with_bias, np.pad(w_o, [(0, 0), (0, 1)])])
    query_1, memory_1 = (np.concatenate([x, np.ones_like(x[..., :1])], axis=-1) for x in (query, memory))
    expected = np.array(plain(query_1, memory_1, attention_mask=mask))[..., :D] + b_o
    np.testing.assert_allclose(layer(query, memory, attention_mask=mask), expected, atol=1e-5)
    np.testing.assert_array_equal(
        layer(query, layer.keys_values(memory), attention_mask=mask), layer(query, memory, attention_mask=mask)
    )


@WIDTHS
def test_attending_in_two_steps_equals_one_call(rng, mask, d_v):
    layer, query, memory = MultiHeadAttention(H, K, d_v), normal(rng, B, T, D), normal(rng, B, S, D)
    expected = layer(query, memory, attention_mask=mask)
    np.testing.assert_array_equal(layer(query, layer.keys_values(memory), attention_mask=mask), expected)


@WIDTHS
def test_the_projections_are_the_products_with_each_heads_columns(rng, d_v):
    """Head i's keys are x W_i^K."""
    layer, x = MultiHeadAttention(H, K, d_v), normal(rng, B, T, D)
    layer.build(x.shape)
    for received, kernel in zip(layer.keys_values(x), layer.get_weights()[1:3], strict=True):
        expected = np.stack([x @ columns for columns in np.split(kernel, H, axis=1)], axis=1)
        np.testing.assert_allclose(received, expected, atol=1e-6)


@WIDTHS
def test_self_attention_is_attention_to_a_memory_that_is_the_query(rng, d_v):
    layer, x = MultiHeadAttention(H, K, d_v), normal(rng, B, T, D)
    causal = np.tri(T, dtype=bool)[None, None]
    np.testing.assert_allclose(layer(x, attention_mask=causal), layer(x, x, attention_mask=causal), atol=1e-6)


def test_with_a_cache_a_position_at_a_time_gives_what_all_at_once_give(rng):
    layer, x = MultiHeadAttention(H, K, E), normal(rng, B, T, D)
    whole, cache, outputs = layer(x, attention_mask=np.tri(T, dtype=bool)[None, None]), (), []
    for position in range(T):
        output, cache = layer(x[:, position : position + 1], cache=cache)
        assert cache[0].shape == (B, H, position + 1, K) and cache[1].shape == (B, H, position + 1, E)
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, atol=1e-6)


class TestMasksWithACache:
    """Story: the mask of a one-token query broadcast to all cached positions, so that padding in the query hid the
    whole past.
    """

    @pytest.fixture
    def layer(self):
        return MultiHeadAttention(H, K, E)

    @pytest.fixture
    def cache(self, layer, rng):
        """Keys and values of four positions."""
        return layer(normal(rng, B, 4, D), cache=())[1]

    @pytest.mark.parametrize("ids", [IDS[:, :1], IDS])
    def test_a_query_that_carries_a_keras_mask_is_refused(self, layer, cache, ids):
        query = keras.layers.Embedding(10, D, mask_zero=True)(ids)
        with pytest.raises(ValueError, match="The Keras mask of the query covers the query only. Remove it"):
            layer(query, cache=cache)

    @pytest.mark.parametrize("shape", [(B, 1, 1), (B, 1, 4), (1, 1, 1, 1), (B, H, 1, 6)])
    def test_an_attention_mask_of_another_length_is_refused(self, layer, cache, rng, shape):
        with pytest.raises(ValueError, match=r"last axis is 5, 4 of them cached. Received: shape \("):
            layer(normal(rng, B, 1, D), cache=cache, attention_mask=np.ones(shape, bool))

    def test_an_attention_mask_for_all_keys_hides_cached_positions_too(self, layer, cache, rng):
        query, allowed = normal(rng, B, 1, D), np.array([True, False, True, True, True])[None, None, None]
        without = [np.delete(np.array(x), 1, axis=2) for x in cache]
        expected, _ = layer(query, cache=without)
        np.testing.assert_allclose(layer(query, cache=cache, attention_mask=allowed)[0], expected, atol=1e-6)

    @pytest.mark.parametrize("empty", [(), (np.zeros((B, H, 0, K), "float32"), np.zeros((B, H, 0, E), "float32"))])
    def test_the_keras_mask_of_a_query_counts_if_the_cache_is_empty(self, layer, empty):
        query = keras.layers.Embedding(10, D, mask_zero=True)(IDS)
        expected = layer(np.array(query), attention_mask=(IDS != 0)[:, None, None, :])
        np.testing.assert_allclose(layer(query, cache=empty)[0], expected, atol=1e-6)

    def test_in_a_graph_a_cache_of_unknown_length_is_checked_at_least_for_a_keras_mask(self, layer, cache):
        embedding = keras.layers.Embedding(10, D, mask_zero=True)

        @tf.function(input_signature=[tf.TensorSpec([B, H, None, K]), tf.TensorSpec([B, H, None, E])])
        def step(keys, values):
            return layer(embedding(IDS[:, :1]), cache=(keys, values))

        with pytest.raises(ValueError, match="The Keras mask of the query"):
            step(*cache)


def test_the_weights_are_those_that_the_output_is_made_with(rng, mask):
    """One head whose values and output are identities: the output is the weighted mean of the memory."""
    layer, query, memory = MultiHeadAttention(num_heads=1, d_k=K, d_v=D), normal(rng, B, T, D), normal(rng, B, S, D)
    layer.build(query.shape, memory.shape)
    layer.set_weights([*layer.get_weights()[:2], np.eye(D), np.eye(D)])
    weights = np.array(layer.weights_of(query, memory, mask[:, :1]))
    np.testing.assert_allclose(weights.sum(axis=-1), np.ones((B, 1, T)), atol=1e-6)
    np.testing.assert_allclose(weights[:, 0] @ memory, layer(query, memory, attention_mask=mask[:, :1]), atol=1e-6)


def test_the_weights_of_self_attention_heed_the_keras_mask_of_the_query():
    """Story: they did not if the memory was left out, though the output did."""
    layer, query = MultiHeadAttention(H, K, E), keras.layers.Embedding(10, D, mask_zero=True)(IDS)
    layer(query)
    weights = np.array(layer.weights_of(query, None))
    np.testing.assert_array_equal(weights > 0, np.broadcast_to((IDS != 0)[:, None, None], weights.shape))


def test_a_mask_for_each_query_may_leave_the_heads_out(rng, mask):
    """[B, T, S], as Keras's own attention takes it."""
    layer, query, memory = MultiHeadAttention(H, K, E), normal(rng, B, T, D), normal(rng, B, S, D)
    expected = layer(query, memory, attention_mask=np.repeat(mask[:, :1], H, axis=1))
    np.testing.assert_allclose(layer(query, memory, attention_mask=mask[:, 0]), expected, atol=1e-6)


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("functional", [False, True])
def test_the_mask_of_an_embedding_is_a_padding_mask_of_the_memory(rng, mask, explicit, functional):
    """Story: `Embedding(mask_zero=True)` before the layer was dropped without a word, and padding was attended to."""
    embedding, layer = keras.layers.Embedding(10, D, mask_zero=True), MultiHeadAttention(H, K, E)
    query = normal(rng, B, T, D)
    allowed = mask[:, :1] if explicit else None
    words = (IDS != 0)[:, None, None, :]
    if functional:
        ids, queries = keras.Input((None,), dtype="int32"), keras.Input((None, D))
        model = keras.Model([queries, ids], layer(queries, embedding(ids), attention_mask=None))
        received = layer(query, embedding(IDS), attention_mask=allowed) if explicit else model([query, IDS])
    else:
        received = layer(query, embedding(IDS), attention_mask=allowed)
    expected = layer(query, np.array(embedding(IDS)), attention_mask=words & allowed if explicit else words)
    np.testing.assert_allclose(received, expected, atol=1e-6)
    assert np.abs(np.array(layer(query, np.array(embedding(IDS)), attention_mask=allowed)) - expected).max() > 1e-3


@pytest.mark.parametrize("shape", [(S,), (B, S)])
def test_a_mask_of_the_wrong_rank_is_refused_with_the_shape_that_is_expected(rng, shape):
    layer, query, memory = MultiHeadAttention(H, K, E), normal(rng, B, T, D), normal(rng, B, S, D)
    with pytest.raises(ValueError) as error:
        layer(query, memory, attention_mask=np.ones(shape, bool))
    for text in ("boolean", "[B, H, T, S]", "mask[:, None, None, :]", f"Received: shape {shape}"):
        assert text in str(error.value)


def test_an_additive_mask_is_refused():
    """0 where a query may attend and -1e9 elsewhere: as a truth value, that is the mask turned round."""
    layer, x = MultiHeadAttention(H, K, E), np.ones((B, S, D), "float32")
    additive = np.where(np.arange(S) < 3, 0.0, -1e9).astype("float32")[None, None, None]
    with pytest.raises(ValueError, match="attention_mask must be boolean"):
        layer(x, x, attention_mask=additive)


def test_a_functional_model_takes_the_mask_as_an_input_and_survives_saving(rng, mask, tmp_path):
    query, memory = keras.Input((None, D)), keras.Input((None, D))
    allowed = keras.Input((H, None, None), dtype="bool")
    layer = MultiHeadAttention(H, K, E)
    model = keras.Model([query, memory, allowed], layer(query, memory, attention_mask=allowed))
    inputs = [normal(rng, B, T, D), normal(rng, B, S, D), mask]
    expected = layer(*inputs[:2], attention_mask=mask)
    np.testing.assert_allclose(model(inputs), expected, atol=1e-6)
    assert not np.allclose(model([*inputs[:2], np.ones_like(mask)]), expected)
    model.save(tmp_path / "attention.keras")
    again = keras.models.load_model(tmp_path / "attention.keras")
    np.testing.assert_array_equal(again(inputs), model(inputs))
    config = next(each for each in again.layers if isinstance(each, MultiHeadAttention)).get_config()
    assert (config["num_heads"], config["d_k"], config["d_v"]) == (H, K, E)


@pytest.mark.parametrize("size", [100.0, 1e4])
@pytest.mark.parametrize("function", ["scaled", "unscaled"])
@pytest.mark.parametrize("dtype", ["float16", "mixed_float16"])
def test_large_inputs_in_float16_give_what_float32_gives(function, dtype, size):
    """Story: products of queries and keys above 65,504 were infinite, and the outputs and gradients not a number.

    Queries and keys are the inputs, which are powers of two times integers, exact in float16.
    """
    kept = {"num_heads": 1, "d_k": 4, "d_v": 4, "function": function}
    x = np.float32(2 ** int(np.log2(size)) * np.array([[[1, 0, 1, 1], [1, 1, 0, 1], [-1, 1, 1, 1]]]))
    found = []
    for precision in (dtype, "float32"):
        layer = MultiHeadAttention(**kept, dtype=precision)
        layer.build(x.shape)
        for weight in layer.weights:
            weight.assign(np.eye(4))
        with tf.GradientTape() as tape:
            output = ops.cast(layer(x, attention_mask=causal_mask(0, 3)), "float32")
            loss = ops.mean(output / size)
        gradients = tape.gradient(loss, [weight.value for weight in layer.weights])
        assert all(np.isfinite(ops.cast(gradient, "float32")).all() for gradient in gradients)
        found.append(output)
    np.testing.assert_allclose(*found, rtol=1e-2)


def test_a_single_key_is_attended_to_without_a_warning(recwarn):
    """Story: Keras warns that the softmax of one score is 1."""
    x = np.random.default_rng(0).normal(size=(2, 1, 8)).astype("float32")
    layer = MultiHeadAttention(2, 4, 4)
    for mask in (None, np.zeros((2, 1, 1), bool)):
        assert np.array_equal(layer(x, attention_mask=mask), layer(x))
    assert not [warning for warning in recwarn if "softmax" in str(warning.message)]
    q, k = (tf.ones((2, 3, 1, 4)) for _ in range(2))
    with tf.GradientTape() as tape:
        tape.watch(q)
        weights = attention_weights(q, k)
    assert not np.any(tape.gradient(weights, q))
    assert np.array(weights).tolist() == np.ones((2, 3, 1, 1)).tolist()
