"""Passes of the modules of `train_peers/pytorch.py` on a GPU or a CPU: bfloat16 by autocast, weights and gradients in
float32, compiled for one shape.
"""

import time

import torch
from torch import nn

from benchmarks.train_peers import pytorch
from t2t_keras.config import ModelConfig, TrainConfig


class Unmasked(pytorch.Plain):
    """The plain module for batches without padding.

    On a GPU, PyTorch's flash attention takes no mask but the causal one; with the mask of padding it would take its
    memory-efficient attention, as `nn.Transformer` does here, which is given that mask. The matrices start as those of
    `nn.Transformer` do.
    """

    def __init__(self, config: ModelConfig, positions: int, dtype: torch.dtype):
        super().__init__(config, positions, dtype)
        for linear in self.modules():
            if isinstance(linear, nn.Linear):
                nn.init.xavier_uniform_(linear.weight)

    def mask(self, source):
        return None


MODULES = {"transformer": pytorch.BuiltIn, "plain": Unmasked}


class Passes:
    """Forward and backward passes over a micro-batch; see `worker.measure`. The `module` has the gradients of the last
    pass.
    """

    version = f"torch {torch.__version__}"

    def __init__(self, task: dict, source, target):
        device = task["device"]
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self._device = torch.device(device)
        self._batch = [torch.from_numpy(ids).long().to(self._device) for ids in (source, target)]
        torch.manual_seed(1)
        dtype = getattr(torch, task["dtype"])
        module = MODULES[task["system"]](ModelConfig(**task["model"]), task["length"], dtype)
        self.module = module.to(self._device).train()
        options = {"compile": "per shape"} if task["compile"] else {}
        self._loss = pytorch.make_loss(self.module, TrainConfig(dtype=task["dtype"]), options)

    def _run(self) -> torch.Tensor:
        """Returns the loss, for which the device need not have finished."""
        self.module.zero_grad(set_to_none=True)
        loss = self._loss(*self._batch)
        loss.backward()
        return loss.detach()

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def loss(self) -> float:
        """Makes a pass and returns its loss, when the gradients are there too."""
        loss = self._run()
        self._wait()
        return loss.item()

    def seconds(self, number: int) -> float:
        """Returns the time that a number of passes take."""
        if self._device.type != "cuda":
            started = time.perf_counter()
            for _ in range(number):
                self._run()
            return time.perf_counter() - started
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(number):
            self._run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1000

    def peak_bytes(self) -> int:
        """Returns the most memory of the GPU that tensors took; 0 on a CPU."""
        return torch.cuda.max_memory_allocated() if self._device.type == "cuda" else 0

    def device_name(self) -> str:
        return torch.cuda.get_device_name() if self._device.type == "cuda" else "CPU"

    def attention(self) -> dict[str, int]:
        """Makes a pass and returns how often it calls each function of attention, such as "flash_attention"."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            self.loss()
        prefix = "aten::_scaled_dot_product_"
        calls = {event.key: event.count for event in profile.key_averages()}
        return {
            name.removeprefix(prefix): count
            for name, count in sorted(calls.items())
            if name.startswith(prefix) and "backward" not in name
        }
