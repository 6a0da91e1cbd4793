"""The seats of a run of token generation: which request is in which seat, and when."""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from batchsim.engines.folded_log import FoldedLog
from batchsim.engines.token_log import LATE, PREEMPTIONS, TokenLog
from batchsim.engines.token_log import STEPS as COLUMNS
from batchsim.result.result import Result
from batchsim.result.token_run import NO_TOKENS, TokenRun
from batchsim.scenario import Continuous


@dataclass(frozen=True, eq=False)
class Seats:
    """A row a sitting, in order of their beginning: a request has one, and one more for each preemption.

    A request takes the lowest free seat of its server from the step that admits it until it has finished, or
    is preempted. From `begin_s` to `first_token_s` its prompt is computed (of one that sat before: the prompt
    and what it had made); until `last_token_s` it makes a token a step; whole batches keep the seat until
    `end_s`. Where a sitting ends before its first token, all three are the same.
    """

    request: np.ndarray
    server: np.ndarray
    seat: np.ndarray
    begin_s: np.ndarray
    first_token_s: np.ndarray
    last_token_s: np.ndarray
    end_s: np.ndarray
    preempted: np.ndarray  # whether it ends with a preemption
    again: np.ndarray  # whether the request sat before

    def __len__(self) -> int:
        return self.request.size

    def within(self, begin_s: float, until_s: float) -> "Seats":
        """Return the rows within a stretch, in whole or in part."""
        return self.of((self.begin_s < until_s) & (self.end_s > begin_s))

    def of(self, which: np.ndarray) -> "Seats":
        """Return some of the rows."""
        return Seats(*(getattr(self, field.name)[which] for field in fields(self)))

    @property
    def useful_share(self) -> float:
        """The share of the time that seats are taken in which nothing is padded or computed again.

        NaN of no sitting. That prompts of a whole batch are padded to its longest is not counted.
        """
        taken_s = self.end_s - self.begin_s
        wasted_s = self.end_s - self.last_token_s + np.where(self.again, self.first_token_s - self.begin_s, 0)
        return float(1 - wasted_s.sum() / taken_s.sum()) if len(self) else np.nan


def seats(result: Result) -> Seats:
    """Return the seats of a run; ValueError without tokens or columns, or of several replications.

    A file of an earlier version lacks the requests that were preempted: ValueError if there are any.

    >>> from batchsim import Constant, Scenario, SizeOrWait, StepTime, Tokens, simulate
    >>> scenario = Scenario(Constant(100), SizeOrWait(2, 50), StepTime(10, 0, 0), tokens=Tokens(9, [3, 1]))
    >>> found = seats(simulate(scenario, 2))  # the second has its only token at once, and waits for the first
    >>> found.seat.tolist(), found.last_token_s.round(3).tolist(), found.end_s.round(3).tolist()
    ([0, 1], [0.05, 0.03], [0.05, 0.05])
    """
    if not isinstance(result, Result):
        raise TypeError(f"result must be a Result, got {result!r}")
    if result.scenario.tokens is None:
        raise ValueError(NO_TOKENS)
    log, whole = result.run.log, not isinstance(result.scenario.rule, Continuous)
    assert isinstance(log, TokenLog)
    request, first, token, until, preempted = _stays(log)
    begin_s = log.batch_start_s[first]
    # A victim leaves as the step begins that has no room for it.
    end_s = np.where(preempted, log.batch_start_s[until], log.batch_finish_s[until])
    first_token_s = np.where(token < 0, end_s, log.batch_finish_s[token])
    last_token_s = log.batch_finish_s[last_tokens(log, request, token)] if whole else end_s
    server = log.batch_server[first]
    again = np.zeros(request.size, bool)
    again[np.unique(request, return_index=True)[1]] = True
    seat = _lowest_free(server, begin_s, end_s)
    return Seats(
        request, server, seat, begin_s, first_token_s, last_token_s, end_s, preempted, ~again
    )  # fmt: skip


def _stays(log: TokenLog) -> tuple[np.ndarray, ...]:
    """Return a row for each stay of a request in a seat, in order of its first step.

    The columns: the request; its first step here; the step of its first token here, -1 for none; the step at
    whose end it leaves, or at whose beginning it is preempted; and whether it is.
    """
    served = np.flatnonzero(log.batch_index >= 0)
    request, back, resumed, regained = (getattr(log, name) for name in PREEMPTIONS)
    if request is None:
        if isinstance(log, FoldedLog) or log.preemptions.any():
            raise ValueError("seats need the log of steps and preemptions, got none: simulate it again")
        request = back = resumed = regained = np.empty(0, np.int64)
    # The first stay of each request, then its stays after preemptions, each of which begins as it resumes.
    order = np.argsort(np.append(served, request), kind="stable")
    request, first, token, back = (
        np.append(log_of_first[served], column)[order]
        for log_of_first, column in (
            (np.arange(log.requests), request), (log.batch_index, resumed), (log.token_step, regained),
            (log.batch_index, back),
        )
    )  # fmt: skip
    preempted = np.append(request[1:] == request[:-1], False)[: request.size]
    last_of_server = np.zeros(int(log.batch_server.max(initial=0)) + 1, np.int64)
    np.maximum.at(last_of_server, log.batch_server, np.arange(log.steps))
    last = log.last_step[request]  # -1 in a log that is cut off: the stay ends with its server's last step
    last = np.where(last < 0, last_of_server[log.batch_server[first]], last)
    until = np.where(preempted, np.roll(back, -1), last)
    token = np.where(preempted & (token >= until), -1, token)  # made in a later stay
    rows = np.lexsort((request, first))
    rows = rows[first[rows] >= 0]  # some do not resume in a log that is cut off
    return request[rows], first[rows], token[rows], until[rows], preempted[rows]


class Padding(NamedTuple):
    """Empty seats that steps compute all the same, because they are padded to a captured size."""

    server: np.ndarray
    seat: np.ndarray
    begin_s: np.ndarray
    end_s: np.ndarray


def padded_rows(scenario: Any, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Return how many rows without a request steps of decodes compute, from their rows and tokens."""
    padded = scenario.service.padded_decodes(rows, scenario.rule.largest_batch)
    return np.where((tokens == rows) & (padded > 0), padded - rows, 0)


def replayed(log: TokenLog, scenario: Any, step: int) -> str:
    """Return the captured size of a step, or that it is launched, for a sentence; "" if neither matters."""
    service, rows, alone = (
        scenario.service,
        log.batch_size[step],
        log.batch_size[step] == log.step_tokens[step],
    )
    if alone and (size := service.padded_decodes(rows, scenario.rule.largest_batch)):
        return f", computed as {size:,}, a captured size"
    launched = service.beyond_ms and (alone or not service.captured_prompts)
    return ", not captured: each kernel is launched" * bool(launched)


def padding(
    result: Result, stays: Seats, begin_s: float, until_s: float, servers: Mapping[int, int]
) -> Padding:
    """Return the padding of some servers during a stretch, in their lowest empty seats.

    `servers` maps their numbers in `stays` to those in the log.
    """
    log, parts = result.log, [np.empty((4, 0))]
    assert isinstance(log, TokenLog)
    for server, logged in servers.items():
        starts, ends = log.batch_start_s, log.batch_finish_s
        steps = np.flatnonzero((log.batch_server == logged) & (starts < until_s) & (ends > begin_s))
        more = padded_rows(result.scenario, log.batch_size[steps], log.step_tokens[steps])
        if not more.any():
            continue
        sits = stays.of(stays.server == server)
        lanes = min(int(sits.seat.max(initial=-1)) + 1 + int(more.max()), result.scenario.rule.largest_batch)
        empty = np.ones((steps.size, lanes), bool)
        edges = starts[steps].searchsorted([sits.begin_s, sits.end_s])
        for seat, first, last in zip(sits.seat, *edges, strict=True):
            empty[first:last, seat] = False
        computed = empty & (np.cumsum(empty, axis=1) <= more[:, None])
        turns = np.diff(np.pad(computed, ((1, 1), (0, 0))).astype(np.int64), axis=0).T
        (seat, first), (_, last) = (np.nonzero(turns == turn) for turn in (1, -1))
        parts.append(
            np.array([np.full(seat.size, server), seat, starts[steps[first]], ends[steps[last - 1]]])
        )
    server, seat, start_s, end_s = np.concatenate(parts, axis=1)
    return Padding(server.astype(np.int64), seat.astype(np.int64), start_s, end_s)


def spells(begin_s: np.ndarray, end_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the begins and ends of uninterrupted steps, from the begin and end of each step of a server.

    >>> spells(np.array([0.0, 1.0, 3.0]), np.array([1.0, 2.0, 4.0]))
    (array([0., 3.]), array([2., 4.]))
    """
    pause = begin_s[1:] > end_s[:-1]
    return begin_s[np.append(True, pause)[: begin_s.size]], end_s[np.append(pause, True)[: end_s.size]]


def places(log: TokenLog) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps server by server, and the place of each step among these."""
    order = np.argsort(log.batch_server, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return order, place


def last_tokens(log: TokenLog, request: np.ndarray, token: np.ndarray) -> np.ndarray:
    """Return the steps of a whole batch at whose end each of its requests makes its own last token."""
    order, place = places(log)
    return order[place[token] + log.output_tokens[request] - 1]


def _lowest_free(server: np.ndarray, begin_s: np.ndarray, end_s: np.ndarray) -> np.ndarray:
    """Return the seat of each sitting: the lowest of its server that is free as it begins."""
    seat = np.empty(server.size, np.int64)
    count = int(server.max(initial=0)) + 1
    taken: list[list[tuple[float, int]]] = [[] for _ in range(count)]
    free: list[list[int]] = [[] for _ in range(count)]
    highest = [0] * count
    for row, (at, since_s, until_s) in enumerate(
        zip(server.tolist(), begin_s.tolist(), end_s.tolist(), strict=True)
    ):
        while taken[at] and taken[at][0][0] <= since_s:
            heapq.heappush(free[at], heapq.heappop(taken[at])[1])
        if not free[at]:
            free[at], highest[at] = [highest[at]], highest[at] + 1
        seat[row] = heapq.heappop(free[at])
        heapq.heappush(taken[at], (until_s, int(seat[row])))
    return seat


def beginning(result: Result, steps: int, server: int) -> Result:
    """Return the first steps of a run; requests that still run leave at its end.

    Under whole batches only one server's are kept, because others may be in the middle of a batch.
    """
    log = result.log
    assert isinstance(log, TokenLog)
    requests = int(np.searchsorted(log.arrival_s, log.batch_finish_s[steps - 1], side="right"))
    columns: dict[str, Any] = {
        name: column[: steps if name in COLUMNS else requests]
        for name, column in vars(log).items()
        if isinstance(column, np.ndarray) and name not in (*PREEMPTIONS, *LATE)
    }
    servers, first = columns["batch_server"], columns["batch_index"]
    served = (first >= 0) & (first < steps)
    if not isinstance(result.scenario.rule, Continuous):
        served &= servers[np.where(served, first, 0)] == server
    token, until = columns["token_step"], columns["last_step"]
    columns["batch_index"] = np.where(served, first, -1)
    columns["token_step"] = np.where(served & (token < steps), token, -1)
    columns["last_step"] = np.where(served & (until < steps), until, -1)
    if log.preempted_step is not None:
        before = int(np.searchsorted(log.preempted_step, steps))
        for name in PREEMPTIONS:
            numbers = getattr(log, name)[:before]
            columns[name] = np.where(numbers < steps, numbers, -1) if name in PREEMPTIONS[2:] else numbers
    if log.late_step is not None:
        columns |= {name: getattr(log, name)[: np.searchsorted(log.late_step, steps)] for name in LATE}
    return Result((TokenRun(result.scenario, replace(log, **columns)),), result.seed, result.engine)
