"""How messages name programs and flags, which the library does not know."""

import pathlib
import re
import sys

from absl import flags

from t2t_keras.system.log import printable


def command(program: str) -> str:
    """Returns the command that runs a program: `t2t-translate` if installed, else `python tools/translate.py`."""
    if pathlib.Path(sys.argv[0]).name.startswith("t2t-"):
        return f"t2t-{program.replace('_', '-')}"
    return f"python tools/{program}.py"


def name_programs(text: str) -> str:
    """Replaces each `python tools/PROGRAM.py` in a text by the `command` that runs the program here."""
    return re.sub(r"python tools/(\w+)\.py", lambda found: command(found[1]), text)


def name_flags(text: str) -> str:
    """Returns a message of the library as a program shows it: options, written as `option` or option=value, are flags,
    and control characters are escaped.
    """

    def flag(found: re.Match) -> str:
        option = found["quoted"] or found["assigned"]
        value = found["value"] or "=" * bool(found["assigned"])
        # absl parses --flagfile before the others, and does not list it.
        return f"--{option}{value}" if option in (*flags.FLAGS, "flagfile") else found[0]

    return re.sub(r"`(?P<quoted>\w+)(?P<value>=[^`]*)?`|(?<![\w\-/.,='])(?P<assigned>\w+)=", flag, printable(text))
