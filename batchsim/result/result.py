"""What `simulate` returns: one or several runs, their columns in a row, and the metrics of all of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from batchsim import _check
from batchsim._compat import bincount, kept
from batchsim._format import html_table
from batchsim.engines.log import Log, Status
from batchsim.engines.token_log import TokenLog
from batchsim.result import printing, timeseries
from batchsim.result.breakdown import Stretches, stretches
from batchsim.result.by_priority import by_priority
from batchsim.result.intervals import metric_intervals
from batchsim.result.metrics import LATENCY, Metrics, metric
from batchsim.result.replicas import by_replica
from batchsim.result.run import Batches, Run, state_of
from batchsim.result.run_length import Periods
from batchsim.result.sample import Sample, dropped_of, sample_of
from batchsim.result.standard_error import Interval, NoInterval
from batchsim.result.token_run import NO_TOKENS, Steps, TokenRun, batches_of, frame_of, meeting
from batchsim.scenario import Scenario
from batchsim.scenario.rules import Trigger
from batchsim.scenario.sized_time import SizedTime

if TYPE_CHECKING:
    import pandas


NO_RATE = NoInterval("needs an arrival rate, which clients that wait for answers do not have")

Value = TypeVar("Value")


def computed(read: "Callable[[Any], Value]", about: str) -> "kept[Value]":
    """Return a property that is computed when it is first read."""
    read.__doc__ = about
    return kept(read)


def column(name: str, about: str, kind: type[Run] = Run) -> "kept[np.ndarray]":
    """Return a property: a column of the runs, one after the other; of runs of this kind alone."""

    def read(result: Any) -> np.ndarray:
        if not isinstance(result.runs[0], kind):
            raise ValueError(NO_TOKENS)
        columns = [getattr(run, name) for run in result.runs]
        return columns[0] if len(columns) == 1 else np.concatenate(columns)

    return computed(read, about)


def number(key: str, about: str) -> "kept[float]":
    """Return a property: one of the metrics."""
    return computed(lambda result: result.metrics.numbers[key], about)


def frame(result: Any) -> "pandas.DataFrame":
    """Return a DataFrame with a row a request; see `Result.to_frame`."""
    import pandas

    log = result.log
    # Index -1, not served, finds what is appended at the end.
    triggers = np.array([Trigger(t).name.lower() for t in log.batch_trigger] + [""], dtype=object)
    times = (
        "arrival_s",
        "start_s",
        "finish_s",
        "latency_ms",
        *(f"{part}_ms" for part in result.metrics.components),
    )
    return pandas.DataFrame({
        **{name: getattr(result, name) for name in times},
        "batch_index": log.batch_index,
        "batch_size": np.append(log.batch_size, 0)[log.batch_index],
        "server": np.append(log.batch_server, -1)[log.batch_index],
        "trigger": triggers[log.batch_index],
        "status": [Status(state).name.lower() for state in log.status],
        **({} if log.priority is None else {"priority": log.priority}),
        **({} if log.size is None else {"size": log.size}),
        **({} if log.replica is None else {"replica": log.replica}),
    })  # fmt: skip


class TokenColumns:
    """The columns of token generation; ValueError for a run without."""

    runs: tuple[Run, ...]

    @property
    def log(self) -> Log:
        raise NotImplementedError

    prompt_tokens = computed(lambda result: result.token_log.prompt_tokens, "The length of each prompt.")
    output_tokens = computed(lambda result: result.token_log.output_tokens, "The length of each answer.")
    preemptions = computed(lambda result: result.token_log.preemptions, "How often each was preempted.")
    steps = computed(lambda result: Steps.of(result.token_log), "Columns with a row a step.")
    first_token_s = column("first_token_s", "When each request's first token is made.", TokenRun)
    ttft_ms = column("ttft_ms", "Time to the first token, from arrival.", TokenRun)
    tpot_ms = column(
        "tpot_ms", "Time per output token after the first; NaN where it is the only one.", TokenRun
    )
    stall_ms = column("stall_ms", "Longest time between two tokens; NaN with a single token.", TokenRun)
    prefill_ms = column("prefill_ms", "From the start to the first token, but for `preempted_ms`.", TokenRun)
    decode_ms = column("decode_ms", "From the first token to the finish, but for `preempted_ms`.", TokenRun)
    preempted_ms = column(
        "preempted_ms", "Waiting between a preemption and the step that serves it again.", TokenRun
    )

    @property
    def token_log(self) -> TokenLog:
        """The columns of a run of token generation; ValueError for another."""
        if not isinstance(self.log, TokenLog):
            raise ValueError(NO_TOKENS)
        return self.log


@dataclass(frozen=True, eq=False, repr=False)
class Result(TokenColumns):
    """One run, or several replications: columns with a row a request in arrival order, and their metrics.

    Times are in seconds (`arrival_s`), durations in milliseconds (`latency_ms`). A request that was not
    served has NaN times and batch_index -1; `status` is the reason. The columns of several replications
    follow each other, and the metrics are over all of them. With keep="summary" there are no columns.

    Raises ValueError without a run, or if the runs are of different scenarios or warm-ups.
    """

    runs: tuple[Run, ...]
    seed: int
    engine: str

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("a result must have at least one run, got ()")
        for run in self.runs[1:]:
            if run.warmup != self.warmup or run.scenario != self.scenario:
                raise ValueError("replications must share their scenario and warmup, got another")

    __getstate__ = state_of

    @property
    def scenario(self) -> Scenario:
        return self.runs[0].scenario

    @property
    def warmup(self) -> float:
        """The fraction of each run's requests, in arrival order, that the metrics leave out."""
        return self.runs[0].warmup

    @property
    def warmup_requests(self) -> int:
        """The number of requests of each run that the metrics leave out."""
        return self.runs[0].warmup_requests

    @property
    def run(self) -> Run:
        """The only run; ValueError if there are several."""
        if len(self.runs) > 1:
            got = f"{len(self.runs)} replications"
            raise ValueError(f"one run is needed, got {got}: take one of .replications")
        return self.runs[0]

    def with_warmup(self, warmup: float) -> "Result":
        """Return the same runs with another warm-up; ValueError if the runs have no columns."""
        if warmup == self.warmup:
            return self
        if not self.has_columns:
            got = f"{self.warmup!r} and {warmup!r}"
            raise ValueError(f"runs with keep='summary' must share their warmup, got {got}")
        return replace(self, runs=tuple(replace(run, warmup=warmup) for run in self.runs))

    @kept
    def replications(self) -> tuple["Result", ...]:
        """A result of each run; number 0 is the plain run."""
        return tuple(replace(self, runs=(run,)) for run in self.runs) if len(self.runs) > 1 else (self,)

    # Columns, a row a request.

    @property
    def has_columns(self) -> bool:
        return self.runs[0].columns is not None

    @kept
    def log(self) -> Log:
        """The columns as the engine returned them, batches numbered through."""
        logs = [run.log for run in self.runs]
        return logs[0] if len(logs) == 1 else type(logs[0]).join(logs)

    outputs = computed(lambda result: result.log.outputs, "The model's output for each request, or None.")
    arrival_s = computed(lambda result: result.log.arrival_s, "When each request arrives.")
    batch_index = computed(lambda result: result.log.batch_index, "Each request's batch; -1: not served.")
    status = computed(lambda result: result.log.status, "What became of each request: uint8 of `Status`.")
    priority = computed(lambda result: result.log.priority, "Each request's priority level: uint8, or None.")
    size = computed(lambda result: result.log.size, "Each request's size, as it was sent, or None.")
    replica = column("replica", "The replica to which the router sent each request: uint16, from 0 on.")
    timeout_s = column(
        "timeout_s", "How long each request waits until it times out or is delayed; inf: none."
    )
    delayed = column("delayed", "Whether each request was served after a timeout that delays it.")
    start_s = column("start_s", "When the computing of each request's batch starts.")
    finish_s = column("finish_s", "When it ends.")
    latency_ms = column("latency_ms", "From arrival to finish: the sum of the next four.")
    forming_ms = column("forming_ms", "Waiting for company while a server is idle.")
    queueing_ms = column("queueing_ms", "Waiting while every server computes.")
    device_wait_ms = column("device_wait_ms", "Waiting on a server for a device that several share.")
    computing_ms = column("computing_ms", "From start to finish, but for `device_wait_ms`.")

    ready_s = column("ready_s", "When each batch is computed: see `Run.ready_s`.")

    @kept
    def batches(self) -> Batches:
        """Columns with a row a batch."""
        b = self.log
        if isinstance(b, TokenLog):
            return batches_of(b)
        columns = (b.batch_start_s, b.batch_finish_s, b.batch_size, b.batch_server, b.batch_trigger)
        if not isinstance(self.scenario.service, SizedTime):
            return Batches(*columns)
        units = zip(*(run.units[:2] for run in self.runs), strict=True)
        return Batches(*columns, *map(np.concatenate, units))

    def story(self, request: int) -> list[tuple[str, float, float]]:
        """Return what a request went through, in order: ("forming", from_s, to_s), ...

        Forming and queueing can alternate; a request that was not served has no story.
        """
        found = self.stretches(np.array([request])).items()
        parts = [
            (name, *times) for name, each in found for times in np.stack([each.from_s, each.to_s], 1).tolist()
        ]
        return sorted(parts, key=lambda part: part[1:])

    def stretches(self, requests: np.ndarray) -> dict[str, Stretches]:
        """Return when each of some requests was forming, queueing and computing."""
        return stretches(self.runs, requests)

    # Metrics, over the requests after the warm-up.

    @kept
    def metrics(self) -> Metrics:
        return Metrics.pool([run.metrics for run in self.runs])

    def percentile(self, q: float, *, unserved: str = "ignore", column: str = LATENCY) -> float:
        """Return the latency in ms that q % of the requests do not exceed (NumPy's "linear").

        Over the served requests; `unserved="inf"` counts the others as infinitely late. NaN without any.
        Exact; with keep="summary", to 0.1 %. With tokens also of another `column`: "ttft_ms", "tpot_ms".
        """
        return self.metrics.percentile(q, unserved, _check.one_of("column", column, self.metrics.columns))

    mean_latency_ms = number("mean_latency_ms", "The mean over the served requests.")
    throughput_per_s = number("throughput_per_s", "Finished requests per second, over the window.")
    utilisation = number(
        "utilisation",
        "The fraction of the window that the servers had a batch, waiting for a device included.",
    )
    device_utilisation = number("device_utilisation", "The fraction that the devices computed.")
    mean_batch_size = number("mean_batch_size", "The mean over the batches that start in the window.")

    def attainment(
        self, objective_ms: float | None = None, *, ttft_ms: float | None = None, tpot_ms: float | None = None
    ) -> float:
        """Return the fraction of the requests that were served within `objective_ms`.

        With tokens also within `ttft_ms` and `tpot_ms`: all limits that are given. An answer of one token has
        no TPOT, and keeps any limit on it.
        """
        met = meeting(self.runs, objective_ms=objective_ms, ttft_ms=ttft_ms, tpot_ms=tpot_ms)
        return float(met / self.metrics.totals.requests)

    def goodput_per_s(
        self, objective_ms: float | None = None, *, ttft_ms: float | None = None, tpot_ms: float | None = None
    ) -> float:
        """Return the requests per second that were served within limits, as `attainment` counts them."""
        met = meeting(self.runs, objective_ms=objective_ms, ttft_ms=ttft_ms, tpot_ms=tpot_ms)
        return self.metrics.per_s(met)

    def summary(self) -> dict[str, Any]:
        """Return the metrics as plain numbers; NaN where there is nothing to average.

        `stable` is whether the load, the arrival rate over the saturation rate, is below 1, in full batches
        too (a closed loop, a queue limit and a timeout are always stable). `drifting` is whether the arrival
        rate itself changes along the run, so that its percentiles mix quiet and busy times: see `over_time`.
        """
        return self.metrics.summary(self.rate_range_per_s is not None)

    @kept
    def rate_range_per_s(self) -> tuple[float, float] | None:
        """The lowest and the highest arrival rate along a run whose traffic drifts, else None."""
        requests = int(self.runs[0].metrics.totals.requests)
        return timeseries.rate_range_per_s(self.scenario.workload, requests, self.warmup)

    @kept
    def sample(self) -> Sample:
        """What intervals are made from."""
        return sample_of(self.runs, self.metrics, self.periods, self.rate_range_per_s)

    @kept
    def periods(self) -> Periods | None:
        """The periods that each run covers, of traffic that has some."""
        requests = int(self.runs[0].metrics.totals.requests)
        return Periods.of(self.scenario.workload, requests, dropped_of(self.metrics, self.runs))

    def intervals(self, keys: Sequence[str], level: float = 0.95) -> dict[str, Interval]:
        """Return the interval of each key, or a `NoInterval` with the reason, without a warning."""
        level = _check.real("level", level, above=0, below=1)
        metrics = {key: metric(key, self.metrics.keys) for key in keys}
        random = {each.key: each for each in metrics.values() if each.random}
        intervals = metric_intervals([self.sample], list(random.values()), level) if random else {}
        for each in metrics.values():
            if not each.random:
                value = float(self.summary()[each.key])
                intervals[each.key] = NO_RATE if math.isnan(value) else Interval(value, value)
        return {key: intervals[each.key] for key, each in metrics.items()}

    def interval(self, key: str, level: float = 0.95) -> tuple[float, float]:
        """Return (low, high), which holds the true value with that confidence.

        `key` is any of `summary()`, or any percentile, as "p99" or "p99.9_ms". From replications,
        or from the sections of one run; (NaN, NaN) and a warning where the run is too short for
        it, or keeps no columns. See `batchsim.result.intervals`.

        >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait, simulate
        >>> result = simulate(Scenario(Poisson(800), SizeOrWait(32, 10), Affine(5, 0.25)), requests=20_000)
        >>> low, high = result.interval("p99")
        >>> low <= result.percentile(99) <= high
        True
        """
        interval = self.intervals([key], level)[key]
        if isinstance(interval, NoInterval):
            _check.warn(f"an interval for {metric(key).key} {interval.reason}")
        return interval.low, interval.high

    def by_priority(self, level: float = 0.95) -> "pandas.DataFrame":
        """Return a DataFrame with a row for each priority level: counts, throughput and latencies.

        The columns `..._low` and `..._high` are intervals, NaN where `interval` would warn. ValueError
        without priorities, and without columns.

        >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait, simulate
        >>> workload = Poisson(900).with_priorities({1: 0.2, 2: 0.8})
        >>> result = simulate(Scenario(workload, SizeOrWait(1, 0), Affine(1, 0)), requests=20_000)
        >>> result.by_priority()["mean_latency_ms"].round(1).to_dict()
        {1: 1.6, 2: 6.4}
        """
        level = _check.real("level", level, above=0, below=1)
        return by_priority(self.runs, self.sample, level)

    @property
    def imbalance(self) -> float:
        """The requests of the replica with most of them, over the mean; 1 if all have equally many."""
        counts = bincount(self.replica, minlength=self.scenario.most_replicas)
        return float(counts.max() / counts.mean())

    def by_replica(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row for each replica: its requests, its batches, its load, its latencies.

        Over the requests after the warm-up, as the metrics of all. `share` is that of its requests.

        >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait, simulate
        >>> scenario = Scenario(Poisson(900), SizeOrWait(8, 10), Affine(5, 0.25), replicas=2)
        >>> result = simulate(scenario.replace(routing="fill_first"), requests=20_000)
        >>> result.by_replica()[["share", "mean_batch_size"]].round(2).to_dict("list")
        {'share': [0.95, 0.05], 'mean_batch_size': [7.63, 2.58]}
        """
        return by_replica(self.runs)

    @property
    def scaling(self) -> "pandas.DataFrame":
        """A row for each evaluation of the autoscaler: when, its signal, the replicas asked for, and up.

        The first row is the start of the run. ValueError without an autoscaler.
        """
        import pandas

        rows = self.run.log.scaling
        if rows is None:
            raise ValueError(
                f"a scenario must have autoscale=Autoscale(...), got {self.scenario.replicas} replicas"
            )
        frame = pandas.DataFrame(rows, columns=["time_s", "signal", "asked", "up"])
        return frame.astype({"asked": int, "up": int})

    def over_time(self, window_s: float) -> "pandas.DataFrame":
        """Return a DataFrame with a row for each `window_s` of the run: rates, queue, percentiles.

        For traffic that drifts, as over a day. See `batchsim.result.timeseries`.
        """
        return timeseries.over_time(self.run, window_s)

    def save(self, path: str | PathLike[str]) -> None:
        """Write all but a model's outputs to one file; `Result.load` reads it as an equal result."""
        from batchsim.result import storage

        about = {name: value for name, value in state_of(self).items() if name != "runs"}
        storage.save(self.runs, about, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Result":
        """Read a file that `save` wrote; ValueError for any other, or a damaged one."""
        from batchsim.result import storage

        runs, about = storage.load(path)
        about = {name: value for name, value in about.items() if not _check.removed(name)}
        if unknown := {*about} - {field.name for field in fields(cls)}:
            raise ValueError(f"{path} must be a saved {cls.__name__}, got one with {min(unknown)!r}")
        return cls(runs, **about)

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row a request, statuses and triggers by name."""
        return frame_of(self, self.log) if isinstance(self.log, TokenLog) else frame(self)

    def _rows(self) -> dict[str, str]:
        rows = printing.rows(self.metrics, self.rate_range_per_s)
        if " on " in self.engine:  # a device, to which the saturation rate of the scenario does not apply
            rows["throughput"] = f"{self.throughput_per_s:.1f}/s"
            rows["times"] = f"{self.engine}: not reproducible"
        return rows

    def __repr__(self) -> str:
        return "\n".join(["Result", *(f"  {heading:<12}{text}" for heading, text in self._rows().items())])

    def _repr_html_(self) -> str:
        return html_table("batchsim result", (), self._rows().items(), "<<")
