"""The options of this project's configs, which benchmarks take."""

import dataclasses
import pathlib

_CONFIGS = pathlib.Path(__file__).parent.parent / "configs"


def read(name: str) -> dict[str, str]:
    """Returns the options of a config by name, as text."""
    lines = (_CONFIGS / f"{name}.flags").read_text(encoding="utf-8").splitlines()
    return dict(line.removeprefix("--").split("=", 1) for line in lines if line.startswith("--"))


def options(name: str, group: type) -> dict:
    """Returns the options of a group, such as `ModelConfig`, that a config sets."""
    found = read(name)
    convert = {bool: "true".__eq__}
    return {
        field.name: convert.get(field.type, field.type)(found[field.name])
        for field in dataclasses.fields(group)
        if field.name in found
    }
