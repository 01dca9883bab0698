"""A runner of Apache Beam that fails is one sentence with its reason; what it wrote is in a file, or shown."""

import concurrent.futures
import pathlib
import re

import pytest
from test_tools import tool

from t2t_keras.beam.runner_error import RunnerError, reason

PYTHON = """Traceback (most recent call last):
  File "sdk_worker.py", line 1, in run
    response = task()
               ~~~~^^
ValueError: Expected a run. Received: x. [while running 'Write']

"""
JAVA = """java.lang.RuntimeException: Error received from SDK harness
\tat org.apache.beam.Some.method(Some.java:1)
Caused by: java.io.IOException: no space left
\tat org.apache.beam.Other.method(Other.java:2)
"""
GRPC = """<_InactiveRpcError of RPC that terminated with:
	status = StatusCode.UNAVAILABLE
	details = "failed to connect to all addresses"
	debug_error_string = "UNAVAILABLE"
>"""


@pytest.mark.parametrize(("error", "expected"), [
    (RuntimeError("Pipeline failed."), "Pipeline failed"),
    (KeyError("beam:env:process:v1"), "KeyError: 'beam:env:process:v1'"),
    (concurrent.futures.TimeoutError(), "TimeoutError"),
    (RuntimeError(PYTHON), "ValueError: Expected a run. Received: x. [while running 'Write']"),
    (RuntimeError(f"Pipeline 7 failed in state FAILED: {JAVA}"), "Caused by: java.io.IOException: no space left"),
    (Exception(GRPC), "failed to connect to all addresses"),
    (Exception(GRPC + GRPC.replace("failed to connect to all addresses", "deadline exceeded")), "deadline exceeded"),
    (RuntimeError(""), "RuntimeError"),
    (ValueError("Bad options.\nNo worker is there."), "No worker is there"),
    (RuntimeError(f"{'x' * 998}. And more"), "x" * 998),
    (RuntimeError("x" * 1001), "x" * 1000),
])  # fmt: skip
def test_the_reason_is_the_last_line_that_says_why(error, expected):
    assert reason(error) == expected
    said = str(RunnerError("A", error))
    assert f"Expected the runner A to run the pipeline to its end. Received: {expected}. Check" in said
    assert "\n" not in str(RunnerError("A", error))


def filtered(folder: pathlib.Path, *flags: str):
    text = [folder / side for side in ("source", "target")]
    for path in text:
        path.write_text("one\n")
    return tool("filter", f"--source={text[0]}", f"--target={text[1]}", f"--output_dir={folder}/out", *flags)


@pytest.mark.medium
def test_a_program_shows_one_sentence_and_keeps_the_rest_in_a_file(tmp_path):
    pytest.importorskip("apache_beam", reason="the extra 'beam' is not installed: pip install -e '.[beam]'")
    flags = [
        "--beam_runner=PortableRunner",
        "--beam_options=--job_endpoint=localhost:1 --environment_type=LOOPBACK --job_server_timeout=1",
    ]
    said = filtered(tmp_path, *flags).stderr.decode()
    assert re.fullmatch(
        r"Error: Expected the runner PortableRunner to run .* Received: FutureTimeoutError\. Check .*\n", said
    )
    log = pathlib.Path(re.search(r"See (\S+\.log) for the output of Beam, or give --traceback\.$", said)[1])
    assert log.exists()
    log.unlink()
    assert "Traceback (most recent call last)" in filtered(tmp_path, *flags, "--traceback").stderr.decode()
    assert not (tmp_path / "out").exists()


@pytest.mark.medium
def test_options_that_beam_does_not_take_are_one_sentence(tmp_path):
    pytest.importorskip("apache_beam", reason="the extra 'beam' is not installed: pip install -e '.[beam]'")
    said = filtered(tmp_path, "--beam_runner=DirectRunner", "--beam_options=--direct_num_workers=many").stderr.decode()
    assert said.startswith(
        "Error: Expected options that Apache Beam takes. Received: --direct_num_workers=many (argument "
        "--direct_num_workers"
    )
    assert said.count("\n") == 1 and not list(pathlib.Path(tmp_path).glob("out"))


def test_an_option_that_beam_does_not_know_is_named_and_may_be_one_of_the_runner(tmp_path):
    """Story: a misspelt option was ignored without a word."""
    pytest.importorskip("apache_beam", reason="the extra 'beam' is not installed: pip install -e '.[beam]'")
    result = filtered(
        tmp_path,
        "--beam_runner=DirectRunner",
        "--beam_options=--direct_num_worker=2 --direct_running_mode=in_memory --nonsense",
    )
    assert result.returncode == 0 and (tmp_path / "out").exists()
    assert not list(tmp_path.glob("**/t2t_keras-beam-*.log"))  # What the workers wrote.
    [said] = [line for line in result.stderr.decode().splitlines() if "beam_options" in line]
    assert said.startswith(
        "Apache Beam does not know --direct_num_worker, --nonsense in --beam_options. Check the spelling, unless "
        "DirectRunner"
    )
