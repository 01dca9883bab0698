"""Programs that do not train leave the GPUs' memory to those that do; what float32 means on a GPU is chosen and
logged.
"""

import pathlib
import types

import pytest
import tensorflow as tf

import t2t_keras
from t2t_keras.data import prepare
from t2t_keras.decoding import loading
from t2t_keras.runs import run_options
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system import files
from t2t_keras.system.tensorflow import choose_float32, hide_gpus, share_gpus
from t2t_keras.text import vocabulary
from tools import data_service
from tools import prepare as prepare_program

RUN = pathlib.Path(__file__).parent / "data/run_1"


@pytest.fixture
def machine(monkeypatch):
    """(compute capability of each GPU) → what TensorFlow is asked for, as (function, arguments)."""

    def of(*capabilities: tuple[int, int]) -> list:
        names = [f"GPU {index}" for index in range(len(capabilities))]
        asked = []
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: names if kind == "GPU" else [])
        details = [{"compute_capability": found} if found else {} for found in capabilities]
        experimental = tf.config.experimental
        monkeypatch.setattr(experimental, "get_device_details", dict(zip(names, details, strict=True)).get)
        for place, name, noted in (
            (tf.config, "set_visible_devices", "visible"),
            (experimental, "set_memory_growth", "growth"),
            (experimental, "enable_tensor_float_32_execution", "tf32"),
        ):
            monkeypatch.setattr(place, name, lambda *given, noted=noted: asked.append((noted, *given)))
        return asked

    return of


class _UsedError(Exception):
    """Ends a program where it first uses a device."""


def beam_worker() -> None:
    preparing = pytest.importorskip("t2t_keras.beam.preparing", exc_type=ImportError)
    preparing._Encode("", (b"",), 9, 1, 1, None).setup()


def used(*arguments, **options):
    raise _UsedError


GROWTH = [("growth", "GPU 0", True), ("growth", "GPU 1", True)]


def test_a_run_is_loaded_with_memory_that_grows_before_a_device_is_used(machine, monkeypatch):
    """Story: whoever translated beside a training run found no memory, or took all of it."""
    asked = machine((7, 0), (7, 0))
    monkeypatch.setattr(loading, "read_tokenizer", used)
    with pytest.raises(_UsedError):
        loading.load(RUN)
    assert asked == [*GROWTH, ("tf32", True)]


def test_an_export_is_loaded_with_memory_that_grows(machine, monkeypatch, tmp_path):
    asked = machine((8, 0), (8, 0))
    (tmp_path / "saved_model.pb").touch()
    monkeypatch.setattr(tf.saved_model, "load", used)
    with pytest.raises(_UsedError):
        t2t_keras.load(tmp_path)
    assert asked == GROWTH


@pytest.mark.parametrize("program", ["prepare", "data_service", "a worker of Beam"])
def test_what_prepares_or_reads_data_sees_no_gpu(machine, monkeypatch, program):
    asked = machine((8, 0))
    monkeypatch.setattr(prepare.Preparation, "run", used)
    monkeypatch.setattr(vocabulary, "load", used)
    monkeypatch.setattr(data_service, "_PORT", types.SimpleNamespace(value=1))
    monkeypatch.setattr(data_service, "_HOST", types.SimpleNamespace(value="localhost"))
    monkeypatch.setattr(data_service, "_DISPATCHER", types.SimpleNamespace(value=""))
    monkeypatch.setattr("t2t_keras.data.data_service.check_free", used)
    monkeypatch.setattr(prepare_program.options, "folder", pathlib.Path)
    monkeypatch.setattr(prepare_program.beam, "given", dict)
    monkeypatch.setattr(prepare_program, "_PROCESSES", types.SimpleNamespace(value=0))
    groups = {name: group() for name, group in run_options.groups_of().items()}
    groups["data"] = t2t_keras.config.DataConfig(dataset="builtin")
    monkeypatch.setattr(prepare_program.options, "read_run", lambda: groups)
    work = {"prepare": prepare_program.prepare, "data_service": data_service.serve, "a worker of Beam": beam_worker}
    with pytest.raises(_UsedError):
        work[program]()
    assert asked == [("visible", [], "GPU")]


def test_devices_that_are_in_use_stay_as_they_are(machine, monkeypatch):
    machine((8, 0))

    def refuse(*arguments):
        raise RuntimeError("Physical devices cannot be modified after being initialized")

    for place, name in ((tf.config, "set_visible_devices"), (tf.config.experimental, "set_memory_growth")):
        monkeypatch.setattr(place, name, refuse)
    hide_gpus()
    share_gpus()


@pytest.mark.parametrize(("capabilities", "tf32", "expected"), [
    ((), True, []),
    (((7, 5),), True, []),  # Turing has no TF32.
    ((None,), True, []),
    (((8, 0), (8, 0)), True,
     ["A product in float32 on the GPU rounds factors to TF32; tf32=false keeps float32, slower."]),
    (((7, 5), (9, 0)), False, ["A product in float32 on the GPU keeps factors in float32; tf32=true is faster."]),
])  # fmt: skip
def test_what_float32_means_is_chosen_and_logged_on_a_gpu_with_tf32(machine, messages, capabilities, tf32, expected):
    asked = machine(*capabilities)
    choose_float32(tf32)
    assert asked == [("tf32", tf32)] and messages == expected


def test_a_run_translates_with_the_float32_that_it_was_trained_with(machine, monkeypatch, tmp_path):
    asked = machine((8, 0))
    options = run_options.Options(train=t2t_keras.config.TrainConfig(tf32=False))
    (tmp_path / files.SUBWORDS).touch()
    SavedRun.write(tmp_path, options, tmp_path / files.SUBWORDS, None)
    monkeypatch.setattr(loading, "read_tokenizer", used)
    monkeypatch.setattr(loading.checkpoints, "check_size", lambda *arguments: None)
    with pytest.raises(_UsedError):
        loading.load(tmp_path)
    assert ("tf32", False) in asked
