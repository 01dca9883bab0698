"""Section 3.4: one matrix embeds, times √d_model, and gives the logits."""

import keras
import numpy as np
import pytest
from keras import ops

from t2t_keras.layers.embedding import SharedEmbedding

V, D = 50, 16


@pytest.fixture
def layer():
    keras.utils.set_random_seed(2)
    layer = SharedEmbedding(V, D)
    layer.build()
    return layer


def test_there_is_one_matrix_and_nothing_else(layer):
    assert [tuple(weight.shape) for weight in layer.weights] == [(V, D)]


def test_embedding_a_word_takes_its_row_times_the_root_of_d_model(layer):
    ids = np.array([[3, 0, 49], [7, 7, 1]])
    np.testing.assert_allclose(layer(ids), layer.matrix.numpy()[ids] * 4, rtol=1e-6)  # √16


def test_logits_are_hidden_times_the_transposed_matrix(layer):
    hidden = np.random.default_rng(0).normal(size=(2, 3, D)).astype("float32")
    np.testing.assert_allclose(layer.logits(hidden), hidden @ layer.matrix.numpy().T, atol=1e-5)


def test_changing_the_matrix_changes_embedding_and_logits_together(layer):
    hidden, ids = np.ones((1, 1, D), "float32"), np.array([[5]])
    layer.matrix.assign(ops.zeros((V, D)))
    assert not np.any(layer(ids)) and not np.any(layer.logits(hidden))


def test_logits_may_have_a_matrix_and_a_bias_of_their_own():
    """They begin like those of the paper, and the bias with zeros."""
    layer = SharedEmbedding(V, D, tie_logits=False, logits_bias=True)
    layer.build()
    assert [weight.name for weight in layer.weights] == ["matrix", "logits_matrix", "logits_bias"]
    assert not np.any(layer.bias) and np.array(layer.logits_matrix).std() == pytest.approx(D**-0.5, abs=0.03)
    layer.matrix.assign(ops.zeros((V, D)))
    layer.bias.assign(np.arange(V))
    hidden = np.random.default_rng(0).normal(size=(2, 3, D)).astype("float32")
    assert not np.any(layer(np.array([[5]])))
    np.testing.assert_allclose(layer.logits(hidden), hidden @ layer.logits_matrix.numpy().T + np.arange(V), atol=1e-5)


def test_embeddings_start_with_a_variance_of_one():
    layer = SharedEmbedding(1000, 64)
    # 64,000 draws: seven standard errors.
    assert np.array(layer(np.arange(1000)[None])).std() == pytest.approx(1, abs=0.02)


def test_a_bfloat16_layer_embeds_and_gives_logits_in_bfloat16_with_a_float32_matrix():
    layer = SharedEmbedding(V, D, dtype="mixed_bfloat16")
    embedded = layer(np.array([[3, 4]]))
    logits = layer.logits(embedded)
    dtypes = [keras.backend.standardize_dtype(x.dtype) for x in (embedded, logits, layer.matrix)]
    assert dtypes == ["bfloat16", "bfloat16", "float32"]
    exact = np.array(ops.cast(embedded, "float32")) @ layer.matrix.numpy().T
    np.testing.assert_allclose(ops.cast(logits, "float32"), exact, atol=0.05)
