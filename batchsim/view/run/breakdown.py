"""Where a request's time goes: forming, queueing and computing, for ever slower requests."""

import numpy as np

from batchsim._format import duration, fixed, number, unit_of
from batchsim.view.canvas.scales import nice
from batchsim.view.canvas.theme import COMPONENTS
from batchsim.view.run.data import ViewData
from batchsim.view.run.view import NEW_ROW, Entry, StackedView, Steps

GROUPS = 20
WIDEST = "00.0"  # a mean in the legend


class BreakdownView(StackedView):
    """The mean components of the latency, for groups of ever slower requests."""

    NAME = "Where a request's time goes"

    def add_artists(self) -> None:
        across = "requests, from fastest to slowest (%)"
        self.ax = self.add_plot(self.axes_box(), across, "mean of the group (ms)")
        # From the bottom up: computing below, forming on top.
        styles = {name: (style.colour, style.hatch) for name, style in reversed(COMPONENTS.items())}
        self.add_bars(self.ax, styles)
        self.set_limits(self.ax, x=(0, 100))

    def update(self, data: ViewData) -> None:
        means, edges = _group_means(data, *(f"{name}_ms" for name in self.bars))
        of_a = None if data.pinned is None else _group_means(data.pinned, "latency_ms")
        highest = self.show_bars(means, edges, of_a and (of_a[0][0], of_a[1]))
        self.set_label(self.ax.yaxis, "mean of the group", highest or 1.0)
        self.set_limits(self.ax, y=(0, nice(1.05 * highest)))
        names = [Entry(name, self.styles[name]) for name in COMPONENTS]
        self.show_legend([*names, NEW_ROW, *self._means(data, *unit_of(highest or 1.0))])

    def _means(self, data: ViewData, unit: str, ms: float) -> list[Entry]:
        """Return the entries of the means; those of A and B each in a unit of its own."""
        if data.pinned is not None:
            a, b = (duration(each.summary["mean_latency_ms"]) for each in (data.pinned, data))
            first = Entry(f"A mean {WIDEST} ms", self.a_style, f"A mean {a}")
            return [first, Entry(f"B mean {WIDEST} ms", value=f"B mean {b}")]
        if not data.summary["served"]:
            return [Entry("no request was served")]
        if data.overloaded:
            return [Entry("overloaded: it grows with the run")]
        mean = data.summary["mean_latency_ms"] / ms
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
        return [f"Mean latency{run}: {number(data.summary['mean_latency_ms'])} ms ({', '.join(parts)})."]


def _group_means(data: ViewData, *columns: str) -> Steps:
    """Return the means of columns, shape (columns, groups), over groups of equal size, and their edges."""
    groups = min(max(data.ranked.count, 1), GROUPS)
    means = data.ranked.group_means([getattr(data.result, column) for column in columns], groups)
    return means, np.linspace(0, 100, groups + 1)
