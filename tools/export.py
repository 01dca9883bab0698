"""Exports a trained model: a SavedModel for TensorFlow Serving, which translates text to text, or a CTranslate2 model.

python tools/export.py --model_dir=runs/x --export_dir=exports/x
"""

import pathlib

from absl import flags

from t2t_keras.cli import flags as options

_EXPORT_DIR = flags.DEFINE_string(
    "export_dir", None, "Folder of the model's versions, to which a new version is added. For CTranslate2: a new folder.", required=True
)
_FORMAT = flags.DEFINE_enum(
    "format",
    "savedmodel",
    ["savedmodel", "ctranslate2"],
    "savedmodel is for TensorFlow Serving; ctranslate2 for the C++ engine CTranslate2.",
)
_QUANTIZATION = flags.DEFINE_string("quantization", "", "Type of the weights with --format=ctranslate2, such as int8; empty: float32.")
options.define_trained_model()


def export() -> None:
    if "://" in _EXPORT_DIR.value:
        raise ValueError(f"Expected --export_dir to be a local folder. Received: {_EXPORT_DIR.value}. Export locally, then copy.")
    model, export_dir = options.trained_model(), pathlib.Path(_EXPORT_DIR.value).expanduser()
    if _FORMAT.value == "ctranslate2":
        if model["dtype"] != "float32" or model["int8"]:
            received = f"--dtype={model['dtype']} --int8={model['int8']}"
            raise ValueError(f"Expected --quantization instead of --dtype and --int8 with --format=ctranslate2. Received: {received}.")
    elif _QUANTIZATION.value:
        raise ValueError(
            f"Expected --format=ctranslate2 with --quantization. Received: --format=savedmodel --quantization={_QUANTIZATION.value}."
        )
    with options.without_noise():
        from t2t_keras.decoding.loading import load
        from t2t_keras.export import ctranslate2_format, savedmodel

        if _FORMAT.value == "ctranslate2":
            ctranslate2_format.write(load(**model), export_dir, _QUANTIZATION.value)
            print(f"Exported to {export_dir}. Its README.md explains how to use it.")
        else:
            savedmodel.export_run(export_dir, **model)


def main() -> None:
    options.run(export)


if __name__ == "__main__":
    main()
