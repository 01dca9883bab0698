"""PyTorch: the training loop for any module, and two modules: `nn.Transformer` and a plain hand-written one.

Both have the paper's layers as t2t_keras has them: attention projections without bias, an ε of 1e-6 in the layer norms,
no dropout but on embeddings and sub-layer outputs, no layer norm at the end of a stack. The rest is what the framework
offers: fused Adam, fused attention, autocast for bfloat16, label smoothing in `F.cross_entropy`, gradients added up by
`backward`.
"""

import contextlib
import importlib
import math
import sys

import torch
from torch import nn
from torch.nn import functional

from benchmarks.train_peers.worker import read_updates, read_weights
from t2t_keras.config import BOS, PAD, ModelConfig, TrainConfig

EPSILON = 1e-6  # Of the layer norms.


def sinusoids(positions: int, d_model: int) -> torch.Tensor:
    """Returns the position encodings of section 3.5, [positions, D]."""
    frequency = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    angle = torch.arange(positions)[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


class Embedding(nn.Module):
    """The shared matrix with sinusoids and dropout; `logits` multiplies with the same matrix. [B, T] int → [B, T, D] in
    `dtype`.
    """

    def __init__(self, config: ModelConfig, positions: int, dtype: torch.dtype):
        super().__init__()
        self.matrix = nn.Embedding(config.vocab_size, config.d_model)
        nn.init.normal_(self.matrix.weight, std=config.d_model**-0.5)
        self.register_buffer("positions", sinusoids(positions, config.d_model))
        self.dropout, self.dtype, self.scale = nn.Dropout(config.dropout), dtype, config.d_model**0.5

    def forward(self, ids):
        x = self.matrix(ids) * self.scale + self.positions[: ids.shape[1]]
        return self.dropout(x.to(self.dtype))

    def logits(self, x):
        return functional.linear(x, self.matrix.weight)


class Attention(nn.Module):
    """Multi-head attention with one projection for queries, keys and values, or one for keys and values of a memory."""

    def __init__(self, d_model: int, heads: int, cross: bool):
        super().__init__()
        self.heads = heads
        self.projections = nn.ModuleList(
            [nn.Linear(d_model, width * d_model, bias=False) for width in ((1, 2) if cross else (3,))]
        )
        self.output = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, memory=None, mask=None, causal=False):
        if memory is None:
            parts = self.projections[0](x).chunk(3, dim=-1)
        else:
            parts = [self.projections[0](x), *self.projections[1](memory).chunk(2, dim=-1)]
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        heads = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return self.output(heads.transpose(1, 2).flatten(2))


class PlainLayer(nn.Module):
    """An encoder layer, or with `cross` a decoder layer."""

    def __init__(self, config: ModelConfig, cross: bool):
        super().__init__()
        self.self_attention = Attention(config.d_model, config.num_heads, cross=False)
        self.cross_attention = Attention(config.d_model, config.num_heads, cross=True) if cross else None
        self.inner, self.outer = nn.Linear(config.d_model, config.d_ff), nn.Linear(config.d_ff, config.d_model)
        self.norms = nn.ModuleList([nn.LayerNorm(config.d_model, eps=EPSILON) for _ in range(3 if cross else 2)])
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, mask, memory=None):
        decodes = self.cross_attention is not None
        x = self.norms[0](x + self.dropout(self.self_attention(x, mask=None if decodes else mask, causal=decodes)))
        if decodes:
            x = self.norms[1](x + self.dropout(self.cross_attention(x, memory, mask)))
        return self.norms[-1](x + self.dropout(self.outer(functional.relu(self.inner(x)))))


class Plain(nn.Module):
    """The plain module: (source [B, S], shifted target [B, T]) → logits [B, T, V]."""

    def __init__(self, config: ModelConfig, positions: int, dtype: torch.dtype):
        super().__init__()
        self.embedding = Embedding(config, positions, dtype)
        self.encoder = nn.ModuleList([PlainLayer(config, cross=False) for _ in range(config.encoder_layers)])
        self.decoder = nn.ModuleList([PlainLayer(config, cross=True) for _ in range(config.decoder_layers)])

    def mask(self, source):
        """Returns which tokens of the source are attended to, [B, 1, 1, S]."""
        return (source != PAD)[:, None, None, :]

    def forward(self, source, target):
        mask = self.mask(source)
        memory = self.embedding(source)
        for layer in self.encoder:
            memory = layer(memory, mask)
        x = self.embedding(target)
        for layer in self.decoder:
            x = layer(x, mask, memory)
        return self.embedding.logits(x)

    def load(self, weights: dict) -> None:
        """Copies the weights of `ours.named_variables`."""
        copy(self.embedding.matrix.weight, weights["embedding"])
        for side, layers in (("encoder", self.encoder), ("decoder", self.decoder)):
            for index, layer in enumerate(layers):
                of = sub_weights(weights, f"{side}/{index}")
                kinds = ["self_attention", *(["cross_attention"] if layer.cross_attention else []), "feed_forward"]
                for name in kinds[:-1]:
                    attention, rows = getattr(layer, name), joined_projections(of, name)
                    sizes = [len(projection.weight) for projection in attention.projections]
                    for projection, part in zip(attention.projections, rows.split(sizes), strict=True):
                        copy(projection.weight, part)
                    copy(attention.output.weight, of[f"{name}/output"].T)
                copy_linear(layer.inner, of, "feed_forward/inner")
                copy_linear(layer.outer, of, "feed_forward/outer")
                for norm, kind in zip(layer.norms, kinds, strict=True):
                    copy_norm(norm, of, kind)


class BuiltIn(nn.Module):
    """`nn.Transformer` between the embeddings: (source [B, S], shifted target [B, T]) → logits [B, T, V]."""

    def __init__(self, config: ModelConfig, positions: int, dtype: torch.dtype):
        super().__init__()
        self.embedding = Embedding(config, positions, dtype)
        sizes = config.d_model, config.num_heads, config.encoder_layers, config.decoder_layers, config.d_ff
        self.transformer = nn.Transformer(*sizes, config.dropout, layer_norm_eps=EPSILON, batch_first=True)
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        for layer in (*self.transformer.encoder.layers, *self.transformer.decoder.layers):
            layer.dropout.p = 0.0  # The dropout after the ReLU.
        for attention in self.transformer.modules():
            if isinstance(attention, nn.MultiheadAttention):
                attention.dropout, attention.in_proj_bias, attention.out_proj.bias = 0.0, None, None

    def forward(self, source, target):
        padding = source == PAD
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], target.device, self.embedding.dtype)
        masks = {"tgt_mask": causal, "src_key_padding_mask": padding, "memory_key_padding_mask": padding}
        x = self.transformer(self.embedding(source), self.embedding(target), tgt_is_causal=True, **masks)
        return self.embedding.logits(x)

    def load(self, weights: dict) -> None:
        """Copies the weights of `ours.named_variables`."""
        copy(self.embedding.matrix.weight, weights["embedding"])
        for side in ("encoder", "decoder"):
            for index, layer in enumerate(getattr(self.transformer, side).layers):
                of, norms = sub_weights(weights, f"{side}/{index}"), ["norm1", "norm2", "norm3"]
                for kind, name in (("self_attention", "self_attn"), ("cross_attention", "multihead_attn")):
                    if f"{kind}/query" in of:
                        attention = getattr(layer, name)
                        copy(attention.in_proj_weight, joined_projections(of, kind))
                        copy(attention.out_proj.weight, of[f"{kind}/output"].T)
                        copy_norm(getattr(layer, norms.pop(0)), of, kind)
                copy_linear(layer.linear1, of, "feed_forward/inner")
                copy_linear(layer.linear2, of, "feed_forward/outer")
                copy_norm(getattr(layer, norms.pop(0)), of, "feed_forward")


# Copying weights.


def sub_weights(weights: dict, prefix: str) -> dict:
    """Returns the weights whose names start with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix + "/"): value for name, value in weights.items() if name.startswith(prefix + "/")}


@torch.no_grad()
def copy(parameter, value) -> None:
    """Assigns an array or tensor of the same shape. Raises `ValueError` if the shapes differ."""
    if tuple(parameter.shape) != tuple(value.shape):
        raise ValueError(f"Expected a weight of shape {tuple(parameter.shape)}. Received: {tuple(value.shape)}.")
    parameter.copy_(torch.as_tensor(value))


def joined_projections(of: dict, kind: str) -> torch.Tensor:
    """Returns the projections of queries, keys and values of an attention, one below the other."""
    return torch.cat([torch.tensor(of[f"{kind}/{part}"].T) for part in ("query", "key", "value")])


def copy_linear(linear: nn.Linear, of: dict, name: str) -> None:
    """Copies a kernel [D, F] and its bias [F]."""
    copy(linear.weight, of[name].T)
    copy(linear.bias, of[f"{name}_bias"])


def copy_norm(norm: nn.LayerNorm, of: dict, kind: str) -> None:
    """Copies γ and β of a sub-layer."""
    copy(norm.weight, of[f"{kind}/gamma"])
    copy(norm.bias, of[f"{kind}/beta"])


# Training.


def learning_rate(model: ModelConfig, train: TrainConfig, step: int) -> float:
    """Returns the rate of equation 3 at an update, counted from 1."""
    return train.learning_rate_factor * model.d_model**-0.5 * min(step**-0.5, step * train.warmup_steps**-1.5)


def make_loss(module: nn.Module, train: TrainConfig, options: dict):
    """Returns a function (source, target) → the sum of the smoothed cross entropy over real target tokens, compiled if
    `options` ask.
    """
    bfloat16, device = train.dtype == "bfloat16", next(module.parameters()).device.type

    def loss(source, target):
        shifted = torch.cat([torch.full_like(target[:, :1], BOS), target[:, :-1]], dim=1)
        with torch.autocast(device, torch.bfloat16) if bfloat16 else contextlib.nullcontext():
            logits = module(source, shifted)
        return functional.cross_entropy(
            logits.float().flatten(0, 1),
            target.flatten(),
            ignore_index=PAD,
            label_smoothing=train.label_smoothing,
            reduction="sum",
        )

    if "compile" not in options:
        return loss
    # One for each shape.
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10_000
    return torch.compile(loss, dynamic=options["compile"] == "dynamic")


def train_module(module: nn.Module, task: dict):
    """Returns the function of `start` for a module that maps (source, shifted target) to logits."""
    config, train = ModelConfig(**task["model"]), TrainConfig(**task["train"])
    loss = make_loss(module, train, task["options"])
    updates = [
        [tuple(torch.from_numpy(ids).long() for ids in micro_batch) for micro_batch in micro_batches]
        for micro_batches in read_updates(task)
    ]
    tokens = [sum(int((target != PAD).sum()) for _, target in micro_batches) for micro_batches in updates]
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    adam = torch.optim.Adam(parameters, betas=(0.9, 0.98), eps=1e-9, fused=True)
    step = 0

    def make_updates(indices: list[int]) -> dict:
        nonlocal step
        losses = []
        for index in indices:
            step += 1
            total = 0.0
            for source, target in updates[index]:
                mean = loss(source, target) / tokens[index]
                mean.backward()
                total += mean.item()
            adam.param_groups[0]["lr"] = learning_rate(config, train, step)
            adam.step()
            adam.zero_grad(set_to_none=True)
            losses.append(total)
        return {"losses": losses}

    return make_updates


MODULES = {"plain": Plain, "nn.Transformer": BuiltIn}


def start(task: dict):
    """Returns a function (indices of updates) → {"losses": …}. The `options` of the task, see `worker.serve`, have the
    `model`, a key of `MODULES` or a module here with a class `Model`; and, to compile, `compile`: dynamic or per shape.
    """
    # PyTorch's part for TensorBoard, which JoeyNMT imports, would import TensorFlow if it is installed: half a GiB for
    # nothing.
    sys.modules.setdefault("tensorflow", None)
    torch.set_num_threads(task["threads"])
    torch.manual_seed(1)
    name = task["options"]["model"]
    make = MODULES[name] if name in MODULES else importlib.import_module(f"benchmarks.train_peers.{name}").Model
    dtype = torch.bfloat16 if task["train"]["dtype"] == "bfloat16" else torch.float32
    module = make(ModelConfig(**task["model"]), task["positions"], dtype).train()
    if (weights := read_weights(task)) is not None:
        module.load(weights)
    return train_module(module, task)
