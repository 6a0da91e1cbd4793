"""Where a request's time goes: the mean components of the latency, for ever slower requests."""

from typing import ClassVar

import numpy as np
from matplotlib.axes import Axes

from batchsim._format import duration, fixed, number, unit_of
from batchsim.view.pictures.data import GROUPS, ViewData
from batchsim.view.pictures.view import Spot, Style, View
from batchsim.view.scales import nice
from batchsim.view.theme import COMPONENTS, PHASES, ComponentStyle, in_words


class BreakdownView(View):
    """The mean components of the latency, for groups of ever slower requests."""

    KEY, NAME, SHORT = "breakdown", "Where a request's time goes", "Where time goes"
    RANK = 1
    PARTS: ClassVar[dict[str, ComponentStyle]] = COMPONENTS

    def make(self) -> None:
        name = "requests, from the fastest to the slowest (%)" if self.large else "fastest to slowest (%)"
        self.ax.set_xlabel(name, loc="center" if self.large else "left")
        self.limits(self.ax, x=(0, 100))
        self.reserve(self.ax, max(map(in_words, self.PARTS), key=len), 1, right=0.4)

    def update(self, data: ViewData) -> None:
        means, edges = self._means(data)
        # The latencies of an overloaded run only tell how long it was, and would hide all others.
        before = data.other if data.other is not None and data.other.overloaded == data.overloaded else None
        other = None if before is None else (before.group_means["latency"], self._means(before)[1])
        styles = {name: self.filled(*style[:2]) for name, style in reversed(self.PARTS.items())}
        highest = self.stack(styles, means, edges, other, data)
        self.limits(self.ax, y=(0, nice((1.2 if self.large else 1.05) * highest)))
        upper = self.ax.get_ylim()[1]
        self.label(self.ax.yaxis, "mean of each twentieth" if self.large else "mean", upper)
        self.note("mean", self._mean(data, *unit_of(upper)), x=0, right=0.3, up=-0.3, ha="left")
        self._name_parts(data, means, unit_of(upper)[1])

    def _means(self, data: ViewData) -> tuple[np.ndarray, np.ndarray]:
        """Return the means of the parts, shape (parts, groups), 0 of one that a run lacks, and the edges."""
        latency = data.group_means["latency"]
        means = [data.group_means.get(name, np.zeros_like(latency)) for name in reversed(self.PARTS)]
        return np.array(means), np.linspace(0, 100, latency.size + 1)

    def followed(self, data: ViewData) -> tuple[float, float]:
        groups = min(data.ranked.count, GROUPS)
        group = int(data.ranked.below(data.followed_ms) * groups / data.ranked.count)
        return 100 * group / groups, 100 * (group + 1) / groups

    def _name_parts(self, data: ViewData, means: np.ndarray, unit_ms: float) -> None:
        """Write the names of the components right of their last bars, with their means if it is large."""
        middles, ends = np.cumsum(means[:, -1]) - means[:, -1] / 2, {}
        for name, each, middle in zip(reversed(self.PARTS), means, middles, strict=True):
            if data.summary["served"] and (each.any() or (name in COMPONENTS and data.has(name))):
                ends[name] = in_words(name), 100, middle
        beside: Style = {"right": 0.4, "va": "center"}
        if self.large:
            means_ms = {name: self.written(data.mean_ms(name), unit_ms) for name in ends}
            ends = {name: (f"{words}\n{means_ms[name]}", x, y) for name, (words, x, y) in ends.items()}
            return self.names(ends, 2.3, across=False, **beside)
        for row, (name, (words, *_)) in enumerate(ends.items()):  # at even distances, they rarely change
            beside = {"xycoords": "axes fraction", "va": "baseline", "still": True}
            self.annotate(("name", name), words, 1, 0, 0.4, 0.5 + 1.25 * row, **beside)

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
            for name, mean in zip(reversed(self.PARTS), means[:, group], strict=True)
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
