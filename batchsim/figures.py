"""The summary numbers: of a run, of a part of one, or of several."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim import _check
from batchsim.engines.histogram import Histogram
from batchsim.engines.plan import Status, Totals, Trigger
from batchsim.scenario import ClosedLoop, Scenario

if TYPE_CHECKING:
    from batchsim.result import Result

PARTS = ("forming", "queueing", "computing")
PERCENTILES = (50, 90, 95, 99)
# What follows from the scenario alone: nothing random is in it.
GIVEN = ("offered_per_s", "capacity_per_s", "load", "stable", "drifting")
COUNTS = ("requests", "batches", *(state.name.lower() for state in Status))
MEANS = ("throughput_per_s", "utilisation", "mean_batch_size", "mean_latency_ms")
_PERCENTILE = re.compile(r"p(\d{1,3}(?:\.\d+)?)(?:_ms)?")


@dataclass(frozen=True, eq=False)
class Sorted:
    """Latencies in rising order, shape (served requests,)."""

    ms: np.ndarray

    def __add__(self, other: "Sorted") -> "Sorted":
        return Sorted(np.sort(np.concatenate([self.ms, other.ms]), kind="stable"))

    def at_rank_ms(self, rank: int) -> float:
        """Return the latency with `rank` smaller ones."""
        return float(self.ms[rank])

    def within(self, objective_ms: float) -> int:
        """Return how many latencies are at most `objective_ms`."""
        return int(np.searchsorted(self.ms, objective_ms, side="right"))


@dataclass(frozen=True, eq=False)
class Figures:
    """What some requests sum up to; the sum of two is that of both together."""

    scenario: Scenario
    totals: Totals
    latencies: Sorted | Histogram

    def __add__(self, other: "Figures") -> "Figures":
        return Figures(
            self.scenario,
            self.totals + other.totals,
            self.latencies + other.latencies,  # type: ignore[operator]  # both of one kind
        )

    @property
    def served(self) -> int:
        return int(self.totals.statuses[Status.SERVED])

    def percentile(self, q: float, unserved: str = "ignore") -> float:
        """Return the latency in ms that q % of the requests do not exceed; see `Result.percentile`."""
        q = _check.real("q", q, at_least=0, at_most=100)
        if unserved not in ("ignore", "inf"):
            raise ValueError(f"unserved must be 'ignore' or 'inf', got {unserved!r}")
        count = self.served if unserved == "ignore" else self.totals.requests
        if count == 0:
            return math.nan
        rank = q / 100 * (count - 1)
        low, high = math.floor(rank), math.ceil(rank)
        if high >= self.served:
            return math.inf
        below_ms, above_ms = self.latencies.at_rank_ms(low), self.latencies.at_rank_ms(high)
        # NumPy's "linear", to its last bit.
        part, rise_ms = rank - low, above_ms - below_ms
        return below_ms + rise_ms * part if part < 0.5 else above_ms - rise_ms * (1 - part)

    def mean_ms(self, part: str) -> float:
        """Return the mean of a part of the latency, or of "latency"."""
        sum_s = float(self.totals.parts_s[("latency", *PARTS).index(part)])
        return sum_s / self.served * 1000 if self.served else math.nan

    def per_s(self, count: int) -> float:
        """Return a count over the window's length."""
        return count / self.totals.window_s if self.totals.window_s > 0 else 0.0

    @property
    def utilisation(self) -> float:
        available_s = self.scenario.servers * self.totals.window_s
        return self.totals.busy_s / available_s if available_s > 0 else 0.0

    @property
    def mean_batch_size(self) -> float:
        return self.totals.items / self.totals.batches if self.totals.batches else math.nan

    def shares(self) -> dict[str, float]:
        """Return the fraction of the window's batches that left for each reason that occurs."""
        counts, batches = self.totals.triggers, self.totals.batches
        return {f"{t.name.lower()}_share": float(counts[t] / batches) for t in Trigger if counts[t]}

    def within(self, objective_ms: float) -> int:
        """Return how many requests were served within `objective_ms`."""
        return self.latencies.within(_check.real("objective_ms", objective_ms, at_least=0))

    def summary(self) -> dict[str, Any]:
        """Return all of them but `drifting`, as plain numbers; NaN where there is nothing to average."""
        scenario, totals = self.scenario, self.totals
        closed = isinstance(scenario.workload, ClosedLoop)
        offered = math.nan if closed else scenario.workload.offered_per_s  # type: ignore[union-attr]
        return {
            "requests": totals.requests,
            **{state.name.lower(): int(totals.statuses[state]) for state in Status},
            "offered_per_s": float(offered),
            "capacity_per_s": scenario.capacity_per_s,
            "load": float(scenario.load),
            "stable": bool(scenario.stable),
            "throughput_per_s": self.per_s(totals.finished),
            "utilisation": self.utilisation,
            "mean_latency_ms": self.mean_ms("latency"),
            **{f"p{q}_ms": self.percentile(q) for q in PERCENTILES},
            **{f"mean_{part}_ms": self.mean_ms(part) for part in PARTS},
            "batches": totals.batches,
            "mean_batch_size": self.mean_batch_size,
            **self.shares(),
        }

    @cached_property
    def _summary(self) -> dict[str, Any]:
        return self.summary()

    def number(self, key: str) -> float:
        """Return one number by its key in the summary; any percentile, as "p99.9_ms" or "p99.9"."""
        if found := percentile_of(key):
            return self.percentile(found)
        return float(self._summary.get(key, 0.0))  # 0: the share of a trigger that does not occur here


def percentile_of(key: str) -> float | None:
    """Return the q of "p99_ms" or "p99", and None for another key."""
    found = _PERCENTILE.fullmatch(key)
    return float(found[1]) if found else None


def check_key(key: Any) -> str:
    """Return the key as it stands in a summary, or raise, naming the nearest."""
    if not isinstance(key, str):
        raise TypeError(f"a summary number must be named by text, got {key!r}")
    if (q := percentile_of(key)) is not None:
        _check.real("a percentile", q, at_most=100)
        return key if key.endswith("_ms") else f"{key}_ms"
    shares = (f"{trigger.name.lower()}_share" for trigger in Trigger)
    known = (*GIVEN, *COUNTS, *MEANS, *(f"mean_{part}_ms" for part in PARTS), *shares, "p50_ms", "p99_ms")
    if key not in known:
        raise ValueError(f"a number must be one of the summary's, got {key!r}{_check.nearest(key, known)}")
    return key


def of_parts(result: "Result", cuts: Sequence[int]) -> list[Figures]:
    """Return the figures of the requests from each cut to the next, in arrival order.

    A part's window runs from its first arrival (0 for request 0) to the next part's, the last
    one's to the last finish.
    """
    log, arrival_s, finish_s = result.log, result.arrival_s, result.finish_s
    starts_s, ends_s = log.batch_start_s, log.batch_finish_s
    edges_s = arrival_s[np.minimum(cuts, arrival_s.size - 1)]
    if cuts[0] == 0:
        edges_s[0] = 0.0
    edges_s[-1] = ends_s.max(initial=edges_s[-2])
    # NaN, not served, is sorted to the end, beyond every edge; the last finish is inside.
    finished = np.searchsorted(np.sort(finish_s, kind="stable"), edges_s)
    finished[-1] = np.count_nonzero(finish_s <= edges_s[-1])
    begun = np.searchsorted(starts_s, edges_s)
    begun[-1] = starts_s.size
    over = np.searchsorted(np.maximum.accumulate(ends_s), edges_s)  # so many batches ended before each edge
    trigger, parts = result.batches.trigger, [getattr(result, f"{part}_ms") for part in PARTS]
    figures = []
    for part, (first, last) in enumerate(pairwise(cuts)):
        begin_s, end_s = float(edges_s[part]), float(edges_s[part + 1])
        rows, batches = slice(first, last), slice(begun[part], begun[part + 1])
        latency_ms = result.latency_ms[rows]
        latencies = Sorted(np.sort(latency_ms[~np.isnan(latency_ms)]))
        inside = slice(over[part], begun[part + 1])
        busy_s = np.minimum(ends_s[inside], end_s) - np.maximum(starts_s[inside], begin_s)
        totals = Totals(
            requests=last - first,
            statuses=np.bincount(result.status[rows], minlength=len(Status)),
            parts_s=np.array([latencies.ms.sum(), *(np.nansum(column[rows]) for column in parts)]) / 1000,
            finished=int(finished[part + 1] - finished[part]),
            busy_s=float(np.clip(busy_s, 0, None).sum()),
            window_s=end_s - begin_s,
            batches=int(begun[part + 1] - begun[part]),
            items=int(log.batch_size[batches].sum()),
            triggers=np.bincount(trigger[batches], minlength=len(Trigger)),
        )
        figures.append(Figures(result.scenario, totals, latencies))
    return figures
