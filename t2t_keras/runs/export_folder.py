"""The folder of an export: where it is, and what it says of its model. Does not import TensorFlow."""

import dataclasses
import os
import pathlib

from t2t_keras.config import DecodeConfig
from t2t_keras.system.files import CONFIG, check_folder, read_json

SAVED_MODEL = "saved_model.pb"  # The file that makes a folder an export.
# Its folder of further files, and the JSON file there that describes the model.
EXTRA, DESCRIPTION = "assets.extra", "t2t_keras.json"


def export_in(folder: pathlib.Path) -> pathlib.Path | None:
    """Returns the folder if it is an export, else the newest version of an export in it, else `None`.

    A SavedModel is a program, and a run is data. So this is the only function that decides which of the two a folder
    holds.

    Raises:
        ValueError: the folder holds a run and an export.
    """
    if not os.path.isdir(folder):  # Unlike `Path.is_dir`, it takes names of any length, such as those of several runs.
        return None
    versions = [path.parent for path in folder.glob(f"*/{SAVED_MODEL}") if path.parent.name.isdecimal()]
    newest = max(versions, key=lambda path: int(path.name), default=None)
    export = folder if (folder / SAVED_MODEL).exists() else newest
    if export and (folder / CONFIG).exists():
        raise ValueError(
            f"Expected a run or an export in {folder}. Received both: {CONFIG}, and a SavedModel, which is a program, "
            f"in {export}. Move one of them to another folder."
        )
    return export


def check(folder: pathlib.Path) -> None:
    """Checks that a folder may hold exports.

    Raises:
        NotADirectoryError: it cannot be a folder.
        ValueError: it is the folder of a run, or an export itself, which would hide the versions in it.
    """
    check_folder(folder, "export_dir")
    if (folder / SAVED_MODEL).exists():
        above = folder.absolute().parent
        raise ValueError(
            f"Expected a folder for exports. Received: {folder}, which is an export itself. Give {above} as "
            "`export_dir`."
        )
    if (folder / CONFIG).exists():
        raise ValueError(
            f"Expected a folder for exports. Received: {folder}, which holds a run. Give another `export_dir`."
        )


def description(export: pathlib.Path) -> dict:
    """Returns what an export says of its model; an older one says nothing. Raises `ValueError` if that is damaged."""
    path = export / EXTRA / DESCRIPTION
    return read_json(path) if path.is_file() else {}


def search_of(described: dict) -> DecodeConfig:
    """Returns the search of an export with a given `description`, without options that only another version has."""
    names = {field.name for field in dataclasses.fields(DecodeConfig)}
    return DecodeConfig(**{name: value for name, value in described.get("decode", {}).items() if name in names})
