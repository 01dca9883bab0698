"""Starts a tf.data service, which reads training data on other machines: one dispatcher, and workers beside it.

python tools/data_service.py --port=5050
python tools/data_service.py --port=5051 --host=worker1 --dispatcher=grpc://dispatcher1:5050
python tools/train.py --data_service=grpc://dispatcher1:5050 …
"""

import signal

from absl import flags

from t2t_keras import flags as options

_PORT = flags.DEFINE_integer("port", None, "Port to listen at.", required=True, lower_bound=1, upper_bound=2**16 - 1)
_HOST = flags.DEFINE_string("host", "localhost", "This machine's name, as trainers and the other machines of the service reach it.")
_DISPATCHER = flags.DEFINE_string("dispatcher", "", "Be a worker of the dispatcher at grpc://host:port; empty: be a dispatcher.")


def serve() -> None:
    with options.without_noise():
        from tensorflow.data.experimental import service

        from t2t_keras import data_service

    address = f"{_HOST.value}:{_PORT.value}"
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Like SIGTERM: Python's own handler would wait for `join`.
    if dispatcher := _DISPATCHER.value:
        data_service.check(dispatcher, seconds=60)  # Which may be just starting too.
        config = service.WorkerConfig(dispatcher.removeprefix("grpc://"), worker_address=address, port=_PORT.value)
        server = service.WorkerServer(config)
        print(f"A worker of {dispatcher} is ready at grpc://{address}", flush=True)
    else:
        server = service.DispatchServer(service.DispatcherConfig(port=_PORT.value))
        print(f"A dispatcher is ready: train with --data_service=grpc://{address}", flush=True)
    server.join()


def main() -> None:
    options.run(serve)


if __name__ == "__main__":
    main()
