"""The summary numbers: of a run, of a part of one, or of several."""

import math
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property, reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim import _check
from batchsim.engines.histogram import Histogram
from batchsim.engines.log import Status, Totals
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.scenario.rules import Trigger

if TYPE_CHECKING:
    from batchsim.result import Result

PARTS = ("forming", "queueing", "computing")
PERCENTILES = (50, 90, 95, 99)
# What follows from the scenario alone: nothing random is in it.
GIVEN = ("offered_per_s", "saturation_per_s", "load", "stable", "drifting")
COUNTS = ("requests", "batches", *(state.name.lower() for state in Status))
MEANS = ("throughput_per_s", "utilisation", "mean_batch_size", "mean_latency_ms")
_PERCENTILE = re.compile(r"p(\d{1,3}(?:\.\d+)?)(?:_ms)?")


class Latencies:
    """Latencies of served requests, sorted only as far as it is asked for."""

    BUCKETS = 4096

    def __init__(self, ms: np.ndarray) -> None:
        """`ms`: any order, shape (requests,)."""
        self._ms = ms
        self._sorted: set[int] = set()
        self._lock = threading.Lock()

    @classmethod
    def pool(cls, several: Sequence["Latencies"]) -> "Latencies":
        """Return those of several runs as one."""
        return cls(np.concatenate([each._ms for each in several]))

    @cached_property
    def _buckets(self) -> tuple[np.ndarray, np.ndarray]:
        """The latencies by rising bucket, and the rank at which each bucket ends."""
        low_ms, high_ms = self._ms.min(), self._ms.max()
        scale = (self.BUCKETS - 1) / (high_ms - low_ms) if high_ms > low_ms else 0.0
        bucket = ((self._ms - low_ms) * scale).astype(np.uint16)
        # NumPy sorts 16 bits by radix, five times as fast as floats by comparison.
        in_order = self._ms[np.argsort(bucket, kind="stable")]
        return in_order, np.cumsum(np.bincount(bucket, minlength=self.BUCKETS))

    def at_rank_ms(self, rank: int) -> float:
        """Return the latency with `rank` smaller ones."""
        with self._lock:
            ms, ends = self._buckets
            bucket = int(np.searchsorted(ends, rank, side="right"))
            if bucket not in self._sorted:
                ms[ends[bucket - 1] if bucket else 0 : ends[bucket]].sort()
                self._sorted.add(bucket)
            return float(ms[rank])

    def within(self, objective_ms: float) -> int:
        """Return how many latencies are at most `objective_ms`."""
        return int(np.count_nonzero(self._ms <= objective_ms))


def numbers(totals: Totals, servers: int) -> dict[str, Any]:
    """Return the numbers that are sums and their ratios: of a run, or arrays with one for each part."""
    served, window_s = totals.statuses[..., Status.SERVED], totals.window_s
    with np.errstate(divide="ignore", invalid="ignore"):  # NaN where there is nothing to average
        means = dict(zip(("latency", *PARTS), (totals.parts_s / served[..., None] * 1000).T, strict=True))
        return {
            "requests": totals.requests,
            **{state.name.lower(): totals.statuses[..., state] for state in Status},
            "throughput_per_s": np.where(np.equal(window_s, 0), 0.0, np.divide(totals.finished, window_s)),
            "utilisation": np.where(np.equal(window_s, 0), 0.0, np.divide(totals.busy_s, window_s) / servers),
            **{f"mean_{part}_ms": mean for part, mean in means.items()},
            "batches": totals.batches,
            "mean_batch_size": np.divide(totals.items, totals.batches),
            **{
                f"{trigger.name.lower()}_share": np.divide(totals.triggers[..., trigger], totals.batches)
                for trigger in Trigger
            },
        }


@dataclass(frozen=True, eq=False)
class Metrics:
    """What the requests of one or more runs sum up to."""

    scenario: Scenario
    totals: Totals
    latencies: Latencies | Histogram

    @classmethod
    def pool(cls, runs: Sequence["Metrics"]) -> "Metrics":
        """Return those of several replications together."""
        latencies = [run.latencies for run in runs]
        totals = Totals(*(sum(getattr(run.totals, f.name) for run in runs) for f in fields(Totals)))
        if isinstance(latencies[0], Histogram):
            return cls(runs[0].scenario, totals, reduce(add, latencies))
        return cls(runs[0].scenario, totals, Latencies.pool(latencies))  # type: ignore[arg-type]  # of one kind

    @cached_property
    def numbers(self) -> dict[str, float]:
        """The numbers that are sums and their ratios."""
        return {key: float(value) for key, value in numbers(self.totals, self.scenario.servers).items()}

    @property
    def served(self) -> int:
        return int(self.totals.statuses[Status.SERVED])

    def percentile(self, q: float, unserved: str = "ignore") -> float:
        """Return the latency in ms that q % of the requests do not exceed; see `Result.percentile`."""
        q = _check.real("q", q, at_least=0, at_most=100)
        if unserved not in ("ignore", "inf"):
            raise ValueError(f"unserved must be 'ignore' or 'inf', got {unserved!r}")
        count = self.served if unserved == "ignore" else int(self.totals.requests)
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

    def per_s(self, count: int) -> float:
        """Return a count over the window's length."""
        return float(count / self.totals.window_s) if self.totals.window_s > 0 else 0.0

    def shares(self) -> dict[str, float]:
        """Return the fraction of the window's batches that left for each reason that occurs."""
        names = (f"{trigger.name.lower()}_share" for trigger in Trigger if self.totals.triggers[trigger])
        return {name: self.numbers[name] for name in names}

    def within(self, objective_ms: float) -> int:
        """Return how many requests were served within `objective_ms`."""
        return self.latencies.within(_check.real("objective_ms", objective_ms, at_least=0))

    def number(self, key: str) -> float:
        """Return one measured number by its key in the summary; any percentile, as "p99.9_ms"."""
        q = percentile_of(key)
        return self.numbers[key] if q is None else self.percentile(q)

    def summary(self) -> dict[str, Any]:
        """Return all of them but `drifting`, as plain numbers; NaN where there is nothing to average."""
        scenario, known = self.scenario, self.numbers
        closed = isinstance(scenario.workload, ClosedLoop)
        offered = math.nan if closed else scenario.workload.offered_per_s  # type: ignore[union-attr]
        saturation_per_s = scenario.saturation_per_s
        return {
            "requests": int(known["requests"]),
            **{state.name.lower(): int(known[state.name.lower()]) for state in Status},
            "offered_per_s": float(offered),
            "saturation_per_s": saturation_per_s,
            "load": float(offered / saturation_per_s),
            "stable": bool(scenario.stable),
            "throughput_per_s": known["throughput_per_s"],
            "utilisation": known["utilisation"],
            "mean_latency_ms": known["mean_latency_ms"],
            **{f"p{q}_ms": self.percentile(q) for q in PERCENTILES},
            **{f"mean_{part}_ms": known[f"mean_{part}_ms"] for part in PARTS},
            "batches": int(known["batches"]),
            "mean_batch_size": known["mean_batch_size"],
            **self.shares(),
        }


@dataclass(frozen=True, eq=False)
class Parts:
    """The same of several parts of a run, or of its replications: arrays of shape (parts,)."""

    servers: int
    totals: Totals
    within: Callable[[float], np.ndarray]  # how many requests of each part are within so many ms
    _joined: dict[int, "Parts"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "within", cache(self.within))  # asked again by each longer part

    @classmethod
    def of_runs(cls, runs: Sequence[Metrics]) -> "Parts":
        """Return replications as parts."""
        totals = Totals(*(np.array([getattr(run.totals, f.name) for run in runs]) for f in fields(Totals)))
        return cls(runs[0].scenario.servers, totals, lambda ms: np.array([run.within(ms) for run in runs]))

    @cached_property
    def numbers(self) -> dict[str, np.ndarray]:
        """The numbers that are sums and their ratios."""
        return numbers(self.totals, self.servers)

    @property
    def served(self) -> np.ndarray:
        return self.totals.statuses[:, Status.SERVED]

    def joined(self, count: int) -> "Parts":
        """Return `count` parts, each of several neighbours."""
        if count not in self._joined:
            self._joined[count] = self._join(count)
        return self._joined[count]

    def _join(self, count: int) -> "Parts":
        def sums(column: np.ndarray) -> np.ndarray:
            return column.reshape(count, -1, *column.shape[1:]).sum(axis=1)

        totals = Totals(*(sums(getattr(self.totals, f.name)) for f in fields(Totals)))
        return Parts(self.servers, totals, lambda ms: sums(self.within(ms)))


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


def whole(result: "Result") -> Metrics:
    """Return the figures of a run's requests after the warm-up."""
    latency_ms = result.latency_ms[result.warmup_requests :]
    served = latency_ms if _serves_all(result) else latency_ms[~np.isnan(latency_ms)]
    together = result.sections.joined(1).totals
    totals = Totals(*(getattr(together, f.name)[0] for f in fields(Totals)))
    return Metrics(result.scenario, totals, Latencies(served))


def parts(result: "Result", count: int) -> Parts:
    """Return the figures of so many parts of as many requests each, one after the other."""
    cuts = np.linspace(result.warmup_requests, result.arrival_s.size, count + 1).astype(int)
    latency_ms = result.latency_ms
    return Parts(result.scenario.servers, _totals(result, cuts), lambda ms: _sums(latency_ms <= ms, cuts))


def _totals(result: "Result", cuts: np.ndarray) -> Totals:
    """Return the totals of the requests from each cut to the next.

    A part's window runs from its first arrival (0 for request 0) to the next part's, the last
    one's to the last finish.
    """
    log, arrival_s = result.log, result.arrival_s
    edges_s = arrival_s[np.minimum(cuts, arrival_s.size - 1)]
    if cuts[0] == 0:
        edges_s[0] = 0.0
    edges_s[-1] = log.batch_finish_s.max(initial=edges_s[0])
    edges_s = np.minimum(edges_s, edges_s[-1])  # those who come after the last finish are not served
    # A batch is inside if it begins inside, a finish if it is; those at the end of all are.
    begun = np.searchsorted(log.batch_start_s, edges_s)
    begun[-1] = log.batch_start_s.size
    ends_s, sizes = log.batch_finish_s, log.batch_size
    if result.scenario.servers > 1:
        order = np.argsort(ends_s, kind="stable")
        ends_s, sizes = ends_s[order], sizes[order]
    over = np.searchsorted(ends_s, edges_s)
    over[-1] = ends_s.size
    if _serves_all(result):
        statuses = np.zeros((cuts.size - 1, len(Status)), np.intp)
        statuses[:, Status.SERVED] = np.diff(cuts)
    else:
        statuses = _counts(result.status, cuts, len(Status))
    return Totals(
        requests=np.diff(cuts),
        statuses=statuses,
        parts_s=_parts_s(result, cuts),
        finished=_sums(sizes, over),
        busy_s=np.diff(result.server_time.busy_until_s(edges_s)),
        window_s=np.diff(edges_s),
        batches=np.diff(begun),
        items=_sums(log.batch_size, begun),
        triggers=_counts(result.batches.trigger, begun, len(Trigger)),
    )


def _parts_s(result: "Result", cuts: np.ndarray) -> np.ndarray:
    """Return the sums of the latency and its parts, shape (parts, 4)."""
    from batchsim.engines import compiled  # in one pass, and in one order whichever engine ran

    return compiled.sums_of_parts(result.log, result.server_time.idle_line(result.log), cuts)


def _serves_all(result: "Result") -> bool:
    return int(result.log.batch_size.sum()) == result.arrival_s.size


def _sums(column: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Return the sum of each part of a column, 0 for an empty one."""
    sums = np.zeros(cuts.size - 1, np.intp if column.dtype == bool else column.dtype)
    filled = cuts[:-1] < cuts[1:]  # of an empty part `reduceat` would return the next one's first
    if filled.any():
        sums[filled] = np.add.reduceat(column[: cuts[-1]], cuts[:-1][filled], dtype=sums.dtype)
    return sums


def _counts(column: np.ndarray, cuts: np.ndarray, kinds: int) -> np.ndarray:
    """Return how often each of 0..kinds-1 occurs in each part, shape (parts, kinds)."""
    parts = cuts.size - 1
    part = np.repeat(np.arange(parts), np.diff(cuts))
    return np.bincount(part * kinds + column[cuts[0] : cuts[-1]], minlength=parts * kinds).reshape(
        parts, kinds
    )
