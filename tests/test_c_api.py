"""An export is translated with by a process that has no Python of TensorFlow: its C library, and TF.Text's operations
for SentencePiece.
"""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.core.protobuf import saved_model_pb2

from t2t_keras.config import DecodeConfig, ModelConfig
from t2t_keras.data import builtin_corpus
from t2t_keras.decoding.int8 import Int8
from t2t_keras.decoding.translator import Translator
from t2t_keras.model.transformer import Transformer
from t2t_keras.serving import savedmodel
from t2t_keras.text import vocabulary

tf_text = pytest.importorskip("tensorflow_text", reason="TF.Text is not installed")
VOCAB_SIZE = 330
SENTENCEPIECE_OPS = {"SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"}
LIBRARIES = [
    str(path)
    for name in ("framework", "cc")
    for path in pathlib.Path(tf.__file__).parent.glob(f"libtensorflow_{name}.so.?")
]
WORD_PIECE_OPS = {"FastWordpieceTokenizeWithOffsets"}
# Of TF.Text, by kind of sub-words.
OP_LIBRARIES = {
    kind: str(pathlib.Path(tf_text.__file__).parent / "python" / "ops" / f"_{name}_tokenizer.so")
    for kind, name in (("bpe", "sentencepiece"), ("wordpiece", "fast_wordpiece"))
}

# Lists the operations of TensorFlow's own, before TF.Text's are loaded, in a file; and prints the translations and
# their scores.
PROGRAM = """
import ctypes as c, json, os, sys

libraries, op_library, export, op_list, given, wanted, lines = json.loads(sys.argv[1])
for path in libraries:
    library = c.CDLL(path, os.RTLD_LAZY | os.RTLD_GLOBAL)
NUMBER, POINTER = c.c_size_t, c.c_void_p


class Buffer(c.Structure):
    _fields_ = [("data", POINTER), ("length", NUMBER), ("deallocator", POINTER)]


class Output(c.Structure):
    _fields_ = [("operation", POINTER), ("index", c.c_int)]


def call(name, *arguments, result=None):
    function = getattr(library, "TF_" + name)
    function.restype = result
    return function(*arguments)


def pointer(name, *arguments):
    return POINTER(call(name, *arguments, result=POINTER))


def check():
    if call("GetCode", status, result=c.c_int):
        raise SystemExit(call("Message", status, result=c.c_char_p).decode())


status = pointer("NewStatus")
registered = call("GetAllOpList", result=c.POINTER(Buffer)).contents
with open(op_list, "wb") as file:
    file.write(c.string_at(registered.data, registered.length))
pointer("LoadLibrary", op_library.encode(), status)
check()
graph, options, tags = pointer("NewGraph"), pointer("NewSessionOptions"), (c.c_char_p * 1)(b"serve")
session = pointer("LoadSessionFromSavedModel", options, None, export.encode(), tags, 1, graph, None, status)
check()


def output(name):
    operation, index = name.split(":")
    return Output(pointer("GraphOperationByName", graph, operation.encode()), int(index))


STRING, STRING_SIZE = 7, 24  # TF_STRING and sizeof(TF_TString).
shape = (c.c_int64 * 1)(len(lines))
text = pointer("AllocateTensor", STRING, shape, 1, NUMBER(STRING_SIZE * len(lines)))
for row, line in enumerate(lines):
    string = POINTER(pointer("TensorData", text).value + STRING_SIZE * row)
    call("StringInit", string)
    call("StringCopy", string, line.encode(), NUMBER(len(line.encode())))
found = (POINTER * 2)()
outputs = (Output * 2)(*map(output, wanted))
inputs = (Output * 1)(output(given))
call("SessionRun", session, None, inputs, (POINTER * 1)(text), 1, outputs, found, 2, None, 0, None, status)
check()
texts, scores = (pointer("TensorData", POINTER(tensor)).value for tensor in found)
strings = [POINTER(texts + STRING_SIZE * row) for row in range(len(lines))]
sizes = [call("StringGetSize", string, result=NUMBER) for string in strings]
read = [c.string_at(pointer("StringGetDataPointer", string), size) for string, size in zip(strings, sizes)]
if "tensorflow" in sys.modules:
    raise SystemExit("Python's TensorFlow is here.")
print(json.dumps([[line.decode() for line in read], list((c.c_float * len(lines)).from_address(scores))]))
"""


@pytest.fixture(scope="module", params=["int8 bpe", "float32 wordpiece"])
def variant(request) -> tuple[str, str]:
    """Weights and kind of sub-words."""
    return tuple(request.param.split())


@pytest.fixture(scope="module")
def export(variant, tmp_path_factory) -> pathlib.Path:
    """Of a Transformer with random weights, larger than at the start of training, so that translations differ."""
    lines = (side.encode() for pair in builtin_corpus.splits(300, seed=3)["train"] for side in pair)
    weights, kind = variant
    options = {"sample": 10_000, "seed": 1, "normalization": "identity", "character_coverage": 1.0}
    tokenizer = vocabulary.load(vocabulary.learn(kind, lines, VOCAB_SIZE, **options))
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2, "d_k": 6, "d_v": 10}
    model = Transformer(ModelConfig(VOCAB_SIZE, **sizes))
    draw = np.random.default_rng(5)
    for weight in model.trainable_variables:
        if weight.path.endswith(("kernel", "matrix")):
            weight.assign(draw.normal(0, 0.5, weight.shape))
    int8 = Int8(model) if weights == "int8" else None
    translator = Translator(model, tokenizer, DecodeConfig(beam_size=2, extra_length=2), frozen=True, int8=int8)
    return savedmodel.export(translator, tmp_path_factory.mktemp("export"), {})


@pytest.fixture(scope="module")
def meta_graph(export):
    return saved_model_pb2.SavedModel.FromString((export / "saved_model.pb").read_bytes()).meta_graphs[0]


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """Of 1 to some 60 bytes: a string of 22 is within itself, a longer one elsewhere."""
    return ["a", "", *[source for source, _ in builtin_corpus.splits(5, seed=4)["train"]]]


@pytest.fixture(scope="module")
def by_c_api(variant, export, meta_graph, lines, tmp_path_factory):
    """The texts, the scores, and the operations of TensorFlow's own."""
    op_list = tmp_path_factory.mktemp("c_api") / "op_list.pb"
    signature = meta_graph.signature_def["serving_default"]
    given, wanted = signature.inputs["text"].name, [signature.outputs[name].name for name in ("text", "score")]
    arguments = json.dumps([LIBRARIES, OP_LIBRARIES[variant[1]], str(export), str(op_list), given, wanted, lines])
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-c", PROGRAM, arguments]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr
    texts, scores = json.loads(result.stdout.splitlines()[-1])
    return texts, scores, op_def_pb2.OpList.FromString(op_list.read_bytes())


@pytest.fixture(scope="module")
def nodes(meta_graph) -> list:
    graph = meta_graph.graph_def
    return [*graph.node, *(node for function in graph.library.function for node in function.node_def)]


@pytest.mark.medium
def test_a_process_without_python_tensorflow_gives_the_translations_of_one_with_it(export, lines, by_c_api):
    texts, scores, _ = by_c_api
    expected = tf.saved_model.load(str(export)).signatures["serving_default"](text=tf.constant(lines))
    assert texts == [text.decode() for text in expected["text"].numpy()]
    np.testing.assert_allclose(scores, expected["score"], atol=1e-5)
    assert texts[1] == "" and scores[1] == 0 and len(set(texts)) > 3


@pytest.mark.medium
def test_the_graph_has_tensorflows_own_operations_and_three_for_sentencepiece_or_one_for_word_pieces(
    variant, nodes, by_c_api
):
    own = {op.name for op in by_c_api[2].op}
    assert {node.op for node in nodes} - own == (WORD_PIECE_OPS if variant[1] == "wordpiece" else SENTENCEPIECE_OPS)


@pytest.mark.medium
def test_the_graph_asks_for_no_compiler(meta_graph, nodes):
    assert not [node.op for node in nodes if node.op.startswith("Xla")]
    attributes = [function.attr for function in meta_graph.graph_def.library.function] + [node.attr for node in nodes]
    names = "_XlaMustCompile", "jit_compile"
    assert not [name for attr in attributes for name in names if name in attr and attr[name].b]
