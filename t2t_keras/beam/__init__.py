"""Prepares, filters and translates with Apache Beam, which is imported at first use.

`Translate` is for a pipeline of one's own, `translate_files` for folders of text files.
"""

import importlib

_MODULES = {"Translate": "t2t_keras.beam.transform", "translate_files": "t2t_keras.beam.job"}
__all__ = sorted(_MODULES)


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module 't2t_keras.beam' has no attribute '{name}'")
    return getattr(importlib.import_module(_MODULES[name]), name)
