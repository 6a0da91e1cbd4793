"""How long requests take: the distribution of latency, or the queue that grows without end."""

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from batchsim._format import MINUS, duration, fixed, number, percent, signed, typed, typed_duration, unit_of
from batchsim.result.comparison import Comparison, Difference
from batchsim.result.distributions import POINTS, queue_length
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import DASHED, Spot, Style, View
from batchsim.view.scales import nice

if TYPE_CHECKING:
    from batchsim.theory import Answer

OVERLOADED = "Overloaded: the queue grows"
HEADROOM = 1.12  # above the highest bar


class GrowingView(View):
    """A view of durations, or of the growing queue of an overloaded run."""

    KEY = "latency"
    COMPARED: ClassVar[dict[str, tuple[str, str]]]  # differences B - A: name, unit
    UNSTEADY: ClassVar[str]  # what has no steady state
    RANK = 0

    def title(self, data: ViewData) -> str:
        if data.overloaded:
            return OVERLOADED if self.large else "Requests waiting"
        return super().title(data)

    def update(self, data: ViewData) -> None:
        # Another setting is drawn only if it, too, shows durations, or a growing queue.
        other = data.other if data.other is not None and data.other.overloaded == data.overloaded else None
        (self._show_queue if data.overloaded else self.show_times)(data, other)

    def show_times(self, data: ViewData, other: ViewData | None) -> None:
        """Draw the durations, and those of another setting."""
        raise NotImplementedError

    def _show_queue(self, data: ViewData, other: ViewData | None) -> None:
        """Draw the number of waiting requests along the run, and its growth as the rates predict it."""
        result = data.result
        arriving = result.scenario.workload.offered_per_s  # type: ignore[union-attr]
        per_s, end_s = float(arriving) - result.scenario.full_batches_per_s, float(result.arrival_s[-1])
        self.plot("growth", [0, end_s], [0, per_s * end_s], zorder=3, **self.style("soft", "-.", 0.7))
        highest, right_s = per_s * end_s, 0.0
        looks = {
            "queue": self.now_style | {"zorder": 3},
            "other queue": self.other_style(data) | {"zorder": 2.5},
        }
        for (key, look), each in zip(looks.items(), (data, other), strict=True):
            if each is not None:
                waiting, end_s = queue_length(each.result)
                self.plot(key, np.linspace(0, end_s, POINTS), waiting, **look)
                highest, right_s = max(highest, float(waiting.max())), max(right_s, nice(end_s))
        self.limits(self.ax, "queue", x=(0, right_s), y=(0, nice(HEADROOM * highest)))
        self.label(self.ax.xaxis, "time (s)")
        self.label(self.ax.yaxis, "requests waiting")
        self.note("growth name", f"+{fixed(per_s) if per_s < 10 else f'{per_s:,.0f}'} every second", up=-0.3)

    def spot_of_queue(self, at_s: float, data: ViewData) -> Spot | None:
        """Return the number of waiting requests at a time."""
        waiting, end_s = queue_length(data.result)
        if at_s > end_s:
            return None
        count = waiting[round(at_s / end_s * (POINTS - 1))]
        return Spot(self.KEY, f"After {number(at_s)} s: {count:,} requests wait")

    def carried(self, data: ViewData) -> str:
        """Return the subject and verb of a sentence: who carries requests."""
        raise NotImplementedError

    def describe_times(self, data: ViewData) -> list[str]:
        """Describe the durations in sentences."""
        raise NotImplementedError

    def describe(self, data: ViewData) -> list[str]:
        s = data.summary
        if data.overloaded:
            arriving, possible = s["offered_per_s"], data.result.scenario.full_batches_per_s
            carried = f"{self.carried(data)} {number(possible, 5)}"
            rates = f"{number(arriving, 5)} requests arrive per second, {carried}"
            grows = f"the queue grows by {number(arriving - possible)} per second"
            sentences = [f"Overloaded: {rates}: {grows}, and {self.UNSTEADY} has no steady state."]
        elif not s["served"]:
            sentences = [f"No request of {s['requests']:,} is served."]
        else:
            sentences = self.describe_times(data)
        return sentences + self.describe_difference(data)

    def describe_difference(self, data: ViewData) -> list[str]:
        """Describe how B, the present setting, differs from A."""
        if data.pinned is None:
            return []
        if not (data.summary["served"] and data.pinned.summary["served"]):
            return ["A and B cannot be compared: one of them serves no request."]
        if data.comparison is None:
            return ["A and B cannot be compared: one is overloaded, or their traffic differs."]
        return [
            f"The {name} of B is {relative(row, unit)}."
            for key, (name, unit) in self.COMPARED.items()
            if (row := data.comparison.rows.get(key)) is not None
        ]


def describe_objective(limit_ms: float, p99_ms: float, share: float) -> str:
    """Return whether an objective is met, as a sentence."""
    limit = f"The objective, p99 of all requests within {typed_duration(limit_ms)},"
    met = "met" if p99_ms <= limit_ms else "missed"
    return f"{limit} is {met}: {percent(share)} of requests are within it."


SAID = (50, 95, 99)  # the percentiles in the description
PERCENTILES = {50: DASHED, 99: "-"}  # the percentiles of the picture, and their dashes
BINS = 60
TAIL = 2.0  # p99s: where a long tail is cut off; the last bar contains the rest
NEAR = 1.6  # widths of the distribution: an objective farther away is not shown
ABOVE = 0.93  # of the height: where the lines of percentiles end, below their names


class LatencyView(GrowingView):
    """The distribution of latency with its percentiles."""

    NAME, SHORT = "Latency", "Latency"
    COMPARED: ClassVar = {"p99_ms": ("p99", " ms"), "throughput_per_s": ("throughput", "/s")}
    UNSTEADY = "latency"

    def show_times(self, data: ViewData, other: ViewData | None) -> None:
        look, ax, objective_ms = self.look, self.ax, data.objective_ms
        values = {f"p{q}": data.result.percentile(q) for q in PERCENTILES}
        right_ms = max(upper_ms(each) for each in (data, other) if each is not None)
        if objective_ms is not None and objective_ms <= NEAR * right_ms:
            right_ms = max(right_ms, nice(1.05 * objective_ms))
        self.limits(ax, "latency", x=(0, right_ms))
        right_ms = float(ax.get_xlim()[1])  # limits only grow until a release
        edges = np.linspace(0, right_ms, BINS + 1)
        share = data.ranked.shares(edges)
        fill: Style = {"edgecolor": "none", "linewidth": 0}
        self.stairs("bars", share, edges, 0, facecolor=look.now, zorder=2, **fill)
        if other is not None:
            before = other.ranked.shares(edges)
            if data.pinned is None:
                self.stairs("before", before, edges, 0, facecolor=look.before, alpha=0.35, zorder=1.8, **fill)
            self.stairs("other", before, edges, 0, fill=False, zorder=3, **self.other_style(data))
            share = np.maximum(share, before)
        if data.answer is not None:
            share = np.maximum(share, self._show_theory(data.answer, edges))
        top = ABOVE if self.large else 1.0
        upright: Style = {"transform": ax.get_xaxis_transform()}
        for (name, ms), dashes in zip(values.items(), PERCENTILES.values(), strict=True):
            self.plot(name, [ms] * 2, [0, top], zorder=4, **self.style("ink", dashes, 0.65), **upright)
        if objective_ms is not None:
            style = self.style("objective", width=0.8) | upright
            self.plot("objective", [objective_ms] * 2, [0, top], zorder=2.5, **style)
            late: Style = {"color": look.objective, "alpha": 0.1, "linewidth": 0, "zorder": 1}
            self.span("late", objective_ms, max(right_ms, objective_ms), **late)
        if data.is_still:  # no interval of a short run
            intervals = data.result.intervals([f"{name}_ms" for name in values])
            for name, (low, high) in intervals.items():
                if low < high:
                    band: Style = {"color": look.ink, "alpha": 0.18, "linewidth": 0, "zorder": 3.5}
                    self.span(name, low, high, **band)
        self.label(ax.xaxis, "latency", right_ms)
        self.label(ax.yaxis, "requests", form="{x:g}%")
        highest = float(share.max())
        room = 1.15 if self.large else 1.0  # for the names
        self.limits(ax, "latency", y=(0, nice(HEADROOM * room * highest) if highest else 10.0))
        if self.large:
            self._name_lines(data, values, right_ms)

    def _show_theory(self, answer: "Answer", edges: np.ndarray) -> Any:
        """Draw the distribution that theory expects, or its mean if that is all it gives; return its bars."""
        style, below = self.style("ink", "-.", 0.7) | {"zorder": 5}, answer.below(edges)
        if below is None:
            upright = self.ax.get_xaxis_transform()
            self.plot("theory", [answer.mean_latency_ms] * 2, [0, 1], transform=upright, **style)
            return 0.0
        share = 100 * np.diff(np.append(below[:-1], 1.0))  # as in the run, the last bar contains the tail
        self.stairs("expected", share, edges, 0, fill=False, **style)
        return share

    def _name_lines(self, data: ViewData, values: dict[str, float], right_ms: float) -> None:
        """Name the lines above them; beside them where they are too near each other."""
        unit, upright = unit_of(right_ms)[1], self.ax.get_xaxis_transform()
        marks = {name: (f"{name} {fixed(ms / unit)}", ms, 1.0) for name, ms in values.items()}
        if data.objective_ms is not None:
            marks["objective"] = f"objective {typed(data.objective_ms / unit)}", data.objective_ms, 1.0
        shown = {name: mark for name, mark in marks.items() if mark[1] <= right_ms}
        above: Style = {"ha": "center", "va": "top", "xycoords": upright}
        self.names(shown, 6.6, across=True, colours={"objective": self.look.objective}, **above)
        beyond = 100 * (1 - data.ranked.below(right_ms) / data.ranked.count) if data.ranked.count else 0.0
        slower = f"{beyond:.2g}% slower \N{RIGHTWARDS ARROW}" * (beyond >= 0.005)
        at: Style = {"xycoords": "axes fraction", "ha": "right"}
        self.annotate("slower", slower, 1, 0, up=0.4, va="bottom", **at)
        self.note("note", self._note(data), y=0.82, up=0, bbox=self.halo)

    def followed(self, data: ViewData) -> tuple[float, float] | None:
        at_ms = min(data.followed_ms, float(self.ax.get_xlim()[1]))
        return None if data.overloaded else (at_ms, at_ms)

    def _note(self, data: ViewData) -> str:
        """Return the words in the corner: the difference from A, or the share within the objective."""
        if data.pinned is not None and data.comparison is not None and (lines := difference(data.comparison)):
            return "\n".join(lines)
        notes = []
        if data.objective_ms is not None:
            share = percent(data.result.attainment(data.objective_ms))
            notes.append(f"{share}\nwithin {typed_duration(data.objective_ms)}")
        if data.loss:
            notes.append(f"{percent(data.loss)} lost")
        return "\n".join(notes)

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        if data.overloaded:
            return self.spot_of_queue(x, data)
        if not data.ranked.count:
            return None
        below = data.ranked.below(x) / data.ranked.count
        who = "served requests" if data.loss else "requests"
        return Spot(self.KEY, f"{percent(below)} of the {who} take less than {duration(x)}")

    def carried(self, data: ViewData) -> str:
        frozen = data.result.scenario.rule.forms_while_busy
        return f"{'the batches that form' if frozen else 'full batches'} carry"

    def describe_times(self, data: ViewData) -> list[str]:
        s, objective_ms = data.summary, data.objective_ms
        text = ", ".join(f"p{q} {number(s[f'p{q}_ms'])} ms" for q in SAID)
        if data.loss:
            text += f" of the served requests; {percent(data.loss)} are lost"
        sentences = [f"{text}."]
        if objective_ms is not None:
            share = data.result.attainment(objective_ms)
            sentences.append(describe_objective(objective_ms, data.percentile_of_all(99), share))
        drift = "The run drifts: its arrival rate changes, so these numbers hold for this run only."
        return sentences + [drift] * bool(s["drifting"])

    def describe_difference(self, data: ViewData) -> list[str]:
        sentences = super().describe_difference(data)
        if data.pinned is None or data.comparison is None or not sentences:
            return sentences
        a = data.pinned.summary
        p50, p99, mean = (number(a[key]) for key in ("p50_ms", "p99_ms", "mean_latency_ms"))
        batches = f"batches of {number(a['mean_batch_size'])} requests on average"
        return [f"A has p50 {p50} ms, p99 {p99} ms, mean {mean} ms, and {batches}.", *sentences]


def upper_ms(data: ViewData) -> float:
    """Return the end of a distribution's axis: the slowest request, or where a long tail is cut off."""
    if not data.ranked.count:
        return 1.0
    return nice(min(1.02 * data.ranked.slowest_ms, TAIL * data.result.percentile(99)))


def difference(comparison: Comparison, key: str = "p99_ms", name: str = "p99") -> list[str]:
    """Return by how much B's metric exceeds A's, and the interval; [] if they were not compared."""
    row = comparison.rows.get(key)
    if row is None or math.isnan(row.difference):
        return []
    interval = f"{signed(row.low)} to {signed(row.high)} ({100 * comparison.level:g}%)"
    return [f"{name}, B {MINUS} A: {signed(row.difference)} ms", *[interval] * (not math.isnan(row.low))]


def relative(row: Difference, unit: str) -> str:
    """Return by how much B exceeds A, with the interval, in words."""
    size = f"{number(abs(row.difference))}{unit} {'lower' if row.difference < 0 else 'higher'} than A's"
    text = size if row.difference else "the same as A's"
    if math.isnan(row.low):
        return f"{text} (no interval: the run is too short, drifts, or loses too many requests)"
    return f"{text} (95% interval of the difference: {signed(row.low)} to {signed(row.high)})"
