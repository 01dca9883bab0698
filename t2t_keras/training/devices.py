"""Where training runs: one device, several of a machine, or several machines; the same updates everywhere (section 5.2).

Several machines, or processes, find each other through the environment variable TF_CONFIG, as launchers of TensorFlow jobs set it:
{"cluster": {"worker": ["host:port", …]}, "task": {"type": "worker", "index": 0}}. The first of them, the chief, writes all files.
"""

import json
import os
import sys
import time

import tensorflow as tf

from t2t_keras.data import batching

CHIEF_LEAVES_AFTER_SECONDS = 3.0  # After ten, TensorFlow reports the others as crashed.


def _cluster() -> dict[str, list[str]]:
    """The training tasks that TF_CONFIG names: {"chief" or "worker": addresses}; empty where it is not set."""
    text = os.environ.get("TF_CONFIG", "{}")
    try:
        cluster = json.loads(text).get("cluster", {})
    except (json.JSONDecodeError, AttributeError) as error:
        raise ValueError(f"Expected TF_CONFIG to be a JSON object. Received: {text} ({error}).") from error
    if "ps" in cluster:
        raise ValueError(f"Expected TF_CONFIG without parameter servers: every worker holds all weights. Received: {text}.")
    return {job: cluster[job] for job in ("chief", "worker") if job in cluster}


def make_strategy(cpu_devices: int = 1) -> tf.distribute.Strategy:
    """A strategy over all GPUs, or, where there is none, over virtual CPU devices; one device is the case n = 1.

    Over several machines where TF_CONFIG names more than one worker; then, nothing of TensorFlow may have run before. Virtual
    devices, too, have to be asked for before TensorFlow is first used.
    """
    if sum(map(len, _cluster().values())) > 1:
        return tf.distribute.MultiWorkerMirroredStrategy()
    if gpus := [device.name for device in tf.config.list_logical_devices("GPU")]:
        return tf.distribute.MirroredStrategy(gpus)
    return tf.distribute.MirroredStrategy([f"/cpu:{index}" for index in range(cpu_devices)])


def virtual_cpu_devices(number: int) -> None:
    """Splits the CPU into virtual devices, which stand in for GPUs in tests and trials."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * number)


def is_chief(strategy) -> bool:
    """Whether this process writes the files of the run."""
    return strategy.extended.should_checkpoint


def several_workers(strategy) -> bool:
    """Whether other processes take part."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


@tf.function
def _sum_over_workers(strategy, value, chief_only: bool):
    def mine():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.where(tf.equal(replica, 0), value, tf.zeros_like(value)) if chief_only else value

    return strategy.reduce("SUM", strategy.run(mine), axis=None)


def from_chief(strategy, value: float) -> float:
    """The chief's value, in every process; it waits for the others."""
    if not several_workers(strategy):
        return value
    return float(_sum_over_workers(strategy, tf.constant(value, tf.float64), True))


def any_worker(strategy, flag: bool) -> bool:
    """Whether a flag is set in any process; it waits for the others."""
    if not several_workers(strategy):
        return flag
    return bool(_sum_over_workers(strategy, tf.constant(float(flag), tf.float64), False) > 0)


def processes(strategy) -> int:
    """How many processes train together."""
    return sum(map(len, _cluster().values())) if several_workers(strategy) else 1


def process(strategy) -> int:
    """The number of this process among them; the chief is 0."""
    if not several_workers(strategy):
        return 0
    task = strategy.cluster_resolver
    return task.task_id + (task.task_type == "worker" and "chief" in _cluster())


def leave(code: int) -> None:
    """Ends this process where TF_CONFIG names several workers, without the interpreter's clean-up; otherwise does nothing.

    The clean-up can take one worker seconds longer than another. TensorFlow 2.21 has no way to sign off, and reports a worker that is
    gone as crashed. The chief, which the others send their heartbeats to, ends last.
    """
    cluster = _cluster()
    if sum(map(len, cluster.values())) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        task = json.loads(os.environ["TF_CONFIG"])["task"]
        if (task["type"], int(task["index"])) == (next(iter(cluster)), 0):
            time.sleep(CHIEF_LEAVES_AFTER_SECONDS)
        os._exit(code)


def distribute(strategy, dataset: tf.data.Dataset, micro_batch_tokens: int, buckets: int = 1, shared: bool = True):
    """Hands each replica its share of an update at every step: {"source": [micro-batches, rows, S], …}.

    Args:
        strategy: whose replicas they are.
        dataset: of batches; see `batching.batches`.
        micro_batch_tokens: see `batching.split`.
        buckets: batches that make an update.
        shared: every process reads the same updates, and takes the shares of its own replicas; otherwise, what a process
            reads is its own, and the update is what all of them read.
    """

    def of_process(context):
        own = strategy.num_replicas_in_sync // context.num_input_pipelines
        replicas, first = (strategy.num_replicas_in_sync, context.input_pipeline_id * own) if shared else (own, 0)

        def shares(update):
            split = batching.split(update, buckets=buckets, replicas=replicas, micro_batch_tokens=micro_batch_tokens)
            return tf.nest.map_structure(lambda value: value[first : first + own], split)

        return batching.grouped(dataset, buckets).map(shares).unbatch().prefetch(2 * own)

    return strategy.distribute_datasets_from_function(of_process)
