"""A few batches from the middle of a run or its cold start: their requests and when each was computed."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.path import Path

from batchsim._format import counted, duration, listed
from batchsim.engines.log import Status
from batchsim.result import Result
from batchsim.view.pictures.cells import rectangles
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import MomentView, Spot, Style
from batchsim.view.scales import nice
from batchsim.view.theme import COMPONENTS, fill_style, in_words

LOST = {Status.REJECTED: "X", Status.TIMED_OUT: "P", Status.FAILED: "v"}  # their markers
THICK = 0.72  # of the distance between two rows


class TimelineView(MomentView):
    """The requests of a few batches, each a row of the components of its latency."""

    KEY, NAME, SHORT = "timeline", "A moment of the run", "A moment"
    RANK = 3

    def make(self) -> None:
        super().make()
        self.ax.set_yticks([])
        self.ax.grid(visible=False, axis="y")
        self.ax.grid(visible=True, axis="x")

    def update(self, data: ViewData) -> None:
        stretch, result, thin = data.window, data.result, 0.5 * self.line_pt
        requests, begin_s, count = stretch.requests, stretch.begin_s, max(stretch.requests.size, 1)
        stretches = result.stretches(requests)
        for name in filter(data.has, COMPONENTS):
            rows, from_s, to_s = stretches[name]
            rows, from_s, to_s = (each[to_s > begin_s] for each in (rows, from_s, to_s))
            begin_ms, end_ms = 1000 * (np.maximum(from_s, begin_s) - begin_s), 1000 * (to_s - begin_s)
            fill: Style = fill_style(self.look, name) | {"label": in_words(name), "zorder": 2}
            self.area(name, rectangles(begin_ms, end_ms, rows - THICK / 2, rows + THICK / 2), **fill)
        index = result.batch_index[requests]
        if (result.ready_s > result.batches.start_s)[index[index >= 0]].any():
            fill = fill_style(self.look, "compiling") | {"label": "compiling", "zorder": 2.5}
            self.area("compiling", batch_frames(result, requests, begin_s, result.ready_s), **fill)
        frame: Style = {"facecolor": "none", "edgecolor": self.look.ink, "linewidth": thin, "zorder": 3}
        self.area("batches", batch_frames(result, requests, begin_s, result.batches.finish_s), **frame)
        self._show_other(data, requests, begin_s)
        for status, marker in LOST.items():
            rows = np.flatnonzero(result.status[requests] == status)
            if not rows.size:
                continue
            waited_s = result.timeout_s[requests[rows]] if status == Status.TIMED_OUT else 0.0
            begin_ms = 1000 * (result.arrival_s[requests[rows]] - begin_s)
            end_ms = begin_ms + 1000 * waited_s
            mark = self.mark(marker, 2.7, "ink", markeredgewidth=0, label=_named(status))
            self.plot(status, end_ms, rows, **mark)
            if status == Status.TIMED_OUT:
                dots: Style = {"color": self.look.grey, "linestyle": ":", "linewidth": thin, "zorder": 2}
                ends = np.stack([begin_ms, end_ms, np.full(rows.size, np.nan)], axis=1)
                self.plot("waits", ends.ravel(), rows.repeat(3), **dots)
        last_ms = nice(1000 * (stretch.end_s - begin_s))
        self.label(self.ax.xaxis, "time", last_ms)
        self.limits(self.ax, x=(0, last_ms), y=(count - 0.4, -0.6))
        self.legend()
        self.write_place(begin_s)

    def _show_other(self, data: ViewData, requests: np.ndarray, begin_s: float) -> None:
        """Draw the batches that another setting makes of the same requests."""
        result, other = data.result, data.other
        if other is not None and other.result.arrival_s.size == result.arrival_s.size:
            # At another rate the same requests arrive at other times: the arrivals of the first are aligned.
            shift_s = float(other.result.arrival_s[requests[0]] - result.arrival_s[requests[0]])
            finish_s = other.result.batches.finish_s
            frames = batch_frames(other.result, requests, begin_s + shift_s, finish_s)
            self.area("other", frames, fill=False, zorder=1.5, **self.other_style(data))

    def describe(self, data: ViewData) -> list[str]:
        stretch = data.window
        if stretch.last < stretch.first:
            return []
        batches = counted(stretch.last - stretch.first + 1, "batch")
        span = duration(1000 * (stretch.end_s - stretch.begin_s))
        requests = counted(stretch.requests.size, "request")
        place = "beginning" if data.result.scenario.service.compile_ms else "middle"
        return [f"The timeline shows {requests} in {batches} from the {place} of the run, {span} long."]

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        stretch = data.window
        if not stretch.requests.size:
            return None
        request = int(stretch.requests[int(np.clip(round(y), 0, stretch.requests.size - 1))])
        story, levels = data.result.story(request), data.result.priority
        name = f"Request {request:,}" + ("" if levels is None else f", level {levels[request]}")
        if data.result.scenario.most_replicas > 1:
            name += f", replica {data.result.replica[request]}"
        if not story:
            return Spot(self.KEY, f"{name}: {_named(Status(data.result.status[request]))}")
        names = [name for name, _, _ in story]
        parts = [f"{in_words(name)} {duration(1000 * (to_s - from_s))}" for name, from_s, to_s in story]
        batch = data.result.batch_index[request]
        compiling_s = float(data.result.ready_s[batch] - data.result.batches.start_s[batch])
        compiling = f" (compiling {duration(1000 * compiling_s)})"
        parts[names.index("computing")] += compiling * bool(compiling_s)
        size = int(data.result.batches.batch_size[batch])
        return Spot(self.KEY, f"{name}: {listed(parts)}, in a batch of {size}")


def _named(status: Status) -> str:
    return status.name.lower().replace("_", " ")


def batch_frames(result: Result, requests: np.ndarray, begin_s: float, until_s: np.ndarray) -> Path:
    """Return a frame for each batch that holds any of these requests, from its start until its `until_s`."""
    rows = np.flatnonzero(result.batch_index[requests] >= 0)
    numbers = result.batch_index[requests[rows]]
    batch, first = np.unique(numbers, return_index=True)
    last = np.unique(numbers[::-1], return_index=True)[1]
    times_s = result.batches.start_s, until_s
    begin_ms, end_ms = (1000 * (each[batch] - begin_s) for each in times_s)
    return rectangles(begin_ms, end_ms, rows[first] - 0.45, rows[::-1][last] + 0.45)
