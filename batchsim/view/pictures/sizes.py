"""Requests of different sizes: batches as stacks of them, with the padding, and the latency by size."""

from typing import NamedTuple

import numpy as np
from matplotlib.patches import PathPatch
from matplotlib.ticker import FixedFormatter, FixedLocator

from batchsim._format import duration, number, percent
from batchsim.scenario.sized_time import padded_to, unit_cost
from batchsim.view.canvas.axes import nice
from batchsim.view.canvas.cells import NOWHERE, rectangles
from batchsim.view.canvas.picture import Box
from batchsim.view.canvas.theme import fill_style
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import Entry, Spot, View, outline

LEAST_PX, LARGEST_EM = 4, 1.4  # the height of a request
BETWEEN, ABOVE = 4.6, 3.6  # two plots side by side, or one above the other, in ems
BINS = 10
PERCENTILES = {50: (0, (4, 2)), 99: "-"}  # and their dashes


class Stacks(NamedTuple):
    """Some consecutive batches, and their requests in the order of the queue."""

    requests: np.ndarray
    size: np.ndarray
    row: np.ndarray  # of each request, from the top
    batch: np.ndarray  # of each request, its place in the columns below
    first: np.ndarray  # row of each batch
    rows: np.ndarray
    computed: np.ndarray  # units of a row; 0: its requests' own

    @property
    def height(self) -> int:
        return int(self.first[-1] + self.rows[-1]) if self.first.size else 1


def stacks(data: ViewData, most: int) -> Stacks:
    """Return the batches of a moment of the run, at least one and up to `most` rows."""
    result, scenario = data.result, data.result.scenario
    index = result.batch_index[data.window.requests]
    order = np.argsort(index, kind="stable")[np.count_nonzero(index < 0) :]
    requests = data.window.requests[order]
    size = scenario.cut(result.size[requests])
    _, begin, batch, counts = np.unique(
        index[order], return_index=True, return_inverse=True, return_counts=True
    )
    cost = unit_cost(scenario.service, scenario.rule.max_batch_size)
    longest = np.maximum.reduceat(size, begin) if counts.size else counts
    rows, computed = padded_to(counts, longest, cost)
    first = np.cumsum(rows + 1) - rows - 1  # an empty row between two
    kept = max(int(np.count_nonzero(first + rows <= most)), 1)
    row = first[batch] + np.arange(batch.size) - begin[batch]
    some = batch < kept
    requests, size, row, batch = (each[some] for each in (requests, size, row, batch))
    return Stacks(requests, size, row, batch, first[:kept], rows[:kept], computed[:kept])


def by_size(data: ViewData) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the percentiles of latency, shape (PERCENTILES, bins), by tenths of the requests by their size.

    Also the edges of the bins, in percent of the requests, and in units. Equal sizes are in one bin. A
    percentile of requests that were not served is NaN.
    """
    result, sizes = data.result, data.result.scenario.workload.sizes
    assert sizes is not None
    kept = slice(result.warmup_requests, None)
    size, latency_ms = result.size[kept], result.latency_ms[kept]
    ends = np.unique(sizes.quantile(np.arange(1, BINS) / BINS))  # of all but the last
    place = np.searchsorted(ends, size)
    order = np.argsort(place.astype(np.uint8), kind="stable")  # by radix
    counts = np.bincount(place, minlength=ends.size + 1)
    there = np.flatnonzero(counts)
    parts = np.split(latency_ms[order], np.cumsum(counts)[:-1])
    found = [[percentile(np.sort(parts[bin_]), q) for bin_ in there] for q in PERCENTILES]
    units = [size.min(initial=size.max(initial=1)), *ends[there[:-1]], size.max(initial=1)]
    shares = np.append(0.0, np.cumsum(counts[there])) / max(size.size, 1)
    return np.array(found), 100 * shares, np.array(units)


def percentile(ordered_ms: np.ndarray, q: float) -> float:
    """Return a percentile of sorted latencies, NaN at the end for requests that were not served."""
    rank = q / 100 * (ordered_ms.size - 1)
    low, high = ordered_ms[int(np.floor(rank))], ordered_ms[int(np.ceil(rank))]
    return float(low + (high - low) * (rank - np.floor(rank)))


class SizesView(View):
    """Batches as stacks of bars as long as their requests; beside them, if it is large, latency by size."""

    KEY, NAME, SHORT = "sizes", "Batches of requests, and latency by size", "Batches of requests"
    RANK, NEEDS, LACKS = 4, "sizes", "only for requests with sizes"
    SMALL_ROWS = 1

    def add_artists(self) -> None:
        theme, self.plot_box = self.theme, self.axes_box()
        self.below = True  # whether the name of the sizes is below their axis
        if self.large:  # first, as its axes frame the request that the reader follows
            self.plot_box, self.latency_box = self.two_boxes(BETWEEN, ABOVE)
            self.below = self.plot_box.top == self.latency_box.top
            self.latency = self.add_plot(self.latency_box, "size, in tenths of the requests", "latency (ms)")
            self.set_limits(self.latency, x=(0, 100))
            styles = {q: self.line_style("ink", dashes, 1.2) for q, dashes in PERCENTILES.items()}
            self.lines = {q: self.latency.stairs([0], [0, 1], baseline=None, zorder=4) for q in styles}
            self.other_line = self.latency.stairs([0], [0, 1], baseline=None, zorder=3)
            for q, style in styles.items():
                self.lines[q].set(**outline(style))
            self.line_styles = styles
            self.set_moving(*self.lines.values(), self.other_line)
        self.ax = self.add_plot(self.plot_box, "", "", grid="x", numbers="x")
        self.ax.yaxis.set_major_locator(FixedLocator([]))
        self.set_limits(self.ax, y=(1, 0))
        self.bar_style = {
            "facecolor": theme.blue,
            "edgecolor": theme.background,
            "linewidth": 0.5 * self.line_px,
        }
        self.padding_style = fill_style(theme, "padded")
        self.padding = PathPatch(NOWHERE, zorder=2, **self.padding_style)
        self.bars = PathPatch(NOWHERE, zorder=3, **self.bar_style)
        for artist in (self.padding, self.bars):
            self.ax.add_artist(artist)
        self.set_moving(self.padding, self.bars)
        self.shown: Stacks | None = None

    @property
    def pitch(self) -> float:
        """The height of a row, as a share of the plot's."""
        assert self.shown is not None
        return min(1 / self.shown.height, LARGEST_EM * self.em / self.plot_box.height)

    def update(self, data: ViewData) -> None:
        shown = self.shown = stacks(data, int(self.plot_box.height / LEAST_PX))
        pitch, unit = self.pitch, data.result.scenario.workload.size_unit
        ends = np.stack([shown.size, pitch * (shown.row + 1)], axis=-1)
        self.bars.set_path(rectangles(np.stack([0 * shown.row, pitch * shown.row], axis=-1), ends))
        padded = bool(shown.computed.any())
        self.padding.set_visible(padded)
        if padded:
            begin = np.stack([0 * shown.first, pitch * shown.first], axis=-1)
            end = np.stack([shown.computed, pitch * (shown.first + shown.rows)], axis=-1)
            self.padding.set_path(rectangles(begin, end))
        longest = max(shown.size.max(initial=1), shown.computed.max(initial=1))
        self.set_limits(self.ax, x=(0, nice(float(longest))))
        self.set_label(self.ax.xaxis if self.below else self.ax.yaxis, f"size ({unit})")
        entries = [Entry("requests", self.bar_style | {"share": 0.8})]
        if padded:
            share = data.summary["padding"]
            told = ("padding, 00.0%", f"padding, {percent(share)}") if self.large else ("padding", None)
            entries.append(Entry(told[0], self.padding_style, told[1]))
        if self.large:
            entries += self._show_latency(data)
        self.show_legend(entries)

    def _show_latency(self, data: ViewData) -> list[Entry]:
        found, shares, units = by_size(data)
        for line, values in zip(self.lines.values(), found, strict=True):
            line.set_data(values, shares)
        other = data.other if data.other is not None and data.other.sizes is not None else None
        self.other_line.set_visible(other is not None)
        highest = float(np.nanmax(found, initial=0.0))
        if other is not None:
            of_other, edges, _ = by_size(other)
            self.other_line.set_data(of_other[-1], edges)
            self.other_line.set(**outline(self.other_style(data)))
            highest = max(highest, float(np.nanmax(of_other[-1], initial=0.0)))
        self.set_limits(self.latency, y=(0, nice(1.05 * highest)))
        self.set_label(self.latency.yaxis, "latency", float(self.latency.get_ylim()[1]))
        if self.hold("sizes", (shares.round(1).tolist(), units.tolist())):
            step = -(-4 * self.em * shares.size // self.latency_box.width)  # an em a digit
            places = np.arange(0, shares.size, max(int(step), 1))
            self.latency.xaxis.set_major_locator(FixedLocator(shares[places].tolist()))
            self.latency.xaxis.set_major_formatter(FixedFormatter([f"{units[at]:,}" for at in places]))
        entries = [Entry(f"p{q}", style) for q, style in self.line_styles.items()]
        if data.overloaded:
            entries.append(Entry("", value="overloaded: it grows with the run"))
        return entries

    def followed(self, data: ViewData) -> tuple[float, float] | None:
        if not self.large:
            return None
        _, shares, units = by_size(data)
        place = int(np.clip(np.searchsorted(units, data.result.size[data.followed]), 1, units.size - 1))
        return float(shares[place - 1]), float(shares[place])

    def spot(self, x_px: float, y_px: float, data: ViewData) -> Spot | None:
        unit = data.result.scenario.workload.size_unit
        if self.large and self.latency_box.overlaps(Box(x_px, y_px, 1e-6, 1e-6)):
            found, shares, units = by_size(data)
            across = 100 * (x_px - self.latency_box.left) / self.latency_box.width
            at = min(int(np.searchsorted(shares, across, side="right")), found.shape[1]) - 1
            p50, p99 = (duration(ms) if np.isfinite(ms) else "lost" for ms in found[:, at])
            name = f"Requests of {units[at] + (at > 0):,} to {units[at + 1]:,} {unit}"
            return Spot(self.KEY, f"{name}: p50 {p50}, p99 {p99}")
        shown, box = self.shown, self.plot_box
        if shown is None or self.across(x_px, y_px) is None:
            return None
        row = int((y_px - box.top) / box.height / self.pitch)
        (found_at,) = np.nonzero(shown.row == row)
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
        found, _, units = by_size(data)
        if units.size > 2 and np.isfinite(found[-1][[0, -1]]).all():
            small, large = (f"{number(ms)} ms" for ms in found[-1][[0, -1]])
            ends = f"up to {units[1]:,} {unit}: {small}; above {units[-2]:,}: {large}"
            said.append(f"The p99 of requests of {ends}.")
        return said
