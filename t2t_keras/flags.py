"""Options as absl flags: every field of a dataclass of `config.py` is a flag of the same name, default and help."""

import dataclasses
import os
import pathlib
import re
import sys

from absl import app, flags, logging

from t2t_keras.config import DecodeConfig
from t2t_keras.interruption import EXIT_CODE, StoppedError

# In a checkout, and where the package is installed.
CONFIGS = [pathlib.Path(__file__).parent.parent / name for name in ("configs", "t2t_keras_configs")]


def define(*groups) -> None:
    """Defines a flag for every field of some dataclasses."""
    define_flag = {bool: flags.DEFINE_boolean, int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}
    for group in groups:
        for field in dataclasses.fields(group):
            define_flag[field.type](field.name, field.default, field.metadata["help"])


def define_trained_model() -> None:
    """Defines what `trained_model` reads: which weights of a run, how they are kept, and how to search."""
    flags.DEFINE_string("model_dir", None, "The folder of a training run.", required=True)
    flags.DEFINE_string("checkpoint", "average", "<average|best|latest|STEP>: Which weights; STEP is the number of an update.")
    flags.register_validator(
        "checkpoint",
        lambda value: re.fullmatch("average|best|latest|[0-9]+", value) is not None,
        message="expected average|best|latest, or the number of an update.",
    )
    flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Of weights and arithmetic; bfloat16 where a processor is fast at it.")
    flags.DEFINE_boolean("int8", False, "Keep matrices in 8 bits a weight: an export is several times smaller, and slower.")
    define(DecodeConfig)


def trained_model() -> dict:
    """The arguments of `experiment.load`, but for `say`."""
    values = {name: flags.FLAGS[name].value for name in ("model_dir", "checkpoint", "dtype", "int8")}
    return {
        "model_dir": pathlib.Path(values.pop("model_dir")).expanduser(),
        "which": values.pop("checkpoint"),
        **values,
        **given(DecodeConfig),
    }


def read(group):
    """A dataclass with the values of its flags."""
    return group(**{field.name: flags.FLAGS[field.name].value for field in dataclasses.fields(group)})


def given(*groups) -> dict:
    """The fields of some dataclasses that the command line sets."""
    found = {field.name: flags.FLAGS[field.name] for group in groups for field in dataclasses.fields(group)}
    return {name: flag.value for name, flag in found.items() if flag.present}


def _find_flagfile(name: str) -> str:
    """The config of that name; a path stays what it is."""
    if os.sep in name or pathlib.Path(name).is_file():
        return name
    for folder in CONFIGS:
        path = folder / (name.removesuffix(".flags") + ".flags")
        if path.exists():
            return str(path)
    known = sorted({path.stem for folder in CONFIGS for path in folder.glob("*.flags")})
    sys.exit(f"No such flagfile: {name}. The configs are: {', '.join(known)}.")


def _find_flagfiles(arguments: list[str]) -> list[str]:
    """--flagfile=wmt14_en_de_base, or in two words, finds the config of that name."""
    found = list(arguments)
    for index, argument in enumerate(arguments):
        prefix, equals, name = argument.partition("=")
        if prefix in ("-flagfile", "--flagfile"):
            if equals:
                found[index] = f"{prefix}={_find_flagfile(name)}"
            elif arguments[index + 1 :]:
                found[index + 1] = _find_flagfile(arguments[index + 1])
    return found


def run(main) -> None:
    """Parses flags and runs `main`; what a person did wrong is told in a sentence, not in a traceback."""

    def told(arguments: list[str]) -> int:
        if len(arguments) > 1:
            print(f"Expected flags only (--name=value). Received: {' '.join(arguments[1:])}", file=sys.stderr)
            return 2
        logging.set_verbosity(logging.WARNING)
        try:
            return main() or 0
        except StoppedError as stopped:
            print(stopped, end="\n" if str(stopped) else "")
            return EXIT_CODE
        except KeyboardInterrupt:
            return 130
        except BrokenPipeError:  # `… | head` has read enough; what is still in the buffer has nowhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        except (ValueError, OSError) as error:
            if flags.FLAGS["traceback"].value:
                raise
            print(f"Error: {error}", file=sys.stderr)
            return 1

    if main.__module__ != "__main__":  # A console command: --help is the program's all the same.
        program = sys.modules[main.__module__]
        sys.modules["__main__"].__doc__ = program.__doc__
        for flag in flags.FLAGS.get_key_flags_for_module(program):
            flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
    app.run(told, argv=[sys.argv[0], *_find_flagfiles(sys.argv[1:])])


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # Before TensorFlow is imported, most of whose notes are not news.
flags.DEFINE_boolean("traceback", False, "Show where in the program an error arose.")
flags.disclaim_key_flags()  # What `define` defines from here on is shown by --help of the program that calls it.
