"""The devices of a training run: one device, several devices of a machine, or several machines (section 5.2).

All of them make the same updates.

Several machines or processes find each other through the environment variable TF_CONFIG, which launchers of TensorFlow
jobs set: {"cluster": {"worker": ["host:port", …]}, "task": {"type": "worker", "index": 0}}. The first worker, the
chief, writes all files.
"""

import contextlib
import itertools
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

from t2t_keras.config import AUTO, TrainConfig
from t2t_keras.data import batching
from t2t_keras.data.few_shapes import Shapes
from t2t_keras.system import machine
from t2t_keras.system.compat import number_collective_keys
from t2t_keras.system.log import logger
from t2t_keras.system.tensorflow import reach_directly
from t2t_keras.training.interruption import OtherWorkerError

MICRO_BATCHES_AT_ONCE = 2  # How many a CPU computes at a time at least: many operations are too small for all cores.
# Memory to have for each token of a micro-batch; the big model takes 0.65 MB in sentences of 30 sub-words.
BYTES_OF_TOKEN = 2**20
LENGTH_BUCKETS = 1.15  # Of compiled runs by default: some 40 shapes for WMT14's lengths.
# How many kernels oneDNN keeps, which it compiles for each operation and shape; its default is 1,024. An epoch of
# Multi30k has more than 4,000 in bfloat16.
KERNELS = 4096
EXIT_SECONDS = 0.5  # How long a worker stays for the answers it owes to the others in the last sum over the workers.
# How long the chief stays, to exit after the others. After 10 s TensorFlow reports them as crashed.
CHIEF_EXIT_SECONDS = 3.0


def _is_address(text) -> bool:
    """Returns whether it is a host and a port, such as "host:2222" or "[::1]:2222"."""
    found = re.fullmatch(r"(\[[^\s,/\[\]]+\]|[^\s,/:\[\]]+):([0-9]{1,5})", text) if isinstance(text, str) else None
    return bool(found) and 0 < int(found[2]) < 2**16


def _cluster() -> dict[str, list[str]]:
    """Returns the addresses of the training tasks in TF_CONFIG by job, "chief" or "worker"; empty without TF_CONFIG."""
    text = os.environ.get("TF_CONFIG", "{}")
    try:
        config = json.loads(text)
        cluster = config.get("cluster", {})
    except (ValueError, RecursionError, AttributeError) as error:  # Of JSON that is none, too large, too deep.
        raise ValueError(f"Expected TF_CONFIG to be a JSON object. Received: {text} ({error}).") from error
    if not (isinstance(cluster, dict) and all(isinstance(addresses, list) for addresses in cluster.values())):
        raise ValueError(f"Expected lists of addresses by job as the `cluster` of TF_CONFIG. Received: {text}.")
    if "ps" in cluster or "sparseCluster" in config:  # Kubeflow's dynamic workers, who know the parameter servers only.
        raise ValueError(
            f"Expected TF_CONFIG without parameter servers: every worker holds all weights. Received: {text}."
        )
    if set(cluster) - {"chief", "worker", "evaluator"} or len(cluster.get("chief", [""])) != 1:
        raise ValueError(
            "Expected TF_CONFIG with a `cluster` of workers: a list `worker`, and perhaps a list `chief` of one "
            f"address. Received: {text}. Name all other jobs that train `worker`, and leave out empty lists."
        )
    cluster = {job: cluster[job] for job in ("chief", "worker") if job in cluster}
    addresses = sum(cluster.values(), [])
    if wrong := [each for each in addresses if not _is_address(each) or addresses.count(each) > 1]:
        raise ValueError(
            "Expected another host and port for each task in the `cluster` of TF_CONFIG, such as host1:2222. Received: "
            f"{wrong[0]}{' twice' * (addresses.count(wrong[0]) > 1)} in {text}."
        )
    return cluster


def _cluster_size() -> int:
    """Returns the number of training tasks in TF_CONFIG; 0 if it is not set."""
    return sum(map(len, _cluster().values()))


def _task() -> tuple[str, int]:
    """Returns the job and the index of this process in TF_CONFIG, which must be those of a training task."""
    cluster, text, job = _cluster(), os.environ.get("TF_CONFIG", "{}"), None
    try:
        task = json.loads(text)["task"]
        job, index = task["type"], task["index"]
        if str(index) in map(str, range(len(cluster[job]))):  # A number or a text.
            return job, int(index)
    except (KeyError, TypeError, ValueError):
        pass
    raise ValueError(
        f"Expected the `task` of TF_CONFIG to be one of its `cluster`, of type {' or '.join(cluster)} with an index "
        f"from 0. Received: {text}.{' Leave out evaluators: the chief validates.' * (job == 'evaluator')}"
    )


class MirroredStrategy(tf.distribute.MirroredStrategy):
    """`tf.distribute.MirroredStrategy` whose collective operations have keys of their own.

    Those of two strategies in one process otherwise have the same keys, and fail: "Shape mismatch in the collective
    instance".
    """

    _numbers = itertools.count()

    def __init__(self, devices: list[str]):
        number_collective_keys(self, next(self._numbers))
        super().__init__(devices)


def make_strategy(cpu_devices: int = 1, config: TrainConfig | None = None) -> tf.distribute.Strategy:
    """Makes a strategy over all GPUs of this machine or, without a GPU, over virtual CPU devices.

    If TF_CONFIG names more than one worker, the strategy spans all workers. Call it before TensorFlow is first used if
    there are several workers or several virtual CPU devices. Raises `ValueError` if it is too late to make these, if
    both are given, or if TF_CONFIG is invalid; `OSError` if the port of this worker cannot be opened.

    With `config`, and without a GPU, it sets the number of threads of an operation, see `threads_of_an_operation`,
    unless TensorFlow has been used or you have set it, and the number of kernels that oneDNN keeps, unless you have set
    it.
    """
    workers = _cluster_size()
    if workers and "task" in json.loads(os.environ["TF_CONFIG"]):
        _task()  # One worker, too, is not trained by an evaluator beside it.
    if workers > 1 and cpu_devices > 1:
        raise ValueError(
            "`cpu_devices` has no effect on several workers, each of which trains on its GPUs or its CPU as a whole. "
            f"Received: cpu_devices={cpu_devices} and {workers} workers in TF_CONFIG. Leave out `cpu_devices`."
        )
    virtual_cpu_devices(cpu_devices)
    if config and not tf.config.list_physical_devices("GPU"):
        _set_up_cpus(cpu_devices, config)
    if workers > 1:
        job, index = _task()
        logger.info(
            f"Waiting until all {workers} workers of TF_CONFIG have started; this one is {job} {index}. Until then, "
            "only SIGKILL stops it."
        )
        reach_directly(address.rpartition(":")[0].strip("[]") for address in sum(_cluster().values(), []))
        on_sigterm = signal.getsignal(signal.SIGTERM)
        try:
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
        except RuntimeError as error:
            raise ValueError(
                f"Expected to join other workers before TensorFlow is first used. Received: {workers} workers in "
                f"TF_CONFIG ({error}). Start a new process."
            ) from error
        except tf.errors.UnknownError as error:
            raise OSError(
                f"Expected to receive other workers at {_cluster()[job][index]}, the address of {job} {index} in "
                f"TF_CONFIG. Received: {error.message}, perhaps because its port is in use. End what uses it, such as "
                "another worker with the same `task`, or give another port to all workers."
            ) from error
        # TensorFlow takes SIGTERM for itself, and does nothing about it: preparing the data could not be stopped.
        if on_sigterm is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)
        return strategy
    if gpus := [device.name for device in tf.config.list_logical_devices("GPU")]:
        return MirroredStrategy(gpus)
    return MirroredStrategy([f"/cpu:{index}" for index in range(cpu_devices)])


def _set_up_cpus(cpu_devices: int, config: TrainConfig) -> None:
    """Sets how TensorFlow trains on CPUs, as `make_strategy` says."""
    if not tf.config.threading.get_intra_op_parallelism_threads() and "TF_NUM_INTRAOP_THREADS" not in os.environ:
        with contextlib.suppress(RuntimeError):  # TensorFlow has been used already.
            tf.config.threading.set_intra_op_parallelism_threads(threads_of_an_operation(cpu_devices, config))
    if not {f"{library}_PRIMITIVE_CACHE_CAPACITY" for library in ("ONEDNN", "DNNL")} & os.environ.keys():
        os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = str(KERNELS)


def threads_of_an_operation(cpu_devices: int, config: TrainConfig) -> int:
    """Returns the cores of this process divided by the number of micro-batches that it computes at a time.

    Each micro-batch on some of the cores is faster than each operation on all of them.
    """
    replicas = cpu_devices * max(_cluster_size(), 1)
    at_once = cpu_devices * min(of_update(config, replicas), micro_batches_at_once(config, cpu_devices))
    return max(machine.cores() // at_once, 1)


def of_update(config: TrainConfig, replicas: int) -> int:
    """Returns how many micro-batches of an update a device gets, at least."""
    buckets = config.buckets_per_update
    needed = -(-config.batch_tokens // (buckets * config.micro_batch_tokens))
    return buckets * batching.micro_batches_per_bucket(needed, buckets, replicas) // replicas


def micro_batches_at_once(config: TrainConfig, cpu_devices: int) -> int:
    """Returns how many micro-batches a device computes at a time, with a number of virtual CPU devices, or 0 if GPUs
    train.

    It is the option if it is set. A GPU computes one, so that memory holds the activations of one. A CPU computes as
    many as it has cores and memory for, at least two.
    """
    if config.micro_batches_at_once or not cpu_devices:
        return config.micro_batches_at_once or 1
    fit = machine.memory() // (BYTES_OF_TOKEN * config.micro_batch_tokens)
    return max(min(machine.cores(), fit) // cpu_devices, MICRO_BATCHES_AT_ONCE)


def at_once(strategy, config: TrainConfig) -> int:
    """Returns how many micro-batches a device of a strategy computes at a time; see `micro_batches_at_once`."""
    here = strategy.extended.worker_devices
    return micro_batches_at_once(config, len(here) if all("CPU" in device for device in here) else 0)


def compiles(strategy, config: TrainConfig) -> bool:
    """Returns whether XLA compiles the forward and the backward pass."""
    if config.jit_compile != AUTO:
        return config.jit_compile == "true"
    return config.length_buckets > 1 and on_gpus(strategy)


def on_gpus(strategy) -> bool:
    """Returns whether GPUs train."""
    return all("GPU" in device for device in strategy.extended.worker_devices)


def shapes(config: TrainConfig, info: dict, tokens: int) -> Shapes | None:
    """Returns the shapes of buckets of so many tokens on each side, or `None` if `length_buckets` rounds no lengths.
    `info` is from `shards.read_info`.
    """
    counted = tuple(name for name, counts in info["columns"].items() if counts)
    return Shapes(config.length_buckets, tokens, counted) if config.length_buckets > 1 else None


def virtual_cpu_devices(number: int) -> None:
    """Splits the CPU into at least `number` virtual devices, which stand in for GPUs in tests and trials. Raises
    `ValueError` if TensorFlow has been used already, with fewer devices.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    if number <= len(tf.config.get_logical_device_configuration(cpu) or [cpu]):
        return
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * number)
    except RuntimeError as error:
        raise ValueError(
            f"Expected `cpu_devices` to be set before TensorFlow is first used. Received: cpu_devices={number}. Start "
            "a new process."
        ) from error


def shares_of(strategy, batch: dict) -> list[dict]:
    """Returns the shares of an update that the replicas of this process have."""
    shares = [strategy.experimental_local_results(value) for value in batch.values()]
    return [dict(zip(batch, share, strict=True)) for share in zip(*shares, strict=True)]


def is_chief(strategy) -> bool:
    """Returns whether this process is the chief, which writes the files of the run."""
    return strategy.extended.should_checkpoint


def several_workers(strategy) -> bool:
    """Returns whether several processes train together."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def process_count(strategy) -> int:
    """Returns the number of processes that train together."""
    return _cluster_size() if several_workers(strategy) else 1


def process_index(strategy) -> int:
    """Returns the index of this process; the chief's is 0."""
    if not several_workers(strategy):
        return 0
    task = strategy.cluster_resolver
    return task.task_id + (task.task_type == "worker" and "chief" in _cluster())


@tf.function
def _sum_over_workers(strategy, value, chief_only: bool):
    def replica_value():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.where(tf.equal(replica, 0), value, tf.zeros_like(value)) if chief_only else value

    return strategy.reduce("SUM", strategy.run(replica_value), axis=None)


def fastest_dtype(strategy) -> str:
    """Returns bfloat16 if the chief's machine multiplies matrices in it 1.5 times as fast or more, else float32."""
    seconds = {}
    for dtype in ("float32", "bfloat16"):
        matrix, times = tf.cast(tf.random.normal([2048, 2048]), dtype), []
        for _ in range(4):  # The first one prepares.
            started = time.perf_counter()
            tf.reduce_sum(tf.matmul(matrix, matrix)).numpy()
            times.append(time.perf_counter() - started)
        seconds[dtype] = min(times[1:])
    ratio = broadcast_from_chief(strategy, seconds["float32"] / seconds["bfloat16"])
    chosen = "bfloat16" if ratio >= 1.5 else "float32"
    logger.info(
        f"Training in {chosen}: on this machine a matrix product in bfloat16 is {ratio:.2f} times as fast as in "
        "float32."
    )
    return chosen


def broadcast_from_chief(strategy, value: float) -> float:
    """Returns the chief's value in every process. Waits for all workers."""
    if not several_workers(strategy):
        return value
    return float(_sum_over_workers(strategy, tf.constant(value, tf.float64), True))


def any_worker(strategy, flag: bool) -> bool:
    """Returns whether the flag is True in any process. Waits for all workers."""
    if not several_workers(strategy):
        return flag
    return bool(_sum_over_workers(strategy, tf.constant(float(flag), tf.float64), False) > 0)


def wait_for_workers(strategy) -> None:
    """Returns when all workers have called it."""
    broadcast_from_chief(strategy, 0.0)


def chief_first(strategy, work: Callable):
    """Calls a function on the chief, while the other workers wait, and returns its result there, `None` in other
    workers. These raise `interruption.OtherWorkerError` if it raises an error on the chief; all do if another worker
    has ended, except a chief with an error of its own.
    """
    result = error = None
    if is_chief(strategy):
        try:
            result = work()
        except Exception as raised:
            error = raised
    try:
        with plain_errors(strategy):
            failed = broadcast_from_chief(strategy, float(error is not None))
    except OtherWorkerError:
        if not error:
            raise
    if error:
        raise error
    if failed:
        raise OtherWorkerError("The chief has failed. See its message.")
    return result


@contextlib.contextmanager
def plain_errors(strategy) -> Iterator[None]:
    """Turns TensorFlow's errors in one worker after another one has ended into an `interruption.OtherWorkerError`."""
    try:
        yield
    except RuntimeError as error:  # Ctrl-C came while TensorFlow made its own error of an end of another worker.
        if KeyboardInterrupt.__name__ in str(error):
            raise KeyboardInterrupt from error
        raise
    except (
        tf.errors.UnavailableError,
        tf.errors.AbortedError,
        tf.errors.CancelledError,
        tf.errors.InternalError,
    ) as error:
        if not several_workers(strategy):
            raise
        # Also of this worker's own devices, such as a failure of a GPU.
        of_here = isinstance(error, tf.errors.InternalError)
        reason = f" TensorFlow says: {(error.message.strip().splitlines() or [''])[0]:.300}" if of_here else ""
        raise OtherWorkerError(
            "Another worker has ended or cannot be reached. See its message. Run the same command again in all workers."
            f"{reason}"
        ) from error


def exit_worker(code: int) -> None:
    """Ends this process at once if TF_CONFIG names several workers and it is one; otherwise does nothing.

    It skips the interpreter's clean-up, which can take seconds longer in one worker than in another: TensorFlow 2.21
    has no way to sign off, and reports a worker that has exited as crashed. The chief, which receives the others'
    heartbeats, exits last. The others wait for a moment too: a worker has its sum before the rest of the ring has read
    from it, and their sums fail if it is gone.
    """
    try:
        chief = _task() == (next(iter(_cluster())), 0)
    except ValueError:  # No worker. `make_strategy` has raised it.
        return
    if _cluster_size() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(CHIEF_EXIT_SECONDS if chief else EXIT_SECONDS)
        os._exit(code)


def distribute(
    strategy, dataset: tf.data.Dataset, micro_batch_tokens: int, buckets: int = 1, shared: bool = True, **pieces
):
    """Distributes updates of `buckets` batches each, from `batching.batches`, over the replicas of a strategy; see
    `batching.split`. With `shared`, every process reads all updates and takes the shares of its own replicas; without,
    it reads a part of each update, as from a data service. `pieces` are other arguments of `split`.

    Returns:
        A distributed dataset. Its elements are one replica's share of an update: {"source": [micro-batches, rows, S],
        "target": [micro-batches, rows, T], …}, with `SHAPE` as in `split`. They stay in the host's memory.
    """

    @tf.autograph.experimental.do_not_convert
    def of_process(context):
        own = strategy.num_replicas_in_sync // context.num_input_pipelines
        replicas, first = (strategy.num_replicas_in_sync, context.input_pipeline_id * own) if shared else (own, 0)

        def shares(update):
            sizes = {"buckets": buckets, "replicas": replicas, "micro_batch_tokens": micro_batch_tokens}
            split = batching.split(update, **sizes, **pieces)
            return tf.nest.map_structure(lambda value: value[first : first + own], split)

        return batching.grouped(dataset, buckets).map(shares).unbatch().prefetch(2 * own)

    # From a GPU, the position could only be read after the update that runs there. TensorFlow also keeps int32
    # arguments of a function on the host, so ids that were fetched to a GPU would be copied back.
    return strategy.distribute_datasets_from_function(
        of_process, tf.distribute.InputOptions(experimental_fetch_to_device=False)
    )
