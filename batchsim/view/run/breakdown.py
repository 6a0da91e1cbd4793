"""Where a request's time goes: forming, queueing and computing, for ever slower requests."""

from collections.abc import Iterable

import numpy as np

from batchsim._format import duration, fixed, number, unit_of
from batchsim.view.canvas.scales import nice
from batchsim.view.canvas.theme import COMPONENTS
from batchsim.view.run.data import ViewData
from batchsim.view.run.view import NEW_ROW, Entry, View

GROUPS = 20
WIDEST = "00.0"  # a mean in the legend


class BreakdownView(View):
    """The mean components of the latency, for groups of ever slower requests."""

    NAME = "Where a request's time goes"

    def add_artists(self) -> None:
        across = "requests, from fastest to slowest (%)"
        ax = self.ax = self.add_plot(self.axes_box(), across, "mean of the group (ms)")
        edges, zeros = np.linspace(0, 100, GROUPS + 1), np.zeros(GROUPS)
        self.styles = {name: self.bar_style(style.colour, style.hatch) for name, style in COMPONENTS.items()}
        self.bars = {  # from the bottom up: computing below, forming on top
            name: ax.stairs(zeros, edges, baseline=zeros, fill=True, zorder=2, **style)
            for name, style in reversed(self.styles.items())
        }
        self.a_total = ax.stairs(zeros, edges, baseline=None, zorder=3, **self.a_style)
        self.set_moving(*self.bars.values(), self.a_total)
        self.set_limits(ax, x=(0, 100))

    def update(self, data: ViewData) -> None:
        means, edges = _group_means(data, (f"{name}_ms" for name in self.bars))
        base = np.zeros(len(edges) - 1)
        for bars, mean in zip(self.bars.values(), means, strict=True):
            bars.set_data(base + mean, edges, baseline=base)  # type: ignore[arg-type]
            base = base + mean
        highest = float(base.max())
        self.a_total.set_visible(data.pinned is not None)
        if data.pinned is not None:
            (total,), edges = _group_means(data.pinned, ["latency_ms"])
            self.a_total.set_data(total, edges)
            highest = max(highest, float(total.max()))
        self.set_label(self.ax.yaxis, "mean of the group", highest or 1.0)
        self.set_limits(self.ax, y=(0, nice(1.05 * highest)))
        names = [Entry(name, style) for name, style in self.styles.items()]
        self.show_legend([*names, NEW_ROW, *self._means(data, *unit_of(highest or 1.0))])

    def _means(self, data: ViewData, unit: str, ms: float) -> list[Entry]:
        """Return the entries of the means; those of A and B each in a unit of its own."""
        if data.pinned is not None:
            a, b = (duration(mean_ms(each)) for each in (data.pinned, data))
            return [
                Entry(f"A mean {WIDEST} ms", self.a_style, f"A mean {a}"),
                Entry(f"B mean {WIDEST} ms", value=f"B mean {b}"),
            ]
        if not data.summary["served"]:
            return [Entry("no request was served")]
        if data.overloaded:
            return [Entry("overloaded: it grows with the run")]
        mean = mean_ms(data) / ms
        decimals = len(fixed(mean).partition(".")[2])  # the sum's, so that it can be checked by eye
        parts = [f"{data.summary[f'mean_{name}_ms'] / ms:,.{decimals}f}" for name in COMPONENTS]
        widest = f"mean {' + '.join([WIDEST] * len(parts))} = {WIDEST} {unit}"
        return [Entry(widest, value=f"mean {' + '.join(parts)} = {mean:,.{decimals}f} {unit}")]

    def describe(self, data: ViewData) -> list[str]:
        if not data.summary["served"]:
            return []
        run = " of this run, which is overloaded" if data.overloaded else ""
        # Rounded to a nanosecond: what differences of times leave below it is rounding.
        parts = (f"{name} {number(round(data.summary[f'mean_{name}_ms'], 6))}" for name in COMPONENTS)
        return [f"Mean latency{run}: {number(mean_ms(data))} ms ({', '.join(parts)})."]


def mean_ms(data: ViewData) -> float:
    """Return the mean latency."""
    return float(data.summary["mean_latency_ms"])


def _group_means(data: ViewData, columns: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the means of columns, shape (columns, groups), over groups of equal size, and their edges."""
    groups = min(max(data.ranked.count, 1), GROUPS)
    means = data.ranked.group_means([getattr(data.result, column) for column in columns], groups)
    return means, np.linspace(0, 100, groups + 1)
