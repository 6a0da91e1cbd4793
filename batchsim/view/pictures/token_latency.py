"""The durations of token generation: TTFT, TPOT and the whole answer, as cumulative shares."""

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from matplotlib.artist import Artist
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

from batchsim._format import MINUS, duration, listed, number, percent, typed_duration
from batchsim.result.metrics import ITL, LATENCY, TPOT, TTFT
from batchsim.view.canvas.axes import log_ticks, nice_span
from batchsim.view.canvas.lettering import Label, apart, width_em
from batchsim.view.pictures.data import NAMED, ViewData
from batchsim.view.pictures.latency import SAID, GrowingView, describe_objective, difference
from batchsim.view.pictures.view import Entry, Spot, Style

DASHES: dict[str, Any] = {
    TTFT: (0, (4, 2)), TPOT: (0, (1, 1)), ITL: (0, (3, 1, 1, 1)), LATENCY: "-"
}  # fmt: skip
HEIGHTS: tuple[float, ...] = (60, 50, 70, 40, 80, 30, 20, 90)  # %, for the names of curves, best first
TOP = 104  # % at the upper edge, so that lines at 100 are complete


class TokenLatencyView(GrowingView):
    """The share of the requests whose TTFT, TPOT and answer are within a time, and that of the gaps.

    Objectives are lines, with a dot at the share that meets each.
    """

    NAME, SHORT = "TTFT, TPOT, gaps and answer", "Share within a time"
    COMPARED: ClassVar = {
        "ttft_p99_ms": ("TTFT p99", " ms"), "tpot_p99_ms": ("TPOT p99", " ms"),
        "output_tokens_per_s": ("throughput", " tokens/s"),
    }  # fmt: skip
    UNSTEADY = "TTFT"
    ROWS, SMALL_ROWS = 2, 1

    def add_artists(self) -> None:
        self.plot_box = self.axes_box()
        ax = self.add_plot(self.plot_box, "time", "", grid="xy")

        def line(zorder: float, style: Style) -> Line2D:
            return ax.plot([], [], zorder=zorder, **style)[0]

        self.curves = {of: line(3, self.now_style | {"linestyle": DASHES[of]}) for of in NAMED}
        self.other_curves = {of: line(2.5, {}) for of in NAMED}
        self.objectives = {
            of: ax.axvline(1, zorder=2.2, **self.objective_style | {"linestyle": DASHES[of]}) for of in NAMED
        }
        dot: Style = {"linestyle": "none", "marker": "o", "markersize": 4 * self.line_px}
        edge = {"color": self.theme.objective, "markeredgecolor": self.theme.background}
        self.dots = {of: line(4, dot | edge) for of in NAMED}
        groups = (self.curves, self.other_curves, self.objectives, self.dots)
        self.set_moving(*(artist for group in groups for artist in group.values()))
        self.add_queue(ax)

    def missing(self, data: ViewData, other: ViewData | None) -> list[Artist]:
        missing: list[Artist] = [*self.other_curves.values()] * (other is None)
        for of in NAMED:
            missing += [self.objectives[of], self.dots[of]] * (of not in data.all_limits_ms)
        for group in (self.curves, self.other_curves, self.objectives, self.dots):
            missing += [group[ITL]] * (not self.large)  # a small view has no room for a fourth name
        return missing

    def show_times(self, data: ViewData, other: ViewData | None) -> None:
        shown_ms = [*data.all_limits_ms.values()]
        for curves, each in ((self.curves, data), (self.other_curves, other)):
            if each is None:
                continue
            for of, curve in curves.items():
                times_ms, shares = each.curves[of]
                curve.set_data(times_ms, 100 * shares)
                shown_ms += times_ms[[0, -1]].tolist() if times_ms.size else []
                if each is other:
                    curve.set(**self.other_style(data) | {"linestyle": DASHES[of]})
        for of, limit_ms in data.all_limits_ms.items():
            self.objectives[of].set_xdata([limit_ms] * 2)
            self.dots[of].set_data([limit_ms], [100 * data.shares[of]])
        there = [ms for ms in shown_ms if 0 < ms < math.inf]
        self._scale(*nice_span(min(there), max(there)) if there else (1.0, 100.0))
        self.show_legend(self._entries(data), [*(self._names() if self.large else self._names_above())])

    def _scale(self, low_ms: float, high_ms: float) -> None:
        self.set_limits(self.ax, "times", x=(low_ms, high_ms), y=(0, TOP))
        span = self.ax.get_xlim()
        self.set_label(self.ax.xaxis, "time")
        self.show_percent("requests within this time" * self.large)
        if self.hold("scale", span):
            self.ax.set_xscale("log")
            log_ticks(self.ax.xaxis, *span, most=7 if self.large else 4)
            self.ax.xaxis.set_major_locator(FixedLocator(self._apart(self.ax.get_xticks(), *span)))
            self.ax.xaxis.set_major_formatter(lambda ms, _: typed_duration(ms))

    def _apart(self, ticks_ms: np.ndarray, low_ms: float, high_ms: float) -> list[float]:
        """Return the ticks whose texts, wide because of their units, do not overlap and stay in the view."""
        kept, free_px = [], self.box.left
        for ms in ticks_ms.tolist():
            place = math.log(ms / low_ms) / math.log(high_ms / low_ms)
            middle, half = self.plot_box.left + self.plot_box.width * place, width_em(typed_duration(ms)) / 2
            if middle - half * self.em >= free_px and middle + half * self.em <= self.box.right:
                kept.append(ms)
                free_px = middle + (half + 0.4) * self.em
        return kept

    def _show_queue(self, data: ViewData, other: ViewData | None) -> None:
        if self.hold("scale", "of the queue"):
            self.ax.set_xscale("linear")
            self.ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        super()._show_queue(data, other)

    def _entries(self, data: ViewData) -> list[Entry]:
        """Return the words below the title: the differences from A, or the shares within the objectives."""
        if data.pinned is not None and data.comparison is not None:
            names = {key: name for key, (name, unit) in self.COMPARED.items() if unit == " ms"}
            found = [" ".join(difference(data.comparison, key, name)) for key, name in names.items()]
            most = f"{MINUS}00.0"
            widest = f"TTFT p99, B {MINUS} A: {most} ms {most} to {most} (95%)"
            if any(found):
                return [Entry(widest, value=each) for each in found]
        entries = []
        for of, name in NAMED.items():
            given = data.all_limits_ms
            if of == ITL and not (self.large and (ITL in given or not given)):
                continue
            if (limit_ms := data.all_limits_ms.get(of)) is None:
                p99 = duration(data.percentile_of_all(99, of))
                entries.append(Entry(f"{name} p99 00.0 ms", value=f"{name} p99 {p99}"))
            else:
                limit = typed_duration(limit_ms)
                value = f"{name} {percent(data.shares[of])} in {limit}"
                entries.append(Entry(f"{name} 00.00% in {limit}", value=value))
        if len(data.limits_ms) > 1:
            entries.append(Entry("all 00.00%", value=f"all {percent(data.attainment)}"))
        if data.loss:
            entries.append(Entry("00.00% lost", value=f"{percent(data.loss)} lost"))
        return entries

    def _names_above(self) -> Iterator[Label]:
        """Return the names of a small view's curves, in a row above their upper ends."""
        box, em, (low, high) = self.plot_box, self.em, np.log(self.ax.get_xlim())
        shown = {of: line for of, line in self.curves.items() if of != ITL}
        times_ms = {of: np.asarray(line.get_xdata(), dtype=float) for of, line in shown.items()}
        ends = {of: math.log(each[-1]) for of, each in times_ms.items() if each.size}
        least, half = em * (max(map(width_em, NAMED.values())) + 0.5), em * width_em(NAMED[LATENCY]) / 2
        wanted = [box.left + box.width * (end - low) / (high - low) for end in ends.values()]
        places = apart(wanted, least, self.box.left + half, self.box.right - half - 2)
        for of, x in zip(ends, places, strict=True):
            yield Label(NAMED[of], x, box.top - 0.5 * em, "center")

    def _names(self) -> Iterator[Label]:
        """Return the name of each curve, next to it, where it covers as few others as possible.

        All heights of `HEIGHTS` on both sides of the curve are tried. A place has a fault for each line under
        the name and for each other name there, and nine for leaving the view; the first with the fewest wins.
        """
        box, em = self.plot_box, self.em
        low, high = np.log(self.ax.get_xlim())
        near = 1.1 * TOP * em / box.height

        def places(line: Line2D) -> list[list[float]]:
            """Return the x of a line at the lower edge, the middle and the upper edge of each name."""
            times_ms, shares = (np.asarray(each, dtype=float) for each in line.get_data())
            if not times_ms.size:
                return []
            xs = box.left + box.width * (np.log(np.maximum(times_ms, 1e-9)) - low) / (high - low)
            return [np.interp(np.array(HEIGHTS) + up, shares, xs).tolist() for up in (-near, 0, near)]

        found = ((of, places(line)) for of, line in self.curves.items())
        lines = {of: at for of, at in found if at}
        others = (line for group in (self.other_curves, self.objectives) for line in group.values())
        avoided = [*lines.values(), *(at for line in others if line.get_visible() and (at := places(line)))]
        taken: list[tuple[float, float, float]] = []  # of the names so far: left, right and height
        for of, (_, middle, _) in lines.items():
            wide, gap = em * width_em(NAMED[of]), 0.6 * em
            best: tuple[float, float, float] = math.inf, 0.0, 0.0
            for place, (x, height) in enumerate(zip(middle, HEIGHTS, strict=True)):
                for left in (x + gap, x - gap - wide):
                    right = left + wide
                    faults: float = sum(
                        below[place] < right + 0.3 * em and above[place] > left - 0.3 * em
                        for below, _, above in avoided
                    )
                    faults += sum(
                        left < end and begin < right and abs(at - height) < near for begin, end, at in taken
                    )
                    faults += 9 * (left < box.left or right > self.box.right - 0.5 * em)
                    if faults < best[0]:
                        best = faults, left, height
            _, left, height = best
            taken.append((left, left + wide, height))
            yield Label(NAMED[of], left, box.bottom - box.height * height / TOP + 0.36 * em)

    def spot(self, x_px: float, y_px: float, data: ViewData) -> Spot | None:
        (low, high), across = self.ax.get_xlim(), self.across(x_px, y_px)
        if across is None or not data.summary["served"]:
            return None
        if data.overloaded:
            return self.spot_of_queue(low + across * (high - low), data)
        at_ms = low * (high / low) ** across
        shares = (
            f"{name} {percent(float(np.interp(at_ms, *data.curves[of], left=0.0)))}"
            for of, name in NAMED.items()
        )
        return Spot(self.KEY, f"Within {duration(at_ms)}: {listed([*shares])} of the requests, or gaps")

    def carried(self, data: ViewData) -> str:
        servers = data.result.scenario.all_servers
        return "the server carries" if servers == 1 else f"{servers:,} servers carry"

    def describe_times(self, data: ViewData) -> list[str]:
        sentences = []
        for of, name in NAMED.items():
            if math.isnan(data.percentile_of_all(50, of)):
                sentences.append(f"{name}: there is none, each answer has one token.")
                continue
            values = (f"p{q} {number(data.result.percentile(q, column=of))} ms" for q in SAID)
            sentences.append(f"{name[0].upper()}{name[1:]}: {', '.join(values)}.")
            if (limit_ms := data.all_limits_ms.get(of)) is not None:
                p99_ms = data.percentile_of_all(99, of)
                said = describe_objective(limit_ms, p99_ms, data.shares[of])
                sentences.append(said.replace("requests", "gaps between tokens") if of == ITL else said)
        if len(data.limits_ms) > 1:
            within = f"{percent(data.attainment)} of requests are within all objectives"
            sentences.append(f"{within}: goodput {number(data.goodput_per_s)}/s.")
        if data.loss:
            sentences.append(f"{percent(data.loss)} of requests are lost.")
        return sentences
