"""Imported models of both families: logits of a NumPy model, ids of SentencePiece, one sentence for folders that do not
fit, and the hub.
"""

import contextlib
import functools
import http.server
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import threading
import time
import types
import warnings
import zipfile

import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.errors
import huggingface_hub.utils
import marian_models
import numpy as np
import programs
import pytest
import safetensors.numpy
import tensorflow as tf
import transformers_models as models

import t2t_keras
from t2t_keras.config import BOS, PAD
from t2t_keras.decoding import loading
from t2t_keras.interop import huggingface_folder
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving.saved_export import SavedExport

ROOT = pathlib.Path(__file__).parent.parent
STEP_0 = "checkpoints/step-000000000.npz"
SHAPES = [("marian", name) for name in models.MARIAN] + [("m2m", name) for name in models.M2M]
LINES = {
    "marian": ["a dog runs", ">>de<< two men play ball near the house", "猫 1 2024", "don't </s> ½", "tree"],
    "m2m": ["a dog runs", "two men play ball near the house", "猫 1 2024", "don't </s> ½ >>xx<<", "tree"],
}


class Imported:
    """A model that was imported.

    Attributes:
        folder: in transformers' format.
        family: marian or m2m.
        run: the folder of the run.
        translator: of the run.
        sides: source and target for `ids_of`.
        ids: for each side the model's id for each of ours; -1: none.
    """

    def __init__(self, folder: pathlib.Path, family: str):
        self.folder, self.family, self.run = folder, family, folder.parent / "run"
        if family == "marian":
            self.sides, languages = ("source", "target"), {}
        else:
            self.sides = models.LANGUAGES[models.kind_of(folder)][:2]
            languages = dict(zip(("source_language", "target_language"), self.sides, strict=True))
        t2t_keras.import_huggingface(folder, self.run, **languages)
        self.translator = loading.load(self.run)
        tokenizers = self.translator.source_tokenizer, self.translator.tokenizer
        self.tokenizers = dict(zip(self.sides, tokenizers, strict=True))
        self.ids = {
            side: models.ids_of_ours(folder, tokenizer.pieces, side) for side, tokenizer in self.tokenizers.items()
        }

    def ours(self, side: str) -> dict[int, int]:
        """Our id for each of the model's."""
        return {index: own for own, index in enumerate(self.ids[side]) if index >= 0}


@pytest.fixture(scope="module", params=SHAPES, ids=": ".join)
def imported(request, tmp_path_factory):
    family, name = request.param
    shape = (models.MARIAN if family == "marian" else models.M2M)[name]
    return Imported(models.make(tmp_path_factory.mktemp(family) / "model", **shape), family)


@pytest.fixture(scope="module")
def folders(opus, nllb):
    """Folders that tests may copy."""
    return {"marian": opus, "m2m": nllb}


@pytest.fixture(scope="module")
def run(opus):
    t2t_keras.import_marian(opus, opus.parent / "run of the hub")
    return opus.parent / "run of the hub"


def test_logits_are_those_of_the_model(imported):
    source_side, target_side = imported.sides
    ours, theirs = imported.ours(source_side), imported.ids[target_side]
    own_target = imported.ours(target_side)
    start = json.loads((imported.folder / "config.json").read_text())["decoder_start_token_id"]
    draw, model = np.random.default_rng(1), imported.translator.model
    for line in LINES[imported.family]:
        source = models.ids_of(imported.folder, line, source_side)
        target = draw.choice([index for index in theirs if index >= 0 and index != start], 6).tolist()
        expected = models.logits(imported.folder, source, [start, *target])
        memory = model.encode(tf.constant([[ours[index] for index in source]]))
        found, _ = model.decode(tf.constant([[BOS, *(own_target[index] for index in target)]]), memory)
        rows = [own for own in range(len(theirs)) if own not in (PAD, BOS)]
        np.testing.assert_allclose(found[0].numpy()[:, rows], expected[:, [theirs[own] for own in rows]], atol=1e-4)
        assert np.abs(expected).max() > 3 and expected.std() > 0.5
        assert np.all(found[0].numpy()[:, [PAD, BOS]] < expected.max() - 90)


def test_ids_of_nasty_lines_are_those_of_sentencepiece_and_the_list(imported):
    """After the language, where the model has one."""
    lines = models.nasty_lines(300)
    if imported.family == "m2m":
        lines = [line for line in lines if not line.startswith(">>de<<")]  # A language of M2M-100.
    for side, tokenizer in imported.tokenizers.items():
        ours = imported.ours(side)
        expected = [[ours[index] for index in models.ids_of(imported.folder, line, side)] for line in lines]
        assert tokenizer.tokenize(tf.constant(lines)).to_list() == expected


def cut(path: pathlib.Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])


def renamed(folder, old: str, new: str) -> None:
    (folder / old).rename(folder / new)


def only_fast(folder, name: str) -> None:
    """Replaces a file by that of the package tokenizers, with its added tokens."""
    (folder / name).unlink()
    tokens = [{"id": index, "content": token} for index, token in enumerate(("</s>", "<unk>", "<pad>"))]
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": tokens, "model": {"type": "BPE"}}))


@pytest.mark.parametrize(
    "imported",
    [
        pytest.param(shape, marks=[pytest.mark.medium] * (shape[0] == "m2m"), id=": ".join(shape))
        for shape in SHAPES
        if shape[1] not in ("other sizes", "shards", "not scaled, swish, float16")  # Others alone in their logits.
    ],
    indirect=True,
)
def test_greedy_translations_are_those_of_the_model(imported):
    """Into each of its languages."""
    source_side, target_side = imported.sides
    languages = [] if imported.family == "marian" else models.LANGUAGES[models.kind_of(imported.folder)][1:]
    lines, theirs = LINES[imported.family][: None if languages else 3], imported.ids[target_side]
    for language in languages or [""]:
        given = {"target_language": language} if language else {}
        first = [models.ids_of(imported.folder, "", language)[0]] if language else []
        translator = loading.load(imported.run, beam_size=1, alpha=0.0, extra_length=3, **given)
        rows = translator.source_tokenizer.tokenize(tf.constant(lines))
        length = tf.cast(rows.row_lengths(), tf.int32) + 3
        found, _ = translator.search(rows, tf.zeros(len(lines)), length, tf.ones(len(lines), tf.int32))
        expected = [
            models.greedy(imported.folder, line, int(most), source_side, first)
            for line, most in zip(lines, length, strict=True)
        ]
        assert [[theirs[own] for own in row] for row in found.to_list()] == expected
    if languages:
        texts = [text.decode() for text in translator(tf.constant(lines))["text"].numpy()]
        unknown = any(piece.startswith("<") for piece in "".join(texts))
        assert unknown or texts == [models.text_of(imported.folder, ids) for ids in expected]


# An export.


LOAD = """
import sys
import tensorflow as tf, tensorflow_text
model = tf.saved_model.load(sys.argv[1])
lines = tf.constant(sys.argv[3:])
found = model.signatures["serving_default"](text=lines)["text"]
inputs = {"alpha": -1.0, "max_length": 0, "n_best": 1, "prefix": sys.argv[2], "alignment": False, "ordered": False}
inputs |= {"constraints": "", "avoid": ""}
inputs = {name: tf.fill([len(lines)], value) for name, value in inputs.items()}
other = model.signatures["translate_with_options"](text=lines, **inputs)
assert "t2t_keras" not in sys.modules
print("\\n".join(text.decode() for text in [*found.numpy(), *other["text"][:, 0].numpy()]))
"""


@pytest.mark.medium
@pytest.mark.parametrize("family", ["marian", "m2m"])
def test_an_export_translates_alike_in_a_process_without_this_package(folders, tmp_path, family):
    names, prefix, other, lines = {}, "", {}, LINES[family]
    if family == "m2m":
        names, prefix = {"source_language": "eng_Latn", "target_language": "deu_Latn"}, ">>fra_Latn<<"
        other, lines = {"target_language": "fra_Latn"}, [*lines, ">>zho_Hans<<a dog"]
    t2t_keras.import_huggingface(folders[family], tmp_path / "run", **names)
    usual = t2t_keras.load(tmp_path / "run")
    expected = usual.translate(lines) + usual.translate(lines, **other)
    export = t2t_keras.Run(tmp_path / "run").export(tmp_path / "export")
    assert names.items() <= SavedExport(export).description.items()
    command = [sys.executable, "-c", LOAD, str(export), prefix, *lines]
    result = programs.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=programs.without_this_package(), check=True
    )
    assert result.stdout.splitlines() == expected
    if family == "m2m":
        loaded = t2t_keras.load(tmp_path / "export")
        assert loaded.translate(lines) + loaded.translate(lines, **other) == expected
        with pytest.raises(ValueError, match="Did you mean fra_Latn"):
            loaded.translate("a dog", target_language="fra")


# Folders that do not fit.


LAYER, NORM = "model.decoder.layers.0.fc1.weight", "model.encoder.layer_norm.weight"
POSITIONS = "model.encoder.embed_positions.weight"
SHARED, LAST = "model.shared.weight", "model.decoder.layer_norm.weight"
BROKEN = {}


def broken(name: str, message: str, break_it, family: str = "marian") -> None:
    """Adds a function that breaks a folder, and what the error says."""
    BROKEN[family, name] = break_it, message


def broken_options(file: str, name: str, message: str, family: str = "marian", **values) -> None:
    broken(name, message, lambda folder: models.rewrite(folder, file, **values), family)


def with_weights(folder, change) -> None:
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    change(arrays)
    safetensors.numpy.save_file(arrays, folder / "model.safetensors")


def broken_tensors(name: str, message: str, change, family: str = "marian") -> None:
    broken(name, message, lambda folder: with_weights(folder, change), family)


def broken_header(name: str, tensors: dict, size: int | None = None) -> None:
    def break_it(folder):
        content = json.dumps({each: {"dtype": "F32", **values} for each, values in tensors.items()}).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", size or len(content)) + content + bytes(8))

    broken(name, "safetensors file.*damaged", break_it)


def index_of(folder, places) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


of_model = functools.partial(broken_options, "config.json")
of_model("another architecture", "model_type=marian.*'bart'", model_type="bart")
of_model("no model type", "no model_type", model_type=...)
of_model("pre-norm", "normalize_before=False.*True", normalize_before=True)
of_model("a decoder alone", "is_encoder_decoder=True.*False", is_encoder_decoder=False)
of_model("activation", "activation_function.*gelu_new", activation_function="gelu_new")
of_model("no activation", "activation_function of type str", activation_function=...)
of_model("text for a number", "d_model of type int.*'16'", d_model="16")
of_model("true for a number", "encoder_layers of type int", encoder_layers=True)
of_model("huge", "at most 65,536", d_model=2**40)
of_model("negative", "decoder_layers=-1", decoder_layers=-1)
of_model("odd width", "d_model. must be even", d_model=15, encoder_attention_heads=3, decoder_attention_heads=3)
of_model("heads", "heads that divide d_model", encoder_attention_heads=3, decoder_attention_heads=3)
of_model("no heads", "heads that divide d_model", encoder_attention_heads=0, decoder_attention_heads=0)
of_model("unlike heads", "same attention_heads.*encoder_attention_heads=2", decoder_attention_heads=4)
of_model("unlike widths", "same ffn_dim.*decoder_ffn_dim=30", decoder_ffn_dim=30)
of_model("padding", "pad_token_id of 0 to", pad_token_id=10**6)
of_model("other padding", "ids of padding and end", pad_token_id=5)
of_model("other end", "ids of padding and end", eos_token_id=7)
of_model("a start before the first", "decoder_start_token_id of 0 to", decoder_start_token_id=-1)
of_model("several ends", "eos_token_id of 0 to", eos_token_id=[0, 2])
of_model("no start", "decoder_start_token_id of 0 to", decoder_start_token_id=...)
of_model("positions", "max_input=-1", max_position_embeddings=-1)
of_model("whole number that no float holds", "dropout of type float.*1000", dropout=10**400)
of_model("largest whole number that a float holds", "less than 1. Received: dropout=", dropout=int(sys.float_info.max))
of_model("activation of two lines", r"Received: 'a\\nb'", activation_function="a\nb")
broken_options("generation_config.json", "beams", "beam_size=0", num_beams=0)
broken_options("generation_config.json", "penalty", "length_penalty of type float", length_penalty="a")
broken_options("generation_config.json", "penalty that is infinite", "a finite number", length_penalty=float("inf"))
broken_options("vocab.json", "id above", "different ids below.*1000000", a=10**6)
broken_options("vocab.json", "id below", "different ids below.*-1", a=-1)
broken_options("vocab.json", "id twice", "an id twice", a=5)
broken_options("vocab.json", "id is text", "different ids below", a="5")
broken_options("vocab.json", "no unknown", "Missing: <unk>", **{"<unk>": ...})
broken_options("tokenizer_config.json", "no second list", "target_vocab.json.*missing", separate_vocabs=True)
broken_options(
    "tokenizer_config.json", "added tokens", "no added tokens.*<2de>", added_tokens_decoder={"3": {"content": "<2de>"}}
)
broken_tensors("last norm", f"{NORM} besides", lambda arrays: arrays.update({NORM: np.ones(16, np.float32)}))
broken_tensors("unknown", "Received x and 1 more besides", lambda arrays: arrays.update(x=np.ones(3), y=np.ones(3)))
broken_tensors("name of two lines", "Received x y besides", lambda arrays: arrays.update({"x\ny": np.ones(3)}))
broken_tensors("missing", "fc1.weight. It is missing", lambda arrays: arrays.pop(LAYER))
broken_tensors(
    "no embedding", "Expected the weight model.shared.weight. It is missing", lambda arrays: arrays.pop(SHARED)
)
broken_tensors(
    "not tied to one of two",
    "They differ",
    lambda arrays: arrays.update(
        {"lm_head.weight": arrays[SHARED] + 1, "model.encoder.embed_tokens.weight": arrays[SHARED].copy()}
    ),
)
broken_tensors(
    "shape", r"shape \(24, 16\).*\(23, 16\)", lambda arrays: arrays.update({LAYER: arrays[LAYER][:-1].copy()})
)
broken_tensors(
    "whole numbers", "fc1.weight.*types F64.*I32", lambda arrays: arrays.update({LAYER: arrays[LAYER].astype(np.int32)})
)
broken_tensors(
    "not finite", "fc1.weight with infinity or NaN", lambda arrays: arrays[LAYER].__setitem__((3, 3), np.nan)
)
broken_tensors(
    "too large for float32", "fc1.weight with infinity", lambda arrays: arrays.update({LAYER: np.full((24, 16), 1e300)})
)
broken_tensors(
    "too large for the logits", "finite logits", lambda arrays: arrays[SHARED].__setitem__(slice(None), 3e38)
)
broken_tensors(
    "not tied", "lm_head.weight to be equal", lambda arrays: arrays.update({"lm_head.weight": arrays[SHARED] + 1})
)
broken_tensors("positions", "sinusoids", lambda arrays: arrays.update({POSITIONS: np.ones((64, 16), np.float32)}))
broken_header("header too long", {}, 2**60)
broken_header("header that is cut", {"a": {"shape": [2], "data_offsets": [0, 8]}}, 20)
broken_header("tensors on each other", dict.fromkeys("ab", {"shape": [2], "data_offsets": [0, 8]}))
broken_header("tensor outside of the file", {"a": {"shape": [2**40], "data_offsets": [0, 2**42]}})
broken_header("tensor larger than its place", {"a": {"shape": [2**40], "data_offsets": [0, 8]}})
broken("config is a list", "JSON object", lambda folder: (folder / "config.json").write_text("[]"))
broken("config is cut", "damaged", lambda folder: (folder / "config.json").write_text('{"model_type"'))
broken("weights are cut", "safetensors file.*damaged", lambda folder: cut(folder / "model.safetensors", -9))
broken(
    "a start after the last",
    "decoder_start_token_id of 0 to",
    lambda folder: models.rewrite(
        folder, "config.json", decoder_start_token_id=len(models.marian_list(folder, "source"))
    ),
)
broken("sub-words are cut", "target.spm does not fit", lambda folder: cut(folder / "target.spm", 100))
broken("BPE files", "source.spm. Models with BPE files", lambda folder: renamed(folder, "source.spm", "source.bpe"))
broken("no config", "config.json.*missing", lambda folder: (folder / "config.json").unlink())
broken("no list", "vocab.json.*It is missing.$", lambda folder: (folder / "vocab.json").unlink())
for name in ("model.safetensors", "vocab.json", "source.spm"):
    broken(
        f"a pointer of Git LFS as {name}",  # Story: "damaged or not one", "damaged or holds more".
        f"the contents of .*{name}. Received: a pointer of Git LFS, .* Run `git lfs pull` in its folder.$",
        lambda folder, name=name: (folder / name).write_bytes(
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935\nsize 298763212\n"
        ),
    )
broken(
    "several files of PyTorch",
    "Received pytorch_model.bin.index.json, of several files of PyTorch. Read .* with transformers, and write it with",
    lambda folder: renamed(folder, "model.safetensors", "pytorch_model.bin.index.json"),
)
broken("no weights", "model.safetensors in", lambda folder: (folder / "model.safetensors").unlink())

of_m2m = functools.partial(broken, family="m2m")
options_of_m2m = functools.partial(broken_options, family="m2m")
options_of_m2m("config.json", "experts", "model_type=marian or m2m_100.*'nllb-moe'", model_type="nllb-moe")
of_m2m(
    "no sub-words", "sentencepiece.bpe.model.*It is missing.$", lambda folder: renamed(folder, models.ONE_MODEL, "x")
)
for family, file in {"marian": "vocab.json", "m2m": models.ONE_MODEL}.items():  # As transformers 5 saves NLLB-200.
    broken(
        "sub-words of tokenizers alone",
        f"Expected {file} in .* It is missing, and tokenizer.json, .*Copy {file} from",
        lambda folder, file=file: only_fast(folder, file),
        family,
    )
of_m2m(
    "sub-words of another toolkit",
    "Expected <unk>, <s>, </s> as the first pieces.*Received: </s>, <unk>, ",
    lambda folder: (folder / models.ONE_MODEL).write_bytes(models.spm(models.SOURCE_WORDS)),
)
of_m2m(
    "cut",
    f"{models.ONE_MODEL} cannot be read: Not a SentencePiece model",
    lambda folder: (folder / models.ONE_MODEL).write_bytes(b"\n"),
)
of_m2m(
    "no languages", "codes of languages.*Received none", lambda folder: renamed(folder, "special_tokens_map.json", "x")
)
options_of_m2m("config.json", "languages without an id", "different ids below 160", vocab_size=160)
for content, message in (('{"eng_Latn": 9}', "an id twice"), ('{"eng_Latn": "9"}', "ids of added tokens")):
    of_m2m(content, message, lambda folder, content=content: (folder / "added_tokens.json").write_text(content))
options_of_m2m("tokenizer_config.json", "added tokens are a list", "ids of added tokens", added_tokens_decoder=[1])
options_of_m2m("tokenizer_config.json", "old order", "legacy_behaviour=False.*Received: True", legacy_behaviour=True)
options_of_m2m("config.json", "untied", "tie_word_embeddings=True.*False", tie_word_embeddings=False)
options_of_m2m("config.json", "other padding", "ids of padding and end", pad_token_id=4)
broken_tensors("no last norm", f"Expected the weight {LAST}. It is missing", lambda arrays: arrays.pop(LAST), "m2m")
broken_tensors("unknown", "m2m_100 with pre-norm.*x besides", lambda arrays: arrays.update(x=np.ones(2)), "m2m")
for name, places, message in (
    ("no files", {SHARED: "../model.safetensors"}, "names of safetensors.*Received: ../model"),
    ("a file elsewhere too", {SHARED: "a.safetensors", LAST: "../b.safetensors"}, "names of safetensors files"),
    ("nothing", {}, "names of safetensors files"),
    ("no places", [], "names of safetensors files"),
    ("a file that is missing", {SHARED: "a.safetensors"}, "Expected a.safetensors in .*missing"),
):
    of_m2m(f"an index of {name}", message, functools.partial(index_of, places=places))


@pytest.mark.parametrize(("family", "name"), BROKEN)
def test_a_folder_that_does_not_fit_is_refused_in_one_sentence_and_nothing_is_written(folders, tmp_path, family, name):
    break_it, message = BROKEN[family, name]
    folder = shutil.copytree(folders[family], tmp_path / "model")
    break_it(folder)
    with warnings.catch_warnings(), pytest.raises((ValueError, FileNotFoundError), match=message) as raised:
        warnings.simplefilter("error")
        t2t_keras.import_huggingface(folder, tmp_path / "run")
    assert len(str(raised.value)) < 600 and "\n" not in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


@pytest.mark.parametrize(
    ("family", "name"),
    [
        *(("marian", name) for name in ("config.json", "vocab.json", "source.spm", "model.safetensors")),
        *(("m2m", name) for name in ("sentencepiece.bpe.model", "special_tokens_map.json")),
    ],
)
def test_links_are_not_followed(folders, tmp_path, family, name):
    folder = shutil.copytree(folders[family], tmp_path / "model")
    (folder / name).unlink()
    (folder / name).symlink_to(folders[family] / name)
    with pytest.raises(ValueError, match=f"{name} is a link, to"):
        t2t_keras.import_huggingface(folder, tmp_path / "run")


def test_what_is_no_file_is_not_read(opus, tmp_path):
    """A named pipe would wait for ever."""
    folder = shutil.copytree(opus, tmp_path / "model")
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(ValueError, match="Expected a file"):
        t2t_keras.import_marian(folder, tmp_path / "run")


@pytest.mark.parametrize("name", ["source.spm", "vocab.json"])
def test_a_file_of_text_has_a_greatest_size(opus, tmp_path, monkeypatch, name):
    """What is read into memory at once."""
    most = max((opus / each).stat().st_size for each in ("source.spm", "target.spm", "vocab.json", "config.json"))
    monkeypatch.setattr(huggingface_folder, "MAX_TEXT", most)
    t2t_keras.import_marian(opus, tmp_path / "run")
    folder = shutil.copytree(opus, tmp_path / "model")
    with (folder / name).open("ab") as file:
        file.truncate(most + 1)
    with pytest.raises(ValueError, match=f"{name}.*{most:,} bytes|{most:,} bytes.*{name}"):
        t2t_keras.import_marian(folder, tmp_path / "other")


def test_a_weight_in_two_files_is_refused(nllb, tmp_path):
    folder = shutil.copytree(nllb, tmp_path / "model")
    for name in ("a", "b"):
        shutil.copyfile(folder / "model.safetensors", folder / f"{name}.safetensors")
    index_of(folder, {SHARED: "a.safetensors", NORM: "b.safetensors"})
    with pytest.raises(ValueError, match="each weight in one of the files.*a weight in two of them"):
        t2t_keras.import_huggingface(folder, tmp_path / "run")


def test_position_encodings_in_the_file_are_checked(nllb, tmp_path):
    """As in files of early versions of transformers."""
    name = "model.encoder.embed_positions.weights"
    angles = np.arange(66)[:, None] / 10000 ** (np.arange(8) / 7)
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1, dtype=np.float32)
    table[1] = 0
    for place, fits in ((table, True), (table + 0.1, False)):
        folder = shutil.copytree(nllb, tmp_path / f"model {fits}")
        with_weights(folder, lambda arrays: arrays.update({name: place}))  # noqa: B023
        if fits:
            t2t_keras.import_huggingface(folder, tmp_path / "run")
        else:
            with pytest.raises(ValueError, match=f"Expected the sinusoids of transformers as {name}"):
                t2t_keras.import_huggingface(folder, tmp_path / "other")


def test_a_file_of_pytorch_is_read_as_data(tmp_path, monkeypatch):
    asked = []

    def load(path, **options):
        asked.append(options)
        if len(asked) == 1:
            raise RuntimeError("mmap can only be used with files saved with the new zipfile format")
        return {}

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(load=load, is_tensor=bool, strided="strided"))
    huggingface_folder._pickled(tmp_path / "pytorch_model.bin")
    assert [options["weights_only"] for options in asked] == [True, True]
    assert [options.get("mmap", False) for options in asked] == [True, False]


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_compressed_file_of_pytorch_is_not_read(tmp_path, monkeypatch, compression):
    """Story: 1 MB became 1.15 GB."""
    torch = types.SimpleNamespace(load=lambda path, **options: {}, is_tensor=bool, strided="strided")
    monkeypatch.setitem(sys.modules, "torch", torch)
    path = tmp_path / "pytorch_model.bin"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("model/data/0", bytes(1000))
    if compression == zipfile.ZIP_STORED:
        assert huggingface_folder._pickled(path).names == set()
        return
    with pytest.raises(ValueError, match=f"^Expected a file of PyTorch, which is not compressed. Received: {path}"):
        huggingface_folder._pickled(path)


@pytest.mark.parametrize(("signature", "place", "new"), [
    (b"PK\x01\x02", 0, b"\0"),
    (b"PK\x01\x02", 6, b"\x63"),
    (b"PK\x05\x06", 0, struct.pack("<4sLQL", b"PK\x06\x07", 0, 0, 2) + b"P"),
], ids=["no directory", "zip version 9.9", "two disks"])  # fmt: skip
def test_a_damaged_file_of_pytorch_is_named(tmp_path, signature, place, new):
    """Story: it ended in a traceback."""
    path = tmp_path / "pytorch_model.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data/0", bytes(1000))
    content = bytearray(path.read_bytes())
    place += content.rindex(signature)
    content[place : place + 1] = new
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"^Expected a file of PyTorch. Received: {path}, which is damaged "):
        huggingface_folder._pickled(path)


def test_a_vocabulary_that_the_weights_do_not_have_takes_no_memory(tmp_path):
    """Story: `vocab_size=16777215` took 5.5 GB and 35 s before the shape of the embeddings was read."""
    folder = models.make(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config |= {"vocab_size": 2**24 - 1, "decoder_vocab_size": 2**24 - 1}
    (folder / "config.json").write_text(json.dumps(config))
    begin = time.perf_counter()
    with pytest.raises(ValueError, match="of shape .16777215, .*, as the options have it. Received: "):
        t2t_keras.import_marian(folder, tmp_path / "run")
    assert time.perf_counter() - begin < 1 and not (tmp_path / "run").exists()


def test_a_file_of_json_may_have_tens_of_megabytes(tmp_path):
    """`tokenizer.json` of NLLB-200 has 17."""
    (tmp_path / "tokenizer.json").write_text('{"a": 1' + " " * 20_000_000 + "}")
    assert huggingface_folder.Folder(tmp_path).json("tokenizer.json") == {"a": 1}


def test_a_file_is_no_name_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "opus").touch()
    monkeypatch.setattr(huggingface_folder, "_download", lambda *given: pytest.fail("asked for"))
    with pytest.raises(FileNotFoundError, match="Expected a folder, or a name such as .* Received: opus."):
        t2t_keras.import_marian("opus", tmp_path / "run")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").touch()
    with pytest.raises(FileExistsError):  # Story: after the download of the model.
        t2t_keras.import_marian("Helsinki-NLP/opus-mt-en-de", tmp_path / "taken")


def test_a_folder_with_files_is_left_alone(opus, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(FileExistsError, match="new or an empty"):
        t2t_keras.import_marian(opus, tmp_path)
    with pytest.raises(NotADirectoryError, match="`model_dir` must be a folder"):
        t2t_keras.import_marian(opus, tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("source", ["", "./nowhere", "/nowhere/at/all", "a/b/c", "x y", "../no/such"])
def test_what_is_neither_a_folder_nor_a_name_is_refused(source, tmp_path):
    with pytest.raises(FileNotFoundError, match="Expected a folder, or a name"):
        t2t_keras.import_marian(source, tmp_path / "run")


# The hub.


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves the files of a folder as the model `some/opus`, as the hub does."""

    folder: pathlib.Path
    requests: list[str]
    protocol_version = "HTTP/1.1"

    def answer(self, body: bool) -> None:
        self.requests.append(self.path)
        _, *model, resolve, revision, name = self.path.split("/")
        path, error = self.folder / name, ""
        if model != ["some", "opus"] or resolve != "resolve":
            error = "RepoNotFound"
        elif not path.exists():
            error = "EntryNotFound"
        content = b"" if error else path.read_bytes()
        self.send_response(404 if error else 200)
        if error:
            self.send_header("X-Error-Code", error)
        self.send_header("X-Repo-Commit", "c" * 40)
        self.send_header("ETag", f'"{name}-1"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def log_message(self, *arguments) -> None:
        pass


@contextlib.contextmanager
def served(folder, cache):
    """Environment for programs: a hub on this machine, and a cache of their own; and the requests that it gets."""
    handler = type("Bound", (Hub,), {"folder": folder, "requests": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    environment = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}", "HF_HOME": str(cache)}
    yield environment | {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}, handler.requests
    server.shutdown()
    server.server_close()


@pytest.fixture
def hub(opus, tmp_path):
    with served(opus, tmp_path / "hf") as found:
        yield found


def tool(*arguments, name: str = "import_marian", env=None) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "tools" / f"{name}.py", *arguments]
    return programs.run(
        command, modules=programs.WITHOUT_TENSORFLOW, capture_output=True, text=True, env=env or dict(os.environ)
    )


def contents(model_dir: pathlib.Path) -> dict[str, bytes]:
    """The files of a run but for its `config.json`, which names the source."""
    paths = [path for path in model_dir.rglob("*") if path.is_file() and path.suffix != ".json"]
    return {str(path.relative_to(model_dir)): path.read_bytes() for path in paths}


def test_a_model_of_the_hub_is_downloaded_once_and_is_the_same(run, tmp_path, hub):
    environment, requests = hub
    result = tool("--from=some/opus", f"--model_dir={tmp_path}/run", env=environment)
    assert result.returncode == 0, result.stderr
    found, expected = contents(tmp_path / "run"), contents(run)
    assert found.keys() == expected.keys() and all(found[name] == expected[name] for name in found if name != STEP_0)
    with np.load(tmp_path / "run" / STEP_0) as arrays, np.load(run / STEP_0) as others:
        assert all(np.array_equal(arrays[name], others[name]) for name in others.files)
    assert SavedRun.open(tmp_path / "run").options.sources["d_model"] == "import of the hub's some/opus"
    number = len(requests)
    assert sum("model.safetensors" in path for path in requests) == 2  # HEAD and GET.
    again = tool("--from=some/opus", f"--model_dir={tmp_path}/again", env=environment)
    assert again.returncode == 0 and not any("safetensors" in path for path in requests[number:]), again.stderr
    offline = tool("--from=some/opus", f"--model_dir={tmp_path}/offline", env=environment | {"HF_HUB_OFFLINE": "1"})
    assert offline.returncode == 0, offline.stderr


def test_a_model_of_the_hub_may_have_its_weights_in_several_files(tmp_path):
    folder = models.make(tmp_path / "model", "nllb", shards=3)
    with served(folder, tmp_path / "hf") as (environment, requests):
        result = tool("--from=some/opus", f"--model_dir={tmp_path}/run", name="import_huggingface", env=environment)
    assert result.returncode == 0, result.stderr
    t2t_keras.import_huggingface(folder, tmp_path / "local")
    with np.load(tmp_path / "run" / STEP_0) as found, np.load(tmp_path / "local" / STEP_0) as expected:
        assert found.files == expected.files
        assert all(np.array_equal(found[name], expected[name]) for name in found.files)
    assert {path.split("/")[4] for path in requests if "config.json" not in path} == {"c" * 40}


@pytest.mark.parametrize(("name", "options", "message"), [
    ("some/other", {}, "There is no folder some/other, and no model of this name on the hub"),
    ("some/opus", {"HF_HUB_OFFLINE": "1"}, "the hub cannot be reached"),
    ("some--x/..opus", {}, "Expected a folder, or a name"),
    ("some/opus--x", {}, "cannot be downloaded from the hub: "),
    pytest.param(
        "some/opus", {"HF_ENDPOINT": "http://127.0.0.1:9"}, "the hub cannot be reached", marks=pytest.mark.slow
    ),
])  # fmt: skip
def test_the_hub_answers_in_one_sentence(tmp_path, hub, name, options, message):
    environment, _ = hub
    result = tool(f"--from={name}", f"--model_dir={tmp_path}/run", env=environment | options)
    *before, last = result.stderr.splitlines()
    assert result.returncode == 1 and last.startswith("Error: ") and message in last, result.stderr
    assert before in ([], [f"There is no folder {name}: reading the model of this name from the Hugging Face hub …"])
    assert not (tmp_path / "run").exists()


class Cache:
    """The cache of the hub as its library lays it out, reached through a link, with the library's function for
    downloads.

    Attributes:
        snapshot: the folder of the revision abc.
        seen: the files that were asked for, each with its revision.
        error: makes an error of the name of a file that is not there.
    """

    def __init__(self, folder: pathlib.Path):
        (folder / "real").mkdir()
        (folder / "hub").symlink_to("real")
        self.snapshot, self.seen = folder / "hub/models--some--opus/snapshots/abc", []
        self.snapshot.mkdir(parents=True)
        self.error = huggingface_hub.errors.EntryNotFoundError
        self.verbosity = set()

    def add(self, name: str, content: str = "{}", model: str = "some--opus") -> None:
        blob = self.snapshot.parents[2] / f"models--{model}/blobs" / name
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_text(content)
        (self.snapshot / name).symlink_to(os.path.relpath(blob, self.snapshot))

    def download(self, name: str, file: str, revision: str | None) -> str:
        self.seen.append((file, revision))
        self.verbosity.add(huggingface_hub.utils.logging.get_verbosity())
        if not (self.snapshot / file).exists():
            raise self.error(file)
        return str(self.snapshot / file)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    found = Cache(tmp_path)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", found.download)
    return found


@pytest.mark.parametrize(("there", "torch", "asked"), [
    (["model.safetensors", "b.json"], True, ["model.safetensors"]),
    ([], False, ["model.safetensors", "model.safetensors.index.json"]),
    ([], True, ["model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                "pytorch_model.bin.index.json"]),
    (["pytorch_model.bin"], True, ["model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"]),
    (["model.safetensors.index.json"], True,
     ["model.safetensors", "model.safetensors.index.json", "1.safetensors", "2.safetensors"]),
])  # fmt: skip
def test_no_more_files_of_the_hub_are_asked_for_than_can_be_read(cache, monkeypatch, there, torch, asked):
    """The first one tells the revision of the others. PyTorch's file is the last resort."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: torch or None)
    before = huggingface_hub.utils.logging.get_verbosity()
    for name in ["a.json", *there]:
        cache.add(name, json.dumps({"weight_map": {"x": "1.safetensors", "y": "2.safetensors"}}))
    folder = huggingface_folder.find("some/opus", ("a.json", "b.json", "c.json"))
    assert cache.seen == [("a.json", None), *((name, "abc") for name in ("b.json", "c.json", *asked))]
    assert folder.of_hub
    assert folder.find("a.json").read_text() == folder.content("a.json").decode()
    assert folder.find("c.json") is None
    assert cache.verbosity == {huggingface_hub.utils.logging.ERROR}
    assert huggingface_hub.utils.logging.get_verbosity() == before


def test_links_of_the_cache_lead_to_files_of_the_same_model(cache):
    cache.add("a.json")
    cache.add("b.json", model="another--one")
    folder = huggingface_folder.find("some/opus", ("a.json", "b.json"))
    assert folder.json("a.json") == {}
    with pytest.raises(ValueError, match="b.json is a link, to"):
        folder.json("b.json")


def test_a_model_without_its_first_file_is_refused(cache):
    with pytest.raises(FileNotFoundError, match="Expected a.json in the model some/opus of the hub. It is missing."):
        huggingface_folder.find("some/opus", ("a.json", "b.json"))


@pytest.mark.parametrize("offline", [False, True])
def test_a_hub_that_goes_away_is_no_file_that_is_missing(cache, monkeypatch, offline):
    """But with HF_HUB_OFFLINE, files that a model does not have are not in the cache either."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
    cache.error = huggingface_hub.errors.LocalEntryNotFoundError
    cache.add("a.json")
    if offline:
        assert huggingface_folder.find("some/opus", ("a.json", "b.json")).find("b.json") is None
    else:
        with pytest.raises(ValueError, match="the hub cannot be reached for the model of this name. Its cache lacks"):
            huggingface_folder.find("some/opus", ("a.json", "b.json"))
    with pytest.raises(ValueError, match="the hub cannot be reached"):
        huggingface_folder.find("some/opus", ("b.json", "a.json"))


def test_a_long_answer_of_the_hub_is_shortened(cache):
    cache.error = lambda file: huggingface_hub.errors.HFValidationError("no such\nname " * 500)
    with pytest.raises(ValueError, match="cannot be downloaded from the hub: no such name no such") as told:
        huggingface_folder.find("some/opus", ("a.json",))
    assert "\n" not in str(told.value) and len(str(told.value)) < 450


# Memory.


MEMORY = """
import pathlib, re, sys
from t2t_keras.interop import huggingface
import numpy, safetensors
def peak():  # ru_maxrss may be that of the process before `exec`.
    return 1024 * int(re.search("VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
before = peak()
huggingface.import_huggingface(*sys.argv[1:])
print(peak() - before)
assert "tensorflow" not in sys.modules and "keras" not in sys.modules
"""


@pytest.mark.medium
@pytest.mark.parametrize(
    ("kind", "options", "dtype"),
    [
        ("marian", {"vocab_size": 58_101, "decoder_vocab_size": 58_101}, np.float32),  # Of the size of OPUS-MT's.
        ("native", {"vocab_size": 58_101, "decoder_vocab_size": 58_101}, np.float32),  # Of Marian's own files.
        # As large a part of the model as in NLLB-200 of 600 million weights.
        ("nllb", {"vocab_size": 64_000}, np.float16),
    ],
)
def test_an_import_takes_less_memory_than_twice_the_model_and_no_tensorflow(tmp_path, kind, options, dtype):
    sizes = {"d_model": 512, "ffn_dim": 2048, "encoder_layers": 6, "decoder_layers": 6}
    format_kind = "marian" if kind == "native" else kind
    folder = models.make(tmp_path / "model", format_kind, sizes=sizes, options=options, dtype=dtype)
    size = (folder / "model.safetensors").stat().st_size
    if kind == "native":
        marian_models.write(folder / "native", folder)
        folder = folder / "native"
    assert size > 140e6
    command = [sys.executable, "-c", MEMORY, str(folder), str(tmp_path / "run")]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 2 * size
