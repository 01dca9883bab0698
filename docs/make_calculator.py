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
# Memory, fitted to the measurements of docs/cost.md: that of a process whatever the model; for each weight; for each
# token of a micro-batch, layer and unit of width; and for each attention weight.
FIXED_BYTES, BYTES_PER_WEIGHT, BYTES_PER_UNIT, BYTES_PER_SCORE = 0.76e9, 16.9, 48.0, 6.8
P100 = 9.5e12  # Floating-point operations per second, footnote 5 of the paper.
SHARE = 35  # Percent of a device's rate that training reaches, where it was not measured.
TOKENS, LENGTH, DEVICES = 25_000, 30, 8
HOURS = {"base": 12.0, "big": 3.5 * 24}  # Section 5.2.


def operations(model: ModelConfig, length: float) -> float:
    """Returns the operations for each token of both sides, forward and backward."""
    return 3 * flops.forward(model, 1 / length, length, length)


def steps(name: str) -> int:
    """Returns the number of updates of a row."""
    return paper.table_3(name).get("train_steps", TrainConfig().train_steps)


def facts_of(name: str) -> dict:
    """Returns what describes a row of Table 3: each quantity is a constant, plus multiples of the length and of the
    vocabulary size.
    """
    model = paper.model(name, vocab_size=1000)
    larger = dataclasses.replace(model, vocab_size=1001)
    of_length, of_vocabulary = operations(model, 2) - operations(model, 1), operations(larger, 1) - operations(model, 1)
    weights = larger.num_weights - model.num_weights
    layers = model.encoder_layers + model.decoder_layers
    # Self-attention in all layers, and that of the decoder to the encoder.
    scores = model.num_heads * (layers + model.decoder_layers)
    return {
        "updates": steps(name),
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


def facts() -> dict:
    """Returns all that the page computes with."""
    shares = {name: share(name) for name in HOURS}
    given = {
        "vocabulary": 37_000,
        "pairs": 4_500_000,
        "length": LENGTH,
        "batch": TOKENS,
        "devices": DEVICES,
        "rate": P100 / 1e12,
    }
    return {
        "fixedBytes": FIXED_BYTES,
        "bytesPerWeight": BYTES_PER_WEIGHT,
        "share": SHARE,
        "buckets": TrainConfig().buckets_per_update,
        "microBatchTokens": TrainConfig().micro_batch_tokens,
        "longest": DataConfig().max_length,
        "models": {name: facts_of(name) for name in paper.TABLE_3},
        "hardware": {
            "NVIDIA P100 (the paper's 9.5 TFLOPS)": {"rate": P100 / 1e12, "share": SHARE, "shares": shares},
            "another device": {"rate": 100, "share": SHARE, "shares": {}},
        },
        "checks": [
            {"hours": hours, "input": {**given, "model": name, "updates": steps(name), "share": shares[name]}}
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
