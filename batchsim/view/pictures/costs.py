"""Energy and cost of a request, or of a token, by batch size, beside the time that a batch takes."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from batchsim._format import duration, percent, tick
from batchsim.result.costs import costs_of
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import DASHED, Spot, Style, View
from batchsim.view.scales import nice

DASHES = {"energy": "-", "cost": DASHED}


class CostView(View):
    """Energy and cost by batch size, relative to those of a batch of 1; beside them, the time of a batch."""

    KEY, NAME, SHORT = "costs", "Energy and cost by batch size", "Energy and cost"
    RANK, NEEDS, LACKS = 6, "paid", "only with a price or watts"
    PANELS, BESIDE = (1.0, 1.0), True

    def make(self) -> None:
        for ax in self.axes:
            ax.set(xscale="log", xlabel="batch size")
            ax.minorticks_off()
            ax.xaxis.set_major_formatter(tick)
        self.looks = {kind: self.style("now", dashes) for kind, dashes in DASHES.items()}
        self.lines = {kind: self.line(self.ax, 3, **look) for kind, look in self.looks.items()}
        diamond: Style = {"linestyle": "none", "marker": "D", "markersize": 3.2 * self.line_pt}
        self.dot = diamond | {"color": self.look.now, "markeredgecolor": self.look.background}
        self.dots = {kind: self.line(self.ax, 5, **self.dot) for kind in DASHES}
        self.other_dots = self.line(self.ax, 4, markerfacecolor="none", **diamond)
        self.costs = self.text(self.ax, xycoords="axes fraction", ha="right", va="top", color=self.look.soft)
        self.time = self.line(self.axes[-1], 3, **self.style("ink")) if len(self.axes) > 1 else None

    def update(self, data: ViewData) -> None:
        found, other = costs_of(data.result), data.other and costs_of(data.other.result)
        size, none, highest = data.summary["mean_batch_size"], np.full(found.sizes.size, np.nan), 100.0
        of_other = []
        for kind, line in self.lines.items():
            each, alone = found.each.get(kind, none), found.each.get(kind, none)[0]
            own, others = (100 * of.run.get(kind, np.nan) / alone for of in (found, other or found))
            line.set_data(found.sizes, 100 * each / alone)
            self.dots[kind].set_data([size], [own])
            of_other.append(others)
            highest = np.nanmax([highest, own, others])
        if data.other is not None:
            self.other_dots.set_color(self.other_style(data)["color"])
            self.other_dots.set_data([data.other.summary["mean_batch_size"]] * len(of_other), of_other)
        self.other_dots.set_visible(data.other is not None)
        last = max(int(found.sizes[-1]), 2)
        for ax in self.axes:
            self.limits(ax, x=(0.9, 1.1 * last))
            if self.changed((ax, "sizes"), last):
                powers = range(0, last.bit_length(), 1 + last // 256)
                ax.xaxis.set_major_locator(FixedLocator([1 << power for power in powers]))
        self.limits(self.ax, y=(0, nice(1.05 * float(highest))))
        self.label(self.ax.yaxis, f"per {found.unit}, alone = 100%")
        dot = [("this run, with its idle time", self.dot)] * self.large
        self.legend(self.ax, [*((kind, self.looks[kind]) for kind in found.each), *dot])
        words = [f"\N{BLACK DIAMOND} {kind} {found.words(kind, cost)}" for kind, cost in found.run.items()]
        self.write(self.costs, "\n".join(words) * self.large, 1, 1, up=-0.2)
        if self.time is not None:
            self.time.set_data(found.sizes, found.ms)
            self.limits(self.axes[-1], y=(0, nice(1.05 * float(np.nanmax(found.ms)))))
            what = "batch" if found.unit == "request" else "step"
            self.label(self.axes[-1].yaxis, f"time of a {what}", float(self.axes[-1].get_ylim()[1]))

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        found = costs_of(data.result)
        at = int(np.abs(np.log(found.sizes / max(x, 1))).argmin())
        costs = (found.words(kind, each[at]) for kind, each in found.each.items())
        said = ", ".join([f"{duration(float(found.ms[at]))} each", *costs])
        return Spot(self.KEY, f"Batches of {found.sizes[at]:,} without a pause: {said}")

    def describe(self, data: ViewData) -> list[str]:
        found, said = costs_of(data.result), []
        for kind, each in found.each.items() if data.summary["served"] else ():
            best = int(each.argmin())
            run, alone, least = (found.words(kind, it) for it in (found.run[kind], each[0], each[best]))
            full = (
                f"in full batches of {found.sizes[best]:,}, {least}, {percent(each[best] / each[0])} of that"
            )
            said.append(f"The {kind} is {run} in this run; alone, {alone}; {full}.")
        return said
