"""Imports a Marian or OPUS-MT model: a folder in the format of transformers, or a model of the Hugging Face hub, becomes a run.

python tools/import_marian.py --from=Helsinki-NLP/opus-mt-en-de --model_dir=runs/opus
python tools/translate.py --model_dir=runs/opus < lines
"""

from absl import flags

from t2t_keras.cli import flags as options

_FROM = flags.DEFINE_string("from", None, "Folder with config.json and model.safetensors, or name of a model on the hub.", required=True)
_MODEL_DIR = flags.DEFINE_string("model_dir", None, "Folder of the run, new or empty.", required=True)


def import_marian() -> None:
    from t2t_keras.interop import marian

    if not _MODEL_DIR.value:
        raise ValueError("Expected a folder as --model_dir. Received none.")
    marian.import_marian(_FROM.value, _MODEL_DIR.value)


def main() -> None:
    options.run(import_marian)


if __name__ == "__main__":
    main()
