"""`Options`: the values of all options of one run, and where each comes from. Does not import TensorFlow."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable

from t2t_keras.config import (
    EOS,
    GROUPS,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    TrainConfig,
    check_effects,
    options_with,
)
from t2t_keras.config.options import MODEL, PLACES, require
from t2t_keras.runs import registry
from t2t_keras.system import markdown
from t2t_keras.system.files import DATA

ARCHITECTURE = "architecture"  # Its key in `config.json`, and the option.
BYTES = 256  # Sub-words of every vocabulary that is learned.
TRANSFORMER = "transformer"  # The architecture where none is named.
OF_RUN = "run: "  # In `Options.sources`, before where the resumed run has an option from.
OF_PARENT = "parent: "  # The same of the run whose weights a new one starts from.
COMPUTED = "computed"  # In `Options.sources`, of an option that the text or the machine decides.


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
        sources: where values come from, by option: "command line", "flagfile NAME", "given", "data folder" or
            "computed"; or "run: " or "parent: " and where the resumed run or the parent had the value from. An option
            that is missing here has its default.
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
        """Returns the defaults of an architecture and of its task."""
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

    def _by_heading(self) -> dict[str, dict[str, object]]:
        """Returns the values of all options under the headings of `--help`."""
        headings = {heading: {} for heading in GROUPS}
        headings[PLACES]["data_dir"] = self.data_dir
        headings[MODEL][ARCHITECTURE] = self.architecture
        for group in self.groups.values():
            for field in dataclasses.fields(group):
                heading = headings.setdefault(field.metadata.get("group", MODEL), {})
                heading[field.name] = getattr(group, field.name)
        return headings

    def table(self) -> str:
        """Returns a Markdown table of all options, their values and where these come from, ordered as in `--help`."""
        values = {name: value for heading in self._by_heading().values() for name, value in heading.items()}
        rows = [(option, str(value), self.sources.get(option, "default")) for option, value in values.items()]
        return markdown.table(("option", "value", "from"), rows, padded=True)

    def differing(self) -> dict[str, dict[str, object]]:
        """Returns the values that differ from the defaults, under the headings of `--help`."""
        usual = {ARCHITECTURE: TRANSFORMER, "data_dir": ""}
        for group in Options.default(self.architecture).groups.values():
            usual |= vars(group)
        headings = {
            heading: {option: value for option, value in values.items() if value != usual[option]}
            for heading, values in self._by_heading().items()
        }
        return {heading: values for heading, values in headings.items() if values}

    def summary(self) -> str:
        """Returns the options that differ from the defaults as text: a line each, with its value and where this comes
        from, under the headings of `--help`.
        """
        rows = {
            heading: [
                (option, str(value).replace("\n", "\\n"), self.sources.get(option, "default"))
                for option, value in values.items()
            ]
            for heading, values in self.differing().items()
        }
        cells = [row for of_heading in rows.values() for row in of_heading]
        names, values = (max((len(row[place]) for row in cells), default=0) for place in (0, 1))
        lines = []
        for heading, of_heading in rows.items():
            lines.append(heading)
            lines += [f"  {name:{names}}  {value:{min(values, 60)}}  {source}" for name, value, source in of_heading]
        return "\n".join(lines)


def stored(model_dir: pathlib.Path, data_dir: str | os.PathLike) -> str:
    """Returns the path of a data folder in the form of `Options.data_dir`."""
    path = os.path.abspath(data_dir)
    return "" if path == os.path.abspath(model_dir / DATA) else path


def check_names(given: dict, architecture: str) -> None:
    """Raises `ValueError` for options that an architecture does not have, and names those that have them."""
    for option in sorted(given.keys() - option_names(architecture) - {ARCHITECTURE}):
        others = [name for name in registry.architectures() if option in option_names(name)]
        of = f"an option of architecture={' or '.join(others)}" if others else "which no architecture has"
        raise ValueError(f"Expected options of architecture={architecture}. Received: {option}={given[option]}, {of}.")


def check_given(groups: dict, task, given: Iterable[str]) -> None:
    """Raises `ValueError` for given options of a run that have no effect in it.

    An option that asks for nothing, as 0 or an empty text, is never refused.
    """
    facts, values = {}, {}
    for group in groups.values():
        facts |= {field.name: field.metadata for field in dataclasses.fields(group)}
        values |= vars(group)
    check_effects(facts, values, [name for name in given if values[name] or values[name] is False], task)
    train = groups["train"]
    if "profile_steps" in given and train.profile_steps and not train.profiled and not train.epochs:
        raise ValueError(
            "`profile_steps` has no effect after the last update. Received: "
            f"profile_steps={train.profile_steps}, train_steps={train.train_steps}."
        )


def check_best_metric(groups: dict, task) -> None:
    """Raises `ValueError` unless validations measure the metric that decides which of them is best."""
    metric = groups["train"].best_metric
    if metric not in task.best_metrics:
        raise ValueError(
            f"Expected `best_metric` to be one of {', '.join(task.best_metrics)}. Received: best_metric={metric}."
        )
    rule = f"`best_metric={metric}` needs `valid_sentences` above 0."
    require(groups["train"], groups["train"].valid_sentences > 0 or not task.translates(metric), rule)


def check_training(groups: dict, task) -> None:
    """Raises `ValueError` where an option of training is not one of the task."""
    for name in options_with(TrainConfig, "task", "augments"):
        if (value := getattr(groups["train"], name)) and not task.augments:
            raise ValueError(f"Expected no `{name}`, because the task {task.name} has none. Received: {name}={value}.")
    if (rate := groups["train"].bpe_dropout) and (kind := groups["data"].subwords) != "bpe":
        raise ValueError(
            f"Expected `subwords=bpe` with `bpe_dropout`. Received: subwords={kind}, bpe_dropout={rate:g}."
        )


def check_positions(groups: dict, task) -> None:
    """Raises `ValueError` if `max_length` exceeds the learned positions of an encoder of plain text."""
    longest, number = groups["data"].max_length, getattr(groups["model"], "learned_positions", 0)
    if task.plain_text and 0 < number < longest:
        expected = f"`max_length` of at most the {number} learned positions"
        raise ValueError(f"Expected {expected}. Received: max_length={longest}, learned_positions={number}.")


def check_text(groups: dict, task) -> None:
    """Raises `ValueError` where the text or the vocabulary of its source is not one of the task."""
    own = {
        "source_vocab_size": getattr(groups["model"], "source_vocab_size", 0),
        "source_subwords_file": groups["data"].source_subwords_file,
    }
    if any(own.values()) and not task.separate_subwords:
        received = ", ".join(f"{name}={value}" for name, value in own.items() if value)
        raise ValueError(
            f"Expected one vocabulary: the task {task.name} has no separate one for the source. Received: {received}."
        )
    task.check_text(groups["data"])
    if not groups["data"].names_corpus:
        return
    for name, file in (("vocab_size", "subwords_file"), ("source_vocab_size", "source_subwords_file")):
        size = getattr(groups["model"], name, 0)
        if 0 < size <= EOS + 1 + BYTES and not getattr(groups["data"], file):
            rule = f"`{name}` must be more than {EOS + 1 + BYTES}: the special ids, {BYTES} bytes, and characters."
            raise ValueError(f"{rule} Received: {name}={size}.")
