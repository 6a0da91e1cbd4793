"""What the compiled loops of token generation are given, under names; see `columns`."""

from typing import Any, NamedTuple

import numpy as np

from batchsim.engines.columns import NONE, PLACES
from batchsim.engines.tokens_log import STEPS, Batching, TokenPlan

# Places, beside SENT, HEAD, TAIL and THINKING, in the array that the loop carries from call to call.
STACK, STEP, WORK = PLACES, PLACES + 1, PLACES + 2  # preempted requests; steps so far; rows and steps so far
MOST_RUNNING, MOST_TOKENS = PLACES + 3, PLACES + 4  # at once; in a step
TOKEN_PLACES = PLACES + 5
LARGEST_BLOCK = 4096  # tokens: with larger blocks all requests are looked at one by one
# Places in the sums of the step that is being scheduled.
ROWS, TOKENS, READS, PAIRS, PREEMPTED, LEFT = range(6)


class TokenLimits(NamedTuple):
    """When requests are turned away, or give up, how many there are, and when a call pauses.

    The rows may be those of a window, with more requests to come than it has rows for.
    """

    queue: int  # an arrival that finds this many waiting is rejected
    timeout_s: float  # a request leaves after waiting this long; inf: never
    work: int  # a call pauses after this many instants, steps and rows
    total: int  # requests that come in all, counted as the rows are
    until_s: float  # of a window: its last arrival, at which others may come that it has no row for; else inf
    logged: bool  # whether every step has a whole row; else some have nothing but their end


class TokenRequests(NamedTuple):
    """A row a request, in arrival order."""

    arrival_s: Any  # seconds; a closed loop writes its sends here
    think_s: Any  # seconds of thought that follow each send; empty in an open loop
    client: Any  # which client sent it; empty in an open loop
    status: Any  # uint8 of `Status`
    prompt: Any  # tokens, as are the next three
    output: Any
    limit: Any
    held: Any  # in memory
    made: Any  # of the output
    room: Any  # tokens that its blocks have room for
    cut: Any  # whether its last row left some of what is known
    first_step: Any  # that serves it; -1: none
    token_step: Any  # at whose end it has its first token
    last_step: Any  # at whose end it leaves
    preemptions: Any
    back_s: Any  # when it was preempted last
    before_s: Any  # how long it was, before its first token, and after it
    after_s: Any

    @classmethod
    def of(cls, plan: TokenPlan) -> "TokenRequests":
        """Return the requests of a plan before any has come."""
        return cls.before(plan.base.arrival_s, plan.base.think_s, plan.prompts, plan.outputs, plan.limits)

    @classmethod
    def before(
        cls, arrival_s: np.ndarray | None, think_s: np.ndarray | None, *lengths: np.ndarray
    ) -> "TokenRequests":
        """Return requests of which none has come; without arrival times those of a closed loop."""
        count = lengths[0].size
        # Writable, as a trace's are not: else Numba compiles everything once more for read-only ones.
        arrival_s = np.empty(count) if arrival_s is None else np.require(arrival_s, requirements="W")
        first, token, last = (np.full(count, -1, np.int64) for _ in range(3))
        # A closed loop's clients, and the lengths, writable too.
        sent_by = np.empty(0 if think_s is None else count, np.int64)
        prompt, output, limit = (np.array(each) for each in lengths)
        held, made, room, preemptions = (np.zeros(count, np.int64) for _ in range(4))
        back_s, before_s, after_s = (np.zeros(count) for _ in range(3))
        return cls(
            arrival_s, NONE if think_s is None else think_s, sent_by, np.zeros(count, np.uint8),
            prompt, output, limit, held, made, room, np.zeros(count, np.bool_), first, token, last,
            preemptions, back_s, before_s, after_s,
        )  # fmt: skip

    def with_more(self, kept: np.ndarray, more: "TokenRequests") -> "TokenRequests":
        """Return some of these rows, and more behind them."""
        pairs = zip(self, more, strict=True)
        return TokenRequests(*(np.append(one[kept] if one.size else one, other) for one, other in pairs))


class Line(NamedTuple):
    """Who waits: the preempted before all others, the last of `stack` first; then `requests[head:tail]`."""

    requests: Any
    stack: Any


class TokenServers(NamedTuple):
    """What each engine does."""

    busy_until_s: Any  # inf: no step is under way
    step: Any  # the number of its present or last step
    running: Any  # requests in order of admission, shape (servers, seats)
    count: Any  # how many run
    free: Any  # blocks
    made: Any  # tokens that each of a whole batch has by now
    longest: Any  # prompt of a whole batch
    last: Any  # the most tokens that one of a whole batch makes
    ready: Any  # how many at the head of `running` are counted together, see `kernels_tokens`
    tick: Any  # steps that have served these
    next_end: Any  # the tick at which the first of them ends
    phase: Any  # the tick modulo the block size
    edges: Any  # how many of them need a block in each phase, shape (servers, block size)
    reads: Any  # their keys read in the next step
    served: Any  # whether the present step serves them
    clock_s: Any  # shape (1,): the last instant that was handled

    @classmethod
    def room_for(cls, servers: int, seats: int, batching: Batching) -> "TokenServers":
        """Return idle engines."""
        step, count, made, longest, last, ready, tick, phase, reads = np.zeros((9, servers), np.int64)
        free, next_end = (np.full(servers, of, np.int64) for of in (batching.kv_blocks, 2**62))
        size = min(batching.block_size, LARGEST_BLOCK)
        return cls(
            np.full(servers, np.inf), step, np.empty((servers, seats), np.int64), count, free, made, longest,
            last, ready, tick, next_end, phase, np.zeros((servers, size), np.int64), reads,
            np.zeros(servers, np.bool_), np.full(1, -np.inf),
        )  # fmt: skip


class Steps(NamedTuple):
    """A row a step; steps are numbered through, the chunk begins with number `first`."""

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

    @classmethod
    def room_for(cls, count: int, first: int, noise: np.ndarray) -> "Steps":
        """Return columns of that length, to be written to."""
        kinds = {"batch_start_s": float, "batch_finish_s": float, "batch_trigger": np.uint8}
        return cls(first, noise, *(np.empty(count, kinds.get(name, np.int64)) for name in STEPS))
