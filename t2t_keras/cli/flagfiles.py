"""Flagfiles, which absl reads too: here they may also be configs, given by name, and each argument knows which file it
is from.
"""

import itertools
import os
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence

from absl import flags

# Where the configs are in a checkout, and in an installation.
CONFIGS = [pathlib.Path(__file__).parents[2] / name for name in ("configs", "t2t_keras_configs")]
_MAX_FILES = 500  # Each counts as often as it is included. A chain of 1,000 would be too deep for Python.


def expand(arguments: Sequence[str]) -> list[str]:
    """Replaces `--flagfile=NAME` and `--flagfile NAME` by the lines of these files; see `with_sources`."""
    return [argument for _, argument in with_sources(arguments)]


def with_sources(
    arguments: Sequence[str],
    source: str = "command line",
    including: tuple[str, ...] = (),
    numbers: Iterator[int] | None = None,
) -> list[tuple[str, str]]:
    """Replaces flagfiles by their lines, which may include other flagfiles, and says where each argument is from:
    `source`, "command line" or "flagfile NAME". `including` has the paths of the flagfiles that include the arguments,
    the outermost first, and `numbers` the number of the next file.

    Ends the program with a message if a file is missing, is not text or includes itself, or if there are too many.
    """
    expanded, rest, numbers = [], list(arguments), numbers or itertools.count(1)
    while rest:
        argument = rest.pop(0)
        flag, equals, name = argument.partition("=")
        if flag not in ("-flagfile", "--flagfile") or not (equals or rest):
            expanded.append((source, argument))
            continue
        path, lines = _read(name if equals else rest.pop(0))
        if path in including:
            sys.exit(f"Error: A flagfile must not include itself. Received: {' includes '.join((*including, path))}.")
        if next(numbers) > _MAX_FILES:
            sys.exit(
                f"Error: Expected at most {_MAX_FILES} flagfiles, each counted as often as it is included. Received: "
                f"more; the next one is {path}."
            )
        expanded += with_sources(lines, f"flagfile {pathlib.Path(path).stem}", (*including, path), numbers)
    return expanded


def _read(name: str) -> tuple[str, list[str]]:
    """Returns the path of a flagfile, which is given by its path, or by its name if it is a config, and its lines
    without comments.
    """
    by_path = pathlib.Path(os.path.expanduser(name))  # A shell leaves the ~ of --flagfile=~/mine.flags.
    paths = [by_path, *(folder / (name.removesuffix(".flags") + ".flags") for folder in CONFIGS)]
    file = next((path for path in paths if os.path.isfile(path)), None)
    if file is None:
        known = sorted({path.stem for folder in CONFIGS for path in folder.glob("*.flags")})
        sys.exit(f"Error: No such flagfile: {name}. Give the path of one, or a config: {', '.join(known)}.")
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8-sig").split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"Error: The flagfile {name} cannot be read: {error}. It must be a text with a flag on each line.")
    lines = [line for line in lines if line and not line.startswith(("#", "//"))]
    known = {"flagfile", *flags.FLAGS, *(f"no{name}" for name in flags.FLAGS)}
    for line in lines:
        found = [name for name in re.findall(r"(?:^--?|\s--)(\w+)", line) if name in known]
        # The value of a grid's --row is itself flags.
        if line.startswith("-") and len(found) > 1 and found[0] != "row":
            sys.exit(
                f"Error: The flagfile {name} must have each flag on a line of its own; if this is one value, give it "
                f"on the command line. Received: {line}"
            )
    return str(file), lines
