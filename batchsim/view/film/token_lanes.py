"""Lanes of token generation: the same requests under several rules, one row per seat."""

import math
from collections.abc import Sequence

import numpy as np

from batchsim._format import listed
from batchsim.scenario import Continuous, Rule, Scenario
from batchsim.scenario.rules import SizeOrWait
from batchsim.servers.comparison import Group, ServerComparison
from batchsim.view.canvas.picture import Box
from batchsim.view.canvas.theme import Theme
from batchsim.view.film.lanes_view import Entry, LanesView
from batchsim.view.film.snapshot import PlayRange
from batchsim.view.film.token_film import TokenFilm
from batchsim.view.film.token_lane import DOWN, TELLING, WAIT, Drawn, TokenLane, numbers_of, seats_of, styles

REQUESTS = 2000  # of each run: rules that only the SimPy engine has take seconds
SHOWN = 30  # requests in a window: fewer than for whole requests, as answers take longer
SEATS, WAIT_MS = 8, 1000.0  # of the default rules
NAMES, NARROW = 11.5, 10.1  # ems: the column of names and numbers, "TPOT p99 00.0 ms" at least
TALL, HIGH, LEAST = 14.0, 1.3, 0.35  # ems: the height of a lane, of its highest and its lowest rows
TEXTS = 9.2  # ems: a name and five lines
BAR = np.array([[-0.72, -0.44], [0.72, -0.44], [0.72, 0.44], [-0.72, 0.44], [-0.72, -0.44]])  # of the legend


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
