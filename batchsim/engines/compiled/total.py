"""The totals of a run: Python's side of the loops in `sums`, for a log or window after window."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from batchsim._clock import PER_S, WHOLE
from batchsim.engines.compiled.columns import ENDLESS, NO_SIZES, NONE, Batches, Cold, Requests, writable
from batchsim.engines.compiled.engine import of_requests, places_of
from batchsim.engines.compiled.sums import (
    Parts,
    Past,
    add_batches,
    add_others,
    add_units,
    note_devices,
    note_units,
    write_line,
)
from batchsim.engines.log import Log
from batchsim.engines.totals import Totals
from batchsim.scenario import Scenario
from batchsim.scenario.sized_time import unit_cost

IN_TICKS = ("parts_s", "busy_s", "device_wait_s", "off_device_s", "joules")
NO_CUTS = NO_COUNTS = np.empty(0, np.int64)
NO_REPLICA = np.empty(0, np.uint16)


class Units(NamedTuple):
    """A row for each batch: the units that its requests carry, those that it computes, and its shape."""

    carried: np.ndarray
    computed: np.ndarray
    place: np.ndarray  # in the columns of `Cold`

    @classmethod
    def of(cls, scenario: Scenario, rows: Any, batch_size: np.ndarray) -> "Units | None":
        """Return those of batches with all their requests, rows of a log or a window; None without sizes.

        Sizes that change no time count as none.
        """
        cost = unit_cost(scenario.service, scenario.rule.max_batch_size)
        if not cost.rows.size:
            return None
        found = np.empty((4, batch_size.size), np.int64)
        note_units(*map(writable, (rows.batch_index, rows.size, batch_size)), cost, scenario.cut_to, *found)
        return cls(*found[1:])


class DeviceTimes(NamedTuple):
    """A row for each batch, in seconds."""

    ready_s: np.ndarray  # when its shape has been compiled: at its start, or later
    asked_s: np.ndarray  # when its host part is over
    begin_s: np.ndarray  # when it has its device

    @property
    def wait_s(self) -> np.ndarray:
        return self.begin_s - self.asked_s


class DeviceClock:
    """When batches have their devices, window after window of a run."""

    def __init__(self, scenario: Scenario, known: bool = True, cold: bool = True) -> None:
        """`known`: whether the devices are; else no batch waits for one. `cold`: whether shapes compile."""
        largest, plain = scenario.rule.max_batch_size, scenario.plain_servers or not known
        shapes = Cold.of(scenario.service.cold_start(largest) if cold else None)
        self.at_once = plain and not shapes.compile_s.size
        if self.at_once:
            return
        self.cold = shapes._replace(ready_s=np.tile(shapes.ready_s, (scenario.most_replicas, 1)))
        self.free_s = np.zeros((scenario.most_replicas, 0 if plain else scenario.device_count))
        self.servers, self.host_s = scenario.servers, scenario.host_ms / 1000

    def of(self, batches: Any, units: Units | None) -> DeviceTimes:
        """Return those of the next batches."""
        if self.at_once:
            return DeviceTimes(batches.start_s, batches.start_s, batches.start_s)
        found = np.empty((3, batches.start_s.size))
        place = batches.size if units is None else units.place
        columns = map(writable, (batches.start_s, batches.finish_s, batches.server, place))
        note_devices(*columns, self.servers, self.cold, self.free_s, self.host_s, *found)
        return DeviceTimes(*found)


class Total:
    """The totals of a run of requests, window after window of its batches."""

    def __init__(
        self, scenario: Scenario, edges_s: np.ndarray, in_turn: bool, histogram: np.ndarray = NO_COUNTS
    ) -> None:
        """`edges_s` are the times at which parts begin, and the end of the last one, which is not read.

        `in_turn`: requests are served in order of arrival, and who stays behind at a start has found no idle
        server, as under a threshold rule.
        """
        self.scenario = scenario
        self._records = Totals.records(edges_s.size)  # the last row takes the warm-up
        self.sums = self._records.view(np.recarray)
        self.last_s = 0.0  # the last finish
        edges, watts = edges_s * PER_S + WHOLE, NONE
        edges[-1] = math.inf
        if (watts_at := scenario.watts_at) is not None:
            watts = watts_at(np.arange(scenario.rule.max_batch_size + 1)).astype(float)
        self.parts = Parts(NO_CUTS, edges, self.sums, histogram, watts)
        started = np.full((scenario.most_replicas, 3), WHOLE)
        started[:, 1] = 0.0
        self.past = Past(np.full(scenario.all_servers, WHOLE), started, np.zeros(1, np.int64))
        self.idle_at = None if in_turn else np.empty(0)

    def add(
        self, requests: Requests, batches: Batches, cuts: np.ndarray,
        times: DeviceTimes, units: Units | None, replica: np.ndarray = NO_REPLICA,
    ) -> None:  # fmt: skip
        """Add the batches of a window, and its requests from cuts[p] to cuts[p + 1] to part p."""
        line = begins = None
        came = requests.arrival_s.size
        if self.idle_at is not None:
            line, begins = (np.empty(count, np.int64) for count in (came, batches.size.size + 1))
            write_line(requests.batch_index, line, begins)
            if (lacking := came - self.idle_at.size) > 0:
                self.idle_at = np.append(self.idle_at, np.empty(lacking))
        at_once = times.begin_s is times.ready_s
        asked_s, begin_s = (NONE, NONE) if at_once else times[1:]
        add_batches(
            line, begins, self.idle_at, requests.arrival_s, replica, self.scenario.servers, batches,
            asked_s, begin_s, self.past, self.parts._replace(cuts=np.append(cuts[:-1], ENDLESS)),
        )  # fmt: skip
        if units is not None:
            add_units(batches.start_s, units.carried, units.computed, self.parts.edges, self.sums)
        if self.idle_at is not None or requests.size.size:
            delay_s, limit = delays_s(self.scenario.limits), self.scenario.rule.largest_size
            add_others(requests, batches, delay_s, limit, cuts, self.sums)
        self.last_s = max(self.last_s, float(batches.finish_s.max(initial=0.0)))

    def keep(self, left: np.ndarray) -> None:
        """Keep what is known of the requests that wait: they are the first rows of the next window."""
        if self.idle_at is not None:
            self.idle_at[: left.size], self.past.came[0] = self.idle_at[left], left.size

    def take(self, other: "Total") -> None:
        """Add the sums of another replica."""
        for name in Totals.forms():
            self._records[name] += other._records[name]
        self.last_s = max(self.last_s, other.last_s)

    def whole(self, requests: Any, window_s: Any) -> Totals:
        """Return the totals of a run that is over: the requests and the seconds of each part."""
        totals = Totals.of(self._records[:-1].copy())
        latency, forming, queueing, computing = totals.parts_s.T
        # Sums above 104 days are rounded, so that nothing may remain as a little less than 0.
        queueing[:] = np.maximum(latency - forming - computing - totals.device_wait_s, 0.0)
        for name in IN_TICKS:
            getattr(totals, name)[:] /= PER_S
        totals.requests[:], totals.window_s[:] = requests, window_s
        return totals


def sums_of(
    log: Log, scenario: Scenario, edges_s: np.ndarray, cuts: np.ndarray, times: DeviceTimes,
    units: Units | None, in_turn: bool = False, histogram: np.ndarray = NO_COUNTS,
) -> Total:  # fmt: skip
    """Return the sums of a log over parts that begin at `cuts`."""
    total = Total(scenario, edges_s, in_turn, histogram)
    arrival_s, index, status = map(writable, (log.arrival_s, log.batch_index, log.status))
    size = NO_SIZES if log.size is None else writable(log.size)
    rows = of_requests(arrival_s, None, index, status, places_of(scenario, log.priority, log.requests), size)
    replica = NO_REPLICA if log.replica is None else writable(log.replica)
    total.add(rows, Batches.of(log), cuts, times, units, replica)
    return total


def delays_s(limits: Sequence[Any]) -> np.ndarray:
    """Return after how long a request of each level is delayed, inf for never; empty if no level delays."""
    if not any(limit.delays for limit in limits):
        return NONE
    return np.array([limit.timeout_s if limit.delays else math.inf for limit in limits])
