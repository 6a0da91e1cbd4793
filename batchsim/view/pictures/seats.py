"""The seats of a server of token generation, a lane for each, during a part of a run."""

from typing import Any

import numpy as np
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator

from batchsim._format import counted, duration, listed, number, percent
from batchsim.view.canvas.axes import nice
from batchsim.view.canvas.cells import NOWHERE, rectangles
from batchsim.view.canvas.lettering import Label, Lettering, width_em
from batchsim.view.canvas.theme import TELLING, fill_style
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.moments import Moment, taken
from batchsim.view.pictures.steps import place_of
from batchsim.view.pictures.view import Entry, Spot, Style, View, outline

FEW = 40  # up to this number, empty seats are shown, too
LANE = 0.88  # height of a lane, as a part of the distance between two
STRIP, APART = 2.2, 1.9  # ems: the counts above the seats, and the gap
# The same names as in `bs.lanes`, in the order of the legend.
NAMES = {
    "prefill": "prompt", "decode": "a token a step", "padded": "done, seat kept", "empty": "empty seat",
    "again": "computed again",
}  # fmt: skip


class SeatsView(View):
    """Each seat's prompts and tokens; hatched while it is empty, or kept for the others of a batch.

    Above, in a large view, are the numbers of taken seats, now and in the setting before, or in A.
    """

    KEY, NAME, SHORT = "seats", "The seats", "Seats over time"
    RANK = 3
    ROWS, SMALL_ROWS = 2, 2
    data: ViewData | None = None
    part: Moment | None = None  # of the run, that is shown

    def add_artists(self) -> None:
        theme = self.theme
        self.plot_box = self.axes_box()
        if self.large:
            self._add_strip()
        ax = self.ax = self.add_plot(self.plot_box, "", "seat" * self.large, grid="")
        self.styles: dict[str, Style] = {name: fill_style(theme, name) for name in NAMES}
        order = dict.fromkeys(NAMES, 2) | {"empty": 1}
        self.paper = PathPatch(NOWHERE, zorder=1.5, linewidth=0, facecolor=theme.background)
        self.bars = {
            name: PathPatch(NOWHERE, zorder=order[name], **style) for name, style in self.styles.items()
        }
        for artist in (self.paper, *self.bars.values()):
            ax.add_artist(artist)
        self.preempted = self.add_preemptions(ax, edge=0.4)
        self.numbers = Lettering(self.picture, self.em, theme.background, zorder=6)
        self.set_moving(self.paper, *self.bars.values(), self.preempted, self.numbers)

    def _add_strip(self) -> None:
        whole = self.plot_box
        self.strip_box = whole._replace(height=STRIP * self.em)
        top = self.strip_box.bottom + APART * self.em
        self.plot_box = whole._replace(top=top, height=whole.bottom - top)
        self.strip = self.add_plot(self.strip_box, "", "seats taken", ticks=False, numbers="y")
        self.strip.yaxis.get_major_locator().set_params(nbins=2, integer=True)  # type: ignore[call-arg]
        self.taken, self.other_taken = (
            self.strip.stairs([0], [0, 1], baseline=None, zorder=zorder) for zorder in (3, 2.5)
        )
        self.taken.set(**outline(self.line_style("blue", "-", 1.4)))  # as in the steps
        self.set_moving(self.taken, self.other_taken)

    def update(self, data: ViewData) -> None:
        self.data = data
        self.part = now = data.moment(self.server)
        self.name_server(data.result.scenario.all_servers)
        for artist in self.moving:
            artist.set_visible(now is not None)
        if now is None:
            self.numbers.show([])
            self.show_legend([])
            return
        found, begin_s, last_ms, lanes = (
            now.seats,
            now.begin_s,
            1000 * (now.end_s - now.begin_s),
            lanes_of(now),
        )
        self.set_label(self.ax.xaxis, "time", last_ms)
        self.set_limits(self.ax, lanes, x=(0, last_ms), y=(lanes + 0.5, 0.5))
        if self.hold("lanes", lanes):
            most = 8 if self.large else max(int(self.plot_box.height / (2 * self.em)), 1)
            self.ax.yaxis.set_major_locator(FixedLocator(_ticks(lanes, most)))

        def ms(times_s: np.ndarray) -> np.ndarray:
            return np.clip(1000 * (times_s - begin_s), 0, last_ms)

        begin, first, last, end = map(
            ms, (found.begin_s, found.first_token_s, found.last_token_s, found.end_s)
        )
        middle = found.seat + 1.0
        self.paper.set_path(_bars(begin, end, middle, 1.0))
        self._put("prefill", begin, first, middle, LANE, ~found.again)
        self._put("again", begin, first, middle, LANE, found.again)
        self._put("decode", first, last, middle, TELLING * LANE)
        self._put("padded", last, end, middle, TELLING * LANE)
        # Seats count as empty only while something runs.
        from_ms, to_ms = map(ms, now.busy_s)
        self._put("empty", from_ms, to_ms, np.full(from_ms.size, (lanes + 1) / 2), lanes)
        back = found.preempted & (found.end_s <= now.end_s)
        self.preempted.set_visible(bool(back.any()))
        self.preempted.set_data(end[back], middle[back])
        self.numbers.show(self._numbers(found.request, begin, last, middle))
        seen = {name for name, bars in self.bars.items() if bars.get_visible()}
        if (end - begin).sum() >= (1 - 1e-9) * lanes * (to_ms - from_ms).sum():
            seen.discard("empty")
        low = {"decode": {"share": TELLING}}
        entries = [
            Entry(text, self.styles[name] | low.get(name, {})) for name, text in NAMES.items() if name in seen
        ]
        entries += [Entry("preempted", self.mark | {"markersize": 0.6 * self.em})] * bool(back.any())
        labels = place_of(now, self.plot_box, self.box.bottom - 0.7 * self.em)
        self.show_legend(entries, [*labels, self._show_taken(now, last_ms)] if self.large else [])

    def _show_taken(self, now: Moment, last_ms: float) -> Label:
        """Draw the numbers of taken seats, here and in the other setting, and return their means in words."""
        assert self.data is not None
        said, highest = [], 1
        kinds = [(self.taken, now.result, "on average")]
        other = self.data.other
        self.other_taken.set_visible(other is not None)
        if other is not None:
            kinds.append((self.other_taken, other.result, _name_of_other(self.data)))
            self.other_taken.set(**outline(self.other_style(self.data)))
        for line, result, name in kinds:
            edges_s, counts = taken(result, now.server, now.begin_s, now.end_s)
            line.set_data(counts, 1000 * (edges_s - now.begin_s))
            highest = max(highest, int(counts.max()))
            said.append(f"{number(_mean(edges_s, counts))} {name}")
        self.set_limits(self.strip, "taken", x=(0, last_ms), y=(0, nice(1.1 * highest)))
        box = self.strip_box
        return Label(", ".join(said), box.right, box.top - 0.6 * self.em, "right")

    def _put(
        self, name: str, from_ms: np.ndarray, to_ms: np.ndarray, middle: np.ndarray, high: float,
        which: Any = True,
    ) -> None:  # fmt: skip
        some = (to_ms > from_ms) & which
        self.bars[name].set_path(_bars(from_ms[some], to_ms[some], middle[some], high))
        self.bars[name].set_visible(bool(some.any()))  # a hatch takes time even without an area

    def _numbers(
        self, requests: np.ndarray, from_ms: np.ndarray, to_ms: np.ndarray, middle: np.ndarray
    ) -> list[Label]:
        """Return the number of each request whose bar has room for it."""
        box, right_ms = self.plot_box, float(self.ax.get_xlim()[1])
        bottom, top = self.ax.get_ylim()
        if not self.large or LANE * TELLING * box.height / (bottom - top) < self.em:
            return []
        left, right = (box.left + box.width * each / right_ms for each in (from_ms, to_ms))
        y = box.top + box.height * (middle - top) / (bottom - top) + 0.36 * self.em
        return [
            Label(text, (start + end) / 2, at, "center")
            for text, start, end, at in zip(map(str, requests), left, right, y, strict=True)
            if end - start > (width_em(text) + 0.6) * self.em
        ]

    def spot(self, x_px: float, y_px: float, data: ViewData) -> Spot | None:
        box, now = self.plot_box, self.part
        in_strip = self.large and self.strip_box.top <= y_px < self.strip_box.bottom
        if now is not None and box.left <= x_px < box.right and in_strip:
            return self._spot_of_taken(now, (x_px - box.left) / box.width, data)
        across = self.across(x_px, y_px)
        if now is None or across is None:
            return None
        low, high = self.ax.get_ylim()
        at_s = now.begin_s + float(self.ax.get_xlim()[1]) * across / 1000
        seat = round(high + (low - high) * (y_px - box.top) / box.height)
        found = now.seats
        here = np.flatnonzero((found.seat == seat - 1) & (found.begin_s <= at_s) & (at_s < found.end_s))
        if not here.size:
            return Spot(self.KEY, f"Seat {seat:,} is empty") if at_s <= now.end_s else None
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

    def _spot_of_taken(self, now: Moment, across: float, data: ViewData) -> Spot | None:
        at_s = now.begin_s + across * float(self.ax.get_xlim()[1]) / 1000
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
        now = data.moment(self.server)
        if now is None:
            return []
        found, lanes = now.seats, lanes_of(now)
        whole_s = lanes * (now.end_s - now.begin_s)

        def share(from_s: np.ndarray, to_s: np.ndarray) -> float:
            both = (np.clip(each, now.begin_s, now.end_s) for each in (from_s, to_s))
            return float(-np.subtract(*both).sum() / whole_s)

        parts = {
            "on prompts": share(found.begin_s, found.first_token_s),
            "on tokens": share(found.first_token_s, found.last_token_s),
            "on padding": share(found.last_token_s, found.end_s),
            "empty": 1 - share(found.begin_s, found.end_s),
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


def _bars(from_ms: np.ndarray, to_ms: np.ndarray, middle: np.ndarray, high: float) -> Path:
    return rectangles(np.stack([from_ms, middle - high / 2], -1), np.stack([to_ms, middle + high / 2], -1))


def lanes_of(now: Moment) -> int:
    """Return the number of seats to show: all if they are few, otherwise the most taken at once."""
    seats, taken = now.result.scenario.rule.largest_batch, int(now.seats.seat.max(initial=0)) + 1
    return seats if seats <= max(FEW, 1.5 * taken) else taken


def _ticks(lanes: int, most: int) -> list[int]:
    """Return the seats with a number, about `most`: the first, and multiples of a round number."""
    if lanes <= most:
        return list(range(1, lanes + 1))
    step = next(step for step in (2, 5, 10, 20, 50, 100, 200, 500, 10**6) if lanes <= most * step)
    return [1, *range(step if step > 2 else 2 * step, lanes + 1, step)]
