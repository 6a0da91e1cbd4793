"""Latency and throughput against load, with the present setting's point on the curves."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from batchsim._format import counted, duration, number, percent, typed_duration
from batchsim.result import Result
from batchsim.scenario import ClosedLoop
from batchsim.view.canvas.lettering import Label, apart
from batchsim.view.canvas.picture import Box
from batchsim.view.canvas.scales import log_ticks, nice, nice_span
from batchsim.view.run.data import ViewData
from batchsim.view.run.view import Entry, Spot, Style, View

if TYPE_CHECKING:
    from batchsim.study.surface import LoadCurve

UPPER = 0.62  # of the height: the latencies
LABELS = {"rate_per_s": "arrival rate (per s)", "clients": "clients"}
UNITS = {"rate_per_s": "/s", "clients": " clients"}


class LoadView(View):
    """Mean and p99 latency above, throughput below, against the arrival rate or the number of clients.

    Beyond saturation latency has no steady state, and none is drawn. A small view has the latencies alone.
    """

    KEY, NAME, SHORT = "load", "Latency and throughput by load", "Latency by load (ms)"

    def add_artists(self) -> None:
        theme, width, whole = self.theme, self.line_px, self.axes_box(right=2.5 if self.large else 0)
        self.plot_box = whole
        upper = whole
        if self.large:
            gap = 1.1 * self.em
            upper = Box(whole.left, whole.top, whole.width, UPPER * whole.height - gap)
            lower_top = whole.top + UPPER * whole.height + gap
            lower = Box(whole.left, lower_top, whole.width, whole.bottom - lower_top)
        top = self.top = self.add_plot(
            upper, "", "latency (ms)" * self.large, numbers="y" if self.large else "xy"
        )
        low = self.low = self.add_plot(lower, "", "throughput (per s)") if self.large else None
        self.upper_box, both = upper, [top] if low is None else [top, low]
        top.set_yscale("log")
        if low is not None:
            low.yaxis.get_major_locator().set_params(nbins=3)  # type: ignore[call-arg]

        def line(ax: Axes, zorder: float, style: Style) -> Line2D:
            return ax.plot([], [], zorder=zorder, **style)[0]

        dots: Style = {"marker": ".", "markersize": 3 * width} if self.large else {}
        # The same order everywhere: p99, mean, and throughput where it is shown.
        axes = [top, *both]
        styles = [
            self.now_style | dots,
            self.line_style("now", (0, (4, 2)), 1.0) | dots,
            self.now_style | dots,
        ]
        self.curves = [line(ax, 3, style) for ax, style in zip(axes, styles, strict=False)]
        self.theory = line(top, 3.5, self.line_style("ink", ":", 0.9))
        self.objective = top.axhline(1, zorder=2.2, **self.objective_style)
        self.other_curves = [line(ax, 2.5, self.now_style) for ax in axes]
        diamond: Style = {
            "linestyle": "none",
            "marker": "D",
            "markersize": (4.5 if self.large else 3.5) * width,
        }
        self.other_points = [line(ax, 4, diamond | {"markerfacecolor": "none"}) for ax in axes]
        now = diamond | {"color": theme.now, "markeredgecolor": theme.background}
        self.points = [line(ax, 5, now) for ax in axes]
        # Across the whole height, whatever the scale: 0 has no place on a logarithmic one.
        self.saturation = [
            ax.axvline(0, zorder=3, **self.line_style("soft", (0, (4, 1, 1, 1)))) for ax in both
        ]
        self.beyond = [ax.axvspan(0, 0, color=theme.faint, lw=0) for ax in both]
        self.set_moving(
            *self.curves, self.theory, self.objective, *self.other_curves, *self.other_points, *self.points,
            *self.saturation, *self.beyond,
        )  # fmt: skip

    def update(self, data: ViewData) -> None:
        curve, theory, other = data.curve, data.theory, data.other
        x = load_of(data.result)
        if other is not None and other.curve.x != curve.x:
            other = None
        heights = _show(data, self.curves, self.points)
        for artist in (*self.other_curves, *self.other_points):
            artist.set_visible(other is not None)
        last = float(curve.x_values[-1])
        if other is not None:
            style = self.other_style(data)
            for line, point in zip(self.other_curves, self.other_points, strict=True):
                line.set(**style)
                point.set_color(style["color"])
            last = max(last, float(other.curve.x_values[-1]))
            of_other = _show(other, self.other_curves, self.other_points)
            heights = [np.concatenate(both) for both in zip(heights, of_other, strict=True)]
        right = nice(max(1.03 * x, last))
        at = np.isfinite(theory.mean_ms) if theory is not None else np.zeros(0)  # at some of the rates only
        self.theory.set_visible(bool(at.any()))
        if theory is not None:
            self.theory.set_data(theory.rate_per_s[at], theory.mean_ms[at])
        self._scale(curve.x, right, np.concatenate(heights[:2]), heights[2:])
        right = float(self.top.get_xlim()[1])  # which may hold what was shown before
        beyond = curve.saturation < right
        for line, area in zip(self.saturation, self.beyond, strict=True):
            line.set_visible(beyond)
            area.set_visible(beyond)
            line.set_xdata([curve.saturation] * 2)
            area.set_bounds(curve.saturation, 0, right - curve.saturation, 1)
        self.objective.set_ydata([data.objective_ms or np.nan] * 2)
        if self.large:
            self.show_legend([Entry("", value=self._note(data))], self._names(data))

    def _note(self, data: ViewData) -> str:
        if not np.isfinite(data.curve.saturation):
            return ""
        return f"grey: overloaded, beyond {data.curve.saturation:,.0f} per s"

    def _names(self, data: ViewData) -> list[Label]:
        """Return the names of the lines, beside the ends of these."""
        box, em, (low, high) = self.upper_box, self.em, np.log(self.top.get_ylim())
        right = self.top.get_xlim()[1]
        lines = {"p99": self.curves[0], "mean": self.curves[1]}
        if self.theory.get_visible():
            lines["theory"] = self.theory
        ends = {}
        for name, line in lines.items():
            xs, ys = (np.asarray(each, dtype=float) for each in line.get_data())
            there = np.flatnonzero(np.isfinite(ys) & (ys > 0))
            if there.size:
                ends[name] = float(xs[there[-1]]), float(ys[there[-1]])
        heights = [
            box.bottom - box.height * (math.log(y) - low) / (high - low) + 0.36 * em for _, y in ends.values()
        ]
        places = apart(heights, 1.25 * em, box.top + 0.8 * em, box.bottom)
        x_px = max((box.left + box.width * x / right for x, _ in ends.values()), default=box.right) + 0.7 * em
        labels = [Label(name, x_px, y) for name, y in zip(ends, places, strict=True)]
        if data.objective_ms is not None:
            y = box.bottom - box.height * (math.log(data.objective_ms) - low) / (high - low)
            if box.top + 1.6 * em < y <= box.bottom:
                labels.append(
                    Label(
                        f"objective {typed_duration(data.objective_ms)}", box.left + 0.3 * em, y - 0.35 * em
                    )
                )
        return labels

    def spot(self, x_px: float, y_px: float, data: ViewData) -> Spot | None:
        box, curve = self.plot_box, data.curve
        x = self.top.get_xlim()[1] * (x_px - box.left) / box.width
        if not (0 < x_px - box.left < box.width and box.top <= y_px <= box.bottom):
            return None
        value = max(round(x), 1) if curve.x == "clients" else float(f"{x:.3g}")
        text = f"{value:,.6g}{UNITS[curve.x]}"
        steady = ~curve.overloaded & np.isfinite(curve.p99_ms) & (curve.p99_ms > 0)
        if x < curve.saturation and steady.sum() > 1 and x <= curve.x_values[steady][-1]:
            near = (
                np.exp(np.interp(x, curve.x_values[steady], np.log(each[steady])))
                for each in (curve.p99_ms, curve.mean_ms)
            )
            text += ": p99 about {}, mean {}".format(*map(duration, near))
        elif x >= curve.saturation:
            text += ": overloaded"
        what = "rate" if curve.x == "rate_per_s" else "number"
        return Spot(self.KEY, f"{text}. Click to set this {what}.", {curve.x: value})

    def _scale(
        self, x: str, right: float, latencies_ms: np.ndarray, throughputs: Sequence[np.ndarray]
    ) -> None:
        positive = latencies_ms[np.isfinite(latencies_ms) & (latencies_ms > 0)]
        span = nice_span(float(positive.min()), float(positive.max())) if positive.size else (1.0, 100.0)
        self.set_limits(self.top, x, x=(0, right), y=span)
        span = self.top.get_ylim()
        if self.hold("latencies", span):
            log_ticks(self.top.yaxis, *span, most=6 if self.large else 4)
        self.set_label(self.top.yaxis, "latency", span[1])
        if self.low is None:
            return
        self.set_label(self.low.xaxis, LABELS[x])
        self.set_limits(self.low, x, x=(0, right), y=(0, nice(1.08 * float(np.nanmax(throughputs[0])))))

    def describe(self, data: ViewData) -> list[str]:
        return [*_describe_point(data), *_describe_curve(data.curve)]


def _show(data: ViewData, lines: list[Line2D], points: list[Line2D]) -> list[np.ndarray]:
    """Draw curves of p99, mean and throughput, and the setting's point on each; return all their heights."""
    curve, result = data.curve, data.result
    steady = np.where(curve.overloaded, np.nan, (curve.p99_ms, curve.mean_ms))
    curves = [*steady, curve.throughput_per_s]
    heights = [result.percentile(99), result.mean_latency_ms, result.throughput_per_s]
    if data.overloaded:
        heights[:2] = [np.nan] * 2
    for line, point, column, height in zip(lines, points, curves, heights, strict=False):
        line.set_data(curve.x_values, column)
        point.set_data([load_of(result)], [height])
    return [np.append(column, height) for column, height in zip(curves, heights, strict=True)]


def _describe_point(data: ViewData) -> list[str]:
    result, s, theory = data.result, data.summary, data.theory
    if not s["served"]:
        return []
    workload, offered = result.scenario.workload, s["offered_per_s"]
    output = f"throughput {number(s['throughput_per_s'])}/s, utilisation {percent(s['utilisation'])}"
    if isinstance(workload, ClosedLoop):
        return [f"{counted(workload.clients, 'client')}: {output}."]
    saturation = result.scenario.full_batches_per_s
    load = f"{number(100 * offered / saturation)}% of the saturation rate, {number(saturation)}/s"
    sentences = [f"Arrival rate {number(offered)}/s{_observed(result, offered)}, {load}: {output}."]
    if theory is not None and theory.reason:
        sentences.append(f"No theory applies: {theory.reason.rstrip('.')}.")
    elif theory is not None:
        mean_ms = theory.mean_ms[np.asarray(theory.rate_per_s) == offered]
        if np.isfinite(mean_ms).any():
            sentences.append(f"Theory ({theory.model}) expects a mean latency of {number(mean_ms[0])} ms.")
    return sentences


def _observed(result: Result, offered: float) -> str:
    """Return the run's own arrival rate, where it differs from the long-run rate by a tenth or more."""
    spanned_s = float(result.arrival_s[-1] - result.arrival_s[0])
    if not spanned_s:
        return ""
    observed = (result.arrival_s.size - 1) / spanned_s
    return "" if abs(observed / offered - 1) < 0.1 else f" on average, {number(observed)}/s in this run"


def _describe_curve(curve: "LoadCurve") -> list[str]:
    """Return the latencies at both ends of the load curve, as far as it is steady."""
    steady_at = np.flatnonzero(~curve.overloaded & np.isfinite(curve.p99_ms))
    if not steady_at.size:
        return []
    first, last = steady_at[0], steady_at[-1]
    over, unit = ("number of clients", " clients") if curve.x == "clients" else ("arrival rate", "/s")
    pairs = ("mean", curve.mean_ms), ("p99", curve.p99_ms)
    ends = (f"{name} {number(values[first])} to {number(values[last])} ms" for name, values in pairs)
    span = f"{number(curve.x_values[first])} to {number(curve.x_values[last])}{unit}"
    return [f"By {over}, from {span}: {', '.join(ends)}."]


def load_of(result: Result) -> float:
    """Return where a result is on its load curve: its arrival rate, or its clients."""
    workload = result.scenario.workload
    return float(workload.clients if isinstance(workload, ClosedLoop) else workload.offered_per_s)
