"""A figure with a description in words: the alternative text of the image that a notebook stores.

JupyterLab does not show alternative text, but pages made from a notebook do: nbconvert's, slides, and the
book.
"""

import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from io import BytesIO
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib import rcParams, style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection, QuadMesh
from matplotlib.colors import to_hex, to_rgb
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from batchsim._format import counted, number
from batchsim.view.theme import DARK, LIGHT, Theme

PNG = "image/png"
COLOUR_BAR = "<colorbar>"


class PictureAxes(Axes):
    """Axes with their title at the left, also a reader's: elsewhere it would be drawn beside ours."""

    def set_title(self, label: str, fontdict: Any = None, loc: Any = "left", **options: Any) -> Text:  # type: ignore[override]
        return super().set_title(label, fontdict, loc, **options)

    def get_title(self, loc: Any = "left") -> str:
        return super().get_title(loc)


class Picture(Figure):
    """A figure without pyplot that shows itself in a notebook, with its description as alternative text.

    `words` describes it in sentences: those it was given, else its axes' titles, labels and series. `views`
    are those that `bs.plot` drew, by their keys.
    """

    views: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, *arguments: Any, words: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        FigureCanvasAgg(self)
        self._words = words

    def add_subplot(self, *arguments: Any, **options: Any) -> Any:
        return super().add_subplot(*arguments, **{"axes_class": PictureAxes, **options})

    @property
    def words(self) -> str:
        return self._words or described(self)

    @words.setter
    def words(self, words: str) -> None:
        self._words = words

    def png(self) -> bytes:
        """Return the figure as PNG."""
        file = BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()

    _repr_png_ = png

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, told(self)


def styled(theme: Theme, font_px: float, line_px: float = 1.6) -> AbstractContextManager[None]:
    """Return a context in which artists are made in a theme, not in the user's settings of matplotlib."""
    return style.context(["default", theme.rc(font_px, line_px)])


def look() -> Theme:
    """Return the colours for the present settings of matplotlib: their ink and paper, and what suits them."""
    paper = rcParams["axes.facecolor"]
    base = LIGHT if is_light(paper) else DARK
    ink, soft, faint = (to_hex(rcParams[name]) for name in ("text.color", "axes.labelcolor", "grid.color"))
    return replace(base, background=to_hex(paper), ink=ink, soft=soft, faint=faint)


def is_light(colour: Any, brightness: float = 0.5) -> bool:
    """Return whether a colour is brighter than so much, from 0, black, to 1, white."""
    return bool(np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) > brightness)


def told(figure: Figure) -> dict[str, Any]:
    """Return what IPython tells a page of any figure's picture.

    A light one says so by the key of matplotlib's own formatter for a transparent one, for dark pages.
    """
    on_white = {"needs_background": "light"} if is_light(figure.get_facecolor()) else {}
    return {PNG: {"alt": described(figure)}} | on_white


def described(figure: Figure) -> str:
    """Return a description of any figure: the title and the labels of each of its axes, and each series.

    >>> from matplotlib.figure import Figure
    >>> figure = Figure()
    >>> ax = figure.add_subplot(xlabel="time (s)", ylabel="latency (ms)", title="A busy hour")
    >>> _ = ax.plot([0, 1, 2], [3, 8.25, 4], label="no wait")
    >>> described(figure)
    'A busy hour: latency (ms) over time (s). no wait: from 3 to 4, at least 3, at most 8.25.'
    """
    if isinstance(figure, Picture) and figure._words:
        return figure.words
    title = figure.get_suptitle()
    seen = [ax for ax in figure.axes if ax.get_visible() and ax.get_label() != COLOUR_BAR]
    parts = [f"{title}."] if title else []
    return " ".join([*parts, *(text for ax in seen if (text := _axes(ax)))])


def _axes(ax: Axes) -> str:
    title = (ax.get_title() or ax.get_title("left")).replace("\n", ", ")
    x, y = ax.get_xlabel(), ax.get_ylabel()
    over = f"{y} over {x}" if x and y else x or y
    heading = ": ".join(text for text in (title, over) if text)
    series = [text for text in _series(ax) if text]
    return " ".join(f"{text.rstrip('.')}." for text in ([heading] if heading else []) + series)


def _series(ax: Axes) -> Iterable[str]:
    """Yield each series that has a name in the legend, with its numbers, and maps in colours."""
    drawn: tuple[Any, ...] = (*ax.lines, *ax.containers, *ax.collections)
    for artist in drawn:
        name = str(artist.get_label() or "").replace("\n", " ")
        if isinstance(artist, QuadMesh):
            values: np.ndarray = np.ma.masked_invalid(np.ma.asarray(artist.get_array())).compressed()
            yield f"a map in colours of {values.size} values, {_range(values)}" if values.size else ""
        elif name and not name.startswith("_"):
            yield ": ".join(filter(None, (name, _numbers(artist))))
    if ax.images:
        yield "a map in colours"


def _numbers(artist: Any) -> str:
    """Return what there is to say of a series' numbers."""
    is_line = isinstance(artist, Line2D) and artist.get_linestyle() != "None"
    has_marks = isinstance(artist, Line2D) and artist.get_marker() != "None"
    match artist:
        case BarContainer():
            lying = artist.orientation == "horizontal"
            lengths = [bar.get_width() if lying else bar.get_height() for bar in artist]
            return f"{counted(len(lengths), 'bar')}, {_range(lengths)}"
        case PathCollection():
            return counted(len(np.atleast_2d(artist.get_offsets())), "point")
        case LineCollection():
            return counted(len(artist.get_segments()), "line")
        case Line2D(axes=Axes() as ax) if (
            has_marks and not is_line and artist.get_transform() != ax.transData
        ):
            return counted(np.shape(artist.get_path().vertices)[0], "point")  # at an edge, not at a number
        case Line2D() if is_line or has_marks:
            return _line(*(np.asarray(each, object) for each in artist.get_data()))
    return ""


def _line(xs: np.ndarray, ys: np.ndarray) -> str:
    for axis, values in (("x", xs), ("y", ys)):
        if len(values) == 2 and values[0] == values[1]:  # drawn by axvline or axhline
            return f"at {axis} {_text(values[0])}"
    try:
        values = np.asarray(ys, float)
    except (TypeError, ValueError):  # names of categories
        return ""
    if values.size == 1:
        return "a mark"
    if values.size < 2 or not np.isfinite(values[[0, -1]]).all():
        return _range(values) if values.size else ""
    return f"from {_text(values[0])} to {_text(values[-1])}, {_range(values)}"


def _range(values: Any) -> str:
    finite = np.asarray(values, float)
    finite = finite[np.isfinite(finite)]
    if not finite.size:
        return "no numbers"
    low, high = float(finite.min()), float(finite.max())
    return f"all {_text(low)}" if low == high else f"at least {_text(low)}, at most {_text(high)}"


def _text(value: Any) -> str:
    return number(value) if isinstance(value, int | float) and not math.isnan(value) else str(value)
