"""The explorer's picture: six views of a scene, drawn anew at every move."""

import math

from batchsim import _check
from batchsim.result import Result
from batchsim.view.canvas.picture import Box, Picture
from batchsim.view.canvas.theme import size_of, theme_of
from batchsim.view.run.batches import BatchView, TimelineView
from batchsim.view.run.breakdown import PartsView
from batchsim.view.run.heat_map import FieldView
from batchsim.view.run.latency import LatencyView
from batchsim.view.run.load import LoadView
from batchsim.view.run.ranked import Ranked
from batchsim.view.run.scene import Scene

LEAST_PX, MOST_PX = 320, 4096
VIEWS = 6


class LivePicture(Picture):
    """Six views of a scene in one figure: 3 x 2 where there is room, else 2 x 3.

    `width_px` is in CSS pixels, of which the screen has `ratio` pixels each; `theme` is "light" or
    "dark", `size` "page" or "projector". The height follows.
    """

    def __init__(
        self, width_px: int = 1200, ratio: float = 1.0, theme: str = "light", size: str = "page"
    ) -> None:
        _check.whole("width_px", width_px, LEAST_PX, MOST_PX)
        _check.real("ratio", ratio, at_least=0.5, at_most=4)
        look, scale = theme_of(theme), size_of(size)
        columns, row_px = scale.columns(width_px), scale.row_px(width_px)
        rows = math.ceil(VIEWS / columns)
        em_px = scale.em_px(width_px)
        super().__init__(width_px, rows * row_px, ratio, look, em_px)
        self.size = scale
        self._a: tuple[Result, Ranked] | None = None

        def box(number: int) -> Box:
            row, column = divmod(number, columns)
            left, right = (round(width_px * edge / columns) for edge in (column, column + 1))
            return Box(left, row * row_px, right - left, row_px)

        with self.look():
            self.parts = PartsView(self, box(0), scale.line_px)
            self.latency = LatencyView(self, box(1), scale.line_px)
            self.load = LoadView(self, box(2), scale.line_px)
            self.batches = BatchView(self, box(3), scale.line_px)
            self.timeline = TimelineView(self, box(4), scale.line_px)
            self.field = FieldView(self, box(5), scale.line_px)

    def show(self, scene: Scene) -> None:  # type: ignore[override]  # Figure.show is pyplot's
        """Update every view."""
        result, pinned, objective_ms = scene.result, scene.pinned, scene.objective_ms
        a = None if pinned is None else pinned.result
        if a is None or self._a is None or self._a[0] is not a:  # A stays the same while B moves
            self._a = None if a is None else (a, Ranked(a))
        ranked, a_ranked = Ranked(result), None if self._a is None else self._a[1]
        self.parts.update(result, ranked, a, a_ranked)
        self.latency.update(result, ranked, objective_ms, a, scene.comparison, a_ranked)
        curves = None if pinned is None else (pinned.result, pinned.curve)
        self.load.update(result, scene.curve, scene.theory, objective_ms, curves)
        self.batches.update(result, a)
        self.timeline.update(result)
        self.field.update(scene.surface, result.scenario, objective_ms, None if a is None else a.scenario)

    def cell_at(self, across: float, down: float) -> tuple[int, int] | None:
        """Return the (row, column) of the heat map's cell there, None beside it.

        `across` and `down` are fractions of the picture's width and height from the top left.
        """
        return self.field.cell_at(across * self.width_px, down * self.height_px)
