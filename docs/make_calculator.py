"""Writes the facts that docs/calculator.html computes with, into it: python docs/make_calculator.py

Operations and weights are linear in the vocabulary, and operations per token in the length, so a few numbers describe a
model.
"""

import dataclasses
import json
import pathlib
import re

from t2t_keras.config import DataConfig, ModelConfig, TrainConfig, paper
from t2t_keras.model import flops

PAGE = pathlib.Path(__file__).parent / "calculator.html"
CONFIGS = PAGE.parent.parent / "configs"
# Memory, fitted to the measurements of docs/cost.md: that of a process whatever the model; for each weight; for each
# token of a micro-batch, layer and unit of width; and for each attention weight.
FIXED_BYTES, BYTES_PER_WEIGHT, BYTES_PER_UNIT, BYTES_PER_SCORE = 0.76e9, 16.9, 48.0, 6.8
P100 = 9.5e12  # Floating-point operations per second, footnote 5 of the paper.
SHARE = 35  # Percent of a device's rate that training reaches, where it was not measured.
TOKENS, LENGTH, DEVICES = 25_000, 30, 8
HOURS = {"base": 12.0, "big": 3.5 * 24}  # Section 5.2.
PAPER = {"vocabulary": 37_000, "pairs": 4_500_000, "length": LENGTH, "batch": TOKENS}
# Text of the flagfiles: what their first lines or docs/results.md say of it, and sub-words of a sentence of Multi30k.
# `--vocab_size=0` is 45 × √pairs.
SMALL_MODELS = {
    "small": {"vocabulary": 4024, "pairs": 8000, "length": 19},
    "medium": {"vocabulary": 14_232, "pairs": 100_000, "length": 19},
    "multi30k_en_de": {"vocabulary": 10_000, "pairs": 29_000, "length": 14.5},
    "multi30k_en_de_best": {"vocabulary": 10_000, "pairs": 203_000, "length": 14.5},
}
# Name, TFLOPS of dense products in bfloat16 unless the name has another dtype, what states it, its address.
GPUS = (
    ("NVIDIA B200", 2250, "NVIDIA: 4,500 with sparsity", "https://www.nvidia.com/en-us/data-center/hgx/"),
    ("NVIDIA H200", 989, "NVIDIA: 1,979 with sparsity", "https://www.nvidia.com/en-us/data-center/h200/"),
    ("NVIDIA H100 SXM", 989, "NVIDIA: 1,979 with sparsity", "https://www.nvidia.com/en-us/data-center/h100/"),
    ("NVIDIA A100", 312, "NVIDIA", "https://www.nvidia.com/en-us/data-center/a100/"),
    ("NVIDIA L40S", 362, "NVIDIA: 733 with sparsity", "https://www.nvidia.com/en-us/data-center/l40s/"),
    ("NVIDIA L4", 121, "NVIDIA: 242 with sparsity", "https://www.nvidia.com/en-us/data-center/l4/"),
    (
        "NVIDIA GeForce RTX 4090",
        165,
        "NVIDIA's Ada whitepaper, appendix A",
        "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf",
    ),
    ("NVIDIA V100 (float16)", 125, "NVIDIA", "https://www.nvidia.com/en-us/data-center/v100/"),
    ("NVIDIA T4 (float16)", 65, "NVIDIA", "https://www.nvidia.com/en-us/data-center/tesla-t4/"),
)
# The machine of docs/results.md: the rate of large products in TFLOPS, and the percentages of it that training reached.
CPUS = (
    ("2 cores of an AMD EPYC, bfloat16", 0.79, {"base": 59, "big": 68, "multi30k_en_de": 37}),
    ("2 cores of an AMD EPYC, float32", 0.42, {"base": 62, "multi30k_en_de": 54}),
)


def operations(model: ModelConfig, length: float) -> float:
    """Returns the operations for each token of both sides, forward and backward."""
    return 3 * flops.forward(model, 1 / length, length, length)


def steps(name: str) -> int:
    """Returns the number of updates of a row."""
    return paper.table_3(name).get("train_steps", TrainConfig().train_steps)


def small_model(name: str) -> tuple[ModelConfig, dict]:
    """Returns the model of a flagfile, and the numbers that it trains with."""
    lines = (CONFIGS / f"{name}.flags").read_text(encoding="utf-8").splitlines()
    options = dict(line.removeprefix("--").split("=", 1) for line in lines if line.startswith("--"))
    defaults = {field.name: field.default for field in dataclasses.fields(ModelConfig)}
    sizes = {key: type(defaults[key])(value) for key, value in options.items() if key in defaults}
    given = SMALL_MODELS[name] | {"batch": int(options["batch_tokens"]), "buckets": int(options["buckets_per_update"])}
    epoch = given["pairs"] * given["length"] / given["batch"]
    given["updates"] = int(options.get("train_steps", 0)) or round(float(options["epochs"]) * epoch)
    return ModelConfig(**sizes | {"vocab_size": 1000}), given


def facts_of(model: ModelConfig, given: dict) -> dict:
    """Returns what describes a model: each quantity is a constant, plus multiples of the length and of the vocabulary
    size.
    """
    model = dataclasses.replace(model, vocab_size=1000)
    larger = dataclasses.replace(model, vocab_size=1001)
    of_length, of_vocabulary = operations(model, 2) - operations(model, 1), operations(larger, 1) - operations(model, 1)
    weights = larger.num_weights - model.num_weights
    layers = model.encoder_layers + model.decoder_layers
    # Self-attention in all layers, and that of the decoder to the encoder.
    scores = model.num_heads * (layers + model.decoder_layers)
    return {
        "given": given,
        "operations": {
            "constant": operations(model, 1) - of_length - 1000 * of_vocabulary,
            "length": of_length,
            "vocabulary": of_vocabulary,
        },
        "weights": {"constant": model.num_weights - 1000 * weights, "vocabulary": weights},
        "activations": {"constant": BYTES_PER_UNIT * layers * model.d_model, "length": BYTES_PER_SCORE * scores},
    }


def share(name: str) -> float:
    """Returns the share of a P100's rate, in percent, that the paper's own hours mean."""
    model = paper.model(name, vocab_size=37_000)
    needed = steps(name) * TOKENS * operations(model, LENGTH)
    return round(100 * needed / (DEVICES * P100 * 3600 * HOURS[name]), 1)


def hardware() -> dict:
    """Returns each device by name: its rate in TFLOPS, the utilization in percent, measured for some models, how many
    devices and micro-batches at a time the page begins with, and where the rate is from.
    """
    section = "section 5.2 and footnote 5 of the paper"
    results = "docs/results.md, where the utilization of base, big and multi30k_en_de was measured"
    devices = {
        "NVIDIA P100 (the paper's 9.5 TFLOPS)": (P100 / 1e12, SHARE, {name: share(name) for name in HOURS}, DEVICES, 1)
        + (section, "https://arxiv.org/abs/1706.03762")
    }
    devices |= {name: (rate, SHARE, {}, 1, 1, source, url) for name, rate, source, url in GPUS}
    devices |= {
        name: (rate, min(shares.values()), shares, 1, 2, results, "results.md#speed-of-training")
        for name, rate, shares in CPUS
    }
    devices["another device"] = (100, SHARE, {}, 1, 1, "", "")
    columns = ("rate", "share", "shares", "devices", "together", "source", "url")
    return {name: dict(zip(columns, values, strict=True)) for name, values in devices.items()}


def facts() -> dict:
    """Returns all that the page computes with."""
    buckets = TrainConfig().buckets_per_update
    models = {name: (paper.model(name), PAPER | {"updates": steps(name), "buckets": buckets}) for name in paper.TABLE_3}
    models = {name: small_model(name) for name in SMALL_MODELS} | models
    paper_run = PAPER | {"devices": DEVICES, "rate": P100 / 1e12}
    return {
        "fixedBytes": FIXED_BYTES,
        "bytesPerWeight": BYTES_PER_WEIGHT,
        "share": SHARE,
        "microBatchTokens": TrainConfig().micro_batch_tokens,
        "longest": DataConfig().max_length,
        "models": {name: facts_of(*model) for name, model in models.items()},
        "hardware": hardware(),
        "checks": [
            {"hours": hours, "input": paper_run | {"model": name, "updates": steps(name), "share": share(name)}}
            for name, hours in HOURS.items()
        ],
    }


def with_facts(page: str) -> str:
    """Returns the page with the facts of now."""
    found = facts()
    models = ",\n".join(f"  {json.dumps(name)}: {json.dumps(model)}" for name, model in found.pop("models").items())
    others = "".join(f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in found.items())
    text = f'{{\n{others} "models": {{\n{models}\n }}\n}}'.replace("<", "\\u003c")
    return re.sub(
        r'(<script id="facts" type="application/json">\n).*?(\n</script>)',
        lambda found: found[1] + text + found[2],
        page,
        flags=re.S,
    )


if __name__ == "__main__":
    PAGE.write_text(with_facts(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
