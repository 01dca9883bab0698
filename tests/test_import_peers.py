"""Imported and exported models against PyTorch's of transformers: logits, ids, translations. `tests/peers.sh` runs it.

PEERS_PYTHON may name a Python that has PyTorch, transformers and protobuf, if this one has not.
"""

import functools
import importlib.util
import itertools
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import warnings

import marian_run
import numpy as np
import programs
import pytest
import safetensors.numpy
import tensorflow as tf
import transformers_models as models
import transformers_oracle

import t2t_keras
from t2t_keras.config import BOS, EOS, PAD, UNK
from t2t_keras.decoding import loading
from t2t_keras.interop import m2m_vocabulary
from t2t_keras.interop.huggingface_folder import Folder
from t2t_keras.text.lines import is_blank

PYTHON = os.environ.get("PEERS_PYTHON", sys.executable)
# All languages of M2M-100, in the order of their ids, which its tokenizer knows by itself.
M2M = {"kind": "m2m", "languages": m2m_vocabulary.LANGUAGES["m2m100"].split(), "codes_in": "nowhere"}
SHAPES = {
    "opus": {"seed": 11},
    "separate": {"separate": True, "activation": "gelu", "pieces": "bpe", "seed": 12},
    "two embeddings, relu": {"shared": False, "activation": "relu", "seed": 13},
    "untied": {"separate": True, "tied": False, "seed": 14},
    "one list, untied": {"tied": False, "seed": 15},
    "not scaled": {"scaled": False, "seed": 16},
    "other sizes": {"sizes": models.OTHER_SIZES, "seed": 17},
    "nllb": {"kind": "nllb", "seed": 11},
    "m2m": {**M2M, "seed": 12},
    "nllb, other sizes": {"kind": "nllb", "sizes": models.OTHER_SIZES, "seed": 13},
    "m2m, not scaled, swish": {**M2M, "scaled": False, "activation": "swish", "seed": 14},
    "nllb, two layers, shards": {"kind": "nllb", "sizes": {"decoder_layers": 2}, "shards": 2, "seed": 15},
}
TRAINED = {"marian": {}, "separate": {"separate": True, "tied": False, "activation": "gelu"}}
TRAINED |= {"nllb": {"kind": "nllb"}, "m2m": M2M}
# Where the tokenizer of NLLB-200 differs from SentencePiece, and M2M-100's does not: it keeps what becomes a space at
# the end, and normalizes what makes up one character at once.
UNLIKE = re.compile(r"(?s).*[\s▁\ufeff\ufffd\x00-\x1f]\Z|.*[\u200d\u0301].*")
needs_transformers = pytest.mark.skipif(
    PYTHON == sys.executable and not importlib.util.find_spec("transformers"), reason="transformers is not installed"
)


def oracle(*arguments, lines: list[str] | None = None) -> dict:
    """What `transformers_oracle.py` prints."""
    program = pathlib.Path(transformers_oracle.__file__)
    environment = os.environ | {"PYTHONPATH": str(program.parent)}
    command = [PYTHON, str(program), *map(str, arguments)]
    result = subprocess.run(command, input=json.dumps(lines), capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@functools.cache
def lacking() -> str:
    """Says why the transformers of `PYTHON` cannot read the SentencePiece model of NLLB-200; empty if it can."""
    result = subprocess.run(
        [PYTHON, "-c", "import sentencepiece.sentencepiece_model_pb2"], capture_output=True, text=True
    )
    return result.stderr.strip().splitlines()[-1] if result.returncode else ""


def skip_without_protobuf(shape: dict) -> None:
    """Skips a test of NLLB-200 without the protobuf that its tokenizer needs. Apache Beam allows older ones alone."""
    if shape.get("kind") == "nllb" and lacking():
        pytest.skip(f"the tokenizer of NLLB-200 in transformers needs another protobuf: {lacking()}")


def imported(folder: pathlib.Path, run: pathlib.Path) -> None:
    """Imports a model, with its default languages if it has some."""
    languages = models.LANGUAGES.get(models.kind_of(folder), ())
    options = dict(zip(("source_language", "target_language"), languages, strict=False))
    t2t_keras.import_huggingface(folder, run, **options)


def own_ids(folder, subwords, side: str) -> dict[int, int]:
    """Our id for each of the model's."""
    if models.kind_of(folder) == "marian":
        ids = models.marian_list(folder, side)
    else:
        ids = models.ids_of_pieces(folder)
        codes = m2m_vocabulary.languages_of(Folder(folder), len(ids))
        ids |= {f">>{code}<<": index for code, index in codes.items()}
    special = {"<pad>": PAD, "<unk>": UNK, "</s>": EOS}
    return {
        index: special[piece] if piece in special else subwords.pieces.index(piece, EOS + 1)
        for piece, index in ids.items()
    }


@pytest.fixture(scope="module", params=SHAPES)
def both(request, tmp_path_factory):
    """A folder, what PyTorch makes of it, the translator that it becomes, and our ids for the model's: of the source
    and of the target.
    """
    skip_without_protobuf(SHAPES[request.param])
    folder = models.make(tmp_path_factory.mktemp("model") / "model", **SHAPES[request.param])
    found = oracle(folder)
    imported(folder, folder.parent / "run")
    translator = loading.load(folder.parent / "run")
    sides = {"source": translator.source_tokenizer, "target": translator.tokenizer}
    return folder, found, translator, {side: own_ids(folder, subwords, side) for side, subwords in sides.items()}


@needs_transformers
def test_ids_are_those_of_the_tokenizer(both):
    """No punctuation is normalized: transformers does so only when asked."""
    folder, found, translator, ids = both
    kind = models.kind_of(folder)
    lines = transformers_oracle.LINES[kind]
    for side, subwords in (("source", translator.source_tokenizer), ("target", translator.tokenizer)):
        rows = subwords.tokenize(tf.constant(lines)).to_list()

        def same_as(name, rows=rows, ours=ids[side]) -> list[bool]:
            return [row == [ours[index] for index in other] for row, other in zip(rows, found[name], strict=True)]

        if kind == "marian":
            assert all(same_as(side))
        elif kind == "m2m":
            assert same_as(side) == [not line.startswith(">>de<<") for line in lines]
        else:
            alike = [not UNLIKE.fullmatch(line) for line in lines]
            assert all(itertools.compress(same_as(side), alike)) and sum(alike) > 650
        if kind == "marian" and side == "source":
            spelled = [any(token in line for token in ("</s>", "<unk>", "<pad>")) for line in lines]
            assert same_as("source by default") == [not each for each in spelled]


def assert_logits_are_alike(pairs: list[dict], translator, ids: dict[str, dict[int, int]]) -> None:
    theirs, ours = zip(*((index, own) for index, own in ids["target"].items() if own != PAD), strict=True)
    for pair in pairs:
        source, target = ([ids[side][index] for index in pair[side]] for side in ("source", "target"))
        memory = translator.model.encode(tf.constant([source]))
        logits, _ = translator.model.decode(tf.constant([[BOS, *target[:-1]]]), memory)
        np.testing.assert_allclose(
            logits[0].numpy()[:, list(ours)], np.array(pair["logits"])[:, list(theirs)], atol=1e-4
        )


@needs_transformers
def test_logits_are_those_of_pytorch(both):
    _, found, translator, ids = both
    assert_logits_are_alike(found["logits"], translator, ids)


@needs_transformers
@pytest.mark.parametrize("shape", TRAINED)
def test_translations_of_a_model_that_transformers_trained_and_wrote_are_those_of_generate(tmp_path, shape):
    """Into all its languages; or with several beams and languages better ones, as `generate` lets only the best W
    continuations end.
    """
    skip_without_protobuf(TRAINED[shape])
    size = {"d_model": 64, "ffn_dim": 128, "encoder_layers": 1, "decoder_layers": 1}
    folder, trained = models.make(tmp_path / "model", sizes=size, scale=0.1, **TRAINED[shape]), tmp_path / "trained"
    kind = models.kind_of(folder)
    is_marian, lines = kind == "marian", transformers_oracle.TRANSLATED[kind]
    found = oracle(folder, trained, 300 if is_marian else 500)
    imported(trained, tmp_path / "run")
    for beams in (1, 4):
        translator = t2t_keras.load(tmp_path / "run", beam_size=beams, alpha=0.0)
        for target in transformers_oracle.SIDES[kind][1:]:
            language = {"target_language": target} if target else {}
            texts = translator.translate(lines, **language)
            theirs = found[f"{beams} {target or ''}".strip()]
            # At the greatest length, `generate` adds the end token.
            ended = [each["length"] < transformers_oracle.LONGEST for each in theirs]
            expected = [each["text"] for each in theirs]
            if not is_marian:  # They begin with the language.
                expected = [re.sub("^__[a-z]+__", "", text).strip() for text in expected]
            rows = itertools.compress(zip(lines, texts, expected, strict=True), ended)
            unlike = [row for row in rows if row[1] != row[2]]
            assert len(unlike) <= (2 if beams > 1 and not is_marian else 0)
            for line, ours, other in unlike:
                score, less = translator.score([line, line], [ours, other], **language)
                assert score > less
            assert len(set(itertools.compress(expected, ended))) >= (30 if is_marian else 15)
    if is_marian:
        t2t_keras.export_marian(tmp_path / "run", tmp_path / "out")
        again = oracle(tmp_path / "out", "--search", lines=lines)
        assert {beams: [each["text"] for each in found[beams]] for beams in found} == again


@needs_transformers
@pytest.mark.parametrize("shape", marian_run.SHAPES)
def test_an_export_has_the_ids_and_logits_of_the_run(tmp_path, shape):
    run, lines = marian_run.make(tmp_path / "run", **marian_run.SHAPES[shape]), transformers_oracle.LINES["marian"]
    t2t_keras.export_marian(run, tmp_path / "out")
    found, translator = oracle(tmp_path / "out"), loading.load(run)
    sides = {"source": translator.source_tokenizer, "target": translator.tokenizer}
    ids = {side: own_ids(tmp_path / "out", subwords, side) for side, subwords in sides.items()}
    tags = [line.startswith(">>") and "<<" in line for line in lines]  # Such a line has a tag for Marian.
    for side, subwords in sides.items():
        rows = subwords.tokenize(tf.constant(lines)).to_list()
        theirs = [[ids[side][index] for index in row] for row in found[side]]
        # A blank line is empty for a run alone.
        expected = [[EOS] if is_blank(line) else row for line, row in zip(lines, theirs, strict=True)]
        assert [row == other for row, other in zip(rows, expected, strict=True)] == [not tag for tag in tags]
    assert_logits_are_alike(found["logits"], translator, ids)


CONVERT = (
    "import sys; from ctranslate2 import converters; converters.TransformersConverter(sys.argv[1]).convert(sys.argv[2])"
)


@pytest.mark.medium
def test_ctranslate2_converts_an_export_to_one_that_starts_from_zeros(tmp_path):
    """As the model card says. Story: its translations were others."""
    for name in ("transformers", "torch"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra 'ctranslate2' is not installed")
    out, alike = tmp_path / "out", []
    t2t_keras.export_marian(marian_run.make(tmp_path / "run"), out)
    assert "from the embedding of `<pad>`. The converter of CTranslate2 takes zeros" in (out / "README.md").read_text()
    pieces = {index: piece for piece, index in models.marian_list(out, "source").items()}
    source, target = (models.ids_of(out, line) for line in ("two dogs play.", "Zwei Hunde spielen."))
    start = len(pieces) - 1
    for name in ("trained", "zero"):
        if name == "zero":
            arrays = safetensors.numpy.load_file(out / "model.safetensors")
            arrays["model.shared.weight"][start] = 0
            safetensors.numpy.save_file(arrays, out / "model.safetensors", metadata={"format": "pt"})
        result = programs.run([sys.executable, "-c", CONVERT, out, tmp_path / name], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        logits = models.logits(out, source, [start, *target[:-1]])[:, :start]  # There is no padding there.
        expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        translator = ctranslate2.Translator(str(tmp_path / name), compute_type="float32")
        given = [[pieces[index] for index in ids] for ids in (source, target[:-1])]
        [found] = translator.score_batch(*([each] for each in given))
        alike.append(np.allclose(found.log_probs, expected[range(len(target)), target], atol=1e-4))
    assert alike == [False, True]


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickled_file_is_read_without_running_it(tmp_path, legacy):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    folder, step = models.make(tmp_path / "model"), "checkpoints/step-000000000.npz"
    t2t_keras.import_marian(folder, tmp_path / "plain")
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    tensors = {name: torch.tensor(array, requires_grad=True) for name, array in arrays.items()}
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    t2t_keras.import_marian(folder, tmp_path / "pickled")
    with np.load(tmp_path / "plain" / step) as plain, np.load(tmp_path / "pickled" / step) as other:
        assert plain.files == other.files and all(np.array_equal(plain[name], other[name]) for name in plain.files)


@pytest.mark.parametrize("kind", ["sparse", "meta", "stride"])
def test_a_pickled_tensor_without_all_its_numbers_is_refused(tmp_path, kind):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    folder = models.make(tmp_path / "model")
    tensors = {
        name: torch.tensor(array) for name, array in safetensors.numpy.load_file(folder / "model.safetensors").items()
    }
    whole = tensors["model.shared.weight"]
    tensors["model.shared.weight"] = {
        "sparse": whole.to_sparse,
        "meta": lambda: whole.to("meta"),
        "stride": lambda: whole[:1, :1].clone().expand(whole.shape),  # One number in the file, all the others are it.
    }[kind]()
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="model.shared.weight.*(dense tensor|numbers from 4 bytes)"):
        t2t_keras.import_marian(folder, tmp_path / "run")


class Program:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("make", ["torch", "pickle", "text"])
def test_a_pickled_program_is_refused_and_not_run(tmp_path, make):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    folder, target = models.make(tmp_path / "model"), str(tmp_path / "written")
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
