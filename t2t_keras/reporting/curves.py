"""The curves of training runs as a picture and as a table, without TensorBoard."""

import csv
import io
import itertools
import math
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

from t2t_keras.reporting import figures
from t2t_keras.reporting.event_files import read_scalars
from t2t_keras.runs.saved_run import CURVES, LOGS, SavedRun
from t2t_keras.system.files import write_whole

Scalars = dict[str, dict[int, float]]  # {tag: {step: value}}

_COLOURS = figures.PALETTE[:7]  # Grey is for other pictures.
_BLUE, _VERMILION, _ORANGE = _COLOURS[0], _COLOURS[1], _COLOURS[4]
_LINES = ("-", "--", "-.", ":")  # Seven colours and four line styles tell 28 runs apart, in black and white too.
_DPI = 160
_MAX_MARKERS = 40  # Points of a curve that get a marker each; a curve with more is a line.


class _Curve(NamedTuple):
    tag: str
    label: str
    colour: str  # In the picture of a single run.
    of_validation: bool = False
    alone: bool = False  # Only in the picture of a single run.


class _Panel(NamedTuple):
    title: str
    unit: str
    curves: tuple[_Curve, ...]
    log: bool = False


def _both(name: str) -> tuple[_Curve, _Curve]:
    """The curves of a metric in training and in validation."""
    validation = _Curve(f"valid/{name}", "validation", _BLUE, of_validation=True)
    return _Curve(f"train/{name}", "training", _VERMILION), validation


_LOSS = _Panel(
    "Loss",
    "nats per sub-word",
    (
        _Curve("train/smoothed_loss", "training, with label smoothing", _ORANGE, alone=True),
        *_both("loss"),
    ),
)
_BLEU = _Panel("BLEU", "BLEU of greedy translations", _both("bleu")[1:])
_PERPLEXITY = _Panel("Perplexity", "per sub-word", _both("perplexity"), log=True)
_LEARNING_RATE = _Panel("Learning rate", "rate of Adam", (_Curve("train/learning_rate", "training", _VERMILION),))
_SPEED = _Panel(
    "Speed", "target tokens per second", (_Curve("utilization/target_tokens_per_second", "training", _VERMILION),)
)


def read(model_dir: pathlib.Path) -> Scalars:
    """Reads the scalars of a run, which may be in training. It is an error if the run has no points yet."""
    SavedRun.open(model_dir)
    scalars = read_scalars(model_dir / LOGS)
    if not any(math.isfinite(value) for points in scalars.values() for value in points.values()):
        raise ValueError(f"{model_dir / LOGS} has no points yet. The first one comes after `log_steps` updates.")
    return scalars


def as_csv(scalars: Scalars) -> str:
    """A table with one row per step and one column per scalar; a cell is empty where nothing was measured."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", *scalars])
    for step in sorted(set().union(*scalars.values())):
        # Nine digits are enough for every float32.
        writer.writerow([step, *(f"{points[step]:.9g}" if step in points else "" for points in scalars.values())])
    return text.getvalue()


def distinct_names(folders: list[pathlib.Path]) -> list[str]:
    """The shortest ends of some different absolute paths that are all different, at least the last part of each."""
    for length in itertools.count(1):
        names = ["/".join(folder.parts[-length:]) for folder in folders]
        if len(set(names)) == len(names):
            return names


def _limit(runs: Iterable[Scalars]) -> float:
    """The upper end of the axis of the loss: the first updates, whose loss is several times higher, may lie above it. 0
    without points.
    """
    tops = []
    for curve, run in itertools.product(_LOSS.curves, runs):
        values = [value for value in run.get(curve.tag, {}).values() if math.isfinite(value)]
        if values:
            tops.append(max(values[len(values) // 20 :]))
    return 1.05 * max(tops, default=0)


def _look(number: int) -> dict[str, str]:
    """The colour and the line style of a run among several."""
    return {"color": _COLOURS[number % len(_COLOURS)], "linestyle": _LINES[number % len(_LINES)]}


def _draw_panel(axes, panel: _Panel, unit: str, runs: dict[str, Scalars]) -> None:
    from matplotlib.ticker import AutoMinorLocator, LogLocator, NullFormatter

    for curve, (number, scalars) in itertools.product(panel.curves, enumerate(runs.values())):
        points = {step: value for step, value in scalars.get(curve.tag, {}).items() if math.isfinite(value)}
        if not points or (curve.alone and len(runs) > 1):
            continue
        faint = not curve.of_validation and len(panel.curves) > 1
        axes.plot(
            points.keys(),
            points.values(),
            **(_look(number) if len(runs) > 1 else {"color": curve.colour, "linestyle": ":" if curve.alone else "-"}),
            linewidth=1.0 if faint else 1.8,
            alpha=0.6 if faint and len(runs) > 1 else 1.0,
            marker="o" if len(points) == 1 or (curve.of_validation and len(points) <= _MAX_MARKERS) else "",
            markersize=3,
            label=curve.label if len(runs) == 1 else None,
        )
    figures.panel(axes, panel.title, "update", unit)
    if panel.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        figures.numbers(axes.yaxis, ",g")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        if panel is _LOSS and (limit := _limit(runs.values())):
            axes.set_ylim(top=limit)
        if panel in (_BLEU, _SPEED):
            axes.set_ylim(bottom=0)
        axes.yaxis.set_minor_locator(AutoMinorLocator())
        if panel is _SPEED:
            figures.numbers(axes.yaxis, ",.0f")
        elif panel is _LEARNING_RATE:
            figures.numbers(axes.yaxis, "g")
    axes.set_xlim(0, 1.02 * max(step for scalars in runs.values() for points in scalars.values() for step in points))
    figures.numbers(axes.xaxis, ",.0f")
    axes.xaxis.set_minor_locator(AutoMinorLocator())
    axes.xaxis.get_major_locator().set_params(integer=True, nbins=6)
    axes.grid(which="minor", color="#ECECEC", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    inside = {"transform": axes.transAxes}
    if not axes.lines:
        axes.text(0.5, 0.5, "no points yet", ha="center", va="center", color="#666666", **inside)
    elif len(panel.curves) > 1 and len(runs) == 1:
        axes.legend(frameon=False, fontsize=8)
    elif len(panel.curves) > 1:
        axes.text(0.98, 0.95, "thick: validation, thin: training", ha="right", va="top", fontsize=8, **inside)


def _quality(runs: dict[str, Scalars]) -> _Panel:
    """The panel of BLEU, of perplexity where no run has BLEU, or of another figure of validation where no run has
    either.
    """
    tags = [tag for scalars in runs.values() for tag in scalars]
    known = [panel for panel in (_BLEU, _PERPLEXITY) if panel.curves[-1].tag in tags]
    others = [tag for tag in tags if tag.startswith("valid/") and tag != "valid/loss"]
    if known or not others:
        return (known or [_PERPLEXITY])[0]
    name = others[0].removeprefix("valid/")
    return _Panel(name.replace("_", " ").capitalize(), name.replace("_", " "), _both(name))


def _title(runs: dict[str, Scalars]) -> str:
    """The run's name with its best validation, or how many runs are compared."""
    if len(runs) > 1:
        return f"{len(runs)} training runs"
    [(name, scalars)] = runs.items()
    name = figures.visible(name)
    for tag, label, best in (("valid/bleu", "BLEU {:.1f}", max), ("valid/loss", "validation loss {:.3f}", min)):
        points = {step: value for step, value in scalars.get(tag, {}).items() if math.isfinite(value)}
        if points:
            step = best(points, key=points.get)
            if points[step] == 0:  # As checkpoints are chosen: of several, the last one.
                step = max(step for step in points if points[step] == 0)
            return f"Training of {name}: best {label.format(points[step])} at update {step:,}"
    return f"Training of {name}"


def figure(runs: dict[str, Scalars]):
    """Draws loss, BLEU (or perplexity, or another figure, where no run has it), learning rate and speed of one or
    several runs, given as scalars by the name that the legend shows. Returns a `matplotlib.figure.Figure`.

    With several runs each has its own colour and line style.
    """
    # A legend below the panels, in rows of at most three names: 100 characters, 10 of them for each line and its gap.
    columns = max(1, min(3, len(runs), 100 // (10 + max(map(len, runs)))))
    rows = 0 if len(runs) == 1 else -(-len(runs) // columns)
    with figures.drawing():
        drawn = figures.new_figure(8, 5.8 + 0.22 * rows, "constrained")
        drawn.set_dpi(_DPI)
        drawn.suptitle(_title(runs), fontsize=12)
        quality = _quality(runs)
        of_translation = quality in (_BLEU, _PERPLEXITY)  # The targets of other tasks are masked words, or texts.
        units = {} if of_translation else {_LOSS: "nats", _SPEED: "targets per second"}
        for axes, panel in zip(drawn.subplots(2, 2).flat, (_LOSS, quality, _LEARNING_RATE, _SPEED), strict=True):
            _draw_panel(axes, panel, units.get(panel, panel.unit), runs)
        if rows:
            from matplotlib.lines import Line2D

            names = map(figures.visible, runs)
            handles = [Line2D([], [], linewidth=1.8, label=name, **_look(number)) for number, name in enumerate(names)]
            drawn.legend(
                handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9, handlelength=3
            )
    return drawn


def picture(runs: dict[str, Scalars]) -> bytes:
    """The drawing of `figure` as a PNG, 1280 pixels wide, which is readable at 800."""
    return figures.encoded(figure(runs), "png", _DPI)


def update(model_dir: pathlib.Path, scalars: Scalars) -> None:
    """Writes `curves.csv` and `curves.png` of a run to its folder, from what its logs hold; does nothing if the run has
    no points yet. Raises `OSError` if a file could not be written.
    """
    if scalars:
        of_picture, of_table = (model_dir / name for name in CURVES)
        write_whole(of_table, as_csv(scalars).encode())
        write_whole(of_picture, picture({model_dir.resolve().name: scalars}))


def compare(model_dirs: list[pathlib.Path], output: pathlib.Path) -> None:
    """Writes one picture, a PNG, of several runs, which must have points; a folder that is named twice counts once."""
    if output.suffix != ".png":
        raise ValueError(f"`output` must end in .png. Received: output={output}.")
    if not output.resolve().parent.is_dir():
        raise FileNotFoundError(f"`output` must lie in a folder that exists. Received: output={output}.")
    folders = list(dict.fromkeys(folder.resolve() for folder in model_dirs))
    write_whole(output, picture(dict(zip(distinct_names(folders), map(read, folders), strict=True))))
