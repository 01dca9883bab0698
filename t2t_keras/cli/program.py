"""What each program does: it parses its flags, shows the messages of the library, and turns errors into messages and
exit codes.
"""

import contextlib
import gc
import os
import re
import sys
from collections.abc import Callable, Iterable
from logging import INFO, Formatter, StreamHandler
from typing import IO, NoReturn

from absl import app, flags, logging

from t2t_keras import __version__
from t2t_keras.cli import flagfiles, help, messages
from t2t_keras.cli.flags import check_effects, chosen_architecture
from t2t_keras.runs import registry, run_options
from t2t_keras.system import native_messages
from t2t_keras.system.log import logger
from t2t_keras.training.interruption import EXIT_CODE, OTHER_WORKER_EXIT_CODE, OtherWorkerError, StoppedError

without_noise = native_messages.without_noise
_NO_HOME = "Could not determine home directory."  # What `pathlib` says of ~name.


class _MessageFormatter(Formatter):
    def format(self, record) -> str:
        return messages.name_flags(super().format(record))


def at_keyboard(stream: IO) -> bool:
    """Returns whether the input of a program is typed, and asks for it if so. Its lines are then to be answered one at
    a time.
    """
    if stream.isatty():
        print("Type a sentence and press Enter; end with Ctrl-D.", file=sys.stderr)
        return True
    return False


def with_progress(results: Iterable, output: IO, at_keyboard: bool, number: int | None = None) -> Iterable:
    """Returns the results of lines, of which there are `number` if it is known, with a progress bar: on stderr if that
    is a terminal, unless people type the lines, or see the `output` there.
    """
    import tqdm

    return tqdm.tqdm(results, total=number, unit=" lines", disable=True if at_keyboard or output.isatty() else None)


def _parse(arguments: list[str]) -> list[str]:
    """Returns the arguments that are not flags. Ends the program with a message if a flag is invalid."""
    help.define()
    try:
        return flags.FLAGS(arguments)
    except flags.UnrecognizedFlagError as error:
        others = [name for name in registry.architectures() if error.flagname in run_options.option_names(name)]
        if not others or run_options.ARCHITECTURE not in flags.FLAGS:
            _end_with(error)
        of = " or ".join(f"--architecture={name}" for name in others)
        sys.exit(f"Error: --{error.flagname} is an option of {of}, and not of --architecture={chosen_architecture()}.")
    except (flags.Error, ValueError) as error:  # The latter for a value of --noNAME.
        _end_with(error)
    except OSError as error:  # Of --help to a closed pipe or a full disk.
        sys.exit(_flush_stdout() or (141 if isinstance(error, BrokenPipeError) else f"Error: {error}"))


def _flush_stdout() -> int:
    """Writes what stdout still buffers. If that fails, discards it, with a message unless the reader of a pipe has
    ended, and returns the exit code; else 0.
    """
    try:
        sys.stdout.flush()
        return 0
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 141
        with contextlib.suppress(OSError):
            print(f"Error: Could not write to standard output ({error.strerror}).", file=sys.stderr)
        return 1


def _end_with(error: flags.Error | ValueError) -> NoReturn:
    message = " ".join(str(error).split())
    if missing := re.findall(r"Flag --(\w+) must have a value other than None", message):
        rest = f" {help.text_of(missing[0])}" if len(missing) == 1 else ""
        message = f"{' and '.join(f'--{name}' for name in missing)} must be given.{rest}"
    sys.exit(f"Error: {message}{'' if message.endswith(('.', '?')) else '.'} See --helpfull.")


def _message_of_tensorflow(error: Exception) -> str:
    """Returns what to say of an error of a TensorFlow operation, such as memory that runs out in a validation; nothing
    of other errors.
    """
    tensorflow = sys.modules.get("tensorflow")  # Imported if it was used.
    if not tensorflow or not isinstance(error, tensorflow.errors.OpError):
        return ""
    if isinstance(error, tensorflow.errors.ResourceExhaustedError):
        what, advice = "A device is out of memory", "Give it less at a time, such as smaller batches."
    else:
        what, advice = f"TensorFlow failed ({type(error).__name__})", "Give --traceback to see where."
    return f"{what}: {(error.message.strip().splitlines() or ['no message'])[0]:.300}. {advice}"


def _open_closed_streams() -> None:
    """Opens what the program was started without, as by `2>&-`, on /dev/null: else the next file that it opens would be
    its stderr, and `print` would write messages to stdout.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # In the order of their numbers.
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8", errors="backslashreplace")
            os.set_inheritable(stream.fileno(), True)  # As others are, by processes that it starts.
            setattr(sys, name, stream)


def _exit_code(call: Callable[[], int | None]) -> int:
    """Returns the exit code of what a program does. Reports the errors that need no traceback on one line."""
    try:
        return call() or 0
    except StoppedError as stopped:
        with contextlib.suppress(OSError):  # Of a full disk, or a pipe whose reader has ended.
            print(messages.name_flags(str(stopped)), end="\n" if str(stopped) else "")
        return EXIT_CODE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # Of `… | head`.
        return 141
    except Exception as error:
        if flags.FLAGS["traceback"].value or not (message := _message(error)):
            raise
        # An error of stdout, whose rest cannot be written either.
        if type(error) is OSError and not error.filename and (code := _flush_stdout()):
            return code
        print(f"Error: {message}", file=sys.stderr)
        return OTHER_WORKER_EXIT_CODE if isinstance(error, OtherWorkerError) else 1


def _message(error: Exception) -> str:
    """Returns what to say of an error in place of its traceback; nothing of one that is a fault of the program."""
    if isinstance(error, ValueError | OSError | OtherWorkerError):
        return messages.name_flags(str(error) or f"{type(error).__name__}. Give --traceback to see where.")
    if isinstance(error, RuntimeError) and str(error) == _NO_HOME:
        return f"{_NO_HOME} A path begins with ~, or with ~ and the name of an unknown user."
    return _message_of_tensorflow(error)


def _show_messages() -> None:
    """Shows the messages of the library on stderr."""
    logging.set_verbosity(logging.WARNING)
    logger.setLevel(INFO)
    handler = StreamHandler()
    handler.setFormatter(_MessageFormatter())
    logger.addHandler(handler)
    logger.propagate = False


def run(main, operands: str = "") -> None:
    """Parses the flags, runs `main` and exits with its result, or 0.

    Messages of the library are shown on stderr. A `ValueError`, `OSError` or error of a TensorFlow operation is
    reported on one line without a traceback, and exits with 1.

    `operands` says what the program expects beside flags, for the error message; `main` then gets the list of them.
    """

    def run_main(arguments: list[str]) -> int:
        if operands and len(arguments) < 2:
            print(f"Error: Give {operands}. See --help.", file=sys.stderr)
            return 2
        if not operands and len(arguments) > 1:
            received = " ".join(arguments[1:])
            print(f"Error: The program takes flags alone, as --name=value. Received: {received}.", file=sys.stderr)
            return 2
        _show_messages()

        def checked_main() -> int | None:
            check_effects()
            return main(arguments[1:]) if operands else main()

        return _exit_code(checked_main)

    # Importing TensorFlow and building graphs makes many objects that stay: looking for garbage among them at Python's
    # usual rate takes a tenth of the import's time.
    gc.set_threshold(100_000, 50, 50)
    program = sys.modules[main.__module__]
    if program.__name__ != "__main__":  # An installed command: --help shows the flags of its module.
        for flag in flags.FLAGS.get_key_flags_for_module(program):
            flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
    # `--help` shows the docstring of this module.
    sys.modules["__main__"].__doc__ = messages.name_programs(program.__doc__ or "")
    _open_closed_streams()
    sys.stdout.reconfigure(errors="backslashreplace")  # As stderr, where its encoding is not UTF-8.
    flags.FLAGS.set_gnu_getopt()  # Flags may follow operands, and a word that is none must not hide them.
    try:
        app.run(run_main, argv=[sys.argv[0], *flagfiles.expand(sys.argv[1:])], flags_parser=_parse)
    finally:
        end, code = sys.exc_info()[1], _flush_stdout()
        if code and isinstance(end, SystemExit) and not end.code:  # Otherwise the program's own end says more.
            sys.exit(code)


def exit_now() -> None:
    """Ends the program with code 0 and without the interpreter's clean-up, which takes a second if TensorFlow was used.

    Call it at the end of a program whose files are closed.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


class _VersionFlag(flags.BooleanFlag):
    """Prints the version and ends the program."""

    def parse(self, argument):
        super().parse(argument)
        if self.value:
            print(f"t2t_keras {__version__}")
            sys.exit(0)


native_messages.choose_level()  # Before TensorFlow is imported.
flags.DEFINE_boolean("traceback", False, "Show the traceback of an error.")
flags.DEFINE_flag(_VersionFlag("version", False, "Print the version and exit.", allow_hide_cpp=True))
