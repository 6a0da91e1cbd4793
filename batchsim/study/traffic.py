"""One stretch of traffic for many settings, and shorter samples of it."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from batchsim.engines.draws import Streams
from batchsim.result import Result
from batchsim.result.run_length import Periods
from batchsim.scenario import OpenLoop, Scenario, Trace
from batchsim.simulate import available, check_memory, simulated
from batchsim.study.judgement import WARMUP, recorded
from batchsim.study.kinds import kind_of

WINDOWS = 16  # in a short run: one for each section of an interval
LONGEST = 10  # times the requested length, if only a longer run can decide
FRESH = 1_000_000  # from the seed of a search to that of the run which confirms its choice
Job = tuple[Scenario, int, int, float]  # a run: its scenario, requests, seed and warm-up


@dataclass
class Traffic:
    """The first `requests` of a scenario's workload under one seed; it counts what is simulated of it.

    For a day, the nearest number that covers whole periods, if that is not too many: see `whole`.

    The beginning of the long run could be all burst, or all night. So a short run consists of 16 windows,
    spread evenly over the whole and joined, at the mean rate of the whole. That is a fair sample of bursts
    and days, and makes no difference for independent gaps. A closed loop has no arrivals to sample: its short
    run is the beginning.

    >>> from batchsim import Affine, OnOff, SizeOrWait
    >>> bursts = Scenario(OnOff(2000, 200, 10, 30), SizeOrWait(32, 0), Affine(5, 0.25))
    >>> traffic = Traffic(bursts, 100_000)
    >>> short = traffic.run(bursts, 1600)
    >>> round(float(short.scenario.workload.offered_per_s * traffic.gaps_s.mean()), 2)
    1.0
    """

    scenario: Scenario
    requests: int
    seed: int = 0
    most: float = math.inf  # requests: the next one can never be served
    _counts: list[int] = field(default_factory=list, repr=False)  # shared with a longer Traffic
    _samples: dict[int, Trace] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        periods = Periods.of(self.scenario.workload, self.requests)
        if (
            periods is not None
            and (enough := periods.enough()) <= LONGEST * self.requests
            and fits(self.scenario, enough)
        ):
            self.requests = enough

    @property
    def whole(self) -> bool:
        """Whether it covers whole periods; a part of one proves nothing."""
        periods = Periods.of(self.scenario.workload, self.requests)
        return periods is None or periods.whole > 0

    @cached_property
    def gaps_s(self) -> np.ndarray:
        """The seconds before each arrival of the whole, shape (requests,)."""
        chunks = list(Streams(self.scenario, self.seed).arrivals_s(self.requests))
        return np.diff(np.concatenate(chunks), prepend=0.0)

    @cached_property
    def sizes(self) -> np.ndarray | None:
        """The sizes of all requests, shape (requests,); None without sizes."""
        draw = Streams(self.scenario, self.seed).sizes()
        return None if draw is None else draw(self.requests)

    @property
    def simulated(self) -> int:
        """The requests simulated so far."""
        return sum(self._counts)

    def count(self, requests: int) -> None:
        """Add to the requests simulated so far."""
        self._counts.append(requests)

    def fresh(self, most: float = math.inf) -> "Traffic":
        """Return as many requests of the same workload under another seed."""
        return replace(self, seed=self.seed + FRESH, most=most, _samples={})

    def run(self, scenario: Scenario, requests: int | None = None) -> Result:
        """Run a scenario with this traffic: all of it, or a sample of so many requests."""
        return run_job(self.job(scenario, self.requests if requests is None else requests))

    def job(self, scenario: Scenario, requests: int) -> Job:
        """Return such a run before it runs, and count it."""
        if requests < self.requests and isinstance(scenario.workload, OpenLoop):
            sample = replace(self._sample(requests), priorities=scenario.workload.priorities)
            kind, windows = kind_of(scenario), self._windows(requests)
            scenario = kind.sampled(scenario, self.seed, self.requests, windows).replace(workload=sample)
        self.count(requests)
        return scenario, requests, self.seed, 0.0 if recorded(self.scenario) else WARMUP

    def resized(self, requests: int) -> "Traffic | None":
        """Return so many requests of the same traffic; None if the workload or the memory ends before.

        Fewer if one of them can never be served, as a run would end there.
        """
        requests = int(min(requests, self.most))
        fit = available(self.scenario, requests) == requests and fits(self.scenario, requests)
        if not fit or not self.whole:
            return None
        return Traffic(self.scenario, requests, self.seed, self.most, self._counts)

    def redrawn(self, requests: int, generator: np.random.Generator) -> "Traffic":
        """Return the traffic with a short run of windows that are drawn with replacement."""
        cuts = np.linspace(0, requests, WINDOWS + 1).astype(int)
        size = int(np.diff(cuts).max())
        starts = generator.integers(self.requests - size + 1, size=WINDOWS)
        places = np.concatenate(
            [start + np.arange(n) for start, n in zip(starts, np.diff(cuts), strict=True)]
        )
        gaps_s = self.gaps_s[places]
        gaps_s[0] = 0.0
        return replace(self, requests=requests + 1, _samples={requests: self._trace(gaps_s, places)})

    def _windows(self, requests: int) -> np.ndarray:
        """Return the places of the requests of a short run in the whole."""
        cuts = np.linspace(0, requests, WINDOWS + 1).astype(int)
        starts = np.linspace(0, self.requests, WINDOWS, endpoint=False).astype(int)
        windows = zip(starts, np.diff(cuts), strict=True)
        return np.concatenate([np.arange(start, start + size) for start, size in windows])

    def _sample(self, requests: int) -> Trace:
        if requests not in self._samples:
            places = self._windows(requests)
            gaps_s = self.gaps_s[places]
            # Stretched to the mean rate of the whole: otherwise the sample had another load. The first gap
            # takes no time, because a trace begins at its first arrival.
            if 0 < gaps_s[1:].mean() < math.inf:
                gaps_s = gaps_s * (self.gaps_s.mean() / gaps_s[1:].mean())
            self._samples[requests] = self._trace(gaps_s, places)
        return self._samples[requests]

    def _trace(self, gaps_s: np.ndarray, places: np.ndarray) -> Trace:
        """Return a trace of gaps, with the sizes of the requests at these places of the whole."""
        trace = Trace(np.cumsum(gaps_s))
        if self.sizes is None:
            return trace
        return trace.with_sizes(self.sizes[places], self.scenario.workload.size_unit)


def run_job(job: Job) -> Result:
    """Return the result of a run."""
    scenario, requests, seed, warmup = job
    return simulated(scenario, requests, seed, warmup=warmup, keep="requests")[0]


def fits(scenario: Scenario, requests: int) -> bool:
    """Return whether the columns of so many requests fit in memory."""
    try:
        check_memory(scenario, requests)
    except MemoryError:
        return False
    return True
