"""`TrainedModel`: the model of a run, or of several that translate together, and how it translates.

It is opened and checked without TensorFlow, can be pickled, and describes itself as JSON.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Sequence

from t2t_keras.config import (
    AVERAGE,
    ENSEMBLE_MEANS,
    TRANSLATING_DTYPES,
    DecodeConfig,
    check_effects,
    check_ensemble,
    check_names,
)
from t2t_keras.decoding import process_environment
from t2t_keras.runs import data_folder
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.text import piece_file, sentencepiece_model


def languages_of(run: SavedRun) -> dict[str, str]:
    """Returns the languages of a multilingual run by the names of their options; none of another run."""
    contents = dict(zip(("target_language", "source_language"), run.subwords(), strict=False))
    languages = {
        name: piece_file.unpack(content).language
        for name, content in contents.items()
        if content.startswith(piece_file.HEAD)
    }
    return {name: language for name, language in languages.items() if language is not None}


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """The model of one run, or the ensemble of several; see `model.ensemble`.

    Attributes:
        runs: the runs. TF32 and tags are those of the first one.
        search: options of the search, those of the first run unless others are given.
        checkpoint: `average`, `best`, `latest` or `ema` weights, or the number of an update.
        dtype: of weights and arithmetic, float32 or bfloat16.
        int8: whether matrices are kept in 8 bits.
        ensemble_weights: a positive number for each run; empty for equal ones.
        ensemble_mean: of "probabilities" or of "logs".
        source_language, target_language: codes of a multilingual model; empty for those of the runs.
    """

    runs: tuple[SavedRun, ...]
    search: DecodeConfig
    checkpoint: str = AVERAGE
    dtype: str = TRANSLATING_DTYPES[0]
    int8: bool = False
    ensemble_weights: tuple[float, ...] = ()
    ensemble_mean: str = ENSEMBLE_MEANS[0]
    source_language: str = ""
    target_language: str = ""

    @classmethod
    def open(
        cls, folders: str | os.PathLike | Sequence[str | os.PathLike], checkpoint: str = AVERAGE, **options
    ) -> "TrainedModel":
        """Opens the runs in one folder or in several.

        Args:
            folders: the folders.
            checkpoint: see `TrainedModel`.
            options: other attributes of `TrainedModel`, and fields of `DecodeConfig`, which replace those of the first
                run.

        Raises:
            FileNotFoundError: a folder is not a run, or lacks its sub-words.
            TypeError: an option is unknown.
            ValueError: a file of a run is damaged, or an option is invalid.
        """
        paths = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
        if not paths:
            raise ValueError("Expected the folder of a run, or several. Received none.")
        runs = tuple(SavedRun.open(pathlib.Path(path)) for path in paths)
        names = {field.name for field in dataclasses.fields(cls)}
        of_search = {name: value for name, value in options.items() if name not in names}
        facts = {field.name: field.metadata for field in dataclasses.fields(DecodeConfig)}
        check_names(options, (names | facts.keys()) - {"runs", "search", "checkpoint"})
        search = dataclasses.replace(runs[0].search, **of_search)
        values = vars(search)
        asked = [name for name in of_search if values[name] and values[name] != getattr(runs[0].search, name)]
        check_effects(facts, values, asked, runs[0].task)
        if "ensemble_mean" in options and len(runs) == 1:
            raise ValueError(f"`ensemble_mean` needs several runs. Received: one, {runs[0].folder}.")
        own = {name: value for name, value in options.items() if name in names}
        own["ensemble_weights"] = tuple(own.get("ensemble_weights", ()))
        return cls(runs, search, checkpoint, **own)

    def __post_init__(self):
        check_ensemble(len(self.runs), self.ensemble_weights, self.ensemble_mean)
        if self.dtype not in TRANSLATING_DTYPES:
            raise ValueError(f"Expected `dtype` to be one of {', '.join(TRANSLATING_DTYPES)}. Received: {self.dtype}.")
        if not isinstance(self.int8, bool):
            raise ValueError(f"Expected `int8` to be true or false. Received: int8={self.int8!r:.80}.")
        for run in self.runs:
            run.check_checkpoint(self.checkpoint)
            piece_file.with_languages(run.subwords(), self.source_language, self.target_language)

    @functools.cached_property
    def tags(self) -> list[str]:
        """The tags that source lines may begin with: those of `source_tag`, or of a Marian model of several
        languages.
        """
        run = self.runs[0]
        *_, source = run.subwords()
        if run.data.source_tag or not source.startswith(piece_file.HEAD):
            return run.data.tags
        pieces = piece_file.unpack(source)
        tags = sorted(filter(piece_file.TAG.fullmatch, pieces.pieces))
        return tags if pieces.language is None and len(tags) > 1 else run.data.tags

    @property
    def needed_tags(self) -> list[str]:
        """The tags, one of which must begin each source line; none if a line may lack a tag."""
        tags = list(dict.fromkeys(self.tags))
        return tags if all(tags) else []

    @property
    def pattern(self) -> str:
        """The regular expression of text to keep that the sub-words have placeholders for, or an empty text."""
        return sentencepiece_model.pattern_of(self.runs[0].subwords()[0])

    @property
    def inline_terms(self) -> bool:
        """Whether the runs were trained on text with terms; see the option `train_terms`."""
        return all(run.data.train_terms for run in self.runs)

    @property
    def languages(self) -> dict[str, str]:
        """The languages to translate between by the names of their options; none unless the model is multilingual."""
        given = {"source_language": self.source_language, "target_language": self.target_language}
        return languages_of(self.runs[0]) | {name: language for name, language in given.items() if language}

    @property
    def codes(self) -> Sequence[str]:
        """The codes of the languages of a multilingual model."""
        content = self.runs[0].subwords()[0]
        return piece_file.unpack(content).languages if content.startswith(piece_file.HEAD) else ()

    @property
    def pair(self) -> tuple[str, ...]:
        """The codes of source and target of a model that is not multilingual; none if its data do not tell them."""
        return () if self.codes else data_folder.languages(self.runs[0].corpus)

    def absolute(self) -> "TrainedModel":
        """Returns the same with absolute paths, for processes in other folders."""
        runs = tuple(dataclasses.replace(run, folder=run.folder.absolute()) for run in self.runs)
        return dataclasses.replace(self, runs=runs)

    def identity(self) -> dict:
        """Describes as JSON what translations depend on: every option by its name, and the runs."""
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del options["runs"], options["search"]
        runs = [run.identity(self.checkpoint) for run in self.runs]
        return {**options, **dataclasses.asdict(self.search), "model_dir": runs}

    def choose_environment(self) -> None:
        """Sets the environment that the model decodes in. TensorFlow must not be imported before."""
        process_environment.choose([run.model for run in self.runs], self.dtype, self.int8)

    def load(self, **hooks):
        """Returns the model's `Translator`, with the `scorers` and `selector` of `hooks`; see `loading.load`."""
        from t2t_keras.decoding.loading import load_with_states

        return load_with_states(self, **hooks)[0]
