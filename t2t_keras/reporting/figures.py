"""What all pictures share: colours, labels that are shown as they are, fonts, and files. matplotlib is imported at
first use.
"""

import contextlib
import functools
import io
import logging
import math
import pathlib
import unicodedata
import warnings
from collections.abc import Iterable, Iterator

from t2t_keras.system.log import logger

# Okabe and Ito's colours, which colour-blind people can tell apart; grey in place of yellow, which is faint on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
FORMATS = ("png", "svg")

_FONT = "DejaVu Sans"  # matplotlib brings it.
_LONGEST_LABEL = 30
_MAX_PIXELS = 60_000_000
_told: set[int] = set()  # The characters that a warning has named.
_STYLE = {
    "text.usetex": False,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "t2t_keras",
    "path.simplify": False,
}


def visible(text: str) -> str:
    """A text as it is drawn: control characters, and what is no character, as U+FFFD."""
    return "".join(map(_visible, text))


def label(text: str) -> str:
    """A word as it is drawn: control characters as U+FFFD, and a long word cut."""
    shown = visible(text)
    return shown if len(shown) <= _LONGEST_LABEL else shown[: _LONGEST_LABEL - 1] + "…"


def _visible(character: str) -> str:
    """A character; U+FFFD for control characters and what XML cannot hold."""
    hidden = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or ord(character) & 0xFFFE == 0xFFFE
    return "\ufffd" if hidden else character


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Draws text as it is: no formulas between dollar signs, and in SVG files as text. Silences matplotlib about
    missing glyphs.
    """
    import matplotlib

    font_log = logging.getLogger("matplotlib.font_manager")
    level = font_log.level
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Glyph .* missing from")
        warnings.filterwarnings("ignore", message=".*Matplotlib currently does not support .* natively")
        font_log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            font_log.setLevel(level)


def new_figure(width: float = 6.4, height: float = 4.8, layout: str | None = None):
    """Returns an empty figure that no window shows, of a size in inches, which may be set later, when the contents are
    known. `layout` is matplotlib's layout engine, such as "constrained".
    """
    # Not pyplot: it would choose a backend and keep the figure.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure((width, height), facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    return figure


def panel(axes, title: str, x: str, y: str = "", *, size: float = 11) -> None:
    """Gives matplotlib's axes a bold title at the left, `size` points large, the names of both sides, and a grid."""
    axes.set_title(title, loc="left", fontsize=size, fontweight="bold")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(which="major", color="#D0D0D0", linewidth=0.7)


def rows(axes, x: str) -> None:
    """Gives axes the looks of a list with a row for each place on the left: no frame but the side below, named `x`."""
    axes.set_xlabel(x)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)


def numbers(axis, form: str) -> None:
    """Writes the numbers at the ticks of an axis in a format, such as ",.0f"."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: format(value, form)))


def powers(axes, ticks: Iterable[int]) -> None:
    """Makes the lower side logarithmic, with these ticks, which are powers of two, and no others."""
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def text_style(labels: Iterable[str], size: float) -> dict:
    """Arguments for every text of a figure: its size, fonts that have its characters, and no formulas."""
    return {
        "fontsize": size,
        "fontfamily": list(_fonts(frozenset("".join(labels)))),
        "parse_math": False,
        "usetex": False,
    }


@functools.lru_cache(maxsize=64)
def _fonts(characters: frozenset[str]) -> tuple[str, ...]:
    """DejaVu Sans, and fewest other installed fonts that have the characters which it lacks."""
    from matplotlib import font_manager

    chosen, missing = [_FONT], {ord(character) for character in characters}
    missing -= set(_characters_of(font_manager.findfont(_FONT)))
    if missing:
        fonts = font_manager.fontManager.ttflist
        entries = {font.name: font.fname for font in fonts if font.style == "normal" and font.weight == 400}
        known = (name for name in entries if not name.startswith("Last Resort"))  # Which has a box for every character.
        for name in sorted(known, key=lambda name: (not name.startswith("Noto Sans"), "Mono" in name, name)):
            characters_of_font = missing & _characters_of(entries[name])
            if characters_of_font:
                chosen.append(name)
                missing -= characters_of_font
            if not missing:
                break
    if missing := missing - _told:  # A text has many pictures.
        _told.update(missing)
        shown = "".join(map(chr, sorted(missing)[:20]))
        logger.warning(
            f"No installed font has these characters: {shown!r}. PNG pictures show boxes for them; SVG pictures and "
            "the page keep the text. Install a font that has them, such as Noto."
        )
    return tuple(chosen)


@functools.lru_cache(maxsize=1024)
def _characters_of(path: str) -> frozenset[int]:
    """The code points that a font file has; none if it cannot be read."""
    from matplotlib import font_manager

    try:
        return frozenset(font_manager.get_font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()


def widths(figure, labels: Iterable[str], style: dict) -> list[float]:
    """How wide each text is, in inches."""
    renderer, inches = figure.canvas.get_renderer(), []
    for text in labels:
        drawn = figure.text(0, 0, text, **style)
        inches.append(drawn.get_window_extent(renderer).width / figure.dpi)
        drawn.remove()
    return inches


def format_of(path: pathlib.Path) -> str:
    """Returns the format of a picture by the ending of its name, "png" or "svg"; another ending is a `ValueError`."""
    format_ = path.suffix.removeprefix(".").lower()
    if format_ not in FORMATS:
        raise ValueError(f"Expected a picture as {' or '.join(FORMATS)}. Received: {path}.")
    return format_


def encoded(figure, format_: str, dpi: int = 120) -> bytes:
    """Returns a figure as PNG or SVG. A very large PNG has fewer dots per inch than `dpi`."""
    width, height = figure.get_size_inches()
    dpi = min(dpi, math.sqrt(_MAX_PIXELS / (width * height)))
    drawn = io.BytesIO()
    with drawing():
        figure.savefig(drawn, format=format_, dpi=dpi, facecolor="white", metadata={"Date": None})
    return drawn.getvalue()


def save(figure, path: pathlib.Path) -> None:
    """Writes a figure in the format of the file's name; see `format_of`."""
    path.write_bytes(encoded(figure, format_of(path)))
