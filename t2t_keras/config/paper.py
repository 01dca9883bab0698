"""Table 3 of the paper: the options of every row, and the figures that the paper printed."""

import dataclasses
from typing import NamedTuple

from t2t_keras.config import ModelConfig, TrainConfig


class Row(NamedTuple):
    """A row of Table 3: the options that differ from those of the base model, and what the paper printed."""

    options: dict
    perplexity: float  # Per sub-word of newstest2013.
    bleu: float  # On newstest2013.
    parameters: int | None = None  # In millions; `None` where the table has none, because it is that of base.


def _heads(number: int, width: int) -> dict:
    return {"num_heads": number, "d_k": width, "d_v": width}


def _layers(number: int) -> dict:
    return {"encoder_layers": number, "decoder_layers": number}


# A name is the letter of the paper and the value that changes.
TABLE_3 = {
    "base": Row({}, 4.92, 25.8, 65),
    "A1": Row(_heads(1, 512), 5.29, 24.9),
    "A4": Row(_heads(4, 128), 5.00, 25.5),
    "A16": Row(_heads(16, 32), 4.91, 25.8),
    "A32": Row(_heads(32, 16), 5.01, 25.4),
    "B16": Row({"d_k": 16}, 5.16, 25.1, 58),
    "B32": Row({"d_k": 32}, 5.01, 25.4, 60),
    "C2": Row(_layers(2), 6.11, 23.7, 36),
    "C4": Row(_layers(4), 5.19, 25.3, 50),
    "C8": Row(_layers(8), 4.88, 25.5, 80),
    "C256": Row({"d_model": 256, "d_k": 32, "d_v": 32}, 5.75, 24.5, 28),
    "C1024": Row({"d_model": 1024, "d_k": 128, "d_v": 128}, 4.66, 26.0, 168),
    "C_ff1024": Row({"d_ff": 1024}, 5.12, 25.4, 53),
    "C_ff4096": Row({"d_ff": 4096}, 4.75, 26.2, 90),
    "D0.0": Row({"dropout": 0.0}, 5.77, 24.6),
    "D0.2": Row({"dropout": 0.2}, 4.95, 25.5),
    "D_ls0.0": Row({"label_smoothing": 0.0}, 4.67, 25.3),
    "D_ls0.2": Row({"label_smoothing": 0.2}, 5.47, 25.7),
    "E": Row({"learned_positions": 1024}, 4.92, 25.7),
    "big": Row(
        {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3, "train_steps": 300_000}, 4.33, 26.4, 213
    ),
}

_WIDTHS = ("d_model", "d_ff", "d_k", "d_v")
_DEPTHS = ("encoder_layers", "decoder_layers")
_BASE = dataclasses.asdict(ModelConfig()) | dataclasses.asdict(TrainConfig())
# Options that rows of Table 3 set, apart from the number of updates.
OPTIONS_OF_ROWS = tuple(
    name for name in _BASE if name != "train_steps" and any(name in row.options for row in TABLE_3.values())
)


def table_3(row: str, divide_widths: float = 1.0, divide_layers: float = 1.0) -> dict:
    """Returns the options of a row of Table 3, for `t2t_keras.train`.

    Args:
        row: name of the row, a key of `TABLE_3`.
        divide_widths: divisor of d_model, d_ff, d_k and d_v, for a smaller experiment; the results are rounded, but at
            least 1.
        divide_layers: divisor of the number of layers.

    Returns:
        Values by option: all of `OPTIONS_OF_ROWS` and, for the big model, `train_steps`.

    Raises:
        ValueError: the row is unknown, or a divisor is less than 1.
    """
    if row not in TABLE_3:
        raise ValueError(f"Expected a row of Table 3: {', '.join(TABLE_3)}. Received: {row!r}.")
    if not (1 <= divide_widths < float("inf") and 1 <= divide_layers < float("inf")):
        received = f"divide_widths={divide_widths}, divide_layers={divide_layers}"
        raise ValueError(f"Expected divisors of at least 1. Received: {received}.")
    options = {name: _BASE[name] for name in OPTIONS_OF_ROWS} | TABLE_3[row].options
    for names, divisor in ((_WIDTHS, divide_widths), (_DEPTHS, divide_layers)):
        options |= {name: max(round(options[name] / divisor), 1) for name in names}
    return options


def model(row: str, **options) -> ModelConfig:
    """Returns the model of a row of Table 3, at full size, with other options changed."""
    names = {field.name for field in dataclasses.fields(ModelConfig)}
    return ModelConfig(**{name: value for name, value in table_3(row).items() if name in names} | options)
