"""Exports a trained model as a SavedModel for TensorFlow Serving: text in, text out. Or for CTranslate2.

python tools/export.py --model_dir=runs/x --export_dir=exports/x
"""

import pathlib

from absl import flags

from t2t_keras import flags as options
from t2t_keras.config import DecodeConfig

_MODEL_DIR = flags.DEFINE_string("model_dir", None, "The folder of a training run.", required=True)
_EXPORT_DIR = flags.DEFINE_string("export_dir", None, "The folder of all versions; a new one is written beside those there.", required=True)
_CHECKPOINT = flags.DEFINE_enum("checkpoint", "average", ["average", "best", "latest"], "Which weights.")
_DTYPE = flags.DEFINE_enum(
    "dtype", "float32", ["float32", "bfloat16"], "Of weights and arithmetic; bfloat16 where the server is fast at it."
)
_INT8 = flags.DEFINE_boolean("int8", False, "Store matrices in 8 bits a weight, a quarter of the size, for --dtype when loaded.")
_FORMAT = flags.DEFINE_enum(
    "format", "savedmodel", ["savedmodel", "ctranslate2"], "For TensorFlow Serving, or for CTranslate2's engine in C++."
)
_QUANTIZATION = flags.DEFINE_string("quantization", "", "With --format=ctranslate2, how it stores weights, such as int8; empty: float32.")
options.define(DecodeConfig)


def export() -> None:
    from t2t_keras import experiment

    model_dir, export_dir = (pathlib.Path(flag.value).expanduser() for flag in (_MODEL_DIR, _EXPORT_DIR))
    loading = {"dtype": _DTYPE.value, "int8": _INT8.value, **options.given(DecodeConfig)}
    if _FORMAT.value == "ctranslate2":
        from t2t_keras import ctranslate2_format

        if _DTYPE.value != "float32" or _INT8.value:
            raise ValueError(
                f"--format=ctranslate2 takes --quantization, not --dtype or --int8. Received: --dtype={_DTYPE.value} --int8={_INT8.value}."
            )
        ctranslate2_format.write(experiment.load(model_dir, _CHECKPOINT.value, **loading), export_dir, _QUANTIZATION.value)
        print(f"Exported to {export_dir}. Its README.md says how to use it.")
        return
    if _QUANTIZATION.value:
        raise ValueError(f"--quantization is for --format=ctranslate2. Received: --quantization={_QUANTIZATION.value}.")
    experiment.export(model_dir, export_dir, _CHECKPOINT.value, **loading)


def main() -> None:
    options.run(export)


if __name__ == "__main__":
    main()
