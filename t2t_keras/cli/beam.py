"""What the programs that run on Apache Beam have in common: their flags, and what they show of Beam's messages."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

from absl import flags

from t2t_keras.beam.runner_error import RunnerError
from t2t_keras.cli import flags as options
from t2t_keras.system.log import logger


def define(work: str, exchange: str = "") -> None:
    """Defines the flags of a runner, with which the program does some `work`, as "translate files". `exchange` is where
    the program and the workers exchange files without `--beam_exchange`; empty: there is no such flag.
    """
    text = f"Runner of Apache Beam to {work} with: DirectRunner, DataflowRunner, FlinkRunner, …; empty: without Beam."
    flags.DEFINE_string("beam_runner", "", text)
    flags.DEFINE_string("beam_options", "", "Options of the Beam pipeline, as on a command line.")
    options.needs("beam_runner", "beam_options")
    if exchange:
        text = "Temporary folder that this machine and the Beam workers can access, such as gs://…; empty: in "
        flags.DEFINE_string("beam_exchange", "", f"{text}{exchange}.")
        options.needs("beam_runner", "beam_exchange")


def given() -> dict[str, str]:
    """Returns the values of the flags by name, without "beam_"; nothing without a runner."""
    names = [name for name in ("beam_runner", "beam_options", "beam_exchange") if name in flags.FLAGS]
    values = {name.removeprefix("beam_"): flags.FLAGS[name].value for name in names}
    return values if values["runner"] else {}


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Replaces the error of a `with` block that imports Apache Beam, if it is not installed, by one that says how to
    install it.
    """
    try:
        yield
    except ImportError as error:
        raise ValueError(
            "--beam_runner requires Apache Beam: pip install 't2t_keras[beam]', or -e '.[beam]' in a checkout."
        ) from error


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keeps what Beam, its runner and its workers write to stderr in a file inside a `with` block; the program's own
    messages are shown.

    The file stays if the runner fails, and the error names it. Does nothing with `--traceback`.
    """
    if flags.FLAGS["traceback"].value:
        yield
        return
    descriptor, path = tempfile.mkstemp(prefix="t2t_keras-beam-", suffix=".log")
    sys.stderr.flush()
    with os.fdopen(os.dup(2), "w", buffering=1) as shown:
        os.dup2(descriptor, 2)
        os.close(descriptor)
        failed, before = False, {handler: handler.setStream(shown) for handler in logger.handlers}
        try:
            yield
        except RunnerError as error:
            failed = True
            raise OSError(f"{error} See {path} for the output of Beam, or give `traceback`.") from error
        finally:
            sys.stderr.flush()
            os.dup2(shown.fileno(), 2)
            for handler, stream in before.items():
                handler.setStream(stream)
            if not failed:
                os.unlink(path)


flags.disclaim_key_flags()  # As in `cli.flags`.
