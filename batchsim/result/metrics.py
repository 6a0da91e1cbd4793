"""The metrics: a table with the name and the value of each, and their values for one run or several."""

import functools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from batchsim import _check
from batchsim._compat import kept
from batchsim.engines.log import Status
from batchsim.engines.token_log import TokenTotals
from batchsim.engines.totals import Histogram, Totals, percentiles
from batchsim.result.value_columns import OrderStatistics, pooled
from batchsim.scenario import ClosedLoop, Continuous, Scenario
from batchsim.scenario.rules import Trigger
from batchsim.scenario.rules.rule import ENDLESS
from batchsim.scenario.sized_time import SizedTime


class Quantity(StrEnum):
    """How a metric comes about, and so how its interval does."""

    GIVEN = "given"  # by the scenario: nothing random is in it
    FLAG = "flag"  # likewise, True or False
    COUNT = "count"  # twice as large in a run twice as long
    MEAN = "mean"
    SHARE = "share"  # from 0 to 1
    PERCENTILE = "percentile"
    OF_ALL = "of all"  # counts requests that are not served: in sweeps, not in a summary


class Of:
    """The totals that metrics are computed from: of a whole run, or arrays with a row a section."""

    def __init__(self, totals: Any, scenario: Scenario | None) -> None:
        self.totals, self.servers, self.devices, self.price_per_hour, self.watts = totals, 1, 1, 0.0, None
        self.served = totals.statuses[..., Status.SERVED]
        if scenario is not None:
            replicas: Any = scenario.replicas
            if scenario.autoscale is not None:  # in an empty window no number matters
                replicas = np.where(np.equal(totals.window_s, 0), 1, self.replicas)
            self.servers, self.devices = replicas * scenario.servers, replicas * scenario.device_count
            self.price_per_hour, self.watts = scenario.price_per_hour or 0.0, scenario.watts_at

    @kept
    def _window_s(self) -> Any:
        """The seconds of the window, endless ones instead of none."""
        return np.where(np.equal(self.totals.window_s, 0), math.inf, self.totals.window_s)

    @property
    def replicas(self) -> Any:
        """The replicas that an autoscaler let run, on average."""
        return np.divide(self.totals.replica_s, self.totals.window_s)

    def mean_ms(self, sum_s: Any, count: Any = None) -> Any:
        """Return the mean of times over the served requests, or over so many."""
        return np.divide(sum_s, self.served if count is None else count) * 1000

    def per_s(self, count: Any) -> Any:
        """Return a sum per second of the window; 0 for an empty one."""
        return np.divide(count, self._window_s)

    def cost_of_million(self, count: Any) -> Any:
        """Return what the servers cost for a million of what they made so many of."""
        hours = self.servers * self.totals.window_s / 3600
        return np.divide(self.price_per_hour * hours, count) * MILLION

    @property
    def joules(self) -> Any:
        """What the servers draw in the window, idle or not."""
        if self.watts is None:
            return self.totals.joules
        idle_s = self.servers * self.totals.window_s - self.totals.busy_s
        return self.totals.joules + self.watts(np.zeros(1))[0] * np.maximum(idle_s, 0.0)


@dataclass(frozen=True)
class Metric:
    """How a metric is called and computed, its unit ("ms", "per s" or ""), and which values of it are better.

    `better` is "lower", "higher" or None. `interval`: sweeps and the shell give its 95 % interval too.
    Percentiles have their `q`, and the `column` of the requests that they are taken from; other metrics are
    computed by `value` from totals. One without either is given by the scenario: see `Metrics.summary`.
    """

    key: str
    label: str
    unit: str = ""
    better: str | None = None
    quantity: Quantity = Quantity.MEAN
    interval: bool = False
    q: float | None = None
    column: str = "latency_ms"
    value: Callable[[Of], Any] | None = None

    @property
    def random(self) -> bool:
        """Whether it is measured, rather than given by the scenario."""
        return self.quantity not in (Quantity.GIVEN, Quantity.FLAG)

    def plain(self, value: float) -> float | int | bool:
        """Return a value as the summary has it."""
        return PLAIN.get(self.quantity, float)(value)


PLAIN: dict[Quantity, type] = {Quantity.COUNT: int, Quantity.FLAG: bool}


LATENCY = "latency_ms"
TTFT, TPOT = "ttft_ms", "tpot_ms"  # to the first token; for each token after it
ITL, STALL = "itl_ms", "stall_ms"  # gaps between tokens; the longest of each request
COMPONENTS = ("forming", "queueing", "computing")  # of a latency, which they sum to
DEVICE_WAIT = "device_wait"  # a component, too, where servers share devices: before `computing`
OF_DEVICES = ("device_utilisation", f"mean_{DEVICE_WAIT}_ms")  # shown for scenarios with `devices` alone
OF_UNITS = ("mean_units", "padding")  # of service times that depend on sizes
OF_COST = ("cost_per_million", "cost_per_million_tokens")  # of servers with a price
OF_ENERGY = ("joules_per_request", "joules_per_token")  # of servers with watts
OF_FLEETS = ("mean_replicas", *OF_ENERGY, *OF_COST)  # shown where scenarios ask for them
MILLION = 1_000_000
OF_SIZES = (*OF_UNITS, "oversized")  # of requests with sizes
COMPUTING = ("prefill", "decode", "preempted")  # of the computing of tokens, likewise
SHARES = {trigger: f"{trigger.name.lower()}_share" for trigger in Trigger}
_PERCENTILE = re.compile(r"(?:(ttft|tpot|itl|stall)_)?p(\d{1,3}(?:\.\d+)?)(?:_ms)?")
UNITS = {"_per_s": "per s", "_ms": "ms", "_s": "s"}  # by the end of a name


def percentile_key(q: float, column: str = LATENCY) -> str:
    """Return a percentile's name in a summary.

    >>> percentile_key(99), percentile_key(99.95), percentile_key(99, "ttft_ms")
    ('p99_ms', 'p99.95_ms', 'ttft_p99_ms')
    """
    return f"{'' if column == LATENCY else column.removesuffix('ms')}p{q:.9g}_ms"


def _percentile(q: float, column: str = LATENCY, interval: bool = False, key: str = "") -> Metric:
    label = (
        "" if column == LATENCY else f"{'stall' if column == STALL else column.removesuffix('_ms').upper()} "
    )
    label = f"{label}p{q:.9g}"
    return Metric(
        key or percentile_key(q, column), label, "ms", "lower", Quantity.PERCENTILE, interval, q, column
    )


def _count(key: str, value: Callable[[Of], Any], better: str | None = None) -> Metric:
    return Metric(key, key.replace("_", " "), better=better, quantity=Quantity.COUNT, value=value)


def _became(status: Status, better: str) -> Metric:
    return _count(status.name.lower(), lambda of: of.totals.statuses[..., status], better)


def _mean(name: str, label: str, value: Callable[[Of], Any], interval: bool = False) -> Metric:
    return Metric(f"mean_{name}_ms", f"mean {label}", "ms", "lower", interval=interval, value=value)


def _part(place: int, name: str, of_tokens: bool = False) -> Metric:
    field = "computing_s" if of_tokens else "parts_s"
    return _mean(name, f"{name} time", lambda of: of.mean_ms(getattr(of.totals, field)[..., place]))


def _left(trigger: Trigger, key: str) -> Metric:
    def share(of: Of) -> Any:
        return np.divide(of.totals.triggers[..., trigger], of.totals.batches)

    return Metric(key, key.replace("_", " "), quantity=Quantity.SHARE, value=share)


# In the order of the summary. To add a metric: a line here.
_TABLE = (
    _count("requests", lambda of: of.totals.requests),
    _became(Status.SERVED, "higher"),
    _became(Status.REJECTED, "lower"),
    _became(Status.TIMED_OUT, "lower"),
    _count("delayed", lambda of: of.totals.delayed, "lower"),
    _count("oversized", lambda of: of.totals.oversized, "lower"),
    Metric("loss", "loss", better="lower", quantity=Quantity.OF_ALL),
    Metric("offered_per_s", "arrival rate", "per s", quantity=Quantity.GIVEN),
    Metric("saturation_per_s", "saturation rate", "per s", "higher", Quantity.GIVEN),
    Metric("load", "load", quantity=Quantity.GIVEN),
    Metric("stable", "stable", better="higher", quantity=Quantity.FLAG),
    Metric("drifting", "drifting", quantity=Quantity.FLAG),
    Metric(
        "throughput_per_s", "throughput", "per s", "higher", interval=True,
        value=lambda of: of.per_s(of.totals.finished),
    ),
    Metric(
        "utilisation", "utilisation", quantity=Quantity.SHARE, interval=True,
        value=lambda of: of.per_s(of.totals.busy_s) / of.servers,
    ),
    Metric(
        "device_utilisation", "device utilisation", quantity=Quantity.SHARE, interval=True,
        value=lambda of: of.per_s(of.totals.busy_s - of.totals.off_device_s) / of.devices,
    ),
    Metric("mean_replicas", "mean replicas", better="lower", value=lambda of: of.replicas),
    Metric(
        "cost_per_million", "cost per million requests", better="lower",
        value=lambda of: of.cost_of_million(of.totals.finished),
    ),
    Metric(
        "joules_per_request", "energy per request", "J", "lower",
        value=lambda of: np.divide(of.joules, of.totals.finished),
    ),
    _mean("latency", "latency", lambda of: of.mean_ms(of.totals.parts_s[..., 0]), interval=True),
    _percentile(50, interval=True),
    _percentile(90),
    _percentile(95, interval=True),
    _percentile(99, interval=True),
    Metric("p99_all_ms", "p99 of all requests", "ms", "lower", Quantity.OF_ALL),
    *(_part(place, name) for place, name in enumerate(COMPONENTS, 1)),
    _mean(DEVICE_WAIT, "wait for a device", lambda of: of.mean_ms(of.totals.device_wait_s)),
    _count("batches", lambda of: of.totals.batches),
    Metric(
        "mean_batch_size", "mean batch size", interval=True,
        value=lambda of: np.divide(of.totals.items, of.totals.batches),
    ),
    Metric(
        "mean_units", "mean units", interval=True,
        value=lambda of: np.divide(of.totals.units, of.totals.batches),
    ),
    Metric(
        "padding", "padding", better="lower", quantity=Quantity.SHARE, interval=True,
        value=lambda of: 1 - np.divide(of.totals.carried, of.totals.units),
    ),
    *(_left(trigger, key) for trigger, key in SHARES.items()),
)  # fmt: skip
METRICS = {metric.key: metric for metric in _TABLE}
# For token generation: these end its summary, in this order.
_TOKENS = (
    *(_part(place, name, of_tokens=True) for place, name in enumerate(COMPUTING)),
    _mean("ttft", "TTFT", lambda of: of.mean_ms(of.totals.ttft_s), interval=True),
    *(_percentile(q, TTFT, interval=True) for q in (50, 95, 99)),
    _mean("tpot", "TPOT", lambda of: of.mean_ms(of.totals.tpot_s, of.totals.longer), interval=True),
    *(_percentile(q, TPOT, interval=True) for q in (50, 95, 99)),
    _mean("itl", "ITL", lambda of: of.mean_ms(of.totals.itl_s, of.totals.gaps), interval=True),
    *(_percentile(q, ITL, interval=True) for q in (50, 95, 99)),
    _percentile(99, STALL, interval=True),
    Metric(
        "output_tokens_per_s", "output tokens", "per s", "higher", interval=True,
        value=lambda of: of.per_s(of.totals.output_tokens),
    ),
    Metric(
        "cost_per_million_tokens", "cost per million tokens", better="lower",
        value=lambda of: of.cost_of_million(of.totals.output_tokens),
    ),
    Metric(
        "joules_per_token", "energy per token", "J", "lower",
        value=lambda of: np.divide(of.joules, of.totals.output_tokens),
    ),
    Metric(
        "preempted_share", "preempted share", better="lower", quantity=Quantity.SHARE,
        value=lambda of: np.divide(of.totals.preempted, of.served),
    ),
)  # fmt: skip
TOKENS = {metric.key: metric for metric in _TOKENS}
SUMMARY = [key for key, metric in METRICS.items() if metric.quantity is not Quantity.OF_ALL]
OF_LATENCIES = {key: metric.q for key, metric in METRICS.items() if metric.q is not None}


def metric(key: Any, known: Sequence[str] = (*METRICS, *TOKENS)) -> Metric:
    """Return a metric by its key, or any percentile, as "p99" or "p99.9_ms"; raise for another.

    >>> metric("throughput_per_s").label, metric("p99.9").key, metric("p99.9").unit
    ('throughput', 'p99.9_ms', 'ms')
    """
    _check.instance("a metric", key, str, "named by text")
    if key in known:
        return METRICS.get(key) or TOKENS[key]
    percentile = _PERCENTILE.fullmatch(key)
    if percentile and (not percentile[1] or "mean_ttft_ms" in known):
        q = _check.real("a percentile", float(percentile[2]), at_most=100)
        column = f"{percentile[1]}_ms" if percentile[1] else LATENCY
        key = f"{percentile[1] + '_' if percentile[1] else ''}p{percentile[2]}_ms"
        return METRICS.get(key) or TOKENS.get(key) or _percentile(q, column, key=key)
    of_tokens = key in TOKENS or percentile
    if of_tokens or key in SHARES.values():
        rule = (
            "tokens are needed, as Scenario(..., tokens=...)"
            if of_tokens
            else "under Continuous no batch leaves"
        )
        raise ValueError(f"a metric must be one of the summary's, got {key!r}: {rule}")
    raise ValueError(f"a metric must be one of the summary's, got {key!r}{_check.nearest(key, known)}")


def heading(name: str) -> str:
    """Return the heading of a column or an axis: the name with its unit.

    >>> heading("p99_ms"), heading("p99_all_ms"), heading("utilisation")
    ('p99 (ms)', 'p99 of all requests (ms)', 'utilisation')
    """
    each = described(name)
    return f"{each.label} ({each.unit})" if each.unit else each.label


def better(name: str) -> str | None:
    """Return which values of a metric or another column are better: "lower", "higher" or None."""
    return described(name).better


# Knobs whose name in the lessons and the glossary is not their name in the code.
LABELS = {"max_num_batched_tokens": "step budget", "max_num_seqs": "number of seats"}


def described(name: str) -> Metric:
    """Return the label, the unit and the better values of a metric, a knob or another column.

    >>> described("mean_latency_ms").label, described("max_wait_ms").label, described("workload.cv").label
    ('mean latency', 'max wait', 'workload.cv')
    >>> described("p99").unit, described("rate_per_s").unit, described("utilisation").unit
    ('ms', 'per s', '')
    """
    if name in METRICS or name in TOKENS or _PERCENTILE.fullmatch(name):
        return metric(name)
    suffix = next((suffix for suffix in UNITS if name.endswith(suffix)), "")
    lower = "lower" if suffix == "_ms" else None
    label = LABELS.get(name) or name.removesuffix(suffix).replace("_", " ")
    return Metric(name, label, UNITS.get(suffix, ""), lower)


def value_of(key: str, of: Of) -> Any:
    """Return one metric that is a sum or a ratio of sums."""
    value = metric(key).value
    assert value is not None, key
    return value(of)


def values(totals: Totals, scenario: Scenario | None = None) -> dict[str, Any]:
    """Return the metrics that are sums or ratios of sums: a number each, or an array by section."""
    table = (*_TABLE, *_TOKENS) if isinstance(totals, TokenTotals) else _TABLE
    with np.errstate(divide="ignore", invalid="ignore"):  # NaN where there is nothing to average
        of = Of(totals, scenario)
        return {metric.key: metric.value(of) for metric in table if metric.value is not None}


@dataclass(frozen=True, eq=False)
class Metrics:
    """The metrics of one or several runs, from their sums and the order of their requests' latencies."""

    scenario: Scenario
    totals: Totals
    columns: Mapping[str, OrderStatistics | Histogram]  # of the served requests

    @classmethod
    def pool(cls, runs: Sequence["Metrics"]) -> "Metrics":
        """Return those of several replications together; of one, its own."""
        if len(runs) == 1:
            return runs[0]
        totals = functools.reduce(operator.add, (run.totals for run in runs))
        return cls(runs[0].scenario, totals, pooled([run.columns for run in runs]))

    @kept
    def numbers(self) -> dict[str, float]:
        found = values(self.totals, self.scenario)
        return {key: float(value) for key, value in found.items()}

    @property
    def served(self) -> int:
        return int(self.totals.statuses[Status.SERVED])

    @property
    def tells_devices(self) -> bool:
        """Whether the summary has metrics of devices: where they are given; a real run does not know them."""
        return self.scenario.devices is not None and not math.isnan(self.numbers["device_utilisation"])

    @property
    def components(self) -> tuple[str, ...]:
        """The components of a latency, which they sum to."""
        if self.scenario.device_count == self.scenario.servers or not self.tells_devices:
            return COMPONENTS
        return (*COMPONENTS[:-1], DEVICE_WAIT, COMPONENTS[-1])

    @property
    def absent(self) -> set[str]:
        """The keys that a summary of such a run leaves out."""
        delays = any(limit.delays for limit in self.scenario.limits)
        sized = isinstance(self.scenario.service, SizedTime)
        others = (
            () if delays else ("delayed",), () if self.tells_devices else OF_DEVICES,
            () if self.scenario.autoscale is not None else ("mean_replicas",),
            () if self.scenario.price_per_hour is not None else OF_COST,
            () if self.scenario.watts is not None else OF_ENERGY,
            () if sized else OF_UNITS, () if self.scenario.rule.largest_size < ENDLESS else ("oversized",),
        )  # fmt: skip
        return (set(SHARES.values()) - self.shares().keys()).union(*others)

    @property
    def keys(self) -> list[str]:
        """The keys of the summary."""
        if not isinstance(self.totals, TokenTotals):
            return SUMMARY
        steps = {*SHARES.values()} if isinstance(self.scenario.rule, Continuous) else set()
        return [key for key in (*SUMMARY, *TOKENS) if key not in steps]

    def values_in(self, column: str) -> int:
        """Return how many requests have a value in a column: the served, or those of several tokens."""
        return self.served if column == LATENCY else self.columns[column].within(math.inf)

    def all_in(self, column: str) -> int:
        """Return how many requests have a value in a column, or an infinite one as they are not served."""
        lost = 0 if column == ITL else int(self.totals.requests) - self.served  # they have no gaps
        return lost + self.values_in(column)

    def percentile(self, q: float, unserved: str = "ignore", column: str = LATENCY) -> float:
        """Return the value in ms that q % of the requests do not exceed; see `Result.percentile`."""
        q = _check.real("q", q, at_least=0, at_most=100)
        _check.one_of("unserved", unserved, ("ignore", "inf"))
        return float(self.percentiles(np.array([q]), unserved, column)[0])

    def percentiles(self, qs: np.ndarray, unserved: str = "ignore", column: str = LATENCY) -> np.ndarray:
        """Return many percentiles, unchecked, in little more time than one; the same to the last bit."""
        known, asked = self._known.setdefault((column, unserved), {}), qs.tolist()
        if lacking := [q for q in asked if q not in known]:
            served = self.values_in(column)
            count = served if unserved == "ignore" else self.all_in(column)
            if served:
                found = percentiles(self.columns[column], np.array(lacking), served, count).tolist()
            else:
                found = [math.inf if count else math.nan] * len(lacking)
            known.update(zip(lacking, found, strict=True))
        return np.array([known[q] for q in asked])

    @kept
    def _known(self) -> dict[tuple[str, str], dict[float, float]]:
        """The percentiles that have been read: a summary and its intervals need the same."""
        return {}

    def per_s(self, count: int) -> float:
        return float(count / self.totals.window_s) if self.totals.window_s > 0 else 0.0

    def shares(self) -> dict[str, float]:
        """Return the fraction of the window's batches that left for each reason that occurs."""
        return {share: self.numbers[share] for t, share in SHARES.items() if self.totals.triggers[t]}

    def within(self, objective_ms: float) -> int:
        return self.columns[LATENCY].within(_check.real("objective_ms", objective_ms, at_least=0))

    def number(self, key: str) -> float:
        """Return one measured metric by its key; any percentile, as "p99.9_ms"."""
        if key in self.numbers:
            return self.numbers[key]
        entry = metric(key)
        assert entry.q is not None
        return self.percentile(entry.q, column=entry.column)

    def summary(self, drifting: bool) -> dict[str, Any]:
        """Return the summary's plain numbers; NaN where there is nothing to average."""
        scenario = self.scenario
        closed = isinstance(scenario.workload, ClosedLoop)
        offered = math.nan if closed else scenario.workload.offered_per_s  # type: ignore[union-attr]
        at_ms = self.percentiles(np.array([*OF_LATENCIES.values()])).tolist()
        numbers = {
            "offered_per_s": offered, "saturation_per_s": scenario.saturation_per_s, **self.numbers,
            "load": scenario.load, "stable": scenario.stable, "drifting": drifting,
            **dict(zip(OF_LATENCIES, at_ms, strict=True)),
        }  # fmt: skip
        absent = self.absent
        plain = {key: METRICS[key].plain(numbers[key]) for key in SUMMARY if key not in absent}
        return plain | {
            key: float(self.number(key)) for key in self.keys if key in TOKENS and key not in absent
        }
