"""The same metrics of every section of a run, from which intervals are made.

A section is a stretch of a run: equally many requests each, or whole periods of a day, one after the other.
(The field says batch, as in "batch means"; a batch is something else here.) Replications serve as sections
too: independent ones.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from typing import Any

import numpy as np

from batchsim.engines.log import Log, Status
from batchsim.engines.totals import Totals
from batchsim.result.breakdown import DeviceTime, ServerTime
from batchsim.result.metrics import LATENCY, Metrics, values
from batchsim.scenario.rules import Trigger

FINE = 64  # sections that a run is cut into; fewer and longer ones are merged from these


def _totals(kind: type[Totals], column: Callable[[str], Any]) -> Totals:
    return kind(**{f.name: column(f.name) for f in fields(kind)})


@dataclass(frozen=True, eq=False)
class Sections:
    """The totals of each section, arrays whose first axis is the sections.

    `within(limit_ms, column)` counts the requests of each section whose value in a column, as "latency_ms",
    is at most that.
    """

    servers: int
    devices: int
    totals: Totals
    within: Callable[[float, str], np.ndarray]
    _merged: dict[int, "Sections"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Every merging of the sections asks for the same counts again.
        object.__setattr__(self, "within", cache(self.within))

    @classmethod
    def of_runs(cls, runs: Sequence[Metrics]) -> "Sections":

        def within(limit_ms: float, column: str) -> np.ndarray:
            return np.array([run.columns[column].within(limit_ms) for run in runs])

        totals = _totals(
            type(runs[0].totals), lambda name: np.array([getattr(run.totals, name) for run in runs])
        )
        scenario = runs[0].scenario
        return cls(scenario.servers, scenario.device_count, totals, within)

    @classmethod
    def of_log(
        cls, log: Log, server_time: ServerTime, device_time: DeviceTime, servers: int, skip: int,
        columns: Mapping[str, np.ndarray], delayed: np.ndarray | None = None, ends: np.ndarray | None = None,
    ) -> "Sections":  # fmt: skip
        """Return the sections of a run without its first `skip` requests; `columns` have a row a request.

        `delayed`: whether each request was; None: none was. `ends`: where sections end, see `Periods.ends`.

        A section's window runs from its first arrival (0 for request 0) to the next section's, the last
        one's to the last finish.
        """
        from batchsim.engines.compiled import fold  # Numba loads with it

        cuts = cut(skip, log.arrival_s.size, ends)
        edges_s = log.arrival_s[np.minimum(cuts, log.arrival_s.size - 1)]
        if cuts[0] == 0:
            edges_s[0] = 0.0
        edges_s[-1] = log.batch_finish_s.max(initial=edges_s[0])
        edges_s = np.minimum(edges_s, edges_s[-1])  # requests after the last finish are not served
        # A batch is inside if it begins inside, a finish if it is; those at the very end are inside too.
        begun = np.searchsorted(log.batch_start_s, edges_s)
        begun[-1] = log.batch_start_s.size
        ends_s, sizes = log.batch_finish_s, log.batch_size
        if servers > 1:
            order = np.argsort(ends_s, kind="stable")
            ends_s, sizes = ends_s[order], sizes[order]
        over = np.searchsorted(ends_s, edges_s)
        over[-1] = ends_s.size
        if serves_all(log):
            statuses = np.zeros((cuts.size - 1, len(Status)), np.intp)
            statuses[:, Status.SERVED] = np.diff(cuts)
        else:
            statuses = counts(log.status, cuts, len(Status))
        times_s = server_time.times_s
        idle = server_time.idle_until_start_s(log), times_s, server_time.idle_s, server_time.slope
        # One compiled pass, which adds in one order whichever engine ran: equal sums to the last bit. Columns
        # are passed as writable, as a trace's are not: else Numba compiles once more for read-only ones.
        rows = (log.arrival_s, log.batch_index, log.batch_start_s, log.batch_finish_s, device_time.wait_s)
        parts_s = np.zeros((cuts.size - 1, 5))
        fold.sum_parts(*(np.require(row, requirements="W") for row in rows), *idle, cuts, parts_s)
        totals = Totals(
            requests=np.diff(cuts), statuses=statuses, parts_s=parts_s[:, :4], finished=sums(sizes, over),
            busy_s=np.diff(np.interp(edges_s, times_s, server_time.busy_s)),
            window_s=np.diff(edges_s), batches=np.diff(begun), items=sums(log.batch_size, begun),
            triggers=counts(log.batch_trigger, begun, len(Trigger)),
            delayed=np.zeros(cuts.size - 1, np.intp) if delayed is None else sums(delayed, cuts),
            device_wait_s=parts_s[:, 4], off_device_s=device_time.off_s(edges_s),
        )  # fmt: skip

        def within(limit_ms: float, column: str) -> np.ndarray:
            return sums(columns[column] <= limit_ms, cuts)

        return cls(servers, device_time.devices, totals, within)

    @property
    def size(self) -> int:
        return int(self.totals.window_s.size)

    @cached_property
    def numbers(self) -> dict[str, np.ndarray]:
        return values(self.totals, self.servers, self.devices)

    @property
    def served(self) -> np.ndarray:
        return self.totals.statuses[:, Status.SERVED]

    def values_in(self, column: str) -> np.ndarray:
        """Return how many requests of each section have a value in a column."""
        return self.served if column == LATENCY else self.within(math.inf, column)

    def all_in(self, column: str) -> np.ndarray:
        """Return how many requests of each section have a value, infinite for those not served."""
        return self.totals.requests - self.served + self.values_in(column)

    def whole(self) -> Totals:
        return _totals(type(self.totals), lambda name: getattr(self.merged(1).totals, name)[0])

    def merged(self, count: int) -> "Sections":
        """Return `count` sections, each of several neighbours."""
        if count not in self._merged:

            def added(column: np.ndarray) -> np.ndarray:
                return column.reshape(count, -1, *column.shape[1:]).sum(axis=1)

            def within(limit_ms: float, column: str) -> np.ndarray:
                return added(self.within(limit_ms, column))

            totals = _totals(type(self.totals), lambda name: added(getattr(self.totals, name)))
            self._merged[count] = Sections(self.servers, self.devices, totals, within)
        return self._merged[count]


def cut(begin: int, end: int, ends: np.ndarray | None) -> np.ndarray:
    """Return at which requests sections begin, and the last one's end: at `ends`, or equally many in each."""
    if ends is None:
        return np.linspace(begin, end, FINE + 1).astype(int)
    return np.round(begin + (end - begin) * ends).astype(int)


def serves_all(log: Log) -> bool:
    """Return whether every request of a run was served."""
    return int(log.batch_size.sum()) == log.arrival_s.size


def sums(column: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Return the sum of each section of a column, 0 for an empty one."""
    sums = np.zeros(cuts.size - 1, np.intp if column.dtype == bool else column.dtype)
    filled = cuts[:-1] < cuts[1:]  # of an empty section `reduceat` would return the next one's first value
    if filled.any():
        sums[filled] = np.add.reduceat(column[: cuts[-1]], cuts[:-1][filled], dtype=sums.dtype)
    return sums


def counts(column: np.ndarray, cuts: np.ndarray, kinds: int) -> np.ndarray:
    """Return how often each of 0..kinds-1 occurs in each section, shape (sections, kinds)."""
    sections = cuts.size - 1
    section = np.repeat(np.arange(sections), np.diff(cuts))
    counts = np.bincount(section * kinds + column[cuts[0] : cuts[-1]], minlength=sections * kinds)
    return counts.reshape(sections, kinds)
