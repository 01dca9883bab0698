"""A model server in a thread of the tests: a SavedModel over gRPC and REST, with TensorFlow Serving's messages, JSON
and errors.

What it does as TensorFlow Serving does is written after `json_tensor.cc`, `http_rest_api_util.cc` and the REST guide of
that project; `test_serving.py` asks both the same questions where the real server is installed.

    python tests/loopback_server.py EXPORT_DIR [--batching]

It prints its addresses as JSON, and ends when its standard input does.
"""

import concurrent.futures
import contextlib
import http.server
import importlib.util
import json
import pathlib
import re
import ssl
import sys
import threading
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2, prediction_service_pb2_grpc

if importlib.util.find_spec("tensorflow_text"):
    import tensorflow_text  # noqa: F401  Its ops are in exports.

DEFAULT_SIGNATURE = "serving_default"
HTTP_CODES = {
    tf.errors.INVALID_ARGUMENT: 400, tf.errors.DEADLINE_EXCEEDED: 504, tf.errors.NOT_FOUND: 404,
    tf.errors.RESOURCE_EXHAUSTED: 429, tf.errors.FAILED_PRECONDITION: 400, tf.errors.UNIMPLEMENTED: 501,
    tf.errors.INTERNAL: 500, tf.errors.UNAVAILABLE: 503,
}  # fmt: skip
BATCHING_FILE = pathlib.Path(__file__).parent.parent / "serving/batching_parameters.txt"
GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Servable:
    """The newest version in an export's folder.

    Args:
        export_dir: holds a folder for each version.
        name: of the model.
        before: called with the inputs of each request before it is run; may wait, or raise one of `tf.errors`.
        batching: whether requests share batches, as `serving/batching_parameters.txt` says.
        model: that version, where it is loaded already.
    """

    def __init__(
        self,
        export_dir: pathlib.Path,
        name: str = "translate",
        before: Callable[[dict], None] = lambda inputs: None,
        batching: bool = False,
        model=None,
    ):
        self.name, self.before = name, before
        self.version = max(int(path.name) for path in export_dir.iterdir() if path.name.isdecimal())
        self.folder = export_dir / str(self.version)
        self.model = model or tf.saved_model.load(str(self.folder))
        self.functions = {
            name: batched(function) if batching else function for name, function in self.model.signatures.items()
        }

    def check(self, name: str, version: int) -> None:
        if name != self.name or version not in (0, self.version):
            wanted = f"Specific({name}, {version})" if version else f"Latest({name})"
            raise tf.errors.NotFoundError(None, None, f"Servable not found for request: {wanted}")

    def specs(self, signature: str) -> dict[str, tf.TensorSpec]:
        if signature not in self.model.signatures:
            raise tf.errors.InvalidArgumentError(
                None, None, f'Serving signature name: "{signature}" not found in signature def'
            )
        return self.model.signatures[signature].structured_input_signature[1]

    def predict(self, signature: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        specs = self.specs(signature)
        if set(inputs) != set(specs):
            extra, missing = sorted(set(inputs) - set(specs)), sorted(set(specs) - set(inputs))
            raise tf.errors.InvalidArgumentError(None, None, f"Sent extra: {extra}. Missing but required: {missing}.")
        self.before(inputs)
        outputs = self.functions[signature](**{name: tf.constant(inputs[name], specs[name].dtype) for name in specs})
        return {name: value.numpy() for name, value in outputs.items()}


def batching_parameters() -> dict:
    """The values of `serving/batching_parameters.txt`."""
    return {
        name: json.loads(value)
        for name, value in re.findall(r"^(\w+) { value: (\w+) }", BATCHING_FILE.read_text(), re.MULTILINE)
    }


def batched(signature: Callable) -> Callable:
    """The same function, which joins the rows of calls at the same time to batches, with the scheduler that TensorFlow
    Serving has.
    """
    inputs, outputs = (
        sorted(names) for names in (signature.structured_input_signature[1], signature.structured_outputs)
    )

    @tf.nondifferentiable_batch_function(autograph=False, **batching_parameters())
    def run(*values):
        found = signature(**dict(zip(inputs, values, strict=True)))
        return [found[name] for name in outputs]

    @tf.function(input_signature=[signature.structured_input_signature[1][name] for name in inputs], autograph=False)
    def call(*values):
        return dict(zip(outputs, run(*values), strict=True))

    return lambda **values: call(*(values[name] for name in inputs))


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, servable: Servable):
        self.servable = servable

    def Predict(self, request, context):  # noqa: N802
        spec = request.model_spec
        try:
            self.servable.check(spec.name, spec.version.value)
            inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
            outputs = self.servable.predict(spec.signature_name or DEFAULT_SIGNATURE, inputs)
        except tf.errors.OpError as error:
            context.abort(GRPC_CODES[error.error_code], error.message)
        response = predict_pb2.PredictResponse(model_spec=spec)
        response.model_spec.version.value = self.servable.version
        for name, value in outputs.items():  # In fields, not as content: as TensorFlow Serving does by default.
            tensor = response.outputs[name]
            tensor.dtype = tf.as_dtype(value.dtype).as_datatype_enum
            tensor.tensor_shape.CopyFrom(tf.TensorShape(value.shape).as_proto())
            field = {"f": "float_val", "i": "int_val", "b": "bool_val"}.get(value.dtype.kind, "string_val")
            getattr(tensor, field).extend(value.ravel().tolist())
        return response

    def GetModelMetadata(self, request, context):  # noqa: N802
        try:
            self.servable.check(request.model_spec.name, request.model_spec.version.value)
        except tf.errors.OpError as error:
            context.abort(GRPC_CODES[error.error_code], error.message)
        saved = saved_model_pb2.SavedModel.FromString((self.servable.folder / "saved_model.pb").read_bytes())
        signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=saved.meta_graphs[0].signature_def)
        response = get_model_metadata_pb2.GetModelMetadataResponse(model_spec=request.model_spec)
        response.metadata["signature_def"].Pack(signatures)
        return response


def to_json(value):
    """Nested lists; a float with the digits of its float32, a string as UTF-8."""
    if isinstance(value, np.ndarray):
        return [to_json(part) for part in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return float(str(value)) if isinstance(value, np.floating) else value.item()


class Handler(http.server.BaseHTTPRequestHandler):
    servable: Servable
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # The end of an answer would wait 40 ms for the client's acknowledgement.

    def answer(self, code: int, body: dict) -> None:
        content = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # The client waits no longer.
            self.wfile.write(content)

    def do_GET(self):
        found = re.fullmatch(r"/v1/models/([^/:]+)(?:/versions/(\d+))?", self.path)
        try:
            self.servable.check(found[1], int(found[2] or 0))
        except tf.errors.NotFoundError:
            return self.answer(404, {"error": f"Could not find any versions of model {found[1]}"})
        status = {
            "version": str(self.servable.version),
            "state": "AVAILABLE",
            "status": {"error_code": "OK", "error_message": ""},
        }
        self.answer(200, {"model_version_status": [status]})

    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        found = re.fullmatch(r"/v1/models/([^/:]+)(?:/versions/(\d+))?:predict", self.path)
        if not found:
            return self.answer(400, {"error": f"Malformed request: POST {self.path}"})
        try:
            self.servable.check(found[1], int(found[2] or 0))
            self.answer(200, self.predict(content))
        except tf.errors.OpError as error:
            self.answer(HTTP_CODES[error.error_code], {"error": error.message})
        except (ValueError, TypeError, KeyError) as error:
            self.answer(400, {"error": f"JSON Parse error: {error}"})

    def predict(self, content: bytes) -> dict:
        """{"inputs": columns} → {"outputs": columns}; {"instances": rows} → {"predictions": rows}; one column has no
        name.
        """
        body = json.loads(content)
        signature = body.get("signature_name", DEFAULT_SIGNATURE)
        specs = self.servable.specs(signature)
        by_row = "instances" in body
        given = body["instances"] if by_row else body["inputs"]
        if by_row and isinstance(given[0], dict):
            given = {name: [row[name] for row in given] for name in given[0]}
        elif not isinstance(given, dict):
            given = {next(iter(specs)): given}
        columns = {name: np.array(tf.constant(values, specs[name].dtype)) for name, values in given.items()}
        outputs = {name: to_json(value) for name, value in self.servable.predict(signature, columns).items()}
        if len(outputs) == 1:
            [only] = outputs.values()
            return {"predictions" if by_row else "outputs": only}
        if not by_row:
            return {"outputs": outputs}
        return {"predictions": [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]}

    def log_message(self, *arguments) -> None:
        pass


class RestServer(http.server.ThreadingHTTPServer):
    request_queue_size = 128  # Of Python's 5, those of more clients at the same time would be dropped.


@contextlib.contextmanager
def served(
    servable: Servable, grpc_port: int = 0, tls: tuple[pathlib.Path, pathlib.Path] | None = None
) -> Iterator[dict[str, str]]:
    """A running server's addresses: {"grpc": "grpc://…", "http": "http://…"}; with TLS, of a key and its certificate,
    grpcs and https.
    """
    rpc = grpc.server(concurrent.futures.ThreadPoolExecutor(64))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(PredictionService(servable), rpc)
    rest = RestServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"servable": servable}))
    if tls:
        key, certificate = tls
        credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
        grpc_port = rpc.add_secure_port(f"127.0.0.1:{grpc_port}", credentials)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        rest.socket = context.wrap_socket(rest.socket, server_side=True)
    else:
        grpc_port = rpc.add_insecure_port(f"127.0.0.1:{grpc_port}")
    rpc.start()
    threading.Thread(target=rest.serve_forever, args=(0.02,), daemon=True).start()
    try:
        ports, s = {"grpc": grpc_port, "http": rest.server_address[1]}, "s" if tls else ""
        yield {f"{scheme}{s}": f"{scheme}{s}://localhost:{port}" for scheme, port in ports.items()}
    finally:
        rest.shutdown()
        rest.server_close()
        rpc.stop(None)


if __name__ == "__main__":
    with served(Servable(pathlib.Path(sys.argv[1]), batching="--batching" in sys.argv)) as addresses:
        print(json.dumps(addresses), flush=True)
        sys.stdin.read()
