"""An export is whole or not there, says what it is, and translates as in training without this package."""

import dataclasses
import hashlib
import json
import os
import pathlib
import sys
import types

import numpy as np
import programs
import pytest
import stand_in
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from t2t_keras.config import DecodeConfig
from t2t_keras.decoding import sub_batches
from t2t_keras.decoding.translator import Translator
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving import savedmodel
from t2t_keras.serving.signatures import Signatures
from t2t_keras.system import files

ROOT = pathlib.Path(__file__).parent.parent
DECODE = DecodeConfig(beam_size=2, alpha=0.8, max_input=24, extra_length=4)
LINES = [
    "two hundred and seven", "", "one", "😀 ½", "a\x00b",
    "the twenty-first of may nineteen ninety-nine and one million and one euros",
]  # fmt: skip
# What a program has that knows nothing of this project.
ALONE = """
import json, sys
import tensorflow as tf, tensorflow_text
lines = json.load(sys.stdin)
signatures = tf.saved_model.load(sys.argv[1]).signatures
found = signatures["serving_default"](text=tf.constant(lines))
number = len(lines)
drawn = signatures["sample"](
    text=tf.constant(lines), seed=tf.range(number, dtype=tf.int64), draws=tf.fill([number], 3),
    temperature=tf.fill([number], 0.8), top_k=tf.fill([number], 20), top_p=tf.fill([number], 0.9),
    max_length=tf.zeros([number], tf.int32),
)
scores = signatures["score"](source=tf.constant(lines), target=tf.constant(lines))
assert not [name for name in sys.modules if name.split(".")[0] == "t2t_keras"]
print(json.dumps([
    [text.decode() for text in found["text"].numpy()], found["score"].numpy().tolist(),
    scores["log_prob"].numpy().tolist(),
    [[text.decode("utf-8", "replace") for text in row] for row in drawn["text"].numpy()],
    drawn["score"].numpy().tolist(),
]))
"""


@pytest.fixture(scope="module")
def translator():
    translator = stand_in.translator(DECODE)
    translator.limits = translator.limits._replace(cores=5)
    return translator


@pytest.fixture(scope="module")
def version(translator, tmp_path_factory) -> pathlib.Path:
    """The first version in a folder."""
    return savedmodel.export(translator, tmp_path_factory.mktemp("exports"), {"checkpoint": "average"})


@pytest.fixture(scope="module")
def service(translator) -> Signatures:
    """They are traced once."""
    return Signatures(translator)


@pytest.fixture(scope="module")
def loaded(version):
    return tf.saved_model.load(str(version))


def contents(folder: pathlib.Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("step", "expected"), [(7, {"loss": 1.5, "update": 7}), (0, None)])
def test_an_export_names_the_best_validation_of_its_run(monkeypatch, tmp_path, step, expected):
    """A state has the loss times -1: the highest is the best."""
    translator = types.SimpleNamespace(tokenizer=types.SimpleNamespace(languages=()))
    monkeypatch.setattr(
        savedmodel, "load_with_states", lambda _: (translator, [{"best": -1.5, "best_step": step, "step": 9}])
    )
    run = SavedRun(tmp_path, {"model": {}, "train": {"best_metric": "loss"}, "data": {}})
    monkeypatch.setattr(savedmodel, "export", lambda translator, folder, about: about)
    read = ["<a>", "<b>"] if step else [""]
    facts = {"tags": read, "inline_terms": bool(step), "pattern": "x" if step else ""}
    pair = ("en", "de") if step else ()
    model = types.SimpleNamespace(runs=(run,), checkpoint="best", pair=pair, **facts)
    found = savedmodel.export_run(tmp_path, model)
    of_text = facts | {"pair": list(pair)} if step else {}
    of_run = {"architecture": "transformer", "checkpoint": "best", "update": 9, "best_validation": expected}
    assert found == of_run | of_text


@pytest.mark.parametrize("state", [{}, {"step": None, "best": "x", "best_step": 1}])
def test_a_state_without_a_validation_is_described_without_one(tmp_path, state):
    """Story: an export of a stranger's run ended in a traceback."""
    run = SavedRun(tmp_path, {"model": {}, "train": {}, "data": {}})
    expected = {"architecture": "transformer", "checkpoint": "best", "update": None, "best_validation": None}
    assert savedmodel._described_run(run, "best", state) == expected


def test_versions_are_counted_from_1_and_what_is_no_number_does_not_count(tmp_path):
    assert savedmodel.next_version(tmp_path / "absent") == 1
    for names, expected in (([".unfinished-7", "old", "notes.txt"], 1), (["1"], 2), (["9", "10", "2"], 11)):
        for name in names:
            (tmp_path / name).mkdir()
        assert savedmodel.next_version(tmp_path) == expected


@pytest.mark.medium
@pytest.mark.parametrize("fails", ["saving", "warm-up", "renaming"])
def test_an_export_that_fails_leaves_no_version_and_the_next_is_whole(
    version, translator, tmp_path, monkeypatch, fails, messages
):
    """A server takes any number for a version, so there is none until the last moment."""
    seen = []

    def save(held, path, signatures):
        (pathlib.Path(path) / "variables").mkdir(parents=True)
        (pathlib.Path(path) / "saved_model.pb").write_bytes(b"half")
        stop("saving")

    def stop(what: str) -> None:
        seen.extend(path.name for path in tmp_path.iterdir() if path.name.isdecimal())
        if what == fails:
            raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(tf.saved_model, "save", save)
        patched.setattr(savedmodel, "_warm_up", lambda path, service: stop("warm-up"))
        patched.setattr(pathlib.Path, "rename", lambda path, target: stop("renaming"))
        if fails == "renaming":
            patched.setattr(savedmodel, "write_whole", lambda path, content: path.write_bytes(content))
        with pytest.raises(OSError, match="disk full"):
            savedmodel.export(translator, tmp_path, {})
    assert not seen and not [path for path in tmp_path.iterdir() if path.name.isdecimal()]
    with monkeypatch.context() as patched:  # As a real one, which the other tests look at, and quicker.
        patched.setattr(tf.saved_model, "save", lambda held, path, signatures: None)
        patched.setattr(savedmodel, "_warm_up", lambda path, service: path.touch())
        assert [savedmodel.export(translator, tmp_path, {}).name for _ in range(2)] == ["1", "2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "1", "2"] and len(messages) == 2
    for name in ("1", "2"):
        expected = {f"assets.extra/{savedmodel.DESCRIPTION}", f"assets.extra/{savedmodel.WARM_UP}"}
        assert contents(tmp_path / name) == expected


def test_a_full_disk_is_reported_in_a_sentence_and_the_same_command_goes_on_when_there_is_room(tmp_path):
    """Story: TensorFlow's error was a traceback of 35 lines."""

    def write(folder: pathlib.Path) -> None:
        with tf.io.TFRecordWriter("/dev/full") as file:
            file.write(b"x" * 2**20)

    message = rf"^Could not write {tmp_path}/1 \(.*No space left on device.*\)\. It is incomplete and is not used: "
    with pytest.raises(OSError, match=message):
        savedmodel.write_version(tmp_path, write)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    assert savedmodel.write_version(tmp_path, lambda folder: None) == tmp_path / "1"


def test_a_second_export_at_the_same_time_is_refused_and_harms_nothing(translator, tmp_path):
    in_use = pytest.raises(BlockingIOError, match=f"{tmp_path} is in use by process {os.getpid()}")
    with files.exclusive(tmp_path / ".lock", "it"), in_use:
        savedmodel.export(translator, tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_model_that_no_graph_can_hold_is_refused_before_anything_is_written(translator, tmp_path, monkeypatch):
    matrix = translator.model.embedding.matrix.shape
    monkeypatch.setattr(savedmodel, "MAX_BYTES", 4 * (translator.model.count_params() + matrix[0] * matrix[1]) - 1)
    with pytest.raises(ValueError, match="bytes of weights.*dtype=bfloat16 or `int8`"):
        savedmodel.export(translator, tmp_path, {})
    assert not list(tmp_path.iterdir())


def test_a_weight_in_8_bits_is_one_byte_of_a_graph(translator, tmp_path, monkeypatch):
    given, matrix = Translator(translator.model, translator.tokenizer, DECODE), translator.model.embedding.matrix.shape
    given.int8 = types.SimpleNamespace()
    number = given.model.count_params() + matrix[0] * matrix[1]
    monkeypatch.setattr(savedmodel, "MAX_BYTES", number - 1)
    with pytest.raises(ValueError, match=f"Received: {number:,} bytes for {number:,} weights"):
        savedmodel.export(given, tmp_path, {})


def test_warm_up_requests_have_texts_of_every_size_and_ask_for_alignments(tmp_path):
    """A shorter one would leave a part of the work to the first client."""
    tokenizer = types.SimpleNamespace(pieces=[f"▁{number}" for number in range(70)])
    savedmodel._warm_up(
        tmp_path / "requests", types.SimpleNamespace(translator=types.SimpleNamespace(source_tokenizer=tokenizer))
    )
    sizes = {}
    for record in tf.data.TFRecordDataset(str(tmp_path / "requests")).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        assert inputs.get("alignment", np.array(True)).all()
        for name in sorted({"text", "source", "target"} & inputs.keys()):
            texts = [text.decode() for text in inputs[name]]
            assert len(set(texts)) == len(texts) and "▁" not in "".join(texts)
            [length] = {len(text.split()) for text in texts}
            sizes.setdefault((request.model_spec.signature_name, name), []).append((len(texts), length))
    asked = [
        ("serving_default", "text"), ("translate_with_options", "text"), ("sample", "text"), ("score", "source"),
        ("score", "target"),
    ]  # fmt: skip
    assert sizes == {one: list(savedmodel.WARM_UP_SIZES) for one in asked}


def test_an_export_is_a_saved_model_with_a_description_and_a_warm_up(version):
    assert version.name == "1" and sorted(path.name for path in version.parent.iterdir()) == [".lock", "1"]
    assert contents(version) >= {"saved_model.pb", "variables/variables.index", "assets.extra/t2t_keras.json"}
    assert (version / "assets.extra/tf_serving_warmup_requests").stat().st_size > 0


def test_the_description_has_the_facts(version, translator):
    text = (version / "assets.extra" / savedmodel.DESCRIPTION).read_text()
    description = json.loads(text)
    assert text == json.dumps(description, indent=2) + "\n", "a line for each, for people"
    expected = {name: sys.modules[name].__version__ for name in ("t2t_keras", "tensorflow", "tensorflow_text", "keras")}
    assert description.pop("versions") == expected
    assert description == {
        "model": dataclasses.asdict(translator.model.config),
        "decode": dataclasses.asdict(DECODE),
        "dtype": "float32",
        "weights": "float32",
        "subwords_sha256": hashlib.sha256(translator.tokenizer.model).hexdigest(),
        "checkpoint": "average",
    }


def test_an_export_divides_no_batch(version):
    """As many loops run in parallel on a machine with any number of cores."""
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((version / "saved_model.pb").read_bytes())
    nodes = [
        node
        for graph in saved.meta_graphs
        for function in graph.graph_def.library.function
        for node in function.node_def
    ]
    found = {node.attr["parallel_iterations"].i for node in nodes if node.op in ("While", "StatelessWhile")}
    assert sub_batches.PARALLEL in found and 5 not in found


class _SavedError(Exception):
    """Ends an export where it is written."""


def test_an_export_has_the_rows_and_cores_that_it_is_given(translator, tmp_path, monkeypatch):
    """Story: the server's GPU searched 32 rows at a time, as two cores do."""

    def save(*arguments, **options):
        raise _SavedError

    monkeypatch.setattr(tf.saved_model, "save", save)
    given = Translator(
        translator.model, translator.tokenizer, dataclasses.replace(DECODE, search_rows=256, search_cores=3)
    )
    with pytest.raises(_SavedError):
        savedmodel.export(given, tmp_path, {})
    assert given.limits == (256, 32768, 3)


@pytest.mark.medium
def test_every_warm_up_request_runs(version, loaded):
    """TensorFlow Serving reads `PredictionLog` records, at most 1,000."""
    asked = []
    for record in tf.data.TFRecordDataset(str(version / "assets.extra" / savedmodel.WARM_UP)):
        request = prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log.request
        assert request.model_spec.name == savedmodel.MODEL_NAME
        signature = request.model_spec.signature_name
        inputs = {name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()}
        outputs = loaded.signatures[signature](**inputs)
        assert not any(outputs.get("error", tf.constant([""])).numpy())
        assert all(np.isfinite(value).all() for value in outputs.values() if value.dtype.is_floating)
        asked.append((signature, next(iter(inputs.values())).shape[0]))
    assert set(asked) == {(name, number) for name in loaded.signatures for number, _ in savedmodel.WARM_UP_SIZES}
    assert len(asked) <= 1000


@pytest.mark.medium
def test_another_program_without_this_package_translates_and_scores_the_same(version, service, translator):
    texts, scores, log_probs, drawn, drawn_scores = programs.alone(ALONE, version, LINES)
    expected, lines = translator(tf.constant(LINES)), tf.constant(LINES)
    assert texts == [text.decode() for text in expected["text"].numpy()] and len(set(texts)) > 3
    np.testing.assert_allclose(scores, expected["score"], atol=1e-4)
    np.testing.assert_allclose(log_probs, service.score(lines, lines)["log_prob"], atol=1e-4)
    rows = [len(LINES)]
    options = (tf.fill(rows, value) for value in (3, 0.8, 20, 0.9, 0))
    drawn_here = service.sample(lines, tf.range(len(LINES), dtype=tf.int64), *options)
    assert drawn == [[text.decode("utf-8", "replace") for text in row] for row in drawn_here["text"].numpy()]
    np.testing.assert_allclose(drawn_scores, drawn_here["score"], atol=2e-3)
    assert len({text for row in drawn for text in row}) > 10 and drawn[1] == [""] * 3


@pytest.mark.medium
def test_a_loaded_export_answers_options_and_names_what_is_wrong_with_a_row(loaded, service):
    inputs = {
        "text": tf.constant(["two hundred and seven"] * 4), "alpha": tf.constant([-1.0, float("nan"), 0.0, -1.0]),
        "max_length": tf.constant([0, 0, 3, 0]), "n_best": tf.constant([2, 1, 1, 3]),
        "prefix": tf.constant(["", "", "x", ""]), "alignment": tf.constant([True, True, False, False]),
        "constraints": tf.constant(["Euro\tzwei", "", "", ""]), "avoid": tf.constant(["und", "", "", ""]),
        "ordered": tf.constant([True, False, False, False]),
    }  # fmt: skip
    found, expected = loaded.signatures["translate_with_options"](**inputs), service.translate_with_options(**inputs)
    assert set(found) == set(expected)
    for name, value in expected.items():
        if value.dtype == tf.float32:
            np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert [text.split(b":")[0] for text in found["error"].numpy()] == [b"", b"alpha", b"", b"n_best"]


@pytest.mark.medium
def test_one_trace_of_each_signature_serves_every_size(service):
    line = "two hundred and seven "
    functions = [service.translate, service.translate_with_options, service.sample, service.score]
    for number, length in [(1, 1), (0, 0), (2, 3), (33, 1), (5, 9), (70, 2)]:
        text = tf.constant([line * (1 + row % (length + 1)) for row in range(number)], tf.string)
        service.translate(text)
        options = (tf.fill([number], value) for value in (length, 1.0, 2, 1.0, 3))
        service.sample(text, tf.zeros([number], tf.int64), *options)
        service.score(text, text)
    assert [function.experimental_get_tracing_count() for function in functions] == [1, 1, 1, 1]


@pytest.mark.medium
def test_an_export_in_bfloat16_says_so_and_scores_almost_as_one_in_float32(tmp_path, translator, service):
    """Of each weight and result 8 bits of 24 are left; log P stays within a few hundredths of itself. A weight that is
    not trained is exported too. Story: an architecture with such a weight could be trained, and its export ended in an
    error of TensorFlow.
    """
    rounded = stand_in.translator(DECODE, dtype="bfloat16")
    rounded.model.embedding.trainable = False
    folder = savedmodel.export(rounded, tmp_path, {})
    assert json.loads((folder / "assets.extra" / savedmodel.DESCRIPTION).read_text())["dtype"] == "bfloat16"
    signatures, lines = tf.saved_model.load(str(folder)).signatures, tf.constant(stand_in.sentences(12))
    found, expected = (
        score(source=lines, target=lines)["log_prob"].numpy() for score in (signatures["score"], service.score)
    )
    assert found.dtype == np.float32 and 0 < np.abs(found / expected - 1).max() < 0.05
    in_process = Signatures(rounded)  # Its functions do not keep it.
    np.testing.assert_allclose(found, in_process.score(lines, lines)["log_prob"], atol=1e-4)
    translations = signatures["serving_default"](text=lines)
    assert np.isfinite(translations["score"]).all() and len(set(translations["text"].numpy())) > 6
    variables = sum(path.stat().st_size for path in folder.glob("variables/variables.data*"))
    assert variables < 1.2 * 2 * translator.model.count_params() + 10_000


def test_nothing_but_numbers_the_network_and_sub_words_is_in_the_graph(version):
    """No Python, no files: whoever serves it needs TensorFlow's operations and TF.Text's SentencePiece alone."""
    saved = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0].graph_def
    used = {node.op for node in graph.node} | {
        node.op for function in graph.library.function for node in function.node_def
    }
    expected = {"SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"}
    assert {op for op in used if "Sentencepiece" in op} == expected
    assert not {op for op in used if op in ("PyFunc", "EagerPyFunc", "PyFuncStateless", "ReadFile", "WriteFile")}


def test_a_graph_has_the_weights_as_constants_for_the_search_alone(version, translator):
    """Samples read the variables: with constants of their own an export would be half as large again."""
    saved = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    functions = saved.meta_graphs[0].graph_def.library.function
    found = [node.attr["value"].tensor for function in functions for node in function.node_def if node.op == "Const"]
    size = sum(tensor.ByteSize() for tensor in found if tensor.dtype == tf.float32.as_datatype_enum)
    weights, matrix = translator.model.count_params(), translator.model.embedding.matrix.shape
    assert 4 * weights < size < 1.2 * 4 * (weights + matrix[0] * matrix[1])
