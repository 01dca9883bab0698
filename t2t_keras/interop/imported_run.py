"""Writes an imported model as the folder of a run."""

import os
import pathlib

from t2t_keras.runs import checkpoint, run_options
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system.files import SOURCE_SUBWORDS, SUBWORDS, making_folder

IMPORT, OF_HUB = "import of ", "the hub's "  # What a run writes before the model that its options are from.
_STATE = {"step": 0, "best": 0.0, "best_step": 0}  # Of training, which begins.


def origin(source: str | os.PathLike, of_hub: bool = False) -> str:
    """Returns where options come from, as `run_options.Options.sources` has it."""
    name = str(source) if str(source).isprintable() else ascii(str(source))
    return IMPORT + OF_HUB * of_hub + name


def write(model_dir: pathlib.Path, options: run_options.Options, target: bytes, source: bytes, model) -> None:
    """Writes the folder, which is there whole or not at all. `target` and `source` are contents of the files of
    sub-words, `model` has the weights as `checkpoint.write` takes them.
    """
    with making_folder(model_dir) as unfinished:
        paths = unfinished / SUBWORDS, unfinished / SOURCE_SUBWORDS
        for path, subwords in zip(paths, (target, source), strict=True):
            path.write_bytes(subwords)
        SavedRun.write(unfinished, options, paths[0], None, paths[1])
        checkpoint.write(checkpoint.path_of(unfinished, 0), model, None, _STATE)
