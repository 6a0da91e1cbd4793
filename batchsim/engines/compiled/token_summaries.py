"""Runs of token generation of any length in little memory: the compiled loop over windows, added up."""

import math
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from batchsim._clock import check_time
from batchsim.engines.autoscaling import calls_s, drained_s, rises, stays_s, within_s
from batchsim.engines.compiled import token_engine
from batchsim.engines.compiled.columns import HEAD, NONE, SENT, TAIL, Batches
from batchsim.engines.compiled.instants import ENDED, MORE, PAUSED
from batchsim.engines.compiled.summaries import Sent, begin_s, routed_chunks
from batchsim.engines.compiled.token_columns import (
    LATER,
    ROWS,
    SERVER,
    STACK,
    TRIGGER,
    Steps,
    TokenQueue,
    TokenRequests,
    TokenServers,
)
from batchsim.engines.compiled.token_routed import plans_by_replica, replicas_of
from batchsim.engines.compiled.token_totals import Answers, TokenTotal
from batchsim.engines.draws import Streams, check_durations
from batchsim.engines.log import Status, check_cancelled
from batchsim.engines.replicas import are_apart
from batchsim.engines.token_log import TokenHistograms, TokenPlan, TokenTotals, draw_tokens
from batchsim.scenario import ClosedLoop, Continuous, Scenario
from batchsim.scenario.rules.continuous import Chunks, check_lengths

WINDOW = 1 << 15  # requests that a window takes up at a time


class _Window(NamedTuple):
    """A call of the loop: the steps that started in it, and the requests that leave the window after it."""

    steps: Steps
    used: int  # rows of steps
    late: np.ndarray  # their rows as `token_log.LATE`
    requests: TokenRequests
    over: np.ndarray  # of these, the ones that leave
    numbers: np.ndarray  # of all requests, in the whole run


def _windows(
    scenario: Scenario, requests: int, streams: Any, chunk: int, cancelled: threading.Event | None
) -> Iterator[_Window]:
    """Run from call to call of the loop.

    A window begins with the requests that wait or run; behind them stand the next ones, as far as they are
    drawn. Requests are numbered within the window: before it takes up more, those that are over leave, and
    the others move to its front.
    """
    closed, lengths, think = isinstance(scenario.workload, ClosedLoop), streams.lengths(), streams.think()
    paths = streams.paths()
    loop = token_engine.Loop(scenario, requests, streams.noise())
    loop.end_s = streams.end_s
    cursor, servers = loop.cursor, loop.servers
    arrivals = iter(()) if closed else streams.arrivals_s(requests, chunk)
    nobody = np.empty(0, np.int64)
    rules = loop.batching, loop.prefixes
    rows = TokenRequests.before(*rules, NONE, NONE if closed else None, *[nobody] * 4)
    line, numbers, drawn = TokenQueue(nobody, nobody), nobody, 0
    state, over = MORE, np.empty(0, bool)
    while state != ENDED:
        check_cancelled(cancelled)
        if state == MORE:
            arrival_s = None if closed else next(arrivals)
            # An instant sends at most once a client: that much room must be left.
            most = chunk + 2 * loop.clients.client.size if arrival_s is None else arrival_s.size
            count = min(most, requests - drawn)
            think_s = None if think is None else think(count)
            kept = np.flatnonzero(~over)
            line = _moved(kept, line, servers, cursor, rows.prompt.size, kept.size + count)
            prompt, output, limit = lengths(count)
            more = TokenRequests.before(*rules, arrival_s, think_s, prompt, output, limit, paths(count))
            rows = rows.with_more(kept, more)
            numbers = np.append(numbers[kept], np.arange(drawn, drawn + count))
            drawn += count
            until_s = math.inf if closed or drawn == requests else float(rows.arrival_s[-1])
            total = rows.prompt.size + requests - drawn
        state, steps, used = loop.advance(rows, line, total, until_s)
        over = np.zeros(rows.prompt.size, bool)
        if state != PAUSED:
            came = rows.rows[: cursor[SENT]]
            over[: came.size] = (came.status != Status.SERVED) | (came.last_step >= 0)
        yield _Window(steps, used, steps.late[:, : cursor[LATER]], rows, np.flatnonzero(over), numbers)


def _moved(
    kept: np.ndarray, line: TokenQueue, servers: TokenServers, cursor: np.ndarray, size: int, new_size: int
) -> TokenQueue:
    """Give the requests that wait or run their new numbers; return the line, with room for the new size."""
    number = np.full(size, -1)
    number[kept] = np.arange(kept.size)
    waiting, stack = (
        number[line.arrived[cursor[HEAD] : cursor[TAIL]]],
        number[line.preempted[: cursor[STACK]]],
    )
    for running, count in zip(servers.running, servers.engines.count, strict=True):
        running[:count] = number[running[:count]]
    cursor[SENT] = np.searchsorted(kept, cursor[SENT])
    cursor[HEAD], cursor[TAIL] = 0, waiting.size
    moved = TokenQueue(np.empty(new_size, np.int64), np.empty(new_size, np.int64))
    moved.arrived[: waiting.size], moved.preempted[: stack.size] = waiting, stack
    return moved


def _add(total: TokenTotal, ended_s: np.ndarray, window: _Window, whole: bool, skip: int) -> None:
    """Add the steps and the requests of a window; the first `skip` requests are the warm-up."""
    steps, over = window.steps, window.over
    trigger = steps.numbers[TRIGGER, : window.used].astype(np.uint8)
    batches = Batches(steps.start_s, steps.finish_s, steps.numbers[ROWS], steps.numbers[SERVER], trigger)
    total.add_batches(batches, window.used, whole=whole)
    total.add_gaps_of_steps(ended_s, steps, window.used, window.late)
    warm = np.searchsorted(window.numbers[over], skip)
    total.add_answers(Answers.of(window.requests, over), np.array([warm, over.size], np.int64))


class _Drawn:
    """The requests of a replica, which are drawn already, as `Streams` has them."""

    def __init__(self, plan: TokenPlan) -> None:
        self.plan, self.noise, self.end_s = plan, plan.noise, plan.base.end_s

    def arrivals_s(self, requests: int, chunk: int) -> Iterator[np.ndarray]:
        assert self.plan.base.arrival_s is not None
        draw = _in_turn(self.plan.base.arrival_s)
        yield from (draw(chunk) for _ in range(0, requests, chunk))

    def lengths(self) -> Callable[[int], np.ndarray]:
        return _in_turn(np.array([self.plan.prompts, self.plan.outputs, self.plan.limits]))

    def paths(self) -> Callable[[int], np.ndarray]:
        return _in_turn(self.plan.paths)

    def think(self) -> None:
        return None


class _Apart:
    """The requests of a replica at which nobody looks: drawn with those of all, as `Streams` has them."""

    def __init__(
        self, streams: Streams, requests: int, k: int, end_s: float, cancelled: threading.Event | None
    ) -> None:
        self.of_all, self.k, self.cancelled = (streams, requests), k, cancelled
        self.noise, self.end_s = partial(streams.noise, k), end_s

    def arrivals_s(self, _: int, chunk: int) -> Iterator[np.ndarray]:
        streams, requests = self.of_all
        lengths, paths = streams.lengths(), streams.paths()
        for _, arrival_s, replica in routed_chunks(streams, requests, chunk, self.cancelled):
            mine = replica == self.k
            drawn, path = lengths(mine.size), paths(mine.size)
            self.drawn, self.path = [column[mine] for column in drawn], path[mine]
            if mine.any():
                yield arrival_s[mine]

    def lengths(self) -> Callable[[int], list[np.ndarray]]:
        return lambda _: self.drawn

    def paths(self) -> Callable[[int], np.ndarray]:
        return lambda _: self.path

    def think(self) -> None:
        return None


def _in_turn(columns: np.ndarray) -> Callable[[int], np.ndarray]:
    """Return a function that returns so many next rows of some columns."""
    passed = 0

    def draw(count: int) -> np.ndarray:
        nonlocal passed
        passed += count
        return columns[..., passed - count : passed]

    return draw


def _summed(
    scenario: Scenario, requests: int, streams: Any, skip: int, from_s: float, chunk: int,
    cancelled: threading.Event | None, again_s: np.ndarray = NONE,
) -> tuple[TokenTotal, np.ndarray]:  # fmt: skip
    """Return the sums of one queue from some time on, without its first `skip` requests.

    And when the last of the steps ended that started before each of some times.
    """
    if getattr(scenario.rule, "reuses", False):  # the memory knows requests by their numbers: one window
        chunk = requests
    whole = not isinstance(scenario.rule, Continuous)
    total = TokenTotal(np.array([from_s, math.inf]), 5, scenario.watts_at)
    ended_s, before_s = np.zeros(again_s.size), np.zeros(scenario.servers)
    for window in _windows(scenario, requests, streams, chunk, cancelled):
        _add(total, before_s, window, whole, skip)
        check_time("finishes", total.last_s, "take fewer requests")
        if again_s.size:
            times_s = window.steps.start_s[: window.used], window.steps.finish_s[: window.used]
            ended_s = np.maximum(ended_s, drained_s(again_s, *times_s))
    return total, ended_s


def _fold_replicas(
    scenario: Scenario, requests: int, streams: Streams, skip: int, chunk: int,
    cancelled: threading.Event | None,
) -> TokenTotal:  # fmt: skip
    """Return the sums of one replica after the other, added up; the requests of all are drawn before."""
    plan = draw_tokens(scenario, requests, streams.seed, streams.replication, cancelled)
    assert plan.base.arrival_s is not None
    from_s = float(plan.base.arrival_s[skip]) if skip else 0.0
    total = TokenTotal(np.array([from_s, math.inf]), 5)
    replica, scaling = replicas_of(plan, cancelled)
    stays = []
    for k, (rows, part) in enumerate(plans_by_replica(plan, replica)):
        calls = np.empty((3, 0)) if scaling is None else calls_s(scaling, k)
        ended_s = np.zeros(calls.shape[1])
        if rows.size:
            one = scenario.one, rows.size, _Drawn(part), int(np.searchsorted(rows, skip))
            own, ended_s = _summed(*one, from_s, chunk, cancelled, calls[2])
            total.add(own)
        stays.append((calls, ended_s))
    edges_s = np.array([from_s, max(total.last_s, from_s)])
    end_s = max(total.last_s, float(plan.base.arrival_s[-1]))
    total.totals.replica_s[:] = sum(within_s(stays_s(*each, end_s), edges_s) for each in stays)
    total.totals.cycles[:] = 0 if scaling is None else rises(scaling, edges_s)
    return total


def _fold_apart(
    scenario: Scenario, requests: int, streams: Streams, skip: int, chunk: int,
    cancelled: threading.Event | None,
) -> TokenTotal:  # fmt: skip
    """Return the sums of replicas at which nobody looks, one after the other: each draws those of all."""
    sent = Sent.of(streams, requests, skip, chunk, cancelled)
    total = TokenTotal(np.array([sent.from_s, math.inf]), 5)
    for k in np.flatnonzero(sent.requests):
        own = _Apart(streams, requests, int(k), sent.end_s, cancelled)
        of_one = int(sent.requests[k]), own, int(sent.skipped[k]), sent.from_s
        total.add(_summed(scenario.one, *of_one, chunk, cancelled)[0])
    return total


def summarise(
    scenario: Scenario, requests: int, streams: Streams, skip: int, chunk: int = WINDOW,
    cancelled: threading.Event | None = None,
) -> tuple[TokenTotals, TokenHistograms]:  # fmt: skip
    """Run in windows of `chunk` new requests; return the sums, and their histograms.

    The first `skip` requests are the warm-up. The answer does not depend on `chunk`, but for rounding.
    """

    def lengths() -> Chunks:
        draw = streams.lengths()
        for begin in range(0, requests, chunk):
            check_cancelled(cancelled)
            yield draw(min(chunk, requests - begin))

    if scenario.most_replicas > 1 and not are_apart(scenario):
        total = _fold_replicas(scenario, requests, streams, skip, chunk, cancelled)
        return total.whole(requests - skip), TokenHistograms(*total.histograms)
    check_durations(scenario)
    check_lengths(scenario, lengths)
    if scenario.most_replicas > 1:
        total = _fold_apart(scenario, requests, streams, skip, chunk, cancelled)
        return total.whole(requests - skip), TokenHistograms(*total.histograms)
    if skip and isinstance(scenario.workload, ClosedLoop):  # a run alone says when its clients send
        for window in _windows(scenario, requests, streams, chunk, cancelled):
            first = window.over[window.numbers[window.over] == skip]
            if first.size:
                from_s = float(window.requests.arrival_s[first[0]])
                break
    else:
        from_s = begin_s(streams, requests, skip, chunk)
    total, _ = _summed(scenario, requests, streams, skip, from_s, chunk, cancelled)
    return total.whole(requests - skip), TokenHistograms(*total.histograms)
