"""Where an update stops being finite: a number put into a weight, a layer's output or a gradient is found where it was
put.
"""

import json
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from toy import PAIRS, SMALL, TASK, TRAIN, VOCAB_SIZE, Toy, padded, set_weights, strategy_of

from t2t_keras.data.few_shapes import Shapes
from t2t_keras.model.transformer import Transformer
from t2t_keras.runs.task import Column
from t2t_keras.system.compat import layers_of
from t2t_keras.training import devices, diagnosis
from t2t_keras.training.train_step import micro_batch_gradients

PLACE = {"step": 4, "micro_batch": 0, "replica": 0, "scale": 1.0}
COLUMNS = dict(zip(("source", "target"), map(tf.constant, map(padded, zip(*PAIRS[:3], strict=True))), strict=True))


@pytest.fixture
def transformer():
    model = Transformer(SMALL)
    set_weights(model)
    return model


def layer_of(model, path: str):
    [layer] = [layer for layer in layers_of(model) if layer.path == path]
    return layer


def test_a_finite_update_has_nothing_to_tell(transformer):
    assert diagnosis.first_not_finite(transformer, TASK, TRAIN, COLUMNS, **PLACE) == ""


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_is_named(transformer, value):
    kernel = transformer.decoder[0].feed_forward.inner.kernel
    kernel.assign(np.where(np.arange(kernel.shape[1]) == 2, value, kernel.numpy()))
    found = diagnosis.first_not_finite(transformer, TASK, TRAIN, COLUMNS, **PLACE)
    assert found == "the weight transformer/decoder_0/feed_forward/inner/kernel"


@pytest.mark.parametrize("path", [
    "embedding", "encoder_0/self_attention/output", "encoder_0/feed_forward", "decoder_0/cross_attention_norm/norm",
])  # fmt: skip
def test_the_first_layer_with_such_an_output_is_named_not_those_it_spoils(monkeypatch, transformer, path):
    layer = layer_of(transformer, f"transformer/{path}")
    call = type(layer).call
    monkeypatch.setattr(layer, "call", lambda *args, **kwargs: call(layer, *args, **kwargs) / 0)
    assert diagnosis.first_not_finite(transformer, TASK, TRAIN, COLUMNS, **PLACE) == f"the output of transformer/{path}"


def test_what_is_spoiled_between_layers_is_reported_as_an_input(monkeypatch, transformer):
    """Attention itself is a function, not a layer: what it makes is the input of the projection after it."""
    from t2t_keras.layers import attention

    weights = attention.attention_weights
    monkeypatch.setattr(attention, "attention_weights", lambda *args: weights(*args) * np.nan)
    found = diagnosis.first_not_finite(transformer, TASK, TRAIN, COLUMNS, **PLACE)
    assert found == "the output of transformer/encoder_0/self_attention/output, and its input already"


def test_a_gradient_that_alone_is_not_finite_is_named(transformer):
    """A loss scale too large for float32 overflows backwards only."""
    found = diagnosis.first_not_finite(transformer, TASK, TRAIN, COLUMNS, **{**PLACE, "scale": 3e38})
    assert found.startswith("the gradient of transformer/") and "every layer's output is finite" in found


def test_of_several_such_gradients_the_first_on_the_way_back_is_named():
    model, place = Toy(), {**PLACE, "scale": 3e38}
    set_weights(model)
    gradients, _ = micro_batch_gradients(model, TASK, TRAIN, COLUMNS, **place)
    assert [diagnosis.all_finite(gradient) for gradient in gradients] == [False] * 3
    assert diagnosis.first_not_finite(model, TASK, TRAIN, COLUMNS, **place).startswith("the gradient of out/bias, ")


def test_an_input_that_a_layer_is_given_by_name_is_one_too():
    class Named(Toy):
        def call(self, inputs, training=False):
            return self.out(inputs=self.embedding(inputs[1]) * np.inf)

    found = diagnosis.first_not_finite(Named(), TASK, TRAIN, COLUMNS, **PLACE)
    assert found == "the output of out, and its input already"


def test_the_layers_are_as_before_afterwards(transformer):
    before = transformer(tuple(COLUMNS.values())).numpy()
    diagnosis.first_not_finite(transformer, TASK, TRAIN, COLUMNS, **PLACE)
    assert all("watched" not in layer.call.__qualname__ for layer in layers_of(transformer))
    np.testing.assert_array_equal(transformer(tuple(COLUMNS.values())), before)


class Poisoned(Toy):
    """The toy, whose embedding of one word is not a number."""

    def call(self, inputs, training=False):
        source, target = inputs
        logits = super().call(inputs, training=training)
        return keras.ops.where(keras.ops.any(source == VOCAB_SIZE - 1, axis=1)[:, None, None], np.nan, logits)


@pytest.mark.parametrize(("shapes", "number"), [(None, 8), (Shapes(2.0, 128), 8), (None, 7), (Shapes(2.0, 128), 7)])
def test_the_report_has_all_pairs_and_the_text_of_the_micro_batch(tmp_path, monkeypatch, shapes, number):
    """Of the fourth worker, whose replicas are the seventh and the eighth. Rows of padding are no pairs."""
    monkeypatch.setattr(devices, "process_index", lambda strategy: 3)
    strategy = strategy_of(2)
    with strategy.scope():
        model = Poisoned()
        set_weights(model)
    source, target = (padded(side).clip(max=VOCAB_SIZE - 2) for side in zip(*PAIRS[:number], strict=True))
    source[6, 0] = VOCAB_SIZE - 1
    dataset = tf.data.Dataset.from_tensors({"source": source, "target": target})
    tokens = 32 if shapes else 2 * max(source.shape[1], target.shape[1])
    [batch] = devices.distribute(strategy, dataset, micro_batch_tokens=tokens, shapes=shapes)
    path, place = tmp_path / "not_finite" / "update-42.npz", {"iterations": 41, "scale": 2.0}
    place["text_of"] = lambda column, ids: [str(row[row > 0].tolist()) for row in ids]
    told = diagnosis.write_report(path, strategy, model, TASK, TRAIN, batch, **place)
    assert str(path) in told and "the loss" in told
    with np.load(path) as archive:
        np.testing.assert_array_equal(archive["source"], source)
        np.testing.assert_array_equal(archive["target"], target)
    [finding] = json.loads(path.with_suffix(".json").read_text())
    assert (finding["replica"], finding["micro_batch"], finding["step"], finding["scale"]) == (7, 1, 41, 2.0)
    pairs = zip(source[6:], target[6:], strict=True)
    assert finding["pairs"] == [[str(row[row > 0].tolist()) for row in pair] for pair in pairs]


def test_the_report_s_summary_names_what_was_not_finite_in_the_first_micro_batch(tmp_path, monkeypatch):
    strategy = strategy_of(1)
    found = {2: "the second", 1: "the first", 0: ""}
    monkeypatch.setattr(diagnosis, "first_not_finite", lambda *_, micro_batch, **place: found[micro_batch])
    ids = tf.constant([[[5, 3, 0]], [[6, 3, 0]], [[7, 8, 3]], [[0, 0, 0]]])
    place = {"iterations": 1, "scale": 1.0, "text_of": lambda column, ids: [str(row.tolist()) for row in ids]}
    (tmp_path / "x.npz").symlink_to(tmp_path / "elsewhere")
    columns = {"source": ids, "target": ids}
    told = diagnosis.write_report(tmp_path / "x.npz", strategy, None, TASK, TRAIN, columns, **place)
    assert told.startswith("First value that is not finite: the first.")
    assert not (tmp_path / "x.npz").is_symlink() and not (tmp_path / "elsewhere").exists()
    findings = json.loads((tmp_path / "x.json").read_text())
    assert [(each["micro_batch"], each["first"], each["pairs"]) for each in findings] == [
        (1, "the first", [["[6, 3]", "[6, 3]"]]), (2, "the second", [["[7, 8, 3]", "[7, 8, 3]"]])
    ]  # fmt: skip


def test_a_worker_whose_pairs_are_all_finite_points_to_the_files_of_the_others(tmp_path, monkeypatch):
    """Story: of two workers, the launcher showed the message of the chief, "none", and not what the other one found."""
    monkeypatch.setattr(devices, "several_workers", lambda strategy: True)
    monkeypatch.setattr(devices, "process_index", lambda strategy: 0)
    monkeypatch.setattr(diagnosis, "first_not_finite", lambda *_, **place: "")
    columns = dict.fromkeys(("source", "target"), tf.constant([[[5, 3]]]))
    place = {"iterations": 1, "scale": 1.0, "text_of": lambda column, ids: []}
    told = diagnosis.write_report(tmp_path / "x.npz", strategy_of(1), None, TASK, TRAIN, columns, **place)
    assert "none in the pairs of this worker; see the files of the others" in told


def test_the_report_has_micro_batches_that_cannot_be_repeated_and_may_have_none(tmp_path, monkeypatch):
    """As where another program has taken memory meanwhile. Only columns of sub-words are shown as text."""
    task = types.SimpleNamespace(columns=(Column("source"), Column("case", counted=False, is_text=False)))
    ids = tf.constant([[[5, 3]], [[6, 3]]])
    place = {"iterations": 1, "scale": 1.0, "text_of": lambda column, ids: [f"für {column}"]}

    def report(repeat) -> tuple[str, str]:
        monkeypatch.setattr(diagnosis, "first_not_finite", repeat)
        columns = {"source": ids, "case": ids}
        told = diagnosis.write_report(tmp_path / "x.npz", strategy_of(1), None, task, TRAIN, columns, **place)
        return told, (tmp_path / "x.json").read_text(encoding="utf-8")

    def out_of_memory(*_, micro_batch, **place):
        if micro_batch:
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory")
        return ""

    told, written = report(out_of_memory)
    [finding] = json.loads(written)
    assert finding["micro_batch"] == 1
    assert finding["first"].startswith("unknown: out of memory")
    assert finding["first"] in told
    assert finding["pairs"] == [["für source"]] and "für" in written
    told, written = report(lambda *_, **place: "")
    assert told.startswith("First value that is not finite: none") and json.loads(written) == []
