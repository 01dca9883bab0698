"""Where training runs: all GPUs, or else virtual CPU devices; over several machines where TF_CONFIG names more than one worker."""

import json
import types

import pytest
import tensorflow as tf

from t2t_keras.training import devices


def config_of(workers: int, **others) -> str:
    addresses = [f"localhost:{port}" for port in range(1, workers + 1)]
    return json.dumps({"cluster": {"worker": addresses, **others}, "task": {"type": "worker", "index": 0}})


@pytest.fixture
def machine(monkeypatch):
    """(number of GPUs, TF_CONFIG) → a machine that has them; its strategies are their names and what they are given."""

    def of(gpus: int, tf_config: str | None):
        names = [f"/device:GPU:{index}" for index in range(gpus)]
        listed = {"GPU": [types.SimpleNamespace(name=name) for name in names], "CPU": [types.SimpleNamespace(name="/device:CPU:0")]}
        monkeypatch.setattr(tf.config, "list_logical_devices", listed.get)
        for module, name in ((devices, "MirroredStrategy"), (tf.distribute, "MultiWorkerMirroredStrategy")):
            monkeypatch.setattr(module, name, lambda *given, name=name: (name, *given))
        monkeypatch.delenv("TF_CONFIG", raising=False)
        if tf_config is not None:
            monkeypatch.setenv("TF_CONFIG", tf_config)

    return of


@pytest.mark.parametrize("tf_config", [None, config_of(1)])
@pytest.mark.parametrize("cpu_devices", [1, 3])
def test_without_a_gpu_a_strategy_is_over_as_many_virtual_cpu_devices_as_asked_for(machine, tf_config, cpu_devices):
    machine(gpus=0, tf_config=tf_config)
    assert devices.make_strategy(cpu_devices) == ("MirroredStrategy", ["/cpu:0", "/cpu:1", "/cpu:2"][:cpu_devices])


@pytest.mark.parametrize("tf_config", [None, config_of(1)])
@pytest.mark.parametrize("gpus", [1, 2])
def test_with_gpus_a_strategy_is_over_all_of_them_whatever_the_cpu_devices(machine, tf_config, gpus):
    machine(gpus=gpus, tf_config=tf_config)
    assert devices.make_strategy(3) == ("MirroredStrategy", ["/device:GPU:0", "/device:GPU:1"][:gpus])


@pytest.mark.parametrize("tf_config", [config_of(2), config_of(1, chief=["localhost:9"])], ids=["two workers", "a chief and a worker"])
@pytest.mark.parametrize("gpus", [0, 2])
def test_with_several_workers_a_strategy_is_over_all_and_is_made_before_devices_are_asked_for(machine, monkeypatch, tf_config, gpus):
    machine(gpus=gpus, tf_config=tf_config)
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: pytest.fail("TensorFlow would start before its cluster."))
    assert devices.make_strategy(3) == ("MultiWorkerMirroredStrategy",)


def test_the_strategy_made_has_a_replica_on_each_device():
    strategy = devices.make_strategy(3)
    assert strategy.num_replicas_in_sync == 3
    assert [name.rpartition("device:")[2] for name in strategy.extended.worker_devices] == ["CPU:0", "CPU:1", "CPU:2"]


def test_virtual_cpu_devices_are_as_many_as_asked_for():
    """The tests' own four; see conftest.py. Fewer may be asked for again."""
    devices.virtual_cpu_devices(3)
    assert len(tf.config.list_logical_devices("CPU")) == 4


def test_more_virtual_cpu_devices_after_tensorflow_was_used_are_refused():
    """Story: a second `t2t_keras.train` with cpu_devices=2 ended with TensorFlow's RuntimeError."""
    with pytest.raises(ValueError, match="cpu_devices=5. Start a new process"):
        devices.make_strategy(5)
