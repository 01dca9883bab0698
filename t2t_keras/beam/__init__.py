"""Translates with Apache Beam: `Translate` in a pipeline of one's own, and `translate_files` for folders of text files."""

from t2t_keras.beam.job import translate_files
from t2t_keras.beam.transform import Translate

__all__ = ["Translate", "translate_files"]
