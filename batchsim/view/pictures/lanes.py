"""One stretch of traffic under several rules: a lane each, over one time axis."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch

from batchsim import _check
from batchsim._format import tick_in, unit_of
from batchsim.scenario import Rule, Scenario
from batchsim.servers.comparison import Group, ServerComparison
from batchsim.view.film.clip import Lane
from batchsim.view.film.film import PlayRange
from batchsim.view.film.lane_kinds import KINDS, comparison_of, since, stretch_of, title_of
from batchsim.view.pictures.cells import rectangles
from batchsim.view.pictures.picture import Picture, styled
from batchsim.view.pictures.seats import parts_of
from batchsim.view.pictures.view import FROM_AXES, Style
from batchsim.view.theme import LIGHT, PAGE, THEMES, Theme, fill_style, named

WIDTH_PX, POINTS = 960, 72
HEAD, FOOT = 5.0, 3.6  # heights in ems
NARROW_EM = 50  # a picture that is less wide is narrow
QUEUE, QUEUE_EM = 0.5, 2.4  # of the height of a lane of requests; of one of seats, in ems
MOST_WAITING = 1.25  # times the longest queue of the second fullest lane: longer ones are cut off


class Lanes(Picture):
    """A comparison of servers as lanes, axes with one time axis: the queue above the batches or the seats."""

    def __init__(
        self, comparison: ServerComparison, stretch: PlayRange, width_px: int = WIDTH_PX, theme: Theme = LIGHT
    ) -> None:  # fmt: skip
        self.comparison, self.stretch, self.theme = comparison, stretch, theme
        self.kind = kind = KINDS[comparison.scenario.kind]
        self.lanes = [kind.lane(group, stretch) for group in comparison.groups]
        self.em = em = PAGE.em_px(width_px)
        heights = [kind.height_em(lane) for lane in self.lanes]
        legend = kind.legend(comparison.groups, self.lanes)
        columns = max(int(width_px / em / (2.6 + 0.58 * max(len(text) for _, text, _ in legend))), 1)
        head = HEAD + 1.4 * (-(-len(legend) // columns) - 1)
        size = (width_px / POINTS, round((sum(heights) + head + FOOT) * em) / POINTS)
        with styled(theme, em):
            super().__init__(figsize=size, dpi=POINTS, layout="constrained")
            self.suptitle(title_of(stretch), x=0.01, ha="left", fontweight="bold")
            self.set_layout_engine("constrained", hspace=0.02, h_pad=0.15 * em / POINTS)
            axes = self.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
            most = sorted(self.most_waiting(lane) for lane in self.lanes)
            scale = max(min(most[-1], MOST_WAITING * max(most[-2:][0], 1)), kind.least_scale)
            self._add_time(axes)
            for ax, group, lane, height in zip(axes, comparison.groups, self.lanes, heights, strict=True):
                self._draw(ax, lane, height, scale)
                self._write_names(ax, group, lane, height, narrow=width_px / em < NARROW_EM)
            options: Style = {"loc": "outside lower left", "handlelength": 1.3, "columnspacing": 1.2}
            self.legend(handles=[self._handle(*entry) for entry in legend], ncols=columns, **options)
        self.words = self._in_words()

    def _in_words(self) -> str:
        parts = []
        for group, lane in zip(self.comparison.groups, self.lanes, strict=True):
            numbers = self.kind.numbers(group)
            said = [f"{name} {text}" for name, text in numbers.items() if "p99" in name]
            if "useful" in numbers:
                useful = f"{numbers['useful']} is useful"
                said += [f"{numbers['tokens/s']} tokens/s", useful]
                stays = lane["stays"]
                back = int((stays["preempted"] & (stays["end_s"] <= self.stretch.until_s)).sum())
                said += [f"{back:,} preempted in this stretch"] * bool(back)
            else:
                said.append(f"at most {self.most_waiting(lane):,} wait")
            parts.append(f"{', '.join(group.names)}: {', '.join(said)}")
        return f"{title_of(self.stretch)}. {'. '.join(parts)}."

    def most_waiting(self, lane: Lane) -> int:
        """Return the longest queue of a lane."""
        times_s, count, _ = self.kind.waiting(lane)
        first, last = times_s.searchsorted(self.stretch, side="right")
        return int(count[max(first - 1, 0) : last].max(initial=0))

    def ms(self, times_s: np.ndarray) -> np.ndarray:
        """Return times in ms of the stretch; those outside it are at its ends."""
        return 1000 * (np.clip(times_s, *self.stretch) - self.stretch.begin_s)

    def _handle(self, name: str, text: str, _: float) -> Patch | Line2D:
        if name == "preempted":
            return Line2D([], [], label=text, linestyle="none", **self.mark)
        return Patch(label=text, **fill_style(self.theme, name))

    @property
    def mark(self) -> Style:
        """The style of a preemption's mark."""
        look = {"color": self.theme.vermilion, "markeredgecolor": self.theme.ink, "markeredgewidth": 0.8}
        return {"marker": "v", "markersize": 0.6 * self.em} | look

    def _add_time(self, axes: Any) -> None:
        span_ms = 1000 * (self.stretch.until_s - self.stretch.begin_s)
        unit, unit_ms = unit_of(span_ms)
        for ax in axes:
            ax.set(xlim=(0, span_ms), yticks=[])
            ax.grid(visible=True, axis="x")
            ax.tick_params(bottom=ax is axes[-1])
            ax.spines["bottom"].set_color(self.theme.faint)
        axes[-1].xaxis.set_major_formatter(tick_in(unit_ms))
        axes[-1].set_xlabel(f"time ({unit}){since(self.stretch, unit, unit_ms)}")
        arrival_s = self.comparison.groups[0].result.arrival_s
        seen = arrival_s[(arrival_s >= self.stretch.begin_s) & (arrival_s <= self.stretch.until_s)]
        top, em = axes[0], self.em
        above: Style = FROM_AXES | {"color": self.theme.soft, "ha": "right"}
        top.annotate("arrivals", (0, 1), (-0.6 * em, 0.3 * em), **above)
        line: Style = {"transform": top.get_xaxis_transform(), "color": self.theme.soft, "clip_on": False}
        top.plot(self.ms(seen), np.full(seen.size, 1.0), "|", markersize=0.9 * em, **line)

    def put(
        self, ax: Axes, name: str, left: np.ndarray, right: np.ndarray, bottom: Any, top: Any, **more: Any
    ) -> None:  # fmt: skip
        """Add areas of a fill, as one path: a patch each takes ten times as long."""
        some = (right > left) & np.greater(top, bottom)
        if some.any():
            sides = (np.broadcast_to(each, left.shape)[some] for each in (left, right, bottom, top))
            ax.add_patch(PathPatch(rectangles(*sides), **{"zorder": 2} | fill_style(self.theme, name) | more))

    def write_in(self, ax: Axes, numbers: np.ndarray, left: np.ndarray, right: np.ndarray, y: Any) -> None:
        """Write a number into each bar that has room for it."""
        per_ms = 0.75 * self.bbox.width / ax.get_xlim()[1]
        style: Style = {"ha": "center", "va": "center", "color": self.theme.background, "clip_on": True}
        for number, begin, end, at in zip(numbers, left, right, np.broadcast_to(y, left.shape), strict=True):
            if (end - begin) * per_ms > (0.64 * len(str(number)) + 0.4) * self.em:
                ax.text((begin + end) / 2, at, str(number), zorder=4, **style)

    def _draw(self, ax: Axes, lane: Lane, height_em: float, scale: float) -> None:
        """Draw the rows below 0 and the queue above it."""
        rows, room = DRAW[self.comparison.scenario.kind](self, ax, lane, height_em)
        ax.set_ylim(-rows, room)
        times_s, count, fills = self.kind.waiting(lane)
        x, high = self.ms(np.append(times_s, self.stretch.until_s)), np.minimum(count / scale, 1)
        for name in np.unique(fills):
            its = fills == name
            self.put(ax, str(name), x[:-1][its], x[1:][its], 0.06 * room, 0.96 * room * high[its])
        if (most := self.most_waiting(lane)) > scale:  # the area is cut: its edge is torn
            cut = count > scale
            paper: Style = {"color": self.theme.background, "linewidth": 0.3 * self.em, "linestyle": ":"}
            ax.hlines(np.full(cut.sum(), 0.96 * room), x[:-1][cut], x[1:][cut], zorder=3, **paper)
            at = x[:-1][np.argmax(np.where(x[1:] > x[:-1], count, -1))] / ax.get_xlim()[1]
            box = {"facecolor": self.theme.background, "linewidth": 0, "pad": 1}
            side = "right" if at > 0.5 else "left"
            place = (0.5 * self.em if side == "left" else -0.5 * self.em, -0.3 * self.em)
            words = f"at most {most:,} wait"
            ax.annotate(words, (at, 1), place, va="top", ha=side, bbox=box, **FROM_AXES)

    def _write_names(self, ax: Axes, group: Group, lane: Lane, height_em: float, narrow: bool) -> None:
        """Write the names and the numbers of a lane left of it."""
        notes, names = self.kind.notes(group, lane), list(group.names)
        most = max(int(height_em / 1.25) - len(notes), 1)
        if len(names) > most:
            names = [*names[: most - 1], f"+ {len(names) - most + 1} more"]
        letters = int(self.kind.sides[narrow] / 0.62)
        cut = (name if len(name) <= letters else f"{name[: letters - 1]}\u2026" for name in names)
        said = [next((text for text in texts if len(text) <= letters + 2), texts[-1]) for texts in notes]
        style: Style = FROM_AXES | {"va": "top", "linespacing": 1.15}
        down, side = 0.0, -self.kind.sides[narrow] * self.em
        looks: tuple[Style, ...] = {"weight": "bold"}, {"color": self.theme.soft}
        for text, look in zip(("\n".join(cut), "\n".join(said)), looks, strict=True):
            ax.annotate(text, (0, 1), (side, -down), **style, **look)
            down += 1.35 * self.em * (text.count("\n") + 1)


def _draw_batches(view: "Lanes", ax: Axes, lane: Lane, height_em: float) -> tuple[float, float]:
    """Draw the batches in rows below 0; return the number of rows, and the room above for the queue."""
    batches, servers = lane["batches"], lane["servers"]
    begin_s, until_s = view.stretch
    seen = (batches["start_s"] <= until_s) & (batches["finish_s"] > begin_s)
    times_s = (batches[name][seen] for name in ("start_s", "asked_s", "begin_s", "finish_s"))
    start, asked, device, end = map(view.ms, times_s)
    top = -batches["server"][seen] - 0.05
    bottom = top - 0.9
    edge = {"edgecolor": view.theme.background, "linewidth": 0.08 * view.em}
    view.put(ax, "computing", start, end, bottom, top, **edge)
    view.put(ax, "device_wait", asked, device, bottom, top)
    if height_em * (1 - QUEUE) / servers >= 1.2:
        view.write_in(ax, batches["size"][seen], start, end, (top + bottom) / 2)
    return servers, servers * QUEUE / (1 - QUEUE)


def _draw_seats(view: "Lanes", ax: Axes, lane: Lane, height_em: float) -> tuple[float, float]:
    """Draw the seats: a prompt fills its row, tokens do not; empty seats are hatched."""
    stays, seats, gap = lane["stays"], lane["seats"], 0.4  # rows between two servers
    rows = lane["servers"] * seats + gap * (lane["servers"] - 1)
    here = (stays["seat"] < seats) & (stays["server"] < lane["servers"])
    stays = {name: column[here] for name, column in stays.items()}
    top = -(seats + gap) * np.arange(lane["servers"])
    view.put(ax, "empty", np.zeros(top.size), np.full(top.size, ax.get_xlim()[1]), top - seats, top)
    times_s = (stays[name] for name in ("begin_s", "first_token_s", "last_token_s", "end_s"))
    begin, first, last, end = map(view.ms, times_s)
    top = -(seats + gap) * stays["server"] - stays["seat"]
    paper = {"facecolor": view.theme.background, "hatch": "", "zorder": 1.9}
    view.put(ax, "empty", begin, end, top - 1, top, **paper)
    middle = top - 0.5
    thin = 0.0015 * ax.get_xlim()[1]  # a line of paper separates successive requests
    until = end - np.where(end - begin > 4 * thin, thin, 0.0)
    for name, (left, right, high) in parts_of(begin, first, last, until, stays["again"]).items():
        view.put(ax, name, left, np.minimum(right, until), middle - 0.45 * high, middle + 0.45 * high)
    gone = stays["preempted"] & (stays["end_s"] <= view.stretch.until_s)
    ax.plot(end[gone], middle[gone], linestyle="none", **view.mark)
    room = rows * QUEUE_EM / max(height_em - QUEUE_EM, 1)
    if (height_em - QUEUE_EM) / rows >= 1.2:
        view.write_in(ax, stays["request"], begin, np.minimum(last, until), middle)
    return rows, room


DRAW = {"requests": _draw_batches, "tokens": _draw_seats}  # by the scenario's kind


def lanes(
    what: ServerComparison | Scenario, rules: Mapping[str, Rule] | None = None, begin_s: float | None = None,
    length_s: float | None = None, width_px: int = WIDTH_PX, theme: str = "light",
) -> Lanes:  # fmt: skip
    """Return a picture of one stretch of traffic under several rules, a lane each.

    `what` is the return value of `compare_servers`, or a scenario with the `rules` to compare, by name. A
    lane shows the length of the queue (forming while a server is idle, otherwise queueing), and below it the
    batches with their sizes. The stretch begins at `begin_s` and lasts `length_s`, by default about 60
    requests from the middle. `words` describes the picture.

    With tokens a lane has a row for each seat. A prompt fills the height of its row; a step that makes one
    token is lower. Seats are hatched if they are empty while others compute, or if they belong to a whole
    batch and their answer is complete. The numbers of the whole run are on the left. Without `rules`, the
    lanes compare whole batches, size or wait, and continuous batching.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> scenario = Scenario(Poisson(80), SizeOrWait(), Affine(47, 3.6))
    >>> lanes(scenario, {"short": SizeOrWait(32, 50), "long": SizeOrWait(32, 200)}, length_s=1)
    <Lanes size 960x268 with 2 Axes>
    """
    if not isinstance(what, (ServerComparison, Scenario)):
        raise TypeError(f"lanes takes a Scenario or what compare_servers returns, got {what!r}")
    compared = comparison_of(what, rules)
    _check.whole("width_px", width_px, at_least=320)
    stretch = stretch_of(compared, begin_s, length_s)
    return Lanes(compared, stretch, width_px, named("theme", theme, THEMES))
