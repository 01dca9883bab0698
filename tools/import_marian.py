"""Imports a Marian or OPUS-MT model: another name of import_huggingface.py.

python tools/import_marian.py --from=Helsinki-NLP/opus-mt-en-de --model_dir=runs/opus
python tools/import_marian.py --from=models/opus --model_dir=runs/opus  # With decoder.yml and an npz file.
python tools/translate.py --model_dir=runs/opus < lines
"""

import pathlib
import runpy


def main() -> None:
    runpy.run_path(str(pathlib.Path(__file__).with_name("import_huggingface.py")), run_name="__main__")


if __name__ == "__main__":
    main()
