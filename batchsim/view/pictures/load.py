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
from batchsim.view.canvas.axes import log_ticks, nice, nice_span
from batchsim.view.canvas.lettering import Label, apart, width_em
from batchsim.view.canvas.picture import Box
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import Entry, Spot, Style, View

LABELS = {"rate_per_s": "arrival rate (per s)", "clients": "clients"}
UNITS = {"rate_per_s": "/s", "clients": " clients"}
SOLID, DASHED, DOTTED = ("-", 1.4), ((0, (4, 2)), 1.0), ((0, (1, 1)), 1.2)  # dashes and widths


class Curve(NamedTuple):
    """A line of a panel: the name at its end, its column of the load curve, its dashes and width.

    `said` is the text that the pointer shows, with a place for a duration; "" for none.
    """

    name: str
    column: str
    look: tuple[Any, float]
    said: str = ""


class Panel(NamedTuple):
    """Axes with some curves: durations on a logarithmic scale, or a rate; its share of the height."""

    label: str
    share: float
    curves: tuple[Curve, ...]
    durations: bool = True


class LoadPanels(View):
    """Curves against the arrival rate or the number of clients, one panel below the other.

    Durations end at saturation, beyond which there is no steady state. A small view has only the first panel,
    without theory.
    """

    KEY, NEEDS = "load", "curve"
    RANK = None
    PANELS: ClassVar[tuple[Panel, ...]]
    ENDS: ClassVar[dict[str, str]]  # columns of the curve whose ends are described, by their names
    GAP, NAME_ROOM = 2.2, 2.5  # in ems: between panels, and right of them for the curves' names

    def heights(self, data: ViewData) -> dict[str, float]:
        """Return the present setting's number for each column of the curve; NaN if it has no such number."""
        raise NotImplementedError

    def objectives(self, data: ViewData) -> Sequence[float | None]:
        """Return the objective of each panel of durations."""
        raise NotImplementedError

    def add_artists(self) -> None:
        whole = self.plot_box = self.axes_box(right=self.NAME_ROOM if self.large else 0)
        self.panels = self.PANELS if self.large else self.PANELS[:1]
        self.boxes, top = [], whole.top
        height = whole.height - self.GAP * self.em * (len(self.panels) - 1)
        total = sum(panel.share for panel in self.panels)
        for panel in self.panels:
            self.boxes.append(Box(whole.left, top, whole.width, height * panel.share / total))
            top = self.boxes[-1].bottom + self.GAP * self.em
        self.plots = [
            self.add_plot(
                box, "", panel.label * self.large,
                numbers="xy" if panel is self.panels[-1] else "y",
            )
            for panel, box in zip(self.panels, self.boxes, strict=True)
        ]  # fmt: skip
        self.top = self.plots[0]
        for panel, ax in zip(self.panels, self.plots, strict=True):
            if panel.durations:
                ax.set_yscale("log")
            else:
                ax.yaxis.get_major_locator().set_params(nbins=3)  # type: ignore[call-arg]
        self._add_lines()
        self.values.halo = "" if self.large else self.theme.background  # lines pass names

    def _add_lines(self) -> None:
        theme, width = self.theme, self.line_px

        def line(ax: Axes, zorder: float, style: Style) -> Line2D:
            return ax.plot([], [], zorder=zorder, **style)[0]

        dots: Style = {"marker": ".", "markersize": 3 * width} if self.large else {}
        self.drawn = [curve for panel in self.panels for curve in panel.curves]
        axes = [ax for panel, ax in zip(self.panels, self.plots, strict=True) for _ in panel.curves]
        looks = [self.line_style("now", *curve.look) | dots for curve in self.drawn]
        self.curves = [line(ax, 3, look) for ax, look in zip(axes, looks, strict=True)]
        self.theory = line(self.top, 3.5, self.line_style("ink", ":", 0.9))
        of_durations = [ax for panel, ax in zip(self.panels, self.plots, strict=True) if panel.durations]
        self.limits = [ax.axhline(1, zorder=2.2, **self.objective_style) for ax in of_durations]
        self.other_curves = [line(ax, 2.5, self.now_style) for ax in axes]
        size = (4.5 if self.large else 3.5) * width
        diamond: Style = {"linestyle": "none", "marker": "D", "markersize": size}
        self.other_points = [line(ax, 4, diamond | {"markerfacecolor": "none"}) for ax in axes]
        now = diamond | {"color": theme.now, "markeredgecolor": theme.background}
        self.points = [line(ax, 5, now) for ax in axes]
        # Lines across the whole height are independent of the scale: a logarithmic one has no 0.
        edge = self.line_style("soft", (0, (4, 1, 1, 1)))
        self.saturation = [ax.axvline(0, zorder=3, **edge) for ax in self.plots]
        self.beyond = [ax.axvspan(0, 0, color=theme.faint, lw=0) for ax in self.plots]
        self.set_moving(
            *self.curves, self.theory, *self.limits, *self.other_curves, *self.other_points, *self.points,
            *self.saturation, *self.beyond,
        )  # fmt: skip

    def update(self, data: ViewData) -> None:
        curve, theory, other = data.curve, data.theory, data.other
        x = load_of(data.result)
        if other is not None and getattr(other.curve, "x", None) != curve.x:
            other = None
        heights = self._show(data, self.curves, self.points)
        for artist in (*self.other_curves, *self.other_points):
            artist.set_visible(other is not None)
        last = float(curve.x_values[-1])
        if other is not None:
            style = self.other_style(data)
            for line, point in zip(self.other_curves, self.other_points, strict=True):
                line.set(**style)
                point.set_color(style["color"])
            last = max(last, float(other.curve.x_values[-1]))
            of_other = self._show(other, self.other_curves, self.other_points)
            heights = [np.concatenate(both) for both in zip(heights, of_other, strict=True)]
        right = nice(max(1.03 * x, last))
        at = np.isfinite(theory.mean_ms) if theory is not None else np.zeros(0)  # theory may lack some rates
        self.theory.set_visible(self.large and bool(at.any()))
        if theory is not None:
            self.theory.set_data(theory.rate_per_s[at], theory.mean_ms[at])
        self._scale(curve.x, right, heights)
        right = float(self.top.get_xlim()[1])  # limits only grow until a release
        beyond = curve.saturation < right
        for line, area in zip(self.saturation, self.beyond, strict=True):
            line.set_visible(beyond)
            area.set_visible(beyond)
            line.set_xdata([curve.saturation] * 2)
            area.set_bounds(curve.saturation, 0, right - curve.saturation, 1)
        for line, limit_ms in zip(self.limits, self.objectives(data), strict=False):
            line.set_ydata([limit_ms or np.nan] * 2)
        if self.large:
            note = ""
            if np.isfinite(curve.saturation):
                note = f"grey: overloaded, beyond {number(curve.saturation)} per s"
            self.show_legend([Entry("", value=note)], self._names(data))
        else:
            self.show_legend([], self._names_at_the_left())

    def _show(self, data: ViewData, lines: list[Line2D], points: list[Line2D]) -> list[np.ndarray]:
        """Draw the curves and the setting's point on each; return the heights of each curve."""
        curve: Any = data.curve  # of requests, or of tokens
        own, shown = self.heights(data), []
        for drawn, line, point in zip(self.drawn, lines, points, strict=True):
            column, height = getattr(curve, drawn.column), own[drawn.column]
            if drawn.column.endswith("_ms"):
                column = np.where(curve.overloaded, np.nan, column)
                height = math.nan if data.overloaded else height
            line.set_data(curve.x_values, column)
            point.set_data([load_of(data.result)], [height])
            shown.append(np.append(column, height))
        return shown

    def _scale(self, x: str, right: float, heights: Sequence[np.ndarray]) -> None:
        heights = list(heights)
        for panel, ax in zip(self.panels, self.plots, strict=True):
            every = np.concatenate([heights.pop(0) for _ in panel.curves])
            if not panel.durations:
                self.set_limits(ax, x, x=(0, right), y=(0, nice(1.08 * float(np.nanmax(every)))))
                continue
            positive = every[np.isfinite(every) & (every > 0)]
            span = nice_span(float(positive.min()), float(positive.max())) if positive.size else (1.0, 100.0)
            self.set_limits(ax, x, x=(0, right), y=span)
            span = ax.get_ylim()
            if self.hold(panel.label, span):
                log_ticks(ax.yaxis, *span, most=6 if self.large and len(self.panels) < 3 else 4)
            self.set_label(ax.yaxis, panel.label * self.large, span[1])
        self.set_label(self.plots[-1].xaxis, LABELS[x])

    def _names(self, data: ViewData) -> list[Label]:
        """Return the names of the lines, at their ends, and of the objectives."""
        labels, lines = [], list(self.curves)
        limits = iter(self.objectives(data))
        for panel, ax, box in zip(self.panels, self.plots, self.boxes, strict=True):
            mine = {curve.name: lines.pop(0) for curve in panel.curves}
            if not panel.durations:
                continue
            if ax is self.top and self.theory.get_visible():
                mine["theory"] = self.theory
            names = self._beside(mine, ax, box, data.curve.saturation)
            labels += names
            limit_ms = next(limits)
            if limit_ms is not None:
                y = self._y_px(limit_ms, ax, box) - 0.35 * self.em
                if box.top + 1.25 * self.em < y <= box.bottom:
                    text = f"objective {typed_duration(limit_ms)}"
                    left, end = box.left + 0.3 * self.em, box.left + (0.6 + width_em(text)) * self.em
                    # On the right where a curve that ends early has its name on the left.
                    over = any(abs(name.y - y) < self.em and name.x < end for name in names)
                    at = (box.right, y, "right") if over else (left, y, "left")
                    labels.append(Label(text, *at))
        return labels

    def _names_at_the_left(self) -> list[Label]:
        """Return the names of a small view's lines where they begin: above each, the lowest one's below."""
        box, em = self.boxes[0], self.em
        starts = {}
        for curve, line in zip(self.panels[0].curves, self.curves, strict=False):
            ys = np.asarray(line.get_ydata(), dtype=float)
            if (there := ys[np.isfinite(ys) & (ys > 0)]).size:
                starts[curve.name] = self._y_px(float(there[0]), self.top, box)
        lowest = max(starts.values(), default=0.0)
        below = len(starts) > 1 and lowest + 1.3 * em <= box.bottom
        wanted = [y + (1.1 if below and y == lowest else -0.35) * em for y in starts.values()]
        places = apart(wanted, 1.25 * em, box.top + 0.8 * em, box.bottom - 0.2 * em)
        return [Label(name, box.left + 0.4 * em, y) for name, y in zip(starts, places, strict=True)]

    def _beside(self, lines: dict[str, Line2D], ax: Axes, box: Box, saturation: float) -> list[Label]:
        ends = {}
        for name, line in lines.items():
            xs, ys = (np.asarray(each, dtype=float) for each in line.get_data())
            there = np.flatnonzero(np.isfinite(ys) & (ys > 0))
            if there.size:
                ends[name] = float(xs[there[-1]]), float(ys[there[-1]])
        em, right = self.em, ax.get_xlim()[1]
        heights = [self._y_px(y, ax, box) + 0.36 * em for _, y in ends.values()]
        places = apart(heights, 1.25 * em, box.top + 0.8 * em, box.bottom)
        x_px = max((box.left + box.width * x / right for x, _ in ends.values()), default=box.right) + 0.7 * em
        edge_px = box.left + box.width * min(saturation / right, 2)
        if x_px - em < edge_px < x_px + 3 * em:  # not across the line
            x_px = edge_px + 0.4 * em
        return [Label(name, x_px, y) for name, y in zip(ends, places, strict=True)]

    def _y_px(self, height: float, ax: Axes, box: Box) -> float:
        low, high = np.log(ax.get_ylim())
        return float(box.bottom - box.height * (math.log(height) - low) / (high - low))

    def spot(self, x_px: float, y_px: float, data: ViewData) -> Spot | None:
        curve, across = data.curve, self.across(x_px, y_px)
        if not across:  # a load of 0 cannot be chosen
            return None
        x = self.top.get_xlim()[1] * across
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
        load = f"{number(100 * offered / saturation)}% of the saturation rate, {number(saturation)}/s"
        sentences = [f"Arrival rate {number(offered)}/s{_observed(data.result, offered)}, {load}: {output}."]
        if theory is not None and theory.reason:
            sentences.append(f"No theory applies: {theory.reason.rstrip('.')}.")
        elif theory is not None:
            mean_ms = theory.mean_ms[np.asarray(theory.rate_per_s) == offered]
            if np.isfinite(mean_ms).any():
                sentences.append(
                    f"Theory ({theory.model}) expects a mean latency of {number(mean_ms[0])} ms."
                )
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

    NAME, SHORT = "Latency and throughput by load", "Latency by load (ms)"
    PANELS = (
        Panel("latency", 0.62, (
            Curve("p99", "p99_ms", SOLID, "p99 about {}"), Curve("mean", "mean_ms", DASHED, "mean {}"),
        )),
        Panel("throughput (per s)", 0.38, (Curve("", "throughput_per_s", SOLID),), durations=False),
    )  # fmt: skip
    ENDS: ClassVar = {"mean": "mean_ms", "p99": "p99_ms"}

    def heights(self, data: ViewData) -> dict[str, float]:
        result = data.result
        return {
            "p99_ms": result.percentile(99), "mean_ms": result.mean_latency_ms,
            "throughput_per_s": result.throughput_per_s,
        }  # fmt: skip

    def objectives(self, data: ViewData) -> Sequence[float | None]:
        return (data.objective_ms,)

    def output(self, data: ViewData) -> str:
        s = data.summary
        output = f"throughput {number(s['throughput_per_s'])}/s, utilisation {percent(s['utilisation'])}"
        shared = "device_utilisation" in s
        return output + (f", devices {percent(s['device_utilisation'])}" if shared else "")


class TokenLoadView(LoadPanels):
    """TTFT and answers above, TPOT below, then throughput, against the arrival rate or the clients."""

    NAME, SHORT = "TTFT, TPOT and throughput by load", "TTFT by load (ms)"
    NAME_ROOM = 4.6
    PANELS = (
        Panel("TTFT, answer", 0.4, (
            Curve("p99", "ttft_p99_ms", SOLID, "TTFT p99 about {}"),
            Curve("mean", "mean_ttft_ms", DASHED, "mean {}"),
            Curve("answer p99", "p99_ms", DOTTED, "answer p99 {}"),
        )),
        Panel("TPOT", 0.34, (
            Curve("p99", "tpot_p99_ms", SOLID, "TPOT p99 {}"),
            Curve("mean", "mean_tpot_ms", DASHED, "mean {}"),
        )),
        Panel("answers (per s)", 0.26, (Curve("", "throughput_per_s", SOLID),), durations=False),
    )  # fmt: skip
    ENDS: ClassVar = {
        "mean TTFT": "mean_ttft_ms", "p99 TTFT": "ttft_p99_ms", "mean TPOT": "mean_tpot_ms",
        "p99 TPOT": "tpot_p99_ms", "p99 of answers": "p99_ms",
    }  # fmt: skip

    def heights(self, data: ViewData) -> dict[str, float]:
        return {curve.column: float(data.summary[curve.column]) for curve in self.drawn}

    def objectives(self, data: ViewData) -> Sequence[float | None]:
        return data.ttft_ms, data.tpot_ms

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
