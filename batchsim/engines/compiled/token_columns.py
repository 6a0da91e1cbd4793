"""The arguments of the compiled loop of token generation, as `columns` has those of the loops for requests.

Numba takes an array apart into seven numbers at every call of a part, and puts it together again, which most
of its time went to. So what is read by row is one array of records, and the columns of steps are one array.
"""

from typing import Any, NamedTuple

import numpy as np

from batchsim._clock import WHOLE
from batchsim.engines.compiled.columns import NONE, PLACES
from batchsim.engines.compiled.token_memory import TokenMemory, records
from batchsim.engines.token_log import LATE, PREEMPTIONS, STEPS, Batching, TokenPlan
from batchsim.scenario.prefixes import PrefixBlocks

LOG_SPACE = 1 << 12  # preemptions: more space costs less than another call of the loop
NO_LOG = np.empty((len(PREEMPTIONS), 0), np.int64)

# The cursors of the loop, in addition to SENT, HEAD, TAIL and THINKING:
STACK, STEP, WORK = PLACES, PLACES + 1, PLACES + 2  # preempted requests; steps so far; rows and steps so far
MOST_RUNNING, MOST_TOKENS = PLACES + 3, PLACES + 4  # at once; in a step
PREEMPTION = PLACES + 5  # preemptions that are logged so far
LATER = PLACES + 6  # late gaps of this call so far
TOKEN_PLACES = PLACES + 7
SEGMENTS = 32  # see `token_gaps`
IDLE, BY = range(2)  # places in `TokenServers.idle`
LARGEST_BLOCK = 4096  # tokens: with larger blocks there is no decode group
# Places in the numbers of the step that is being scheduled, first those that are logged, in the order of
# STEPS. LEFT is what remains of its budget; DECODES are rows of one token.
LOGGED, SUMS = len(STEPS) - 2, len(STEPS)
(
    ROWS, SERVER, TRIGGER, TOKENS, READS, PAIRS, RUNNING, WAITING, BLOCKS, PREEMPTED, GAPS, LEFT, DECODES,
) = range(SUMS)  # fmt: skip


class TokenLimits(NamedTuple):
    """When requests are rejected or time out, how many there are, and when a call pauses."""

    queue: int  # an arrival that finds so many waiting is rejected
    timeout_s: float  # a request leaves after waiting this long; inf: never
    work: int  # a call pauses after this many instants, steps and rows
    total: int  # requests of the run, numbered like the rows; a window may have fewer rows
    until_s: float  # the last arrival of a window, when others without a row may come, too; else inf
    logged: bool  # whether the whole row of each step is written; else some have only their finish
    end_s: float  # of one of several replicas: when the last request of the run comes, to any


# The state of a request, as far as it is read and written with the request itself. The first 64 bytes are all
# that most steps need of it.
REQUEST = np.dtype(
    [
        ("cached", np.int64),  # tokens whose keys are in memory
        ("capacity", np.int64),  # tokens that its blocks hold
        ("token_s", float),  # when it made its last token, unless it is in a decode group
        ("stall_s", float),  # its longest gap between two tokens so far, likewise
        ("log_entry", np.int64),  # in `TokenQueue.log`: its last preemption; -1: none since its last token
        ("segment", np.uint8),  # of its engine's `peaks_s`, from which on they are its own
        ("truncated", bool),  # whether its last row computed only a part of its known tokens
        ("status", np.uint8),  # of `Status`
        ("forming_s", float),  # of the wait for its first step; until then less `idle` as it came, in ticks
        ("first_step", np.int64),  # that serves it; -1: none
        ("start_s", float),  # when this step begins, and the next two end
        ("token_step", np.int64),  # at whose end it has its first token
        ("first_token_s", float),
        ("last_step", np.int64),  # at whose end it leaves
        ("finish_s", float),
        ("preemptions", np.int64),
        ("back_s", float),  # when it was preempted last
        (
            "preempted_before_first_s",
            float,
        ),  # how long it was preempted, before its first token, and after it
        ("preempted_after_first_s", float),
        ("limit", np.int64),  # tokens, if memory for as many is reserved
        ("path", np.int64),  # through the prefixes, and how many of its blocks are on it: see `token_memory`
        ("shared", np.int64),
    ],
    align=True,
)


def _as_bytes(rows: np.ndarray) -> np.ndarray:
    """Return records as one item each: NumPy copies them field by field."""
    return np.asarray(rows).view(np.dtype((np.void, REQUEST.itemsize)))


class TokenRequests(NamedTuple):
    """The requests, in order of arrival: columns where loops read those of many, and records.

    The loop fills the record of a request as it comes.
    """

    arrival_s: Any  # seconds; a closed loop has the earliest time of each send, and writes its sends here
    think_s: Any  # how long its client thinks afterwards; empty in an open loop
    client: Any  # the client that sent it; empty in an open loop
    prompt: Any  # tokens
    output: Any
    generated: Any  # tokens of the output
    rows: Any  # a record each: see REQUEST

    @classmethod
    def of(cls, plan: TokenPlan) -> "TokenRequests":
        """Return the requests of a plan before any has come."""
        lengths, batching = (plan.prompts, plan.outputs, plan.limits), Batching.of(plan.scenario)
        times = plan.base.first_s, plan.base.think_s
        return cls.before(batching, plan.prefixes, *times, *lengths, plan.paths)

    @classmethod
    def before(
        cls, batching: Batching, prefixes: PrefixBlocks, arrival_s: np.ndarray | None,
        think_s: np.ndarray | None, prompt: np.ndarray, output: np.ndarray, limit: np.ndarray,
        path: np.ndarray,
    ) -> "TokenRequests":  # fmt: skip
        """Return requests before the run starts; without arrival times, those of a closed loop."""
        count = prompt.size
        # A trace's arrivals are read-only, which Numba would compile everything for again.
        arrival_s = np.zeros(count) if arrival_s is None else np.require(arrival_s, requirements="W")
        sent_by = np.empty(0 if think_s is None else count, np.int64)
        rows = records(count, REQUEST)  # not written to before they are needed: that takes a while
        if batching.life:
            rows.limit = limit
        if batching.reuses:
            rows.path, rows.shared = path, prefixes.counts(path, prompt, batching.block_size)
        return cls(
            arrival_s, NONE if think_s is None else think_s, sent_by, np.array(prompt), np.array(output),
            np.zeros(count, np.int64), rows,
        )  # fmt: skip

    def with_more(self, kept: np.ndarray, more: "TokenRequests") -> "TokenRequests":
        """Return the rows `kept`, and `more` behind them."""
        pairs = zip(self[:-1], more[:-1], strict=True)
        columns = (np.append(one[kept] if one.size else one, other) for one, other in pairs)
        rows = np.append(_as_bytes(self.rows)[kept], _as_bytes(more.rows)).view(REQUEST)
        return TokenRequests._make([*columns, rows.view(np.recarray)])


class TokenQueue(NamedTuple):
    """Who waits: first the stack `preempted`, its last entry first; then `arrived[head:tail]`."""

    arrived: Any
    preempted: Any
    log: Any = NO_LOG  # a column for each preemption, with the rows of `PREEMPTIONS`; empty: no log

    def with_log_space(self, used: int, wanted: int) -> "TokenQueue":
        """Return the same queue with space for `wanted` further preemptions in its log."""
        if used + wanted <= self.log.shape[1]:
            return self
        log = np.empty((len(PREEMPTIONS), max(2 * used, LOG_SPACE) + wanted), np.int64)
        log[:, :used] = self.log[:, :used]
        return self._replace(log=log)


# The state of an engine.
ENGINE = np.dtype(
    [
        ("busy_until_s", float),  # inf: idle
        ("step", np.int64),  # the number of its present or last step
        ("count", np.int64),  # requests that run
        ("free", np.int64),  # blocks
        ("generated", np.int64),  # tokens that each request of a whole batch has by now
        ("longest", np.int64),  # prompt of a whole batch
        ("last", np.int64),  # longest output of a whole batch
        ("ready", np.int64),  # requests of the decode group, at the head of `running`: see `token_group`
        ("tick", np.int64),  # steps that have served the group
        ("next_end", np.int64),  # the tick at which its first request ends
        ("phase", np.int64),  # the tick modulo the block size
        ("reads", np.int64),  # keys that the group reads in its next step
        ("served", bool),  # whether the present step serves the group
        ("ended_s", float),  # when its last step ended
        ("tick_s", float),  # when the group made its last tokens, and how many of its requests made one then
        ("aged", np.int64),
        ("segments", np.int64),  # the last of `TokenServers.peaks_s`
    ],
    align=True,
)


class TokenServers(NamedTuple):
    """The state of all engines."""

    engines: Any  # a record each: see ENGINE
    running: Any  # requests in order of admission, shape (servers, seats)
    block_demand_by_phase: Any  # blocks that the group needs in each phase, shape (servers, block size)
    # The longest gap of the group in each segment, shape (servers, SEGMENTS). A request that joins begins a
    # segment: its longest gap is the largest of those from its own on.
    peaks_s: Any
    clock_s: Any  # shape (1,): the last instant that was handled
    idle: Any  # shape (2,), in ticks: how long any of them was idle, by the last instant; and this instant
    memory: TokenMemory

    @classmethod
    def allocate(cls, servers: int, seats: int, batching: Batching, memory: TokenMemory) -> "TokenServers":
        """Return idle engines."""
        engines = records(servers, ENGINE)
        engines.busy_until_s, engines.free, engines.next_end = np.inf, batching.kv_blocks, 2**62
        demand = np.zeros((servers, min(batching.block_size, LARGEST_BLOCK)), np.int64)
        running, peaks_s = np.empty((servers, seats), np.int64), np.zeros((servers, SEGMENTS))
        return cls(engines, running, demand, peaks_s, np.full(1, -np.inf), np.array([0.0, WHOLE]), memory)


class Steps(NamedTuple):
    """The rows of steps; these are numbered through, and the chunk begins with number `first`."""

    first: int
    noise: Any  # factor by row; empty: none
    start_s: Any
    finish_s: Any
    numbers: Any  # the other columns of STEPS, shape (LOGGED, rows)
    late: Any  # the rows of `LATE` as numbers, a column each; as many as one instant may add must be free

    @classmethod
    def allocate(cls, count: int, first: int, noise: np.ndarray, at_once: int) -> "Steps":
        """Return empty columns of that length."""
        (start_s, finish_s), late = np.empty((2, count)), np.empty((len(LATE), count + at_once))
        return cls(first, noise, start_s, finish_s, np.empty((LOGGED, count), np.int64), late)

    def columns(self, count: int) -> list[np.ndarray]:
        """Return the first rows, in the order of STEPS."""
        return [self.start_s[:count], self.finish_s[:count], *self.numbers[:, :count]]
