"""Packages for Argos Translate: what they hold, what is refused, and that Argos Translate translates as we do."""

import importlib.util
import json
import os
import pathlib
import shutil
import sys
import zipfile

import programs
import pytest
import sentencepiece
from test_ctranslate2_format import ONE_WIDTH, STRANGE, english, ids_of, make_translator, tokenizer  # noqa: F401

from t2t_keras.decoding.loading import load
from t2t_keras.decoding.translator import translate_lines
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving import argos_format, ctranslate2_format

RUN_1 = pathlib.Path(__file__).parent / "data/run_1"
METADATA = {
    "package_version": "1.0", "argos_version": "1.10", "type": "translate", "from_code": "en", "to_code": "gsw",
    "from_name": "English", "to_name": "Schwiizerdütsch",
}  # fmt: skip
NAME = "translate-en_gsw"


@pytest.fixture(scope="module")
def package(tokenizer, tmp_path_factory):  # noqa: F811
    """A translator whose longest source and translation have 1,024 sub-words, and its package."""
    ours = make_translator(ONE_WIDTH, tokenizer, max_input=924, extra_length=100)
    return ours, argos_format.write(ours, tmp_path_factory.mktemp("packages") / "new", METADATA)


def contents(path: pathlib.Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_package_has_the_model_of_ctranslate2_the_sub_words_and_the_languages(package, tmp_path):
    ours, path = package
    assert [file.name for file in path.parent.iterdir()] == [f"{NAME}.argosmodel"] == [path.name]
    files = contents(path)
    ctranslate2_format.write(ours, tmp_path / "other")
    model = ("model.bin", "config.json", "shared_vocabulary.json")
    assert set(files) == {f"{NAME}/model/{name}" for name in model} | {
        f"{NAME}/{name}" for name in ("sentencepiece.model", "metadata.json", "README.md")
    }
    for name in model:
        assert files[f"{NAME}/model/{name}"] == (tmp_path / "other" / name).read_bytes()
    assert json.loads(files[f"{NAME}/metadata.json"]) == METADATA
    assert files[f"{NAME}/metadata.json"].isascii()  # Argos Translate reads it in the encoding of the machine.
    pieces = json.loads(files[f"{NAME}/model/shared_vocabulary.json"])
    processor = sentencepiece.SentencePieceProcessor(model_proto=files[f"{NAME}/sentencepiece.model"])
    assert [processor.id_to_piece(index) for index in range(processor.vocab_size())] == pieces
    lines = [line for line in [*english(20), *STRANGE] if line.strip()]
    assert processor.encode(lines) == ids_of(ours.tokenizer, lines)
    assert "English to Schwiizerdütsch" in files[f"{NAME}/README.md"].decode()


def test_the_same_model_gives_the_same_bytes_and_other_weights_fewer(package, tmp_path):
    ours, path = package
    assert argos_format.write(ours, tmp_path / "again", METADATA).read_bytes() == path.read_bytes()
    small = contents(argos_format.write(ours, tmp_path / "small", METADATA, "int8"))
    assert len(small[f"{NAME}/model/model.bin"]) < 0.7 * len(contents(path)[f"{NAME}/model/model.bin"])


def test_nothing_is_written_where_something_is_or_where_it_fails(package, tmp_path):
    ours, path = package
    with pytest.raises(FileExistsError, match="a new or an empty folder"):
        argos_format.write(ours, path.parent, METADATA)
    with pytest.raises(ValueError, match="int3 is not a valid quantization"):
        argos_format.write(ours, tmp_path / "new", METADATA, "int3")
    assert list(tmp_path.iterdir()) == []


def test_codes_are_those_of_the_data_unless_they_are_given():
    """The built-in text is English to German."""
    run = SavedRun.open(RUN_1)
    found = argos_format.metadata(run, "English", "German")
    assert found == METADATA | {"to_code": "de", "to_name": "German"}
    assert argos_format.metadata(run, "English", "Schwiizerdütsch", to_code="gsw") == METADATA


@pytest.mark.parametrize(("values", "told"), [
    (("", "German"), "`from_name` to be the name of a language .* such as English. Received: ''"),
    (("English", "a\nb"), r"`to_name` .* Received: 'a\\nb'"),
    (("English", "German", "../x"), "`from_code` to be the code of a language, such as en. Received: '../x'"),
    (("English", "German", "de"), "two different languages. Received: de for both"),
])  # fmt: skip
def test_names_and_codes_that_are_missing_or_lead_elsewhere_are_refused(values, told):
    with pytest.raises(ValueError, match=told):
        argos_format.metadata(SavedRun.open(RUN_1), *values)


def changed(folder: pathlib.Path, group: str, **options) -> SavedRun:
    """A copy of a run's description with other options."""
    shutil.copytree(RUN_1, folder)
    written = json.loads((folder / "config.json").read_text())
    written[group] |= options
    (folder / "config.json").write_text(json.dumps(written))
    return SavedRun.open(folder)


@pytest.mark.parametrize(("options", "told"), [
    ({"subwords": "wordpiece"}, "with byte-pair encoding. Received: .* with subwords=wordpiece"),
    ({"source_tag": "<2de>"}, "with no tags in the source. Received: .* with source_tag=<2de>"),
    ({"keep_patterns": "tags"}, "with no placeholders. Received: .* with keep_patterns=tags"),
    (
        {"dataset": "", "train_source": "a", "train_target": "b", "valid_source": "c", "valid_target": "d"},
        "`from_code` .* Received: none, and the names of the run's texts do not tell it",
    ),
])  # fmt: skip
def test_a_run_that_needs_more_than_argos_translate_does_is_refused(tmp_path, options, told):
    with pytest.raises(ValueError, match=told):
        argos_format.metadata(changed(tmp_path / "run", "data", **options), "English", "German")


def test_sub_words_of_the_source_alone_are_refused(tmp_path):
    run = changed(tmp_path / "run", "model")
    content = (RUN_1 / "subwords.model").read_bytes()
    (run.folder / "subwords.source.model").write_bytes(content + b"\xc2\x3e\x00")  # With an empty field of number 1000.
    run.written["source_subwords"] = None
    with pytest.raises(ValueError, match="that both languages share. Received: .* with sub-words of the source alone"):
        argos_format.metadata(run, "English", "German")


# Argos Translate imports two packages that find sentences, which need models of their own from the network. In their
# place, a sentence is a line.
USER = """
import json, sys, types

stanza, minisbd = types.ModuleType("stanza"), types.ModuleType("minisbd")
minisbd.models = types.SimpleNamespace(list_models=lambda: ["en"])
minisbd.SBDetect = lambda language, use_gpu: types.SimpleNamespace(
    sentences=lambda text: [text] if text.strip() else []
)
sys.modules.update(stanza=stanza, minisbd=minisbd)

from argostranslate import package, translate

package.install_from_path(sys.argv[1])
[installed] = package.get_installed_packages()
found = {language.code: language.name for language in translate.get_installed_languages()}
texts = [translate.translate(line, installed.from_code, installed.to_code) for line in json.load(sys.stdin)]
print(json.dumps({"languages": found, "readme": installed.get_readme(), "texts": texts}))
"""


@pytest.mark.medium
def test_argos_translate_installs_a_package_and_translates_as_we_do(tmp_path):
    """Greedily, strange characters too. Argos Translate replaces underscores with spaces. Our longest translation is
    shorter, and may end within a character of up to 4 bytes.
    """
    if not importlib.util.find_spec("argostranslate"):
        pytest.skip("argostranslate is not installed: pip install --no-deps argostranslate")
    metadata = argos_format.metadata(SavedRun.open(RUN_1), "English", "German")
    ours = load(RUN_1, beam_size=1, extra_length=80)
    path = argos_format.write(ours, tmp_path / "new", metadata)
    lines = ["one", "twenty-one", "two hundred and seven", "the third of may", *english(30), *STRANGE]
    folders = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("DATA", "CONFIG", "CACHE")}
    environment = {**os.environ, **folders, "ARGOS_BEAM_SIZE": "1", "ARGOS_COMPUTE_TYPE": "float32"}
    options = {"input": json.dumps(lines).encode(), "capture_output": True, "env": environment}
    result = programs.run([sys.executable, "-c", USER, path], **options)
    assert result.returncode == 0, result.stderr.decode()
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["languages"] == {"en": "English", "de": "German"} and "# English to German" in found["readme"]
    whole = set()
    for line, theirs, answer in zip(lines, found["texts"], translate_lines(ours, lines), strict=True):
        text = answer["text"].replace("_", " ").replace("▁", " ").removeprefix(" ")
        if len(text) < 80 or not line.strip():
            assert theirs == text
            whole.add(text)
        assert theirs.startswith(text[:-3])
    assert len(whole) > 10
