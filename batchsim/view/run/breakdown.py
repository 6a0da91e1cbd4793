"""Where a request's time goes: forming, queueing and computing, for ever slower requests."""

import math

import numpy as np

from batchsim._format import duration, fixed, unit_of
from batchsim.result import Result
from batchsim.view.canvas.picture import Box, Picture
from batchsim.view.canvas.view import Name, View, nice, overloaded
from batchsim.view.run.ranked import Ranked

PARTS = {
    "forming": ("orange", "//", 2.0),
    "queueing": ("purple", "\\\\", 4.0),
    "computing": ("blue", "", 5.0),
}


class PartsView(View):
    """Where the time goes: the mean parts of the latency, for ever slower requests."""

    GROUPS = 20

    def __init__(self, picture: Picture, box: Box, line_px: float = 1.6) -> None:
        super().__init__(picture, box, "Where a request's time goes", line_px)
        theme = self.theme
        across = "requests, from fastest to slowest (%)"
        ax = self.ax = self.add_frame(self.frame(), across, "mean of the group (ms)")
        edges, none = np.linspace(0, 100, self.GROUPS + 1), np.zeros(self.GROUPS)
        self.bars = {
            name: ax.stairs(
                none, edges, baseline=none, fill=True, facecolor=getattr(theme, colour),
                edgecolor=theme.background, linewidth=0, hatch=hatch, zorder=2,
            )
            for name, (colour, hatch, _) in reversed(PARTS.items())
        }  # fmt: skip
        self.a_total = ax.stairs(
            none,
            edges,
            baseline=None,
            color=theme.ink,
            linestyle="--",
            linewidth=0.8 * line_px,
            zorder=3,
        )
        self.moves(*self.bars.values(), self.a_total)
        self.limit(ax, x=(0, 100))

    def update(
        self,
        result: Result,
        ranked: Ranked | None = None,
        pinned: Result | None = None,
        a_ranked: Ranked | None = None,
    ) -> None:
        """Show a result; `pinned` is A, held against it."""
        ranked = ranked or Ranked(result)
        groups = min(max(ranked.count, 1), self.GROUPS)
        means = ranked.group_means([getattr(result, f"{name}_ms") for name in self.bars], groups)
        edges, base = np.linspace(0, 100, groups + 1), np.zeros(groups)
        for bars, mean in zip(self.bars.values(), means, strict=True):
            top = base + mean
            bars.set_data(top, edges, baseline=base)  # type: ignore[arg-type]
            base = top
        highest = float(base.max())
        self.a_total.set_visible(pinned is not None)
        if pinned is not None:
            a_ranked = a_ranked or Ranked(pinned)
            groups = min(max(a_ranked.count, 1), self.GROUPS)
            (total,) = a_ranked.group_means([pinned.latency_ms], groups)
            self.a_total.set_data(total, np.linspace(0, 100, groups + 1))
            highest = max(highest, float(total.max()))
        self.in_time(self.ax.yaxis, "mean of the group", highest or 1.0, "y")
        self.limit(self.ax, y=(0, nice(1.05 * highest)))
        self._name(result, pinned, *unit_of(highest or 1.0))

    def _name(self, result: Result, pinned: Result | None, unit: str, ms: float) -> None:
        theme = self.theme
        names: list[Name | None] = [
            Name.of(name, facecolor=getattr(theme, colour), edgecolor=theme.background, lw=0, hatch=hatch)
            for name, (colour, hatch, _) in PARTS.items()
        ]
        names.append(None)
        means = _means(result, ms)
        wide = "00.0"
        if pinned is not None:
            mark = {"color": theme.ink, "linestyle": "--", "linewidth": 0.8 * self.line_px}
            names += [Name.of(f"A mean {wide} ms", True, **mark), Name.of(f"B mean {wide} ms", True)]
            # Each in its own unit: an overloaded one may be a thousand times the other.
            told = [
                f"{name} mean {duration(run.mean_latency_ms)}" for name, run in (("A", pinned), ("B", result))
            ]
        elif not result.metrics.served:
            names.append(Name.of("none was served"))
            told = []
        elif overloaded(result):
            names.append(Name.of("overloaded: it grows with the run"))
            told = []
        else:
            names.append(Name.of(f"mean {' + '.join([wide] * len(PARTS))} = {wide} {unit}", True))
            told = [f"mean {' + '.join(means[:-1])} = {means[-1]} {unit}"]
        self.name(names, told)


def _means(result: Result, ms: float) -> list[str]:
    """Return the mean parts and the mean latency, with as many places as the latter needs."""
    latency = result.mean_latency_ms / ms
    places = len(fixed(latency).partition(".")[2])
    parts = [result.metrics.numbers[f"mean_{part}_ms"] / ms for part in PARTS]
    return [fixed(value) if math.isnan(value) else f"{value:,.{places}f}" for value in (*parts, latency)]
