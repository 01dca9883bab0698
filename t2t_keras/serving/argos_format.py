"""Writes packages for Argos Translate, which LibreTranslate installs too: zips with CTranslate2's model, one
SentencePiece model for both languages, and `metadata.json`.

Argos Translate divides text into lines and sentences, and chooses the search: a beam of 4, a `length_penalty` of 0.2,
sources of up to 1,024 and translations of up to 256 sub-words. It joins the translations of the sentences, and replaces
each underscore with a space.
"""

import json
import pathlib
import re
import shutil
import zipfile

from t2t_keras.runs import data_folder
from t2t_keras.runs.run_options import TRANSFORMER
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system.files import check_new, making_folder
from t2t_keras.text import sentencepiece_model

SUFFIX = ".argosmodel"
_LONGEST = 1024  # Argos Translate leaves CTranslate2's `max_input_length` as it is.
_OLDEST = "1.10"  # Earlier versions of Argos Translate do not join bytes to characters.
_EPOCH = (1980, 1, 1, 0, 0, 0)  # The first time that a zip can have: the same model gives the same bytes.
_CODE = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")
_README = """# {from_name} to {to_name}

A Transformer in CTranslate2's format, trained with t2t_keras, for Argos Translate {argos_version} or later and for
LibreTranslate.

    from argostranslate import package, translate

    package.install_from_path("{name}{suffix}")
    translate.translate("...", "{from_code}", "{to_code}")

Sentences of more than {longest:,} sub-words are cut.
"""


def metadata(run: SavedRun, from_name: str, to_name: str, from_code: str = "", to_code: str = "") -> dict[str, str]:
    """Returns the content of `metadata.json`: the names of the languages, as people read them, and their codes; empty
    ones are those that the run's data tell. Does not import TensorFlow. Raises `ValueError` if a name or a code is
    missing or invalid, or a package cannot hold the run.
    """
    _check(run)
    told = data_folder.languages(run.corpus) or ("", "")
    codes = {"from_code": from_code or told[0], "to_code": to_code or told[1]}
    for option, code in codes.items():
        if not _CODE.fullmatch(code):
            received = f"{code!r}" if code else "none, and the names of the run's texts do not tell it"
            raise ValueError(f"Expected `{option}` to be the code of a language, such as en. Received: {received}.")
    if len(set(codes.values())) == 1:
        raise ValueError(
            f"`from_code` and `to_code` must be two different languages. Received: {codes['from_code']} for both."
        )
    names = {"from_name": from_name, "to_name": to_name}
    for option, name in names.items():
        if not name.strip() or not name.isprintable():
            raise ValueError(
                f"Expected `{option}` to be the name of a language that people choose by, such as English. Received: "
                f"{name!r}."
            )
    return {"package_version": "1.0", "argos_version": _OLDEST, "type": "translate", **codes, **names}


def _check(run: SavedRun) -> None:
    """Raises `ValueError` for a run that needs other steps before or after CTranslate2 than Argos Translate has."""
    data = run.data
    for holds, expected, received in (
        (run.architecture == TRANSFORMER, "a Transformer", f"architecture={run.architecture}"),
        (data.subwords == "bpe", "byte-pair encoding", f"subwords={data.subwords}"),
        (len(set(run.subwords())) == 1, "sub-words that both languages share", "sub-words of the source alone"),
        (not any(data.tags), "no tags in the source", f"source_tag={data.source_tag}"),
        (not data.keep_patterns, "no placeholders", f"keep_patterns={data.keep_patterns}"),
    ):
        if not holds:
            raise ValueError(
                f"The format of Argos Translate needs a run with {expected}. Received: {run.folder} with {received}. "
                "Export a SavedModel instead."
            )


def write(translator, folder: str | pathlib.Path, metadata: dict[str, str], quantization: str = "") -> pathlib.Path:
    """Writes the package of a `Translator` into a new or empty folder and returns its path. `metadata` is
    what the function of that name returns; `quantization` and the errors are those of `ctranslate2_format.write`.
    """
    from t2t_keras.serving import ctranslate2_format

    folder = pathlib.Path(folder).resolve()
    check_new(folder, "export_dir")
    spec = ctranslate2_format.specification_of(translator, _LONGEST, quantization)
    # As Argos Translate names packages. Without a version: a package that is installed again replaces the former.
    name = "translate-{from_code}_{to_code}".format(**metadata)
    readme = _README.format(**metadata, name=name, suffix=SUFFIX, longest=_LONGEST)
    with making_folder(folder) as unfinished:
        package = unfinished / name
        (package / "model").mkdir(parents=True)
        spec.save(str(package / "model"))
        (package / "sentencepiece.model").write_bytes(sentencepiece_model.escaping(translator.tokenizer.models[0]))
        (package / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")
        (package / "README.md").write_text(readme, encoding="utf-8")
        _zip(package, unfinished / f"{name}{SUFFIX}")
        shutil.rmtree(package)
    return folder / f"{name}{SUFFIX}"


def _zip(folder: pathlib.Path, path: pathlib.Path) -> None:
    with zipfile.ZipFile(path, "x") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                entry = zipfile.ZipInfo.from_file(file, file.relative_to(folder.parent))
                entry.date_time, entry.compress_type = _EPOCH, zipfile.ZIP_DEFLATED
                with file.open("rb") as content, archive.open(entry, "w") as written:
                    shutil.copyfileobj(content, written)
