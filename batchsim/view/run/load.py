"""Latency and throughput against load, with the present setting's point on the curves."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from batchsim._format import counted, number, percent
from batchsim.result import Result
from batchsim.scenario import ClosedLoop
from batchsim.view.canvas.picture import Box
from batchsim.view.canvas.scales import log_ticks, nice, nice_span
from batchsim.view.run.data import ViewData
from batchsim.view.run.view import Entry, Style, View

if TYPE_CHECKING:
    from batchsim.study.surface import LoadCurve

UPPER = 0.58  # of the height: the latencies
LABELS = {"rate_per_s": "arrival rate (per s)", "clients": "clients"}


class LoadView(View):
    """Mean and p99 latency above, throughput below, against the arrival rate or the number of clients.

    Beyond saturation latency has no steady state, and none is drawn.
    """

    NAME = "Latency and throughput by load"

    def add_artists(self) -> None:
        theme, width, whole, gap = self.theme, self.line_px, self.axes_box(), 0.6 * self.em
        upper = Box(whole.left, whole.top, whole.width, UPPER * whole.height - gap)
        lower_top = whole.top + UPPER * whole.height + gap
        lower = Box(whole.left, lower_top, whole.width, whole.bottom - lower_top)
        top = self.top = self.add_plot(upper, "", "latency (ms)", numbers="y")
        low = self.low = self.add_plot(lower, LABELS["rate_per_s"], "throughput (per s)")
        top.set_yscale("log")
        low.yaxis.get_major_locator().set_params(nbins=3)  # type: ignore[call-arg]

        def line(ax: Axes, zorder: float, style: Style) -> Line2D:
            return ax.plot([], [], zorder=zorder, **style)[0]

        dots: Style = {"marker": ".", "markersize": 3 * width}
        diamond: Style = {"linestyle": "none", "marker": "D", "markersize": 4.5 * width}
        hollow = diamond | {"color": theme.ink, "markersize": 4 * width, "markerfacecolor": "none"}
        self.styles: dict[str, Style] = {
            "mean": self.line_style("blue") | dots,
            "p99": self.line_style("vermilion", ":") | dots,
            "theory": self.line_style("green", "-.") | dots | {"marker": "x"},
            "now": {"color": theme.blue, "markeredgecolor": theme.background} | diamond,
            "saturation": self.line_style("soft", (0, (4, 1, 1, 1))),
            "objective": self.objective_style,
            "A": self.a_style | {"marker": "D", "markersize": 3.5 * width, "markerfacecolor": "none"},
        }
        curves = (top, "p99"), (top, "mean"), (low, "mean")
        self.p99, self.mean, self.throughput = (line(ax, 3, self.styles[name]) for ax, name in curves)
        self.theory = line(top, 3.5, self.styles["theory"])
        self.objective = top.axhline(1, zorder=2.2, **self.objective_style)
        # p99, mean and throughput of A, and the points of both settings.
        self.a_curves = [line(ax, 2.5, self.a_style) for ax in (top, top, low)]
        self.a_points = [line(ax, 4, hollow) for ax in (top, top, low)]
        pairs = (top, theme.vermilion), (top, theme.blue), (low, theme.blue)
        self.points = [line(ax, 5, self.styles["now"] | {"color": colour}) for ax, colour in pairs]
        # Across the whole height, whatever the scale: 0 has no place on a logarithmic one.
        self.saturation = [ax.axvline(0, zorder=3, **self.styles["saturation"]) for ax in (top, low)]
        self.beyond = [ax.axvspan(0, 0, color=theme.faint, lw=0) for ax in (top, low)]
        self.overloaded = top.text(
            0, 0.5, "overloaded", transform=top.get_xaxis_transform(), color=theme.soft, rotation=90,
            fontsize=0.9 * self.em, ha="center", va="center", zorder=4,
            bbox={"facecolor": theme.faint, "linewidth": 0, "pad": 1},
        )  # fmt: skip
        self.set_moving(
            self.p99, self.mean, self.throughput, self.theory, self.objective, self.overloaded,
            *self.a_curves, *self.a_points, *self.points, *self.saturation, *self.beyond,
        )  # fmt: skip

    def update(self, data: ViewData) -> None:
        curve, theory, a = data.curve, data.theory, data.pinned
        x, pair = load_of(data.result), a is not None and a.curve.x == curve.x
        heights = _show(data, [self.p99, self.mean, self.throughput], self.points)
        for artist in (*self.a_curves, *self.a_points):
            artist.set_visible(pair)
        last = float(curve.x_values[-1])
        if pair and a is not None:
            of_a, last = _show(a, self.a_curves, self.a_points), max(last, float(a.curve.x_values[-1]))
            heights = [np.concatenate(both) for both in zip(heights, of_a, strict=True)]
        right = nice(max(1.03 * x, last))
        at = np.isfinite(theory.mean_ms) if theory is not None else np.zeros(0)  # at some of the rates only
        self.theory.set_visible(bool(at.any()))
        if theory is not None:
            self.theory.set_data(theory.rate_per_s[at], theory.mean_ms[at])
        beyond = curve.saturation < right
        for line, area in zip(self.saturation, self.beyond, strict=True):
            line.set_visible(beyond)
            area.set_visible(beyond)
            line.set_xdata([curve.saturation] * 2)
            area.set_bounds(curve.saturation, 0, right - curve.saturation, 1)
        self.overloaded.set_position(((curve.saturation + right) / 2, 0.5))
        # With a queue limit or a timeout curves go on there, and A's may: a word would be in their way.
        self.overloaded.set_visible(beyond and bool(curve.overloaded.any()) and not pair)
        self.objective.set_ydata([data.objective_ms or np.nan] * 2)
        self._scale(curve.x, right, np.concatenate(heights[:2]), float(np.nanmax(heights[2])))
        shown = {
            "theory": at.any(), "saturation": np.isfinite(curve.saturation),
            "objective": data.objective_ms is not None, "A": pair,
        }  # fmt: skip
        names, keys = {"now": "B now"} if pair else {}, [key for key in self.styles if shown.get(key, True)]
        self.show_legend([Entry(names.get(key, key), self.styles[key]) for key in keys])

    def _scale(self, x: str, right: float, latencies_ms: np.ndarray, highest: float) -> None:
        positive = latencies_ms[np.isfinite(latencies_ms) & (latencies_ms > 0)]
        span = nice_span(float(positive.min()), float(positive.max())) if positive.size else (1.0, 100.0)
        if self.hold("latencies", span):
            self.top.set_ylim(*span)
            log_ticks(self.top.yaxis, *span, most=6)
        self.set_label(self.top.yaxis, "latency", span[1])
        self.set_label(self.low.xaxis, LABELS[x])
        self.set_limits(self.top, x=(0, right))
        self.set_limits(self.low, x=(0, right), y=(0, nice(1.08 * highest)))

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
    for line, point, column, height in zip(lines, points, curves, heights, strict=True):
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
