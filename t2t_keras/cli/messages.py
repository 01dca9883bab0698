"""How messages name programs and flags, which the library does not know."""

import pathlib
import re
import shlex
import sys

from absl import flags

from t2t_keras.system.log import printable


def command(program: str, model_dir: pathlib.Path | None = None) -> str:
    """Returns the command that runs a program: `t2t-translate` if installed, else `python tools/translate.py`; with the
    folder of a run or an export, quoted for a shell, if one is given.
    """
    started = pathlib.Path(sys.argv[0])
    installed = started.name.startswith("t2t-") or started.parent.name == "t2t_keras_tools"  # By `python -m`.
    words = [f"t2t-{program.replace('_', '-')}"] if installed else ["python", f"tools/{program}.py"]
    return shlex.join(words + ([f"--model_dir={model_dir}"] if model_dir else []))


def name_programs(text: str) -> str:
    """Replaces each `python tools/PROGRAM.py` in a text, and each t2t-PROGRAM after a backquote, as the library names a
    program, by the `command` that runs the program here.
    """
    written = r"python tools/(?P<file>\w+)\.py|(?<=`)t2t-(?P<name>[\w-]+)(?=[` ])"
    return re.sub(written, lambda found: command(found["file"] or found["name"].replace("-", "_")), text)


def name_flags(text: str) -> str:
    """Returns a message of the library as a program shows it: options, written as `option` or option=value, are flags,
    programs have the names of `name_programs`, and control characters are escaped.
    """

    def flag(found: re.Match) -> str:
        option = found["quoted"] or found["assigned"]
        value = found["value"] or "=" * bool(found["assigned"])
        # absl parses --flagfile before the others, and does not list it.
        return f"--{option}{value}" if option in (*flags.FLAGS, "flagfile") else found[0]

    text = name_programs(printable(text))
    return re.sub(r"`(?P<quoted>\w+)(?P<value>=[^`]*)?`|(?<![\w\-/.,='])(?P<assigned>\w+)=", flag, text)
