"""Runs whose embeddings start as word vectors, and keep them for some updates, exactly as long when they are
resumed.
"""

import dataclasses
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
import toy
from test_parent import GIVEN, arrays, trained

from t2t_keras.config import ModelConfig, RnnConfig, TrainConfig
from t2t_keras.interop import word_vectors
from t2t_keras.model.transformer import Transformer
from t2t_keras.runs import checkpoint, run_options, saved_run
from t2t_keras.text import vocabulary
from t2t_keras.training import embeddings, loop
from t2t_keras.training.train_step import make_train_step

gensim = pytest.importorskip("gensim", reason="the extra 'embeddings' is not installed: pip install -e '.[embeddings]'")
from gensim.models import Word2Vec  # noqa: E402

PIECES = ("<pad>", "<unk>", "<s>", "</s>", "<0x00>", "▁dog", "dog", "▁", "▁cat", "▁do")
MATRIX = "model/transformer/embedding/matrix"


def vectors(path: pathlib.Path, rows: dict) -> pathlib.Path:
    """A file of GloVe."""
    path.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in rows.items()))
    return path


def matrix(rows: int = len(PIECES), width: int = 2) -> tf.Variable:
    return tf.Variable(np.random.default_rng(1).normal(scale=0.3, size=(rows, width)).astype("float32"))


@pytest.mark.parametrize("unit", [1.0, 1e25, 1e-25])
def test_rows_of_whole_words_start_as_their_vectors_with_the_variance_of_the_matrix(tmp_path, unit):
    """The pieces `dog`, inside of words, and `▁` alone are none; `<s>` and `do` have no ▁, and no vector."""
    weights = matrix()
    before = weights.numpy()
    rows = {"cat": (6, 8), "the": (1, 1), "dog": (0, 5), "<s>": (9, 9), "▁": (9, 9)}
    file = vectors(tmp_path / "v", {word: [unit * number for number in row] for word, row in rows.items()})
    assert embeddings.start(file, weights, PIECES) == ["▁cat", "▁dog"]
    after = weights.numpy()
    others = [row for row in range(len(PIECES)) if row not in (5, 8)]
    np.testing.assert_array_equal(after[others], before[others])
    factor = np.sqrt(np.mean(before**2) / (125 / 4))
    np.testing.assert_allclose(after[[8, 5]], factor * np.array([[6, 8], [0, 5]]), rtol=1e-6)
    assert np.mean(after[[5, 8]] ** 2) == pytest.approx(np.mean(before**2))


@pytest.mark.parametrize("rows", [{"Dog": (1, 2)}, {"dog": (0, 0), "cat": (0, 0)}], ids=["no word", "zeros"])
def test_vectors_that_give_no_row_are_refused(tmp_path, rows):
    weights = matrix()
    before = weights.numpy()
    with pytest.raises(
        ValueError,
        match="Expected vectors of words in the vocabulary, such as cat, do, dog. Received: none in .*, or all 0",
    ):
        embeddings.start(vectors(tmp_path / "v", rows), weights, PIECES)
    np.testing.assert_array_equal(weights.numpy(), before)
    with pytest.raises(ValueError, match="Expected a model with an embedding matrix"):
        embeddings.start(tmp_path / "v", None, PIECES)


def test_the_folder_keeps_which_rows_have_started(tmp_path):
    embeddings.write(tmp_path, ["▁cat", "▁dog"])
    assert embeddings.read(tmp_path, PIECES) == ["▁cat", "▁dog"]
    for content in (
        b"",
        "▁cat\n▁do".encode(),
        "▁cat\n▁mouse\n".encode(),
        "▁cat\n".encode("utf-16"),
        "▁cat\n".encode() * 999,
    ):
        (tmp_path / saved_run.EMBEDDINGS).write_bytes(content)
        with pytest.raises(ValueError, match="Expected sub-words of the run in .*embeddings.txt"):
            embeddings.read(tmp_path, PIECES)
    (tmp_path / saved_run.EMBEDDINGS).unlink()
    with pytest.raises(FileNotFoundError, match="names the embeddings to freeze"):
        embeddings.read(tmp_path, PIECES)


# The train step.


@pytest.mark.medium
def test_held_rows_keep_every_bit_and_the_others_train_as_without():
    """The model of one matrix, of which rows 5 and 9 are held for two of three updates, with Adam and clipping."""
    held = np.isin(np.arange(toy.VOCAB_SIZE), (5, 9))
    train = dataclasses.replace(toy.TRAIN, freeze_embeddings=2, embeddings="v")
    updates = toy.random_updates([4, 3, 5])
    given = {"replicas": 2, "micro_batch_tokens": 10**6, "make_optimizer": toy.adam, "make_model": toy_model}
    given["train"] = train
    start, path = toy.weights_of(toy_model_with_weights()), "embedding/matrix"
    plain, plain_metrics = toy.on_devices(updates[:1], **given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toy, "make_train_step", lambda *arguments: make_train_step(*arguments, held))
        (one, metrics), (two, _), (three, _) = (toy.on_devices(updates[:number], **given) for number in (1, 2, 3))
    [name] = [each for each in one if each.endswith(path)]
    for weights in (one, two):
        np.testing.assert_array_equal(weights[name][held], start[name][held])
        assert (weights[name][~held][1:] != start[name][~held][1:]).any(axis=1).all()
    assert (three[name][held] != start[name][held]).any(axis=1).all()
    for each in one:
        rows = ~held if each == name else slice(None)
        np.testing.assert_allclose(one[each][rows], plain[each][rows], atol=1e-6)
    assert metrics[0]["gradient_norm"] < plain_metrics[0]["gradient_norm"], "of what is trained"


def toy_model() -> Transformer:
    return Transformer(toy.SMALL)


def toy_model_with_weights() -> Transformer:
    model = toy_model()
    toy.set_weights(model)
    return model


# Runs.


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> pathlib.Path:
    """Vectors that gensim learns from numbers in words."""
    words = "one two three four five six seven eight nine ten hundred thousand and million of may ein zwei drei".split()
    sentences = [[words[(first + 3 * step) % len(words)] for step in range(6)] for first in range(60)]
    path = tmp_path_factory.mktemp("vectors") / "vectors.bin"
    Word2Vec(sentences, vector_size=8, min_count=1, seed=1, workers=1).wv.save_word2vec_format(str(path), binary=True)
    return path


def rows_of(model_dir: pathlib.Path, step: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows that started as vectors, and the others, after some updates."""
    pieces = vocabulary.load((model_dir / "subwords.model").read_bytes()).pieces
    started = np.isin(pieces, embeddings.read(model_dir, pieces))
    assert 0 < started.sum() < 60
    values = arrays(checkpoint.path_of(model_dir, step))[MATRIX]
    return values[started], values[~started]


@pytest.mark.medium
def test_rows_are_held_for_so_many_updates_also_in_a_run_that_was_stopped_between(file, tmp_path):
    """Without the file of vectors, which a resumed run needs no more. Saved after each update; rows train from the
    fourth on.
    """
    given = GIVEN | {"embeddings": str(file), "freeze_embeddings": 3, "subwords": "word", "vocab_size": 320}
    given |= {"checkpoint_steps": 1, "train_steps": 5, "valid_steps": 5, "keep_checkpoints": 9, "deterministic": True}
    said = trained(tmp_path / "whole", **given)
    found = len((tmp_path / "whole" / saved_run.EMBEDDINGS).read_text().split())
    assert re.search(
        rf"^{found} of the 60 sub-words that begin a word have a vector in {file}; the others start at random.$",
        said,
        re.M,
    )
    copy = tmp_path / "copy.bin"
    copy.write_bytes(file.read_bytes())
    trained(tmp_path / "stopped", **given | {"train_steps": 2, "embeddings": str(copy)})
    copy.unlink()
    trained(tmp_path / "stopped", train_steps=5)
    for step in (1, 2, 3, 4, 5):
        whole, stopped = (arrays(checkpoint.path_of(tmp_path / name, step)) for name in ("whole", "stopped"))
        for name in whole:
            np.testing.assert_array_equal(whole[name], stopped[name], err_msg=f"{name} {step}")
    first, *others = (rows_of(tmp_path / "whole", step) for step in (1, 2, 3, 4))
    assert [np.array_equal(first[0], held) for held, _ in others] == [True, True, False]
    assert not any(np.array_equal(first[1], free) for _, free in others)
    assert np.mean(first[0] ** 2) == pytest.approx(1 / 8, rel=0.1), "the initial variance, 1 / d_model"
    expected = word_vectors.read(file, 8, ["two"])["two"]
    pieces = vocabulary.load((tmp_path / "whole/subwords.model").read_bytes()).pieces
    row = arrays(checkpoint.path_of(tmp_path / "whole", 1))[MATRIX][pieces.index("▁two")]
    np.testing.assert_allclose(row / np.linalg.norm(row), expected / np.linalg.norm(expected), rtol=1e-5)


@pytest.mark.medium
def test_a_resumed_run_keeps_its_vectors_and_a_folder_alone_names_none(file, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "make_train_step", toy.pretended_train_step([]))
    given = GIVEN | {"embeddings": str(file), "train_steps": 1, "valid_steps": 1, "checkpoint_steps": 1}
    trained(tmp_path / "run", **given)
    for name, other in (("embeddings", "other.txt"), ("freeze_embeddings", 7)):
        with pytest.raises(ValueError, match=rf"^Expected the options that .* was trained with. Received: {name}="):
            trained(tmp_path / "run", **{name: other})
    for path in checkpoint.kept(tmp_path / "run"):
        path.unlink()
        path.with_suffix(".json").unlink(missing_ok=True)
    with pytest.raises(ValueError, match="Expected `embeddings=.*` to be given again, .* to start from word vectors"):
        trained(tmp_path / "run", train_steps=1)


def options(model=None, **train) -> run_options.Options:
    return run_options.Options(model or ModelConfig(340, d_model=8), TrainConfig(**train))


def test_what_can_be_found_out_before_tensorflow_is(file, tmp_path):
    embeddings.check(options(embeddings=str(file)))
    rnn = dataclasses.replace(
        options(RnnConfig(340, d_model=4, d_embedding=8), embeddings=str(file)), architecture="rnn"
    )
    embeddings.check(rnn)
    with pytest.raises(ValueError, match="Expected word vectors of 16 numbers, .* Received: 8 in"):
        embeddings.check(options(ModelConfig(340, d_model=16), embeddings=str(file)))
    with pytest.raises(ValueError, match="one vocabulary .* with `embeddings`. Received: source_vocab_size=330."):
        embeddings.check(options(ModelConfig(340, d_model=8, source_vocab_size=330), embeddings=str(file)))
    with pytest.raises(FileNotFoundError, match="No such file of word vectors"):
        embeddings.check(options(embeddings=str(tmp_path / "nowhere")))
