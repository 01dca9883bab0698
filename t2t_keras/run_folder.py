"""The folder of a run: its options, sub-words and identity, from which training resumes. Does not import TensorFlow.

`config.json` has a version, the architecture (transformer, if it is not there), the four groups of options, the data folder, and the size
and SHA-256 of the checkpoints of the parent, of the sub-words, of those of the source if it has its own, and of the index of the training
records. A folder with this file is a run's folder. A folder with other files of the same names is refused.
"""

import dataclasses
import os
import pathlib
import reprlib
from collections.abc import Collection, Iterable

from t2t_keras import checkpoint, registry
from t2t_keras.config import (
    EMA,
    FILES,
    OF_START,
    STARTS,
    TEXT_OPTIONS,
    TEXTS,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    TrainConfig,
    check_types,
    from_json,
    to_json,
)
from t2t_keras.files import check_folder, check_no_link, check_no_links, describe, read_json, write_whole

CONFIG, SUBWORDS, DATA, LOGS, NOT_FINITE = "config.json", "subwords.model", "data", "logs", "not_finite"
SOURCE_SUBWORDS = "subwords.source.model"  # Beside the other, in the folders of runs and of data whose source has sub-words of its own.
CURVES = ("curves.png", "curves.csv")
SAVED_MODEL = "saved_model.pb"  # The file that makes a folder an export.
EXTRA, DESCRIPTION = "assets.extra", "t2t_keras.json"  # Of an export: its further files, and what one of them says of the model.
OF_RUN = "run: "  # In `Options.sources`, before where the resumed run has an option from.
OF_PARENT = "parent: "  # The same of the run whose weights a new one starts from.
EMBEDDINGS = "embeddings.txt"  # The sub-words of a run whose embeddings started as word vectors.
LOCK = "lock"  # In the folder of a run and in a data folder.
CORPUS = "corpus.json"  # What a data folder was prepared from. A folder that has it is complete.
MAX_CORPUS = 2**24  # Maximum size of `corpus.json`, which lists every text file, in bytes.
VERSION = 1
ARCHITECTURE = "architecture"  # Its key in `config.json`, and the option.
TRANSFORMER = "transformer"  # The architecture where none is named.
# Options of the network that the weights of an encoder depend on, or what it computes with them.
ENCODER_OPTIONS = (
    "vocab_size", "encoder_layers", "d_model", "d_ff", "num_heads", "d_k", "d_v", "learned_positions", "sinusoids", "first_position",
    "attention", "attention_window", "attention_bias", "activation", "norm", "norm_epsilon"
)  # fmt: skip
# Those of a model: with others, a parent's weights have other shapes, or compute something else.
_OF_WEIGHTS = (
    "d_model", "d_ff", "num_heads", "d_k", "d_v", "sinusoids", "first_position", "attention", "activation", "norm", "norm_epsilon"
)  # fmt: skip
# Options that a resumed run must not change: they determine the shapes of the weights, the order of the data and the metric of the
# best checkpoint. Text files are compared by their contents, see `prepare.check_folder`.
_FIXED = {
    *("seed", "batch_tokens", "buckets_per_update", "best_metric", *STARTS),
    *("parent_checkpoint", "parent_subwords", "parent_optimizer", "freeze"),
    *("bpe_dropout", "ema_decay", "embeddings", "freeze_embeddings"),
    *({field.name for field in dataclasses.fields(DataConfig)} - set(FILES)),
}


def groups_of(architecture: str = TRANSFORMER) -> dict[str, type]:
    """Returns the groups of options of a run by name; those of the model depend on the architecture."""
    return {
        "model": registry.architecture(architecture).options,
        "train": TrainConfig,
        "decode": DecodeConfig,
        "data": DataConfig,
    }


def option_names(architecture: str = TRANSFORMER) -> set[str]:
    """Returns the names of all options in `groups_of` an architecture."""
    return {field.name for group in groups_of(architecture).values() for field in dataclasses.fields(group)}


@dataclasses.dataclass(frozen=True)
class Options:
    """All options of a run.

    Attributes:
        model: options of the architecture, such as `ModelConfig`.
        train, decode: groups of options.
        data: group of options. If they name no corpus, they are those of the run or of the prepared data.
        data_dir: absolute path of the data folder; empty for `data` in the run's folder.
        architecture: its name; see `registry`.
        sources: where values come from, by option: "command line", "flagfile NAME", "given" or "data folder"; "run: " or "parent: " and
            where the resumed run, or the one that the weights are from, had it from. An option that is missing here has its default.
    """

    model: object = ModelConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()
    data: DataConfig = DataConfig()
    data_dir: str = ""
    architecture: str = TRANSFORMER
    sources: dict[str, str] = dataclasses.field(default_factory=dict, compare=False)

    @classmethod
    def default(cls, architecture: str) -> "Options":
        """Returns the defaults of an architecture and of its task.

        Raises:
            ValueError: no architecture has this name.
        """
        task = registry.task_of(architecture)
        train = TrainConfig(**{"best_metric": task.best_metrics[0], **task.defaults})
        return cls(registry.architecture(architecture).options(), train, architecture=architecture)

    @property
    def groups(self) -> dict:
        """The groups of options by name."""
        return {name: getattr(self, name) for name in groups_of(self.architecture)}

    @property
    def source_vocab_size(self) -> int:
        """Number of sub-words of the source alone; 0 if there are none, or the architecture has no such option."""
        return getattr(self.model, "source_vocab_size", 0)

    @property
    def task(self):
        """The `task.Task` of the architecture."""
        return registry.task_of(self.architecture)

    def data_folder(self, model_dir: pathlib.Path) -> pathlib.Path:
        """Returns the data folder of a run."""
        return pathlib.Path(self.data_dir) if self.data_dir else model_dir / DATA

    def table(self) -> str:
        """Returns a Markdown table of all options with their values and where these come from."""
        names = ("option", "value", "from")
        rows = [names, ["-" * len(name) for name in names]]
        values = {name: value for group in self.groups.values() for name, value in vars(group).items()}
        rows += [
            (option, str(value).replace("|", "\\|").replace("\n", "\\n"), self.sources.get(option, "default"))
            for option, value in ({ARCHITECTURE: self.architecture} | values | {"data_dir": self.data_dir}).items()
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |" for row in rows)


def several(paths: str) -> list[pathlib.Path]:
    """Returns the folders in a text with commas between them. The path of an existing folder may have commas.

    Raises:
        ValueError: there is none.
    """
    whole = pathlib.Path(paths).expanduser()
    found = [whole] if whole.is_dir() else [pathlib.Path(path.strip()).expanduser() for path in paths.split(",") if path.strip()]
    if not found:
        raise ValueError(f"Expected the folder of a run as `model_dir`. Received: {paths!r}.")
    return found


def description(export: pathlib.Path) -> dict:
    """Returns what an export says of its model; an older one says nothing. Raises `ValueError` if that is damaged."""
    path = export / EXTRA / DESCRIPTION
    return read_json(path) if path.is_file() else {}


def search_of(described: dict) -> DecodeConfig:
    """Returns the search of an export with a given `description`, without options that only another version has."""
    names = {field.name for field in dataclasses.fields(DecodeConfig)}
    return DecodeConfig(**{name: value for name, value in described.get("decode", {}).items() if name in names})


def export_in(folder: pathlib.Path) -> pathlib.Path | None:
    """Returns the folder if it is an export, else the newest version of an export in it, else `None`.

    A SavedModel is a program, and a run is data. So this is the only function that decides which of the two a folder holds.

    Raises:
        ValueError: the folder holds a run and an export.
    """
    versions = [path.parent for path in folder.glob(f"*/{SAVED_MODEL}") if path.parent.name.isdecimal()]
    newest = max(versions, key=lambda path: int(path.name), default=None)
    export = folder if (folder / SAVED_MODEL).exists() else newest
    if export and (folder / CONFIG).exists():
        raise ValueError(
            f"Expected a run or an export in {folder}. Received both: {CONFIG}, and a SavedModel, which is a program, in {export}. "
            "Move one of them to another folder."
        )
    return export


def check(model_dir: pathlib.Path) -> bool:
    """Returns whether a folder is a run's folder.

    Raises:
        ValueError: the folder has other files with the names of a run's files, or an export; or the run is of a newer version.
    """
    path = model_dir / CONFIG
    there = [name for name in (SUBWORDS, SOURCE_SUBWORDS, checkpoint.FOLDER, LOGS, *CURVES) if (model_dir / name).exists()]
    if export := export_in(model_dir):
        there.append(SAVED_MODEL if export == model_dir else export.name)
    if not path.exists():  # A run writes it before the others.
        if there:
            raise ValueError(f"{model_dir} holds {', '.join(there)} and no {CONFIG}: it is not a run. Give another `model_dir`.")
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
    """Checks that what a run writes stays in its folder, and removes what a killed run has left; see `files.check_no_links`.

    The folder itself may be a link, and the user's own files in it may be links. Its data are checked under their own lock.

    Raises:
        NotADirectoryError: something else is where a folder of the run belongs.
        ValueError: there is a link.
    """
    folders, names = (LOGS, NOT_FINITE, checkpoint.FOLDER), (CONFIG, SUBWORDS, SOURCE_SUBWORDS, EMBEDDINGS, *CURVES)
    for folder in (model_dir / name for name in folders):
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"Expected {folder} to be a folder. It is not one. Move it away, or give another `model_dir`.")
    check_no_links(*(model_dir / name for name in folders + names))


def architecture_of(model_dir: pathlib.Path) -> str:
    """Returns the architecture of a run.

    Raises:
        FileNotFoundError: the folder is not a run's.
        ValueError: the architecture is not registered.
    """
    if not check(model_dir):
        raise FileNotFoundError(f"{model_dir} is not a model folder: it has no {CONFIG}. Give the `model_dir` of a training run.")
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
    if not isinstance(sources, dict) or not all(isinstance(source, str) and source.isprintable() for source in sources.values()):
        raise ValueError(f"Expected 'sources' in {model_dir / CONFIG} to be text by option. Received: {reprlib.repr(sources)}.")
    return sources


def resolve(
    model_dir: pathlib.Path, given: dict, data_dir: str = "", sources: dict[str, str] | None = None, *, resumes: bool = True
) -> Options:
    """Returns the options to start a run with: those given, then those of the run in the folder, then the defaults.

    Args:
        model_dir: a run's folder or a new one.
        given: values by option, "architecture" among them if it is given.
        data_dir: the data folder, if given.
        sources: where the given values come from, by option. The default is "given".
        resumes: whether the run in the folder gives options. If not, they are those that a new run would have.

    Raises:
        ValueError: an option is invalid, or does not fit the others, the weights that the run starts from, or its data.
    """
    is_run = check(model_dir) and resumes
    of_run = read(model_dir) if is_run else None
    given = given | {name: os.path.abspath(os.path.expanduser(given[name])) for name in OF_START if given.get(name)}
    origin = given.get("parent") or given.get("encoder_from")
    parent, from_parent, child = pathlib.Path(origin) if origin and not (is_run and checkpoint.kept(model_dir)) else None, set(), None
    if parent:
        architecture = "" if given.get("parent") else given.get(ARCHITECTURE, of_run.architecture if of_run else TRANSFORMER)
        chosen = vars(of_run.train if of_run else TrainConfig()) | given
        child = _child_of(parent, chosen["parent_checkpoint"], chosen["parent_optimizer"], architecture)
        if not of_run and {"dataset", "train_source"} & given.keys() and given.get("parent_subwords", True):
            source = {"source_subwords_file": str(parent / SOURCE_SUBWORDS)} if _has_source_subwords(parent) else {}
            of_parent = {"subwords_file": str(parent / SUBWORDS)} | source
            if "subwords_file" not in given:
                of_parent["subwords"] = read(parent).data.subwords
            from_parent = of_parent.keys() - given.keys()
            given = of_parent | given
    if of_run and not checkpoint.kept(model_dir):
        _check_start_of(model_dir, of_run.train, given)
    before = of_run or child or Options.default(given.get(ARCHITECTURE, TRANSFORMER))
    if given.get(ARCHITECTURE, before.architecture) != before.architecture:
        raise ValueError(
            f"Expected architecture={before.architecture}, that of the run in {parent or model_dir}. "
            f"Received: architecture={given[ARCHITECTURE]}. Give another `{'parent' if parent else 'model_dir'}`."
        )
    _check_names(given, before.architecture)
    origins = dict.fromkeys(given, "given") | dict.fromkeys(from_parent, f"{OF_PARENT}default")
    origins |= ({"data_dir": "given"} if data_dir else {}) | (sources or {})
    data_dir = stored(model_dir, data_dir) if data_dir else before.data_dir
    of_data = {field.name for field in dataclasses.fields(DataConfig)}
    compared = {name: value for name, value in given.items() if name in of_data} if is_run else given  # A run keeps its sizes.
    prepared = _of_data_folder(Options(data_dir=data_dir).data_folder(model_dir), compared)
    prepared = {} if is_run else prepared
    if not prepared.get("source_vocab_size"):
        prepared.pop("source_vocab_size", None)  # Not all architectures have the option.
    _check_names(prepared, before.architecture)
    given, origins, chosen = prepared | given, dict.fromkeys(prepared, "data folder") | origins, {}
    for name, group in groups_of(before.architecture).items():
        own = {field.name: given[field.name] for field in dataclasses.fields(group) if field.name in given}
        try:
            chosen[name] = dataclasses.replace(getattr(before, name), **own)
            check_types(chosen[name])  # Of any architecture.
        except ValueError as error:
            raise ValueError(f"{error} Options not given are those of {model_dir / CONFIG}." if is_run else str(error)) from error
        if name == "data":
            check_positions(chosen, before.task)
            repeated = is_run and chosen[name] == before.data and not own.keys() & {"dataset", *TEXTS}
            if repeated or not own:
                chosen[name] = DataConfig()  # A run that does not name its text uses its data folder, and does not check the text.
    _check_training(chosen, before.task)
    check_text(chosen, before.task)
    if parent:
        names, part = (_OF_WEIGHTS, "model") if given.get("parent") else (set(ENCODER_OPTIONS) - {"vocab_size"}, "encoder")
        _check_same(child.model, chosen["model"], names, f"of the {part} in {parent}")
    inherited = option_names(before.architecture) | {ARCHITECTURE, "data_dir"} if is_run else before.sources
    origins = {name: (OF_RUN if is_run else OF_PARENT) + before.sources.get(name, "default") for name in inherited} | origins
    return Options(**chosen, data_dir=data_dir, architecture=before.architecture, sources=origins)


def recorded_options(folder: pathlib.Path) -> dict:
    """Returns the options that a data folder was prepared with, of text files their names and hashes.

    Raises:
        ValueError: `corpus.json` is damaged.
    """
    path = folder / CORPUS
    try:
        options = read_json(path, MAX_CORPUS).get("options")
    except ValueError as error:
        raise ValueError(f"{error} Remove {folder} and prepare again.") from error
    if not isinstance(options, dict):
        raise ValueError(f"{path} is damaged: it has no options. Remove {folder} and prepare again.")
    # Older versions wrote "pairs", had byte-pair encoding and translation only, and neither kept patterns nor set tags.
    return {"subwords": "bpe", "task": "translation", "keep_patterns": "", "source_tag": ""} | {
        "builtin_pairs" if name == "pairs" else name: value for name, value in options.items()
    }


def prepared_with(folder: pathlib.Path) -> DataConfig:
    """Returns the options that a data folder was prepared with, except the text files: only their contents are recorded.

    Raises:
        ValueError: `corpus.json` is damaged.
    """
    recorded = recorded_options(folder)
    names = {field.name for field in dataclasses.fields(DataConfig)} - set(FILES)
    try:
        return DataConfig(**{name: recorded[name] for name in names & set(recorded)})
    except ValueError as error:
        raise ValueError(f"{folder / CORPUS} is damaged: {error} Remove {folder} and prepare again.") from error


def _of_data_folder(folder: pathlib.Path, given: dict) -> dict:
    """Returns the options that a new run takes from its data folder.

    Args:
        folder: the data folder; without `corpus.json`, the run takes none.
        given: the given options, which must not differ.

    Raises:
        ValueError: a given option differs, or `corpus.json` is damaged.
    """
    if not (folder / CORPUS).exists():
        return {}
    recorded = recorded_options(folder)
    prepared = {name: value for name, value in vars(prepared_with(folder)).items() if name in recorded and name not in FILES}
    if "vocab_size" in recorded:
        prepared["vocab_size"] = recorded["vocab_size"]
        prepared["source_vocab_size"] = recorded.get("source_vocab_size", 0)
    if differ := [name for name in prepared if given.get(name, prepared[name]) != prepared[name]]:
        expected, received = (", ".join(f"{name}={values[name]}" for name in differ) for values in (prepared, given))
        raise ValueError(
            f"Expected {expected}, with which {folder} was prepared. Received: {received}. Leave out what differs, or give another "
            "`data_dir` or `model_dir`."
        )
    same_dataset = given.get("dataset") == recorded.get("dataset")  # Both may be of text files.
    return {name: value for name, value in prepared.items() if same_dataset or name in ("vocab_size", "source_vocab_size", *TEXT_OPTIONS)}


def check_data_dir(folder: pathlib.Path) -> None:
    """Checks that a folder may hold prepared data.

    Raises:
        ValueError: it is the folder of a run, whose sub-words would be replaced.
        FileExistsError: it holds files that no preparation wrote.
        NotADirectoryError: it cannot be a folder.
    """
    check_folder(folder, "data_dir")
    if (folder / CONFIG).exists() or (folder / checkpoint.FOLDER).exists():
        own = folder / DATA
        advice = f"The data of the run are in {own}." if (own / CORPUS).exists() else "Give another one."
        raise ValueError(f"Expected a folder for data as `data_dir`. Received: {folder}, which holds a run. {advice}")
    if folder.is_dir() and any(folder.iterdir()) and not ((folder / LOCK).exists() or (folder / CORPUS).exists()):
        raise FileExistsError(f"{folder} holds files and no prepared data. Give a new or an empty folder as `data_dir`.")


def check_export_dir(folder: pathlib.Path) -> None:
    """Checks that a folder may hold exports.

    Raises:
        NotADirectoryError: it cannot be a folder.
        ValueError: it is the folder of a run.
    """
    check_folder(folder, "export_dir")
    if (folder / CONFIG).exists():
        raise ValueError(f"Expected a folder for exports. Received: {folder}, which holds a run. Give another `export_dir`.")


def check_start(model_dir: pathlib.Path, options: Options) -> None:
    """Checks whether a run can start, as far as that takes no time.

    A new run must have text: options name it, or its data folder is prepared or is being prepared.

    Raises:
        FileExistsError: the data folder holds files that no preparation wrote.
        FileNotFoundError: there is neither a run in the folder nor text for a new one.
        NotADirectoryError: a path cannot be a folder.
        ValueError: the two folders are one, the data folder is that of a run, or it is a link in the run's folder; see also `check`.
    """
    folder = options.data_folder(model_dir)
    if folder.resolve() == model_dir.resolve():
        raise ValueError(f"Expected two folders as `model_dir` and `data_dir`. Received: {folder} for both.")
    check_folder(model_dir, "model_dir")
    is_run = check(model_dir)
    check_no_link(model_dir / DATA)
    check_data_dir(folder)
    if not (options.data.names_corpus or is_run or (folder / CORPUS).exists() or (folder / LOCK).exists()):
        texts = " and ".join(f"`train_{side}`" for side in options.task.texts)
        missing = f"prepared data in {folder}" if options.data_dir else f"run in {model_dir}"
        raise FileNotFoundError(
            f"There is no {missing}. To resume a run, give its `model_dir`; for a new one, give {texts}, `dataset`, or a prepared "
            "`data_dir`."
        )


def check_checkpoint(model_dir: pathlib.Path, which: str) -> None:
    """Raises `ValueError` if a run has no moving average of its weights, and these are the weights to use."""
    if which == EMA and not (train := groups(model_dir, "train")[0]).ema_decay:
        raise ValueError(
            f"Expected a run with a moving average of its weights. Received: {model_dir}, trained with ema_decay={train.ema_decay:g}. "
            "Choose another `checkpoint`."
        )


def _child_of(parent: pathlib.Path, which: str, optimizer: bool = False, architecture: str = "") -> Options:
    """Returns the defaults of a new run that starts from the weights of another one.

    They are its architecture, model and search or, for a given architecture, the sizes of its encoder. Their `sources` are those of the
    other run.

    Raises:
        FileNotFoundError: the folder is not a run's, or has no checkpoint.
        ValueError: the run is damaged, or has no optimizer for its child.
    """
    try:
        run = read(parent)
        check_checkpoint(parent, which)
        checkpoint.identity(parent, which)
        if optimizer and (run.train.freeze or not checkpoint.has_optimizer(parent, which)):
            received = f"{parent}, {f'trained with freeze={run.train.freeze}' if run.train.freeze else 'whose checkpoint has none'}"
            raise ValueError(f"Expected a parent with an optimizer of all weights. Received: {received}. Leave out `parent_optimizer`.")
    except (FileNotFoundError, ValueError) as error:
        kind = ValueError if isinstance(error, ValueError) else FileNotFoundError
        name = "`encoder_from`" if architecture else "`parent`"
        raise kind(str(error).replace("`checkpoint", "`parent_checkpoint").replace("`model_dir`", name)) from error
    if architecture:
        return _with_encoder_of(run, parent, architecture)
    inherited = {name: run.sources.get(name, "default") for name in (*vars(run.model), *vars(run.decode), ARCHITECTURE)}
    return dataclasses.replace(Options.default(run.architecture), model=run.model, decode=run.decode, sources=inherited)


def _with_encoder_of(run: Options, folder: pathlib.Path, architecture: str) -> Options:
    """Returns the defaults of an architecture with the sizes of the encoder of a run.

    Raises:
        ValueError: one of both has no encoder of the Transformer, the source of the run has sub-words of its own, or the architecture
            cannot have such an encoder.
    """
    encoder, defaults = getattr(run.model, "encoder", run.model), Options.default(architecture)
    theirs = {name: getattr(encoder, name) for name in ENCODER_OPTIONS if isinstance(encoder, ModelConfig)}
    own = {name: value for name, value in theirs.items() if hasattr(defaults.model, name)}
    if "d_ff" not in own or run.source_vocab_size:
        received = f"architecture={run.architecture} in {folder}, for architecture={architecture}"
        expected = "an encoder of the Transformer, with one vocabulary, as `encoder_from`"
        raise ValueError(f"Expected {expected}. Received: {received}{' with sub-words of the source' * bool(run.source_vocab_size)}.")
    model = dataclasses.replace(defaults.model, **own)
    if differ := [name for name in theirs if getattr(getattr(model, "encoder", model), name) != theirs[name]]:
        received = ", ".join(f"{name}={theirs[name]}" for name in differ)
        raise ValueError(f"Expected an encoder that architecture={architecture} can have. Received: {received} in {folder}.")
    return dataclasses.replace(defaults, model=model, sources={name: run.sources.get(name, "default") for name in own})


def _check_start_of(model_dir: pathlib.Path, before: TrainConfig, given: dict) -> None:
    """Raises `ValueError` if a run without a checkpoint is to start from other weights than before, wherever these are now."""
    for name in given.keys() & STARTS:
        path, now = getattr(before, name), given[name]
        if path and now and pathlib.Path(path).resolve() != pathlib.Path(now).resolve():
            hashes = checkpoint.identity(pathlib.Path(now), given.get("parent_checkpoint", before.parent_checkpoint))
            same = read_json(model_dir / CONFIG).get("parent") == {"checkpoints": hashes}
        else:
            same = bool(path) == bool(now)
        if not same:
            expected, received = (f"{name}={each or 'none'}" for each in (path, now))
            raise ValueError(f"Expected {expected}, with which {model_dir} was started. Received: {received}. Give another `model_dir`.")


def _check_same(before, after, names: Collection[str], whose: str) -> None:
    """Raises `ValueError` where options of a model with these names are not those of the run that its weights are from."""
    differ = [name for name, value in vars(before).items() if name in names and getattr(after, name) != value]
    if differ:
        expected, received = (", ".join(f"{name}={getattr(model, name)}" for name in differ) for model in (before, after))
        raise ValueError(f"Expected {expected}, {whose}. Received: {received}. Leave out what differs.")


def check_positions(groups: dict, task) -> None:
    """Raises `ValueError` if texts may be longer than the learned positions of a network that never writes longer ones."""
    longest, number = groups["data"].max_length, getattr(groups["model"], "learned_positions", 0)
    if task.plain_text and 0 < number < longest:
        expected = f"`max_length` of at most the {number} learned positions"
        raise ValueError(f"Expected {expected}. Received: max_length={longest}, learned_positions={number}.")


def _check_names(given: dict, architecture: str) -> None:
    """Raises `ValueError` for options that an architecture does not have, and names those that have them."""
    for option in sorted(given.keys() - option_names(architecture) - {ARCHITECTURE}):
        others = [name for name in registry.architectures() if option in option_names(name)]
        of = f"an option of architecture={' or '.join(others)}" if others else "which no architecture has"
        raise ValueError(f"Expected options of architecture={architecture}. Received: {option}={given[option]}, {of}.")


def _check_training(groups: dict, task) -> None:
    """Raises `ValueError` where an option of training is not one of the task."""
    metric = groups["train"].best_metric
    if metric not in task.best_metrics:
        raise ValueError(f"Expected `best_metric` to be one of {', '.join(task.best_metrics)}. Received: best_metric={metric}.")
    if (rate := groups["train"].bpe_dropout) and not task.bpe_dropout:
        raise ValueError(f"Expected no `bpe_dropout`, because the task {task.name} has none. Received: bpe_dropout={rate:g}.")
    if rate and (kind := groups["data"].subwords) != "bpe":
        raise ValueError(f"Expected `subwords=bpe` with `bpe_dropout`. Received: subwords={kind}, bpe_dropout={rate:g}.")


def check_text(groups: dict, task) -> None:
    """Raises `ValueError` where the text or the vocabulary of its source is not one of the task."""
    own = {
        "source_vocab_size": getattr(groups["model"], "source_vocab_size", 0),
        "source_subwords_file": groups["data"].source_subwords_file,
    }
    if any(own.values()) and not task.separate_subwords:
        received = ", ".join(f"{name}={value}" for name, value in own.items() if value)
        raise ValueError(f"Expected one vocabulary, because the task {task.name} has none of the source alone. Received: {received}.")
    task.check_text(groups["data"])


def stored(model_dir: pathlib.Path, data_dir: str | os.PathLike) -> str:
    """Returns the path of a data folder in the form of `Options.data_dir`."""
    path = os.path.abspath(data_dir)
    return "" if path == os.path.abspath(model_dir / DATA) else path


def check_given(model_dir: pathlib.Path, options: Options, names: Iterable[str], purpose: str) -> None:
    """Checks options that name something outside of a run's folder: only those given in this start are used, because a folder, with its
    options, may come from someone else.

    Args:
        model_dir: the run's folder.
        options: from `resolve`.
        names: the options that are going to be used.
        purpose: what for; the message says it.

    Raises:
        ValueError: options are known from the folder only. The message shows their values.
    """
    values = {name: value for group in options.groups.values() for name, value in vars(group).items()} | {"data_dir": options.data_dir}
    unknown = [f"`{name}={values[name]}`" for name in names if values[name] and options.sources.get(name, "").startswith(OF_RUN)]
    if unknown:
        raise ValueError(
            f"Expected {', '.join(unknown)} to be given again, or other values, to {purpose}. They are only recorded in "
            f"{model_dir / CONFIG}, which may come from someone else."
        )


def changes(model_dir: pathlib.Path, before: Options, after: Options) -> str:
    """Lists the options that differ from the run's, with both values.

    Args:
        model_dir: the run's folder.
        before: options of the run.
        after: options to resume it with.

    Returns:
        The list as text; empty if no option differs.

    Raises:
        ValueError: there are checkpoints, and options differ that must not. The message lists them with both values.
    """
    found = []
    fixed = _FIXED | {field.name for field in dataclasses.fields(before.model)}
    for name in before.groups:
        old, new = getattr(before, name), getattr(after, name)
        if name != "data" or (old.names_corpus and new.names_corpus):
            fields = [field.name for field in dataclasses.fields(old)]
            values = [(field, getattr(old, field), getattr(new, field)) for field in fields]
            found += [each for each in values if not _is_same(*each)]
    if before.data_dir != after.data_dir:
        found.append(("data_dir", *(each.data_folder(model_dir) for each in (before, after))))
    refused = [name for name, _, _ in found if name in fixed]
    if refused and checkpoint.kept(model_dir):
        received = ", ".join(f"{name}={new} (the run: {old})" for name, old, new in found if name in fixed or name in TEXTS)
        raise ValueError(
            f"Expected the options that {model_dir} was trained with. Received: {received}. Leave them out to resume that run, or start a "
            "new run in another `model_dir`."
        )
    return ", ".join(f"`{name}` {old} → {new}" for name, old, new in found)


def _is_same(name: str, old, new) -> bool:
    """Returns whether an option has the same value; runs that a run starts from also by another path, as through a link."""
    return old == new or (name in STARTS and bool(old and new) and os.path.realpath(old) == os.path.realpath(new))


def source_subwords_in(folder: pathlib.Path) -> pathlib.Path | None:
    """Returns the file of the source's own sub-words in a data folder; `None` if it has none."""
    return path if (path := folder / SOURCE_SUBWORDS).exists() else None


def _has_source_subwords(model_dir: pathlib.Path) -> bool:
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
        records: index of the training records, which identifies the training data; `None` for a model that was trained elsewhere.
        source_subwords: file of the source's own sub-words, if it has some; it is copied.
    """
    parent = read_json(model_dir / CONFIG).get("parent") if checkpoint.kept(model_dir) else None
    if options.train.starts_from and not parent:
        parent = {"checkpoints": checkpoint.identity(pathlib.Path(options.train.starts_from), options.train.parent_checkpoint)}
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


def check_data(model_dir: pathlib.Path, subwords: pathlib.Path, records: pathlib.Path, source_subwords: pathlib.Path | None = None) -> None:
    """Checks that a data folder is the one that a run was trained on.

    Args:
        model_dir: the run's folder.
        subwords: file of the data folder's sub-words.
        records: index of the data folder's training records.
        source_subwords: file of the source's own sub-words in the data folder, if there is one.

    Raises:
        ValueError: the sub-words or the training records differ.
    """
    of_run = [model_dir / SUBWORDS, *([model_dir / SOURCE_SUBWORDS] if _has_source_subwords(model_dir) else [])]
    if [describe(path) for path in (subwords, source_subwords) if path] != [describe(path) for path in of_run]:
        raise ValueError(
            f"{model_dir} holds a model with other sub-words than {subwords.parent}. To train it on other text, start a new run with "
            f"`parent={model_dir}`, in another `model_dir`."
        )
    expected = read_json(model_dir / CONFIG).get("records")
    if expected is not None and describe(records) != expected:
        raise ValueError(
            f"{model_dir} was trained on other records than those in {subwords.parent}. To train its model on them, start a new run with "
            f"`parent={model_dir}`, in another `model_dir`."
        )


def read_subwords(model_dir: pathlib.Path) -> tuple[bytes, ...]:
    """Reads the sub-words of a run, and those of its source if it has its own: the arguments of `vocabulary.load_sides`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is not the one that the run was trained with.
    """
    names = {"subwords": SUBWORDS} | ({"source_subwords": SOURCE_SUBWORDS} if _has_source_subwords(model_dir) else {})
    return tuple(_read_subwords(model_dir, key, name) for key, name in names.items())


def _read_subwords(model_dir: pathlib.Path, key: str, name: str) -> bytes:
    path = model_dir / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. Restore it: a model cannot be used without its sub-words.")
    expected = read_json(model_dir / CONFIG).get(key)
    if expected is not None and (received := describe(path)) != expected:
        raise ValueError(f"{path} is not what {model_dir} was trained with. Expected: {expected}. Received: {received}. Restore that file.")
    return path.read_bytes()
