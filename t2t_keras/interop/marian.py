"""Imports a Marian or OPUS-MT model; see `huggingface`."""

import os

from t2t_keras.interop.huggingface import import_huggingface


def import_marian(source: str | os.PathLike, model_dir: str | os.PathLike, *, native_positions: bool = False) -> None:
    """Imports a Marian model, as `import_huggingface` does.

    Args:
        source, model_dir, native_positions: see `huggingface.import_huggingface`.
    """
    import_huggingface(source, model_dir, native_positions=native_positions)
