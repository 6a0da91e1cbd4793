"""Latency and throughput against load, with today's point on the curves."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from batchsim._format import tick_in, unit_of
from batchsim.result import Result
from batchsim.scenario import ClosedLoop
from batchsim.view.canvas.picture import Box, Picture
from batchsim.view.canvas.view import Name, View, log_ticks, nice, nice_span, overloaded

if TYPE_CHECKING:
    from batchsim.study.surface import LoadCurve
    from batchsim.theory.curve import TheoryCurve

UPPER = 0.58  # of the height: the latencies


class LoadView(View):
    """Mean and p99 of the latency above, throughput below, against the arrival rate or the clients.

    Beyond saturation there is no steady latency, and none is drawn.
    """

    def __init__(self, picture: Picture, box: Box, line_px: float = 1.6) -> None:
        super().__init__(picture, box, "Latency and throughput by load", line_px)
        theme, width, whole = self.theme, line_px, self.frame()
        high = UPPER * whole.height - 0.6 * self.em
        top = self.top = self.add_frame(
            Box(whole.left, whole.top, whole.width, high), "", "latency (ms)", numbers="y"
        )
        low = self.low = self.add_frame(
            Box(whole.left, whole.top + UPPER * whole.height + 0.6 * self.em, whole.width,
                (1 - UPPER) * whole.height - 0.6 * self.em), "arrival rate (per s)", "finished/s",
        )  # fmt: skip
        top.set_yscale("log")
        low.yaxis.get_major_locator().set_params(nbins=3)  # type: ignore[call-arg]

        def line(ax: Axes, colour: str, **look: Any) -> Line2D:
            return ax.plot([], [], color=colour, **{"linewidth": width, "zorder": 3} | look)[0]

        dashes = {"linestyle": "--", "linewidth": 0.8 * width, "zorder": 2.5}
        dots = {"marker": ".", "markersize": 3 * width}
        self.mean = line(top, theme.blue, **dots)
        self.p99 = line(top, theme.vermilion, linestyle=":", **dots)
        self.theory = line(top, theme.green, linestyle="-.", zorder=3.5, marker="x", markersize=3 * width)
        self.done = line(low, theme.blue, **dots)
        self.a_curves = [line(ax, theme.ink, **dashes) for ax in (top, top, low)]
        self.objective = line(top, theme.orange, linewidth=1.4 * width, zorder=2.2)
        self.limits = [line(ax, theme.soft, linestyle=(0, (4, 1, 1, 1))) for ax in (top, low)]
        self.beyond = [
            Rectangle((0, 0), 0, 1, color=theme.faint, lw=0, transform=ax.get_xaxis_transform())
            for ax in (top, low)
        ]
        for ax, area in zip((top, low), self.beyond, strict=True):
            ax.add_patch(area)
        diamond = {"marker": "D", "markersize": 4.5 * width, "markeredgecolor": theme.background, "zorder": 5}
        self.today = [
            line(ax, colour, **diamond)
            for ax, colour in ((top, theme.vermilion), (top, theme.blue), (low, theme.blue))
        ]
        self.a_today = [
            line(ax, theme.ink, marker="D", markersize=4 * width, markerfacecolor="none", zorder=4)
            for ax in (top, top, low)
        ]
        self.word = top.text(
            0, 0.5, "overloaded", transform=top.get_xaxis_transform(), color=theme.soft, rotation=90,
            fontsize=0.9 * self.em, ha="center", va="center", zorder=4,
            bbox={"facecolor": theme.faint, "linewidth": 0, "pad": 1},
        )  # fmt: skip
        self.moves(
            self.mean, self.p99, self.theory, self.done, self.objective, self.word,
            *self.a_curves, *self.limits, *self.beyond, *self.today, *self.a_today,
        )  # fmt: skip

    def update(
        self,
        result: Result,
        curve: "LoadCurve",
        theory: "TheoryCurve | None" = None,
        objective_ms: float | None = None,
        pinned: "tuple[Result, LoadCurve] | None" = None,
    ) -> None:
        """Show a result on its curve; `pinned` is A and its curve, held against it."""
        seen = [curve] if pinned is None or pinned[1].x != curve.x else [curve, pinned[1]]
        x, y = load_of(result), result.throughput_per_s
        right = nice(max(1.03 * x, *(float(each.x_values[-1]) for each in seen)))
        mean_ms, p99_ms = steady(curve, "mean_ms"), steady(curve, "p99_ms")
        self.mean.set_data(curve.x_values, mean_ms)
        self.p99.set_data(curve.x_values, p99_ms)
        self.done.set_data(curve.x_values, curve.throughput_per_s)
        grows = overloaded(result)
        points = (result.percentile(99), result.mean_latency_ms, y)
        for marker, height in zip(self.today, points, strict=True):
            marker.set_data([x], [np.nan if grows and marker.axes is self.top else height])
        heights = [mean_ms, p99_ms, *(() if grows else points[:2])]
        known = theory is not None and bool(np.isfinite(theory.mean_ms).any())
        self.theory.set_visible(known)
        if theory is not None and known:
            at = np.isfinite(theory.mean_ms)  # it is worked out at some of the rates only
            self.theory.set_data(theory.rate_per_s[at], theory.mean_ms[at])
        most = max(y, float(np.nanmax(curve.throughput_per_s)))
        for artist in (*self.a_curves, *self.a_today):
            artist.set_visible(len(seen) == 2)
        if pinned is not None and len(seen) == 2:
            a_most, a_heights = self._show_a(*pinned)
            most, heights = max(most, a_most), heights + a_heights
        self._show_limits(curve.saturation, right)
        # With a queue limit or a timeout curves go on there, and A's may: a word would be in their way.
        alone = bool(curve.overloaded.any()) and len(seen) == 1
        self.word.set_visible(self.word.get_visible() and alone)
        self.objective.set_data([0, right], [objective_ms or np.nan] * 2)
        self._scale(curve.x, right, np.concatenate([np.ravel(h) for h in heights]), most)
        self._name(curve, known, len(seen) == 2, objective_ms)

    def _show_a(self, result: Result, curve: "LoadCurve") -> tuple[float, list[Any]]:
        """Draw A's curves and point, and return their highest throughput and their latencies."""
        columns = (steady(curve, "p99_ms"), steady(curve, "mean_ms"), curve.throughput_per_s)
        points = [result.percentile(99), result.mean_latency_ms, result.throughput_per_s]
        if overloaded(result):
            points[:2] = [np.nan] * 2
        for line, column in zip(self.a_curves, columns, strict=True):
            line.set_data(curve.x_values, column)
        for marker, height in zip(self.a_today, points, strict=True):
            marker.set_data([load_of(result)], [height])
        most = max(float(np.nanmax(curve.throughput_per_s)), result.throughput_per_s)
        return most, [*columns[:2], *points[:2]]

    def _show_limits(self, saturation: float, right: float) -> None:
        inside = saturation < right
        for artist in (*self.limits, *self.beyond, self.word):
            artist.set_visible(inside)
        if inside:
            for line, area in zip(self.limits, self.beyond, strict=True):
                # A data y of the lower edge would be no number on a logarithmic scale.
                line.set_transform(line.axes.get_xaxis_transform())  # type: ignore[union-attr]
                line.set_data([saturation] * 2, [0, 1])
                area.set_bounds(saturation, 0, right - saturation, 1)
            self.word.set_position(((saturation + right) / 2, 0.5))

    def _scale(self, x: str, right: float, latencies_ms: np.ndarray, most: float) -> None:
        known = latencies_ms[np.isfinite(latencies_ms) & (latencies_ms > 0)]
        span = nice_span(float(known.min()), float(known.max())) if known.size else (1.0, 100.0)
        if self.hold("latency", span):
            unit, ms = unit_of(span[1])
            self.top.set_ylim(*span)
            log_ticks(self.top.yaxis, *span, most=6)
            self.top.yaxis.set_major_formatter(tick_in(ms))
            self.top.yaxis.set_label_text(f"latency ({unit})")
        if self.hold("load", x):
            self.low.xaxis.set_label_text("clients" if x == "clients" else "arrival rate (per s)")
        self.limit(self.top, x=(0, right))
        self.limit(self.low, x=(0, right), y=(0, nice(1.08 * most)))

    def _name(self, curve: "LoadCurve", theory: bool, pinned: bool, objective_ms: float | None) -> None:
        theme, width = self.theme, self.line_px
        dots: dict[str, Any] = {"linewidth": width, "marker": ".", "markersize": 3 * width}
        names: list[Name | None] = [
            Name.of("mean", color=theme.blue, linestyle="-", **dots),
            Name.of("p99", color=theme.vermilion, linestyle=":", **dots),
        ]
        if theory:
            names.append(
                Name.of(
                    "theory",
                    color=theme.green,
                    linestyle="-.",
                    linewidth=width,
                    marker="x",
                    markersize=3 * width,
                )
            )
        names.append(
            Name.of(
                "B now" if pinned else "now",
                color=theme.blue,
                marker="D",
                markersize=4 * width,
                linestyle="none",
            )
        )
        if np.isfinite(curve.saturation):
            names.append(
                Name.of("saturation", color=theme.soft, linestyle=(0, (4, 1, 1, 1)), linewidth=width)
            )
        if objective_ms is not None:
            names.append(Name.of("objective", color=theme.orange, linestyle="-", linewidth=1.4 * width))
        if pinned:
            look: dict[str, Any] = {"marker": "D", "markersize": 3.5 * width, "markerfacecolor": "none"}
            names.append(Name.of("A", color=theme.ink, linestyle="--", linewidth=0.8 * width, **look))
        self.name(names)


def load_of(result: Result) -> float:
    """Return where a result is on its load curve: its arrival rate, or its clients."""
    workload = result.scenario.workload
    return float(workload.clients if isinstance(workload, ClosedLoop) else workload.offered_per_s)


def steady(curve: "LoadCurve", column: str) -> np.ndarray:
    """Return a latency of a curve, NaN where there is no steady state."""
    return np.where(curve.overloaded, np.nan, getattr(curve, column))
