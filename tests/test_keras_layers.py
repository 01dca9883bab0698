"""Every public layer passes the exam that Keras gives its own layers: symbolic and eager calls, serialisation,
training, precision.
"""

import numpy as np
import pytest
import tensorflow as tf
from keras.src import testing

from t2t_keras.layers.attention import MultiHeadAttention
from t2t_keras.layers.dense import Dense
from t2t_keras.layers.dropout import Dropout, WordDropout
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.layer_norm import LayerNorm
from t2t_keras.layers.positions import LearnedPositions, SinusoidalPositions
from t2t_keras.layers.restricted_attention import RestrictedSelfAttention
from t2t_keras.layers.stacks import AddAndNorm, DecoderLayer, EncoderLayer

B, T, S, D = 2, 3, 5, 8
SIZES = {"num_heads": 2, "d_k": 6, "d_v": 10, "d_ff": 12, "dropout": 0.1}
OTHERS = {"attention_bias": True, "activation": "gelu", "norm_epsilon": 0.1}
ATTENTION = {"num_heads": 2, "d_k": 6, "d_v": 10}

# Class, arguments, shapes of the call's arguments, number of trainable weights, of seed generators.
LAYERS = [
    (Dense, {"units": D}, (B, T, D), 2, 0),
    (LayerNorm, {"epsilon": 1e-6}, (B, T, D), 2, 0),
    (FeedForward, {"d_ff": 12}, (B, T, D), 4, 0),
    (FeedForward, {"d_ff": 12, "activation": "swish"}, (B, T, D), 4, 0),
    (SinusoidalPositions, {}, (B, T, D), 0, 0),
    (SinusoidalPositions, {"form": "tensor2tensor", "first": 2}, (B, T, D), 0, 0),
    (LearnedPositions, {"rows": 2}, (B, T, D), 1, 0),
    (Dropout, {"rate": 0.1, "seed": 3}, (B, T, D), 0, 1),
    (WordDropout, {"rate": 0.1, "second_half": True, "seed": 3}, (B, T, D), 0, 1),
    (EncoderLayer, SIZES, (B, T, D), 4 + 4 + 2 * 2, 2),
    (EncoderLayer, {**SIZES, **OTHERS, "attention_window": 3}, (B, T, D), 8 + 4 + 2 * 2, 2),
    (RestrictedSelfAttention, {**ATTENTION, "window": 3}, (B, T, D), 4, 0),
    (MultiHeadAttention, ATTENTION, {"query_shape": (B, T, D), "memory_shape": (B, S, D)}, 4, 0),
    (MultiHeadAttention, {**ATTENTION, "use_bias": True}, {"query_shape": (B, T, D), "memory_shape": (B, S, D)}, 8, 0),
    (MultiHeadAttention, {**ATTENTION, "function": "additive"}, {"query_shape": (B, T, D), "memory_shape": (B, S, D)},
     5, 0),
    (MultiHeadAttention, {**ATTENTION, "function": "unscaled"}, {"query_shape": (B, T, D), "memory_shape": (B, S, D)},
     4, 0),
    (EncoderLayer, {**SIZES, "attention": "additive"}, (B, T, D), 5 + 4 + 2 * 2, 2),
    (AddAndNorm, {"dropout": 0.1}, {"x_shape": (B, T, D), "y_shape": (B, T, D)}, 2, 1),
    (AddAndNorm, {"dropout": 0.1, "pre": True}, {"x_shape": (B, T, D), "y_shape": (B, T, D)}, 2, 1),
    (DecoderLayer, SIZES, {"x_shape": (B, T, D), "memory_shape": (B, S, D)}, 2 * 4 + 4 + 3 * 2, 3),
    (EncoderLayer, {**SIZES, "norm": "pre"}, (B, T, D), 4 + 4 + 2 * 2, 2),
    (DecoderLayer, {**SIZES, "norm": "pre"}, {"x_shape": (B, T, D), "memory_shape": (B, S, D)}, 2 * 4 + 4 + 3 * 2, 3),
    (DecoderLayer, {**SIZES, **OTHERS}, {"x_shape": (B, T, D), "memory_shape": (B, S, D)}, 2 * 8 + 4 + 3 * 2, 3),
]  # fmt: skip


@pytest.mark.parametrize(
    ("layer", "arguments", "shapes", "weights", "seeds"), LAYERS, ids=[row[0].__name__ for row in LAYERS]
)
def test_a_layer_passes_the_exam_of_keras_and_keeps_its_arguments(layer, arguments, shapes, weights, seeds):
    kept = layer.from_config(layer(**arguments).get_config()).get_config()
    assert {name: kept.get(name) for name in arguments} == arguments
    testing.TestCase().run_layer_test(
        layer,
        init_kwargs=arguments,
        input_shape=shapes,
        expected_output_shape=(B, T, D),
        expected_num_trainable_weights=weights,
        expected_num_seed_generators=seeds,
        supports_masking=True,
        # Keras trains on one input; `test_stacks.py` fits layers of two.
        run_training_check=isinstance(shapes, tuple),
    )


@pytest.mark.parametrize(
    ("layer", "arguments", "shapes"), [row[:3] for row in LAYERS], ids=[row[0].__name__ for row in LAYERS]
)
def test_in_float64_a_layer_computes_in_float64_and_its_gradients_are_central_differences(layer, arguments, shapes):
    """Story: softmax, normalization and sinusoids were computed in float32 for layers of float64 too."""
    draw = np.random.default_rng(7)
    shapes = shapes.values() if isinstance(shapes, dict) else [shapes]
    inputs = [tf.Variable(draw.normal(size=shape)) for shape in shapes]
    layer = layer(**arguments, dtype="float64")
    weights = draw.normal(size=layer(*inputs).shape)

    def loss():
        return tf.reduce_sum(layer(*inputs) * weights)

    with tf.GradientTape() as tape:
        value = loss()
    assert value.dtype == tf.float64
    variables = inputs + [weight.value for weight in layer.trainable_weights]
    gradients = tape.gradient(value, variables, unconnected_gradients="zero")
    for variable, gradient in zip(variables, gradients, strict=True):
        before, direction = variable.numpy(), draw.normal(size=variable.shape)
        variable.assign(before + 1e-5 * direction)
        above = loss()
        variable.assign(before - 1e-5 * direction)
        expected = (above - loss()) / 2e-5
        variable.assign(before)
        np.testing.assert_allclose(np.sum(tf.convert_to_tensor(gradient) * direction), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("options", "weights"), [({}, 1), ({"tie_logits": False}, 2), ({"logits_bias": True}, 2)])
def test_the_shared_embedding_passes_the_exam_of_keras_and_keeps_its_arguments(options, weights):
    kept = SharedEmbedding.from_config(SharedEmbedding(20, D, **options).get_config()).get_config()
    assert {name: kept.get(name) for name in options} == options
    testing.TestCase().run_layer_test(
        SharedEmbedding,
        init_kwargs={"vocab_size": 20, "d_model": D, **options},
        input_data=np.array([[4, 19, 0], [7, 7, 1]], "int32"),
        expected_output_shape=(B, T, D),
        expected_num_trainable_weights=weights,
        expected_num_seed_generators=0,
        run_training_check=False,
    )
