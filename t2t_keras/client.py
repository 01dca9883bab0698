"""Translations from a model server (TensorFlow Serving), over gRPC or REST: the same from both, line for line.

TensorFlow itself is not imported: a client starts in half a second, not in three.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import importlib.util
import itertools
import json
import random
import re
import sys
import threading
import time
import types
import urllib.parse
from collections.abc import Callable, Iterable, Iterator

from t2t_keras.log import logger

SCHEMES = ("grpc", "grpcs", "http", "https")
Predict = Callable[[str, dict[str, list]], dict[str, list]]  # Of a signature's name and its inputs by name; its outputs by name.


class ServerError(OSError):
    """The server's answer is an error, which the same request would get again."""


class NoAnswerError(ServerError):
    """The server is away, too busy or too slow: the same request may be answered later."""


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of a server.

    Args:
        server: grpc://host:port or http://host:port; with TLS: grpcs:// or https://. REST may have user:password@host.
        name: as the server calls it.
        version: 0 for the newest.
        timeout: seconds to wait for an answer.

    Raises:
        ValueError: that is no such address.
    """

    server: str = dataclasses.field(repr=False)  # It may hold a password.
    name: str
    version: int = 0
    timeout: float = 60.0

    def __post_init__(self):
        expected = "one of " + ", ".join(f"{scheme}://host:port" for scheme in SCHEMES)
        with contextlib.suppress(ValueError):  # Of a port that is no number.
            address = urllib.parse.urlsplit(self.server)
            if address.scheme in SCHEMES and address.hostname and address.port:
                if address.scheme in ("http", "https") or "@" not in address.netloc:
                    return
                expected = f"{address.scheme}://host:port; only REST has a user and a password"
        raise ValueError(f"Expected a model server as {expected}. Received: {self.shown}.")

    @property
    def shown(self) -> str:
        """The server's address without its user and password, for messages."""
        return re.sub(r"^([^/]*//)?.*@", r"\1***@", self.server)

    def failed(self, message: str, *, missing: bool = False, again: bool = False) -> ServerError:
        """The exception for an error of the server, in its own words, on one line."""
        message = " ".join(message.replace(self.server, self.shown).split())
        if again:
            return NoAnswerError(f"{self.shown}: {message}")
        if missing:
            wanted = f"{self.name!r}" + (f", version {self.version}" if self.version else "")
            return ServerError(f"{self.shown} has no model {wanted}, or has not loaded it yet. Check the name. It says: {message}")
        return ServerError(f"{self.shown} refused the request: {message}")


@dataclasses.dataclass(frozen=True)
class Options:
    """How to search, where it is not left to the model.

    Args:
        n_best: translations of a line.
        alpha: of the length penalty (section 6.1), 0 or more; -1 for the model's own.
        max_length: sub-words of a translation at most; 0 for the model's own, which goes by the source's length.
        prefix: what a translation begins with.
    """

    n_best: int = 1
    alpha: float = -1.0
    max_length: int = 0
    prefix: str = ""


def connect(model: Model) -> Predict:
    """How to ask a model; nothing is sent yet.

    Raises:
        ValueError: a package is missing.
    """
    try:
        return _grpc(model) if model.server.startswith("grpc") else _rest(model)
    except ImportError as error:
        raise ValueError(f"The client needs more packages: pip install 't2t_keras[client]'. ({error})") from error


@contextlib.contextmanager
def _without_tensorflow():
    """Serving's messages import TensorFlow's, by way of the package `tensorflow`, all of which takes seconds: here it is empty."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or "tensorflow" in sys.modules:
        yield
        return
    empty = sys.modules["tensorflow"] = types.ModuleType("tensorflow")
    empty.__path__ = list(spec.submodule_search_locations)
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
        bool: (types_pb2.DT_BOOL, "bool_val", bool),
    }
    address = urllib.parse.urlsplit(model.server)
    settings = [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_reconnect_backoff_ms", 5000),  # Not the two minutes after which it would look for a restarted server again.
        ("grpc.lb_policy_name", "round_robin"),  # Where a name stands for several servers.
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
            raise model.failed(f"It answers in {types_pb2.DataType.Name(tensor.dtype)}, as no model of this project does.")
        field, dtype = known[tensor.dtype]
        values = getattr(tensor, field)
        if tensor.dtype == types_pb2.DT_STRING:
            values = [value.decode("utf-8", "replace") for value in values]
        flat = np.frombuffer(tensor.tensor_content, dtype) if tensor.tensor_content else np.array(values, dtype)
        return flat.reshape([dim.size for dim in tensor.tensor_shape.dim]).tolist()

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
            raise model.failed(error.details(), missing=code == grpc.StatusCode.NOT_FOUND, again=code in again) from None
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
        """Of a connection that was not made: why, without how often."""
        return str(getattr(error.args[0], "reason", error))

    def predict(signature: str, inputs: dict[str, list]) -> dict[str, list]:
        body = json.dumps({"signature_name": signature, "inputs": inputs})
        try:
            response = session.post(url, data=body, headers={"Content-Type": "application/json"}, timeout=model.timeout)
        except requests.exceptions.SSLError as error:  # Which is a ConnectionError too.
            raise model.failed(reason(error)) from None
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            raise model.failed(reason(error), again=True) from None
        except requests.RequestException as error:  # Of an address that is none.
            raise model.failed(str(error)) from None
        text = response.content.decode("utf-8", "replace")
        try:
            # A number is the float32 that the server wrote, as over gRPC.
            answer = json.loads(text, parse_float=lambda digits: float(np.float32(digits)))
        except ValueError:  # Not of a model server: of a proxy before it, perhaps.
            answer = {"error": text}
        if response.ok and "outputs" in answer:
            return answer["outputs"]
        code = response.status_code
        message = f"{answer.get('error', text)} (HTTP {code})"
        raise model.failed(message, missing=code == 404, again=code in (429, 502, 503, 504))

    return predict


def retrying(predict: Predict, attempts: int, *, sleep: Callable[[float], None] = time.sleep) -> Predict:
    """Asks again where no answer came, after 0.5 s, 1 s, 2 s … 30 s, each shortened by chance so that clients do not come together.

    A failure that several requests meet at once is logged once.
    """
    said = 1

    def patient(signature: str, inputs: dict[str, list]) -> dict[str, list]:
        nonlocal said
        for attempt in itertools.count(1):
            try:
                outputs = predict(signature, inputs)
                said = 1
                return outputs
            except NoAnswerError as error:
                if attempt >= attempts:
                    raise NoAnswerError(f"No answer in {attempts} attempt(s). Is the server up, and its model loaded? {error}") from None
                seconds = min(30.0, 0.5 * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)
                if attempt >= said:
                    said = attempt + 1
                    logger.warning(f"No answer; attempt {attempt + 1} of {attempts} in {seconds:.1f} s. {error}")
                sleep(seconds)

    return patient


def translate_batch(predict: Predict, lines: list[str], options: Options | None = None) -> list[dict]:
    """Lines → {"text": [n_best] str, "score": [n_best] float} each, best first; one of each where there are no options.

    Raises:
        ServerError: the server refuses an option, or a line with it.
    """
    if options is None:
        outputs = predict("serving_default", {"text": lines})
        outputs = {name: [[value] for value in outputs[name]] for name in ("text", "score")}
    else:
        same = {**dataclasses.asdict(options), "alpha": float(options.alpha), "alignment": False}
        outputs = predict("translate_with_options", {"text": lines, **{name: [value] * len(lines) for name, value in same.items()}})
        refused = [(line, error) for line, error in zip(lines, outputs["error"], strict=False) if error]
        if refused:
            line, error = refused[0]
            raise ServerError(f"The server refused {len(refused)} of {len(lines)} lines, such as {line[:60]!r}: {error.strip()}")
        outputs = {name: [row[: options.n_best] for row in outputs[name]] for name in ("text", "score")}
    if len(outputs["text"]) != len(lines):
        raise ServerError(f"Expected {len(lines)} translations of as many lines. Received: {len(outputs['text'])}.")
    return [{"text": text, "score": score} for text, score in zip(outputs["text"], outputs["score"], strict=True)]


def _start(function: Callable, *arguments) -> concurrent.futures.Future:
    """In a thread that, unlike an executor's, does not keep the program from ending at once."""
    future = concurrent.futures.Future()

    def work() -> None:
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def translate_lines(
    predict: Predict, lines: Iterable[str], options: Options | None = None, *, batch_size: int = 32, parallel: int = 4
) -> Iterator[dict]:
    """Translates line by line, in order, however many there are.

    Args:
        predict: of `connect`, and `retrying`.
        lines: sentences.
        options: of all lines; None leaves the search to the model.
        batch_size: lines of a request.
        parallel: requests under way at once.

    Yields:
        What `translate_batch` gives for each line.
    """
    lines, under_way = iter(lines), collections.deque()
    while batch := list(itertools.islice(lines, batch_size)):
        under_way.append(_start(translate_batch, predict, batch, options))
        if len(under_way) == parallel:
            yield from under_way.popleft().result()
    for future in under_way:
        yield from future.result()
