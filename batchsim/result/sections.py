"""The metrics of every section of a run: intervals are made from these.

A section is a stretch of a run: equally many requests each, or whole periods of a day, one after the other.
(The field says batch, as in "batch means"; a batch is something else here.) Replications serve as sections
too: independent ones.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from batchsim._clock import in_ms
from batchsim._compat import bincount, kept, reduceat
from batchsim.engines.autoscaling import add_scaling
from batchsim.engines.log import Log, Status
from batchsim.engines.totals import Totals, grouped
from batchsim.result.metrics import ITL, LATENCY, Metrics, Of, value_of
from batchsim.result.value_columns import Columns
from batchsim.scenario import Scenario

FINE = 64  # sections that a run is cut into; fewer and longer ones are merged from these


@dataclass(frozen=True, eq=False)
class Sections:
    """The totals of each section, arrays whose first axis is the sections.

    `within(limits_ms, column)` counts the requests of each section whose value in a column, as "latency_ms",
    is at most each limit, shape (sections, limits).
    """

    scenario: Scenario
    totals: Totals
    within: Callable[[Sequence[float] | np.ndarray, str], np.ndarray]
    _grouped: dict[tuple[int, ...], "Sections"] = field(default_factory=dict)

    @classmethod
    def of_runs(cls, runs: Sequence[Metrics]) -> "Sections":
        """Return replications as sections."""

        def within(limits_ms: Sequence[float] | np.ndarray, column: str) -> np.ndarray:
            return np.array(
                [[run.columns[column].within(limit_ms) for limit_ms in limits_ms] for run in runs]
            )

        table, every = type(runs[0].totals), [run.totals for run in runs]
        totals = table(**{name: np.array([getattr(each, name) for each in every]) for name in table.forms()})
        return cls(runs[0].scenario, totals, within)

    @classmethod
    def of_columns(
        cls, scenario: Scenario, totals: Totals, columns: Mapping[str, np.ndarray], cuts: np.ndarray,
        edges_s: Any = None, gaps: Any = None,
    ) -> "Sections":  # fmt: skip
        """Return the sections of a run from cut to cut; `columns` have a row a request.

        `gaps` between tokens are in the section in which they end, by `edges_s`.
        """
        from batchsim.engines.compiled.columns import writable  # Numba loads with it
        from batchsim.engines.compiled.passes import count_within

        def within(limits_ms: Sequence[float] | np.ndarray, column: str) -> np.ndarray:
            counts = np.empty((cuts.size - 1, len(limits_ms)), np.int64)
            if column != ITL:
                count_within(writable(columns[column]), cuts, np.array(limits_ms, float), counts)
                return counts
            gap_ms = in_ms(gaps.gap_s)
            part = np.minimum(np.searchsorted(edges_s, gaps.at_s), cuts.size - 1) - 1
            for place, limit_ms in enumerate(limits_ms):
                counts[:, place] = bincount(part, gaps.counts * (gap_ms <= limit_ms), cuts.size - 1)
            return counts

        return cls(scenario, totals, within)

    @classmethod
    def of_log(
        cls, run: Any, log: Log, skip: int, columns: Mapping[str, np.ndarray], ends: np.ndarray | None = None
    ) -> "Sections":
        """Return the sections of a run's log, or of some of its requests: see `section_edges`."""
        from batchsim.engines.compiled.total import sums_of  # Numba loads with it

        cuts, edges_s = section_edges(log, skip, ends)
        total = sums_of(log, run.scenario, edges_s, cuts, run.device_time, run.units, run.serves_in_turn)
        totals = total.whole(cuts[1:] - cuts[:-1], edges_s[1:] - edges_s[:-1])
        add_scaling(totals, run.scenario, log, edges_s)
        if not run.knows_devices:
            totals.off_device_s[:] = math.nan
        return cls.of_columns(run.scenario, totals, columns, cuts)

    @property
    def size(self) -> int:
        return int(self.totals.window_s.size)

    @kept
    def numbers(self) -> Mapping[str, np.ndarray]:
        """The metrics of each section, each made on first use."""
        quiet = np.errstate(divide="ignore", invalid="ignore")  # NaN where there is nothing to average
        of = quiet(Of)(self.totals, self.scenario)
        return Columns({}, quiet(lambda key: np.asarray(value_of(key, of))))

    @property
    def served(self) -> np.ndarray:
        return self.totals.statuses[:, Status.SERVED]

    def values_in(self, column: str) -> np.ndarray:
        """Return how many requests of each section have a value in a column."""
        return self.served if column == LATENCY else self.within([math.inf], column)[:, 0]

    def all_in(self, column: str) -> np.ndarray:
        """Return how many requests of each section have a value, infinite for those not served."""
        values = self.values_in(column)
        return values if column == ITL else self.totals.requests - self.served + values

    def whole(self) -> Totals:
        return self.totals.whole()

    def grouped(self, *counts: int) -> "Sections":
        """Return sections of several neighbours each: as many as `counts`, one group after the other."""
        if counts not in self._grouped:

            def within(limits_ms: Sequence[float] | np.ndarray, column: str) -> np.ndarray:
                return grouped(self.within(limits_ms, column), counts)

            self._grouped[counts] = Sections(self.scenario, self.totals.grouped(counts), within)
        return self._grouped[counts]


def cut(begin: int, end: int, ends: np.ndarray | None) -> np.ndarray:
    """Return at which requests sections begin, and the last one's end: at `ends`, or equally many in each."""
    if ends is None:
        return begin + (end - begin) * np.arange(FINE + 1) // FINE
    return np.round(begin + (end - begin) * ends).astype(np.int64)


def section_edges(log: Any, skip: int, ends: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the requests at which sections begin, and the times, each with the end of the last one.

    A section's window runs from its first arrival (0 for request 0) to the next section's, the last one's to
    the last finish. `log` has `arrival_s` and `last_s`. `ends`: where sections end, see `Periods.ends`.
    """
    arrival_s, last_s = log.arrival_s, log.last_s
    cuts = cut(skip, arrival_s.size, ends)
    edges_s = arrival_s[np.minimum(cuts, arrival_s.size - 1)]
    if cuts[0] == 0:
        edges_s[0] = 0.0
    edges_s[-1] = max(last_s, edges_s[0])
    edges_s = np.minimum(edges_s, edges_s[-1])  # requests after the last finish are not served
    return cuts, edges_s


def serves_all(log: Log) -> bool:
    """Return whether every request of a run was served."""
    return int(log.batch_size.sum()) == log.arrival_s.size


def sums(column: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Return the sum of each section of a column, 0 for an empty one."""
    sums = np.zeros(cuts.size - 1, np.int64 if column.dtype == bool else column.dtype)
    filled = cuts[:-1] < cuts[1:]  # of an empty section `reduceat` would return the next one's first value
    if filled.any():
        sums[filled] = reduceat(np.add, column[: cuts[-1]], cuts[:-1][filled], dtype=sums.dtype)
    return sums
