"""Section 4: restricted attention equals full attention under a band mask, grows linearly, and works in a model."""

import dataclasses
import functools
import re

import keras
import numpy as np
import pytest
import stand_in
import tensorflow as tf
import toy
from keras import ops

from t2t_keras.config import DecodeConfig, ModelConfig, TrainConfig
from t2t_keras.data import shards
from t2t_keras.decoding.int8 import Int8
from t2t_keras.decoding.translator import Translator
from t2t_keras.layers.masks import padding_mask
from t2t_keras.layers.restricted_attention import RestrictedSelfAttention, computed_scores, restricted_attention
from t2t_keras.layers.stacks import DecoderLayer, EncoderLayer
from t2t_keras.model import flops
from t2t_keras.model.encoder import TransformerEncoder
from t2t_keras.model.transformer import Transformer
from t2t_keras.reporting.attention import attention_of
from t2t_keras.runs import run_options
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving import ctranslate2_format, savedmodel
from t2t_keras.serving.signatures import Signatures
from t2t_keras.training import device_memory

B, H, K, E, D = 2, 3, 4, 5, 8
SIZES = {"num_heads": H, "d_k": K, "d_v": E, "d_ff": 12, "dropout": 0.1}
WINDOWED = dataclasses.replace(toy.SMALL, attention_window=2, encoder_layers=2)


def normal(*shape, seed=0, dtype="float32"):
    return tf.cast(np.random.default_rng(seed).normal(size=shape), dtype)


def qkv(length: int, dtype="float32", batch: int = B) -> list[tf.Tensor]:
    return [normal(batch, H, length, width, seed=seed, dtype=dtype) for seed, width in enumerate((K, K, E))]


def band(length: int, window: int) -> np.ndarray:
    """The definition: True where |i - j| <= window // 2."""
    return np.array([[abs(i - j) <= window // 2 for j in range(length)] for i in range(length)], bool).reshape(
        length, length
    )


def padding(length: int) -> np.ndarray:
    """[B, 1, 1, S]: a whole sentence, and one of a third of the length."""
    return (np.arange(length) < np.array([[length], [max(length // 3, 1)]]))[:, None, None]


def by_keras(q, k, v, mask) -> tf.Tensor:
    """Keras's own attention, which puts the heads after the positions, under a mask [B, 1, S, S]."""
    return ops.swapaxes(ops.dot_product_attention(*(ops.swapaxes(x, 1, 2) for x in (q, k, v)), mask=mask), 1, 2)


def with_gradients(function, inputs, upstream) -> list:
    """The result, and the gradients of its product with `upstream` by all inputs."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output = function(*inputs)
        loss = tf.reduce_sum(output * upstream)
    return [output * tf.cast(upstream != 0, output.dtype), *tape.gradient(loss, inputs)]


@functools.cache
def graph_of_unknown_shapes(window: int, padded: bool):
    """One graph for all lengths."""
    shapes = [tf.TensorSpec([None, H, None, width]) for width in (K, K, E)]
    mask = [tf.TensorSpec([None, 1, 1, None], tf.bool)] * padded

    @tf.function(input_signature=[*shapes, *mask], autograph=False)
    def attention(q, k, v, mask=None):
        return restricted_attention(q, k, v, window, mask)

    return attention


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph of unknown shapes"])
@pytest.mark.parametrize("window", [1, 2, 3, 8, 63, 130, 400])
@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 150])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_it_equals_full_attention_under_a_band_mask_and_so_do_its_gradients(length, window, padded, graph):
    inputs, mask = qkv(length), padding(length) if padded else None
    full = band(length, window)[None, None] & (padding(length) if padded else np.ones([B, 1, 1, length], bool))
    # Positions with nothing to attend to are padding far from any word.
    upstream = normal(B, H, length, E, seed=9) * full.any(axis=-1, keepdims=True)

    def restricted(q, k, v, mask=mask):
        return restricted_attention(q, k, v, window, mask)

    if graph:
        compiled = graph_of_unknown_shapes(window, padded)
        received = with_gradients(lambda *inputs: compiled(*inputs, *([mask] if padded else [])), inputs, upstream)
    else:
        received = with_gradients(restricted, inputs, upstream)
    for found, expected in zip(
        received, with_gradients(lambda *inputs: by_keras(*inputs, full), inputs, upstream), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def weights(length: int, window: int, mask=None) -> np.ndarray:
    """The weights, which are the result if the values are the identity."""
    q, k, _ = qkv(length)
    v = np.broadcast_to(np.eye(length, dtype="float32"), [B, H, length, length])
    return np.array(restricted_attention(q, k, v, window, mask))


def test_of_five_positions_each_attends_to_itself_and_its_neighbors():
    """r = 3 by hand; r = 2 is the same, because a neighborhood of two has no center."""
    expected = np.array([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 0, 1, 1]], bool)
    for window in (2, 3):
        found = weights(5, window)
        np.testing.assert_array_equal(found > 0, np.broadcast_to(expected, found.shape))
        np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-6)


def test_a_window_of_one_copies_the_values():
    q, k, v = qkv(70)
    np.testing.assert_allclose(restricted_attention(q, k, v, 1), v, rtol=1e-6)  # Some processors round softmax so.


@pytest.mark.parametrize("position", [60, 67, 100, 128])
def test_a_position_that_is_too_far_changes_nothing_and_the_farthest_in_reach_does(position):
    """Within a block, and across the borders of blocks at 64 and 128."""
    q, k, v = qkv(200)
    before = restricted_attention(q, k, v, 20)
    changed = restricted_attention(q, tf.tensor_scatter_nd_add(k, [[0, 0, position]], [[3.0] * K]), v, 20)
    moved = np.array(before != changed).any(axis=-1)
    assert np.flatnonzero(moved[0, 0]).tolist() == list(range(position - 10, position + 11))
    assert not moved[1].any() and not moved[0, 1:].any()


def test_a_neighborhood_of_padding_alone_is_not_masked_and_all_weights_stay_in_the_band():
    length, window = 150, 8
    masked, whole, near = weights(length, window, padding(length))[1], weights(length, window)[1], band(length, window)
    nowhere = ~(near & padding(length)[1, 0]).any(axis=-1)
    assert nowhere.sum() > 90
    np.testing.assert_array_equal(masked[:, nowhere], whole[:, nowhere])
    assert not masked[:, ~near].any()
    np.testing.assert_allclose(masked.sum(axis=-1), 1, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1, 1, 70), (B, H, 1, 70), (1, H, 1, 70), (B, 1, 1, 1)])
def test_a_mask_broadcasts_over_sentences_and_heads(shape):
    mask = np.random.default_rng(3).random(shape) < 0.5
    inputs = qkv(70)
    expected = restricted_attention(*inputs, 8, np.broadcast_to(mask, (B, H, 1, 70)))
    np.testing.assert_array_equal(restricted_attention(*inputs, 8, mask), expected)


@pytest.mark.parametrize(("batch", "length"), [(0, 7), (2, 0), (0, 0)])
def test_an_empty_share_of_a_replica_gives_an_empty_result_and_gradients(batch, length):
    """A replica without a batch computes on shapes [0, 0]."""
    inputs = qkv(length, batch=batch)
    compiled = tf.function(
        lambda q, k, v: restricted_attention(q, k, v, 6),
        input_signature=[tf.TensorSpec([None, H, None, width]) for width in (K, K, E)],
    )
    for function in (compiled, lambda q, k, v: restricted_attention(q, k, v, 6)):
        output, *gradients = with_gradients(function, inputs, tf.zeros([batch, H, length, E]))
        assert output.shape == (batch, H, length, E)
        assert [gradient.shape for gradient in gradients] == [x.shape for x in inputs]


def test_in_bfloat16_the_softmax_is_computed_in_float32():
    scores = np.linspace(-4, 4, 65)  # Multiples of 1/8, which bfloat16 holds exactly. d_k = 1 does not scale them.
    q, k = ops.ones((1, 1, 65, 1), "bfloat16"), ops.cast(scores.reshape(1, 1, -1, 1), "bfloat16")
    found = restricted_attention(q, k, ops.eye(65, dtype="bfloat16")[None, None], 130)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    received = np.array(ops.cast(found, "float32"))[0, 0, 7]
    np.testing.assert_allclose(received, np.exp(scores) / np.exp(scores).sum(), rtol=2**-8)


def test_in_bfloat16_it_is_close_to_float32():
    received = restricted_attention(*qkv(150, "bfloat16"), 20, padding(150))
    assert received.dtype == "bfloat16"
    words = padding(150).swapaxes(2, 3)
    found = tf.cast(received, "float32") * words
    np.testing.assert_allclose(found, restricted_attention(*qkv(150), 20, padding(150)) * words, atol=0.05)


def tensors(graph) -> list[tf.TensorShape]:
    """The shapes of everything in a graph and in the functions that it calls."""
    functions = [each.graph for each in graph._functions.values() if hasattr(each, "graph")]
    return [
        output.shape
        for each in (graph, *functions)
        for operation in each.get_operations()
        for output in operation.outputs
    ]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("window", [6, 129, 200])
def test_no_tensor_of_the_forward_or_backward_pass_grows_faster_than_the_length(window, masked):
    """Nor has any tensor two axes of the length. Full attention fails both, so the test can see it."""

    def largest(attend, length: int) -> int:
        inputs = [tf.TensorSpec([1, H, length, width]) for width in (K, K, E)] + [
            tf.TensorSpec([1, 1, 1, length], tf.bool)
        ]

        @tf.function(input_signature=inputs)
        def step(q, k, v, mask):
            with tf.GradientTape() as tape:
                tape.watch([q, k, v])
                output = tf.reduce_sum(attend(q, k, v, mask if masked else None))
            return tape.gradient(output, [q, k, v])

        shapes = tensors(step.get_concrete_function().graph)
        assert all(shape.is_fully_defined() for shape in shapes) and len(shapes) > 20
        square = any(sum(size >= length for size in shape) > 1 for shape in shapes)
        return max(shape.num_elements() for shape in shapes), square

    sizes = [
        largest(lambda q, k, v, mask: restricted_attention(q, k, v, window, mask), length) for length in (2000, 4000)
    ]
    assert not any(square for _, square in sizes)
    assert sizes[0][0] <= 1.25 * H * computed_scores(window, 2000)
    assert 1.9 < sizes[1][0] / sizes[0][0] < 2.1
    full = largest(lambda q, k, v, mask: by_keras(q, k, v, mask), 2000)
    assert full[1] and full[0] == H * 2000**2


@pytest.mark.parametrize(("window", "length"), [(6, 10), (6, 1000), (200, 1000), (200, 150)])
def test_the_scores_that_are_counted_are_those_of_the_softmax(window, length):
    step = tf.function(lambda q, k, v: restricted_attention(q, k, v, window))
    graph = step.get_concrete_function(*(tf.TensorSpec([1, H, length, width]) for width in (K, K, E))).graph
    [softmax] = [operation for operation in graph.get_operations() if operation.type == "Softmax"]
    assert softmax.outputs[0].shape.num_elements() == H * computed_scores(window, length)
    assert computed_scores(window, length) >= length * min(window // 2 * 2 + 1, length) / 2


# The layers.


@pytest.fixture
def layer():
    return RestrictedSelfAttention(H, K, E, window=3)


@pytest.mark.parametrize("shape", [(B, 1, 6, 6), (B, 6, 6), (B, H, 6, 6)])
def test_a_mask_for_each_query_is_refused(layer, shape):
    with pytest.raises(ValueError, match=r"same for all queries.* Received: shape \("):
        layer(normal(B, 6, D), attention_mask=np.ones(shape, bool))


@pytest.mark.parametrize("arguments", [{"memory": np.zeros((B, 6, D), "float32")}, {"cache": ()}])
def test_a_memory_or_a_cache_is_refused(layer, arguments):
    with pytest.raises(ValueError, match="no `memory` and no `cache`"):
        layer(normal(B, 6, D), **arguments)


@pytest.mark.parametrize("window", [0, -1])
def test_a_window_without_a_position_is_refused(window):
    with pytest.raises(ValueError, match=f"Received: window={window}"):
        RestrictedSelfAttention(H, K, E, window=window)
    with pytest.raises(ValueError, match=f"Received: window={window}"):
        restricted_attention(*[normal(B, H, 6, K)] * 3, window)


def test_a_negative_window_of_an_encoder_layer_is_refused():
    with pytest.raises(ValueError, match="Received: window=-2"):
        EncoderLayer(**SIZES, attention_window=-2)


def test_a_decoder_layer_has_no_window():
    with pytest.raises(TypeError, match="attention_window"):
        DecoderLayer(**SIZES, attention_window=3)


def test_an_encoder_layer_equals_one_with_full_attention_under_a_band_mask():
    x, mask = normal(B, 9, D), padding(9)
    restricted, full = EncoderLayer(**SIZES, attention_window=4), EncoderLayer(**SIZES)
    expected = full(x, attention_mask=mask & band(9, 4)[None, None])
    restricted.build(x.shape)
    restricted.set_weights(full.get_weights())
    words = mask.swapaxes(2, 3)[:, 0]
    np.testing.assert_allclose(restricted(x, attention_mask=mask) * words, expected * words, atol=1e-5)
    assert np.abs((full(x, attention_mask=mask) - expected) * words).max() > 1e-2


def test_the_mask_of_an_embedding_hides_padding():
    ids = np.array([[4, 7, 9, 0, 0], [5, 5, 6, 8, 3]])
    embedding, layer = keras.layers.Embedding(10, D, mask_zero=True), EncoderLayer(**SIZES, attention_window=4)
    expected = layer(np.array(embedding(ids)), attention_mask=padding_mask(ids))
    np.testing.assert_array_equal(layer(embedding(ids)), expected)


def test_without_a_window_a_layer_is_that_of_before():
    """Also one of a saved model from before there were windows."""
    config = EncoderLayer(**SIZES).get_config()
    del config["attention_window"]
    layer = EncoderLayer.from_config(config)
    assert layer.attention_window == 0 and type(layer.self_attention).__name__ == "MultiHeadAttention"


# The model.


def models(dtype="float32") -> tuple[Transformer, Transformer]:
    """With and without a window, of the same random weights."""
    restricted, full = (
        Transformer(config, dtype=dtype) for config in (WINDOWED, dataclasses.replace(WINDOWED, attention_window=0))
    )
    toy.set_weights(restricted)
    full.set_weights(restricted.get_weights())
    return restricted, full


def test_the_encoder_attends_to_neighborhoods_and_the_decoder_to_everything():
    restricted, full = models()
    [batch] = toy.random_updates([5])
    source, target = batch["source"], batch["target"]
    mask = np.array(padding_mask(source)) & band(source.shape[1], 2)[None, None]
    x = full.positions(full.embedding(source))
    for layer in full.encoder.stack:
        x = layer(x, attention_mask=mask)
    encoded = full.encode(source)._replace(keys_values=[layer.cross_attention.keys_values(x) for layer in full.decoder])
    np.testing.assert_allclose(restricted((source, target)), full.decode(target, encoded)[0], atol=1e-5)
    assert np.abs(full((source, target)) - restricted((source, target))).max() > 1e-3


def test_it_has_no_weights_of_its_own():
    restricted, full = models()
    assert restricted.config.num_weights == full.config.num_weights == restricted.count_params()
    assert [weight.path for weight in restricted.weights] == [weight.path for weight in full.weights]


def test_padding_and_other_sentences_change_nothing():
    restricted, _ = models()
    [batch] = toy.random_updates([6], seed=4)
    logits = np.array(restricted((batch["source"], batch["target"])))
    for row in range(6):
        source, target = (ids[row][ids[row] > 0] for ids in (batch["source"], batch["target"]))
        np.testing.assert_allclose(restricted((source[None], target[None]))[0], logits[row, : len(target)], atol=1e-4)


@pytest.mark.medium
@pytest.mark.parametrize("replicas", [1, 2])
def test_training_on_devices_and_in_micro_batches_equals_one_tape(replicas):
    """With two replicas, the last update leaves one without any row."""
    updates = toy.random_updates([9, 5, 1], seed=3)
    model = {"make_model": lambda: Transformer(WINDOWED)}
    weights, metrics = toy.on_devices(updates, replicas=replicas, micro_batch_tokens=20, **model)
    expected, losses = toy.by_one_tape(updates, **model)
    toy.assert_close(weights, expected, 2e-5)
    np.testing.assert_allclose([found["loss"] for found in metrics], [found["loss"] for found in losses], rtol=1e-5)


def test_a_run_is_not_resumed_with_another_window(tmp_path):
    options = run_options.Options(model=ModelConfig(340, attention_window=8))
    for name in ("subwords.model", "records.tsv"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    SavedRun.write(tmp_path / "run", options, tmp_path / "subwords.model", tmp_path / "records.tsv")
    (tmp_path / "run/checkpoints/step-000000003.json").write_text("{}")
    before = SavedRun.open(tmp_path / "run").options
    assert before.model.attention_window == 8
    with pytest.raises(ValueError, match=re.escape("Received: attention_window=16 (the run: 8)")):
        Start.open(tmp_path / "run", {"attention_window": 16}).changes()


WINDOW_64 = ModelConfig(attention_window=64)


def test_the_largest_micro_batch_is_the_one_that_needs_most_memory_with_the_window():
    """With full attention, a sentence of 8,192 needs more than two of 5,000; with a window it needs less."""
    info = {"source_longest": 8192, "target_longest": 16, "columns": shards.SIDES}
    train = TrainConfig(batch_tokens=10_000, buckets_per_update=1, micro_batch_tokens=10_000)
    found = device_memory.largest_shapes(info, train, 1, functools.partial(flops.memory_cost, ModelConfig()))[8192]
    assert found == (1, 8192, 16)
    received = device_memory.largest_shapes(info, train, 1, functools.partial(flops.memory_cost, WINDOW_64))[8192]
    assert received == (2, 5000, 16)
    small = dataclasses.replace(WINDOW_64, vocab_size=20, d_model=8, d_ff=8, num_heads=1, d_k=4, d_v=4)
    for model, lengths in ((Transformer(small), (5000, 16)), (TransformerEncoder(small), (5000,))):
        assert model.memory_cost(2, *lengths) == flops.memory_cost(WINDOW_64, 2, *lengths)
    assert flops.memory_cost(WINDOW_64, 1, 8000, 16) == pytest.approx(
        2 * flops.memory_cost(WINDOW_64, 1, 4000, 16), rel=0.01
    )
    assert flops.memory_cost(ModelConfig(attention_window=1000), 3, 40, 16) >= flops.memory_cost(
        ModelConfig(), 3, 40, 16
    )


# Decoding and exports.

DECODE = DecodeConfig(beam_size=2, max_input=24, extra_length=4)


def with_window(window: int, dtype: str = "float32", **options) -> Translator:
    """`stand_in.translator` with a window."""
    usual = stand_in.translator(DECODE, dtype=dtype)
    model = Transformer(dataclasses.replace(usual.model.config, attention_window=window), dtype=dtype)
    model.set_weights(usual.model.get_weights())
    return Translator(model, usual.tokenizer, DECODE, **options)


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return [*stand_in.sentences(6), ""]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return with_window(3, frozen=True)


def found(answer) -> tuple:
    return answer["text"].numpy().tolist(), answer["score"].numpy()


@pytest.mark.medium
def test_a_sentence_has_the_same_translation_alone_and_among_others_frozen_or_not(translator, lines):
    texts, scores = found(translator(lines))
    for each in (translator, with_window(3)):
        alone = [found(each([line])) for line in lines]
        assert texts == [text[0] for text, _ in alone]
        np.testing.assert_allclose(scores, [score[0] for _, score in alone], atol=1e-4)
    assert texts != found(with_window(0, frozen=True)(lines))[0]


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_with_int8_it_translates_as_with_the_products_and_in_both_dtypes(lines, dtype):
    plain = with_window(3, dtype)
    quantized = Translator(plain.model, plain.tokenizer, DECODE, frozen=True, int8=Int8(plain.model))
    # `Int8` has set the weights of the model to the products.
    expected = found(Translator(plain.model, plain.tokenizer, DECODE, frozen=True)(lines))
    received = found(quantized(lines))
    assert expected[0] == received[0]
    np.testing.assert_allclose(expected[1], received[1], atol=1e-4 if dtype == "float32" else 0.1)


@pytest.mark.medium
def test_a_savedmodel_translates_scores_and_aligns_as_the_translator(translator, lines, tmp_path):
    signatures = tf.saved_model.load(str(savedmodel.export(translator, tmp_path, {}))).signatures
    texts, scores = found(translator(lines))
    for number in (len(lines), 1):
        answer = signatures["serving_default"](text=tf.constant(lines[:number]))
        assert answer["text"].numpy().tolist() == texts[:number]
        np.testing.assert_allclose(answer["score"], scores[:number], atol=1e-4)
    service = Signatures(translator)
    pairs = {"source": tf.constant(lines), "target": tf.constant(texts)}
    received, expected = signatures["score"](**pairs), service.score(**pairs)
    np.testing.assert_allclose(received["log_prob"], expected["log_prob"], atol=1e-4)


def test_pictures_of_attention_show_the_band(translator):
    attention = attention_of(translator, "two hundred")
    length = attention.encoder.shape[-1]
    assert length > 5
    near = band(length, 3)
    assert (attention.encoder[:, :, ~near] == 0).all() and (attention.encoder[:, :, near] > 0).all()
    np.testing.assert_allclose(attention.encoder.sum(axis=-1), 1, atol=1e-6)


def test_the_weights_of_a_layer_are_those_that_its_output_is_made_with():
    """Of padding too: with one head, and identities for values and output, the output is the mean of the input."""
    layer, x, mask = RestrictedSelfAttention(1, K, D, window=5), normal(B, 80, D), padding(80)
    layer.build(x.shape)
    layer.set_weights([*layer.get_weights()[:2], np.eye(D), np.eye(D)])
    weights = layer.weights_of(x, x, mask)
    assert weights.dtype == "float32"
    np.testing.assert_allclose(weights[:, 0] @ x, layer(x, attention_mask=mask), atol=1e-5)
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, atol=1e-5)


@pytest.mark.parametrize("function", ["additive", "unscaled"])
def test_another_attention_function_is_refused(function):
    """It would be computed as the scaled one."""
    message = f"Restricted self-attention has `function=scaled` only. Received: function={function}"
    with pytest.raises(ValueError, match=message):
        RestrictedSelfAttention(1, K, D, window=5, function=function)
    with pytest.raises(ValueError, match=f"Received: function={function}"):
        EncoderLayer(**SIZES, attention=function, attention_window=4)


def test_ctranslate2_has_no_such_model_and_its_format_is_refused(translator, tmp_path):
    pytest.importorskip("ctranslate2")
    with pytest.raises(ValueError, match=r"CTranslate2 has no restricted self-attention. Received: attention_window=3"):
        ctranslate2_format.write(translator, tmp_path / "written")
    assert not (tmp_path / "written").exists()
