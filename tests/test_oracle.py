"""The Keras Transformer agrees with the paper's equations as `numpy_transformer.py` writes them: forwards, its loss,
its gradients.

The Keras side reads a padded batch at once; the oracle reads each sentence alone and unpadded.
"""

import dataclasses

import numpy as np
import numpy_transformer as paper
import pytest
import tensorflow as tf
from keras import ops

from t2t_keras.config import BOS, EOS, PAD
from t2t_keras.layers.masks import shift_right
from t2t_keras.model.loss import cross_entropy
from t2t_keras.model.transformer import Transformer

SOURCES = [[7, 12, 33, 5, EOS], [39, 4, EOS], [9, 9, 21, 30, 18, 6, EOS]]
TARGETS = [[14, 8, EOS], [25, 4, 17, 17, 36, EOS], [5, EOS]]
LABEL_SMOOTHING = 0.1


def padded(sentences: list) -> np.ndarray:
    return np.array([ids + [PAD] * (max(map(len, sentences)) - len(ids)) for ids in sentences], "int32")


SOURCE, TARGET = padded(SOURCES), padded(TARGETS)


OPTIONS = {
    "the paper": {},
    "biases of attention": {"attention_bias": True},
    "additive attention": {"attention": "additive"},
    "unscaled attention": {"attention": "unscaled"},
    "gelu": {"activation": "gelu"},
    "swish, another epsilon": {"activation": "swish", "norm_epsilon": 0.1},
    "a vocabulary of the source": {"source_vocab_size": 45},
    "a matrix and a bias of the logits": {"tie_logits": False, "logits_bias": True},
    "pre-norm": {"norm": "pre", "norm_epsilon": 0.01},
    "tensor2tensor's sinusoids": {"sinusoids": "tensor2tensor"},
    "another first position": {"first_position": 2},
    "pre-norm and all": {**{"norm": "pre", "sinusoids": "tensor2tensor", "first_position": 3, "source_vocab_size": 45},
                         **{"attention": "unscaled", "attention_bias": True, "activation": "gelu", "norm_epsilon": 1e-5,
                            "logits_bias": True}},
    "all": {**{"attention": "additive", "attention_bias": True, "activation": "swish", "norm_epsilon": 1e-5},
            **{"source_vocab_size": 45, "tie_logits": False, "logits_bias": True}},
}  # fmt: skip
SOME = pytest.mark.parametrize("options", ["the paper", "all", "pre-norm and all"], indirect=True)


@pytest.fixture(params=OPTIONS)
def options(request) -> dict:
    return OPTIONS[request.param]


@pytest.fixture
def model(tiny, options):
    return randomized(Transformer(dataclasses.replace(tiny, **options)))


def randomized(model):
    """Every weight is random, so that biases and gains count too."""
    rng = np.random.default_rng(3)
    for weight in model.trainable_variables:
        around = 1.0 if weight.path.endswith("gamma") else 0.0
        weight.assign(around + rng.normal(scale=0.3, size=weight.shape))
    return model


def values_of(model) -> dict:
    """The model's weights by path, without the model's own name."""
    return {weight.path.split("/", 1)[1]: np.array(weight, "float64") for weight in model.trainable_variables}


def as_in_the_paper(values: dict, config) -> dict:
    """Weights by path → what `numpy_transformer.py` calls them, each projection cut into its heads."""

    def projection(path):
        kernel = values[f"{path}/kernel"]
        return kernel, values.get(f"{path}/bias", np.zeros(kernel.shape[1]))

    def scores(path):
        if config.attention == "additive":  # Bahdanau et al. 2015, with W s and U h as query and key.
            return [lambda query, key, v=v: v @ np.tanh(query + key) for v in values[f"{path}/vector"]]
        return [{"scaled": paper.scaled_dot_product, "unscaled": np.dot}[config.attention]] * config.num_heads

    def attention(path):
        projections = (projection(f"{path}/{name}") for name in ("query", "key", "value", "output"))
        return paper.in_heads(config.num_heads, *projections) | {"score": scores(path)}

    def norm(path):
        return values[f"{path}/gamma"], values[f"{path}/beta"], config.norm_epsilon

    def layer(path, attentions):
        norms = {f"{name}_norm": norm(f"{path}/{name}_norm/norm") for name in [*attentions, "feed_forward"]}
        maps = *projection(f"{path}/feed_forward/inner"), *projection(f"{path}/feed_forward/outer"), config.activation
        return {name: attention(f"{path}/{name}") for name in attentions} | norms | {"feed_forward": maps}

    matrix = values["embedding/matrix"]
    pre = {f"{side}_norm": norm(side) for side in ("encoder", "decoder")} if config.norm == "pre" else {}
    return pre | {
        "pre": bool(pre),
        "positions": (config.first_position, config.sinusoids == "tensor2tensor"),
        "source_matrix": values["source_embedding/matrix"] if config.source_vocab_size else matrix,
        "target_matrix": matrix,
        "logits_matrix": matrix if config.tie_logits else values["embedding/logits_matrix"],
        "logits_bias": values["embedding/logits_bias"] if config.logits_bias else np.zeros(len(matrix)),
        "encoder": [layer(f"encoder_{i}", ["self_attention"]) for i in range(config.encoder_layers)],
        "decoder": [layer(f"decoder_{i}", ["self_attention", "cross_attention"]) for i in range(config.decoder_layers)],
    }


def paper_losses(weights: dict) -> list:
    """The loss of each word of each sentence."""
    return [
        paper.smoothed_loss(paper.logits(source, [BOS, *target[:-1]], weights), target, LABEL_SMOOTHING)
        for source, target in zip(SOURCES, TARGETS, strict=True)
    ]


@SOME
def test_the_memory_holds_the_projections_of_the_papers_encoding(model):
    weights = as_in_the_paper(values_of(model), model.config)
    memory = model.encode(SOURCE)
    for row, source in enumerate(SOURCES):
        encoding = paper.encode(source, weights)
        for layer, (keys, values) in zip(weights["decoder"], memory.keys_values, strict=True):
            for head in range(model.config.num_heads):
                for received, name in ((keys, "key"), (values, "value")):
                    kernel, bias = layer["cross_attention"][name][head]
                    np.testing.assert_allclose(received[row, head, : len(source)], encoding @ kernel + bias, atol=1e-5)


def test_the_logits_of_a_padded_batch_are_the_papers_for_each_sentence_alone(model):
    weights = as_in_the_paper(values_of(model), model.config)
    logits = model((SOURCE, shift_right(TARGET)))
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected = paper.logits(source, [BOS, *target[:-1]], weights)
        np.testing.assert_allclose(logits[row, : len(target)], expected, atol=1e-5)


@SOME
@pytest.mark.parametrize(("layers", "aligning"), [(1, 0), (2, 0), (3, 1)])
def test_alignments_of_a_padded_batch_are_the_papers_attention_in_the_last_layer_but_one(
    tiny, options, layers, aligning
):
    """The mean of its heads; where there is one layer, of that."""
    model = randomized(Transformer(dataclasses.replace(tiny, decoder_layers=layers, **options)))
    weights = as_in_the_paper(values_of(model), model.config)
    found = model.align(shift_right(TARGET), model.encode(SOURCE))
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected = paper.alignment(source, [BOS, *target[:-1]], weights, aligning)
        np.testing.assert_allclose(found[row, : len(target), : len(source)], expected, atol=1e-5)
        assert not np.any(found[row, : len(target), len(source) :])


@SOME
def test_the_smoothed_loss_of_a_padded_batch_is_the_papers_for_each_sentence_alone(model):
    loss = np.array(cross_entropy(model((SOURCE, shift_right(TARGET))), TARGET, LABEL_SMOOTHING)[0])
    expected = paper_losses(as_in_the_paper(values_of(model), model.config))
    wanted = pytest.approx(np.concatenate(expected).sum(), rel=1e-5)
    assert float(model.cross_entropy(SOURCE, TARGET, LABEL_SMOOTHING)[0]) == wanted
    for row, losses in enumerate(expected):
        np.testing.assert_allclose(loss[row, : len(losses)], losses, atol=1e-5)
    assert loss.sum() == pytest.approx(np.concatenate(expected).sum(), rel=1e-5)


def gradients_by_path(model) -> dict:
    with tf.GradientTape() as tape:
        loss = ops.sum(cross_entropy(model((SOURCE, shift_right(TARGET))), TARGET, LABEL_SMOOTHING)[0])
    gradients = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
    return {
        path: np.array(tf.convert_to_tensor(gradient))
        for path, gradient in zip(values_of(model), gradients, strict=True)
    }


def paper_slope(values: dict, directions: dict, config, step: float = 1e-6) -> float:
    """The central difference of the summed loss, as all the weights in `directions` move together."""

    def loss_at(step):
        moved = {path: values[path] + step * direction for path, direction in directions.items()}
        return np.concatenate(paper_losses(as_in_the_paper({**values, **moved}, config))).sum()

    return (loss_at(step) - loss_at(-step)) / (2 * step)


@SOME
def test_the_gradient_of_each_weight_agrees_with_a_central_difference_of_the_papers_loss(model):
    values, gradients, rng = values_of(model), gradients_by_path(model), np.random.default_rng(5)
    for path, gradient in gradients.items():
        direction = rng.normal(size=gradient.shape)
        expected = paper_slope(values, {path: direction}, model.config)
        # A bias of keys adds the same to all scores of a query: its gradient is 0.
        assert np.sum(gradient * direction) == pytest.approx(expected, rel=1e-3, abs=1e-5), path


@SOME
def test_the_gradient_of_all_weights_agrees_with_central_differences_along_random_directions(model):
    values, gradients, rng = values_of(model), gradients_by_path(model), np.random.default_rng(6)
    for _ in range(3):
        directions = {path: rng.normal(size=gradient.shape) for path, gradient in gradients.items()}
        received = sum(np.sum(gradient * directions[path]) for path, gradient in gradients.items())
        assert received == pytest.approx(paper_slope(values, directions, model.config), rel=1e-4)
