"""What comes back: a run's columns, where each request's time went, and the summary numbers."""

import functools
import math
import operator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim import _check
from batchsim.engines.histogram import Histogram
from batchsim.engines.plan import Log, Status, Totals, Trigger, warmup_requests
from batchsim.scenario import AtLeast, ClosedLoop, Scenario

if TYPE_CHECKING:
    import pandas


PARTS = ("forming", "queueing", "computing")


@dataclass(frozen=True, eq=False)
class Batches:
    """Columns with a row a batch, numbered by start."""

    start_s: np.ndarray
    finish_s: np.ndarray
    batch_size: np.ndarray
    server: np.ndarray
    trigger: np.ndarray

    def __len__(self) -> int:
        return self.start_s.size

    def __repr__(self) -> str:
        return f"Batches({len(self):,} batches)"


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """One run: columns with a row a request in arrival order, and what they sum up to.

    Times are in seconds (`arrival_s`), durations in milliseconds (`latency_ms`). A request that
    was not served has NaN times and batch_index -1; `status` says why. Of several replications the
    columns follow each other, and the summary numbers are over all of them. A run with
    keep="summary" has no columns.
    """

    scenario: Scenario
    seed: int
    engine: str
    warmup: float
    columns: Log | None
    sums: tuple[Totals, Histogram] | None = None
    runs: tuple["Result", ...] = ()

    @classmethod
    def pool(cls, runs: tuple["Result", ...]) -> "Result":
        """Return one result of several replications of a scenario."""
        first, columns, sums = runs[0], None, None
        if first.sums is None:
            columns = Log.join([run.log for run in runs])
        else:
            totals, histograms = zip(*(run.sums for run in runs if run.sums is not None), strict=True)
            sums = functools.reduce(operator.add, totals), functools.reduce(operator.add, histograms)
        return cls(first.scenario, first.seed, first.engine, first.warmup, columns, sums, runs)

    @property
    def replications(self) -> tuple["Result", ...]:
        """The runs that this result is made of; number 0 is the plain run."""
        return self.runs or (self,)

    @property
    def log(self) -> Log:
        """What the engine returned."""
        if self.columns is None:
            raise ValueError("columns must be kept to be read, got a run with keep='summary'")
        return self.columns

    # Columns, a row a request.

    @property
    def arrival_s(self) -> np.ndarray:
        return self.log.arrival_s

    @property
    def batch_index(self) -> np.ndarray:
        return self.log.batch_index

    @property
    def status(self) -> np.ndarray:
        """What became of each request, as uint8 of `Status`."""
        return self.log.status

    @property
    def outputs(self) -> list[Any] | None:
        """The model's output for each request (None for one not served); None without a model."""
        return self.log.outputs

    @cached_property
    def start_s(self) -> np.ndarray:
        return self._of_its_batch(self.log.batch_start_s)

    @cached_property
    def finish_s(self) -> np.ndarray:
        return self._of_its_batch(self.log.batch_finish_s)

    def _of_its_batch(self, column: np.ndarray) -> np.ndarray:
        # Index -1, not served, finds the NaN appended at the end.
        return np.append(column, math.nan)[self.batch_index]

    @cached_property
    def latency_ms(self) -> np.ndarray:
        """From arrival to finish: forming + queueing + computing."""
        return (self.finish_s - self.arrival_s) * 1000

    @cached_property
    def forming_ms(self) -> np.ndarray:
        """Waiting for company while a server is idle."""
        if self.runs:
            return np.concatenate([run.forming_ms for run in self.runs])
        waiting_s = self.start_s - self.arrival_s
        times_s, idle_s = self._idle_time
        forming_s = np.interp(self.start_s, times_s, idle_s) - np.interp(self.arrival_s, times_s, idle_s)
        return np.clip(forming_s, 0, waiting_s) * 1000  # clip: sums of floats, off by 1e-12 s

    @cached_property
    def queueing_ms(self) -> np.ndarray:
        """Waiting while every server computes."""
        return (self.start_s - self.arrival_s) * 1000 - self.forming_ms

    @cached_property
    def computing_ms(self) -> np.ndarray:
        return (self.finish_s - self.start_s) * 1000

    @cached_property
    def _idle_time(self) -> tuple[np.ndarray, np.ndarray]:
        """The time in [0, t] with at least one server idle, as the corners (t, I(t)) of a line."""
        log = self.log
        times_s = np.concatenate([[0.0], log.batch_start_s, log.batch_finish_s])
        change = np.concatenate([[0], np.ones(len(log.batch_start_s)), -np.ones(len(log.batch_start_s))])
        order = np.argsort(times_s, kind="stable")
        times_s, busy = times_s[order], np.cumsum(change[order])
        end_s = max(times_s[-1], float(self.arrival_s[-1]))
        gaps_s = np.diff(times_s, append=end_s) * (busy < self.scenario.servers)
        return np.append(times_s, end_s), np.concatenate([[0.0], np.cumsum(gaps_s)])

    def story(self, request: int) -> list[tuple[str, float, float]]:
        """Return what a request went through, in order: ("forming", from_s, to_s), ...

        Forming and queueing can alternate; a request that was not served has no story.
        """
        arrival_s, start_s, finish_s = (
            float(column[request]) for column in (self.arrival_s, self.start_s, self.finish_s)
        )
        if math.isnan(start_s):
            return []
        if self.runs:
            ends = np.cumsum([run.arrival_s.size for run in self.runs])
            run = int(np.searchsorted(ends, request, side="right"))
            return self.runs[run].story(request - int(ends[run] - self.runs[run].arrival_s.size))
        times_s, idle_s = self._idle_time
        inside = slice(*np.searchsorted(times_s, [arrival_s, start_s], side="right"))
        corners_s = [arrival_s, *times_s[inside].tolist(), start_s]
        parts: list[tuple[str, float, float]] = []
        for begin_s, end_s in pairwise(corners_s):
            if end_s <= begin_s:
                continue
            # I(t) grows while a server is idle: half of the stretch is far from either slope.
            grown = np.diff(np.interp([begin_s, end_s], times_s, idle_s))[0]
            name = "forming" if grown > (end_s - begin_s) / 2 else "queueing"
            if parts and parts[-1][0] == name:
                begin_s = parts.pop()[1]
            parts.append((name, begin_s, end_s))
        return [*parts, ("computing", start_s, finish_s)]

    @cached_property
    def batches(self) -> Batches:
        """Columns with a row a batch."""
        log = self.log
        return Batches(
            log.batch_start_s, log.batch_finish_s, log.batch_size, log.batch_server, self._trigger()
        )

    def _trigger(self) -> np.ndarray:
        log, rule = self.log, self.scenario.rule
        served = np.flatnonzero(log.batch_index >= 0)
        in_batches = served[np.argsort(log.batch_index[served], kind="stable")]
        first = np.concatenate([[0], np.cumsum(log.batch_size)[:-1]]) if log.batch_size.size else np.empty(0)
        oldest_s = log.arrival_s[in_batches[first.astype(int)]]
        start_s, size = log.batch_start_s, log.batch_size
        trigger = np.full(size.shape, Trigger.DRAIN, dtype=np.uint8)
        if isinstance(rule, AtLeast):
            many = size >= rule.enough
            last_needed = np.where(many, first + rule.enough - 1, first).astype(int)
            due_s = np.where(many, log.arrival_s[in_batches[last_needed]], math.inf)
            trigger[start_s == due_s] = Trigger.ENOUGH
        else:
            due_s = oldest_s + rule.max_wait_ms / 1000
            trigger[start_s == due_s] = Trigger.TIMEOUT
        trigger[start_s > due_s] = Trigger.BACKLOG
        trigger[size == rule.max_batch_size] = Trigger.FULL
        return trigger

    # Summary numbers, over the requests after the warm-up.

    @cached_property
    def _kept(self) -> slice:
        return slice(warmup_requests(self.warmup, self.arrival_s.size), None)

    @cached_property
    def _latencies_ms(self) -> np.ndarray:
        """The sorted latencies of the served requests that are kept."""
        if self.runs:
            return np.sort(np.concatenate([run._latencies_ms for run in self.runs]))
        latency_ms = self.latency_ms[self._kept]
        return np.sort(latency_ms[~np.isnan(latency_ms)])

    @property
    def _requests(self) -> int:
        if self.sums is not None:
            return self.sums[0].requests
        return sum(run._requests for run in self.runs) or self.arrival_s.size - self._kept.start

    @property
    def _served(self) -> int:
        return int(self.sums[0].statuses[Status.SERVED]) if self.sums is not None else self._latencies_ms.size

    def _sum_s(self, part: str) -> float:
        """Return the sum of a part of the latency, or of "latency", over the served requests."""
        if self.sums is not None:
            return float(self.sums[0].parts_s[("latency", *PARTS).index(part)])
        if self.runs:
            return sum(run._sum_s(part) for run in self.runs)
        column = self._latencies_ms if part == "latency" else getattr(self, f"{part}_ms")[self._kept]
        return float(np.nansum(column) / 1000)

    @cached_property
    def _totals(self) -> Totals:
        """What the summary numbers are made of."""
        if self.sums is not None:
            return self.sums[0]
        if self.runs:
            return functools.reduce(operator.add, (run._totals for run in self.runs))
        log, kept = self.log, self._kept
        # From the first kept arrival (0 when none is dropped) to the last finish.
        begin_s = float(self.arrival_s[kept][0]) if kept.start else 0.0
        end_s = float(log.batch_finish_s.max(initial=begin_s))
        in_window = log.batch_start_s >= begin_s
        busy_s = np.clip(log.batch_finish_s - np.maximum(log.batch_start_s, begin_s), 0, None)
        return Totals(
            requests=self._requests,
            statuses=np.bincount(self.status[kept], minlength=len(Status)),
            parts_s=np.array([self._sum_s(part) for part in ("latency", *PARTS)]),
            finished=int(np.count_nonzero(self.finish_s >= begin_s)),
            busy_s=float(busy_s.sum()),
            window_s=end_s - begin_s,
            batches=int(np.count_nonzero(in_window)),
            items=int(log.batch_size[in_window].sum()),
            triggers=np.bincount(self.batches.trigger[in_window], minlength=len(Trigger)),
        )

    def percentile(self, q: float, *, unserved: str = "ignore") -> float:
        """Return the latency in ms that q % of the requests do not exceed (NumPy's "linear").

        Over the served requests; `unserved="inf"` counts the others as infinitely late. NaN if
        there are none. Exact; with keep="summary", to 0.1 %.
        """
        q = _check.real("q", q, at_least=0, at_most=100)
        if unserved not in ("ignore", "inf"):
            raise ValueError(f"unserved must be 'ignore' or 'inf', got {unserved!r}")
        served = self._served
        count = served if unserved == "ignore" else self._requests
        if count == 0:
            return math.nan
        rank = q / 100 * (count - 1)
        low, high = math.floor(rank), math.ceil(rank)
        if high >= served:
            return math.inf
        if self.sums is not None:
            low_s, high_s = (self.sums[1].at_rank_s(r) for r in (low, high))
            return (low_s + (high_s - low_s) * (rank - low)) * 1000
        latencies_ms = self._latencies_ms
        if count > served:  # both neighbours of the rank were served: what stands above them is all one
            latencies_ms = np.append(latencies_ms, np.full(count - served, latencies_ms[-1]))
        return float(np.percentile(latencies_ms, q))

    def _mean_ms(self, part: str) -> float:
        return self._sum_s(part) / self._served * 1000 if self._served else math.nan

    @property
    def mean_latency_ms(self) -> float:
        return self._mean_ms("latency")

    @property
    def throughput_per_s(self) -> float:
        """Finished requests per second, over the window."""
        return self._per_s(self._totals.finished)

    def _per_s(self, count: int) -> float:
        return count / self._totals.window_s if self._totals.window_s > 0 else 0.0

    @property
    def utilisation(self) -> float:
        """The fraction of the window that the servers spent computing."""
        available_s = self.scenario.servers * self._totals.window_s
        return self._totals.busy_s / available_s if available_s > 0 else 0.0

    @property
    def mean_batch_size(self) -> float:
        """The mean over the batches that start in the window."""
        return self._totals.items / self._totals.batches if self._totals.batches else math.nan

    def _within(self, objective_ms: float) -> int:
        objective_ms = _check.real("objective_ms", objective_ms, at_least=0)
        if self.sums is not None:
            return self.sums[1].within(objective_ms / 1000)
        return int(np.searchsorted(self._latencies_ms, objective_ms, side="right"))

    def attainment(self, objective_ms: float) -> float:
        """Return the fraction of the requests that were served within `objective_ms`."""
        return self._within(objective_ms) / self._requests

    def goodput_per_s(self, objective_ms: float) -> float:
        """Return the requests per second that were served within `objective_ms`."""
        return self._per_s(self._within(objective_ms))

    def summary(self) -> dict[str, Any]:
        """Return the run's plain numbers; NaN where there is nothing to average.

        `stable` is whether the load, the arrival rate over the capacity, is below 1 (a closed
        loop, a queue limit and a timeout are always stable).
        """
        scenario, totals = self.scenario, self._totals
        closed = isinstance(scenario.workload, ClosedLoop)
        offered = math.nan if closed else scenario.workload.offered_per_s  # type: ignore[union-attr]
        return {
            "requests": self._requests,
            **{state.name.lower(): int(totals.statuses[state]) for state in Status},
            "offered_per_s": float(offered),
            "capacity_per_s": scenario.capacity_per_s,
            "load": float(scenario.load),
            "stable": bool(scenario.stable),
            "throughput_per_s": self.throughput_per_s,
            "utilisation": self.utilisation,
            "mean_latency_ms": self.mean_latency_ms,
            **{f"p{q}_ms": self.percentile(q) for q in (50, 90, 95, 99)},
            **{f"mean_{part}_ms": mean for part, mean in self._parts_ms().items()},
            "batches": totals.batches,
            "mean_batch_size": self.mean_batch_size,
            **{f"{name}_share": share for name, share in self._trigger_shares().items()},
        }

    def _parts_ms(self) -> dict[str, float]:
        return {part: self._mean_ms(part) for part in PARTS}

    def _trigger_shares(self) -> dict[str, float]:
        """Return the fraction of the window's batches that left for each reason that occurs."""
        counts, batches = self._totals.triggers, self._totals.batches
        return {t.name.lower(): float(counts[t] / batches) for t in Trigger if counts[t]}

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row a request, statuses and triggers by name."""
        import pandas

        # Index -1, not served, finds what is appended at the end.
        triggers = np.array([Trigger(t).name.lower() for t in self.batches.trigger] + [""], dtype=object)
        return pandas.DataFrame(
            {
                "arrival_s": self.arrival_s,
                "start_s": self.start_s,
                "finish_s": self.finish_s,
                "latency_ms": self.latency_ms,
                "forming_ms": self.forming_ms,
                "queueing_ms": self.queueing_ms,
                "computing_ms": self.computing_ms,
                "batch_index": self.batch_index,
                "batch_size": np.append(self.log.batch_size, 0)[self.batch_index],
                "server": np.append(self.log.batch_server, -1)[self.batch_index],
                "trigger": triggers[self.batch_index],
                "status": [Status(state).name.lower() for state in self.status],
            }
        )

    # How it prints.

    def _rows(self) -> list[tuple[str, str]]:
        """Return the summary as (what, figures), for people."""
        s, parts = self.summary(), self._parts_ms()
        lost = "".join(
            f", {s[name]:,} {name.replace('_', ' ')}" for name in ("rejected", "timed_out") if s[name]
        )
        rate = "closed loop" if math.isnan(s["load"]) else f"load {s['load']:.2f}"
        unstable = "" if s["stable"] else ", UNSTABLE: the queue grows without end"
        return [
            ("requests", f"{s['requests']:,}, {s['served']:,} served{lost}"),
            (
                "latency",
                f"mean {s['mean_latency_ms']:.2f} ms, p50 {s['p50_ms']:.2f}, "
                f"p95 {s['p95_ms']:.2f}, p99 {s['p99_ms']:.2f}",
            ),
            ("of which", ", ".join(f"{name} {ms:.2f} ms" for name, ms in parts.items())),
            ("throughput", f"{s['throughput_per_s']:.1f}/s of {s['capacity_per_s']:.1f}/s, {rate}{unstable}"),
            ("utilisation", f"{s['utilisation']:.3f}"),
            (
                "batches",
                f"{s['batches']:,} of {s['mean_batch_size']:.2f} on average; "
                + ", ".join(f"{name} {share:.0%}" for name, share in self._trigger_shares().items()),
            ),
        ]

    def __repr__(self) -> str:
        return "\n".join(["Result", *(f"  {what:<12}{figures}" for what, figures in self._rows())])

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{what}</th>'
            f'<td style="text-align:left">{figures}</td></tr>'
            for what, figures in self._rows()
        )
        return f"<table><caption>batchsim result</caption><tbody>{rows}</tbody></table>"
