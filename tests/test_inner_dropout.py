"""Dropout inside of sub-layers: of attention weights, and of the activation of the feed-forward network."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import toy
from toy import SMALL, random_updates

from t2t_keras.layers.attention import MultiHeadAttention
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.restricted_attention import RestrictedSelfAttention
from t2t_keras.model.transformer import Transformer

RATE = 0.3


def assert_dropped(dropped, plain, rtol: float = 1e-5) -> None:
    """Checks that the rate of what is not zero is dropped, and that the rest is scaled."""
    kept = dropped > 0
    assert 1 - kept[plain > 0].mean() == pytest.approx(RATE, abs=5 * (RATE * (1 - RATE) / (plain > 0).sum()) ** 0.5)
    np.testing.assert_allclose(dropped[kept], plain[kept] / (1 - RATE), rtol=rtol)


def test_attention_weights_are_dropped_at_the_rate_and_scaled():
    """Values are the rows of the identity matrix, so that the result is the weights."""
    layer = MultiHeadAttention(2, 4, 50, dropout=RATE)
    x = np.random.default_rng(0).normal(size=(40, 50, 8)).astype("float32")
    layer.build(x.shape)
    q, k, _ = layer._queries_keys_values(x, None)
    identity = tf.eye(50)[None, None]
    plain, dropped = (np.array(layer._attend(q, k, identity, None, training=training)) for training in (False, True))
    assert_dropped(dropped, plain)
    np.testing.assert_allclose(plain, layer.weights_of(x, x), rtol=1e-5)


def test_the_activation_is_dropped_at_the_rate_and_scaled():
    layer = FeedForward(500, "relu", dropout=RATE)
    x = np.random.default_rng(0).normal(size=(4, 50, 500)).astype("float32")
    layer.build(x.shape)
    layer.outer.kernel.assign(np.eye(500))
    plain, dropped = (np.array(layer(x, training=training)) for training in (False, True))
    assert_dropped(dropped, plain, rtol=1e-4)


PLACES = {
    "self-attention of the encoder": lambda model: model.encoder.stack[0].self_attention,
    "self-attention of the decoder": lambda model: model.decoder[0].self_attention,
    "attention to the source": lambda model: model.decoder[0].cross_attention,
    "network of the encoder": lambda model: model.encoder.stack[0].feed_forward,
    "network of the decoder": lambda model: model.decoder[0].feed_forward,
}


@pytest.mark.parametrize("place", PLACES)
def test_each_sub_layer_of_a_model_drops_in_training_alone(place):
    rates = {"attention_dropout": 0.5, "activation_dropout": 0.5}
    model, plain = Transformer(dataclasses.replace(SMALL, **rates)), Transformer(SMALL)
    toy.set_weights(model), toy.set_weights(plain)
    [update] = random_updates([6], seed=4)
    inputs = update["source"], update["target"]
    np.testing.assert_array_equal(model(inputs), plain(inputs))
    for name, layer_of in PLACES.items():
        assert layer_of(model).dropout.rate == 0.5
        layer_of(model).dropout.rate = 0.5 if name == place else 0.0
    assert not np.allclose(model(inputs, training=True), plain(inputs))


def test_lengths_need_not_be_known_in_a_graph():
    layer = MultiHeadAttention(2, 4, 3, dropout=RATE)
    layer.build((None, None, 8))

    @tf.function(input_signature=[tf.TensorSpec([None, None, 8])])
    def attend(x):
        q, k, _ = layer._queries_keys_values(x, None)
        weights = layer.dropout(layer._weights(q, k, None), training=True)
        return weights, layer._weights(q, k, None), layer(x, training=True)

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, None])])
    def masked(weights):
        layer.dropout.seed_generator.state.assign([3, 4])
        return layer.dropout(weights, training=True)

    ones = tf.ones([2, 2, 3, 7])
    in_graph = masked(ones)
    layer.dropout.seed_generator.state.assign([3, 4])
    # A diagnosis repeats an update in eager mode.
    np.testing.assert_array_equal(layer.dropout(ones, training=True), in_graph)
    dropped, plain, _ = map(np.array, attend(tf.random.stateless_normal([40, 50, 8], [1, 2])))
    assert_dropped(dropped, plain)


def test_configurations_keep_the_rates():
    for layer in (MultiHeadAttention(2, 4, 5, dropout=RATE), FeedForward(5, dropout=RATE)):
        assert type(layer).from_config(layer.get_config()).dropout.rate == RATE
    assert MultiHeadAttention(2, 4, 5).get_config()["dropout"] == 0.0


def test_restricted_self_attention_refuses_it():
    with pytest.raises(ValueError, match="self-attention has no dropout of the weights. Received: dropout=0.3"):
        RestrictedSelfAttention(2, 4, 5, 3, dropout=RATE)
