"""The first requests one by one, and the batches in which they are computed."""

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator

from batchsim._format import counted, number
from batchsim.engines.log import Status
from batchsim.result import Result
from batchsim.view.canvas.cells import NOWHERE, rectangles
from batchsim.view.canvas.scales import nice
from batchsim.view.canvas.theme import COMPONENTS
from batchsim.view.run.data import ViewData
from batchsim.view.run.view import NEW_ROW, Entry, Style, View

REQUESTS = 30
LOST = {Status.REJECTED: "X", Status.TIMED_OUT: "P"}  # their markers


class TimelineView(View):
    """The first requests, each a row of forming, queueing and computing; a frame round each batch."""

    NAME, SHORT = f"The first {REQUESTS} requests", "The requests"  # of a run that has fewer

    def add_artists(self) -> None:
        theme, thin, label = self.theme, 0.6 * self.line_px, "time since the first arrival (ms)"
        ax = self.ax = self.add_plot(self.axes_box(), label, "request", grid="x")
        self.bars = LineCollection([], capstyle="butt", zorder=2)
        self.waits = LineCollection([], color=theme.grey, linestyle=":", linewidth=thin, zorder=2)
        self.frame_style: Style = {"facecolor": "none", "edgecolor": theme.ink, "linewidth": thin}
        self.batches = PathPatch(NOWHERE, zorder=3, **self.frame_style)
        for artist in (self.bars, self.waits, self.batches):
            ax.add_artist(artist)
        mark: Style = {"linestyle": "none", "color": theme.vermilion, "markeredgewidth": 0}
        self.styles: dict[Status, Style] = {status: mark | {"marker": LOST[status]} for status in LOST}
        marks: Style = {"markersize": 0.5 * self.em, "zorder": 4}
        self.lost = {status: ax.plot([], [], **marks | style)[0] for status, style in self.styles.items()}
        self.set_moving(self.bars, self.batches, self.waits, *self.lost.values())
        self.height_px = ax.bbox.height / self.picture.ratio

    def update(self, data: ViewData) -> None:
        result = data.result
        shown, first_s = min(REQUESTS, result.arrival_s.size), float(result.arrival_s[0])
        stretches = [
            (1000 * (begin_s - first_s), 1000 * (end_s - first_s), request, COMPONENTS[component])
            for request in range(shown)
            for component, begin_s, end_s in result.story(request)
        ]
        thick = min(0.9 * self.height_px / shown, 7 * self.line_px) / COMPONENTS["computing"].width
        self.bars.set_segments([[(begin, row), (end, row)] for begin, end, row, _ in stretches])
        self.bars.set_color([getattr(self.theme, style.colour) for *_, style in stretches])
        self.bars.set_linewidth([thick * style.width for *_, style in stretches])
        self.batches.set_path(batch_frames(result, shown, first_s))
        lines = {name: self.line_style(style.colour, "-", style.width) for name, style in COMPONENTS.items()}
        entries = [*map(Entry, lines, lines.values()), NEW_ROW, Entry("a batch", self.frame_style)]
        last_ms = max([end for _, end, *_ in stretches], default=0.0)
        for status, marks in self.lost.items():
            rows = np.flatnonzero(result.status[:shown] == status)
            waited_s = result.scenario.timeout_s if status == Status.TIMED_OUT else 0.0
            begin_ms, end_ms = (1000 * (result.arrival_s[rows] + s - first_s) for s in (0.0, waited_s))
            marks.set_data(end_ms, rows)
            if status == Status.TIMED_OUT:
                self.waits.set_segments(list(np.array([[begin_ms, rows], [end_ms, rows]]).transpose(2, 0, 1)))
            if rows.size:
                last_ms = max(last_ms, float(end_ms.max()))
                size = {"markersize": 0.6 * self.em}
                entries.append(Entry(status.name.lower().replace("_", " "), self.styles[status] | size))
        self.show_legend(entries)
        last_ms = nice(1.02 * last_ms)
        self.set_label(self.ax.xaxis, "time since the first arrival", last_ms)
        self.set_limits(self.ax, x=(0, last_ms), y=(shown - 0.4, -0.6))
        if self.hold("rows", shown):
            self.title.set_text(self.NAME if shown == REQUESTS else self.SHORT)
            self.ax.yaxis.set_major_locator(FixedLocator(range(0, shown, 1 if shown <= 6 else 5)))

    def describe(self, data: ViewData) -> list[str]:
        result = data.result
        count = min(REQUESTS, result.arrival_s.size)
        batch = result.batch_index[:count]
        served = int((batch >= 0).sum())
        if not served:
            return [f"None of the first {counted(count, 'request')} is served."]
        batches = counted(np.unique(batch[batch >= 0]).size, "batch")
        first = "The first request" if count == 1 else f"The first {count} requests"
        first = first if served == count else f"{served} of the first {count} requests"
        last_ms = 1000 * float(np.nanmax(result.finish_s[:count]))
        verb = "is" if served == 1 else "are"
        return [f"{first} {verb} computed in {batches}, the last one by {number(last_ms)} ms."]


def batch_frames(result: Result, shown: int, first_s: float) -> Path:
    """Return a frame round the computing of each batch that holds any of the first requests."""
    rows = np.flatnonzero(result.batch_index[:shown] >= 0)
    batch, first = np.unique(result.batch_index[rows], return_index=True)
    last = np.unique(result.batch_index[rows][::-1], return_index=True)[1]
    times_s = result.batches.start_s, result.batches.finish_s
    begin_ms, end_ms = (1000 * (each[batch] - first_s) for each in times_s)
    upper, lower = rows[first] - 0.45, rows[::-1][last] + 0.45
    return rectangles(np.stack([begin_ms, upper], axis=-1), np.stack([end_ms, lower], axis=-1))
