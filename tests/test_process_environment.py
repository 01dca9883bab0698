"""Narrow float32 models decode with Eigen's kernels, others with oneDNN's; the user's choice stands."""

import os
import pathlib
import subprocess
import sys

import pytest

from t2t_keras.config import ModelConfig
from t2t_keras.decoding import process_environment

ROOT = pathlib.Path(__file__).parent.parent
RUN = ROOT / "tests/data/run_1"


@pytest.mark.parametrize(("d_model", "dtype", "int8", "before", "after"), [
    (128, "float32", False, None, "0"), (130, "float32", False, None, None), (512, "float32", False, None, None),
    (128, "bfloat16", False, None, None), (128, "float32", True, None, None), (128, "float32", False, "1", "1"),
])  # fmt: skip
def test_kernels_are_chosen_by_width_and_dtype_unless_the_user_has(d_model, dtype, int8, before, after):
    environment = {} if before is None else {process_environment.ONEDNN: before}
    process_environment.choose([ModelConfig(100, d_model=d_model)], dtype, int8, environment)
    assert environment.get(process_environment.ONEDNN) == after


@pytest.mark.parametrize(("widths", "expected"), [((128, 64), "0"), ((128, 512), None), ((512, 128), None)])
def test_all_models_of_an_ensemble_must_be_narrow(widths, expected):
    environment = {}
    process_environment.choose([ModelConfig(100, d_model=width) for width in widths], "float32", False, environment)
    assert environment.get(process_environment.ONEDNN) == expected


def test_an_operation_has_one_thread_unless_the_user_has_chosen():
    for given, expected in (({}, "1"), ({process_environment.THREADS: "4"}, "4")):
        process_environment.choose([ModelConfig(100)], "float32", False, given)
        assert given[process_environment.THREADS] == expected


@pytest.mark.parametrize(
    ("flag", "expected"), [("--dtype=float32", "0"), ("--dtype=bfloat16", "None"), ("--int8", "None")]
)
def test_programs_choose_before_tensorflow_is_imported(flag, expected):
    code = f"""if True:
        import os, sys
        from t2t_keras.cli import flags as options
        from t2t_keras.cli import program
        options.define_trained_model()
        def main():
            options.trained_model()
            threads = os.environ["{process_environment.THREADS}"]
            print(os.environ.get("{process_environment.ONEDNN}"), threads, "tensorflow" in sys.modules)
        program.run(main)"""
    command = [sys.executable, "-c", code, f"--model_dir={RUN}", flag]
    chosen = (process_environment.ONEDNN, process_environment.THREADS)
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert result.stdout.split() == [expected, "1", "False"], result.stderr


@pytest.mark.medium
@pytest.mark.parametrize(("is_run", "onednn"), [(True, "0"), (False, "None")])
def test_the_server_chooses_too(tmp_path, is_run, onednn):
    (tmp_path / "saved_model.pb").touch()  # An export.
    model_dir = RUN if is_run else tmp_path
    languages = ["--source_language=en", "--target_language=de"]
    code = f"""if True:
        import os, sys, types
        from tools import serve
        def load(model):
            threads = os.environ["{process_environment.THREADS}"]
            sys.exit(threads + " " + str(os.environ.get("{process_environment.ONEDNN}")))
        sys.modules["t2t_keras.serving.loaded"] = types.SimpleNamespace(load=load)
        serve.main()"""
    chosen = (process_environment.ONEDNN, process_environment.THREADS)
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    result = subprocess.run(
        [sys.executable, "-c", code, f"--model_dir={model_dir}", "--port=0", *languages],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    assert result.stderr.split()[-2:] == ["1", onednn], result.stderr
