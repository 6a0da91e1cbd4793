"""Runs of any length in little memory: the compiled loops over windows of requests, added up."""

import bisect
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from batchsim._clock import check_time
from batchsim._compat import bincount
from batchsim.engines.autoscaling import add_scaling
from batchsim.engines.compiled import columns, levels, routed
from batchsim.engines.compiled.columns import NONE, Batches, Cold, Costs, Devices, Requests
from batchsim.engines.compiled.engine import (
    Instants,
    form_batches,
    of_requests,
    places_of,
    serves_in_turn,
    slice_of,
)
from batchsim.engines.compiled.total import DeviceClock, Total, Units, sums_of
from batchsim.engines.draws import NO_SIZES, Streams, check_durations, draw
from batchsim.engines.log import check_cancelled
from batchsim.engines.replicas import are_apart, rows_of
from batchsim.engines.totals import BINS, Histogram, Totals
from batchsim.scenario import ClosedLoop, Scenario

# New requests in a window: with its batches, it stays in the cache of a core. It has several times as many as
# wait, because these are copied from each window to the next.
WINDOW, LEAST = 1 << 16, 1 << 12
CHUNKS = 4  # windows in a chunk that is divided among replicas, at most


@dataclass
class _Window:
    """The outcome of some requests that have come, and the batches that took them."""

    numbers: Sequence[int] | np.ndarray  # of the requests, in the whole run
    requests: Requests
    batches: Batches
    left: np.ndarray  # the rows of those that wait, and go into the next window
    oldest_s: float  # when the first arrived of the requests that wait, or will come

    def row_of(self, number: int) -> int:
        """Return how many requests of the window come before one of the run."""
        return bisect.bisect_left(self.numbers, number)


class _Draws:
    """A stream of random numbers, as many ahead as a window may need."""

    def __init__(self, draw: Callable[[int], np.ndarray] | None, none: np.ndarray = NONE) -> None:
        self.draw, self.ahead = draw, none

    def fill(self, count: int) -> np.ndarray:
        if self.draw is not None and count > self.ahead.size:
            self.ahead = np.append(self.ahead, self.draw(count - self.ahead.size))
        return self.ahead

    def use(self, count: int) -> None:
        self.ahead = self.ahead[count:].copy()


def _fast_windows(
    scenario: Scenario, requests: int, streams: Any, chunk: int, cancelled: threading.Event | None = None
) -> Iterator[_Window]:
    """Run an open loop in which every request is served, under a threshold rule, in kept memory."""
    rule, noise, size_draws = scenario.rule, _Draws(streams.noise()), streams.sizes()
    free, devices, cold = np.zeros(scenario.servers), Devices.of(scenario), Cold.of(streams.cold_start)
    waiting, passed, sizes, index = 0, 0, NO_SIZES, np.empty(0, np.int64)
    most = rule.max_batch_size  # more than wait: the others leave with the arrivals that are known
    held_s, held = np.empty(most + chunk), Batches.allocate(most + chunk)
    for new_s in streams.arrivals_s(requests, chunk, held_s[most:]):
        held_s[most : most + new_s.size] = new_s  # which mostly lies there already
        arrival_s, base = held_s[most - waiting : most + new_s.size], passed - waiting
        passed += new_s.size
        costs = Costs.of(streams, noise.fill(arrival_s.size), devices, cold)
        if size_draws:
            sizes, index = np.append(sizes, size_draws(new_s.size)), np.empty(arrival_s.size, np.int64)
        cut, more = scenario.cut(sizes), passed < requests
        head, count = form_batches(arrival_s, cut, more, rule, costs, free, index, held, cancelled)
        noise.use(count)
        rows = of_requests(arrival_s[:head], None, index[:head], columns.NONE_OF_LEVELS)
        oldest_s = float(arrival_s[min(head, arrival_s.size - 1)])
        yield _Window(
            range(base, base + head), rows._replace(size=sizes[:head]), held.first(count), index[:0], oldest_s
        )
        waiting, sizes = arrival_s.size - head, sizes[head:]
        held_s[most - waiting : most] = arrival_s[head:]


def _instant_windows(
    scenario: Scenario, requests: int, streams: Any, chunk: int, cancelled: threading.Event | None = None
) -> Iterator[_Window]:
    """Run anything else from instant to instant.

    A window begins with the requests that wait. The next arrivals that are drawn follow, or in a closed
    loop room for the next sends. Requests are numbered within the window, so the waiting ones move to the
    front of the next.
    """
    noise, think = _Draws(streams.noise()), _Draws(streams.think())
    size_draws = _Draws(streams.sizes() or partial(np.ones, dtype=np.int64), NO_SIZES)
    drawn = _Draws(streams.priorities(), columns.NONE_OF_LEVELS)
    instants, devices, cold = Instants(scenario, 0), Devices.of(scenario), Cold.of(streams.cold_start)
    cursor, closed, clients = instants.cursor, instants.closed, instants.clients.client.size
    chunks = iter(()) if closed else streams.arrivals_s(requests, chunk)
    numbers, arrival_s, think_s, sent_by = np.empty(0, np.int64), NONE, NONE, np.empty(0, np.int64)
    frozen, level, late = (
        (np.empty(0, np.int64), np.empty(0, np.uint8), 0),
        columns.NONE_OF_LEVELS,
        np.empty(0, bool),
    )
    stand, waiting, passed, over, sizes = numbers, 0, 0, False, NO_SIZES
    while not over:
        new_s = np.zeros(chunk + 2 * clients) if closed else next(chunks)
        arrival_s = np.append(arrival_s, new_s)
        size = arrival_s.size
        numbers = np.append(numbers, np.arange(passed, passed + new_s.size))
        if instants.levels is not None:
            new = drawn.fill(new_s.size)[: new_s.size] if drawn.draw else None
            level = np.append(level, places_of(scenario, new, new_s.size))
            late = np.append(late, np.zeros(new_s.size, bool))
            instants.levels = instants.levels.with_room(late)
        # A list of sizes ends with the run, rows for sends do not.
        new = size_draws.fill(min(new_s.size, requests - passed))[: new_s.size]
        sizes = np.append(sizes, np.append(new, np.ones(new_s.size - new.size, np.int64)))
        if closed:
            think_s = np.append(think_s, think.fill(new_s.size)[: new_s.size])
            total = waiting + requests - passed
            # An instant sends at most once a client: that much room must be left.
            stop = total + 1 if total < size - clients else size - clients
        else:
            passed += new_s.size
            total = size + (passed < requests)  # more than are drawn
            stop = total + 1
        rows = Requests(
            arrival_s, think_s, np.append(sent_by, np.empty(new_s.size if closed else 0, np.int64)),
            np.full(size, -1, np.int64), np.zeros(size, np.uint8), level, scenario.cut(sizes),
        )  # fmt: skip
        queue = instants.queue = columns.Queue.allocate(size, scenario.rule.freezes)
        queue.requests[:waiting] = stand
        frozen_size, triggers, members = frozen
        if instants.levels is not None:
            levels.fill_lists(queue, members, waiting, rows, instants.levels)
        places = slice(frozen_size.size)
        queue.frozen_size[places], queue.frozen_trigger[places] = frozen_size, triggers
        cursor[: columns.THINKING] = waiting, 0, members, waiting, 0, 0, frozen_size.size
        batches = Batches.allocate(size)
        costs = Costs.of(streams, noise.fill(size), devices, cold)
        horizon = columns.Horizon(size, total, stop, closed, streams.end_s)
        over = instants.run_window(horizon, rows, costs, batches, cancelled)
        if instants.levels is not None:
            levels.empty_lists(queue, cursor, instants.levels)
        sent, head, mid, tail, count, frozen_head, frozen_tail = cursor[: columns.THINKING].tolist()
        noise.use(count)
        if closed:
            think.use(sent - waiting)
            passed += sent - waiting
        drawn.use(sent - waiting if closed else new_s.size)
        size_draws.use(sent - waiting if closed else new_s.size)
        left = np.sort(queue.requests[head:tail])  # who is in a frozen batch may have come after who is not
        oldest_s = arrival_s[left[0]] if left.size else arrival_s[max(sent - 1, 0)]
        came = Requests(*(column[:sent] for column in rows._replace(size=sizes)))
        yield _Window(numbers[:sent], came, batches.first(count), left, float(oldest_s))
        kept = left if closed else np.append(left, np.arange(sent, size))
        batches_left = slice(frozen_head, frozen_tail)
        frozen = queue.frozen_size[batches_left], queue.frozen_trigger[batches_left], mid - head
        stand = np.searchsorted(left, queue.requests[head:tail])
        numbers, arrival_s, waiting = numbers[kept], arrival_s[kept], left.size
        if closed:
            think_s, sent_by = think_s[kept], rows.client[kept]
        sizes = sizes[kept]
        if instants.levels is not None:
            level, late = level[kept], late[kept]


def begin_s(streams: Streams, requests: int, skip: int, chunk: int) -> float:
    """Return when request number `skip` of an open loop comes; 0 for the first."""
    passed = 0
    for arrival_s in streams.arrivals_s(requests, chunk, np.empty(chunk)) if skip else ():
        if skip < passed + arrival_s.size:
            return float(arrival_s[skip - passed])
        passed += arrival_s.size
    return 0.0


def _add(total: Total, clock: DeviceClock, window: _Window, skip: int) -> None:
    """Add a window of a run, or of a replica, whose first `skip` requests are the warm-up."""
    rows, batches = window.requests, window.batches
    units = Units.of(total.scenario, rows, batches.size)
    cuts = np.array([window.row_of(skip), rows.arrival_s.size])
    last_s = float(batches.finish_s.max(initial=window.oldest_s))
    check_time(
        "finishes", last_s, "take fewer requests"
    )  # before the histogram, which has no place for later ones
    total.add(rows, batches, cuts, clock.of(batches, units), units)
    total.keep(window.left)


class _Replica:
    """A replica at which nobody looks. To its loop it is the `Streams`: each window takes those who came."""

    def __init__(
        self, streams: Streams, k: int, requests: int, room: int, end_s: float, total: Total, in_turn: bool,
        cancelled: threading.Event | None,
    ) -> None:  # fmt: skip
        self.noise, self.end_s = partial(streams.noise, k), end_s
        self.service_s, self.unit_cost = streams.service_s, streams.unit_cost
        self.slowdown, self.cold_start = streams.slowdown, streams.cold_start
        self.total, self.clock = total, DeviceClock(total.scenario)
        windows = _fast_windows if in_turn else _instant_windows
        self.windows = windows(total.scenario, requests, self, room, cancelled)

    def add(self, skip: int, arrival_s: np.ndarray, level: Any, size: Any) -> None:
        """Run with the next requests, and add up what is over; the first `skip` of all are the warm-up."""
        self.arrival_s, self.level, self.size = arrival_s, level, size
        _add(self.total, self.clock, next(self.windows), skip)

    def arrivals_s(self, *_: Any) -> Iterator[np.ndarray]:
        while True:
            yield self.arrival_s

    def think(self) -> None:
        return None

    def priorities(self) -> Callable[[int], Any] | None:
        return None if self.level is None else lambda _: self.level

    def sizes(self) -> Callable[[int], Any] | None:
        return None if self.size is None else lambda _: self.size


def routed_chunks(
    streams: Streams, requests: int, chunk: int, cancelled: threading.Event | None
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield the number of the first request of each chunk, their arrival times, and their replicas."""
    chances, begin = streams.chances(requests), 0
    assert chances is not None
    for arrival_s in streams.arrivals_s(requests, chunk, np.empty(chunk)):
        check_cancelled(cancelled)
        replica = np.empty(arrival_s.size, np.uint16)
        routed.route_slice(streams.scenario, begin, chances(replica.size), replica)
        yield begin, arrival_s, replica
        begin += replica.size


class Sent(NamedTuple):
    """The requests of each replica: how many, how many of a chunk at most, and how many of the warm-up."""

    requests: np.ndarray
    most: np.ndarray
    skipped: np.ndarray
    from_s: float  # when the warm-up ends
    end_s: float  # when the last request of all comes

    @classmethod
    def of(
        cls, streams: Streams, requests: int, skip: int, chunk: int, cancelled: threading.Event | None
    ) -> "Sent":
        """Route all requests: a loop knows how many come, and when the last one of the run does."""
        replicas, from_s, end_s = streams.scenario.most_replicas, 0.0, 0.0
        count, most, skipped = np.zeros((3, replicas), np.int64)
        for begin, arrival_s, replica in routed_chunks(streams, requests, chunk, cancelled):
            own = bincount(replica, minlength=replicas)
            count, most, end_s = count + own, np.maximum(most, own), float(arrival_s[-1])
            skipped += bincount(replica[: max(skip - begin, 0)], minlength=replicas)
            if skip and begin <= skip < begin + replica.size:
                from_s = float(arrival_s[skip - begin])
        return cls(count, most, skipped, from_s, end_s)


def _summarise_apart(
    scenario: Scenario, requests: int, streams: Streams, skip: int, chunk: int,
    cancelled: threading.Event | None,
) -> tuple[Totals, Histogram]:  # fmt: skip
    """Return the sums of replicas at which nobody looks: chunk by chunk, in a window of each replica."""
    chunk *= min(scenario.most_replicas, CHUNKS)
    sent = Sent.of(streams, requests, skip, chunk, cancelled)
    in_turn = serves_in_turn(scenario.one, sent.end_s)
    histogram, edges_s = np.zeros(BINS, np.int64), np.array([sent.from_s, math.inf])
    levels, sizes, replicas = streams.priorities(), streams.sizes(), dict[int, _Replica]()
    for _, arrival_s, replica in routed_chunks(streams, requests, chunk, cancelled):
        level, size = (draw and draw(replica.size) for draw in (levels, sizes))
        for k, rows in rows_of(replica, sent.requests.size):
            if rows.size and k not in replicas:
                total = Total(scenario.one, edges_s, in_turn, histogram)
                of_all = int(sent.requests[k]), int(sent.most[k]), sent.end_s, total, in_turn, cancelled
                replicas[k] = _Replica(streams, k, *of_all)
            if rows.size:
                drawn = (None if column is None else column[rows] for column in (level, size))
                replicas[k].add(int(sent.skipped[k]), arrival_s[rows], *drawn)
    first, *others = (each.total for each in replicas.values())
    for each in others:
        first.take(each)
    return first.whole(requests - skip, max(first.last_s - sent.from_s, 0.0)).whole(), Histogram(histogram)


def _summarise_kept(
    scenario: Scenario, requests: int, streams: Streams, skip: int, cancelled: threading.Event | None
) -> tuple[Totals, Histogram]:
    """Return the sums of a run with replicas, which is kept whole meanwhile."""
    plan = draw(scenario, requests, streams.seed, streams.replication, cancelled)
    log = routed.run(plan, cancelled)
    check_time("finishes", max(log.last_s, float(log.arrival_s[-1])), "take fewer requests")
    from_s = float(log.arrival_s[skip]) if skip else 0.0
    edges_s, cuts = np.array([from_s, max(log.last_s, from_s)]), np.array([skip, requests])
    units = Units.of(scenario, log, log.batch_size)
    times = DeviceClock(scenario).of(Batches.of(log), units)
    histogram = np.zeros(BINS, np.int64)
    total = sums_of(log, scenario, edges_s, cuts, times, units, histogram=histogram)
    totals = total.whole(requests - skip, edges_s[1] - edges_s[0])
    add_scaling(totals, scenario, log, edges_s)
    return totals.whole(), Histogram(histogram)


def summarise(
    scenario: Scenario, requests: int, streams: Streams, skip: int, chunk: int = WINDOW,
    cancelled: threading.Event | None = None,
) -> tuple[Totals, Histogram]:  # fmt: skip
    """Run in windows of `chunk` new requests; return the sums and the latencies' histogram.

    The first `skip` requests are the warm-up. The answer does not depend on `chunk`.
    """
    check_durations(scenario)
    chunk = min(chunk, max(slice_of(scenario.servers), LEAST))  # adding up a window looks at the servers, too
    if scenario.most_replicas > 1 and not are_apart(scenario):
        return _summarise_kept(scenario, requests, streams, skip, cancelled)
    if scenario.most_replicas > 1:
        return _summarise_apart(scenario, requests, streams, skip, chunk, cancelled)
    in_turn = serves_in_turn(scenario)
    windows = _fast_windows if in_turn else _instant_windows
    if skip and isinstance(scenario.workload, ClosedLoop):  # a run alone says when its clients send
        for window in windows(scenario, skip + 1, streams, chunk, cancelled):
            if (row := window.row_of(skip)) < len(window.numbers):
                from_s = float(window.requests.arrival_s[row])
    else:
        from_s = begin_s(streams, requests, skip, chunk)
    histogram = np.zeros(BINS, np.int64)
    total, clock = Total(scenario, np.array([from_s, math.inf]), in_turn, histogram), DeviceClock(scenario)
    for window in windows(scenario, requests, streams, chunk, cancelled):
        _add(total, clock, window, skip)
    return total.whole(requests - skip, max(total.last_s - from_s, 0.0)).whole(), Histogram(histogram)
