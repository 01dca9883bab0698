"""Imported Marian models against PyTorch's Marian of transformers: logits, ids, translations. `tests/peers.sh` runs it."""

import json
import pickle

import marian_folder
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import t2t_keras
from t2t_keras.config import BOS, EOS
from t2t_keras.decoding import loading

torch = pytest.importorskip("torch", reason="PyTorch and transformers are not installed")
transformers = pytest.importorskip("transformers", reason="PyTorch and transformers are not installed")

SHAPES = {
    "opus": {"seed": 11},
    "separate": {"separate": True, "activation": "gelu", "kind": "bpe", "seed": 12},
    "two embeddings, relu": {"shared": False, "activation": "relu", "seed": 13},
    "untied": {"separate": True, "tied": False, "seed": 14},
    "one list, untied": {"tied": False, "seed": 15},
    "not scaled": {"scaled": False, "seed": 16},
    "other sizes": {"sizes": {"d_model": 24, "encoder_layers": 1, "decoder_layers": 3, "heads": 4, "ffn_dim": 40}, "seed": 17},
}
TAGGED = [">>de<< a dog", ">>xx<< two men", ">>en US<<a ball", ">><<", ">> a << b"]
LONGEST = 30


@pytest.fixture(scope="module", params=SHAPES)
def both(request, tmp_path_factory):
    """A folder, PyTorch's model and tokenizer, and the run that the folder becomes."""
    folder = marian_folder.make(tmp_path_factory.mktemp("marian") / "model", **SHAPES[request.param])
    model = transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder, split_special_tokens=True)
    t2t_keras.import_marian(folder, folder.parent / "run")
    return folder, model, tokenizer, folder.parent / "run"


def own_ids(folder, subwords, side: str) -> dict[int, int]:
    """Our id for each of Marian's."""
    separate = (folder / "target_vocab.json").exists()
    ids = json.loads((folder / ("target_vocab.json" if separate and side == "target" else "vocab.json")).read_text())
    special = {"<pad>": 0, "<unk>": 1, "</s>": EOS}
    return {index: special[piece] if piece in special else subwords.pieces.index(piece, EOS + 1) for piece, index in ids.items()}


def test_ids_are_those_of_the_tokenizer(both):
    folder, _, tokenizer, run = both
    subwords, lines = loading.load(run).tokenizer, marian_folder.nasty_lines(1000) + TAGGED
    for side, ours in (("source", subwords.source), ("target", subwords)):
        ids = own_ids(folder, ours, side)
        expected = tokenizer(lines).input_ids if side == "source" else tokenizer(text_target=lines).input_ids
        assert ours.tokenize(tf.constant(lines)).to_list() == [[ids[index] for index in row] for row in expected]


def test_ids_are_those_of_the_tokenizer_by_default_but_for_special_tokens_in_the_text(both):
    """And no punctuation is normalized: transformers does so only when asked."""
    folder, _, _, run = both
    tokenizer, subwords = transformers.MarianTokenizer.from_pretrained(folder), loading.load(run).tokenizer.source
    lines = [line for line in marian_folder.nasty_lines(1000) if not any(token in line for token in ("</s>", "<unk>", "<pad>"))]
    lines += ["“a dog” – ‚it’s’ …", *TAGGED]
    ids = own_ids(folder, subwords, "source")
    assert subwords.tokenize(tf.constant(lines)).to_list() == [[ids[index] for index in row] for row in tokenizer(lines).input_ids]


def test_logits_are_those_of_pytorch(both):
    folder, model, tokenizer, run = both
    translator = loading.load(run)
    subwords, lines = translator.tokenizer, ["a dog runs", ">>de<< two men play ball near the house", "猫 1 2024"]
    source_ids, target_ids = own_ids(folder, subwords.source, "source"), own_ids(folder, subwords, "target")
    for line, target in zip(lines, ("ein hund", "zwei männer spielen ball", "2024 猫 x"), strict=True):
        source = tokenizer(line).input_ids
        read = [model.config.decoder_start_token_id, *tokenizer(text_target=target).input_ids[:-1]]
        with torch.no_grad():
            expected = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([read])).logits[0].numpy()
        memory = translator.model.encode(tf.constant([[source_ids[index] for index in source]]))
        found, _ = translator.model.decode(tf.constant([[BOS, *(target_ids[index] for index in read[1:])]]), memory)
        theirs, ours = zip(*((index, own) for index, own in target_ids.items() if own != 0), strict=True)
        np.testing.assert_allclose(found[0].numpy()[:, list(ours)], expected[:, list(theirs)], atol=1e-4)


@pytest.mark.parametrize("beams", [1, 4])
def test_translations_are_those_of_generate(both, beams):
    """With an exponent of 0, which the two length penalties agree on, and normalized probabilities."""
    folder, model, tokenizer, run = both
    translator = loading.load(run, beam_size=beams, alpha=0.0)
    lines = ["a dog runs", "two men play ball", "the house near water", ">>de<< tree", "1 2024 don't", "résumé", "park and dog"]
    same = 0
    for line in lines:
        source = tokenizer(line, return_tensors="pt")
        found = model.generate(
            **source, num_beams=beams, max_new_tokens=LONGEST, length_penalty=0.0, renormalize_logits=True, do_sample=False,
            bad_words_ids=[[model.config.pad_token_id]], early_stopping=False,
        )[0]  # fmt: skip
        expected = tokenizer.decode(found, skip_special_tokens=True)
        ids = translator.tokenizer.source.tokenize(tf.constant([line]))
        sequences, scores = translator.search(ids, [0.0], [LONGEST], [1])
        ours = translator.texts(sequences, scores, blank=tf.constant([False]))["text"][0, 0].numpy().decode()
        same += ours == expected
        print(repr(ours), repr(expected), len(found))
    assert same == len(lines)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickled_file_is_read_without_running_it(tmp_path, legacy):
    folder = marian_folder.make(tmp_path / "model")
    t2t_keras.import_marian(folder, tmp_path / "plain")
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    tensors = {name: torch.tensor(array) for name, array in arrays.items()}
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    t2t_keras.import_marian(folder, tmp_path / "pickled")
    with (
        np.load(tmp_path / "plain/checkpoints/step-000000000.npz") as plain,
        np.load(tmp_path / "pickled/checkpoints/step-000000000.npz") as other,
    ):
        assert plain.files == other.files and all(np.array_equal(plain[name], other[name]) for name in plain.files)


class Program:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("make", ["torch", "pickle", "text"])
def test_a_pickled_program_is_refused_and_not_run(tmp_path, make):
    folder, target = marian_folder.make(tmp_path / "model"), str(tmp_path / "written")
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    if make == "torch":
        torch.save({"a": Program(target)}, path)
    else:
        path.write_bytes(pickle.dumps({"a": Program(target)}) if make == "pickle" else b"text")
    with pytest.raises(ValueError, match="tensors alone.*damaged or holds more") as raised:
        t2t_keras.import_marian(folder, tmp_path / "run")
    assert "\n" not in str(raised.value)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model"]
