"""Serves a page on this machine: type a sentence, see its translations while you type, point at a word to see its
alignment.

python tools/demo.py --model_dir=runs/x
python tools/demo.py --server=grpc://localhost:8500
"""

import sys

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import program
from t2t_keras.serving.saved_export import open_model

_MODEL_DIR = flags.DEFINE_string(
    "model_dir", "", "A run's folder, or an export's; or those of several runs, separated by commas."
)
_SERVER = flags.DEFINE_string(
    "server", "", "A model server, as grpc://host:port or http://host:port, in place of --model_dir."
)
_MODEL_NAME = flags.DEFINE_string("model_name", "translate", "The model's name on the server.")
options.needs("server", "model_name")
_HOST = flags.DEFINE_string(
    "host", "localhost", "The interface to listen on. There is no password: everybody who can reach it can translate."
)
_PORT = flags.DEFINE_integer(
    "port", 8000, "The port to listen on; 0 takes a free one.", lower_bound=0, upper_bound=65535
)
_N_BEST = flags.DEFINE_integer(
    "n_best", 0, "Number of translations to show, at most the model's beam size; 0 shows up to 4.", lower_bound=0
)


def _number_shown(translate) -> int:
    """Returns how many translations can be shown: `n_best`, or by default 4 or the model's beam size."""
    n_best = _N_BEST.value or 4
    while True:
        try:
            translate("a", "", n_best)
            return n_best
        except ValueError:
            if _N_BEST.value or n_best == 1:
                raise
            n_best -= 1


def demo() -> None:
    if bool(_MODEL_DIR.value) == bool(_SERVER.value):
        received = "both" if _SERVER.value else "neither"
        raise ValueError(f"Expected exactly one of `model_dir` and `server`. Received: {received}.")
    from t2t_keras.serving import demo as page

    if _SERVER.value:
        from t2t_keras.serving import client

        name = f"{_MODEL_NAME.value} at {client.Model(_SERVER.value, _MODEL_NAME.value).shown}"
        translate = page.from_server(client.connect(client.Model(_SERVER.value, _MODEL_NAME.value)))
    else:
        folders = options.run_folders(_MODEL_DIR.value)
        model = open_model(folders)
        model.choose_environment()
        with program.without_noise():
            from t2t_keras import api

            name = " + ".join(folder.resolve().name for folder in folders)
            translate = page.from_translator(api.of_model(model))
    host = _HOST.value.removeprefix("[").removesuffix("]")
    shown = f"[{host}]" if ":" in host else host
    hosts = page.LOOPBACK if shown in page.LOOPBACK else ()
    n_best = _number_shown(translate)
    server = page.serve(page.Demo(translate, title=name, n_best=n_best, hosts=hosts), host, _PORT.value)
    page.warm_up(translate, n_best)
    print(f"Open http://{shown}:{server.port}/ in a browser. Ctrl-C ends the program.", file=sys.stderr, flush=True)
    server.serve_forever()


def main() -> None:
    program.run(demo)


if __name__ == "__main__":
    main()
