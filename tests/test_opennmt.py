"""Imported models of OpenNMT-tf: logits and ids are theirs, and folders that do not fit give one sentence."""

import json
import os
import shutil
import subprocess

import numpy as np
import opennmt_models as models
import pytest
import sentencepiece
import tensorflow as tf
from transformers_models import nasty_lines

import t2t_keras
from t2t_keras.config import BOS, EOS, PAD, UNK
from t2t_keras.decoding import loading
from t2t_keras.interop import opennmt
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.text import vocabulary

PYTHON = os.environ.get("OPENNMT_PYTHON", "")  # One that has OpenNMT-tf.


def ours(ids: list[int], rows: int) -> list[int]:
    """Our ids for theirs, of a vocabulary with so many rows."""
    special = {0: PAD, 1: BOS, 2: EOS, rows - 1: UNK}
    return [special.get(index, index + 1) for index in ids]


def check_logits(translator, expected, source: list[int], target: list[int], rows: tuple[int, int]) -> None:
    memory = translator.model.encode(tf.constant([ours([*source, 2] if source[-1] != 2 else source, rows[0])]))
    received, _ = translator.model.decode(tf.constant([ours(target, rows[1])]), memory)
    np.testing.assert_allclose(received[0].numpy()[:, ours(list(range(rows[1])), rows[1])], expected, atol=1e-4)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder of OpenNMT-tf, for tests to copy."""
    folder = tmp_path_factory.mktemp("base") / "run"
    models.make(folder)
    return folder


@pytest.fixture
def folder(base, tmp_path):
    return shutil.copytree(base, tmp_path / "theirs")


@pytest.mark.parametrize("name", models.SHAPES)
def test_logits_are_those_of_the_model(tmp_path, name):
    shape = models.SHAPES[name]
    heads, end = shape.get("heads", 4), [2] * shape.get("end", False)
    arrays = models.make(tmp_path / "theirs", **shape)
    opennmt.import_opennmt(tmp_path / "theirs", tmp_path / "run", num_heads=heads)
    translator, draw = loading.load(tmp_path / "run"), np.random.default_rng(2)
    rows = (23, 23) if "input" in shape.get("shared", ()) else (23, 29)
    for length in (1, 5, 9):
        source, target = draw.integers(3, 23, length).tolist() + end, [1, *draw.integers(3, 23, 6).tolist()]
        expected = models.logits(arrays, source, target, heads)
        assert expected.std() > 0.5
        check_logits(translator, expected, source, target, rows)
    assert (translator.config.beam_size, translator.config.alpha) == (3, 0.4)
    assert translator.model.config.source_end == bool(end)


def test_a_text_of_tokens_has_their_ids(folder, tmp_path):
    """A token that the vocabulary lacks is unknown, and two are two; a tag is a token like others."""
    t2t_keras.import_opennmt(folder, tmp_path / "run")
    translator = loading.load(tmp_path / "run")
    source, target = translator.source_tokenizer, translator.tokenizer
    text = ["w0 ▁w1 nothing none  w2", ">>de<< w4", ""]
    expected = [[3, 4, 22, 22, 5], [22, 7], []]
    assert source.tokenize(tf.constant(text)).to_list() == [ours([*ids, 2], 23) for ids in expected]
    written = tf.ragged.constant([ours([3, 4, 28, 5, 2], 29)], dtype=tf.int32)
    assert target.detokenize(written).numpy().tolist() == ["w0 ▁w1 w2".encode()]
    assert vocabulary.load(target.model).pieces == target.pieces
    assert list(translator(tf.constant(text))["text"].numpy())[2] == b""


@pytest.mark.parametrize("in_a_file", [False, True])
def test_a_text_has_the_ids_of_the_sentencepiece_model_and_the_vocabulary(tmp_path, in_a_file):
    """The configuration has the tokenization, or the name of its file."""
    lines = nasty_lines(300)
    (tmp_path / "text").write_bytes("\n".join(line.replace("\n", " ") for line in lines).encode())
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "joint"), vocab_size=200, minloglevel=2,
        character_coverage=0.98, user_defined_symbols=[">>de<<"], hard_vocab_limit=False,
    )  # fmt: skip
    listed = models.SPECIAL + [line.split("\t")[0] for line in (tmp_path / "joint.vocab").read_text().split("\n")][3:-1]
    number = len(listed) + 1
    models.write(tmp_path / "theirs", models.arrays_of(rows=(number, number), shared=("input",), d_model=8))
    tokenization = "{type: SentencePieceTokenizer, params: {model: joint.model}}"
    (tmp_path / "theirs/sp.yml").write_text(tokenization)
    (tmp_path / "theirs/data.yml").write_text(
        "data:\n  source_vocabulary: joint.vocab\n"  # With scores, as SentencePiece writes it.
        f"  source_tokenization: {'sp.yml' if in_a_file else tokenization}\n"
    )
    for name in ("joint.vocab", "joint.model"):
        shutil.copy(tmp_path / name, tmp_path / "theirs")
    t2t_keras.import_opennmt(tmp_path / "theirs", tmp_path / "run")
    tokenizer = loading.load(tmp_path / "run").tokenizer
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "joint.model"))
    lines += [">>de<< a dog", ">>fr<< a dog", "</s> <s>"]
    pieces = processor.encode(lines, out_type=str)
    theirs = [[listed.index(piece) if piece in listed[3:] else number - 1 for piece in row] for row in pieces]
    assert tokenizer.tokenize(tf.constant(lines)).to_list() == [ours([*row, 2], number) for row in theirs]
    both = zip(theirs, pieces, strict=True)
    known = [(ours(ids, number), processor.decode(row)) for ids, row in both if number - 1 not in ids]
    assert 100 < len(known) < len(lines)
    texts = tokenizer.detokenize(tf.ragged.constant([ids for ids, _ in known], dtype=tf.int32)).numpy()
    assert [text.decode() for text in texts] == [text.strip() for _, text in known]


def test_a_run_is_scored_and_knows_its_options(folder, tmp_path):
    t2t_keras.import_opennmt(folder, tmp_path / "run")
    model = t2t_keras.load(tmp_path / "run")
    assert len(model.score(["w0 w2"], ["▁w1 w4"])) == 1
    options = SavedRun.open(tmp_path / "run")
    assert options.model.norm == "pre" and options.model.dropout == 0.1 and options.model.source_vocab_size == 23


@pytest.mark.parametrize(("params", "ignored"), [
    ("  sampling_topk: 1\n  sampling_temperature: 1.0\n  minimum_decoding_length: 0\n  decoding_noise: []\n", ""),
    ("  sampling_topk: 10\n  coverage_penalty: 0.2\n", "coverage_penalty, sampling_topk"),
    ("  sampling_temperature: 0.7\n  maximum_decoding_length: 12\n  minimum_decoding_length: 5\n",
     "sampling_temperature, minimum_decoding_length, maximum_decoding_length"),
    ("  decoding_noise:\n    - dropout: 0.1\n", "decoding_noise"),
])  # fmt: skip
def test_options_of_the_search_that_are_ignored_are_named(folder, tmp_path, messages, params, ignored):
    with (folder / "data.yml").open("a") as file:
        file.write(params)
    opennmt.import_opennmt(folder, tmp_path / "run")
    found = [message for message in messages if "without a counterpart" in message]
    assert found == ([f"Options of the search without a counterpart are ignored: {ignored}."] if ignored else [])


# Folders that do not fit.


def rewrite(file: str, old: str, new: str):
    def break_it(folder):
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new))

    return break_it


def other_arrays(**changed):
    def break_it(folder):
        arrays = models.arrays_of() | changed
        models.write(folder, {name.replace("__", "/"): array for name, array in arrays.items() if array is not None}, 9)

    return break_it


ZEROS = np.zeros((41, 4), "float32")
FFN = "decoder/layers/0/ffn/layer/inner"
BROKEN = {
    "relative positions": (other_arrays(**{"encoder/layers/0/self_attention/layer/relative_position_keys": ZEROS}),
        "relative positions.*cannot be imported, because"),
    "learned positions": (other_arrays(**{"encoder/position_encoder/position_embedding": ZEROS}),
        "sinusoids. Received encoder/position_encoder/position_embedding"),
    "another source": (other_arrays(**{"decoder/layers/0/attention/1/layer/x": ZEROS}), "attention/1.* besides"),
    "a missing weight": (other_arrays(**{f"{FFN}/bias": None}), f"the weight {FFN}/bias.*missing"),
    "another shape": (other_arrays(**{f"{FFN}/kernel": ZEROS}),
        rf"{FFN}/kernel of shape \(16, 24\).*Received: \(41, 4\)"),
    "infinity": (other_arrays(**{f"{FFN}/bias": np.full(24, np.inf, "float32")}), f"Received: {FFN}/bias"),
    "a recurrent model": (lambda folder: models.write(folder, {"encoder/cells/0/kernel": ZEROS}, 9),
        "Transformer of OpenNMT-tf 2.*encoder/cells/0/kernel.*RNN models cannot be imported"),
    "too few tokens": (rewrite("source.vocab", "w3\n", ""),
        "vocabulary of 22 tokens, one less than the rows of .* Received: .*source.vocab with 21 tokens"),
    "a token twice": (rewrite("source.vocab", "w2\n", "w4\n"), "twice"),
    "other special tokens": (rewrite("target.vocab", "<blank>\n", "<pad>\n"), "<blank>, <s>, </s> as the first lines"),
    "no UTF-8": (lambda folder: (folder / "source.vocab").write_bytes(b"\xff\n"), "in UTF-8"),
    "no vocabulary": (lambda folder: (folder / "target.vocab").unlink(), "target.vocab.*missing"),
    "no configuration": (lambda folder: (folder / "data.yml").unlink(), "give `source_vocabulary`"),
    "a path outside": (rewrite("data.yml", "source.vocab", "../source.vocab"), "name a file of its folder.*Give"),
    "an absolute path": (rewrite("data.yml", "source.vocab", "/etc/passwd"), "name a file of its folder.*Give"),
    "code": (rewrite("data.yml", "data:", "data: !!python/object/apply:os.system ['false']"), "to have YAML"),
    "no whole number": (rewrite("data.yml", "data:", "a: !!int ''\ndata:"), "data.yml to have YAML"),
    "no time": (rewrite("data.yml", "data:", "a: !!timestamp x\ndata:"), "data.yml to have YAML"),
    "neither true nor false": (rewrite("data.yml", "data:", "a: !!bool x\ndata:"), "data.yml to have YAML"),
    "a list": (lambda folder: (folder / "data.yml").write_text("- 1"), "sections"),
    "a number as a path": (rewrite("data.yml", "source.vocab", "[1]"), r"data: source_vocabulary.*Received: \[1\]"),
    "a negative beam": (rewrite("data.yml", "3", "-3"), "beam_size"),
    "a penalty too large for a float": (rewrite("data.yml", "0.4", "9" * 400),
        "params: length_penalty in .* to be nearer to 0. Received: 9"),  # Story: OverflowError.
    "a rate too small for a float": (rewrite("data.yml", "params:", "params:\n  dropout: -1" + "0" * 400),
        "params: dropout in .* to be nearer to 0. Received: -1"),
    "a start of sources": (rewrite("data.yml", "data:\n", "data:\n  source_sequence_controls: {start: true}\n"),
        "do not begin with <s>"),
    "a vocabulary in a linked folder": (
        lambda folder: [
            (folder / "sub").symlink_to(folder),
            rewrite("data.yml", "source.vocab", "sub/source.vocab")(folder),
        ],
        "sub is a link",
    ),  # fmt: skip
    "a long configuration": (lambda folder: (folder / "data.yml").write_text("#" * 2**20 + "\n"), "at most 1,048,576"),
    "a linked vocabulary": (
        lambda folder: [(folder / "source.vocab").unlink(), (folder / "source.vocab").symlink_to("/etc/passwd")],
        "is a link"),
    "a checkpoint elsewhere": (
        lambda folder: (folder / "checkpoint").write_text('model_checkpoint_path: "/etc/ckpt-1"\n'),
        "name a checkpoint of its folder"),
    "no shard": (lambda folder: (folder / "ckpt-5.data-00000-of-00001").unlink(), "missing"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_a_folder_that_does_not_fit_gives_one_sentence_and_no_run(folder, tmp_path, kind):
    break_it, message = BROKEN[kind]
    break_it(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        opennmt.import_opennmt(folder, tmp_path / "run")
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize(("options", "message"), [
    ({"num_heads": 3}, "`num_heads` that divide d_model=16. Received: num_heads=3"),
    ({"activation": "tanh"}, "activation"),
    ({"source_subwords": "data.yml"}, "data.yml does not fit"),
    ({"checkpoint": "ckpt-6"}, "ckpt-6.index.*missing"),
])  # fmt: skip
def test_options_that_do_not_fit_give_one_sentence(folder, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        opennmt.import_opennmt(folder, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


# OpenNMT-tf itself.


@pytest.mark.medium
@pytest.mark.skipif(not PYTHON, reason="OPENNMT_PYTHON names no Python with OpenNMT-tf")
@pytest.mark.parametrize("kind", ["run", "saved"])
@pytest.mark.parametrize("name", ["Tiny", "all", "target", "input", "ScalingNmtEnDe", "no biases"])
def test_logits_and_greedy_translations_are_those_of_opennmt_tf(tmp_path, name, kind):
    import opennmt_oracle

    command = [PYTHON, opennmt_oracle.__file__, str(tmp_path), name]
    found = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": ""})
    assert found.returncode == 0, found.stderr[-2000:]
    result = json.loads((tmp_path / "result.json").read_text())
    opennmt.import_opennmt(tmp_path / kind, tmp_path / "ours", config=tmp_path / "data.yml", num_heads=result["heads"])
    translator = loading.load(tmp_path / "ours", beam_size=1, alpha=0.0, extra_length=20)
    rows = result["rows"]
    for source, target, expected, written in zip(
        *(result[key] for key in ("sources", "targets", "logits", "written")), strict=True
    ):
        check_logits(translator, expected, source, target, rows)
        row = tf.RaggedTensor.from_tensor(tf.constant([ours([*source, 2] if source[-1] != 2 else source, rows[0])]))
        found, _ = translator.search(row, tf.zeros(1), tf.constant([20]), tf.ones(1, tf.int32))
        assert [index for index in found.to_list()[0] if index != EOS] == ours(written, rows[1])[: len(found[0])]
