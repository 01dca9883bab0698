"""Imported M2M-100 and NLLB-200 models: logits of a NumPy M2M-100, ids and languages, what a run does, and refusals in one sentence."""

import pathlib

import m2m_folder
import marian_folder
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras
from t2t_keras.config import BOS, EOS, PAD
from t2t_keras.decoding import loading

ROOT = pathlib.Path(__file__).parent.parent
SHAPES = {
    "nllb": {},
    "m2m": {"kind": "m2m", "codes_in": "tokenizer_config.json", "seed": 2},
    "other sizes": {"sizes": {"d_model": 24, "encoder_layers": 1, "decoder_layers": 3, "heads": 4, "ffn_dim": 40}, "seed": 3},
    "shards": {"codes_in": "tokenizer.json", "shards": 3, "seed": 4},
    "not scaled, swish, float16": {"kind": "m2m", "scaled": False, "activation": "swish", "dtype": np.float16, "seed": 5},
    "another id of padding": {"options": {"pad_token_id": 1}, "dtype": np.float16, "seed": 6},
}
PAIRS = {"nllb": ("eng_Latn", "deu_Latn", "fra_Latn"), "m2m": ("en", "de", "fr")}
LINES = ["a dog runs", "two men play ball near the house", "猫 1 2024", "don't </s> ½ >>xx<<", "tree"]


def kind_of(folder) -> str:
    return "m2m" if (folder / "vocab.json").exists() else "nllb"


@pytest.fixture(scope="module", params=SHAPES)
def imported(request, tmp_path_factory):
    """A folder, the run that it becomes, and the model's id for each of ours."""
    folder = m2m_folder.make(tmp_path_factory.mktemp("m2m") / "model", **SHAPES[request.param])
    source, target, _ = PAIRS[kind_of(folder)]
    t2t_keras.import_huggingface(folder, folder.parent / "run", source_language=source, target_language=target)
    translator = loading.load(folder.parent / "run")
    return folder, translator, ids_of_ours(folder, translator.tokenizer.pieces)


@pytest.fixture(scope="module")
def nllb(tmp_path_factory):
    """A folder that tests may copy."""
    return m2m_folder.make(tmp_path_factory.mktemp("m2m") / "model")


@pytest.fixture(scope="module")
def run(nllb):
    t2t_keras.import_huggingface(nllb, nllb.parent / "run", source_language="eng_Latn", target_language="deu_Latn")
    return nllb.parent / "run"


def ids_of_ours(folder, pieces) -> list[int]:
    """The model's id for each of ours."""
    kind, ids = kind_of(folder), m2m_folder.pieces(folder)
    ids |= {f">>{code}<<": len(ids) + index for index, code in enumerate(m2m_folder.LANGUAGES[kind])}
    others = [ids[piece] if piece in ids else int(piece[1:-1]) for piece in pieces[EOS + 1 :]]
    return [1, 3, 2, 2, *others]


def test_logits_are_those_of_the_model(imported):
    folder, translator, theirs = imported
    ours = {index: own for own, index in enumerate(theirs) if own != BOS}
    draw, (language, *_) = np.random.default_rng(1), PAIRS[kind_of(folder)]
    for line in LINES:
        source, target = m2m_folder.ids_of(folder, line, language), draw.integers(2, len(theirs) - 1, 6).tolist()
        expected = marian_folder.logits(folder, source, [2, *target])
        own_source, own_target = [ours[index] for index in source], [ours[index] for index in target]
        found, _ = translator.model.decode(tf.constant([[BOS, *own_target]]), translator.model.encode(tf.constant([own_source])))
        kept = [own for own in range(len(theirs)) if own not in (PAD, BOS)]
        np.testing.assert_allclose(found[0].numpy()[:, kept], expected[:, [theirs[own] for own in kept]], atol=1e-4)
        assert np.abs(expected).max() > 3 and expected.std() > 0.5
        assert np.all(found[0].numpy()[:, [PAD, BOS]] < expected.max() - 90)


def test_ids_of_nasty_lines_are_those_of_sentencepiece_after_the_language(imported):
    folder, translator, theirs = imported
    lines = [line for line in marian_folder.nasty_lines(300) if not line.startswith(">>de<<")]  # A language of M2M-100.
    ours = {index: own for own, index in enumerate(theirs) if own != BOS}
    for tokenizer, language in zip((translator.source_tokenizer, translator.tokenizer), PAIRS[kind_of(folder)], strict=False):
        expected = [[ours[index] for index in m2m_folder.ids_of(folder, line, language)] for line in lines]
        assert tokenizer.tokenize(tf.constant(lines)).to_list() == expected


def greedy(folder, line: str, source_language: str, target_language: str, length: int) -> list[int]:
    """The most likely ids one after another, without padding, after the language of the target."""
    source = m2m_folder.ids_of(folder, line, source_language)
    target = [2, m2m_folder.ids_of(folder, "", target_language)[0]]
    while len(target) <= length and target[-1] != 2:
        logits = marian_folder.logits(folder, source, target)[-1]
        logits[1] = -np.inf
        target.append(int(logits.argmax()))
    return target[1:]


def text_of(folder, ids: list[int]) -> str:
    names = {index: piece for piece, index in m2m_folder.pieces(folder).items()}
    return "".join(names.get(index, "") if index > 3 else "" for index in ids).replace("▁", " ").strip()


def test_greedy_translations_are_those_of_the_model_in_the_chosen_language(imported):
    folder, _, theirs = imported
    source, *targets = PAIRS[kind_of(folder)]
    options = {"beam_size": 1, "alpha": 0.0, "extra_length": 3}
    for target in targets:
        translator = loading.load(folder.parent / "run", target_language=target, **options)
        rows = translator.source_tokenizer.tokenize(tf.constant(LINES))
        length = tf.cast(rows.row_lengths(), tf.int32) + 3
        found, _ = translator.search(rows, tf.zeros(len(LINES)), length, tf.ones(len(LINES), tf.int32))
        expected = [greedy(folder, line, source, target, int(most)) for line, most in zip(LINES, length, strict=True)]
        assert [[theirs[own] for own in row] for row in found.to_list()] == expected
        texts = [text.decode() for text in translator(tf.constant(LINES))["text"].numpy()]
        unknown = any(piece.startswith("<") for piece in "".join(texts))
        assert unknown or texts == [text_of(folder, ids) for ids in expected]
