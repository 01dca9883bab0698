"""Pictures of attention weights: lines between words, as Figures 3 to 5 of the paper, and heat maps.

Layers and heads are counted from 0 in arguments, as in the arrays, and from 1 in the pictures, as in the paper.
"""

import math
from collections.abc import Sequence

import numpy as np

from t2t_keras.reporting import figures
from t2t_keras.reporting.attention import SentenceAttention

TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Decoder attention to the source",
}
# What the rows of weights are, and what the columns are.
SIDES = {
    "encoder": ("source", "attends to source"),
    "decoder": ("to predict", "attends to what is written"),
    "cross": ("to predict", "attends to source"),
}
_FONT_SIZE, _ROW = 10, 0.25  # Points; inches.
_MARGIN, _GAP = 0.2, 2.6
_FAINTEST = 0.02  # Fainter lines are not drawn: many of them would be a grey haze.
_CELL, _CELL_FONT_SIZE = 0.22, 9


def _chosen(
    attention: SentenceAttention, kind: str, layer: int, heads: Sequence[int] | None
) -> tuple[np.ndarray, list[int], list[str], list[str], str]:
    """The weights of some heads of a layer [heads, T, S], the heads' indices, the labels of rows and of columns, and
    the title.
    """
    weights = attention.weights(kind)
    layers, number = weights.shape[:2]
    if not -layers <= layer < layers:
        raise ValueError(f"Expected a layer of {kind} attention below {layers}, counted from 0. Received: {layer}.")
    heads = list(range(number) if heads is None else heads)
    if not heads or any(not 0 <= head < number for head in heads):
        raise ValueError(f"Expected heads below {number}, counted from 0. Received: {heads}.")
    queries, keys = ([figures.label(piece) for piece in side.pieces] for side in attention.sides(kind))
    return weights[layer, heads], heads, queries, keys, f"{TITLES[kind]}, layer {layer % layers + 1}"


def line_picture(
    attention: SentenceAttention, kind: str = "cross", layer: int = -1, heads=None, query: int | None = None
):
    """Draws words in two columns and the weights as lines between them, as Figures 3 to 5 of the paper.

    The words on the left attend to the words on the right. The more opaque a line, the larger the weight. Each head has
    its colour; a head after the eighth has the colour of another, and dashed lines.

    Args:
        attention: weights of a sentence; by words or by sub-words.
        kind: `encoder`, `decoder` or `cross` attention.
        layer: its index; -1 is the last.
        heads: their indices; None: all heads.
        query: draw the lines of this row alone, and beside each word that it attends to a box for each head, as in
            Figure 3.

    Returns:
        A matplotlib figure, which `figures.save` writes.
    """
    weights, heads, queries, keys, title = _chosen(attention, kind, layer, heads)
    if query is not None and not 0 <= query < len(queries):
        raise ValueError(f"Expected a row below {len(queries)}, counted from 0. Received: query={query}.")
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    with figures.drawing():
        figure = figures.new_figure()
        names = SIDES[kind]
        style = figures.text_style([*queries, *keys, title], _FONT_SIZE)
        heading = {**style, "fontweight": "bold"}
        left, right = (
            max(*figures.widths(figure, words, style), *figures.widths(figure, [name], heading))
            for words, name in ((queries, names[0]), (keys, names[1]))
        )
        box = 0.14
        boxes = (len(heads) + 1) * box if query is not None else 0.0
        legend = _legend(figure, heads, style)
        across = max([end for _, _, end in legend] + figures.widths(figure, [title], {**heading, "fontsize": 13}))
        width = max(left + _GAP + right + boxes, across) + 2 * _MARGIN
        rows = 1 + max(row for row, *_ in legend)
        top = 0.95 + 0.28 * rows
        height = top + _ROW * max(len(queries), len(keys)) + _MARGIN
        figure.set_size_inches(width, height)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.axis("off")
        axes.text(_MARGIN, 0.3, title, va="center", **{**heading, "fontsize": 13})

        def draw_box(x: float, y: float, size: tuple[float, float], color, dashes: bool) -> None:
            """Draws a box that begins at x and whose middle is at y."""
            hatch = "//" if dashes else None
            axes.add_patch(Rectangle((x, y - size[1] / 2), *size, fc=color, hatch=hatch, ec="white", lw=0))

        for (row, start, _), head, color, dashes in zip(legend, heads, *_looks(heads), strict=True):
            y = 0.62 + 0.28 * row
            draw_box(start + _MARGIN, y, (0.22, 0.16), color, dashes)
            axes.text(start + _MARGIN + 0.29, y, f"head {head + 1}", va="center", color="#222222", **style)
        from_x, to_x = _MARGIN + left + 0.08, _MARGIN + left + _GAP - 0.08
        for x, name, align in ((from_x - 0.08, names[0], "right"), (to_x + boxes + 0.08, names[1], "left")):
            axes.text(x, top - 0.18, name, ha=align, va="center", color="#555555", **heading)

        y_of = [top + _ROW * (index + 0.5) for index in range(max(len(queries), len(keys)))]
        for index, word in enumerate(queries):
            color = "black" if query in (None, index) else "#767676"
            axes.text(from_x - 0.08, y_of[index], word, ha="right", va="center", color=color, **style)
        for index, word in enumerate(keys):
            axes.text(to_x + boxes + 0.08, y_of[index], word, ha="left", va="center", **style)
        for place, (color, dashes) in enumerate(zip(*_looks(heads), strict=True)):
            drawn = weights[place]
            if query is not None:
                drawn = np.where(np.arange(len(queries))[:, None] == query, drawn, 0)
            visible = np.argwhere(drawn >= _FAINTEST)
            visible = visible[np.argsort(drawn[tuple(visible.T)])]  # The darkest on top.
            shift = (place - (len(heads) - 1) / 2) * min(0.03, 0.7 * _ROW / len(heads))
            ends = [[(from_x, y_of[t] + shift), (to_x, y_of[s] + shift)] for t, s in visible]
            colors = [to_rgba(color, min(1.0, float(drawn[t, s]))) for t, s in visible]
            axes.add_collection(
                LineCollection(ends, colors=colors, linewidths=1.8, linestyles=(0, (4, 2)) if dashes else "solid")
            )
            for index in range(len(keys)) if query is not None else ():
                opacity = min(1.0, float(drawn[query, index]))
                draw_box(to_x + 0.04 + place * box, y_of[index], (box, 0.18), to_rgba(color, opacity), dashes)
    return figure


def _looks(heads: Sequence[int]) -> tuple[list[str], list[bool]]:
    """The colour of each head, and whether its lines are dashed."""
    number = len(figures.PALETTE)
    return [figures.PALETTE[head % number] for head in heads], [head // number % 2 == 1 for head in heads]


def _legend(figure, heads: Sequence[int], style: dict) -> list[tuple[int, float, float]]:
    """Where each head's name stands: the row, and where it starts and ends in inches."""
    places, row, x = [], 0, 0.0
    for width in figures.widths(figure, [f"head {head + 1}" for head in heads], style):
        if x and x + width > 5:
            row, x = row + 1, 0.0
        places.append((row, x, x + 0.29 + width))
        x += 0.29 + width + 0.25
    return places


def _grid(number: int, aspect: float) -> tuple[int, int]:
    """Rows and columns for a number of maps, whose aspect is width / height: a little wider than high, and with few
    empty places.
    """

    def cost(columns: int) -> float:
        rows = math.ceil(number / columns)
        return abs(math.log(columns * aspect / rows / 1.4)) + 4 * (rows * columns - number) / number

    columns = min(range(1, number + 1), key=cost)
    return math.ceil(number / columns), columns


def heat_maps(attention: SentenceAttention, kind: str = "cross", layer: int = -1, heads=None):
    """Draws a heat map for each head of a layer: rows attend to columns, and a darker cell has a larger weight. For the
    arguments and the result see `line_picture`.

    The scale is that of square roots, so that small weights of long sentences are visible.
    """
    weights, heads, queries, keys, title = _chosen(attention, kind, layer, heads)
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm

    with figures.drawing():
        figure = figures.new_figure()
        style = figures.text_style([*queries, *keys, title], _CELL_FONT_SIZE)
        heading = {**style, "fontsize": 13, "fontweight": "bold"}
        # One map, in inches: its cells, its labels at the left and below, the names of the axes, and the head's name
        # above.
        columns_label, rows_label = (max(figures.widths(figure, words, style)) for words in (keys, queries))
        map_width, map_height = _CELL * len(keys), _CELL * len(queries)
        before, below, above = rows_label + 0.42, columns_label + 0.42, 0.34
        block_width, block_height = max(before + map_width + 0.15, 1.2), above + map_height + below
        rows, columns = _grid(len(heads), block_width / block_height)
        header, bar = 0.55, 1.0
        width = max(columns * block_width + bar, *figures.widths(figure, [title], heading)) + 2 * _MARGIN
        height = max(header + rows * block_height + _MARGIN, header + 2.2)
        figure.set_size_inches(width, height)
        figure.text(_MARGIN / width, 1 - 0.3 / height, title, va="center", **heading)
        scale = PowerNorm(0.5, vmin=0, vmax=1)
        for place, head in enumerate(heads):
            row, column = divmod(place, columns)
            x = _MARGIN + column * block_width + before
            y = height - header - row * block_height - above - map_height
            axes = figure.add_axes((x / width, y / height, map_width / width, map_height / height))
            axes.imshow(weights[place], cmap="Blues", norm=scale, aspect="auto", interpolation="nearest")
            axes.set_xticks(range(len(keys)), keys, rotation=90, **style)
            axes.set_yticks(range(len(queries)), queries, **style)
            axes.tick_params(length=0, pad=3)
            axes.set_xticks(np.arange(len(keys) + 1) - 0.5, minor=True)
            axes.set_yticks(np.arange(len(queries) + 1) - 0.5, minor=True)
            axes.grid(which="minor", color="#DDDDDD", linewidth=0.4)
            axes.tick_params(which="minor", length=0)
            for spine in axes.spines.values():
                spine.set(color="#999999", visible=True)
            axes.set_title(f"head {head + 1}", loc="left", pad=5, **{**style, "fontsize": 11})
            name = {**style, "color": "#555555", "transform": axes.transAxes, "va": "center"}
            axes.text(0, -(below - 0.12) / map_height, SIDES[kind][1], **name)
            upright = {**name, "rotation": 90, "va": "top", "ha": "center"}
            axes.text(-(before - 0.12) / map_width, 1, SIDES[kind][0], **upright)
        length = min(2.2, height - header - 0.6)
        left, bottom = (width - bar + 0.3) / width, 1 - (header + above + length) / height
        axes = figure.add_axes((left, bottom, 0.13 / width, length / height))
        figure.colorbar(ScalarMappable(scale, "Blues"), cax=axes, ticks=[0, 0.05, 0.2, 0.5, 1], format="{x:g}")
        axes.tick_params(labelsize=_CELL_FONT_SIZE)
        axes.set_title("weight", loc="left", pad=10, **style)
    return figure
