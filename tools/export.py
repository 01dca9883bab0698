"""Exports a trained model: a SavedModel for TensorFlow Serving, which translates text to text; or for CTranslate2 or
transformers.

python tools/export.py --model_dir=runs/x --export_dir=exports/x
"""

import pathlib

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import program
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
    ["savedmodel", "ctranslate2", "huggingface"],
    "savedmodel is for TensorFlow Serving; ctranslate2 for the C++ engine CTranslate2; huggingface for MarianMTModel "
    "of transformers.",
)
_QUANTIZATION = flags.DEFINE_string(
    "quantization", "", "Type of the weights with --format=ctranslate2, such as int8; empty: float32."
)
_SCORES = flags.DEFINE_list(
    "scores",
    [],
    "For the model card with --format=huggingface: files with what evaluate.py --json printed, named after their test "
    "sets.",
)
options.needs("format=ctranslate2", "quantization")
options.needs("format=huggingface", "scores")
options.define_trained_model()


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
        check_new(export_dir, "export_dir")
    if _FORMAT.value != "savedmodel" and (model.dtype != "float32" or model.int8):
        advice = "Use --quantization." if _FORMAT.value == "ctranslate2" else "Leave them out."
        raise ValueError(
            f"--dtype and --int8 do not apply to --format={_FORMAT.value}. Received: --dtype={model.dtype} "
            f"--int8={model.int8}. {advice}"
        )
    if _FORMAT.value == "huggingface":
        _export_for_transformers(export_dir, model)
        return
    with program.without_noise():
        from t2t_keras.serving import ctranslate2_format, savedmodel

        if _FORMAT.value == "ctranslate2":
            ctranslate2_format.write(model.load(), export_dir, _QUANTIZATION.value)
            print(f"Exported to {export_dir}. Its README.md explains how to use it.")
        else:
            savedmodel.export_run(export_dir, model)


def _export_for_transformers(export_dir: pathlib.Path, model: TrainedModel) -> None:
    """Exports without TensorFlow."""
    from t2t_keras.interop.marian_export import export_run

    if len(model.runs) > 1:
        raise ValueError(f"--format=huggingface takes one run. Received: {len(model.runs)}.")
    export_run(model.runs[0], export_dir, model.checkpoint, model.search, scores=_SCORES.value)
    print(f"Exported to {export_dir}. Its README.md is the model card.")


def main() -> None:
    program.run(export)


if __name__ == "__main__":
    main()
