"""One stretch of traffic for many settings, and shorter ones that stand for all of it."""

import math
from dataclasses import dataclass, field

import numpy as np

from batchsim import _check
from batchsim.engines.draws import Streams
from batchsim.result import Result
from batchsim.scenario import Diurnal, OpenLoop, Scenario, Trace
from batchsim.simulate import DEFAULT_REQUESTS, simulate

WINDOWS = 16  # a short run is made of: as many as the sections of an interval
WARMUP = 0.1  # of each run; none of a trace or a day, whose start is part of what is asked


@dataclass
class Traffic:
    """The first `requests` of a scenario's workload under one seed; it counts what it simulates.

    A short run that were the beginning of the long one would be all burst, or all night. So it is made
    of 16 windows, spread evenly over the whole, one behind the other, at the whole's mean rate. Of
    independent gaps these are as good as any; of bursts and days they are a fair sample. A closed
    loop has no arrivals to sample: its short run is the beginning.

    >>> from batchsim import Affine, OnOff, SizeOrWait
    >>> bursts = Scenario(OnOff(2000, 200, 10, 30), SizeOrWait(32, 0), Affine(5, 0.25))
    >>> traffic = Traffic(bursts, 100_000)
    >>> short = traffic.run(bursts, 1600)
    >>> round(short.scenario.workload.offered_per_s / traffic.rate_per_s, 2)
    1.0
    """

    scenario: Scenario
    requests: int
    seed: int = 0
    simulated: int = 0
    _samples: dict[int, Trace] = field(default_factory=dict, repr=False)
    _gaps_s: np.ndarray | None = field(default=None, repr=False)

    @property
    def gaps_s(self) -> np.ndarray:
        """The seconds before each arrival of the whole, shape (requests,)."""
        if self._gaps_s is None:
            chunks = list(Streams(self.scenario, self.seed).arrivals_s(self.requests))
            self._gaps_s = np.diff(np.concatenate(chunks), prepend=0.0)
        return self._gaps_s

    @property
    def rate_per_s(self) -> float:
        """The mean arrival rate of the whole."""
        return float(1 / self.gaps_s.mean())

    def run(self, scenario: Scenario, requests: int | None = None) -> Result:
        """Run a scenario with this traffic: all of it, or so many requests that stand for it."""
        requests = self.requests if requests is None else requests
        recorded = isinstance(self.scenario.workload, (Trace, Diurnal))
        if requests < self.requests and isinstance(scenario.workload, OpenLoop):
            scenario = scenario.replace(workload=self._sample(requests))
        self.simulated += requests
        return simulate(scenario, requests, seed=self.seed, warmup=0.0 if recorded else WARMUP)

    def _sample(self, requests: int) -> Trace:
        if requests not in self._samples:
            cuts = np.linspace(0, requests, WINDOWS + 1).astype(int)
            starts = np.linspace(0, self.requests, WINDOWS, endpoint=False).astype(int)
            places = np.concatenate(
                [np.arange(start, start + size) for start, size in zip(starts, np.diff(cuts), strict=True)]
            )
            gaps_s = self.gaps_s[places]
            if 0 < gaps_s[1:].mean() < math.inf:
                gaps_s = gaps_s * (self.gaps_s.mean() / gaps_s[1:].mean())
            self._samples[requests] = Trace(np.cumsum(gaps_s))
        return self._samples[requests]


def how_many(scenario: Scenario, requests: int | None) -> int:
    """Return the checked number of requests: by default a whole trace, else 100,000."""
    most = scenario.workload.max_requests if isinstance(scenario.workload, OpenLoop) else None
    if requests is None:
        return DEFAULT_REQUESTS if most is None else most
    count = _check.whole("requests", requests)
    if most is not None and count > most:
        raise ValueError(f"requests must be at most the trace's {most:,}, got {count:,}")
    return count
