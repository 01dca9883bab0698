"""The options that a run starts or resumes with, and what they must fit. Does not import TensorFlow."""

import dataclasses
import os
import pathlib
from collections.abc import Collection, Iterable

from t2t_keras.config import (
    FILES,
    STARTS,
    TEXTS,
    DataConfig,
    ModelConfig,
    TrainConfig,
    check_fields,
    options_with,
)
from t2t_keras.runs import checkpoint, data_folder, run_options
from t2t_keras.runs.data_folder import CORPUS
from t2t_keras.runs.run_options import ARCHITECTURE, COMPUTED, OF_PARENT, OF_RUN, TRANSFORMER, Options, option_names
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system.files import CONFIG, DATA, LOCK, SOURCE_SUBWORDS, SUBWORDS, check_folder, check_no_link

LENGTHS = ("train_steps", "epochs")  # Options of the length of training, of which a run has one.


def _resolve(
    model_dir: pathlib.Path, run: SavedRun | None, given: dict, data_dir: str, sources: dict[str, str]
) -> tuple[Options, SavedRun | None]:
    """Returns the options of `Start.open`, and the run whose weights a new run starts from. `run` is the one that gives
    options.
    """
    of_run = run.options if run else None
    is_trained = of_run is not None and checkpoint.kept(model_dir)
    paths = [name for name in options_with(TrainConfig, "path") if given.get(name)]
    given = given | {name: os.path.abspath(os.path.expanduser(given[name])) for name in paths}
    parent, child = (None, None) if is_trained else _parent_and_child(of_run, given)
    of_parent = _subwords_of(parent, given) if parent and not of_run else {}
    if of_run and not is_trained:
        _check_start_of(run, given)
    before = of_run or child or Options.default(given.get(ARCHITECTURE, TRANSFORMER))
    if given.get(ARCHITECTURE, before.architecture) != before.architecture:
        folder, option = (parent.folder, "parent") if parent else (model_dir, "model_dir")
        raise ValueError(
            f"Expected architecture={before.architecture}, that of the run in {folder}. Received: "
            f"architecture={given[ARCHITECTURE]}. Give another `{option}`."
        )
    run_options.check_names(given, before.architecture)
    given = of_parent | _with_one_length(given, sources)
    sources = {name: source for name, source in sources.items() if name in given or name not in LENGTHS}
    origins = dict.fromkeys(given, "given") | dict.fromkeys(of_parent, f"{OF_PARENT}default")
    origins |= ({"data_dir": "given"} if data_dir else {}) | sources
    data_dir = run_options.stored(model_dir, data_dir) if data_dir else before.data_dir
    folder = Options(data_dir=data_dir).data_folder(model_dir)
    prepared, of_data = _prepared(folder), {field.name for field in dataclasses.fields(DataConfig)}
    decided = {"vocab_size": prepared or of_run, "length_buckets": is_trained}  # A 0 asks for what was decided before.
    given = {name: value for name, value in given.items() if value != 0 or not decided.get(name)}
    origins = {name: source for name, source in origins.items() if name in given or name not in decided}
    # `changes` compares the options of a run that has been trained and the sizes of its vocabularies, and
    # `Preparation.check` the contents of files.
    of_prepared = () if is_trained and of_run.data.names_corpus else of_data if of_run else prepared
    compared = (name for name in prepared if name in of_prepared and name in given and name not in FILES)
    data_folder.check_options(folder, prepared, {name: given[name] for name in compared})
    if not of_run:
        taken = _taken(prepared, given)
        run_options.check_names(taken, before.architecture)
        given, origins = taken | given, dict.fromkeys(taken, "data folder") | origins
    try:
        chosen = _replaced(before, given)
        run_options.check_best_metric(chosen, before.task)
    except ValueError as error:
        raise ValueError(
            f"{error} Options not given are those of {model_dir / CONFIG}." if of_run else str(error)
        ) from error
    # A flagfile may be for several kinds of runs, and a run, its parent and its data keep what they have.
    known = {ARCHITECTURE: before.architecture} | prepared
    known |= {name: value for group in before.groups.values() for name, value in vars(group).items()}
    asked = [name for name in given if given[name] != known[name]]
    elsewhere = ("flagfile", "data folder", OF_PARENT)
    asked = [name for name in asked if not origins[name].startswith(elsewhere)]
    run_options.check_given(chosen, before.task, asked)
    run_options.check_positions(chosen, before.task)
    named = given.keys() & of_data
    repeated = of_run and chosen["data"] == before.data and not named & {"dataset", *TEXTS}
    if repeated or not named:
        # A run that does not name its text uses its data folder, and does not check the text.
        chosen["data"] = DataConfig()
    run_options.check_training(chosen, before.task)
    run_options.check_text(chosen, before.task)
    if parent:
        inherited = {"d_model", *options_with(type(child.model), "inherited")}
        of_encoder = {*options_with(ModelConfig, "encoder")} - {"vocab_size"}
        options, part = (inherited, "model") if given.get("parent") else (of_encoder, "encoder")
        _check_same(child.model, chosen["model"], options, f"of the {part} in {parent.folder}")
    inherited = option_names(before.architecture) | {ARCHITECTURE, "data_dir"} if of_run else before.sources
    whose = OF_RUN if of_run else OF_PARENT
    origins = {name: whose + before.sources.get(name, "default") for name in inherited} | origins
    return Options(**chosen, data_dir=data_dir, architecture=before.architecture, sources=origins), parent


def _parent_and_child(of_run: Options | None, given: dict) -> tuple[SavedRun | None, Options | None]:
    """Returns the run whose weights a new run starts from, and the options with which it does; `None` for neither."""
    if not (origin := given.get("parent") or given.get("encoder_from")):
        return None, None
    train = vars(of_run.train if of_run else TrainConfig()) | given
    usual = of_run.architecture if of_run else TRANSFORMER
    architecture = "" if given.get("parent") else given.get(ARCHITECTURE, usual)
    parent = _open_parent(pathlib.Path(origin), train["parent_checkpoint"], train["parent_optimizer"], architecture)
    return parent, _with_encoder_of(parent, architecture) if architecture else _child_of(parent)


def _with_one_length(given: dict, sources: dict[str, str]) -> dict:
    """Returns given options with one of `epochs` and `train_steps`: the command line's before that of a row or a model,
    and both before a flagfile's.
    """
    lengths = [name for name in LENGTHS if given.get(name)]
    if len(lengths) == 2:
        of_command_line = [name for name in LENGTHS if sources.get(name) == "command line"]
        lengths = of_command_line or [name for name in LENGTHS if not sources.get(name, "given").startswith("flagfile")]
        if len(lengths) != 1:
            received = ", ".join(f"{name}={given[name]}" for name in LENGTHS)
            advice = " Give epochs=0 to train for `train_steps`." if set(sources) & set(LENGTHS) else ""
            raise ValueError(f"`train_steps` and `epochs` exclude each other. Received: {received}.{advice}")
        given = {name: value for name, value in given.items() if name not in LENGTHS or name in lengths}
    return given | {"epochs": 0.0} if lengths == ["train_steps"] else given


def _replaced(options: Options, given: dict) -> dict:
    """Returns the groups of options with the given values. Raises `ValueError` for invalid ones."""
    chosen = {}
    for name, group in options.groups.items():
        own = {field.name: given[field.name] for field in dataclasses.fields(group) if field.name in given}
        chosen[name] = dataclasses.replace(group, **own)
        check_fields(chosen[name])
    return chosen


def _subwords_of(parent: SavedRun, given: dict) -> dict:
    """Returns the options, except those given, with which a new run with its own text has its parent's sub-words."""
    if not ({"dataset", "train_source"} & given.keys() and given.get("parent_subwords", True)):
        return {}
    options = {"subwords_file": str(parent.folder / SUBWORDS)}
    if parent.has_source_subwords:
        options["source_subwords_file"] = str(parent.folder / SOURCE_SUBWORDS)
    if "subwords_file" not in given:
        options["subwords"] = parent.data.subwords
    return {name: value for name, value in options.items() if name not in given}


def _open_parent(folder: pathlib.Path, which: str, optimizer: bool, architecture: str) -> SavedRun:
    """Opens the run whose weights a new one starts from: its `parent` or, for an architecture, its `encoder_from`."""
    try:
        run = SavedRun.open(folder)
        options = run.options
        run.check_checkpoint(which)
        checkpoint.identity(folder, which)
        if optimizer and (options.train.freeze or not checkpoint.has_optimizer(folder, which)):
            frozen = f"trained with freeze={options.train.freeze}"
            reason = frozen if options.train.freeze else "whose checkpoint has none"
            raise ValueError(
                f"Expected a parent with an optimizer of all weights. Received: {folder}, {reason}. Leave out "
                "`parent_optimizer`."
            )
        return run
    except (FileNotFoundError, ValueError) as error:
        kind = ValueError if isinstance(error, ValueError) else FileNotFoundError
        name = "`encoder_from`" if architecture else "`parent`"
        raise kind(str(error).replace("`checkpoint", "`parent_checkpoint").replace("`model_dir`", name)) from error


def _child_of(parent: SavedRun) -> Options:
    """Returns the defaults of a new run that starts from the weights of another one: its architecture, model and
    search. Their `sources` are those of the other run.
    """
    run = parent.options
    inherited = {name: run.sources.get(name, "default") for name in (*vars(run.model), *vars(run.decode), ARCHITECTURE)}
    return dataclasses.replace(Options.default(run.architecture), model=run.model, decode=run.decode, sources=inherited)


def _with_encoder_of(parent: SavedRun, architecture: str) -> Options:
    """Returns the defaults of an architecture with the sizes of the encoder of a run. Both must have a Transformer's
    encoder, and the source of the run no sub-words of its own.
    """
    run, folder, defaults = parent.options, parent.folder, Options.default(architecture)
    encoder = getattr(run.model, "encoder", run.model)
    names = options_with(ModelConfig, "encoder") if isinstance(encoder, ModelConfig) else ()
    theirs = {name: getattr(encoder, name) for name in names}
    own = {name: value for name, value in theirs.items() if hasattr(defaults.model, name)}
    if "d_ff" not in own or run.source_vocab_size:
        received = f"architecture={run.architecture} in {folder}, for architecture={architecture}"
        expected = "an encoder of the Transformer, with one vocabulary, as `encoder_from`"
        raise ValueError(
            f"Expected {expected}. Received: {received}{' with sub-words of the source' * bool(run.source_vocab_size)}."
        )
    model = dataclasses.replace(defaults.model, **own)
    if differ := [name for name in theirs if getattr(getattr(model, "encoder", model), name) != theirs[name]]:
        received = ", ".join(f"{name}={theirs[name]}" for name in differ)
        raise ValueError(
            f"Expected an encoder that architecture={architecture} can have. Received: {received} in {folder}."
        )
    return dataclasses.replace(defaults, model=model, sources={name: run.sources.get(name, "default") for name in own})


def _check_start_of(run: SavedRun, given: dict) -> None:
    """Raises `ValueError` if a run without a checkpoint is to start from other weights than before, wherever these are
    now.
    """
    for name in given.keys() & STARTS:
        path, now = getattr(run.train, name), given[name]
        if path and now and pathlib.Path(path).resolve() != pathlib.Path(now).resolve():
            hashes = checkpoint.identity(pathlib.Path(now), given.get("parent_checkpoint", run.train.parent_checkpoint))
            same = run.parent == {"checkpoints": hashes}
        else:
            same = bool(path) == bool(now)
        if not same:
            raise ValueError(
                f"{run.folder} was started with {name}={path or 'none'}. Received: {name}={now or 'none'}. Give "
                "another `model_dir`."
            )


def _prepared(folder: pathlib.Path) -> dict:
    """Returns the options, with sizes of vocabularies, that a folder was prepared with; none without `corpus.json`."""
    if not (folder / CORPUS).exists():
        return {}
    recorded = data_folder.recorded_options(folder)
    found = {
        name: value
        for name, value in vars(data_folder.prepared_with(folder)).items()
        if name in recorded and (name not in FILES or name == "train_terms")
    }
    if "vocab_size" in recorded:
        found |= {"vocab_size": recorded["vocab_size"], "source_vocab_size": recorded.get("source_vocab_size", 0)}
    return found


def _taken(prepared: dict, given: dict) -> dict:
    """Returns the options that a new run takes from its data folder: all, or those for any corpus if it names another
    one.
    """
    names = set(prepared)
    if given.get("dataset") != prepared.get("dataset"):  # Both may be of text files.
        names &= {"vocab_size", "source_vocab_size", *options_with(DataConfig, "any_corpus")}
    if not prepared.get("source_vocab_size"):
        names.discard("source_vocab_size")  # Not all architectures have the option.
    return {name: value for name, value in prepared.items() if name in names}


def _check_same(before, after, names: Collection[str], whose: str) -> None:
    """Raises `ValueError` where options of a model with these names are not those of the run that its weights are
    from.
    """
    differ = [name for name, value in vars(before).items() if name in names and getattr(after, name) != value]
    if differ:
        models = (before, after)
        expected, received = (", ".join(f"{name}={getattr(each, name)}" for name in differ) for each in models)
        instead = "Give it as `encoder_from`, in place of `parent`."
        advice = instead if differ == ["labels"] else "Leave out what differs."
        raise ValueError(f"Expected {expected}, {whose}. Received: {received}. {advice}")


@dataclasses.dataclass(frozen=True)
class Start:
    """The start of a run with resolved options: whether it may start, and what changes."""

    folder: pathlib.Path  # The run's folder or a new one.
    options: Options  # Those to start with.
    before: SavedRun | None = None  # The run that is in the folder.
    parent: SavedRun | None = None  # The run whose weights a new run starts from.

    @classmethod
    def open(
        cls,
        folder: pathlib.Path,
        given: dict,
        data_dir: str = "",
        sources: dict[str, str] | None = None,
        *,
        run: SavedRun | None = None,
        resumes: bool = True,
    ) -> "Start":
        """Opens the run in a folder, or a new one. Its options are those given, then those of the run, then the
        defaults.

        Args:
            given: values by option, "architecture" among them if it is given.
            sources: where the given values come from, by option. The default is "given".
            run: the run in the folder, if the program has opened it before.
            resumes: whether the run in the folder gives options. If not, they are those that a new run would have.

        Raises `FileNotFoundError` if there is no run to start from, or it has no checkpoint; `ValueError` if the folder
        has other files, or an option is invalid, or does not fit the others, the weights that the run starts from, or
        its data.
        """
        check_folder(folder, "model_dir")
        before = run if run and run.is_current else SavedRun.find(folder)
        options, parent = _resolve(folder, before if resumes else None, given, data_dir, sources or {})
        return cls(folder, options, before, parent)

    @classmethod
    def of(cls, folder: pathlib.Path, options: Options) -> "Start":
        """Opens the run in a folder, or a new one, with options as they are, but for what was decided when the run
        started. Raises the errors of `SavedRun.find`.
        """
        check_folder(folder, "model_dir")
        start = cls(folder, options, SavedRun.find(folder))
        if start.is_resumed:
            return dataclasses.replace(start, options=_as_decided(options, start.before.train))
        if options.train.starts_from:
            return dataclasses.replace(start, parent=SavedRun.open(pathlib.Path(options.train.starts_from)))
        return start

    def current(self) -> "Start":
        """Returns this start, or a new one if another process has written the run meanwhile."""
        is_same = self.before.is_current if self.before else not (self.folder / CONFIG).exists()
        return self if is_same else Start.of(self.folder, self.options)

    @property
    def is_resumed(self) -> bool:
        """Whether the run has weights to go on with."""
        return bool(self.before and checkpoint.kept(self.folder))

    @property
    def data_folder(self) -> pathlib.Path:
        """The folder of the data."""
        return self.options.data_folder(self.folder)

    def check(self) -> None:
        """Checks whether the run can start, as far as that takes no time: its folder and its data folder are two, and
        the latter holds no run and no files that no preparation wrote.

        A new run must have text: options name it, or its data folder is prepared or is being prepared.
        """
        folder, options = self.data_folder, self.options
        if folder.resolve() == self.folder.resolve():
            raise ValueError(f"`model_dir` and `data_dir` must be two folders. Received: {folder} for both.")
        check_no_link(self.folder / DATA)
        data_folder.check(folder)
        if not (options.data.names_corpus or self.before or (folder / CORPUS).exists() or (folder / LOCK).exists()):
            texts = " and ".join(f"`train_{side}`" for side in options.task.texts)
            missing = f"prepared data in {folder}" if options.data_dir else f"run in {self.folder}"
            raise FileNotFoundError(
                f"There is no {missing}. To resume a run, give its `model_dir`; for a new one, give {texts}, "
                "`dataset`, or a prepared `data_dir`."
            )

    def check_given(self, names: Iterable[str], purpose: str) -> None:
        """Checks options that name something outside of a run's folder: only those given in this start are used,
        because a folder, with its options, may come from someone else. The message shows the values of the others, and
        says the `purpose`.
        """
        options, values = self.options, {"data_dir": self.options.data_dir}
        for group in options.groups.values():
            values |= vars(group)
        if unknown := [
            f"`{name}={values[name]}`"
            for name in names
            if values[name] and options.sources.get(name, "").startswith(OF_RUN)
        ]:
            raise ValueError(
                f"Expected {', '.join(unknown)} to be given again, or other values, to {purpose}. These values are "
                f"only recorded in {self.folder / CONFIG}, which may come from someone else."
            )

    def changes(self) -> str:
        """Lists the options that differ from those of the run in the folder, with both values; empty if none differs.
        It is an error if there are checkpoints and an option differs that must not.
        """
        if not self.before:
            return ""
        before, after, changed = self.before.options, self.options, []
        for name in before.groups:
            old, new = getattr(before, name), getattr(after, name)
            if name != "data" or (old.names_corpus and new.names_corpus):
                fields = [field.name for field in dataclasses.fields(old)]
                values = [(field, getattr(old, field), getattr(new, field)) for field in fields]
                changed += [change for change in values if not is_same(*change)]
        if before.data_dir != after.data_dir:
            changed.append(("data_dir", before.data_folder(self.folder), self.data_folder))
        # All options of the network, which are those of its weights.
        fixed = {field.name for field in dataclasses.fields(before.model)}
        fixed.update(*(options_with(type(group), "fixed") for group in before.groups.values()))
        if self.is_resumed and any(name in fixed for name, _, _ in changed):
            shown = [change for change in changed if change[0] in fixed or change[0] in TEXTS]
            received = ", ".join(f"{name}={new} (the run: {old})" for name, old, new in shown)
            raise ValueError(
                f"Expected the options that {self.folder} was trained with. Received: {received}. Leave them out to "
                "resume that run, or start a new run in another `model_dir`."
            )
        return ", ".join(f"`{name}` {old} → {new}" for name, old, new in changed)

    def retained(self) -> str:
        """Lists the options that an earlier start was given and this one was not, with their values; empty if it was
        given none itself.
        """
        options, names = self.options, option_names(self.options.architecture)
        sources = {name: source for name, source in options.sources.items() if name in names}
        if all(source.startswith(OF_RUN) for source in sources.values()):
            return ""
        not_given = tuple(OF_RUN + source for source in ("default", "data folder", COMPUTED, OF_PARENT))
        # Text that is not named is that of the data folder.
        values = vars(options.model) | vars(options.train) | vars(options.decode)
        of_run = {name: source for name, source in sources.items() if source.startswith(OF_RUN)}
        earlier = {name for name, source in of_run.items() if not source.startswith(not_given)}
        return ", ".join(f"`{name}={value}`" for name, value in values.items() if name in earlier)


def _as_decided(options: Options, before: TrainConfig) -> Options:
    """Returns options with what a run that has been trained decided: the updates of as many epochs, and its
    `length_buckets` if 0 asks for the default.
    """
    train = options.train
    updates = before.train_steps if train.epochs and train.epochs == before.epochs else train.train_steps
    buckets = train.length_buckets or before.length_buckets
    return dataclasses.replace(options, train=dataclasses.replace(train, train_steps=updates, length_buckets=buckets))


def is_same(name: str, old, new) -> bool:
    """Returns whether an option has the same value. A run to start from may have another path, as through a link."""
    numbers, texts = (isinstance(old, kind) and isinstance(new, kind) for kind in (int | float, str))
    if name == "length_buckets" and numbers:  # Both 0 and 1 round no lengths in a run that has been trained.
        old, new = max(old, 1.0), max(new, 1.0)
    is_path = name in STARTS and texts and bool(old and new)
    return old == new or (is_path and os.path.realpath(old) == os.path.realpath(new))
