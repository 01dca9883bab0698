"""Parts of a model that are not trained."""

import numpy as np
import pytest
import tensorflow as tf
import toy

from t2t_keras.config import ModelConfig
from t2t_keras.model.transformer import Transformer
from t2t_keras.training.freezing import freeze

CONFIG = ModelConfig(20, encoder_layers=11, decoder_layers=2, d_model=4, d_ff=4, num_heads=1, d_k=2, d_v=2)


def trained_paths(parts: str) -> set[str]:
    model = Transformer(CONFIG)
    freeze(model, parts)
    return {variable.path.removeprefix("transformer/") for variable in model.trainable_variables}


ALL = trained_paths("")


@pytest.mark.parametrize(("parts", "frozen"), [
    ("encoder", lambda path: path.startswith("encoder_")),
    ("encoder_1", lambda path: path.startswith("encoder_1/")),  # Not encoder_10.
    ("self_attention", lambda path: "/self_attention/" in path),
    ("decoder_0/self_attention, embedding", lambda path: path.startswith(("decoder_0/self_attention/", "embedding/"))),
    ("decoder/feed_forward/inner", lambda path: path.startswith("decoder_") and "/feed_forward/inner/" in path),
    ("/embedding/,", lambda path: path.startswith("embedding/")),
])  # fmt: skip
def test_a_name_stands_for_whole_parts_of_paths(parts, frozen):
    expected = {path for path in ALL if not frozen(path)}
    assert 0 < len(expected) < len(ALL) and trained_paths(parts) == expected


@pytest.mark.parametrize("part", ["enc", "coder", "encoder_11", "encoder.1", "kernel/query"])
def test_a_part_that_the_model_does_not_have_is_refused(part):
    with pytest.raises(
        ValueError, match=rf"^Expected parts of the model as `freeze`: .*\bencoder, .*decoder.* Received: {part}\.$"
    ):
        trained_paths(f"decoder, {part}")


def test_the_gradients_of_the_others_are_those_of_the_whole_model():
    source, target = (tf.constant(ids) for ids in toy.random_updates([3])[0].values())
    found = []
    for parts in ("", "embedding,encoder"):
        model = Transformer(toy.SMALL)
        toy.set_weights(model)
        freeze(model, parts)
        with tf.GradientTape() as tape:
            loss, _ = model.cross_entropy(source, target, 0.1)
        variables = {variable.path: variable.value for variable in model.trainable_variables}
        found.append(dict(zip(variables, tape.gradient(loss, list(variables.values())), strict=True)))
    whole, part = found
    assert {path.split("/")[1] for path in part} == {"decoder_0"}
    for path, gradient in part.items():
        np.testing.assert_allclose(gradient, whole[path], rtol=1e-5, atol=1e-6)
