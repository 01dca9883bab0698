"""Options of an Apache Beam pipeline, from a command line."""

import shlex

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions


def read(runner: str, options: str = "") -> PipelineOptions:
    """Returns the options of a pipeline.

    Args:
        runner: DirectRunner, DataflowRunner, FlinkRunner, SparkRunner, …
        options: other pipeline options, as on a command line.

    Raises:
        ValueError: the runner does not exist, needs other options, or its package is not installed.
    """
    pipeline_options = PipelineOptions([f"--runner={runner}", *shlex.split(options)])
    try:
        beam.Pipeline(options=pipeline_options)
    except ImportError as error:
        raise ValueError(str(error)) from error
    return pipeline_options
