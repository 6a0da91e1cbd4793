"""From a log to totals: one loop over requests, one over batches, for a whole run or window after window.

A run that keeps its columns folds them once, into the 64 sections that intervals are made from. A run with
keep="summary" folds each window into one part, and forgets the window.

A wait is forming while a server is idle, and queueing while all are busy. I(t) is how long at least one
server had been idle by t: a request that arrives at a and starts at s was forming for I(s) - I(a). I(t)
rises always, except in *spans* in which all servers are busy: rows [from, to, I(from), B(from)]. B(t) is
how long all servers had been busy by t.
"""

import math
from collections import namedtuple
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from batchsim._clock import PER_S, WHOLE
from batchsim._clock import between as _between
from batchsim.engines.compiled.columns import Batches
from batchsim.engines.compiled.jit import compiled, inlined
from batchsim.engines.compiled.threshold import soonest, to_ticks
from batchsim.engines.gaps import Gaps
from batchsim.engines.log import Status
from batchsim.engines.totals import A_DECADE, BINS, DECADES, FIRST, TokenTotals, Totals, binned
from batchsim.scenario.rules.rule import Trigger

# mypy: disable-error-code="no-untyped-def"

between = inlined(_between)
SERVED, TRIGGERS = int(Status.SERVED), len(Trigger)
# The last tick of each decade of bins, the ticks of a bin there, and the decade in which an octave begins.
LAST, WIDTH = FIRST * 10.0 ** np.arange(DECADES + 1), 10.0 ** np.arange(DECADES + 2)
DECADE = np.searchsorted(LAST[:-1], 2.0 ** np.arange(-1, 64))
# The fields of totals, as the loops take them. A new field is here by itself.
Sums = namedtuple("Sums", [f.name for f in fields(Totals)])  # type: ignore[misc]
TokenSums = namedtuple("TokenSums", [f.name for f in fields(TokenTotals)])  # type: ignore[misc]
SUMS = {Totals: Sums, TokenTotals: TokenSums}


class Answers(NamedTuple):
    """Requests of token generation that are over, in order of arrival; NaN times where one was not served."""

    arrival_s: Any
    start_s: Any
    token_s: Any  # when the first token is made
    finish_s: Any
    forming_s: Any
    before_s: Any  # preempted before the first token, and after it
    after_s: Any
    output: Any  # tokens
    status: Any
    preemptions: Any
    stall_s: Any  # the longest gap between two tokens


@inlined
def _add_request(sums, part, at_s, now_s, done_s, forming_s, device_wait_s):
    """Add a served request. A new sum over the requests has its line here, for requests and for tokens."""
    sums.statuses[part, SERVED] += 1
    sums.parts_s[part, 0] += between(at_s, done_s)
    sums.parts_s[part, 1] += forming_s
    sums.parts_s[part, 2] += now_s - at_s - forming_s
    sums.parts_s[part, 3] += done_s - now_s - device_wait_s
    sums.device_wait_s[part] += device_wait_s


@inlined
def _add_answer(sums, part, answers, request):
    """Add a served request of token generation. A new sum about tokens has its line here."""
    start_s, token_s, finish_s = answers.start_s[request], answers.token_s[request], answers.finish_s[request]
    before_s, after_s = answers.before_s[request], answers.after_s[request]
    sums.computing_s[part, 0] += token_s - start_s - before_s
    sums.computing_s[part, 1] += finish_s - token_s - after_s
    sums.computing_s[part, 2] += before_s + after_s
    sums.ttft_s[part] += between(answers.arrival_s[request], token_s)
    if answers.output[request] > 1:
        sums.tpot_s[part] += _per_token_s(answers, request)
        sums.longer[part] += 1


@inlined
def _per_token_s(answers, request):
    """Return the time for each token after the first, on the grid, as `TokenRun.tpot_ms`."""
    ticks = to_ticks(answers.finish_s[request]) - to_ticks(answers.token_s[request])
    return (ticks / (answers.output[request] - 1) + WHOLE - WHOLE) / PER_S


@inlined
def _add_batch(sums, part, size, trigger):
    """Add a batch that starts in the window. A new sum over the batches has its line here."""
    sums.batches[part] += 1
    sums.items[part] += size
    if trigger < TRIGGERS:
        sums.triggers[part, trigger] += 1


@inlined
def _bin_of(seconds):
    """Return the bin of a duration, as `totals.binned`; a table has the decade of each power of two."""
    ticks = seconds * PER_S + WHOLE - WHOLE
    decade = DECADE[math.frexp(ticks)[1]]
    if ticks > LAST[decade]:
        decade += 1
    return min(A_DECADE * decade + math.ceil(ticks / WIDTH[decade]), BINS - 1)


@inlined
def _count(histograms, which, seconds):
    if histograms.size:
        histograms[which, _bin_of(seconds)] += 1


@compiled
def note_spans(start_s, finish_s, server, count, until_s, spans, known, idle_s, busy_s):
    """Write I(t) and B(t) at the start of each of `count` batches, and the spans; return how many these are.

    `until_s` is when each server is, or was, free. There are `known` spans before these batches.
    """
    free_s, all_busy_s = soonest(until_s), busy_s[-1]
    for batch in range(count):
        now_s, place = start_s[batch], server[batch]
        idle_s[batch] = spans[known - 1, 2] + max(now_s - spans[known - 1, 1], 0.0)
        busy_s[batch] = all_busy_s
        was_first = until_s[place] == free_s
        until_s[place] = finish_s[batch]
        if was_first:
            free_s = soonest(until_s)
        if free_s > now_s:  # all are busy
            if spans[known - 1, 1] == now_s:
                spans[known - 1, 1] = free_s
            else:
                spans[known, 0], spans[known, 1] = now_s, free_s
                spans[known, 2], spans[known, 3] = idle_s[batch], all_busy_s
                known += 1
            all_busy_s += free_s - now_s
    busy_s[-1] = all_busy_s
    return known


@compiled
def add_answers(answers, cuts, sums, histograms):
    """Add the requests of token generation from cuts[p] to cuts[p + 1] to part p."""
    for part in range(cuts.size - 1):
        for request in range(cuts[part], cuts[part + 1]):
            sums.preempted[part] += answers.preemptions[request] > 0
            if answers.status[request] != SERVED:
                sums.statuses[part, answers.status[request]] += 1
                continue
            at_s, now_s, done_s = (
                answers.arrival_s[request],
                answers.start_s[request],
                answers.finish_s[request],
            )
            _add_request(sums, part, at_s, now_s, done_s, answers.forming_s[request], 0.0)
            _add_answer(sums, part, answers, request)
            _count(histograms, 0, between(at_s, done_s))
            _count(histograms, 1, between(at_s, answers.token_s[request]))
            if answers.output[request] > 1:
                _count(histograms, 2, _per_token_s(answers, request))
                _count(histograms, 3, answers.stall_s[request])


@compiled
def add_batches(batches, count, whole, edges_s, sums):
    """Add batches that begin from edges_s[p] to edges_s[p + 1] to part p, and the busy time in it.

    The last part has no end. `whole`: rows are steps, and only a step with a trigger begins a batch; else
    every row does.
    """
    part, last = 0, edges_s.size - 2
    for batch in range(count):
        now_s, done_s = batches.start_s[batch], batches.finish_s[batch]
        while part < last and edges_s[part + 1] <= now_s:
            part += 1
        if now_s >= edges_s[0] and (not whole or batches.trigger[batch] < TRIGGERS):
            _add_batch(sums, part, batches.size[batch], batches.trigger[batch])
        each, from_s = part, max(now_s, edges_s[0])
        while from_s < done_s:
            until_s = done_s if each == last else min(done_s, edges_s[each + 1])
            sums.busy_s[each] += max(until_s - from_s, 0.0)
            from_s, each = until_s, each + 1


@compiled
def add_finished(finish_s, counts, edges_s, into):
    """Add counts to the part in which each finishes: after its begin, and at its end at the latest.

    If services take a second each, n end in n seconds; with both ends of the window it would be n + 1.
    """
    part, last = 0, edges_s.size - 2
    for row in range(finish_s.size):
        if finish_s[row] > edges_s[0]:
            while part < last and edges_s[part + 1] < finish_s[row]:
                part += 1
            while edges_s[part] >= finish_s[row]:  # another server's batch finished before
                part -= 1
            into[part] += counts[row]


@compiled
def add_gaps(finish_s, server, counts, ended_s, edge_s, sums, histogram):
    """Add the gaps of steps to the only part; `ended_s` is when each engine's step before ended."""
    for row in range(counts.size):
        done_s = finish_s[row]
        if counts[row] > 0 and done_s > edge_s:
            gap_s = between(ended_s[server[row]], done_s)
            sums.gaps[0] += counts[row]
            sums.itl_s[0] += counts[row] * gap_s
            histogram[_bin_of(gap_s)] += counts[row]
        ended_s[server[row]] = done_s


class Fold:
    """The totals of a run, chunk after chunk of its log."""

    def __init__(
        self, kind: type[Totals], servers: int, edges_s: np.ndarray, histograms: int = 0,
        watts: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:  # fmt: skip
        """`edges_s` are the times at which parts begin, and the end of the last one, which is not read.

        `watts`: what a server draws while it computes batches of some sizes.
        """
        self._watts = watts
        self.edges_s, self.totals = edges_s, kind.zeros(edges_s.size - 1)
        self.histograms = np.zeros((histograms, BINS if histograms else 0), np.int64)
        self.last_s = 0.0  # the last finish
        self._ended_s = np.zeros(servers)
        self._until_s, self._at_start_s = np.zeros(servers), np.zeros((2, 1))  # I(t) and B(t) of batches
        self._spans, self._known = np.array([[-math.inf, 0.0, 0.0, 0.0]]), 1
        self._sums = SUMS[kind](*vars(self.totals).values())

    def add_batches(self, batches: Batches, count: int, whole: bool = False) -> None:
        """Add batches, in order of start."""
        add_batches(batches, count, whole, self.edges_s, self._sums)
        self.last_s = max(self.last_s, float(batches.finish_s[:count].max(initial=0.0)))
        if self._watts is not None:
            spent_s = batches.finish_s[:count] - batches.start_s[:count]
            self.add_finished(batches.finish_s[:count], self._watts(batches.size[:count]) * spent_s, "joules")

    def note_spans(self, batches: Batches, count: int) -> np.ndarray:
        """Return I(t) and B(t) at the starts of batches, until others are noted; keep the spans."""
        if self._at_start_s.shape[1] <= count:  # memory is used again: new pages take as long as the loops
            self._at_start_s = np.pad(self._at_start_s[:, -1:], [(0, 0), (count, 0)])
        if len(self._spans) < self._known + count:
            self._spans = np.concatenate([self._spans[: self._known], np.empty((count, 4))])
        self._known = note_spans(
            *batches[:2], batches.server, count, self._until_s, self._spans, self._known, *self._at_start_s
        )
        return self._at_start_s

    def add_answers(self, answers: Answers, cuts: np.ndarray) -> None:
        """Add requests of token generation: see the loop of that name."""
        add_answers(answers, cuts, self._sums, self.histograms)

    def add_finished(self, finish_s: np.ndarray, counts: np.ndarray, name: str = "finished") -> None:
        """Add counts to a sum by the time at which each finishes."""
        add_finished(finish_s, counts, self.edges_s, getattr(self.totals, name))

    def add_gaps(self, gaps: Gaps) -> None:
        """Add gaps between tokens, by the time at which each ends."""
        self.add_finished(gaps.at_s, gaps.counts.astype(np.int64), "gaps")
        self.add_finished(gaps.at_s, gaps.counts * gaps.gap_s, "itl_s")

    def add_gaps_of_steps(self, steps: Any, count: int, late: np.ndarray) -> None:
        """Add the gaps that end with the next steps to the only part, and their late ones."""
        columns = steps.finish_s, steps.server, steps.gaps[:count], self._ended_s
        add_gaps(*columns, self.edges_s[0], self._sums, self.histograms[-1])
        if late.size:
            at_s = steps.finish_s[late[0].astype(np.int64) - steps.first]
            late_gaps = Gaps(at_s, _between(late[1], at_s), late[2])
            self.add_gaps(late_gaps)
            kept = at_s > self.edges_s[0]
            np.add.at(self.histograms[-1], binned(late_gaps.gap_s[kept]), late[2][kept].astype(np.int64))

    def forming_s(self, arrival_s: np.ndarray, start_s: np.ndarray, busy_s: np.ndarray) -> np.ndarray:
        """Return for how long requests were forming, where B(t) at their start is `busy_s`."""
        spans = self._spans[: self._known]
        from_s, to_s, _, before_s = spans[np.searchsorted(spans[:, 0], arrival_s, side="right") - 1].T
        queueing_s = busy_s - before_s - (np.minimum(arrival_s, to_s) - np.where(from_s < 0, 0.0, from_s))
        return start_s - arrival_s - np.minimum(np.maximum(queueing_s, 0.0), start_s - arrival_s)

    def add(self, other: "Fold") -> None:
        """Add the sums of other requests and batches over the same parts."""
        for name, column in vars(self.totals).items():
            column += getattr(other.totals, name)
        self.histograms += other.histograms
        self.last_s = max(self.last_s, other.last_s)

    def whole(self, requests: int) -> Any:
        """Return the totals of a run that is over, folded into one part: of so many requests."""
        self.totals.requests[:], self.totals.window_s[:] = requests, max(self.last_s - self.edges_s[0], 0.0)
        return self.totals.part(0)

    def forget(self, oldest_s: float) -> None:
        """Forget the spans that no request needs which arrived at that time or later."""
        first = max(int(np.searchsorted(self._spans[: self._known, 1], oldest_s)) - 1, 0)
        kept = self._spans[first : self._known].copy()
        self._known = len(kept)
        self._spans[: self._known] = kept
