"""Weights in 8 bits: numbers worked by hand, the same network as of their products, and a quarter of the size in an
export.
"""

import json
import pathlib

import numpy as np
import pytest
import stand_in
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.decoding.int8 import DequantizedMatrix, Int8, quantize
from t2t_keras.decoding.translator import Translator
from t2t_keras.serving import savedmodel
from t2t_keras.serving.signatures import Signatures

DECODE = DecodeConfig(beam_size=2, max_input=24, extra_length=4)


def test_the_largest_of_an_output_becomes_127_and_others_the_nearest_whole_numbers():
    values = np.array([[1.27, 0.0, -0.5, 2e30], [-0.634, 0.0, 0.25, 1e28]], np.float32)
    quantized, scales = quantize(values, axis=0)
    np.testing.assert_allclose(scales, [[0.01, 0, 0.5 / 127, 2e30 / 127]], rtol=1e-6)
    np.testing.assert_array_equal(quantized, [[127, 0, -127, 127], [-63, 0, 64, 1]])
    assert quantized.dtype == np.int8 and scales.dtype == np.float32
    by_row, scales = quantize(values[:, :2], axis=1)
    np.testing.assert_array_equal(by_row, [[127, 0], [-127, 0]])
    np.testing.assert_allclose(scales, [[0.01], [0.634 / 127]], rtol=1e-6)


def test_no_weight_is_further_off_than_half_a_step():
    values = np.random.default_rng(1).normal(size=[50, 30]).astype(np.float32)
    quantized, scales = quantize(values, axis=0)
    assert np.abs(quantized * scales - values).max(axis=0) == pytest.approx(scales[0] / 2, rel=0.2)
    assert (np.abs(quantized * scales - values) <= scales / 2 * 1.0001).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_widened_matrix_is_the_product_in_the_dtype_that_was_asked_for(dtype):
    values = np.random.default_rng(1).normal(size=[5, 3]).astype(np.float32)
    quantized, scales = quantize(values, axis=0)
    matrix = DequantizedMatrix(values, 0, dtype)
    for read in (matrix, tf.function(matrix)):
        assert read().dtype == dtype and read().shape == (5, 3)
        np.testing.assert_array_equal(read(), tf.cast(quantized * scales, dtype))


def test_matrices_that_differ_by_a_factor_or_in_dtype_alone_keep_their_own_values():
    """Of both, the whole numbers are the same."""
    values = np.random.default_rng(2).normal(size=[5, 3]).astype(np.float32)
    given = [(values, "float32"), (2 * values, "float32"), (values, "bfloat16")]
    for matrix, (own, dtype) in zip([DequantizedMatrix(own, 0, dtype) for own, dtype in given], given, strict=True):
        quantized, scales = quantize(own, axis=0)
        np.testing.assert_array_equal(matrix(), tf.cast(quantized * scales, dtype))


def widened_by_hand(translator: Translator) -> Translator:
    """One in float32 whose weights are the products."""
    for variable in translator.model.trainable_variables:
        if variable.path.endswith("kernel"):
            quantized, scales = quantize(variable.numpy(), axis=0)
            variable.assign(quantized * scales)
    matrix = translator.model.embedding.matrix
    quantized, scales = quantize(matrix.numpy(), axis=1)
    matrix.assign(quantized * scales)
    return Translator(translator.model, translator.tokenizer, translator.config, frozen=True)


@pytest.fixture(scope="module")
def translator() -> Translator:
    original = stand_in.translator(DECODE)
    return Translator(original.model, original.tokenizer, DECODE, int8=Int8(original.model))


@pytest.fixture(scope="module")
def expected() -> Signatures:
    return Signatures(widened_by_hand(stand_in.translator(DECODE)))


@pytest.fixture(scope="module")
def version(translator, tmp_path_factory) -> pathlib.Path:
    return savedmodel.export(translator, tmp_path_factory.mktemp("exports"), {})


@pytest.fixture(scope="module")
def served(version) -> dict:
    return tf.saved_model.load(str(version)).signatures


OPTIONS = {"attention": "additive", "source_vocab_size": 340, "tie_logits": False}
OPTIONS |= {"attention_bias": True, "logits_bias": True}


@pytest.mark.parametrize("options", [{}, OPTIONS])
def test_every_matrix_is_in_8_bits_and_every_vector_as_it_was(options):
    translator = stand_in.translator(DECODE, **options)
    translator.int8 = Int8(translator.model)
    variables = translator.model.trainable_variables
    # It has one for each head.
    matrices = {id(each) for each in variables if len(each.shape) == 2 and each.name != "vector"}
    assert {key for key, value in translator.int8.values.items() if isinstance(value, DequantizedMatrix)} == matrices
    assert len(translator.int8.matrices) == len(matrices) > 10
    for variable in (each for each in variables if id(each) in matrices):
        # A row is a token; else a column is an output.
        of_tokens = variable.path.endswith(("/matrix", "/logits_matrix"))
        number = variable.shape[0 if of_tokens else 1]
        assert translator.int8.values[id(variable)]._scales.shape == ((number, 1) if of_tokens else (1, number)), (
            variable.path
        )


def answers(signatures, lines) -> dict:
    """Of all three signatures."""
    options = {"alpha": 0.8, "max_length": 0, "n_best": 2, "prefix": "z", "alignment": True, "ordered": False}
    options = {
        name: tf.fill([len(lines)], value) for name, value in {**options, "constraints": "", "avoid": ""}.items()
    }
    lines = tf.constant(lines)
    found = {
        "default": signatures["serving_default"](text=lines),
        "options": signatures["translate_with_options"](text=lines, **options),
        "score": signatures["score"](source=lines, target=lines),
    }
    return {f"{signature} {name}": value for signature, each in found.items() for name, value in each.items()}


def of_service(service: Signatures) -> dict:
    names = {"serving_default": "translate", "translate_with_options": "translate_with_options", "score": "score"}
    return {signature: getattr(service, name) for signature, name in names.items()}


def assert_alike(received: dict, expected: dict) -> None:
    assert received.keys() == expected.keys()
    for name, value in expected.items():
        if value.dtype == np.float32:
            np.testing.assert_allclose(received[name], value, atol=1e-4, err_msg=name)
        else:
            np.testing.assert_array_equal(received[name], value, err_msg=name)


@pytest.mark.medium
def test_all_signatures_compute_with_the_products(translator, expected, served):
    """Here, and in an export that is loaded again."""
    lines, service = stand_in.sentences(12), Signatures(translator)
    wanted = answers(of_service(expected), lines)
    assert len(set(wanted["default text"].numpy())) > 6
    assert_alike(answers(of_service(service), lines), wanted)
    assert_alike(answers(served, lines), wanted)


@pytest.mark.medium
def test_two_exports_in_one_program_keep_their_own_weights(expected, served, tmp_path):
    lines = tf.constant(stand_in.sentences(6))
    other = stand_in.translator(DECODE)
    for variable in other.model.trainable_variables:
        variable.assign(-variable if variable.path.endswith("kernel") else variable)
    other = Translator(other.model, other.tokenizer, DECODE, int8=Int8(other.model))
    second = tf.saved_model.load(str(savedmodel.export(other, tmp_path, {}))).signatures
    wanted = [service.score(lines, lines) for service in (expected, Signatures(other))]
    assert np.abs(wanted[0]["log_prob"] - wanted[1]["log_prob"]).min() > 0.01
    for _ in range(2):
        assert_alike(served["score"](source=lines, target=lines), wanted[0])
        assert_alike(second["score"](source=lines, target=lines), wanted[1])


@pytest.mark.medium
def test_an_export_says_what_it_holds_and_has_no_matrix_in_float32(translator, version):
    description = json.loads((version / "assets.extra" / savedmodel.DESCRIPTION).read_text())
    assert (description["dtype"], description["weights"]) == ("float32", "int8")
    whole = b"".join(path.read_bytes() for path in version.rglob("*") if path.is_file())
    for variable in translator.model.trainable_variables:
        if len(variable.shape) == 2:
            assert variable.numpy().tobytes() not in whole
    for matrix in Int8(translator.model).matrices:
        assert whole.count(matrix._quantized.tobytes()) == 1


def test_in_bfloat16_the_weights_in_float32_are_what_is_rounded():
    """Rounded twice, some weights would be other whole numbers."""
    models = [stand_in.translator(DECODE, dtype=dtype).model for dtype in ("bfloat16", "float32")]
    matrices = [variable for variable in models[1].trainable_variables if len(variable.shape) == 2]
    wanted = [quantize(variable.numpy(), 1 if variable.path.endswith("matrix") else 0)[0] for variable in matrices]
    alone, both = Int8(stand_in.translator(DECODE, dtype="bfloat16").model).matrices, Int8(*models).matrices
    assert all(np.array_equal(matrix._quantized, each) for matrix, each in zip(both, wanted, strict=True))
    assert not all(np.array_equal(matrix._quantized, each) for matrix, each in zip(alone, wanted, strict=True))
    assert both[0]().dtype == "bfloat16"
