"""t2t_keras: the train step, the batches and the devices of `tools/train.py`."""

import itertools
from collections.abc import Callable

from t2t_keras.config import ModelConfig, TrainConfig
from t2t_keras.runs.run_options import Options


def named_variables(model) -> dict:
    """Returns the variables of a `Transformer` by names that do not depend on Keras, such as
    "encoder/0/self_attention/query".
    """
    found = {"embedding": model.embedding.matrix}
    for side, layers in (("encoder", model.encoder.stack), ("decoder", model.decoder)):
        for index, layer in enumerate(layers):
            for kind in ("self_attention", "cross_attention", "feed_forward"):
                if not hasattr(layer, kind):
                    continue
                at, sub_layer = f"{side}/{index}/{kind}", getattr(layer, kind)
                norm = getattr(layer, f"{kind}_norm").norm
                if kind == "feed_forward":
                    for name in ("inner", "outer"):
                        found[f"{at}/{name}"] = getattr(sub_layer, name).kernel
                        found[f"{at}/{name}_bias"] = getattr(sub_layer, name).bias
                else:
                    for name in ("query", "key", "value", "output"):
                        found[f"{at}/{name}"] = getattr(sub_layer, f"{name}_projection").kernel
                found |= {f"{at}/gamma": norm.gamma, f"{at}/beta": norm.beta}
    return found


def _buckets(task: dict):
    """Returns the dataset of the buckets of all updates, again and again."""
    import numpy as np
    import tensorflow as tf

    sides = ("source", "target")
    with np.load(task["batches"]) as arrays:
        number = range(task["updates"] * task["buckets_per_update"])
        buckets = [{side: arrays[f"bucket/{index}/{side}"] for side in sides} for index in number]
    signature = {side: tf.TensorSpec([None, None], tf.int32) for side in sides}
    return tf.data.Dataset.from_generator(lambda: itertools.cycle(buckets), output_signature=signature)


def start_run(options: Options, make_dataset: Callable, buckets: int, cpu_devices: int = 1) -> tuple:
    """Makes the model, the batches and the train step as a run does, with `buckets` batches per update. Returns
    (strategy, model, distributed batches, train step).

    `make_dataset` is a function () → the dataset of an update's buckets: {"source": [B, S], "target": [B, T]}. It is
    called when the devices are set up, which must be before TensorFlow is used.
    """
    import keras

    from t2t_keras.training import devices, loop, run

    strategy = devices.make_strategy(cpu_devices, options.train)
    keras.utils.set_random_seed(options.train.seed)
    model, adam = run._make_model(strategy, options)
    batches = devices.distribute(strategy, make_dataset(), options.train.micro_batch_tokens, buckets)
    train_step = loop._make_train_step(strategy, model, adam, options.task, options.train, batches.element_spec)
    return strategy, model, batches, train_step


def start(task: dict):
    """Returns a function (indices of updates) → {"losses": …, "target_tokens": …, "flops": …}, lists with a number for
    each update; see `worker.serve`.

    The updates must be asked for in order: 0, 1, …, the last, 0, 1, …. As in the product, the largest micro-batches run
    before the first.
    """
    from benchmarks.train_peers.worker import read_weights
    from t2t_keras.training import device_memory
    from t2t_keras.training.train_step import LossScale

    options = Options(ModelConfig(**task["model"]), TrainConfig(**task["train"]))
    strategy, model, batches, train_step = start_run(options, lambda: _buckets(task), task["buckets_per_update"])
    if (weights := read_weights(task)) is not None:
        for name, variable in named_variables(model).items():
            variable.assign(weights[name])
    device_memory.run_largest_micro_batches(
        strategy, train_step, task["longest"], options.train, strategy.num_replicas_in_sync
    )
    batches, expected, scale = iter(batches), itertools.cycle(range(task["updates"])), LossScale()

    def make_updates(indices: list[int]) -> dict:
        nonlocal scale
        found = {"losses": [], "target_tokens": [], "flops": []}
        for index in indices:
            if index != (following := next(expected)):
                raise ValueError(f"Expected update {following}, as updates come in order. Received: {index}.")
            metrics, scale = train_step(next(batches), scale)
            metrics = {name: float(value) for name, value in metrics.items()}
            found["losses"].append(metrics["smoothed_loss"] / metrics["target_tokens"])
            found["target_tokens"].append(metrics["target_tokens"])
            found["flops"].append(metrics["flops"])
        return found

    return make_updates
