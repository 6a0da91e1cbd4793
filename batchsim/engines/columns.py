"""What the compiled loops are given: columns and numbers under their names.

The loops take these tuples in place of dozens of arguments by position. Arrays are written to in place;
an empty array stands for "there is none", so that a loop has one type whether there is one or not.
"""

from typing import Any, NamedTuple

import numpy as np

from batchsim.scenario import Scenario

ENDLESS = np.iinfo(np.int64).max
NONE, NONE_OF_LEVELS = np.empty(0), np.empty(0, np.uint8)


class Devices(NamedTuple):
    """Devices that servers share: `Scenario.devices`, with what a run knows of them."""

    free_s: Any  # when each has computed all batches that have started; empty: plain servers, no host part
    host_s: float  # what a batch takes of its service time before it needs the device
    contention: float  # factor on the rest for a batch that finds the device busy

    @classmethod
    def of(cls, scenario: Scenario) -> "Devices":
        """Return a scenario's devices at the start of a run: empty where they make no difference."""
        free_s = np.zeros(0 if scenario.plain_servers else scenario.device_count)
        return cls(free_s, scenario.host_ms / 1000, float(scenario.contention))


class Cold(NamedTuple):
    """What a model has still to compile: `Service.compiling`."""

    compile_s: Any  # by batch size, what its shape takes; empty: nothing compiles
    shape: Any  # by batch size, the number of its shape
    ready_s: Any  # by number of a shape, when it is, or was, compiled; inf: not even begun

    @classmethod
    def of(cls, cold_start: tuple[np.ndarray, np.ndarray] | None) -> "Cold":
        """Return what is to be compiled at the start of a run."""
        seconds, shapes = (NONE, NONE) if cold_start is None else cold_start
        different, numbers = np.unique(shapes, return_inverse=True)
        return cls(seconds, numbers, np.full(different.size, np.inf))


class Costs(NamedTuple):
    """How long batches compute: finish = start + service_s[size] * noise[batch] * slowdown[busy].

    The first of a new shape starts later by `cold.compile_s`. On shared devices, see
    `kernels.finish_on_device`.
    """

    service_s: Any  # mean seconds by batch size; [0] is NaN
    noise: Any  # factor by batch number; empty: none
    slowdown: Any  # factor by the number of busy servers, this one included; empty: none
    devices: Devices
    cold: Cold

    @classmethod
    def of(cls, service_s: Any, noise: Any, slowdown: Any, devices: Devices, cold: Cold) -> "Costs":
        """Return the costs, None for what there is not."""
        slowdown = NONE if slowdown is None else slowdown
        return cls(service_s, NONE if noise is None else noise, slowdown, devices, cold)


class Requests(NamedTuple):
    """A row a request of the window, in arrival order."""

    arrival_s: Any  # seconds; a closed loop writes its sends here
    think_s: Any  # seconds of thought that follow each send; empty in an open loop
    client: Any  # which client sent it; empty in an open loop
    batch_index: Any  # the batch that took it, -1 for none
    status: Any  # uint8 of `Status`
    level: Any = NONE_OF_LEVELS  # uint8, the place of its priority level; empty: no levels


class Batches(NamedTuple):
    """A row a batch, in order of start."""

    start_s: Any
    finish_s: Any
    size: Any  # requests
    server: Any  # number of the server
    trigger: Any  # uint8 of `Trigger`: why it left

    @classmethod
    def room_for(cls, count: int) -> "Batches":
        """Return columns of that length, to be written to."""
        return cls(*(np.empty(count, kind) for kind in (float, float, np.int64, np.int64, np.uint8)))


class Queue(NamedTuple):
    """Who waits, oldest first: `requests[head:tail]`, those before `mid` in frozen batches."""

    requests: Any  # request numbers of the window
    frozen_size: Any  # of frozen batches, in the order in which they were frozen
    frozen_trigger: Any  # why each was frozen

    @classmethod
    def room_for(cls, count: int, freezes: bool) -> "Queue":
        """Return columns of that length; frozen batches have room only under a rule that freezes."""
        frozen = count if freezes else 0
        return cls(np.empty(count, np.int64), np.empty(frozen, np.int64), np.empty(frozen, np.uint8))


class Levels(NamedTuple):
    """Who goes first, where levels or delays say so: see `kernels_levels`."""

    first: Any  # the first request of each list, -1 for none: levels in time and delayed by turns
    last: Any
    after: Any  # by request: the next one of its list
    late: Any  # by request: whether it has been delayed
    here: Any  # to work in: as many as there are lists
    waiting: Any  # by level: how many wait, frozen batches included
    queue: Any  # by level: an arrival that finds this many waiting is rejected
    timeout_s: Any  # by level: a request leaves or is delayed after waiting this long; inf: never
    delays: Any  # by level: whether it is delayed

    @classmethod
    def of(cls, scenario: Scenario, room: int) -> "Levels | None":
        """Return the queues of a scenario for so many requests; None without levels and delays."""
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
        """Return the same for as many requests as `late` has."""
        return self._replace(after=np.empty(late.size, np.int64), late=late)


class Clients(NamedTuple):
    """The clients of a closed loop that think: a heap by the time at which each will send."""

    due_s: Any
    client: Any
    sending: Any  # to work in: the clients that send at one instant

    @classmethod
    def room_for(cls, count: int) -> "Clients":
        """Return columns of that length, to be written to."""
        return cls(np.empty(count), np.empty(count, np.int64), np.empty(count, np.int64))

    def send_at_once(self, at: np.ndarray) -> None:
        """Let all clients send at time 0, in their order, which is a heap already."""
        at[THINKING] = self.due_s.size
        self.due_s[:], self.client[:] = 0, np.arange(self.due_s.size)


class Servers(NamedTuple):
    """What each server computes."""

    busy_until_s: Any  # inf for an idle one
    since_s: Any  # when its batch started
    size: Any  # of its batch, as it is computed
    clock_s: Any  # shape (1,): the last instant that was handled

    @classmethod
    def room_for(cls, count: int) -> "Servers":
        """Return columns of that length, to be written to."""
        return cls(np.empty(count), np.empty(count), np.empty(count, np.int64), np.empty(1))


class Horizon(NamedTuple):
    """How far a window reaches."""

    known: int  # requests in the window: arrivals that are known, or room for sends
    total: int  # requests that come in all; more than `known` where another window follows
    stop: int  # return once this many have come
    closed: bool  # whether this is a closed loop


class Limits(NamedTuple):
    """When requests are turned away, or give up, and when a call pauses.

    Where there are levels or delays, `Levels` has the first two.
    """

    queue: int  # an arrival that finds this many waiting is rejected
    timeout_s: float  # a request leaves after waiting this long; inf: never
    work: int  # a call pauses after this many instants, requests and batches


# Places in the array of whole numbers that the instants' loop carries from call to call.
# All before THINKING are set anew for each window.
PLACES = 8
SENT, HEAD, MID, TAIL, BATCH, FROZEN_HEAD, FROZEN_TAIL, THINKING = range(PLACES)
