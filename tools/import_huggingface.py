"""Imports a model of the Hugging Face hub, or a folder in the format of transformers: Marian and OPUS-MT, M2M-100,
NLLB-200.

python tools/import_huggingface.py --from=Helsinki-NLP/opus-mt-en-de --model_dir=runs/opus
python tools/import_huggingface.py --from=models/nllb-200 --model_dir=runs/nllb \\
    --source_language=eng_Latn --target_language=deu_Latn
python tools/translate.py --model_dir=runs/nllb --target_language=fra_Latn < lines
"""

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import program

_FROM = flags.DEFINE_string(
    "from",
    None,
    "Folder with config.json and model.safetensors, or with Marian's own files, or name of a model on the hub.",
    required=True,
)
flags.DEFINE_string("model_dir", None, "Folder of the run, new or empty.", required=True)
for _side in ("source", "target"):
    _text = f"Default {_side} language of the run of a multilingual model, as a code such as eng_Latn."
    flags.DEFINE_string(f"{_side}_language", "", _text)
_NATIVE_POSITIONS = flags.DEFINE_boolean(
    "native_positions",
    False,
    "Give a Marian model the position encodings of Marian itself; those of transformers differ slightly. A model of "
    "Marian's own files always has them.",
)


def import_huggingface() -> None:
    from t2t_keras.interop import huggingface

    languages = {name: flags.FLAGS[name].value for name in ("source_language", "target_language")}
    huggingface.import_huggingface(
        _FROM.value, options.folder("model_dir"), **languages, native_positions=_NATIVE_POSITIONS.value
    )


def main() -> None:
    program.run(import_huggingface)


if __name__ == "__main__":
    main()
