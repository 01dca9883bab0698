"""Passes of the Transformer in Flax on a GPU or a CPU: activations in bfloat16, weights and gradients in float32,
compiled by XLA.
"""

import time

import jax
import jax.numpy as jnp

from benchmarks.passes.flax_transformer import Transformer, smoothed_loss
from t2t_keras.config import ModelConfig, TrainConfig


class Passes:
    """Forward and backward passes over a micro-batch; see `worker.measure`.

    Random bits are XLA's own ("rbg"), which a GPU draws faster than JAX's default. The weights and `gradients`, those
    of the last pass, are trees.
    """

    version = f"jax {jax.__version__}"

    def __init__(self, task: dict, source, target):
        self._device = jax.devices(None if task["device"] == "auto" else task["device"])[0]
        self._batch = jax.device_put((source, target), self._device)
        module = Transformer(ModelConfig(**task["model"]), jnp.dtype(task["dtype"]))
        label_smoothing = TrainConfig().label_smoothing
        self._passes, self.gradients = 0, None

        def key(name: int, number):
            return jax.random.fold_in(jax.random.key(name, impl="rbg"), number)

        @jax.jit
        def initial_weights(source, target):
            return module.init({"params": key(1, 0), "dropout": key(2, 0)}, source, target)["params"]

        @jax.jit
        def run(weights, source, target, number):
            def loss(weights):
                logits = module.apply({"params": weights}, source, target, rngs={"dropout": key(3, number)})
                return smoothed_loss(logits, target, label_smoothing)

            return jax.value_and_grad(loss)(weights)

        self._compiled = run
        self.weights = jax.block_until_ready(initial_weights(*self._batch))

    def _run(self):
        """Returns the loss, for which the device need not have finished."""
        self.gradients = None  # So that those of two passes do not take memory at the same time.
        self._passes += 1
        loss, self.gradients = self._compiled(self.weights, *self._batch, self._passes)
        return loss

    def loss(self) -> float:
        """Makes a pass and returns its loss, when the gradients are there too."""
        loss = self._run()
        jax.block_until_ready(self.gradients)
        return float(loss)

    def seconds(self, number: int) -> float:
        """Returns the time that a number of passes take."""
        started = time.perf_counter()
        for _ in range(number):
            self._run()
        jax.block_until_ready(self.gradients)
        return time.perf_counter() - started

    def peak_bytes(self) -> int:
        """Returns the most memory of the GPU that arrays took; 0 on a CPU."""
        return (self._device.memory_stats() or {}).get("peak_bytes_in_use", 0)

    def device_name(self) -> str:
        return self._device.device_kind

    def attention(self) -> dict[str, int]:
        """Returns nothing: `MultiHeadDotProductAttention` has matrix products and a softmax."""
        return {}
