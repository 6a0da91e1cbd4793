"""Runs of token generation of any length in little memory: the compiled loop over windows, added up."""

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from batchsim._clock import check_time
from batchsim.engines.compiled import fold, token_engine
from batchsim.engines.compiled.columns import (
    HEAD,
    NONE,
    SENT,
    STACK,
    TAIL,
    Steps,
    TokenQueue,
    TokenRequests,
    TokenServers,
)
from batchsim.engines.compiled.instants import ENDED, MORE
from batchsim.engines.draws import Streams, check_durations
from batchsim.engines.log import Status, check_cancelled
from batchsim.engines.token_log import NO_TRIGGER
from batchsim.engines.totals import BINS, TokenHistograms, TokenTotals, binned
from batchsim.scenario import ClosedLoop, Continuous, Scenario
from batchsim.scenario.rules import Trigger
from batchsim.scenario.rules.continuous import Chunks, check_lengths

WINDOW = 1 << 15  # requests that a window takes up at a time


@dataclass
class _Known:
    """What is noted of each request of a window beside the loop's columns; NaN until it is known."""

    number: np.ndarray  # in the whole run
    start_s: np.ndarray
    queueing_s: np.ndarray
    token_s: np.ndarray
    added: np.ndarray  # whether it is in the sums

    @classmethod
    def of(cls, numbers: np.ndarray) -> "_Known":
        start_s, queueing_s, token_s = (np.full(numbers.size, math.nan) for _ in range(3))
        return cls(numbers, start_s, queueing_s, token_s, np.zeros(numbers.size, bool))

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
    before: dict[int, float]  # when the steps end that were under way before, by their numbers

    def ends_s(self, steps: np.ndarray) -> np.ndarray:
        """Return when steps end: of this window, or under way before it."""
        here = steps >= self.steps.first
        ends_s = self.steps.finish_s[np.where(here, steps - self.steps.first, 0)]
        ends_s[~here] = [self.before[step] for step in steps[~here].tolist()]
        return ends_s


def _windows(
    scenario: Scenario, requests: int, streams: Streams, chunk: int, cancelled: threading.Event | None
) -> Iterator[_Window]:
    """Run from call to call of the loop.

    A window begins with the requests that wait or run; behind them stand the next ones, as far as they are
    drawn. Numbers of requests are those of the window: where it takes up more, all that is kept moves to its
    front.
    """
    closed, lengths, think = isinstance(scenario.workload, ClosedLoop), streams.lengths(), streams.think()
    loop = token_engine.Loop(scenario, requests, streams.noise())
    cursor, servers = loop.cursor, loop.servers
    arrivals = iter(()) if closed else streams.arrivals_s(requests, chunk)
    nobody = np.empty(0, np.int64)
    rows = TokenRequests.before(NONE, NONE if closed else None, nobody, nobody, nobody)
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
            rows = rows.with_more(kept, TokenRequests.before(arrival_s, think_s, *lengths(count)))
            known = known.with_more(kept, _Known.of(np.arange(drawn, drawn + count)))
            drawn += count
            until_s = math.inf if closed or drawn == requests else float(rows.arrival_s[-1])
            total = rows.prompt.size + requests - drawn
        under_way = np.isfinite(servers.busy_until_s)
        before = dict(
            zip(servers.step[under_way].tolist(), servers.busy_until_s[under_way].tolist(), strict=True)
        )
        state, steps, used = loop.advance(rows, line, total, until_s)
        yield _Window(rows, known, int(cursor[SENT]), steps, used, before)


def _settled(requests: TokenRequests) -> np.ndarray:
    return (requests.status != Status.SERVED) | (requests.last_step >= 0)


def _unsettled(requests: TokenRequests, sent: int) -> np.ndarray:
    """Return the rows of those that wait or run, and of those that have not come."""
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


class _Account:
    """The sums so far, window after window; the first `skip` requests are the warm-up, until `begin_s`."""

    def __init__(self, scenario: Scenario, skip: int, begin_s: float) -> None:
        self.whole = not isinstance(scenario.rule, Continuous)
        self.skip, self.begin_s, self.end_s = skip, begin_s, 0.0
        self.until_s, self.spans, self.all_busy_s = np.zeros(scenario.servers), np.zeros((0, 3)), np.zeros(1)
        self.totals: TokenTotals | None = None
        self.histograms = TokenHistograms(*(np.zeros(BINS, np.int64) for _ in range(3)))

    def add(self, window: _Window) -> None:
        """Add what a call of the loop has settled."""
        self._note_times(window)
        rows, known, steps, sent = window.requests, window.known, window.steps, window.sent
        over = np.flatnonzero((_settled(rows) & ~known.added)[:sent])
        known.added[over] = True
        mine = over[known.number[over] >= self.skip]
        left = over[rows.last_step[over] >= 0]
        left = left[window.ends_s(rows.last_step[left]) >= self.begin_s]
        served = mine[rows.last_step[mine] >= 0]
        arrival_s, start_s, token_s = rows.arrival_s[served], known.start_s[served], known.token_s[served]
        finish_s, queueing_s = window.ends_s(rows.last_step[served]), known.queueing_s[served]
        before_s, after_s = rows.preempted_before_first_s[served], rows.preempted_after_first_s[served]
        later = rows.output[served] - 1
        tpot_s = (finish_s - token_s)[later > 0] / later[later > 0]
        parts_s = finish_s - arrival_s, start_s - arrival_s - queueing_s, queueing_s, finish_s - start_s
        computing_s = token_s - start_s - before_s, finish_s - token_s - after_s, before_s + after_s
        for counts, seconds in zip(
            vars(self.histograms).values(), (parts_s[0], token_s - arrival_s, tpot_s), strict=True
        ):
            counts += np.bincount(binned(seconds), minlength=BINS)
        started_s, ended_s = steps.start_s[: window.count], steps.finish_s[: window.count]
        self.end_s = max(self.end_s, float(ended_s.max(initial=0.0)))
        leaving = started_s >= self.begin_s
        triggers = np.zeros(len(Trigger), np.intp)
        if self.whole:
            leaving &= steps.trigger[: window.count] != NO_TRIGGER
            triggers = np.bincount(steps.trigger[: window.count][leaving], minlength=len(Trigger))
        totals = TokenTotals(
            requests=0, statuses=np.bincount(rows.status[mine], minlength=len(Status)),
            parts_s=np.array([each.sum() for each in parts_s]), finished=left.size,
            busy_s=float(np.maximum(ended_s - np.maximum(started_s, self.begin_s), 0.0).sum()),
            window_s=0.0, batches=int(leaving.sum()), items=int(steps.rows[: window.count][leaving].sum()),
            triggers=triggers, delayed=0, computing_s=np.array([each.sum() for each in computing_s]),
            ttft_s=float((token_s - arrival_s).sum()), tpot_s=float(tpot_s.sum()), longer=tpot_s.size,
            output_tokens=int(rows.output[left].sum()), preempted=int((rows.preemptions[mine] > 0).sum()),
        )  # fmt: skip
        self.totals = totals if self.totals is None else self.totals + totals

    def _note_times(self, window: _Window) -> None:
        """Note who was served for the first time, or has a first token, in the steps of a window."""
        rows, known, steps, sent = window.requests, window.known, window.steps, window.sent
        started = np.flatnonzero(rows.first_step[:sent] >= steps.first)
        started = started[np.argsort(rows.first_step[started], kind="stable")]
        known.start_s[started] = steps.start_s[rows.first_step[started] - steps.first]
        token = np.flatnonzero((rows.token_step[:sent] >= 0) & np.isnan(known.token_s[:sent]))
        known.token_s[token] = window.ends_s(rows.token_step[token])
        spans = np.concatenate([self.spans, np.zeros((window.count, 3))])
        count = fold.queue_up(
            steps, window.count, started, rows.first_step, rows.arrival_s, self.until_s, spans,
            len(self.spans), self.all_busy_s, known.queueing_s,
        )  # fmt: skip
        # Forget the spans that ended before any request came that still waits; the last may go on.
        waits = ~_settled(rows)[:sent] & (rows.first_step[:sent] < 0)
        latest_s = steps.start_s[window.count - 1] if window.count else 0.0
        oldest_s = rows.arrival_s[:sent][waits].min(initial=latest_s)
        first = min(int(np.searchsorted(spans[:count, 1], oldest_s)), max(count - 1, 0))
        self.spans = spans[first:count].copy()


def summarise(
    scenario: Scenario, requests: int, streams: Streams, skip: int, chunk: int = WINDOW,
    cancelled: threading.Event | None = None,
) -> tuple[TokenTotals, TokenHistograms]:  # fmt: skip
    """Run in windows of `chunk` new requests; return the sums, and the histograms of latency, TTFT and TPOT.

    The first `skip` requests are the warm-up. The answer does not depend on `chunk`, but for rounding.
    """

    def lengths() -> Chunks:
        draw = streams.lengths()
        for begin in range(0, requests, chunk):
            check_cancelled(cancelled)
            yield draw(min(chunk, requests - begin))

    check_durations(scenario)
    check_lengths(scenario, lengths)
    begin_s = 0.0
    if skip:  # the summary begins when request number `skip` comes: find out when that is
        for window in _windows(scenario, requests, streams, chunk, cancelled):
            if (came := window.known.number[: window.sent] == skip).any():
                begin_s = float(window.requests.arrival_s[: window.sent][came][0])
                break
    account = _Account(scenario, skip, begin_s)
    for window in _windows(scenario, requests, streams, chunk, cancelled):
        account.add(window)
        check_time("finishes", account.end_s, "take fewer requests")
    assert account.totals is not None
    window_s = max(account.end_s - begin_s, 0.0)
    return replace(account.totals, requests=requests - skip, window_s=window_s), account.histograms
