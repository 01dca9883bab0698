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
from t2t_keras.runs import checkpoint, data_folder, run_folder, run_options
from t2t_keras.runs.data_folder import CORPUS
from t2t_keras.runs.run_options import ARCHITECTURE, OF_PARENT, OF_RUN, TRANSFORMER, Options, option_names
from t2t_keras.system.files import CONFIG, DATA, LOCK, SOURCE_SUBWORDS, SUBWORDS, check_folder, check_no_link, read_json


def resolve(
    model_dir: pathlib.Path,
    given: dict,
    data_dir: str = "",
    sources: dict[str, str] | None = None,
    *,
    resumes: bool = True,
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
    of_run = run_folder.read(model_dir) if run_folder.is_run(model_dir) and resumes else None
    is_trained = of_run is not None and checkpoint.kept(model_dir)
    paths = [name for name in options_with(TrainConfig, "path") if given.get(name)]
    given = given | {name: os.path.abspath(os.path.expanduser(given[name])) for name in paths}
    parent, child, of_parent = None, None, {}
    if not is_trained and (origin := given.get("parent") or given.get("encoder_from")):
        parent, chosen = pathlib.Path(origin), vars(of_run.train if of_run else TrainConfig()) | given
        architecture = (
            "" if given.get("parent") else given.get(ARCHITECTURE, of_run.architecture if of_run else TRANSFORMER)
        )
        child = _child_of(parent, chosen["parent_checkpoint"], chosen["parent_optimizer"], architecture)
        of_parent = {} if of_run else _subwords_of(parent, given)
    if of_run and not is_trained:
        _check_start_of(model_dir, of_run.train, given)
    before = of_run or child or Options.default(given.get(ARCHITECTURE, TRANSFORMER))
    if given.get(ARCHITECTURE, before.architecture) != before.architecture:
        raise ValueError(
            f"Expected architecture={before.architecture}, that of the run in {parent or model_dir}. "
            f"Received: architecture={given[ARCHITECTURE]}. Give another `{'parent' if parent else 'model_dir'}`."
        )
    run_options.check_names(given, before.architecture)
    given = of_parent | given
    origins = dict.fromkeys(given, "given") | dict.fromkeys(of_parent, f"{OF_PARENT}default")
    origins |= ({"data_dir": "given"} if data_dir else {}) | (sources or {})
    data_dir = run_options.stored(model_dir, data_dir) if data_dir else before.data_dir
    folder = Options(data_dir=data_dir).data_folder(model_dir)
    prepared, of_data = _prepared(folder), {field.name for field in dataclasses.fields(DataConfig)}
    # `changes` compares sizes.
    _check_prepared(folder, prepared, {name: given[name] for name in given if not of_run or name in of_data})
    if not of_run:
        taken = _taken(prepared, given)
        run_options.check_names(taken, before.architecture)
        given, origins = taken | given, dict.fromkeys(taken, "data folder") | origins
    try:
        chosen = _replaced(before, given)
    except ValueError as error:
        raise ValueError(
            f"{error} Options not given are those of {model_dir / CONFIG}." if of_run else str(error)
        ) from error
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
        _check_same(child.model, chosen["model"], options, f"of the {part} in {parent}")
    inherited = option_names(before.architecture) | {ARCHITECTURE, "data_dir"} if of_run else before.sources
    origins = {
        name: (OF_RUN if of_run else OF_PARENT) + before.sources.get(name, "default") for name in inherited
    } | origins
    return Options(**chosen, data_dir=data_dir, architecture=before.architecture, sources=origins)


def _replaced(options: Options, given: dict) -> dict:
    """Returns the groups of options with the given values. Raises `ValueError` for invalid ones, of any
    architecture.
    """
    chosen = {}
    for name, group in options.groups.items():
        own = {field.name: given[field.name] for field in dataclasses.fields(group) if field.name in given}
        chosen[name] = dataclasses.replace(group, **own)
        check_fields(chosen[name])
    return chosen


def _subwords_of(parent: pathlib.Path, given: dict) -> dict:
    """Returns the options with which a new run with text of its own has the sub-words of its parent, without those
    given.
    """
    if not ({"dataset", "train_source"} & given.keys() and given.get("parent_subwords", True)):
        return {}
    found = {"subwords_file": str(parent / SUBWORDS)}
    if run_folder.has_source_subwords(parent):
        found["source_subwords_file"] = str(parent / SOURCE_SUBWORDS)
    if "subwords_file" not in given:
        found["subwords"] = run_folder.read(parent).data.subwords
    return {name: value for name, value in found.items() if name not in given}


def _child_of(parent: pathlib.Path, which: str, optimizer: bool, architecture: str) -> Options:
    """Returns the defaults of a new run that starts from the weights of another one.

    They are its architecture, model and search or, for a given architecture, the sizes of its encoder. Their `sources`
    are those of the other run.

    Raises:
        FileNotFoundError: the folder is not a run's, or has no checkpoint.
        ValueError: the run is damaged, or has no optimizer for its child.
    """
    try:
        run = run_folder.read(parent)
        run_folder.check_checkpoint(parent, which)
        checkpoint.identity(parent, which)
        if optimizer and (run.train.freeze or not checkpoint.has_optimizer(parent, which)):
            received = (
                f"{parent}, "
                f"{f'trained with freeze={run.train.freeze}' if run.train.freeze else 'whose checkpoint has none'}"
            )
            raise ValueError(
                f"Expected a parent with an optimizer of all weights. Received: {received}. Leave out "
                "`parent_optimizer`."
            )
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
        ValueError: one of both has no encoder of the Transformer, the source of the run has sub-words of its own, or
            the architecture cannot have such an encoder.
    """
    encoder, defaults = getattr(run.model, "encoder", run.model), Options.default(architecture)
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


def _check_start_of(model_dir: pathlib.Path, before: TrainConfig, given: dict) -> None:
    """Raises `ValueError` if a run without a checkpoint is to start from other weights than before, wherever these are
    now.
    """
    for name in given.keys() & STARTS:
        path, now = getattr(before, name), given[name]
        if path and now and pathlib.Path(path).resolve() != pathlib.Path(now).resolve():
            hashes = checkpoint.identity(pathlib.Path(now), given.get("parent_checkpoint", before.parent_checkpoint))
            same = read_json(model_dir / CONFIG).get("parent") == {"checkpoints": hashes}
        else:
            same = bool(path) == bool(now)
        if not same:
            expected, received = (f"{name}={each or 'none'}" for each in (path, now))
            raise ValueError(
                f"Expected {expected}, with which {model_dir} was started. Received: {received}. Give another "
                "`model_dir`."
            )


def _prepared(folder: pathlib.Path) -> dict:
    """Returns the options that a data folder was prepared with, sizes of vocabularies included; none without
    `corpus.json`.

    Raises:
        ValueError: `corpus.json` is damaged.
    """
    if not (folder / CORPUS).exists():
        return {}
    recorded = data_folder.recorded_options(folder)
    found = {
        name: value
        for name, value in vars(data_folder.prepared_with(folder)).items()
        if name in recorded and name not in FILES
    }
    if "vocab_size" in recorded:
        found |= {"vocab_size": recorded["vocab_size"], "source_vocab_size": recorded.get("source_vocab_size", 0)}
    return found


def _check_prepared(folder: pathlib.Path, prepared: dict, given: dict) -> None:
    """Raises `ValueError` where given options are not those that a data folder was prepared with."""
    if differ := [name for name in prepared if given.get(name, prepared[name]) != prepared[name]]:
        expected, received = (", ".join(f"{name}={values[name]}" for name in differ) for values in (prepared, given))
        raise ValueError(
            f"Expected {expected}, with which {folder} was prepared. Received: {received}. Leave out what differs, or "
            "give another `data_dir` or `model_dir`."
        )


def _taken(prepared: dict, given: dict) -> dict:
    """Returns the options that a new run takes from its data folder: all, or those for any corpus if it names another
    one.
    """
    same_dataset = given.get("dataset") == prepared.get("dataset")  # Both may be of text files.
    found = {
        name: value
        for name, value in prepared.items()
        if same_dataset or name in ("vocab_size", "source_vocab_size", *options_with(DataConfig, "any_corpus"))
    }
    if not found.get("source_vocab_size"):
        found.pop("source_vocab_size", None)  # Not all architectures have the option.
    return found


def _check_same(before, after, names: Collection[str], whose: str) -> None:
    """Raises `ValueError` where options of a model with these names are not those of the run that its weights are
    from.
    """
    differ = [name for name, value in vars(before).items() if name in names and getattr(after, name) != value]
    if differ:
        expected, received = (
            ", ".join(f"{name}={getattr(model, name)}" for name in differ) for model in (before, after)
        )
        advice = (
            "Give it as `encoder_from`, in place of `parent`." if differ == ["labels"] else "Leave out what differs."
        )
        raise ValueError(f"Expected {expected}, {whose}. Received: {received}. {advice}")


def check(model_dir: pathlib.Path, options: Options) -> None:
    """Checks whether a run can start, as far as that takes no time.

    A new run must have text: options name it, or its data folder is prepared or is being prepared.

    Raises:
        FileExistsError: the data folder holds files that no preparation wrote.
        FileNotFoundError: there is neither a run in the folder nor text for a new one.
        NotADirectoryError: a path cannot be a folder.
        ValueError: the two folders are one, the data folder is that of a run, or it is a link in the run's folder; see
            also `run_folder.is_run`.
    """
    folder = options.data_folder(model_dir)
    if folder.resolve() == model_dir.resolve():
        raise ValueError(f"Expected two folders as `model_dir` and `data_dir`. Received: {folder} for both.")
    check_folder(model_dir, "model_dir")
    is_run = run_folder.is_run(model_dir)
    check_no_link(model_dir / DATA)
    data_folder.check(folder)
    if not (options.data.names_corpus or is_run or (folder / CORPUS).exists() or (folder / LOCK).exists()):
        texts = " and ".join(f"`train_{side}`" for side in options.task.texts)
        missing = f"prepared data in {folder}" if options.data_dir else f"run in {model_dir}"
        raise FileNotFoundError(
            f"There is no {missing}. To resume a run, give its `model_dir`; for a new one, give {texts}, `dataset`, or "
            "a prepared `data_dir`."
        )


def check_given(model_dir: pathlib.Path, options: Options, names: Iterable[str], purpose: str) -> None:
    """Checks options that name something outside of a run's folder: only those given in this start are used, because a
    folder, with its options, may come from someone else.

    Args:
        model_dir: the run's folder.
        options: from `resolve`.
        names: the options that are going to be used.
        purpose: what for; the message says it.

    Raises:
        ValueError: options are known from the folder only. The message shows their values.
    """
    values = {name: value for group in options.groups.values() for name, value in vars(group).items()} | {
        "data_dir": options.data_dir
    }
    unknown = [
        f"`{name}={values[name]}`"
        for name in names
        if values[name] and options.sources.get(name, "").startswith(OF_RUN)
    ]
    if unknown:
        raise ValueError(
            f"Expected {', '.join(unknown)} to be given again, or other values, to {purpose}. They are only recorded "
            f"in {model_dir / CONFIG}, which may come from someone else."
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
    # All options of the network, which are those of its weights.
    fixed = {field.name for field in dataclasses.fields(before.model)}
    fixed.update(*(options_with(type(group), "fixed") for group in before.groups.values()))
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
        received = ", ".join(
            f"{name}={new} (the run: {old})" for name, old, new in found if name in fixed or name in TEXTS
        )
        raise ValueError(
            f"Expected the options that {model_dir} was trained with. Received: {received}. Leave them out to resume "
            "that run, or start a new run in another `model_dir`."
        )
    return ", ".join(f"`{name}` {old} → {new}" for name, old, new in found)


def retained(options: Options) -> str:
    """Lists the options that an earlier start was given and this one was not, with their values; empty if it was given
    none itself.
    """
    sources = {name: source for name, source in options.sources.items() if name in option_names(options.architecture)}
    if all(source.startswith(OF_RUN) for source in sources.values()):
        return ""
    not_given = tuple(OF_RUN + source for source in ("default", "data folder", OF_PARENT))
    # Text that is not named is that of the data folder.
    values = vars(options.model) | vars(options.train) | vars(options.decode)
    earlier = {
        name for name, source in sources.items() if source.startswith(OF_RUN) and not source.startswith(not_given)
    }
    return ", ".join(f"`{name}={value}`" for name, value in values.items() if name in earlier)


def _is_same(name: str, old, new) -> bool:
    """Returns whether an option has the same value; runs that a run starts from also by another path, as through a
    link.
    """
    return old == new or (name in STARTS and bool(old and new) and os.path.realpath(old) == os.path.realpath(new))
