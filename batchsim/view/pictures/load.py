"""Latency, throughput, TTFT and TPOT against the load, with the present setting on the curves."""

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from batchsim._format import counted, duration, number, percent, typed_duration
from batchsim.result import Result
from batchsim.scenario import ClosedLoop
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import DASHED, DOTTED, Spot, Style, Ticks, View
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
        panels = self.CURVES if self.large else (self.SMALL,)
        self.panels = dict(zip(self.axes, panels, strict=False))
        self.drawn = [curve for panel in self.panels.values() for curve in panel.curves]
        for ax, panel in self.panels.items():
            if panel.objective:
                ax.set(yscale="log", ylim=(1, 100))
                ax.minorticks_off()
            else:
                ax.set_ylabel(panel.label)
                ax.yaxis.set_major_locator(Ticks(3))
        for ax in self.axes[:-1]:
            ax.tick_params(labelbottom=False)
        if self.large:
            self.reserve(self.ax, max((curve.name for curve in self.drawn), key=len), 1, right=0.5)

    def update(self, data: ViewData) -> None:
        curve, other, last = data.curve, data.other, float(data.curve.x_values[-1])
        if other is not None and getattr(other.curve, "x", None) != curve.x:
            other = None
        if other is not None:
            last = max(last, float(other.curve.x_values[-1]))
        right = nice(max(1.03 * load_of(data.result), last))
        for ax, panel in self.panels.items():
            ends: dict[Any, tuple[str, float, float]] = {}
            heights = [self._draw(ax, each, data) for each in panel.curves]
            if other is not None:
                heights += [self._draw(ax, each, other, self.other_style(data)) for each in panel.curves]
            self._scale(ax, panel, curve.x, right, np.concatenate(heights))
            right = float(ax.get_xlim()[1])  # limits only grow until a release
            if curve.saturation < right:  # an area across the whole height suits any scale
                beyond: Style = {"color": self.look.ink, "alpha": 0.08, "linewidth": 0, "zorder": 1}
                self.span(("beyond", ax), curve.saturation, right, ax, **beyond)
            if panel.objective:
                self._show_objective(ax, panel, getattr(data, panel.objective))
            if self.large:
                lines = {
                    each.name: (curve.x_values, ms) for each, ms in zip(panel.curves, heights, strict=False)
                }
                lines |= self._show_theory(data) if ax is self.ax else {}
                for name, (xs, ys) in lines.items():
                    ys = ys[: len(xs)]  # without the present setting's own
                    for at in np.flatnonzero(np.isfinite(ys) & (ys > 0) & (xs <= right))[-1:] if name else ():
                        ends[ax, name] = name, float(xs[at]), float(ys[at])
                colours = {end: self.look.now for end in ends if end[1] != "theory"}
                self.names(ends, 1.2, across=False, ax=ax, right=0.5, va="center", colours=colours)
        self.label(self.axes[-1].xaxis, LABELS[curve.x])
        wide_px = (right - curve.saturation) / right * self.ax.bbox.width
        if wide_px > 6 * self.em_px:  # for the names of the curves, too
            upright: Style = {"xycoords": self.ax.get_xaxis_transform(), "rotation": 90, "still": True}
            self.note("overloaded", "overloaded", right, 0.22, right=-0.3, up=0, va="center", **upright)
        if not self.large:
            self.legend()

    def _draw(self, ax: Axes, drawn: Curve, data: ViewData, other: Style | None = None) -> np.ndarray:
        """Draw a curve and the setting's point on it; return the heights, that of the point as the last."""
        kind, curve = "now" if other is None else "other", data.curve  # of requests, or of tokens
        metric = "mean_latency_ms" if drawn.column == "mean_ms" else drawn.column
        heights, height = getattr(curve, drawn.column), float(data.summary[metric])
        if drawn.column.endswith("_ms"):
            heights = np.where(curve.overloaded, np.nan, heights)
            height = math.nan if data.overloaded else height
        if other is None:
            more = {"marker": ".", "markersize": 2 * self.line_pt} if self.large else {"label": drawn.name}
            look = self.style("now", *drawn.look) | {"zorder": 3} | more
            point = self.mark("D", 3.2, "now", "background", zorder=5)
        else:
            look = other | {"zorder": 2.5}
            point = self.mark("D", 3.2, "ink", markerfacecolor="none", color=other["color"])
        self.plot((kind, drawn.column), curve.x_values, heights, ax, **look)
        self.plot((f"{kind} point", drawn.column), [load_of(data.result)], [height], ax, **point)
        return np.append(heights, height)

    def _show_theory(self, data: ViewData) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Draw the mean that theory expects, where it expects one; return the line by its name."""
        if data.theory is None:
            return {}
        there = np.isfinite(data.theory.mean_ms)  # theory may lack some rates
        line = np.asarray(data.theory.rate_per_s)[there], np.asarray(data.theory.mean_ms)[there]
        self.plot("theory", *line, zorder=3.5, **self.style("ink", ":", 0.65))
        return {"theory": line} if there.any() else {}

    def _show_objective(self, ax: Axes, panel: Panel, limit_ms: float | None) -> None:
        """Draw an objective, named where there is room."""
        if limit_ms is None:
            return
        across, (low, high) = ax.get_yaxis_transform(), ax.get_ylim()
        style = self.style("objective", width=0.8) | {"transform": across, "zorder": 2.2}
        self.plot(panel.objective, [0, 1], [limit_ms] * 2, ax, **style)
        if self.ax.bbox.width > 34 * self.em_px and low < limit_ms < high:
            at_top = limit_ms**5 > low * high**4  # in the upper fifth
            name: Style = {"color": self.look.objective, "ha": "left", "va": "bottom", "xycoords": across}
            words, up = f"objective {typed_duration(limit_ms)}", -1.35 if at_top else 0.15
            self.note(
                ("name", panel.objective), words, 0, limit_ms, right=0.3, up=up, ax=ax, still=True, **name
            )

    def _scale(self, ax: Axes, panel: Panel, x: str, right: float, heights: np.ndarray) -> None:
        if not panel.objective:
            self.limits(ax, x, x=(0, right), y=(0, nice(1.08 * float(np.nanmax(heights)))))
            return
        positive = heights[np.isfinite(heights) & (heights > 0)]
        low, high = (float(of(positive)) for of in (np.min, np.max)) if positive.size else (1.0, 100.0)
        steps = FINE if high < 10 * low else COARSE
        self.limits(ax, x, x=(0, right), y=nice_span(low, high, steps))
        if self.changed(panel.label, steps):
            log_ticks(ax.yaxis, 6 if self.large and len(self.panels) < 3 else 4, steps)
        self.label(ax.yaxis, panel.label, ax.get_ylim()[1])

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
