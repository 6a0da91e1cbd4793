"""The highest rate that a setting sustains within an objective."""

import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from batchsim import _check, _format
from batchsim._clock import LATEST_S
from batchsim._workers import Crew
from batchsim.engines.estimates import check_memory, warn_if_large
from batchsim.result.run_length import Periods
from batchsim.scenario import OpenLoop, Scenario, Trace
from batchsim.simulate import available, check_requests
from batchsim.study.judgement import OVERLOADED, Judgement, Verdict, judge, out_of_reach, recorded
from batchsim.study.search import LONGEST, Traffic, fits
from batchsim.study.slo import LEVEL, SLO

if TYPE_CHECKING:
    import pandas

# The first rates to try, as fractions of the highest. Some are low, because there requests wait longest.
SCAN = (0.001, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
# Fractions of the longest time: a run that seems to need more than the first gets the second, as chance may
# stretch it.
FULL, SAFE = 0.9, 0.5
# The search takes the highest rate whose run proves it, so it picks the luckiest run. To be wrong in at most
# 5 % of searches, each of about this many runs gets its share of the 5 % (Bonferroni).
TRIED = 25
USUAL = 10  # rates of a search
SURE = 1 - (1 - LEVEL) / TRIED
REACTIONS = 10  # of an autoscaler, in a run: shorter ones tell of the number of replicas that they begin with
EVALUATIONS = 10_000  # in a run, at most: each takes the time of thousands of requests
NARROWING = 6  # steps towards the rate that misses the objective by least, if all rates of SCAN miss it


@dataclass(frozen=True)
class Probe:
    """The run at one rate, and its judgement. Above the saturation rate nothing runs: 0 requests."""

    rate_per_s: float
    requests: int
    judgement: Judgement

    @property
    def fails(self) -> bool:
        return self.judgement.verdict is Verdict.FAILS

    @property
    def holds(self) -> bool:
        """Whether the estimate meets the objective; its interval may not."""
        return not self.fails and self.judgement.excess <= 1

    def __str__(self) -> str:
        worst = self.judgement.worst
        estimate = self.judgement.estimates[worst].in_words(worst.key)
        return f"{estimate} at {_format.rate(self.rate_per_s, 4)}"


@dataclass(frozen=True, eq=False, repr=False)
class Capacity(_check.Renewed):
    """The highest rate within an objective, requests per second.

    At `rate_per_s` the estimate crosses the limit; it is 0 if no rate meets the objective, and NaN if runs
    cannot decide, because they cover only a part of a day, or end before an autoscaler has acted. At
    `low_per_s` a run proves that the objective is met, at `high_per_s` that it is missed; NaN if the runs are
    too short. Each rate is tested at 99.8 %, which makes 95 % for the search of about 25 rates. A whole trace
    that drifts, or a few whole days, have no interval, and their estimates decide.

    `limited_by` is the reason against a higher rate. Lower rates may miss the objective, too, where requests
    wait for company, or fewer arrive than the least throughput. `probes` are the runs, by rate.
    """

    scenario: Scenario
    slo: SLO
    rate_per_s: float
    low_per_s: float = math.nan
    high_per_s: float = math.nan
    limited_by: str = ""
    probes: tuple[Probe, ...] = ()
    requests_simulated: int = 0

    @property
    def met(self) -> bool:
        """Whether any rate meets the objective."""
        return self.rate_per_s > 0

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row for each rate: the estimate for each objective there."""
        import pandas

        rows = []
        for probe in self.probes:
            judgement = probe.judgement
            row: dict[str, Any] = {"rate_per_s": probe.rate_per_s, "requests": probe.requests}
            row |= {"verdict": judgement.verdict.value}
            for objective, estimate in judgement.estimates.items():
                row |= estimate.columns(objective.key)
            rows.append(row)
        return pandas.DataFrame(rows)

    def __repr__(self) -> str:
        if math.isnan(self.rate_per_s):
            return f"Capacity: no run can show {self.slo}; {self.limited_by}"
        if not self.met:
            return f"Capacity: no rate has {self.slo}; {self.limited_by}"
        sides = ("met", self.low_per_s), ("missed", self.high_per_s)
        bracket = [f"{side} at {_format.rate(rate, 4)}" for side, rate in sides if not math.isnan(rate)]
        lines = [
            f"Capacity: {_format.number(self.rate_per_s, 4)} requests a second with {self.slo}",
            f"  bracket   {', '.join(bracket) or 'none: the runs are too short'}",
            f"  limit     {self.limited_by}",
        ]
        if isinstance(trace := self.scenario.workload, Trace):
            times = _format.number(self.rate_per_s / trace.offered_per_s)
            lines.insert(1, f"  today     {times} times the traffic of the trace")
        return "\n".join(lines)


def capacity(
    scenario: Scenario, slo: SLO, seed: int = 0, requests: int | None = None, tolerance: float = 0.01, *,
    executor: Executor | None = None,
) -> Capacity:  # fmt: skip
    """Return the highest rate at which a setting meets an objective, and how sure that is.

    The workload is scaled to rates from a thousandth of the highest possible one upwards. The edge between
    the highest that meets the objective and the next is narrowed by bisection to the fraction `tolerance`,
    assuming at most one edge between neighbouring rates of the scan. All rates share one seed, so they share
    one traffic, stretched. `requests` is the length of a run (default: the whole trace, or 100,000); for a
    `Diurnal`, the nearest number that covers whole periods at each rate; at a very low rate, fewer, because
    the clock ends at 48.5 days. With an autoscaler, runs begin with about as many replicas as the rate needs,
    and last until it has reacted ten times, which takes at most ten times `requests`, but at most 10,000
    evaluations.

    `executor`: the first rates run there, as in `sweep`; the answer is the same.

    Raises ValueError for a closed loop, which has no rate, and if nothing limits the rate.

    The latency of M/M/1 is exponential with rate mu - lambda: its p99 is 50 ms at 1000 - ln(100) / 0.05.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> one_by_one = Scenario(Poisson(1), SizeOrWait(1, 0), Affine(1, 0).with_noise(1, "exponential"))
    >>> found = capacity(one_by_one, SLO(p99_ms=50))
    >>> found.low_per_s < 1000 - math.log(100) / 0.05 < found.high_per_s
    True
    """
    check(scenario, slo)
    check_loss(scenario, slo)
    if all(objective.key == "throughput_per_s" for objective in slo.objectives):
        raise ValueError(f"slo must have a latency or a loss, which limits the rate, got {slo!r}")
    if not isinstance(scenario.workload, OpenLoop):
        raise ValueError(f"the workload must be open, so that its rate can change, got {scenario.workload!r}")
    count = check_requests(scenario, requests)
    seed = _check.seed(seed)
    tolerance = _check.real("tolerance", tolerance, at_least=1e-4, at_most=0.5)
    check_memory(scenario, count)
    warn_if_large(scenario, count, runs=USUAL)
    search = _Search(scenario, slo, seed, count, tolerance, Crew(executor))
    if missed := out_of_reach(scenario, slo, seed):
        return search.found(missed.text)
    return search.capacity()


def check(scenario: Scenario, slo: SLO) -> None:
    """Raise TypeError unless these are a scenario and an SLO; ValueError if only the SLO is about tokens."""
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    _check.instance("slo", slo, SLO, "an SLO, as SLO(p99_ms=50)")
    slo.check(scenario)


def check_loss(scenario: Scenario, slo: SLO) -> None:
    """Refuse objectives that ignore lost requests if requests can be lost: each loss improves a mean."""
    if scenario.can_lose and not any(objective.sees_loss for objective in slo.objectives):
        knob = "queue_limit" if scenario.queue_limit is not None else "timeout_ms"
        raise ValueError(f"a scenario with a {knob} needs max_loss or a percentile too, got {slo!r}")


def edge(
    inside: float, outside: float, holds: Callable[[float], bool], tolerance: float
) -> tuple[float, float]:
    """Return the last value found that holds and the first that fails, within a factor 1 + tolerance.

    Bisects the logarithm between `inside`, which holds, and `outside`, which fails; assumes that there is
    one edge between them.

    >>> inside, outside = edge(1, 16, lambda value: value <= 3, tolerance=0.01)
    >>> inside <= 3 < outside <= 1.01 * inside
    True
    """
    while max(inside, outside) > min(inside, outside) * (1 + tolerance):
        middle = math.sqrt(inside * outside)
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return inside, outside


def probed(scenario: Scenario, slo: SLO, seed: int, requests: int, rate_per_s: float) -> tuple[Probe, int]:
    """Return the probe at a rate, and the requests simulated for it."""
    if not scenario.replace(rate_per_s=rate_per_s).stable:
        return Probe(rate_per_s, 0, OVERLOADED), 0
    traffic = _traffic(scenario, seed, requests, rate_per_s)
    judgement = judge(traffic.run(traffic.scenario), slo, SURE)
    return Probe(rate_per_s, traffic.requests, judgement), traffic.simulated


def _traffic(scenario: Scenario, seed: int, requests: int, rate_per_s: float) -> Traffic:
    scenario, most_s = scenario.replace(rate_per_s=rate_per_s), LATEST_S
    if (auto := scenario.autoscale) is not None:
        most_s = min(most_s, EVALUATIONS * auto.every_s)
        if not recorded(scenario):  # the steady state is asked for, not the way there from few replicas
            scenario = scenario.replace(replicas=auto.needed(scenario.load))
            requests = max(requests, math.ceil(REACTIONS * auto.reacts_s * rate_per_s))
    if requests > FULL * most_s * rate_per_s:
        requests = max(int(SAFE * most_s * rate_per_s), 1)
    return Traffic(scenario, requests, seed)


@dataclass(eq=False)
class _Search:
    """The rates tried so far."""

    scenario: Scenario
    slo: SLO
    seed: int
    requests: int
    tolerance: float
    crew: Crew
    simulated: int = 0
    probes: dict[float, Probe] = field(default_factory=dict)

    def capacity(self) -> Capacity:
        top = self._top_per_s()
        highest = _traffic(self.scenario, self.seed, self.requests, top)
        periods = Periods.of(highest.scenario.workload, highest.requests)
        if periods is not None and not highest.whole:
            needed = f"a period of {periods.day.period_s:,g} s takes requests={periods.enough()}"
            return self.found(f"{needed} at {_format.rate(top, 4)}, got {self.requests}", math.nan)
        count, auto = highest.requests, self.scenario.autoscale
        most = min(LONGEST * self.requests, available(self.scenario, count))
        if auto is not None and (count > most or not fits(self.scenario, count)):
            needed = f"an autoscaler that reacts within {auto.reacts_s:g} s takes requests={count}"
            return self.found(f"{needed} at {_format.rate(top, 4)}, got {self.requests}", math.nan)
        rates = [part * top for part in SCAN]
        calls = ((self.scenario, self.slo, self.seed, self.requests, rate) for rate in rates)
        for probe, simulated in self.crew.map(probed, calls):
            self.probes[probe.rate_per_s] = probe
            self.simulated += simulated
        scanned = self._in_order()
        if not any(probe.holds for probe in scanned):
            self._narrow()
            scanned = self._in_order()
        holding = [place for place, probe in enumerate(scanned) if probe.holds]
        if not holding:
            return self.found(f"at best {min(scanned, key=lambda probe: probe.judgement.excess)}")
        last = holding[-1]
        below = [probe.rate_per_s for probe in scanned[:last] if not probe.holds]
        outside = scanned[last + 1].rate_per_s if last + 1 < len(scanned) else top
        rate, missed = self._edge(scanned[last].rate_per_s, outside, lambda probe: probe.holds)
        saturated = self.at(missed).requests == 0
        limited_by = f"the saturation rate, {_format.rate(top, 4)}" if saturated else str(self.at(missed))
        met, clearly_missed = self._clearly_met(max(below, default=0.0), rate), self._clearly_missed(missed)
        return self.found(limited_by, rate, low_per_s=met, high_per_s=clearly_missed)

    def found(self, limited_by: str, rate_per_s: float = 0.0, **more: Any) -> Capacity:
        found = {"probes": tuple(self._in_order()), "requests_simulated": self.simulated, **more}
        return Capacity(self.scenario, self.slo, rate_per_s, limited_by=limited_by, **found)

    def at(self, rate_per_s: float) -> Probe:
        """Return the probe at a rate."""
        if rate_per_s not in self.probes:
            probe, simulated = probed(self.scenario, self.slo, self.seed, self.requests, rate_per_s)
            self.probes[rate_per_s] = probe
            self.simulated += simulated
        return self.probes[rate_per_s]

    def _top_per_s(self) -> float:
        """Return a rate that is too high: the saturation rate, or one that loses too many requests."""
        saturation_per_s = self.scenario.saturation_per_s
        if not self.scenario.can_lose:
            return saturation_per_s
        served = [o.share for o in self.slo.objectives if o.share is not None]
        return saturation_per_s / max(served) * 1.1

    def _in_order(self) -> list[Probe]:
        return [self.probes[rate] for rate in sorted(self.probes)]

    def _edge(self, inside: float, outside: float, holds: Callable[[Probe], bool]) -> tuple[float, float]:
        return edge(inside, outside, lambda rate: holds(self.at(rate)), self.tolerance)

    def _narrow(self) -> None:
        """Try rates between those that miss the objective by least, after all rates of the scan missed it."""
        rates = sorted(self.probes)
        for _ in range(NARROWING):
            place = min(range(len(rates)), key=lambda place: self.at(rates[place]).judgement.excess)
            around = rates[max(place - 1, 0) : place + 2]
            rates = sorted({*around, *(math.sqrt(a * b) for a, b in pairwise(around))})
            if any(self.at(rate).holds for rate in rates):
                return

    def _clearly_met(self, below: float, rate: float) -> float:
        """Return the highest rate that is shown to meet, above one that does not hold and up to another."""
        tried = (probe for probe in self._in_order() if below < probe.rate_per_s <= rate)
        met = [probe.rate_per_s for probe in tried if probe.judgement.meets]
        if not met or met[-1] == rate:
            return rate if met else math.nan
        return self._edge(met[-1], rate, lambda probe: probe.judgement.meets)[0]

    def _clearly_missed(self, missed: float) -> float:
        if self.at(missed).fails:
            return missed
        above = (probe.rate_per_s for probe in self._in_order() if probe.rate_per_s > missed)
        fails = next((rate for rate in above if self.at(rate).fails), self._top_per_s())
        return self._edge(missed, fails, lambda probe: not probe.fails)[1]
