"""An experiment of `benchmarks/growth.py`: what grows, what is measured, and what theory expects."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Panel:
    """A quantity of an experiment, as one plot shows it.

    Attributes:
        quantity: its name in the results of `Experiment.measure`.
        title: title of the plot.
        unit: label of the y axis.
        terms: x → the terms of the theory: the quantity is a sum of multiples of them. Each multiple is fitted; none is
            negative.
        theory: the theory in words, for the legend and the table.
        scale: the quantity is shown in multiples of this.
        per_second: the plot shows `amount` divided by the quantity, which is a time.
    """

    quantity: str
    title: str
    unit: str
    terms: Callable[[int], tuple[float, ...]]
    theory: str
    scale: float = 1.0
    per_second: bool = False


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Measurements for growing values of one thing.

    Attributes:
        x_label: label of the x axis.
        values: the values of x.
        measure: x → a dict of the quantities. It runs in a process of its own.
        panels: the plots.
        amount: x → how much work is done in the measured time, for plots of speed.
        processes: x → number of processes that run `measure` together. Their times are averaged and their memory is
            added.
    """

    x_label: str
    values: tuple[int, ...]
    measure: Callable[[int], dict]
    panels: tuple[Panel, ...]
    amount: Callable[[int], float] = lambda x: 1
    processes: Callable[[int], int] = lambda x: 1
