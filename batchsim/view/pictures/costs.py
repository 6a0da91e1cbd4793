"""Energy and cost of a request, or of a token, by batch size, beside the time that a batch takes."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from batchsim._format import duration, percent, tick
from batchsim.result.costs import costs_of
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import DASHED, Spot, View
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

    def update(self, data: ViewData) -> None:
        found, other = costs_of(data.result), None if data.other is None else costs_of(data.other.result)
        dot, highest = self.mark("D", 3.2, "now", "background", zorder=5), 100.0
        ring = self.mark("D", 3.2, "ink", markerfacecolor="none", color=self.other_style(data)["color"])
        for kind, each in found.each.items():
            style = self.style("now", DASHES[kind])
            self.plot(kind, found.sizes, 100 * each / each[0], zorder=3, label=kind, **style)
            dot["label"] = "this run, with its idle time" * (self.large and kind == [*found.each][-1])
            for key, of, costs, look in (("now", data, found, dot), ("other", data.other, other, ring)):
                if of is not None and costs is not None:
                    share = 100 * costs.run.get(kind, np.nan) / each[0]
                    self.plot((kind, key), [of.summary["mean_batch_size"]], [share], **look)
                    highest = np.nanmax([highest, share])
        last = max(int(found.sizes[-1]), 2)
        for ax in self.axes:
            self.limits(ax, x=(0.9, 1.1 * last))
            if self.changed((ax, "sizes"), last):
                powers = range(0, last.bit_length(), 1 + last // 256)
                ax.xaxis.set_major_locator(FixedLocator([1 << power for power in powers]))
        self.limits(self.ax, y=(0, nice(1.05 * float(highest))))
        self.label(self.ax.yaxis, f"per {found.unit}, alone = 100%")
        self.legend()
        words = [f"\N{BLACK DIAMOND} {kind} {found.words(kind, cost)}" for kind, cost in found.run.items()]
        self.note("costs", "\n".join(words))
        for ax in self.axes[1:]:
            self.plot("time", found.sizes, found.ms, ax, zorder=3, **self.style("ink"))
            self.limits(ax, y=(0, nice(1.05 * float(np.nanmax(found.ms)))))
            what = "batch" if found.unit == "request" else "step"
            self.label(ax.yaxis, f"time of a {what}", float(ax.get_ylim()[1]))

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
