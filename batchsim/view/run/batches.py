"""What the server does: its batches by why they left, and the first requests one by one."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator

from batchsim._format import fixed
from batchsim.engines.log import Status
from batchsim.result import Result
from batchsim.scenario.rules import Trigger
from batchsim.view.canvas.picture import Box, Picture
from batchsim.view.canvas.view import Name, View, nice
from batchsim.view.run.breakdown import PARTS

if TYPE_CHECKING:
    from batchsim.theory import Answer

TRIGGERS = {
    Trigger.FULL: ("blue", "", "full"),
    Trigger.ENOUGH: ("green", "..", "enough came"),
    Trigger.WAIT: ("orange", "//", "wait was over"),
    Trigger.BACKLOG: ("purple", "\\\\", "server came free"),
    Trigger.DRAIN: ("grey", "xx", "run ended"),
}
NO_WAIT = "server was idle"  # what a wait that is over means where there is none
MOST_BARS = 64
TIMELINE_REQUESTS = 30
LOST = {Status.REJECTED: "X", Status.TIMED_OUT: "P"}


class BatchView(View):
    """How large the batches are, and why they left."""

    def __init__(self, picture: Picture, box: Box, line_px: float = 1.6) -> None:
        super().__init__(picture, box, "Batch sizes, by why they left", line_px)
        theme = self.theme
        ax = self.ax = self.add_frame(self.frame(), "batch size (requests)", "batches (%)")
        ax.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
        self.bars = {
            trigger: ax.stairs(
                [0], [0, 1], baseline=[0], fill=True, facecolor=getattr(theme, colour), linewidth=0,
                edgecolor=theme.background, hatch=hatch, zorder=2,
            )
            for trigger, (colour, hatch, _) in TRIGGERS.items()
        }  # fmt: skip
        self.a_total = ax.stairs(
            [0], [0, 1], baseline=None, color=theme.ink, linestyle="--", linewidth=0.8 * line_px, zorder=3
        )
        self.moves(*self.bars.values(), self.a_total)

    def update(self, result: Result, pinned: Result | None = None) -> None:
        """Show a result; `pinned` is A, held against it."""
        largest = max(each.scenario.rule.max_batch_size for each in (result, pinned) if each is not None)
        edges = bar_edges(largest)
        base = np.zeros(edges.size - 1)
        counts = by_trigger(result, edges)
        for trigger, bars in self.bars.items():
            bars.set_visible(bool(counts[trigger].any()))
            top = base + 100 * counts[trigger] / max(len(result.batches), 1)
            bars.set_data(top, edges, baseline=base)  # type: ignore[arg-type]
            base = top
        highest = float(base.max())
        self.a_total.set_visible(pinned is not None)
        if pinned is not None:
            total = 100 * by_trigger(pinned, edges).sum(axis=0) / max(len(pinned.batches), 1)
            self.a_total.set_data(total, edges)
            highest = max(highest, float(total.max()))
        self.limit(self.ax, x=(0.5, float(edges[-1])), y=(0, min(nice(1.05 * highest), 100)))
        self._name(result, [trigger for trigger in TRIGGERS if counts[trigger].any()], pinned)

    def _name(self, result: Result, occurring: list[Trigger], pinned: Result | None) -> None:
        """Name the reasons that occur, and no other."""
        theme = self.theme
        names: list[Name | None] = []
        for trigger in occurring:
            colour, hatch, text = TRIGGERS[trigger]
            if trigger == Trigger.WAIT and result.scenario.rule.max_wait_ms == 0:
                text = NO_WAIT
            names.append(
                Name.of(text, facecolor=getattr(theme, colour), edgecolor=theme.background, lw=0, hatch=hatch)
            )
        if pinned is not None:
            names.append(Name.of("A", color=theme.ink, linestyle="--", linewidth=0.8 * self.line_px))
        names.append(Name.of("mean 00.00", True))
        self.name(names, [f"mean {fixed(result.mean_batch_size)}"])

    def show_theory(self, answer: "Answer") -> None:
        """Mark the share of each batch size that theory expects, where it knows it."""
        edges = np.asarray(self.bars[Trigger.FULL].get_data()[1])
        if answer.batch_size_pmf is None or edges[1] - edges[0] > 1:
            return
        look: dict[str, Any] = {"marker": "o", "linestyle": "none"}
        sizes = np.arange(1, answer.batch_size_pmf.size)
        percent, green = 100 * answer.batch_size_pmf[1:], self.theme.green
        self.moves(*self.ax.plot(sizes, percent, color=green, markersize=3.5, zorder=4, **look))
        names = [*self._held["names"][:-1], Name.of("theory", color=green, markersize=5, **look)]
        self.name([*names, self._held["names"][-1]], self.told)


class TimelineView(View):
    """The first requests, each a row: forming, queueing, computing; a frame round each batch."""

    def __init__(self, picture: Picture, box: Box, line_px: float = 1.6) -> None:
        title = f"The first {TIMELINE_REQUESTS} requests"
        super().__init__(picture, box, title, line_px)
        theme = self.theme
        ax = self.ax = self.add_frame(self.frame(), "time since the first arrival (ms)", "request", grid="x")
        self.bars = LineCollection([], capstyle="butt", zorder=2)
        ax.add_collection(self.bars, autolim=False)
        self.batches = PathPatch(
            Path(np.zeros((1, 2))), fill=False, edgecolor=theme.ink, linewidth=0.6 * line_px, zorder=3
        )
        ax.add_patch(self.batches)
        look: dict[str, Any] = {
            "linestyle": "none",
            "markersize": 0.5 * self.em,
            "zorder": 4,
            "color": theme.vermilion,
        }
        self.lost = {
            state: ax.plot([], [], marker=marker, markeredgewidth=0, **look)[0]
            for state, marker in LOST.items()
        }
        self.left = LineCollection([], color=theme.grey, linestyle=":", linewidth=0.6 * line_px, zorder=2)
        ax.add_collection(self.left, autolim=False)
        self.moves(self.bars, self.batches, self.left, *self.lost.values())
        self.row_px = self.ax.bbox.height / picture.ratio / TIMELINE_REQUESTS

    def update(self, result: Result) -> None:
        """Show a result's first requests."""
        segments, styles = [], []
        shown = min(TIMELINE_REQUESTS, result.arrival_s.size)
        thick = min(self.row_px * TIMELINE_REQUESTS / shown * 0.9, 7 * self.line_px) / 5
        first_s = float(result.arrival_s[0])
        gone: dict[int, tuple[list[float], list[int]]] = {state: ([], []) for state in LOST}
        for request in range(shown):
            for part, begin_s, end_s in result.story(request):
                begin_ms, end_ms = ((t - first_s) * 1000 for t in (begin_s, end_s))
                segments.append([(begin_ms, request), (end_ms, request)])
                styles.append(PARTS[part])
            state = int(result.status[request])
            if state in gone:
                waited_s = result.scenario.timeout_s if state == Status.TIMED_OUT else 0.0
                gone[state][0].append((float(result.arrival_s[request]) + waited_s - first_s) * 1000)
                gone[state][1].append(request)
        self.bars.set_segments(segments)
        self.bars.set_color([getattr(self.theme, colour) for colour, _, _ in styles])
        self.bars.set_linewidth([thick * width for _, _, width in styles])
        for state, marks in self.lost.items():
            marks.set_data(*gone[state])
        waits_ms = (result.arrival_s[gone[Status.TIMED_OUT][1]] - first_s) * 1000
        self.left.set_segments(
            [[(t, r), (e, r)] for t, e, r in zip(waits_ms, *gone[Status.TIMED_OUT], strict=True)]
        )
        self.batches.set_path(batch_frames(result, shown, first_s))
        last_ms = max(
            [segment[1][0] for segment in segments] + [t for times, _ in gone.values() for t in times],
            default=1.0,
        )
        self._scale(result, shown, nice(1.02 * last_ms))
        self._name([state for state in LOST if gone[state][0]])

    def _scale(self, result: Result, shown: int, last_ms: float) -> None:
        if self.hold("title", result.arrival_s.size >= TIMELINE_REQUESTS):
            many = result.arrival_s.size >= TIMELINE_REQUESTS
            self.title.set_text(f"The first {TIMELINE_REQUESTS} requests" if many else "The requests")
        self.in_time(self.ax.xaxis, "time since the first arrival", last_ms, "x")
        self.limit(self.ax, x=(0, last_ms), y=(shown - 0.4, -0.6))
        if self.hold("rows", shown):
            step = max(1, math.ceil(shown / 6)) if shown <= 6 else 5
            self.ax.yaxis.set_major_locator(FixedLocator(range(0, shown, step)))

    def _name(self, lost: list[Status]) -> None:
        theme, scale = self.theme, self.line_px
        names: list[Name | None] = [
            Name.of(name, color=getattr(theme, colour), linestyle="-", linewidth=width * scale)
            for name, (colour, _, width) in PARTS.items()
        ]
        names.append(None)
        mark: dict[str, Any] = {"facecolor": "none", "edgecolor": theme.ink, "lw": 0.6 * scale}
        names.append(Name.of("a batch", **mark))
        for state in lost:
            look: dict[str, Any] = {
                "marker": LOST[state],
                "linestyle": "none",
                "color": theme.vermilion,
                "markeredgewidth": 0,
            }
            names.append(Name.of(state.name.lower().replace("_", " "), markersize=0.6 * self.em, **look))
        self.name(names)


def bar_edges(largest: int) -> np.ndarray:
    """Return the edges of bars for batch sizes 1..largest: one a size, or of several where these are many.

    >>> bar_edges(3), bar_edges(65_536)[:2]
    (array([0.5, 1.5, 2.5, 3.5]), array([5.0000e-01, 1.0245e+03]))
    """
    step = math.ceil(largest / MOST_BARS)
    return 0.5 + step * np.arange(math.ceil(largest / step) + 1.0)


def by_trigger(result: Result, edges: np.ndarray) -> np.ndarray:
    """Return how many batches of each size left for each reason, shape (triggers, bars)."""
    bars, step = edges.size - 1, int(edges[1] - edges[0])
    bar = (result.batches.batch_size - 1) // step
    kinds = result.batches.trigger.astype(np.intp) * bars + bar
    return np.bincount(kinds, minlength=len(Trigger) * bars).reshape(len(Trigger), bars)


def batch_frames(result: Result, shown: int, first_s: float) -> Path:
    """Return a frame round the computing of each batch that holds some of the first requests."""
    batch = result.batch_index[:shown]
    corners = []
    for index in np.unique(batch[batch >= 0]):
        rows = np.flatnonzero(batch == index)
        begin, end = (
            (t - first_s) * 1000 for t in (result.batches.start_s[index], result.batches.finish_s[index])
        )
        top, bottom = rows[0] - 0.45, rows[-1] + 0.45
        corners += [(begin, top), (end, top), (end, bottom), (begin, bottom), (begin, top)]
    if not corners:
        return Path(np.zeros((1, 2)))
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * (len(corners) // 5)
    return Path(np.array(corners, dtype=float), codes)
