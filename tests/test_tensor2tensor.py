"""Models of tensor2tensor: its sub-words against its rule in plain Python, and imported models against a forward pass
in NumPy, both written from its sources.

TENSOR2TENSOR_PYTHON may name a Python that has tensor2tensor 1.15.7 and TensorFlow 1.15, which need Python 3.7: it then
checks ids, logits and translations against the program itself.
"""

import itertools
import json
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import unicodedata

import numpy as np
import numpy_transformer as paper
import programs
import pytest
import tensorflow as tf
from test_tokenizer import nasty_lines

import t2t_keras
from t2t_keras.config import BOS, EOS, UNK, DataConfig
from t2t_keras.decoding import loading
from t2t_keras.reporting import attention
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.text import vocabulary
from t2t_keras.text.lines import is_blank, single_spaced
from t2t_keras.text.spelling import text_and_ends, word_numbers

PYTHON = os.environ.get("TENSOR2TENSOR_PYTHON", "")
CHARACTERS = r"abcdefghijklmnopqrstuvwxyzABDGHTW0123456789\_;'.,!?-() üß猫٣é½"
LONGER = "the_ th ing_ dog dogs_ don run run_ , _ ,_ ._ ._'_ '_ t_ 20 202 24_ 猫_ _ - _ --_ a_b ! ?_".split(" ")
ESCAPES = ["\\\\", "\\\\_", "\\u", "\\u_", "\\1", ";_"]
PIECES = list(dict.fromkeys(["<pad>", "<EOS>", *LONGER, *ESCAPES, "the", " -_", *CHARACTERS]))
LINES = [
    "the dogs run.", "The dog don't run, a_b \\ 2024!", "don't - dogs", "  two  spaces ", "\ta\tb", "x\\u_\\123;",
    "猫が2匹", "½ of ٣٤", "e\u0301 é 👩\u200d👧", "_", "__ _", "\\", "...dogs", "dogs 24 the", "\x00\x11a",
    "<pad> <EOS>", "(the)the", "\U0010ffff",
]  # fmt: skip


def is_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LN"


def expected_ids(line: str) -> list[int]:
    """The rule of tensor2tensor in plain Python, with its ids."""
    parts = ["".join(part) for _, part in itertools.groupby(line, is_word)]
    parts = [part for index, part in enumerate(parts) if part != " " or index in (0, len(parts) - 1)]
    ids, alphabet = {piece: index for index, piece in enumerate(PIECES)}, set(CHARACTERS)
    found = []
    for part in parts:
        rest = part.replace("\\", "\\\\").replace("_", "\\u")
        rest = "".join(each if each in alphabet else f"\\{ord(each)};" for each in rest) + "_"
        while rest:
            size = max(size for size in range(1, 10) if rest[:size] in ids)
            found.append(ids[rest[:size]])
            rest = rest[size:]
    return found


def expected_text(ids: list[int]) -> str:
    def character(match) -> str:
        if match[1] is None:
            return "_" if match[0] == "\\u" else "\\"
        return chr(int(match[1])) if int(match[1]) < 0x110000 else "\u3013"

    parts = "".join(PIECES[index] for index in ids).split("_")
    parts = [re.sub(r"\\u|\\\\|\\([0-9]+);", character, part) for part in parts if part]
    text = parts[0] if parts else ""
    for before, part in itertools.pairwise(parts):
        text += " " * (is_word(before[0]) and is_word(part[0])) + part
    return text


def file_of(pieces: list[str], quote: str = "'") -> bytes:
    return "".join(f"{quote}{piece}{quote}\n" for piece in pieces).encode()


@pytest.fixture(scope="module")
def subwords():
    return vocabulary.load(file_of(PIECES))


def ours(ids: list[int]) -> list[int]:
    return [EOS if index == 1 else index + 2 for index in ids]


def test_ids_of_nasty_lines_are_those_of_the_rule(subwords):
    lines = [line for line in (*LINES, *nasty_lines(1200, seed=5)) if not is_blank(line)]
    found = subwords.tokenize(tf.constant(lines)).to_list()
    assert found == [[*ours(expected_ids(line)), EOS] for line in lines]
    assert [text.decode() for text in subwords.detokenize(tf.ragged.constant(found)).numpy()] == lines
    assert subwords.tokenize(tf.constant(["", " \t"])).to_list() == [[EOS], [EOS]]


def test_any_ids_become_the_text_of_the_rule(subwords):
    rng = np.random.default_rng(1)
    rows = [rng.integers(2, len(PIECES), size).tolist() for size in rng.integers(1, 20, 400)]
    escapes = [index for index, piece in enumerate(PIECES) if set(piece) & set("\\;u_0123456789")][2:]
    rows += [rng.choice(escapes, size).tolist() for size in rng.integers(1, 20, 800)]
    found = subwords.detokenize(tf.ragged.constant([ours(row) for row in rows])).numpy()
    expected = [expected_text(row).encode("utf-8", "surrogatepass").decode("utf-8", "replace") for row in rows]
    alike = [text.decode() == other for text, other in zip(found, expected, strict=True)]
    surrogates = [any(0xD800 <= ord(each) < 0xE000 for each in expected_text(row)) for row in rows]
    assert all(same or odd for same, odd in zip(alike, surrogates, strict=True)) and sum(alike) > 1100


def test_the_file_may_be_of_any_form_of_tensor2tensor(subwords):
    for content in (file_of(PIECES, '"'), file_of(["<pad>_", "<EOS>_", *PIECES[2:]])):
        again = vocabulary.load(content)
        assert again.pieces == subwords.pieces and vocabulary.kind(content) == "tensor2tensor"
        assert again.tokenize(tf.constant(LINES)).to_list() == subwords.tokenize(tf.constant(LINES)).to_list()
    without = [piece for piece in PIECES if piece.strip() == piece and piece not in ("'", " ")]
    vocabulary.load(file_of([piece for piece in without if not set(piece) & set("' ")], ""))


@pytest.mark.parametrize(("content", "message"), [
    (file_of([piece for piece in PIECES if piece != ";"]), "each character .*';'"),
    (file_of([*PIECES, "kéŋ_"]), "each character of a sub-word to be a sub-word itself. 1 are not, such as 'ŋ'"),
    (file_of(PIECES[:5]) + b"'\xff'\n", "not UTF-8"),
])  # fmt: skip
def test_a_damaged_file_is_refused(content, message):
    with pytest.raises(ValueError, match=message):
        vocabulary.load(content)


def test_words_of_its_sub_words(subwords):
    """Also of pieces with spaces inside, of escapes that several pieces make, and of spaces at the edges."""
    spaces, draw = 0, random.Random(7)
    parts = ["the", "dogs", "run", "20", "a_b", ",", " - ", ".", "'", "\\", "猫", "½"]
    joined = ["".join(draw.choice(parts) + " " * draw.randrange(3) for _ in range(9)) for _ in range(300)]
    for line in [line for line in (*LINES, *nasty_lines(300, seed=6), *joined) if not is_blank(line)]:
        ids = expected_ids(line)
        words = list(filter(None, line.split(" ")))
        numbers = word_numbers([subwords.pieces[index] for index in ours(ids)], line)
        before = [len(list(filter(None, expected_text(ids[:end]).split(" ")))) for end in range(1, len(ids) + 1)]
        ends = [index for index, each in enumerate(ids) if PIECES[each].endswith("_") and before[index]]
        assert [numbers[index] for index in ends] == [before[index] - 1 for index in ends]
        assert (np.diff(numbers) >= 0).all() and numbers[0] == 0 and numbers[-1] == len(words) - 1
        spaces += len(words) > 2
    assert spaces > 50
    pieces = ["the_", "dog", "s_", ", ", "_", "\\", "4", "5;", "_", "1_", "run_", "._"]
    for words, expected in ((4, [0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3]), (3, None), (12, None)):
        found = word_numbers([piece.replace("_", "▁") for piece in pieces], " ".join("w" * words))
        assert found is None if expected is None else found.tolist() == expected


def test_where_its_sub_words_are_in_the_text(subwords):
    """Also where several pieces make an escape, and after the sub-words of another text."""
    draw = random.Random(8)
    parts = ["the", "dogs", "run", "20", "a_b", ",", " - ", ".", "'", "\\", "猫", "½"]
    joined = [
        single_spaced("".join(draw.choice(parts) + " " * draw.randrange(3) for _ in range(9))) for _ in range(300)
    ]
    for line in [line for line in joined if expected_text(expected_ids(line)) == line]:
        pieces = [subwords.pieces[index] for index in ours(expected_ids(line))]
        text, ends = text_and_ends(pieces, line)
        assert text == line
        covered = [place for start, end in ends for place in range(start, end)]
        assert sorted(set(covered)) == covered and "".join(line[place] for place in covered).strip() != ""
        assert {place for place, character in enumerate(line) if character != " "} <= set(covered)
        for piece, (start, end) in zip(pieces, ends, strict=True):
            if "\\" not in "".join(pieces):
                assert line[start:end].replace(" ", "") == piece.replace("▁", "").replace(" ", "")
        after, shifted = text_and_ends(["猫", *pieces], line)
        assert after == f"猫 {line}" and shifted == [(0, 1), *((start + 2, end + 2) for start, end in ends)]
    pieces = ["run▁", "\\", "u▁", "\\1", "89;▁"]
    assert text_and_ends(pieces, "run _½") == ("run _½", [(0, 3), (4, 4), (4, 5), (5, 5), (5, 6)])
    assert text_and_ends(pieces, "walk _½")[0] == "".join(pieces).replace("▁", " ")


def test_words_of_a_picture_of_attention(subwords):
    """Story: all of a sentence was one word, because no sub-word begins with ▁."""
    ids = ours(expected_ids("the dogs, run"))
    found = attention._tokens(subwords, [BOS, *ids, EOS])
    assert found.words == ("<s>", "the", "dogs,", "run", "</s>") and sum(found.sizes) == len(ids) + 2


def test_phrases_and_words_of_such_text(subwords):
    assert subwords.joined(tf.constant(["dogs"]), 9).to_list() == subwords.words(tf.constant(["dogs"]), 9).to_list()
    with pytest.raises(ValueError, match="a vocabulary of tensor2tensor. Received: subwords='tensor2tensor'"):
        DataConfig(subwords="tensor2tensor", dataset="builtin")


# The model.

TINY = {"width": 16, "inner": 24, "heads": 2, "keys": 16, "values": 16, "layers": (2, 2), "shards": 16}
SHAPES = {
    "usual": {},
    "other sizes": {"width": 12, "keys": 8, "values": 20, "layers": (1, 3), "shards": 3, "space": 5, "epsilon": 1e-3},
    "post-norm, without a space": {"post": True, "space": None, "shards": 1},
    "three matrices": {"matrices": ("input_emb", "target_emb", "softmax"), "space": None},
}


def make(folder: pathlib.Path, seed: int = 1, **changed) -> tuple[dict, dict]:
    """Writes a model with random weights as tensor2tensor does. Returns its shape and its weights."""
    shape = TINY | {"space": 0, "post": False, "matrices": ("shared",), "epsilon": 1e-6} | changed
    rng, weights, width = np.random.default_rng(seed), {}, shape["width"]

    def add(name, *sizes, scale=None):
        weights[name] = rng.normal(size=sizes, scale=scale or sizes[0] ** -0.5).astype(np.float32)

    def add_norm(name):
        kind = "layer_postprocess" if shape["post"] else "layer_prepostprocess"
        weights[f"{name}/{kind}/layer_norm/layer_norm_scale"] = rng.normal(1, 0.2, width).astype(np.float32)
        add(f"{name}/{kind}/layer_norm/layer_norm_bias", width)

    for matrix in shape["matrices"]:
        for index in range(shape["shards"]):
            rows = len(PIECES) // shape["shards"] + (index < len(PIECES) % shape["shards"])
            name = f"transformer/symbol_modality_{len(PIECES)}_{width}/{matrix}/weights_{index}"
            add(name, rows, width, scale=width**-0.5)
    if shape["space"] is not None:
        add("transformer/body/target_space_embedding/kernel", 32, width, scale=1.0)
    for side, number in zip(("encoder", "decoder"), shape["layers"], strict=True):
        for index in range(number):
            name = f"transformer/body/{side}/layer_{index}"
            for part in ("self_attention", "encdec_attention")[: 1 + (side == "decoder")]:
                for matrix, size in (("q", shape["keys"]), ("k", shape["keys"]), ("v", shape["values"])):
                    add(f"{name}/{part}/multihead_attention/{matrix}/kernel", width, size)
                add(f"{name}/{part}/multihead_attention/output_transform/kernel", shape["values"], width)
                add_norm(f"{name}/{part}")
            for part, sizes in (("conv1", (width, shape["inner"])), ("conv2", (shape["inner"], width))):
                add(f"{name}/ffn/{part}/kernel", *sizes)
                add(f"{name}/ffn/{part}/bias", sizes[1])
            add_norm(f"{name}/ffn")
        if not shape["post"]:
            add_norm(f"transformer/body/{side}")
    folder.mkdir()
    # The state of the optimizer stays behind, and shows which space was trained.
    slots = {f"training/{name}/Adam": np.zeros_like(array) for name, array in weights.items()}
    if shape["space"] is not None:
        slots["training/transformer/body/target_space_embedding/kernel/Adam"][shape["space"]] = 1
    save(folder / "model.ckpt-7", weights | slots | {"global_step": np.int64(7)})
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    (folder / "vocab.translate_toy.subwords").write_bytes(file_of(PIECES))
    hparams = {"num_heads": shape["heads"], "norm_epsilon": shape["epsilon"], "layer_prepostprocess_dropout": 0.2}
    hparams |= {"attention_dropout": 0.05, "relu_dropout": 0.15, "norm_type": "layer", "pos": "timing"}
    hparams["layer_preprocess_sequence"], hparams["layer_postprocess_sequence"] = (
        ("none", "dan") if shape["post"] else ("n", "da")
    )
    (folder / "hparams.json").write_text(json.dumps(hparams))
    (folder / "flags.txt").write_text("--model=transformer\n--hparams_set=transformer_tiny\n--hparams=\n")
    return shape, weights


def save(path: pathlib.Path, arrays: dict) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {name: tf.compat.v1.get_variable(name, initializer=array) for name, array in arrays.items()}
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(variables).save(session, str(path), write_meta_graph=False, write_state=False)


def logits(shape: dict, weights: dict, source: list[int], target: list[int]) -> np.ndarray:
    """What tensor2tensor computes, [T, V], one sentence at a time."""
    width = shape["width"]

    def matrix(*scopes):
        start = f"transformer/symbol_modality_{len(PIECES)}_{width}/"
        scope = next(each for each in scopes if f"{start}{each}/weights_0" in weights)
        return np.concatenate([weights[f"{start}{scope}/weights_{index}"] for index in range(shape["shards"])])

    def projection(name, bias=False):
        kernel = weights[f"{name}/kernel"]
        return kernel, weights[f"{name}/bias"] if bias else np.zeros(kernel.shape[1])

    def norm(name):
        name += f"/{'layer_postprocess' if shape['post'] else 'layer_prepostprocess'}/layer_norm/layer_norm_"
        return weights[f"{name}scale"], weights[f"{name}bias"], shape["epsilon"]

    def layer(name, attentions):
        maps = *projection(f"{name}/ffn/conv1", bias=True), *projection(f"{name}/ffn/conv2", bias=True), "relu"
        found = {"feed_forward": maps, "feed_forward_norm": norm(f"{name}/ffn")}
        for own, theirs in attentions.items():
            parts = ("q", "k", "v", "output_transform")
            parts = (projection(f"{name}/{theirs}/multihead_attention/{part}") for part in parts)
            found |= {own: paper.in_heads(shape["heads"], *parts), f"{own}_norm": norm(f"{name}/{theirs}")}
        return found

    of_paper, attentions = {"pre": not shape["post"]}, {"self_attention": "self_attention"}
    for side, number in zip(("encoder", "decoder"), shape["layers"], strict=True):
        name = f"transformer/body/{side}"
        of_paper[side] = [layer(f"{name}/layer_{index}", attentions) for index in range(number)]
        if not shape["post"]:
            of_paper[f"{side}_norm"] = norm(name)
        attentions = attentions | {"cross_attention": "encdec_attention"}
    x = matrix("input_emb", "shared")[source] * math.sqrt(width) + paper.sines_before_cosines(len(source), width)
    if shape["space"] is not None:
        x = x + weights["transformer/body/target_space_embedding/kernel"][shape["space"]]
    memory = paper.encoder(x, of_paper)
    x = matrix("target_emb", "shared")[target] * math.sqrt(width)
    x = np.concatenate([np.zeros((1, width)), x[:-1]]) + paper.sines_before_cosines(len(target), width)
    return paper.decoder(memory, x, of_paper) @ matrix("softmax", "shared").T


def assert_logits(translator, pairs: list, expected: list) -> None:
    """Sources and targets are ids of tensor2tensor."""
    own = [index for index in range(translator.model.config.vocab_size) if index not in (UNK, BOS)]
    for (source, target), values in zip(pairs, expected, strict=True):
        memory = translator.model.encode(tf.constant([ours(source)]))
        found, _ = translator.model.decode(tf.constant([[BOS, *ours(target)[:-1]]]), memory)
        np.testing.assert_allclose(found[0].numpy()[:, own], values, atol=1e-4)
        assert tf.reduce_max(tf.gather(found, [UNK, BOS], axis=2)) < -900


@pytest.mark.parametrize("name", SHAPES)
def test_logits_are_those_of_tensor2tensor(tmp_path, name):
    shape, weights = make(tmp_path / "model", **SHAPES[name])
    t2t_keras.import_tensor2tensor(tmp_path / "model", tmp_path / "run")
    pairs = [([*expected_ids(a), 1], [*expected_ids(b), 1]) for a, b in zip(LINES[:4], LINES[2:6], strict=True)]
    translator = loading.load(tmp_path / "run")
    assert_logits(translator, pairs, [logits(shape, weights, *pair) for pair in pairs])
    model = translator.model.config
    assert (model.dropout, model.attention_dropout, model.activation_dropout) == (0.2, 0.05, 0.15)
    assert (model.norm, model.tie_logits) == ("post" if shape["post"] else "pre", len(shape["matrices"]) == 1)
    options = SavedRun.open(tmp_path / "run").options
    assert options.sources["d_model"] == f"import of {tmp_path / 'model'}" and options.data.subwords == "tensor2tensor"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensor2tensor") / "model"
    make(folder)
    return folder


def rewrite(folder: pathlib.Path, hparams: dict | None = None, flags: str | None = None) -> None:
    path = folder / "hparams.json"
    if hparams is None:
        path.unlink()
    else:
        path.write_text(json.dumps(json.loads(path.read_text()) | hparams))
    if flags is not None:
        (folder / "flags.txt").write_text(flags)


@pytest.mark.parametrize(("name", "value"), [
    ("norm_type", "noam"), ("pos", "emb"), ("ffn_layer", "local_moe"),
    ("self_attention_type", "dot_product_relative"), ("multiply_embedding_mode", "none"),
    ("unidirectional_encoder", True), ("layer_postprocess_sequence", "dna"),
    ("num_heads", 3), ("num_heads", None), ("norm_epsilon", -1.0), ("attention_dropout", "x"),
])  # fmt: skip
def test_hparams_of_another_model_are_named(model, tmp_path, name, value):
    folder = shutil.copytree(model, tmp_path / "model")
    rewrite(folder, {name: value})
    with pytest.raises(ValueError, match=re.escape(str(value)) if value else "num_heads") as raised:
        t2t_keras.import_tensor2tensor(folder, tmp_path / "run")
    assert "\n" not in str(raised.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize(("flags", "expected"), [
    ("--hparams_set=transformer_big\n", (16, 0.3, 0.1)),
    ("--hparams_set=transformer_big_single_gpu\n--hparams=num_heads=4,attention_dropout=0.3\n", (4, 0.1, 0.3)),
    ("--hparams_set=transformer_tiny\n--hparams=relu_dropout=0.2\n", (4, 0.1, 0.1)),
])  # fmt: skip
def test_a_known_hparams_set_is_enough(model, tmp_path, flags, expected):
    folder = shutil.copytree(model, tmp_path / "model")
    rewrite(folder, None, flags)
    t2t_keras.import_tensor2tensor(folder, tmp_path / "run")
    config = SavedRun.open(tmp_path / "run").model
    assert (config.num_heads, config.dropout, config.attention_dropout) == expected


def assert_refused(folder: pathlib.Path, kind: type, message: str, **options) -> None:
    with pytest.raises(kind, match=message) as raised:
        t2t_keras.import_tensor2tensor(folder, folder.parent / "run", **options)
    assert "\n" not in str(raised.value) and not (folder.parent / "run").exists()


VOCAB, STATE, SHARD = "vocab.translate_toy.subwords", "checkpoint", "model.ckpt-7.data-00000-of-00001"


@pytest.mark.parametrize(("kind", "message", "file", "content"), [
    (ValueError, f"of {len(PIECES)} sub-words.*Received: {len(PIECES) + 1}", VOCAB, file_of([*PIECES, "in"])),
    (FileNotFoundError, "Expected one vocabulary.*`vocab`", VOCAB, None),
    (ValueError, "must begin with <pad>", VOCAB, b"a\nb\n"),
    (ValueError, "Received: model=lstm", "flags.txt", b"--model=lstm\n"),
    (FileNotFoundError, "data-00000-of-00001", SHARD, None),
    (ValueError, "in 100 bytes", SHARD, bytes(100)),
    (ValueError, "to name a checkpoint of its folder", STATE, b'model_checkpoint_path: "/other/model.ckpt-7"\n'),
    (ValueError, "link", VOCAB, pathlib.Path("elsewhere")),
])  # fmt: skip
def test_what_is_missing_or_does_not_fit_is_named(model, tmp_path, kind, message, file, content):
    path = shutil.copytree(model, tmp_path / "model") / file
    path.unlink()
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        (tmp_path / content).write_bytes(file_of(PIECES))
        path.symlink_to(tmp_path / content)
    assert_refused(path.parent, kind, message)


def test_options_that_do_not_fit_are_named(model, tmp_path):
    folder = shutil.copytree(model, tmp_path / "model")
    assert_refused(folder, ValueError, "target_space of 0 to 31", target_space=32)
    assert_refused(folder, FileNotFoundError, "model.ckpt-9.index", checkpoint="model.ckpt-9")
    rewrite(folder, None, "--hparams_set=transformer_moe")
    assert_refused(folder, ValueError, "known hparams_set.*transformer_moe.*num_heads")


@pytest.mark.parametrize(("hparams", "kind", "message"), [
    ({"layer_preprocess_sequence": ["n"]}, ValueError, r"Received: \(\['n'\], 'da'\)"),
    ({"num_heads": 0, "hparams_set": ["x"]}, ValueError, r"Received: hparams_set=\['x'\]"),
    ({"data_dir": ["x"]}, FileNotFoundError, r"It was in \['x'\]\."),
])  # fmt: skip
def test_lists_in_place_of_text_are_named(model, tmp_path, hparams, kind, message):
    """Story: they ended in a traceback."""
    folder = shutil.copytree(model, tmp_path / "model")
    (folder / VOCAB).unlink()
    rewrite(folder, hparams)
    assert_refused(folder, kind, message)


@pytest.mark.parametrize(("name", "message"), [
    ("body/decoder/layer_1/ffn/conv2/bias", "ffn/conv2/bias.*missing"),
    (f"symbol_modality_{len(PIECES)}_16/shared/weights_3", "shared/weights_"),
    ("body/encoder/layer_0/ffn/conv1/kernel", "weights of a Transformer of tensor2tensor"),
    ("body/decoder/layer_1/x", "Received .*layer_1/x.* besides"),
])  # fmt: skip
def test_weights_that_are_missing_or_unknown_are_named(model, tmp_path, name, message):
    folder, name = shutil.copytree(model, tmp_path / "model"), f"transformer/{name}"
    reader = tf.train.load_checkpoint(str(folder / "model.ckpt-7"))
    names = [each for each in reader.get_variable_to_shape_map() if each.startswith("transformer/")]
    arrays = {each: reader.get_tensor(each) for each in names}
    if arrays.pop(name, None) is None:
        arrays[name] = np.ones(2, np.float32)
    save(folder / "model.ckpt-7", arrays)
    assert_refused(folder, ValueError, message)


def test_both_sides_may_have_their_own_vocabulary(tmp_path):
    shape, weights = make(tmp_path / "model", space=None, shards=1)
    others = [*PIECES[:2], *PIECES[3:]]
    name = f"transformer/symbol_modality_{len(others)}_16/shared/weights_0"
    source = np.random.default_rng(2).normal(size=(len(others), 16)).astype(np.float32)
    save(tmp_path / "model" / "model.ckpt-7", weights | {name: source})
    (tmp_path / "source").write_bytes(file_of(others))
    t2t_keras.import_tensor2tensor(tmp_path / "model", tmp_path / "run", source_vocab=tmp_path / "source")
    translator = loading.load(tmp_path / "run")
    assert translator.source_tokenizer.pieces != translator.tokenizer.pieces
    np.testing.assert_array_equal(np.sort(translator.model.source_embedding_matrix[EOS + 1]), np.sort(source[2]))


@pytest.mark.medium
def test_a_run_translates_scores_trains_and_is_exported(model, tmp_path):
    run, lines = tmp_path / "run", LINES[:5]
    t2t_keras.import_tensor2tensor(model, run)
    translator = t2t_keras.load(run)
    texts = translator.translate(lines)
    assert len(translator.score(lines, texts)) == len(lines)
    word = next(word for word in re.findall(r"\w+", texts[0]) if word.isascii())
    found = translator.n_best(lines[0], avoid=[word])[0].text
    assert not re.search(rf"\b{word}\b", found) and found != texts[0]
    found = translator.n_best(lines[0], constraints=["don't", "the dogs."])[0].text
    assert "don't" in found and "the dogs." in found
    (tmp_path / "text").write_text("\n".join(["the dogs run.", "a dog, don't"] * 4) + "\n")
    text = dict.fromkeys(("train_source", "train_target", "valid_source", "valid_target"), str(tmp_path / "text"))
    child = t2t_keras.train(tmp_path / "child", parent=run, **text, batch_tokens=64, train_steps=2, valid_sentences=0,
                            attention_images=0, best_metric="loss")  # fmt: skip
    assert loading.load(tmp_path / "child").tokenizer.models == loading.load(run).tokenizer.models
    child.export(tmp_path / "export")
    found = programs.alone(programs.TRANSLATE, next((tmp_path / "export").glob("*/")), lines)
    assert found[0] == child.load().translate(lines)


# The program itself.

ORACLE = """
import json, os, sys
import numpy as np
import tensorflow.compat.v1 as tf
from tensor2tensor.data_generators import problem_hparams, text_encoder
from tensor2tensor.models import transformer
from tensor2tensor.utils import registry

folder, asked = sys.argv[1], json.load(sys.stdin)
os.makedirs(folder)
vocab = os.path.join(folder, "vocab.translate_toy.subwords")
text_encoder.SubwordTextEncoder.build_from_generator(asked["learn"], 400).store_to_file(vocab)
encoder = text_encoder.SubwordTextEncoder(vocab)
hparams = registry.hparams(asked["hparams_set"]).override_from_dict(asked["hparams"])
problem = problem_hparams.test_problem_hparams(encoder.vocab_size, encoder.vocab_size, hparams)
model = transformer.Transformer(hparams, tf.estimator.ModeKeys.EVAL, problem)
source, target = (tf.placeholder(tf.int32, [None, None, 1, 1]) for _ in range(2))
space = tf.constant(asked["space"])
logits, _ = model({"inputs": source, "targets": target, "target_space_id": space})
model.set_mode(tf.estimator.ModeKeys.PREDICT)
with tf.variable_scope(tf.get_variable_scope(), reuse=True):
    beams = model._beam_decode({"inputs": source, "target_space_id": space}, 20, 4, 4, 0.6)
pairs, random = [], np.random.RandomState(3)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for variable in tf.trainable_variables():  # Biases and layer normalizations begin with zeros and ones.
        values = session.run(variable)
        variable.load(values + (values.ndim == 1) * random.normal(size=values.shape, scale=0.2), session)
    step = tf.train.get_or_create_global_step()
    session.run(step.initializer)
    tf.train.Saver().save(session, os.path.join(folder, "model.ckpt"), 7)
    for pair in asked["pairs"]:
        ids = [encoder.encode(line) + [text_encoder.EOS_ID] for line in pair]
        feed = {place: np.reshape(row, [1, -1, 1, 1]) for place, row in zip((source, target), ids)}
        found = session.run(beams, {source: feed[source]})
        pairs.append({"ids": ids, "logits": session.run(logits, feed)[0, :, 0, 0].tolist(),
                      "outputs": found["outputs"][0].tolist(), "scores": found["scores"][0].tolist()})
with open(os.path.join(folder, "hparams.json"), "w") as file:
    json.dump({name: value for name, value in hparams.values().items() if not isinstance(value, dict)}, file)
ids = [encoder.encode(line) for line in asked["lines"]]
json.dump({"ids": ids, "texts": [encoder.decode(row) for row in asked["rows"]], "pairs": pairs}, sys.stdout)
"""
THEIRS = {
    "tiny": ("transformer_tiny", {}, 0),
    "sizes": (
        "transformer_tiny",
        {"hidden_size": 20, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 3, "norm_epsilon": 1e-3}
        | {"attention_key_channels": 16, "attention_value_channels": 24},
        8,
    ),
    "post-norm": ("transformer_base_v1", {"hidden_size": 32, "filter_size": 64, "num_hidden_layers": 2}, 0),
    "unshared": ("transformer_tiny",
        {"shared_embedding_and_softmax_weights": False, "use_target_space_embedding": False}, 0),
    "shared embedding": ("transformer_tiny",
        {"shared_embedding_and_softmax_weights": False, "shared_embedding": True, "symbol_modality_num_shards": 1}, 0),
}  # fmt: skip


@pytest.mark.skipif(not PYTHON, reason="TENSOR2TENSOR_PYTHON names no Python with tensor2tensor")
@pytest.mark.parametrize("name", THEIRS)
def test_ids_logits_and_translations_are_those_of_the_program(tmp_path, name):
    readme = (pathlib.Path(__file__).parent.parent / "README.md").read_text()
    learn = [line for line in readme.split("\n") if line.strip()]
    # Its Python may have an older Unicode, in which new letters are none.
    old = unicodedata.ucd_3_2_0.category
    lines = [
        line
        for line in nasty_lines(300, seed=6)
        if not is_blank(line) and all(is_word(each) == (old(each)[0] in "LN") for each in line)
    ]
    rows = np.random.default_rng(1).integers(2, 300, (50, 20)).tolist()
    hparams_set, hparams, space = THEIRS[name]
    asked = {"learn": learn, "lines": lines, "rows": rows, "pairs": list(itertools.pairwise(learn[2:7]))}
    asked |= {"hparams_set": hparams_set, "hparams": hparams, "space": space}
    command = [PYTHON, "-c", ORACLE, str(tmp_path / "model")]
    environment = {"PATH": os.environ["PATH"]}
    result = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    theirs = json.loads(result.stdout)
    t2t_keras.import_tensor2tensor(tmp_path / "model", tmp_path / "run", target_space=space)
    translator = loading.load(tmp_path / "run")
    assert translator.tokenizer.tokenize(tf.constant(lines)).to_list() == [[*ours(row), EOS] for row in theirs["ids"]]
    texts = translator.tokenizer.detokenize(tf.ragged.constant([ours(row) for row in rows])).numpy()
    assert [text.decode() for text in texts] == theirs["texts"]
    assert_logits(translator, [pair["ids"] for pair in theirs["pairs"]], [pair["logits"] for pair in theirs["pairs"]])
    for pair in theirs["pairs"]:
        source = tf.ragged.constant([ours(pair["ids"][0])])
        length = tf.constant([len(pair["ids"][0]) + 20])
        options = {"alpha": tf.constant([0.6]), "max_length": length, "n_best": tf.constant([4])}
        sequences, scores = translator.search(source, **options)
        # Their search gives log P without the length penalty if no translation has ended.
        penalty = ((5 + int(length[0])) / 6) ** 0.6 if not any(1 in row for row in pair["outputs"]) else 1.0
        np.testing.assert_allclose(scores[0] * penalty, pair["scores"], atol=1e-3)
        best = sequences.to_list()[0]
        assert best == ours(pair["outputs"][0])[: len(best)]
