"""The batches of `batching`, made by the workers of a tf.data service on other machines.

Every window goes to one worker, whichever is free, so each pair comes once an epoch while no worker fails: the batches are those
of `batching.batches`, in an order that depends on which worker is faster. An epoch is a job of its own: left to run over the end
of an epoch, a fast worker would be epochs ahead of a slow one. Workers read the shards themselves, under the same path. What a
worker that fails held is lost to its epoch, which ends when the worker is there again, at the same address.
"""

import itertools
import os
import pathlib
import socket
import stat
import time
import urllib.parse
from collections.abc import Iterator

import tensorflow as tf

from t2t_keras.data import batching, shards


def check(service: str, seconds: float = 10.0) -> None:
    """Waits until something listens at the dispatcher's address; TensorFlow itself would wait for an hour, and say nothing.

    Args:
        service: grpc://host:port.
        seconds: how long to wait, at most.

    Raises:
        ConnectionError: nothing answers.
        ValueError: that is no such address.
    """
    address, deadline = urllib.parse.urlsplit(service), time.monotonic() + seconds
    if address.scheme != "grpc" or not address.hostname or not address.port:
        raise ValueError(f"Expected the dispatcher of a tf.data service as grpc://host:port. Received: {service}.")
    while True:
        try:
            socket.create_connection((address.hostname, address.port), timeout=seconds).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise ConnectionError(
                    f"Expected the dispatcher of a tf.data service at {service}. Received: {error}. "
                    f"Start the program data_service there, with --host={address.hostname} --port={address.port}."
                ) from error
            time.sleep(0.2)


def check_free(port: int) -> None:
    """Checks that nothing listens at a port of this machine: gRPC would share the port, and each would get a part of the calls.

    Raises:
        OSError: the port is in use, or needs a permission.
    """
    dual = socket.has_dualstack_ipv6()
    try:
        socket.create_server(("", port), family=socket.AF_INET6 if dual else socket.AF_INET, dualstack_ipv6=dual).close()
    except OSError as error:
        raise OSError(f"Could not listen at port {port} of this machine ({os.strerror(error.errno)}). Give another --port.") from error


def keep_local(port: int) -> None:
    """Closes a port that this process listens at to other machines. TensorFlow's servers listen on every network interface.

    Raises:
        OSError: the system does not permit it. Linux does from 5.7 on.
    """
    for name in os.listdir("/proc/self/fd"):
        try:
            is_socket = stat.S_ISSOCK(os.fstat(int(name)).st_mode)
            descriptor = os.dup(int(name)) if is_socket else None
        except OSError:  # Closed meanwhile.
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
    batch_tokens: int,
    seed: int,
    start: batching.Position = batching.START,
    damaged_records: str = "stop",
) -> tf.data.Dataset:
    """Batches without end from `start` on; an epoch is over before the next one begins.

    Windows are under way on several workers at a time, and a position names one of them. After a restart from the newest position
    seen, what others of the windows then under way had left does not come, or what they had sent comes again: of that
    one epoch, a window for each worker at most. All later epochs are whole.

    Args:
        folder: shards that `shards.write` wrote, under a path that is the same for the workers.
        service: grpc://host:port of the dispatcher.
        job: a name that no earlier start has used. Trainers with the same name share the batches out among them: each batch
            goes to one of them, so that of n trainers, each should ask for an n-th of the tokens.
        batch_tokens: see `batching.batches`.
        seed, damaged_records: see `batching.batches`.
        start: see `batching.batches`; the same for all trainers of a job.

    Returns:
        A dataset like that of `batching.batches`, to be iterated once.

    Raises:
        ConnectionError: no dispatcher answers.
        ValueError: see `batching.batches`.
    """
    check(service)
    folder = folder.absolute()
    windows = batching.windows_per_epoch(shards.read_info(folder))

    def epoch(number: int, position: batching.Position) -> tf.data.Dataset:
        return batching.batches(
            folder, batch_tokens=batch_tokens, seed=seed, start=position, epochs=number + 1, damaged_records=damaged_records
        )

    def epochs() -> Iterator[dict]:
        position = start
        for number in itertools.count(start.window // windows):
            distribute = tf.data.experimental.service.distribute("distributed_epoch", service, f"{job}-{number}")
            yield from epoch(number, position).apply(distribute).as_numpy_iterator()
            position = batching.Position(windows * (number + 1), 0)

    # Python hands over whole batches only; not `flat_map`, in whose graph a job cannot be named after its epoch.
    return tf.data.Dataset.from_generator(epochs, output_signature=epoch(0, batching.START).element_spec)
