"""The totals of a run of token generation: its steps, its requests and the gaps between tokens are added."""

# mypy: disable-error-code="no-untyped-def"

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from batchsim._clock import PER_S, WHOLE
from batchsim._clock import between as _between
from batchsim.engines.compiled.columns import Batches, writable
from batchsim.engines.compiled.jit import compiled, inlined
from batchsim.engines.compiled.sums import SERVED, bin_of, part_of
from batchsim.engines.compiled.threshold import to_ticks
from batchsim.engines.compiled.token_columns import GAPS, SERVER, Steps, TokenRequests
from batchsim.engines.gaps import Gaps
from batchsim.engines.token_log import TokenTotals
from batchsim.engines.totals import BINS, binned
from batchsim.scenario.rules.rule import Trigger

between = inlined(_between)
TRIGGERS = len(Trigger)


class Answers(NamedTuple):
    """Requests of token generation that are over, in order of arrival."""

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

    @classmethod
    def of(cls, requests: TokenRequests, chosen: np.ndarray) -> "Answers":
        """Return some requests that are over."""
        rows = requests.rows
        columns = (
            requests.arrival_s, rows.start_s, rows.first_token_s, rows.finish_s, rows.forming_s,
            rows.preempted_before_first_s, rows.preempted_after_first_s, requests.output, rows.status,
            rows.preemptions, rows.stall_s,
        )  # fmt: skip
        return cls(*(column[chosen] for column in columns))


@inlined
def _add_request(sums, part, at_s, now_s, done_s, forming_s):
    """Add a served request. A new sum over the requests has its line here, and one in `sums`."""
    sums.statuses[part, SERVED] += 1
    sums.parts_s[part, 0] += between(at_s, done_s)
    sums.parts_s[part, 1] += forming_s
    sums.parts_s[part, 2] += now_s - at_s - forming_s
    sums.parts_s[part, 3] += done_s - now_s


@inlined
def _add_batch(sums, part, size, trigger):
    """Add a batch that starts in the window. A new sum over the batches has its line here."""
    sums.batches[part] += 1
    sums.items[part] += size
    if trigger < TRIGGERS:
        sums.triggers[part, trigger] += 1


@inlined
def tally(histograms, which, seconds):
    """Count a duration in a histogram, if there are any."""
    if histograms.size:
        histograms[which, bin_of(seconds * PER_S + WHOLE - WHOLE)] += 1


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
def _ended_in(done_s, edges_s, part):
    """Return the part after whose begin, and at whose end at the latest, something ends; else as `part_of`.

    If services take a second each, n end in n seconds; with both ends of the window it would be n + 1.
    """
    while part < edges_s.size - 2 and edges_s[part + 1] < done_s:
        part += 1
    while part >= 0 and edges_s[part] >= done_s:  # another server's batch finished before
        part -= 1
    return part


@compiled
def _add_answers(answers, cuts, edges_s, sums, histograms):
    """Add the requests from cuts[p] to cuts[p + 1] to part p; they finish in the part of that time."""
    part, late, last = -1, 0, cuts.size - 2
    for request in range(answers.status.size):
        while part <= last and request >= cuts[part + 1]:
            part += 1
        at_s, now_s, done_s = answers.arrival_s[request], answers.start_s[request], answers.finish_s[request]
        served = answers.status[request] == SERVED
        if served:
            late = _ended_in(done_s, edges_s, late)
            if late >= 0:
                sums.finished[late] += 1
                sums.output_tokens[late] += answers.output[request]
        if not 0 <= part <= last:
            continue
        sums.preempted[part] += answers.preemptions[request] > 0
        if not served:
            sums.statuses[part, answers.status[request]] += 1
            continue
        _add_request(sums, part, at_s, now_s, done_s, answers.forming_s[request])
        _add_answer(sums, part, answers, request)
        tally(histograms, 0, between(at_s, done_s))
        tally(histograms, 1, between(at_s, answers.token_s[request]))
        if answers.output[request] > 1:
            tally(histograms, 2, _per_token_s(answers, request))
            tally(histograms, 3, answers.stall_s[request])


@compiled
def _add_gaps(finish_s, server, counts, ended_s, edge_s, sums, histogram):
    """Add the gaps of steps to the only part; `ended_s` is when each engine's step before ended."""
    for row in range(counts.size):
        done_s = finish_s[row]
        if counts[row] > 0 and done_s > edge_s:
            gap_s = between(ended_s[server[row]], done_s)
            sums.gaps[0] += counts[row]
            sums.itl_s[0] += counts[row] * gap_s
            histogram[bin_of(gap_s * PER_S + WHOLE - WHOLE)] += counts[row]
        ended_s[server[row]] = done_s


@compiled
def _add_batches(batches, count, whole, edges_s, sums):
    """Add batches that begin from edges_s[p] to edges_s[p + 1] to part p, and the busy time in it.

    The last part has no end. `whole`: rows are steps, and only a step with a trigger begins a batch; else
    every row does.
    """
    part, last = 0, edges_s.size - 2
    for batch in range(count):
        now_s, done_s = batches.start_s[batch], batches.finish_s[batch]
        part = part_of(now_s, edges_s, part)
        if part >= 0 and (not whole or batches.trigger[batch] < TRIGGERS):
            _add_batch(sums, part, batches.size[batch], batches.trigger[batch])
        each, from_s = max(part, 0), max(now_s, edges_s[0])
        while from_s < done_s:
            until_s = done_s if each == last else min(done_s, edges_s[each + 1])
            sums.busy_s[each] += max(until_s - from_s, 0.0)
            from_s, each = until_s, each + 1


@compiled
def _add_finished(finish_s, counts, edges_s, into):
    """Add counts to the part in which each finishes."""
    part = 0
    for row in range(finish_s.size):
        part = _ended_in(finish_s[row], edges_s, part)
        if part >= 0:
            into[part] += counts[row]


class TokenTotal:
    """The totals of a run, chunk after chunk of its log."""

    def __init__(
        self,
        edges_s: np.ndarray,
        histograms: int = 0,
        watts: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        """`edges_s` are the times at which parts begin, and the end of the last one, which is not read.

        `watts`: what a server draws while it computes batches of some sizes.
        """
        self._watts = watts
        self.edges_s, records = edges_s, TokenTotals.records(edges_s.size - 1)
        self.totals, self._sums = TokenTotals.of(records), records.view(np.recarray)
        self.histograms = np.zeros((histograms, BINS if histograms else 0), np.int64)
        self.last_s = 0.0  # the last finish

    def add_windows(self, cuts: np.ndarray) -> None:
        """Add the requests and the seconds of each part, for a run whose end is known."""
        self.totals.requests[:], self.totals.window_s[:] = np.diff(cuts), np.diff(self.edges_s)

    def add_batches(self, batches: Batches, count: int, whole: bool = False) -> None:
        """Add batches, in order of start."""
        _add_batches(batches, count, whole, self.edges_s, self._sums)
        self.last_s = max(self.last_s, float(batches.finish_s[:count].max(initial=0.0)))
        if self._watts is not None:
            spent_s = batches.finish_s[:count] - batches.start_s[:count]
            self._add_finished(
                batches.finish_s[:count], self._watts(batches.size[:count]) * spent_s, "joules"
            )

    def add_answers(self, answers: Answers, cuts: np.ndarray) -> None:
        """Add requests, those before cuts[0] only as far as they finish in the window."""
        _add_answers(Answers(*map(writable, answers)), cuts, self.edges_s, self._sums, self.histograms)

    def _add_finished(self, finish_s: np.ndarray, counts: np.ndarray, name: str) -> None:
        """Add counts to a sum by the time at which each finishes."""
        _add_finished(finish_s, counts, self.edges_s, getattr(self.totals, name))

    def add_gaps(self, gaps: Gaps) -> None:
        """Add gaps between tokens, by the time at which each ends."""
        self._add_finished(gaps.at_s, gaps.counts.astype(np.int64), "gaps")
        self._add_finished(gaps.at_s, gaps.counts * gaps.gap_s, "itl_s")

    def add_gaps_of_steps(self, ended_s: np.ndarray, steps: Steps, used: int, late: np.ndarray) -> None:
        """Add the gaps that end with the next steps to the only part, and their late ones.

        `ended_s` is when each engine's last step before them ended; it becomes that of these.
        """
        columns = steps.finish_s, steps.numbers[SERVER], steps.numbers[GAPS, :used], ended_s
        _add_gaps(*columns, self.edges_s[0], self._sums, self.histograms[-1])
        if late.size:
            at_s = steps.finish_s[late[0].astype(np.int64) - steps.first]
            late_gaps = Gaps(at_s, _between(late[1], at_s), late[2])
            self.add_gaps(late_gaps)
            kept = at_s > self.edges_s[0]
            np.add.at(self.histograms[-1], binned(late_gaps.gap_s[kept]), late[2][kept].astype(np.int64))

    def add(self, other: "TokenTotal") -> None:
        """Add the sums of other requests and batches over the same parts."""
        for name in TokenTotals.forms():
            column = getattr(self.totals, name)
            column += getattr(other.totals, name)
        self.histograms += other.histograms
        self.last_s = max(self.last_s, other.last_s)

    def whole(self, requests: int) -> Any:
        """Return the totals of a run that is over, folded into one part: of so many requests."""
        self.totals.requests[:], self.totals.window_s[:] = requests, max(self.last_s - self.edges_s[0], 0.0)
        return self.totals.whole()
