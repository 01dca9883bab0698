"""The model to translate with: runs, or an export, which have the same interface until they are loaded.

Both are opened and checked without TensorFlow, can be pickled, and describe themselves as JSON.
"""

import dataclasses
import functools
import pathlib
import reprlib
from collections.abc import Sequence

from t2t_keras.config import AVERAGE, DecodeConfig
from t2t_keras.decoding import process_environment
from t2t_keras.decoding.trained_model import TrainedModel, languages_of
from t2t_keras.runs.export_folder import DESCRIPTION, EXTRA, SAVED_MODEL, export_in
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system.files import describe, read_json
from t2t_keras.text import piece_file

# What a description may have, with the type of each value; those of lists are texts.
_KINDS = {"decode": dict, "pattern": str, "source_language": str, "target_language": str} | dict.fromkeys(
    ("tags", "languages", "pair"), list
)


@dataclasses.dataclass(frozen=True)
class SavedExport:
    """The export of a translator: a SavedModel, with the interface of a `TrainedModel`. Its options are fixed.

    Attributes:
        folder: of one version.
    """

    folder: pathlib.Path
    checkpoint, dtype, int8 = AVERAGE, "float32", False  # Of a run that reranks its translations.

    @functools.cached_property
    def description(self) -> dict:
        """What the export says of its model; an older one says nothing. Raises `ValueError` if that is damaged."""
        path = self.folder / EXTRA / DESCRIPTION
        found = read_json(path) if path.is_file() else {}
        for name, kind in _KINDS.items():
            value = found.get(name, kind())
            if not isinstance(value, kind) or kind is list and not all(isinstance(text, str) for text in value):
                expected = "a list of texts" if kind is list else f"of type {kind.__name__}"
                received = f"{reprlib.repr(value)}. Export the model again."
                raise ValueError(f"Expected {name} in {path} to be {expected}. Received: {received}")
        return found

    @property
    def search(self) -> DecodeConfig:
        """The options of the search, without those that only another version has."""
        names = {field.name for field in dataclasses.fields(DecodeConfig)}
        options = self.description.get("decode", {})
        return DecodeConfig(**{name: value for name, value in options.items() if name in names})

    @property
    def tags(self) -> list[str]:
        """The tags that source lines may begin with."""
        return self.description.get("tags", [])

    @property
    def pattern(self) -> str:
        """That of `TrainedModel`; an older export does not tell it."""
        return self.description.get("pattern", "")

    @property
    def inline_terms(self) -> bool:
        """Whether the model was trained on text with terms; see the option `train_terms`."""
        return bool(self.description.get("inline_terms"))

    @property
    def languages(self) -> dict[str, str]:
        """The languages to translate between by the names of their options; none unless the model is multilingual."""
        names = ("source_language", "target_language")
        return {name: self.description[name] for name in names if name in self.description}

    @property
    def codes(self) -> Sequence[str]:
        """The codes of the languages of a multilingual model."""
        return self.description.get("languages", [])

    @property
    def pair(self) -> tuple[str, ...]:
        """The codes of source and target of a model that is not multilingual; none if the export does not tell them."""
        return tuple(self.description.get("pair", ()))

    def absolute(self) -> "SavedExport":
        """Returns the same with an absolute path, for processes in other folders."""
        return SavedExport(self.folder.absolute())

    def identity(self) -> dict:
        """Describes as JSON what translations depend on."""
        return {"export": {"description": self.description, **describe(self.folder / SAVED_MODEL)}}

    def choose_environment(self) -> None:
        """Sets the environment that the model decodes in. TensorFlow must not be imported before."""
        process_environment.choose_threads()


def open_for_requests(folders: Sequence[pathlib.Path]) -> TrainedModel | SavedExport:
    """Opens a model whose requests name their languages, as `open_model` does: a multilingual one that was imported
    without languages has any of its own by default.
    """
    if len(folders) == 1 and export_in(folders[0]) is not None:
        return open_model(folders)
    run = SavedRun.open(folders[0])
    chosen, options = languages_of(run), {}
    for name in [name for name, language in chosen.items() if not language]:
        known = piece_file.unpack(run.subwords()[0]).languages
        taken = {*chosen.values(), *options.values()}
        options[name] = next((language for language in known if language not in taken), "")
    return open_model(folders, **options)


def open_model(folders: Sequence[pathlib.Path], **options) -> TrainedModel | SavedExport:
    """Opens the model of runs, with the options of `TrainedModel.open`, or the newest version of an export, with none.

    Raises:
        FileNotFoundError: a folder has no model.
        ValueError: an option is invalid, or given for an export; or a folder holds a run and an export.
    """
    export = export_in(folders[0]) if len(folders) == 1 else None
    if export is None:
        return TrainedModel.open(folders, **options)
    if options:
        received = ", ".join(f"`{name}={value}`" for name, value in options.items())
        raise ValueError(f"The options of the export {export} are fixed. Received: {received}. Leave them out.")
    return SavedExport(export)
