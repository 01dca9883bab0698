"""What `SavedRun` gives, from the path of a run."""

# ruff: noqa: F401
import dataclasses
import json
import pathlib

from t2t_keras.runs import checkpoint
from t2t_keras.runs.run_options import Options, groups_of
from t2t_keras.runs.saved_run import CURVES, EMBEDDINGS, LOGS, NOT_FINITE, VERSION, SavedRun, check_before_writing
from t2t_keras.system.files import CONFIG, SOURCE_SUBWORDS, SUBWORDS


def is_run(model_dir: pathlib.Path) -> bool:
    return SavedRun.find(model_dir) is not None


def architecture_of(model_dir: pathlib.Path) -> str:
    return SavedRun.open(model_dir).architecture


def groups(model_dir: pathlib.Path, *names: str) -> tuple:
    run = SavedRun.open(model_dir)
    return tuple(getattr(run, "search" if name == "decode" else name) for name in names or groups_of())


def read(model_dir: pathlib.Path) -> Options:
    return SavedRun.open(model_dir).options


def check_checkpoint(model_dir: pathlib.Path, which: str) -> None:
    SavedRun.open(model_dir).check_checkpoint(which)


def has_source_subwords(model_dir: pathlib.Path) -> bool:
    return SavedRun.open(model_dir).has_source_subwords


def write(model_dir, options, subwords, records, source_subwords=None) -> None:
    before = SavedRun.open(model_dir) if checkpoint.kept(model_dir) else None
    SavedRun.write(model_dir, options, subwords, records, source_subwords, before)


def check_data(model_dir, subwords, records, source_subwords=None) -> None:
    SavedRun.open(model_dir).check_data(subwords, records, source_subwords)


def read_subwords(model_dir: pathlib.Path) -> tuple[bytes, ...]:
    return SavedRun.open(model_dir).subwords()


def to_json(**groups) -> str:
    values = {
        name: dataclasses.asdict(group) if dataclasses.is_dataclass(group) else group for name, group in groups.items()
    }
    return json.dumps(values, indent=2) + "\n"


def from_json(path, **classes) -> tuple:
    return groups(pathlib.Path(path).parent, *classes)
