"""Exports a trained model: a SavedModel for TensorFlow Serving, which translates text to text; or for CTranslate2,
Argos Translate or transformers.

python tools/export.py --model_dir=runs/x --export_dir=exports/x
"""

import dataclasses
import pathlib

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import messages, program
from t2t_keras.config import OF_DEVICES, DecodeConfig
from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.runs import export_folder
from t2t_keras.system.files import check_new

_EXPORT_DIR = flags.DEFINE_string(
    "export_dir",
    None,
    "Folder of the model's versions, to which a new version is added. For other formats: a new folder.",
    required=True,
)
_FORMAT = flags.DEFINE_enum(
    "format",
    "savedmodel",
    ["savedmodel", "ctranslate2", "argos", "huggingface"],
    "savedmodel is for TensorFlow Serving; ctranslate2 for the C++ engine CTranslate2; argos for Argos Translate and "
    "LibreTranslate; huggingface for MarianMTModel of transformers.",
)
_QUANTIZATION = flags.DEFINE_string(
    "quantization", "", "Type of the weights with --format=ctranslate2 or argos, such as int8; empty: float32."
)
_FROM_NAME = flags.DEFINE_string(
    "from_name", "", "Name of the source's language with --format=argos, as people read it, such as English."
)
_TO_NAME = flags.DEFINE_string("to_name", "", "Name of the target's language, likewise.")
_FROM_CODE = flags.DEFINE_string(
    "from_code",
    "",
    "Code of the source's language with --format=argos; empty: the ending of the training text's name, such as .en.",
)
_TO_CODE = flags.DEFINE_string("to_code", "", "Code of the target's language, likewise.")
_SCORES = flags.DEFINE_list(
    "scores",
    [],
    "For the model card with --format=huggingface: files with what `t2t-evaluate --json` printed, named after their "
    "test sets.",
)
options.needs("format=ctranslate2 format=argos", "quantization")
options.needs("format=argos", "from_name", "to_name", "from_code", "to_code")
options.needs("format=huggingface", "scores")
options.define_trained_model()
# A package of Argos Translate has no options of the search.
options.excludes("format=argos", *(field.name for field in dataclasses.fields(DecodeConfig)))
# The programs that read these divide batches themselves.
options.excludes("format=ctranslate2 format=huggingface", *OF_DEVICES)


def export() -> None:
    export_dir = options.folder("export_dir")
    if "://" in _EXPORT_DIR.value:
        raise ValueError(
            f"Expected --export_dir to be a local folder. Received: {_EXPORT_DIR.value}. Export locally, then copy."
        )
    model = options.trained_model()
    if _FORMAT.value == "savedmodel":
        export_folder.check(export_dir)
    else:
        _check_foreign(export_dir, model)
    if _FORMAT.value == "huggingface":
        _export_for_transformers(export_dir, model)
    elif _FORMAT.value == "argos":
        _export_for_argos(export_dir, model)
    else:
        with program.without_noise():
            from t2t_keras.serving import ctranslate2_format, savedmodel

            if _FORMAT.value == "ctranslate2":
                ctranslate2_format.write(model.load(), export_dir, _QUANTIZATION.value)
                print(f"Exported to {export_dir}. Its README.md explains how to use it.")
            else:
                savedmodel.export_run(export_dir, model)
                print(f"Translate with: {messages.command('translate', export_dir)} < text")


def _check_foreign(export_dir: pathlib.Path, model: TrainedModel) -> None:
    """Raises `ValueError` for what none of the other formats has."""
    check_new(export_dir, "export_dir")
    if model.dtype != "float32" or model.int8:
        advice = "Leave them out." if _FORMAT.value == "huggingface" else "Use --quantization."
        raise ValueError(
            f"--dtype and --int8 do not apply to --format={_FORMAT.value}. Received: --dtype={model.dtype} "
            f"--int8={model.int8}. {advice}"
        )
    if len(model.runs) > 1:
        raise ValueError(f"--format={_FORMAT.value} takes one run. Received: {len(model.runs)}.")


def _export_for_argos(export_dir: pathlib.Path, model: TrainedModel) -> None:
    """Checks the run and its languages before TensorFlow loads."""
    from t2t_keras.serving import argos_format

    names = _FROM_NAME.value, _TO_NAME.value, _FROM_CODE.value, _TO_CODE.value
    metadata = argos_format.metadata(model.runs[0], *names)
    with program.without_noise():
        path = argos_format.write(model.load(), export_dir, metadata, _QUANTIZATION.value)
    print("Exported {from_name} ({from_code}) to {to_name} ({to_code}).".format(**metadata), f"The package is {path}.")


def _export_for_transformers(export_dir: pathlib.Path, model: TrainedModel) -> None:
    """Exports without TensorFlow."""
    from t2t_keras.interop.marian_export import export_run

    export_run(model.runs[0], export_dir, model.checkpoint, model.search, scores=_SCORES.value)
    print(f"Exported to {export_dir}. Its README.md is the model card.")


def main() -> None:
    program.run(export)


if __name__ == "__main__":
    main()
