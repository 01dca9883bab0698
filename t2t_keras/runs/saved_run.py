"""`SavedRun`: a run as its folder describes it, opened once. Does not import TensorFlow.

`config.json` has a version, the architecture (transformer, if it is not there), the four groups of options, the data
folder, where options come from, and the size and SHA-256 of the checkpoints of the parent, of the sub-words, of those
of the source if it has its own, and of the index of the training records. A folder with this file is a run's folder. A
folder with other files of the same names is refused.
"""

import dataclasses
import functools
import json
import os
import pathlib
import reprlib

from t2t_keras.config import EMA, TEXTS, DataConfig, DecodeConfig, TrainConfig, check_fields
from t2t_keras.runs import checkpoint as checkpoints
from t2t_keras.runs import data_folder, registry
from t2t_keras.runs.export_folder import SAVED_MODEL, export_in
from t2t_keras.runs.run_options import ARCHITECTURE, OF_RUN, TRANSFORMER, Options, groups_of, option_names
from t2t_keras.system.files import (
    CONFIG,
    DATA,
    SOURCE_SUBWORDS,
    SUBWORDS,
    check_no_links,
    describe,
    read_json,
    write_whole,
)

LOGS, NOT_FINITE = "logs", "not_finite"
CURVES = ("curves.png", "curves.csv")
EMBEDDINGS = "embeddings.txt"  # The sub-words of a run whose embeddings started as word vectors.
VERSION = 1
MAX_SUBWORDS = 2**28  # Bytes of a file; those of a model of a million sub-words are about 2**24.
_KEYS = {
    *("version", ARCHITECTURE, "model", "train", "decode", "data", "data_dir", "parent", "sources", "records"),
    *("subwords", "source_subwords"),
}


@dataclasses.dataclass(frozen=True)
class SavedRun:
    """A run as its folder describes it. Whoever has the path opens the run once, and hands it on.

    Each group of options is checked when it is first used; a group that is unknown or invalid raises `ValueError`.
    `written` is the content of the folder's `config.json`, and `stamp` shows whether the file has changed since.
    """

    folder: pathlib.Path
    written: dict = dataclasses.field(repr=False)
    stamp: tuple | None = dataclasses.field(default=None, repr=False, compare=False)

    @classmethod
    def find(cls, folder: pathlib.Path) -> "SavedRun | None":
        """Opens the run in a folder, or returns `None` for a folder that can become one: it has no files with the names
        of a run's files, and no export.
        """
        path = folder / CONFIG
        names = (SUBWORDS, SOURCE_SUBWORDS, EMBEDDINGS, checkpoints.FOLDER, LOGS, *CURVES)
        present = [name for name in names if (folder / name).exists()]
        if export := export_in(folder):
            present.append(f"the export {SAVED_MODEL if export == folder else export.name}")
        if not path.exists():  # A run writes it before the others.
            if present:
                advice = "the `model_dir` of the run that was exported" if export else "another `model_dir`"
                raise ValueError(
                    f"{folder} holds {', '.join(present)} and no {CONFIG}: it is not a run. Give {advice}."
                )
            return None
        stamp = _stamp(path)  # Before the file is read: a change meanwhile is noticed later.
        try:
            written = read_json(path)
        except ValueError as error:
            raise ValueError(f"{error} Restore a copy of it, or give another `model_dir`.") from error
        version = written.get("version", 0)  # 0: older than version numbers.
        if "model" not in written or type(version) is not int:
            raise ValueError(f"{path} is not the {CONFIG} of a run. Give another `model_dir`.")
        if version > VERSION or not set(written) <= _KEYS:
            raise ValueError(f"{path} was written by another version of this program. Use that one.")
        return cls(folder, written, stamp)

    @classmethod
    def open(cls, folder: pathlib.Path) -> "SavedRun":
        """Opens the run in a folder. Raises `FileNotFoundError` if there is none."""
        if run := cls.find(folder):
            return run
        raise FileNotFoundError(
            f"{folder} is not a model folder: it has no {CONFIG}. Give the `model_dir` of a training run."
        )

    @classmethod
    def write(
        cls,
        folder: pathlib.Path,
        options: Options,
        subwords: pathlib.Path,
        records: pathlib.Path | None,
        source_subwords: pathlib.Path | None = None,
        before: "SavedRun | None" = None,
    ) -> "SavedRun":
        """Writes the options and sub-words of a run into its folder.

        Args:
            options: the options. The checkpoints of their `parent` are recorded until the run has some of its own.
            subwords, source_subwords: files of the sub-words, and of the source's own ones; they are copied.
            records: index of the training records, which identifies the training data; `None` for a model that was
                trained elsewhere.
            before: the run that is in the folder, if it has one.
        """
        described = {"data_dir": options.data_dir, "subwords": describe(subwords)}
        files = {"source_subwords": source_subwords, "records": records}
        described |= {name: describe(path) for name, path in files.items() if path}
        parent, train = before.parent if before and checkpoints.kept(folder) else None, options.train
        if train.starts_from and not parent:
            parent = {"checkpoints": checkpoints.identity(pathlib.Path(train.starts_from), train.parent_checkpoint)}
        names = option_names(options.architecture) | {ARCHITECTURE, "data_dir"}
        sources = {
            name: source.removeprefix(OF_RUN) for name, source in sorted(options.sources.items()) if name in names
        }
        written = {
            "version": VERSION,
            ARCHITECTURE: options.architecture,
            **{name: dataclasses.asdict(group) for name, group in options.groups.items()},
            **described,
            **({"parent": parent} if parent else {}),
            "sources": {name: source for name, source in sources.items() if source != "default"},
        }
        content = json.dumps(written, indent=2)
        write_whole(folder / CONFIG, f"{content}\n".encode())
        write_whole(folder / SUBWORDS, subwords.read_bytes())
        if source_subwords:
            write_whole(folder / SOURCE_SUBWORDS, source_subwords.read_bytes())
        return cls(folder, json.loads(content), _stamp(folder / CONFIG))

    @property
    def path(self) -> pathlib.Path:
        """The file that describes the run."""
        return self.folder / CONFIG

    @property
    def is_current(self) -> bool:
        """Whether no process has written the run since it was opened."""
        return self.stamp == _stamp(self.path)

    @functools.cached_property
    def architecture(self) -> str:
        """The name of the architecture. Raises `ValueError` if it is not registered."""
        name = self.written.get(ARCHITECTURE, TRANSFORMER)
        if name != TRANSFORMER and (not isinstance(name, str) or name not in registry.architectures()):
            raise ValueError(
                f"Expected '{ARCHITECTURE}' in {self.path} to be one of {', '.join(registry.architectures())}. "
                f"Received: {reprlib.repr(name)}. Install the package that registers it."
            )
        return name

    @property
    def task(self):
        """The `task.Task` of the architecture."""
        return registry.task_of(self.architecture)

    @functools.cached_property
    def model(self):
        """The options of the model, such as `ModelConfig`."""
        return self._group("model")

    @functools.cached_property
    def train(self) -> TrainConfig:
        """The options of training."""
        return self._group("train")

    @functools.cached_property
    def search(self) -> DecodeConfig:
        """The options of the search."""
        return self._group("decode")

    @functools.cached_property
    def data(self) -> DataConfig:
        """The options of the text."""
        return self._group("data")

    @functools.cached_property
    def corpus(self) -> DataConfig:
        """The options of the text, which a resumed run may have in its data folder alone."""
        folder, options = self.folder / DATA, self.options
        if options.data.names_corpus or options.data_dir or not (folder / data_folder.CORPUS).exists():
            return options.data
        recorded = data_folder.recorded_options(folder)
        # NAME BYTES SHA-256.
        texts = {name: ",".join(str(line).rsplit(" ", 2)[0] for line in recorded.get(name, [])) for name in TEXTS}
        # Tags are of the names in the command, of which one may stand for several files.
        return dataclasses.replace(data_folder.prepared_with(folder), source_tag="", **texts)

    @functools.cached_property
    def options(self) -> Options:
        """All options, with the data folder and where they come from."""
        data_dir = self.written.get("data_dir", "")
        if not isinstance(data_dir, str):
            raise ValueError(f"Expected 'data_dir' in {self.path} to be a path. Received: {data_dir}.")
        unknown = dict.fromkeys(option_names(self.architecture) | {ARCHITECTURE, "data_dir"}, "unknown")
        sources = self.written.get("sources", unknown)  # Earlier versions did not write them.
        values = sources.values() if isinstance(sources, dict) else [None]
        if not all(isinstance(source, str) and source.isprintable() for source in values):
            raise ValueError(
                f"Expected 'sources' in {self.path} to be text by option. Received: {reprlib.repr(sources)}."
            )
        return Options(self.model, self.train, self.search, self.data, data_dir, self.architecture, sources)

    @property
    def parent(self):
        """The identity of the checkpoints that the run started from, a dictionary if it has a parent. Not checked."""
        return self.written.get("parent")

    @property
    def has_source_subwords(self) -> bool:
        """Whether the source has sub-words of its own."""
        return "source_subwords" in self.written

    def subwords(self) -> tuple[bytes, ...]:
        """Reads the sub-words, and those of the source if it has its own: the arguments of `vocabulary.load_sides`. A
        file that is not the one that the run was trained with is an error.
        """
        files = {"subwords": SUBWORDS} | ({"source_subwords": SOURCE_SUBWORDS} if self.has_source_subwords else {})
        return tuple(self._subwords(key, self.folder / name) for key, name in files.items())

    def identity(self, checkpoint: str) -> dict:
        """Describes as JSON what the run computes with a checkpoint: the hashes of its weights, and its options."""
        return {"weights": checkpoints.identity(self.folder, checkpoint), "config": self.written}

    def check_checkpoint(self, checkpoint: str) -> None:
        """Raises `ValueError` if the checkpoint is the moving average of the weights, and the run has none."""
        if checkpoint == EMA and not self.train.ema_decay:
            raise ValueError(
                f"Expected a run with a moving average of its weights. Received: {self.folder}, trained with "
                f"ema_decay={self.train.ema_decay:g}. Choose another `checkpoint`."
            )

    def check_data(
        self, subwords: pathlib.Path, records: pathlib.Path, source_subwords: pathlib.Path | None = None
    ) -> None:
        """Checks that the sub-words and the index of the training records are those that the run was trained on."""
        names = [SUBWORDS, *([SOURCE_SUBWORDS] if self.has_source_subwords else [])]
        advice = f"start a new run with `parent={self.folder}`, in another `model_dir`."
        received = [describe(path) for path in (subwords, source_subwords) if path]
        if received != [describe(self.folder / name) for name in names]:
            raise ValueError(
                f"{self.folder} holds a model with other sub-words than {subwords.parent}. To train it on other text, "
                f"{advice}"
            )
        expected = self.written.get("records")
        if expected is not None and describe(records) != expected:
            raise ValueError(
                f"{self.folder} was trained on other records than those in {subwords.parent}. To train its model on "
                f"them, {advice}"
            )

    def _subwords(self, key: str, path: pathlib.Path) -> bytes:
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing. Restore it: a model cannot be used without its sub-words.")
        if (size := path.stat().st_size) > MAX_SUBWORDS:
            raise ValueError(f"Expected sub-words of at most {MAX_SUBWORDS:,} bytes. Received: {path} of {size:,}.")
        expected = self.written.get(key)
        if expected is not None and (received := describe(path)) != expected:
            raise ValueError(
                f"{path} is not what {self.folder} was trained with. Expected: {expected}. Received: {received}. "
                "Restore that file."
            )
        return path.read_bytes()

    def _group(self, name: str):
        """Reads a group of options. Options that are missing have their defaults."""
        group, options = groups_of(self.architecture)[name], self.written.get(name, {})
        if not isinstance(options, dict):
            raise ValueError(f"Expected '{name}' in {self.path} to be options. Received: {reprlib.repr(options)}.")
        if unknown := sorted(set(options) - {field.name for field in dataclasses.fields(group)}):
            raise ValueError(
                f"Expected the '{name}' options of this version in {self.path}. Unknown: {reprlib.repr(unknown)}. "
                "Use the version that wrote the file."
            )
        try:
            values = group(**options)
            check_fields(values)
        except ValueError as error:
            raise ValueError(f"{self.path} is not valid: {error}") from error
        return values


def _stamp(path: pathlib.Path) -> tuple | None:
    """Returns what changes whenever a run writes its `config.json`, which each writing replaces by a new file."""
    if not path.exists():
        return None
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def check_before_writing(folder: pathlib.Path) -> None:
    """Checks that what a run writes stays in its folder and that its folders can be written to, and removes what a
    killed run has left; see `files.check_no_links`.

    The folder itself may be a link, and the user's own files in it may be links. Its data are checked under their own
    lock.
    """
    folders, names = (LOGS, NOT_FINITE, checkpoints.FOLDER), (CONFIG, SUBWORDS, SOURCE_SUBWORDS, EMBEDDINGS, *CURVES)
    for path in (folder / name for name in folders):
        if path.exists() and not path.is_dir():
            raise NotADirectoryError(f"{path} is not a folder. Move it away, or give another `model_dir`.")
        if path.exists() and not os.access(path, os.W_OK | os.X_OK):  # Else the first checkpoint would say so.
            raise PermissionError(
                f"{path} cannot be written to. Give permission to write there, or another `model_dir`."
            )
    check_no_links(*(folder / name for name in folders + names))
