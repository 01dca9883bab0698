"""A runner of Apache Beam: its options, from a command line, and a pipeline that it runs."""

import contextlib
import io
import shlex
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner.worker_handlers import ControlConnection

from t2t_keras.data.runner_error import RunnerError


def read(runner: str, options: str = "") -> PipelineOptions:
    """Returns the options of a pipeline.

    Args:
        runner: DirectRunner, DataflowRunner, FlinkRunner, SparkRunner, …
        options: other pipeline options, as on a command line.

    Raises:
        ValueError: the runner does not exist, takes other options, or its package is not installed.
    """
    usage = io.StringIO()
    try:
        with contextlib.redirect_stderr(usage):
            pipeline_options = PipelineOptions([f"--runner={runner}", *shlex.split(options)])
            pipeline_options.get_all_options()  # Parses them.
            beam.Pipeline(options=pipeline_options)
    except ImportError as error:
        raise ValueError(str(error)) from error
    except SystemExit as error:  # Of argparse, after its usage.
        received = usage.getvalue().rstrip().rpartition("error: ")[2]
        raise ValueError(f"Expected options that Apache Beam takes. Received: {options} ({received}).") from error
    return pipeline_options


@contextlib.contextmanager
def _ending_with_workers() -> Iterator[None]:
    """Inside a `with` block, Beam's own runner fails if a worker ends before its work; it would wait for the answer for ever."""
    ended, read, push = set(), ControlConnection._read, ControlConnection.push
    error = RuntimeError("A worker ended before its work, as when memory is short")

    def reading(connection):
        try:
            read(connection)
        except Exception:
            ended.add(connection)
            for future in list(connection._futures_by_id.values()):
                future.abort(error)
            raise

    def pushing(connection, request):
        future = push(connection, request)
        if future and connection in ended:
            future.abort(error)
        return future

    ControlConnection._read, ControlConnection.push = reading, pushing
    try:
        yield
    finally:
        ControlConnection._read, ControlConnection.push = read, push


@contextlib.contextmanager
def running(options: PipelineOptions) -> Iterator[beam.Pipeline]:
    """Makes a pipeline that runs at the end of the `with` block.

    Raises:
        RunnerError: it does not run to its end.
    """
    try:
        with _ending_with_workers(), beam.Pipeline(options=options) as pipeline:
            yield pipeline
    except Exception as error:
        raise RunnerError(options.view_as(StandardOptions).runner, error) from error
