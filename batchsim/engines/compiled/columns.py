"""The arguments of the compiled loops: named tuples of columns and numbers.

The loops write to the arrays in place. An array is empty if a scenario has no such thing (no noise, no
clients), so the types are the same for all scenarios, and Numba compiles each loop once.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from batchsim.engines.draws import NO_SIZES as NO_SIZES
from batchsim.engines.log import Log
from batchsim.scenario import Scenario
from batchsim.scenario.sized_time import UnitCost

ENDLESS = np.iinfo(np.int64).max
NONE, NONE_OF_LEVELS = np.empty(0), np.empty(0, np.uint8)


def writable(column: np.ndarray) -> np.ndarray:
    """Return a column that may be written to: Numba compiles a loop once more for read-only ones."""
    return column if column.flags.writeable else column.copy()


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
