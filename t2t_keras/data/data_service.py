"""Reads the batches of `batching` from the workers of a tf.data service on other machines.

Each window goes to one free worker. The batches are therefore those of `batching.batches`, in an order that depends on
the speed of the workers, and each pair comes once per epoch as long as no worker fails. Each epoch is a job of its own;
otherwise a fast worker could be epochs ahead of a slow one. Workers read the shards themselves, under the same path. If
a worker fails, its current windows are lost for this epoch, and the epoch ends when the worker is back at the same
address.
"""

import itertools
import os
import pathlib
import socket
import stat
import time
from collections.abc import Iterator

import tensorflow as tf

from t2t_keras.config import grpc_address
from t2t_keras.data import batching, shards
from t2t_keras.system.tensorflow import reach_directly


def check(service: str, seconds: float = 10.0) -> None:
    """Waits until a server listens at the dispatcher's address, grpc://host:port, for at most some seconds; else raises
    `ConnectionError`. TensorFlow itself would wait for an hour without a message. It then reaches this host directly,
    as this function does.
    """
    address, deadline = grpc_address(service), time.monotonic() + seconds
    if not address:
        raise ValueError(f"Expected the dispatcher of a tf.data service as grpc://host:port. Received: {service}.")
    reach_directly([address[0]])
    while True:
        try:
            socket.create_connection(address, timeout=seconds).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise ConnectionError(
                    f"Expected the dispatcher of a tf.data service at {service}. Received: {error}. "
                    f"Start the program data_service there, with --host={address[0]} --port={address[1]}."
                ) from error
            time.sleep(0.2)


def check_free(port: int) -> None:
    """Checks that no server listens at a port of this machine. gRPC would share the port, and each server would get
    some of the calls. Raises `OSError` if the port is in use, or a permission is missing.
    """
    dual = socket.has_dualstack_ipv6()
    try:
        socket.create_server(
            ("", port), family=socket.AF_INET6 if dual else socket.AF_INET, dualstack_ipv6=dual
        ).close()
    except OSError as error:
        raise OSError(
            f"Could not listen at port {port} of this machine ({os.strerror(error.errno)}). Give another `port`."
        ) from error


def keep_local(port: int) -> None:
    """Restricts a port that this process listens at to this machine. TensorFlow's servers listen on every network
    interface. Raises `OSError` if the system does not permit it; Linux does since version 5.7.
    """
    for name in os.listdir("/proc/self/fd"):
        try:
            is_socket = stat.S_ISSOCK(os.fstat(int(name)).st_mode)
            descriptor = os.dup(int(name)) if is_socket else None
        except OSError:  # The file was closed in the meantime.
            continue
        if is_socket:
            with socket.socket(fileno=descriptor) as found:
                listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if listens and found.family in (socket.AF_INET, socket.AF_INET6) and found.getsockname()[1] == port:
                    found.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")


def batches(
    folder: pathlib.Path,
    *,
    service: str,
    job: str,
    start: batching.Position = batching.START,
    **reading,
) -> tf.data.Dataset:
    """Returns a dataset like that of `batching.batches`, which has the other arguments too, from `start` on,
    indefinitely; iterate it once. An epoch ends before the next one begins.

    Several workers read windows at the same time, and a position describes one of these windows. If a run resumes from
    the newest position, it misses or repeats batches of the other windows: at most one window per worker, in this epoch
    only.

    Args:
        folder: shards written by `shards.write`, under a path that is the same for the workers.
        service: address of the dispatcher, grpc://host:port. If none answers, `ConnectionError` is raised.
        job: a new name for every start. Trainers that give the same name share the batches: each batch goes to one of
            them, so each of n trainers should ask for an n-th of the tokens.
        start: see `batching.batches`; the same for all trainers of a job.
    """
    check(service)
    folder = folder.absolute()
    windows = batching.windows_per_epoch(shards.read_info(folder))

    def epoch(number: int, position: batching.Position) -> tf.data.Dataset:
        return batching.batches(folder, start=position, epochs=number + 1, **reading)

    def epochs() -> Iterator[dict]:
        position = start
        for number in itertools.count(start.window // windows):
            distribute = tf.data.experimental.service.distribute("distributed_epoch", service, f"{job}-{number}")
            yield from epoch(number, position).apply(distribute).as_numpy_iterator()
            position = batching.Position(windows * (number + 1), 0)

    # Not `flat_map`: in a graph, a job cannot be named after its epoch. Python only passes on whole batches.
    return tf.data.Dataset.from_generator(epochs, output_signature=epoch(0, batching.START).element_spec)
