"""Runs of token generation of any length in little memory: the compiled loop over windows, added up."""

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchsim._clock import check_time
from batchsim.engines.autoscaling import calls_s, drained_s, rises, stays_s, within_s
from batchsim.engines.compiled import fold, token_engine
from batchsim.engines.compiled.columns import (
    HEAD,
    LATER,
    NONE,
    SENT,
    STACK,
    TAIL,
    Batches,
    Steps,
    TokenQueue,
    TokenRequests,
    TokenServers,
)
from batchsim.engines.compiled.instants import ENDED, MORE
from batchsim.engines.compiled.summaries import begin_s
from batchsim.engines.compiled.token_routed import parts_of, replicas_of
from batchsim.engines.draws import Streams, check_durations
from batchsim.engines.log import Status, check_cancelled
from batchsim.engines.token_log import TokenPlan, draw_tokens
from batchsim.engines.totals import TokenHistograms, TokenTotals
from batchsim.scenario import ClosedLoop, Continuous, Scenario
from batchsim.scenario.rules.continuous import Chunks, check_lengths

WINDOW = 1 << 15  # requests that a window takes up at a time


@dataclass
class _Known:
    """More columns of the requests of a window; NaN until a step determines the value."""

    number: np.ndarray  # in the whole run
    start_s: np.ndarray
    forming_s: np.ndarray
    token_s: np.ndarray
    added: np.ndarray  # whether it is in the sums

    @classmethod
    def of(cls, numbers: np.ndarray) -> "_Known":
        start_s, forming_s, token_s = (np.full(numbers.size, math.nan) for _ in range(3))
        return cls(numbers, start_s, forming_s, token_s, np.zeros(numbers.size, bool))

    def with_more(self, kept: np.ndarray, more: "_Known") -> "_Known":
        pairs = zip(vars(self).values(), vars(more).values(), strict=True)
        return _Known(*(np.append(one[kept], other) for one, other in pairs))


@dataclass
class _Window:
    """Some requests after a call of the loop, and the steps that started in it."""

    requests: TokenRequests
    known: _Known
    sent: int  # this many have come
    steps: Steps
    count: int  # of steps
    late: np.ndarray  # their rows as `token_log.LATE`
    before: dict[int, float]  # when the steps end that were under way before, by their numbers

    def ends_s(self, steps: np.ndarray) -> np.ndarray:
        """Return when steps end: of this window, or under way before it."""
        here = steps >= self.steps.first
        ends_s = self.steps.finish_s[np.where(here, steps - self.steps.first, 0)]
        ends_s[~here] = [self.before[step] for step in steps[~here].tolist()]
        return ends_s


def _windows(
    scenario: Scenario, requests: int, streams: Any, chunk: int, cancelled: threading.Event | None
) -> Iterator[_Window]:
    """Run from call to call of the loop.

    A window begins with the requests that wait or run; behind them stand the next ones, as far as they are
    drawn. Requests are numbered within the window: when it takes up more, the unfinished ones move to its
    front.
    """
    closed, lengths, think = isinstance(scenario.workload, ClosedLoop), streams.lengths(), streams.think()
    paths = streams.paths()
    loop = token_engine.Loop(scenario, requests, streams.noise())
    loop.end_s = streams.end_s
    cursor, servers = loop.cursor, loop.servers
    arrivals = iter(()) if closed else streams.arrivals_s(requests, chunk)
    nobody = np.empty(0, np.int64)
    rows = TokenRequests.before(NONE, NONE if closed else None, *[nobody] * 5)
    line, known, drawn = TokenQueue(nobody, nobody), _Known.of(nobody), 0
    state = MORE
    while state != ENDED:
        check_cancelled(cancelled)
        if state == MORE:
            arrival_s = None if closed else next(arrivals)
            # An instant sends at most once a client: that much room must be left.
            most = chunk + 2 * loop.clients.client.size if arrival_s is None else arrival_s.size
            count = min(most, requests - drawn)
            think_s = None if think is None else think(count)
            kept = _unsettled(rows, int(cursor[SENT]))
            line = _moved(kept, line, servers, cursor, rows.prompt.size, kept.size + count)
            drawn_lengths, path = lengths(count), paths(count)
            shared = loop.prefixes.counts(path, drawn_lengths[0], loop.batching.block_size)
            rows = rows.with_more(
                kept, TokenRequests.before(arrival_s, think_s, *drawn_lengths, path, shared)
            )
            known = known.with_more(kept, _Known.of(np.arange(drawn, drawn + count)))
            drawn += count
            until_s = math.inf if closed or drawn == requests else float(rows.arrival_s[-1])
            total = rows.prompt.size + requests - drawn
        under_way = np.isfinite(servers.busy_until_s)
        before = dict(
            zip(servers.step[under_way].tolist(), servers.busy_until_s[under_way].tolist(), strict=True)
        )
        state, steps, used = loop.advance(rows, line, total, until_s)
        late = steps.late[:, : cursor[LATER]]
        yield _Window(rows, known, int(cursor[SENT]), steps, used, late, before)


def _settled(requests: TokenRequests) -> np.ndarray:
    return (requests.status != Status.SERVED) | (requests.last_step >= 0)


def _unsettled(requests: TokenRequests, sent: int) -> np.ndarray:
    """Return the rows of the requests that wait, run or have not arrived."""
    kept = ~_settled(requests)
    kept[sent:] = True
    return np.flatnonzero(kept)


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
    for running, count in zip(servers.running, servers.count, strict=True):
        running[:count] = number[running[:count]]
    cursor[SENT] = np.searchsorted(kept, cursor[SENT])
    cursor[HEAD], cursor[TAIL] = 0, waiting.size
    moved = TokenQueue(np.empty(new_size, np.int64), np.empty(new_size, np.int64))
    moved.arrived[: waiting.size], moved.preempted[: stack.size] = waiting, stack
    return moved


def _add(total: fold.Fold, window: _Window, whole: bool, skip: int) -> None:
    """Add what a call of the loop has settled; the first `skip` requests are the warm-up."""
    rows, known, steps, sent = window.requests, window.known, window.steps, window.sent
    batches = Batches(steps.start_s, steps.finish_s, steps.rows, steps.server, steps.trigger)
    total.add_batches(batches, window.count, whole=whole)
    total.add_gaps_of_steps(steps, window.count, window.late)
    _, busy_s = total.note_spans(batches, window.count)
    # Who was served for the first time, or has a first token, in these steps.
    started = np.flatnonzero(rows.first_step[:sent] >= steps.first)
    row = rows.first_step[started] - steps.first
    known.start_s[started] = start_s = steps.start_s[row]
    known.forming_s[started] = total.forming_s(rows.arrival_s[started], start_s, busy_s[row])
    token = np.flatnonzero((rows.token_step[:sent] >= 0) & np.isnan(known.token_s[:sent]))
    known.token_s[token] = window.ends_s(rows.token_step[token])
    # Who is over.
    settled = _settled(rows)
    over = np.flatnonzero((settled & ~known.added)[:sent])
    known.added[over] = True
    served = over[rows.last_step[over] >= 0]
    finish_s = np.full(rows.arrival_s.size, math.nan)
    finish_s[served] = window.ends_s(rows.last_step[served])
    total.add_finished(finish_s[served], np.ones_like(served))
    total.add_finished(finish_s[served], rows.output[served], "output_tokens")
    mine = over[known.number[over] >= skip]
    columns = (
        rows.arrival_s, known.start_s, known.token_s, finish_s, known.forming_s,
        rows.preempted_before_first_s, rows.preempted_after_first_s, rows.output, rows.status,
        rows.preemptions, rows.stall_s,
    )  # fmt: skip
    total.add_answers(fold.Answers(*(column[mine] for column in columns)), np.array([0, mine.size]))
    waits = ~settled[:sent] & (rows.first_step[:sent] < 0)
    latest_s = steps.start_s[window.count - 1] if window.count else 0.0
    total.forget(rows.arrival_s[:sent][waits].min(initial=latest_s))


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


def _in_turn(columns: np.ndarray) -> Callable[[int], np.ndarray]:
    """Return a function that returns so many next rows of some columns."""
    passed = 0

    def draw(count: int) -> np.ndarray:
        nonlocal passed
        passed += count
        return columns[..., passed - count : passed]

    return draw


def _fold(
    scenario: Scenario, requests: int, streams: Any, skip: int, from_s: float, chunk: int,
    cancelled: threading.Event | None, again_s: np.ndarray = NONE,
) -> tuple[fold.Fold, np.ndarray]:  # fmt: skip
    """Return the sums of one queue from some time on, without its first `skip` requests.

    And when the last of the steps ended that started before each of some times.
    """
    if getattr(scenario.rule, "reuses", False):  # the memory knows requests by their numbers: one window
        chunk = requests
    whole = not isinstance(scenario.rule, Continuous)
    total = fold.Fold(TokenTotals, scenario.servers, np.array([from_s, math.inf]), 5, scenario.watts_at)
    ended_s = np.zeros(again_s.size)
    for window in _windows(scenario, requests, streams, chunk, cancelled):
        _add(total, window, whole, skip)
        check_time("finishes", total.last_s, "take fewer requests")
        if again_s.size:
            times_s = window.steps.start_s[: window.count], window.steps.finish_s[: window.count]
            ended_s = np.maximum(ended_s, drained_s(again_s, *times_s))
    return total, ended_s


def _fold_replicas(
    scenario: Scenario, requests: int, streams: Streams, skip: int, chunk: int,
    cancelled: threading.Event | None,
) -> fold.Fold:  # fmt: skip
    """Return the sums of one replica after the other, added up; the requests of all are drawn before."""
    plan = draw_tokens(scenario, requests, streams.seed, streams.replication, cancelled)
    assert plan.base.arrival_s is not None
    from_s = float(plan.base.arrival_s[skip]) if skip else 0.0
    total = fold.Fold(TokenTotals, scenario.servers, np.array([from_s, math.inf]), 5)
    replica, scaling = replicas_of(plan, cancelled)
    stays = []
    for k, (rows, part) in enumerate(parts_of(plan, replica)):
        calls = np.empty((3, 0)) if scaling is None else calls_s(scaling, k)
        ended_s = np.zeros(calls.shape[1])
        if rows.size:
            one = scenario.one, rows.size, _Drawn(part), int(np.searchsorted(rows, skip))
            own, ended_s = _fold(*one, from_s, chunk, cancelled, calls[2])
            total.add(own)
        stays.append((calls, ended_s))
    edges_s = np.array([from_s, max(total.last_s, from_s)])
    end_s = max(total.last_s, float(plan.base.arrival_s[-1]))
    total.totals.replica_s[:] = sum(within_s(stays_s(*each, end_s), edges_s) for each in stays)
    total.totals.cycles[:] = 0 if scaling is None else rises(scaling, edges_s)
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

    if scenario.most_replicas > 1:
        total = _fold_replicas(scenario, requests, streams, skip, chunk, cancelled)
        return total.whole(requests - skip), TokenHistograms(*total.histograms)
    check_durations(scenario)
    check_lengths(scenario, lengths)
    if skip and isinstance(scenario.workload, ClosedLoop):  # a run alone says when its clients send
        for window in _windows(scenario, requests, streams, chunk, cancelled):
            if (came := window.known.number[: window.sent] == skip).any():
                from_s = float(window.requests.arrival_s[: window.sent][came][0])
                break
    else:
        from_s = begin_s(streams, requests, skip, chunk)
    total, _ = _fold(scenario, requests, streams, skip, from_s, chunk, cancelled)
    return total.whole(requests - skip), TokenHistograms(*total.histograms)
