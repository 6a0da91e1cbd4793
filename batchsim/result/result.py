"""What comes back: a run's columns, where each request's time went, and the summary numbers."""

import functools
import math
import operator
from dataclasses import dataclass, fields
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim.engines.histogram import Histogram
from batchsim.engines.log import Log, Status, Totals, warmup_requests
from batchsim.result import intervals as confidence
from batchsim.result import metrics
from batchsim.result import timeseries as overtime
from batchsim.result.breakdown import ServerTime
from batchsim.result.metrics import PARTS, Metrics, Parts
from batchsim.scenario import Scenario
from batchsim.scenario.rules import Trigger

if TYPE_CHECKING:
    import pandas


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

    def __getstate__(self) -> dict[str, Any]:
        # What is computed from the columns is computed again where a pickled result arrives.
        return {f.name: getattr(self, f.name) for f in fields(self)}

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
        return self.server_time.forming_s(self.log) * 1000

    @cached_property
    def queueing_ms(self) -> np.ndarray:
        """Waiting while every server computes."""
        return (self.start_s - self.arrival_s) * 1000 - self.forming_ms

    @cached_property
    def computing_ms(self) -> np.ndarray:
        return (self.finish_s - self.start_s) * 1000

    @cached_property
    def server_time(self) -> ServerTime:
        """What the servers did until any time."""
        return ServerTime(self.log, self.scenario.servers)

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
        return [*self.server_time.waits(arrival_s, start_s), ("computing", start_s, finish_s)]

    @cached_property
    def batches(self) -> Batches:
        """Columns with a row a batch."""
        log = self.log
        return Batches(
            log.batch_start_s, log.batch_finish_s, log.batch_size, log.batch_server, log.batch_trigger
        )

    # Summary numbers, over the requests after the warm-up.

    @property
    def warmup_requests(self) -> int:
        """How many requests of each replication the summary numbers leave out."""
        return warmup_requests(self.warmup, self.replications[0].log.arrival_s.size)

    @cached_property
    def metrics(self) -> Metrics:
        """What the summary numbers are made of."""
        if self.sums is not None:
            return Metrics(self.scenario, *self.sums)
        if self.runs:
            return Metrics.pool([run.metrics for run in self.runs])
        return metrics.whole(self)

    @cached_property
    def sections(self) -> Parts:
        """The same of equally many requests each, one section of the run after the other."""
        return metrics.parts(self, confidence.FINE)

    def percentile(self, q: float, *, unserved: str = "ignore") -> float:
        """Return the latency in ms that q % of the requests do not exceed (NumPy's "linear").

        Over the served requests; `unserved="inf"` counts the others as infinitely late. NaN if
        there are none. Exact; with keep="summary", to 0.1 %.
        """
        return self.metrics.percentile(q, unserved)

    @property
    def mean_latency_ms(self) -> float:
        return self.metrics.numbers["mean_latency_ms"]

    @property
    def throughput_per_s(self) -> float:
        """Finished requests per second, over the window."""
        return self.metrics.numbers["throughput_per_s"]

    @property
    def utilisation(self) -> float:
        """The fraction of the window that the servers spent computing."""
        return self.metrics.numbers["utilisation"]

    @property
    def mean_batch_size(self) -> float:
        """The mean over the batches that start in the window."""
        return self.metrics.numbers["mean_batch_size"]

    def attainment(self, objective_ms: float) -> float:
        """Return the fraction of the requests that were served within `objective_ms`."""
        return float(self.metrics.within(objective_ms) / self.metrics.totals.requests)

    def goodput_per_s(self, objective_ms: float) -> float:
        """Return the requests per second that were served within `objective_ms`."""
        return self.metrics.per_s(self.metrics.within(objective_ms))

    def summary(self) -> dict[str, Any]:
        """Return the run's plain numbers; NaN where there is nothing to average.

        `stable` is whether the load, the arrival rate over the capacity, is below 1, in full batches
        too (a closed loop, a queue limit and a timeout are always stable). `drifting` is whether the arrival
        rate itself changed along the run, so that one percentile of it is nobody's: see
        `over_time`.
        """
        return {**self.metrics.summary(), "drifting": self.rate_range_per_s is not None}

    @cached_property
    def rate_range_per_s(self) -> tuple[float, float] | None:
        """The lowest and the highest arrival rate along a run whose traffic drifts, else None."""
        return overtime.rate_range_per_s(self)

    def interval(self, key: str, level: float = 0.95) -> tuple[float, float]:
        """Return (low, high), which holds the true value with that confidence.

        `key` is any of `summary()`, or any percentile, as "p99" or "p99.9_ms". From replications,
        or from the sections of one run; (NaN, NaN) and a warning where the run is too short for
        it, or keeps no columns. See `batchsim.result.intervals`.

        >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait, simulate
        >>> result = simulate(Scenario(Poisson(800), SizeOrWait(32, 10), Affine(5, 0.25)), requests=20_000)
        >>> low, high = result.interval("p99")
        >>> low < result.percentile(99) < high
        True
        """
        return confidence.interval(self, key, level)

    def over_time(self, window_s: float) -> "pandas.DataFrame":
        """Return a DataFrame with a row for each `window_s` of the run: rates, queue, percentiles.

        For traffic that drifts, as over a day. See `batchsim.result.timeseries`.
        """
        return overtime.over_time(self, window_s)

    def save(self, path: str | PathLike[str]) -> None:
        """Write all but a model's outputs to one file, from which `Result.load` makes an equal result."""
        from batchsim.result import storage as saved

        saved.save(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Result":
        """Read a file that `save` wrote; ValueError for any other, or a damaged one."""
        from batchsim.result import storage as saved

        return saved.load(path)

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
        s = self.summary()
        lost = "".join(
            f", {s[name]:,} {name.replace('_', ' ')}" for name in ("rejected", "timed_out") if s[name]
        )
        rate = "closed loop" if math.isnan(s["load"]) else f"load {s['load']:.2f}"
        unstable = "" if s["stable"] else ", UNSTABLE: the queue grows without end"
        if not s["stable"] and s["load"] < 1:
            unstable += f" (full batches: {self.scenario.full_batches_per_s:.1f}/s)"
        rows = [
            ("requests", f"{s['requests']:,}, {s['served']:,} served{lost}"),
            (
                "latency",
                f"mean {s['mean_latency_ms']:.2f} ms, p50 {s['p50_ms']:.2f}, "
                f"p95 {s['p95_ms']:.2f}, p99 {s['p99_ms']:.2f}",
            ),
            ("of which", ", ".join(f"{part} {s[f'mean_{part}_ms']:.2f} ms" for part in PARTS)),
            (
                "throughput",
                f"{s['throughput_per_s']:.1f}/s of {s['saturation_per_s']:.1f}/s, {rate}{unstable}",
            ),
            ("utilisation", f"{s['utilisation']:.3f}"),
            (
                "batches",
                f"{s['batches']:,} of {s['mean_batch_size']:.2f} on average; "
                + ", ".join(
                    f"{name.removesuffix('_share')} {share:.0%}"
                    for name, share in self.metrics.shares().items()
                ),
            ),
        ]
        if self.rate_range_per_s is not None:
            low, high = self.rate_range_per_s
            rows.append(
                (
                    "DRIFTING",
                    f"from {low:.4g}/s to {high:.4g}/s: one percentile mixes them, see over_time()",
                )
            )
        return rows

    def __repr__(self) -> str:
        return "\n".join(["Result", *(f"  {what:<12}{figures}" for what, figures in self._rows())])

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{what}</th>'
            f'<td style="text-align:left">{figures}</td></tr>'
            for what, figures in self._rows()
        )
        return f"<table><caption>batchsim result</caption><tbody>{rows}</tbody></table>"
