"""The results of `benchmarks/growth.py`: theory fitted to the measurements, tables and pictures."""

from benchmarks.growth_experiments.experiment import Experiment, Panel
from t2t_keras.system import markdown


def fitted(panel: Panel, points: dict[int, float]) -> list[float]:
    """Returns the multiples of the panel's terms that fit the measurements {x: quantity} best, by their relative
    errors. None is negative.
    """
    import numpy as np

    terms = np.array([[term / points[x] for term in panel.terms(x)] for x in points])
    used = list(range(terms.shape[1]))
    while True:
        multiples = np.linalg.lstsq(terms[:, used], np.ones(len(points)), rcond=None)[0]
        if (multiples >= 0).all():
            break
        used.pop(int(np.argmin(multiples * np.abs(terms[:, used]).max(0))))
    found = dict(zip(used, multiples.tolist(), strict=True))
    return [found.get(index, 0.0) for index in range(terms.shape[1])]


def theory(panel: Panel, multiples: list[float], x: int) -> float:
    """Returns the quantity that theory expects."""
    return sum(multiple * term for multiple, term in zip(multiples, panel.terms(x), strict=True))


def shown(experiment: Experiment, panel: Panel, x: int, quantity: float) -> float:
    """Returns a quantity in the panel's unit."""
    return experiment.amount(x) / quantity if panel.per_second else quantity / panel.scale


def rows(experiment: Experiment, results: dict) -> list[list[float]]:
    """Returns [x, then the measured and the expected value of each panel] for each x, in order. `results` are {x as
    text: what `experiment.measure` returned}.
    """
    points = {int(x): found for x, found in results.items()}
    found = [[x] for x in sorted(points)]
    for panel in experiment.panels:
        quantities = {x: points[x][panel.quantity] for x in points}
        multiples = fitted(panel, quantities)
        for row in found:
            x = row[0]
            row += [shown(experiment, panel, x, quantity) for quantity in (quantities[x], theory(panel, multiples, x))]
    return found


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(experiment: Experiment, results: dict) -> str:
    """Formats an experiment, with the results of `rows`, as a Markdown table."""
    head = [experiment.x_label]
    for panel in experiment.panels:
        head += [f"{panel.title}: {panel.unit}", f"expected: {panel.theory}"]
    lines = [[f"{x:,}", *map(_number, values)] for x, *values in rows(experiment, results)]
    return markdown.table(head, lines, right=head)


def picture(measured: list[tuple[Experiment, dict]]):
    """Draws experiments with their results, see `rows`: measurements as points, theory as dashed lines."""
    from matplotlib.ticker import LogLocator, NullLocator

    from t2t_keras.reporting import figures

    columns = max(len(experiment.panels) for experiment, _ in measured)
    side_by_side = columns == 1
    shape = (1, len(measured)) if side_by_side else (len(measured), columns)
    with figures.drawing():
        figure = figures.new_figure(4.6 * shape[1], 3.1 * shape[0])
        grid = figure.subplots(*shape, squeeze=False)
        for index, (experiment, results) in enumerate(measured):
            found = rows(experiment, results)
            xs = [row[0] for row in found]
            cells = grid[0][index : index + 1] if side_by_side else grid[index]
            for axes in cells[len(experiment.panels) :]:
                axes.axis("off")
            for number, (axes, panel) in enumerate(zip(cells, experiment.panels, strict=False)):
                points, expected = ([row[1 + 2 * number + offset] for row in found] for offset in (0, 1))
                axes.plot(xs, expected, color="#777777", linestyle="--", linewidth=1.4, label=panel.theory)
                look = {"marker": "o", "markersize": 5, "linewidth": 1.6, "color": figures.PALETTE[number]}
                axes.plot(xs, points, label="measured", **look)
                axes.set_xscale("log")
                axes.set_xticks(xs, [f"{x:,}" if x < 1e6 else f"{x / 1e6:g} M" for x in xs])
                axes.xaxis.set_minor_locator(NullLocator())
                if max(points) > 8 * min(points):
                    axes.set_yscale("log")
                    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                    axes.yaxis.set_minor_locator(NullLocator())
                else:
                    axes.set_ylim(0, 1.15 * max(points + expected))
                figures.numbers(axes.yaxis, ",g")
                axes.set_xlabel(experiment.x_label, fontsize=8)
                axes.set_ylabel(panel.unit, fontsize=8)
                axes.tick_params(labelsize=8)
                axes.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
                axes.grid(which="major", color="#E0E0E0", linewidth=0.6)
                axes.legend(fontsize=6.5, loc="best", frameon=False)
        figure.tight_layout()
    return figure
