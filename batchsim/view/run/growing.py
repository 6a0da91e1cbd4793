"""What an overloaded run shows in place of how long its requests take: the queue that grows without end."""

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from batchsim._format import fixed, number, tick
from batchsim.engines.token_log import TokenLog
from batchsim.result import Result
from batchsim.view.canvas.scales import nice
from batchsim.view.run.data import ViewData
from batchsim.view.run.view import Entry, Spot, View

HEADROOM = 1.12  # above the highest bar
POINTS = 201  # of the queue's curve


class GrowingView(View):
    """A view of how long requests take, or of the queue that grows, where they have no steady state."""

    OVERLOADED = "Overloaded: the queue grows"

    def add_queue(self, ax: Axes) -> None:
        """Add the artists of the queue to the view's axes."""
        self.ax = ax
        self.queue, self.other_queue = (ax.plot([], [], zorder=3, **self.now_style)[0] for _ in range(2))
        (self.growth,) = ax.plot([], [], zorder=3, **self.line_style("soft", "-."))
        self.set_moving(self.queue, self.growth, self.other_queue)

    def update(self, data: ViewData) -> None:
        grows = data.overloaded
        # Another setting is drawn where it shows the same thing: times, or a growing queue.
        other = data.other if data.other is not None and data.other.overloaded == grows else None
        missing = [*self.missing(data, other), *[self.other_queue] * (other is None)]
        for artist in self.moving:
            if artist is not self.values:
                of_queue = artist in (self.queue, self.growth, self.other_queue)
                artist.set_visible(of_queue == grows and artist not in missing)
        if self.hold("title", grows):
            name = self.NAME if self.large else self.SHORT
            self.title.set_text((self.OVERLOADED if self.large else "Queue (requests)") if grows else name)
        if grows:
            self._show_queue(data, other)
        else:
            self.show_times(data, other)

    def missing(self, data: ViewData, other: ViewData | None) -> list[Artist]:
        """Return the artists of times that this data has nothing to draw for."""
        raise NotImplementedError

    def show_times(self, data: ViewData, other: ViewData | None) -> None:
        """Draw how long requests take, and how long in another setting."""
        raise NotImplementedError

    def _show_queue(self, data: ViewData, other: ViewData | None) -> None:
        """Draw how many requests wait along the run, and how fast that grows by the rates alone."""
        result = data.result
        arriving = result.scenario.workload.offered_per_s  # type: ignore[union-attr]
        per_s, end_s = float(arriving) - result.scenario.full_batches_per_s, float(result.arrival_s[-1])
        self.growth.set_data([0, end_s], [0, per_s * end_s])
        highest, right_s = per_s * end_s, 0.0
        if other is not None:
            self.other_queue.set(**self.other_style(data))
        for line, each in ((self.queue, data), (self.other_queue, other)):
            if each is not None:
                waiting, end_s = queue_length(each.result)
                line.set_data(np.linspace(0, end_s, POINTS), waiting)
                highest, right_s = max(highest, float(waiting.max())), max(right_s, nice(end_s))
        self.set_limits(self.ax, "queue", x=(0, right_s), y=(0, nice(HEADROOM * highest)))
        self.set_label(self.ax.xaxis, "time (s)")
        if self.hold("y label", True):
            self.ax.yaxis.set_major_formatter(tick)
            self.ax.set_ylabel("requests waiting" * self.large)
        if self.large:
            growth = f"+{fixed(per_s) if per_s < 10 else f'{per_s:,.0f}'} every second"
            self.show_legend([Entry("", value=growth)])

    def show_percent(self, label: str = "") -> None:
        """Label the vertical axis as one of percentages."""
        if self.hold("y label", False):
            self.ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
            self.ax.set_ylabel(label * self.large)

    def spot_of_queue(self, at_s: float, data: ViewData) -> Spot | None:
        """Return how many requests wait at a time."""
        waiting, end_s = queue_length(data.result)
        if at_s > end_s:
            return None
        count = waiting[round(at_s / end_s * (POINTS - 1))]
        return Spot(self.KEY, f"After {number(at_s)} s: {count:,} requests wait")


def queue_length(result: Result) -> tuple[np.ndarray, float]:
    """Return how many requests wait at equally spaced times from 0 to the last arrival, and that time.

    For a run that serves all requests, as an overloaded one does: shape (POINTS,).
    """
    end_s = float(result.arrival_s[-1])
    times_s = np.linspace(0, end_s, POINTS)
    if isinstance(result.log, TokenLog):
        started = np.searchsorted(np.sort(result.start_s), times_s, side="right")
    else:
        left = np.concatenate([[0], np.cumsum(result.batches.batch_size)])
        started = left[np.searchsorted(result.batches.start_s, times_s, side="right")]
    return np.searchsorted(result.arrival_s, times_s, side="right") - started, end_s
