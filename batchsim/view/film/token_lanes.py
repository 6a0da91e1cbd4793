"""Lanes of token generation: the same requests under several rules, a queue and one row per seat."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from batchsim._format import INFINITE, counted, duration, listed, percent, rate
from batchsim.result import Result
from batchsim.scenario import Continuous, Rule, Scenario
from batchsim.scenario.rules import SizeOrWait
from batchsim.scenario.rules.continuous import MOST
from batchsim.servers.comparison import Group, ServerComparison
from batchsim.view.canvas.cells import NOWHERE, rectangles
from batchsim.view.canvas.lettering import Label, width_em
from batchsim.view.canvas.picture import Box, Tile
from batchsim.view.canvas.theme import PHASES, Theme
from batchsim.view.film.lanes_view import Entry, LanesView
from batchsim.view.film.seats import Seats
from batchsim.view.film.snapshot import PlayRange
from batchsim.view.film.token_film import TokenFilm

WAIT = 1.7  # ems: the height of the queue's strip
NUMBERED = 1.2  # ems: the height of rows with room for numbers
TELLING = 0.7  # the share of a row's height for tokens; prompts take all of it
GAP = 0.5  # ems between two servers
FLAG = 0.7  # ems: the size of the mark of a preemption
DOWN = np.array([[-0.5, -0.55], [0.5, -0.55], [0, 0.45], [-0.5, -0.55]])

Style = dict[str, Any]


def styles(theme: Theme) -> dict[str, Style]:
    """Return the style of each kind of area: its own colour, and a hatch or a height."""

    def style(phase: str, hatch: str | None = None) -> Style:
        of = PHASES[phase]
        hatch = of.hatch if hatch is None else hatch
        return {"facecolor": getattr(theme, of.colour), "hatch": hatch, "edgecolor": theme.background}

    return {
        "waiting": style("waiting"),
        "prefill": style("prefill", ""),
        "again": style("prefill", "xxxx"),
        "decode": style("decode"),
        "padded": {"facecolor": theme.background, "hatch": "/////", "edgecolor": theme.blue},
        "empty": {"facecolor": "none", "hatch": "..", "edgecolor": theme.grey},
    }


def seats_of(result: Result) -> int:
    """Return the number of seats of a server."""
    return result.scenario.rule.largest_batch


class Drawn(NamedTuple):
    """The seats that are drawn: the lowest of each of the first servers."""

    servers: int
    seats: int

    @property
    def rows(self) -> int:
        return self.servers * self.seats


def numbers_of(result: Result) -> dict[str, str]:
    """Return the numbers of a run: TTFT, TPOT, tokens per second, and the useful share of its seats."""
    ttft = result.percentile(99, column="ttft_ms")
    # While a queue grows, TTFT only reflects the length of the run, except for a trace played to its end.
    own = result.scenario.stable or result.arrival_s.size == result.scenario.workload.max_requests
    return {
        "TTFT p99": duration(ttft) if own else INFINITE,
        "TPOT p99": duration(result.percentile(99, column="tpot_ms")),
        "tokens/s": rate(result.summary()["output_tokens_per_s"]).removesuffix("/s"),
        "useful": percent(TokenFilm.of(result).seats.useful_share),
    }


class TokenLane:
    """One rule: its queue and its seats."""

    def __init__(
        self, tile: Tile, group: Group, drawn: Drawn, box: Box, names: Box,
        x_px: Callable[[np.ndarray], np.ndarray],
    ) -> None:  # fmt: skip
        self.tile, self.group, self.drawn, self.box, self.x_px = tile, group, drawn, box, x_px
        self.film, self.em = TokenFilm.of(group.result), tile.picture.font_px
        theme, em = tile.theme, self.em
        self.top_px = box.top + WAIT * em
        gaps = GAP * em * (drawn.servers - 1)
        self.row_px = (box.bottom - self.top_px - gaps) / drawn.rows
        order = {"empty": 1.0, "waiting": 2.0, "decode": 2.2, "padded": 2.3, "prefill": 2.4, "again": 2.5}
        self.paper = tile.add(PathPatch(NOWHERE, facecolor=theme.background, linewidth=0, zorder=1.5))
        self.parts = {
            name: tile.add(PathPatch(NOWHERE, linewidth=0, zorder=order[name], **style))
            for name, style in styles(theme).items()
        }
        self.marks = tile.add(
            PathPatch(NOWHERE, facecolor=theme.vermilion, edgecolor=theme.ink, linewidth=0.8, zorder=3)
        )
        self.note = tile.add(Rectangle((0, 0), 0, 0, facecolor=theme.background, linewidth=0, zorder=4))
        tile.set_moving(self.paper, *self.parts.values(), self.marks, self.note)
        self._write_names(names, em)

    def _write_names(self, names: Box, em: float) -> None:
        """Write the names of the rules, and their numbers."""
        name = ", ".join(self.group.names)
        while em * width_em(name, "bold") > names.width and len(name) > 2:
            name = name[:-2] + "\N{HORIZONTAL ELLIPSIS}"
        y = names.top + 1.1 * em
        self.tile.add_text(names.left, y, name, weight="bold", fontsize=em)
        for texts in self._said():
            y += 1.3 * em
            text = next((text for text in texts if em * width_em(text) <= names.width), texts[-1])
            self.tile.add_text(names.left, y, text, color=self.tile.theme.soft, fontsize=em)

    def _said(self) -> Iterator[tuple[str, ...]]:
        """Yield the lines to the left of the lane, each with shorter versions."""
        numbers = numbers_of(self.group.result)
        for name in ("TTFT p99", "TPOT p99"):
            yield (f"{name} {numbers[name]}",)
        yield (f"{numbers['tokens/s']} tokens/s",)
        yield (f"{numbers['useful']} useful",)
        (servers, seats), of = self.drawn, seats_of(self.group.result)
        if of >= MOST:  # no limit
            yield f"{counted(seats, 'seat')} drawn", counted(seats, "seat")
        elif seats < of:
            yield f"{seats:,} of {of:,} seats drawn", f"{seats:,} of {of:,} seats"
        else:
            yield (counted(of, "seat") if self.film.servers == 1 else f"{servers:,} x {counted(of, 'seat')}",)
        if servers < self.film.servers:
            yield (
                f"{servers:,} of {self.film.servers:,} servers",
                f"{servers:,}/{self.film.servers:,} servers",
            )

    def most_waiting(self, stretch: PlayRange) -> int:
        times_s, count = self.film.queue
        first, last = times_s.searchsorted(stretch, side="right")
        return int(count[max(first - 1, 0) : last].max(initial=0))

    # Moving parts.

    def show(self, stretch: PlayRange, until_s: float, scale: float) -> list[Label]:
        """Draw the lane until a time, and return its labels."""
        until_s = min(until_s, stretch.until_s)
        labels = self._show_waiting(stretch, until_s, scale)
        rows = self.film.seats.within(stretch.begin_s, until_s)
        drawn = (rows.seat < self.drawn.seats) & (rows.server < self.drawn.servers)
        self._show_empty(stretch, until_s)
        return labels + self._show_seats(rows.of(drawn), stretch, until_s)

    def _put(self, name: str, begin: np.ndarray, end: np.ndarray) -> None:
        some = (end[:, 0] > begin[:, 0]) & (end[:, 1] > begin[:, 1])
        self.parts[name].set_path(rectangles(begin[some], end[some]))
        self.parts[name].set_visible(bool(some.any()))  # even an empty hatch takes time

    def _show_waiting(self, stretch: PlayRange, until_s: float, scale: float) -> list[Label]:
        em, bottom = self.em, self.top_px - 0.2 * self.em
        times_s, count = self.film.queue
        first, last = times_s.searchsorted([stretch.begin_s, until_s], side="right")
        at = slice(max(first - 1, 0), last)
        edges_s = np.append(np.maximum(times_s[at], stretch.begin_s), until_s)
        x, seen = self.x_px(edges_s), count[at]
        tops = bottom - (bottom - self.box.top) * np.minimum(seen / scale, 1)
        begin, end = np.stack([x[:-1], tops], axis=-1), np.stack([x[1:], np.full(seen.size, bottom)], axis=-1)
        self._put("waiting", begin, end)
        most = int(seen.max(initial=0))
        self.note.set_visible(most > scale)
        if most <= scale:
            return []
        # The number that is cut off, on paper, as a hatch would make it unreadable.
        text, left = f"{most:,} wait", self.box.left + 0.5 * em
        self.note.set_bounds(left, self.box.top + 0.1 * em, (width_em(text) + 0.6) * em, 1.3 * em)
        return [Label(text, left + 0.3 * em, self.box.top + 1.1 * em)]

    def _tops(self, server: np.ndarray, seat: np.ndarray) -> np.ndarray:
        return self.top_px + self.row_px * (server * self.drawn.seats + seat) + GAP * self.em * server

    def _show_empty(self, stretch: PlayRange, until_s: float) -> None:
        """Hatch all seats while their server computes; occupied seats are drawn over the hatch."""
        corners: list[list[float]] = []
        for server, (begin_s, end_s) in enumerate(self.film.busy[: self.drawn.servers]):
            seen = (begin_s < until_s) & (end_s > stretch.begin_s)
            left = self.x_px(np.maximum(begin_s[seen], stretch.begin_s))
            right = self.x_px(np.minimum(end_s[seen], until_s))
            top = float(self._tops(np.array(server), np.array(0)))
            bottom = top + self.row_px * self.drawn.seats
            corners += [[x0, top, x1, bottom] for x0, x1 in zip(left, right, strict=True)]
        ends = np.array(corners).reshape(-1, 4)
        self._put("empty", ends[:, :2], ends[:, 2:])

    def _show_seats(self, rows: Seats, stretch: PlayRange, until_s: float) -> list[Label]:
        em, high = self.em, self.row_px

        def x(times_s: np.ndarray) -> np.ndarray:
            return self.x_px(np.clip(times_s, stretch.begin_s, until_s))

        top, gap = self._tops(rows.server, rows.seat), min(1.0, 0.15 * high)
        begin, first, last, end = map(x, (rows.begin_s, rows.first_token_s, rows.last_token_s, rows.end_s))
        # A line of paper separates successive requests.
        over = end - np.where((rows.end_s <= until_s) & (end - begin > 3), 1.0, 0.0)
        self.paper.set_path(rectangles(np.stack([begin, top], -1), np.stack([end, top + high], -1)))

        def put(
            name: str, left: np.ndarray, right: np.ndarray, share: float, which: Any = slice(None)
        ) -> None:
            above = top + (high - gap) * (1 - share) / 2
            below = above + (high - gap) * share
            right = np.minimum(right, over)
            self._put(name, np.stack([left, above], -1)[which], np.stack([right, below], -1)[which])

        put("prefill", begin, first, 1.0, ~rows.again)
        put("again", begin, first, 1.0, rows.again)
        put("decode", first, last, TELLING)
        put("padded", last, end, TELLING)
        gone = rows.preempted & (rows.end_s <= until_s)
        self._mark(end[gone], top[gone] + high / 2)
        if high < NUMBERED * em:
            return []
        return [
            Label(text, (left + right) / 2, y + high / 2 + 0.36 * em, "center")
            for text, left, right, y in zip(
                map(str, rows.request), begin.tolist(), np.minimum(last, over).tolist(), top, strict=True
            )
            if right - left > (width_em(text) + 0.6) * em
        ]  # fmt: skip

    def _mark(self, x: np.ndarray, y: np.ndarray) -> None:
        """Mark preemptions by triangles that point down."""
        size = FLAG * self.em
        vertices = np.stack([x, y], -1)[:, None] + size * DOWN
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
        self.marks.set_path(Path(vertices.reshape(-1, 2), codes * x.size) if x.size else NOWHERE)
        self.marks.set_visible(bool(x.size))


SEATS, WAIT_MS = 8, 1000.0  # of the default rules
NAMES, NARROW = 11.5, 10.1  # ems: the column of names and numbers, "TPOT p99 00.0 ms" at least
TALL, HIGH, LEAST = 14.0, 1.3, 0.35  # ems: the height of a lane, of its highest and its lowest rows
TEXTS = 9.2  # ems: a name and five lines
BAR = np.array([[-0.72, -0.44], [0.72, -0.44], [0.72, 0.44], [-0.72, 0.44], [-0.72, -0.44]])  # of the legend


def drawn_of(groups: Sequence[Group], stretch: PlayRange) -> list[Drawn]:
    """Return the seats of each rule that are drawn: up to the highest occupied one, if there is room."""
    found = []
    for group in groups:
        film = TokenFilm.of(group.result)
        most = int(TALL / LEAST)
        servers = min(film.servers, most)
        taken = int(film.seats.within(*stretch).seat.max(initial=0)) + 1
        room = max(most // servers, 1)
        found.append(Drawn(servers, min(seats_of(group.result), max(taken, SEATS), room)))
    return found


class TokenLanesView(LanesView):
    """Lanes whose rows are seats."""

    least_scale = SEATS
    shown, simulated = 30, 2000  # fewer, as answers take longer, and only the SimPy engine has some rules
    noun, answers_last, is_staged = "rule", True, False

    @staticmethod
    def usual_rules(scenario: Scenario) -> dict[str, Rule]:
        """Return whole batches, size or wait, and continuous batching, by name.

        They have the seats of the scenario's own rule, at most 8; its own `Continuous` rule is not changed.
        """
        rule = scenario.rule
        size = min(rule.largest_batch, SEATS)
        wait_ms = (
            rule.max_wait_ms if isinstance(rule, SizeOrWait) and 0 < rule.max_wait_ms < math.inf else WAIT_MS
        )
        return {
            "whole batches": SizeOrWait(size, math.inf),
            "size or wait": SizeOrWait(size, wait_ms),
            "continuous": rule if isinstance(rule, Continuous) else Continuous(size),
        }

    @classmethod
    def side_em(cls, wide: float) -> float:
        return NARROW if wide < 50 else NAMES

    @classmethod
    def heights_em(cls, comparison: ServerComparison, stretch: PlayRange) -> list[float]:
        rows = [drawn.rows for drawn in drawn_of(comparison.groups, stretch)]
        highs = (min(HIGH * count, max(HIGH * SEATS, min(0.7 * count, TALL))) for count in rows)
        return [max(WAIT + high + 0.7, TEXTS) for high in highs]

    @classmethod
    def entries(cls, comparison: ServerComparison, stretch: PlayRange, theme: Theme) -> list[Entry]:
        fills = styles(theme)
        names = {"waiting": "waiting", "prefill": "prompt", "decode": "a token a step"}
        films = [TokenFilm.of(group.result) for group in comparison.groups]
        seen = [film.seats.within(*stretch) for film in films]
        if any((rows.last_token_s < rows.end_s).any() for rows in seen):
            names["padded"] = "done, seat kept"
        names["empty"] = "empty seat"
        if any(rows.again.any() for rows in seen):
            names["again"] = "computed again"
        low = {"decode": BAR * [1, TELLING]}  # in proportion to the prompts' bars
        entries = [
            Entry(text, {"linewidth": 0, **fills[name]}, low.get(name)) for name, text in names.items()
        ]
        if any(rows.preempted.any() for rows in seen):
            style = {"facecolor": theme.vermilion, "edgecolor": theme.ink, "linewidth": 0.8}
            entries.append(Entry("preempted", style, DOWN))
        return entries

    def lanes_in(self, boxes: Sequence[Box], names: Sequence[Box]) -> list[TokenLane]:
        groups = self.comparison.groups
        drawn = drawn_of(groups, self.stretch)
        return [TokenLane(self, *each, self.x_px) for each in zip(groups, drawn, boxes, names, strict=True)]

    def film_of(self) -> TokenFilm:
        return TokensSideBySide(self.comparison)

    @property
    def words(self) -> str:
        parts = []
        for group in self.comparison.groups:
            rows, numbers = TokenFilm.of(group.result).seats.within(*self.stretch), numbers_of(group.result)
            said = [f"{name} {numbers[name]}" for name in ("TTFT p99", "TPOT p99")]
            said += [f"{numbers['tokens/s']} tokens/s", f"{numbers['useful']} of the seats' time is useful"]
            back = int(np.count_nonzero(rows.preempted & (rows.end_s <= self.stretch.until_s)))
            said += [f"{back:,} preempted in this stretch"] * bool(back)
            parts.append(f"{', '.join(group.names)}: {', '.join(said)}")
        return f"{self.title}. {'. '.join(parts)}."


class TokensSideBySide(TokenFilm):
    """The film of the first lane, with the events of all lanes."""

    def __init__(self, comparison: ServerComparison) -> None:
        super().__init__(comparison.groups[0].result)
        self.comparison = comparison
        self.films = [TokenFilm.of(group.result) for group in comparison.groups]

    def instants(self, requests: int | None = None) -> np.ndarray:
        return np.unique(np.concatenate([film.instants(requests) for film in self.films]))

    def describe(self, time_s: float) -> str:
        """Return a moment in one sentence."""
        parts = []
        for group, film in zip(self.comparison.groups, self.films, strict=True):
            now = film.snapshot(time_s)
            doing = [
                f"{count:,} {name}"
                for count, name in (
                    (now.prefill, "computing prompts"), (now.decode, "making tokens"), (now.padded, "done"),
                )
                if count
            ]  # fmt: skip
            seats = listed(doing) if doing else "all seats empty"
            parts.append(f"{', '.join(group.names)}: {now.waiting:,} waiting, {seats}")
        return f"At {time_s * 1000:,.7g} ms: {'; '.join(parts)}."
