"""The files for a model server, and what one answers: TensorFlow Serving where it is installed, and the tests' own
everywhere.

That both pass the same tests is what lets `test_client.py` trust the second.
"""

import concurrent.futures
import contextlib
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import time

import grpc
import loopback_server
import pytest
import requests
import stand_in
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, prediction_service_pb2_grpc
from tensorflow_serving.config import model_server_config_pb2

from t2t_keras.config import DecodeConfig
from t2t_keras.serving import client, protocol, savedmodel
from tools import workers

ROOT = pathlib.Path(__file__).parent.parent
SERVING = ROOT / "serving"
LINES = ["two hundred and seven", "", "one\u2028line", "😀 \x00 ½"]
OPTIONS = {"alpha": [0.6, 1.0], "max_length": [0, 3], "n_best": [1, 2], "prefix": ["", "a"], "alignment": [False, True]}
OPTIONS |= {"constraints": ["", "Euro\tzwei"], "avoid": ["drei", ""], "ordered": [False, True]}


@pytest.fixture(scope="module")
def export_dir(tmp_path_factory) -> pathlib.Path:
    """What is served: a folder with a version. No test below knows more of it than its signatures."""
    export_dir = tmp_path_factory.mktemp("export")
    savedmodel.export(stand_in.translator(DecodeConfig(beam_size=stand_in.BEAM_SIZE, extra_length=5)), export_dir, {})
    return export_dir


@pytest.fixture(scope="module")
def saved_model(export_dir):
    return tf.saved_model.load(str(export_dir / "1"))


@contextlib.contextmanager
def tensorflow_serving(export_dir: pathlib.Path, folder: pathlib.Path):
    """The real server, with this project's batching parameters."""
    grpc_port, http_port = workers.free_ports(2)
    config = (SERVING / "models.config").read_text().replace("/models/translate", str(export_dir))
    (folder / "models.config").write_text(config)
    command = [
        "tensorflow_model_server", f"--port={grpc_port}", f"--rest_api_port={http_port}",
        f"--model_config_file={folder}/models.config", "--enable_batching",
        f"--batching_parameters_file={SERVING}/batching_parameters.txt", "--tensorflow_intra_op_parallelism=2",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline, status = time.monotonic() + 120, f"http://127.0.0.1:{http_port}/v1/models/translate"
        while True:
            with contextlib.suppress(requests.ConnectionError):
                if requests.get(status, timeout=5).ok:
                    break
            assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)
        yield {"grpc": f"grpc://127.0.0.1:{grpc_port}", "http": f"http://127.0.0.1:{http_port}"}
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module", params=["loopback_server", "loopback_server batching", "tensorflow_model_server"])
def servers(request, export_dir, saved_model, tmp_path_factory):
    if request.param.startswith("loopback_server"):
        batching = request.param.endswith("batching")
        served = loopback_server.served(loopback_server.Servable(export_dir, batching=batching, model=saved_model))
    elif shutil.which("tensorflow_model_server"):
        served = tensorflow_serving(export_dir, tmp_path_factory.mktemp("serving"))
    else:
        pytest.skip("tensorflow_model_server is not on PATH")
    with served as addresses:
        yield addresses


def test_requests_at_the_same_time_share_a_batch_and_get_their_own_rows():
    def sizes(*, text):
        return {"text": tf.strings.upper(text), "size": tf.fill(tf.shape(text), tf.size(text))}

    column = tf.TensorSpec([None], tf.string, name="text")
    call = loopback_server.batched(tf.function(sizes).get_concrete_function(text=column))
    texts = [[f"request {request}, row {row}" for row in range(request % 3 + 1)] for request in range(24)]
    with concurrent.futures.ThreadPoolExecutor(len(texts)) as pool:
        found = list(pool.map(lambda text: call(text=tf.constant(text)), texts))
    assert [[row.decode().lower() for row in each["text"].numpy()] for each in found] == texts
    assert max(each["size"].numpy().max() for each in found) > 3
    most = loopback_server.batching_parameters()["max_batch_size"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="batch size"):
        call(text=tf.constant(["a"] * (most + 1)))


def post(servers, body: dict, path: str = "translate:predict") -> requests.Response:
    return requests.post(f"{servers['http']}/v1/models/{path}", json=body, timeout=60)


@pytest.mark.medium
@pytest.mark.parametrize(("signature", "inputs"), [
    ("serving_default", {"text": LINES}),
    ("translate_with_options", {"text": ["two hundred", "three"], **OPTIONS}),
    ("score", {"source": ["one", "two"], "target": ["eins", ""]}),
])  # fmt: skip
def test_grpc_rest_and_the_saved_model_itself_give_the_same(servers, saved_model, signature, inputs):
    """Scores to a relative 1e-5: another build of TensorFlow may sum in another order."""
    by_grpc, by_rest = (
        client.connect(client.Model(servers[scheme], "translate"))(signature, inputs) for scheme in ("grpc", "http")
    )
    itself = saved_model.signatures[signature]
    specs = itself.structured_input_signature[1]
    expected = itself(**{name: tf.constant(values, specs[name].dtype) for name, values in inputs.items()})
    assert set(by_grpc) == set(by_rest) == set(expected)
    for name, value in expected.items():
        if value.dtype == tf.float32:
            for found in (by_grpc[name], by_rest[name]):
                tf.debugging.assert_near(tf.reshape(found, value.shape), value, rtol=1e-5, atol=1e-5)
        else:
            numbers = loopback_server.to_json(value.numpy())
            assert by_grpc[name] == by_rest[name] == numbers, name


def test_rows_columns_and_a_lone_column_are_ways_to_say_the_same(servers):
    bodies = [
        {"instances": LINES}, {"instances": [{"text": line} for line in LINES]}, {"inputs": LINES},
        {"inputs": {"text": LINES}},
    ]  # fmt: skip
    answers = [post(servers, {"signature_name": "serving_default", **body}).json() for body in bodies]
    rows = answers[0]["predictions"]
    assert len(rows) == len(LINES) and all(set(row) == {"text", "score", "truncated"} for row in rows)
    assert answers[1]["predictions"] == rows
    for answer in answers[2:]:
        assert [
            dict(zip(answer["outputs"], row, strict=True)) for row in zip(*answer["outputs"].values(), strict=True)
        ] == rows


def test_what_is_wrong_with_a_request_is_reported(servers):
    bad = {**OPTIONS, "text": ["a"]}
    for body, path, code, word in [
        ({"inputs": {"text": ["a"]}}, "other:predict", 404, "Latest(other)"),
        ({"inputs": {"text": ["a"]}}, "translate/versions/99:predict", 404, "99"),
        ({"signature_name": "translate_with_options", "inputs": bad}, "translate:predict", 400, ""),
        ({"signature_name": "score", "inputs": {"source": ["a"]}}, "translate:predict", 400, "target"),
        ({"inputs": {"text": [3]}}, "translate:predict", 400, ""),
        ({"inputs": {"text": ["a"]}}, "translate:transalte", 400, "transalte"),
    ]:
        answer = post(servers, body, path)
        assert (answer.status_code, word in answer.json()["error"]) == (code, True), (body, answer.text)
    with pytest.raises(client.ServerError, match="refused the request"):
        client.connect(client.Model(servers["grpc"], "translate"))("translate_with_options", bad)


def test_what_is_wrong_with_a_sentence_is_reported_in_its_row_and_the_one_beside_it_is_translated(servers):
    inputs = {"text": ["two hundred", "three"], **OPTIONS, "alpha": [-2.0, 0.6]}
    predict = client.connect(client.Model(servers["grpc"], "translate"))
    found = predict("translate_with_options", inputs)
    alone = predict("translate_with_options", {k: v[1:] for k, v in inputs.items()})
    assert found["error"][0].startswith("alpha: expected") and found["text"][0] == ["", ""]
    assert found["error"][1] == "" and found["text"][1] == alone["text"][0]
    with pytest.raises(client.ServerError, match="refused 2 of 2 lines, such as 'two hundred': alpha: expected"):
        client.translate_batch(predict, inputs["text"], client.Options(alpha=-2.0))


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_the_client_scores_words_as_the_signature_scores_pairs(servers, scheme):
    predict, options = client.connect(client.Model(servers[scheme], "translate")), client.Options(n_best=2)
    lines = ["two hundred and seven", "", "three"]
    found = client.translate_batch(predict, lines, options, word_scores=True)
    for plain, scored in zip(client.translate_batch(predict, lines, options), found, strict=True):
        assert plain["text"] == scored["text"] and plain["score"] == pytest.approx(scored["score"])
    for line, result in zip(lines, found, strict=True):
        for place, text in enumerate(result["text"]):
            words, word_scores, pieces, piece_scores = (result[name][place] for name in protocol.SCORES)
            assert list(words) == text.split() and len(words) == len(word_scores) and len(pieces) == len(piece_scores)
            [log_prob] = predict("score", {"source": [line], "target": [text]})["log_prob"]
            if text:
                assert sum(piece_scores) == pytest.approx(log_prob, abs=1e-4) and pieces[-1] == "</s>"
                assert sum(word_scores) == pytest.approx(sum(piece_scores[:-1]), abs=1e-4)
    assert any(words for result in found for words in result["words"])


def test_the_status_of_the_model_is_what_probes_ask_for(servers):
    status = requests.get(f"{servers['http']}/v1/models/translate", timeout=60).json()
    expected = [("1", "AVAILABLE")]
    assert [(version["version"], version["state"]) for version in status["model_version_status"]] == expected
    assert requests.get(f"{servers['http']}/v1/models/other", timeout=60).status_code == 404


def test_the_metadata_name_the_signatures(servers):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "translate"
    with grpc.insecure_channel(servers["grpc"].removeprefix("grpc://")) as channel:
        response = prediction_service_pb2_grpc.PredictionServiceStub(channel).GetModelMetadata(request, timeout=60)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert {"serving_default", "translate_with_options", "score"} <= set(signatures.signature_def)
    assert set(signatures.signature_def["translate_with_options"].inputs) == {"text", *OPTIONS}


@pytest.mark.medium
def test_many_clients_at_once_each_get_their_own(servers):
    """With batching, their requests are run together and taken apart again, whatever options each has."""
    lines = [f"{number} and {number % 7}" for number in range(120)]
    predict = client.connect(client.Model(servers["grpc"], "translate"))
    for options in (None, client.Options(n_best=2)):
        alone = [result for line in lines for result in client.translate_batch(predict, [line], options)]
        together = list(client.translate_lines(predict, lines, options, batch_size=3, parallel=16))
        assert [result["text"] for result in together] == [result["text"] for result in alone]


def test_the_server_serves_the_name_that_the_client_asks_for():
    config = text_format.Parse((SERVING / "models.config").read_text(), model_server_config_pb2.ModelServerConfig())
    [model] = config.model_config_list.config
    assert (model.name, model.model_platform) == ("translate", "tensorflow")
    assert f'"model_name", "{model.name}"' in (ROOT / "tools/client.py").read_text(encoding="utf-8")


def batching_parameters():
    """`BatchingParameters` of session_bundle_config.proto, which TensorFlow Serving's Python package leaves out."""
    file = descriptor_pb2.FileDescriptorProto(
        name="batching.proto", package="t", syntax="proto3", dependency=["google/protobuf/wrappers.proto"]
    )
    message = file.message_type.add(name="BatchingParameters")
    names = [
        "max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads",
        "enable_large_batch_splitting",
    ]  # fmt: skip
    for number, name in enumerate(names, 1):
        kind = "BoolValue" if name.startswith("enable") else "Int64Value"
        message.field.add(name=name, number=number, type=11, label=1, type_name=f".google.protobuf.{kind}")
    message.field.add(name="allowed_batch_sizes", number=6, type=3, label=3)
    message.field.add(name="pad_variable_length_inputs", number=7, type=8, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.BatchingParameters"))()


def test_batches_are_neither_padded_nor_split_and_hold_a_request_of_the_client():
    found = text_format.Parse((SERVING / "batching_parameters.txt").read_text(), batching_parameters())
    assert not found.pad_variable_length_inputs and not found.allowed_batch_sizes
    assert not found.enable_large_batch_splitting.value
    [sent] = [
        line for line in (ROOT / "tools/client.py").read_text(encoding="utf-8").splitlines() if '"batch_size", ' in line
    ]
    assert int(sent.split(",")[1]) <= found.max_batch_size.value
    assert found.num_batch_threads.value >= 1 and found.max_enqueued_batches.value >= found.num_batch_threads.value


def test_prometheus_reads_the_metrics_where_the_server_writes_them():
    """`MonitoringConfig` of tensorflow_serving/config/monitoring_config.proto, which no package on PyPI has."""
    file = descriptor_pb2.FileDescriptorProto(name="monitoring_config.proto", package="m", syntax="proto3")
    prometheus = file.message_type.add(name="PrometheusConfig")
    prometheus.field.add(name="enable", number=1, type=8, label=1)
    prometheus.field.add(name="path", number=2, type=9, label=1)
    monitoring = file.message_type.add(name="MonitoringConfig")
    monitoring.field.add(name="prometheus_config", number=1, type=11, label=1, type_name=".m.PrometheusConfig")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("m.MonitoringConfig"))()
    written = text_format.Parse((SERVING / "monitoring.config").read_text(), message).prometheus_config
    assert written.enable
    script = (SERVING / "serve.sh").read_text()
    assert "--monitoring_config_file=/serving/monitoring.config" in script
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    [job] = yaml.safe_load((SERVING / "prometheus.yml").read_text())["scrape_configs"]
    assert job["metrics_path"] == written.path
    [port] = re.findall(r"--rest_api_port=(\d+)", script)
    assert job["static_configs"] == [{"targets": [f"localhost:{port}"]}]
    assert "--from-file=monitoring.config" in (SERVING / "kubernetes.yaml").read_text()


def test_the_dashboard_asks_for_metrics_of_the_table_alone():
    page = (SERVING / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(:[\w:]+)`[^|]*\| (counter|histogram) \| (.*?) ?\| (.+) \|$", page, re.MULTILINE)
    metrics = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in rows}
    assert len(metrics) == 7 and all(source == "the same" or ".cc`" in source or ".h`" in source for *_, source in rows)
    board = json.loads((SERVING / "grafana.json").read_text(encoding="utf-8"))
    asked = set()
    for panel in board["panels"]:
        for target in panel["targets"]:
            used = re.findall(r":tensorflow:[\w:]+", target["expr"])
            assert used and target["expr"].count("(") == target["expr"].count(")")
            for name in used:
                base = re.sub("_(bucket|sum|count)$", "", name)
                metric = name if name in metrics else base
                kind, labels = metrics[metric]
                assert (kind == "counter") == (name == metric), name
                grouped = set(re.findall(r"\w+", " ".join(re.findall(r"by \((.*?)\)", target["expr"]))))
                assert grouped <= labels | {"le"}, target["expr"]
                assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= grouped
                asked.add(metric)
    assert asked == metrics.keys()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_docker_opens_the_ports_to_this_machine_alone(tmp_path):
    """The server asks nobody for a password."""
    (tmp_path / "docker").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "docker").chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("DOCKER_FLAGS", "IMAGE")}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    command = [SERVING / "serve.sh", tmp_path, "--enable_batching=false"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    arguments = result.stdout.splitlines()
    assert arguments[-1] == "--enable_batching=false" and "tensorflow/serving:latest" in arguments
    mounted = [value for name, value in itertools.pairwise(arguments) if name == "-v"]
    assert mounted == [f"{tmp_path}:/models/translate:ro", f"{SERVING}:/serving:ro"]
    assert 'base_path: "/models/translate"' in (SERVING / "models.config").read_text()
    environment |= {"IMAGE": "mine", "DOCKER_FLAGS": "--gpus all"}
    on_gpu = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "mine" in on_gpu and ("--gpus", "all") in itertools.pairwise(on_gpu)
    published = [value for name, value in itertools.pairwise(arguments) if name in ("-p", "--publish")]
    assert published == ["127.0.0.1:8500:8500", "127.0.0.1:8501:8501"]
    assert not [argument for argument in arguments if argument.startswith(("-P", "--publish", "--net"))]


def test_kubernetes_and_docker_start_the_same_server():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    deployment, service = yaml.safe_load_all((SERVING / "kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    [container] = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert [port["targetPort"] for port in service["spec"]["ports"]] == list(ports) == ["grpc", "rest"]
    assert {"--port=8500", "--rest_api_port=8501"} <= set(container["args"]) and list(ports.values()) == [8500, 8501]
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/v1/models/translate", "port": "rest"}
    expected = {volume["name"] for volume in pod["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == expected
    script = (SERVING / "serve.sh").read_text()
    assert subprocess.run(["bash", "-n", SERVING / "serve.sh"]).returncode == 0
    assert {argument for argument in container["args"] if "parallelism" not in argument} <= set(shlex.split(script))
    cpus = container["resources"]["limits"]["cpu"]
    wanted = set(container["args"])
    assert {"--tensorflow_intra_op_parallelism=1", f"--tensorflow_inter_op_parallelism={cpus}"} <= wanted
    assert service["spec"]["clusterIP"] == "None"  # A client finds the addresses of all pods.
