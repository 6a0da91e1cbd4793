"""How long requests take: the distribution of latency, or the queue that grows without end."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.patches import Rectangle

from batchsim._format import MINUS, fixed, percent, signed, tick, typed_duration, unit_of
from batchsim.result import Result
from batchsim.result.comparison import Comparison
from batchsim.view.canvas.lettering import Words, width_em
from batchsim.view.canvas.marks import SMALL
from batchsim.view.canvas.picture import Box, Picture
from batchsim.view.canvas.view import Name, View, interval, nice, overloaded
from batchsim.view.run.ranked import Ranked

if TYPE_CHECKING:
    from batchsim.theory import Answer

PERCENTILES = {50: ("blue", "-"), 95: ("vermilion", "--"), 99: ("vermilion", ":")}
ROOM, WRITTEN = 1.12, 1.45  # above the highest bar, and where something is written there
TAIL = 2.0  # p99s that are shown of a long tail; the last bar holds the rest
NEAR = 1.6  # widths of the distribution, up to which the objective has a place in it
CURVE = 201  # points of the queue's curve


class LatencyView(View):
    """The distribution of latency with its percentiles; of an overloaded run, the growing queue."""

    BINS = 60
    TITLE, GROWING = "Latency distribution", "Overloaded: the queue grows"

    def __init__(self, picture: Picture, box: Box, line_px: float = 1.6) -> None:
        super().__init__(picture, box, self.TITLE, line_px)
        theme, width = self.theme, line_px
        self.place_px = self.frame()
        ax = self.ax = self.add_frame(self.place_px, "latency (ms)", "requests (%)")
        edges = np.arange(self.BINS + 1)
        across = ax.get_xaxis_transform()
        self.late = Rectangle((0, 0), 0, 1, transform=across, color=theme.orange, alpha=0.2, lw=0)
        ax.add_patch(self.late)
        self.bars = ax.stairs(np.zeros(self.BINS), edges, fill=True, color=theme.sky, zorder=2)
        self.a_bars = ax.stairs(
            np.zeros(self.BINS), edges, color=theme.ink, linestyle="--", linewidth=0.8 * width, zorder=3
        )
        (self.objective,) = ax.plot(
            [0, 0],
            [0, 1],
            transform=ax.get_xaxis_transform(),
            color=theme.orange,
            linewidth=1.4 * width,
            zorder=2.5,
        )
        self.lines = {
            q: ax.axvline(0, color=getattr(theme, colour), linestyle=style, linewidth=width, zorder=4)
            for q, (colour, style) in PERCENTILES.items()
        }
        self.waiting, self.growth, self.a_waiting = (
            ax.plot([], [], color=colour, linestyle=style, linewidth=thick, zorder=3)[0]
            for colour, style, thick in (
                (theme.purple, "-", 1.5 * width), (theme.soft, "-.", width), (theme.ink, "--", 0.8 * width),
            )
        )  # fmt: skip
        paper: dict[str, Any] = {"facecolor": theme.background, "alpha": 0.85, "lw": 0, "zorder": 6}
        self.paper = Rectangle((0, 0), 0, 0, transform=picture.px_transform, **paper)  # below words
        picture.add_artist(self.paper)
        self.steady: list[Artist] = [self.bars, *self.lines.values()]
        self.growing: list[Artist] = [self.waiting, self.growth]
        self.moves(
            self.late, self.a_bars, self.objective, self.paper, self.a_waiting, *self.steady, *self.growing
        )

    def update(
        self,
        result: Result,
        ranked: Ranked | None = None,
        objective_ms: float | None = None,
        pinned: Result | None = None,
        comparison: Comparison | None = None,
        a_ranked: Ranked | None = None,
    ) -> None:
        """Show a result; `pinned` is A, held against it."""
        grows, a_grows = overloaded(result), pinned is not None and overloaded(pinned)
        for artists, seen in ((self.steady, not grows), (self.growing, grows)):
            for artist in artists:
                artist.set_visible(seen)
        self.a_bars.set_visible(pinned is not None and not grows and not a_grows)
        self.a_waiting.set_visible(a_grows and grows)
        for artist in (self.late, self.objective):
            artist.set_visible(objective_ms is not None and not grows)
        if self.hold("title", grows):
            self.title.set_text(self.GROWING if grows else self.TITLE)
        if grows:
            self.paper.set_visible(False)
            self._show_queue(result, pinned if a_grows else None)
            return
        ranked = ranked or Ranked(result)
        if pinned is not None and not a_grows:
            a_ranked = a_ranked or Ranked(pinned)
        else:
            pinned = a_ranked = None
        told = [] if comparison is None or pinned is None else difference(comparison)
        self._show_latency(result, ranked, objective_ms, pinned, a_ranked, told)

    def _show_latency(
        self,
        result: Result,
        ranked: Ranked,
        objective_ms: float | None,
        a: Result | None,
        a_ranked: Ranked | None,
        told: Sequence[str],
    ) -> None:
        values = {q: result.percentile(q) for q in PERCENTILES}
        right_ms = upper_ms(ranked, values[99])
        if a is not None and a_ranked is not None:
            right_ms = max(right_ms, upper_ms(a_ranked, a.percentile(99)))
        if objective_ms is not None and objective_ms <= NEAR * right_ms:
            right_ms = max(right_ms, nice(1.05 * objective_ms))
        edges = np.linspace(0, right_ms, self.BINS + 1)
        share = ranked.shares(edges)
        self.bars.set_data(share, edges)
        highest = float(share.max())
        if a_ranked is not None:
            a_share = a_ranked.shares(edges)
            self.a_bars.set_data(a_share, edges)
            highest = max(highest, float(a_share.max()))
        for q, line in self.lines.items():
            line.set_xdata([values[q]] * 2)
        slower = 100 * (1 - ranked.below(right_ms) / ranked.count) if ranked.count else 0.0
        besides = self._corner(told)
        if slower >= 0.005:
            x, y = self.place_px.right, self.place_px.bottom - self.em
            besides.append(Words(f"{slower:.2g} % slower \N{RIGHTWARDS ARROW}", x, y, "right"))
        room = WRITTEN if told else ROOM
        self.in_time(self.ax.xaxis, "latency", right_ms, "x")
        if self.hold("y label", "requests (%)"):
            self.ax.yaxis.set_label_text("requests (%)")
        self.limit(self.ax, x=(0, right_ms), y=(0, nice(room * highest)))
        if objective_ms is not None:
            self.objective.set_xdata([objective_ms] * 2)
            self.late.set_bounds(objective_ms, 0, max(right_ms - objective_ms, 0), 1)
        self._name_latency(result, values, right_ms, objective_ms, a is not None, besides)

    def _name_latency(
        self,
        result: Result,
        values: dict[int, float],
        right_ms: float,
        objective_ms: float | None,
        pinned: bool,
        besides: Sequence[Words],
    ) -> None:
        theme, (_, ms) = self.theme, unit_of(right_ms)
        names: list[Name | None] = [
            Name.of(
                f"p{q} 00.00", True, color=getattr(theme, colour), linestyle=style, linewidth=self.line_px
            )
            for q, (colour, style) in PERCENTILES.items()
        ]
        told = [f"p{q} {fixed(value / ms)}" for q, value in values.items()]
        names.append(None)
        lost = 1 - result.metrics.served / int(result.metrics.totals.requests)
        if pinned:
            names.append(Name.of("B" if lost else "B now", facecolor=theme.sky, lw=0))
            names.append(
                Name.of(
                    "A" if lost else "A pinned", color=theme.ink, linestyle="--", linewidth=0.8 * self.line_px
                )
            )
        if objective_ms is not None:
            mark = {"color": theme.orange, "linestyle": "-", "linewidth": 1.4 * self.line_px}
            limit = f"{'≤' if pinned else 'within'} {typed_duration(objective_ms)}"
            told.append(f"{limit}: {percent(result.attainment(objective_ms))}")
            names.append(Name.of(f"{limit}: 00.00 %", True, **mark))
        if lost:
            names.append(Name.of("lost 00.00 %", True))
            told.append(f"lost {percent(lost)}")
        self.name(names, told, besides)

    def _corner(self, lines: Sequence[str]) -> list[Words]:
        """Return lines of words for the upper right corner of the axes, with paper below them."""
        em, place = SMALL * self.em, self.place_px
        self.paper.set_visible(bool(lines))
        if not lines:
            return []
        wide, high = em * (max(map(width_em, lines)) + 0.6), em * (1.25 * len(lines) + 0.4)
        self.paper.set_bounds(place.right - wide, place.top, wide, high)
        return [
            Words(line, place.right - 0.3 * em, place.top + (1.25 * number + 1.1) * em, "right")
            for number, line in enumerate(lines)
        ]

    def _show_queue(self, result: Result, a: Result | None) -> None:
        """Draw how many wait along the run, and how fast that grows by the rates alone."""
        theme = self.theme
        waiting, end_s = queue_length(result)
        per_s = growth_per_s(result)
        times_s = np.linspace(0, end_s, CURVE)
        self.waiting.set_data(times_s, waiting)
        last_s = float(result.arrival_s[-1])
        self.growth.set_data([0, last_s], [0, per_s * last_s])
        highest, right_s = max(float(waiting.max()), per_s * last_s), nice(end_s)
        names: list[Name | None] = [
            Name.of("waiting", color=theme.purple, linestyle="-", linewidth=1.5 * self.line_px),
            Name.of("+000,000 every second", True, color=theme.soft, linestyle="-.", linewidth=self.line_px),
        ]
        if a is not None:
            a_waiting, a_end_s = queue_length(a)
            self.a_waiting.set_data(np.linspace(0, a_end_s, CURVE), a_waiting)
            highest, right_s = max(highest, float(a_waiting.max())), max(right_s, nice(a_end_s))
            names += [
                None,
                Name.of("A pinned", color=theme.ink, linestyle="--", linewidth=0.8 * self.line_px),
            ]
        if self.hold("unit of x", ("time",)):
            self.ax.xaxis.set_major_formatter(tick)
            self.ax.xaxis.set_label_text("time (s)")
        if self.hold("y label", "requests waiting"):
            self.ax.yaxis.set_label_text("requests waiting")
        self.limit(self.ax, x=(0, right_s), y=(0, nice(ROOM * highest)))
        self.name(names, [f"+{fixed(per_s) if per_s < 10 else f'{per_s:,.0f}'} every second"])

    # What a still picture has besides.

    def show_intervals(self, result: Result) -> None:
        """Put each percentile's 95 % interval round it as a band, where there is one."""
        for q, (colour, _) in PERCENTILES.items():
            low, high = interval(result, f"p{q}_ms")
            if low < high:
                look: dict[str, Any] = {"color": getattr(self.theme, colour), "alpha": 0.18, "linewidth": 0}
                self.moves(self.ax.axvspan(low, high, zorder=3.5, **look))

    def show_theory(self, answer: "Answer") -> None:
        """Draw the distribution that theory expects, or its mean where it knows no more."""
        look: dict[str, Any] = {"color": self.theme.green, "linestyle": "-.", "zorder": 5}
        edges = np.asarray(self.bars.get_data()[1])
        below = answer.below(edges)
        if below is None:
            name = f"{answer.model}: mean" + ("" if answer.exact else ", approximately")
            self.moves(self.ax.axvline(answer.mean_latency_ms, linewidth=self.line_px, **look))
        else:
            share = 100 * np.diff(np.append(below[:-1], 1.0))  # the last bar has all above, as the run's
            self.moves(self.ax.stairs(share, edges, linewidth=self.line_px, **look))
            name = f"{answer.model}: theory"
            if share.max() > self.ax.get_ylim()[1] / ROOM:
                self.limit(self.ax, y=(0, nice(ROOM * float(share.max()))))
        names = [*self._held["names"], Name.of(name, color=self.theme.green, linestyle="-.", linewidth=1.5)]
        self.name(names, self.told)


def upper_ms(ranked: Ranked, p99_ms: float) -> float:
    """Return where a distribution's axis ends: at its slowest, or where a long tail has become thin."""
    if not ranked.count:
        return 1.0
    return nice(min(1.02 * ranked.slowest_ms, TAIL * p99_ms))


def difference(comparison: Comparison) -> list[str]:
    """Return how far B's p99 is above A's, and how sure that is, as lines; none if it was not compared."""
    row = comparison.rows.get("p99_ms")
    if row is None or math.isnan(row.difference):
        return []
    lines = [f"p99, B {MINUS} A: {signed(row.difference)} ms"]
    if not math.isnan(row.low):
        lines.append(f"{signed(row.low)} to {signed(row.high)} ({100 * comparison.level:g} %)")
    return lines


def growth_per_s(result: Result) -> float:
    """Return by how much more requests arrive in a second than full batches can take."""
    workload = result.scenario.workload
    return float(workload.offered_per_s) - result.scenario.full_batches_per_s  # type: ignore[union-attr]


def queue_length(result: Result) -> tuple[np.ndarray, float]:
    """Return how many wait at equally spaced times from 0 to the last arrival, and that time.

    Of a run in which nobody is lost: shape (CURVE,).
    """
    log, end_s = result.log, float(result.arrival_s[-1])
    times_s = np.linspace(0, end_s, CURVE)
    left = np.concatenate([[0], np.cumsum(log.batch_size)])
    started = left[np.searchsorted(log.batch_start_s, times_s, side="right")]
    return np.searchsorted(log.arrival_s, times_s, side="right") - started, end_s
