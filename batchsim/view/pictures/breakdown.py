"""Where a request's time goes: the mean components of the latency, for ever slower requests."""

from typing import ClassVar

import numpy as np
from matplotlib.axes import Axes

from batchsim._format import duration, fixed, number, unit_of
from batchsim.view.pictures.data import GROUPS, ViewData
from batchsim.view.pictures.view import Spot, StackedView
from batchsim.view.scales import nice
from batchsim.view.theme import COMPONENTS, PHASES, ComponentStyle, in_words


class BreakdownView(StackedView):
    """The mean components of the latency, for groups of ever slower requests."""

    KEY, NAME, SHORT = "breakdown", "Where a request's time goes", "Where time goes"
    RANK = 1
    PARTS: ClassVar[dict[str, ComponentStyle]] = COMPONENTS

    def make(self) -> None:
        name = "requests, from the fastest to the slowest (%)" if self.large else "fastest to slowest (%)"
        self.ax.set_xlabel(name, loc="center" if self.large else "left")
        # From the bottom up: computing below, forming on top.
        self.add_bars(self.ax, {name: style[:2] for name, style in reversed(self.PARTS.items())})
        self.limits(self.ax, x=(0, 100))
        beside = {"xycoords": "axes fraction", "va": "center" if self.large else "baseline"}
        self.names = {name: self.text(self.ax, **beside) for name in self.bars}
        self.reserve(self.ax, max(map(in_words, self.names), key=len), 1, right=0.4)
        if not self.large:  # they are at even distances, and rarely change
            self.fixed += self.names.values()
        self.mean = self.text(self.ax, xycoords="axes fraction", va="top", color=self.look.soft)

    def update(self, data: ViewData) -> None:
        means, edges = self._means(data)
        # The latencies of an overloaded run only tell how long it was, and would hide all others.
        before = data.other if data.other is not None and data.other.overloaded == data.overloaded else None
        other = None if before is None else (before.group_means["latency"], self._means(before)[1])
        highest = self.show_bars(means, edges, other, data)
        self.limits(self.ax, y=(0, nice((1.2 if self.large else 1.05) * highest)))
        upper = self.ax.get_ylim()[1]
        self.label(self.ax.yaxis, "mean of each twentieth" if self.large else "mean", upper)
        if self.large:
            self.write(self.mean, self._mean(data, *unit_of(upper)), 0, 1, right=0.3, up=-0.3)
        self._name_parts(data, means, upper)

    def _means(self, data: ViewData) -> tuple[np.ndarray, np.ndarray]:
        """Return the means of the parts, shape (parts, groups), 0 of one that a run lacks, and the edges."""
        latency = data.group_means["latency"]
        means = [data.group_means.get(name, np.zeros_like(latency)) for name in self.bars]
        return np.array(means), np.linspace(0, 100, latency.size + 1)

    def followed(self, data: ViewData) -> tuple[float, float]:
        groups = min(data.ranked.count, GROUPS)
        group = int(data.ranked.below(data.followed_ms) * groups / data.ranked.count)
        return 100 * group / groups, 100 * (group + 1) / groups

    def _name_parts(self, data: ViewData, means: np.ndarray, upper: float) -> None:
        """Write the names of the components right of their last bars, with their means if it is large."""
        named = {
            name: row for row, name in enumerate(self.bars)
            if data.summary["served"] and (means[row].any() or (name in COMPONENTS and data.has(name)))
        }  # fmt: skip
        if not self.large:
            for name, text in self.names.items():
                up = 0.5 + 1.25 * list(named).index(name) if name in named else 0
                self.write(text, in_words(name) * (name in named), 1, 0, right=0.4, up=up)
            return
        middles, unit = np.cumsum(means[:, -1]) - means[:, -1] / 2, unit_of(upper)[1]
        places = self.apart(self.ax, [middles[row] / upper for row in named.values()], 2.3, up=True)
        heights = dict(zip(named, places, strict=True))
        for name, text in self.names.items():
            written = f"{in_words(name)}\n{self.written(data.mean_ms(name), unit)}" if name in named else ""
            self.write(text, written, 1, heights.get(name, 0), right=0.4)

    def written(self, mean_ms: float, unit_ms: float) -> str:
        """Return the mean of a part in the axis' unit."""
        mean = mean_ms / unit_ms
        return "< 0.001" if 0 < mean < 0.001 else fixed(mean)  # as little is a rounding error, and long

    def _mean(self, data: ViewData, unit: str, ms: float) -> str:
        if not data.summary["served"]:
            return "no request was served"
        if data.overloaded:
            return "overloaded: it grows with the run"
        return f"mean {fixed(data.summary['mean_latency_ms'] / ms)} {unit}"

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        if not data.summary["served"]:
            return None
        means, _ = self._means(data)
        group = min(int(x / 100 * means.shape[1]), means.shape[1] - 1)
        parts = ", ".join(
            f"{in_words(name)} {duration(mean)}"
            for name, mean in zip(self.bars, means[:, group], strict=True)
            if mean or (name in COMPONENTS and data.has(name))
        )
        step = 100 / means.shape[1]
        return Spot(self.KEY, f"Requests from {step * group:.0f} to {step * (group + 1):.0f} %: {parts}")

    def describe(self, data: ViewData) -> list[str]:
        if not data.summary["served"]:
            return []
        run = " of this run, which is overloaded" if data.overloaded else ""
        # Rounded to a nanosecond: below, differences of times contain only rounding errors.
        parts = (
            f"{in_words(name)} {number(round(data.mean_ms(name), 6))}"
            for name in self.PARTS
            if data.has(name)
        )
        return [f"Mean latency{run}: {number(data.summary['mean_latency_ms'])} ms ({', '.join(parts)})."]


class TokenBreakdownView(BreakdownView):
    """The mean phases of token generation: waiting, prefill, decode and preempted."""

    PARTS = PHASES

    def written(self, mean_ms: float, unit_ms: float) -> str:
        return duration(mean_ms)  # in its own unit: a prefill may be a thousandth of the decode
