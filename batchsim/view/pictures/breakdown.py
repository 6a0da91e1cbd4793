"""Where a request's time goes: the mean components of the latency, for ever slower requests."""

from typing import ClassVar

import numpy as np

from batchsim._format import duration, fixed, number, unit_of
from batchsim.view.canvas.axes import nice
from batchsim.view.canvas.lettering import Label, apart
from batchsim.view.canvas.theme import COMPONENTS, PHASES, ComponentStyle, in_words
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import Entry, Heights, Spot, StackedView

GROUPS = 20
NAME_ROOM, SMALL_NAME_ROOM = 6.6, 5.2  # right of the axes, in ems


class BreakdownView(StackedView):
    """The mean components of the latency, for groups of ever slower requests."""

    KEY, NAME, SHORT = "breakdown", "Where a request's time goes", "Where time goes (ms)"
    RANK = 1
    PARTS: ClassVar[dict[str, ComponentStyle]] = COMPONENTS

    def add_artists(self) -> None:
        box = self.plot_box = self.axes_box(right=NAME_ROOM if self.large else SMALL_NAME_ROOM)
        requests = "requests, from the fastest to the slowest (%)" if self.large else "fastest to slowest (%)"
        self.ax = self.add_plot(box, requests, "")
        # From the bottom up: computing below, forming on top.
        styles = {name: (style.colour, style.hatch) for name, style in reversed(self.PARTS.items())}
        self.add_bars(self.ax, styles)
        self.set_limits(self.ax, x=(0, 100))

    def update(self, data: ViewData) -> None:
        means, edges = _group_means(data, *self.bars)
        # The latencies of an overloaded run only tell how long it was, and would hide all others.
        before = data.other if data.other is not None and data.other.overloaded == data.overloaded else None
        of_other = None if before is None else _group_means(before, "latency")
        other = of_other and (of_other[0][0], of_other[1])
        highest = self.show_bars(means, edges, other, self.other_style(data))
        self.set_limits(self.ax, y=(0, nice(1.05 * highest)))
        upper = self.ax.get_ylim()[1]
        self.set_label(self.ax.yaxis, "mean of each twentieth" if self.large else "", upper)
        self.show_legend(
            [Entry("", value=self._mean(data, *unit_of(upper)))], self._names(data, means, upper)
        )

    def followed(self, data: ViewData) -> tuple[float, float]:
        groups = min(data.ranked.count, GROUPS)
        group = int(data.ranked.below(data.followed_ms) * groups / data.ranked.count)
        return 100 * group / groups, 100 * (group + 1) / groups

    def _names(self, data: ViewData, means: np.ndarray, upper: float) -> list[Label]:
        """Return the names of the components with their means, right of their last bars."""
        if not data.summary["served"]:
            return []
        named = [
            row for row, name in enumerate(self.bars)
            if means[row].any() or (name in COMPONENTS and data.has(name))
        ]  # fmt: skip
        box, last = self.plot_box, means[:, -1]
        middles = np.cumsum(last) - last / 2
        line, unit = 1.3 * self.em, unit_of(upper)[1]
        lines = 2 if self.large else 1  # the name, and the mean
        places = apart(
            [box.bottom - box.height * each / upper for each in middles[named]],
            lines * line,
            box.top + line,
            box.bottom - (lines - 1) * line,
        )
        labels = []
        for name, place in zip(np.array([*self.bars])[named], places, strict=True):
            labels.append(Label(in_words(name), box.right + 0.5 * self.em, place))
            if self.large:
                labels.append(
                    Label(self.written(data.mean_ms(name), unit), box.right + 0.5 * self.em, place + line)
                )
        return labels

    def written(self, mean_ms: float, unit_ms: float) -> str:
        """Return the mean of a part in the axis' unit."""
        return fixed(mean_ms / unit_ms)

    def _mean(self, data: ViewData, unit: str, ms: float) -> str:
        if not data.summary["served"]:
            return "no request was served"
        if data.overloaded:
            return "overloaded: it grows with the run"
        return f"mean {fixed(data.summary['mean_latency_ms'] / ms)} {unit}"

    def spot(self, x_px: float, y_px: float, data: ViewData) -> Spot | None:
        across = self.across(x_px, y_px)
        if across is None or not data.summary["served"]:
            return None
        means, _ = _group_means(data, *self.bars)
        group = int(across * means.shape[1])
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


def _group_means(data: ViewData, *parts: str) -> Heights:
    """Return the means of parts, shape (parts, groups), over groups of equal size, and their edges."""
    groups = min(max(data.ranked.count, 1), GROUPS)
    means = np.zeros((len(parts), groups))
    there = [row for row, part in enumerate(parts) if data.has(part)]
    means[there] = data.ranked.group_means([data.part_ms(parts[row]) for row in there], groups)
    return means, np.linspace(0, 100, groups + 1)
