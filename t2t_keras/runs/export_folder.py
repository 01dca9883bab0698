"""The folder of an export: where it is, and its files. Does not import TensorFlow."""

import importlib.util
import os
import pathlib

from t2t_keras.system.files import CONFIG, check_folder

SAVED_MODEL = "saved_model.pb"  # The file that makes a folder an export.
# Its folder of further files, and the JSON file there that describes the model.
EXTRA, DESCRIPTION = "assets.extra", "t2t_keras.json"


def export_in(folder: pathlib.Path) -> pathlib.Path | None:
    """Returns the folder if it is an export, else the newest version of an export in it, else `None`. Raises
    `ValueError` if the folder holds a run too.

    A SavedModel is a program, and a run is data. So this is the only function that decides which of the two a folder
    holds.
    """
    if not os.path.isdir(folder):  # Unlike `Path.is_dir`, it takes names of any length, such as those of several runs.
        return None
    versions = [path.parent for path in folder.glob(f"*/{SAVED_MODEL}") if path.parent.name.isdecimal()]
    newest = max(versions, key=lambda path: int(path.name), default=None)
    export = folder if (folder / SAVED_MODEL).exists() else newest
    if export and (folder / CONFIG).exists():
        raise ValueError(
            f"{folder} holds both a run ({CONFIG}) and an export ({export}). Loading an export can run code: move one "
            "of them to another folder."
        )
    return export


def require_tf_text() -> None:
    """Raises `ValueError` if TF.Text is not installed, whose operations divide text in exports."""
    if not importlib.util.find_spec("tensorflow_text"):
        raise ValueError(
            "Exports need TF.Text, which is not installed: pip install tensorflow-text. Where it has no version for "
            "this system and TensorFlow, train, score and translate with the run itself, or export it on Linux."
        )


def check(folder: pathlib.Path) -> None:
    """Checks that exports can be made, and that a folder may hold them: it is no run, and no export, which would hide
    the versions in it.
    """
    require_tf_text()
    check_folder(folder, "export_dir")
    if (folder / SAVED_MODEL).exists():
        above = folder.absolute().parent
        raise ValueError(f"{folder} is an export itself, not a folder for exports. Give {above} as `export_dir`.")
    if (folder / CONFIG).exists():
        raise ValueError(f"{folder} holds a run, and cannot hold exports. Give another `export_dir`.")
