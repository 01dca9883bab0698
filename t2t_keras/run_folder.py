"""What describes a run in its folder, and so what a resumed run starts with. It needs no TensorFlow.

`config.json` has a version, the four groups of options, the data folder, and what tells the run's sub-words and training records from
others: their size and SHA-256. A run's folder is one that has such a file; a folder that holds others' files is refused.
"""

import dataclasses
import os
import pathlib

from t2t_keras import checkpoint
from t2t_keras.config import TEXTS, DataConfig, DecodeConfig, ModelConfig, TrainConfig, from_json, to_json
from t2t_keras.files import describe, read_json, write_whole

CONFIG, SUBWORDS, DATA, LOGS = "config.json", "subwords.model", "data", "logs"
VERSION = 1
GROUPS = {"model": ModelConfig, "train": TrainConfig, "decode": DecodeConfig, "data": DataConfig}
# What decides the weights' shapes, the order of the data, and what the best validation so far means; all else may change.
# Text files are compared by what is in them, see `prepare.check_folder`.
_FIXED = {
    *(field.name for field in dataclasses.fields(ModelConfig)),
    *("seed", "batch_tokens", "buckets_per_update", "best_metric"),
    *({field.name for field in dataclasses.fields(DataConfig)} - set(TEXTS)),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """All that a run is started with."""

    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()
    data: DataConfig = DataConfig()  # If it names no corpus: what the run has, or what the data folder was prepared from.
    data_dir: str = ""  # Absolute; empty: `data` in the run's folder.
    # Where values come from, by option: "command line", "flagfile NAME" or "run"; "default" where an option is missing.
    sources: dict[str, str] = dataclasses.field(default_factory=dict, compare=False)

    def data_folder(self, model_dir: pathlib.Path) -> pathlib.Path:
        return pathlib.Path(self.data_dir) if self.data_dir else model_dir / DATA

    def table(self) -> str:
        """Every option with its value and where that comes from, as a Markdown table."""
        rows = [("option", "value", "from"), ("-" * 6, "-" * 5, "-" * 4)]
        for name in GROUPS:
            rows += [(option, str(value), self.sources.get(option, "default")) for option, value in vars(getattr(self, name)).items()]
        rows.append(("data_dir", self.data_dir, self.sources.get("data_dir", "default")))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |" for row in rows)


def check(model_dir: pathlib.Path) -> bool:
    """Whether a folder is a run's; if not, there is nothing in it that a run would take for its own.

    Raises:
        ValueError: the folder holds somebody else's files, or those of a newer version.
    """
    path = model_dir / CONFIG
    there = [name for name in (SUBWORDS, checkpoint.FOLDER, LOGS) if (model_dir / name).exists()]
    if not path.exists():  # Which is written before those.
        if there:
            raise ValueError(f"{model_dir} holds {', '.join(there)} and no {CONFIG}: it is not a run. Give another --model_dir.")
        return False
    written = read_json(path)
    version = written.get("version", 0)  # 0: before there were any.
    if "model" not in written or type(version) is not int:
        raise ValueError(f"{path} is not the {CONFIG} of a run. Give another --model_dir.")
    known = {"version", *GROUPS, "data_dir", "subwords", "records"}
    if version > VERSION or not set(written) <= known:
        raise ValueError(f"{path} was written by another version of this program. Use that one.")
    return True


def groups(model_dir: pathlib.Path, *names: str) -> tuple:
    """Some groups of a run's options.

    Raises:
        FileNotFoundError: the folder is not a run's.
        ValueError: an option is unknown or invalid.
    """
    if not check(model_dir):
        raise FileNotFoundError(f"{model_dir} is not a model folder: it has no {CONFIG}. Give the --model_dir of a training run.")
    return from_json(model_dir / CONFIG, **{name: GROUPS[name] for name in names})


def read(model_dir: pathlib.Path) -> Options:
    """All of a run's options; raises what `groups` does."""
    options = groups(model_dir, *GROUPS)
    data_dir = read_json(model_dir / CONFIG).get("data_dir", "")
    if not isinstance(data_dir, str):
        raise ValueError(f"Expected 'data_dir' in {model_dir / CONFIG} to be a path. Received: {data_dir}.")
    return Options(*options, data_dir)


def resolve(model_dir: pathlib.Path, given: dict, data_dir: str = "", sources: dict[str, str] | None = None) -> Options:
    """The options to start a run with: those given; else, those of the run in the folder; else, the defaults.

    Args:
        model_dir: a run's folder, or a new one.
        given: values by option.
        data_dir: if given, the data folder.
        sources: where the given values come from, by option; "given" where one is missing.
    """
    is_run = check(model_dir)
    before, chosen = read(model_dir) if is_run else Options(), {}
    origins = dict.fromkeys(given, "given") | ({"data_dir": "given"} if data_dir else {}) | (sources or {})
    for name, group in GROUPS.items():
        own = {field.name: given[field.name] for field in dataclasses.fields(group) if field.name in given}
        try:
            chosen[name] = dataclasses.replace(getattr(before, name), **own)
        except ValueError as error:
            raise ValueError(f"{error} Options not given are those of {model_dir / CONFIG}." if is_run else str(error)) from error
        if name == "data" and not own:
            chosen[name] = DataConfig()  # The data folder is enough: nobody looks for the text that it was prepared from.
    if is_run:
        options = {field.name for group in GROUPS.values() for field in dataclasses.fields(group)} | {"data_dir"}
        origins = dict.fromkeys(options, "run") | origins
    return Options(**chosen, data_dir=stored(model_dir, data_dir) if data_dir else before.data_dir, sources=origins)


def stored(model_dir: pathlib.Path, data_dir: str | os.PathLike) -> str:
    """A data folder as `Options.data_dir`."""
    path = os.path.abspath(data_dir)
    return "" if path == os.path.abspath(model_dir / DATA) else path


def changes(model_dir: pathlib.Path, before: Options, after: Options) -> str:
    """Names the options that differ from the run's, with both values; empty if none does. Where there are weights, some may not.

    Raises:
        ValueError: naming every one that may not, with both values.
    """
    found = []
    for name in GROUPS:
        old, new = getattr(before, name), getattr(after, name)
        if name != "data" or (old.names_corpus and new.names_corpus):
            fields = [field.name for field in dataclasses.fields(old)]
            found += [(field, getattr(old, field), getattr(new, field)) for field in fields if getattr(old, field) != getattr(new, field)]
    if before.data_dir != after.data_dir:
        found.append(("data_dir", *(each.data_folder(model_dir) for each in (before, after))))
    refused = [name for name, _, _ in found if name in _FIXED]
    if refused and checkpoint.kept(model_dir):
        told = ", ".join(f"--{name}={new} (the run: {old})" for name, old, new in found if name in _FIXED or name in TEXTS)
        raise ValueError(
            f"Expected the options that {model_dir} was trained with. Received: {told}. Leave them out to resume that run, or start a "
            "new run in another --model_dir."
        )
    return ", ".join(f"--{name} {old} → {new}" for name, old, new in found)


def write(model_dir: pathlib.Path, options: Options, subwords: pathlib.Path, records: pathlib.Path) -> None:
    """Makes a folder a run's, or changes the options of its run.

    Args:
        model_dir: the folder.
        options: to go on with.
        subwords: the model's sub-words, which are copied.
        records: what tells the training data from other.
    """
    values = {name: getattr(options, name) for name in GROUPS}
    parts = {"data_dir": options.data_dir, "subwords": describe(subwords), "records": describe(records)}
    write_whole(model_dir / CONFIG, to_json(version=VERSION, **values, **parts).encode())
    write_whole(model_dir / SUBWORDS, subwords.read_bytes())


def check_data(model_dir: pathlib.Path, subwords: pathlib.Path, records: pathlib.Path) -> None:
    """Stops if a data folder is not what the run in a folder was trained on.

    Raises:
        ValueError: the sub-words are others, or the training records.
    """
    if describe(subwords) != describe(model_dir / SUBWORDS):
        raise ValueError(f"{model_dir} holds a model of other sub-words than {subwords.parent}. Give another --model_dir.")
    expected = read_json(model_dir / CONFIG).get("records")
    if expected is not None and describe(records) != expected:
        raise ValueError(f"{model_dir} was trained on other pairs than {subwords.parent} holds. Give another --model_dir or --data_dir.")


def read_subwords(model_dir: pathlib.Path) -> bytes:
    """The sub-words that a run's weights belong to.

    Raises:
        FileNotFoundError: there are none.
        ValueError: they are others.
    """
    path = model_dir / SUBWORDS
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. Restore it: without its sub-words a model is of no use.")
    expected = read_json(model_dir / CONFIG).get("subwords")
    if expected is not None and (received := describe(path)) != expected:
        raise ValueError(f"{path} is not what {model_dir} was trained with. Expected: {expected}. Received: {received}. Restore that file.")
    return path.read_bytes()
