"""Where training runs: all GPUs, or else virtual CPU devices; over several machines where TF_CONFIG names more than one
worker.
"""

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import types

import numpy as np
import programs
import pytest
import tensorflow as tf

import t2t_keras
from t2t_keras.config import TrainConfig
from t2t_keras.system import machine as machine_module
from t2t_keras.training import devices
from t2t_keras.training.interruption import OtherWorkerError

ROOT = pathlib.Path(__file__).parent.parent


def config_of(workers: int, **others) -> str:
    addresses = [f"localhost:{port}" for port in range(1, workers + 1)]
    return json.dumps({"cluster": {"worker": addresses, **others}, "task": {"type": "worker", "index": 0}})


@pytest.fixture
def machine(monkeypatch):
    """(number of GPUs, TF_CONFIG) → a machine that has them; its strategies are their names and what they are given."""

    def of(gpus: int, tf_config: str | None = None):
        names = [f"/device:GPU:{index}" for index in range(gpus)]
        listed = {"GPU": names, "CPU": ["/device:CPU:0"]}
        listed = {kind: [types.SimpleNamespace(name=name) for name in names] for kind, names in listed.items()}
        monkeypatch.setattr(tf.config, "list_logical_devices", listed.get)
        for module, name in ((devices, "MirroredStrategy"), (tf.distribute, "MultiWorkerMirroredStrategy")):
            monkeypatch.setattr(module, name, lambda *given, name=name: (name, *given))
        monkeypatch.delenv("TF_CONFIG", raising=False)
        if tf_config is not None:
            monkeypatch.setenv("TF_CONFIG", tf_config)

    return of


@pytest.mark.parametrize(
    ("seconds", "chosen", "ratio"),
    [({"float32": 3.0, "bfloat16": 1.0}, "bfloat16", "3.00"), ({"float32": 1.4, "bfloat16": 1.0}, "float32", "1.40")]
    + [({"float32": 1.0, "bfloat16": 4.0}, "float32", "0.25")],
)
def test_bfloat16_is_chosen_where_its_products_are_much_faster(monkeypatch, caplog, seconds, chosen, ratio):
    """By a clock that matrix products alone advance."""
    now = [0.0]

    def matmul(matrix, _):
        now[0] += seconds[matrix.dtype.name]
        return matrix

    monkeypatch.setattr(devices.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(devices.tf, "matmul", matmul)
    with caplog.at_level("INFO"):
        assert devices.fastest_dtype(tf.distribute.get_strategy()) == chosen
    assert f"Training in {chosen}: " in caplog.text and f" is {ratio} times as fast " in caplog.text


@pytest.mark.parametrize(
    "tf_config", [None, config_of(1), config_of(1, evaluator=["localhost:9"])], ids=["none", "one", "an evaluator"]
)
@pytest.mark.parametrize("cpu_devices", [1, 3])
def test_without_a_gpu_a_strategy_is_over_as_many_virtual_cpu_devices_as_asked_for(machine, tf_config, cpu_devices):
    machine(gpus=0, tf_config=tf_config)
    assert devices.make_strategy(cpu_devices) == ("MirroredStrategy", ["/cpu:0", "/cpu:1", "/cpu:2"][:cpu_devices])


@pytest.mark.parametrize("tf_config", [None, config_of(1)])
@pytest.mark.parametrize("gpus", [1, 2])
def test_with_gpus_a_strategy_is_over_all_of_them_whatever_the_cpu_devices(machine, tf_config, gpus):
    machine(gpus=gpus, tf_config=tf_config)
    assert devices.make_strategy(3) == ("MirroredStrategy", ["/device:GPU:0", "/device:GPU:1"][:gpus])


@pytest.mark.parametrize(
    "tf_config", [config_of(2), config_of(1, chief=["localhost:9"])], ids=["two workers", "a chief and a worker"]
)
@pytest.mark.parametrize("gpus", [0, 2])
def test_with_several_workers_a_strategy_is_over_all_and_is_made_before_devices_are_asked_for(
    machine, monkeypatch, messages, tf_config, gpus
):
    """Story: a worker without the others said nothing while it waited, and did not heed Ctrl-C."""
    machine(gpus=gpus, tf_config=tf_config)
    fail = lambda kind: pytest.fail("TensorFlow would start before its cluster.")  # noqa: E731
    monkeypatch.setattr(tf.config, "list_logical_devices", fail)
    assert devices.make_strategy() == ("MultiWorkerMirroredStrategy",)
    [said] = messages
    assert said.startswith("Waiting until all 2 workers of TF_CONFIG have started; this one is worker 0. ")
    with pytest.raises(ValueError, match="no effect on several workers, .* cpu_devices=3 and 2 workers in TF_CONFIG"):
        devices.make_strategy(3)


def test_a_worker_still_heeds_sigterm_when_it_has_joined_the_others(machine, monkeypatch):
    """Story: TensorFlow took the signal, and preparing the data could not be stopped. Here another handler takes it."""
    heeded = []
    machine(gpus=0, tf_config=config_of(2))
    taking = lambda: ctypes.CDLL(None).signal(signal.SIGTERM, 1)  # Ignored, as Python does not know. # noqa: E731
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", taking)
    before = signal.signal(signal.SIGTERM, lambda number, frame: heeded.append(number))
    try:
        devices.make_strategy()
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heeded == [signal.SIGTERM]


@pytest.fixture
def worker(monkeypatch):
    """(whether it is the chief, what the chief broadcasts) → a worker of two; the list has what it broadcasts
    itself.
    """

    def of(chief: bool, received: float = 0.0) -> list[float]:
        sent = []

        def broadcast(strategy, value):
            sent.append(value)
            return value if chief else received

        monkeypatch.setattr(devices, "is_chief", lambda strategy: chief)
        monkeypatch.setattr(devices, "several_workers", lambda strategy: True)
        monkeypatch.setattr(devices, "broadcast_from_chief", broadcast)
        return sent

    return of


def test_what_the_chief_cannot_do_ends_the_other_workers_in_a_sentence(worker):
    """Story: a wrong option ended in 25 lines of the traceback of a collective operation."""

    def fail():
        raise ValueError("Expected another option.")

    sent = worker(chief=True)
    with pytest.raises(ValueError, match="Expected another option."):
        devices.chief_first(None, fail)
    assert sent == [1.0] and devices.chief_first(None, lambda: "options") == "options" and sent == [1.0, 0.0]
    worker(chief=False, received=1.0)
    with pytest.raises(OtherWorkerError, match="The chief has failed"):
        devices.chief_first(None, lambda: pytest.fail("only the chief prepares"))
    worker(chief=False, received=0.0)
    assert devices.chief_first(None, lambda: pytest.fail("only the chief prepares")) is None


def test_what_the_chief_does_is_told_in_a_sentence_if_another_worker_has_ended(worker, monkeypatch):
    def fail(strategy, value):
        raise devices.tf.errors.UnavailableError(None, None, "Connection reset by peer")

    worker(chief=True)
    monkeypatch.setattr(devices, "broadcast_from_chief", fail)
    with pytest.raises(OtherWorkerError, match="^Another worker has ended or cannot be reached"):
        devices.chief_first(None, lambda: "a table")
    with pytest.raises(ZeroDivisionError):  # Not lost: only the chief can tell it.
        devices.chief_first(None, lambda: 1 / 0)


def test_an_end_of_another_worker_is_reported_in_a_sentence_and_other_errors_stay(worker, monkeypatch):
    worker(chief=True)
    for kind in (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.InternalError):
        with pytest.raises(OtherWorkerError, match="Another worker has ended"), devices.plain_errors(None):
            raise kind(None, None, "Collective ops is aborted by: Socket closed")
    with pytest.raises(OtherWorkerError, match=r"TensorFlow says: CUDA error: x$"), devices.plain_errors(None):
        raise tf.errors.InternalError(None, None, "CUDA error: x\n\t [[node]]")  # Perhaps of this worker's own GPU.
    interrupted = (
        "error_already_set: MISMATCH: ORIGINAL UnavailableError REPLACED BY KeyboardInterrupt: <EMPTY MESSAGE>"
    )
    with pytest.raises(KeyboardInterrupt), devices.plain_errors(None):  # Story: Ctrl-C ended in this traceback.
        raise RuntimeError(interrupted)
    with pytest.raises(RuntimeError, match="of another kind"), devices.plain_errors(None):
        raise RuntimeError("of another kind")
    with pytest.raises(tf.errors.ResourceExhaustedError), devices.plain_errors(None):
        raise tf.errors.ResourceExhaustedError(None, None, "out of memory")
    monkeypatch.setattr(devices, "several_workers", lambda strategy: False)
    with pytest.raises(tf.errors.UnavailableError), devices.plain_errors(None):
        raise tf.errors.UnavailableError(None, None, "of a data service")


@pytest.mark.parametrize(("jobs", "task", "expected"), [
    ({"worker": 3}, ("worker", 0), (3, 0)),
    ({"worker": 3}, ("worker", 2), (3, 2)),
    ({"chief": 1, "worker": 3}, ("chief", 0), (4, 0)),
    ({"chief": 1, "worker": 3}, ("worker", 2), (4, 3)),
])  # fmt: skip
def test_processes_are_numbered_from_the_chief_on(worker, monkeypatch, jobs, task, expected):
    """The chief has a job of its own, or is the first worker."""
    worker(chief=expected[1] == 0)
    cluster = {job: [f"{job}{index}:1" for index in range(number)] for job, number in jobs.items()}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster}))
    strategy = types.SimpleNamespace(cluster_resolver=types.SimpleNamespace(task_type=task[0], task_id=task[1]))
    assert (devices.process_count(strategy), devices.process_index(strategy)) == expected


def test_the_strategy_made_has_a_replica_on_each_device():
    strategy = devices.make_strategy(3)
    assert strategy.num_replicas_in_sync == 3
    assert [name.rpartition("device:")[2] for name in strategy.extended.worker_devices] == ["CPU:0", "CPU:1", "CPU:2"]


def test_virtual_cpu_devices_are_as_many_as_asked_for(monkeypatch):
    """The tests' own four; see conftest.py. As many or fewer may be asked for again, and one where nobody has asked for
    any.
    """
    tf.zeros([])
    for number in (3, 4):
        devices.virtual_cpu_devices(number)
    assert len(tf.config.list_logical_devices("CPU")) == 4
    monkeypatch.setattr(tf.config, "get_logical_device_configuration", lambda cpu: None)
    devices.virtual_cpu_devices(1)


def test_more_virtual_cpu_devices_after_tensorflow_was_used_are_refused():
    """Story: a second `t2t_keras.train` with cpu_devices=2 ended with TensorFlow's RuntimeError."""
    tf.zeros([])
    with pytest.raises(ValueError, match="cpu_devices=5. Start a new process"):
        devices.make_strategy(5)


@pytest.mark.parametrize(
    ("cores", "cpu_devices", "buckets", "expected"),
    [(8, 1, 1, 8), (8, 1, 2, 4), (8, 1, 4, 2), (8, 1, 20, 1), (8, 2, 2, 4), (8, 2, 4, 2), (8, 4, 1, 2)]
    + [(2, 1, 4, 1), (2, 4, 4, 1)],
)
def test_the_threads_of_an_operation_are_the_cores_divided_by_the_micro_batches_computed_at_a_time(
    monkeypatch, cores, cpu_devices, buckets, expected
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
    config = TrainConfig(batch_tokens=1000, micro_batch_tokens=1000, buckets_per_update=buckets)
    assert devices.threads_of_an_operation(cpu_devices, config) == expected
    same = TrainConfig(batch_tokens=1000 * buckets, micro_batch_tokens=1000, buckets_per_update=1)
    assert devices.threads_of_an_operation(cpu_devices, same) == expected


def test_the_threads_count_the_micro_batches_that_an_update_is_split_into(monkeypatch):
    """Three buckets for two devices are six micro-batches: a device computes its three at a time."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(devices.machine, "memory", lambda: 2**40)
    config = TrainConfig(batch_tokens=3000, micro_batch_tokens=1000, buckets_per_update=3)
    assert devices.of_update(config, 2) == 3
    assert devices.threads_of_an_operation(2, config) == 1


@pytest.mark.parametrize(
    ("cores", "batch_tokens", "expected"), [(8, 1001, 4), (8, 1000, 8), (7, 2000, 3), (1, 2000, 1)]
)
def test_a_micro_batch_that_is_not_full_counts_and_threads_are_rounded_down_to_one_at_least(
    monkeypatch, cores, batch_tokens, expected
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
    config = TrainConfig(batch_tokens=batch_tokens, micro_batch_tokens=1000, buckets_per_update=1)
    assert devices.threads_of_an_operation(1, config) == expected


@pytest.mark.parametrize(
    ("gpus", "before", "environment", "cpu_devices", "config", "expected"),
    [
        (0, 0, {}, 1, TrainConfig(buckets_per_update=2), [3]),
        (0, 0, {}, 3, TrainConfig(micro_batches_at_once=1), [2]),
        (0, 0, {}, 1, None, []),
        (1, 0, {}, 1, TrainConfig(buckets_per_update=2), []),
        (0, 5, {}, 1, TrainConfig(buckets_per_update=2), []),
        (0, 0, {"TF_NUM_INTRAOP_THREADS": "6"}, 1, TrainConfig(buckets_per_update=2), []),
    ],
    ids=["set", "for several devices", "without options", "with a GPU", "set by the user", "set in the environment"],
)
def test_a_strategy_sets_the_threads_of_an_operation_unless_the_user_has(
    machine, monkeypatch, gpus, before, environment, cpu_devices, config, expected
):
    machine(gpus=gpus)
    found = []
    monkeypatch.setattr(machine_module, "memory", lambda: 2**34)  # Enough for two micro-batches.
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)))
    listed = {"GPU": ["a GPU"] * gpus, "CPU": tf.config.list_physical_devices("CPU")}
    monkeypatch.setattr(tf.config, "list_physical_devices", listed.get)
    monkeypatch.setattr(tf.config.threading, "get_intra_op_parallelism_threads", lambda: before)
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", found.append)
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.setattr(os, "environ", {**os.environ, **environment})
    devices.make_strategy(cpu_devices, config)
    assert found == expected


def test_threads_stay_as_they_are_once_tensorflow_has_been_used(monkeypatch):
    tf.zeros([])
    monkeypatch.setattr(tf.config.threading, "get_intra_op_parallelism_threads", lambda: 0)  # Not chosen.
    devices.make_strategy(1, TrainConfig(buckets_per_update=2))


@pytest.mark.parametrize(
    ("gpus", "environment", "config", "expected"),
    [
        (0, {}, TrainConfig(), {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "4096"}),
        (0, {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "7"}, TrainConfig(), {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "7"}),
        (0, {"DNNL_PRIMITIVE_CACHE_CAPACITY": "7"}, TrainConfig(), {"DNNL_PRIMITIVE_CACHE_CAPACITY": "7"}),
        (0, {}, None, {}),
        (1, {}, TrainConfig(), {}),
    ],
    ids=["set", "set by the user", "by its old name", "without options", "with a GPU"],
)
def test_a_strategy_of_cpus_lets_onednn_keep_the_kernels_of_an_epoch(
    machine, monkeypatch, gpus, environment, config, expected
):
    machine(gpus=gpus)
    listed = {"GPU": ["a GPU"] * gpus, "CPU": tf.config.list_physical_devices("CPU")}
    monkeypatch.setattr(tf.config, "list_physical_devices", listed.get)
    monkeypatch.setattr(os, "environ", dict(environment))
    devices.make_strategy(1, config)
    assert os.environ == expected


@pytest.mark.medium  # Imports TensorFlow in a process of its own.
def test_a_kernel_is_compiled_once_though_more_shapes_come_than_onednn_keeps_by_default():
    program = """
import tensorflow as tf
from t2t_keras.config import TrainConfig
from t2t_keras.training import devices

devices.make_strategy(1, TrainConfig())
product = tf.function(lambda x: tf.matmul(x, x, transpose_b=True), [tf.TensorSpec([None, 2, None, 4])])
for length in [*range(1, 1200), 7]:
    product(tf.ones([1, 2, length, 4]))
"""
    # What other tests, as parts of a program, have set in this process would decide.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "ONEDNN_", "DNNL_"))}
    environment = inherited | {"TF_ENABLE_ONEDNN_OPTS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    environment |= {"ONEDNN_VERBOSE": "profile_create"}
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    of_length = [line for line in said.stdout.splitlines() if ",1x2x7x4:1x2x4x7," in line]
    assert [line.count("cache_miss") for line in of_length] == [1, 0]


@pytest.mark.parametrize(
    ("cores", "gib", "cpu_devices", "option", "expected"),
    [
        (1, 64, 1, 0, 2),
        (2, 64, 1, 0, 2),
        (2, 64, 2, 0, 2),
        (16, 64, 1, 0, 8),  # The memory is enough for eight.
        (16, 256, 1, 0, 16),
        (16, 256, 4, 0, 4),
        (64, 64, 2, 0, 4),  # Of the eight for all devices.
        (16, 8, 1, 0, 2),
        (16, 256, 1, 3, 3),
        (16, 256, 0, 0, 1),  # On GPUs.
        (16, 256, 0, 2, 2),
    ],
)
def test_micro_batches_at_a_time_follow_from_cores_memory_and_device_unless_they_are_given(
    monkeypatch, cores, gib, cpu_devices, option, expected
):
    """Story: a CPU computed two at a time, whether it had two cores or sixty-four."""
    monkeypatch.setattr(machine_module, "cores", lambda: cores)
    monkeypatch.setattr(machine_module, "memory", lambda: gib * 2**30)
    config = TrainConfig(micro_batch_tokens=8192, micro_batches_at_once=option)
    assert devices.micro_batches_at_once(config, cpu_devices) == expected


@pytest.mark.parametrize(
    ("devices_here", "expected"), [(["/cpu:0"], 3), (["/cpu:0", "/cpu:1", "/cpu:2"], 2), (["/gpu:0", "/gpu:1"], 1)]
)
def test_a_strategy_computes_as_many_at_a_time_as_its_devices_can(monkeypatch, devices_here, expected):
    monkeypatch.setattr(machine_module, "cores", lambda: 3)
    names = [name.replace("/cpu", "/device:CPU").replace("/gpu", "/device:GPU") for name in devices_here]
    strategy = types.SimpleNamespace(extended=types.SimpleNamespace(worker_devices=names))
    assert devices.at_once(strategy, TrainConfig(micro_batch_tokens=100)) == expected


@pytest.mark.parametrize(("workers", "expected"), [(1, 2), (2, 4), (4, 8)])
def test_workers_share_the_micro_batches_of_an_update(monkeypatch, workers, expected):
    """Four workers compute one micro-batch each, on all cores of their machines."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": [f"host{index}:1" for index in range(workers)]}}))
    config = TrainConfig(batch_tokens=1000, micro_batch_tokens=1000, buckets_per_update=4)
    assert devices.threads_of_an_operation(1, config) == expected


def test_batches_and_the_position_of_the_data_stay_on_the_host():
    """Story: the position was fetched to the device with its batch, so reading it from a GPU waited for the update that
    ran there.
    """
    strategy = devices.make_strategy(3)
    update = {"source": [[5, 6]] * 3, "target": [[7]] * 3, "position": tf.constant([4, 2], tf.int64), "damaged": 1}
    [batch] = devices.distribute(strategy, tf.data.Dataset.from_tensors(update), 10)
    found = {name: strategy.experimental_local_results(value) for name, value in batch.items()}
    assert {value.device.rpartition("device:")[2] for values in found.values() for value in values} == {"CPU:0"}
    assert [value.numpy().tolist() for value in found["position"]] == [[4, 2]] * 3
    assert [value.numpy().tolist() for value in found["source"]] == [[[[5, 6]]]] * 3


@pytest.mark.parametrize(("shared", "expected"), [
    (True, [[[50, 51], [60, 61]], [[52, 53], [62, 63]]]),
    (False, [[[50, 51, 52, 53], [60, 61, 62, 63]]] * 2),
])  # fmt: skip
def test_each_process_takes_the_shares_of_its_own_replicas(shared, expected):
    """Two processes of two replicas: 0 and 1, 2 and 3. From a data service, a process reads its part of each update,
    and all is its own.
    """
    rows = [[[number] for number in range(first, first + 4)] for first in (50, 60)]
    asked, strategy = [], types.SimpleNamespace(num_replicas_in_sync=4)
    strategy.distribute_datasets_from_function = lambda of_process, options: asked.append(of_process)
    updates = tf.data.Dataset.from_tensor_slices({"source": rows, "target": rows})
    devices.distribute(strategy, updates, micro_batch_tokens=1, shared=shared)
    for process, shares in enumerate(expected):
        dataset = asked[0](tf.distribute.InputContext(2, process, num_replicas_in_sync=4))
        of_replicas = [element["source"].numpy().ravel().tolist() for element in dataset]
        assert of_replicas == [list(part) for update in shares for part in np.split(np.array(update), 2)]


class _AskedError(Exception):
    """Ends a training run where it asks for a strategy."""


def test_training_by_python_gives_its_options_to_the_strategy(monkeypatch, tmp_path):
    def asked(cpu_devices, config):
        raise _AskedError(cpu_devices, config.buckets_per_update)

    monkeypatch.setattr(devices, "make_strategy", asked)
    with pytest.raises(_AskedError, match=r"\(2, 3\)"):
        t2t_keras.train(tmp_path, dataset="builtin", buckets_per_update=3, cpu_devices=2)


@pytest.mark.parametrize(("program", "cpu_devices"), [("train", 2), ("quickstart", 1)])
def test_a_program_gives_its_options_to_the_strategy_before_it_uses_tensorflow(tmp_path, program, cpu_devices):
    """Story: the quick start measured which dtype is faster before, so its threads stayed as they were."""
    code = f"""if True:
        import sys
        import tensorflow as tf
        from t2t_keras.training import devices
        from tools import {program} as program
        def asked(cpu_devices=1, config=None):
            tf.config.threading.set_intra_op_parallelism_threads(1)  # Fails once TensorFlow has been used.
            sys.exit(f"asked for {{cpu_devices}}, {{config.buckets_per_update}}")
        devices.make_strategy = asked
        program.main()"""
    given = [f"--model_dir={tmp_path}", "--dataset=builtin", "--buckets_per_update=3"]
    given += [f"--cpu_devices={cpu_devices}"] if cpu_devices > 1 else []
    result = programs.run([sys.executable, "-c", code, *given], capture_output=True, text=True, cwd=ROOT)
    assert f"asked for {cpu_devices}, 3" in result.stderr
