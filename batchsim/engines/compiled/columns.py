"""The arguments of the compiled loops: named tuples of columns and numbers.

The loops write to the arrays in place. An array is empty if a scenario has no such thing (no noise, no
clients), so the types are the same for all scenarios, and Numba compiles each loop once.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from batchsim.engines.compiled.token_memory import TokenMemory
from batchsim.engines.draws import NO_SIZES as NO_SIZES
from batchsim.engines.log import Log
from batchsim.engines.token_log import LATE, PREEMPTIONS, STEPS, Batching, TokenPlan
from batchsim.scenario import Scenario
from batchsim.scenario.sized_time import UnitCost

ENDLESS = np.iinfo(np.int64).max
NONE, NONE_OF_LEVELS = np.empty(0), np.empty(0, np.uint8)
LOG_SPACE = 1 << 12  # preemptions: more space costs less than another call of the loop
NO_LOG = np.empty((len(PREEMPTIONS), 0), np.int64)


def writable(column: np.ndarray) -> np.ndarray:
    """Return a column that may be written to: Numba compiles a loop once more for read-only ones."""
    return np.require(column, requirements="W")


class Devices(NamedTuple):
    """The state of the devices that servers share: see `Scenario.devices`."""

    free_s: Any  # when each has computed all batches that have started; empty: plain servers, no host part
    host_s: float  # the part of the service time before a batch needs the device
    contention: float  # factor on the other part for a batch that finds the device busy

    @classmethod
    def of(cls, scenario: Scenario) -> "Devices":
        """Return a scenario's devices at the start of a run, empty if they make no difference."""
        free_s = np.zeros(0 if scenario.plain_servers else scenario.device_count)
        return cls(free_s, scenario.host_ms / 1000, float(scenario.contention))


class Cold(NamedTuple):
    """The shapes that a model has yet to compile: see `Service.compiling`."""

    compile_s: Any  # by batch size, and edge of lengths: how long its shape compiles; empty: nothing compiles
    shape: Any  # likewise: the number of its shape
    ready_s: Any  # by shape: when it is, or was, compiled; inf: not begun

    @classmethod
    def of(cls, cold_start: tuple[np.ndarray, np.ndarray] | None) -> "Cold":
        """Return the shapes at the start of a run: nothing is compiled."""
        if cold_start is None:
            return NOT_COLD
        seconds, shapes = cold_start
        different, numbers = np.unique(shapes, return_inverse=True)
        return cls(seconds, numbers, np.full(different.size, np.inf))


NOT_COLD = Cold(NONE, np.empty(0, np.int64), NONE)


class Costs(NamedTuple):
    """How long batches compute: finish = start + mean_s * noise[batch] * slowdown[busy].

    `mean_s` is service_s[size], plus the seconds of the batch's units. The first batch of a shape starts
    later by `cold.compile_s`. On shared devices, see `finish_on_device`.
    """

    service_s: Any  # mean seconds by batch size; [0] is NaN
    noise: Any  # factor by batch number; empty: none
    slowdown: Any  # factor by the number of busy servers, this one included; empty: none
    devices: Devices
    cold: Cold
    units: UnitCost  # what the sizes of its requests add

    @classmethod
    def of(cls, drawn: Any, noise: Any, devices: Devices, cold: Cold) -> "Costs":
        """Return the costs of a plan or of streams, with other noise; None: no noise."""
        slowdown = NONE if drawn.slowdown is None else drawn.slowdown
        noise = NONE if noise is None else noise
        return cls(drawn.service_s, noise, slowdown, devices, cold, drawn.unit_cost)


class Requests(NamedTuple):
    """A row for each request of the window, in order of arrival."""

    arrival_s: Any  # seconds; a closed loop has the earliest time of each send, and writes its sends here
    think_s: Any  # how long its client thinks afterwards; empty in an open loop
    client: Any  # the client that sent it; empty in an open loop
    batch_index: Any  # the batch that took it; -1: not served
    status: Any  # uint8 of `Status`
    level: Any = NONE_OF_LEVELS  # uint8, the place of its priority level; empty: no levels
    size: Any = NO_SIZES  # units; empty where nothing reads them


class Batches(NamedTuple):
    """A row for each batch, in order of start."""

    start_s: Any
    finish_s: Any
    size: Any  # requests
    server: Any  # number of the server
    trigger: Any  # uint8 of `Trigger`: why it left

    @classmethod
    def allocate(cls, count: int) -> "Batches":
        """Return empty columns of that length."""
        return cls(*(np.empty(count, kind) for kind in (float, float, np.int64, np.int64, np.uint8)))

    @classmethod
    def of(cls, log: Log) -> "Batches":
        """Return the batches of a log, or its steps."""
        columns = log.batch_start_s, log.batch_finish_s, log.batch_size, log.batch_server, log.batch_trigger
        return cls(*map(writable, columns))

    def first(self, count: int) -> "Batches":
        """Return the first `count` batches."""
        return Batches(*(column[:count] for column in self))


class Queue(NamedTuple):
    """The queue is `requests[head:tail]`, oldest first; requests before `mid` are in frozen batches."""

    requests: Any  # request numbers of the window
    frozen_size: Any  # of frozen batches, in the order in which they were frozen
    frozen_trigger: Any  # why each was frozen

    @classmethod
    def allocate(cls, count: int, freezes: bool) -> "Queue":
        """Return columns of that length; those of frozen batches are empty unless the rule freezes."""
        frozen = count if freezes else 0
        return cls(np.empty(count, np.int64), np.empty(frozen, np.int64), np.empty(frozen, np.uint8))


class Levels(NamedTuple):
    """The order of the queue in a scenario with levels or delays: see `levels`."""

    first: Any  # the first request of each list, -1: empty; list 2 * level is in time, the next one delayed
    last: Any
    after: Any  # by request: the next one of its list
    late: Any  # by request: whether it has been delayed
    here: Any  # scratch space, a place for each list
    waiting: Any  # by level: the number of waiting requests, frozen batches included
    queue: Any  # by level: an arrival that finds so many waiting is rejected
    timeout_s: Any  # by level: a request leaves or is delayed after waiting this long; inf: never
    delays: Any  # by level: whether it is delayed

    @classmethod
    def of(cls, scenario: Scenario, room: int) -> "Levels | None":
        """Return the empty queues of a scenario; None without levels and delays."""
        if not scenario.by_level:
            return None
        limits = scenario.limits
        first, last, here = (np.full(2 * len(limits), -1) for _ in range(3))
        queue = [ENDLESS if limit.queue is None else limit.queue for limit in limits]
        return cls(
            first, last, np.empty(room, np.int64), np.zeros(room, np.bool_), here,
            np.zeros(len(limits), np.int64),
            np.array(queue), np.array([limit.timeout_s for limit in limits]),
            np.array([limit.delays for limit in limits]),
        )  # fmt: skip

    def with_room(self, late: Any) -> "Levels":
        """Return the same with a row for each entry of `late`."""
        return self._replace(after=np.empty(late.size, np.int64), late=late)


class Clients(NamedTuple):
    """The clients of a closed loop that think: a heap by the time at which each sends next."""

    due_s: Any
    client: Any
    sending: Any  # scratch space: the clients that send at one instant

    @classmethod
    def allocate(cls, count: int) -> "Clients":
        """Return empty columns of that length."""
        return cls(np.empty(count), np.empty(count, np.int64), np.empty(count, np.int64))

    def send_at_once(self, cursor: np.ndarray) -> None:
        """Let all clients send at time 0; in order of their numbers they are a heap already."""
        cursor[THINKING] = self.due_s.size
        self.due_s[:], self.client[:] = 0, np.arange(self.due_s.size)


class Servers(NamedTuple):
    """The state of each server."""

    busy_until_s: Any  # inf: idle
    since_s: Any  # when its batch started
    size: Any  # of its batch, as it is computed
    clock_s: Any  # shape (2,): the last instant that was handled, and the next one that is due

    @classmethod
    def allocate(cls, count: int) -> "Servers":
        """Return empty columns of that length."""
        return cls(np.empty(count), np.empty(count), np.empty(count, np.int64), np.empty(2))


class Horizon(NamedTuple):
    """The end of a window."""

    known: int  # requests in the window: arrivals that are drawn, or rows for sends
    total: int  # requests of the run; more than `known` if another window follows
    stop: int  # the loop returns once this many have come
    closed: bool  # whether this is a closed loop
    end_s: float = -math.inf  # of one of several replicas: when the last request of the run comes, to any
    until_s: float = math.inf  # the loop returns before this time


class Limits(NamedTuple):
    """When requests are rejected or time out, and when a call pauses.

    With levels or delays, `Levels` has the first two instead.
    """

    queue: int  # an arrival that finds so many waiting is rejected
    timeout_s: float  # a request leaves after waiting this long; inf: never
    work: int  # a call pauses after this many instants, requests and batches
    size: int = ENDLESS  # an arrival that is larger is rejected


# The cursors: places in the array of whole numbers that a loop carries from call to call. They count the sent
# requests, mark the queue (its frozen part ends at MID), count the batches, mark the list of frozen
# batches, and count the clients that think. Each window resets all of them but the last.
PLACES = 8
SENT, HEAD, MID, TAIL, BATCH, FROZEN_HEAD, FROZEN_TAIL, THINKING = range(PLACES)


# The same for token generation. Its cursors, in addition to SENT, HEAD, TAIL and THINKING:
STACK, STEP, WORK = PLACES, PLACES + 1, PLACES + 2  # preempted requests; steps so far; rows and steps so far
MOST_RUNNING, MOST_TOKENS = PLACES + 3, PLACES + 4  # at once; in a step
PREEMPTION = PLACES + 5  # preemptions that are logged so far
LATER = PLACES + 6  # late gaps of this call so far
TOKEN_PLACES = PLACES + 7
SEGMENTS = 32  # see `token_gaps`
LARGEST_BLOCK = 4096  # tokens: with larger blocks there is no decode group
# Places in the sums of the step that is being scheduled. LEFT is what remains of its budget; DECODES are rows
# of one token.
ROWS, TOKENS, READS, PAIRS, PREEMPTED, LEFT, GAPS, DECODES = range(8)


class TokenLimits(NamedTuple):
    """When requests are rejected or time out, how many there are, and when a call pauses."""

    queue: int  # an arrival that finds so many waiting is rejected
    timeout_s: float  # a request leaves after waiting this long; inf: never
    work: int  # a call pauses after this many instants, steps and rows
    total: int  # requests of the run, numbered like the rows; a window may have fewer rows
    until_s: float  # the last arrival of a window, when others without a row may come, too; else inf
    logged: bool  # whether the whole row of each step is written; else some have only their finish
    end_s: float  # of one of several replicas: when the last request of the run comes, to any


class TokenRequests(NamedTuple):
    """A row for each request, in order of arrival."""

    arrival_s: Any  # seconds; a closed loop has the earliest time of each send, and writes its sends here
    think_s: Any  # how long its client thinks afterwards; empty in an open loop
    client: Any  # the client that sent it; empty in an open loop
    status: Any  # uint8 of `Status`
    prompt: Any  # tokens, as are the next three
    output: Any
    limit: Any
    cached: Any  # tokens whose keys are in memory
    generated: Any  # tokens of the output
    capacity: Any  # tokens that its blocks hold
    truncated: Any  # whether its last row computed only a part of its known tokens
    first_step: Any  # that serves it; -1: none
    token_step: Any  # at whose end it has its first token
    last_step: Any  # at whose end it leaves
    preemptions: Any
    log_entry: Any  # in `TokenQueue.log`, of its last preemption; -1: none, or it has made a token since
    back_s: Any  # when it was preempted last
    preempted_before_first_s: Any  # how long it was preempted, before its first token, and after it
    preempted_after_first_s: Any
    token_s: Any  # when it made its last token, unless it is in a decode group
    stall_s: Any  # its longest gap between two tokens so far, likewise
    segment: Any  # of its engine's `peaks`, from which on they are its own
    path: Any  # through the prefixes, and how many of its blocks are on it: see `token_memory`
    shared: Any

    @classmethod
    def of(cls, plan: TokenPlan) -> "TokenRequests":
        """Return the requests of a plan before any has come."""
        lengths = plan.prompts, plan.outputs, plan.limits
        shared = plan.prefixes.counts(plan.paths, plan.prompts, Batching.of(plan.scenario).block_size)
        return cls.before(plan.base.first_s, plan.base.think_s, *lengths, plan.paths, shared)

    @classmethod
    def before(
        cls, arrival_s: np.ndarray | None, think_s: np.ndarray | None, *columns: np.ndarray
    ) -> "TokenRequests":
        """Return requests before the run starts; without arrival times, those of a closed loop."""
        count = columns[0].size
        # A trace's arrivals are read-only, which Numba would compile everything for again.
        arrival_s = np.zeros(count) if arrival_s is None else np.require(arrival_s, requirements="W")
        first, token, last, log_entry = (np.full(count, -1, np.int64) for _ in range(4))
        sent_by = np.empty(0 if think_s is None else count, np.int64)
        prompt, output, limit, path, shared = (np.array(each) for each in columns)
        cached, generated, capacity, preemptions = (np.zeros(count, np.int64) for _ in range(4))
        back_s, before_first_s, after_first_s, token_s, stall_s = (np.zeros(count) for _ in range(5))
        return cls(
            arrival_s, NONE if think_s is None else think_s, sent_by, np.zeros(count, np.uint8),
            prompt, output, limit, cached, generated, capacity, np.zeros(count, np.bool_), first, token, last,
            preemptions, log_entry, back_s, before_first_s, after_first_s, token_s, stall_s,
            np.zeros(count, np.int64), path, shared,
        )  # fmt: skip

    def with_more(self, kept: np.ndarray, more: "TokenRequests") -> "TokenRequests":
        """Return the rows `kept`, and `more` behind them."""
        pairs = zip(self, more, strict=True)
        return TokenRequests(*(np.append(one[kept] if one.size else one, other) for one, other in pairs))


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


class TokenServers(NamedTuple):
    """The state of each engine."""

    busy_until_s: Any  # inf: idle
    step: Any  # the number of its present or last step
    running: Any  # requests in order of admission, shape (servers, seats)
    count: Any  # requests that run
    free: Any  # blocks
    generated: Any  # tokens that each request of a whole batch has by now
    longest: Any  # prompt of a whole batch
    last: Any  # longest output of a whole batch
    ready: Any  # requests of the decode group, at the head of `running`: see `token_steps`
    tick: Any  # steps that have served the group
    next_end: Any  # the tick at which its first request ends
    phase: Any  # the tick modulo the block size
    block_demand_by_phase: Any  # blocks that the group needs in each phase, shape (servers, block size)
    reads: Any  # keys that the group reads in its next step
    served: Any  # whether the present step serves the group
    clock_s: Any  # shape (1,): the last instant that was handled
    ended_s: Any  # when its last step ended
    tick_s: Any  # when the group made its last tokens, and how many of its requests made one then
    aged: Any
    # The longest gap of the group in each segment, shape (servers, SEGMENTS). A request that joins begins a
    # segment: its longest gap is the largest of those from its own on.
    peaks_s: Any
    segments: Any
    memory: TokenMemory

    @classmethod
    def allocate(cls, servers: int, seats: int, batching: Batching, memory: TokenMemory) -> "TokenServers":
        """Return idle engines."""
        step, count, generated, longest, last, ready, tick, phase, reads = np.zeros((9, servers), np.int64)
        ended_s, tick_s, peaks_s = np.zeros(servers), np.zeros(servers), np.zeros((servers, SEGMENTS))
        free, next_end = (np.full(servers, of, np.int64) for of in (batching.kv_blocks, 2**62))
        size = min(batching.block_size, LARGEST_BLOCK)
        return cls(
            np.full(servers, np.inf), step, np.empty((servers, seats), np.int64), count, free, generated,
            longest, last, ready, tick, next_end, phase, np.zeros((servers, size), np.int64), reads,
            np.zeros(servers, np.bool_), np.full(1, -np.inf), ended_s, tick_s,
            np.zeros(servers, np.int64), peaks_s, np.zeros(servers, np.int64), memory,
        )  # fmt: skip


class Steps(NamedTuple):
    """A row for each step; steps are numbered through, and the chunk begins with number `first`."""

    first: int
    noise: Any  # factor by row; empty: none
    start_s: Any
    finish_s: Any
    rows: Any
    server: Any
    trigger: Any  # uint8
    tokens: Any
    reads: Any
    pairs: Any
    running: Any
    waiting: Any
    blocks: Any
    preempted: Any
    gaps: Any
    late: Any  # the rows of `LATE` as numbers, a column each; as many as one instant may add must be free

    @classmethod
    def allocate(cls, count: int, first: int, noise: np.ndarray, at_once: int) -> "Steps":
        """Return empty columns of that length."""
        kinds = {"batch_start_s": float, "batch_finish_s": float, "batch_trigger": np.uint8}
        columns = (np.empty(count, kinds.get(name, np.int64)) for name in STEPS)
        return cls(first, noise, *(*columns, np.empty((len(LATE), count + at_once))))
