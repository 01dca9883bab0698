"""Line for line, whatever is in a line and whatever goes wrong on the way: the client, against a model server in this
process.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
import types

import loopback_server
import numpy as np
import programs
import pytest
import stand_in
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from t2t_keras.serving import client
from t2t_keras.text.request import Request
from tools import workers

ROOT = pathlib.Path(__file__).parent.parent
SCHEMES = ("grpc", "http")
OPTIONS = {"alpha": [0.6, 1 / 3], "max_length": [0, 1], "n_best": [2, 1], "prefix": ["", "→ "]}
OPTIONS |= {"constraints": ["", ""], "avoid": ["", ""], "ordered": [False, True], "alignment": [False, False]}
LINES_THAT_TRY_IT = ["one", "", "   ", "a\tb\rc\x0b\x0c", "nul\x00nul", "\u2028 \x85", "😀 ½ straße"]
LINES_THAT_TRY_IT += ['quote " and \\ back', "\ufffd", "x" * 9999]


@pytest.fixture(scope="module")
def servable(tmp_path_factory) -> loopback_server.Servable:
    return loopback_server.Servable(stand_in.write(tmp_path_factory.mktemp("export")))


@pytest.fixture(scope="module")
def servers(servable):
    with loopback_server.served(servable) as addresses:
        yield addresses


@pytest.fixture
def requests(servable):
    """The inputs of each request of a test; to `requests.before` a test assigns what the server does before it
    answers.
    """

    class Requests(list):
        before = staticmethod(lambda number, inputs: None)

    seen, numbers = Requests(), itertools.count()

    def before(inputs: dict) -> None:
        seen.append(inputs)
        seen.before(next(numbers), inputs)

    servable.before = before
    yield seen
    servable.before = lambda inputs: None


def predict_of(servers, scheme: str, **model) -> client.Predict:
    return client.connect(client.Model(servers[scheme], **{"name": "translate", "timeout": 10.0, **model}))


def program(*arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "tools/client.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, input=stdin, capture_output=True, env=environment, timeout=60)


def fail(times: int, kind: type = tf.errors.UnavailableError):
    """The server's first answers are errors."""

    def before(number: int, inputs: dict) -> None:
        if number < times:
            raise kind(None, None, "come back later")

    return before


@pytest.mark.parametrize(("signature", "inputs"), [
    ("serving_default", {"text": LINES_THAT_TRY_IT}),
    ("score", {"source": ["a", "b"], "target": ["abc", ""]}),
    client.Samples(3, 2**31 - 1, 0.5, 7, 0.25, 9).request(2**31, ["Ab", "", "→"]),
    ("translate_with_options", {"text": ["Ab", "cD"], **OPTIONS}),
    ("translate_with_options", {"text": ["Ab", "cD"], **OPTIONS, "alignment": [False, True]}),
])  # fmt: skip
def test_grpc_and_rest_give_the_same_to_the_last_bit(servers, servable, signature, inputs):
    """As the SavedModel itself does, with axes of no length and strings that JSON has to escape."""
    by_grpc, by_rest = (predict_of(servers, scheme)(signature, inputs) for scheme in SCHEMES)
    assert by_grpc == by_rest
    expected = servable.predict(signature, {name: np.array(values) for name, values in inputs.items()})
    for name, value in expected.items():
        if value.dtype == object and value.size:
            value = np.vectorize(lambda text: text.decode(), otypes=[object])(value)
        assert by_grpc[name] == value.tolist(), name


def test_an_answer_may_be_longer_than_the_4_mebibytes_that_grpc_allows(servers):
    inputs = {"text": ["x" * 3 * 2**20], **{name: values[:1] for name, values in OPTIONS.items()}}
    found = predict_of(servers, "grpc")("translate_with_options", inputs)
    assert sum(map(len, found["text"][0])) > 2**22


@pytest.mark.parametrize("secure", [False, True])
def test_a_client_looks_for_a_restarted_server_every_few_seconds(answered, monkeypatch, secure):
    import grpc

    seen = []
    for kind in ("insecure", "secure"):
        monkeypatch.setattr(grpc, f"{kind}_channel", lambda *given, kind=kind: seen.append((kind, dict(given[-1]))))
    client.connect(client.Model(f"grpc{'s' * secure}://localhost:1", "translate"))
    [(kind, settings)] = seen
    assert kind == ("secure" if secure else "insecure") and settings["grpc.max_reconnect_backoff_ms"] <= 10_000
    assert settings["grpc.lb_policy_name"] == "round_robin"  # Of all addresses of a headless Service.


@pytest.mark.parametrize("scheme", SCHEMES)
def test_lines_keep_their_order_with_several_requests_under_way(servers, requests, scheme):
    """Though the server answers the first requests last."""
    most, now = [0], [0]

    def before(number: int, inputs: dict) -> None:
        now[0] += 1
        most[0] = max(most[0], now[0])
        time.sleep(0.1 / (1 + number))
        now[0] -= 1

    requests.before = before
    lines = [f"line {number}" for number in range(50)]
    found = list(client.translate_lines(predict_of(servers, scheme), lines, batch_size=3, parallel=4))
    assert [result["text"] for result in found] == [[line.upper()] for line in lines]
    assert 1 < most[0] <= 4
    assert sorted(len(inputs["text"]) for inputs in requests) == [2] + [3] * 16


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "kind", [tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.ResourceExhaustedError]
)
def test_a_busy_server_is_asked_again_after_longer_and_longer_times(servers, requests, scheme, kind, messages):
    waited = []
    requests.before = fail(4, kind)
    predict = client.retrying(predict_of(servers, scheme), 5, sleep=waited.append)
    [found] = client.translate_lines(predict, ["one"])
    assert found == {"text": ["ONE"], "score": [pytest.approx(-0.3)], "truncated": False}
    assert len(requests) == 5
    for seconds, most in zip(waited, [0.5, 1, 2, 4], strict=True):
        assert most / 2 <= seconds <= most
    assert len(messages) == 4 and "Attempt 2 of 5" in messages[0] and "come back later" in messages[0]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_after_the_last_attempt_it_says_what_the_server_said(servers, requests, scheme):
    requests.before = fail(99)
    predict = client.retrying(predict_of(servers, scheme), 3, sleep=lambda seconds: None)
    with pytest.raises(client.NoAnswerError, match=r"3 attempt.*come back later"):
        list(client.translate_lines(predict, ["one"]))
    assert len(requests) == 3


def test_what_befalls_all_requests_is_said_once(servers, requests, messages):
    requests.before = fail(8)
    predict = client.retrying(predict_of(servers, "grpc"), 9, sleep=lambda seconds: time.sleep(0.01))
    assert len(list(client.translate_lines(predict, ["one"] * 8, batch_size=2))) == 8
    assert 2 <= len(messages) < 8


def test_no_more_translations_come_back_than_were_asked_for():
    """A server answers with as many as its beam holds."""
    outputs = {"text": [["a", "b", "c"], ["d", "", ""]], "score": [[-1.0, -2.0, -3.0], [-4.0, 0.0, 0.0]]}
    outputs["error"] = ["", ""]
    for number in (1, 2):
        found = client.translate_batch(lambda signature, inputs: outputs, ["one", "two"], client.Options(n_best=number))
        assert found[0] == {"text": ["a", "b"][:number], "score": [-1.0, -2.0][:number], "truncated": False}
        assert found[1]["text"][0] == "d"


def test_each_request_has_its_own_phrases_and_says_whether_they_are_there(servers):
    """The server meets ordered constraints only."""
    requests_ = [Request("one", ["x", "y z"], [], True), Request("two", ["x"]), "three", Request("four")]
    found = client.translate_batch(predict_of(servers, "grpc"), requests_)
    assert [(each["text"], each["constraints_met"]) for each in found] == [
        (["ONE"], [True]), (["TWO"], [False]), (["THREE"], [True]), (["FOUR"], [True])
    ]  # fmt: skip
    many = client.translate_batch(predict_of(servers, "http"), requests_, client.Options(n_best=2, prefix="p"))
    assert [each["constraints_met"] for each in many] == [[True] * 2, [False] * 2, [True] * 2, [True] * 2]
    assert many[1]["text"] == ["pTWO", "ptwo"]
    with pytest.raises(client.ServerError, match="refused 1 of 2 lines, such as 'two': avoid: expected nothing"):
        client.translate_batch(predict_of(servers, "grpc"), [Request("one"), Request("two", avoid=["x"])])


def test_a_server_that_goes_away_again_is_reported_again(messages):
    away = iter([True, False, True, False])

    def predict(signature, inputs):
        if next(away):
            raise client.NoAnswerError("away")
        return {}

    patient = client.retrying(predict, 2, sleep=lambda seconds: None)
    assert patient("serving_default", {}) == patient("serving_default", {}) == {}
    assert len(messages) == 2


def asked_over_http(monkeypatch, code: int, content: bytes, **headers: str) -> Exception:
    """The error of a request that a server, or what stands before it, answers so."""
    from requests import Response, Session

    def post(session, url, allow_redirects, **options) -> Response:
        assert not allow_redirects
        return answer

    answer = Response()
    answer.status_code, answer._content = code, content
    answer.headers.update(headers)
    monkeypatch.setattr(Session, "post", post)
    with pytest.raises(client.ServerError) as told:
        client.connect(client.Model("http://localhost:1", "translate"))("serving_default", {"text": ["one"]})
    return told.value


@pytest.mark.parametrize(
    ("code", "again"), [(429, True), (502, True), (503, True), (504, True), (500, False), (400, False)]
)
def test_what_a_busy_server_or_its_proxy_answers_is_asked_for_again_and_nothing_else(monkeypatch, code, again):
    told = asked_over_http(monkeypatch, code, b"come back later")
    assert f"come back later (HTTP {code}" in str(told) and isinstance(told, client.NoAnswerError) == again


@pytest.mark.parametrize(
    ("kind", "again"),
    [("SSLError", False), ("InvalidURL", False)]
    + [(kind, True) for kind in ("ConnectionError", "Timeout", "ChunkedEncodingError")],
)
def test_a_connection_that_fails_is_tried_again_but_not_where_it_would_fail_again(monkeypatch, kind, again):
    import requests

    def post(session, url, **options):
        raise getattr(requests.exceptions, kind)("what went wrong")

    monkeypatch.setattr(requests.Session, "post", post)
    with pytest.raises(client.ServerError, match="what went wrong$") as told:
        client.connect(client.Model("http://localhost:1", "translate"))("serving_default", {"text": ["one"]})
    assert isinstance(told.value, client.NoAnswerError) == again


@pytest.mark.parametrize(
    ("code", "content"),
    [
        (200, text)
        for text in ("<html>Log in first</html>", '["Log in first"]', '{"message": "Log in first"}', '"Log in first"')
    ]
    + [(400, '{"outputs": {"text": ["ONE"]}, "error": "Log in first"}')],
)
def test_a_page_in_place_of_outputs_is_an_error(monkeypatch, code, content):
    """Story: JSON that was no object ended the client with a traceback."""
    said = str(asked_over_http(monkeypatch, code, content.encode()))
    assert "refused the request: " in said and "Log in first" in said and f"(HTTP {code})" in said


def test_a_redirect_is_reported_and_not_followed(monkeypatch):
    """Story: a POST that is redirected becomes a GET, and the answer was that of another page."""
    told = str(asked_over_http(monkeypatch, 301, b"<html>Moved</html>", Location="https://host:2/v1"))
    said = "It redirects to https://host:2/v1. Give the address that it redirects to. (HTTP 301)"
    assert told.endswith(f"refused the request: {said}")


def test_the_scheme_of_an_address_may_be_upper_case(servers):
    for scheme in SCHEMES:
        upper = client.Model(servers[scheme].replace(scheme, scheme.upper()), "translate", timeout=10.0)
        assert client.connect(upper)("serving_default", {"text": ["one"]})["text"] == ["ONE"]


def test_a_long_page_in_place_of_an_answer_is_shown_in_part(monkeypatch):
    told = str(asked_over_http(monkeypatch, 403, b"Log in first" + 99_999 * b"x"))
    assert told.endswith(f"refused the request: Log in first{988 * 'x'} (HTTP 403)")


def test_a_request_of_rest_is_json_for_the_newest_version_or_the_one_asked_for(monkeypatch):
    from requests import Response, Session

    answer, seen = Response(), []
    answer.status_code, answer._content = 200, b'{"outputs": {"text": ["ONE"]}}'
    monkeypatch.setattr(Session, "post", lambda session, url, **options: seen.append((url, options)) or answer)
    for version in (0, 3):
        predict = client.connect(client.Model("http://localhost:1/", "a b", version, 2.5))
        assert predict("serving_default", {"text": ["one"]}) == {"text": ["ONE"]}
    assert [url for url, _ in seen] == [
        f"http://localhost:1/v1/models/a%20b{part}:predict" for part in ("", "/versions/3")
    ]
    assert seen[0][1] == {
        "data": '{"signature_name": "serving_default", "inputs": {"text": ["one"]}}',
        "headers": {"Content-Type": "application/json"},
        "timeout": 2.5,
        "allow_redirects": False,
    }


@pytest.fixture
def answered(monkeypatch):
    """Answers of gRPC without a server: the requests, and the response to all of them."""
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    requests_, response = [], predict_pb2.PredictResponse()

    def answer(request, timeout):
        requests_.append(request)
        return response

    monkeypatch.setattr(
        prediction_service_pb2_grpc, "PredictionServiceStub", lambda channel: types.SimpleNamespace(Predict=answer)
    )
    return requests_, response


def test_numbers_that_come_as_bytes_are_read(answered):
    """As some servers send them; TensorFlow Serving sends fields."""
    requests_, response = answered
    for name, values in (("score", np.array([[-0.1, 2.5]], "float32")), ("length", np.array([3, -4, 5], "int32"))):
        response.outputs[name].CopyFrom(tf.make_tensor_proto(values))
        assert response.outputs[name].tensor_content
    found = client.connect(client.Model("grpc://localhost:1", "translate"))("score", {"source": ["a"]})
    assert found == {"score": [[float(np.float32(-0.1)), 2.5]], "length": [3, -4, 5]}
    assert not requests_[0].model_spec.HasField("version")  # Version 0 would be one that the server does not have.


@pytest.mark.parametrize("shape", [[3, 2**40, 0], [2**40, 0], [3], [-1, -2], [2, 2]])
def test_an_output_that_does_not_have_the_values_of_its_shape_is_an_error(answered, shape):
    """Story: an answer of a few bytes filled the memory with empty lists."""
    output = answered[1].outputs["score"]
    output.dtype = types_pb2.DT_FLOAT
    for size in shape:
        output.tensor_shape.dim.add(size=size)
    output.float_val.extend([] if 0 in shape else [1.0, 2.0])
    predict = client.connect(client.Model("grpc://localhost:1", "translate"))
    with pytest.raises(client.ServerError, match="Expected outputs with the values of their shape. Received: [02] for"):
        predict("serving_default", {"text": ["a"]})


def test_an_output_of_a_type_that_no_export_has_is_an_error(answered):
    answered[1].outputs["score"].CopyFrom(tf.make_tensor_proto(np.zeros(2, "float64")))
    with pytest.raises(client.ServerError, match="Received: DT_DOUBLE"):
        client.connect(client.Model("grpc://localhost:1", "translate"))("serving_default", {"text": ["a"]})


def test_no_two_clients_wait_equally_long_and_none_longer_than_half_a_minute():
    def predict(signature, inputs):
        raise client.NoAnswerError("away")

    waited = [], []
    for times in waited:
        with pytest.raises(client.NoAnswerError):
            client.retrying(predict, 20, sleep=times.append)("serving_default", {})
    assert waited[0] != waited[1] and 15 <= max(waited[0]) <= 30


@pytest.mark.parametrize("bound", [0, 1])
def test_a_wait_is_at_most_twice_the_one_before_and_at_least_half_of_that(monkeypatch, bound):
    def predict(signature, inputs):
        raise client.NoAnswerError("away")

    monkeypatch.setattr(client.random, "uniform", lambda *bounds: bounds[bound])
    waited = []
    with pytest.raises(client.NoAnswerError):
        client.retrying(predict, 10, sleep=waited.append)("serving_default", {})
    longest = [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert waited == (longest if bound else [seconds / 2 for seconds in longest])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_answer_that_takes_too_long_is_asked_for_again(servers, requests, scheme):
    requests.before = lambda number, inputs: time.sleep(0.6 if number == 0 else 0)
    predict = client.retrying(predict_of(servers, scheme, timeout=0.3), 2, sleep=lambda seconds: None)
    assert list(client.translate_lines(predict, ["one"]))[0]["text"] == ["ONE"]
    assert len(requests) == 2


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("options", "named"), [({"alpha": -2.0}, "alpha"), ({"alpha": float("nan")}, "alpha"), ({"n_best": 3}, "n_best")]
)
def test_an_option_that_is_refused_is_reported_and_not_repeated(servers, requests, scheme, options, named):
    predict = client.retrying(predict_of(servers, scheme), 5, sleep=lambda seconds: pytest.fail("waited"))
    with pytest.raises(client.ServerError, match=f"refused 1 of 1 lines, such as 'one': {named}: expected"):
        list(client.translate_lines(predict, ["one"], client.Options(**options)))
    assert len(requests) == 1


def test_the_first_line_that_is_refused_is_named():
    errors = ["", "prefix: expected fewer sub-words. ", "alpha: expected 0 to 10. "]
    answers = {"text": [["A"], [""], [""]], "score": [[-1.0], [0.0], [0.0]], "error": errors}
    with pytest.raises(client.ServerError, match="2 of 3 lines, such as 'b': prefix: expected fewer sub-words.$"):
        client.translate_batch(lambda signature, inputs: answers, ["a", "b", "c"], client.Options())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_request_that_is_refused_is_reported_and_not_repeated(servers, requests, scheme):
    requests.before = fail(1, tf.errors.InvalidArgumentError)
    predict = client.retrying(predict_of(servers, scheme), 5, sleep=lambda seconds: pytest.fail("waited"))
    with pytest.raises(client.ServerError, match="refused the request: come back later"):
        list(client.translate_lines(predict, ["one"]))
    assert len(requests) == 1


def test_what_is_not_given_is_left_to_the_model(servers, requests):
    """Story: where only other options were given, α was 0.6, whatever the export's own."""
    [result] = client.translate_batch(predict_of(servers, "grpc"), ["one"], client.Options(n_best=2))
    assert result["score"] == pytest.approx([-0.9, -1.5])
    [inputs] = requests
    assert (inputs["alpha"].tolist(), inputs["max_length"].tolist()) == ([-1.0], [0])
    assert (inputs["prefix"].tolist(), inputs["alignment"].tolist()) == ([b""], [False])
    client.translate_batch(predict_of(servers, "grpc"), ["one", "two"], client.Samples(1, 3, 1.0, 0, 1.0))
    assert (requests[1]["seed"].tolist(), requests[1]["max_length"].tolist()) == ([3 * 2**32, 3 * 2**32 + 1], [0, 0])
    assert (client.Options().number, client.Model("grpc://localhost:1", "translate").version) == (1, 0)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("model", "named"), [({"name": "transalte"}, "'transalte'"), ({"version": 7}, "'translate', version 7")]
)
def test_a_model_that_the_server_does_not_have_is_named(servers, scheme, model, named):
    predict = client.retrying(predict_of(servers, scheme, **model), 5, sleep=lambda seconds: pytest.fail("waited"))
    with pytest.raises(client.ServerError, match=f"has no model {named}, or has not loaded it yet.*Servable not found"):
        list(client.translate_lines(predict, ["one"]))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_version_that_the_server_has_is_found(servers, scheme):
    assert predict_of(servers, scheme, version=1)("serving_default", {"text": ["a"]})["text"] == ["A"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_server_that_is_not_there_is_reported_after_the_last_attempt(scheme):
    predict = client.retrying(
        client.connect(client.Model(f"{scheme}://127.0.0.1:9", "translate", timeout=2.0)), 2, sleep=lambda seconds: None
    )
    with pytest.raises(client.NoAnswerError, match=r"Check that the server runs.*127\.0\.0\.1:9") as caught:
        list(client.translate_lines(predict, ["one"]))
    # Story: serve.py read port=9 in the error of a connection as a flag of its own, --port=9.
    assert "port=" not in str(caught.value)


def test_a_server_that_starts_late_is_found(servable):
    """gRPC would wait longer and longer before it looks again, and refuse what comes between."""
    [port] = workers.free_ports(1)
    with contextlib.ExitStack() as stack:
        model = client.Model(f"grpc://127.0.0.1:{port}", "translate")
        waits = itertools.count()

        def sleep(seconds: float) -> None:
            if next(waits) == 1:
                stack.enter_context(loopback_server.served(servable, port))
            time.sleep(0.3)

        predict = client.retrying(client.connect(model), 20, sleep=sleep)
        assert list(client.translate_lines(predict, ["one"]))[0]["text"] == ["ONE"]


def test_something_else_that_answers_is_reported_in_its_own_words(servers):
    predict = client.connect(client.Model(servers["http"] + "/proxy", "translate"))
    with pytest.raises(client.ServerError, match=r"Malformed request.*HTTP 400"):
        predict("serving_default", {"text": ["a"]})


@pytest.mark.parametrize(
    "address", ["", "localhost:8500", "grpc://localhost", "ftp://localhost:21", "grpc://:8500", "http://localhost:port"]
)
def test_an_address_of_another_form_is_refused(address):
    with pytest.raises(ValueError, match="Expected a model server as one of grpc://host:port"):
        client.Model(address, "translate")


@pytest.mark.parametrize(
    "address",
    ["user:hunter2@localhost:8501", "ftp://user:hunter2@localhost:21", "http://user:hunter2@localhost"]
    + ["http://us/er:hunter2@x:80", "http://user:hunter2@localhost:port", "http://user:hun@ter2@[localhost:80"]
    + ["grpc://user:hunter2@localhost:8500"],
)
def test_a_password_in_an_address_that_is_refused_is_not_repeated(address):
    with pytest.raises(ValueError, match=r"Expected a model server.*Received: .*\*\*\*@") as refused:
        client.Model(address, "translate")
    assert "hunter2" not in str(refused.value) and "ter2" not in str(refused.value)


def test_no_message_repeats_a_password(servers, requests):
    address = servers["http"].replace("//", "//user:hunter2@")
    model = client.Model(address, "translate")
    assert client.connect(model)("serving_default", {"text": ["a"]})["text"] == ["A"]
    shown = servers["http"].replace("//", "//***@")
    requests.before = fail(99)
    for other, expected in (
        (model, f"{shown}: come back later"),
        (dataclasses.replace(model, name="other"), f"{shown} has no model 'other'"),
        (dataclasses.replace(model, server=f"{address}/proxy"), f"{shown}/proxy refused the request"),
        (dataclasses.replace(model, server="http://user:hunter2@127.0.0.1:9"), "http://***@127.0.0.1:9: Failed to est"),
        (dataclasses.replace(model, server="http://user:hunter2@*:9"), r"http://***@*:9 refused the request"),
    ):
        with pytest.raises(client.ServerError) as failed:
            client.connect(other)("serving_default", {"text": ["a"]})
        assert str(failed.value).startswith(expected) and "hunter2" not in str(failed.value)
    assert "hunter2" not in repr(model)
    assert "hunter2" not in str(model.failed(f"Failed to parse: {address}/v1"))


@pytest.mark.parametrize(
    ("outputs", "received"),
    [({"label": ["a"], "probabilities": [[0.5]]}, "label, probabilities"), (["a"], "list"), ({"text": ["A"]}, "text")],
)
@pytest.mark.parametrize("options", [None, client.Options(n_best=2)])
def test_a_model_that_does_not_translate_is_named_by_its_outputs(outputs, received, options):
    with pytest.raises(
        client.ServerError,
        match=f"Expected an export of this version that translates, with outputs text, score.* Received: {received}\\.",
    ):
        client.translate_batch(lambda signature, inputs: outputs, ["a"], options)


@pytest.mark.parametrize(("name", "value", "expected"), [
    ("text", 5, "1 rows of str as text, in lists 2 deep. Received: 5."),
    ("score", [["x"]], "1 rows of float as score"),
    ("truncated", 3, "1 rows of bool as truncated, in lists 1 deep. Received: 3."),
    ("error", [5], "1 rows of str as error"),
    ("error", [["x"]], "1 rows of str as error"),
    ("constraints_met", [[1]], "1 rows of bool as constraints_met"),
    ("text", [["a", None]], "1 rows of str as text"),
    ("text", ["A"], "1 rows of str as text"),
    ("text", [[]], "1 rows of str as text"),
    ("score", json.loads("[" * 400 + "]" * 400), "1 rows of float as score"),
])  # fmt: skip
def test_outputs_that_are_none_of_a_translation_are_refused_in_a_sentence(name, value, expected):
    """Story: they ended in a traceback."""
    outputs = {"text": [["A\nB"]], "score": [[-1]], "constraints_met": [[True]], "truncated": [False], "error": [""]}

    def predict(signature, inputs):
        return outputs

    [found] = client.translate_batch(predict, [Request("a")])
    assert found == {"text": ["A B"], "score": [-1], "constraints_met": [True], "truncated": False}
    outputs[name] = value
    with pytest.raises(client.ServerError, match=re.escape(f"Expected {expected}")):
        client.translate_batch(predict, [Request("a")])


def test_a_server_that_loses_a_line_is_caught():
    with pytest.raises(client.ServerError, match=r"2 rows of str as text, in lists 1 deep. Received: \['A'\]."):
        client.translate_batch(lambda signature, inputs: {"text": ["A"], "score": [0.0]}, ["a", "b"])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_program_answers_every_line_by_one_line(servers, scheme):
    stdin = b"\xef\xbb\xbf" + "\n".join(LINES_THAT_TRY_IT).encode() + b"\n\xff\xfe is not UTF-8\nno end"
    result = program(f"--server={servers[scheme]}", "--batch_size=3", stdin=stdin)
    [warning] = result.stderr.decode().splitlines()
    assert result.returncode == 0 and warning.startswith(
        f"<stdin>, line {len(LINES_THAT_TRY_IT) + 1} is not UTF-8: byte 0xff at column 1."
    )
    expected = [*LINES_THAT_TRY_IT, "\ufffd\ufffd is not UTF-8", "no end"]
    upper = [line.encode().upper().decode().replace("\r", " ") for line in expected]
    assert result.stdout.decode().split("\n") == [*upper, ""]


@pytest.mark.parametrize(
    ("flags", "stdin", "expected"),
    [([], b"a\x1b[2Jb\n", b"A\\x1b[2JB\r\n"), (["--jsonl"], b'{"text": "\xc2\x9bx"}\n', b'"text": "\\x9bX"')],
)
def test_a_terminal_gets_no_control_characters_of_a_server(servers, flags, stdin, expected):
    terminal, of_program = pty.openpty()
    command = [sys.executable, str(ROOT / "tools/client.py"), f"--server={servers['grpc']}", *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, input=stdin, stdout=of_program, env=environment, timeout=60, check=True)
    assert expected in os.read(terminal, 10_000)


def test_warnings_have_their_control_characters_escaped(servers, tmp_path):
    (tmp_path / "terms").write_text("one\t" + "\x1b[2J" * 99 + "\n")
    result = program(f"--server={servers['grpc']}", "--keep_patterns=/\x1b.*/", stdin=b"x \x1b[2J" * 33 + b"\n")
    assert b"\x1b" not in result.stderr


def test_the_program_prints_the_n_best_numbered_and_scored(servers):
    given = [f"--server={servers['http']}", "--n_best=2", "--alpha=1", "--max_length=3", "--prefix=So "]
    expected = b"1\t-1.3000\tSo ONE\n1\t-2.3000\tSo one\n2\t-1.3000\tSo TWE\n2\t-2.3000\tSo twe\n"
    assert program(*given, stdin=b"one\ntwenty\n").stdout == expected


def test_a_line_that_is_typed_is_answered_before_the_next(servers):
    command = programs.command("client", f"--server={servers['grpc']}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    programs.answers_what_is_typed(
        lambda start, **options: subprocess.Popen(command, env=environment, **options), "one", b"ONE\n"
    )


def test_the_program_warns_of_a_translation_that_lacks_a_phrase(servers, tmp_path):
    """The server meets ordered constraints only."""
    (tmp_path / "terms").write_text("one\tEINS\n")
    result = program(f"--server={servers['grpc']}", f"--terms={tmp_path}/terms", stdin=b"two\none\nthree\n")
    assert result.stdout == b"TWO\nONE\nTHREE\n"
    assert result.stderr.decode().splitlines() == ["Line 2: the translation lacks a phrase (--terms)."]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("flags", [[], ["--alpha=1"], ["--sample"], ["--jsonl"]])
def test_the_program_warns_of_a_line_that_was_cut(servers, scheme, flags):
    """Story: translate.py warned of it, and the client did not."""
    lines = [size * "x" for size in (stand_in.MAX_INPUT, stand_in.MAX_INPUT + 1, 1)]
    if flags == ["--jsonl"]:
        lines = [json.dumps({"text": line}) for line in lines]
    result = program(f"--server={servers[scheme]}", *flags, stdin="\n".join(lines).encode())
    [warning] = result.stderr.decode().splitlines()
    assert result.returncode == 0
    assert warning == "Line 2: longer than the model's maximum input. Only the beginning is translated."
    assert b"truncated" not in result.stdout and len(result.stdout.splitlines()) == 3


def test_the_program_writes_the_n_best_of_lines_of_json(servers):
    stdin = b'{"text": "one", "id": [7]}\n{"text": "two", "constraints": ["x"]}\n'
    for flags, shown in (((), lambda values: values[0]), (("--n_best=2",), lambda values: values)):
        result = program(f"--server={servers['http']}", "--jsonl", *flags, stdin=stdin)
        found = [json.loads(line) for line in result.stdout.splitlines()]
        assert [each["text"] for each in found] == [shown(["ONE", "one"]), shown(["TWO", "two"])]
        assert [each["constraints_met"] for each in found] == [shown([True] * 2), shown([False] * 2)]
        assert [each.get("id") for each in found] == [[7], None]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_program_prints_samples_by_the_seeds_of_their_lines(servers, scheme):
    """Line n, from 0, has the seed 2³² · seed + n, in whatever request it stands."""
    given = [f"--server={servers[scheme]}", "--sample", "--seed=3", "--temperature=0.5", "--top_k=7", "--top_p=0.25"]
    given.append("--batch_size=2")
    result = program(*given, "--draws=2", "--max_length=9", stdin=b"one\ntwo\n\n")
    seeds = [3 * 2**32 + number for number in range(3)]
    expected = [
        f"{number}\t{score:.4f}\t{text} {seed} 7 9 {draw}\n"
        for number, text, seed in zip((1, 2, 3), ("one", "two", ""), seeds, strict=True)
        for draw, score in ((0, -0.5), (1, -0.75))
    ]
    assert result.stdout.decode() == "".join(expected)
    assert program(*given, stdin=b"one\n").stdout.decode() == f"one {seeds[0]} 7 0 0\n"


@pytest.mark.parametrize(("flags", "named"), [
    (["--sample", "--n_best=2", "--prefix=a"], b"--n_best and --prefix have no effect with --sample."),
    (["--seed=2"], b"--seed has no effect without --sample. Received: --seed=2."),
    (["--sample", "--temperature=0"], b"--temperature=0: 0.0 is not a number in the range [0.01, 100.0]."),
])  # fmt: skip
def test_options_of_samples_that_cannot_be_are_refused_by_the_program(flags, named):
    result = program(*flags, stdin=b"one\n")
    assert result.returncode == 1 and named in result.stderr and result.stderr.count(b"\n") == 1


def test_the_program_prints_text_alone_where_an_option_other_than_n_best_is_given(servers):
    assert program(f"--server={servers['grpc']}", "--max_length=2", stdin=b"one\n").stdout == b"ON\n"


@pytest.fixture(scope="module")
def certified(servable, tmp_path_factory):
    """Addresses with TLS, and the certificate."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed, so there is no certificate")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    ).split()
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    with loopback_server.served(servable, tls=(key, certificate)) as addresses:
        yield addresses, str(certificate)


@pytest.mark.parametrize(
    ("scheme", "variable"), [("grpcs", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"), ("https", "REQUESTS_CA_BUNDLE")]
)
def test_a_server_with_tls_is_asked_where_its_certificate_is_trusted_and_only_there(
    certified, requests, scheme, variable
):
    addresses, certificate = certified
    arguments = [f"--server={addresses[scheme]}", "--attempts=1"]
    assert program(*arguments, stdin=b"one\n", **{variable: certificate}).stdout == b"ONE\n"
    refused = program(*arguments, stdin=b"one\n")
    assert refused.returncode == 1 and "certificate verify failed" in refused.stderr.decode().lower().replace("_", " ")
    assert len(requests) == 1


@pytest.mark.parametrize("seconds", ["inf", "1e10"])
def test_a_time_that_the_system_cannot_wait_is_refused(seconds):
    """Story: a traceback, of gRPC or of the socket."""
    result = program(f"--timeout={seconds}", stdin=b"one\n")
    assert result.returncode == 1 and b"--timeout" in result.stderr and b"Traceback" not in result.stderr


def test_no_lines_give_no_translations_and_need_no_server():
    result = program("--server=grpc://127.0.0.1:9")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


@pytest.mark.parametrize(("arguments", "expected"), [
    (["--server=localhost:8500"], "grpc://host:port"),
    (["--server=http://127.0.0.1:9", "--attempts=1"], "Check that the server runs"),
    (["--model_name=other", "--server={http}"], "no model 'other'"),
    (["--alpha=-2", "--server={grpc}"], "alpha: expected"),
])  # fmt: skip
def test_the_program_reports_what_went_wrong_in_a_line(servers, arguments, expected):
    result = program(*(argument.format(**servers) for argument in arguments), stdin=b"one\n")
    assert result.returncode == 1 and result.stdout == b""
    [said] = result.stderr.decode().splitlines()
    assert said.startswith("Error: ") and expected in said


@pytest.mark.parametrize("scheme", SCHEMES)
def test_ctrl_c_ends_the_program_at_once_and_leaves_no_traceback(servers, requests, scheme):
    requests.before = lambda number, inputs: time.sleep(3)
    # A test started in the background (`pytest &`) ignores the signal, and so would its child. Not by `preexec_fn`,
    # which a process with threads of gRPC does not survive every time.
    command = ["env", "--default-signal=INT", *programs.command("client", f"--server={servers[scheme]}")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes)
    process.stdin.write(b"one\n")
    process.stdin.close()
    while not requests:
        time.sleep(0.02)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert time.monotonic() - start < 2
    assert (process.stdout.read(), process.stderr.read()) == (b"", b"")


@pytest.mark.medium
def test_a_client_imports_no_tensorflow_and_leaves_it_to_be_imported():
    """Of which all that is needed is `tensorflow.core`'s messages."""
    test = (
        "import sys; from t2t_keras.serving import client; client.connect(client.Model('grpc://localhost:1', 'x'));"
        "assert 'tensorflow' not in sys.modules and 'tensorflow.python' not in sys.modules;"
        "import tensorflow as tf; assert tf.make_tensor_proto([1.5]).float_val == [1.5]"
    )
    result = subprocess.run(
        [sys.executable, "-c", test], capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60
    )
    assert result.returncode == 0, result.stderr.decode()


@pytest.mark.parametrize(
    ("scheme", "package"), [("grpc", "tensorflow_serving"), ("grpc", "grpc"), ("http", "requests")]
)
def test_a_missing_package_is_reported_with_what_to_install(monkeypatch, scheme, package):
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=r"t2t_keras\[client\]"):
        client.connect(client.Model(f"{scheme}://localhost:1", "translate"))


def test_help_shows_how_to_call_it_and_every_option():
    shown = program("--help").stdout.decode()
    assert "python tools/client.py --server=" in shown
    names = "model_name", "model_version", "n_best", "alpha", "prefix", "parallel", "attempts", "timeout"
    assert all(f"--{name}" in shown for name in names)
