"""Imported and exported Marian models against PyTorch's Marian of transformers: logits, ids, translations.
`tests/peers.sh` runs it.

PEERS_PYTHON may name a Python that has PyTorch and transformers, if this one has not.
"""

import importlib.util
import itertools
import json
import os
import pathlib
import pickle
import subprocess
import sys
import warnings

import marian_folder
import marian_oracle
import marian_run
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import t2t_keras
from t2t_keras.config import BOS, EOS, PAD, UNK
from t2t_keras.decoding import loading

ORACLE = pathlib.Path(__file__).parent / "marian_oracle.py"
PYTHON = os.environ.get("PEERS_PYTHON", sys.executable)
SHAPES = {
    "opus": {"seed": 11},
    "separate": {"separate": True, "activation": "gelu", "kind": "bpe", "seed": 12},
    "two embeddings, relu": {"shared": False, "activation": "relu", "seed": 13},
    "untied": {"separate": True, "tied": False, "seed": 14},
    "one list, untied": {"tied": False, "seed": 15},
    "not scaled": {"scaled": False, "seed": 16},
    "other sizes": {
        "sizes": {"d_model": 24, "encoder_layers": 1, "decoder_layers": 3, "heads": 4, "ffn_dim": 40},
        "seed": 17,
    },
}
needs_transformers = pytest.mark.skipif(
    PYTHON == sys.executable and not importlib.util.find_spec("transformers"), reason="transformers is not installed"
)


def oracle(*arguments, program=ORACLE, lines: list[str] | None = None) -> dict:
    """What `marian_oracle.py` or another program prints."""
    environment = os.environ | {"PYTHONPATH": str(ORACLE.parent)}
    command = [PYTHON, str(program), *map(str, arguments)]
    result = subprocess.run(command, input=json.dumps(lines), capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module", params=SHAPES)
def both(request, tmp_path_factory):
    """A folder, what PyTorch makes of it, the run that it becomes, and our ids for Marian's: of the source and of the
    target.
    """
    folder = marian_folder.make(tmp_path_factory.mktemp("marian") / "model", **SHAPES[request.param])
    found, run = oracle(folder), folder.parent / "run"
    t2t_keras.import_marian(folder, run)
    subwords = loading.load(run).tokenizer
    return folder, found, run, own_ids(folder, subwords.source, "source"), own_ids(folder, subwords, "target")


def own_ids(folder, subwords, side: str) -> dict[int, int]:
    separate = (folder / "target_vocab.json").exists()
    ids = json.loads((folder / ("target_vocab.json" if separate and side == "target" else "vocab.json")).read_text())
    special = {"<pad>": PAD, "<unk>": UNK, "</s>": EOS}
    return {
        index: special[piece] if piece in special else subwords.pieces.index(piece, EOS + 1)
        for piece, index in ids.items()
    }


@needs_transformers
def test_ids_are_those_of_the_tokenizer(both):
    """No punctuation is normalized: transformers does so only when asked."""
    folder, found, run, *ids = both
    subwords = loading.load(run).tokenizer
    for side, ours, own in zip(("source", "target"), (subwords.source, subwords), ids, strict=True):
        rows = ours.tokenize(tf.constant(marian_oracle.LINES)).to_list()
        assert rows == [[own[index] for index in row] for row in found[side]]
        if side == "source":
            spelled = [any(token in line for token in ("</s>", "<unk>", "<pad>")) for line in marian_oracle.LINES]
            by_default = [[own[index] for index in row] for row in found["source by default"]]
            assert [row == other for row, other in zip(rows, by_default, strict=True)] == [not each for each in spelled]


@needs_transformers
def test_logits_are_those_of_pytorch(both):
    _, found, run, source_ids, target_ids = both
    model = loading.load(run).model
    theirs, ours = zip(*((index, own) for index, own in target_ids.items() if own != PAD), strict=True)
    for pair in found["logits"]:
        source, target = (
            [own[index] for index in pair[side]] for side, own in (("source", source_ids), ("target", target_ids))
        )
        logits, _ = model.decode(tf.constant([[BOS, *target[:-1]]]), model.encode(tf.constant([source])))
        np.testing.assert_allclose(
            logits[0].numpy()[:, list(ours)], np.array(pair["logits"])[:, list(theirs)], atol=1e-4
        )


@needs_transformers
@pytest.mark.parametrize(
    "options", [{}, {"separate": True, "tied": False, "activation": "gelu"}], ids=["opus", "separate"]
)
def test_translations_of_a_model_that_transformers_trained_and_wrote_are_those_of_generate(tmp_path, options):
    size = {"d_model": 64, "ffn_dim": 128, "encoder_layers": 1, "decoder_layers": 1}
    folder, trained = marian_folder.make(tmp_path / "model", sizes=size, scale=0.1, **options), tmp_path / "trained"
    found = oracle(folder, trained, 300)
    t2t_keras.import_marian(trained, tmp_path / "run")
    for beams in (1, 4):
        translator = t2t_keras.load(tmp_path / "run", beam_size=beams, alpha=0.0)
        texts = translator.translate(marian_oracle.TRANSLATED)
        # At the greatest length, `generate` adds the end token.
        ended = [each["length"] < marian_oracle.LONGEST for each in found[str(beams)]]
        expected = [each["text"] for each in found[str(beams)]]
        assert list(itertools.compress(texts, ended)) == list(itertools.compress(expected, ended))
        assert len(set(itertools.compress(expected, ended))) >= 30
    t2t_keras.export_marian(tmp_path / "run", tmp_path / "out")
    again = oracle(tmp_path / "out", "--search", lines=marian_oracle.TRANSLATED)
    assert {beams: [each["text"] for each in found[beams]] for beams in found} == again


@needs_transformers
@pytest.mark.parametrize("shape", marian_run.SHAPES)
def test_an_export_has_the_ids_and_logits_of_the_run(tmp_path, shape):
    run = marian_run.make(tmp_path / "run", **marian_run.SHAPES[shape])
    t2t_keras.export_marian(run, tmp_path / "out")
    found, translator = oracle(tmp_path / "out"), loading.load(run)
    sides = translator.source_tokenizer, translator.tokenizer
    ids = [
        own_ids(tmp_path / "out", subwords, side) for side, subwords in zip(("source", "target"), sides, strict=True)
    ]
    tags = [line.startswith(">>") and "<<" in line for line in marian_oracle.LINES]  # Such a line has a tag for Marian.
    for side, subwords, own in zip(("source", "target"), sides, ids, strict=True):
        rows = subwords.tokenize(tf.constant(marian_oracle.LINES)).to_list()
        same = [row == [own[index] for index in theirs] for row, theirs in zip(rows, found[side], strict=True)]
        assert same == [not tag for tag in tags]
    theirs, ours = zip(*((index, own) for index, own in ids[1].items() if own != PAD), strict=True)
    for pair in found["logits"]:
        source, target = (
            [own[index] for index in pair[side]] for side, own in zip(("source", "target"), ids, strict=True)
        )
        logits, _ = translator.model.decode(
            tf.constant([[BOS, *target[:-1]]]), translator.model.encode(tf.constant([source]))
        )
        np.testing.assert_allclose(
            logits[0].numpy()[:, list(ours)], np.array(pair["logits"])[:, list(theirs)], atol=1e-4
        )


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickled_file_is_read_without_running_it(tmp_path, legacy):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    folder, step = marian_folder.make(tmp_path / "model"), "checkpoints/step-000000000.npz"
    t2t_keras.import_marian(folder, tmp_path / "plain")
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    tensors = {name: torch.tensor(array, requires_grad=True) for name, array in arrays.items()}
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    t2t_keras.import_marian(folder, tmp_path / "pickled")
    with np.load(tmp_path / "plain" / step) as plain, np.load(tmp_path / "pickled" / step) as other:
        assert plain.files == other.files and all(np.array_equal(plain[name], other[name]) for name in plain.files)


@pytest.mark.parametrize("kind", ["sparse", "meta"])
def test_a_pickled_tensor_without_all_its_numbers_is_refused(tmp_path, kind):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    folder = marian_folder.make(tmp_path / "model")
    tensors = {
        name: torch.tensor(array) for name, array in safetensors.numpy.load_file(folder / "model.safetensors").items()
    }
    whole = tensors["model.shared.weight"]
    tensors["model.shared.weight"] = whole.to_sparse() if kind == "sparse" else whole.to("meta")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="model.shared.weight .*dense tensor"):
        t2t_keras.import_marian(folder, tmp_path / "run")


class Program:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("make", ["torch", "pickle", "text"])
def test_a_pickled_program_is_refused_and_not_run(tmp_path, make):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    folder, target = marian_folder.make(tmp_path / "model"), str(tmp_path / "written")
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    if make == "torch":
        torch.save({"a": Program(target)}, path)
    else:
        path.write_bytes(pickle.dumps({"a": Program(target)}) if make == "pickle" else b"text")
    with warnings.catch_warnings(), pytest.raises(ValueError, match="tensors alone.*damaged or holds more") as raised:
        warnings.simplefilter("error")
        t2t_keras.import_marian(folder, tmp_path / "run")
    assert "\n" not in str(raised.value) and "weights_only" not in str(raised.value)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model"]
