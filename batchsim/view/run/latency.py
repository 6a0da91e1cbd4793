"""How long requests take: the distribution of latency, or the queue that grows without end."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Rectangle

from batchsim._format import MINUS, fixed, number, percent, signed, typed_duration, unit_of
from batchsim.result import Result
from batchsim.result.comparison import Comparison, Difference
from batchsim.view.canvas.lettering import Label, width_em
from batchsim.view.canvas.marks import SMALL
from batchsim.view.canvas.scales import nice
from batchsim.view.run.data import ViewData
from batchsim.view.run.view import NEW_ROW, Entry, View

if TYPE_CHECKING:
    from batchsim.theory import Answer

PERCENTILES = {50: ("blue", "-"), 95: ("vermilion", "--"), 99: ("vermilion", ":")}
BINS = 60
HEADROOM, WRITTEN = 1.12, 1.45  # above the highest bar, and where something is written there
TAIL = 2.0  # a long tail is shown up to this many p99s; the last bar holds the rest
NEAR = 1.6  # the objective is shown if it is within this many widths of the distribution
POINTS = 201  # of the queue's curve


class LatencyView(View):
    """The distribution of latency with its percentiles; of an overloaded run, the growing queue."""

    NAME, OVERLOADED = "Latency distribution", "Overloaded: the queue grows"

    def add_artists(self) -> None:
        theme = self.theme
        self.plot_box = self.axes_box()
        ax = self.ax = self.add_plot(self.plot_box, "latency (ms)", "requests (%)")
        self.late = ax.axvspan(0, 0, color=theme.orange, alpha=0.2, lw=0)
        self.bars = ax.stairs([0], [0, 1], fill=True, color=theme.sky, zorder=2)
        self.a_bars = ax.stairs([0], [0, 1], zorder=3, **self.a_style)
        self.objective = ax.axvline(0, zorder=2.5, **self.objective_style)
        self.styles = {q: self.line_style(*style) for q, style in PERCENTILES.items()}
        self.lines = {q: ax.axvline(0, zorder=4, **style) for q, style in self.styles.items()}
        self.queue_style = self.line_style("purple", "-", 1.5)
        self.growth_style = self.line_style("soft", "-.")
        styles = self.queue_style, self.growth_style, self.a_style
        self.queue, self.growth, self.a_queue = (ax.plot([], [], zorder=3, **style)[0] for style in styles)
        # Below the difference.
        self.paper = self.add(Rectangle((0, 0), 0, 0, facecolor=theme.background, alpha=0.85, lw=0, zorder=6))
        self.set_moving(
            self.late, self.bars, self.a_bars, self.objective, *self.lines.values(), self.queue, self.growth,
            self.a_queue, self.paper,
        )  # fmt: skip

    def update(self, data: ViewData) -> None:
        grows = data.overloaded
        # A is drawn where it shows the same thing as B: a distribution, or a growing queue.
        a = data.pinned if data.pinned is not None and data.pinned.overloaded == grows else None
        missing = [self.late, self.objective] * (data.objective_ms is None)
        missing += [self.a_bars, self.a_queue] * (a is None)
        for artist in self.moving:
            if artist is not self.values:
                of_queue = artist in (self.queue, self.growth, self.a_queue)
                artist.set_visible(of_queue == grows and artist not in missing)
        if self.hold("title", grows):
            self.title.set_text(self.OVERLOADED if grows else self.NAME)
        if grows:
            self._show_queue(data.result, None if a is None else a.result)
        else:
            self._show_distribution(data, a)

    def _show_distribution(self, data: ViewData, a: ViewData | None) -> None:
        values = {q: data.result.percentile(q) for q in PERCENTILES}
        objective_ms = data.objective_ms
        right_ms = max(upper_ms(each) for each in (data, a) if each is not None)
        if objective_ms is not None and objective_ms <= NEAR * right_ms:
            right_ms = max(right_ms, nice(1.05 * objective_ms))
        edges = np.linspace(0, right_ms, BINS + 1)
        highest = 0.0
        for bars, each in ((self.bars, data), (self.a_bars, a)):
            if each is not None:
                share = each.ranked.shares(edges)
                bars.set_data(share, edges)
                highest = max(highest, float(share.max()))
        for q, line in self.lines.items():
            line.set_xdata([values[q]] * 2)
        if objective_ms is not None:
            self.objective.set_xdata([objective_ms] * 2)
            self.late.set_bounds(objective_ms, 0, max(right_ms - objective_ms, 0), 1)
        lines = [] if a is None or data.comparison is None else difference(data.comparison)
        extra = self._corner(lines)
        beyond = 100 * (1 - data.ranked.below(right_ms) / data.ranked.count) if data.ranked.count else 0.0
        if beyond >= 0.005:
            at = self.plot_box.right, self.plot_box.bottom - self.em
            extra.append(Label(f"{beyond:.2g}% slower \N{RIGHTWARDS ARROW}", *at, "right"))
        self.set_label(self.ax.xaxis, "latency", right_ms)
        self.set_label(self.ax.yaxis, "requests (%)")
        room = WRITTEN if lines else HEADROOM
        self.set_limits(self.ax, x=(0, right_ms), y=(0, nice(room * highest)))
        texts = {q: fixed(value / unit_of(right_ms)[1]) for q, value in values.items()}
        entries = [Entry(f"p{q} 00.00", style, f"p{q} {texts[q]}") for q, style in self.styles.items()]
        self.show_legend([*entries, NEW_ROW, *self._second_row(data, a is not None)], extra)

    def _second_row(self, data: ViewData, pinned: bool) -> list[Entry]:
        entries = []
        if pinned:
            now, then = ("B", "A") if data.loss else ("B now", "A pinned")  # where there is room for it
            entries += [Entry(now, {"facecolor": self.theme.sky, "lw": 0}), Entry(then, self.a_style)]
        if data.objective_ms is not None:
            limit = f"{'≤' if pinned else 'within'} {typed_duration(data.objective_ms)}"
            share = percent(data.result.attainment(data.objective_ms))
            entries.append(Entry(f"{limit}: 00.00%", self.objective_style, f"{limit}: {share}"))
        if data.loss:
            entries.append(Entry("lost 00.00%", value=f"lost {percent(data.loss)}"))
        return entries

    def _corner(self, lines: Sequence[str]) -> list[Label]:
        """Return labels for lines in the upper right corner of the axes, and put paper below them."""
        em, box = SMALL * self.em, self.plot_box
        self.paper.set_visible(bool(lines))
        wide, high = em * (max(map(width_em, lines), default=0.0) + 0.6), em * (1.25 * len(lines) + 0.4)
        self.paper.set_bounds(box.right - wide, box.top, wide, high)
        return [
            Label(line, box.right - 0.3 * em, box.top + (1.25 * row + 1.1) * em, "right")
            for row, line in enumerate(lines)
        ]

    def _show_queue(self, result: Result, a: Result | None) -> None:
        """Draw how many requests wait along the run, and how fast that grows by the rates alone."""
        arriving = result.scenario.workload.offered_per_s  # type: ignore[union-attr]
        per_s, end_s = float(arriving) - result.scenario.full_batches_per_s, float(result.arrival_s[-1])
        self.growth.set_data([0, end_s], [0, per_s * end_s])
        highest, right_s = per_s * end_s, 0.0
        for line, each in ((self.queue, result), (self.a_queue, a)):
            if each is not None:
                waiting, end_s = queue_length(each)
                line.set_data(np.linspace(0, end_s, POINTS), waiting)
                highest, right_s = max(highest, float(waiting.max())), max(right_s, nice(end_s))
        growth = f"+{fixed(per_s) if per_s < 10 else f'{per_s:,.0f}'} every second"
        rising = Entry("+000,000 every second", self.growth_style, growth)
        entries = [Entry("waiting", self.queue_style), rising]
        entries += [] if a is None else [NEW_ROW, Entry("A pinned", self.a_style)]
        self.set_label(self.ax.xaxis, "time (s)")
        self.set_label(self.ax.yaxis, "requests waiting")
        self.set_limits(self.ax, x=(0, right_s), y=(0, nice(HEADROOM * highest)))
        self.show_legend(entries)

    def describe(self, data: ViewData) -> list[str]:
        s, objective_ms = data.summary, data.objective_ms
        if data.overloaded:
            arriving, possible = s["offered_per_s"], data.result.scenario.full_batches_per_s
            rates = f"{number(arriving, 5)} requests arrive per second, full batches carry"
            grows = f"the queue grows by {number(arriving - possible)} per second"
            text = f"{rates} {number(possible, 5)}: {grows}, and latency has no steady state."
            return [f"Overloaded: {text}", *_describe_difference(data)]
        if not s["served"]:
            return [f"None of {s['requests']:,} requests is served.", *_describe_difference(data)]
        text = ", ".join(f"p{q} {number(s[f'p{q}_ms'])} ms" for q in PERCENTILES)
        if data.loss:
            text += f" of the served requests; {percent(data.loss)} are lost"
        sentences = [f"{text}."]
        if objective_ms is not None:
            verdict = "met" if data.result.percentile(99, unserved="inf") <= objective_ms else "missed"
            share = percent(data.result.attainment(objective_ms))
            limit = f"The objective, p99 of all requests within {typed_duration(objective_ms)},"
            sentences.append(f"{limit} is {verdict}: {share} of requests are within it.")
        drift = "The run drifts: its arrival rate changes, so these numbers hold for this run only."
        return [*sentences, *[drift] * bool(s["drifting"]), *_describe_difference(data)]

    # What a still picture shows in addition.

    def show_intervals(self, intervals: Mapping[str, tuple[float, float]]) -> None:
        """Draw a band round each percentile: its interval, where there is one."""
        for q, (low, high) in zip(PERCENTILES, intervals.values(), strict=True):
            if low < high:
                colour = self.styles[q]["color"]
                self.set_moving(self.ax.axvspan(low, high, color=colour, alpha=0.18, linewidth=0, zorder=3.5))

    def show_theory(self, answer: "Answer") -> None:
        """Draw the distribution that theory expects, or its mean where it knows no more."""
        style = self.line_style("green", "-.")
        edges = np.asarray(self.bars.get_data()[1])
        below = answer.below(edges)
        if below is None:
            name = f"{answer.model}: mean" + ("" if answer.exact else ", approximately")
            self.set_moving(self.ax.axvline(answer.mean_latency_ms, zorder=5, **style))
        else:
            name = f"{answer.model}: theory"
            share = 100 * np.diff(np.append(below[:-1], 1.0))  # the last bar has the tail, as the run's
            self.set_moving(self.ax.stairs(share, edges, zorder=5, **style))
            if share.max() > self.ax.get_ylim()[1] / HEADROOM:
                self.set_limits(self.ax, y=(0, nice(HEADROOM * float(share.max()))))
        self.show_legend([*self.entries, Entry(name, style)])


def upper_ms(data: ViewData) -> float:
    """Return where a distribution's axis ends: at its slowest, or where a long tail has become thin."""
    if not data.ranked.count:
        return 1.0
    return nice(min(1.02 * data.ranked.slowest_ms, TAIL * data.result.percentile(99)))


def difference(comparison: Comparison) -> list[str]:
    """Return how far B's p99 is above A's, and its interval, as lines; none if it was not compared."""
    row = comparison.rows.get("p99_ms")
    if row is None or math.isnan(row.difference):
        return []
    interval = f"{signed(row.low)} to {signed(row.high)} ({100 * comparison.level:g}%)"
    return [f"p99, B {MINUS} A: {signed(row.difference)} ms", *[interval] * (not math.isnan(row.low))]


def _describe_difference(data: ViewData) -> list[str]:
    if data.pinned is None:
        return []
    a = data.pinned.summary
    if not (data.summary["served"] and a["served"]):
        return ["A and B cannot be compared: one of them serves no request."]
    if data.comparison is None:
        return ["A and B cannot be compared: one is overloaded, or their traffic differs."]
    p50, p99, mean = (number(a[key]) for key in ("p50_ms", "p99_ms", "mean_latency_ms"))
    batches = f"batches of {number(a['mean_batch_size'])} requests on average"
    return [
        f"A has p50 {p50} ms, p99 {p99} ms, mean {mean} ms, and {batches}.",
        f"The p99 of B is {_relative(data.comparison['p99_ms'], ' ms')}.",
        f"The throughput of B is {_relative(data.comparison['throughput_per_s'], '/s')}.",
    ]


def _relative(row: Difference, unit: str) -> str:
    size = f"{number(abs(row.difference))}{unit} {'lower' if row.difference < 0 else 'higher'} than A's"
    text = size if row.difference else "the same as A's"
    if math.isnan(row.low):
        return f"{text} (no interval: the run is too short, drifts, or loses too many requests)"
    return f"{text} (95% interval of the difference: {signed(row.low)} to {signed(row.high)})"


def queue_length(result: Result) -> tuple[np.ndarray, float]:
    """Return how many requests wait at equally spaced times from 0 to the last arrival, and that time.

    For a run that serves all requests, as an overloaded one does: shape (POINTS,).
    """
    end_s = float(result.arrival_s[-1])
    times_s = np.linspace(0, end_s, POINTS)
    left = np.concatenate([[0], np.cumsum(result.batches.batch_size)])
    started = left[np.searchsorted(result.batches.start_s, times_s, side="right")]
    return np.searchsorted(result.arrival_s, times_s, side="right") - started, end_s
