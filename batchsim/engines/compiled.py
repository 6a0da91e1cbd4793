"""The compiled engine: the reference engine's semantics, by Numba's loops.

The loops are called in slices, so that Ctrl-C is heard between two of them, and hold no Python
lock, so that threads run side by side. `run` returns what the reference returns, bit for bit;
`summarise` keeps only sums, in memory that does not grow with the number of requests.
"""

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from batchsim.engines import kernels
from batchsim.engines.histogram import BINS, Histogram
from batchsim.engines.kernels_jit import announcing as announcing  # how others are told of it
from batchsim.engines.plan import Log, Plan, Streams, Totals, heed, with_triggers
from batchsim.scenario import ClosedLoop, Scenario

SLICE = 1_000_000  # requests a call: some tens of milliseconds
NONE = np.empty(0)


class Batches:
    """Columns with a row a batch: there are at most as many as requests that can be taken."""

    def __init__(self, requests: int) -> None:
        self.start_s, self.finish_s = np.empty(requests), np.empty(requests)
        self.size, self.server = np.empty(requests, np.int64), np.empty(requests, np.int64)

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        return self.start_s, self.finish_s, self.size, self.server


def _rule(scenario: Scenario) -> tuple[float, int, int]:
    rule = scenario.rule
    return rule.max_wait_ms / 1000, rule.enough, rule.max_batch_size


def limit(scenario: Scenario) -> int:
    """Return the queue limit: without one, more than ever come."""
    return np.iinfo(np.int64).max if scenario.queue_limit is None else scenario.queue_limit


def serves_all(scenario: Scenario) -> bool:
    """Return whether this is an open loop in which nobody is rejected and nobody leaves."""
    closed = isinstance(scenario.workload, ClosedLoop)
    return not closed and scenario.queue_limit is None and scenario.timeout_ms is None


def or_none(column: np.ndarray | None) -> np.ndarray:
    """Return a column, an empty one where there is none: to a loop both are of one type."""
    return NONE if column is None else column


class Instants:
    """What `pass_instants` carries from one call to the next, besides the window."""

    def __init__(self, scenario: Scenario, window: int) -> None:
        workload = scenario.workload
        self.closed = isinstance(workload, ClosedLoop)
        self.clients = workload.clients if isinstance(workload, ClosedLoop) else 0
        # Every client sends at time 0: a heap already, in their order.
        self.due_s, self.due_client = np.zeros(self.clients), np.arange(self.clients)
        self.sending = np.zeros(self.clients, np.int64)
        self.state = np.array([0, 0, 0, 0, self.clients])
        self.busy_until_s = np.full(scenario.servers, math.inf)
        self.queue = np.empty(window, np.int64)
        self.client_of = np.empty(window if self.closed else 0, np.int64)


def run(plan: Plan, halt: threading.Event | None = None) -> Log:
    """Run a plan and return what happened: the very arrays that the reference engine returns.

    Once `halt` is set, the run is given up at its next slice.
    """
    scenario, requests = plan.scenario, plan.requests
    # Writable, as a trace's are not: else Numba compiles everything once more for read-only ones.
    arrival_s = np.empty(requests) if plan.arrival_s is None else np.require(plan.arrival_s, requirements="W")
    batch_index, status = np.empty(requests, np.int64), np.zeros(requests, np.uint8)
    batches = Batches(requests)
    costs = plan.service_s, or_none(plan.noise), or_none(plan.slowdown)
    if serves_all(scenario):
        state, free_s = np.zeros(2, np.int64), np.zeros(scenario.servers)
        while state[0] < requests:
            heed(halt)
            kernels.form_batches(
                arrival_s, False, *_rule(scenario), *costs, free_s, state, int(state[0]) + SLICE,
                batch_index, *batches.columns,
            )  # fmt: skip
        count = int(state[1])
    else:
        at = Instants(scenario, requests)
        wait_s, enough, largest = _rule(scenario)
        over = False
        while not over:
            heed(halt)
            over = kernels.pass_instants(
                arrival_s, or_none(plan.think_s), at.closed, requests, requests, wait_s,
                scenario.timeout_s, limit(scenario), enough, largest, *costs, at.queue, at.client_of,
                at.due_s, at.due_client, at.sending, at.busy_until_s, at.state,
                int(at.state[0]) + SLICE, batch_index, status, *batches.columns,
            )  # fmt: skip
        count = int(at.state[3])
        assert at.state[0] == requests, "a time was not finite"
    start_s, finish_s, size, server = (column[:count].copy() for column in batches.columns)
    log = Log(arrival_s, batch_index, status, start_s, finish_s, size, server, np.empty(0, np.uint8))
    return with_triggers(log, scenario.rule)


def sums_of_parts(log: Log, idle: tuple[np.ndarray, ...], cuts: np.ndarray) -> np.ndarray:
    """Return the seconds of latency, forming, queueing and computing of parts of the requests, in sum.

    In one pass over the columns, of whichever engine; shape (parts, 4). `idle` is how long a server
    had been idle at each batch's start; and the corners of that line: times, values, slopes.
    """
    sums = np.zeros((cuts.size - 1, 4))
    columns = (log.arrival_s, log.batch_index, log.batch_start_s, log.batch_finish_s)
    kernels.sum_parts(*(np.require(column, requirements="W") for column in columns), *idle, cuts, sums)
    return sums


# Summaries: the same loops over windows of the requests, and a third that adds up.


@dataclass
class _Window:
    """What has become of some requests: those that were settled, and the batches that took them."""

    numbers: np.ndarray  # of the requests, in the whole run
    arrival_s: np.ndarray
    settled: int  # so many have come; those in the queue still wait
    batch_index: np.ndarray
    status: np.ndarray
    batches: Batches
    count: int
    oldest_s: float  # when the first arrived of those who wait, or will come


class _Draws:
    """A stream of random numbers, as many ahead as a window may need."""

    def __init__(self, draw: Callable[[int], np.ndarray] | None) -> None:
        self.draw, self.ahead = draw, NONE

    def fill(self, count: int) -> np.ndarray:
        if self.draw is not None and count > self.ahead.size:
            self.ahead = np.append(self.ahead, self.draw(count - self.ahead.size))
        return self.ahead

    def use(self, count: int) -> None:
        self.ahead = self.ahead[count:].copy()


def _served_windows(scenario: Scenario, requests: int, streams: Streams, chunk: int) -> Iterator[_Window]:
    """Run an open loop in which every request is served."""
    table, noise, slowdown = streams.service_s, _Draws(streams.noise()), or_none(streams.slowdown)
    free_s, state = np.zeros(scenario.servers), np.zeros(2, np.int64)
    waiting_s, passed = NONE, 0
    for new_s in streams.arrivals_s(requests, chunk):
        base, passed = passed - waiting_s.size, passed + new_s.size
        arrival_s = np.concatenate([waiting_s, new_s])
        size = arrival_s.size
        batch_index, batches = np.full(size, -1, np.int64), Batches(size)
        state[:] = 0
        kernels.form_batches(
            arrival_s, passed < requests, *_rule(scenario), table, noise.fill(size), slowdown, free_s,
            state, size, batch_index, *batches.columns,
        )  # fmt: skip
        head, count = (int(value) for value in state)
        noise.use(count)
        yield _Window(
            numbers=np.arange(base, passed),
            arrival_s=arrival_s,
            settled=head,
            batch_index=batch_index,
            status=np.zeros(size, np.uint8),
            batches=batches,
            count=count,
            oldest_s=float(arrival_s[min(head, size - 1)]),
        )
        waiting_s = arrival_s[head:]


def _instant_windows(scenario: Scenario, requests: int, streams: Streams, chunk: int) -> Iterator[_Window]:
    """Run a closed loop, or an open one in which requests may be rejected or leave."""
    table, slowdown = streams.service_s, or_none(streams.slowdown)
    wait_s, enough, largest = _rule(scenario)
    noise, think = _Draws(streams.noise()), _Draws(streams.think())
    at = Instants(scenario, 0)
    chunks = iter(()) if at.closed else streams.arrivals_s(requests, chunk)
    # Those who wait stand in front of the window, then those who are known to come.
    numbers, arrival_s, think_s, client_of = np.empty(0, np.int64), NONE, NONE, np.empty(0, np.int64)
    waiting, passed, over = 0, 0, False
    while not over:
        if at.closed:
            size = waiting + chunk + 2 * at.clients
            arrival_s = np.append(arrival_s, np.empty(size - waiting))
            think_s = np.append(think_s, think.fill(size - waiting)[: size - waiting])
            at.client_of = np.append(client_of, np.empty(size - waiting, np.int64))
            numbers = np.append(numbers, np.arange(passed, passed + size - waiting))
            total = waiting + requests - passed
            # An instant sends at most once a client: so much room must be left.
            known, stop = size, total + 1 if total < size - at.clients else size - at.clients
        else:
            new_s = next(chunks)
            arrival_s = np.append(arrival_s, new_s)
            numbers = np.append(numbers, np.arange(passed, passed + new_s.size))
            passed += new_s.size
            size = known = arrival_s.size
            total = known + (passed < requests)  # more than is known
            stop = total + 1
        at.queue = np.append(np.arange(waiting), np.empty(size - waiting, np.int64))
        at.state[:4] = waiting, 0, waiting, 0
        batch_index, status = np.full(size, -1, np.int64), np.zeros(size, np.uint8)
        batches = Batches(size)
        over = kernels.pass_instants(
            arrival_s, think_s, at.closed, known, total, wait_s, scenario.timeout_s, limit(scenario),
            enough, largest, table, noise.fill(size), slowdown, at.queue, at.client_of, at.due_s,
            at.due_client, at.sending, at.busy_until_s, at.state, stop, batch_index, status, *batches.columns,
        )  # fmt: skip
        sent, head, tail, count = (int(value) for value in at.state[:4])
        noise.use(count)
        if at.closed:
            think.use(sent - waiting)
            passed += sent - waiting
        left = at.queue[head:tail]
        oldest_s = arrival_s[left[0]] if left.size else arrival_s[max(sent - 1, 0)]
        yield _Window(numbers, arrival_s, sent, batch_index, status, batches, count, float(oldest_s))
        kept = left if at.closed else np.append(left, np.arange(sent, known))
        numbers, arrival_s, waiting = numbers[kept], arrival_s[kept], left.size
        if at.closed:
            think_s, client_of = think_s[kept], at.client_of[kept]


class _Sums:
    """What `account` adds up, window after window."""

    def __init__(self, scenario: Scenario, skip: int, begin_s: float) -> None:
        self.scenario, self.skip, self.begin_s = scenario, skip, begin_s
        self.sums, self.counts = np.zeros(kernels.SUMS), np.zeros(kernels.COUNTS, np.int64)
        self.histogram = np.zeros(BINS, np.int64)
        self.until_s = np.zeros(scenario.servers)
        self.spans = np.zeros((0, 3))

    def add(self, window: _Window) -> None:
        wait_s, enough, largest = _rule(self.scenario)
        spans = np.concatenate([self.spans, np.zeros((window.count, 3))])
        count = kernels.account(
            window.arrival_s, window.settled,
            int(np.searchsorted(window.numbers[: window.settled], self.skip)), self.begin_s,
            wait_s, enough, largest, not math.isinf(wait_s),
            window.batch_index, window.status, window.count, *window.batches.columns,
            self.until_s, spans, len(self.spans), self.sums, self.counts, self.histogram,
        )  # fmt: skip
        # Forget the spans that ended before anybody came who still waits; the last may go on.
        first = min(int(np.searchsorted(spans[:count, 1], window.oldest_s)), max(count - 1, 0))
        self.spans = spans[first:count].copy()

    def totals(self, requests: int) -> Totals:
        sums, counts = self.sums, self.counts
        return Totals(
            requests=requests,
            statuses=counts[kernels.STATUSES : kernels.TRIGGERS],
            parts_s=sums[: kernels.BUSY],
            finished=int(counts[kernels.FINISHED]),
            busy_s=float(sums[kernels.BUSY]),
            window_s=float(max(sums[kernels.LAST_FINISH] - self.begin_s, 0.0)),
            batches=int(counts[kernels.BATCHES]),
            items=int(counts[kernels.ITEMS]),
            triggers=counts[kernels.TRIGGERS :],
        )


def summarise(
    scenario: Scenario,
    requests: int,
    streams: Streams,
    skip: int,
    chunk: int = 1 << 18,
    halt: threading.Event | None = None,
) -> tuple[Totals, Histogram]:
    """Run in windows of `chunk` new requests; return the sums and the latencies' histogram.

    The first `skip` requests are the warm-up. The answer does not depend on `chunk`.
    """
    windows = _served_windows if serves_all(scenario) else _instant_windows
    begin_s = 0.0
    if skip:  # the summary begins when request number `skip` comes: find out when that is
        for window in windows(scenario, skip + 1, streams, chunk):
            heed(halt)
            place = int(np.searchsorted(window.numbers[: window.settled], skip))
            if place < window.settled:
                begin_s = float(window.arrival_s[place])
    sums = _Sums(scenario, skip, begin_s)
    for window in windows(scenario, requests, streams, chunk):
        heed(halt)
        sums.add(window)
    return sums.totals(requests - skip), Histogram(sums.histogram)
