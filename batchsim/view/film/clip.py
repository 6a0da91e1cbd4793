"""The clip of a run that a film plays: arrays for `film.js` and for the still, and the moment in words."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from batchsim._compat import bincount
from batchsim.engines.log import Status
from batchsim.result import Result
from batchsim.result.seats import Seats, padding
from batchsim.scenario import OpenLoop
from batchsim.scenario.sized_time import padded_to, unit_cost
from batchsim.view.film.film import REQUESTS, PlayRange, RequestFilm
from batchsim.view.film.token_film import QueueLength, TokenFilm, life

Lane = dict[str, Any]  # one run, as the beginning of `film.js` describes it
MOVED = 0.0675  # of its computing time: the batch with which a film begins has just left
COMING = 24  # requests after the clip that are seen approaching
TYPES = {"f": np.float64, "i": np.int32, "u": np.uint8, "b": np.uint8}  # by NumPy's kind of number


@dataclass(frozen=True, eq=False)
class Clip:
    """A part of a run, or of several, to be played.

    `instants` are the times of events, `words` and `line` describe a time (and the batch that left within the
    last seconds), and `start` is the time to begin with, and those seconds. `more` is for `film.js`: the
    title, the legend, the length of a page.
    """

    stretch: PlayRange
    instants: np.ndarray
    lanes: Sequence[Lane]
    words: Callable[[float, float], str]
    line: Callable[[float, float], int | None] = lambda time_s, within_s: None
    start: tuple[float, float] | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def start_s(self) -> tuple[float, float]:
        """The time to begin with, and for how long a batch that left before still counts as leaving."""
        return self.start or (self.stretch.begin_s, 0.0)

    @property
    def unit(self) -> tuple[str, float]:
        """The unit of all its times, and its ms."""
        page_s = self.more.get("page_s", self.stretch.until_s - self.stretch.begin_s)
        return ("s", 1000.0) if page_s >= 1 else ("ms", 1.0)

    def said(self, time_s: float, within_s: float) -> str:
        """Return a moment in words, with its time in the clip's unit."""
        at = f"At {time_s:,.{self.lanes[0].get('decimals', 1) + 2}f} s" if self.unit[0] == "s" else r"\g<0>"
        return re.sub(r"^At \S+ ms", at, self.words(time_s, within_s))

    def from_first(self) -> "Clip":
        """Return the same clip, to begin with its first event."""
        first = int(self.instants.searchsorted(self.stretch.begin_s))
        return replace(self, start=(float(self.instants[first]), 0.0))

    def message(self) -> dict[str, Any]:
        """Return the clip for `film.js`."""
        time_s, within_s = self.start_s
        return packed(
            {**self.stretch._asdict(), "start": {"time_s": time_s, "within_s": within_s}}
            | {"lanes": list(self.lanes), "unit": self.unit, **self.more}
        )  # fmt: skip


def packed(value: Any) -> Any:
    """Return a value with each array as its bytes and their type, which a page unpacks."""
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value, TYPES[value.dtype.kind])
        return {"dtype": array.dtype.name, "bytes": memoryview(array.tobytes())}
    if isinstance(value, dict):
        return {name: packed(each) for name, each in value.items()}
    return [packed(each) for each in value] if isinstance(value, list | tuple) else value


def request_clip(film: RequestFilm, around_s: tuple[float, float], requests: int = REQUESTS) -> Clip:
    """Return about so many requests of a run, from some before a period on; it starts as a batch moves."""
    stretch, batch = film.stretch(*around_s, requests), film.largest_leaving(*around_s)
    start = around_s[0], 0.0
    if batch is not None:
        start_s, finish_s = float(film.batches.start_s[batch]), float(film.batches.finish_s[batch])
        moved_s = MOVED * (finish_s - start_s)
        start = start_s + moved_s, 1.01 * moved_s
    return Clip(stretch, film.instants, [request_lane(film, stretch)], film.words, film.line, start)


def request_lane(film: RequestFilm, stretch: PlayRange) -> Lane:
    """Return the requests in the system during a stretch, and the batches since the first of them."""
    result, order = film.result, film.order
    arrival_s, log = result.arrival_s, result.batches
    there = np.flatnonzero(film.done_s > stretch.begin_s)
    first = int(there[0]) if there.size else arrival_s.size
    last = min(int(arrival_s.searchsorted(stretch.until_s, side="right")) + COMING, arrival_s.size)
    rows, since_s = slice(first, last), float(arrival_s[min(first, arrival_s.size - 1)])
    shown = (log.finish_s > min(since_s, stretch.begin_s)) & (log.start_s <= stretch.until_s)
    # And the last batch before the first request arrived, from which the life of a request counts.
    shown[: log.start_s.searchsorted(since_s, side="right")][-1:] = True
    seen = np.flatnonzero(shown)
    index = result.batch_index[rows]
    place = np.minimum(seen.searchsorted(index), max(seen.size - 1, 0))
    known = np.isin(index, seen)
    counts = bincount(result.status[:first], minlength=len(Status)).tolist()
    times, rule, levels = result.run.device_time, result.scenario.rule, film.order.levels
    lane: Lane = {
        "kind": "requests", "title": [], "servers": film.servers, "first": first, "decimals": film.decimals,
        "arrival_s": arrival_s[rows], "left_s": film.left_s[rows], "done_s": film.done_s[rows],
        "status": result.status[rows], "batch": np.where(known, place, -1),
        "batches": {
            "start_s": log.start_s[seen], "ready_s": result.ready_s[seen], "asked_s": times.asked_s[seen],
            "begin_s": times.begin_s[seen], "finish_s": log.finish_s[seen], "server": log.server[seen],
            "trigger": log.trigger[seen].astype(np.int64), "size": log.batch_size[seen],
        },
        "rule": {
            "largest": rule.largest_batch, "enough": rule.enough,
            "max_wait_ms": rule.max_wait_ms if math.isfinite(rule.max_wait_ms) else None,
        },
        "code": [
            {
                "text": line.text, "trigger": None if line.trigger is None else line.trigger.value,
                "activity": line.activity or None, "because": line.because,
            }
            for line in film.lines
        ],
        "open": isinstance(result.scenario.workload, OpenLoop),
        "loses": bool((result.status != Status.SERVED).any()),
        "before": {status.name.lower(): count for status, count in zip(Status, counts, strict=True)},
        "levels": list(levels) if len(levels) > 1 else [],
    }  # fmt: skip
    if len(levels) > 1:
        lane["level"] = order.place[rows]
    if (replicas := result.scenario.most_replicas) > 1:
        lane |= {"replicas": replicas, "replica": result.replica[rows].astype(np.int64)}
        lane["router"] = result.scenario.router.title.lower()
    if result.size is not None:
        lane |= {"size": result.scenario.cut(result.size[rows]), "unit": result.scenario.workload.size_unit}
        longest, sizes = np.zeros(seen.size, np.int64), log.batch_size[seen].astype(np.int64)
        np.maximum.at(longest, place[known], lane["size"][known])
        cost = unit_cost(result.scenario.service, rule.max_batch_size)
        lane["batches"] |= dict(zip(("rows", "longest"), padded_to(sizes, longest, cost), strict=True))
    if not order.in_order:
        lane["turn"] = {"batch": order.batch[rows], "late_s": order.late_s[rows]}
    return lane


def token_lane(
    stays: Seats, queue: QueueLength, busy: Sequence[tuple[np.ndarray, np.ndarray]], drawn: tuple[int, int],
    result: Result, stretch: PlayRange, shown: int = 0,
) -> Lane:  # fmt: skip
    """Return the seats of some servers, from `shown` on; `drawn`: how many, and how many seats of each."""
    first, last = queue.times_s.searchsorted(stretch, side="right").tolist()
    part = slice(max(first - 1, 0), last)
    spells = [
        (server, *ends) for server, each in enumerate(busy) for ends in zip(*each, strict=True)
        if ends[0] < stretch.until_s and ends[1] > stretch.begin_s
    ]  # fmt: skip
    server, begin_s, end_s = np.array(spells, float).reshape(-1, 3).T
    begin, end = result.arrival_s.searchsorted(stretch)
    stays = stays.within(*stretch)
    request, numbers = np.unique(stays.request), {server: shown + server for server in range(drawn[0])}
    return {
        "kind": "tokens", "title": [], "servers": drawn[0], "seats": drawn[1],
        "arrival_s": result.arrival_s[begin:end],
        "queue": {"at_s": queue.times_s[part], "waiting": queue.waiting[part].astype(np.int64)},
        "stays": vars(stays), "padding": padding(result, stays, *stretch, numbers)._asdict(),
        "lives": {
            "request": request, "words": [life(result, i) for i in request.tolist()],
            "arrival_s": result.arrival_s[request], "latency_s": result.latency_ms[request] / 1000,
        },
        "busy": {"server": server.astype(np.int64), "begin_s": begin_s, "end_s": end_s},
    }  # fmt: skip


def step_clip(
    film: TokenFilm, stays: Seats, seats: int, busy_s: tuple[np.ndarray, np.ndarray], stretch: PlayRange,
    **more: Any,
) -> Clip:  # fmt: skip
    """Return a stretch of one server of token generation, with a sentence for each of its instants."""
    stays = stays.of(stays.server == film.shown)
    stays = Seats(**vars(stays) | {"server": np.zeros(len(stays), np.int64)})
    lane = token_lane(stays, film.queue, [busy_s], (1, seats), film.result, stretch, film.shown)
    lane["moments"] = moments(film, stretch)
    return Clip(stretch, film.instants, [lane], film.words, film.line, more=more)


def moments(film: TokenFilm, stretch: PlayRange) -> dict[str, Any]:
    """Return the state at each instant and step: a sentence, the acting line (-1: none), and what it is.

    `leaves`: a batch leaves; `event`: it is one of the film's instants. A page replaces "{t}" by the time in
    ms, and "{since s}" by the time in ms since then.
    """
    at_s = np.concatenate([film.instants, film.changes_s])
    at_s = at_s[(at_s > stretch.begin_s) & (at_s <= stretch.until_s)]
    at_s = np.unique(np.append(at_s, stretch.begin_s))
    times_s = at_s.tolist()
    lines = [film.line(time_s) for time_s in times_s]
    return {
        "at_s": at_s, "event": np.isin(at_s, film.instants),
        "words": [film.words(time_s, at_ms="{t}") for time_s in times_s],
        "line": np.array([-1 if line is None else line for line in lines]),
        "leaves": np.isin(at_s, film.batches.start_s if film.whole else ()),
    }  # fmt: skip
