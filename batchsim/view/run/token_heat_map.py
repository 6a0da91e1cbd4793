"""The goodput, or the p99 of TTFT, of a whole grid of settings of token generation: the live heat map."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator

from batchsim._format import duration, percent, rate, tick
from batchsim.scenario import Continuous
from batchsim.study.surface import GOODPUT, TTFT_P99
from batchsim.view.canvas.colours import colours, shades
from batchsim.view.canvas.scales import nice
from batchsim.view.run.data import ViewData
from batchsim.view.run.grid import GridView
from batchsim.view.run.token_data import of_tokens
from batchsim.view.run.view import SMALL

NAMES = {TTFT_P99: "p99 TTFT of every setting at this load", GOODPUT: "Goodput of every setting at this load"}
SHORT = {TTFT_P99: "p99 TTFT of every setting", GOODPUT: "Goodput of every setting"}
MOST = 0.99  # of the requests: a setting where these keep both objectives is within them


class TokenHeatMapView(GridView):
    """Over two knobs of `Continuous`: goodput, where both objectives are set, else the p99 of TTFT.

    A bold line surrounds the cells in which 99 of 100 requests keep both objectives, or the one on TTFT.
    """

    NAME, SHORT = NAMES[GOODPUT], SHORT[GOODPUT]  # until it is known whether there are objectives
    SMALL_ROOM = SMALL._replace(left=3.7)  # for budgets of five digits
    BEST = "best 00.0/s (00.0%) at 000, 00000"

    def update(self, data: ViewData) -> None:
        metric = of_tokens(data).surface.metric
        if self.hold("metric", metric):
            self.title.set_text((NAMES if self.large else SHORT)[metric])
        super().update(data)

    def label(self, surface: Any, name: str) -> str:
        if isinstance(surface.scenario.rule, Continuous):
            return name  # as the servers call it
        return super().label(surface, name)

    def cell_values(self, data: ViewData) -> np.ndarray:
        return of_tokens(data).surface.values

    def colours(self, values: np.ndarray, data: ViewData) -> np.ndarray:
        data = of_tokens(data)
        if data.surface.metric == GOODPUT:
            return shades(values, self._highest(values))
        return colours(values, data.ttft_ms)

    def within(self, values: np.ndarray, data: ViewData) -> np.ndarray:
        data = of_tokens(data)
        if data.surface.metric == GOODPUT:
            return np.asarray(data.surface.attainment >= MOST)
        return np.asarray(values <= (math.nan if data.ttft_ms is None else data.ttft_ms))

    def has_objective(self, data: ViewData) -> bool:
        # Goodput has one colour, and its shade is the number.
        data = of_tokens(data)
        return data.surface.metric == TTFT_P99 and data.ttft_ms is not None

    def show_scale(self, bar: Axes, values: np.ndarray, data: ViewData) -> None:
        data = of_tokens(data)
        if data.surface.metric == TTFT_P99:
            self.show_durations(bar, values, data.ttft_ms)
        elif self.hold("colours", highest := self._highest(values)):
            bar.set_yscale("linear")
            bar.set_ylim(0, highest)
            self.scale.set_data(shades(np.linspace(0, highest, 256)[:, None], highest))
            bar.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
            bar.yaxis.set_minor_locator(FixedLocator([]))
            bar.yaxis.set_major_formatter(tick)
            self.unit.set_text("per s")

    def _highest(self, values: np.ndarray) -> float:
        return nice(float(np.nanmax(values, initial=0.0)))

    def figure(self, data: ViewData, cell: tuple[int, int]) -> str:
        surface = of_tokens(data).surface
        if surface.metric == GOODPUT:
            return f"{rate(float(surface.goodput_per_s[cell]))} ({percent(float(surface.attainment[cell]))})"
        return duration(float(surface.ttft_p99_ms[cell]))

    def said(self, data: ViewData, cell: tuple[int, int]) -> str:
        surface = of_tokens(data).surface
        if surface.metric == GOODPUT:
            share = percent(float(surface.attainment[cell]))
            return f"goodput {rate(float(surface.goodput_per_s[cell]))}, {share} of the requests"
        lost = math.isinf(surface.ttft_p99_ms[cell])
        return "more than 1 % are lost" if lost else f"p99 TTFT {self.figure(data, cell)}"

    def verdict(self, data: ViewData) -> str:
        data = of_tokens(data)
        of_goodput = data.surface.metric == GOODPUT
        if data.surface.best() is None:
            return f"serves {'a request within both objectives' if of_goodput else '99 of 100 requests'}"
        if data.ttft_ms is None:
            return ""
        count = int(self.within(self.cell_values(data), data).sum())
        what = "keep both objectives for 99 of 100 requests" if of_goodput else "meet the objective"
        return f"; {count} {what}"
