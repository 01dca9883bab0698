"""A runner of Apache Beam: its options, from a command line, and a pipeline that it runs."""

import contextlib
import io
import shlex
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner.worker_handlers import ControlConnection

from t2t_keras.beam.runner_error import RunnerError
from t2t_keras.system.log import logger


def read(runner: str, options: str = "") -> PipelineOptions:
    """Returns the options of a pipeline for a runner, such as DirectRunner, DataflowRunner, FlinkRunner or SparkRunner,
    and other pipeline options, as on a command line.

    Raises `ValueError` if the runner does not exist, takes other options, or its package is not installed.
    """
    usage = io.StringIO()
    try:
        with contextlib.redirect_stderr(usage):
            pipeline_options = PipelineOptions([f"--runner={runner}", *_divided(options)])
            known = pipeline_options.get_all_options()
            unknown = pipeline_options.get_all_options(retain_unknown_options=True).keys() - known.keys()
            beam.Pipeline(options=pipeline_options)
    except ImportError as error:
        raise ValueError(str(error)) from error
    except SystemExit as error:  # Of argparse, after its usage.
        received = usage.getvalue().rstrip().rpartition("error: ")[2]
        raise ValueError(f"Expected options that Apache Beam takes. Received: {options} ({received}).") from error
    if unknown:
        options = ", ".join(f"--{name}" for name in sorted(unknown))
        logger.warning(
            f"Apache Beam does not know {options} in `beam_options`. Check the spelling, unless {runner} has such an "
            "option."
        )
    return pipeline_options


def _divided(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError as error:  # Such as "No closing quotation".
        raise ValueError(f"Expected options that Apache Beam takes. Received: {options} ({error}).") from error


@contextlib.contextmanager
def _ending_with_workers() -> Iterator[None]:
    """Makes Beam's own runner, which would wait for ever, fail inside a `with` block if a worker is killed."""
    ended, set_input, push = set(), ControlConnection.set_input, ControlConnection.push
    error = RuntimeError("A worker ended before its work, as when memory is short")

    def set_watched_input(connection: ControlConnection, responses: Iterator) -> None:
        def watched():
            try:
                yield from responses
            finally:  # The responses of a killed worker end with an error or without one.
                ended.add(connection)
                connection.abort(error)

        set_input(connection, watched())

    def push_or_abort(connection: ControlConnection, request):
        future = push(connection, request)
        if connection in ended:
            connection.abort(error)
        return future

    ControlConnection.set_input, ControlConnection.push = set_watched_input, push_or_abort
    try:
        yield
    finally:
        ControlConnection.set_input, ControlConnection.push = set_input, push


@contextlib.contextmanager
def running(options: PipelineOptions) -> Iterator[beam.Pipeline]:
    """Makes a pipeline that runs at the end of the `with` block. Raises `RunnerError` if it does not run to its end."""
    try:
        with _ending_with_workers(), beam.Pipeline(options=options) as pipeline:
            yield pipeline
    except Exception as error:
        raise RunnerError(options.view_as(StandardOptions).runner, error) from error
