"""`--help` and `--helpfull`: what a program does, and its flags under the headings of their groups."""

import contextlib
import sys
import textwrap
from collections.abc import Iterator

from absl import flags

from t2t_keras.cli.messages import name_programs
from t2t_keras.config import GROUPS
from t2t_keras.config.options import PLACES

# Flags of every program. absl has a `--flagfile` too, which `cli.flagfiles` reads before it.
_FLAGFILE = "  --flagfile: Name of a config, such as small or medium, or of a file of flags;\n      flags after it win."
_OF_ALL = ("traceback", "version", "help", "helpfull")
_COLUMNS = 80
_REPEAT = ";\n    repeat this option"  # absl's words at the end of the help of a flag that may be repeated.
_headings: dict[str, str] = {}  # By flag; other flags are those of the program alone.
_left_out: set[str] = set()  # Flags that `--helpfull` shows, and `--help` does not.


def place(name: str, heading: str) -> None:
    """Puts a flag under a heading."""
    _headings[name] = heading


def leave_out(name: str) -> None:
    """Leaves a flag to `--helpfull`."""
    _left_out.add(name)


@contextlib.contextmanager
def under(heading: str) -> Iterator[None]:
    """Puts the flags that a `with` block defines under a heading."""
    before = set(flags.FLAGS)
    yield
    for name in flags.FLAGS:
        if name not in before and name not in _headings:
            place(name, heading)


def page(full: bool) -> str:
    """Returns the docstring of the program and its flags: all of them, or those that a newcomer needs."""
    own = [flag.name for flag in flags.FLAGS.get_key_flags_for_module(sys.argv[0])]
    groups = {"": [name for name in own if name not in _headings and name not in _OF_ALL]}
    groups |= {heading: [] for heading in (*GROUPS, *_headings.values())}
    for name, heading in _headings.items():
        groups[heading].append(name)
    groups["Every program"] = [*_OF_ALL] if full else []
    parts = [sys.modules["__main__"].__doc__.strip()]
    shown = {heading: [name for name in names if full or name not in _left_out] for heading, names in groups.items()}
    shown = {heading: names for heading, names in shown.items() if names}
    place_of_flagfile = "Every program" if full else PLACES if PLACES in shown else next(iter(shown), "")
    for heading, names in shown.items():
        entries = [_FLAGFILE] * (heading == place_of_flagfile) + [*map(_entry, names)]
        parts.append("\n".join([f"{heading or 'Flags'}:", *entries]))
    if not full:
        parts.append("--helpfull shows all flags.")
    return "\n\n".join(parts)


def text_of(name: str) -> str:
    """Returns the help of a flag, in one line."""
    return name_programs(flags.FLAGS[name].help.partition(_REPEAT)[0])


def _entry(name: str) -> str:
    """Describes a flag: its name, help and value, which is the default or that of a flagfile before `--help`."""
    flag = flags.FLAGS[name]
    value = ",".join(map(str, flag.value)) if isinstance(flag.value, list) else flag.value
    shown = str(value).lower() if flag.boolean else value
    default = "" if value is None or value == "" or name in _OF_ALL else f" (default: {shown})"
    text = f"--{'[no]' * (flag.boolean and name not in _OF_ALL)}{name}: {text_of(name)}{default}"
    return textwrap.fill(text, _COLUMNS, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)


class _HelpFlag(flags.BooleanFlag):
    """Prints `page` and ends the program with code 0."""

    def __init__(self, name: str, text: str, full: bool):
        super().__init__(name, False, text, allow_override=True)
        self._full = full

    def parse(self, argument):
        super().parse(argument)
        if self.value:
            print(page(self._full))
            sys.exit(0)


def define() -> None:
    """Defines `--help` and `--helpfull` in place of absl's, which exit with 1 and sort the flags by module."""
    flags.DEFINE_flag(_HelpFlag("help", "Show the flags that are needed most.", full=False))
    flags.DEFINE_flag(_HelpFlag("helpshort", "The same as --help.", full=False))
    flags.DEFINE_flag(_HelpFlag("helpfull", "Show all flags.", full=True))


flags.disclaim_key_flags()  # As in `cli.flags`.
