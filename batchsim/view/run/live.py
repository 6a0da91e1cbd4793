"""The explorer's picture: six views of a run, redrawn at every move."""

import math

from batchsim import _check
from batchsim.view.canvas.theme import SIZES, THEMES, named
from batchsim.view.run.batches import BatchView
from batchsim.view.run.breakdown import BreakdownView
from batchsim.view.run.heat_map import HeatMapView
from batchsim.view.run.latency import LatencyView
from batchsim.view.run.load import LoadView
from batchsim.view.run.timeline import TimelineView
from batchsim.view.run.view import RunPicture

LEAST_PX, MOST_PX = 320, 4096
# The views, row by row. To add one, write its file and name it here.
VIEWS = (BreakdownView, LatencyView, LoadView, BatchView, TimelineView, HeatMapView)


class LivePicture(RunPicture):
    """All views of a run in one figure: 3 x 2 where there is room, else 2 x 3.

    `width_px` is in CSS pixels, each `ratio` pixels of the screen wide; `theme` is "light" or "dark", `size`
    "page" or "projector". The height follows. `show` draws a `ViewData`, `describe` says the same in words.
    """

    def __init__(
        self, width_px: int = 1200, ratio: float = 1.0, theme: str = "light", size: str = "page"
    ) -> None:
        _check.whole("width_px", width_px, LEAST_PX, MOST_PX)
        _check.real("ratio", ratio, at_least=0.5, at_most=4)
        colours, self.size = named("theme", theme, THEMES), named("size", size, SIZES)
        columns, row_px = self.size.columns(width_px), self.size.row_px(width_px)
        height_px = math.ceil(len(VIEWS) / columns) * row_px
        super().__init__(width_px, height_px, ratio, colours, self.size.em_px(width_px))
        self.add_views(VIEWS, columns, row_px, self.size.line_px)

    def cell_at(self, across: float, down: float) -> tuple[int, int] | None:
        """Return the (row, column) of the heat map's cell there, None beside it.

        `across` and `down` are fractions of the picture's width and height from the top left.
        """
        return self.view(HeatMapView).cell_at(across * self.width_px, down * self.height_px)
