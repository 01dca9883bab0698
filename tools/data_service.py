"""Starts a tf.data service, which reads training data on other machines: one dispatcher and its workers.

python tools/data_service.py --host=dispatcher1 --port=5050
python tools/data_service.py --host=worker1 --port=5051 --dispatcher=grpc://dispatcher1:5050
python tools/train.py --data_service=grpc://dispatcher1:5050 …
"""

import signal
import sys

from absl import flags

from t2t_keras.cli import program

_PORT = flags.DEFINE_integer("port", None, "Port to listen on.", required=True, lower_bound=1, upper_bound=2**16 - 1)
_HOST = flags.DEFINE_string(
    "host",
    "localhost",
    "Name of this machine for trainers and the service's other machines; localhost: only programs on this machine can "
    "connect.",
)
_DISPATCHER = flags.DEFINE_string(
    "dispatcher", "", "Start a worker of the dispatcher at grpc://host:port; empty: start a dispatcher."
)


def restrict(host: str, port: int) -> None:
    """Closes the port to other machines if the host is a loopback name; otherwise warns that the port is open. Raises
    `OSError` if the system cannot close it.
    """
    from t2t_keras.data import data_service

    if host == "localhost" or host.startswith("127."):
        try:
            data_service.keep_local(port)
        except OSError as error:
            raise OSError(
                f"TensorFlow listens on every network interface, and this system cannot close port {port} to other "
                f"machines ({error.strerror}). Close it with a firewall, and set --host to this machine's name."
            ) from error
    else:
        print(
            f"Warning: TensorFlow listens on port {port} of every network interface of this machine, not only at "
            f"{host}. Anyone who can connect can read every file that this program can read. Allow only your own "
            "machines to connect.",
            file=sys.stderr,
            flush=True,
        )


def serve() -> None:
    with program.without_noise():
        from tensorflow.data.experimental import service

        from t2t_keras.data import data_service
        from t2t_keras.system.tensorflow import hide_gpus, reach_directly

    hide_gpus()
    reach_directly([_HOST.value])
    address = f"{_HOST.value}:{_PORT.value}"
    data_service.check_free(_PORT.value)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # As for SIGTERM: Python's own handler would wait for `join`.
    if dispatcher := _DISPATCHER.value:
        data_service.check(dispatcher, seconds=60)  # It may still be starting.
        config = service.WorkerConfig(dispatcher.removeprefix("grpc://"), worker_address=address, port=_PORT.value)
        server, ready = service.WorkerServer(config), f"A worker of {dispatcher} is ready at grpc://{address}"
    else:
        server = service.DispatchServer(service.DispatcherConfig(port=_PORT.value))
        ready = f"A dispatcher is ready: train with --data_service=grpc://{address}"
    restrict(_HOST.value, _PORT.value)
    print(ready, flush=True)
    server.join()


def main() -> None:
    program.run(serve)


if __name__ == "__main__":
    main()
