"""The folder of a run: its options, sub-words and identity, from which training resumes. Does not import TensorFlow.

`config.json` has a version, the architecture (transformer, if it is not there), the four groups of options, the data
folder, and the size and SHA-256 of the checkpoints of the parent, of the sub-words, of those of the source if it has
its own, and of the index of the training records. A folder with this file is a run's folder. A folder with other files
of the same names is refused.
"""

import dataclasses
import json
import pathlib
import reprlib

from t2t_keras.config import EMA, check_types, with_current_names
from t2t_keras.runs import checkpoint, registry
from t2t_keras.runs.export_folder import SAVED_MODEL, export_in
from t2t_keras.runs.run_options import ARCHITECTURE, OF_RUN, TRANSFORMER, Options, groups_of, option_names
from t2t_keras.system.files import CONFIG, SOURCE_SUBWORDS, SUBWORDS, check_no_links, describe, read_json, write_whole

LOGS, NOT_FINITE = "logs", "not_finite"
CURVES = ("curves.png", "curves.csv")
EMBEDDINGS = "embeddings.txt"  # The sub-words of a run whose embeddings started as word vectors.
VERSION = 1


def is_run(model_dir: pathlib.Path) -> bool:
    """Returns whether a folder is a run's folder.

    Raises:
        ValueError: the folder has other files with the names of a run's files, or an export; or the run is of a newer
            version.
    """
    path = model_dir / CONFIG
    there = [
        name
        for name in (SUBWORDS, SOURCE_SUBWORDS, EMBEDDINGS, checkpoint.FOLDER, LOGS, *CURVES)
        if (model_dir / name).exists()
    ]
    if export := export_in(model_dir):
        there.append(SAVED_MODEL if export == model_dir else export.name)
    if not path.exists():  # A run writes it before the others.
        if there:
            raise ValueError(
                f"{model_dir} holds {', '.join(there)} and no {CONFIG}: it is not a run. Give another `model_dir`."
            )
        return False
    written = read_json(path)
    version = written.get("version", 0)  # 0: older than version numbers.
    if "model" not in written or type(version) is not int:
        raise ValueError(f"{path} is not the {CONFIG} of a run. Give another `model_dir`.")
    known = {"version", ARCHITECTURE, "model", "train", "decode", "data", "data_dir", "parent", "sources", "records"}
    known |= {"subwords", "source_subwords"}
    if version > VERSION or not set(written) <= known:
        raise ValueError(f"{path} was written by another version of this program. Use that one.")
    return True


def check_before_writing(model_dir: pathlib.Path) -> None:
    """Checks that what a run writes stays in its folder, and removes what a killed run has left; see
    `files.check_no_links`.

    The folder itself may be a link, and the user's own files in it may be links. Its data are checked under their own
    lock.

    Raises:
        NotADirectoryError: something else is where a folder of the run belongs.
        ValueError: there is a link.
    """
    folders, names = (LOGS, NOT_FINITE, checkpoint.FOLDER), (CONFIG, SUBWORDS, SOURCE_SUBWORDS, EMBEDDINGS, *CURVES)
    for folder in (model_dir / name for name in folders):
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(
                f"Expected {folder} to be a folder. It is not one. Move it away, or give another `model_dir`."
            )
    check_no_links(*(model_dir / name for name in folders + names))


def architecture_of(model_dir: pathlib.Path) -> str:
    """Returns the architecture of a run.

    Raises:
        FileNotFoundError: the folder is not a run's.
        ValueError: the architecture is not registered.
    """
    if not is_run(model_dir):
        raise FileNotFoundError(
            f"{model_dir} is not a model folder: it has no {CONFIG}. Give the `model_dir` of a training run."
        )
    name = read_json(model_dir / CONFIG).get(ARCHITECTURE, TRANSFORMER)
    if name == TRANSFORMER:
        return name
    if not isinstance(name, str) or name not in registry.architectures():
        raise ValueError(
            f"Expected '{ARCHITECTURE}' in {model_dir / CONFIG} to be one of {', '.join(registry.architectures())}. "
            f"Received: {reprlib.repr(name)}. Install the package that registers it."
        )
    return name


def groups(model_dir: pathlib.Path, *names: str) -> tuple:
    """Returns groups of a run's options.

    Args:
        model_dir: the run's folder.
        names: names of the groups, as in `groups_of`.

    Raises:
        FileNotFoundError: the folder is not a run's.
        ValueError: an option is unknown or invalid.
    """
    known = groups_of(architecture_of(model_dir))
    return from_json(model_dir / CONFIG, **{name: known[name] for name in names})


def read(model_dir: pathlib.Path) -> Options:
    """Returns all options of a run; raises the errors of `groups`."""
    options = groups(model_dir, *groups_of())
    data_dir = read_json(model_dir / CONFIG).get("data_dir", "")
    if not isinstance(data_dir, str):
        raise ValueError(f"Expected 'data_dir' in {model_dir / CONFIG} to be a path. Received: {data_dir}.")
    return Options(*options, data_dir, architecture_of(model_dir), _sources(model_dir))


def _sources(model_dir: pathlib.Path) -> dict[str, str]:
    """Returns where a run had its options from, as `Options.sources`."""
    earlier = dict.fromkeys(option_names(architecture_of(model_dir)) | {ARCHITECTURE, "data_dir"}, "unknown")
    sources = read_json(model_dir / CONFIG).get("sources", earlier)  # Earlier versions did not write them.
    if not isinstance(sources, dict) or not all(
        isinstance(source, str) and source.isprintable() for source in sources.values()
    ):
        raise ValueError(
            f"Expected 'sources' in {model_dir / CONFIG} to be text by option. Received: {reprlib.repr(sources)}."
        )
    return sources


def check_checkpoint(model_dir: pathlib.Path, which: str) -> None:
    """Raises `ValueError` if a run has no moving average of its weights, and these are the weights to use."""
    if which == EMA and not (train := groups(model_dir, "train")[0]).ema_decay:
        raise ValueError(
            f"Expected a run with a moving average of its weights. Received: {model_dir}, trained with "
            f"ema_decay={train.ema_decay:g}. Choose another `checkpoint`."
        )


def has_source_subwords(model_dir: pathlib.Path) -> bool:
    """Returns whether the source of a run has sub-words of its own."""
    return "source_subwords" in read_json(model_dir / CONFIG)


def write(
    model_dir: pathlib.Path,
    options: Options,
    subwords: pathlib.Path,
    records: pathlib.Path | None,
    source_subwords: pathlib.Path | None = None,
) -> None:
    """Writes the options and sub-words of a run into its folder.

    Args:
        model_dir: the run's folder or a new one.
        options: the options. The checkpoints of their `parent` are recorded until the run has some of its own.
        subwords: file of the sub-words; it is copied.
        records: index of the training records, which identifies the training data; `None` for a model that was trained
            elsewhere.
        source_subwords: file of the source's own sub-words, if it has some; it is copied.
    """
    parent = read_json(model_dir / CONFIG).get("parent") if checkpoint.kept(model_dir) else None
    if options.train.starts_from and not parent:
        parent = {
            "checkpoints": checkpoint.identity(pathlib.Path(options.train.starts_from), options.train.parent_checkpoint)
        }
    described = {"data_dir": options.data_dir, "subwords": describe(subwords)}
    others = {"source_subwords": source_subwords, "records": records}
    described |= {name: describe(path) for name, path in others.items() if path}
    names = option_names(options.architecture) | {ARCHITECTURE, "data_dir"}
    sources = {name: source.removeprefix(OF_RUN) for name, source in sorted(options.sources.items()) if name in names}
    write_whole(
        model_dir / CONFIG,
        to_json(
            version=VERSION,
            architecture=options.architecture,
            **options.groups,
            **described,
            **({"parent": parent} if parent else {}),
            sources={name: source for name, source in sources.items() if source != "default"},
        ).encode(),
    )
    write_whole(model_dir / SUBWORDS, subwords.read_bytes())
    if source_subwords:
        write_whole(model_dir / SOURCE_SUBWORDS, source_subwords.read_bytes())


def check_data(
    model_dir: pathlib.Path, subwords: pathlib.Path, records: pathlib.Path, source_subwords: pathlib.Path | None = None
) -> None:
    """Checks that a data folder is the one that a run was trained on.

    Args:
        model_dir: the run's folder.
        subwords: file of the data folder's sub-words.
        records: index of the data folder's training records.
        source_subwords: file of the source's own sub-words in the data folder, if there is one.

    Raises:
        ValueError: the sub-words or the training records differ.
    """
    of_run = [model_dir / SUBWORDS, *([model_dir / SOURCE_SUBWORDS] if has_source_subwords(model_dir) else [])]
    if [describe(path) for path in (subwords, source_subwords) if path] != [describe(path) for path in of_run]:
        raise ValueError(
            f"{model_dir} holds a model with other sub-words than {subwords.parent}. To train it on other text, start "
            f"a new run with `parent={model_dir}`, in another `model_dir`."
        )
    expected = read_json(model_dir / CONFIG).get("records")
    if expected is not None and describe(records) != expected:
        raise ValueError(
            f"{model_dir} was trained on other records than those in {subwords.parent}. To train its model on them, "
            f"start a new run with `parent={model_dir}`, in another `model_dir`."
        )


def read_subwords(model_dir: pathlib.Path) -> tuple[bytes, ...]:
    """Reads the sub-words of a run, and those of its source if it has its own: the arguments of
    `vocabulary.load_sides`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is not the one that the run was trained with.
    """
    names = {"subwords": SUBWORDS} | ({"source_subwords": SOURCE_SUBWORDS} if has_source_subwords(model_dir) else {})
    return tuple(_read_subwords(model_dir, key, name) for key, name in names.items())


def _read_subwords(model_dir: pathlib.Path, key: str, name: str) -> bytes:
    path = model_dir / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. Restore it: a model cannot be used without its sub-words.")
    expected = read_json(model_dir / CONFIG).get(key)
    if expected is not None and (received := describe(path)) != expected:
        raise ValueError(
            f"{path} is not what {model_dir} was trained with. Expected: {expected}. Received: {received}. Restore "
            "that file."
        )
    return path.read_bytes()


def to_json(**groups) -> str:
    """Returns groups of options, and other values, as readable JSON."""
    values = {
        name: dataclasses.asdict(group) if dataclasses.is_dataclass(group) else group for name, group in groups.items()
    }
    return json.dumps(values, indent=2) + "\n"


def from_json(path: str | pathlib.Path, **classes) -> tuple:
    """Reads groups of options from a file that `to_json` wrote. Options that are missing there have their defaults.

    Args:
        path: the file.
        classes: the dataclass of each group, by the group's name.

    Returns:
        The groups, in the order of `classes`.

    Raises:
        ValueError: the file is damaged, or an option is invalid or unknown (written by another version).
    """
    written, groups = read_json(pathlib.Path(path)), []
    for name, group in classes.items():
        options = written.get(name, {})
        if not isinstance(options, dict):
            raise ValueError(f"Expected '{name}' in {path} to be options. Received: {reprlib.repr(options)}.")
        options = with_current_names(options)
        if unknown := sorted(set(options) - {field.name for field in dataclasses.fields(group)}):
            raise ValueError(
                f"Expected the '{name}' options of this version in {path}. Unknown: {reprlib.repr(unknown)}. "
                "Use the version that wrote the file."
            )
        try:
            groups.append(group(**options))
            check_types(groups[-1])
        except ValueError as error:
            raise ValueError(f"{path} is not valid: {error}") from error
    return tuple(groups)
