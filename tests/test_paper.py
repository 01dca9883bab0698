"""Tables 2 and 3 of the paper: their rows are those that it printed, and options of a run."""

import dataclasses
from typing import NamedTuple

import pytest

from t2t_keras.config import ModelConfig, TrainConfig, paper
from t2t_keras.training import cost


class System(NamedTuple):
    """A row of Table 2: BLEU on newstest2014 and training cost in operations; `None` where the table has no figure."""

    name: str
    en_de: float | None
    en_fr: float | None
    en_de_flops: float | None
    en_fr_flops: float | None


# Table 3 as printed: N, d_model, d_ff, h, d_k, d_v, P_drop, ε_ls, perplexity, BLEU, parameters in millions, 0 where it
# has none.
PAPER = {
    "base": (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 4.92, 25.8, 65),
    "A1": (6, 512, 2048, 1, 512, 512, 0.1, 0.1, 5.29, 24.9, 0),
    "A4": (6, 512, 2048, 4, 128, 128, 0.1, 0.1, 5.00, 25.5, 0),
    "A16": (6, 512, 2048, 16, 32, 32, 0.1, 0.1, 4.91, 25.8, 0),
    "A32": (6, 512, 2048, 32, 16, 16, 0.1, 0.1, 5.01, 25.4, 0),
    "B16": (6, 512, 2048, 8, 16, 64, 0.1, 0.1, 5.16, 25.1, 58),
    "B32": (6, 512, 2048, 8, 32, 64, 0.1, 0.1, 5.01, 25.4, 60),
    "C2": (2, 512, 2048, 8, 64, 64, 0.1, 0.1, 6.11, 23.7, 36),
    "C4": (4, 512, 2048, 8, 64, 64, 0.1, 0.1, 5.19, 25.3, 50),
    "C8": (8, 512, 2048, 8, 64, 64, 0.1, 0.1, 4.88, 25.5, 80),
    "C256": (6, 256, 2048, 8, 32, 32, 0.1, 0.1, 5.75, 24.5, 28),
    "C1024": (6, 1024, 2048, 8, 128, 128, 0.1, 0.1, 4.66, 26.0, 168),
    "C_ff1024": (6, 512, 1024, 8, 64, 64, 0.1, 0.1, 5.12, 25.4, 53),
    "C_ff4096": (6, 512, 4096, 8, 64, 64, 0.1, 0.1, 4.75, 26.2, 90),
    "D0.0": (6, 512, 2048, 8, 64, 64, 0.0, 0.1, 5.77, 24.6, 0),
    "D0.2": (6, 512, 2048, 8, 64, 64, 0.2, 0.1, 4.95, 25.5, 0),
    "D_ls0.0": (6, 512, 2048, 8, 64, 64, 0.1, 0.0, 4.67, 25.3, 0),
    "D_ls0.2": (6, 512, 2048, 8, 64, 64, 0.1, 0.2, 5.47, 25.7, 0),
    "E": (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 4.92, 25.7, 0),
    "big": (6, 1024, 4096, 16, 64, 64, 0.3, 0.1, 4.33, 26.4, 213),
}
COLUMNS = ("encoder_layers", "d_model", "d_ff", "num_heads", "d_k", "d_v", "dropout", "label_smoothing")


def test_table_3_is_as_printed():
    received = {}
    for name, row in paper.TABLE_3.items():
        options = paper.table_3(name)
        received[name] = (*(options[column] for column in COLUMNS), row.perplexity, row.bleu, row.parameters or 0)
        assert options["decoder_layers"] == options["encoder_layers"]
        assert options.get("train_steps", 100_000) == (300_000 if name == "big" else 100_000)
        assert bool(options["learned_positions"]) == (name == "E")
    assert received == PAPER


def test_row_a_keeps_the_amount_of_computation():
    for name in ("A1", "A4", "A16", "A32"):
        model = paper.model(name)
        assert model.num_heads * model.d_k == model.num_heads * model.d_v == 512
        assert model.num_weights == paper.model("base").num_weights


@pytest.mark.parametrize("row", paper.TABLE_3)
def test_every_row_is_options_of_a_model_and_its_training(row):
    options = paper.table_3(row)
    groups = {group: {field.name for field in dataclasses.fields(group)} for group in (ModelConfig, TrainConfig)}
    for group, names in groups.items():
        group(**{name: value for name, value in options.items() if name in names})
    assert options.keys() <= set().union(*groups.values())
    assert set(paper.TABLE_3[row].options) <= {*paper.OPTIONS_OF_ROWS, "train_steps"}


def test_a_smaller_table_has_its_widths_divided_by_one_number_and_its_depths_by_another():
    """By hand for base, C2 (2 / 1.5 = 1.33) and C8 (8 / 1.5 = 5.33); the number of heads and the rates stay."""
    expected = {
        "base": (4, 128, 512, 8, 16, 16),
        "C2": (1, 128, 512, 8, 16, 16),
        "C8": (5, 128, 512, 8, 16, 16),
        "A32": (4, 128, 512, 32, 4, 4),
    }
    for row, sizes in expected.items():
        options = paper.table_3(row, divide_widths=4, divide_layers=1.5)
        assert tuple(options[name] for name in COLUMNS[:6]) == sizes
        assert (options["dropout"], options["label_smoothing"]) == (0.1, 0.1)
    assert paper.table_3("A32", divide_widths=1000)["d_k"] == 1


@pytest.mark.parametrize("arguments", [
    ("A2",), ("",), ("base", 0.5), ("base", 1, 0), ("base", float("nan")), ("base", float("inf")),
    ("base", 1, float("inf")),
])  # fmt: skip
def test_an_unknown_row_or_divisor_is_refused(arguments):
    with pytest.raises(ValueError, match="Expected .* Received: "):
        paper.table_3(*arguments)


# Table 2 as printed: BLEU and cost, of English-German and English-French. The cost of a Transformer stands once, for
# both.
PAPER_2 = """
    ByteNet                     | 23.75 | -     | -      | -
    Deep-Att + PosUnk           | -     | 39.2  | -      | 1.0e20
    GNMT + RL                   | 24.6  | 39.92 | 2.3e19 | 1.4e20
    ConvS2S                     | 25.16 | 40.46 | 9.6e18 | 1.5e20
    MoE                         | 26.03 | 40.56 | 2.0e19 | 1.2e20
    Deep-Att + PosUnk, ensemble | -     | 40.4  | -      | 8.0e20
    GNMT + RL, ensemble         | 26.30 | 41.16 | 1.8e20 | 1.1e21
    ConvS2S, ensemble           | 26.36 | 41.29 | 7.7e19 | 1.2e21
    Transformer (base)          | 27.3  | 38.1  | 3.3e18 | 3.3e18
    Transformer (big)           | 28.4  | 41.8  | 2.3e19 | 2.3e19
"""


TABLE_2 = [
    System(name, *(None if cell == "-" else float(cell) for cell in cells))
    for name, *cells in (map(str.strip, line.split("|")) for line in PAPER_2.strip().splitlines())
]


def test_the_costs_of_table_2_are_time_times_devices_times_speed():
    costs = {system.name: system.en_de_flops for system in TABLE_2}
    assert cost.estimate(12 * 3600, 8, 9.5) == pytest.approx(costs["Transformer (base)"], rel=0.02)
    assert cost.estimate(3.5 * 24 * 3600, 8, 9.5) == pytest.approx(costs["Transformer (big)"], rel=0.02)
