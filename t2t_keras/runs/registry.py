"""Architectures and tasks by name: what `--architecture` and `config.json` may name. Imports neither TensorFlow nor
Keras.

A package registers its own without any change here, in a module that it names as an entry point:

    [project.entry-points."t2t_keras.plugins"]
    mine = "my_package.my_module"        # calls register_architecture and register_task

A program that imports such a module itself needs no entry point. Names in a stranger's `config.json` are only looked
up, never imported.
"""

import dataclasses
import functools
import importlib
import importlib.metadata
from collections.abc import Callable

from t2t_keras.config import BertConfig, ClassifierConfig, DataConfig, DecodeConfig, ModelConfig, RnnConfig, TrainConfig
from t2t_keras.runs.task import OF_ONE_UPDATE, OF_UPDATES, SUMS, Task


def _load(what):
    """Imports an object given as "module:name"; returns any other object."""
    if not isinstance(what, str):
        return what
    module, _, name = what.partition(":")
    return getattr(importlib.import_module(module), name)


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A registered architecture; see `register_architecture`."""

    name: str
    options: type
    model: object
    task: str

    def model_class(self) -> Callable:
        """Imports the model's class."""
        return _load(self.model)


_architectures: dict[str, Architecture] = {}
_tasks: dict[str, object] = {}


def register_architecture(name: str, *, options: type, model: object, task: str = "translation") -> None:
    """Registers an architecture. Raises `ValueError` if its name is taken, or an option is missing, has another type
    or the name of an option of training, search or data.

    Args:
        name: its name, for `--architecture`.
        options: a frozen dataclass whose fields are `config.option`s, which become flags. Among them are `vocab_size`,
            the number of sub-words, and `d_model`, the width that section 5.3 scales the learning rate with; a property
            `num_weights` counts all weights.
        model: a `keras.Model`, or "module:class" for one that is imported when it is made, called as model(options,
            dtype=policy). For translation it is a `model.protocols.EncoderDecoder`, for other tasks a
            `model.protocols.SequenceModel`.
        task: name of the task that it is trained for.
    """
    if name in _architectures:
        raise ValueError(f"Expected a new name of an architecture. Received: {name!r}, which is registered.")
    fields = dataclasses.fields(options)
    names = {field.name for field in fields}
    taken = {"architecture", "data_dir", "model_dir", "model"} | {
        field.name for group in (TrainConfig, DecodeConfig, DataConfig) for field in dataclasses.fields(group)
    }
    if clashes := sorted(names & taken):
        raise ValueError(
            f"Expected options of {name!r} with other names than those of training, search and data. Received: "
            f"{clashes}."
        )
    if missing := sorted({"vocab_size", "d_model"} - names) + ["num_weights"] * (not hasattr(options, "num_weights")):
        raise ValueError(
            f"Expected options of {name!r} with vocab_size, d_model and num_weights. Received none named "
            f"{', '.join(missing)}."
        )
    # Postponed annotations (`from __future__ import annotations`) are text, of which no flag can be made.
    usable = {each.name for each in fields if each.type in (bool, int, float, str) and "help" in each.metadata}
    if wrong := [each.name for each in fields if each.name not in usable]:
        raise ValueError(
            f"Expected `t2t_keras.option`s of type bool, int, float or str in {options.__name__}, without `from "
            f"__future__ import annotations`. Received: {', '.join(wrong)}."
        )
    _architectures[name] = Architecture(name, options, model, task)


def register_task(name: str, task: object) -> None:
    """Registers a task: a `task.Task` or its class, or "module:class" for one that is imported when it is used. Raises
    `ValueError` if the name is taken.
    """
    if name in _tasks:
        raise ValueError(f"Expected a new name of a task. Received: {name!r}, which is registered.")
    _tasks[name] = task


@functools.cache
def _import_plugins() -> None:
    for plugin in importlib.metadata.entry_points(group="t2t_keras.plugins"):
        try:
            plugin.load()
        except Exception as error:
            message = f"The plugin {plugin.value} cannot be imported ({error}). Repair it, or remove its package."
            raise ValueError(message) from error


def architectures() -> dict[str, Architecture]:
    """Returns all architectures by name."""
    _import_plugins()
    return _architectures


def architecture(name: str) -> Architecture:
    """Returns the architecture that is registered under a name."""
    if name not in _architectures and name not in architectures():  # Plugins are imported where they are needed.
        raise ValueError(
            f"Expected `architecture` to be one of {', '.join(architectures())}. Received: architecture={name[:200]}."
        )
    return _architectures[name]


def task(name: str) -> Task:
    """Returns the task that is registered under a name."""
    if name not in _tasks:
        _import_plugins()
    if name not in _tasks:
        raise ValueError(f"Expected a task: {', '.join(_tasks)}. Received: {name!r}.")
    found = _load(_tasks[name])
    found = _tasks[name] = found() if isinstance(found, type) else found  # One object for all that ask.
    found.name = name
    columns = [column.name for column in getattr(found, "columns", ())]
    if found.target not in columns:
        raise ValueError(
            f"Expected `target` of the task {name!r} to be one of its columns, {', '.join(columns)}. Received: "
            f"{found.target!r}."
        )
    if missing := [each for each in ("records", "loss") if getattr(type(found), each) is getattr(Task, each)]:
        raise ValueError(f"Expected the methods `records` and `loss` of the task {name!r}. It lacks `{missing[0]}`.")
    if clashes := sorted(set(found.sums) & {*SUMS, *OF_UPDATES, *OF_ONE_UPDATE}):
        raise ValueError(
            f"Expected sums of the task {name!r} with other names than those of every task. Received: "
            f"{', '.join(clashes)}."
        )
    return found


def task_of(architecture_name: str) -> Task:
    """Returns the task that an architecture is trained for; raises the errors of `architecture` and `task`."""
    return task(architecture(architecture_name).task)


register_architecture("transformer", options=ModelConfig, model="t2t_keras.model.transformer:Transformer")
register_architecture("rnn", options=RnnConfig, model="t2t_keras.model.rnn:Rnn")
register_architecture("bert", options=BertConfig, model="t2t_keras.model.bert:Bert", task="pretraining")
register_architecture(
    "classifier", options=ClassifierConfig, model="t2t_keras.model.bert:Classifier", task="classification"
)
register_task("pretraining", "t2t_keras.tasks.pretraining:Pretraining")
register_task("classification", "t2t_keras.tasks.classification:Classification")
register_task("translation", "t2t_keras.tasks.translation:Translation")
