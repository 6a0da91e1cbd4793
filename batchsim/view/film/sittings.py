"""Runs with preemptions: who was sent back when, and until when each computed its tokens again.

The log says how many requests run in each step and how many it sent back, not which. But under `Continuous`
these are the last that were admitted, and whoever was sent back goes before all others; under `NewTokenRatio`
they are those who have made the fewest tokens, and go in the order in which they were sent back. So a walk
along the steps finds all of them. Most steps only make a token for each that runs. They are skipped: a clock
of each server ticks with every step in which those who make a token a step do so.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from batchsim.engines.token_log import TokenLog
from batchsim.scenario import Continuous
from batchsim.scenario.rules.continuous import NewTokenRatio


class Sitting(NamedTuple):
    """One stay of a request in a seat, by numbers of steps."""

    request: int
    first: int
    token: int  # at whose end it makes its first token in this seat; -1: none
    until: int  # at whose end it leaves, or at whose beginning it is sent back
    preempted: bool


@dataclass(eq=False)
class Row:
    """A request that runs."""

    request: int
    prompt: int
    first: int
    made: int  # tokens of the output; of one that makes a token a step less the clock, at most
    rest: int  # tokens to compute until it makes the next; 0: it makes one a step
    token: int = -1

    def sitting(self, until: int, preempted: bool) -> Sitting:
        return Sitting(self.request, self.first, self.token, until, preempted)


@dataclass(eq=False)
class Server:
    """An engine: where its clock is set back to 0, and those who run, in order of admission."""

    stood: int  # so much less than a step's place is the clock: steps of others, and those in which it stood
    running: list[Row] = field(default_factory=list)


def sittings(log: TokenLog, rule: Continuous) -> list[Sitting]:
    """Return all sittings of a run, in order of their end."""
    order, place = places(log)
    begins = np.searchsorted(log.batch_server[order], np.arange(log.batch_server.max(initial=0) + 1))
    joined, left = by_step(log.batch_index), by_step(log.last_step)
    come = _admitted(log, order, begins)
    look = bytearray((come > 0) | (log.step_preempted > 0) | (log.batch_size != log.step_running))
    for step in left:
        look[step] = 1
    servers = [Server(begin) for begin in begins.tolist()]
    back: deque[Row] = deque()  # who was sent back, the next to go on the left
    found: list[Sitting] = []
    step = look.find(1)
    while step >= 0:
        server, tick = servers[log.batch_server[step]], int(place[step])
        tick -= server.stood
        for row in _victims(server, int(log.step_preempted[step]), tick, rule):
            found.append(row.sitting(step, preempted=True))
            again = Row(row.request, row.prompt, -1, _made(row, tick), 0)
            (back.append if isinstance(rule, NewTokenRatio) else back.appendleft)(again)
        first = joined.get(step, [])
        new = [back.popleft() for _ in range(int(come[step]) - len(first))]
        new += [Row(each, int(log.prompt_tokens[each]), -1, 0, 0) for each in first]
        for row in new:
            row.first, row.rest = step, row.prompt + row.made
        unfinished = [row for row in server.running if row.rest]
        if unfinished or new or log.batch_size[step] != log.step_running[step]:
            _serve(server, new, step, tick, log, rule)
        server.running += new
        tick = int(place[step]) + 1 - server.stood
        for row in [*unfinished, *new]:
            if row.made == 0:  # the log tells
                row.rest = 0 if log.token_step[row.request] == step else max(row.rest, 1)
            if row.rest:
                look[order[min(place[step] + 1, order.size - 1)]] = 1
            else:
                row.token, row.made = step, row.made + 1 - tick
        if step in left:
            gone = set(left[step])
            found += [row.sitting(step, preempted=False) for row in server.running if row.request in gone]
            server.running = [row for row in server.running if row.request not in gone]
        step = look.find(1, step + 1)
    for server, last in zip(servers, order[np.append(begins[1:], order.size) - 1].tolist(), strict=True):
        found += [row.sitting(last, preempted=False) for row in server.running]  # of a run that is cut off
    return found


def places(log: TokenLog) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps server by server, and where among these each step stands."""
    order = np.argsort(log.batch_server, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return order, place


def by_step(steps: np.ndarray) -> dict[int, list[int]]:
    """Return the requests of each step that has any, in order of arrival; -1: none."""
    found: dict[int, list[int]] = {}
    for request in np.argsort(steps, kind="stable")[np.count_nonzero(steps < 0) :].tolist():
        found.setdefault(int(steps[request]), []).append(request)
    return found


def _admitted(log: TokenLog, order: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Return how many requests each step admits."""
    done = np.bincount(log.last_step[log.last_step >= 0], minlength=order.size)
    stay = np.roll((log.step_running - done)[order], 1)
    stay[begins] = 0  # before its first step a server has none
    admitted = np.empty_like(order)
    admitted[order] = (log.step_running + log.step_preempted)[order] - stay
    return admitted


def _made(row: Row, tick: int) -> int:
    return row.made if row.rest else row.made + tick


def _victims(server: Server, count: int, tick: int, rule: Continuous) -> list[Row]:
    """Take those from a server that a step sends back, and return them in that order."""
    running = server.running
    if not isinstance(rule, NewTokenRatio) or not count:
        return [running.pop() for _ in range(count)]
    told, cut = [row for row in running if not row.rest], [row for row in running if row.rest]
    told.sort(key=lambda row: (row.made, -row.prompt), reverse=True)
    gone = [told.pop() for _ in range(min(count, len(told) - 1))]
    if len(gone) < count:  # one stays, and the prompt that is cut makes room for it
        gone, cut = gone + cut, []
    server.running = told + cut
    return gone


def _serve(server: Server, new: list[Row], step: int, tick: int, log: TokenLog, rule: Continuous) -> None:
    """Take what a step computes for those who run, and for the new ones, from what each has left."""
    everyone, tokens, rows = server.running + new, int(log.step_tokens[step]), int(log.batch_size[step])
    prompts = [row for row in everyone if row.rest]
    telling = len(everyone) - len(prompts)
    if isinstance(rule, NewTokenRatio):
        # Prompts go first, unless memory is short: then this is a token for each of the others.
        read = log.step_reads[step]
        known = sum(row.prompt + _made(row, tick) for row in server.running if not row.rest)
        cut = any(read == row.prompt + row.made - row.rest + 1 for row in prompts if tokens == rows == 1)
        if new or cut or (rows, tokens, read) != (telling, telling, known):
            together = telling > 0 and rows > telling
            server.stood += not together
            _at_most(prompts, tokens - telling * together)
        return
    alone = rule.first == "prefill" and bool(new or (prompts and rule.chunked))
    server.stood += alone
    if rule.reuses:
        # How much each found again is not told. Whoever is last may be cut where the budget is used up.
        full = tokens >= rule.max_num_batched_tokens
        for row in prompts[: len(prompts) - full]:
            row.rest = 0 if row.made else row.rest
    elif alone:
        _walk(prompts if rule.chunked else new, rule.max_num_batched_tokens, rule)
    else:
        _walk(everyone, math.inf if rule.first == "prefill" else rule.max_num_batched_tokens, rule)


def _at_most(prompts: list[Row], tokens: int) -> None:
    """Give so many tokens to prompts; the last one has what is left."""
    for row in prompts:
        given = min(row.rest, tokens)
        row.rest, tokens = row.rest - given, tokens - given


def _walk(rows: list[Row], budget: float, rule: Continuous) -> None:
    """Give tokens of a budget to some who run, in this order, as `Continuous` says."""
    for row in rows:
        wanted = row.rest or 1
        if rule.long_prefill_token_threshold:
            wanted = min(wanted, rule.long_prefill_token_threshold)
        given = min(wanted, budget) if rule.chunked else wanted * (wanted <= budget)
        budget -= given
        if row.rest:
            row.rest -= int(given)
        elif not given:
            row.made -= 1  # the clock ticks all the same
