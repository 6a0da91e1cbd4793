"""The highest rate that a setting sustains within an objective."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from batchsim import _check, _format
from batchsim.scenario import OpenLoop, Scenario
from batchsim.study import phrases
from batchsim.study.bisection import edge
from batchsim.study.judgement import STRICT, Judgement, Verdict, can_lose, judge, recorded
from batchsim.study.race import SHORTEST
from batchsim.study.slo import SLO, Objective
from batchsim.study.traffic import Traffic, how_many

if TYPE_CHECKING:
    import pandas

# Where the search begins, as parts of the highest rate that can be: also low, where waits show.
SCAN = (0.001, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
SHORT = 1 / 20  # of the requests: enough for rates that surely fail
NARROWING = 6  # steps towards the rate that misses the objective by least, where all of the above miss it


@dataclass(frozen=True)
class Probe:
    """What a run at one rate says; none where the rate is above the servers' capacity."""

    rate_per_s: float
    requests: int
    judgement: Judgement | None

    @property
    def verdict(self) -> Verdict:
        return Verdict.FAILS if self.judgement is None else self.judgement.verdict

    @property
    def excess(self) -> float:
        return math.inf if self.judgement is None else self.judgement.excess

    @property
    def holds(self) -> bool:
        """Whether the objective is met by the estimate, sure or not."""
        return self.verdict is not Verdict.FAILS and self.excess <= 1


@dataclass(frozen=True, eq=False, repr=False)
class Capacity:
    """The highest rate within an objective, requests per second.

    At `rate_per_s` the estimate crosses the limit; it is 0 where no rate meets the objective. At
    `low_per_s` the objective is surely met (95 %), at `high_per_s` surely missed; NaN where the runs are
    too short to be sure. Where a trace or a day drifts, and so has no interval, its estimates decide.
    Below `lowest_per_s` it is missed as well, because requests wait for company that does not come, or are
    fewer than the throughput asked for; `lowest_by` says which. It is 0 where the smallest rate looked at, a
    thousandth of the capacity, meets it.
    `limited_by` is what stops a higher rate. `probes` are the runs, by rate.
    """

    scenario: Scenario
    slo: SLO
    rate_per_s: float
    low_per_s: float
    high_per_s: float
    lowest_per_s: float
    limited_by: str
    probes: tuple[Probe, ...]
    requests_simulated: int
    lowest_by: str = ""

    @property
    def met(self) -> bool:
        """Whether any rate meets the objective."""
        return self.rate_per_s > 0

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row a rate: what each objective's number is there."""
        import pandas

        rows = []
        for probe in self.probes:
            row = {"rate_per_s": probe.rate_per_s, "requests": probe.requests, "verdict": probe.verdict.value}
            if probe.judgement is not None:
                for objective, found in probe.judgement.estimates.items():
                    row |= {objective.key: found.value}
                    row |= {f"{objective.key}_{end}": getattr(found, end) for end in ("low", "high")}
            rows.append(row)
        return pandas.DataFrame(rows)

    def __repr__(self) -> str:
        if not self.met:
            return f"Capacity: no rate has {self.slo}; {self.limited_by}"
        known = [
            f"{side} at {_format.rate(rate, 4)}"
            for side, rate in (("met", self.low_per_s), ("missed", self.high_per_s))
            if not math.isnan(rate)
        ]
        sure = "as it is" if recorded(self.scenario) else "surely"
        lines = [
            f"Capacity: {_format.number(self.rate_per_s, 4)} requests a second with {self.slo}",
            f"  {sure:<9} {', '.join(known) or 'neither met nor missed: the runs are too short'}",
            f"  limit     {self.limited_by}",
        ]
        if self.lowest_per_s:
            lowest = _format.rate(self.lowest_per_s, 4)
            lines.append(f"  and       missed below {lowest}: there {self.lowest_by}")
        return "\n".join(lines)


def capacity(
    scenario: Scenario, slo: SLO, seed: int = 0, requests: int | None = None, tolerance: float = 0.01
) -> Capacity:
    """Return the highest rate at which a setting meets an objective, and how sure that is.

    The workload is scaled to rates from a thousandth of the highest that can be up to that, and each
    edge between a rate that meets the objective and one that does not is narrowed by bisection
    to the fraction `tolerance`. So there is taken to be one edge between neighbouring rates of the scan; a
    wait that breaks the objective at low rates is found, as `lowest_per_s`. All rates share one
    seed, hence one traffic, stretched. `requests`: the length of a run, a whole trace or 100,000; rates that
    surely fail in a twentieth of that get no longer run.

    Raises ValueError for a closed loop, which has no rate, and where nothing limits the rate.

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
        raise ValueError(f"capacity needs a latency or a loss that limits the rate, got {slo!r}")
    if not isinstance(scenario.workload, OpenLoop):
        raise ValueError(
            f"capacity needs an open workload, whose rate can be changed, got {scenario.workload!r}"
        )
    count = how_many(scenario, requests)
    seed = _check.whole("seed", seed, at_least=0, at_most=None)
    tolerance = _check.real("tolerance", tolerance, at_least=1e-4, at_most=0.5)
    return _Search(scenario, slo, seed, count, tolerance).capacity()


def sees_loss(objective: Objective) -> bool:
    """Return whether an objective is missed when many requests are lost."""
    return objective.q is not None or objective.key == "loss"


def check(scenario: Scenario, slo: SLO) -> None:
    """Refuse what is no scenario, no SLO, or an SLO that does not see a request that is lost."""
    if not isinstance(scenario, Scenario):
        raise TypeError(f"scenario must be a Scenario, got {scenario!r}")
    if not isinstance(slo, SLO):
        raise TypeError(f"slo must be an SLO, as SLO(p99_ms=50), got {slo!r}")


def check_loss(scenario: Scenario, slo: SLO) -> None:
    """Refuse objectives that do not see lost requests, where they can be lost: a mean gets better by them."""
    if can_lose(scenario) and not any(map(sees_loss, slo.objectives)):
        what = "queue_limit" if scenario.queue_limit is not None else "timeout_ms"
        raise ValueError(f"a scenario with a {what} needs max_loss or a percentile too, got {slo!r}")


@dataclass(eq=False)
class _Search:
    """The rates looked at so far."""

    scenario: Scenario
    slo: SLO
    seed: int
    requests: int
    tolerance: float
    simulated: int = 0
    probes: dict[float, Probe] = field(default_factory=dict)

    def capacity(self) -> Capacity:
        top = self._top_per_s()
        scanned = [self.at(part * top) for part in SCAN]
        if not any(probe.holds for probe in scanned):
            self._narrow(scanned)
            scanned = self._in_order()
        holding = [place for place, probe in enumerate(scanned) if probe.holds]
        if not holding:
            best = min(scanned, key=lambda probe: probe.excess)
            return self._answer(0.0, math.nan, math.nan, 0.0, f"at best {_finding(best)}")
        last = first = holding[-1]
        while first > 0 and scanned[first - 1].holds:
            first -= 1
        outside = scanned[last + 1].rate_per_s if last + 1 < len(scanned) else top
        rate, missed = self._edge(scanned[last].rate_per_s, outside, lambda probe: probe.holds)
        lowest, lowest_by = 0.0, ""
        if first > 0:
            below = scanned[first - 1].rate_per_s
            lowest, below = self._edge(scanned[first].rate_per_s, below, lambda probe: probe.holds)
            lowest_by = _too_few(self.at(below))
        beyond = self.at(missed)
        limited_by = (
            f"the servers' capacity, {_format.rate(top, 4)}" if beyond.judgement is None else _finding(beyond)
        )
        return self._answer(
            rate,
            self._surely_met(rate, lowest),
            self._surely_missed(missed),
            lowest,
            limited_by,
            lowest_by,
        )

    def _answer(
        self, rate: float, low: float, high: float, lowest: float, limited_by: str, lowest_by: str = ""
    ) -> Capacity:
        probes, slo = tuple(self._in_order()), self.slo
        return Capacity(
            self.scenario, slo, rate, low, high, lowest, limited_by, probes, self.simulated, lowest_by
        )

    def at(self, rate_per_s: float) -> Probe:
        """Return what runs at a rate say: a short one if that is clear, else a whole one."""
        if rate_per_s not in self.probes:
            self.probes[rate_per_s] = self._probe(rate_per_s)
        return self.probes[rate_per_s]

    def _probe(self, rate_per_s: float) -> Probe:
        scenario = self.scenario.replace(rate_per_s=rate_per_s)
        if not scenario.stable:
            return Probe(rate_per_s, 0, None)
        traffic, short = Traffic(scenario, self.requests, self.seed), round(self.requests * SHORT)
        if short >= SHORTEST:
            judgement = judge(traffic.run(scenario, short), self.slo, scenario, STRICT)
            if judgement.verdict is Verdict.FAILS:
                self.simulated += traffic.simulated
                return Probe(rate_per_s, short, judgement)
        judgement = judge(traffic.run(scenario), self.slo)
        self.simulated += traffic.simulated
        return Probe(rate_per_s, self.requests, judgement)

    def _top_per_s(self) -> float:
        """Return a rate that surely misses the objective: of all requests only so many can be served."""
        saturation_per_s = self.scenario.saturation_per_s
        if not can_lose(self.scenario):
            return saturation_per_s
        shares = [o.q / 100 if o.q is not None else 1 - o.limit for o in self.slo.objectives if sees_loss(o)]
        return saturation_per_s / max(shares) * 1.1

    def _in_order(self) -> list[Probe]:
        return [self.probes[rate] for rate in sorted(self.probes)]

    def _edge(self, inside: float, outside: float, holds: Callable[[Probe], bool]) -> tuple[float, float]:
        return edge(inside, outside, lambda rate: holds(self.at(rate)), self.tolerance)

    def _narrow(self, scanned: Sequence[Probe]) -> None:
        """Look between the rates that miss the objective by least, where no rate of the scan meets it."""
        rates = [probe.rate_per_s for probe in scanned]
        for _ in range(NARROWING):
            place = min(range(len(rates)), key=lambda place: self.at(rates[place]).excess)
            around = rates[max(place - 1, 0) : place + 2]
            rates = sorted({*around, *(math.sqrt(a * b) for a, b in pairwise(around))})
            if any(self.at(rate).holds for rate in rates):
                return

    def _surely_met(self, rate: float, lowest: float) -> float:
        met = [
            probe.rate_per_s
            for probe in self.probes.values()
            if probe.verdict is Verdict.MEETS and lowest <= probe.rate_per_s <= rate
        ]
        if not met:
            return math.nan
        inside, outside = max(met), rate
        if inside == outside:
            return rate
        return self._edge(inside, outside, lambda probe: probe.verdict is Verdict.MEETS)[0]

    def _surely_missed(self, missed: float) -> float:
        if self.at(missed).verdict is Verdict.FAILS:
            return missed
        above = (probe.rate_per_s for probe in self._in_order() if probe.rate_per_s > missed)
        fails = next((rate for rate in above if self.at(rate).verdict is Verdict.FAILS), self._top_per_s())
        return self._edge(missed, fails, lambda probe: probe.verdict is not Verdict.FAILS)[1]


def _too_few(probe: Probe) -> str:
    """Return why a rate is too low."""
    assert probe.judgement is not None
    worst = probe.judgement.worst
    return (
        "requests wait for company" if worst.at_most else f"fewer than {_format.rate(worst.limit, 4)} arrive"
    )


def _finding(probe: Probe) -> str:
    judgement = probe.judgement
    assert judgement is not None
    found = phrases.estimated(judgement.worst.key, judgement.estimates[judgement.worst])
    return f"{found} at {_format.rate(probe.rate_per_s, 4)}"
