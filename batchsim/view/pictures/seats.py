"""The seats of a server of token generation, a lane for each, during a part of a run."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from batchsim._format import counted, duration, listed, percent
from batchsim.result.moments import Moment
from batchsim.view.pictures.cells import rectangles
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.steps import StepMomentView
from batchsim.view.pictures.view import Spot, Style, Ticks
from batchsim.view.theme import SEATS, TELLING, fill_style

FEW = 40  # up to this number, empty seats are shown, too
LANE = 0.88  # height of a lane, as a part of the distance between two


class SeatsView(StepMomentView):
    """Each seat's prompts and tokens; hatched while it is empty, or kept for the others of a batch."""

    KEY, NAME, SHORT = "seats", "The seats", "Seats taken"
    RANK, PANELS = 3, (0.78, 0.22)

    def make(self) -> None:
        super().make()
        self.ax.grid(visible=False)
        self.ax.set_ylabel("seat")
        self.ax.yaxis.set_major_locator(Ticks(8 if self.large else 5, integer=True))

    def show_moment(self, data: ViewData, now: Moment) -> None:
        found, begin_s, lanes = now.seats, now.begin_s, lanes_of(now)
        last_ms = 1000 * (now.end_s - begin_s)
        self.label(self.axes[-1].xaxis, "time", last_ms)
        self.limits(self.ax, lanes, x=(0, last_ms), y=(lanes + 0.5, 0.5))

        def ms(times_s: np.ndarray) -> np.ndarray:
            return np.clip(1000 * (times_s - begin_s), 0, last_ms)

        begin, first, last, end = map(
            ms, (found.begin_s, found.first_token_s, found.last_token_s, found.end_s)
        )
        middle, more = found.seat + 1.0, now.padding
        paper: Style = {"linewidth": 0, "facecolor": self.look.background, "zorder": 1.5}
        self.area("paper", rectangles(begin, end, middle - 0.5, middle + 0.5), **paper)
        # Seats count as empty only while something runs.
        from_ms, to_ms = map(ms, now.busy_s)
        seldom = (end - begin).sum() >= (1 - 1e-9) * lanes * (to_ms - from_ms).sum()  # too small to see
        for name, (left, right, high) in parts_of(begin, first, last, end, found.again).items():
            self._put(name, left, right, middle, LANE * high)
        whole = np.full(from_ms.size, (lanes + 1) / 2)
        self._put("empty", from_ms, to_ms, whole, lanes, zorder=1, label=SEATS["empty"] * (not seldom))
        self._put("padding", ms(more.begin_s), ms(more.end_s), more.seat + 1.0, LANE)
        back = found.preempted & (found.end_s <= now.end_s)
        self.show_preemptions(end[back], middle[back])

    def _put(
        self, name: str, from_ms: np.ndarray, to_ms: np.ndarray, middle: np.ndarray, high: float, **more: Any
    ) -> None:
        some = to_ms > from_ms
        if some.any():
            edges = middle[some] - high / 2, middle[some] + high / 2
            style: Style = fill_style(self.look, name) | {"label": SEATS[name], "zorder": 2} | more
            self.area(name, rectangles(from_ms[some], to_ms[some], *edges), **style)

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        if ax is self.strip:
            return super().spot(ax, x, y, data)
        now = self.now(data)
        at_s, seat = now.begin_s + x / 1000, round(y)
        found = now.seats
        here = np.flatnonzero((found.seat == seat - 1) & (found.begin_s <= at_s) & (at_s < found.end_s))
        if not here.size:
            more = now.padding
            padded = ((more.seat == seat - 1) & (more.begin_s <= at_s) & (at_s < more.end_s)).any()
            computed = ", but computed: the step is padded to a captured size" * bool(padded)
            return Spot(self.KEY, f"Seat {seat:,} is empty{computed}") if at_s <= now.end_s else None
        row, log = int(here[0]), now.log
        request = int(found.request[row])
        sizes = f"{log.prompt_tokens[request]:,} + {log.output_tokens[request]:,} tokens"
        parts = {
            ("prompt again" if found.again[row] else "prompt"): found.first_token_s[row] - found.begin_s[row],
            "tokens": found.last_token_s[row] - found.first_token_s[row],
            "padded": found.end_s[row] - found.last_token_s[row],
        }
        told = [f"{name} {duration(1000 * seconds)}" for name, seconds in parts.items() if seconds > 0]
        end = ", then preempted" * bool(found.preempted[row])
        return Spot(self.KEY, f"Seat {seat:,}: request {request:,}, {sizes}: {listed(told)}{end}")

    def describe(self, data: ViewData) -> list[str]:
        now = self.now(data)
        found, lanes, more = now.seats, lanes_of(now), now.padding
        whole_s = lanes * (now.end_s - now.begin_s)

        def share(from_s: np.ndarray, to_s: np.ndarray) -> float:
            both = (np.clip(each, now.begin_s, now.end_s) for each in (from_s, to_s))
            return float(-np.subtract(*both).sum() / whole_s)

        parts = {
            "on prompts": share(found.begin_s, found.first_token_s),
            "on tokens": share(found.first_token_s, found.last_token_s),
            "on padding": share(found.last_token_s, found.end_s),
            "empty": 1 - share(found.begin_s, found.end_s) - (filled := share(more.begin_s, more.end_s)),
            "on empty seats of captured steps": filled,
        }
        told = listed([f"{percent(each)} {name}" for name, each in parts.items() if each > 1e-9])
        back = int((found.preempted & (found.end_s <= now.end_s)).sum())
        preempted = f"; {counted(back, 'preemption')}" if back else ""
        servers = data.result.scenario.all_servers
        owner = f" of server {now.server + 1:,} of {servers:,}" if servers > 1 else ""
        seats = f"The time of {counted(lanes, 'seat')}{owner} in these steps: {told}{preempted}"
        return [f"{seats}."]


def parts_of(
    begin: np.ndarray, first: np.ndarray, last: np.ndarray, end: np.ndarray, again: np.ndarray
) -> dict[str, tuple[np.ndarray, np.ndarray, float]]:
    """Return the parts of stays in seats by name: from where to where, and their share of a seat's height.

    `first` and `last` are when their first and last tokens come; `again`: the prompt is computed again.
    """
    return {
        "prefill": (begin, np.where(again, begin, first), 1.0), "decode": (first, last, TELLING),
        "padded": (last, end, TELLING), "again": (begin, np.where(again, first, begin), 1.0),
    }  # fmt: skip


def lanes_of(now: Moment) -> int:
    """Return the number of seats to show: all if they are few, otherwise the most taken at once."""
    seats, taken = now.result.scenario.rule.largest_batch, int(now.seats.seat.max(initial=0)) + 1
    return seats if seats <= max(FEW, 1.5 * taken) else taken
