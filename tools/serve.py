"""Serves models over HTTP: a page to type sentences into, and the APIs of LibreTranslate and Apertium.

python tools/serve.py --model_dir=runs/x
python tools/serve.py --model_dir=runs/en_de --model_dir=runs/de_en --max_loaded=1
python tools/serve.py --server=grpc://localhost:8500 --source_language=en --target_language=de
"""

import functools
import importlib.util
import math
import pathlib
import signal
import sys

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import program
from t2t_keras.serving.saved_export import open_for_requests
from t2t_keras.system.log import logger
from t2t_keras.text import language_identification

_MODEL_DIR = flags.DEFINE_multi_string(
    "model_dir",
    [],
    "A run's folder, or an export's; given several times for several pairs of languages. Runs of the same languages "
    "that commas separate translate together.",
)
_SERVER = flags.DEFINE_string(
    "server", "", "A model server, as grpc://host:port or http://host:port, in place of --model_dir."
)
_MODEL_NAME = flags.DEFINE_string("model_name", "translate", "The model's name on the server.")
options.needs("server", "model_name")
_SOURCE_LANGUAGE = flags.DEFINE_list(
    "source_language", [], "Code of the language of the source, such as en: one for all models or one for each. By "
    "default the one that a run's data name; a multilingual model has all of its languages.",
)  # fmt: skip
_TARGET_LANGUAGE = flags.DEFINE_list("target_language", [], "Code of the language of the translations, likewise.")
_MAX_LOADED = flags.DEFINE_integer(
    "max_loaded", 4, "How many models may be in memory. The least recently used model is unloaded first.",
    lower_bound=1,
)  # fmt: skip
_HOST = flags.DEFINE_string("host", "localhost", "The interface to listen on. Beyond this machine, give --api_key too.")
_PORT = flags.DEFINE_integer(
    "port", 8000, "The port to listen on; 0 takes a free one.", lower_bound=0, upper_bound=65535
)
_API_KEY = flags.DEFINE_string("api_key", "", "Key that requests must send as `api_key`; empty: no key.")
_ORIGINS = flags.DEFINE_list(
    "origins", [], "Origins of web pages and browser extensions that may send requests, such as "
    "https://example.org; * is all.",
)  # fmt: skip
_SPLIT = flags.DEFINE_boolean("split_sentences", True, "Translate a text sentence by sentence, not line by line.")
_TIMEOUT = flags.DEFINE_float(
    "timeout", 60, "Seconds after which a request that waits is refused.", lower_bound=0.1, upper_bound=86_400
)
_MAX_WAIT_MS = flags.DEFINE_float(
    "max_wait_ms", 5, "Milliseconds that a sentence waits for others to be translated with.", lower_bound=0,
    upper_bound=60_000,
)  # fmt: skip
_MAX_BATCH = flags.DEFINE_integer("max_batch", 32, "Maximum number of sentences translated together.", lower_bound=1)
_MAX_QUEUE = flags.DEFINE_integer(
    "max_queue", 1024, "Number of sentences that may wait; others are refused.", lower_bound=1
)
_N_BEST = flags.DEFINE_integer(
    "n_best", 4, "Number of translations that the page shows, at most the model's beam size.", lower_bound=1
)


def _folders() -> list[list[pathlib.Path]]:
    """Returns the folders of each model: those that commas separate are one, unless their languages differ."""
    models = []
    for folders in map(options.run_folders, _MODEL_DIR.value):
        languages = [open_for_requests([folder]).pair for folder in folders] if len(folders) > 1 else [()]
        models += [folders] if len(set(languages)) == 1 else [[folder] for folder in folders]
    return models


def _one_each(flag: flags.FlagHolder, number: int) -> list[str]:
    values = flag.value or [""]
    if len(values) not in (1, number):
        raise ValueError(
            f"Expected `{flag.name}` to be one code, or one for each of {number} models. Received: {len(values)}."
        )
    return values if len(values) == number else values * number


def serve() -> None:
    if bool(_MODEL_DIR.value) == bool(_SERVER.value):
        received = "both" if _SERVER.value else "neither"
        raise ValueError(f"Expected exactly one of `model_dir` and `server`. Received: {received}.")
    if not math.isfinite(_TIMEOUT.value + _MAX_WAIT_MS.value):
        received = f"timeout={_TIMEOUT.value}, max_wait_ms={_MAX_WAIT_MS.value}"
        raise ValueError(f"Expected numbers as `timeout` and `max_wait_ms`. Received: {received}.")
    from t2t_keras.serving import served_models, web_api, web_server
    from t2t_keras.serving.metrics import Metrics

    if _SERVER.value:
        from t2t_keras.serving import client

        model = client.Model(_SERVER.value, _MODEL_NAME.value, timeout=_TIMEOUT.value)
        languages = _one_each(_SOURCE_LANGUAGE, 1) + _one_each(_TARGET_LANGUAGE, 1)
        if not all(languages):
            raise ValueError("`server` needs `source_language` and `target_language`. Received: not both.")
        name = f"{_MODEL_NAME.value} at {model.shown}"
        models = [served_models.remote(name, client.connect(model), *languages)]
    else:
        folders = _folders()
        opened = [open_for_requests(each) for each in folders]
        names = [" + ".join(folder.resolve().name for folder in each) for each in folders]
        languages = (_one_each(flag, len(opened)) for flag in (_SOURCE_LANGUAGE, _TARGET_LANGUAGE))
        unknown = ("source", "target") if len(opened) == 1 else ("", "")
        models = [served_models.local(*each, unknown) for each in zip(names, opened, *languages, strict=True)]
        if unknown[0] in {source for source, _ in models[0].beginnings}:
            logger.warning(
                "The data of the model do not name its languages. Give --source_language and --target_language, or "
                "call them source and target in requests."
            )
        opened[0].choose_environment()
    host = _HOST.value.removeprefix("[").removesuffix("]")
    shown = f"[{host}]" if ":" in host else host
    metrics = Metrics()
    served = served_models.ServedModels(
        models,
        _MAX_LOADED.value,
        max_batch=_MAX_BATCH.value,
        max_wait=_MAX_WAIT_MS.value / 1000,
        max_queue=_MAX_QUEUE.value,
        observe=functools.partial(metrics.observe, "t2t_batch_sentences"),
    )
    metrics.gauges |= {"t2t_waiting_sentences": lambda: served.waiting, "t2t_loaded_models": lambda: served.loaded}
    installed = all(map(importlib.util.find_spec, ("langcodes", "py3langid")))
    identify = language_identification.identify if installed else None
    application = web_api.WebApi(
        served,
        title=", ".join(model.name for model in models),
        n_best=_N_BEST.value,
        hosts=web_api.hosts(host),
        origins=_ORIGINS.value,
        api_key=_API_KEY.value,
        timeout=_TIMEOUT.value,
        split=_SPLIT.value,
        identify=identify,
        metrics=metrics,
    )
    refused = functools.partial(metrics.count, "t2t_refused_connections_total")
    server = web_server.serve(application, host, _PORT.value, refused)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # It ends the server as Ctrl-C does.
    served.load_first()
    print(f"Open http://{shown}:{server.port}/ in a browser. Ctrl-C ends the program.", file=sys.stderr, flush=True)
    server.serve_forever()


def main() -> None:
    program.run(serve)


if __name__ == "__main__":
    main()
