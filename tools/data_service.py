"""Starts a tf.data service, which reads training data on other machines: one dispatcher, and workers beside it.

python tools/data_service.py --host=dispatcher1 --port=5050
python tools/data_service.py --host=worker1 --port=5051 --dispatcher=grpc://dispatcher1:5050
python tools/train.py --data_service=grpc://dispatcher1:5050 …
"""

import signal
import sys

from absl import flags

from t2t_keras import flags as options

_PORT = flags.DEFINE_integer("port", None, "Port to listen at.", required=True, lower_bound=1, upper_bound=2**16 - 1)
_HOST = flags.DEFINE_string(
    "host",
    "localhost",
    "This machine's name, as trainers and the other machines of the service reach it; as localhost, only this machine's programs do.",
)
_DISPATCHER = flags.DEFINE_string("dispatcher", "", "Be a worker of the dispatcher at grpc://host:port; empty: be a dispatcher.")


def _restrict() -> None:
    """Lets only this machine reach the port if that is what is asked for; says that everybody does otherwise."""
    from t2t_keras import data_service

    if _HOST.value in ("localhost", "::1") or _HOST.value.startswith("127."):
        try:
            data_service.keep_local(_PORT.value)
        except OSError as error:
            raise OSError(
                f"TensorFlow listens on every network interface, and this system cannot close port {_PORT.value} to other machines "
                f"({error.strerror}). Close it by a firewall, and give this machine's name as --host."
            ) from error
    else:
        print(
            f"Warning: TensorFlow listens at port {_PORT.value} on every network interface of this machine, not only at {_HOST.value}. "
            "Whoever reaches it can read what this program can read: let only your own machines reach it.",
            file=sys.stderr,
            flush=True,
        )


def serve() -> None:
    from tensorflow.data.experimental import service

    from t2t_keras import data_service

    address = f"{_HOST.value}:{_PORT.value}"
    data_service.check_free(_PORT.value)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Like SIGTERM: Python's own handler would wait for `join`.
    if dispatcher := _DISPATCHER.value:
        data_service.check(dispatcher, seconds=60)  # It may be starting too.
        config = service.WorkerConfig(dispatcher.removeprefix("grpc://"), worker_address=address, port=_PORT.value)
        server, ready = service.WorkerServer(config), f"A worker of {dispatcher} is ready at grpc://{address}"
    else:
        server = service.DispatchServer(service.DispatcherConfig(port=_PORT.value))
        ready = f"A dispatcher is ready: train with --data_service=grpc://{address}"
    _restrict()
    print(ready, flush=True)
    server.join()


def main() -> None:
    options.run(serve)


if __name__ == "__main__":
    main()
