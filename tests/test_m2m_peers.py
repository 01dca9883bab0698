"""Imported M2M-100 and NLLB-200 models against transformers: logits, ids, translations. `tests/peers.sh` runs it.

PEERS_PYTHON may name a Python that has PyTorch, transformers and protobuf, if this one has not.
"""

import itertools
import re

import m2m_folder
import m2m_oracle
import numpy as np
import pytest
import tensorflow as tf
from test_marian_peers import needs_transformers, oracle

import t2t_keras
from t2t_keras.config import BOS, EOS, PAD, UNK
from t2t_keras.decoding import loading
from t2t_keras.interop import m2m_vocabulary
from t2t_keras.interop.huggingface_folder import Folder

# All languages of M2M-100, in the order of their ids, which its tokenizer knows by itself.
CODES = m2m_vocabulary.LANGUAGES["m2m100"].split()
M2M = {"kind": "m2m", "languages": CODES, "codes_in": "nowhere"}
SHAPES = {
    "nllb": {"seed": 11},
    "m2m": {**M2M, "seed": 12},
    "other sizes": {
        "sizes": {"d_model": 24, "encoder_layers": 1, "decoder_layers": 3, "heads": 4, "ffn_dim": 40},
        "seed": 13,
    },
    "not scaled, swish": {**M2M, "scaled": False, "activation": "swish", "seed": 14},
    "two layers, shards": {"sizes": {"decoder_layers": 2}, "shards": 2, "seed": 15},
}
# Where the tokenizer of NLLB-200 differs from SentencePiece, and M2M-100's does not: it keeps what becomes a space at
# the end, and normalizes what makes up one character at once.
UNLIKE = re.compile(r"(?s).*[\s▁\ufeff\ufffd\x00-\x1f]\Z|.*[\u200d\u0301].*")


@pytest.fixture(scope="module", params=SHAPES)
def both(request, tmp_path_factory):
    """A folder, what PyTorch makes of it, the translator that it becomes, and our id for each of the model's."""
    folder = m2m_folder.make(tmp_path_factory.mktemp("m2m") / "model", **SHAPES[request.param])
    source, target, _ = m2m_oracle.LANGUAGES[SHAPES[request.param].get("kind", "nllb")]
    found = oracle(folder, program=m2m_oracle.__file__)
    t2t_keras.import_huggingface(folder, folder.parent / "run", source_language=source, target_language=target)
    translator, ids = loading.load(folder.parent / "run"), m2m_folder.pieces(folder)
    ids |= {f">>{code}<<": index for code, index in m2m_vocabulary.languages_of(Folder(folder), len(ids)).items()}
    special = {"<pad>": PAD, "<unk>": UNK, "</s>": EOS}
    ours = {
        i: special[piece] if piece in special else translator.tokenizer.pieces.index(piece, EOS + 1)
        for piece, i in ids.items()
    }
    return folder, found, translator, ours


@needs_transformers
def test_ids_are_those_of_the_tokenizer(both):
    folder, found, translator, ours = both
    for side, subwords in (("source", translator.source_tokenizer), ("target", translator.tokenizer)):
        rows = subwords.tokenize(tf.constant(m2m_oracle.LINES)).to_list()
        same = [row == [ours[index] for index in other] for row, other in zip(rows, found[side], strict=True)]
        if (folder / "vocab.json").exists():
            tagged = [line.startswith(">>de<<") for line in m2m_oracle.LINES]
            assert all(either != other for either, other in zip(same, tagged, strict=True))
        else:
            alike = [not UNLIKE.fullmatch(line) for line in m2m_oracle.LINES]
            assert all(itertools.compress(same, alike)) and sum(alike) > 650


@needs_transformers
def test_logits_are_those_of_pytorch(both):
    _, found, translator, ours = both
    theirs, own = zip(*((index, own) for index, own in ours.items() if own != PAD), strict=True)
    for pair in found["logits"]:
        source, target = ([ours[index] for index in pair[side]] for side in ("source", "target"))
        memory = translator.model.encode(tf.constant([source]))
        logits, _ = translator.model.decode(tf.constant([[BOS, *target[:-1]]]), memory)
        np.testing.assert_allclose(
            logits[0].numpy()[:, list(own)], np.array(pair["logits"])[:, list(theirs)], atol=1e-4
        )


@needs_transformers
@pytest.mark.parametrize("options", [{}, M2M], ids=["nllb", "m2m"])
def test_translations_of_a_model_that_transformers_trained_and_wrote_are_those_of_generate(tmp_path, options):
    """Into both languages; or with several beams better ones, as `generate` lets only the best W continuations end."""
    size = {"d_model": 64, "ffn_dim": 128, "encoder_layers": 1, "decoder_layers": 1}
    folder, trained = m2m_folder.make(tmp_path / "model", sizes=size, scale=0.1, **options), tmp_path / "trained"
    found = oracle(folder, trained, 500, program=m2m_oracle.__file__)
    source, *targets = m2m_oracle.LANGUAGES[options.get("kind", "nllb")]
    t2t_keras.import_huggingface(trained, tmp_path / "run", source_language=source, target_language=targets[0])
    for beams in (1, 4):
        translator = t2t_keras.load(tmp_path / "run", beam_size=beams, alpha=0.0)
        for target in targets:
            texts = translator.translate(m2m_oracle.TRANSLATED, target_language=target)
            theirs = found[f"{beams} {target}"]
            # At the greatest length, `generate` adds the end token.
            ended = [each["length"] < m2m_oracle.LONGEST for each in theirs]
            expected = [re.sub("^__[a-z]+__", "", each["text"]).strip() for each in theirs]
            rows = itertools.compress(zip(m2m_oracle.TRANSLATED, texts, expected, strict=True), ended)
            unlike = [row for row in rows if row[1] != row[2]]
            assert len(unlike) <= (2 if beams > 1 else 0)
            for line, ours, other in unlike:
                score, less = translator.score([line, line], [ours, other], target_language=target)
                assert score > less
            assert len(set(itertools.compress(expected, ended))) >= 15
