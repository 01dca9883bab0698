"""All options of a run, in groups. Does not import TensorFlow."""

import dataclasses
import pathlib

from t2t_keras import markdown, registry
from t2t_keras.config import DataConfig, DecodeConfig, ModelConfig, TrainConfig
from t2t_keras.files import DATA

ARCHITECTURE = "architecture"  # Its key in `config.json`, and the option.
TRANSFORMER = "transformer"  # The architecture where none is named.
OF_RUN = "run: "  # In `Options.sources`, before where the resumed run has an option from.
OF_PARENT = "parent: "  # The same of the run whose weights a new one starts from.


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
        values = {name: value for group in self.groups.values() for name, value in vars(group).items()}
        values = {ARCHITECTURE: self.architecture} | values | {"data_dir": self.data_dir}
        rows = [(option, str(value), self.sources.get(option, "default")) for option, value in values.items()]
        return markdown.table(("option", "value", "from"), rows, padded=True)
