"""Exports a trained model as a SavedModel for TensorFlow Serving: text in, text out. Or for CTranslate2.

python tools/export.py --model_dir=runs/x --export_dir=exports/x
"""

import pathlib

from absl import flags

from t2t_keras.cli import flags as options

_EXPORT_DIR = flags.DEFINE_string(
    "export_dir", None, "The folder of all versions; a new one is written beside those there. For CTranslate2: a new folder.", required=True
)
_FORMAT = flags.DEFINE_enum(
    "format", "savedmodel", ["savedmodel", "ctranslate2"], "For TensorFlow Serving, or for CTranslate2's engine in C++."
)
_QUANTIZATION = flags.DEFINE_string("quantization", "", "With --format=ctranslate2, how it stores weights, such as int8; empty: float32.")
options.define_trained_model()


def export() -> None:
    if "://" in _EXPORT_DIR.value:
        raise ValueError(f"Expected --export_dir on this machine; copy it from there. Received: {_EXPORT_DIR.value}.")
    model, export_dir = options.trained_model(), pathlib.Path(_EXPORT_DIR.value).expanduser()
    if _FORMAT.value == "ctranslate2":
        if model["dtype"] != "float32" or model["int8"]:
            received = f"--dtype={model['dtype']} --int8={model['int8']}"
            raise ValueError(f"--format=ctranslate2 takes --quantization, not --dtype or --int8. Received: {received}.")
    elif _QUANTIZATION.value:
        raise ValueError(f"--quantization is for --format=ctranslate2. Received: --quantization={_QUANTIZATION.value}.")
    with options.without_noise():
        from t2t_keras.decoding.loading import load
        from t2t_keras.export import ctranslate2_format, savedmodel

        if _FORMAT.value == "ctranslate2":
            ctranslate2_format.write(load(**model), export_dir, _QUANTIZATION.value)
            print(f"Exported to {export_dir}. Its README.md says how to use it.")
        else:
            savedmodel.export_run(export_dir, **model)


def main() -> None:
    options.run(export)


if __name__ == "__main__":
    main()
