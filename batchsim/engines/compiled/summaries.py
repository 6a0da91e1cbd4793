"""Runs of any length in little memory: the compiled loops over windows of requests, added up."""

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from batchsim._clock import check_time
from batchsim.engines.autoscaling import add_scaling
from batchsim.engines.compiled import columns, fold, levels, routed
from batchsim.engines.compiled.columns import NONE, Batches, Cold, Costs, Devices, Requests
from batchsim.engines.compiled.engine import (
    Instants,
    add_log,
    form_batches,
    is_fast,
    of_requests,
    places_of,
    slice_of,
    units_of_log,
)
from batchsim.engines.draws import NO_SIZES, Streams, check_durations, draw
from batchsim.engines.replicas import parts_of
from batchsim.engines.totals import Histogram, Totals
from batchsim.scenario import ClosedLoop, Scenario

LEAST = 1 << 12  # new requests in a window: the waiting ones are copied from each to the next


@dataclass
class _Window:
    """The outcome of some requests, and the batches that took them."""

    numbers: np.ndarray  # of the requests, in the whole run
    requests: Requests
    settled: int  # this many have come; those in the queue still wait
    batches: Batches
    count: int
    oldest_s: float  # when the first arrived of the requests that wait, or will come


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
    scenario: Scenario, requests: int, streams: Streams, chunk: int, cancelled: threading.Event | None = None
) -> Iterator[_Window]:
    """Run an open loop in which every request is served, under a threshold rule."""
    rule, noise, size_draws = scenario.rule, _Draws(streams.noise()), streams.sizes()
    free, devices, cold = np.zeros(scenario.servers), Devices.of(scenario), Cold.of(streams.cold_start)
    waiting_s, passed, sizes = NONE, 0, NO_SIZES
    for new_s in streams.arrivals_s(requests, chunk):
        base, passed = passed - waiting_s.size, passed + new_s.size
        arrival_s = np.concatenate([waiting_s, new_s])
        size = arrival_s.size
        batch_index, batches = np.full(size, -1, np.int64), Batches.allocate(size)
        costs = Costs.of(streams, noise.fill(size), devices, cold)
        if size_draws:
            sizes = np.append(sizes, size_draws(new_s.size))
        more, cut = passed < requests, scenario.cut(sizes)
        head, count = form_batches(arrival_s, cut, more, rule, costs, free, batch_index, batches, cancelled)
        noise.use(count)
        rows = of_requests(arrival_s, None, batch_index, np.zeros(size, np.uint8))._replace(size=sizes)
        oldest_s = float(arrival_s[min(head, size - 1)])
        yield _Window(np.arange(base, passed), rows, head, batches, count, oldest_s)
        waiting_s, sizes = arrival_s[head:], sizes[head:]


def _instant_windows(
    scenario: Scenario, requests: int, streams: Streams, chunk: int, cancelled: threading.Event | None = None
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
        horizon = columns.Horizon(size, total, stop, closed)
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
        yield _Window(numbers, rows._replace(size=sizes), sent, batches, count, float(oldest_s))
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
    for arrival_s in streams.arrivals_s(requests, chunk) if skip else ():
        if skip < passed + arrival_s.size:
            return float(arrival_s[skip - passed])
        passed += arrival_s.size
    return 0.0


def _summarise_replicas(
    scenario: Scenario, requests: int, streams: Streams, skip: int, cancelled: threading.Event | None
) -> tuple[Totals, Histogram]:
    """Return the sums of a run with replicas, which is kept whole meanwhile."""
    plan = draw(scenario, requests, streams.seed, streams.replication, cancelled)
    log = routed.run(plan, cancelled)
    check_time("finishes", max(log.last_s, float(log.arrival_s[-1])), "take fewer requests")
    from_s = float(log.arrival_s[skip]) if skip else 0.0
    edges_s = np.array([from_s, math.inf])
    total = fold.Fold(Totals, scenario.servers, edges_s, 1)
    for rows, _, part in parts_of(scenario, log):
        own = fold.Fold(Totals, scenario.servers, edges_s, 1, scenario.watts_at)
        costs, units = (
            Costs.of(plan, None, Devices.of(scenario), Cold.of(plan.cold_start)),
            units_of_log(part, scenario),
        )
        device_s, wait_s = np.empty((2, part.steps))
        batches, cuts = fold.batches_of(part), np.searchsorted(rows, [skip, requests])
        shapes = batches.size if units is None else units.place
        fold.on_devices(batches, part.steps, shapes, costs, device_s, wait_s)
        add_log(own, part, scenario.one, cuts, device_s, wait_s, units)
        total.add(own)
    add_scaling(total.totals, scenario, log, np.array([from_s, max(log.last_s, from_s)]))
    return total.whole(requests - skip), Histogram(total.histograms[0])


def summarise(
    scenario: Scenario, requests: int, streams: Streams, skip: int, chunk: int = 1 << 18,
    cancelled: threading.Event | None = None,
) -> tuple[Totals, Histogram]:  # fmt: skip
    """Run in windows of `chunk` new requests; return the sums and the latencies' histogram.

    The first `skip` requests are the warm-up. The answer does not depend on `chunk`.
    """
    check_durations(scenario)
    if scenario.most_replicas > 1:
        return _summarise_replicas(scenario, requests, streams, skip, cancelled)
    windows = _fast_windows if is_fast(scenario) else _instant_windows
    chunk = min(chunk, max(slice_of(scenario.servers), LEAST))  # adding up a window looks at the servers, too
    if skip and isinstance(scenario.workload, ClosedLoop):  # a run alone says when its clients send
        for window in windows(scenario, skip + 1, streams, chunk, cancelled):
            place = int(np.searchsorted(window.numbers[: window.settled], skip))
            if place < window.settled:
                from_s = float(window.requests.arrival_s[place])
    else:
        from_s = begin_s(streams, requests, skip, chunk)
    delay_s, limit = fold.delays_s(scenario.limits), scenario.rule.largest_size
    cut = scenario.cut_to
    costs = Costs.of(streams, None, Devices.of(scenario), Cold.of(streams.cold_start))
    at_once = not costs.devices.free_s.size and not costs.cold.ready_s.size
    total = fold.Fold(Totals, scenario.servers, np.array([from_s, math.inf]), 1, scenario.watts_at)
    for window in windows(scenario, requests, streams, chunk, cancelled):
        batches, count = window.batches, window.count
        units = fold.Units.of(window.requests, batches, count, costs.units, cut)
        device_s, wait_s = (batches.start_s, NONE) if at_once else np.empty((2, count))
        if not at_once:
            shapes = batches.size if units is None else units.place
            fold.on_devices(batches, count, shapes, costs, device_s, wait_s)
        cuts = np.array([np.searchsorted(window.numbers[: window.settled], skip), window.settled])
        total.add_batches(batches, count, device_s, units=units)
        idle_s, _ = total.note_spans(batches, count)
        total.add_requests(window.requests, batches, idle_s, cuts, wait_s, delay_s, limit)
        total.add_finished(batches.finish_s[:count], batches.size[:count])
        check_time("finishes", max(total.last_s, window.oldest_s), "take fewer requests")
        total.forget(window.oldest_s)
    return total.whole(requests - skip), Histogram(total.histograms[0])
