"""Beam's own job server, which takes jobs over gRPC as those of Flink and Spark do."""

import contextlib
from collections.abc import Iterator

from apache_beam.runners.portability.local_job_service import LocalJobServicer


@contextlib.contextmanager
def running() -> Iterator[dict[str, str]]:
    """Starts a server, whose workers are in this process, and returns the runner and the options of a pipeline."""
    server = LocalJobServicer()
    try:
        yield {
            "runner": "PortableRunner",
            "options": f"--job_endpoint=localhost:{server.start_grpc_server()} --environment_type=LOOPBACK",
        }
    finally:
        server.stop()
