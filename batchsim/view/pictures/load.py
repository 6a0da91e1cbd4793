"""Latency, throughput, TTFT and TPOT against the load, with the present setting on the curves."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from batchsim._format import counted, duration, number, percent, typed_duration
from batchsim.result import Result
from batchsim.scenario import ClosedLoop
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import DASHED, DOTTED, Spot, Style, Ticks, View, span
from batchsim.view.scales import COARSE, FINE, log_ticks, nice, nice_span

LABELS = {"rate_per_s": "arrival rate (per s)", "clients": "clients"}
UNITS = {"rate_per_s": "/s", "clients": " clients"}
SOLID, THIN, DOTS = ("-", 1.0), (DASHED, 0.8), (DOTTED, 0.9)  # dashes and widths


class Curve(NamedTuple):
    """A line of a panel: the name at its end, its column of the load curve, its dashes and width.

    `said` is the text that the pointer shows, with a place for a duration; "" for none.
    """

    name: str
    column: str
    look: tuple[Any, float]
    said: str = ""


class Panel(NamedTuple):
    """Axes with some curves: durations on a logarithmic scale with their objective, or a rate without one."""

    label: str
    curves: tuple[Curve, ...]
    objective: str = ""  # the field of `ViewData`


class LoadPanels(View):
    """Curves against the arrival rate or the number of clients, one panel below the other.

    Durations end at saturation, beyond which there is no steady state. A small view has one panel, without
    theory, and room for two names.
    """

    KEY, NEEDS = "load", "curve"
    RANK = None
    CURVES: ClassVar[tuple[Panel, ...]]
    SMALL: ClassVar[Panel]
    ENDS: ClassVar[dict[str, str]]  # columns of the curve whose ends are described, by their names

    def make(self) -> None:
        self.panels = self.CURVES[: len(self.axes)] if self.large else (self.SMALL,)
        for ax in self.axes[:-1]:
            ax.tick_params(labelbottom=False)
        for panel, ax in zip(self.panels, self.axes, strict=True):
            if panel.objective:
                ax.set_yscale("log")
                ax.minorticks_off()
            else:
                ax.set_ylabel(panel.label)
                ax.yaxis.set_major_locator(Ticks(3))
        dots: Style = {"marker": ".", "markersize": 2 * self.line_pt} if self.large else {}
        self.drawn = [curve for panel in self.panels for curve in panel.curves]
        axes = [ax for panel, ax in zip(self.panels, self.axes, strict=True) for _ in panel.curves]
        self.styles = [self.style("now", *curve.look) | dots for curve in self.drawn]
        self.curves = [self.line(ax, 3, **each) for ax, each in zip(axes, self.styles, strict=True)]
        self.theory = self.line(self.ax, 3.5, **self.style("ink", ":", 0.65))
        of_durations = [ax for panel, ax in zip(self.panels, self.axes, strict=True) if panel.objective]
        objective = self.style("objective", width=0.8)
        self.objective_lines = [ax.axhline(1, zorder=2.2, **objective) for ax in of_durations]
        self.other_curves = [self.line(ax, 2.5, **self.now_style) for ax in axes]
        diamond: Style = {"linestyle": "none", "marker": "D", "markersize": 3.2 * self.line_pt}
        self.other_points = [self.line(ax, 4, **diamond, markerfacecolor="none") for ax in axes]
        now = diamond | {"color": self.look.now, "markeredgecolor": self.look.background}
        self.points = [self.line(ax, 5, **now) for ax in axes]
        # An area across the whole height is independent of the scale: a logarithmic one has no 0.
        self.beyond = [span(ax, color=self.look.ink, alpha=0.08, lw=0) for ax in self.axes]
        end: Style = {"xycoords": ("data", "axes fraction"), "va": "center"}
        self.names = [self.text(ax, color=self.look.now, **end) for ax in axes]
        self.theory_name = self.text(self.ax, **end)
        self.saturated = self.text(
            self.ax, xycoords=self.ax.get_xaxis_transform(), ha="right", va="center", rotation=90,
            color=self.look.soft,
        )  # fmt: skip
        right = {"ha": "left", "va": "bottom", "color": self.look.objective}
        names = (self.text(ax, xycoords=ax.get_yaxis_transform(), **right) for ax in of_durations)
        self.objective_names = [*names]
        self.fixed += [self.saturated, *self.objective_names]

    def update(self, data: ViewData) -> None:
        curve, theory, other = data.curve, data.theory, data.other
        if other is not None and getattr(other.curve, "x", None) != curve.x:
            other = None
        x, last = load_of(data.result), float(curve.x_values[-1])
        heights = self._show(data, self.curves, self.points)
        for artist in (*self.other_curves, *self.other_points):
            artist.set_visible(other is not None)
        if other is not None:
            style = self.other_style(data)
            for line, point in zip(self.other_curves, self.other_points, strict=True):
                line.set(**style)
                point.set_color(style["color"])
            last = max(last, float(other.curve.x_values[-1]))
            of_other = self._show(other, self.other_curves, self.other_points)
            heights = [np.concatenate(both) for both in zip(heights, of_other, strict=True)]
        at = np.isfinite(theory.mean_ms) if theory is not None else np.zeros(0)  # theory may lack some rates
        self.theory.set_visible(self.large and bool(at.any()))
        if theory is not None:
            self.theory.set_data(theory.rate_per_s[at], theory.mean_ms[at])
        self._scale(curve.x, nice(max(1.03 * x, last)), heights)
        right = float(self.ax.get_xlim()[1])  # limits only grow until a release
        beyond = curve.saturation < right
        for area in self.beyond:
            area.set_visible(beyond)
            area.set_bounds(curve.saturation, 0, right - curve.saturation, 1)
        wide_px = (right - curve.saturation) / right * self.ax.bbox.width
        room = bool(wide_px > 6 * self.em_px)  # for the names of the curves, too
        self.write(self.saturated, "overloaded" * (self.large and room), right, 0.22, right=-0.3)
        roomy = self.large and self.ax.bbox.width > 34 * self.em_px
        limits = [panel.objective for panel in self.panels if panel.objective]
        for line, text, name in zip(self.objective_lines, self.objective_names, limits, strict=True):
            limit_ms: float | None = getattr(data, name)
            line.set_ydata([limit_ms or np.nan] * 2)
            low, high = line.axes.get_ylim()  # type: ignore[union-attr]
            inside = roomy and limit_ms is not None and low < limit_ms < high
            words = f"objective {typed_duration(limit_ms or 1)}" * bool(inside)
            at_top = bool(inside and (limit_ms or 1) ** 5 > low * high**4)  # in the upper fifth
            self.write(text, words, 0, limit_ms or 1, right=0.3, up=-1.35 if at_top else 0.15)
        if self.large:
            self._name_curves(right)
        else:
            names = (curve.name for curve in self.drawn)
            self.legend(self.ax, [*zip(names, self.styles, strict=True)])

    def _show(self, data: ViewData, lines: list[Line2D], points: list[Line2D]) -> list[np.ndarray]:
        """Draw the curves and the setting's point on each; return the heights of each curve."""
        curve: Any = data.curve  # of requests, or of tokens
        shown = []
        for drawn, line, point in zip(self.drawn, lines, points, strict=True):
            key = "mean_latency_ms" if drawn.column == "mean_ms" else drawn.column
            column, height = getattr(curve, drawn.column), float(data.summary[key])
            if drawn.column.endswith("_ms"):
                column = np.where(curve.overloaded, np.nan, column)
                height = math.nan if data.overloaded else height
            line.set_data(curve.x_values, column)
            point.set_data([load_of(data.result)], [height])
            shown.append(np.append(column, height))
        return shown

    def _scale(self, x: str, right: float, heights: Sequence[np.ndarray]) -> None:
        heights = list(heights)
        for panel, ax in zip(self.panels, self.axes, strict=True):
            every = np.concatenate([heights.pop(0) for _ in panel.curves])
            if not panel.objective:
                self.limits(ax, x, x=(0, right), y=(0, nice(1.08 * float(np.nanmax(every)))))
                continue
            positive = every[np.isfinite(every) & (every > 0)]
            low, high = (float(of(positive)) for of in (np.min, np.max)) if positive.size else (1.0, 100.0)
            steps = FINE if high < 10 * low else COARSE
            self.limits(ax, x, x=(0, right), y=nice_span(low, high, steps))
            low, high = ax.get_ylim()
            if self.changed(panel.label, (low, high, steps)):
                log_ticks(ax.yaxis, low, high, 6 if self.large and len(self.panels) < 3 else 4, steps)
            self.label(ax.yaxis, panel.label, high)
        self.label(self.axes[-1].xaxis, LABELS[x])

    def _name_curves(self, right: float) -> None:
        """Name each curve at its end."""
        words = [curve.name for curve in self.drawn]
        named = [*zip(self.names, words, self.curves, strict=True), (self.theory_name, "theory", self.theory)]
        for ax in self.axes:
            ends = []
            for text, name, line in named:
                if text.axes is not ax:
                    continue
                points = np.asarray(line.get_xydata())
                xs, ys = points.T
                points = points[np.isfinite(ys) & (ys > 0) & (xs <= right)]
                if name and len(points) and line.get_visible():
                    ends.append((text, name, points[-1]))
                else:
                    self.write(text, "", 0, 0)
            up = ax.transData + ax.transAxes.inverted()
            heights = [float(up.transform(end)[1]) for _, _, end in ends]
            places = self.apart(ax, heights, 1.2, up=True)
            for (text, name, end), place in zip(ends, places, strict=True):
                self.write(text, name, float(end[0]), place, right=0.5)

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        curve = data.curve
        if x <= 0:  # a load of 0 cannot be chosen
            return None
        value = max(round(x), 1) if curve.x == "clients" else float(f"{x:.3g}")
        text = f"{value:,.6g}{UNITS[curve.x]}"
        if x < curve.saturation:
            about = [said for said in (self._about(x, curve, each) for each in self.drawn) if said]
            text += f": {', '.join(about)}" if about else ""
        else:
            text += ": overloaded"
        what = "rate" if curve.x == "rate_per_s" else "number"
        return Spot(self.KEY, f"{text}. Click to set this {what}.", {curve.x: value})

    def _about(self, x: float, curve: Any, drawn: Curve) -> str:
        """Return a curve's duration at a load in words, by interpolation; "" if it has no number there."""
        column = getattr(curve, drawn.column)
        steady = ~curve.overloaded & np.isfinite(column) & (column > 0)
        if not drawn.said or steady.sum() < 2 or x > curve.x_values[steady][-1]:
            return ""
        ms = np.exp(np.interp(x, curve.x_values[steady], np.log(column[steady])))
        return drawn.said.format(duration(float(ms)))

    def output(self, data: ViewData) -> str:
        """Return the present setting's throughput and utilisation in words."""
        raise NotImplementedError

    def describe(self, data: ViewData) -> list[str]:
        return [*self._describe_point(data), *self._describe_ends(data.curve)]

    def _describe_point(self, data: ViewData) -> list[str]:
        scenario, s, theory, output = data.result.scenario, data.summary, data.theory, self.output(data)
        if not s["served"]:
            return []
        if isinstance(scenario.workload, ClosedLoop):
            return [f"{counted(scenario.workload.clients, 'client')}: {output}."]
        offered, saturation = s["offered_per_s"], scenario.full_batches_per_s
        load = f"{percent(offered / saturation)} of the saturation rate, {number(saturation)}/s"
        sentences = [f"Arrival rate {number(offered)}/s{_observed(data.result, offered)}, {load}: {output}."]
        if theory is not None and theory.reason:
            sentences.append(f"No theory applies: {theory.reason.rstrip('.')}.")
        elif theory is not None:
            mean_ms = theory.mean_ms[np.asarray(theory.rate_per_s) == offered]
            if np.isfinite(mean_ms).any():
                said = f"Theory ({theory.model}) expects a mean latency of {number(mean_ms[0])} ms."
                sentences.append(said)
        return sentences

    def _describe_ends(self, curve: Any) -> list[str]:
        """Return the durations at both ends of the steady part of a load curve."""
        first_of = getattr(curve, next(iter(self.ENDS.values())))
        steady_at = np.flatnonzero(~curve.overloaded & np.isfinite(first_of))
        if not steady_at.size:
            return []
        first, last = steady_at[0], steady_at[-1]
        over, unit = ("number of clients", " clients") if curve.x == "clients" else ("arrival rate", "/s")
        pairs = ((name, getattr(curve, column)) for name, column in self.ENDS.items())
        ends = (f"{name} {number(values[first])} to {number(values[last])} ms" for name, values in pairs)
        span = f"{number(curve.x_values[first])} to {number(curve.x_values[last])}{unit}"
        return [f"By {over}, from {span}: {', '.join(ends)}."]


class LoadView(LoadPanels):
    """Mean and p99 latency above, throughput below, against the arrival rate or the number of clients."""

    NAME, SHORT, PANELS = "Latency and throughput by load", "Latency by load", (0.62, 0.38)
    CURVES = (
        Panel("latency", (
            Curve("p99", "p99_ms", SOLID, "p99 about {}"), Curve("mean", "mean_ms", THIN, "mean {}"),
        ), "objective_ms"),
        Panel("throughput (per s)", (Curve("", "throughput_per_s", SOLID),)),
    )  # fmt: skip
    SMALL = CURVES[0]
    ENDS: ClassVar = {"mean": "mean_ms", "p99": "p99_ms"}

    def output(self, data: ViewData) -> str:
        s = data.summary
        output = f"throughput {number(s['throughput_per_s'])}/s, utilisation {percent(s['utilisation'])}"
        shared = "device_utilisation" in s
        return output + (f", devices {percent(s['device_utilisation'])}" if shared else "")


class TokenLoadView(LoadPanels):
    """TTFT and answers above, TPOT below, then throughput, against the arrival rate or the clients."""

    NAME, SHORT, PANELS = "TTFT, TPOT and throughput by load", "TTFT by load", (0.4, 0.34, 0.26)
    SMALL = Panel("TTFT", (
        Curve("p99", "ttft_p99_ms", SOLID, "TTFT p99 about {}"),
        Curve("mean", "mean_ttft_ms", THIN, "mean {}"),
    ), "ttft_ms")  # fmt: skip
    CURVES = (
        Panel("TTFT, answer", (
            *SMALL.curves, Curve("answer p99", "p99_ms", DOTS, "answer p99 {}"),
        ), "ttft_ms"),
        Panel("TPOT", (
            Curve("p99", "tpot_p99_ms", SOLID, "TPOT p99 {}"), Curve("mean", "mean_tpot_ms", THIN, "mean {}"),
        ), "tpot_ms"),
        Panel("answers (per s)", (Curve("", "throughput_per_s", SOLID),)),
    )  # fmt: skip
    ENDS: ClassVar = {
        "mean TTFT": "mean_ttft_ms", "p99 TTFT": "ttft_p99_ms", "mean TPOT": "mean_tpot_ms",
        "p99 TPOT": "tpot_p99_ms", "p99 of answers": "p99_ms",
    }  # fmt: skip

    def output(self, data: ViewData) -> str:
        s = data.summary
        made = f"{number(s['throughput_per_s'])} answers/s, {number(s['output_tokens_per_s'])} tokens/s"
        return f"{made}, utilisation {percent(s['utilisation'])}"


def load_of(result: Result) -> float:
    """Return a result's place on its load curve: its arrival rate, or its number of clients."""
    workload = result.scenario.workload
    return float(workload.clients if isinstance(workload, ClosedLoop) else workload.offered_per_s)


def _observed(result: Result, offered: float) -> str:
    """Return the run's own arrival rate if it differs from the long-run rate by a tenth or more."""
    spanned_s = float(result.arrival_s[-1] - result.arrival_s[0])
    if not spanned_s:
        return ""
    observed = (result.arrival_s.size - 1) / spanned_s
    return "" if abs(observed / offered - 1) < 0.1 else f" on average, {number(observed)}/s in this run"
