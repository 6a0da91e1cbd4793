"""Requests of different sizes: batches as stacks of them, with the padding, and the latency by size."""

import numpy as np
from matplotlib.axes import Axes

from batchsim._format import duration, number, percent
from batchsim.result.distributions import latency_by_size
from batchsim.result.moments import Stacks, stacks
from batchsim.view.pictures.cells import rectangles
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import DASHED, Spot, Style, View
from batchsim.view.scales import nice
from batchsim.view.theme import fill_style

MOST_ROWS, SOME_ROWS = 80, 40  # of a large view, and of a small one
LEAST_ROWS = 12  # the height of a request is at most this part of the axes
PERCENTILES = {50: DASHED, 99: "-"}  # and their dashes


class SizesView(View):
    """Batches as stacks of bars as long as their requests; beside them, if it is large, latency by size."""

    KEY, NAME, SHORT = "sizes", "Batches of requests, and latency by size", "Batches of requests"
    RANK, NEEDS, LACKS = 4, "sizes", "only for requests with sizes"
    PANELS, BESIDE, FRAMED = (1.0, 1.0), True, 1

    def make(self) -> None:
        self.ax.set(yticks=[], ylabel="requests, batch by batch")
        self.ax.grid(visible=False, axis="y")
        self.ax.grid(visible=True, axis="x")
        self.latency = self.axes[1] if len(self.axes) > 1 else None
        if self.latency is not None:
            self.limits(self.latency, x=(0, 100))
            self.latency.set_xlabel("size, in tenths of the requests")

    def stacks(self, data: ViewData) -> Stacks:
        return stacks(data.result, data.window.requests, MOST_ROWS if self.large else SOME_ROWS)

    def update(self, data: ViewData) -> None:
        found = self.stacks(data)
        padded = bool(found.computed.any())
        bars: Style = self.filled("blue") | {
            "linewidth": 0.25 * self.line_pt,
            "zorder": 3,
            "label": "requests",
        }
        self.area("bars", rectangles(0 * found.row, found.size, found.row, found.row + 1), **bars)
        if padded:
            sides = 0 * found.first, found.computed, found.first, found.first + found.rows
            padding: Style = fill_style(self.look, "padded") | {"label": "padding", "zorder": 2}
            self.area("padding", rectangles(*sides), **padding)
            self.note("share", f"{percent(data.summary['padding'])} padding", bbox=self.halo)
        longest = max(found.size.max(initial=1), found.computed.max(initial=1))
        self.limits(self.ax, x=(0, nice(float(longest))), y=(max(found.height, LEAST_ROWS), 0))
        self.label(self.ax.xaxis, f"size ({data.result.scenario.workload.size_unit})")
        self.legend()
        if self.latency is not None:
            self._show_latency(self.latency, data)

    def _show_latency(self, ax: Axes, data: ViewData) -> None:
        found, shares, units = latency_by_size(data.result, [*PERCENTILES])
        for (q, dashes), values in zip(PERCENTILES.items(), found, strict=True):
            self.stairs(f"p{q}", values, shares, ax=ax, zorder=4, **self.style("ink", dashes, 0.9))
            for last in np.flatnonzero(np.isfinite(values))[-1:]:  # of the largest, all may be lost
                end: Style = {"ha": "right", "va": "bottom", "up": 0.2, "ax": ax}
                self.annotate(("name", q), f"p{q}", float(shares[last + 1]), float(values[last]), **end)
        other = None
        if data.other is not None and data.other.sizes is not None:
            of_other, edges, _ = latency_by_size(data.other.result, [*PERCENTILES])
            other = of_other[-1], edges
        highest = max(self.outline(other, data, ax=ax), float(np.nanmax(found, initial=0.0)))
        self.limits(ax, y=(0, nice(1.05 * highest)))
        self.label(ax.yaxis, "latency", float(ax.get_ylim()[1]))
        if self.changed("sizes", (shares.round(1).tolist(), units.tolist())):
            places = np.arange(0, shares.size, max(int(-(-4 * self.em_px * shares.size // ax.bbox.width)), 1))
            ax.set_xticks(shares[places], [f"{units[at]:,}" for at in places])  # an em a digit
        grows = "overloaded: it grows with the run" * data.overloaded
        self.note("grows", grows, x=0, right=0.3, up=0, ax=ax, ha="left")

    def followed(self, data: ViewData) -> tuple[float, float] | None:
        if self.latency is None:
            return None
        _, shares, units = latency_by_size(data.result, [*PERCENTILES])
        place = int(np.clip(np.searchsorted(units, data.result.size[data.followed]), 1, units.size - 1))
        return float(shares[place - 1]), float(shares[place])

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        unit = data.result.scenario.workload.size_unit
        if ax is self.latency:
            found, shares, units = latency_by_size(data.result, [*PERCENTILES])
            at = min(int(np.searchsorted(shares, x, side="right")), found.shape[1]) - 1
            p50, p99 = (duration(ms) if np.isfinite(ms) else "lost" for ms in found[:, at])
            name = f"Requests of {units[at] + (at > 0):,} to {units[at + 1]:,} {unit}"
            return Spot(self.KEY, f"{name}: p50 {p50}, p99 {p99}")
        shown = self.stacks(data)
        (found_at,) = np.nonzero(shown.row == int(y))
        if not found_at.size:
            return None
        at = int(found_at[0])
        computed, members = shown.computed[shown.batch[at]], np.sum(shown.batch == shown.batch[at])
        said = f"{shown.size[at]:,} {unit}" + (f", padded to {computed:,}" if computed else "")
        return Spot(self.KEY, f"Request {shown.requests[at]:,}: {said}, in a batch of {members:,}")

    def describe(self, data: ViewData) -> list[str]:
        if not data.summary["served"]:
            return []
        said, unit = [], data.result.scenario.workload.size_unit
        if "padding" in data.summary:
            said.append(f"{percent(data.summary['padding'])} of the {unit} that batches compute are padding.")
        found, _, units = latency_by_size(data.result, [*PERCENTILES])
        if units.size > 2 and np.isfinite(found[-1][[0, -1]]).all():
            small, large = (f"{number(ms)} ms" for ms in found[-1][[0, -1]])
            ends = f"up to {units[1]:,} {unit}: {small}; above {units[-2]:,}: {large}"
            said.append(f"The p99 of requests of {ends}.")
        return said
