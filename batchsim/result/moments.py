"""A part of a run in detail: consecutive batches or steps, and their requests."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from batchsim._compat import reduceat
from batchsim.engines.log import Status
from batchsim.engines.token_log import NO_TRIGGER, TokenLog
from batchsim.result.result import Result
from batchsim.result.seats import Padding, Seats, beginning, padded_rows, padding, seats, spells
from batchsim.scenario import Continuous
from batchsim.scenario.sized_time import padded_to, unit_cost

BATCHES, REQUESTS = 4, 12  # the fewest in a window
LONG = 2.0  # windows: longer waits before a window are cut off


class Window(NamedTuple):
    """Consecutive batches of a run: the first, the last, their requests, and begin and end in seconds.

    Requests are in order of arrival; batch by batch if they overtake others, or replicas take them.
    """

    first: int
    last: int
    requests: np.ndarray
    begin_s: float
    end_s: float


def window(result: Result, at_s: float | None = None) -> Window:
    """Return a few consecutive batches from a time on, by default from the middle of the run.

    For a model that compiles, the default is the beginning, where the compiling is. A run without a batch has
    a window of its first requests.
    """
    batches = result.batches
    if not len(batches):
        requests = np.arange(min(REQUESTS, result.arrival_s.size))
        begin_s, end_s = float(result.arrival_s[0]), float(result.arrival_s[requests[-1]])
        waited_s = float(np.where(np.isfinite(result.timeout_s), result.timeout_s, 0.0).max())
        return Window(0, -1, requests, begin_s, max(end_s + waited_s, begin_s + 1e-6))
    if at_s is None and result.scenario.service.compile_ms:
        at_s = 0.0
    if at_s is None:
        first = max(len(batches) // 2 - BATCHES // 2, 0)
    else:
        first = int(np.clip(np.searchsorted(batches.start_s, at_s, side="right") - 1, 0, len(batches) - 1))
    carried = np.cumsum(batches.batch_size[first:])
    last = first + max(int(np.searchsorted(carried, REQUESTS)), BATCHES - 1)
    last = min(last, len(batches) - 1)
    first = min(first, max(last - BATCHES + 1, 0))
    within = (result.batch_index >= first) & (result.batch_index <= last)
    inside = np.flatnonzero(within)
    # Lost requests between them are part of the picture.
    lost = np.arange(inside[0], inside[-1] + 1)
    requests = lost[within[lost] | (result.status[lost] != Status.SERVED)]
    start_s, end_s = float(batches.start_s[first]), float(batches.finish_s[first : last + 1].max())
    oldest_s = float(result.arrival_s[requests[0]])
    if not result.scenario.in_order or result.scenario.most_replicas > 1:
        # Batch by batch, so that batches do not overlap; lost requests first.
        requests = requests[np.lexsort((result.batch_index[requests], result.replica[requests]))]
    return Window(first, last, requests, max(oldest_s, start_s - LONG * (end_s - start_s)), end_s)


class Stacks(NamedTuple):
    """Some consecutive batches, and their requests in the order of the queue."""

    requests: np.ndarray
    size: np.ndarray
    row: np.ndarray  # of each request, from the top
    batch: np.ndarray  # of each request, its place in the columns below
    first: np.ndarray  # row of each batch
    rows: np.ndarray
    computed: np.ndarray  # units of a row; 0: its requests' own

    @property
    def height(self) -> int:
        return int(self.first[-1] + self.rows[-1]) if self.first.size else 1


def stacks(result: Result, requests: np.ndarray, most: int) -> Stacks:
    """Return the batches of consecutive requests with sizes, at least one and up to `most` rows."""
    scenario, index = result.scenario, result.batch_index[requests]
    order = np.argsort(index, kind="stable")[np.count_nonzero(index < 0) :]
    requests = requests[order]
    size = scenario.cut(result.size[requests])
    _, begin, batch, counts = np.unique(
        index[order], return_index=True, return_inverse=True, return_counts=True
    )
    cost = unit_cost(scenario.service, scenario.rule.max_batch_size)
    longest = reduceat(np.maximum, size, begin) if counts.size else counts
    rows, computed = padded_to(counts, longest, cost)
    first = np.cumsum(rows + 1) - rows - 1  # an empty row between two
    kept = max(int(np.count_nonzero(first + rows <= most)), 1)
    row = first[batch] + np.arange(batch.size) - begin[batch]
    some = batch < kept
    requests, size, row, batch = (each[some] for each in (requests, size, row, batch))
    return Stacks(requests, size, row, batch, first[:kept], rows[:kept], computed[:kept])


SETTLED = 100, 2  # the fewest requests before the moment, in all and for each that runs
STEPS = 120, 600  # at least and at most, in a moment of continuous batching
OUTPUTS = 1.5  # length of a moment in mean answers, within these limits
LEAST_S = 1e-9  # a gap between two steps, beyond rounding
WHOLE_BATCHES = 2  # in a moment of whole batches


@dataclass(frozen=True, eq=False)
class Moment:
    """Consecutive steps of one server: their numbers, the tokens that each computes, and the seats' stays."""

    result: Result
    server: int
    steps: np.ndarray
    prompt_tokens: np.ndarray  # of each step
    answer_tokens: np.ndarray
    seats: Seats

    @property
    def log(self) -> TokenLog:
        assert isinstance(self.result.log, TokenLog)
        return self.result.log

    @property
    def begin_s(self) -> float:
        return float(self.log.batch_start_s[self.steps[0]])

    @property
    def end_s(self) -> float:
        return float(self.log.batch_finish_s[self.steps[-1]])

    @property
    def padded_rows(self) -> np.ndarray:
        """The rows without a request that each step computes, to fill a captured size."""
        return padded_rows(self.result.scenario, self.column("batch_size"), self.column("step_tokens"))

    @property
    def padding(self) -> Padding:
        """The empty seats that are computed."""
        return padding(self.result, self.seats, self.begin_s, self.end_s, {self.server: self.server})

    @property
    def busy_s(self) -> tuple[np.ndarray, np.ndarray]:
        """The begins and the ends of busy periods, in seconds."""
        return spells(self.column("batch_start_s"), self.column("batch_finish_s"))

    def column(self, name: str) -> np.ndarray:
        """Return a column of the log for the steps of this moment."""
        return np.asarray(getattr(self.log, name))[self.steps]


def moment(result: Result, at_s: float | None = None, server: int = 0) -> Moment | None:
    """Return consecutive steps of a server from a time on, by default after the run has settled.

    Returns None for a server without a step, and takes the first of several replications. Seats are computed
    only up to the moment: for a long run with preemptions, all of them would take a second.
    """
    result = result.replications[0]
    log, rule = result.log, result.scenario.rule
    assert isinstance(log, TokenLog)
    numbers = np.flatnonzero(log.batch_server == server)
    if not numbers.size:
        return None
    if at_s is None:
        least, each = SETTLED
        request = max(least, each * int(log.step_running.max()))
        at_s = float(log.arrival_s[min(request, log.arrival_s.size // 2)])
    starts_s = log.batch_start_s[numbers]
    if isinstance(rule, Continuous):
        outputs = log.output_tokens[: 10 * SETTLED[0]]
        count = int(np.clip(OUTPUTS * outputs.mean(), *STEPS))
        first = max(min(int(np.searchsorted(starts_s, at_s, side="right")) - 1, numbers.size - count), 0)
        steps = numbers[first : first + count]
    else:
        left = np.append(np.flatnonzero(log.batch_trigger[numbers] != NO_TRIGGER), numbers.size)
        first = int(np.searchsorted(starts_s[left[:-1]], at_s, side="right")) - 1
        first = max(min(first, left.size - 1 - WHOLE_BATCHES), 0)
        steps = numbers[left[first] : left[min(first + WHOLE_BATCHES, left.size - 1)]]
    found = seats(beginning(result, int(steps[-1]) + 1, server))
    begin_s, end_s = float(log.batch_start_s[steps[0]]), float(log.batch_finish_s[steps[-1]])
    found = found.of((found.server == server) & (found.begin_s < end_s) & (found.end_s > begin_s))
    return Moment(result, server, steps, *composition(result, steps, found), found)


def taken(
    result: Result, server: int, begin_s: float, end_s: float, column: str = "step_running"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of taken seats of a server during a period: edges in seconds, and counts.

    There is one edge more than counts. Between steps that are apart the count is 0. "step_blocks" as `column`
    counts blocks of memory instead.
    """
    log = result.replications[0].log
    assert isinstance(log, TokenLog)
    numbers = np.flatnonzero(log.batch_server == server)
    first = int(np.searchsorted(log.batch_finish_s[numbers], begin_s, side="right"))
    steps = numbers[first : int(np.searchsorted(log.batch_start_s[numbers], end_s))]
    times_s = np.stack([log.batch_start_s[steps], log.batch_finish_s[steps]], axis=1).ravel()
    counts = np.zeros(times_s.size + 1, np.int64)
    counts[1::2] = getattr(log, column)[steps]
    edges_s = np.concatenate([[begin_s], np.clip(times_s, begin_s, end_s), [end_s]])
    some = np.diff(edges_s) > LEAST_S
    return np.append(edges_s[:-1][some], end_s), counts[some]


def composition(result: Result, steps: np.ndarray, found: Seats) -> tuple[np.ndarray, np.ndarray]:
    """Return the prompt tokens and the answers' tokens of some steps of one server.

    A row of a step computes part of a prompt, or makes one token; the log has the number of rows and of
    tokens. The seats tell which requests run. A step may leave out some of them: those admitted last when the
    budget is used up, and those that make tokens when a rule computes prompts alone.
    """
    log, rule = result.log, result.scenario.rule
    assert isinstance(log, TokenLog)
    rows, tokens = log.batch_size[steps], log.step_tokens[steps]
    if not isinstance(rule, Continuous):
        prompts = log.batch_trigger[steps] != NO_TRIGGER
        return np.where(prompts, tokens, 0), np.where(prompts, 0, tokens)
    start_s = log.batch_start_s[steps][:, None]
    sits = (found.begin_s <= start_s) & (found.end_s > start_s)
    tells = sits & (found.first_token_s <= start_s)
    prompts = sits & ~tells
    if rule.first == "prefill":  # prompts alone, unless the rule mixes them with tokens
        decodes = np.where(prompts.any(axis=1), np.maximum(rows - prompts.sum(axis=1), 0), rows)
    else:
        served = np.cumsum(sits, axis=1) <= rows[:, None]
        decodes = (tells & served).sum(axis=1)
    return tokens - decodes, decodes
