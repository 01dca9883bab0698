"""Measures a training micro-batch of other systems on a GPU, at the shapes of our step: one forward and backward pass,
without the optimizer.

python -m benchmarks.gpu_peers --configs=base,big --shapes=200x32,400x32 --json=peers.json

The systems: `transformer`, PyTorch's nn.Transformer between embeddings; `plain`, a plain module in PyTorch with fused
attention; both under torch.compile; and `flax`, a module in the manner of Flax's WMT example under jax.jit. They have
the sizes, dropout and label smoothing of the paper and one matrix for embeddings and logits. Activations are bfloat16,
weights and their gradients float32, and the loss is a sum over tokens. Ids are random, without padding. The modules are
in `passes`.

At the initial weights the loss per token must be little above ln V = 10.37: 10.6 to 11.3 for the base model. Each
measurement runs in a process of its own; one that fails is a line with its error. The program needs NumPy, absl-py and
what the systems need, and neither TensorFlow nor Keras. On a machine without a GPU it measures the CPU.
"""

import dataclasses
import json
import pathlib
import re
import sys

from absl import app, flags

# `python benchmarks/gpu_peers.py` puts only this folder there.
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from benchmarks.passes.process import line, measured, operations
from benchmarks.passes.worker import MODULES
from t2t_keras.config import paper

_CONFIGS = flags.DEFINE_list("configs", ["base", "big"], "Models: rows of Table 3.")
_SHAPES = flags.DEFINE_list(
    "shapes", ["200x32"], "Micro-batches, as the number of rows and the length of source and target: 200x32."
)
_SYSTEMS = flags.DEFINE_list("systems", list(MODULES), "Systems to measure.")
_SECONDS = flags.DEFINE_float("seconds", 3, "Time to measure for, after the warm-up.", lower_bound=0)
_LIMIT = flags.DEFINE_float("limit", 300, "Seconds after which a measurement is given up.", lower_bound=1)
_DEVICE = flags.DEFINE_enum("device", "auto", ["auto", "cuda", "cpu"], "Device; auto: a GPU if there is one.")
_VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 32_000, "Size of the vocabulary.", lower_bound=5)
_LAYERS = flags.DEFINE_integer(
    "layers", 0, "Number of layers of encoder and decoder; 0: those of the model.", lower_bound=0
)
_JSON = flags.DEFINE_string("json", "", "File for the measurements; it is rewritten after each. Empty writes none.")


def are_shapes(texts: list[str]) -> bool:
    return bool(texts) and all(re.fullmatch(r"[1-9]\d*x[1-9]\d*", text) for text in texts)


def known(choices):
    """Returns a check that a list has some of the choices and nothing else."""
    return lambda names: bool(names) and set(names) <= set(choices)


flags.register_validator("shapes", are_shapes, "Expected shapes such as 200x32.")
flags.register_validator("configs", known(paper.TABLE_3), f"Expected names among {', '.join(paper.TABLE_3)}.")
flags.register_validator("systems", known(MODULES), f"Expected names among {', '.join(MODULES)}.")


def main(_) -> None:
    results = []
    changes = {"encoder_layers": _LAYERS.value, "decoder_layers": _LAYERS.value} if _LAYERS.value else {}
    for config in _CONFIGS.value:
        model = paper.model(config, vocab_size=_VOCAB_SIZE.value, **changes)
        for rows, length in (map(int, shape.split("x")) for shape in _SHAPES.value):
            for system in _SYSTEMS.value:
                task = {
                    "system": system, "config": config, "model": dataclasses.asdict(model), "rows": rows,
                    "length": length, "dtype": "bfloat16", "device": _DEVICE.value, "compile": True,
                    "duration": _SECONDS.value,
                }  # fmt: skip
                found = measured(task, _LIMIT.value)
                if "error" not in found:
                    found["tokens_per_second"] = rows * length / found["seconds"]
                    # The backward pass has twice the products of the forward pass.
                    found["flops_per_second"] = 3 * operations(model, rows, length) / found["seconds"]
                print(line(task, found), flush=True)
                results.append(task | found)
                if _JSON.value:
                    pathlib.Path(_JSON.value).write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    app.run(main)
