"""The p99 of a whole grid of settings, as colours: the live heat map."""

import math

import numpy as np
from matplotlib.axes import Axes

from batchsim._format import duration
from batchsim.view.canvas.colours import colours
from batchsim.view.run.data import ViewData
from batchsim.view.run.grid import GridView


class HeatMapView(GridView):
    """The p99 of all requests over two parameters of the rule."""

    NAME, SHORT = "p99 of every setting at this load", "p99 of every setting"
    BEST = "best 00.0 ms at 00, 00.0 ms"

    def cell_values(self, data: ViewData) -> np.ndarray:
        surface = data.surface
        return np.where(surface.overloaded | surface.refused, np.nan, surface.p99_ms)

    def colours(self, values: np.ndarray, data: ViewData) -> np.ndarray:
        return colours(values, data.objective_ms)

    def within(self, values: np.ndarray, data: ViewData) -> np.ndarray:
        limit_ms = math.nan if data.objective_ms is None else data.objective_ms
        return np.asarray(values <= limit_ms)

    def has_objective(self, data: ViewData) -> bool:
        return data.objective_ms is not None

    def show_scale(self, bar: Axes, values: np.ndarray, data: ViewData) -> None:
        self.show_durations(bar, values, data.objective_ms)

    def figure(self, data: ViewData, cell: tuple[int, int]) -> str:
        return duration(float(data.surface.p99_ms[cell]))

    def said(self, data: ViewData, cell: tuple[int, int]) -> str:
        lost = math.isinf(data.surface.p99_ms[cell])
        return "more than 1 % are lost" if lost else f"p99 {self.figure(data, cell)}"

    def verdict(self, data: ViewData) -> str:
        if data.surface.best() is None:
            return "serves 99 of 100 requests"
        if data.objective_ms is None:
            return ""
        return f"; {int(self.within(self.cell_values(data), data).sum())} meet the objective"
