"""The explorer's picture of a run, redrawn at every move: one large view, the others small; and stills."""

from contextlib import nullcontext
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.transforms import Bbox, ScaledTranslation
from PIL import Image

from batchsim import _check
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.headline import as_line, levels
from batchsim.view.pictures.picture import Picture, styled
from batchsim.view.pictures.view import Spot, View
from batchsim.view.pictures.views import VIEWS, in_words, views_of
from batchsim.view.theme import SIZES, THEMES, named

LEAST_PX, MOST_PX = 240, 4096
PRINT_DPI = 200
POINTS = 72  # of an inch: with so many CSS pixels in one, points are CSS pixels
MOST_ROWS = 3
BESIDE = 2  # small views that stand to the right of the large one if there are few
LEAST_EM = 15.1, 13.5  # the width and the height of a small view: smaller, and its names would not fit
WIDE_EM = 44  # a large view whose axes stand side by side
HATCHED = hasattr(Patch, "get_hatch_linewidth")  # else the settings of drawing decide how wide hatches are

# The places of subfigures and axes by the look of a picture and the rows of its legends: to compute them
# takes as long as to draw two pictures, and numbers of other data have room in them.
KEPT = 64
LAYOUTS: dict[tuple[Any, ...], tuple[list[np.ndarray], list[Bbox]]] = {}


class LivePicture:
    """All views of a run in one figure, one of them large.

    The sizes are in CSS pixels, each `ratio` pixels of the screen; `theme` is "light" or "dark", `size`
    "page" or "projector". `large` is the key of the large view, and `alone` leaves out the others, as does
    a picture too small for their names; `few` leaves two of them, and a narrow picture as many as have room.
    `show` draws a `ViewData`, `describe` puts it into words, and `at` answers the pointer. `mode` is
    the kind of run: "requests" or "tokens"; `parts` are those that the run has of `data.PARTS`. Views of
    steps and seats show `server`.

    Each view is in a subfigure. matplotlib marks it as stale when an artist changes that is not animated: a
    limit, a unit, a name in a legend. A redraw draws stale subfigures, and over the stored pixels of all of
    them the animated artists, which are those that the views move.
    """

    def __init__(
        self, width_px: int = 1000, height_px: int = 640, ratio: float = 1.0, theme: str = "light",
        size: str = "page", large: str = "latency", alone: bool = False, mode: str = "requests",
        server: int = 0, parts: tuple[str, ...] = (), few: bool = False,
    ) -> None:  # fmt: skip
        _check.whole("width_px", width_px, LEAST_PX, MOST_PX)
        _check.whole("height_px", height_px, LEAST_PX, MOST_PX)
        _check.real("ratio", ratio, at_least=0.5, at_most=4)
        named("mode", mode, VIEWS)
        views = views_of(mode, parts)
        first = named("large", large, views)
        self.theme, self.size = named("theme", theme, THEMES), named("size", size, SIZES)
        self.mode, self.em = mode, self.size.em_px(width_px)
        self.style = width_px, height_px, ratio, size, large, alone, mode, parts, few
        self.data: ViewData | None = None
        self.width_px, self.height_px, self.ratio = width_px, height_px, ratio
        with self.styled():
            inches = ((width_px + 1e-6) / POINTS, (height_px + 1e-6) / POINTS)  # matplotlib truncates pixels
            self.figure = Picture(figsize=inches, dpi=POINTS * ratio)
            others = [view for view in views.values() if view is not first][: BESIDE if few else None]
            rows = min(max(len(others) - 2, 2), MOST_ROWS)
            beside = BESIDE if few else rows - 1
            # Of the last row: as many as have room, so that the last views of many are left out.
            columns = min(len(others) - beside, max(int(width_px / self.em / LEAST_EM[0]), 3)) or 1
            others = others[: beside + columns]
            cell_em = width_px / max(columns, 3) / self.em, height_px / rows / self.em
            is_small = cell_em[0] < LEAST_EM[0] or cell_em[1] < LEAST_EM[1]
            shown = [first] if alone or is_small else [first, *others]
            # The large view takes two of three columns, down to a last row, and small ones fill the rest.
            grid = self.figure.add_gridspec(rows, 3 * columns)
            places = [grid[:beside, : 2 * columns] if len(shown) > 1 else grid[:, :]]
            places += [grid[row, 2 * columns :] for row in range(beside)]
            places += [grid[-1, 3 * at : 3 * (at + 1)] for at in range(columns)]
            self.views: dict[str, View] = {view.KEY: view() for view in shown}
            self.parts: dict[str, SubFigure] = {
                view.KEY: self.figure.add_subfigure(place, facecolor=self.theme.background)
                for view, place in zip(shown, places, strict=False)
            }
        for view in self.views.values():
            view.server, view.styled = server, self.styled
        self.large = first.KEY
        self.background: Any = None

    def styled(self) -> Any:
        return styled(self.theme, self.em, self.size.line_px)

    def show(self, data: ViewData, line: bool = False) -> None:
        """Draw data; the axes are made and laid out with the first, and with a `line` of the four numbers."""
        if (kind := data.result.scenario.kind) != self.mode:
            raise TypeError(f"a picture of {self.mode} must show a run of {self.mode}, got one of {kind}")
        begins, self.data = self.data is None, data
        if not begins:
            for view in self.views.values():
                view.show(data)
            if any(now > then for now, then in zip(self._rows(), self.rows, strict=True)):
                self._lay_out(data)
            return
        with self.styled():
            if line:
                self.figure.suptitle(as_line(data), x=0.01, ha="left", fontweight="normal")
            for key, view in self.views.items():
                axes = self._axes(self.parts[key], view, key == self.large)
                beside = len({ax.get_position().x0 for ax in axes})
                view.legend_px = self.parts[key].bbox.width / beside - 5 * self.em * self.ratio
                view.is_animated = True
                view.draw(axes, data, large=key == self.large)
                lift_labels(view)
                keep_room(view)
            self._lay_out(data)

    @property
    def moving(self) -> list[Artist]:
        return [artist for view in self.views.values() for artist in view.moving]

    def _lay_out(self, data: ViewData) -> None:
        """Place the axes, and then what depends on their sizes: columns of legends, and distances."""
        with self.styled():
            self._place((*self.style, self.figure.get_suptitle() != "", *self._rows()))
            for name, view in self.views.items():
                view.known.clear()
                view.show(data)
                if name != self.large:  # its names begin at the edge, as they may be wider than its axes
                    box, left = view.ax.bbox, self.parts[name].bbox.x0 + 0.6 * self.em * self.ratio
                    lift_labels(view, (left - box.x0) / box.width)
        self.rows = self._rows()

    def _place(self, look: tuple[Any, ...]) -> None:
        """Place subfigures and axes as in the last picture of this look, or else as matplotlib does."""
        axes = [ax for view in self.views.values() for ax in view.axes]
        if look not in LAYOUTS:
            for ax in axes:
                ax.set_in_layout(True)  # which a `set_position` ends
            ConstrainedLayoutEngine(hspace=0, wspace=0).execute(self.figure)
            boxes = [part.bbox_relative.get_points().copy() for part in self.parts.values()]
            # Away from the edges of pixels, so that rounding errors move nothing.
            places = [Bbox(ax.bbox.get_points().round() + 0.2) for ax in axes]
            LAYOUTS[look] = boxes, places
            while len(LAYOUTS) > KEPT:
                LAYOUTS.pop(next(iter(LAYOUTS)))
        for part, points in zip(self.parts.values(), LAYOUTS[look][0], strict=True):
            part.bbox_relative.set_points(points)
        for ax, place in zip(axes, LAYOUTS[look][1], strict=True):
            ax.set_position(place.transformed(ax.figure.transSubfigure.inverted()))

    def _rows(self) -> list[int]:
        """Return the numbers of rows of the legends, on which the layout depends."""
        return [rows for view in self.views.values() for rows in view.rows.values()]

    def _axes(self, part: SubFigure, view: View, large: bool) -> list[Axes]:
        shares = view.PANELS if large else view.PANELS[:1]
        beside = view.BESIDE and part.bbox.width / self.ratio >= WIDE_EM * self.em
        if beside:
            return list(part.subplots(1, len(shares), squeeze=False).ravel())
        return list(part.subplots(len(shares), 1, squeeze=False, height_ratios=shares).ravel())

    def pixels(self) -> np.ndarray:
        """Return the picture as uint8, shape (rows, columns, 4), in a buffer that the next draw changes."""
        canvas: Any = self.figure.canvas
        if self.background is None:
            with self.styled():
                canvas.draw()
        else:
            canvas.restore_region(self.background)
        stale = [part for part in self.parts.values() if part.stale]
        renderer = canvas.get_renderer()
        with nullcontext() if HATCHED and not stale else self.styled():
            for part in stale:
                part.draw(renderer)
            if stale or self.background is None:
                self.background = canvas.copy_from_bbox(self.figure.bbox)
            for artist in self.moving:
                artist.draw(renderer)
        return np.asarray(canvas.buffer_rgba())

    def png(self) -> bytes:
        """Return the picture as PNG: exactly the pixels of the screen."""
        file = BytesIO()
        Image.fromarray(self.pixels()[..., :3]).save(file, "png", compress_level=1)
        return file.getvalue()

    def frame(self) -> bytes:
        """Return the pixels of the screen for the page, as WebP: without loss, and twice as fast as PNG."""
        file = BytesIO()
        Image.fromarray(self.pixels()).save(file, "webp", lossless=True, method=0, quality=0)
        return file.getvalue()

    def save(self, file: Any, suffix: str) -> None:
        """Write the picture: "png", "svg" or "pdf"."""
        for artist in self.moving:
            artist.set_animated(False)  # which files leave out
        with self.styled():
            self.figure.savefig(file, format=suffix, dpi=PRINT_DPI)

    def release(self) -> bool:
        """Let the axes shrink to the present data; return whether a redraw is necessary."""
        if self.data is not None:
            for view in self.views.values():
                view.release(self.data)
            if self._rows() != self.rows:
                self._lay_out(self.data)
        return any(part.stale for part in self.parts.values())

    @property
    def words(self) -> str:
        return self.describe(self.data) if self.data is not None else ""

    def describe(self, data: ViewData) -> str:
        """Return a description of the picture in sentences: everything that the eye can see."""
        sentence = f" The p99 by priority: {levels(data, 99)}." if data.levels_ms else ""
        return in_words(self.views.values(), data) + sentence

    def places(self) -> dict[str, list[float]]:
        """Return the box of each view as fractions: left, top, width and height."""
        whole = self.figure.bbox
        return {
            key: [
                part.bbox.x0 / whole.width, 1 - part.bbox.y1 / whole.height,
                part.bbox.width / whole.width, part.bbox.height / whole.height,
            ]
            for key, part in self.parts.items()
        }  # fmt: skip

    def at(self, across: float, down: float) -> Spot | None:
        """Return the answer to the pointer at fractions of the width and the height, from the top left."""
        x, y = self.figure.bbox.width * across, self.figure.bbox.height * (1 - down)
        for key, part in self.parts.items():
            if self.data is None or not part.bbox.contains(x, y):
                continue
            view = self.views[key]
            if key != self.large:
                return Spot(key, f"Enlarge: {view.NAME}")
            for ax in view.axes:
                if not view.lacks(self.data) and ax.bbox.contains(x, y):
                    across, up = ax.transData.inverted().transform((x, y))
                    return view.spot(ax, across, up, self.data)
        return None


def lift_labels(view: View, left: float = 0) -> None:
    """Put the names of vertical axes above them, under the title, where they need no turning."""
    view.heading.set_x(left)
    up = 0.8 if not view.large else 0.45  # of a small view above the topmost number, which is below its name
    for ax in view.axes:
        above = ax.transAxes + ScaledTranslation(0, up * view.em / 72, ax.figure.dpi_scale_trans)
        ax.yaxis.label.set(rotation=0, ha="left", va="baseline")
        ax.yaxis.set_label_coords(left, 1, transform=above)
    view.ax.set_title(view.heading.get_text(), pad=(up + 1.3 if view.ax.get_ylabel() else 0.6) * view.em)


def keep_room(view: View) -> None:
    """Let the layout leave room beside axes for numbers that other data may have: by unseen texts."""
    for ax in view.axes:
        for x, side in ((0, "right"), (1, "center")):
            if x or len(ax.get_yticks()):
                ax.text(x, 0, "100%", ha=side, va="bottom", alpha=0, transform=ax.transAxes)
