"""Without TF.Text, sub-words are the same; exports are refused."""

import random
import sys
import types

import pytest
import tensorflow as tf
import transformers_models as models
from test_tensor2tensor import PIECES, file_of
from test_tokenizer import KINDS, learn, nasty_lines, text

from t2t_keras.runs import export_folder
from t2t_keras.text import piece_file, tokenizer_ops, vocabulary


def of_marian(model_type: str) -> bytes:
    source, target = (models.spm(words, model_type) for words in (models.SOURCE_WORDS, models.TARGET_WORDS))
    listed = [piece for piece in models.vocabulary(source, target, more=(">>de<<",)) if piece not in piece_file.SPECIAL]
    return piece_file.pack(listed, source)


MAKE = {
    **{kind: (lambda kind=kind: learn(text(400, seed=1), kind=kind)) for kind in KINDS},
    "nmt_nfkc": lambda: learn(text(400, seed=1), normalization="nmt_nfkc"),
    "unigram of Marian": lambda: of_marian("unigram"),
    "bpe of Marian": lambda: of_marian("bpe"),
    "tensor2tensor": lambda: file_of(PIECES),
}


def any_lines() -> list[bytes]:
    draw = random.Random(5)
    noise = [bytes(draw.randrange(256) for _ in range(draw.randrange(30))) for _ in range(500)]
    words = [line.encode() for line in models.nasty_lines(500)]
    return [
        b"", b"\x00\x11 \x00", b">>de<< the dog", *[line.encode() for line in nasty_lines(1000, seed=3)], *noise,
        *words,
    ]  # fmt: skip


@pytest.mark.parametrize("kind", MAKE)
def test_sub_words_and_text_without_tf_text_are_those_with_it(monkeypatch, kind):
    pytest.importorskip("tensorflow_text")
    model, lines = MAKE[kind](), tf.constant(any_lines())
    expected = vocabulary.load(model)
    monkeypatch.setattr(tokenizer_ops, "tf_text", None)
    subwords = vocabulary.load(model)
    ids = subwords.tokenize(lines)
    assert ids.to_list() == expected.tokenize(lines).to_list()
    in_graph = tf.function(subwords.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    assert in_graph(lines).to_list() == ids.to_list()
    assert in_graph(tf.constant([], tf.string)).to_list() == []
    draw = random.Random(6)
    drawn = tf.ragged.constant(
        [[draw.randrange(subwords.vocab_size) for _ in range(draw.randrange(9))] for _ in range(500)], tf.int32
    )
    for rows in (ids, drawn, drawn[:0]):
        assert subwords.detokenize(rows).numpy().tolist() == expected.detokenize(rows).numpy().tolist()


@pytest.mark.parametrize("name", ["_LongestMatch", "_LongestMatchOperation"])
def test_the_longest_piece_is_taken_from_left_to_right(name):
    if name == "_LongestMatchOperation":
        pytest.importorskip("tensorflow_text")
    tokenizer = getattr(tokenizer_ops, name)([b"?", b"a", b"ab", b"abcd", b"c", b"bcd", b"\x00", b"\x11"], 0)
    rows = {"abcd": [3], "abc": [2, 4], "abbcd": [2, 5], "a\x00\x11": [1, 6, 7], "aab": [1, 2], "ad": [0], "": []}
    assert tokenizer.tokenize(tf.constant(list(rows))).to_list() == list(rows.values())


def test_exports_and_word_pieces_that_are_learned_need_tf_text(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    monkeypatch.setattr(tokenizer_ops, "tf_text", None)
    assert tokenizer_ops._import_tf_text() is None
    with pytest.raises(ValueError, match="Exports need TF.Text, which is not installed: pip install tensorflow-text."):
        export_folder.check(tmp_path)
    with pytest.raises(ValueError, match=r"Learning word pieces needs TF.Text .* Use `subwords=bpe`"):
        learn(text(400, seed=1), kind="wordpiece")


def test_python_without_docstrings_is_refused_where_tf_text_needs_them(monkeypatch):
    """Story: `PYTHONOPTIMIZE=2 t2t-translate …` ended with a traceback of TF.Text."""
    pytest.importorskip("tensorflow_text")
    monkeypatch.setattr(sys, "flags", types.SimpleNamespace(optimize=2))
    message = (
        "TF.Text needs docstrings, which Python removes with -OO or PYTHONOPTIMIZE=2. "
        "Received: optimization 2. Start Python without them, or with -O."
    )
    with pytest.raises(ValueError, match=f"^{message}$"):
        tokenizer_ops._import_tf_text()


def test_a_tf_text_of_another_tensorflow_is_named(monkeypatch, tmp_path):
    (tmp_path / "tensorflow_text").mkdir()
    (tmp_path / "tensorflow_text/__init__.py").write_text("raise ImportError('undefined symbol: _ZN10\\n at')\n")
    monkeypatch.delitem(sys.modules, "tensorflow_text", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    message = (
        rf"TF.Text cannot be imported with TensorFlow {tf.__version__} \(undefined symbol: _ZN10 at\). "
        "Install the TF.Text of this TensorFlow, or train and translate without it: pip uninstall tensorflow-text"
    )
    with pytest.raises(ValueError, match=message):
        tokenizer_ops._import_tf_text()
