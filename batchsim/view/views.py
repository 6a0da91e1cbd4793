"""From data to matplotlib: each view is a set of artists that are made once and then updated."""

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch

from batchsim.engines.plan import Trigger
from batchsim.result import Result

if TYPE_CHECKING:
    from batchsim.theory import Answer

# Okabe and Ito's colours, which most colour-blind people can tell apart. Each also has a second
# channel: a line style, a width or a hatch.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#999999"

PARTS = {"forming": (ORANGE, 2.0), "queueing": (PURPLE, 4.0), "computing": (BLUE, 5.0)}
PERCENTILES = {50: (BLACK, "-"), 95: (VERMILION, "--"), 99: (VERMILION, ":")}
TRIGGERS = {
    Trigger.FULL: (BLUE, "", "full"),
    Trigger.ENOUGH: (GREEN, "..", "enough came"),
    Trigger.TIMEOUT: (ORANGE, "//", "wait was over"),
    Trigger.BACKLOG: (PURPLE, "\\\\", "a server became free"),
    Trigger.DRAIN: (GREY, "xx", "end of the run"),
}
TIMELINE_REQUESTS = 30


@dataclass(frozen=True)
class LoadCurve:
    """A setting's latency and throughput at several arrival rates, all arrays of shape (rates,)."""

    rate_per_s: np.ndarray
    p50_ms: np.ndarray
    p99_ms: np.ndarray
    throughput_per_s: np.ndarray
    capacity_per_s: float


class View(Protocol):
    """One subject of the picture, in its place."""

    def update(self, result: Result) -> None:
        """Show another result."""


class LatencyView:
    """The distribution of latency, with its percentiles."""

    BINS = 60

    def __init__(self, figure: Figure, place: SubplotSpec) -> None:
        ax = self.ax = _axes(figure, place, "Latency of a request", "latency (ms)", "% of requests")
        self.bars = ax.stairs(np.zeros(self.BINS), np.arange(self.BINS + 1), fill=True, color=SKY)
        self.lines = {
            q: ax.axvline(0, ymax=0.6, color=colour, linestyle=style, linewidth=1.6)
            for q, (colour, style) in PERCENTILES.items()
        }
        self.legend = ax.legend(list(self.lines.values()), ["p99 = 0000.0 ms"] * 3, loc="upper right")

    def update(self, result: Result) -> None:
        latency_ms = result.latency_ms[~np.isnan(result.latency_ms)]
        upper = nice(1.15 * float(latency_ms.max())) if latency_ms.size else 1.0
        edges = np.linspace(0, upper, self.BINS + 1)
        share = 100 * np.histogram(latency_ms, edges)[0] / max(latency_ms.size, 1)
        self.bars.set_data(share, edges)
        for (q, line), text in zip(self.lines.items(), self.legend.get_texts(), strict=True):
            line.set_xdata([result.percentile(q)] * 2)
            text.set_text(f"p{q} = {result.percentile(q):.1f} ms")
        self.ax.set(xlim=(0, upper), ylim=(0, nice(1.45 * float(share.max()) + 1e-9)))

    def show_intervals(self, result: Result) -> None:
        """Put each percentile's 95 % interval round it as a band, where there is one."""
        for q, (colour, _) in PERCENTILES.items():
            low, high = interval(result, f"p{q}_ms")
            if low < high:
                self.ax.axvspan(low, high, ymax=0.6, color=colour, alpha=0.18, linewidth=0)

    def show_theory(self, answer: "Answer") -> None:
        """Draw the distribution that theory expects, or its mean where it knows no more."""
        edges = np.asarray(self.bars.get_data()[1])
        below = answer.below(edges)
        if below is None:
            name = f"{answer.model}: mean" + ("" if answer.exact else ", approximately")
            line: Artist = self.ax.axvline(answer.mean_latency_ms, ymax=0.6, color=GREEN, linestyle="-.")
        else:
            share = 100 * np.diff(below, prepend=0.0)[1:]
            line = self.ax.stairs(share, edges, color=GREEN, linewidth=1.4)
            name = f"{answer.model}: theory"
            if share.max() > self.ax.get_ylim()[1] / 1.45:
                self.ax.set_ylim(0, nice(1.45 * float(share.max())))
        texts = [text.get_text() for text in self.legend.get_texts()]
        self.legend = self.ax.legend([*self.lines.values(), line], [*texts, name], loc="upper right")


class PartsView:
    """Where the time goes: the mean parts of the latency, for ever slower requests."""

    GROUPS = 20

    def __init__(self, figure: Figure, place: SubplotSpec) -> None:
        title, across = "Where the time goes", "requests, from fastest to slowest (%)"
        ax = self.ax = _axes(figure, place, title, across, "mean of the group (ms)")
        self.edges = np.linspace(0, 100, self.GROUPS + 1)
        hatches = {"forming": "//", "queueing": "\\\\", "computing": ""}
        self.bars = {
            name: ax.stairs(
                np.zeros(self.GROUPS),
                self.edges,
                baseline=np.zeros(self.GROUPS),
                fill=True,
                facecolor=colour,
                edgecolor="white",
                hatch=hatches[name],
                label=name,
            )
            for name, (colour, _) in reversed(PARTS.items())
        }
        ax.legend(loc="upper left", reverse=True)
        ax.set_xlim(0, 100)

    def update(self, result: Result) -> None:
        served = np.flatnonzero(~np.isnan(result.latency_ms))
        groups = np.array_split(served[np.argsort(result.latency_ms[served], kind="stable")], self.GROUPS)
        base = np.zeros(self.GROUPS)
        for name, bars in self.bars.items():
            column = getattr(result, f"{name}_ms")
            top = base + np.array([column[group].mean() if group.size else 0.0 for group in groups])
            bars.set_data(top, self.edges, baseline=base)  # type: ignore[arg-type]
            base = top
        self.ax.set_ylim(0, nice(1.3 * float(base.max()) + 1e-9))


class LoadView:
    """Latency and throughput against the arrival rate, with today's point on the curves."""

    def __init__(self, figure: Figure, place: SubplotSpec) -> None:
        inner = place.subgridspec(2, 1, height_ratios=[1, 1], hspace=0.12)
        top = self.top = _axes(figure, inner[0], "Load: today's point on its curve", "", "latency (ms)")
        low = self.low = _axes(figure, inner[1], "", "arrival rate (requests/s)", "finished/s")
        top.tick_params(labelbottom=False)
        top.set_yscale("log")
        # Plain numbers: a log axis otherwise sets its labels as mathematics, which is slow.
        top.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        top.yaxis.set_minor_formatter(lambda *_: "")
        low.xaxis.set_major_formatter(_short)
        low.yaxis.set_major_formatter(_short)
        (self.p99,) = top.plot([], [], color=VERMILION, linestyle=":", marker=".", label="p99")
        (self.p50,) = top.plot([], [], color=BLACK, marker=".", label="p50")
        (self.done,) = low.plot([], [], color=BLUE, marker=".")
        self.limits = [ax.axvline(0, color=GREY, linestyle="-.", label="capacity") for ax in (top, low)]
        self.today = [
            ax.plot([], [], "D", color=colour, markersize=8, markeredgecolor="white")[0]
            for ax, colour in ((top, VERMILION), (top, BLACK), (low, BLUE))
        ]
        # Throughput rises with the load: below its line there is always room.
        low.legend(handles=[self.p50, self.p99, self.limits[0]], loc="lower right", ncols=3)

    def show_curve(self, curve: LoadCurve) -> None:
        """Show another setting's curves."""
        self.p99.set_data(curve.rate_per_s, curve.p99_ms)
        self.p50.set_data(curve.rate_per_s, curve.p50_ms)
        self.done.set_data(curve.rate_per_s, curve.throughput_per_s)
        for line in self.limits:
            line.set_xdata([curve.capacity_per_s] * 2)
        self.right = float(curve.rate_per_s[-1])
        self.highest = float(np.nanmax(curve.p99_ms))
        self.lowest = float(np.nanmin(curve.p50_ms))
        self.most = float(curve.throughput_per_s.max())

    def update(self, result: Result) -> None:
        rate = result.summary()["offered_per_s"]
        p50, p99 = result.percentile(50), result.percentile(99)
        heights = (p99, p50, result.throughput_per_s)
        for marker, height in zip(self.today, heights, strict=True):
            marker.set_data([rate], [height])
        right = nice(max(self.right, 1.05 * rate))
        self.top.set(xlim=(0, right), ylim=_decades(min(self.lowest, p50), max(self.highest, p99)))
        self.low.set(xlim=(0, right), ylim=(0, nice(1.25 * max(self.most, result.throughput_per_s))))


class BatchView:
    """How large the batches are, and why they left."""

    def __init__(self, figure: Figure, place: SubplotSpec) -> None:
        title = "Batches, by why they left"
        ax = self.ax = _axes(figure, place, title, "batch size (requests)", "% of batches")
        self.bars = {
            trigger: ax.stairs(
                [0],
                [0, 1],
                baseline=[0],
                fill=True,
                facecolor=colour,
                edgecolor="white",
                linewidth=0,
                hatch=hatch,
                label=label,
            )
            for trigger, (colour, hatch, label) in TRIGGERS.items()
        }
        self.shown: tuple[str, ...] = ()

    def update(self, result: Result) -> None:
        batches, largest = result.batches, result.scenario.rule.max_batch_size
        edges = np.arange(0.5, largest + 1)
        base = np.zeros(largest)
        for trigger, bars in self.bars.items():
            counts = np.bincount(batches.batch_size[batches.trigger == trigger], minlength=largest + 1)[1:]
            top = base + 100 * counts / max(len(batches), 1)
            bars.set_data(top, edges, baseline=base)  # type: ignore[arg-type]
            base = top
        # Room for the legend, but no ticks above 100 %.
        upper = nice(1.35 * float(base.max()) + 1e-9)
        ticks = np.linspace(0, min(upper, 100), 6)
        self.ax.set(xlim=(0.5, largest + 0.5), ylim=(0, upper), yticks=ticks)
        no_wait = result.scenario.rule.max_wait_ms == 0
        self.bars[Trigger.TIMEOUT].set_label("a server was idle" if no_wait else TRIGGERS[Trigger.TIMEOUT][2])
        self._name([bars for trigger, bars in self.bars.items() if (batches.trigger == trigger).any()])

    def _name(self, occurring: list[StepPatch]) -> None:
        """Let the legend name the reasons that occur, and no other."""
        labels = tuple(str(bars.get_label()) for bars in occurring)
        if labels != self.shown:
            self.shown, self.handles = labels, occurring
            self.ax.legend(handles=occurring, loc="upper left", ncols=2)

    def show_theory(self, answer: "Answer") -> None:
        """Mark the share of each batch size that theory expects, where it knows it."""
        if answer.batch_size_pmf is None:
            return
        sizes = np.arange(1, answer.batch_size_pmf.size)
        (marks,) = self.ax.plot(sizes, 100 * answer.batch_size_pmf[1:], "o", color=GREEN, markersize=3.5)
        marks.set_label("theory")
        handles = [*self.handles, marks]
        self.ax.legend(handles=handles, loc="upper left", ncols=2)


class TimelineView:
    """The first requests, each a row: forming, queueing, computing."""

    def __init__(self, figure: Figure, place: SubplotSpec) -> None:
        title, across = f"The first {TIMELINE_REQUESTS} requests", "time since the first arrival (ms)"
        ax = self.ax = _axes(figure, place, title, across, "request")
        self.bars = LineCollection([], capstyle="butt")
        ax.add_collection(self.bars)
        keys = [Line2D([], [], color=colour, linewidth=width) for colour, width in PARTS.values()]
        ax.legend(keys, list(PARTS), loc="upper right")

    def update(self, result: Result) -> None:
        segments, styles = [], []
        first_s = float(result.arrival_s[0])
        shown = min(TIMELINE_REQUESTS, result.arrival_s.size)
        for request in range(shown):
            for part, begin_s, end_s in result.story(request):
                ends_ms = (np.array([begin_s, end_s]) - first_s) * 1000
                segments.append([(ends_ms[0], request), (ends_ms[1], request)])
                styles.append(PARTS[part])
        self.bars.set_segments(segments)
        self.bars.set_color([colour for colour, _ in styles])
        self.bars.set_linewidth([width for _, width in styles])
        last_ms = max((segment[1][0] for segment in segments), default=1.0)
        self.ax.set(xlim=(0, nice(1.4 * last_ms)), ylim=(shown - 0.4, -0.6))


def nice(value: float) -> float:
    """Return the next round number, so that axes hold still while a slider moves.

    >>> nice(17), nice(0.26)
    (20.0, 0.3)
    """
    if not 0 < value < math.inf:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    step = next(step for step in (1, 1.5, 2, 3, 4, 5, 7, 10, 15) if value <= step * power * (1 + 1e-12))
    return float(f"{step * power:.6g}")


def _decades(low: float, high: float) -> tuple[float, float]:
    """Return the powers of ten round an interval, for an axis on a log scale."""
    if not 0 < low <= high < math.inf:
        return 0.1, 1000.0
    return 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high * 1.2))


def _short(value: float, _: Any = None) -> str:
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{value:g}"


def _axes(figure: Figure, place: SubplotSpec, title: str, across: str, up: str) -> Axes:
    ax = figure.add_subplot(place)
    ax.set_title(title, loc="left", fontsize="medium", fontweight="bold")
    ax.set(xlabel=across, ylabel=up)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def interval(result: Result, key: str) -> tuple[float, float]:
    """Return a number's interval, silently NaN where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is none is seen
        return result.interval(key)
