"""The seats of a server of token generation, a lane for each, during a part of a run."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from batchsim._compat import repeat
from batchsim._format import counted, duration, listed, number, percent
from batchsim.result.moments import Moment, taken
from batchsim.view.pictures.cells import rectangles
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.steps import RUNGS, StepMomentView, captured
from batchsim.view.pictures.view import Spot, Style, Ticks
from batchsim.view.scales import nice
from batchsim.view.theme import TELLING, fill_style

FEW = 40  # up to this number, empty seats are shown, too
LANE = 0.88  # height of a lane, as a part of the distance between two
# The same names as in `bs.lanes`, in the order of the legend.
NAMES = {
    "prefill": "prompt", "decode": "a token a step", "padded": "done, seat kept", "empty": "empty seat",
    "again": "computed again", "padding": "empty, computed",
}  # fmt: skip


class SeatsView(StepMomentView):
    """Each seat's prompts and tokens; hatched while it is empty, or kept for the others of a batch.

    Below, in a large view, are the numbers of taken seats, now and in the setting before, or in A.
    """

    KEY, NAME, SHORT = "seats", "The seats", "Seats taken"
    RANK, PANELS = 3, (0.78, 0.22)

    def make(self) -> None:
        theme, ax = self.look, self.ax
        ax.grid(visible=False)
        ax.set_ylabel("seat")
        ax.yaxis.set_major_locator(Ticks(8 if self.large else 5, integer=True))
        self.styles: dict[str, Style] = {name: fill_style(theme, name) for name in NAMES}
        order = dict.fromkeys(NAMES, 2) | {"empty": 1}
        self.paper = self.areas(ax, 1.5, linewidth=0, facecolor=theme.background)
        self.bars = {name: self.areas(ax, order[name], **style) for name, style in self.styles.items()}
        self.add_moment()
        if self.strip is not None:
            self.strip.yaxis.set_major_locator(Ticks(2, integer=True))
            self.rung = self.style("soft", width=0.4)
            self.rungs = self.line(self.strip, 1, transform=self.strip.get_yaxis_transform(), **self.rung)
            self.taken = self.outlines(self.strip, 3, **self.style("blue"))  # as in the steps
            self.other_taken = self.outlines(self.strip, 2.5)
            right: Style = {"ha": "right", "va": "bottom", "color": theme.soft}
            self.mean = self.text(self.strip, xycoords="axes fraction", **right)

    def show_moment(self, data: ViewData, now: Moment) -> None:
        found, begin_s, lanes = now.seats, now.begin_s, lanes_of(now)
        last_ms = 1000 * (now.end_s - begin_s)
        self.label(self.axes[-1].xaxis, "time", last_ms)
        self.limits(self.ax, lanes, x=(0, last_ms), y=(lanes + 0.5, 0.5))

        def ms(times_s: np.ndarray) -> np.ndarray:
            return np.clip(1000 * (times_s - begin_s), 0, last_ms)

        stays = found.begin_s, found.first_token_s, found.last_token_s, found.end_s
        begin, first, last, end = map(ms, stays)
        middle = found.seat + 1.0
        self.paper.set_path(rectangles(begin, end, middle - 0.5, middle + 0.5))
        self._put("prefill", begin, first, middle, LANE, ~found.again)
        self._put("again", begin, first, middle, LANE, found.again)
        self._put("decode", first, last, middle, TELLING * LANE)
        self._put("padded", last, end, middle, TELLING * LANE)
        # Seats count as empty only while something runs.
        from_ms, to_ms = map(ms, now.busy_s)
        self._put("empty", from_ms, to_ms, np.full(from_ms.size, (lanes + 1) / 2), lanes)
        more = now.padding
        self._put("padding", ms(more.begin_s), ms(more.end_s), more.seat + 1.0, LANE)
        back = found.preempted & (found.end_s <= now.end_s)
        preempted = self.show_preemptions(end[back], middle[back])
        seen = {name for name, bars in self.bars.items() if bars.get_visible()}
        if (end - begin).sum() >= (1 - 1e-9) * lanes * (to_ms - from_ms).sum():
            seen.discard("empty")
        entries = [(text, self.styles[name]) for name, text in NAMES.items() if name in seen]
        entries += preempted
        if self.strip is not None:
            ladder = self._show_taken(self.strip, data, now, last_ms)
            entries += [(RUNGS, self.rung)] * bool(ladder.size)
        self.legend(self.axes[-1], entries if self.large else entries[:2])

    def _show_taken(self, ax: Axes, data: ViewData, now: Moment, last_ms: float) -> np.ndarray:
        """Draw the numbers of taken seats, here and in the other setting; return the captured sizes."""
        found, said = [], []
        for each, name in ((data, "on average"), (data.other, _name_of_other(data))):
            if each is not None:
                edges_s, counts = taken(each.result, now.server, now.begin_s, now.end_s)
                found.append((counts, 1000 * (edges_s - now.begin_s)))
                said.append(f"{number(_mean(edges_s, counts))} {name}")
        ladder = captured(data.result)
        self.rungs.set_data(np.tile([0, 1, np.nan], ladder.size), repeat(ladder.astype(float), 3))
        self.taken.set_data(*found[0])
        highest = self.show_other(self.other_taken, found[1] if data.other is not None else None, data)
        highest = max(highest, float(found[0][0].max()), 1.0)
        self.limits(ax, "taken", x=(0, last_ms), y=(0, nice(1.1 * highest)))
        self.write(self.mean, ", ".join(said), 1, 1, up=0.2)
        return ladder

    def _put(
        self, name: str, from_ms: np.ndarray, to_ms: np.ndarray, middle: np.ndarray, high: float,
        which: Any = True,
    ) -> None:  # fmt: skip
        some = (to_ms > from_ms) & which
        edges = middle[some] - high / 2, middle[some] + high / 2
        self.fill(self.bars[name], rectangles(from_ms[some], to_ms[some], *edges))

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        now = self.now(data)
        if ax is self.strip:
            return self._spot_of_taken(now, now.begin_s + x / 1000, data)
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

    def _spot_of_taken(self, now: Moment, at_s: float, data: ViewData) -> Spot | None:
        if at_s >= now.end_s:
            return None
        counts = []
        for each in (data, data.other):
            if each is not None:
                edges_s, taken_then = taken(each.result, now.server, now.begin_s, now.end_s)
                counts.append(int(taken_then[np.searchsorted(edges_s, at_s, side="right") - 1]))
        here = f"{counted(counts[0], 'seat')} taken"
        return Spot(self.KEY, here + "".join(f", {each:,} {_name_of_other(data)}" for each in counts[1:]))

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
        if data.pinned is None:  # the setting before is left out: words depend on the present setting alone
            return [f"{seats}."]
        means = (
            number(_mean(*taken(each.result, now.server, now.begin_s, now.end_s)))
            for each in (data, data.pinned)
        )
        return [f"{seats}; {{}} are taken on average, {{}} in A.".format(*means)]


def _name_of_other(data: ViewData) -> str:
    return "before" if data.pinned is None else "in A"


def _mean(edges_s: np.ndarray, counts: np.ndarray) -> float:
    """Return the mean of counts over the times between edges."""
    return float(np.average(counts, weights=np.diff(edges_s)))


def lanes_of(now: Moment) -> int:
    """Return the number of seats to show: all if they are few, otherwise the most taken at once."""
    seats, taken = now.result.scenario.rule.largest_batch, int(now.seats.seat.max(initial=0)) + 1
    return seats if seats <= max(FEW, 1.5 * taken) else taken
