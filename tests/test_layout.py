"""What every picture draws, and where: as it was when somebody looked at it.

`python tests/test_layout.py` writes the pictures to a folder, to look at them, and their layout to `data/layout.json`.
"""

import dataclasses
import io
import itertools
import json
import pathlib
import sys

import matplotlib
import numpy as np
import pytest
import stand_in
from matplotlib.collections import LineCollection
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from t2t_keras import config
from t2t_keras.experiments import attention_functions, grid_report, table1, table3_report
from t2t_keras.reporting import attention_pictures, curves, figures

LAYOUT = pathlib.Path(__file__).parent / "data/layout.json"
TOLERANCE = 0.02  # Of an inch: the widths of letters may differ a little.


def color(value) -> str:
    return matplotlib.colors.to_hex(value, keep_alpha=True)


def described(artist, inches) -> tuple[list, list] | None:
    """What an artist is, in words; and its places in inches from the lower left."""
    looks = [type(artist).__name__, round(artist.get_zorder(), 2), round(artist.get_alpha() or 1, 2)]
    if isinstance(artist, Text):
        font = [artist.get_fontsize(), artist.get_weight(), artist.get_rotation(), artist.get_ha(), artist.get_va()]
        return [*looks, artist.get_text(), color(artist.get_color()), *font], inches(
            artist.get_transform().transform(artist.get_position())
        )
    if isinstance(artist, Line2D):
        look = [color(artist.get_color()), artist.get_linestyle(), artist.get_linewidth()]
        look += [artist.get_marker(), artist.get_markersize()]
        return [*looks, *look], inches(artist.get_transform().transform(artist.get_xydata().reshape(-1, 2)))
    if isinstance(artist, Rectangle):
        corners = artist.get_transform().transform([[0, 0], [1, 1]])
        return [*looks, color(artist.get_facecolor()), color(artist.get_edgecolor()), artist.get_hatch()], inches(
            corners
        )
    if isinstance(artist, LineCollection):
        segments = [artist.get_transform().transform(segment) for segment in artist.get_segments()]
        colors = [color(each) for each in artist.get_colors()]
        look = [colors, artist.get_linewidths().tolist(), str(artist.get_linestyles())]
        return [*looks, *look], inches(np.concatenate([np.zeros([0, 2]), *segments]))
    if isinstance(artist, AxesImage):
        low, high = artist.norm.vmin, artist.norm.vmax
        look = [artist.get_cmap().name, float(low), float(high), list(artist.get_extent())]
        return [*looks, *look], inches(artist.get_window_extent().corners())
    return None


def layout(figure) -> list:
    """Everything that a figure shows, as `described`."""
    with figures.drawing():
        figure.draw(figure.canvas.get_renderer())

    def inches(places) -> list[float]:
        return np.round(np.asarray(places, float).reshape(-1) / figure.dpi, 3).tolist()

    found = [
        [["figure", color(figure.get_facecolor())], [*figure.get_size_inches().round(3).tolist(), float(figure.dpi)]]
    ]
    for axes in figure.axes:
        found.append([["axes", axes.axison], inches(axes.bbox.corners())])
    for artist in figure.findobj():
        hidden = not artist.get_visible() or (isinstance(artist, Text) and not artist.get_text())
        drawn = None if hidden else described(artist, inches)
        if drawn:
            found.append([json.loads(json.dumps(drawn[0], default=float)), drawn[1]])
    return found


ATTENTION = stand_in.attention("the dog plays with a ball", "der Hund spielt jetzt", heads=10)


def scalars(bleu: bool = True, points: int = 40, scale: float = 1.0) -> dict:
    steps = range(100, 100 * points + 1, 100)
    found = {
        "train/loss": {step: scale * (2 + 600 / step) for step in steps},
        "train/learning_rate": {step: 1e-3 * min(step / 1000, (1000 / step) ** 0.5) for step in steps},
        "utilization/target_tokens_per_second": {step: 5000.0 + step % 300 for step in steps},
        "train/loss_scale": {step: 1024.0 for step in steps},
        "train/perplexity": {step: 9.0 + 600 / step for step in steps},
        "valid/loss": {step: scale * (2.1 + 500 / step) for step in steps if step % 1000 == 0},
    }
    quality = "valid/bleu" if bleu else "valid/perplexity"
    return found | {quality: {step: 10 + step / 200 for step in steps if step % 1000 == 0}}


def of_table_1():
    lengths = [2**power for power in range(5, 10)]
    seconds = {name: {str(n): [1e-6 * n * (place + 1)] for n in lengths} for place, name in enumerate(table1.LAYERS)}
    memory = {name: {str(n): 1000 * n * (place + 2) for n in lengths} for place, name in enumerate(table1.LAYERS)}
    return table1.picture({"seconds": seconds, "memory": memory, "settings": dataclasses.asdict(table1.Settings())}, 64)


def of_attention_functions():
    found = {"seconds": {}, "memory": {}, "runs": {}}
    for place, function in enumerate(config.ATTENTION_FUNCTIONS):

        def figures(d_k: int, scale: float, place=place) -> dict[str, float]:
            shares = {"entropy": scale / d_k, "gradient": scale / (d_k + place)}
            return {"variance": scale * d_k**place, **shares, "perplexity": 9 + place}

        runs = {d_k: {"before": figures(d_k, 1.0), "after": figures(d_k, 2.0)} for d_k in (4, 8, 16)}
        found["runs"][function] = {str(d_k): of_run for d_k, of_run in runs.items()}
        found["seconds"][function] = {str(n): [1e-6 * n * (place + 1)] for n in (64, 128, 256)}
        found["memory"][function] = {str(n): 1000 * n * (place + 2) for n in (64, 128, 256)}
    return attention_functions.picture(found)


def result(row: str, seed: int, scores: dict) -> grid_report.Result:
    """A result with these scores; the rest is not drawn."""
    others = {field.name: None for field in dataclasses.fields(grid_report.Result)}
    return grid_report.Result(**others | {"row": row, "seed": seed, "scores": scores})


def of_table_3():
    rows = {"base": 30.0, "A1": 28.9, "E": 30.4}
    return table3_report.picture([result(row, 1, {"valid": {"bleu": bleu}}) for row, bleu in rows.items()])


def of_a_grid():
    results, sets = [], ("valid", "test_2016_flickr", "test_2017_flickr")
    for row, seed in itertools.product(range(5), (1, 2, 3)):
        scores = {name: {"bleu": 40 + row / 2 - seed / 4} for name in sets}
        results.append(result(f"a_longer_name_{row}" if row else grid_report.BASE, seed, scores))
    return grid_report.picture(grid_report.grouped(results))


FIGURES = {
    "lines": lambda: attention_pictures.line_picture(ATTENTION, "cross", 0),
    "one query": lambda: attention_pictures.line_picture(ATTENTION, "encoder", 1, query=2),
    "a word": lambda: attention_pictures.line_picture(stand_in.attention("a", "b", heads=1), "encoder", 0),
    "the map of a word": lambda: attention_pictures.heat_maps(stand_in.attention("a", "b", heads=1), "encoder", 0),
    "one head": lambda: attention_pictures.line_picture(ATTENTION, "decoder", -1, heads=[9]),
    "heat maps": lambda: attention_pictures.heat_maps(ATTENTION, "cross", 0),
    "a heat map": lambda: attention_pictures.heat_maps(ATTENTION, "encoder", 1, heads=[3]),
    "curves": lambda: curves.figure({"mine": scalars()}),
    "few points": lambda: curves.figure({"mine": scalars(bleu=False, points=3)}),
    "Table 1": of_table_1,
    "Table 3": of_table_3,
    "attention functions": of_attention_functions,
    "a grid": of_a_grid,
    "four runs": lambda: curves.figure(
        {f"run_{place}": scalars(points=20 + place, scale=1 + place) for place in range(4)}
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_picture_shows_what_it_did(name):
    expected, received = json.loads(LAYOUT.read_text())[name], layout(FIGURES[name]())
    assert [looks for looks, _ in received] == [looks for looks, _ in expected]
    for (looks, places), (_, wanted) in zip(received, expected, strict=True):
        np.testing.assert_allclose(places, wanted, rtol=0, atol=TOLERANCE, err_msg=str(looks))


def test_a_picture_is_white_whatever_matplotlib_is_set_to():
    with matplotlib.rc_context({"savefig.facecolor": "black"}):
        drawn = matplotlib.image.imread(io.BytesIO(figures.encoded(figures.new_figure(), "png")))
    assert drawn.min() == 1


def test_an_svg_has_no_date():
    """So that the same data make the same file."""
    figure, with_date = figures.new_figure(), io.BytesIO()
    assert b"<dc:date>" not in figures.encoded(figure, "svg")
    figure.savefig(with_date, format="svg")
    assert b"<dc:date>" in with_date.getvalue()


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    for name, draw in FIGURES.items():
        draw().savefig(folder / f"{name}.png")
    written = json.dumps({name: layout(draw()) for name, draw in FIGURES.items()}, separators=(",", ":"))
    LAYOUT.write_text(written.replace("]],[[", "]],\n[[") + "\n")
