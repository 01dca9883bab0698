"""A client of a model server (TensorFlow Serving). gRPC and REST give the same translations.

The client does not import TensorFlow, so it starts in half a second instead of three.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import importlib.util
import itertools
import json
import math
import random
import re
import reprlib
import sys
import threading
import time
import types
import urllib.parse
from collections.abc import Callable, Iterable, Iterator

from t2t_keras.serving import terms
from t2t_keras.serving.protocol import OWN_ALPHA, SAMPLES, SCORES, Int64, as_line, options_for
from t2t_keras.system.log import logger
from t2t_keras.text.request import Request

SCHEMES = ("grpc", "grpcs", "http", "https")
MAX_EMPTY = 2**20  # Empty lists in an output.
_OF_BEAMS = ("text", "score", "constraints_met")  # Outputs with a value for each translation of a line.
# The type of the values of each output, and in how many lists they are.
_OF_SEARCH = {
    "text": (str, 2), "score": (float, 2), "constraints_met": (bool, 2), "truncated": (bool, 1), "error": (str, 1),
    "pieces": (str, 3), "source_pieces": (str, 2), "alignment": (float, 4),
}  # fmt: skip
OUTPUTS = {
    "translate_with_options": _OF_SEARCH, "sample": _OF_SEARCH,
    "serving_default": {"text": (str, 1), "score": (float, 1), "truncated": (bool, 1)},
    "score": {"pieces": (str, 2), "token_log_probs": (float, 2), "truncated": (bool, 1)},
}  # fmt: skip
MAX_MESSAGE = 1000  # Characters of an error message; the page of a proxy may have many.
Predict = Callable[[str, dict[str, list]], dict[str, list]]  # (signature name, inputs by name) → outputs by name.


class ServerError(OSError):
    """The server refused a request. The same request would fail again."""


class NoAnswerError(ServerError):
    """The server cannot be reached, is overloaded or too slow. The same request may succeed later."""


@dataclasses.dataclass(frozen=True)
class Model:
    """A model on a server.

    Args:
        server: grpc://host:port or http://host:port; with TLS, grpcs:// or https://. REST also accepts
            user:password@host.
        name: the name of the model on the server.
        version: the version of the model; 0 for the newest.
        timeout: how long to wait for a response, in seconds.

    Raises:
        ValueError: the address is invalid.
    """

    server: str = dataclasses.field(repr=False)  # It may hold a password.
    name: str
    version: int = 0
    timeout: float = 60.0

    def __post_init__(self):
        expected = "one of " + ", ".join(f"{scheme}://host:port" for scheme in SCHEMES)
        with contextlib.suppress(ValueError):  # The port is not a number.
            address = urllib.parse.urlsplit(self.server)
            if address.scheme in SCHEMES and address.hostname and address.port:
                if address.scheme in ("http", "https") or "@" not in address.netloc:
                    return
                expected = f"{address.scheme}://host:port; only REST has a user and a password"
        raise ValueError(f"Expected a model server as {expected}. Received: {self.shown}.")

    @property
    def shown(self) -> str:
        """The address for messages, without user and password."""
        return re.sub(r"^([^/]*//)?.*@", r"\1***@", self.server)

    def failed(self, message: str, *, missing: bool = False, again: bool = False) -> ServerError:
        """Returns the exception for an error of the server, with its message on one line. `missing` says whether the
        server does not have the model, `again` whether the same request may succeed later.
        """
        message = " ".join(message.replace(self.server, self.shown).split())
        if again:
            return NoAnswerError(f"{self.shown}: {message}")
        if missing:
            wanted = f"{self.name!r}" + (f", version {self.version}" if self.version else "")
            return ServerError(
                f"{self.shown} has no model {wanted}, or has not loaded it yet. Check the name. The server reports: "
                f"{message}"
            )
        return ServerError(f"{self.shown} refused the request: {message}")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the search that replace those of the model.

    Args:
        n_best: number of translations for each line.
        alpha: α of the length penalty (section 6.1), 0 to 10; -1 for that of the model.
        max_length: maximum number of sub-words in a translation; 0 for the default of the model, which depends on the
            source.
        prefix: text that each translation must start with.
    """

    n_best: int = 1
    alpha: float = OWN_ALPHA
    max_length: int = 0
    prefix: str = ""

    @property
    def number(self) -> int:
        """The number of translations for each line."""
        return self.n_best

    def request(self, first: int, lines: list[str | Request]) -> tuple[str, dict[str, list]]:
        """Returns the signature and the inputs of a request; `first` is the number of the first line, from 0."""
        return "translate_with_options", options_for(_requests(lines), **vars(self) | {"alpha": float(self.alpha)})


@dataclasses.dataclass(frozen=True)
class Samples:
    """Options of sampling, in place of a search; see `config.SampleConfig`. `max_length` is that of `Options`."""

    draws: int
    seed: int
    temperature: float
    top_k: int
    top_p: float
    max_length: int = 0

    @property
    def number(self) -> int:
        """The number of translations for each line."""
        return self.draws

    def request(self, first: int, lines: list[str]) -> tuple[str, dict[str, list]]:
        """Returns what `Options.request` does. Line n has the seed 2³² · seed + n."""
        inputs = {name: [type(SAMPLES[name])(value)] * len(lines) for name, value in vars(self).items()}
        seeds = [Int64(self.seed * 2**32 + first + row) for row in range(len(lines))]
        return "sample", {"text": lines, **inputs, "seed": seeds}


def connect(model: Model) -> Predict:
    """Returns a function that sends requests to a model. This call itself sends nothing.

    Raises:
        ValueError: a package is missing.
    """
    try:
        return _grpc(model) if urllib.parse.urlsplit(model.server).scheme.startswith("grpc") else _rest(model)
    except ImportError as error:
        raise ValueError(
            "The client needs more packages: pip install 't2t_keras[client]', or -e '.[client]' in a checkout. "
            f"({error})"
        ) from error


@contextlib.contextmanager
def _without_tensorflow():
    """Replaces the package `tensorflow` by an empty one inside a `with` block.

    The messages of TensorFlow Serving import those of TensorFlow, and so the whole package, which takes seconds.
    """
    if "tensorflow" in sys.modules:
        yield
        return
    spec = importlib.util.find_spec("tensorflow")
    empty = sys.modules["tensorflow"] = types.ModuleType("tensorflow")
    empty.__path__ = getattr(spec, "submodule_search_locations", [])  # Of none where it is not installed.
    try:
        yield
    finally:
        del sys.modules["tensorflow"]


def _grpc(model: Model) -> Predict:
    import grpc
    import numpy as np

    with _without_tensorflow():
        from tensorflow.core.framework import tensor_pb2, types_pb2
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    kinds = {
        str: (types_pb2.DT_STRING, "string_val", object),
        float: (types_pb2.DT_FLOAT, "float_val", np.float32),
        int: (types_pb2.DT_INT32, "int_val", np.int32),
        Int64: (types_pb2.DT_INT64, "int64_val", np.int64),
        bool: (types_pb2.DT_BOOL, "bool_val", bool),
    }
    address = urllib.parse.urlsplit(model.server)
    settings = [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        # The default of two minutes would delay reconnecting to a restarted server.
        ("grpc.max_reconnect_backoff_ms", 5000),
        ("grpc.lb_policy_name", "round_robin"),  # If a name has the addresses of several servers.
    ]
    if address.scheme == "grpcs":
        channel = grpc.secure_channel(address.netloc, grpc.ssl_channel_credentials(), settings)
    else:
        channel = grpc.insecure_channel(address.netloc, settings)
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    again = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED}

    def fill(tensor, values: list) -> None:
        tensor.dtype, field, _ = kinds[type(values[0])]
        tensor.tensor_shape.dim.add(size=len(values))
        getattr(tensor, field).extend(value.encode() if isinstance(value, str) else value for value in values)

    def read(tensor: tensor_pb2.TensorProto) -> list:
        known = {number: (field, dtype) for number, field, dtype in kinds.values()}
        if tensor.dtype not in known:
            raise model.failed(
                f"Expected outputs of a model of this project. Received: {types_pb2.DataType.Name(tensor.dtype)}."
            )
        field, dtype = known[tensor.dtype]
        values = getattr(tensor, field)
        if tensor.dtype == types_pb2.DT_STRING:
            values = [value.decode("utf-8", "replace") for value in values]
        flat = np.frombuffer(tensor.tensor_content, dtype) if tensor.tensor_content else np.array(values, dtype)
        shape = [dim.size for dim in tensor.tensor_shape.dim]
        # Any number of empty rows has no values.
        is_huge = not len(flat) and math.prod(filter(None, shape)) > MAX_EMPTY
        if min(shape, default=0) < 0 or math.prod(shape) != len(flat) or is_huge:
            raise model.failed(f"Expected outputs with the values of their shape. Received: {len(flat)} for {shape}.")
        return flat.reshape(shape).tolist()

    def predict(signature: str, inputs: dict[str, list]) -> dict[str, list]:
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = model.name, signature
        if model.version:
            request.model_spec.version.value = model.version
        for name, values in inputs.items():
            fill(request.inputs[name], values)
        try:
            outputs = stub.Predict(request, timeout=model.timeout).outputs
        except grpc.RpcError as error:
            code = error.code()
            raise model.failed(
                error.details(), missing=code == grpc.StatusCode.NOT_FOUND, again=code in again
            ) from None
        return {name: read(tensor) for name, tensor in outputs.items()}

    return predict


def _rest(model: Model) -> Predict:
    import numpy as np
    import requests

    version = f"/versions/{model.version}" if model.version else ""
    url = f"{model.server.rstrip('/')}/v1/models/{urllib.parse.quote(model.name, safe='')}{version}:predict"
    session = requests.Session()
    session.mount(model.server, requests.adapters.HTTPAdapter(pool_maxsize=64))

    def reason(error: requests.RequestException) -> str:
        """Returns why a connection failed, without the number of attempts and the address, which messages have."""
        return re.sub(r"^\w+\(host=.*?\): ", "", str(getattr(error.args[0], "reason", error)))

    # Redirects are not followed: requests would send a GET without the sentences.
    settings = {"headers": {"Content-Type": "application/json"}, "timeout": model.timeout, "allow_redirects": False}

    def predict(signature: str, inputs: dict[str, list]) -> dict[str, list]:
        body = json.dumps({"signature_name": signature, "inputs": inputs})
        try:
            response = session.post(url, data=body, **settings)
        except requests.exceptions.SSLError as error:  # A subclass of ConnectionError, so it comes first.
            raise model.failed(reason(error)) from None
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            raise model.failed(reason(error), again=True) from None
        except requests.RequestException as error:  # An invalid address.
            raise model.failed(str(error)) from None
        text = response.content.decode("utf-8", "replace")
        try:
            # Rounds numbers to float32, so that they equal those of gRPC.
            answer = json.loads(text, parse_float=lambda digits: float(np.float32(digits)))
        except (ValueError, RecursionError):
            answer = None
        if response.is_redirect:
            place = response.headers["Location"]
            answer = {"error": f"It redirects to {place}. Give the address that it redirects to."}
        if not isinstance(answer, dict):  # Not from a model server, but perhaps from a proxy.
            answer = {"error": text}
        if response.ok and "outputs" in answer:
            return answer["outputs"]
        code = response.status_code
        message = f"{answer.get('error', text)!s:.{MAX_MESSAGE}} (HTTP {code})"
        raise model.failed(message, missing=code == 404, again=code in (429, 502, 503, 504))

    return predict


def retrying(predict: Predict, attempts: int, *, sleep: Callable[[float], None] = time.sleep) -> Predict:
    """Repeats requests that got no response, after at most 0.5 s, 1 s, 2 s … 30 s, and raises `NoAnswerError` after
    `attempts`. Random factors, 0.5 to 1, keep clients from retrying together.

    If several requests fail at the same time, one of them is logged. `sleep` waits for a number of seconds.
    """
    next_logged = 1

    def patient(signature: str, inputs: dict[str, list]) -> dict[str, list]:
        nonlocal next_logged
        for attempt in itertools.count(1):
            try:
                outputs = predict(signature, inputs)
                next_logged = 1
                return outputs
            except NoAnswerError as error:
                if attempt >= attempts:
                    raise NoAnswerError(
                        f"No answer in {attempts} attempt(s). Check that the server runs and its model is loaded. "
                        f"{error}"
                    ) from None
                seconds = min(30.0, 0.5 * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)
                if attempt >= next_logged:
                    next_logged = attempt + 1
                    logger.warning(f"No answer. Attempt {attempt + 1} of {attempts} in {seconds:.1f} s. {error}")
                sleep(seconds)

    return patient


def _is_output(values, rows: int, kind: type, depth: int) -> bool:
    """Returns whether an output has values of a type, of which an integer is a float, in so many lists."""
    if not isinstance(values, list) or len(values) != rows:
        return False
    for _ in range(depth - 1):
        if not all(isinstance(value, list) for value in values):
            return False
        values = list(itertools.chain.from_iterable(values))
    return all(isinstance(value, (kind, int) if kind is float else kind) for value in values)


def _requests(lines: list[str | Request]) -> list[Request]:
    return [line if isinstance(line, Request) else Request(line) for line in lines]


def _check(lines: list[str | Request], errors: Iterable[str]) -> None:
    """Raises `ServerError` if lines have errors."""
    refused = [(line, error) for line, error in zip(lines, errors, strict=False) if error]
    if refused:
        line, error = refused[0]
        line = line.text if isinstance(line, Request) else line
        raise ServerError(
            f"The server refused {len(refused)} of {len(lines)} lines, such as {line[:60]!r}: {error.strip()}"
        )


def _in_steps(predicted: Callable, lines: list[str | Request], options: Options, word_scores: bool) -> list[dict]:
    """Translates as `translate_batch` does what takes up to three requests to the server: terms and scores of words."""

    names = {
        "translate_with_options": (
            "text", "score", "constraints_met", "error", "pieces", "source_pieces", "alignment"
        ),
        "score": ("token_log_probs", "pieces"),
    }  # fmt: skip

    def predict(signature: str, inputs: dict[str, list]) -> dict[str, list]:
        return predicted(signature, inputs, names[signature])

    requests, asked = _requests(lines), vars(options) | {"alpha": float(options.alpha)}
    rows = terms.predicted(predict, requests, **asked, word_scores=word_scores)
    _check(lines, [row if isinstance(row, str) else "" for row in rows])
    doubts = ("doubtful",) if any(request.terms for request in requests) else ()
    names = ("text", "score", "constraints_met", *doubts, *(SCORES if word_scores else ()))
    found = ({name: [getattr(each, name) for each in row] for name in names} for row in rows)
    return [values | {"truncated": row[0].truncated} for values, row in zip(found, rows, strict=True)]


def translate_batch(
    predict: Predict,
    lines: list[str | Request],
    options: Options | Samples | None = None,
    first: int = 0,
    word_scores: bool = False,
) -> list[dict]:
    """Translates lines in one request, or, with terms or scores of words, in up to three.

    Args:
        predict: a function from `connect` or `retrying`.
        lines: sentences, or requests with their own phrases.
        options: options for all lines; `None` for those of the model.
        first: number of the first line, from 0, on which its samples depend.
        word_scores: whether to score the words; not of samples.

    Returns:
        For each line {"text": [n_best] str, "score": [n_best] float}, best first, or samples; "constraints_met",
        [n_best] bool, for requests; with `word_scores` also `SCORES` of each `Translation`; and "truncated", whether
        the model read only the beginning of the line, as far as the export says so. Without `options`, n_best is 1.

    Raises:
        ServerError: the server refused the request or one of its lines.
    """

    def predicted(signature: str, inputs: dict, names: Iterable[str]) -> dict[str, list]:
        found = predict(signature, inputs)
        if not isinstance(found, dict) or not set(names) <= found.keys():
            received = ", ".join(found) if isinstance(found, dict) else type(found).__name__
            expected = f"an export of this version that translates, with outputs {', '.join(names)}"
            raise ServerError(f"Expected {expected}. Received: {received:.200}.")
        rows = len(next(iter(inputs.values())))
        for name in (*names, *{"truncated"} & found.keys()):
            kind, depth = OUTPUTS[signature][name]
            needs_one = depth == 2 and name in _OF_BEAMS  # A line has at least one translation.
            if not _is_output(found[name], rows, kind, depth) or needs_one and not all(found[name]):
                raise ServerError(
                    f"Expected {rows} rows of {kind.__name__} as {name}, in lists {depth} deep. Received: "
                    f"{reprlib.repr(found[name])}."
                )
        return found

    names, requests = ("text", "score"), [line for line in lines if isinstance(line, Request)]
    if word_scores or any(each.terms for each in requests):
        return _in_steps(predicted, lines, options or Options(), word_scores)
    if options is None and not requests:
        outputs = predicted("serving_default", {"text": lines}, names)
        found = {name: [[value] for value in outputs[name]] for name in names}
    else:
        options = options or Options()
        names += ("constraints_met",) if requests else ()
        outputs = predicted(*options.request(first, lines), (*names, "error"))
        _check(lines, outputs["error"])
        found = {name: [row[: options.number] for row in outputs[name]] for name in names}
    found["text"] = [list(map(as_line, row)) for row in found["text"]]
    # `serving_default` of an older export does not have it.
    found["truncated"] = outputs.get("truncated", [False] * len(lines))
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


def _start(function: Callable, *arguments) -> concurrent.futures.Future:
    """Calls a function in a daemon thread. Unlike the threads of an executor, it does not delay the end of the
    program.
    """
    future = concurrent.futures.Future()

    def work() -> None:
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def translate_lines(
    predict: Predict,
    lines: Iterable[str | Request],
    options: Options | Samples | None = None,
    *,
    word_scores: bool = False,
    batch_size: int = 32,
    parallel: int = 4,
) -> Iterator[dict]:
    """Translates any number of lines, in order, and yields the result of `translate_batch` for each. `batch_size` is
    the number of lines in a request, and `parallel` that of requests at the same time.
    """
    lines, first, under_way = iter(lines), 0, collections.deque()
    while batch := list(itertools.islice(lines, batch_size)):
        under_way.append(_start(translate_batch, predict, batch, options, first, word_scores))
        first += len(batch)
        if len(under_way) == parallel:
            yield from under_way.popleft().result()
    for future in under_way:
        yield from future.result()
